"""Scores, information and standard errors: equal to enumeration, to the twin, and to differences of the likelihood."""

from functools import partial

import models
import numpy as np
import pytest
import reference

from hmmstream import (
    HMM,
    BatchHMM,
    Categorical,
    Gaussian,
    Independent,
    IndependentFeatures,
    Masked,
    Poisson,
    Tied,
)
from hmmstream.parameters import Parameters
from hmmstream.recursions import products

TOLERANCE = 1e-10


def by_free_parameters(hmm, by_cell):
    """From derivatives by the cells of q and of the emission's rows to those by the free parameters: the chain rule.

    Written with differences of the model's values, which are linear in the parameters: exact to rounding.
    """
    parameters = Parameters(hmm)
    values = parameters.values
    columns = []
    for direction in parameters.directions().T:
        moved = parameters.at(values + direction)
        cells = np.concatenate([(moved.transmat - hmm.transmat).ravel()])
        emission_rows = (moved.emission.rows() - hmm.emission.rows()).ravel()
        columns.append(np.concatenate([cells, emission_rows]))
    return by_cell @ np.array(columns).T


@pytest.mark.parametrize(("family", "structure"), models.ALL)
@pytest.mark.parametrize("gaps", [0.0, 0.3], ids=["complete", "gaps"])
def test_the_score_equals_the_mean_over_all_paths(family, structure, gaps):
    hmm = models.make(family, structure)
    X = models.with_gaps(hmm.sample(6, 2)[0], gaps, 2)
    expected = by_free_parameters(hmm, reference.enumerate_score(hmm, X))
    np.testing.assert_allclose(hmm.score_vector(X), expected, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(hmm.score_increments(X).sum(axis=0), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("family", "structure"), models.ALL)
def test_increments_equal_the_twin_on_a_long_record_and_sum_to_the_score(family, structure):
    hmm = models.make(family, structure)
    X = models.with_gaps(hmm.sample(300, 3)[0], 0.1)
    increments = hmm.score_increments(X)
    expected = by_free_parameters(hmm, reference.tangent_filter(hmm, X))
    np.testing.assert_allclose(increments, expected, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(hmm.score_vector(X), increments.sum(axis=0), rtol=TOLERANCE, atol=1e-9)
    outer = increments.T @ increments
    np.testing.assert_allclose(hmm.fisher_information(X), outer, rtol=TOLERANCE, atol=TOLERANCE * abs(outer).max())


@pytest.mark.parametrize("width", [1, 8, 21])
@pytest.mark.parametrize("n", [1, 70])
def test_sums_of_products_equal_the_twin(n, width):
    rng = np.random.default_rng([n, width])
    numbers, weights, wide = np.zeros((n, products.padded(width))), rng.uniform(size=n), products.padded(width)
    numbers[:, :width] = rng.standard_normal((n, width))
    sums = np.ones(wide), np.ones((wide, wide)), np.ones((wide, wide))  # what is there is added to
    products.add_products(products.TILE, numbers, weights[:, np.newaxis] * numbers, 32, *sums)
    for found, expected in zip(sums, reference.sums_of_products(numbers, weights, 32), strict=True):
        np.testing.assert_allclose(found - 1.0, expected, rtol=TOLERANCE, atol=TOLERANCE)


def log_likelihood_at(hmm, start, X, lengths, free):
    """Log-likelihood as a function of the free parameters, through an ordinary model."""
    parameters = Parameters(hmm, start)
    directions = parameters.directions()
    at = parameters.values + directions @ (free - parameters.values[parameters.free()])
    point = parameters.at(at)
    return HMM(*point).log_likelihood(X, lengths)


def difference(function, x, at, h):
    """Derivative by the coordinate ``at``, of sixth order."""
    e = np.eye(len(x))[at] * h
    pairs = [function(x + k * e) - function(x - k * e) for k in (1, 2, 3)]
    return (45 * pairs[0] - 9 * pairs[1] + pairs[2]) / (60 * h)


@pytest.mark.parametrize("start", ["fixed", "free", "stationary"])
@pytest.mark.parametrize(("family", "structure"), models.ALL)
def test_the_score_equals_differences_of_the_log_likelihood(family, structure, start):
    hmm = models.make(family, structure)
    lengths = [1, 20, 59]
    X = models.with_gaps(hmm.sample(80, 5)[0], 0.1)
    if start == "stationary":
        hmm = HMM(hmm.stationary_distribution(), hmm.transmat, hmm.emission, hmm.transition)
    parameters = Parameters(hmm, start)
    free = parameters.values[parameters.free()]
    function = partial(log_likelihood_at, hmm, start, X, lengths)
    expected = [difference(function, free, at, 2e-3 * min(1.0, abs(free[at]) + 1e-3)) for at in range(len(free))]
    score = hmm.score_vector(X, lengths, start=start)
    np.testing.assert_allclose(score, expected, rtol=1e-6, atol=1e-6 * abs(score).max())
    assert len(score) == hmm.n_parameters(start=start) == len(hmm.parameter_names(start=start))
    if start == "free":
        increments = hmm.score_increments(X, lengths, start=start)
        np.testing.assert_allclose(increments.sum(axis=0), score, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("start", ["fixed", "free", "stationary"])
@pytest.mark.parametrize("family", sorted(models.FAMILIES))
def test_the_observed_information_equals_differences_of_the_score(family, start):
    hmm = models.make(family, "tied" if start == "stationary" else "full")
    X = models.with_gaps(hmm.sample(200, 6)[0], 0.1)
    if start == "stationary":
        hmm = HMM(hmm.stationary_distribution(), hmm.transmat, hmm.emission, hmm.transition)
    parameters = Parameters(hmm, start)
    directions, free = parameters.directions(), parameters.values[parameters.free()]

    def score(at):
        point = parameters.at(parameters.values + directions @ (at - free))
        return HMM(*point).score_vector(X, start=start)

    expected = -np.array(
        [difference(score, free, at, 2e-3 * min(1.0, abs(free[at]) + 1e-3)) for at in range(len(free))]
    )
    observed = hmm.fisher_information(X, kind="observed", start=start)
    np.testing.assert_allclose(observed, expected, rtol=1e-6, atol=1e-7 * abs(observed).max())
    np.testing.assert_array_equal(observed, observed.T)


def test_the_score_of_the_paper_with_its_misprints_corrected():
    """Fisher's identity with S as the paper has it, written out for its model."""
    hmm = models.paper_start()
    X = models.paper_model().sample(500, 1)[0]
    _, s = reference.forward_backward(hmm, X, skip=0)
    S0, S1, S2 = s.emissions.T
    mu, v = hmm.emission.means[:, 0], hmm.emission.covars.item()
    Sq, q = s.transitions.reshape(2, 2), hmm.transmat
    by_q = [Sq[0, 0] / q[0, 0] - Sq[0, 1] / q[0, 1], Sq[1, 0] / q[1, 0] - Sq[1, 1] / q[1, 1]]
    by_mu = (S1 - mu * S0) / v
    by_v = np.sum(S2 - 2 * mu * S1 + mu**2 * S0) / (2 * v**2) - S0.sum() / (2 * v)
    assert hmm.parameter_names() == ["transmat[0, 0]", "transmat[1, 0]", "means[0, 0]", "means[1, 0]", "covars[0, 0]"]
    np.testing.assert_allclose(hmm.score_vector(X), [*by_q, *by_mu, by_v], rtol=TOLERANCE)


def test_asymptotic_standard_deviations_at_the_papers_model():
    """√(n·CRB) within 2 %: at n = 1,000,000 the Monte-Carlo error is 0.3 %, and the seed is fixed."""
    hmm = models.paper_model()
    n = 1_000_000
    information = hmm.fisher_information(hmm.sample(n, 1)[0])
    deviations = np.sqrt(n * np.diag(np.linalg.inv(information)))
    np.testing.assert_allclose(deviations, [0.683, 2.543, 1.267, 3.984, 1.028], rtol=0.02)


def test_observed_and_outer_information_agree_in_the_long_run():
    hmm = models.paper_model()
    X = hmm.sample(200_000, 2)[0]
    outer, observed = hmm.fisher_information(X), hmm.fisher_information(X, kind="observed")
    scale = np.sqrt(np.diag(outer))
    assert abs((outer - observed) / scale / scale[:, None]).max() < 0.03


@pytest.mark.parametrize("kind", ["outer", "observed"])
def test_standard_errors_match_the_spread_of_estimates(kind):
    """Mean error over the spread of 60 fits within 0.7 and 1.4 (fails in less than 1 of 1,000)."""
    world = models.paper_model()
    values, errors = [], []
    for seed in range(60):
        X = world.sample(4000, seed)[0]
        model = BatchHMM(init=world, n_iter=60, tol=1e-4, start="fixed").fit(X).model_
        deviations = model.standard_errors(X, kind=kind)
        values.append(models.values(model))
        errors.append(np.concatenate([deviations["transmat"].ravel(), deviations["means"].ravel()]))
    spread = np.std(values, axis=0)[:6][[0, 1, 2, 3]]
    ratio = np.mean(errors, axis=0)[:4] / spread
    assert ((ratio > 0.7) & (ratio < 1.4)).all()


def test_confidence_intervals_cover_and_stay_inside_their_bounds():
    """90 % intervals over 40 fits and 7 numbers: cover 84 % to 95 % (fails by chance about once in 1,000)."""
    world = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Poisson([1.0, 6.0]))
    hits = []
    for seed in range(40):
        X = world.sample(2000, seed)[0]
        hmm = BatchHMM(init=world, n_iter=40, tol=1e-4).fit(X)
        intervals = hmm.conf_int(X, level=0.9)
        for name, truth in (("transmat", world.transmat), ("rates", world.emission.rates)):
            low, high = intervals[name]
            assert (low > 0).all()
            assert (low < high).all()
            hits += ((low < truth) & (truth < high)).ravel().tolist()
        assert (intervals["transmat"][1] < 1).all()
    assert 0.84 < np.mean(hits) < 0.95


def test_standard_errors_have_the_shape_of_the_values():
    hmm = models.make("gaussian-full", "masked")
    X = hmm.sample(3000, 1)[0]
    errors = hmm.standard_errors(X, kind="outer")
    assert errors["transmat"].shape == (3, 3)
    assert errors["means"].shape == (3, 2)
    assert errors["covars"].shape == (3, 2, 2)
    assert (errors["transmat"][hmm.transmat == 0] == 0).all()
    np.testing.assert_array_equal(errors["covars"], errors["covars"].transpose(0, 2, 1))
    assert "startprob" not in errors
    assert hmm.standard_errors(X, [1000, 2000], kind="outer", start="free")["startprob"].shape == (3,)


def test_probabilities_of_zero_have_no_standard_error_and_spoil_no_other():
    world = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Categorical(probs=[[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    X = world.sample(5000, 0)[0]
    smaller = BatchHMM(init=world, start="fixed").fit(X).model_
    probs = np.hstack([smaller.emission.probs, np.zeros((2, 1))])
    free = HMM(smaller.startprob, smaller.transmat, Categorical(probs=probs))
    for kind in ("outer", "observed"):
        with_zero, without = free.standard_errors(X, kind=kind), smaller.standard_errors(X, kind=kind)
        assert np.isnan(with_zero["probs"][:, 3]).all()
        np.testing.assert_allclose(with_zero["probs"][:, :3], without["probs"], rtol=1e-6)
        np.testing.assert_allclose(with_zero["transmat"], without["transmat"], rtol=1e-6)


def test_parameters_that_hardly_matter_to_the_data_do_no_harm():
    """States that no row leaves in doubt: scores of 1e-158, whose squares are not representable."""
    hmm = HMM([0.5, 0.5], [[0.75, 0.25], [0.25, 0.75]], Poisson([1000.0, 2333.0]), Tied([[1, 0], [0, 1]]))
    information = hmm.fisher_information([3000.0, 2000.0, 2000.0, 1000.0, 1000.0], kind="observed")
    assert np.isfinite(information).all()


def test_what_is_always_one_is_known_exactly():
    hmm = HMM([1, 0, 0], [[0.9, 0.1, 0], [0, 0.8, 0.2], [0, 0, 1]], Poisson([1.0, 6.0, 20.0]), Masked.left_right(3, 1))
    X = np.concatenate([hmm.sample(50, seed)[0] for seed in range(30)])
    errors, intervals = hmm.standard_errors(X, [50] * 30), hmm.conf_int(X, [50] * 30)
    assert errors["transmat"][2, 2] == 0.0
    assert (errors["transmat"][0, :2] > 0.0).all()
    np.testing.assert_array_equal(intervals["transmat"][0][2], [0, 0, 1])
    np.testing.assert_array_equal(intervals["transmat"][1][2], [0, 0, 1])


def test_the_score_by_a_start_probability_of_zero():
    def log_likelihood(p):
        return HMM([1 - p, p], [[0.9, 0.1], [0.2, 0.8]], Poisson([1.0, 5.0])).log_likelihood([5.0, 4.0])

    hmm = HMM([1.0, 0.0], [[0.9, 0.1], [0.2, 0.8]], Poisson([1.0, 5.0]))
    slope = -(log_likelihood(1e-8) - log_likelihood(0.0)) / 1e-8
    assert hmm.score_vector([5.0, 4.0], start="free")[-1] == pytest.approx(slope, rel=1e-4)
    assert hmm.score_increments([5.0, 4.0], start="free").sum(axis=0)[-1] == pytest.approx(slope, rel=1e-4)


def test_rows_count_for_bic_if_something_was_seen_of_them():
    hmm = models.make("gaussian-full")
    X = hmm.sample(100, 0)[0]
    X[::2, 0] = np.nan
    X[::10, 1] = np.nan
    assert hmm.bic(X) == pytest.approx(-2 * hmm.log_likelihood(X) + np.log(90) * hmm.n_parameters())


def test_parameters_that_the_data_cannot_tell_apart_are_refused():
    hmm = HMM([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], Poisson([2.0, 2.0]))
    with pytest.raises(ValueError, match="not positive definite"):
        hmm.standard_errors(hmm.sample(500, 0)[0])


@pytest.mark.parametrize(
    ("emission", "transition", "transmat", "expected"),
    [
        (models.FAMILIES["gaussian-full"], "full", "full", 6 + 6 + 9),
        (models.FAMILIES["gaussian-diag"], "full", "full", 6 + 6 + 6),
        (models.FAMILIES["gaussian-spherical"], "full", "full", 6 + 6 + 3),
        (models.FAMILIES["gaussian-tied"], "full", "full", 6 + 6 + 3),
        (models.FAMILIES["gaussian-paper"], "full", "full", 6 + 3 + 1),
        (models.FAMILIES["categorical"], "full", "full", 6 + 9),
        (models.FAMILIES["bernoulli"], "full", "full", 6 + 6),
        (models.FAMILIES["negative-binomial"], "full", "full", 6 + 6),
        (models.FAMILIES["negative-binomial-fixed"], "full", "full", 6 + 3),
        (models.FAMILIES["von-mises"], "full", "full", 6 + 6),
        (models.FAMILIES["mixed"], "full", "full", 6 + (3 + 1) + 6 + 6),
        (models.FAMILIES["gaussian-mixture"], "full", "full", 6 + 3 + 12 + 12),
        (models.FAMILIES["linear-regression"], "full", "full", 6 + 6 + 3 + 3),
        (models.FAMILIES["poisson"], Masked.banded(3), "masked", 1 + 2 + 1 + 3),
        (models.FAMILIES["poisson"], Tied([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), "tied", 1 + 3),
        (models.FAMILIES["poisson"], Independent(), "independent", 2 + 3),
    ],
)
def test_the_number_of_free_parameters(emission, transition, transmat, expected):
    hmm = HMM([0.5, 0.3, 0.2], models.STRUCTURES[transmat][1], emission, transition)
    assert hmm.n_parameters() == hmm.n_parameters(start="stationary") == expected
    assert hmm.n_parameters(start="free") == expected + 2
    X = hmm.sample(50, 0)[0].astype(float)
    X[3] = np.nan
    log_likelihood = hmm.log_likelihood(X)
    assert hmm.aic(X) == pytest.approx(-2 * log_likelihood + 2 * expected)
    assert hmm.bic(X, start="free") == pytest.approx(-2 * log_likelihood + np.log(49) * (expected + 2))


def test_a_family_without_a_gradient_says_what_is_missing():
    class Bare(models.Rayleigh):
        feature_gradient = IndependentFeatures.feature_gradient
        moments = IndependentFeatures.moments

    hmm = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Bare([1.0, 2.0]))
    for method in (hmm.score_vector, hmm.score_increments, hmm.standard_errors):
        with pytest.raises(NotImplementedError, match="needs a method feature_gradient"):
            method([1.0, 2.0])
    with pytest.raises(NotImplementedError, match="Bare needs a method moments"):
        hmm.forecast(1)


def test_unknown_kinds_are_refused():
    hmm = models.make("poisson")
    with pytest.raises(ValueError, match="kind must be 'outer' or 'observed'"):
        hmm.fisher_information([1.0, 2.0], kind="expected")
    with pytest.raises(ValueError, match="start must be one of"):
        hmm.score_vector([1.0, 2.0], start="random")
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        hmm.conf_int(hmm.sample(500, 0)[0], level=95)


def test_gaussian_intervals_are_invariant_to_offset_and_scale():
    hmm = models.make("gaussian-tied")
    X = hmm.sample(2000, 3)[0]
    far = Gaussian("tied", means=1e-6 * hmm.emission.means + 1e3, covars=1e-12 * hmm.emission.covars)
    moved = HMM(hmm.startprob, hmm.transmat, far)
    a, b = hmm.standard_errors(X), moved.standard_errors(1e-6 * X + 1e3)
    np.testing.assert_allclose(b["means"], 1e-6 * a["means"], rtol=1e-4)
    np.testing.assert_allclose(b["covars"], 1e-12 * a["covars"], rtol=1e-4)
    np.testing.assert_allclose(b["transmat"], a["transmat"], rtol=1e-4)
