"""What is reported: the raw iterate jumps with every observation, an average of it does not."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from hmmstream.arrays import is_integer


class Polyak(NamedTuple):
    """Polyak–Ruppert averaging: the mean of all parameter estimates after observation ``start``."""

    start: int = 8000


class StatisticAverage(NamedTuple):
    """The statistic S averaged with linearly growing weights, then one M-step. Nothing to tune."""


class Refined(NamedTuple):
    """The averaged statistic at first, and then a second stage, as accurate as maximum likelihood.

    See :mod:`hmmstream.refinement`. Nothing to tune. With more than ``most_parameters`` free ones it stays at the
    averaged statistic: the work that the second stage has with a row grows with their square.
    """

    most_parameters: int = 320


FEW_PARAMETERS = 64  # free ones, up to which the second stage is the default: those of seven states, say

Averaging: TypeAlias = Polyak | StatisticAverage | Refined | None


def resolve(averaging: Averaging | str) -> Averaging:
    """An averaging scheme from its object or its name."""
    if averaging == "auto":
        return Refined(FEW_PARAMETERS)
    if averaging == "refined":
        return Refined()
    if averaging is None or isinstance(averaging, Polyak | StatisticAverage | Refined):
        if isinstance(averaging, Polyak) and not (is_integer(averaging.start) and 0 <= averaging.start < 2**63):
            raise ValueError(f"averaging must start at an observation 0, 1, …, got {averaging!r}")
        return averaging
    raise ValueError(
        f"averaging must be 'auto', 'refined', StatisticAverage(), None or Polyak(start=...), got {averaging!r}"
    )
