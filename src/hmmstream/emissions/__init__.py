"""Emission families: one file each. A new one is registered here and nowhere else."""

from hmmstream.arrays import FloatArray
from hmmstream.emissions.base import Emission, IndependentFeatures
from hmmstream.emissions.bernoulli import Bernoulli
from hmmstream.emissions.categorical import Categorical
from hmmstream.emissions.exponential import Exponential
from hmmstream.emissions.gaussian import Gaussian
from hmmstream.emissions.multinomial import Multinomial
from hmmstream.emissions.poisson import Poisson

FAMILIES: dict[str, type[Emission]] = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "exponential": Exponential,
    "gaussian": Gaussian,
    "multinomial": Multinomial,
    "poisson": Poisson,
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
    "Bernoulli",
    "Categorical",
    "Emission",
    "Exponential",
    "Gaussian",
    "IndependentFeatures",
    "Multinomial",
    "Poisson",
    "specification",
]
