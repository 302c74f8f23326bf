"""A learner that finds its own start.

It gathers the first observations and looks for a start each time that their number has doubled, so that there is a
model from the first observation on. Every look begins anew, and then takes in what was gathered, so that nothing is
lost. When the buffer is full, the last start is the one to stay with.

A look takes a while. Whoever has to answer at once can have them in a ``background`` process: meanwhile the learner
that is there goes on, and the new one takes in what has come since. What is learned in the end is the same, to the bit.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import inference
from hmmstream.arrays import FloatArray, matrix, observations
from hmmstream.background import SecondProcess
from hmmstream.emissions import Emission, specification
from hmmstream.learner import Learner, Peek
from hmmstream.model import HMM
from hmmstream.priors import Prior
from hmmstream.record import Record, join
from hmmstream.recursions import rows
from hmmstream.recursions.state import N_SEEN
from hmmstream.starts import find_start
from hmmstream.transitions import Transition

BUFFER_ROWS = 2**15
BUFFER_SIZE = 2**20  # numbers, if there are many features
MOST_PIECES = 64  # if rows come one by one: to join many takes long
MISSING_FACTOR = 2  # so many times as many rows wait in the buffer, if nothing was seen of some


class SelfStart:
    """The first observations of a stream, and the learner that they have led to.

    Its methods are those of :class:`~hmmstream.Learner`. ``learner`` is None before anything was seen, and goes on
    alone once the buffer ``is_full``.

    Parameters
    ----------
    emission : str or Emission
        A family, by name or as a specification.
    n_components : int
    transition : Transition
    seed : int or None
    prior : Prior or None
    settings
        Of the learner: step, averaging, n_min, update_every.
    """

    def __init__(
        self,
        emission: str | Emission,
        n_components: int,
        transition: Transition,
        seed: int | None,
        prior: Prior | None,
        **settings: Any,
    ) -> None:
        self.emission, self.n_components, self.transition = emission, n_components, transition
        self.prior = Prior() if prior is None else prior
        self.settings = settings
        self.seed = int(np.random.default_rng().integers(2**63)) if seed is None else seed
        self.family: Emission | None = None  # the specification, and with values to check observations by
        self.sized: Emission | None = None
        self.pieces: list[Record] = []
        self.n_gathered = 0  # rows in the buffer of which something was seen
        self.n_waiting = 0  # all rows in the buffer
        self.n_before = 0  # rows before the first of which something was seen
        self.n_at_last_look = 0
        self.has_ended = True  # the next row starts a sequence
        self.last_rows = np.empty((0, 0))
        self.frozen = False
        self.learner: Learner | None = None
        self.background: SecondProcess | None = None
        self._search: Future[HMM] | None = None  # the look that is going on in the background
        self._searched = 0  # the number of rows that it is about
        self._wanted: tuple[int, int] | None = None  # the look that comes next: observations, rows

    @property
    def capacity(self) -> int:
        """Rows that are gathered at most."""
        assert self.sized is not None
        return min(BUFFER_ROWS, max(1, BUFFER_SIZE // self.sized.n_features))

    @property
    def is_full(self) -> bool:
        """Whether the buffer is full, of observations or of missing ones, and the last look has come to an end."""
        return self.learner is not None and self._search is None and self._wanted is None and self._holds_enough

    @property
    def is_searching(self) -> bool:
        """Whether a look is going on in the background."""
        return self._search is not None and not self._search.done()

    @property
    def _holds_enough(self) -> bool:
        return self.n_gathered >= self.capacity or self.n_waiting >= MISSING_FACTOR * self.capacity

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        states: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        """Learn from the rows of ``X``, which continue the stream: see ``Learner``."""
        self.follow(X, lengths, states=states, weights=weights)

    def learn_one(self, x: Any) -> None:
        """Learn from one observation: a number, or a sequence of n_features numbers."""
        self.follow((x if isinstance(x, np.ma.MaskedArray) else np.asarray(x)).reshape(1, -1))

    def follow(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        states: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> FloatArray:
        """Learn from the rows of ``X`` and return each row's state probabilities as they stood at that row.

        They are all the same before anything was seen.
        """
        data = self._record(X, lengths, states, weights)
        filtered = np.full((len(data), self.n_components), 1.0 / self.n_components)
        row = 0 if self.learner is not None else self._skip_missing(data)
        while row < len(data):
            self._go_on_looking(wait=False)
            if self.is_full:
                break
            end, is_due, can_wait = self._until_look(data, row)
            last = end - 1 if is_due and not can_wait else end
            if row < last:
                self._learner().take(data[row:last], filtered[row:last])
            self._gather(data[row:end])
            if is_due:
                self._look(can_wait)
            if last < end:
                filtered[last] = self._learner().filtered_proba
            row = end
        if row < len(data):
            self._learner().take(data[row:], filtered[row:])
        if len(data):
            self.has_ended, self.last_rows = False, data.X[-1:].copy()
        if lengths is not None:
            self.end_sequence()
        return filtered

    def check(self, X: ArrayLike) -> None:
        """Refuse what ``learn`` would refuse, and learn nothing."""
        self._record(X, None, None, None)

    def end_sequence(self) -> None:
        """Say that the next observation starts a new, independent sequence."""
        self.has_ended = True
        if self.learner is not None:
            self.learner.end_sequence()

    def peek(self, x: Any) -> Peek:
        """What ``learn_one(x)`` would find: see ``Learner``. Before anything was seen, nothing is expected."""
        if self.learner is None:
            return Peek(np.full(self.n_components, 1.0 / self.n_components), 0.0)
        return self.learner.peek(x)

    def add_features(self, emission: Emission) -> None:
        """Let new features join, as if they had been missing so far: see ``Learner``."""
        self._go_on_looking(wait=True)
        if self.family is None or self.sized is None or self.learner is None:
            raise ValueError("nothing was seen yet to which features could be added")
        self.learner.add_features(emission)
        if self.family.has_values:
            self.family = self.family.beside(emission)
        self.sized = self.sized.beside(emission)
        self.prior = self.prior.with_features(emission)
        n_new = emission.n_features
        self.pieces = [
            replace(piece, X=np.pad(piece.X, ((0, 0), (0, n_new)), constant_values=np.nan)) for piece in self.pieces
        ]

    def freeze(self) -> None:
        """Hold the parameters, once there are some."""
        self._freeze(True)

    def unfreeze(self) -> None:
        """Let the parameters follow the statistic again."""
        self._freeze(False)

    def _freeze(self, frozen: bool) -> None:
        self._go_on_looking(wait=True)
        self.frozen = frozen
        if self.learner is not None:
            self.learner.frozen = frozen

    def _learner(self) -> Learner:
        assert self.learner is not None
        return self.learner

    def _record(
        self, X: ArrayLike, lengths: ArrayLike | None, states: ArrayLike | None, weights: ArrayLike | None
    ) -> Record:
        """What is to be learned from, checked. A family by name may grow with it: symbols not seen before."""
        X = matrix(X) if self.sized is None else observations(X, self.sized.n_columns)
        family, sized = self.family, self.sized
        if family is None or sized is None:
            family, sized = self._sized(X)
        elif isinstance(self.emission, str) and rows.check(sized, X) != rows.ACCEPTED:  # by name: none has lags
            family, sized = self._sized(np.concatenate([*(piece.X for piece in self.pieces), X]))
        before = None if self.has_ended else sized.latest(self.last_rows)
        data = inference.record(sized, X, lengths, states, weights, before=before)
        self.family, self.sized = family, sized
        return data

    def _sized(self, X: FloatArray) -> tuple[Emission, Emission]:
        family = specification(self.emission, X)
        return family, family if family.has_values else family.sized(self.n_components, X.shape[1])

    def _skip_missing(self, data: Record) -> int:
        """The number of rows before the first of which something was seen: they need not wait in the buffer."""
        is_seen = ~np.isnan(data.X).all(axis=1)
        n = int(is_seen.argmax()) if is_seen.any() else len(data)
        self.n_before += n
        if n < len(data):
            data.is_start[n] = True
        return n

    def _until_look(self, data: Record, row: int) -> tuple[int, bool, bool]:
        """The row up to which rows are learned from without a further look, whether one is due then and can wait."""
        if self._holds_enough and self.learner is not None:
            return len(data), False, True
        stop = min(row + MISSING_FACTOR * self.capacity, len(data))  # further than this nothing is gathered
        n_seen = np.cumsum(~np.isnan(data.X[row:stop]).all(axis=1))
        n_due = min(2 * self.n_at_last_look, self.capacity) - self.n_gathered
        end = row + int(np.searchsorted(n_seen, max(n_due, 1))) + 1
        can_wait = self.background is not None and self.learner is not None
        if self.learner is not None:
            if self.frozen:
                return stop, False, can_wait
            emission = self.learner.start.emission
            refused = rows.check(emission, data.X[row:end])  # by the family of the last look: it has to grow
            if refused != rows.ACCEPTED:
                end = row + refused // emission.n_features + 1
                can_wait = False
        return min(end, stop), end <= stop, can_wait

    def _gather(self, piece: Record) -> None:
        self.pieces.append(join([piece]))  # a copy: the caller may use his array again
        if len(self.pieces) >= MOST_PIECES:
            self.pieces = [self.pieces[0], join(self.pieces[1:])]
        self.n_waiting += len(piece)
        self.n_gathered += int((~np.isnan(piece.X).all(axis=1)).sum())

    def _look(self, can_wait: bool) -> None:
        """Look for the best start for all that was gathered, and begin anew from there, now or when it is found."""
        self.n_at_last_look = self.n_gathered
        if not can_wait and self._search is not None:
            self._search.cancel()  # it is about a family that is too small
            self._search = None
        self._wanted = (self.n_gathered, self.n_waiting)
        self._go_on_looking(wait=not can_wait)

    def _go_on_looking(self, *, wait: bool) -> None:
        """Begin anew from a start that was found in the background; then the look that is wanted next, if any."""
        while self._search is not None or self._wanted is not None:
            if self._search is not None:
                if not (wait or self._search.done()):
                    return
                start, self._search = self._search.result(), None
                self._begin_anew(start, self._searched)
                continue
            assert self._wanted is not None
            (n_gathered, n_rows), self._wanted = self._wanted, None
            self.pieces = [join(self.pieces)]
            rng = np.random.default_rng([self.seed, n_gathered])
            sought = (self.n_components, self.transition, self.pieces[0][:n_rows], rng, self.prior)
            assert self.family is not None
            if wait:
                self._begin_anew(find_start(self.family, *sought), n_rows)
            else:
                assert self.background is not None
                self._search = self.background.submit(find_start, self.family, *sought)
                self._searched = n_rows

    def _begin_anew(self, start: HMM, n_rows: int) -> None:
        """A new learner: it recalls the rows that the start was made from, and learns from those that came since."""
        data = join(self.pieces)
        self.learner = Learner(start, prior=self.prior, **self.settings)
        self.learner.recall(data[:n_rows])
        self.learner.vector[N_SEEN] += self.n_before
        self.learner.frozen = self.frozen
        since = data[n_rows:]
        if len(since):
            self.learner.take(since, np.empty((len(since), self.n_components)))
            if self.has_ended:
                self.learner.end_sequence()

    def __getstate__(self) -> dict[str, Any]:
        self._go_on_looking(wait=True)
        return {**self.__dict__, "background": None}
