"""Emission families: one file each. A new one is registered here and nowhere else."""

from hmmstream.emissions.base import Emission, IndependentFeatures
from hmmstream.emissions.bernoulli import Bernoulli
from hmmstream.emissions.categorical import Categorical
from hmmstream.emissions.exponential import Exponential
from hmmstream.emissions.gaussian import Gaussian
from hmmstream.emissions.gaussian_mixture import GaussianMixture
from hmmstream.emissions.independent import Independent
from hmmstream.emissions.linear_regression import LinearRegression
from hmmstream.emissions.poisson import Poisson

FAMILIES: dict[str, type[Emission]] = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "exponential": Exponential,
    "gaussian": Gaussian,
    "gaussian_mixture": GaussianMixture,
    "poisson": Poisson,
}

__all__ = [
    "FAMILIES",
    "Bernoulli",
    "Categorical",
    "Emission",
    "Exponential",
    "Gaussian",
    "GaussianMixture",
    "Independent",
    "IndependentFeatures",
    "LinearRegression",
    "Poisson",
]
