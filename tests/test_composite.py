"""Families made of families: mixed data, mixtures in each state, switching regressions."""

import models
import numpy as np
import pytest
import reference

from hmmstream import (
    HMM,
    BatchHMM,
    Bernoulli,
    Categorical,
    Exponential,
    Gaussian,
    GaussianMixture,
    Learner,
    LinearRegression,
    Poisson,
    StatisticAverage,
)
from hmmstream.emissions import FAMILIES, Independent

CHAIN = ([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
COVS = np.array(models.COVS[:2])
MEANS = np.array(models.MEANS[:2])
BELLS = GaussianMixture(
    2, "spherical", [[0.5, 0.5], [0.1, 0.9]], np.arange(8).reshape(2, 2, 2) / 3, [[1.0, 2.0], [0.5, 1.0]]
)


def assert_equals_its_twins(emission, X):
    """Densities, statistics, scores and M-step, as plain Python."""
    theta = emission.theta()
    S, expected = np.zeros((2, emission.n_components, emission.n_statistics))
    for y in X:
        for i in range(emission.n_components):
            log_density = emission.log_density(theta[i], y) + emission.shared_log_density(theta[0], y)
            log_density += np.log(emission.shared_density(theta[0], y))
            assert log_density == pytest.approx(reference.log_density(emission, i, y), rel=1e-10)
            s, gradient = np.empty(emission.n_statistics), np.empty(emission.n_parameters)
            emission.statistic(theta[i], y, s)
            emission.gradient(theta[i], s, gradient)
            np.testing.assert_allclose(gradient, reference.log_density_gradient(emission, i, y), rtol=1e-8, atol=1e-10)
            S[i] += s
            expected[i] += reference.statistic(emission, i, y)
    np.testing.assert_allclose(emission.uncentred(theta, S), expected, rtol=1e-10, atol=1e-10)
    emission.maximize(S, np.ones(len(S)), theta)
    emission.prepare(theta)
    again = reference.m_step(emission, expected)
    np.testing.assert_allclose(emission.with_theta(theta).rows(), again.rows(), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "emission",
    [
        Independent([Gaussian("tied", MEANS, COVS[0])]),
        Independent([Poisson([1.0, 5.0]), Gaussian("tied", MEANS, COVS[0]), Poisson([[2.0, 3.0], [1.0, 1.0]])]),
        Independent([Independent([Exponential([1.0, 5.0]), Bernoulli([0.2, 0.9])]), Gaussian("full", MEANS, COVS)]),
        Independent([Gaussian("tied", [0.0, 1.0], 2.0), BELLS]),
        BELLS,
        GaussianMixture(
            3,
            "full",
            [[0.5, 0.3, 0.2]] * 2,
            np.arange(12).reshape(2, 3, 2) / 4,
            COVS.repeat(3, axis=0).reshape(2, 3, 2, 2),
        ),
        LinearRegression(None, [2.0, -1.0], [0.0, 1.0], [0.5, 1.0]),
    ],
    ids=["one part", "same names", "nested", "mixture inside", "mixture", "full mixture", "one input"],
)
def test_families_equal_their_twins(emission):
    hmm = HMM(*CHAIN, emission)
    X = models.with_gaps(hmm.sample(60, 1)[0], 0.2)
    rows = [y for y in X if not reference.says_nothing(emission, y)]
    assert_equals_its_twins(emission, rows)


# --- mixed data -----------------------------------------------------------------------------------------------------


def test_values_are_called_as_in_the_parts_and_numbered_where_names_clash():
    parts = [Gaussian("diag", [0, 1], [1, 1]), Poisson([1, 5]), Gaussian("tied", [2, 3], 1)]
    mixed = Independent(parts)
    assert mixed.value_names == ("means_0", "covars_0", "rates", "means_2", "covars_2")
    np.testing.assert_array_equal(mixed.means_2, [[2], [3]])
    names = HMM(*CHAIN, mixed).parameter_names()
    assert names[2:] == [
        *("means_0[0, 0]", "means_0[1, 0]", "covars_0[0, 0]", "covars_0[1, 0]"),
        *("rates[0, 0]", "rates[1, 0]", "means_2[0, 0]", "means_2[1, 0]", "covars_2[0, 0]"),
    ]
    assert [type(part) for part in Independent([Independent(parts[:2]), parts[2]]).parts] == [*map(type, parts)]


def test_a_refused_value_is_explained_by_the_family_of_its_column():
    hmm = models.make("mixed")
    X = np.array([[-0.5, 2.0, 3.0, 1.0]] * 5)
    for column, value, message in [(1, 3.0, "Categorical expects one of the symbols 0"), (3, 0.5, "Poisson expects")]:
        bad = X.copy()
        bad[4, column] = value
        with pytest.raises(ValueError, match=rf"X\[4, {column}\] is {value}: {message}"):
            hmm.filter(bad)
    assert np.isfinite(hmm.log_likelihood(X))


def test_lists_that_make_no_sense_are_refused():
    for parts, n_features, message in [
        ([], None, "parts must be a list of emission families"),
        (["gaussian"], None, "parts must be a list of emission families"),
        ([Gaussian(), Poisson([1, 2])], None, "either all parts have values"),
        ([Poisson([1, 2, 3]), Poisson([1, 2])], None, "either all parts have values"),
        ([Gaussian(), Poisson()], [1], "n_features must hold the number of features of each part"),
        ([Gaussian(), Categorical(3)], [1, 2], "n_features must hold the number of features of each part"),
    ]:
        with pytest.raises(ValueError, match=message):
            Independent(parts, n_features)
    with pytest.raises(ValueError, match=r"X has 3 columns, but the parts .* describe 2: say how many"):
        BatchHMM(2, Independent([Gaussian(), Poisson()])).fit(np.ones((5, 3)))


def test_an_estimator_knows_whether_a_start_is_of_the_same_kind():
    start, X = models.make("mixed"), models.make("mixed").sample(3, 0)[0]
    same = Independent([Gaussian("tied"), Categorical(3), Poisson()], n_features=[1, 1, 2])
    np.testing.assert_array_equal(BatchHMM(3, same, init=start, n_iter=0).fit(X).rates_, start.emission.rates)
    for other in (
        Independent([Gaussian("tied"), Categorical(3), Poisson()]),
        Independent([Gaussian("diag"), Categorical(3), Poisson()], n_features=[1, 1, 2]),
        Independent([Gaussian("tied"), Categorical(4), Poisson()], n_features=[1, 1, 2]),
    ):
        with pytest.raises(ValueError, match="but init has"):
            BatchHMM(3, other, init=start).fit(X)


# --- mixtures -------------------------------------------------------------------------------------------------------


def test_a_component_without_weight_keeps_its_values_and_costs_nothing():
    world = models.make("gaussian-mixture")
    weights, means = world.emission.weights.copy(), world.emission.means.copy()
    weights[1], means[1, 0] = [0.0, 1.0], 1e6
    start = HMM(world.startprob, world.transmat, GaussianMixture(None, "diag", weights, means, world.emission.covars))
    alone = Gaussian("diag", means[1], world.emission.covars[1])
    y = np.array([0.5, -4.0])
    assert start.emission.log_density(start.emission.theta()[1], y) == alone.log_density(alone.theta()[1], y)
    model = BatchHMM(init=start, n_iter=3).fit(world.sample(300, 0)[0]).model_
    np.testing.assert_array_equal(model.emission.means[1, 0], 1e6)
    np.testing.assert_array_equal(model.emission.covars[1, 0], world.emission.covars[1, 0])
    assert (model.emission.means[1, 1] != means[1, 1]).all()


def test_components_keep_their_digits_far_from_the_origin():
    start, offset = models.rough_start("gaussian-mixture"), 1e8
    X = (models.make("gaussian-mixture").sample(5000, 0)[0] + offset) - offset  # both see the same numbers
    values = start.emission.weights, start.emission.means + offset, start.emission.covars
    near = Learner(start, n_min=400)
    far = Learner(HMM(start.startprob, start.transmat, GaussianMixture(None, "diag", *values)), n_min=400)
    near.learn(X)
    far.learn(X + offset)
    np.testing.assert_allclose(far.model.emission.means - offset, near.model.emission.means, atol=1e-5)
    np.testing.assert_allclose(far.model.emission.covars, near.model.emission.covars, rtol=1e-5)


def test_mixtures_are_registered_and_bad_values_refused():
    assert FAMILIES["gaussian_mixture"] is GaussianMixture
    assert repr(GaussianMixture(3)) == "GaussianMixture(3, 'diag')"
    for values, message in [
        ((0, "diag"), "n_mix must be a positive integer"),
        ((2, "tied"), "covariance must be one of"),
        ((2, "diag", [[0.5, 0.5]]), "give weights, means and covars"),
        ((3, "diag", [[0.5, 0.5]], [[0, 1]], [[1, 1]]), "2 columns, but n_mix is 3"),
        ((2, "diag", [[0.5, 0.6]], [[0, 1]], [[1, 1]]), "sum to 1"),
        ((2, "diag", [[0.5, 0.5]], [[0, 1, 2]], [[1, 1]]), "means must have shape"),
        ((2, "full", [[0.5, 0.5]], [[[0, 1], [2, 3]]], [[1, 1]]), r"covars must have shape \(1, 2, 2, 2\)"),
        ((2, "diag", [[0.5, 0.5]], [[0, 1]], [[1, -1]]), "positive definite"),
    ]:
        with pytest.raises(ValueError, match=message):
            GaussianMixture(*values)


# --- regressions ----------------------------------------------------------------------------------------------------


def m_step(X):
    """The regression of the last column on the others, by one M-step from a start that knows nothing of the data."""
    emission = LinearRegression(X.shape[1] - 1).sized(1, X.shape[1])
    theta = emission.theta()
    emission.limit(X, theta)
    S, s = np.zeros((1, emission.n_statistics)), np.empty(emission.n_statistics)
    for y in X:
        emission.statistic(theta[0], y, s)
        S += s / len(X)
    emission.maximize(S, np.ones(1), theta)
    emission.prepare(theta)
    return emission.with_theta(theta)


def test_one_state_is_least_squares_wherever_the_data_are():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(500, 2))
    y = 3.0 + inputs @ [2.0, -1.0] + 0.1 * rng.normal(size=500)
    for offset, scale in [(0.0, 1.0), (1e6, 1.0), (-1e4, 1e-5), (0.0, 1e8)]:
        x = offset + scale * inputs
        found = m_step(np.column_stack([x, y]))
        centred = x - x.mean(axis=0)
        slopes = np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0]
        np.testing.assert_allclose(found.coefficients[0], slopes, rtol=1e-6)
        assert found.variances[0] == pytest.approx(np.mean((y - y.mean() - centred @ slopes) ** 2), rel=1e-6)
        assert found.intercepts[0] == pytest.approx(y.mean() - x.mean(axis=0) @ slopes, rel=1e-6, abs=1e-6)


def test_inputs_far_from_the_origin_are_learned_from_as_well_as_others():
    start, offset = models.rough_start("linear-regression"), np.array([1e6, -1e6, 0.0])
    X = (models.make("linear-regression").sample(5000, 0)[0] + offset) - offset  # both see the same numbers
    values = start.emission.coefficients, start.emission.intercepts, start.emission.variances
    moved = LinearRegression(None, values[0], values[1] - values[0] @ offset[:2], values[2])
    starts = start, HMM(start.startprob, start.transmat, moved)
    near, far = (Learner(start, averaging=StatisticAverage()) for start in starts)
    near.learn(X)
    far.learn(X + offset)
    np.testing.assert_allclose(far.model.emission.coefficients, near.model.emission.coefficients, atol=1e-6)
    np.testing.assert_allclose(far.model.emission.variances, near.model.emission.variances, rtol=1e-6)
    np.testing.assert_allclose(far.model.transmat, near.model.transmat, atol=1e-6)


def test_collinear_and_constant_inputs_and_perfect_fits_break_nothing():
    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(2, 300))
    for inputs, y in [
        ((x, x), x + noise),
        ((x, 5.0 + 0.0 * x), x + noise),
        ((0.0 * x, 1e8 + 0.0 * x), noise),
        ((x, 2.0 * x), 3.0 * x),
        ((1e100 * x, 1e-100 * x), x + noise),
        ((x, x), 0.0 * x),
    ]:
        X = np.column_stack([*inputs, y])
        learner = Learner(models.rough_start("linear-regression"))
        learner.learn(X)
        assert np.isfinite(learner.vector).all()
        batch = BatchHMM(3, LinearRegression(2), n_iter=20, random_state=0).fit(X)
        for emission in (m_step(X), batch.model_.emission, learner.model.emission):
            assert np.isfinite(emission.rows()).all()
            assert (emission.variances > 0.0).all()
    assert m_step(np.column_stack([x, x, x])).coefficients.sum() == pytest.approx(1.0, abs=1e-5)


def test_responses_are_drawn_for_given_inputs():
    """Within 5 standard errors, for each state: fails in 1 of a million runs."""
    emission = models.FAMILIES["linear-regression"]
    inputs, states = np.tile([[1.0, 3.0]], (30_000, 1)), np.arange(30_000) % 3
    y = emission.sample_responses(inputs, states, random_state=0)
    for k in range(3):
        line = emission.intercepts[k] + emission.coefficients[k] @ [1.0, 3.0]
        assert abs(y[states == k].mean() - line) < 5 * np.sqrt(emission.variances[k] / 10_000)
    with pytest.raises(ValueError, match=r"inputs must have shape \(2, 2\)"):
        emission.sample_responses([[1.0], [2.0]], [0, 1])


def test_there_is_no_forecast_of_a_response_without_inputs():
    forecast = models.make("linear-regression").forecast(3)
    assert np.isnan(forecast.mean).all()
    assert np.isfinite(forecast.states).all()


def test_regressions_that_make_no_sense_are_refused():
    for values, message in [
        ((), "n_inputs must be a positive integer"),
        ((0,), "n_inputs must be a positive integer"),
        ((1, [1.0, 2.0]), "give coefficients, intercepts and variances"),
        ((2, [1.0, 2.0], [0, 0], [1, 1]), "1 columns, but n_inputs is 2"),
        ((1, [1.0, 2.0], [0], [1, 1]), r"intercepts must have shape \(2,\)"),
        ((1, [1.0, 2.0], [0, 0], [1, 0]), "variances must be positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            LinearRegression(*values)
    with pytest.raises(ValueError, match="X has 2 columns, but LinearRegression expects 2 input"):
        BatchHMM(2, LinearRegression(2)).fit(np.ones((5, 2)))


def test_gaps_in_one_part_leave_em_monotone():
    """A regression beside counts: rows that lack the one, the other, or both."""
    world = HMM(*CHAIN, Independent([LinearRegression(1, [2.0, -1.0], [0, 1], [0.5, 1]), Poisson([1, 5])]))
    X = models.with_gaps(world.sample(600, 2)[0], 0.3)
    hmm = BatchHMM(2, models.specification(world.emission), n_iter=60, tol=1e-8, random_state=0).fit(X)
    assert np.diff(hmm.history_).min() > -1e-9
    assert hmm.log_likelihood_ > world.log_likelihood(X) - 5.0
