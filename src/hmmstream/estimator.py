"""What the estimators have in common: how a start is found, and what a learned model can do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from hmmstream import transitions
from hmmstream.arrays import FloatArray, IntArray
from hmmstream.emissions import FAMILIES, Emission
from hmmstream.model import HMM, Forecast
from hmmstream.transitions import Full, Transition


class HMMEstimator(BaseEstimator):
    """A scikit-learn estimator with a ``model_``."""

    n_components: int
    emission: str | Emission
    transition: str | Transition
    init: str | HMM
    model_: HMM
    filtered_proba_: FloatArray

    def _explicit_start(self) -> HMM:
        """``init``, checked against what else was said."""
        start = self.init
        if not isinstance(start, HMM):
            raise ValueError(f"init must be 'auto' or an HMM with its values, got {start!r}")
        default = {"n_components": 2, "emission": "gaussian"}
        if self.n_components not in (default["n_components"], start.n_components):
            raise ValueError(f"n_components is {self.n_components}, but init has {start.n_components} states")
        if isinstance(self.emission, Emission):
            agrees = type(self.emission) is type(start.emission)
            agrees = agrees and self.emission.specification == start.emission.specification
        else:
            agrees = self.emission == default["emission"] or FAMILIES.get(self.emission) is type(start.emission)
        if not agrees:
            raise ValueError(f"emission is {self.emission!r}, but init has {start.emission!r}")
        structure = transitions.resolve(self.transition)
        if structure in (Full(), start.transition):
            return start
        if start.transition != Full():
            raise ValueError(f"transition is {structure!r}, but init has {start.transition!r}")
        return HMM(start.startprob, start.transmat, start.emission, structure)

    # --- inference for a record of its own, learning nothing --------------------------------------------------------

    def predict_proba(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> FloatArray:
        """Probability of each state at each row, given the rows up to it: (n, m). Causal."""
        return self.model_.filter(X, lengths)

    def predict(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> IntArray:
        """The most probable state at each row, given the rows up to it: (n,). Causal."""
        return np.asarray(self.predict_proba(X, lengths=lengths).argmax(axis=1))

    def smooth_proba(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> FloatArray:
        """Probability of each state at each row, given all rows, later ones too: (n, m)."""
        return self.model_.smooth(X, lengths)

    def decode(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> tuple[float, IntArray]:
        """The most probable sequence of states, given all rows (Viterbi): its log-probability with X, and itself."""
        return self.model_.decode(X, lengths)

    def score_samples(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> FloatArray:
        """Logarithm of the density of each row, given the rows before it: (n,)."""
        return self.model_.log_predictive(X, lengths)

    def score(self, X: ArrayLike, y: Any = None, *, lengths: ArrayLike | None = None) -> float:
        """Log-likelihood, the mean for each row."""
        return self.model_.log_likelihood(X, lengths) / max(len(np.asarray(X)), 1)

    def forecast(self, horizon: int) -> Forecast:
        """What is expected 1, 2, …, ``horizon`` steps after the last row that was learned from."""
        return self.model_.forecast(horizon, self.filtered_proba_)

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> tuple[Any, Any]:
        """Simulate ``n`` observations: (X of shape (n, d), hidden states of shape (n,))."""
        return self.model_.sample(n, random_state)

    @property
    def startprob_(self) -> FloatArray:
        return self.model_.startprob

    @property
    def transmat_(self) -> FloatArray:
        return self.model_.transmat

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_"):
            if name in ("model_", "filtered_proba_"):
                raise NotFittedError(
                    f"this {type(self).__name__} has learned nothing yet: call fit or partial_fit first"
                )
            # means_, covars_, rates_, probs_: whatever the emission family calls its values
            emission = self.model_.emission
            if name[:-1] in emission.value_names:
                return getattr(emission, name[:-1])
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
