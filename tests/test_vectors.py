"""The vector arithmetic that exact inference and windows are built on."""

import numpy as np
from numba import njit

from hmmstream.recursions.vectors import (
    exponential,
    load,
    repeat_each,
    spread,
    store,
    total,
    transpose_block,
    where_above,
)


@njit
def exponentials(x, out):
    for at in range(0, len(x), 8):
        store(out, at, exponential(load(x, at, 8)))


def test_the_exponential_is_right_to_the_last_digit_or_so():
    rng = np.random.default_rng(0)
    x = -np.concatenate([rng.uniform(0, 1, 4000), rng.uniform(0, 50, 4000), rng.uniform(0, 708, 4000), [0.0] * 8])
    out = np.empty_like(x)
    exponentials(x, out)
    exact = np.exp(x.astype(np.longdouble))
    assert abs(out / exact - 1).max() < 3e-16
    assert (out[-8:] == 1.0).all()


def test_the_exponential_of_what_is_far_below_zero_is_zero():
    x = np.array([-708.5, -1e3, -1e10, -1e300, -np.inf, np.nan, -707.9, 0.0])
    out = np.empty(8)
    exponentials(x, out)
    assert (out[:6] == 0.0).all()
    np.testing.assert_allclose(out[6:], np.exp(x[6:]), rtol=1e-15)


@njit
def arithmetic(x, y, out):
    a, b = load(x, 0, 5), load(y, 0, 5)
    store(out, 0, a * b + 2.0 * a + spread(1.0, 5) / b)
    store(out, 5, where_above(a, 0.0, b))
    store(out, 10, repeat_each(a, 3))
    return total(a)


def test_operations_are_those_of_arrays():
    rng = np.random.default_rng(1)
    x, y, out = rng.standard_normal(5), rng.standard_normal(5), np.empty(25)
    assert np.isclose(arithmetic(x, y, out), x.sum(), rtol=1e-14)
    np.testing.assert_allclose(out[:5], x * y + 2 * x + 1 / y, rtol=1e-14)
    np.testing.assert_array_equal(out[5:10], np.where(x > 0, y, 0.0))
    np.testing.assert_array_equal(out[10:], np.repeat(x, 3))


@njit
def transposed(source, target):
    transpose_block(source, 2, target, 11, 12)


def test_a_block_becomes_its_transpose():
    source, target = np.arange(120.0).reshape(10, 12), np.zeros((10, 12))
    transposed(source, target)
    block = np.arange(8)[:, np.newaxis] * 12 + np.arange(8)
    np.testing.assert_array_equal(target.ravel()[11 + block], source.ravel()[2 + block].T)
    assert np.count_nonzero(target) == 64
