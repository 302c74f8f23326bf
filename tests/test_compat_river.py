"""hmmstream under River's interfaces: its own checks, and features that come, go and change order."""

import copy
import itertools
import pickle
import random
import subprocess
import sys

import models
import numpy as np
import pytest

pytest.importorskip("river", reason="River is in the extra of its name, and in that of the tests")

from river import anomaly, checks, datasets, evaluate, metrics, preprocessing
from river.checks import common

from hmmstream import HMM, Gaussian, OnlineHMM, Prior
from hmmstream.compat.river import ENOUGH, MOST_WAITING, HMMAnomalyDetector, HMMClusterer, HMMForecaster

# River's checks that an adapter does not pass, and why: there are none.
EXCEPTIONS = {HMMClusterer: set(), HMMAnomalyDetector: set(), HMMForecaster: set()}

# Loops are compiled for each number of features, and with or without a prior, which the search for a start brings. All
# tests have three features or six, and a prior, be it an empty one.
NAMES = ["load", "heat", "wind"]
MEANS, SPREAD = np.array([[0.0, 30.0, 0.0], [4.0, 39.0, 0.5]]), np.array([1.0, 2.0, 1.0])
WORLD = HMM([0.5, 0.5], [[0.97, 0.03], [0.03, 0.97]], Gaussian("diag", MEANS, np.tile(SPREAD**2, (2, 1))))
GUESS = HMM(
    [0.5, 0.5], [[0.8, 0.2], [0.2, 0.8]], Gaussian("diag", 0.5 * MEANS + 8.0, np.tile([9.0, 40.0, 9.0], (2, 1)))
)


def events(n, seed=0, names=NAMES):
    X, states = WORLD.sample(n, random_state=seed)
    return [dict(zip(names, row, strict=True)) for row in X.tolist()], states


def shuffled(x, rng):
    names = list(x)
    rng.shuffle(names)
    return {name: x[name] for name in names}


class ShortCreditCard:
    """In the place of a data set that would have to be downloaded: six features, and now and then a fraud."""

    def take(self, n):
        rng = np.random.default_rng(3)
        for at in range(n // 10):
            fraud = at % 20 == 19
            row = rng.normal(1.0 if at // 25 % 2 else -1.0, 6.0 if fraud else 0.5, size=6)
            yield {f"V{1 + a}": value for a, value in enumerate(row.tolist())}, int(fraud)


def failures(model, all_checks):
    """The names of the checks that the model does not pass."""
    failed = set()
    for check in all_checks:
        try:
            check(model.clone())
        except Exception:
            failed.add(check.__name__)
    return failed


@pytest.mark.parametrize("adapter", EXCEPTIONS, ids=lambda adapter: adapter.__name__)
def test_rivers_own_checks_pass(adapter, monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", ShortCreditCard)
    random.seed(0)
    all_checks = list(checks.yield_checks(adapter()))
    assert len(all_checks) >= 14
    assert failures(adapter(), all_checks) == EXCEPTIONS[adapter]
    assert adapter()._unit_test_skips() == set()


def test_a_clusterer_passes_the_checks_for_which_river_has_no_data_set():
    random.seed(0)
    named = (name for name in vars(common) if name.startswith("check_"))
    with_data = [getattr(common, name) for name in named if "dataset" in getattr(common, name).__code__.co_varnames]
    with_data = [check for check in with_data if "many" not in check.__name__ and "debug" not in check.__name__]
    assert len(with_data) >= 11

    def on_trump(check):
        def run(model):
            check(model, list(datasets.TrumpApproval().take(80)))

        run.__name__ = check.__name__
        return run

    assert failures(HMMClusterer(), map(on_trump, with_data)) == set()


def test_order_does_not_matter_and_what_is_absent_none_or_nan_is_missing():
    """Whatever the dicts look like, the model is the one that OnlineHMM makes of the matrix."""
    stream, _ = events(300)
    rng = random.Random(0)
    adapter = HMMClusterer(init=GUESS, features=NAMES, prior=Prior())
    array = OnlineHMM(init=GUESS, prior=Prior())
    for at, x in enumerate(stream):
        row = np.array([x[name] for name in NAMES])
        event = shuffled(x, rng)
        if at % 3 == 1:
            gap = at % 7 % 3
            row[gap] = np.nan
            event[NAMES[gap]] = (None, float("nan"))[at % 2]
            if at % 5 == 0:
                del event[NAMES[gap]]
        if at % 50 == 10:
            row[:], event = np.nan, {}
        proba = adapter.predict_proba_one(event)
        array.learn_one(row)
        adapter.learn_one(event)
        assert list(proba.values()) == array.filtered_proba_.tolist() == adapter.hmm.filtered_proba_.tolist()
        assert adapter.predict_one(event) in (0, 1)
    assert models.values(adapter.hmm.model_).tolist() == models.values(array.model_).tolist()


def test_the_columns_of_the_first_event_are_in_the_order_of_their_names():
    stream, _ = events(40)
    one, other = HMMClusterer(seed=1), HMMClusterer(seed=1)
    rng = random.Random(1)
    for x in stream:
        one.learn_one(x)
        other.learn_one(shuffled(x, rng))
    assert models.values(one.hmm.model_).tolist() == models.values(other.hmm.model_).tolist()
    assert one.forecast(1) == other.forecast(1)
    assert list(one.forecast(1)[0]) == sorted(NAMES)


def test_features_come_join_go_and_return():
    """Three features; after 150 events three more, of which two tell the states apart; then the first stay away."""
    first, states = events(900)
    rng = np.random.default_rng(1)
    late = np.stack([rng.normal(3 * states), 1e4 + rng.normal(-2 * states), 1e5 + rng.normal(size=900)], axis=1)
    adapter = HMMClusterer(seed=1)
    found = []
    for at, x in enumerate(first):
        event = dict(x) if at < 700 or at >= 880 else {}
        if at >= 150:
            event |= dict(zip("abc", late[at].tolist(), strict=True))
        found.append(adapter.predict_one(event))
        adapter.learn_one(event)
        n_features = adapter.hmm.n_features_in_
        assert n_features == (3 if at < 150 + ENOUGH - 1 else 6)
    named = dict(zip(adapter.forecast(1)[0], adapter.hmm.last_model_.emission.means.T, strict=True))
    np.testing.assert_allclose(named["load"], [0.0, 4.0], atol=0.5)
    np.testing.assert_allclose(named["a"], [0.0, 3.0], atol=0.6)
    np.testing.assert_allclose(named["b"], [1e4, 1e4 - 2.0], atol=0.6)
    assert np.mean(np.array(found[200:]) == states[200:]) > 0.95
    assert np.mean(np.array(found[700:880]) == states[700:880]) > 0.95  # by the new ones alone


def test_a_feature_waits_until_it_has_varied_and_its_values_are_those_it_begins_with():
    stream, _ = events(100)
    adapter = HMMClusterer(init=GUESS, features=NAMES, prior=Prior())
    for x in stream:
        adapter.learn_one({**x, "a": 0.0, "b": 7.0, "c": 0.0})
    assert adapter.hmm.n_features_in_ == 3
    adapter.learn_one({**stream[0], "a": 32.0, "b": 7.0 + 32.0, "c": 64.0, "rare": 1})
    assert list(adapter.forecast(1)[0]) == [*NAMES, "a", "b", "c"]
    emission = adapter.hmm.last_model_.emission
    np.testing.assert_allclose(emission.means[:, 3:], [[1.0, 8.0, 2.0]] * 2)
    np.testing.assert_allclose(emission.covars[:, 3:], [[31.0, 31.0, 4.0 * 31.0]] * 2)


def test_a_family_of_dependent_features_ignores_new_ones_and_says_so():
    adapter = HMMAnomalyDetector(init=models.paper_start(), features=["current"])
    adapter.learn_one({"current": 0.3})
    before = pickle.dumps(adapter)
    with pytest.warns(UserWarning, match=r"ignored, as they were not in the first event: \['voltage'\]"):
        adapter.learn_one({"current": 0.2, "voltage": 1.0})
    again = pickle.loads(before)
    again.learn_one({"current": 0.2})
    assert again.hmm.filtered_proba_.tolist() == adapter.hmm.filtered_proba_.tolist()
    assert adapter.score_one({"current": 0.1, "voltage": 5.0}) == adapter.score_one({"current": 0.1})


def test_features_that_are_named_beforehand_come_in_that_order():
    adapter = HMMClusterer(features=["wind", "load", "heat"], seed=1)
    adapter.learn_one({"later": 1.0})  # nothing that the model could begin with
    adapter.learn_one({"load": None})
    assert adapter.predict_proba_one({"load": 1.0}) == {0: 0.5, 1: 0.5}
    stream, _ = events(40)
    for x in stream:
        adapter.learn_one(x)
    assert list(adapter.forecast(1)[0]) == ["wind", "load", "heat"]
    np.testing.assert_allclose(adapter.hmm.means_[:, 2].mean(), 34.5, atol=5.0)


def test_what_is_no_number_or_not_of_the_family_is_refused_and_changes_nothing():
    adapter = HMMClusterer()
    for value in ("red", "3.5", [1.0], {}, 1j):
        with pytest.raises(ValueError, match=r"feature 'b' is .*: the model learns from numbers"):
            adapter.learn_one({"a": 1.0, "b": value, "c": 2.0})
    with pytest.raises(ValueError, match="feature 'c' is inf: Gaussian expects a number, finite"):
        adapter.learn_one({"a": 1.0, "b": 2.0, "c": float("inf")})
    adapter.learn_one({})  # says nothing, not even what features there are
    assert pickle.dumps(adapter) == pickle.dumps(HMMClusterer())
    assert adapter.predict_one({"a": 1.0}) == 0
    assert adapter.predict_proba_one({"a": 1.0}) == {0: 0.5, 1: 0.5}
    assert adapter.score_one({"a": 1.0}) == 0.0
    assert adapter.forecast(2) == [{}, {}]
    with pytest.raises(ValueError, match=r"init has 3 features: name them, in this order, by features=\[...\]"):
        HMMClusterer(init=GUESS, features=["a"])

    counts = HMMClusterer(init=models.make("poisson"), features=["clicks"])
    counts.learn_one({"clicks": True})
    counts.learn_one({"clicks": np.int32(3)})
    before = pickle.dumps(counts)
    with pytest.raises(ValueError, match=r"feature 'clicks' is -1\.0: Poisson expects a count"):
        counts.learn_one({"clicks": -1})
    with pytest.raises(ValueError, match=r"feature 'clicks' is 0\.5: Poisson expects a count"):
        counts.score_one({"clicks": 0.5})
    with pytest.raises(ValueError, match=r"feature 'visits' is 0\.5: Poisson expects a count"):
        counts.learn_one({"clicks": 1, "visits": 0.5})
    assert pickle.dumps(counts) == before

    letters = HMMClusterer(init=models.make("categorical"), features=["letter"])
    letters.learn_one({"letter": 2})
    with pytest.raises(ValueError, match="symbols have no expected value"):
        letters.forecast(1)


def test_scores_are_the_increments_of_the_likelihood():
    stream, _ = events(200)
    adapter = HMMAnomalyDetector(init=GUESS, features=NAMES, prior=Prior())
    total = 0.0
    for x in stream:
        total += adapter.score_one(x)
        adapter.learn_one(x)
    assert total == pytest.approx(-adapter.hmm.log_likelihood_, rel=1e-12)
    assert adapter.score_one(dict.fromkeys(NAMES, 1e200)) < float("inf")


def test_planted_outliers_stand_out_in_a_pipeline():
    stream, _ = events(1000, seed=4)
    rng = np.random.default_rng(5)
    planted = rng.random(1000) < 0.02
    planted[:ENOUGH] = False  # nothing is called unusual so early
    for at in np.flatnonzero(planted):
        for name, spread in zip(NAMES, SPREAD, strict=True):
            stream[at][name] += rng.choice([-4.0, 4.0]) * spread
    model = preprocessing.StandardScaler() | HMMAnomalyDetector(seed=1)
    dataset = zip(stream, planted.tolist(), strict=True)
    auc = evaluate.progressive_val_score(dataset, model, metrics.RollingROCAUC())
    assert auc.get() > 0.98


def test_what_is_usual_at_other_times_is_unusual_now():
    """A level that comes as often as the other, but not right after it: the chance of a change is 3 in 100."""
    model = HMMAnomalyDetector(seed=1)
    stream, _ = events(1000, seed=4)
    for x in stream:
        model.learn_one(x)
    low, high = ({name: float(mean) for name, mean in zip(NAMES, row, strict=True)} for row in MEANS)
    for now, other in ((low, high), (high, low)):
        for _ in range(5):
            model.learn_one(now)
        assert model.score_one(other) - model.score_one(now) == pytest.approx(np.log(97 / 3), abs=1.0)

    alarm = anomaly.QuantileFilter(model, q=0.99)
    for x in itertools.islice(stream, 300):
        alarm.learn_one(x)
    assert not alarm.classify(alarm.score_one({name: (low[name] + 3.0 * now[name]) / 4.0 for name in NAMES}))
    assert alarm.classify(alarm.score_one({name: now[name] + 9.0 for name in NAMES}))


def test_a_clusterer_finds_the_states_in_a_pipeline():
    stream, states = events(500, seed=6)
    model = preprocessing.StandardScaler() | HMMClusterer(seed=1)
    score = evaluate.progressive_val_score(zip(stream, states.tolist(), strict=True), model, metrics.Accuracy())
    assert score.get() > 0.9


def test_a_forecast_goes_from_where_the_series_is_to_where_it_will_be_in_the_long_run():
    stream, _ = events(600, seed=7)
    model = HMMForecaster(seed=1)
    assert model.forecast(2) == [0.0, 0.0]
    error, naive = 0.0, 0.0
    for at, x in enumerate(stream):
        if at >= 100:
            error += (model.forecast(1)[0] - x["load"]) ** 2
            naive += (2.0 - x["load"]) ** 2
        model.learn_one(x["load"] if at % 10 else None, {"heat": x["heat"], "wind": x["wind"]})
    assert error < 0.4 * naive
    transmat, means = model.hmm.transmat_, model.hmm.means_[:, 0]
    now = model.hmm.filtered_proba_
    expected = [float(now @ np.linalg.matrix_power(transmat, h) @ means) for h in (1, 2, 3)]
    assert model.forecast(3) == pytest.approx(expected)
    assert model.forecast(500)[-1] == pytest.approx(model.hmm.model_.stationary_distribution() @ means, abs=1e-3)
    known = model.forecast(3, [{"heat": MEANS[1, 1]}, {}, {"heat": MEANS[0, 1], "unknown": 7.0}])
    assert known[0] == pytest.approx(means[1], abs=0.2)
    assert known[2] == pytest.approx(means[0], abs=0.2)
    with pytest.raises(ValueError, match="a row for each of the 3 steps"):
        model.forecast(3, [{}])


def test_a_pickle_continues_bit_for_bit_and_a_clone_starts_afresh():
    """While the model looks for its start, and while features wait and join."""
    stream, _ = events(150)
    adapter = HMMAnomalyDetector(seed=1)
    for at, x in enumerate(stream):
        event = {**x, "a": x["load"] + at % 3, "b": 2.0 * at % 7, "c": at % 5} if at > 20 else x
        adapter.learn_one(event)
        if at in (10, 40):
            copies = [pickle.loads(pickle.dumps(adapter)), copy.deepcopy(adapter)]
            for one in (adapter, *copies):
                for later in stream[at + 1 : at + 40]:
                    one.learn_one({**later, "a": later["load"], "b": later["heat"], "c": later["wind"]})
            assert adapter.hmm.n_features_in_ == 6
            for one in copies:
                assert one.score_one(event) == adapter.score_one(event)
                assert one.forecast(3) == adapter.forecast(3)
            break
    assert pickle.dumps(adapter.clone()) == pickle.dumps(HMMAnomalyDetector(seed=1))
    assert adapter.clone({"n_components": 3}).n_components == 3


def test_memory_does_not_grow_with_the_stream():
    stream, _ = events(1000)
    adapter = HMMClusterer(init=GUESS, features=NAMES, prior=Prior(), averaging=None)
    sizes = []
    for _ in range(3):
        for x in stream:
            adapter.learn_one({**x, "constant": 1.0})
        sizes.append(len(pickle.dumps(adapter)))
    assert max(sizes) - min(sizes) < 100  # some integers take a byte more


def test_names_that_come_once_are_not_kept_for_ever():
    model = HMMClusterer(init=HMM([1.0], [[1.0]], Gaussian("diag", means=[0.0], covars=[1.0])), features=["load"])
    for t in range(3 * MOST_WAITING):
        model.learn_one({"load": 0.0, f"job {t}": 1.0})
    assert len(pickle.dumps(model)) < 200 * MOST_WAITING
    assert model.hmm.n_samples_seen_ == 3 * MOST_WAITING


def test_river_is_imported_by_the_adapter_alone_which_says_what_is_missing():
    script = "import hmmstream, sys; assert 'river' not in sys.modules; sys.modules['river'] = None\n"
    script += "import hmmstream.compat.river"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "hmmstream.compat.river needs River: pip install 'hmmstream[river]'" in run.stderr
    assert "AssertionError" not in run.stderr
