"""What happens to a block of rows of many keys: plain computation, the same wherever the models are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from hmmstream.arrays import BoolArray, FloatArray, IntArray
from hmmstream.emissions import Emission
from hmmstream.fleet import Fleet
from hmmstream.recursions import rows

# Whether a row was learned from, and if not, why
LEARNED, INCOMPLETE, LATE, TWICE, IMPOSSIBLE = range(5)
NO_KEY, NO_PLACE = 1, 2  # bits of what a row lacks
REASONS = ("incomplete", "late", "twice", "impossible")


class Held(NamedTuple):
    """What is kept of a key."""

    vector: bytes  # of its stream in a fleet
    last: float | int | None  # the place in its order that was learned last, None if none was
    n_refused: int

    @classmethod
    def of(cls, given: Any) -> Held:
        """What a row of a table of models holds."""
        return cls(bytes(given.vector), given.last if given.has_last else None, int(given.refused))


class Rows(NamedTuple):
    """Rows of many keys, as they came."""

    keys: pd.Series
    order: Any  # (n,): integers or floating-point numbers
    X: FloatArray  # (n, d)
    lacks: IntArray  # (n,): 0, or what is missing, the key or the place in the order


class Found(NamedTuple):
    """What the rows showed, one each."""

    proba: FloatArray  # (n, m): of each state; NaN where the row was refused
    state: IntArray  # (n,): the most likely one, or -1
    surprise: FloatArray  # (n,): minus the log predictive density; NaN where there was nothing to be surprised at
    verdict: IntArray  # (n,): LEARNED, or why not


def learn(fleet: Fleet, data: Rows, read: Callable[[Any], Held | None], write: Callable[[Any, Held], None]) -> Found:
    """Learn from rows, with models that are read from, and written to, where they are kept.

    The rows of a key are learned in their order. One that does not come after the last that was learned is refused, as
    is one that lacks its key or order, or holds what cannot occur.
    """
    codes, names = numbered(data)
    held = [read(name) for name in names]
    nothing = lowest(data.order.dtype)
    vectors, last = np.tile(fleet.new_vector(), (len(names), 1)), np.full(len(names), nothing)
    for at, known in enumerate(held):
        if known is not None:
            if len(known.vector) != vectors[at].nbytes:
                raise ValueError(f"the model of {names[at]!r} to go on from is of another kind than the model given")
            vectors[at] = np.frombuffer(known.vector)
            if known.last is not None:
                last[at] = known.last

    fleet.resume(np.arange(len(names)), vectors)
    found = follow(fleet, data, codes, codes, last)
    n_refused = count_refused(found, codes, len(names))
    for at, (name, before, place) in enumerate(zip(names, held, last.tolist(), strict=True)):
        earlier = 0 if before is None else before.n_refused
        write(name, Held(fleet.vectors[at].tobytes(), None if place == nothing else place, earlier + n_refused[at]))
    return found


def follow(fleet: Fleet, data: Rows, codes: IntArray, ids: Any, last: Any) -> Found:
    """Let streams of the fleet, each row's by its id, learn what is in turn, and note in ``last`` how far they are."""
    in_turn, verdict = judge(fleet.start.emission, data, codes, last)
    n, m = len(codes), fleet.start.n_components
    found = Found(np.full((n, m), np.nan), np.full(n, -1), np.full(n, np.nan), verdict)
    if len(in_turn):
        X = data.X[in_turn]
        proba, surprise = fleet.follow(X, ids[in_turn], return_surprise=True)
        found.proba[in_turn], found.state[in_turn] = proba, proba.argmax(axis=1)
        found.surprise[in_turn] = np.where(np.isnan(X).all(axis=1), np.nan, surprise)
        last[codes[in_turn]] = data.order[in_turn]  # of several rows of a key, that of the last one stays
    return found


def count_refused(found: Found, codes: IntArray, n_keys: int) -> list[int]:
    """How many rows of each key were not learned from."""
    counts: list[int] = np.bincount(codes[(found.verdict != LEARNED) & (codes >= 0)], minlength=n_keys).tolist()
    return counts


def numbered(data: Rows) -> tuple[IntArray, list[Any]]:
    """The number of each row's key, -1 where it has none, and the keys by their numbers."""
    codes = np.full(len(data.keys), -1)
    has_key = data.lacks & NO_KEY == 0
    codes[has_key], names = pd.factorize(data.keys[has_key], sort=True)  # however the rows arrived
    return codes, names.tolist()


def lowest(dtype: Any) -> Any:
    """What comes before every place in an order."""
    return np.iinfo(dtype).min if dtype.kind == "i" else -np.inf


def judge(emission: Emission, data: Rows, codes: IntArray, last: Any) -> tuple[IntArray, IntArray]:
    """Numbers of the rows to learn from, key by key in their order, and the verdict on every row."""
    order, X = data.order, data.X
    is_whole = data.lacks == 0
    verdict = np.where(is_whole, LEARNED, INCOMPLETE)
    verdict[is_whole & impossible(emission, X)] = IMPOSSIBLE
    sound = np.flatnonzero(verdict == LEARNED)
    by_key = sound[np.lexsort((order[sound], codes[sound]))]
    again = is_again(codes[by_key], order[by_key])
    if again.any():  # which comes first must not depend on how they arrived: that may differ when a batch is repeated
        by_key = sound[np.lexsort((*X[sound].T, order[sound], codes[sound]))]
    known = last[codes[by_key]]
    verdict[by_key] = np.select([order[by_key] < known, (order[by_key] == known) | again], [LATE, TWICE], LEARNED)
    return by_key[verdict[by_key] == LEARNED], verdict


def is_again(codes: IntArray, order: Any) -> BoolArray:
    """Which rows stand at the same place of the same key as the row before."""
    again = np.zeros(len(codes), dtype=np.bool_)
    again[1:] = (codes[1:] == codes[:-1]) & (order[1:] == order[:-1])
    return again


def impossible(emission: Emission, X: FloatArray) -> BoolArray:
    """Which rows hold a value that cannot occur."""
    found = np.zeros(len(X), dtype=np.bool_)
    start = 0
    while start < len(X):
        place = int(rows.check(emission, X[start:]))
        if place == rows.ACCEPTED:
            break
        start += place // emission.n_features + 1
        found[start - 1] = True
    return found
