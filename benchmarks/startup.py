"""Start-up: seconds from the start of a process, once compiled code is cached.

Best of ten processes each, as the clock on the wall shows it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

LEARN = """
from hmmstream import HMM, Gaussian, {learner}
hmm = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("tied", means=[0, 1], covars=1))
{make}.learn_one(0.3)
"""
PROGRAMS = {
    "python itself": "pass",
    "import numba": "import numba",
    "import sklearn.base": "import sklearn.base",
    "import hmmstream": "import hmmstream",
    "first observation, Learner": LEARN.format(learner="Learner", make="Learner(hmm)"),
    "first observation, OnlineHMM": LEARN.format(learner="OnlineHMM", make="OnlineHMM(init=hmm)"),
}


def seconds(code: str, **environment: str) -> float:
    """Wall-clock time of a process that runs ``code``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **environment})
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    for name, code in PROGRAMS.items():
        seconds(code)  # compiles, if it has to
        print(f"{name:30s} {min(seconds(code) for _ in range(10)):.2f} s", flush=True)
    with tempfile.TemporaryDirectory() as empty:
        compiling = seconds(PROGRAMS["first observation, Learner"], NUMBA_CACHE_DIR=empty)
    print(f"{'the same with nothing cached':30s} {compiling:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
