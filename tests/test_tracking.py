"""Worlds that change: steps that forget, and a watch that notices."""

import math
import pickle

import models
import numpy as np
import pytest

import hmmstream
from benchmarks import tracking
from hmmstream import Fleet, Learner, OnlineHMM, Track
from hmmstream.detection import BLOCK, FEWEST, LEAST_SHARE, Detector, share_below, threshold_for
from hmmstream.record import Record

PAPER = tracking.WORLDS["the paper's"]
CHANGED = hmmstream.HMM(PAPER.startprob, PAPER.transmat, tracking.JUMPS["the paper's"])


@pytest.mark.parametrize("memory", [1, 10, 999, 10**6, 1e300])
def test_steps_become_smaller_until_they_are_what_is_remembered_by(memory):
    step = Track(memory)
    n = np.unique(np.logspace(0, 9, 1_000).astype(int)).astype(float)
    steps = step.at(n)
    np.testing.assert_allclose(steps, [step(int(one)) for one in n])
    assert steps[0] == 1.0
    assert (np.diff(steps) <= 0.0).all()
    assert step.memory == memory
    if memory < 1e9:
        assert steps[-1] == 2.0 / (memory + 1.0)
        assert steps[steps > steps[-1]].min(initial=1.0) < 1.1 * steps[-1]  # with no jump
    again = pickle.loads(pickle.dumps(step))
    assert (again.memory, again) == (memory, step)
    before = Track.__new__(Track)  # a pickle from when the step was n^-0.6 up to n = memory
    numbers = (0, 1.0, 1.0, 0.6, 1.0, memory, 2.0 / (memory + 1.0))
    before.__setstate__({"_numbers": numbers, "alarm_every": 1e6, "restart": True})
    assert before == step


def test_steps_that_track_are_those_of_a_function():
    learner, alone = Learner(PAPER, step=Track(300, math.inf)), Learner(PAPER, step=lambda n: Track(300)(n))
    X = PAPER.sample(1_000, 0)[0]
    learner.learn(X)
    alone.learn(X)
    np.testing.assert_allclose(learner.last_model.transmat, alone.last_model.transmat, rtol=1e-9)


def test_false_alarms_come_as_often_as_asked_for():
    """More than 200 in 40 runs, so that the rate is known to 7 %: three times this is allowed."""
    found = tracking.false_alarms(PAPER, 1_000, 5_000, 55_000, 40)
    assert found.n > 200
    assert 5_000 / 1.23 < found.every < 5_000 * 1.23


def test_values_below_all_others_are_told_apart():
    others = -np.random.default_rng(0).exponential(size=1_000)
    assert share_below(-0.5, others) == pytest.approx(np.exp(-0.5), rel=0.1)
    assert share_below(others.min() - 1.0, others) == pytest.approx(np.exp(-1.0) / 1_001, rel=0.2)
    assert share_below(-100.0, others) == LEAST_SHARE
    assert share_below(-0.3 - 1e-9, np.full(100, -0.3)) == 0.5  # rounding
    assert share_below(-0.3 - 1e-3, np.full(100, -0.3)) == LEAST_SHARE
    assert share_below(0.0, np.zeros(50)) == 0.5
    often = np.where(np.arange(1_000) % 40 == 0, -1.0, 0.0)  # what is seen often is no surprise
    assert share_below(-1.0, often) == pytest.approx(12.5 / 1_000, rel=0.1)


@pytest.mark.parametrize("value", [0.6, 1.7, 0.0])
def test_constant_data_do_no_harm(value):
    learner = Learner(PAPER, step=Track(200, restart=False))
    learner.learn(np.full((40_000, 1), value))
    assert math.isfinite(learner.detector.excess)


@pytest.mark.parametrize("row", [100, 1_500, 6_000])
def test_one_outlier_is_no_alarm_and_hides_none(row):
    X = np.concatenate([PAPER.sample(9_000, 0)[0], CHANGED.sample(1_000, 1)[0]])
    X[row] = 1e5
    learner = Learner(PAPER, step=Track(500, restart=False), n_min=1_000_000)
    learner.learn(X)
    (change,) = learner.changes
    assert 9_000 < change.at < 10_000
    X[row] = 1e80  # beside its log-likelihood no other is seen
    learner.reset()
    learner.learn(X)
    assert learner.changes == []


@pytest.mark.parametrize("memory", [100, 1_000])
def test_states_in_another_order_make_no_difference(memory):
    world = tracking.WORLDS["slowly mixing"]
    X = world.sample(20_000, 1)[0]
    one, other = (Learner(world, step=Track(memory, 5_000, restart=False), n_min=500) for _ in range(2))
    for learner in (one, other):
        learner.learn(X[:8_010])
    other.relabel([1, 0])
    for learner in (one, other):
        learner.learn(X[8_010:])
    assert one.changes == other.changes
    assert one.detector.excess == pytest.approx(other.detector.excess)


def test_features_may_join_while_the_watch_gathers(tmp_path):
    before = models.make("poisson")
    after = hmmstream.HMM(before.startprob, before.transmat, hmmstream.Poisson([4.0, 15.0, 40.0]))
    X = np.concatenate([before.sample(9_000, 0)[0], after.sample(3_000, 1)[0]])
    hmm = OnlineHMM(init=before, step=Track(5_000)).partial_fit(X[:9_400])
    assert hmm.changed_
    hmm.add_features(hmmstream.Poisson([1.0, 2.0, 3.0]))
    hmm.save(tmp_path / "model.hmm")
    more = np.column_stack([X[9_400:], np.random.default_rng(0).poisson(1.0, len(X) - 9_400)])
    for model in (hmm, hmmstream.load(tmp_path / "model.hmm")):
        model.partial_fit(more)
        assert model.n_samples_seen_ == len(X)


@pytest.mark.parametrize("level", [0.0, 8.0])
def test_the_watch_alone_alarms_as_often_as_asked_for(level):
    """On noise, which states that last four blocks may raise: with 200 alarms an error of 7 %, 21 % are allowed."""
    rng = np.random.default_rng(0)
    detector, log_likelihood, watched, state = Detector(0, 100 * BLOCK, 1, 2), 0.0, 0, 0
    nothing = Record(np.zeros((BLOCK, 1)), np.zeros(BLOCK, dtype=bool))
    detector.work(0, 0.0, np.eye(2)[state])
    for n_seen in range(BLOCK, 26_001 * BLOCK, BLOCK):
        watched += len(detector.earlier) >= FEWEST
        begun_in, state = state, 1 - state if rng.random() < 0.25 else state
        log_likelihood += rng.normal() + level * (rng.random() if state != begun_in else state)
        detector.take(nothing, BLOCK)
        if detector.work(n_seen, log_likelihood, np.eye(2)[state]):
            detector.work(n_seen, log_likelihood, np.eye(2)[state])
    assert watched / len(detector.changes) == pytest.approx(100, rel=0.21)
    assert threshold_for(math.inf) == math.inf


def test_a_jump_is_noticed_and_followed():
    found = tracking.jumps("the paper's", 5_000, 1e6, 6)
    assert found.missed == 0
    assert np.median(found.delays) < 1_000
    assert found.left < 0.2


@pytest.mark.parametrize("engine", ["dense", "window"])
def test_after_a_jump_that_leaves_one_state_for_both_the_other_is_found_again(engine):
    """The new means are both nearest to the old one of the second state, which takes all rows."""
    moved = hmmstream.HMM(PAPER.startprob, PAPER.transmat, hmmstream.Gaussian("tied", [2.0, 3.0], 0.5))
    X = np.concatenate([PAPER.sample(14_000, 0)[0], moved.sample(4_000, 1)[0]])
    for order in ([0, 1], [1, 0]):
        learner = Learner(PAPER.relabel(order), step=Track(4_000), engine=engine)
        learner.learn(X)
        assert learner.n_samples_seen == len(X)
        np.testing.assert_allclose(learner.model.emission.means[order, 0], [2.0, 3.0], atol=0.4)
        stuck = Learner(PAPER.relabel(order), step=Track(4_000, restart=False), engine=engine)
        stuck.learn(X)
        assert abs(stuck.model.emission.means[order[0], 0] - 2.0) > 0.8


def test_changes_are_told_with_their_times():
    X = np.concatenate([PAPER.sample(9_000, 0)[0], CHANGED.sample(4_000, 1)[0]])
    hmm = OnlineHMM(init=PAPER, step=Track(2_000)).partial_fit(X)
    (change,) = hmm.changed_
    assert 9_000 < change.at < 10_500
    assert 6_000 < change.since <= change.at
    calm = OnlineHMM(init=PAPER, step=Track(2_000, restart=False)).partial_fit(X)
    assert calm.changed_ == hmm.changed_
    assert abs(calm.means_ - hmm.means_).max() > 1e-3
    assert OnlineHMM(init=PAPER).partial_fit(X[:10]).changed_ == []
    assert repr(OnlineHMM(init=PAPER, step="track").partial_fit(X[:10])._learner.step) == repr(Track())


def test_rows_in_which_nothing_was_seen_are_not_judged():
    """They fit like no others; those that were ranked among them all would not be found to be worse."""
    rows = PAPER.sample(9_000, 0)[0], np.full((2_000, 1), np.nan), CHANGED.sample(4_000, 1)[0]
    (seen,) = OnlineHMM(init=PAPER, step=Track(2_000)).partial_fit(np.concatenate(rows[::2])).changed_
    (after_gap,) = OnlineHMM(init=PAPER, step=Track(2_000)).partial_fit(np.concatenate(rows)).changed_
    assert after_gap.at - 2_000 == pytest.approx(seen.at, abs=64)
    X = np.concatenate(rows)
    X[np.arange(len(X)) % 65 == 64] = np.nan  # right behind a block
    whole = OnlineHMM(init=PAPER, step=Track(2_000)).partial_fit(X)
    pieces = OnlineHMM(init=PAPER, step=Track(2_000))
    for piece in np.array_split(X, 400):
        pieces.partial_fit(piece)
    assert whole.changed_ == pieces.changed_ != []
    for name, value in whole._learner.detector.document().items():
        np.testing.assert_array_equal(pieces._learner.detector.document()[name], value)


def test_what_was_seen_is_for_the_family_to_say():
    X = np.array([[1.0, 2.0, 1.0], [np.nan, 2.0, 1.0], [4.0, 0.0, 0.0]])
    learner = Learner(models.make("multinomial"), step=Track(1))
    learner.learn(X[:2])  # the first is not watched
    assert learner.detector.n_waiting == 0  # a part of the counts says nothing
    learner.learn(X[2:])
    assert learner.detector.n_waiting == 1


def test_chunks_do_not_matter_and_what_is_saved_goes_on(tmp_path):
    X = np.concatenate([PAPER.sample(8_000, 2)[0], CHANGED.sample(2_000, 3)[0]])
    whole = OnlineHMM(init=PAPER, step=Track(2_000)).partial_fit(X)
    pieces = OnlineHMM(init=PAPER, step=Track(2_000))
    for first, stop in ((0, 1), (1, 100), (100, 5_001), (5_001, 8_100)):
        pieces.partial_fit(X[first:stop])
    pieces.save(tmp_path / "model.hmm")
    for again in (hmmstream.load(tmp_path / "model.hmm"), pickle.loads(pickle.dumps(pieces)), pieces):
        again.partial_fit(X[8_100:])
        np.testing.assert_array_equal(again.transmat_, whole.transmat_)
        assert again.changed_ == whole.changed_ != []


def test_a_watch_of_before_states_were_looked_at_begins_anew():
    X = np.concatenate([PAPER.sample(8_000, 2)[0], CHANGED.sample(2_000, 3)[0]])
    learner = Learner(PAPER, step=Track(2_000))
    learner.learn(X)
    document = {name: value for name, value in learner.detector.document().items() if name != "began_in"}
    fresh = Learner(PAPER, step=Track(2_000)).detector
    fresh.restore({**document, "earlier": document["earlier"][:, 0]})
    del learner.detector.began_in
    for detector in (fresh, pickle.loads(pickle.dumps(learner)).detector):
        assert detector.changes == learner.changes != []
        assert detector.earlier.shape == (0, 3)
        assert detector.n_idle == 2_000
    assert fresh.n_gathered == learner.detector.n_gathered


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("began_in", np.zeros(3)),
        ("began_in", np.array([np.nan, 1.0])),
        ("began_in", np.array([7.0, -6.0])),
        ("earlier", np.zeros((5, 2))),
        ("earlier", np.zeros((2_000, 3))),
        ("earlier", np.full((5, 3), np.inf)),
        ("changes", np.zeros((1, 2))),
        ("X", np.full((512, 1), np.inf)),
        ("is_start", np.zeros(5, dtype=bool)),
        ("n_waiting", 65),
        ("n_idle", -1),
        ("n_worse", 0.5),
        ("excess", math.nan),
    ],
)
def test_a_watch_that_does_not_fit_is_refused(name, value):
    detector = Learner(PAPER, step=Track(2_000)).detector
    with pytest.raises(ValueError, match="its watch"):
        detector.restore({**detector.document(), name: value})


def test_rows_without_learning_are_of_no_block():
    X = PAPER.sample(6_000, 4)[0]
    learner = Learner(PAPER, step=Track(500))
    learner.learn(X[:4_000])
    n_blocks = len(learner.detector.earlier)
    learner.freeze()
    learner.learn(X[:700] + 5.0)
    learner.unfreeze()
    assert len(learner.detector.earlier) == n_blocks
    before = learner.log_likelihood
    learner.learn(X[4_000 : 4_000 + BLOCK])
    assert len(learner.detector.earlier) == n_blocks + 1
    assert learner.detector.earlier[-1, 0] == learner.log_likelihood - before


def test_a_model_that_finds_its_own_start_can_track():
    X = np.concatenate([PAPER.sample(14_000, 5)[0], CHANGED.sample(1_500, 6)[0] + 4.0])
    hmm = OnlineHMM(2, hmmstream.Gaussian("tied"), step=Track(1_000), random_state=0)
    assert [change.at > 14_000 for change in hmm.partial_fit(X).changed_] == [True]


def test_what_is_no_memory_is_refused():
    for arguments in ({"memory": 0}, {"memory": math.inf}, {"alarm_every": 0.0}):
        with pytest.raises(ValueError, match="must be a number of observations"):
            Track(**arguments)
    with pytest.raises(ValueError, match="step must be 'track'"):
        Learner(PAPER, step="power")
    with pytest.raises(ValueError, match="a fleet watches for no changes"):
        Fleet(init=PAPER, step="track")
