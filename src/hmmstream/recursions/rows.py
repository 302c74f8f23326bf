"""What exact inference needs of the observations themselves: densities, statistics, gradients of a block of rows."""

from __future__ import annotations

from math import inf, log
from typing import Any

from hmmstream.arrays import UNKNOWN, FloatArray, IntArray
from hmmstream.compilable import workspace
from hmmstream.recursions.bridge import compiled, inlined, view
from hmmstream.recursions.vectors import exponential, load, store

PATCH = 64  # rows that are worked on together, while they are in the nearest cache
LARGEST = 1e150  # of an observation; what is larger is taken for this, so that its square is finite
ACCEPTED = -1


@inlined
def first_refused(emission: Any, X: FloatArray) -> int:
    """The place of the first value that cannot occur, counted along the rows, or ACCEPTED. X has no gaps in memory."""
    d = emission.n_features
    values = view(X, 0, (X.size,))
    for first in range(0, len(X), PATCH):
        n = min(PATCH, len(X) - first)
        patch = view(values, first * d, (n, d))  # rows that count from 0 are seen to follow each other: read as vectors
        n_refused = 0
        for row in range(n):  # without a way out of the loop many values are looked at together
            for a in range(d):
                n_refused += is_refused(emission, a, patch[row, a])
        if n_refused > 0:
            for row in range(n):
                for a in range(d):
                    if is_refused(emission, a, patch[row, a]):
                        return (first + row) * d + a
    return ACCEPTED


@inlined
def is_refused(emission: Any, a: int, value: float) -> bool:
    """Whether a feature cannot have this value. It may be missing."""
    return value == value and not (abs(value) < inf and emission.accepts_at(a, value))


@compiled
def check(emission: Any, X: FloatArray) -> int:
    """``first_refused``, to be called from Python."""
    return first_refused(emission, X)


@compiled
def count_seen(emission: Any, X: FloatArray) -> int:
    """The number of rows of which something was seen."""
    y = workspace(emission.n_features)
    n_seen = 0
    for row in range(len(X)):
        read(emission, X, row, y)
        n_seen += not emission.is_missing(y)
    return n_seen


@inlined
def read(emission: Any, X: FloatArray, row: int, y: FloatArray) -> None:
    """Copy a row into ``y``, cutting off what is too large."""
    for a in range(emission.n_features):
        y[a] = X[row, a]
        if abs(y[a]) > LARGEST:
            y[a] = LARGEST if y[a] > 0.0 else -LARGEST


@compiled
def densities(
    emission: Any,
    theta: FloatArray,
    X: FloatArray,
    known: IntArray | None,
    log_g: FloatArray,
    g: FloatArray,
    log_scale: FloatArray,
) -> None:
    """Densities of each row in each state: their logarithms, and themselves divided by the largest of the row.

    Where the state is ``known``, the row could have been seen in no other.
    """
    m = emission.n_components
    y = workspace(emission.n_features)
    flat = view(g, 0, (len(X) * m,))
    last_factor, log_factor = 1.0, 0.0
    for first in range(0, len(X), PATCH):
        last = min(first + PATCH, len(X))
        for row in range(first, last):
            read(emission, X, row, y)
            factor = emission.shared_density(theta[0], y)
            if factor != last_factor:
                last_factor, log_factor = factor, log(factor)
            shared = emission.shared_log_density(theta[0], y) + log_factor
            total = 0.0
            for k in range(m):
                log_g[row, k] = emission.log_density(theta[k], y) + shared
                total += log_g[row, k]
            if not -inf < total < inf:
                for k in range(m):
                    if not -inf < log_g[row, k] < inf:
                        log_g[row, k] = -inf
            top = log_g[row, 0]
            for k in range(1, m):
                top = max(top, log_g[row, k])
            log_scale[row] = top
            for k in range(m):
                g[row, k] = log_g[row, k] - top
            if known is not None:
                settle(emission, known[row], row, log_g, g, log_scale)
        exponentials(flat, first * m, last * m)


@inlined
def settle(
    emission: Any, state: int, row: int, log_g: FloatArray, log_ratio: FloatArray, log_scale: FloatArray
) -> None:
    """Take all densities of a row away but that of the state it is known to come from."""
    if state != UNKNOWN:
        log_scale[row] = log_g[row, state]
        for k in range(emission.n_components):
            log_g[row, k] = log_scale[row] if k == state else -inf
            log_ratio[row, k] = 0.0 if k == state else -inf


@inlined
def exponentials(values: FloatArray, first: int, last: int) -> None:
    """Replace ``values`` from ``first`` up to ``last`` by their exponentials, many at a time."""
    at = first
    while at + 16 <= last:
        store(values, at, exponential(load(values, at, 16)))
        at += 16
    while at < last:
        store(values, at, exponential(load(values, at, 1)))
        at += 1


@compiled
def accumulate(emission: Any, theta: FloatArray, X: FloatArray, weights: FloatArray, S: FloatArray) -> None:
    """Add the statistic of each row, weighted by the probability of each state, to S. Missing rows have none."""
    p = emission.n_statistics
    y = workspace(emission.n_features)
    s = workspace(emission.n_statistics)
    sums = workspace(emission.n_emission_rows)
    for at in range(emission.n_emission_rows):
        sums[at] = 0.0
    for row in range(len(X)):
        read(emission, X, row, y)
        if not emission.is_missing(y):
            for k in range(emission.n_components):
                emission.statistic(theta[k], y, s)
                for c in range(p):
                    sums[k * p + c] += weights[row, k] * s[c]
    for k in range(emission.n_components):
        for c in range(p):
            S[k, c] += sums[k * p + c]


@compiled
def gradients(emission: Any, theta: FloatArray, X: FloatArray, derivatives: FloatArray) -> None:
    """Derivatives of the log-density of each row in each state by the state's parameters."""
    y = workspace(emission.n_features)
    s = workspace(emission.n_statistics)
    for row in range(len(X)):
        read(emission, X, row, y)
        for k in range(emission.n_components):
            if emission.is_missing(y):
                for a in range(emission.n_parameters):
                    derivatives[row, k, a] = 0.0
            else:
                emission.statistic(theta[k], y, s)
                emission.gradient(theta[k], s, derivatives[row, k])
