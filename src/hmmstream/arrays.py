"""Names for array types, and the one way in which user input becomes an array."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

BLOCK_ROWS = 2**16

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]


def is_integer(value: Any) -> bool:
    """Whether ``value`` is a whole number, of Python or of NumPy."""
    return isinstance(value, Integral)


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
    try:
        array: Any = np.ma.asarray(X, dtype=np.float64).filled(np.nan) if np.ma.isMaskedArray(X) else np.asarray(X)
        if array.dtype == object:
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"X must hold numbers (NaN where missing): {error}") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"X must hold real numbers (NaN where missing), got an array of {array.dtype}")
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"X must have shape (n,) or (n, d), a row an observation, got {np.shape(X)}")
    return np.require(array, np.float64, ["C_CONTIGUOUS", "ALIGNED"])


def observations(X: ArrayLike, n_features: int) -> FloatArray:
    """``X`` as a matrix of shape (n, n_features)."""
    array = matrix(X)
    if array.shape[1] != n_features:
        columns = "(n,) or (n, 1)" if n_features == 1 else f"(n, {n_features})"
        raise ValueError(f"X must have shape {columns} for a model of {n_features} feature(s), got {np.shape(X)}")
    return array


def sequence_starts(lengths: ArrayLike, n: int) -> IntArray:
    """The rows at which sequences of these lengths begin."""
    sizes = np.asarray(lengths)
    if sizes.size == n == 0:
        return np.empty(0, dtype=np.int64)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes <= 0).any() or (sizes > n).any() or sizes.sum() != n:
        raise ValueError(f"lengths must be positive integers that sum to the {n} rows of X, got {sizes.tolist()}")
    return np.cumsum(np.append(0, sizes[:-1])).astype(np.int64)


def mean_and_variance(X: FloatArray, largest: float) -> tuple[FloatArray, FloatArray]:
    """Of what was seen in each column, cut off at ``largest``, in memory that does not grow with the record."""
    blocks = [slice(first, first + BLOCK_ROWS) for first in range(0, len(X), BLOCK_ROWS)]
    count = np.maximum(sum((~np.isnan(X[block])).sum(axis=0) for block in blocks), 1)
    zero = np.zeros(X.shape[1])
    mean = sum((np.nansum(np.clip(X[block], -largest, largest) / count, axis=0) for block in blocks), start=zero)
    squares = (np.nansum((np.clip(X[block], -largest, largest) - mean) ** 2 / count, axis=0) for block in blocks)
    return mean, sum(squares, start=zero)
