"""Speed on line: one observation learned by hmmstream, by a C program compiled on the spot, and in plain NumPy.

All contenders do the same work in the same process, taking turns; each is judged by its best turn. Only ratios mean
anything: times on a shared machine are noise.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from benchmarks.references import InC, InNumPy, Ours, compiler
from benchmarks.turns import best_times, one_core
from examples.rayleigh import Rayleigh
from hmmstream import HMM, Exponential, Gaussian, Learner, Masked, OnlineHMM, StatisticAverage
from hmmstream.averaging import Averaging

REFERENCES = {"C": InC, "NumPy": InNumPy}


class Row(NamedTuple):
    """A line of a table."""

    m: int  # states
    n: int  # observations
    nanoseconds: dict[str, float]  # of each contender, an observation
    differences: dict[str, float]  # largest, between the parameters that a contender ends with and those of hmmstream

    def ratio(self, name: str) -> float:
        """Time of a contender over that of hmmstream."""
        return self.nanoseconds[name] / self.nanoseconds["hmmstream"]


def start_for(m: int) -> HMM:
    """A start some way off the truth: the paper's kind of model with means 0, 1, …, m - 1."""
    transmat = np.full((m, m), 0.3 / (m - 1))
    np.fill_diagonal(transmat, 0.7)
    return HMM(np.full(m, 1 / m), transmat, Gaussian("tied", means=np.arange(m) + 0.2, covars=1.0))


def stream_for(m: int, n: int) -> np.ndarray:
    """A chain of m states in noise of variance 0.2."""
    transmat = np.full((m, m), 0.1 / (m - 1))
    np.fill_diagonal(transmat, 0.9)
    world = HMM(np.full(m, 1 / m), transmat, Gaussian("tied", means=np.arange(m), covars=0.2))
    return world.sample(n, random_state=m)[0]


def visits(m: int) -> int:
    """By then each state has been visited: the references have no rule for those that die."""
    return 200 if m <= 8 else max(1600, 25 * m)


def online(
    m: int, n: int, repeats: int = 25, patience: float = np.inf, references: tuple[str, ...] = tuple(REFERENCES)
) -> Row:
    """One observation of a stream that goes on, after all have learned the first ``n`` and been compared."""
    start, X = start_for(m), stream_for(m, n)
    ours = Ours(start, visits(m))
    others = {name: REFERENCES[name](start, visits(m)) for name in references if name != "C" or compiler()}
    ours.learn(X)
    differences = {}
    for name, other in others.items():
        other.learn(X)
        differences[name] = float(abs(other.values() - ours.values()).max())
    contenders = {"hmmstream": ours, **others}
    turns = [lambda learn=contender.learn: learn(X) for contender in contenders.values()]
    times = best_times(turns, repeats, patience)
    return Row(m, n, {name: time / n * 1e9 for name, time in zip(contenders, times, strict=True)}, differences)


def user_family_against_built_in(n: int, repeats: int = 25) -> float:
    """Time of a family from examples/ over that of a built-in one with as much to compute."""
    chain = ([0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]])
    families = Rayleigh([0.5, 2.0]), Exponential([2.0, 0.5])
    user, built_in = (Learner(HMM(*chain, family), averaging=StatisticAverage()) for family in families)
    X = user.start.sample(n, random_state=0)[0]
    user_s, built_in_s = best_times([lambda: user.learn(X), lambda: built_in.learn(X)], repeats)
    return user_s / built_in_s


def learn_one_microseconds(n: int, repeats: int = 25, averaging: Averaging | str = "auto") -> tuple[float, float]:
    """Time of one call of ``learn_one``, and of an addition in plain Python: how fast the machine is now."""
    hmm, values = OnlineHMM(init=start_for(2), averaging=averaging), stream_for(2, n)[:, 0].tolist()
    n_additions = 10 * n

    def one_by_one() -> None:
        for value in values:
            hmm.learn_one(value)

    def additions() -> None:
        total = 0
        for number in range(n_additions):
            total += number

    call, addition = best_times([one_by_one, additions], repeats)
    return call / n * 1e6, addition / n_additions * 1e6


def blurred_microseconds(m: int, n: int, repeats: int = 2) -> float:
    """Time of an observation with a window, of states that can hardly be told apart: none is ever ruled out."""
    transmat = np.full((m, m), 0.1 / (m - 1))
    np.fill_diagonal(transmat, 0.9)
    world = HMM(np.full(m, 1 / m), transmat, Gaussian("tied", means=3 * np.arange(m) / m, covars=0.2))
    learner, X = Learner(world, n_min=100, engine="window"), world.sample(n, random_state=0)[0]
    learner.learn(X)
    return best_times([lambda: learner.learn(X)], repeats)[0] / n * 1e6


def banded_microseconds(m: int, n: int, update_every: int) -> float:
    """Time of an observation for a chain of many states that only their neighbours are reached from."""
    structure = Masked.banded(m)

    def chain(stay: float, shift: float, variance: float) -> HMM:
        transmat = np.where(structure.mask, (1.0 - stay) / 2.0, 0.0)
        np.fill_diagonal(transmat, stay)
        transmat /= transmat.sum(axis=1, keepdims=True)
        return HMM(np.full(m, 1 / m), transmat, Gaussian("tied", np.arange(m) + shift, variance), structure)

    learner = Learner(chain(0.5, 0.1, 0.6), n_min=4 * m, update_every=update_every)
    X = chain(0.9, 0.0, 0.3).sample(n, random_state=0)[0]
    learner.learn(X)
    return best_times([lambda: learner.learn(X)], 3)[0] / n * 1e6


def main() -> None:
    """Print the table."""
    print("   m   hmmstream (ns)        C    NumPy   times as long")
    with one_core():
        for m, n in ((2, 20_000), (4, 20_000), (8, 20_000), (16, 10_000)):
            row = online(m, n, patience=4.0)
            ratios = " ".join(f"{row.ratio(name):8.2f}" for name in row.differences)
            print(f"{m:4d} {row.nanoseconds['hmmstream']:16.0f} {ratios}", flush=True)
        ratio = user_family_against_built_in(200_000)
        print(f"\na user's own family (examples/rayleigh.py) / built-in Exponential: {ratio:.2f}")
        print(f"learn_one: {learn_one_microseconds(50_000)[0]:.2f} µs a call")


if __name__ == "__main__":
    sys.exit(main())
