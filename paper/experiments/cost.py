"""Table 1, and how the cost grows with the number of states."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.speed import start_for, stream_for
from benchmarks.turns import best_times
from hmmstream import HMM, Learner, Power, Tied
from hmmstream.em import EM
from hmmstream.record import Record
from paper.algorithms import Theta, batch_em_forward_backward, batch_em_recursive, online_em, theta_of
from paper.model import START, Scale, record, values

OCTAVE = Path(__file__).parent.parent / "octave"
FORWARD_BACKWARD = "batch EM, forward–backward"
METHODS = ("online EM", "batch EM, recursive", FORWARD_BACKWARD)  # of batch EM one iteration
PRINTED = {"MATLAB 7.7": (1.57, 1.24, 0.31), "OCTAVE 3.0": (5.66, 3.98, 2.94)}  # seconds in the paper's Table 1
TIED = "online EM, two transition parameters"


class Time(NamedTuple):
    """A cell of Table 1."""

    implementation: str
    method: str
    n: int
    seconds: float
    difference: float  # largest, between the parameters it ends with and those of the engine


class Growth(NamedTuple):
    """Time of one observation."""

    implementation: str
    method: str
    m: int
    seconds: float


def engine(start: HMM, Y: Any) -> list[Callable[[], Learner | EM]]:
    """The three methods in hmmstream. What all iterations on a record have in common is made ready beforehand."""
    learner = Learner(start, averaging=None, engine="dense")  # the paper's recursion, however many states there are
    data = Record(Y, np.arange(len(Y)) == 0)
    recursive = EM(start, data, method="recursive", start_kind="fixed")
    forward_backward = EM(start, data, method="forward-backward", start_kind="fixed")

    def online() -> Learner:
        learner.reset()
        learner.learn(Y)
        return learner

    def iterate(em: EM) -> EM:
        em.maximize(em.expect())
        return em

    return [online, lambda: iterate(recursive), lambda: iterate(forward_backward)]


def twins(start: HMM, Y: Any) -> list[Callable[[], Theta]]:
    """The three methods in plain NumPy."""
    given = (theta_of(start), start.startprob, Y[:, 0])
    return [
        lambda: online_em(*given, step=Power(0.6)),
        lambda: batch_em_recursive(*given),
        lambda: batch_em_forward_backward(*given),
    ]


def has_octave() -> bool:
    """Whether GNU Octave is installed."""
    return shutil.which("octave-cli") is not None


def octave(*arguments: str, cwd: str | None = None) -> list[str]:
    """The lines that Octave prints."""
    command = ["octave-cli", "--no-init-file", "--path", str(OCTAVE), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        raise RuntimeError(f"Octave failed: {done.stderr.strip() or 'it printed nothing'}")
    return done.stdout.splitlines()


def octave_methods(Y: Any, repeats: int) -> list[list[float]]:
    """The three methods in Octave: for each the best time, and the five parameters it ends with."""
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder, "record.txt"), Y, fmt="%.17g")
        lines = octave(str(OCTAVE / "table_1.m"), "record.txt", str(repeats), cwd=folder)
    return [[float(word) for word in line.split()] for line in lines]


def table_1(seed: int, run: int, scale: Scale) -> Iterator[Time]:
    """The three methods on one record from the paper's start: in run 0 compiled and in NumPy, in run 1 in Octave."""
    Y = record(seed, 0)[: scale.table]
    ours, plain = engine(START, Y), twins(START, Y)
    ends = np.array([values(method().model) for method in ours])
    if run == 0:
        plain_ends = np.array([[q[0, 0], q[1, 1], *mu, upsilon] for q, mu, upsilon in (method() for method in plain)])
        seconds = best_times([*ours, *plain], scale.repeats)
        for at, method in enumerate(METHODS):
            yield Time("hmmstream", method, scale.table, seconds[at], 0.0)
            yield Time("NumPy", method, scale.table, seconds[3 + at], float(abs(plain_ends[at] - ends[at]).max()))
    else:
        name = f"Octave {octave('--version')[0].split()[-1]}"
        for at, (taken, *end) in enumerate(octave_methods(Y, min(scale.repeats, 3))):
            yield Time(name, METHODS[at], scale.table, taken, float(abs(end - ends[at]).max()))


class Case(NamedTuple):
    """What the growth of the cost is measured at."""

    implementation: str
    method: str
    m: int


def cases(scale: Scale) -> list[Case]:
    """Forward–backward has so little to do that its growth shows only with four times as many states."""
    return [
        *(Case("hmmstream", method, m) for method in (*METHODS[:2], TIED) for m in scale.engine_states),
        *(Case("hmmstream", FORWARD_BACKWARD, 4 * m) for m in scale.engine_states),
        *(Case("NumPy", method, m) for method in METHODS[:2] for m in scale.twin_states),
        *(Case("NumPy", FORWARD_BACKWARD, 4 * m) for m in scale.twin_states),
    ]


def growth(seed: int, run: int, scale: Scale) -> Iterator[Growth]:
    """One case a run: the best of many turns, which together take about half a second or more."""
    implementation, method, m = case = cases(scale)[run]
    n = 4_000 if method == FORWARD_BACKWARD else max(2_000_000 // m**3, 40)
    start, Y = start_for(m), stream_for(m, n)
    if method == TIED:
        start = HMM(start.startprob, start.transmat, start.emission, Tied(1 - np.eye(m, dtype=int)))
    methods = (engine if implementation == "hmmstream" else twins)(start, Y)
    work = methods[METHODS.index(method)] if method in METHODS else methods[0]
    with np.errstate(invalid="ignore"):  # of states that were never visited
        work()  # compiles
        (once,) = best_times([work], 1)
        turns = max(scale.repeats, round(0.5 / once))
        yield Growth(*case, best_times([work], turns)[0] / n)
