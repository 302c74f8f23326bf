"""Tables out: CSV, TSV, NDJSON, Parquet, Feather and NPY."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from hmmstream.io.parsing import InputError
from hmmstream.io.reading import format_of
from hmmstream.io.whole import draft_of


class Writer:
    """Writes a table to a file or to standard output, some rows at a time.

    A context: at its end the file is complete and replaces an older one; after an error the older one stays.
    """

    def __init__(self, path: str, format: str | None = None) -> None:
        self.path = path
        self.kind = format or ("csv" if path == "-" else format_of(path, b""))
        self.batches: list[Any] = []  # of NPY, whose header says how many rows there are
        self._writer: Any = None

    def __enter__(self) -> Writer:
        import pyarrow as pa

        self._sink: Any = sys.stdout.buffer
        self._draft: Path | None = None
        if self.path != "-":
            target = Path(os.path.realpath(self.path))
            self._draft = draft_of(target) if target.is_file() or not target.exists() else None  # a pipe stays one
            try:
                self._sink = open(self._draft or target, "wb")  # closed at the end of the context
            except OSError as error:
                raise InputError(f"{self.path} cannot be written: {error.strerror}") from None
            for suffix, compression in ((".gz", "gzip"), (".zst", "zstd")):
                if self.path.endswith(suffix):
                    self._sink = pa.CompressedOutputStream(pa.PythonFile(self._sink, mode="w"), compression)
        return self

    def write(self, columns: dict[str, Any]) -> None:
        """Write rows: an array for each column, by name."""
        import pyarrow as pa

        if self.kind == "npy":
            self.batches.append(np.column_stack(list(columns.values())))
        elif self.kind == "ndjson":
            names = list(columns)
            rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
            text = "".join(json.dumps(dict(zip(names, nulls(row), strict=True))) + "\n" for row in rows)
            self._sink.write(text.encode())
        else:
            batch = pa.record_batch({name: pa.array(column, from_pandas=True) for name, column in columns.items()})
            self._writer = self._writer or self._new_writer(batch.schema)
            self._writer.write(batch)
        if self.path == "-":
            self._sink.flush()

    def _new_writer(self, schema: Any) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet

        if self.kind == "parquet":
            return parquet.ParquetWriter(self._sink, schema)
        if self.kind == "feather":
            return pa.ipc.new_file(self._sink, schema)
        delimiter = "\t" if self.kind == "tsv" else ","
        names = io.StringIO()
        csv.writer(names, delimiter=delimiter, lineterminator="\n").writerow(schema.names)
        self._sink.write(names.getvalue().encode())  # pyarrow would put every name in quotes
        options = arrow_csv.WriteOptions(include_header=False, delimiter=delimiter)
        return arrow_csv.CSVWriter(self._sink, schema, write_options=options)

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        if error is None:
            if self._writer is not None:
                self._writer.close()
            if self.kind == "npy" and self.batches:
                np.save(self._sink, np.concatenate(self.batches))
        if self.path != "-":
            with suppress(OSError) if error else nullcontext():
                self._sink.close()
        if self._draft is not None:
            if error is None:
                os.replace(self._draft, os.path.realpath(self.path))
            else:
                self._draft.unlink(missing_ok=True)


def nulls(row: Sequence[Any]) -> list[Any]:
    """A row for JSON, which has no NaN."""
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in row]
