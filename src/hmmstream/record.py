"""Observations together with all else that was said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hmmstream.arrays import UNKNOWN, FloatArray, IntArray


@dataclass(frozen=True)
class Record:
    """Rows of observations, where sequences start, and what is known of the rows."""

    X: FloatArray
    is_start: Any  # (n,) booleans
    states: IntArray | None = None  # (n,): those that are known beforehand, or UNKNOWN
    weights: FloatArray | None = None  # (n,): how much each row counts in what is estimated

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: Any) -> Record:
        states = None if self.states is None else self.states[rows]
        weights = None if self.weights is None else self.weights[rows]
        return Record(self.X[rows], self.is_start[rows], states, weights)


def join(pieces: list[Record]) -> Record:
    """One record of many, in memory of its own."""
    states = weights = None
    if any(piece.states is not None for piece in pieces):
        known = [np.full(len(piece), UNKNOWN) if piece.states is None else piece.states for piece in pieces]
        states = np.concatenate(known)
    if any(piece.weights is not None for piece in pieces):
        weights = np.concatenate([np.ones(len(piece)) if piece.weights is None else piece.weights for piece in pieces])
    return Record(
        np.concatenate([piece.X for piece in pieces]),
        np.concatenate([piece.is_start for piece in pieces]),
        states,
        weights,
    )
