"""Taking turns: all contenders run in one process, and each is judged by its best turn.

What disturbs one disturbs all, so that ratios mean something; times on a shared machine are noise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

MOST_ITERATIONS = 100  # that are timed at once
LONG_ENOUGH = 0.5  # seconds that they take together, unless one alone takes longer


def seconds(work: Callable[[], object]) -> float:
    """Time that a function takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_times(contenders: Sequence[Callable[[], object]], repeats: int, patience: float = np.inf) -> list[float]:
    """Seconds of each contender's best turn. One that has taken more than ``patience`` seconds has no further turn."""
    best, spent = np.full(len(contenders), np.inf), np.zeros(len(contenders))
    for _ in range(repeats):
        for at in np.flatnonzero(spent <= patience):
            taken = seconds(contenders[at])
            best[at] = min(best[at], taken)
            spent[at] += taken
    return best.tolist()


def timed_iterations(fit: Callable[[int], Any]) -> int:
    """How many iterations are timed at once: enough for what a fit does besides not to matter."""
    once = min(seconds(lambda: fit(1)) for _ in range(2))
    return int(np.clip(LONG_ENOUGH / once, 1, MOST_ITERATIONS))


def iteration_times(fits: Mapping[str, Callable[[int], Any]], repeats: int, patience: float) -> dict[str, float]:
    """Seconds of one iteration of each contender, which does as many as it is told."""
    numbers = {name: timed_iterations(fit) for name, fit in fits.items()}
    best = best_times([lambda name=name: fits[name](numbers[name]) for name in fits], repeats, patience)
    return {name: taken / numbers[name] for name, taken in zip(fits, best, strict=True)}


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The power of the size that times grow with: the slope of the line through their logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


@contextmanager
def one_core() -> Iterator[None]:
    """Everything on one core. Libraries that are loaded in here see a machine of one core."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    try:
        with threadpool_limits(1):
            yield
    finally:
        if cores:
            os.sched_setaffinity(0, cores)
