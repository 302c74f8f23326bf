"""No data breaks the engine, and bad input changes nothing."""

import models
import numpy as np
import pytest

from hmmstream import (
    HMM,
    Categorical,
    Constant,
    Gaussian,
    Learner,
    Masked,
    Poisson,
    Power,
    StatisticAverage,
)
from hmmstream.recursions import online, rows


def learned(start, *chunks, **options):
    learner = Learner(start, **options)
    for chunk in chunks:
        learner.learn(chunk)
    return learner


def assert_sane(learner):
    """No NaN anywhere, and nothing infinite but a log-likelihood of minus infinity."""
    assert not np.isnan(learner.vector).any()
    assert np.isfinite(learner.state.theta).all()
    assert np.isfinite(learner.state.tau).all()
    for model in (learner.model, learner.last_model):
        np.testing.assert_allclose(model.transmat.sum(axis=1), 1.0, atol=1e-12)
    assert learner.filtered_proba.sum() == pytest.approx(1.0)


@pytest.fixture(scope="module")
def stream():
    return models.paper_model().sample(20_000, 31)[0]


@pytest.mark.parametrize("where", [0, 1, 30, 5000])
@pytest.mark.parametrize("size", [1e6, -1e6, 1e100, 1e300])
def test_an_outlier_neither_stops_the_stream_nor_leaves_a_nan(stream, where, size):
    X = stream.copy()
    X[where] = size
    learner = learned(models.paper_start(), X)
    assert_sane(learner)
    assert learner.n_samples_seen == len(X)


def test_an_early_outlier_is_forgotten(stream):
    X = stream.copy()
    X[0] = 1e8
    clean, hit = (learned(models.paper_start(), rows, averaging=StatisticAverage()) for rows in (stream, X))
    np.testing.assert_allclose(models.values(hit.model), models.values(clean.model), rtol=0.02, atol=0.001)


@pytest.mark.parametrize("family", ["gaussian-full", "gaussian-diag", "gaussian-spherical", "gaussian-tied"])
def test_outliers_in_several_dimensions(family):
    X = models.make(family).sample(2000, 1)[0]
    X[[3, 50, 1000], [0, 1, 0]] = [1e7, -1e200, 1e12]
    assert_sane(learned(models.rough_start(family), X))


def test_data_on_an_offset_of_1e8_is_learned_as_well_as_data_at_0(stream):
    start = models.paper_start()
    shifted = HMM(start.startprob, start.transmat, Gaussian("tied", start.emission.means + 1e8, start.emission.covars))
    offset = 1e8
    X = (stream + offset) - offset  # both see the same numbers
    at_0, at_1e8 = learned(start, X).model, learned(shifted, X + offset).model
    np.testing.assert_allclose(at_1e8.transmat, at_0.transmat, atol=1e-7)
    np.testing.assert_allclose(at_1e8.emission.means - offset, at_0.emission.means, atol=1e-7)
    np.testing.assert_allclose(at_1e8.emission.covars, at_0.emission.covars, rtol=1e-7)


@pytest.mark.parametrize("where", [2**14, 2**14 + 1, 300 * 64])
@pytest.mark.parametrize("size", [1e8, 1e12])
def test_a_huge_outlier_is_forgotten_digits_and_all(where, size):
    """Even one that comes just when the centres of the statistics move."""
    one = HMM([1.0], [[1.0]], Gaussian("diag", means=[0.0], covars=[1.0]))
    X = np.random.default_rng(5).normal(size=60_000)
    clean = learned(one, X, step=Constant(0.005)).last_model
    X[where] = size
    hit = learned(one, X, step=Constant(0.005)).last_model
    np.testing.assert_allclose(models.values(hit), models.values(clean), rtol=1e-6)


@pytest.mark.parametrize("jump", [1e6, 1e8, 1e9])
def test_a_level_that_jumps_far_is_followed_digits_and_all(jump):
    one = HMM([1.0], [[1.0]], Gaussian("diag", means=[0.0], covars=[1.0]))
    X = np.random.default_rng(6).normal(size=40_000)
    X[20_000:] = (X[20_000:] + jump) - jump  # what is left of the digits at that level
    stayed = learned(one, X, step=Constant(0.01)).last_model
    X[20_000:] += jump
    jumped = learned(one, X, step=Constant(0.01)).last_model
    np.testing.assert_allclose(jumped.emission.covars, stayed.emission.covars, rtol=1e-5)


def test_states_a_million_standard_deviations_apart_keep_their_variances():
    truth = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("diag", means=[1e8, 1e8 + 1e5], covars=[0.01, 0.04]))
    start = HMM([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], Gaussian("diag", means=[1e8 - 1, 1e8 + 1e5 + 1], covars=[1, 1]))
    model = learned(start, truth.sample(20_000, 3)[0]).model
    np.testing.assert_allclose(model.emission.covars[:, 0], [0.01, 0.04], rtol=0.1)


@pytest.mark.parametrize("value", [0.0, 5.0, -1e12, 1e-30])
def test_constant_data_is_survived_and_what_follows_is_learned(stream, value):
    learner = learned(models.paper_start(), np.full(5000, value))
    assert_sane(learner)
    assert learner.model.emission.covars.item() > 0.0
    learner.learn(stream)
    assert_sane(learner)
    assert learner.last_model.emission.covars.item() > 0.1


def test_duplicated_and_constant_columns_are_survived():
    x = np.random.default_rng(0).normal(size=(3000, 1))
    start = models.rough_start("gaussian-full")
    for X in (np.hstack([x, x]), np.hstack([x, 0 * x]), np.zeros((3000, 2))):
        learner = learned(start, X)
        assert_sane(learner)
        assert (np.linalg.eigvalsh(learner.model.emission.covars) > 0.0).all()


def test_no_variance_falls_below_a_floor_relative_to_the_data():
    X = np.random.default_rng(1).choice([0.0, 1000.0], size=5000)  # no noise at all
    start = HMM([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], Gaussian("diag", means=[100.0, 800.0], covars=[1e4, 1e4]))
    model = learned(start, X).model
    np.testing.assert_allclose(model.emission.means[:, 0], [0.0, 1000.0], atol=1e-6)
    assert (model.emission.covars > 1e-13 * X.var()).all()
    assert (model.emission.covars < 1e-11 * X.var()).all()


def test_an_observation_impossible_in_every_state_tells_nothing_about_the_state():
    probs = [[0.5, 0.4, 0.1, 0.0], [0.1, 0.8, 0.1, 0.0], [0.2, 0.2, 0.6, 0.0]]
    start = HMM([0.6, 0.3, 0.1], models.make("categorical").transmat, Categorical(probs=probs))
    learner = learned(start, [0, 1, 0])
    before = learner.filtered_proba
    learner.learn_one(3)
    np.testing.assert_allclose(learner.filtered_proba, before @ start.transmat, rtol=1e-12)
    assert learner.log_likelihood == -np.inf
    learner.learn(np.tile([0, 1, 3], 50))  # and it is learned all the same
    assert_sane(learner)
    assert (learner.last_model.emission.probs[:, 3] > 0.1).all()


def test_a_start_that_is_all_but_impossible_leaves_no_nan():
    start = HMM([1e-310, 0.5, 0.5], models.make("poisson").transmat, Poisson([1e5, 0.0, 0.0]))
    learner = learned(start, [100_000, 0, 1])
    assert_sane(learner)


def test_what_only_an_unreachable_state_explains_is_not_impossible():
    """A chain that never moves: the reachable state's density underflows, the unreachable one's does not."""
    start = HMM(
        [1.0, 0.0, 0.0],
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        Gaussian("tied", means=[0.0, 1000.0, 2000.0], covars=1.0),
        Masked.banded(3),
    )
    learner = learned(start, [0.0, 1000.0])
    np.testing.assert_array_equal(learner.filtered_proba, [1.0, 0.0, 0.0])
    assert learner.log_likelihood == pytest.approx(-np.log(2 * np.pi) - 1000.0**2 / 2)


@pytest.mark.parametrize("family", sorted(models.FAMILIES))
def test_a_missing_row_moves_the_chain_on_and_teaches_nothing(family):
    hmm = models.make(family)
    learner = learned(models.rough_start(family), hmm.sample(500, 5)[0])
    before, model, log_likelihood = learner.filtered_proba, learner.model, learner.log_likelihood
    learner.learn_one(np.full(hmm.n_features, np.nan))
    np.testing.assert_allclose(learner.filtered_proba, before @ learner.last_model.transmat, rtol=1e-12)
    learner.learn(np.full((500, hmm.n_features), np.nan))
    np.testing.assert_array_equal(models.values(learner.model), models.values(model))
    assert learner.log_likelihood == pytest.approx(log_likelihood, abs=1e-9)
    assert learner.n_samples_seen == 1001


def test_a_stream_that_begins_with_missing_rows_is_learned_as_if_they_were_not_there():
    hmm = models.make("gaussian-paper", "independent")
    X = hmm.sample(3000, 6)[0]
    start = models.rough_start("gaussian-paper", "independent")
    start = HMM(start.transmat[0], start.transmat, start.emission, start.transition)
    gap = learned(start, np.full(10_000, np.nan), X).last_model
    np.testing.assert_allclose(models.values(gap), models.values(learned(start, X).last_model), rtol=1e-9)


def test_features_are_missing_one_by_one_where_the_family_factorises():
    hmm = models.make("gaussian-diag")
    learner = learned(hmm, hmm.sample(100, 7)[0])
    mean_before = learner.last_model.emission.means.copy()
    learner.learn([[np.nan, 0.3]] * 5)
    moved = learner.last_model.emission.means - mean_before
    assert abs(moved[:, 1]).max() > 10 * abs(moved[:, 0]).max()


@pytest.mark.parametrize("family", ["gaussian-full", "gaussian-tied"])
def test_gaps_in_features_that_determine_each_other_leave_no_nan(family):
    x = np.random.default_rng(3).normal(size=(2000, 1))
    for X in (np.hstack([x, -2 * x]), np.hstack([1e12 * x, 0 * x]), 1e140 * np.hstack([x, x**3])):
        assert_sane(learned(models.rough_start(family), models.with_gaps(X, 0.3)))


@pytest.mark.parametrize(
    ("family", "bad", "why"),
    [
        ("gaussian-diag", np.inf, "finite"),
        ("gaussian-diag", -np.inf, "finite"),
        ("poisson", -1, "a count"),
        ("poisson", 0.5, "a count"),
        ("exponential", -0.1, "not negative"),
        ("bernoulli", 2, "0 or 1"),
        ("categorical", 4, "0, 1, …, 3"),
        ("categorical", -1, "0, 1, …, 3"),
    ],
)
def test_a_refused_chunk_names_row_and_column_and_changes_nothing(family, bad, why):
    hmm = models.make(family)
    learner = Learner(hmm)
    learner.learn(np.ones((50, hmm.n_features)))
    before = learner.vector.copy()
    X = np.ones((100, hmm.n_features))
    X[70, -1] = bad
    with pytest.raises(ValueError, match=rf"X\[70, {hmm.n_features - 1}\] is {bad}.*{why}"):
        learner.learn(X)
    with pytest.raises(ValueError, match=why):
        learner.learn(X, lengths=[60, 40])
    with pytest.raises(ValueError, match=why):
        learner.follow(X)
    with pytest.raises(ValueError, match=why):
        learner.learn_one(X[70])
    np.testing.assert_array_equal(learner.vector, before)


def test_the_first_refused_value_is_found_wherever_it_stands():
    """Values are looked at many at a time, up to rows.PATCH rows."""
    rng = np.random.default_rng(0)
    family = Poisson([[1.0, 2.0], [6.0, 2.0]])
    for n in (1, rows.PATCH - 1, rows.PATCH, rows.PATCH + 1, 5 * rows.PATCH + 3):
        X = rng.poisson(2.0, (n, 2)).astype(float)
        X[rng.random((n, 2)) < 0.1] = np.nan
        assert rows.check(family, X) == rows.ACCEPTED
        for place in range(2 * n):
            other = X.copy()
            other.flat[place:] = rng.choice([-1.0, 0.5, np.inf, -np.inf], 2 * n - place)
            assert rows.check(family, other) == place


@pytest.mark.parametrize(
    "X",
    [
        np.ones((5, 2)),
        np.ones((5, 1, 1)),
        3.0,
        [["a"]],
        ["1.5"],
        [None, object()],
        [10**400],
        [1j],
        np.array(["2026-11-15"], dtype="datetime64[D]"),
    ],
)
def test_what_is_not_a_record_of_the_right_shape_is_refused(X):
    learner = Learner(models.paper_start())
    with pytest.raises(ValueError, match="X must"):
        learner.learn(X)
    assert learner.n_samples_seen == 0


def test_rows_that_are_marked_as_read_only_are_compiled_for_like_others(stream):
    X, marked = stream[:100], stream[:100].copy()
    marked.flags.writeable = False
    weights = np.full(100, 0.5)
    a, b = (Learner(models.paper_start()) for _ in range(2))
    a.learn(X, weights=weights)
    expected = models.paper_start().log_likelihood(X)
    n_compiled = [len(loop.signatures) for loop in (online.learn, rows.check, rows.densities)]
    b.learn(marked, weights=weights)
    assert models.paper_start().log_likelihood(marked) == expected
    assert [len(loop.signatures) for loop in (online.learn, rows.check, rows.densities)] == n_compiled
    np.testing.assert_array_equal(b.vector, a.vector)
    assert not marked.flags.writeable


def test_masked_and_none_are_missing(stream):
    X = stream[:100].copy()
    X[10:20] = np.nan
    masked = np.ma.masked_invalid(X)
    nones = [None if np.isnan(x) else x for x in X[:, 0]]
    expected = learned(models.paper_start(), X).vector
    np.testing.assert_array_equal(learned(models.paper_start(), masked).vector, expected)
    np.testing.assert_array_equal(learned(models.paper_start(), nones).vector, expected)


def test_a_step_is_not_asked_for_where_there_is_nothing_to_learn():
    X = [1.0, np.nan, np.nan, np.nan, 2.0]
    learner = learned(models.paper_start(), X, step=lambda n: {1: 0.5}[n])
    assert learner.n_samples_seen == 5


@pytest.mark.parametrize("lengths", [[3], [5, 6], [0, 10], [-1, 11], [[10]], [2.5, 7.5]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    learner = Learner(models.paper_start())
    with pytest.raises(ValueError, match="lengths must be"):
        learner.learn(np.ones(10), lengths)
    assert learner.n_samples_seen == 0


def test_a_bad_step_is_refused_before_anything_is_learned():
    learner = Learner(models.paper_start(), step=lambda n: 0.1 if n < 50 else 1.5)
    with pytest.raises(ValueError, match=r"step\(50\) is 1.5"):
        learner.learn(np.ones(60))
    assert learner.n_samples_seen == 0


def test_a_state_that_dies_keeps_its_parameters_and_comes_back():
    start = HMM([0.5, 0.5], [[0.99, 0.01], [0.01, 0.99]], Gaussian("diag", means=[0.0, 10.0], covars=[1.0, 1.0]))
    rng = np.random.default_rng(8)
    learner = learned(start, rng.normal(size=100_000))
    assert learner.state.alive[1] <= 0.0
    for model in (learner.model, learner.last_model):
        assert model.emission.means[1, 0] == 10.0
        assert model.emission.covars[1, 0] == 1.0
        assert model.transmat[1].tolist() == [0.01, 0.99]
    learner.learn(10.5 + rng.normal(size=4))
    for model in (learner.model, learner.last_model):  # four visits do not outweigh what was known
        assert model.emission.means[1, 0] == 10.0
        assert model.emission.covars[1, 0] == 1.0
    proba = learner.follow(10.5 + rng.normal(size=400))
    assert (proba[5:, 1] > 0.99).all()
    assert learner.state.alive.tolist() == [1.0, 1.0]
    assert learner.last_model.emission.means[1, 0] == pytest.approx(10.5, abs=0.4)  # 4 standard errors
    assert learner.last_model.emission.covars[1, 0] == pytest.approx(1.0, abs=0.5)
    assert learner.last_model.emission.means[0, 0] == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("update_every", [1, 50])
@pytest.mark.parametrize("step", [Power(0.6), Constant(0.2), Constant(0.02)], ids=repr)
def test_a_state_comes_back_with_any_step(step, update_every):
    start = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Gaussian("diag", means=[0.0, 50.0], covars=[1.0, 1.0]))
    rng = np.random.default_rng(9)
    learner = learned(start, rng.normal(size=60_000), step=step, update_every=update_every)
    assert learner.state.alive[1] <= 0.0
    X = rng.normal(size=3000)
    X[::3] += 60.0
    learner.learn(X[:200])
    assert learner.state.alive[1] > 0.0
    learner.learn(X[200:])
    assert learner.last_model.emission.means[1, 0] == pytest.approx(60.0, abs=3.0)


def test_a_dead_state_keeps_its_covariance_while_the_scale_of_the_data_grows():
    levels = Gaussian("full", means=[[0, 0], [1e6, 1e6], [-1e6, 1e6]], covars=[np.eye(2)] * 3)
    start = HMM([0.8, 0.1, 0.1], models.make("gaussian-full").transmat, levels)
    X = np.random.default_rng(10).normal(size=(20_000, 2))
    model = learned(start, X * 1e-3, X * 1e8, step=Constant(0.01)).last_model
    np.testing.assert_array_equal(model.emission.covars[1:], [np.eye(2)] * 2)


@pytest.mark.parametrize("X", [[], np.empty((0, 1))])
def test_an_empty_chunk_is_no_observation(X):
    learner = learned(models.paper_start(), X)
    assert learner.n_samples_seen == 0
    assert learner.follow(X).shape == (0, 2)
