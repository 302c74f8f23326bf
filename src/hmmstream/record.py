"""Observations together with all else that was said of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hmmstream.arrays import FloatArray, IntArray


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
