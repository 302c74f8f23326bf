"""What was found, for people (a table) and for programs (JSON)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hmmstream.arrays import FloatArray
from hmmstream.emissions import Emission
from hmmstream.model import HMM

WIDTH = 100  # of a table
MOST_TRANSITIONS = 12  # states of which all transitions are shown


def summary(model: HMM, errors: Mapping[str, FloatArray] | None, names: Sequence[str] | None) -> dict[str, Any]:
    """A model and how sure it is, in terms of JSON."""
    emission = model.emission
    values = {name: getattr(emission, name).tolist() for name in emission.value_names}
    return {
        "n_states": model.n_components,
        "columns": list(names) if names else None,
        "emission": {"family": type(emission).__name__, **values},
        "transition": repr(model.transition),
        "startprob": model.startprob.tolist(),
        "transmat": model.transmat.tolist(),
        "standard_errors": errors and {name: error.tolist() for name, error in errors.items()},
        "dwell_times": model.dwell_times().tolist(),
        "occupancy": occupancy(model).tolist(),
    }


def as_json(contents: Mapping[str, Any]) -> str:
    """JSON text; what is not finite is null."""
    return json.dumps(finite(contents), indent=2, ensure_ascii=False)


def finite(value: Any) -> Any:
    """The same with None for numbers that JSON cannot write."""
    if isinstance(value, Mapping):
        return {key: finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def occupancy(model: HMM) -> FloatArray:
    """Share of time in each state in the long run; NaN if it depends on the start."""
    try:
        return model.stationary_distribution()
    except ValueError:  # the chain falls into parts
        return np.full(model.n_components, np.nan)


def table(model: HMM, errors: Mapping[str, FloatArray] | None, names: Sequence[str] | None) -> str:
    """A model as text: a line a state, then the transitions."""
    m = model.n_components
    dwell = model.dwell_times()
    columns = [
        ["state", *(str(state) for state in range(m))],
        ["occupancy", *("?" if math.isnan(share) else f"{share:.1%}" for share in occupancy(model))],
        ["dwell (rows)", *(f"{rows:,.1f}" for rows in dwell)],
        *_parameters(model.emission, errors, names),
    ]
    lines = _side_by_side(columns)
    if m <= MOST_TRANSITIONS:
        moves = [["from \\ to", *(str(state) for state in range(m))]]
        wrong = None if errors is None else errors["transmat"]
        for to in range(m):
            cells = [with_error(model.transmat[i, to], None if wrong is None else wrong[i, to]) for i in range(m)]
            moves.append([str(to), *cells])
        lines += ["", "transition probabilities", *_side_by_side(moves)]
    return "\n".join(lines)


def _parameters(
    emission: Emission, errors: Mapping[str, FloatArray] | None, names: Sequence[str] | None
) -> list[list[str]]:
    """A column for each parameter that a state has: its name, and the values of the states."""
    m = emission.n_components
    state_of = emission.shaped(np.tile(np.arange(m)[:, np.newaxis].astype(float), (1, emission.n_parameters)))
    columns = []
    for name in emission.value_names:
        values = getattr(emission, name)
        error = None if errors is None else errors.get(name)
        by_state: list[list[tuple[int, ...]]] = [[] for _ in range(m)]
        for place in np.ndindex(values.shape):
            by_state[int(state_of[name][place])].append(place)
        is_shared = m > 1 and not any(by_state[1:])
        for at, place in enumerate(by_state[0]):
            places = [place] * m if is_shared else [places[at] for places in by_state]
            inside = place if is_shared else place[1:]
            if len(inside) >= 2 and inside[-1] > inside[-2] and values.shape[-1] == values.shape[-2]:
                continue  # of a symmetric matrix, one half
            cells = [with_error(values[p], None if error is None else error[p]) for p in places]
            columns.append([_label(name, inside, values.shape[len(place) - len(inside) :], names), *cells])
    return columns


def _label(name: str, place: tuple[int, ...], shape: tuple[int, ...], names: Sequence[str] | None) -> str:
    if math.prod(shape) == 1:
        return name
    if names is not None and all(size == len(names) for size in shape):
        return f"{name}[{', '.join(names[at] for at in place)}]"
    return f"{name}[{', '.join(str(at) for at in place)}]"


def with_error(value: float, error: float | None) -> str:
    """A number to as many digits as its error allows."""
    if error is None or not math.isfinite(error):
        return f"{value:.4g}"
    if error == 0.0:
        return f"{value:.4g}"
    digits = 1 - math.floor(math.log10(error))
    if -6 <= digits <= 8 and abs(value) < 1e9:
        return f"{value:.{max(digits, 0)}f} ± {error:.{max(digits, 0)}f}"
    return f"{value:.4g} ± {error:.2g}"


def _side_by_side(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns of text as lines, in several blocks if they are too many for one; the first column begins each."""
    first, *others = columns
    blocks: list[list[Sequence[str]]] = [[first]]
    width = len(max(first, key=len))
    used = width
    for column in others:
        needed = len(max(column, key=len)) + 3
        if used + needed > WIDTH and len(blocks[-1]) > 1:
            blocks.append([first])
            used = width
        blocks[-1].append(column)
        used += needed
    lines: list[str] = []
    for block in blocks:
        lines += [""] * bool(lines)
        widths = [len(max(column, key=len)) for column in block]
        for row in zip(*block, strict=True):
            lines.append("   ".join(cell.rjust(size) for cell, size in zip(row, widths, strict=True)).rstrip())
    return lines


def ranking(rows: Sequence[Mapping[str, Any]], headings: Mapping[str, str]) -> str:
    """Some results as a table, a line each."""
    columns = []
    for key, heading in headings.items():
        cells = [row[key] for row in rows]
        columns.append([heading, *(f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in cells)])
    return "\n".join(_side_by_side(columns))
