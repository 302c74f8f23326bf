"""The learner: one stream, its state, and the compiled loop that brings it up to date."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import averaging as averages
from hmmstream import schedule as schedules
from hmmstream.arrays import (
    UNKNOWN,
    FloatArray,
    IntArray,
    is_integer,
    known_states,
    observations,
    permutation,
    row_weights,
    sequence_starts,
)
from hmmstream.averaging import Averaging, Polyak, Refined, StatisticAverage
from hmmstream.detection import Change, Detector
from hmmstream.emissions import Emission
from hmmstream.model import HMM, Forecast, forecast_of
from hmmstream.parameters import Parameters
from hmmstream.priors import Prior
from hmmstream.record import Record
from hmmstream.recursions import online, rows, window
from hmmstream.recursions.bridge import specialize
from hmmstream.recursions.rows import ACCEPTED
from hmmstream.recursions.state import (
    IN_SEQUENCE,
    LIKELIHOOD_FACTOR,
    LOG_LIKELIHOOD,
    MATRIX_IS_KEPT,
    MEMORY,
    N_AVERAGED,
    N_SEEN,
    TIME,
    WINDOW_COUNT,
    WINDOW_FIRST,
    Shape,
    State,
    parts,
)
from hmmstream.recursions.window import Contents, Window
from hmmstream.refinement import Refinement
from hmmstream.schedule import Power, Schedule, Sizes, Step, Track, is_built_in
from hmmstream.starts import find_start

NEVER = np.iinfo(np.int64).max
RESTART = 256  # observations that learning begins anew after, when the world has changed
ROWS_A_STATE = 10  # that a new start is made from at least
ENGINES = ("auto", "dense", "window")
MANY_STATES = 24  # from here on a window is the faster engine, if it need not reach far back
SEVERAL_STATES = 8  # and from here on, if there are as many observations between two M-steps
PATIENCE = 1.0  # transitions that a window may go back through, at its longest, for each product of the dense recursion
FIRST_ROOM = (32, 2)  # of a window: for entries, and for transition matrices that they came by
MOST_ROOM = 2**26  # numbers of a window that may still be doubled: half a gigabyte
REMEMBERED = 0.1  # of the rows that a start was made from
PLAIN_NUMBERS = frozenset({float, np.float64, np.float32, np.int64, np.int32})
NO_STARTS: IntArray = np.empty(0, dtype=np.int64)
NO_STEPS: FloatArray = np.empty(0)


class Statistic(NamedTuple):
    """The sufficient statistic S: weighted means over the past, from which the M-step makes parameters."""

    transitions: FloatArray  # (m, m): share of transitions from i to j; cells that are tied show their common total
    emissions: FloatArray  # (m, p): share of time in each state, then the family's statistic of what was seen there


class Peek(NamedTuple):
    """What learning from an observation would find."""

    filtered_proba: FloatArray  # (m,): probability of each state at this observation, given all before it too
    log_density: float  # logarithm of its predictive density, given all before it


class Learner:
    """Learns a hidden Markov model from one stream, one observation at a time, in constant memory.

    This is the engine behind :class:`~hmmstream.OnlineHMM`, without scikit-learn.

    Parameters
    ----------
    start : HMM
        Where learning starts from: all values, the emission family and the transition structure.
    step : schedule, "track", or a function n -> gamma
        Weight of the n-th observation in the statistic.
    averaging : "auto", "refined", StatisticAverage(), None or Polyak(start)
        What ``model`` reports: see :mod:`hmmstream.averaging`.
    n_min : int
        The first new parameters come with the observation of index n_min + 1 (indices count from 0, as in the paper).
    update_every : int
        M-step only at every observation whose index is a multiple of this.
    engine : "auto", "dense" or "window"
        How the statistic is brought up to date. "dense" is the paper's recursion, which costs m⁴ a step for a full
        transition matrix. "window" has the same result to rounding and costs m² times the number of observations that
        the chain remembers its state for, once for each M-step: with ``update_every`` of about m it costs m². "auto"
        takes the one that is faster, and turns from the second to the first where the chain remembers for long.
    prior : Prior or None
        What is believed of the parameters before anything was seen.

    Examples
    --------
    >>> from hmmstream import HMM, Gaussian, Learner
    >>> world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0, 1], covars=0.5))
    >>> guess = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2))
    >>> learner = Learner(guess)
    >>> learner.learn(world.sample(20_000, random_state=1)[0])
    >>> learner.model.transmat.round(2).tolist()
    [[0.95, 0.05], [0.29, 0.71]]
    """

    def __init__(
        self,
        start: HMM,
        *,
        step: Step | str | None = None,
        averaging: Averaging | str = "auto",
        n_min: float = 20,
        update_every: int = 1,
        engine: str = "auto",
        prior: Prior | None = None,
    ) -> None:
        if not isinstance(start, HMM):
            raise ValueError(f"start must be an HMM with its values, got {start!r}")
        if n_min != math.inf and not (is_integer(n_min) and n_min >= 0):
            raise ValueError(f"n_min must be an integer that is not negative, or math.inf, got {n_min!r}")
        if not (is_integer(update_every) and update_every >= 1):
            raise ValueError(f"update_every must be a positive integer, got {update_every!r}")
        check_engine(engine)
        self.start = start
        self.engine = engine
        self.step = Power(0.6) if step is None else schedules.resolve(step)
        self.averaging = averages.resolve(averaging)
        self.n_min = int(min(n_min, NEVER))
        self.update_every = int(min(update_every, NEVER))
        self.prior = prior
        self._lay_out()
        self.reset()

    def _lay_out(self) -> None:
        """What follows from the settings, for the compiled loop."""
        m, emission = self.start.n_components, self.start.emission
        self._cells = self.start.transition.cells(m)
        is_windowed = has_window(self.engine, m, self.update_every)
        self._runs = self._cells.runs if is_windowed else None  # the dense loop has no use for it
        self._shape = Shape(
            m,
            self._cells.n_groups,
            emission.width,
            emission.n_statistics,
            has_prior=self.prior is not None,
            has_window=is_windowed,
            is_full=self._cells.is_full,
        )
        self._buffer = np.empty((1, emission.n_features))
        self._is_number = emission.n_features == 1
        self._row_shape = None if emission.n_lags else (emission.n_features,)
        self._step_is_built_in = is_built_in(self.step)
        self._schedule = (self.step if is_built_in(self.step) else Power(0.6)).numbers()
        self._not_filtered = np.empty((0, m))
        self._average_kind, self._average_from = online.AVERAGE_NOTHING, 0
        forgets = isinstance(self.step, Schedule) and self.step.memory < math.inf  # then an average over all is wrong
        if isinstance(self.averaging, StatisticAverage | Refined) and not forgets:
            self._average_kind = online.AVERAGE_STATISTIC
        elif isinstance(self.averaging, Polyak):
            self._average_kind, self._average_from = online.AVERAGE_PARAMETERS, self.averaging.start
        self._loop: Any = None  # made when it is needed first: a model that is only looked at needs none

    def reset(self) -> None:
        """Forget all that was learned and go back to the start."""
        self.frozen = False
        self.latest = np.full(self.start.emission.n_lags, np.nan)  # values that the next row depends on
        self.refinement = Refinement(self.start) if self._can_refine() else None
        self.detector = self._new_detector()
        self._begin_at(self.start)

    def _new_detector(self) -> Detector | None:
        """The watch of a learner that tracks."""
        if not isinstance(self.step, Track):
            return None
        n_features, n_states = self.start.emission.n_features, self.start.n_components
        return Detector(self.step.memory, self.step.alarm_every, n_features, n_states)

    def _begin_at(self, model: HMM) -> None:
        """Have seen nothing, and believe in this model."""
        self.vector = np.zeros(self._shape.size)
        self.window: Window | None = None
        if has_window(self.engine, self.start.n_components, self.update_every):
            self.window = window.make(self._shape, self._runs, *FIRST_ROOM)
        state = self.state
        state.clock[LIKELIHOOD_FACTOR] = 1.0
        state.startprob[:] = state.phi[:] = self.start.startprob
        state.alive[:] = 1.0
        state.transmat[:], state.theta[:] = model.transmat, model.emission.theta()
        if self.prior is not None:
            state.clock[MEMORY] = self.step.memory if isinstance(self.step, Schedule) else math.inf
            state.prior[:] = self.prior.statistic(self.start, state.theta)

    def _can_refine(self) -> bool:
        """Whether there is a second stage: it knows of no prior, and of no world that changes."""
        has_prior = self.prior is not None and self.prior.says_something
        is_stationary = is_built_in(self.step) and self.step.memory == math.inf and self.n_min < NEVER
        return (
            isinstance(self.averaging, Refined)
            and is_stationary
            and not has_prior
            and Refinement.is_possible(self.start, self.averaging.most_parameters)
        )

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        states: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        """Learn from the rows of ``X``, which continue the stream.

        Parameters
        ----------
        X : (n, d)
        lengths : integers that sum to n
            X is made of whole sequences of these lengths: each starts afresh, and the last one has ended.
        states : (n,)
            The state of each row where it is known, -1 where not: the filter then knows it too.
        weights : (n,)
            How much each row counts in what is learned; one of weight 0 only moves the filter.
        """
        matrix, starts = self._rows(X, lengths)
        self._teach(matrix, starts, self._not_filtered, *self._notes(len(matrix), states, weights))
        if lengths is not None:
            self.end_sequence()

    def follow(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        states: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> FloatArray:
        """Learn from the rows of ``X`` and return each row's state probabilities as they stood at that row."""
        matrix, starts = self._rows(X, lengths)
        filtered = np.empty((len(matrix), self.start.n_components))
        self._teach(matrix, starts, filtered, *self._notes(len(matrix), states, weights))
        if lengths is not None:
            self.end_sequence()
        return filtered

    def take(self, data: Record, filtered: FloatArray, steps: Sizes | None = None) -> None:
        """Learn from rows of all features, and write state probabilities as they stood at each row to ``filtered``.

        ``steps`` are those of a user's function, if they are there already.
        """
        self._teach(data.X, np.flatnonzero(data.is_start), filtered, data.states, data.weights, steps=steps)

    def recall(self, data: Record) -> None:
        """Take in the first rows of the stream, from which the start was made: all count the same, and nothing is new.

        The statistic would forget them soon. A share of it is therefore added to the prior: it keeps states that are
        rare from being estimated by the last few observations alone. But a step that forgets is meant to.
        """
        starts = np.flatnonzero(data.is_start)
        self._teach(data.X, starts, self._not_filtered, data.states, data.weights, is_recall=True)
        state = self.state
        if state.clock[MEMORY] == math.inf:
            state.prior[:] += REMEMBERED * state.clock[TIME] * self._up_to_date().S

    def learn_one(self, x: Any) -> None:
        """Learn from one observation: a number, or a sequence of n_features numbers."""
        row, refinement = self._one(x), self.refinement
        if refinement is None or refinement.room <= 1 or self.frozen:
            self._teach(row, NO_STARTS, self._not_filtered)
            return
        is_start = self.vector[IN_SEQUENCE] == 0.0
        try:
            self._run(row, NO_STARTS, self._not_filtered)
            refinement.take_one(row, is_start)
        except (KeyboardInterrupt, MemoryError):
            refinement.interrupt()
            raise

    def peek(self, x: Any) -> Peek:
        """What ``learn_one(x)`` would find, by the raw iterate; nothing is learned."""
        vector = self.vector.copy()
        vector[LOG_LIKELIHOOD], vector[LIKELIHOOD_FACTOR] = 0.0, 1.0  # that of all before would swallow the digits
        vector[WINDOW_FIRST], vector[WINDOW_COUNT] = 0.0, 0.0
        filtered = np.empty((1, self.start.n_components))
        self._run(self._one(x), NO_STARTS, filtered, trial=vector)
        return Peek(filtered[0], log_likelihood(vector))

    def check(self, X: ArrayLike) -> None:
        """Refuse what ``learn`` would refuse, and learn nothing."""
        matrix, _ = self._rows(X, None)
        refused = rows.check(self.start.emission, matrix)
        if refused != ACCEPTED:
            raise self.start.emission.refusal(matrix, refused)

    def end_sequence(self) -> None:
        """Say that the next observation starts a new, independent sequence."""
        self.vector[IN_SEQUENCE] = 0.0

    def relabel(self, order: ArrayLike) -> None:
        """Put the states in another order: state i is now what state ``order[i]`` was."""
        m, n_groups, p = self._shape.n_states, self._shape.n_groups, self._shape.n_statistics
        at = permutation(order, m)
        start = self.start.relabel(at)
        cells = start.transition.cells(m)
        source = np.empty(self._shape.n_rows, dtype=np.int64)  # of each component of S
        is_group = cells.groups >= 0
        source[cells.groups[is_group]] = self._cells.groups.reshape(m, m)[np.ix_(at, at)].ravel()[is_group]
        source[n_groups:] = (n_groups + at[:, np.newaxis] * p + np.arange(p)).ravel()
        state = self.state
        for by_state in (state.startprob, state.phi, state.alive, state.theta, state.mean_theta):
            by_state[:] = by_state[at]
        state.tau[:] = state.tau[at[: len(state.tau)]]
        for by_pair in (state.transmat, state.mean_transmat):
            by_pair[:] = by_pair[np.ix_(at, at)]
        for by_component in (state.S, state.mean_S, state.base, state.prior, *state.tau):
            by_component[:] = by_component[source[: len(by_component)]]
        if self.window is not None:
            window.relabel(self._shape, self.window, self._cells.runs, cells.runs, at)
        self.start, self.prior = start, self.prior and self.prior.relabel(at)
        if self.refinement is not None:
            self.refinement.relabel(at, start)
        if self.detector is not None:
            self.detector.relabel(at)
        self._lay_out()

    def add_features(self, emission: Emission) -> None:
        """Let new features join, as if they had been there from the first observation on, and missing.

        Parameters
        ----------
        emission : Emission with values
            What the new features look like in each state. Their columns come after those that are there.
        """
        before, n_groups, narrow = self.start.emission, self._shape.n_groups, self.state
        joint = before.beside(emission)
        (at, S_at), (our_at, our_S_at), (new_at, new_S_at) = joint.layout(), before.layout(), emission.layout()
        theta = emission.theta()
        if emission.is_centred:  # at the mean at once: far from the origin, digits would be lost
            shift = np.empty(emission.centre_size)
            for row, s in zip(theta, emission.expected_statistic(theta), strict=True):
                emission.move_centre(row, s, shift)
        expected = emission.expected_statistic(theta)  # stands in for what is missing

        self.prior = self.prior and self.prior.with_features(emission)
        self.start = HMM(self.start.startprob, self.start.transmat, joint, self.start.transition)
        kept, shape = self.window, self._shape
        self._lay_out()
        self.vector = np.zeros(self._shape.size)
        wide = self.state
        for name in ("clock", "startprob", "phi", "alive", "transmat", "mean_transmat"):
            getattr(wide, name)[:] = getattr(narrow, name)
        for new, old in ((wide.theta, narrow.theta), (wide.mean_theta, narrow.mean_theta)):
            new[:, at] = np.concatenate([old[:, our_at], theta[:, new_at]], axis=1)
        joint.prepare(wide.theta)
        self.refinement = Refinement(self.start) if self._can_refine() else None
        if self.detector is not None:
            self.detector.widen(joint.n_features)

        def widen(new: FloatArray, old: FloatArray) -> None:
            both, ours = (S.reshape(len(theta), -1) for S in (new, old))
            both[:, 0] = ours[:, 0]
            missed = ours[:, :1, np.newaxis] * expected[:, new_S_at]
            both[:, S_at] = np.concatenate([ours[:, our_S_at], missed], axis=1)

        statistics = [(wide.S, narrow.S), (wide.mean_S, narrow.mean_S), *zip(wide.tau, narrow.tau, strict=True)]
        statistics += [(new, old) for new, old in ((wide.base, narrow.base), (wide.prior, narrow.prior)) if len(new)]
        for new, old in statistics:
            new[:n_groups] = old[:n_groups]
            widen(new[n_groups:], old[n_groups:])
        if kept is not None:
            room = window.make(self._shape, self._runs, len(kept.entries), len(kept.matrices))
            self.window = room._replace(matrices=kept.matrices)
            new_parts, old_parts = window.split(self._shape, room.entries), window.split(shape, kept.entries)
            new_parts.head[:], new_parts.inverse[:], new_parts.phi[:] = old_parts.head, old_parts.inverse, old_parts.phi
            for new, old in zip(new_parts.statistic, old_parts.statistic, strict=True):
                widen(new, old)

    def freeze(self) -> None:
        """Hold the parameters: observations still move the filter and the statistic."""
        self.frozen = True

    def unfreeze(self) -> None:
        """Let the parameters follow the statistic again."""
        self.frozen = False

    def _one(self, x: Any) -> FloatArray:
        """One observation as a matrix of one row, in memory that the next one uses again."""
        if self._is_number and type(x) in PLAIN_NUMBERS:
            self._buffer[0, 0] = x
        elif type(x) is np.ndarray and x.dtype == np.float64 and x.shape == self._row_shape:
            self._buffer[0] = x
        else:
            row = x if isinstance(x, np.ma.MaskedArray) else np.asarray(x)
            self._buffer[:], _ = self._rows(row.reshape(1, -1), None)
        return self._buffer

    def _rows(self, X: ArrayLike, lengths: ArrayLike | None) -> tuple[FloatArray, IntArray]:
        """The observations, and the rows at which sequences start."""
        emission = self.start.emission
        matrix = observations(X, emission.n_columns)
        starts = NO_STARTS if lengths is None else sequence_starts(lengths, len(matrix))
        if emission.n_lags:
            is_start = np.zeros(len(matrix), dtype=np.bool_)
            is_start[starts] = True
            is_start[:1] |= self.vector[IN_SEQUENCE] == 0.0
            matrix = emission.embed(matrix, is_start, self.latest)
        return matrix, starts

    def _notes(
        self, n: int, states: ArrayLike | None, weights: ArrayLike | None
    ) -> tuple[IntArray | None, FloatArray | None]:
        """What is known of each row besides the observation."""
        return known_states(states, n, self.start.n_components), row_weights(weights, n)

    def _teach(
        self,
        X: FloatArray,
        starts: IntArray,
        filtered: FloatArray,
        states: IntArray | None = None,
        weights: FloatArray | None = None,
        *,
        is_recall: bool = False,
        steps: Sizes | None = None,
    ) -> None:
        """Learn from rows, piece by piece where the second stage or the watch has something to do in between."""
        companion = self.refinement if self.detector is None else self.detector
        if companion is None or self.frozen or (is_recall and self.detector is not None):
            if companion is not None and len(X):
                companion.interrupt()
            self._run(X, starts, filtered, states, weights, is_recall=is_recall, steps=steps)
            return
        if len(X) > companion.room:
            self._check_all(X)
        self._work(is_recall=is_recall)  # if it was broken off
        first = 0
        while first < len(X):
            last = min(first + companion.room, len(X))
            own = within(starts, first, last)
            is_start = np.zeros(last - first, dtype=np.bool_)
            is_start[own] = True
            is_start[0] |= self.vector[IN_SEQUENCE] == 0.0
            own_states = None if states is None else states[first:last]
            piece = Record(X[first:last], is_start, own_states, None if weights is None else weights[first:last])
            try:
                self._run(piece.X, own, filtered[first:last], piece.states, piece.weights, is_recall=is_recall)
                if self.detector is not None:
                    self.detector.take(piece, self._count_seen(piece.X))
                elif self.refinement is not None:
                    self.refinement.take(piece)
            except (KeyboardInterrupt, MemoryError):
                companion.interrupt()
                raise
            self._work(is_recall=is_recall)
            first = last

    def _count_seen(self, X: FloatArray) -> int:
        """Rows in which something was seen."""
        return int(rows.count_seen(self.start.emission, X)) if np.isnan(X).any() else len(X)

    def _work(self, *, is_recall: bool) -> None:
        """What the second stage or the watch does at the end of a piece, if it has come to the end of a block."""
        if self.refinement is not None:
            if is_recall and self.refinement.n_rows > self.refinement.n_done:
                self.refinement.rival = math.nan  # the start was made from these rows, and is no rival
            if self.refinement.room <= 0:
                self.refinement.work(lambda: self._averaged_model, self.log_likelihood)
        if self.detector is not None:
            has_changed = self.detector.work(self.n_samples_seen, self.log_likelihood, self.state.phi)
            gathered, self.detector.gathered = self.detector.gathered, None
            if isinstance(self.step, Track) and self.step.restart:
                if has_changed:
                    self.vector[TIME] = min(self.vector[TIME], max(RESTART, self.n_min + 1))
                if gathered is not None:
                    self._look_again(gathered)

    def _look_again(self, data: Record) -> None:
        """If rows of a world that has changed lead to a better model than the steps since then, go on from there."""
        before = self.last_model
        emission, chain = before.emission, before.transition
        is_usable = not emission.n_lags and rows.check(emission, data.X) == ACCEPTED
        if not is_usable or rows.count_seen(emission, data.X) < ROWS_A_STATE * before.n_components:
            return
        rng = np.random.default_rng(self.n_samples_seen)
        found = find_start(emission, before.n_components, chain, data, rng, self.prior, anew=True)
        if found.log_likelihood(data.X) > before.log_likelihood(data.X) + len(Parameters(found).free()):
            ranks = np.argsort(np.argsort(emission.positions(), kind="stable"), kind="stable")
            ordered = found.relabel(np.argsort(found.emission.positions(), kind="stable")[ranks])
            self._go_on_from(ordered if ordered.transition == chain else found, data)

    def _go_on_from(self, model: HMM, data: Record) -> None:
        """Take over the parameters of a model, and the filter and the statistic of these rows under it."""
        clock, latest = self.state.clock.copy(), self.latest
        self._begin_at(model)
        self._run(data.X, np.flatnonzero(data.is_start), self._not_filtered, is_recall=True)
        self.latest = latest
        for kept in (TIME, N_SEEN, LOG_LIKELIHOOD, LIKELIHOOD_FACTOR):
            self.vector[kept] = clock[kept]

    def _run(
        self,
        X: FloatArray,
        starts: IntArray,
        filtered: FloatArray,
        states: IntArray | None = None,
        weights: FloatArray | None = None,
        *,
        is_recall: bool = False,
        trial: FloatArray | None = None,
        steps: Sizes | None = None,
    ) -> None:
        """Bring the state up to date, or in its place a copy, for a ``trial``: then the parameters are held."""
        if states is not None or weights is not None:
            states = np.full(len(X), UNKNOWN) if states is None else states
            weights = np.ones(len(X)) if weights is None else weights
            loop = online.learn
        else:
            loop = self._loop or self._specialize()
        n = int(self.vector[TIME])
        if is_recall:
            sizes = 1.0 / np.arange(n + 1.0, n + len(X) + 1.0)
        elif self._step_is_built_in:
            sizes = NO_STEPS
        else:
            steps = steps or Sizes.ahead(self.step, n, n + int((~np.isnan(X)).any(axis=1).sum()))
            sizes = steps.sizes[n - steps.first :]
        is_held = self.frozen or is_recall or trial is not None
        refused = loop(
            self.start.emission,
            self._shape,
            self.vector if trial is None else trial,
            self._cells.groups,
            self._cells.shares,
            self._cells.leaders,
            self._runs,
            self.window if trial is None or self.window is None else window.make(self._shape, self._runs, 2, 2),
            X,
            self._schedule,
            sizes,
            starts,
            states,
            weights,
            filtered,
            NEVER if is_held else self.n_min,
            self.update_every,
            online.AVERAGE_NOTHING if is_held else self._average_kind,
            self._average_from,
            False,
        )
        if refused <= online.NO_ROOM:
            done = online.NO_ROOM - refused
            self._make_room()
            self._run(
                X[done:],
                starts[starts >= done] - done,
                filtered[done:],
                None if states is None else states[done:],
                None if weights is None else weights[done:],
                is_recall=is_recall,
                steps=steps,
            )
            return
        if refused != ACCEPTED:
            raise self._refusal(X, refused)
        if len(self.latest) and len(X) and trial is None:
            self.latest = self.start.emission.latest(X)

    def _check_all(self, X: FloatArray) -> None:
        """Refuse rows before any of them is learned from."""
        refused = rows.check(self.start.emission, X)
        if refused != ACCEPTED:
            raise self._refusal(X, refused)

    def _refusal(self, X: FloatArray, refused: int) -> Exception:
        error: Exception = self.start.emission.refusal(X, refused)
        error.args = (f"{error} Nothing was learned from this chunk.",)
        return error

    def _make_room(self) -> None:
        """Let the window grow, or turn to the dense recursion where that costs less."""
        assert self.window is not None
        m, n_rows = self._shape.n_states, self._shape.n_rows
        rows = min(self.update_every, window.SETTLE_SELDOM)  # between two sweeps
        contents = window.contents_of(self.window, self.vector)
        dense_is_cheaper = len(contents.entries) * len(self.window.pairs) / rows > PATIENCE * m * m * n_rows
        if (self.engine == "auto" and dense_is_cheaper) or sum(part.size for part in self.window) > MOST_ROOM:
            self._turn_dense()
            return
        is_full = contents.room == (len(contents.entries), len(contents.matrices))
        larger = contents._replace(room=np.where(is_full, 2, 1) * contents.room)
        self.window = window.refill(self.window, larger, int(self.vector[WINDOW_FIRST]))

    def _turn_dense(self) -> None:
        """Go on with the dense recursion for good: the chain remembers its state for too long."""
        vars(self).update(vars(self.as_dense()))  # at once: there may be no memory for it, or an interrupt

    def as_dense(self) -> Learner:
        """A learner that stands where this one does and goes on from there without a window: itself, if it has none."""
        contents = self.contents
        if contents is None:
            return self
        dense = copy(self)
        dense.engine, dense.window = "dense", None
        dense._lay_out()
        dense.vector = np.zeros(dense._shape.size)
        state = dense.state
        for name, part in state._asdict().items():
            if name not in ("tau", "base"):
                part[:] = getattr(self.state, name)
        state.clock[[WINDOW_FIRST, WINDOW_COUNT, MATRIX_IS_KEPT]] = 0.0
        window.unroll(self._shape, self.state, contents, self._runs, self._cells.groups, state.tau)
        state.tau[:] *= state.phi[:, np.newaxis]
        state.S[:] = state.tau.sum(axis=0)  # which a window computes only when it is needed
        return dense

    def _up_to_date(self) -> State:
        """The state with S as of the last observation, which a window computes only when it is needed."""
        if self.window is None:
            return self.state
        vector = self.vector.copy()
        own = window.make(self._shape, self._runs, 0, 0)  # another thread may be learning
        read = self.window._replace(pairs=own.pairs, gains=own.gains)
        window.refresh(self._shape, vector, self._cells.groups, self._runs, read)
        return parts(self._shape, vector)

    def _specialize(self) -> Any:
        """Find or make the machine code for this family, number of states and features."""
        kernel = (self.start.emission, self._shape, self.vector, *self._cells[1:], self._runs, self.window)
        data = (self._buffer, self._schedule, NO_STEPS, NO_STARTS, None, None, self._not_filtered)
        self._loop = specialize(online.learn, *kernel, *data, 0, 1, 0, 0, False)
        return self._loop

    @property
    def contents(self) -> Contents | None:
        """What is in the window, the oldest first."""
        return None if self.window is None else window.contents_of(self.window, self.vector)

    # --- what has been learned --------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The parts of ``vector``, the state, by name."""
        return parts(self._shape, self.vector)

    @property
    def changes(self) -> list[Change]:
        """Changes of the world that were noticed, with a step of ``Track``."""
        return [] if self.detector is None else list(self.detector.changes)

    @property
    def n_samples_seen(self) -> int:
        """Number of rows seen, missing ones included."""
        return int(self.vector[N_SEEN])

    @property
    def log_likelihood(self) -> float:
        """Sum of the logarithms of the predictive densities: each observation given those before it.

        It is -inf once an observation had been impossible.
        """
        return log_likelihood(self.vector)

    @property
    def filtered_proba(self) -> FloatArray:
        """Probability of each state now, given all observations so far."""
        return self.state.phi.copy()

    @property
    def statistic(self) -> Statistic:
        """The sufficient statistic S as it stands."""
        m, n_groups = self._shape.n_states, self._shape.n_groups
        state = self._up_to_date()
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

    def expect(self) -> Forecast:
        """What is expected of the next observation, by the raw iterate."""
        state = self.state
        now = state.phi @ state.transmat if state.clock[IN_SEQUENCE] else state.startprob
        return forecast_of(now[np.newaxis], self.start.emission.with_theta(state.theta))

    @property
    def model(self) -> HMM:
        """The model to use: refined, or averaged, or the raw iterate where there is nothing to average yet."""
        if self.refinement is not None and self.refinement.is_proven and self.vector[TIME] > self.n_min:
            return self.refinement.found
        return self._averaged_model

    @property
    def _averaged_model(self) -> HMM:
        if not self.vector[N_AVERAGED]:
            return self.last_model
        if isinstance(self.averaging, Polyak):
            return self._model(self.state.mean_transmat, self.state.mean_theta)
        (transmat,), (theta,) = self.maximized(lambda part: getattr(self.state, part)[np.newaxis].copy())
        return self._model(transmat, theta)

    def maximized(self, of_each: Callable[[str], FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Transition matrices and emissions that the averages of S lead to, of any number of learners like this one.

        ``of_each`` gives a part of the state of each of them, as a new array.
        """
        S = of_each("mean_S")
        if self._shape.n_prior_rows:
            clock = of_each("clock")
            weight = 1.0 / np.minimum(clock[:, TIME], clock[:, MEMORY])
            S += weight[:, np.newaxis] * of_each("prior")
        transmat, theta = of_each("transmat"), of_each("theta")
        alive = of_each("alive")
        online.maximize_each(self.start.emission, S, *self._cells[1:], alive, transmat, theta)
        return transmat, theta

    def _model(self, transmat: FloatArray, theta: FloatArray) -> HMM:
        return HMM(self.start.startprob, transmat, self.start.emission.with_theta(theta), self.start.transition)

    def __getstate__(self) -> dict[str, Any]:
        # What begins with an underscore follows from the rest, and machine code belongs to this process
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"refinement": None, "detector": None, **state})  # a pickle from before there was one
        if self.refinement is not None and "past_blocks" not in vars(self.refinement):
            self.refinement = None  # a pickle from before its second stage went by parameters: it goes on without
        before = self.detector
        if before is not None and "began_in" not in vars(before):  # a pickle from before its watch looked at states
            self.detector = self._new_detector()
            if self.detector is not None:
                self.detector.changes = before.changes
        self.vector = self.vector.copy()  # what was loaded may be read-only
        self._lay_out()
        self.window = self.window and window.copy_of(self._shape, self._runs, self.window, self.vector)

    def __repr__(self) -> str:
        return f"<Learner of {self.start.n_components} states after {self.n_samples_seen:,} observations>"


def within(starts: IntArray, first: int, last: int) -> IntArray:
    """Those starts of sequences that are in a piece of the rows, counted from its first row."""
    return starts[(starts >= first) & (starts < last)] - first if len(starts) else starts


def check_engine(engine: Any) -> None:
    """Refuse what is no engine."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {ENGINES}, got {engine!r}")


def has_window(engine: str, n_states: int, update_every: int) -> bool:
    """Whether a learner begins with a window: the faster engine with many states, or with some and few M-steps."""
    is_faster = n_states >= MANY_STATES or SEVERAL_STATES <= n_states <= update_every
    return engine == "window" or (engine == "auto" and is_faster)


def log_likelihood(vector: FloatArray) -> float:
    """Logarithm of the likelihood that a state vector has come to."""
    return float(vector[LOG_LIKELIHOOD] + np.log(vector[LIKELIHOOD_FACTOR]))
