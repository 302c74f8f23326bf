"""Kill a job on Spark at random moments, and see whether anything was lost or learned twice.

``python -m benchmarks.spark_kill [N]`` kills N times in turn: one Python worker, which Spark must replace; all
processes of the job; its driver alone. It runs on two executors of this machine (local-cluster). After the last two
kinds the job is started again; after the very last kill, in this process. At the end states and output must be those of
a run that nobody disturbed, bit for bit.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from hmmstream import OnlineHMM
from hmmstream.examples import EXAMPLES
from hmmstream.spark import learn_stream, models, session

MASTER = "local-cluster[2,1,1024]"
KINDS = ("worker", "everything", "driver")
N_KEYS, ROWS_A_FILE = 100, 2000
SCHEMA = "id string, t bigint, v double"


def job(folder: str, name: str, master: str) -> None:
    """Learn from the files in FOLDER/in, one a batch."""
    spark = session(master, spark_sql_shuffle_partitions=2, spark_ui_enabled="false")
    spark.sparkContext.setLogLevel("OFF")
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    model = OnlineHMM(init=EXAMPLES["paper"].model)
    learned = learn_stream(files, key="id", value="v", order="t", model=model, n_buckets=8)
    query = learned.writeStream.format("parquet").option("path", f"{folder}/{name}-out")
    query = query.option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
    query.start().awaitTermination()


class Run:
    """A job that may be killed."""

    def __init__(self, folder: Path, name: str, master: str) -> None:
        self.commits = folder / name / "commits"
        self.n_before = self.n_batches
        command = [sys.executable, "-m", "benchmarks.spark_kill", "--job", str(folder), name, master]
        self.process = subprocess.Popen(
            command, cwd=Path(__file__).parent.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @property
    def n_batches(self) -> int:
        """Batches that are done, since the checkpoint was new."""
        return max((int(path.name) + 1 for path in self.commits.glob("*") if path.name.isdigit()), default=0)

    def wait(self, n_batches: int, seconds: float) -> bool:
        """Let so many batches end, and then some time pass; whether the job still runs."""
        while self.process.poll() is None and self.n_batches < self.n_before + n_batches:
            time.sleep(0.02)
        time.sleep(seconds)
        return self.process.poll() is None

    def kill(self, kind: str, rng: random.Random) -> bool:
        """Kill some processes; whether there were any."""
        driver = psutil.Process(self.process.pid)
        below = driver.children(recursive=True)
        if kind == "worker":
            workers = [one for one in below if is_daemon(one) and is_daemon(one.parent())]
            chosen = [rng.choice(workers)] if workers else []
        elif kind == "driver":
            chosen = [driver, *driver.children()]  # Python, and the Java process that it talks to
        else:
            chosen = [driver, *below]
        for one in chosen:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        if kind == "driver":
            for one in psutil.wait_procs(below, timeout=5)[1]:  # executors notice, and end
                one.kill()
        return bool(chosen)


def is_daemon(process: psutil.Process | None) -> bool:
    """Whether this is the process that Python workers are forked from, or one of them."""
    try:
        return process is not None and "pyspark.daemon" in process.cmdline()
    except psutil.Error:
        return False


def write_files(folder: Path, n_files: int, seed: int) -> None:
    """Rows of many keys, a file for each batch; some values are missing."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    clock = np.zeros(N_KEYS, dtype=np.int64)
    for at in range(n_files):
        keys = np.sort(rng.integers(N_KEYS, size=ROWS_A_FILE))
        number = np.arange(ROWS_A_FILE) - np.searchsorted(keys, keys)
        values = rng.normal(rng.integers(2, size=ROWS_A_FILE), 0.7)
        values[rng.random(ROWS_A_FILE) < 0.05] = np.nan
        frame = pd.DataFrame({"id": [f"k{key}" for key in keys], "t": clock[keys] + number, "v": values})
        clock += np.bincount(keys, minlength=N_KEYS)
        path = folder / f"{at:05d}.parquet"
        frame.to_parquet(path)
        os.utime(path, (at + 1, at + 1))


def results(folder: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """States and output of a job that has ended."""
    spark = session()
    states = models(str(folder / name)).select("key", "vector", "last", "refused").toPandas().sort_values("key")
    rows = spark.read.parquet(str(folder / f"{name}-out")).toPandas().sort_values(["id", "t"])
    return states.reset_index(drop=True), rows.reset_index(drop=True)


def kill_and_resume(
    folder: Path, n_kills: int, n_files: int, master: str = MASTER, seed: int = 0, say: Callable[[str], None] = print
) -> bool:
    """Whether a job that was killed so often ends as one that was not."""
    rng = random.Random(seed)
    write_files(folder / "in", n_files, seed)
    n_done, run = 0, Run(folder, "killed", master)
    while n_done < n_kills:
        if run.process.returncode is not None:
            run = Run(folder, "killed", master)
        kind = KINDS[n_done % len(KINDS)]
        n_batches, seconds = rng.randint(0, 1), rng.uniform(0.0, 2.0)
        if not run.wait(n_batches, seconds):
            if run.process.returncode == 0:
                raise RuntimeError(f"the job was done after {n_done} kills: give it more files")
            raise RuntimeError(f"the job ended by itself with exit code {run.process.returncode}")
        if run.kill(kind, rng):
            n_done += 1
            say(f"kill {n_done} of {n_kills}: {kind}, with {run.n_batches} of {n_files} batches done")
        if kind == "worker":
            run.n_before = run.n_batches
        else:
            run.process.wait()
    run.process.wait()
    for name in ("killed", "whole"):
        job(str(folder), name, "local[2]")
    killed, whole = results(folder, "killed"), results(folder, "whole")
    same = [frames_equal(one, other) for one, other in zip(killed, whole, strict=True)]
    say(f"{len(whole[1]):,} rows of {len(whole[0])} keys: states equal {same[0]}, output equal {same[1]}")
    return all(same)


def frames_equal(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Whether tables are the same, bit for bit."""
    try:
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        job(*sys.argv[2:])
    else:
        n = int(sys.argv[1]) if len(sys.argv) > 1 else 24
        with tempfile.TemporaryDirectory() as scratch:
            sys.exit(0 if kill_and_resume(Path(scratch), n, 4 * n + 5) else 1)
