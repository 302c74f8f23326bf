"""Memory: a stream of 50 million observations learned, and a record of 100 million smoothed and fitted.

Both are one chunk of simulated data, again and again.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator

import numpy as np
import psutil

from benchmarks.speed import start_for, stream_for
from hmmstream import BatchHMM, Learner


def resident_memory_while_learning(learner: Learner, chunk: np.ndarray, n_chunks: int) -> Iterator[float]:
    """Megabytes in use after each chunk."""
    process = psutil.Process()
    for _ in range(n_chunks):
        learner.learn(chunk)
        yield process.memory_info().rss / 2**20


def megabytes_needed(work: Callable[[], object]) -> float:
    """By how much the highest resident size of all times rises above the present one."""
    before = psutil.Process().memory_info().rss / 2**20
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - before


def long_record(n: int, repeats: int) -> None:
    """Print what smoothing and one EM iteration need besides the record and the result."""
    hmm, X = start_for(2), np.tile(stream_for(2, n // repeats), (repeats, 1))
    fit = BatchHMM(init=hmm, n_iter=1)
    print(f"\n{n:,} observations: {X.nbytes / 2**20:,.0f} MB, their smoothed states {2 * X.nbytes / 2**20:,.0f} MB")
    print(f"an EM iteration needed {megabytes_needed(lambda: fit.fit(X)):,.0f} MB besides the record", flush=True)
    needed = megabytes_needed(lambda: hmm.smooth(X)) - 2 * X.nbytes / 2**20
    print(f"smoothing needed {needed:,.0f} MB besides the record and the result", flush=True)


def main(n: int = 50_000_000, chunk_size: int = 500_000) -> None:
    """Print memory at ten moments, and by how much it grew; then the memory for a long record."""
    learner, chunk = Learner(start_for(2)), stream_for(2, chunk_size)
    n_chunks = n // chunk_size
    sizes = []
    print("observations   resident (MB)")
    for at, megabytes in enumerate(resident_memory_while_learning(learner, chunk, n_chunks), start=1):
        sizes.append(megabytes)
        if at % (n_chunks // 10) == 0:
            print(f"{at * chunk_size:12,} {megabytes:15.1f}", flush=True)
    print(f"\ngrowth from the first tenth to the end: {sizes[-1] - sizes[n_chunks // 10 - 1]:+.1f} MB")
    long_record(100_000_000, repeats=200)


if __name__ == "__main__":
    sys.exit(main())
