"""Gamma emissions: positive amounts."""

from __future__ import annotations

from math import exp, expm1, inf, log, log1p, pi
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.emissions.centred import CentredFeatures
from hmmstream.emissions.special import inverse_log_minus_digamma, log_ratio, polygamma, stirling_remainder

# Shapes that data can ask for. The largest is a standard deviation of 1e-5 of the mean: a state with less has collapsed
# onto a point. The smallest is beyond what values from 1e-300 to 1e150 can ask for.
SMALLEST_SHAPE, LARGEST_SHAPE = 1e-5, 1e10
SMALLEST_MEAN = 1e-290  # the rate of the largest shape is finite
LARGEST_RATIO = 1e300  # of a value to the centre: what is larger is taken for this
LEAST_RATIO = 2e-16  # of a mean to the centre: rounding hides what is smaller
LONGEST_SHIFT = 300.0  # of the centre, which is a logarithm, at a time


class Gamma(CentredFeatures):
    """Positive amounts, such as rainfall or durations, with a shape and a rate for each state and feature.

    Parameters
    ----------
    shapes, rates : (m, d), or (m,) for one feature
        Positive. The mean is shape / rate, the variance shape / rate².

    Examples
    --------
    >>> Gamma(shapes=[2.0, 9.0], rates=[1.0, 0.5]).moments()[0].tolist()
    [[2.0], [18.0]]
    """

    value_names = ("shapes", "rates")
    n_feature_statistics = 2
    domain = "a positive number"
    value_bounds = ((0.0, inf), (0.0, inf))
    shapes: FloatArray
    rates: FloatArray

    def __init__(self, shapes: ArrayLike | None = None, rates: ArrayLike | None = None) -> None:
        super().__init__(shapes=shapes, rates=rates)

    def check_values(self) -> None:
        for name in self.value_names:
            if (getattr(self, name) <= 0.0).any():
                raise ValueError(f"{name} must be positive, got {getattr(self, name).tolist()}")

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return rng.gamma(self.shapes[states], 1.0 / self.rates[states])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.shapes / self.rates, self.shapes / self.rates**2

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.log(X)

    def is_limited(self, theta: FloatArray) -> bool:
        shapes, rates = theta[:, : self.n_parameters : 2], theta[:, 1 : self.n_parameters : 2]
        collapsed = shapes >= 1e-3 * LARGEST_SHAPE  # up there, rounding errors move them to and fro
        return bool((collapsed | (shapes / rates <= 1.001 * SMALLEST_MEAN)).any())

    def accepts(self, value: float) -> bool:
        return value > 0.0

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        # In terms of y / mean, and with Stirling's formula taken out: large shapes lose no digits
        shape, mean = theta[0], theta[0] / theta[1]
        excess = y - mean
        deviance = log_ratio(y, mean, excess) - excess / mean
        return shape * deviance + 0.5 * log(shape / (2.0 * pi)) - stirling_remainder(shape) - log(y)

    # The centre is the logarithm of c, and the statistic of a value 1 - y/c and log(y/c)

    def first_centres(self) -> FloatArray:
        return np.log(np.maximum(self.shapes / self.rates, SMALLEST_MEAN))

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        c = exp(theta[2])
        s[0] = max((c - y) / c, -LARGEST_RATIO)
        s[1] = log_ratio(y, c, y - c)

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        self.feature_statistic(theta, theta[0] / theta[1], s)
        s[1] -= polygamma(theta[0])[0]

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        lack = min(s[0], 1.0 - LEAST_RATIO)
        mean = max(exp(theta[2]) * (1.0 - lack), SMALLEST_MEAN)
        spread = min(max(log1p(-lack) - s[1], 0.5 / LARGEST_SHAPE), 1.0 / SMALLEST_SHAPE)
        theta[0] = inverse_log_minus_digamma(spread)
        theta[1] = theta[0] / mean

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        c, mean = exp(theta[2]), theta[0] / theta[1]
        gradient[0] = s[1] + weight * (polygamma(theta[0])[0] - log_ratio(mean, c, mean - c))
        gradient[1] = weight * (mean - c) + c * s[0]

    def feature_shift(self, weight: float, s: FloatArray) -> float:
        return min(max(log1p(-min(s[0] / weight, 1.0 - LEAST_RATIO)), -LONGEST_SHIFT), LONGEST_SHIFT)

    def feature_translate(self, weight: float, s: FloatArray, shift: float) -> None:
        s[0] = s[0] * exp(-shift) - weight * expm1(-shift)
        s[1] -= shift * weight
