"""Section 3.1: finite-valued observations, with ρ as in Algorithm 1 and with τ as in Mongillo and Denève."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hmmstream import HMM, Categorical, Power
from paper.algorithms import Symbols, symbols_rho, symbols_tau
from paper.model import START, TRUTH, Scale, generator

WORLD = HMM(TRUTH.startprob, TRUTH.transmat, Categorical(probs=[[0.8, 0.15, 0.05], [0.1, 0.3, 0.6]]))
GUESS = Symbols(START.transmat, np.array([[0.5, 0.3, 0.2], [0.3, 0.3, 0.4]]))
N = 20_000
N_MIN = 100  # by then each symbol has been seen: plain NumPy does not survive a probability of 0
SHOWN = 20  # every so many observations


class Path(NamedTuple):
    """Filter, ρ and τ after an observation; of ρ and τ the transitions from 1 to 1, whatever the symbol."""

    run: int
    n: int
    phi1: float  # φ_n(1)
    rho_given_1: float  # ρ_n(1)
    rho_given_2: float
    tau_1: float  # τ_n(1)
    tau_2: float
    difference: float  # largest, between the parameters that the two forms have come to


def paths(seed: int, run: int, scale: Scale) -> Iterator[Path]:
    """Both forms side by side on one record."""
    Y = WORLD.sample(N + 1, generator(seed, "symbols", run))[0][:, 0].astype(int)
    given = GUESS, START.startprob, Y, Power(0.6), N_MIN
    for n, (rho, tau) in enumerate(zip(symbols_rho(*given), symbols_tau(*given), strict=True), start=1):
        if n % SHOWN == 0:
            difference = max(abs(a - b).max() for a, b in zip(rho.theta, tau.theta, strict=True))
            rho_11, tau_11 = (form.statistic[0, 0].sum(axis=0).tolist() for form in (rho, tau))
            yield Path(run, n, float(rho.phi[0]), *rho_11, *tau_11, float(difference))


LIMIT = float(WORLD.stationary_distribution()[0] * WORLD.transmat[0, 0])  # of ρ, at the true parameters
