"""Where to start from: values for every family, from the data alone.

The rows are divided into as many clusters as there are states, and the family's own M-step makes parameters of them, as
if the clusters were the states. This works for every family, a user's own included.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.emissions import Emission
from hmmstream.inference import Record
from hmmstream.model import HMM
from hmmstream.recursions import rows
from hmmstream.transitions import Transition

WINDOWS, WINDOW = 20, 10_000  # of a long record, and their rows
SAMPLE = 20_000  # rows that clusters are sought in
BLOCK = 2**20  # numbers that are worked on together
LARGEST = 1e140  # of an observation: sums of squares are finite


def start_model(
    emission: Emission, n_components: int, transition: Transition, data: Record, rng: np.random.Generator, first: bool
) -> HMM:
    """A model to start from. The ``first`` start is k-means' best, others leave more to chance."""
    m = n_components
    if emission.has_values and emission.n_components != m:
        raise ValueError(f"n_components is {m}, but the emission has the values of {emission.n_components} states")
    data = excerpt(data)
    X = np.clip(data.X, -LARGEST, LARGEST)
    labels = cluster(emission, X, m, rng, refine=first)
    labels = arrange(labels, m, transition, X, data.is_start)
    if not emission.has_values:
        emission = estimate(emission.sized(m, X.shape[1]), labels, X)
    return HMM(np.full(m, 1.0 / m), transition_matrix(labels, m, transition, data.is_start), emission, transition)


def excerpt(data: Record) -> Record:
    """The record, or if it is long, windows of it, evenly spread, each a sequence of its own."""
    if len(data) <= WINDOWS * WINDOW:
        return data
    starts = np.linspace(0, len(data) - WINDOW, WINDOWS).astype(np.int64)
    is_start = np.concatenate([data.is_start[first : first + WINDOW] for first in starts])
    is_start[::WINDOW] = True
    return Record(np.concatenate([data.X[first : first + WINDOW] for first in starts]), is_start)


def cluster(emission: Emission, X: FloatArray, m: int, rng: np.random.Generator, refine: bool) -> IntArray:
    """The cluster of each row, by k-means; if not to ``refine``, by the nearest of m rows drawn far from each other."""
    from sklearn.cluster import KMeans, kmeans_plusplus

    is_complete = ~np.isnan(X).any(axis=1)
    rows = np.flatnonzero(is_complete)
    if len(rows) < 10 * m:  # too few: take those that are not, too
        rows = np.flatnonzero(~np.isnan(X).all(axis=1))
    if not len(rows):
        return np.zeros(len(X), dtype=np.int64)
    if len(rows) > SAMPLE:
        rows = np.sort(rng.choice(rows, SAMPLE, replace=False))
    sample = emission.coordinates(X[rows])
    count = np.maximum((~np.isnan(sample)).sum(axis=0), 1)
    mean = np.nansum(sample, axis=0) / count
    deviation = np.nan_to_num(sample - mean)  # what is missing is at the mean
    largest = abs(deviation).max(axis=0)
    largest[largest == 0.0] = 1.0
    scale = largest * np.sqrt(((deviation / largest) ** 2).sum(axis=0) / count)
    scale[scale == 0.0] = 1.0
    points = deviation / scale
    centres = np.unique(points, axis=0)
    if len(centres) > m:  # else each is a cluster, and some states have none
        centres = kmeans_plusplus(points, m, random_state=int(rng.integers(2**31)))[0]
        if refine:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that some centres coincide: EM copes with it
                centres = KMeans(m, init=centres, n_init=1, max_iter=50).fit(points).cluster_centers_
    labels = np.empty(len(X), dtype=np.int64)
    step = max(1, BLOCK // centres.size)
    for first in range(0, len(X), step):
        piece = (emission.coordinates(X[first : first + step]) - mean) / scale
        distances = np.nansum((piece[:, np.newaxis] - centres) ** 2, axis=2)  # in what was seen
        labels[first : first + step] = distances.argmin(axis=1)
    return labels


def arrange(labels: IntArray, m: int, transition: Transition, X: FloatArray, is_start: Any) -> IntArray:
    """Number the clusters: by their mean, or by the time at which they come if that fits the structure better."""
    since_start = np.arange(len(labels)) - np.maximum.accumulate(np.where(is_start, np.arange(len(labels)), 0))
    total = np.nan_to_num(X).sum(axis=1)
    size = np.maximum(np.bincount(labels, minlength=m), 1)
    best, most = labels, -1
    for value in (total, since_start):
        order = np.argsort(np.bincount(labels, value, minlength=m) / size, kind="stable")
        candidate = np.argsort(order)[labels]
        possible = transition.groups(m)[candidate[:-1], candidate[1:]][~is_start[1:]] >= 0
        if possible.sum() > most:
            best, most = candidate, possible.sum()
    return best


def transition_matrix(labels: IntArray, m: int, transition: Transition, is_start: Any) -> FloatArray:
    """Transition probabilities from what the clusters do, and from one more transition of every possible kind."""
    counts = np.zeros((m, m))
    moved = ~is_start[1:]
    np.add.at(counts, (labels[:-1][moved], labels[1:][moved]), 1.0)
    cells = transition.cells(m)
    groups, shares = cells.groups.reshape(m, m), cells.shares.reshape(m, m)
    by_group = np.bincount(groups[groups >= 0], counts[groups >= 0] + 1.0, minlength=cells.n_groups)
    transmat = np.where(groups >= 0, by_group[groups] * shares, 0.0)
    return np.asarray(transmat / transmat.sum(axis=1, keepdims=True))


def estimate(emission: Emission, labels: IntArray, X: FloatArray) -> Emission:
    """Values of the family from the clusters; what is missing is taken to be at the mean of its cluster."""
    seen = np.flatnonzero(~np.isnan(X).all(axis=1))
    if not len(seen):
        return emission
    seen = seen[:: max(1, len(seen) // SAMPLE)]
    X, labels = X[seen], labels[seen]
    overall = np.nansum(X, axis=0) / np.maximum((~np.isnan(X)).sum(axis=0), 1)
    for k in range(emission.n_components):
        own = X[labels == k]
        n_seen = (~np.isnan(own)).sum(axis=0)
        mean = np.where(n_seen > 0, np.nansum(own, axis=0) / np.maximum(n_seen, 1), overall)
        X[labels == k] = np.where(np.isnan(own), mean, own)
    emission = maximize(emission, labels, X)
    apart = emission.set_apart()
    return emission if apart is None else maximize(apart, labels, X)


def maximize(emission: Emission, labels: IntArray, X: FloatArray) -> Emission:
    """The family's M-step, each cluster a state; a little of all data in each, so that none is empty or a point."""
    m = emission.n_components
    theta = emission.theta()
    emission.limit(X, theta)
    weights = 0.95 * (labels[:, np.newaxis] == np.arange(m)) + 0.05 / m
    S = np.zeros((m, emission.n_statistics))
    rows.accumulate(emission, theta, X, weights, S)
    S /= S[:, 0].sum()
    emission.maximize(S, np.ones(m), theta)
    emission.prepare(theta)
    return emission.with_theta(theta)
