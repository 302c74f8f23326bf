"""How sharply the data speak about the parameters: score, Fisher information, standard errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from hmmstream import inference
from hmmstream.arrays import FloatArray
from hmmstream.inference import Pass, Values, Workers
from hmmstream.parameters import Parameters, stationary
from hmmstream.record import Record
from hmmstream.recursions import exact, products, rows

RELATIVE_STEP = 1e-3  # of differences of the score; their error is its fourth power
WIDEST = 1e5  # natural scale of a parameter, compared with itself
EDGE = 1e-6  # closer than this to its bound, in units of its natural scale, a parameter is on the edge


def score(parameters: Parameters, values: FloatArray, data: Record, workers: Workers) -> FloatArray:
    """Gradient of the log-likelihood by all parameters, by Fisher's identity: that of the expected complete data."""
    point = parameters.at(values)
    expected = inference.add_up(workers.each(partial(inference.expect, point), data))
    return differentiate(parameters, point, expected)


def differentiate(parameters: Parameters, point: Values, expected: inference.Expectation) -> FloatArray:
    """The score from the expected statistics."""
    groups, theta = parameters.groups, point.emission.theta()
    emissions = np.zeros(parameters.table.shape)
    for k, row in enumerate(emissions):
        point.emission.gradient(theta[k], expected.emissions[k], row)
    gradient = np.asarray(parameters.start_slopes(point.transmat) @ expected.start)
    np.add.at(gradient, groups[groups >= 0], expected.pairs[groups >= 0])
    np.add.at(gradient, parameters.table, emissions)
    return gradient


def visit_increments(parameters: Parameters, data: Record, visit: Callable[[slice, FloatArray], None]) -> None:
    """Gradients of each row's log predictive density by all parameters, handed to ``visit`` a block at a time."""
    point = parameters.at(parameters.values)
    start_slopes = parameters.start_slopes(point.transmat)

    def in_one_pass(work: Pass, data: Record) -> None:
        phi, slopes = work.first_filter(), np.zeros_like(start_slopes)
        for piece in work.blocks(len(data)):
            _, increments = follow(work, parameters, start_slopes, data[piece], phi, slopes)
            visit(piece, increments[:, : parameters.size])

    inference.run(in_one_pass, point, data, width=parameters.size)


def follow(
    work: Pass, parameters: Parameters, start_slopes: FloatArray, block: Record, phi: FloatArray, slopes: FloatArray
) -> tuple[float, FloatArray]:
    """The log-likelihood of a block, and each row's gradient by all parameters, beside zeros that fill the last tile.

    The filter ``phi`` and its ``slopes`` are those before the block, and become those at its end.
    """
    before = np.exp(phi) if work.in_logs else phi.copy()
    log_likelihood = work.forward(block, phi)
    n = len(block)
    gradients = np.empty((n, len(phi), work.emission.n_parameters))
    rows.gradients(work.emission, work.theta, block.X, gradients)
    increments = np.empty((n, products.padded(parameters.size)))
    exact.tangent(
        work.chain,
        work.transmat,
        parameters.groups.ravel(),
        parameters.table.ravel(),
        start_slopes,
        block.is_start,
        work.filtered(n),
        before,
        work.g[:n],
        gradients,
        slopes,
        increments,
    )
    return log_likelihood, increments


def outer_information(parameters: Parameters, data: Record) -> FloatArray:
    """Sum of the outer products of the increments of the score."""
    products: dict[int, FloatArray] = {}

    def multiply(piece: slice, increments: FloatArray) -> None:
        products[piece.start] = increments.T @ increments

    visit_increments(parameters, data, multiply)
    return sum(products.values(), start=np.zeros((parameters.size, parameters.size)))


def observed_information(parameters: Parameters, data: Record, scales: FloatArray, workers: Workers) -> FloatArray:
    """Minus the second derivatives of the log-likelihood: differences of the exact score, of fourth order.

    ``scales`` are the natural scales of the parameters. Close to a bound, differences are taken on its inner side.
    """
    values = parameters.values
    information = np.zeros((parameters.size, parameters.size))
    below, above = values - parameters.low, parameters.high - values
    for at in np.flatnonzero(~parameters.is_fixed):
        scale = scales[at]
        room = min(below[at], above[at])
        step = RELATIVE_STEP * min(scale, room)
        stencil = {-2: 1.0, -1: -8.0, 1: 8.0, 2: -1.0}
        if room < EDGE * scale:
            step = RELATIVE_STEP * scale * (1.0 if below[at] < above[at] else -1.0)
            stencil = {0: -25.0, 1: 48.0, 2: -36.0, 3: 16.0, 4: -3.0}
        for place, weight in stencil.items():
            moved = values.copy()
            moved[at] += place * step
            information[at] -= weight / (12.0 * step) * score(parameters, moved, data, workers)
    return 0.5 * (information + information.T)


def natural_scales(parameters: Parameters, outer: FloatArray, n: int) -> FloatArray:
    """By how much each parameter has to change for one observation to notice; not without end, if none ever would."""
    diagonal = np.diag(outer)
    with np.errstate(over="ignore"):
        scales = np.sqrt(np.divide(n, diagonal, out=np.ones_like(diagonal), where=diagonal > 0.0))
    widest = np.minimum(WIDEST * np.maximum(abs(parameters.values), 1.0), parameters.high - parameters.low)
    return np.asarray(np.minimum(scales, widest))


def information(parameters: Parameters, data: Record, kind: str, workers: Workers) -> tuple[FloatArray, Any]:
    """The information about all parameters, and which of them are on the edge of what they may be."""
    if kind not in ("outer", "observed"):
        raise ValueError(f"kind must be 'outer' or 'observed', got {kind!r}")
    matrix = outer_information(parameters, data)
    n = max(len(data), 1)
    on_edge = is_on_edge(parameters, matrix, n)
    if kind == "observed":
        matrix = observed_information(parameters, data, natural_scales(parameters, matrix, n), workers)
    return matrix, on_edge


def is_on_edge(parameters: Parameters, outer: FloatArray, n: int) -> Any:
    """Which parameters are on the edge of what they may be."""
    values = parameters.values
    return np.minimum(values - parameters.low, parameters.high - values) < EDGE * natural_scales(parameters, outer, n)


def standard_errors(parameters: Parameters, data: Record, kind: str, workers: Workers) -> FloatArray:
    """Standard error of each parameter; NaN for one on the edge of what it may be, where there is none."""
    with np.errstate(all="ignore"):  # what is not a number is not positive definite
        matrix, on_edge = information(parameters, data, kind, workers)
    return errors_of(parameters, matrix, on_edge)


def errors_of(parameters: Parameters, matrix: FloatArray, on_edge: Any) -> FloatArray:
    """The same from the information."""
    return spread(parameters, matrix, on_edge).errors()


class Spread(NamedTuple):
    """How far estimates are from the truth: a matrix whose square is their covariance."""

    parameters: Parameters
    root: FloatArray  # (free, all)
    on_edge: Any

    def errors(self) -> FloatArray:
        """Standard error of each parameter; NaN for one on the edge of what it may be, where there is none."""
        parameters, errors = self.parameters, np.linalg.norm(self.root, axis=0)
        errors[self.on_edge] = np.nan
        errors[parameters.is_fixed] = 0.0
        errors[[members[0] for members, _ in parameters.sums if len(members) == 1]] = 0.0  # what is always 1
        return np.asarray(errors)

    def errors_of(self, slopes: FloatArray) -> FloatArray:
        """The same for functions of the parameters, whose derivatives by all of them are the rows of ``slopes``."""
        return np.asarray(np.linalg.norm(self.root @ slopes.T, axis=0))


def robust_spread(parameters: Parameters, curvature: FloatArray, scatter: FloatArray, on_edge: Any) -> Spread:
    """The sandwich: also right where the truth is no model of this kind."""
    bread = spread(parameters, curvature, on_edge).root
    values, vectors = np.linalg.eigh(scatter)
    filling = vectors * np.sqrt(np.maximum(values, 0.0))
    return Spread(parameters, filling.T @ bread.T @ bread, on_edge)


def spread(parameters: Parameters, matrix: FloatArray, on_edge: Any) -> Spread:
    """How far estimates are from the truth, if this is their information."""
    directions = parameters.directions(on_edge)
    reduced = directions.T @ matrix @ directions
    scale = np.sqrt(np.abs(np.diag(reduced)))
    try:
        if not ((scale > 0.0) & (scale < np.inf)).all():
            raise np.linalg.LinAlgError
        factor = np.linalg.cholesky(reduced / scale / scale[:, np.newaxis])
    except np.linalg.LinAlgError:
        raise ValueError(
            "the information matrix is not positive definite: these data cannot tell some parameters apart, or the "
            "model is far from its maximum. Fit it first, to more data, or with fewer states"
        ) from None
    return Spread(parameters, np.linalg.solve(factor, (directions / scale).T), on_edge)


def confidence_intervals(parameters: Parameters, errors: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends, inside the bounds: symmetric in the logarithm of positive numbers, or in the logit."""
    return intervals(parameters.values, errors, parameters.low, parameters.high, level)


def intervals(
    values: FloatArray, errors: FloatArray, low: FloatArray, high: FloatArray, level: float
) -> tuple[FloatArray, FloatArray]:
    """The same for any numbers between these bounds."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
    z = NormalDist().inv_cdf(0.5 + 0.5 * level)
    ends = []
    for sign in (-1.0, 1.0):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            linear = values + sign * z * errors
            positive = values * np.exp(sign * z * errors / values)
            odds = values / (1.0 - values) * np.exp(sign * z * errors / (values * (1.0 - values)))
            probability = 1.0 / (1.0 + 1.0 / odds)
        end = np.where(high == 1.0, probability, np.where(low == 0.0, positive, linear))
        ends.append(np.where(errors == 0.0, values, end))
    return ends[0], ends[1]


# --- by name --------------------------------------------------------------------------------------------------------


def named_errors(spread: Spread) -> dict[str, FloatArray]:
    """Standard errors by name, in the shapes of the values, and those of the chain's dwell times and long run."""
    named = spread.parameters.by_name(spread.errors())
    for name, (_, slopes) in chain_values(spread.parameters).items():
        named[name] = spread.errors_of(slopes)
    return named


def named_intervals(spread: Spread, level: float) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Confidence intervals by name: lower and upper ends."""
    parameters = spread.parameters
    low, high = (parameters.by_name(end) for end in confidence_intervals(parameters, spread.errors(), level))
    named = {name: (low[name], high[name]) for name in low}
    for name, (values, slopes) in chain_values(parameters).items():
        if name == "dwell_times":  # of what is between 1 and infinity, that of the probability to stay
            with np.errstate(divide="ignore"):
                shortest, longest = (1.0 / (1.0 - np.diag(end)) for end in named["transmat"])
            named[name] = shortest, longest
        else:
            never, always = np.zeros(len(values)), np.ones(len(values))
            named[name] = intervals(values, spread.errors_of(slopes), never, always, level)
    return named


def chain_values(parameters: Parameters) -> dict[str, tuple[FloatArray, FloatArray]]:
    """How long states last on average and how often the chain is in each, with the derivatives by all parameters."""
    transmat, groups = parameters.model.transmat, parameters.groups
    m, slopes = len(transmat), np.zeros((len(transmat), parameters.size))
    with np.errstate(divide="ignore", invalid="ignore"):
        dwell_times = 1.0 / (1.0 - np.diag(transmat))
        for i in range(m):
            if groups[i, i] >= 0:
                slopes[i, groups[i, i]] = dwell_times[i] ** 2
    try:
        start_slopes = Parameters(parameters.model, "stationary").start_slopes(transmat)
        long_run = {"stationary": (stationary(transmat), start_slopes[: parameters.size].T)}
    except ValueError:  # the chain has no long run, or more than one
        long_run = {}
    return {"dwell_times": (dwell_times, slopes), **long_run}
