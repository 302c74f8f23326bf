"""Features that join a stream late, and what an observation would say before it is learned from."""

import pickle

import models
import numpy as np
import pytest

from hmmstream import HMM, Gaussian, Learner, OnlineHMM, Poisson, Polyak, Prior, starts
from hmmstream.record import Record

# Two states, three features and then six, with a prior: shapes that the tests of River's adapters compile anyway
MEANS = np.array([[-1.0, 2.0, 0.0], [1.5, -1.0, 0.5]])
LEVELS = HMM([0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]], Gaussian("diag", MEANS, np.ones((2, 3))))
GUESS = HMM([0.5, 0.5], [[0.8, 0.2], [0.3, 0.7]], Gaussian("diag", 0.5 * MEANS, np.full((2, 3), 2.0)))
WORLDS = {"gaussian": LEVELS, "poisson": models.make("poisson")}
STARTS = {"gaussian": GUESS, "poisson": models.rough_start("poisson")}
NEW = {
    "gaussian": Gaussian("diag", [[5.0, 0.0, 1.0], [6.0, 1.0, 1.0]], [[2.0, 1.0, 3.0], [0.5, 1.0, 3.0]]),
    "poisson": Poisson([[3.0], [1.0], [2.0]]),
}


def streams(family):
    """A start and a stream with gaps, and the same with further features."""
    start = STARTS[family]
    X, states = WORLDS[family].sample(700, random_state=5)
    late = NEW[family].sample(states[::-1], np.random.default_rng(6))
    joint = HMM(start.startprob, start.transmat, start.emission.beside(NEW[family]), start.transition)
    narrow = models.with_gaps(X, 0.1)
    return start, joint, narrow, np.hstack([narrow, models.with_gaps(late, 0.2, seed=1)])


def assert_same(learner, other):
    for ours, theirs in (
        (models.values(learner.model), models.values(other.model)),
        (models.values(learner.last_model), models.values(other.last_model)),
        (learner.filtered_proba, other.filtered_proba),
        (learner.statistic.emissions, other.statistic.emissions),
        (learner.statistic.transitions, other.statistic.transitions),
        (learner.log_likelihood, other.log_likelihood),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("family", "averaging"), [("gaussian", "auto"), ("poisson", Polyak(50))])
def test_a_feature_that_joins_was_missing_all_the_time(family, averaging):
    start, joint, narrow, wide = streams(family)
    prior, wide_prior = None, None
    if family == "gaussian":
        prior = Prior(transitions=1.0, emission=start.emission, strength=3.0)
        wide_prior = Prior(transitions=1.0, emission=joint.emission, strength=3.0)
    learner = Learner(start, averaging=averaging, prior=prior)
    always = Learner(joint, averaging=averaging, prior=wide_prior)
    missing = np.hstack([narrow[:300], np.full((300, NEW[family].n_features), np.nan)])
    learner.learn(narrow[:300])
    always.learn(missing)
    learner.add_features(NEW[family])
    assert learner.n_samples_seen == 300
    assert_same(learner, always)
    learner.learn(wide[300:])
    always.learn(wide[300:])
    assert_same(learner, always)
    assert abs(models.values(learner.last_model) - models.values(always.start)).max() > 0.1
    learner.reset()
    assert (models.values(learner.last_model) == models.values(joint)).all()


def test_a_feature_far_from_the_origin_joins_without_losing_digits():
    start, _, narrow, _ = streams("gaussian")
    learner = Learner(start, n_min=0, prior=Prior())
    learner.learn(narrow[:300])
    learner.add_features(Gaussian("diag", means=[[1e8] * 3] * 2, covars=[[0.25] * 3] * 2))
    learner.learn(np.hstack([narrow[300:302], np.full((2, 3), 1e8)]))
    variances = learner.last_model.emission.covars[:, 3:]
    assert (variances > 0.2).all()
    assert (variances < 0.25 + 1e-9).all()


def test_features_that_cannot_join_are_refused_and_change_nothing():
    for family in (
        "gaussian-full",
        "gaussian-spherical",
        "gaussian-tied",
        "gaussian-paper",
        "categorical",
        "multinomial",
    ):
        emission = models.FAMILIES[family]
        with pytest.raises(ValueError, match=f"no feature can be added to {type(emission).__name__}"):
            emission.beside(emission)
    learner = Learner(GUESS, prior=Prior())
    before = learner.vector.copy()
    with pytest.raises(ValueError, match="3 states, but the model has 2"):
        learner.add_features(Gaussian("diag", means=[[0.0]] * 3, covars=[[1.0]] * 3))
    for other in (Poisson([[1.0]] * 2), Gaussian("diag"), Gaussian("full", [[0.0]] * 2, [[[1.0]]] * 2)):
        with pytest.raises(ValueError, match="values of the same family"):
            learner.add_features(other)
    assert (learner.vector == before).all()


def test_an_estimator_grows_while_it_looks_for_its_start_and_after():
    _, _, _, wide = streams("gaussian")
    hmm = OnlineHMM(2, Gaussian("diag"), random_state=0)
    with pytest.raises(ValueError, match="nothing has been learned"):
        hmm.add_features(NEW["gaussian"])
    hmm.partial_fit(wide[:300, :3]).add_features(NEW["gaussian"]).partial_fit(wide[300:])
    assert hmm.n_features_in_ == hmm.means_.shape[1] == 6
    always = wide.copy()
    always[:300, 3:] = np.nan
    other = OnlineHMM(2, Gaussian("diag"), random_state=0).partial_fit(always)
    np.testing.assert_allclose(hmm.means_, other.means_, rtol=1e-9)  # the last look saw the same in both


def test_the_same_values_in_all_states_are_those_of_the_data():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    gaussian = starts.alike(Gaussian("diag"), 3, values + 1e8)
    np.testing.assert_allclose(gaussian.means, 1e8 + 4.0)
    np.testing.assert_allclose(gaussian.covars, values.var(), rtol=1e-6)
    assert starts.alike(Poisson(), 2, values).rates.tolist() == [[4.0], [4.0]]


def test_a_peek_finds_what_learning_finds_and_learns_nothing():
    start, _, narrow, _ = streams("gaussian")
    hmm = OnlineHMM(init=start, prior=Prior())
    total = 0.0
    for x in narrow[:200]:
        peek = hmm.peek(x)
        total += peek.log_density
        before = pickle.dumps(hmm._learner) if hmm.__sklearn_is_fitted__() else b""
        assert hmm.peek(x).log_density == peek.log_density
        assert not before or pickle.dumps(hmm._learner) == before
        hmm.learn_one(x)
        assert (hmm.filtered_proba_ == peek.filtered_proba).all()
    assert total == pytest.approx(hmm.log_likelihood_, rel=1e-12)
    nothing = OnlineHMM(4).peek(1.0)
    assert nothing.filtered_proba.tolist() == [0.25] * 4
    assert nothing.log_density == 0.0


def test_start_values_come_from_what_was_seen_in_the_cluster():
    """A feature far from zero that was missing for half of the time: nothing stands in for it that was never there."""
    nan = np.nan
    X = np.array([[0.0, 101.0], [0.1, nan], [0.2, 103.0], [5.0, nan], [nan, nan], [0.3, nan], [5.1, 201.0]])
    labels = np.array([0, 0, 0, 1, 1, 0, 1])
    assert starts.filled(X, labels)[:, 1].tolist() == pytest.approx([101, 101, 103, 201, nan, 103, 201], nan_ok=True)
    assert starts.filled(X, np.array([0, 0, 0, 2, 0, 0, 1]))[3, 1] == 101.0  # nothing was seen in its cluster
    data = Record(X, np.arange(7) == 0)
    emission = starts.estimate(Gaussian("diag").sized(2, 2), labels, data)
    assert emission.means[0, 1] == pytest.approx(102.0, abs=20.0)  # and one more observation like all others
    assert emission.means[1, 1] == pytest.approx(201.0, abs=20.0)
