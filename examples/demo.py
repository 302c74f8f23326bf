"""Simulate a stream, learn it in one pass, and show what was found: ``make demo``."""

import sys
import time

import numpy as np

from hmmstream import HMM, Gaussian, OnlineHMM

N, CHUNK = 500_000, 10_000


def show_progress(hmm):
    """One line that is written over as the stream goes by."""
    means = ", ".join(f"{mean:6.3f}" for mean in hmm.means_[:, 0])
    done = round(30 * hmm.n_samples_seen_ / N)
    print(
        f"\r  {'█' * done}{'░' * (30 - done)} {hmm.n_samples_seen_:8,} observations   levels {means}",
        end="",
        flush=True,
    )


def parameters(model):
    """The five numbers of the model."""
    return [*np.diag(model.transmat), *model.emission.means[:, 0], model.emission.covars.item()]


def main():
    """Run the demonstration."""
    world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
    start = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2.0))
    print(f"Simulating {N:,} observations of an ion channel that opens and closes, in heavy noise")
    X, states = world.sample(N, random_state=2011)

    print("Learning it in one pass, from a poor start (the very first run compiles for some seconds)")
    hmm = OnlineHMM(init=start).learn_one(X[0])
    correct = seconds = 0.0
    for first in range(1, N, CHUNK):
        began = time.perf_counter()
        proba = hmm.follow(X[first : first + CHUNK])
        seconds += time.perf_counter() - began
        correct += (proba.argmax(axis=1) == states[first : first + CHUNK]).sum()
        show_progress(hmm)

    print("\n\n                           start     truth   learned")
    rows = {
        "stays closed, q(1,1)": 0,
        "stays open, q(2,2)": 1,
        "closed level, μ(1)": 2,
        "open level, μ(2)": 3,
        "noise variance, υ": 4,
    }
    for name, at in rows.items():
        values = [parameters(model)[at] for model in (start, world, hmm.model_)]
        print(f"  {name:20s} {values[0]:9.3f} {values[1]:9.3f} {values[2]:9.4f}")
    print(f"\n  {correct / (N - 1):.1%} of states were right as they happened (the true model would get 89.8 %)")
    print(f"  {seconds / N * 1e9:.0f} ns an observation, in constant memory")


if __name__ == "__main__":
    sys.exit(main())
