"""Transition structures."""

import models
import numpy as np
import pytest

from hmmstream import HMM, Full, Gaussian, Independent, Learner, Masked, Tied

TWO = models.paper_model().emission


def test_structures_are_compared_by_what_they_say():
    assert Full() == Full()
    assert Masked.banded(3) == Masked(np.tri(3, k=1) * np.tri(3, k=1).T)
    assert Masked.banded(3) != Masked.banded(4)
    assert Full() != Independent()


def test_left_right_with_limited_jumps():
    assert Masked.left_right(4, max_jump=1).mask.astype(int).tolist() == [
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
        [0, 0, 0, 1],
    ]


@pytest.mark.parametrize(
    ("structure", "n_groups"),
    [(Full(), 9), (Independent(), 3), (Masked.banded(3), 7), (Tied([[7, 3, 3], [3, 7, 3], [3, 3, 7]]), 2)],
)
def test_the_number_of_groups_is_the_number_of_statistics(structure, n_groups):
    assert structure.cells(3).n_groups == n_groups
    learner = Learner(HMM([1, 0, 0], models.STRUCTURES["tied"][1], models.FAMILIES["poisson"]))
    assert learner.state.rho.shape == (3, 9 + 3 * 2)


def test_a_tied_chain_keeps_one_row_of_rho_a_parameter():
    learner = Learner(models.make("poisson", "tied"))
    assert learner.state.rho.shape == (3, 2 + 3 * 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tied([[0, 1]]), "square matrix of integers"),
        (lambda: Tied([[0.5, 1], [1, 0]]), "square matrix of integers"),
        (lambda: Tied([[0, 1, 2], [0, 0, 1], [3, 4, 5]]).cells(3), "same groups"),
        (lambda: Tied([[0, 1], [-1, -1]]).cells(2), "no transition out of state 1"),
        (lambda: Masked([[True, False]]), "square matrix"),
        (lambda: Masked(np.eye(3)).cells(2), "describes 3 states, the model has 2"),
        (lambda: HMM([1, 0], [[0.9, 0.1], [0, 1]], TWO, Masked(np.eye(2))), r"\[0, 1\] is 0.1, but Masked"),
        (lambda: HMM([1, 0], [[0.9, 0.1], [0, 1]], TWO, "independent"), "must be equal"),
        (lambda: HMM([1, 0], np.eye(2), TWO, "sparse"), "transition must be one of"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_zeros_of_a_mask_stay_exactly_zero_while_all_else_can_come_back():
    start = models.rough_start("gaussian-paper", "masked")
    learner = Learner(start)
    learner.learn(models.make("gaussian-paper", "masked").sample(5000, 1)[0])
    learner.learn(np.full(20_000, -1.0))  # one state for a very long time
    for model in (learner.model, learner.last_model):
        assert (model.transmat[start.transmat == 0.0] == 0.0).all()
        assert (model.transmat[start.transmat > 0.0] > 0.0).all()


def test_a_left_right_chain_passes_its_states_in_order():
    truth = HMM(
        [1, 0, 0],
        [[0.999, 0.001, 0], [0, 0.999, 0.001], [0, 0, 1]],
        Gaussian("tied", means=[0.0, 2.0, 4.0], covars=1.0),
        Masked.left_right(3, max_jump=1),
    )
    X, states = truth.sample(6000, 3)
    assert states.max() == 2
    learner = Learner(truth)
    learner.freeze()
    found = learner.follow(X).argmax(axis=1)
    assert (found == states).mean() > 0.98
    learner.unfreeze()
    learner.learn(X)
    assert (learner.last_model.transmat[truth.transmat == 0.0] == 0.0).all()


def test_groups_that_appear_several_times_in_a_row_share_their_probability():
    learner = Learner(models.rough_start("gaussian-paper", "tied"))
    learner.learn(models.make("gaussian-paper", "tied").sample(20_000, 2)[0])
    transmat = learner.last_model.transmat
    assert np.ptp(np.diag(transmat)) == 0.0
    assert np.ptp(transmat[~np.eye(3, dtype=bool)]) == 0.0
