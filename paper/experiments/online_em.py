"""Figures 3, 4 and 5, and what the paper left open: online EM with other steps and other averages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

from hmmstream import Harmonic, Learner, Polyak, Power, TwoPhase
from hmmstream.averaging import Averaging, StatisticAverage
from hmmstream.schedule import Schedule
from paper.experiments.batch_em import Estimate
from paper.model import SIZES, START, Scale, record, values

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of steps that shrink too fast: to show this is the point
    STEPS: dict[str, Schedule] = {
        "n^-0.6": Power(0.6),  # Figure 3
        "n^-0.8": Power(0.8),
        "n^-0.9": Power(0.9),
        "1/n": Harmonic(),
        "two-phase, as printed": TwoPhase(as_printed=True),  # Figure 4
        "two-phase": TwoPhase(),
    }

AVERAGES: dict[str, Callable[[int], Averaging]] = {  # of n^-0.6
    "averaged from 8,000": lambda n: Polyak(8_000),  # Figure 5
    "averaged from 20,000": lambda n: Polyak(20_000),
    "averaged from n/2": lambda n: Polyak(n // 2),
    "averaged in S": lambda n: StatisticAverage(),
}


def estimates(seed: int, run: int, scale: Scale) -> Iterator[Estimate]:
    """Algorithm 2 with each of the steps, and with each of the averages."""
    Y = record(seed, run)
    for n in SIZES:
        for method, step in STEPS.items():
            learner = Learner(START, step=step, averaging=None)
            learner.learn(Y[: n + 1])
            yield Estimate(method, n, run, *values(learner.model))
        for method, averaging in AVERAGES.items():
            learner = Learner(START, step=STEPS["n^-0.6"], averaging=averaging(n))
            learner.learn(Y[: n + 1])
            yield Estimate(method, n, run, *values(learner.model))
