"""Step sizes: how much weight observation n has in the statistic, for n = 1, 2, …

All built-in schedules are one formula with seven numbers, which the compiled loop evaluates: ``first`` up to ``n0``,
from there on ``scale * (n - n0) ** -alpha``, but at most ``cap``, and after ``n1`` the ``last``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np

from hmmstream.arrays import FloatArray, IntArray

LARGEST_EXPONENT = 700.0  # of a finite number
SETTLED = 5.0  # times its memory, after which a schedule that tracks has its last step

Step: TypeAlias = "Schedule | Callable[[int], float]"


class Schedule:
    """A built-in schedule."""

    def __init__(
        self,
        n0: float,
        first: float,
        scale: float,
        alpha: float,
        cap: float,
        n1: float = math.inf,
        last: float = 0.0,
    ) -> None:
        self._numbers = (n0, first, scale, alpha, cap, n1, last)

    def __call__(self, n: int) -> float:
        """The step size at ``n``."""
        n0, first, scale, alpha, cap, n1, last = self._numbers
        return first if n <= n0 else last if n > n1 else min(scale * (n - n0) ** -alpha, cap)

    def at(self, n: FloatArray) -> FloatArray:
        """The step sizes at these times, which need not be whole numbers."""
        n0, first, scale, alpha, cap, n1, last = self._numbers
        later = np.maximum(n - n0, np.finfo(np.float64).tiny)
        return np.where(n <= n0, first, np.where(n > n1, last, np.minimum(scale * later**-alpha, cap)))

    @property
    def memory(self) -> float:
        """The number of observations that the statistic stands for in the long run: infinite, unless old ones fade."""
        n0, first, *_, n1, last = self._numbers
        gamma = first if n0 == math.inf else last if n1 < math.inf else 0.0
        return 2.0 / gamma - 1.0 if gamma > 0.0 else math.inf

    def numbers(self) -> FloatArray:
        """n0, first, scale, alpha, cap, n1 and last, for the compiled loop."""
        return np.array(self._numbers)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._numbers = (*self._numbers, math.inf, 0.0)[:7]  # a pickle from before has five of them

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


class Track(Schedule):
    """For a world that changes: steps that become smaller at first, and then stay: old observations are forgotten.

    The steps are n^-alpha, and have come to 2 / (memory + 1) after five times ``memory`` observations (sooner with a
    memory of less than 60, later with one of more than 20,000: alpha is at least 0.6 and at most 0.8).

    It comes with a watch on the predictive likelihood, which notices changes: see :mod:`hmmstream.detection`.

    Parameters
    ----------
    memory : int
        The number of observations that estimates stand for, in the long run. What is ``memory`` observations old counts
        for a seventh of what is new.
    alarm_every : number
        Observations between two false alarms, on average, of those that are watched: after the beginning and after an
        alarm, ``memory`` and 2,048 more are not. ``math.inf`` for no alarms.
    restart : bool
        Whether an alarm makes steps large again, as they are after 256 observations: then all before is soon forgotten.

    Examples
    --------
    >>> Track(memory=1999)(10**6)
    0.001
    """

    def __init__(self, memory: float = 2_000, alarm_every: float = 1e6, restart: bool = True) -> None:
        if not 1.0 <= memory < math.inf:
            raise ValueError(f"memory must be a number of observations, got {memory!r}")
        if not alarm_every > 0.0:
            raise ValueError(f"alarm_every must be a number of observations, got {alarm_every!r}")
        last = 2.0 / (memory + 1.0)
        alpha = min(max(-math.log(last) / math.log(SETTLED * memory), 0.6), 0.8)
        n1 = math.exp(min(-math.log(last) / alpha, LARGEST_EXPONENT))
        super().__init__(n0=0, first=1.0, scale=1.0, alpha=alpha, cap=1.0, n1=n1, last=last)
        self._memory = memory
        self.alarm_every = alarm_every
        self.restart = restart

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_memory" not in state:  # a pickle from before steps came to the last one by degrees: the memory was n1
            Track.__init__(self, self._numbers[-2], self.alarm_every, self.restart)

    @property
    def memory(self) -> float:
        return self._memory

    def arguments(self) -> dict[str, Any]:
        """What makes the same schedule."""
        return {"memory": self.memory, "alarm_every": self.alarm_every, "restart": self.restart}

    def __repr__(self) -> str:
        return f"Track(memory={self.memory:g}, alarm_every={self.alarm_every:g}, restart={self.restart})"

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self._numbers, self.alarm_every, self.restart))


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


def resolve(step: Any) -> Step:
    """A schedule from its object or its name. What cannot be one is refused."""
    if step == "track":
        return Track()
    if not callable(step):
        raise ValueError(f"step must be 'track', a schedule such as Power(0.6), or a function n -> gamma, got {step!r}")
    found: Step = step
    return found


class Sizes(NamedTuple):
    """Step sizes of a user's function, computed before they are needed: if they are none, nothing has changed yet."""

    sizes: FloatArray
    first: int  # the time of the first of them

    @classmethod
    def ahead(cls, step: Callable[[int], float], first: int, stop: int) -> Sizes:
        """Those of times from ``first`` up to ``stop``, and a 0 for missing rows at the end."""
        return cls(np.append(evaluate(step, np.arange(first, stop)), 0.0), first)


def sizes_of_each(step: Step, times: IntArray, stops: IntArray) -> tuple[FloatArray, IntArray]:
    """Step sizes at all times from ``times`` up to ``stops`` of each stream, and at n for a stream in place n - shift.

    Streams whose times overlap share a stretch of step sizes, and a user's function is asked for no others.
    """
    order = np.argsort(times, kind="stable")
    reach = np.maximum.accumulate(stops[order])
    is_first = np.append(True, times[order][1:] > reach[:-1])
    first = np.flatnonzero(is_first)
    starts, ends = times[order][first], reach[np.append(first[1:], len(order)) - 1]
    n = np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])
    sizes = np.where(n == 0, 1.0, step.at(n.astype(np.float64))) if is_built_in(step) else evaluate(step, n)
    places = np.cumsum(np.append(0, (ends - starts)[:-1]))
    shifts = np.empty_like(times)
    shifts[order] = (starts - places)[np.cumsum(is_first) - 1]
    return sizes, shifts


def evaluate(step: Callable[[int], float], times: IntArray) -> FloatArray:
    """Step sizes of a user's function at these times. The first observation of all, n = 0, has none."""
    sizes = np.array([1.0 if n == 0 else step(n) for n in times.tolist()], dtype=np.float64)
    bad = np.flatnonzero(~((sizes > 0.0) & (sizes <= 1.0)))
    if len(bad):
        raise ValueError(f"step({times[bad[0]]}) is {sizes[bad[0]]}: a step size must lie in (0, 1]")
    return sizes
