"""OnlineHMM: the learner as a scikit-learn estimator."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError

from hmmstream import inference, information, plotting, transitions
from hmmstream.arrays import FloatArray, is_integer, matrix
from hmmstream.averaging import Averaging
from hmmstream.background import SecondProcess
from hmmstream.detection import Change
from hmmstream.emissions import Emission
from hmmstream.estimator import HMMEstimator
from hmmstream.journal import Journal
from hmmstream.learner import Learner, Peek, Statistic
from hmmstream.model import HMM, Forecast
from hmmstream.parameters import Parameters
from hmmstream.priors import Prior
from hmmstream.schedule import Power, Schedule, Step
from hmmstream.selfstart import SelfStart
from hmmstream.transitions import Transition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_STEP = Power(0.6)


class NoStandardErrors(ValueError, AttributeError):
    """There is nothing that standard errors could be computed from."""


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
    init : "auto" or HMM
        Where learning starts from. "auto" gathers the first observations, at most 32,768, and finds start values from
        them: there is a model from the first observation on, and a better one each time that their number has doubled.
    step : Power, "track" or Track, Constant, Harmonic, TwoPhase or a function n -> gamma
        Weight of the n-th observation. "track" is for worlds that change: old observations are forgotten, and changes
        are noticed.
    averaging : "auto", "refined", StatisticAverage(), None or Polyak(start)
        What ``model_`` reports. "auto" is as accurate as maximum likelihood, in one pass and with nothing to tune, by a
        second stage (docs/accuracy.md); with more than 64 free parameters, where that would take long, it averages the
        statistic. "refined" has the second stage with up to 320. StatisticAverage() is online EM alone, several times
        as fast. None: the raw iterate.
    n_min : int
        The first new parameters come with the observation of index n_min + 1. ``math.inf`` freezes the parameters.
    update_every : int
        M-step only at every observation whose index is a multiple of this.
    prior : Prior or None
        What is believed of the parameters before anything was seen, as imagined observations.
    engine : "auto", "dense" or "window"
        How the statistic is computed. "dense" is the paper's recursion; its cost for a full transition matrix grows as
        m⁴. "window" has the same result to rounding at m² times the number of observations that the chain remembers
        its state for, once for each M-step: with ``update_every`` of about m at m². "auto" takes the faster.
    random_state : int or None
        For ``init="auto"``.

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
    changed_ : list of Change
        With ``step="track"``, the changes of the world that were noticed: after how many observations (``at``), and
        ``since`` when predictions had become worse.
    standard_errors_ : dict
        Standard error of every parameter; ``conf_int`` has confidence intervals.

    Examples
    --------
    >>> from hmmstream import HMM, Gaussian, OnlineHMM
    >>> world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0, 1], covars=0.5))
    >>> guess = HMM([0.5, 0.5], [[0.7, 0.3], [0.5, 0.5]], Gaussian("tied", means=[-0.5, 0.5], covars=2))
    >>> X, states = world.sample(20_000, random_state=1)
    >>> hmm = OnlineHMM(init=guess).partial_fit(X)
    >>> hmm.n_samples_seen_
    20000
    >>> hmm.transmat_.round(2).tolist()
    [[0.95, 0.05], [0.29, 0.71]]
    >>> hmm.standard_errors_["transmat"].round(2).tolist()
    [[0.0, 0.0], [0.02, 0.02]]
    """

    _learned: ClassVar[tuple[str, ...]] = ("_learner", "journal_", "n_features_in_")
    _learner: Learner | SelfStart

    def __init__(
        self,
        n_components: int = 2,
        emission: str | Emission = "gaussian",
        *,
        transition: str | Transition = "full",
        init: str | HMM = "auto",
        step: Step | str = DEFAULT_STEP,
        averaging: Averaging | str = "auto",
        n_min: float = 20,
        update_every: int = 1,
        prior: Prior | None = None,
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
        self.prior = prior
        self.engine = engine
        self.random_state = random_state

    # --- learning ---------------------------------------------------------------------------------------------------

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from the rows of ``X``, which continue the stream.

        Parameters
        ----------
        X : (n, d), or (n,) for one feature
            NaN where missing.
        y : (n,)
            The state of each row where it is known, -1 where not.
        lengths : integers that sum to n
            X is made of whole sequences of these lengths: each starts afresh, and the last one has ended.
        sample_weight : (n,)
            How much each row counts in what is learned, at most a million; one of weight 0 only moves the filter.
        """
        if "journal_" in self.__dict__:
            self.follow(X, y, lengths=lengths, sample_weight=sample_weight)
            return self
        learner, rows = self._current(), self._rows(X)
        learner.learn(rows, lengths, states=self._states(y, len(rows)), weights=sample_weight)
        return self._keep(learner, X)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        n_passes: int = 1,
    ) -> Self:
        """Forget everything and learn from the rows of ``X``, in one pass or in several: see ``partial_fit``."""
        if not is_integer(n_passes) or n_passes < 1:
            raise ValueError(f"n_passes must be a positive integer, got {n_passes!r}")
        rows = matrix(X)
        if not len(rows):
            raise ValueError("X has no rows: there is nothing to learn from")
        if sample_weight is not None and not np.asarray(sample_weight).any():
            raise ValueError("all sample weights are zero: there is nothing to learn from")
        learner = self._new_learner()
        states = self._states(y, len(rows))
        for at in range(n_passes):
            if at > 0:
                learner.end_sequence()
            if "journal_" in self.__dict__:
                proba = learner.follow(rows, lengths, states=states, weights=sample_weight)
            else:
                learner.learn(rows, lengths, states=states, weights=sample_weight)
        self.reset()
        self._keep(learner, X)
        if "journal_" in self.__dict__:
            self.journal_.note(lambda: self.model_, self.n_samples_seen_, rows, proba)
        return self

    def learn_one(self, x: Any) -> Self:
        """Learn from one observation: the fast lane."""
        if "journal_" in self.__dict__:
            return self.partial_fit(np.reshape(np.asarray(x), (1, -1)))
        learner = self._current()
        learner.learn_one(x)
        if learner is not self.__dict__.get("_learner") or isinstance(learner, SelfStart):
            self._keep(learner, np.reshape(np.asarray(x), (1, -1)))
        return self

    def follow(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> FloatArray:
        """Learn from the rows of ``X`` and return each row's state probabilities as they stood at that row: (n, m).

        The arguments are those of ``partial_fit``.
        """
        learner, rows = self._current(), self._rows(X)
        proba = learner.follow(rows, lengths, states=self._states(y, len(rows)), weights=sample_weight)
        self._keep(learner, X)
        if "journal_" in self.__dict__ and self.__sklearn_is_fitted__():
            self.journal_.note(lambda: self.model_, self.n_samples_seen_, rows, proba)
        return proba

    def keep_journal(self) -> Self:
        """Take notes from now on, in constant memory, for ``standard_errors`` and pictures of how it went.

        They come at the ends of chunks. Each chunk takes a little longer to learn, ``learn_one`` much longer.
        """
        self.journal_ = self.__dict__.get("journal_", Journal())
        return self

    def end_sequence(self) -> Self:
        """Say that the next observation starts a new, independent sequence."""
        self._fitted()
        self._learner.end_sequence()
        return self

    def peek(self, x: Any) -> Peek:
        """What ``learn_one(x)`` would find: the state probabilities, and the logarithm of the predictive density of x.

        By the raw iterate, as ``filtered_proba_`` and ``log_likelihood_`` are. Nothing is learned.
        """
        return self._current().peek(x)

    def expect(self) -> Forecast:
        """What is expected of the next observation: by the raw iterate and at once, where ``forecast`` averages."""
        return self._fitted().expect()

    def search_in(self, background: SecondProcess) -> Self:
        """Look for a start in another process, so that no observation waits for it. What is learned is the same.

        Meanwhile answers come from the start before, so that they depend on how long a look takes.
        """
        self._learner = self._current()
        if isinstance(self._learner, SelfStart):
            self._learner.background = background
        return self

    @property
    def is_searching(self) -> bool:
        """Whether a look for a start is going on in another process."""
        learner = self.__dict__.get("_learner")
        return isinstance(learner, SelfStart) and learner.is_searching

    def check(self, X: ArrayLike) -> None:
        """Refuse what ``partial_fit`` would refuse, and learn nothing."""
        self._current().check(self._rows(X))

    def add_features(self, emission: Emission) -> Self:
        """Let new features join, as if they had been there from the first observation on, and missing.

        Parameters
        ----------
        emission : Emission with values
            What the new features look like in each state, of the same family as those that are there. Its features must
            be independent given the state, as those of ``Gaussian("diag")`` are.
        """
        self._fitted()
        self._learner.add_features(emission)
        self.n_features_in_ += emission.n_features
        self.__dict__.pop("feature_names_in_", None)  # the new ones have no names
        return self

    def relabel(self, order: ArrayLike) -> Self:
        """Put the states in another order: state i is now what state ``order[i]`` was.

        If the model was still looking for its start, it stays with the present one.
        """
        learner = self._fitted()
        learner.relabel(order)
        self._learner = learner
        if "journal_" in self.__dict__:
            self.journal_.relabel(np.asarray(order))
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
        for name in ("_learner", "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        if "journal_" in self.__dict__:
            self.journal_ = Journal()
        return self

    def _current(self) -> Learner | SelfStart:
        """The learner at work, or a new one; whoever learns with it keeps it, unless that failed."""
        return self.__dict__.get("_learner") or self._new_learner()

    def _keep(self, learner: Learner | SelfStart, X: Any) -> Self:
        """Stay with a learner that has learned from X."""
        if "n_features_in_" not in self.__dict__:
            self._note_columns(X)
        if isinstance(learner, SelfStart) and learner.is_full:
            assert learner.learner is not None
            learner = learner.learner
        self._learner = learner
        return self

    def _new_learner(self) -> Learner | SelfStart:
        self._check_settings()
        settings: dict[str, Any] = {
            "step": self.step,
            "averaging": self.averaging,
            "n_min": self.n_min,
            "update_every": self.update_every,
            "engine": self.engine,
        }
        if isinstance(self.init, HMM):
            return Learner(self._explicit_start(), prior=self.prior, **settings)
        transition = transitions.resolve(self.transition)
        return SelfStart(self.emission, self.n_components, transition, self.random_state, self.prior, **settings)

    # --- what has been learned --------------------------------------------------------------------------------------

    def _fitted(self) -> Learner:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("nothing has been learned yet: call partial_fit, learn_one or fit first")
        learner = self._learner.learner if isinstance(self._learner, SelfStart) else self._learner
        assert learner is not None
        return learner

    def standard_errors(self, *, robust: bool = False) -> dict[str, FloatArray]:
        """Standard error of every parameter of ``model_``, by name and in the shape of its values, from the same pass.

        Besides the parameters there are ``dwell_times``, how many observations a state lasts on average, and
        ``stationary``, how often it is visited in the long run.

        Parameters
        ----------
        robust : bool
            Errors that hold also where no model of this kind is true: the sandwich.

        Notes
        -----
        They come from the second stage. Where there is none, they need ``keep_journal``: then the
        information of a sample of the stream, times the number of rows seen, tells how well these determine the
        parameters at best. Estimates are nearly that good: two errors hold the truth in about nine cases of ten.
        """
        return information.named_errors(self._spread(robust))

    def conf_int(self, level: float = 0.95, *, robust: bool = False) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Confidence interval of every parameter, by name: lower and upper ends in the shape of its values.

        The names are those of ``standard_errors``. Intervals of positive numbers are symmetric in their logarithm,
        those of probabilities in their logit.
        """
        return information.named_intervals(self._spread(robust), level)

    @property
    def standard_errors_(self) -> dict[str, FloatArray]:
        """As ``standard_errors()``; where there are none, there is no such attribute."""
        try:
            return self.standard_errors()
        except AttributeError:  # nothing was learned
            raise
        except (ValueError, NotImplementedError) as error:
            raise NoStandardErrors(str(error)) from None

    def _spread(self, robust: bool) -> information.Spread:
        learner, has_journal = self._fitted(), "journal_" in self.__dict__
        refinement = learner.refinement
        if refinement is not None and (refinement.is_active or robust or not has_journal):
            return refinement.spread(learner.model, robust=robust)
        if robust:
            raise ValueError("robust standard errors come with the second stage: averaging='auto' or 'refined'")
        if not has_journal:
            raise ValueError(
                "standard errors come with the second stage, averaging='auto' or 'refined', or from a sample of the "
                "stream: call keep_journal() before learning"
            )
        model, journal = self.model_, self.journal_
        anywhere = HMM(model.stationary_distribution(), model.transmat, model.emission, model.transition)
        data = inference.record(anywhere.emission, journal.sample, journal.sample_lengths)
        parameters = Parameters(anywhere)
        with np.errstate(all="ignore"):  # what is not a number is not positive definite
            matrix, on_edge = information.information(parameters, data, "outer", inference.Workers(1))
        step = self._fitted().step
        memory = step.memory if isinstance(step, Schedule) else math.inf
        n = min(self.n_samples_seen_, memory)
        return information.spread(parameters, matrix * (n / len(data)), on_edge)

    def plot_parameters(self, axes: Iterable[Axes] | None = None) -> list[Axes]:
        """Draw how the parameters came to their values, with bands of two standard errors; needs ``keep_journal``."""
        if "journal_" not in self.__dict__:
            raise ValueError("the way of the parameters was not noted: call keep_journal() before learning")
        return plotting.plot_parameters(self.journal_.n, self.journal_.values, self._errors_if_any(), axes=axes)

    def plot(self, X: ArrayLike | None = None) -> Figure:
        """Draw all that is known on one page, with the rows of ``X`` or those of the journal."""
        if "journal_" not in self.__dict__ or not len(self.journal_.recent):
            return super().plot(X)
        journal = self.journal_
        rows = journal.sample if X is None else self._drawn(X)
        path = (journal.n, journal.values, self._errors_if_any()) if len(journal.n) else None
        recent = (journal.recent, journal.recent_proba, self.n_samples_seen_ - len(journal.recent))
        return plotting.page(self.model_, X=rows, recent=recent, path=path, names=self._names)

    def _errors_if_any(self) -> dict[str, FloatArray] | None:
        try:
            return self.standard_errors()
        except (ValueError, NotImplementedError):  # the rows do not determine the parameters, or a family has none
            return None

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
    def changed_(self) -> list[Change]:
        return self._fitted().changes

    @property
    def log_likelihood_(self) -> float:
        return self._fitted().log_likelihood

    @property
    def statistic_(self) -> Statistic:
        return self._fitted().statistic

    def _check_learned(self) -> None:
        learner, journal = self.__dict__.get("_learner"), self.__dict__.get("journal_", Journal())
        if not isinstance(learner, Learner | SelfStart | None) or not isinstance(journal, Journal):
            raise ValueError("it has learned nothing that is known here")
        journal.check()
        if isinstance(learner, SelfStart) and learner.n_components != self.n_components:
            raise ValueError("it has another number of states")
        if self.__sklearn_is_fitted__():
            start = self._fitted().start
            self._check_features(start.emission)
            if journal.recent_proba.size and journal.recent_proba.shape[1] != start.n_components:
                raise ValueError("its journal is about another model")

    def __sklearn_is_fitted__(self) -> bool:
        learner = self.__dict__.get("_learner")
        if isinstance(learner, SelfStart):
            return learner.learner is not None
        return learner is not None and learner.n_samples_seen > 0
