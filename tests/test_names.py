"""Names of streams are found where a dictionary would find them, however many there are and however they are made."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmmstream.names import LEAST_ROOM, MANY_NAMES, Names

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 30)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9) | st.sampled_from(["a", "b", "ab"])


def array_of(names):
    return np.array(names, dtype=np.str_ if names and isinstance(names[0], str) else np.int64)


def chunks_of(names):
    return st.lists(st.lists(names, min_size=1, max_size=3 * LEAST_ROOM), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(chunks_of(NUMBERS) | chunks_of(WORDS))
def test_places_are_those_of_a_dictionary(chunks):
    names, places = Names(array_of(chunks[0][:0])), {}
    for chunk in chunks:
        before = dict(places)
        for name in chunk:
            places.setdefault(name, len(places))
        assert names.find(array_of(chunk)).tolist() == [before.get(name, -1) for name in chunk]
        assert names.add(array_of(chunk)).tolist() == [places[name] for name in chunk]
        assert names.ids.tolist() == list(places)
        assert names.find(array_of(list(places))).tolist() == list(range(len(places)))


@settings(max_examples=50, deadline=None)
@given(chunks_of(NUMBERS) | chunks_of(WORDS))
def test_what_is_not_kept_was_never_there(chunks):
    names, others = (Names(array_of(chunks[0])) for _ in range(2))
    for chunk in chunks[1:]:
        n = len(names)
        names.add(array_of(chunk))
        names.keep(n)
        assert names.ids.tolist() == others.ids.tolist()
    for chunk in chunks[1:]:
        assert names.find(array_of(chunk)).tolist() == others.find(array_of(chunk)).tolist()
        assert names.add(array_of(chunk)).tolist() == others.add(array_of(chunk)).tolist()


@pytest.mark.parametrize("spelled", [np.int64, np.str_])
def test_many_names_are_found_by_several_threads(spelled):
    rng = np.random.default_rng(0)
    all_names = (rng.permutation(MANY_NAMES) * 2**32 - 7).astype(spelled)
    names, asked = Names(all_names[::2]), rng.integers(0, MANY_NAMES, 3 * MANY_NAMES)
    for n_jobs in (1, 3):
        np.testing.assert_array_equal(
            names.find(all_names[asked], n_jobs), np.where(asked % 2 == 0, asked // 2, -1), strict=True
        )


def test_one_more_name_needs_no_new_table():
    names = Names(np.arange(1000) * 3)
    names.find(np.array([3]))
    table = names._table
    names.add(np.array([7]))
    assert names._table is table
    assert names.find(np.array([7, 8, 2997])).tolist() == [1000, -1, 999]


def test_integers_that_count_places_need_no_table_until_one_does_not():
    names = Names(np.arange(20))
    assert names.add(np.arange(20, 50)).tolist() == list(range(20, 50))
    assert names.find(np.array([49, 50, -1])).tolist() == [49, -1, -1]
    assert names._table is None
    assert names.add(np.array([7, 1000, 49])).tolist() == [7, 50, 49]
    assert names.find(np.array([1000, 49, 50])).tolist() == [50, 49, -1]


def test_names_of_the_same_hash_are_told_apart():
    code = """
import numpy as np
from hmmstream.names import Names
from hmmstream.recursions import names as kernels

kernels.hash_of = lambda words, row: np.uint64(5)
all_names = np.array([f"pump {k % 7}{k}" for k in range(40)])
names = Names(all_names[:20])
assert names.find(all_names).tolist() == [*range(20), *[-1] * 20]
assert names.add(all_names[::-1]).tolist() == [*range(20, 40), *range(19, -1, -1)]
assert names.find(np.array(["pump 0", "pump 000", all_names[39] + "12"])).tolist() == [-1, -1, -1]
assert names.find(np.array(["pump"])).tolist() == [-1]  # the beginning of one that is there
"""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}  # plain Python, in which the hash can be replaced
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, check=True)


@pytest.mark.parametrize(
    "names", [np.arange(1, 2**14 + 1), np.arange(2**14) * 2**40, np.array([f"sensor {k}" for k in range(2**14)])]
)
def test_hashes_of_orderly_names_are_spread_at_least_as_random_ones_are(names):
    table = Names(names)._tabulated()
    lines = table[table[:, 1] > 0, 0] % len(table)
    assert len(lines) == len(names) == len(table) // 2
    # Random ones fall on 1 - exp(-1/2) = 0.3935 of all lines, with a standard deviation of 0.0017
    assert len(np.unique(lines)) / len(table) > 0.3935 - 4 * 0.0017


def test_names_are_the_same_in_any_order_of_bytes_and_of_any_size():
    names = Names(np.array(["x", "pump 7"], dtype=">U9"))
    assert names.find(np.array(["pump 7", "x", "y"])).tolist() == [1, 0, -1]
    numbers = Names(np.array([-1, 7], dtype=np.int32))
    assert numbers.find(np.array([7, -1, 2**32 - 1])).tolist() == [1, 0, -1]
    assert numbers.find(np.array([7, -1], dtype=">i8")[::-1]).tolist() == [0, 1]


@pytest.mark.parametrize("names", [np.arange(9) * 5, np.array([f"sensor {k}" for k in range(9)])])
def test_names_may_lie_in_memory_as_they_like(names):
    at_odd_places = np.frombuffer(b"x" + names.tobytes(), dtype=names.dtype, offset=1)
    one_by_one = np.repeat(names, 2)[::2]
    read_only = names.copy()
    read_only.flags.writeable = False
    for as_given in (at_odd_places, one_by_one, read_only, names[::-1].copy()[::-1]):
        table = Names(as_given)
        assert table.ids.tolist() == names.tolist()
        assert table.find(as_given).tolist() == list(range(9))
        assert table.add(as_given[::-1]).tolist() == list(range(9))[::-1]
    with pytest.raises(ValueError, match="read-only"):
        table.ids[0] = 0


def test_strings_without_characters_are_names():
    none = np.zeros(2, dtype=[("a", "U0")])["a"]
    assert Names(none).ids.tolist() == [""]
    assert Names(np.array(["pump", ""])).find(none).tolist() == [1, 1]
    assert Names(np.array(["pump"])).add(none).tolist() == [1, 1]


def test_names_that_were_read_from_memory_that_cannot_be_written_to_can_become_more():
    buffers = []
    pickled = pickle.dumps(Names(np.array(["x", "yz"])), protocol=5, buffer_callback=buffers.append)
    names = pickle.loads(pickled, buffers=[bytes(buffer) for buffer in buffers])
    assert names.add(np.array(["w", "x"])).tolist() == [2, 0]
    assert names.ids.tolist() == ["x", "yz", "w"]


def test_a_copy_goes_its_own_way():
    names = Names(np.array(["x", "yz"]))
    other = copy.deepcopy(names)
    other.add(np.array(["w"]))
    assert (len(names), len(other)) == (2, 3)
    assert names.find(np.array(["w", "yz"])).tolist() == [-1, 1]
