"""Names for array types, and the one way in which user input becomes an array."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

BLOCK_ROWS = 2**16
UNKNOWN = -1  # the state of a row, where it is not known beforehand
ROUNDING = 1e-8  # by how much the sum of some probabilities may differ from 1
LARGEST_WEIGHT = 1e6  # of a row: with larger ones, sums of the squares of large observations would overflow

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


class RefusedError(ValueError):
    """A value that cannot occur, in words, and where it stands."""

    def __init__(self, row: int, column: int, value: float, reason: str) -> None:
        super().__init__(f"X[{row}, {column}] is {value}: {reason}")
        self.row, self.column, self.value, self.reason = row, column, value, reason


class NotNumbersError(TypeError, ValueError):
    """What should be an array of numbers holds something else."""


def is_integer(value: Any) -> bool:
    """Whether ``value`` is a whole number, of Python or of NumPy."""
    return isinstance(value, Integral)


def permutation(order: ArrayLike, n: int) -> IntArray:
    """``order`` as an array that holds each of 0, …, n - 1 once."""
    array = np.asarray(order)
    if array.dtype.kind not in "iu" or array.shape != (n,) or (np.sort(array) != np.arange(n)).any():
        raise ValueError(f"order must hold each of the states 0, …, {n - 1} once, got {array.tolist()}")
    return array.astype(np.int64)


def frozen(values: ArrayLike, name: str) -> FloatArray:
    """A read-only float64 copy of ``values``, all finite."""
    array = np.array(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers, got {array.tolist()}")
    array.setflags(write=False)
    return array


def thresholds(probabilities: FloatArray) -> FloatArray:
    """Cumulative probabilities: a uniform number falls between two of them. What has probability 0 is never drawn."""
    cumulative = np.cumsum(probabilities, axis=-1)
    return np.asarray(cumulative / cumulative[..., -1:])


def matrix(X: ArrayLike) -> FloatArray:
    """``X`` as a C-ordered float64 matrix, a row an observation. A vector is one feature; masked is missing."""
    if hasattr(X, "toarray"):
        raise TypeError("X must be dense: sparse data are not supported, pass X.toarray()")
    try:
        array: Any = X
        if np.ma.isMaskedArray(X):
            array = np.ma.asarray(X, dtype=np.float64).filled(np.nan)
        elif hasattr(X, "to_numpy") and hasattr(X, "isna"):  # a frame or series of pandas, with its own kind of missing
            array = X.to_numpy(dtype=np.float64, na_value=np.nan)
        array = np.asarray(array)
        if array.dtype == object:
            array = array.astype(np.float64)
    except TypeError as error:
        raise NotNumbersError(f"X must hold numbers (NaN where missing): {error}") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"X must hold numbers (NaN where missing): {error}") from None
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers (NaN where missing)")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"X must hold real numbers (NaN where missing), got an array of {array.dtype}")
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2:
        raise ValueError(f"X must have shape (n,) or (n, d), a row an observation, got {np.shape(X)}")
    if array.shape[1] == 0:
        raise ValueError(f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    array = np.require(array, np.float64, ["C_CONTIGUOUS", "ALIGNED"])
    return array if array.flags.writeable else np.asarray(_Unmarked(array))


class _Unmarked:
    """The memory of an array that is marked as read-only, as those of frames and mapped files are, without the mark.

    Nothing here writes to rows, but for compiled code such arrays are a type of their own: all would be compiled again.
    """

    def __init__(self, array: FloatArray) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def observations(X: ArrayLike, n_features: int) -> FloatArray:
    """``X`` as a matrix of shape (n, n_features)."""
    array = matrix(X)
    if array.shape[1] != n_features:
        columns = "(n,) or (n, 1)" if n_features == 1 else f"(n, {n_features})"
        raise ValueError(
            f"X must have shape {columns} for a model of {n_features} feature(s), got {np.shape(X)}. "
            "Reshape your data: a row is an observation."
        )
    return array


def sequence_starts(lengths: ArrayLike, n: int) -> IntArray:
    """The rows at which sequences of these lengths begin."""
    sizes = np.asarray(lengths)
    if sizes.size == n == 0:
        return np.empty(0, dtype=np.int64)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes <= 0).any() or (sizes > n).any() or sizes.sum() != n:
        raise ValueError(f"lengths must be positive integers that sum to the {n} rows of X, got {sizes.tolist()}")
    return np.cumsum(np.append(0, sizes[:-1])).astype(np.int64)


def known_states(states: ArrayLike | None, n: int, n_components: int) -> IntArray | None:
    """The state of each row, or UNKNOWN; None if no state is known."""
    if states is None:
        return None
    array = np.asarray(states)
    if array.shape != (n,):
        raise ValueError(f"y must hold the state of each of the {n} rows of X, -1 where unknown, got {array.shape}")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"y must hold numbers of states, -1 where unknown, got an array of {array.dtype}")
    bad = np.flatnonzero(~((array >= UNKNOWN) & (array < n_components) & (array == np.floor(array))))
    if len(bad):
        raise ValueError(
            f"y[{bad[0]}] is {array[bad[0]]}: a state is 0, …, {n_components - 1}, or -1 where it is not known"
        )
    return np.ascontiguousarray(array, dtype=np.int64) if (array != UNKNOWN).any() else None


def are_distributions(probabilities: FloatArray, tolerance: float = ROUNDING) -> bool:
    """Whether these are probabilities which sum to 1, along the last axis."""
    return bool((probabilities >= 0.0).all() and (abs(probabilities.sum(axis=-1) - 1.0) <= tolerance).all())


def row_weights(weights: ArrayLike | None, n: int) -> FloatArray | None:
    """How much each row counts; None if all count 1."""
    if weights is None:
        return None
    array = np.array(weights, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(f"sample_weight must hold a number for each of the {n} rows of X, got {array.shape}")
    bad = np.flatnonzero(~((array >= 0.0) & (array <= LARGEST_WEIGHT)))
    if len(bad):
        raise ValueError(
            f"sample_weight[{bad[0]}] is {array[bad[0]]}: a weight is a number from 0 to {LARGEST_WEIGHT:,.0f}"
        )
    return array


def mean_and_variance(X: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
    """Of what was seen in each column, cut off at ``largest``, in memory that does not grow with the record."""
    blocks = [slice(first, first + BLOCK_ROWS) for first in range(0, len(X), BLOCK_ROWS)]
    count = np.maximum(sum((~np.isnan(X[block])).sum(axis=0) for block in blocks), 1)
    zero = np.zeros(X.shape[1])
    mean = sum((np.nansum(np.clip(X[block], -largest, largest) / count, axis=0) for block in blocks), start=zero)
    squares = (np.nansum((np.clip(X[block], -largest, largest) - mean) ** 2 / count, axis=0) for block in blocks)
    return mean, sum(squares, start=zero)
