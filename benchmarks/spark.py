"""Rows a second on Spark, beside a job of the same shape that does nothing but read and write the same state.

``python -m benchmarks.spark [--keys 200 20000] [--rows N] [--docs FOLDER]`` runs both in turn in one session on this
machine, several times, and prints ratios. The first batch of each job, in which processes start, does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hmmstream import OnlineHMM
from hmmstream.examples import EXAMPLES
from hmmstream.io.whole import write_whole
from hmmstream.spark import learn_stream, models, session, streaming
from hmmstream.spark.keyed import LEARNED, Found, Held, numbered

SCHEMA = "id string, t bigint, v double"
MODEL = OnlineHMM(init=EXAMPLES["paper"].model)


class IdleProcessor(streaming.LearningProcessor):
    """Reads and writes the state of each key, and hands back as many columns as are found."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        self._check_kind()
        block = pd.concat(list(rows), ignore_index=True)
        for name in numbered(self.columns.rows(block))[1]:
            self._write(name, self._read(name) or Held(self.fleet.new_vector().tobytes(), 0, 0))
        n = len(block)
        nothing = Found(np.zeros((n, MODEL.init.n_components)), np.zeros(n), np.zeros(n), np.full(n, LEARNED))
        yield self.columns.found(block, nothing)


def write_files(folder: Path, n_keys: int, n_rows: int, n_batches: int) -> None:
    """A file for each batch, with about as many rows of every key."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for at in range(n_batches):
        keys = rng.permutation(np.arange(n_rows) % n_keys)
        values = rng.normal(rng.integers(2, size=n_rows), 0.7)
        place = at * n_rows + np.arange(n_rows)
        frame = pd.DataFrame({"id": np.char.add("key", keys.astype(str)), "t": place, "v": values})
        path = folder / f"{at}.parquet"
        frame.to_parquet(path)
        os.utime(path, (at + 1, at + 1))


def rows_a_second(folder: Path, name: str, processor: type) -> float:
    """The speed of a job over all its batches but the first."""
    spark = session()
    usual, streaming.LearningProcessor = streaming.LearningProcessor, processor
    try:
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        learned = learn_stream(files, key="id", value="v", order="t", model=MODEL)
    finally:
        streaming.LearningProcessor = usual
    query = learned.writeStream.format("parquet").option("path", str(folder / f"{name}-out"))
    query = query.option("checkpointLocation", str(folder / name)).trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch["batchId"] > 0 and batch["numInputRows"]]
    seconds = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000
    return sum(batch["numInputRows"] for batch in batches) / seconds


def measure(n_keys: int, n_rows: int, n_batches: int, n_times: int) -> tuple[float, float, float]:
    """Rows a second of learning and of doing nothing, and the median of their ratios."""
    learning, idle = [], []
    for _ in range(n_times):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            write_files(folder / "in", n_keys, n_rows, n_batches)
            learning.append(rows_a_second(folder, "learning", streaming.LearningProcessor))
            idle.append(rows_a_second(folder, "idle", IdleProcessor))
            if models(str(folder / "learning")).count() != n_keys:
                raise RuntimeError("not every key has a model")
        print(f"  {n_keys:,} keys: {learning[-1]:,.0f} rows a second learning, {idle[-1]:,.0f} idle", file=sys.stderr)
    ratios = [one / other for one, other in zip(learning, idle, strict=True)]
    return statistics.median(learning), statistics.median(idle), statistics.median(ratios)


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    options.add_argument("--keys", type=int, nargs="+", default=[200, 20_000])
    options.add_argument("--rows", type=int, default=200_000, help="of a batch (default: 200,000)")
    options.add_argument("--batches", type=int, default=4, help="of each job (default: 4)")
    options.add_argument("--times", type=int, default=3, help="that both jobs are run (default: 3)")
    options.add_argument("--docs", type=Path, metavar="FOLDER", help="write the table there, as spark.md")
    chosen = options.parse_args(arguments)
    spark = session("local[2]", spark_sql_shuffle_partitions=2, spark_ui_enabled="false")
    spark.sparkContext.setLogLevel("OFF")
    began = time.perf_counter()
    lines = ["| keys | rows a batch | learning, rows a second | state only | ratio |", "|---|---|---|---|---|"]
    for n_keys in chosen.keys:
        n_rows = max(chosen.rows, n_keys)
        learning, idle, ratio = measure(n_keys, n_rows, chosen.batches, chosen.times)
        lines.append(f"| {n_keys:,} | {n_rows:,} | {learning:,.0f} | {idle:,.0f} | {ratio:.2f} |")
    text = "\n".join(lines)
    print(text)
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    if chosen.docs:
        write_whole(chosen.docs / "spark.md", f"# Keyed streams on Spark\n\n{text}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
