"""Fleets: one observation of one of many streams, beside one of a single stream, and the memory that they take."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.speed import start_for, stream_for
from benchmarks.turns import best_times
from hmmstream import Fleet, OnlineHMM, StatisticAverage
from hmmstream.fleet import n_cores

N_MIN = 4  # few, so that the streams of a large fleet soon have M-steps too
ALONE = "one stream"
A_STREAM_A_CORE = "a stream a core"  # with nothing in common: as much as this machine gives all cores
FEWEST_ROWS = 4  # of each stream at a time


class Row(NamedTuple):
    """A line of the table."""

    streams: int
    rows: int  # of each stream
    nanoseconds: dict[str, float]  # of each way to learn, an observation
    difference: float  # largest, between what a stream learned in the fleet and alone

    def ratio(self, name: str) -> float:
        """Time of one observation over that of a single stream."""
        return self.nanoseconds[name] / self.nanoseconds[ALONE]


def observations(n_streams: int, rows: int) -> np.ndarray:
    """Rows of each stream: (rows, streams)."""
    return np.resize(stream_for(2, 1_000_000), (rows, n_streams))


def fleet(n_streams: int, n: int, repeats: int, patience: float) -> Row:
    """About ``n`` observations of a fleet: as blocks and as pairs of name and value in random order."""
    rows = max(n // n_streams, FEWEST_ROWS)
    X = observations(n_streams, rows)
    start, cores, rng = start_for(2), n_cores(), np.random.default_rng(0)
    numbers = rng.permutation(10 * n_streams)[:n_streams]  # names that say nothing of places
    strings = np.array([f"sensor {number}" for number in numbers])
    alone = OnlineHMM(init=start, n_min=N_MIN, averaging=StatisticAverage())  # as fleets do
    fleets = {
        name: Fleet(init=start, n_min=N_MIN, n_jobs=n_jobs).add(ids)
        for name, n_jobs, ids in (("1", 1, numbers), ("all", cores, numbers), ("strings", cores, strings))
    }
    for _ in range(-(-2 * N_MIN // rows)):  # until every stream has M-steps
        alone.partial_fit(X[:, 0])
        for many in fleets.values():
            many.partial_fit(X)
    difference = max(
        float(abs(many.extract(many.ids[0].item()).last_model_.transmat - alone.last_model_.transmat).max())
        for many in fleets.values()
    )
    others = [deepcopy(alone) for _ in range(cores)]
    places = rng.permutation(np.repeat(np.arange(n_streams), rows))
    named, spelled = numbers[places], strings[places]
    values = np.resize(X, n_streams * rows)
    shares = np.array_split(values, cores)
    work = {
        ALONE: lambda: alone.partial_fit(values),
        A_STREAM_A_CORE: lambda: list(threads.map(OnlineHMM.partial_fit, others, shares)),
        "block, 1 thread": lambda: fleets["1"].partial_fit(X),
        "block, all cores": lambda: fleets["all"].partial_fit(X),
        "pairs, 1 thread": lambda: fleets["1"].partial_fit(values, ids=named),
        "pairs, all cores": lambda: fleets["all"].partial_fit(values, ids=named),
        "pairs of strings, all cores": lambda: fleets["strings"].partial_fit(values, ids=spelled),
    }
    with ThreadPoolExecutor(cores) as threads:
        times = best_times(list(work.values()), repeats, patience)
    nanoseconds = {name: time / X.size * 1e9 for name, time in zip(work, times, strict=True)}
    return Row(n_streams, rows, nanoseconds, difference)


def megabytes(n_streams: int) -> float:
    """By how much the memory of a process of its own grows when it holds so many streams that have learned a row."""
    with multiprocessing.get_context("spawn").Pool(1) as process:
        return process.apply(growth_in_megabytes, (n_streams,))


def growth_in_megabytes(n_streams: int) -> float:
    """The same, in this process."""
    start, row = start_for(2), observations(n_streams, 1)
    Fleet(init=start).partial_fit(row[:, :2])  # compiles
    process = psutil.Process()
    before = process.memory_info().rss
    many = Fleet(init=start).partial_fit(row)
    return (process.memory_info().rss - before) / 1e6 if len(many) else 0.0


def main() -> None:
    """Print the table."""
    print(f"ns an observation of m = 2; × is the time over that of one OnlineHMM; {n_cores()} cores")
    for n_streams in (1, 10, 1_000, 100_000, 1_000_000):
        row = fleet(n_streams, 500_000, repeats=100, patience=8.0)
        ratios = "   ".join(f"{name} {row.ratio(name):.2f}×" for name in row.nanoseconds if name != ALONE)
        print(f"{n_streams:9,} streams   {ratios}", flush=True)
    print(f"1,000,000 streams take {megabytes(1_000_000):,.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
