"""What rows say about all parameters, in one pass over them: the filter, its derivatives and the sums of products."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.recursions.bridge import compiled
from hmmstream.recursions.exact import forward, tangent
from hmmstream.recursions.products import add_products
from hmmstream.recursions.rows import densities, gradients

TOGETHER = 256  # rows: so many are worked on while they are in a near cache, and the sum of their scores is one of many


@compiled
def add_scores(
    emission: Any,
    chain: Any,
    tile: Any,
    theta: FloatArray,
    startprob: FloatArray,
    transmat: FloatArray,
    vanished: float,
    groups: IntArray,
    table: IntArray,
    start_slopes: FloatArray,
    X: FloatArray,
    is_start: Any,
    known: IntArray | None,
    weights: FloatArray | None,
    phi: FloatArray,
    slopes: FloatArray,
    gradient: FloatArray,
    outer: FloatArray,
    scatter: FloatArray,
) -> float:
    """Add the scores of the rows, and their products, to sums as ``add_products`` does. Returns the log-likelihood.

    ``phi`` and ``slopes`` are the filter before the first row, and its derivatives: they become those of the last.
    What is returned is NaN if the filter has ``vanished``, as in ``forward``.
    """
    m, size = chain.n_states, min(TOGETHER, len(X))
    log_g, g, filtered = np.empty((size, m)), np.empty((size, m)), np.empty((size, m))
    log_scale, before = np.empty(size), np.empty(m)
    derivatives = np.empty((size, m, emission.n_parameters))
    increments = np.empty((size, len(gradient)))
    weighted = increments if weights is None else np.empty((size, len(gradient)))
    log_likelihood = 0.0
    for first in range(0, len(X), TOGETHER):
        last = min(first + TOGETHER, len(X))
        n = last - first
        for k in range(m):
            before[k] = phi[k]
        starts = is_start[first:last]
        known_here = None if known is None else known[first:last]
        densities(emission, theta, X[first:last], known_here, log_g[:n], g[:n], log_scale[:n])
        log_likelihood += forward(
            chain, startprob, transmat, starts, log_g[:n], g[:n], log_scale[:n], phi, filtered[:n], vanished
        )
        if isnan(log_likelihood):
            return nan
        gradients(emission, theta, X[first:last], derivatives[:n])
        tangent(
            chain,
            transmat,
            groups,
            table,
            start_slopes,
            starts,
            filtered[:n],
            before,
            g[:n],
            derivatives[:n],
            slopes,
            increments[:n],
        )
        if weights is not None:
            for row in range(n):
                for c in range(len(gradient)):
                    weighted[row, c] = weights[first + row] * increments[row, c]
        add_products(tile, increments[:n], weighted[:n], TOGETHER, gradient, outer, scatter)
    return log_likelihood
