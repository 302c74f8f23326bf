"""Plain NumPy twins of the compiled recursions, written to read like the paper, and the enumeration of all paths.

Nothing here is fast and nothing is shared with the package: densities come from scipy, statistics and M-steps are
written out a second time. A model is passed as an ``HMM``, of which only the values are read.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy import optimize, special, stats

from hmmstream import (
    HMM,
    Bernoulli,
    Categorical,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    Geometric,
    LinearRegression,
    LogNormal,
    Multinomial,
    NegativeBinomial,
    Poisson,
    VonMises,
)
from hmmstream.emissions import Independent

RARE = 1e-12  # a symbol, count or answer is never given a smaller probability or rate by the M-step
EXTINCT = 1e-40  # what it adds to the probability of a possible transition

# --- families: log-density, complete-data statistic, M-step ---------------------------------------------------------


def covariances(emission: Gaussian) -> np.ndarray:
    """The covariance of each state as a matrix: (m, d, d)."""
    m, d = emission.means.shape
    match emission.covariance:
        case "full":
            return emission.covars
        case "tied":
            return np.tile(emission.covars, (m, 1, 1))
        case "diag":
            return np.stack([np.diag(row) for row in emission.covars])
        case "spherical":
            return np.stack([v * np.eye(d) for v in emission.covars])


def factorises(emission) -> bool:
    """Whether the features are independent given the state."""
    if isinstance(emission, Multinomial):
        return False
    dense = isinstance(emission, Gaussian) and emission.covariance in ("full", "tied")
    return not dense or emission.n_features == 1


def taken_apart(emission: Independent, y: np.ndarray) -> list[tuple]:
    """The parts of mixed data, each with its features."""
    sizes = [part.n_features for part in emission.parts]
    return list(zip(emission.parts, np.split(y, np.cumsum(sizes)[:-1]), strict=True))


def state_components(emission: GaussianMixture, i: int) -> Gaussian:
    """The components of state i, as the states of a Gaussian family."""
    return Gaussian(emission.covariance, emission.means[i], emission.covars[i])


def responsibilities(emission: GaussianMixture, i: int, y: np.ndarray) -> np.ndarray:
    """Probability of each component of state i, given y."""
    g = np.array([log_density(state_components(emission, i), j, y) for j in range(emission.n_mix)])
    weights = emission.weights[i] * np.exp(g - g.max())
    return weights / weights.sum()


def says_nothing(emission, y: np.ndarray) -> bool:
    """Whether a row is missing."""
    match emission:
        case Independent():
            return all(says_nothing(part, own) for part, own in taken_apart(emission, y))
        case LinearRegression() | Multinomial():
            return bool(np.isnan(y).any())
    return bool(np.isnan(y).all())


def log_density(emission, i: int, y: np.ndarray) -> float:
    """log g(i, y); NaN is missing."""
    missing = np.isnan(y)
    if says_nothing(emission, y):
        return 0.0
    at = np.flatnonzero(~missing)
    with np.errstate(divide="ignore"):
        match emission:
            case Gaussian():
                cov = covariances(emission)[i][np.ix_(at, at)]
                return float(stats.multivariate_normal.logpdf(y[at], emission.means[i, at], cov))
            case Categorical():
                return float(np.log(emission.probs[i, int(y[0])]))
            case Multinomial():
                return float(stats.multinomial.logpmf(y, int(y.sum()), emission.probs[i]))
            case Poisson():
                return float(stats.poisson.logpmf(y[at], emission.rates[i, at]).sum())
            case Exponential():
                return float(stats.expon.logpdf(y[at], scale=1 / emission.rates[i, at]).sum())
            case Bernoulli():
                return float(stats.bernoulli.logpmf(y[at].astype(int), emission.probs[i, at]).sum())
            case Geometric():
                return float(stats.geom.logpmf(y[at], emission.probs[i, at]).sum())
            case NegativeBinomial():
                r, mean = emission.shapes[i, at], emission.means[i, at]
                return float(stats.nbinom.logpmf(y[at], r, r / (r + mean)).sum())
            case Gamma():
                return float(stats.gamma.logpdf(y[at], emission.shapes[i, at], scale=1 / emission.rates[i, at]).sum())
            case LogNormal():
                s, scale = np.sqrt(emission.variances[i, at]), np.exp(emission.means[i, at])
                return float(stats.lognorm.logpdf(y[at], s, scale=scale).sum())
            case VonMises():
                return float(stats.vonmises.logpdf(y[at], emission.concentrations[i, at], emission.means[i, at]).sum())
            case GaussianMixture():
                g = [log_density(state_components(emission, i), j, y) for j in range(emission.n_mix)]
                return float(logsumexp(np.log(emission.weights[i]) + g))
            case LinearRegression():
                line = emission.intercepts[i] + emission.coefficients[i] @ y[:-1]
                return float(stats.norm.logpdf(y[-1], line, np.sqrt(emission.variances[i])))
            case Independent():
                return sum(log_density(part, i, own) for part, own in taken_apart(emission, y))
    return emission.reference_log_density(i, y)


def second_moments(emission: Gaussian, square: np.ndarray) -> np.ndarray:
    """The components of a matrix of second moments that belong to the statistic."""
    d = len(square)
    return square[np.tril_indices(d)] if not factorises(emission) else np.diag(square)


def side_by_side(*columns: np.ndarray) -> np.ndarray:
    """Numbers of each feature, those of one feature next to each other."""
    return np.stack(columns, axis=-1).reshape(*columns[0].shape[:-1], -1)


def bessel_ratio(kappa):
    return special.i1e(kappa) / special.i0e(kappa)


def given_what_was_seen(mean: np.ndarray, cov: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a normal vector given those of its components that are not NaN in y."""
    seen, missing = np.flatnonzero(~np.isnan(y)), np.flatnonzero(np.isnan(y))
    regression = cov[np.ix_(missing, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
    filled, rest = y.copy(), np.zeros_like(cov)
    filled[missing] = mean[missing] + regression @ (y - mean)[seen]
    rest[np.ix_(missing, missing)] = cov[np.ix_(missing, missing)] - regression @ cov[np.ix_(seen, missing)]
    return filled, rest


def statistic(emission, i: int, y: np.ndarray) -> np.ndarray:
    """s(y) = (1, ...) in state i; what is missing is replaced by its expectation there, given what was seen."""
    missing = np.isnan(y)
    match emission:
        case Gaussian():
            mean, rest = given_what_was_seen(emission.means[i], covariances(emission)[i], y)
            square = np.outer(mean, mean) + rest
            return np.concatenate([[1.0], mean, second_moments(emission, square)])
        case Categorical():
            hot = emission.probs[i] if missing[0] else np.eye(emission.n_categories)[int(y[0])]
            return np.concatenate([[1.0], hot])
        case Multinomial():
            return np.concatenate([[1.0], emission.probs[i] if missing.any() else y])
        case Poisson():
            return np.concatenate([[1.0], np.where(missing, emission.rates[i], y)])
        case Exponential():
            return np.concatenate([[1.0], np.where(missing, 1 / emission.rates[i], y)])
        case Bernoulli():
            return np.concatenate([[1.0], np.where(missing, emission.probs[i], y)])
        case Geometric():
            return np.concatenate([[1.0], np.where(missing, 1 / emission.probs[i], y)])
        case NegativeBinomial():
            r, mean = emission.shapes[i], emission.means[i]
            count = np.where(missing, mean, y)
            if not emission.learn_shape:
                return np.concatenate([[1.0], count])
            beta = r / mean  # the rate λ behind a count is Gamma(r, β), and Gamma(r + y, β + 1) given the count
            rate = np.where(missing, r / beta, (r + count) / (beta + 1))
            log_rate = np.where(missing, special.psi(r) - np.log(beta), special.psi(r + count) - np.log(beta + 1))
            return np.concatenate([[1.0], side_by_side(count, rate, log_rate)])
        case Gamma():
            a, b = emission.shapes[i], emission.rates[i]
            log_y = np.log(np.where(missing, 1.0, y))
            log_y = np.where(missing, special.psi(a) - np.log(b), log_y)
            return np.concatenate([[1.0], side_by_side(np.where(missing, a / b, y), log_y)])
        case LogNormal():
            mean = np.where(missing, emission.means[i], np.log(y))
            square = mean**2 + np.where(missing, emission.variances[i], 0.0)
            return np.concatenate([[1.0], side_by_side(mean, square)])
        case VonMises():
            angle = np.where(missing, emission.means[i], y)
            length = np.where(missing, bessel_ratio(emission.concentrations[i]), 1.0)
            return np.concatenate([[1.0], side_by_side(length * np.cos(angle), length * np.sin(angle))])
        case GaussianMixture():
            inner = state_components(emission, i)
            own = [r * statistic(inner, j, y) for j, r in enumerate(responsibilities(emission, i, y))]
            return np.concatenate([[1.0], *own])
        case LinearRegression():
            z = np.zeros_like(y) if missing.any() else y  # a missing row has no weight
            return np.concatenate([[1.0], z, np.outer(z, z)[np.tril_indices(len(z))]])
        case Independent():
            return np.concatenate([statistic(part, i, own) for part, own in taken_apart(emission, y)])
    return emission.reference_statistic(i, y)


def solved(function, values: np.ndarray) -> np.ndarray:
    """For each of the values the positive x with function(x) = value."""

    def root(value):
        u = optimize.brentq(lambda u: function(np.exp(u)) - value, -20.0, 20.0, xtol=1e-15, rtol=1e-15)
        return np.exp(u)

    return np.vectorize(root)(values)


def gamma_shapes(mean: np.ndarray, mean_log: np.ndarray) -> np.ndarray:
    return solved(lambda a: np.log(a) - special.psi(a), np.log(mean) - mean_log)


def m_step(emission, S: np.ndarray):
    """The family with the parameters that maximise the expected complete-data log-likelihood: S has shape (m, p)."""
    m, d = emission.n_components, emission.n_features
    mean = S[:, 1:] / S[:, :1]
    match emission:
        case Categorical():
            probs = np.maximum(mean, RARE)
            return Categorical(probs=probs / probs.sum(axis=1, keepdims=True))
        case Multinomial():
            probs = np.maximum(S[:, 1:] / S[:, 1:].sum(axis=1, keepdims=True), RARE)
            return Multinomial(emission.n_trials, probs / probs.sum(axis=1, keepdims=True))
        case Poisson():
            return Poisson(np.maximum(mean, RARE))
        case Exponential():
            return Exponential(1 / mean)
        case Bernoulli():
            return Bernoulli(np.clip(mean, RARE, 1 - RARE))
        case Geometric():
            return Geometric(1 / mean)
        case NegativeBinomial(learn_shape=False):
            return NegativeBinomial(emission.shapes, np.maximum(mean, RARE), learn_shape=False)
        case NegativeBinomial():
            count, rate, log_rate = mean.reshape(m, d, 3).transpose(2, 0, 1)
            return NegativeBinomial(gamma_shapes(rate, log_rate), np.maximum(count, RARE))
        case Gamma():
            amount, log_amount = mean.reshape(m, d, 2).transpose(2, 0, 1)
            shapes = gamma_shapes(amount, log_amount)
            return Gamma(shapes, shapes / amount)
        case LogNormal():
            first, second = mean.reshape(m, d, 2).transpose(2, 0, 1)
            return LogNormal(first, second - first**2)
        case VonMises():
            resultant = mean.reshape(m, d, 2) @ [1, 1j]
            return VonMises(np.angle(resultant), solved(bessel_ratio, abs(resultant)))
        case Gaussian():
            mu = mean[:, :d]
            if factorises(emission):
                cov = np.stack([np.diag(mean[i, d:] - mu[i] ** 2) for i in range(m)])
            else:
                cov = np.empty((m, d, d))
                for i in range(m):
                    square = np.zeros((d, d))
                    square[np.tril_indices(d)] = mean[i, d:]
                    square = square + square.T - np.diag(np.diag(square))
                    cov[i] = square - np.outer(mu[i], mu[i])
            weight = S[:, 0] / S[:, 0].sum()
            diagonal = np.diagonal(cov, axis1=1, axis2=2)
            covars = {
                "full": cov,
                "diag": diagonal,
                "spherical": diagonal.mean(axis=1),
                "tied": np.einsum("i,iab->ab", weight, cov),
            }[emission.covariance]
            return Gaussian(emission.covariance, mu, covars)
        case GaussianMixture():
            weights = np.maximum(mean.reshape(m, emission.n_mix, -1)[:, :, 0], RARE)
            own = [m_step(state_components(emission, i), S[i, 1:].reshape(emission.n_mix, -1)) for i in range(m)]
            means, covars = np.array([g.means for g in own]), np.array([g.covars for g in own])
            return GaussianMixture(
                None, emission.covariance, weights / weights.sum(axis=1, keepdims=True), means, covars
            )
        case LinearRegression():
            joint = m_step(Gaussian("full", np.zeros((m, d)), np.tile(np.eye(d), (m, 1, 1))), S)
            slopes = np.array([np.linalg.solve(cov[:-1, :-1], cov[:-1, -1]) for cov in joint.covars])
            intercepts = joint.means[:, -1] - (slopes * joint.means[:, :-1]).sum(axis=1)
            rest = joint.covars[:, -1, -1] - (slopes * joint.covars[:, :-1, -1]).sum(axis=1)
            return LinearRegression(None, slopes, intercepts, rest)
        case Independent():
            sizes = [len(statistic(part, 0, np.full(part.n_features, np.nan))) for part in emission.parts]
            pieces = np.split(S, np.cumsum(sizes)[:-1], axis=1)
            return Independent([m_step(part, own) for part, own in zip(emission.parts, pieces, strict=True)])
    return emission.reference_m_step(S)


# --- transition structures ------------------------------------------------------------------------------------------


def group_table(hmm: HMM) -> np.ndarray:
    """The group of each cell of the transition matrix, numbered from 0; -1 where impossible."""
    return hmm.transition.cells(hmm.n_components).groups.reshape(hmm.n_components, -1)


def m_step_transitions(hmm: HMM, S: np.ndarray) -> np.ndarray:
    """Transition matrix from S, the expected share of transitions in each group."""
    groups = group_table(hmm)
    transmat = np.zeros(groups.shape)
    for i, row in enumerate(groups):
        members = sorted(set(row[row >= 0]))
        total = sum(S[g] for g in members)
        for j, g in enumerate(row):
            if g >= 0:
                transmat[i, j] = S[g] / total / np.sum(row == g) + EXTINCT
    return transmat / transmat.sum(axis=1, keepdims=True)


class S(NamedTuple):
    """The statistic: by transition group (C,), and by state (m, p)."""

    transitions: np.ndarray
    emissions: np.ndarray


def new_model(hmm: HMM, s: S) -> HMM:
    return HMM(hmm.startprob, m_step_transitions(hmm, s.transitions), m_step(hmm.emission, s.emissions), hmm.transition)


# --- exact answers --------------------------------------------------------------------------------------------------


def log_densities(hmm: HMM, X: np.ndarray) -> np.ndarray:
    return np.array([[log_density(hmm.emission, i, y) for i in range(hmm.n_components)] for y in X])


def informative(hmm: HMM, X: np.ndarray) -> np.ndarray:
    """The times at which something was observed."""
    return np.array([t for t, y in enumerate(X) if not says_nothing(hmm.emission, y)], dtype=int)


def enumerate_paths(hmm: HMM, X: np.ndarray) -> tuple[float, S]:
    """Log-likelihood, and the sum of E[s(X_{t-1}, X_t, Y_t) | Y_{0:n}], by summing over every path.

    The sum is over all t > 0 but the first that was observed; a t at which nothing was seen teaches nothing.
    """
    m, n = hmm.n_components, len(X)
    learned = informative(hmm, X)[1:]
    groups = group_table(hmm)
    log_g = log_densities(hmm, X)
    rows = np.array([[statistic(hmm.emission, i, y) for i in range(m)] for y in X])
    total, transitions, emissions = 0.0, np.zeros(groups.max() + 1), np.zeros(rows.shape[1:])
    for path in itertools.product(range(m), repeat=n):
        p = hmm.startprob[path[0]] * np.prod([hmm.transmat[a, b] for a, b in itertools.pairwise(path)])
        if p == 0.0:
            continue
        p *= np.exp(sum(log_g[t, x] for t, x in enumerate(path)))
        total += p
        for t in learned:
            transitions[groups[path[t - 1], path[t]]] += p
            emissions[path[t]] += p * rows[t, path[t]]
    return float(np.log(total)), S(transitions / total, emissions / total)


def forward_backward(hmm: HMM, X: np.ndarray, skip: int = 1) -> tuple[float, S]:
    """The same by forward–backward smoothing, leaving out the first ``skip`` terms."""
    m, n = hmm.n_components, len(X)
    learned = informative(hmm, X)[skip:]
    groups = group_table(hmm)
    log_g = log_densities(hmm, X)
    top = log_g.max(axis=1)
    g = np.exp(log_g - top[:, None])
    alpha, scale = np.empty((n, m)), np.empty(n)
    for t in range(n):
        a = (hmm.startprob if t == 0 else alpha[t - 1] @ hmm.transmat) * g[t]
        scale[t] = a.sum()
        alpha[t] = a / scale[t]
    beta = np.ones((n, m))
    for t in range(n - 2, -1, -1):
        beta[t] = hmm.transmat @ (g[t + 1] * beta[t + 1]) / scale[t + 1]
    transitions = np.zeros(groups.max() + 1)
    emissions = np.zeros((m, len(statistic(hmm.emission, 0, X[0]))))
    for t in learned:
        if t > 0:
            pairs = alpha[t - 1][:, None] * hmm.transmat * (g[t] * beta[t]) / scale[t]
            np.add.at(transitions, groups[groups >= 0], pairs[groups >= 0])
        for i in range(m):
            emissions[i] += alpha[t, i] * beta[t, i] * statistic(hmm.emission, i, X[t])
    return float(np.log(scale).sum() + top.sum()), S(transitions, emissions)


# --- online EM ------------------------------------------------------------------------------------------------------


class Online(NamedTuple):
    """What a twin of the online algorithm ends with."""

    model: HMM
    phi: np.ndarray
    S: S
    log_likelihood: float
    average: HMM


def algorithm_1(hmm: HMM, X, step, n_min: int = 20, update_every: int = 1, starts=(0,)) -> Online:
    """Algorithm 1 for any family and structure. ``starts`` are the indices at which a new sequence begins."""
    m = hmm.n_components
    groups = group_table(hmm)
    n_groups = groups.max() + 1
    phi, log_likelihood = hmm.startprob, 0.0
    rho_q = np.zeros((n_groups, m))
    rho_g = np.zeros((m, len(statistic(hmm.emission, 0, X[0])), m))
    average, n_averaged, n = None, 0, 0
    learned = set(informative(hmm, X))
    for t, y in enumerate(X):
        gamma = (step(n) if n > 0 else 1.0) if t in learned else 0.0
        if t in starts:
            predicted, r = hmm.startprob, np.tile(phi[:, None], (1, m))
        else:
            joint = phi[:, None] * hmm.transmat
            predicted = joint.sum(axis=0)
            r = np.where(predicted > 0, joint / np.where(predicted > 0, predicted, 1.0), phi[:, None])
        log_g = log_densities(hmm, y[None])[0]
        top = log_g[predicted > 0].max()
        joint = predicted * np.exp(np.where(predicted > 0, log_g - top, -np.inf))
        phi = joint / joint.sum()
        log_likelihood += top + np.log(joint.sum())
        rho_q, rho_g = (1 - gamma) * rho_q @ r, (1 - gamma) * rho_g @ r
        for k in range(m):
            rho_g[k, :, k] += gamma * statistic(hmm.emission, k, y)
            if t not in starts:
                for i in range(m):
                    if groups[i, k] >= 0:
                        rho_q[groups[i, k], k] += gamma * r[i, k]
        s = S(rho_q @ phi, rho_g @ phi)
        if t in learned:
            if n > n_min and n % update_every == 0:
                hmm = new_model(hmm, s)
                n_averaged += 1
                weight = 2 / (n_averaged + 1)
                average = s if average is None else S(*(a + weight * (b - a) for a, b in zip(average, s, strict=True)))
            n += 1
    return Online(hmm, phi, s, log_likelihood, hmm if average is None else new_model(hmm, average))


def iid_online_em(hmm: HMM, X, step, n_min: int = 20) -> HMM:
    """Online EM for a mixture (section 3 of the paper): S moves towards the expected statistic of each observation."""
    weights = hmm.transmat[0]
    m = len(weights)
    s = None
    for n, y in enumerate(X):
        prior = hmm.startprob if n == 0 else weights
        log_g = log_densities(hmm, y[None])[0]
        posterior = prior * np.exp(log_g - log_g.max())
        posterior /= posterior.sum()
        expected = np.array([posterior[i] * statistic(hmm.emission, i, y) for i in range(m)])
        s = expected if n == 0 else (1 - step(n)) * s + step(n) * expected
        if n > n_min:
            weights = s[:, 0] / s[:, 0].sum()
            hmm = HMM(hmm.startprob, np.tile(weights, (m, 1)), m_step(hmm.emission, s), hmm.transition)
    return hmm


# --- exact inference ------------------------------------------------------------------------------------------------


class Exact(NamedTuple):
    """All that exact inference says about a record of one sequence."""

    log_likelihood: float
    filtered: np.ndarray  # (n, m)
    smoothed: np.ndarray  # (n, m)
    pairs: np.ndarray  # (n, m, m), 0 at t = 0
    log_best: float
    best: np.ndarray  # (n,)


def enumerate_inference(hmm: HMM, X: np.ndarray) -> Exact:
    """By summing over every path, and over every path of every beginning of the record."""
    m, n = hmm.n_components, len(X)
    log_g = log_densities(hmm, X)
    filtered = np.empty((n, m))
    for t in range(n):
        weights = np.zeros(m)
        for path in itertools.product(range(m), repeat=t + 1):
            weights[path[-1]] += np.exp(log_joint(hmm, log_g, path))
        filtered[t] = weights / weights.sum()
    total, smoothed, pairs, log_best, best = 0.0, np.zeros((n, m)), np.zeros((n, m, m)), -np.inf, None
    for path in itertools.product(range(m), repeat=n):
        log_p = log_joint(hmm, log_g, path)
        if log_p > log_best:
            log_best, best = log_p, np.array(path)
        p = np.exp(log_p)
        total += p
        smoothed[np.arange(n), path] += p
        pairs[np.arange(1, n), path[:-1], path[1:]] += p
    return Exact(float(np.log(total)), filtered, smoothed / total, pairs / total, log_best, best)


def log_joint(hmm: HMM, log_g: np.ndarray, path: tuple) -> float:
    """log p(path, Y) of the rows that the path covers."""
    with np.errstate(divide="ignore"):
        chain = np.log(hmm.startprob[path[0]]) + np.log(hmm.transmat[path[:-1], path[1:]]).sum()
    return float(chain + log_g[np.arange(len(path)), path].sum())


def infer(hmm: HMM, X: np.ndarray) -> Exact:
    """The same by the recursions of the textbook, in logarithms: slow, and never out of range."""
    m, n = hmm.n_components, len(X)
    log_g = log_densities(hmm, X)
    with np.errstate(divide="ignore"):
        log_nu, log_q = np.log(hmm.startprob), np.log(hmm.transmat)
    alpha, beta, delta = np.empty((n, m)), np.zeros((n, m)), np.empty((n, m))
    back = np.zeros((n, m), dtype=int)
    alpha[0] = delta[0] = log_nu + log_g[0]
    for t in range(1, n):
        alpha[t] = logsumexp(alpha[t - 1][:, None] + log_q, axis=0) + log_g[t]
        reached = delta[t - 1][:, None] + log_q
        back[t] = reached.argmax(axis=0)
        delta[t] = reached.max(axis=0) + log_g[t]
    for t in range(n - 2, -1, -1):
        beta[t] = logsumexp(log_q + log_g[t + 1] + beta[t + 1], axis=1)
    log_likelihood = logsumexp(alpha[-1])
    pairs = np.zeros((n, m, m))
    for t in range(1, n):
        pairs[t] = np.exp(alpha[t - 1][:, None] + log_q + log_g[t] + beta[t] - log_likelihood)
    best = np.empty(n, dtype=int)
    best[-1] = delta[-1].argmax()
    for t in range(n - 1, 0, -1):
        best[t - 1] = back[t, best[t]]
    filtered = np.exp(alpha - logsumexp(alpha, axis=1)[:, None])
    return Exact(log_likelihood, filtered, np.exp(alpha + beta - log_likelihood), pairs, delta[-1].max(), best)


def logsumexp(a: np.ndarray, axis: int | None = None):
    top = a.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(a - top).sum(axis=axis, keepdims=True)) + top
    return total.item() if axis is None else np.squeeze(total, axis)


# --- batch EM -------------------------------------------------------------------------------------------------------


def expect(hmm: HMM, sequences: list, with_first: bool = True) -> tuple[float, np.ndarray, S]:
    """E-step: log-likelihood, expected first states, and the statistic; a row of which nothing was seen has none."""
    m, groups = hmm.n_components, group_table(hmm)
    log_likelihood, start = 0.0, np.zeros(m)
    transitions, emissions = np.zeros(groups.max() + 1), 0.0
    for X in sequences:
        exact = infer(hmm, X)
        log_likelihood += exact.log_likelihood
        start += exact.smoothed[0]
        np.add.at(transitions, groups[groups >= 0], exact.pairs.sum(axis=0)[groups >= 0])
        for t in informative(hmm, X):
            if t > 0 or with_first:
                rows = np.array([statistic(hmm.emission, i, X[t]) for i in range(m)])
                emissions = emissions + exact.smoothed[t][:, None] * rows
    return log_likelihood, start, S(transitions, emissions)


def batch_em(hmm: HMM, sequences: list, n_iter: int, with_first: bool = True, start: str = "free") -> HMM:
    """EM as the textbook has it."""
    for _ in range(n_iter):
        _, starts, s = expect(hmm, sequences, with_first)
        hmm = new_model(hmm, s)
        if start == "free":
            hmm = HMM(starts / starts.sum(), hmm.transmat, hmm.emission, hmm.transition)
    return hmm


# --- scores ---------------------------------------------------------------------------------------------------------


def log_density_gradient(emission, i: int, y: np.ndarray) -> np.ndarray:
    """Derivatives of log g(i, y) by the numbers of the i-th row of ``emission.rows()``, each by itself."""
    missing = np.isnan(y)
    match emission:
        case Gaussian():
            seen = np.ix_(~missing, ~missing)
            precision = np.zeros((len(y), len(y)))  # of what was seen
            precision[seen] = np.linalg.inv(covariances(emission)[i][seen])
            z = np.where(missing, 0.0, y - emission.means[i])
            by_covariance = 0.5 * (precision @ np.outer(z, z) @ precision - precision)
            diagonal = np.diag(by_covariance)
            by_covars = {"full": by_covariance.ravel(), "tied": by_covariance.ravel(), "diag": diagonal}
            return np.concatenate([precision @ z, by_covars.get(emission.covariance, [diagonal.sum()])])
        case Categorical():
            return (
                np.zeros(emission.n_categories)
                if missing[0]
                else np.eye(emission.n_categories)[int(y[0])] / emission.probs[i]
            )
        case Multinomial():
            return np.zeros(len(y)) if missing.any() else y / emission.probs[i]
        case Poisson():
            return np.where(missing, 0.0, y / emission.rates[i] - 1)
        case Exponential():
            return np.where(missing, 0.0, 1 / emission.rates[i] - y)
        case Bernoulli():
            p = emission.probs[i]
            return np.where(missing, 0.0, np.where(y == 1, 1 / p, -1 / (1 - p)))
        case Geometric():
            p = emission.probs[i]
            return np.where(missing, 0.0, 1 / p - (y - 1) / (1 - p))
        case NegativeBinomial():
            r, mean = emission.shapes[i], emission.means[i]
            by_shape = special.psi(r + y) - special.psi(r) + np.log(r / (r + mean)) + (mean - y) / (r + mean)
            gradient = side_by_side(by_shape, y / mean - (r + y) / (r + mean))
            return np.where(np.repeat(missing, 2), 0.0, gradient)
        case Gamma():
            a, b = emission.shapes[i], emission.rates[i]
            gradient = side_by_side(np.log(b * np.where(missing, 1.0, y)) - special.psi(a), a / b - y)
            return np.where(np.repeat(missing, 2), 0.0, gradient)
        case LogNormal():
            z, v = np.log(y) - emission.means[i], emission.variances[i]
            return np.where(np.repeat(missing, 2), 0.0, side_by_side(z / v, (z**2 / v - 1) / (2 * v)))
        case VonMises():
            z, kappa = y - emission.means[i], emission.concentrations[i]
            gradient = side_by_side(kappa * np.sin(z), np.cos(z) - bessel_ratio(kappa))
            return np.where(np.repeat(missing, 2), 0.0, gradient)
        case GaussianMixture():
            r, inner = responsibilities(emission, i, y), state_components(emission, i)
            own = [r[j] * log_density_gradient(inner, j, y) for j in range(emission.n_mix)]
            return np.concatenate([r / emission.weights[i], *own])
        case LinearRegression():
            if missing.any():
                return np.zeros(emission.n_inputs + 2)
            v = emission.variances[i]
            e = y[-1] - emission.intercepts[i] - emission.coefficients[i] @ y[:-1]
            return np.concatenate([e / v * y[:-1], [e / v, 0.5 * (e**2 / v - 1) / v]])
        case Independent():
            return np.concatenate([log_density_gradient(part, i, own) for part, own in taken_apart(emission, y)])
    return emission.reference_gradient(i, y)


def tangent_filter(hmm: HMM, X: np.ndarray) -> np.ndarray:
    """Increments of the score by every cell of q and of the rows of theta: (n, m·m + m·p).

    The normalised filter and its derivative, row by row; cells are numbers of their own, not tied or constrained.
    """
    m, q = hmm.n_components, hmm.transmat
    width = hmm.emission.rows().shape[1]
    phi, d_phi = hmm.startprob, np.zeros((m, m * m + m * width))
    increments = []
    for t, y in enumerate(X):
        predicted, d_predicted = phi, d_phi
        if t > 0:
            predicted = phi @ q
            d_predicted = q.T @ d_phi
            for i in range(m):
                for k in range(m):
                    d_predicted[k, i * m + k] += phi[i]
        g = np.exp(log_densities(hmm, y[None])[0])
        joint, d_joint = predicted * g, d_predicted * g[:, None]
        for k in range(m):
            d_joint[k, m * m + k * width : m * m + (k + 1) * width] += joint[k] * log_density_gradient(
                hmm.emission, k, y
            )
        density, d_density = joint.sum(), d_joint.sum(axis=0)
        increments.append(d_density / density)
        phi, d_phi = joint / density, d_joint / density - np.outer(joint, d_density) / density**2
    return np.array(increments)


def enumerate_score(hmm: HMM, X: np.ndarray) -> np.ndarray:
    """Fisher's identity by enumeration: the mean of the complete-data score over all paths, by the same cells."""
    m = hmm.n_components
    log_g = log_densities(hmm, X)
    width = hmm.emission.rows().shape[1]
    total, score = 0.0, np.zeros(m * m + m * width)
    gradients = np.array([[log_density_gradient(hmm.emission, k, y) for k in range(m)] for y in X])
    for path in itertools.product(range(m), repeat=len(X)):
        p = np.exp(log_joint(hmm, log_g, path))
        if p == 0.0:
            continue
        complete = np.zeros_like(score)
        for t, k in enumerate(path):
            if t > 0:
                complete[path[t - 1] * m + k] += 1 / hmm.transmat[path[t - 1], k]
            complete[m * m + k * width : m * m + (k + 1) * width] += gradients[t, k]
        total += p
        score += p * complete
    return score / total


def sums_of_products(numbers: np.ndarray, weights: np.ndarray, n_together: int) -> tuple[np.ndarray, ...]:
    """Of rows that count differently: their sum, that of their products, and that of products of sums of some rows."""
    p = numbers.shape[1]
    total, outer, scatter = np.zeros(p), np.zeros((p, p)), np.zeros((p, p))
    for first in range(0, len(numbers), n_together):
        together = np.zeros(p)
        for row, weight in zip(numbers[first:][:n_together], weights[first:][:n_together], strict=True):
            together += weight * row
            outer += weight * np.outer(row, row)
        total += together
        scatter += np.outer(together, together)
    return total, outer, scatter
