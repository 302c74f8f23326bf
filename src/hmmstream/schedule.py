"""Step sizes: how much weight observation n has in the statistic, for n = 1, 2, …

All built-in schedules are one formula with five numbers, which the compiled loop evaluates:
``first`` up to ``n0``, and from there on ``scale * (n - n0) ** -alpha``, but at most ``cap``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from hmmstream.arrays import FloatArray

Step: TypeAlias = "Schedule | Callable[[int], float]"


class Schedule:
    """A built-in schedule."""

    def __init__(self, n0: float, first: float, scale: float, alpha: float, cap: float) -> None:
        self._numbers = (n0, first, scale, alpha, cap)

    def __call__(self, n: int) -> float:
        """The step size at ``n``."""
        n0, first, scale, alpha, cap = self._numbers
        return first if n <= n0 else min(scale * (n - n0) ** -alpha, cap)

    def at(self, n: FloatArray) -> FloatArray:
        """The step sizes at these times, which need not be whole numbers."""
        n0, first, scale, alpha, cap = self._numbers
        later = np.maximum(n - n0, np.finfo(np.float64).tiny)
        return np.where(n <= n0, first, np.minimum(scale * later**-alpha, cap))

    @property
    def memory(self) -> float:
        """The number of observations that the statistic stands for in the long run: infinite, unless old ones fade."""
        n0, first, *_ = self._numbers
        return 2.0 / first - 1.0 if n0 == math.inf else math.inf

    def numbers(self) -> FloatArray:
        """n0, first, scale, alpha and cap, for the compiled loop."""
        return np.array(self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self._numbers == other._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({values})"


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
        super().__init__(n0=0, first=1.0, scale=1.0, alpha=alpha, cap=1.0)
        self.alpha = alpha
        if alpha > 0.8:
            _warn_of_fast_decay(self)


class Harmonic(Schedule):
    """Steps 1/n: every observation weighs the same. Right when the parameters are frozen, poor for learning."""

    def __init__(self) -> None:
        super().__init__(n0=0, first=1.0, scale=1.0, alpha=1.0, cap=1.0)
        _warn_of_fast_decay(self)


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
        super().__init__(n0=math.inf, first=gamma, scale=gamma, alpha=0.0, cap=gamma)
        self.gamma = gamma


class TwoPhase(Schedule):
    """A constant step up to n0, then scale/(n - n0): the hand-tuned schedule of the paper's Figure 4.

    As printed, the step jumps from 0.01 up to 0.5 right after n0. Unless ``as_printed``, it never exceeds ``first``.

    Examples
    --------
    >>> TwoPhase()(10_001), TwoPhase(as_printed=True)(10_001)
    (0.01, 0.5)
    """

    def __init__(self, n0: int = 10_000, first: float = 0.01, scale: float = 0.5, as_printed: bool = False) -> None:
        if not n0 >= 0 or not 0.0 < first <= 1.0 or not 0.0 < scale <= 1.0:
            raise ValueError(f"need n0 >= 0 and first and scale in (0, 1], got {n0!r}, {first!r} and {scale!r}")
        super().__init__(n0=n0, first=first, scale=scale, alpha=1.0, cap=1.0 if as_printed else first)
        self.n0 = n0
        self.first = first
        self.scale = scale
        self.as_printed = as_printed


def _warn_of_fast_decay(schedule: Schedule) -> None:
    warnings.warn(
        f"{schedule!r} shrinks too fast for a hidden Markov model: steps of n^-alpha with alpha above 0.8 perform very "
        "poorly, 1/n worst of all, since the start is forgotten too slowly (Cappé 2011, section 5.3). "
        "Power(0.6) is a good choice, with averaging for accuracy.",
        stacklevel=3,
    )


def is_built_in(step: Any) -> TypeGuard[Schedule]:
    """Whether the compiled loop can evaluate ``step`` by itself."""
    return isinstance(step, Schedule) and type(step).__call__ is Schedule.__call__


def check_step(step: Any) -> None:
    """Refuse what cannot be a schedule of step sizes."""
    if not callable(step):
        raise ValueError(f"step must be a schedule such as Power(0.6), or a function n -> gamma, got {step!r}")


def evaluate(step: Callable[[int], float], start: int, stop: int) -> FloatArray:
    """Step sizes of a user's function for n = start, …, stop - 1. The first observation of all, n = 0, has none."""
    sizes = np.array([1.0 if n == 0 else step(n) for n in range(start, stop)], dtype=np.float64)
    bad = np.flatnonzero(~((sizes > 0.0) & (sizes <= 1.0)))
    if len(bad):
        raise ValueError(f"step({start + bad[0]}) is {sizes[bad[0]]}: a step size must lie in (0, 1]")
    return sizes
