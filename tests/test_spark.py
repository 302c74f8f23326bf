"""Keyed streams on Spark: every key's model is what an OnlineHMM of its own would be, whatever happens to the job."""

import os
import re
import shutil
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from models import paper_model, paper_start, values

from hmmstream import HMM, BatchHMM, Fleet, Gaussian, OnlineHMM, Poisson, StatisticAverage

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'hmmstream[spark]'")
if shutil.which("java") is None:
    pytest.skip("there is no Java: apt-get install openjdk-17-jre-headless", allow_module_level=True)

import pandas as pd
from pyspark.errors import PySparkException

from benchmarks import spark_kill
from hmmstream.cli import main
from hmmstream.spark import (
    find_start,
    fit_table,
    learn_shared,
    learn_stream,
    learn_table,
    models,
    session,
    shared_model,
    template,
)

PAGE = Path(__file__).parent.parent / "docs" / "spark.md"
MODEL = OnlineHMM(init=paper_start(), averaging=StatisticAverage())
COLUMNS = {"key": "id", "value": "v", "order": "t"}
SCHEMA = "id string, v double, t bigint"
DEFAULTS = {"model": MODEL, "n_buckets": 4}  # fewer than usual: each takes time


@pytest.fixture(scope="module")
def spark():
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # starts sooner; runs slower
    spark = session("local[2]", spark_sql_shuffle_partitions=2, spark_ui_enabled="false")
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


def records(n_keys, longest=100, seed=1):
    """Keys of ragged length with missing values, in the order in which their rows arrive."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest, n_keys)
    X = np.concatenate([paper_model().sample(n, random_state=int(k))[0][:, 0] for k, n in enumerate(lengths)])
    X[rng.random(len(X)) < 0.05] = np.nan
    frame = pd.DataFrame({"id": np.repeat([f"k{k}" for k in range(n_keys)], lengths), "v": X})
    frame["t"] = frame.groupby("id").cumcount() * 3 - 100
    return frame.iloc[np.argsort(frame["t"] + rng.random(len(frame)), kind="stable")].reset_index(drop=True)


def write_files(pieces, folder):
    """Files that are read one after the other."""
    folder.mkdir()
    for at, piece in enumerate(pieces):
        path = folder / f"{at:04d}.parquet"
        piece.to_parquet(path)
        os.utime(path, (at + 1, at + 1))


def cut(frame, n_pieces):
    return [frame.iloc[piece] for piece in np.array_split(np.arange(len(frame)), n_pieces)]


def stream(spark, folder, files_per_batch=1):
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_per_batch).parquet(str(folder / "in"))


def run(spark, folder, name, files_per_batch=1, **settings):
    """Learn from all files of a folder: what the rows show, and where the models are."""
    output, checkpoint = str(folder / f"{name}-out"), str(folder / name)
    learned = learn_stream(stream(spark, folder, files_per_batch), **{**COLUMNS, **DEFAULTS, **settings})
    query = learned.writeStream.format("parquet").option("path", output).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(output).toPandas().sort_values(["id", "t"], ignore_index=True), checkpoint


def held(path):
    return models(path).toPandas().set_index("key").sort_index()


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(spark, tmp_path_factory):
    """A thousand keys in three batches, the last of which brings some rows again."""
    folder = tmp_path_factory.mktemp("learned")
    frame = records(1000, 50)
    first, second, third = cut(frame, 3)
    write_files([first, second, pd.concat([third, first.tail(50), third.head(20)])], folder / "in")
    rows, checkpoint = run(spark, folder, "three")
    return folder, frame, rows, checkpoint


def test_every_key_learns_what_its_own_model_would(learned):
    _, frame, rows, checkpoint = learned
    table, rows = held(checkpoint), rows[rows["refused"].isna()].groupby("id")
    assert set(table.index) == set(frame["id"])
    for key, own in frame.sort_values("t").groupby("id"):
        hmm = OnlineHMM(**MODEL.get_params(deep=False))
        proba, found = hmm.follow(own[["v"]].to_numpy()), table.loc[key]
        nested = np.array([row.tolist() for row in found["means"]]), np.stack(found["transmat"])
        for one, other in zip(nested, (hmm.means_, hmm.transmat_), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
        assert found["n_samples_seen"] == hmm.n_samples_seen_
        assert found["log_likelihood"] == pytest.approx(hmm.log_likelihood_, rel=1e-12)
        shown = rows.get_group(key)
        np.testing.assert_allclose(np.stack(shown["probabilities"]), proba, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(shown["state"], proba.argmax(axis=1))
        np.testing.assert_array_equal(shown["surprise"].isna(), own["v"].isna())
        assert -shown["surprise"].sum() == pytest.approx(hmm.log_likelihood_, rel=1e-9)


def test_a_row_that_comes_again_is_refused_and_counted(learned):
    _, _, rows, checkpoint = learned
    refused = rows[rows["refused"].notna()]
    assert len(refused) == 70
    assert set(refused["refused"]) <= {"late", "twice"}
    assert refused["probabilities"].isna().all()
    assert held(checkpoint)["refused"].sum() == 70


def test_the_size_of_batches_changes_nothing(spark, learned):
    folder, _, rows, checkpoint = learned
    others, other = run(spark, folder, "one", files_per_batch=10)
    assert (held(checkpoint)["vector"] == held(other)["vector"]).all()
    accepted, again = (found[found["refused"].isna()].reset_index(drop=True) for found in (rows, others))
    pd.testing.assert_frame_equal(accepted, again, check_exact=True)


def test_one_key_is_read_back_as_a_model_that_goes_on(learned):
    _, frame, _, checkpoint = learned
    own = frame[frame["id"] == "k7"].sort_values("t")[["v"]].to_numpy()
    hmm, alone = models(checkpoint, "k7"), OnlineHMM(**MODEL.get_params(deep=False)).partial_fit(own)
    more = paper_model().sample(100, random_state=0)[0]
    np.testing.assert_array_equal(values(hmm.partial_fit(more).model_), values(alone.partial_fit(more).model_))
    with pytest.raises(KeyError, match="no model of 'nobody'"):
        models(checkpoint, "nobody")


def test_models_to_start_from(spark, learned, tmp_path):
    """Half by a stream, the other half by a stream that starts from what the first has learned."""
    _, frame, _, checkpoint = learned
    frame = frame[frame["id"].isin([f"k{k}" for k in range(20)])].astype({"t": "int64"})
    frame["t"] += 2**60  # no number that a double could hold
    frame.loc[len(frame) + 10**6] = ["never", np.inf, 2**60 - 200]  # a key without a last place
    half = frame["t"] < 2**60 - 50
    start = learn_table(spark.createDataFrame(frame[half]), **COLUMNS, model=MODEL, output="models")
    write_files([frame[~half]], tmp_path / "in")
    _, second = run(spark, tmp_path, "second", start=start)
    found = held(second).drop("never")
    assert (found["vector"] == held(checkpoint).loc[found.index, "vector"]).all()
    assert (found["last"] == frame.groupby("id")["t"].max().drop("never")).all()
    with pytest.raises(PySparkException, match="of another kind"):
        learn_table(
            spark.createDataFrame(frame[~half]), **COLUMNS, model=OnlineHMM(init=poisson()), start=start
        ).collect()


def test_silent_keys_are_forgotten(spark, tmp_path):
    frame = records(5)
    write_files([frame], tmp_path / "in")
    _, lasting = run(spark, tmp_path, "long", forget_after=timedelta(days=1), n_buckets=1)
    assert sorted(held(lasting)["n_samples_seen"]) == sorted(frame.groupby("id").size())
    run(spark, tmp_path, "short", forget_after=timedelta(milliseconds=1), n_buckets=1)
    (tmp_path / "in" / "0000.parquet").rename(tmp_path / "seen.parquet")
    frame.assign(t=frame["t"] + 10_000).head(50).to_parquet(tmp_path / "in" / "0001.parquet")
    assert held(str(tmp_path / "short")).empty
    rows, _ = run(spark, tmp_path, "short", forget_after=timedelta(milliseconds=1), n_buckets=1)
    again = rows[rows["t"] > 5_000].sort_values(["id", "t"])
    fresh = learn_table(spark.createDataFrame(frame.head(50)), **COLUMNS, model=MODEL).toPandas()
    fresh = fresh.sort_values(["id", "t"])
    np.testing.assert_array_equal(np.stack(again["probabilities"]), np.stack(fresh["probabilities"]))


def test_a_checkpoint_of_other_models_is_refused(spark, learned):
    folder, frame, _, checkpoint = learned
    assert template(checkpoint).init.n_components == 2
    assert template(str(folder / "nothing")) is None
    frame.head(1).assign(t=9999).to_parquet(folder / "in" / "9999.parquet")
    for changed in ({"model": OnlineHMM(init=paper_start(), n_min=100)}, {"n_buckets": 1000}):
        with pytest.raises(PySparkException, match="other settings, from another start or in another number"):
            run(spark, folder, "three", **changed)
    with pytest.raises(ValueError, match="is a function, which a file cannot hold"):
        learn_stream(stream(spark, folder), **COLUMNS, model=OnlineHMM(init=paper_start(), step=lambda n: n**-0.6))


# --- tables ---------------------------------------------------------------------------------------------------------


def poisson():
    return HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Poisson([1.0, 5.0]))


def test_a_table_is_learned_as_the_stream_of_its_rows(spark, learned):
    _, frame, rows, checkpoint = learned
    table = spark.createDataFrame(frame.sample(frac=1, random_state=0))
    shown = learn_table(table, **COLUMNS, model=MODEL).toPandas().sort_values(["id", "t"], ignore_index=True)
    accepted = rows[rows["refused"].isna()].reset_index(drop=True)
    pd.testing.assert_frame_equal(shown, accepted, check_exact=True, check_dtype=False)
    found = learn_table(table, **COLUMNS, model=MODEL, output="models").toPandas().set_index("key").sort_index()
    assert (found["vector"] == held(checkpoint)["vector"]).all()


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_rows_that_cannot_be_learned_are_named(spark, kind):
    """Keys that are numbers, an order in time, and several things that are wrong."""
    times = pd.to_datetime("1969-12-31T21:00:00.000001") + pd.to_timedelta(range(6), "h")
    frame = pd.DataFrame({"id": pd.array([1, 1, 1, None, 2, 2], "Int64"), "v": [1, -1, 3, 4, 2.5, 6], "t": times})
    frame = pd.concat([frame, frame.iloc[[0]], pd.DataFrame({"id": pd.array([2], "Int64"), "v": [1.0], "t": [pd.NaT]})])
    rows = spark.createDataFrame(frame.astype({"id": object}).where(frame.notna(), None), f"id int, v double, t {kind}")
    found = learn_table(rows, **COLUMNS, model=OnlineHMM(init=poisson())).toPandas()
    counts = found["refused"].value_counts().to_dict()
    assert counts == {"impossible": 2, "incomplete": 2, "twice": 1}
    assert found.dtypes["t"].kind == "M"
    assert set(found["t"].dropna()) == set(times)
    kept = learn_table(rows, **COLUMNS, model=OnlineHMM(init=poisson()), output="models").toPandas().set_index("key")
    assert kept["refused"].to_dict() == {1: 2, 2: 2}
    assert kept["n_samples_seen"].to_dict() == {1: 2, 2: 1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": "nobody"}, "no column 'nobody'"),
        ({"key": "v"}, "different columns"),
        ({"value": "id", "key": "t", "order": "v"}, "no number"),
        ({"order": "id", "key": "t"}, "an integer, a double, a date or a timestamp"),
        ({"model": OnlineHMM(init=HMM([1.0], [[1.0]], Gaussian("diag", [[0, 0]], [[1, 1]])))}, "of 2 columns"),
        ({"model": OnlineHMM(init=paper_start(), engine="window")}, "no windows of the past"),
        ({"model": OnlineHMM(init=paper_start(), averaging="refined")}, "no second stage"),
        ({"output": "nonsense"}, "'rows' or 'models'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(spark, changed, message):
    table = spark.createDataFrame([("a", 1.0, 1)], SCHEMA)
    with pytest.raises(ValueError, match=message):
        learn_table(table, **{**COLUMNS, "model": MODEL, **changed})


def test_a_start_is_found_for_all_keys_together(spark):
    frame = records(50, 400)
    frame.loc[[3, 70], "v"] = np.inf  # what would be refused is left out
    table = spark.createDataFrame(frame)
    model = find_start(table, **COLUMNS, model=OnlineHMM(2, Gaussian("tied"), random_state=0))
    np.testing.assert_allclose(model.init.emission.means[:, 0], [0.0, 1.0], atol=0.2)


@pytest.mark.parametrize("settings", [{}, {"method": "recursive", "start": "stationary", "with_first": False}])
def test_batch_em_equals_that_on_one_machine(spark, settings):
    frame = records(40)
    model = BatchHMM(init=paper_start(), n_iter=3, **settings)
    fitted = fit_table(spark.createDataFrame(frame), sequence="id", value="v", order="t", model=model)
    frame = frame.sort_values(["id", "t"])
    alone = BatchHMM(**model.get_params(deep=False))
    alone.fit(frame[["v"]].to_numpy(), lengths=frame.groupby("id").size().to_numpy())
    np.testing.assert_allclose(values(fitted.model_), values(alone.model_), rtol=0, atol=1e-9)
    np.testing.assert_allclose(fitted.model_.startprob, alone.model_.startprob, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fitted.history_, alone.history_, rtol=1e-12)
    np.testing.assert_allclose(fitted.filtered_proba_, alone.filtered_proba_, atol=1e-9)


# --- one model for all ----------------------------------------------------------------------------------------------


def test_one_model_is_learned_from_all_keys(spark, tmp_path):
    """It comes as near as a fleet that sees all rows, and a batch that is repeated changes nothing."""
    frame = records(150, 300)
    first, second, third = cut(frame, 3)
    write_files([first, second, pd.concat([first, second, third])], tmp_path / "in")  # the last brings all again
    output, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    settings = {**COLUMNS, "model": MODEL, "output": output, "checkpoint": checkpoint, "n_buckets": 2}

    def learn():
        query = learn_shared(stream(spark, tmp_path), **settings)
        query.awaitTermination()
        return values(shared_model(checkpoint)), spark.read.parquet(output).toPandas().sort_values(["id", "t"])

    found, rows = learn()
    together = Fleet(init=paper_start(), shared=True).partial_fit(frame[["v"]].to_numpy(), frame["id"].to_numpy())
    truth = values(paper_model())
    assert abs(found - truth).max() < 0.2
    assert abs(found - values(together.model_)).max() < 0.1
    assert rows["refused"].isna().sum() == len(frame)
    assert rows["refused"].notna().sum() == len(first) + len(second)
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    (tmp_path / "checkpoint" / "commits" / ".2.crc").unlink(missing_ok=True)
    (tmp_path / "checkpoint" / "shared" / "2" / "_SUCCESS").unlink()
    again, rows_again = learn()
    np.testing.assert_array_equal(again, found)
    pd.testing.assert_frame_equal(rows_again, rows, check_exact=True)


# --- the job --------------------------------------------------------------------------------------------------------


def test_kills_lose_nothing_and_nothing_is_learned_twice(spark, tmp_path):
    """A Python worker, all processes, the driver: states and output are those of an undisturbed run, bit for bit."""
    assert spark_kill.kill_and_resume(tmp_path, 3, 8, "local-cluster[1,1,1024]")


def test_the_command(spark, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for at, piece in enumerate(cut(records(20, 300), 2)):
        piece.to_csv(tmp_path / "in" / f"{at}.csv", index=False)
    places = [str(tmp_path / name) for name in ("in", "out", "checkpoint")]
    columns = ["--key", "id", "--value", "v", "--order", "t"]
    command = ["spark-learn", *places[:2], *columns, "--checkpoint", places[2], "--buckets", "2"]
    assert main(command) == 0
    assert "20 keys have a model" in capsys.readouterr().err
    assert spark.read.parquet(places[1]).where("refused is null").count() == len(records(20, 300))
    assert main(command) == 0
    assert "Goes on from" in capsys.readouterr().err
    assert main([*command[:2], places[1], "--key", "nobody", *columns[2:], "--checkpoint", places[2]]) == 2
    assert "no column 'nobody'" in capsys.readouterr().err


def test_the_examples_of_the_page_run_in_order(spark, tmp_path):
    namespace = {"__name__": "example"}
    text = PAGE.read_text()
    for name in ("readings", "shown", "checkpoint"):  # Spark looks from where it was started
        text = text.replace(f'"{name}"', repr(str(tmp_path / name)))
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), namespace)


def test_without_java_it_says_what_to_install(monkeypatch):
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(OSError, match="openjdk-17-jre-headless"):
        session()
