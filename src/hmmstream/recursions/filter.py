"""The filter, one observation at a time, and what the statistic needs of it."""

from __future__ import annotations

from math import exp, inf, log
from typing import Any

from numba.extending import overload

from hmmstream.arrays import UNKNOWN, FloatArray
from hmmstream.compilable import EMPTY_SUM, reciprocal, workspace
from hmmstream.recursions.bridge import INLINE, inlined
from hmmstream.recursions.state import IN_SEQUENCE, State
from hmmstream.recursions.vectors import exponential, load, store

LARGEST_STATISTIC = 1e300
UNREACHABLE = 1e-250  # a predicted probability below this is 0: a window keeps its reciprocal, which would overflow
FEW = 4  # states, up to which densities of those that cannot be reached are computed rather than passed over
NEAR = 50.0  # log-densities that differ by less need not be shifted by their maximum
# A likelihood factor waits for its logarithm while it is in between. In single precision, these are what that can hold.
LEAST_PENDING, MOST_PENDING = 1e-300, 1e300


@inlined
def move(
    emission: Any, shape: Any, state: State, y: FloatArray, known: int, before: FloatArray, moves: FloatArray
) -> bool:
    """Bring the filter up to date with ``y``; ``before`` is what it was. Whether this was a move within a sequence.

    What was in state i with the probability before(i) is in k now, given ``y``, with before(i) moves(i, k). The first
    observation of a sequence has nothing to do with the past: it comes to k from anywhere. The same is true of a state
    that is known, but was impossible.
    """
    m = shape.n_states
    predicted = workspace(shape.n_states)
    factor = workspace(shape.n_states)
    moved = state.clock[IN_SEQUENCE] > 0.0
    if moved:
        predict(shape, state, predicted)
    else:
        for k in range(m):
            predicted[k] = state.startprob[k]
        state.clock[IN_SEQUENCE] = 1.0
    from_anywhere = not moved
    if known != UNKNOWN:
        from_anywhere = clamp(shape, state, predicted, known) or from_anywhere
    for i in range(m):
        before[i] = state.phi[i]
    update_filter(emission, shape, state, predicted, y, factor)
    for i in range(m):
        for k in range(m):
            moves[i, k] = state.phi[k] if from_anywhere else state.transmat[i, k] * factor[k]
    return moved


@inlined
def predict(shape: Any, state: State, predicted: FloatArray) -> None:
    """Probability of each state at the next observation, before that is seen."""
    for k in range(shape.n_states):
        total = state.phi[0] * state.transmat[0, k]
        for i in range(1, shape.n_states):
            total += state.phi[i] * state.transmat[i, k]
        predicted[k] = total


@inlined
def clamp(shape: Any, state: State, predicted: FloatArray, known: int) -> bool:
    """No state but the known one is possible. Where that was impossible, the observer is believed all the same."""
    for k in range(shape.n_states):
        if k != known:
            predicted[k] = 0.0
    was_impossible = not predicted[known] > UNREACHABLE
    if was_impossible:
        predicted[known] = 1.0
        state.log_likelihood[0] = -inf
    return was_impossible


@inlined
def compute_statistic(emission: Any, shape: Any, state: State, y: FloatArray, s: FloatArray) -> None:
    """The statistic of ``y`` in each state, always finite: what a family lets overflow is cut off."""
    total = 0.0
    for i in range(shape.n_states):
        emission.statistic(state.theta[i], y, s[i])
        if not emission.is_moderate:
            for a in range(shape.n_statistics):
                total += s[i, a]
    if not -inf < total < inf:
        for i in range(shape.n_states):
            for a in range(shape.n_statistics):
                s[i, a] = min(max(s[i, a], -LARGEST_STATISTIC), LARGEST_STATISTIC) if s[i, a] == s[i, a] else 0.0


def relative_densities(shape: Any, first: int, log_g: FloatArray, shift: float, factor: FloatArray) -> None:
    """exp(log_g - shift) of all states from ``first`` on: that of those before is 1."""
    for k in range(first, shape.n_states):
        factor[k] = exp(log_g[k] - shift)


@overload(relative_densities, strict=False, jit_options=INLINE)
def _relative_densities(shape: Any, first: Any, log_g: Any, shift: Any, factor: Any) -> Any:
    """Of more than a few states, those of all at once."""
    if dict(shape.constants)["n_states"] <= FEW:
        return relative_densities

    def as_vector(shape: Any, first: int, log_g: FloatArray, shift: float, factor: FloatArray) -> None:
        store(factor, 0, exponential(load(log_g, 0, shape.n_states) + -shift))

    return as_vector


@inlined
def update_filter(
    emission: Any, shape: Any, state: State, predicted: FloatArray, y: FloatArray, factor: FloatArray
) -> None:
    """Bayes' rule: the filter is what was predicted, times a ``factor`` for each state.

    Log-densities are shifted by that of the first state where they are near it, else by their maximum. What is
    impossible in every state tells nothing.
    """
    m = shape.n_states
    log_g = workspace(shape.n_states)
    spread = EMPTY_SUM
    is_usual = True
    for k in range(m):
        if m <= FEW or predicted[k] > UNREACHABLE:
            log_g[k] = emission.log_density(state.theta[k], y)
        else:
            log_g[k] = -inf
        is_usual &= predicted[k] > UNREACHABLE
        if k > 0:
            spread += abs(log_g[k] - log_g[0])
    shift = log_g[0]
    if is_usual and spread < NEAR:
        factor[0] = 1.0
        relative_densities(shape, 1, log_g, shift, factor)
    else:
        shift = -inf
        for k in range(m):
            if not predicted[k] > UNREACHABLE:
                predicted[k] = 0.0
                log_g[k] = -inf
            elif not -inf < log_g[k] < inf:
                log_g[k] = -inf
            shift = max(shift, log_g[k])
        for k in range(m):
            factor[k] = 1.0
        if shift > -inf:
            relative_densities(shape, 0, log_g, shift, factor)
    state.phi[0] = density = predicted[0] * factor[0]
    for k in range(1, m):
        state.phi[k] = predicted[k] * factor[k]
        density += state.phi[k]
    scale = reciprocal(density)
    for k in range(m):
        state.phi[k] *= scale
        factor[k] *= scale
    state.log_likelihood[0] += shift + emission.shared_log_density(state.theta[0], y)
    shared = emission.shared_density(state.theta[0], y)
    pending = state.pending[0] * density * shared  # one logarithm for many factors
    if not LEAST_PENDING < pending < MOST_PENDING:
        state.log_likelihood[0] += log(state.pending[0]) + log(density) + log(shared)
        pending = 1.0
    state.pending[0] = pending
