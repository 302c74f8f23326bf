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

from hmmstream import checkpoint
from hmmstream.background import SecondProcess
from hmmstream.batch import BatchHMM
from hmmstream.cli import report
from hmmstream.cli.work import SAVE_EVERY, Stop, Work, ahead, emission_of, read_all, reading_of, say, start_of, tables
from hmmstream.io.parsing import InputError, Reading
from hmmstream.io.reading import Lines, Table
from hmmstream.model import HMM
from hmmstream.online import OnlineHMM

PATIENCE_SECONDS = 3.0
COMPILING = "compiling: the first use of a family takes some seconds, later ones do not"
BEYOND_NUMBERS = 1e308  # surprise at what was impossible
SHORTEST = 8  # rows that a comparison needs


def learn(options: Namespace) -> int:
    """One pass over files or a pipe."""
    work = Work(options, options.every)
    reading = reading_of(options, work.names)
    for path in options.files:
        if [work.key(other) for other in options.files].count(work.key(path)) > 1:
            raise InputError(f"{path} is given twice: one pass reads it once")
    patience = threading.Timer(PATIENCE_SECONDS, say, (options, COMPILING))
    patience.daemon = True
    patience.start()
    began, n_before = time.perf_counter(), work.n_rows
    with Stop() as stop:
        for path, table in zip(options.files, tables(options, reading), strict=True):
            work.check_names(table.source, table.names)
            learn_table(options, work, reading, path, table, stop, patience.cancel)
            if stop.signal is not None:
                break
        patience.cancel()
        seconds = time.perf_counter() - began
        if not work.n_rows and stop.signal is None:
            raise InputError("there are no rows to learn from")
        work.save(reading)
    work.name_columns()
    if stop.signal is not None:
        say_stopped(work)
    if stop.signal != signal.SIGTERM and work.n_rows:
        tell_online(options, work, reading, work.n_rows - n_before, seconds)
    return stop.exit_code


def say_stopped(work: Work) -> None:
    """Tell after a signal where things stand."""
    saved = f"saved in {work.path}; the same command goes on from there" if work.path else "not saved: no --checkpoint"
    print(f"hmmstream: stopped after {work.n_rows:,} rows, {saved}", file=sys.stderr)


def learn_table(
    options: Namespace,
    work: Work,
    reading: Reading,
    path: str,
    table: Table,
    stop: Stop,
    begun: Callable[[], None],
) -> None:
    """Learn from what is new in one table; ``begun`` is called after the first chunk."""
    position = work.inputs.get(work.key(path))
    is_pipe = not getattr(table, "is_seekable", True)
    if is_pipe and position is not None:
        say(options, f"{work.path} has accounted for {position['rows']:,} rows of this pipe: what comes now is new")
    elif position is not None:
        skipped = f"skips {position['rows']:,} rows of {table.source}"
        say(options, f"{work.path} goes on after {work.n_rows:,} rows: {skipped}")
    elif options.separate and work.n_rows:
        work.hmm.end_sequence()
    n_before = position["rows"] if is_pipe and position is not None else 0
    chunks = table.chunks(None if is_pipe else position)
    with progress(options, table) as show:
        source = chunks if is_pipe else ahead(chunks)
        while (chunk := stop.next(source)) is not None:
            work.teach(table.source, chunk, reading)
            begun()
            work.inputs[work.key(path)] = {**chunk.after, "rows": chunk.after["rows"] + n_before}
            if work.is_due:
                work.save(reading)
            show(work.n_rows)
        if not is_pipe:
            source.close()  # type: ignore[attr-defined]


@contextmanager
def progress(options: Namespace, table: Table) -> Iterator[Any]:
    """A bar with rate and time left, on terminals."""
    from tqdm import tqdm

    unit = "B" if table.size is None or hasattr(table, "stream") else " rows"
    name = os.path.basename(table.source)
    began, first = time.perf_counter(), None
    with tqdm(
        total=table.size,
        desc=name,
        unit=unit,
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


def tell_online(options: Namespace, work: Work, reading: Reading, n_new: int, seconds: float) -> None:
    """The closing table, the JSON and the picture."""
    hmm = work.hmm
    model, n = hmm.model_, work.n_rows
    errors, why = None, ""
    if not options.quiet or options.json or options.plot:
        try:
            errors = hmm.standard_errors()
        except (ValueError, NotImplementedError) as error:
            why = f"There are no standard errors: {error}."
    contents = {
        "command": "learn",
        "rows": n,
        "bad_rows": work.bad_rows + reading.bad_rows,
        "log_likelihood": hmm.log_likelihood_,
        "log_likelihood_per_row": hmm.log_likelihood_ / n,
        "filtered_probabilities": hmm.filtered_proba_.tolist(),
        "checkpoint": work.path,
        **report.summary(model, errors, work.names),
    }
    footer = [
        f"log-likelihood {hmm.log_likelihood_:,.2f} (each row given those before it), "
        f"{hmm.log_likelihood_ / n:.4f} a row",
        *([why] if why else []),
        *([f"{contents['bad_rows']:,} bad rows were left out"] if contents["bad_rows"] else []),
        *([f"saved in {work.path}"] if work.path else []),
    ]
    heading = f"{n:,} rows learned in one pass, {n_new:,} of them now in {seconds:.1f} s"
    tell(options, heading, report.table(model, errors, work.names), footer, contents)
    if options.plot:
        from hmmstream import plotting

        plotting.save(hmm.plot(), options.plot)
        say(options, f"drawn in {options.plot}")


def tell(options: Namespace, heading: str, table: str, footer: Sequence[str], contents: dict[str, Any]) -> None:
    """A table for people, or JSON for programs, or both."""
    if options.json == "-":
        print(report.as_json(contents))
        return
    if options.json:
        checkpoint.write_whole(options.json, (report.as_json(contents) + "\n").encode())
    if not options.quiet:
        print("\n".join([heading, "", table, "", *footer]))


# --- watching -------------------------------------------------------------------------------------------------------


def watch(options: Namespace) -> int:
    """One line of JSON for each line that comes in."""
    rows = next((int(n) for unit, n in options.every if unit == "rows"), 1)
    seconds = next((n for unit, n in options.every if unit == "seconds"), None)
    if options.freeze and not options.init and not (options.checkpoint and os.path.exists(options.checkpoint)):
        raise InputError("--freeze needs a model: say which, with --init or --checkpoint")
    work = Work(options, ("seconds", seconds) if seconds else SAVE_EVERY)
    if options.freeze:
        work.hmm.freeze()
    reading = reading_of(options, work.names)
    lines = Lines(options.files, reading)
    key = work.key(options.files)
    position = work.inputs.get(key)
    if position is not None:
        skipped = f": skips {position['rows']:,} rows of {lines.source}" if lines.is_seekable else ""
        say(options, f"{work.path} has accounted for {work.n_rows:,} rows{skipped}")
    n_before = position["rows"] if position is not None and not lines.is_seekable else 0
    thin_seconds = 0.0 if options.checkpoint else seconds or 0.0
    written_at = -math.inf

    def patience() -> float | None:
        return work.seconds_left if work.path and work.n_rows != work.n_saved else None

    def save() -> None:
        work.inputs[key] = {**lines.place.as_dict(), "rows": lines.place.rows + n_before}
        work.save(reading)

    with Stop() as stop, closing(SecondProcess()) as background, closing(lines.rows(position, patience)) as source:
        work.hmm.search_in(background)
        try:
            while (found := stop.next(source)) is not None:
                if found is not Lines.NOTHING:
                    work.check_names(lines.source, lines.names)
                    is_learned, log_density = work.teach_row(lines.source, reading, *found)
                    now = time.monotonic()
                    if is_learned and work.n_rows % rows == 0 and now - written_at >= thin_seconds:
                        written_at = now
                        sys.stdout.write(told(work, log_density))
                        sys.stdout.flush()
                if work.is_due:
                    save()
        except BrokenPipeError:
            save()
            raise
        save()
    if stop.signal is not None:
        say_stopped(work)
    if work.bad_rows + reading.bad_rows:
        say(options, f"{work.bad_rows + reading.bad_rows:,} bad rows were left out")
    say(options, f"accounted for {work.n_rows:,} rows" + (f", saved in {work.path}" if work.path else ""))
    return stop.exit_code


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
    reading = reading_of(options)
    X, lengths, names = read_all(options, reading)
    init: str | HMM = start_of(options.init) if options.init else "auto"
    say(options, f"Fitting to {len(X):,} rows (the first use of a family compiles for some seconds)")
    began = time.perf_counter()
    hmm = BatchHMM(
        options.states or (init.n_components if isinstance(init, HMM) else 2),
        "gaussian" if options.emission is None and isinstance(init, HMM) else emission_of(options.emission),
        init=init,
        n_iter=options.iterations,
        n_init=options.restarts,
        random_state=options.seed,
    ).fit(X, lengths=lengths)
    seconds = time.perf_counter() - began
    errors, why = None, ""
    try:
        errors = hmm.standard_errors(X, lengths=lengths)
    except (ValueError, NotImplementedError) as error:
        why = f"There are no standard errors: {error}."
    if names is not None:
        hmm.feature_names_in_ = np.array(names, dtype=object)
    if options.output:
        hmm.save(options.output)
    model = hmm.model_
    contents = {
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
        **report.summary(model, errors, names),
    }
    footer = [
        f"log-likelihood {hmm.log_likelihood_:,.2f}, {hmm.log_likelihood_ / len(X):.4f} a row; "
        f"AIC {contents['aic']:,.1f}, BIC {contents['bic']:,.1f}",
        *([] if hmm.converged_ else ["EM has not converged: allow more --iterations"]),
        *([why] if why else []),
        *([f"{reading.bad_rows:,} bad rows were left out"] if reading.bad_rows else []),
        *([f"saved in {options.output}"] if options.output else []),
    ]
    heading = f"{len(X):,} rows fitted by {hmm.n_iter_} iterations of EM in {seconds:.1f} s"
    tell(options, heading, report.table(model, errors, names), footer, contents)
    if options.plot:
        from hmmstream import plotting

        plotting.save(plotting.picture(model, X, names), options.plot)
        say(options, f"drawn in {options.plot}")


def compare(options: Namespace) -> None:
    """Several numbers of states and families, ranked."""
    X, lengths, _ = read_all(options, reading_of(options))
    if len(X) < SHORTEST:
        raise InputError(f"{len(X)} rows are too few to compare models on")
    candidates = [(m, name) for name in options.emission or ["gaussian"] for m in options.states]
    results = []
    for at, (m, name) in enumerate(candidates):
        say(options, f"{at + 1} of {len(candidates)}: {name}, {m} states")
        emission = emission_of(name)
        settings: dict[str, Any] = {"random_state": options.seed}
        batch = BatchHMM(m, emission, n_init=options.restarts, **settings).fit(X, lengths=lengths)
        results.append(
            {
                "emission": name,
                "states": m,
                "parameters": batch.model_.n_parameters(start="free"),
                "log_likelihood": float(batch.log_likelihood_),
                "bic": float(batch.bic(X, lengths=lengths)),
                "predictive": predictive(OnlineHMM(m, emission, **settings), X),
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
    kinds = {emission_of(name) if ":" not in name else name.split(":")[0] for name in options.emission}
    if len(kinds) > 1:
        footer.append("Families of counts or symbols and families of measurements cannot be compared with each other.")
    tell(options, f"{len(X):,} rows", report.ranking(results, headings), footer, {"rows": len(X), "models": results})


def predictive(hmm: OnlineHMM, X: Any) -> float:
    """Log-likelihood of the second half of the rows, each given those before it, while the model learns from them."""
    half = len(X) // 2
    hmm.partial_fit(X[:half])
    hmm.relabel(range(hmm.n_components))  # stays with the start that it has found
    before = hmm.log_likelihood_
    return float(hmm.partial_fit(X[half:]).log_likelihood_ - before)
