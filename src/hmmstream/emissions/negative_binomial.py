"""Negative binomial emissions: counts that vary more than Poisson's.

A count of mean μ and shape r is a Poisson count whose rate λ was drawn from the gamma distribution of that mean and
shape. Its variance is μ + μ²/r; as r grows it becomes a Poisson count.
"""

from __future__ import annotations

from math import inf, log, log1p, pi
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import BoolArray, FloatArray, frozen
from hmmstream.compilable import is_whole
from hmmstream.emissions.base import RARE, IndependentFeatures
from hmmstream.emissions.special import (
    digamma,
    inverse_log_minus_digamma,
    log_ratio,
    polygamma,
    stirling_remainder,
)

SMALLEST_SHAPE, LARGEST_SHAPE = 1e-5, 1e8  # that data can ask for


class NegativeBinomial(IndependentFeatures):
    """Counts with a mean and a shape for each state and feature: their variance is mean + mean² / shape.

    Parameters
    ----------
    shapes : (m, d), or (m,) for one feature, or one number for all
        Positive.
    means : (m, d), or (m,) for one feature
        Positive.
    learn_shape : bool
        Whether to learn the shapes, or to keep them as they are. ``NegativeBinomial(shapes=2.0, learn_shape=False)`` is
        a specification: this shape for all states and features, means to be found.

    Examples
    --------
    >>> NegativeBinomial(shapes=[2.0, 5.0], means=[1.0, 20.0]).moments()[1].tolist()
    [[1.5], [100.0]]
    >>> NegativeBinomial(shapes=1.5, learn_shape=False).has_values
    False
    """

    constants: ClassVar[tuple[str, ...]] = ("learn_shape",)
    value_names = ("shapes", "means")
    domain = "a count: 0, 1, 2, …"
    value_bounds = ((0.0, inf), (0.0, inf))
    shapes: FloatArray
    means: FloatArray

    def __init__(
        self, shapes: ArrayLike | None = None, means: ArrayLike | None = None, learn_shape: bool = True
    ) -> None:
        self.learn_shape = bool(learn_shape)
        self.n_feature_statistics = 3 if self.learn_shape else 1
        self.common_shape: float | None = None
        if shapes is not None and np.ndim(shapes) == 0:
            self.common_shape = float(frozen(shapes, "shapes"))
            shapes = None if means is None else np.full(np.shape(means), self.common_shape)
        self.is_separable = self.learn_shape or self.common_shape is not None  # else nothing says what another has
        super().__init__(shapes=shapes, means=means)
        if self.common_shape is not None and self.common_shape <= 0.0:
            raise ValueError(f"shapes must be positive, got {self.common_shape}")
        if not self.has_values and self.learn_shape == (self.common_shape is not None):
            raise ValueError("without means, shapes must be one number to keep (learn_shape=False), or left out")

    def check_values(self) -> None:
        for name in self.value_names:
            if (getattr(self, name) <= 0.0).any():
                raise ValueError(f"{name} must be positive, got {getattr(self, name).tolist()}")

    @property
    def specification(self) -> tuple[Any, ...]:
        if self.learn_shape:
            return ()
        kept = np.unique(self.shapes) if self.has_values else [self.common_shape]
        return (kept[0] if len(kept) == 1 else self.shapes.tolist(), None, False)

    def arguments(self) -> dict[str, Any]:
        said = super().arguments()
        return said if self.learn_shape or self.common_shape is None else {**said, "shapes": self.common_shape}

    def sized(self, n_components: int, n_features: int) -> Self:
        shape = 1.0 if self.common_shape is None else self.common_shape
        return type(self)(shape, np.ones((n_components, n_features)), self.learn_shape)

    def is_fixed(self) -> BoolArray:
        mask = super().is_fixed()
        mask[:, ::2] = not self.learn_shape
        return mask

    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        shapes = self.shapes[states]
        return rng.poisson(rng.gamma(shapes, self.means[states] / shapes))

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self.means, self.means + self.means**2 / self.shapes

    def coordinates(self, X: FloatArray) -> FloatArray:
        return np.log1p(X)

    def is_limited(self, theta: FloatArray) -> bool:
        shapes = theta[:, ::2]
        return self.learn_shape and bool((shapes >= 1e-3 * LARGEST_SHAPE).any())

    def __repr__(self) -> str:
        shapes = self.shapes.tolist() if self.has_values else self.common_shape
        values = [] if shapes is None else [f"shapes={shapes}"]
        values += [f"means={self.means.tolist()}"] if self.has_values else []
        values += [] if self.learn_shape else ["learn_shape=False"]
        return f"{type(self).__name__}({', '.join(values)})"

    # --- compiled ---------------------------------------------------------------------------------------------------

    def accepts(self, value: float) -> bool:
        return value >= 0.0 and is_whole(value)

    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        # Stirling's formula is taken out, and what is left is free of differences of large numbers: large shapes and
        # counts lose no digits
        shape, mean = theta[0], theta[1]
        if y == 0.0:
            return -shape * log1p(mean / shape)
        excess = y - mean
        deviance = shape * log_ratio(mean + shape, y + shape, -excess)
        deviance += y * log_ratio(y * (mean + shape), mean * (y + shape), shape * excess)
        remainder = stirling_remainder(y + shape) - stirling_remainder(shape) - stirling_remainder(y)
        return remainder - deviance - 0.5 * log(2.0 * pi * y * (1.0 + y / shape))

    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        # The count, and if the shape is learned, what is expected of the rate λ behind it, and of log λ
        s[0] = y
        if self.learn_shape:
            scale = theta[1] / (theta[0] + theta[1])
            s[1] = (theta[0] + y) * scale
            s[2] = digamma(theta[0] + y) + log(scale)

    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        s[0] = theta[1]
        if self.learn_shape:
            s[1] = theta[1]
            s[2] = log(theta[1]) - polygamma(theta[0])[0]

    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        # First the shape that makes the rates λ most likely, with whatever mean. Then the mean that makes the counts
        # most likely, which does not depend on the shape: the likelihood rises twice, and the mean need not creep.
        if self.learn_shape:
            spread = log(max(s[1], RARE * SMALLEST_SHAPE)) - s[2]
            theta[0] = inverse_log_minus_digamma(min(max(spread, 0.5 / LARGEST_SHAPE), 1.0 / SMALLEST_SHAPE))
        theta[1] = max(s[0], RARE)

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        shape, mean = theta[0], theta[1]
        excess = s[0] - weight * mean
        gradient[0] = 0.0
        if self.learn_shape:
            gradient[0] = s[2] + weight * (polygamma(shape)[0] - log(mean)) - excess / (shape + mean)
        gradient[1] = excess * shape / (mean * (shape + mean))
