"""Tables in: CSV, TSV, NDJSON, Parquet, Feather and NPY, a bounded chunk of rows at a time, or row by row."""

from __future__ import annotations

import hashlib
import os
import re
import select
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from hmmstream.arrays import FloatArray
from hmmstream.io.parsing import (
    InputError,
    LineParser,
    Reading,
    choose_columns,
    columns_of,
    line_parser,
    numbered_lines,
)

BLOCK_BYTES = 2**22
PIPE_BYTES = 2**16
LONGEST_LINE = 2**24
CHUNK_ROWS = 2**16  # of formats that are not text
FINGERPRINT_BYTES = 4096  # before the place where reading goes on: whether it is still the same file

COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
MAGIC = {b"PAR1": "parquet", b"ARROW1": "feather", b"\x93NUMPY": "npy"}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".npy": "npy",
}


@dataclass
class Place:
    """How far a text has been read, and a fingerprint of what came right before."""

    rows: int = 0
    offset: int = 0  # bytes that lie behind
    line: int = 1  # the next one
    tail: bytes = b""

    def advance(self, text: bytes, rows: int = 0) -> None:
        """Some more was read."""
        self.rows += rows
        self.offset += len(text)
        self.line += text.count(b"\n")
        self.tail = (self.tail + text[-FINGERPRINT_BYTES:])[-FINGERPRINT_BYTES:]

    def as_dict(self) -> dict[str, Any]:
        """The place in terms of JSON."""
        fingerprint = hashlib.sha256(self.tail).hexdigest()
        return {"rows": self.rows, "bytes": self.offset, "line": self.line, "fingerprint": fingerprint}

    @classmethod
    def again(cls, position: dict[str, Any], tail: bytes, source: str) -> Place:
        """A place that was noted before, if the text before it is still the same."""
        if hashlib.sha256(tail).hexdigest() != position["fingerprint"]:
            raise InputError(
                f"{source} is not the file whose first {position['rows']:,} rows were learned from: it has changed, or "
                "is another one of this name. Give it another name, or begin a new --checkpoint."
            )
        return cls(position["rows"], position["bytes"], position["line"], tail)


@dataclass
class Chunk:
    """Some rows of a table, where they stand in it, and where reading goes on."""

    X: FloatArray
    after: dict[str, Any]  # position behind the last row
    line: Callable[[int], str]  # of a row, in words


@dataclass
class Table(ABC):
    """A table that is read from front to back, once."""

    source: str  # its name, for messages
    reading: Reading
    names: list[str] | None = field(default=None, init=False)  # of the columns, if they have names
    size: int | None = field(default=None, init=False)  # in units of ``done``
    done: int = field(default=0, init=False)

    @abstractmethod
    def chunks(self, position: dict[str, Any] | None = None) -> Iterator[Chunk]:
        """Chunks of rows, from the first or from a position on."""


class TextTable(Table):
    """CSV, TSV or NDJSON, plain or packed, from a file or a pipe."""

    def __init__(self, source: str, reading: Reading, stream: IO[bytes], kind: str) -> None:
        super().__init__(source, reading)
        self.stream = stream
        self.is_seekable = stream.seekable()
        self.origin = stream.tell() if self.is_seekable else 0  # of standard input, some may have been read before
        self.size = os.fstat(stream.fileno()).st_size if self.is_seekable else None
        self._read, self.is_packed = unpacked(stream)
        self.parser = line_parser(source, reading, kind)
        self.place = Place()
        self._carry = b""  # the beginning of a line, whose end is still to be read
        try:
            self._first_block = self._begin()
        except BaseException:
            stream.close()
            raise
        self.names = self.parser.names if self.parser.has_names else None

    def _begin(self) -> bytes:
        """Read the first line, which says what the columns are, and return the rows that were read with it."""
        block = self._block()
        empty = re.match(rb"(\xef\xbb\xbf)?(\r*\n)*", block)  # a mark of the encoding, empty lines
        assert empty is not None
        block = block[empty.end() :]
        self.place.advance(empty[0])
        if not block.strip(b"\r"):
            raise InputError(f"{self.source} is empty: there are no rows to read")
        end = block.find(b"\n") + 1 or len(block)
        number, first = next(numbered_lines(block[:end], self.place.line))
        if not self.parser.start(first, number):
            return block
        self.place.advance(block[:end])
        return block[end:] or self._block()

    def _block(self) -> bytes:
        """The next lines, whole ones; empty at the end."""
        pieces = [self._carry]
        while True:
            try:
                piece = self._read(BLOCK_BYTES)
            except (OSError, EOFError) as error:
                raise InputError(f"{self.source} cannot be read: {first_line(error)}") from None
            end = piece.rfind(b"\n") + 1
            if end or not piece:
                self._carry = piece[end:]
                return b"".join([*pieces, piece[:end]])
            pieces.append(piece)
            if sum(map(len, pieces)) > LONGEST_LINE:
                raise too_long(self.source, self.place.line)

    def chunks(self, position: dict[str, Any] | None = None) -> Iterator[Chunk]:
        with closing(self.stream):
            block = self._first_block
            if position is not None:
                self._go_to(position)
                block = self._block()
            while block:
                yield self._chunk(block)
                block = self._block()

    def _chunk(self, block: bytes) -> Chunk:
        number = self.place.line
        X = self.parser.parse_block(block)
        lines: Sequence[int] | None = None
        if X is None:
            X, lines = self.parser.rows(block, number)

        def line(row: int) -> str:
            numbers = lines or [number for number, _ in numbered_lines(block, first)]
            return f"line {numbers[row]:,}"

        first = number
        self.place.advance(block, len(X))
        self.done = self.stream.tell() if self.is_seekable else self.place.offset
        return Chunk(X, self.place.as_dict(), line)

    def _go_to(self, position: dict[str, Any]) -> None:
        """Go on behind the rows that were read before, if this still is the table they were read from."""
        wanted = position["bytes"]
        if self.is_seekable and not self.is_packed:
            tail = tail_before(self.stream, self.origin + wanted, min(wanted, FINGERPRINT_BYTES))
            self._carry = b""
        else:
            behind, block = self.place, self._first_block + self._carry
            while block and behind.offset < wanted:
                taken = block[: wanted - behind.offset]
                behind.advance(taken)
                block = block[len(taken) :] or self._read(BLOCK_BYTES)
            tail, self._carry = behind.tail, block
        self.place = Place.again(position, tail, self.source)


def tail_before(stream: IO[bytes], end: int, n: int) -> bytes:
    """The last ``n`` bytes before a place of a file, which is read on from there."""
    stream.seek(end - n)
    return stream.read(n)


def too_long(source: str, line: int) -> InputError:
    return InputError(f"{source}, line {line:,} is longer than {LONGEST_LINE >> 20} MB: is this a text file?")


class Lines:
    """A live stream, row by row: each as soon as its line is complete."""

    NOTHING = object()  # comes if nothing else has come for a while

    def __init__(self, path: str, reading: Reading) -> None:
        self.source = "standard input" if path == "-" else path
        self.reading = reading
        self.stream = opened(0 if path == "-" else path, buffering=0)
        self.is_seekable = self.stream.seekable()
        self.origin = self.stream.tell() if self.is_seekable else 0
        self.place = Place()
        self.parser: LineParser | None = None
        self._waiting = b""

    @property
    def names(self) -> list[str] | None:
        """Names of the columns, once a line was read."""
        return self.parser.names if self.parser and self.parser.has_names else None

    def rows(self, position: dict[str, Any] | None, patience: Callable[[], float | None]) -> Generator[Any]:
        """Each row as a list of numbers with the number of its line; NOTHING after ``patience()`` seconds."""
        with closing(self.stream):
            if position is not None and self.is_seekable:
                self._go_to(position)
            yield from self._rows(patience)

    def _go_to(self, position: dict[str, Any]) -> None:
        self._see_first_line()
        wanted = position["bytes"]
        tail = tail_before(self.stream, self.origin + wanted, min(wanted, FINGERPRINT_BYTES))
        self.place, self._waiting = Place.again(position, tail, self.source), b""

    def _rows(self, patience: Callable[[], float | None]) -> Generator[Any]:
        while True:
            line = self._line(patience())
            if line is None:
                yield self.NOTHING
                continue
            if not line:
                return
            number = self.place.line
            self.place.advance(line)
            text = line.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace")
            if not text or (self.parser is None and self._start(text, number)):
                continue
            assert self.parser is not None
            try:
                row = self.parser.row(text, number)
            except InputError as error:
                self.reading.skip_bad_row(error)
                continue
            self.place.rows += 1
            yield row, number

    def _start(self, text: str, number: int) -> bool:
        """See the first line; whether it is a header."""
        text = text.removeprefix("\ufeff")
        kind = self.reading.format or format_of(self.source, text[:16].encode())
        parser = line_parser(self.source, self.reading, kind)
        is_header = parser.start(text, number)
        self.parser = parser
        return is_header

    def _see_first_line(self) -> None:
        line = b"\n"
        while line and not line.strip(b"\r\n"):
            line = self._line(None) or b""
        if line:
            self._start(line.rstrip(b"\r\n").decode("utf-8", errors="backslashreplace"), 1)

    def _line(self, patience: float | None) -> bytes | None:
        """The next line with its end; empty at the end of the stream; None if it takes too long."""
        while True:
            end = self._waiting.find(b"\n") + 1
            if end:
                line, self._waiting = self._waiting[:end], self._waiting[end:]
                return line
            if len(self._waiting) > LONGEST_LINE:
                raise too_long(self.source, self.place.line)
            if patience is not None and not select.select([self.stream], [], [], patience)[0]:
                return None
            piece = self.stream.read(PIPE_BYTES)
            if not piece:
                line, self._waiting = self._waiting, b""
                return line
            self._waiting += piece


class TableOfRows(Table):
    """Parquet, Feather or NPY: tables that have a number of rows."""

    def __init__(self, source: str, reading: Reading, kind: str) -> None:
        super().__init__(source, reading)
        try:
            self.size, self.names, self._batches = OPENERS[kind](source, reading)
        except InputError:
            raise
        except Exception as error:  # pyarrow and NumPy have many, for files that are damaged
            raise InputError(f"{source} is not a {kind} file that can be read: {first_line(error)}") from None

    def chunks(self, position: dict[str, Any] | None = None) -> Iterator[Chunk]:
        start = 0 if position is None else position["rows"]
        if self.size is not None and start > self.size:
            raise InputError(f"{self.source} has {self.size:,} rows, but {start:,} of it were learned from before")
        row = 0
        batches = self._batches()
        while True:
            try:
                X = next(batches, None)
            except InputError:
                raise
            except Exception as error:  # a damaged page
                raise InputError(f"{self.source} is damaged after row {row:,}: {first_line(error)}") from None
            if X is None:
                return
            row += len(X)
            self.done = row
            if row <= start:
                continue
            first = max(start - (row - len(X)), 0)
            offset = row - len(X) + first

            def line(at: int, offset: int = offset) -> str:
                return f"row {offset + at + 1:,}"

            yield Chunk(X[first:], {"rows": row}, line)


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _numeric(source: str, schema: Any, reading: Reading) -> list[str]:
    """The columns of a table with types that are to be read: numbers, all of them."""
    import pyarrow as pa

    types = dict(zip(schema.names, schema.types, strict=True))

    def holds_numbers(kind: Any) -> bool:
        return bool(
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_decimal(kind)
        )

    every = (
        schema.names
        if reading.columns or reading.expected
        else [name for name in schema.names if holds_numbers(types[name])]
    )
    names, _ = choose_columns(source, every, reading, has_names=True)
    for name in names:
        if not holds_numbers(types[name]):
            raise InputError(f"{source}: column {name!r} holds {types[name]}, not numbers")
    return names


def _as_floats(batch: Any, names: Sequence[str], reading: Reading) -> FloatArray:
    import pyarrow as pa

    schema = pa.schema([(name, pa.float64()) for name in names])
    arrays = [batch.column(name).cast(pa.float64(), safe=False) for name in names]
    return columns_of(pa.RecordBatch.from_arrays(arrays, schema=schema), names, reading)


def _open_parquet(source: str, reading: Reading) -> tuple[int, list[str], Callable[[], Iterator[FloatArray]]]:
    from pyarrow import parquet

    file = parquet.ParquetFile(source)
    names = _numeric(source, file.schema_arrow, reading)

    def batches() -> Iterator[FloatArray]:
        for batch in file.iter_batches(batch_size=CHUNK_ROWS, columns=names, use_threads=False):
            yield _as_floats(batch, names, reading)

    return file.metadata.num_rows, names, batches


def _open_feather(source: str, reading: Reading) -> tuple[int | None, list[str], Callable[[], Iterator[FloatArray]]]:
    import pyarrow as pa

    file = pa.ipc.open_file(pa.memory_map(source))
    names = _numeric(source, file.schema, reading)

    def batches() -> Iterator[FloatArray]:
        for at in range(file.num_record_batches):
            batch = file.get_batch(at)
            batch.validate(full=True)
            for first in range(0, batch.num_rows, CHUNK_ROWS):
                yield _as_floats(batch.slice(first, CHUNK_ROWS), names, reading)

    return None, names, batches


def _open_npy(source: str, reading: Reading) -> tuple[int, list[str] | None, Callable[[], Iterator[FloatArray]]]:
    array = np.load(source, mmap_mode="r", allow_pickle=False)
    if array.ndim not in (1, 2) or array.dtype.kind not in "fiub":
        raise InputError(f"{source} holds an array of {array.dtype} of shape {array.shape}, not a table of numbers")
    matrix = array.reshape(len(array), -1)
    every = [str(at + 1) for at in range(matrix.shape[1])]
    _, columns = choose_columns(source, every, reading, has_names=False)

    def batches() -> Iterator[FloatArray]:
        for first in range(0, len(matrix), CHUNK_ROWS):
            X = np.array(matrix[first : first + CHUNK_ROWS][:, columns], dtype=np.float64, order="C")
            yield reading.without_missing(X)

    return len(matrix), None, batches


OPENERS: dict[str, Any] = {"parquet": _open_parquet, "feather": _open_feather, "npy": _open_npy}


# --- finding out what it is -----------------------------------------------------------------------------------------


def unpacked(stream: IO[bytes]) -> tuple[Callable[[int], bytes], bool]:
    """A function that reads so many bytes at most, unpacked, and whether there was anything to unpack."""
    start = peek(stream)
    for magic, compression in COMPRESSIONS.items():
        if start.startswith(magic):
            import pyarrow as pa

            packed = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), compression)
            return packed.read, True
    read = getattr(stream, "read1", stream.read)  # of a pipe, what is there
    return read, False


def peek(stream: IO[bytes]) -> bytes:
    """The first bytes, which stay to be read."""
    return bytes(stream.peek(16)[:16]) if hasattr(stream, "peek") else b""


def opened(path: str | int, buffering: int = -1) -> Any:
    """A file to read bytes from."""
    try:
        return open(path, "rb", buffering=buffering, closefd=path != 0)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def open_table(path: str, reading: Reading) -> Table:
    """A file, or standard input if ``path`` is "-", ready to be read. Raises InputError."""
    if path == "-":
        stream: IO[bytes] = sys.stdin.buffer
        source = "standard input"
    else:
        source, stream = path, opened(path)
    start = peek(stream)
    kind = reading.format or format_of(path, start)
    if kind not in OPENERS:
        return TextTable(source, reading, stream, kind)
    if path == "-":
        raise InputError(f"{kind} cannot be read from a pipe: give the name of a file")
    stream.close()
    return TableOfRows(source, reading, kind)


def format_of(path: str, start: bytes) -> str:
    """The format of a file, from its first bytes or its name."""
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            return kind
    name = re.sub(r"\.(gz|gzip|zst|zstd)$", "", path.lower())
    suffix = os.path.splitext(name)[1]
    return SUFFIXES.get(suffix) or ("ndjson" if start.lstrip()[:1] == b"{" else "csv")
