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
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

import numpy as np

from hmmstream.arrays import FloatArray
from hmmstream.io.parsing import (
    InputError,
    Reading,
    choose_columns,
    columns_of,
    line_parser,
    numbered_lines,
)

BLOCK_BYTES = 2**22
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


def another_file(source: str, rows: int) -> InputError:
    return InputError(
        f"{source} is not the file whose first {rows:,} rows were learned from: it has changed, or is another one of "
        "this name. Give it another name, or begin a new --checkpoint."
    )


@dataclass
class Place:
    """How far a text has been read, and a fingerprint of what came right before."""

    rows: int = 0
    offset: int = 0  # bytes that lie behind
    line: int = 1  # the next one
    tail: bytes = b""

    def advance(self, text: bytes, rows: int = 0, n_newlines: int | None = None) -> None:
        """Some more was read."""
        self.rows += rows
        self.offset += len(text)
        self.line += text.count(b"\n") if n_newlines is None else n_newlines
        self.tail = (self.tail + text[-FINGERPRINT_BYTES:])[-FINGERPRINT_BYTES:]

    def as_dict(self) -> dict[str, Any]:
        """The place in terms of JSON."""
        fingerprint = hashlib.sha256(self.tail).hexdigest()
        return {"rows": self.rows, "bytes": self.offset, "line": self.line, "fingerprint": fingerprint}

    @classmethod
    def again(cls, position: dict[str, Any], tail: bytes, source: str) -> Place:
        """A place that was noted before, if the text before it is still the same."""
        if hashlib.sha256(tail).hexdigest() != position["fingerprint"]:
            raise another_file(source, position["rows"])
        return cls(position["rows"], position["bytes"], position["line"], tail)


@dataclass
class Chunk:
    """Some rows of a table, where they stand in it, and where reading goes on."""

    X: FloatArray
    after: dict[str, Any]  # position behind the last row
    line: Callable[[int], str]  # of a row, in words
    n_bad: int = 0  # rows between them that were left out


def endless() -> None:
    """How long to wait for rows, if nothing else is to be done meanwhile."""


class Table(ABC):
    """A table that is read from front to back, once.

    Attributes
    ----------
    source : str
        Its name, for messages.
    names : list of str or None
        Those of the columns, if they have any.
    is_seekable : bool
        Whether rows that were read before can be read again.
    unit, size, done
        For a progress bar: its unit, how much there is to read (None: nobody knows), how much has been read.
    """

    names: list[str] | None = None
    is_seekable = True
    unit = " rows"
    size: int | None = None
    done = 0

    def __init__(self, source: str, reading: Reading) -> None:
        self.source, self.reading = source, reading

    @abstractmethod
    def chunks(
        self, position: dict[str, Any] | None = None, patience: Callable[[], float | None] = endless
    ) -> Generator[Chunk | None]:
        """Chunks of rows, from the first or from a position on; None whenever ``patience()`` seconds bring none."""


class TextTable(Table):
    """CSV, TSV or NDJSON, plain or packed, from a file or a pipe."""

    unit = "B"

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
        block = self._block() or b""
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
        return block[end:]

    def chunks(
        self, position: dict[str, Any] | None = None, patience: Callable[[], float | None] = endless
    ) -> Generator[Chunk | None]:
        with closing(self.stream):
            for block in self._blocks(position, patience):
                yield None if block is None else self._chunk(block)

    def rows(
        self, position: dict[str, Any] | None = None, patience: Callable[[], float | None] = endless
    ) -> Generator[tuple[list[float], int] | None]:
        """Each row as soon as its line is complete, with the number of the line; None as in ``chunks``."""
        with closing(self.stream):
            for block in self._blocks(position, patience):
                if block is None:
                    yield None
                    continue
                for line in BytesIO(block):
                    number = self.place.line
                    self.place.advance(line)
                    for _, text in numbered_lines(line, number):
                        try:
                            row = self.parser.row(text, number)
                        except InputError as error:
                            self.reading.skip_bad_row(error)
                            continue
                        self.place.rows += 1
                        yield row, number

    def _blocks(self, position: dict[str, Any] | None, patience: Callable[[], float | None]) -> Generator[bytes | None]:
        """Whole lines, as many as there are at once; None whenever patience has come to an end."""
        if position is not None:
            self._go_to(position)
            self._first_block = self._block() or b""
            if self.place.tail[-1:] not in b"\n" and self._first_block[:1] not in b"\r\n":
                raise InputError(
                    f"the last line of {self.source} was not complete when it was learned from, and has become longer: "
                    "begin a new --checkpoint"
                )
        if self._first_block:
            yield self._first_block
        while (block := self._block(patience)) != b"":
            yield block

    def _block(self, patience: Callable[[], float | None] = endless) -> bytes | None:
        """The next lines, whole ones; empty at the end, None if they take too long."""
        pieces = [self._carry]
        while True:
            piece = self._piece(patience())
            if piece is None:
                self._carry = b"".join(pieces)
                return None
            end = piece.rfind(b"\n") + 1
            if end or not piece:
                self._carry = piece[end:]
                return b"".join([*pieces, piece[:end]])
            pieces.append(piece)
            if sum(map(len, pieces)) > LONGEST_LINE:
                raise InputError(
                    f"{self.source}, line {self.place.line:,} is longer than {LONGEST_LINE >> 20} MB: is this text?"
                )

    def _piece(self, seconds: float | None) -> bytes | None:
        """Some bytes; of a pipe what is there, but None if nothing has come for so long."""
        try:
            if self.is_seekable:
                return self._read(BLOCK_BYTES)
            with self.reading.waiting():
                if seconds is not None and not self.is_packed and not select.select([self.stream], [], [], seconds)[0]:
                    return None
                return self._read(BLOCK_BYTES)
        except (OSError, EOFError) as error:
            raise InputError(f"{self.source} cannot be read: {first_line(error)}") from None

    def _chunk(self, block: bytes) -> Chunk:
        first, n_bad = self.place.line, self.reading.bad_rows
        n_newlines = count_newlines(block)
        X, lines = self.parser.parse_block(block), None
        if X is None or not has_rows(block, len(X), n_newlines):
            X, lines = self.parser.rows(block, first)

        def line(row: int) -> str:
            numbers = lines or [number for number, _ in numbered_lines(block, first)]
            return f"line {numbers[row]:,}"

        self.place.advance(block, len(X), n_newlines)
        self.done = self.stream.tell() if self.is_seekable else self.place.offset
        return Chunk(X, self.place.as_dict(), line, self.reading.bad_rows - n_bad)

    def _go_to(self, position: dict[str, Any]) -> None:
        """Go on behind the rows that were read before, if this still is the table they were read from."""
        wanted = position["bytes"]
        if self.is_seekable and not self.is_packed:
            n = min(wanted, FINGERPRINT_BYTES)
            self.stream.seek(self.origin + wanted - n)
            tail, self._carry = self.stream.read(n), b""
        else:
            behind, block = self.place, self._first_block + self._carry
            while block and behind.offset < wanted:
                taken = block[: wanted - behind.offset]
                behind.advance(taken)
                block = block[len(taken) :] or self._read(BLOCK_BYTES)
            tail, self._carry = behind.tail, block
        self.place = Place.again(position, tail, self.source)


def count_newlines(block: bytes) -> int:
    """The number of ends of lines: of large blocks counted by NumPy, which takes a fraction of the time."""
    return int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")))


def has_rows(block: bytes, n: int, n_newlines: int) -> bool:
    """Whether a block has so many lines that are not empty, and all end in a way that parsers agree upon."""
    if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return False
    return n == n_newlines + (not block.endswith(b"\n")) or n == sum(1 for _ in numbered_lines(block, 1))


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

    def chunks(
        self, position: dict[str, Any] | None = None, patience: Callable[[], float | None] = endless
    ) -> Generator[Chunk | None]:
        start, n_known = (position["rows"], position["known"]) if position is not None else (0, 0)
        row, tail = 0, b""  # of what was read before, the values of the last chunk
        for X in self._safely(self._batches()):
            first = row
            row += len(X)
            self.done = row
            known = X[max(start - n_known - first, 0) : max(start - first, 0)]
            tail += known.tobytes()
            if row <= start:
                continue
            if first <= start and position is not None:
                self._compare(position, tail)
            new = X[max(start - first, 0) :]
            offset = row - len(new)

            def line(at: int, offset: int = offset) -> str:
                return f"row {offset + at + 1:,}"

            fingerprint = hashlib.sha256(new.tobytes()).hexdigest()
            yield Chunk(new, {"rows": row, "known": len(new), "fingerprint": fingerprint}, line)
        if row <= start and position is not None:
            self._compare(position, tail if row == start else b"too short")

    def _compare(self, position: dict[str, Any], tail: bytes) -> None:
        """Refuse to go on if what was read before is not there any more."""
        if hashlib.sha256(tail).hexdigest() != position["fingerprint"]:
            raise another_file(self.source, position["rows"])

    def _safely(self, batches: Iterator[FloatArray]) -> Iterator[FloatArray]:
        try:
            yield from batches
        except InputError:
            raise
        except Exception as error:  # a damaged page
            raise InputError(f"{self.source} is damaged after row {self.done:,}: {first_line(error)}") from None


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


def open_table(path: str, reading: Reading) -> Table:
    """A file, or standard input if ``path`` is "-", ready to be read. Raises InputError."""
    source = "standard input" if path == "-" else path
    if path == "-" and sys.stdin is None:
        raise InputError("standard input is closed")
    try:
        with reading.waiting():  # a pipe that nobody writes to yet
            stream: Any = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115
            start = peek(stream)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from None
    kind = reading.format or format_of(path, start)
    if kind not in OPENERS:
        return TextTable(source, reading, stream, kind)
    stream.close()
    if path == "-" or start.startswith(tuple(COMPRESSIONS)):
        raise InputError(f"{source}: {kind} is read from files that are not packed: unpack it, and give its name")
    return TableOfRows(source, reading, kind)


def open_lines(path: str, reading: Reading) -> TextTable:
    """The same for text that is read line by line."""
    table = open_table(path, reading)
    if not isinstance(table, TextTable):
        raise InputError(f"{path} is not text, which is all that can be read line by line")
    return table


def format_of(path: str, start: bytes) -> str:
    """The format of a file, from its first bytes or its name."""
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            return kind
    name = re.sub(r"\.(gz|gzip|zst|zstd)$", "", path.lower())
    suffix = os.path.splitext(name)[1]
    return SUFFIXES.get(suffix) or ("ndjson" if start.lstrip()[:1] == b"{" else "csv")
