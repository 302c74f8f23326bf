"""Streams with windows of the past, or a second stage, learn what each would learn alone, to the last bit."""

import copy
import pickle

import models
import numpy as np
import pytest

import hmmstream
from hmmstream import HMM, Constant, Fleet, Gaussian, Learner, OnlineHMM, Polyak, StatisticAverage, learners
from hmmstream import learner as one_learner
from hmmstream.averaging import Refined
from hmmstream.checkpoint import ModelFileError, describe, pack
from hmmstream.learners import LearnerStreams

WORLD, START = models.paper_model(), models.paper_start()
N = 5


def block(n, seed=0):
    return models.with_gaps(np.hstack([WORLD.sample(n, seed + stream)[0] for stream in range(N)]), 0.05)


def fleet_of(**settings):
    return Fleet(init=START, **{"engine": "window", **settings})


def alone(X=None, engine="window"):
    hmm = OnlineHMM(init=START, engine=engine, averaging=StatisticAverage())
    return hmm if X is None else hmm.partial_fit(X)


def assert_same(fleet, stream, hmm):
    ours, theirs = fleet.extract(stream)._learner, hmm._learner
    np.testing.assert_array_equal(ours.vector, theirs.vector, strict=True)
    assert (ours.window is None) == (theirs.window is None)
    for held, wanted in zip(ours.contents or (), theirs.contents or (), strict=True):
        np.testing.assert_array_equal(held, wanted)
    at = list(fleet).index(stream)
    np.testing.assert_array_equal(fleet.transmat_[at], hmm.transmat_)
    np.testing.assert_array_equal(fleet.means_[at], hmm.means_)
    np.testing.assert_array_equal(fleet.startprob_[at], hmm.startprob_)
    np.testing.assert_array_equal(fleet.filtered_proba_[at], hmm.filtered_proba_)
    assert fleet.n_samples_seen_[at] == hmm.n_samples_seen_
    assert fleet.log_likelihood_[at] == hmm.log_likelihood_


def assert_identical(one, other):
    assert list(one) == list(other)
    for stream in one:
        assert_same(one, stream, other.extract(stream))


def test_many_states_have_windows_and_few_have_none():
    def levels(m):
        return HMM(np.full(m, 1 / m), np.full((m, m), 1 / m), Gaussian("tied", means=np.arange(m), covars=0.2))

    kinds = {24: True, 23: False}
    for m, has_windows in kinds.items():
        for update_every in (1, 100):
            fleet = Fleet(init=levels(m), update_every=update_every).add([3])
            assert isinstance(fleet._streams, LearnerStreams) == has_windows
            assert (fleet.extract(3)._learner.window is not None) == has_windows
    for settings in ({"shared": True}, {"engine": "dense"}):
        assert not isinstance(Fleet(init=levels(24), **settings)._streams, LearnerStreams)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_each_stream_learns_what_it_would_learn_alone(n_jobs, monkeypatch):
    monkeypatch.setattr(learners, "MANY_ROWS", 0)
    monkeypatch.setattr(learners, "SEVERAL_ROWS", 0)
    X = block(400)
    fleet = fleet_of(n_jobs=n_jobs)
    for piece in np.split(X[:150], [1, 40]):
        fleet.partial_fit(piece)
    values, ids = X[150:200].ravel(), np.tile(np.arange(N), 50)
    fleet.partial_fit(np.insert(values, 99, 0.7), ids=np.insert(ids, 99, 9))
    fleet.partial_fit([*X[200:].T, np.array([0.1, 0.2])])
    for stream in range(N):
        assert_same(fleet, stream, alone(X[:, stream]))
    assert_same(fleet, 9, alone([0.7, 0.1, 0.2]))


def test_follow_returns_what_was_known_at_each_row():
    X = block(120)
    proba, surprise = fleet_of().follow(X, return_surprise=True)
    ids = np.tile(np.arange(N), len(X))
    in_order, its_surprise = fleet_of().follow(X.ravel(), ids=ids, return_surprise=True)
    np.testing.assert_array_equal(in_order.reshape(proba.shape), proba)
    np.testing.assert_array_equal(its_surprise.reshape(surprise.shape), surprise)
    for stream in range(N):
        hmm = alone()
        np.testing.assert_array_equal(proba[:, stream], hmm.follow(X[:, [stream]]))
        assert -surprise[:, stream].sum() == pytest.approx(hmm.log_likelihood_)


def test_streams_come_and_go():
    X = block(100)
    fleet = fleet_of().partial_fit(X)
    hmm = fleet.extract(3)
    hmm.partial_fit(X[:50, 3])
    assert fleet.n_samples_seen_[3] == 100  # the fleet keeps its own
    fleet.remove([0, 3]).add([77]).put(3, hmm).put(77, hmm)
    assert list(fleet) == [1, 2, 4, 77, 3]
    fleet.partial_fit([0.5], ids=[77])
    assert_same(fleet, 3, hmm)
    assert_same(fleet, 77, hmm.partial_fit([0.5]))
    with pytest.raises(ValueError, match="another kind"):
        fleet.put(9, OnlineHMM(init=models.rough_start("poisson")).partial_fit([1.0, 2.0]))


def test_sequences_end_and_parameters_are_held():
    X = block(60)
    fleet = fleet_of().partial_fit(X[:30]).end_sequence([1]).freeze().partial_fit(X[30:])
    hmms = [alone(X[:30, stream]) for stream in range(N)]
    hmms[1].end_sequence()
    for stream, hmm in enumerate(hmms):
        assert_same(fleet, stream, hmm.freeze().partial_fit(X[30:, stream]))
    assert fleet.extract(0)._learner.frozen
    assert not fleet.unfreeze().extract(0)._learner.frozen


def test_streams_with_and_without_windows_live_side_by_side(tmp_path, monkeypatch):
    X = block(300)
    hmms = [alone(X[:20, stream], engine="dense" if stream == 0 else "window") for stream in range(N)]
    fleet = fleet_of().partial_fit(X[:20]).put(0, hmms[0])
    with monkeypatch.context() as patch:
        patch.setattr(one_learner, "MOST_ROOM", 0)  # a window that has to grow is given up
        fleet.partial_fit(X[20:200, 1], ids=np.ones(180, dtype=np.int64))
        hmms[1].partial_fit(X[20:200, 1])
    fleet.save(tmp_path / "fleet.hmm")
    loaded = hmmstream.load(tmp_path / "fleet.hmm")
    for one in (fleet, loaded):
        one.partial_fit(X[200:])
    for stream, hmm in enumerate(hmms):
        hmm.partial_fit(X[200:, stream])
        for one in (fleet, loaded):
            assert_same(one, stream, hmm)
            assert (one.extract(stream)._learner.window is None) == (stream < 2)


def test_a_stream_with_a_window_goes_on_in_a_fleet_that_has_none():
    X = block(200)
    fleet = Fleet(init=START).add(["a"]).put("a", alone(X[:100, 0])).partial_fit(X[100:, [0]])
    np.testing.assert_allclose(fleet.transmat_[0], alone(X[:, 0]).transmat_, rtol=1e-12)
    assert alone(X[:100, 0])._learner.window is not None


def test_a_stream_without_its_window_has_its_statistic_at_once():
    settings = {"init": START, "update_every": 50, "averaging": StatisticAverage()}
    hmm = OnlineHMM(engine="window", **settings).partial_fit(block(333)[:, 0])
    stream = Fleet(**settings).put("a", hmm).extract("a")
    for ours, theirs in zip(stream.statistic_, hmm.statistic_, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("engine", ["dense", "window"])
@pytest.mark.parametrize("kind", [{"averaging": Polyak(50)}, {"averaging": None}, {"step": Constant(0.02)}])
def test_a_stream_that_was_averaged_in_another_way_is_averaged_anew(engine, kind):
    X = WORLD.sample(700, 1)[0]
    hmm = OnlineHMM(init=START, engine=engine).partial_fit(X[:500])
    fleet = Fleet(init=START, engine=engine, **kind).put("a", hmm)
    np.testing.assert_array_equal(fleet.transmat_[0], hmm.last_model_.transmat)  # nothing is averaged yet
    iterates = [fleet.partial_fit(x, ids=["a"]).extract("a").last_model_.transmat for x in X[500:]]
    reported = np.mean(iterates, axis=0) if kind.get("averaging") else iterates[-1]
    np.testing.assert_allclose(fleet.transmat_[0], reported, rtol=1e-10)
    back = Fleet(init=START, engine=engine).put("a", fleet.extract("a"))
    np.testing.assert_array_equal(back.transmat_[0], iterates[-1])


def test_files_and_copies_continue_bit_for_bit(tmp_path):
    X = block(200)
    fleet = fleet_of(n_jobs=1).partial_fit(X[:70]).add([8])  # one that has seen nothing yet
    fleet.save(tmp_path / "fleet.hmm")
    others = [hmmstream.load(tmp_path / "fleet.hmm"), copy.deepcopy(fleet), pickle.loads(pickle.dumps(fleet))]
    for one in (fleet, *others):
        one.partial_fit([*X[70:].T, X[:, 0]])
        assert_identical(one, fleet)


def test_files_from_before_fleets_had_windows_are_read(tmp_path):
    X = block(80)
    fleet = Fleet(init=START).partial_fit(X)
    document = describe(fleet)
    document["prototype"]["engine"] = "window"  # which was not allowed, and "auto" was, for any number of states
    (tmp_path / "fleet.hmm").write_bytes(pack({"version": 1, "holds": document, "notes": {}}))
    loaded = hmmstream.load(tmp_path / "fleet.hmm")
    assert isinstance(loaded._streams, LearnerStreams)
    for one in (fleet, loaded):
        one.partial_fit(X)
    assert_identical(fleet, loaded)


def test_damaged_files_are_refused(tmp_path):
    fleet = fleet_of().partial_fit(block(20))
    other = Fleet(init=models.rough_start("poisson"), engine="window").add([1])
    for learner in (None, other.extract(1)._learner):
        document = describe(fleet)
        document["streams"]["of"]["learners"][2] = describe(learner)
        (tmp_path / "bad.hmm").write_bytes(pack({"version": 1, "holds": document, "notes": {}}))
        with pytest.raises(ModelFileError, match="do not fit the model"):
            hmmstream.load(tmp_path / "bad.hmm")
    document = describe(fleet)
    document["streams"]["of"]["learners"].pop()
    (tmp_path / "bad.hmm").write_bytes(pack({"version": 1, "holds": document, "notes": {}}))
    with pytest.raises(ModelFileError, match="do not fit the model"):
        hmmstream.load(tmp_path / "bad.hmm")


def test_streams_without_windows_are_no_streams_of_a_template_that_has_one(tmp_path):
    document = describe(fleet_of().partial_fit(block(20)))
    held = document["streams"]["of"]
    del held["learners"]
    for n_numbers in (2, fleet_of()._streams.template.vector.size):
        held["vectors"] = np.ones((N, n_numbers))
        (tmp_path / "bad.hmm").write_bytes(pack({"version": 1, "holds": document, "notes": {}}))
        with pytest.raises(ModelFileError, match="do not fit the model"):
            hmmstream.load(tmp_path / "bad.hmm")


def test_streams_without_rows_are_passed_over(monkeypatch):
    fleet = fleet_of().partial_fit(block(20))
    twin = copy.deepcopy(fleet)
    visited = []
    learn = Learner.take
    monkeypatch.setattr(Learner, "take", lambda one, *data: visited.append(one) or learn(one, *data))
    fleet.partial_fit([0.5, 0.1], ids=[3, 1])
    assert visited == [fleet._streams.learners[1], fleet._streams.learners[3]]
    fleet.partial_fit(np.empty((0, N)))
    assert len(visited) == 2
    for stream, value in ((1, 0.1), (3, 0.5)):
        assert_same(fleet, stream, twin.extract(stream).partial_fit([value]))
    assert_same(fleet, 2, twin.extract(2))


@pytest.mark.parametrize("settings", [{"shared": True}, {"device": "cuda"}])
def test_where_there_are_no_windows_the_error_says_so(settings):
    with pytest.raises(ValueError, match="no windows"):
        fleet_of(**settings)


@pytest.mark.parametrize("engine", ["dense", "window"])
def test_a_step_function_is_asked_once_for_each_time_that_comes(engine):
    asked = []

    def step(n):
        asked.append(n)
        return 0.1 if n < 60 else 2.0

    X = block(60)
    X[55:] = np.nan
    fleet = fleet_of(step=step, engine=engine, n_jobs=1).partial_fit(X)  # windows grow meanwhile
    n_seen = (~np.isnan(X)).sum(axis=0)
    assert asked == list(range(1, n_seen.max()))
    asked.clear()
    fleet.add([8]).partial_fit([0.1, np.nan], ids=[2, 2])  # one that is new and has no rows asks for nothing
    assert asked == [n_seen[2]]
    asked.clear()
    fleet.partial_fit([0.1, 0.2], ids=[8, 0])  # ages that lie far apart: no time in between is asked for
    assert asked == [n_seen[0]]  # the first of all has no step
    fleet.remove([8])
    fleet.partial_fit([0.3], ids=[0])
    hmm = OnlineHMM(init=START, engine=engine, averaging=StatisticAverage(), step=step).partial_fit(X[:, [0]])
    assert_same(fleet, 0, hmm.partial_fit([0.2, 0.3]))
    hmm = OnlineHMM(init=START, engine=engine, averaging=StatisticAverage(), step=step).partial_fit(X[:, [2]])
    assert_same(fleet, 2, hmm.partial_fit([0.1, np.nan]))


def test_a_step_function_that_fails_late_leaves_nothing_behind():
    n_calls = 0

    def step(n):
        nonlocal n_calls
        n_calls += 1
        return 0.1 if n_calls <= 70 else 1 / 0

    fleet = fleet_of(step=step, n_jobs=1).partial_fit(block(50))
    twin = copy.deepcopy(fleet)
    with pytest.raises(ZeroDivisionError):
        fleet.partial_fit(block(50))
    n_calls = 0
    assert_identical(fleet, twin)


def test_what_fails_leaves_nothing_behind():
    fleet = fleet_of(step=lambda n: 0.1 if n < 40 else 2.0).partial_fit(block(30))
    twin = copy.deepcopy(fleet)
    with pytest.raises(ValueError, match=r"step\(40\)"):
        fleet.partial_fit(block(20)[:, :2].ravel(), ids=np.tile([0, 77], 20))
    bad = block(5)
    bad[3, 2] = np.inf
    with pytest.raises(ValueError, match=r"X\[3, 2\]"):
        fleet.partial_fit(bad)
    with pytest.raises(ValueError, match="no windows"):
        fleet.vectors  # noqa: B018
    assert_identical(fleet, twin)


# --- the second stage -----------------------------------------------------------------------------------------------


def assert_refined_alike(fleet, stream, hmm):
    ours, theirs = fleet.extract(stream), hmm
    assert_same(fleet, stream, theirs)
    one, other = (each._learner.refinement.document() for each in (ours, theirs))
    np.testing.assert_equal(one, other)
    if theirs._learner.refinement.is_active:
        np.testing.assert_array_equal(ours.standard_errors_["means"], theirs.standard_errors_["means"])


@pytest.fixture(scope="module")
def long_block():
    return np.hstack([WORLD.sample(6_000, stream)[0] for stream in range(2)])


def test_each_stream_is_refined_as_it_would_be_alone(long_block, tmp_path, monkeypatch):
    monkeypatch.setattr(learners, "MANY_ROWS", 0)
    X = long_block
    fleet = Fleet(init=START, averaging="refined", n_jobs=2)
    fleet.partial_fit(X[:1_000]).partial_fit(X[1_000:3_500].ravel(), ids=np.tile([0, 1], 2_500))
    fleet.end_sequence([1]).freeze().partial_fit(X[3_500:3_600]).unfreeze()
    fleet.save(tmp_path / "fleet.hmm")
    fleets = [fleet, hmmstream.load(tmp_path / "fleet.hmm"), copy.deepcopy(fleet), pickle.loads(pickle.dumps(fleet))]
    hmms = [OnlineHMM(init=START).partial_fit(X[:3_500, [stream]]) for stream in (0, 1)]  # as it is by default
    hmms[1].end_sequence()
    for one in fleets:
        one.partial_fit(X[3_600:])
    for stream, hmm in enumerate(hmms):
        hmm.freeze().partial_fit(X[3_500:3_600, [stream]]).unfreeze().partial_fit(X[3_600:, [stream]])
        assert hmm._learner.refinement.is_proven
        for one in fleets:
            assert_refined_alike(one, stream, hmm)


def test_a_stream_that_joins_is_refined_from_then_on(long_block):
    alone = OnlineHMM(init=START).partial_fit(long_block[:5_000, [0]])
    without = OnlineHMM(init=START, averaging=StatisticAverage()).partial_fit(long_block[:1_000, [0]])
    fleet = Fleet(init=START, averaging="refined").add(["new"]).put("a", alone).put("b", without)
    assert fleet.extract("new")._learner.refinement is not None
    assert fleet.extract("b")._learner.refinement.is_interrupted  # its next row does not follow any that it knows
    assert_refined_alike(fleet, "a", alone)
    fleet.partial_fit(long_block[5_000:, 0], ids=["a"] * 1_000)
    assert_refined_alike(fleet, "a", alone.partial_fit(long_block[5_000:, [0]]))
    fleet.partial_fit(long_block[1_000:, 0], ids=["b"] * 5_000)
    extracted = fleet.extract("b")
    assert extracted._learner.refinement.is_proven
    raw = without.partial_fit(long_block[1_000:, [0]]).last_model_
    np.testing.assert_array_equal(extracted.last_model_.transmat, raw.transmat)
    assert abs(extracted.transmat_ - WORLD.transmat).max() < 0.1


@pytest.mark.parametrize("start", [HMM([0.5, 0.5], [[0.6, 0.4], [0.4, 0.6]], START.emission), START.relabel([1, 0])])
def test_a_stream_that_began_elsewhere_goes_on_from_there(start, long_block, tmp_path):
    X = long_block[:, 0]
    hmm = OnlineHMM(init=start).partial_fit(X[:900])  # before its first look, for which it needs to know its start
    fleet = Fleet(init=START, averaging="refined").put("a", hmm)
    fleet.save(tmp_path / "fleet.hmm")
    fleet.extract("a").save(tmp_path / "one.hmm")
    one = hmmstream.load(tmp_path / "one.hmm").partial_fit(X[900:3_000])
    fleets = fleet, hmmstream.load(tmp_path / "fleet.hmm")
    hmm.partial_fit(X[900:3_000])
    np.testing.assert_array_equal(one.transmat_, hmm.transmat_)
    for each in fleets:
        assert_refined_alike(each.partial_fit(X[900:3_000], ids=["a"] * 2_100), "a", hmm)


def test_a_window_becomes_dense_in_a_fleet_without(long_block):
    X = long_block[:, 0]
    hmm = OnlineHMM(init=START, engine="window").partial_fit(X[:1_000])
    fleet = Fleet(init=START, averaging="refined").put("a", hmm).partial_fit(X[1_000:], ids=["a"] * 5_000)
    assert fleet.extract("a")._learner.window is None
    np.testing.assert_allclose(fleet.transmat_[0], hmm.partial_fit(X[1_000:]).transmat_, rtol=1e-9)


def test_what_cannot_be_put_leaves_no_stream(monkeypatch):
    fleet = Fleet(init=START, averaging="refined").add(["a"])

    def fail(*arguments):
        raise MemoryError

    monkeypatch.setattr(LearnerStreams, "replace", fail)
    with pytest.raises(MemoryError):
        fleet.put("b", OnlineHMM(init=START).partial_fit([0.1]))
    assert list(fleet) == ["a"]
    assert len(fleet.filtered_proba_) == 1


@pytest.mark.parametrize("settings", [{"shared": True}, {"device": "cuda"}])
def test_where_there_is_no_second_stage_the_error_says_so(settings):
    for averaging in ("refined", Refined(10)):
        with pytest.raises(ValueError, match="no second stage"):
            Fleet(init=START, averaging=averaging, **settings)
