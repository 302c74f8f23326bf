"""Gamma emissions: positive amounts."""

from __future__ import annotations

from math import exp, expm1, inf, log, log1p, pi
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.compilable import compilable
from hmmstream.emissions.centred import CentredFeatures
from hmmstream.emissions.special import inverse_log_minus_digamma, log_ratio, polygamma, stirling_remainder

# Shapes that data can ask for. The largest is a standard deviation of 1e-5 of the mean: a state with less has collapsed
# onto a point. The smallest is beyond what values from 1e-300 to 1e150 can ask for.
SMALLEST_SHAPE, LARGEST_SHAPE = 1e-5, 1e10
SMALLEST_MEAN = 1e-290  # the rate of the largest shape is finite
LARGEST_RATIO = 1e300  # of a value to the centre: what is larger is taken for this
SMALLEST_RATIO = 1e-300
LARGEST_CENTRE = 700.0
NEAR = 0.5  # of the centre: a mean that is no farther from it is known best by its distance


@compilable
def scale(centre: float) -> float:
    """What the centre is the logarithm of, and one over it finite."""
    return exp(min(max(centre, -LARGEST_CENTRE), LARGEST_CENTRE))


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
    n_feature_statistics = 3
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
        return self.shapes / self.rates, self.shapes / self.rates / self.rates

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

    # The centre is the logarithm of c, and the statistic of a value y is y/c, y/c - 1 and log(y/c). The first two tell
    # the same: one has all its digits where y is far below c, the other where it is close.

    def first_centres(self) -> FloatArray:
        return np.log(np.maximum(self.shapes / self.rates, SMALLEST_MEAN))

    def uncentred(self, theta: FloatArray, statistic: FloatArray) -> FloatArray:
        plain = np.empty((len(statistic), 1 + 2 * self.n_features))
        plain[:, 0], centres = statistic[:, 0], self.centres(theta)
        plain[:, 1::2] = np.exp(centres) * statistic[:, 1::3]
        plain[:, 2::2] = statistic[:, 3::3] + centres * statistic[:, :1]
        return plain

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        c = scale(theta[2])
        s[0] = min(y / c, LARGEST_RATIO)
        s[1] = min((y - c) / c, LARGEST_RATIO)
        s[2] = log_ratio(y, c, y - c)

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        self.feature_statistic(theta, theta[0] / theta[1], s)
        s[2] -= polygamma(theta[0])[0]

    def feature_shift(self, weight: float, s: FloatArray) -> float:
        excess = s[1] / weight
        return log1p(excess) if abs(excess) < NEAR else log(max(s[0] / weight, SMALLEST_RATIO))

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        ratio = 1.0 + s[1] if abs(s[1]) < NEAR else max(s[0], SMALLEST_RATIO)
        mean = max(scale(theta[2]) * ratio, SMALLEST_MEAN)
        spread = min(max(self.feature_shift(1.0, s) - s[2], 0.5 / LARGEST_SHAPE), 1.0 / SMALLEST_SHAPE)
        theta[0] = inverse_log_minus_digamma(spread)
        theta[1] = theta[0] / mean

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        c, mean = scale(theta[2]), theta[0] / theta[1]
        gradient[0] = s[2] + weight * (polygamma(theta[0])[0] - log_ratio(mean, c, mean - c))
        gradient[1] = weight * (mean - c) - c * s[1] if abs(mean - c) < NEAR * c else weight * mean - c * s[0]

    def feature_translate(self, weight: float, s: FloatArray, shift: float) -> None:
        half = exp(-0.5 * shift)  # the whole of it may be too large
        s[0] = min(s[0] * half * half, LARGEST_RATIO)
        s[1] = s[1] * half * half + weight * expm1(-shift) if abs(shift) < NEAR else s[0] - weight
        s[2] -= shift * weight
