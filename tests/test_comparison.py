"""Models that learn side by side, and how they are ranked."""

import numpy as np
import pytest

from hmmstream import HMM, Gaussian, OnlineComparison, OnlineHMM
from hmmstream.comparison import BLOCK

WORLD = HMM(
    [0.4, 0.3, 0.3], [[0.9, 0.06, 0.04], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]], Gaussian("tied", [0.0, 3.0, 6.0], 1.0)
)
X = WORLD.sample(12_000, 3)[0]


def started(means):
    """A model with a start of its own."""
    m = len(means)
    transmat = np.where(np.eye(m) > 0, 0.9, 0.1 / (m - 1))
    return OnlineHMM(init=HMM(np.full(m, 1 / m), transmat, Gaussian("tied", means, 2.0)))


def test_the_true_number_of_states_comes_first():
    """One state less is 0.28 ± 0.01 a row behind."""
    candidates = [started([0.0, 5.0]), started([0.0, 3.5, 6.0])]
    comparison = OnlineComparison(candidates).partial_fit(X)
    ranking = comparison.ranking_
    assert comparison.best_ is ranking[0].hmm is candidates[1]
    assert (ranking[0].behind, ranking[0].error) == (0.0, 0.0)
    assert ranking[1].behind > 10.0 * ranking[1].error > 0.0
    assert [one.per_row for one in ranking] == sorted((one.per_row for one in ranking), reverse=True)


def test_each_model_is_as_if_alone():
    comparison = OnlineComparison([2], emission=Gaussian("tied"), random_state=0).partial_fit(X[:5_000])
    for hmm in comparison.candidates:
        alone = OnlineHMM(hmm.n_components, Gaussian("tied"), random_state=0).partial_fit(X[:5_000])
        np.testing.assert_array_equal(hmm.transmat_, alone.transmat_)
        assert hmm.log_likelihood_ == alone.log_likelihood_


def test_what_is_summed_up_is_what_each_row_was_expected_to_be():
    rows, hmm, densities = X[: 3 * BLOCK + 7], started([0.0, 4.0]), []
    for row in rows:
        densities.append(hmm.peek(row).log_density)
        hmm.learn_one(row)
    (one,) = OnlineComparison([started([0.0, 4.0])]).partial_fit(rows).ranking_
    assert one.log_likelihood == pytest.approx(sum(densities[BLOCK : 3 * BLOCK]))  # before the first there was no model
    assert np.isnan(one.error)


def test_chunks_do_not_matter():
    whole = OnlineComparison([started([0.0, 4.0]), started([0.0, 3.0, 6.0])]).partial_fit(X[:3_000])
    chunks = OnlineComparison([started([0.0, 4.0]), started([0.0, 3.0, 6.0])])
    for first, stop in ((0, 1), (1, 700), (700, 701), (701, 3_000)):
        chunks.partial_fit(X[first:stop])
    assert whole.n_compared_ == chunks.n_compared_
    for ours, theirs in zip(whole.ranking_, chunks.ranking_, strict=True):
        np.testing.assert_allclose(ours[1:], theirs[1:], rtol=1e-9)


def test_sequences():
    lengths = [100, 700, 1, 1_199]
    comparison = OnlineComparison([started([0.0, 4.0])]).partial_fit(X[:2_000], lengths=lengths)
    alone = started([0.0, 4.0]).partial_fit(X[:2_000], lengths=lengths)
    assert comparison.candidates[0].log_likelihood_ == pytest.approx(alone.log_likelihood_, rel=1e-12)
    comparison.partial_fit(X[:5])
    alone.partial_fit(X[:5])
    np.testing.assert_allclose(comparison.candidates[0].filtered_proba_, alone.filtered_proba_, rtol=1e-12)


def test_rows_from_which_a_start_was_made_are_left_out():
    comparison = OnlineComparison([2], emission=Gaussian("tied"), random_state=0).partial_fit(X[:8_192])
    looks = [n for n in range(1, 8_193) if n & (n - 1) == 0]  # the search looks again whenever rows have doubled
    expected = 8_192 // BLOCK - len({(n - 1) // BLOCK for n in looks})
    assert comparison.n_compared_ == expected * BLOCK


def test_what_is_refused_no_one_learns():
    comparison = OnlineComparison([started([0.0, 4.0]), started([0.0, 3.0, 6.0])]).partial_fit(X[:300])
    before = [hmm.log_likelihood_ for hmm in comparison.candidates]
    with pytest.raises(ValueError, match="inf"):
        comparison.partial_fit([1.0, np.inf])
    with pytest.raises(ValueError, match="lengths"):
        comparison.partial_fit([1.0, 1.0], lengths=[3])
    assert [hmm.log_likelihood_ for hmm in comparison.candidates] == before
    assert comparison.n_samples_seen_ == 300


def test_a_model_that_says_impossible_comes_last():
    never = HMM([1.0, 0.0], np.eye(2), Gaussian("tied", [0.0, 1.0], 1.0))
    sure = OnlineHMM(init=never)
    comparison = OnlineComparison([sure, started([0.0, 4.0])]).partial_fit(X[:BLOCK])
    sure._learner.vector[3] = -np.inf  # its log-likelihood
    ranking = comparison.partial_fit(X[: 20 * BLOCK]).ranking_
    assert ranking[-1].hmm is sure
    assert np.isfinite(ranking[0][1:]).all()


def test_too_few_rows_say_so():
    comparison = OnlineComparison([1, 2])
    with pytest.raises(ValueError, match="after 0 rows nothing can be compared yet"):
        comparison.best_  # noqa: B018
    with pytest.raises(ValueError, match="at least one"):
        OnlineComparison([])
    assert repr(comparison) == "<OnlineComparison of 2 models after 0 rows>"
