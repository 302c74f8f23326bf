"""Emission families: one file each. A new one is registered here and nowhere else."""

from hmmstream.arrays import FloatArray
from hmmstream.emissions.autoregressive import AutoRegressive
from hmmstream.emissions.base import Emission, IndependentFeatures
from hmmstream.emissions.bernoulli import Bernoulli
from hmmstream.emissions.categorical import Categorical
from hmmstream.emissions.exponential import Exponential
from hmmstream.emissions.gamma import Gamma
from hmmstream.emissions.gaussian import Gaussian
from hmmstream.emissions.gaussian_mixture import GaussianMixture
from hmmstream.emissions.geometric import Geometric
from hmmstream.emissions.independent import Independent
from hmmstream.emissions.linear_regression import LinearRegression
from hmmstream.emissions.lognormal import LogNormal
from hmmstream.emissions.multinomial import Multinomial
from hmmstream.emissions.negative_binomial import NegativeBinomial
from hmmstream.emissions.poisson import Poisson
from hmmstream.emissions.von_mises import VonMises

FAMILIES: dict[str, type[Emission]] = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "exponential": Exponential,
    "gamma": Gamma,
    "gaussian": Gaussian,
    "geometric": Geometric,
    "lognormal": LogNormal,
    "negative_binomial": NegativeBinomial,
    "multinomial": Multinomial,
    "gaussian_mixture": GaussianMixture,
    "poisson": Poisson,
    "von_mises": VonMises,
}


def specification(emission: str | Emission, X: FloatArray) -> Emission:
    """An emission family from its object, or from its name and the observations."""
    if isinstance(emission, Emission):
        return emission
    if emission not in FAMILIES:
        raise ValueError(f"emission must be one of {sorted(FAMILIES)} or an Emission object, got {emission!r}")
    return FAMILIES[emission].for_data(X)


__all__ = [
    "FAMILIES",
    "AutoRegressive",
    "Bernoulli",
    "Categorical",
    "Emission",
    "Exponential",
    "Gamma",
    "Gaussian",
    "GaussianMixture",
    "Geometric",
    "Independent",
    "IndependentFeatures",
    "LinearRegression",
    "LogNormal",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "VonMises",
    "specification",
]
