"""The second stage: as accurate as maximum likelihood, whatever the start, and it says how sure it is."""

import inspect
import math
import pickle

import models
import numpy as np
import pytest
import reference

import hmmstream
from benchmarks import efficiency
from hmmstream import (
    HMM,
    BatchHMM,
    Constant,
    Gaussian,
    Learner,
    Masked,
    OnlineHMM,
    Poisson,
    Polyak,
    Prior,
    StatisticAverage,
    information,
)
from hmmstream.averaging import Refined
from hmmstream.checkpoint import Builder, describe
from hmmstream.information import chain_values
from hmmstream.parameters import Parameters
from hmmstream.record import Record
from hmmstream.refinement import FIRST_LOOK, MOST_ROWS, Refinement
from paper.model import START, TRUTH


@pytest.fixture(scope="module")
def X():
    return TRUTH.sample(20_000, 3)[0]


@pytest.fixture(scope="module")
def whole(X):
    return learned(X)


def learned(*pieces, start=START, averaging="refined", **options):
    learner = Learner(start, averaging=averaging, **options)
    for piece in pieces:
        learner.learn(piece)
    return learner


def assert_identical(a, b):
    for name, value in a.refinement.document().items():
        np.testing.assert_equal(b.refinement.document()[name], value, err_msg=name)
    np.testing.assert_array_equal(models.values(a.model), models.values(b.model))


# --- accuracy -------------------------------------------------------------------------------------------------------


def test_after_a_look_the_model_is_the_maximum_of_the_likelihood(X):
    n = 4 * FIRST_LOOK
    learner = learned(X[:n])
    assert learner.refinement.is_active
    ours, data = learner.model, X[:n]
    init = HMM(START.startprob, TRUTH.transmat, TRUTH.emission)
    theirs = BatchHMM(2, init=init, start="fixed", n_iter=2000, tol=1e-6).fit(data).model_
    assert theirs.log_likelihood(data) - ours.log_likelihood(data) < 0.05
    assert abs(models.values(ours) - models.values(theirs)).max() < 0.01


@pytest.mark.parametrize("has_notes", [False, True], ids=["plain", "notes"])
def test_one_pass_adds_up_what_each_row_says(has_notes, X):
    """Each row's own increments are held against their twin elsewhere. Three patches, gaps, two sequences."""
    n, rng = 600, np.random.default_rng(5)
    states, weights = rng.integers(-1, 2, n), rng.uniform(0.0, 2.0, n)
    notes = (states, weights) if has_notes else (None, None)
    data = Record(models.with_gaps(X[:n], 0.1), np.isin(np.arange(n), [0, 300]), *notes)
    parameters, by_row = Parameters(START), []
    information.visit_increments(parameters, data, lambda _, increments: by_row.append(increments.copy()))
    numbers, weights = np.concatenate(by_row), weights if has_notes else np.ones(n)
    score = Refinement(START)._at(parameters.values, data)
    for found, expected in zip(score[1:], reference.sums_of_products(numbers, weights, 256), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * abs(expected).max())


def test_rows_that_wait_for_the_end_of_their_block_have_their_say(X):
    """The maximum of the likelihood of all rows but the last thousand is further from that of all."""
    n = 18_500
    waiting = learned(X[:n])
    refinement = waiting.refinement
    assert refinement.n_rows - refinement.n_done > 900
    before = refinement._model_at(refinement.values)
    assert waiting.model.log_likelihood(X[:n]) > before.log_likelihood(X[:n]) + 0.1
    assert np.trace(refinement._latest().information) > 1.03 * np.trace(refinement.information)
    assert_identical(learned(X[:n]), waiting)  # to look has changed nothing
    waiting.learn(X[n : n + 1])
    assert_identical(learned(X[: n + 1]), waiting)


def test_the_bound_is_reached_and_intervals_hold_the_truth():
    """60 runs. The mean ratio has a standard deviation of 0.13, so that it exceeds 1.5 in one of 10,000 such tests."""
    runs = [efficiency.one_run(TRUTH, START, (8_000, 32_000), ("refined",), seed) for seed in range(60)]
    for row in efficiency.rows_of(TRUTH, runs, (8_000, 32_000)):
        assert row.n_lost == 0
        assert row.ratios["refined"].mean() < 1.5
        assert 0.89 < row.coverage.mean() < 0.99  # of 300 intervals, 95 % are expected


@pytest.mark.parametrize("name", ["poisson", "masked chain"])
def test_starts_that_lose_the_raw_iterate_are_no_obstacle(name):
    """Four runs of n = 16,000: errors of 20 times the bound would mean that a state was lost."""
    truth, start = efficiency.suite()[name]
    runs = [efficiency.one_run(truth, start, (16_000,), ("refined", "iterate"), seed) for seed in range(4)]
    (row,) = efficiency.rows_of(truth, runs, (16_000,))
    assert row.n_lost == 0
    assert row.ratios["refined"].mean() < 2.5
    assert row.ratios["refined"].mean() < 1.05 * row.ratios["iterate"].mean()


# --- when there is one ----------------------------------------------------------------------------------------------


def test_nothing_is_refined_before_the_first_look(X):
    few = learned(X[: FIRST_LOOK - 1])
    assert not few.refinement.is_active
    np.testing.assert_array_equal(
        models.values(few.model), models.values(learned(X[: FIRST_LOOK - 1], averaging=StatisticAverage()).model)
    )
    few.learn(X[FIRST_LOOK - 1 : FIRST_LOOK])
    assert few.refinement.is_active
    assert not few.refinement.is_proven
    few.learn(X[FIRST_LOOK : FIRST_LOOK + 256])
    assert few.refinement.is_proven  # it has predicted a block as well as online EM


def test_rows_are_let_go_once_the_recursion_is_trusted(whole):
    assert whole.refinement.is_trusted
    assert whole.refinement.X.nbytes < 2**17


def test_only_worlds_that_stay_as_they_are_have_a_second_stage():
    for averaging in (None, StatisticAverage(), Polyak(100)):
        assert Learner(START, averaging=averaging).refinement is None
    for options in (
        {"step": Constant(0.01)},
        {"step": lambda n: n**-0.7},
        {"prior": Prior(transitions=1.0)},
        {"n_min": math.inf},
    ):
        assert Learner(START, averaging="refined", **options).refinement is None
    assert Learner(START, averaging=Refined(), prior=Prior()).refinement is not None


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_what_fails_while_room_is_made_leaves_it_as_it_was(failure, X, monkeypatch):
    learner, concatenate, n_calls = learned(X[:FIRST_LOOK]), np.concatenate, 0

    def failing(*arguments, **options):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            raise failure
        return concatenate(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(np, "concatenate", failing)
        with pytest.raises(failure):
            learner.learn(X[FIRST_LOOK : FIRST_LOOK + 200])
    assert learner.refinement.is_interrupted  # online EM has learned from rows that the second stage has not seen
    for _ in range(20):
        learner.learn(X[:1_000])
    assert learner.refinement.is_proven


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_what_fails_while_one_row_is_kept_leaves_no_hole(failure, X, monkeypatch):
    learner = learned(X[:100])

    def fail(*arguments):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(Refinement, "take_one", fail)
        with pytest.raises(failure):
            learner.learn_one(X[100, 0])
    assert learner.refinement.is_interrupted


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError])
def test_a_look_that_is_broken_off_is_done_again(failure, X, monkeypatch):
    learner, twin = learned(X[: FIRST_LOOK - 1]), learned(X[: FIRST_LOOK - 1])

    def fail(*arguments):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(Refinement, "_find_determined", fail)
        with pytest.raises(failure):
            learner.learn(X[FIRST_LOOK - 1 : FIRST_LOOK])
    twin.learn(X[FIRST_LOOK - 1 : FIRST_LOOK])
    for one in (learner, twin):
        one.learn(X[FIRST_LOOK : 3 * FIRST_LOOK])
    assert learner.refinement.is_active
    np.testing.assert_array_equal(learner.model.transmat, twin.model.transmat)


def test_a_family_without_derivatives_has_none():
    class Plain(models.ReferenceRayleigh):
        feature_gradient = hmmstream.IndependentFeatures.feature_gradient

    start = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Plain([0.5, 2.0]))
    assert Learner(start, averaging="refined").refinement is None


@pytest.mark.parametrize(("m", "averagings"), [(8, {"auto", "refined"}), (9, {"refined"}), (20, set())])
def test_many_parameters_have_one_if_it_is_asked_for_and_very_many_have_none(m, averagings):
    start = HMM(np.full(m, 1 / m), np.full((m, m), 1 / m), Poisson(np.arange(1.0, m + 1)))
    assert {a for a in ("auto", "refined") if Learner(start, averaging=a).refinement is not None} == averagings


def test_states_that_are_not_there_keep_it_out_and_do_no_harm():
    """One state in the data, two in the model, far apart: the second is hardly ever visited."""
    rng = np.random.default_rng(0)
    start = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Gaussian("tied", means=[0.0, 100.0], covars=1.0))
    learner = learned(rng.normal(0.0, 1.0, 3 * FIRST_LOOK), start=start)
    assert not learner.refinement.is_active
    assert np.isfinite(models.values(learner.model)).all()


def test_a_world_that_changes_ends_it_and_it_begins_anew(X):
    """Means move by 3 standard deviations: the past is worth nothing, and what was refined must not be reported on."""
    learner = learned(X)
    moved = TRUTH.sample(3_000, 5)[0] + 2.0
    learner.learn(moved[:1_300])
    assert not learner.refinement.is_active
    learner.learn(moved[1_300:])
    assert learner.refinement.is_active  # again, from the rows after the change alone
    np.testing.assert_allclose(learner.model.emission.means[:, 0], [2.0, 3.0], atol=0.4)


def test_where_there_is_no_model_there_is_nothing_to_climb_to(X):
    refinement = Refinement(START)
    values = Parameters(START).values
    values[-1] = 0.0  # the variance
    assert refinement._at(values, Record(X, np.arange(len(X)) == 0)).height == -np.inf


def test_what_no_data_can_tell_is_left_alone():
    """Of a mixture of symbols only the probabilities of the symbols are determined: 3 of 8 parameters."""
    truth, start = (make("categorical", "independent") for make in (models.make, models.rough_start))
    learner = learned(truth.sample(12_000, 4)[0], start=start)
    refinement = learner.refinement
    assert refinement.is_active
    assert (abs(refinement.determined).max(axis=0) > 0.0).sum() == 3
    seen, found = (h.stationary_distribution() @ h.emission.probs for h in (truth, learner.model))
    np.testing.assert_allclose(found, seen, atol=0.02)  # 4 standard errors of a share of 12,000


def test_one_outlier_changes_next_to_nothing():
    """Online EM has lost a state here, and is wide: it would have predicted the outlier better, and is no model."""
    truth, start = efficiency.suite()["gaussian-full"]
    learner = learned(truth.sample(15_000, 0)[0], start=start)
    before = learner.model
    test = truth.sample(5_000, 1)[0]
    learner.learn(np.full((1, 2), 8.0 * np.sqrt(before.emission.covars.max())))
    assert before.log_likelihood(test) - learner.model.log_likelihood(test) < 0.01 * len(test)


def test_of_several_tops_the_highest_counts_that_is_reached_and_has_all_states(X, monkeypatch):
    """The first of those that are about as high: that is how states keep their order."""
    data = Record(X[:2000], np.arange(2000) == 0)
    refinement = Refinement(START)
    values = Parameters(TRUTH).values
    good = refinement._climb(values, data)

    def chosen(*tops):
        again = Refinement(START)
        again.take(data)
        climbs = iter(tops)
        monkeypatch.setattr(again, "_climb", lambda *_: next(climbs))
        again._look(TRUTH, 0.0)
        return again.values[4] if again.is_active else None

    def top(by, mark, is_reached=True):
        score = good.score._replace(log_likelihood=good.score.log_likelihood + by)
        return good._replace(values=np.where(np.arange(7) == 4, mark, good.values), score=score, is_reached=is_reached)

    assert chosen(top(0.0, 0.01), top(0.4, 0.02)) == 0.01
    assert chosen(top(0.0, 0.01), top(0.6, 0.02)) == 0.02
    assert chosen(top(0.0, 0.01), top(9.0, 0.02, is_reached=False)) == 0.01
    assert chosen(top(0.0, 0.01, is_reached=False), top(-9.0, 0.02)) == 0.02
    assert chosen(top(0.0, 0.01), top(9.0, 1e3)) == 0.01  # a state that nobody visits
    assert chosen(top(0.0, 0.01, is_reached=False), top(9.0, 1e3)) is None


def test_rows_that_cannot_be_learned_from_are_kept_for_no_longer_than_the_limit():
    learner = learned(np.zeros(MOST_ROWS + 500))  # all the same: no maximum
    assert not learner.refinement.is_proven
    assert len(learner.refinement.X) <= 2 * MOST_ROWS
    assert np.isfinite(models.values(learner.model)).all()


# --- the same, however it comes -------------------------------------------------------------------------------------


def test_chunks_make_no_difference(X, whole):
    assert_identical(whole, learned(*np.array_split(X, 37)))
    one_by_one = Learner(START, averaging="refined")
    for x in X[:3000, 0]:
        one_by_one.learn_one(x)
    assert_identical(learned(X[:3000]), one_by_one)


@pytest.mark.parametrize("n", [500, 1500, 9000])
def test_files_and_copies_continue_bit_for_bit(n, X, whole, tmp_path):
    hmmstream.save(learned(X[:n]), tmp_path / "m.hmm")
    for learner in (hmmstream.load(tmp_path / "m.hmm"), pickle.loads(pickle.dumps(learned(X[:n])))):
        learner.learn(X[n:])
        assert_identical(whole, learner)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("values", np.zeros(3)),
        ("information", np.full((7, 7), np.nan)),
        ("n_rows", -1),
        ("n_done", 10**9),
        ("is_active", 3),
        ("is_active", False),
        ("next_look", 1999),
        ("next_look", 10**15),
        ("n_idle", 5),
        ("lost", -1e300),
        ("n_quiet", 3),
        ("phi", np.array([-1.0, 2.0])),
        ("slopes", np.zeros((2, 2))),
        ("rows", {"X": np.zeros((2, 5)), "is_start": np.zeros(2, bool), "states": None, "weights": None}),
    ],
)
def test_damaged_files_are_refused(name, value, X):
    description = describe(learned(X[:2000]))
    description["refinement"][name] = value
    with pytest.raises(ValueError, match=r"second stage|model"):
        Builder().build(description)


def test_files_from_before_looks_were_counted_are_read(X):
    description = describe(learned(X[:3000]))
    assert description["refinement"].pop("n_quiet") == 1
    assert Builder().build(description).refinement.n_quiet == 0


def test_files_from_when_blocks_were_longer_are_read(X):
    """Of a recursion that is not proven: 1,024 rows and 300 that wait, where 256 are a block now."""
    learner = learned(X[:FIRST_LOOK])
    description, more = describe(learner), learned(X[: FIRST_LOOK + 300])
    description["refinement"]["rows"] = describe(more)["refinement"]["rows"]
    description["refinement"]["n_rows"] = FIRST_LOOK + 300
    restored = Builder().build(description)
    restored.learn(X[FIRST_LOOK + 300 : 5000])
    assert restored.refinement.is_proven


def test_rows_that_the_model_refuses_are_refused_in_files_too():
    start = models.make("categorical")
    description = describe(learned(start.sample(500, 0)[0], start=start))
    description["refinement"]["rows"]["X"][:] = 1e9
    with pytest.raises(ValueError, match="refuses"):
        Builder().build(description)


def test_relabelled_states_take_it_along(X, whole):
    learner = learned(X[:9000])
    learner.relabel([1, 0])
    learner.learn(X[9000:])
    learner.relabel([1, 0])
    np.testing.assert_allclose(models.values(learner.model), models.values(whole.model), rtol=1e-10)
    np.testing.assert_allclose(learner.refinement.information, whole.refinement.information, rtol=1e-9)


def test_sequences_known_states_weights_and_gaps_are_understood(X):
    states = np.full(6000, -1)
    states[::7] = (X[:6000:7, 0] > 0.5).astype(int)
    gaps = models.with_gaps(X[:6000], 0.1)
    learner = Learner(START, averaging="refined")
    learner.learn(gaps, [2000, 1, 3999], states=states, weights=np.where(np.arange(6000) % 5, 1.0, 2.0))
    assert learner.refinement.is_active
    assert np.isfinite(models.values(learner.model)).all()


def test_while_frozen_the_model_stays(X):
    learner = learned(X[:5000])
    before = models.values(learner.model)
    learner.freeze()
    learner.learn(X[5000:9000] + 5.0)
    np.testing.assert_array_equal(models.values(learner.model), before)
    learner.unfreeze()
    learner.learn(X[9000:15_000])
    np.testing.assert_allclose(models.values(learner.model), models.values(TRUTH), atol=0.1)


def test_a_file_written_after_an_interruption_continues_bit_for_bit(X, tmp_path):
    learner = learned(X[:1500])
    learner.freeze()
    learner.learn(X[1500:1600])
    learner.unfreeze()
    hmmstream.save(learner, tmp_path / "m.hmm")
    again = hmmstream.load(tmp_path / "m.hmm")
    for one in (learner, again):
        one.learn(X[1600:4000])
    assert_identical(learner, again)


def test_what_has_not_been_compared_is_not_proven(X):
    learner = learned(X[:FIRST_LOOK])
    learner.freeze()
    learner.learn(X[FIRST_LOOK : FIRST_LOOK + 1])
    learner.unfreeze()
    learner.learn(X[FIRST_LOOK + 1 : FIRST_LOOK + 257])
    assert not learner.refinement.is_proven
    learner.learn(X[FIRST_LOOK + 257 : FIRST_LOOK + 600])
    assert learner.refinement.is_proven


def test_a_model_that_found_its_own_start_is_not_held_against_it():
    """The start was made from the rows that are recalled: it explains them better than anything could predict them."""
    world = efficiency.suite()["six levels"][0]
    hmm = OnlineHMM(6, Gaussian("tied"), averaging="refined", random_state=0).partial_fit(world.sample(5_000, 1)[0])
    assert hmm._fitted().refinement.is_proven
    np.testing.assert_allclose(hmm.means_[:, 0], np.arange(6.0), atol=0.1)


def test_a_chain_that_goes_one_way_is_followed_in_logarithms():
    """40 rows at 0 and then 60 at 5: by then the first state is too improbable for a float, and never comes back."""
    chain = Masked([[1, 1], [0, 1]])
    start = HMM([1.0, 0.0], [[0.97, 0.03], [0.0, 1.0]], Gaussian("tied", means=[0.0, 5.0], covars=1.0), chain)
    sequence = np.concatenate([np.zeros(40), np.full(60, 5.0)])
    X = np.tile(sequence, 20) + np.random.default_rng(0).normal(0.0, 1.0, 2000)
    learner = Learner(start, averaging="refined")
    learner.learn(X, [100] * 20)
    assert learner.refinement.is_active
    np.testing.assert_allclose(learner.model.emission.means[:, 0], [0.0, 5.0], atol=0.2)


def test_a_chunk_is_refused_as_a_whole(X):
    bad = X[:5000].copy()
    bad[4900] = np.inf
    learner = Learner(START, averaging="refined")
    with pytest.raises(ValueError, match=r"X\[4900, 0\].*Nothing was learned"):
        learner.learn(bad)
    assert learner.n_samples_seen == 0


# --- how sure -------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_all_rows(X):
    hmm = OnlineHMM(init=START, averaging="refined").partial_fit(X)
    ours, theirs = hmm.standard_errors_, hmm.model_.standard_errors(X)
    for name, errors in theirs.items():
        np.testing.assert_allclose(ours[name], errors, rtol=0.25)
    robust = hmm.standard_errors(robust=True)
    for name, errors in ours.items():
        np.testing.assert_allclose(robust[name], errors, rtol=0.5)
    low, high = hmm.conf_int(0.9)["transmat"]
    assert (low < hmm.transmat_).all()
    assert (hmm.transmat_ < high).all()


def test_robust_errors_know_of_a_model_that_does_not_fit():
    """Counts that scatter three times as much as those of Poisson.

    Scores are larger by the root of 3, and errors of rates with them. What takes scores for information believes that
    they are smaller by it.
    """
    rng = np.random.default_rng(2)
    hidden = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Poisson([1.0, 2.0])).sample(40_000, rng)[1]
    X = rng.negative_binomial(np.array([4.0, 40.0])[hidden], 1.0 / 3.0).astype(float)
    hmm = OnlineHMM(
        init=HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Poisson([6.0, 70.0])), averaging="refined"
    ).partial_fit(X)
    factor = (hmm.standard_errors(robust=True)["rates"] / hmm.standard_errors_["rates"]).ravel()
    np.testing.assert_allclose(factor, 3.0, rtol=0.2)


def test_errors_before_there_is_a_second_stage_are_those_of_the_rows_so_far(X):
    hmm = OnlineHMM(init=START, averaging="refined").partial_fit(X[:800])
    assert (hmm.standard_errors_["means"] > 0.05).all()


@pytest.mark.parametrize("averaging", ["auto", "refined", None])
def test_an_estimator_without_errors_can_be_looked_at(averaging, X):
    hmm = OnlineHMM(init=START, averaging=averaging).partial_fit(X[:2])
    assert "OnlineHMM" in hmm._repr_html_()
    assert isinstance(inspect.getmembers(hmm), list)


def test_without_a_second_stage_one_is_told_what_to_do(X):
    with pytest.raises(ValueError, match=r"robust.*refined"):
        OnlineHMM(init=START, averaging=None).keep_journal().partial_fit(X[:100]).standard_errors(robust=True)
    with pytest.raises(ValueError, match=r"averaging=.auto.*keep_journal"):
        OnlineHMM(init=START, averaging=None).partial_fit(X[:100]).standard_errors_  # noqa: B018


@pytest.mark.parametrize("structure", list(models.STRUCTURES))
def test_derivatives_of_dwell_times_and_of_the_long_run(structure):
    model = models.make("poisson", structure)
    parameters = Parameters(model)
    directions = parameters.directions()
    step = 1e-6 * np.random.default_rng(1).standard_normal(directions.shape[1])
    ends = []
    for sign in (-1.0, 1.0):
        point = parameters.at(parameters.values + sign * directions @ step)
        moved = Parameters(HMM(model.startprob, point.transmat, point.emission, model.transition))
        ends.append({name: values for name, (values, _) in chain_values(moved).items()})
    for name, (_, slopes) in chain_values(parameters).items():
        np.testing.assert_allclose(
            slopes @ directions @ step, (ends[1][name] - ends[0][name]) / 2, rtol=1e-4, atol=1e-12
        )
