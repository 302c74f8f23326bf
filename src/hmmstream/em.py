"""Batch EM: expectation over the whole record, then the engine's own M-step, again and again."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np

from hmmstream import inference
from hmmstream.arrays import FloatArray
from hmmstream.inference import Memory, Workers
from hmmstream.model import HMM
from hmmstream.parameters import Parameters, Point, Start, stationary
from hmmstream.priors import Prior
from hmmstream.record import Record
from hmmstream.recursions import online, recursive
from hmmstream.recursions.state import LIKELIHOOD_FACTOR, LOG_LIKELIHOOD, Shape, State, parts

Method = Literal["forward-backward", "recursive"]

SMALLEST_PROBABILITY = 1e-100  # in the search for a transition matrix
ROUNDING = 1e-10  # of the log-likelihood and of the number of rows: what rounding may take away


class Fit(NamedTuple):
    """Where EM has come to."""

    model: HMM
    history: list[float]  # log-likelihood of the start and after each iteration: the last is that of ``model``
    converged: bool
    filtered_proba: FloatArray  # probability of each state at the last row


class Counts(NamedTuple):
    """Expected numbers, given all observations. They add up over sequences."""

    log_likelihood: float
    start: FloatArray  # (m,): sequences that start in each state
    transitions: FloatArray  # (C,): transitions in each group
    emissions: FloatArray  # (m, p): the emission statistic of each state


class EM:
    """Expectation and maximization for one record, from one start.

    Parameters
    ----------
    start : HMM
        Where the climb starts, and what is kept: family, structure, and the start distribution if that is "fixed".
    data : Record
    method : "forward-backward" or "recursive"
        How the expectation is computed: the second needs no memory that grows with the record, and costs more.
    start_kind : "free", "fixed" or "stationary"
    with_first : bool
        Whether the first row of each sequence takes part in the estimation of the emissions. Without it, as the
        recursion of the paper has it, this is not exactly EM, and the likelihood need not increase.
    prior : Prior or None
        With one, the posterior density increases, the likelihood need not.
    """

    def __init__(
        self,
        start: HMM,
        data: Record,
        *,
        method: Method = "forward-backward",
        start_kind: Start = "free",
        with_first: bool = True,
        prior: Prior | None = None,
        n_jobs: int = 1,
    ) -> None:
        if method not in get_args(Method):
            raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}")
        self.data = data
        self.method, self.start_kind, self.with_first = method, start_kind, with_first
        self.workers = Workers(n_jobs)
        self.parameters = Parameters(start, start_kind)
        self.cells = start.transition.cells(start.n_components)
        emission = start.emission
        self.theta = emission.theta()
        emission.limit(data.X, self.theta)
        self.limits = self.theta[:, emission.limits].copy()
        self.prior = (prior or Prior()).statistic(start, self.theta)
        self.has_prior = prior is not None
        self.prior_centres = emission.centres(self.theta).copy()
        self.shape = Shape(
            start.n_components,
            self.cells.n_groups,
            self.theta.shape[1],
            emission.n_statistics,
            has_prior=True,
        )
        startprob = stationary(start.transmat) if start_kind == "stationary" else start.startprob
        emission = emission.with_theta(self.theta)
        self.model = self.previous = Point(startprob, start.transmat, emission, start.transition)

    def run(self, n_iter: int, tol: float, verbose: bool = False) -> Fit:
        """Iterate until the log-likelihood gains less than ``tol``, at most ``n_iter`` times."""
        history: list[float] = []
        converged = False
        while len(history) < n_iter and not converged:
            counts = self.expect()
            converged = self._has_converged(history, counts.log_likelihood, tol, verbose)
            if not converged:
                self.maximize(counts)
        log_likelihood, filtered_proba = self.summary()
        if not converged:
            last = self.model
            converged = self._has_converged(history, log_likelihood, tol, verbose)
            if self.model is not last:
                filtered_proba = self.summary()[1]
        return Fit(HMM(*self.model), history, converged, filtered_proba)

    def _has_converged(self, history: list[float], log_likelihood: float, tol: float, verbose: bool) -> bool:
        """Add to the history, and say whether there is no more to gain.

        A state that collapses onto a point is stopped at a limit. It may then lose a little, by rounding or by the
        missing values that are filled in: the model before that is the one to keep.
        """
        gain = log_likelihood - history[-1] if history else np.inf
        if self.has_prior or self.data.weights is not None:  # then something else increases
            gain = abs(gain)
        if self.with_first and gain < -ROUNDING * (abs(log_likelihood) + len(self.data)):
            if not self.model.emission.is_limited(self.theta):
                raise RuntimeError(
                    f"the log-likelihood fell by {-gain:g} to {log_likelihood:.10g}, which an EM iteration never does: "
                    f"the M-step of {type(self.model.emission).__name__} does not belong to its density"
                )
            self.model = self.previous
            return True
        history.append(log_likelihood)
        if verbose:
            print(f"iteration {len(history) - 1}: log-likelihood {log_likelihood:.6f}", flush=True)
        return gain < tol

    # --- E-step -----------------------------------------------------------------------------------------------------

    def summary(self) -> tuple[float, FloatArray]:
        """Log-likelihood of the current model, and its filter at the last row."""
        parts = self.workers.each(partial(inference.run, inference.summary, self.model), self.data)
        return sum(log_likelihood for log_likelihood, _ in parts), parts[-1][1]

    def expect(self) -> Counts:
        """What the current model expects, given the data."""
        one = self._forward_backward if self.method == "forward-backward" else self._recursive
        return inference.add_up(self.workers.each(one, self.data))

    def _forward_backward(self, piece: Record, memory: Memory) -> Counts:
        model, groups = self.model, self.parameters.groups
        expected = inference.expect(model, piece, memory, self.with_first)
        transitions = np.zeros(self.shape.n_groups)
        np.add.at(transitions, groups[groups >= 0], (expected.pairs * model.transmat)[groups >= 0])
        return Counts(expected.log_likelihood, expected.start * model.startprob, transitions, expected.emissions)

    def _recursive(self, piece: Record, memory: Memory) -> Counts:
        if inference.loses_a_state(self.model, piece, memory):
            return self._forward_backward(piece, memory)
        vector, state = self._state()
        m, n_groups = self.shape.n_states, self.shape.n_groups
        start = np.zeros(m)
        recursive.expect(
            self.model.emission,
            self.shape,
            vector,
            self.cells.groups,
            piece.X,
            piece.is_start,
            piece.states,
            piece.weights,
            self.with_first,
            start,
        )
        log_likelihood = float(state.clock[LOG_LIKELIHOOD] + np.log(state.clock[LIKELIHOOD_FACTOR]))
        return Counts(log_likelihood, start, state.S[:n_groups], state.S[n_groups:].reshape(m, -1))

    def _state(self) -> tuple[FloatArray, State]:
        """The engine's state before the first observation."""
        vector = np.zeros(self.shape.size)
        state = parts(self.shape, vector)
        state.clock[LIKELIHOOD_FACTOR] = 1.0
        state.startprob[:] = state.phi[:] = self.model.startprob
        state.alive[:] = 1.0
        state.transmat[:] = self.model.transmat
        state.theta[:] = self._theta()
        return vector, state

    def _theta(self) -> FloatArray:
        theta = self.model.emission.theta()
        theta[:, self.model.emission.limits] = self.limits  # the same in all iterations
        return theta

    def _prior_at(self, centres: FloatArray) -> FloatArray:
        """The statistic of what is imagined, about these centres."""
        transitions, emissions = np.split(self.prior, [self.shape.n_groups])
        moved = self.model.emission.translated(emissions.reshape(self.shape.n_states, -1), centres - self.prior_centres)
        return np.concatenate([transitions, moved.ravel()])

    # --- M-step -----------------------------------------------------------------------------------------------------

    def maximize(self, counts: Counts) -> None:
        """Replace the model by the one under which what was expected is most likely."""
        self.previous = self.model
        emission = self.model.emission
        weight = counts.emissions[:, 0].sum()
        if weight > 0.0:
            theta, transmat = self._theta(), self.model.transmat.copy()
            S = np.concatenate([counts.transitions, counts.emissions.ravel()]) / weight
            S += self._prior_at(emission.centres(theta)) / weight
            values = np.ones(len(theta)), transmat, theta
            online.maximize_each(emission, S[np.newaxis], *self.cells[1:], *(part[np.newaxis] for part in values))
            self.theta = theta
            if self.start_kind == "stationary":
                counts = counts._replace(transitions=counts.transitions + self.prior[: self.shape.n_groups])
                transmat = maximize_stationary(self.parameters, counts, [transmat, self.model.transmat])
            self.model = self.model._replace(transmat=transmat, emission=emission.with_theta(theta))
        if self.start_kind == "free" and counts.start.sum() > 0.0:
            self.model = self.model._replace(startprob=counts.start / counts.start.sum())
        elif self.start_kind == "stationary":
            self.model = self.model._replace(startprob=stationary(self.model.transmat))


def maximize_stationary(parameters: Parameters, counts: Counts, candidates: list[FloatArray]) -> FloatArray:
    """The transition matrix that makes the expected transitions most likely, and the starts in its own distribution.

    There is no formula for it. The search starts from the better of the ``candidates``, in logarithms of the
    probabilities, so that they stay positive and rows sum to 1.
    """
    from scipy.optimize import minimize  # takes long to import, and only this needs it

    groups, n_groups = parameters.groups, parameters.n_groups
    is_cell = groups >= 0

    def matrix(logits: FloatArray) -> FloatArray:
        cells = np.where(is_cell, logits[groups], -np.inf)
        weights = np.exp(cells - cells.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def loss(logits: FloatArray) -> tuple[float, FloatArray]:
        transmat = matrix(logits)
        distribution = stationary(transmat)
        by_group = np.zeros(n_groups)
        by_group[groups[is_cell]] = transmat[is_cell]
        starts = counts.start > 0.0
        if not (distribution[starts] > 0.0).all() or not (by_group > 0.0).all():
            return np.inf, np.zeros(n_groups)
        value = counts.transitions @ np.log(by_group) + counts.start[starts] @ np.log(distribution[starts])
        try:
            slopes = parameters.start_slopes(transmat)[:n_groups, starts]
        except ValueError:
            return np.inf, np.zeros(n_groups)
        gradient = counts.transitions + by_group * (slopes @ (counts.start[starts] / distribution[starts]))
        for members, sizes in parameters.sums:
            if members.max() < n_groups:  # a row sums to 1: what all its logits have in common changes nothing
                gradient[members] -= sizes * by_group[members] * gradient[members].sum()
        return -float(value), -gradient

    logits = []
    for transmat in candidates:
        values = np.zeros(n_groups)
        values[groups[is_cell]] = np.log(np.maximum(transmat[is_cell], SMALLEST_PROBABILITY))
        logits.append(values)
    best = min(logits, key=lambda values: loss(values)[0])
    found = minimize(loss, best, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 0.0, "gtol": 1e-9})
    return matrix(found.x if found.fun <= loss(best)[0] else best)
