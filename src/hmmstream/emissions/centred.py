"""The short form for families whose states may be narrow: each measures its statistic from a centre of its own.

How wide a state is, is a difference of moments. Of a state that is narrow next to its distance from the origin,
rounding would leave little of it. Measured from near the state's mean, its digits are kept.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.compilable import is_nan, workspace
from hmmstream.emissions.base import IndependentFeatures


class CentredFeatures(IndependentFeatures):
    """Independent features, as a subclass of ``IndependentFeatures`` describes them, with a centre.

    In ``feature_statistic``, ``feature_expectation``, ``feature_maximize`` and ``feature_gradient`` the centre of the
    feature stands in ``theta`` behind its parameters; there is no ``overall``, as states have centres of their own.
    ``uncentred`` gives the statistic as the paper would write it.
    """

    compiled_methods: ClassVar[tuple[str, ...]] = ("feature_shift", "feature_translate", "gather_feature")
    constants: ClassVar[tuple[str, ...]] = ("n_feature_columns",)
    is_centred = True

    def __init__(self, **values: ArrayLike | None) -> None:
        super().__init__(**values)
        self.n_feature_columns = self.n_feature_parameters + 1
        self.n_cached = self.n_features

    @abstractmethod
    def first_centres(self) -> FloatArray:
        """Where each state and feature is measured from at first, by its values: an array of shape (m, d)."""

    def theta(self) -> FloatArray:
        theta = super().theta()
        theta[:, self.n_parameters :] = self.first_centres()
        return theta

    def centres(self, theta: FloatArray) -> FloatArray:
        return theta[:, self.n_parameters :]

    def layout(self) -> tuple[IntArray, IntArray]:
        parameters, statistics = super().layout()
        centres = np.arange(self.n_parameters, self.width)[:, np.newaxis]
        return np.hstack([parameters, centres]), statistics

    @abstractmethod
    def uncentred(self, theta: FloatArray, statistic: FloatArray) -> FloatArray: ...

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "n_feature_columns" not in state:
            raise ValueError(
                f"a pickle from before {type(self).__name__} had centres, in which what was learned is measured "
                "otherwise: an earlier hmmstream can go on with it"
            )
        super().__setstate__(state)

    # --- compiled ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def feature_shift(self, weight: float, s: FloatArray) -> float:
        """How far the mean of a feature is from its centre; ``s`` is a sum over rows of this ``weight``."""

    @abstractmethod
    def feature_translate(self, weight: float, s: FloatArray, shift: float) -> None:
        """Express ``s`` about a centre moved by ``shift``."""

    def gather_feature(self, theta: FloatArray, a: int, own: FloatArray) -> None:
        """Copy the parameters of feature ``a`` and its centre into ``own``."""
        for c in range(self.n_feature_parameters):
            own[c] = theta[a * self.n_feature_parameters + c]
        own[self.n_feature_parameters] = theta[self.n_parameters + a]

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        own = workspace(self.n_feature_columns)
        s[0] = 1.0
        for a in range(self.n_features):
            start = 1 + a * self.n_feature_statistics
            self.gather_feature(theta, a, own)
            if is_nan(y[a]):
                self.feature_expectation(own, s[start : start + self.n_feature_statistics])
            else:
                self.feature_statistic(own, y[a], s[start : start + self.n_feature_statistics])

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        own = workspace(self.n_feature_columns)
        mean = workspace(self.n_statistics)
        for i in range(self.n_components):
            if alive[i] > 0.0:
                for c in range(1, self.n_statistics):
                    mean[c] = S[i, c] / S[i, 0]
                for a in range(self.n_features):
                    start = 1 + a * self.n_feature_statistics
                    s = mean[start : start + self.n_feature_statistics]
                    self.gather_feature(theta[i], a, own)
                    self.feature_maximize(s, s, own)
                    for c in range(self.n_feature_parameters):
                        theta[i, a * self.n_feature_parameters + c] = own[c]

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        own = workspace(self.n_feature_columns)
        for a in range(self.n_features):
            first = a * self.n_feature_parameters
            start = 1 + a * self.n_feature_statistics
            self.gather_feature(theta, a, own)
            self.feature_gradient(
                own,
                s[0],
                s[start : start + self.n_feature_statistics],
                gradient[first : first + self.n_feature_parameters],
            )

    def move_centre(self, theta: FloatArray, S: FloatArray, shift: FloatArray) -> None:
        for a in range(self.n_features):
            start = 1 + a * self.n_feature_statistics
            old = theta[self.n_parameters + a]
            theta[self.n_parameters + a] = old + self.feature_shift(S[0], S[start : start + self.n_feature_statistics])
            shift[a] = theta[self.n_parameters + a] - old  # as rounded, so that the statistics stay true to the centre

    def translate(self, s: FloatArray, shift: FloatArray) -> None:
        for a in range(self.n_features):
            start = 1 + a * self.n_feature_statistics
            self.feature_translate(s[0], s[start : start + self.n_feature_statistics], shift[a])
