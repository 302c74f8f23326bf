"""An estimator at work: the tables it learns from, the file it is kept in, the signals that stop it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Full, Queue
from types import FrameType
from typing import Any

import numpy as np

from hmmstream import checkpoint, emissions
from hmmstream.arrays import FloatArray, RefusedError
from hmmstream.emissions import AutoRegressive, Emission, LinearRegression
from hmmstream.io.parsing import InputError, Reading
from hmmstream.io.reading import Chunk, Table, open_table
from hmmstream.learner import Learner
from hmmstream.model import HMM
from hmmstream.online import OnlineHMM

EMISSION_CLASSES: dict[str, Any] = {
    **emissions.FAMILIES,
    "autoregressive": AutoRegressive,
    "linear_regression": LinearRegression,
}
SAVE_EVERY = ("seconds", 10.0)
READ_AHEAD = 4  # chunks


def say(options: Namespace, text: str) -> None:
    """Tell the person at the terminal, who may want to hear nothing."""
    if not options.quiet:
        print(text, file=sys.stderr)


# --- being stopped --------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """A signal came while nothing was being done."""


class Stop:
    """Lets SIGINT and SIGTERM end the work where it can be ended. A second SIGINT ends it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._is_waiting = False

    def __enter__(self) -> Stop:
        self._before = {number: signal.signal(number, self._heard) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *error: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        if self._is_waiting:
            raise Stopped

    def next(self, source: Iterator[Any]) -> Any:
        """The next of a source that may keep one waiting; None at its end, or if a signal came meanwhile."""
        try:
            self._is_waiting = True
            if self.signal is not None:
                return None
            return next(source, None)
        except Stopped:
            return None
        finally:
            self._is_waiting = False

    @property
    def exit_code(self) -> int:
        """As shells report it."""
        return 0 if self.signal is None else 128 + self.signal


# --- options --------------------------------------------------------------------------------------------------------


def reading_of(options: Namespace, columns: Sequence[str] | None = None) -> Reading:
    """How tables are to be read; ``columns`` are those of the model."""
    return Reading(
        columns=options.column,
        expected=columns or (),
        format=options.format,
        delimiter=options.delimiter,
        decimal=options.decimal,
        header=options.header,
        missing=options.missing,
        bad_rows_allowed=options.skip_bad_rows,
    )


def emission_of(name: str | None) -> str | Emission:
    """A family by its name, or its name and setting as in gaussian:diag."""
    if name is None:
        return "gaussian"
    family, _, setting = name.partition(":")
    families = EMISSION_CLASSES
    if family not in families:
        raise ValueError(f"there is no emission {family!r}; there is: {', '.join(sorted(families))}")
    if not setting and family in emissions.FAMILIES:
        return family
    try:
        emission: Emission = families[family](int(setting or 1) if setting.isdecimal() or not setting else setting)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{setting!r} is not a setting of {family}: {error}") from None
    return emission


def start_of(path: str) -> HMM:
    """The model in a file, to start from."""
    return model_in(checkpoint.load(path))


def model_in(held: Any) -> HMM:
    """The model of whatever a file holds."""
    if isinstance(held, HMM):
        return held
    model: HMM = held.model if isinstance(held, Learner) else held.model_
    return model


class ModelFile:
    """A model file that is only read: the model, and the names of its columns."""

    def __init__(self, path: str) -> None:
        self.held = checkpoint.load(path)
        self.model = model_in(self.held)
        names = getattr(self.held, "feature_names_in_", None)
        self.names = None if names is None else list(names)

    def read(self, options: Namespace) -> Reading:
        """How the tables that belong to it are to be read."""
        return reading_of(options, self.names)


# --- tables ---------------------------------------------------------------------------------------------------------


def tables(options: Namespace, reading: Reading) -> Iterator[Table]:
    """The tables, one after the other; that they exist is seen to at once."""
    for path in options.files:
        if path != "-" and not os.path.exists(path):
            raise InputError(f"there is no file {path}")
    for path in options.files:
        yield open_table(path, reading)


def read_all(options: Namespace, reading: Reading) -> tuple[FloatArray, list[int] | None, list[str] | None]:
    """All rows, the lengths of recordings if they are separate, and the names of the columns."""
    records, names = [], None
    for table in tables(options, reading):
        pieces = [chunk.X for chunk in table.chunks()]
        if not sum(map(len, pieces)):
            raise InputError(f"{table.source} has no rows")
        records.append(np.concatenate(pieces))
        names = names or table.names
        if records[0].shape[1] != records[-1].shape[1]:
            raise InputError(f"{table.source} has other columns than {options.files[0]}")
    X = np.concatenate(records)
    return X, [len(record) for record in records] if options.separate else None, names


def ahead(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The same chunks, read by another thread while this one works."""
    queue: Queue[Any] = Queue(READ_AHEAD)
    is_over = threading.Event()

    def put(item: Any) -> None:
        while not is_over.is_set():
            try:
                queue.put(item, timeout=0.1)
                break
            except Full:
                continue

    def read() -> None:
        try:
            for chunk in chunks:
                put(chunk)
                if is_over.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_over.set()
        thread.join()


# --- a model file that is at work -----------------------------------------------------------------------------------


class Work:
    """An estimator that learns, where it stands in its inputs, and the file in which both are kept."""

    def __init__(self, options: Namespace, every: tuple[str, float] | None) -> None:
        self.path: str | None = options.checkpoint
        self.unit, self.interval = every or SAVE_EVERY
        self.names: list[str] | None = None
        self.inputs: dict[str, Any] = {}
        self.bad_rows = 0
        self.hmm = self._resumed(options) if self.path and os.path.exists(self.path) else self._new(options)
        self.mark_saved()

    def _new(self, options: Namespace) -> OnlineHMM:
        folder = os.path.dirname(os.path.realpath(self.path)) if self.path else None
        if folder and not os.access(folder, os.W_OK):
            raise InputError(f"{self.path} cannot be written: there is no folder {folder} that one may write to")
        init = start_of(options.init) if options.init else "auto"
        return OnlineHMM(
            options.states or (init.n_components if isinstance(init, HMM) else 2),
            "gaussian" if options.emission is None and isinstance(init, HMM) else emission_of(options.emission),
            init=init,
            random_state=options.seed,
        ).keep_journal()

    def _resumed(self, options: Namespace) -> OnlineHMM:
        assert self.path is not None
        checkpoint.remove_drafts(self.path)
        hmm, notes = checkpoint.load_with_notes(self.path)
        if not isinstance(hmm, OnlineHMM):
            raise InputError(f"{self.path} holds a {type(hmm).__name__}, which does not learn: use it with --init")
        if options.states not in (None, hmm.n_components):
            raise InputError(
                f"{self.path} has {hmm.n_components} states, not {options.states}: begin a new --checkpoint, or leave "
                "--states out"
            )
        if options.emission is not None and repr(emission_of(options.emission)) != repr(hmm.emission):
            raise InputError(
                f"{self.path} was begun with emission {hmm.emission!r}, not {options.emission}: begin a new "
                "--checkpoint, or leave --emission out"
            )
        names = hmm.__dict__.pop("feature_names_in_", None)  # the tables are checked by this class
        self.names = None if names is None else list(names)
        if options.column and self.names and options.column != self.names:
            raise InputError(f"{self.path} has learned from {', '.join(self.names)}: begin a new --checkpoint")
        self.inputs, self.bad_rows = dict(notes.get("inputs", {})), int(notes.get("bad_rows", 0))
        return hmm.keep_journal()

    @property
    def n_rows(self) -> int:
        """Rows learned from."""
        return getattr(self.hmm, "n_samples_seen_", 0)

    @staticmethod
    def key(path: str) -> str:
        """What an input is known by."""
        return path if path == "-" else os.path.realpath(path)

    def check_names(self, source: str, names: list[str] | None) -> None:
        """All inputs have the same columns."""
        if self.names is not None and names is not None and names != self.names:
            raise InputError(f"{source} has the columns {', '.join(names)}, not {', '.join(self.names)}")
        self.names = self.names or names

    def teach(self, source: str, chunk: Chunk, reading: Reading) -> int:
        """Learn from a chunk, less what is refused and may be left out; the number of rows."""
        X = self._accepted(source, chunk, reading)
        for piece in self.hmm.journal_.pieces(self.n_rows, len(X)):
            self.hmm.partial_fit(X[piece])
        return len(X)

    def _accepted(self, source: str, chunk: Chunk, reading: Reading) -> FloatArray:
        X, rows = chunk.X, np.arange(len(chunk.X))
        while len(X):
            try:
                self.hmm.check(X)
                break
            except RefusedError as error:
                reading.skip_bad_row(self._refusal(source, chunk.line(rows[error.row]), error))
                X, rows = np.delete(X, error.row, axis=0), np.delete(rows, error.row)
            except ValueError as error:
                raise InputError(f"{source}, at or after {chunk.line(int(rows[0]))}: {error}") from None
        return X

    def teach_row(self, source: str, reading: Reading, row: list[float], number: int) -> tuple[bool, float | None]:
        """Learn from a row. Whether it was not left out, and the logarithm of its predictive density if it has one."""
        X = np.array([row])
        log_density = None
        if self.n_rows and not np.isnan(X).all():
            with suppress(RefusedError):  # a symbol not seen before, perhaps, of a family that grows
                log_density = self.hmm.peek(X[0]).log_density
        try:
            self.hmm.partial_fit(X)
            return True, log_density
        except RefusedError as error:
            reading.skip_bad_row(self._refusal(source, f"line {number:,}", error))
        except ValueError as error:
            raise InputError(f"{source}, line {number:,}: {error}") from None
        return False, None

    def _refusal(self, source: str, line: str, error: RefusedError) -> InputError:
        column = self.names[error.column] if self.names else str(error.column + 1)
        what = f"the value is {error.value:g}: {error.reason}"
        advice = f"If it stands for a missing value, say --missing {error.value:g}"
        where = f"{source}, {line}, column {column}"
        return InputError(f"{where}: {what} {advice}; to leave such rows out, --skip-bad-rows N.")

    def forecast(self) -> dict[str, Any] | None:
        """What is expected of the next row."""
        if not self.n_rows:
            return None
        ahead = self.hmm.expect()
        return {"mean": ahead.mean[0].tolist(), "sd": np.sqrt(ahead.variance[0]).tolist()}

    def name_columns(self) -> None:
        """Let the estimator know the names; while it learns from arrays, which have none, it must not."""
        if self.names is not None:
            self.hmm.feature_names_in_ = np.array(self.names, dtype=object)

    # --- saving ---

    def mark_saved(self) -> None:
        """What is known now is in the file."""
        self._saved_at, self.n_saved = time.monotonic(), self.n_rows

    @property
    def is_due(self) -> bool:
        """Whether it is time to save."""
        if self.path is None or self.n_rows == self.n_saved:
            return False
        if self.unit == "rows":
            return self.n_rows - self.n_saved >= self.interval
        return self.seconds_left <= 0.0

    @property
    def seconds_left(self) -> float:
        """Until it is time to save."""
        return max(0.0, self._saved_at + self.interval - time.monotonic())

    def save(self, reading: Reading) -> None:
        """Write all of it to the file, if there is one."""
        if self.path is None or not self.n_rows:
            return
        self.name_columns()
        notes = {"inputs": self.inputs, "bad_rows": self.bad_rows + reading.bad_rows}
        checkpoint.save(self.hmm, self.path, notes)
        self.hmm.__dict__.pop("feature_names_in_", None)
        self.mark_saved()
