"""What the paper says, held against what was measured.

Each claim is a function, and says in numbers what its words are taken to mean. What holds only in part says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from paper.evidence import AVERAGED, BATCH, LABELS, LARGEST, ONLINE, SHOWN, TRUE, Evidence
from paper.experiments.batch_em import COMPARED_SIZES, SHORT
from paper.experiments.cost import FORWARD_BACKWARD, METHODS, PRINTED, TIED
from paper.model import PARAMETERS, SIZES, START_VALUES

YES, PARTLY, NO = "yes", "in part", "no"


class Claim(NamedTuple):
    """A row of the table."""

    where: str
    words: str  # the paper's, in short
    measured: str
    holds: str


def exponent(x: pd.Series, y: pd.Series) -> float:
    """Of the power of x that y grows with, between the two largest x."""
    by_size = y.to_numpy()[np.argsort(x.to_numpy())]
    x_last, y_last = np.sort(x)[-2:], by_size[-2:]
    return float(np.diff(np.log(y_last)).item() / np.diff(np.log(x_last)).item())


def listed(numbers: pd.Series, form: str = ".4f") -> str:
    """q(1,1) 0.9494, μ(1) 0.0033, …"""
    return ", ".join(f"{LABELS[name]} {format(number, form)}" for name, number in numbers.items())


def verdict(*parts: bool) -> str:
    """All, none or some of what a claim says."""
    return YES if all(parts) else PARTLY if any(parts) else NO


# --- the model ------------------------------------------------------------------------------------------------------


def misclassification(evidence: Evidence) -> Claim:
    by_run = evidence.tables["information"].groupby("run")[["misclassified", "n"]].first()
    share, error = by_run.misclassified.mean(), by_run.misclassified.sem()
    return Claim(
        "§5.3",
        "the optimal filter misclassifies about 10.3 % of the states",
        f"{share:.3%} ± {error:.3%} of {by_run.n.sum() / 1e6:g} million",
        verdict(abs(share - 0.103) < max(0.001, 3 * error)),
    )


# --- batch EM -------------------------------------------------------------------------------------------------------


def slow_convergence(evidence: Evidence) -> Claim:
    path = evidence.tables["limit"].set_index("iteration").q11
    way = (path - START_VALUES[0]) / (TRUE.q11 - START_VALUES[0])
    needed = int(way.index[way > 0.9][0])
    return Claim(
        "§5.3, Fig. 1",
        "EM requires about 50 iterations to reach decent estimates",
        f"in the limit of long records q(1,1) has gone {way[10]:.0%} of its way after 10 iterations, {way[50]:.0%} "
        f"after 50; 90 % take {needed}",
        verdict(35 <= needed <= 65),
    )


def medians_alike(evidence: Evidence) -> Claim:
    paths = evidence.tables["iterations"].groupby(["n", "iteration"])[SHOWN]
    short, long = COMPARED_SIZES
    spread = paths.quantile(0.75) - paths.quantile(0.25)
    moved = spread.loc[short].index > 0
    apart = ((paths.median().loc[short] - paths.median().loc[long]).abs() / spread.loc[short])[moved].max()
    ratio = (spread.loc[short] / spread.loc[long])[moved].median()
    return Claim(
        "§5.3, Fig. 1",
        "the median curves are very similar for n = 500 and 8,000, the variability is greatly reduced",
        f"medians at most {apart.q11:.2f} (q(1,1)) and {apart.mu1:.2f} (μ(1)) interquartile ranges of n = 500 apart; "
        f"ranges {ratio.q11:.1f} and {ratio.mu1:.1f} times smaller for n = 8,000",
        verdict((apart[["q11", "mu1"]] < 0.5).all(), (ratio[["q11", "mu1"]] > 2.0).all()),
    )


def limiting_path(evidence: Evidence) -> Claim:
    paths = evidence.tables["iterations"].groupby(["n", "iteration"])[["q11", "mu1"]]
    long = max(COMPARED_SIZES)
    low, high = paths.quantile(0.25).loc[long], paths.quantile(0.75).loc[long]
    limit = evidence.tables["limit"].set_index("iteration")[["q11", "mu1"]]
    inside = ((limit >= low) & (limit <= high)).mean()
    return Claim(
        "§4, Fig. 1",
        "n = 8,000 gives a clear picture of the deterministic limiting EM trajectory",
        f"the path from {evidence.tables['limit'].n.iloc[0] / 1e6:g} million observations lies between the quartiles "
        f"of n = 8,000 at {inside.q11:.0%} (q(1,1)) and {inside.mu1:.0%} (μ(1)) of the iterations",
        verdict((inside > 0.9).all()),
    )


def not_consistent(evidence: Evidence) -> Claim:
    bias = (evidence.median.loc[BATCH] - TRUE)[SHOWN]
    spread = evidence.spread.loc[BATCH][SHOWN]
    error = 0.93 * spread.loc[LARGEST] / np.sqrt(evidence.runs)  # of a median: 1.2533 σ / √runs, σ = range / 1.349
    return Claim(
        "§5.3, Fig. 2",
        "with 50 iterations variability decreases with n but the accuracy does not improve",
        f"interquartile range from {listed(spread.loc[8_000])} at 8,000 to {listed(spread.loc[LARGEST])} at 128,000; "
        f"bias of the median from {listed(bias.loc[8_000])} to {listed(bias.loc[LARGEST])}, "
        f"or {listed((bias.loc[LARGEST] / error).abs(), '.0f')} standard errors",
        verdict(
            (spread.diff().dropna() < 0).all().all(),
            (bias.loc[LARGEST].abs() > 4 * error).all(),
            (bias.loc[LARGEST].abs() > 0.75 * bias.loc[8_000].abs()).all(),
        ),
    )


# --- online EM ------------------------------------------------------------------------------------------------------


def not_yet_as_good(evidence: Evidence) -> Claim:
    ratio = evidence.rmse.loc[ONLINE][SHOWN] / evidence.rmse.loc[BATCH][SHOWN]
    return Claim(
        "§5.3, Figs. 2, 3",
        "for n = 500 and 2,000 online estimates are not as good as 50 batch iterations",
        f"RMSE online / batch: {listed(ratio.loc[500], '.1f')} at 500; {listed(ratio.loc[2_000], '.1f')} at 2,000",
        verdict(*(ratio.loc[[500, 2_000]] > 1.0).to_numpy().ravel()),
    )


def preferable(evidence: Evidence) -> Claim:
    large = [n for n in SIZES if n >= 8_000]
    bias = (evidence.median - TRUE)[SHOWN].abs()
    closer = bias.loc[ONLINE].loc[large] < bias.loc[BATCH].loc[large]
    ratio = (evidence.rmse.loc[ONLINE] / evidence.rmse.loc[BATCH]).loc[large][SHOWN]
    by_size = "; ".join(f"{listed(ratio.loc[n], '.2f')} at {n:,}" for n in large)
    return Claim(
        "§5.3, Figs. 2, 3",
        "from n = 8,000 on online estimates are preferable despite their somewhat larger variance",
        f"the median is closer to the truth in {closer.to_numpy().sum()} of {closer.size} cases; RMSE online / batch: "
        f"{by_size}",
        verdict(*closer.to_numpy().ravel(), *(ratio < 1.0).to_numpy().ravel()),
    )


def consistent(evidence: Evidence) -> Claim:
    rmse = evidence.rmse.loc[ONLINE][SHOWN]
    return Claim(
        "§5.3, Fig. 3",
        "online EM with n^-0.6 appears consistent",
        "RMSE " + "; ".join(f"{listed(rmse.loc[n])} at {n:,}" for n in (8_000, 32_000, 128_000)),
        verdict((rmse.loc[[8_000, 32_000, 128_000]].diff().dropna() < 0).all().all()),
    )


def fast_steps_fail(evidence: Evidence) -> Claim:
    order = ["n^-0.6", "n^-0.8", "n^-0.9", "1/n"]
    loss = pd.Series({step: evidence.inefficiency(step).mean() for step in order})
    return Claim(
        "§5.3",
        "n^-α performs very poorly for α above 0.8; 1/n should definitely be avoided",
        "n · MSE over the Cramér–Rao bound at 128,000, mean of five parameters: "
        + ", ".join(f"{step} {loss[step]:,.0f}" for step in order),
        verdict(loss["n^-0.9"] > 10 * loss["n^-0.6"], bool(loss.idxmax() == "1/n")),
    )


def tuning_does_not_help(evidence: Evidence) -> Claim:
    variants = ["two-phase, as printed", "two-phase"]
    large = [32_000, 128_000]
    spread = pd.concat(
        {v: evidence.spread.loc[v].loc[large] / evidence.spread.loc[ONLINE].loc[large] for v in variants}
    )
    rmse = pd.Series(
        {v: (evidence.rmse.loc[v] / evidence.rmse.loc[ONLINE]).loc[LARGEST, SHOWN].min() for v in variants}
    )
    swapped = {
        v: (evidence.estimates.query("method == @v and n == @LARGEST").eval("mu1 > mu2")).sum() for v in variants
    }
    return Claim(
        "§5.3, Fig. 4",
        "a hand-tuned step is not significantly better than n^-0.6; higher variability at 32 and 128 thousand",
        "; ".join(
            f"{v}: interquartile range at 128,000 over that of n^-0.6 {listed(spread.loc[v, LARGEST][SHOWN], '.1f')}, "
            f"RMSE at least {rmse[v]:.1f} times as large, {swapped[v]} of {evidence.runs} runs end with swapped states"
            for v in variants
        ),
        verdict((rmse > 0.9).all(), *(spread.loc[(v, n)][SHOWN].mean() > 1.0 for v in variants for n in large)),
    )


def averaging_is_efficient(evidence: Evidence) -> Claim:
    loss = evidence.inefficiency(AVERAGED)[["mu1", "upsilon"]]
    bound = 1 + 3 * np.sqrt(2 / evidence.runs)  # three standard errors of a mean square
    return Claim(
        "§5.3, Fig. 5",
        "with averaging from 8,000, μ(1) and υ reach asymptotic efficiency",
        f"n · MSE over the Cramér–Rao bound at 128,000: {listed(loss, '.2f')} (without averaging "
        f"{listed(evidence.inefficiency(ONLINE)[['mu1', 'upsilon']], '.0f')}); bound for an efficient estimator and "
        f"{evidence.runs} runs, 3 standard errors: {bound:.2f}",
        verdict(*(loss < bound)),
    )


def bias_of_q11(evidence: Evidence) -> Claim:
    scaled = evidence.scaled(AVERAGED).groupby("n").q11
    mean, error = scaled.mean(), scaled.sem()
    return Claim(
        "§5.3, Fig. 5",
        "q(1,1) presents a negative bias which disappears quite slowly",
        "mean of the scaled estimates "
        + ", ".join(f"{mean[n]:.2f} ± {error[n]:.2f} at {n:,}" for n in (8_000, 32_000, 128_000)),
        verdict(mean[32_000] < -2 * error[32_000], mean[128_000] < -2 * error[128_000]),
    )


def later_averaging(evidence: Evidence) -> Claim:
    bias = {
        method: evidence.scaled(method).query("n == @LARGEST").q11.agg(["mean", "sem"])
        for method in (AVERAGED, "averaged from 20,000")
    }
    (early, _), (late, error) = bias.values()
    return Claim(
        "§5.3",
        "the bias could be corrected by averaging from 20,000 or more",
        f"at 128,000 {early:.2f} becomes {late:.2f} ± {error:.2f}",
        verdict(late > early, abs(late) < 2 * error),
    )


# --- computing times ------------------------------------------------------------------------------------------------


def similar_times(evidence: Evidence) -> Claim:
    table = evidence.table_1()
    ratio = table.loc["online EM"] / table.loc["batch EM, recursive"]
    return Claim(
        "§5.3, Table 1",
        "online EM and a recursive batch iteration have rather similar running times",
        "online / recursive: " + ", ".join(f"{name} {x:.2f}" for name, x in ratio.items()),
        verdict(*(ratio.between(0.5, 2.0))),
    )


def fifty_iterations_cost(evidence: Evidence) -> Claim:
    table = evidence.table_1()
    times = {
        name: (50 * table.loc[FORWARD_BACKWARD, name] / table.loc["online EM", name],
               50 * table.loc["batch EM, recursive", name] / table.loc["online EM", name])
        for name in table
    }  # fmt: skip
    ours = [times[name] for name in table if name not in PRINTED]
    return Claim(
        "§5.3, Table 1",
        "50 batch iterations take 10 to 40 times longer than online EM",
        "forward–backward and recursive: " + ", ".join(f"{name} {a:.0f} and {b:.0f}" for name, (a, b) in times.items()),
        verdict(*(a > 4 and 20 < b < 80 for a, b in ours)),
    )


def five_iterations(evidence: Evidence) -> Claim:
    method = f"batch EM, {SHORT} iterations"
    ratio = evidence.rmse.loc[ONLINE] / evidence.rmse.loc[method]
    parts = (ratio < 1.0).loc[:, list(PARAMETERS)]
    return Claim(
        "§5.3",
        "five batch iterations, in the time of online EM, are not competitive even for the smallest n",
        f"RMSE online / 5 iterations at 500: {listed(ratio.loc[500], '.2f')}; at 128,000: "
        f"{listed(ratio.loc[LARGEST], '.2f')}",
        verdict(*parts.loc[500], parts.loc[LARGEST].all()),
    )


def growth_of_cost(evidence: Evidence) -> Claim:
    growth = evidence.tables["growth"]
    found = {
        key: exponent(rows.m, rows.seconds)
        for key, rows in growth.groupby(["implementation", "method"])
        if TIED not in key
    }
    expected = {method: 2.0 if method == FORWARD_BACKWARD else 4.0 for method in METHODS}
    return Claim(
        "§3.2",
        "online EM and recursive batch EM cost m⁴, forward–backward m²",
        "exponents between the two largest m: "
        + ", ".join(f"{method} {x:.1f} ({implementation})" for (implementation, method), x in found.items()),
        verdict(*(abs(x - expected[method]) < 0.6 for (_, method), x in found.items())),
    )


def structure_saves(evidence: Evidence) -> Claim | None:
    rows = evidence.tables["growth"].query("method == @TIED")
    if len(rows) < 2:
        return None
    full = evidence.tables["growth"].query("implementation == 'hmmstream' and method == 'online EM'")
    ratio = full.seconds.max() / rows.seconds.max()
    found = exponent(rows.m, rows.seconds)
    return Claim(
        "§3.2",
        "with a structured transition matrix the cost is of the order of the number of parameters times m²",
        f"two transition parameters and m means: exponent {found:.1f}, for m³; at m = {rows.m.max()} a full matrix "
        f"costs {ratio:.0f} times as much",
        verdict(abs(found - 3.0) < 0.6),
    )


# --- ρ --------------------------------------------------------------------------------------------------------------


def independent_of_x(evidence: Evidence) -> Claim:
    gap = evidence.tables["freeze"].groupby(["step", "n"])[["gap", "distance"]].median()
    first = int(gap.index.get_level_values("n").min())
    late = gap.gap.unstack("step").loc[1_000:]
    slopes = {step: np.polyfit(np.log(late.index), np.log(late[step]), 1)[0] for step in late}
    return Claim(
        "§4, Cor. 1",
        "under frozen parameters ρ_n(x) tends to a constant that does not depend on x",
        "median over the runs of the largest |ρ_n(1) − ρ_n(2)|: "
        + "; ".join(
            f"{step}: {gap.gap[step, first]:.2g} at {first}, {gap.gap[step, LARGEST]:.1g} at {LARGEST:,}, falling as "
            f"n^{slopes[step]:.2f}; distance to the limit then {gap.distance[step, LARGEST]:.2g}"
            for step in slopes
        ),
        verdict(abs(slopes["1/n"] + 1.0) < 0.1, abs(slopes[ONLINE] + 0.6) < 0.1),
    )


def same_estimates(evidence: Evidence) -> Claim:
    paths = evidence.tables["symbols"]
    return Claim(
        "§3.1",
        "for finite-valued observations, updating ρ or τ is practically equivalent",
        f"the two differ by at most {paths.difference.max():.0e} in any parameter over {paths.n.max():,} observations "
        f"and {paths.run.nunique()} runs",
        verdict(paths.difference.max() < 1e-9),
    )


def only_rho_converges(evidence: Evidence) -> Claim:
    paths = evidence.tables["symbols"]
    jumps = paths.groupby(pd.cut(paths.n, [1_000, 2_000, 10_000, 20_000]), observed=True)[
        ["jump_phi", "jump_rho", "jump_tau"]
    ].median()
    first, last = jumps.iloc[0], jumps.iloc[-1]
    return Claim(
        "§3.1",
        "ρ converges to a deterministic limit, φ and so τ do not",
        "largest change by one of 20 observations, median, around n = 1,500 and 15,000: "
        + ", ".join(f"{name} {first[f'jump_{key}']:.3f} and {last[f'jump_{key}']:.3f}"
                    for name, key in (("φ", "phi"), ("τ", "tau"), ("ρ", "rho"))),
        verdict(last.jump_rho < 0.5 * first.jump_rho, last.jump_phi > 0.5 * first.jump_phi,
                last.jump_tau > 0.5 * first.jump_tau),
    )  # fmt: skip


CLAIMS: tuple[Callable[[Evidence], Claim | None], ...] = (
    misclassification, slow_convergence, medians_alike, limiting_path, not_consistent,
    not_yet_as_good, preferable, consistent, fast_steps_fail, tuning_does_not_help,
    averaging_is_efficient, bias_of_q11, later_averaging,
    similar_times, fifty_iterations_cost, five_iterations, growth_of_cost, structure_saves,
    independent_of_x, same_estimates, only_rho_converges,
)  # fmt: skip


def judge(evidence: Evidence) -> list[Claim]:
    """All claims that can be judged."""
    return [claim for judged in CLAIMS if (claim := judged(evidence)) is not None]
