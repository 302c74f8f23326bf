"""The statistic of many states from a window of the past, at L m² a step instead of m⁴.

Written out, S is a weighted sum over all times t of the statistic of Y_t and of the transition before it, each under
the distribution v_t of the state at t given all observations. These come from the present filter by going backwards,

    v_n = phi_n,    v_{t-1}(i) = Σ_k r_t(i | k) v_t(k)

which takes m² a step. Observations to come will replace phi_n by another v_n, but what lies far back hardly depends on
it: the ways back from the states that v_n may give weight to come together. Once they are the same to rounding, v_t is
final, and its term is added to ``base``, the sum of all terms that are. States of which the filter gives less than
NEGLIGIBLE are not looked at: v_n, whose expectation is phi_n, will exceed a given c there with a probability of at most
m NEGLIGIBLE / c.

An entry of the window holds one observation: its weights, its statistic in each state, and r(. | k) for each k, one
after the other. Of a chain with impossible transitions only the possible ones are there: its ``runs`` are stretches of
states that one state can be reached from. A full matrix has no need of them, and they are None.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hmmstream.arrays import UNKNOWN, FloatArray, IntArray
from hmmstream.compilable import workspace
from hmmstream.recursions.bridge import compiled, inlined, view
from hmmstream.recursions.filter import UNREACHABLE, clamp, compute_statistic, update_filter
from hmmstream.recursions.state import IN_SEQUENCE, WINDOW_COUNT, WINDOW_FIRST, State, compiled_parts

FORGOTTEN = 1e-15  # what is left of a difference when it is taken for nothing
NOTHING = 1e-50  # what is less probable adds nothing: the M-step makes no transition less probable than 1e-40
NEGLIGIBLE = 1e-40  # probability of a state that is not expected to be believed in later
SETTLE_OFTEN, SETTLE_SELDOM = 16, 128  # rows: how often it is asked what has become final

# Places in an entry
KEEP = 0  # factor of everything before
TRANSITION_WEIGHT = 1
EMISSION_WEIGHT = 2
MOVED = 3  # 0 at the start of a sequence: r then is the filter before
HEADER = 4


def entry_size(shape: Any, runs: IntArray | None) -> int:
    """Numbers of an entry."""
    return HEADER + shape.n_emission_rows + len(cells_of(shape, runs)[0])


def split(shape: Any, entries: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Views of entries: their first numbers, their statistic in each state, and r."""
    stop = HEADER + shape.n_emission_rows
    statistic = entries[:, HEADER:stop].reshape(len(entries), shape.n_states, -1)
    return entries[:, :HEADER], statistic, entries[:, stop:]


def cells_of(shape: Any, runs: IntArray | None) -> tuple[IntArray, IntArray]:
    """States before and after each possible transition, in the order of r."""
    if runs is None:
        before, after = np.meshgrid(np.arange(shape.n_states), np.arange(shape.n_states))
        return before.ravel(), after.ravel()
    lengths = runs[:, 2] - runs[:, 1]
    before = np.arange(lengths.sum()) + np.repeat(runs[:, 1] - (np.cumsum(lengths) - lengths), lengths)
    return before, np.repeat(runs[:, 0], lengths)


def relabel(shape: Any, entries: FloatArray, runs: IntArray | None, new_runs: IntArray | None, order: IntArray) -> None:
    """Put the states of a window in another order: state i is now what state ``order[i]`` was."""
    m = shape.n_states
    before, after = cells_of(shape, runs)
    place = np.full((m, m), -1)
    place[before, after] = np.arange(len(before))
    new_before, new_after = cells_of(shape, new_runs)
    source = place[order[new_before], order[new_after]]
    head, statistic, r = split(shape, entries)
    moved = head[:, MOVED] > 0.0
    statistic[:] = statistic[:, order]
    r[moved] = r[moved][:, source]
    r[~moved, :m] = r[~moved][:, order]


def unroll(
    shape: Any, state: State, entries: FloatArray, runs: IntArray | None, groups: IntArray, rho: FloatArray
) -> None:
    """The dense statistic ``rho`` that the window stands for: the paper's recursion from its base on."""
    m, p, n_groups = shape.n_states, shape.n_statistics, shape.n_groups
    before, after = cells_of(shape, runs)
    rho[:] = state.base
    dense = np.zeros((m, m))
    for entry in entries:
        head, statistic, r = (part[0] for part in split(shape, entry[np.newaxis]))
        moved = head[MOVED] > 0.0
        if moved:
            dense[before, after] = r
        rho[:] = head[KEEP] * (dense.T @ rho if moved else r[:m] @ rho)
        for k in range(m):
            rho[k, n_groups + k * p : n_groups + (k + 1) * p] += head[EMISSION_WEIGHT] * statistic[k]
        if moved:
            np.add.at(rho, (after, groups.reshape(m, m)[before, after]), head[TRANSITION_WEIGHT] * r)


@inlined
def entry_at(state: State, window: FloatArray, age: int) -> FloatArray:
    """An entry by its age, counted from the oldest."""
    place = int(state.clock[WINDOW_FIRST]) + age
    if place >= len(window):
        place -= len(window)
    return window[place]


@inlined
def push(
    emission: Any,
    shape: Any,
    state: State,
    runs: IntArray | None,
    window: FloatArray,
    y: FloatArray,
    known: int,
    gamma: float,
    weight: float,
) -> None:
    """Bring the filter up to date with the observation ``y``, and let it enter the window."""
    m, p = shape.n_states, shape.n_statistics
    predicted = workspace(shape.n_states)
    entry = entry_at(state, window, int(state.clock[WINDOW_COUNT]))
    r = view(entry, HEADER + shape.n_emission_rows, (len(entry) - HEADER - shape.n_emission_rows,))
    s = view(entry, HEADER, (m, p))
    moved = state.clock[IN_SEQUENCE] > 0.0
    if moved:
        look_back(shape, state, runs, predicted, r)
    else:
        for k in range(m):
            predicted[k] = state.startprob[k] if state.startprob[k] > UNREACHABLE else 0.0
            r[k] = state.phi[k]
        state.clock[IN_SEQUENCE] = 1.0
    compute_statistic(emission, shape, state, y, s)
    if known != UNKNOWN:
        clamp(shape, state, predicted, known)
    update_filter(emission, shape, state, predicted, y, workspace(shape.n_states))
    entry[KEEP] = 1.0 - gamma
    entry[TRANSITION_WEIGHT] = weight * gamma if moved else 0.0
    entry[EMISSION_WEIGHT] = weight * gamma
    entry[MOVED] = 1.0 if moved else 0.0
    state.clock[WINDOW_COUNT] += 1.0


@inlined
def look_back(shape: Any, state: State, runs: IntArray | None, predicted: FloatArray, r: FloatArray) -> None:
    """Predicted probabilities, and r where a transition is possible.

    Where the chain cannot be now, r is 0: no distribution at any later time will say that it was there.
    """
    m = shape.n_states
    inverse = workspace(shape.n_states)
    for k in range(m):
        predicted[k] = 0.0
    if runs is None:
        for i in range(m):
            for k in range(m):
                predicted[k] += state.phi[i] * state.transmat[i, k]
    else:
        at = 0
        for run in range(len(runs)):
            k, first, length = runs[run, 0], runs[run, 1], runs[run, 2] - runs[run, 1]
            ours, phis = view(r, at, (length,)), view(state.phi, first, (length,))
            for i in range(length):
                ours[i] = phis[i] * state.transmat[first + i, k]
                predicted[k] += ours[i]
            at += length
    for k in range(m):
        if not predicted[k] > UNREACHABLE:
            predicted[k] = 0.0
        inverse[k] = 1.0 / predicted[k] if predicted[k] > 0.0 else 0.0
    if runs is None:
        for k in range(m):
            ours = view(r, k * m, (m,))
            for i in range(m):
                ours[i] = state.phi[i] * state.transmat[i, k] * inverse[k]
    else:
        at = 0
        for run in range(len(runs)):
            for _ in range(runs[run, 2] - runs[run, 1]):
                r[at] *= inverse[runs[run, 0]]
                at += 1


@inlined
def count_final(shape: Any, state: State, runs: IntArray | None, window: FloatArray) -> int:
    """The number of entries, from the oldest on, whose distribution no longer depends on that of the present state."""
    m = shape.n_states
    ways = view(workspace(shape.n_cells), 0, (m, m))  # differences from the way back from the most probable state
    before = workspace(shape.n_states)
    top = 0
    for k in range(1, m):
        if state.phi[k] > state.phi[top]:
            top = k
    n_apart = 0
    for k in range(m):
        if k != top and state.phi[k] > NEGLIGIBLE:
            for i in range(m):
                ways[n_apart, i] = 0.0
            ways[n_apart, k], ways[n_apart, top] = 1.0, -1.0
            n_apart += 1
    age = int(state.clock[WINDOW_COUNT])
    while n_apart > 0 and age > 0:
        age -= 1
        entry = entry_at(state, window, age)
        if entry[MOVED] == 0.0:  # a new sequence knows nothing of what was before
            return age
        r = view(entry, HEADER + shape.n_emission_rows, (len(entry) - HEADER - shape.n_emission_rows,))
        way = 0
        while way < n_apart:
            for i in range(m):
                before[i] = 0.0
            if runs is None:
                for k in range(m):
                    now = ways[way, k]
                    if now != 0.0:
                        ours = view(r, k * m, (m,))
                        for i in range(m):
                            before[i] += ours[i] * now
            else:
                at = 0
                for run in range(len(runs)):
                    length = runs[run, 2] - runs[run, 1]
                    now = ways[way, runs[run, 0]]
                    if now != 0.0:
                        ours, back = view(r, at, (length,)), view(before, runs[run, 1], (length,))
                        for i in range(length):
                            back[i] += ours[i] * now
                    at += length
            size, balance = 0.0, 0.0
            for i in range(m):
                ways[way, i] = before[i]
                size += abs(before[i])
                balance += before[i]
            ways[way, top] -= balance  # rounding: as a difference of two probabilities it sums to 0
            if size < FORGOTTEN:
                n_apart -= 1
                for i in range(m):
                    ways[way, i] = ways[n_apart, i]
            else:
                way += 1
    return age if n_apart == 0 else 0


@inlined
def step_back(
    shape: Any,
    runs: IntArray | None,
    entry: FloatArray,
    weight: float,
    v: FloatArray,
    pairs: FloatArray,
    sums: FloatArray,
) -> None:
    """Add the terms of an entry under the distribution ``v`` of its state, and take ``v`` one step further back."""
    m, p = shape.n_states, shape.n_statistics
    s = view(entry, HEADER, (m, p))
    before = workspace(shape.n_states)
    emission_weight = weight * entry[EMISSION_WEIGHT]
    if emission_weight > 0.0:
        for k in range(m):
            for a in range(p):
                sums[k, a] += emission_weight * v[k] * s[k, a]
    r = view(entry, HEADER + shape.n_emission_rows, (len(pairs),))
    if entry[MOVED] == 0.0:
        for i in range(m):
            v[i] = r[i]
        return
    transition_weight = weight * entry[TRANSITION_WEIGHT]
    for i in range(m):
        before[i] = 0.0
    if runs is None:
        for k in range(m):
            if v[k] > NOTHING:
                now = v[k]
                ours, moves = view(r, k * m, (m,)), view(pairs, k * m, (m,))
                for i in range(m):
                    x = ours[i] * now
                    before[i] += x
                    moves[i] += transition_weight * x
    else:
        at = 0
        for run in range(len(runs)):
            length = runs[run, 2] - runs[run, 1]
            now = v[runs[run, 0]]
            if now > NOTHING:
                ours, moves = view(r, at, (length,)), view(pairs, at, (length,))
                back = view(before, runs[run, 1], (length,))
                for i in range(length):
                    x = ours[i] * now
                    back[i] += x
                    moves[i] += transition_weight * x
            at += length
    for i in range(m):
        v[i] = before[i]


@inlined
def add_groups(shape: Any, groups: IntArray, runs: IntArray | None, pairs: FloatArray, S: FloatArray) -> None:
    """Transitions by groups from those by cells, which are set to 0."""
    m = shape.n_states
    if runs is None:
        for k in range(m):
            for i in range(m):
                S[groups[i * m + k]] += pairs[k * m + i]
                pairs[k * m + i] = 0.0
    else:
        at = 0
        for run in range(len(runs)):
            for i in range(runs[run, 1], runs[run, 2]):
                S[groups[i * m + runs[run, 0]]] += pairs[at]
                pairs[at] = 0.0
                at += 1


@inlined
def sweep(shape: Any, state: State, groups: IntArray, runs: IntArray | None, window: FloatArray, n_final: int) -> None:
    """S from the window; its ``n_final`` oldest entries go into the base."""
    m = shape.n_states
    pairs = np.zeros(window.shape[1] - HEADER - shape.n_emission_rows)  # by cells, in the order of r
    final = workspace(shape.n_rows)
    for c in range(shape.n_rows):
        state.S[c] = final[c] = 0.0
    v = workspace(shape.n_states)
    for k in range(m):
        v[k] = state.phi[k]
    sums = state.S
    weight, weight_of_base = 1.0, 1.0
    for age in range(int(state.clock[WINDOW_COUNT]) - 1, -1, -1):
        if age == n_final - 1:
            add_groups(shape, groups, runs, pairs, sums)
            sums = final
            weight, weight_of_base = 1.0, weight
        entry = entry_at(state, window, age)
        step_back(shape, runs, entry, weight, v, pairs, view(sums, shape.n_groups, (m, shape.n_statistics)))
        weight *= entry[KEEP]
    add_groups(shape, groups, runs, pairs, sums)
    if n_final > 0:
        for c in range(shape.n_rows):
            state.base[c] = final[c] + weight * state.base[c]
        first = int(state.clock[WINDOW_FIRST]) + n_final
        state.clock[WINDOW_FIRST] = first if first < len(window) else first - len(window)
        state.clock[WINDOW_COUNT] -= n_final
        weight = weight_of_base
    for c in range(shape.n_rows):
        state.S[c] += weight * state.base[c]


@inlined
def translate_window(emission: Any, shape: Any, state: State, window: FloatArray, i: int, shift: FloatArray) -> None:
    """Measure the statistic of state ``i`` in the window and its base from another centre."""
    p = shape.n_statistics
    for age in range(int(state.clock[WINDOW_COUNT])):
        entry = entry_at(state, window, age)
        emission.translate(view(entry, HEADER + i * p, (p,)), shift)
    emission.translate(view(state.base, shape.n_groups + i * p, (p,)), shift)


@compiled
def refresh(shape: Any, vector: FloatArray, groups: IntArray, runs: IntArray | None, window: FloatArray) -> None:
    """S as of the last observation. The window itself stays as it is, so that ``vector`` may be a copy."""
    state = compiled_parts(shape, vector)
    sweep(shape, state, groups, runs, window, 0)
