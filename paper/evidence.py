"""What was measured, and what figures, claims and report read off it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hmmstream.arrays import FloatArray
from paper.experiments.batch_em import ITERATIONS
from paper.experiments.cost import METHODS, PRINTED
from paper.model import PARAMETERS, SIZES, TRUE_VALUES

SHOWN = ["q11", "mu1", "upsilon"]  # the panels of the figures
LABELS = {"q11": "q(1,1)", "q22": "q(2,2)", "mu1": "μ(1)", "mu2": "μ(2)", "upsilon": "υ"}
TRUE = pd.Series(TRUE_VALUES, PARAMETERS)
LARGEST = max(SIZES)
BATCH, ONLINE, AVERAGED = f"batch EM, {ITERATIONS} iterations", "n^-0.6", "averaged from 8,000"


class Evidence:
    """The tables, and what several claims read off them."""

    def __init__(self, tables: dict[str, pd.DataFrame]) -> None:
        self.tables = tables
        self.estimates = pd.concat([tables["batch"], tables["online"]], ignore_index=True)
        by_method = self.estimates.groupby(["method", "n"])[list(PARAMETERS)]
        self.median = by_method.median()
        self.spread = by_method.quantile(0.75) - by_method.quantile(0.25)
        errors = self.estimates[list(PARAMETERS)] - TRUE
        self.rmse = (errors**2).groupby([self.estimates.method, self.estimates.n]).mean() ** 0.5
        self.runs = int(self.estimates.run.nunique())
        pairs = tables["information"].groupby(["first", "second"])[["outer", "total"]].mean()
        names = list(PARAMETERS)
        self.information: dict[str, FloatArray] = {
            kind: pairs[kind].unstack().loc[names, names].to_numpy() for kind in pairs
        }
        self.deviation = asymptotic_deviations(self.information["outer"])

    def scaled(self, method: str) -> pd.DataFrame:
        """√n (θ̂ - θ⋆) over the asymptotic standard deviation: a standard normal for an efficient estimator."""
        rows = self.estimates[self.estimates.method == method].copy()
        root = np.sqrt(rows["n"].to_numpy())[:, np.newaxis]
        rows[list(PARAMETERS)] = (rows[list(PARAMETERS)] - TRUE) * root / self.deviation
        return rows

    def inefficiency(self, method: str, n: int = LARGEST) -> pd.Series:
        """n · MSE over the Cramér–Rao bound."""
        return n * self.rmse.loc[(method, n)] ** 2 / self.deviation**2

    def table_1(self) -> pd.DataFrame:
        """Seconds, the paper's own among them: methods by implementations."""
        ours = self.tables["table1"].pivot(index="method", columns="implementation", values="seconds")
        slowest_first = ours.max().sort_values(ascending=False).index
        return pd.DataFrame(PRINTED, index=list(METHODS)).join(ours[slowest_first])

    def exponents(self) -> pd.DataFrame:
        """Of the power of m that the cost of an observation grows with, between the two largest m."""
        rows = []
        for key, found in self.tables["growth"].groupby(["implementation", "method"], sort=False):
            (m, seconds), (m_more, seconds_more) = found.nlargest(2, "m").sort_values("m")[["m", "seconds"]].to_numpy()
            rows.append((*key, np.log(seconds_more / seconds) / np.log(m_more / m)))
        return pd.DataFrame(rows, columns=["implementation", "method", "exponent"])


def asymptotic_deviations(information: FloatArray) -> pd.Series:
    """√(n · Cramér–Rao bound) of each parameter, from the information of one observation."""
    return pd.Series(np.sqrt(np.diag(np.linalg.inv(information))), PARAMETERS)
