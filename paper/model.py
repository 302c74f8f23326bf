"""Section 5.3 of the paper: the model, where all algorithms start, and the records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hmmstream import HMM, Gaussian
from hmmstream.arrays import FloatArray

# θ⋆. The paper simulates the stationary chain: 6/7 and 1/7 are its distribution in the long run
TRUTH = HMM([6 / 7, 1 / 7], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
# θ̂₀, and the start distribution ν that is not estimated
START = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2.0))

SIZES = (500, 2_000, 8_000, 32_000, 128_000)
PARAMETERS = ("q11", "q22", "mu1", "mu2", "upsilon")


class Scale(NamedTuple):
    """How much is done."""

    runs: int  # records of the figures, as many as the paper has
    long_record: int  # observations from which the limit of batch EM is taken
    information: int  # observations in each of the records for the Fisher information
    few_runs: int  # of experiments in plain NumPy
    table: int  # observations of Table 1
    repeats: int  # each time is the best of as many
    engine_states: tuple[int, ...]  # numbers of states that the growth of the cost is measured at
    twin_states: tuple[int, ...]


FULL = Scale(100, 4_000_000, 1_000_000, 20, 10_000, 5, (8, 16, 32), (32, 64, 128))
QUICK = Scale(3, 200_000, 50_000, 1, 1_000, 2, (), (8, 16))


def values(model: HMM) -> list[float]:
    """The five numbers of θ, in the order of ``PARAMETERS``."""
    q, mean, variance = model.transmat, model.emission.means[:, 0], model.emission.covars
    return [float(x) for x in (q[0, 0], q[1, 1], mean[0], mean[1], variance.item())]


TRUE_VALUES: FloatArray = np.array(values(TRUTH))
START_VALUES: FloatArray = np.array(values(START))


def generator(seed: int, purpose: str, run: int) -> np.random.Generator:
    """Random numbers of one run of one experiment: no other has the same."""
    return np.random.default_rng([seed, int.from_bytes(purpose.encode()), run])


def record(seed: int, run: int) -> Any:
    """Y₀ … Y_n of a run for the largest n. The batch and all online algorithms are given the same, or its beginning."""
    return TRUTH.sample(max(SIZES) + 1, generator(seed, "record", run))[0]
