"""The commands that learn: ``learn``, ``watch``, ``fit`` and ``compare``."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from hmmstream import plotting
from hmmstream.arrays import FloatArray
from hmmstream.background import SecondProcess
from hmmstream.batch import BatchHMM
from hmmstream.cli import report
from hmmstream.cli.work import (
    SAVE_EVERY,
    Stop,
    Work,
    ahead,
    check_outputs,
    check_picture,
    emission_of,
    read_all,
    reading_of,
    say,
    start_settings,
    tables,
)
from hmmstream.comparison import OnlineComparison
from hmmstream.io.parsing import InputError
from hmmstream.io.reading import Table, TextTable, open_lines
from hmmstream.io.whole import write_whole
from hmmstream.model import HMM
from hmmstream.online import OnlineHMM

PATIENCE_SECONDS = 3.0
COMPILING = "compiling: the first use of a family takes some seconds, later ones do not"
BEYOND_NUMBERS = 1e308  # surprise at what was impossible
SHORTEST = 8  # rows that a comparison needs


def learn(options: Namespace) -> int:
    """One pass over files or a pipe."""
    check_outputs(options.json)
    check_picture(options.plot)
    with Stop() as stop:
        work = Work(options, options.every, stop)
        for path in options.files:
            if [work.key(other) for other in options.files].count(work.key(path)) > 1:
                raise InputError(f"{path} is given twice: one pass reads it once")
        began, n_before = time.perf_counter(), work.n_rows
        notice = threading.Timer(PATIENCE_SECONDS, say, (options, COMPILING))
        notice.daemon = True
        notice.start()
        try:
            for path, table in stop.until(tables(options, work.reading)):
                learn_table(options, work, path, table, stop, notice.cancel)
        finally:
            notice.cancel()
        seconds = time.perf_counter() - began
        if not work.n_rows and stop.signal is None:
            raise InputError("there are no rows to learn from")
        work.save()
    work.name_columns()
    if stop.signal is not None:
        say_stopped(work)
    if stop.signal != signal.SIGTERM and work.n_rows:
        tell_learned(options, work, work.n_rows - n_before, seconds)
    return stop.exit_code


def say_stopped(work: Work) -> None:
    """Tell after a signal where things stand."""
    saved = "not saved: no --checkpoint"
    if work.path:
        saved = f"saved in {work.path}; the same command goes on from there" if work.n_rows else "nothing to save"
    print(f"hmmstream: stopped after {work.n_rows:,} rows, {saved}", file=sys.stderr)


def learn_table(options: Namespace, work: Work, path: str, table: Table, stop: Stop, begun: Callable[[], None]) -> None:
    """Learn from what is new in one table; ``begun`` is called after the first chunk."""
    work.check_names(table.source, table.names)
    position, n_before = work.inputs.get(work.key(path)), 0
    if position is None:
        if options.separate and work.n_rows:
            work.hmm.end_sequence()
    elif table.is_seekable:
        skipped = f"skips {position['rows']:,} rows of {table.source}"
        say(options, f"{work.path} goes on after {work.n_rows:,} rows: {skipped}")
    else:
        n_before = position["rows"]
        say(options, f"{work.path} has accounted for {n_before:,} rows of this pipe: what comes now is new")
    chunks = table.chunks(position if table.is_seekable else None, work.patience)
    with progress(options, table) as show, closing(ahead(chunks) if table.is_seekable else chunks) as source:
        for chunk in stop.until(source):
            if chunk is not None:
                work.teach(table.source, chunk)
                begun()
                work.inputs[work.key(path)] = {**chunk.after, "rows": chunk.after["rows"] + n_before}
                show(work.n_rows)
            if work.is_due:
                work.save()


@contextmanager
def progress(options: Namespace, table: Table) -> Iterator[Any]:
    """A bar with rate and time left, on terminals."""
    from tqdm import tqdm

    name = os.path.basename(table.source)
    began, first = time.perf_counter(), None
    with tqdm(
        total=table.size,
        desc=name,
        unit=table.unit,
        unit_scale=True,
        disable=options.quiet or not sys.stderr.isatty(),
        leave=False,
    ) as bar:

        def show(n_rows: int) -> None:
            nonlocal first
            first = n_rows if first is None else first
            bar.update(table.done - bar.n)
            rate = (n_rows - first) / max(time.perf_counter() - began, 1e-9)
            bar.set_postfix_str(f"{n_rows:,} rows, {rate:,.0f}/s", refresh=False)

        bar.refresh()
        yield show


def tell_learned(options: Namespace, work: Work, n_new: int, seconds: float) -> None:
    """The closing table, the JSON and the picture of ``learn``."""
    hmm, n = work.hmm, work.n_rows
    found = {
        "command": "learn",
        "rows": n,
        "bad_rows": work.bad_rows,
        "log_likelihood": hmm.log_likelihood_,
        "log_likelihood_per_row": hmm.log_likelihood_ / n,
        "filtered_probabilities": hmm.filtered_proba_.tolist(),
        "checkpoint": work.path,
    }
    heading = f"{n:,} rows learned in one pass, {n_new:,} of them now in {seconds:.1f} s"
    likelihood = f"log-likelihood {hmm.log_likelihood_:,.2f} (each row given those before it), "
    footer = [f"{likelihood}{hmm.log_likelihood_ / n:.4f} a row"]
    tell_model(options, heading, footer, found, hmm.model_, hmm.standard_errors, work.names)
    if options.plot:
        plotting.save(hmm.plot(), options.plot)
        say(options, f"drawn in {options.plot}")


def tell_model(
    options: Namespace,
    heading: str,
    footer: list[str],
    found: dict[str, Any],
    model: HMM,
    standard_errors: Callable[[], dict[str, FloatArray]],
    names: list[str] | None,
) -> None:
    """A model with its standard errors, as a table for people, JSON for programs, or both."""
    errors = None
    if not options.quiet or options.json:
        try:
            errors = standard_errors()
        except (ValueError, NotImplementedError) as error:
            footer.append(f"There are no standard errors: {error}")
    if found["bad_rows"]:
        footer.append(f"{found['bad_rows']:,} bad rows were left out")
    saved = found.get("checkpoint") or found.get("model")
    if saved:
        footer.append(f"saved in {saved}")
    contents = {**found, **report.summary(model, errors, names)}
    tell(options, heading, report.table(model, errors, names), footer, contents)


def tell(options: Namespace, heading: str, table: str, footer: Sequence[str], contents: dict[str, Any]) -> None:
    """A table for people, or JSON for programs, or both."""
    if options.json == "-":
        print(report.as_json(contents))
        return
    if not options.quiet:
        print("\n".join([heading, "", table, "", *footer]))
    if options.json:
        write_whole(options.json, (report.as_json(contents) + "\n").encode())


# --- watching -------------------------------------------------------------------------------------------------------


def watch(options: Namespace) -> int:
    """One line of JSON for each line that comes in."""
    rows = next((int(n) for unit, n in options.every if unit == "rows"), 1)
    seconds = next((n for unit, n in options.every if unit == "seconds"), None)
    if options.freeze and not options.init and not (options.checkpoint and os.path.exists(options.checkpoint)):
        raise InputError("--freeze needs a model: say which, with --init or --checkpoint")
    with Stop() as stop, closing(SecondProcess()) as background:
        work = Work(options, ("seconds", seconds) if seconds else SAVE_EVERY, stop)
        work.hmm.search_in(background)
        if options.freeze:
            work.hmm.freeze()
        shown_every = 0.0 if options.checkpoint else seconds or 0.0
        for table in stop.until(open_lines(path, work.reading) for path in [options.file]):
            watch_table(options, work, table, stop, rows, shown_every)
    if stop.signal is not None:
        say_stopped(work)
    if work.bad_rows:
        say(options, f"{work.bad_rows:,} bad rows were left out")
    say(options, f"accounted for {work.n_rows:,} rows" + (f", saved in {work.path}" if work.path else ""))
    return stop.exit_code


def watch_table(options: Namespace, work: Work, table: TextTable, stop: Stop, rows: int, seconds: float) -> None:
    """Learn from what is new, and tell of every so many rows, and not more often than so many seconds apart."""
    work.check_names(table.source, table.names)
    key = work.key(options.file)
    position, n_before = work.inputs.get(key), 0
    if position is not None:
        n_before = 0 if table.is_seekable else position["rows"]
        skipped = f": skips {position['rows']:,} rows of {table.source}" if table.is_seekable else ""
        say(options, f"{work.path} has accounted for {work.n_rows:,} rows{skipped}")
    told_at = -math.inf

    def save() -> None:
        work.inputs[key] = {**table.place.as_dict(), "rows": table.place.rows + n_before}
        work.count_unread(table.source, work.reading.bad_rows)
        work.save()

    with closing(table.rows(position if table.is_seekable else None, work.patience)) as source:
        try:
            for found in stop.until(source):
                if found is not None:
                    work.count_unread(table.source, work.reading.bad_rows)
                    is_learned, log_density = work.teach_row(table.source, *found)
                    now = time.monotonic()
                    if is_learned and work.n_rows % rows == 0 and now - told_at >= seconds:
                        told_at = now
                        sys.stdout.write(told(work, log_density))
                        sys.stdout.flush()
                if work.is_due and not work.hmm.is_searching:
                    save()
        except BrokenPipeError:
            save()
            raise
        save()


def told(work: Work, log_density: float | None) -> str:
    """What was found, as a line of JSON."""
    proba = work.hmm.filtered_proba_ if work.n_rows else np.full(work.hmm.n_components, 1.0 / work.hmm.n_components)
    found = {
        "row": work.n_rows,
        "state": int(proba.argmax()),
        "probabilities": proba.tolist(),
        "surprise": None if log_density is None else min(-log_density, BEYOND_NUMBERS),
        "forecast": work.forecast(),
    }
    return json.dumps(report.finite(found)) + "\n"


# --- batch ----------------------------------------------------------------------------------------------------------


def fit(options: Namespace) -> None:
    """Maximum likelihood for a whole record."""
    check_outputs(options.json, options.output)
    check_picture(options.plot)
    reading = reading_of(options)
    settings = start_settings(options)
    X, lengths, names = read_all(options, reading)
    say(options, f"Fitting to {len(X):,} rows (the first use of a family compiles for some seconds)")
    began = time.perf_counter()
    hmm = BatchHMM(**settings, n_iter=options.iterations, n_init=options.restarts).fit(X, lengths=lengths)
    seconds = time.perf_counter() - began
    found = {
        "command": "fit",
        "rows": len(X),
        "bad_rows": reading.bad_rows,
        "log_likelihood": hmm.log_likelihood_,
        "log_likelihood_per_row": hmm.log_likelihood_ / len(X),
        "aic": hmm.aic(X, lengths=lengths),
        "bic": hmm.bic(X, lengths=lengths),
        "iterations": hmm.n_iter_,
        "converged": hmm.converged_,
        "model": options.output,
    }
    heading = f"{len(X):,} rows fitted by {hmm.n_iter_} iterations of EM in {seconds:.1f} s"
    likelihood = f"log-likelihood {hmm.log_likelihood_:,.2f}, {hmm.log_likelihood_ / len(X):.4f} a row"
    footer = [f"{likelihood}; AIC {found['aic']:,.1f}, BIC {found['bic']:,.1f}"]
    if not hmm.converged_:
        footer.append("EM has not converged: allow more --iterations")
    if names is not None:
        hmm.feature_names_in_ = np.array(names, dtype=object)
    if options.output:
        hmm.save(options.output)
    model = hmm.model_
    tell_model(options, heading, footer, found, model, lambda: model.standard_errors(X, lengths, start="free"), names)
    if options.plot:
        plotting.save(plotting.picture(model, X, names), options.plot)
        say(options, f"drawn in {options.plot}")


def compare(options: Namespace) -> None:
    """Several numbers of states and families, ranked."""
    check_outputs(options.json)
    if options.online:
        compare_online(options)
        return
    X, lengths, _ = read_all(options, reading_of(options))
    if len(X) < SHORTEST:
        raise InputError(f"{len(X)} rows are too few to compare models on")
    names = options.emission or ["gaussian"]
    candidates = [(m, name, emission_of(name)) for name in names for m in options.states]
    results = []
    for at, (m, name, emission) in enumerate(candidates):
        say(options, f"{at + 1} of {len(candidates)}: {name}, {m} states")
        settings: dict[str, Any] = {"random_state": options.seed}
        batch = BatchHMM(m, emission, n_init=options.restarts, **settings).fit(X, lengths=lengths)
        results.append(
            {
                "emission": name,
                "states": m,
                "parameters": batch.model_.n_parameters(start="free"),
                "log_likelihood": float(batch.log_likelihood_),
                "bic": float(batch.bic(X, lengths=lengths)),
                "predictive": predictive(OnlineHMM(m, emission, **settings), X, lengths),
            }
        )
    results.sort(key=lambda result: result["bic"])
    by_prediction = sorted(results, key=lambda result: -result["predictive"])
    for rank, result in enumerate(by_prediction):
        result["predictive_rank"] = rank + 1
    headings = {
        "emission": "emission",
        "states": "states",
        "parameters": "parameters",
        "log_likelihood": "log-likelihood",
        "bic": "BIC",
        "predictive": "one pass",
        "predictive_rank": "rank",
    }
    footer = [
        "Best first, by BIC (smaller is better). One pass: the log-likelihood of the second half of the rows, each",
        "predicted from those before it by a model that learns as it goes (larger is better), and its rank.",
    ]
    if len({name.split(":")[0] for name in names}) > 1:
        footer.append("Families of counts or symbols and families of measurements cannot be compared with each other.")
    tell(options, f"{len(X):,} rows", report.ranking(results, headings), footer, {"rows": len(X), "models": results})


def compare_online(options: Namespace) -> None:
    """The same in one pass and bounded memory, ranked by how well each predicted what came."""
    names = options.emission or ["gaussian"]
    settings = [(m, name) for name in names for m in options.states]
    candidates = [OnlineHMM(m, emission_of(name), random_state=options.seed) for m, name in settings]
    comparison = OnlineComparison(candidates)
    for _, table in tables(options, reading_of(options)):
        if options.separate:
            comparison.end_sequence()
        with progress(options, table) as show:
            for chunk in table.chunks():
                if chunk is not None:
                    try:
                        comparison.partial_fit(chunk.X)
                    except ValueError as error:
                        raise InputError(f"{table.source}, at or after {chunk.line(0)}: {error}") from None
                    show(comparison.n_samples_seen_)
    try:
        ranking = comparison.ranking_
    except ValueError as error:
        raise InputError(str(error)) from None
    described = dict(zip(map(id, candidates), settings, strict=True))
    results = [
        {
            "emission": described[id(one.hmm)][1],
            "states": one.hmm.n_components,
            "log_likelihood": one.log_likelihood,
            "behind": one.behind,
            "error": one.error if math.isfinite(one.error) else None,
        }
        for one in ranking
    ]
    shown = [
        {**result, "behind": f"{one.behind:.4f}", "error": f"{one.error:.4f}"}
        for one, result in zip(ranking, results, strict=True)
    ]
    headings = {"emission": "emission", "states": "states", "log_likelihood": "log-likelihood"}
    headings |= {"behind": "behind, a row", "error": "±"}
    n_rows, n_compared = comparison.n_samples_seen_, comparison.n_compared_
    footer = [
        f"Best first: the log-likelihood of {n_compared:,} rows, each predicted from those before it by a model that",
        "learns as it goes; how much less that is than the best, a row; and the standard error of this difference.",
    ]
    contents = {"rows": n_rows, "compared": n_compared, "models": results}
    tell(options, f"{n_rows:,} rows", report.ranking(shown, headings), footer, contents)


def predictive(hmm: OnlineHMM, X: FloatArray, lengths: list[int] | None) -> float:
    """Log-likelihood of the second half of the rows, each given those before it, while the model learns from them."""
    half, first, second = len(X) // 2, None, None
    if lengths is not None and len(lengths) > 1:  # of the recordings, if there are several
        n_first = max(1, min(int(np.searchsorted(np.cumsum(lengths), half)), len(lengths) - 1))
        first, second = lengths[:n_first], lengths[n_first:]
        half = sum(first)
    hmm.partial_fit(X[:half], lengths=first)
    hmm.relabel(range(hmm.n_components))  # stays with the start that it has found
    before = hmm.log_likelihood_
    return float(hmm.partial_fit(X[half:], lengths=second).log_likelihood_ - before)
