"""Priors: imagined observations count as observations do."""

import models
import numpy as np
import pytest
from scipy.optimize import minimize

from hmmstream import (
    HMM,
    BatchHMM,
    Categorical,
    Constant,
    Gaussian,
    Learner,
    LinearRegression,
    Masked,
    OnlineHMM,
    Poisson,
    Prior,
)


def one_over_n_plus_one(n):
    return 1.0 / (n + 1)


def counted(states):
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (states[:-1], states[1:]), 1)
    return pairs


def test_with_known_states_the_fit_is_counts_and_imagined_counts():
    world = models.make("poisson")
    X, states = world.sample(200, 1)
    prior = Prior(transitions=2.0, stickiness=5.0, emission=Poisson([2.0, 3.0, 4.0]), strength=10.0)
    fit = BatchHMM(init=world, prior=prior, n_iter=1).fit(X, states)
    pairs = counted(states) + 2.0 + 5.0 * np.eye(3)
    np.testing.assert_allclose(fit.transmat_, pairs / pairs.sum(axis=1, keepdims=True), rtol=1e-12)
    n = np.bincount(states)
    total = np.bincount(states, X[:, 0])
    np.testing.assert_allclose(fit.rates_[:, 0], (total + 10.0 * np.array([2, 3, 4])) / (n + 10.0), rtol=1e-12)


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "tied"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_imagined_observations_of_a_gaussian_have_its_mean_and_covariance(covariance, offset):
    world = models.make("gaussian-full")
    X, states = world.sample(300, 2)
    shape = {"full": (3, 2, 2), "diag": (3, 2), "spherical": (3,), "tied": (2, 2)}[covariance]
    covars = {"full": np.tile(np.eye(2), (3, 1, 1)), "tied": np.eye(2)}.get(covariance, np.ones(shape))
    means = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    prior = Prior(emission=Gaussian(covariance, offset + means, covars), strength=20.0)
    start = HMM(world.startprob, world.transmat, Gaussian(covariance, offset + world.emission.means, covars))
    fit = BatchHMM(init=start, prior=prior, n_iter=1).fit(X + offset, states)
    n = np.bincount(states)
    expected = [(X[states == k].sum(axis=0) + 20 * means[k]) / (n[k] + 20) for k in range(3)]
    np.testing.assert_allclose(fit.means_ - offset, expected, atol=1e-12 + 1e-9 * (offset > 0))
    scatter = [
        (X[states == k] - expected[k]).T @ (X[states == k] - expected[k])
        + 20 * (np.eye(2) + np.outer(means[k] - expected[k], means[k] - expected[k]))
        for k in range(3)
    ]
    each = np.array([scatter[k] / (n[k] + 20) for k in range(3)])
    expected_covars = {
        "full": each,
        "diag": each.diagonal(axis1=1, axis2=2),
        "spherical": each.trace(axis1=1, axis2=2) / 2,
        "tied": np.sum(scatter, axis=0) / (300 + 60),
    }[covariance]
    np.testing.assert_allclose(fit.covars_, expected_covars, rtol=1e-9 if offset == 0.0 else 1e-6)


def test_the_fit_is_the_most_probable_model():
    """For two symbols the posterior is a function of five numbers, which an optimiser of its own climbs as well."""
    world = HMM([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], Categorical(probs=[[0.9, 0.1], [0.3, 0.7]]))
    X = world.sample(150, 3)[0]
    imagined = np.array([[0.8, 0.2], [0.4, 0.6]])
    prior = Prior(transitions=1.5, stickiness=4.0, emission=Categorical(probs=imagined), strength=6.0)

    def model(logits):
        p = 1 / (1 + np.exp(-logits))
        return HMM(
            [0.5, 0.5], [[p[0], 1 - p[0]], [1 - p[1], p[1]]], Categorical(probs=[[p[2], 1 - p[2]], [p[3], 1 - p[3]]])
        )

    def loss(logits):
        hmm = model(logits)
        log_prior = ((1.5 + 4.0 * np.eye(2)) * np.log(hmm.transmat)).sum()
        log_prior += 6.0 * (imagined * np.log(hmm.emission.probs)).sum()
        return -hmm.log_likelihood(X) - log_prior

    best = model(
        minimize(
            loss, [1.0, 1.0, 1.0, -1.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000}
        ).x
    )
    fit = BatchHMM(init=world, prior=prior, start="fixed", n_iter=2000, tol=1e-12).fit(X)
    np.testing.assert_allclose(fit.transmat_, best.transmat, atol=1e-4)
    np.testing.assert_allclose(fit.probs_, best.emission.probs, atol=1e-4)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_on_line_the_imagined_count_against_all_that_was_seen(offset):
    """With equal weights and known states, S is the mean over all rows: the M-step can be written down."""
    world = models.make("gaussian-diag")
    X, states = world.sample(400, 4)
    means = np.array([[9.0, 9.0], [8.0, 8.0], [7.0, 7.0]])
    prior = Prior(transitions=3.0, emission=Gaussian("diag", offset + means, np.ones((3, 2))), strength=15.0)
    start = HMM(world.startprob, world.transmat, Gaussian("diag", offset + world.emission.means, world.emission.covars))
    learner = Learner(start, step=one_over_n_plus_one, averaging=None, prior=prior)
    learner.learn(X + offset, states=states)
    n = np.bincount(states)
    weight = 400 / 399  # the M-step of the last row counts the rows before it
    expected = [(X[states == k].sum(axis=0) + weight * 15 * means[k]) / (n[k] + weight * 15) for k in range(3)]
    np.testing.assert_allclose(learner.model.emission.means - offset, expected, atol=1e-9 if offset == 0.0 else 1e-7)
    pairs = counted(states) + weight * 3.0
    np.testing.assert_allclose(learner.model.transmat, pairs / pairs.sum(axis=1, keepdims=True), rtol=1e-10)


def test_a_prior_fades_unless_the_step_forgets():
    X = models.paper_model().sample(40_000, 5)[0]
    prior = Prior(emission=Gaussian("tied", means=[0.0, 1.6], covars=0.5), strength=50.0)
    fading = OnlineHMM(init=models.paper_model(), prior=prior).partial_fit(X)
    assert fading.means_[1, 0] == pytest.approx(1.0, abs=0.1)
    lasting = OnlineHMM(init=models.paper_model(), prior=prior, step=Constant(0.005)).partial_fit(X)
    assert lasting.means_[1, 0] > 1.2


def test_sticky_states_last():
    """Fast alternation that the prior takes for noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(np.repeat([0.0, 2.0, 0.0, 2.0], 50))
    loose = BatchHMM(2, Gaussian("tied"), random_state=0).fit(X)
    sticky = BatchHMM(2, Gaussian("tied"), prior=Prior(stickiness=100.0), random_state=0).fit(X)
    assert (np.diag(sticky.transmat_) > np.diag(loose.transmat_)).all()
    assert (np.diff(sticky.decode(X)[1]) != 0).sum() == 3


def test_a_state_that_is_never_seen_is_what_was_imagined():
    prior = Prior(transitions=1.0, emission=Gaussian("diag", means=[0.0, 70.0], covars=[1.0, 4.0]), strength=2.0)
    start = HMM([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], Gaussian("diag", means=[0.0, 100.0], covars=[1.0, 1.0]))
    X = np.random.default_rng(1).normal(size=300)
    fit = BatchHMM(init=start, prior=prior).fit(X)
    assert fit.means_[1, 0] == pytest.approx(70.0)
    assert fit.covars_[1, 0] == pytest.approx(4.0)


def test_imagined_responses_have_the_slope_of_the_prior():
    prior = Prior(emission=LinearRegression(1, [[-7.0], [3.0]], [0.0, 1.0], [1.0, 1.0]), strength=1e6)
    start = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], LinearRegression(1, [[1.0], [2.0]], [0.0, 0.0], [1.0, 1.0]))
    X = start.sample(200, 8)[0]
    fit = BatchHMM(init=start, prior=prior).fit(X)
    np.testing.assert_allclose(fit.coefficients_[:, 0], [-7.0, 3.0], atol=0.01)
    np.testing.assert_allclose(fit.intercepts_, [0.0, 1.0], atol=0.01)


def test_zeros_of_the_structure_stay_zeros():
    world = models.make("poisson", "masked")
    X = world.sample(300, 6)[0]
    prior = Prior(transitions=1.0, stickiness=1.0)
    for hmm in (BatchHMM(init=world, prior=prior), OnlineHMM(init=world, prior=prior)):
        np.testing.assert_array_equal(hmm.fit(X).transmat_ == 0, world.transmat == 0)


def test_models_that_start_themselves_take_a_prior():
    X = models.paper_model().sample(500, 7)[0]
    prior = Prior(stickiness=1e4)
    assert (np.diag(OnlineHMM(2, prior=prior, random_state=0).partial_fit(X).transmat_) > 0.97).all()


def test_states_are_numbered_as_the_prior_has_them():
    world = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Gaussian("tied", means=[0.0, 5.0], covars=1.0))
    X = world.sample(1000, 9)[0]
    prior = Prior(emission=Gaussian("tied", means=[5.0, 0.0], covars=1.0), strength=50.0)
    for estimator in (OnlineHMM, BatchHMM):
        hmm = estimator(2, Gaussian("tied"), prior=prior, random_state=0).fit(X)
        np.testing.assert_allclose(hmm.means_[:, 0], [5.0, 0.0], atol=0.3)
        assert hmm.covars_.item() < 1.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transitions": -1.0}, "cannot be negative"),
        ({"stickiness": np.nan}, "stickiness must be finite"),
        ({"emission": Poisson([1.0, 2.0])}, "both an emission and its strength"),
        ({"strength": 2.0}, "both an emission and its strength"),
        ({"emission": Poisson(), "strength": 2.0}, "with its values"),
        ({"transitions": np.ones((2, 3))}, r"a number or of shape \(2, 2\)"),
        ({"emission": Poisson([1.0, 2.0]), "strength": 1.0}, "about Poisson"),
        ({"emission": Gaussian("diag", [0, 1], [1, 1]), "strength": 1.0}, "about Gaussian"),
        ({"emission": Gaussian("tied", [0, 1, 2], 1.0), "strength": 1.0}, "3 states and 1 features"),
    ],
)
def test_beliefs_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        OnlineHMM(init=models.paper_start(), prior=Prior(**arguments)).partial_fit([1.0])
    with pytest.raises(ValueError, match=message):
        BatchHMM(init=models.paper_start(), prior=Prior(**arguments)).fit([1.0])


def test_a_prior_is_a_prior():
    with pytest.raises(ValueError, match="prior must be a Prior or None"):
        OnlineHMM(prior=3.0).partial_fit([1.0])
    assert Prior(1.0, 2.0) == Prior(1.0, 2.0) != Prior(1.0)
    masked = HMM([1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], Poisson([1.0, 2.0]), Masked.banded(2, width=0))
    Learner(masked, prior=Prior(1.0)).learn([1, 2, 3])
