"""Special functions equal scipy's, from Python and compiled, over all the range that data can reach."""

from math import log

import numpy as np
import pytest
from scipy import special as scipy_special

from hmmstream import HMM, Exponential
from hmmstream.compilable import compilable
from hmmstream.emissions import special

WIDE = np.concatenate([np.logspace(-150, 150, 601), np.linspace(0.01, 40.0, 2000)])


def each(function, x):
    return np.array([function(float(value)) for value in x])


def test_digamma():
    """Near its zero at 1.46 the error is that of rounding, in absolute terms."""
    np.testing.assert_allclose(each(special.digamma, WIDE), scipy_special.psi(WIDE), rtol=1e-13, atol=1e-15)


def test_polygamma():
    first, second = each(special.polygamma, WIDE).T
    near, far = WIDE < 1e3, WIDE > 1e5
    x = WIDE[near]
    np.testing.assert_allclose(first[near], np.log(x) - scipy_special.psi(x), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(first[far], (0.5 + 1 / (12 * WIDE[far])) / WIDE[far], rtol=1e-14)
    np.testing.assert_allclose(second, scipy_special.polygamma(1, WIDE), rtol=1e-13)


def test_stirling_remainder():
    x = WIDE[(WIDE > 1e-100) & (WIDE < 100.0)]
    direct = scipy_special.gammaln(x) - (x - 0.5) * np.log(x) + x - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(each(special.stirling_remainder, x), direct, rtol=1e-13, atol=2e-13)
    far = WIDE[WIDE > 1e4]
    np.testing.assert_allclose(each(special.stirling_remainder, far), (1 - 1 / (30 * far**2)) / 12 / far, rtol=1e-13)
    for n in (5, 9, 10, 11, 20):  # of factorials, which are known
        factorial = scipy_special.factorial(n - 1, exact=True)
        expected = log(factorial) - (n - 0.5) * log(n) + n - 0.5 * log(2 * np.pi)
        assert special.stirling_remainder(float(n)) == pytest.approx(expected, abs=1e-14)


def test_bessel():
    log_i0e, ratio, rest = each(special.bessel, WIDE).T
    i0e, i1e = scipy_special.i0e(WIDE), scipy_special.i1e(WIDE)
    np.testing.assert_allclose(log_i0e, np.log(i0e), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(ratio, i1e / i0e, rtol=1e-14)
    near, far = WIDE < 1e3, WIDE > 1e5
    np.testing.assert_allclose(rest[near], 1 - (i1e / i0e)[near], rtol=1e-11)
    np.testing.assert_allclose(rest[far], (0.5 + (1 + 1 / WIDE[far]) / (8 * WIDE[far])) / WIDE[far], rtol=1e-13)
    assert special.bessel(0.0) == (0.0, 0.0, 1.0)


def test_inverses():
    c = np.logspace(-14, 6, 500)
    there = each(special.inverse_log_minus_digamma, c)
    np.testing.assert_allclose(each(special.polygamma, there)[:, 0], c, rtol=1e-13)
    small = np.concatenate([[0.0], np.logspace(-300, -1, 300), np.linspace(0.1, 0.5, 150)])
    rests = np.concatenate([1.0 - small, np.linspace(0.1, 0.5, 150), np.logspace(-14, -1, 300)])
    ratios = np.concatenate([small, 1.0 - rests[len(small) :]])
    there = np.array([special.inverse_bessel_ratio(*pair) for pair in zip(ratios, rests, strict=True)])
    _, ratio, rest = each(special.bessel, there).T
    np.testing.assert_allclose(ratio, ratios, rtol=1e-13)
    np.testing.assert_allclose(rest, rests, rtol=1e-13)


def test_log_ratio_loses_no_digits_where_its_arguments_are_close():
    assert special.log_ratio(1e10 + 1e-5, 1e10, 1e-5) == pytest.approx(1e-15, rel=1e-12)
    assert special.log_ratio(1e-300, 1e150, 1e-300 - 1e150) == pytest.approx(-450 * log(10.0), rel=1e-14)


# --- functions that compiled methods can call -----------------------------------------------------------------------


@compilable
def outer(x):
    return 2.0 * inner(x)


@compilable
def inner(x):
    return special.polygamma(x)[0] + special.bessel(x)[0]


class Family(Exponential):
    """Its log-density is a function that calls others, in a module that is no part of the package."""

    def feature_log_density(self, theta, y):
        return outer(y)


def log_likelihood(emission, y):
    return HMM(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), emission).log_likelihood(y)


def test_compiled_functions_equal_plain_ones_and_call_each_other():
    y = np.logspace(-5, 5, 100)
    expected = sum(outer(value) for value in y)
    assert log_likelihood(Family([1.0, 2.0, 3.0]), y) == pytest.approx(expected, rel=1e-13)


def test_functions_defined_after_the_first_compilation_are_known_too():
    @compilable
    def late(y):
        return -3.0 * y

    class Late(Exponential):
        def feature_log_density(self, theta, y):
            return late(y)

    assert log_likelihood(Late([1.0, 2.0, 3.0]), [2.0]) == pytest.approx(-6.0)
