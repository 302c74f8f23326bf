"""Exactness: what is learned with a window, beside what the dense recursion learns, for every family and structure.

The dense recursion is the paper's. Chains that mix and chains that hardly do, 10,000 observations of each, some of them
missing; the largest difference between any two parameters, or state probabilities.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from hmmstream import HMM, Learner
from tests import models

STICKY = 1e-3  # probability of leaving a state, in a chain that hardly mixes


class Row(NamedTuple):
    """One line of the table."""

    family: str
    structure: str
    mixing: float  # largest difference
    sticky: float
    length: int  # entries of the windows at the end, the longer one


def sticky(hmm: HMM) -> HMM:
    """The same model, with states that last: rows that are equal stay so, as their structure demands."""
    if np.ptp(hmm.transmat, axis=0).max() == 0.0:
        return hmm
    leave = 1.0 - np.diag(hmm.transmat)
    transmat = hmm.transmat * (STICKY / leave)[:, np.newaxis]
    np.fill_diagonal(transmat, 1.0 - STICKY)
    return HMM(hmm.startprob, transmat, hmm.emission, hmm.transition)


def difference(world: HMM, start: HMM, n: int) -> tuple[float, int]:
    """The largest difference between dense and windowed learning, and the length of the window."""
    X = models.with_gaps(world.sample(n, 1)[0], 0.02)
    dense, windowed = (Learner(start, engine=engine) for engine in ("dense", "window"))
    for learner in (dense, windowed):
        learner.learn(X)
    pairs = [(dense.filtered_proba, windowed.filtered_proba)]
    pairs += [(models.values(getattr(dense, name)), models.values(getattr(windowed, name))) for name in MODELS]
    contents = windowed.contents
    return max(float(abs(a - b).max()) for a, b in pairs), 0 if contents is None else len(contents.entries)


MODELS = ("last_model", "model")


def compare(family: str, structure: str, n: int = 10_000) -> Row:
    """A family with a transition structure."""
    world, start = models.make(family, structure), models.rough_start(family, structure)
    mixing, length = difference(world, start, n)
    lasting, longer = difference(sticky(world), sticky(start), n)
    return Row(family, structure, mixing, lasting, max(length, longer))


def main(families: list[str] | None = None) -> None:
    """Print the table: of all families, it takes a quarter of an hour, nearly all of it to compile."""
    print("family                    structure     mixing    hardly mixing   longest window")
    for family in families or list(models.FAMILIES):
        for structure in models.STRUCTURES:
            row = compare(family, structure)
            line = f"{row.family:25s} {row.structure:12s} {row.mixing:8.1e} {row.sticky:12.1e} {row.length:12d}"
            print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
