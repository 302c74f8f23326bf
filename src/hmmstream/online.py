"""OnlineHMM: the learner as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError

from hmmstream.arrays import FloatArray
from hmmstream.averaging import Averaging
from hmmstream.emissions import Emission
from hmmstream.estimator import HMMEstimator
from hmmstream.learner import Learner, Statistic
from hmmstream.model import HMM
from hmmstream.schedule import Power, Step
from hmmstream.transitions import Transition

DEFAULT_STEP = Power(0.6)


class OnlineHMM(HMMEstimator):
    """Hidden Markov model learned from a stream: one pass, constant memory, always up to date.

    Cappé's online EM algorithm. At every moment ``model_`` is the current model and ``filtered_proba_`` the probability
    of each hidden state, from the observations so far and nothing else.

    Parameters
    ----------
    n_components : int
        Number of hidden states; an explicit ``init`` decides it.
    emission : str or Emission
        Family of the observations; an explicit ``init`` decides it.
    transition : "full", "independent" or a Transition object
        Structure of the transition matrix. Left at "full", an explicit ``init`` decides it.
    init : HMM
        Where learning starts from.
    step : Power, Constant, Harmonic, TwoPhase or a function n -> gamma
        Weight of the n-th observation.
    averaging : "auto", None or Polyak(start)
        What ``model_`` reports. "auto" averages the statistic and needs no tuning; None reports the raw iterate.
    n_min : int
        The first new parameters come with the observation of index n_min + 1. ``math.inf`` freezes the parameters.
    update_every : int
        M-step only at every observation whose index is a multiple of this.
    engine : "auto" or "dense"
        How the statistic is computed.
    random_state : int or None
        Not used by an explicit ``init``.

    Attributes
    ----------
    model_ : HMM
        The model to use (averaged). Its values are also ``transmat_``, ``startprob_``, and those of the emission:
        ``means_`` and ``covars_``, or ``rates_``, or ``probs_``.
    last_model_ : HMM
        The raw iterate.
    filtered_proba_ : (m,)
        Probability of each state now.
    n_samples_seen_ : int
    log_likelihood_ : float
        Sum of the log predictive densities of all observations.
    statistic_ : Statistic
        The sufficient statistic S.

    Examples
    --------
    >>> from hmmstream import HMM, Gaussian, OnlineHMM
    >>> world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0, 1], covars=0.5))
    >>> guess = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2))
    >>> X, states = world.sample(20_000, random_state=1)
    >>> hmm = OnlineHMM(init=guess).partial_fit(X)
    >>> hmm.n_samples_seen_
    20000
    >>> hmm.transmat_.round(1).tolist()
    [[0.9, 0.1], [0.3, 0.7]]
    """

    def __init__(
        self,
        n_components: int = 2,
        emission: str | Emission = "gaussian",
        *,
        transition: str | Transition = "full",
        init: str | HMM = "auto",
        step: Step = DEFAULT_STEP,
        averaging: Averaging | str = "auto",
        n_min: float = 20,
        update_every: int = 1,
        engine: str = "auto",
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.emission = emission
        self.transition = transition
        self.init = init
        self.step = step
        self.averaging = averaging
        self.n_min = n_min
        self.update_every = update_every
        self.engine = engine
        self.random_state = random_state

    # --- learning ---------------------------------------------------------------------------------------------------

    def partial_fit(self, X: ArrayLike, y: Any = None, *, lengths: ArrayLike | None = None) -> Self:
        """Learn from the rows of ``X``, which continue the stream.

        With ``lengths``, X is made of whole sequences of these lengths: each starts afresh, and the last one has ended.
        """
        learner = self._current()
        learner.learn(X, lengths)
        self._learner = learner
        return self

    def fit(self, X: ArrayLike, y: Any = None, *, lengths: ArrayLike | None = None) -> Self:
        """Forget everything and learn from the rows of ``X``, in one pass."""
        learner = self._new_learner()
        learner.learn(X, lengths)
        self._learner = learner
        return self

    def learn_one(self, x: Any) -> Self:
        """Learn from one observation: the fast lane."""
        learner = self._current()
        learner.learn_one(x)
        self._learner = learner
        return self

    def follow(self, X: ArrayLike, y: Any = None, *, lengths: ArrayLike | None = None) -> FloatArray:
        """Learn from the rows of ``X`` and return each row's state probabilities as they stood at that row: (n, m)."""
        learner = self._current()
        proba = learner.follow(X, lengths)
        self._learner = learner
        return proba

    def end_sequence(self) -> Self:
        """Say that the next observation starts a new, independent sequence."""
        self._fitted().end_sequence()
        return self

    def freeze(self) -> Self:
        """Hold the parameters: observations still move the filter and the statistic."""
        self._learner = self._current()
        self._learner.freeze()
        return self

    def unfreeze(self) -> Self:
        """Let the parameters follow the statistic again."""
        self._learner = self._current()
        self._learner.unfreeze()
        return self

    def reset(self) -> Self:
        """Forget everything; the next observation is the first."""
        self.__dict__.pop("_learner", None)
        return self

    def _current(self) -> Learner:
        """The learner at work, or a new one; whoever learns with it keeps it, unless that failed."""
        return self.__dict__.get("_learner") or self._new_learner()

    def _new_learner(self) -> Learner:
        if self.engine not in ("auto", "dense"):
            raise ValueError(f"engine must be 'auto' or 'dense', got {self.engine!r}")
        return Learner(
            self._start(), step=self.step, averaging=self.averaging, n_min=self.n_min, update_every=self.update_every
        )

    def _start(self) -> HMM:
        if self.init == "auto":
            raise ValueError(
                "init='auto' is not available yet: pass a model to start from, "
                "for example init=HMM(startprob, transmat, Gaussian(means=..., covars=...))"
            )
        return self._explicit_start()

    # --- what has been learned --------------------------------------------------------------------------------------

    def _fitted(self) -> Learner:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("nothing has been learned yet: call partial_fit, learn_one or fit first")
        return self._learner

    @property
    def model_(self) -> HMM:  # type: ignore[override]  # computed when asked for
        return self._fitted().model

    @property
    def last_model_(self) -> HMM:
        return self._fitted().last_model

    @property
    def filtered_proba_(self) -> FloatArray:  # type: ignore[override]  # computed when asked for
        return self._fitted().filtered_proba

    @property
    def n_samples_seen_(self) -> int:
        return self._fitted().n_samples_seen

    @property
    def n_features_in_(self) -> int:
        return self._fitted().start.n_features

    @property
    def log_likelihood_(self) -> float:
        return self._fitted().log_likelihood

    @property
    def statistic_(self) -> Statistic:
        return self._fitted().statistic

    def __sklearn_is_fitted__(self) -> bool:
        return "_learner" in self.__dict__ and self._learner.n_samples_seen > 0
