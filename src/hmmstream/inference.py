"""Exact inference on a whole record: the passes forwards and backwards, a block of rows at a time.

A record of any length is smoothed in little memory: on the way forwards only the filter at the start of each block is
kept, and on the way back each block is filtered again. A record of one block is filtered once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray, is_integer, observations, sequence_starts
from hmmstream.emissions import Emission
from hmmstream.recursions import exact, rows
from hmmstream.transitions import Transition

BLOCK_SIZE = 2**22  # numbers: rows of a block × states
CHUNK_ROWS = 2**15  # whole sequences are worked on in parallel, at least so many rows together


T = TypeVar("T")
P = TypeVar("P", bound=tuple[Any, ...])


class Values(Protocol):
    """What inference reads of a model."""

    @property
    def startprob(self) -> FloatArray: ...
    @property
    def transmat(self) -> FloatArray: ...
    @property
    def emission(self) -> Emission: ...
    @property
    def transition(self) -> Transition: ...


@dataclass(frozen=True)
class Record:
    """Observations that a family accepts, and where sequences start."""

    X: FloatArray
    is_start: Any  # (n,) booleans

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: slice) -> Record:
        return Record(self.X[rows], self.is_start[rows])


def record(emission: Emission, X: ArrayLike, lengths: ArrayLike | None = None) -> Record:
    """Check ``X`` and ``lengths``, and say what is wrong with them."""
    matrix = observations(X, emission.n_features)
    is_start = np.zeros(len(matrix), dtype=np.bool_)
    is_start[:1] = True
    if lengths is not None:
        is_start[sequence_starts(lengths, len(matrix))] = True
    refused = rows.check(emission, matrix)
    if refused != rows.ACCEPTED:
        raise ValueError(emission.refusal(matrix, refused))
    return Record(matrix, is_start)


class Pass:
    """A model laid out for the recursions, with the memory for one block of rows."""

    def __init__(self, model: Values, n_rows: int, width: int = 0) -> None:
        m = model.emission.n_components
        self.model = model
        self.chain = exact.Chain(m)
        self.theta = model.emission.theta()
        self.startprob = np.array(model.startprob)
        self.transmat = np.array(model.transmat)
        self.block = max(1, min(n_rows, BLOCK_SIZE // max(m, width)))
        self.log_g, self.g, self.filtered = (np.empty((self.block, m)) for _ in range(3))
        self.log_scale = np.empty(self.block)

    def blocks(self, n: int) -> list[slice]:
        """The rows of each block."""
        return [slice(first, min(first + self.block, n)) for first in range(0, n, self.block)]

    def densities(self, data: Record) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log-densities, densities and the logarithm of their scale for the rows of a block."""
        n = len(data)
        out = self.log_g[:n], self.g[:n], self.log_scale[:n]
        rows.densities(self.model.emission, self.theta, data.X, *out)
        return out

    def forward(self, data: Record, phi: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Log-likelihood, filter and gain of a block; ``phi`` is the filter before it, and becomes that at its end."""
        densities = self.densities(data)
        filtered = self.filtered[: len(data)]
        log_likelihood = exact.forward(
            self.chain, self.startprob, self.transmat, data.is_start, *densities, phi, filtered
        )
        return log_likelihood, filtered, densities[1]


def log_likelihood(model: Values, data: Record) -> float:
    """Logarithm of the density of all observations."""
    work = Pass(model, len(data))
    phi = work.startprob.copy()
    return sum((work.forward(data[piece], phi)[0] for piece in work.blocks(len(data))), start=0.0)


def filtered_probabilities(model: Values, data: Record) -> FloatArray:
    """Probability of each state at each row, given the rows up to it."""
    work = Pass(model, len(data))
    phi = work.startprob.copy()
    out = np.empty((len(data), len(phi)))
    for piece in work.blocks(len(data)):
        out[piece] = work.forward(data[piece], phi)[1]
    return out


def log_predictive_densities(model: Values, data: Record) -> FloatArray:
    """Logarithm of the density of each row, given the rows before it."""
    work = Pass(model, len(data))
    phi = work.startprob.copy()
    out = np.empty(len(data))
    for piece in work.blocks(len(data)):
        before, block = phi.copy(), data[piece]
        filtered = work.forward(block, phi)[1]
        predicted = np.vstack([before, filtered[:-1]]) @ work.transmat
        predicted[block.is_start] = work.startprob
        with np.errstate(divide="ignore", invalid="ignore"):
            joint = np.log(predicted) + work.log_g[: len(block)]
            top = joint.max(axis=1)
            out[piece] = np.where(top > -np.inf, top + np.log(np.exp(joint - top[:, np.newaxis]).sum(axis=1)), -np.inf)
    return out


class Smoothing:
    """What the whole record says about the hidden path. Rows come in blocks, from the last to the first."""

    def __init__(self, model: Values, data: Record) -> None:
        m = model.emission.n_components
        self.model, self.data = model, data
        self.log_likelihood = 0.0
        self.pairs = np.zeros((m, m))  # expected transitions, divided by their probabilities
        self.start = np.zeros(m)  # expected first states, divided by their probabilities

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """The rows of each block and their smoothed probabilities, in memory that the next block uses again."""
        work = Pass(self.model, len(self.data))
        self.theta = work.theta
        blocks = work.blocks(len(self.data))
        befores = np.empty((len(blocks), len(self.start)))
        phi = work.startprob.copy()
        for before, piece in zip(befores, blocks, strict=True):
            before[:] = phi
            added, filtered, gain = work.forward(self.data[piece], phi)
            self.log_likelihood += added
        message = np.ones(len(self.start))
        for before, piece in zip(befores[::-1], blocks[::-1], strict=True):
            data = self.data[piece]
            if piece != blocks[-1]:
                filtered, gain = work.forward(data, before.copy())[1:]
            smoothed = work.log_g[: len(data)]
            exact.backward(
                work.chain,
                work.transmat,
                data.is_start,
                before,
                filtered,
                gain,
                message,
                smoothed,
                self.pairs,
                self.start,
            )
            yield piece, smoothed


def smoothed_probabilities(model: Values, data: Record) -> FloatArray:
    """Probability of each state at each row, given all rows."""
    out = np.empty((len(data), model.emission.n_components))
    for piece, smoothed in Smoothing(model, data):
        out[piece] = smoothed
    return out


def pair_probabilities(model: Values, data: Record) -> FloatArray:
    """Probability of each pair of states at each row and the one before it, given all rows; 0 at first rows."""
    filtered = filtered_probabilities(model, data)
    smoothed = smoothed_probabilities(model, data)
    predicted = filtered[:-1] @ model.transmat
    ratio = np.divide(smoothed[1:], predicted, out=np.zeros_like(predicted), where=predicted > exact.UNREACHABLE)
    ratio[data.is_start[1:]] = 0.0
    out = np.zeros((len(filtered), *model.transmat.shape))
    out[1:] = filtered[:-1, :, np.newaxis] * model.transmat * ratio[:, np.newaxis, :]
    return out


def best_path(model: Values, data: Record) -> tuple[float, IntArray]:
    """The most probable sequence of states, and the logarithm of its joint density with the observations."""
    work = Pass(model, len(data))
    n, m = len(data), len(work.startprob)
    with np.errstate(divide="ignore"):
        log_startprob, log_transmat = np.log(work.startprob), np.log(work.transmat)
    back = np.empty((n, m), dtype=np.min_scalar_type(m - 1))
    path = np.empty(n, dtype=np.int64)
    delta = np.zeros(m)
    log_probability = 0.0
    for piece in work.blocks(n):
        log_g = work.densities(data[piece])[0]
        is_start = data.is_start[piece]
        log_probability += exact.best_paths(
            work.chain, log_startprob, log_transmat, is_start, log_g, delta, back[piece]
        )
    exact.trace_back(work.chain, back, int(delta.argmax()), path)
    return float(log_probability), path


def drawn_paths(model: Values, data: Record, size: int, rng: np.random.Generator) -> IntArray:
    """Sequences of states drawn from their distribution given the observations: (size, n)."""
    filtered = filtered_probabilities(model, data)
    paths = np.empty((size, len(filtered)), dtype=np.int64)
    chain = exact.Chain(filtered.shape[1])
    exact.draw_paths(chain, np.array(model.transmat), data.is_start, filtered, rng.random(paths.shape), paths)
    return paths


# --- expected statistics --------------------------------------------------------------------------------------------


class Expectation(NamedTuple):
    """Sums of what is expected, given all observations: the E-step. They add up over sequences."""

    log_likelihood: float
    start: FloatArray  # (m,): expected first states, divided by their probabilities
    pairs: FloatArray  # (m, m): expected transitions, divided by their probabilities
    emissions: FloatArray  # (m, p): the emission statistic of each state


def expect(model: Values, data: Record, with_first: bool = True) -> Expectation:
    """E-step by forward–backward smoothing.

    Unless ``with_first``, the first row of each sequence has no part in the statistic of the emissions.
    """
    emission = model.emission
    emissions = np.zeros((emission.n_components, emission.n_statistics))
    smoothing = Smoothing(model, data)
    for piece, smoothed in smoothing:
        if not with_first:
            smoothed[data.is_start[piece]] = 0.0
        rows.accumulate(emission, smoothing.theta, data.X[piece], smoothed, emissions)
    return Expectation(smoothing.log_likelihood, smoothing.start, smoothing.pairs, emissions)


def n_threads(n_jobs: int) -> int:
    """The number of threads that ``n_jobs`` asks for; -1 is one for each core that this process may use."""
    if not is_integer(n_jobs) or not (n_jobs == -1 or n_jobs >= 1):
        raise ValueError(f"n_jobs must be a positive integer, or -1 for all cores, got {n_jobs!r}")
    if n_jobs > 0:
        return n_jobs
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunks(data: Record) -> list[Record]:
    """Whole sequences, enough of them together to be worth a thread. The same, whatever the number of cores."""
    starts = np.flatnonzero(data.is_start)
    cuts: list[int] = []
    for start in starts:
        if start - (cuts[-1] if cuts else 0) >= CHUNK_ROWS and len(data) - start >= CHUNK_ROWS:
            cuts.append(int(start))
    return [data[first:last] for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def each(function: Callable[[Record], T], data: Record, n_jobs: int) -> list[T]:
    """What ``function`` returns for each chunk of the record, computed on several cores."""
    pieces = chunks(data)
    if n_jobs == 1 or len(pieces) == 1:
        return [function(piece) for piece in pieces]
    with ThreadPoolExecutor(n_jobs) as pool:
        return list(pool.map(function, pieces))


def add_up(parts: list[P]) -> P:
    """The sum of named tuples, field by field."""
    return type(parts[0])(*(sum(field[1:], start=field[0]) for field in zip(*parts, strict=True)))
