"""Keyed streams: buckets of keys, each a fleet, whose models are state that Spark keeps exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from hmmstream import checkpoint
from hmmstream.online import OnlineHMM
from hmmstream.spark.columns import Columns
from hmmstream.spark.keyed import Held, learn
from hmmstream.spark.session import prepare
from hmmstream.spark.stored import MODELS, NO_MODELS, TEMPLATE, classes_of, fleet_of, with_start

N_BUCKETS = 64  # by default


def learn_stream(
    df: DataFrame,
    *,
    key: str,
    value: str | Sequence[str],
    order: str,
    model: OnlineHMM,
    start: DataFrame | None = None,
    forget_after: timedelta | None = None,
    n_buckets: int = N_BUCKETS,
) -> DataFrame:
    """Learn a model for each key of a streaming table, and tell what each row shows.

    Parameters
    ----------
    df : streaming DataFrame
    key : str
        The column that says which stream a row is of: strings or integers.
    value : str or list of str
        The columns that are observed: numbers, null where missing.
    order : str
        The column that puts the rows of a key in order: a number, a date or a timestamp. A row that does not come after
        all that its key has learned is refused.
    model : OnlineHMM
        What each key starts as; it must have an ``init``, see :func:`find_start`. There is no second stage:
        ``averaging="auto"`` is the averaged statistic.
    start : DataFrame
        Models that some keys start from: what :func:`models` returned, or :func:`learn_table` with ``output="models"``.
        They are read when the checkpoint is new.
    forget_after : timedelta
        Forget the model of a key that has had no row for so long, by the clock of the cluster.
    n_buckets : int
        Buckets of keys, each learned in one piece, by one core at a time. They cannot be changed later.

    Returns
    -------
    streaming DataFrame
        The columns of key, order and values, then ``probabilities`` (of each state, given all rows of the key up to
        this one), ``state`` (the most likely), ``surprise`` (minus the log predictive density) and ``refused``: null,
        or why the row was not learned from: "incomplete" (no key or order), "late" (it comes before one that was
        learned already), "twice" (at the same place as one that was) or "impossible" (a value that cannot occur).
    """
    if not df.isStreaming:
        raise ValueError("this is a table at rest: use learn_table")
    columns = Columns.of(df, key, value, order)
    model = with_start(model, len(columns.values))
    spark = df.sparkSession
    prepare(spark, expires=forget_after is not None)
    rows = columns.passed_on(df).withColumn("bucket", bucket(n_buckets))
    given = columns.given(spark.createDataFrame([], NO_MODELS) if start is None else start)
    given = given.withColumn("bucket", bucket(n_buckets))
    every = spark.range(n_buckets).select(F.col("id").cast("int").alias("bucket"))  # all are told of their kind
    given = every.join(given, "bucket", "left").fillna({"last": 0, "has_last": False, "refused": 0})
    m = fleet_of(model).start.n_components
    found = rows.groupBy("bucket").transformWithStateInPandas(
        LearningProcessor(model, columns, forget_after, n_buckets),
        outputStructType=columns.found_schema(m),
        outputMode="Append",
        timeMode="None" if forget_after is None else "ProcessingTime",
        initialState=given.groupBy("bucket"),
    )
    return columns.handed_back(found, m)


def bucket(n_buckets: int) -> Column:
    """Where a key belongs."""
    return F.pmod(F.xxhash64("key"), F.lit(n_buckets)).cast("int")


class LearningProcessor(StatefulProcessor):
    """Learns the rows of a bucket. It keeps a map from keys to models, and once, what kind of models they are."""

    def __init__(self, model: OnlineHMM, columns: Columns, forget_after: timedelta | None, n_buckets: int) -> None:
        self.model, self.columns, self.forget_after = model, columns, forget_after
        self.kind = checkpoint.encode(fleet_of(model), {"n_buckets": n_buckets})

    def init(self, handle: StatefulProcessorHandle) -> None:
        lifetime = None if self.forget_after is None else int(self.forget_after.total_seconds() * 1000)
        key, held = f"key {self.columns.held_key_type}", self.columns.held_schema
        self.models = handle.getMapState(MODELS, key, held, lifetime)
        self.template = handle.getValueState(TEMPLATE, "fleet binary")
        self.fleet = fleet_of(self.model)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        self._check_kind()
        block = pd.concat(list(rows), ignore_index=True)
        yield self.columns.found(block, learn(self.fleet, self.columns.rows(block), self._read, self._write))

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        self.template.update((self.kind,))
        for given in initialState[initialState["vector"].notna()].itertuples(index=False):
            self._write(given.key, Held.of(given))

    def close(self) -> None:
        pass

    def _read(self, key: Any) -> Held | None:
        held = self.models.getValue((key,))
        return None if held is None else Held(bytes(held[0]), held[1], held[2])

    def _write(self, key: Any, held: Held) -> None:
        self.models.updateValue((key,), tuple(held))

    def _check_kind(self) -> None:
        """Models of another kind than those that are kept cannot go on from them, nor find them in other buckets."""
        kept = self.template.get()
        if kept is None or (bytes(kept[0]) != self.kind and self._written_anew(bytes(kept[0])) != self.kind):
            raise ValueError(
                "the checkpoint holds models that were learned with other settings, from another start or in another "
                "number of buckets: use those, or a new checkpoint with start=models(...)"
            )

    def _written_anew(self, kind: bytes) -> bytes:
        """What an earlier version has written, as this one would."""
        return checkpoint.encode(*checkpoint.decode_with_notes(kind, classes_of(self.model)))
