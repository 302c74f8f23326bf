"""Special functions that families share, as plain Python that compiled methods can call.

Where a difference of two of them is what matters, the difference itself is the function: log x - ψ(x) is 1/(2x) for
large x, of which nothing would be left if ψ(x) were taken from log x.
"""

from __future__ import annotations

from math import lgamma, log, log1p, pi, sqrt

from hmmstream.compilable import compilable

FAR = 10.0  # from here on, the first terms of asymptotic series in 1/x are exact to rounding
BESSEL_FAR = 20.0
NEGLIGIBLE = 1e-17  # of a sum: what a further term adds to it
NEWTON_STEPS = 3  # from starts that are a few percent off


@compilable
def log_ratio(x: float, y: float, difference: float) -> float:
    """log(x / y), given ``difference`` = x - y: no digits are lost where x and y are close."""
    if abs(difference) < 0.5 * y:
        return log1p(difference / y)
    return log(x) - log(y)


# --- the gamma function ---------------------------------------------------------------------------------------------


@compilable
def stirling_remainder(x: float) -> float:
    """What Stirling's formula leaves of log Γ(x): log Γ(x) - (x - 1/2) log x + x - log(2π) / 2, for x > 0."""
    if x < FAR:
        return lgamma(x) - (x - 0.5) * log(x) + x - 0.5 * log(2.0 * pi)
    z = 1.0 / (x * x)
    series = z * (1 / 1188 - z * (691 / 360360 - z / 156))
    return (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - series)))) / x


@compilable
def polygamma(x: float) -> tuple[float, float]:
    """log x - ψ(x) and ψ'(x), for x > 0, with ψ the derivative of log Γ. The first falls from 1/x to 1/(2x)."""
    first, second = 0.0, 0.0
    at = x
    while at < FAR:
        inverse = 1.0 / at
        first += inverse
        second += inverse * inverse
        at += 1.0
    if at > x:
        first -= log(at / x)
    inverse = 1.0 / at
    z = inverse * inverse
    series = z * (1 / 132 - z * (691 / 32760 - z / 12))
    first += 0.5 * inverse + z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - series))))
    series = z * (5 / 66 - z * (691 / 2730 - z * 7 / 6))
    second += 0.5 * z + inverse * (1.0 + z * (1 / 6 - z * (1 / 30 - z * (1 / 42 - z * (1 / 30 - series)))))
    return first, second


@compilable
def digamma(x: float) -> float:
    """ψ(x), the derivative of log Γ(x), for x > 0."""
    return log(x) - polygamma(x)[0]


@compilable
def inverse_log_minus_digamma(c: float) -> float:
    """The x with log x - ψ(x) = c, for c > 0.

    1 / (log x - ψ(x)) is nearly linear in x, with a slope between 1 and 2: Newton's method cannot go astray.
    """
    x = (3.0 - c + sqrt((c - 3.0) * (c - 3.0) + 24.0 * c)) / (12.0 * c)
    for _ in range(NEWTON_STEPS):
        value, trigamma = polygamma(x)
        x -= value * (1.0 - value / c) / (trigamma - 1.0 / x)
    return x


# --- Bessel functions -----------------------------------------------------------------------------------------------


@compilable
def bessel(x: float) -> tuple[float, float, float]:
    """log(exp(-x) I₀(x)), A(x) = I₁(x) / I₀(x), and 1 - A(x), for x >= 0: each exact where the others round it away.

    By the power series, and far out by the asymptotic one. All terms of both are positive.
    """
    term, zeroth, first, k = 1.0, 1.0, 0.0, 1.0
    if x < BESSEL_FAR:
        while term > NEGLIGIBLE * zeroth:
            inverse = 1.0 / k
            first += term * inverse
            term *= 0.25 * x * x * inverse * inverse
            zeroth += term
            k += 1.0
        ratio = 0.5 * x * first / zeroth
        return log(zeroth) - x, ratio, 1.0 - ratio
    while term > NEGLIGIBLE:
        odd = 2.0 * k - 1.0
        term *= odd * odd / (8.0 * k * x)
        zeroth += term
        first += term * 4.0 * k / odd  # of the difference of I₀ and I₁
        k += 1.0
    rest = first / zeroth
    return log(zeroth) - 0.5 * log(2.0 * pi * x), 1.0 - rest, rest


@compilable
def inverse_bessel_ratio(ratio: float, rest: float) -> float:
    """The x with I₁(x) / I₀(x) = ``ratio``, for 0 <= ratio < 1, given ``rest`` = 1 - ratio.

    1 / (1 - I₁(x) / I₀(x)) is nearly linear in x, with a slope between 1/2 and 2: Newton's method cannot go astray.
    """
    x = ratio * (2.0 - ratio * ratio) / (rest * (1.0 + ratio))
    if x < 1e-8:
        return x
    for _ in range(NEWTON_STEPS):
        _, value, value_rest = bessel(x)
        slope = value_rest * (1.0 + value) - value / x
        gap = value - ratio if ratio < 0.5 else rest - value_rest
        x -= value_rest * gap / (rest * slope)
    return x
