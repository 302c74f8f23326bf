"""Each stream of a fleet learns what it would learn alone; streams of a shared model learn what their pool says."""

import copy
import math
import pickle
import threading
import time

import models
import numpy as np
import pytest

import hmmstream
from hmmstream import (
    HMM,
    AutoRegressive,
    Categorical,
    Constant,
    Fleet,
    Gaussian,
    Harmonic,
    Learner,
    OnlineHMM,
    Polyak,
    Power,
    Prior,
    StatisticAverage,
    streams,
)
from hmmstream.checkpoint import ModelFileError, describe, pack
from hmmstream.recursions.fleet import PIECE
from hmmstream.recursions.state import CLOCK_SIZE, LIKELIHOOD_FACTOR, LOG_LIKELIHOOD, TIME

WORLD, START = models.paper_model(), models.paper_start()
N = 6


def block(n, n_streams=N, seed=0):
    return np.hstack([WORLD.sample(n, seed + stream)[0] for stream in range(n_streams)])


def assert_same(fleet, stream, alone, tolerance=1e-12):
    one = fleet.extract(stream)
    np.testing.assert_allclose(one._learner.vector, alone._learner.vector, rtol=tolerance, atol=tolerance)
    at = list(fleet).index(stream)
    np.testing.assert_allclose(fleet.transmat_[at], alone.transmat_, atol=tolerance)
    for name in alone.model_.emission.value_names:
        np.testing.assert_allclose(getattr(fleet, f"{name}_")[at], getattr(alone, f"{name}_"), atol=tolerance)
    np.testing.assert_allclose(fleet.filtered_proba_[at], alone.filtered_proba_, atol=tolerance)
    assert fleet.log_likelihood_[at] == pytest.approx(alone.log_likelihood_, rel=tolerance)
    assert fleet.n_samples_seen_[at] == alone.n_samples_seen_


# --- own models -----------------------------------------------------------------------------------------------------


def test_each_stream_of_a_block_learns_what_it_would_learn_alone():
    X = block(400)
    X[37, 2] = X[40:60, 3] = np.nan
    fleet = Fleet(init=START)
    for piece in np.split(X, [1, 150]):
        fleet.partial_fit(piece)
    for stream in range(N):
        assert_same(fleet, stream, OnlineHMM(init=START).partial_fit(X[:, stream]))


@pytest.mark.parametrize("settings", [{"averaging": Polyak(20)}, {"prior": Prior(), "step": lambda n: (n + 1) ** -0.7}])
def test_settings_are_those_of_a_stream(settings):
    X = block(80, 2)
    fleet = Fleet(init=START, update_every=3, **settings).partial_fit(X[:50]).partial_fit(X[50:])
    for stream in range(2):
        assert_same(fleet, stream, OnlineHMM(init=START, update_every=3, **settings).partial_fit(X[:, stream]))


def test_features_and_a_mask_are_those_of_a_stream():
    start = models.rough_start("gaussian-diag", "masked")
    X = np.stack([models.make("gaussian-diag", "masked").sample(120, seed)[0] for seed in range(3)], axis=1)
    fleet = Fleet(init=start).partial_fit(X)
    for stream in range(3):
        assert_same(fleet, stream, OnlineHMM(init=start).partial_fit(X[:, stream]))
    X[4, 1, 1] = np.inf
    with pytest.raises(ValueError, match=r"X\[4, 1, 1\] is inf.*Nothing was learned"):
        fleet.partial_fit(X)


@pytest.mark.parametrize("n_times", [1, 700, PIECE // 3, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5])
def test_blocks_as_long_as_what_is_gathered_at_a_time_and_shorter_and_longer(n_times):
    start = models.rough_start("gaussian-diag", "masked")
    X = models.make("gaussian-diag", "masked").sample(7 * n_times, 6)[0].reshape(n_times, 7, 2)
    for n_jobs in (1, 3):
        fleet = Fleet(init=start, n_jobs=n_jobs)
        proba = fleet.follow(X)
        for stream in range(7):
            alone = OnlineHMM(init=start, averaging=StatisticAverage())
            np.testing.assert_array_equal(proba[:, stream], alone.follow(X[:, stream]))
            np.testing.assert_array_equal(fleet.vectors[stream], alone._learner.vector)


@pytest.mark.parametrize("kind", ["numbers", "names"])
def test_rows_in_order_of_arrival(kind):
    rng = np.random.default_rng(1)
    X, who = WORLD.sample(700, 3)[0], rng.integers(0, 40, 700)
    ids = who * 1000 if kind == "numbers" else np.array([f"sensor {stream}" for stream in who])
    fleet, proba = Fleet(init=START), []
    for rows in np.split(np.arange(700), [1, 2, 300]):
        proba.append(fleet.follow(X[rows], ids[rows]))
    assert list(fleet) == list(dict.fromkeys(ids.tolist()))
    for stream in (who[0], who[699]):
        alone = OnlineHMM(init=START)
        followed = alone.follow(X[who == stream])
        np.testing.assert_allclose(np.concatenate(proba)[who == stream], followed, atol=1e-12)
        assert_same(fleet, ids[who == stream][0], alone)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_rows_of_short_and_long_streams_in_any_order(n_jobs):
    start = models.rough_start("gaussian-diag", "masked")
    lengths = np.append(np.arange(300) % 40, [PIECE - 1, 2 * PIECE + 5, 1, PIECE, 3])
    ids = np.random.default_rng(5).permutation(np.repeat(np.arange(len(lengths)), lengths))
    X = models.make("gaussian-diag", "masked").sample(len(ids), 6)[0]
    ids.flags.writeable = False
    fleet = Fleet(init=start, n_jobs=n_jobs).add(np.arange(len(lengths)))
    proba = fleet.follow(X, ids)
    for stream in (1, 39, 159, *range(299, len(lengths))):
        alone = OnlineHMM(init=start, averaging=StatisticAverage())
        np.testing.assert_allclose(proba[ids == stream], alone.follow(X[ids == stream]), atol=1e-12)
        assert_same(fleet, stream, alone)


def test_what_is_given_is_not_what_is_kept():
    names = np.array([3, 1, 2])
    fleet = Fleet(init=START).partial_fit([0.1, 0.2, 0.3], ids=names)
    again = Fleet(init=START).resume(names, fleet.vectors)
    names[:] = 7
    assert list(fleet) == list(again) == [3, 1, 2]
    again.partial_fit([0.4], ids=[1])
    assert again.n_samples_seen_.tolist() == [1, 2, 1]
    assert fleet.n_samples_seen_.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "vectors", [lambda V: V[::-1], lambda V: np.asfortranarray(V), lambda V: np.hstack([V, V])[:, : V.shape[1]]]
)
def test_streams_go_on_from_vectors_in_any_order_of_memory(vectors):
    X = block(40, 3)
    fleet = Fleet(init=START).partial_fit(X)
    again = Fleet(init=START).resume(np.arange(3), vectors(fleet.vectors))
    np.testing.assert_array_equal(again.partial_fit(X).n_samples_seen_, 80)


def test_a_call_with_few_rows_of_many_streams():
    fleet = Fleet(init=START).partial_fit(block(3, 500))
    alone = OnlineHMM(init=START).partial_fit(block(3, 500)[:, 7]).partial_fit([0.3, 0.4])
    fleet.partial_fit([0.3, 0.1, 0.4], ids=[7, 499, 7])
    assert_same(fleet, 7, alone)


def test_ragged_arrays_one_a_stream():
    pieces = [WORLD.sample(n, n)[0] for n in (50, 1, 120)]
    fleet = Fleet(init=START).partial_fit(pieces)
    for stream, piece in enumerate(pieces):
        assert_same(fleet, stream, OnlineHMM(init=START).partial_fit(piece))


def test_follow_returns_a_block_of_probabilities():
    X = block(60, 2)
    proba = Fleet(init=START).follow(X)
    assert proba.shape == (60, 2, 2)
    np.testing.assert_allclose(proba[:, 1], OnlineHMM(init=START).follow(X[:, 1]), atol=1e-12)


def test_the_number_of_threads_makes_no_difference():
    X = block(400, 50)
    assert X.size > streams.MANY_ROWS
    one, three = (Fleet(init=START, n_jobs=n_jobs).partial_fit(X) for n_jobs in (1, 3))
    np.testing.assert_array_equal(one._streams.vectors, three._streams.vectors)
    assert threading.active_count() < 10


@pytest.mark.parametrize("n_jobs", [2, 3, 8])
@pytest.mark.parametrize("n_streams", [2, 5, 3000])
def test_every_stream_is_in_one_piece_of_the_work(n_streams, n_jobs):
    lengths = np.random.default_rng(n_streams).integers(0, 5, n_streams)
    lengths[-2] = streams.MANY_ROWS  # nearly all rows are of one stream
    offsets, pieces = np.append(0, lengths.cumsum()), []
    streams.share_out(lambda start, stop: pieces.append((start, stop)), offsets, n_jobs)
    assert [place for start, stop in sorted(pieces) for place in range(start, stop)] == list(range(n_streams))


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_when_a_piece_fails_no_other_is_begun_and_no_thread_is_left(failure):
    begun = []

    def work(piece):
        begun.append(piece)
        if piece == 7:
            raise failure("seven")

    before = threading.active_count()
    with pytest.raises(failure, match="seven"):
        streams.in_threads(work, [(piece,) for piece in range(100_000)], 3)
    assert len(begun) < 100_000
    assert threading.active_count() == before


def test_all_pieces_are_done_when_threads_have_ended():
    done = []

    def work(seconds):
        time.sleep(seconds)
        done.append(seconds)

    streams.in_threads(work, [(0.2,), (0.0,), (0.1,)], 3)
    assert sorted(done) == [0.0, 0.1, 0.2]


@pytest.mark.parametrize("n_streams", [3, 70_000, 150_001 * streams.FEW])  # few, about as many as rows, far more
def test_rows_of_streams_keep_their_order(n_streams, monkeypatch):
    monkeypatch.setattr(streams, "MANY_TO_SORT", 1000)
    places = np.random.default_rng(3).integers(0, n_streams, 150_001)
    for n_jobs in (1, 2, 3):
        rows = streams.by_streams(np.zeros((len(places), 1)), places, n_streams, n_jobs)
        np.testing.assert_array_equal(rows.order, np.argsort(places, kind="stable"))
        np.testing.assert_array_equal(np.repeat(rows.streams, np.diff(rows.offsets)), places[rows.order])


def test_streams_come_and_go():
    X = block(100)
    fleet = Fleet(init=START).partial_fit(X)
    hmm = fleet.extract(3)
    hmm.partial_fit(X[:50, 3])
    assert fleet.n_samples_seen_[3] == 100  # the fleet keeps its own
    fleet.remove([0, 3]).add([77])
    assert list(fleet) == [1, 2, 4, 5, 77]
    assert 77 in fleet
    assert 3 not in fleet
    fleet.put(3, hmm).put(77, hmm)
    assert list(fleet) == [1, 2, 4, 5, 77, 3]
    assert_same(fleet, 3, hmm)
    fleet.partial_fit([0.5], ids=[77])
    assert_same(fleet, 77, hmm.partial_fit([0.5]))
    with pytest.raises(KeyError, match="no stream 0"):
        fleet.remove(0)
    with pytest.raises(ValueError, match="already"):
        fleet.add([3])
    with pytest.raises(ValueError, match="another kind"):
        fleet.put(9, OnlineHMM(init=models.rough_start("poisson")).partial_fit([1.0, 2.0]))


def test_sequences_end_and_parameters_are_held():
    X = block(60, 2)
    fleet = Fleet(init=START).partial_fit(X[:30]).end_sequence([1])
    fleet.freeze().partial_fit(X[30:])
    alone = [OnlineHMM(init=START).partial_fit(X[:30, stream]) for stream in (0, 1)]
    alone[1].end_sequence()
    for stream in (0, 1):
        assert_same(fleet, stream, alone[stream].freeze().partial_fit(X[30:, stream]))


def test_names_are_integers_or_strings_everywhere():
    fleet = Fleet(init=START).partial_fit([0.1, 0.2], ids=np.array([5, 2**31 - 1], dtype=np.int32))
    assert fleet.ids.dtype == np.int64
    assert 0.5 not in fleet
    assert "a" not in fleet
    for call in (fleet.extract, fleet.remove, fleet.end_sequence, fleet.add):
        with pytest.raises(ValueError, match="integer or a string"):
            call(0.5)
    with pytest.raises(ValueError, match="integer or a string"):
        fleet.remove([True, False])
    assert len(fleet.add([]).remove([])) == 2
    assert list(fleet.partial_fit([0.1], ids=np.array([7], dtype=np.uint64))) == [5, 2**31 - 1, 7]
    named = Fleet(init=START).partial_fit([0.1, 0.2], ids=np.array(["pump", "valve 2"], dtype=object))
    assert list(named.partial_fit([0.1], ids=["pump"])) == ["pump", "valve 2"]


def test_no_rows_are_nothing_to_learn():
    fleet = Fleet(init=START).partial_fit(np.empty((0, 3)))
    assert len(fleet) == 3
    assert fleet.follow(np.empty((0, 3))).shape == (0, 3, 2)
    assert fleet.follow([], ids=[]).shape == (0, 2)
    assert fleet.partial_fit(np.zeros((1, 3))).n_samples_seen_.tolist() == [1, 1, 1]


def test_a_step_function_that_fails_leaves_nothing_behind():
    for shared in (False, True):
        fleet = Fleet(init=START, shared=shared, step=lambda n: n**-0.6 if n < 7 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fleet.partial_fit(np.zeros(9), ids=[99] * 9)
        assert len(fleet) == fleet._streams.n == 0
        with pytest.raises(ValueError, match="step size"):
            Fleet(init=START, shared=shared, step=lambda n: math.nan).partial_fit(np.zeros((9, 2)))


@pytest.mark.parametrize("names", [[0, 1, 2], [7, -3, 9], ["a", "bcd", "e"]])
@pytest.mark.parametrize("failure", [MemoryError, KeyboardInterrupt])
def test_calls_that_fail_half_way_leave_the_streams_that_were_there(names, failure, monkeypatch):
    fleet = Fleet(init=START).partial_fit([0.1, 0.9, 0.4], ids=names)
    twin = copy.deepcopy(fleet)
    news = [f"new {k}" for k in range(40)] if isinstance(names[0], str) else list(range(100, 140))

    def fail(*arguments):
        raise failure

    have_seen, learn_each = (streams.SeparateStreams, "have_seen"), (streams.fleet, "learn_each")
    for places in ([(streams.SeparateStreams, "new_vector")], [learn_each], [learn_each, have_seen]):
        with monkeypatch.context() as patch:
            for place in places:
                patch.setattr(*place, fail)
            with pytest.raises(failure):
                fleet.partial_fit(np.zeros(40), ids=news)
        assert list(fleet) == names
        assert len(fleet._streams.vectors) == 3
    for where, name, call in (
        (streams.SeparateStreams, "new_vector", lambda: fleet.add(news)),
        (hmmstream.fleet, "Names", lambda: fleet.remove(names[:1])),
        (streams.SeparateStreams, "keep", lambda: fleet.remove(names[:1])),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fail)
            with pytest.raises(failure):
                call()
        assert list(fleet) == names
        assert len(fleet._streams.vectors) == 3
    for one in (fleet, twin):
        one.partial_fit([0.3, 0.2, 0.7], ids=[names[1], news[5], names[0]])
    assert list(fleet) == list(twin)
    np.testing.assert_array_equal(fleet.vectors, twin.vectors)


def test_what_a_new_stream_has_learned_before_an_interrupt_stays(monkeypatch):
    fleet = Fleet(init=START, n_jobs=1).partial_fit([0.1], ids=["a"])
    learn = streams.fleet.learn_each

    def interrupted(*arguments):
        learn(*arguments[:-1], 2)  # the first two streams
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(streams.fleet, "learn_each", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fleet.partial_fit([0.3, 0.2, 0.7, 0.4], ids=["b", "a", "c", "b"])
    assert list(fleet) == ["a", "b", "c"]
    assert fleet.n_samples_seen_.tolist() == [2, 2, 0]
    assert_same(fleet, "b", OnlineHMM(init=START, averaging=StatisticAverage()).partial_fit([0.3, 0.4]))


def test_values_of_families_whose_parameters_are_made_of_others():
    start = models.rough_start("gaussian-mixture")
    fleet = Fleet(init=start)
    for stream in range(2):
        fleet.put(stream, OnlineHMM(init=start).partial_fit(models.make("gaussian-mixture").sample(40, stream)[0]))
    for name in fleet.extract(1).model_.emission.value_names:
        np.testing.assert_array_equal(getattr(fleet, f"{name}_")[1], getattr(fleet.extract(1), f"{name}_"))


def test_the_start_of_a_chain_comes_along():
    other = HMM([0.99, 0.01], START.transmat, START.emission)
    fleet = Fleet(init=START).put("a", OnlineHMM(init=other).partial_fit(np.zeros(50)))
    np.testing.assert_array_equal(fleet.extract("a").startprob_, [0.99, 0.01])
    np.testing.assert_array_equal(fleet.startprob_, [[0.99, 0.01]])


def test_outliers_leave_a_shared_model_finite():
    X = block(100, 4)
    fleet = Fleet(init=START, shared=True).partial_fit(X).partial_fit(np.full((1, 4), 1e200)).partial_fit(X)
    assert np.isfinite(fleet._streams.together[10:]).all()
    assert np.isfinite(fleet._streams.vectors).all()


def test_a_fleet_finds_its_own_start():
    worlds = [HMM([0.5, 0.5], [[0.95, 0.05], [0.1, 0.9]], Gaussian("tied", [0, 4 + a], 0.5)) for a in range(4)]
    X = np.hstack([world.sample(3000, 5)[0] for world in worlds])
    fleet = Fleet(2, random_state=0).partial_fit(X[:500]).partial_fit(X[500:])
    np.testing.assert_allclose(fleet.means_[:, :, 0], [[0, 4 + a] for a in range(4)], atol=0.15)


def test_bad_input_is_refused_and_changes_nothing():
    X = block(30)
    fleet = Fleet(init=START).partial_fit(X)
    before = fleet._streams.vectors.copy()
    bad = X.copy()
    bad[5, 2] = np.inf
    for rows, ids, message in [
        (bad, None, r"X\[5, 2\] is inf"),
        (bad[:, 2], np.arange(100, 130), r"X\[5, 0\] is inf"),
        (X[:, :3], None, "give the ids"),
        ([X[:, 0]], None, "of 1 streams"),
        (X[:, 0], ["a"] * 30, "known by integers"),
        (X[:, 0], None, "time, stream"),
        (X[:, 0], np.arange(29), "of each of the 30 rows"),
        (X[:, 0], np.full(30, 0.5), "integer or a string"),
        (X[:, 0], np.full(30, 2**63, dtype=np.uint64), "integer or a string"),
        ([X[:, 0], X[:, :2]], None, "same number of columns"),
        (np.full((3, N), "x"), None, "numbers"),
        (np.ones((3, N, 0)), None, "0 feature"),
        (np.ones((30, 2)), np.arange(30), "shape"),
    ]:
        with pytest.raises(ValueError, match=message):
            fleet.partial_fit(rows, ids)
        assert len(fleet) == N
        np.testing.assert_array_equal(fleet._streams.vectors, before)
    for settings, message in [
        ({"device": "tpu"}, "device must be"),
        ({"dtype": "float32"}, "for device='cuda'"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"engine": "windows"}, "engine must be one of"),
        ({"engine": "windows", "shared": True}, "engine must be one of"),
        ({"shared": True, "device": "cuda"}, "on the CPU"),
        ({"shared": True, "averaging": Polyak(10)}, "not Polyak"),
    ]:
        with pytest.raises(ValueError, match=message):
            Fleet(init=START, **settings)
    with pytest.raises(ValueError, match="nothing has been learned"):
        Fleet().filtered_proba_  # noqa: B018
    assert not hasattr(Fleet(), "means_")
    with pytest.raises(ValueError, match="too few to find a start"):
        Fleet().partial_fit(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="looks back"):
        Fleet(init=HMM([1.0], [[1.0]], AutoRegressive(1, [[0.5]], [0.0], [1.0])))


@pytest.mark.parametrize("shared", [False, True])
def test_files_and_copies_continue_bit_for_bit(tmp_path, shared):
    X = block(200)
    fleet = Fleet(init=START, shared=shared, n_jobs=1).partial_fit(X[:70])
    fleet.save(tmp_path / "fleet.hmm")
    others = [hmmstream.load(tmp_path / "fleet.hmm"), copy.deepcopy(fleet), pickle.loads(pickle.dumps(fleet))]
    fleet.partial_fit(X[70:])
    for other in others:
        other.partial_fit(X[70:])
        np.testing.assert_array_equal(other._streams.vectors, fleet._streams.vectors)
        np.testing.assert_array_equal(other.transmat_, fleet.transmat_)
        np.testing.assert_array_equal(other.ids, fleet.ids)


@pytest.mark.parametrize("shared", [False, True])
def test_streams_are_saved_wherever_their_likelihood_stands(tmp_path, shared):
    """Its last factor waits as long as it is no larger than 1e300, and no smaller than 1e-300."""
    probs = np.array([[0.9, 0.1], [0.2, 0.8]])
    sharp = HMM(START.startprob, probs, Gaussian("tied", means=[0.0, 1.0], covars=1e-4))
    blurred = HMM(START.startprob, probs, Gaussian("tied", means=[0.0, 1e3], covars=1e4))
    factors = []
    for world in (sharp, blurred):
        X = np.hstack([world.sample(150, stream)[0] for stream in range(20)])
        fleet = Fleet(init=world, shared=shared).partial_fit(X[:100])
        factors.extend(fleet._streams.vectors[:, LIKELIHOOD_FACTOR])
        fleet.save(tmp_path / "fleet.hmm")
        other = hmmstream.load(tmp_path / "fleet.hmm")
        others = [other] if shared else [other, Fleet(init=world).resume(fleet.ids, fleet.vectors)]
        for one in (fleet, *others):
            one.partial_fit(X[100:])
            np.testing.assert_array_equal(one.log_likelihood_, fleet.log_likelihood_)
            np.testing.assert_array_equal(one.transmat_, fleet.transmat_)
    assert min(factors) < 1e-100
    assert max(factors) > 1e100


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (TIME, -1.0),
        (TIME, 2.0**60),
        (LIKELIHOOD_FACTOR, 0.0),
        (LIKELIHOOD_FACTOR, math.inf),
        (LOG_LIKELIHOOD, math.nan),
        (CLOCK_SIZE, 0.99),  # where the start distribution is
        (-1, 1e999),
    ],
)
def test_vectors_that_no_stream_leads_to_are_refused_and_the_others_stay(at, value):
    fleet = Fleet(init=START).partial_fit(block(10))
    before, vectors = fleet.vectors.copy(), fleet.vectors.copy()
    vectors[1, at] = value
    with pytest.raises(ValueError, match=r"its (clocks|streams|probabilities)"):
        fleet.resume(range(10, 10 + N), vectors)
    assert list(fleet) == list(range(N))
    np.testing.assert_array_equal(fleet.vectors, before)


def test_streams_with_names_are_saved_and_damaged_files_refused(tmp_path):
    names = ["a", "é", "\U0001f600", "\ud83d\ude00", "\ud800"]  # the last two are halves of characters
    fleet = Fleet(init=START).partial_fit([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], ids=[*names, "a"])
    fleet.save(tmp_path / "fleet.hmm")
    assert list(hmmstream.load(tmp_path / "fleet.hmm")) == names
    fleet.remove(names).save(tmp_path / "empty.hmm")
    assert list(hmmstream.load(tmp_path / "empty.hmm").partial_fit([1.0], ids=["c"])) == ["c"]
    fleet.partial_fit([1.0, 2.0], ids=["a", "b"])
    document = {"version": 1, "holds": {**describe(fleet), "ids": ["a", "b"]}, "notes": {}}  # as they were once kept
    (tmp_path / "old.hmm").write_bytes(pack(document))
    assert list(hmmstream.load(tmp_path / "old.hmm")) == ["a", "b"]
    no_names = np.full((2, 1), 2**31, dtype=np.uint32), np.empty((2, 0), dtype=np.uint32), np.zeros(2, dtype=np.uint32)
    for damage in ({"ids": ids} for ids in (["a", "a"], ["a"], *no_names)):
        document = {"version": 1, "holds": {**describe(fleet), **damage}, "notes": {}}
        (tmp_path / "bad.hmm").write_bytes(pack(document))
        with pytest.raises(ModelFileError):
            hmmstream.load(tmp_path / "bad.hmm")


# --- one model for all ----------------------------------------------------------------------------------------------


def test_one_stream_of_a_shared_model_is_an_online_hmm():
    X = block(300, 1)
    for settings in ({}, {"step": Constant(0.05), "prior": Prior()}, {"update_every": 5, "n_min": 7}):
        fleet = Fleet(init=START, shared=True, **settings).partial_fit(X[:99]).partial_fit(X[99:])
        alone = OnlineHMM(init=START, **settings).partial_fit(X)
        np.testing.assert_allclose(models.values(fleet.model_), models.values(alone.model_), atol=1e-12)
        np.testing.assert_allclose(fleet.filtered_proba_[0], alone.filtered_proba_, atol=1e-12)
        assert fleet.log_likelihood_[0] == pytest.approx(alone.log_likelihood_, rel=1e-12)


def test_statistics_are_pooled():
    """With held parameters and a row each at every time, the statistic of all is the mean of those of each."""
    X = block(200) + 1e3  # far from the origin, where centres have to move
    start = HMM(START.startprob, START.transmat, Gaussian("tied", START.emission.means + 1e3, START.emission.covars))
    pooled = Fleet(init=start, shared=True, n_min=math.inf).partial_fit(X)._streams.template.statistic

    def step(n):  # of a round: N observations with the step of the middle one
        return 1.0 - (1.0 - Power(0.6)(n * N + (N - 1) // 2)) ** N

    alone = [
        OnlineHMM(init=start, n_min=math.inf, step=step).partial_fit(X[:, stream]).statistic_ for stream in range(N)
    ]
    np.testing.assert_allclose(pooled.transitions, np.mean([one.transitions for one in alone], axis=0), atol=1e-12)
    np.testing.assert_allclose(pooled.emissions, np.mean([one.emissions for one in alone], axis=0), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Harmonic")
def test_every_observation_of_ragged_streams_counts_the_same():
    """With steps 1/n and known parameters, the statistic is the mean over all observations, whoever made them."""
    lengths = [300, 2000, 1, 770]
    pieces = [WORLD.sample(n, n)[0] for n in lengths]
    fleet = Fleet(init=WORLD, shared=True, n_min=math.inf, step=Harmonic()).partial_fit(pieces)
    found = fleet._streams.template.statistic
    squares = np.concatenate(pieces) ** 2
    assert found.emissions[:, 0].sum() == pytest.approx(1.0, abs=1e-9)
    assert found.emissions[:, 2].sum() == pytest.approx(squares.mean(), rel=5e-3)
    assert abs(found.emissions[:, 2].sum() - np.mean([(piece**2).mean() for piece in pieces])) > 0.02


def test_many_short_streams_teach_one_model():
    """As much as one long one does, of the same number of observations."""
    X = block(400, 100)
    fleet = Fleet(init=START, shared=True).partial_fit(X)
    for ours, truth, allowed in [
        (fleet.means_[:, 0], WORLD.emission.means[:, 0], 0.15),
        (np.diag(fleet.transmat_), np.diag(WORLD.transmat), 0.08),
    ]:
        np.testing.assert_allclose(ours, truth, atol=allowed)


def test_threads_make_no_difference_to_a_shared_model():
    X = np.tile(block(8, 20), (1, 150))
    one, two = (Fleet(init=START, shared=True, n_jobs=n_jobs).partial_fit(X) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one._streams.together, two._streams.together)
    np.testing.assert_array_equal(one._streams.vectors, two._streams.vectors)


def test_what_a_removed_stream_taught_stays():
    X = block(100)
    fleet = Fleet(init=START, shared=True).partial_fit(X)
    before = models.values(fleet.model_)
    hmm = fleet.extract(2)
    fleet.remove([0, 1])
    np.testing.assert_array_equal(models.values(fleet.model_), before)
    fleet.partial_fit(X[:, :4])
    assert len(fleet) == 4
    np.testing.assert_allclose(models.values(hmm.model_), before, atol=1e-12)
    hmm.partial_fit(X[:, 2])
    assert np.isfinite(models.values(hmm.model_)).all()
    with pytest.raises(ValueError, match="shared model"):
        fleet.put(9, hmm)
    with pytest.raises(ValueError, match="its own model"):
        Fleet(init=START).partial_fit(X).model_  # noqa: B018


def test_memory_of_a_million_streams():
    """State vectors are all that a stream takes: less than 900 bytes with two states."""
    fleet = Fleet(init=START).partial_fit(np.zeros((1, 1000)))
    assert fleet._streams.room.nbytes / 1000 < 900
    symbols = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Categorical(probs=[[0.9, 0.1], [0.2, 0.8]]))
    assert Learner(symbols).vector.nbytes < 900
