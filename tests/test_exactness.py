"""The compiled engine equals enumeration, forward–backward smoothing and plain transcriptions of the algorithms."""

import models
import numpy as np
import pytest
import reference

from hmmstream import HMM, Constant, Gaussian, Learner, Power
from paper import algorithms

TOLERANCE = 1e-10


def one_over_n(n):
    return 1.0 / n


def one_over_n_plus_one(n):
    return 1.0 / (n + 1)


def assert_equal_S(learner, expected, n_terms):
    """The learner's S times the number of terms equals the expected sums."""
    groups = learner.start.transition.cells(learner.start.n_components).groups.reshape(3, 3)
    statistic = learner.statistic
    transitions = np.zeros(len(expected.transitions))
    transitions[groups[groups >= 0]] = statistic.transitions[groups >= 0]
    np.testing.assert_allclose(transitions * n_terms, expected.transitions, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(statistic.emissions * n_terms, expected.emissions, rtol=TOLERANCE, atol=TOLERANCE)


def frozen_learner(hmm, step, X):
    learner = Learner(hmm, step=step)
    learner.freeze()
    learner.learn(X)
    return learner


@pytest.mark.parametrize(("family", "structure"), models.ALL)
@pytest.mark.parametrize("gaps", [0.0, 0.3], ids=["complete", "gaps"])
def test_frozen_statistic_equals_the_sum_over_all_paths(family, structure, gaps):
    hmm = models.make(family, structure)
    for seed in range(3):
        X = models.with_gaps(hmm.sample(7, seed)[0], gaps, seed)
        learner = frozen_learner(hmm, one_over_n, X)
        log_likelihood, expected = reference.enumerate_paths(hmm, X)
        assert learner.log_likelihood == pytest.approx(log_likelihood, rel=TOLERANCE)
        n_terms = len(reference.informative(hmm, X)) - 1
        if n_terms > 0:  # else S is that of the first row, which the sum leaves out
            assert_equal_S(learner, expected, n_terms)


@pytest.mark.parametrize(("family", "structure"), models.ALL)
def test_frozen_statistic_equals_forward_backward_on_a_long_record(family, structure):
    hmm = models.make(family, structure)
    X = models.with_gaps(hmm.sample(700, 4)[0], 0.1)
    log_likelihood, expected = reference.forward_backward(hmm, X)
    learner = frozen_learner(hmm, one_over_n, X)
    assert learner.log_likelihood == pytest.approx(log_likelihood, rel=TOLERANCE)
    assert_equal_S(learner, expected, len(reference.informative(hmm, X)) - 1)


def test_with_one_over_n_plus_one_the_first_observation_counts_too():
    hmm = models.make("gaussian-paper")
    X = hmm.sample(500, 2)[0]
    _, expected = reference.forward_backward(hmm, X, skip=0)
    assert_equal_S(frozen_learner(hmm, one_over_n_plus_one, X), expected, len(X))


@pytest.mark.parametrize("family", ["gaussian-full", "categorical"])
def test_sequences_are_independent_and_their_statistics_add_up(family):
    hmm = models.make(family)
    lengths = [1, 40, 2, 1, 100]
    X = hmm.sample(sum(lengths), 5)[0]
    learner = Learner(hmm, step=one_over_n_plus_one)
    learner.freeze()
    learner.learn(X, lengths)
    pieces = [reference.forward_backward(hmm, x, skip=0) for x in np.split(X, np.cumsum(lengths)[:-1])]
    total = reference.S(*(sum(parts) for parts in zip(*(piece[1] for piece in pieces), strict=True)))
    assert learner.log_likelihood == pytest.approx(sum(piece[0] for piece in pieces), rel=TOLERANCE)
    assert_equal_S(learner, total, len(X))


@pytest.mark.parametrize(("family", "structure"), models.ALL)
def test_learning_equals_a_plain_transcription_of_algorithm_1(family, structure):
    X = models.with_gaps(models.make(family, structure).sample(600, 6)[0], 0.05)
    start = models.rough_start(family, structure)
    learner = Learner(start)
    learner.learn(X)
    expected = reference.algorithm_1(start, X, Power(0.6))
    np.testing.assert_allclose(
        models.values(learner.last_model), models.values(expected.model), rtol=TOLERANCE, atol=TOLERANCE
    )
    np.testing.assert_allclose(
        models.values(learner.model), models.values(expected.average), rtol=TOLERANCE, atol=TOLERANCE
    )
    np.testing.assert_allclose(learner.filtered_proba, expected.phi, atol=TOLERANCE)
    assert learner.log_likelihood == pytest.approx(expected.log_likelihood, rel=TOLERANCE)


def eight_levels(means, covars, stay):
    transmat = np.full((8, 8), (1 - stay) / 7)
    np.fill_diagonal(transmat, stay)
    return HMM(np.full(8, 1 / 8), transmat, Gaussian("tied", means=means, covars=covars))


@pytest.mark.parametrize(
    ("world", "start", "n_min"),
    [
        (models.paper_model(), models.paper_start(), 20),
        (models.make("gaussian-paper"), models.rough_start("gaussian-paper"), 20),
        (eight_levels(np.arange(8), 0.2, 0.9), eight_levels(np.arange(8) + 0.2, 1.0, 0.7), 200),
    ],
    ids=["paper", "three-states", "eight-states"],
)
def test_learning_equals_algorithm_2_of_the_paper_over_10000_observations(world, start, n_min):
    X = world.sample(10_000, 7)[0]
    expected = algorithms.online_em(algorithms.theta_of(start), start.startprob, X[:, 0], lambda n: n**-0.6, n_min)
    learner = Learner(start, n_min=n_min)
    learner.learn(X)
    last = learner.last_model
    np.testing.assert_allclose(last.transmat, expected.q, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(last.emission.means[:, 0], expected.mu, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(last.emission.covars.item(), expected.upsilon, rtol=TOLERANCE)


@pytest.mark.parametrize("update_every", [2, 7])
def test_update_every_takes_the_m_step_at_multiples_of_the_index(update_every):
    X = models.make("gaussian-diag").sample(400, 8)[0]
    start = models.rough_start("gaussian-diag")
    learner = Learner(start, update_every=update_every, n_min=50)
    learner.learn(X)
    expected = reference.algorithm_1(start, X, Power(0.6), n_min=50, update_every=update_every)
    np.testing.assert_allclose(models.values(learner.last_model), models.values(expected.model), rtol=TOLERANCE)


def test_the_first_new_parameters_come_with_index_n_min_plus_one():
    X = models.paper_model().sample(30, 9)[0]
    learner = Learner(models.paper_start(), n_min=20)
    learner.learn(X[:21])  # indices 0 … 20
    np.testing.assert_array_equal(models.values(learner.last_model), models.values(models.paper_start()))
    learner.learn_one(X[21])
    assert (models.values(learner.last_model) != models.values(models.paper_start())).all()


def test_rho_and_tau_give_the_same_estimates_for_categorical_data():
    X = models.make("categorical").sample(2000, 10)[0]
    start = models.rough_start("categorical")
    learner = Learner(start)
    learner.learn(X)
    given = algorithms.Symbols(start.transmat, start.emission.probs), start.startprob, X[:, 0].astype(int), Power(0.6)
    for form in (algorithms.symbols_rho, algorithms.symbols_tau):
        *_, last = form(*given)
        np.testing.assert_allclose(learner.last_model.transmat, last.theta.q, rtol=TOLERANCE)
        np.testing.assert_allclose(learner.last_model.emission.probs, last.theta.b, rtol=TOLERANCE)


def test_independent_states_reproduce_online_em_for_mixtures():
    X = models.make("gaussian-paper", "independent").sample(600, 11)[0]
    start = models.rough_start("gaussian-paper", "independent")
    learner = Learner(start)
    learner.learn(X)
    expected = reference.iid_online_em(start, X, Power(0.6))
    np.testing.assert_allclose(models.values(learner.last_model), models.values(expected), rtol=TOLERANCE)


@pytest.mark.parametrize("family", ["gaussian-paper", "gaussian-full", "poisson"])
def test_one_by_one_equals_chunks_of_any_size_bit_for_bit(family):
    X = models.with_gaps(models.make(family).sample(9000, 12)[0], 0.05)
    start = models.rough_start(family)
    whole = Learner(start)
    followed = whole.follow(X)
    one_by_one = Learner(start)
    for x in X:
        one_by_one.learn_one(x if len(x) > 1 else float(x[0]))
    np.testing.assert_array_equal(one_by_one.vector, whole.vector)
    rng = np.random.default_rng(0)
    for _ in range(5):
        chunked = Learner(start)
        cuts = np.sort(rng.choice(np.arange(len(X)), 20))
        pieces = [chunked.follow(piece) for piece in np.split(X, cuts)]
        np.testing.assert_array_equal(chunked.vector, whole.vector)
        np.testing.assert_array_equal(np.concatenate(pieces), followed)


def test_a_python_function_as_step_equals_the_schedule_it_computes():
    X = models.paper_model().sample(500, 13)[0]
    a, b = (Learner(models.paper_start(), step=step, averaging=None) for step in (Constant(0.02), lambda n: 0.02))
    a.learn(X)
    b.learn(X[:200])
    for x in X[200:]:
        b.learn_one(x)
    np.testing.assert_array_equal(a.vector, b.vector)
