"""The statistic from a window is that of the dense recursion, whatever the chain remembers, at a cost of m² a step."""

import copy
import math
import pickle

import models
import numpy as np
import psutil
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import hmmstream
from benchmarks import extended
from benchmarks import window as exactness
from hmmstream import HMM, Categorical, Fleet, Gaussian, Learner, Masked, OnlineHMM, Power, Prior, StatisticAverage
from hmmstream import learner as learners
from hmmstream.checkpoint import Builder, ModelFileError, describe
from hmmstream.recursions import window

TOLERANCE = 1e-9
SEVERAL = [
    ("gaussian-paper", "full"),
    ("gaussian-paper", "masked"),
    ("categorical", "tied"),
]


def learned(start, X, engine, **options):
    learner = Learner(start, engine=engine, **options)
    learner.learn(X)
    return learner


def assert_same(dense, windowed, tolerance=TOLERANCE):
    for ours, theirs in zip(windowed.statistic, dense.statistic, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    for name in ("last_model", "model"):
        ours, theirs = (models.values(getattr(learner, name)) for learner in (windowed, dense))
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(windowed.filtered_proba, dense.filtered_proba, atol=tolerance)
    assert windowed.log_likelihood == pytest.approx(dense.log_likelihood, rel=tolerance)


def assert_identical(a, b):
    np.testing.assert_array_equal(a.state.S, b.state.S)
    np.testing.assert_array_equal(a.state.base, b.state.base)
    np.testing.assert_array_equal(models.values(a.last_model), models.values(b.last_model))
    for ours, theirs in zip(a.contents, b.contents, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def levels(m, stay=0.9, variance=0.2, shift=0.0):
    transmat = np.full((m, m), (1 - stay) / (m - 1))
    np.fill_diagonal(transmat, stay)
    return HMM(np.full(m, 1 / m), transmat, Gaussian("tied", means=np.arange(m) + shift, covars=variance))


def test_a_statistic_that_is_too_long_for_a_vector():
    """Few states, rows that share a matrix, and many numbers a state."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(40), 2)
    start = HMM([0.5, 0.5], [[0.8, 0.2], [0.1, 0.9]], Categorical(probs=probs))
    assert 2 * start.emission.n_statistics > window.LONGEST_VECTOR
    X = start.sample(600, 1)[0]
    windowed = learned(start, X, "window", update_every=5, averaging=StatisticAverage())
    expected = reference.algorithm_1(start, X, Power(0.6), update_every=5).model
    np.testing.assert_allclose(models.values(windowed.last_model), models.values(expected), rtol=TOLERANCE)


@pytest.mark.parametrize("update_every", [1, 40])
@pytest.mark.parametrize(("family", "structure"), SEVERAL)
def test_learning_equals_the_dense_recursion(family, structure, update_every):
    X = models.with_gaps(models.make(family, structure).sample(3000, 6)[0], 0.05)
    start = models.rough_start(family, structure)
    dense, windowed = (learned(start, X, engine, update_every=update_every) for engine in ("dense", "window"))
    assert windowed.window is not None
    assert_same(dense, windowed)
    windowed._turn_dense()
    for learner in (dense, windowed):
        learner.learn(X[:300])
    assert_same(dense, windowed)


@pytest.mark.parametrize("chain", ["mixing", "sticky"])
@pytest.mark.parametrize(("family", "structure"), SEVERAL)
def test_ten_thousand_observations_of_chains_that_mix_and_that_hardly_do(family, structure, chain):
    """A sample of ``python -m benchmarks.window --start rough``, which goes through every family and structure."""
    row = exactness.compare(family, structure, chain, start_is="rough")
    assert row.difference < TOLERANCE
    assert row.led < 1e-12


@pytest.mark.parametrize("chain", ["mixing", "sticky"])
def test_models_that_find_their_own_start_are_the_same_too(chain):
    """A sample of ``python -m benchmarks.window``: all is as it is by default."""
    row = exactness.compare("gaussian-paper", "full", chain)
    assert row.difference < TOLERANCE
    assert row.length > 0


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs numbers of 80 bits")
def test_both_engines_are_as_exact_as_double_precision_can_be():
    """A sample of ``python -m benchmarks.extended``, which shows what rounding comes to where it is magnified."""
    row = extended.compare("categorical", "tied", "rough", "mixing", n=2_000)
    assert all(difference < 1e-13 for difference in row)


def test_sequences_known_states_weights_and_few_updates_make_no_difference():
    family = "gaussian-paper"
    lengths = [1, 400, 2, 1, 596]
    X, states = models.make(family).sample(sum(lengths), 3)
    rng = np.random.default_rng(0)
    known = np.where(rng.random(len(X)) < 0.1, states, -1)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], len(X))
    start, prior = models.rough_start(family), Prior(transitions=2.0)
    both = [Learner(start, engine=engine, update_every=7, prior=prior) for engine in ("dense", "window")]
    for learner in both:
        learner.learn(X, lengths, states=known, weights=weights)
    assert_same(*both)


def test_a_known_state_that_was_impossible_is_believed():
    start = models.rough_start("gaussian-paper", "masked")
    X = models.make("gaussian-paper", "masked").sample(800, 3)[0]
    known = np.full(len(X), -1)
    known[[400, 401, 700, 701]] = 0, 2, 2, 0  # neither is a neighbour of the other
    both = [Learner(start, engine=engine) for engine in ("dense", "window")]
    for learner in both:
        learner.learn(X, states=known)
    assert_same(*both)


def test_many_states_over_ten_thousand_observations():
    X = levels(16).sample(10_000, 1)[0]
    start = levels(16, 0.7, 1.0, 0.2)
    assert_same(*(learned(start, X, engine, n_min=400) for engine in ("dense", "window")))


def test_many_states_keep_a_window_that_stays_short():
    """With so many, learning magnifies rounding errors: under the same parameters both statistics are the same."""
    start = levels(24)
    X = start.sample(5_000, 1)[0]
    assert learned(start, X, "auto", n_min=600).window is not None
    assert exactness.led_difference(start, X[:2_000], n_min=600) < 1e-12


def test_a_chain_that_does_not_forget_turns_dense():
    """Nobody can tell these states apart, and they last: the way back never forgets where it came from."""
    start = levels(24, 0.9999, 400.0)
    X = np.random.default_rng(0).normal(12.0, 20.0, 1200)
    windowed = learned(start, X, "auto", n_min=math.inf)
    assert windowed.window is None
    assert windowed.engine == "dense"
    assert_same(learned(start, X, "dense", n_min=math.inf), windowed)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.3, 3.0]), st.sampled_from([0.5, 1e-3, 1e-8]), st.booleans())
def test_what_was_called_final_stays_so(seed, spread, leave, is_wild):
    """Chains that mix and that hardly do, with states close together and far apart, and data that fit none of them."""
    rng = np.random.default_rng(seed)
    transmat = np.full((3, 3), leave / 2)
    np.fill_diagonal(transmat, 1 - leave)
    start = HMM([0.2, 0.3, 0.5], transmat, Gaussian("tied", means=spread * np.arange(3.0), covars=1.0))
    X = rng.standard_t(1.5, 400) * 5.0 if is_wild else start.sample(400, rng)[0]
    both = [learned(start, X, engine, n_min=math.inf) for engine in ("dense", "window")]
    assert_same(*both)


@pytest.mark.parametrize("update_every", [1, 7])
@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 1e-3, 1e-8]), st.booleans())
def test_what_was_called_final_stays_so_while_parameters_change(update_every, seed, leave, is_wild):
    """The dense recursion, led along the parameters that the window learns, has the same statistic after each row."""
    rng = np.random.default_rng(seed)
    transmat = np.full((3, 3), leave / 2)
    np.fill_diagonal(transmat, 1 - leave)
    rough = models.rough_start("categorical", "tied")
    start = HMM(rng.dirichlet(np.ones(3)), transmat, rough.emission, rough.transition)
    X = rng.integers(4, size=(300, 1)).astype(float) if is_wild else start.sample(300, rng)[0]
    windowed = Learner(start, engine="window", n_min=5, update_every=update_every)
    dense = Learner(start, engine="dense", n_min=math.inf)
    for row in X:
        for learner in (windowed, dense):
            learner.learn(row[np.newaxis])
        np.testing.assert_allclose(windowed.statistic.transitions, dense.statistic.transitions, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(windowed.statistic.emissions, dense.statistic.emissions, rtol=1e-9, atol=1e-12)
        dense.state.transmat[:], dense.state.theta[:] = windowed.state.transmat, windowed.state.theta
    assert windowed.window is not None


def test_chunks_files_and_copies_continue_bit_for_bit(tmp_path):
    X = models.make("gaussian-paper").sample(3000, 12)[0]
    start = models.rough_start("gaussian-paper")
    whole = learned(start, X, "window")
    chunked = Learner(start, engine="window")
    for piece in np.split(X, [1, 7, 100, 1500]):
        chunked.learn(piece)
    assert_identical(whole, chunked)

    hmm = OnlineHMM(init=start, engine="window").partial_fit(X[:1234])
    hmm.save(tmp_path / "half.hmm")
    for half in (hmmstream.load(tmp_path / "half.hmm"), copy.deepcopy(hmm), pickle.loads(pickle.dumps(hmm))):
        half.partial_fit(X[1234:])
        assert_identical(whole, half._learner)
    peeked = hmm._learner.peek(X[1234])
    hmm.learn_one(X[1234])
    np.testing.assert_allclose(peeked.filtered_proba, hmm.filtered_proba_, rtol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"n_min": 10_000}, {"update_every": 50}])
def test_a_restored_window_rounds_as_before_wherever_its_oldest_entry_lay(settings, tmp_path):
    """Observations that came by one matrix are summed together, as far as they lie one after the other in memory."""
    X = models.paper_model().sample(500, 3)[0]
    start = models.paper_start()
    for n in (0, 1, 40, 110, 333):
        one = Learner(start, engine="window", **settings)
        one.learn(X[:n])
        hmmstream.save(one, tmp_path / "some.hmm")
        other = hmmstream.load(tmp_path / "some.hmm")
        for ours, theirs in zip(one.window[:2], other.window[:2], strict=True):
            assert len(ours) == len(theirs)
        for learner in (one, other):
            learner.learn(X[n:])
        assert_identical(one, other)
        assert_identical(one, learned(start, X, "window", **settings))


def test_relabelled_states_take_the_window_along():
    X = models.make("gaussian-paper", "masked").sample(900, 4)[0]
    both = [Learner(models.rough_start("gaussian-paper", "masked"), engine=engine) for engine in ("dense", "window")]
    for learner in both:
        learner.learn(X[:500])
        learner.relabel([2, 0, 1])
        learner.learn(X[500:])
    assert_same(*both)


def test_a_feature_that_joins_is_as_if_it_had_been_missing():
    start = HMM([0.5, 0.3, 0.2], models.STRUCTURES["masked"][1], models.FAMILIES["gaussian-diag"], Masked.banded(3))
    X = start.sample(700, 4)[0]
    X[:400, 1] = np.nan
    columns = [Gaussian("diag", start.emission.means[:, [a]], start.emission.covars[:, [a]]) for a in (0, 1)]
    late = Learner(HMM(start.startprob, start.transmat, columns[0], start.transition), engine="window", n_min=math.inf)
    late.learn(X[:400, :1])
    late.add_features(columns[1])
    late.learn(X[400:])
    assert_same(learned(start, X, "window", n_min=math.inf), late)


def test_files_from_before_there_was_a_window_are_read():
    learner = learned(models.paper_start(), models.paper_model().sample(300, 0)[0], "dense")
    described = describe(learner)
    del described["engine"], described["window"], described["state"]["base"]
    described["state"]["clock"] = described["state"]["clock"][:7]
    described["state"]["rho"] = described["state"].pop("tau") / learner.filtered_proba[:, np.newaxis]
    described.pop("is", None)
    np.testing.assert_allclose(Builder().learner(described).vector, learner.vector, rtol=1e-15)


def test_the_window_does_not_grow_while_nothing_is_learned():
    start = models.make("gaussian-paper")
    X = start.sample(20_000, 2)[0]
    frozen = learned(start, X, "window", n_min=math.inf)
    frozen.learn(np.full(20_000, np.nan))
    assert len(frozen.window.entries) <= 512


def test_one_matrix_is_kept_for_all_observations_between_two_updates():
    start = models.make("gaussian-paper")
    windowed = learned(start, start.sample(5000, 2)[0], "window", update_every=64)
    assert len(windowed.contents.matrices) <= 1 + len(windowed.contents.entries) // 64 + 1
    assert len(windowed.window.matrices) <= 4


def test_memory_is_not_that_of_the_dense_statistic():
    m = 200
    chain = HMM(np.full(m, 1 / m), np.full((m, m), 1 / m), Categorical(probs=np.full((m, 4), 0.25)))
    assert Learner(chain, engine="window").vector.size < 6 * m * m < Learner(chain, engine="dense").vector.size / 30


def test_runs_are_the_possible_transitions():
    mask = np.random.default_rng(1).random((9, 9)) < 0.4
    np.fill_diagonal(mask, True)
    before, after = window.cells_of(None, Masked(mask).cells(9).runs)
    np.testing.assert_array_equal(np.stack([after, before], axis=1), np.argwhere(mask.T))
    assert Masked(np.ones((9, 9))).cells(9).runs is None


def test_damaged_windows_are_refused(tmp_path):
    start = models.rough_start("gaussian-paper")
    hmm = OnlineHMM(init=start, engine="window").partial_fit(start.sample(500, 0)[0])
    hmm._learner.window.entries[int(hmm._learner.vector[learners.WINDOW_FIRST]), -1] = 7.0
    hmm.save(tmp_path / "wrong.hmm")
    with pytest.raises(ModelFileError, match="window"):
        hmmstream.load(tmp_path / "wrong.hmm")


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (learners.WINDOW_COUNT, 0.5),
        (learners.WINDOW_COUNT, 1.0),
        (learners.WINDOW_COUNT, -1000.0),
        (learners.WINDOW_FIRST, 0.5),
        (learners.WINDOW_FIRST, 1e6),
        (learners.WINDOW_FIRST, np.nan),
        (learners.MATRIX_IS_KEPT, 0.5),
    ],
)
def test_a_clock_that_is_not_that_of_the_window_is_refused(place, change):
    start = models.rough_start("gaussian-paper")
    described = describe(learned(start, start.sample(500, 0)[0], "window"))
    described["state"]["clock"] = described["state"]["clock"].copy()
    described["state"]["clock"][place] += change
    with pytest.raises(ValueError, match="window is not as its clock says"):
        Builder().build(described)


@pytest.mark.parametrize("matrix", [1.0, -1.0, 0.5, 2.0**40, np.nan])
def test_entries_that_came_by_no_matrix_are_refused(matrix):
    """All of them shifted, which is the same again once they are counted from the oldest."""
    start = models.rough_start("gaussian-paper")
    described = describe(learned(start, start.sample(500, 0)[0], "window"))
    described["window"]["entries"][:, window.MATRIX] += matrix
    with pytest.raises(ValueError, match="which transitions it came by"):
        Builder().build(described)


def test_a_window_without_matrices_is_refused():
    """Memory that nobody wrote to would take their place."""
    start = models.rough_start("gaussian-paper")
    described = describe(learned(start, start.sample(15, 0)[0], "window"))
    described["window"]["matrices"] = described["window"]["matrices"][:0]
    with pytest.raises(ValueError, match="which transitions it came by"):
        Builder().build(described)


@pytest.mark.parametrize(
    ("at", "value"), [(window.KEEP, 1.5), (window.MOVED, 2.0), (window.EMISSION_WEIGHT, 1e7), (window.KEEP, -0.1)]
)
def test_weights_that_no_stream_leads_to_are_refused(at, value):
    start = models.rough_start("gaussian-paper")
    described = describe(learned(start, start.sample(500, 0)[0], "window"))
    described["window"]["entries"][3, at] = value
    with pytest.raises(ValueError, match="probabilities and weights"):
        Builder().build(described)


def test_room_that_a_file_asks_for_is_not_filled():
    start = models.rough_start("gaussian-paper")
    described = describe(learned(start, start.sample(500, 0)[0], "window"))
    described["window"]["room"] = np.array([2**22, 2**22])
    process = psutil.Process()
    before = process.memory_info().rss
    learner = Builder().build(described)
    fleet = Fleet(init=start, engine="window").add([1])
    fleet._streams.replace(0, learner)
    assert all(len(one.window.entries) == 2**22 for one in (learner, copy.deepcopy(learner), *fleet._streams.learners))
    assert process.memory_info().rss - before < 2**25


@pytest.mark.parametrize("failure", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize(("name", "most_room"), [("refill", learners.MOST_ROOM), ("unroll", 0)])
def test_a_window_that_cannot_grow_is_still_there(failure, name, most_room, monkeypatch):
    X, start = models.paper_model().sample(400, 2)[0], models.paper_start()
    one, twin = (learned(start, X[:60], "window", update_every=10) for _ in range(2))
    monkeypatch.setattr(learners, "MOST_ROOM", most_room)

    def fail(*arguments):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(window, name, fail)
        with pytest.raises(failure):
            one.learn(X[60:])
    done = one.n_samples_seen
    assert 60 < done < len(X)  # it had room for some
    twin.learn(X[60:])
    one.learn(X[done:])
    assert (one.window is None) == (most_room == 0)
    np.testing.assert_array_equal(one.vector, twin.vector)


@pytest.mark.parametrize("room", [[31, 500], [512, 1], [2**40, 500], [512, -1], [512.0, 512.0], [512]])
def test_a_file_asks_for_no_more_and_no_less_room_than_a_window_has(room):
    start = models.rough_start("gaussian-paper")
    described = describe(learned(start, start.sample(500, 0)[0], "window"))
    described["window"]["room"] = np.array(room)
    with pytest.raises(ValueError, match="window"):
        Builder().build(described)


def test_files_from_before_their_room_was_kept_are_read():
    start = models.rough_start("gaussian-paper")
    X = start.sample(900, 0)[0]
    one = learned(start, X[:500], "window")
    described = describe(one)
    del described["window"]["room"]
    described["state"]["clock"] = described["state"]["clock"].copy()
    described["state"]["clock"][learners.WINDOW_FIRST] = 0.0
    other = Builder().build(described)
    for learner in (one, other):
        learner.learn(X[500:])
    np.testing.assert_allclose(other.state.transmat, one.state.transmat, rtol=1e-12)


def test_engines_are_named():
    with pytest.raises(ValueError, match="engine must be one of"):
        Learner(models.paper_model(), engine="steam")
    assert Learner(levels(23), step=Power(0.6)).window is None
    assert Learner(levels(8), update_every=8).window is not None
    assert Learner(levels(24)).window is not None
