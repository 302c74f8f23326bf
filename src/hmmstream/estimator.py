"""What the estimators have in common: how a start is found, and what a learned model can do."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import validate_data

from hmmstream import checkpoint, plotting, transitions
from hmmstream.arrays import UNKNOWN, FloatArray, IntArray, is_integer, known_states, matrix
from hmmstream.emissions import FAMILIES, Emission
from hmmstream.model import HMM, Forecast
from hmmstream.priors import Prior
from hmmstream.transitions import Full, Transition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def is_table(X: Any) -> bool:
    """Whether ``X`` is an array or frame with columns, which may have names."""
    return len(getattr(X, "shape", ())) == 2 and not hasattr(X, "toarray")


class HMMEstimator(DensityMixin, BaseEstimator):
    """A scikit-learn estimator with a ``model_``."""

    n_components: int
    emission: str | Emission
    transition: str | Transition
    init: str | HMM
    prior: Prior | None
    random_state: int | None
    _learned: ClassVar[tuple[str, ...]]  # attributes that a file holds besides the settings
    model_: HMM
    filtered_proba_: FloatArray

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value
        return tags

    def _check_settings(self) -> None:
        """Refuse what cannot be meant, before anything is learned."""
        if not is_integer(self.n_components) or self.n_components < 1:
            raise ValueError(f"n_components must be a positive integer, got {self.n_components!r}")
        if self.random_state is not None and not (is_integer(self.random_state) and self.random_state >= 0):
            raise ValueError(
                f"random_state must be an integer that is not negative, or None, got {self.random_state!r}"
            )
        if self.prior is not None and not isinstance(self.prior, Prior):
            raise ValueError(f"prior must be a Prior or None, got {self.prior!r}")
        if not isinstance(self.init, HMM) and not (isinstance(self.init, str) and self.init == "auto"):
            raise ValueError(f"init must be 'auto' or an HMM with its values, got {self.init!r}")

    def _rows(self, X: Any) -> FloatArray:
        """``X`` as a matrix, if its columns are those that were learned from."""
        is_plain = type(X) is np.ndarray and "feature_names_in_" not in self.__dict__
        n_features = self.__dict__.get("n_features_in_")
        if is_table(X) and n_features is not None and not (is_plain and X.shape[1] == n_features):
            validate_data(self, X, reset=False, skip_check_array=True)  # takes as long as to learn from 1000 rows
        return matrix(X)

    def _note_columns(self, X: Any) -> None:
        """Remember the number of columns, and their names if they have some."""
        if type(X) is np.ndarray:
            self.n_features_in_ = X.shape[1] if X.ndim == 2 else 1
        else:
            validate_data(self, X if is_table(X) else matrix(X), reset=True, skip_check_array=True)

    def _states(self, y: Any, n: int) -> IntArray | None:
        """The states that ``y`` says are known. Labels of another kind are ignored, as unsupervised estimators do."""
        if y is None:
            return None
        m = self.init.n_components if isinstance(self.init, HMM) else self.n_components
        try:
            return known_states(y, n, m)
        except ValueError:
            labels = np.asarray(y)
            is_partial = labels.dtype.kind == "f" and np.isnan(labels).any()
            if labels.shape != (n,) or is_partial or (labels == UNKNOWN).any():
                raise
            warnings.warn(
                f"y is ignored: known states are numbered 0, …, {m - 1}, with -1 where unknown, and these are others",
                stacklevel=3,
            )
            return None

    def _explicit_start(self) -> HMM:
        """``init``, checked against what else was said."""
        start = self.init
        assert isinstance(start, HMM)
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
        return self.model_.filter(self._rows(X), lengths)

    def predict(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> IntArray:
        """The most probable state at each row, given the rows up to it: (n,). Causal."""
        return np.asarray(self.predict_proba(X, lengths=lengths).argmax(axis=1))

    def smooth_proba(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> FloatArray:
        """Probability of each state at each row, given all rows, later ones too: (n, m)."""
        return self.model_.smooth(self._rows(X), lengths)

    def decode(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> tuple[float, IntArray]:
        """The most probable sequence of states, given all rows (Viterbi): its log-probability with X, and itself."""
        return self.model_.decode(self._rows(X), lengths)

    def score_samples(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> FloatArray:
        """Logarithm of the density of each row, given the rows before it: (n,)."""
        return self.model_.log_predictive(self._rows(X), lengths)

    def score(self, X: ArrayLike, y: Any = None, *, lengths: ArrayLike | None = None) -> float:
        """Log-likelihood, the mean for each row."""
        model, rows = self.model_, self._rows(X)
        return model.log_likelihood(rows, lengths) / max(len(rows), 1)

    def forecast(self, horizon: int, X: ArrayLike | None = None) -> Forecast:
        """What is expected 1, 2, …, ``horizon`` steps after the last row that was learned from.

        ``X``, of shape (horizon, d), holds what is known of these rows already, NaN where nothing is.
        """
        return self.model_.forecast(horizon, self.filtered_proba_, X)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that is known to a file, from which ``hmmstream.load`` makes it again and continues bit for bit."""
        checkpoint.save(self, path)

    def _document(self) -> dict[str, Any]:
        """What a file holds of an estimator: its settings, and of what was learned the names in ``_learned``."""
        learned = {name: self.__dict__[name] for name in self._learned if name in self.__dict__}
        if "feature_names_in_" in self.__dict__:
            learned["feature_names_in_"] = self.feature_names_in_.tolist()
        return {**self.get_params(deep=False), **learned}

    @classmethod
    def _restored(cls, document: dict[str, Any]) -> Self:
        """The estimator of such a document."""
        estimator = cls(**{name: document.pop(name) for name in cls._get_param_names()})
        estimator._check_settings()
        if not document.keys() <= {*cls._learned, "feature_names_in_"}:
            raise ValueError(f"it says more than a {cls.__name__} knows")
        if "feature_names_in_" in document:
            names = document["feature_names_in_"]
            if len(names) != document["n_features_in_"] or not all(isinstance(name, str) for name in names):
                raise ValueError("its names of features are none")
            document["feature_names_in_"] = np.array(names, dtype=object)
        estimator.__dict__.update(document)
        estimator._check_learned()
        return estimator

    def _check_learned(self) -> None:
        """Refuse what was learned if it does not fit together: each estimator knows how."""

    def _check_features(self, emission: Emission) -> None:
        if self.__dict__.get("n_features_in_", emission.n_columns) != emission.n_columns:
            raise ValueError("its number of features is not that of its model")

    # --- pictures ---------------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str] | None:
        names = self.__dict__.get("feature_names_in_")
        return None if names is None else list(names)

    def _drawn(self, X: Any) -> FloatArray:
        """``X`` as a matrix. Arrays have no names to check."""
        return matrix(X) if type(X) is np.ndarray else self._rows(X)

    def plot_transitions(self, ax: Axes | None = None) -> Axes:
        """Draw the transition matrix, on axes or on a new figure, ``ax.figure``: see :mod:`hmmstream.plotting`."""
        return plotting.plot_transitions(self.model_, ax)

    def plot_emissions(self, X: ArrayLike | None = None, feature: int = 0, ax: Axes | None = None) -> Axes:
        """Draw what each state emits in one feature, over the histogram of ``X``."""
        name = self._names[feature] if self._names else None
        return plotting.plot_emissions(self.model_, None if X is None else self._drawn(X), feature, name, ax)

    def plot_states(self, X: ArrayLike, axes: Iterable[Axes] | None = None) -> list[Axes]:
        """Draw rows in the colours of their most probable states, and the probabilities beneath. Causal."""
        rows = self._drawn(X)
        return plotting.plot_states(rows, self.model_.filter(rows), names=self._names, axes=axes)

    def plot(self, X: ArrayLike | None = None) -> Figure:
        """Draw all that is known on one page, with the rows of ``X``; ``plotting.save`` writes it to a file."""
        return plotting.picture(self.model_, None if X is None else self._drawn(X), self._names)

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
        if name.endswith("_") and not name.startswith("_") and name not in ("n_features_in_", "feature_names_in_"):
            if name in ("model_", "filtered_proba_"):
                raise NotFittedError(
                    f"this {type(self).__name__} has learned nothing yet: call fit or partial_fit first"
                )
            found = getattr(type(self), name, None)
            if isinstance(found, property) and found.fget is not None:
                return found.fget(self)  # it has failed, and says why
            # means_, covars_, rates_, probs_: whatever the emission family calls its values
            emission = self.model_.emission
            if name[:-1] in emission.value_names:
                return getattr(emission, name[:-1])
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
