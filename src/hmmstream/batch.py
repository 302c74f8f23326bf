"""BatchHMM: maximum likelihood by EM on a whole record, as a scikit-learn estimator."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import inference, transitions
from hmmstream.arrays import FloatArray, is_integer, matrix
from hmmstream.em import EM, Fit, Method
from hmmstream.emissions import FAMILIES, Emission
from hmmstream.estimator import HMMEstimator
from hmmstream.inference import Record
from hmmstream.model import HMM
from hmmstream.parameters import Start
from hmmstream.starts import start_model
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
        Where EM starts from. "auto" divides the rows into clusters by k-means.
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
        Log-likelihood of the start, and after each iteration. It never decreases.
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
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: Any = None, *, lengths: ArrayLike | None = None) -> Self:
        """Fit the model to the rows of ``X``; with ``lengths``, to independent sequences of these lengths."""
        self._check_settings()
        rows = matrix(X)
        if not len(rows):
            raise ValueError("X has no rows: there is nothing to fit")
        emission = self._explicit_start().emission if isinstance(self.init, HMM) else self._family(rows)
        sized = emission if emission.has_values else emission.sized(self.n_components, rows.shape[1])
        data = inference.record(sized, rows, lengths)
        best: Fit | None = None
        for at in range(self.n_init):
            fit = self._climb(self._start(emission, data, at), data)
            if best is None or fit.history[-1] > best.history[-1]:
                best = fit
        assert best is not None
        self.model_ = best.model
        self.history_ = np.array(best.history)
        self.log_likelihood_ = best.history[-1]
        self.converged_ = best.converged
        self.n_iter_ = len(best.history) - 1
        self.n_features_in_ = best.model.n_features
        self.filtered_proba_ = best.filtered_proba
        return self

    def _check_settings(self) -> None:
        for name in ("n_components", "n_init"):
            if not is_integer(getattr(self, name)) or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a positive integer, got {getattr(self, name)!r}")
        if not is_integer(self.n_iter) or self.n_iter < 0:
            raise ValueError(f"n_iter must be an integer that is not negative, got {self.n_iter!r}")
        if not isinstance(self.tol, int | float) or math.isnan(self.tol):
            raise ValueError(f"tol must be a number, got {self.tol!r}")
        if self.random_state is not None and not is_integer(self.random_state):
            raise ValueError(f"random_state must be an integer or None, got {self.random_state!r}")
        if isinstance(self.init, HMM) and self.n_init > 1:
            raise ValueError(f"n_init is {self.n_init}, but there is only one start: init")

    def _family(self, X: FloatArray) -> Emission:
        """The emission family, if not by an explicit start."""
        if isinstance(self.emission, Emission):
            return self.emission
        if self.emission not in FAMILIES:
            raise ValueError(f"emission must be one of {sorted(FAMILIES)} or an Emission object, got {self.emission!r}")
        return FAMILIES[self.emission].for_data(X)

    def _start(self, emission: Emission, data: Record, at: int) -> HMM:
        """The start number ``at``."""
        if isinstance(self.init, HMM):
            return self._explicit_start()
        if self.init != "auto":
            raise ValueError(f"init must be 'auto' or an HMM with its values, got {self.init!r}")
        rng = np.random.default_rng(None if self.random_state is None else [self.random_state, at])
        transition = transitions.resolve(self.transition)
        return start_model(emission, self.n_components, transition, data, rng, first=at == 0)

    def _climb(self, start: HMM, data: Record) -> Fit:
        em = EM(
            start,
            data,
            method=self.method,
            start_kind=self.start,
            with_first=self.with_first,
            n_jobs=self.n_jobs,
        )
        return em.run(self.n_iter, self.tol, self.verbose)

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
