"""Where to start from: values for every family, from the data alone.

The rows are divided into as many clusters as there are states, and the family's own M-step makes parameters of them, as
if the clusters were the states. This works for every family, a user's own included.
"""

from __future__ import annotations

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.emissions import Emission
from hmmstream.emissions.base import DEAD
from hmmstream.inference import Record
from hmmstream.model import HMM
from hmmstream.transitions import Transition

SAMPLE = 20_000  # rows that clusters are sought in


def start_model(
    emission: Emission, n_components: int, transition: Transition, data: Record, rng: np.random.Generator, first: bool
) -> HMM:
    """A model to start from. The ``first`` start is k-means' best, others leave more to chance."""
    m = n_components
    labels = cluster(emission.coordinates(data.X), m, rng, refine=first)
    labels = arrange(labels, m, transition, data)
    if not emission.has_values:
        emission = estimate(emission.sized(m, data.X.shape[1]), labels, data.X)
    elif emission.n_components != m:
        raise ValueError(f"n_components is {m}, but the emission has the values of {emission.n_components} states")
    return HMM(np.full(m, 1.0 / m), transition_matrix(labels, m, transition, data), emission, transition)


def cluster(points: FloatArray, m: int, rng: np.random.Generator, refine: bool) -> IntArray:
    """The cluster of each row, by k-means; if not to ``refine``, by the nearest of m rows drawn far from each other."""
    from sklearn.cluster import KMeans, kmeans_plusplus

    if not len(points):
        return np.zeros(0, dtype=np.int64)
    seen = ~np.isnan(points)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, points, 0.0).sum(axis=0) / count
    deviation = np.where(seen, points - mean, 0.0)
    scale = np.sqrt((deviation**2).sum(axis=0) / count)
    points = deviation / np.where(scale > 0.0, scale, 1.0)  # what is missing is at the mean
    rows = np.flatnonzero(seen.any(axis=1))
    if not len(rows):
        rows = np.arange(len(points))
    sample = points[rows if len(rows) <= SAMPLE else rng.choice(rows, SAMPLE, replace=False)]
    n_distinct = len(np.unique(sample, axis=0))
    if n_distinct <= m:  # fewer than there are states: each its own, and some states none
        centres = np.unique(sample, axis=0)
    else:
        seed = int(rng.integers(2**31))
        centres = kmeans_plusplus(sample, m, random_state=seed)[0]
        if refine:
            centres = KMeans(m, init=centres, n_init=1, max_iter=50).fit(sample).cluster_centers_
    labels = np.empty(len(points), dtype=np.int64)
    for first in range(0, len(points), SAMPLE):
        piece = points[first : first + SAMPLE]
        labels[first : first + SAMPLE] = ((piece[:, np.newaxis] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return labels


def arrange(labels: IntArray, m: int, transition: Transition, data: Record) -> IntArray:
    """Number the clusters: by their mean, or by the time at which they come if that fits the structure better."""
    if not len(labels):
        return labels
    since_start = np.arange(len(labels)) - np.maximum.accumulate(np.where(data.is_start, np.arange(len(labels)), 0))
    total = np.nan_to_num(data.X).sum(axis=1)
    size = np.maximum(np.bincount(labels, minlength=m), 1)
    best, most = labels, -1
    for value in (total, since_start):
        order = np.argsort(np.bincount(labels, value, minlength=m) / size, kind="stable")
        candidate = np.argsort(order)[labels]
        possible = transition.groups(m)[candidate[:-1], candidate[1:]][~data.is_start[1:]] >= 0
        if possible.sum() > most:
            best, most = candidate, possible.sum()
    return best


def transition_matrix(labels: IntArray, m: int, transition: Transition, data: Record) -> FloatArray:
    """Transition probabilities from what the clusters do, and from one more transition of every possible kind."""
    counts = np.zeros((m, m))
    moved = ~data.is_start[1:]
    np.add.at(counts, (labels[:-1][moved], labels[1:][moved]), 1.0)
    cells = transition.cells(m)
    groups, shares = cells.groups.reshape(m, m), cells.shares.reshape(m, m)
    by_group = np.bincount(groups[groups >= 0], counts[groups >= 0] + 1.0, minlength=cells.n_groups)
    transmat = np.where(groups >= 0, by_group[groups] * shares, 0.0)
    return np.asarray(transmat / transmat.sum(axis=1, keepdims=True))


def estimate(emission: Emission, labels: IntArray, X: FloatArray) -> Emission:
    """The family's M-step, each cluster a state; a little of all data in each, so that none is empty or a point."""
    theta = emission.theta()
    S = np.zeros((emission.n_components, emission.n_statistics))
    s = np.zeros(emission.n_statistics)
    rows = np.flatnonzero(~np.isnan(X).any(axis=1))
    if not len(rows):
        return emission
    for row in rows[:: max(1, len(rows) // SAMPLE)]:
        emission.statistic(theta[labels[row]], X[row], s)
        S[labels[row]] += s
    S = 0.95 * S + 0.05 * S.sum(axis=0) / len(S)
    S /= S[:, 0].sum()
    alive = np.where(S[:, 0] > DEAD, 1.0, 0.0)
    for _ in range(2):  # the first finds the floor of the variances, for the second
        emission.maximize(S, alive, theta)
        emission.prepare(theta)
    return emission.with_rows(theta[:, : emission.n_parameters])
