"""Where the streams of a fleet are kept, and how they are brought up to date: each by itself, or all as one."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from hmmstream.arrays import ROUNDING, BoolArray, FloatArray, IntArray, are_distributions
from hmmstream.averaging import Polyak
from hmmstream.emissions import Emission
from hmmstream.learner import NEVER, NO_STEPS, Learner
from hmmstream.model import HMM
from hmmstream.recursions import fleet, online
from hmmstream.recursions.state import (
    CLOCK_SIZE,
    IN_SEQUENCE,
    LIKELIHOOD_FACTOR,
    LOG_LIKELIHOOD,
    MEMORY,
    N_AVERAGED,
    N_SEEN,
    NO_SHAPE,
    TIME,
    parts,
)
from hmmstream.schedule import Step, evaluate, is_built_in, sizes_of_each

MANY_ROWS, MANY_TO_SORT = 2**14, 2**20  # worth a second thread to learn from them, or only to sort them
NO_ORDER: IntArray = np.empty(0, dtype=np.int32)  # longer numbers would take longer to sort by
MOMENTS = 257  # of a period at which the weights of its observations are computed
FEW = 16  # streams for each row: with more, it is faster to sort the rows than to go through all streams
SINGLE_ROUNDING = 1e-5  # as ROUNDING, of many states in single precision
LARGEST_STEP = 1.0 - 1e-9  # in them: the first of all observations has 1
CUTS = np.array([0.0, 1 / 2, 3 / 4, 7 / 8, 15 / 16, 31 / 32])  # of each thread's share: at the end none waits for long
FAINT = 1e-6  # a scale below this is worked into the statistics: weighted by one over it, the largest are still finite


class Rows(NamedTuple):
    """Rows of many streams."""

    X: FloatArray  # (n, d), as they were given
    streams: IntArray  # among them all that have any
    offsets: IntArray  # where the rows of each begin in ``order``
    order: IntArray  # numbers of the rows, those of one stream after the other; empty for a block

    def numbers(self, at: int) -> Any:
        """Those of the rows of one of the streams."""
        if not len(self.order):
            return slice(at, None, len(self.streams))
        return self.order[self.offsets[at] : self.offsets[at + 1]]

    def all_numbers(self) -> IntArray:
        """Those of all rows, one stream after the other."""
        if len(self.order):
            return self.order
        return np.arange(len(self.X)).reshape(-1, max(len(self.streams), 1)).T.ravel()

    def n_seen(self) -> IntArray:
        """How many rows of each stream are not missing."""
        n = np.diff(self.offsets)
        is_seen = (~np.isnan(self.X[self.all_numbers()])).any(axis=1)
        return np.bincount(np.repeat(np.arange(len(n)), n), weights=is_seen, minlength=len(n)).astype(np.int64)


def by_streams(X: FloatArray, places: IntArray, n_streams: int, n_jobs: int) -> Rows:
    """Rows of streams in order of arrival."""
    n = len(X)
    if n_streams == 1:  # a block
        return Rows(X, np.arange(1), np.array([0, n]), NO_ORDER)
    number = NO_ORDER.dtype if n <= np.iinfo(NO_ORDER.dtype).max else np.int64
    if n_streams < FEW * n:
        return Rows(X, np.arange(n_streams), *in_order(places, n_streams, number, n_jobs))
    order = np.argsort(places, kind="stable").astype(number)
    first = np.flatnonzero(np.diff(places[order], prepend=-1))
    return Rows(X, places[order[first]], np.append(first, n), order)


def in_order(places: IntArray, n_streams: int, number: Any, n_jobs: int) -> tuple[IntArray, IntArray]:
    """Where the rows of each stream begin, and the numbers of rows in the order of their streams."""
    n = len(places)
    n_parts = max(min(n_jobs, n // n_streams), 1) if n > MANY_TO_SORT else 1
    bounds = np.linspace(0, n, 1 + n_parts).astype(np.int64).tolist()
    parts = [(part, *bound) for part, bound in enumerate(itertools.pairwise(bounds))]
    ends = np.zeros((n_parts, n_streams), dtype=number)  # short numbers, if they do: more of them are in the cache
    offsets, order = np.empty(n_streams + 1, dtype=np.int64), np.empty(n, dtype=number)

    def count(part: int, start: int, stop: int) -> None:
        fleet.count_rows(NO_SHAPE, places[start:stop], ends, part)

    def fill(part: int, start: int, stop: int) -> None:
        fleet.fill_order(NO_SHAPE, places[start:stop], ends, part, start, order)

    in_threads(count, parts, n_jobs)
    fleet.lay_out(NO_SHAPE, ends, offsets)
    in_threads(fill, parts, n_jobs)
    return offsets, order


class Streams(ABC):
    """The streams of a fleet. ``template`` is a stream that has seen nothing: its start, structure and settings."""

    def __init__(self, template: Learner) -> None:
        self.template = template

    @property
    def at(self) -> Any:
        """Where each part of a state vector stands."""
        places: Any = np.arange(self.template._shape.size)
        return parts(self.template._shape, places)

    @abstractmethod
    def add(self, n: int) -> None:
        """Add ``n`` streams that have seen nothing."""

    @abstractmethod
    def keep(self, places: IntArray) -> None:
        """Keep these streams and no others."""

    def keep_first(self, n: int) -> None:
        """Keep the first ``n`` streams."""
        self.keep(np.arange(n))

    @abstractmethod
    def have_seen(self, first: int) -> bool:
        """Whether any stream from the ``first`` on has seen something, found out in next to no memory."""

    @abstractmethod
    def learn(self, data: Rows, filtered: FloatArray) -> None:
        """Learn from rows, and write the filters after each to ``filtered``, unless that is empty."""

    @abstractmethod
    def columns(self, at: IntArray) -> FloatArray:
        """Some numbers of each state vector: (N, len(at))."""

    @abstractmethod
    def set_clock(self, places: IntArray, at: int, value: float) -> None:
        """Set a number in the clocks of some streams."""

    @abstractmethod
    def replace(self, place: int, learner: Learner) -> None:
        """Let a stream go on from where a learner of the same kind stands."""

    @abstractmethod
    def learner(self, place: int) -> Learner:
        """A stream as a learner of its own."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What a file holds."""

    @abstractmethod
    def restore(self, document: dict[str, Any], n: int) -> None:
        """Take over what a file held of ``n`` streams, if it fits."""

    def steps_for(self, data: Rows) -> tuple[FloatArray, IntArray]:
        """Sizes of a user's steps, and for each of the streams what its time is less to find them by.

        There are none if the schedule is built in.
        """
        if self.template._step_is_built_in or not len(data.X):
            return NO_STEPS, np.empty(0, dtype=np.int64)
        shifts, active = np.zeros(len(data.streams), dtype=np.int64), np.flatnonzero(np.diff(data.offsets))
        times = self.columns(np.array([TIME]))[data.streams[active], 0].astype(np.int64)
        sizes, shifts[active] = sizes_of_each(self.template.step, times, times + data.n_seen()[active])
        return np.append(sizes, 0.0), shifts  # of missing rows at the end

    def filtered_proba(self) -> FloatArray:
        """Probability of each state now: (N, m)."""
        return self.columns(self.at.phi)

    def n_seen(self) -> IntArray:
        """Rows seen, missing ones included: (N,)."""
        return self.columns(self.at.clock[[N_SEEN]])[:, 0].astype(np.int64)

    def log_likelihood(self) -> FloatArray:
        """Sum of the log predictive densities: (N,)."""
        clock = self.columns(self.at.clock)
        return np.asarray(clock[:, LOG_LIKELIHOOD] + np.log(clock[:, LIKELIHOOD_FACTOR]))

    @abstractmethod
    def values(self) -> dict[str, FloatArray]:
        """Values of the models to use, by name."""

    def rules(self) -> tuple[int, int, int, int]:
        """When there are new parameters, and what is averaged, for the compiled loop."""
        template = self.template
        n_min, kind = template.n_min, template._average_kind
        if template.frozen:  # of statistics there are none to average then, but centres move, and the average with them
            n_min, kind = NEVER, kind if kind == online.AVERAGE_STATISTIC else online.AVERAGE_NOTHING
        return n_min, template.update_every, kind, template._average_from


class HostStreams(Streams):
    """Streams in the memory of the host: a vector each, with room for more than there are."""

    def __init__(self, template: Learner, n_jobs: int, width: int) -> None:
        super().__init__(template)
        self.n_jobs = n_jobs
        self.n = 0
        self.room = np.empty((0, width))

    @property
    def vectors(self) -> FloatArray:
        """A vector each."""
        return self.room[: self.n]

    @abstractmethod
    def new_vector(self) -> FloatArray:
        """That of a stream which has seen nothing."""

    def add(self, n: int) -> None:
        if self.n + n > len(self.room):
            room = np.empty((max(self.n + n, 2 * self.n), self.room.shape[1]))
            room[: self.n] = self.vectors
            self.room = room
        self.room[self.n : self.n + n] = self.new_vector()
        self.n += n

    def keep(self, places: IntArray) -> None:
        if len(places) < self.n:
            self.room, self.n = self.room[places], len(places)

    def keep_first(self, n: int) -> None:
        self.n = n  # this takes no memory: there may be none left

    def have_seen(self, first: int) -> bool:
        return bool(self.vectors[first:, N_SEEN].any())

    def columns(self, at: IntArray) -> FloatArray:
        return self.vectors[:, at]

    def set_clock(self, places: IntArray, at: int, value: float) -> None:
        self.vectors[places, at] = value

    def distributions(self) -> tuple[IntArray, ...]:
        """Where each stream has probabilities."""
        return self.at.startprob, self.at.phi, self.at.transmat

    def take_over(self, vectors: Any, n: int, tolerance: float = ROUNDING) -> None:
        """Go on with these vectors, whose probabilities sum to 1 as nearly as ``tolerance`` says."""
        room = checked(vectors, (n, self.room.shape[1]))
        counts, factors = room[:, [TIME, N_SEEN, IN_SEQUENCE, N_AVERAGED]], room[:, LIKELIHOOD_FACTOR]
        are_counts = ((counts >= 0.0) & (counts < 2.0**53)).all() and (room[:, TIME] <= room[:, N_SEEN]).all()
        are_finite = ((factors > 0.0) & (factors < np.inf)).all() and (room[:, LOG_LIKELIHOOD] < np.inf).all()
        if not are_counts or not are_finite:
            raise ValueError("its clocks are wrong")
        if not np.isfinite(room[:, CLOCK_SIZE:]).all():
            raise ValueError("its streams hold what no stream leads to")
        if not all(are_distributions(room[:, places], tolerance) for places in self.distributions()):
            raise ValueError("its probabilities do not sum to 1")
        self.room, self.n = room, n


class SeparateStreams(HostStreams):
    """Streams with models of their own: a state vector each, one after the other in memory.

    A state vector lies in one piece: it is what a single learner has, it is read and written once for all rows that a
    stream has in a chunk, and compiled code for one stream serves them all.
    """

    def __init__(self, template: Learner, n_jobs: int) -> None:
        super().__init__(template, n_jobs, template._shape.size)

    def new_vector(self) -> FloatArray:
        return self.template.vector

    def learn(self, data: Rows, filtered: FloatArray) -> None:
        template, vectors = self.template, self.vectors
        steps = self.steps_for(data)

        def work(start: int, stop: int) -> None:
            fleet.learn_each(
                template.start.emission,
                template._shape,
                vectors,
                *template._cells[1:],
                *data[:4],
                template._schedule,
                *steps,
                filtered,
                *self.rules(),
                start,
                stop,
            )

        share_out(work, data.offsets, self.n_jobs)

    def replace(self, place: int, learner: Learner) -> None:
        self.vectors[place] = vector_from(learner.as_dense(), self.template)

    def learner(self, place: int) -> Learner:
        return learner_of(self.template, self.vectors[place].copy())

    def values(self) -> dict[str, FloatArray]:
        averaged = np.flatnonzero(self.columns(self.at.clock[[N_AVERAGED]])[:, 0] > 0.0)

        def of_each(part: str) -> FloatArray:
            places = getattr(self.at, part)
            return np.asarray(self.vectors[averaged.reshape(-1, *[1] * places.ndim), places])

        transmats, thetas = self.columns(self.at.transmat), self.columns(self.at.theta)
        if isinstance(self.template.averaging, Polyak):
            transmats[averaged], thetas[averaged] = of_each("mean_transmat"), of_each("mean_theta")
        else:
            transmats[averaged], thetas[averaged] = self.template.maximized(of_each)
        return values_of(self.template, transmats, thetas)

    def document(self) -> dict[str, Any]:
        return {"template": self.template, "vectors": self.vectors}

    def restore(self, document: dict[str, Any], n: int) -> None:
        self.template.frozen = document["template"].frozen
        self.take_over(document["vectors"], n, SINGLE_ROUNDING)
        self.normalize()

    def normalize(self) -> None:
        """Let probabilities that do so to single precision only, as on a GPU, sum to 1."""
        for at in (*self.distributions(), self.at.mean_transmat):
            probabilities = self.vectors[:, at]
            sums = probabilities.sum(axis=-1, keepdims=True)
            is_off = (abs(sums - 1.0) > ROUNDING) & (sums > 0.0)  # others stay as they are, to the last bit
            self.vectors[:, at] = probabilities / np.where(is_off, sums, 1.0)


class Pace(NamedTuple):
    """How much observations weigh where several fleets learn one model: each sees some of those of a period."""

    n_before: int  # observations of all fleets before it
    kept: float  # weight of all that was learned before it
    weights: FloatArray  # of observations, from its beginning to its end

    @classmethod
    def of(cls, step: Step, n_before: int, n_rows: int) -> Pace:
        """The weights that the last of so many rows would leave if they came one by one, by this step size."""
        times = n_before + np.linspace(0.0, n_rows, MOMENTS)
        if is_built_in(step):
            gamma = np.asarray(step.at(times))
        else:
            gamma = evaluate(step, times.astype(np.int64))
        fading = -np.log1p(-np.minimum(gamma, LARGEST_STEP))  # a row
        spans = 0.5 * (fading[1:] + fading[:-1]) * np.diff(times)
        since = np.append(np.cumsum(spans[::-1])[::-1], 0.0)  # of what fades from each moment to the end
        kept = 0.0 if n_before == 0 else float(np.exp(-since[0]))
        return cls(n_before, kept, np.minimum(gamma, LARGEST_STEP) * np.exp(-since))

    def plan(self, counts: IntArray, n_min: int) -> fleet.Round:
        """What will happen in rounds of so many observations, with new parameters by what this fleet knows."""
        done = np.cumsum(counts)
        progress = (done - 0.5 * counts) / max(int(counts.sum()), 1)
        weight = np.interp(progress, np.linspace(0.0, 1.0, len(self.weights)), self.weights)
        scale = 1.0 / np.maximum(self.kept + np.cumsum(weight * counts), np.finfo(np.float64).tiny)
        before = self.n_before + done - counts
        never = np.zeros(len(counts), dtype=np.bool_)
        is_due = (before > n_min) & (counts > 0)
        return fleet.Round(np.ones(len(counts)), weight, scale, before.astype(np.float64), is_due, never)


class SharedStreams(HostStreams):
    """Streams that learn one model. The template is the learner that has it; each stream has a filter and a statistic.

    What is learned is what one OnlineHMM would learn from the observations of all streams, one after the other, but for
    two things: those of a round have the same weight, and there are new parameters once a round.
    """

    pace: Pace | None = None  # where other fleets learn the same model
    added = 0.0  # weight of the observations of the period

    def __init__(self, template: Learner, n_jobs: int) -> None:
        shape = template._shape
        super().__init__(template, n_jobs, fleet.own_size(shape))
        self.total = np.zeros(shape.n_rows)  # sum of the statistics of all streams, those that have gone included
        self.scale = 1.0  # of the total
        self.n_observations = 0
        self.n_rounds = 0

    @property
    def together(self) -> FloatArray:
        """The state vector of the model that all have in common, with its statistic."""
        return self.template.vector

    def _own(self) -> Any:
        places: Any = np.arange(self.vectors.shape[1])
        return fleet.own_parts(self.template._shape, self.template.state, places)

    def new_vector(self) -> FloatArray:
        vector, own = np.zeros(self.room.shape[1]), self._own()
        vector[own.clock[LIKELIHOOD_FACTOR]] = 1.0
        vector[own.phi] = self.template.start.startprob
        return vector

    def learn(self, data: Rows, filtered: FloatArray) -> None:
        template, shape = self.template, self.template._shape
        emission = template.start.emission
        counts = np.zeros(int(np.diff(data.offsets).max(initial=0)), dtype=np.int64)
        fleet.count_rounds(emission, *data[:4], counts)
        rounds = self._plan(counts) if self.pace is None else self._plan_in_pace(counts)
        n_crews = -(-len(data.streams) // fleet.CREW)
        changes = np.empty((n_crews, shape.n_rows + shape.n_states))
        is_averaging = self.rules()[2] == online.AVERAGE_STATISTIC
        model = (emission, shape, self.together, self.vectors)
        cells = template._cells[1:]
        if min(n_crews, self.n_jobs) < 2:
            fleet.learn_together(*model, *cells, *data[:4], rounds, filtered, changes, self.total, is_averaging)
            return
        with ThreadPoolExecutor(self.n_jobs) as threads:
            bounds = np.linspace(0, n_crews, self.n_jobs + 1).astype(np.int64)
            for t, (rescaling, weight, scale, n_before, is_update, is_recentring) in enumerate(
                zip(*rounds, strict=True)
            ):
                if rescaling != 1.0:
                    fleet.rescale(shape, self.vectors, rescaling, 0, len(self.vectors))
                    self.total *= rescaling

                def work(start: int, stop: int, t: int = t, weight: float = weight) -> None:
                    fleet.advance_crews(*model, cells[0], *data[:4], t, weight, filtered, changes, start, stop)

                list(threads.map(work, bounds[:-1], bounds[1:]))
                fleet.conclude(
                    *model, *cells, changes, self.total, scale, n_before, is_update, is_averaging, is_recentring
                )

    def _plan(self, counts: IntArray) -> fleet.Round:
        """What will happen in rounds of so many observations."""
        n_min, update_every, *_ = self.rules()
        before = self.n_observations + np.cumsum(counts) - counts
        middle = before + np.maximum(counts - 1, 0) // 2  # of the round
        step = self.template.step
        if is_built_in(step):
            gamma = step.at(middle.astype(np.float64))
        else:
            gamma = evaluate(step, middle)
        gammas = np.where(before == 0, 1.0, -np.expm1(counts * np.log1p(-np.minimum(gamma, 1.0 - 1e-16))))
        gammas[counts == 0] = 0.0
        rescaling, weight, scale = np.ones(len(counts)), np.zeros(len(counts)), np.empty(len(counts))
        for t, (share, count) in enumerate(zip(gammas.tolist(), counts.tolist(), strict=True)):
            kept = self.scale * (1.0 - share)
            if kept < FAINT:
                rescaling[t], kept = kept, 1.0
            if count:
                weight[t] = share / (count * kept)
            scale[t] = self.scale = kept
        is_due = (before > n_min) & (counts > 0)
        if update_every > 1:
            is_due &= (self.n_rounds + np.cumsum(counts > 0) - 1) % update_every == 0
        self.n_rounds += int((counts > 0).sum())
        self.n_observations += int(counts.sum())
        return fleet.Round(
            rescaling, weight, scale, before.astype(np.float64), is_due, self._recentrings(before, counts)
        )

    def _recentrings(self, before: IntArray, counts: IntArray) -> BoolArray:
        """In which rounds the time passes a number at which statistics are measured from a new centre."""
        if not self.template.start.emission.is_centred:
            return np.zeros(len(counts), dtype=np.bool_)
        n_streams = max(len(self.vectors), 1)
        first, stop = -(-before // n_streams), -(-(before + counts) // n_streams)  # times n with before <= n N < after
        every = online.RECENTRE_EVERY
        passes_multiple = -(-stop // every) > -(-first // every)
        passes_power = np.zeros(len(counts), dtype=np.bool_)
        for power in itertools.takewhile(lambda power: power < every, (2**k for k in itertools.count())):
            passes_power |= (first <= power) & (power < stop)
        return passes_multiple | passes_power

    # --- where other fleets learn the same model ---

    def take_part(self, model: HMM, S: FloatArray, pace: Pace, faded: float) -> None:
        """Begin a period with this model, which has led to S, measured from its centres.

        What these streams have learned earlier has ``faded`` to this share of its weight.
        """
        emission, state = self.template.start.emission, self.template.state
        theta = model.emission.theta()
        theta[:, emission.limits] = state.theta[:, emission.limits]
        if emission.is_centred:
            shifts = emission.centres(theta) - emission.centres(state.theta)
            fleet.translate_all(emission, self.template._shape, self.together, self.vectors, self.total, shifts)
        fleet.rescale(self.template._shape, self.vectors, faded, 0, len(self.vectors))
        state.transmat[:], state.theta[:] = model.transmat, theta
        self.total[:], self.pace = pace.kept * S, pace
        self.n_observations, self.n_rounds, self.added = 0, 0, 0.0

    def gained(self, S: FloatArray) -> tuple[float, FloatArray]:
        """The weight of the period's observations, and what they have added to the sum of all statistics."""
        assert self.pace is not None
        return self.added, self.total - self.pace.kept * S

    def _plan_in_pace(self, counts: IntArray) -> fleet.Round:
        assert self.pace is not None
        plan = self.pace.plan(counts, self.rules()[0])
        self.n_observations += int(counts.sum())
        self.added += float((plan.weight * counts).sum())
        return plan

    def filtered_proba(self) -> FloatArray:
        return self.columns(self._own().phi)

    def distributions(self) -> tuple[IntArray, ...]:
        return (self._own().phi,)

    def replace(self, place: int, learner: Learner) -> None:
        raise ValueError("the streams of a shared model have none of their own")

    def learner(self, place: int) -> Learner:
        """A learner with the model that all have learned, and the filter of one stream: from now on it goes alone."""
        vector = self.together.copy()
        state = parts(self.template._shape, vector)
        own = fleet.own_parts(self.template._shape, state, self.vectors[place])
        state.phi[:] = own.phi
        state.tau[:] = state.phi[:, np.newaxis] * state.S
        for at in (IN_SEQUENCE, LOG_LIKELIHOOD, LIKELIHOOD_FACTOR):
            state.clock[at] = own.clock[at]
        state.clock[[N_SEEN, TIME]] = max(self.n_observations, 1)
        return learner_of(self.template, vector)

    def values(self) -> dict[str, FloatArray]:
        model = self.template.model
        names = {name: getattr(model.emission, name) for name in model.emission.value_names}
        return {"transmat": model.transmat, **names}

    def document(self) -> dict[str, Any]:
        counts = {"scale": self.scale, "n_observations": self.n_observations, "n_rounds": self.n_rounds}
        return {"template": self.template, "vectors": self.vectors, "total": self.total, **counts}

    def restore(self, document: dict[str, Any], n: int) -> None:
        held = document["template"]
        self.template.frozen = held.frozen
        self.together[:] = checked(held.vector, self.together.shape)
        self.take_over(document["vectors"], n)
        self.total = checked(document["total"], self.total.shape)
        self.scale = float(document["scale"])
        self.n_observations, self.n_rounds = int(document["n_observations"]), int(document["n_rounds"])
        if not (0.0 < self.scale <= 1.0 and self.n_observations >= self.n_rounds >= 0):
            raise ValueError("its counts are wrong")


def learner_of(template: Learner, vector: FloatArray) -> Learner:
    """A learner like the template, at another point."""
    learner = copy(template)
    learner.vector, learner.latest = vector, template.latest.copy()
    startprob, start = parts(template._shape, vector).startprob, template.start
    if not np.array_equal(startprob, start.startprob):  # it was put here from elsewhere
        learner.start = HMM(startprob, start.transmat, start.emission, start.transition)
    return learner


def vector_from(learner: Learner, template: Learner) -> FloatArray:
    """The state vector of a stream like the template that goes on from where a learner stands."""
    vector = learner.vector.copy()
    vector[MEMORY] = template.vector[MEMORY]  # of the steps to come
    if learner._average_kind != template._average_kind:  # its average is of something else, or is not wanted
        vector[N_AVERAGED] = 0.0
    return vector


def are_alike(one: Learner, other: Learner) -> bool:
    """Whether each could go on from where the other stands, were it not for windows."""

    def kind(learner: Learner) -> tuple[Any, ...]:
        emission, shape = learner.start.emission, learner._shape
        family = (type(emission), emission.specification, emission.n_components, emission.n_features)
        return (*family, learner.start.transition, shape.n_rows, shape.width, shape.n_prior_rows)

    return kind(one) == kind(other)


def values_of(template: Learner, transmats: FloatArray, thetas: FloatArray) -> dict[str, FloatArray]:
    """Values of many models by name: (N, …)."""
    emission = template.start.emission
    m, p = emission.n_components, emission.n_parameters
    if type(emission).with_theta is not Emission.with_theta:  # its parameters do not stand in theta as they are
        each = [emission.with_theta(theta) for theta in thetas]
        names = {name: np.array([getattr(one, name) for one in each]) for name in emission.value_names}
        return {"transmat": transmats, **names}
    cells = thetas[:, :, :p].reshape(len(thetas), m * p)
    places = emission.shaped(np.arange(float(m * p)).reshape(m, p))
    values = {name: cells[:, np.asarray(place, dtype=np.int64)] for name, place in places.items()}
    return {"transmat": transmats, **values}


def share_out(work: Callable[[int, int], None], offsets: IntArray, n_jobs: int, many: int = MANY_ROWS) -> None:
    """Let threads work on ranges of streams that have about as many rows each, if there are ``many``."""
    n = len(offsets) - 1
    if n_jobs == 1 or n < 2 or offsets[-1] <= many:
        work(0, n)
        return
    wanted = offsets[-1] / n_jobs * np.add.outer(np.arange(n_jobs), CUTS)
    starts = np.searchsorted(offsets, wanted.ravel()).tolist()
    pieces = list(itertools.pairwise([*starts, n]))
    # the largest first; those that follow each other are far apart, as neighbours share a line of the cache
    in_order = itertools.chain.from_iterable(pieces[at :: len(CUTS)] for at in range(len(CUTS)))
    in_threads(work, (piece for piece in in_order if piece[0] < piece[1]), n_jobs)


def in_threads(work: Callable[..., None], pieces: Iterable[tuple[Any, ...]], n_jobs: int) -> None:
    """Let threads, this one among them, take pieces of work until none is left.

    A pool of threads would do the same, and take several times as long to begin and end. What goes wrong in one piece
    is raised here when those that had been begun are done, an interrupt too; no other is begun then.
    """
    left, failures = deque(pieces), []

    def take_pieces() -> None:
        try:
            while left:
                try:
                    piece = left.popleft()
                except IndexError:  # another thread was faster
                    return
                work(*piece)
        except BaseException as failure:
            left.clear()
            failures.append(failure)

    others = [threading.Thread(target=take_pieces) for _ in range(min(n_jobs, len(left)) - 1)]
    try:
        for thread in others:
            thread.start()
        take_pieces()
    finally:
        left.clear()
        for thread in others:
            if thread.is_alive():
                thread.join()
    try:
        if failures:
            raise failures[0]
    finally:
        failures.clear()  # which refer to this frame: they would keep alive all that was worked on


def checked(array: Any, shape: tuple[int, ...]) -> FloatArray:
    """An array of this shape with numbers that a stream may have, as compiled code expects it."""
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != np.float64:
        raise ValueError("its streams do not fit the model")
    if np.isnan(array).any():
        raise ValueError("its streams hold what is no number")
    return np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])
