"""Corollary 1: with frozen parameters, ρ_n(x) tends to a limit that does not depend on x."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hmmstream import Harmonic, Learner, Power
from hmmstream.arrays import FloatArray
from paper.model import SIZES, TRUTH, Scale, record

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # 1/n is right where nothing is learned
    STEPS = {"1/n": Harmonic(), "n^-0.6": Power(0.6)}
SHARE_2 = 7  # place of the share of time in state 2, after four transitions and the three sums of state 1
TIMES = np.unique(np.geomspace(10, max(SIZES), 41).astype(int))


class Frozen(NamedTuple):
    """ρ_n at a time."""

    step: str
    run: int
    n: int
    gap: float  # largest difference between ρ_n(1) and ρ_n(2), over all components
    distance: float  # largest difference between ρ_n(1) and its limit
    share_given_1: float  # one component, the share of time in state 2, given X_n = 1
    share_given_2: float  # and given X_n = 2


def frozen(seed: int, run: int, scale: Scale) -> Iterator[Frozen]:
    """Algorithm 1 at θ⋆ without its M-step."""
    Y = record(seed, run)
    for name, step in STEPS.items():
        learner = Learner(TRUTH, step=step, averaging=None)
        learner.freeze()
        seen = 0
        for n in TIMES.tolist():
            learner.learn(Y[seen : n + 1])
            seen = n + 1
            rho = auxiliary(learner)
            gap, distance = abs(rho[0] - rho[1]).max(), abs(rho[0] - LIMIT).max()
            yield Frozen(name, run, n, float(gap), float(distance), *rho[:, SHARE_2].tolist())


def auxiliary(learner: Learner) -> FloatArray:
    """ρ_n as the paper has it: for each x, the four transitions, and for both states 1, Y and Y²."""
    state, emission = learner.state, learner.start.emission
    m = len(state.phi)
    rho = state.tau / state.phi[:, np.newaxis]
    sums = [emission.uncentred(state.theta, row[m * m :].reshape(m, -1)).ravel() for row in rho]
    return np.concatenate([rho[:, : m * m], sums], axis=1)


def expected_statistic() -> FloatArray:
    """E_θ⋆[s(X_{-1}, X_0, Y_0)]: the limit, as all conditional expectations at θ⋆ have this mean."""
    pi, mu, upsilon = TRUTH.stationary_distribution(), TRUTH.emission.means[:, 0], TRUTH.emission.covars.item()
    moments = np.stack([np.ones(2), mu, mu**2 + upsilon], axis=1)
    return np.concatenate([(pi[:, np.newaxis] * TRUTH.transmat).ravel(), (pi[:, np.newaxis] * moments).ravel()])


LIMIT = expected_statistic()
