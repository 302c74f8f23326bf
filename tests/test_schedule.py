"""Step sizes."""

import numpy as np
import pytest

import models
from hmmstream import Constant, Harmonic, Learner, Polyak, Power, StatisticAverage, TwoPhase
from hmmstream.schedule import steps_between


@pytest.fixture
def harmonic():
    with pytest.warns(UserWarning, match="forgotten too slowly"):
        return Harmonic()


def test_schedules_compute_what_they_say(harmonic):
    n = np.arange(1, 50)
    np.testing.assert_allclose(steps_between(Power(0.6), 1, 50), n**-0.6)
    np.testing.assert_allclose(steps_between(harmonic, 1, 50), 1 / n)
    np.testing.assert_array_equal(steps_between(Constant(0.1), 1, 50), np.full(49, 0.1))


def test_two_phases_as_printed_and_in_the_sane_variant():
    n = np.arange(9_998, 10_100)
    after = 0.5 / np.maximum(n - 10_000, 1)
    printed = np.where(n <= 10_000, 0.01, after)
    np.testing.assert_allclose(steps_between(TwoPhase(as_printed=True), 9_998, 10_100), printed)
    sane = np.where(n <= 10_000, 0.01, np.minimum(after, 0.01))
    np.testing.assert_allclose(steps_between(TwoPhase(), 9_998, 10_100), sane)
    assert steps_between(TwoPhase(), 1, 2)[0] == 0.01


@pytest.mark.parametrize("step", [Power(0.6), Power(0.77), TwoPhase(n0=500), Constant(0.03)])
def test_a_step_does_not_depend_on_what_else_is_asked_for(step):
    whole = steps_between(step, 0, 5000)
    for start, stop in [(0, 1), (1, 2), (1023, 1026), (17, 4001), (4999, 5000), (2048, 2048)]:
        np.testing.assert_array_equal(steps_between(step, start, stop), whole[start:stop])


@pytest.mark.parametrize("alpha", [0.5, 0.0, -1, 1.01, np.nan])
def test_exponents_without_convergence_are_refused(alpha):
    with pytest.raises(ValueError, match="alpha must lie in"):
        Power(alpha)


@pytest.mark.parametrize("alpha", [0.81, 0.9, 1.0])
def test_fast_decay_is_warned_about_with_the_reason_of_the_paper(alpha):
    with pytest.warns(UserWarning, match="perform very poorly"):
        Power(alpha)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(0.0),
        lambda: Constant(1.1),
        lambda: TwoPhase(n0=-1),
        lambda: TwoPhase(first=0),
        lambda: TwoPhase(scale=2),
        lambda: Learner(models.paper_start(), step=0.1),
        lambda: Learner(models.paper_start(), step="fast"),
        lambda: Learner(models.paper_start(), averaging="never"),
        lambda: Learner(models.paper_start(), averaging=Polyak(-1)),
        lambda: Learner(models.paper_start(), n_min=-1),
        lambda: Learner(models.paper_start(), n_min=np.nan),
        lambda: Learner(models.paper_start(), update_every=0),
        lambda: Learner(models.paper_start(), update_every=1.5),
        lambda: Learner("gaussian"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match=r"must|cannot|need"):
        make()


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, np.nan, np.inf])
def test_values_of_a_python_function_are_checked(value):
    with pytest.raises(ValueError, match=r"step\(5\) is"):
        steps_between(lambda n: value if n == 5 else 0.5, 1, 10)


def test_schedules_are_values():
    assert Power(0.6) == Power(0.6)
    assert Power(0.6) != Power(0.7)
    assert hash(TwoPhase()) == hash(TwoPhase())
    assert repr(Power(0.6)) == "Power(alpha=0.6)"


def test_averaging_by_name_and_by_object_are_the_same():
    X = models.paper_model().sample(300, 1)[0]
    by_name, by_object = Learner(models.paper_start()), Learner(models.paper_start(), averaging=StatisticAverage())
    by_name.learn(X)
    by_object.learn(X)
    np.testing.assert_array_equal(by_name.vector, by_object.vector)


def test_without_averaging_the_raw_iterate_is_reported():
    learner = Learner(models.paper_start(), averaging=None)
    learner.learn(models.paper_model().sample(300, 2)[0])
    np.testing.assert_array_equal(models.values(learner.model), models.values(learner.last_model))
