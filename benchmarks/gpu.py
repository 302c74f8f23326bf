"""Fleets on a GPU: observations a second, and how far the results are from those of the CPU.

Needs an NVIDIA GPU, and CuPy for rows that are on the device already. Two rates: of the kernel that learns, and of the
whole call of ``partial_fit`` until all is done; of 20 calls the fastest. Observations are drawn from a model whose
states overlap; streams are learned from a start some way off, with an M-step at each observation unless said otherwise.
Rates are lower while a state of some stream has died, as happens at first with 3 dimensions: 31 others wait for it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hmmstream import HMM, Categorical, Fleet, Gaussian, OnlineHMM, StatisticAverage

N_STREAMS = 1_081_344  # 132 multiprocessors, four times 2,048 threads each
N_TIMES = 1_024
N_DIFFERENT = 64  # streams that differ; the others repeat them
WANTED = {
    (2, "float64", "gaussian", 1): 45,
    (2, "float32", "gaussian", 1): 100,
    (3, "float64", "gaussian", 1): 15,
    (4, "float64", "gaussian", 1): 8,
}


class Case(NamedTuple):
    """What is measured."""

    m: int
    dtype: str = "float64"
    family: str = "gaussian"
    averaging: str | None = "auto"
    update_every: int = 1


class Result(NamedTuple):
    """Billions of observations a second, and the largest difference of a parameter or probability from the CPU's."""

    kernel: float
    whole: float
    difference: float


CASES = [
    *(Case(m, averaging=averaging) for m in (2, 3, 4) for averaging in (None, "auto")),
    *(Case(2, "float32", averaging=averaging) for averaging in (None, "auto")),
    *(Case(m, "float32", averaging=None) for m in (3, 4)),
    *(Case(2, dtype, averaging=None, update_every=32) for dtype in ("float64", "float32")),
    *(Case(2, family=family) for family in ("categorical", "gaussian in 3 dimensions")),
]


def model(m: int, family: str, off: float = 0.0) -> HMM:
    """A chain of m states, or a start that is ``off`` it."""
    transmat = np.full((m, m), (0.2 + off) / (m - 1))
    np.fill_diagonal(transmat, 0.8 - off)
    emission: Any = Gaussian("tied", means=np.arange(m) + off, covars=0.5 + off)
    if family == "categorical":
        emission = Categorical(probs=(0.2 + off) / 4 + (0.8 - off) * np.eye(4)[np.arange(m) % 4])
    elif family == "gaussian in 3 dimensions":
        emission = Gaussian("diag", np.arange(m)[:, np.newaxis] + np.full(3, off), np.full((m, 3), 0.5 + off))
    return HMM(np.full(m, 1 / m), transmat, emission)


def difference(fleet: Fleet, stream: int, alone: OnlineHMM) -> float:
    """The largest difference between a stream and the same learned on the CPU."""
    one = fleet.extract(stream)
    pairs = [(one.transmat_, alone.transmat_), (one.filtered_proba_, alone.filtered_proba_)]
    pairs += [(getattr(one, f"{name}_"), getattr(alone, f"{name}_")) for name in one.model_.emission.value_names]
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in pairs)


def measure(case: Case, n_streams: int = N_STREAMS, n_times: int = N_TIMES, repeats: int = 20) -> Result:
    """Learn a block on the device, several times."""
    import cupy
    from numba import cuda as numba_cuda

    from hmmstream.recursions import cuda

    world, start = model(case.m, case.family), model(case.m, case.family, 0.1)
    settings: dict[str, Any] = {"init": start, "averaging": case.averaging, "update_every": case.update_every}
    rows = world.sample(N_DIFFERENT * n_times, 0)[0].astype(np.float64).reshape(N_DIFFERENT, n_times, -1)
    block = cupy.asarray(rows.transpose(1, 0, 2), dtype=case.dtype)[:, cupy.arange(n_streams) % N_DIFFERENT]
    block = cupy.ascontiguousarray(block)

    fleet = Fleet(device="cuda", dtype=case.dtype, **settings).partial_fit(block)
    if case.averaging == "auto":
        settings["averaging"] = StatisticAverage()  # what it is in a fleet
    alone = [OnlineHMM(engine="dense", **settings).partial_fit(rows[stream]) for stream in (0, 7)]
    differences = [difference(fleet, stream, hmm) for stream, hmm in zip((0, 7), alone, strict=True)]

    whole, kernel = [], []
    launch = cuda.launch

    def timed(function: Any, n: int, threads: int, dtype: str, *arguments: Any) -> None:
        before, after = numba_cuda.event(), numba_cuda.event()
        before.record()
        launch(function, n, threads, dtype, *arguments)
        after.record()
        after.synchronize()
        if n == n_streams and len(arguments) > 2:  # the kernel that learns, not those that look at values and clocks
            kernel.append(numba_cuda.event_elapsed_time(before, after) / 1e3)

    cuda.launch = timed
    try:
        for _ in range(repeats):
            numba_cuda.synchronize()
            begin = time.perf_counter()
            fleet.partial_fit(block)
            numba_cuda.synchronize()
            whole.append(time.perf_counter() - begin)
    finally:
        cuda.launch = launch
    billions = n_streams * n_times / 1e9
    return Result(billions / min(kernel), billions / min(whole), max(differences))


COLUMNS = ("states", "numbers", "family", "averaging", "update_every", "kernel", "whole call", "wanted", "difference")


def table(results: dict[Case, Result]) -> str:
    """A table in Markdown."""
    lines = [COLUMNS, ("---",) * len(COLUMNS)]
    for case, found in results.items():
        wanted = WANTED.get((case.m, case.dtype, case.family, case.update_every), "")
        figures = (f"{found.kernel:.1f}", f"{found.whole:.1f}", f"{wanted}", f"{found.difference:.0e}")
        lines.append((*(str(value) for value in case), *figures))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(results: dict[Case, Result], device: str) -> str:
    """The page of the documentation."""
    how = (__doc__ or "").split("\n\n", 1)[1].strip()
    return (
        "# Fleets on a GPU\n\n"
        f"Written by `python -m benchmarks.gpu --docs docs/benchmarks` on one {device}, for {N_STREAMS:,} streams and "
        f"{N_TIMES:,} observations of each. Rates are in billions of observations a second.\n\n"
        f"{how}\n\n{table(results)}\n"
    )


def main() -> None:
    """Measure all cases, print the table, and write the page if asked to."""
    from numba import cuda as numba_cuda

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path, help="folder that the page gpu.md is written to")
    options = parser.parse_args()
    results = {}
    for case in CASES:
        results[case] = measure(case)
        print(case, results[case], flush=True)
    print(table(results))
    if options.docs:
        options.docs.mkdir(parents=True, exist_ok=True)
        name = numba_cuda.get_current_device().name
        text = page(results, name.decode() if isinstance(name, bytes) else name)
        (options.docs / "gpu.md").write_text(text)


if __name__ == "__main__":
    main()
