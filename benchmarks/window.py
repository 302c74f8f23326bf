"""Exactness: what is learned with a window, beside what the dense recursion learns, for every family and structure.

The dense recursion is the paper's. Chains that mix and chains that hardly do, 10,000 observations of each, some of them
missing; the largest difference between any two parameters or state probabilities, relative where they exceed 1, of all
states and of those that are still there. All is as it is by default: models find their own start, from 32,768
observations that come before, and have the second stage. Models of all families have three states; Gaussian ones of 8,
16 and 32 follow.

Learning may also be begun from a rough start, or from the true values, by online EM alone. Then states can come to be
alike, or to consist of one observation, and learning itself magnifies rounding errors, so that two computations need
not agree. Beside each difference stands the largest that errors of 1e-15 in the start make when the dense recursion
learns (of eight), and the largest between the two statistics after any observation under the same parameters: what the
window learns, the dense recursion is led along. Each line ends with what this comes to: equal to 1e-9; equal to 1e-9 in
the states that are there; or equal to rounding, if the difference is at most twice what those errors make.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hmmstream import HMM, Gaussian, Learner, OnlineHMM, StatisticAverage
from tests import models

STICKY = 1e-3  # probability of leaving a state, in a chain that hardly mixes
STARTS = ("found", "rough", "true")
CHAINS = ("mixing", "sticky")
LEVELS, MANY = "levels", (8, 16, 32)  # Gaussian models of so many states
N_MIN = 20  # observations before the first M-step, as by default
N = 10_000  # observations
N_WITH_START = 44_000  # rows: a start is found from 32,768 that are not missing, and 10,000 come after them
N_ROUNDED = 8  # starts that differ by rounding
THERE = 1e-12  # share of the statistic: a state with less has died, its parameters come from next to no observation


class Row(NamedTuple):
    """One line of the table."""

    family: str
    structure: str
    chain: str
    difference: float  # between dense and window
    there: float  # the same, of states that are there
    rounding: float | None  # the largest between dense learners whose starts differ by rounding, if they are given
    led: float | None  # the largest between statistics under the same parameters, if starts are given
    length: int  # of the window at the end

    @property
    def verdict(self) -> str:
        if self.difference <= 1e-9:
            return "equal to 1e-9"
        if self.there <= 1e-9:
            return "equal to 1e-9 in states that are there"
        return "equal to rounding" if self.difference <= 2.0 * (self.rounding or 0.0) else "DIFFERENT"


def sticky(hmm: HMM) -> HMM:
    """The same model, with states that last: rows that are equal stay so, as their structure demands."""
    if np.ptp(hmm.transmat, axis=0).max() == 0.0:
        return hmm
    leave = 1.0 - np.diag(hmm.transmat)
    transmat = hmm.transmat * (STICKY / leave)[:, np.newaxis]
    np.fill_diagonal(transmat, 1.0 - STICKY)
    return HMM(hmm.startprob, transmat, hmm.emission, hmm.transition)


def case(family: str, structure: str, chain: str, n: int, start_is: str) -> tuple[HMM, np.ndarray]:
    """A start and rows of a family with a transition structure; ``chain`` is "mixing" or "sticky".

    One that is "found" is the true model, of which learners get to know no values.
    """
    world = models.make(family, structure)
    start = models.rough_start(family, structure) if start_is == "rough" else world
    if chain == "sticky":
        world, start = sticky(world), sticky(start)
    return start, models.with_gaps(world.sample(n, 1)[0], 0.02)


def case_of_many(m: int, chain: str, n: int, start_is: str) -> tuple[HMM, np.ndarray]:
    """The same for a Gaussian model of many levels."""

    def levels(stay: float, shift: float, variance: float) -> HMM:
        transmat = np.full((m, m), (1.0 - stay) / (m - 1))
        np.fill_diagonal(transmat, stay)
        return HMM(np.full(m, 1 / m), transmat, Gaussian("tied", means=np.arange(m) + shift, covars=variance))

    world = levels(0.9, 0.0, 0.2)
    start = levels(0.7, 0.2, 1.0) if start_is == "rough" else world
    if chain == "sticky":
        world, start = sticky(world), sticky(start)
    return start, models.with_gaps(world.sample(n, 1)[0], 0.02)


def rounded(hmm: HMM, seed: int) -> HMM:
    """The same model, but for errors of 1e-15 in its transitions."""
    transmat = hmm.transmat * (1.0 + 1e-15 * np.random.default_rng(seed).standard_normal(hmm.transmat.shape))
    return HMM(hmm.startprob, transmat / transmat.sum(axis=1, keepdims=True), hmm.emission, hmm.transition)


def learned(start: HMM, X: np.ndarray, engine: str, n_min: int) -> Learner:
    """A learner after all of X."""
    learner = Learner(start, engine=engine, averaging=StatisticAverage(), n_min=n_min)
    learner.learn(X)
    return learner


def started(world: HMM, X: np.ndarray, engine: str) -> Learner:
    """A learner after all of X that knows nothing of this world but its number of states, its family and structure."""
    family = models.specification(world.emission)
    hmm = OnlineHMM(world.n_components, family, transition=world.transition, engine=engine, random_state=0)
    learner = hmm.partial_fit(X)._learner
    assert isinstance(learner, Learner), "the start is still being looked for"
    return learner


def led_difference(start: HMM, X: np.ndarray, n_min: int) -> float:
    """The largest between statistics after any row, where the dense recursion has the parameters that a window learns.

    Relative where they exceed 1.
    """
    windowed = Learner(start, engine="window", averaging=None, n_min=n_min)
    dense = Learner(start, engine="dense", averaging=None, n_min=math.inf)
    largest = 0.0
    for row in X[:, np.newaxis]:
        for learner in (windowed, dense):
            learner.learn(row)
        ours, theirs = (np.hstack([part.ravel() for part in learner.statistic]) for learner in (windowed, dense))
        largest = np.maximum(largest, np.max(abs(ours - theirs) / np.maximum(abs(theirs), 1.0)))  # NaN stays NaN
        dense.state.transmat[:], dense.state.theta[:] = windowed.state.transmat, windowed.state.theta
    return float(largest)


def differences(one: Learner, other: Learner) -> np.ndarray:
    """The largest of each state between any two parameters or probabilities."""
    ours, theirs = numbers(one), numbers(other)
    return np.max(abs(ours - theirs) / np.maximum(abs(ours), 1.0), axis=1)


def numbers(learner: Learner) -> np.ndarray:
    """A row for each state: the raw iterate, the average, what is reported, and its probability now."""
    all_three = learner.last_model, learner._averaged_model, learner.model
    parts = [part for model in all_three for part in (model.transmat, model.emission.rows())]
    return np.hstack([*parts, learner.filtered_proba.reshape(-1, 1)])


def compare(family: str, structure: str, chain: str, start_is: str = "found", n_min: int = N_MIN) -> Row:
    """What is learned from a :func:`case` with a window and without; ``n_min`` is for starts that are not found."""
    start, X = case(family, structure, chain, rows_for(start_is), start_is)
    return compare_from(start, X, start_is, n_min, family, structure, chain)


def compare_many(m: int, chain: str, start_is: str = "found", n_min: int = N_MIN) -> Row:
    """The same for levels of which there are many."""
    start, X = case_of_many(m, chain, rows_for(start_is), start_is)
    return compare_from(start, X, start_is, n_min, f"{m} {LEVELS}", "full", chain)


def rows_for(start_is: str) -> int:
    """So many that 10,000 observations come after the start."""
    return N_WITH_START if start_is == "found" else N


def compare_from(start: HMM, X: np.ndarray, start_is: str, n_min: int, *names: str) -> Row:
    """The line of these ``names`` that tells how far apart those are that learn with a window and without."""
    rounding = led = None
    if start_is == "found":
        dense, windowed = (started(start, X, engine) for engine in ("dense", "window"))
    else:
        dense, windowed = (learned(start, X, engine, n_min) for engine in ("dense", "window"))
        others = (learned(rounded(start, seed), X, "dense", n_min) for seed in range(N_ROUNDED))
        rounding = max(float(differences(dense, other).max()) for other in others)
        led = led_difference(start, X, n_min)
    contents = windowed.contents
    length = 0 if contents is None else len(contents.entries)
    found = differences(dense, windowed)
    is_there = dense.statistic.emissions[:, 0] >= THERE
    return Row(*names, float(found.max()), float(found[is_there].max()), rounding, led, length)


def table(families: list[str], start_is: str, n_min: int) -> Iterator[Row]:
    """All lines of these families, one of which may be LEVELS."""
    for family in families:
        if family == LEVELS:
            for m in MANY:
                for chain in CHAINS:
                    yield compare_many(m, chain, start_is, n_min)
        else:
            for structure in models.STRUCTURES:
                for chain in CHAINS:
                    yield compare(family, structure, chain, start_is=start_is, n_min=n_min)


def main(arguments: list[str] | None = None) -> None:
    """Print the table: of all families, it takes an hour, most of it to compile."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.window", description=__doc__)
    names = [*models.FAMILIES, LEVELS]
    options.add_argument("families", nargs="*", default=names, help=f"default: all, then {LEVELS}: many states")
    options.add_argument("--start", choices=STARTS, default="found", help="where learning starts (default: found)")
    options.add_argument("--n-min", type=int, default=N_MIN, help=f"with a start that is given (default: {N_MIN})")
    chosen = options.parse_args(arguments)
    if chosen.start == "found" and chosen.n_min != N_MIN:
        options.error("--n-min is for a start that is given: --start rough or --start true")
    heading = "difference   of those there   by rounding   same parameters   window   verdict"
    print(f"{'family':25s} structure     chain    {heading}")
    rows = []
    for row in table(chosen.families, chosen.start, chosen.n_min):
        rows.append(row)
        rounding, led = ("–" if number is None else f"{number:.1e}" for number in (row.rounding, row.led))
        line = f"{row.family:25s} {row.structure:13s} {row.chain:8s} {row.difference:10.1e} {row.there:16.1e}"
        print(f"{line} {rounding:>13s} {led:>17s} {row.length:8d}   {row.verdict}", flush=True)
    n_equal = sum(row.difference <= 1e-9 for row in rows)
    print(f"{n_equal} of {len(rows)} equal to 1e-9; largest difference {max(row.difference for row in rows):.1e}")


if __name__ == "__main__":
    sys.exit(main())
