"""Keyed streams on Spark: every key's model is what an OnlineHMM of its own would be, whatever happens to the job."""

import shutil

import numpy as np
import pytest
from models import paper_model, paper_start, values

from hmmstream import HMM, OnlineHMM, Poisson, StatisticAverage

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'hmmstream[spark]'")
if shutil.which("java") is None:
    pytest.skip("there is no Java: apt-get install openjdk-17-jre-headless", allow_module_level=True)

import pandas as pd

from hmmstream.spark import find_start, learn_stream, learn_table, models, session

MODEL = OnlineHMM(init=paper_start(), averaging=StatisticAverage())
COLUMNS = {"key": "id", "value": "v", "order": "t"}
SCHEMA = "id string, v double, t bigint"


@pytest.fixture(scope="module")
def spark():
    spark = session("local[2]", spark_sql_shuffle_partitions=2, spark_ui_enabled="false")
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


def records(n_keys, longest=200, seed=1):
    """Keys of ragged length with missing values, in the order in which their rows arrive."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, n_keys)
    X = np.concatenate([paper_model().sample(n, random_state=int(k))[0][:, 0] for k, n in enumerate(lengths)])
    X[rng.random(len(X)) < 0.05] = np.nan
    frame = pd.DataFrame({"id": np.repeat([f"k{k}" for k in range(n_keys)], lengths), "v": X})
    frame["t"] = frame.groupby("id").cumcount() * 3 - 100
    return frame.iloc[np.argsort(frame["t"] + rng.random(len(frame)), kind="stable")].reset_index(drop=True)


def write_files(frame, folder, n_files):
    """Files that are read one after the other."""
    folder.mkdir()
    for at, piece in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        path = folder / f"{at:04d}.parquet"
        frame.iloc[piece].to_parquet(path)
        import os

        os.utime(path, (at, at))


def run(spark, folder, name, **settings):
    """Learn from all files of a folder, one a batch: output and checkpoint."""
    output, checkpoint = str(folder / f"{name}-out"), str(folder / f"{name}-checkpoint")
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    learned = learn_stream(files, **{**COLUMNS, "model": MODEL, **settings})
    query = learned.writeStream.format("parquet").option("path", output).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(output).toPandas().sort_values(["id", "t"]), checkpoint


def alone(frame):
    """What each key learns alone."""
    found, rows = {}, []
    for key, own in frame.sort_values("t").groupby("id"):
        found[key] = OnlineHMM(**MODEL.get_params(deep=False))
        proba = found[key].follow(own[["v"]].to_numpy())
        rows.append(pd.DataFrame(proba, index=own.index))
    return found, pd.concat(rows).sort_index()


@pytest.fixture(scope="module")
def learned(spark, tmp_path_factory):
    """A thousand keys, learned in three batches."""
    folder = tmp_path_factory.mktemp("learned")
    frame = records(1000)
    write_files(frame, folder / "in", 3)
    rows, checkpoint = run(spark, folder, "three")
    return frame, rows, checkpoint, alone(frame)


def test_every_key_learns_what_its_own_model_would(learned):
    frame, rows, checkpoint, (hmms, proba) = learned
    table = models(checkpoint).toPandas().set_index("key")
    assert set(table.index) == set(hmms)
    for key, hmm in hmms.items():
        own = table.loc[key]
        np.testing.assert_allclose(np.stack(own["transmat"]), hmm.transmat_, rtol=0, atol=1e-12)
        means = np.array([row.tolist() for row in own["means"]])
        np.testing.assert_allclose(means, hmm.means_, rtol=0, atol=1e-12)
        assert own["n_samples_seen"] == hmm.n_samples_seen_
        assert own["log_likelihood"] == pytest.approx(hmm.log_likelihood_, rel=1e-12)
    expected = frame.join(proba).sort_values(["id", "t"])
    np.testing.assert_allclose(np.stack(rows["probabilities"]), expected[[0, 1]], rtol=0, atol=1e-12)
    assert rows["refused"].isna().all()
    assert (rows["surprise"].isna().to_numpy() == expected["v"].isna().to_numpy()).all()
    total = -rows.groupby("id")["surprise"].sum()
    np.testing.assert_allclose(total, [hmms[key].log_likelihood_ for key in total.index], rtol=1e-9)
