"""The page: Markdown with pictures beside it, and the same as one HTML file that holds everything."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markdown_it import MarkdownIt

from hmmstream.io.whole import write_whole
from paper.claims import NO, PARTLY, YES, Claim
from paper.evidence import AVERAGED, BATCH, LABELS, ONLINE, SHOWN, Evidence, asymptotic_deviations
from paper.experiments import EXPERIMENTS
from paper.experiments.cost import METHODS, PRINTED
from paper.experiments.online_em import AVERAGES
from paper.model import PARAMETERS, SIZES
from paper.pictures import all_pictures, svg

TEMPLATE = Path(__file__).with_name("page.md")  # {name} stands for a picture, a table or a number
FEW_RUNS = 20  # with fewer the page says so
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.6rem; text-align: left; vertical-align: top; }
svg { max-width: 100%; height: auto; } figure { margin: 1rem 0; } code { background: #f4f4f4; }
"""


# --- tables of numbers ----------------------------------------------------------------------------------------------


def summary(evidence: Evidence) -> pd.DataFrame:
    """Quartiles, means and extremes of all estimates: a row for each method, n and parameter."""
    long = evidence.estimates.melt(["method", "n", "run"], list(PARAMETERS), var_name="parameter")
    groups = long.groupby(["method", "n", "parameter"], sort=False)["value"]
    columns = {
        "runs": groups.size(),
        "minimum": groups.min(),
        "lower_quartile": groups.quantile(0.25),
        "median": groups.median(),
        "upper_quartile": groups.quantile(0.75),
        "maximum": groups.max(),
        "mean": groups.mean(),
        "standard_deviation": groups.std(),
    }
    return pd.DataFrame(columns).reset_index()


def fisher(evidence: Evidence) -> pd.DataFrame:
    """The information of one observation, by products of increments and as the paper has it."""
    cells = [(i, j) for i in range(len(PARAMETERS)) for j in range(len(PARAMETERS))]
    rows = [
        (PARAMETERS[i], PARAMETERS[j], *(evidence.information[kind][i, j] for kind in ("outer", "total")))
        for i, j in cells
    ]
    return pd.DataFrame(rows, columns=["first", "second", "outer", "total"])


def efficiency(evidence: Evidence) -> pd.DataFrame:
    """n · MSE over the Cramér–Rao bound: a row for each method and n."""
    pairs = list(evidence.rmse.index)
    return pd.DataFrame([evidence.inefficiency(*pair) for pair in pairs], evidence.rmse.index).reset_index()


def times(evidence: Evidence) -> pd.DataFrame:
    """Table 1 with the paper's own numbers, and relative to online EM in the same implementation."""
    seconds = evidence.table_1()
    both = {"seconds": seconds.stack(), "relative": (seconds / seconds.loc["online EM"]).stack()}
    return pd.DataFrame(both).rename_axis(["method", "implementation"]).reset_index()


def made_with() -> dict[str, str]:
    """What the numbers were made with."""
    names = ("hmmstream", "numpy", "numba", "scipy", "pandas", "matplotlib")
    versions = {"Python": platform.python_version(), **{name: version(name) for name in names}}
    return {**versions, "processor": processor(), "cores": str(os.cpu_count())}


def processor() -> str:
    """What the machine calls it."""
    with suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        if found:
            return found[1]
    return platform.processor() or platform.machine()


# --- tables of the page ---------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def quartiles(evidence: Evidence, *methods: str) -> str:
    """Median and quartiles of the three parameters that the figures show."""
    found = summary(evidence).set_index(["method", "n", "parameter"])
    rows = []
    for method in methods:
        for n in SIZES:
            cells = [found.loc[(method, n, name)] for name in SHOWN]
            texts = [f"{x['median']:.4f} ({x.lower_quartile:.4f}, {x.upper_quartile:.4f})" for x in cells]
            rows.append([method, f"{n:,}", *texts])
    return table(["", "n", *(f"{LABELS[name]}: median (quartiles)" for name in SHOWN)], rows)


def table_1(evidence: Evidence) -> str:
    """Seconds, and relative to online EM of the same column."""
    seconds = evidence.table_1()
    relative = seconds / seconds.loc["online EM"]
    rows = [[m, *(f"{duration(seconds.loc[m, x])} ({relative.loc[m, x]:.2f})" for x in seconds)] for m in METHODS]
    labels = [f"{name}, the paper's" if name in PRINTED else f"{name}, here" for name in seconds]
    return table(["one pass over the record (relative to online EM)", *labels], rows)


def duration(seconds: float) -> str:
    """A time with its unit."""
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"


def slowdowns(evidence: Evidence) -> str:
    """The same times relative to hmmstream's."""
    seconds = evidence.table_1().drop(columns=[*PRINTED])
    relative = seconds.div(seconds["hmmstream"], axis=0).drop(columns="hmmstream")
    rows = [[method, *(f"{x:,.0f}" for x in relative.loc[method])] for method in METHODS]
    return table(["times as long as hmmstream", *relative], rows)


def efficiencies(evidence: Evidence, *methods: str) -> str:
    """n · MSE over the Cramér–Rao bound at the largest n."""
    losses = {method: evidence.inefficiency(method) for method in methods}
    rows = [[method, *(f"{x:.2f}" for x in loss), f"{loss.mean():.2f}"] for method, loss in losses.items()]
    return table([f"n = {max(SIZES):,}", *(LABELS[name] for name in PARAMETERS), "mean"], rows)


def where_both(evidence: Evidence) -> str:
    """Online EM in NumPy and in hmmstream, for the largest number of states that both were tried with."""
    online = evidence.tables["growth"].query("method == 'online EM'").pivot(index="m", columns="implementation")
    both = online.seconds.dropna()
    if "hmmstream" not in both or both.empty:
        return ""
    m, last = both.index[-1], both.iloc[-1]
    return f" At m = {m} online EM in NumPy takes {last.NumPy / last.hmmstream:.2g} times as long as in hmmstream."


def deviations(evidence: Evidence) -> str:
    """Asymptotic standard deviations by both estimates of the information; the paper's needs more records."""
    kinds = {"outer": "products of the derivatives of log p(Y given the past), row by row"}
    if evidence.runs > len(PARAMETERS):
        error = np.sqrt(0.5 / evidence.runs)
        kinds["total"] = f"n · gradient · gradientᵀ, averaged over the records, as in the paper (± about {error:.0%})"
    found = {kind: asymptotic_deviations(evidence.information[kind]) for kind in kinds}
    rows = [[words, *(f"{x:.3f}" for x in found[kind])] for kind, words in kinds.items()]
    return table(["√(n · Cramér–Rao bound)", *(LABELS[name] for name in PARAMETERS)], rows)


# --- the page -------------------------------------------------------------------------------------------------------


def page(evidence: Evidence, claims: list[Claim], settings: dict[str, Any], seconds: dict[str, float]) -> str:
    """The page without its pictures, whose names are left in it."""
    verdicts = Counter(claim.holds for claim in claims)
    has_octave = any(name.startswith("Octave") for name in evidence.table_1())
    holding = f"Of {len(claims)} claims {verdicts[YES]} hold, {verdicts[PARTLY]} in part, {verdicts[NO]} do not."
    few = f" **Only {evidence.runs} runs: too few to judge by.**" if evidence.runs < FEW_RUNS else ""
    fields = {
        "verdicts": holding + few,
        "claims": table(["where", "the paper, in short", "taken to mean", "measured here", "holds"], claims),
        "quartiles of figure 2": quartiles(evidence, BATCH),
        "quartiles of figure 3": quartiles(evidence, ONLINE),
        "quartiles of figure 4": quartiles(evidence, "two-phase, as printed", "two-phase"),
        "quartiles of figure 5": quartiles(evidence, AVERAGED),
        "quartiles of steps": quartiles(evidence, "n^-0.8", "n^-0.9", "1/n"),
        "deviations": deviations(evidence),
        "table 1": table_1(evidence),
        "difference": f"{evidence.tables['table1'].difference.max():.0e}",
        "no octave": "" if has_octave else " Octave is not installed here, so its column is missing.",
        "slowdowns": slowdowns(evidence),
        "efficiencies": efficiencies(evidence, ONLINE, *AVERAGES),
        "where both": where_both(evidence),
        "seconds": table(
            ["experiment", "seconds"], [(EXPERIMENTS[name].about, f"{x:.1f}") for name, x in seconds.items()]
        ),
        "made with": ", ".join(f"{name} {value}" for name, value in made_with().items()),
        **{name: f"{value:,}" for name, value in settings.items() if isinstance(value, int)},
        "seed": str(settings["seed"]),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    return re.sub(r"\{([^{}]+)\}", lambda found: fields.get(found[1], found[0]), text)


def as_markdown(text: str) -> str:
    """The page with its pictures beside it."""
    return re.sub(r"^\{([\w-]+)\}$", r"![\1](\1.svg)", text, flags=re.MULTILINE)


def as_html(text: str, pictures: dict[str, str]) -> str:
    """One file with everything in it."""
    body = MarkdownIt("commonmark").enable("table").render(text)
    body = re.sub(r"<p>\{([\w-]+)\}</p>", lambda found: inlined(found[1], pictures[found[1]]), body)
    title, width = "<title>The paper, reproduced</title>", '<meta name="viewport" content="width=device-width">'
    head = f'<head><meta charset="utf-8">{width}{title}<style>{STYLE}</style></head>'
    return f'<!doctype html><html lang="en">{head}<body>{body}</body></html>'


def inlined(name: str, picture: str) -> str:
    """A picture for the middle of a page: its identifiers must not be those of another."""
    picture = picture[picture.index("<svg") :]
    picture = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", picture)
    return f"<figure>{picture}</figure>"


# --- files ----------------------------------------------------------------------------------------------------------


def write(
    folder: Path,
    evidence: Evidence,
    claims: list[Claim],
    settings: dict[str, Any],
    seconds: dict[str, float],
    docs: Path | None = None,
) -> None:
    """Everything: report.html by itself, README.md with its pictures, here and in the docs, and all tables as CSV."""
    pictures = {name: svg(figure) for name, figure in all_pictures(evidence).items()}
    text = page(evidence, claims, settings, seconds)
    for place in (folder, docs):
        if place is not None:
            write_page(place, text, pictures)
    write_whole(folder / "report.html", as_html(text, pictures).encode())
    about = {**settings, **made_with(), **{f"seconds of {name}": x for name, x in seconds.items()}}
    tables = {
        **evidence.tables,
        "summary": summary(evidence),
        "scaled": pd.concat([evidence.scaled(method) for method in (ONLINE, *AVERAGES)]),
        "efficiency": efficiency(evidence),
        "fisher": fisher(evidence),
        "table1_with_the_papers": times(evidence),
        "exponents": evidence.exponents(),
        "claims": pd.DataFrame(claims),
        "settings": pd.DataFrame(about.items(), columns=["name", "value"]),
    }
    for name, rows in tables.items():
        write_whole(folder / f"{name}.csv", rows.to_csv(index=False).encode())


def write_page(folder: Path, text: str, pictures: dict[str, str]) -> None:
    """README.md with its pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "README.md", as_markdown(text).encode())
    for name, picture in pictures.items():
        write_whole(folder / f"{name}.svg", picture.encode())
