"""Starts: how often learning from a rough start ends in a poorer optimum, by ``n_min``.

Three states that last about ten observations each, two features; a run is lost if its predictive loss on the second
half of the stream is more than 0.01 above that of the true model.
"""

from __future__ import annotations

import sys

import numpy as np

from hmmstream import HMM, Gaussian, Learner, StatisticAverage

MEANS = np.array([[-2.0, 1.0], [0.0, -1.5], [2.5, 0.5]])
COVARS = {
    "full": np.array([[[1.0, 0.4], [0.4, 0.8]], [[0.7, -0.2], [-0.2, 0.5]], [[0.6, 0.1], [0.1, 1.2]]]),
    "diag": np.array([[1.0, 0.8], [0.7, 0.5], [0.6, 1.2]]),
    "spherical": np.array([1.0, 0.6, 0.9]),
    "tied": np.array([[1.0, 0.4], [0.4, 0.8]]),
}
TRUTH = [[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.03, 0.12, 0.85]]
GUESS = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]


def log_loss(model: HMM, X: np.ndarray) -> float:
    """Mean negative log predictive density."""
    learner = Learner(model)
    learner.freeze()
    learner.learn(X)
    return -learner.log_likelihood / len(X)


def share_lost(covariance: str, n_min: int, runs: int, n: int = 50_000) -> float:
    """Share of runs that end in a poorer optimum."""
    world = HMM([1 / 3] * 3, TRUTH, Gaussian(covariance, MEANS, COVARS[covariance]))
    start = HMM([1 / 3] * 3, GUESS, Gaussian(covariance, 0.6 * MEANS + 0.3, 2.0 * COVARS[covariance]))
    lost = 0
    for seed in range(runs):
        X = world.sample(n, random_state=seed)[0]
        learner = Learner(start, n_min=n_min, averaging=StatisticAverage())
        learner.learn(X)
        half = X[n // 2 :]
        lost += log_loss(learner.model, half) - log_loss(world, half) > 0.01
    return lost / runs


def main(runs: int = 40) -> None:
    """Print the table."""
    n_mins = (20, 50, 150, 500)
    print("runs lost    " + "".join(f"n_min={n_min:<6d}" for n_min in n_mins))
    for covariance in COVARS:
        shares = [share_lost(covariance, n_min, runs) for n_min in n_mins]
        print(f"{covariance:12s} " + "".join(f"{share:<12.0%}" for share in shares), flush=True)


if __name__ == "__main__":
    sys.exit(main())
