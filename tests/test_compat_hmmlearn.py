"""hmmstream in the place of hmmlearn: the same arguments, attributes and results, and its own tests pass."""

import inspect
import os
import pickle
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import hmmlearn.base
import hmmlearn.hmm
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from hmmstream import BatchHMM, Learner, OnlineHMM, Poisson, Power
from hmmstream.compat import hmmlearn as compat

TOLERANCE = 1e-8  # of numbers after ten iterations or so of EM, each of which multiplies rounding errors a little
TYPES = ["spherical", "diag", "full", "tied"]
NAMES = ["CategoricalHMM", "GaussianHMM", "MultinomialHMM", "PoissonHMM"]
LENGTHS = [100, 1, 150, 49]

rng = np.random.RandomState(7)
STATES = np.repeat(rng.randint(3, size=30), 10)
DATA = {
    "GaussianHMM": 3.0 * np.array([[0, 1, 0], [2, 0, 1], [-1, -1, 2]])[STATES] + rng.randn(300, 3) @ rng.randn(3, 3),
    "CategoricalHMM": np.where(rng.rand(300) < 0.7, STATES, rng.randint(4, size=300))[:, np.newaxis],
    "MultinomialHMM": np.array([rng.multinomial(5 + t % 3, np.eye(3)[k] / 2 + 1 / 6) for t, k in enumerate(STATES)]),
    "PoissonHMM": rng.poisson(np.array([[1, 4, 9], [5, 5, 1], [9, 1, 2]])[STATES]),
}
VALUES = {"GaussianHMM": ["means_"], "PoissonHMM": ["lambdas_"]}
PRIORS = {
    "GaussianHMM": {"means_prior": 0.5, "means_weight": 2.0, "covars_prior": 0.3, "covars_weight": 6.0},
    "CategoricalHMM": {"emissionprob_prior": 1.7},
    "MultinomialHMM": {},
    "PoissonHMM": {"lambdas_prior": 2.0, "lambdas_weight": 0.7},
}
MODELS = [
    *(("GaussianHMM", {"covariance_type": kind}) for kind in TYPES),
    *((name, {}) for name in NAMES[::2]),
    ("PoissonHMM", {}),
]
MODELS_IDS = [*TYPES, "categorical", "multinomial", "poisson"]


def both(name, **settings):
    """Ours and theirs."""
    return getattr(compat, name)(**settings), getattr(hmmlearn.hmm, name)(**settings)


def covariances(model):
    """All covariances, as numbers that hmmlearn's bug with "spherical" (a matrix for each feature) does not touch."""
    if model.covariance_type == "spherical" and model._covars_.ndim == 2:
        return np.einsum("i,ab->iab", model._covars_[:, 0], np.eye(3))
    return model.covars_


def assert_same(ours, theirs, name):
    for attribute in ("startprob_", "transmat_", *VALUES.get(name, ["emissionprob_"])):
        np.testing.assert_allclose(getattr(ours, attribute), getattr(theirs, attribute), TOLERANCE, 1e-12, attribute)
    if name == "GaussianHMM":
        np.testing.assert_allclose(covariances(ours), covariances(theirs), TOLERANCE, 1e-12)
    assert ours.n_features == theirs.n_features


def path_log_prob(model, X, lengths, states):
    """Of a sequence of states together with X."""
    is_start = np.isin(np.arange(len(X)), np.cumsum([0, *(lengths or [])]))
    moves = np.where(is_start, model.startprob_[states], model.transmat_[np.roll(states, 1), states])
    return np.log(moves).sum() + model._compute_log_likelihood(X)[np.arange(len(X)), states].sum()


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_arguments_and_defaults_are_those_of_hmmlearn(name):
    ours, theirs = (inspect.signature(getattr(module, name).__init__) for module in (compat, hmmlearn.hmm))
    assert [(p.name, p.default, p.kind) for p in ours.parameters.values()] == [
        (p.name, p.default, p.kind) for p in theirs.parameters.values()
    ]
    public = {method for method in dir(getattr(hmmlearn.hmm, name)) if not method.startswith("_")}
    assert public - set(dir(getattr(compat, name))) <= {"set_fit_request", "set_score_request"}


@pytest.mark.parametrize("variant", ["plain", "lengths", "priors", "subset"])
@pytest.mark.parametrize(("name", "settings"), MODELS, ids=MODELS_IDS)
def test_a_fit_goes_the_same_way_from_the_same_random_state(name, settings, variant):
    X, lengths = DATA[name], None if variant == "plain" else LENGTHS
    settings = {**settings, "n_components": 3, "random_state": 4, "n_iter": 12, "tol": 1e-3}
    if variant == "priors":
        settings |= {"startprob_prior": 1.5, "transmat_prior": 0.9 + np.eye(3), **PRIORS[name]}
    elif variant == "subset":
        settings |= {"params": "tm" if name == "GaussianHMM" else "ste"[1:] if name != "PoissonHMM" else "l"}
    ours, theirs = both(name, **settings)
    ours.fit(X, lengths)
    theirs.fit(X, lengths)
    assert len(theirs.monitor_.history) > 3
    np.testing.assert_allclose(ours.monitor_.history, theirs.monitor_.history, rtol=TOLERANCE)
    assert (ours.monitor_.iter, ours.monitor_.converged) == (theirs.monitor_.iter, theirs.monitor_.converged)
    assert_same(ours, theirs, name)

    assert ours.score(X, lengths) == pytest.approx(theirs.score(X, lengths), rel=TOLERANCE)
    (log_prob, posteriors), expected = ours.score_samples(X, lengths), theirs.score_samples(X, lengths)
    assert log_prob == pytest.approx(expected[0], rel=TOLERANCE)
    np.testing.assert_allclose(posteriors, expected[1], atol=TOLERANCE)
    np.testing.assert_array_equal(ours.predict_proba(X, lengths), posteriors)
    for algorithm in ("viterbi", "map"):
        (log_prob, states), expected = (model.decode(X, lengths, algorithm) for model in (ours, theirs))
        assert log_prob == pytest.approx(expected[0], rel=TOLERANCE)
        if name == "CategoricalHMM" and algorithm == "viterbi":  # few symbols: other paths may be as probable
            assert path_log_prob(theirs, X, lengths, states) == pytest.approx(log_prob, rel=TOLERANCE)
        else:
            np.testing.assert_array_equal(states, expected[1])
        ours.algorithm = algorithm
        np.testing.assert_array_equal(ours.predict(X, lengths), states)
    assert ours.aic(X, lengths) == pytest.approx(theirs.aic(X, lengths), rel=TOLERANCE)
    assert ours.bic(X, lengths) == pytest.approx(theirs.bic(X, lengths), rel=TOLERANCE)
    np.testing.assert_allclose(ours.get_stationary_distribution(), theirs.get_stationary_distribution(), TOLERANCE)


@pytest.mark.parametrize(("name", "settings"), MODELS, ids=MODELS_IDS)
def test_a_fit_and_samples_from_values_that_were_set(name, settings):
    """Also: what ``fit`` draws from ``random_state`` is what later samples do not draw again."""
    ours, theirs = both(name, n_components=3, random_state=2, n_iter=4, implementation="scaling", **settings)
    for model in (ours, theirs):
        model.init_params = "t"
        model.startprob_ = np.array([0.2, 0.3, 0.5])
        if name == "GaussianHMM":
            model.means_ = [[0, 2, 1], [4, 1, 2], [-2, -2, 3]]
            model.covars_ = {"spherical": [4, 5, 6], "diag": 4 + np.eye(3), "tied": 5 * np.eye(3)}.get(
                settings["covariance_type"], np.tile(4 * np.eye(3) + 1, (3, 1, 1))
            )
        elif name == "PoissonHMM":
            model.lambdas_ = [[2, 3, 8], [4, 5, 2], [8, 2, 3]]
        else:
            model.emissionprob_ = np.full((3, 3 if name == "MultinomialHMM" else 4), 0.1)
            model.emissionprob_[:, :3] += np.eye(3)
            model.emissionprob_ /= model.emissionprob_.sum(axis=1, keepdims=True)
        model.fit(DATA[name], LENGTHS)
        if name == "MultinomialHMM":
            model.n_trials = 6
        if settings.get("covariance_type") == "spherical":
            model.covars_ = np.array(model._covars_).reshape(3, -1)[:, 0].copy()
    assert_same(ours, theirs, name)
    for arguments in ({}, {"random_state": 5}, {"currstate": 1}):
        for result, expected in zip(ours.sample(20, **arguments), theirs.sample(20, **arguments), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-6)  # hmmlearn's covariances have lost digits
            assert result.dtype == expected.dtype


def test_a_model_can_be_used_once_its_values_are_set():
    model = compat.GaussianHMM(2, "full")
    with pytest.raises(NotFittedError):
        model.predict([[0.0]])
    model.startprob_ = [0.5, 0.5]
    model.transmat_ = [[0.9, 0.1], [0.1, 0.9]]
    model.means_ = [[0.0, 0.0], [5.0, 5.0]]
    model.covars_ = np.tile(np.eye(2), (2, 1, 1))
    assert model.predict([[0.1, 0.0], [4.0, 6.0]]).tolist() == [0, 1]
    assert model.covars_.shape == (2, 2, 2)
    model.transmat_ = [[0.9, 0.2], [0.1, 0.9]]
    with pytest.raises(ValueError, match="transmat_ must hold probabilities that sum to 1"):
        model.predict([[0.1, 0.0]])


@pytest.mark.parametrize(
    ("kind", "covars", "message"),
    [
        ("spherical", [1.0, -1.0], "positive"),
        ("spherical", [[1.0, 2.0], [1.0, 2.0]], r"shape \(m,\) with m = 2"),
        ("diag", [1.0, 1.0], r"shape \(m, d\)"),
        ("full", [[[1.0, 2.0], [2.0, 1.0]]] * 2, "positive definite"),
        ("full", np.ones((3, 2, 2)), r"shape \(m, d, d\) with m = 2"),
        ("tied", [[1.0, 0.5], [0.2, 1.0]], "symmetric"),
        ("round", [1.0, 1.0], "covariance_type must be"),
    ],
)
def test_covariances_that_are_none_are_refused(kind, covars, message):
    with pytest.raises(ValueError, match=message):
        compat.GaussianHMM(2, kind).covars_ = covars


def test_estimators_can_be_cloned_and_pickled():
    X = DATA["PoissonHMM"][:, :1]
    model = compat.PoissonHMM(3, n_iter=3, lambdas_weight=0.5).fit(X)
    assert "n_iter=3" in repr(model)
    assert clone(model).get_params()["lambdas_weight"] == 0.5
    assert not hasattr(clone(model), "lambdas_")
    again = pickle.loads(pickle.dumps(model.partial_fit(X)))
    np.testing.assert_array_equal(again.partial_fit(X).lambdas_, model.partial_fit(X).lambdas_)


def test_a_monitor_of_ones_own_decides_when_to_stop():
    class Threshold(hmmlearn.base.ConvergenceMonitor):
        @property
        def converged(self):
            return self.history[-1] > -2000.0

    model = compat.PoissonHMM(3, n_iter=100, random_state=0)
    model.monitor_ = Threshold(0.0, 100, False)
    model.fit(DATA["PoissonHMM"])
    assert model.monitor_.history[-1] > -2000.0 >= max([*model.monitor_.history][:-1])


def test_a_record_that_is_refused_changes_nothing():
    X = DATA["PoissonHMM"]
    model = compat.PoissonHMM(3, random_state=0).fit(X)
    before = model.lambdas_.copy()
    for bad, lengths, message in (
        (X - 3, None, r"X\[0, 0\] is -"),
        (X, [10], "lengths must be"),
        (X[:, :2], None, "has 3"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(bad, lengths)
    np.testing.assert_array_equal(model.lambdas_, before)


def test_verbose_reports_go_to_stderr_as_hmmlearns_do(capsys):
    for model in both("PoissonHMM", n_components=3, n_iter=3, random_state=0, verbose=True):
        model.fit(DATA["PoissonHMM"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == lines[3:]


# --- where hmmlearn goes wrong --------------------------------------------------------------------------------------


def test_covariances_are_learned_with_means_held():
    """hmmlearn 0.3.3 divides by nothing here."""
    X = DATA["GaussianHMM"]
    model = compat.GaussianHMM(3, "full", params="c", covars_prior=0.0, init_params="c", n_iter=1)
    model.startprob_, model.transmat_ = [1.0, 0.0, 0.0], np.eye(3)
    model.means_ = np.tile(X.mean(axis=0), (3, 1))
    np.testing.assert_allclose(model.fit(X).covars_[0], np.cov(X.T, bias=True), rtol=1e-9)


def test_spherical_covariances_have_one_matrix_for_each_state():
    model = compat.GaussianHMM(3, "spherical", random_state=0).fit(DATA["GaussianHMM"])
    assert model.covars_.shape == (3, 3, 3)


@pytest.mark.parametrize("kind", TYPES)
def test_data_far_from_zero_lose_no_digits(kind):
    X = np.round(DATA["GaussianHMM"] * 64.0) / 64.0  # exact after the shift, too
    near, far = (compat.GaussianHMM(3, kind, random_state=4, n_iter=8).fit(X + offset) for offset in (0.0, 2.0**26))
    np.testing.assert_allclose(far.covars_, near.covars_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(far.means_ - 2.0**26, near.means_, rtol=0, atol=1e-6)


def test_missing_values_are_learned_around():
    """As exactly as BatchHMM does it, from the same start, and without priors."""
    X = DATA["PoissonHMM"].astype(float)
    X[::7, 1] = np.nan
    X[::11] = np.nan
    model = compat.PoissonHMM(3, random_state=1, n_iter=6, tol=-np.inf)
    model.n_iter = 0
    start = model.fit(X, LENGTHS).model_
    model.n_iter, model.init_params = 6, ""
    batch = BatchHMM(init=start, n_iter=6, tol=-np.inf).fit(X, lengths=LENGTHS)
    model.fit(X, LENGTHS)
    np.testing.assert_allclose(model.lambdas_, batch.rates_, rtol=1e-9)
    np.testing.assert_allclose(model.transmat_, batch.transmat_, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(model.monitor_.history, batch.history_[:-1], rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X, LENGTHS), batch.smooth_proba(X, lengths=LENGTHS), atol=1e-12)
    for name in ("GaussianHMM", "CategoricalHMM", "MultinomialHMM"):
        X = DATA[name].astype(float)
        X[::7, 0] = np.nan
        model = getattr(compat, name)(3, random_state=1).fit(X)
        assert np.isfinite(model.score(X))


def test_a_state_that_is_not_visited_stays_where_it_is():
    model = compat.PoissonHMM(3, init_params="")
    model.startprob_, model.transmat_ = [1.0, 0.0, 0.0], np.eye(3)
    model.lambdas_ = [[3.0, 3.0, 3.0], [7.0, 7.0, 7.0], [1.0, 2.0, 3.0]]
    model.fit(DATA["PoissonHMM"])
    np.testing.assert_array_equal(model.lambdas_[1], 7.0)
    np.testing.assert_allclose(model.lambdas_[0], DATA["PoissonHMM"].mean(axis=0))


def test_sequences_of_one_row_have_no_transitions(caplog):
    ours, theirs = both("GaussianHMM", n_components=3, random_state=0)
    for model in (ours, theirs):
        model.fit(DATA["GaussianHMM"][::10], [1] * 30)
    assert_same(ours, theirs, "GaussianHMM")
    assert not ours.transmat_.any()
    assert "row of zeros" in caplog.text


# --- partial_fit ----------------------------------------------------------------------------------------------------


def online_settings(model):
    """Slow steps, and the first M-step when each state is likely to have been seen."""
    stays = 1 / (1 - np.diag(model.transmat_))
    return {"step": Power(0.8), "n_min": int(np.clip(5 * stays, 50, 1000).sum())}


def test_partial_fit_is_online_em_from_where_the_model_stands():
    X = DATA["PoissonHMM"][:, :1]
    model = compat.PoissonHMM(3, random_state=0).fit(X)
    settings = online_settings(model)
    assert 150 <= settings["n_min"] < 1000
    X = np.tile(X, (7, 1))
    learner = Learner(model.model_, **settings)
    online = OnlineHMM(init=model.model_, **settings)
    for chunk in np.array_split(X, 7):
        model.partial_fit(chunk)
        learner.learn(chunk)
        online.partial_fit(chunk)
        np.testing.assert_array_equal(model.lambdas_, learner.model.emission.rates)
        np.testing.assert_array_equal(model.transmat_, online.transmat_)
    model.partial_fit(X[:300], LENGTHS)
    learner.learn(X[:300], LENGTHS)
    np.testing.assert_array_equal(model.transmat_, learner.model.transmat)

    model.lambdas_[0] += 1.0  # in place: it is noticed, and learning goes on from here
    again = Learner(model.model_, **online_settings(model))
    again.learn(X)
    np.testing.assert_array_equal(model.partial_fit(X).lambdas_, again.model.emission.rates)


@pytest.mark.parametrize("name", NAMES)
def test_partial_fit_finds_its_own_start_and_learns_the_model(name):
    """Within 0.02 a row of the log-likelihood of the true model, on rows that were not learned from: the 20 parameters
    cost about 20 / 2 / 6000 = 0.002, and the difference of two scores on 2000 rows is off by 0.005 or so."""
    world = getattr(compat, name)(3, random_state=0)
    world.startprob_, world.transmat_ = np.full(3, 1 / 3), 0.96 * np.eye(3) + 0.04 / 3
    if name == "GaussianHMM":
        world.covariance_type = "full"
        world.means_ = np.array([[0.0, 3.0], [4.0, 0.0], [-3.0, -3.0]])
        world.covars_ = np.array([1.0, 2.0, 3.0])[:, np.newaxis, np.newaxis] * (np.eye(2) + 0.2)
    elif name == "PoissonHMM":
        world.lambdas_ = np.array([[1.0], [6.0], [15.0]])
    else:
        world.emissionprob_ = np.full((3, 3 if name == "MultinomialHMM" else 4), 0.05)
        world.emissionprob_[:, :3] += 0.8 * np.eye(3)
        world.emissionprob_ /= world.emissionprob_.sum(axis=1, keepdims=True)
    if name == "MultinomialHMM":
        world.n_trials = 4
    X, _ = world.sample(8000)
    model = clone(world)
    first = model.partial_fit(X[:1000]).score(X[6000:])
    for chunk in np.array_split(X[1000:6000], 25):
        model.partial_fit(chunk)
    best, last = world.score(X[6000:]), model.score(X[6000:])
    assert last > first
    assert abs(best - last) / 2000 < 0.02


def test_partial_fit_keeps_what_was_set_and_what_is_impossible():
    model = compat.PoissonHMM(3)
    model.transmat_ = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.1, 0.9]]
    model.startprob_ = [0.0, 1.0, 0.0]
    model.partial_fit(DATA["PoissonHMM"][:, :1]).partial_fit(DATA["PoissonHMM"][:, :1])
    np.testing.assert_array_equal(model.startprob_, [0.0, 1.0, 0.0])
    assert model.transmat_[[0, 2], [2, 0]].tolist() == [0.0, 0.0]
    assert not np.array_equal(model.transmat_[0], [0.9, 0.1, 0.0])


def test_a_chunk_that_is_refused_changes_nothing():
    model = compat.CategoricalHMM(3, random_state=0)
    with pytest.raises(ValueError, match="not negative"):
        model.partial_fit(np.array([[0], [-1]]))
    assert not hasattr(model, "startprob_")
    assert model.n_features is None
    model.partial_fit(DATA["CategoricalHMM"])
    before = model.emissionprob_.copy()
    with pytest.raises(ValueError, match=r"X\[1, 0\] is 9"):
        model.partial_fit(np.array([[0], [9]]))
    np.testing.assert_array_equal(model.emissionprob_, before)
    with pytest.raises(ValueError, match="would hold"):
        compat.PoissonHMM(2, params="sl").partial_fit(DATA["PoissonHMM"])


def test_the_model_moves_on_to_hmmstream():
    X = DATA["PoissonHMM"]
    model = compat.PoissonHMM(3, init_params="st", params="tl", n_iter=500, tol=1e-9, random_state=0)
    model.lambdas_ = [[1, 4, 9], [5, 5, 1], [9, 1, 2]]
    model.fit(X)
    assert isinstance(model.model_.emission, Poisson)
    assert model.model_.log_likelihood(X) == pytest.approx(model.score(X), rel=1e-12)
    assert (model.model_.standard_errors(X)["rates"] > 0.05).all()


# --- hmmlearn's own tests -------------------------------------------------------------------------------------------

N_TESTS = {"test_categorical_hmm": 22, "test_gaussian_hmm": 98, "test_multinomial_hmm": 16, "test_poisson_hmm": 12}
FAILURES = {
    "test_gaussian_hmm.TestGaussianHMMWithSphericalCovars::test_underflow_from_scaling[scaling]": (
        "expects that implementation='scaling' fails on an outlier; here it does not"
    )
}


def module(case):
    """The file that a test is in: the classname of the report is package.module.class."""
    return case.get("classname").split(".")[-2]


def test_hmmlearns_own_tests_pass(tmp_path):
    """In a process of their own, in which its four classes have been replaced by these."""
    folder = Path(hmmlearn.hmm.__file__).parent / "tests"
    (tmp_path / "pytest.ini").touch()  # no settings of ours
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [
        f"--rootdir={folder}",
        "-p",
        "hmmlearn_in_place",
        "--junitxml=report.xml",
        *(str(folder / f"{name}.py") for name in N_TESTS),
    ]
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": path, "HMMLEARN_SEED": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    cases = list(ElementTree.parse(tmp_path / "report.xml").iter("testcase"))
    assert Counter(module(case) for case in cases) == N_TESTS
    failed = {
        f"{module(case)}.{case.get('classname').split('.')[-1]}::{case.get('name')}"
        for case in cases
        if any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped"))
    }
    assert failed == set(FAILURES), done.stdout[-5000:]


def test_the_table_in_the_documentation_counts_these_tests():
    page = (Path(__file__).parent.parent / "docs" / "coming-from-hmmlearn.md").read_text()
    for name, total in N_TESTS.items():
        n_failures = sum(failure.startswith(f"{name}.") for failure in FAILURES)
        assert f"| `{name}.py` | {total} | {total - n_failures} | {n_failures} |" in page
    for failure in FAILURES:
        assert failure.split("::")[-1] in page
