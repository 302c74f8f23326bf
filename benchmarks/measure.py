"""What is measured for the page, and in what sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks import batch, fleets, growth, speed
from benchmarks.peers import PEERS
from benchmarks.turns import one_core


class Scale(NamedTuple):
    """How much is measured."""

    online: dict[int, int]  # number of states: observations
    references_up_to: int  # states: with more, one run of C or NumPy takes minutes
    batch: dict[int, int]
    peers: tuple[str, ...]
    seldom: dict[int, int]
    lengths: dict[int, tuple[int, ...]]  # number of states: lengths of the record
    streams: tuple[int, ...]
    fleet_rows: int  # of all streams of a fleet together
    blurred: int  # states that can hardly be told apart; none if 0
    banded: int  # states of the chain whose states are reached from three; none if 0
    single: int  # observations of what is measured by itself
    repeats: int  # turns at most
    patience: float  # seconds after which a contender has no further turn


FULL = Scale(
    online={2: 20_000, 4: 20_000, 8: 20_000, 16: 10_000, 32: 2_500, 64: 2_000, 128: 4_000},
    references_up_to=64,
    batch={2: 50_000, 4: 50_000, 8: 50_000, 16: 20_000, 32: 20_000, 64: 10_000, 128: 5_000},
    peers=tuple(PEERS),
    seldom={2: 20_000, 4: 20_000, 8: 20_000, 16: 20_000, 32: 20_000, 64: 10_000, 128: 10_000},
    lengths={2: (100_000, 1_000_000, 4_000_000), 32: (10_000, 40_000, 160_000)},
    streams=(1, 10, 1_000, 100_000, 1_000_000),
    fleet_rows=500_000,
    blurred=64,
    banded=500,
    single=50_000,
    repeats=25,
    patience=2.0,
)
QUICK = Scale(
    online={2: 2_000, 4: 2_000},
    references_up_to=4,
    batch={2: 2_000, 4: 2_000},
    peers=("NumPy",),
    seldom={2: 2_000},
    lengths={2: (1_000, 4_000)},
    streams=(1, 10),
    fleet_rows=2_000,
    blurred=0,
    banded=0,
    single=1_000,
    repeats=2,
    patience=1.0,
)


def measure(scale: Scale, say: Callable[[str], None] = print) -> dict[str, Any]:
    """All measurements, a line to ``say`` before each."""
    turns = (scale.repeats, scale.patience)
    longer = (4 * scale.repeats, 4 * scale.patience)  # all cores are seldom undisturbed at the same time
    found: dict[str, Any] = {name: [] for name in ("online", "batch", "seldom", "lengths", "fleets")}
    with one_core():  # before peers are loaded, which then see one core
        for m, n in scale.online.items():
            references = tuple(speed.REFERENCES) if m <= scale.references_up_to else ()
            say(f"on line, {m} states: hmmstream {' '.join(references)}")
            found["online"].append(speed.online(m, n, *turns, references))
        for m, n in scale.batch.items():
            say(f"one iteration of batch EM, {m} states: hmmstream and its peers")
            found["batch"].append(batch.iteration(m, n, *turns, scale.peers))
        for m, n in scale.seldom.items():
            say(f"an M-step every {m} observations of {m} states")
            found["seldom"].append(batch.seldom(m, n, *turns))
        for m, sizes in scale.lengths.items():
            say(f"records of {min(sizes):,} to {max(sizes):,} observations of {m} states")
            found["lengths"].append(growth.in_n(m, sizes, *turns))
        say("learn_one, a user's own family" + ", chains of many states" * bool(scale.banded))
        found["learn_one"] = speed.learn_one_microseconds(scale.single, scale.repeats)[0]
        found["user_family"] = speed.user_family_against_built_in(scale.single, scale.repeats)
        found["blurred"] = speed.blurred_microseconds(scale.blurred, 2_000) if scale.blurred else None
        found["banded"] = speed.banded_microseconds(scale.banded, 20_000, update_every=1024) if scale.banded else None
    for n_streams in scale.streams:
        say(f"a fleet of {n_streams:,} streams")
        found["fleets"].append(fleets.fleet(n_streams, scale.fleet_rows, *longer))
    say(f"the memory of {max(scale.streams):,} streams")
    found["megabytes"] = fleets.megabytes(max(scale.streams))
    return found
