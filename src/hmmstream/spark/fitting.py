"""Batch EM over many sequences: Spark computes the expectations, the driver sums them and does the M-step."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hmmstream import inference
from hmmstream.arrays import FloatArray, mean_and_variance
from hmmstream.batch import BatchHMM
from hmmstream.em import EM, Counts
from hmmstream.emissions import Emission, specification
from hmmstream.model import HMM
from hmmstream.record import Record
from hmmstream.recursions.rows import LARGEST
from hmmstream.spark.columns import Columns
from hmmstream.spark.tables import sample_of

PACK_ROWS = 250_000  # rows of whole sequences that are packed together, unless one is longer
ROWS_A_PARTITION = 2_000_000


def fit_table(df: DataFrame, *, sequence: str, value: str | Sequence[str], order: str, model: BatchHMM) -> BatchHMM:
    """Fit one model to many sequences by maximum likelihood, as ``BatchHMM.fit`` does, with the E-step on all machines.

    Parameters
    ----------
    df : DataFrame
    sequence : str
        The column that says which sequence a row is of: strings or integers.
    value : str or list of str
        The columns that are observed: numbers, null where missing.
    order : str
        The column that puts the rows of a sequence in order: a number, a date or a timestamp.
    model : BatchHMM
        Its settings. Without an ``init``, a start is found in some of the sequences.

    Returns
    -------
    BatchHMM
        A fitted one. Its ``filtered_proba_`` is that at the end of the last sequence, by name.
    """
    if df.isStreaming:
        raise ValueError("this is a stream, which has no end: use learn_stream")
    hmm = BatchHMM(**model.get_params(deep=False))
    hmm._check_settings()
    if hmm.n_init > 1:
        raise ValueError("fit_table starts once: n_init must be 1")
    columns = Columns.of(df, sequence, value, order)
    is_explicit = isinstance(hmm.init, HMM)
    if is_explicit:
        start = hmm._explicit_start()
    else:
        X, lengths = sample_of(df, columns)
        emission = specification(hmm.emission, X)
        sized = emission if emission.has_values else emission.sized(hmm.n_components, X.shape[1])
        start = hmm._start(emission, inference.record(sized, X, lengths), 0)
    packs = packed(df, columns).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        hmm._take_over(DistributedEM(start, packs, hmm._em_settings()).run(hmm.n_iter, hmm.tol, hmm.verbose))
    finally:
        packs.unpersist()
    hmm.n_features_in_ = len(columns.values)
    if not is_explicit and not emission.has_values:
        hmm._put_in_order()
    return hmm


# --- sequences, packed ----------------------------------------------------------------------------------------------


def packed(df: DataFrame, columns: Columns) -> DataFrame:
    """Whole sequences, many to a row: their values, their lengths and the name of the last."""
    rows = columns.passed_on(df)
    n_rows, n_lacking = rows.agg(F.count("lacks"), F.count_if(F.col("lacks") > 0)).first()
    if n_rows == 0:
        raise ValueError("the table has no rows: there is nothing to fit")
    if n_lacking:
        raise ValueError(f"{n_lacking} rows lack {columns.key!r} or {columns.order!r}: leave them out first")
    n_partitions = max(df.sparkSession.sparkContext.defaultParallelism, -(-n_rows // ROWS_A_PARTITION))
    rows = rows.repartition(n_partitions, "key").sortWithinPartitions("key", "place")
    return rows.mapInPandas(Packer(columns), f"X binary, lengths binary, last {columns.held_key_type}")


class Packer:
    """Packs the sequences of a partition, which come one after the other, in blocks that may cut them."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def __call__(self, blocks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        kept: list[pd.DataFrame] = []
        n_kept = 0
        for block in blocks:
            kept.append(block)
            n_kept += len(block)
            if n_kept >= PACK_ROWS:
                rows = pd.concat(kept, ignore_index=True)
                is_open = rows["key"] == rows["key"].iloc[-1]  # more of it may come
                if not is_open.all():
                    yield self._pack(rows[~is_open])
                kept, n_kept = [rows[is_open]], int(is_open.sum())
        if n_kept:
            yield self._pack(pd.concat(kept, ignore_index=True))

    def _pack(self, rows: pd.DataFrame) -> pd.DataFrame:
        keys, places = rows["key"].to_numpy(), rows["place"].to_numpy()
        is_first = np.append(True, keys[1:] != keys[:-1])
        again = np.flatnonzero(~is_first[1:] & (places[1:] == places[:-1]))
        if len(again):
            raise ValueError(f"the sequence {keys[again[0]]!r} has two rows at the same place of its order")
        lengths = np.diff(np.append(np.flatnonzero(is_first), len(rows)))
        X = rows[self.columns.x].to_numpy(dtype=np.float64)
        return pd.DataFrame({"X": [X.tobytes()], "lengths": [lengths.tobytes()], "last": [keys[-1]]})


def unpacked(pack: Any, emission: Emission) -> Record:
    X = np.frombuffer(pack.X).reshape(-1, emission.n_columns)
    return inference.record(emission, X, np.frombuffer(pack.lengths, dtype=np.int64))


# --- EM -------------------------------------------------------------------------------------------------------------


class DistributedEM(EM):
    """EM whose data is packed sequences: whatever needs them is computed where they are."""

    def __init__(self, start: HMM, packs: DataFrame, settings: dict[str, Any]) -> None:
        self.packs, self.settings, self.first = packs, settings, start
        emission = start.emission
        super().__init__(start, stand_in(self._on_each(lambda data, last: moments(data.X), emission)), **settings)

    def expect(self) -> Counts:
        counts: Counts = inference.add_up(self._on_each(self._here(EM.expect), self.model.emission))
        return counts

    def summary(self) -> tuple[float, FloatArray]:
        summarize = self._here(EM.summary)
        parts = self._on_each(lambda data, last: (last, *summarize(data, last)), self.model.emission)
        last = max(parts, key=lambda part: part[0])
        return sum(log_likelihood for _, log_likelihood, _ in parts), last[2]

    def _here(self, method: Callable[[EM], Any]) -> Callable[[Record, Any], Any]:
        """A step of EM on the data that is where it is run, with the model of now."""
        first, settings, model, limits = self.first, self.settings, self.model, self.limits

        def step(data: Record, last: Any) -> Any:
            em = EM(first, data, **settings)
            em.model, em.limits = model, limits
            return method(em)

        return step

    def _on_each(self, function: Callable[[Record, Any], Any], emission: Emission) -> list[Any]:
        """What ``function`` returns for each pack, always in the same order."""

        def work(blocks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for block in blocks:
                for pack in block.itertuples(index=False):
                    result = pickle.dumps(function(unpacked(pack, emission), pack.last))
                    yield pd.DataFrame({"last": [pack.last], "result": [result]})

        key_type = dict(self.packs.dtypes)["last"]
        results = self.packs.mapInPandas(work, f"last {key_type}, result binary").collect()
        return [pickle.loads(row["result"]) for row in sorted(results, key=lambda row: row["last"])]


def moments(X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Number, mean and variance of what was seen of each feature."""
    return (~np.isnan(X)).sum(axis=0), *mean_and_variance(X, LARGEST)


def stand_in(parts: list[tuple[FloatArray, FloatArray, FloatArray]]) -> Record:
    """Two rows whose features have the mean and variance of all rows: this is what limits on parameters depend on."""
    counts, means, variances = (np.array(of_each) for of_each in zip(*parts, strict=True))
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    mean = (shares * means).sum(axis=0)
    spread = np.sqrt((shares * (variances + (means - mean) ** 2)).sum(axis=0))
    return Record(np.array([mean - spread, mean + spread]), np.array([True, False]))
