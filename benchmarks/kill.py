"""Kill ``hmmstream learn`` at random moments, and see whether anything was lost: ``python -m benchmarks.kill [N]``.

Children are forked from a process in which everything is imported and compiled, so that a kill strikes at work and not
at an import. Blocks are small and every one is saved, so that many kills strike while a file is being written.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from hmmstream import checkpoint
from hmmstream.cli import main
from hmmstream.examples import EXAMPLES
from hmmstream.io import reading
from hmmstream.io.writing import Writer

BLOCK_BYTES = 2**14  # about 850 rows
LONGEST = {"start": 0.8, "later": 0.1}  # seconds until a kill: to look for a start takes longer than to learn
STARTED = 40_000  # rows after which the start is found


def learn(data: Path, model: Path) -> list[str]:
    """The command that is run again and again."""
    options = ["--states", "2", "--emission", "gaussian:tied", "--every", "1", "--quiet"]
    return ["learn", str(data), "--checkpoint", str(model), *options]


def child(arguments: list[str]) -> int:
    """Start the command in a process of its own; its number."""
    number = os.fork()
    if not number:
        os._exit(main(arguments))
    return number


def kill_and_resume(n_kills: int, n_rows: int, folder: Path, seed: int = 0) -> tuple[int, int, bool]:
    """Kills that came while the command was at work, those that left a draft behind, whether the end is the same."""
    reading.BLOCK_BYTES = BLOCK_BYTES
    data, whole, killed = folder / "data.csv", folder / "whole.hmm", folder / "killed.hmm"
    X, _ = EXAMPLES["paper"].model.sample(n_rows, seed)
    with Writer(str(data)) as writer:
        writer.write({"y": X[:, 0]})
    assert main(learn(data, whole)) == 0
    rng = random.Random(seed)
    n_drafts = n_done = 0
    n_before = 0
    while n_done < n_kills:
        number = child(learn(data, killed))
        time.sleep(rng.uniform(0.0, LONGEST["start" if n_before < STARTED else "later"]))
        os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        if not os.WIFSIGNALED(status):  # it was done before: once more from the beginning
            assert killed.read_bytes() == whole.read_bytes(), "the model differs"
            killed.unlink()
            n_before = 0
            continue
        n_done += 1
        n_drafts += any(folder.glob(".killed.hmm.*.tmp"))
        if killed.exists():
            n_now = checkpoint.load(killed).n_samples_seen_  # readable, whatever happened
            assert n_now >= n_before, "rows were lost"
            n_before = n_now
    print(f"{n_done} kills, {n_drafts} of them while a file was being written")
    assert main(learn(data, killed)) == 0
    return n_done, n_drafts, killed.read_bytes() == whole.read_bytes()


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory() as name:
        done, drafts, same = kill_and_resume(wanted, 400_000, Path(name))
    print("the model is the same, bit for bit" if same else "THE MODEL DIFFERS")
    sys.exit(0 if same and done == wanted else 1)
