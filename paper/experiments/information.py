"""The Fisher information that scales Figure 5, and how often the optimal filter errs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from paper.model import PARAMETERS, TRUTH, Scale, generator

# The last cell of a row of q is not free: hmmstream differentiates by q(2, 1) = 1 - q(2, 2)
SIGNS = np.array([1.0, -1.0, 1.0, 1.0, 1.0])


class Information(NamedTuple):
    """What one long record says at θ⋆, for each pair of parameters."""

    run: int
    n: int
    misclassified: float  # share of states that the filter takes for another
    first: str
    second: str
    outer: float  # mean over the rows of products of the derivatives of log p(Y_t given Y_{0:t-1})
    total: float  # product of the derivatives of log p(Y_{0:n}), over n: what the paper averages, once corrected


def information(seed: int, run: int, scale: Scale) -> Iterator[Information]:
    """Scores at θ⋆ for a record simulated under θ⋆."""
    n = scale.information
    Y, states = TRUTH.sample(n, generator(seed, "information", run))
    misclassified = float((TRUTH.filter(Y).argmax(axis=1) != states).mean())
    outer = TRUTH.fisher_information(Y) / n * np.outer(SIGNS, SIGNS)
    score = TRUTH.score_vector(Y) * SIGNS
    for i, first in enumerate(PARAMETERS):
        for j, second in enumerate(PARAMETERS):
            total = float(score[i] * score[j] / n)
            yield Information(run, n, misclassified, first, second, float(outer[i, j]), total)
