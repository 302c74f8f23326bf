"""Models to begin with, when there are no data yet."""

from __future__ import annotations

from typing import NamedTuple

from hmmstream.emissions import Gaussian
from hmmstream.model import HMM


class Example(NamedTuple):
    """A model, and what its observations are called."""

    model: HMM
    columns: list[str]


EXAMPLES = {
    # Section 5.3 of the paper: two states that overlap so much that one row in ten cannot be told
    "paper": Example(
        HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5)),
        ["y"],
    ),
    # A channel that is closed, half open or open, in picoamperes at 10,000 rows a second
    "ion-channel": Example(
        HMM(
            [1.0, 0.0, 0.0],
            [[0.990, 0.008, 0.002], [0.040, 0.940, 0.020], [0.005, 0.015, 0.980]],
            Gaussian("diag", means=[0.0, 1.2, 2.5], covars=[0.09, 0.12, 0.16]),
        ),
        ["current"],
    ),
}
