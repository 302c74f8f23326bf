"""Von Mises emissions: angles."""

from __future__ import annotations

from math import atan2, cos, hypot, inf, log, pi, sin
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.emissions.base import IndependentFeatures
from hmmstream.emissions.special import bessel, inverse_bessel_ratio

LARGEST_CONCENTRATION = 1e10  # that data can ask for: a standard deviation of 1e-5


class VonMises(IndependentFeatures):
    """Angles in radians, with a mean direction and a concentration about it for each state and feature.

    Any real number is an angle: those that differ by 2π are the same.

    Parameters
    ----------
    means, concentrations : (m, d), or (m,) for one feature
        Concentrations are not negative: at 0 all directions are equally likely, and a large one is one over the
        variance.

    Examples
    --------
    >>> VonMises(means=[0.0, 3.1], concentrations=[2.0, 30.0]).n_components
    2
    """

    value_names = ("means", "concentrations")
    n_feature_statistics = 2
    domain = "an angle in radians"
    value_bounds = ((-inf, inf), (0.0, inf))
    means: FloatArray
    concentrations: FloatArray

    def __init__(self, means: ArrayLike | None = None, concentrations: ArrayLike | None = None) -> None:
        super().__init__(means=means, concentrations=concentrations)

    def check_values(self) -> None:
        if (self.concentrations < 0.0).any():
            raise ValueError(f"concentrations must not be negative, got {self.concentrations.tolist()}")

    def with_rows(self, rows: FloatArray) -> Self:
        rows = rows.copy()
        means = rows[:, ::2]
        means -= 2.0 * pi * np.round(means / (2.0 * pi))  # what the M-step has wound up
        return super().with_rows(rows)

    def positions(self) -> FloatArray:
        return self.means[:, 0]

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return rng.vonmises(self.means[states], self.concentrations[states])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the cosine, then of the sine of each feature: (m, 2 d). Angles have no mean."""
        kappa = self.concentrations
        first = np.vectorize(lambda x: bessel(x)[1])(kappa)
        second = 1.0 - 2.0 * np.divide(first, kappa, out=np.full_like(first, 0.5), where=kappa > 0.0)  # I₂ / I₀
        mean = np.hstack([first * np.cos(self.means), first * np.sin(self.means)])
        twice = second * np.cos(2.0 * self.means)
        return mean, 0.5 + 0.5 * np.hstack([twice, -twice]) - mean**2

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.hstack([np.cos(X), np.sin(X)])

    def is_limited(self, theta: FloatArray) -> bool:
        concentrations = theta[:, 1::2]
        collapsed = concentrations >= 1e-3 * LARGEST_CONCENTRATION  # up there, rounding errors move them to and fro
        return bool(collapsed.any())

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        # The statistic knows y up to whole turns only: so must the density, to the last digit
        angle = y if abs(y) <= 2.0 * pi else atan2(sin(y), cos(y))
        sine = sin(0.5 * (angle - theta[0]))
        return -2.0 * theta[1] * sine * sine - bessel(theta[1])[0] - log(2.0 * pi)

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        s[0] = cos(y)
        s[1] = sin(y)

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        ratio = bessel(theta[1])[1]
        s[0] = ratio * cos(theta[0])
        s[1] = ratio * sin(theta[0])

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        turn = (atan2(s[1], s[0]) - theta[0]) / (2.0 * pi)
        theta[0] += 2.0 * pi * ((turn + 0.5) % 1.0 - 0.5)  # no jump by a whole turn: averages would not survive it
        theta[1] = inverse_bessel_ratio(min(hypot(s[0], s[1]), 1.0 - 0.5 / LARGEST_CONCENTRATION))

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        cosine, sine = cos(theta[0]), sin(theta[0])
        gradient[0] = theta[1] * (s[1] * cosine - s[0] * sine)
        gradient[1] = s[0] * cosine + s[1] * sine - weight * bessel(theta[1])[1]
