"""Figures 1 and 2: batch EM, iteration by iteration, and after 50 iterations on records of growing length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hmmstream import HMM
from hmmstream.em import EM
from hmmstream.record import Record
from paper.model import SIZES, START, TRUTH, Scale, generator, record, values

COMPARED_SIZES = (500, 8_000)  # of Figure 1
SHOWN_ITERATIONS = 100
ITERATIONS = 50  # of Figure 2
SHORT = 5  # iterations that take about as long as online EM, says the paper


class Iterate(NamedTuple):
    """Parameters after an iteration."""

    n: int
    run: int
    iteration: int
    q11: float
    q22: float
    mu1: float
    mu2: float
    upsilon: float


class Estimate(NamedTuple):
    """Parameters that a method ends with, given Y₀ … Y_n."""

    method: str
    n: int
    run: int
    q11: float
    q22: float
    mu1: float
    mu2: float
    upsilon: float


def iterates(Y: Any, n_iter: int) -> Iterator[list[float]]:
    """θ̂₀, and θ after each iteration of EM. The start distribution is no parameter, as the paper has it."""
    em = EM(START, Record(Y, np.arange(len(Y)) == 0), start_kind="fixed")
    yield values(START)
    for _ in range(n_iter):
        em.maximize(em.expect())
        yield values(HMM(*em.model))


def paths(seed: int, run: int, scale: Scale) -> Iterator[Iterate]:
    """Figure 1: all iterations on a short and on a longer record."""
    Y = record(seed, run)
    for n in COMPARED_SIZES:
        for iteration, theta in enumerate(iterates(Y[: n + 1], SHOWN_ITERATIONS)):
            yield Iterate(n, run, iteration, *theta)


def limit(seed: int, run: int, scale: Scale) -> Iterator[Iterate]:
    """Figure 1: the limiting EM trajectory of Theorem 1, from a very long record."""
    Y, _ = TRUTH.sample(scale.long_record, generator(seed, "limit", run))
    for iteration, theta in enumerate(iterates(Y, SHOWN_ITERATIONS)):
        yield Iterate(scale.long_record, run, iteration, *theta)


def estimates(seed: int, run: int, scale: Scale) -> Iterator[Estimate]:
    """Figure 2: the same number of iterations, whatever the length."""
    Y = record(seed, run)
    for n in SIZES:
        for iteration, theta in enumerate(iterates(Y[: n + 1], ITERATIONS)):
            if iteration in (SHORT, ITERATIONS):
                yield Estimate(f"batch EM, {iteration} iterations", n, run, *theta)
