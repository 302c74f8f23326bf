"""How many states? Several models learned side by side, ranked by how well each predicted what came.

Each row is predicted by each model from the rows before it, with the parameters that it had learned by then. The sum of
the logarithms of these predictive densities ranks models of different size without a penalty for it: what a larger
model does not gain by its states it loses by having more to learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import IntArray, is_integer, matrix, sequence_starts
from hmmstream.learner import Learner
from hmmstream.online import OnlineHMM
from hmmstream.selfstart import SelfStart

BLOCK = 256  # rows that are compared together
LEAST_BLOCKS = 8  # for a standard error
IMPOSSIBLE = -1e100  # log-likelihood of a block with a row that could not occur


class Standing(NamedTuple):
    """How one of the models stands."""

    hmm: OnlineHMM
    log_likelihood: float  # of all rows that are compared, each given those before it
    per_row: float
    behind: float  # what it falls short of the best, per row
    error: float  # standard error of that; NaN before there are enough rows


class OnlineComparison:
    """Models that learn from the same stream, in one pass, and how well each predicts it.

    Parameters
    ----------
    candidates : integers or OnlineHMMs
        A number of states means ``OnlineHMM`` with that many and these ``settings``.
    settings
        Of ``OnlineHMM``: ``emission``, ``transition``, ``random_state`` and others.

    Attributes
    ----------
    ranking_ : list of Standing
        The best first.
    best_ : OnlineHMM
        The first of them.
    n_compared_ : int
        Rows that are compared. Rows are taken in blocks of 256; those in which one of the models found a new start, and
        those before all of them had one, are left out: what a start was made from, it does not predict.

    Notes
    -----
    Predictions are those of the raw iterate, as ``log_likelihood_`` is. Memory does not grow with the stream.

    Examples
    --------
    >>> from hmmstream import HMM, Gaussian
    >>> world = HMM([0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]], Gaussian("tied", means=[0.0, 4.0], covars=1.0))
    >>> comparison = OnlineComparison([2, 3], emission=Gaussian("tied"), random_state=0)
    >>> comparison = comparison.partial_fit(world.sample(8_000, 0)[0])
    >>> comparison.best_.n_components
    2
    """

    def __init__(self, candidates: Iterable[Any], **settings: Any) -> None:
        self.candidates = [OnlineHMM(one, **settings) if is_integer(one) else one for one in candidates]
        if not self.candidates or not all(isinstance(one, OnlineHMM) for one in self.candidates):
            raise ValueError("candidates must be numbers of states or OnlineHMMs, at least one of them")
        k = len(self.candidates)
        self.n_samples_seen_ = 0
        self._block = np.zeros(k)  # log-likelihood of the present block, NaN if it is left out
        self._n_blocks = 0  # that were compared
        self._mean, self._squares = np.zeros(k), np.zeros((k, k))  # of blocks, and sum of squared deviations

    def partial_fit(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> Self:
        """Let all models learn from the rows of ``X``, which continue the stream: see ``OnlineHMM.partial_fit``."""
        n = len(matrix(X))
        starts = None if lengths is None else sequence_starts(lengths, n)
        for hmm in self.candidates:
            hmm.check(X)
        for piece, is_start in self._pieces(n, starts):
            if is_start:
                self.end_sequence()
            self._learn(X[piece], piece.stop - piece.start)  # type: ignore[index]
        return self if lengths is None else self.end_sequence()

    def end_sequence(self) -> Self:
        """Say that the next observation starts a new, independent sequence."""
        for hmm in self.candidates:
            learner = hmm.__dict__.get("_learner")
            if learner is not None:
                learner.end_sequence()
        return self

    def _pieces(self, n: int, starts: IntArray | None) -> Iterator[tuple[slice, bool]]:
        """Rows that are learned together, up to the end of a block or sequence, and whether they begin a sequence."""
        begins = set() if starts is None else set(starts.tolist())
        cuts = sorted({0, n, *begins, *range(BLOCK - self.n_samples_seen_ % BLOCK, n, BLOCK)})
        for first, stop in pairwise(cuts):
            yield slice(first, stop), first in begins

    def _learn(self, X: Any, n: int) -> None:
        for at, hmm in enumerate(self.candidates):
            learner = _at_work(hmm)
            before = np.nan if learner is None else hmm.log_likelihood_
            hmm.partial_fit(X)
            if _at_work(hmm) is not learner or np.isnan(before):
                self._block[at] = np.nan
            else:
                self._block[at] += max(hmm.log_likelihood_ - before, IMPOSSIBLE) if before > -np.inf else IMPOSSIBLE
        self.n_samples_seen_ += n
        if self.n_samples_seen_ % BLOCK == 0:
            if not np.isnan(self._block).any():
                self._n_blocks += 1
                deviation = self._block - self._mean
                self._mean += deviation / self._n_blocks
                self._squares += np.outer(deviation, self._block - self._mean)
            self._block[:] = 0.0

    @property
    def n_compared_(self) -> int:
        return self._n_blocks * BLOCK

    @property
    def ranking_(self) -> list[Standing]:
        if self._n_blocks == 0:
            raise ValueError(
                f"after {self.n_samples_seen_:,} rows nothing can be compared yet: it takes {BLOCK} rows in which "
                "no model finds a new start"
            )
        return [self._standing(int(at)) for at in np.argsort(-self._mean, kind="stable")]

    def _standing(self, at: int) -> Standing:
        best = int(self._mean.argmax())
        squares = self._squares[at, at] + self._squares[best, best] - 2.0 * self._squares[at, best]
        error = np.nan
        if self._n_blocks >= LEAST_BLOCKS:
            error = np.sqrt(max(squares, 0.0) / (self._n_blocks - 1) / self._n_blocks)
        mean, behind = self._mean[at], self._mean[best] - self._mean[at]
        figures = (mean * self._n_blocks, mean / BLOCK, behind / BLOCK, error / BLOCK)
        return Standing(self.candidates[at], *map(float, figures))

    @property
    def best_(self) -> OnlineHMM:
        return self.ranking_[0].hmm

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.candidates)} models after {self.n_samples_seen_:,} rows>"


def _at_work(hmm: OnlineHMM) -> Learner | None:
    """The learner that a model has now; another one once it has found a better start."""
    learner = hmm.__dict__.get("_learner")
    return learner.learner if isinstance(learner, SelfStart) else learner
