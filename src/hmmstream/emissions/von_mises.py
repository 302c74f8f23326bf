"""Von Mises emissions: angles."""

from __future__ import annotations

from math import atan2, cos, hypot, inf, log, pi, sin
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.compilable import compilable
from hmmstream.emissions.centred import CentredFeatures
from hmmstream.emissions.special import bessel, inverse_bessel_ratio

LARGEST_CONCENTRATION = 1e10  # that data can ask for: a standard deviation of 1e-5


@compilable
def unwound(y: float) -> float:
    """The angle, without the whole turns of a large one."""
    return y if abs(y) <= 2.0 * pi else atan2(sin(y), cos(y))


class VonMises(CentredFeatures):
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
        concentrations = theta[:, 1 : self.n_parameters : 2]
        collapsed = concentrations >= 1e-3 * LARGEST_CONCENTRATION  # up there, rounding errors move them to and fro
        return bool(collapsed.any())

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        sine = sin(0.5 * (unwound(y) - theta[0]))
        return -2.0 * theta[1] * sine * sine - bessel(theta[1])[0] - log(2.0 * pi)

    # The centre is an angle c, and the statistic of a value 1 - cos(y - c) and sin(y - c)

    def first_centres(self) -> FloatArray:
        return self.means

    def uncentred(self, theta: FloatArray, statistic: FloatArray) -> FloatArray:
        plain = self.translated(statistic, -self.centres(theta))
        plain[:, 1::2] = plain[:, :1] - plain[:, 1::2]  # cos y, not 1 - cos y
        return plain

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        angle = unwound(y) - theta[2]
        sine = sin(0.5 * angle)
        s[0] = 2.0 * sine * sine
        s[1] = sin(angle)

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        _, ratio, rest = bessel(theta[1])
        sine = sin(0.5 * (theta[0] - theta[2]))
        s[0] = rest + 2.0 * ratio * sine * sine
        s[1] = ratio * sin(theta[0] - theta[2])

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        turn = (theta[2] + atan2(s[1], 1.0 - s[0]) - theta[0]) / (2.0 * pi)
        theta[0] += 2.0 * pi * ((turn + 0.5) % 1.0 - 0.5)  # no jump by a whole turn: averages would not survive it
        ratio = min(hypot(1.0 - s[0], s[1]), 1.0)
        rest = (s[0] * (2.0 - s[0]) - s[1] * s[1]) / (1.0 + ratio)
        theta[1] = inverse_bessel_ratio(ratio, max(rest, 0.5 / LARGEST_CONCENTRATION))

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        to_mean = theta[0] - theta[2]
        sine, half = sin(to_mean), sin(0.5 * to_mean)
        cosine = cos(to_mean)
        gradient[0] = theta[1] * (s[1] * cosine - (weight - s[0]) * sine)
        gradient[1] = weight * (bessel(theta[1])[2] - 2.0 * half * half) - s[0] * cosine + s[1] * sine

    def feature_shift(self, weight: float, s: FloatArray) -> float:
        return atan2(s[1], weight - s[0])

    def feature_translate(self, weight: float, s: FloatArray, shift: float) -> None:
        sine, cosine, half = sin(shift), cos(shift), sin(0.5 * shift)
        along, across = s[0], s[1]
        s[0] = along * cosine + 2.0 * weight * half * half - across * sine
        s[1] = across * cosine - (weight - along) * sine
