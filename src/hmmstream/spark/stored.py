"""Models of many keys as a table: read back from a checkpoint, or made by learn_table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hmmstream import checkpoint
from hmmstream.fleet import Fleet
from hmmstream.model import HMM
from hmmstream.online import OnlineHMM
from hmmstream.spark.session import session

MODELS, TEMPLATE = "models", "template"  # names of the state
NO_MODELS = "key string, vector binary, last bigint, refused bigint"  # the columns of a table of models that count


def with_start(model: OnlineHMM, n_features: int) -> OnlineHMM:
    """The model, if it has values to start from for so many columns."""
    if hasattr(model, "model_"):
        model = OnlineHMM(**{**model.get_params(deep=False), "init": model.model_})
    if not isinstance(model.init, HMM):
        raise ValueError("each key needs values to start from: give the model an init, or let find_start find one")
    if model.init.emission.n_columns != n_features:
        raise ValueError(f"the model is of {model.init.emission.n_columns} columns, and {n_features} were named")
    return model


def fleet_of(model: OnlineHMM, *, shared: bool = False) -> Fleet:
    """A fleet of such models, on one core: Spark has a task for each."""
    if model.engine not in ("auto", "dense"):
        raise ValueError("the models of keys have no windows of the past: leave engine as it is")
    fleet = Fleet(**{**model.get_params(deep=False), "engine": "dense"}, shared=shared, n_jobs=1)
    if fleet.is_refined:
        raise ValueError("the models of keys have no second stage: averaging is 'auto', None or Polyak, not 'refined'")
    return fleet


def models(path: str, key: Any = None, *, classes: Iterable[type] = ()) -> Any:
    """What was learned by :func:`learn_stream`: a table of the models of all keys, or that of one as an OnlineHMM.

    Parameters
    ----------
    path : str
        The checkpoint of the query, its ``checkpointLocation``. It may be running: the table is that of its last
        complete batch.
    key : str or int
        The key whose model is wanted, as an :class:`~hmmstream.OnlineHMM` that goes on where the stream stands.
    classes : classes
        Those of your own that the models are made of, as for :func:`hmmstream.load`.

    Returns
    -------
    DataFrame or OnlineHMM
        A row a key: ``key``, ``last`` (the place in its order that was learned last; timestamps in microseconds, dates
        in days since 1970), ``refused`` (rows that were not learned from), ``n_samples_seen``, ``log_likelihood``,
        ``probabilities`` (of each state now), ``startprob``, ``transmat``, the values of the emission, such as
        ``means``, and ``vector``: all that is known, from which learning can go on.
    """
    fleet = fleet_in(path, classes)
    if fleet is None:
        raise ValueError(f"{path} holds no models yet")
    held = held_in(path)
    if key is None:
        return table(held, fleet)
    found = held.where(F.col("key") == F.lit(key)).collect()
    if not found:
        raise KeyError(f"there is no model of {key!r} in {path}")
    return as_online_hmm(fleet, bytes(found[0]["vector"]))


def template(path: str, classes: Iterable[type] = ()) -> OnlineHMM | None:
    """What the keys of a checkpoint start as, or None if it holds nothing yet."""
    fleet = fleet_in(path, classes)
    return None if fleet is None else fleet.prototype


def state(path: str, name: str) -> DataFrame:
    """A part of the state in a checkpoint."""
    return session().read.format("statestore").option("path", path).option("stateVarName", name).load()


def held_in(path: str) -> DataFrame:
    """What is held of each key that has not been silent for too long."""
    held = state(path, MODELS)
    if "ttlExpirationMs" not in held.schema["user_map_value"].dataType.names:
        return held.select("user_map_key.key", "user_map_value.*")
    is_there = F.col("user_map_value.ttlExpirationMs") > F.unix_millis(F.current_timestamp())
    return held.where(is_there).select("user_map_key.key", "user_map_value.value.*")


def fleet_in(path: str, classes: Iterable[type]) -> Fleet | None:
    """A fleet of the kind that a checkpoint has, without streams, or None if it holds nothing yet."""
    try:
        found = state(path, TEMPLATE).select("value.*").limit(1).collect()
    except PySparkException:  # it is not there, or no batch has ended yet
        return None
    return checkpoint.decode(bytes(found[0]["fleet"]), classes) if found else None


def classes_of(model: OnlineHMM) -> list[type]:
    """The classes that a model is made of, some of which may be its user's."""
    start = fleet_of(model).start
    return [type(start.emission), type(start.transition), type(model.step)]


def as_online_hmm(fleet: Fleet, vector: bytes) -> OnlineHMM:
    """A key's model as one that stands alone."""
    return fleet.resume([0], np.frombuffer(vector)[np.newaxis]).extract(0)


def table(held: DataFrame, fleet: Fleet) -> DataFrame:
    """What is held of keys, with what it means."""
    types = dict(held.dtypes)
    names = {name: type_of(value) for name, value in described(one_stream(fleet)).items()}
    schema = ", ".join(
        [f"key {types['key']}", "last string", "refused bigint"]
        + [f"`{name}` {type_}" for name, type_ in names.items()]
        + ["vector binary"]
    )
    last = F.col("last").cast("string")  # in pandas a null would make whole numbers inexact
    found = held.select("key", last.alias("last"), "refused", "vector").mapInPandas(Describer(fleet), schema)
    return found.withColumn("last", F.col("last").cast(types["last"]))


def one_stream(fleet: Fleet) -> Fleet:
    return fleet.resume([0], fleet.new_vector()[np.newaxis].copy())


def type_of(value: Any) -> str:
    """The type of a column of these values; the first of their dimensions is that of the keys."""
    kind = "bigint" if value.dtype.kind == "i" else "double"
    for _ in range(value.ndim - 1):
        kind = f"array<{kind}>"
    return kind


def described(fleet: Fleet) -> dict[str, Any]:
    """What a fleet knows of its streams, by the names of the table's columns."""
    values = {name: getattr(fleet, f"{name}_") for name in fleet.start.emission.value_names}
    return {
        "n_samples_seen": fleet.n_samples_seen_,
        "log_likelihood": fleet.log_likelihood_,
        "probabilities": fleet.filtered_proba_,
        "startprob": fleet.startprob_,
        "transmat": fleet.transmat_,
        **values,
    }


class Describer:
    """Adds what vectors mean, block by block."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def __call__(self, blocks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for block in blocks:
            if len(block):
                vectors = np.frombuffer(b"".join(block["vector"])).reshape(len(block), -1)
                self.fleet.resume(np.arange(len(block)), vectors.copy())
                values = {name: list(value.tolist()) for name, value in described(self.fleet).items()}
                own = {name: block[name] for name in ("key", "last", "refused")}
                yield pd.DataFrame({**own, **values, "vector": block["vector"]})
