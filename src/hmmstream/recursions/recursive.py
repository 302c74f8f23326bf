"""The E-step of batch EM in its recursive form: one pass forwards, in memory that does not grow with the record.

This is the online recursion with frozen parameters, all weights 1: tau is a sum instead of a weighted mean. Its loop
has the steps of ``online.advance`` by themselves, since it also needs ``moves``, which that one keeps in registers.
"""

from __future__ import annotations

from typing import Any

from hmmstream.arrays import UNKNOWN, FloatArray, IntArray
from hmmstream.compilable import workspace
from hmmstream.recursions.bridge import compiled, view
from hmmstream.recursions.filter import compute_statistic, move
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
    before = workspace(shape.n_states)
    moves = view(workspace(shape.n_cells), 0, (m, m))
    s = view(workspace(shape.n_emission_rows), 0, (m, shape.n_statistics))
    origin = view(workspace(shape.n_cells), 0, (m, m))  # expected first states i, where the chain is now in k
    mixed = view(workspace(shape.n_cells), 0, (m, m))
    for k in range(m):
        for i in range(m):
            origin[k, i] = 0.0
    for row in range(len(X)):
        read(emission, X, row, y)
        compute_statistic(emission, shape, state, y, s)
        weight = 1.0
        if weights is not None:
            weight = weights[row]
        known_here = UNKNOWN
        if known is not None:
            known_here = known[row]
        state.clock[IN_SEQUENCE] = 0.0 if is_start[row] else 1.0
        moved = move(emission, shape, state, y, known_here, before, moves)
        observed = not emission.is_missing(y) and (with_first or moved)
        transition_weight, emission_weight = weight if moved else 0.0, weight if observed else 0.0
        update_statistic(shape, state, groups, before, moves, s, 1.0, transition_weight, emission_weight)
        for k in range(m):
            for i in range(m):
                mixed[k, i] = weight * state.phi[k] if not moved and i == k else 0.0
                for j in range(m):
                    mixed[k, i] += origin[j, i] * moves[j, k]
        for k in range(m):
            for i in range(m):
                origin[k, i] = mixed[k, i]
    for i in range(m):
        for k in range(m):
            start[i] += origin[k, i]
    state.clock[IN_SEQUENCE] = 0.0
