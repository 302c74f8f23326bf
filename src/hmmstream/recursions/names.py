"""Which stream a name stands for: names are found by their hashes.

A name is a row of numbers of 64 bits: one for an integer, one for each two characters of a string, with zeros at its
end. ``held`` has room for those that are there, in the order of their places. A line of ``table`` has the hash of a
name, and its place plus one: zeros where the line is free. There are 2^k lines, and two for each name that there is
room for, so that a name stands at the line that the last k bits of its hash say, or not far behind it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from hmmstream.arrays import IntArray
from hmmstream.recursions.bridge import INLINE, compiled, inlined, view
from hmmstream.recursions.vectors import prefetch

Numbers = NDArray[np.uint64]

AHEAD = 16  # names further on, of which the line is asked for, so that it is there when it is looked at
FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # odd: no two numbers become the same
ZERO, ONE, HALF = np.uint64(0), np.uint64(1), np.uint64(32)


def product(one: Any, other: Any) -> Any:
    """The last 64 bits of a product, of which NumPy would warn."""
    return np.uint64(int(one) * int(other) & (2**64 - 1))


@overload(product, strict=False, jit_options=INLINE)
def _product(one: Any, other: Any) -> Any:
    return lambda one, other: one * other


@inlined
def hash_of(names: Numbers, row: int) -> Any:
    """A number in which every bit of a name counts. Names of a single number never share one.

    From the end, so that zeros there do not count: the same string may stand among longer ones, or shorter.
    """
    mixed = ZERO
    for at in range(names.shape[1] - 1, -1, -1):
        mixed = product(mixed ^ names[row, at], FIRST)
        mixed ^= mixed >> HALF
    mixed = product(mixed, SECOND)
    return mixed ^ (mixed >> HALF)


@inlined
def are_same(names: Numbers, row: int, held: Numbers, place: int) -> bool:
    """Whether two names of the same hash are the same."""
    n, n_held = names.shape[1], held.shape[1]
    if n == 1 and n_held == 1:  # see hash_of
        return True
    differ = False
    for at in range(min(n, n_held)):
        differ |= names[row, at] != held[place, at]
    for at in range(n_held, n):
        differ |= names[row, at] != 0
    for at in range(n, n_held):
        differ |= held[place, at] != 0
    return not differ


@inlined
def line_with(table: Numbers, mixed: Any, line: Any) -> Any:
    """From this line on, the first that has this hash, or is free."""
    last = np.uint64(len(table) - 1)
    line &= last
    while table[line, 1] != 0 and table[line, 0] != mixed:
        line = (line + ONE) & last
    return line


@inlined
def line_of(table: Numbers, held: Numbers, names: Numbers, row: int, mixed: Any) -> Any:
    """The line of a name of this hash, or the free one where it would stand."""
    line = line_with(table, mixed, mixed)
    while table[line, 1] != 0 and not are_same(names, row, held, np.int64(table[line, 1]) - 1):
        line = line_with(table, mixed, line + ONE)
    return line


@compiled
def find(shape: Any, table: Numbers, held: Numbers, names: Numbers, found: Numbers) -> None:
    """The place of each name plus one, or 0."""
    table, held = view(table, 0, table.shape), view(held, 0, held.shape)  # passed on without counting references
    names, found = view(names, 0, names.shape), view(found, 0, found.shape)
    last, width = np.uint64(len(table) - 1), held.shape[1]
    for ahead in range(len(names) + 2 * AHEAD):
        row, its_place = ahead - 2 * AHEAD, ahead - AHEAD
        if ahead < len(names):
            found[ahead] = hash_of(names, ahead)  # kept here until the name is found
            prefetch(table, np.int64(found[ahead] & last) * 2)
        if width > 1 and 0 <= its_place < len(names):
            line = line_with(table, found[its_place], found[its_place])
            place = max(np.int64(table[line, 1]) - 1, 0)
            prefetch(held, place * width)
            prefetch(held, place * width + width - 1)
        if row >= 0:
            found[row] = table[line_of(table, held, names, row, found[row]), 1]


@compiled
def add(
    shape: Any, table: Numbers, held: Numbers, n: int, names: Numbers, first: int, places: IntArray
) -> tuple[int, int]:
    """The place of each name from the ``first`` on; one that is not among the ``n`` that are there is the next.

    Returns how many there are then, and the row of a new name if there is no room for it, or else the number of rows.
    """
    table, held = view(table, 0, table.shape), view(held, 0, held.shape)
    names, places = view(names, 0, names.shape), view(places, 0, places.shape)
    for row in range(first, len(names)):
        mixed = hash_of(names, row)
        line = line_of(table, held, names, row, mixed)
        if table[line, 1] == 0:
            if n == len(held):
                return n, row
            for at in range(held.shape[1]):
                held[n, at] = names[row, at] if at < names.shape[1] else ZERO
            n += 1
            table[line, 0], table[line, 1] = mixed, np.uint64(n)
        places[row] = np.int64(table[line, 1]) - 1
    return n, len(names)
