"""Exact inference along a chain: arrays in, arrays out, a block of rows at a time.

Nothing here knows what was observed: ``g[t, k]`` is the density of row t in state k, up to a factor that all states
share and whose logarithm is ``log_scale[t]``. ``is_start[t]`` says that row t begins a new sequence.
"""

from __future__ import annotations

from math import exp, inf, log, nan
from typing import Any, ClassVar

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.compilable import Compilable, workspace
from hmmstream.recursions.bridge import compiled, inlined
from hmmstream.recursions.vectors import load, spread, store, total, where_above

UNREACHABLE = 1e-300  # a predicted probability below this is 0: its reciprocal would overflow
FEW_STATES = 8  # expected transitions of so many stay in registers
UNDERFLOW, OVERFLOW = 1e-150, 1e150  # of the pending likelihood factor
LOST = 1e-100  # when the state is smaller than this, what matters may soon underflow


class Chain(Compilable):
    """The number of states, known when compiling, and how many rows have their expected transitions summed together."""

    constants: ClassVar[tuple[str, ...]] = ("n_states", "n_cells", "patch")

    def __init__(self, n_states: int) -> None:
        self.n_states = n_states
        self.n_cells = n_states * n_states
        self.patch = 1 if n_states <= FEW_STATES else 32


@compiled
def forward(
    chain: Any,
    startprob: FloatArray,
    transmat: FloatArray,
    is_start: Any,
    log_g: FloatArray,
    g: FloatArray,
    log_scale: FloatArray,
    phi: FloatArray,
    filtered: FloatArray,
    vanished: float,
) -> float:
    """Filter: Bayes' rule row after row. Returns the log-likelihood.

    ``phi`` is the filter before the first row, and becomes that of the last. ``g`` becomes the gain: filtered over
    predicted probability, which is what the way back needs. Unless ``vanished`` is 0, NaN is returned as soon as the
    probability of a state is below it: where some transitions are impossible, it might not come back.
    """
    m = chain.n_states
    q = workspace(chain.n_cells)
    state = workspace(chain.n_states)  # the filter, times ``size``
    for i in range(m):
        state[i] = phi[i]
        for k in range(m):
            q[i * m + k] = transmat[i, k]
    log_likelihood, factor = 0.0, 1.0
    # Every second row, the state is divided by the size that it had two rows before: the filter itself would make each
    # row wait for the division of the last.
    size, older_size, inverse_size, older_inverse = 1.0, 1.0, 1.0, 1.0
    for row in range(len(g)):
        lift = 1.0
        least = UNREACHABLE * size
        if is_start[row]:
            factor *= size
            size = older_size = inverse_size = older_inverse = 1.0
            predicted = load(startprob, 0, chain.n_states)
            least = -1.0  # the derivative by a start probability of 0 is wanted too
        else:
            predicted = spread(0.0, chain.n_states)
            for i in range(m):
                predicted = predicted + state[i] * load(q, i * m, chain.n_states)
            if row % 2 == 0:
                lift = older_inverse
                factor *= older_size
        density = load(g, row * m, chain.n_states)
        joint = predicted * (density * lift)
        older_size, older_inverse = size, inverse_size
        size = total(joint)
        store(state, 0, joint)
        if size > LOST:
            inverse_size = 1.0 / size
            gain = density * (lift * older_size * inverse_size)
        else:
            factor *= older_size * lift
            predicted = predicted * older_inverse
            older_size = older_inverse = 1.0
            least = UNREACHABLE
            size = rescue(chain, predicted, log_g, log_scale, row, state)
            inverse_size = 1.0 / size
            gain = load(state, 0, chain.n_states) * inverse_size / predicted
        if vanished > 0.0 and has_vanished(chain, predicted, log_g, row, state, vanished):
            return nan
        store(filtered, row * m, load(state, 0, chain.n_states) * inverse_size)
        store(g, row * m, where_above(predicted, least, gain))
        log_likelihood += log_scale[row]
        if not UNDERFLOW < factor < OVERFLOW:
            log_likelihood += log(factor)
            factor = 1.0
    for k in range(m):
        phi[k] = state[k] * inverse_size
    return log_likelihood + log(factor) + log(size)


@inlined
def rescue(chain: Any, prediction: Any, log_g: FloatArray, log_scale: FloatArray, row: int, state: FloatArray) -> float:
    """Bayes' rule in logarithms, for a row whose likely states have hardly been reachable."""
    predicted = workspace(chain.n_states)
    store(predicted, 0, prediction)
    top = -inf
    for k in range(chain.n_states):
        state[k] = log(predicted[k]) + log_g[row, k] if predicted[k] > UNREACHABLE else -inf
        top = max(top, state[k])
    log_scale[row] = top
    size = 0.0
    for k in range(chain.n_states):
        # What is impossible in every state that can be reached tells nothing about which it was
        state[k] = exp(state[k] - top) if top > -inf else predicted[k]
        size += state[k]
    return size


@inlined
def has_vanished(chain: Any, prediction: Any, log_g: FloatArray, row: int, state: FloatArray, vanished: float) -> bool:
    """Whether a state that is possible has hardly any weight."""
    predicted = workspace(chain.n_states)
    store(predicted, 0, prediction)
    n_vanished = 0
    for k in range(chain.n_states):
        n_vanished += state[k] < vanished and predicted[k] > 0.0 and log_g[row, k] > -inf
    return n_vanished > 0


@compiled
def backward(
    chain: Any,
    transmat: FloatArray,
    is_start: Any,
    before: FloatArray,
    filtered: FloatArray,
    gain: FloatArray,
    message: FloatArray,
    smoothed: FloatArray,
    pairs: FloatArray,
    start: FloatArray,
) -> None:
    """Smooth, from the last row to the first: what came later says which state was how likely.

    ``before`` is the filter before the first row. ``message`` says by how much each state of the last row is more
    probable in the light of what follows, and becomes the same for the row before the first. Expected transitions and
    starts, divided by their probabilities, are added to ``pairs`` and ``start``: so they are derivatives of the
    log-likelihood, also where a probability is 0 and the state can be reached otherwise. ``gain`` becomes smoothed over
    predicted probability.
    """
    m = chain.n_states
    q = workspace(chain.n_cells)  # transposed
    sums = workspace(chain.n_cells)
    now = workspace(chain.n_states)
    for i in range(m):
        store(sums, i * m, load(pairs, i * m, chain.n_states))
        for k in range(m):
            q[k * m + i] = transmat[i, k]
    likely = load(message, 0, chain.n_states)
    row = len(filtered) - 1
    while row >= 0:
        first = max(row - chain.patch + 1, 0)
        for t in range(row, first - 1, -1):
            store(smoothed, t * m, load(filtered, t * m, chain.n_states) * likely)
            store(now, 0, likely * load(gain, t * m, chain.n_states))
            if is_start[t]:
                store(start, 0, load(start, 0, chain.n_states) + load(now, 0, chain.n_states))
                store(gain, t * m, spread(0.0, chain.n_states))  # no transition
                likely = spread(1.0, chain.n_states)
            else:
                store(gain, t * m, load(now, 0, chain.n_states))
                likely = spread(0.0, chain.n_states)
                for k in range(m):
                    likely = likely + now[k] * load(q, k * m, chain.n_states)
        for i in range(m):
            row_sum = load(sums, i * m, chain.n_states)
            for t in range(max(first, 1), row + 1):
                row_sum = row_sum + filtered[t - 1, i] * load(gain, t * m, chain.n_states)
            store(sums, i * m, row_sum)
        row = first - 1
    for i in range(m):
        store(pairs, i * m, load(sums, i * m, chain.n_states) + before[i] * load(gain, 0, chain.n_states))
    store(message, 0, likely)


@compiled
def forward_in_logs(
    chain: Any,
    log_startprob: FloatArray,
    log_transmat: FloatArray,
    is_start: Any,
    log_g: FloatArray,
    gain: FloatArray,
    log_phi: FloatArray,
    log_filtered: FloatArray,
) -> float:
    """``forward`` in logarithms: slower, and no state is ever lost."""
    m = chain.n_states
    predicted = workspace(chain.n_states)
    log_likelihood = 0.0
    for row in range(len(log_g)):
        predict_in_logs(chain, log_startprob, log_transmat, is_start[row], log_phi, predicted)
        for k in range(m):
            log_phi[k] = predicted[k] + log_g[row, k]
        density = log_of_sum(chain, log_phi)
        log_likelihood += density
        if density == -inf:  # what is impossible in every state that can be reached tells nothing
            for k in range(m):
                log_phi[k] = predicted[k]
            density = log_of_sum(chain, log_phi)
        for k in range(m):
            log_phi[k] -= density
            log_filtered[row, k] = log_phi[k]
            gain[row, k] = exp(log_phi[k] - predicted[k]) if predicted[k] > -inf else 0.0
    return log_likelihood


@inlined
def predict_in_logs(
    chain: Any,
    log_startprob: FloatArray,
    log_transmat: FloatArray,
    starts: bool,
    past: FloatArray,
    predicted: FloatArray,
) -> None:
    """Logarithms of the predicted probabilities of a row, from those of the filter before it."""
    terms = workspace(chain.n_states)
    for k in range(chain.n_states):
        if starts:
            predicted[k] = log_startprob[k]
        else:
            for i in range(chain.n_states):
                terms[i] = past[i] + log_transmat[i, k]
            predicted[k] = log_of_sum(chain, terms)


@inlined
def log_of_sum(chain: Any, logs: FloatArray) -> float:
    """Logarithm of the sum of numbers that are given by their logarithms."""
    top = logs[0]
    for k in range(1, chain.n_states):
        top = max(top, logs[k])
    if top == -inf:
        return top
    total = 0.0
    for k in range(chain.n_states):
        total += exp(logs[k] - top)
    return top + log(total)


@compiled
def backward_in_logs(
    chain: Any,
    log_startprob: FloatArray,
    log_transmat: FloatArray,
    is_start: Any,
    log_before: FloatArray,
    log_filtered: FloatArray,
    log_message: FloatArray,
    smoothed: FloatArray,
    pairs: FloatArray,
    start: FloatArray,
) -> None:
    """``backward`` in logarithms. Transitions and starts of probability 0 have no share in the sums."""
    m = chain.n_states
    predicted = workspace(chain.n_states)
    past = workspace(chain.n_states)
    ratio = workspace(chain.n_states)
    terms = workspace(chain.n_states)
    for row in range(len(log_filtered) - 1, -1, -1):
        for k in range(m):
            past[k] = log_filtered[row - 1, k] if row > 0 else log_before[k]
        predict_in_logs(chain, log_startprob, log_transmat, is_start[row], past, predicted)
        for k in range(m):
            gamma = log_filtered[row, k] + log_message[k]
            smoothed[row, k] = exp(gamma)
            ratio[k] = gamma - predicted[k] if predicted[k] > -inf else -inf
        for i in range(m):
            if is_start[row]:
                start[i] += exp(ratio[i])
                log_message[i] = 0.0
            else:
                for k in range(m):
                    terms[k] = log_transmat[i, k] + ratio[k]
                    if log_transmat[i, k] > -inf:
                        pairs[i, k] += exp(past[i] + ratio[k])
                log_message[i] = log_of_sum(chain, terms)


@compiled
def best_paths(
    chain: Any,
    log_startprob: FloatArray,
    log_transmat: FloatArray,
    is_start: Any,
    log_g: FloatArray,
    delta: FloatArray,
    back: Any,
) -> float:
    """Viterbi's recursion. Returns what is to be added to the log-probability of the best path.

    ``delta[k]`` is the log-probability of the best path so far that ends in state k, compared with the best of all;
    ``back[t, k]`` is where that path was one row before. Sequences are strung together: each starts where the best
    path through the last one ended.
    """
    m = chain.n_states
    reached = workspace(chain.n_states)
    log_probability = 0.0
    for row in range(len(log_g)):
        for k in range(m):
            best, origin = -inf, 0
            for i in range(m):
                candidate = delta[i] + (0.0 if is_start[row] else log_transmat[i, k])
                if candidate > best:
                    best, origin = candidate, i
            reached[k] = best + log_startprob[k] if is_start[row] else best
            back[row, k] = origin
        top = -inf
        for k in range(m):
            delta[k] = reached[k] + log_g[row, k]
            top = max(top, delta[k])
        log_probability += top
        if top == -inf:  # what is impossible in every state that can be reached tells nothing
            for k in range(m):
                delta[k] = reached[k]
                top = max(top, delta[k])
        for k in range(m):
            delta[k] -= top
    return log_probability


@compiled
def trace_back(chain: Any, back: Any, last: int, path: IntArray) -> None:
    """Follow the best path from the state ``last`` of the last row to the first row."""
    for row in range(len(path) - 1, -1, -1):
        path[row] = last
        last = back[row, last]


@compiled
def draw_paths(
    chain: Any, log_transmat: FloatArray, is_start: Any, log_filtered: FloatArray, uniform: FloatArray, paths: IntArray
) -> None:
    """Draw each path of states from its distribution given all rows, from the last row to the first."""
    m = chain.n_states
    weights = workspace(chain.n_states)
    for draw in range(len(paths)):
        for row in range(len(log_filtered) - 1, -1, -1):
            is_last = row == len(log_filtered) - 1 or is_start[row + 1]
            top = -inf
            for i in range(m):
                weights[i] = log_filtered[row, i] + (0.0 if is_last else log_transmat[i, paths[draw, row + 1]])
                top = max(top, weights[i])
            size = 0.0
            for i in range(m):
                weights[i] = exp(weights[i] - top)
                size += weights[i]
            level = uniform[draw, row] * size
            state, below = -1, 0.0
            for i in range(m):
                below += weights[i]
                if weights[i] > 0.0 and (state < 0 or below - weights[i] <= level):
                    state = i
            paths[draw, row] = state


@compiled
def tangent(
    chain: Any,
    transmat: FloatArray,
    groups: IntArray,
    table: IntArray,
    start_slopes: FloatArray,
    is_start: Any,
    filtered: FloatArray,
    before: FloatArray,
    gain: FloatArray,
    gradients: FloatArray,
    slopes: FloatArray,
    increments: FloatArray,
) -> None:
    """The filter's derivatives: how each row's log predictive density changes with each parameter.

    ``groups`` has the number of the parameter behind each transition, -1 if none is, and ``table`` that behind each
    cell of theta's rows. ``gradients[t, k]`` is the derivative of the log-density of row t in state k by that state's
    row of theta, ``start_slopes[c]`` that of the start probabilities by parameter c. ``slopes[c]`` is that of the
    filter, before the first row and then after the last. Columns of ``increments`` beyond the last parameter become 0.
    """
    m = chain.n_states
    n_parameters, width = len(slopes), gradients.shape[2]
    q = workspace(chain.n_cells)
    weights = workspace(chain.n_cells)  # by which slopes become those of the joint density, over the predictive one
    sources = np.empty((n_parameters, m))  # what a row adds to them
    for i in range(m):
        for k in range(m):
            q[i * m + k] = transmat[i, k]
    for row in range(len(filtered)):
        row_gain = load(gain, row * m, chain.n_states)
        if is_start[row]:
            for i in range(m):
                store(weights, i * m, spread(0.0, chain.n_states))
            for c in range(n_parameters):
                store(sources, c * m, load(start_slopes, c * m, chain.n_states) * row_gain)
        else:
            for i in range(m):
                store(weights, i * m, load(q, i * m, chain.n_states) * row_gain)
            for c in range(n_parameters):
                store(sources, c * m, spread(0.0, chain.n_states))
            for i in range(m):
                past = before[i] if row == 0 else filtered[row - 1, i]
                for k in range(m):
                    if groups[i * m + k] >= 0:
                        sources[groups[i * m + k], k] += past * gain[row, k]
        for k in range(m):
            for a in range(width):
                sources[table[k * width + a], k] += filtered[row, k] * gradients[row, k, a]
        row_filter = load(filtered, row * m, chain.n_states)
        for c in range(n_parameters):
            change = load(sources, c * m, chain.n_states)
            for i in range(m):
                change = change + slopes[c, i] * load(weights, i * m, chain.n_states)
            increment = total(change)
            increments[row, c] = increment
            store(slopes, c * m, change + row_filter * -increment)
        for c in range(n_parameters, increments.shape[1]):
            increments[row, c] = 0.0
