"""The commands that use a model: to tell states, to score, to forecast, to simulate, to show it."""

from __future__ import annotations

import math
import os
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import tee
from typing import Any

import numpy as np

from hmmstream import checkpoint, inference, plotting
from hmmstream.arrays import FloatArray, RefusedError
from hmmstream.cli import report
from hmmstream.cli.learning import tell
from hmmstream.cli.work import ModelFile, check_outputs, check_picture, read_all, say, tables
from hmmstream.examples import EXAMPLES, Example
from hmmstream.io.parsing import InputError, Reading
from hmmstream.io.reading import Table
from hmmstream.io.whole import write_whole
from hmmstream.io.writing import Writer

RATED_ROWS = 100  # with a rate, pauses are at least so long that they can be kept: 1/100 s


def filter(options: Namespace) -> None:
    """State probabilities, given the rows so far, in bounded memory."""
    check_outputs(options.output)
    file = ModelFile(options.model)
    n = 0
    with Writer(options.output) as writer:
        for X, filtered, _ in followed(options, file, file.read(options)):
            writer.write(probabilities(filtered))
            n += len(X)
        if not n:
            raise InputError("there are no rows to tell the states of")


def followed(
    options: Namespace, file: ModelFile, reading: Reading
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Rows, filtered probabilities and log predictive densities of all rows, chunk by chunk."""

    def rows(every: Iterable[Table]) -> Iterator[FloatArray]:
        for table in every:
            for chunk in table.chunks():
                if chunk is None:
                    continue
                try:
                    inference.record(file.model.emission, chunk.X)
                except RefusedError as error:
                    where = f"{table.source}, {chunk.line(error.row)}"
                    raise InputError(f"{where}: the value is {error.value:g}: {error.reason}") from None
                yield chunk.X

    every = (table for _, table in tables(options, reading))
    for recording in ([table] for table in every) if options.separate else [every]:
        for_model, for_caller = tee(rows(recording))
        for X, found in zip(for_caller, inference.follow(file.model, for_model), strict=True):
            yield X, *found


def probabilities(proba: FloatArray) -> dict[str, Any]:
    """Columns of a table of states."""
    return {"state": proba.argmax(axis=1)} | {f"p{state}": proba[:, state] for state in range(proba.shape[1])}


def smooth(options: Namespace) -> None:
    """State probabilities, given all rows."""
    check_outputs(options.output)
    file = ModelFile(options.model)
    X, lengths, _ = read_all(options, file.read(options))
    with Writer(options.output) as writer:
        writer.write(probabilities(file.model.smooth(X, lengths)))


def decode(options: Namespace) -> None:
    """The most probable sequence of states."""
    check_outputs(options.output)
    file = ModelFile(options.model)
    X, lengths, _ = read_all(options, file.read(options))
    log_probability, states = file.model.decode(X, lengths)
    with Writer(options.output) as writer:
        writer.write({"state": states})
    say(options, f"log-probability {log_probability:,.4f} of these states together with the rows")


def score(options: Namespace) -> None:
    """How probable rows are, in bounded memory."""
    file = ModelFile(options.model)
    n, n_seen, total = 0, 0, 0.0
    for X, _, log_density in followed(options, file, file.read(options)):
        n += len(X)
        n_seen += int((~np.isnan(X).all(axis=1)).sum())
        total += float(log_density.sum())
    if not n:
        raise InputError("there are no rows to score")
    k = file.model.n_parameters(start=getattr(file.held, "start", "fixed"))
    contents = {
        "rows": n,
        "log_likelihood": total,
        "log_likelihood_per_row": total / n,
        "aic": 2.0 * k - 2.0 * total,
        "bic": k * math.log(max(n_seen, 1)) - 2.0 * total,
    }
    if options.output != "-":
        write_whole(options.output, (report.as_json(contents) + "\n").encode())
    else:
        print(report.as_json(contents))


def forecast(options: Namespace) -> None:
    """What is expected, from where the model stands or after the rows of tables."""
    file = ModelFile(options.model)
    now = getattr(file.held, "filtered_proba_", None)
    if options.files:
        for _, filtered, _ in followed(options, file, file.read(options)):
            now = filtered[-1] if len(filtered) else now
    ahead = file.model.forecast(options.horizon, now)
    if np.isnan(ahead.mean).any():
        family = type(file.model.emission).__name__
        say(options, f"{family} depends on what is still to come: states are forecast, values are not")
    names = file.names or [str(at + 1) for at in range(ahead.mean.shape[1])]
    if len(names) != ahead.mean.shape[1]:  # symbols, not columns
        names = [str(at) for at in range(ahead.mean.shape[1])]
    columns: dict[str, Any] = {"step": np.arange(1, options.horizon + 1)}
    columns |= {f"p{state}": ahead.states[:, state] for state in range(ahead.states.shape[1])}
    for at, name in enumerate(names):
        columns |= {f"mean_{name}": ahead.mean[:, at], f"sd_{name}": np.sqrt(ahead.variance[:, at])}
    with Writer(options.output) as writer:
        writer.write(columns)


def sample(options: Namespace) -> None:
    """A stream, simulated."""
    if options.model in EXAMPLES and not os.path.exists(options.model):
        example = EXAMPLES[options.model]
    else:
        file = ModelFile(options.model)
        example = Example(file.model, file.names or [f"y{at + 1}" for at in range(file.model.n_features)])
    if options.save:
        checkpoint.save(example.model, options.save)
    X, states = example.model.sample(options.rows, options.seed)
    columns = {name: X[:, at] for at, name in enumerate(example.columns)}
    if options.with_states:
        columns["state"] = states
    rate = options.rate
    if rate is not None and not 0.0 < rate < math.inf:
        raise ValueError(f"--rate must be a number above 0, got {rate:g}")
    step = len(X) if rate is None else max(1, round(rate / RATED_ROWS))
    began = time.monotonic()
    with Writer(options.output) as writer:
        for first in range(0, len(X), step):
            if rate is not None:
                time.sleep(max(0.0, began + first / rate - time.monotonic()))
            writer.write({name: column[first : first + step] for name, column in columns.items()})


def info(options: Namespace) -> None:
    """What a model file holds."""
    file = ModelFile(options.model)
    held = file.held
    n = getattr(held, "n_samples_seen_", None)
    errors = None
    if n is not None and "journal_" in vars(held):
        try:
            errors = held.standard_errors()
        except (ValueError, NotImplementedError):
            errors = None
    contents = {
        "file": options.model,
        "holds": type(held).__name__,
        "format": checkpoint.VERSION,
        "rows": n,
        "log_likelihood": getattr(held, "log_likelihood_", None),
        "settings": {name: repr(value) for name, value in held.get_params(deep=False).items()}
        if hasattr(held, "get_params")
        else {},
        **report.summary(file.model, errors, file.names),
    }
    rows = "" if n is None else f", {n:,} rows learned"
    columns = f", columns {', '.join(file.names)}" if file.names else ""
    heading = f"{options.model}: {type(held).__name__} of {file.model.n_components} states{rows}{columns}"
    family = f"emission {type(file.model.emission).__name__}"
    likelihood = contents["log_likelihood"]
    footer = [family] if likelihood is None else [family, f"log-likelihood {likelihood:,.2f}"]
    tell(options, heading, report.table(file.model, errors, file.names), footer, contents)


def plot(options: Namespace) -> None:
    """A picture of a model, with the rows of tables or of its journal."""
    check_picture(options.output)
    file = ModelFile(options.model)
    X = None
    if options.files:
        X, _, _ = read_all(options, file.read(options))
    draw = getattr(file.held, "plot", None)
    plotting.save(draw(X) if draw else plotting.picture(file.model, X, file.names), options.output)
    say(options, f"drawn in {options.output}")
