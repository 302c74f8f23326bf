"""All that a stream knows, in one vector.

One vector is easy to copy, to save and to place beside a million others; the loops see it as the named parts below.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.compilable import Compilable
from hmmstream.recursions.bridge import inlined, view

# Places in the clock
TIME = 0  # observations learned from, missing ones left out: the index n of the next one, as the paper counts
N_SEEN = 1  # rows seen, missing ones included
IN_SEQUENCE = 2  # 0 if the next row starts a new sequence
LOG_LIKELIHOOD = 3
LIKELIHOOD_FACTOR = 4  # a factor of the likelihood whose logarithm is still to be taken
N_AVERAGED = 5
MEMORY = 6  # the most observations that S can stand for, if old ones are forgotten; else infinite
WINDOW_FIRST = 7  # the oldest entry of the window
WINDOW_COUNT = 8  # its number of entries
MATRIX_IS_KEPT = 9  # 0 if the transition matrix has changed since the last entry
CLOCK_SIZE = 10


class Shape(Compilable):
    """Sizes that the loops are compiled for. ``n_rows`` is the length of the statistic S."""

    constants: ClassVar[tuple[str, ...]] = (
        "n_states",
        "n_cells",
        "n_groups",
        "width",
        "n_statistics",
        "n_emission_rows",
        "n_rows",
        "n_tau",
        "n_base_rows",
        "n_prior_rows",
        "is_full",
    )

    def __init__(
        self,
        n_states: int,
        n_groups: int,
        width: int,
        n_statistics: int,
        *,
        has_prior: bool = False,
        has_window: bool = False,
        is_full: bool = False,
    ) -> None:
        self.n_states = n_states
        self.n_cells = n_states * n_states
        self.n_groups = n_groups  # length of the transition part of S
        self.width = width  # of a row of theta
        self.n_statistics = n_statistics  # of one state's emission
        self.n_emission_rows = n_states * n_statistics
        self.n_rows = n_groups + self.n_emission_rows
        self.n_tau = 0 if has_window else n_states
        self.n_base_rows = self.n_rows if has_window else 0
        self.n_prior_rows = self.n_rows if has_prior else 0
        self.is_full = is_full  # each transition is a group of its own, in their order

    @property
    def size(self) -> int:
        """Length of the state vector."""
        m, R = self.n_states, self.n_rows
        numbers = CLOCK_SIZE + 3 * m + 2 * m * m + 2 * m * self.width + R * self.n_tau + 2 * R
        return numbers + self.n_base_rows + self.n_prior_rows


NO_SHAPE = Shape(1, 1, 1, 1)  # for loops that depend on none


class State(NamedTuple):
    """Views of the state vector, under the names of docs/notation.md."""

    clock: FloatArray
    startprob: FloatArray  # (m,)
    phi: FloatArray  # (m,) the filter
    alive: FloatArray  # (m,) 1, or for a state that has died minus the number of visits since
    transmat: FloatArray  # (m, m)
    mean_transmat: FloatArray  # (m, m) Polyak average
    theta: FloatArray  # (m, width) emission parameters
    mean_theta: FloatArray  # (m, width) Polyak average
    tau: FloatArray  # (m, R) the statistic with the chain in k now: transition groups, emissions; (0, R) with a window
    S: FloatArray  # (R,)
    mean_S: FloatArray  # (R,) average in the space of S
    base: FloatArray  # (R,) the sum of what the window has let go; empty without a window
    prior: FloatArray  # (R,) what S would be if one had seen what the prior imagines; empty without a prior
    log_likelihood: FloatArray = np.empty(0)  # (1,) of the clock; pickles from before have no more than the parts above
    pending: FloatArray = np.empty(0)  # (1,) of the clock, its LIKELIHOOD_FACTOR


OWN_PARTS = State._fields[:-2]  # that no other part is made of


def parts(shape: Shape, vector: FloatArray) -> State:
    """The named parts of a state vector: views, nothing is copied."""
    m, width, R = shape.n_states, shape.width, shape.n_rows
    startprob = CLOCK_SIZE
    phi = startprob + m
    alive = phi + m
    transmat = alive + m
    mean_transmat = transmat + m * m
    theta = mean_transmat + m * m
    mean_theta = theta + m * width
    tau = mean_theta + m * width
    S = tau + R * shape.n_tau
    base = S + 2 * R
    return State(
        view(vector, 0, (CLOCK_SIZE,)),
        view(vector, startprob, (m,)),
        view(vector, phi, (m,)),
        view(vector, alive, (m,)),
        view(vector, transmat, (m, m)),
        view(vector, mean_transmat, (m, m)),
        view(vector, theta, (m, width)),
        view(vector, mean_theta, (m, width)),
        view(vector, tau, (shape.n_tau, R)),
        view(vector, S, (R,)),
        view(vector, S + R, (R,)),
        view(vector, base, (shape.n_base_rows,)),
        view(vector, base + shape.n_base_rows, (shape.n_prior_rows,)),
        view(vector, LOG_LIKELIHOOD, (1,)),
        view(vector, LIKELIHOOD_FACTOR, (1,)),
    )


compiled_parts = inlined(parts)


@inlined
def group_of(shape: Any, groups: IntArray, cell: int) -> int:
    """The group of a transition; where each has its own, loops over them need no table and become vectors."""
    return cell if shape.is_full else groups[cell]
