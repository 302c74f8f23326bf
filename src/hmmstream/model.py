"""HMM: a hidden Markov model with its values."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hmmstream import transitions
from hmmstream.arrays import frozen, thresholds
from hmmstream.emissions import Emission
from hmmstream.transitions import Transition


class HMM:
    """A hidden Markov model with its values. It never changes.

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
            if (values < 0.0).any() or not np.allclose(values.sum(axis=-1), 1.0, rtol=0.0, atol=1e-8):
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
        return self.emission.n_features

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

    def __repr__(self) -> str:
        structure = "" if self.transition == transitions.Full() else f", transition={self.transition!r}"
        return f"HMM({self.startprob.tolist()}, {self.transmat.tolist()}, {self.emission!r}{structure})"
