"""The E-step of batch EM in its recursive form: one pass forwards, in memory that does not grow with the record.

This is the online recursion with frozen parameters, all weights 1: rho is a sum instead of a weighted mean. Its loop
has the steps of ``online.advance`` by themselves, since it also needs ``r``, which that one keeps in registers.
"""

from __future__ import annotations

from typing import Any

from hmmstream.arrays import UNKNOWN, FloatArray, IntArray
from hmmstream.compilable import workspace
from hmmstream.recursions.bridge import compiled, view
from hmmstream.recursions.filter import begin, clamp, compute_statistic, retrospect, update_filter
from hmmstream.recursions.online import update_statistic
from hmmstream.recursions.rows import read
from hmmstream.recursions.state import IN_SEQUENCE, compiled_parts


@compiled
def expect(
    emission: Any,
    shape: Any,
    vector: FloatArray,
    groups: IntArray,
    X: FloatArray,
    is_start: Any,
    known: IntArray | None,
    weights: FloatArray | None,
    with_first: bool,
    start: FloatArray,
) -> None:
    """Add up the smoothed statistic of all rows in the S of the state ``vector``, and first states in ``start``.

    ``known`` states and ``weights`` of rows are as in ``online.learn``. Unless ``with_first``, the first row of each
    sequence has no part in the statistic of the emissions.
    """
    m = shape.n_states
    state = compiled_parts(shape, vector)
    groups = view(groups, 0, (shape.n_cells,))
    y = workspace(emission.n_features)
    predicted = workspace(shape.n_states)
    r = view(workspace(shape.n_cells), 0, (m, m))
    s = view(workspace(shape.n_emission_rows), 0, (m, shape.n_statistics))
    origin = view(workspace(shape.n_cells), 0, (m, m))  # expected first states, given that the chain is now in k
    mixed = view(workspace(shape.n_cells), 0, (m, m))
    for k in range(m):
        for i in range(m):
            origin[k, i] = 0.0
    for row in range(len(X)):
        read(emission, X, row, y)
        moved = not is_start[row]
        if moved:
            retrospect(shape, state, predicted, r)
        else:
            begin(shape, state, predicted, r)
        compute_statistic(emission, shape, state, y, s)
        weight = 1.0
        if weights is not None:
            weight = weights[row]
        if known is not None and known[row] != UNKNOWN:
            clamp(shape, state, predicted, known[row])
        update_filter(emission, shape, state, predicted, y)
        observed = not emission.is_missing(y) and (with_first or moved)
        update_statistic(shape, state, groups, r, s, 1.0, weight if moved else 0.0, weight if observed else 0.0)
        for k in range(m):
            for i in range(m):
                mixed[k, i] = weight if not moved and i == k else 0.0
                for j in range(m):
                    mixed[k, i] += origin[j, i] * r[j, k]
        for k in range(m):
            for i in range(m):
                origin[k, i] = mixed[k, i]
    for i in range(m):
        for k in range(m):
            start[i] += origin[k, i] * state.phi[k]
    state.clock[IN_SEQUENCE] = 0.0
