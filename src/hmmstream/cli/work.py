"""An estimator at work: the tables it learns from, the file it is kept in, the signals that stop it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Full, Queue
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from hmmstream import checkpoint, emissions, plotting
from hmmstream.arrays import BoolArray, FloatArray, RefusedError
from hmmstream.emissions import AutoRegressive, Emission, LinearRegression
from hmmstream.io.parsing import InputError, Reading
from hmmstream.io.reading import Chunk, Table, open_table
from hmmstream.io.whole import remove_drafts
from hmmstream.learner import Learner
from hmmstream.model import HMM
from hmmstream.online import OnlineHMM

T = TypeVar("T")
EMISSION_CLASSES: dict[str, Any] = {
    **emissions.FAMILIES,
    "autoregressive": AutoRegressive,
    "linear_regression": LinearRegression,
}
SAVE_EVERY = ("seconds", 10.0)
CHECKED_ROWS = 4096  # at once, for values that are refused
READ_AHEAD = 4  # chunks
CAN_LOOK_AGAIN = hasattr(signal, "setitimer")  # not on Windows
LOOK_AGAIN_SECONDS = 0.2


def say(options: Namespace, text: str) -> None:
    """Tell the person at the terminal, who may want to hear nothing."""
    if not options.quiet:
        print(text, file=sys.stderr)


# --- being stopped --------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """A signal came while there was nothing to do but wait."""


class Stop:
    """Lets SIGINT and SIGTERM end the work where it can be ended. A second SIGINT ends it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._is_waiting = False

    def __enter__(self) -> Stop:
        handlers: dict[int, Any] = dict.fromkeys((signal.SIGINT, signal.SIGTERM), self._heard)
        if CAN_LOOK_AGAIN:
            handlers[signal.SIGALRM] = lambda number, frame: None
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
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

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """What is done in here may be broken off at any moment.

        Python hears of a signal when a call that waits is interrupted or returns: one that came just before the call
        began would wait with it. So the call is interrupted now and then.
        """
        self._is_waiting = True
        try:
            if CAN_LOOK_AGAIN:
                signal.setitimer(signal.ITIMER_REAL, LOOK_AGAIN_SECONDS, LOOK_AGAIN_SECONDS)
            if self.signal is not None:
                raise Stopped
            yield
        finally:
            self._is_waiting = False
            if CAN_LOOK_AGAIN:
                signal.setitimer(signal.ITIMER_REAL, 0.0)

    def until(self, source: Iterator[T]) -> Iterator[T]:
        """What comes from a source, up to a signal."""
        try:
            for item in source:
                yield item
                if self.signal is not None:
                    return
        except Stopped:
            return

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


def start_settings(options: Namespace) -> dict[str, Any]:
    """What an estimator starts from: a model, or a number of states and a family."""
    if not options.init:
        start = {"n_components": options.states or 2, "emission": emission_of(options.emission)}
        return {**start, "random_state": options.seed}
    init = start_of(options.init)
    if options.states not in (None, init.n_components):
        raise ValueError(f"{options.init} has {init.n_components} states, not {options.states}: leave --states out")
    emission = "gaussian" if options.emission is None else emission_of(options.emission)  # the default agrees with any
    return {"n_components": init.n_components, "emission": emission, "init": init, "random_state": options.seed}


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


def check_outputs(*paths: str | None) -> None:
    """Refuse files that cannot be written, before there is anything to write."""
    for path in paths:
        if path not in (None, "-"):
            folder = os.path.dirname(os.path.realpath(path))
            if os.path.isdir(path) or not os.access(folder, os.W_OK):
                raise InputError(f"{path} cannot be written: it is a folder, or there is none that one may write it to")


def check_picture(path: str | None) -> None:
    """The same for pictures, whose names say what they are."""
    check_outputs(path)
    if path is not None:
        plotting.check_suffix(path)


def tables(options: Namespace, reading: Reading) -> Iterator[tuple[str, Table]]:
    """The tables with their paths, one after the other; that they exist is seen to at once."""
    for path in options.files:
        if path != "-" and not os.path.exists(path):
            raise InputError(f"there is no file {path}")
    for path in options.files:
        yield path, open_table(path, reading)


def read_all(options: Namespace, reading: Reading) -> tuple[FloatArray, list[int] | None, list[str] | None]:
    """All rows, the lengths of recordings if they are separate, and the names of the columns."""
    records, names = [], None
    for _, table in tables(options, reading):
        pieces = [chunk.X for chunk in table.chunks() if chunk is not None]
        if not sum(map(len, pieces)):
            raise InputError(f"{table.source} has no rows")
        records.append(np.concatenate(pieces))
        names = names or table.names
        if records[0].shape[1] != records[-1].shape[1]:
            raise InputError(f"{table.source} has other columns than {options.files[0]}")
    X = np.concatenate(records)
    return X, [len(record) for record in records] if options.separate else None, names


def ahead(source: Iterator[T]) -> Generator[T]:
    """The same items, made by another thread while this one works."""
    queue: Queue[Any] = Queue(READ_AHEAD)
    is_over = threading.Event()
    end = object()

    def put(item: Any) -> None:
        while not is_over.is_set():
            try:
                queue.put(item, timeout=0.1)
                break
            except Full:
                continue

    def read() -> None:
        try:
            for item in source:
                put(item)
                if is_over.is_set():
                    return
            put(end)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not end:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_over.set()
        thread.join()


# --- a model file that is at work -----------------------------------------------------------------------------------


class Work:
    """An estimator that learns, where it stands in its inputs, and the file in which both are kept."""

    def __init__(self, options: Namespace, every: tuple[str, float] | None, stop: Stop) -> None:
        self.path: str | None = options.checkpoint
        self.unit, self.interval = every or SAVE_EVERY
        self.names: list[str] | None = None
        self.inputs: dict[str, Any] = {}
        self.n_unread = self.n_refused = 0  # rows that were left out, by the reader and by the model
        self.hmm = self._resumed(options) if self.path and os.path.exists(self.path) else self._new(options)
        self.reading = reading_of(options, self.names)
        self.reading.waiting = stop.waiting
        self.reading.bad_rows = self.n_unread
        self.mark_saved()

    def _new(self, options: Namespace) -> OnlineHMM:
        check_outputs(self.path)
        return OnlineHMM(**start_settings(options)).keep_journal()

    def _resumed(self, options: Namespace) -> OnlineHMM:
        assert self.path is not None
        if os.path.isdir(self.path):
            raise InputError(f"{self.path} is a folder: a checkpoint is a file")
        remove_drafts(self.path)
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
        self.inputs, self.n_unread = dict(notes.get("inputs", {})), int(notes.get("bad_rows", 0))
        return hmm.unfreeze().keep_journal()

    @property
    def bad_rows(self) -> int:
        """Rows that were left out."""
        return self.n_unread + self.n_refused

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

    def teach(self, source: str, chunk: Chunk) -> None:
        """Learn from a chunk, less what is refused and may be left out."""
        self.count_unread(source, self.n_unread + chunk.n_bad)
        X = chunk.X
        try:
            self.hmm.check(X)
        except ValueError:  # somewhere
            X = X[self._accepted(source, chunk)]
        for piece in self.hmm.journal_.pieces(self.n_rows, len(X)):
            self.hmm.partial_fit(X[piece])

    def _accepted(self, source: str, chunk: Chunk) -> BoolArray:
        """Which rows are not refused; an error if too many are."""
        is_accepted = np.ones(len(chunk.X), dtype=np.bool_)
        row = 0
        while row < len(chunk.X):
            try:
                self.hmm.check(chunk.X[row : row + CHECKED_ROWS])
                row += CHECKED_ROWS
            except RefusedError as error:
                row += error.row
                is_accepted[row] = False
                self._leave_out(source, chunk.line, row, error)
                row += 1
            except ValueError as error:
                raise InputError(f"{source}, at or after {chunk.line(row)}: {error}") from None
        return is_accepted

    def teach_row(self, source: str, row: list[float], number: int) -> tuple[bool, float | None]:
        """Learn from a row. Whether it was not left out, and the logarithm of its predictive density if it has one."""
        X = np.array([row])
        log_density = None
        if (self.n_rows or isinstance(self.hmm.init, HMM)) and not np.isnan(X).all():
            with suppress(RefusedError):  # a symbol not seen before, perhaps, of a family that grows
                log_density = self.hmm.peek(X[0]).log_density
        try:
            self.hmm.partial_fit(X)
            return True, log_density
        except RefusedError as error:
            self._leave_out(source, lambda _: f"line {number:,}", 0, error)
        except ValueError as error:
            raise InputError(f"{source}, line {number:,}: {error}") from None
        return False, None

    def count_unread(self, source: str, n: int) -> None:
        """So many rows could not be read; together with those that were refused they may be too many."""
        is_more, self.n_unread = n > self.n_unread, n
        if is_more and self.bad_rows > self.reading.bad_rows_allowed:
            raise InputError(f"{source}: more than {self.reading.bad_rows_allowed} rows are bad")

    def _leave_out(self, source: str, line: Callable[[int], str], row: int, error: RefusedError) -> None:
        self.n_refused += 1
        if self.bad_rows > self.reading.bad_rows_allowed:
            raise self._refusal(source, line(row), error)

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

    def patience(self) -> float | None:
        """How long to wait for rows before it is time to save: None if there is nothing to save."""
        return self.seconds_left if self.path and self.unit == "seconds" and self.n_rows != self.n_saved else None

    @property
    def seconds_left(self) -> float:
        """Until it is time to save."""
        return max(0.0, self._saved_at + self.interval - time.monotonic())

    def save(self) -> None:
        """Write all of it to the file, if there is one."""
        if self.path is None or not self.n_rows:
            return
        self.name_columns()
        notes = {"inputs": self.inputs, "bad_rows": self.bad_rows}
        checkpoint.save(self.hmm, self.path, notes)
        self.hmm.__dict__.pop("feature_names_in_", None)
        self.mark_saved()
