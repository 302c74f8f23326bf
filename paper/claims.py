"""What the paper says, held against what was measured.

Each claim is a function: it says in numbers what the words are taken to mean, what was measured, and whether it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from paper.evidence import AVERAGED, BATCH, LABELS, LARGEST, ONLINE, SHOWN, TRUE, Evidence
from paper.experiments.batch_em import COMPARED_SIZES, SHORT
from paper.experiments.cost import FORWARD_BACKWARD, PRINTED, TIED
from paper.experiments.symbols import LIMIT
from paper.model import PARAMETERS, SIZES, START_VALUES

YES, PARTLY, NO = "yes", "in part", "no"
LARGE = [n for n in SIZES if n >= 8_000]


class Claim(NamedTuple):
    """A row of the table."""

    where: str
    words: str  # the paper's, in short
    meaning: str  # what must be true for them to hold
    measured: str
    holds: str


def listed(numbers: pd.Series, form: str = ".4f") -> str:
    """q(1,1) 0.9494, μ(1) 0.0033, …"""
    return ", ".join(f"{LABELS[name]} {format(number, form)}" for name, number in numbers.items())


def by_size(numbers: pd.DataFrame, form: str = ".4f") -> str:
    """The same for several n, one a row."""
    return "; ".join(f"{listed(row, form)} at {n:,}" for n, row in numbers.iterrows())


def verdict(*parts: bool) -> str:
    """All, none or some of what a claim says."""
    return YES if all(parts) else PARTLY if any(parts) else NO


# --- the model ------------------------------------------------------------------------------------------------------


def separation(evidence: Evidence) -> Claim:
    apart = (TRUE.mu2 - TRUE.mu1) / np.sqrt(TRUE.upsilon)
    return Claim(
        "§5.3",
        "the means are only 1.4 noise standard deviations apart",
        "1.4 when rounded",
        f"{apart:.3f}",
        verdict(round(apart, 1) == 1.4),
    )


def misclassification(evidence: Evidence) -> Claim:
    by_run = evidence.tables["information"].groupby("run")[["misclassified", "n"]].first()
    share, error = by_run.misclassified.mean(), by_run.misclassified.sem()
    return Claim(
        "§5.3",
        "the optimal filter misclassifies about 10.3 % of the states",
        "between 10.2 and 10.4 %",
        f"{share:.3%} ± {error:.3%} of {by_run.n.sum() / 1e6:g} million",
        verdict(abs(share - 0.103) < 0.001),
    )


# --- batch EM -------------------------------------------------------------------------------------------------------


def slow_convergence(evidence: Evidence) -> Claim:
    path = evidence.tables["limit"].set_index("iteration").q11
    way = (path - START_VALUES[0]) / (TRUE.q11 - START_VALUES[0])
    needed = int(way.index[way > 0.9][0])
    return Claim(
        "§5.3, Fig. 1",
        "EM requires about 50 iterations to reach decent estimates",
        "in the limit of long records q(1,1) has gone 90 % of its way after 35 to 65 iterations",
        f"after {needed}; {way[10]:.0%} after 10 and {way[50]:.0%} after 50",
        verdict(35 <= needed <= 65),
    )


def medians_alike(evidence: Evidence) -> Claim:
    paths = evidence.tables["iterations"].query("iteration > 0").groupby(["n", "iteration"])[["q11", "mu1"]]
    short, long = COMPARED_SIZES
    spread = paths.quantile(0.75) - paths.quantile(0.25)
    apart = ((paths.median().loc[short] - paths.median().loc[long]).abs() / spread.loc[short]).max()
    ratio = (spread.loc[short] / spread.loc[long]).median()
    return Claim(
        "§5.3, Fig. 1",
        "the median curves are very similar for n = 500 and 8,000, the variability is greatly reduced",
        "medians nowhere more than half an interquartile range of n = 500 apart; ranges at least halved",
        f"{listed(apart, '.2f')} ranges apart; ranges smaller by a factor {listed(ratio, '.1f')}",
        verdict((apart < 0.5).all(), (ratio > 2.0).all()),
    )


def limiting_path(evidence: Evidence) -> Claim:
    paths = evidence.tables["iterations"].query("iteration > 0").groupby(["n", "iteration"])[["q11", "mu1"]]
    limit = evidence.tables["limit"].query("iteration > 0").set_index("iteration")[["q11", "mu1"]]
    apart = (paths.median().loc[max(COMPARED_SIZES)] - limit).abs().max() / (limit.max() - limit.min())
    return Claim(
        "§5.3, Fig. 1",
        "n = 8,000 gives a very clear picture of the deterministic limiting EM trajectory",
        "its median nowhere further from the path of a very long record than 5 % of what that path spans",
        f"{listed(apart, '.1%')}, with {evidence.tables['limit'].n.iloc[0] / 1e6:g} million observations",
        verdict((apart < 0.05).all()),
    )


def not_consistent(evidence: Evidence) -> Claim:
    bias = (evidence.median.loc[BATCH] - TRUE)[SHOWN]
    spread = evidence.spread.loc[BATCH][SHOWN]
    error = 0.93 * spread.loc[LARGEST] / np.sqrt(evidence.runs)  # of a median: 1.2533 σ / √runs, σ = range / 1.349
    return Claim(
        "§5.3, Fig. 2",
        "with 50 iterations variability decreases with n but the accuracy does not improve",
        "interquartile ranges fall with every n; at 128,000 the bias of the median is at least 3/4 of that at 8,000 "
        "and 4 of its standard errors",
        f"range {by_size(spread.loc[[8_000, LARGEST]])}; bias {by_size(bias.loc[[8_000, LARGEST]])}, or "
        f"{listed((bias.loc[LARGEST] / error).abs(), '.0f')} standard errors",
        verdict(
            (spread.diff().dropna() < 0).all().all(),
            (bias.loc[LARGEST].abs() > 4 * error).all(),
            (bias.loc[LARGEST].abs() > 0.75 * bias.loc[8_000].abs()).all(),
        ),
    )


# --- online EM ------------------------------------------------------------------------------------------------------


def not_yet_as_good(evidence: Evidence) -> Claim:
    ratio = (evidence.rmse.loc[ONLINE] / evidence.rmse.loc[BATCH]).loc[[500, 2_000], SHOWN]
    return Claim(
        "§5.3, Figs. 2, 3",
        "for n = 500 and 2,000 online estimates are not as good as 50 batch iterations",
        "a larger root mean squared error (RMSE) in all three panels",
        f"RMSE online / batch: {by_size(ratio, '.1f')}",
        verdict(*(ratio > 1.0).to_numpy().ravel()),
    )


def preferable(evidence: Evidence) -> Claim:
    bias = (evidence.median - TRUE)[SHOWN].abs()
    closer = (bias.loc[ONLINE] < bias.loc[BATCH]).loc[LARGE]
    ratio = (evidence.rmse.loc[ONLINE] / evidence.rmse.loc[BATCH]).loc[LARGE, SHOWN]
    return Claim(
        "§5.3, Figs. 2, 3",
        "from n = 8,000 on online estimates are preferable despite their somewhat larger variance",
        "in all panels the median is closer to the truth, and the RMSE is smaller",
        f"the median is closer in {closer.to_numpy().sum()} of {closer.size} cases; RMSE online / batch: "
        f"{by_size(ratio, '.2f')}",
        verdict(*closer.to_numpy().ravel(), *(ratio < 1.0).to_numpy().ravel()),
    )


def consistent(evidence: Evidence) -> Claim:
    rmse = evidence.rmse.loc[ONLINE].loc[LARGE, SHOWN]
    return Claim(
        "§5.3, Fig. 3",
        "online EM with n^-0.6 appears consistent",
        "RMSE at 128,000 at most half that at 8,000, in all panels",
        f"RMSE {by_size(rmse)}",
        verdict(*(rmse.loc[LARGEST] < 0.5 * rmse.loc[8_000])),
    )


def fast_steps_fail(evidence: Evidence) -> Claim:
    order = ["n^-0.6", "n^-0.8", "n^-0.9", "1/n"]
    loss = pd.Series({step: evidence.inefficiency(step).mean() for step in order})
    return Claim(
        "§3.1, §5.3",
        "n^-α performs very poorly for α above 0.8; 1/n should definitely be avoided",
        "n · MSE over the Cramér–Rao bound, mean of five parameters, at 128,000: n^-0.9 at least 10 times n^-0.6, "
        "1/n worst",
        ", ".join(f"{step} {loss[step]:,.0f}" for step in order),
        verdict(loss["n^-0.9"] > 10 * loss["n^-0.6"], bool(loss.idxmax() == "1/n")),
    )


def tuning_does_not_help(evidence: Evidence) -> Claim:
    variants = ["two-phase, as printed", "two-phase"]
    large = [32_000, 128_000]
    spread = {v: (evidence.spread.loc[v] / evidence.spread.loc[ONLINE]).loc[large, SHOWN] for v in variants}
    rmse = {v: (evidence.rmse.loc[v] / evidence.rmse.loc[ONLINE]).loc[LARGEST, SHOWN] for v in variants}
    ends = evidence.estimates[evidence.estimates.n == LARGEST]
    swapped = {v: int((ends.mu1 > ends.mu2)[ends.method == v].sum()) for v in variants}
    return Claim(
        "§5.3, Fig. 4",
        "a hand-tuned step is not significantly better than n^-0.6; higher variability at 32 and 128 thousand",
        "both variants: RMSE at 128,000 nowhere below 0.9 of that of n^-0.6; a larger interquartile range on average",
        "; ".join(
            f"{v}: RMSE {listed(rmse[v], '.1f')} times, range {listed(spread[v].loc[LARGEST], '.1f')} times that of "
            f"n^-0.6; {swapped[v]} of {evidence.runs} runs end with swapped states"
            for v in variants
        ),
        verdict(*(rmse[v].min() > 0.9 and (spread[v].mean(axis=1) > 1.0).all() for v in variants)),
    )


def averaging_is_efficient(evidence: Evidence) -> Claim:
    loss, plain = (evidence.inefficiency(method)[["mu1", "upsilon"]] for method in (AVERAGED, ONLINE))
    error = np.sqrt(2 / evidence.runs)  # of a mean square
    return Claim(
        "§5.3, Fig. 5",
        "with averaging from 8,000, μ(1) and υ reach asymptotic efficiency",
        "n · MSE over the Cramér–Rao bound at 128,000 at most 1.2, give or take 2 standard errors",
        f"{listed(loss, '.2f')}, ± {error:.2f}; without averaging {listed(plain, '.0f')}",
        verdict(*(loss < 1.2 + 2 * error)),
    )


def bias_of_q11(evidence: Evidence) -> Claim:
    scaled = evidence.scaled(AVERAGED).groupby("n").q11
    mean, error = scaled.mean(), scaled.sem()
    return Claim(
        "§5.3, Fig. 5",
        "q(1,1) presents a negative bias which disappears quite slowly",
        "mean of the scaled estimates at 32,000 and 128,000 negative by 2 standard errors; at least half is left of it",
        ", ".join(f"{mean[n]:.2f} ± {error[n]:.2f} at {n:,}" for n in LARGE),
        verdict(*(mean[n] < -2 * error[n] for n in LARGE[1:]), mean[LARGE[2]] < 0.5 * mean[LARGE[1]]),
    )


def later_averaging(evidence: Evidence) -> Claim:
    early, late = (evidence.scaled(method) for method in (AVERAGED, "averaged from 20,000"))
    early, late = (rows.q11[rows.n == LARGEST] for rows in (early, late))
    return Claim(
        "§5.3",
        "the bias could be corrected by averaging from 20,000 or more",
        "it becomes smaller, and at most half of it is left, at 128,000",
        f"{early.mean():.2f} ± {early.sem():.2f} becomes {late.mean():.2f} ± {late.sem():.2f}",
        verdict(late.mean() > early.mean(), abs(late.mean()) < 0.5 * abs(early.mean())),
    )


# --- computing times ------------------------------------------------------------------------------------------------


def similar_times(evidence: Evidence) -> Claim:
    table = evidence.table_1()
    ratio = table.loc["online EM"] / table.loc["batch EM, recursive"]
    return Claim(
        "§5.3, Table 1",
        "online EM and a recursive batch iteration have rather similar running times",
        "within a factor 2 in every implementation",
        "online / recursive: " + ", ".join(f"{name} {x:.2f}" for name, x in ratio.items()),
        verdict(*ratio.between(0.5, 2.0)),
    )


def fifty_iterations_cost(evidence: Evidence) -> Claim:
    table = evidence.table_1()
    times = 50 * table.loc[[FORWARD_BACKWARD, "batch EM, recursive"]] / table.loc["online EM"]
    ours = times.drop(columns=[*PRINTED])
    return Claim(
        "§5.3, Table 1",
        "50 batch iterations take 10 to 40 times longer than online EM",
        "between 10 and 40, give or take a factor 1.5, in every implementation",
        "forward–backward and recursive: " + ", ".join(f"{name} {a:.0f} and {b:.0f}" for name, (a, b) in times.items()),
        verdict(*ours.stack().between(10 / 1.5, 40 * 1.5)),
    )


def five_iterations(evidence: Evidence) -> Claim:
    ratio = evidence.rmse.loc[ONLINE] / evidence.rmse.loc[f"batch EM, {SHORT} iterations"]
    return Claim(
        "§5.3",
        "five batch iterations, in the time of online EM, are not competitive even for the smallest n",
        "RMSE of online EM smaller in all five parameters, at 500 and at 128,000",
        f"online / 5 iterations: {by_size(ratio.loc[[500, LARGEST], [*PARAMETERS]], '.2f')}",
        verdict(*(ratio.loc[[500, LARGEST]] < 1.0).to_numpy().ravel()),
    )


def growth_of_cost(evidence: Evidence) -> Claim:
    found = evidence.exponents().query("method != @TIED")
    is_cheap = found.method == FORWARD_BACKWARD
    return Claim(
        "§3.2",
        "online EM and recursive batch EM cost m⁴, forward–backward m²",
        "exponents between the two largest m at least 3.5 for the first two, at most 2.5 for the third",
        ", ".join(f"{row.method} {row.exponent:.1f} ({row.implementation})" for row in found.itertuples()),
        verdict(*(found.exponent[~is_cheap] > 3.5), *(found.exponent[is_cheap] < 2.5)),
    )


def structure_saves(evidence: Evidence) -> Claim | None:
    found = evidence.exponents().query("method == @TIED")
    if found.empty:
        return None
    growth = evidence.tables["growth"].query("implementation == 'hmmstream'").groupby("method").seconds.max()
    ratio = growth["online EM"] / growth[TIED]
    return Claim(
        "§3.2",
        "with a structured transition matrix the cost is of the order of the number of parameters times m²",
        "two transition parameters and m means: exponent between the two largest m within 0.6 of 3",
        f"{found.exponent.item():.1f}; with the largest m a full matrix costs {ratio:.0f} times as much",
        verdict(abs(found.exponent.item() - 3.0) < 0.6),
    )


# --- ρ --------------------------------------------------------------------------------------------------------------


def independent_of_x(evidence: Evidence) -> Claim:
    median = evidence.tables["freeze"].groupby(["n", "step"])[["gap", "distance"]].median().unstack("step")
    late = np.log(median.gap.loc[1_000:])
    slopes = {step: np.polyfit(np.log(late.index), late[step], 1)[0] for step in late}
    left = median.iloc[-1] / median.iloc[0]
    return Claim(
        "§4, Cor. 1",
        "under frozen parameters ρ_n(x) tends to a constant that does not depend on x",
        "the largest |ρ_n(1) − ρ_n(2)| falls as the step, exponent ± 0.1, and the distance from the limit to a tenth",
        "; ".join(
            f"γ = {step}: falls as n^{slope:.2f}, to {median.gap[step].iloc[-1]:.1g} at {median.index[-1]:,}; distance "
            f"{median.distance[step].iloc[0]:.2g} at {median.index[0]}, {median.distance[step].iloc[-1]:.2g} at the end"
            for step, slope in slopes.items()
        ),
        verdict(abs(slopes["1/n"] + 1.0) < 0.1, abs(slopes[ONLINE] + 0.6) < 0.1, (left.distance < 0.1).all()),
    )


def same_estimates(evidence: Evidence) -> Claim:
    paths = evidence.tables["symbols"]
    return Claim(
        "§3.1",
        "for finite-valued observations, updating ρ or τ is practically equivalent",
        "no parameter ever differs by more than 1e-9",
        f"at most {paths.difference.max():.0e}, over {paths.n.max():,} observations and {paths.run.nunique()} runs",
        verdict(paths.difference.max() < 1e-9),
    )


def only_rho_converges(evidence: Evidence) -> Claim:
    paths = evidence.tables["symbols"]
    kinds = {"φ": "phi1", "τ": "tau_1", "ρ": "rho_given_1"}
    early, late = (paths[paths.n.between(n, 2 * n)][[*kinds.values()]].std() for n in (1_000, 10_000))
    distance = abs(paths.rho_given_1[paths.n > 10_000].mean() - LIMIT)
    return Claim(
        "§3.1",
        "ρ converges to a deterministic limit, φ and so τ do not",
        "standard deviation over times and runs, from n = 1,000 to 2,000 and from 10,000 to 20,000: of ρ then at most "
        "0.7 times as large, of φ and τ at least; mean of ρ within 0.02 of its limit",
        ", ".join(f"{name} {early[key]:.3f} and {late[key]:.3f}" for name, key in kinds.items())
        + f"; ρ is {distance:.3f} from {LIMIT:.3f}",
        verdict(
            late[kinds["ρ"]] < 0.7 * early[kinds["ρ"]],
            *(late[kinds[name]] > 0.7 * early[kinds[name]] for name in ("φ", "τ")),
            distance < 0.02,
        ),
    )


CLAIMS: tuple[Callable[[Evidence], Claim | None], ...] = (
    separation,
    misclassification,
    slow_convergence,
    medians_alike,
    limiting_path,
    not_consistent,
    not_yet_as_good,
    preferable,
    consistent,
    fast_steps_fail,
    tuning_does_not_help,
    averaging_is_efficient,
    bias_of_q11,
    later_averaging,
    similar_times,
    fifty_iterations_cost,
    five_iterations,
    growth_of_cost,
    structure_saves,
    independent_of_x,
    same_estimates,
    only_rho_converges,
)


def judge(evidence: Evidence) -> list[Claim]:
    """All claims that can be judged."""
    return [claim for judged in CLAIMS if (claim := judged(evidence)) is not None]
