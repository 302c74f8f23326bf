"""Worlds that change: false alarms of the watch, how soon a change is noticed, and a recording that drifts.

False alarms are counted in runs in which nothing changes, of the rows that are watched; the error is that of the count.
After a jump of the means the delay is that of the alarm, and the estimates are those after ``memory`` further rows.
Learning begins with the 500th row: in fewer, some states of the slow world are not seen.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmmstream import HMM, Constant, Gaussian, Learner, OnlineHMM, Poisson, Track
from hmmstream.detection import BLOCK, FEWEST

RECORDING = Path(__file__).parents[2] / "shared" / "data" / "ion_deepchannel_5ch_drift_985.csv"
N_MIN = 500  # rows before the first M-step
PIECE = 500  # rows of the recording that are predicted at a time


def sticky(m: int, stay: float) -> np.ndarray:
    return np.where(np.eye(m) > 0.0, stay, (1.0 - stay) / (m - 1))


WORLDS = {
    "the paper's": HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", [0.0, 1.0], 0.5)),
    "three rates": HMM(np.full(3, 1 / 3), sticky(3, 0.9), Poisson([1.0, 5.0, 12.0])),
    "slowly mixing": HMM([0.5, 0.5], sticky(2, 0.995), Gaussian("full", [0.0, 2.0], [1.0, 0.3])),
}
JUMPS = {
    "the paper's": Gaussian("tied", [1.0, 2.5], 0.5),
    "three rates": Poisson([2.0, 7.0, 16.0]),
    "slowly mixing": Gaussian("full", [1.0, 3.0], [1.0, 0.3]),
}


class Alarms(NamedTuple):
    """False alarms in all runs together."""

    n: int
    watched: int  # rows

    @property
    def every(self) -> float:
        return self.watched / max(self.n, 1)


def false_alarms(world: HMM, memory: int, alarm_every: float, n_rows: int, runs: int, seed: int = 0) -> Alarms:
    """Runs in which nothing changes."""
    n = watched = 0
    for run in range(runs):
        learner = Learner(world, step=Track(memory, alarm_every, restart=False), n_min=N_MIN)
        learner.learn(world.sample(n_rows, [seed, run])[0])
        found = len(learner.changes)
        n += found
        watched += max(n_rows - (found + 1) * (memory + FEWEST * BLOCK), 0)
    return Alarms(n, watched)


class Jump(NamedTuple):
    """What became of a jump: the delay of each run in which it was noticed, and what was left of it in the end."""

    delays: list[int]
    missed: int
    left: float  # of the jump, root mean square


def jumps(name: str, memory: int, alarm_every: float, runs: int, seed: int = 1) -> Jump:
    """Runs in which the means jump after three memories."""
    before = WORLDS[name]
    after = HMM(before.startprob, before.transmat, JUMPS[name])
    value = "rates" if name == "three rates" else "means"
    old, new = getattr(before.emission, value), getattr(after.emission, value)
    delays, errors = [], []
    for run in range(runs):
        n = 3 * memory + FEWEST * BLOCK
        X = np.concatenate([before.sample(n, [seed, run])[0], after.sample(memory, [seed, run, 1])[0]])
        learner = Learner(before, step=Track(memory, alarm_every), n_min=N_MIN)
        learner.learn(X)
        delays += [change.at - n for change in learner.changes if change.at > n][:1]
        found = np.sort(getattr(learner.model.emission, value), axis=0)  # the first steps may have swapped states
        errors.append(found - new)
    return Jump(delays, runs - len(delays), float(np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(new - old)))))


class Gain(NamedTuple):
    """By how much better a row is predicted if the world is tracked, with standard errors."""

    over_model: float  # over the model that is reported if the world is taken for one that does not change
    model_error: float
    over_steps: float  # over the steps n^-0.6 on the way to it, which forget
    steps_error: float


def drift(X: np.ndarray, init: HMM | str, memories: tuple[int, ...]) -> dict[int, Gain]:
    """Each piece of a recording is predicted by models that were learned from the rows before it, then learned from."""
    settings = [{}, *({"step": Track(memory)} for memory in memories)]
    learners = [OnlineHMM(6, Gaussian("tied"), init=init, random_state=0, **one) for one in settings]
    by_model, by_steps = [], []
    for first in range(0, len(X), PIECE):
        piece = X[first : first + PIECE]
        if first >= 4 * PIECE:  # the model that it finds for itself has a start by now
            by_model.append([learner.score(piece) for learner in learners])
            before = [learner.log_likelihood_ for learner in learners]
        for learner in learners:
            learner.partial_fit(piece)
        if first >= 4 * PIECE:
            now = [learner.log_likelihood_ for learner in learners]
            by_steps.append(np.subtract(now, before) / len(piece))
    gains = [table[:, 1:] - table[:, :1] for table in (np.array(by_model), np.array(by_steps))]
    summaries = [(gain.mean(axis=0), gain.std(axis=0) / np.sqrt(len(gain))) for gain in gains]
    return {memory: Gain(*numbers) for memory, *numbers in zip(memories, *summaries[0], *summaries[1], strict=True)}


def cost(n: int = 200_000) -> float:
    """Microseconds that the watch takes for a row, in chunks."""
    world, seconds = WORLDS["the paper's"], {}
    X = world.sample(n, 0)[0]
    for step in (Constant(2.0 / 1001.0), Track(1_000, math.inf)):
        learner = Learner(world, step=step)
        learner.learn(X[:5_000])
        began = time.perf_counter()
        learner.learn(X)
        seconds[type(step)] = time.perf_counter() - began
    return (seconds[Track] - seconds[Constant]) / n * 1e6


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    print("False alarms: rows watched for each, ± the error of the count")
    for name, world in WORLDS.items():
        for memory, asked in ((1_000, 10_000), (5_000, 50_000)):
            found = false_alarms(world, memory, asked, 20 * asked // 4, options.runs)
            error = found.every / np.sqrt(max(found.n, 1))
            print(
                f"  {name:15s} memory {memory:6,}  asked {asked:7,}  found {found.every:8,.0f} ± {error:,.0f}",
                flush=True,
            )
    print("Jumps of the means")
    for name in WORLDS:
        found_jump = jumps(name, 5_000, 1e6, options.runs // 2)
        low, middle, high = np.percentile(found_jump.delays or [np.nan], [5, 50, 95])
        print(
            f"  {name:15s} noticed after {middle:,.0f} rows ({low:,.0f} to {high:,.0f}), missed {found_jump.missed} of "
            f"{options.runs // 2}; after 5,000 rows, the memory, {found_jump.left:.0%} of it is left",
            flush=True,
        )
    if RECORDING.exists():
        X = np.loadtxt(RECORDING, delimiter=",", skiprows=1)[:, 1]
        levels = Gaussian("tied", np.linspace(X.min() + 1.0, X.max() - 1.0, 6), 0.3)
        given = HMM(np.full(6, 1 / 6), sticky(6, 0.9), levels)
        for name, init in (("which finds its start", "auto"), ("from a given start", given)):
            print(f"Drifting recording, a model {name}: by how much better tracking predicts a row")
            for memory, gain in drift(X, init, (500, 1_000, 2_000, 3_000, 5_000, 10_000)).items():
                print(
                    f"  memory {memory:6,}  than the model of a world that does not change {gain.over_model:.4f} "
                    f"± {gain.model_error:.4f}, than its steps {gain.over_steps:7.4f} ± {gain.steps_error:.4f}",
                    flush=True,
                )
    print(f"The watch takes {cost():.2f} µs a row")


if __name__ == "__main__":
    main()
