"""Speed: one observation learned by the engine, beside a C program compiled on the spot.

All contenders do the same work in the same process, taking turns; each is judged by its best turn. Only ratios mean
anything: times on a shared machine are noise.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from examples.rayleigh import Rayleigh
from hmmstream import HMM, Exponential, Gaussian, Learner, Masked, OnlineHMM
from hmmstream.em import EM
from hmmstream.record import Record

SOURCE = Path(__file__).with_name("online_em.c")
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fPIC"]


class Row(NamedTuple):
    """One line of the table."""

    m: int
    engine_ns: float
    c_ns: float
    ratio: float
    difference: float  # largest, between the parameters that the two end with


def best_times(contenders: list[Callable[[], object]], repeats: int) -> list[float]:
    """Seconds of each contender's best run, all taking turns."""
    best = [np.inf] * len(contenders)
    for _ in range(repeats):
        for at, contender in enumerate(contenders):
            start = time.perf_counter()
            contender()
            best[at] = min(best[at], time.perf_counter() - start)
    return best


def compile_c(m: int, folder: str) -> ctypes.CDLL:
    """The C reference for ``m`` states."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("the comparison with C needs a C compiler (cc or gcc)")
    target = os.path.join(folder, f"online_em_{m}")
    subprocess.run([compiler, *FLAGS, f"-DM={m}", "-c", str(SOURCE), "-o", target + ".o"], check=True)
    # Linked without -ffast-math, which would have this whole process flush small numbers to zero
    subprocess.run([compiler, "-shared", target + ".o", "-o", target + ".so", "-lm"], check=True)
    return ctypes.CDLL(target + ".so")


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


def against_c(m: int, n: int, repeats: int = 25) -> Row:
    """``partial_fit``, log-likelihood and averaging included, against the C program."""
    start, X = start_for(m), stream_for(m, n)
    Y = np.ascontiguousarray(X[:, 0])
    # State of the C program: phi, q, mu, upsilon, rho_q, rho_g, log-likelihood
    g = np.exp(-((Y[0] - start.emission.means[:, 0]) ** 2) / 2)
    rho_g = np.stack([np.eye(m) * Y[0] ** d for d in range(3)])
    state = np.concatenate(
        [g / g.sum(), start.transmat.ravel(), start.emission.means[:, 0], [1.0], np.zeros(m**3), rho_g.ravel(), [0.0]]
    )
    n_min = 200 if m <= 8 else 50 * m  # by then each state has been visited: C has no rule for those that die
    hmm = OnlineHMM(init=start, n_min=n_min)
    with tempfile.TemporaryDirectory() as folder:
        program = compile_c(m, folder).online_em
        pointer = ctypes.c_void_p

        def c() -> None:
            program(pointer(state.ctypes.data), pointer(Y.ctypes.data), ctypes.c_long(n), ctypes.c_long(n_min))

        hmm.partial_fit(X)
        c()
        q, means = state[m : m + m * m].reshape(m, m), state[m + m * m : 2 * m + m * m]
        last = hmm.last_model_
        difference = max(abs(last.transmat - q).max(), abs(last.emission.means[:, 0] - means).max())
        engine_s, c_s = best_times([lambda: hmm.partial_fit(X), c], repeats)
    return Row(m, engine_s / n * 1e9, c_s / n * 1e9, engine_s / c_s, difference)


def user_family_against_built_in(n: int, repeats: int = 25) -> float:
    """Time of a family from examples/ over that of a built-in one with as much to compute."""
    chain = ([0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]])
    user, built_in = Learner(HMM(*chain, Rayleigh([0.5, 2.0]))), Learner(HMM(*chain, Exponential([2.0, 0.5])))
    X = user.start.sample(n, random_state=0)[0]
    user_s, built_in_s = best_times([lambda: user.learn(X), lambda: built_in.learn(X)], repeats)
    return user_s / built_in_s


def learn_one_microseconds(n: int, repeats: int = 25) -> float:
    """Time of one call of ``learn_one``."""
    hmm, values = OnlineHMM(init=start_for(2)), stream_for(2, n)[:, 0].tolist()

    def one_by_one() -> None:
        for value in values:
            hmm.learn_one(value)

    return best_times([one_by_one], repeats)[0] / n * 1e6


def window_nanoseconds(m: int, n: int, repeats: int = 3) -> float:
    """Time of an observation with ``engine="auto"`` and an M-step after each, once all states have been visited."""
    learner = Learner(start_for(m), n_min=50 * m)
    X = stream_for(m, max(n, 50 * m + 1))
    learner.learn(X)
    return best_times([lambda: learner.learn(X[:n])], repeats)[0] / n * 1e9


def exponent(few: int, many: int, n: int) -> float:
    """Power of the number of states that the cost of an observation grows with."""
    ratio = window_nanoseconds(many, n) / window_nanoseconds(few, n)
    return float(np.log(ratio) / np.log(many / few))


def against_forward_backward(m: int, n: int, repeats: int = 25) -> float:
    """Time of learning on line with an M-step every m observations, over that of one E-step of ``BatchHMM``."""
    start, X = start_for(m), stream_for(m, n)
    learner = Learner(start, update_every=m, n_min=50 * m, engine="window")
    em = EM(start, Record(X, np.arange(n) == 0, None, None))
    learner.learn(X)
    em.maximize(em.expect())  # as learner's, its states are told apart from now on
    learner_s, em_s = best_times([lambda: learner.learn(X), em.expect], repeats)
    return learner_s / em_s


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
    print("   m   engine (ns)   C (ns)   engine / C   largest difference of results")
    for m, n, repeats in (
        (2, 200_000, 25),
        (4, 200_000, 25),
        (8, 50_000, 25),
        (16, 10_000, 5),
        (32, 8_000, 3),
        (64, 8_000, 2),
    ):
        row = against_c(m, n, repeats)
        print(f"{row.m:4d} {row.engine_ns:13.0f} {row.c_ns:8.0f} {row.ratio:12.2f} {row.difference:14.1e}", flush=True)
    nanoseconds = window_nanoseconds(128, 4_000)
    print(f" 128 {nanoseconds:13.0f}   (C: more than its stack holds)")
    print(f"\ncost grows with the number of states to the power of {exponent(8, 128, 4_000):.2f} between 8 and 128")
    for m in (16, 32, 64, 128):
        ratio = against_forward_backward(m, 8_000)
        print(f"{m} states, update_every={m} / one E-step of BatchHMM: {ratio:.2f}")
    for m in (16, 32, 64):
        print(f"{m} states that can hardly be told apart: {blurred_microseconds(m, 2_000):.0f} µs an observation")
    ratio = user_family_against_built_in(200_000)
    print(f"\na user's own family (examples/rayleigh.py) / built-in Exponential: {ratio:.2f}")
    microseconds = banded_microseconds(500, 20_000, update_every=1024)
    print(f"500 states, each reached from three, update_every=1024: {microseconds:.1f} µs an observation")
    print(f"learn_one: {learn_one_microseconds(50_000):.2f} µs a call")


if __name__ == "__main__":
    sys.exit(main())
