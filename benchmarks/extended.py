"""Rounding: how far what is learned in double precision is from the exact recursion, where engines do not agree.

Where states come to be alike, learning magnifies rounding errors, and a window differs from the dense recursion by more
than 1e-9 (``python -m benchmarks.window --start rough``). Here are those of these cases that can be computed a third
time: the paper's Algorithm 1 as it stands, for families of probabilities, in numbers of 80 bits, whose errors are 2,000
times smaller. The dense recursion, the window and Algorithm 1 in double precision are all compared with that.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from benchmarks.window import N_MIN, case, learned, numbers
from hmmstream import HMM, Bernoulli, Categorical, Geometric
from tests.reference import EXTINCT, RARE, group_table, says_nothing

CASES = (  # family, structure, start
    ("bernoulli", "full", "rough"),
    ("multinomial", "masked", "rough"),
    ("geometric", "masked", "true"),
)


class Row(NamedTuple):
    """One line of the table: the largest differences between any two parameters or probabilities."""

    apart: float  # of the window and the dense recursion
    dense: float  # of each from the exact one
    window: float
    paper: float  # of Algorithm 1 in double precision


def densities(emission: Any, probs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """g(i, y) of each state, up to a factor that all have in common."""
    match emission:
        case Categorical():
            return probs[:, int(y[0])]
        case Bernoulli():
            each = np.where(y == 1.0, probs, 1 - probs)
        case Geometric():
            each = probs * (1 - probs) ** (y - 1)
        case _:  # multinomial
            each = probs**y
    return each[:, ~np.isnan(y)].prod(axis=1)


def statistics(emission: Any, probs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """s(y) of each state, without its 1; what is missing is replaced by its expectation."""
    match emission:
        case Categorical():
            return np.tile(np.arange(probs.shape[1]) == y[0], (len(probs), 1))
        case Bernoulli():
            return np.where(np.isnan(y), probs, y)
        case Geometric():
            return np.where(np.isnan(y), 1 / probs, y)
    return np.tile(y, (len(probs), 1))


def maximized(start: HMM, by_group: np.ndarray, by_state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The M-step: transition matrix and probabilities."""
    groups = group_table(start)
    sizes = (groups[:, :, np.newaxis] == groups[:, np.newaxis]).sum(axis=1)
    transmat = np.where(groups >= 0, by_group[groups] / sizes, 0)
    transmat = np.where(groups >= 0, transmat / transmat.sum(axis=1, keepdims=True) + EXTINCT, 0)
    mean = by_state[:, 1:] / by_state[:, :1]
    match start.emission:
        case Bernoulli():
            probs = np.clip(mean, RARE, 1 - RARE)
        case Geometric():
            probs = 1 / mean
        case _:
            probs = np.maximum(mean / mean.sum(axis=1, keepdims=True), RARE)
            probs = probs / probs.sum(axis=1, keepdims=True)
    return transmat / transmat.sum(axis=1, keepdims=True), probs


def algorithm_1(start: HMM, X: np.ndarray, n_min: int, number: Any) -> np.ndarray:
    """The paper's recursion with numbers of this kind: what :func:`benchmarks.window.numbers` says of a learner."""
    emission, groups, m = start.emission, group_table(start), start.n_components
    transmat, probs, phi = (part.astype(number) for part in (start.transmat, emission.probs, start.startprob))
    is_group = groups.ravel() == np.arange(groups.max() + 1)[:, np.newaxis]
    of_group, of_end = is_group.reshape(-1, m, m), np.eye(m, dtype=bool)
    rho_q = np.zeros((len(of_group), m), dtype=number)
    rho_g = np.zeros((m, 1 + probs.shape[1], m), dtype=number)
    average, n_averaged, n = (0, 0), 0, 0
    for t, y in enumerate(X):
        is_missing = says_nothing(emission, y)
        gamma = number(not is_missing) * (number(n) ** -number(0.6) if n else 1)
        joint = phi[:, np.newaxis] * transmat
        r = joint / joint.sum(axis=0) if t else np.zeros((m, m), dtype=number)
        predicted = joint.sum(axis=0) if t else phi
        phi = predicted if is_missing else predicted * densities(emission, probs, y)
        phi = phi / phi.sum()
        rho_q = (1 - gamma) * (rho_q @ r) + gamma * (of_group * r).sum(axis=1)
        rho_g = (1 - gamma) * (rho_g @ r)
        if is_missing:
            continue
        own = np.column_stack([np.ones(m, dtype=number), statistics(emission, probs, y)])
        rho_g += gamma * own[:, :, np.newaxis] * of_end[:, np.newaxis]
        if n > n_min:
            S = rho_q @ phi, rho_g @ phi
            transmat, probs = maximized(start, *S)
            n_averaged += 1
            weight = number(2) / (n_averaged + 1)
            average = tuple(a + weight * (b - a) for a, b in zip(average, S, strict=True))
        n += 1
    reported = maximized(start, *average)
    return np.column_stack([transmat, probs, *reported, *reported, phi])


def compare(family: str, structure: str, start_is: str, chain: str = "sticky", n: int = 10_000) -> Row:
    """What is learned from a :func:`benchmarks.window.case` in four ways."""
    start, X = case(family, structure, chain, n, start_is)
    dense, window = (numbers(learned(start, X, engine, N_MIN)) for engine in ("dense", "window"))
    exact, paper = (algorithm_1(start, X, N_MIN, number) for number in (np.longdouble, np.float64))
    pairs = (window, dense), (dense, exact), (window, exact), (paper, exact)
    return Row(*(float((abs(a - b) / np.maximum(abs(b), 1)).max()) for a, b in pairs))


def main() -> None:
    """Print the table."""
    if np.finfo(np.longdouble).eps > 1e-18:
        sys.exit("this processor has no numbers of 80 bits")
    print(f"{'':40s} window from dense   from exact: dense    window    Algorithm 1 in double precision")
    for family, structure, start_is in CASES:
        row = compare(family, structure, start_is)
        name = f"{family}, {structure}, sticky, {start_is} start"
        print(f"{name:40s} {row.apart:17.1e} {row.dense:19.1e} {row.window:9.1e} {row.paper:10.1e}", flush=True)


if __name__ == "__main__":
    main()
