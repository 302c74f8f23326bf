"""What is believed of the parameters before anything was seen, in the currency of the algorithm: imagined observations.

A conjugate prior is a statistic that is added to that of the data before each M-step: so many transitions of each kind,
so many observations in each state. Their weight against the data is their number against that of the data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hmmstream.arrays import FloatArray, IntArray, frozen
from hmmstream.emissions import Emission
from hmmstream.model import HMM


class Prior:
    """Imagined observations, which count besides those that were seen.

    Parameters
    ----------
    transitions : number or (m, m)
        Imagined transitions of each possible kind: a Dirichlet distribution with parameters 1 + this.
    stickiness : number
        Further imagined transitions from each state to itself: states that last are expected.
    emission : Emission with values
        What imagined observations look like in each state. The prior is the conjugate one that they give.
    strength : number
        How many observations are imagined in each state.

    Examples
    --------
    >>> Prior(transitions=1.0, stickiness=20.0)
    Prior(transitions=1.0, stickiness=20.0)
    """

    def __init__(
        self,
        transitions: ArrayLike = 0.0,
        stickiness: float = 0.0,
        emission: Emission | None = None,
        strength: float = 0.0,
    ) -> None:
        self.transitions = frozen(transitions, "transitions")
        self.stickiness = frozen(stickiness, "stickiness").item()
        self.strength = frozen(strength, "strength").item()
        self.emission = emission
        if (self.transitions < 0.0).any() or self.stickiness < 0.0 or self.strength < 0.0:
            raise ValueError("imagined observations cannot be negative: transitions, stickiness and strength")
        if emission is not None and not (isinstance(emission, Emission) and emission.has_values):
            raise ValueError(f"emission must be an emission family with its values, got {emission!r}")
        if (emission is None) != (self.strength == 0.0):
            raise ValueError("give both an emission and its strength, or neither")

    @property
    def says_something(self) -> bool:
        """Whether anything is imagined."""
        return bool(self.transitions.any() or self.stickiness or self.strength)

    def statistic(self, model: HMM, theta: FloatArray) -> FloatArray:
        """The statistic of what is imagined, laid out like S, about the centres in ``theta``."""
        emission = model.emission
        m = emission.n_components
        if self.transitions.shape not in ((), (m, m)):
            raise ValueError(f"transitions must be a number or of shape {(m, m)}, got {self.transitions.shape}")
        cells = model.transition.cells(m)
        counts = (self.transitions + self.stickiness * np.eye(m)).ravel()
        groups = np.bincount(cells.groups[cells.groups >= 0], counts[cells.groups >= 0], minlength=cells.n_groups)
        S = np.zeros((m, emission.n_statistics))
        if self.emission is not None:
            ours = self.emission
            if type(ours) is not type(emission) or ours.specification != emission.specification:
                raise ValueError(f"the prior is about {ours!r}, but the model has {emission!r}")
            if (ours.n_components, ours.n_features) != (m, emission.n_features):
                raise ValueError(
                    f"the prior has {ours.n_components} states and {ours.n_features} features, "
                    f"but the model has {m} and {emission.n_features}"
                )
            imagined = ours.theta()
            S = self.strength * ours.expected_statistic(imagined)
            S = emission.translated(S, emission.centres(theta) - ours.centres(imagined))
        return np.concatenate([groups, S.ravel()])

    def relabel(self, order: IntArray) -> Prior:
        """The same beliefs about states in another order."""
        transitions = self.transitions[np.ix_(order, order)] if self.transitions.ndim else self.transitions
        emission = self.emission and self.emission.with_rows(self.emission.rows()[order])
        return Prior(transitions, self.stickiness, emission, self.strength)

    def with_features(self, emission: Emission) -> Prior:
        """The same beliefs, and if there are any about observations, that new features look like ``emission``."""
        both = self.emission and self.emission.beside(emission)
        return Prior(self.transitions, self.stickiness, both, self.strength)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        said = {
            "transitions": self.transitions.tolist() if self.transitions.any() else None,
            "stickiness": self.stickiness or None,
            "emission": self.emission,
            "strength": self.strength or None,
        }
        return f"Prior({', '.join(f'{name}={value!r}' for name, value in said.items() if value is not None)})"
