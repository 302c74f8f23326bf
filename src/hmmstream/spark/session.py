"""A Spark session that has what keyed models need."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

from pyspark import SparkConf
from pyspark.sql import SparkSession

from hmmstream.fleet import n_cores

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
SETTINGS = {
    PROVIDER: ROCKSDB,  # the only store that keeps maps as state
    CHANGELOG: "true",  # a batch writes what it changed
    "spark.sql.streaming.minBatchesToRetain": "10",  # the state can be rolled back this far; 100 take much room
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # rows that are handed to Python at a time
    "spark.ui.showConsoleProgress": "false",
}
NO_JAVA = (
    "Spark needs Java 17 or later, and there is none: install it (Debian, Ubuntu: apt-get install "
    "openjdk-17-jre-headless), or let JAVA_HOME say where it is"
)


def session(master: str | None = None, **settings: Any) -> SparkSession:
    """The Spark session of this process, made with what keyed models need if there is none yet.

    Parameters
    ----------
    master : str
        Where to run: "local[*]", the default, is all cores of this machine; ``spark-submit`` has its own say.
    **settings
        Of Spark, with ``_`` for ``.``, such as ``spark_driver_memory="4g"``.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if not has_java():
        raise OSError(NO_JAVA)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("hmmstream")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # then a session has been described already
    if master is None and not is_submitted:
        master = "local[*]"
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):  # a partition costs a quarter of a second a batch: no more than there are cores
            builder = builder.config("spark.sql.shuffle.partitions", n_cores())
    named = {name.replace("_", "."): value for name, value in settings.items()}
    submitted = SparkConf() if is_submitted else SparkConf(loadDefaults=False)
    for name, value in {**SETTINGS, **named}.items():
        if name in named or not submitted.contains(name):
            builder = builder.config(name, value)
    return builder.getOrCreate()


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None) is not None


def prepare(spark: SparkSession, *, expires: bool) -> None:
    """See to it that a session can keep maps as state, and that jobs whose state expires come to an end."""
    if spark.conf.get(PROVIDER) != ROCKSDB:  # no other store can
        spark.conf.set(PROVIDER, ROCKSDB)
        spark.conf.set(CHANGELOG, "true")
    if expires:
        spark.conf.set(NO_DATA_BATCHES, "false")
