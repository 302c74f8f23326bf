"""Tables in and out: every format gives the same rows, and says where it is wrong."""

import gzip
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, parquet

from hmmstream.io import reading as io
from hmmstream.io.parsing import InputError, Reading
from hmmstream.io.reading import open_lines, open_table
from hmmstream.io.writing import Writer

X = np.array([[1.5, -2.0], [math.nan, 3.0], [1e-300, 4.25], [12345678.9, math.nan]])
TEXT = 'time,current,note,voltage\n0,1.5,a,-2\n1,,b,3.0\n2,1e-300,"c, d",4.25\n3,12345678.9,,NA\n'
NAMES = ["current", "voltage"]


def rows_of(path, *columns, position=None, **settings):
    table = open_table(str(path), Reading(columns=columns, **settings))
    chunks = list(table.chunks(position))
    return np.concatenate([chunk.X for chunk in chunks]) if chunks else None


def same(a, b):
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


def written(folder, kind):
    """The same table in another format."""
    path = folder / f"data.{kind}"
    table = pa.table({"time": range(4), **{name: X[:, at] for at, name in enumerate(NAMES)}})
    if kind.startswith("csv"):
        path.write_text(TEXT)
    elif kind == "tsv":
        path.write_text("time\tcurrent\tvoltage\n0\t1.5\t-2\n1\tnan\t3\n2\t1e-300\t4.25\n3\t12345678.9\t\n")
    elif kind == "ndjson":
        rows = [{"current": a, "voltage": b, "x": {"y": [1]}} for a, b in X.tolist()]
        path.write_text("\n".join(json.dumps({k: None if v != v else v for k, v in row.items()}) for row in rows))
    elif kind == "parquet":
        parquet.write_table(table, path, row_group_size=3)
    elif kind == "feather":
        feather.write_feather(table, path, chunksize=3)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "ndjson", "parquet", "feather"])
def test_every_format_gives_the_same_rows(kind, tmp_path):
    path = written(tmp_path, kind)
    assert same(rows_of(path, *NAMES), X)
    assert same(rows_of(path, *NAMES[::-1]), X[:, ::-1])


def test_arrays_have_no_names(tmp_path):
    np.save(tmp_path / "a.npy", X)
    assert same(rows_of(tmp_path / "a.npy"), X)
    assert same(rows_of(tmp_path / "a.npy", "2"), X[:, 1:])
    np.save(tmp_path / "b.npy", np.asfortranarray(X))
    assert same(rows_of(tmp_path / "b.npy"), X)
    np.save(tmp_path / "c.npy", np.array([1, 2, 3], dtype=np.int16))
    assert same(rows_of(tmp_path / "c.npy"), np.array([[1.0], [2.0], [3.0]]))


def test_packed_text_is_unpacked_whatever_its_name(tmp_path):
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "data.csv").write_bytes(pa.compress(TEXT.encode(), "zstd", asbytes=True))
    (tmp_path / "two.gz").write_bytes(gzip.compress(TEXT[:40].encode()) + gzip.compress(TEXT[40:].encode()))
    for name in ("data.csv.gz", "data.csv", "two.gz"):
        assert same(rows_of(tmp_path / name, *NAMES), X), name
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(TEXT.encode() * 1000)[:-20])
    with pytest.raises(InputError, match=r"cut\.csv\.gz"):
        rows_of(tmp_path / "cut.csv.gz", *NAMES)


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("1\n2\n", {}, [[1], [2]]),
        ("y\n1\n\n2\n\n", {}, [[1], [2]]),
        ("\ufeffy\r\n1\r\n2\r\n", {}, [[1], [2]]),
        ("\ufeff1\n2\n", {}, [[1], [2]]),
        ("y\n1\n2", {}, [[1], [2]]),
        ("1,2\n3,4\n", {}, [[1, 2], [3, 4]]),
        ("1,2\n3,4\n", {"columns": ["2"]}, [[2], [4]]),
        ("t;y\n0;1,5\n1;-2,25e3\n", {"columns": ["y"], "decimal": ","}, [[1.5], [-2250]]),
        ("t|y\n0|1\n", {"columns": ["y"]}, [[1]]),
        ("y\n-999\n1\nnothing\n", {"missing": ["-999", "nothing"]}, [[math.nan], [1], [math.nan]]),
        ("y\n-999.0\n1\n", {"missing": ["-999"]}, [[math.nan], [1]]),
        ('"y"\n"1.5"\n', {}, [[1.5]]),
        ("y\n 1.5\n2 \n", {}, [[1.5], [2]]),
        ("7\n8\n", {"header": True}, [[8]]),
        ("y\n1\nx\n2\n1e\n3\n", {"bad_rows_allowed": 2}, [[1], [2], [3]]),
        ("t,y\n0,1\n1\n2,3,4\n3,5\n", {"columns": ["y"], "bad_rows_allowed": 2}, [[1], [5]]),
        ("y\ninf\n-Inf\n", {}, [[math.inf], [-math.inf]]),
        ('{"y": 1}\n{"z": 3}\n{"y": null}\n{"y": 2e3}\n', {"columns": ["y"]}, [[1], [math.nan], [math.nan], [2000]]),
        ('{"y": 1}\nx\n{"y": "a"}\n{"y": 2}\n', {"bad_rows_allowed": 2}, [[1], [2]]),
        ('{"y": "NA"}\n{"y": NaN}\n', {"columns": ["y"]}, [[math.nan], [math.nan]]),
    ],
)
def test_text_as_people_write_it(text, settings, expected, tmp_path):
    """Read in blocks and line by line, with the same result."""
    path = tmp_path / "data"
    path.write_bytes(text.encode())
    expected = np.array(expected, dtype=float)
    assert same(np.concatenate([c.X for c in open_table(str(path), Reading(**settings)).chunks()]), expected)
    reading = Reading(**settings)
    live = [row for row, _ in open_lines(str(path), reading).rows()]
    assert same(np.array(live), expected)
    assert reading.bad_rows == settings.get("bad_rows_allowed", 0)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("y\n1\n2\noops\n", {}, r"line 4, column y: 'oops' is not a number.*--missing 'oops'.*--skip-bad-rows"),
        ("y\n1\n\n\n2,5\n", {}, "line 5.*2 column"),
        ("t;y\n0;2,5\n", {"columns": ["y"]}, r"line 2, column y: '2,5'.*--decimal ','"),
        ("t,y\n0,1\n1\n", {"columns": ["y"]}, r"line 3: 1 column\(s\) where the first line has 2.*--skip-bad-rows"),
        ("y\n1\n0x10\n", {}, "line 3.*'0x10'"),
        ("y\n1\n1_000\n", {}, "line 3.*'1_000'"),
        ("y\n1\nx\ny\nz\n", {"bad_rows_allowed": 2}, "line 5.*More than 2 rows are bad"),
        ("a,b\n1,2\n", {}, "2 columns: say which to read, with --column. There is: a, b"),
        ("a,b\n1,2\n", {"columns": ["c"]}, "no column 'c'. There is: a, b"),
        ("a,a\n1,2\n", {"columns": ["a"]}, "2 columns 'a'"),
        ("", {}, "is empty"),
        ("\n\n", {}, "is empty"),
        ('{"y": 1}\n{"y": \n', {}, "line 2 is not a JSON object"),
        ('{"y": 1}\n{"y": "x"}\n', {}, "line 2, column y: 'x'"),
        ('{"y": true}\n', {"columns": ["y"]}, "line 1, column y: 'True'"),
        ('{"y": "a"}\n', {}, "no column of numbers"),
    ],
)
def test_errors_name_the_place_and_the_remedy(text, settings, message, tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        rows_of(path, *settings.pop("columns", []), **settings)
    assert "data.txt" in str(caught.value)


def test_what_cannot_be_read_is_said(tmp_path):
    for name, content, message in [
        ("a.parquet", b"PAR1 and nothing more", "not a parquet file"),
        ("b.feather", b"ARROW1 and nothing more", "not a feather file"),
        ("c.npy", b"\x93NUMPY and nothing more", "not a npy file"),
        ("d.csv", b"x" * (io.LONGEST_LINE + 2**22), "longer than 16 MB"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            rows_of(tmp_path / name)
    with pytest.raises(InputError, match="there is no file"):
        open_table(str(tmp_path / "absent.csv"), Reading())
    with pytest.raises(InputError, match="Is a directory"):
        open_table(str(tmp_path), Reading())
    np.save(tmp_path / "e.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="not a npy file"):
        rows_of(tmp_path / "e.npy")
    parquet.write_table(pa.table({"t": ["a"], "y": [1.0]}), tmp_path / "f.parquet")
    with pytest.raises(InputError, match="holds string, not numbers"):
        rows_of(tmp_path / "f.parquet", "t")
    assert same(rows_of(tmp_path / "f.parquet"), np.array([[1.0]]))


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "ndjson", "parquet", "feather", "npy"])
def test_reading_goes_on_from_any_position(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(io, "BLOCK_BYTES", 100)
    monkeypatch.setattr(io, "CHUNK_ROWS", 16)
    data = np.random.default_rng(0).normal(size=(200, 1)).round(3)
    path = tmp_path / f"data.{kind}"
    with Writer(str(path)) as writer:
        writer.write({"y": data[:, 0]})
    chunks = list(open_table(str(path), Reading()).chunks())
    assert len(chunks) > 5
    n = 0
    for chunk in chunks:
        n += len(chunk.X)
        assert chunk.after["rows"] == n
        rest = rows_of(path, position=json.loads(json.dumps(chunk.after)))
        assert same(data[n:], rest if rest is not None else np.empty((0, 1)))


def test_a_file_that_has_changed_is_not_gone_on_with(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("y\n1\n2\n3\n")
    after = list(open_table(str(path), Reading()).chunks())[-1].after
    path.write_text("y\n1\n2\n3\n4\n")
    assert same(rows_of(path, position=after), np.array([[4.0]]))
    for changed in ("y\n1\n2\n4\n4\n", "y\n1\n"):
        path.write_text(changed)
        with pytest.raises(InputError, match=r"not the file whose first 3 rows"):
            rows_of(path, position=after)


def test_a_line_that_was_not_complete_is_not_gone_on_with(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("y\n1\n2\n3")
    after = list(open_table(str(path), Reading()).chunks())[-1].after
    assert rows_of(path, position=after) is None
    path.write_text("y\n1\n2\n3\n4\n")
    assert same(rows_of(path, position=after), np.array([[4.0]]))
    path.write_text("y\n1\n2\n35.5\n4\n")
    with pytest.raises(InputError, match="was not complete"):
        rows_of(path, position=after)


@pytest.mark.parametrize("kind", ["parquet", "feather", "npy"])
def test_a_table_that_was_replaced_is_noticed(kind, tmp_path):
    path = tmp_path / f"data.{kind}"

    def write(values):
        with Writer(str(path)) as writer:
            writer.write({"y": np.array(values)})

    write([1.0, 2.0, 3.0])
    after = list(open_table(str(path), Reading()).chunks())[-1].after
    assert rows_of(path, position=after) is None
    write([1.0, 2.0, 3.0, 4.0])
    assert same(rows_of(path, position=after), np.array([[4.0]]))
    for other in ([1.0, 2.0, 7.0, 4.0], [1.0, 2.0], [1.0, 2.0, 7.0]):
        write(other)
        with pytest.raises(InputError, match="not the file whose first 3 rows"):
            rows_of(path, position=after)


def test_both_ways_of_parsing_see_the_same_lines(tmp_path):
    """pyarrow takes a carriage return for the end of a line, and two objects on a line for two rows."""
    for text in ("y\n1\r2\n3\n", '{"y": 1}\n{"y": 1}{"y": 2}\n{"y": 3}\n'):
        path = tmp_path / "data"
        path.write_bytes(text.encode())
        reading = Reading(bad_rows_allowed=1)
        blocks = np.concatenate([chunk.X for chunk in open_table(str(path), reading).chunks()])
        assert same(blocks, np.array([row for row, _ in open_lines(str(path), Reading(bad_rows_allowed=1)).rows()]))
        assert reading.bad_rows == 1


def test_an_older_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail():
        with Writer(str(path)) as writer:
            writer.write({"y": np.zeros(3)})
            raise InputError("broken off")

    with pytest.raises(InputError, match="broken off"):
        fail()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["out.csv"]


def test_memory_does_not_grow_with_the_file(tmp_path):
    """The largest chunk of a file of 30 MB is a few blocks large."""
    path = tmp_path / "data.csv"
    path.write_text("y\n" + "0.12345\n" * 4_000_000)
    largest = max(chunk.X.nbytes for chunk in open_table(str(path), Reading()).chunks())
    assert largest < 2 * io.BLOCK_BYTES


@given(st.binary(max_size=200), st.sampled_from([None, "csv", "ndjson", "tsv"]))
def test_no_bytes_break_the_readers(content, kind):
    """Rows or an InputError, and the same from blocks as line by line."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(content)
        file.flush()
        try:
            blocks = rows_of(file.name, format=kind, bad_rows_allowed=1000)
        except InputError:
            return
        lines = [row for row, _ in open_lines(file.name, Reading(format=kind, bad_rows_allowed=1000)).rows()]
        assert same(
            np.empty((0, 1)) if blocks is None else blocks, np.array(lines).reshape(len(lines), -1 if lines else 1)
        )


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.ndjson", "a.parquet", "a.feather", "a.csv.gz", "a.csv.zst"])
def test_what_is_written_is_read_again(name, tmp_path):
    with Writer(str(tmp_path / name)) as writer:
        for first in (0, 2):
            writer.write({name: X[first : first + 2, at] for at, name in enumerate(NAMES)})
    assert same(rows_of(tmp_path / name, *NAMES), X)
