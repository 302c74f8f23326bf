"""The models that the shared suites run over, all with three states: families, and those of one idea with every
transition structure."""

from __future__ import annotations

import numpy as np
from scipy import stats

from examples.rayleigh import Rayleigh
from hmmstream import (
    HMM,
    Bernoulli,
    Categorical,
    Exponential,
    Full,
    Gamma,
    Gaussian,
    GaussianMixture,
    Geometric,
    Independent,
    LinearRegression,
    LogNormal,
    Masked,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Tied,
    VonMises,
)
from hmmstream import emissions as families

MEANS = [[-2.0, 1.0], [0.0, -1.5], [2.5, 0.5]]
COVS = [[[1.0, 0.4], [0.4, 0.8]], [[0.7, -0.2], [-0.2, 0.5]], [[0.6, 0.1], [0.1, 1.2]]]


class ReferenceRayleigh(Rayleigh):
    """The user-defined family of examples/, with its twins."""

    def reference_log_density(self, i, y):
        seen = ~np.isnan(y)
        return float(stats.rayleigh.logpdf(y[seen], scale=self.scales[i, seen]).sum())

    def reference_statistic(self, i, y):
        return np.concatenate([[1.0], np.where(np.isnan(y), 2 * self.scales[i] ** 2, y**2)])

    def reference_gradient(self, i, y):
        return np.where(np.isnan(y), 0.0, (y / self.scales[i]) ** 2 / self.scales[i] - 2 / self.scales[i])

    def reference_m_step(self, S):
        return ReferenceRayleigh(np.sqrt(S[:, 1:] / S[:, :1] / 2))


FAMILIES = {
    "gaussian-paper": Gaussian("tied", means=[-1.0, 0.5, 2.0], covars=0.5),
    "gaussian-full": Gaussian("full", means=MEANS, covars=COVS),
    "gaussian-diag": Gaussian("diag", means=MEANS, covars=[[1.0, 0.8], [0.7, 0.5], [0.6, 1.2]]),
    "gaussian-spherical": Gaussian("spherical", means=MEANS, covars=[1.0, 0.6, 0.9]),
    "gaussian-tied": Gaussian("tied", means=MEANS, covars=COVS[0]),
    "categorical": Categorical(probs=[[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6]]),
    "poisson": Poisson([1.0, 5.0, 12.0]),
    "exponential": Exponential([[0.2], [2.0], [20.0]]),
    "bernoulli": Bernoulli([[0.9, 0.1], [0.2, 0.8], [0.1, 0.2]]),
    "user-rayleigh": ReferenceRayleigh([0.3, 1.5, 6.0]),
    "multinomial": Multinomial(4, probs=[[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]),
    "geometric": Geometric([0.7, 0.15, 0.02]),
    "negative-binomial": NegativeBinomial(shapes=[1.0, 3.0, 6.0], means=[1.5, 12.0, 50.0]),
    "negative-binomial-fixed": NegativeBinomial(shapes=2.0, means=[1.0, 8.0, 60.0], learn_shape=False),
    "gamma": Gamma(shapes=[0.7, 5.0, 12.0], rates=[1.0, 1.0, 0.5]),
    "lognormal": LogNormal(means=[[-1.0, 2.0], [1.0, 0.0], [3.0, 1.0]], variances=[[0.5, 0.2], [0.3, 0.4], [0.1, 0.6]]),
    "von-mises": VonMises(means=[-2.0, 0.3, 2.0], concentrations=[4.0, 10.0, 6.0]),
    "mixed": families.Independent(
        [
            Gaussian("tied", means=[-1.0, 0.5, 2.0], covars=0.5),
            Categorical(probs=[[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.1, 0.1, 0.8]]),
            Poisson([[1.0, 3.0], [5.0, 3.0], [12.0, 1.0]]),
        ]
    ),
    "gaussian-mixture": GaussianMixture(
        weights=[[0.6, 0.4], [0.3, 0.7], [0.5, 0.5]],
        means=[[[-4.0, 1.0], [-1.0, 1.0]], [[0.0, -2.0], [0.0, -5.0]], [[2.0, 2.0], [5.0, 3.0]]],
        covars=[[[1.0, 0.5], [0.6, 0.8]], [[0.5, 0.5], [1.0, 0.7]], [[0.8, 0.6], [0.4, 1.0]]],
    ),
    "linear-regression": LinearRegression(
        coefficients=[[2.0, 0.0], [-1.0, 1.0], [0.0, -2.0]], intercepts=[1.0, -1.0, 0.5], variances=[0.3, 0.5, 0.2]
    ),
}

# These meet everything else that varies: forms of EM, kinds of start, and transition structures, of which the second
# sees two. Families know nothing of all that: it would take long, and show nothing new, if each met everything.
CROSSED = ["gaussian-paper", "categorical"]

STRUCTURES = {
    "full": (Full(), [[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.03, 0.12, 0.85]]),
    "masked": (Masked.banded(3), [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.15, 0.85]]),
    "tied": (Tied([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]]),
    "independent": (Independent(), [[0.5, 0.3, 0.2]] * 3),
}


def structures(family: str) -> list[str]:
    """The transition structures that a family is tried with."""
    return {"gaussian-paper": list(STRUCTURES), "categorical": ["full", "tied"]}.get(family, ["full"])


ALL = [(family, structure) for family in FAMILIES for structure in structures(family)]


def specification(emission):
    """The same family without its values."""
    if isinstance(emission, families.Independent):
        return families.Independent(map(specification, emission.parts), n_features=emission.part_features)
    return type(emission)(*emission.specification)


def make(family: str, structure: str = "full") -> HMM:
    """The true model of a combination."""
    transition, transmat = STRUCTURES[structure]
    return HMM([0.5, 0.3, 0.2], transmat, FAMILIES[family], transition)


def rough_start(family: str, structure: str = "full") -> HMM:
    """A start some way off: emissions drawn together, transitions less decided."""
    truth = make(family, structure)
    transmat = 0.6 * truth.transmat + 0.4 * (truth.transmat > 0) / (truth.transmat > 0).sum(axis=1, keepdims=True)
    return HMM([1 / 3] * 3, transmat, rough(truth.emission), truth.transition)


def rough(emission):
    """The family with values some way off."""
    match emission:
        case Gaussian():
            return Gaussian(emission.covariance, 0.6 * emission.means + 0.3, 2.0 * emission.covars)
        case GaussianMixture():
            values = 0.5 * emission.weights + 0.5 / emission.n_mix, 0.6 * emission.means + 0.3, 2.0 * emission.covars
            return GaussianMixture(emission.n_mix, emission.covariance, *values)
        case LinearRegression():
            values = 0.6 * emission.coefficients, 0.6 * emission.intercepts + 0.3, 2.0 * emission.variances
            return LinearRegression(emission.n_inputs, *values)
        case Categorical():
            return Categorical(probs=0.5 * emission.probs + 0.5 / emission.n_categories)
        case Multinomial():
            return emission.with_rows(0.5 * emission.probs + 0.5 / emission.n_features)
        case Bernoulli():
            return Bernoulli(0.5 * emission.probs + 0.25)
        case Geometric():
            return Geometric(1.0 / (1.3 * emission.probs**-0.7))
        case NegativeBinomial(learn_shape=False):
            return NegativeBinomial(emission.shapes, 1.3 * emission.means**0.7, learn_shape=False)
        case LogNormal():
            return LogNormal(0.6 * emission.means + 0.3, 2.0 * emission.variances)
        case VonMises():
            return VonMises(0.6 * emission.means + 0.3, 0.4 * emission.concentrations)
        case families.Independent():
            return families.Independent(map(rough, emission.parts))
        case _:
            return emission.with_rows(emission.rows() ** 0.7 * 1.3)


def paper_model() -> HMM:
    """The model of the paper's experiments."""
    return HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))


def paper_start() -> HMM:
    """Where all algorithms of the paper start from."""
    return HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2.0))


def with_gaps(X: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """X with single features missing here and there, and now and then a whole row."""
    rng = np.random.default_rng(seed)
    X = np.array(X, dtype=float)
    X[rng.random(X.shape) < share] = np.nan
    X[rng.random(len(X)) < share / 2] = np.nan
    return X


def values(hmm: HMM) -> np.ndarray:
    """All parameters of a model in one vector."""
    return np.concatenate([hmm.transmat.ravel(), hmm.emission.rows().ravel()])
