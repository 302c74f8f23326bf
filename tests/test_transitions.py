"""Transition structures."""

from dataclasses import dataclass

import models
import numpy as np
import pytest

from hmmstream import HMM, Constant, Full, Gaussian, Independent, Learner, Masked, Poisson, Polyak, Tied
from hmmstream.transitions import Transition

TWO = models.paper_model().emission


def structure_matrix(structure):
    """Transitions that are all equally likely, where possible."""
    possible = structure.cells(3).groups.reshape(3, 3) >= 0
    return possible / possible.sum(axis=1, keepdims=True)


class Ring(Tied):
    """A structure of a user's own: one probability for each number of steps forward."""

    def __init__(self, n_steps):
        self.n_steps = n_steps

    def groups(self, n_components):
        forward = (np.arange(n_components) - np.arange(n_components)[:, None]) % n_components
        return np.where(forward <= self.n_steps, forward, -1)

    def __repr__(self):
        return "Ring()"


def test_structures_are_compared_by_what_they_say():
    assert Full() == Full()
    assert Masked.banded(3) == Masked(np.tri(3, k=1) * np.tri(3, k=1).T)
    assert Masked.banded(3) != Masked.banded(4)
    assert Full() != Independent()
    assert Ring(1) == Ring(1)
    assert Ring(1) != Ring(2)


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
    equal = HMM([1, 0, 0], structure_matrix(structure), models.FAMILIES["poisson"], structure)
    assert Learner(equal).state.tau.shape == (3, n_groups + 3 * 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tied([[0, 1]]), "square matrix of integers"),
        (lambda: Tied([[0.5, 1], [1, 0]]), "square matrix of integers"),
        (lambda: Tied([[0, 1, 2], [0, 0, 1], [3, 4, 5]]).cells(3), "same groups"),
        (lambda: Tied([[0, 1], [-1, -1]]).cells(2), "no transition out of state 1"),
        (lambda: Masked([[True, False]]), "square matrix"),
        (lambda: Masked([["0", "1"], ["1", "0"]]), "of booleans"),
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
    assert np.ptp(np.diag(transmat)) < 1e-15  # each row is normalised by itself
    assert np.ptp(transmat[~np.eye(3, dtype=bool)]) < 1e-15


@pytest.mark.parametrize(
    ("structure", "levels"),
    [
        (Independent(), [0.0, 3.0, 500.0]),
        (Ring(2), [0.0, 3.0, 500.0]),
        (Tied([[0, 1, 2, 2], [1, 0, 2, 2], [5, 5, 3, 4], [5, 5, 4, 3]]), [0.0, 3.0, 500.0, 6.0]),
    ],
    ids=["independent", "ring", "two-classes"],
)
@pytest.mark.parametrize("averaging", ["auto", Polyak(5)], ids=["auto", "polyak"])
def test_rows_that_share_groups_stay_together_while_a_state_dies_and_comes_back(structure, levels, averaging):
    m = len(levels)
    cells = structure.cells(m)
    weight = (cells.shares * (cells.groups >= 0)).reshape(m, m)
    transmat = weight / weight.sum(axis=1, keepdims=True)
    start = HMM(np.full(m, 1 / m), transmat, Gaussian("tied", means=np.sort(levels), covars=1.0), structure)
    learner = Learner(start, step=Constant(0.05), averaging=averaging)
    rng = np.random.default_rng(9)
    for level in [*levels, 0.0]:
        learner.learn(level + rng.normal(size=2000), lengths=[500] * 4)
        for model in (learner.model, learner.last_model):  # refused, were the rows not equal
            np.testing.assert_allclose(model.transmat.sum(axis=1), 1.0, atol=1e-12)


def test_a_structure_of_a_users_own_is_learned():
    values, rough = models.FAMILIES["gaussian-paper"], models.rough(models.FAMILIES["gaussian-paper"])
    truth = HMM([1, 0, 0], [[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0, 0.9]], values, Ring(1))
    start = HMM([1, 0, 0], [[0.6, 0.4, 0], [0, 0.6, 0.4], [0.4, 0, 0.6]], rough, Ring(1))
    learner = Learner(start)
    learner.learn(truth.sample(20_000, 4)[0])
    np.testing.assert_allclose(learner.model.transmat, truth.transmat, atol=0.01)  # 5 standard errors


def test_a_structure_of_a_users_own_may_change_and_need_not_be_hashable():
    @dataclass
    class Ring(Transition):
        step: int

        def groups(self, n_components):
            ahead = (np.arange(n_components) - np.arange(n_components)[:, np.newaxis]) % n_components
            return np.where((ahead == 0) | (ahead == self.step), ahead, -1)

    ring = Ring(1)
    before = ring.cells(4).groups
    ring.step = 3
    assert not np.array_equal(ring.cells(4).groups, before)
    HMM(np.full(4, 0.25), np.where(Ring(1).groups(4) >= 0, 0.5, 0.0), Poisson([1.0, 2.0, 3.0, 4.0]), Ring(1))
