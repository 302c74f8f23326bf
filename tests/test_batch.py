"""Batch EM: both forms equal the textbook's, the likelihood never falls, and published values come out."""

import warnings
from pathlib import Path

import models
import numpy as np
import pytest
import reference
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from hmmstream import (
    HMM,
    BatchHMM,
    Categorical,
    Gaussian,
    Independent,
    Masked,
    OnlineHMM,
    Poisson,
    inference,
)
from hmmstream.emissions import FAMILIES

TOLERANCE = 1e-10
DATA = Path(__file__).parent.parent.parent / "shared" / "data"
METHODS = ["forward-backward", "recursive"]
STARTS = ["free", "fixed", "stationary"]
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the recordings of ../shared/data")


def assert_same_model(a, b, tolerance=TOLERANCE):
    np.testing.assert_allclose(a.startprob, b.startprob, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(models.values(a), models.values(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("family", "structure", "method"),
    [(*pair, METHODS[0]) for pair in models.ALL]
    + [(family, structure, METHODS[1]) for family in models.CROSSED for structure in models.structures(family)],
)
def test_em_equals_the_textbook_on_sequences_with_gaps(family, structure, method):
    start = models.rough_start(family, structure)
    lengths = [1, 100, 1, 48]
    X = models.with_gaps(models.make(family, structure).sample(150, 1)[0], 0.1)
    sequences = np.split(X, np.cumsum(lengths)[:-1])
    for with_first in (True, False):
        fitted = BatchHMM(init=start, n_iter=3, tol=-np.inf, method=method, with_first=with_first)
        expected = reference.batch_em(start, sequences, 3, with_first)
        assert_same_model(fitted.fit(X, lengths=lengths).model_, expected)
    log_likelihood = reference.expect(fitted.model_, sequences)[0]
    assert fitted.log_likelihood_ == pytest.approx(log_likelihood, rel=TOLERANCE)


@pytest.mark.parametrize("with_first", [True, False])
def test_recursive_em_equals_forward_backward_em_on_a_long_record(with_first):
    X = models.paper_model().sample(20_000, 2)[0]
    settings = {"init": models.paper_start(), "n_iter": 30, "tol": -np.inf, "with_first": with_first}
    a, b = (BatchHMM(method=method, **settings).fit(X) for method in METHODS)
    assert_same_model(a.model_, b.model_)
    np.testing.assert_allclose(a.history_, b.history_, rtol=TOLERANCE)


def test_without_its_first_observation_em_is_another_estimate():
    X = models.paper_model().sample(500, 3)[0]
    a, b = (BatchHMM(init=models.paper_start(), n_iter=20, with_first=first).fit(X) for first in (True, False))
    assert abs(a.means_ - b.means_).max() > 1e-5


@pytest.mark.parametrize(
    ("family", "structure", "start"),
    [(*pair, "fixed") for pair in models.ALL]
    + [("gaussian-paper", structure, start) for structure in models.STRUCTURES for start in ("free", "stationary")]
    + [("categorical", "full", "free"), ("categorical", "tied", "stationary")],
)
def test_the_likelihood_never_falls_and_the_end_is_a_stationary_point(family, structure, start):
    X = models.with_gaps(models.make(family, structure).sample(400, 4)[0], 0.05)
    lengths = [250, 150]
    init = models.rough_start(family, structure)
    hmm = BatchHMM(init=init, n_iter=500, tol=1e-7, start=start).fit(X, lengths=lengths)
    assert np.diff(hmm.history_).min() > -1e-9
    assert hmm.log_likelihood_ == pytest.approx(hmm.model_.log_likelihood(X, lengths), rel=1e-12)
    identified = structure != "independent" or family not in ("categorical", "bernoulli")  # else EM creeps on for ever
    assert hmm.converged_ or not identified
    assert len(hmm.history_) == hmm.n_iter_ + 1
    if start == "fixed":
        np.testing.assert_array_equal(hmm.startprob_, init.startprob)
    if start == "stationary":
        np.testing.assert_allclose(hmm.startprob_, hmm.model_.stationary_distribution(), atol=1e-12)
    on_edge = hmm.transmat_[init.transmat > 0].min() < 1e-6 or start == "free"  # where the score need not vanish
    if identified and not on_edge:
        score = hmm.model_.score_vector(X, lengths, start=start)
        information = hmm.model_.fisher_information(X, lengths, start=start)
        assert score @ np.linalg.solve(information, score) < 1e-3  # twice what Newton's method could still gain


def test_a_falling_likelihood_is_an_error():
    class Wrong(models.Rayleigh):
        def feature_maximize(self, s, overall, theta):
            theta[0] = 3.0 * s[0]

    world = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Wrong([1.0, 3.0]))
    with pytest.raises(RuntimeError, match=r"log-likelihood fell by .* the M-step of Wrong"):
        BatchHMM(init=world).fit(world.sample(300, 0)[0])


@pytest.mark.parametrize("family", ["gaussian-full", "poisson"])
def test_the_number_of_cores_changes_nothing(family, monkeypatch):
    monkeypatch.setattr(inference, "CHUNK_ROWS", 100)
    hmm = models.make(family)
    lengths = np.full(60, 25)
    X = hmm.sample(lengths.sum(), 5)[0]
    one, two = (BatchHMM(init=hmm, n_iter=5, n_jobs=n).fit(X, lengths=lengths) for n in (1, 2))
    np.testing.assert_array_equal(one.history_, two.history_)
    np.testing.assert_array_equal(models.values(one.model_), models.values(two.model_))
    assert len(inference.chunks(inference.record(hmm.emission, X, lengths))) == 15


def test_many_short_sequences_are_worked_on_together():
    lengths = np.full(50_000, 2)
    data = inference.Record(np.zeros((100_000, 1)), np.arange(100_000) % 2 == 0)
    pieces = inference.chunks(data)
    assert sum(len(piece) for piece in pieces) == lengths.sum()
    assert 2 <= len(pieces) <= 4
    assert all(piece.is_start[0] for piece in pieces)


def test_a_left_right_chain_is_fitted_and_keeps_its_zeros():
    world = HMM(
        [1.0, 0.0, 0.0],
        [[0.95, 0.05, 0.0], [0.0, 0.95, 0.05], [0.0, 0.0, 1.0]],
        Gaussian("diag", means=[0.0, 40.0, 90.0], covars=[[1.0], [4.0], [1.0]]),
        Masked.left_right(3, max_jump=1),
    )
    sequences = [world.sample(80, seed)[0] for seed in range(20)]
    X, lengths = np.concatenate(sequences), [80] * 20
    hmm = BatchHMM(3, Gaussian("diag"), transition=Masked.left_right(3, max_jump=1), random_state=0)
    hmm.fit(X, lengths=lengths)
    np.testing.assert_array_equal(hmm.transmat_ == 0, world.transmat == 0)
    np.testing.assert_allclose(hmm.means_, world.emission.means, atol=1.0)
    np.testing.assert_allclose(hmm.transmat_, world.transmat, atol=0.02)


def test_hard_data_are_fitted_without_a_warning_or_a_nan():
    chain = ([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]])
    records = {
        "constant": np.full(200, 3.0),
        "outlier": np.append(np.random.default_rng(0).standard_normal(200), 1e6),
        "offset": np.random.default_rng(1).standard_normal(300) + 1e8,
        "two points": np.repeat([0.0, 1.0], 100),
        "one row": np.array([2.0]),
        "missing": np.append(np.full(20, np.nan), [1.0, 2.0, 1.5]),
    }
    for name, X in records.items():
        start = HMM(*chain, Gaussian("full", means=[np.nanmin(X), np.nanmax(X) + 1], covars=[1.0, 1.0]))
        for init in (start, "auto"):
            hmm = BatchHMM(init=init, n_iter=30, random_state=0).fit(X)
            assert np.isfinite(models.values(hmm.model_)).all(), name
            assert np.diff(hmm.history_).min(initial=0.0) > -1e-6, name


def correlated(seed, n_features):
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((200, 1)) < 0.5, 0, 4) + rng.normal(size=(200, n_features - 1))
    return np.column_stack([x, x.sum(axis=1)])


@pytest.mark.parametrize("covariance", ["full", "diag", "spherical", "tied"])
def test_states_that_collapse_are_stopped_without_an_error(covariance):
    """Features that determine each other, constant columns, few rows, repeated rows, missing values."""
    rng = np.random.default_rng(0)
    n_features = 3 if covariance == "full" else 2  # three are no harder for the others
    gaps = rng.normal(size=(60, n_features))
    gaps[rng.random(gaps.shape) < 0.3] = np.nan
    records = [*(correlated(seed, n_features) for seed in range(5)), gaps]
    records += [np.full((50, 2), 7.0), rng.normal(size=(5, 2))]
    records += [
        np.column_stack([rng.normal(size=100), np.full(100, 1.5)]),
        np.repeat(rng.normal(size=(4, 2)), 20, axis=0),
    ]
    for X in records:
        hmm = BatchHMM(3, Gaussian(covariance), n_iter=60, random_state=0).fit(X)
        assert np.isfinite(models.values(hmm.model_)).all()
        assert np.diff(hmm.history_).min(initial=0.0) >= -1e-10 * (abs(hmm.history_).max() + len(X))
        assert hmm.log_likelihood_ == pytest.approx(hmm.model_.log_likelihood(X), rel=1e-9)


def test_a_start_narrower_than_the_data_allow_is_widened():
    z = np.concatenate([np.zeros(100), np.random.default_rng(0).normal(size=100)])
    start = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Gaussian("diag", means=[0, 0.1], covars=[[1e-20], [1]]))
    hmm = BatchHMM(init=start).fit(z)
    assert np.diff(hmm.history_).min() > -1e-9
    assert 1e-14 < hmm.covars_.min() < 1e-11


def test_zeros_and_missing_values_of_waiting_times():
    rng = np.random.default_rng(3)
    for seed in range(10):
        X = np.random.default_rng(seed).exponential(size=(40, 2))
        X[rng.random(X.shape) < 0.3] = 0.0
        X[rng.random(X.shape) < 0.2] = np.nan
        hmm = BatchHMM(3, "exponential", n_iter=60, random_state=0).fit(X)
        assert np.isfinite(hmm.rates_).all()


def test_the_recursive_form_leaves_to_logarithms_what_it_would_lose():
    rng = np.random.default_rng(0)
    means = Gaussian("diag", means=[0, 60], covars=[[1], [1]])
    start = HMM([0.5, 0.5], [[0.99, 0.01], [0.0, 1.0]], means, Masked.left_right(2))
    X = np.concatenate([rng.normal(size=20), [55.0], rng.normal(size=20), 60 + rng.normal(size=20)])
    a, b = (BatchHMM(init=start, method=method).fit(X) for method in METHODS)
    assert a.history_[0] == pytest.approx(reference.infer(start, X[:, None]).log_likelihood, rel=TOLERANCE)
    np.testing.assert_allclose(a.history_, b.history_, rtol=1e-9)


def test_a_stationary_start_of_a_left_right_chain_and_of_one_with_zeros():
    world = HMM([1.0, 0.0], [[0.9, 0.1], [0.0, 1.0]], Poisson([1.0, 9.0]), Masked.left_right(2))
    X = world.sample(60, 0)[0]
    hmm = BatchHMM(init=world, start="stationary", n_iter=20).fit(X)
    np.testing.assert_array_equal(hmm.startprob_, [0.0, 1.0])
    full = HMM([0.5, 0.5], [[0.5, 0.5], [1.0, 0.0]], Poisson([1.0, 9.0]))
    assert BatchHMM(init=full, start="stationary", n_iter=20).fit(X).log_likelihood_ > full.log_likelihood(X)


@pytest.mark.parametrize("family", sorted(models.FAMILIES))
def test_no_record_breaks_batch_em(family):
    """8 or 15 records a family: few rows, rounded, constant, scaled or far-off values, gaps, short sequences."""
    emission = models.specification(models.FAMILIES[family])
    structures = {name: models.STRUCTURES[name][0] for name in models.structures(family)}
    if "masked" in structures:
        structures["masked"] = Masked.left_right(3)
    for seed in range(15 if family in models.CROSSED else 8):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([1, 2, 5, 20, 100]))
        X = models.make(family).sample(n, seed)[0].astype(float)
        if family.startswith("gaussian") or family == "linear-regression":
            X = [X, np.round(X), X * 10.0 ** rng.integers(-6, 7, X.shape[1]), X + 1e6, X * 0.0, X**9][rng.integers(6)]
        elif family == "von-mises":
            X = [X, np.round(X), X * 1000.0, X * 0.0 + 1.0][rng.integers(4)]
        elif family not in ("categorical", "bernoulli", "mixed"):
            X = [X, np.ceil(X), X * 1000.0, X * 0.0 + 1.0][rng.integers(4)]
        X[rng.random(X.shape) < rng.choice([0.0, 0.3])] = np.nan
        lengths = None
        if rng.random() < 0.4:
            lengths = np.diff([0, *np.flatnonzero(rng.random(n - 1) < 0.3) + 1, n])
        settings = {"start": str(rng.choice(STARTS)), "method": str(rng.choice(METHODS))}
        transition = structures[str(rng.choice(list(structures)))]
        if family not in models.CROSSED:
            settings = {}
        hmm = BatchHMM(3, emission, transition=transition, n_iter=15, random_state=0, **settings)
        hmm.fit(X, lengths=lengths)
        assert np.isfinite(models.values(hmm.model_)).all(), seed
        log_likelihood = hmm.model_.log_likelihood(X, lengths)
        assert hmm.log_likelihood_ == pytest.approx(log_likelihood, rel=1e-8, abs=1e-8 * n), seed
        assert (np.diff(hmm.history_) > -1e-9 * (abs(log_likelihood) + n)).all(), seed


def test_a_state_that_nothing_visits_keeps_its_values():
    start = HMM([0.5, 0.5, 0.0], np.full((3, 3), 1 / 3), Gaussian("diag", means=[0.0, 1.0, 1e5], covars=[[1.0]] * 3))
    X = models.paper_model().sample(500, 0)[0]
    hmm = BatchHMM(init=start, n_iter=10).fit(X)
    assert hmm.means_[2, 0] == 1e5
    np.testing.assert_allclose(hmm.transmat_.sum(axis=1), 1.0, atol=1e-12)


def test_a_record_of_missing_values_teaches_nothing():
    hmm = BatchHMM(init=models.paper_start(), n_iter=3).fit(np.full(10, np.nan))
    np.testing.assert_array_equal(models.values(hmm.model_), models.values(models.paper_start()))
    assert hmm.log_likelihood_ == pytest.approx(0.0, abs=1e-12)


# --- published values -----------------------------------------------------------------------------------------------


def column(name, at):
    return np.genfromtxt(DATA / name, delimiter=",", skip_header=1, usecols=at)


@needs_data
@pytest.mark.parametrize(("m", "published"), [(2, -342.3183), (3, -329.4603)])
def test_earthquakes(m, published):
    """Zucchini & MacDonald: Poisson chains that start from their stationary distribution."""
    counts = column("earthquakes.csv", 1)
    hmm = BatchHMM(m, "poisson", start="stationary", n_iter=1000, tol=1e-8, n_init=3, random_state=0).fit(counts)
    assert hmm.log_likelihood_ == pytest.approx(published, abs=5e-5)


@needs_data
@pytest.mark.parametrize(("m", "published"), [(1, -305.33), (2, -88.73)])
def test_response_times(m, published):
    """depmixS4's manual: one Gaussian series."""
    times = column("speed.csv", 0)
    hmm = BatchHMM(m, "gaussian", n_iter=1000, tol=1e-8, n_init=3, random_state=0).fit(times)
    assert hmm.log_likelihood_ == pytest.approx(published, abs=5e-3)


def test_umbrellas():
    """Russell & Norvig's example, as in hmmlearn's tests."""
    hmm = HMM([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], Categorical(probs=[[0.9, 0.1], [0.2, 0.8]]))
    umbrella = [0, 0, 1, 0, 0]
    assert hmm.log_likelihood(umbrella) == pytest.approx(-3.3725, abs=5e-5)
    log_probability, states = hmm.decode(umbrella)
    assert log_probability == pytest.approx(-4.4590, abs=5e-5)
    assert states.tolist() == [0, 0, 1, 0, 0]
    np.testing.assert_allclose(hmm.smooth(umbrella)[:2, 0], [0.867, 0.820], atol=5e-4)


def test_hmmlearn_reaches_the_same_in_50_iterations():
    hmmlearn = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is a peer, not a dependency")
    world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("diag", means=[0.0, 1.0], covars=[[0.5], [0.5]]))
    start = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("diag", means=[-0.5, 0.5], covars=[[2.0], [2.0]]))
    X = world.sample(128_000, 0)[0]
    peer = hmmlearn.GaussianHMM(2, n_iter=50, tol=-np.inf, init_params="", min_covar=0, means_prior=0, means_weight=0)
    peer.covars_prior, peer.covars_weight = 0, 0
    peer.startprob_, peer.transmat_ = start.startprob, start.transmat
    peer.means_, peer.covars_ = start.emission.means, start.emission.covars
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(X)
    hmm = BatchHMM(init=start, n_iter=50, tol=-np.inf).fit(X)
    np.testing.assert_allclose(hmm.history_[:50], list(peer.monitor_.history), rtol=1e-6)
    assert hmm.log_likelihood_ == pytest.approx(peer.score(X), rel=1e-6)
    np.testing.assert_allclose(hmm.means_, peer.means_, rtol=1e-6)


# --- start values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", sorted(models.FAMILIES))
def test_automatic_starts_find_the_model(family):
    """Log-likelihood at least that of the true model less 5, with three starts: EM's best is above the truth by half
    the number of parameters on average."""
    world = models.make(family)
    X = models.with_gaps(world.sample(4000, 1)[0], 0.02)
    name = family.replace("-", "_")
    emission = name if name in FAMILIES else models.specification(world.emission)
    hmm = BatchHMM(3, emission, n_init=3, n_iter=300, tol=1e-4, random_state=0).fit(X)
    assert hmm.log_likelihood_ > world.log_likelihood(X) - 5.0


@pytest.mark.parametrize("structure", ["masked", "tied", "independent"])
def test_automatic_starts_fit_the_structure(structure):
    world = models.make("gaussian-diag", structure)
    X = world.sample(4000, 1)[0]
    hmm = BatchHMM(3, Gaussian("diag"), transition=world.transition, n_iter=300, tol=1e-4, random_state=0).fit(X)
    assert hmm.log_likelihood_ > world.log_likelihood(X) - 5.0


def test_automatic_starts_use_rows_with_missing_values():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((600, 1)) < 0.5, 0, 5) + rng.normal(size=(600, 2))
    X[::2, 0] = np.nan
    X[1::2, 1] = np.nan
    hmm = BatchHMM(2, Gaussian("diag"), random_state=0).fit(X)
    np.testing.assert_allclose(hmm.means_, [[0, 0], [5, 5]], atol=0.4)


def test_automatic_starts_look_at_windows_of_a_long_record():
    world = models.paper_model()
    X = np.tile(world.sample(50_000, 0)[0], (6, 1))
    hmm = BatchHMM(2, Gaussian("tied"), n_iter=0, random_state=0).fit(X)
    np.testing.assert_allclose(hmm.means_, [[-0.1], [1.1]], atol=0.5)


def test_automatic_starts_survive_data_of_any_size():
    for X in ([1, 2, 1e200, -1e200, 3], [1, 2, 1e308, -1e308, 3], [1e-300, 2e-300, 1e-300, 3e-300]):
        assert np.isfinite(models.values(BatchHMM(2, random_state=0, n_iter=5).fit(X).model_)).all()


def test_more_starts_are_never_worse_and_the_seed_decides():
    X = models.make("categorical").sample(500, 2)[0]
    settings = {"n_components": 3, "emission": "categorical", "n_iter": 50}
    one = BatchHMM(random_state=1, **settings).fit(X)
    four = BatchHMM(random_state=1, n_init=4, **settings).fit(X)
    again = BatchHMM(random_state=1, n_init=4, **settings).fit(X)
    assert four.log_likelihood_ >= one.log_likelihood_
    np.testing.assert_array_equal(models.values(four.model_), models.values(again.model_))


def test_families_by_name():
    for name in ("gaussian", "poisson", "categorical", "exponential", "bernoulli"):
        X = np.random.default_rng(0).integers(0, 2, 100).astype(float)
        assert BatchHMM(3, name, n_iter=2, random_state=0).fit(X).model_.n_components == 3


def test_emission_values_without_a_start_are_where_em_begins():
    X = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Poisson([1.0, 8.0])).sample(200, 0)[0]
    hmm = BatchHMM(2, Poisson([1.5, 7.0]), n_iter=0, random_state=0).fit(X)
    np.testing.assert_array_equal(hmm.rates_, [[1.5], [7.0]])
    with pytest.raises(ValueError, match="n_components is 3, but the emission has the values of 2 states"):
        BatchHMM(3, Poisson([1.5, 7.0])).fit(X)


# --- the estimator --------------------------------------------------------------------------------------------------


def test_it_is_an_estimator_with_the_methods_of_its_model():
    world = models.paper_model()
    X = world.sample(500, 0)[0]
    hmm = BatchHMM(init=models.paper_start(), n_iter=5)
    assert clone(hmm).get_params()["n_iter"] == 5
    with pytest.raises(NotFittedError, match="call fit"):
        hmm.predict(X)
    with pytest.raises(NotFittedError, match="call fit"):
        _ = hmm.means_
    assert hmm.fit(X) is hmm
    model = hmm.model_
    np.testing.assert_array_equal(hmm.predict_proba(X), model.filter(X))
    np.testing.assert_array_equal(hmm.predict(X), model.filter(X).argmax(axis=1))
    np.testing.assert_array_equal(hmm.smooth_proba(X), model.smooth(X))
    np.testing.assert_array_equal(hmm.decode(X)[1], model.decode(X)[1])
    np.testing.assert_array_equal(hmm.score_samples(X), model.log_predictive(X))
    assert hmm.score(X) == pytest.approx(model.log_likelihood(X) / 500)
    np.testing.assert_array_equal(hmm.forecast(2).states, model.forecast(2, model.filter(X)[-1]).states)
    assert hmm.sample(3, random_state=0)[0].shape == (3, 1)
    assert hmm.n_features_in_ == 1
    assert hmm.aic(X) == model.aic(X, start="free")
    assert hmm.bic(X) == model.bic(X, start="free")


def test_the_online_estimator_has_them_too():
    X = models.paper_model().sample(2000, 0)[0]
    hmm = OnlineHMM(init=models.paper_start()).partial_fit(X)
    np.testing.assert_array_equal(hmm.predict_proba(X), hmm.model_.filter(X))
    np.testing.assert_array_equal(hmm.forecast(3).states, hmm.model_.forecast(3, hmm.filtered_proba_).states)
    assert hmm.score_samples(X).sum() / 2000 == pytest.approx(hmm.score(X))


def test_settings_that_make_no_sense_are_refused():
    X = models.paper_model().sample(50, 0)[0]
    start = models.paper_start()
    for settings, message in [
        ({"method": "magic"}, "method must be one of"),
        ({"start": "random"}, "start must be one of"),
        ({"init": "kmeans"}, "init must be 'auto' or an HMM"),
        ({"init": start, "n_init": 2}, "only one start"),
        ({"n_iter": -1}, "n_iter must be an integer"),
        ({"n_components": 0}, "n_components must be a positive integer"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"tol": "small"}, "tol must be a number"),
        ({"random_state": np.random.RandomState(0)}, "random_state must be an integer"),
        ({"emission": "zeta"}, "emission must be one of"),
        ({"init": start, "transition": Independent()}, "has no such|must be equal"),
        ({"init": start, "n_components": 3}, "init has 2 states"),
    ]:
        with pytest.raises(ValueError, match=message):
            BatchHMM(**settings).fit(X)
    for data, message in [
        (np.empty((0, 1)), "X has no rows"),
        (3.0, "X must have shape"),
        (None, "X must have shape"),
        ([["a"]], "X must hold real numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            BatchHMM(init=start).fit(data)
    with pytest.raises(ValueError, match="one of the symbols"):
        BatchHMM(2, "categorical").fit([0, 1, np.inf])
    with pytest.raises(ValueError, match=r"X holds the symbol 1e\+12"):
        BatchHMM(2, "categorical").fit([0, 1, 1e12])


def test_verbose_shows_progress(capsys):
    BatchHMM(init=models.paper_start(), n_iter=2, tol=0, verbose=True).fit(models.paper_model().sample(100, 0)[0])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("iteration 2: log-likelihood -")
