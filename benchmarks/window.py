"""Exactness: what is learned with a window, beside what the dense recursion learns, for every family and structure.

The dense recursion is the paper's. Chains that mix and chains that hardly do, 10,000 observations of each, some of them
missing; the largest difference between any two parameters or state probabilities, relative where they exceed 1, of all
states and of those that are still there. All is as it is by default: models find their own start, and have the second
stage.

Learning may also be begun from a rough start, or from the true values, by online EM alone. Then states can come to be
alike, or to consist of one observation, and learning itself magnifies rounding errors, so that no two computations
agree. Beside each difference stands the largest that errors of 1e-15 in the start make when the dense recursion learns
(of eight). Each line ends with what this comes to: equal to 1e-9; equal to 1e-9 in the states that are there; or equal
to rounding, if the difference is at most twice that.
"""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

import numpy as np

from hmmstream import HMM, Learner, OnlineHMM, StatisticAverage
from tests import models

STICKY = 1e-3  # probability of leaving a state, in a chain that hardly mixes
STARTS = ("found", "rough", "true")
N_MIN = 20  # observations before the first M-step, as by default
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
    """A start and rows of a family with a transition structure; ``chain`` is "mixing" or "sticky"."""
    world = models.make(family, structure)
    start = models.rough_start(family, structure) if start_is == "rough" else world
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
    learner = hmm.partial_fit(X)._learner.learner
    assert isinstance(learner, Learner)
    return learner


def differences(one: Learner, other: Learner) -> np.ndarray:
    """The largest of each state between any two parameters or probabilities."""
    ours, theirs = numbers(one), numbers(other)
    return np.max(abs(ours - theirs) / np.maximum(abs(ours), 1.0), axis=1)


def numbers(learner: Learner) -> np.ndarray:
    """A row for each state: the raw iterate, the average, and its probability now."""
    both = (learner.last_model, learner.model)
    parts = [part for model in both for part in (model.transmat, model.emission.rows())]
    return np.hstack([*parts, learner.filtered_proba.reshape(-1, 1)])


def compare(
    family: str, structure: str, chain: str, n: int = 10_000, start_is: str = "found", n_min: int = N_MIN
) -> Row:
    """What is learned from a :func:`case` with a window and without; ``n_min`` is for starts that are not found."""
    start, X = case(family, structure, chain, n, start_is)
    rounding = None
    if start_is == "found":
        dense, windowed = (started(start, X, engine) for engine in ("dense", "window"))
    else:
        dense, windowed = (learned(start, X, engine, n_min) for engine in ("dense", "window"))
        others = (learned(rounded(start, seed), X, "dense", n_min) for seed in range(N_ROUNDED))
        rounding = max(float(differences(dense, other).max()) for other in others)
    contents = windowed.contents
    length = 0 if contents is None else len(contents.entries)
    found = differences(dense, windowed)
    is_there = dense.statistic.emissions[:, 0] >= THERE
    return Row(family, structure, chain, float(found.max()), float(found[is_there].max()), rounding, length)


def main(arguments: list[str] | None = None) -> None:
    """Print the table: of all families, it takes half an hour, nearly all of it to compile."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.window", description=__doc__)
    options.add_argument("families", nargs="*", default=list(models.FAMILIES), help="default: all")
    options.add_argument("--start", choices=STARTS, default="found", help="where learning starts (default: found)")
    options.add_argument("--n-min", type=int, default=N_MIN, help=f"with a start that is given (default: {N_MIN})")
    chosen = options.parse_args(arguments)
    print(f"{'family':25s} structure     chain    difference   of those there   by rounding   window   verdict")
    rows = []
    for family in chosen.families:
        for structure in models.STRUCTURES:
            for chain in ("mixing", "sticky"):
                row = compare(family, structure, chain, start_is=chosen.start, n_min=chosen.n_min)
                rows.append(row)
                rounding = "–" if row.rounding is None else f"{row.rounding:.1e}"
                line = f"{family:25s} {structure:13s} {chain:8s} {row.difference:10.1e} {row.there:16.1e}"
                print(f"{line} {rounding:>13s} {row.length:8d}   {row.verdict}", flush=True)
    n_equal = sum(row.difference <= 1e-9 for row in rows)
    print(f"{n_equal} of {len(rows)} equal to 1e-9; largest difference {max(row.difference for row in rows):.1e}")


if __name__ == "__main__":
    sys.exit(main())
