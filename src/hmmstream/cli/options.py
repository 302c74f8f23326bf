"""What the command can be told."""

from __future__ import annotations

import argparse
import re
from typing import Any

from hmmstream import __version__
from hmmstream.io import FORMATS

USER_ERROR = 2  # exit code
# Written out, as the families themselves take longer to import than help may take
EMISSIONS = (
    "autoregressive",
    "bernoulli",
    "categorical",
    "exponential",
    "gamma",
    "gaussian",
    "gaussian_mixture",
    "geometric",
    "linear_regression",
    "lognormal",
    "multinomial",
    "negative_binomial",
    "poisson",
    "von_mises",
)

DESCRIPTION = "Hidden Markov models from data that never stops: learned in one pass, in constant memory."
EPILOG = """\
examples:
  hmmstream sample ion-channel -n 200000 -o channel.csv    make a test stream
  hmmstream learn channel.csv --states 3 --checkpoint channel.hmm --plot channel.png
  hmmstream decode channel.hmm channel.csv -o states.csv
  tail -f sensor.csv | hmmstream watch - --states 2 --checkpoint sensor.hmm

exit codes: 0 done, 1 a fault of hmmstream, 2 wrong input or options; 130 or 143 interrupted, what was learned is saved.
'hmmstream COMMAND --help' tells more of each command.
"""
DATA = """\
Files are CSV, TSV, NDJSON, Parquet, Feather or NPY, plain or packed (gzip, zstd); "-" is standard input. Several files
are read as one stream, unless --separate. Empty cells, NA, NaN, null and the like are missing values; empty lines are
left out. Of live streams, and of pipes, only text is read.
"""


def duration_or_count(text: str) -> tuple[str, float]:
    """ "10s" as ("seconds", 10.0), "500" as ("rows", 500.0)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?", text.strip())
    if not match or float(match[1]) <= 0.0 or (match[2] is None and "." in match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a time (10s, 500ms, 5m, 1h) nor a number of rows (1000)")
    if match[2] is None:
        return "rows", float(match[1])
    return "seconds", float(match[1]) * {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[
        match[2]
    ]


def seconds(text: str) -> float:
    """ "10s" as 10.0."""
    kind, amount = duration_or_count(text)
    if kind != "seconds":
        raise argparse.ArgumentTypeError(f"{text!r} is not a time (10s, 500ms, 5m, 24h)")
    return amount


def positive(text: str) -> int:
    """A whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def not_negative(text: str) -> int:
    """A whole number, 0 or more."""
    if not re.fullmatch(r"\d{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


def several(text: str) -> list[int]:
    """Numbers of states: "2,3,5" or "2-5"."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not match or not 1 <= int(match[1]) <= int(match[2] or match[1]) <= 1000:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 2,3,5 or 2-5")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def character(text: str) -> str:
    """One character, tab as \\t too."""
    value = {"\\t": "\t", "tab": "\t"}.get(text, text)
    if len(value) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one character")
    return value


class OneLineParser(argparse.ArgumentParser):
    """Errors take one line."""

    def error(self, message: str) -> Any:
        self.exit(USER_ERROR, f"{self.prog}: {message} ('{self.prog} --help' tells more)\n")


def _group(add: Any) -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    add(parent)
    return parent


def _general(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("general")
    group.add_argument("--quiet", "-q", action="store_true", help="no progress, no table: errors only")
    group.add_argument("--debug", action="store_true", help="show the whole traceback of an error")


def _data(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data", DATA)
    group.add_argument(
        "--column", "-c", action="append", default=[], metavar="NAME", help="a column to read (may be repeated)"
    )
    group.add_argument("--format", choices=FORMATS, help="by default known from the file's first bytes or its name")
    group.add_argument("--delimiter", type=character, metavar="C", help="between columns of text (default: guessed)")
    group.add_argument("--decimal", type=character, default=".", metavar="C", help="decimal sign (default: .)")
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line holds names (default: if it holds anything but numbers)",
    )
    group.add_argument(
        "--missing",
        action="append",
        default=[],
        metavar="VALUE",
        help="also stands for a missing value (may be repeated)",
    )
    group.add_argument(
        "--skip-bad-rows", type=not_negative, default=0, metavar="N", help="leave up to N rows out that cannot be read"
    )


def _files(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    parser.add_argument("files", nargs=nargs, metavar="FILE", help='a table, or "-" for standard input')
    parser.add_argument("--separate", action="store_true", help="each file is a recording of its own")


def _model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--states", "-m", type=positive, metavar="M", help="number of hidden states (default: 2)")
    group.add_argument(
        "--emission",
        "-e",
        metavar="NAME",
        help=f"family of the observations: {', '.join(EMISSIONS)}; with a setting as in gaussian:diag, "
        "categorical:4, gaussian_mixture:3, autoregressive:2 (default: gaussian)",
    )
    group.add_argument("--init", metavar="MODEL", help="a model file to start from (default: found from the data)")
    group.add_argument(
        "--seed", type=not_negative, default=0, metavar="N", help="of the search for a start (default: 0)"
    )


def _results(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("results")
    group.add_argument("--json", metavar="FILE", help='write what was found as JSON ("-": standard output, no table)')
    group.add_argument("--plot", metavar="FILE", help="draw a picture: PNG, SVG or PDF")


def _output(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--output", "-o", default="-", metavar="FILE", help=f"where {what} (default: standard output)")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = OneLineParser(
        prog="hmmstream",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"hmmstream {__version__}")
    commands = top.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    general, data, model, results = (_group(add) for add in (_general, _data, _model, _results))

    def command(name: str, text: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        parents = (*parents, general)
        return commands.add_parser(name, help=text, description=text, parents=parents)  # type: ignore[arg-type]

    every = "how often to save: a time (10s, 500ms, 5m) or a number of rows (default: 10s)"
    learn = command("learn", "Learn a model in one pass over files or a pipe.", data, model, results)
    _files(learn)
    learn.add_argument("--checkpoint", metavar="FILE", help="save there, and go on from there if it exists")
    learn.add_argument("--every", type=duration_or_count, metavar="TIME", help=every)

    watch = command(
        "watch", "Read a live pipe line by line, learn, and write one line of JSON for each observation.", data, model
    )
    watch.add_argument("file", nargs="?", default="-", metavar="FILE", help='"-" for standard input (default)')
    watch.add_argument("--checkpoint", metavar="FILE", help="save there, and go on from there if it exists")
    watch.add_argument(
        "--every",
        type=duration_or_count,
        action="append",
        default=[],
        metavar="N|TIME",
        help="a number: write only every N-th line; a time: how often to save with --checkpoint (default: 10s), and "
        "without it how often to write a line. May be given twice",
    )
    watch.add_argument("--freeze", action="store_true", help="hold the parameters of the model, and only follow")

    fit = command("fit", "Fit a model to a whole record by batch EM (maximum likelihood).", data, model, results)
    _files(fit)
    fit.add_argument("--output", "-o", metavar="FILE", help="save the model there")
    fit.add_argument("--iterations", type=positive, default=100, metavar="N", help="at most (default: 100)")
    fit.add_argument("--restarts", type=positive, default=1, metavar="N", help="starts to try (default: 1)")

    compare = command("compare", "Fit several numbers of states and families, and rank them.", data)
    _files(compare)
    compare.add_argument(
        "--states", "-m", type=several, default=[1, 2, 3, 4], metavar="LIST", help="2,3,5 or 2-5 (1-4)"
    )
    compare.add_argument("--emission", "-e", action="append", default=[], metavar="NAME", help="may be repeated")
    compare.add_argument("--online", action="store_true", help="in one pass and bounded memory, by prediction alone")
    compare.add_argument("--restarts", type=positive, default=1, metavar="N", help="starts of each fit (default: 1)")
    compare.add_argument("--seed", type=not_negative, default=0, metavar="N", help="of the search for starts")
    compare.add_argument("--json", metavar="FILE", help='write the ranking as JSON ("-": standard output, no table)')

    spark = command(
        "spark-learn",
        "Learn a model for each key of the files in a folder, on Spark: exactly once, also if the job is killed and "
        "started again.",
        model,
    )
    spark.add_argument("input", metavar="INPUT", help="a folder of Parquet, CSV (with names) or JSON files")
    spark.add_argument("output", metavar="OUTPUT", help="a folder: what each row shows, as Parquet")
    spark.add_argument("--key", required=True, metavar="COLUMN", help="which stream a row is of")
    spark.add_argument("--value", required=True, action="append", metavar="COLUMN", help="observed (may be repeated)")
    spark.add_argument("--order", required=True, metavar="COLUMN", help="puts the rows of a key in order")
    spark.add_argument("--checkpoint", required=True, metavar="FOLDER", help="the models; goes on from them if there")
    spark.add_argument("--format", choices=("parquet", "csv", "json"), help="by default known from the files' names")
    spark.add_argument("--schema", metavar="DDL", help="such as 'id string, t bigint, v double' (default: guessed)")
    spark.add_argument("--every", type=seconds, metavar="TIME", help="wait for more files, a batch each time (10s, 5m)")
    spark.add_argument("--files-per-batch", type=positive, default=100, metavar="N", help="at most (default: 100)")
    spark.add_argument("--forget-after", type=seconds, metavar="TIME", help="forget keys silent for so long (24h, 7d)")
    spark.add_argument("--buckets", type=positive, metavar="N", help="of keys (default: 64)")
    spark.add_argument(
        "--master", metavar="URL", help="where to run (default: as spark-submit says, or all cores here)"
    )

    for name, text, what in (
        ("filter", "State probabilities of each row, given the rows up to it.", "probabilities go"),
        ("smooth", "State probabilities of each row, given all rows: sees the future.", "probabilities go"),
        ("decode", "The most probable sequence of states, given all rows: sees the future.", "states go"),
        ("score", "How probable rows are under a model: log-likelihood, AIC, BIC.", "the result goes"),
    ):
        inference = command(name, text, data)
        inference.add_argument("model", metavar="MODEL", help="a model file")
        _files(inference)
        _output(inference, what)

    forecast = command("forecast", "What comes next: states and observations, step by step.", data)
    forecast.add_argument("model", metavar="MODEL", help="a model file")
    _files(forecast, "*")
    forecast.add_argument("--horizon", "-n", type=positive, default=10, metavar="H", help="steps ahead (default: 10)")
    _output(forecast, "the forecast goes")

    sample = command("sample", "Simulate a stream, from a model file or a named example: paper, ion-channel.")
    sample.add_argument("model", metavar="MODEL", help="a model file, or one of: paper, ion-channel")
    sample.add_argument("--rows", "-n", type=positive, default=1000, metavar="N", help="how many (default: 1000)")
    sample.add_argument("--seed", type=not_negative, default=0, metavar="N", help="of the random numbers (default: 0)")
    sample.add_argument("--with-states", action="store_true", help="also write the hidden states")
    sample.add_argument("--rate", type=float, metavar="R", help="write only R rows a second, as a live source would")
    sample.add_argument("--save", metavar="FILE", help="save the model of the example there")
    _output(sample, "the rows go")

    info = command("info", "What a model file holds.")
    info.add_argument("model", metavar="MODEL", help="a model file")
    info.add_argument("--json", metavar="FILE", help='write it as JSON ("-": standard output, no table)')

    plot = command("plot", "Draw a model: parameters, states, transitions, densities.", data)
    plot.add_argument("model", metavar="MODEL", help="a model file")
    _files(plot, "*")
    plot.add_argument("--output", "-o", required=True, metavar="FILE", help="PNG, SVG or PDF")
    return top
