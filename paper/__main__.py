"""``python -m paper``: simulate, measure, judge, draw, and write the page."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from io import TextIOWrapper
from pathlib import Path

from paper.claims import judge
from paper.evidence import Evidence
from paper.model import FULL, QUICK, Scale
from paper.report import FEW_RUNS, write
from paper.runner import collect

RESULTS = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m paper",
        description="Reproduce every figure, the table and the claims of Cappé (2011). What is done is kept: the same "
        "command goes on where it was stopped, and more runs are added to those that there are.",
    )
    runs = "independent records (default: 100, as in the paper)"
    options.add_argument("--runs", type=counting, metavar="N", help=runs)
    options.add_argument("--seed", type=counting, default=2011, help="same seed, same numbers (default: %(default)s)")
    options.add_argument("--workers", type=counting, default=os.cpu_count(), help="processes (default: one a core)")
    options.add_argument("--output", type=Path, metavar="FOLDER", help="default: paper/results")
    options.add_argument("--docs", type=Path, metavar="FOLDER", help="put the page and its pictures here too")
    options.add_argument("--quick", action="store_true", help="a few runs and short records, to see that all works")
    return options


def counting(text: str) -> int:
    """One of 1, 2, 3, …"""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a positive whole number, got {text!r}")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Do it all."""
    options = parser().parse_args(arguments)
    scale = QUICK if options.quick else FULL
    if options.runs:
        scale = scale._replace(runs=options.runs)
    folder = options.output or (RESULTS / "quick" if options.quick else RESULTS)
    try:
        for place in filter(None, (folder, options.docs)):
            place.mkdir(parents=True, exist_ok=True)
        reproduce(scale, options.seed, options.workers, folder, options.docs)
    except (OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. What was done is kept: the same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def reproduce(scale: Scale, seed: int, workers: int, folder: Path, docs: Path | None) -> None:
    """Measure, judge, and write the page."""
    began = time.perf_counter()
    results = collect(seed, scale, workers, folder / "runs")
    evidence = Evidence(results.tables)
    claims = judge(evidence)
    taken = time.perf_counter() - began
    settings = {"seed": seed, **scale._asdict(), "workers": workers, "seconds of this command": taken}
    write(folder, evidence, claims, settings, results.seconds, docs)
    for claim in claims:
        print(f"{claim.holds:8} {claim.words}")
    if evidence.runs < FEW_RUNS:
        print("These are too few runs to judge claims by.")
    print(f"\n{folder / 'report.html'}, after {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be stopped is to be stopped
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may not know Greek
    sys.exit(main())
