"""Accuracy: how far estimates are from the truth, measured by the Cramér–Rao bound, and how often intervals hold it.

n × the mean squared error of each free parameter over n × its bound is 1 for the best that can be had. The table has
its mean over all free parameters: for the second stage, which is the default, for maximum likelihood by batch EM from
the truth, for the averaged statistic and for the raw iterate. Bounds are those of the outer information of 300,000 rows
at the truth.
States are put in the order that fits best: a run is lost if that is another one than the start's, or if an error of
some parameter is more than ten times what the bound allows.

    python -m benchmarks.efficiency              the paper's model, 100 runs, and all others, 40 runs each
    python -m benchmarks.efficiency --runs 1000  the paper's model, so many runs; others a tenth of it
    python -m benchmarks.efficiency --cost       time with the second stage over time without, 2 to 16 states
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from time import perf_counter
from typing import NamedTuple

import numpy as np

from hmmstream import HMM, Gaussian, Learner, Masked, StatisticAverage, information
from hmmstream.averaging import Averaging
from hmmstream.em import EM
from hmmstream.parameters import Parameters
from hmmstream.record import Record
from paper.model import START, TRUTH
from tests import models

LONG = 300_000  # rows for the bound
SIZES = (8_000, 32_000, 128_000)
LOST = 10.0  # times the root of the bound
CONTENDERS = {"refined": "auto", "average": StatisticAverage(), "iterate": None}
LEVEL = 0.95


def chain(m: int, stay: float) -> np.ndarray:
    """States that last, and are followed by any other."""
    transmat = np.full((m, m), (1.0 - stay) / (m - 1))
    np.fill_diagonal(transmat, stay)
    return transmat


def band(m: int, leave: float) -> np.ndarray:
    """States that are followed by their neighbours."""
    transmat = leave * (np.eye(m, k=1) + np.eye(m, k=-1))
    np.fill_diagonal(transmat, 1.0 - transmat.sum(axis=1))
    return transmat


def levels(transmat: np.ndarray, covariance: str, means: list[float], covars: object, *structure: Masked) -> HMM:
    """A Gaussian model of one feature."""
    return HMM(np.full(len(means), 1.0 / len(means)), transmat, Gaussian(covariance, means, covars), *structure)


def suite() -> dict[str, tuple[HMM, HMM]]:
    """Models and where learning starts from: families, structures, separations, speeds of mixing, good and bad starts.

    Starts of those from the tests have means drawn together by 40 %, twice the variance, and transitions less decided:
    with them, the raw iterate loses a state in many runs.
    """
    families = ["poisson", "categorical", "gaussian-full", "exponential", "bernoulli", "gamma", "negative-binomial"]
    found = {name: (models.make(name), models.rough_start(name)) for name in [*families, "von-mises", "lognormal"]}
    for structure in ("tied", "masked", "independent"):
        family = "gaussian-paper"
        found[f"{structure} chain"] = (models.make(family, structure), models.rough_start(family, structure))
    banded = Masked.banded(5)
    return found | {
        "five levels, neighbours only": (
            levels(band(5, 0.05), "tied", [0.0, 1.0, 2.0, 3.0, 4.0], 0.25, banded),
            levels(band(5, 0.15), "tied", [-0.3, 0.9, 2.2, 3.1, 4.3], 0.6, banded),
        ),
        "six levels": (
            levels(chain(6, 0.9), "tied", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0.1),
            levels(chain(6, 0.7), "tied", [0.1, 1.15, 2.2, 3.25, 4.3, 5.35], 0.4),
        ),
        "four levels and variances": (
            levels(chain(4, 0.92), "diag", [0.0, 1.0, 2.0, 4.0], [0.2, 0.3, 0.2, 0.5]),
            levels(chain(4, 0.8), "diag", [-0.3, 1.3, 2.3, 4.5], [0.6, 0.6, 0.6, 0.8]),
        ),
        "poorly separated": (
            levels(chain(2, 0.9), "tied", [0.0, 1.5], 1.0),
            levels(chain(2, 0.7), "tied", [-0.5, 1.8], 2.0),
        ),
        "slowly mixing": (
            levels(chain(2, 0.99), "diag", [0.0, 1.0], [1.0, 0.5]),
            levels(chain(2, 0.9), "diag", [-0.5, 1.5], [2.0, 2.0]),
        ),
        "the paper's, good start": (TRUTH, TRUTH),
        "the paper's, bad start": (TRUTH, levels(chain(2, 0.5), "tied", [-3.0, 5.0], 10.0)),
    }


class Run(NamedTuple):
    """Errors of one run, of all parameters, by contender; whether intervals held the truth."""

    errors: dict[str, np.ndarray]
    held: np.ndarray  # NaN where there is no interval
    is_swapped: bool


@cache
def bound(truth: HMM) -> tuple[Parameters, np.ndarray]:
    """n × the Cramér–Rao bound of each parameter."""
    X, _ = truth.sample(LONG, np.random.default_rng(0))
    parameters = Parameters(truth)
    matrix = information.outer_information(parameters, Record(X, np.arange(LONG) == 0)) / LONG
    return parameters, information.errors_of(parameters, matrix, np.zeros(parameters.size, dtype=bool)) ** 2


def in_best_order(model: HMM, truth: HMM) -> tuple[HMM, bool]:
    """The model with its states in the order that fits best, and whether that is another one."""
    if model.n_components > 4:
        return model, False
    wanted = Parameters(truth).values
    orders = [np.array(order) for order in itertools.permutations(range(model.n_components))]
    models_ = [model.relabel(order) for order in orders]
    misfits = [float(((Parameters(m).values - wanted) ** 2 / (wanted**2 + 0.01)).sum()) for m in models_]
    best = int(np.argmin(misfits))
    return models_[best], best != 0


def one_run(truth: HMM, start: HMM, sizes: tuple[int, ...], contenders: tuple[str, ...], seed: int) -> list[Run]:
    """All contenders on the same record, at each size."""
    X, _ = truth.sample(max(sizes), np.random.default_rng([2026, seed]))
    values = Parameters(truth).values
    learners = {name: Learner(start, averaging=CONTENDERS[name]) for name in contenders if name in CONTENDERS}
    runs, n = [], 0
    for size in sizes:
        errors = {}
        for name, learner in learners.items():
            learner.learn(X[n:size])
            model, is_swapped = in_best_order(learner.model, truth)
            errors[name] = Parameters(model).values - values
            if name == "refined":
                held, swapped = intervals_hold(learner, values), is_swapped
        if "likelihood" in contenders:
            record = Record(X[:size], np.arange(size) == 0)
            errors["likelihood"] = (
                Parameters(EM(truth, record, start_kind="fixed").run(1000, 0.001).model).values - values
            )
        runs.append(Run(errors, held, swapped))
        n = size
    return runs


def intervals_hold(learner: Learner, values: np.ndarray) -> np.ndarray:
    """Whether each interval holds the truth."""
    assert learner.refinement is not None
    try:
        spread = learner.refinement.spread(learner.model)
    except ValueError:
        return np.full(len(values), np.nan)
    low, high = information.confidence_intervals(spread.parameters, spread.errors(), LEVEL)
    return np.where(np.isnan(low), np.nan, (low <= values) & (values <= high))


class Row(NamedTuple):
    """What many runs of one model come to."""

    n: int
    n_free: int
    ratios: dict[str, np.ndarray]  # of each free parameter
    coverage: np.ndarray
    n_lost: int


def rows_of(truth: HMM, runs: list[list[Run]], sizes: tuple[int, ...]) -> Iterator[Row]:
    """Summaries of many runs, for each size."""
    parameters, bounds = bound(truth)
    free = parameters.free()
    for at, n in enumerate(sizes):
        own = [run[at] for run in runs]
        errors = {name: np.array([run.errors[name][free] for run in own]) for name in own[0].errors}
        ratios = {name: n * (error**2).mean(axis=0) / bounds[free] for name, error in errors.items()}
        is_far = (abs(errors["refined"]) > LOST * np.sqrt(bounds[free] / n)).any(axis=1)
        n_lost = int((is_far | np.array([run.is_swapped for run in own])).sum())
        coverage = np.nanmean([run.held[free] for run in own if not run.is_swapped], axis=0)
        yield Row(n, len(free), ratios, coverage, n_lost)


def study(pair: tuple[HMM, HMM], sizes: tuple[int, ...], contenders: tuple[str, ...], n_runs: int, pool) -> list[Row]:
    """Many runs of one model, two at a time."""
    task = partial(one_run, *pair, sizes, contenders)
    return list(rows_of(pair[0], list(pool.map(task, range(n_runs), chunksize=4)), sizes))


def costs() -> Iterator[tuple[int, int, float]]:
    """Numbers of states and of rows, and the time of learning with the second stage over that without it."""
    for m, n in ((2, 1_000_000), (2, 100_000), (4, 100_000), (8, 50_000), (16, 50_000)):
        means = [float(i) for i in range(m)]
        truth, start = levels(chain(m, 0.9), "tied", means, 0.2), levels(chain(m, 0.8), "tied", means, 0.4)
        X, _ = truth.sample(n, np.random.default_rng(1))

        def seconds(averaging: Averaging | str, n_rows: int, X: np.ndarray = X, start: HMM = start) -> float:
            learner = Learner(start, averaging=averaging)
            began = perf_counter()
            learner.learn(X[:n_rows])
            return perf_counter() - began

        alone = StatisticAverage()
        for averaging in ("refined", alone):
            seconds(averaging, 10_000)  # compiled
        ratios = [seconds("refined", n) / seconds(alone, n) for _ in range(3)]
        yield m, n, float(np.median(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="of the paper's model; others have a tenth, at least 40")
    parser.add_argument("--models", nargs="*", help="some of the others, by name; none: the paper's model alone")
    parser.add_argument("--cost", action="store_true", help="nothing but the time that it takes")
    options = parser.parse_args()
    if options.cost:
        print("| states | rows | with the second stage over without |\n|---|---|---|")
        for m, n, ratio in costs():
            print(f"| {m} | {n:,} | {ratio:.1f} |", flush=True)
        return
    with ProcessPoolExecutor(2) as pool:
        print(f"The paper's model, {options.runs} runs: n × MSE over n × bound, and what 95 % intervals hold\n")
        print("| n | | q11 | q22 | mu1 | mu2 | upsilon | mean | lost |\n|" + "---|" * 9)
        parameters = Parameters(TRUTH)
        order = np.searchsorted(parameters.free(), [0, 2, 4, 5, 6])  # q22 is what q21 leaves
        for row in study((TRUTH, START), SIZES, ("refined",), options.runs, pool):
            for name, numbers in (("ratio", row.ratios["refined"]), ("coverage", row.coverage)):
                cells = " | ".join(f"{number:.3f}" for number in numbers[order])
                print(f"| {row.n:,} | {name} | {cells} | {numbers.mean():.3f} | {row.n_lost} |", flush=True)
        n_runs, n = max(options.runs // 10, 40), 32_000
        print(f"\nOther models, n = {n:,}, {n_runs} runs: mean ratio over all free parameters\n")
        print("| model | free | maximum likelihood | refined | average | iterate | coverage | lost |\n|" + "---|" * 8)
        for name, pair in suite().items():
            if options.models is None or name in options.models:
                (row,) = study(pair, (n,), ("refined", "average", "iterate", "likelihood"), n_runs, pool)
                means = [row.ratios[key].mean() for key in ("likelihood", "refined", "average", "iterate")]
                cells = " | ".join(f"{mean:.2f}" if mean < 1000 else f"{mean:.0e}" for mean in means)
                print(f"| {name} | {row.n_free} | {cells} | {row.coverage.mean():.3f} | {row.n_lost} |", flush=True)


if __name__ == "__main__":
    main()
