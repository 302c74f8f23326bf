"""Mixtures of Gaussians: observations of a state that one bell does not describe."""

from __future__ import annotations

from math import exp, inf, log
from statistics import NormalDist
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray, frozen, is_integer, thresholds
from hmmstream.compilable import workspace
from hmmstream.emissions.base import DEAD, RARE, Emission
from hmmstream.emissions.gaussian import Gaussian

MixtureCovariance = Literal["full", "diag", "spherical"]

LOG_OF_ZERO = -1e300  # finite, since averages of theta may be taken


class GaussianMixture(Emission):
    """In each state, a mixture of normal distributions.

    A component needs as many observations as a state does before it can be learned: on line, set ``n_min`` so that each
    has been visited by then, 50 observations a component.

    Parameters
    ----------
    n_mix : int
        Number of components of each state: 2, unless the values say otherwise.
    covariance : "full", "diag" or "spherical"
    weights : (m, n_mix)
        Probability of each component in its state. Rows sum to 1.
    means : (m, n_mix, d), or (m, n_mix) for one feature
    covars : full (m, n_mix, d, d), diag (m, n_mix, d), spherical (m, n_mix)
        With one feature, (m, n_mix) will do.

    Examples
    --------
    >>> two_bells = GaussianMixture(weights=[[0.5, 0.5]], means=[[-1.0, 1.0]], covars=[[0.1, 0.1]])
    >>> two_bells.means.shape
    (1, 2, 1)
    """

    # All components of all states are the states of a Gaussian family, which does the work. A row of theta holds the
    # weights of a state's components, their logarithms, and then the components' rows; the statistic is 1, and then the
    # components' statistics, each weighted by the probability of the component.
    compiled_methods: ClassVar[tuple[str, ...]] = ("component_log_densities", "gather", "scatter")
    constants: ClassVar[tuple[str, ...]] = ("components", "n_mix", "n_all", "n_all_statistics", "n_all_columns")
    value_names = ("weights", "means", "covars")
    is_centred = True
    components: Gaussian

    def __init__(
        self,
        n_mix: int | None = None,
        covariance: MixtureCovariance = "diag",
        weights: ArrayLike | None = None,
        means: ArrayLike | None = None,
        covars: ArrayLike | None = None,
    ) -> None:
        if covariance not in get_args(MixtureCovariance):
            raise ValueError(f"covariance must be one of {get_args(MixtureCovariance)}, got {covariance!r}")
        self.covariance = covariance
        self.n_mix = 2 if n_mix is None else n_mix
        if not is_integer(self.n_mix) or self.n_mix < 1:
            raise ValueError(f"n_mix must be a positive integer, got {n_mix!r}")
        values = [weights, means, covars]
        if any(value is not None for value in values):
            if weights is None or means is None or covars is None:
                raise ValueError("give weights, means and covars, or none of them")
            self._set_values(n_mix, weights, means, covars)

    def _set_values(self, n_mix: int | None, weights: ArrayLike, means: ArrayLike, covars: ArrayLike) -> None:
        self.weights = frozen(weights, "weights")
        if self.weights.ndim != 2 or self.weights.size == 0:
            raise ValueError(f"weights must have shape (states, components), got {np.shape(weights)}")
        if n_mix not in (None, self.weights.shape[1]):
            raise ValueError(f"weights have {self.weights.shape[1]} columns, but n_mix is {n_mix}")
        if (self.weights < 0.0).any() or not np.allclose(self.weights.sum(axis=1), 1.0, rtol=0.0, atol=1e-8):
            raise ValueError(f"each row of weights must be probabilities that sum to 1, got {self.weights.tolist()}")
        m, self.n_mix = self.weights.shape
        self.n_components, self.n_all = m, m * self.n_mix
        self.means = frozen(means, "means")
        if self.means.shape == self.weights.shape:
            self.means = self.means[:, :, np.newaxis]
        if self.means.ndim != 3 or self.means.shape[:2] != self.weights.shape or self.means.size == 0:
            raise ValueError(
                f"means must have shape (states, components, features), here {self.weights.shape} and the features, "
                f"got {np.shape(means)}"
            )
        d = self.n_features = self.means.shape[2]
        shape = (*self.weights.shape, *{"full": (d, d), "diag": (d,), "spherical": ()}[self.covariance])
        self.covars = frozen(covars, "covars")
        if d == 1 and self.covars.size == np.prod(shape):
            self.covars = self.covars.reshape(shape)
        if self.covars.shape != shape:
            raise ValueError(
                f"covars must have shape {shape} for covariance={self.covariance!r}, got {np.shape(covars)}"
            )
        self.components = Gaussian(
            self.covariance, self.means.reshape(-1, d), self.covars.reshape(self.n_all, *shape[2:])
        )
        self.n_parameters = self.n_mix * (1 + self.components.n_parameters)
        self.n_cached = self.n_mix * (1 + self.components.n_cached)
        self.n_statistics = 1 + self.n_mix * self.components.n_statistics
        self.n_all_statistics = self.n_all * self.components.n_statistics
        self.n_all_columns = self.n_all * self.components.width

    # --- seen from Python -------------------------------------------------------------------------------------------

    @property
    def centre_size(self) -> int:
        return self.n_mix * self.n_features

    @property
    def specification(self) -> tuple[Any, ...]:
        return self.n_mix, self.covariance

    def rows(self) -> FloatArray:
        return np.hstack([self.weights, self.components.rows().reshape(self.n_components, -1)])

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        inner = self.components.shaped(rows[:, self.n_mix :].reshape(self.n_all, -1))
        return {
            "weights": rows[:, : self.n_mix],
            "means": inner["means"].reshape(self.means.shape),
            "covars": inner["covars"].reshape(self.covars.shape),
        }

    def with_rows(self, rows: FloatArray) -> Self:
        other = super().with_rows(rows)
        other.components = self.components.with_rows(rows[:, self.n_mix :].reshape(self.n_all, -1))
        return other

    def with_theta(self, theta: FloatArray) -> Self:
        parameters = self._components_of(theta)[:, : self.components.n_parameters]
        return self.with_rows(np.hstack([theta[:, : self.n_mix], parameters.reshape(self.n_components, -1)]))

    def _components_of(self, theta: FloatArray) -> FloatArray:
        """The rows of all components."""
        return theta[:, 2 * self.n_mix :].reshape(self.n_all, -1)

    def sized(self, n_components: int, n_features: int) -> Self:
        shape = n_components, self.n_mix
        inner = Gaussian(self.covariance).sized(n_components * self.n_mix, n_features)
        covars = inner.covars.reshape(*shape, *inner.covars.shape[1:])
        weights = np.full(shape, 1.0 / self.n_mix)
        return type(self)(self.n_mix, self.covariance, weights, inner.means.reshape(*shape, -1), covars)

    def set_apart(self) -> Self:
        """Components side by side along the direction in which their state is widest."""
        mean, _ = self.moments()
        means = np.empty_like(self.means)
        places = [NormalDist().inv_cdf((j + 0.5) / self.n_mix) for j in range(self.n_mix)]
        for i in range(self.n_components):
            if self.covariance == "full":
                variances, directions = np.linalg.eigh(self.covars[i, 0])
                direction = np.sqrt(variances[-1]) * directions[:, -1]
            else:
                widths = np.sqrt(np.broadcast_to(self.covars[i, 0], self.n_features))
                direction = np.where(np.arange(self.n_features) == widths.argmax(), widths, 0.0)
            means[i] = mean[i] + np.outer(places, direction)
        rows = self.components.rows()
        rows[:, : self.n_features] = means.reshape(self.n_all, -1)
        return self.with_rows(np.hstack([self.weights, rows.reshape(self.n_components, -1)]))

    def parameter_table(self) -> IntArray:
        m = self.n_components
        weights = np.arange(self.n_all).reshape(m, -1)
        return np.hstack([weights, self.n_all + self.components.parameter_table().reshape(m, -1)])

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        low, high = (bound.reshape(self.n_components, -1) for bound in self.components.bounds())
        return np.hstack([np.zeros_like(self.weights), low]), np.hstack([np.ones_like(self.weights), high])

    @property
    def sums_to_one(self) -> tuple[slice | IntArray, ...]:
        return (slice(self.n_mix),)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        weights = self.weights[:, :, np.newaxis]
        means, variances = (moment.reshape(self.means.shape) for moment in self.components.moments())
        mean = (weights * means).sum(axis=1)
        return mean, (weights * (variances + (means - mean[:, np.newaxis]) ** 2)).sum(axis=1)

    def sample(self, states: Any, rng: np.random.Generator) -> FloatArray:
        which = (rng.random((len(states), 1)) >= thresholds(self.weights)[states]).sum(axis=1)
        return self.components.sample(np.asarray(states) * self.n_mix + which, rng)

    def theta(self) -> FloatArray:
        theta = np.hstack(
            [self.weights, np.zeros_like(self.weights), self.components.theta().reshape(self.n_components, -1)]
        )
        self.prepare(theta)
        return theta

    @property
    def limits(self) -> slice | IntArray:
        own = np.arange(self.components.width)[self.components.limits]
        return np.concatenate([2 * self.n_mix + j * self.components.width + own for j in range(self.n_mix)])

    def limit(self, X: FloatArray, theta: FloatArray) -> None:
        components = self._components_of(theta).copy()
        self.components.limit(X, components)
        theta[:, 2 * self.n_mix :] = components.reshape(self.n_components, -1)

    def is_limited(self, theta: FloatArray) -> bool:
        return self.components.is_limited(self._components_of(theta))

    def centres(self, theta: FloatArray) -> FloatArray:
        return self.components.centres(self._components_of(theta)).reshape(self.n_components, -1)

    def __repr__(self) -> str:
        if not self.has_values:
            return f"{type(self).__name__}({self.n_mix}, {self.covariance!r})"
        values = ", ".join(f"{name}={getattr(self, name).tolist()}" for name in self.value_names)
        return f"{type(self).__name__}({self.n_mix}, {self.covariance!r}, {values})"

    # --- compiled ---------------------------------------------------------------------------------------------------

    def component_log_densities(self, theta: FloatArray, y: FloatArray, log_g: FloatArray) -> float:
        """Write the log-density of each component, times its weight; the largest of them."""
        width = self.components.width
        top = -inf
        for j in range(self.n_mix):
            at = 2 * self.n_mix + j * width
            log_g[j] = theta[self.n_mix + j] + self.components.log_density(theta[at : at + width], y)
            if not -inf < log_g[j] < inf:
                log_g[j] = -inf
            top = max(top, log_g[j])
        return top

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        log_g = workspace(self.n_mix)
        top = self.component_log_densities(theta, y, log_g)
        if top == -inf:
            return top
        total = 0.0
        for j in range(self.n_mix):
            total += exp(log_g[j] - top)
        return top + log(total)

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        width, p = self.components.width, self.components.n_statistics
        share = workspace(self.n_mix)
        top = self.component_log_densities(theta, y, share)
        total = 0.0
        for j in range(self.n_mix):  # what is impossible in every component tells nothing about which it was
            share[j] = exp(share[j] - top) if top > -inf else theta[j]
            total += share[j]
        s[0] = 1.0
        for j in range(self.n_mix):
            at = 2 * self.n_mix + j * width
            own = s[1 + j * p : 1 + (j + 1) * p]
            self.components.statistic(theta[at : at + width], y, own)
            for c in range(p):
                own[c] *= share[j] / total

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        p = self.components.n_statistics
        own_S = workspace(self.n_all_statistics).reshape(self.n_all, p)
        own_theta = workspace(self.n_all_columns).reshape(self.n_all, self.components.width)
        own_alive = workspace(self.n_all)
        for i in range(self.n_components):
            for j in range(self.n_mix):
                at = i * self.n_mix + j
                for c in range(p):
                    own_S[at, c] = S[i, 1 + j * p + c]
                own_alive[at] = alive[i] if own_S[at, 0] > DEAD else 0.0  # without weight it stays as it is
            if alive[i] > 0.0:
                total = 0.0
                for j in range(self.n_mix):
                    theta[i, j] = max(own_S[i * self.n_mix + j, 0] / S[i, 0], RARE)
                    total += theta[i, j]
                for j in range(self.n_mix):
                    theta[i, j] /= total
        self.gather(theta, own_theta)
        self.components.maximize(own_S, own_alive, own_theta)
        self.scatter(own_theta, theta)

    def prepare(self, theta: FloatArray) -> None:
        own_theta = workspace(self.n_all_columns).reshape(self.n_all, self.components.width)
        self.gather(theta, own_theta)
        self.components.prepare(own_theta)
        self.scatter(own_theta, theta)
        for i in range(self.n_components):
            for j in range(self.n_mix):
                theta[i, self.n_mix + j] = log(theta[i, j]) if theta[i, j] > 0.0 else LOG_OF_ZERO

    def gather(self, theta: FloatArray, own_theta: FloatArray) -> None:
        """Copy the rows of all components into a matrix of their own."""
        for i in range(self.n_components):
            for j in range(self.n_mix):
                for a in range(self.components.width):
                    own_theta[i * self.n_mix + j, a] = theta[i, 2 * self.n_mix + j * self.components.width + a]

    def scatter(self, own_theta: FloatArray, theta: FloatArray) -> None:
        """Copy them back."""
        for i in range(self.n_components):
            for j in range(self.n_mix):
                for a in range(self.components.width):
                    theta[i, 2 * self.n_mix + j * self.components.width + a] = own_theta[i * self.n_mix + j, a]

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        width, p, n = self.components.width, self.components.n_statistics, self.components.n_parameters
        for j in range(self.n_mix):
            at, first = 2 * self.n_mix + j * width, self.n_mix + j * n
            own = s[1 + j * p : 1 + (j + 1) * p]
            gradient[j] = own[0] / theta[j] if theta[j] > 0.0 else 0.0
            self.components.gradient(theta[at : at + width], own, gradient[first : first + n])

    def move_centre(self, theta: FloatArray, S: FloatArray, shift: FloatArray) -> None:
        d, width, p = self.n_features, self.components.width, self.components.n_statistics
        for j in range(self.n_mix):
            at = 2 * self.n_mix + j * width
            if S[1 + j * p] > DEAD:
                own = S[1 + j * p : 1 + (j + 1) * p]
                self.components.move_centre(theta[at : at + width], own, shift[j * d : (j + 1) * d])
            else:
                for a in range(d):
                    shift[j * d + a] = 0.0

    def translate(self, s: FloatArray, shift: FloatArray) -> None:
        d, p = self.n_features, self.components.n_statistics
        for j in range(self.n_mix):
            self.components.translate(s[1 + j * p : 1 + (j + 1) * p], shift[j * d : (j + 1) * d])
