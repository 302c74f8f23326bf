"""Poisson emissions: counts."""

from __future__ import annotations

from math import inf, lgamma, log
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.compilable import is_whole
from hmmstream.emissions.base import RARE, IndependentFeatures


class Poisson(IndependentFeatures):
    """Counts with one rate for each state and feature.

    Parameters
    ----------
    rates : (m, d), or (m,) for one feature
        Mean count, not negative.

    Examples
    --------
    >>> Poisson(rates=[1.0, 6.5]).n_components
    2
    """

    value_names = ("rates",)
    domain = "a count: 0, 1, 2, …"
    value_bounds = ((0.0, inf),)
    rates: FloatArray

    def __init__(self, rates: ArrayLike | None = None) -> None:
        super().__init__(rates=rates)

    def check_values(self) -> None:
        if (self.rates < 0.0).any():
            raise ValueError(f"rates must not be negative, got {self.rates.tolist()}")

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return rng.poisson(self.rates[states])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.rates, self.rates

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.sqrt(X)

    def accepts(self, value: float) -> bool:
        return value >= 0.0 and is_whole(value)

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        if theta[0] > 0.0:
            return y * log(theta[0]) - theta[0] - lgamma(y + 1.0)
        return 0.0 if y == 0.0 else -inf

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        s[0] = y

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        s[0] = theta[0]

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        theta[0] = max(s[0], RARE)

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        gradient[0] = (s[0] / theta[0] if theta[0] > 0.0 else 0.0) - weight
