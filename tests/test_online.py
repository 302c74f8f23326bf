"""OnlineHMM and the learner behind it, as a user meets them."""

import copy
import math
import pickle

import models
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from hmmstream import (
    HMM,
    Categorical,
    Constant,
    Gaussian,
    Learner,
    Masked,
    OnlineHMM,
    Poisson,
    Polyak,
    Power,
    StatisticAverage,
)


@pytest.fixture(scope="module")
def X():
    return models.paper_model().sample(3000, 41)[0]


def test_the_estimator_is_the_learner(X):
    estimator = OnlineHMM(init=models.paper_start()).partial_fit(X)
    learner = Learner(models.paper_start())
    learner.learn(X)
    np.testing.assert_array_equal(models.values(estimator.model_), models.values(learner.model))
    np.testing.assert_array_equal(models.values(estimator.last_model_), models.values(learner.last_model))
    np.testing.assert_array_equal(estimator.filtered_proba_, learner.filtered_proba)
    np.testing.assert_array_equal(estimator.statistic_.emissions, learner.statistic.emissions)
    assert estimator.log_likelihood_ == learner.log_likelihood
    assert estimator.n_samples_seen_ == 3000
    assert estimator.n_features_in_ == 1


def test_partial_fit_continues_and_fit_starts_afresh(X):
    a = OnlineHMM(init=models.paper_start()).partial_fit(X[:1000]).partial_fit(X[1000:])
    b = OnlineHMM(init=models.paper_start()).partial_fit(X[:500]).fit(X)
    c = OnlineHMM(init=models.paper_start()).partial_fit(X[:500]).reset().partial_fit(X)
    for other in (b, c):
        np.testing.assert_array_equal(models.values(a.model_), models.values(other.model_))


def test_a_failed_fit_leaves_what_was_learned(X):
    estimator = OnlineHMM(init=models.paper_start()).partial_fit(X)
    with pytest.raises(ValueError, match="finite"):
        estimator.fit(np.append(X, np.inf))
    assert estimator.n_samples_seen_ == 3000


def test_follow_returns_the_filter_as_it_stood_at_each_row(X):
    followed = OnlineHMM(init=models.paper_start()).follow(X)
    estimator = OnlineHMM(init=models.paper_start())
    for row, x in enumerate(X[:200]):
        estimator.learn_one(x)
        np.testing.assert_array_equal(followed[row], estimator.filtered_proba_)


def test_values_are_found_under_the_names_that_hmmlearn_uses(X):
    estimator = OnlineHMM(init=models.paper_start()).partial_fit(X)
    model = estimator.model_
    np.testing.assert_array_equal(estimator.transmat_, model.transmat)
    np.testing.assert_array_equal(estimator.startprob_, model.startprob)
    np.testing.assert_array_equal(estimator.means_, model.emission.means)
    np.testing.assert_array_equal(estimator.covars_, model.emission.covars)
    assert not hasattr(estimator, "rates_")
    assert OnlineHMM(init=models.make("poisson")).partial_fit([1, 2, 3]).rates_.shape == (3, 1)


def test_nothing_is_known_before_something_was_learned():
    estimator = OnlineHMM(init=models.paper_start())
    for name in ("model_", "last_model_", "filtered_proba_", "n_samples_seen_", "log_likelihood_", "statistic_"):
        with pytest.raises(NotFittedError, match="partial_fit"):
            getattr(estimator, name)
    assert not hasattr(estimator, "means_")


def test_frozen_parameters_stay_while_the_filter_moves(X):
    estimator = OnlineHMM(init=models.paper_start()).partial_fit(X[:1000])
    before = models.values(estimator.model_)
    raw = models.values(estimator.last_model_)
    estimator.freeze().partial_fit(X[1000:])
    np.testing.assert_array_equal(models.values(estimator.last_model_), raw)
    np.testing.assert_allclose(models.values(estimator.model_), before, rtol=1e-12)
    assert estimator.n_samples_seen_ == 3000
    estimator.unfreeze().partial_fit(X)
    assert (models.values(estimator.model_) != before).any()


@pytest.mark.parametrize("averaging", ["auto", None, Polyak(100)], ids=str)
def test_a_frozen_model_is_frozen_however_it_is_averaged(X, averaging):
    estimator = OnlineHMM(init=models.paper_start(), averaging=averaging).partial_fit(X[:1000])
    before = models.values(estimator.model_)
    estimator.freeze().partial_fit(X[1000:])
    np.testing.assert_allclose(models.values(estimator.model_), before, rtol=1e-12)


def test_infinite_n_min_freezes_from_the_start(X):
    estimator = OnlineHMM(init=models.paper_start(), n_min=math.inf).partial_fit(X)
    np.testing.assert_array_equal(models.values(estimator.model_), models.values(models.paper_start()))


def test_an_explicit_start_decides_and_contradictions_are_refused():
    start = models.make("poisson")
    assert OnlineHMM(init=start).partial_fit([1]).model_.n_components == 3
    assert OnlineHMM(3, "poisson", init=start).partial_fit([1]).model_.n_components == 3
    assert OnlineHMM(3, Poisson(), init=start).partial_fit([1]).model_.n_components == 3
    for options, message in [
        ({"n_components": 4}, "n_components is 4, but init has 3"),
        ({"emission": "categorical"}, "but init has Poisson"),
        ({"emission": Gaussian()}, "but init has Poisson"),
        ({"engine": "steam"}, "engine must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            OnlineHMM(init=start, **options).partial_fit([1])
    for init in ("random", None, Gaussian()):
        with pytest.raises(ValueError, match="init must be 'auto' or an HMM"):
            OnlineHMM(2, init=init).partial_fit([1.0])


def test_the_kind_of_a_family_must_agree_as_well():
    with pytest.raises(ValueError, match="but init has Gaussian"):
        OnlineHMM(emission=Gaussian("full"), init=models.paper_start()).partial_fit([1.0])
    with pytest.raises(ValueError, match="but init has Categorical"):
        OnlineHMM(3, Categorical(5), init=models.make("categorical")).partial_fit([1])


def test_a_refused_first_chunk_leaves_nothing_behind(X):
    estimator = OnlineHMM(init=models.make("poisson"))
    with pytest.raises(ValueError, match="finite"):
        estimator.partial_fit([np.inf])
    estimator.set_params(init=models.paper_start()).partial_fit(X)
    assert estimator.n_samples_seen_ == 3000
    assert estimator.model_.n_components == 2


def test_whole_sequences_end(X):
    """After lengths, what follows is another sequence."""
    a = OnlineHMM(init=models.paper_start()).partial_fit(X[:300], lengths=[300]).partial_fit(X[300:600])
    b = OnlineHMM(init=models.paper_start()).partial_fit(X[:600], lengths=[300, 300])
    assert a.log_likelihood_ == b.log_likelihood_
    assert OnlineHMM(init=models.paper_start()).partial_fit(X).partial_fit([], lengths=[]).n_samples_seen_ == 3000


def test_the_structure_may_be_said_to_either():
    masked = models.make("poisson", "masked")
    loose = HMM(masked.startprob, masked.transmat, masked.emission)
    a = OnlineHMM(init=masked).partial_fit([1, 2, 3])
    b = OnlineHMM(init=loose, transition=Masked.banded(3)).partial_fit([1, 2, 3])
    assert a.model_.transition == b.model_.transition == Masked.banded(3)
    with pytest.raises(ValueError, match="but init has Masked"):
        OnlineHMM(init=masked, transition="independent").partial_fit([1])


def test_it_is_an_estimator_of_scikit_learn(X):
    estimator = OnlineHMM(init=models.paper_start(), step=Power(0.7), averaging=Polyak(100), n_min=30)
    twin = clone(estimator)
    assert twin.get_params()["step"] == Power(0.7)
    twin.set_params(step=Constant(0.01))
    assert not twin.__sklearn_is_fitted__()
    assert estimator.fit(X).__sklearn_is_fitted__()
    assert "OnlineHMM" in repr(estimator)


@pytest.mark.parametrize("make", [lambda: Learner(models.paper_start()), lambda: OnlineHMM(init=models.paper_start())])
def test_copies_and_pickles_continue_bit_for_bit(X, make):
    original = make()
    original.follow(X[:1500])
    copies = [copy.deepcopy(original), pickle.loads(pickle.dumps(original))]
    expected = original.follow(X[1500:])
    for other in copies:
        np.testing.assert_array_equal(other.follow(X[1500:]), expected)


def test_end_sequence_and_lengths_say_the_same(X):
    a = OnlineHMM(init=models.paper_start()).partial_fit(X[:600], lengths=[100, 200, 300])
    b = OnlineHMM(init=models.paper_start())
    for piece in np.split(X[:600], [100, 300]):
        b.partial_fit(piece).end_sequence()
    np.testing.assert_array_equal(models.values(a.model_), models.values(b.model_))
    assert a.log_likelihood_ == b.log_likelihood_


@pytest.mark.parametrize(
    "x", [0.5, np.float32(0.5), np.float16(0.5), np.float64(0.5), [0.5], np.array([0.5]), np.array(0.5)]
)
def test_one_observation_may_come_in_many_forms(x):
    learner = Learner(models.paper_start())
    learner.learn_one(x)
    assert learner.n_samples_seen == 1
    assert learner.statistic.emissions[:, 1].sum() == 0.5


@pytest.mark.parametrize("x", [[1.0], [1.0, 2.0, 3.0], 1.0, "12", b"12", ["1", "2"], [[1.0], [2.0], [3.0]], 10**400])
def test_one_observation_of_the_wrong_size_is_refused(x):
    learner = Learner(models.make("gaussian-diag"))
    with pytest.raises(ValueError, match="X must"):
        learner.learn_one(x)
    assert learner.n_samples_seen == 0


def test_one_observation_may_be_masked():
    a, b = Learner(models.make("gaussian-diag")), Learner(models.make("gaussian-diag"))
    a.learn_one(np.ma.array([1.0, 2.0], mask=[True, False]))
    b.learn([[np.nan, 2.0]])
    np.testing.assert_array_equal(a.vector, b.vector)


@pytest.mark.parametrize("x", ["1.5", np.datetime64("2026-11-15"), 1j, np.array("2"), 10**400], ids=repr)
def test_one_observation_that_is_no_number_is_refused(x):
    learner = Learner(models.paper_start())
    with pytest.raises(ValueError, match="X must"):
        learner.learn_one(x)
    assert learner.n_samples_seen == 0


@pytest.mark.parametrize("form", ["list", "float32", "fortran", "strided", "read-only", "vector", "integers"])
def test_records_in_any_memory_layout_are_the_same_record(form):
    base = np.round(models.paper_model().sample(300, 1)[0] * 4)
    X = {
        "list": base.tolist(),
        "float32": base.astype(np.float32),
        "fortran": np.asfortranarray(base),
        "strided": np.repeat(base, 2, axis=0)[::2],
        "read-only": np.frombuffer(base.tobytes()).reshape(-1, 1),
        "vector": base[:, 0],
        "integers": base.astype(int),
    }[form]
    a, b = Learner(models.paper_start()), Learner(models.paper_start())
    a.learn(base)
    b.learn(X)
    np.testing.assert_array_equal(a.vector, b.vector)


def test_an_input_array_is_never_written_to(X):
    before = X.copy()
    OnlineHMM(init=models.paper_start()).partial_fit(X)
    np.testing.assert_array_equal(X, before)


def test_all_covariances_agree_where_they_are_the_same_model():
    """With one feature, full, diag and spherical are one model."""
    X = models.paper_model().sample(500, 3)[0]
    results = []
    for covariance in ("full", "diag", "spherical"):
        start = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian(covariance, means=[-1, 2], covars=[1, 1]))
        results.append(models.values(OnlineHMM(init=start, averaging=StatisticAverage()).partial_fit(X).model_))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-12)
