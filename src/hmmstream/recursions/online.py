"""Online EM, one observation at a time: Algorithm 1 of the paper for any emission family and transition structure.

Symbols are those of docs/notation.md. ``tau[k]`` is the paper's statistic rho given that the chain is now in state k,
times the probability that it is: first the transitions, one number a group, then the emissions, ``n_statistics``
numbers a state. It takes less arithmetic than rho: no division by what was predicted, and S is a plain sum.
"""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

from numba.extending import overload

from hmmstream.arrays import UNKNOWN, FloatArray, IntArray
from hmmstream.compilable import EMPTY_SUM, as_in, reciprocal, workspace
from hmmstream.emissions.base import DEAD, RARE
from hmmstream.recursions.bridge import INLINE, compiled, inlined, spliced, view
from hmmstream.recursions.filter import compute_statistic, move
from hmmstream.recursions.rows import ACCEPTED, first_refused, read
from hmmstream.recursions.state import (
    IN_SEQUENCE,
    MATRIX_IS_KEPT,
    MEMORY,
    N_AVERAGED,
    N_SEEN,
    TIME,
    State,
    compiled_parts,
    group_of,
)
from hmmstream.recursions.vectors import load, store
from hmmstream.recursions.window import (
    Window,
    borrowed,
    count_final,
    has_no_room,
    push,
    rows_to_settle,
    sweep,
    translate_window,
)

EXTINCT = 1e-40  # added to the probability of a possible transition: what has not been seen for long can happen again
REVIVAL = 5.0  # visits before a state that had died is estimated again
RECENTRE_EVERY = 64  # observations, a power of 2; and at n = 1, 2, 4, …, 32

AT_A_TIME = 8  # numbers of the statistic: a line of the cache
BLOCK = 64  # step sizes are computed in blocks: those of n // BLOCK = 0, 1, …

AVERAGE_NOTHING, AVERAGE_STATISTIC, AVERAGE_PARAMETERS = 0, 1, 2
NO_ROOM = -2  # less the number of rows that were learned from


class Rules(NamedTuple):
    """When there are new parameters, and what is averaged."""

    n_min: int
    update_every: int
    averaging: int
    average_from: int


class Sizes(NamedTuple):
    """What an M-step needs of a :class:`~hmmstream.recursions.state.Shape`."""

    n_states: int
    n_groups: int
    n_statistics: int
    is_full: bool


class Values(NamedTuple):
    """What an M-step needs of a :class:`~hmmstream.recursions.state.State`."""

    alive: FloatArray
    transmat: FloatArray
    theta: FloatArray


def learn_rows(
    emission: Any,
    shape: Any,
    vector: FloatArray,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    runs: IntArray | None,
    window: Window | None,
    X: FloatArray,
    schedule: FloatArray,
    steps: FloatArray,
    starts: IntArray,
    known: IntArray | None,
    weights: FloatArray | None,
    filtered: FloatArray,
    n_min: int,
    update_every: int,
    averaging: int,
    average_from: int,
    accepted: bool,
) -> int:
    """Learn from each row of ``X``, or change nothing and return the place of the first value that is not acceptable.

    Rows that are ``accepted`` have been looked at already.

    With a ``window``, whose entries follow the ``runs`` of possible transitions, the statistic comes from it. When it
    is full, learning stops: what is returned then is NO_ROOM less the number of rows that were learned from.

    Step sizes come from the numbers of a built-in ``schedule``, unless there are ``steps``, one for each observation.
    ``starts`` are the rows at which a new sequence begins, ``known`` the states of rows where they are known, and
    ``weights`` say how much each row counts in the statistic: either may be None, and costs nothing then. The filter
    after each row is written to ``filtered``, unless that is empty, and if that has one column more than there are
    states, what the row adds to the log-likelihood to the last one.
    """
    m = shape.n_states
    refused = ACCEPTED if accepted else first_refused(emission, X)
    if refused != ACCEPTED:
        return refused

    state = compiled_parts(shape, vector)
    groups = view(groups, 0, (shape.n_cells,))  # views are passed on without counting references
    shares = view(shares, 0, (shape.n_cells,))
    leaders = view(leaders, 0, (m,))
    ring = borrowed(window)
    y = workspace(emission.n_features)
    block = workspace(BLOCK)
    first = int(state.clock[TIME])
    rules = Rules(n_min, update_every, averaging, average_from)
    next_start = 0
    is_scored = len(filtered) > 0 and filtered.shape[1] > m
    before = state.log_likelihood[0] + log(state.pending[0]) if is_scored else 0.0
    for row in range(len(X)):
        if window is not None and has_no_room(state, ring):
            return NO_ROOM - row
        if next_start < len(starts) and starts[next_start] == row:
            state.clock[IN_SEQUENCE] = 0.0
            next_start += 1
        read(emission, X, row, y)
        n = int(state.clock[TIME])
        if len(steps) == 0 and (n % BLOCK == 0 or row == 0):
            fill_block(schedule, n, min(n + len(X) - row, n + BLOCK - n % BLOCK), block)
        gamma = 1.0 if n == 0 else steps[n - first] if len(steps) > 0 else block[n % BLOCK]
        weight = 1.0
        if weights is not None:
            weight = weights[row]
        state_is = UNKNOWN
        if known is not None:
            state_is = known[row]
        take(emission, shape, state, groups, shares, leaders, runs, window, ring, y, n, state_is, gamma, weight, rules)
        if len(filtered) > 0:
            for k in range(m):
                filtered[row, k] = state.phi[k]
            if is_scored:
                now = state.log_likelihood[0] + log(state.pending[0])
                filtered[row, m] = now - before
                before = now
    return ACCEPTED


learn = compiled(learn_rows)


@spliced
def take(
    emission: Any,
    shape: Any,
    state: State,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    runs: IntArray | None,
    window: Window | None,
    ring: Window | None,
    y: FloatArray,
    n: int,
    known: int,
    gamma: float,
    weight: float,
    rules: Rules,
) -> bool:
    """Learn from one row ``y``: the filter, the statistic, and where it is time for them, parameters and averages.

    ``n`` is the time. It goes on, unless there was nothing to learn: then the answer is False. ``ring`` is the window,
    borrowed: the compiler sees whether there is one only by an argument that comes from outside as it is.
    """
    state.clock[N_SEEN] += 1.0
    missing = emission.is_missing(y) or weight == 0.0  # then the chain moves on, and there is nothing to learn
    if window is None:
        weight *= 0.0 if missing else gamma
        advance(emission, shape, state, groups, y, known, 1.0 if missing else 1.0 - gamma, weight)
    else:
        push(emission, shape, state, runs, ring, y, known, 0.0 if missing else gamma, weight)
    is_update = not missing and n > rules.n_min and (rules.update_every == 1 or n % rules.update_every == 0)
    is_recentring = not missing and emission.is_centred and (n & (RECENTRE_EVERY - 1) == 0 or n & (n - 1) == 0)
    if window is not None:
        is_settling = (int(state.clock[N_SEEN]) - 1) % rows_to_settle(shape, rules.update_every) == 0
        if is_update or is_recentring or is_settling:
            n_final = count_final(shape, state, runs, ring) if is_settling else 0
            sweep(shape, state, groups, runs, ring, n_final)
    if not missing:
        count_visits(shape, state)
        if is_update:
            maximize(emission, shape, state, groups, shares, leaders)
            state.clock[MATRIX_IS_KEPT] = 0.0
        average(shape, state, n, is_update, rules)
        if is_recentring:
            recentre(emission, shape, state, ring)
        state.clock[TIME] += 1.0
    return not missing


@compiled
def maximize_each(
    emission: Any,
    statistics: FloatArray,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    alive: FloatArray,
    transmats: FloatArray,
    thetas: FloatArray,
) -> None:
    """M-steps away from the loop, one for each statistic. Sizes are not constants here: compiled once for a family."""
    sizes = Sizes(emission.n_components, statistics.shape[1] - emission.n_emission_rows, emission.n_statistics, False)
    for at in range(len(statistics)):
        values = Values(alive[at], transmats[at], thetas[at])
        maximize_at(emission, sizes, values, statistics[at], groups, shares, leaders, False)


@inlined
def fill_block(schedule: FloatArray, start: int, stop: int, block: FloatArray) -> None:
    """Step sizes for n = start, …, stop - 1, all of one block: the formula of hmmstream.schedule.

    Far from n0 one power serves the whole block, times a binomial series in (n - anchor) / (anchor - n0) < 1/64, exact
    to rounding: taking the power of each n would cost a fifth of all the time that learning takes.
    """
    n0, first, scale, alpha, cap = schedule[0], schedule[1], schedule[2], schedule[3], schedule[4]
    n1, last = schedule[5], schedule[6]
    anchor = start - start % BLOCK
    if n1 < stop:
        for n in range(start, stop):
            block[n - anchor] = first if n <= n0 else last if n > n1 else min(scale * (n - n0) ** -alpha, cap)
        return
    if anchor - n0 < BLOCK * BLOCK:
        for n in range(start, stop):
            block[n - anchor] = first if n <= n0 else min(scale * (n - n0) ** -alpha, cap)
        return
    power = scale * (anchor - n0) ** -alpha
    for n in range(start, stop):
        x = (n - anchor) / (anchor - n0)
        series = 1.0
        for k in range(8, 0, -1):
            series = 1.0 - x * (alpha + k - 1.0) / k * series
        block[n - anchor] = min(power * series, cap)


@inlined
def fill_steps(schedule: FloatArray, start: int, stop: int, sizes: FloatArray) -> None:
    """The same step sizes for n = start, …, stop - 1, of any number of blocks, at the beginning of ``sizes``."""
    block = workspace(BLOCK)
    for n in range(start, stop):
        if n == start or n % BLOCK == 0:
            fill_block(schedule, n, min(stop, n + BLOCK - n % BLOCK), block)
        sizes[n - start] = block[n % BLOCK]


@inlined
def advance(
    emission: Any, shape: Any, state: State, groups: IntArray, y: FloatArray, known: int, keep: float, weight: float
) -> None:
    """Bring the filter, tau and S up to date with ``y``, of this weight; ``keep`` stays of the past."""
    m = shape.n_states
    before = workspace(shape.n_states)
    moves = view(workspace(shape.n_cells), 0, (m, m))
    s = view(workspace(shape.n_emission_rows), 0, (m, shape.n_statistics))
    compute_statistic(emission, shape, state, y, s)
    moved = move(emission, shape, state, y, known, before, moves)
    update_statistic(shape, state, groups, before, moves, s, keep, weight if moved else 0.0, weight)


@inlined
def update_statistic(
    shape: Any,
    state: State,
    groups: IntArray,
    before: FloatArray,
    moves: FloatArray,
    s: FloatArray,
    keep: float,
    transition_weight: float,
    emission_weight: float,
) -> None:
    """tau follows the chain, ``keep`` of it is left, and what is new is added; S is its sum over states.

    On line, the weights are gamma and ``keep`` is 1 - gamma; with all of them 1, S is the plain sum.
    """
    m, p = shape.n_states, shape.n_statistics
    kept = workspace(shape.n_cells)
    for i in range(m):
        for k in range(m):
            kept[i * m + k] = keep * moves[i, k]
    carry(shape, state, kept)
    if transition_weight > 0.0:
        for i in range(m):
            weight = transition_weight * before[i]
            for k in range(m):
                g = group_of(shape, groups, i * m + k)
                if g >= 0:
                    state.tau[k, g] += weight * moves[i, k]
    for k in range(m):
        weight = emission_weight * state.phi[k]
        for a in range(p):
            state.tau[k, shape.n_groups + k * p + a] += weight * s[k, a]
    for c in range(shape.n_rows):
        total = state.tau[0, c]
        for k in range(1, m):
            total += state.tau[k, c]
        state.S[c] = total


def carry(shape: Any, state: State, kept: FloatArray) -> None:
    """What is left of tau goes on to where the chain is now."""
    mixed = workspace(shape.n_states)
    c = 0
    while c < shape.n_rows:  # not in range(...): of that the compiler for GPUs makes more instructions
        mix(shape, state, kept, c, mixed)
        for k in range(shape.n_states):
            state.tau[k, c] = mixed[k]
        c += 1


@overload(carry, strict=False, jit_options=INLINE)
def _carry(shape: Any, state: Any, kept: Any) -> Any:
    """The same, many numbers at a time: left to itself, LLVM unrolls the loop over them, and then finds few vectors."""
    constants = dict(shape.constants)
    m, n_rows = constants["n_states"], constants["n_rows"]
    n_left = n_rows % AT_A_TIME
    n_whole = n_rows - n_left
    carry_many, carry_last = carry_part(m, AT_A_TIME), carry_part(m, max(n_left, 1))

    def by_vectors(shape: Any, state: State, kept: FloatArray) -> None:
        for c in range(0, n_whole, AT_A_TIME):
            carry_many(shape, state, kept, c)
        if n_left > 0:
            carry_last(shape, state, kept, n_whole)

    return by_vectors


def carry_part(m: int, size: int) -> Any:
    """What carries ``size`` numbers of the statistic of m states, from place ``c`` on."""
    n = m * size

    @inlined
    def part(shape: Any, state: State, kept: FloatArray, c: int) -> None:
        R = shape.n_rows
        tau, mixed = view(state.tau, 0, (m * R,)), workspace(n)
        for k in range(m):
            row = kept[k] * load(tau, c, size)
            for i in range(1, m):
                row = row + kept[i * m + k] * load(tau, i * R + c, size)
            store(mixed, k * size, row)
        for k in range(m):
            store(tau, k * R + c, load(mixed, k * size, size))

    return part


@inlined
def mix(shape: Any, state: State, kept: FloatArray, c: int, mixed: FloatArray) -> None:
    """What is left of number ``c`` of tau in each state, once the chain has moved."""
    m = shape.n_states
    for k in range(m):
        mixed[k] = state.tau[0, c] * kept[k]
    for i in range(1, m):
        for k in range(m):
            mixed[k] += state.tau[i, c] * kept[i * m + k]


@inlined
def maximize(
    emission: Any,
    shape: Any,
    state: State,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    all_live: bool = False,
) -> None:
    """M-step. A state that has died keeps its parameters until it has been visited again for a while.

    ``all_live`` says that none was dead before: then the same is done without a branch.
    """
    if shape.n_prior_rows > 0:
        S = workspace(shape.n_rows)
        weight = as_in(state.prior, 1.0 / min(state.clock[TIME], state.clock[MEMORY]))
        for c in range(shape.n_rows):
            S[c] = state.S[c] + weight * state.prior[c]
        maximize_at(emission, shape, state, S, groups, shares, leaders, all_live)
    else:  # a second call, not another S for the same one: that would keep S out of registers
        maximize_at(emission, shape, state, state.S, groups, shares, leaders, all_live)


@inlined
def maximize_at(
    emission: Any,
    shape: Any,
    state: Any,
    S: FloatArray,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    all_live: bool,
) -> None:
    """The parameters under which the statistic S is most likely."""
    m, p = shape.n_states, shape.n_statistics
    emissions = view(S, shape.n_groups, (m, p))
    total, some_died = EMPTY_SUM, False
    for i in range(m):
        total += emissions[i, 0]
        if all_live:
            state.alive[i] = 1.0 if emissions[i, 0] > DEAD else 0.0
        some_died |= emissions[i, 0] <= DEAD or state.alive[i] <= 0.0
    if some_died and not all_live:
        some_died = False
        for i in range(m):
            if emissions[i, 0] <= DEAD:
                state.alive[i] = min(state.alive[i], 0.0)
            elif state.alive[i] <= -REVIVAL:
                state.alive[i] = 1.0
            some_died |= state.alive[i] <= 0.0
    if all_live or total > DEAD:
        least = RARE if some_died else EXTINCT  # the dead must be able to return
        maximize_transitions(shape, state, S, groups, shares, leaders, least, some_died | all_live)
        emission.maximize(emissions, state.alive, state.theta)
        emission.prepare(state.theta)


@inlined
def count_visits(shape: Any, state: State) -> None:
    """Count the visits to states that have died, downwards from 0."""
    for i in range(shape.n_states):
        if state.alive[i] <= 0.0:
            state.alive[i] -= state.phi[i]


@inlined
def maximize_transitions(
    shape: Any,
    state: Any,
    S: FloatArray,
    groups: IntArray,
    shares: FloatArray,
    leaders: IntArray,
    least: float,
    some_died: bool,
) -> None:
    """Rows of the transition matrix from the expected transitions; what is possible never becomes impossible."""
    m = shape.n_states
    weights = workspace(shape.n_states)
    awake = workspace(shape.n_states)  # rows made of the same groups stay as they are together, or not at all
    for i in range(m):
        awake[i] = 0.0 if some_died else 1.0
    if some_died:
        for i in range(m):
            awake[leaders[i]] = 1.0 if state.alive[i] > 0.0 else awake[leaders[i]]
    for i in range(m):
        total = EMPTY_SUM
        for j in range(m):
            group = group_of(shape, groups, i * m + j)
            if group >= 0:
                weights[j] = S[group] * shares[i * m + j]
                total += weights[j]
        if awake[leaders[i]] > 0.0 and total > DEAD:
            norm = EMPTY_SUM
            for j in range(m):
                if group_of(shape, groups, i * m + j) >= 0:
                    weights[j] += least * total
                    norm += weights[j]
            scale = reciprocal(norm)
            for j in range(m):
                if group_of(shape, groups, i * m + j) >= 0:
                    state.transmat[i, j] = weights[j] * scale


@inlined
def average(shape: Any, state: State, n: int, is_update: bool, rules: Rules) -> None:
    """Bring averages up to date, after the M-step if there was one."""
    if rules.averaging == AVERAGE_STATISTIC and is_update:
        average_statistic(shape, state)
    if rules.averaging == AVERAGE_PARAMETERS and n > rules.average_from:
        average_parameters(shape, state)


@inlined
def average_statistic(shape: Any, state: State) -> None:
    """Bring the average of S up to date: the j-th S of all has a weight proportional to j."""
    state.clock[N_AVERAGED] += 1.0
    weight = 2.0 * reciprocal(as_in(state.mean_S, state.clock[N_AVERAGED] + 1.0))
    for c in range(shape.n_rows):
        state.mean_S[c] += weight * (state.S[c] - state.mean_S[c])


@inlined
def average_parameters(shape: Any, state: State) -> None:
    """Bring the average of the parameters up to date."""
    state.clock[N_AVERAGED] += 1.0
    weight = reciprocal(as_in(state.mean_theta, state.clock[N_AVERAGED]))
    for i in range(shape.n_states):
        for j in range(shape.n_states):
            state.mean_transmat[i, j] += weight * (state.transmat[i, j] - state.mean_transmat[i, j])
        for a in range(shape.width):
            state.mean_theta[i, a] += weight * (state.theta[i, a] - state.mean_theta[i, a])


@inlined
def recentre(emission: Any, shape: Any, state: State, window: Window | None) -> None:
    """Measure each state's statistic from its current mean, so that no digits are lost far from the origin."""
    p = shape.n_statistics
    S = view(state.S, shape.n_groups, (shape.n_states, p))
    shift = workspace(emission.centre_size)
    for i in range(shape.n_states):
        if S[i, 0] > DEAD:
            first = shape.n_groups + i * p
            emission.move_centre(state.theta[i], S[i], shift)
            for k in range(shape.n_tau):
                emission.translate(state.tau[k, first : first + p], shift)
            if window is not None:
                translate_window(emission, shape, state, window, i, shift)
            emission.translate(view(state.mean_S, first, (p,)), shift)
            if shape.n_prior_rows > 0:
                emission.translate(view(state.prior, first, (p,)), shift)
            emission.translate(S[i], shift)
