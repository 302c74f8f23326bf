"""``python -m benchmarks``: measure, print the page, and write it."""

from __future__ import annotations

import argparse
import sys
import time
from io import TextIOWrapper
from pathlib import Path

from benchmarks.measure import FULL, QUICK, measure
from benchmarks.page import page, with_summary
from hmmstream.io.whole import write_whole

RESULTS = Path(__file__).parent / "results"


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure hmmstream beside C, NumPy, hmmlearn, dynamax and pomegranate, all in one run, and write "
        "one page with what was found. A peer that is not installed is left out.",
    )
    options.add_argument("--output", type=Path, metavar="FOLDER", default=RESULTS, help="default: benchmarks/results")
    options.add_argument("--docs", type=Path, metavar="FOLDER", help="put the page here too")
    options.add_argument("--readme", type=Path, metavar="FILE", help="put its summary between the marks in this file")
    options.add_argument("--quick", action="store_true", help="a few short measurements, to see that all works")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Do it all."""
    options = parser().parse_args(arguments)
    began = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - began:4.0f} s  {line}", file=sys.stderr, flush=True)

    try:
        found = measure(QUICK if options.quick else FULL, say)
        say("done")
        for folder in filter(None, (options.output, options.docs)):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / "README.md", page(found, folder).encode())
        if options.readme:
            text = options.readme.read_text(encoding="utf-8")
            write_whole(options.readme, with_summary(text, found).encode())
    except (OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(page(found, options.output))
    return 0


if __name__ == "__main__":
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may not know Greek
    sys.exit(main())
