"""hmmstream: hidden Markov models from data that never stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hmmstream.averaging import Polyak, StatisticAverage
    from hmmstream.batch import BatchHMM
    from hmmstream.checkpoint import load, save
    from hmmstream.comparison import OnlineComparison
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
    from hmmstream.fleet import Fleet
    from hmmstream.learner import Learner
    from hmmstream.model import HMM, Forecast
    from hmmstream.online import OnlineHMM
    from hmmstream.priors import Prior
    from hmmstream.schedule import Constant, Harmonic, Power, Track, TwoPhase
    from hmmstream.transitions import Full, Independent, Masked, Tied, Transition

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
    "Fleet",
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
    "OnlineComparison",
    "OnlineHMM",
    "Poisson",
    "Polyak",
    "Power",
    "Prior",
    "StatisticAverage",
    "Tied",
    "Track",
    "Transition",
    "TwoPhase",
    "VonMises",
    "load",
    "save",
]

# Names come when they are asked for, each with what it needs: scikit-learn, numba and even NumPy take long to import.
_HOME = {
    "averaging": ("Polyak", "StatisticAverage"),
    "batch": ("BatchHMM",),
    "checkpoint": ("load", "save"),
    "fleet": ("Fleet",),
    "learner": ("Learner",),
    "model": ("HMM", "Forecast"),
    "comparison": ("OnlineComparison",),
    "online": ("OnlineHMM",),
    "priors": ("Prior",),
    "schedule": ("Constant", "Harmonic", "Power", "Track", "TwoPhase"),
    "transitions": ("Full", "Independent", "Masked", "Tied", "Transition"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    if name in __all__:
        module = import_module(f"hmmstream.{_MODULE.get(name, 'emissions')}")
        globals()[name] = value = getattr(module, name)
        return value
    if not name.startswith("_") and find_spec(f"hmmstream.{name}"):
        return import_module(f"hmmstream.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
