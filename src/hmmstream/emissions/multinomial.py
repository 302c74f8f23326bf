"""Multinomial emissions: how often each of a few outcomes came, in a number of trials."""

from __future__ import annotations

from math import inf, lgamma, log
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray, frozen, is_integer
from hmmstream.compilable import is_nan, is_whole
from hmmstream.emissions.base import RARE, Emission


class Multinomial(Emission):
    """Counts of k outcomes, one feature each, with one probability for each state and outcome.

    The number of trials is the sum of the row and may differ from row to row; it says nothing about the state. A row
    of which a count is missing is missing as a whole.

    Parameters
    ----------
    n_trials : int
        Of the rows that are simulated or forecast. Learning does not need it.
    probs : (m, k)
        Rows sum to 1.

    Examples
    --------
    >>> Multinomial(probs=[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]]).n_features
    3
    """

    value_names = ("probs",)
    domain = "a count: 0, 1, 2, …"
    probs: FloatArray

    def __init__(self, n_trials: int = 1, probs: ArrayLike | None = None) -> None:
        if not is_integer(n_trials) or n_trials < 1:
            raise ValueError(f"n_trials must be a positive integer, got {n_trials!r}")
        self.n_trials = int(n_trials)
        if probs is not None:
            self.probs = frozen(probs, "probs")
            if self.probs.ndim != 2 or self.probs.size == 0:
                raise ValueError(f"probs must have shape (states, outcomes), got {np.shape(probs)}")
            if (self.probs < 0.0).any() or not np.allclose(self.probs.sum(axis=1), 1.0, rtol=0.0, atol=1e-8):
                raise ValueError(f"each row of probs must be probabilities that sum to 1, got {self.probs.tolist()}")
            self.n_components, self.n_features = self.probs.shape
            self.n_parameters = self.n_features
            self.n_statistics = 1 + self.n_features

    @classmethod
    def for_data(cls, X: FloatArray) -> Self:
        totals = X.sum(axis=1)
        totals = totals[np.isfinite(totals)]
        return cls(max(1, round(totals.mean()))) if len(totals) else cls()

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.sqrt(X / np.maximum(X.sum(axis=1, keepdims=True), 1.0))

    @property
    def sums_to_one(self) -> tuple[slice | IntArray, ...]:
        return (slice(None),)

    @property
    def specification(self) -> tuple[Any, ...]:
        return (self.n_trials,)

    def rows(self) -> FloatArray:
        return self.probs

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        return {"probs": rows}

    def sized(self, n_components: int, n_features: int) -> Self:
        return type(self)(self.n_trials, np.full((n_components, n_features), 1.0 / n_features))

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        return np.zeros_like(self.probs), np.ones_like(self.probs)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.n_trials * self.probs, self.n_trials * self.probs * (1.0 - self.probs)

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return rng.multinomial(self.n_trials, self.probs[states])

    def __repr__(self) -> str:
        values = f", probs={self.probs.tolist()}" if self.has_values else ""
        return f"{type(self).__name__}({self.n_trials}{values})"

    # --- compiled ---------------------------------------------------------------------------------------------------

    def accepts(self, value: float) -> bool:
        return value >= 0.0 and is_whole(value)

    def is_missing(self, y: FloatArray) -> bool:
        n_missing = 0
        for c in range(self.n_features):
            n_missing += is_nan(y[c])
        return n_missing > 0

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        if self.is_missing(y):
            return 0.0
        total = 0.0
        for c in range(self.n_features):
            if y[c] > 0.0:
                total += y[c] * log(theta[c]) if theta[c] > 0.0 else -inf
        return total

    def shared_log_density(self, theta: FloatArray, y: FloatArray) -> float:
        """The multinomial coefficient."""
        if self.is_missing(y):
            return 0.0
        n, total = 0.0, 0.0
        for c in range(self.n_features):
            n += y[c]
            total -= lgamma(y[c] + 1.0)
        return total + lgamma(n + 1.0)

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        missing = self.is_missing(y)
        s[0] = 1.0
        for c in range(self.n_features):
            s[1 + c] = theta[c] if missing else y[c]

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        for i in range(self.n_components):
            n_trials = 0.0
            for c in range(self.n_features):
                n_trials += S[i, 1 + c]
            if alive[i] > 0.0 and n_trials > 0.0:  # rows without a trial teach nothing
                total = 0.0
                for c in range(self.n_features):
                    theta[i, c] = max(S[i, 1 + c] / n_trials, RARE)
                    total += theta[i, c]
                for c in range(self.n_features):
                    theta[i, c] /= total

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        for c in range(self.n_features):
            gradient[c] = s[1 + c] / theta[c] if theta[c] > 0.0 else 0.0
