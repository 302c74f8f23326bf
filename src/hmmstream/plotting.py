"""Pictures of a model: its transitions, its emissions, its states over time, the way of its parameters.

Every function draws on the axes it is given, or makes a figure of its own, which is then ``ax.figure``. Matplotlib
comes with the first picture, not with this module. Nothing global changes: no current figure, no style.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from math import ceil, floor, inf, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, matrix, observations
from hmmstream.model import HMM

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

# The colours of Okabe and Ito, which the colour-blind tell apart too; those that are pale on white come late
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
INK, GREY, PALE = "#222222", "#888888", "#DDDDDD"
STYLE: dict[str, Any] = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.transparent": False,
    "axes.facecolor": "white",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "text.color": INK,
    "text.usetex": False,
    "text.parse_math": False,  # names may hold a $
    "xtick.color": INK,
    "ytick.color": INK,
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
}
LINE_STYLES = ("-", "--", ":", "-.")  # of features, where colours are those of states
SUFFIXES = (".png", ".svg", ".pdf")
MOST_LABELLED = 12  # states whose transitions are written into the cells, and that a legend names
MOST_SERIES = 4  # features that are drawn over time
MOST_LINES = 8  # of one parameter
MOST_DENSITIES = 5  # features whose emissions are on a page
MOST_POINTS = 100_000  # of one series
MOST_STEPS = 2_000  # of probabilities over time: more than a page has dots
MOST_BARS = 200


def _styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw in the style of this module, and leave everyone else's as it is."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            import matplotlib
        except ImportError as error:
            raise ImportError("pictures need Matplotlib: pip install matplotlib") from error
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled


# --- the four pictures ----------------------------------------------------------------------------------------------


@_styled
def plot_transitions(model: HMM, ax: Axes | None = None) -> Axes:
    """Draw the transition matrix, with the mean stay in each state. Hatched cells are impossible.

    Colours follow the square root of the probability, so that rare transitions can be seen.
    """
    from matplotlib.colors import PowerNorm

    transmat, m = model.transmat, model.n_components
    if ax is None:
        size = min(4.0 + 0.3 * m, 11.0)
        ax = _figure(size + 1.0, size).subplots()
    image = ax.imshow(np.ma.masked_equal(transmat, 0.0), cmap="Blues", norm=PowerNorm(0.5, 0.0, 1.0), aspect="auto")
    for i, j in np.argwhere(transmat == 0.0):
        ax.fill_between([j - 0.5, j + 0.5], i - 0.5, i + 0.5, facecolor="none", edgecolor=GREY, hatch="////", lw=0.0)
    frame = ax.get_window_extent()
    width, height = 72.0 * frame.width / ax.figure.dpi / m, 72.0 * frame.height / ax.figure.dpi / m  # of a cell, points
    if m <= MOST_LABELLED:
        for (i, j), p in np.ndenumerate(transmat):
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if p == 0.0 else None
            colour = "white" if p > 0.3 else INK  # the map is dark from there on
            font = float(np.clip(0.3 * width, 5.0, 9.0))
            ax.text(j, i, _probability(p), color=colour, ha="center", va="center", fontsize=font, bbox=box)
    else:
        ax.figure.colorbar(image, ax=ax, label="probability", ticks=[0.0, 0.01, 0.1, 0.25, 0.5, 1.0])

    across, down = np.arange(0, m, ceil(14.0 / width)), np.arange(0, m, ceil(9.0 / height))
    ax.set_xticks(across, [str(j) for j in across])
    ax.set_yticks(down, [f"{i}  ({_stay(transmat[i, i])})   " for i in down])
    for i, colour in enumerate(_colours(m)):  # a key to the colours of the other pictures
        beside = {"transform": ax.get_yaxis_transform(), "clip_on": False, "linewidth": 0.0}
        ax.fill_between([-0.025, -0.005], i - 0.4, i + 0.4, color=colour, **beside)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set(xlim=(-0.5, m - 0.5), ylim=(m - 0.5, -0.5))
    ax.set(xlabel="to state", ylabel="from state (mean stay, rows)", title="transitions")
    return ax


@_styled
def plot_emissions(
    model: HMM,
    X: ArrayLike | None = None,
    feature: int = 0,
    name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what each state emits in one feature, weighted by how often the chain is in it, over the data.

    Numbers are drawn as densities with their sum, over the histogram of ``X``. Counts and symbols are drawn as bars, a
    state's upon the other's, with the shares of ``X`` as points. Some families describe whole rows and have no density
    of one feature: there the histogram is shared out among the states, or their means and standard deviations are
    drawn, whichever is known.

    Parameters
    ----------
    model : HMM
    X : (n, d), NaN where missing
    feature : int
        The column that is drawn.
    name : str
        Of the feature.
    """
    return _emissions(model, X, feature, name, ax or _figure(7.0, 4.0).subplots(), legend=True)


@_styled
def plot_states(
    X: ArrayLike,
    proba: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    first_row: int = 0,
    axes: Iterable[Axes] | None = None,
) -> list[Axes]:
    """Draw the data over time in the colours of their most probable states, and beneath them the probabilities.

    Parameters
    ----------
    X : (n, d), NaN where missing
    proba : (n, m)
        Probability of each state at each row, such as ``model.filter(X)``.
    names : of the features
    first_row : int
        The number of the first of these rows in the stream.
    axes : one for each feature that is to be drawn, and one for the probabilities
        By default of a figure with the first four features.
    """
    data, chances = matrix(X), np.asarray(proba, dtype=np.float64)
    if chances.ndim != 2 or len(chances) != len(data):
        raise ValueError(f"proba must have shape ({len(data)}, states), a row for each of X, got {chances.shape}")
    n, d = data.shape
    if axes is None:
        shown = min(d, MOST_SERIES)
        figure = _figure(9.0, 1.5 + 1.5 * max(shown, 2))
        panels = list(figure.subplots(shown + 1, height_ratios=[1.0] * shown + [0.7]))
    else:
        panels = list(axes)
        shown = len(panels) - 1
        if not 1 <= shown <= d:
            raise ValueError(f"axes must be one for each of up to {d} features and one more, got {len(panels)}")

    for feature, ax in enumerate(panels[:-1]):
        _series(ax, data[:, feature], chances, first_row)
        ax.set_ylabel(_feature_name(names, feature))
        ax.tick_params(labelbottom=False)
    if shown < d:
        panels[0].set_title(f"first {shown} of {d} features")
    _probabilities(panels[-1], chances, first_row)
    _state_legend(panels[0], chances.shape[1])
    for ax in panels:
        ax.set_xlim(first_row - 0.5, first_row + max(n, 1) - 0.5)
        _rows_axis(ax)
    panels[-1].set_xlabel("row")
    return panels


@_styled
def plot_parameters(
    n: ArrayLike,
    values: Mapping[str, ArrayLike],
    errors: Mapping[str, ArrayLike] | None = None,
    *,
    axes: Iterable[Axes] | None = None,
) -> list[Axes]:
    """Draw how parameters came to their values, each with a band of two standard errors.

    Of a transition matrix the probabilities of staying are drawn, of covariances the variances.

    Parameters
    ----------
    n : (k,)
        Numbers of rows at which the values were noted.
    values : name -> (k, ...)
        Behind the first axis the shape of the parameter, whose first index is the state.
    errors : name -> (...)
        Standard errors at the last of ``n``. Earlier bands are those of fewer rows: wider by the root of their ratio.
    axes : one for each of ``values``
    """
    rows = np.asarray(n, dtype=np.float64)
    paths = {name: np.asarray(path, dtype=np.float64) for name, path in values.items()}
    for name, path in paths.items():
        if path.ndim == 0 or rows.ndim != 1 or len(path) != len(rows):
            raise ValueError(f"values[{name!r}] must have an entry for each of the {rows.size} of n, got {path.shape}")
    bands = {name: np.asarray((errors or {}).get(name, np.nan), dtype=np.float64) for name in paths}
    for name, band in bands.items():
        if band.ndim and band.shape != paths[name].shape[1:]:
            raise ValueError(f"errors[{name!r}] must have shape {paths[name].shape[1:]}, got {band.shape}")
    n_states = paths["transmat"].shape[1] if "transmat" in paths else None

    if axes is None:
        across = min(max(len(paths), 1), 3)
        down = max(ceil(len(paths) / across), 1)
        panels = list(_figure(1.0 + 3.5 * across, 3.2 * down).subplots(down, across, squeeze=False).flat)
        for ax in panels[len(paths) :]:
            ax.set_axis_off()
    else:
        panels = list(axes)
        if len(panels) < len(paths):
            raise ValueError(f"axes must be one for each of {list(paths)}, got {len(panels)}")
    panels = panels[: len(paths)]
    at = rows > 0  # what was there before the first row has no place on a logarithmic axis
    for ax, (name, path) in zip(panels, paths.items(), strict=True):
        _parameter(ax, name, rows[at], path[at], bands[name], n_states)
    return panels


@_styled
def page(
    model: HMM,
    *,
    X: ArrayLike | None = None,
    recent: tuple[ArrayLike, ArrayLike, int] | None = None,
    path: tuple[ArrayLike, Mapping[str, ArrayLike], Mapping[str, ArrayLike] | None] | None = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw all that is known of a model on one page.

    Parameters
    ----------
    model : HMM
    X : (n, d)
        Data to compare the emissions with.
    recent : (X, proba, first_row)
        The latest rows and their states: see ``plot_states``.
    path : (n, values, errors)
        How the parameters came to their values: see ``plot_parameters``.
    names : of the features
    title : str

    Examples
    --------
    >>> from hmmstream import HMM, Gaussian
    >>> model = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
    >>> X, _ = model.sample(300, random_state=0)
    >>> figure = page(model, X=X, title="Two states")
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['transitions', 'emissions']
    """
    densities = min(model.n_features, MOST_DENSITIES)
    across = 2 if densities == 1 else 3
    down = ceil((1 + densities) / across)
    heights = [3.2 * down]
    if recent is not None:
        series = min(matrix(recent[0]).shape[1], MOST_SERIES)
        heights.append(1.4 + 1.3 * max(series, 1.5))
    if path is not None:
        panels_across = min(max(len(path[1]), 1), 4)
        panels_down = max(ceil(len(path[1]) / panels_across), 1)
        heights.append(2.7 * panels_down)
    height = max(sum(heights), 4.5) + (0.4 if title else 0.0)
    figure = _figure(11.0, height if len(heights) == 1 else max(height, 8.0))
    if title:
        figure.suptitle(title, fontsize=13.0, x=0.01, ha="left")
    strips = iter(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])

    first, *others = next(strips).subplots(down, across, squeeze=False).flat
    plot_transitions(model, first)
    for feature, ax in enumerate(others[:densities]):
        _emissions(model, X, feature, _feature_name(names, feature), ax, legend=feature == densities - 1).set_title("")
    for ax in others[densities:]:
        ax.set_axis_off()
    left = "" if densities == model.n_features else f", first {densities} of {model.n_features} features"
    others[0].set_title(f"emissions{left}")
    if recent is not None:
        ratios = [1.0] * series + [0.8 if series > 1 else 0.6]
        axes = next(strips).subplots(series + 1, height_ratios=ratios)
        plot_states(recent[0], recent[1], first_row=recent[2], names=names, axes=axes)
    if path is not None:
        axes = next(strips).subplots(panels_down, panels_across, squeeze=False).flat
        plot_parameters(*path, axes=axes)
        for ax in axes[len(path[1]) :]:
            ax.set_axis_off()
    return figure


def picture(model: HMM, X: FloatArray | None, names: Sequence[str] | None) -> Figure:
    """A page for a model and rows: of many, the states of the last."""
    recent = None
    if X is not None and len(X):
        first = max(0, len(X) - MOST_STEPS)
        recent = X[first:], model.filter(X)[first:], first
    return page(model, X=X, recent=recent, names=names)


@_styled
def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file: PNG, SVG or PDF, by the suffix of its name."""
    check_suffix(path)
    figure.savefig(path, dpi=150)


def check_suffix(path: str | Path) -> None:
    """Refuse the name of a file whose kind is not known."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"a picture is written to a file that ends in {', '.join(SUFFIXES)}, got {str(path)!r}")


# --- emissions ------------------------------------------------------------------------------------------------------


def _emissions(model: HMM, X: ArrayLike | None, feature: int, name: str | None, ax: Axes, legend: bool) -> Axes:
    if not 0 <= feature < model.n_features:
        raise ValueError(f"feature must be one of 0, …, {model.n_features - 1}, got {feature}")
    data = np.empty((0, model.n_features)) if X is None else observations(X, model.n_features)
    seen = data[np.isfinite(data[:, feature]), feature]
    try:
        weights, source = model.stationary_distribution(), ""
    except ValueError:  # the chain falls into parts: how often it is in each depends on where it starts
        weights, source = model.startprob, "weights: start distribution"

    if _needs_whole_rows(model, feature):
        _whole_rows(model, data, feature, ax)
    else:
        drawn = _drawn(model, feature)
        if (drawn == np.floor(drawn)).all():
            _bars(model, weights, drawn, seen, feature, ax)
        else:
            _curves(model, weights, drawn, seen, feature, ax)
    ax.set_xlabel(name or f"feature {feature}")
    ax.set_title("emissions")
    if legend and ax.has_data():
        shares = [f" ({_share(weight)})" for weight in weights]
        extra = ax.get_legend_handles_labels()[0]
        _state_legend(ax, model.n_components, shares, extra, source)
    return ax


def _needs_whole_rows(model: HMM, feature: int) -> bool:
    """Whether this feature says nothing on its own: then the model has no density of it."""
    row = np.full(model.emission.n_features, np.nan)
    row[model.emission.n_lags + feature] = model.emission.accepts_at(feature, 0.0)  # 0 or 1: either is a value
    return bool(model.emission.is_missing(row))


def _drawn(model: HMM, feature: int, size: int = 1000) -> FloatArray:
    """Values that each state would emit, in order: (m, size). They show what a family can emit, and where."""
    states = np.repeat(np.arange(model.n_components), size)
    values = model.emission.sample(states, np.random.default_rng(0))[:, feature]
    return np.sort(values.reshape(-1, size).astype(np.float64), axis=1)


def _range(drawn: FloatArray, seen: FloatArray) -> tuple[float, float]:
    """Where there is something to see: where the data are but for a few outliers, else where they would be."""
    low, high = _span(seen)
    if low < high and ((drawn >= low) & (drawn <= high)).any():
        return _with_margin(low, high, 0.05)
    at_least, at_most = np.quantile(drawn, 0.005, axis=1).min(), np.quantile(drawn, 0.995, axis=1).max()
    return _with_margin(np.nanmin([low, at_least]), np.nanmax([high, at_most]), 0.15)


def _densities(model: HMM, feature: int, grid: FloatArray) -> FloatArray:
    """Density of the feature alone in each state: (m, len(grid))."""
    rows = np.full((len(grid), model.n_features), np.nan)
    rows[:, feature] = grid
    single = np.ones(len(grid), dtype=np.int64)
    certain = (HMM(start, model.transmat, model.emission, model.transition) for start in np.eye(model.n_components))
    return np.exp([in_state.log_predictive(rows, lengths=single) for in_state in certain])


def _curves(model: HMM, weights: FloatArray, drawn: FloatArray, seen: FloatArray, feature: int, ax: Axes) -> None:
    low, high = _range(drawn, seen)
    # A grid for all, and one for each state: narrow ones would fall through the first
    own = (np.linspace(*_with_margin(values[0], values[-1], 0.3), 60) for values in drawn)
    grid = np.unique(np.concatenate([np.linspace(low, high, 400), *own]))
    grid = grid[(grid >= low) & (grid <= high)]
    grid = np.array([value for value in grid if model.emission.accepts_at(feature, value)])
    if not len(grid):
        _say(ax, "nothing that the model can emit is in the range of the data")
        return
    densities = weights[:, np.newaxis] * _densities(model, feature, grid)
    total = densities.sum(axis=0)
    peaks = [total[np.isfinite(total)].max(initial=0.0)]
    if len(seen):
        counts, edges = np.histogram(seen, bins=_bins(len(seen)), range=(low, high))
        shares = counts / len(seen) / (edges[1] - edges[0])
        ax.stairs(shares, edges, fill=True, color=PALE, label="data")
        peaks.append(shares.max())
    if len(densities) > 1:
        ax.plot(grid, total, color=INK, lw=1.0, ls=(0, (4, 2)), label="sum")
    for density, colour in zip(densities, _colours(len(densities)), strict=True):
        ax.plot(grid, density, color=colour, lw=1.6)
    # A spike, of the data or of a state, shall not squash all else: it leaves the frame
    others = np.sort(np.where(np.isfinite(densities), densities, 0.0).max(axis=1))[-2:]
    top = min(max(peaks), 3.0 * min(peaks), 25.0 * others[0] if others[0] > 0.0 else inf)
    ax.set(xlim=(grid[0], grid[-1]), ylim=(0.0, 1.08 * top or 1.0), ylabel="density")


def _bars(model: HMM, weights: FloatArray, drawn: FloatArray, seen: FloatArray, feature: int, ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = _range(drawn, seen)
    step = ceil((high - low) / MOST_BARS)
    values = np.arange(floor(low), ceil(high) + 1, step, dtype=np.float64)
    values = np.array([value for value in values if model.emission.accepts_at(feature, value)])
    if not len(values):
        _say(ax, "nothing that the model can emit is in the range of the data")
        return
    bars = weights[:, np.newaxis] * _densities(model, feature, values)
    tops = np.cumsum(bars, axis=0)
    width = 0.8 if len(values) < 40 else 1.0
    for bar, top, colour in zip(bars, tops, _colours(len(bars)), strict=True):
        ax.bar(values, bar, width=width * step, bottom=top - bar, color=colour, linewidth=0.0)
    highest = tops[-1].max()
    if len(seen):
        counts, _ = np.histogram(seen, bins=np.append(values, values[-1] + step) - 0.5)
        shares = counts / len(seen) / step
        dots = {"ls": "none", "marker": "o", "ms": 4.5 if len(values) < 60 else 2.5, "mfc": "white", "mec": INK}
        ax.plot(values[shares > 0], shares[shares > 0], label="data", **dots)
        highest = max(highest, shares.max())
    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    edges = values[0] - 0.7 * step, values[-1] + 0.7 * step
    ax.set(xlim=edges, ylim=(0.0, 1.08 * highest or 1.0), ylabel="probability")


def _whole_rows(model: HMM, data: FloatArray, feature: int, ax: Axes) -> None:
    """What can be said of a feature whose density depends on the rest of the row."""
    family, m = type(model.emission).__name__, model.n_components
    is_seen = np.isfinite(data[:, feature])
    if is_seen.any():
        proba = model.smooth(data)[is_seen]
        seen = data[is_seen, feature]
        low, high = _with_margin(*_span(seen), 0.05)
        edges = np.linspace(low, high, _bins(len(seen)) + 1)
        bottom = np.zeros(len(edges) - 1)
        for weight, colour in zip(proba.T, _colours(m), strict=True):
            counts, _ = np.histogram(seen, edges, weights=weight)
            top = bottom + counts / len(seen) / np.diff(edges)
            ax.stairs(top, edges, baseline=bottom, fill=True, color=colour)
            bottom = top
        ax.set(xlim=(low, high), ylim=(0.0, 1.08 * bottom.max() or 1.0), ylabel="density of the data, by state")
        return
    try:
        means, variances = (moment[:, feature] for moment in model.emission.moments())
    except (NotImplementedError, IndexError):
        means = variances = np.full(m, np.nan)
    if np.isfinite(means).all():
        for i, colour in enumerate(_colours(m)):
            ax.errorbar(means[i], i, xerr=np.sqrt(variances[i]), color=colour, fmt="o", capsize=3.0)
        ax.set_yticks(np.arange(m)[:: ceil(m / 20)])
        ax.set(ylim=(m - 0.5, -0.5), ylabel="state: mean ± standard deviation")
    else:
        _say(ax, f"{family} describes whole rows:\nwithout data there is\nnothing to draw")


# --- states over time -----------------------------------------------------------------------------------------------


def _series(ax: Axes, values: FloatArray, proba: FloatArray, first_row: int) -> None:
    """One feature over time, in the colours of the most probable states."""
    n, m = proba.shape
    known = np.flatnonzero(np.isfinite(values) & ~np.isnan(proba).any(axis=1))
    rows = first_row + np.arange(n)
    if len(known) > MOST_POINTS:
        known = known[np.linspace(0, len(known) - 1, MOST_POINTS).astype(np.int64)]
    if not len(known):
        _say(ax, "no value was seen")
        return
    if n <= 1_000:
        ax.plot(rows, np.where(np.isfinite(values), values, np.nan), color=PALE, lw=0.8, zorder=1)
    states = proba[known].argmax(axis=1)
    size = float(np.clip(12_000 / n, 0.6, 14.0))
    dots = {"s": size, "linewidths": 0.0, "rasterized": True, "zorder": 2}
    ax.scatter(rows[known], values[known], c=np.asarray(_colours(m))[states], **dots)
    low, high = _span(values[known])
    low, high = _with_margin(low, high, 0.08)
    ax.set_ylim(low, high)
    far = int(((values[known] < low) | (values[known] > high)).sum())
    if far:
        place = {"transform": ax.transAxes, "ha": "right", "va": "bottom", "fontsize": 7.0, "color": GREY}
        ax.text(1.0, 1.0, f"{far:,} beyond the frame", **place)


def _probabilities(ax: Axes, proba: FloatArray, first_row: int) -> None:
    """Probabilities of states over time, one upon the other; of many rows, means of neighbours."""
    n, m = proba.shape
    edges = np.unique(np.linspace(0, n, min(n, MOST_STEPS) + 1).astype(np.int64))
    if n:
        means = np.add.reduceat(proba, edges[:-1], axis=0) / np.diff(edges)[:, np.newaxis]
        tops = np.cumsum(means, axis=1)
        bottoms = np.column_stack([np.zeros(len(tops)), tops[:, :-1]])
        for bottom, top, colour in zip(bottoms.T, tops.T, _colours(m), strict=True):
            area = {"fill": True, "color": colour, "linewidth": 0.0, "antialiased": False, "rasterized": n > 500}
            ax.stairs(top, first_row + edges - 0.5, baseline=bottom, **area)
    ax.set(ylim=(0.0, 1.0), ylabel="probability")


# --- the way of parameters ------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """The path of one number."""

    place: tuple[int, ...]  # state first, unless all states share it
    values: FloatArray
    error: float  # at the last of them
    colour: str
    style: str


def _parameter(ax: Axes, name: str, n: FloatArray, path: FloatArray, error: FloatArray, n_states: int | None) -> None:
    """The lines of one parameter."""
    title, lines = _lines(name, path, error, n_states)
    ax.set(title=title, xlabel="rows learned")
    if not len(n) or not any(np.isfinite(line.values[-1]) for line in lines):
        _say(ax, "nothing noted yet")
        return
    for line in lines:
        band = 2.0 * line.error * np.sqrt(n[-1] / n)
        ax.plot(n, line.values, color=line.colour, lw=1.3, ls=line.style, marker="o" if len(n) < 3 else None, ms=3.0)
        ax.fill_between(n, line.values - band, line.values + band, color=line.colour, alpha=0.18, lw=0.0)
    ax.set_xscale("log")
    alone = 2.0 if n[0] == n[-1] else 1.0
    ax.set_xlim(n[0] / alone, n[-1] * alone)
    _rows_axis(ax, logarithmic=True)

    # What counts is where the path came to: what was before a tenth of the rows, and wide bands, may leave the frame
    late = np.array([line.values[n >= n[-1] / 10.0] for line in lines])
    reach = 3.0 * np.array([np.nan_to_num(line.error) for line in lines])
    ends = np.concatenate([late.ravel(), late[:, -1] - reach, late[:, -1] + reach])
    ends = ends[np.isfinite(ends)]
    ax.set_ylim(*_with_margin(ends.min(), ends.max(), 0.08))
    if any(line.place for line in lines):
        _label_ends(ax, lines)


def _lines(name: str, path: FloatArray, error: FloatArray, n_states: int | None) -> tuple[str, list[_Line]]:
    """What is drawn of a parameter: a title, and the lines."""
    shape = path.shape[1:]
    error = np.broadcast_to(error, shape)
    is_matrix = len(shape) >= 2 and shape[-1] == shape[-2]
    is_shared = len(shape) == 0 or (n_states is not None and shape[0] != n_states)
    what = ""
    if name.startswith("covars") and is_matrix and np.array_equal(path, np.swapaxes(path, -1, -2), equal_nan=True):
        is_shared = len(shape) == 2  # one matrix, not one for each state
        what = ", diagonal" if shape[-1] > 1 else ""
        path, error = _diagonal(path), _diagonal(error)
    elif name == "transmat" and is_matrix:
        what = ", probability of staying"
        path, error = _diagonal(path), _diagonal(error)
    while path.ndim > (1 if is_shared else 2) and path.shape[-1] == 1:
        path, error = path[..., 0], error[..., 0]

    # All states of the first column, all of the second, … while there is room: half of them would puzzle
    places = sorted(np.ndindex(error.shape), key=lambda place: place[1:])
    m = error.shape[0] if error.ndim else 1
    shown = places[: MOST_LINES - MOST_LINES % m if m <= MOST_LINES else MOST_LINES]
    if len(shown) < len(places):
        what += f", first {len(shown)} of {len(places)}"
    index = ["column"] * error.ndim if is_shared else ["state", *["column"] * (error.ndim - 1)]
    colours = [INK] if is_shared else _colours(n_states or m)
    lines = []
    for place in shown:
        colour = colours[0 if is_shared else place[0]]
        style = LINE_STYLES[place[-1] % len(LINE_STYLES)] if is_shared == (len(place) == 1) else "-"
        lines.append(_Line(place, path[:, *place], float(error[place]), colour, style))
    return f"{name}[{', '.join(index)}]{what}" if index and name != "transmat" else f"{name}{what}", lines


def _label_ends(ax: Axes, lines: Sequence[_Line]) -> None:
    """Write the places of lines at their right ends, apart from each other."""
    low, high = ax.get_ylim()
    lines = sorted((line for line in lines if np.isfinite(line.values[-1])), key=lambda line: line.values[-1])
    heights = np.clip([(line.values[-1] - low) / (high - low) for line in lines], 0.0, 1.0)
    for _ in range(50):  # neighbours push each other apart
        for i in range(len(heights) - 1):
            overlap = 0.1 - (heights[i + 1] - heights[i])
            if overlap > 0.0:
                heights[i] -= overlap / 2.0
                heights[i + 1] += overlap / 2.0
        heights = np.clip(heights, 0.0, 1.0)
    beside = {"transform": ax.transAxes, "va": "center", "fontsize": 8.0}
    for height, line in zip(heights, lines, strict=True):
        ax.text(1.02, height, ", ".join(map(str, line.place)), color=line.colour, **beside)


def _diagonal(array: FloatArray) -> FloatArray:
    return np.diagonal(array, axis1=-2, axis2=-1)


# --- small things ---------------------------------------------------------------------------------------------------


def _figure(width: float, height: float) -> Figure:
    """A figure that nobody else knows of: it goes when its owner lets it go."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _colours(m: int) -> list[Any]:
    """A colour for each state."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if m <= len(COLOURS):
        return list(COLOURS[:m])
    return [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.0, 0.95, m))]


def _state_legend(
    ax: Axes, m: int, notes: Sequence[str] | None = None, extra: Sequence[Any] = (), title: str = ""
) -> None:
    """A key to the colours of states, beside the axes; of many states, some."""
    from matplotlib.patches import Patch

    colours = _colours(m)
    named = range(m) if m <= MOST_LABELLED else np.unique(np.linspace(0, m - 1, 8).astype(int))
    handles = [Patch(color=colours[i], label=f"state {i}{notes[i] if notes else ''}") for i in named]
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02), "borderaxespad": 0.0}
    columns = 2 if m > 6 and not notes else 1
    entries = [*handles, *extra]
    ax.legend(handles=entries, ncols=columns, handlelength=1.2, title=title or None, title_fontsize=8.0, **place)


def _rows_axis(ax: Axes, logarithmic: bool = False) -> None:
    """Numbers of rows along x, thousands apart."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

    if logarithmic:
        low, high = ax.get_xlim()
        decades = log10(high / low)
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2.5 else (1.0, 2.0, 5.0), numticks=8))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _bins(n: int) -> int:
    """How many bars a histogram of n values has: odd, so that one of them is in the middle."""
    return int(np.clip(2.0 * n ** (1 / 3), 10, 80)) | 1


def _say(ax: Axes, words: str) -> None:
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=GREY)
    ax.set(xticks=[], yticks=[])


def _span(values: FloatArray) -> tuple[float, float]:
    """The range of finite values, but for outliers: a few in a hundred that are further off than all else is wide."""
    if not len(values):
        return np.nan, np.nan
    lowest, highest = values.min(), values.max()
    low = np.quantile(values, 0.005, method="higher")
    high = np.quantile(values, 0.995, method="lower")
    if len(values) < 10 or not low < high:
        return lowest, highest
    width = high - low
    return (lowest if lowest >= low - width else low), (highest if highest <= high + width else high)


def _with_margin(low: float, high: float, share: float) -> tuple[float, float]:
    """The range with a margin of this share of it, or with some margin if it is a point."""
    margin = share * (high - low)
    if not margin > 1e-9 * abs(low):  # axes can show no finer
        margin = 0.1 * abs(low) or 1.0
    return low - margin, high + margin


def _feature_name(names: Sequence[str] | None, feature: int) -> str:
    return str(names[feature]) if names is not None and feature < len(names) else f"feature {feature}"


def _probability(p: float) -> str:
    """A probability in few digits that are never 0 or 1 unless it is."""
    if p in (0.0, 1.0):
        return f"{p:.0f}"
    if p < 0.001:
        return f"{p:.0e}".replace("e-0", "e-").replace("-", "−")
    if p <= 0.98:
        return f"{p:.2f}" if p >= 0.1 else f"{p:.3f}"
    digits = ceil(-log10(1.0 - p))  # as many as it takes to see what is left of it
    return f"{p:.{max(digits, 3)}f}" if digits <= 6 else "≈ 1"


def _share(p: float) -> str:
    return f"{100.0 * p:.0f} %" if p >= 0.1 or p == 0.0 else f"{100.0 * p:.2g} %"


def _stay(p: float) -> str:
    """Mean number of rows until a state of which this is the probability of staying is left."""
    stay = 1.0 / (1.0 - p) if p < 1.0 else inf
    return "∞" if stay == inf else f"{stay:,.0f}" if stay >= 100.0 else f"{stay:.3g}"
