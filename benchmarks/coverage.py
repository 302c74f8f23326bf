"""How often two standard errors hold the truth, after one pass and a start of its own (``-m benchmarks.coverage``)."""

from __future__ import annotations

import numpy as np

from hmmstream import Gaussian, OnlineHMM, StatisticAverage
from hmmstream.examples import EXAMPLES


def deviations(n: int, n_streams: int) -> np.ndarray:
    """(estimate - truth) / standard error of each parameter of the paper's model: (streams, parameters)."""
    world = EXAMPLES["paper"].model
    found = []
    for seed in range(n_streams):
        X, _ = world.sample(n, 1000 + seed)
        hmm = OnlineHMM(2, Gaussian("tied"), random_state=0, averaging=StatisticAverage()).keep_journal().partial_fit(X)
        errors = hmm.standard_errors()
        pairs = [(hmm.transmat_, world.transmat, "transmat")]
        pairs += [
            (getattr(hmm.model_.emission, name), getattr(world.emission, name), name) for name in ("means", "covars")
        ]
        found.append(np.concatenate([((ours - truth) / errors[name]).ravel() for ours, truth, name in pairs]))
    return np.array(found)


if __name__ == "__main__":
    for n in (20_000, 100_000):
        z = deviations(n, 40)
        print(f"{n:,} rows: {np.mean(abs(z) < 2.0):.0%} within two standard errors, root mean square {np.std(z):.2f}")
