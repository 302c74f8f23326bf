"""The statistic of many states from a window of the past, at L m² a step instead of m⁴.

Written out, S is a weighted sum over all times t of the statistic of Y_t and of the transition before it, each under
the distribution v_t of the state at t given all observations. These come from the present filter by going backwards,

    v_n = phi_n,    u_t(k) = v_t(k) / P(X_t = k given Y_{0:t-1}),    v_{t-1}(i) = phi_{t-1}(i) Σ_k q_t(i, k) u_t(k)

which takes m² a step; phi_{t-1}(i) q_t(i, k) u_t(k) is the probability of the transition. Observations to come will
replace phi_n by another v_n, but what lies far back hardly depends on it: the ways back from the states that v_n may
give weight to come together. Once they are the same to rounding, v_t is final, and its term is added to ``base``, the
sum of all terms that are. States of which the filter gives less than NEGLIGIBLE are not looked at: v_n, whose
expectation is phi_n, will exceed a given c there with a probability of at most m NEGLIGIBLE / c.

An entry of the window holds one observation: its weights, its statistic in each state, one over the predicted
probabilities, and the filter before it. The transition matrix is kept once for all observations between two M-steps,
and their transitions are summed together: the matrix times a sum of products u phi. It is kept by columns, so that
states without weight are passed over. Of a chain with impossible transitions only the possible ones are there: its
``runs`` are stretches of states that one state can be reached from. A full matrix has no need of them, and they are
None.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from hmmstream.arrays import UNKNOWN, FloatArray, IntArray
from hmmstream.compilable import workspace
from hmmstream.recursions.bridge import INLINE, compiled, inlined, view
from hmmstream.recursions.filter import UNREACHABLE, clamp, compute_statistic, update_filter
from hmmstream.recursions.state import (
    IN_SEQUENCE,
    MATRIX_IS_KEPT,
    WINDOW_COUNT,
    WINDOW_FIRST,
    State,
    compiled_parts,
    group_of,
)
from hmmstream.recursions.vectors import (
    BLOCK,
    absolute,
    load,
    repeat_each,
    spread,
    store,
    total,
    transpose_block,
    where_above,
)

FORGOTTEN = 1e-18  # what is left of a difference when it is taken for nothing, also beside a state that is seldom there
TRIFLE = 1e-23  # part of a difference that is not followed: m of them a step are nothing beside FORGOTTEN
NOTHING = 1e-50  # what is less probable adds nothing: the M-step makes no transition less probable than 1e-40
NEGLIGIBLE = 1e-40  # probability of a state that is not expected to be believed in later
SETTLE_OFTEN, SETTLE_SELDOM = 16, 128  # rows: how often it is asked what has become final
FEW = 16  # states, up to which it is not worth while to pass over those without weight
LONGEST_VECTOR = 64  # numbers
PATCH = 32  # most rows that have their transitions summed together

# Places in an entry
KEEP = 0  # factor of everything before
TRANSITION_WEIGHT = 1
EMISSION_WEIGHT = 2
MOVED = 3  # 0 at the start of a sequence: what follows says nothing of what was before
MATRIX = 4  # which of the matrices the chain moved by
HEADER = 5


class Window(NamedTuple):
    """The last observations, and the transition matrices that they came by: two rings."""

    entries: FloatArray  # (room, entry_size)
    matrices: FloatArray  # (room, n_cells): possible transitions, by the state after, then by the state before
    pairs: FloatArray  # (n_cells,) transitions that a sweep has summed; 0 between sweeps
    gains: FloatArray  # (PATCH, m) weights times u, of rows that are summed together


class Contents(NamedTuple):
    """What is in a window, the oldest first."""

    entries: FloatArray
    matrices: FloatArray  # that the entries came by
    room: IntArray  # (2,) for how many entries and matrices there is room


class Parts(NamedTuple):
    """Views of entries."""

    head: FloatArray  # (n, HEADER)
    statistic: FloatArray  # (n, m, p)
    inverse: FloatArray  # (n, m) 1 / predicted probability, or 0 where that is 0
    phi: FloatArray  # (n, m) the filter before


def make(shape: Any, runs: IntArray | None, n_entries: int, n_matrices: int) -> Window:
    """A window with room for so many entries and matrices."""
    m, n_cells = shape.n_states, len(cells_of(shape, runs)[0])
    entries = np.empty((n_entries, HEADER + shape.n_emission_rows + 2 * m))
    window = Window(entries, aligned(n_matrices, n_cells), aligned(n_cells), np.empty((PATCH, m)))
    window.pairs[:] = 0.0
    return window


def aligned(*shape: int) -> FloatArray:
    """Memory that starts with a line of the cache: vectors that cross lines take half as long again."""
    size = int(np.prod(shape))
    memory = np.empty(size + BLOCK)
    first = -(memory.ctypes.data // memory.itemsize) % BLOCK
    return memory[first : first + size].reshape(shape)


def copy_of(shape: Any, runs: IntArray | None, window: Window, clock: FloatArray) -> Window:
    """The same in memory of its own."""
    return refill(make(shape, runs, 0, 0), contents_of(window, clock), int(clock[WINDOW_FIRST]))


def refill(window: Window, contents: Contents, first: int) -> Window:
    """Such a window with these contents, and the oldest entry in this place: rounding depends on where entries lie."""
    n_entries, n_matrices = contents.room
    entries = np.empty((n_entries, window.entries.shape[1]))
    entries[np.arange(first, first + len(contents.entries)) % n_entries] = contents.entries
    matrices = aligned(n_matrices, window.matrices.shape[1])
    matrices[: len(contents.matrices)] = contents.matrices
    return window._replace(entries=entries, matrices=matrices)


def split(shape: Any, entries: FloatArray) -> Parts:
    """The parts of entries by name: views, nothing is copied."""
    m, stop = shape.n_states, HEADER + shape.n_emission_rows
    statistic = entries[:, HEADER:stop].reshape(len(entries), m, shape.n_statistics)
    return Parts(entries[:, :HEADER], statistic, entries[:, stop : stop + m], entries[:, stop + m :])


def contents_of(window: Window, clock: FloatArray) -> Contents:
    """Copies of what is in a window."""
    first, count = int(clock[WINDOW_FIRST]), int(clock[WINDOW_COUNT])
    entries = np.take(window.entries, range(first, first + count), axis=0, mode="wrap")
    room = np.array([len(window.entries), len(window.matrices)])
    if count == 0:
        return Contents(entries, window.matrices[:0].copy(), room)
    oldest = int(entries[0, MATRIX])
    entries[:, MATRIX] = (entries[:, MATRIX] - oldest) % len(window.matrices)
    places = range(oldest, oldest + int(entries[-1, MATRIX]) + 1)
    return Contents(entries, np.take(window.matrices, places, axis=0, mode="wrap"), room)


def cells_of(shape: Any, runs: IntArray | None) -> tuple[IntArray, IntArray]:
    """States before and after each possible transition, in the order in which a window keeps them."""
    if runs is None:
        before, after = np.meshgrid(np.arange(shape.n_states), np.arange(shape.n_states))
        return before.ravel(), after.ravel()
    lengths = runs[:, 2] - runs[:, 1]
    before = np.arange(lengths.sum()) + np.repeat(runs[:, 1] - (np.cumsum(lengths) - lengths), lengths)
    return before, np.repeat(runs[:, 0], lengths)


def relabel(shape: Any, window: Window, runs: IntArray | None, new_runs: IntArray | None, order: IntArray) -> None:
    """Put the states of a window in another order: state i is now what state ``order[i]`` was."""
    m = shape.n_states
    before, after = cells_of(shape, runs)
    place = np.full((m, m), -1)
    place[before, after] = np.arange(len(before))
    new_before, new_after = cells_of(shape, new_runs)
    window.matrices[:] = window.matrices[:, place[order[new_before], order[new_after]]]
    for part in split(shape, window.entries)[1:]:
        part[:] = part[:, order]


def unroll(
    shape: Any,
    state: State,
    contents: Contents,
    runs: IntArray | None,
    groups: IntArray,
    rho: FloatArray,
) -> None:
    """The dense statistic ``rho`` that the window stands for: the paper's recursion from its base on."""
    m, p, n_groups = shape.n_states, shape.n_statistics, shape.n_groups
    before, after = cells_of(shape, runs)
    rho[:] = state.base
    dense = np.zeros((m, m))
    for head, statistic, inverse, phi in zip(*split(shape, contents.entries), strict=True):
        if head[MOVED]:
            r = phi[before] * contents.matrices[int(head[MATRIX])] * inverse[after]
            dense[before, after] = r
            rho[:] = head[KEEP] * (dense.T @ rho)
            np.add.at(rho, (after, groups.reshape(m, m)[before, after]), head[TRANSITION_WEIGHT] * r)
        else:
            rho[:] = head[KEEP] * (phi @ rho)
        for k in range(m):
            rho[k, n_groups + k * p : n_groups + (k + 1) * p] += head[EMISSION_WEIGHT] * statistic[k]


def borrowed(window: Window | None) -> Window | None:
    """The same window, if there is one, passed on without counting references."""
    return window


@overload(borrowed, strict=False, jit_options=INLINE)
def _borrowed(window: Any) -> Any:
    if isinstance(window, types.NoneType):
        return borrowed

    def views(window: Window) -> Window:
        entries, matrices, pairs, gains = window
        return Window(
            view(entries, 0, (entries.shape[0], entries.shape[1])),
            view(matrices, 0, (matrices.shape[0], matrices.shape[1])),
            view(pairs, 0, (pairs.shape[0],)),
            view(gains, 0, (gains.shape[0], gains.shape[1])),
        )

    return views


@inlined
def entry_at(state: State, window: Window, age: int) -> FloatArray:
    """An entry by its age, counted from the oldest."""
    place = int(state.clock[WINDOW_FIRST]) + age
    if place >= len(window.entries):
        place -= len(window.entries)
    return view(window.entries, place * window.entries.shape[1], (window.entries.shape[1],))


@inlined
def inverse_of(shape: Any, entry: FloatArray) -> FloatArray:
    """One over the predicted probabilities of an entry."""
    return view(entry, HEADER + shape.n_emission_rows, (shape.n_states,))


@inlined
def phi_of(shape: Any, entry: FloatArray) -> FloatArray:
    """The filter before an entry."""
    return view(entry, HEADER + shape.n_emission_rows + shape.n_states, (shape.n_states,))


@inlined
def matrix_of(window: Window, entry: FloatArray) -> FloatArray:
    """The transition matrix by which the chain came to an entry."""
    n_cells = window.matrices.shape[1]
    return view(window.matrices, int(entry[MATRIX]) * n_cells, (n_cells,))


@inlined
def rows_to_settle(shape: Any, update_every: int) -> int:
    """How often to ask what has become final: where that costs more than going through it again, more seldom.

    If possible, it is asked when there is an M-step, for which the window is gone through anyway.
    """
    rows = int(min(max(SETTLE_OFTEN, shape.n_states // 2) * sqrt(update_every), SETTLE_SELDOM))
    return rows - rows % update_every if rows > update_every else rows


@inlined
def place_of_matrix(state: State, window: Window) -> int:
    """Where the present transition matrix is kept, or is to be."""
    count = int(state.clock[WINDOW_COUNT])
    if count == 0:
        return 0
    place = int(entry_at(state, window, count - 1)[MATRIX])
    if state.clock[MATRIX_IS_KEPT] == 0.0:
        place += 1
    return place if place < len(window.matrices) else 0


@inlined
def has_no_room(state: State, window: Window) -> bool:
    """Whether there is no place for the next observation, or for the transition matrix that it comes by."""
    count = state.clock[WINDOW_COUNT]
    if count == 0.0 or count == len(window.entries):
        return count > 0.0
    return state.clock[MATRIX_IS_KEPT] == 0.0 and place_of_matrix(state, window) == entry_at(state, window, 0)[MATRIX]


@inlined
def push(
    emission: Any,
    shape: Any,
    state: State,
    runs: IntArray | None,
    window: Window,
    y: FloatArray,
    known: int,
    gamma: float,
    weight: float,
) -> None:
    """Bring the filter up to date with the observation ``y``, and let it enter the window."""
    predicted = workspace(shape.n_states)
    count = int(state.clock[WINDOW_COUNT])
    entry = entry_at(state, window, count)
    moved = state.clock[IN_SEQUENCE] > 0.0
    entry[KEEP] = 1.0 - gamma
    entry[TRANSITION_WEIGHT] = weight * gamma if moved else 0.0
    entry[EMISSION_WEIGHT] = weight * gamma
    entry[MOVED] = 1.0 if moved else 0.0
    entry[MATRIX] = place_of_matrix(state, window)
    matrix = matrix_of(window, entry)
    if count == 0 or state.clock[MATRIX_IS_KEPT] == 0.0:
        keep_matrix(shape, state, runs, matrix)
    phi, inverse = phi_of(shape, entry), inverse_of(shape, entry)
    for k in range(shape.n_states):
        phi[k] = state.phi[k]
    if moved:
        predict(shape, state, runs, matrix, predicted)
    else:
        for k in range(shape.n_states):
            predicted[k] = state.startprob[k]
        state.clock[IN_SEQUENCE] = 1.0
    for k in range(shape.n_states):
        if not predicted[k] > UNREACHABLE:
            predicted[k] = 0.0
        # Where the chain cannot be now: no distribution at any later time will say that it was there
        inverse[k] = 1.0 / predicted[k] if predicted[k] > 0.0 else 0.0
    compute_statistic(emission, shape, state, y, view(entry, HEADER, (shape.n_states, shape.n_statistics)))
    if known != UNKNOWN:
        if predicted[known] == 0.0:  # it is believed all the same, and says nothing of where the chain came from
            entry[MOVED] = 0.0
        clamp(shape, state, predicted, known)
    update_filter(emission, shape, state, predicted, y, workspace(shape.n_states))
    state.clock[WINDOW_COUNT] += 1.0


@inlined
def keep_matrix(shape: Any, state: State, runs: IntArray | None, matrix: FloatArray) -> None:
    """Write down the transition matrix, column by column, where a transition is possible."""
    m = shape.n_states
    if runs is None:
        transpose(shape, view(state.transmat, 0, (m * m,)), matrix)
    else:
        at = 0
        for run in range(len(runs)):
            for i in range(runs[run, 1], runs[run, 2]):
                matrix[at] = state.transmat[i, runs[run, 0]]
                at += 1
    state.clock[MATRIX_IS_KEPT] = 1.0


@inlined
def transpose(shape: Any, source: FloatArray, target: FloatArray) -> None:
    """Write the transpose of a matrix."""
    m = shape.n_states
    whole = m - m % BLOCK
    for i in range(0, whole, BLOCK):
        for k in range(0, whole, BLOCK):
            transpose_block(source, i * m + k, target, k * m + i, m)
    for i in range(m):
        for k in range(whole if i < whole else 0, m):
            target[k * m + i] = source[i * m + k]


@inlined
def sum_of_rows(shape: Any, weights: FloatArray, matrix: FloatArray) -> Any:
    """The rows of a matrix, weighted, in four sums: each waits for its last term only, not for all before."""
    m = shape.n_states
    a, b = spread(0.0, shape.n_states), spread(0.0, shape.n_states)
    c, d = spread(0.0, shape.n_states), spread(0.0, shape.n_states)
    for k in range(0, m - 3, 4):
        a = a + weights[k] * load(matrix, k * m, shape.n_states)
        b = b + weights[k + 1] * load(matrix, (k + 1) * m, shape.n_states)
        c = c + weights[k + 2] * load(matrix, (k + 2) * m, shape.n_states)
        d = d + weights[k + 3] * load(matrix, (k + 3) * m, shape.n_states)
    for k in range(m - m % 4, m):
        a = a + weights[k] * load(matrix, k * m, shape.n_states)
    return (a + b) + (c + d)


@inlined
def predict(shape: Any, state: State, runs: IntArray | None, matrix: FloatArray, predicted: FloatArray) -> None:
    """Probability of each state before it is seen."""
    m = shape.n_states
    if runs is None:
        store(predicted, 0, sum_of_rows(shape, state.phi, state.transmat))
    else:
        at = 0
        for k in range(m):
            predicted[k] = 0.0
        for run in range(len(runs)):
            sum_of_run = 0.0
            for i in range(runs[run, 1], runs[run, 2]):
                sum_of_run += state.phi[i] * matrix[at]
                at += 1
            predicted[runs[run, 0]] += sum_of_run


@inlined
def count_final(shape: Any, state: State, runs: IntArray | None, window: Window) -> int:
    """The number of entries, from the oldest on, whose distribution no longer depends on that of the present state."""
    m = shape.n_states
    ways = workspace(shape.n_cells)  # row by row, differences from the way back from the most probable state
    top = 0
    for k in range(1, m):
        if state.phi[k] > state.phi[top]:
            top = k
    n_apart = 0
    for k in range(m):
        if k != top and state.phi[k] > NEGLIGIBLE:
            way = view(ways, n_apart * m, (m,))
            for i in range(m):
                way[i] = 0.0
            way[k], way[top] = 1.0, -1.0
            n_apart += 1
    age = int(state.clock[WINDOW_COUNT])
    while n_apart > 0 and age > 0:
        age -= 1
        entry = entry_at(state, window, age)
        if entry[MOVED] == 0.0:  # a new sequence knows nothing of what was before
            return age
        at = 0
        while at < n_apart:
            way = view(ways, at * m, (m,))
            follow(shape, runs, matrix_of(window, entry), phi_of(shape, entry), inverse_of(shape, entry), way)
            size = total(absolute(load(way, 0, shape.n_states)))
            balance = total(load(way, 0, shape.n_states))
            way[top] -= balance  # rounding: as a difference of two probabilities it sums to 0
            if size < FORGOTTEN:
                n_apart -= 1
                last = view(ways, n_apart * m, (m,))
                for i in range(m):
                    way[i] = last[i]
            else:
                at += 1
    return age if n_apart == 0 else 0


@inlined
def follow(
    shape: Any, runs: IntArray | None, matrix: FloatArray, phi: FloatArray, inverse: FloatArray, way: FloatArray
) -> None:
    """Take a difference of two distributions one step back."""
    m = shape.n_states
    if runs is None:
        before = spread(0.0, shape.n_states)
        for k in range(m):
            if m <= FEW or abs(way[k]) > TRIFLE:
                before = before + (way[k] * inverse[k]) * load(matrix, k * m, shape.n_states)
        store(way, 0, before * load(phi, 0, shape.n_states))
    else:
        back = workspace(shape.n_states)
        for i in range(m):
            back[i] = 0.0
        at = 0
        for run in range(len(runs)):
            k, first, stop = runs[run, 0], runs[run, 1], runs[run, 2]
            if abs(way[k]) > TRIFLE:
                u = way[k] * inverse[k]
                for i in range(first, stop):
                    back[i] += u * matrix[at + i - first]
            at += stop - first
        for i in range(m):
            way[i] = phi[i] * back[i]


@inlined
def sweep(shape: Any, state: State, groups: IntArray, runs: IntArray | None, window: Window, n_final: int) -> None:
    """S from the window; its ``n_final`` oldest entries go into the base."""
    m = shape.n_states
    v, reached = workspace(shape.n_states), workspace(shape.n_states)
    for k in range(m):
        v[k] = state.phi[k]
    for c in range(shape.n_rows):
        state.S[c] = 0.0
    sums = state.S
    weight, weight_of_base = 1.0, 1.0
    age = int(state.clock[WINDOW_COUNT])
    while age > 0:
        if age == n_final:
            add_groups(shape, groups, runs, window.pairs, sums)
            sums = state.base
            weight, weight_of_base = 1.0, weight
            scale_base(shape, state, window, n_final)
        stop = age
        first = start_of_patch(state, window, stop, n_final if stop > n_final else 0)
        matrix = matrix_of(window, entry_at(state, window, first))
        for k in range(m):
            reached[k] = 0.0
        while age > first:
            age -= 1
            entry = entry_at(state, window, age)
            if runs is not None:
                step_back_by_runs(shape, runs, matrix, entry, weight, v, window.pairs, sums)
            elif stop - first == 1:
                step_back(shape, matrix, entry, weight, v, window.pairs, sums)
            else:
                gains = view(window.gains, (age - first) * m, (m,))
                if m <= FEW:
                    step_back_with_few(shape, matrix, entry, weight, v, gains, reached, sums)
                else:
                    step_back_in_patch(shape, matrix, entry, weight, v, gains, reached, sums)
            weight *= entry[KEEP]
            if entry[MOVED] == 0.0:
                phi = phi_of(shape, entry)
                for k in range(m):
                    v[k] = phi[k]
        if runs is None and stop - first > 1:
            add_pairs(shape, state, window, first, stop, matrix, reached)
    add_groups(shape, groups, runs, window.pairs, sums)
    if n_final > 0:
        first = int(state.clock[WINDOW_FIRST]) + n_final
        state.clock[WINDOW_FIRST] = first if first < len(window.entries) else first - len(window.entries)
        state.clock[WINDOW_COUNT] -= n_final
        weight = weight_of_base
    for c in range(shape.n_rows):
        state.S[c] += weight * state.base[c]


@inlined
def scale_base(shape: Any, state: State, window: Window, n_final: int) -> None:
    """Let the base count as much as the ``n_final`` oldest entries leave of it."""
    keep = 1.0
    for age in range(n_final):
        keep *= entry_at(state, window, age)[KEEP]
    for c in range(shape.n_rows):
        state.base[c] *= keep


@inlined
def start_of_patch(state: State, window: Window, stop: int, least: int) -> int:
    """The first of the entries before ``stop``, and not before ``least``, that have one matrix in common.

    They also lie one after the other in memory.
    """
    first = stop - 1
    least = max(least, stop - PATCH)
    turn = len(window.entries) - int(state.clock[WINDOW_FIRST])  # the first entry that lies at the ring's beginning
    if least < turn < stop:
        least = turn
    matrix = entry_at(state, window, first)[MATRIX]
    while first > least and entry_at(state, window, first - 1)[MATRIX] == matrix:
        first -= 1
    return first


@inlined
def step_back(
    shape: Any,
    matrix: FloatArray,
    entry: FloatArray,
    weight: float,
    v: FloatArray,
    pairs: FloatArray,
    S: FloatArray,
) -> None:
    """Add the terms of an entry under the distribution ``v`` of its state, and take ``v`` one step further back."""
    m = shape.n_states
    inverse = inverse_of(shape, entry)
    phi = load(phi_of(shape, entry), 0, shape.n_states)
    share = weight * entry[TRANSITION_WEIGHT] * phi
    before = spread(0.0, shape.n_states)
    for k in range(m):
        if v[k] > NOTHING:
            add_emission(shape, entry, k, weight * v[k], S)
            moves = (v[k] * inverse[k]) * load(matrix, k * m, shape.n_states)
            before = before + moves
            store(pairs, k * m, load(pairs, k * m, shape.n_states) + share * moves)
    store(v, 0, before * phi)


@inlined
def step_back_in_patch(
    shape: Any,
    matrix: FloatArray,
    entry: FloatArray,
    weight: float,
    v: FloatArray,
    gains: FloatArray,
    reached: FloatArray,
    S: FloatArray,
) -> None:
    """The same, but for the transitions: add_pairs adds those of a patch, whose states are ``reached``, together."""
    m = shape.n_states
    inverse = inverse_of(shape, entry)
    before = spread(0.0, shape.n_states)
    for k in range(m):
        gains[k] = 0.0
        if v[k] > NOTHING:
            add_emission(shape, entry, k, weight * v[k], S)
            u = v[k] * inverse[k]
            gains[k] = weight * entry[TRANSITION_WEIGHT] * u
            reached[k] = 1.0
            before = before + u * load(matrix, k * m, shape.n_states)
    store(v, 0, before * load(phi_of(shape, entry), 0, shape.n_states))


@inlined
def step_back_with_few(
    shape: Any,
    matrix: FloatArray,
    entry: FloatArray,
    weight: float,
    v: FloatArray,
    gains: FloatArray,
    reached: FloatArray,
    S: FloatArray,
) -> None:
    """The same for few states: all of them at once."""
    now, inverse = load(v, 0, shape.n_states), load(inverse_of(shape, entry), 0, shape.n_states)
    add_emissions(shape, entry, weight, v, S)
    u = where_above(now, NOTHING, now * inverse)
    store(gains, 0, u)
    before = sum_of_rows(shape, gains, matrix)
    for k in range(shape.n_states):
        reached[k] = 1.0
    store(gains, 0, (weight * entry[TRANSITION_WEIGHT]) * u)
    store(v, 0, before * load(phi_of(shape, entry), 0, shape.n_states))


@inlined
def step_back_by_runs(
    shape: Any,
    runs: IntArray,
    matrix: FloatArray,
    entry: FloatArray,
    weight: float,
    v: FloatArray,
    pairs: FloatArray,
    S: FloatArray,
) -> None:
    """The same for a chain with impossible transitions."""
    m = shape.n_states
    inverse, phi = inverse_of(shape, entry), phi_of(shape, entry)
    before = workspace(shape.n_states)
    for i in range(m):
        before[i] = 0.0
        if v[i] > NOTHING:
            add_emission(shape, entry, i, weight * v[i], S)
    at = 0
    for run in range(len(runs)):
        k, first, stop = runs[run, 0], runs[run, 1], runs[run, 2]
        if v[k] > NOTHING:
            u = v[k] * inverse[k]
            for i in range(first, stop):
                move = u * matrix[at + i - first] * phi[i]
                before[i] += move
                pairs[at + i - first] += weight * entry[TRANSITION_WEIGHT] * move
        at += stop - first
    for i in range(m):
        v[i] = before[i]


@inlined
def add_emission(shape: Any, entry: FloatArray, k: int, weight: float, S: FloatArray) -> None:
    """Add the statistic of an entry in state ``k``."""
    p = shape.n_statistics
    s, sums = view(entry, HEADER + k * p, (p,)), view(S, shape.n_groups + k * p, (p,))
    for a in range(p):
        sums[a] += weight * entry[EMISSION_WEIGHT] * s[a]


def add_emissions(shape: Any, entry: FloatArray, weight: float, v: FloatArray, S: FloatArray) -> None:
    """The same for all states, with the probabilities ``v``."""
    for k in range(shape.n_states):
        add_emission(shape, entry, k, weight * v[k], S)


@overload(add_emissions, strict=False, jit_options=INLINE)
def _add_emissions(shape: Any, entry: Any, weight: Any, v: Any, S: Any) -> Any:
    """As one vector, if that is not a long one: long ones take the compiler very long."""
    if dict(shape.constants)["n_emission_rows"] > LONGEST_VECTOR:
        return add_emissions

    def as_vector(shape: Any, entry: FloatArray, weight: float, v: FloatArray, S: FloatArray) -> None:
        shares = repeat_each(weight * entry[EMISSION_WEIGHT] * load(v, 0, shape.n_states), shape.n_statistics)
        sums = load(S, shape.n_groups, shape.n_emission_rows)
        store(S, shape.n_groups, sums + shares * load(entry, HEADER, shape.n_emission_rows))

    return as_vector


@inlined
def add_pairs(
    shape: Any, state: State, window: Window, first: int, stop: int, matrix: FloatArray, reached: FloatArray
) -> None:
    """Add the transitions into the entries from ``first`` to ``stop``, which have one full matrix in common."""
    m, size = shape.n_states, window.entries.shape[1]
    gains, pairs = view(window.gains, 0, (PATCH * m,)), window.pairs
    phi = view(phi_of(shape, entry_at(state, window, first)), 0, ((stop - first - 1) * size + m,))
    for k in range(m):
        if reached[k] > 0.0:
            row = spread(0.0, shape.n_states)
            for t in range(stop - first):
                row = row + gains[t * m + k] * load(phi, t * size, shape.n_states)
            row = row * load(matrix, k * m, shape.n_states)
            store(pairs, k * m, load(pairs, k * m, shape.n_states) + row)


@inlined
def add_groups(shape: Any, groups: IntArray, runs: IntArray | None, pairs: FloatArray, S: FloatArray) -> None:
    """Transitions by groups from those by cells, which are set to 0."""
    m = shape.n_states
    if runs is None:
        by_row = workspace(shape.n_cells)
        transpose(shape, pairs, by_row)
        for at in range(m * m):
            S[group_of(shape, groups, at)] += by_row[at]
            pairs[at] = 0.0
    else:
        at = 0
        for run in range(len(runs)):
            for i in range(runs[run, 1], runs[run, 2]):
                S[groups[i * m + runs[run, 0]]] += pairs[at]
                pairs[at] = 0.0
                at += 1


@inlined
def translate_window(emission: Any, shape: Any, state: State, window: Window, i: int, shift: FloatArray) -> None:
    """Measure the statistic of state ``i`` in the window and its base from another centre."""
    p = shape.n_statistics
    for age in range(int(state.clock[WINDOW_COUNT])):
        entry = entry_at(state, window, age)
        emission.translate(view(entry, HEADER + i * p, (p,)), shift)
    emission.translate(view(state.base, shape.n_groups + i * p, (p,)), shift)


@compiled
def refresh(shape: Any, vector: FloatArray, groups: IntArray, runs: IntArray | None, window: Window) -> None:
    """S as of the last observation, for a copy of the state: what is in the window stays as it is."""
    state = compiled_parts(shape, vector)
    sweep(shape, state, groups, runs, window, 0)
