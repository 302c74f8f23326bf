"""Names of streams: what each is called, and where it stands among them."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from hmmstream.arrays import IntArray
from hmmstream.recursions import names as kernels
from hmmstream.recursions.names import Numbers
from hmmstream.recursions.state import NO_SHAPE
from hmmstream.streams import in_threads

MANY_NAMES = 2**16  # that are worth a second thread to find them
LEAST_ROOM = 16


class Names:
    """Integers or strings, each of them once, in the order in which they came.

    Integers that count the places from 0, as those of a fleet that began with a block do, need no table: they are the
    places, and what is returned may be the array that was given.
    """

    def __init__(self, ids: Any) -> None:
        self._n, self._room = 0, np.empty(LEAST_ROOM, dtype=np.int64)
        self._table: Numbers | None = None  # made when it is needed
        self._are_places = True
        self.add(ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return Names, (self.ids,)  # room and table are made again

    def __len__(self) -> int:
        return self._n

    @property
    def ids(self) -> Any:
        """All names, to be read."""
        ids = self._room[: self._n]
        ids.flags.writeable = False
        return ids

    def find(self, ids: Any, n_jobs: int = 1) -> IntArray:
        """The place of each of these, or -1."""
        if self._are_places and ids.dtype.kind == "i":
            are_there = ids.min(initial=0) >= 0 and ids.max(initial=-1) < self._n
            return ids if are_there else np.where((ids >= 0) & (ids < self._n), ids, -1)
        if not self._n:
            return np.full(len(ids), -1)
        table, held, found = self._tabulated(), self._held(), np.empty(len(ids), dtype=np.uint64)

        def work(start: int, stop: int) -> None:
            kernels.find(NO_SHAPE, table, held, as_numbers(ids[start:stop]), found[start:stop])

        if n_jobs == 1 or len(ids) <= MANY_NAMES:
            work(0, len(ids))
        else:
            bounds = np.linspace(0, len(ids), 1 + n_jobs).astype(np.int64).tolist()
            in_threads(work, itertools.pairwise(bounds), n_jobs)
        places = found.view(np.int64)
        places -= 1
        return places

    def add(self, ids: Any) -> IntArray:
        """The place of each of these. Those that are new come after the others, in the order in which they stand here.

        If that is interrupted, :meth:`keep` brings back what was there before.
        """
        if not len(ids):
            return np.empty(0, dtype=np.int64)
        dtype = np.promote_types(self._room.dtype, ids.dtype) if self._n else ids.dtype
        self._are_places = self._are_places and are_counting(ids, self._n)
        if self._are_places:
            self._make_room(self._n + len(ids), dtype)
            self._room[self._n : self._n + len(ids)] = ids
            self._n += len(ids)
            return np.asarray(ids)
        self._make_room(self._n, dtype)
        names, places, row = as_numbers(ids), np.empty(len(ids), dtype=np.int64), 0
        while row < len(ids):
            table, held = self._tabulated(), self._held()
            self._n, row = kernels.add(NO_SHAPE, table, held, self._n, names, row, places)
            if row < len(ids):
                self._make_room(2 * self._n, dtype)
        return places

    def keep(self, n: int) -> None:
        """Keep the first ``n`` names and no others. This takes no memory: there may be none left."""
        self._n, self._table = n, None
        self._are_places = self._are_places or n == 0

    def _make_room(self, n: int, dtype: Any) -> None:
        """Have room for ``n`` names of this type: for 2^k, as the table wants it."""
        dtype = as_kept(dtype)
        if n > len(self._room) or dtype != self._room.dtype:
            room = np.zeros(max(len(self._room), 1 << (n - 1).bit_length()), dtype=dtype)
            room[: self._n] = self.ids
            self._table = self._table if len(room) == len(self._room) else None
            self._room = room

    def _tabulated(self) -> Numbers:
        """The table, two lines for each name that there is room for."""
        if self._table is None:
            table, held = np.zeros((2 * len(self._room), 2), dtype=np.uint64), self._held()
            kernels.add(NO_SHAPE, table, held, 0, held[: self._n], 0, np.empty(self._n, dtype=np.int64))
            self._table = table
        return self._table

    def _held(self) -> Numbers:
        """The room as rows of numbers: what is written there is a name."""
        numbers: Numbers = self._room.view(np.uint64).reshape(len(self._room), self._room.itemsize // 8)
        return numbers


def as_numbers(names: Any) -> Numbers:
    """Names that were given as rows of numbers, copied if they are kept in another way."""
    names = np.require(names, as_kept(names.dtype), ["C_CONTIGUOUS", "WRITEABLE"])
    numbers: Numbers = names.view(np.uint64).reshape(len(names), names.itemsize // 8)
    return np.require(numbers, requirements=["ALIGNED"])  # characters need less of it than numbers


def as_kept(dtype: Any) -> Any:
    """The type in which such names are kept: a number of 64 bits, or an even number of characters, at least two."""
    return np.dtype(f"=U{max(-(-dtype.itemsize // 8), 1) * 2}") if dtype.kind == "U" else np.dtype(np.int64)


def code_points(names: Any) -> Any:
    """The characters of strings as numbers: (N, longest), with zeros behind those that are shorter."""
    return np.ascontiguousarray(names).view(np.uint32).reshape(len(names), names.itemsize // 4)


def from_code_points(numbers: Any) -> Any:
    """The strings of these characters."""
    if numbers.ndim != 2 or numbers.shape[1] == 0 or numbers.max(initial=0) > sys.maxunicode:
        raise ValueError("the names of its streams are no strings")
    return np.ascontiguousarray(numbers).view(f"=U{numbers.shape[1]}").reshape(len(numbers))


def are_counting(names: Any, first: int) -> bool:
    """Whether these are the integers from ``first`` on."""
    return names.dtype.kind == "i" and np.array_equal(names, np.arange(first, first + len(names)))
