"""HMM: values, validation, sampling."""

import copy
import pickle

import models
import numpy as np
import pytest

from hmmstream import (
    HMM,
    Bernoulli,
    Categorical,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    Geometric,
    LinearRegression,
    LogNormal,
    Masked,
    Multinomial,
    NegativeBinomial,
    Poisson,
    VonMises,
)

TWO = Gaussian("diag", means=[0, 1], covars=[1, 1])


@pytest.mark.parametrize(
    ("startprob", "transmat", "message"),
    [
        ([0.5, 0.6], np.eye(2), "startprob must hold probabilities"),
        ([1.5, -0.5], np.eye(2), "startprob must hold probabilities"),
        ([1.0], np.eye(2), r"startprob must have shape \(2,\)"),
        ([0.5, 0.5], np.eye(3), r"transmat must have shape \(2, 2\)"),
        ([0.5, 0.5], [[0.5, 0.4], [0, 1]], "transmat must hold probabilities"),
        ([0.5, 0.5], [[0.900009, 0.1], [0, 1]], "transmat must hold probabilities"),
        ([0.5, np.nan], np.eye(2), "startprob must be finite"),
    ],
)
def test_what_are_not_probabilities_is_refused(startprob, transmat, message):
    with pytest.raises(ValueError, match=message):
        HMM(startprob, transmat, TWO)


def test_an_emission_without_values_is_refused():
    with pytest.raises(ValueError, match="with its values"):
        HMM([0.5, 0.5], np.eye(2), Gaussian())


def test_a_model_never_changes():
    hmm = models.paper_model()
    with pytest.raises(AttributeError, match="never changes"):
        hmm.transmat = np.eye(2)
    for array in (hmm.startprob, hmm.transmat, hmm.emission.means, hmm.emission.covars):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.5


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda hmm: pickle.loads(pickle.dumps(hmm))])
def test_nor_does_a_copy(copied):
    for family in models.FAMILIES:
        hmm = copied(models.make(family))
        np.testing.assert_array_equal(models.values(hmm), models.values(models.make(family)))
        assert repr(hmm) == repr(models.make(family))
        arrays = [hmm.startprob, hmm.transmat, *(getattr(hmm.emission, name) for name in hmm.emission.value_names)]
        assert not any(array.flags.writeable for array in arrays)
        with pytest.raises(AttributeError, match="never changes"):
            del hmm.transmat


def test_a_model_keeps_its_own_copy_of_its_values():
    transmat = np.array([[0.9, 0.1], [0.1, 0.9]])
    hmm = HMM([0.5, 0.5], transmat, TWO)
    transmat[0] = [0.5, 0.5]
    assert hmm.transmat[0, 0] == 0.9


def means(emission):
    """The mean of each feature in each state: (m, d)."""
    return {
        Gaussian: lambda e: e.means,
        GaussianMixture: lambda e: np.einsum("ij,ijd->id", e.weights, e.means),
        LinearRegression: lambda e: np.column_stack([0.0 * e.coefficients, e.intercepts]),
        Poisson: lambda e: e.rates,
        Exponential: lambda e: 1 / e.rates,
        Bernoulli: lambda e: e.probs,
        Categorical: lambda e: (e.probs @ np.arange(e.n_categories))[:, None],
        Multinomial: lambda e: e.n_trials * e.probs,
        Geometric: lambda e: 1 / e.probs,
        NegativeBinomial: lambda e: e.means,
        Gamma: lambda e: e.shapes / e.rates,
        LogNormal: lambda e: np.exp(e.means + e.variances / 2),
        VonMises: lambda e: e.means,
        models.ReferenceRayleigh: lambda e: e.scales * np.sqrt(np.pi / 2),
        models.families.Independent: lambda e: np.hstack([means(part) for part in e.parts]),
    }[type(emission)](emission)


@pytest.mark.parametrize(("family", "structure"), models.ALL)
def test_samples_have_the_shape_and_moments_of_the_model(family, structure):
    """Transition frequencies and means per state, at 5 standard errors or better: a false alarm in 1e5 or so."""
    hmm = models.make(family, structure)
    n = 20_000
    X, states = hmm.sample(n, 3)
    assert X.shape == (n, hmm.n_features)
    assert states.shape == (n,)
    for i in range(3):
        after = states[1:][states[:-1] == i]
        error = 5 * np.sqrt(0.25 / len(after))
        np.testing.assert_allclose(np.bincount(after, minlength=3) / len(after), hmm.transmat[i], atol=error)
    again, _ = hmm.sample(n, np.random.default_rng(3))
    np.testing.assert_array_equal(X, again)
    expected = means(hmm.emission)
    if family == "von-mises":  # angles from the mean direction; at these concentrations hardly any is near ±π
        X = (X - expected[states] + np.pi) % (2 * np.pi) - np.pi + expected[states]
    for i in range(3):
        x = X[states == i]
        np.testing.assert_array_less(abs(x.mean(axis=0) - expected[i]), 5 * x.std(axis=0) / np.sqrt(len(x)) + 1e-12)


def test_full_covariances_are_sampled():
    X, states = models.make("gaussian-full").sample(60_000, 4)
    for i in range(3):
        np.testing.assert_allclose(np.cov(X[states == i].T), models.COVS[i], atol=0.06)  # 5 standard errors


@pytest.mark.parametrize("n", [0, 1])
def test_short_samples(n):
    X, states = models.paper_model().sample(n, 0)
    assert X.shape == (n, 1)
    assert states.shape == (n,)


def test_a_state_of_probability_zero_is_never_sampled():
    hmm = HMM([0, 1, 0], [[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]], models.FAMILIES["poisson"], Masked.banded(3))
    states = hmm.sample(1000, 5)[1]
    assert states[0] == 1
    assert (states[1::2] != 1).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian("round"), "covariance must be one of"),
        (lambda: Gaussian("full", means=[0, 1]), "both means and covars"),
        (lambda: Gaussian("full", means=[[0, 1]], covars=[[[1, 2], [2, 1]]]), "positive definite"),
        (lambda: Gaussian("full", means=[[0, 1]], covars=[[[1, 0.5], [0, 1]]]), "symmetric"),
        (lambda: Gaussian("diag", means=[0, 1], covars=[1, 0]), "must be positive"),
        (lambda: Gaussian("diag", means=[0, 1], covars=[1, 1e-310]), "must be positive"),
        (lambda: Gaussian("full", means=[[0, 1]], covars=[[[1e-10, 9e-11], [0, 1e-10]]]), "symmetric"),
        (lambda: Gaussian("diag", means=[0, 1e200], covars=[1, 1]), "must not be larger"),
        (lambda: Gaussian("diag", means=[0, 1], covars=[1, 1, 1]), "covars must have shape"),
        (lambda: Poisson([-1, 2]), "must not be negative"),
        (lambda: Poisson([[[1]]]), "must have shape"),
        (lambda: Exponential([0, 2]), "must be positive"),
        (lambda: Bernoulli([0.5, 1.5]), "between 0 and 1"),
        (lambda: Geometric([0.5, 0.0]), "positive and at most 1"),
        (lambda: Geometric([0.5, 1.1]), "positive and at most 1"),
        (lambda: Gamma([1, 2], [1, 0]), "rates must be positive"),
        (lambda: Gamma([1, 2]), "give all of shapes, rates, or none"),
        (lambda: Gamma([1, 2], [1, 2, 3]), "rates must have shape"),
        (lambda: LogNormal([0, 1], [1, 0]), "variances must be positive"),
        (lambda: VonMises([0, 1], [1, -1]), "must not be negative"),
        (lambda: VonMises([0, np.inf], [1, 1]), "means must be finite"),
        (lambda: NegativeBinomial([0, 2], [1, 2]), "shapes must be positive"),
        (lambda: NegativeBinomial([1, 2], [1, 0]), "means must be positive"),
        (lambda: NegativeBinomial(0.0, learn_shape=False), "shapes must be positive"),
        (lambda: NegativeBinomial(means=[1, 2]), "give all of shapes, means, or none"),
        (lambda: NegativeBinomial(2.0), "one number to keep"),
        (lambda: NegativeBinomial(learn_shape=False), "one number to keep"),
        (lambda: Categorical(), "n_categories must be"),
        (lambda: Categorical(3, [[0.5, 0.5]]), "2 columns, but n_categories is 3"),
        (lambda: Categorical(probs=[[0.5, 0.4]]), "sum to 1"),
        (lambda: Multinomial(probs=[[0.5, 0.4]]), "sum to 1"),
        (lambda: Multinomial(probs=[0.5, 0.5]), "must have shape"),
        (lambda: Multinomial([[0.5, 0.5]]), "n_trials must be a positive integer"),
    ],
)
def test_values_outside_their_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("covariance", "covars", "shape"),
    [("full", [1, 2], (2, 1, 1)), ("diag", [1, 2], (2, 1)), ("spherical", [1, 2], (2,)), ("tied", 1, (1, 1))],
)
def test_with_one_feature_plain_numbers_will_do(covariance, covars, shape):
    assert Gaussian(covariance, means=[0, 1], covars=covars).covars.shape == shape


@pytest.mark.parametrize("family", sorted(models.FAMILIES))
def test_rows_hold_all_values(family):
    emission = models.FAMILIES[family]
    again = emission.with_rows(emission.rows())
    for name in emission.value_names:
        np.testing.assert_array_equal(getattr(again, name), getattr(emission, name))
    assert repr(again) == repr(emission)
