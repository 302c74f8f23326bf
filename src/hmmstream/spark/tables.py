"""Tables at rest: partition by partition, key by key, in the order of each, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from hmmstream.arrays import FloatArray, IntArray, RefusedError
from hmmstream.online import OnlineHMM
from hmmstream.spark.columns import Columns
from hmmstream.spark.keyed import Held, learn
from hmmstream.spark.stored import fleet_of, table, with_start

ROWS_FOR_A_START, KEYS_FOR_A_START = 50_000, 50


def learn_table(
    df: DataFrame,
    *,
    key: str,
    value: str | Sequence[str],
    order: str,
    model: OnlineHMM,
    start: DataFrame | None = None,
    output: str = "rows",
) -> DataFrame:
    """Learn a model for each key of a table at rest: what :func:`learn_stream` would make of its rows.

    Parameters
    ----------
    df, key, value, order, model, start
        As of :func:`learn_stream`. If the model has no ``init``, a start is found in the table, for all keys together.
    output : "rows" or "models"
        What is returned: what each row shows, as by :func:`learn_stream`, or the models, as by :func:`models`.
    """
    if output not in ("rows", "models"):
        raise ValueError(f"output must be 'rows' or 'models', got {output!r}")
    if df.isStreaming:
        raise ValueError("this is a stream: use learn_stream")
    columns = Columns.of(df, key, value, order)
    if model.init == "auto" and not hasattr(model, "model_"):
        model = find_start(df, key=key, value=value, order=order, model=model)
    model = with_start(model, len(columns.values))
    rows = columns.passed_on(df)
    if start is None:
        rows = rows.withColumn("vector", F.lit(None).cast("binary"))
    else:
        last, refused = F.lit(0).cast(columns.held_order_type), F.lit(0).cast("bigint")
        rows = rows.withColumns({"last": last, "has_last": F.lit(False), "refused": refused})
        rows = rows.unionByName(columns.given(start), allowMissingColumns=True)
        rows = rows.fillna({"place": 0, "lacks": 0})
    is_row = F.col("vector").isNull()  # models come before the rows of their keys
    by_value = (F.col(x).asc_nulls_last() for x in columns.x)  # among rows at the same place
    rows = rows.repartition("key").sortWithinPartitions("key", is_row, "place", *by_value)
    if output == "rows":
        m = fleet_of(model).start.n_components
        found = rows.mapInPandas(TableLearner(model, columns, output), columns.found_schema(m))
        return columns.handed_back(found, m)
    schema = f"key {columns.held_key_type}, {columns.held_schema}"
    return table(rows.mapInPandas(TableLearner(model, columns, output), schema), fleet_of(model))


class TableLearner:
    """Learns from the rows of a partition as they pass, one key after the other: only one is there at a block's end."""

    def __init__(self, model: OnlineHMM, columns: Columns, output: str) -> None:
        self.model, self.columns, self.output = model, columns, output

    def __call__(self, blocks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        fleet, held = fleet_of(self.model), dict[Any, Held]()
        for block in blocks:
            is_model = block["vector"].notna()
            for given in block[is_model].itertuples(index=False):
                held[given.key] = Held.of(given)
            rows = block[~is_model]
            if len(rows):
                found = learn(fleet, self.columns.rows(rows), held.get, held.__setitem__)
                if self.output == "rows":
                    yield self.columns.found(rows, found)
            last = {key: held.pop(key) for key in block["key"].tail(1) if key in held}
            if self.output == "models":
                yield self._models(held)
            held = last
        if self.output == "models":
            yield self._models(held)

    def _models(self, held: dict[Any, Held]) -> pd.DataFrame:
        models = pd.DataFrame({"key": list(held), "vector": [kept.vector for kept in held.values()]})
        last = pd.Series([kept.last for kept in held.values()], dtype=object)  # whole numbers stay so beside None
        return models.assign(last=last, refused=[kept.n_refused for kept in held.values()])


def find_start(df: DataFrame, *, key: str, value: str | Sequence[str], order: str, model: OnlineHMM) -> OnlineHMM:
    """The model with values to start from, found in the first rows of some keys of a table at rest together."""
    if df.isStreaming:
        raise ValueError("a start is found in a table at rest: read some of the same data with spark.read")
    X, lengths = sample_of(df, Columns.of(df, key, value, order))
    ids, fleet = np.repeat(np.arange(len(lengths)), lengths), fleet_of(model)
    while True:
        try:
            init = fleet.find_start(X, ids)
        except RefusedError as error:  # learning would leave this row out
            X, ids = np.delete(X, error.row, axis=0), np.delete(ids, error.row)
        else:
            return OnlineHMM(**{**model.get_params(deep=False), "init": init})


def sample_of(df: DataFrame, columns: Columns) -> tuple[FloatArray, IntArray]:
    """The first rows of some keys, one key after the other, and how many there are of each."""
    rows = columns.passed_on(df).where("lacks = 0")
    keys = rows.select("key").distinct().orderBy("key").limit(KEYS_FOR_A_START)
    number = F.row_number().over(Window.partitionBy("key").orderBy("place"))
    rows = rows.join(F.broadcast(keys), "key").withColumn("number", number)
    sample = rows.where(F.col("number") <= ROWS_FOR_A_START // KEYS_FOR_A_START).toPandas()
    if sample.empty:
        raise ValueError("the table has no rows in which a start could be found")
    sample = sample.sort_values(["key", "number"])
    return sample[columns.x].to_numpy(dtype=np.float64), sample.groupby("key").size().to_numpy()
