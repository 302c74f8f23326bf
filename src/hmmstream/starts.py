"""Where to start from: values for every family, from the data alone.

Rows are divided into as many clusters as there are states, in several ways, and the family's own M-step makes
parameters of each division, as if the clusters were the states. A few EM steps follow, first without regard to time.
The division that then explains best what was seen, again without regard to time, is the start: its states differ in
what is seen there. The likelihood of the chain, which takes time into account, decides only between starts that are as
good: it often gains more from two states that look the same and last differently than from a state that is rare. But
where states do not differ at a glance (symbols in different proportions), it is all there is to choose by.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hmmstream import inference
from hmmstream.arrays import UNKNOWN, FloatArray, IntArray
from hmmstream.em import EM
from hmmstream.emissions import Emission
from hmmstream.model import HMM
from hmmstream.priors import Prior
from hmmstream.record import Record
from hmmstream.recursions import rows
from hmmstream.transitions import Transition

WINDOWS, WINDOW = 32, 1024  # of a long record, and their rows
SAMPLE = 2**12  # rows that k-means works on
BLOCK = 2**20  # numbers that are worked on together
LARGEST = 1e140  # of an observation: sums of squares are finite
# Centres of clusters are rows drawn with a probability that grows as this power of the distance to those drawn before.
# The second power, refined by k-means, finds what is frequent; higher ones find what is rare, and far from the rest.
# Half of the starts are blurred: to each observation of a cluster comes as much of what all look like.
POWERS, BLURS = (2, 4, 8, 16), (0.0, 1.0)
K_MEANS_STEPS, MIXTURE_STEPS, TRIAL_STEPS, CHAIN_STEPS = 30, 20, 15, 50
TIE = 5.0  # of the log-likelihood without regard to time: starts that are closer explain the rows equally well
GAIN = 1e-3  # of the log-likelihood: EM steps that gain less are not worth their time


def find_start(
    emission: Emission,
    n_components: int,
    transition: Transition,
    data: Record,
    rng: np.random.Generator,
    prior: Prior | None = None,
    *,
    anew: bool = False,
) -> HMM:
    """The best of several starts, after some EM steps on the record, or on an excerpt if it is long.

    States come in the order of their means, unless the structure, known states or a prior say otherwise. Values that
    the emission has are kept, unless it is to be estimated ``anew``.
    """
    data = excerpt(data)
    if emission.has_values and not anew:
        return candidate(emission, n_components, transition, data, rng, POWERS[0], 0.0).model
    candidates = [
        candidate(emission, n_components, transition, data, rng, power, blur, anew=anew)
        for blur in BLURS
        for power in POWERS
    ]
    least = max(found.log_likelihood for found in candidates) - TIE
    trials = [
        EM(found.model, data, start_kind="fixed", prior=found.prior)
        for found in candidates
        if found.log_likelihood >= least
    ]
    best = max(trials, key=lambda trial: trial.run(TRIAL_STEPS, GAIN).history[-1])
    model = best.run(CHAIN_STEPS, GAIN).model
    order = canonical_order(model, prior) if data.states is None else None
    return model if order is None else model.relabel(order)


def draw_start(
    emission: Emission, n_components: int, transition: Transition, data: Record, rng: np.random.Generator
) -> HMM:
    """One start, left to chance."""
    power, blur = int(rng.choice(POWERS)), float(rng.choice(BLURS))
    return candidate(emission, n_components, transition, excerpt(data), rng, power, blur).model


def alike(emission: Emission, n_components: int, values: FloatArray) -> Emission:
    """The family for one feature, with the same values in every state: those under which ``values`` are most likely."""
    data = Record(values.reshape(-1, 1), np.ones(len(values), dtype=np.bool_))
    one = estimate(emission.sized(1, 1), np.zeros(len(values), dtype=np.int64), data)
    return emission.sized(n_components, 1).with_rows(np.tile(one.rows(), (n_components, 1)))


def canonical_order(model: HMM, prior: Prior | None) -> IntArray | None:
    """The order of the states by their means, or as a prior has them; None if the structure does not allow for it."""
    order = np.argsort(model.emission.positions(), kind="stable")
    if prior is not None and prior.emission is not None:
        order = order[np.argsort(np.argsort(prior.emission.positions(), kind="stable"))]
    return order if model.relabel(order).transition == model.transition else None


class Candidate(NamedTuple):
    """A start, and how well it explains the rows without regard to time."""

    model: HMM
    prior: Prior
    log_likelihood: float


def candidate(
    emission: Emission,
    m: int,
    transition: Transition,
    data: Record,
    rng: np.random.Generator,
    power: int,
    blur: float,
    *,
    anew: bool = False,
) -> Candidate:
    """A start from one division of the rows into clusters."""
    if emission.has_values and emission.n_components != m:
        raise ValueError(f"n_components is {m}, but the emission has the values of {emission.n_components} states")
    X = np.clip(data.X, -LARGEST, LARGEST)
    labels = divide(emission, X, m, rng, power)
    if data.states is None:
        labels = arrange(labels, m, transition, X, data.is_start)
    else:
        labels = respect(labels, m, data.states)
    is_given = emission.has_values and not anew
    if not is_given:
        emission = estimate(emission.sized(m, X.shape[1]), labels, data, blur)
    prior = Prior(transitions=1.0, emission=emission, strength=1.0)
    shares = np.bincount(labels, minlength=m) + 1.0
    transmat = transition_matrix(labels, m, transition, data.is_start)
    single_rows = replace(data, is_start=np.ones(len(data), dtype=np.bool_))
    mixture = EM(HMM(shares / shares.sum(), transmat, emission, transition), single_rows, prior=prior)
    fit = mixture.run(0 if is_given else MIXTURE_STEPS, GAIN)
    proba = inference.run(inference.filtered_probabilities, fit.model, single_rows)
    transmat = transition_matrix(proba.argmax(axis=1), m, transition, data.is_start)
    return Candidate(HMM(np.full(m, 1.0 / m), transmat, fit.model.emission, transition), prior, fit.history[-1])


def excerpt(data: Record) -> Record:
    """The record, or if it is long, windows of it, evenly spread, each a sequence of its own."""
    if len(data) <= WINDOWS * WINDOW:
        return data
    starts = np.linspace(0, len(data) - WINDOW, WINDOWS).astype(np.int64)
    part = data[(starts[:, np.newaxis] + np.arange(WINDOW)).ravel()]
    part.is_start[::WINDOW] = True
    return part


def divide(emission: Emission, X: FloatArray, m: int, rng: np.random.Generator, power: int) -> IntArray:
    """The cluster of each row: the nearest of m rows that were drawn far from each other."""
    coordinates = emission.coordinates(X)
    seen = ~np.isnan(coordinates)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.nansum(coordinates, axis=0) / count
    deviation = np.nan_to_num(coordinates - mean)  # what is missing is at the mean
    largest = abs(deviation).max(axis=0, initial=0.0)
    largest[largest == 0.0] = 1.0
    scale = largest * np.sqrt(((deviation / largest) ** 2).sum(axis=0) / count)
    scale[scale == 0.0] = 1.0
    points = deviation / scale
    eligible = np.flatnonzero(seen.all(axis=1))
    if len(eligible) < 10 * m:  # too few: take those that are not complete, too
        eligible = np.flatnonzero(seen.any(axis=1))
    if not len(eligible):
        return np.zeros(len(X), dtype=np.int64)
    centres = far_apart(points[eligible], m, power, rng)
    if power == 2 and len(centres) == m:
        centres = k_means(points[eligible], centres)
    labels = np.empty(len(X), dtype=np.int64)
    step = max(1, BLOCK // centres.size)
    for first in range(0, len(X), step):
        piece = np.where(seen[first : first + step], points[first : first + step], np.nan)
        distances = np.nansum((piece[:, np.newaxis] - centres) ** 2, axis=2)  # in what was seen
        labels[first : first + step] = distances.argmin(axis=1)
    return labels


def far_apart(points: FloatArray, m: int, power: int, rng: np.random.Generator) -> FloatArray:
    """At most m different points, each drawn by the power of its distance to those before."""
    centres = [points[rng.integers(len(points))]]
    distances = ((points - centres[0]) ** 2).sum(axis=1)
    while len(centres) < m and distances.max() > 0.0:
        weights = (distances / distances.max()) ** (power / 2)
        centres.append(points[rng.choice(len(points), p=weights / weights.sum())])
        distances = np.minimum(distances, ((points - centres[-1]) ** 2).sum(axis=1))
    return np.array(centres)


def k_means(points: FloatArray, centres: FloatArray) -> FloatArray:
    """The centres moved to the middle of what is nearest to them, again and again."""
    from scipy.cluster.vq import kmeans2  # on one core: the threads of scikit-learn's take longer to start than to work

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some clusters are empty: EM copes with it
        sample = points[:: len(points) // SAMPLE + 1]
        return np.asarray(kmeans2(sample, centres, iter=K_MEANS_STEPS, minit="matrix")[0])


def arrange(labels: IntArray, m: int, transition: Transition, X: FloatArray, is_start: Any) -> IntArray:
    """Number the clusters: by their mean, or by the time at which they come if that fits the structure better."""
    since_start = np.arange(len(labels)) - np.maximum.accumulate(np.where(is_start, np.arange(len(labels)), 0))
    total = np.nan_to_num(X).sum(axis=1)
    size = np.maximum(np.bincount(labels, minlength=m), 1)
    best, most = labels, -1
    for value in (total, since_start):
        order = np.argsort(np.bincount(labels, value, minlength=m) / size, kind="stable")
        renumbered = np.argsort(order)[labels]
        possible = transition.groups(m)[renumbered[:-1], renumbered[1:]][~is_start[1:]] >= 0
        if possible.sum() > most:
            best, most = renumbered, possible.sum()
    return best


def respect(labels: IntArray, m: int, states: IntArray) -> IntArray:
    """Number the clusters as the known states are numbered that they overlap with most, and believe what is known."""
    from scipy.optimize import linear_sum_assignment

    known = states != UNKNOWN
    overlap = np.zeros((m, m))
    np.add.at(overlap, (labels[known], states[known]), 1.0)
    return np.where(known, states, linear_sum_assignment(-overlap)[1][labels])


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


def estimate(emission: Emission, labels: IntArray, data: Record, blur: float = 0.0) -> Emission:
    """Values of the family from the clusters, as if they were the states."""
    weights = np.eye(emission.n_components)[labels]
    if data.weights is not None:
        weights *= data.weights[:, np.newaxis]
    X = filled(data.X, labels) if takes_parts(emission) else data.X
    emission = maximize(emission, weights, X, blur)
    apart = emission.set_apart()
    return emission if apart is None else maximize(apart, weights, X, blur)


def takes_parts(emission: Emission) -> bool:
    """Whether a row of which something is missing still says something."""
    row = np.zeros(emission.n_features)
    row[0] = np.nan
    return not emission.is_missing(row)


def maximize(emission: Emission, weights: FloatArray, X: FloatArray, blur: float) -> Emission:
    """The family's M-step, with one more observation in each state, and ``blur`` more for each: none is a point.

    What comes in addition is like all others: about the mean of its own state, if the family measures from a centre.
    """
    theta = emission.theta()
    emission.limit(X, theta)
    S = np.zeros((emission.n_components, emission.n_statistics))
    rows.accumulate(emission, theta, X, weights, S)
    if S[:, 0].sum() == 0.0:
        return emission
    if emission.is_centred:
        overall = S.sum(axis=0)
        shift = np.zeros_like(emission.centres(theta)[0])
        for k, s in enumerate(S):
            emission.move_centre(theta[k], s if s[0] > 0.0 else overall, shift)
        S[:] = 0.0
        rows.accumulate(emission, theta, X, weights, S)
    S += (1.0 + blur * S[:, :1]) * (S.sum(axis=0) / S[:, 0].sum())
    S /= S[:, 0].sum()
    emission.maximize(S, np.ones(len(S)), theta)
    emission.prepare(theta)
    return emission.with_theta(theta)


def filled(X: FloatArray, labels: IntArray) -> FloatArray:
    """``X`` with values that were seen in the same cluster in the place of missing ones.

    Nothing is known yet that could be expected of them, and what a family has before its first M-step may be far from
    all data. A row of which nothing was seen stays as it is.
    """
    missing = np.isnan(X)
    if not missing.any():
        return X
    X = X.copy()
    to_fill = missing & ~missing.all(axis=1, keepdims=True)
    for a in np.flatnonzero(to_fill.any(axis=0)):
        for k in np.unique(labels[to_fill[:, a]]):
            gaps = np.flatnonzero(to_fill[:, a] & (labels == k))
            seen = X[~missing[:, a] & (labels == k), a]
            if not len(seen):
                seen = X[~missing[:, a], a]
            if len(seen):
                X[gaps, a] = seen[np.arange(len(gaps)) * len(seen) // len(gaps)]
    return X
