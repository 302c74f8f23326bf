"""One model for all keys: each bucket gathers statistics with the model of now, the driver merges them into the next.

A batch is computed from what the batch before it left, and what it leaves is written as a whole or not at all. So a
batch that is repeated after a crash comes to the same result, and none counts twice.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from hmmstream import schedule
from hmmstream.arrays import FloatArray
from hmmstream.checkpoint import decode_with_notes
from hmmstream.checkpoint import encode as serialized
from hmmstream.model import HMM
from hmmstream.online import OnlineHMM
from hmmstream.recursions import online
from hmmstream.spark.columns import Columns
from hmmstream.spark.keyed import count_refused, follow, judge, lowest, numbered
from hmmstream.spark.session import session
from hmmstream.spark.stored import classes_of, fleet_of, with_start
from hmmstream.spark.streaming import bucket
from hmmstream.streams import Pace

TOGETHER = -1  # the bucket of the model itself
ROWS_A_BUCKET = 5_000  # of a batch, for a bucket to go on by itself: with few it wanders
KEPT = "bucket int, held binary"


class Shared(NamedTuple):
    """The model of all keys. Statistics are measured from its centres."""

    model: HMM  # the latest, with which the next batch begins
    averaged: HMM  # the one to use
    S: FloatArray
    mean_S: FloatArray  # the average over all batches
    n_observations: int
    log_scale: float  # what has a weight of 1 now had the exponential of this when the first batch began
    n_buckets: int
    kind: str  # of models: a digest of all settings

    @classmethod
    def beginning(cls, model: HMM, n_buckets: int, kind: str) -> Shared:
        nothing = np.zeros(model.transition.cells(model.n_components).n_groups + model.emission.n_emission_rows)
        return cls(model, model, nothing, nothing, 0, 0.0, n_buckets, kind)

    def encode(self) -> bytes:
        numbers = {name: np.asarray(getattr(self, name)).tolist() for name in self._fields[2:]}
        return serialized([self.model, self.averaged], numbers)

    @classmethod
    def decode(cls, data: bytes, classes: Sequence[type] = ()) -> Shared:
        (model, averaged), numbers = decode_with_notes(data, classes)
        S, mean_S = np.array(numbers["S"]), np.array(numbers["mean_S"])
        rest = (numbers[name] for name in cls._fields[4:])
        return cls(model, averaged, S, mean_S, *rest)

    def merged(self, gains: list[Gain], pace: Pace, settings: OnlineHMM) -> Shared:
        """What comes of a batch: what all buckets have gained, added to what is kept of the past."""
        weight = pace.kept + sum(gain.weight for gain in gains)
        if weight == 0.0:  # nothing was ever seen
            return self
        n = self.n_observations + sum(gain.n_observations for gain in gains)
        S = (pace.kept * self.S + sum(gain.statistic for gain in gains)) / weight
        share = 1.0 - (self.n_observations / n) ** 2  # as if the j-th of all S had a weight proportional to j
        mean_S = self.mean_S + share * (S - self.mean_S)
        log_scale = self.log_scale + log_kept(pace) - math.log(weight)
        now = self._replace(S=S, mean_S=mean_S, n_observations=n, log_scale=log_scale)
        if n <= settings.n_min:
            return now
        model = maximized(self.model, S)
        averaged = model if settings.averaging is None else maximized(self.model, mean_S)
        S, mean_S = moved(S, self.model, model), moved(mean_S, self.model, model)
        return now._replace(model=model, averaged=averaged, S=S, mean_S=mean_S)


class Gain(NamedTuple):
    """What a bucket has gained in a batch."""

    n_observations: int
    weight: float
    statistic: FloatArray


def log_kept(pace: Pace) -> float:
    return math.log(pace.kept) if pace.kept > 0.0 else 0.0  # nothing was there before the first batch


def learn_shared(
    df: DataFrame,
    *,
    key: str,
    value: str | Sequence[str],
    order: str,
    model: OnlineHMM,
    output: str,
    checkpoint: str,
    n_buckets: int | None = None,
    **trigger: Any,
) -> StreamingQuery:
    """Learn one model from all keys of a streaming table: each has its own hidden states, their statistics are merged.

    A batch begins with the same parameters for all keys. Within it each bucket of keys goes on with what it sees
    itself; at its end what all have gained is added up, and one M-step gives the parameters that the next one begins
    with.

    Parameters
    ----------
    df, key, value, order, model
        As of :func:`learn_stream`.
    n_buckets : int
        Buckets of keys. The fewer, the nearer to one after the other: by default one for each core, and for each 5,000
        rows of the first batch. They cannot be changed later.
    output : str
        A folder for what each row shows, as Parquet, a subfolder for each batch: columns as of :func:`learn_stream`.
    checkpoint : str
        A folder for the model, the states of all keys and the query's progress.
    **trigger
        When batches run, as of Spark's ``trigger``: ``availableNow=True``, the default, or
        ``processingTime="10 seconds"``.

    Returns
    -------
    StreamingQuery
        It has been started. :func:`shared_model` reads the model back, at any time.
    """
    if not df.isStreaming:
        raise ValueError("this is a table at rest: use fit_table")
    columns = Columns.of(df, key, value, order)
    model = with_start(model, len(columns.values))
    if model.prior is not None or model.update_every != 1:
        raise ValueError("learn_shared knows neither a prior nor update_every: leave them out")
    fleet = fleet_of(model, shared=True)
    m, step_size, classes = fleet.start.n_components, schedule.resolve(model.step), classes_of(model)
    kind = hashlib.sha256(serialized(fleet)).hexdigest()

    def learn(batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        if is_done(spark, checkpoint, number):  # but for the note that it is
            return
        if number == 0:
            before = spark.createDataFrame([], KEPT)
            enough = min(spark.sparkContext.defaultParallelism, max(1, batch.count() // ROWS_A_BUCKET))
            shared = Shared.beginning(fleet.start, n_buckets or enough, kind)
        else:
            before = kept(spark, checkpoint, number - 1)
            shared = Shared.decode(before.where(F.col("bucket") == TOGETHER).first()["held"], classes)
        if shared.kind != kind:
            raise ValueError(f"{checkpoint} holds a model that was learned with other settings or from another start")
        rows = columns.passed_on(batch).withColumn("bucket", bucket(shared.n_buckets))
        states = before.where(F.col("bucket") != TOGETHER)
        both = rows.groupBy("bucket").cogroup(states.groupBy("bucket"))
        counts = both.applyInPandas(counting(model, columns), "n bigint").agg(F.sum("n")).first()
        pace = Pace.of(step_size, shared.n_observations, counts[0] or 0)
        schema = f"{columns.found_schema(m)}, {KEPT}, n bigint, weight double, statistic binary"
        found = both.applyInPandas(learning(model, columns, shared, pace), schema).persist()
        try:
            is_row = F.col("held").isNull()
            columns.handed_back(found.where(is_row), m).write.mode("overwrite").parquet(f"{output}/batch={number}")
            gains = found.where(~is_row).select("n", "weight", "statistic").orderBy("bucket").collect()
            gains = [Gain(n, weight, np.frombuffer(statistic)) for n, weight, statistic in gains]
            together = spark.createDataFrame([(TOGETHER, shared.merged(gains, pace, model).encode())], KEPT)
            left = found.where(~is_row).select("bucket", "held").unionByName(together)
            left.write.mode("overwrite").parquet(f"{checkpoint}/shared/{number}")
        finally:
            found.unpersist()
        files, old = file_system(spark, f"{checkpoint}/shared/{number - 2}")
        files.delete(old, True)

    query = df.writeStream.foreachBatch(learn).option("checkpointLocation", checkpoint)
    return query.trigger(**(trigger or {"availableNow": True})).start()


def shared_model(path: str, *, classes: Sequence[type] = ()) -> HMM:
    """The model that :func:`learn_shared` has learned from all keys, by its checkpoint."""
    spark = session()
    files, folder = file_system(spark, f"{path}/shared")
    names = [entry.getPath().getName() for entry in files.listStatus(folder)] if files.exists(folder) else []
    done = [int(name) for name in names if name.isdigit() and is_done(spark, path, int(name))]
    if not done:
        raise ValueError(f"{path} holds no model yet")
    together = kept(spark, path, max(done)).where(F.col("bucket") == TOGETHER).first()
    return Shared.decode(bytes(together["held"]), classes).averaged


def kept(spark: SparkSession, path: str, number: int) -> DataFrame:
    """What a batch has left."""
    if not is_done(spark, path, number):
        raise ValueError(f"{path} lacks what batch {number} has left")
    return spark.read.schema(KEPT).parquet(f"{path}/shared/{number}")


def is_done(spark: SparkSession, path: str, number: int) -> bool:
    """Whether all that a batch leaves has been written."""
    files, mark = file_system(spark, f"{path}/shared/{number}/_SUCCESS")
    return bool(files.exists(mark))


def file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Wherever the cluster keeps its files, and a path there."""
    place = spark._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark._jsc.hadoopConfiguration()), place


class Bucket:
    """The keys of a bucket, as they were kept."""

    def __init__(self, model: OnlineHMM, states: pd.DataFrame) -> None:
        self.fleet = fleet_of(model, shared=True)
        notes: dict[str, Any] = {"last": [], "refused": [], "log_scale": None}
        if len(states):
            self.fleet, notes = decode_with_notes(states["held"].iloc[0], classes_of(model))
        ids = self.fleet.ids.tolist()
        self.last: dict[Any, Any] = dict(zip(ids, notes["last"], strict=True))
        self.refused: dict[Any, int] = dict(zip(ids, notes["refused"], strict=True))
        self.log_scale: float | None = notes["log_scale"]

    def places(self, names: list[Any], dtype: Any) -> Any:
        """How far in their order some keys have come."""
        nowhere = lowest(dtype)
        return np.array([nowhere if self.last.get(name) is None else self.last[name] for name in names], dtype)

    def encode(self, log_scale: float) -> bytes:
        ids = self.fleet.ids.tolist()
        own = {"last": [self.last[name] for name in ids], "refused": [self.refused[name] for name in ids]}
        return serialized(self.fleet, {**own, "log_scale": log_scale})


def counting(model: OnlineHMM, columns: Columns) -> Any:
    """How many observations a bucket will learn from."""

    def count(rows: pd.DataFrame, states: pd.DataFrame) -> pd.DataFrame:
        kept_of, data = Bucket(model, states), columns.rows(rows)
        codes, names = numbered(data)
        in_turn, _ = judge(kept_of.fleet.start.emission, data, codes, kept_of.places(names, data.order.dtype))
        return pd.DataFrame({"n": [int((~np.isnan(data.X[in_turn]).all(axis=1)).sum())]})

    return count


def learning(model: OnlineHMM, columns: Columns, shared: Shared, pace: Pace) -> Any:
    """What is done with the rows of a bucket, and with what is kept of it."""
    log_scale = shared.log_scale + log_kept(pace)

    def step(rows: pd.DataFrame, states: pd.DataFrame) -> pd.DataFrame:
        number = int((rows if len(rows) else states)["bucket"].iloc[0])
        nothing = columns.nothing(shared.model.n_components).assign(bucket=number)
        if not len(rows):
            none = np.zeros(len(shared.S)).tobytes()
            return nothing.assign(held=states["held"], n=0, weight=0.0, statistic=[none])
        own, data = Bucket(model, states), columns.rows(rows)
        faded = 1.0 if own.log_scale is None else math.exp(log_scale - own.log_scale)
        streams: Any = own.fleet._streams
        streams.take_part(shared.model, shared.S, pace, faded)
        codes, names = numbered(data)
        places = own.places(names, data.order.dtype)
        new = [name for name in names if name not in own.last]
        if new:
            own.fleet.add(new)
        found = follow(own.fleet, data, codes, np.array(names)[codes] if names else codes, places)
        for name, place, n in zip(names, places.tolist(), count_refused(found, codes, len(names)), strict=True):
            own.last[name] = None if place == lowest(data.order.dtype) else place
            own.refused[name] = own.refused.get(name, 0) + n
        weight, gained = streams.gained(shared.S)
        left = nothing.assign(
            held=[own.encode(log_scale)], n=streams.n_observations, weight=weight, statistic=[gained.tobytes()]
        )
        seen = columns.found(rows, found).assign(bucket=number, held=None, n=0, weight=0.0, statistic=None)
        return pd.concat([seen, left], ignore_index=True)

    return step


def maximized(model: HMM, S: FloatArray) -> HMM:
    """The model under which the statistic, measured from the centres of this one, is most likely."""
    theta, transmat = model.emission.theta(), model.transmat.copy()
    cells = model.transition.cells(model.n_components)
    values = np.ones(len(theta)), transmat, theta
    online.maximize_each(model.emission, S[np.newaxis], *cells[1:], *(part[np.newaxis] for part in values))
    return HMM(model.startprob, transmat, model.emission.with_theta(theta), model.transition)


def moved(S: FloatArray, one: HMM, other: HMM) -> FloatArray:
    """The statistic, measured from the centres of another model."""
    shifts = other.emission.centres(other.emission.theta()) - one.emission.centres(one.emission.theta())
    transitions, emissions = np.split(S, [len(S) - one.emission.n_emission_rows])
    return np.concatenate([transitions, one.emission.translated(emissions.reshape(len(shifts), -1), shifts).ravel()])
