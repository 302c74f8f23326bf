"""Switching regression: a response that depends on inputs, in each state in its own way."""

from __future__ import annotations

from math import log, pi
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray, frozen, is_integer, mean_and_variance
from hmmstream.compilable import is_nan, workspace
from hmmstream.emissions.base import Emission
from hmmstream.emissions.gaussian import LARGEST_MEAN, RELATIVE_FLOOR, SMALLEST_VARIANCE, Gaussian


class LinearRegression(Emission):
    """A response that is linear in the inputs, plus normal noise: in each state another regression.

    A row of X holds the inputs and, in its last column, the response. Nothing is said about the distribution of the
    inputs: the density is that of the response, given them. A row of which anything is missing is a missing row. There
    is no forecast of a response without inputs: it is NaN.

    Parameters
    ----------
    n_inputs : int, not needed when values are given
    coefficients : (m, n_inputs), or (m,) for one input
    intercepts : (m,)
    variances : (m,)
        Of the response, given the inputs.

    Examples
    --------
    >>> regimes = LinearRegression(coefficients=[[1.0], [-2.0]], intercepts=[0.0, 3.0], variances=[0.1, 0.1])
    >>> regimes.sample_responses([[10.0], [10.0]], [0, 1], random_state=0).round().tolist()
    [10.0, -17.0]
    """

    # The regression is read off the joint moments of inputs and response, which a Gaussian family keeps, centres and
    # floors included: in whitened coordinates the last one is the residual. A row of theta: coefficients, intercept,
    # variance | precision, log-normaliser, and the row of that family.
    compiled_methods: ClassVar[tuple[str, ...]] = ("is_incomplete",)
    constants: ClassVar[tuple[str, ...]] = ("n_inputs", "joint", "intercept", "variance", "precision", "joint_at")
    value_names = ("coefficients", "intercepts", "variances")
    remembered: ClassVar[tuple[str, ...]] = ("input_means",)
    is_centred = True
    joint: Gaussian

    def __init__(
        self,
        n_inputs: int | None = None,
        coefficients: ArrayLike | None = None,
        intercepts: ArrayLike | None = None,
        variances: ArrayLike | None = None,
    ) -> None:
        values = [coefficients, intercepts, variances]
        if any(value is not None for value in values):
            if coefficients is None or intercepts is None or variances is None:
                raise ValueError("give coefficients, intercepts and variances, or none of them")
            n_inputs = self._set_values(n_inputs, coefficients, intercepts, variances)
        if n_inputs is None or not is_integer(n_inputs) or n_inputs < 1:
            raise ValueError(f"n_inputs must be a positive integer, got {n_inputs!r}")
        self.n_inputs = n_inputs
        self.n_features = n_inputs + 1

    def _set_values(
        self, n_inputs: int | None, coefficients: ArrayLike, intercepts: ArrayLike, variances: ArrayLike
    ) -> int:
        self.coefficients = frozen(coefficients, "coefficients")
        if self.coefficients.ndim == 1:
            self.coefficients = self.coefficients[:, np.newaxis]
        if self.coefficients.ndim != 2 or self.coefficients.size == 0:
            raise ValueError(f"coefficients must have shape (states, inputs), got {np.shape(coefficients)}")
        m, k = self.coefficients.shape
        if n_inputs not in (None, k):
            raise ValueError(f"coefficients have {k} columns, but n_inputs is {n_inputs}")
        self.intercepts, self.variances = frozen(intercepts, "intercepts"), frozen(variances, "variances")
        for name in ("intercepts", "variances"):
            if getattr(self, name).shape != (m,):
                raise ValueError(f"{name} must have shape ({m},), one for each state, got {getattr(self, name).shape}")
        if not ((self.variances >= SMALLEST_VARIANCE) & (self.variances <= 1.0 / SMALLEST_VARIANCE)).all():
            raise ValueError(f"variances must be positive, got {self.variances.tolist()}")
        if max(abs(self.intercepts).max(), abs(self.coefficients).max()) > LARGEST_MEAN:
            raise ValueError(f"coefficients and intercepts must not be larger than {LARGEST_MEAN:g}")
        self.n_components = m
        self.input_means = np.zeros((m, k))  # where the inputs are, once they have been seen: no digits are lost there
        self.joint = Gaussian("full", np.zeros((m, k + 1)), np.tile(np.eye(k + 1), (m, 1, 1)))
        self.intercept, self.variance = k, k + 1
        self.precision = self.n_parameters = k + 2
        self.joint_at = self.n_parameters + 2
        self.n_cached = 2 + self.joint.width
        self.n_statistics = self.joint.n_statistics
        return k

    # --- seen from Python -------------------------------------------------------------------------------------------

    @property
    def specification(self) -> tuple[Any, ...]:
        return (self.n_inputs,)

    def rows(self) -> FloatArray:
        return np.column_stack([self.coefficients, self.intercepts, self.variances])

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        return {
            "coefficients": rows[:, : self.n_inputs],
            "intercepts": rows[:, self.intercept],
            "variances": rows[:, self.variance],
        }

    def with_theta(self, theta: FloatArray) -> Self:
        other = super().with_theta(theta)
        other.input_means = theta[:, self.joint_at : self.joint_at + self.n_inputs].copy()
        return other

    def sized(self, n_components: int, n_features: int) -> Self:
        if n_features != self.n_features:
            raise ValueError(
                f"X has {n_features} columns, but LinearRegression expects {self.n_inputs} input(s) and the response"
            )
        values = np.zeros((n_components, self.n_inputs)), np.zeros(n_components), np.ones(n_components)
        return type(self)(self.n_inputs, *values)

    def coordinates(self, X: FloatArray) -> FloatArray:
        """Residuals of one regression for all data, and their products with the inputs.

        States whose intercepts or slopes differ are in different places there.
        """
        mean, variance = mean_and_variance(X, LARGEST_MEAN)
        Z = (X - mean) / np.sqrt(np.maximum(variance, SMALLEST_VARIANCE))
        complete = Z[~np.isnan(Z).any(axis=1)]
        slopes = np.linalg.lstsq(complete[:, :-1], complete[:, -1], rcond=1e-6)[0] if len(complete) else 0.0
        residuals = Z[:, -1:] - (Z[:, :-1] * slopes).sum(axis=1, keepdims=True)
        return np.hstack([residuals, residuals * Z[:, :-1]])

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        low, high = super().bounds()
        low[:, self.variance] = 0.0
        return low, high

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """NaN: what will be observed depends on inputs that nobody knows."""
        unknown = np.full((self.n_components, self.n_features), np.nan)
        return unknown, unknown

    def positions(self) -> FloatArray:
        return self.intercepts

    def sample(self, states: Any, rng: np.random.Generator) -> FloatArray:
        """Inputs from a standard normal distribution, and responses to them."""
        inputs = rng.standard_normal((len(states), self.n_inputs))
        return np.column_stack([inputs, self.sample_responses(inputs, states, rng)])

    def sample_responses(
        self, inputs: ArrayLike, states: ArrayLike, random_state: int | np.random.Generator | None = None
    ) -> FloatArray:
        """Draw the response to each row of ``inputs`` in the state of that row: (n,)."""
        rows, at = np.asarray(inputs, dtype=np.float64), np.asarray(states)
        if rows.ndim != 2 or rows.shape != (len(at), self.n_inputs):
            raise ValueError(f"inputs must have shape ({len(at)}, {self.n_inputs}), a row a state, got {rows.shape}")
        noise = np.random.default_rng(random_state).standard_normal(len(rows))
        line = self.intercepts[at] + (self.coefficients[at] * rows).sum(axis=1)
        return np.asarray(line + np.sqrt(self.variances[at]) * noise)

    def theta(self) -> FloatArray:
        theta = np.hstack([np.zeros((self.n_components, self.joint_at)), self.joint.theta()])
        theta[:, : self.n_parameters] = self.rows()
        theta[:, self.joint_at + self.joint.floor :] = RELATIVE_FLOOR * self.variances.max()
        self._place(theta, self.input_means)
        self.prepare(theta)
        return theta

    def _place(self, theta: FloatArray, inputs: FloatArray) -> None:
        """Measure from these inputs, and from the response to be expected there."""
        own = theta[:, self.joint_at :]
        own[:, : self.n_inputs] = inputs
        response = theta[:, self.intercept] + (theta[:, : self.n_inputs] * inputs).sum(axis=1)
        own[:, self.n_inputs] = np.clip(response, -LARGEST_MEAN, LARGEST_MEAN)
        centre = self.joint.centre
        own[:, centre : centre + self.n_features] = own[:, : self.n_features]

    @property
    def limits(self) -> slice | IntArray:
        return slice(self.joint_at + self.joint.floor, None)

    def limit(self, X: FloatArray, theta: FloatArray) -> None:
        self.joint.limit(X, theta[:, self.joint_at :])
        floor = theta[:, self.joint_at + self.joint.floor + self.n_inputs]
        theta[:, self.variance] = np.maximum(theta[:, self.variance], floor)
        mean, _ = mean_and_variance(X, LARGEST_MEAN)
        self._place(theta, np.tile(mean[: self.n_inputs], (self.n_components, 1)))
        self.prepare(theta)

    def is_limited(self, theta: FloatArray) -> bool:
        return self.joint.is_limited(theta[:, self.joint_at :])

    def expected_statistic(self, theta: FloatArray) -> FloatArray:
        """For inputs of variance 1 about where they have been seen: nothing is said about their distribution."""
        offsets = theta[:, self.joint_at : self.joint_at + self.n_features] - self.centres(theta)
        slopes = theta[:, : self.n_inputs]
        squares = np.tile(np.eye(self.n_features), (self.n_components, 1, 1))
        squares[:, -1, :-1] = slopes
        squares[:, -1, -1] = (slopes**2).sum(axis=1) + theta[:, self.variance]
        squares += offsets[:, :, np.newaxis] * offsets[:, np.newaxis]
        a, b = np.tril_indices(self.n_features)
        return np.hstack([np.ones((self.n_components, 1)), offsets, squares[:, a, b]])

    def centres(self, theta: FloatArray) -> FloatArray:
        return self.joint.centres(theta[:, self.joint_at :])

    def __repr__(self) -> str:
        return super().__repr__() if self.has_values else f"{type(self).__name__}({self.n_inputs})"

    # --- compiled ---------------------------------------------------------------------------------------------------

    def is_incomplete(self, y: FloatArray) -> bool:
        """Whether anything is missing."""
        n_missing = 0
        for a in range(self.n_features):
            n_missing += is_nan(y[a])
        return n_missing > 0

    def is_missing(self, y: FloatArray) -> bool:
        return self.is_incomplete(y)

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        if self.is_incomplete(y):
            return 0.0
        residual = y[self.n_inputs] - theta[self.joint_at + self.n_inputs]
        for b in range(self.n_inputs):
            residual -= theta[b] * (y[b] - theta[self.joint_at + b])
        return theta[self.precision + 1] - 0.5 * residual * residual * theta[self.precision]

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        if self.is_incomplete(y):  # as if the inputs were at their mean: this changes no estimate
            mean = workspace(self.n_features)
            for a in range(self.n_features):
                mean[a] = theta[self.joint_at + a]
            self.joint.statistic(theta[self.joint_at :], mean, s)
            s[self.n_statistics - 1] += theta[self.variance]
        else:
            self.joint.statistic(theta[self.joint_at :], y, s)

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        k = self.n_inputs
        last = self.joint_at + self.joint.precision + k * self.n_features  # row of the whitening matrix
        self.joint.maximize(S, alive, theta[:, self.joint_at :])
        self.joint.prepare(theta[:, self.joint_at :])
        for i in range(self.n_components):
            if alive[i] > 0.0:
                theta[i, self.intercept] = theta[i, self.joint_at + k]
                theta[i, self.variance] = 1.0 / (theta[i, last + k] * theta[i, last + k])
                for b in range(k):
                    theta[i, b] = -theta[i, last + b] / theta[i, last + k]
                    theta[i, self.intercept] -= theta[i, b] * theta[i, self.joint_at + b]

    def prepare(self, theta: FloatArray) -> None:
        for i in range(self.n_components):
            theta[i, self.precision] = 1.0 / theta[i, self.variance]
            theta[i, self.precision + 1] = -0.5 * log(2.0 * pi * theta[i, self.variance])

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        d, k = self.n_features, self.n_inputs
        centre, precision = self.joint_at + self.joint.centre, theta[self.precision]
        products = workspace(self.n_features)  # of the residual with each deviation from the mean
        for a in range(d):
            products[a] = 0.0
        total, square = 0.0, 0.0  # of the residual
        at = 1 + d
        for a in range(d):
            weight_a = 1.0 if a == k else -theta[a]
            offset_a = theta[self.joint_at + a] - theta[centre + a]
            total += weight_a * (s[1 + a] - s[0] * offset_a)
            for b in range(a + 1):
                weight_b = 1.0 if b == k else -theta[b]
                offset_b = theta[self.joint_at + b] - theta[centre + b]
                moment = s[at] - offset_a * s[1 + b] - offset_b * s[1 + a] + s[0] * offset_a * offset_b
                products[b] += weight_a * moment
                if b < a:
                    products[a] += weight_b * moment
                at += 1
        for a in range(d):
            square += (1.0 if a == k else -theta[a]) * products[a]
        for b in range(k):
            gradient[b] = precision * (products[b] + theta[self.joint_at + b] * total)
        gradient[self.intercept] = precision * total
        gradient[self.variance] = 0.5 * precision * (precision * square - s[0])

    def move_centre(self, theta: FloatArray, S: FloatArray, shift: FloatArray) -> None:
        self.joint.move_centre(theta[self.joint_at :], S, shift)

    def translate(self, s: FloatArray, shift: FloatArray) -> None:
        self.joint.translate(s, shift)
