"""Has the experiments done on all cores, and keeps each run on disk, so that nothing is done twice."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import hmmstream
from hmmstream.io.whole import write_whole
from paper.experiments import EXPERIMENTS
from paper.model import Scale

HERE = Path(__file__).parent
MEASURING = [  # where numbers come from
    Path(hmmstream.__file__).parent,
    *(HERE / name for name in ("model.py", "algorithms.py", "experiments", "octave")),
    *(HERE.parent / "benchmarks" / name for name in ("speed.py", "turns.py")),
]


class Task(NamedTuple):
    """One run of one experiment."""

    name: str
    run: int
    seed: int
    scale: Scale
    path: Path  # where its rows go


class Results(NamedTuple):
    """All that was measured."""

    tables: dict[str, pd.DataFrame]
    seconds: dict[str, float]  # that all runs of an experiment took, on one core


def collect(seed: int, scale: Scale, workers: int, kept: Path) -> Results:
    """Do what has not been done, with progress, and read the rows of all runs.

    A run depends on the seed, its number and the scale alone, whoever does it and when.
    """
    folder = kept / key(seed, scale)
    folder.mkdir(parents=True, exist_ok=True)
    tasks = {
        name: [Task(name, run, seed, scale, folder / f"{name}-{run}.json") for run in range(experiment.runs(scale))]
        for name, experiment in EXPERIMENTS.items()
    }
    todo = {name: [task for task in runs if not is_done(task)] for name, runs in tasks.items()}
    total, left = sum(map(len, tasks.values())), sum(map(len, todo.values()))
    with tqdm(total=total, initial=total - left, unit="run", smoothing=0.0, desc="compiling") as bar:

        def advance(name: str) -> None:
            bar.set_description(EXPERIMENTS[name].about)
            bar.update()

        together = [runs for name, runs in todo.items() if runs and not EXPERIMENTS[name].is_timing]
        if together:
            with pool_of(workers) as pool:
                # The first run of each compiles: two that compile the same would each take as long
                for batch in ([runs[0] for runs in together], [task for runs in together for task in runs[1:]]):
                    for future in as_completed([pool.submit(carry_out, task) for task in batch]):
                        advance(future.result())
        for name, runs in todo.items():
            for task in runs if EXPERIMENTS[name].is_timing else []:
                advance(carry_out(task))
        bar.set_description("done")
    return read(tasks)


def key(seed: int, scale: Scale) -> str:
    """Another one for another seed or scale, and whenever the code or a library that computes has changed."""
    digest = hashlib.sha256(repr((seed, scale._replace(runs=0), version("numpy"), version("numba"))).encode())
    for place in MEASURING:
        for path in [place] if place.is_file() else sorted(place.rglob("*.*")):
            if path.suffix in (".py", ".m"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def is_done(task: Task) -> bool:
    """Whether a run has left its rows on disk, undamaged."""
    try:
        return bool(json.loads(task.path.read_bytes())["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextmanager
def pool_of(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are ready; on an error or Ctrl-C, what has not begun is not begun any more."""
    hears = signal.getsignal(signal.SIGINT) != signal.SIG_IGN  # a shell has it ignored by what runs in the background
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=prepare, initargs=(hears,))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which they inherit, and keep until they are prepared
    try:
        for _ in range(workers):  # each starts with a task that no other is free for
            pool.submit(int)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def prepare(hears: bool) -> None:
    """Make a worker leave quietly on Ctrl-C, if that is heard, and when the process that it works for has ended."""
    if hears:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def carry_out(task: Task) -> str:
    """Do a run and keep its rows."""
    began = time.perf_counter()
    with threadpool_limits(1):  # else sums of matrix products would depend on the number of cores
        rows = list(EXPERIMENTS[task.name].measure(task.seed, task.run, task.scale))
    content = {"seconds": time.perf_counter() - began, "columns": rows[0]._fields, "rows": rows}
    write_whole(task.path, json.dumps(content).encode())
    return task.name


def read(tasks: dict[str, list[Task]]) -> Results:
    """What the runs have left on disk."""
    tables, seconds = {}, {}
    for name, runs in tasks.items():
        parts: list[dict[str, Any]] = [json.loads(task.path.read_bytes()) for task in runs]
        rows = [row for part in parts for row in part["rows"]]
        tables[name] = pd.DataFrame(rows, columns=parts[0]["columns"])
        seconds[name] = sum(part["seconds"] for part in parts)
    return Results(tables, seconds)
