"""Columns of users' tables under names of our own and in types that NumPy has, and back again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from hmmstream.spark.keyed import NO_KEY, NO_PLACE, REASONS, Found, Rows

WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
NUMBERS = (*WHOLE_NUMBERS, "float", "double", "decimal", "boolean")
ORDERS = (*WHOLE_NUMBERS, "float", "double", "date", "timestamp", "timestamp_ntz")
EPOCH, MICROSECONDS_A_DAY = "TIMESTAMP_NTZ'1970-01-01 00:00:00'", 86_400_000_000
ADDED = ("probabilities", "state", "surprise", "refused")


@dataclass(frozen=True)
class Columns:
    """Which columns hold the key, the values and the order of a table, and how they are passed on."""

    key: str
    values: tuple[str, ...]
    order: str
    key_type: str
    order_type: str

    @classmethod
    def of(cls, df: DataFrame, key: str, value: str | Sequence[str], order: str) -> Columns:
        """Those of a table, if they are of types that will do."""
        values = (value,) if isinstance(value, str) else tuple(value)
        types = {field.name: field.dataType for field in df.schema.fields}
        for name in (key, *values, order):
            if name not in types:
                raise ValueError(f"there is no column {name!r}: there are {', '.join(map(repr, types))}")
        taken = {name for name in (key, *values, order) if name in ADDED}
        if taken or len({key, *values, order}) < 2 + len(values):
            raise ValueError(f"key, values and order must be different columns, and none named as one of {ADDED}")
        kinds = {name: kind(types[name]) for name in (key, *values, order)}
        if kinds[key] not in ("string", *WHOLE_NUMBERS):
            raise ValueError(f"the key {key!r} is of type {kinds[key]}: make it a string or an integer")
        for name in values:
            if kinds[name] not in NUMBERS:
                raise ValueError(f"the value {name!r} is of type {kinds[name]}, which is no number")
        if kinds[order] not in ORDERS:
            raise ValueError(
                f"the order {order!r} is of type {kinds[order]}: make it an integer, a double, a date or a timestamp"
            )
        return cls(key, values, order, kinds[key], kinds[order])

    # --- there ------------------------------------------------------------------------------------------------------

    @property
    def held_key_type(self) -> str:
        return "string" if self.key_type == "string" else "bigint"

    @property
    def held_order_type(self) -> str:
        return "double" if self.order_type in ("float", "double") else "bigint"

    @property
    def x(self) -> list[str]:
        return [f"x{at}" for at in range(len(self.values))]

    @property
    def schema(self) -> str:
        """Of the columns that are passed on."""
        x = ", ".join(f"{name} double" for name in self.x)
        return f"key {self.held_key_type}, place {self.held_order_type}, {x}, lacks int"

    @property
    def held_schema(self) -> str:
        """Of what is kept of a key."""
        return f"vector binary, last {self.held_order_type}, refused bigint"

    def passed_on(self, df: DataFrame) -> DataFrame:
        """The columns that are needed, with something in place of keys and orders that are missing, which is noted."""
        key = F.col(quoted(self.key)).cast(self.held_key_type)
        place = self.held_order(F.col(quoted(self.order)))
        has_no_place = place.isNull()
        if self.held_order_type == "double":
            has_no_place = has_no_place | F.isnan(place) | (F.abs(place) == float("inf"))
        nobody, nowhere = ("" if self.key_type == "string" else 0), F.lit(0).cast(self.held_order_type)
        lacks = F.when(key.isNull(), NO_KEY).otherwise(0) + F.when(has_no_place, NO_PLACE).otherwise(0)
        return df.select(
            F.coalesce(key, F.lit(nobody)).alias("key"),
            F.when(has_no_place, nowhere).otherwise(place).alias("place"),
            *(F.col(quoted(name)).cast("double").alias(x) for name, x in zip(self.values, self.x, strict=True)),
            lacks.alias("lacks"),
        )

    def given(self, models: DataFrame) -> DataFrame:
        """Models to start from, as they are held."""
        key, last = F.col("key").cast(self.held_key_type), F.col("last").cast(self.held_order_type)
        some = F.coalesce(last, F.lit(0).cast(self.held_order_type))  # a null would make all of them inexact in pandas
        return models.select(
            key.alias("key"), "vector", some.alias("last"), last.isNotNull().alias("has_last"), "refused"
        )

    def held_order(self, order: Column) -> Column:
        if self.order_type == "timestamp":
            return F.unix_micros(order)
        if self.order_type == "timestamp_ntz":  # by the clock on the wall, whatever the time zone of the session
            of_day = F.hour(order) * 3600 + F.minute(order) * 60
            seconds = F.extract(F.lit("SECOND"), order)
            since = F.unix_date(order.cast("date")).cast("bigint") * MICROSECONDS_A_DAY
            return since + of_day.cast("bigint") * 1_000_000 + (seconds * 1_000_000).cast("bigint")
        return F.unix_date(order).cast("bigint") if self.order_type == "date" else order.cast(self.held_order_type)

    def rows(self, block: pd.DataFrame) -> Rows:
        """A block of what was passed on."""
        X = block[self.x].to_numpy(dtype=np.float64)
        return Rows(block["key"], block["place"].to_numpy(), np.ascontiguousarray(X), block["lacks"].to_numpy())

    # --- and back ---------------------------------------------------------------------------------------------------

    def found_schema(self, n_states: int) -> str:
        """Of the columns that are passed on with what was found."""
        proba = ", ".join(f"p{k} double" for k in range(n_states))
        return f"{self.schema}, {proba}, state int, surprise double, verdict int"

    def found(self, block: pd.DataFrame, found: Found) -> pd.DataFrame:
        """A block of what was passed on, with what was found."""
        proba = pd.DataFrame(found.proba, columns=[f"p{k}" for k in range(found.proba.shape[1])], index=block.index)
        own = block[["key", "place", *self.x, "lacks"]]
        new = {"state": found.state, "surprise": found.surprise, "verdict": found.verdict}
        return pd.concat([own, proba, pd.DataFrame(new, index=block.index)], axis=1)

    def nothing(self, n_states: int) -> pd.DataFrame:
        """A row of what was found that stands for none."""
        names = ["place", *self.x, "lacks", *(f"p{k}" for k in range(n_states)), "state", "surprise", "verdict"]
        return pd.DataFrame({"key": ["" if self.key_type == "string" else 0], **{name: [0] for name in names}})

    def handed_back(self, found: DataFrame, n_states: int) -> DataFrame:
        """The user's columns, values as doubles, and what was found."""
        is_learned = F.col("verdict") == 0
        reasons = F.array(*map(F.lit, REASONS))
        return found.select(
            F.when(F.col("lacks").bitwiseAND(NO_KEY) == 0, F.col("key").cast(self.key_type)).alias(self.key),
            F.when(F.col("lacks").bitwiseAND(NO_PLACE) == 0, self.order_again).alias(self.order),
            *(F.col(x).alias(name) for name, x in zip(self.values, self.x, strict=True)),
            F.when(is_learned, F.array(*(F.col(f"p{k}") for k in range(n_states)))).alias("probabilities"),
            F.when(is_learned, F.col("state")).alias("state"),
            F.col("surprise"),
            F.when(~is_learned, F.element_at(reasons, F.col("verdict"))).alias("refused"),
        )

    @property
    def order_again(self) -> Column:
        """The order, in its own type."""
        place = F.col("place")
        if self.order_type == "timestamp":
            return F.timestamp_micros(place)
        if self.order_type == "timestamp_ntz":
            return F.expr(f"{EPOCH} + make_dt_interval(0, 0, 0, CAST(place AS DECIMAL(24, 0)) / 1000000)")
        if self.order_type == "date":
            return F.date_from_unix_date(place.cast("int"))
        return place.cast(self.order_type)


def kind(data_type: DataType) -> str:
    """The name of a type, less its size."""
    return str(data_type.simpleString()).split("(")[0]


def quoted(name: str) -> str:
    """A name in which a dot is no more than that."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"
