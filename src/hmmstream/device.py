"""The streams of a fleet on a GPU: their states stay there, and rows that are there already are not copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.learner import Learner
from hmmstream.recursions import cuda, online
from hmmstream.recursions.state import CLOCK_SIZE, TIME
from hmmstream.schedule import Step, evaluate, is_built_in
from hmmstream.streams import NO_ORDER, Rows, SeparateStreams, Streams

LARGEST_SIZE = 4096  # numbers of a stream: more would not fit into the memory of a thread


class DeviceStreams(Streams):
    """Streams with models of their own, on a GPU. What is asked of them comes to the host."""

    def __init__(self, template: Learner, dtype: str) -> None:
        super().__init__(template)
        cuda.check_device()
        if template._shape.size > LARGEST_SIZE:
            raise ValueError(
                f"a stream of this model has {template._shape.size:,} numbers, and a thread of a GPU holds at most "
                f"{LARGEST_SIZE:,}: use device='cpu'"
            )
        self.dtype = dtype
        self.clocks = cuda.to_device(np.empty((CLOCK_SIZE, 0)))
        self.numbers = cuda.to_device(np.empty((template._shape.size - CLOCK_SIZE, 0), dtype=dtype))
        self._kernels: dict[tuple[online.Rules, bool], Any] = {}
        cuda.introduce(template.start.emission)
        cuda.introduce(template._shape)
        self._check = cuda.checking_kernel(template.start.emission)

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
        rows = block.reshape(n_times * n_streams, d)
        place = cuda.first_refused(self._check, rows)
        if place >= 0:
            row, column = divmod(place, d)
            raise ValueError(
                f"X[{row // n_streams}, {row % n_streams}, {column}] is {rows[row, column]}: "
                f"{emission.domain_at(column)}, finite, or NaN where missing. Nothing was learned from these rows."
            )
        if len(self) == 0:
            self.add(n_streams)
        self._learn_block(rows, n_times)

    def learn(self, data: Rows, filtered: FloatArray) -> None:
        if len(filtered):
            raise ValueError("follow works on the CPU; on a GPU, look at filtered_proba_ after partial_fit")
        X = cuda.to_device(data.X)
        if not len(data.order):
            self._learn_block(X, int(data.offsets[1]) if len(data.streams) else 0)
            return
        times = self.clocks[TIME].copy_to_host().astype(np.int64)[data.streams]
        steps, shifts = steps_for(self.template.step, times, times + np.diff(data.offsets))
        self._launch(len(data.streams), X, data.streams, data.offsets, data.order, shifts, steps)

    def _learn_block(self, X: Any, n_times: int) -> None:
        if len(X):
            first, last = cuda.span(self.clocks[TIME])
            steps, shifts = steps_for(self.template.step, np.array([int(first)]), np.array([int(last) + n_times]))
            self._launch(len(self), X, NO_ORDER, np.array([0, n_times]), NO_ORDER, shifts, steps)

    def _launch(self, n: int, X: Any, *arrays: Any) -> None:
        rules, is_block = online.Rules(*self.rules()), len(arrays[0]) == 0
        if (rules, is_block) not in self._kernels:
            template = self.template
            self._kernels[rules, is_block] = cuda.learning_kernel(
                template.start.emission, template._shape, template._cells[1:], rules, self.dtype, is_block
            )
        *numbers_of_rows, steps = arrays
        uploaded = [cuda.to_device(array) for array in (*numbers_of_rows, steps.astype(self.dtype))]
        flat = X.reshape(X.size)
        threads = cuda.layout(self.template._shape, rules.averaging, self.dtype).threads
        cuda.launch(self._kernels[rules, is_block], n, threads, self.dtype, self.numbers, self.clocks, flat, *uploaded)

    # --- streams come and go ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self.clocks.shape[1])

    def add(self, n: int) -> None:
        new = np.repeat(self.template.vector[:, np.newaxis], n, axis=1)
        self._set(np.hstack([self._vectors(), new]))

    def keep(self, places: IntArray) -> None:
        self._set(self._vectors()[:, places])

    def replace(self, place: int, vector: FloatArray) -> None:
        vectors = self._vectors()
        vectors[:, place] = vector
        self._set(vectors)

    def set_clock(self, places: IntArray, at: int, value: float) -> None:
        clocks = self.clocks.copy_to_host()
        clocks[at, places] = value
        self.clocks = cuda.to_device(clocks)

    def _vectors(self) -> FloatArray:
        """State vectors, one a column, on the host."""
        return np.vstack([self.clocks.copy_to_host(), self.numbers.copy_to_host().astype(np.float64)])

    def _set(self, vectors: FloatArray) -> None:
        self.clocks = cuda.to_device(np.ascontiguousarray(vectors[:CLOCK_SIZE]))
        self.numbers = cuda.to_device(np.ascontiguousarray(vectors[CLOCK_SIZE:], dtype=self.dtype))

    # --- what has been learned --------------------------------------------------------------------------------------

    def on_host(self) -> SeparateStreams:
        """A copy of these streams on the host, to look at."""
        streams = self._as_they_are()
        if self.dtype == "float32":  # whose probabilities sum to 1 only to so many digits
            for at in (self.at.startprob, self.at.phi, self.at.transmat, self.at.mean_transmat):
                probabilities = streams.room[:, at]
                streams.room[:, at] /= np.maximum(probabilities.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
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
        streams.restore(document, n)
        self._set(streams.vectors.T)


def steps_for(step: Step, times: IntArray, stops: IntArray) -> tuple[FloatArray, IntArray]:
    """Step sizes at all times from ``times`` up to ``stops`` of each stream, and at n for a stream in place n - shift.

    Streams whose times overlap share a stretch of step sizes.
    """
    order = np.argsort(times, kind="stable")
    reach = np.maximum.accumulate(stops[order])
    is_first = np.append(True, times[order][1:] > reach[:-1])
    first = np.flatnonzero(is_first)
    starts, ends = times[order][first], reach[np.append(first[1:], len(order)) - 1]
    n = np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])
    if is_built_in(step):
        sizes = np.where(n == 0, 1.0, step.at(n.astype(np.float64)))
    else:
        sizes = np.concatenate([evaluate(step, int(start), int(end)) for start, end in zip(starts, ends, strict=True)])
    places = np.cumsum(np.append(0, (ends - starts)[:-1]))
    shifts = np.empty_like(times)
    shifts[order] = (starts - places)[np.cumsum(is_first) - 1]
    return sizes, shifts
