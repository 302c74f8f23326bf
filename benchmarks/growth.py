"""Growth: how the time to learn a record depends on its length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.speed import start_for, stream_for, visits
from benchmarks.turns import best_times, iteration_times
from hmmstream import OnlineHMM, StatisticAverage


class Row(NamedTuple):
    """A line of the table."""

    m: int
    sizes: list[int]  # lengths of the record
    seconds: dict[str, list[float]]  # of each way to learn, for each length


def in_n(m: int, sizes: Sequence[int], repeats: int = 12, patience: float = np.inf) -> Row:
    """Time to learn the first n rows, for each n: on line from nothing, and an iteration of batch EM."""
    start, X = start_for(m), stream_for(m, max(sizes))
    fits = {str(n): peers.hmmstream(start, X[:n]) for n in sizes}
    settings = {"init": start, "n_min": visits(m), "averaging": StatisticAverage()}
    online = [lambda n=n: OnlineHMM(**settings).partial_fit(X[:n]) for n in sizes]
    for work in (online[0], lambda: fits[str(sizes[0])](1)):
        work()  # compiles
    batch = iteration_times(fits, repeats, patience)
    return Row(m, list(sizes), {"on line": best_times(online, repeats, patience), "batch": list(batch.values())})
