"""Step sizes."""

import models
import numpy as np
import pytest

from hmmstream import Constant, Harmonic, Learner, Polyak, Power, StatisticAverage, TwoPhase
from hmmstream.schedule import evaluate, sizes_of_each


@pytest.fixture
def harmonic():
    with pytest.warns(UserWarning, match="forgotten too slowly"):
        return Harmonic()


def test_schedules_compute_what_they_say(harmonic):
    for n in range(1, 50):
        assert Power(0.6)(n) == pytest.approx(n**-0.6, rel=1e-15)
        assert harmonic(n) == pytest.approx(1 / n, rel=1e-15)
        assert Constant(0.1)(n) == 0.1


def test_two_phases_as_printed_and_in_the_sane_variant():
    printed, sane = TwoPhase(as_printed=True), TwoPhase()
    for n in (1, 9_999, 10_000):
        assert printed(n) == sane(n) == 0.01
    for n in (10_001, 10_049, 10_050, 10_051, 20_000):
        assert printed(n) == pytest.approx(0.5 / (n - 10_000))
        assert sane(n) == pytest.approx(min(0.01, 0.5 / (n - 10_000)))


@pytest.mark.parametrize(
    "step", [Power(0.6), Power(0.77), TwoPhase(n0=50), TwoPhase(50, as_printed=True), Constant(0.03)], ids=repr
)
def test_the_compiled_formula_is_the_python_one(step):
    X = models.paper_model().sample(6000, 3)[0]  # long enough for the series that replaces powers at large n
    a, b = (Learner(models.paper_start(), step=one, averaging=None) for one in (step, lambda n: step(n)))
    a.learn(X)
    b.learn(X)
    np.testing.assert_allclose(a.vector, b.vector, rtol=1e-9, atol=1e-12)


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
        lambda: TwoPhase(n0=np.nan),
        lambda: TwoPhase(first=0),
        lambda: TwoPhase(scale=2),
        lambda: Learner(models.paper_start(), step=0.1),
        lambda: Learner(models.paper_start(), step="fast"),
        lambda: Learner(models.paper_start(), averaging="never"),
        lambda: Learner(models.paper_start(), averaging=Polyak(-1)),
        lambda: Learner(models.paper_start(), averaging=Polyak(np.nan)),
        lambda: Learner(models.paper_start(), averaging=Polyak("a")),
        lambda: Learner(models.paper_start(), averaging=Polyak(2**70)),
        lambda: Learner(models.paper_start(), n_min=-1),
        lambda: Learner(models.paper_start(), n_min="20"),
        lambda: Learner(models.paper_start(), n_min=2.7),
        lambda: Learner(models.paper_start(), update_every=np.inf),
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
        evaluate(lambda n: value if n == 5 else 0.5, np.arange(1, 10))


def test_step_sizes_of_streams_whose_times_lie_apart():
    times, stops = np.array([100, 0, 5, 103]), np.array([102, 7, 8, 110])
    for step in (Power(0.6), lambda n: float(n) ** -0.6):
        sizes, shifts = sizes_of_each(step, times, stops)
        assert len(sizes) == 8 + 2 + 7
        for time, stop, shift in zip(times, stops, shifts, strict=True):
            expected = [1.0 if n == 0 else n**-0.6 for n in range(time, stop)]
            np.testing.assert_allclose(sizes[time - shift : stop - shift], expected)


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


def test_a_schedule_of_a_users_own_may_derive_from_a_built_in_one():
    class Slow(Power):
        def __call__(self, n):
            return 0.1

    X = models.paper_model().sample(300, 5)[0]
    a, b = Learner(models.paper_start(), step=Slow()), Learner(models.paper_start(), step=lambda n: 0.1)
    a.learn(X)
    b.learn(X)
    np.testing.assert_array_equal(a.vector, b.vector)
