"""Families that users write themselves."""

from math import log, pi

import models
import numpy as np
import pytest
from numba import typeof

from hmmstream import HMM, Exponential, Gaussian, IndependentFeatures, Learner
from hmmstream.compilable import workspace


class UserLogNormal(IndependentFeatures):
    """Two parameters and two statistics a feature."""

    value_names = ("locations", "variances")
    n_feature_statistics = 2

    def __init__(self, locations=None, variances=None):
        super().__init__(locations=locations, variances=variances)

    def sample(self, states, rng):
        return rng.lognormal(self.locations[states], np.sqrt(self.variances[states]))

    def accepts(self, value):
        return value > 0.0

    def feature_log_density(self, theta, y):
        z = log(y) - theta[0]
        return -log(y) - 0.5 * log(2.0 * pi * theta[1]) - 0.5 * z * z / theta[1]

    def feature_statistic(self, theta, y, s):
        s[0] = log(y)
        s[1] = log(y) ** 2

    def feature_expectation(self, theta, s):
        s[0] = theta[0]
        s[1] = theta[0] ** 2 + theta[1]

    def feature_maximize(self, s, overall, theta):
        theta[0] = s[0]
        theta[1] = max(s[1] - s[0] ** 2, 1e-12)


class Erlang(Exponential):
    """A built-in family with a constant more: waiting for k events."""

    constants = ("k",)
    compiled_methods = ("log_power",)

    def __init__(self, rates=None, k=1.0):
        self.k = float(k)
        super().__init__(rates=rates)

    def log_power(self, y):
        return (self.k - 1.0) * log(y)

    def feature_log_density(self, theta, y):
        return self.k * log(theta[0]) + self.log_power(y) - theta[0] * y

    def feature_expectation(self, theta, s):
        s[0] = self.k / theta[0]

    def feature_maximize(self, s, overall, theta):
        theta[0] = self.k / s[0]


class Cubic(Exponential):
    """Its statistic overflows."""

    def feature_statistic(self, theta, y, s):
        s[0] = y * y * y


def chain(emission):
    return HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission)


def test_several_parameters_and_statistics():
    """A log-normal family on data is a Gaussian family on their logarithms."""
    start = models.rough_start("gaussian-diag")
    X = np.exp(models.make("gaussian-diag").sample(500, 1)[0])
    X[10:20, 0] = np.nan
    logs = UserLogNormal(start.emission.means, start.emission.covars)
    user, gauss = Learner(HMM(start.startprob, start.transmat, logs)), Learner(start)
    user.learn(X)
    gauss.learn(np.log(X))
    np.testing.assert_allclose(user.model.emission.locations, gauss.model.emission.means, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(user.model.emission.variances, gauss.model.emission.covars, rtol=1e-10)
    np.testing.assert_allclose(user.model.transmat, gauss.model.transmat, rtol=1e-10)
    assert user.log_likelihood == pytest.approx(gauss.log_likelihood - np.nansum(np.log(X)), rel=1e-10)


def test_constants_of_a_family_reach_compiled_code_and_the_learned_model():
    X = np.random.default_rng(2).gamma(3.0, 1.0 / np.repeat([1.0, 10.0], 5000))
    learner = Learner(chain(Erlang([0.5, 5.0], k=3)), averaging=None)
    learner.learn(X)
    assert learner.last_model.emission.k == 3.0
    assert learner.last_model.emission.rates[1, 0] == pytest.approx(10.0, rel=0.1)


def test_families_made_by_a_function_are_kept_apart():
    def make(constant):
        class Shifted(Exponential):
            def feature_log_density(self, theta, y):
                return constant + log(theta[0]) - theta[0] * y

        return chain(Shifted([1.0, 2.0])).log_likelihood([1.0])

    assert make(1000.0) - make(0.0) == pytest.approx(1000.0)


def test_families_that_read_different_tables_are_kept_apart():
    def make(table):
        class Tabled(Exponential):
            def feature_log_density(self, theta, y):
                return table[700] + log(theta[0]) - theta[0] * y

        return chain(Tabled([1.0, 2.0])).log_likelihood([1.0])

    flat, bumped = np.ones(2000), np.ones(2000)
    bumped[700] = 3.0
    assert make(bumped) - make(flat) == pytest.approx(2.0)


def test_what_only_sampling_refers_to_is_not_part_of_the_compiled_family():
    def make(helper):
        class Family(Exponential):
            def sample(self, states, rng):
                return helper(states)

        return typeof(Family([1.0, 2.0]))

    assert make(lambda states: 0) == make(lambda states: 1)


def test_what_a_family_never_calls_may_be_called_by_one_that_derives_from_it():
    """The density of a feature with a variance of its own, by the method for correlated features."""

    class Conditioned(Gaussian):
        def log_density(self, theta, y):
            return self.condition(theta, y, workspace(1), workspace(1))

    values = {"means": [0.0, 2.0], "covars": [[0.5], [3.0]]}
    ours, plain = (
        HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], kind("diag", **values)) for kind in (Conditioned, Gaussian)
    )
    X = plain.sample(50, 0)[0]
    assert ours.log_likelihood(X) == pytest.approx(plain.log_likelihood(X), rel=1e-12)


def test_a_statistic_that_overflows_leaves_no_nan():
    learner = Learner(chain(Cubic([1.0, 2.0])))
    learner.learn(np.tile([1.0, 1e120, 2.0], 30))
    assert np.isfinite(learner.state.tau).all()


def test_a_helper_with_another_number_of_arguments_is_refused_with_the_reason():
    class Other(Erlang):
        def log_power(self, theta, y):
            return 0.0

    chain(Erlang([1.0, 2.0])).log_likelihood([1.0])
    with pytest.raises(TypeError, match="give this one another name"):
        chain(Other([1.0, 2.0])).log_likelihood([1.0])


def test_the_methods_run_as_plain_python_too():
    emission = models.FAMILIES["user-rayleigh"]
    assert emission.log_density(emission.theta()[0], np.array([0.4])) == pytest.approx(
        emission.reference_log_density(0, np.array([0.4]))
    )
