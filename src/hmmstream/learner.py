"""The learner: one stream, its state, and the compiled loop that brings it up to date."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import averaging as averages
from hmmstream.arrays import FloatArray, IntArray, is_integer, observations, sequence_starts
from hmmstream.averaging import Averaging, Polyak, StatisticAverage
from hmmstream.model import HMM
from hmmstream.recursions import online
from hmmstream.recursions.bridge import specialize
from hmmstream.recursions.rows import ACCEPTED
from hmmstream.recursions.state import (
    IN_SEQUENCE,
    LIKELIHOOD_FACTOR,
    LOG_LIKELIHOOD,
    N_AVERAGED,
    N_SEEN,
    TIME,
    Shape,
    State,
    parts,
)
from hmmstream.schedule import Power, Step, check_step, evaluate, is_built_in

NEVER = np.iinfo(np.int64).max
PLAIN_NUMBERS = frozenset({float, np.float64, np.float32, np.int64, np.int32})
NO_STARTS: IntArray = np.empty(0, dtype=np.int64)
NO_STEPS: FloatArray = np.empty(0)


class Statistic(NamedTuple):
    """The sufficient statistic S: weighted means over the past, from which the M-step makes parameters."""

    transitions: FloatArray  # (m, m): share of transitions from i to j; cells that are tied show their common total
    emissions: FloatArray  # (m, p): share of time in each state, then the family's statistic of what was seen there


class Learner:
    """Learns a hidden Markov model from one stream, one observation at a time, in constant memory.

    This is the engine behind :class:`~hmmstream.OnlineHMM`, without scikit-learn.

    Parameters
    ----------
    start : HMM
        Where learning starts from: all values, the emission family and the transition structure.
    step : schedule, or a function n -> gamma
        Weight of the n-th observation in the statistic.
    averaging : "auto", None or Polyak(start)
        What ``model`` reports: see :mod:`hmmstream.averaging`.
    n_min : int
        The first new parameters come with the observation of index n_min + 1 (indices count from 0, as in the paper).
    update_every : int
        M-step only at every observation whose index is a multiple of this.

    Examples
    --------
    >>> from hmmstream import HMM, Gaussian, Learner
    >>> world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0, 1], covars=0.5))
    >>> guess = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2))
    >>> learner = Learner(guess)
    >>> learner.learn(world.sample(20_000, random_state=1)[0])
    >>> learner.model.transmat.round(1).tolist()
    [[0.9, 0.1], [0.3, 0.7]]
    """

    def __init__(
        self,
        start: HMM,
        *,
        step: Step | None = None,
        averaging: Averaging | str = "auto",
        n_min: float = 20,
        update_every: int = 1,
    ) -> None:
        if not isinstance(start, HMM):
            raise ValueError(f"start must be an HMM with its values, got {start!r}")
        if n_min != math.inf and not (is_integer(n_min) and n_min >= 0):
            raise ValueError(f"n_min must be an integer that is not negative, or math.inf, got {n_min!r}")
        if not (is_integer(update_every) and update_every >= 1):
            raise ValueError(f"update_every must be a positive integer, got {update_every!r}")
        self.start = start
        self.step = Power(0.6) if step is None else step
        check_step(self.step)
        self.averaging = averages.resolve(averaging)
        self.n_min = int(min(n_min, NEVER))
        self.update_every = int(min(update_every, NEVER))
        self._cells = start.transition.cells(start.n_components)
        theta = start.emission.theta()
        self._shape = Shape(start.n_components, self._cells.n_groups, theta.shape[1], start.emission.n_statistics)
        self._buffer = np.empty((1, start.n_features))
        self._step_is_built_in = is_built_in(self.step)
        self._schedule = (self.step if is_built_in(self.step) else Power(0.6)).numbers()
        self._not_filtered = np.empty((0, start.n_components))
        self.reset()
        self._specialize()

    def reset(self) -> None:
        """Forget all that was learned and go back to the start."""
        self.frozen = False
        self.vector = np.zeros(self._shape.size)
        state = self.state
        state.clock[LIKELIHOOD_FACTOR] = 1.0
        state.startprob[:] = state.phi[:] = self.start.startprob
        state.alive[:] = 1.0
        state.transmat[:] = self.start.transmat
        state.theta[:] = self.start.emission.theta()

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(self, X: ArrayLike, lengths: ArrayLike | None = None) -> None:
        """Learn from the rows of ``X``, which continue the stream.

        With ``lengths``, X is made of whole sequences of these lengths: each starts afresh, and the last one has ended.
        """
        self._learn(X, lengths, self._not_filtered)

    def follow(self, X: ArrayLike, lengths: ArrayLike | None = None) -> FloatArray:
        """Learn from the rows of ``X`` and return each row's state probabilities as they stood at that row."""
        matrix = observations(X, self.start.n_features)
        filtered = np.empty((len(matrix), self.start.n_components))
        self._learn(matrix, lengths, filtered)
        return filtered

    def learn_one(self, x: Any) -> None:
        """Learn from one observation: a number, or a sequence of n_features numbers."""
        if self.start.n_features == 1 and type(x) in PLAIN_NUMBERS:
            self._buffer[0, 0] = x
        else:
            row = x if isinstance(x, np.ma.MaskedArray) else np.asarray(x)
            self._buffer[:] = observations(row.reshape(1, -1), self.start.n_features)
        self._run(self._buffer, NO_STARTS, self._not_filtered)

    def end_sequence(self) -> None:
        """Say that the next observation starts a new, independent sequence."""
        self.vector[IN_SEQUENCE] = 0.0

    def freeze(self) -> None:
        """Hold the parameters: observations still move the filter and the statistic."""
        self.frozen = True

    def unfreeze(self) -> None:
        """Let the parameters follow the statistic again."""
        self.frozen = False

    def _learn(self, X: ArrayLike, lengths: ArrayLike | None, filtered: FloatArray) -> None:
        matrix = observations(X, self.start.n_features)
        starts = NO_STARTS if lengths is None else sequence_starts(lengths, len(matrix))
        self._run(matrix, starts, filtered)
        if lengths is not None:
            self.end_sequence()

    def _run(self, X: FloatArray, starts: IntArray, filtered: FloatArray) -> None:
        steps = NO_STEPS
        if not self._step_is_built_in:
            n = int(self.vector[TIME])
            steps = evaluate(self.step, n, n + len(X) - int(np.isnan(X).all(axis=1).sum()))
        refused = self._loop(
            self.start.emission,
            self._shape,
            self.vector,
            self._cells.groups,
            self._cells.shares,
            self._cells.leaders,
            X,
            self._schedule,
            steps,
            starts,
            filtered,
            NEVER if self.frozen else self.n_min,
            self.update_every,
            online.AVERAGE_NOTHING if self.frozen else self._average_kind,
            self._average_from,
        )
        if refused != ACCEPTED:
            raise ValueError(f"{self.start.emission.refusal(X, refused)} Nothing was learned from this chunk.")

    def _specialize(self) -> None:
        """Find or make the machine code for this family, number of states and features."""
        self._average_kind, self._average_from = online.AVERAGE_NOTHING, 0
        if isinstance(self.averaging, StatisticAverage):
            self._average_kind = online.AVERAGE_STATISTIC
        elif isinstance(self.averaging, Polyak):
            self._average_kind, self._average_from = online.AVERAGE_PARAMETERS, self.averaging.start
        kernel = (self.start.emission, self._shape, self.vector, *self._cells[1:])
        data = (self._buffer, self._schedule, NO_STEPS, NO_STARTS, self._not_filtered)
        self._loop = specialize(online.learn, *kernel, *data, 0, 1, 0, 0)

    # --- what has been learned --------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The parts of ``vector``, the state, by name."""
        return parts(self._shape, self.vector)

    @property
    def n_samples_seen(self) -> int:
        """Number of rows seen, missing ones included."""
        return int(self.vector[N_SEEN])

    @property
    def log_likelihood(self) -> float:
        """Sum of the logarithms of the predictive densities: each observation given those before it.

        It is -inf once an observation had been impossible.
        """
        return float(self.vector[LOG_LIKELIHOOD] + np.log(self.vector[LIKELIHOOD_FACTOR]))

    @property
    def filtered_proba(self) -> FloatArray:
        """Probability of each state now, given all observations so far."""
        return self.state.phi.copy()

    @property
    def statistic(self) -> Statistic:
        """The sufficient statistic S as it stands."""
        m, n_groups = self._shape.n_states, self._shape.n_groups
        state = self.state
        by_group = np.append(state.S[:n_groups], 0.0)  # the last for cells of no group
        emissions = state.S[n_groups:].reshape(m, -1)
        return Statistic(
            by_group[self._cells.groups].reshape(m, m), self.start.emission.uncentred(state.theta, emissions)
        )

    @property
    def last_model(self) -> HMM:
        """The raw iterate: the parameters after the last observation."""
        state = self.state
        return self._model(state.transmat, state.theta)

    @property
    def model(self) -> HMM:
        """The model to use: averaged, or the raw iterate where there is nothing to average yet."""
        if not self.vector[N_AVERAGED]:
            return self.last_model
        if isinstance(self.averaging, Polyak):
            return self._model(self.state.mean_transmat, self.state.mean_theta)
        vector = self.vector.copy()
        online.maximize_average(self.start.emission, self._shape, vector, *self._cells[1:])
        state = parts(self._shape, vector)
        return self._model(state.transmat, state.theta)

    def _model(self, transmat: FloatArray, theta: FloatArray) -> HMM:
        return HMM(self.start.startprob, transmat, self.start.emission.with_theta(theta), self.start.transition)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_loop"]  # machine code belongs to this process
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._specialize()

    def __repr__(self) -> str:
        return f"<Learner of {self.start.n_components} states after {self.n_samples_seen:,} observations>"
