"""Exact inference equals the enumeration of all paths, and its plain twin in logarithms on long records."""

import math

import models
import numpy as np
import pytest
import reference

from hmmstream import HMM, BatchHMM, Categorical, Gaussian, Masked, Poisson, VonMises, inference

TOLERANCE = 1e-10


def assert_equals(hmm, X, expected):
    assert hmm.log_likelihood(X) == pytest.approx(expected.log_likelihood, rel=TOLERANCE)
    assert hmm.log_predictive(X).sum() == pytest.approx(expected.log_likelihood, rel=TOLERANCE)
    np.testing.assert_allclose(hmm.filter(X), expected.filtered, atol=TOLERANCE)
    np.testing.assert_allclose(hmm.smooth(X), expected.smoothed, atol=TOLERANCE)
    np.testing.assert_allclose(hmm.smooth_pairs(X), expected.pairs, atol=TOLERANCE)
    log_best, best = hmm.decode(X)
    assert log_best == pytest.approx(expected.log_best, rel=TOLERANCE)
    assert reference.log_joint(hmm, reference.log_densities(hmm, X), tuple(best)) == pytest.approx(
        log_best, rel=TOLERANCE
    )


@pytest.mark.parametrize(("family", "structure"), models.ALL)
@pytest.mark.parametrize("gaps", [0.0, 0.3], ids=["complete", "gaps"])
def test_inference_equals_the_sum_over_all_paths(family, structure, gaps):
    hmm = models.make(family, structure)
    for n in (1, 6):
        X = models.with_gaps(hmm.sample(n, n)[0], gaps, n)
        assert_equals(hmm, X, reference.enumerate_inference(hmm, X))


@pytest.mark.parametrize(("family", "structure"), models.ALL)
def test_inference_equals_its_twin_on_a_long_record(family, structure):
    hmm = models.make(family, structure)
    X = models.with_gaps(hmm.sample(700, 4)[0], 0.1)
    assert_equals(hmm, X, reference.infer(hmm, X))


@pytest.mark.parametrize("family", ["gaussian-full", "poisson"])
def test_sequences_are_independent(family):
    hmm = models.make(family)
    lengths = [1, 30, 2, 1, 1, 65]
    X = models.with_gaps(hmm.sample(sum(lengths), 5)[0], 0.1)
    pieces = [reference.infer(hmm, x) for x in np.split(X, np.cumsum(lengths)[:-1])]
    assert hmm.log_likelihood(X, lengths) == pytest.approx(sum(p.log_likelihood for p in pieces), rel=TOLERANCE)
    assert hmm.log_predictive(X, lengths).sum() == pytest.approx(sum(p.log_likelihood for p in pieces), rel=TOLERANCE)
    for method, field in (("filter", "filtered"), ("smooth", "smoothed"), ("smooth_pairs", "pairs")):
        expected = np.concatenate([getattr(piece, field) for piece in pieces])
        np.testing.assert_allclose(getattr(hmm, method)(X, lengths), expected, atol=TOLERANCE)
    log_best, best = hmm.decode(X, lengths)
    assert log_best == pytest.approx(sum(p.log_best for p in pieces), rel=TOLERANCE)
    np.testing.assert_array_equal(best, np.concatenate([piece.best for piece in pieces]))


@pytest.mark.parametrize("m", [1, 2, 3, 8, 9, 16, 33])
def test_any_number_of_states(m):
    rng = np.random.default_rng(m)
    hmm = HMM(rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(m), size=m), Poisson(rng.uniform(0.5, 20, m)))
    X = hmm.sample(300, 1)[0]
    assert_equals(hmm, X, reference.infer(hmm, X))


def test_blocks_change_nothing(monkeypatch):
    hmm = models.make("gaussian-full")
    X = models.with_gaps(hmm.sample(1000, 6)[0], 0.1)
    lengths = [1, 99, 250, 350, 300]
    whole = [hmm.log_likelihood(X, lengths), hmm.filter(X, lengths), hmm.smooth(X, lengths), *hmm.decode(X, lengths)]
    whole += [hmm.score_vector(X, lengths), hmm.score_increments(X, lengths), hmm.log_predictive(X, lengths)]
    for rows in (1, 7, 100, 999):
        monkeypatch.setattr(inference, "BLOCK_SIZE", rows * 3)
        blocks = [hmm.log_likelihood(X, lengths), hmm.filter(X, lengths), hmm.smooth(X, lengths)]
        blocks += [*hmm.decode(X, lengths), hmm.score_vector(X, lengths)]
        blocks += [hmm.score_increments(X, lengths), hmm.log_predictive(X, lengths)]
        for a, b in zip(whole, blocks, strict=True):
            np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)


def test_paths_are_drawn_from_their_distribution_given_the_data():
    """Each path's frequency within 4.5 standard deviations of its probability: fails by chance in 1 of 1,000 models."""
    hmm = models.make("poisson")
    X = hmm.sample(4, 8)[0]
    size = 200_000
    paths = hmm.sample_states(X, size=size, random_state=0)
    log_g = reference.log_densities(hmm, X)
    codes, counts = np.unique(paths @ 3 ** np.arange(4), return_counts=True)
    frequency = dict(zip(codes.tolist(), counts / size, strict=True))
    for path in np.ndindex(3, 3, 3, 3):
        p = np.exp(reference.log_joint(hmm, log_g, path) - hmm.log_likelihood(X))
        assert abs(frequency.get(int(path @ 3 ** np.arange(4)), 0.0) - p) <= 4.5 * np.sqrt(p * (1 - p) / size) + 1e-9


def test_drawn_paths_respect_sequences_missing_rows_and_impossible_transitions():
    hmm = models.make("gaussian-full", "masked")
    lengths = [1, 40, 9]
    X = models.with_gaps(hmm.sample(50, 3)[0], 0.3)
    path = hmm.sample_states(X, lengths, random_state=1)
    assert path.shape == (50,)
    smoothed = np.mean(hmm.sample_states(X, lengths, size=4000, random_state=2)[:, :, None] == np.arange(3), axis=0)
    assert abs(smoothed - hmm.smooth(X, lengths)).max() < 5 * 0.5 / np.sqrt(4000)  # 150 frequencies: 1 in 10,000
    inside = [t for t in range(1, 50) if t not in (1, 41)]
    assert all(hmm.transmat[path[t - 1], path[t]] > 0 for t in inside)


# --- long and extreme records ---------------------------------------------------------------------------------------


def test_a_million_observations_far_out_of_the_range_of_linear_space():
    """The likelihood is about exp(-1e9), and within a row densities differ by a factor of exp(1000)."""
    rng = np.random.default_rng(0)
    hmm = HMM([0.6, 0.4], [[0.99, 0.01], [0.02, 0.98]], Gaussian("diag", means=[-30.0, 30.0], covars=[[1.0], [1.0]]))
    states = np.repeat(rng.integers(0, 2, 1000), 1000)
    x = np.where(states == 0, -30.0, 30.0) + 45.0 * rng.standard_normal(1_000_000)
    log_g = -0.5 * (x[:, None] - [-30.0, 30.0]) ** 2 - 0.5 * np.log(2 * np.pi)
    log_q = np.log(hmm.transmat)
    predicted, terms = np.log([0.6, 0.4]), []
    for row in log_g:  # in logarithms all the way
        joint = predicted + row
        terms.append(np.logaddexp(*joint))
        predicted = np.logaddexp(*(log_q + (joint - terms[-1])[:, None]))
    expected = math.fsum(terms)
    assert expected < -1e8
    assert hmm.log_likelihood(x) == pytest.approx(expected, rel=1e-12)
    assert np.isfinite(hmm.smooth(x)).all()


def test_a_left_right_chain_with_exact_zeros():
    mask = Masked.left_right(3)
    hmm = HMM(
        [1.0, 0.0, 0.0],
        [[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.0, 0.0, 1.0]],
        Gaussian("diag", means=[0.0, 100.0, 200.0], covars=[[1.0], [1.0], [1.0]]),
        mask,
    )
    X = np.concatenate([np.zeros(5), np.full(5, 100.0), np.full(5, 200.0)])[:, None]
    assert_equals(hmm, X, reference.infer(hmm, X))
    # The first rows look like the last state, which cannot be reached yet: densities of exp(-20000) must not vanish
    X = np.concatenate([np.full(4, 200.0), np.zeros(4)])[:, None]
    assert_equals(hmm, X, reference.infer(hmm, X))


def test_states_that_are_hardly_reachable():
    """A transition of probability 1e-200 whose state alone explains what follows."""
    hmm = HMM(
        [1.0, 0.0, 0.0],
        [[1.0 - 2e-200, 1e-200, 1e-200], [0.3, 0.3, 0.4], [1e-200, 0.5, 0.5]],
        Gaussian("diag", means=[0.0, 60.0, -60.0], covars=[[1.0], [1.0], [1.0]]),
    )
    X = np.array([0.0, 60.0, -60.0, 0.0, -60.0, 60.0, 0.0, 0.0])[:, None]
    assert_equals(hmm, X, reference.infer(hmm, X))


@pytest.mark.parametrize("q", [1e-120, 1e-170, 1e-299, 1e-306])
def test_rare_transitions_one_after_the_other(q):
    """With and without exact zeros: the probability of the path itself is out of range."""
    emission = Gaussian("diag", means=[0.0, 1e3, 2e3], covars=[[1.0]] * 3)
    X = np.array([0.0, 1e3, 2e3, 2e3])[:, None]
    for back in (0.0, q):
        hmm = HMM([1.0, 0.0, 0.0], [[1 - q, q, 0], [back, 1 - q - back, q], [0, 0, 1]], emission)
        assert_equals(hmm, X, reference.infer(hmm, X))
    hmm = HMM([1.0, 0.0, 0.0], [[1 - 2 * q, q, q], [q, 1 - 2 * q, q], [q, q, 1 - 2 * q]], emission)
    assert_equals(hmm, X, reference.infer(hmm, X))


def test_what_is_impossible_in_every_state_says_nothing_about_the_states():
    hmm = HMM([0.6, 0.4], [[0.9, 0.1], [0.2, 0.8]], Categorical(probs=[[0.5, 0.5, 0.0], [0.1, 0.9, 0.0]]))
    X = np.array([0, 1, 2, 1, 0])
    gap = np.array([0, 1, np.nan, 1, 0])
    assert hmm.log_likelihood(X) == -np.inf
    np.testing.assert_allclose(hmm.filter(X), hmm.filter(gap), atol=1e-15)
    np.testing.assert_allclose(hmm.smooth(X), hmm.smooth(gap), atol=1e-15)
    log_best, best = hmm.decode(X)
    assert log_best == -np.inf
    np.testing.assert_array_equal(best, hmm.decode(gap)[1])


def test_no_rows_and_one_row():
    hmm = models.make("poisson")
    empty = np.empty((0, 1))
    assert hmm.log_likelihood(empty) == 0.0
    assert hmm.filter(empty).shape == hmm.smooth(empty).shape == (0, 3)
    assert hmm.decode(empty)[1].shape == (0,)
    assert hmm.sample_states(empty, random_state=0).shape == (0,)
    np.testing.assert_allclose(hmm.filter([4.0]), hmm.smooth([4.0]), atol=1e-15)


@pytest.mark.parametrize("method", ["log_likelihood", "filter", "smooth", "decode", "sample_states", "score_vector"])
def test_bad_records_are_refused_with_row_and_column(method):
    hmm = models.make("bernoulli")
    X = hmm.sample(10, 0)[0].astype(float)
    X[7, 1] = 0.5
    with pytest.raises(ValueError, match=r"X\[7, 1\] is 0.5: Bernoulli expects 0 or 1"):
        getattr(hmm, method)(X)
    with pytest.raises(ValueError, match="lengths must be positive integers that sum to the 10 rows"):
        getattr(hmm, method)(np.zeros_like(X), lengths=[4, 5])


@pytest.mark.parametrize(
    ("family", "bad", "why"),
    [
        ("geometric", 0, "Geometric expects a number of trials: 1, 2, 3, …"),
        ("geometric", 1.5, "Geometric expects a number of trials: 1, 2, 3, …"),
        ("negative-binomial", -1, "NegativeBinomial expects a count"),
        ("negative-binomial-fixed", 0.5, "NegativeBinomial expects a count"),
        ("gamma", 0, "Gamma expects a positive number"),
        ("lognormal", 0, "LogNormal expects a positive number"),
        ("von-mises", np.inf, "VonMises expects an angle in radians, finite"),
    ],
)
def test_values_that_cannot_occur_are_refused(family, bad, why):
    hmm = models.make(family)
    X = hmm.sample(10, 0)[0].astype(float)
    X[7, -1] = bad
    with pytest.raises(ValueError, match=why):
        hmm.log_likelihood(X)


# --- the chain by itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", sorted(models.STRUCTURES))
def test_the_stationary_distribution_is_kept(structure):
    hmm = models.make("poisson", structure)
    pi = hmm.stationary_distribution()
    np.testing.assert_allclose(pi @ hmm.transmat, pi, atol=1e-14)
    assert pi.sum() == pytest.approx(1.0, abs=1e-14)


def test_a_chain_that_falls_apart_has_no_stationary_distribution():
    with pytest.raises(ValueError, match="no unique stationary distribution"):
        HMM([0.5, 0.5], np.eye(2), Poisson([1.0, 2.0])).stationary_distribution()
    halves = np.kron(np.eye(2), np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="no unique stationary distribution"):
        HMM(np.full(4, 0.25), halves, Poisson([1.0, 2.0, 3.0, 4.0])).stationary_distribution()


def test_stationary_distributions_are_exact_to_the_last_digit_whatever_the_time_scale():
    slow = HMM([0.5, 0.5], [[1 - 1e-15, 1e-15], [3e-15, 1 - 3e-15]], Poisson([1.0, 2.0]))
    np.testing.assert_allclose(slow.stationary_distribution(), [0.75, 0.25], rtol=1e-14)
    one_way = HMM([1, 0, 0], [[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]], Poisson([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(one_way.stationary_distribution(), [0, 0, 1])


def indicators(emission, y):
    """What a forecast is about: features as they are, symbols as an indicator each, angles as cosine and sine."""
    match emission:
        case Categorical():
            return (y == np.arange(emission.n_categories)).astype(float)
        case VonMises():
            return np.hstack([np.cos(y), np.sin(y)])
        case models.families.Independent():
            pieces = np.split(y, np.cumsum(emission.part_features)[:-1], axis=1)
            return np.hstack([indicators(part, own) for part, own in zip(emission.parts, pieces, strict=True)])
    return y


@pytest.mark.parametrize(("family", "structure"), [pair for pair in models.ALL if pair[0] != "linear-regression"])
def test_forecasts_agree_with_simulation(family, structure):
    """Mean and variance within 5 standard errors of 20,000 simulated futures: fails in 1 of 1,000 runs."""
    hmm = models.make(family, structure)
    proba = np.array([0.2, 0.3, 0.5])
    forecast = hmm.forecast(3, proba)
    rng = np.random.default_rng(1)
    size = 20_000
    states = rng.choice(3, size, p=proba)
    for h in range(3):
        states = (rng.random((size, 1)) > np.cumsum(hmm.transmat, axis=1)[states]).sum(axis=1)
        expected = proba @ np.linalg.matrix_power(hmm.transmat, h + 1)
        np.testing.assert_allclose(forecast.states[h], expected, atol=1e-12)
        y = indicators(hmm.emission, hmm.emission.sample(states, rng).astype(float))
        centred = y - forecast.mean[h]
        assert (abs(centred.mean(axis=0)) < 5 * np.sqrt(forecast.variance[h] / size)).all()
        noise = (centred**2).std(axis=0) / np.sqrt(size)
        assert (abs((centred**2).mean(axis=0) - forecast.variance[h]) < 6 * noise + 1e-12).all()


def test_forecasts_heed_what_is_known_of_the_future():
    hmm = models.make("gaussian-diag")
    X, _ = hmm.sample(30, random_state=8)
    future = np.array([[np.nan, 1.0], [np.nan, np.nan], [2.5, np.nan]])
    forecast = hmm.forecast(3, hmm.filter(X)[-1], future)
    np.testing.assert_allclose(forecast.states, hmm.filter(np.vstack([X, future]))[-3:], atol=1e-12)
    np.testing.assert_allclose(forecast.mean, forecast.states @ hmm.emission.means)
    nothing = hmm.forecast(3, hmm.filter(X)[-1], np.full((3, 2), np.nan))
    np.testing.assert_allclose(nothing.variance, hmm.forecast(3, hmm.filter(X)[-1]).variance, atol=1e-12)
    with pytest.raises(ValueError, match="a row for each of the 2 steps"):
        hmm.forecast(2, None, future)


def test_forecasts_refuse_what_is_no_horizon_or_no_distribution():
    hmm = models.make("poisson")
    with pytest.raises(ValueError, match="horizon must be a positive integer"):
        hmm.forecast(0)
    with pytest.raises(ValueError, match="3 probabilities that sum to 1"):
        hmm.forecast(2, [0.5, 0.5])
    np.testing.assert_allclose(hmm.forecast(1).states[0], hmm.startprob @ hmm.transmat)


def test_rows_of_a_multinomial_may_have_different_numbers_of_trials():
    hmm = models.make("multinomial")
    rng = np.random.default_rng(8)
    X = rng.multinomial(rng.integers(0, 40, 300), hmm.emission.probs[hmm.sample(300, 9)[1]]).astype(float)
    X[::20, 1] = np.nan
    assert len(np.unique(X[~np.isnan(X).any(axis=1)].sum(axis=1))) > 30
    assert hmm.log_likelihood(X) == pytest.approx(reference.infer(hmm, X).log_likelihood, rel=1e-10)
    fitted = BatchHMM(3, "multinomial", n_iter=200, random_state=0).fit(X).model_
    np.testing.assert_allclose(np.sort(fitted.emission.probs.max(axis=1)), [0.6, 0.6, 0.7], atol=0.06)
    assert fitted.emission.n_trials == round(np.nanmean(X.sum(axis=1)))
    np.testing.assert_array_equal(fitted.sample(50, 0)[0].sum(axis=1), fitted.emission.n_trials)
    np.testing.assert_allclose(fitted.forecast(5).mean.sum(axis=1), fitted.emission.n_trials)
