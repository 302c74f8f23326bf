"""The paper's algorithms in plain NumPy, written to read like the paper, with its misprints corrected.

As the paper's own code they are vectorised but for the loop over time. They are one column of Table 1, and tests hold
the engine against them. Indices are those of the paper: rho_q[i, j, k], rho_g[d, i, k] and r[i, k] = r(i | k).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from hmmstream import HMM
from hmmstream.arrays import FloatArray, IntArray

DEGREES = np.arange(3)[:, np.newaxis]  # d of Y^d


class Theta(NamedTuple):
    """Parameters of a Markov chain observed in Gaussian noise."""

    q: FloatArray  # (m, m)
    mu: FloatArray  # (m,)
    upsilon: float


def theta_of(model: HMM) -> Theta:
    """The values of a model with ``Gaussian("tied")`` emissions of one feature."""
    return Theta(model.transmat, model.emission.means[:, 0], model.emission.covars.item())


class Rho(NamedTuple):
    """The auxiliary statistic, given the present state k."""

    q: FloatArray  # (m, m, m): transitions from i to j
    g: FloatArray  # (3, m, m): Y^d in state i


def density(theta: Theta, y: float) -> FloatArray:
    """g(k, y) for each state k, up to a factor."""
    return np.exp(-((y - theta.mu) ** 2) / (2 * theta.upsilon))


def begin(theta: Theta, nu: FloatArray, y: float) -> tuple[FloatArray, Rho]:
    """The filter and the statistic at Y₀."""
    m = len(nu)
    g = nu * density(theta, y)
    return g / g.sum(), Rho(np.zeros((m, m, m)), np.eye(m) * y ** DEGREES[:, np.newaxis])


def update(theta: Theta, phi: FloatArray, rho: Rho, y: float, gamma: float) -> tuple[FloatArray, Rho]:
    """Filter update and stochastic approximation E-step of Algorithm 2."""
    states = np.arange(len(phi))
    joint = phi[:, np.newaxis] * theta.q
    predicted = joint.sum(axis=0)
    r = joint / predicted
    g = predicted * density(theta, y)
    rho_q = (1 - gamma) * (rho.q @ r)
    rho_q[:, states, states] += gamma * r
    rho_g = (1 - gamma) * (rho.g @ r)
    rho_g[:, states, states] += gamma * y**DEGREES
    return g / g.sum(), Rho(rho_q, rho_g)


def maximize(S_q: FloatArray, S_g: FloatArray) -> Theta:
    """M-step."""
    mu = S_g[1] / S_g[0]
    return Theta(S_q / S_q.sum(axis=1, keepdims=True), mu, float((S_g[2] - mu**2 * S_g[0]).sum() / S_g[0].sum()))


def online_em(theta: Theta, nu: FloatArray, Y: FloatArray, step: Callable[[int], float], n_min: int = 20) -> Theta:
    """Algorithm 2."""
    phi, rho = begin(theta, nu, Y[0])
    for n in range(len(Y) - 1):
        phi, rho = update(theta, phi, rho, Y[n + 1], step(n + 1))
        if n >= n_min:
            theta = maximize(rho.q @ phi, rho.g @ phi)
    return theta


def batch_em_recursive(theta: Theta, nu: FloatArray, Y: FloatArray) -> Theta:
    """One iteration of batch EM by Proposition 1: the same recursion, all observations of equal weight."""
    phi, rho = begin(theta, nu, Y[0])
    for n in range(len(Y) - 1):
        phi, rho = update(theta, phi, rho, Y[n + 1], 1 / (n + 2))
    return maximize(rho.q @ phi, rho.g @ phi)


def batch_em_forward_backward(theta: Theta, nu: FloatArray, Y: FloatArray) -> Theta:
    """One iteration of batch EM by forward–backward smoothing."""
    g = np.exp(-((Y[:, np.newaxis] - theta.mu) ** 2) / (2 * theta.upsilon))
    phi, beta, scale = np.empty_like(g), np.ones_like(g), np.empty(len(Y))
    predicted = nu
    for n in range(len(Y)):
        joint = predicted * g[n]
        scale[n] = joint.sum()
        phi[n] = joint / scale[n]
        predicted = phi[n] @ theta.q
    for n in range(len(Y) - 1, 0, -1):
        beta[n - 1] = theta.q @ (g[n] * beta[n]) / scale[n]
    smoothed = phi * beta
    S_q = theta.q * (phi[:-1].T @ (g[1:] * beta[1:] / scale[1:, np.newaxis]))
    return maximize(S_q, (smoothed.T @ Y[:, np.newaxis] ** DEGREES.T).T)


# --- finite-valued observations (section 3.1) -----------------------------------------------------------------------


class Symbols(NamedTuple):
    """Parameters of a chain that emits symbols."""

    q: FloatArray  # (m, m)
    b: FloatArray  # (m, k): probability of each symbol


class Moment(NamedTuple):
    """Where an algorithm stands after an observation."""

    theta: Symbols
    phi: FloatArray  # (m,)
    statistic: FloatArray  # (m, m, k, m): rho or tau, of transitions i -> j with a symbol, and the present state


def symbols_from(S: FloatArray) -> Symbols:
    """M-step, from the shares of transitions i -> j with each symbol."""
    return Symbols(S.sum(axis=2) / S.sum(axis=(1, 2))[:, np.newaxis], S.sum(axis=0) / S.sum(axis=(0, 2))[:, np.newaxis])


def symbols_rho(
    theta: Symbols, nu: FloatArray, Y: IntArray, step: Callable[[int], float], n_min: int = 20
) -> Iterator[Moment]:
    """Algorithm 1 for finite-valued observations: after each of them, rho given the present state."""
    m, k = theta.b.shape
    states = np.arange(m)
    phi, rho = nu * theta.b[:, Y[0]] / (nu @ theta.b[:, Y[0]]), np.zeros((m, m, k, m))
    for n in range(len(Y) - 1):
        y, gamma = Y[n + 1], step(n + 1)
        joint = phi[:, np.newaxis] * theta.q
        r = joint / joint.sum(axis=0)
        rho = (1 - gamma) * (rho @ r)
        rho[:, states, y, states] += gamma * r
        phi = joint.sum(axis=0) * theta.b[:, y]
        phi = phi / phi.sum()
        if n >= n_min:
            theta = symbols_from(rho @ phi)
        yield Moment(theta, phi, rho)


def symbols_tau(
    theta: Symbols,
    nu: FloatArray,
    Y: IntArray,
    step: Callable[[int], float],
    n_min: int = 20,
    as_printed: bool = False,
) -> Iterator[Moment]:
    """The form of Mongillo and Denève: tau = phi rho is updated instead of rho."""
    m, k = theta.b.shape
    states = np.arange(m)
    phi, tau = nu * theta.b[:, Y[0]] / (nu @ theta.b[:, Y[0]]), np.zeros((m, m, k, m))
    for n in range(len(Y) - 1):
        y, gamma = Y[n + 1], step(n + 1)
        g = theta.b[:, [y]] if as_printed else theta.b[:, y]  # g(x', Y) is a misprint for g(x, Y)
        transfer = theta.q * g / (phi @ theta.q @ theta.b[:, y])
        tau = (1 - gamma) * (tau @ transfer)
        tau[:, states, y, states] += gamma * phi[:, np.newaxis] * transfer
        phi = phi @ transfer
        phi = phi / phi.sum()
        if n >= n_min:
            theta = symbols_from(tau.sum(axis=3))
        yield Moment(theta, phi, tau)
