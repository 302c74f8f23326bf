"""The parameters of a model as one vector: which numbers there are, which of them are free, and what they may be.

First come the transition probabilities, one for each group of cells that share one; then the parameters of the
emissions; then, if the start distribution is to be estimated, its probabilities. Probabilities that sum to 1 lose one
degree of freedom: the last of them is what the others leave.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.emissions import Emission
from hmmstream.transitions import Transition

Start = Literal["fixed", "free", "stationary"]


def check_start(start: Any) -> None:
    """Refuse what is no way to treat the start distribution."""
    if start not in get_args(Start):
        raise ValueError(f"start must be one of {get_args(Start)}, got {start!r}")


class Point(NamedTuple):
    """Values of a model, which need not be probabilities that sum to 1."""

    startprob: FloatArray
    transmat: FloatArray
    emission: Emission
    transition: Transition


class Parameters:
    """The parameters of ``model``, whose start distribution is "fixed", "free" or "stationary", that of the chain."""

    def __init__(self, model: Any, start: str = "fixed") -> None:
        check_start(start)
        self.model = model
        self.start = start
        emission, m = model.emission, model.emission.n_components
        cells = model.transition.cells(m)
        self.groups = cells.groups.reshape(m, m)
        self.n_groups = cells.n_groups
        self.table = emission.parameter_table() + self.n_groups
        self.n_estimated = int(self.table.max()) + 1  # of transitions and emissions
        self.size = self.n_estimated + (m if start == "free" else 0)

        numbers = self.numbers()
        low, high = (self._gather(bound) for bound in emission.bounds())
        is_probability = (np.arange(self.size) < self.n_groups) | (np.arange(self.size) >= self.n_estimated)
        self.low, self.high = np.where(is_probability, 0.0, low), np.where(is_probability, 1.0, high)
        self.is_fixed = self._gather(emission.is_fixed()) > 0.0

        # What must sum to 1: numbers of parameters, and how often each occurs in the sum
        self.sums: list[tuple[IntArray, IntArray]] = []
        for i in np.unique(cells.leaders):
            row = self.groups[i][self.groups[i] >= 0]
            members, first, counts = np.unique(row, return_index=True, return_counts=True)
            order = np.argsort(first)
            self.sums.append((members[order], counts[order]))
        whole = [row[columns] for columns in emission.sums_to_one for row in self.table]
        whole += [numbers["startprob"]] if start == "free" else []
        self.sums += [(members, np.ones_like(members)) for members in whole]

    def _gather(self, rows: FloatArray) -> FloatArray:
        """From cells of the emission's rows to parameters."""
        vector = np.zeros(self.size)
        vector[self.table] = rows
        return vector

    def numbers(self) -> dict[str, IntArray]:
        """The number of the parameter behind each value of the model, in the shape of the value; -1 if none is."""
        shaped = {name: np.asarray(table) for name, table in self.model.emission.shaped(self.table).items()}
        return {"transmat": self.groups, **shaped} | (
            {"startprob": np.arange(self.n_estimated, self.size)} if self.start == "free" else {}
        )

    def by_name(self, numbers: FloatArray) -> dict[str, FloatArray]:
        """Numbers, one for each parameter, in the shape of the values; 0 where the structure has a zero."""
        return {name: np.where(at >= 0, numbers[at], 0.0) for name, at in self.numbers().items()}

    @property
    def names(self) -> list[str]:
        """What each parameter is called: the first place where it stands, such as ``means[1, 0]``."""
        names = [""] * self.size
        for name, table in reversed(self.numbers().items()):
            for place in reversed(list(np.ndindex(table.shape))):
                if table[place] >= 0:
                    names[table[place]] = f"{name}[{', '.join(map(str, place))}]"
        return names

    @property
    def values(self) -> FloatArray:
        """The parameters as they are."""
        return self.values_of(self.model)

    def values_of(self, model: Any) -> FloatArray:
        """The parameters of another model of the same kind."""
        vector = self._gather(model.emission.rows())
        vector[self.groups[self.groups >= 0]] = model.transmat[self.groups >= 0]
        if self.start == "free":
            vector[self.n_estimated :] = model.startprob
        return vector

    def at(self, values: FloatArray) -> Point:
        """The model with other values of its parameters."""
        transmat = np.where(self.groups >= 0, values[self.groups], 0.0)
        emission = self.model.emission.with_rows(values[self.table])
        startprob = self.model.startprob
        if self.start == "free":
            startprob = values[self.n_estimated :]
        elif self.start == "stationary":  # as a smooth function, also where rows do not sum to 1
            startprob = np.maximum(_inverse(transmat).sum(axis=0), 0.0)
        return Point(startprob, transmat, emission, self.model.transition)

    def free(self, is_fixed: Any = False) -> IntArray:
        """The numbers of the free parameters, if some more are held fixed."""
        is_free = ~(self.is_fixed | is_fixed)
        is_free[[rest for rest, _, _ in self._rests(is_free)]] = False
        return np.flatnonzero(is_free)

    def _rests(self, is_free: Any) -> list[tuple[int, IntArray, FloatArray]]:
        """For each sum: the parameter that is what the others leave, the others, and how much each takes from it."""
        rests = []
        for members, counts in self.sums:
            loose = is_free[members]
            if loose.any():
                members, counts = members[loose], counts[loose]
                rests.append((int(members[-1]), members[:-1], counts[:-1] / counts[-1]))
        return rests

    def directions(self, is_fixed: Any = False) -> FloatArray:
        """How all parameters change with the free ones: a matrix of shape (all, free)."""
        is_free = ~(self.is_fixed | is_fixed)
        matrix = np.diag(is_free.astype(float))
        for rest, others, shares in self._rests(is_free):
            matrix[rest] = 0.0
            matrix[rest, others] = -shares
        return matrix[:, self.free(is_fixed)]

    def start_slopes(self, transmat: FloatArray) -> FloatArray:
        """How the start probabilities change with the parameters: a matrix of shape (all, m)."""
        slopes = np.zeros((self.size, len(transmat)))
        if self.start == "free":
            slopes[self.n_estimated :] = np.eye(len(transmat))
        elif self.start == "stationary":
            inverse = _inverse(transmat)
            distribution = inverse.sum(axis=0)
            for i, j in np.argwhere(self.groups >= 0):
                slopes[self.groups[i, j]] += distribution[i] * inverse[j]
        return slopes


def _inverse(transmat: FloatArray) -> FloatArray:
    """The inverse of I - Q + 1 1ᵀ. Its columns sum to the stationary distribution: π (I - Q + 1 1ᵀ) = 1ᵀ."""
    try:
        return np.asarray(np.linalg.inv(np.eye(len(transmat)) - transmat + 1.0), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise ValueError("the chain hardly ever leaves some of its states: its long run cannot be computed") from None


def stationary(transmat: FloatArray) -> FloatArray:
    """The distribution that the chain keeps: by elimination of one state after the other, without a subtraction."""
    reached = (transmat > 0.0) | np.eye(len(transmat), dtype=bool)
    for _ in range(len(transmat).bit_length()):  # in 1, 2, 4, … steps
        reached = reached.astype(float) @ reached > 0.0
    is_final = ~(reached & ~reached.T).any(axis=1)  # wherever the chain goes from here, it can come back
    final = np.flatnonzero(is_final)
    if not reached[np.ix_(final, final)].all():
        raise ValueError("there is no unique stationary distribution: the chain falls into parts that never mix")
    q = transmat[np.ix_(final, final)].copy()
    for k in range(len(q) - 1, 0, -1):
        q[:k, k] /= q[k, :k].sum()
        q[:k, :k] += np.outer(q[:k, k], q[k, :k])
    weights = np.ones(len(q))
    for k in range(1, len(q)):
        weights[k] = weights[:k] @ q[:k, k]
    distribution = np.zeros(len(transmat))
    distribution[final] = weights / weights.sum()
    return distribution
