"""Bernoulli emissions: yes or no."""

from __future__ import annotations

from math import inf, log, log1p
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray
from hmmstream.emissions.base import RARE, IndependentFeatures


class Bernoulli(IndependentFeatures):
    """Features that are 0 or 1, each with its probability of 1 in each state.

    Parameters
    ----------
    probs : (m, d), or (m,) for one feature

    Examples
    --------
    >>> Bernoulli(probs=[[0.1, 0.9], [0.6, 0.2]]).n_features
    2
    """

    value_names = ("probs",)
    domain = "0 or 1"
    value_bounds = ((0.0, 1.0),)
    probs: FloatArray

    def __init__(self, probs: ArrayLike | None = None) -> None:
        super().__init__(probs=probs)

    def check_values(self) -> None:
        if (self.probs < 0.0).any() or (self.probs > 1.0).any():
            raise ValueError(f"probs must lie between 0 and 1, got {self.probs.tolist()}")

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        return (rng.random((len(states), self.n_features)) < self.probs[states]).astype(np.int64)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.probs, self.probs * (1.0 - self.probs)

    def accepts(self, value: float) -> bool:
        return value == 0.0 or value == 1.0

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        if y == 1.0:
            return log(theta[0]) if theta[0] > 0.0 else -inf
        return log1p(-theta[0]) if theta[0] < 1.0 else -inf

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        s[0] = y

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        s[0] = theta[0]

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        theta[0] = min(max(s[0], RARE), 1.0 - RARE)

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        yes = s[0] / theta[0] if theta[0] > 0.0 else 0.0
        gradient[0] = yes - ((weight - s[0]) / (1.0 - theta[0]) if theta[0] < 1.0 else 0.0)
