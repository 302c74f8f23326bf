"""Exponential emissions: waiting times and other positive amounts."""

from __future__ import annotations

from math import inf, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.emissions.base import RARE, IndependentFeatures

SMALLEST_MEAN = 1e-250


class Exponential(IndependentFeatures):
    """Waiting times with one rate for each state and feature.

    Parameters
    ----------
    rates : (m, d), or (m,) for one feature
        One over the mean, positive.

    Examples
    --------
    >>> Exponential(rates=[0.1, 3.0]).n_features
    1
    """

    value_names = ("rates",)
    domain = "a number that is not negative"
    value_bounds = ((0.0, inf),)
    rates: FloatArray

    def __init__(self, rates: ArrayLike | None = None) -> None:
        super().__init__(rates=rates)

    def check_values(self) -> None:
        if (self.rates <= 0.0).any():
            raise ValueError(f"rates must be positive, got {self.rates.tolist()}")

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return rng.exponential(1.0 / self.rates[states])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return 1.0 / self.rates, (1.0 / self.rates) ** 2

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.log(np.maximum(X, SMALLEST_MEAN))

    def is_limited(self, theta: FloatArray) -> bool:
        return bool(theta.max() * RARE >= 1e-3 * theta.min())

    def accepts(self, value: float) -> bool:
        return value >= 0.0

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        return log(theta[0]) - theta[0] * y

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        s[0] = y

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        s[0] = 1.0 / theta[0]

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        theta[0] = 1.0 / max(s[0], RARE * overall[0], SMALLEST_MEAN)

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        gradient[0] = weight / theta[0] - s[0]
