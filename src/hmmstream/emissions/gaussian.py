"""Gaussian emissions, in any dimension: full, diagonal, spherical or tied covariance.

Two things keep the arithmetic safe. Each state measures its statistic from a centre of its own, near its mean: data
that sits on an offset of 1e8 loses no digits when the variance is taken as a difference of moments. And no variance
falls below a floor relative to the spread of all data, so that no state collapses onto a single point.

Any feature may be missing. Where features are correlated, those that were seen tell something about it: its place in
the statistic is taken by its expectation given them.
"""

from __future__ import annotations

from math import log, pi, sqrt
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray, frozen, mean_and_variance
from hmmstream.compilable import EMPTY_SUM, is_nan, reciprocal, workspace
from hmmstream.emissions.base import DEAD, Emission

Covariance = Literal["full", "diag", "spherical", "tied"]

RELATIVE_FLOOR = 1e-12  # of the overall variance: a standard deviation of 1e-6 of that of the data
ROUNDING = float(4.0 * np.finfo(np.float64).eps)  # of the mean: below this, differences of data are rounding errors
SMALLEST_VARIANCE = 1e-250
LARGEST_MEAN = 1e150  # its square is finite
ONE_BY_ROOT_OF_2_PI = 1.0 / sqrt(2.0 * pi)
SINGULAR = 1e-14  # of its variance: what a feature keeps for itself, given the others, is not less


class Gaussian(Emission):
    """Normally distributed observations.

    Parameters
    ----------
    covariance : "full", "diag", "spherical" or "tied"
        "tied" is one full covariance matrix for all states; with one feature it is the model of Cappé's paper.
    means : (m, d), or (m,) for one feature
    covars : full (m, d, d), diag (m, d), spherical (m,), tied (d, d)
        With one feature, (m,) for all but tied and a single number for tied will do.

    Examples
    --------
    >>> Gaussian("tied", means=[0.0, 1.0], covars=0.5)
    Gaussian('tied', means=[[0.0], [1.0]], covars=[[0.5]])
    """

    # A row of theta: mean, covariance | precision, (log-)normaliser, centre, variance floor. Where features are
    # correlated (is_dense), the precision is kept as whitening matrix: the inverse of the Cholesky factor.
    compiled_methods: ClassVar[tuple[str, ...]] = (
        "variance_floor",
        "maximize_variances",
        "maximize_covariances",
        "prepare_dense",
        "gradient_dense",
        "has_gaps",
        "condition",
        "fill_gaps",
    )
    constants: ClassVar[tuple[str, ...]] = (
        "is_dense",
        "is_tied",
        "is_spherical",
        "n_cells",
        "precision",
        "log_norm",
        "centre",
        "floor",
    )
    only_if: ClassVar[dict[str, str]] = dict.fromkeys(
        ("condition", "fill_gaps", "gradient_dense", "maximize_covariances", "prepare_dense"), "is_dense"
    )
    value_names = ("means", "covars")
    is_centred = True
    is_moderate = True

    def __init__(
        self, covariance: Covariance = "full", means: ArrayLike | None = None, covars: ArrayLike | None = None
    ) -> None:
        if covariance not in get_args(Covariance):
            raise ValueError(f"covariance must be one of {get_args(Covariance)}, got {covariance!r}")
        self.covariance = covariance
        self.is_tied = covariance == "tied"
        self.is_spherical = covariance == "spherical"
        self.is_separable = covariance == "diag"
        if (means is None) != (covars is None):
            raise ValueError("give both means and covars, or neither")
        if means is not None and covars is not None:
            self._set_values(means, covars)

    def _set_values(self, means: ArrayLike, covars: ArrayLike) -> None:
        self.means = frozen(means, "means")
        if self.means.ndim == 1:
            self.means = self.means[:, np.newaxis]
        if self.means.ndim != 2 or self.means.size == 0:
            raise ValueError(f"means must have shape (states, features), or (states,), got {np.shape(means)}")
        m, d = self.n_components, self.n_features = self.means.shape
        shape = {"full": (m, d, d), "diag": (m, d), "spherical": (m,), "tied": (d, d)}[self.covariance]
        self.covars = frozen(covars, "covars")
        if d == 1 and self.covars.size == np.prod(shape):
            self.covars = self.covars.reshape(shape)
        if self.covars.shape != shape:
            raise ValueError(
                f"covars must have shape {shape} for covariance={self.covariance!r}, got {np.shape(covars)}"
            )

        self.is_dense = self.covariance in ("full", "tied") and d > 1
        self.n_parameters = d + (self.covars.size if self.is_tied else self.covars.size // m)
        self.n_cells = d * d
        self.precision = self.n_parameters
        self.log_norm = self.precision + (d * d if self.is_dense else d)
        self.centre = self.log_norm + (1 if self.is_dense else d)
        self.floor = self.centre + d
        self.n_cached = self.floor + d - self.n_parameters
        self.n_statistics = 1 + d + (d * (d + 1) // 2 if self.is_dense else d)
        self._check_values()

    def _check_values(self) -> None:
        if abs(self.means).max() > LARGEST_MEAN:
            raise ValueError(f"means must not be larger than {LARGEST_MEAN:g}, got {self.means.tolist()}")
        variances = self.covars
        if self.covariance in ("full", "tied"):
            matrices = self.covars.reshape(-1, self.n_features, self.n_features)
            variances = np.diagonal(matrices, axis1=1, axis2=2)
        positive = bool((variances >= SMALLEST_VARIANCE).all() and (variances <= 1.0 / SMALLEST_VARIANCE).all())
        if positive and self.covariance in ("full", "tied"):
            scale = np.sqrt(variances)
            correlations = matrices / scale[:, :, np.newaxis] / scale[:, np.newaxis, :]
            if not np.allclose(correlations, correlations.transpose(0, 2, 1), rtol=0.0, atol=1e-8):
                raise ValueError("covars must be symmetric matrices")
            positive = bool((np.linalg.eigvalsh(correlations) > 0.0).all())
        if not positive:
            raise ValueError(f"each covariance must be positive definite, got {self.covars.tolist()}")

    @property
    def specification(self) -> tuple[Any, ...]:
        return (self.covariance,)

    def rows(self) -> FloatArray:
        covars = self.covars.reshape(1 if self.is_tied else self.n_components, -1)
        return np.concatenate([self.means, np.broadcast_to(covars, (self.n_components, covars.shape[1]))], axis=1)

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        covars = rows[:1, self.n_features :] if self.is_tied else rows[:, self.n_features :]
        return {"means": rows[:, : self.n_features], "covars": covars.reshape(self.covars.shape)}

    def sized(self, n_components: int, n_features: int) -> Self:
        covars: Any = {
            "full": np.tile(np.eye(n_features), (n_components, 1, 1)),
            "diag": np.ones((n_components, n_features)),
            "spherical": np.ones(n_components),
            "tied": np.eye(n_features),
        }[self.covariance]
        return type(self)(self.covariance, np.zeros((n_components, n_features)), covars)

    def layout(self) -> tuple[IntArray, IntArray]:
        theta = np.arange(self.width).reshape(-1, self.n_features)
        return theta.T, np.arange(1, self.n_statistics).reshape(-1, self.n_features).T

    def parameter_table(self) -> IntArray:
        m, d = self.n_components, self.n_features
        if self.covariance in ("full", "tied"):
            place = np.zeros((d, d), dtype=np.int64)
            place[np.tril_indices(d)] = np.arange(d * (d + 1) // 2)
            within = np.maximum(place, place.T).ravel()  # the lower triangle, row by row; the upper mirrors it
        else:
            within = np.arange(self.n_parameters - d)
        of_state = (
            np.zeros((m, 1), dtype=np.int64) if self.is_tied else np.arange(m)[:, np.newaxis] * (within.max() + 1)
        )
        return np.hstack([np.arange(m * d).reshape(m, d), m * d + of_state + within])

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        low, high = super().bounds()
        on_diagonal = np.eye(self.n_features).ravel() if self.covariance in ("full", "tied") else np.ones(1)
        low[:, self.n_features :][:, np.broadcast_to(on_diagonal > 0.0, self.n_parameters - self.n_features)] = 0.0
        return low, high

    def moments(self) -> tuple[FloatArray, FloatArray]:
        m, d = self.n_components, self.n_features
        if self.covariance in ("full", "tied"):
            variances = np.diagonal(self.covars.reshape(-1, d, d), axis1=1, axis2=2)
        else:
            variances = self.covars.reshape(m, -1)
        return self.means, np.broadcast_to(variances, (m, d))

    def theta(self) -> FloatArray:
        theta = super().theta()
        theta[:, self.centre : self.centre + self.n_features] = self.means
        variances = self.covars.reshape(len(self.covars), -1)
        theta[:, self.floor :] = RELATIVE_FLOOR * variances.max()
        return theta

    @property
    def limits(self) -> slice | IntArray:
        return slice(self.floor, None)

    def limit(self, X: FloatArray, theta: FloatArray) -> None:
        d = self.n_features
        mean, variance = mean_and_variance(X, LARGEST_MEAN)
        floor = np.maximum(RELATIVE_FLOOR * variance, (ROUNDING * mean) ** 2)
        theta[:, self.floor :] = np.maximum(floor, SMALLEST_VARIANCE)
        if self.is_spherical:
            theta[:, d] = np.maximum(theta[:, d], theta[:, self.floor :].mean(axis=1))
        elif not self.is_dense:
            theta[:, d : self.n_parameters] = np.maximum(theta[:, d : self.n_parameters], theta[:, self.floor :])
        self.prepare(theta)

    def is_limited(self, theta: FloatArray) -> bool:
        floor = theta[:, self.floor :]
        if self.is_dense:
            whitening = theta[:, self.precision : self.log_norm].reshape(len(theta), self.n_features, -1)
            own = 1.0 / np.diagonal(whitening, axis1=1, axis2=2) ** 2
            variances = theta[:, self.n_features : self.n_parameters : self.n_features + 1]
            floor = np.maximum(floor, SINGULAR * variances)
        elif self.is_spherical:
            own, floor = theta[:, self.n_features], floor.mean(axis=1)
        else:
            own = theta[:, self.n_features : self.n_parameters]
        return bool((own <= 1.001 * floor).any())

    def sample(self, states: Any, rng: np.random.Generator) -> FloatArray:
        noise = rng.standard_normal((len(states), self.n_features))
        if self.covariance == "full":
            noise = np.einsum("nab,nb->na", np.linalg.cholesky(self.covars)[states], noise)
        elif self.covariance == "tied":
            noise = noise @ np.linalg.cholesky(self.covars).T
        else:
            noise = noise * np.sqrt(self.covars.reshape(self.n_components, -1)[states])
        return np.asarray(self.means[states] + noise)

    def centres(self, theta: FloatArray) -> FloatArray:
        return theta[:, self.centre : self.centre + self.n_features]

    def __repr__(self) -> str:
        values = f", means={self.means.tolist()}, covars={self.covars.tolist()}" if self.has_values else ""
        return f"{type(self).__name__}({self.covariance!r}{values})"

    # --- compiled ---------------------------------------------------------------------------------------------------

    def has_gaps(self, y: FloatArray) -> bool:
        """Whether some feature is missing."""
        n_missing = 0
        for a in range(self.n_features):
            n_missing += is_nan(y[a])
        return n_missing > 0

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        d = self.n_features
        total = 0.0
        if self.is_dense:
            for a in range(d):
                u = 0.0
                for b in range(a + 1):
                    u += theta[self.precision + a * d + b] * (y[b] - theta[b])
                total -= 0.5 * u * u
            if is_nan(total):
                return self.condition(theta, y, workspace(self.n_features), workspace(self.n_cells))
            return total if self.is_tied else total + theta[self.log_norm]
        for a in range(d):
            if not is_nan(y[a]):
                z = y[a] - theta[a]
                total -= 0.5 * z * z * theta[self.precision + a]
                if not self.is_tied:
                    total += theta[self.log_norm + a]
        return total

    def shared_log_density(self, theta: FloatArray, y: FloatArray) -> float:
        if not (self.is_tied and self.is_dense):
            return EMPTY_SUM
        return 0.0 if self.has_gaps(y) else theta[self.log_norm]

    def shared_density(self, theta: FloatArray, y: FloatArray) -> float:
        if self.is_tied and not self.is_dense:  # one feature, whose normaliser stands in place of its logarithm
            return 1.0 if is_nan(y[0]) else theta[self.log_norm]
        return 1.0

    def condition(self, theta: FloatArray, y: FloatArray, mean: FloatArray, covariance: FloatArray) -> float:
        """Write mean and covariance of all features given those that were seen; the log-density of these.

        Features are taken in one after the other, each with the innovation that it is, given those before it.
        """
        d = self.n_features
        for a in range(d):
            mean[a] = theta[a]
        for at in range(self.n_cells):
            covariance[at] = theta[d + at]
        total = 0.0
        for a in range(d):
            if not is_nan(y[a]):
                variance = max(covariance[a * d + a], SINGULAR * theta[d + a * d + a])
                innovation = y[a] - mean[a]
                total -= 0.5 * (innovation * innovation / variance + log(2.0 * pi * variance))
                for b in range(d):
                    gain = covariance[b * d + a] / variance
                    if b != a:
                        mean[b] = min(max(mean[b] + gain * innovation, -LARGEST_MEAN), LARGEST_MEAN)
                        for c in range(d):
                            if c != a:
                                covariance[b * d + c] -= gain * covariance[a * d + c]
                mean[a] = y[a]
                for b in range(d):
                    covariance[a * d + b] = covariance[b * d + a] = 0.0
        return total

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        d = self.n_features
        s[0] = 1.0
        if self.is_dense:
            at = 1 + d
            for a in range(d):
                s[1 + a] = y[a] - theta[self.centre + a]
                for b in range(a + 1):
                    s[at] = s[1 + a] * s[1 + b]
                    at += 1
            if self.has_gaps(y):
                self.fill_gaps(theta, y, s)
            return
        for a in range(d):
            missing = is_nan(y[a])
            z = (theta[a] if missing else y[a]) - theta[self.centre + a]
            s[1 + a] = z
            s[1 + d + a] = z * z
            if missing:
                s[1 + d + a] += theta[d if self.is_spherical else d + a]

    def fill_gaps(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        """Write the expectation of the statistic given those features that were seen."""
        d = self.n_features
        mean = workspace(self.n_features)
        covariance = workspace(self.n_cells)
        self.condition(theta, y, mean, covariance)
        at = 1 + d
        for a in range(d):
            s[1 + a] = mean[a] - theta[self.centre + a]
            for b in range(a + 1):
                s[at] = s[1 + a] * s[1 + b] + covariance[a * d + b]
                at += 1

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        d = self.n_features
        if self.is_dense:
            self.gradient_dense(theta, s, gradient)
            return
        if self.is_spherical:
            gradient[d] = 0.0
        for a in range(d):
            precision = theta[self.precision + a]
            offset = theta[a] - theta[self.centre + a]
            deviation = s[1 + a] - s[0] * offset
            square = s[1 + d + a] - offset * (s[1 + a] + deviation)
            by_variance = 0.5 * precision * (precision * square - s[0])
            gradient[a] = precision * deviation
            if self.is_spherical:
                gradient[d] += by_variance
            else:
                gradient[d + a] = by_variance

    def gradient_dense(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        """Derivatives by the mean, and by each cell of the covariance as if it were a number of its own.

        In whitened coordinates these are W'u and W'(U - s0)W / 2, with u and U the first and second moments.
        """
        d = self.n_features
        W = self.precision
        u = workspace(self.n_features)
        moments = workspace(self.n_cells)  # about the mean, then whitened from the right, and from the left
        half = workspace(self.n_cells)
        at = 1 + d
        for a in range(d):
            for b in range(a + 1):
                offset_a = theta[a] - theta[self.centre + a]
                offset_b = theta[b] - theta[self.centre + b]
                moment = s[at] - offset_a * s[1 + b] - offset_b * s[1 + a] + s[0] * offset_a * offset_b
                moments[a * d + b] = moments[b * d + a] = moment
                at += 1
        for a in range(d):
            u[a] = 0.0
            for b in range(a + 1):
                u[a] += theta[W + a * d + b] * (s[1 + b] - s[0] * (theta[b] - theta[self.centre + b]))
            for b in range(d):
                half[b * d + a] = 0.0
                for c in range(a + 1):
                    half[b * d + a] += moments[b * d + c] * theta[W + a * d + c]
        for a in range(d):
            for b in range(d):
                moments[a * d + b] = -s[0] if a == b else 0.0
                for c in range(a + 1):
                    moments[a * d + b] += theta[W + a * d + c] * half[c * d + b]
        for a in range(d):
            gradient[a] = 0.0
            for c in range(a, d):
                gradient[a] += theta[W + c * d + a] * u[c]
            for b in range(d):
                half[a * d + b] = 0.0
                for c in range(b, d):
                    half[a * d + b] += moments[a * d + c] * theta[W + c * d + b]
        for a in range(d):
            for b in range(d):
                gradient[d + a * d + b] = 0.0
                for c in range(a, d):
                    gradient[d + a * d + b] += 0.5 * theta[W + c * d + a] * half[c * d + b]

    def move_centre(self, theta: FloatArray, S: FloatArray, shift: FloatArray) -> None:
        for a in range(self.n_features):
            old = theta[self.centre + a]
            theta[self.centre + a] = old + S[1 + a] / S[0]
            shift[a] = theta[self.centre + a] - old  # as rounded, so that the statistics stay true to the centre

    def translate(self, s: FloatArray, shift: FloatArray) -> None:
        d = self.n_features
        at = 1 + d
        for a in range(d):
            if self.is_dense:
                for b in range(a + 1):
                    s[at] += shift[a] * shift[b] * s[0] - shift[a] * s[1 + b] - shift[b] * s[1 + a]
                    at += 1
            else:
                s[at] += shift[a] * (shift[a] * s[0] - 2.0 * s[1 + a])
                at += 1
        for a in range(d):
            s[1 + a] -= shift[a] * s[0]

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        d = self.n_features
        per_visit = workspace(self.n_components)
        weight = EMPTY_SUM
        for i in range(self.n_components):
            per_visit[i] = reciprocal(S[i, 0]) if S[i, 0] > DEAD else 0.0
            weight += S[i, 0]
            if alive[i] > 0.0:
                for a in range(d):
                    theta[i, a] = theta[i, self.centre + a] + S[i, 1 + a] * per_visit[i]
        per_weight = reciprocal(weight)
        if self.is_dense:
            self.maximize_covariances(S, alive, theta, per_visit, per_weight)
        else:
            self.maximize_variances(S, alive, theta, per_visit, per_weight)
        for a in range(d):  # for the next M-step: nothing then has to wait for it
            floor = self.variance_floor(S, theta, per_visit, per_weight, a)
            for i in range(self.n_components):
                if self.is_tied or alive[i] > 0.0:
                    theta[i, self.floor + a] = floor

    def variance_floor(
        self, S: FloatArray, theta: FloatArray, per_visit: FloatArray, per_weight: float, a: int
    ) -> float:
        """The smallest variance of feature ``a`` that a state may have, from the variance of all data."""
        square = 1 + self.n_features + (a * (a + 3) // 2 if self.is_dense else a)
        mean = 0.0
        for i in range(self.n_components):
            mean += S[i, 0] * theta[i, a]
        mean *= per_weight
        variance = EMPTY_SUM
        for i in range(self.n_components):
            deviation = theta[i, a] - mean
            variance += S[i, square] - S[i, 1 + a] * S[i, 1 + a] * per_visit[i] + S[i, 0] * deviation * deviation
        rounding = ROUNDING * mean
        floor = RELATIVE_FLOOR * per_weight * variance
        floor = floor if floor > rounding * rounding else rounding * rounding
        return floor + SMALLEST_VARIANCE

    def maximize_variances(
        self, S: FloatArray, alive: FloatArray, theta: FloatArray, per_visit: FloatArray, per_weight: float
    ) -> None:
        """M-step of the variances where features are not correlated."""
        d = self.n_features
        if self.is_tied:  # and one feature
            pooled = EMPTY_SUM
            for i in range(self.n_components):
                pooled += S[i, 2] - S[i, 1] * S[i, 1] * per_visit[i]
            pooled *= per_weight
            pooled = pooled if pooled > theta[0, self.floor] else theta[0, self.floor]
            for i in range(self.n_components):
                theta[i, 1] = pooled
            return
        for i in range(self.n_components):
            if alive[i] > 0.0:
                mean_variance, mean_floor = 0.0, 0.0
                for a in range(d):
                    mean = S[i, 1 + a] * per_visit[i]
                    variance = S[i, 1 + d + a] * per_visit[i] - mean * mean
                    mean_variance += variance / d
                    mean_floor += theta[i, self.floor + a] / d
                    if not self.is_spherical:
                        theta[i, d + a] = variance if variance > theta[i, self.floor + a] else theta[i, self.floor + a]
                if self.is_spherical:
                    theta[i, d] = max(mean_variance, mean_floor)

    def maximize_covariances(
        self, S: FloatArray, alive: FloatArray, theta: FloatArray, per_visit: FloatArray, per_weight: float
    ) -> None:
        """M-step of the covariance matrices; the floor is applied with their factorisation."""
        d = self.n_features
        at = 1 + d
        for a in range(d):
            for b in range(a + 1):
                pooled = 0.0
                for i in range(self.n_components):
                    covariance = S[i, at] - S[i, 1 + a] * S[i, 1 + b] * per_visit[i]
                    pooled += covariance
                    if alive[i] > 0.0 and not self.is_tied:
                        theta[i, d + a * d + b] = theta[i, d + b * d + a] = covariance * per_visit[i]
                if self.is_tied:
                    for i in range(self.n_components):
                        theta[i, d + a * d + b] = theta[i, d + b * d + a] = pooled * per_weight
                at += 1

    def prepare(self, theta: FloatArray) -> None:
        d = self.n_features
        for i in range(self.n_components):
            if self.is_tied and i > 0:
                for at in range(self.precision, self.centre):
                    theta[i, at] = theta[0, at]
                if self.is_dense:
                    for at in range(d, d + d * d):
                        theta[i, at] = theta[0, at]
            elif self.is_dense:
                self.prepare_dense(theta[i])
            else:
                for a in range(d):
                    variance = theta[i, d if self.is_spherical else d + a]
                    precision = reciprocal(variance)
                    theta[i, self.precision + a] = precision
                    if self.is_tied:
                        theta[i, self.log_norm + a] = sqrt(precision) * ONE_BY_ROOT_OF_2_PI
                    else:
                        theta[i, self.log_norm + a] = -0.5 * log(2.0 * pi * variance)

    def prepare_dense(self, theta: FloatArray) -> None:
        """Factorise the covariance. No feature has a variance, given those before it, below the floor.

        Under this condition the widened covariance is the most likely one: regressions stay as they are.
        """
        d = self.n_features
        L = self.precision
        for a in range(d):
            theta[d + a * d + a] = max(theta[d + a * d + a], theta[self.floor + a], SMALLEST_VARIANCE)
            for b in range(a):
                limit = sqrt(theta[d + a * d + a]) * sqrt(theta[d + b * d + b])
                theta[d + a * d + b] = min(max(theta[d + a * d + b], -limit), limit)
                theta[d + b * d + a] = theta[d + a * d + b]
        for a in range(d):
            rest = theta[d + a * d + a]  # of its variance, given the features before
            for b in range(a):
                common = theta[d + a * d + b]
                for c in range(b):
                    common -= theta[L + a * d + c] * theta[L + b * d + c]
                share = common / theta[L + b * d + b]
                if share * share > rest:  # more than there is: what b keeps for itself is a rounding error
                    share = sqrt(max(rest, 0.0)) if share > 0.0 else -sqrt(max(rest, 0.0))
                    theta[d + a * d + b] += share * theta[L + b * d + b] - common
                    theta[d + b * d + a] = theta[d + a * d + b]
                theta[L + a * d + b] = share
                rest -= share * share
            pivot = max(rest, theta[self.floor + a], SINGULAR * theta[d + a * d + a])
            if pivot > rest:
                theta[d + a * d + a] = pivot + (theta[d + a * d + a] - rest)
            theta[L + a * d + a] = sqrt(pivot)
        log_norm = -0.5 * d * log(2.0 * pi)
        for a in range(d):
            theta[L + a * d + a] = 1.0 / theta[L + a * d + a]
            log_norm += log(theta[L + a * d + a])
            for b in range(a):
                dot = 0.0
                for c in range(b, a):
                    dot += theta[L + a * d + c] * theta[L + c * d + b]
                theta[L + a * d + b] = -dot * theta[L + a * d + a]
        theta[self.log_norm] = log_norm
