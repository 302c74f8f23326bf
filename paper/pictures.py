"""The figures, in the paper's layout. Tables in, pictures out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hmmstream.plotting import COLOURS, GREY, INK, PALE, STYLE
from paper.evidence import AVERAGED, BATCH, LABELS, ONLINE, SHOWN, TRUE, Evidence
from paper.experiments.batch_em import COMPARED_SIZES
from paper.experiments.cost import FORWARD_BACKWARD, TIED
from paper.experiments.freeze import LIMIT, SHARE_2
from paper.experiments.online_em import AVERAGES
from paper.experiments.symbols import LIMIT as SYMBOLS_LIMIT
from paper.model import SIZES

QUARTILE = 0.6745  # of the standard normal
BLUE, RED, GREEN, PINK = COLOURS[:4]


def drawing(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Draw in the house style, the same file for the same numbers."""

    @wraps(draw)
    def styled(*args: Any, **kwargs: Any) -> Figure:
        with matplotlib.rc_context({**STYLE, "svg.hashsalt": "hmmstream"}):
            return draw(*args, **kwargs)

    return styled


def svg(figure: Figure) -> str:
    """A picture as text."""
    buffer = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "hmmstream"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    return buffer.getvalue().decode()


# --- box and whiskers -----------------------------------------------------------------------------------------------


def boxes(ax: Axes, samples: Sequence[Any], at: Sequence[float], width: float, colour: str) -> None:
    """Box and whiskers: quartiles and median; whiskers to the last value within 1.5 ranges; crosses beyond."""
    ax.boxplot(
        list(samples),
        positions=list(at),
        widths=width,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": "white", "edgecolor": colour, "linewidth": 0.9},
        medianprops={"color": colour, "linewidth": 2.0},
        whiskerprops={"color": colour, "linewidth": 0.8, "linestyle": (0, (3, 2))},
        capprops={"color": colour, "linewidth": 0.8},
        flierprops={"marker": "+", "markersize": 3.5, "markeredgecolor": colour, "markeredgewidth": 0.6},
    )


def panels(
    figure: Figure,
    row: Sequence[Axes],
    groups: dict[str, pd.DataFrame],
    truths: dict[str, float],
) -> None:
    """The three panels of a figure: each n has a box for each of the groups, side by side."""
    sizes = sorted(next(iter(groups.values())).n.unique())
    width = 0.8 / len(groups)
    colours = [INK] if len(groups) == 1 else COLOURS
    for ax, parameter in zip(row, SHOWN, strict=True):
        ax.axhline(truths[parameter], color=GREY, linewidth=0.9, zorder=0)
        for number, (rows, colour) in enumerate(zip(groups.values(), colours, strict=False)):
            by_size = [rows.loc[rows.n == n, parameter].to_numpy() for n in sizes]
            shift = (number - (len(groups) - 1) / 2) * width
            boxes(ax, by_size, np.arange(len(sizes)) + shift, 0.85 * width if len(groups) > 1 else 0.5, colour)
        ax.set_xticks(range(len(sizes)), [f"{n / 1000:g}" for n in sizes])
        ax.set(title=LABELS[parameter], xlabel="n, thousands", xlim=(-0.6, len(sizes) - 0.4))
    if len(groups) > 1:
        keys = [Line2D([], [], color=colour, linewidth=2.0) for colour in colours[: len(groups)]]
        figure.legend(keys, list(groups), loc="outside lower center", ncols=len(groups))


def rows_of(evidence: Evidence, method: str) -> pd.DataFrame:
    """Estimates of one method."""
    return evidence.estimates[evidence.estimates.method == method]


@drawing
def estimates(evidence: Evidence, methods: Sequence[str], compared: Sequence[str] = ()) -> Figure:
    """Figures 2, 3 and 4: a row of three panels for each method, with room for those it is to be compared with."""
    figure = Figure(figsize=(9.0, 2.9 * len(methods)), layout="constrained")
    grid = figure.subplots(len(methods), 3, squeeze=False)
    for row, method in zip(grid, methods, strict=True):
        panels(figure, row, {method: rows_of(evidence, method)}, TRUE.to_dict())
        if len(methods) > 1:
            row[0].set_ylabel(method)
    all_rows = evidence.estimates[evidence.estimates.method.isin([*methods, *compared])]
    for column, parameter in zip(grid.T, SHOWN, strict=True):
        low, high = all_rows[parameter].min(), all_rows[parameter].max()
        for ax in column:
            ax.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
    return figure


@drawing
def scaled(evidence: Evidence, methods: Sequence[str], sizes: Sequence[int] = SIZES) -> Figure:
    """Figure 5: centred and scaled, with the quartiles that an efficient estimator would have."""
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    axes = figure.subplots(1, 3, sharey=len(methods) == 1)
    groups = {
        method: rows[rows.n.isin(sizes)] for method, rows in zip(methods, map(evidence.scaled, methods), strict=True)
    }
    for ax in axes:
        ax.axhspan(-QUARTILE, QUARTILE, color=PALE, linewidth=0.0, zorder=-1)
    panels(figure, axes, groups, dict.fromkeys(SHOWN, 0.0))
    axes[0].set_ylabel("√n (estimate − truth) / asymptotic deviation")
    return figure


@drawing
def steps(evidence: Evidence) -> Figure:
    """Slowly and quickly decreasing steps."""
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    groups = {step: rows_of(evidence, step) for step in ("n^-0.6", "n^-0.8", "n^-0.9", "1/n")}
    panels(figure, figure.subplots(1, 3), groups, TRUE.to_dict())
    return figure


# --- curves ---------------------------------------------------------------------------------------------------------


@drawing
def figure_1(evidence: Evidence) -> Figure:
    """Batch EM against iterations: medians and quartiles, and the limiting path."""
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    paths = evidence.tables["iterations"].groupby(["n", "iteration"])
    limit = evidence.tables["limit"]
    for ax, parameter in zip(figure.subplots(2, 1, sharex=True), ("q11", "mu1"), strict=True):
        ax.axhline(TRUE[parameter], color=GREY, linewidth=0.9, zorder=0)
        for n, line in zip(COMPARED_SIZES, (":", "-"), strict=True):
            for share in (0.25, 0.5, 0.75):
                curve = paths[parameter].quantile(share).loc[n]
                bold = share == 0.5
                label = f"n = {n:,}" if bold else None
                width, colour = (2.2, INK) if bold else (1.0, GREY)
                ax.plot(curve.index, curve, line, color=colour, linewidth=width, label=label)
        label = f"limit, from {limit.n.iloc[0] / 1e6:g} million observations"
        ax.plot(limit.iteration, limit[parameter], "--", color=RED, linewidth=1.2, label=label)
        ax.set(title=LABELS[parameter], xlim=(0, limit.iteration.max()))
    low, high = paths["mu1"].quantile([0.25, 0.75]).drop(0, level="iteration").agg(["min", "max"])
    ax.set_ylim(min(low, -0.2), max(high, 0.1))  # θ̂₀ is at -0.5, and left at once
    ax.set_xlabel("batch EM iterations")
    ax.legend(loc="lower right")
    return figure


@drawing
def freeze(evidence: Evidence) -> Figure:
    """The gap between ρ_n(1) and ρ_n(2), and one component of the two."""
    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    table = evidence.tables["freeze"]
    for (step, rows), colour in zip(table.groupby("step", sort=False), (BLUE, RED), strict=True):
        gap = rows.groupby("n").gap.quantile([0.25, 0.5, 0.75]).unstack()
        left.fill_between(gap.index, gap[0.25], gap[0.75], color=colour, alpha=0.2, linewidth=0.0)
        left.plot(gap.index, gap[0.5], color=colour, linewidth=1.6, label=f"γ = {step}")
        one = rows[rows.run == 0]
        right.plot(one.n, one.share_given_1, color=colour, linewidth=1.4, label=f"γ = {step}, given state 1")
        right.plot(one.n, one.share_given_2, ":", color=colour, linewidth=1.8, label="given state 2")
    right.axhline(LIMIT[SHARE_2], color=GREY, linewidth=0.9, zorder=0)
    left.set(xscale="log", yscale="log", xlabel="n", title="largest difference between ρ(1) and ρ(2)")
    right.set(xscale="log", xlabel="n", title="ρ of the share of time in state 2, one run")
    left.legend()
    right.legend(loc="upper right")
    return figure


@drawing
def symbols(evidence: Evidence) -> Figure:
    """The paths of φ, τ and ρ in one run."""
    figure = Figure(figsize=(9.0, 3.0), layout="constrained")
    rows = evidence.tables["symbols"].query("run == 0")
    kinds = {
        "φ (the filter)": {"phi1": "state 1"},
        "τ = φ ρ (Mongillo and Denève)": {"tau_1": "state 1", "tau_2": "state 2"},
        "ρ (Algorithm 1)": {"rho_given_1": "given state 1", "rho_given_2": "given state 2"},
    }
    for ax, (title, columns) in zip(figure.subplots(1, 3, sharey=True), kinds.items(), strict=True):
        width, lines = (1.2, ("-", ":")) if title.startswith("ρ") else (0.4, ("-", "-"))
        for (column, label), colour, line in zip(columns.items(), (BLUE, RED), lines, strict=False):
            ax.plot(rows.n / 1000, rows[column], line, color=colour, linewidth=width, label=label)
        if title.startswith("ρ"):
            ax.axhline(SYMBOLS_LIMIT, color=GREY, linewidth=0.9, zorder=0)
        ax.set(title=title, xlabel="n, thousands", ylim=(0.0, 1.0))
        for key in ax.legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none").get_lines():
            key.set_linewidth(1.6)
    return figure


@drawing
def growth(evidence: Evidence) -> Figure:
    """Time of one observation against the number of states."""
    figure = Figure(figsize=(8.0, 3.8), layout="constrained")
    ax = figure.subplots()
    table = evidence.tables["growth"]
    colours = {"online EM": BLUE, "batch EM, recursive": GREEN, FORWARD_BACKWARD: RED, TIED: PINK}
    lines = {"hmmstream": "-o", "NumPy": "--s"}
    for (implementation, method), rows in table.groupby(["implementation", "method"], sort=False):
        style = {"color": colours[method], "markersize": 3.5, "linewidth": 1.3}
        ax.plot(rows.m, 1e6 * rows.seconds, lines[implementation], label=f"{method} ({implementation})", **style)
    for method, power, name in (("online EM", 4.0, "m⁴"), (FORWARD_BACKWARD, 2.0, "m²")):
        m = table.loc[table.method == method, "m"].agg(["min", "max"]).to_numpy()
        guide = 3e-4 * m**power
        ax.plot(m, guide, color=GREY, linewidth=0.8, zorder=0)
        ax.annotate(name, (m[1], guide[1]), (4, 0), textcoords="offset points", color=GREY, va="center")
    ax.set(xscale="log", yscale="log", xlabel="states m", ylabel="µs an observation")
    ticks = sorted(table.m.unique())
    ax.set_xticks(ticks, [str(m) for m in ticks])
    ax.minorticks_off()
    figure.legend(loc="outside right center", fontsize=7)
    return figure


def all_pictures(evidence: Evidence) -> dict[str, Figure]:
    """By the name of the file."""
    return {
        "figure-1": figure_1(evidence),
        "figure-2": estimates(evidence, [BATCH], compared=[ONLINE]),
        "figure-3": estimates(evidence, [ONLINE], compared=[BATCH]),
        "figure-4": estimates(evidence, ["two-phase, as printed", "two-phase"]),
        "figure-5": scaled(evidence, [AVERAGED]),
        "steps": steps(evidence),
        "averages": scaled(evidence, [ONLINE, *AVERAGES], SIZES[2:]),
        "freeze": freeze(evidence),
        "symbols": symbols(evidence),
        "growth": growth(evidence),
    }
