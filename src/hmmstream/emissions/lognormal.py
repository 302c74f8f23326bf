"""Log-normal emissions: positive amounts whose logarithms are normally distributed."""

from __future__ import annotations

from math import inf, log, pi
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.emissions.base import IndependentFeatures

RELATIVE_FLOOR = 1e-12  # of the overall variance of the logarithms
ROUNDING = 1e-14  # of the mean square of the logarithms, from which the variance is a difference


class LogNormal(IndependentFeatures):
    """Positive amounts, with the mean and the variance of their logarithm in each state and feature.

    Parameters
    ----------
    means, variances : (m, d), or (m,) for one feature
        Of the logarithm. Variances are positive.

    Examples
    --------
    >>> LogNormal(means=[0.0, 3.0], variances=[0.5, 0.1]).n_components
    2
    """

    value_names = ("means", "variances")
    n_feature_statistics = 2
    domain = "a positive number"
    value_bounds = ((-inf, inf), (0.0, inf))
    means: FloatArray
    variances: FloatArray

    def __init__(self, means: ArrayLike | None = None, variances: ArrayLike | None = None) -> None:
        super().__init__(means=means, variances=variances)

    def check_values(self) -> None:
        if (self.variances <= 0.0).any():
            raise ValueError(f"variances must be positive, got {self.variances.tolist()}")

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return rng.lognormal(self.means[states], np.sqrt(self.variances[states]))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        mean = np.exp(self.means + 0.5 * self.variances)
        return mean, np.expm1(self.variances) * mean**2

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.log(X)

    def is_limited(self, theta: FloatArray) -> bool:
        means, variances = theta[:, ::2], theta[:, 1::2]
        spread = variances.max(axis=0) + np.ptp(means, axis=0) ** 2
        square = (means**2 + variances).max(axis=0)
        floor = np.maximum(RELATIVE_FLOOR * spread, ROUNDING * (1.0 + square))
        return bool((variances <= 1e3 * floor).any())  # down there, rounding errors move them to and fro

    def accepts(self, value: float) -> bool:
        return value > 0.0

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        z = log(y) - theta[0]
        return -0.5 * (z * z / theta[1] + log(2.0 * pi * theta[1])) - log(y)

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        s[0] = log(y)
        s[1] = s[0] * s[0]

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        s[0] = theta[0]
        s[1] = theta[0] * theta[0] + theta[1]

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        spread = overall[1] - overall[0] * overall[0]
        floor = max(RELATIVE_FLOOR * spread, ROUNDING * (1.0 + abs(overall[1])))
        theta[0] = s[0]
        theta[1] = max(s[1] - s[0] * s[0], floor)

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        deviation = s[0] - weight * theta[0]
        square = s[1] - theta[0] * (s[0] + deviation)
        gradient[0] = deviation / theta[1]
        gradient[1] = 0.5 * (square / theta[1] - weight) / theta[1]
