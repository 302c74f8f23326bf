"""Rows of which more is known: their states, or how much they count."""

import itertools

import models
import numpy as np
import pytest
import reference

import hmmstream
from hmmstream import HMM, BatchHMM, Categorical, Gaussian, Learner, Masked, OnlineHMM
from hmmstream.arrays import LARGEST_WEIGHT
from hmmstream.recursions.state import LOG_LIKELIHOOD

TOLERANCE = 1e-10


def one_over_n_plus_one(n):
    return 1.0 / (n + 1)


def enumerate_with_known(hmm, X, states, weights):
    """Log-likelihood of rows and known states, smoothed probabilities, expected weighted transitions and statistics."""
    m, n = hmm.n_components, len(X)
    log_g = reference.log_densities(hmm, X)
    s = np.array([[reference.statistic(hmm.emission, i, y) for i in range(m)] for y in X])
    total, smoothed, pairs, emissions = 0.0, np.zeros((n, m)), np.zeros((m, m)), np.zeros(s.shape[1:])
    for path in itertools.product(range(m), repeat=n):
        if any(known not in (-1, x) for known, x in zip(states, path, strict=True)):
            continue
        p = np.exp(reference.log_joint(hmm, log_g, path))
        total += p
        smoothed[np.arange(n), path] += p
        for t in range(n):
            emissions[path[t]] += p * weights[t] * s[t, path[t]]
            if t > 0:
                pairs[path[t - 1], path[t]] += p * weights[t]
    return np.log(total), smoothed / total, pairs / total, emissions / total


@pytest.mark.parametrize("family", ["gaussian-full", "poisson"])
@pytest.mark.parametrize("seed", range(3))
def test_known_states_and_weights_equal_the_sum_over_the_paths_that_agree(family, seed):
    hmm = models.make(family)
    X, truth = hmm.sample(6, seed)
    rng = np.random.default_rng(seed)
    states = np.where(rng.random(6) < 0.4, truth, -1)
    weights = rng.uniform(0.1, 3.0, 6)
    log_likelihood, smoothed, pairs, emissions = enumerate_with_known(hmm, X, states, weights)

    learner = Learner(hmm, step=one_over_n_plus_one)
    learner.freeze()
    learner.learn(X, states=states, weights=weights)
    assert learner.log_likelihood == pytest.approx(log_likelihood, rel=TOLERANCE)
    np.testing.assert_allclose(learner.filtered_proba, smoothed[-1], atol=TOLERANCE)
    np.testing.assert_allclose(learner.statistic.transitions * 6, pairs, atol=TOLERANCE)
    np.testing.assert_allclose(learner.statistic.emissions * 6, emissions, atol=TOLERANCE)

    m_step = reference.new_model(hmm, reference.S(pairs.ravel(), emissions))
    for method in ("forward-backward", "recursive"):
        fit = BatchHMM(init=hmm, n_iter=1, tol=-np.inf, method=method).fit(X, states, sample_weight=weights)
        assert fit.history_[0] == pytest.approx(log_likelihood, rel=TOLERANCE)
        np.testing.assert_allclose(models.values(fit.model_), models.values(m_step), rtol=1e-9)
        np.testing.assert_allclose(fit.startprob_, smoothed[0], atol=TOLERANCE)


def test_with_all_states_known_learning_is_counting():
    world = models.make("gaussian-diag")
    X, states = world.sample(500, 3)
    fit = BatchHMM(init=models.rough_start("gaussian-diag"), n_iter=1, tol=-np.inf).fit(X, states)
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (states[:-1], states[1:]), 1)
    np.testing.assert_allclose(fit.transmat_, pairs / pairs.sum(axis=1, keepdims=True), rtol=1e-12, atol=1e-30)
    np.testing.assert_allclose(fit.means_, [X[states == k].mean(axis=0) for k in range(3)], rtol=1e-10)
    np.testing.assert_allclose(fit.covars_, [X[states == k].var(axis=0) for k in range(3)], rtol=1e-10)


@pytest.mark.parametrize("method", ["forward-backward", "recursive"])
def test_a_sequence_of_weight_three_counts_as_three(method):
    world = models.make("gaussian-full")
    a, b = world.sample(60, 1)[0], world.sample(40, 2)[0]
    start = models.rough_start("gaussian-full")
    settings = {"init": start, "n_iter": 4, "tol": -np.inf, "method": method}
    weighted = BatchHMM(**settings).fit(
        np.concatenate([a, b]), lengths=[60, 40], sample_weight=np.repeat([3.0, 1.0], [60, 40])
    )
    repeated = BatchHMM(**settings).fit(np.concatenate([a, a, a, b]), lengths=[60, 60, 60, 40])
    np.testing.assert_allclose(models.values(weighted.model_), models.values(repeated.model_), rtol=1e-9)
    np.testing.assert_allclose(weighted.startprob_, repeated.startprob_, rtol=1e-9)


def test_weighted_em_goes_to_its_end():
    """The plain likelihood is not what it climbs."""
    X = models.paper_model().sample(400, 3)[0]
    rng = np.random.default_rng(0)
    for seed in range(3):
        hmm = BatchHMM(2, Gaussian("tied"), n_iter=200, random_state=seed).fit(X, sample_weight=rng.uniform(0, 3, 400))
        assert np.isfinite(models.values(hmm.model_)).all()
    weights = np.linspace(0.0, 1.0, 400)  # the first row counts nothing: the start distribution has no data
    for estimator in (BatchHMM(2, random_state=0), OnlineHMM(2, random_state=0)):
        assert np.isfinite(models.values(estimator.fit(X, sample_weight=weights).model_)).all()


def test_a_known_state_in_which_the_row_cannot_be():
    probs = [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]]
    start = HMM([0.4, 0.3, 0.3], models.make("categorical").transmat, Categorical(probs=probs))
    proba = Learner(start).follow([0, 1, 1, 0, 0], states=[-1, 0, 0, 0, -1])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(proba[1:4, 0], 1.0)
    with pytest.raises(ValueError, match="y cannot be"):
        BatchHMM(init=start).fit([0, 1, 1], [-1, 0, 0])


def test_weights_where_probabilities_vanish():
    """The pass in logarithms counts as the other does."""
    start = HMM([0.5, 0.5], [[0.99, 0.01], [0.0, 1.0]], Gaussian("diag", means=[0, 60], covars=[[1], [1]]), "full")
    masked = HMM(start.startprob, start.transmat, start.emission, Masked.left_right(2))
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=20), [55.0], rng.normal(size=20), 60 + rng.normal(size=20)])
    plain = BatchHMM(init=masked, n_iter=1, tol=-np.inf).fit(X)
    weighted = BatchHMM(init=masked, n_iter=1, tol=-np.inf).fit(X, sample_weight=np.ones(len(X)))
    np.testing.assert_allclose(models.values(weighted.model_), models.values(plain.model_), rtol=1e-9)


@pytest.mark.parametrize("at", [0, 1, 50])
@pytest.mark.parametrize("engine", ["dense", "window"])
def test_the_largest_weights_of_the_largest_observations_stay_finite(engine, at, tmp_path):
    X, weights = models.paper_model().sample(100, 1)[0], np.ones(100)
    X[at], weights[at : at + 2] = 1e160, LARGEST_WEIGHT  # the observation is taken for 1e150
    learner = Learner(models.paper_start(), engine=engine)
    learner.learn(X[:52], weights=weights[:52])
    hmmstream.save(learner, tmp_path / "model.hmm")
    learner = hmmstream.load(tmp_path / "model.hmm")
    learner.learn(X[52:])
    assert np.isfinite(np.delete(learner.vector, LOG_LIKELIHOOD)).all()
    assert np.isfinite(models.values(learner.model)).all()
    for weight in (1.001 * LARGEST_WEIGHT, np.inf, -1.0, np.nan):
        weights[7] = weight
        with pytest.raises(ValueError, match=r"sample_weight\[7\] .* from 0 to 1,000,000"):
            learner.learn(X, weights=weights)


def test_a_row_of_weight_zero_moves_the_filter_and_teaches_nothing():
    X = models.paper_model().sample(300, 1)[0]
    a, b = Learner(models.paper_start()), Learner(models.paper_start())
    a.learn(X[:200])
    b.learn(X[:200])
    b.learn(X[200:], weights=np.zeros(100))
    np.testing.assert_array_equal(models.values(a.last_model), models.values(b.last_model))
    assert (a.filtered_proba != b.filtered_proba).any()
    assert b.statistic.emissions[:, 0].sum() == pytest.approx(a.statistic.emissions[:, 0].sum(), rel=1e-12)


def test_weights_of_one_and_unknown_states_change_nothing():
    X = models.paper_model().sample(500, 1)[0]
    plain = Learner(models.paper_start())
    plain.learn(X)
    said = Learner(models.paper_start())
    said.learn(X, states=np.full(500, -1), weights=np.ones(500))
    np.testing.assert_allclose(said.vector, plain.vector, rtol=1e-12)


def test_an_observer_is_believed_even_against_the_structure():
    start = HMM([1.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], Gaussian("tied", means=[0.0, 1.0], covars=1.0), Masked.banded(2))
    learner = Learner(start)
    proba = learner.follow([0.0, 0.1, 0.2], states=[-1, 1, -1])
    np.testing.assert_allclose(proba[:2], [[1.0, 0.0], [0.0, 1.0]])
    assert learner.log_likelihood == -np.inf
    assert np.isfinite(models.values(learner.model)).all()


def test_a_few_known_states_decide_which_state_is_which():
    """Labels are the other way round than the means; with nothing known, states come in the order of their means."""
    world = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("tied", means=[3.0, 0.0], covars=1.0))
    X, truth = world.sample(2000, 5)
    y = np.full(2000, -1)
    y[:10] = truth[:10]
    for estimator in (OnlineHMM(2, random_state=0), BatchHMM(2, random_state=0)):
        np.testing.assert_allclose(estimator.fit(X, y).means_[:, 0], [3.0, 0.0], atol=0.3)
        np.testing.assert_allclose(estimator.fit(X).means_[:, 0], [0.0, 3.0], atol=0.3)


def test_repeated_passes_go_over_the_record_again():
    X = models.paper_model().sample(2000, 6)[0]
    twice = OnlineHMM(init=models.paper_start()).fit(X, n_passes=2)
    by_hand = OnlineHMM(init=models.paper_start()).fit(X).end_sequence().partial_fit(X)
    np.testing.assert_array_equal(models.values(twice.model_), models.values(by_hand.model_))
    assert twice.n_samples_seen_ == 4000
    ten = OnlineHMM(init=models.paper_start()).fit(X, n_passes=10)
    assert ten.score(X) > twice.score(X) > OnlineHMM(init=models.paper_start()).fit(X).score(X)
    with pytest.raises(ValueError, match="n_passes must be a positive integer"):
        OnlineHMM(init=models.paper_start()).fit(X, n_passes=0)


def test_what_cannot_be_meant_is_refused_and_changes_nothing():
    X = models.paper_model().sample(20, 0)[0]
    hmm = OnlineHMM(init=models.paper_start()).partial_fit(X)
    before = hmm._learner.vector.copy()
    for arguments, message in [
        ({"y": np.zeros(19)}, "y must hold the state of each of the 20 rows"),
        ({"y": np.r_[np.full(19, -1), 2]}, r"y\[19\] is 2: a state is 0, …, 1, or -1"),
        ({"y": np.r_[np.full(19, -1.0), 0.5]}, r"y\[19\] is 0.5"),
        ({"y": np.r_[np.full(19, np.nan), 0.0]}, r"y\[0\] is nan"),
        ({"y": np.zeros((20, 1))}, "y must hold the state of each of the 20 rows"),
        ({"sample_weight": np.ones(3)}, "sample_weight must hold a number for each of the 20 rows"),
        ({"sample_weight": np.r_[np.ones(19), -1]}, r"sample_weight\[19\] is -1"),
        ({"sample_weight": np.r_[np.ones(19), np.nan]}, r"sample_weight\[19\] is nan"),
    ]:
        with pytest.raises(ValueError, match=message):
            hmm.partial_fit(X, **arguments)
        with pytest.raises(ValueError, match=message):
            BatchHMM(init=models.paper_start()).fit(X, **arguments)
    np.testing.assert_array_equal(hmm._learner.vector, before)


def test_labels_of_another_kind_are_ignored_with_a_warning():
    X = models.paper_model().sample(20, 0)[0]
    plain = BatchHMM(init=models.paper_start(), n_iter=2).fit(X)
    for labels in (np.arange(20), np.repeat(["sit", "walk"], 10)):
        with pytest.warns(UserWarning, match="y is ignored: known states are numbered 0, …, 1"):
            hmm = BatchHMM(init=models.paper_start(), n_iter=2).fit(X, labels)
        np.testing.assert_array_equal(models.values(hmm.model_), models.values(plain.model_))
