"""The command that learns keyed streams on Spark."""

from __future__ import annotations

from argparse import Namespace
from datetime import timedelta
from typing import Any

from hmmstream.cli.work import say, start_settings
from hmmstream.online import OnlineHMM
from hmmstream.spark import find_start, learn_stream, models, session, template

SUFFIXES = ("parquet", "csv", "json")


def spark_learn(options: Namespace) -> None:
    """Learn from the files of a folder, those that are there or all that will come."""
    spark = session(options.master)
    if not options.debug:
        spark.sparkContext.setLogLevel("ERROR")
    kind = options.format or format_of(options.input)
    reading = {"header": "true"} if kind == "csv" else {}
    table = spark.read.format(kind).options(**reading)
    table = table.schema(options.schema) if options.schema else table.options(inferSchema="true")
    at_rest = table.load(options.input)
    columns = {"key": options.key, "value": options.value, "order": options.order}
    model = template(options.checkpoint)
    if model is None:
        model = OnlineHMM(**start_settings(options))
        if model.init == "auto":
            say(options, f"Finds values to start from in {options.input}")
            model = find_start(at_rest, **columns, model=model)
    else:
        say(options, f"Goes on from {options.checkpoint}")
    stream = spark.readStream.format(kind).options(**reading, maxFilesPerTrigger=options.files_per_batch)
    lasting = None if options.forget_after is None else timedelta(seconds=options.forget_after)
    learned = learn_stream(
        stream.schema(at_rest.schema).load(options.input),
        **columns,
        model=model,
        forget_after=lasting,
        n_buckets=options.buckets,
    )
    trigger: dict[str, Any] = {"availableNow": True}
    if options.every is not None:
        trigger = {"processingTime": f"{options.every * 1000:.0f} milliseconds"}
    writer = learned.writeStream.format("parquet").option("path", options.output)
    query = writer.option("checkpointLocation", options.checkpoint).trigger(**trigger).start()
    told = -1
    try:
        while not query.awaitTermination(1):
            told = tell(options, query, told)
    except KeyboardInterrupt:
        query.stop()
        raise
    tell(options, query, told)
    n_keys = models(options.checkpoint).count()
    say(options, f"{n_keys:,} keys have a model in {options.checkpoint}; what each row shows is in {options.output}")


def tell(options: Namespace, query: Any, told: int) -> int:
    """Tell of the batches since the one that was told of last."""
    for progress in query.recentProgress:
        if progress["batchId"] > told and progress["numInputRows"]:
            told = progress["batchId"]
            rows, speed = progress["numInputRows"], progress["processedRowsPerSecond"]
            say(options, f"batch {told}: {rows:,} rows, {speed:,.0f} a second")
    return told


def format_of(path: str) -> str:
    """The format of the files in a folder, as their names tell."""
    spark = session()
    names = [row["path"] for row in spark.read.format("binaryFile").load(path).select("path").limit(1).collect()]
    for suffix in SUFFIXES:
        if names and f".{suffix}" in names[0]:
            return suffix
    raise ValueError(f"{path} holds no files named .parquet, .csv or .json: say --format")
