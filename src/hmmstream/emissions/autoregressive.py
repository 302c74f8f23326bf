"""Switching autoregression: a series that depends on its own past, in each state in its own way."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import BoolArray, FloatArray
from hmmstream.emissions.linear_regression import LinearRegression


class AutoRegressive(LinearRegression):
    """A series whose next value is linear in its last ones, plus normal noise: in each state another recursion.

    This is the regression on the values before. X has one column. The first rows of a sequence, and those after a
    missing value, lack what they depend on: like missing rows they say nothing. There is no forecast of the value yet:
    it is NaN.

    Parameters
    ----------
    order : int, not needed when values are given
        How many earlier values count.
    coefficients : (m, order), or (m,) for order 1
        Of the last value, the one before it, …
    intercepts : (m,)
    variances : (m,)
        Of the noise.

    Examples
    --------
    >>> from hmmstream import HMM, AutoRegressive
    >>> regimes = AutoRegressive(coefficients=[[0.9], [-0.5]], intercepts=[0.0, 0.0], variances=[1.0, 1.0])
    >>> X, states = HMM([0.5, 0.5], [[0.99, 0.01], [0.01, 0.99]], regimes).sample(100, random_state=0)
    >>> X.shape
    (100, 1)
    """

    def __init__(
        self,
        order: int | None = None,
        coefficients: ArrayLike | None = None,
        intercepts: ArrayLike | None = None,
        variances: ArrayLike | None = None,
    ) -> None:
        super().__init__(order, coefficients, intercepts, variances)
        self.order = self.n_lags = self.n_inputs

    def embed(self, X: FloatArray, is_start: BoolArray, before: FloatArray) -> FloatArray:
        n, p = len(X), self.n_lags
        series = np.concatenate([before[::-1], X[:, 0]])
        lags = np.stack([series[p - 1 - lag : p - 1 - lag + n] for lag in range(p)], axis=1)
        last_start = np.maximum.accumulate(np.where(is_start, np.arange(n), -p)) if n else np.arange(0)
        lags[(np.arange(n) - last_start)[:, np.newaxis] <= np.arange(p)] = np.nan  # from another sequence
        return np.hstack([lags, X])

    def latest(self, rows: FloatArray) -> FloatArray:
        return np.append(rows[-1, -1], rows[-1, : self.n_lags - 1])

    def sized(self, n_components: int, n_features: int) -> Self:
        if n_features not in (self.n_columns, self.n_features):
            raise ValueError(f"X has {n_features} columns, but AutoRegressive expects one series")
        return super().sized(n_components, self.n_features)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """NaN: what will be observed depends on values that are still to come."""
        unknown = np.full((self.n_components, self.n_columns), np.nan)
        return unknown, unknown

    def sample(self, states: Any, rng: np.random.Generator) -> FloatArray:
        """A series that starts where the recursion of its first state would come to rest, if anywhere, or at zero."""
        noise = rng.standard_normal(len(states)) * np.sqrt(self.variances[states])
        slack = 1.0 - self.coefficients.sum(axis=1)
        rest = np.where(slack > 0.0, self.intercepts / np.where(slack > 0.0, slack, 1.0), 0.0)
        series = np.empty(self.n_lags + len(states))
        series[: self.n_lags] = rest[states[0]] if len(states) else 0.0
        for t, state in enumerate(states):
            past = series[t : t + self.n_lags][::-1]
            series[t + self.n_lags] = self.intercepts[state] + self.coefficients[state] @ past + noise[t]
        return series[self.n_lags :, np.newaxis]
