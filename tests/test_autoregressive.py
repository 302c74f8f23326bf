"""Switching autoregression is switching regression on the values before: it must equal that, whatever the stream."""

import copy
import pickle

import models
import numpy as np
import pytest
from test_robustness import assert_sane

from hmmstream import HMM, AutoRegressive, BatchHMM, Learner, LinearRegression, OnlineHMM

VALUES = ([[0.5, -0.3], [-0.6, 0.2], [0.1, 0.7]], [1.0, -2.0, 0.5], [0.3, 0.6, 0.2])
CHAIN = ([0.5, 0.3, 0.2], [[0.95, 0.03, 0.02], [0.05, 0.9, 0.05], [0.02, 0.03, 0.95]])
SERIES = HMM(*CHAIN, AutoRegressive(2, *VALUES))
REGRESSION = HMM(*CHAIN, LinearRegression(2, *VALUES))


def on_lags(x, lengths=None):
    """Each row of a regression: the value before, the one before that, and the value itself."""
    rows, first = [], 0
    for length in lengths or [len(x)]:
        for t in range(length):
            earlier = [x[first + t - lag, 0] if t >= lag else np.nan for lag in (1, 2)]
            rows.append([*earlier, x[first + t, 0]])
        first += length
    return np.array(rows)


@pytest.fixture(scope="module")
def x():
    return models.with_gaps(SERIES.sample(600, 1)[0], 0.03)


def test_exact_inference_is_that_of_the_regression(x):
    lengths = [1, 2, 3, 194, 400]
    rows = on_lags(x, lengths)
    np.testing.assert_array_equal(SERIES.smooth(x, lengths), REGRESSION.smooth(rows, lengths))
    np.testing.assert_array_equal(SERIES.decode(x, lengths)[1], REGRESSION.decode(rows, lengths)[1])
    np.testing.assert_array_equal(SERIES.log_predictive(x, lengths), REGRESSION.log_predictive(rows, lengths))
    np.testing.assert_array_equal(SERIES.score_vector(x, lengths), REGRESSION.score_vector(rows, lengths))


def test_learning_is_that_of_the_regression_however_the_stream_is_cut(x):
    whole = Learner(REGRESSION)
    followed = whole.follow(on_lags(x))
    rng = np.random.default_rng(0)
    for cuts in ([], [1, 2, 3, 4], np.sort(rng.choice(600, 30))):
        learner = Learner(SERIES)
        pieces = [learner.follow(piece) for piece in np.split(x, cuts)]
        np.testing.assert_array_equal(learner.vector, whole.vector)
        np.testing.assert_array_equal(np.concatenate(pieces), followed)
    one_by_one = Learner(SERIES)
    for value in x[:, 0]:
        one_by_one.learn_one(value)
    np.testing.assert_array_equal(one_by_one.vector, whole.vector)


def test_a_new_sequence_does_not_depend_on_the_last(x):
    a, b, c = Learner(REGRESSION), Learner(SERIES), Learner(SERIES)
    a.learn(on_lags(x, [200, 400]), [200, 400])
    b.learn(x, [200, 400])
    c.learn(x[:150])
    c.learn(x[150:200])
    c.end_sequence()
    c.learn(x[200:])
    c.end_sequence()
    np.testing.assert_array_equal(a.vector, b.vector)
    np.testing.assert_array_equal(a.vector, c.vector)


@pytest.mark.parametrize("method", ["forward-backward", "recursive"])
def test_batch_em_is_that_of_the_regression_and_never_loses_likelihood(x, method):
    settings = {"n_iter": 30, "tol": -np.inf, "method": method}
    a = BatchHMM(init=SERIES, **settings).fit(x, lengths=[300, 300])
    b = BatchHMM(init=REGRESSION, **settings).fit(on_lags(x, [300, 300]), lengths=[300, 300])
    np.testing.assert_array_equal(a.history_, b.history_)
    np.testing.assert_array_equal(models.values(a.model_), models.values(b.model_))
    assert np.diff(a.history_).min() > -1e-9


def test_copies_go_on_bit_for_bit(x):
    learner = Learner(SERIES)
    learner.learn(x[:301])
    twins = [copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
    learner.learn(x[301:])
    for twin in twins:
        twin.learn(x[301:])
        np.testing.assert_array_equal(twin.vector, learner.vector)


def test_regimes_are_found_from_a_rough_start_and_without_one():
    """Loss within 0.01 of that of the truth; a single regime is off by more than 0.1."""
    series, fresh = SERIES.sample(20_000, 2)[0], SERIES.sample(20_000, 3)[0]
    best = SERIES.log_likelihood(fresh) / 20_000
    rough = HMM([1 / 3] * 3, np.full((3, 3), 1 / 3), AutoRegressive(2, 0.5 * np.array(VALUES[0]), *VALUES[1:]))
    one = HMM([1.0], [[1.0]], AutoRegressive(2, [[0.0, 0.0]], [0.0], [1.0]))
    assert BatchHMM(1, init=one).fit(series).score(fresh) < best - 0.1
    assert OnlineHMM(init=rough, n_min=200).partial_fit(series).score(fresh) > best - 0.01
    for estimator in (OnlineHMM, BatchHMM):
        assert estimator(3, AutoRegressive(2), random_state=0).fit(series).score(fresh) > best - 0.01


def test_the_search_for_a_start_sees_the_values_before_at_every_cut(x):
    whole = OnlineHMM(3, AutoRegressive(2), random_state=0).partial_fit(x)
    cut = OnlineHMM(3, AutoRegressive(2), random_state=0)
    for piece in np.split(x, [1, 2, 5, 77, 300]):
        cut.partial_fit(piece)
    np.testing.assert_array_equal(whole._fitted().vector, cut._fitted().vector)


@pytest.mark.parametrize("seed", range(20))
def test_no_stream_breaks_it(seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate(
        [
            rng.choice([0.0, 1e8, -1e3]) + 10.0 ** rng.uniform(-9, 9) * rng.normal(size=rng.integers(1, 40)),
            np.full(rng.integers(1, 30), rng.choice([0.0, 3.0, 1e150, np.nan])),
            np.cumsum(rng.normal(size=30)) * 1e5,
        ]
    )
    x[rng.random(len(x)) < 0.1] = np.nan
    learner = Learner(SERIES, n_min=int(rng.choice([0, 20])))
    proba = learner.follow(x)
    assert_sane(learner)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-9)


def test_what_it_refuses_and_what_it_does_not_know():
    with pytest.raises(ValueError, match=r"X\[1, 0\] is inf: AutoRegressive expects a number"):
        Learner(SERIES).learn([1.0, np.inf, 2.0])
    with pytest.raises(ValueError, match=r"X\[1, 0\] is inf"):
        SERIES.filter([1.0, np.inf, 2.0])
    with pytest.raises(ValueError, match="expects one series"):
        BatchHMM(2, AutoRegressive(2)).fit(np.zeros((10, 2)))
    with pytest.raises(ValueError, match="n_inputs must be a positive integer"):
        AutoRegressive(0)
    assert np.isnan(SERIES.forecast(2).mean).all()
    assert repr(AutoRegressive(3)) == "AutoRegressive(3)"
