"""Notes on a stream, in constant memory: what pictures and standard errors need besides the model.

All of it depends on the rows alone, not on the chunks that they came in, if chunks are cut where a note is due.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from hmmstream.arrays import FloatArray, IntArray, is_integer
from hmmstream.model import HMM

FIRST_NOTE = 32  # rows after which parameters are noted first
NOTES_PER_DOUBLING = 8
RECENT_ROWS = 2000
BLOCK_ROWS = 512  # of the sample: long enough for most of what a row owes to the rows before it
SAMPLE_SIZE = 2**15  # rows of the sample at most
SAMPLE_NUMBERS = 2**20  # and fewer rows, if there are many features


@dataclass
class Journal:
    """The way of the parameters, blocks of rows from the whole stream, and the last rows with their states."""

    n: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # rows seen at each note
    values: dict[str, FloatArray] = field(default_factory=dict)  # (number of notes, …): the parameters by name
    sample: FloatArray = field(default_factory=lambda: np.empty((0, 0)))  # of every so many blocks all rows
    stride: int = 1  # so many
    n_rows: int = 0  # rows that have come by
    recent: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    recent_proba: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    due: int = field(default=0, init=False)  # the number of rows at which the next note of the parameters is due

    def __post_init__(self) -> None:
        self._set_due()

    def _set_due(self) -> None:
        self.due = FIRST_NOTE
        while len(self.n) and self.due <= self.n[-1]:
            self.due = math.ceil(self.due * 2.0 ** (1.0 / NOTES_PER_DOUBLING))

    def pieces(self, n_seen: int, n: int) -> Iterator[slice]:
        """The next ``n`` rows after ``n_seen``, cut where a note is due. Take the note of one before the next."""
        row = 0
        while row < n:
            end = min(n, max(row + 1, self.due - n_seen))
            yield slice(row, end)
            row = end

    def note(self, model: Callable[[], HMM], n_seen: int, X: FloatArray, proba: FloatArray) -> None:
        """Take notes of rows that have just been learned from, and of the model if that is due."""
        if self.recent.shape[1] != X.shape[1]:  # the first rows, or new features have joined
            self.sample, self.stride, self.n_rows = X[:0], 1, 0
            self.recent, self.recent_proba = X[:0], proba[:0]
        self.recent = np.concatenate([self.recent, X[-RECENT_ROWS:]])[-RECENT_ROWS:]
        self.recent_proba = np.concatenate([self.recent_proba, proba[-RECENT_ROWS:]])[-RECENT_ROWS:]
        self._sample(X)
        if n_seen >= self.due:
            self._note_parameters(model(), n_seen)

    def _sample(self, X: FloatArray) -> None:
        block = (self.n_rows + np.arange(len(X))) // BLOCK_ROWS
        self.sample = np.concatenate([self.sample, X[block % self.stride == 0]])
        self.n_rows += len(X)
        most = max(BLOCK_ROWS, min(SAMPLE_SIZE, SAMPLE_NUMBERS // X.shape[1]))
        while len(self.sample) > most:
            is_kept = np.arange(len(self.sample)) // BLOCK_ROWS % 2 == 0
            self.sample, self.stride = self.sample[is_kept], 2 * self.stride

    def _note_parameters(self, model: HMM, n_seen: int) -> None:
        now = {"transmat": model.transmat}
        now |= {name: getattr(model.emission, name) for name in model.emission.value_names}
        if {name: value.shape for name, value in now.items()} != {k: v.shape[1:] for k, v in self.values.items()}:
            self.n, self.values = self.n[:0], {name: np.empty((0, *value.shape)) for name, value in now.items()}
        self.n = np.append(self.n, n_seen)
        self._set_due()
        self.values = {name: np.concatenate([self.values[name], value[np.newaxis]]) for name, value in now.items()}

    @property
    def sample_lengths(self) -> IntArray:
        """The blocks that the sample is made of: each is a sequence of its own."""
        full, rest = divmod(len(self.sample), BLOCK_ROWS)
        return np.array([BLOCK_ROWS] * full + [rest] * (rest > 0), dtype=np.int64)

    def relabel(self, order: IntArray) -> None:
        """States have another order now: what was noted of them before is told no more."""
        self.recent_proba = self.recent_proba[:, order]
        self.n, self.values = self.n[:0], {}
        self._set_due()

    def check(self) -> None:
        """Refuse notes that do not fit together."""
        tables = (self.sample, self.recent, self.recent_proba)
        arrays = (self.n, *tables, *self.values.values())
        if not all(isinstance(array, np.ndarray) for array in arrays):
            raise ValueError("its journal is not one")
        fits = all(table.ndim == 2 and table.dtype == np.float64 for table in tables)
        fits = fits and len(self.recent) == len(self.recent_proba) and self.sample.shape[1] == self.recent.shape[1]
        fits = fits and self.n.dtype == np.int64 and bool(np.all(np.diff(self.n) > 0))
        fits = fits and all(len(value) == len(self.n) and value.dtype == np.float64 for value in self.values.values())
        counts = (self.stride, self.n_rows + 1)
        if not fits or not all(is_integer(count) and 1 <= count < 2**53 for count in counts):
            raise ValueError("its journal is not one")
