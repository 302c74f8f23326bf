"""Exact inference on a whole record: the passes forwards and backwards, a block of rows at a time.

A record of any length is smoothed in little memory: on the way forwards only the filter at the start of each block is
kept, and on the way back each block is filtered again. A record of one block is filtered once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import (
    FloatArray,
    IntArray,
    is_integer,
    known_states,
    observations,
    row_weights,
    sequence_starts,
)
from hmmstream.emissions import Emission
from hmmstream.record import Record
from hmmstream.recursions import exact, rows
from hmmstream.transitions import Transition

BLOCK_SIZE = 2**22  # numbers: rows of a block × states
VANISHED = 1e-290  # what is below this has lost digits, or all of them
RARELY_LEFT = 1e-100  # transitions rarer than this do not bring a state back
PAIR_ROWS = 2**12  # for which all pairs of states are held together
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


def record(
    emission: Emission,
    X: ArrayLike,
    lengths: ArrayLike | None = None,
    states: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    before: FloatArray | None = None,
) -> Record:
    """Check what was said, and say what is wrong with it.

    X starts a sequence, unless it goes on after rows that ``before`` was the latest of: see ``Emission.embed``.
    """
    matrix = observations(X, emission.n_columns)
    is_start = np.zeros(len(matrix), dtype=np.bool_)
    is_start[:1] = before is None
    if lengths is not None:
        is_start[sequence_starts(lengths, len(matrix))] = True
    if emission.n_lags:
        matrix = emission.embed(matrix, is_start, np.full(emission.n_lags, np.nan) if before is None else before)
    refused = rows.check(emission, matrix)
    if refused != rows.ACCEPTED:
        raise emission.refusal(matrix, refused)
    n = len(matrix)
    return Record(matrix, is_start, known_states(states, n, emission.n_components), row_weights(weights, n))


def count_seen(emission: Emission, data: Record) -> int:
    """The number of rows of which something was seen."""
    return int(rows.count_seen(emission, data.X))


class Memory(threading.local):
    """Memory for a block of rows, which the same thread uses again: asking the system for it takes time."""

    def __init__(self) -> None:
        self.arrays: list[FloatArray] = []

    def block(self, n: int, m: int) -> list[FloatArray]:
        """Three arrays of shape (n, m) and one of shape (n,)."""
        if not self.arrays or len(self.arrays[-1]) < n or self.arrays[0].shape[1] != m:
            self.arrays = [*(np.empty((n, m)) for _ in range(3)), np.empty(n)]
        return self.arrays


class Underflow(Exception):
    """The probability of a state that may matter later is too small for a float."""


def vanished(transmat: FloatArray) -> float:
    """The probability of a state below which a pass must be in logarithms; 0 if it need never be.

    With positive transitions a state that has become improbable is always soon reached again from others.
    """
    is_connected = transmat.min() >= RARELY_LEFT
    return 0.0 if is_connected else VANISHED / float(transmat.min(where=transmat > 0.0, initial=1.0))


class Pass:
    """A model laid out for the recursions, with the memory for one block of rows.

    Filters and messages are probabilities, or ``in_logs`` their logarithms: see :func:`run`.
    """

    def __init__(self, model: Values, n_rows: int, memory: Memory, *, in_logs: bool = False, width: int = 0) -> None:
        m = model.emission.n_components
        self.emission = model.emission
        self.in_logs = in_logs
        self.chain = exact.Chain(m)
        self.theta = model.emission.theta()
        self.startprob = np.array(model.startprob)
        self.transmat = np.array(model.transmat)
        self.vanished = vanished(self.transmat)
        self.block = max(1, min(n_rows, BLOCK_SIZE // max(m, width)))
        self.log_g, self.g, self.filter, self.log_scale = memory.block(self.block, m)

    @cached_property
    def log_startprob(self) -> FloatArray:
        """Logarithms of the start probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.startprob)

    @cached_property
    def log_transmat(self) -> FloatArray:
        """Logarithms of the transition probabilities."""
        with np.errstate(divide="ignore"):
            return np.log(self.transmat)

    def blocks(self, n: int) -> list[slice]:
        """The rows of each block."""
        return [slice(first, min(first + self.block, n)) for first in range(0, n, self.block)]

    def first_filter(self) -> FloatArray:
        """What stands for the filter before the first row of all."""
        return (self.log_startprob if self.in_logs else self.startprob).copy()

    def last_message(self) -> FloatArray:
        """What the rows after the last say about its state: nothing."""
        return np.full(len(self.startprob), 0.0 if self.in_logs else 1.0)

    def log_densities(self, data: Record) -> FloatArray:
        """Log-densities of the rows of a block."""
        n = len(data)
        log_g, g, log_scale = self.log_g[:n], self.g[:n], self.log_scale[:n]
        rows.densities(self.emission, self.theta, data.X, data.states, log_g, g, log_scale)
        return log_g

    def forward(self, data: Record, phi: FloatArray) -> float:
        """Filter a block; its log-likelihood. ``phi`` is the filter before it, and becomes that at its end."""
        n = len(data)
        log_g, gain, filtered = self.log_densities(data), self.g[:n], self.filter[:n]
        if self.in_logs:
            log_chain = (self.log_startprob, self.log_transmat)
            return float(exact.forward_in_logs(self.chain, *log_chain, data.is_start, log_g, gain, phi, filtered))
        log_likelihood = exact.forward(
            self.chain,
            self.startprob,
            self.transmat,
            data.is_start,
            log_g,
            gain,
            self.log_scale[:n],
            phi,
            filtered,
            self.vanished,
        )
        if np.isnan(log_likelihood):
            raise Underflow
        return float(log_likelihood)

    def filtered(self, n: int) -> FloatArray:
        """The filter of the ``n`` rows of the block."""
        return np.exp(self.filter[:n]) if self.in_logs else self.filter[:n]

    def backward(
        self, data: Record, before: FloatArray, message: FloatArray, pairs: FloatArray, start: FloatArray
    ) -> FloatArray:
        """Smooth the block that was filtered last, in memory that the next block uses again."""
        n = len(data)
        filtered, gain, smoothed = self.filter[:n], self.g[:n], self.log_g[:n]
        if self.in_logs:
            log_chain = (self.log_startprob, self.log_transmat)
            exact.backward_in_logs(
                self.chain, *log_chain, data.is_start, before, filtered, message, smoothed, pairs, start
            )
        else:
            exact.backward(
                self.chain, self.transmat, data.is_start, before, filtered, gain, message, smoothed, pairs, start
            )
        return smoothed


def run(
    function: Callable[[Pass, Record], T], model: Values, data: Record, memory: Memory | None = None, width: int = 0
) -> T:
    """What ``function`` finds in a pass over the data.

    Probabilities are scaled row by row. Where some transitions are impossible, a state that has become improbable by
    more than a float can hold might never come back: then the pass is made again, in logarithms.
    """
    memory = memory or Memory()
    try:
        return function(Pass(model, len(data), memory, width=width), data)
    except Underflow:
        return function(Pass(model, len(data), memory, in_logs=True, width=width), data)


def loses_a_state(model: Values, data: Record, memory: Memory) -> bool:
    """Whether a pass that is not in logarithms would lose a state that may matter later."""
    work = Pass(model, len(data), memory)
    try:
        if work.vanished > 0.0:
            log_likelihood(work, data)
    except Underflow:
        return True
    return False


def log_likelihood(work: Pass, data: Record) -> float:
    """Logarithm of the density of all observations."""
    return summary(work, data)[0]


def summary(work: Pass, data: Record) -> tuple[float, FloatArray]:
    """Log-likelihood, and the filter at the last row."""
    phi = work.first_filter()
    log_likelihood = sum((work.forward(data[piece], phi) for piece in work.blocks(len(data))), start=0.0)
    return log_likelihood, np.exp(phi) if work.in_logs else phi


def filtered_probabilities(work: Pass, data: Record) -> FloatArray:
    """Probability of each state at each row, given the rows up to it."""
    phi = work.first_filter()
    out = np.empty((len(data), len(phi)))
    for piece in work.blocks(len(data)):
        work.forward(data[piece], phi)
        out[piece] = work.filtered(len(data[piece]))
    return out


def log_predictive_densities(work: Pass, data: Record) -> FloatArray:
    """Logarithm of the density of each row, given the rows before it."""
    phi = work.first_filter()
    out = np.empty(len(data))
    for piece in work.blocks(len(data)):
        block = data[piece]
        before = phi.copy()
        work.forward(block, phi)
        with np.errstate(divide="ignore", invalid="ignore"):
            past = np.vstack([before, work.filter[: len(block) - 1]])
            if work.in_logs:
                into = work.log_transmat.T
                predicted = np.stack([np.logaddexp.reduce(past + column, axis=1) for column in into], axis=1)
            else:
                predicted = np.log(past @ work.transmat)
            predicted[block.is_start] = work.log_startprob
            out[piece] = np.logaddexp.reduce(predicted + work.log_g[: len(block)], axis=1)
    return out


class Smoothing:
    """What the whole record says about the hidden path. Rows come in blocks, from the last to the first."""

    def __init__(self, work: Pass, data: Record) -> None:
        m = len(work.startprob)
        self.work, self.data = work, data
        self.log_likelihood = 0.0
        self.pairs = np.zeros((m, m))  # expected transitions, divided by their probabilities
        self.start = np.zeros(m)  # expected first states, divided by their probabilities
        self.before = work.first_filter()  # the filter before the block at hand

    def __iter__(self) -> Iterator[tuple[slice, FloatArray]]:
        """The rows of each block and their smoothed probabilities, in memory that the next block uses again."""
        work = self.work
        blocks = work.blocks(len(self.data))
        befores = np.empty((len(blocks), len(self.start)))
        phi = work.first_filter()
        for before, piece in zip(befores, blocks, strict=True):
            before[:] = phi
            self.log_likelihood += work.forward(self.data[piece], phi)
        message = work.last_message()
        for before, piece in zip(befores[::-1], blocks[::-1], strict=True):
            if piece != blocks[-1]:
                work.forward(self.data[piece], before.copy())
            self.before = before
            yield piece, work.backward(self.data[piece], before, message, self.pairs, self.start)


def smoothed_probabilities(work: Pass, data: Record) -> FloatArray:
    """Probability of each state at each row, given all rows."""
    out = np.empty((len(data), len(work.startprob)))
    for piece, smoothed in Smoothing(work, data):
        out[piece] = smoothed
    return out


def pair_probabilities(work: Pass, data: Record) -> FloatArray:
    """Probability of each pair of states at each row and the one before it, given all rows; 0 at first rows."""
    n, m = len(data), len(work.startprob)
    log_filtered = log_filter(work, data)
    smoothed = smoothed_probabilities(work, data)
    out = np.zeros((n, m, m))
    with np.errstate(divide="ignore", invalid="ignore"):
        joint = log_filtered[:-1, :, np.newaxis] + work.log_transmat
        backwards = np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, np.newaxis])  # i given j
    out[1:] = np.where(np.isnan(backwards), 0.0, backwards) * smoothed[1:, np.newaxis, :]
    out[data.is_start] = 0.0
    return out


def log_filter(work: Pass, data: Record) -> FloatArray:
    """Logarithm of the filter."""
    phi = work.first_filter()
    out = np.empty((len(data), len(phi)))
    for piece in work.blocks(len(data)):
        work.forward(data[piece], phi)
        out[piece] = work.filter[: len(data[piece])]
    with np.errstate(divide="ignore"):
        return out if work.in_logs else np.log(out, out=out)


def best_path(work: Pass, data: Record) -> tuple[float, IntArray]:
    """The most probable sequence of states, and the logarithm of its joint density with the observations."""
    n, m = len(data), len(work.startprob)
    back = np.empty((n, m), dtype=np.min_scalar_type(m - 1))
    path = np.empty(n, dtype=np.int64)
    delta = np.zeros(m)
    log_probability = 0.0
    for piece in work.blocks(n):
        block = data[piece]
        log_g = work.log_densities(block)
        log_probability += exact.best_paths(
            work.chain, work.log_startprob, work.log_transmat, block.is_start, log_g, delta, back[piece]
        )
    exact.trace_back(work.chain, back, int(delta.argmax()), path)
    return float(log_probability), path


def drawn_paths(work: Pass, data: Record, uniform: FloatArray) -> IntArray:
    """Sequences of states drawn from their distribution given the observations, one for each row of ``uniform``."""
    paths = np.empty(uniform.shape, dtype=np.int64)
    exact.draw_paths(work.chain, work.log_transmat, data.is_start, log_filter(work, data), uniform, paths)
    return paths


# --- expected statistics --------------------------------------------------------------------------------------------


class Expectation(NamedTuple):
    """Sums of what is expected, given all observations: the E-step. They add up over sequences."""

    log_likelihood: float
    start: FloatArray  # (m,): expected first states, divided by their probabilities
    pairs: FloatArray  # (m, m): expected transitions, divided by their probabilities
    emissions: FloatArray  # (m, p): the emission statistic of each state


def expect(model: Values, data: Record, memory: Memory | None = None, with_first: bool = True) -> Expectation:
    """E-step by forward–backward smoothing.

    Unless ``with_first``, the first row of each sequence has no part in the statistic of the emissions.
    """

    def in_one_pass(work: Pass, data: Record) -> Expectation:
        emissions = np.zeros((work.emission.n_components, work.emission.n_statistics))
        smoothing = Smoothing(work, data)
        weighted_start, weighted_pairs = np.zeros_like(smoothing.start), np.zeros_like(smoothing.pairs)
        for piece, smoothed in smoothing:
            if data.weights is not None:
                smoothed *= data.weights[piece, np.newaxis]
                add_transitions(work, data[piece], smoothing.before, smoothed, weighted_start, weighted_pairs)
            if not with_first:
                smoothed[data.is_start[piece]] = 0.0
            rows.accumulate(work.emission, work.theta, data.X[piece], smoothed, emissions)
        if data.weights is not None:
            return Expectation(smoothing.log_likelihood, weighted_start, weighted_pairs, emissions)
        return Expectation(smoothing.log_likelihood, smoothing.start, smoothing.pairs, emissions)

    return run(in_one_pass, model, data, memory)


def add_transitions(
    work: Pass, data: Record, before: FloatArray, smoothed: FloatArray, start: FloatArray, pairs: FloatArray
) -> None:
    """Add expected first states and transitions, divided by their probabilities, to ``start`` and ``pairs``.

    This is what the pass backwards does by itself, here with rows that count differently: ``smoothed`` is weighted.
    Impossible transitions have none.
    """
    first = data.is_start
    start += np.divide(smoothed[first].sum(axis=0), work.startprob, where=work.startprob > 0.0, out=0.0 * start)
    with np.errstate(divide="ignore", invalid="ignore"):
        past = np.vstack([before, work.filter[: len(data) - 1]])
        log_past = past if work.in_logs else np.log(past)
        for rows in np.array_split(np.flatnonzero(~first), len(data) // PAIR_ROWS + 1):
            joint = log_past[rows, :, np.newaxis] + work.log_transmat
            log_predicted = np.logaddexp.reduce(joint, axis=1)
            backwards = np.exp(joint - log_predicted[:, np.newaxis])  # i given j
            expected = np.einsum("tij,tj->ij", np.where(np.isnan(backwards), 0.0, backwards), smoothed[rows])
            pairs += np.divide(expected, work.transmat, where=work.transmat > 0.0, out=0.0 * pairs)


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
    starts = starts[starts <= len(data) - CHUNK_ROWS]
    cuts: list[int] = []
    while (at := np.searchsorted(starts, (cuts[-1] if cuts else 0) + CHUNK_ROWS)) < len(starts):
        cuts.append(int(starts[at]))
    return [data[first:last] for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Workers:
    """Threads that work on whole sequences side by side, each with its memory."""

    def __init__(self, n_jobs: int) -> None:
        self.n_threads = n_threads(n_jobs)
        self.memory = Memory()
        self.pool = ThreadPoolExecutor(self.n_threads)  # threads start when they are needed

    def each(self, function: Callable[[Record, Memory], T], data: Record) -> list[T]:
        """What ``function`` returns for each chunk of the record."""
        pieces = chunks(data)
        if self.n_threads == 1 or len(pieces) == 1:
            return [function(piece, self.memory) for piece in pieces]
        return list(self.pool.map(lambda piece: function(piece, self.memory), pieces))


def add_up(parts: list[P]) -> P:
    """The sum of named tuples, field by field."""
    return type(parts[0])(*(sum(field[1:], start=field[0]) for field in zip(*parts, strict=True)))


class Moment(NamedTuple):
    """A model, with the distribution of states at some moment in place of the start's."""

    startprob: FloatArray
    transmat: FloatArray
    emission: Emission
    transition: Transition


def follow(model: Values, chunks: Iterable[ArrayLike]) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Filtered probabilities and log predictive densities of a stream, chunk by chunk, in the memory of one."""
    now, before = model.startprob, None
    for X in chunks:
        data = record(model.emission, X, before=before)
        moment = Moment(now, model.transmat, model.emission, model.transition)
        filtered = run(filtered_probabilities, moment, data)
        yield filtered, run(log_predictive_densities, moment, data)
        if len(data):
            now, before = filtered[-1], model.emission.latest(data.X)
