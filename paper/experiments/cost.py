"""Table 1, and how the cost grows with the number of states."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from benchmarks.speed import best_times, start_for, stream_for
from hmmstream import HMM, Learner, Power, Tied
from hmmstream.em import EM, Method
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
    learner = Learner(start, averaging=None)
    data = Record(Y, np.arange(len(Y)) == 0)
    recursive, forward_backward = (EM(start, data, method=m, start_kind="fixed") for m in get_args(Method)[::-1])

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


def octave(Y: Any, repeats: int) -> list[list[float]]:
    """The three methods in Octave: for each the best time, and the five parameters it ends with."""
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder, "record.txt"), Y, fmt="%.17g")
        command = ["octave-cli", "--no-init-file", "--path", OCTAVE, OCTAVE / "table_1.m", "record.txt", str(repeats)]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def table_1(seed: int, run: int, scale: Scale) -> Iterator[Time]:
    """The three methods on one record from the paper's start, in each implementation that there is."""
    Y = record(seed, run)[: scale.table]
    ours, plain = engine(START, Y), twins(START, Y)
    ends = np.array([values(method().model) for method in ours])
    plain_ends = np.array([[q[0, 0], q[1, 1], *mu, upsilon] for q, mu, upsilon in (method() for method in plain)])
    seconds = best_times([*ours, *plain], scale.repeats)
    for at, method in enumerate(METHODS):
        yield Time("hmmstream", method, scale.table, seconds[at], 0.0)
        yield Time("NumPy", method, scale.table, seconds[3 + at], float(abs(plain_ends[at] - ends[at]).max()))
    if shutil.which("octave-cli"):
        for at, (seconds_there, *end) in enumerate(octave(Y, min(scale.repeats, 3))):
            yield Time("Octave", METHODS[at], scale.table, seconds_there, float(abs(end - ends[at]).max()))


def growth(seed: int, run: int, scale: Scale) -> Iterator[Growth]:
    """Each method with more and more states; forward–backward, which has little to do, with four times as many."""

    def measure(implementation: str, method: str, m: int, n: int, work: Callable[[], Any]) -> Growth:
        with np.errstate(invalid="ignore"):  # of states that were never visited
            work()  # compiles
            return Growth(implementation, method, m, best_times([work], scale.repeats)[0] / n)

    for implementation, contenders, all_m in (
        ("hmmstream", engine, scale.engine_states),
        ("NumPy", twins, scale.twin_states),
    ):
        for m_online in all_m:
            for at, method in enumerate(METHODS):
                m, n = m_online, max(2_000_000 // m_online**3, 20)
                if method == FORWARD_BACKWARD:
                    m, n = 4 * m, 4_000
                work = contenders(start_for(m), stream_for(m, n))[at]
                yield measure(implementation, method, m, n, work)
    for m in scale.engine_states:
        start, n = start_for(m), max(2_000_000 // m**3, 20)
        tied = HMM(start.startprob, start.transmat, start.emission, Tied(1 - np.eye(m, dtype=int)))
        yield measure("hmmstream", TIED, m, n, engine(tied, stream_for(m, n))[0])
