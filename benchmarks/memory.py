"""Memory: resident size of the process while 50 million observations stream past.

The stream is one chunk of simulated data, learned from again and again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import psutil

from benchmarks.speed import start_for, stream_for
from hmmstream import Learner


def resident_memory_while_learning(learner: Learner, chunk: np.ndarray, n_chunks: int) -> Iterator[float]:
    """Megabytes in use after each chunk."""
    process = psutil.Process()
    for _ in range(n_chunks):
        learner.learn(chunk)
        yield process.memory_info().rss / 2**20


def main(n: int = 50_000_000, chunk_size: int = 500_000) -> None:
    """Print memory at ten moments, and by how much it grew."""
    learner, chunk = Learner(start_for(2)), stream_for(2, chunk_size)
    n_chunks = n // chunk_size
    sizes = []
    print("observations   resident (MB)")
    for at, megabytes in enumerate(resident_memory_while_learning(learner, chunk, n_chunks), start=1):
        sizes.append(megabytes)
        if at % (n_chunks // 10) == 0:
            print(f"{at * chunk_size:12,} {megabytes:15.1f}", flush=True)
    print(f"\ngrowth from the first tenth to the end: {sizes[-1] - sizes[n_chunks // 10 - 1]:+.1f} MB")


if __name__ == "__main__":
    sys.exit(main())
