"""Batch EM beside its peers: time of one iteration, for each observation, on one core.

All contenders fit the same Gaussian model to the same record from the same start, taking turns in one process. A peer
that is not installed is left out.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks import peers
from benchmarks.peers import PEERS, is_installed
from benchmarks.references import Ours
from benchmarks.speed import Row, stream_for, visits
from benchmarks.speed import start_for as tied_start_for
from benchmarks.turns import best_times, iteration_times, one_core
from hmmstream import HMM, Gaussian
from hmmstream.em import EM
from hmmstream.record import Record


def start_for(m: int) -> HMM:
    """A start some way off the truth, with a variance for each state."""
    transmat = np.full((m, m), 0.3 / (m - 1))
    np.fill_diagonal(transmat, 0.7)
    return HMM(np.full(m, 1 / m), transmat, Gaussian("diag", means=np.arange(m) + 0.2, covars=np.ones((m, 1))))


def iteration(
    m: int, n: int, repeats: int = 12, patience: float = np.inf, contenders: tuple[str, ...] = tuple(PEERS)
) -> Row:
    """One EM iteration of hmmstream and of those peers that are installed, after the first of each was compared."""
    start, X = start_for(m), stream_for(m, n)
    fits = {"hmmstream": peers.hmmstream(start, X)}
    fits |= {name: PEERS[name][1](start, X) for name in contenders if is_installed(name)}
    ends = {name: fit(1) for name, fit in fits.items()}
    differences = {name: float(abs(end - ends["hmmstream"]).max()) for name, end in ends.items() if name != "hmmstream"}
    times = iteration_times(fits, repeats, patience)
    return Row(m, n, {name: time / n * 1e9 for name, time in times.items()}, differences)


def recursive_against_forward_backward(m: int, n: int, repeats: int = 5) -> float:
    """Time of an iteration in the recursive form over that of forward–backward."""
    start, X = start_for(m), stream_for(m, n)
    fits = {method: peers.hmmstream(start, X, method) for method in ("recursive", "forward-backward")}
    for fit in fits.values():
        fit(1)  # compiles
    times = iteration_times(fits, repeats, patience=np.inf)
    return times["recursive"] / times["forward-backward"]


def seldom(m: int, n: int, repeats: int = 12, patience: float = np.inf) -> Row:
    """On line with an M-step for each observation, on line with one every m, and the batch E-step alone."""
    start, X = tied_start_for(m), stream_for(m, n)
    every, seldom = Ours(start, visits(m)), Ours(start, visits(m), update_every=m)
    em = EM(start, Record(X, np.arange(n) == 0))
    em.maximize(em.expect())  # its states are told apart from now on, as those on line are
    turns = {"hmmstream": lambda: every.learn(X), "update_every=m": lambda: seldom.learn(X), "E-step": em.expect}
    for turn in turns.values():
        turn()  # compiles, and has every state visited
    times = dict(zip(turns, best_times(list(turns.values()), repeats, patience), strict=True))
    return Row(m, n, {name: time / n * 1e9 for name, time in times.items()}, {})


def main() -> None:
    """Print the table."""
    with one_core():
        print("One EM iteration, ns an observation, one core; × is the time over hmmstream's")
        for m in (2, 4, 8, 16, 32):
            row = iteration(m, 20_000, patience=2.0)
            own = row.nanoseconds["hmmstream"]
            others = "   ".join(f"{name} {row.ratio(name):.1f}×" for name in row.differences)
            print(f"  m = {m:2d}   hmmstream {own:.1f}   {others or '(no peer is installed)'}", flush=True)
        print("recursive / forward-backward, one iteration: ", end="")
        print(", ".join(f"m = {m}: {recursive_against_forward_backward(m, 20_000):.1f}×" for m in (2, 4, 8)))


if __name__ == "__main__":
    sys.exit(main())
