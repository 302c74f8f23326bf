"""What an emission family is, and the short form for families whose features are independent given the state.

A family is a distribution of one observation for each hidden state. Compiled code sees the parameters as ``theta``, a
matrix with one row a state: first the parameters, then whatever the family caches to evaluate its density quickly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import signature
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import BoolArray, FloatArray, IntArray, RefusedError, frozen
from hmmstream.compilable import EMPTY_SUM, Compilable, is_nan, workspace

# What was never seen is improbable, not impossible: learned probabilities stay above this, so that it can come (back).
RARE = 1e-12
# A state whose share of the statistic is below this has died: nothing can be estimated for it.
DEAD = 1e-10


class Emission(Compilable, ABC):
    """Distribution of an observation given the hidden state.

    An object without values (``Poisson()``) is a specification, one with values (``Poisson([1.0, 5.0])``) is complete.

    A family says in ``__init__`` how many ``n_features`` and ``n_components`` its values describe (0 while it has
    none), how many numbers a row of ``theta`` holds (``n_parameters`` and behind them ``n_cached``), and how long its
    sufficient statistic is (``n_statistics``; its first component is always 1, the occupation of the state). The
    compiled methods receive rows of ``theta``; NaN in ``y`` marks a missing feature.
    """

    compiled_methods: ClassVar[tuple[str, ...]] = (
        "accepts",
        "accepts_at",
        "is_missing",
        "log_density",
        "shared_log_density",
        "shared_density",
        "statistic",
        "maximize",
        "gradient",
        "prepare",
        "translate",
        "move_centre",
    )
    constants: ClassVar[tuple[str, ...]] = (
        "n_components",
        "n_features",
        "n_parameters",
        "n_cached",
        "width",
        "n_statistics",
        "n_emission_rows",
        "is_centred",
        "is_moderate",
        "centre_size",
    )

    value_names: tuple[str, ...]
    remembered: ClassVar[tuple[str, ...]] = ()  # arrays that belong to a learned family besides its values
    domain: str = "a number"  # what a value can be, in words
    is_centred: bool = False
    is_moderate: bool = False  # whether its statistic is finite, whatever is seen: nothing then has to be cut off
    is_separable: bool = False  # whether each feature has parameters of its own, and is independent given the state

    n_features: int = 0
    n_lags: int = 0
    n_components: int = 0
    n_parameters: int
    n_cached: int = 0
    n_statistics: int

    # --- seen from Python -------------------------------------------------------------------------------------------

    @property
    def has_values(self) -> bool:
        """Whether this is a complete distribution rather than a specification."""
        return self.n_components > 0

    @property
    def n_columns(self) -> int:
        """Columns of an observation. With ``n_lags``, earlier values stand in front of them, as features too."""
        return self.n_features - self.n_lags

    def embed(self, X: FloatArray, is_start: BoolArray, before: FloatArray) -> FloatArray:
        """Rows of all features, from observations that come after those that ``before`` was the ``latest`` of."""
        return X

    def latest(self, rows: FloatArray) -> FloatArray:
        """What the next row has to know of these."""
        return np.empty(0)

    @property
    def width(self) -> int:
        """Length of a row of ``theta``."""
        return self.n_parameters + self.n_cached

    @property
    def centre_size(self) -> int:
        """How many numbers the centre of a state is made of, in a family that measures from one."""
        return self.n_features if self.is_centred else 0

    @property
    def n_emission_rows(self) -> int:
        """Length of the statistic of all states."""
        return self.n_components * self.n_statistics

    @property
    def has_gradient(self) -> bool:
        """Whether the family can be differentiated by its parameters."""
        return type(self).gradient is not Emission.gradient

    @property
    def specification(self) -> tuple[Any, ...]:
        """What is fixed besides the class and the values, such as the kind of covariance."""
        return ()

    def arguments(self) -> dict[str, Any]:
        """What the constructor makes the same object of."""
        named = {name: vars(self).get(name) for name in signature(type(self)).parameters}
        return {name: value for name, value in named.items() if value is not None}

    @abstractmethod
    def rows(self) -> FloatArray:
        """The values as a matrix of shape (n_components, n_parameters)."""

    @abstractmethod
    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        """Numbers in the order of ``rows()``, by value name and in the shape that the values have."""

    @abstractmethod
    def sized(self, n_components: int, n_features: int) -> Self:
        """The same specification with some values, for so many states and features: something to estimate upon."""

    def with_rows(self, rows: FloatArray) -> Self:
        """The same family with the values of ``rows``."""
        other = object.__new__(type(self))  # as copy() does, in a fifth of the time
        other.__dict__.update(self.__dict__)
        for name, values in self.shaped(rows).items():
            other.__dict__[name] = frozen(values, name)
        return other

    def with_theta(self, theta: FloatArray) -> Self:
        """The same family with the values that ``theta`` holds."""
        return self.with_rows(theta[:, : self.n_parameters])

    @classmethod
    def for_data(cls, X: FloatArray) -> Self:
        """A specification for these observations."""
        return cls()

    def layout(self) -> tuple[IntArray, IntArray]:
        """Where each feature stands, if they are separable: its columns of ``theta``, its components of the statistic.

        One row a feature; of the columns of ``theta``, the parameters come first.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method layout() for features that come later")

    def beside(self, other: Emission) -> Self:
        """One family with the features of this, and then those of the other."""
        if not self.is_separable:
            raise ValueError(
                f"no feature can be added to {self!r}: others can join only features of the same kind that are "
                "independent given the state, such as those of Gaussian('diag')"
            )
        if type(other) is not type(self) or other.specification != self.specification or not other.has_values:
            raise ValueError(f"new features need the values of the same family, {self!r}, got {other!r}")
        if other.n_components != self.n_components:
            raise ValueError(f"new features have {other.n_components} states, but the model has {self.n_components}")
        joint = self.sized(self.n_components, self.n_features + other.n_features)
        n_parameters = self.n_parameters // self.n_features
        at, ours, theirs = (family.layout()[0][:, :n_parameters] for family in (joint, self, other))
        rows = np.empty((joint.n_components, joint.n_parameters))
        rows[:, at] = np.concatenate([self.rows()[:, ours], other.rows()[:, theirs]], axis=1)
        return joint.with_rows(rows)

    def coordinates(self, X: FloatArray) -> FloatArray:
        """``X`` in coordinates in which distances mean something: what start values are found by."""
        return X

    def positions(self) -> FloatArray:
        """A number for each state, by which states are put in order: the mean of the first feature."""
        try:
            return self.moments()[0][:, 0]
        except NotImplementedError:
            return self.rows()[:, 0]

    def set_apart(self) -> Self | None:
        """About the same distributions, their components apart, in a family whose states are made of components.

        Start values are found for whole states. EM would never tell apart components that are all alike.
        """
        return None

    def parameter_table(self) -> IntArray:
        """The number of the parameter that stands in each cell of ``rows()``: cells that are equal share one."""
        return np.arange(self.n_components * self.n_parameters).reshape(self.n_components, -1)

    def is_fixed(self) -> BoolArray:
        """Which cells of ``rows()`` are kept as they are rather than estimated."""
        return np.zeros((self.n_components, self.n_parameters), dtype=np.bool_)

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest possible value of each cell of ``rows()``."""
        everywhere = np.full((self.n_components, self.n_parameters), np.inf)
        return -everywhere, everywhere

    @property
    def sums_to_one(self) -> tuple[slice | IntArray, ...]:
        """Columns of ``rows()`` that together are probabilities, which sum to 1."""
        return ()

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of an observation in each state: two arrays of shape (m, d)."""
        raise NotImplementedError(f"{type(self).__name__} needs a method moments() for forecasts of the observation")

    @abstractmethod
    def sample(self, states: Any, rng: np.random.Generator) -> Any:
        """Draw one observation for each of ``states``: an array of shape (len(states), n_features)."""

    def theta(self) -> FloatArray:
        """Rows of parameters and cached values, ready for the compiled methods."""
        rows = self.rows()
        theta = np.zeros((len(rows), self.width))
        theta[:, : self.n_parameters] = rows
        self.prepare(theta)
        return theta

    @property
    def limits(self) -> slice | IntArray:
        """Columns of ``theta`` that keep the M-step from collapsing onto single points of the data."""
        return slice(0, 0)

    def limit(self, X: FloatArray, theta: FloatArray) -> None:
        """Set the limits in ``theta`` by the data, and widen the parameters that are beyond them."""

    def is_limited(self, theta: FloatArray) -> bool:
        """Whether a parameter is at such a limit, where the likelihood would grow for ever."""
        return False

    def refusal(self, X: FloatArray, place: int) -> RefusedError:
        """What is wrong with the value at this place, counted along the rows."""
        row, column = divmod(place, self.n_features)
        reason = f"{self.domain_at(column)}, finite, or NaN where missing."
        return RefusedError(row, max(column - self.n_lags, 0), float(X[row, column]), reason)

    def domain_at(self, column: int) -> str:
        """What a value of this column can be, and who says so."""
        return f"{type(self).__name__} expects {self.domain}"

    def expected_statistic(self, theta: FloatArray) -> FloatArray:
        """The expected statistic of an observation in each state: what stands in for one of which nothing was seen."""
        nothing = np.full(self.n_features, np.nan)
        S = np.empty((self.n_components, self.n_statistics))
        for row, s in zip(theta, S, strict=True):
            self.statistic(row, nothing, s)
        return S

    def centres(self, theta: FloatArray) -> FloatArray:
        """What each state measures its statistic from: the origin, unless the family has a moving centre."""
        return np.zeros((self.n_components, self.centre_size))

    def translated(self, statistic: FloatArray, shifts: FloatArray) -> FloatArray:
        """The statistic of all states about centres moved by ``shifts``."""
        moved = statistic.copy()
        for s, shift in zip(moved, shifts, strict=True):
            self.translate(s, shift)
        return moved

    def uncentred(self, theta: FloatArray, statistic: FloatArray) -> FloatArray:
        """The statistic as the paper writes it, about the origin."""
        return self.translated(statistic, -self.centres(theta))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in self.value_names:
            if self.has_values:
                getattr(self, name).setflags(write=False)  # pickles and deep copies forget it

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name).tolist()}" for name in self.value_names if self.has_values)
        return f"{type(self).__name__}({values})"

    # --- compiled ---------------------------------------------------------------------------------------------------

    def accepts(self, value: float) -> bool:
        """Whether ``value`` can occur at all; a value that cannot is refused before anything is learned."""
        return True

    def accepts_at(self, column: int, value: float) -> bool:
        """Whether ``value`` can occur in this column."""
        return self.accepts(value)

    def is_missing(self, y: FloatArray) -> bool:
        """Whether ``y`` says nothing at all, because no feature of it was seen."""
        n_missing = 0
        for a in range(self.n_features):
            n_missing += is_nan(y[a])
        return n_missing == self.n_features

    @abstractmethod
    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        """Logarithm of the density of ``y`` in the state with row ``theta``; a missing feature says nothing."""

    def shared_log_density(self, theta: FloatArray, y: FloatArray) -> float:
        """Terms of the log-density in which no state differs from another: ``log_density`` may leave them to this."""
        return EMPTY_SUM

    def shared_density(self, theta: FloatArray, y: FloatArray) -> float:
        """A factor of the density in which no state differs from another, where it takes no logarithm to have it."""
        return 1.0

    @abstractmethod
    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        """Write the sufficient statistic of ``y`` into ``s``; for a missing feature its expectation."""

    @abstractmethod
    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        """M-step: write the parameters of every state i with ``alive[i]`` that maximise the expected log-density."""

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        """Write the derivatives of the log-density by the parameters of a state, as a function of the statistic.

        ``s`` may be the statistic of one observation or a weighted sum of many: the derivative is linear in it.
        """
        raise NotImplementedError("this family needs a method gradient() for scores and standard errors")

    def prepare(self, theta: FloatArray) -> None:
        """Fill the cached columns of ``theta`` from its parameters."""
        return

    def move_centre(self, theta: FloatArray, S: FloatArray, shift: FloatArray) -> None:
        """Move the centre kept in ``theta`` to the mean of ``S``, and write by how much into ``shift``.

        ``shift`` has ``centre_size`` entries.
        """
        return

    def translate(self, s: FloatArray, shift: FloatArray) -> None:
        """Express ``s`` about a centre moved by ``shift``."""
        return


class IndependentFeatures(Emission):
    """A family whose features are independent given the state, each with the same kind of distribution.

    The short form of the contract: a subclass describes one feature, this class does the rest, missing values included.

    ``value_names`` are the constructor's arguments, each of shape (m, d); ``theta`` holds one number of each for the
    feature at hand, in that order. ``n_feature_statistics`` is the length of the statistic of one feature.
    """

    compiled_methods: ClassVar[tuple[str, ...]] = (
        "feature_log_density",
        "feature_statistic",
        "feature_expectation",
        "feature_maximize",
        "feature_gradient",
    )
    constants: ClassVar[tuple[str, ...]] = ("n_feature_parameters", "n_feature_statistics")

    is_separable = True
    n_feature_statistics: int = 1
    value_bounds: tuple[tuple[float, float], ...] = ()  # lowest and highest of each of the values, if they have any

    @property
    def has_gradient(self) -> bool:
        """Whether the family can be differentiated by its parameters."""
        return type(self).feature_gradient is not IndependentFeatures.feature_gradient

    def __init__(self, **values: ArrayLike | None) -> None:
        self.n_feature_parameters = len(self.value_names)
        if len({values[name] is None for name in self.value_names}) > 1:
            raise ValueError(f"give all of {', '.join(self.value_names)}, or none")
        for name in self.value_names:
            value = values[name]
            setattr(self, name, None if value is None else self._matrix(name, value))
        if self.has_values:
            self.n_parameters = self.n_features * self.n_feature_parameters
            self.n_statistics = 1 + self.n_features * self.n_feature_statistics
            self.check_values()

    def _matrix(self, name: str, value: ArrayLike) -> FloatArray:
        array = frozen(value, name)
        if array.ndim == 1:
            array = array[:, np.newaxis]
        shape = (self.n_components, self.n_features) if self.has_values else array.shape
        if array.ndim != 2 or array.size == 0 or array.shape != shape:
            raise ValueError(f"{name} must have shape (states, features), or (states,), got {np.shape(value)}")
        self.n_components, self.n_features = array.shape
        return array

    def check_values(self) -> None:
        """Raise ValueError if the values are outside their range."""

    def rows(self) -> FloatArray:
        stacked = np.stack([getattr(self, name) for name in self.value_names], axis=2)
        return stacked.reshape(len(stacked), -1)

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        cube = rows.reshape(len(rows), -1, self.n_feature_parameters)
        return {name: cube[:, :, at] for at, name in enumerate(self.value_names)}

    def sized(self, n_components: int, n_features: int) -> Self:
        return type(self)(**dict.fromkeys(self.value_names, np.full((n_components, n_features), 0.5)))

    def layout(self) -> tuple[IntArray, IntArray]:
        parameters = np.arange(self.n_parameters).reshape(self.n_features, -1)
        return parameters, np.arange(1, self.n_statistics).reshape(self.n_features, -1)

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        bounds = self.value_bounds or ((-np.inf, np.inf),) * self.n_feature_parameters
        low, high = np.array(bounds * self.n_features).T
        return np.tile(low, (self.n_components, 1)), np.tile(high, (self.n_components, 1))

    @abstractmethod
    def feature_log_density(self, theta: FloatArray, y: float) -> float:
        """Logarithm of the density of the value ``y`` of one feature."""

    @abstractmethod
    def feature_statistic(self, theta: FloatArray, y: float, s: FloatArray) -> None:
        """Write the sufficient statistic of the value ``y`` of one feature into ``s``.

        Most statistics do not depend on ``theta``. Where the family has a hidden variable of its own, such as the rate
        behind a count, what is written is the expectation of its statistic given ``y``.
        """

    @abstractmethod
    def feature_expectation(self, theta: FloatArray, s: FloatArray) -> None:
        """Write the expected statistic of one feature into ``s``: what stands in for a missing value."""

    @abstractmethod
    def feature_maximize(self, s: FloatArray, overall: FloatArray, theta: FloatArray) -> None:
        """Write the parameters whose expected statistic is ``s``, the mean over the state.

        ``overall`` is the mean over all states: the scale of the data, for a lower limit that keeps ``theta`` sane.
        """

    def feature_gradient(self, theta: FloatArray, weight: float, s: FloatArray, gradient: FloatArray) -> None:
        """Write the derivatives of the log-density of one feature by its parameters.

        ``s`` is the statistic of one value, and ``weight`` 1, or both are sums over many.
        """
        raise NotImplementedError("this family needs a method feature_gradient() for scores and standard errors")

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        for a in range(self.n_features):
            first = a * self.n_feature_parameters
            start = 1 + a * self.n_feature_statistics
            self.feature_gradient(
                theta[first : first + self.n_feature_parameters],
                s[0],
                s[start : start + self.n_feature_statistics],
                gradient[first : first + self.n_feature_parameters],
            )

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        total = 0.0
        for a in range(self.n_features):
            if not is_nan(y[a]):
                first = a * self.n_feature_parameters
                total += self.feature_log_density(theta[first : first + self.n_feature_parameters], y[a])
        return total

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        s[0] = 1.0
        for a in range(self.n_features):
            first = a * self.n_feature_parameters
            start = 1 + a * self.n_feature_statistics
            own_theta = theta[first : first + self.n_feature_parameters]
            own_s = s[start : start + self.n_feature_statistics]
            if is_nan(y[a]):
                self.feature_expectation(own_theta, own_s)
            else:
                self.feature_statistic(own_theta, y[a], own_s)

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        mean = workspace(self.n_statistics)
        overall = workspace(self.n_statistics)
        for c in range(self.n_statistics):
            total = 0.0
            for i in range(self.n_components):
                total += S[i, c]
            overall[c] = total / overall[0] if c > 0 else total
        for i in range(self.n_components):
            if alive[i] > 0.0:
                for c in range(1, self.n_statistics):
                    mean[c] = S[i, c] / S[i, 0]
                for a in range(self.n_features):
                    first = a * self.n_feature_parameters
                    start = 1 + a * self.n_feature_statistics
                    self.feature_maximize(
                        mean[start : start + self.n_feature_statistics],
                        overall[start : start + self.n_feature_statistics],
                        theta[i, first : first + self.n_feature_parameters],
                    )
