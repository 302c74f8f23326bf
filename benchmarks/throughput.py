"""How much time ``hmmstream learn`` takes beside what it cannot do without: ``python -m benchmarks.throughput [rows]``.

That is pyarrow's time to parse the file, and the engine's to learn from the rows. All of it runs in one process, where
imports and the compilation of the very first run count for nobody; the last figure is of the command as a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from pyarrow import csv

from hmmstream import Gaussian, OnlineHMM
from hmmstream.cli import main
from hmmstream.examples import EXAMPLES
from hmmstream.io.writing import Writer


def seconds(work) -> float:
    """Time that a function takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def throughput(path: Path, turns: int = 3) -> dict[str, float]:
    """Seconds to parse the file, to learn from its rows, and of the command; the best of some turns."""
    command = ["learn", str(path), "--emission", "gaussian:tied", "--quiet"]
    main(command)
    best = dict.fromkeys(("parse", "engine", "command"), float("inf"))
    for _ in range(turns):
        X = csv.read_csv(path).column(0).to_numpy()
        for name, work in {
            "parse": lambda: csv.read_csv(path),
            "engine": lambda X=X: OnlineHMM(2, Gaussian("tied"), random_state=0).partial_fit(X),
            "command": lambda: main(command),
        }.items():
            best[name] = min(best[name], seconds(work))
    return best


def peak_memory(path: Path) -> tuple[float, float]:
    """Seconds that the command takes as a process, and the most memory that it has held, in MB."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "hmmstream", "learn", path, "--emission", "gaussian:tied", "-q"])
    most = 0
    while process.poll() is None:
        try:
            most = max(most, psutil.Process(process.pid).memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.01)
    process.wait()
    return time.perf_counter() - began, most / 1e6


def write_stream(path: Path, n: int) -> None:
    """A file with so many rows of the paper's model."""
    X, _ = EXAMPLES["paper"].model.sample(n, 0)
    with Writer(str(path)) as writer:
        writer.write({"y": X[:, 0]})


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        path, tenth = Path(folder) / "stream.csv", Path(folder) / "tenth.csv"
        write_stream(path, n)
        write_stream(tenth, n // 10)
        found = throughput(path)
        needed = found["parse"] + found["engine"]
        print(f"{n:,} rows, {os.path.getsize(path) / 1e6:.0f} MB")
        print(f"pyarrow parses them in {found['parse']:.2f} s, the engine learns from them in {found['engine']:.2f} s")
        print(f"learn takes {found['command']:.2f} s: {found['command'] / needed:.2f} × both together")
        whole, memory = peak_memory(path)
        _, less = peak_memory(tenth)
        print(f"as a process, imports included, {whole:.2f} s: {whole / needed:.2f} × both together")
        print(f"memory at most {memory:.0f} MB; of a tenth of the rows {less:.0f} MB")
