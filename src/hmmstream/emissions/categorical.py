"""Categorical emissions: one symbol out of a finite alphabet."""

from __future__ import annotations

from math import inf, log
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray, frozen, thresholds
from hmmstream.compilable import is_nan, is_whole
from hmmstream.emissions.base import RARE, Emission

MOST_CATEGORIES = 10_000  # that data alone can ask for


class Categorical(Emission):
    """Symbols 0, 1, …, n_categories - 1 with one probability for each state and symbol.

    Parameters
    ----------
    n_categories : int, not needed when ``probs`` are given
    probs : (m, n_categories)
        Rows sum to 1.

    Examples
    --------
    >>> Categorical(probs=[[0.9, 0.1], [0.2, 0.8]]).n_categories
    2
    """

    constants: ClassVar[tuple[str, ...]] = ("n_categories",)
    value_names = ("probs",)
    n_features = 1
    is_moderate = True
    probs: FloatArray

    def __init__(self, n_categories: int | None = None, probs: ArrayLike | None = None) -> None:
        if probs is not None:
            self.probs = frozen(probs, "probs")
            if self.probs.ndim != 2 or self.probs.size == 0:
                raise ValueError(f"probs must have shape (states, categories), got {np.shape(probs)}")
            if n_categories not in (None, self.probs.shape[1]):
                raise ValueError(f"probs have {self.probs.shape[1]} columns, but n_categories is {n_categories}")
            if (self.probs < 0.0).any() or not np.allclose(self.probs.sum(axis=1), 1.0, rtol=0.0, atol=1e-8):
                raise ValueError(f"each row of probs must be probabilities that sum to 1, got {self.probs.tolist()}")
            self.n_components, n_categories = self.probs.shape
        if n_categories is None or n_categories < 1:
            raise ValueError(f"n_categories must be a positive integer, got {n_categories}")
        self.n_categories = self.n_parameters = n_categories
        self.domain = f"one of the symbols 0, 1, …, {n_categories - 1}"
        self.n_statistics = 1 + n_categories

    @classmethod
    def for_data(cls, X: FloatArray) -> Self:
        largest = np.nanmax(np.where(np.isfinite(X), X, 0.0), initial=0.0)
        if largest >= MOST_CATEGORIES:
            raise ValueError(
                f"X holds the symbol {largest:g}: symbols are 0, 1, 2, …; for more than {MOST_CATEGORIES:,} of them, "
                "say so: emission=Categorical(n_categories=...)"
            )
        return cls(int(largest) + 1)

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.where(np.isnan(X), np.nan, (np.arange(self.n_categories) == X).astype(float))

    @property
    def specification(self) -> tuple[Any, ...]:
        return (self.n_categories,)

    def rows(self) -> FloatArray:
        return self.probs

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        return {"probs": rows}

    def sized(self, n_components: int, n_features: int) -> Self:
        return type(self)(probs=np.full((n_components, self.n_categories), 1.0 / self.n_categories))

    @property
    def sums_to_one(self) -> tuple[slice | IntArray, ...]:
        return (slice(None),)

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        return np.zeros_like(self.probs), np.ones_like(self.probs)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the indicator of each symbol: (m, n_categories). The mean is its probability."""
        return self.probs, self.probs * (1.0 - self.probs)

    def positions(self) -> FloatArray:
        return self.probs @ np.arange(self.n_categories)

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return (rng.random((len(states), 1)) >= thresholds(self.probs)[states]).sum(axis=1, keepdims=True)

    def accepts(self, value: float) -> bool:
        return 0.0 <= value < self.n_categories and is_whole(value)

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        if is_nan(y[0]):
            return 0.0
        probability = theta[int(y[0])]
        return log(probability) if probability > 0.0 else -inf

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        s[0] = 1.0
        for c in range(self.n_categories):
            if is_nan(y[0]):
                s[1 + c] = theta[c]
            else:
                s[1 + c] = 1.0 if y[0] == c else 0.0

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        for i in range(self.n_components):
            if alive[i] > 0.0:
                total = 0.0
                for c in range(self.n_categories):
                    theta[i, c] = max(S[i, 1 + c] / S[i, 0], RARE)
                    total += theta[i, c]
                for c in range(self.n_categories):
                    theta[i, c] /= total

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        for c in range(self.n_categories):
            gradient[c] = s[1 + c] / theta[c] if theta[c] > 0.0 else 0.0
