"""Geometric emissions: how many trials it took."""

from __future__ import annotations

from math import inf, log, log1p
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.compilable import is_whole
from hmmstream.emissions.base import RARE, IndependentFeatures


class Geometric(IndependentFeatures):
    """Numbers of trials until the first success, with its probability in each state and feature.

    The values are 1, 2, 3, …, as in NumPy and scipy: the trial that succeeds is counted.

    Parameters
    ----------
    probs : (m, d), or (m,) for one feature
        Probability of success, one over the mean: positive, at most 1.

    Examples
    --------
    >>> Geometric(probs=[0.8, 0.05]).moments()[0].tolist()
    [[1.25], [20.0]]
    """

    value_names = ("probs",)
    domain = "a number of trials: 1, 2, 3, …"
    value_bounds = ((0.0, 1.0),)
    probs: FloatArray

    def __init__(self, probs: ArrayLike | None = None) -> None:
        super().__init__(probs=probs)

    def check_values(self) -> None:
        if (self.probs <= 0.0).any() or (self.probs > 1.0).any():
            raise ValueError(f"probs must be positive and at most 1, got {self.probs.tolist()}")

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return rng.geometric(self.probs[states])

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return 1.0 / self.probs, (1.0 - self.probs) / self.probs**2

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.log(X)

    def accepts(self, value: float) -> bool:
        return value >= 1.0 and is_whole(value)

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        if theta[0] < 1.0:
            return log(theta[0]) + (y - 1.0) * log1p(-theta[0])
        return 0.0 if y == 1.0 else -inf

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        s[0] = y

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        s[0] = 1.0 / theta[0]

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        theta[0] = min(1.0 / max(s[0], 1.0), 1.0 - RARE)

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        gradient[0] = weight / theta[0] - ((s[0] - weight) / (1.0 - theta[0]) if theta[0] < 1.0 else 0.0)
