"""The paper's recursion written a second and a third time: in C, compiled on the spot, and in plain NumPy.

Each contender learns the model of Algorithm 2, free means and one variance, and goes on with whatever it is given.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from hmmstream import HMM, OnlineHMM, StatisticAverage
from paper.algorithms import begin, maximize, theta_of, update

SOURCE = Path(__file__).with_name("online_em.c")
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fPIC"]


class Ours:
    """``partial_fit``, with log-likelihood and the averaged statistic: online EM alone, as all others do."""

    def __init__(self, start: HMM, n_min: int, update_every: int = 1) -> None:
        self.hmm = OnlineHMM(init=start, n_min=n_min, update_every=update_every, averaging=StatisticAverage())

    def learn(self, X: np.ndarray) -> None:
        self.hmm.partial_fit(X)

    def values(self) -> np.ndarray:
        """Transition probabilities and means: (m, m + 1)."""
        return np.hstack([self.hmm.last_model_.transmat, self.hmm.last_model_.emission.means])


class InC:
    """``online_em.c``, compiled for this number of states."""

    def __init__(self, start: HMM, n_min: int) -> None:
        self.start, self.n_min, self.seen = start, n_min, 0
        self.program = compiled(start.n_components)

    def learn(self, X: np.ndarray) -> None:
        Y = np.ascontiguousarray(X[:, 0])
        if self.seen == 0:
            self.state = first_state(self.start, Y[0])
            Y, self.seen = Y[1:], 1
        pointer, number = ctypes.c_void_p, ctypes.c_long
        counts = number(len(Y)), number(self.seen), number(self.n_min)
        self.program.online_em(pointer(self.state.ctypes.data), pointer(Y.ctypes.data), *counts)
        self.seen += len(Y)

    def values(self) -> np.ndarray:
        m = self.start.n_components
        _, q, means, _ = np.split(self.state, [m, m + m * m, 2 * m + m * m])
        return np.hstack([q.reshape(m, m), means[:, np.newaxis]])


class InNumPy:
    """Algorithm 2 as ``paper/algorithms.py`` has it: vectorised but for the loop over time."""

    def __init__(self, start: HMM, n_min: int) -> None:
        self.start, self.theta, self.n_min, self.seen = start, theta_of(start), n_min, 0

    def learn(self, X: np.ndarray) -> None:
        Y = X[:, 0]
        if self.seen == 0:
            self.phi, self.rho = begin(self.theta, self.start.startprob, Y[0])
            Y, self.seen = Y[1:], 1
        for y in Y:
            self.phi, self.rho = update(self.theta, self.phi, self.rho, y, self.seen**-0.6)
            if self.seen > self.n_min:
                self.theta = maximize(self.rho.q @ self.phi, self.rho.g @ self.phi)
            self.seen += 1

    def values(self) -> np.ndarray:
        return np.hstack([self.theta.q, self.theta.mu[:, np.newaxis]])


def compiler() -> str | None:
    """The C compiler of this machine, if it has one."""
    return shutil.which("gcc") or shutil.which("cc")


def compiled(m: int) -> ctypes.CDLL:
    """The C reference for ``m`` states."""
    cc = compiler()
    if cc is None:
        raise RuntimeError("the comparison with C needs a C compiler (cc or gcc)")
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, f"online_em_{m}")
        subprocess.run([cc, *FLAGS, f"-DM={m}", "-c", str(SOURCE), "-o", target + ".o"], check=True)
        # Linked without -ffast-math, which would have this whole process flush small numbers to zero
        subprocess.run([cc, "-shared", target + ".o", "-o", target + ".so", "-lm"], check=True)
        return ctypes.CDLL(target + ".so")


def first_state(start: HMM, y: float) -> np.ndarray:
    """The C program's variables after the first observation: phi, q, mu, upsilon, both rho, the log-likelihood."""
    theta = theta_of(start)
    phi, rho = begin(theta, start.startprob, y)
    return np.concatenate([phi, theta.q.ravel(), theta.mu, [theta.upsilon], rho.q.ravel(), rho.g.ravel(), [0.0]])
