"""Thousands of streams made to break the engine: never a NaN, and transition rows always sum to 1."""

import models
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_robustness import assert_sane

from hmmstream import (
    HMM,
    Bernoulli,
    Categorical,
    Constant,
    Exponential,
    Gamma,
    Gaussian,
    Geometric,
    Learner,
    LogNormal,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Polyak,
    Power,
    emissions,
)

MANY = 12
STARTS = {
    **dict.fromkeys(models.FAMILIES),
    "one-state": HMM([1.0], [[1.0]], Gaussian("full", means=[0.0], covars=[1.0])),
    "many-states": HMM(
        np.full(MANY, 1 / MANY),
        np.full((MANY, MANY), 1 / MANY),
        Gaussian("diag", means=np.linspace(-3, 3, MANY), covars=np.ones(MANY)),
    ),
}

seeds = st.integers(0, 2**32 - 1)
lengths = st.integers(1, 60)
scales = st.floats(-12, 12).map(lambda exponent: 10.0**exponent)
offsets = st.sampled_from([0.0, 1.0, -1e3, 1e8, 1e12])
huge = st.floats(-1e300, 1e300)

noise = st.tuples(st.just("noise"), lengths, seeds, scales, offsets)
constant = st.tuples(st.just("constant"), lengths, huge)
missing = st.tuples(st.just("missing"), lengths)
outlier = st.tuples(st.just("outlier"), huge)
segments = st.lists(st.one_of(noise, noise, constant, missing, outlier), min_size=1, max_size=8)


def build(segments, d):
    """A stream from a description of its segments."""
    pieces = []
    for kind, *values in segments:
        if kind == "noise":
            n, seed, scale, offset = values
            pieces.append(offset + scale * np.random.default_rng(seed).standard_normal((n, d)))
        elif kind == "constant":
            n, value = values
            pieces.append(np.full((n, d), value))
        elif kind == "missing":
            pieces.append(np.full((values[0], d), np.nan))
        else:
            pieces.append(np.full((1, d), values[0]))
    return np.concatenate(pieces)


def into_domain(X, emission):
    """The nearest stream of values that the family accepts."""
    with np.errstate(invalid="ignore"):
        match emission:
            case Categorical():
                return np.where(np.isnan(X), X, np.floor(abs(X)) % emission.n_categories)
            case Bernoulli():
                return np.where(np.isnan(X), X, X > 0)
            case Poisson() | Multinomial() | NegativeBinomial():
                return np.floor(abs(X))
            case Geometric():
                return np.floor(abs(X)) + 1
            case Gamma() | LogNormal():
                return np.maximum(abs(X), 1e-300)
            case Exponential() | models.Rayleigh():
                return abs(X)
            case emissions.Independent():
                pieces = np.split(X, np.cumsum(emission.part_features)[:-1], axis=1)
                return np.hstack([into_domain(x, part) for x, part in zip(pieces, emission.parts, strict=True)])
    return X


@pytest.mark.parametrize("name", sorted(STARTS))
@settings(max_examples=max(60, settings().max_examples))
@given(
    segments=segments,
    n_min=st.sampled_from([0, 20]),
    update_every=st.sampled_from([1, 3]),
    holes=st.tuples(st.floats(0, 0.5), seeds),
    structure=st.sampled_from(sorted(models.STRUCTURES)),
    step=st.sampled_from([Power(0.6), Constant(0.3), Constant(1.0)]),
    averaging=st.sampled_from(["auto", None, Polyak(10)]),
    in_sequences=st.booleans(),
)
def test_no_stream_breaks_the_engine(
    name, segments, n_min, update_every, holes, structure, step, averaging, in_sequences
):
    if name in models.FAMILIES:
        start = models.rough_start(name, structure if structure in models.structures(name) else "full")
    else:
        start = STARTS[name]
    X = into_domain(build(segments, start.n_features), start.emission)
    share, seed = holes
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    learner = Learner(start, n_min=n_min, update_every=update_every, step=step, averaging=averaging)
    lengths = [(len(X) + 1) // 2, len(X) // 2] if in_sequences and len(X) > 1 else None
    proba = learner.follow(X, lengths)
    assert_sane(learner)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-9)
