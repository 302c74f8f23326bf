"""The streams of a fleet on a GPU: their states stay there, and rows that are there already are not copied."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.learner import Learner
from hmmstream.recursions import cuda, online
from hmmstream.recursions.rows import ACCEPTED
from hmmstream.recursions.state import CLOCK_SIZE, LIKELIHOOD_FACTOR, LOG_LIKELIHOOD, N_SEEN, TIME
from hmmstream.schedule import is_built_in, sizes_of_each
from hmmstream.streams import SINGLE_ROUNDING, Rows, SeparateStreams, Streams, vector_from

STEPS_AHEAD = 2**15  # step sizes that are computed for blocks to come
MOST_ROWS = 2**31 - 1  # of a stream at a time: the kernel counts them in 32 bits
LARGEST_SIZE = 4096  # numbers of a stream: more would not fit into the memory of a thread


class States(NamedTuple):
    """State vectors on the device, one a column: the k-th numbers of all streams lie side by side."""

    numbers: Any
    clocks: Any


class DeviceStreams(Streams):
    """Streams with models of their own, on a GPU. What is asked of them comes to the host.

    There is room for all states twice: a block makes new ones of the old, which are kept if a value is refused. To look
    at all values first would take much longer.
    """

    _states: States
    _spare: States | None  # room for new states
    _span: tuple[int, int] | None  # the earliest and the latest time of all streams, if it is known

    def __init__(self, template: Learner, dtype: str) -> None:
        super().__init__(template)
        cuda.check_device()
        if template._shape.size > LARGEST_SIZE:
            raise ValueError(
                f"a stream of this model has {template._shape.size:,} numbers, and a thread of a GPU holds at most "
                f"{LARGEST_SIZE:,}: use device='cpu'"
            )
        self.dtype = dtype
        self._set(np.empty((template._shape.size, 0)))
        self._kernels: dict[tuple[online.Rules, bool, bool], Any] = {}
        cuda.introduce(template.start.emission)
        cuda.introduce(template._shape)
        self._check = cuda.checking_kernel(template.start.emission)
        self._findings = cuda.Findings()
        self._no_numbers = cuda.to_device(np.zeros(1, dtype=np.int64))
        self._steps = cuda.to_device(np.empty(0, dtype=dtype)), 0

    # --- learning ---------------------------------------------------------------------------------------------------

    def learn_block(self, X: Any) -> None:
        """Learn from a block (time, stream) or (time, stream, feature) on the device; the first brings the streams."""
        block, emission = cuda.as_array(X), self.template.start.emission
        n_times, n_streams = block.shape[:2] if block.ndim > 1 else (0, 0)
        d = emission.n_features
        if len(self) not in (0, n_streams) or block.shape not in ((n_times, n_streams), (n_times, n_streams, d)):
            raise ValueError(
                f"X must have shape (time, stream) or (time, stream, {d}), for {len(self) or 'any number of'} streams, "
                f"got {block.shape}"
            )
        if block.size != n_times * n_streams * d or not block.is_c_contiguous():
            raise ValueError(f"X must hold {d} feature(s), and be contiguous in memory, a row after the other")
        check_length(n_times)
        values, n_before = block.reshape(block.size), len(self)
        try:
            self.add(n_streams - n_before)
            place = ACCEPTED if self._looks_at(values) else self._first_refused(values)
            if place == ACCEPTED:
                place = self._learn_block(values, n_times)
            if place != ACCEPTED:
                row, column = divmod(place, d)
                raise ValueError(
                    f"X[{row // n_streams}, {row % n_streams}, {column}] is {values[place]}: "
                    f"{emission.domain_at(column)}, finite, or NaN where missing. Nothing was learned from these rows."
                )
        except BaseException:  # a value, a step function that fails, or no memory: nothing was learned
            self.keep(np.arange(n_before))
            raise

    def learn(self, data: Rows, filtered: FloatArray) -> None:
        if len(filtered):
            raise ValueError("follow works on the CPU; on a GPU, look at filtered_proba_ after partial_fit")
        check_length(int(np.diff(data.offsets).max(initial=0)))
        X = cuda.to_device(data.X.reshape(data.X.size))
        if not len(data.order):
            place = self._learn_block(X, int(data.offsets[1]) if len(data.streams) else 0)
            assert place == ACCEPTED, "values were looked at before"
            return
        times = self.clocks[TIME].copy_to_host().astype(np.int64)[data.streams]
        steps, shifts = sizes_of_each(self.template.step, times, times + np.diff(data.offsets))
        self._span = None
        numbers = [cuda.to_device(array) for array in (data.streams, data.offsets, data.order, shifts)]
        sizes = cuda.to_device(steps.astype(self.dtype))
        self._launch(len(data.streams), self._states, X, sizes, numbers=numbers)

    def _looks_at(self, X: Any) -> bool:
        """Whether streams look at the values of a block themselves: not at those of another precision."""
        return bool(X.dtype == self.dtype)

    def _first_refused(self, X: Any) -> int:
        """The place of the first value that cannot occur, counted along the rows, or ACCEPTED."""
        if len(X):
            cuda.launch(self._check, min(len(X), cuda.WALKERS), cuda.THREADS, "float64", X, self._findings.begin())
        return self._findings.read()[0]

    def _learn_block(self, X: Any, n_times: int) -> int:
        """Learn from a block, or change nothing and return the place of the first value that cannot occur."""
        if not len(X):
            return ACCEPTED
        first, last = self._span or cuda.span(self.clocks[TIME])
        steps, shift = self._steps_between(first, last + n_times)
        new = self._spare or States(*map(cuda.room_for, self._states))
        self._launch(len(self), new, X, steps, shift, n_times)
        place, some_missing = self._findings.read()
        if place == ACCEPTED:
            self._span = None
            self._states, self._spare = new, self._states
            if not some_missing:
                self._span = first + n_times, last + n_times
        return place

    def _steps_between(self, first: int, stop: int) -> tuple[Any, int]:
        """Step sizes on the device, those at all these times among them, and the time of the first of them."""
        sizes, start = self._steps
        if not start <= first <= stop <= start + len(sizes):
            ahead = STEPS_AHEAD if is_built_in(self.template.step) else 0
            found, (start,) = sizes_of_each(self.template.step, np.array([first]), np.array([stop + ahead]))
            self._steps = sizes, start = cuda.to_device(found.astype(self.dtype)), int(start)
        return sizes, start

    def _launch(
        self,
        n: int,
        new: States,
        X: Any,
        steps: Any,
        shift: int = 0,
        n_times: int = 0,
        numbers: list[Any] | None = None,
    ) -> None:
        """Let ``n`` streams learn, which makes ``new`` states: from ``n_times`` of a block, or from rows by number."""
        rules, is_block = online.Rules(*self.rules()), numbers is None
        kind = rules, is_block, is_block and self._looks_at(X)
        if kind not in self._kernels:
            template = self.template
            self._kernels[kind] = cuda.learning_kernel(
                template.start.emission, template._shape, template._cells[1:], rules, self.dtype, *kind[1:]
            )
        data = X, steps, n_times, shift, self._findings.begin()
        where = [self._no_numbers] * 4 if numbers is None else numbers
        threads = cuda.layout(self.template._shape, rules.averaging, self.dtype).threads
        cuda.launch(self._kernels[kind], n, threads, self.dtype, *self._states, *new, *data, *where)

    # --- streams come and go ----------------------------------------------------------------------------------------

    @property
    def numbers(self) -> Any:
        """All numbers of the streams, less their clocks, one a column, on the device."""
        return self._states.numbers

    @property
    def clocks(self) -> Any:
        """Their clocks, one a column."""
        return self._states.clocks

    def __len__(self) -> int:
        return int(self.clocks.shape[1])

    def add(self, n: int) -> None:
        if n == 0:
            return
        new = np.repeat(self.template.vector[:, np.newaxis], n, axis=1)
        self._set(np.hstack([self._vectors(), new]))

    def keep(self, places: IntArray) -> None:
        if len(places) < len(self):
            self._set(self._vectors()[:, places])

    def have_seen(self, first: int) -> bool:
        return bool(self.clocks.copy_to_host()[N_SEEN, first:].any())

    def replace(self, place: int, learner: Learner) -> None:
        vectors = self._vectors()
        vectors[:, place] = vector_from(learner.as_dense(), self.template)
        self._set(vectors)

    def set_clock(self, places: IntArray, at: int, value: float) -> None:
        clocks = self.clocks.copy_to_host()
        clocks[at, places] = value
        self._states, self._span = self._states._replace(clocks=cuda.to_device(clocks)), None

    def _vectors(self) -> FloatArray:
        """State vectors, one a column, on the host."""
        return np.vstack([self.clocks.copy_to_host(), self.numbers.copy_to_host().astype(np.float64)])

    def _set(self, vectors: FloatArray) -> None:
        self._spare = self._span = None  # at first: memory may be short
        numbers = np.ascontiguousarray(vectors[CLOCK_SIZE:], dtype=self.dtype)
        clocks = np.array(vectors[:CLOCK_SIZE], order="C")
        if self.dtype == "float32":  # which holds not every factor whose logarithm is still to be taken
            least, most = np.finfo(np.float32).tiny, np.finfo(np.float32).max
            is_out = (clocks[LIKELIHOOD_FACTOR] < least) | (clocks[LIKELIHOOD_FACTOR] > most)
            clocks[LOG_LIKELIHOOD, is_out] += np.log(clocks[LIKELIHOOD_FACTOR, is_out])
            clocks[LIKELIHOOD_FACTOR, is_out] = 1.0
        self._states = States(cuda.to_device(numbers), cuda.to_device(clocks))

    # --- what has been learned --------------------------------------------------------------------------------------

    def on_host(self) -> SeparateStreams:
        """A copy of these streams on the host, to look at."""
        streams = self._as_they_are()
        streams.normalize()
        return streams

    def _as_they_are(self) -> SeparateStreams:
        streams = SeparateStreams(self.template, 1)
        streams.room, streams.n = np.ascontiguousarray(self._vectors().T), len(self)
        return streams

    def columns(self, at: IntArray) -> FloatArray:
        return self.on_host().columns(at)

    def learner(self, place: int) -> Learner:
        return self.on_host().learner(place)

    def values(self) -> dict[str, FloatArray]:
        return self.on_host().values()

    def document(self) -> dict[str, Any]:
        return self._as_they_are().document()

    def __getstate__(self) -> dict[str, Any]:
        return {"template": self.template, "dtype": self.dtype, "vectors": self._vectors()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        DeviceStreams.__init__(self, state["template"], state["dtype"])
        self._set(state["vectors"])

    def restore(self, document: dict[str, Any], n: int) -> None:
        streams = SeparateStreams(self.template, 1)
        self.template.frozen = document["template"].frozen
        streams.take_over(document["vectors"], n, SINGLE_ROUNDING)
        self._set(streams.vectors.T)


def check_length(n_rows: int) -> None:
    """Refuse more rows of a stream than a kernel can count."""
    if n_rows > MOST_ROWS:
        raise ValueError(f"on a GPU a stream learns from at most {MOST_ROWS:,} rows at a time, got {n_rows:,}")
