"""hmmlearn's estimators, on hmmstream's recursions, and with ``partial_fit``.

``from hmmstream.compat import hmmlearn as hmm`` takes the place of ``from hmmlearn import hmm``. Arguments, attributes,
methods and results are those of hmmlearn 0.3.3: the same start from the same ``random_state``, the same estimates with
the same priors. What is expected of the hidden states comes from :mod:`hmmstream.inference`; here are the start values
and the M-steps with priors.
"""

from __future__ import annotations

import logging
import sys
from abc import abstractmethod
from collections import deque
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted, check_random_state

from hmmstream import inference
from hmmstream.arrays import FloatArray, IntArray
from hmmstream.batch import BatchHMM
from hmmstream.emissions import Categorical, Emission, Gaussian, Multinomial, Poisson
from hmmstream.emissions.gaussian import SMALLEST_VARIANCE
from hmmstream.inference import Expectation, Memory, Pass, Smoothing
from hmmstream.learner import Learner
from hmmstream.model import HMM
from hmmstream.parameters import Point, stationary
from hmmstream.record import Record
from hmmstream.schedule import Power
from hmmstream.transitions import Full, Masked

__all__ = ["CategoricalHMM", "ConvergenceMonitor", "GaussianHMM", "MultinomialHMM", "PoissonHMM"]

_log = logging.getLogger(__name__)

FALLS = float(np.sqrt(np.finfo(float).eps))  # a log-likelihood that falls by less may have been rounded
WIDENING = 1e-7  # added to the variances of a covariance matrix that is not positive definite
LEAST_OCCUPATION = 1e-5  # that a variance is divided by

# partial_fit starts from a model that is worth keeping: it forgets slowly, and changes nothing before it has seen, if
# the model is right, each state for so many rows and stays; fewer would make a worse model, and may lose a state.
STEP = Power(0.8)
FIRST_STAYS, FIRST_ROWS, MOST_FIRST_ROWS = 5, 50, 1000
N_STARTS, N_START_ITERATIONS = 5, 10  # of EM on the first chunk, if the model has no values yet


class ConvergenceMonitor:
    """Says when EM has converged, and remembers how it got there. A subclass may have another idea of ``converged``."""

    def __init__(self, tol: float, n_iter: int, verbose: bool) -> None:
        self.tol = tol
        self.n_iter = n_iter
        self.verbose = verbose
        self.history: deque[float] = deque()  # the log-likelihood before each M-step
        self.iter = 0

    def _reset(self) -> None:
        self.history.clear()
        self.iter = 0

    def report(self, log_prob: float) -> None:
        """Take in the log-likelihood of the next iteration."""
        gain = log_prob - self.history[-1] if self.history else np.nan
        if self.verbose:
            print(f"{self.iter + 1:>10d} {log_prob:>16.8f} {gain:>+16.8f}", file=sys.stderr)
        if gain < -FALLS:
            _log.warning(
                "the log-likelihood fell by %g to %.10g: EM climbs the posterior, priors included", -gain, log_prob
            )
        self.history.append(log_prob)
        self.iter += 1

    @property
    def converged(self) -> bool:
        """Whether the last iteration gained less than ``tol``, or was the last allowed."""
        gained_little = len(self.history) > 1 and self.history[-1] - self.history[-2] < self.tol
        return self.iter == self.n_iter or gained_little

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name}={value}" for name, value in sorted({**vars(self), "history": [*self.history]}.items())
        )
        return f"{type(self).__name__}({values})"


class _HMM(BaseEstimator):
    """What the four estimators have in common: the chain, EM around it, and inference."""

    # Letters of ``params`` and ``init_params``, and what they stand for
    _attributes: ClassVar[dict[str, str]] = {"s": "startprob_", "t": "transmat_"}

    n_components: int
    n_features: Any
    random_state: Any
    params: str
    startprob_: FloatArray
    transmat_: FloatArray

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Keep the constructor's arguments as scikit-learn wants them: each under its name, unchanged."""
        for name, value in arguments.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)
        self.monitor_ = ConvergenceMonitor(self.tol, self.n_iter, self.verbose)

    # --- what a family says of itself -------------------------------------------------------------------------------

    @abstractmethod
    def _family(self) -> Emission:
        """The specification of the emissions."""

    @abstractmethod
    def _emission(self) -> Emission:
        """The emissions as the attributes have them."""

    @abstractmethod
    def _maximize(self, emission: Emission, S: FloatArray) -> None:
        """M-step with priors, from the statistic of ``emission`` that was expected."""

    @abstractmethod
    def _draw(self, state: int, rng: np.random.RandomState) -> Any:
        """One observation."""

    @abstractmethod
    def _n_scalars(self) -> dict[str, int]:
        """The number of free parameters behind each letter."""

    # --- learning ---------------------------------------------------------------------------------------------------

    def fit(self, X: ArrayLike, lengths: ArrayLike | None = None) -> Self:
        """Estimate the parameters named in ``params`` by EM, from a start of those named in ``init_params``.

        ``lengths`` splits X into independent sequences. NaN is missing.
        """
        X, memory = _rows(X), Memory()
        data = self._record(X, lengths)
        self._init(X, lengths)
        self._check()
        self.monitor_._reset()
        for _ in range(self.n_iter):
            point = self._point()
            expected = inference.expect(point, data, memory)
            self._maximize_chain(expected)
            self._maximize(point.emission, expected.emissions)
            self.monitor_.report(expected.log_likelihood)
            if self.monitor_.converged:
                break
            if not self.transmat_.any(axis=1).all():
                _log.warning("transmat_ has a row of zeros: no transition out of that state was seen")
        return self

    def partial_fit(self, X: ArrayLike, lengths: ArrayLike | None = None) -> Self:
        """Learn on line from rows that continue the stream, each read once, by Cappé's online EM.

        It goes on from where the model stands: from the attributes that were set, fitted or learned. Those that are
        missing are found by EM on this chunk, which should show all states; what comes later refines them. Without
        ``lengths``, X continues the last sequence; with them, X is made of whole sequences. Priors play no part, and
        ``startprob_`` stays.
        """
        held = [name for letter, name in self._attributes.items() if letter not in self.params + "s"]
        if held:
            raise ValueError(f"partial_fit learns all parameters at once: params={self.params!r} would hold {held}")
        X = _rows(X)
        learner: Learner | None = self.__dict__.get("_learner")
        if learner is None or not self._stands_at(learner.model):
            learner = self._new_learner(X, lengths)
        learner.learn(X, lengths)
        self._learner = learner
        self._take(learner.model)
        return self

    def _record(self, X: Any, lengths: ArrayLike | None) -> Record:
        """The data, checked before anything changes."""
        trial = copy(self)
        trial._check_and_set_n_features(X)
        return inference.record(trial._family().sized(self.n_components, X.shape[1]), X, lengths)

    def _new_learner(self, X: Any, lengths: ArrayLike | None) -> Learner:
        """A learner that starts from where the model stands, or from what the first chunk says."""
        missing = [name for name in self._attributes.values() if not hasattr(self, name)]
        start = copy(self)
        if missing:
            start._check_and_set_n_features(X)
            values = _values(start._found(X, lengths))
            for name in missing:
                setattr(start, name, values[name])
        model = start.model_
        stays = 1.0 / np.maximum(1.0 - np.diag(model.transmat), 1e-12)
        n_min = int(np.clip(FIRST_STAYS * stays, FIRST_ROWS, MOST_FIRST_ROWS).sum())
        return Learner(model, step=STEP, n_min=max(n_min, len(X)) if missing else n_min)

    def _found(self, X: Any, lengths: ArrayLike | None) -> HMM:
        """A model to start from, by EM on the first chunk, or if that is short by clusters alone."""
        batch = BatchHMM(
            self.n_components,
            self._family(),
            n_init=N_STARTS,
            n_iter=N_START_ITERATIONS if len(X) >= FIRST_ROWS * self.n_components else 0,
            start="fixed",  # all states alike: one sequence says nothing about the start of others
            random_state=check_random_state(self.random_state).randint(2**31),
        )
        return batch.fit(X, lengths=lengths).model_

    def _take(self, model: HMM) -> None:
        """Show the values of ``model``."""
        for name, value in _values(model).items():
            setattr(self, name, value.copy())
        self._check()

    def _stands_at(self, model: HMM) -> bool:
        """Whether the attributes are still those of ``model``, and nobody has changed them."""
        return all(np.array_equal(self._stored(name), value) for name, value in _values(model).items())

    def _stored(self, name: str) -> Any:
        return getattr(self, name, None)

    def _maximize_chain(self, expected: Expectation) -> None:
        """M-step with Dirichlet priors. What is impossible stays so; a negative count is none."""
        if "s" in self.params:
            counts = np.maximum(self.startprob_prior - 1.0 + expected.start * self.startprob_, 0.0)
            self.startprob_ = _normalized(np.where(self.startprob_ == 0.0, 0.0, counts), self.startprob_)
        if "t" in self.params:
            counts = np.maximum(self.transmat_prior - 1.0 + expected.pairs * self.transmat_, 0.0)
            counts = np.where(self.transmat_ == 0.0, 0.0, counts)
            self.transmat_ = _normalized(counts, np.zeros_like(counts))

    # --- start values -----------------------------------------------------------------------------------------------

    def _init(self, X: Any, lengths: ArrayLike | None = None) -> None:
        """Start values of what ``init_params`` names, and of what there is none of: hmmlearn's, draw by draw."""
        self._check_and_set_n_features(X)
        rng = check_random_state(self.random_state)
        concentration = np.full(self.n_components, 1.0 / self.n_components)
        if self._needs_init("s"):
            self.startprob_ = rng.dirichlet(concentration)
        if self._needs_init("t"):
            self.transmat_ = rng.dirichlet(concentration, size=self.n_components)
        n_scalars = sum(self._n_scalars()[letter] for letter in self.params)
        if X.size < n_scalars:
            _log.warning("%d numbers for %d free parameters: expect a degenerate solution", X.size, n_scalars)

    def _needs_init(self, letter: str) -> bool:
        name = self._attributes[letter]
        if letter in self.init_params and hasattr(self, name):
            _log.warning("%s is set, but will be overwritten, as init_params has %r", name, letter)
        return letter in self.init_params or not hasattr(self, name)

    def _check_and_set_n_features(self, X: Any) -> None:
        n_features = getattr(self, "n_features", X.shape[1])
        if X.shape[1] != n_features:
            raise ValueError(f"X has {X.shape[1]} features, but the model has {n_features}")
        self.n_features = n_features

    def _check(self) -> None:
        """Refuse attributes that make no model."""
        if self.implementation not in ("log", "scaling"):
            raise ValueError(f"implementation must be 'log' or 'scaling', got {self.implementation!r}")
        m = self.n_components
        self.startprob_, self.transmat_ = np.asarray(self.startprob_), np.asarray(self.transmat_)
        _check_probabilities("startprob_", self.startprob_, (m,))
        _check_probabilities("transmat_", self.transmat_, (m, m))

    # --- inference --------------------------------------------------------------------------------------------------

    @property
    def model_(self) -> HMM:
        """The same model as hmmstream has it: for standard errors, forecasts, causal probabilities, OnlineHMM(init=…).

        Transitions of probability 0 are impossible by its structure.
        """
        check_is_fitted(self, "startprob_")
        self._check()
        transmat = _normalized(self.transmat_, self.transmat_)
        structure = Full() if transmat.all() else Masked(transmat > 0.0)
        return HMM(_normalized(self.startprob_, self.startprob_), transmat, self._emission(), structure)

    def _point(self) -> Point:
        """The model as it is, rows of zeros included."""
        return Point(np.asarray(self.startprob_, float), np.asarray(self.transmat_, float), self._emission(), Full())

    def _run(self, function: Any, X: ArrayLike, lengths: ArrayLike | None) -> Any:
        check_is_fitted(self, "startprob_")
        self._check()
        point = self._point()
        return inference.run(function, point, inference.record(point.emission, _rows(X), lengths))

    def score(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """Log-likelihood of X: the total."""
        return float(self._run(inference.log_likelihood, X, lengths))

    def score_samples(self, X: ArrayLike, lengths: ArrayLike | None = None) -> tuple[float, FloatArray]:
        """Log-likelihood of X, and the probability of each state at each row given all rows: (n, m)."""
        log_prob, posteriors = self._run(_posteriors, X, lengths)
        return log_prob, posteriors

    def predict_proba(self, X: ArrayLike, lengths: ArrayLike | None = None) -> FloatArray:
        """Probability of each state at each row, given all rows: (n, m)."""
        return self.score_samples(X, lengths)[1]

    def decode(
        self, X: ArrayLike, lengths: ArrayLike | None = None, algorithm: str | None = None
    ) -> tuple[float, IntArray]:
        """States, and how good they are.

        "viterbi" finds the most probable sequence, and its log-probability together with X. "map" finds the most
        probable state at each row, and the sum of their probabilities, as hmmlearn does.
        """
        algorithm = algorithm or self.algorithm
        if algorithm not in ("viterbi", "map"):
            raise ValueError(f"algorithm must be 'viterbi' or 'map', got {algorithm!r}")
        if algorithm == "viterbi":
            log_prob, states = self._run(inference.best_path, X, lengths)
            return log_prob, states
        posteriors = self.predict_proba(X, lengths)
        return float(posteriors.max(axis=1).sum()), posteriors.argmax(axis=1)

    def predict(self, X: ArrayLike, lengths: ArrayLike | None = None) -> IntArray:
        """The states that ``decode`` finds: (n,)."""
        return self.decode(X, lengths)[1]

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: int | None = None
    ) -> tuple[Any, IntArray]:
        """Simulate observations and their states, the first of which may be given as ``currstate``."""
        check_is_fitted(self, "startprob_")
        self._check()
        rng = check_random_state(self.random_state if random_state is None else random_state)
        moves = np.cumsum(self.transmat_, axis=1)
        state = (np.cumsum(self.startprob_) > rng.rand()).argmax() if currstate is None else currstate
        states, X = [state], [self._draw(state, rng)]
        for _ in range(n_samples - 1):
            state = (moves[state] > rng.rand()).argmax()
            states.append(state)
            X.append(self._draw(state, rng))
        return np.atleast_2d(X), np.array(states, dtype=int)

    def get_stationary_distribution(self) -> FloatArray:
        """The distribution of states that the chain keeps."""
        check_is_fitted(self, "transmat_")
        return stationary(np.asarray(self.transmat_, dtype=float))

    def aic(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """Akaike's criterion. Smaller is better."""
        return -2.0 * self.score(X, lengths) + 2.0 * sum(self._n_scalars().values())

    def bic(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """Schwarz's criterion. Smaller is better."""
        return -2.0 * self.score(X, lengths) + float(np.log(len(_rows(X)))) * sum(self._n_scalars().values())

    def _n_chain_scalars(self) -> dict[str, int]:
        return {"s": self.n_components - 1, "t": self.n_components * (self.n_components - 1)}


class GaussianHMM(_HMM):
    """Hidden Markov model with normally distributed observations.

    Parameters
    ----------
    n_components : int
    covariance_type : "spherical", "diag", "full" or "tied"
    min_covar : float
        Added to the variances of the start.
    startprob_prior, transmat_prior : float or array
        Of the Dirichlet distributions.
    means_prior, means_weight : float or array
        Mean and weight of the normal prior of the means.
    covars_prior, covars_weight : float or array, float
        Of the inverse gamma ("spherical", "diag") or inverse Wishart ("full", "tied") prior of the covariances.
    algorithm : "viterbi" or "map"
        What ``predict`` and ``decode`` look for.
    random_state, n_iter, tol, verbose
    params, init_params : str
        What ``fit`` estimates and what it makes a start for: "s" startprob, "t" transmat, "m" means, "c" covars.
    implementation : "log" or "scaling"
        Either is exact here, and as fast.

    Examples
    --------
    >>> import numpy as np
    >>> from hmmstream.compat.hmmlearn import GaussianHMM
    >>> model = GaussianHMM(2)
    >>> model.startprob_, model.transmat_ = np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> model.means_, model.covars_ = np.array([[0.0], [9.0]]), np.array([[1.0], [1.0]])
    >>> model.predict([[0.3], [8.1], [9.9]])
    array([0, 1, 1])
    """

    _attributes: ClassVar[dict[str, str]] = {**_HMM._attributes, "m": "means_", "c": "covars_"}
    means_: FloatArray
    _covars_: FloatArray  # as many numbers as there are parameters, for each type

    def __init__(
        self,
        n_components: int = 1,
        covariance_type: str = "diag",
        min_covar: float = 1e-3,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        means_prior: Any = 0,
        means_weight: Any = 0,
        covars_prior: Any = 1e-2,
        covars_weight: float = 1,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stmc",
        init_params: str = "stmc",
        implementation: str = "log",
    ) -> None:
        self._keep(locals())

    @property
    def covars_(self) -> FloatArray:
        """The covariance matrix of each state: (m, d, d). Set them in the shape that the type has."""
        covars, m = self._covars_, self.n_components
        if self.covariance_type == "diag":
            return covars[:, :, np.newaxis] * np.eye(covars.shape[1])
        if self.covariance_type == "spherical":
            d = self.n_features if hasattr(self, "n_features") else np.shape(self.means_)[1]
            return covars[:, np.newaxis, np.newaxis] * np.eye(d)
        return np.tile(covars, (m, 1, 1)) if self.covariance_type == "tied" else covars

    @covars_.setter
    def covars_(self, covars: ArrayLike) -> None:
        self._check_type()
        values, m = np.array(covars, dtype=float), self.n_components
        if self.covariance_type == "spherical" and values.size and len(values) == m:
            same = values.reshape(m, -1)
            values = same[:, 0].copy() if (same == same[:, :1]).all() else values
        d = values.shape[-1] if values.ndim else 0
        shape = {"spherical": (m,), "diag": (m, d), "full": (m, d, d), "tied": (d, d)}[self.covariance_type]
        if values.shape != shape or d == 0:
            names = {"spherical": "(m,)", "diag": "(m, d)", "full": "(m, d, d)", "tied": "(d, d)"}[self.covariance_type]
            raise ValueError(
                f"covars_ must have shape {names} with m = {m} for {self.covariance_type!r}, got {np.shape(covars)}"
            )
        Gaussian(self.covariance_type, np.zeros((m, 1 if self.covariance_type == "spherical" else d)), values)
        self._covars_ = values

    def _check_type(self) -> None:
        if self.covariance_type not in ("spherical", "diag", "full", "tied"):
            raise ValueError(
                f"covariance_type must be 'spherical', 'diag', 'full' or 'tied', got {self.covariance_type!r}"
            )

    def _check(self) -> None:
        super()._check()
        self._check_type()
        self.means_ = np.asarray(self.means_)
        if self.means_.ndim != 2 or len(self.means_) != self.n_components:
            raise ValueError(f"means_ must have shape ({self.n_components}, n_features), got {self.means_.shape}")
        self.n_features = self.means_.shape[1]

    def _init(self, X: Any, lengths: ArrayLike | None = None) -> None:
        super()._init(X, lengths)
        complete = X[~np.isnan(X).any(axis=1)]
        if self._needs_init("m"):
            from sklearn.cluster import KMeans  # takes long to import, and only this needs it

            k_means = KMeans(self.n_components, n_init=10, random_state=self.random_state)
            self.means_ = k_means.fit(complete).cluster_centers_
        if self._needs_init("c"):
            m = self.n_components
            covariance = np.atleast_2d(np.cov(complete.T)) + self.min_covar * np.eye(X.shape[1])
            if self.covariance_type == "spherical":
                self.covars_ = np.full(m, covariance.mean())  # of all its cells: hmmlearn's choice
            elif self.covariance_type == "diag":
                self.covars_ = np.tile(np.diag(covariance), (m, 1))
            else:
                self.covars_ = covariance if self.covariance_type == "tied" else np.tile(covariance, (m, 1, 1))

    def _family(self) -> Emission:
        return Gaussian(self.covariance_type)

    def _emission(self) -> Emission:
        covars = self._covars_
        if self.covariance_type in ("spherical", "diag"):
            return Gaussian(self.covariance_type, self.means_, np.maximum(covars, SMALLEST_VARIANCE))
        try:
            return Gaussian(self.covariance_type, self.means_, covars)
        except ValueError:  # if it is not widened enough, the next says so
            return Gaussian(self.covariance_type, self.means_, covars + WIDENING * np.eye(self.n_features))

    def _stored(self, name: str) -> Any:
        return super()._stored("_covars_" if name == "covars_" else name)

    def _maximize(self, emission: Any, S: FloatArray) -> None:
        """M-step from moments about the means so far: far from 0, moments about 0 would have lost their digits."""
        (m, d), is_matrix = emission.means.shape, self.covariance_type in ("full", "tied")
        occupation, first = S[:, :1], S[:, 1 : 1 + d]
        shift = np.zeros((m, d))
        if "m" in self.params:
            total = np.broadcast_to(self.means_weight + occupation, (m, d))
            pulled = first + self.means_weight * (self.means_prior - emission.means)
            shift = np.divide(pulled, total, out=shift, where=total > 0.0)  # a state that was not visited stays
            self.means_ = emission.means + shift
        if "c" not in self.params:
            return
        from_prior = self.means_ - self.means_prior
        if is_matrix:
            second = np.zeros((m, d, d))
            a, b = np.tril_indices(d)
            second[:, a, b] = second[:, b, a] = S[:, 1 + d :]
            cross = first[:, :, np.newaxis] * shift[:, np.newaxis, :]
            scatter = second - cross - cross.transpose(0, 2, 1) + occupation[:, :, np.newaxis] * _outer(shift)
            scatter = scatter + self.means_weight * _outer(from_prior)
            if self.covariance_type == "tied":
                scatter, occupation = scatter.sum(axis=0), occupation.sum()
            total = max(self.covars_weight - d, 0) + np.reshape(occupation, (-1, 1, 1) if scatter.ndim == 3 else ())
            covars = np.array(emission.covars)
            self._covars_ = np.divide(self.covars_prior + scatter, total, out=covars, where=total > 0.0)
        else:
            scatter = S[:, 1 + d :] - 2.0 * shift * first + shift**2 * occupation
            scatter = scatter + self.means_weight * from_prior**2
            total = np.maximum(max(self.covars_weight - 1, 0) + occupation, LEAST_OCCUPATION)
            covars = (self.covars_prior + scatter) / total
            self._covars_ = covars.mean(axis=1) if self.covariance_type == "spherical" else covars

    def _draw(self, state: int, rng: np.random.RandomState) -> Any:
        return rng.multivariate_normal(self.means_[state], self.covars_[state])

    def _n_scalars(self) -> dict[str, int]:
        m, d = self.n_components, self.n_features
        triangle = d * (d + 1) // 2
        covars = {"spherical": m, "diag": m * d, "full": m * triangle, "tied": triangle}[self.covariance_type]
        return {**self._n_chain_scalars(), "m": m * d, "c": covars}


class _OutcomesHMM(_HMM):
    """Emissions with a probability for each state and outcome."""

    _attributes: ClassVar[dict[str, str]] = {**_HMM._attributes, "e": "emissionprob_"}
    emissionprob_: FloatArray

    def _init(self, X: Any, lengths: ArrayLike | None = None) -> None:
        super()._init(X, lengths)
        self.random_state = rng = check_random_state(self.random_state)  # hmmlearn draws on from here
        if self._needs_init("e"):
            weights = rng.rand(self.n_components, self.n_features)
            self.emissionprob_ = weights / weights.sum(axis=1, keepdims=True)

    def _check(self) -> None:
        super()._check()
        self.emissionprob_ = np.atleast_2d(self.emissionprob_)
        n_features = getattr(self, "n_features", None) or self.emissionprob_.shape[1]
        _check_probabilities("emissionprob_", self.emissionprob_, (self.n_components, n_features))
        self.n_features = n_features

    def _probs(self) -> FloatArray:
        return _normalized(self.emissionprob_, self.emissionprob_)

    def _maximize(self, emission: Any, S: FloatArray) -> None:
        if "e" in self.params:
            counts = np.maximum(getattr(self, "emissionprob_prior", 1.0) - 1.0 + S[:, 1:], 0.0)
            self.emissionprob_ = _normalized(counts, self.emissionprob_)

    def _n_scalars(self) -> dict[str, int]:
        return {**self._n_chain_scalars(), "e": self.n_components * (self.n_features - 1)}


class CategoricalHMM(_OutcomesHMM):
    """Hidden Markov model of symbols 0, 1, 2, …: X has one column.

    Parameters
    ----------
    n_components : int
    startprob_prior, transmat_prior, emissionprob_prior : float or array
        Of the Dirichlet distributions.
    n_features : int
        Number of symbols; if None, the largest that ``fit`` sees decides.
    algorithm, random_state, n_iter, tol, verbose, params, init_params, implementation
        As for :class:`GaussianHMM`; "e" is emissionprob.

    Examples
    --------
    >>> from hmmstream.compat.hmmlearn import CategoricalHMM
    >>> model = CategoricalHMM(2)
    >>> model.startprob_, model.transmat_ = [0.6, 0.4], [[0.7, 0.3], [0.4, 0.6]]
    >>> model.emissionprob_ = [[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]]
    >>> model.predict([[0], [1], [2]])
    array([1, 0, 0])
    """

    def __init__(
        self,
        n_components: int = 1,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        *,
        emissionprob_prior: Any = 1.0,
        n_features: int | None = None,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "ste",
        init_params: str = "ste",
        implementation: str = "log",
    ) -> None:
        self._keep(locals())

    def _check_and_set_n_features(self, X: Any) -> None:
        _check_counts(X, "symbols")
        largest = int(np.nanmax(X))
        if self.n_features is None:
            self.n_features = largest + 1
        elif largest >= self.n_features:
            raise ValueError(
                f"X holds the symbol {largest}, but n_features is {self.n_features}: 0 is the first symbol"
            )

    def _family(self) -> Emission:
        return Categorical(self.n_features)

    def _emission(self) -> Emission:
        return Categorical(probs=self._probs())

    def _draw(self, state: int, rng: np.random.RandomState) -> Any:
        return [(np.cumsum(self.emissionprob_[state]) > rng.rand()).argmax()]


class MultinomialHMM(_OutcomesHMM):
    """Hidden Markov model of counts of a few outcomes in a number of trials.

    Parameters
    ----------
    n_components : int
    n_trials : int or array of int
        The sum of each row that ``fit`` gets; if None, ``fit`` takes it from them. To sample it must be one number.
    startprob_prior, transmat_prior : float or array
        Of the Dirichlet distributions.
    algorithm, random_state, n_iter, tol, verbose, params, init_params, implementation
        As for :class:`GaussianHMM`; "e" is emissionprob.

    Examples
    --------
    >>> from hmmstream.compat.hmmlearn import MultinomialHMM
    >>> model = MultinomialHMM(2, n_trials=5)
    >>> model.startprob_, model.transmat_ = [0.6, 0.4], [[0.8, 0.2], [0.2, 0.8]]
    >>> model.emissionprob_ = [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]
    >>> model.predict([[4, 1, 0], [3, 1, 1], [0, 1, 4]])
    array([0, 0, 1])
    """

    n_trials: Any

    def __init__(
        self,
        n_components: int = 1,
        n_trials: Any = None,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "ste",
        init_params: str = "ste",
        implementation: str = "log",
    ) -> None:
        self._keep(locals())

    def _check_and_set_n_features(self, X: Any) -> None:
        super()._check_and_set_n_features(X)
        _check_counts(X, "counts")
        totals = X.sum(axis=1)
        if self.n_trials is None:
            self.n_trials = totals[~np.isnan(totals)]
        elif not ((totals == self.n_trials) | np.isnan(totals)).all():
            raise ValueError(f"each row of X must sum to n_trials = {self.n_trials}, got sums {np.unique(totals)}")

    def _family(self) -> Emission:
        return Multinomial()

    def _emission(self) -> Emission:
        return Multinomial(probs=self._probs())

    def _draw(self, state: int, rng: np.random.RandomState) -> Any:
        n_trials = np.unique([] if self.n_trials is None else self.n_trials)
        if len(n_trials) != 1:
            raise ValueError(f"to sample, n_trials must be one number, got {self.n_trials}")
        return rng.multinomial(n_trials[0], self.emissionprob_[state])


class PoissonHMM(_HMM):
    """Hidden Markov model of counts, Poisson distributed, with one rate for each state and feature.

    Parameters
    ----------
    n_components : int
    startprob_prior, transmat_prior : float or array
        Of the Dirichlet distributions.
    lambdas_prior, lambdas_weight : float or array
        Of the gamma prior of the rates.
    algorithm, random_state, n_iter, tol, verbose, params, init_params, implementation
        As for :class:`GaussianHMM`; "l" is lambdas.

    Examples
    --------
    >>> from hmmstream.compat.hmmlearn import PoissonHMM
    >>> model = PoissonHMM(2)
    >>> model.startprob_, model.transmat_ = [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]]
    >>> model.lambdas_ = [[1.0], [9.0]]
    >>> model.predict([[0], [1], [12], [7]])
    array([0, 0, 1, 1])
    """

    _attributes: ClassVar[dict[str, str]] = {**_HMM._attributes, "l": "lambdas_"}
    lambdas_: FloatArray

    def __init__(
        self,
        n_components: int = 1,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        lambdas_prior: Any = 0.0,
        lambdas_weight: Any = 0.0,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stl",
        init_params: str = "stl",
        implementation: str = "log",
    ) -> None:
        self._keep(locals())

    def _init(self, X: Any, lengths: ArrayLike | None = None) -> None:
        super()._init(X, lengths)
        self.random_state = rng = check_random_state(self.random_state)  # hmmlearn draws on from here
        if self._needs_init("l"):
            mean, variance = np.nanmean(X), np.nanvar(X)
            shape = (self.n_components, self.n_features)
            self.lambdas_ = rng.gamma(mean**2 / variance, variance / mean, size=shape)

    def _check(self) -> None:
        super()._check()
        self.lambdas_ = np.atleast_2d(self.lambdas_)
        n_features = getattr(self, "n_features", self.lambdas_.shape[1])
        if self.lambdas_.shape != (self.n_components, n_features) or n_features == 0:
            raise ValueError(f"lambdas_ must have shape ({self.n_components}, {n_features}), got {self.lambdas_.shape}")
        self.n_features = n_features

    def _family(self) -> Emission:
        return Poisson()

    def _emission(self) -> Emission:
        return Poisson(self.lambdas_)

    def _maximize(self, emission: Any, S: FloatArray) -> None:
        """The prior weighs on each state as if all rows were its own: hmmlearn's choice."""
        if "l" in self.params:
            n, was_visited = S[:, 0].sum(), S[:, :1] > 0.0
            mean = np.divide(S[:, 1:], S[:, :1], out=np.array(emission.rates), where=was_visited)
            self.lambdas_ = (self.lambdas_prior + n * mean) / (self.lambdas_weight + n)

    def _draw(self, state: int, rng: np.random.RandomState) -> Any:
        return rng.poisson(self.lambdas_[state])

    def _n_scalars(self) -> dict[str, int]:
        return {**self._n_chain_scalars(), "l": self.n_components * self.n_features}


# --- checks and small formulas ---------------------------------------------------------------------------------------


def _values(model: HMM) -> dict[str, FloatArray]:
    """The values of a model by hmmlearn's names."""
    names = {"means": "means_", "covars": "covars_", "probs": "emissionprob_", "rates": "lambdas_"}
    values = {names[name]: getattr(model.emission, name) for name in model.emission.value_names}
    return {"startprob_": model.startprob, "transmat_": model.transmat, **values}


def _rows(X: ArrayLike) -> Any:
    """``X`` as a matrix, integers if it holds integers."""
    return check_array(X, ensure_all_finite="allow-nan")


def _posteriors(work: Pass, data: Record) -> tuple[float, FloatArray]:
    """Log-likelihood, and the probability of each state at each row given all rows."""
    smoothing = Smoothing(work, data)
    out = np.empty((len(data), len(work.startprob)))
    for piece, smoothed in smoothing:
        out[piece] = smoothed
    return smoothing.log_likelihood, out


def _normalized(weights: Any, otherwise: Any) -> FloatArray:
    """Rows divided by their sums; where that is 0, those of ``otherwise``."""
    weights = np.asarray(weights, dtype=float)
    sums = weights.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(weights, sums, out=np.array(otherwise, dtype=float), where=sums > 0.0))


def _outer(vectors: FloatArray) -> FloatArray:
    """The outer product of each row with itself."""
    return np.asarray(vectors[:, :, np.newaxis] * vectors[:, np.newaxis, :])


def _check_probabilities(name: str, values: Any, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}")
    if not np.allclose(values.sum(axis=-1), 1.0) or (values < 0.0).any():
        raise ValueError(f"{name} must hold probabilities that sum to 1, got sums {values.sum(axis=-1)}")


def _check_counts(X: Any, what: str) -> None:
    """Whole numbers that are not negative; an array of floats must have a reason to be one: something is missing."""
    is_missing = np.isnan(X)
    if not (np.issubdtype(X.dtype, np.integer) or is_missing.any()):
        raise ValueError(f"{what} must be integers, got an array of {X.dtype}")
    seen = X[~is_missing]
    if (seen < 0).any() or (seen != np.floor(seen)).any():
        raise ValueError(f"{what} must be integers that are not negative, got {seen.min()} … {seen.max()}")
