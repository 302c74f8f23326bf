"""hmmstream: hidden Markov models from data that never stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hmmstream.averaging import Polyak, StatisticAverage
from hmmstream.emissions import (
    AutoRegressive,
    Bernoulli,
    Categorical,
    Emission,
    Exponential,
    Gamma,
    Gaussian,
    GaussianMixture,
    Geometric,
    IndependentFeatures,
    LinearRegression,
    LogNormal,
    Multinomial,
    NegativeBinomial,
    Poisson,
    VonMises,
)
from hmmstream.model import HMM, Forecast
from hmmstream.priors import Prior
from hmmstream.schedule import Constant, Harmonic, Power, TwoPhase
from hmmstream.transitions import Full, Independent, Masked, Tied, Transition

if TYPE_CHECKING:
    from hmmstream.batch import BatchHMM
    from hmmstream.checkpoint import load, save
    from hmmstream.learner import Learner
    from hmmstream.online import OnlineHMM

__version__ = "0.1.0"

__all__ = [
    "HMM",
    "AutoRegressive",
    "BatchHMM",
    "Bernoulli",
    "Categorical",
    "Constant",
    "Emission",
    "Exponential",
    "Forecast",
    "Full",
    "Gamma",
    "Gaussian",
    "GaussianMixture",
    "Geometric",
    "Harmonic",
    "Independent",
    "IndependentFeatures",
    "Learner",
    "LinearRegression",
    "LogNormal",
    "Masked",
    "Multinomial",
    "NegativeBinomial",
    "OnlineHMM",
    "Poisson",
    "Polyak",
    "Power",
    "Prior",
    "StatisticAverage",
    "Tied",
    "Transition",
    "TwoPhase",
    "VonMises",
    "load",
    "save",
]

# numba and scikit-learn take longer to import than all else together: they come with what needs them.
_ON_DEMAND = {
    "BatchHMM": "hmmstream.batch",
    "Learner": "hmmstream.learner",
    "OnlineHMM": "hmmstream.online",
    "load": "hmmstream.checkpoint",
    "save": "hmmstream.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        from importlib import import_module

        globals()[name] = value = getattr(import_module(_ON_DEMAND[name]), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
