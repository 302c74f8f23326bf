"""Many streams: each learns from its own rows, by the loop of a single stream, or all of them learn one model.

Rows come in any order. Those of the stream ``streams[at]`` have the numbers ``order[offsets[at] : offsets[at + 1]]``;
of a block, where all streams have a row at each time, ``order`` is empty. Loops take a range of streams, so that
several threads can share the work.
"""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

import numpy as np

from hmmstream.arrays import UNKNOWN, BoolArray, FloatArray, IntArray
from hmmstream.compilable import workspace
from hmmstream.emissions.base import DEAD
from hmmstream.recursions.bridge import compiled, inlined, spliced, view
from hmmstream.recursions.online import advance, average_statistic, fill_steps, learn_rows, maximize
from hmmstream.recursions.rows import read
from hmmstream.recursions.state import (
    CLOCK_SIZE,
    LIKELIHOOD_FACTOR,
    LOG_LIKELIHOOD,
    N_SEEN,
    TIME,
    State,
    compiled_parts,
)

PIECE = 4096  # rows that are gathered at a time: they stay in a near cache

learn_here = spliced(learn_rows)  # a call of the compiled loop would be optimised twice, and slower for it


# Rows are sorted by counting, in parts that follow each other, so that threads can share the work. ``ends`` has a line
# for each part, and an entry for each stream.


@compiled
def count_rows(shape: Any, places: IntArray, ends: IntArray, part: int) -> None:
    """How many rows of each stream a part has."""
    for row in range(len(places)):
        ends[part, places[row]] += 1


@compiled
def lay_out(shape: Any, ends: IntArray, offsets: IntArray) -> None:
    """Where the rows of each stream begin: in ``offsets`` those of all parts, in ``ends`` those of each."""
    total = 0
    for at in range(ends.shape[1]):
        offsets[at] = total
        for part in range(len(ends)):
            n = ends[part, at]
            ends[part, at] = total
            total += n
    offsets[ends.shape[1]] = total


@compiled
def fill_order(shape: Any, places: IntArray, ends: IntArray, part: int, first: int, order: IntArray) -> None:
    """Put the numbers of a part's rows, which count from ``first``, where those of their streams end so far."""
    for row in range(len(places)):
        order[ends[part, places[row]]] = first + row
        ends[part, places[row]] += 1


@inlined
def row_at(streams: IntArray, offsets: IntArray, order: IntArray, at: int, t: int) -> int:
    """The number of a stream's t-th row."""
    if len(order) == 0:
        return t * len(streams) + at
    return order[offsets[at] + t]


@inlined
def gather(
    X: FloatArray, streams: IntArray, offsets: IntArray, order: IntArray, at: int, first: int, gathered: FloatArray
) -> None:
    """Copy a stream's rows from the ``first`` on, and those of the next streams, as many as there is room for.

    X has a column for each feature, and no gaps in memory. Of a block there is room for whole streams, or part of one.
    """
    n, d = gathered.shape
    values = view(X, 0, (X.size,))
    if len(order) == 0:
        n_times = min(n, offsets[at + 1] - offsets[at] - first)
        for t in range(n_times):
            row = (first + t) * len(streams) + at
            for to in range(t, n, n_times):
                for a in range(d):
                    gathered[to, a] = values[row * d + a]
                row += 1
    else:
        rows = view(order, offsets[at] + first, (n,))
        for t in range(n):
            for a in range(d):
                gathered[t, a] = values[rows[t] * d + a]


@compiled
def learn_each(
    emission: Any,
    shape: Any,
    vectors: FloatArray,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    X: FloatArray,
    streams: IntArray,
    offsets: IntArray,
    order: IntArray,
    schedule: FloatArray,
    steps: FloatArray,
    shifts: IntArray,
    filtered: FloatArray,
    n_min: int,
    update_every: int,
    averaging: int,
    average_from: int,
    start: int,
    stop: int,
) -> None:
    """Learn a model for each of the streams from ``start`` up to ``stop``, with ``steps`` as of ``sizes_of_each``."""
    width, d = vectors.shape[1], emission.n_features
    numbers = vectors.ravel()  # views of all that follows are passed on without counting references
    no_starts = np.empty(0, dtype=np.int64)
    longest = min(offsets[stop] - offsets[start], PIECE)
    gathered, first_held, n_held = np.empty(longest * d), 0, 0
    proba = np.empty((longest if len(filtered) > 0 else 0) * filtered.shape[1])
    sizes, first_size, n_sizes = np.empty(longest), 0, 0  # the steps that were made last: the next stream's, often
    for at in range(start, stop):
        vector = view(numbers, streams[at] * width, (width,))
        for done in range(0, offsets[at + 1] - offsets[at], PIECE):
            n = min(PIECE, offsets[at + 1] - offsets[at] - done)
            first = offsets[at] + done
            if first + n > first_held + n_held:
                # rows of a stream are far apart in memory: to ask for many at a time takes little longer than for one
                first_held, n_held = first, min(PIECE, offsets[stop] - first)
                if len(order) == 0:
                    n_held = n if done > 0 else n * min(PIECE // n, stop - at)
                gather(X, streams, offsets, order, at, done, view(gathered, 0, (n_held, d)))
            time = int(vector[TIME])
            its_steps = view(sizes, 0, (0,))  # a long piece makes its own
            if len(steps) > 0:
                its_steps = view(steps, time - shifts[at], (n,))
            elif n < PIECE:
                if time < first_size or time + n > first_size + n_sizes:
                    first_size, n_sizes = time, n
                    fill_steps(schedule, time, time + n, sizes)
                its_steps = view(sizes, time - first_size, (n,))
            its_proba = view(proba, 0, (n if len(filtered) > 0 else 0, filtered.shape[1]))
            learn_here(
                emission,
                shape,
                vector,
                groups,
                shares,
                leaders,
                None,
                None,
                view(gathered, (first - first_held) * d, (n, d)),
                schedule,
                its_steps,
                no_starts,
                None,
                None,
                its_proba,
                n_min,
                update_every,
                averaging,
                average_from,
                True,
            )
            for t in range(len(its_proba)):
                filtered[row_at(streams, offsets, order, at, done + t)] = its_proba[t]


# --- one model for all ----------------------------------------------------------------------------------------------
#
# A round is one row of each stream that has any left. Whoever has none is not touched: instead of letting the past fade
# in every stream, what is new is given more weight, and ``scale`` brings the sum over all streams back to S. The clock
# counts observations of all streams.

CREW = 1024  # streams whose statistics are added up together, so that the sum does not depend on the number of threads


class Round(NamedTuple):
    """What happens in a round, beforehand: one array each, an entry a round."""

    rescaling: FloatArray  # what all statistics are multiplied by before it
    weight: FloatArray  # of each of its observations
    scale: FloatArray  # what the sum of all statistics is multiplied by after it
    n_before: FloatArray  # observations of all streams before it
    is_update: BoolArray
    is_recentring: BoolArray


def own_size(shape: Any) -> int:
    """Length of what is a stream's own."""
    return CLOCK_SIZE + int(shape.n_states) + (int(shape.n_states) + 1) * int(shape.n_rows)


def own_parts(shape: Any, common: State, vector: FloatArray) -> State:
    """The state of a stream: its own clock, filter and statistic, and the parameters that all have in common."""
    m, R = shape.n_states, shape.n_rows
    return State(
        view(vector, 0, (CLOCK_SIZE,)),
        common.startprob,
        view(vector, CLOCK_SIZE, (m,)),
        common.alive,
        common.transmat,
        common.mean_transmat,
        common.theta,
        common.mean_theta,
        view(vector, CLOCK_SIZE + m, (m, R)),
        view(vector, CLOCK_SIZE + m + m * R, (R,)),
        common.mean_S,
        common.base,
        common.prior,
        view(vector, LOG_LIKELIHOOD, (1,)),
        view(vector, LIKELIHOOD_FACTOR, (1,)),
    )


compiled_own_parts = inlined(own_parts)


@compiled
def count_rounds(
    emission: Any, X: FloatArray, streams: IntArray, offsets: IntArray, order: IntArray, counts: IntArray
) -> None:
    """Add up in ``counts`` of how many streams something was seen in each round."""
    y = workspace(emission.n_features)
    for at in range(len(streams)):
        for t in range(offsets[at + 1] - offsets[at]):
            read(emission, X, row_at(streams, offsets, order, at, t), y)
            counts[t] += not emission.is_missing(y)


@compiled
def rescale(shape: Any, vectors: FloatArray, factor: float, start: int, stop: int) -> None:
    """Multiply the statistics of streams by a factor."""
    first = CLOCK_SIZE + shape.n_states
    for at in range(start, stop):
        for c in range(first, vectors.shape[1]):
            vectors[at, c] *= factor


@compiled
def advance_crews(
    emission: Any,
    shape: Any,
    together: FloatArray,
    vectors: FloatArray,
    groups: IntArray,
    X: FloatArray,
    streams: IntArray,
    offsets: IntArray,
    order: IntArray,
    at_round: int,
    weight: float,
    filtered: FloatArray,
    changes: FloatArray,
    start: int,
    stop: int,
) -> None:
    """A round of the crews from ``start`` up to ``stop``: how much each adds to the statistic, and visits to states."""
    m, R = shape.n_states, shape.n_rows
    common = compiled_parts(shape, together)
    y = workspace(emission.n_features)
    is_scored = len(filtered) > 0 and filtered.shape[1] > m
    for crew in range(start, stop):
        change = changes[crew]
        for c in range(R + m):
            change[c] = 0.0
        for at in range(crew * CREW, min((crew + 1) * CREW, len(streams))):
            if at_round >= offsets[at + 1] - offsets[at]:
                continue
            row = row_at(streams, offsets, order, at, at_round)
            own = compiled_own_parts(shape, common, vectors[streams[at]])
            for c in range(R):
                change[c] -= own.S[c]
            read(emission, X, row, y)
            missing = emission.is_missing(y)
            before = own.log_likelihood[0] + log(own.pending[0]) if is_scored else 0.0
            advance(emission, shape, own, groups, y, UNKNOWN, 1.0, 0.0 if missing else weight)
            own.clock[N_SEEN] += 1.0
            own.clock[TIME] += 0.0 if missing else 1.0
            for c in range(R):
                change[c] += own.S[c]
            for k in range(m):
                change[R + k] += 0.0 if missing else own.phi[k]
                if len(filtered) > 0:
                    filtered[row, k] = own.phi[k]
            if is_scored:
                filtered[row, m] = own.log_likelihood[0] + log(own.pending[0]) - before


@compiled
def conclude(
    emission: Any,
    shape: Any,
    together: FloatArray,
    vectors: FloatArray,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    changes: FloatArray,
    total: FloatArray,
    scale: float,
    n_before: float,
    is_update: bool,
    is_averaging: bool,
    is_recentring: bool,
) -> None:
    """The end of a round: S from all streams, and where it is time for them, new parameters."""
    state = compiled_parts(shape, together)
    for crew in range(len(changes)):
        for c in range(shape.n_rows):
            total[c] += changes[crew, c]
        for k in range(shape.n_states):
            if state.alive[k] <= 0.0:
                state.alive[k] -= changes[crew, shape.n_rows + k]
    for c in range(shape.n_rows):
        state.S[c] = scale * total[c]
    state.clock[N_SEEN] = state.clock[TIME] = n_before
    if is_update:
        maximize(emission, shape, state, groups, shares, leaders)
        if is_averaging:
            average_statistic(shape, state)
    if is_recentring:
        recentre_all(emission, shape, state, vectors, total)


@inlined
def recentre_all(emission: Any, shape: Any, state: State, vectors: FloatArray, total: FloatArray) -> None:
    """Measure each state's statistic from its current mean, in every stream."""
    S = view(state.S, shape.n_groups, (shape.n_states, shape.n_statistics))
    shift = workspace(emission.centre_size)
    for i in range(shape.n_states):
        if S[i, 0] > DEAD:
            emission.move_centre(state.theta[i], S[i], shift)
            translate_state(emission, shape, state, vectors, total, i, shift)


@inlined
def translate_state(
    emission: Any, shape: Any, state: State, vectors: FloatArray, total: FloatArray, i: int, shift: FloatArray
) -> None:
    """Move the centre that the statistic of state ``i`` is measured from, in every stream."""
    m, p, R = shape.n_states, shape.n_statistics, shape.n_rows
    first = shape.n_groups + i * p
    for at in range(len(vectors)):
        for k in range(m + 1):  # tau, and behind it S
            emission.translate(view(vectors[at], CLOCK_SIZE + m + k * R + first, (p,)), shift)
    emission.translate(view(total, first, (p,)), shift)
    emission.translate(view(state.mean_S, first, (p,)), shift)
    if shape.n_prior_rows > 0:
        emission.translate(view(state.prior, first, (p,)), shift)
    emission.translate(view(state.S, first, (p,)), shift)


@compiled
def translate_all(
    emission: Any, shape: Any, together: FloatArray, vectors: FloatArray, total: FloatArray, shifts: FloatArray
) -> None:
    """Move the centres that statistics are measured from by ``shifts``, a row for each state."""
    state = compiled_parts(shape, together)
    for i in range(shape.n_states):
        translate_state(emission, shape, state, vectors, total, i, shifts[i])


@compiled
def learn_together(
    emission: Any,
    shape: Any,
    together: FloatArray,
    vectors: FloatArray,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    X: FloatArray,
    streams: IntArray,
    offsets: IntArray,
    order: IntArray,
    rounds: Round,
    filtered: FloatArray,
    changes: FloatArray,
    total: FloatArray,
    is_averaging: bool,
) -> None:
    """Learn one model from all rounds, in one thread."""
    for t in range(len(rounds.weight)):
        if rounds.rescaling[t] != 1.0:
            rescale(shape, vectors, rounds.rescaling[t], 0, len(vectors))
            for c in range(len(total)):
                total[c] *= rounds.rescaling[t]
        advance_crews(
            emission,
            shape,
            together,
            vectors,
            groups,
            X,
            streams,
            offsets,
            order,
            t,
            rounds.weight[t],
            filtered,
            changes,
            0,
            len(changes),
        )
        conclude(
            emission,
            shape,
            together,
            vectors,
            groups,
            shares,
            leaders,
            changes,
            total,
            rounds.scale[t],
            rounds.n_before[t],
            rounds.is_update[t],
            is_averaging,
            rounds.is_recentring[t],
        )
