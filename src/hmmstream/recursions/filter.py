"""The filter, one observation at a time, and what the statistic needs of it."""

from __future__ import annotations

from math import exp, inf, log
from typing import Any

from hmmstream.arrays import FloatArray
from hmmstream.compilable import reciprocal, workspace
from hmmstream.recursions.bridge import inlined
from hmmstream.recursions.state import IN_SEQUENCE, LIKELIHOOD_FACTOR, LOG_LIKELIHOOD, State

LARGEST_STATISTIC = 1e300
UNREACHABLE = 1e-250  # a predicted probability below this is 0: its reciprocal would overflow
NEAR = 50.0  # log-densities that differ by less need not be shifted by their maximum
PENDING = 1e30  # a likelihood factor waits for its logarithm while it is below this, and its inverse too


@inlined
def begin(shape: Any, state: State, predicted: FloatArray, r: FloatArray) -> None:
    """The first observation of a sequence: no transition, and the past says nothing about it."""
    for k in range(shape.n_states):
        predicted[k] = state.startprob[k] if state.startprob[k] > UNREACHABLE else 0.0
        for i in range(shape.n_states):
            r[i, k] = state.phi[i]
    state.clock[IN_SEQUENCE] = 1.0


@inlined
def retrospect(shape: Any, state: State, predicted: FloatArray, r: FloatArray) -> None:
    """Predicted probabilities, and r[i, k], the probability that the chain was in i given that it is now in k."""
    m = shape.n_states
    for k in range(m):
        total = 0.0
        for i in range(m):
            r[i, k] = state.phi[i] * state.transmat[i, k]
            total += r[i, k]
        if total > UNREACHABLE:
            scale = reciprocal(total)
            for i in range(m):
                r[i, k] *= scale
        else:
            total = 0.0
            for i in range(m):  # any distribution would do: it is given no weight
                r[i, k] = state.phi[i]
        predicted[k] = total


@inlined
def clamp(shape: Any, state: State, predicted: FloatArray, known: int) -> None:
    """No state but the known one is possible. Where that was impossible, the observer is believed all the same."""
    for k in range(shape.n_states):
        if k != known:
            predicted[k] = 0.0
        elif predicted[k] == 0.0:
            predicted[k] = 1.0
            state.clock[LOG_LIKELIHOOD] = -inf


@inlined
def compute_statistic(emission: Any, shape: Any, state: State, y: FloatArray, s: FloatArray) -> None:
    """The statistic of ``y`` in each state, always finite: what a family lets overflow is cut off."""
    total = 0.0
    for i in range(shape.n_states):
        emission.statistic(state.theta[i], y, s[i])
        for a in range(shape.n_statistics):
            total += s[i, a]
    if not -inf < total < inf:
        for i in range(shape.n_states):
            for a in range(shape.n_statistics):
                s[i, a] = min(max(s[i, a], -LARGEST_STATISTIC), LARGEST_STATISTIC) if s[i, a] == s[i, a] else 0.0


@inlined
def update_filter(emission: Any, shape: Any, state: State, predicted: FloatArray, y: FloatArray) -> None:
    """Bayes' rule in log-densities, shifted by that of the first state where they are near it, else by their maximum.

    What is impossible in every state tells nothing.
    """
    m = shape.n_states
    log_g = workspace(shape.n_states)
    total, spread = 0.0, 0.0
    for k in range(m):
        log_g[k] = emission.log_density(state.theta[k], y) if predicted[k] > 0.0 else -inf
        total += log_g[k]
        spread += abs(log_g[k] - log_g[0])
    if spread < NEAR:
        state.phi[0] = density = predicted[0]
        for k in range(1, m):
            state.phi[k] = predicted[k] * exp(log_g[k] - log_g[0])
            density += state.phi[k]
        normalize(emission, shape, state, y, density, log_g[0])
        return
    if not -inf < total < inf:
        for k in range(m):
            if not -inf < log_g[k] < inf:
                log_g[k] = -inf
    top = log_g[0]
    for k in range(1, m):
        top = max(top, log_g[k])
    if top == -inf:
        total = 0.0
        for k in range(m):
            total += predicted[k]  # less than 1, if all but a known state were ruled out
        for k in range(m):
            state.phi[k] = predicted[k] / total
        state.clock[LOG_LIKELIHOOD] = -inf
        return
    density = 0.0
    for k in range(m):
        state.phi[k] = predicted[k] * exp(log_g[k] - top)
        density += state.phi[k]
    normalize(emission, shape, state, y, density, top)


@inlined
def normalize(emission: Any, shape: Any, state: State, y: FloatArray, density: float, shift: float) -> None:
    """Divide the filter by the ``density`` of the observation, which was shifted by so much, and note that."""
    scale = reciprocal(density)
    for k in range(shape.n_states):
        state.phi[k] *= scale
    state.clock[LOG_LIKELIHOOD] += shift + emission.shared_log_density(state.theta[0], y)
    state.clock[LIKELIHOOD_FACTOR] *= density  # one logarithm for many factors
    if not 1.0 / PENDING < state.clock[LIKELIHOOD_FACTOR] < PENDING:
        state.clock[LOG_LIKELIHOOD] += log(state.clock[LIKELIHOOD_FACTOR])
        state.clock[LIKELIHOOD_FACTOR] = 1.0
