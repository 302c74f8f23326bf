"""Step sizes: how much weight observation n has in the statistic, for n = 1, 2, …"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from hmmstream.arrays import FloatArray

BLOCK = 1024  # built-in schedules are evaluated in whole blocks, so that a step size never depends on the chunking

Step: TypeAlias = "Schedule | Callable[[int], float]"


class Schedule(ABC):
    """A built-in schedule: evaluated for many n at once."""

    @abstractmethod
    def __call__(self, n: Any) -> Any:
        """The step size at ``n``, an integer or an array of them."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"


def _warn_of_fast_decay(schedule: Schedule) -> None:
    warnings.warn(
        f"{schedule!r} shrinks too fast for a hidden Markov model: steps of n^-alpha with alpha above 0.8 perform very "
        "poorly, 1/n worst of all, since the start is forgotten too slowly (Cappé 2011, section 5.3). "
        "Power(0.6) is a good choice, with averaging for accuracy.",
        stacklevel=3,
    )


class Power(Schedule):
    """Steps n^-alpha. The paper recommends alpha between 0.5 and 0.8.

    Examples
    --------
    >>> Power(0.6)(1)
    1.0
    """

    def __init__(self, alpha: float = 0.6) -> None:
        if not 0.5 < alpha <= 1.0:
            raise ValueError(
                f"alpha must lie in (0.5, 1], got {alpha!r}: only then do steps sum to infinity and their squares not"
            )
        self.alpha = alpha
        if alpha > 0.8:
            _warn_of_fast_decay(self)

    def __call__(self, n: Any) -> Any:
        return np.asarray(n, dtype=np.float64) ** -self.alpha if np.ndim(n) else float(n) ** -self.alpha


class Harmonic(Schedule):
    """Steps 1/n: every observation weighs the same. Right when the parameters are frozen, poor for learning."""

    def __init__(self) -> None:
        _warn_of_fast_decay(self)

    def __call__(self, n: Any) -> Any:
        return 1.0 / n


class Constant(Schedule):
    """The same step at all times: old observations are forgotten, for worlds that change.

    Examples
    --------
    >>> Constant(0.01)(500)
    0.01
    """

    def __init__(self, gamma: float) -> None:
        if not 0.0 < gamma <= 1.0:
            raise ValueError(f"gamma must lie in (0, 1], got {gamma!r}")
        self.gamma = gamma

    def __call__(self, n: Any) -> Any:
        return np.full(np.shape(n), self.gamma) if np.ndim(n) else self.gamma


class TwoPhase(Schedule):
    """A constant step up to n0, then scale/(n - n0): the hand-tuned schedule of the paper's Figure 4.

    As printed, the step jumps from 0.01 up to 0.5 right after n0. Unless ``as_printed``, it never exceeds ``first``.

    Examples
    --------
    >>> TwoPhase()(10_001), TwoPhase(as_printed=True)(10_001)
    (0.01, 0.5)
    """

    def __init__(self, n0: int = 10_000, first: float = 0.01, scale: float = 0.5, as_printed: bool = False) -> None:
        if n0 < 0 or not 0.0 < first <= 1.0 or not 0.0 < scale <= 1.0:
            raise ValueError(f"need n0 >= 0 and first and scale in (0, 1], got {n0!r}, {first!r} and {scale!r}")
        self.n0 = n0
        self.first = first
        self.scale = scale
        self.as_printed = as_printed

    def __call__(self, n: Any) -> Any:
        later = self.scale / np.maximum(np.asarray(n, dtype=np.float64) - self.n0, 1.0)
        if not self.as_printed:
            later = np.minimum(later, self.first)
        steps = np.where(np.asarray(n) <= self.n0, self.first, later)
        return steps if np.ndim(n) else float(steps)


def steps_between(step: Step, start: int, stop: int) -> FloatArray:
    """Step sizes for n = start, …, stop - 1. The entry for n = 0, the first observation of all, is not used."""
    if isinstance(step, Schedule):
        first = start - start % BLOCK
        n = np.arange(first, stop + -stop % BLOCK, dtype=np.float64)
        n[n == 0.0] = 1.0
        return np.asarray(step(n)[start - first : stop - first])
    sizes = np.array([1.0 if n == 0 else step(n) for n in range(start, stop)], dtype=np.float64)
    bad = np.flatnonzero(~((sizes > 0.0) & (sizes <= 1.0)))
    if len(bad):
        raise ValueError(f"step({start + bad[0]}) is {sizes[bad[0]]}: a step size must lie in (0, 1]")
    return sizes


def check_step(step: Any) -> None:
    """Refuse what cannot be a schedule of step sizes."""
    if not callable(step):
        raise ValueError(f"step must be a schedule such as Power(0.6), or a function n -> gamma, got {step!r}")
