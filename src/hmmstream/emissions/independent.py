"""Mixed data: features of different kinds, each with a family of its own, independent of each other given the state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from hmmstream.arrays import BoolArray, FloatArray, IntArray
from hmmstream.emissions.base import Emission


class NoFeatures(Emission):
    """No observation at all: what follows the only part of a list of one."""

    value_names = ()
    n_parameters = 0
    n_statistics = 0

    def __init__(self, n_components: int) -> None:
        self.n_components = n_components

    def rows(self) -> FloatArray:
        return np.empty((self.n_components, 0))

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        return {}

    def sized(self, n_components: int, n_features: int) -> Self:
        return type(self)(n_components)

    def sample(self, states: Any, rng: np.random.Generator) -> FloatArray:
        return np.empty((len(states), 0))

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        return 0.0

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        return

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        return

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        return


class Independent(Emission):
    """Observations with features of different kinds, independent of each other given the state.

    Parameters
    ----------
    parts : list of emission families
        The first describes the first features, the next those that follow, and so on. All of them have values, for
        the same number of states, or none has.
    n_features : list of int
        How many features each part describes, if they have no values. By default one each.

    The values are attributes, called as they are in the parts: ``means``, ``rates``. Where several parts use the same
    name, the number of the part follows it: ``means_0``, ``means_1``.

    Examples
    --------
    >>> from hmmstream import Gaussian, Poisson
    >>> mixed = Independent([Gaussian("diag", means=[0.0, 1.0], covars=[1.0, 1.0]), Poisson(rates=[2.0, 8.0])])
    >>> mixed.n_features
    2
    >>> mixed.rates.tolist()
    [[2.0], [8.0]]
    >>> Independent([Gaussian("full"), Poisson()], n_features=[2, 1])
    Independent([Gaussian('full'), Poisson()], n_features=[2, 1])
    """

    # Compiled code takes the list apart: the first part, and the rest, which is a part itself or such a list again. A
    # row of theta is the first's row and then the rest's, parameters and cache; so is the statistic.
    constants: ClassVar[tuple[str, ...]] = ("first", "rest")
    parts: tuple[Emission, ...]
    first: Emission
    rest: Emission

    def __init__(self, parts: Iterable[Emission], n_features: Sequence[int] | None = None) -> None:
        given = list(parts)
        if not given or not all(isinstance(part, Emission) for part in given):
            raise ValueError(f"parts must be a list of emission families, got {given!r}")
        default = [part.n_features or 1 for part in given]
        sizes = default if n_features is None else list(n_features)
        if len(sizes) != len(given) or any(
            size < 1 or part.n_features not in (0, size) for part, size in zip(given, sizes, strict=False)
        ):
            raise ValueError(f"n_features must hold the number of features of each part, as in {default}, got {sizes}")
        flat = [(part, size) for part, size in zip(given, sizes, strict=True) for part, size in _members(part, size)]
        self.part_features = tuple(size for _, size in flat)
        self._set_parts([part for part, _ in flat])

    @property
    def has_gradient(self) -> bool:
        """Whether the family can be differentiated by its parameters."""
        return all(part.has_gradient for part in self.parts)

    def _set_parts(self, parts: Sequence[Emission]) -> None:
        numbers = {part.n_components for part in parts}
        if len(numbers) > 1:
            raise ValueError(
                "either all parts have values, for the same number of states, or none has: their numbers of states are "
                f"{[part.n_components for part in parts]}"
            )
        if any(part.n_lags for part in parts):
            raise ValueError("AutoRegressive depends on earlier rows, which parts of mixed data do not see")
        self.parts = tuple(parts)
        names = [name for part in parts for name in part.value_names]
        self._names = [
            [name if names.count(name) == 1 else f"{name}_{number}" for name in part.value_names]
            for number, part in enumerate(parts)
        ]
        self.value_names = tuple(name for of_part in self._names for name in of_part)
        self.n_components = numbers.pop()
        if self.has_values:
            first, *others = parts
            self.first = first
            self.rest = (
                Independent(others) if len(others) > 1 else others[0] if others else NoFeatures(len(first.rows()))
            )
            self.n_features = sum(self.part_features)
            self.n_parameters = sum(part.n_parameters for part in parts)
            self.n_cached = sum(part.n_cached for part in parts)
            self.n_statistics = sum(part.n_statistics for part in parts)
            self.is_centred = any(part.is_centred for part in parts)
            for part, own in zip(parts, self._names, strict=True):
                for name, value in zip(own, part.value_names, strict=True):
                    setattr(self, name, getattr(part, value))

    def with_parts(self, parts: Sequence[Emission]) -> Self:
        """The same families with other values."""
        other = copy(self)
        other._set_parts(parts)
        return other

    # --- matrices, taken apart by their columns ---------------------------------------------------------------------

    def _features(self, X: FloatArray) -> list[FloatArray]:
        return _split(X, self.part_features)

    def _parameters(self, rows: Any) -> list[Any]:
        return _split(rows, [part.n_parameters for part in self.parts])

    def _thetas(self, theta: Any) -> list[Any]:
        return _split(theta, [part.width for part in self.parts])

    def _statistics(self, S: Any) -> list[Any]:
        return _split(S, [part.n_statistics for part in self.parts])

    # --- seen from Python -------------------------------------------------------------------------------------------

    @property
    def centre_size(self) -> int:
        return sum(part.centre_size for part in self.parts)

    @property
    def specification(self) -> tuple[Any, ...]:
        return tuple((type(part), *part.specification) for part in self.parts), self.part_features

    def arguments(self) -> dict[str, Any]:
        return {"parts": list(self.parts), "n_features": list(self.part_features)}

    def rows(self) -> FloatArray:
        return np.hstack([part.rows() for part in self.parts])

    def shaped(self, rows: FloatArray) -> dict[str, FloatArray]:
        values: dict[str, FloatArray] = {}
        for part, names, own in zip(self.parts, self._names, self._parameters(rows), strict=True):
            shaped = part.shaped(own)
            values |= {name: shaped[value] for name, value in zip(names, part.value_names, strict=True)}
        return values

    def with_rows(self, rows: FloatArray) -> Self:
        return self.with_parts(
            [part.with_rows(own) for part, own in zip(self.parts, self._parameters(rows), strict=True)]
        )

    def with_theta(self, theta: FloatArray) -> Self:
        return self.with_parts(
            [part.with_theta(own) for part, own in zip(self.parts, self._thetas(theta), strict=True)]
        )

    def sized(self, n_components: int, n_features: int) -> Self:
        if n_features != sum(self.part_features):
            raise ValueError(
                f"X has {n_features} columns, but the parts of {self!r} describe {sum(self.part_features)}: say how "
                "many each describes, as in Independent([...], n_features=[2, 1])"
            )
        sizes = zip(self.parts, self.part_features, strict=True)
        return type(self)([part.sized(n_components, size) for part, size in sizes])

    def coordinates(self, X: FloatArray) -> FloatArray:
        own = zip(self.parts, self._features(X), strict=True)
        return np.hstack([part.coordinates(columns) for part, columns in own])

    def set_apart(self) -> Self | None:
        apart = [part.set_apart() for part in self.parts]
        if not any(apart):
            return None
        return self.with_parts([new or part for new, part in zip(apart, self.parts, strict=True)])

    def parameter_table(self) -> IntArray:
        tables: list[IntArray] = []
        n_before = 0
        for part in self.parts:
            tables.append(n_before + part.parameter_table())
            n_before = int(tables[-1].max()) + 1
        return np.hstack(tables)

    def is_fixed(self) -> BoolArray:
        return np.hstack([part.is_fixed() for part in self.parts])

    def positions(self) -> FloatArray:
        return self.first.positions()

    def bounds(self) -> tuple[FloatArray, FloatArray]:
        low, high = zip(*(part.bounds() for part in self.parts), strict=True)
        return np.hstack(low), np.hstack(high)

    @property
    def sums_to_one(self) -> tuple[slice | IntArray, ...]:
        columns = self._parameters(np.arange(self.n_parameters)[np.newaxis])
        return tuple(own[0][which] for part, own in zip(self.parts, columns, strict=True) for which in part.sums_to_one)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of what each part describes: a feature, or the indicator of each symbol."""
        means, variances = zip(*(part.moments() for part in self.parts), strict=True)
        return np.hstack(means), np.hstack(variances)

    def sample(self, states: Any, rng: np.random.Generator) -> FloatArray:
        return np.hstack([part.sample(states, rng) for part in self.parts])

    def theta(self) -> FloatArray:
        return np.hstack([part.theta() for part in self.parts])

    @property
    def limits(self) -> slice | IntArray:
        columns = self._thetas(np.arange(self.width)[np.newaxis])
        return np.concatenate([own[0][part.limits] for part, own in zip(self.parts, columns, strict=True)])

    def limit(self, X: FloatArray, theta: FloatArray) -> None:
        for part, columns, own in zip(self.parts, self._features(X), self._thetas(theta), strict=True):
            part.limit(columns, own)

    def is_limited(self, theta: FloatArray) -> bool:
        return any(part.is_limited(own) for part, own in zip(self.parts, self._thetas(theta), strict=True))

    def domain_at(self, column: int) -> str:
        if column < self.first.n_features:
            return self.first.domain_at(column)
        return self.rest.domain_at(column - self.first.n_features)

    def centres(self, theta: FloatArray) -> FloatArray:
        return np.hstack([part.centres(own) for part, own in zip(self.parts, self._thetas(theta), strict=True)])

    def uncentred(self, theta: FloatArray, statistic: FloatArray) -> FloatArray:
        own = zip(self.parts, self._thetas(theta), self._statistics(statistic), strict=True)
        return np.hstack([part.uncentred(rows, S) for part, rows, S in own])

    def __repr__(self) -> str:
        sizes = f", n_features={list(self.part_features)}"
        is_plain = self.has_values or set(self.part_features) == {1}
        return f"{type(self).__name__}({list(self.parts)!r}{'' if is_plain else sizes})"

    # --- compiled ---------------------------------------------------------------------------------------------------

    def accepts_at(self, column: int, value: float) -> bool:
        if column < self.first.n_features:
            return self.first.accepts_at(column, value)
        return self.rest.accepts_at(column - self.first.n_features, value)

    def is_missing(self, y: FloatArray) -> bool:
        d = self.first.n_features
        return self.first.is_missing(y[:d]) and self.rest.is_missing(y[d:])

    def log_density(self, theta: FloatArray, y: FloatArray) -> float:
        d, width = self.first.n_features, self.first.width
        return self.first.log_density(theta[:width], y[:d]) + self.rest.log_density(theta[width:], y[d:])

    def shared_log_density(self, theta: FloatArray, y: FloatArray) -> float:
        d, width = self.first.n_features, self.first.width
        shared = self.first.shared_log_density(theta[:width], y[:d])
        return shared + self.rest.shared_log_density(theta[width:], y[d:])

    def shared_density(self, theta: FloatArray, y: FloatArray) -> float:
        d, width = self.first.n_features, self.first.width
        return self.first.shared_density(theta[:width], y[:d]) * self.rest.shared_density(theta[width:], y[d:])

    def statistic(self, theta: FloatArray, y: FloatArray, s: FloatArray) -> None:
        d, width, p = self.first.n_features, self.first.width, self.first.n_statistics
        self.first.statistic(theta[:width], y[:d], s[:p])
        self.rest.statistic(theta[width:], y[d:], s[p:])

    def maximize(self, S: FloatArray, alive: FloatArray, theta: FloatArray) -> None:
        width, p = self.first.width, self.first.n_statistics
        self.first.maximize(S[:, :p], alive, theta[:, :width])
        self.rest.maximize(S[:, p:], alive, theta[:, width:])

    def gradient(self, theta: FloatArray, s: FloatArray, gradient: FloatArray) -> None:
        n, width, p = self.first.n_parameters, self.first.width, self.first.n_statistics
        self.first.gradient(theta[:width], s[:p], gradient[:n])
        self.rest.gradient(theta[width:], s[p:], gradient[n:])

    def prepare(self, theta: FloatArray) -> None:
        self.first.prepare(theta[:, : self.first.width])
        self.rest.prepare(theta[:, self.first.width :])

    def move_centre(self, theta: FloatArray, S: FloatArray, shift: FloatArray) -> None:
        c, width, p = self.first.centre_size, self.first.width, self.first.n_statistics
        self.first.move_centre(theta[:width], S[:p], shift[:c])
        self.rest.move_centre(theta[width:], S[p:], shift[c:])

    def translate(self, s: FloatArray, shift: FloatArray) -> None:
        c, p = self.first.centre_size, self.first.n_statistics
        self.first.translate(s[:p], shift[:c])
        self.rest.translate(s[p:], shift[c:])


def _members(part: Emission, size: int) -> list[tuple[Emission, int]]:
    """The part and its number of features; of a list within the list, its parts and theirs."""
    return list(zip(part.parts, part.part_features, strict=True)) if isinstance(part, Independent) else [(part, size)]


def _split(array: Any, sizes: Sequence[int]) -> list[Any]:
    """So many columns for each, as views."""
    return np.split(array, np.cumsum(sizes)[:-1], axis=1)
