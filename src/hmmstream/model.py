"""HMM: a hidden Markov model with its values."""

from __future__ import annotations

from bisect import bisect_right
from math import log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import parameters, transitions
from hmmstream.arrays import (
    FloatArray,
    IntArray,
    are_distributions,
    frozen,
    is_integer,
    observations,
    permutation,
    thresholds,
)
from hmmstream.emissions import Emission
from hmmstream.parameters import Parameters
from hmmstream.transitions import Transition

if TYPE_CHECKING:
    from hmmstream.record import Record


class Forecast(NamedTuple):
    """What is expected 1, 2, …, horizon steps ahead."""

    states: FloatArray  # (horizon, m): probability of each state
    mean: FloatArray  # (horizon, d): of the observation
    variance: FloatArray  # (horizon, d): of the observation


def forecast_of(states: FloatArray, emission: Emission) -> Forecast:
    """What is expected to be observed, if states have these probabilities: (horizon, m)."""
    means, variances = emission.moments()
    mean = states @ means
    spread = np.einsum("hk,hkd->hd", states, (means - mean[:, np.newaxis]) ** 2)
    return Forecast(states, mean, states @ variances + spread)


class HMM:
    """A hidden Markov model with its values, and exact inference. It never changes.

    In all methods X is (n, d), or (n,) for one feature, with NaN where missing, and ``lengths`` splits it into
    independent sequences. Only what is called "smooth", "decode" or "sample_states" looks at rows after the one it is
    about.

    Parameters
    ----------
    startprob : (m,)
        Probability of each state at the first observation of a sequence.
    transmat : (m, m)
        ``transmat[i, j]`` is the probability of going from state i to state j.
    emission : Emission
        What is observed in each state, for example ``Gaussian("tied", means=[0, 1], covars=0.5)``.
    transition : "full", "independent" or a Transition object
        The structure that learning keeps: see ``Masked`` and ``Tied``.

    Examples
    --------
    >>> from hmmstream import HMM, Gaussian
    >>> model = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
    >>> X, states = model.sample(1000, random_state=0)
    >>> X.shape
    (1000, 1)
    """

    def __init__(
        self, startprob: ArrayLike, transmat: ArrayLike, emission: Emission, transition: str | Transition = "full"
    ) -> None:
        if not isinstance(emission, Emission) or not emission.has_values:
            raise ValueError(f"emission must be an emission family with its values, got {emission!r}")
        m = emission.n_components
        self.emission = emission
        self.startprob = frozen(startprob, "startprob")
        self.transmat = frozen(transmat, "transmat")
        self.transition = transitions.resolve(transition)
        for name, values, shape in (("startprob", self.startprob, (m,)), ("transmat", self.transmat, (m, m))):
            if values.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, as the emission has {m} states, got {values.shape}")
            if not are_distributions(values):
                raise ValueError(f"{name} must hold probabilities whose rows sum to 1, got {values.tolist()}")
        self.transition.check(self.transmat)
        self._complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_complete", False):
            raise AttributeError(f"an HMM never changes: make a new one with another {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"an HMM never changes: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return HMM, (self.startprob, self.transmat, self.emission, self.transition)

    @property
    def n_components(self) -> int:
        """Number of hidden states."""
        return self.emission.n_components

    @property
    def n_features(self) -> int:
        """Number of columns of an observation."""
        return self.emission.n_columns

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> tuple[Any, Any]:
        """Simulate ``n`` observations: (X of shape (n, d), hidden states of shape (n,))."""
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        rng = np.random.default_rng(random_state)
        states = np.empty(n, dtype=np.int64)
        row, moves = thresholds(self.startprob).tolist(), thresholds(self.transmat).tolist()
        for t, u in enumerate(rng.random(n).tolist()):
            states[t] = state = bisect_right(row, u)
            row = moves[state]
        return self.emission.sample(states, rng), states

    def relabel(self, order: ArrayLike) -> HMM:
        """The same model with its states in another order: state i of the new one is state ``order[i]`` of this.

        Examples
        --------
        >>> from hmmstream import HMM, Gaussian
        >>> model = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
        >>> model.relabel([1, 0]).transmat.tolist()
        [[0.7, 0.3], [0.05, 0.95]]
        """
        at = permutation(order, self.n_components)
        return HMM(
            self.startprob[at],
            self.transmat[np.ix_(at, at)],
            self.emission.with_rows(self.emission.rows()[at]),
            self.transition.relabel(at),
        )

    # --- inference --------------------------------------------------------------------------------------------------

    def _record(self, X: ArrayLike, lengths: ArrayLike | None) -> Record:
        from hmmstream import inference  # numba comes with it, which takes longer to import than all else

        return inference.record(self.emission, X, lengths)

    def log_likelihood(self, X: ArrayLike, lengths: ArrayLike | None = None) -> float:
        """Logarithm of the density of all observations; -inf if one of them was impossible."""
        from hmmstream import inference

        return inference.run(inference.log_likelihood, self, self._record(X, lengths))

    def log_predictive(self, X: ArrayLike, lengths: ArrayLike | None = None) -> FloatArray:
        """Logarithm of the density of each observation, given those before it: (n,). They sum to the log-likelihood."""
        from hmmstream import inference

        return inference.run(inference.log_predictive_densities, self, self._record(X, lengths))

    def filter(self, X: ArrayLike, lengths: ArrayLike | None = None) -> FloatArray:
        """Probability of each state at each row, given the rows up to it: (n, m). Causal."""
        from hmmstream import inference

        return inference.run(inference.filtered_probabilities, self, self._record(X, lengths))

    def smooth(self, X: ArrayLike, lengths: ArrayLike | None = None) -> FloatArray:
        """Probability of each state at each row, given all rows: (n, m)."""
        from hmmstream import inference

        return inference.run(inference.smoothed_probabilities, self, self._record(X, lengths))

    def smooth_pairs(self, X: ArrayLike, lengths: ArrayLike | None = None) -> FloatArray:
        """Probability of state i at the row before and j at this one, given all rows: (n, m, m); 0 at first rows."""
        from hmmstream import inference

        return inference.run(inference.pair_probabilities, self, self._record(X, lengths))

    def decode(self, X: ArrayLike, lengths: ArrayLike | None = None) -> tuple[float, IntArray]:
        """The most probable sequence of states (Viterbi): its log-probability together with X, and the states (n,)."""
        from hmmstream import inference

        return inference.run(inference.best_path, self, self._record(X, lengths))

    def sample_states(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        size: int | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> IntArray:
        """Draw sequences of states from their distribution given X: (n,), or (size, n)."""
        from hmmstream import inference

        data = self._record(X, lengths)
        uniform = np.random.default_rng(random_state).random((1 if size is None else size, len(data)))
        paths = inference.run(lambda work, data: inference.drawn_paths(work, data, uniform), self, data)
        return np.asarray(paths[0]) if size is None else paths

    def stationary_distribution(self) -> FloatArray:
        """The distribution of states that the chain keeps, and comes to in the long run."""
        return parameters.stationary(self.transmat)

    def dwell_times(self) -> FloatArray:
        """How many rows a visit to each state lasts on average: (m,); infinite if a state is never left.

        Examples
        --------
        >>> from hmmstream import HMM, Poisson
        >>> HMM([1.0, 0.0], [[0.9, 0.1], [0.25, 0.75]], Poisson([1.0, 5.0])).dwell_times().round(1).tolist()
        [10.0, 4.0]
        """
        leaving = 1.0 - np.diag(self.transmat)
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(leaving > 0.0, 1.0 / leaving, np.inf))

    def forecast(self, horizon: int, proba: ArrayLike | None = None, X: ArrayLike | None = None) -> Forecast:
        """What is expected 1, 2, …, ``horizon`` steps from now.

        Parameters
        ----------
        horizon : int
        proba : (m,)
            Probability of each state now, such as the last row of ``filter``. By default the start distribution.
        X : (horizon, d)
            What is known of these rows already, NaN where nothing is: each step is given what is known up to it.
        """
        if not (is_integer(horizon) and horizon >= 1):
            raise ValueError(f"horizon must be a positive integer, got {horizon!r}")
        now = self.startprob if proba is None else frozen(proba, "proba")
        if now.shape != (self.n_components,) or (now < 0.0).any() or not np.isclose(now.sum(), 1.0, rtol=0, atol=1e-8):
            raise ValueError(f"proba must hold {self.n_components} probabilities that sum to 1, got {now.tolist()}")
        if X is None:
            states = np.empty((horizon, self.n_components))
            for row in states:
                row[:] = now = now @ self.transmat
        else:
            known = observations(X, self.n_features)
            if len(known) != horizon:
                raise ValueError(f"X must have a row for each of the {horizon} steps, got {len(known)}")
            states = HMM(now @ self.transmat, self.transmat, self.emission, self.transition).filter(known)
        return forecast_of(states, self.emission)

    # --- what the data say about the parameters ---------------------------------------------------------------------

    def parameter_names(self, *, start: str = "fixed") -> list[str]:
        """The free parameters, in the order of ``score_vector``.

        Transition probabilities, then emission parameters, then those of the start if it is "free". Of probabilities
        that sum to 1 the last is not free; zeros of the structure are none.
        """
        vector = Parameters(self, start)
        return [vector.names[at] for at in vector.free()]

    def score_vector(
        self, X: ArrayLike, lengths: ArrayLike | None = None, *, start: str = "fixed", n_jobs: int = -1
    ) -> FloatArray:
        """Gradient of the log-likelihood by the free parameters (``parameter_names``), by Fisher's identity.

        ``start`` says what the start distribution is: "fixed", "free", or "stationary", that of the chain.
        """
        from hmmstream import inference, information

        vector = Parameters(self, start)
        score = information.score(vector, vector.values, self._record(X, lengths), inference.Workers(n_jobs))
        return np.asarray(score @ vector.directions())

    def score_increments(self, X: ArrayLike, lengths: ArrayLike | None = None, *, start: str = "fixed") -> FloatArray:
        """Gradient of each row's log predictive density by the free parameters, by the tangent filter: (n, p).

        Row t depends on the rows up to t alone. The rows sum to ``score_vector``.
        """
        from hmmstream import information

        vector, data = Parameters(self, start), self._record(X, lengths)
        directions = vector.directions()
        out = np.empty((len(data), directions.shape[1]))

        def fill(piece: slice, increments: FloatArray) -> None:
            out[piece] = increments @ directions

        information.visit_increments(vector, data, fill)
        return out

    def fisher_information(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        kind: str = "outer",
        start: str = "fixed",
        n_jobs: int = -1,
    ) -> FloatArray:
        """Information of X about the free parameters: a matrix whose inverse is the variance of good estimates.

        Parameters
        ----------
        kind : "outer" or "observed"
            The sum of outer products of ``score_increments``, or minus the second derivatives of the log-likelihood.
            The first takes one pass, the second four for each parameter; it is the better one for short records.
        """
        from hmmstream import inference, information

        vector, data = Parameters(self, start), self._record(X, lengths)
        matrix, _ = information.information(vector, data, kind, inference.Workers(n_jobs))
        directions = vector.directions()
        reduced = directions.T @ matrix @ directions
        return np.asarray(0.5 * (reduced + reduced.T))  # rounding left it a little less than symmetric

    def standard_errors(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        kind: str = "observed",
        start: str = "fixed",
        n_jobs: int = -1,
    ) -> dict[str, FloatArray]:
        """Standard error of every parameter of a model that was fitted to X, by name and in the shape of its values.

        0 where the structure has a zero; NaN for a parameter on the edge of what it may be (a probability of 0), which
        is taken as known for the others.

        Examples
        --------
        >>> from hmmstream import HMM, Gaussian
        >>> model = HMM([0.5, 0.5], [[0.95, 0.05], [0.3, 0.7]], Gaussian("tied", means=[0.0, 1.0], covars=0.5))
        >>> X, _ = model.sample(40_000, random_state=0)
        >>> model.standard_errors(X)["means"].round(2).tolist()
        [[0.01], [0.02]]
        """
        vector, errors = self._standard_errors(X, lengths, kind, start, n_jobs)
        return vector.by_name(errors)

    def conf_int(
        self,
        X: ArrayLike,
        lengths: ArrayLike | None = None,
        *,
        level: float = 0.95,
        kind: str = "observed",
        start: str = "fixed",
        n_jobs: int = -1,
    ) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Confidence interval of every parameter, by name: lower and upper ends in the shape of its values.

        Intervals of positive numbers are symmetric in their logarithm, those of probabilities in their logit.
        """
        from hmmstream import information

        vector, errors = self._standard_errors(X, lengths, kind, start, n_jobs)
        ends = information.confidence_intervals(vector, errors, level)
        low, high = (vector.by_name(end) for end in ends)
        return {name: (low[name], high[name]) for name in low}

    def _standard_errors(
        self, X: ArrayLike, lengths: ArrayLike | None, kind: str, start: str, n_jobs: int
    ) -> tuple[Parameters, FloatArray]:
        from hmmstream import inference, information

        vector = Parameters(self, start)
        data = self._record(X, lengths)
        return vector, information.standard_errors(vector, data, kind, inference.Workers(n_jobs))

    def n_parameters(self, *, start: str = "fixed") -> int:
        """Number of free parameters: the start distribution has m - 1 if it is "free", none if not."""
        return len(Parameters(self, start).free())

    def aic(self, X: ArrayLike, lengths: ArrayLike | None = None, *, start: str = "fixed") -> float:
        """Akaike's criterion: -2 log-likelihood + 2 (number of free parameters). Smaller is better."""
        return -2.0 * self.log_likelihood(X, lengths) + 2.0 * self.n_parameters(start=start)

    def bic(self, X: ArrayLike, lengths: ArrayLike | None = None, *, start: str = "fixed") -> float:
        """Schwarz's criterion: -2 log-likelihood + log(n) (number of free parameters). Smaller is better.

        n is the number of rows of which something was seen.
        """
        from hmmstream import inference

        n = inference.count_seen(self.emission, self._record(X, lengths))
        return -2.0 * self.log_likelihood(X, lengths) + log(max(n, 1)) * self.n_parameters(start=start)

    def __repr__(self) -> str:
        structure = "" if self.transition == transitions.Full() else f", transition={self.transition!r}"
        return f"HMM({self.startprob.tolist()}, {self.transmat.tolist()}, {self.emission!r}{structure})"
