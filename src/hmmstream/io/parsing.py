"""One line of text as numbers, and a block of lines at once.

pyarrow parses a block at once. If it cannot, the block is parsed again line by line, by the code that also reads live
pipes: it finds the cell that is wrong, and where it stands.
"""

from __future__ import annotations

import csv
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from hmmstream.arrays import FloatArray

# What is written where nothing was measured: the usual words of spreadsheets, R, Python and SQL.
MISSING = frozenset(
    ["", "NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "Null", "null", "None", "none", "?"]
)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|Inf|INF|infinity|Infinity)", re.ASCII)


class InputError(ValueError):
    """Input that cannot be read, and what to do about it."""


@dataclass
class Reading:
    """How tables are to be read."""

    columns: Sequence[str] = ()  # by name; none: the only one, or all of a table without names
    expected: Sequence[str] = ()  # names to look for if none are said; a table without names may have them all the same
    format: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    header: bool | None = None  # whether the first line holds names; None: if it holds anything but numbers
    missing: Sequence[str] = ()  # further ways to write that a value is missing
    bad_rows_allowed: int = 0  # so many may be left out
    bad_rows: int = 0  # so many were
    waiting: Callable[[], AbstractContextManager[Any]] = nullcontext  # entered while a pipe keeps one waiting

    def __post_init__(self) -> None:
        self.missing_words = MISSING | set(self.missing)
        self.missing_numbers = [float(word) for word in self.missing if NUMBER.fullmatch(word)]

    def without_missing(self, X: FloatArray) -> FloatArray:
        """NaN in place of numbers that stand for a missing value."""
        if self.missing_numbers:
            X[np.isin(X, self.missing_numbers)] = np.nan
        return X

    def skip_bad_row(self, error: InputError) -> None:
        """Leave a row out that is wrong, or raise the error if too many are."""
        self.bad_rows += 1
        if self.bad_rows > self.bad_rows_allowed:
            if self.bad_rows_allowed:
                raise InputError(f"{error} More than {self.bad_rows_allowed} rows are bad.")
            raise error


def bad_cell(source: str, line: str, column: str, value: str, reading: Reading) -> InputError:
    """An error that says what stands where, and what to do."""
    shown = value if len(value) <= 40 else f"{value[:37]}…"
    hint = ""
    if reading.decimal == "." and re.fullmatch(r"[+-]?\d+,\d+", value.strip()):
        hint = " With decimal commas, say --decimal ','."
    return InputError(
        f"{source}, {line}, column {column}: {shown!r} is not a number. If it stands for a missing value, say "
        f"--missing {shown!r}; to leave such rows out, --skip-bad-rows N.{hint}"
    )


class LineParser(ABC):
    """Makes numbers of one line of text: the careful way, and the only one for live pipes."""

    names: list[str]  # of the columns that are read
    has_names: bool = True

    def __init__(self, source: str, reading: Reading) -> None:
        self.source, self.reading = source, reading

    @abstractmethod
    def start(self, line: str, number: int) -> bool:
        """See the first line; whether it is a header, and no row."""

    @abstractmethod
    def cells(self, line: str, number: int) -> list[Any]:
        """The values of the columns that are read, or InputError."""

    @abstractmethod
    def parse_block(self, block: bytes) -> FloatArray | None:
        """All rows of a block at once, or None if something is wrong with it."""

    def row(self, line: str, number: int) -> list[float]:
        """The numbers of a line, NaN where missing, or InputError."""
        return [
            self._number(value, name, number) for value, name in zip(self.cells(line, number), self.names, strict=True)
        ]

    def _number(self, value: Any, name: str, number: int) -> float:
        if value is None:
            return math.nan
        if isinstance(value, str):
            text = value.strip()
            if text in self.reading.missing_words:
                return math.nan
            if self.reading.decimal != ".":
                text = text.replace(self.reading.decimal, ".") if "." not in text else "no number"
            if self.takes_text and NUMBER.fullmatch(text):
                return self._or_missing(float(text))
        elif is_number(value):
            try:
                return self._or_missing(float(value))
            except OverflowError:
                return math.inf if value > 0 else -math.inf
        raise bad_cell(self.source, f"line {number:,}", name, str(value), self.reading)

    def _or_missing(self, value: float) -> float:
        return math.nan if value in self.reading.missing_numbers else value

    takes_text = True

    def rows(self, block: bytes, first_line: int) -> tuple[FloatArray, list[int]]:
        """The rows of a block one by one, and their line numbers; bad ones are left out if that is allowed."""
        found: list[list[float]] = []
        lines: list[int] = []
        for number, line in numbered_lines(block, first_line):
            try:
                found.append(self.row(line, number))
                lines.append(number)
            except InputError as error:
                self.reading.skip_bad_row(error)
        return np.array(found).reshape(len(found), len(self.names)), lines


class DelimitedParser(LineParser):
    """CSV and its relatives."""

    def __init__(self, source: str, reading: Reading, delimiter: str | None) -> None:
        super().__init__(source, reading)
        self.delimiter = delimiter

    def start(self, line: str, number: int) -> bool:
        if self.delimiter is None:
            self.delimiter = next((sign for sign in "\t;|" if sign in line), ",")
        first = self._split(line, number)
        self.n_columns = len(first)
        is_header = self.reading.header
        if is_header is None:
            is_header = not all(self._looks_like_data(cell) for cell in first)
        self.has_names = is_header
        every = [cell.strip() for cell in first] if is_header else [str(at + 1) for at in range(len(first))]
        self.names, self.at = choose_columns(self.source, every, self.reading, has_names=is_header)
        return is_header

    def _looks_like_data(self, cell: str) -> bool:
        text = cell.strip().replace(self.reading.decimal, ".")
        return bool(NUMBER.fullmatch(text)) or text in self.reading.missing_words

    def _split(self, line: str, number: int) -> list[str]:
        try:
            return next(csv.reader([line], delimiter=self.delimiter or ",", strict=True), [])
        except csv.Error as error:
            raise InputError(
                f"{self.source}, line {number:,} cannot be read ({error}): {line[:40]!r}. To leave such rows out, say "
                "--skip-bad-rows N."
            ) from None

    def cells(self, line: str, number: int) -> list[Any]:
        split = self._split(line, number)
        if len(split) != self.n_columns:
            raise InputError(
                f"{self.source}, line {number:,}: {len(split)} column(s) where the first line has {self.n_columns}: "
                f"{line[:40]!r}. To leave such rows out, say --skip-bad-rows N."
            )
        return [split[at] for at in self.at]

    def parse_block(self, block: bytes) -> FloatArray | None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        wanted = [str(at) for at in self.at]
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block),
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=[str(at) for at in range(self.n_columns)]
                ),
                arrow_csv.ParseOptions(delimiter=self.delimiter),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.float64()),
                    include_columns=wanted,
                    null_values=sorted(self.reading.missing_words),
                    quoted_strings_can_be_null=True,
                    decimal_point=self.reading.decimal,
                ),
            )
        except (pa.ArrowException, ValueError):
            return None
        return columns_of(table, wanted, self.reading)


class JsonParser(LineParser):
    """NDJSON: one object a line."""

    takes_text = False

    def start(self, line: str, number: int) -> bool:
        first = self._object(line, number)
        every = [name for name, value in first.items() if is_number(value)]
        wanted = self.reading.columns or self.reading.expected
        if wanted:  # a field may be absent from the first line
            every = list(dict.fromkeys([*every, *wanted]))
        self.names, _ = choose_columns(self.source, every, self.reading, has_names=True)
        return False

    def _object(self, line: str, number: int) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise InputError(
                f"{self.source}, line {number:,} is not a JSON object: {line[:40]!r}. To leave such rows out, say "
                "--skip-bad-rows N."
            )
        return value

    def cells(self, line: str, number: int) -> list[Any]:
        found = self._object(line, number)
        return [found.get(name) for name in self.names]

    def parse_block(self, block: bytes) -> FloatArray | None:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        schema = pa.schema([(name, pa.float64()) for name in self.names])
        options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        try:
            table = arrow_json.read_json(pa.BufferReader(block), reading, options)
        except (pa.ArrowException, ValueError):
            return None
        return columns_of(table, self.names, self.reading)


def line_parser(source: str, reading: Reading, kind: str) -> LineParser:
    """The parser for a format of text."""
    if kind == "ndjson":
        return JsonParser(source, reading)
    return DelimitedParser(source, reading, reading.delimiter or ("\t" if kind == "tsv" else None))


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbered_lines(block: bytes, first_line: int) -> Iterator[tuple[int, str]]:
    """The lines of a block that are not empty, with their numbers."""
    for at, line in enumerate(block.split(b"\n")):
        text = line.rstrip(b"\r").decode("utf-8", errors="backslashreplace")
        if text:
            yield first_line + at, text


def choose_columns(
    source: str, every: Sequence[str], reading: Reading, *, has_names: bool
) -> tuple[list[str], list[int]]:
    """Names and places of the columns to read."""
    if not has_names and not reading.columns and len(reading.expected) == len(every):
        return list(reading.expected), list(range(len(every)))
    wanted = reading.columns or reading.expected
    if not wanted:
        if not every:
            raise InputError(f"{source} has no column of numbers")
        if len(every) > 1 and has_names:
            raise InputError(f"{source} has {len(every)} columns: say which to read, with --column. {listing(every)}")
        return list(every), list(range(len(every)))
    for name in wanted:
        if every.count(name) != 1:
            problem = "no column" if name not in every else f"{every.count(name)} columns"
            raise InputError(f"{source} has {problem} {name!r}. {listing(every)}")
    return list(wanted), [every.index(name) for name in wanted]


def listing(names: Sequence[str]) -> str:
    """Names of columns, for an error."""
    shown = ", ".join(names[:12])
    return f"There is: {shown}{', …' if len(names) > 12 else ''}."[:400]


def columns_of(table: Any, names: Sequence[str], reading: Reading) -> FloatArray:
    """Columns of a pyarrow table or batch of floats, as a matrix."""
    X = np.empty((table.num_rows, len(names)))
    for at, name in enumerate(names):
        column = table.column(name)
        X[:, at] = column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)
    return reading.without_missing(X)
