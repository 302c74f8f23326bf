"""What OnlineHMM finds, told nothing but the number of states: simulated streams, and recordings beside a batch fit.

``python -m benchmarks.selfstart [folder with the recordings]``
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment

from hmmstream import HMM, BatchHMM, Gaussian, OnlineHMM

RECORDINGS = [  # file, columns, label, number of states
    ("ion_deepchannel_1ch_10", ["current"], "n_open", 2),
    ("ion_deepchannel_5ch_328", ["current"], "n_open", 6),
    ("occupancy", ["Temperature", "Humidity", "Light", "CO2"], "Occupancy", 2),
    ("chest_accel_01", ["x", "y", "z"], "activity", 7),
]


def recording(folder, name, columns, label):
    """Columns of a recording, and the true states."""
    with (Path(folder) / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    X = np.array([[float(row[column]) for column in columns] for row in rows])
    return X, np.array([int(float(row[label])) for row in rows])


def accuracy(found, truth):
    """Share of rows that are right, with states matched one to one with labels in the best way."""
    labels = np.unique(truth)
    hits = np.array([[((found == k) & (truth == label)).sum() for label in labels] for k in range(found.max() + 1)])
    return hits[linear_sum_assignment(-hits)].sum() / len(truth)


def simulated(n_streams=200, n=8000):
    """Streams of the paper's model: how far the estimates are off, and how many are collapsed or swapped."""
    world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
    for emission in (Gaussian("full"), Gaussian("tied")):
        found = []
        for seed in range(n_streams):
            hmm = OnlineHMM(2, emission, random_state=seed).partial_fit(world.sample(n, 5000 + seed)[0])
            found.append([*np.diag(hmm.transmat_), *hmm.means_[:, 0], hmm.covars_.min(), hmm.covars_.max()])
        found = np.array(found)
        swapped = found[:, 2] > found[:, 3]
        collapsed = (found[:, 4] < 0.1) | (found[:, 3] - found[:, 2] < 0.3) | (found[:, :2].min(axis=1) < 0.2)
        print(f"paper's model, {n_streams} streams of {n}, {emission!r}")
        print(f"  collapsed {collapsed.sum()}, swapped {swapped.sum()}")
        for name, column in zip(("q11", "q22", "mu1", "mu2", "smallest variance", "largest"), found.T, strict=True):
            print(f"  {name:18} mean {column.mean():.3f}, from {column.min():.3f} to {column.max():.3f}")


def recorded(folder, n_seeds=2):
    """One causal pass over each recording, beside a batch fit: accuracy in its second half, at most 50,000 rows."""
    print("recording, states | one pass, row by row | model at the end | batch EM")
    for name, columns, label, n_components in RECORDINGS:
        X, truth = recording(folder, name, columns, label)
        last = slice(-min(50_000, len(X) // 2), None)
        for seed in range(n_seeds):
            hmm = OnlineHMM(n_components, random_state=seed)
            followed = accuracy(hmm.follow(X)[last].argmax(axis=1), truth[last])
            at_end = accuracy(hmm.predict(X)[last], truth[last])
            batch = BatchHMM(n_components, n_iter=300, tol=0.1, random_state=seed).fit(X)
            fitted = accuracy(batch.predict(X)[last], truth[last])
            print(f"{name}, {n_components} | {followed:.4f} | {at_end:.4f} | {fitted:.4f}", flush=True)


if __name__ == "__main__":
    simulated()
    if len(sys.argv) > 1:
        recorded(sys.argv[1])
    else:
        print("recordings: say in which folder they are")
