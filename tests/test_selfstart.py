"""A model that starts itself: OnlineHMM(n_components).partial_fit(X), and nothing else said."""

import copy
import pickle
from concurrent.futures import Future
from pathlib import Path

import models
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from benchmarks.selfstart import accuracy, recording
from hmmstream import HMM, Categorical, Constant, Gaussian, Masked, OnlineHMM, Poisson, selfstart
from hmmstream.background import SecondProcess
from hmmstream.checkpoint import encode

DATA = Path(__file__).parents[2] / "shared" / "data"
needs_recordings = pytest.mark.skipif(not DATA.is_dir(), reason="the recordings are not here")


@pytest.fixture
def short_buffer(monkeypatch):
    monkeypatch.setattr(selfstart, "BUFFER_ROWS", 512)


@pytest.fixture(scope="module")
def X():
    return models.paper_model().sample(3000, 41)[0]


def test_the_model_of_the_paper_is_found_without_a_word():
    """5 of the 200 streams of ``python -m benchmarks.selfstart``: none is collapsed or swapped, as none is there."""
    for seed in range(5):
        stream = models.paper_model().sample(8000, 5000 + seed)[0]
        hmm = OnlineHMM(2, random_state=seed).partial_fit(stream)
        assert abs(hmm.means_[0, 0]) < 0.3
        assert abs(hmm.means_[1, 0] - 1.0) < 0.5
        assert (hmm.covars_ > 0.25).all()
        assert (hmm.covars_ < 0.75).all()


@pytest.mark.parametrize("family", ["gaussian-mixture", "mixed", "von-mises"])
def test_families_of_every_kind_start_themselves(family):
    """Loss within 0.02 of that of the truth; a model of one state is off by 0.1 to 2. In batch, all families do it."""
    world = models.make(family)
    X = models.with_gaps(world.sample(9000, 31)[0], 0.02)
    hmm = OnlineHMM(3, models.specification(world.emission), random_state=0).partial_fit(X)
    fresh = world.sample(20_000, 32)[0]
    assert hmm.score(fresh) > world.log_likelihood(fresh) / 20_000 - 0.02


@pytest.mark.parametrize("chunks", [[3000], [1, 2, 997, 2000], [1500, 1500]], ids=str)
def test_the_start_does_not_depend_on_how_the_stream_is_cut(X, short_buffer, chunks):
    whole = OnlineHMM(2, random_state=0)
    followed = whole.follow(X)
    cut = OnlineHMM(2, random_state=0)
    pieces = [cut.follow(piece) for piece in np.split(X, np.cumsum(chunks)[:-1])]
    np.testing.assert_array_equal(cut._learner.vector, whole._learner.vector)
    np.testing.assert_array_equal(np.concatenate(pieces), followed)


def test_one_by_one_is_the_same_and_nothing_comes_from_the_future(X, short_buffer):
    followed = OnlineHMM(2, random_state=0).follow(X[:600])
    one_by_one = OnlineHMM(2, random_state=0)
    for row, x in enumerate(X[:600]):
        one_by_one.learn_one(x)
        np.testing.assert_array_equal(one_by_one.filtered_proba_, followed[row])
        assert one_by_one.n_samples_seen_ == row + 1


@pytest.mark.parametrize("emission", [Gaussian("full"), Gaussian("diag")], ids=repr)
def test_neither_scale_nor_offset_of_the_data_matters(emission):
    X = models.make("gaussian-full").sample(1500, 5)[0]
    hmm = OnlineHMM(3, emission, random_state=0).partial_fit(X)
    for scale, offset in [(1e-9, 0.0), (1e6, 0.0), (1.0, 1e4), (1e-3, -1e2)]:
        other = OnlineHMM(3, emission, random_state=0).partial_fit(scale * X + offset)
        np.testing.assert_allclose(other.transmat_, hmm.transmat_, atol=1e-5)
        np.testing.assert_allclose((other.means_ - offset) / scale, hmm.means_, atol=1e-5)
        np.testing.assert_allclose(other.covars_ / scale**2, hmm.covars_, atol=1e-5)


def test_every_row_of_the_buffer_is_learned_from(X, short_buffer):
    """When the buffer has just filled, the statistic is the mean over all its rows."""
    hmm = OnlineHMM(2, random_state=0).partial_fit(X[:512])
    assert hmm.statistic_.emissions[:, 0].sum() == pytest.approx(1.0)
    assert hmm.statistic_.emissions[:, 1].sum() == pytest.approx(X[:512].mean())
    assert hmm.statistic_.emissions[:, 2].sum() == pytest.approx((X[:512] ** 2).mean())
    assert hmm.log_likelihood_ == pytest.approx(hmm.last_model_.log_likelihood(X[:512]))


def test_memory_does_not_grow_once_the_buffer_is_full(X, short_buffer):
    hmm = OnlineHMM(2, random_state=0, averaging=None).partial_fit(X)
    size = len(pickle.dumps(hmm))
    assert len(pickle.dumps(hmm.partial_fit(X))) == size
    assert size < 20_000


def test_states_are_numbered_by_their_means(X):
    for seed in range(3):
        assert (np.diff(OnlineHMM(3, random_state=seed).partial_fit(X[:1000]).means_[:, 0]) > 0).all()
    counts = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Poisson([8.0, 1.0])).sample(1000, 0)[0]
    assert (np.diff(OnlineHMM(2, "poisson", random_state=0).partial_fit(counts).rates_[:, 0]) > 0).all()


def test_states_may_be_put_in_another_order_and_the_stream_goes_on(X, short_buffer):
    hmm = OnlineHMM(2, random_state=0).partial_fit(X[:1000])
    other = copy.deepcopy(hmm).relabel([1, 0])
    for a, b in ((hmm, other), (hmm.partial_fit(X[1000:]), other.partial_fit(X[1000:]))):
        np.testing.assert_allclose(a.means_, b.means_[::-1], rtol=1e-10)
        np.testing.assert_allclose(a.transmat_, b.transmat_[::-1, ::-1], rtol=1e-10)
        np.testing.assert_allclose(a.filtered_proba_, b.filtered_proba_[::-1], rtol=1e-9)
        assert a.log_likelihood_ == pytest.approx(b.log_likelihood_, rel=1e-12)
    early = OnlineHMM(2, random_state=0).partial_fit(X[:100])
    for order in ([0, 0], [0], [0.0, 1.0], [1, 2]):
        for model in (hmm, early):
            with pytest.raises(ValueError, match="each of the states 0, …, 1 once"):
                model.relabel(order)
    again = OnlineHMM(2, random_state=0).partial_fit(X)
    np.testing.assert_array_equal(early.partial_fit(X[100:]).means_, again.means_)  # it still looks for a start


@pytest.mark.parametrize("structure", sorted(models.STRUCTURES))
def test_any_structure_survives_another_order(structure):
    world = models.make("gaussian-paper", structure)
    X = world.sample(800, 1)[0]
    order = [2, 0, 1]
    hmm = OnlineHMM(init=world).partial_fit(X[:400])
    other = copy.deepcopy(hmm).relabel(order)
    hmm.partial_fit(X[400:])
    other.partial_fit(X[400:])
    np.testing.assert_allclose(other.means_, hmm.means_[order], rtol=1e-9)
    np.testing.assert_allclose(other.transmat_, hmm.transmat_[np.ix_(order, order)], rtol=1e-9)
    assert other.log_likelihood_ == pytest.approx(hmm.log_likelihood_, rel=1e-12)


def test_a_sensor_that_is_silent_at_first_is_waited_for(X):
    late = np.concatenate([np.full((200, 1), np.nan), X[:1000]])
    hmm = OnlineHMM(2, random_state=0)
    proba = hmm.follow(late[:100])
    np.testing.assert_array_equal(proba, 0.5)
    with pytest.raises(NotFittedError):
        _ = hmm.model_
    hmm.partial_fit(late[100:])
    prompt = OnlineHMM(2, random_state=0).partial_fit(X[:1000])
    np.testing.assert_array_equal(models.values(hmm.model_), models.values(prompt.model_))
    assert hmm.n_samples_seen_ == 1200


@pytest.mark.parametrize(
    "X",
    [
        [1.0],
        [1.0, 2.0],
        [3.0] * 50,
        [0.0, 1.0] * 40,
        [1e200, -1e200, 3.0],
        [1.0, np.nan, 2.0, np.nan, np.nan, 5.0],
        np.random.default_rng(0).random((1, 2)),
        np.repeat(np.random.default_rng(1).random((3, 2)), 4, axis=0),
    ],
    ids=["one row", "two", "constant", "two values", "huge", "gaps", "more columns than rows", "repeated rows"],
)
def test_hard_streams_have_a_model_all_the_same(X):
    hmm = OnlineHMM(3, random_state=0)
    proba = hmm.follow(X)
    assert np.isfinite(models.values(hmm.model_)).all()
    assert np.isfinite(models.values(hmm.last_model_)).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def test_symbols_that_come_later_are_taken_in():
    X = models.make("categorical").sample(400, 3)[0]
    late = np.concatenate([X[:50] % 2, X])
    hmm = OnlineHMM(3, "categorical", random_state=0)
    for piece in np.array_split(late, 3):
        hmm.partial_fit(piece)
    assert hmm.probs_.shape == (3, 4)
    assert hmm.n_samples_seen_ == 450
    with pytest.raises(ValueError, match=r"X\[1, 0\] is 1.5: Categorical expects one of the symbols"):
        hmm.partial_fit([0, 1.5])
    assert hmm.n_samples_seen_ == 450
    with pytest.raises(ValueError, match="one of the symbols"):  # who says how many there are means it
        OnlineHMM(3, Categorical(2), random_state=0).partial_fit(late)


def test_a_refused_chunk_leaves_the_search_as_it_was(X):
    hmm = OnlineHMM(2, random_state=0).partial_fit(X[:300])
    before = models.values(hmm.model_)
    for bad in (np.append(X[300:], np.inf), np.zeros((5, 2)), "abc"):
        with pytest.raises(ValueError, match="X"):
            hmm.partial_fit(bad)
    np.testing.assert_array_equal(models.values(hmm.model_), before)
    a = hmm.partial_fit(X[300:])
    b = OnlineHMM(2, random_state=0).partial_fit(X)
    np.testing.assert_array_equal(models.values(a.model_), models.values(b.model_))


def test_the_callers_array_may_be_used_again(X):
    hmm, chunk = OnlineHMM(2, random_state=0), np.empty((100, 1))
    for first in range(0, 1000, 100):
        chunk[:] = X[first : first + 100]
        hmm.partial_fit(chunk)
    whole = OnlineHMM(2, random_state=0).partial_fit(X[:1000])
    np.testing.assert_array_equal(models.values(hmm.model_), models.values(whole.model_))


def test_a_copy_made_during_the_search_goes_on_bit_for_bit(X):
    hmm = OnlineHMM(2, random_state=None).partial_fit(X[:300])
    twins = [pickle.loads(pickle.dumps(hmm)), copy.deepcopy(hmm)]
    hmm.partial_fit(X[300:])
    for twin in twins:
        np.testing.assert_array_equal(models.values(twin.partial_fit(X[300:]).model_), models.values(hmm.model_))


def test_sequences_are_kept_apart_in_the_buffer():
    """Two sequences that begin where the first would hardly ever go."""
    jumps = HMM([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], Gaussian("tied", means=[0.0, 9.0], covars=1.0))
    X = np.concatenate([jumps.sample(10, seed)[0] for seed in range(100)])
    apart = OnlineHMM(2, random_state=0).partial_fit(X, lengths=[10] * 100)
    ended = OnlineHMM(2, random_state=0)
    for piece in np.split(X, 100):
        ended.partial_fit(piece).end_sequence()
    assert (np.diag(apart.transmat_) > 0.99).all()
    np.testing.assert_array_equal(apart.transmat_, ended.transmat_)
    assert (np.diag(OnlineHMM(2, random_state=0).partial_fit(X).transmat_) < 0.99).all()


def test_a_chain_that_goes_one_way_starts_itself():
    world = HMM(
        [1.0, 0.0, 0.0],
        [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]],
        Gaussian("diag", means=[3.0, -3.0, 8.0], covars=[1.0, 1.0, 1.0]),
        Masked.left_right(3, max_jump=1),
    )
    X = np.concatenate([world.sample(40, seed)[0] for seed in range(50)])
    hmm = OnlineHMM(3, Gaussian("diag"), transition=world.transition, random_state=0)
    hmm.partial_fit(X, lengths=[40] * 50)
    np.testing.assert_allclose(hmm.means_[:, 0], [3.0, -3.0, 8.0], atol=0.5)
    np.testing.assert_array_equal(hmm.transmat_ == 0, world.transmat == 0)


def test_a_step_that_forgets_is_not_held_back_by_the_first_rows(short_buffer):
    """Two levels that drift away, by five times the distance between them."""
    rng = np.random.default_rng(0)
    X = rng.normal(np.linspace(0.0, 25.0, 10_000) + np.tile(np.repeat([0.0, 5.0], 50), 100))
    hmm = OnlineHMM(2, step=Constant(0.01), averaging=None, random_state=0).partial_fit(X)
    np.testing.assert_allclose(hmm.means_[:, 0], [25.0, 30.0], atol=2.0)


def test_frozen_models_gather_no_more_than_others(X, short_buffer):
    hmm = OnlineHMM(2, random_state=0, averaging=None).partial_fit(X[:10])
    hmm.freeze().partial_fit(np.tile(X, (3, 1)))
    assert len(pickle.dumps(hmm)) < 20_000


def test_frozen_models_do_not_look_for_another_start(X):
    hmm = OnlineHMM(2, random_state=0).partial_fit(X[:300]).freeze()
    before = models.values(hmm.last_model_)
    hmm.partial_fit(X[300:2000])
    np.testing.assert_array_equal(models.values(hmm.last_model_), before)
    assert (models.values(hmm.unfreeze().partial_fit(X[2000:]).last_model_) != before).any()


@needs_recordings
def test_a_channel_is_found_open_or_closed_with_nothing_but_the_number_of_states():
    """At least 99.5 % of the last 50,000 samples, causal."""
    X, n_open = recording(DATA, "ion_deepchannel_1ch_10", ["current"], "n_open")
    proba = OnlineHMM(n_components=2, random_state=0).follow(X)
    assert (proba[-50_000:].argmax(axis=1) == n_open[-50_000:]).mean() >= 0.995


@needs_recordings
def test_five_channels_are_counted():
    """At least 95 % of the last 50,000 samples, causal, states matched one to one with numbers of open channels."""
    X, n_open = recording(DATA, "ion_deepchannel_5ch_328", ["current"], "n_open")
    proba = OnlineHMM(n_components=6, random_state=0).follow(X)
    assert accuracy(proba[-50_000:].argmax(axis=1), n_open[-50_000:]) >= 0.95


class Slow:
    """A background in which nothing is done until it is asked for."""

    def submit(self, function, *arguments):
        future = Future()
        future.done = lambda: False
        future.result = lambda: function(*arguments)
        return future


@pytest.mark.parametrize(
    ("background", "emission"),
    [(Slow, Gaussian("tied")), (SecondProcess, Gaussian("tied")), (Slow, "categorical")],
    ids=["slow", "process", "slow-symbols"],
)
def test_a_search_in_the_background_changes_nothing_in_the_end(background, emission):
    """Whether looks come to their end before the next is due or only when a file is written."""
    rng = np.random.default_rng(4)
    X = np.cumsum(rng.normal(size=700)) % 3.0
    X[50:60] = np.nan
    if emission == "categorical":
        X = np.floor(X + (np.arange(700) > 300))  # a new symbol comes later
        X[0] = 2.0
    beside = background()
    n_states = 3 if emission == "categorical" else 2  # as in other tests: fewer loops to compile
    at_once = OnlineHMM(n_states, emission, random_state=0)
    later = OnlineHMM(n_states, emission, random_state=0).search_in(beside)
    for first in range(0, 700, 7):
        for hmm in (at_once, later):
            hmm.partial_fit(X[first : first + 7])
        if first == 350:
            for hmm in (at_once, later):
                hmm.end_sequence()
    assert encode(later) == encode(at_once)
    if background is SecondProcess:
        beside.close()


def test_a_second_process_that_dies_is_not_missed():
    beside = SecondProcess()
    assert beside.submit(divmod, 7, 2).result() == (3, 1)
    beside._process.kill()
    assert beside.submit(divmod, 7, 2).result() == (3, 1)
    beside.close()
