"""The page: tables of what was measured, in Markdown, and the summary of it that the README has."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import textwrap
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fleets import ALONE
from benchmarks.peers import PEERS, is_installed
from benchmarks.references import compiler
from benchmarks.turns import exponent
from hmmstream import __version__
from hmmstream.learner import MANY_STATES
from paper.report import processor, table

TEMPLATE = Path(__file__).with_name("page.md")  # {name} stands for a table or a number
BEGIN, END = "<!-- by python -m benchmarks --readme README.md -->", "<!-- end -->"
FROM_STATES = 8  # on which exponents are measured: with fewer, what does not depend on m takes most of the time
WINDOW = ", by the window alone"
SHOWN = (2, 8, 32, 64, 128)  # states in the summary
NONE = "–"
WIDTH = 130  # of the lines of the README
SCRIPTS = {
    "python -m benchmarks": "this page",
    "python -m benchmarks.gpu": "fleets on a graphics processor",
    "python -m benchmarks.spark": "keyed streams on Spark, beside a job that only reads and writes its state",
    "python -m benchmarks.spark_kill": "a job on Spark killed at random moments: nothing lost, nothing learned twice",
    "python -m benchmarks.speed": "on line, up to 16 states, in a minute",
    "python -m benchmarks.batch": "batch EM, up to 32 states; the recursive form beside forward–backward",
    "python -m benchmarks.fleets": "fleets",
    "python -m benchmarks.window": "the window of the past beside the paper's recursion: results, for every family",
    "python -m benchmarks.extended": "both beside the exact recursion, in 80 bits, where they differ",
    "python -m benchmarks.efficiency": "errors of the second stage beside the Cramér–Rao bound; `--cost`: its time",
    "python -m benchmarks.tracking": "false alarms, how soon a change is noticed, a recording that drifts",
    "python -m benchmarks.startup": "seconds from the start of a process to the first observation learned",
    "python -m benchmarks.memory": "memory of a stream of 50 million observations, and of a record of 100 million",
    "python -m benchmarks.throughput": "`hmmstream learn` beside parsing the file and learning from its rows",
    "python -m benchmarks.watch": "how soon `hmmstream watch` answers a line",
    "python -m benchmarks.kill": "`hmmstream learn` killed at random moments: nothing is lost",
    "python -m benchmarks.starts": "how often learning from a rough start ends in a poorer optimum",
    "python -m benchmarks.selfstart FOLDER": "how well a model starts itself",
    "python -m benchmarks.coverage": "how often two standard errors hold the truth",
    "make paper": "the paper's Table 1, and the growth of its own recursion (docs/paper)",
}


# --- words ----------------------------------------------------------------------------------------------------------


def times(ratio: float) -> str:
    """A ratio, with two digits that mean something."""
    return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.1f} ×" if ratio >= 2 else f"{ratio:.2f} ×"


def machine() -> str:
    """What the numbers were made with, in words."""
    names = ("numba", "numpy", "hmmlearn", "dynamax", "jax", "pomegranate", "torch")
    packages = [f"{name} {found.split('+')[0]}" for name in names if (found := installed_version(name))]
    versions = ", ".join([f"Python {platform.python_version()}", f"hmmstream {__version__}", *packages, c()])
    return f"{processor()}, {os.cpu_count()} cores; {versions}"


def installed_version(name: str) -> str | None:
    """Of a package, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def c() -> str:
    """The C compiler and its version."""
    found = compiler()
    if found is None:
        return "no C compiler"
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    words = said.splitlines()[0].split()
    return f"{words[0]} {words[-1]}"


def missing() -> str:
    """Which contenders were left out."""
    absent = sorted({PEERS[name][0] for name in PEERS if not is_installed(name)})
    absent += [] if compiler() else ["C (no compiler)"]
    return f"**Left out, as not installed: {', '.join(absent)}.**" if absent else "No contender was left out."


def differences(rows: Sequence[Any]) -> str:
    """How far results are apart that should be the same."""
    apart = {True: [], False: []}  # in single and in double precision
    for row in rows:
        for name, difference in row.differences.items():
            apart["float32" in name].append((row.m, difference))
    words = f"Largest difference between the parameters that contenders and hmmstream end with: {largest(apart[False])}"
    return f"{words}; in single precision {largest(apart[True])}." if apart[True] else f"{words}."


def largest(found: Sequence[tuple[int, float]]) -> str:
    """The largest of differences, and the numbers of states at which there was no result."""
    undefined = ", ".join(str(m) for m, difference in found if np.isnan(difference))
    words = f"{np.nanmax([difference for _, difference in found]):.0e}" if found else NONE
    return f"{words} (NaN at {undefined} states)" if undefined else words


# --- tables ---------------------------------------------------------------------------------------------------------


def names_in(rows: Sequence[Any]) -> list[str]:
    """Contenders that any of the rows has, hmmstream aside, in order."""
    return [name for name in dict.fromkeys(name for row in rows for name in row.nanoseconds) if name != "hmmstream"]


def contenders(rows: Sequence[Any]) -> str:
    """Nanoseconds of hmmstream, and the others' times over it."""
    names = names_in(rows)
    lines = [
        [
            row.m,
            f"{row.nanoseconds['hmmstream']:,.0f}",
            *(times(row.ratio(name)) if name in row.nanoseconds else NONE for name in names),
        ]
        for row in rows
    ]
    return table(["states", "hmmstream, ns an observation", *names], lines)


def seldom(rows: Sequence[Any]) -> str:
    """On line with few M-steps, and at rest."""
    lines = []
    for row in rows:
        every, few, batch = (row.nanoseconds[name] for name in ("hmmstream", "update_every=m", "E-step"))
        lines.append([row.m, *(f"{x:,.0f}" for x in (every, few, batch)), times(few / every), times(few / batch)])
    header = ["states", "an M-step each, ns", "`update_every=m`, ns", "E-step at rest, ns"]
    return table([*header, "`update_every=m` / an M-step each", "`update_every=m` / E-step"], lines)


def growth_in_m(found: dict[str, Any]) -> list[tuple[str, float, int, int]]:
    """Contender, exponent, and the numbers of states it was measured between."""
    ours = (("on line, hmmstream", "hmmstream"), ("on line, hmmstream, `update_every=m`", "update_every=m"))
    series: list[tuple[str, Sequence[Any], str, int]] = [
        *((label, found["seldom"], name, FROM_STATES) for label, name in ours),
        *((f"{label}{WINDOW}", found["seldom"], name, MANY_STATES) for label, name in ours),
        *((f"on line, {name}", found["online"], name, FROM_STATES) for name in names_in(found["online"])),
        ("batch, hmmstream", found["batch"], "hmmstream", FROM_STATES),
        *((f"batch, {name}", found["batch"], name, FROM_STATES) for name in names_in(found["batch"])),
    ]
    slopes = []
    for label, rows, name, low in series:
        points = [(row.m, row.nanoseconds[name]) for row in rows if row.m >= low and name in row.nanoseconds]
        if len(points) > 1:
            sizes, nanoseconds = zip(*points, strict=True)
            slopes.append((label, exponent(sizes, nanoseconds), min(sizes), max(sizes)))
    return slopes


def exponents_in_m(found: dict[str, Any]) -> str:
    """Powers of the number of states."""
    lines = [[label, f"m^{slope:.1f}", f"{low} to {high}"] for label, slope, low, high in growth_in_m(found)]
    return table(["", "time of an observation", "states"], lines)


def exponents_in_n(rows: Sequence[Any]) -> str:
    """Powers of the number of observations."""
    lines = [
        [f"{label}, {row.m} states", f"n^{exponent(row.sizes, seconds):.2f}", f"{row.sizes[0]:,} to {row.sizes[-1]:,}"]
        for row in rows
        for label, seconds in row.seconds.items()
    ]
    return table(["hmmstream", "time of a record", "observations"], lines)


def fleets(rows: Sequence[Any]) -> str:
    """Times over that of one stream."""
    names = [name for name in rows[0].nanoseconds if name != ALONE]
    lines = [[f"{row.streams:,}", f"{row.rows:,}", *(times(row.ratio(name)) for name in names)] for row in rows]
    return table(["streams", "rows of each at a time", *names], lines)


def single(found: dict[str, Any]) -> str:
    """What has no table of its own."""
    lines = [
        ["`learn_one`, two states", f"{found['learn_one']:.1f} µs a call"],
        ["a user's own family (`examples/rayleigh.py`) beside the built-in `Exponential`", times(found["user_family"])],
    ]
    if found["blurred"]:
        lines.append(["64 states that can hardly be told apart", f"{found['blurred']:.0f} µs an observation"])
    if found["banded"]:
        lines.append(
            ["500 states, each reached from three, `update_every=1024`", f"{found['banded']:.0f} µs an observation"]
        )
    return table(["", ""], lines)


def scripts() -> str:
    """What the programs of this folder measure."""
    here = Path(__file__).parent
    modules = {command: command.split()[2].rpartition(".")[2] for command in SCRIPTS if command.startswith("python")}
    there = [
        [f"`{command}`", what]
        for command, what in SCRIPTS.items()
        if (name := modules.get(command, "page")) == "benchmarks" or (here / f"{name}.py").exists()
    ]
    return table(["command", "what it measures"], there)


# --- the page -------------------------------------------------------------------------------------------------------


def page(found: dict[str, Any], folder: Path) -> str:
    """The page for a folder, where the page on graphics processors may be beside it."""
    lengths = sorted({row.n for row in found["batch"]})
    rows = sorted({row.streams * row.rows for row in found["fleets"]})
    here: dict[str, Callable[[], str]] = {
        "machine": machine,
        "missing": missing,
        "online": lambda: contenders(found["online"]),
        "differences on line": lambda: differences(found["online"]) + without_references(found["online"]),
        "lengths of batch": lambda: f"{spread(lengths)} observations",
        "batch": lambda: contenders(found["batch"]),
        "differences in batch": lambda: f"{differences(found['batch'])} That is after one iteration.",
        "seldom": lambda: seldom(found["seldom"]),
        "exponents in m": lambda: exponents_in_m(found),
        "exponents in n": lambda: exponents_in_n(found["lengths"]),
        "rows of fleets": lambda: spread(rows),
        "fleets": lambda: fleets(found["fleets"]),
        "fleet checks": lambda: fleet_checks(found),
        "single": lambda: single(found),
        "gpu": lambda: graphics(folder),
        "scripts": scripts,
    }
    return re.sub(r"\{([\w ]+)\}", lambda name: here[name[1]](), TEMPLATE.read_text(encoding="utf-8"))


def spread(numbers: Sequence[int]) -> str:
    """One number, or the smallest and the largest."""
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def without_references(rows: Sequence[Any]) -> str:
    """Where C and NumPy took no part."""
    absent = [str(row.m) for row in rows if not row.differences]
    return f" With {', '.join(absent)} states one run of C or NumPy would take minutes." if absent else ""


def fleet_checks(found: dict[str, Any]) -> str:
    """Memory, and whether the same was learned."""
    most, worst = found["fleets"][-1].streams, max(row.difference for row in found["fleets"])
    apart = f"{worst:.0e}" if worst else "none"
    return (
        f"{most:,} streams take {found['megabytes']:,.0f} MB of memory, {found['megabytes'] / most * 1e6:,.0f} bytes "
        f"each. Largest difference between what a stream learned in a fleet and alone: {apart}."
    )


def graphics(folder: Path) -> str:
    """Where the numbers of graphics processors are."""
    if (folder / "gpu.md").exists():
        return "Fleets on a graphics processor have a script and [a page of their own](gpu.md)."
    return "Fleets on a graphics processor have a script of their own, `python -m benchmarks.gpu`."


# --- the summary ----------------------------------------------------------------------------------------------------


def summary(found: dict[str, Any]) -> str:
    """What the README says."""
    rows = {kind: {row.m: row for row in found[kind]} for kind in ("online", "batch")}
    states = [m for m in SHOWN if m in rows["online"]]
    lines = [
        [f"{label}, {name}", *(cell(rows[kind].get(m), name) for m in states)]
        for kind, label in (("online", "on line"), ("batch", "batch EM"))
        for name in names_in(found[kind])
    ]
    growth = {label: (slope, low) for label, slope, low, _ in growth_in_m(found)}
    most = found["fleets"][-1]
    block, pairs, strings = (times(most.ratio(f"{kind}, all cores")) for kind in ("block", "pairs", "pairs of strings"))
    parts = [table(["times as long as hmmstream", *(f"m = {m}" for m in states)], lines)]
    if growth:
        (online, low), (few, _) = (growth[f"on line, hmmstream{kind}{WINDOW}"] for kind in ("", ", `update_every=m`"))
        parts.append(
            f"From {low} to 128 states the time of an observation grows as m^{online:.1f} on line and "
            f"m^{few:.1f} with `update_every=m`, and from {FROM_STATES} to 128 as "
            f"m^{growth['batch, hmmstream'][0]:.1f} for batch EM."
        )
    parts.append(
        f"One observation of a `Fleet` of {most.streams:,} streams takes {block} the time of one of a single stream "
        f"({pairs} as pairs of name and value in random order, {strings} if names are strings), and the fleet "
        f"{found['megabytes']:,.0f} MB of memory. "
        f"`learn_one` takes {found['learn_one']:.1f} µs."
    )
    if found["banded"]:
        parts[-1] += (
            f" 500 states, each reached from three, take {found['banded']:.0f} µs an observation with "
            "`update_every=1024`."
        )
    if found["blurred"]:
        parts[-1] += (
            " The states above are told apart well; of 64 that can hardly be told apart, an observation takes "
            f"{found['blurred']:.0f} µs."
        )
    return "\n\n".join([parts[0], *(textwrap.fill(part, WIDTH) for part in parts[1:])])


def cell(row: Any, name: str) -> str:
    """A contender's ratio, if it took part."""
    return times(row.ratio(name)) if row is not None and name in row.nanoseconds else NONE


def with_summary(text: str, found: dict[str, Any]) -> str:
    """A file with the summary between its marks."""
    if BEGIN not in text or END not in text:
        raise RuntimeError(f"no place for the summary: it goes between {BEGIN} and {END}")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{summary(found)}\n\n{END}{rest.split(END, 1)[1]}"
