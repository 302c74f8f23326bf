"""BatchHMM: maximum likelihood by EM on a whole record, as a scikit-learn estimator."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import inference, transitions
from hmmstream.arrays import FloatArray, is_integer, matrix
from hmmstream.em import EM, Fit, Method
from hmmstream.emissions import Emission, specification
from hmmstream.estimator import HMMEstimator
from hmmstream.model import HMM
from hmmstream.parameters import Start
from hmmstream.priors import Prior
from hmmstream.record import Record
from hmmstream.starts import canonical_order, draw_start, find_start
from hmmstream.transitions import Transition


class BatchHMM(HMMEstimator):
    """Hidden Markov model fitted to a whole record by the EM algorithm.

    Parameters
    ----------
    n_components : int
        Number of hidden states; an explicit ``init`` decides it.
    emission : str or Emission
        Family of the observations; an explicit ``init`` decides it.
    transition : "full", "independent" or a Transition object
        Structure of the transition matrix. Left at "full", an explicit ``init`` decides it.
    init : "auto" or HMM
        Where EM starts from. "auto" finds start values from the data; states are then numbered by their means.
    n_iter : int
        Largest number of iterations.
    tol : float
        EM stops when an iteration gains less than this in log-likelihood.
    method : "forward-backward" or "recursive"
        How the expectation is computed. The second is the paper's recursion: one pass, in memory that does not grow
        with the record; it costs more with many states.
    n_init : int
        Number of starts, of which the best end is kept; more than one needs ``init="auto"``.
    start : "free", "fixed" or "stationary"
        The distribution of first states: estimated, kept as in ``init``, or that of the chain in the long run.
    with_first : bool
        Whether the first row of each sequence takes part in estimating the emissions. False is how the paper's
        recursion weights it; this is not exactly EM, and the likelihood need not increase.
    prior : Prior or None
        What is believed of the parameters before anything was seen, as imagined observations. The fit then is the most
        probable model rather than the most likely one, and ``history_`` may decrease.
    n_jobs : int
        Number of cores that sequences are spread over; -1 for all. The result does not depend on it.
    random_state : int or None
        For ``init="auto"``.
    verbose : bool
        Print the log-likelihood after each iteration.

    Attributes
    ----------
    model_ : HMM
        The fitted model. Its values are also ``transmat_``, ``startprob_``, and those of the emission: ``means_`` and
        ``covars_``, or ``rates_``, or ``probs_``.
    history_ : (n_iter_ + 1,)
        Log-likelihood of the start, and after each iteration. Without a prior and weights it never decreases.
    log_likelihood_ : float
        The last of them: that of ``model_``.
    converged_ : bool
    n_iter_ : int
    filtered_proba_ : (m,)
        Probability of each state at the last row.

    Examples
    --------
    >>> from hmmstream import HMM, BatchHMM, Gaussian
    >>> world = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0, 1], covars=0.5))
    >>> X, states = world.sample(20_000, random_state=1)
    >>> hmm = BatchHMM(2, Gaussian("tied"), random_state=0).fit(X)
    >>> hmm.means_.round(1).tolist()
    [[-0.0], [1.0]]
    """

    _learned: ClassVar[tuple[str, ...]] = (
        "model_",
        "history_",
        "log_likelihood_",
        "converged_",
        "n_iter_",
        "filtered_proba_",
        "n_features_in_",
    )

    def __init__(
        self,
        n_components: int = 2,
        emission: str | Emission = "gaussian",
        *,
        transition: str | Transition = "full",
        init: str | HMM = "auto",
        n_iter: int = 100,
        tol: float = 1e-6,
        method: Method = "forward-backward",
        n_init: int = 1,
        start: Start = "free",
        with_first: bool = True,
        prior: Prior | None = None,
        n_jobs: int = -1,
        random_state: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.emission = emission
        self.transition = transition
        self.init = init
        self.n_iter = n_iter
        self.tol = tol
        self.method = method
        self.n_init = n_init
        self.start = start
        self.with_first = with_first
        self.prior = prior
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        lengths: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model to the rows of ``X``.

        Parameters
        ----------
        X : (n, d), or (n,) for one feature
            NaN where missing.
        y : (n,)
            The state of each row where it is known, -1 where not.
        lengths : integers that sum to n
            X is made of independent sequences of these lengths.
        sample_weight : (n,)
            How much each row, and the transition to it, counts in what is estimated.
        """
        self._check_settings()
        rows = matrix(X)
        if not len(rows):
            raise ValueError("X has no rows: there is nothing to fit")
        explicit = self._explicit_start() if isinstance(self.init, HMM) else None
        emission = specification(self.emission, rows) if explicit is None else explicit.emission
        sized = emission if emission.has_values else emission.sized(self.n_components, rows.shape[1])
        data = inference.record(sized, rows, lengths, self._states(y, len(rows)), sample_weight)
        if data.weights is not None and not data.weights.any():
            raise ValueError("all sample weights are zero: there is nothing to learn from")
        best: Fit | None = None
        for at in range(self.n_init):
            fit = self._climb(explicit or self._start(emission, data, at), data)
            if best is None or fit.history[-1] > best.history[-1]:
                best = fit
        assert best is not None
        if data.states is not None and best.history[0] == -math.inf:
            raise ValueError(
                "y cannot be: the model that EM starts from has no such transition, or no such observation"
            )
        self._take_over(best)
        self._note_columns(X)
        if explicit is None and not emission.has_values and data.states is None:
            self._put_in_order()
        return self

    def _take_over(self, fit: Fit) -> None:
        """What EM came to is what was fitted."""
        self.model_ = fit.model
        self.history_ = np.array(fit.history)
        self.log_likelihood_ = fit.history[-1]
        self.converged_ = fit.converged
        self.n_iter_ = len(fit.history) - 1
        self.filtered_proba_ = fit.filtered_proba

    def relabel(self, order: ArrayLike) -> Self:
        """Put the states in another order: state i is now what state ``order[i]`` was."""
        self.model_ = self.model_.relabel(order)
        self.filtered_proba_ = self.filtered_proba_[np.asarray(order)]
        return self

    def _put_in_order(self) -> None:
        """Number the states by their means, or as the prior has them, if the structure allows for it."""
        order = canonical_order(self.model_, self.prior)
        if order is not None:
            self.relabel(order)

    def _check_settings(self) -> None:
        super()._check_settings()
        if not is_integer(self.n_init) or self.n_init < 1:
            raise ValueError(f"n_init must be a positive integer, got {self.n_init!r}")
        if not is_integer(self.n_iter) or self.n_iter < 0:
            raise ValueError(f"n_iter must be an integer that is not negative, got {self.n_iter!r}")
        if not isinstance(self.tol, int | float) or math.isnan(self.tol):
            raise ValueError(f"tol must be a number, got {self.tol!r}")
        if isinstance(self.init, HMM) and self.n_init > 1:
            raise ValueError(f"n_init is {self.n_init}, but there is only one start: init")

    def _start(self, emission: Emission, data: Record, at: int) -> HMM:
        """The start number ``at``: the first is the best of many, the others are left to chance."""
        rng = np.random.default_rng(None if self.random_state is None else [self.random_state, at])
        transition = transitions.resolve(self.transition)
        if at > 0:
            return draw_start(emission, self.n_components, transition, data, rng)
        return find_start(emission, self.n_components, transition, data, rng, self.prior)

    def _climb(self, start: HMM, data: Record) -> Fit:
        em = EM(start, data, **self._em_settings(), n_jobs=self.n_jobs)
        return em.run(self.n_iter, self.tol, self.verbose)

    def _em_settings(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "start_kind": self.start,
            "with_first": self.with_first,
            "prior": self.prior,
        }

    def _check_learned(self) -> None:
        if "model_" not in self.__dict__:
            return
        self._check_features(self.model_.emission)
        if self.filtered_proba_.shape != (self.model_.n_components,):
            raise ValueError("its probabilities are not those of its states")

    # --- how sure the model is --------------------------------------------------------------------------------------

    def standard_errors(
        self, X: ArrayLike, *, lengths: ArrayLike | None = None, kind: str = "observed"
    ) -> dict[str, FloatArray]:
        """Standard error of every parameter, given the record that the model was fitted to: see ``HMM``."""
        return self.model_.standard_errors(X, lengths, kind=kind, start=self.start, n_jobs=self.n_jobs)

    def conf_int(
        self, X: ArrayLike, *, lengths: ArrayLike | None = None, level: float = 0.95, kind: str = "observed"
    ) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Confidence interval of every parameter, given the record that the model was fitted to: see ``HMM``."""
        return self.model_.conf_int(X, lengths, level=level, kind=kind, start=self.start, n_jobs=self.n_jobs)

    def aic(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> float:
        """Akaike's criterion for this record. Smaller is better."""
        return self.model_.aic(X, lengths, start=self.start)

    def bic(self, X: ArrayLike, *, lengths: ArrayLike | None = None) -> float:
        """Schwarz's criterion for this record. Smaller is better."""
        return self.model_.bic(X, lengths, start=self.start)
