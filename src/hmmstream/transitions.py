"""Transition structures: which transitions are possible, and which share one probability.

Every structure is one table: the group of each cell (i, j) of the transition matrix, or -1 where the transition is
impossible. Cells of one group have one probability, and the expected number of transitions in each group is all that
has to be learned. This is where the cost of a step comes from: number of groups × m².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray

IMPOSSIBLE = -1


class Cells(NamedTuple):
    """A structure laid out for a chain of m states, cell by cell, row after row."""

    n_groups: int
    groups: IntArray  # (m * m,): the group of each cell, or -1
    shares: FloatArray  # (m * m,): 1 / (number of cells of that group in its row)
    leaders: IntArray  # (m,): the first row that is made of the same groups

    @property
    def is_full(self) -> bool:
        """Whether each cell is a group of its own, in their order."""
        return bool(np.array_equal(self.groups, np.arange(len(self.groups))))

    @property
    def runs(self) -> IntArray | None:
        """Stretches of states that a state can be reached from: (state, first, one past the last), state by state.

        None if all transitions are possible.
        """
        m = len(self.leaders)
        is_possible = self.groups.reshape(m, m).T >= 0
        if is_possible.all():
            return None
        ends = np.argwhere(np.diff(is_possible, axis=1, prepend=False, append=False)).reshape(-1, 2, 2)
        return np.ascontiguousarray(np.stack([ends[:, 0, 0], ends[:, 0, 1], ends[:, 1, 1]], axis=1), dtype=np.int64)


class Transition(ABC):
    """The structure of a transition matrix."""

    @abstractmethod
    def groups(self, n_components: int) -> IntArray:
        """The group of each cell, an integer matrix of shape (m, m); -1 marks an impossible transition."""

    def relabel(self, order: IntArray) -> Transition:
        """The structure for states in another order: the same object, if nothing changes."""
        groups = self.groups(len(order))
        return self if _same_pattern(groups, groups[np.ix_(order, order)]) else Tied(groups[np.ix_(order, order)])

    def cells(self, n_components: int) -> Cells:
        """The structure, checked and laid out for compiled code."""
        groups = np.asarray(self.groups(n_components))
        if groups.shape != (n_components, n_components):
            raise ValueError(f"{self!r} describes {len(groups)} states, the model has {n_components}")
        try:
            return _laid_out(groups.astype(np.int64).tobytes(), n_components)
        except ValueError as error:
            raise ValueError(f"{self!r}: {error}") from None

    def check(self, transmat: FloatArray) -> None:
        """Raise ValueError if ``transmat`` does not have this structure."""
        groups = self.cells(len(transmat)).groups.reshape(transmat.shape)
        for i, j in np.argwhere((groups < 0) & (transmat != 0.0)):
            raise ValueError(f"transmat[{i}, {j}] is {transmat[i, j]:g}, but {self!r} has no such transition")
        is_possible = groups >= 0
        lowest, highest = np.full(groups.max() + 1, np.inf), np.zeros(groups.max() + 1)
        np.minimum.at(lowest, groups[is_possible], transmat[is_possible])
        np.maximum.at(highest, groups[is_possible], transmat[is_possible])
        for group in np.flatnonzero(highest - lowest > 1e-9 * highest + 1e-12):
            values = transmat[groups == group]
            raise ValueError(f"{self!r}: transmat must be equal where the structure is, got {values.tolist()}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(np.array_equal(a, vars(other)[k]) for k, a in vars(self).items())

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Full(Transition):
    """Every transition has a probability of its own. A step costs m⁴."""

    def groups(self, n_components: int) -> IntArray:
        return np.arange(n_components**2, dtype=np.int64).reshape(n_components, n_components)


class Independent(Transition):
    """The next state does not depend on the last: the rows are equal, and the model is a mixture."""

    def groups(self, n_components: int) -> IntArray:
        return np.tile(np.arange(n_components, dtype=np.int64), (n_components, 1))


class Tied(Transition):
    """Transitions that share a probability.

    Parameters
    ----------
    groups : (m, m) integers
        Cells with the same number have the same probability; a negative number marks an impossible transition. Rows
        that share a group must be made of the same groups, each equally often (this makes the M-step explicit).

    Examples
    --------
    Stay or leave, with one probability for all states:

    >>> Tied([[0, 1, 1], [1, 0, 1], [1, 1, 0]]).cells(3).n_groups
    2
    """

    def __init__(self, groups: ArrayLike) -> None:
        table = np.array(groups)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.dtype.kind not in "iu":
            raise ValueError(f"groups must be a square matrix of integers, got {np.asarray(groups).tolist()}")
        self._groups = table.astype(np.int64)
        self._groups.setflags(write=False)

    def groups(self, n_components: int) -> IntArray:
        return self._groups

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._groups.tolist()})"


class Masked(Transition):
    """Transitions of which some are impossible: their zeros stay exactly zero.

    Parameters
    ----------
    mask : (m, m) booleans
        True where a transition is possible.

    Examples
    --------
    >>> Masked.left_right(3)
    Masked([[1, 1, 1], [0, 1, 1], [0, 0, 1]])
    >>> Masked.banded(4, width=1)
    Masked([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]])
    """

    def __init__(self, mask: ArrayLike) -> None:
        table = np.asarray(mask)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.dtype.kind not in "biuf":
            raise ValueError(f"mask must be a square matrix of booleans, got {table.tolist()}")
        self.mask: Any = table.astype(bool)
        self.mask.setflags(write=False)

    @classmethod
    def left_right(cls, n_components: int, max_jump: int | None = None) -> Self:
        """States are passed in order, never backwards, skipping at most ``max_jump`` - 1 of them."""
        jump = np.arange(n_components) - np.arange(n_components)[:, np.newaxis]
        return cls((jump >= 0) & (jump <= (n_components if max_jump is None else max_jump)))

    @classmethod
    def banded(cls, n_components: int, width: int = 1) -> Self:
        """Only neighbours up to ``width`` away are reached in one step."""
        return cls(abs(np.arange(n_components) - np.arange(n_components)[:, np.newaxis]) <= width)

    def relabel(self, order: IntArray) -> Transition:
        return Masked(self.mask[np.ix_(order, order)])

    def groups(self, n_components: int) -> IntArray:
        cells = np.arange(self.mask.size, dtype=np.int64).reshape(self.mask.shape)
        return np.where(self.mask, cells, IMPOSSIBLE)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mask.astype(int).tolist()})"


@lru_cache(maxsize=4)  # one learner asks for the same again and again
def _laid_out(table: bytes, m: int) -> Cells:
    groups = np.frombuffer(table, dtype=np.int64).reshape(m, m)
    labels, flat = np.unique(groups, return_inverse=True)
    impossible = labels < 0
    numbers = np.where(impossible, IMPOSSIBLE, np.cumsum(~impossible) - 1)
    flat = numbers[flat.reshape(groups.shape)]
    leader_of: dict[int, int] = {}
    compositions: list[dict[int, int]] = []
    shares = np.zeros(groups.shape)
    for i, row in enumerate(flat):
        members, places, counts = np.unique(row[row >= 0], return_inverse=True, return_counts=True)
        if not len(members):
            raise ValueError(f"no transition out of state {i} is possible")
        composition = dict(zip(members.tolist(), counts.tolist(), strict=True))
        compositions.append(composition)
        for group in composition:
            if compositions[leader_of.setdefault(group, i)] != composition:
                raise ValueError(
                    f"row {i} shares a group with another row, but does not hold the same groups equally often: the "
                    "M-step would not be explicit; give the row groups of its own"
                )
        shares[i, row >= 0] = 1.0 / counts[places]
    leaders = np.array([leader_of[next(iter(composition))] for composition in compositions], dtype=np.int64)
    n_groups = int(flat.max()) + 1
    return Cells(n_groups, np.ascontiguousarray(flat.ravel(), dtype=np.int64), shares.ravel(), leaders)


def _same_pattern(a: IntArray, b: IntArray) -> bool:
    """Whether the same cells are in a group together, whatever the groups are called."""
    if not np.array_equal(a < 0, b < 0):
        return False
    pairs = np.unique(np.stack([a[a >= 0], b[a >= 0]]), axis=1)
    return bool(len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1])


STRUCTURES: dict[str, type[Transition]] = {"full": Full, "independent": Independent}


def resolve(transition: str | Transition) -> Transition:
    """A transition structure from its object or its name."""
    if isinstance(transition, Transition):
        return transition
    if transition in STRUCTURES:
        return STRUCTURES[transition]()
    raise ValueError(f"transition must be one of {sorted(STRUCTURES)} or a Transition object, got {transition!r}")
