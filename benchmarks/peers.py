"""Batch EM in other libraries: each fits the same Gaussian model from the same start, without priors, on one core.

A peer is a function of start and record that makes ready what can be, and returns a function of the number of
iterations; that returns transition probabilities and means, (m, m + 1).
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hmmstream import HMM, BatchHMM
from paper.algorithms import Theta, batch_em_forward_backward

Fit = Callable[[int], np.ndarray]


def hmmstream(start: HMM, X: np.ndarray, method: str = "forward-backward") -> Fit:
    """``BatchHMM.fit``."""

    def fit(n_iter: int) -> np.ndarray:
        model = BatchHMM(init=start, n_iter=n_iter, tol=-np.inf, n_jobs=1, method=method).fit(X).model_
        return np.hstack([model.transmat, model.emission.means])

    return fit


def plain_numpy(start: HMM, X: np.ndarray) -> Fit:
    """Forward–backward as ``paper/algorithms.py`` has it; one variance for all states is hardly less work."""

    def fit(n_iter: int) -> np.ndarray:
        theta = Theta(start.transmat, start.emission.means[:, 0], 1.0)
        for _ in range(n_iter):
            theta = batch_em_forward_backward(theta, start.startprob, X[:, 0])
        return np.hstack([theta.q, theta.mu[:, np.newaxis]])

    return fit


def hmmlearn(start: HMM, X: np.ndarray, implementation: str) -> Fit:
    """``GaussianHMM.fit``."""
    from hmmlearn.hmm import GaussianHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)  # it would say that many states have many parameters
    none = dict.fromkeys(("min_covar", "means_prior", "means_weight", "covars_prior", "covars_weight"), 0.0)

    def fit(n_iter: int) -> np.ndarray:
        settings = {"n_iter": n_iter, "tol": -np.inf, "init_params": "", "implementation": implementation}
        peer = GaussianHMM(start.n_components, **settings, **none)
        peer.startprob_, peer.transmat_ = start.startprob, start.transmat
        peer.means_, peer.covars_ = start.emission.means, start.emission.covars
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer.fit(X)
        return np.hstack([peer.transmat_, peer.means_])

    return fit


def dynamax(start: HMM, X: np.ndarray, kind: str) -> Fit:
    """Expectation and maximization as ``fit_em`` has them, compiled together beforehand."""
    import jax
    from dynamax.hidden_markov_model import DiagonalGaussianHMM

    jax.config.update("jax_enable_x64", kind == "float64")
    array = partial(jax.numpy.asarray, dtype=kind)
    model = DiagonalGaussianHMM(
        start.n_components,
        1,
        initial_probs_concentration=1.0,
        transition_matrix_concentration=1.0,
        emission_prior_mean_concentration=1e-12,
    )
    first, properties = model.initialize(
        jax.random.PRNGKey(0),
        initial_probs=array(start.startprob),
        transition_matrix=array(start.transmat),
        emission_means=array(start.emission.means),
        emission_scale_diags=array(np.sqrt(start.emission.covars)),
    )
    nothing = model.initialize_m_step_state(first, properties)

    def iteration(parameters: Any, data: Any) -> Any:
        counts, _ = model.e_step(parameters, data)
        one_record = jax.tree.map(lambda x: x[np.newaxis], counts)
        return model.m_step(parameters, properties, one_record, nothing)[0]

    data = array(X)
    compiled = jax.jit(iteration).lower(first, data).compile()

    def fit(n_iter: int) -> np.ndarray:
        parameters = first
        for _ in range(n_iter):
            parameters = jax.block_until_ready(compiled(parameters, data))
        return np.hstack([parameters.transitions.transition_matrix, parameters.emissions.means])

    return fit


def pomegranate(start: HMM, X: np.ndarray) -> Fit:
    """``DenseHMM``, what its ``fit`` does at each iteration, without what it prints and checks."""
    import torch
    from pomegranate.distributions import Normal
    from pomegranate.hmm import DenseHMM

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    data = torch.tensor(X)[np.newaxis]
    m = start.n_components

    def fit(n_iter: int) -> np.ndarray:
        values = zip(start.emission.means, start.emission.covars, strict=True)
        model = DenseHMM(
            [Normal(torch.tensor(mean), torch.tensor(variance), "diag") for mean, variance in values],
            edges=torch.tensor(start.transmat),
            starts=torch.tensor(start.startprob),
            ends=torch.full((m,), 1 / m),
            check_data=False,
        )
        with torch.no_grad():
            for _ in range(n_iter):
                model.summarize(data)
                model.from_summaries()
            transmat = model.edges.exp().numpy()
            means = np.array([state.means.numpy() for state in model.distributions])
        # It counts the end of the record as one transition more
        return np.hstack([transmat / transmat.sum(axis=1, keepdims=True), means])

    return fit


PEERS: dict[str, tuple[str, Callable[[HMM, np.ndarray], Fit]]] = {  # name: the package it is in, and itself
    "NumPy": ("numpy", plain_numpy),
    "hmmlearn, scaling": ("hmmlearn", partial(hmmlearn, implementation="scaling")),
    "hmmlearn, log": ("hmmlearn", partial(hmmlearn, implementation="log")),
    "dynamax": ("dynamax", partial(dynamax, kind="float64")),
    "dynamax, float32": ("dynamax", partial(dynamax, kind="float32")),
    "pomegranate": ("pomegranate", pomegranate),
}


def is_installed(peer: str) -> bool:
    """Whether the package of a peer can be found."""
    return importlib.util.find_spec(PEERS[peer][0]) is not None
