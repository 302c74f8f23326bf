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
    at_rest = spark.read.format(kind).options(**reading)
    if options.schema or kind != "parquet":
        at_rest = at_rest.schema(options.schema or guessed(options, at_rest))
    at_rest = at_rest.load(options.input)
    columns = {"key": options.key, "value": options.value, "order": options.order}
    model = template(options.checkpoint)
    if model is None:
        model = OnlineHMM(**start_settings(options))
        if model.init == "auto":
            say(options, f"Finds values to start from in {options.input}")
            model = find_start(at_rest, **columns, model=model)
    elif options.states not in (None, model.n_components):
        raise ValueError(f"{options.checkpoint} has models of {model.n_components} states, not {options.states}")
    else:
        say(options, f"Goes on from {options.checkpoint}")
    stream = spark.readStream.format(kind).options(**reading, maxFilesPerTrigger=options.files_per_batch)
    buckets = {} if options.buckets is None else {"n_buckets": options.buckets}
    lasting = None if options.forget_after is None else timedelta(seconds=options.forget_after)
    learned = learn_stream(
        stream.schema(at_rest.schema).load(options.input),
        **columns,
        model=model,
        forget_after=lasting,
        **buckets,
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


def guessed(options: Namespace, reader: Any) -> str:
    """The types of the columns of files that do not say them, such that later files will fit too."""
    found = dict(reader.options(inferSchema="true").load(options.input).dtypes)
    found |= {name: "double" for name in options.value if name in found}
    found |= {name: "string" for name in [options.key] if name in found}
    return ", ".join(f"`{name}` {kind}" for name, kind in found.items())


def format_of(path: str) -> str:
    """The format of the files in a folder, as their names tell."""
    files = session().read.format("binaryFile").load(path).select("path").limit(1).collect()
    suffixes = files[0]["path"].rsplit("/", 1)[-1].split(".")[1:] if files else []
    for suffix in SUFFIXES:
        if suffix in suffixes:
            return suffix
    raise ValueError(f"{path} holds no files named .parquet, .csv or .json: say --format")
