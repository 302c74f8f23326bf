"""All experiments. Each is a function of the seed, the number of the run and the scale, and yields rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from paper.experiments import batch_em, cost, freeze, information, online_em, symbols
from paper.model import Scale


class Experiment(NamedTuple):
    """What is done, and how often."""

    measure: Callable[[int, int, Scale], Iterator[Any]]
    runs: Callable[[Scale], int]
    about: str
    is_timing: bool = False  # then nothing else may run meanwhile


def all_runs(scale: Scale) -> int:
    """As many as the figures have."""
    return scale.runs


def once(scale: Scale) -> int:
    """A single run."""
    return 1


EXPERIMENTS = {
    "limit": Experiment(batch_em.limit, once, "Figure 1: batch EM on a very long record"),
    "iterations": Experiment(batch_em.paths, all_runs, "Figure 1: batch EM, iteration by iteration"),
    "batch": Experiment(batch_em.estimates, all_runs, "Figure 2: batch EM, 5 and 50 iterations"),
    "online": Experiment(online_em.estimates, all_runs, "Figures 3, 4, 5: online EM, other steps, other averages"),
    "information": Experiment(information.information, all_runs, "Fisher information, misclassified states"),
    "freeze": Experiment(freeze.frozen, all_runs, "Corollary 1: ρ under frozen parameters"),
    "symbols": Experiment(symbols.paths, lambda scale: scale.few_runs, "Section 3.1: ρ and τ, finite-valued"),
    "table1": Experiment(cost.table_1, lambda scale: 1 + cost.has_octave(), "Table 1: computing times", is_timing=True),
    "growth": Experiment(
        cost.growth, lambda scale: len(cost.cases(scale)), "Section 3.2: cost and number of states", is_timing=True
    ),
}
