"""The command: what it is told, what it finds, how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hmmstream
from hmmstream import HMM, BatchHMM, Gaussian, OnlineHMM
from hmmstream.checkpoint import load_with_notes
from hmmstream.cli import main
from hmmstream.cli.options import EMISSIONS
from hmmstream.cli.work import EMISSION_CLASSES, Stop, Stopped, Work, emission_of
from hmmstream.examples import EXAMPLES

COMMANDS = ["learn", "watch", "fit", "compare", "filter", "smooth", "decode", "score", "forecast", "sample", "info"]
START = ["--init", "start.hmm"]  # a model to start from: nothing is searched for, which saves time


@pytest.fixture(scope="module")
def stream():
    return EXAMPLES["paper"].model.sample(3000, 0)[0]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, stream):
    """A folder to work in, with a stream and a model to start from."""
    monkeypatch.chdir(tmp_path)
    np.savetxt("data.csv", stream, header="y", comments="")
    guess = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2.0))
    hmmstream.save(guess, "start.hmm")
    return tmp_path


def run(*arguments, code=0):
    assert main([str(argument) for argument in arguments]) == code


def process(*arguments, **settings):
    """The command as a process of its own."""
    command = [sys.executable, "-m", "hmmstream", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **settings)


def wait_for(path):
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.02)


# --- as a whole -----------------------------------------------------------------------------------------------------


def test_help_comes_at_once():
    """In not much more time than NumPy takes to import, as nothing heavy is imported, not even NumPy."""

    def seconds(*command):
        times = []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            times.append(time.perf_counter() - began)
        return min(times)

    assert seconds("-m", "hmmstream", "--help") < 1.5 * seconds("-c", "import numpy")
    script = "import sys, hmmstream.cli; print({'numpy', 'numba', 'sklearn', 'pyarrow', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("command", [*COMMANDS, "plot"])
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert "usage: hmmstream" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["lern", "data.csv"],
        ["learn"],
        ["learn", "data.csv", "--states", "0"],
        ["learn", "data.csv", "--every", "soon"],
        ["learn", "data.csv", "--every", "1.5"],
        ["compare", "data.csv", "--states", "4-2"],
        ["plot", "model.hmm"],
    ],
)
def test_wrong_options_take_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["learn", "absent.csv"], "there is no file absent.csv"),
        (["learn", "data.csv", "absent.csv"], "there is no file absent.csv"),
        (["learn", "data.csv", "--column", "x"], "no column 'x'. There is: y."),
        (["learn", "data.csv", "--emission", "gausian"], "no emission 'gausian'"),
        (["learn", "data.csv", "--emission", "gaussian:round"], "'round' is not a setting of gaussian"),
        (
            ["learn", "data.csv", "--emission", "poisson"],
            r"data\.csv, line \d+, column y: the value is .*Poisson expects",
        ),
        (["learn", "data.csv", "--checkpoint", "no/where.hmm"], "cannot be written"),
        (["learn", "data.csv", "--checkpoint", "data.csv"], "data.csv is not a model file"),
        (["learn", "data.csv", "--checkpoint", "start.hmm"], "does not learn: use it with --init"),
        (["learn", "data.csv", *START, "--states", "3"], "start.hmm has 2 states, not 3"),
        (["learn", "data.csv", "data.csv"], "data.csv is given twice"),
        (["learn", "data.csv", "--checkpoint", "."], "is a folder"),
        (["learn", "data.csv", "--json", "no/where.json"], "no/where.json cannot be written"),
        (["learn", "data.csv", "--plot", "picture.bmp"], "ends in .png"),
        (["fit", "data.csv", "-o", "no/where.hmm"], "no/where.hmm cannot be written"),
        (["watch", "start.hmm"], "line 1"),
        (["sample", "paper", "--rate", "inf"], "--rate"),
        (["watch", "data.csv", "--freeze"], "--freeze needs a model"),
        (["fit", "data.csv", "--emission", "bernoulli"], "Bernoulli expects"),
        (["decode", "absent.hmm", "data.csv"], "there is no file absent.hmm"),
        (["sample", "papper"], "there is no file papper"),
        (["plot", "start.hmm", "-o", "picture.bmp"], r"\.png, \.svg, \.pdf"),
    ],
)
def test_errors_take_one_line_and_say_what_is_wrong(arguments, message, capsys):
    before = sorted(os.listdir())
    run(*arguments, code=2)
    error = capsys.readouterr().err.strip().splitlines()[-1:]
    assert error[0].startswith("hmmstream: ")
    assert re.search(message, error[0]), error
    assert sorted(os.listdir()) == before
    with pytest.raises((ValueError, OSError)):
        main([*arguments, "--debug"])


# --- learning -------------------------------------------------------------------------------------------------------


def test_learn_does_what_the_estimator_does(stream, capsys):
    run("learn", "data.csv", *START, "--checkpoint", "m.hmm", "--json", "m.json", "--plot", "m.png")
    start = hmmstream.load("start.hmm")
    direct = OnlineHMM(init=start).partial_fit(stream)
    learned = hmmstream.load("m.hmm")
    assert learned._learner.vector.tobytes() == direct._learner.vector.tobytes()
    assert list(learned.feature_names_in_) == ["y"]
    found = json.loads(Path("m.json").read_text())
    assert found["transmat"] == direct.transmat_.tolist()
    assert found["emission"]["means"] == direct.means_.tolist()
    assert found["standard_errors"]["means"] == learned.standard_errors()["means"].tolist()
    assert found["rows"] == 3000
    assert np.allclose(found["dwell_times"], 1 / (1 - np.diag(direct.transmat_)))
    assert np.allclose(found["occupancy"], direct.model_.stationary_distribution())
    assert found["log_likelihood"] == direct.log_likelihood_
    table = capsys.readouterr().out
    assert "±" in table
    assert f"{direct.log_likelihood_:,.2f}" in table
    assert Path("m.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_is_found_without_any_options(capsys):
    run("sample", "ion-channel", "-n", 20_000, "-o", "channel.csv", "--with-states")
    run("learn", "channel.csv", "--column", "current", "--states", 3, "--json", "-")
    found = json.loads(capsys.readouterr().out)
    truth = EXAMPLES["ion-channel"].model.emission.means[:, 0]
    assert np.allclose(np.ravel(found["emission"]["means"]), truth, atol=0.1)


def test_all_families_can_be_named():
    assert sorted(EMISSION_CLASSES) == list(EMISSIONS)
    assert emission_of("gaussian") == "gaussian"
    assert repr(emission_of("gaussian:tied")) == "Gaussian('tied')"
    assert emission_of("autoregressive:3").n_lags == 3
    assert emission_of("categorical:4").n_categories == 4


def test_several_files_are_one_stream_or_separate_recordings(stream):
    np.savetxt("a.csv", stream[:1000], header="y", comments="")
    np.savetxt("b.csv", stream[1000:], header="y", comments="")
    run("learn", "a.csv", "b.csv", *START, "-q", "--checkpoint", "both.hmm")
    run("learn", "data.csv", *START, "-q", "--checkpoint", "one.hmm")
    run("learn", "a.csv", "b.csv", "--separate", *START, "-q", "--checkpoint", "separate.hmm")
    both, one, separate = (hmmstream.load(f"{name}.hmm")._learner.vector for name in ("both", "one", "separate"))
    start = hmmstream.load("start.hmm")
    apart = OnlineHMM(init=start).partial_fit(stream[:1000]).end_sequence().partial_fit(stream[1000:])
    assert both.tobytes() == one.tobytes()
    assert separate.tobytes() == apart._learner.vector.tobytes() != one.tobytes()


def test_the_same_command_goes_on_and_says_how_many_rows_it_skips(stream, capsys):
    lines = Path("data.csv").read_text().splitlines(keepends=True)
    Path("part.csv").write_text("".join(lines[:1001]))
    run("learn", "part.csv", *START, "--checkpoint", "m.hmm")
    capsys.readouterr()
    with open("part.csv", "a") as file:
        file.writelines(lines[1001:])
    run("learn", "part.csv", *START, "--checkpoint", "m.hmm")
    assert "skips 1,000 rows of part.csv" in capsys.readouterr().err
    whole = OnlineHMM(init=hmmstream.load("start.hmm")).partial_fit(stream)
    assert hmmstream.load("m.hmm")._learner.vector.tobytes() == whole._learner.vector.tobytes()
    before = Path("m.hmm").read_bytes()
    run("learn", "part.csv", "--checkpoint", "m.hmm", "-q")  # nothing is new
    assert Path("m.hmm").read_bytes() == before
    for wrong, message in [
        (["--states", "3"], "has 2 states, not 3"),
        (["--emission", "poisson"], "begun with emission"),
        (["--column", "x"], "has learned from y"),
    ]:
        run("learn", "part.csv", "--checkpoint", "m.hmm", *wrong, code=2)
        assert message in capsys.readouterr().err
    Path("part.csv").write_text("".join(lines[1:1001]))
    run("learn", "part.csv", "--checkpoint", "m.hmm", code=2)
    assert Path("m.hmm").read_bytes() == before


def test_bad_rows_are_counted_and_reported(stream, capsys):
    lines = Path("data.csv").read_text().splitlines()
    clean = "\n".join(lines[:501]) + "\n"
    lines[100:100] = ["broken"]
    lines[200:200] = ["inf"]
    Path("bad.csv").write_text("\n".join(lines[:503]) + "\n")
    run("learn", "bad.csv", *START, "--checkpoint", "m.hmm", code=2)
    assert "bad.csv, line 101, column y: 'broken'" in capsys.readouterr().err
    run("learn", "bad.csv", *START, "--checkpoint", "m.hmm", "--skip-bad-rows", 1, code=2)
    assert "line 201, column y: the value is inf" in capsys.readouterr().err
    assert not os.path.exists("m.hmm")
    run("learn", "bad.csv", *START, "--checkpoint", "m.hmm", "--skip-bad-rows", 2)
    assert "2 bad rows were left out" in capsys.readouterr().out
    Path("clean.csv").write_text(clean)
    run("learn", "clean.csv", *START, "--checkpoint", "clean.hmm", "-q")
    vectors = [hmmstream.load(f"{name}.hmm")._learner.vector.tobytes() for name in ("m", "clean")]
    assert vectors[0] == vectors[1]
    run("learn", "bad.csv", *START, "--missing", "broken", "--missing", "inf", "--json", "-")
    assert json.loads(capsys.readouterr().out)["rows"] == 502


def test_no_notice_comes_after_an_error():
    Path("bad.csv").write_text("y\n0.1\nbroken\n")
    run("learn", "bad.csv", *START, code=2)
    assert not any(
        isinstance(thread, threading.Timer) and not thread.finished.is_set() for thread in threading.enumerate()
    )


def test_quiet_is_quiet(capfd):
    run("learn", "data.csv", *START, "--quiet", "--checkpoint", "m.hmm")
    run("learn", "data.csv", *START, "--quiet", "--checkpoint", "m.hmm")
    assert capfd.readouterr() == ("", "")


def test_fit_is_batch_em(stream, capsys):
    run("fit", "data.csv", *START, "--iterations", 500, "-o", "fit.hmm", "--json", "fit.json", "--plot", "fit.svg")
    direct = BatchHMM(init=hmmstream.load("start.hmm"), n_iter=500).fit(stream)
    saved = hmmstream.load("fit.hmm")
    assert repr(saved.model_) == repr(direct.model_)
    found = json.loads(Path("fit.json").read_text())
    assert found["bic"] == direct.bic(stream)
    assert "±" in capsys.readouterr().out
    assert "<svg" in Path("fit.svg").read_text()


def test_compare_ranks_the_true_number_of_states_first(capsys):
    run("compare", "data.csv", "--states", "1-2", "--emission", "gaussian:tied", "--json", "compare.json")
    table = capsys.readouterr().out.splitlines()
    models = json.loads(Path("compare.json").read_text())["models"]
    assert models[0]["states"] == 2
    assert [model["bic"] for model in models] == sorted(model["bic"] for model in models)
    best = max(models, key=lambda model: model["predictive"])
    assert best["predictive_rank"] == 1
    assert best["states"] == 2
    assert len(table) > 5


def test_compare_in_one_pass(capsys):
    run("compare", "data.csv", "--states", "1-2", "--emission", "gaussian:tied", "--online", "--json", "compare.json")
    table = capsys.readouterr().out
    found = json.loads(Path("compare.json").read_text())
    assert found["compared"] % 256 == 0
    assert [model["states"] for model in found["models"]] == [2, 1]
    assert found["models"][0]["behind"] == 0.0 < found["models"][1]["behind"]
    assert "behind, a row" in table


# --- using a model --------------------------------------------------------------------------------------------------


def columns(path):
    table = np.genfromtxt(path, delimiter=",", names=True)
    return {name: table[name] for name in table.dtype.names}


def test_states_are_told_as_the_model_tells_them(stream, monkeypatch, capsys):
    monkeypatch.setattr("hmmstream.io.reading.BLOCK_BYTES", 5000)  # many chunks
    model = EXAMPLES["paper"].model
    run("sample", "paper", "--save", "paper.hmm", "-o", "x.csv")
    for command in ("filter", "smooth", "decode", "score"):
        run(command, "paper.hmm", "data.csv", "-o", f"{command}.csv")
    filtered, smoothed, path = columns("filter.csv"), columns("smooth.csv"), columns("decode.csv")
    assert np.allclose(np.c_[filtered["p0"], filtered["p1"]], model.filter(stream), rtol=0, atol=1e-12)
    assert np.allclose(np.c_[smoothed["p0"], smoothed["p1"]], model.smooth(stream), rtol=0, atol=1e-12)
    assert (smoothed["state"] == model.smooth(stream).argmax(axis=1)).all()
    assert (path["state"] == model.decode(stream)[1]).all()
    score = json.loads(Path("score.csv").read_text())
    assert np.isclose(score["log_likelihood"], model.log_likelihood(stream), rtol=1e-12)
    assert np.isclose(score["bic"], model.bic(stream), rtol=1e-12)
    run("fit", "data.csv", *START, "--iterations", 3, "-o", "fit.hmm", "--json", "fit.json", "-q")
    run("score", "fit.hmm", "data.csv", "-o", "score.json")
    fitted, scored = (json.loads(Path(name).read_text()) for name in ("fit.json", "score.json"))
    assert np.isclose(fitted["bic"], scored["bic"], rtol=1e-9)
    capsys.readouterr()
    run("forecast", "paper.hmm", "data.csv", "--horizon", 3, "-o", "forecast.csv")
    ahead = model.forecast(3, model.filter(stream)[-1])
    assert np.allclose(columns("forecast.csv")["mean_1"], ahead.mean[:, 0])
    run("filter", "paper.hmm", "data.csv", "data.csv", "--separate", "-o", "twice.csv")
    assert np.allclose(columns("twice.csv")["p0"][3000:], filtered["p0"])


def test_an_autoregression_is_followed_across_chunks(monkeypatch):
    monkeypatch.setattr("hmmstream.io.reading.BLOCK_BYTES", 300)
    family = hmmstream.AutoRegressive(coefficients=[[0.9], [-0.5]], intercepts=[0.0, 1.0], variances=[1.0, 0.5])
    model = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], family)
    X, _ = model.sample(200, 0)
    np.savetxt("ar.csv", X, header="y", comments="", fmt="%.17g")
    hmmstream.save(model, "ar.hmm")
    run("filter", "ar.hmm", "ar.csv", "-o", "out.csv")
    assert np.allclose(columns("out.csv")["p0"], model.filter(X)[:, 0], rtol=0, atol=1e-12)


def test_a_model_reads_the_columns_it_has_learned_from(capsys):
    rng = np.random.default_rng(0)
    Path("a.csv").write_text("t,y\n" + "".join(f"{t},{y}\n" for t, y in enumerate(rng.normal(size=200))))
    run("learn", "a.csv", "--column", "y", *START, "--checkpoint", "m.hmm", "-q")
    run("score", "m.hmm", "a.csv")
    assert json.loads(capsys.readouterr().out)["rows"] == 200
    run("forecast", "m.hmm", "-n", 2)
    assert "mean_y" in capsys.readouterr().out


def test_info_and_plot_show_what_a_file_holds(capsys):
    run("learn", "data.csv", *START, "--checkpoint", "m.hmm", "-q")
    run("info", "m.hmm")
    assert "OnlineHMM of 2 states, 3,000 rows learned, columns y" in capsys.readouterr().out
    run("info", "m.hmm", "--json", "-")
    assert json.loads(capsys.readouterr().out)["n_states"] == 2
    run("plot", "m.hmm", "-o", "m.pdf")
    run("plot", "start.hmm", "data.csv", "-o", "start.png")
    assert Path("m.pdf").read_bytes().startswith(b"%PDF")


def test_samples_come_in_any_format_and_always_the_same(capsys):
    run("sample", "paper", "-n", 5, "--with-states")
    first = capsys.readouterr().out
    run("sample", "paper", "-n", 5, "--with-states")
    assert capsys.readouterr().out == first
    assert first.splitlines()[0] == "y,state"
    assert len(first.splitlines()) == 6
    run("sample", "paper", "-n", 5, "-o", "x.npy")
    X, _ = EXAMPLES["paper"].model.sample(5, 0)
    assert (np.load("x.npy") == X).all()
    began = time.monotonic()
    run("sample", "paper", "-n", 20, "--rate", 50)
    assert time.monotonic() - began > 0.35


# --- watching -------------------------------------------------------------------------------------------------------


def test_watch_tells_what_the_estimator_finds(stream, capsys):
    run("watch", "data.csv", *START, "--checkpoint", "m.hmm")
    out, err = capsys.readouterr()
    told = [json.loads(line) for line in out.splitlines()]
    assert [line["row"] for line in told] == list(range(1, 3001))
    hmm = OnlineHMM(init=hmmstream.load("start.hmm"))
    for x, line in zip(stream[:300], told, strict=False):
        peek = hmm.peek(x)
        hmm.learn_one(x)
        assert line["probabilities"] == hmm.filtered_proba_.tolist() == peek.filtered_proba.tolist()
        assert line["state"] == hmm.filtered_proba_.argmax()
        assert line["surprise"] == -peek.log_density
        ahead = hmm.last_model_.forecast(1, hmm.filtered_proba_)
        assert line["forecast"] == {"mean": ahead.mean[0].tolist(), "sd": np.sqrt(ahead.variance[0]).tolist()}
    assert "accounted for 3,000 rows" in err
    learned = OnlineHMM(init=hmmstream.load("start.hmm")).partial_fit(stream)
    assert hmmstream.load("m.hmm")._learner.vector.tobytes() == learned._learner.vector.tobytes()


def test_watch_goes_on_thins_and_leaves_bad_lines_out(stream, capsys):
    lines = Path("data.csv").read_text().splitlines(keepends=True)
    Path("live.csv").write_text("".join([*lines[:101], "oops\n"]))
    run("watch", "live.csv", *START, "--checkpoint", "m.hmm", "--skip-bad-rows", 1, "--every", 50)
    out, err = capsys.readouterr()
    assert [json.loads(line)["row"] for line in out.splitlines()] == [50, 100]
    assert "1 bad rows were left out" in err
    with open("live.csv", "a") as file:
        file.writelines(lines[101:])
    run("watch", "live.csv", *START, "--checkpoint", "m.hmm", "--every", 1000)
    out, err = capsys.readouterr()
    assert "skips 100 rows of live.csv" in err
    assert [json.loads(line)["row"] for line in out.splitlines()] == [1000, 2000, 3000]
    learned = OnlineHMM(init=hmmstream.load("start.hmm")).partial_fit(stream)
    assert hmmstream.load("m.hmm")._learner.vector.tobytes() == learned._learner.vector.tobytes()
    before = Path("m.hmm").read_bytes()
    Path("live.csv").write_text("".join([*lines, "oops\n"]))
    run("watch", "live.csv", "--checkpoint", "m.hmm", code=2)
    assert Path("m.hmm").read_bytes() == before


def test_a_family_that_grows_is_watched(capsys):
    Path("symbols.csv").write_text("s\n" + "1\n0\n1\n0\n" * 4 + "2\n")
    run("watch", "symbols.csv", "--emission", "categorical", "--every", 17)
    assert json.loads(capsys.readouterr().out)["surprise"] is None


def test_a_signal_in_the_middle_of_a_row_loses_none(monkeypatch, stream):
    from hmmstream.io.parsing import LineParser

    parse = LineParser.row

    def interrupted(self, line, number):
        if number == 1000:
            signal.raise_signal(signal.SIGTERM)
        return parse(self, line, number)

    with monkeypatch.context() as patch:
        patch.setattr(LineParser, "row", interrupted)
        run("watch", "data.csv", *START, "--checkpoint", "m.hmm", "-q", code=143)
    run("watch", "data.csv", "--checkpoint", "m.hmm", "-q")
    learned = OnlineHMM(init=hmmstream.load("start.hmm")).partial_fit(stream)
    assert hmmstream.load("m.hmm")._learner.vector.tobytes() == learned._learner.vector.tobytes()


def test_bad_rows_are_counted_once_however_often_learning_is_resumed(monkeypatch):
    monkeypatch.setattr("hmmstream.io.reading.BLOCK_BYTES", 300)
    lines = Path("data.csv").read_text().splitlines(keepends=True)[:401]
    for at in range(30, 400, 20):
        lines[at : at + 1] = [lines[at], "oops\n" if at % 40 else "inf\n"]
    Path("bad.csv").write_text("".join(lines))
    teach = Work.teach
    n_taught = 0

    def stopped(self, source, chunk):
        nonlocal n_taught
        teach(self, source, chunk)
        n_taught += 1
        if n_taught % 7 == 0:
            signal.raise_signal(signal.SIGTERM)

    command = ["learn", "bad.csv", *START, "--checkpoint", "m.hmm", "-q", "--skip-bad-rows"]
    with monkeypatch.context() as patch:
        patch.setattr(Work, "teach", stopped)
        while main([*command, "19"]) == 143:
            pass
    assert load_with_notes("m.hmm")[1]["bad_rows"] == 19
    os.remove("m.hmm")
    with monkeypatch.context() as patch:
        patch.setattr(Work, "teach", stopped)
        codes = []
        while not codes or codes[-1] == 143:
            codes.append(main([*command, "18"]))
    assert codes[-1] == 2


def test_many_refused_rows_take_little_time():
    Path("inf.csv").write_text("y\n" + "0.5\n1e999\n" * 20_000)
    began = time.monotonic()
    run("learn", "inf.csv", *START, "-q", "--skip-bad-rows", 20_000)
    assert time.monotonic() - began < 20.0  # it was minutes when each looked at all the others


def test_a_model_that_was_frozen_learns_again():
    run("learn", "data.csv", *START, "--checkpoint", "m.hmm", "-q")
    Path("more.csv").write_text("y\n" + "0.1\n" * 50)
    run("watch", "more.csv", "--checkpoint", "m.hmm", "--freeze", "-q")
    Path("other.csv").write_text("y\n" + "0.2\n" * 50)
    before = hmmstream.load("m.hmm").last_model_
    run("learn", "other.csv", "--checkpoint", "m.hmm", "-q")
    assert repr(hmmstream.load("m.hmm").last_model_) != repr(before)


def test_pipes_are_written_to_and_not_replaced():
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    run("info", "start.hmm", "--json", "pipe", "-q")
    out, _ = reader.communicate(timeout=20)
    assert json.loads(out)["n_states"] == 2
    assert not os.path.isfile("pipe")


def test_results_are_not_written_over_their_input_before_it_is_read():
    run("filter", "start.hmm", "data.csv", "-o", "data.csv")
    assert len(Path("data.csv").read_text().splitlines()) == 3001
    Path("empty.csv").write_text("y\n")
    run("filter", "start.hmm", "empty.csv", "-o", "data.csv", code=2)
    assert len(Path("data.csv").read_text().splitlines()) == 3001


@pytest.mark.parametrize("command", ["learn", "watch"])
def test_a_pipe_that_brings_nothing_can_be_left(command):
    """Also when it has brought the header, and half a line."""
    left = process(command, "-", *START, "--checkpoint", "m.hmm", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    left.stdin.write("y\n0.")
    left.stdin.flush()
    time.sleep(3.0)
    left.send_signal(signal.SIGTERM)
    _, err = left.communicate(timeout=30)
    assert left.returncode in (143, -15)  # the second if it was still being imported
    assert "Traceback" not in err
    assert not os.path.exists("m.hmm")


def test_a_frozen_model_is_followed_and_not_changed(stream, capsys):
    run("watch", "data.csv", *START, "--freeze", "--every", 3000)
    told = json.loads(capsys.readouterr().out)
    assert np.allclose(told["probabilities"], hmmstream.load("start.hmm").filter(stream)[-1], rtol=0, atol=1e-12)


def test_a_live_pipe_is_answered_line_by_line_and_saved_while_it_is_idle():
    watch = process(
        "watch", "-", *START, "--checkpoint", "m.hmm", "--every", "100ms", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for text in ("y\n", "0.5\n"):
        watch.stdin.write(text)
        watch.stdin.flush()
    assert json.loads(watch.stdout.readline())["row"] == 1
    wait_for("m.hmm")
    assert load_with_notes("m.hmm")[0].n_samples_seen_ == 1
    watch.stdin.write("1.5\n")
    watch.stdin.flush()
    assert json.loads(watch.stdout.readline())["row"] == 2
    watch.send_signal(signal.SIGTERM)
    _, err = watch.communicate(timeout=30)
    assert watch.returncode == 128 + signal.SIGTERM
    assert "stopped after 2 rows, saved in m.hmm" in err
    again = process("watch", "-", "--checkpoint", "m.hmm", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, err = again.communicate("0.5\n", timeout=60)
    assert "has accounted for 2 rows" in err
    assert json.loads(out)["row"] == 3


def test_a_reader_that_leaves_ends_watch_without_a_word():
    watch = process("watch", "data.csv", *START, "--checkpoint", "m.hmm", stdout=subprocess.PIPE)
    watch.stdout.readline()
    watch.stdout.close()
    err = watch.stderr.read()
    assert watch.wait(timeout=60) == 141
    assert "Traceback" not in err
    watch.stderr.close()
    assert hmmstream.load("m.hmm").n_samples_seen_ > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_learning_with_the_chunk_and_saves(number):
    reading, writing = os.pipe()
    learn = process("learn", "-", *START, "--checkpoint", "m.hmm", "--every", 1, stdin=reading, stdout=subprocess.PIPE)
    os.close(reading)
    os.write(writing, Path("data.csv").read_bytes()[:20_000])
    wait_for("m.hmm")
    learn.send_signal(number)
    try:
        out, err = learn.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        learn.kill()
        out, err = learn.communicate()
    os.close(writing)
    assert learn.returncode == 128 + number
    assert "saved in m.hmm; the same command goes on from there" in err
    assert hmmstream.load("m.hmm").n_samples_seen_ > 0
    assert ("rows learned" in out) == (number == signal.SIGINT)


def test_a_signal_that_does_not_interrupt_the_call_that_waits_is_heard():
    """One that comes a moment before the call begins, or, as here, to another thread."""
    reading, writing = os.pipe()
    signals = [
        threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)),
        threading.Timer(10.0, os.write, (writing, b"too late")),
    ]
    began = time.monotonic()
    with Stop() as stop:
        for timer in signals:
            timer.start()
        with pytest.raises(Stopped), stop.waiting():
            os.read(reading, 1)
    assert time.monotonic() - began < 5.0
    for timer in signals:
        timer.cancel()
        timer.join()
    os.close(reading)
    os.close(writing)
    assert stop.exit_code == 128 + signal.SIGTERM


# --- broken input ---------------------------------------------------------------------------------------------------

CELLS = st.one_of(
    st.floats().map(repr),
    st.sampled_from(["", "NA", "x", "1,2", '"', "\x00", "1e999", "-", "{", "nan", "ä", "\t", "0x1p3"]),
)


@pytest.mark.parametrize("command", ["learn", "watch"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(CELLS, max_size=30), broken=st.sampled_from(["oops", "inf", "1;2;3,4", '"', "5,6"]))
def test_broken_input_never_touches_the_checkpoint(command, rows, broken, capfd):
    """Whatever else is in the file: exit code 2, one line, and the checkpoint as it was."""
    if not os.path.exists("fuzz.hmm"):
        run("learn", "data.csv", *START, "--checkpoint", "fuzz.hmm", "-q")
    before = Path("fuzz.hmm").read_bytes()
    Path("broken.csv").write_text("\n".join(["y", "1.0", *rows, broken]) + "\n", encoding="utf-8")
    capfd.readouterr()
    run(command, "broken.csv", "--checkpoint", "fuzz.hmm", "-q", code=2)
    _, err = capfd.readouterr()
    assert len(err.splitlines()) == 1
    assert err.startswith("hmmstream: broken.csv")
    assert Path("fuzz.hmm").read_bytes() == before


def test_without_pyspark_the_command_says_what_to_install(monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith(("hmmstream.spark", "hmmstream.cli.spark"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    columns = ["--key", "k", "--value", "v", "--order", "t"]
    assert main(["spark-learn", "in", "out", *columns, "--checkpoint", "there"]) == 2
    assert "pip install 'hmmstream[spark]'" in capsys.readouterr().err


def test_the_suite_can_be_run_without_pyspark():
    """Examples are looked for in all modules, and those on Spark cannot be imported."""
    code = "import sys, pytest; sys.modules['pyspark'] = None; sys.exit(pytest.main(['--collect-only', '-q', 'src']))"
    root = Path(__file__).parent.parent
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "src/hmmstream/model.py" in run.stdout
    assert "hmmstream/spark" not in run.stdout
