"""What is known of single families: limits, relations between them, and data that lie on the edge."""

from math import lgamma

import models
import numpy as np
import pytest

from hmmstream import (
    HMM,
    BatchHMM,
    Constant,
    Exponential,
    Gamma,
    Gaussian,
    Geometric,
    Learner,
    NegativeBinomial,
    Poisson,
    Polyak,
    StatisticAverage,
    VonMises,
)
from hmmstream.emissions import FAMILIES, special

TRANSMAT = [[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.03, 0.12, 0.85]]


def chain(emission):
    m = emission.n_components
    return HMM(np.full(m, 1 / m), np.full((m, m), 1 / m) if m != 3 else TRANSMAT, emission)


def log_density(emission, y):
    """Of the first state, by the method that is compiled elsewhere."""
    return emission.log_density(emission.theta()[0], np.array([y]))


# --- relations between families -------------------------------------------------------------------------------------


def test_a_gamma_of_shape_one_is_exponential():
    for y in (1e-300, 0.3, 7.0, 1e10):
        expected = log_density(Exponential([2.5]), y)
        assert log_density(Gamma([1.0], [2.5]), y) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_negative_binomial_of_shape_one_is_geometric_in_all_that_is_learned():
    X = chain(Geometric([0.7, 0.15, 0.02])).sample(2000, 0)[0]
    probs = np.array([0.5, 0.2, 0.05])
    trials = Learner(chain(Geometric(probs)), averaging=StatisticAverage())
    failures = Learner(chain(NegativeBinomial(1.0, 1 / probs - 1, learn_shape=False)), averaging=StatisticAverage())
    trials.learn(X)
    failures.learn(X - 1)
    assert failures.log_likelihood == pytest.approx(trials.log_likelihood, rel=1e-10)
    np.testing.assert_allclose(failures.model.emission.means, 1 / trials.model.emission.probs - 1, rtol=1e-8)
    np.testing.assert_array_equal(failures.model.emission.shapes, np.ones((3, 1)))


def test_a_negative_binomial_of_large_shape_is_poisson():
    for y in (0.0, 3.0, 1e3):
        expected = log_density(Poisson([5.0]), y)
        assert log_density(NegativeBinomial([1e14], [5.0]), y) == pytest.approx(expected, rel=1e-11)


def test_log_normal_learning_is_gaussian_learning_of_logarithms():
    world = models.make("lognormal")
    X = models.with_gaps(world.sample(2000, 1)[0], 0.1)
    start = models.rough_start("lognormal")
    gauss = Gaussian("diag", start.emission.means, start.emission.variances)
    a, b = Learner(start), Learner(HMM(start.startprob, start.transmat, gauss))
    a.learn(X)
    b.learn(np.log(X))
    np.testing.assert_allclose(a.model.emission.means, b.model.emission.means, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(a.model.emission.variances, b.model.emission.covars, rtol=1e-9)
    assert a.log_likelihood == pytest.approx(b.log_likelihood - np.nansum(np.log(X)), rel=1e-10)


# --- digits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [10.0, 1e4, 1e7, 1e10])
def test_large_shapes_lose_no_digits(shape):
    """Near its mean the log-density is -log(2π/shape)/2 - log(mean) - 1/(12 shape) - shape (t - log(1 + t))."""
    for t in (0.0, 1 / np.sqrt(shape), -2 / np.sqrt(shape)):
        y = 7.0 * (1.0 + t)
        t = (y - 7.0) / 7.0
        deviance = t - np.log1p(t)
        if shape > 1e6:  # the series, of which the first terms are exact
            deviance = t**2 / 2 - t**3 / 3 + t**4 / 4 - t**5 / 5 + t**6 / 6
            norm = -0.5 * np.log(2 * np.pi / shape) - 1 / (12 * shape)
        else:
            norm = shape * np.log(shape) - shape - lgamma(shape)
        expected = norm - np.log(y) - shape * deviance
        assert log_density(Gamma([shape], [shape / 7.0]), y) == pytest.approx(expected, abs=1e-10)


def test_counts_of_large_shape_and_size_lose_no_digits():
    """The ratio of neighbouring probabilities is known: (y + shape) / (y + 1) · mean / (mean + shape)."""
    for shape, mean, y in [(2.0, 3.0, 5.0), (1e8, 3.0, 4.0), (1e8, 1e6, 1001000.0), (0.01, 1e6, 3e6)]:
        emission = NegativeBinomial([shape], [mean])
        step = log_density(emission, y + 1) - log_density(emission, y)
        assert step == pytest.approx(np.log1p((shape - 1) / (y + 1)) - np.log1p(shape / mean), abs=1e-10)


def test_angles_know_no_whole_turns():
    emission = VonMises([1.0, -2.0, 3.0], [5.0, 1e6, 0.0])
    hmm = chain(emission)
    X = hmm.sample(300, 0)[0]
    turned = X + 2 * np.pi * np.random.default_rng(0).integers(-3, 4, X.shape)
    a, b = Learner(hmm), Learner(hmm)
    a.learn(X)
    b.learn(turned)
    assert b.log_likelihood == pytest.approx(a.log_likelihood, rel=1e-7)
    np.testing.assert_allclose(models.values(b.model), models.values(a.model), rtol=1e-6, atol=1e-9)
    assert hmm.log_likelihood([1e150, -1e150]) < 0.0


@pytest.mark.parametrize("averaging", ["auto", None, Polyak(50)])
def test_directions_about_the_seam_are_averaged_as_directions(averaging):
    truth = VonMises([np.pi - 0.01, 0.2, 1.5], [50.0, 20.0, 20.0])
    start = VonMises([-3.0, 0.0, 1.8], [10.0, 10.0, 10.0])
    learner = Learner(chain(start), averaging=averaging, step=Constant(0.02))
    learner.learn(chain(truth).sample(5000, 3)[0])
    means = learner.model.emission.means[:, 0]
    assert (abs(means) <= np.pi).all()
    assert np.cos(means - truth.means[:, 0]).min() > 0.99


# --- the edge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gamma", "lognormal", "von-mises", "negative-binomial", "geometric"])
@pytest.mark.parametrize("value", [1.0, 3.0, 1e100])
def test_constant_data_are_survived_and_what_follows_is_learned(family, value):
    world = models.make(family)
    learner = Learner(models.rough_start(family), step=Constant(0.02))
    constant = np.full((3000, world.n_features), value)
    learner.learn(constant)
    assert np.isfinite(learner.vector).all()
    fitted = BatchHMM(init=models.rough_start(family), n_iter=30).fit(constant[:100]).model_
    assert np.isfinite(models.values(fitted)).all()
    learner.learn(world.sample(20_000, 5)[0])
    assert np.isfinite(learner.vector).all()
    X = world.sample(2000, 6)[0]
    assert learner.last_model.log_likelihood(X) > models.rough_start(family).log_likelihood(X) - 2000


def test_m_steps_are_finite_whatever_the_statistic():
    for family in ("geometric", "negative-binomial", "negative-binomial-fixed", "gamma", "lognormal", "von-mises"):
        emission = models.FAMILIES[family]
        for exponent in (-300, -20, 0, 20, 300):
            for sign in (-1.0, 1.0):
                S = np.full((3, emission.n_statistics), sign * 10.0**exponent)
                S[:, 0] = 0.3
                theta = emission.theta()
                with np.errstate(over="ignore", invalid="ignore"):
                    emission.maximize(S, np.ones(3), theta)
                assert np.isfinite(theta).all(), (family, exponent, sign)
                emission.with_theta(theta).check_values()


def exact_width(emission, y):
    """log of the mean less the mean of logs, or 1 less the mean length of directions, with more digits than a float."""
    y = y.astype(np.longdouble)
    if isinstance(emission, Gamma):
        return float(np.log(y.mean()) - np.log(y).mean())
    return float(1 - np.hypot(np.cos(y).mean(), np.sin(y).mean()))


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="longdouble has no more digits than float here")
@pytest.mark.parametrize(
    ("emission", "y"),
    [
        (Gamma([1e9], [4e6]), 250.0 * (1.0 + 3e-5 * np.random.default_rng(0).standard_normal(500))),
        (VonMises([2.5], [1e9]), 2.5 + 3e-5 * np.random.default_rng(0).standard_normal(500)),
    ],
    ids=["gamma", "von-mises"],
)
def test_narrow_states_keep_their_digits(emission, y):
    """Measured from the origin, the width of such a state would have 6 of them."""
    theta = emission.theta()
    theta[:, -1] += 0.01  # the centre is not where the state is
    S, s = np.zeros((1, emission.n_statistics)), np.empty(emission.n_statistics)

    def sums():
        S[:] = 0.0
        for value in y:
            emission.statistic(theta[0], np.array([value]), s)
            S[0] += s
        return S.copy()

    shift, far = np.empty(1), sums()
    emission.move_centre(theta[0], far[0], shift)
    near = sums()
    emission.translate(far[0], shift)
    np.testing.assert_allclose(far, near, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(emission.uncentred(theta, near), emission.uncentred(theta, far), rtol=1e-12)
    emission.maximize(near, np.ones(1), theta)
    width = special.polygamma(theta[0, 0])[0] if isinstance(emission, Gamma) else special.bessel(theta[0, 1])[2]
    assert width == pytest.approx(exact_width(emission, y), rel=1e-10)


@pytest.mark.parametrize("unit", [1e-200, 1e-15, 1e100])
def test_amounts_are_learned_in_any_unit_from_any_start(unit):
    X = chain(Gamma([2.0, 5.0, 20.0], [2.0, 1.0, 0.5])).sample(2000, 1)[0]
    start, far = Gamma([1.5, 4.0, 10.0], [1.0, 1.0, 0.4]), Gamma([0.5, 0.5, 0.5], [1e-50, 1e-51, 1e-52])
    plain, scaled, astray = (
        Learner(chain(Gamma(emission.shapes, emission.rates / factor)), averaging=StatisticAverage())
        for emission, factor in ((start, 1.0), (start, unit), (far, unit))
    )
    plain.learn(X)
    for learner in (scaled, astray):
        learner.learn(X * unit)
        assert np.isfinite(learner.vector).all()
        emission, statistic = learner.last_model.emission, learner.statistic.emissions
        np.testing.assert_allclose(statistic[:, 1] / statistic[:, 0], emission.moments()[0][:, 0], rtol=1e-12)
    np.testing.assert_allclose(scaled.model.emission.shapes, plain.model.emission.shapes, rtol=1e-9)
    np.testing.assert_allclose(scaled.model.emission.rates * unit, plain.model.emission.rates, rtol=1e-9)
    fitted = [BatchHMM(2, "gamma", n_iter=5, random_state=0).fit(X[:300] * each) for each in (1.0, unit)]
    np.testing.assert_allclose(fitted[1].shapes_, fitted[0].shapes_, rtol=1e-6)


def test_states_that_collapse_are_stopped_without_an_error():
    """A few values repeated, few rows, and gaps: states like to sit on single points."""
    rng = np.random.default_rng(0)
    values = np.repeat(rng.uniform(0.5, 3.0, 4), 10)
    gaps = rng.choice(values, 60)
    gaps[::4] = np.nan
    for family in ("gamma", "lognormal", "von-mises"):
        for X in (values, gaps, values[:15:5], np.append(values, rng.gamma(1.0, size=40))):
            X = np.tile(X[:, np.newaxis], models.FAMILIES[family].n_features)
            hmm = BatchHMM(3, family.replace("-", "_"), n_iter=60, random_state=0).fit(X)
            assert np.isfinite(models.values(hmm.model_)).all()
            assert np.diff(hmm.history_).min(initial=0.0) >= -1e-10 * (abs(hmm.history_).max() + len(X))


# --- fixed shapes ---------------------------------------------------------------------------------------------------


def test_a_fixed_shape_is_kept_and_is_no_parameter():
    world = models.make("negative-binomial-fixed")
    X = world.sample(2000, 2)[0]
    hmm = BatchHMM(3, NegativeBinomial(shapes=2.0, learn_shape=False), random_state=0).fit(X)
    np.testing.assert_array_equal(hmm.shapes_, np.full((3, 1), 2.0))
    assert not any("shapes" in name for name in hmm.model_.parameter_names())
    for kind in ("outer", "observed"):
        errors = hmm.standard_errors(X, kind=kind)
        np.testing.assert_array_equal(errors["shapes"], np.zeros((3, 1)))
        assert (errors["means"] > 0).all()
    low, high = hmm.conf_int(X)["shapes"]
    np.testing.assert_array_equal(low, high)


def test_fixed_shapes_may_differ_between_states():
    world = chain(NegativeBinomial([1.0, 5.0, 20.0], [2.0, 20.0, 80.0], learn_shape=False))
    learner = Learner(chain(world.emission.with_rows(1.2 * world.emission.rows())))
    learner.learn(world.sample(1000, 3)[0])
    np.testing.assert_array_equal(learner.model.emission.shapes[:, 0], [1.2, 6.0, 24.0])
    assert "learn_shape=False" in repr(learner.model)


def test_a_shape_given_as_one_number_is_that_of_all_states():
    assert NegativeBinomial(2.0, [1.0, 3.0]).shapes.tolist() == [[2.0], [2.0]]
    assert repr(NegativeBinomial(2.0, learn_shape=False)) == "NegativeBinomial(shapes=2.0, learn_shape=False)"
    assert repr(NegativeBinomial()) == "NegativeBinomial()"


def test_a_specification_agrees_with_a_start_of_the_same_shape_only():
    start = models.make("negative-binomial-fixed")
    X = start.sample(50, 0)[0]
    for same in (start, models.rough_start("negative-binomial-fixed")):  # given as one number, and one by one
        BatchHMM(3, NegativeBinomial(2.0, learn_shape=False), init=same, n_iter=1).fit(X)
    for other in (NegativeBinomial(3.0, learn_shape=False), NegativeBinomial()):
        with pytest.raises(ValueError, match="but init has"):
            BatchHMM(3, other, init=start, n_iter=1).fit(X)


def test_every_family_has_a_name_and_can_do_without_values():
    for name, family in FAMILIES.items():
        emission = family.for_data(np.ones((5, 1)))
        assert not emission.has_values, name
        assert emission.sized(3, 1).n_components == 3
