"""hmmstream for River: hidden Markov models that learn from one dict at a time.

``HMMClusterer``, ``HMMAnomalyDetector`` and ``HMMForecaster`` are one model, :class:`~hmmstream.OnlineHMM`, under three
of River's interfaces: they differ in what River's pipelines, metrics and evaluations take them for. Here names become
columns; what is learned, and how a feature that comes later joins, is decided upstream.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from functools import reduce
from math import isinf, isnan, nan
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from hmmstream import starts
from hmmstream.averaging import Averaging
from hmmstream.emissions import Emission, Gaussian, specification
from hmmstream.learner import Peek
from hmmstream.model import HMM
from hmmstream.online import OnlineHMM
from hmmstream.priors import Prior
from hmmstream.schedule import Power, Step
from hmmstream.transitions import Transition

try:
    from river import base
    from river.time_series.base import Forecaster
except ImportError as error:
    raise ImportError("hmmstream.compat.river needs River: pip install 'hmmstream[river]'") from error

__all__ = ["HMMAnomalyDetector", "HMMClusterer", "HMMForecaster"]

Event: TypeAlias = Mapping[Any, Any]

# So many values show what a feature looks like: then it joins the model. Others that wait and have come half as often
# join with it, as code is compiled for each number of features. Before so many events, nothing is called unusual.
ENOUGH = 32
MOST_WAITING = 1000  # features that are new; of more, those that came first are forgotten


class _StreamHMM:
    """A model of named features, which come, go and change order from event to event."""

    def __init__(
        self,
        n_components: int = 2,
        emission: str | Emission = "gaussian",
        *,
        transition: str | Transition = "full",
        init: str | HMM = "auto",
        features: Sequence[Hashable] | None = None,
        step: Step | None = None,
        averaging: Averaging | str = "auto",
        n_min: float = 20,
        update_every: int = 1,
        prior: Prior | None = None,
        seed: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.emission = emission
        self.transition = transition
        self.init = init
        self.features = features
        self.step = step
        self.averaging = averaging
        self.n_min = n_min
        self.update_every = update_every
        self.prior = prior
        self.seed = seed

        is_default = isinstance(emission, str) and emission == "gaussian" and not isinstance(init, HMM)
        self.hmm = OnlineHMM(
            n_components,
            Gaussian("diag") if is_default else emission,
            transition=transition,
            init=init,
            step=Power(0.6) if step is None else step,
            averaging=averaging,
            n_min=n_min,
            update_every=update_every,
            prior=prior,
            random_state=seed,
        )
        self._columns = {name: at for at, name in enumerate(self._known_features())}
        self._waiting: dict[Hashable, deque[float]] = {}  # the last values of features that have not joined yet
        self._is_fresh = True  # nothing was learned yet
        if isinstance(init, HMM) and len(self._columns) != init.n_features:
            raise ValueError(f"init has {init.n_features} features: name them, in this order, by features=[...]")

    def _known_features(self) -> list[Hashable]:
        """The features that the model has from the beginning."""
        return list(self.features or ())

    @property
    def _has_no_model(self) -> bool:
        return self._is_fresh and not isinstance(self.init, HMM)

    def _read(self, x: Event, columns: dict[Hashable, int]) -> tuple[list[float], dict[Hashable, float]]:
        """The numbers of an event in the order of the columns, NaN where missing, and those that have no column."""
        row, new = [nan] * len(columns), {}
        for name, value in x.items():
            number = value if type(value) is float else _number(name, value)
            at = columns.get(name)
            if at is not None:
                row[at] = number
            elif not isnan(number):
                new[name] = number
        return row, new

    def _learn(self, x: Event) -> None:
        columns = self._columns
        row, new = self._read(x, columns)
        if self._has_no_model and self.features is None:
            columns = columns | {name: len(columns) + at for at, name in enumerate(sorted(new, key=repr))}
            row, new = self._read(x, columns)
        if self._has_no_model and all(map(isnan, row)):
            return
        if new:
            new = self._acceptable(new)
        try:
            self.hmm.learn_one(np.array(row))
        except ValueError as error:
            raise ValueError(_with_names(str(error), columns)) from None
        self._columns, self._is_fresh = columns, False
        if new:
            self._wait(new)

    def _family(self) -> Emission:
        """The family of the features: with values if there is a model, else the specification."""
        if isinstance(self.init, HMM):
            return self.init.emission
        if self._is_fresh:
            return specification(self.hmm.emission, np.empty((0, 1)))
        return self.hmm.last_model_.emission

    def _acceptable(self, new: dict[Hashable, float]) -> dict[Hashable, float]:
        """Features that are new and can join, if they look as those of this family do."""
        family = self._family()
        if not family.is_separable:
            warnings.warn(
                f"ignored, as they were not in the first event: {list(new)}. Others can join only features of the same "
                "kind that are independent given the state, such as those of emission='gaussian', and not those of "
                f"{type(family).__name__}.",
                stacklevel=4,
            )
            return {}
        for name, value in new.items():
            if isinf(value) or not family.accepts(value):
                raise ValueError(
                    f"feature {name!r} is {value}: {family.domain_at(0)}, finite, or None where missing. "
                    "Nothing was learned from this event."
                )
        return new

    def _wait(self, new: dict[Hashable, float]) -> None:
        """Keep values of features that are new, and let those join that have shown what they look like.

        One that was always the same has not: it says nothing about the state, nor by how much it may change.
        """
        for name, value in new.items():
            self._waiting.setdefault(name, deque(maxlen=ENOUGH)).append(value)
        while len(self._waiting) > MOST_WAITING:
            del self._waiting[next(iter(self._waiting))]
        varied = {name: values for name, values in self._waiting.items() if min(values) < max(values)}
        if all(len(values) < ENOUGH for values in varied.values()):
            return
        joining = sorted((name for name, values in varied.items() if 2 * len(values) >= ENOUGH), key=repr)
        family = self._family()
        ones = [starts.alike(family, family.n_components, np.array(self._waiting[name])) for name in joining]
        self.hmm.add_features(reduce(Emission.beside, ones))
        for name in joining:
            self._columns[name] = len(self._columns)
            del self._waiting[name]

    def _peek(self, x: Event) -> Peek:
        row, _ = self._read(x, self._columns)
        try:
            return self.hmm.peek(np.array(row))
        except ValueError as error:
            raise ValueError(_with_names(str(error), self._columns)) from None

    def _forecast(self, horizon: int, xs: Sequence[Event] | None) -> list[dict[Hashable, float]]:
        known = None
        if xs is not None:
            known = np.reshape([self._read(x, self._columns)[0] for x in xs], (-1, len(self._columns)))
        mean = self.hmm.forecast(horizon, known).mean
        if mean.shape[1] != len(self._columns):
            raise ValueError("symbols have no expected value: hmm.forecast(horizon).mean has their probabilities")
        return [dict(zip(self._columns, row, strict=True)) for row in mean.tolist()]


def _number(name: Hashable, value: Any) -> float:
    if value is None:
        return nan
    if not isinstance(value, Real | np.bool_):
        raise ValueError(
            f"feature {name!r} is {value!r}: the model learns from numbers, with None where one is missing. "
            "Encode it first, or leave it out."
        )
    return float(value)


def _with_names(message: str, columns: dict[Hashable, int]) -> str:
    """What the model says of a column, said of a feature."""
    for name, at in columns.items():
        message = message.replace(f"X[0, {at}]", f"feature {name!r}")
    return message


class _EventHMM(_StreamHMM):
    """What is learned from dicts, and can be asked about them."""

    def learn_one(self, x: Event) -> None:
        """Learn from an event.

        Parameters
        ----------
        x
            A number for each feature. One that is absent, None or NaN is missing.
        """
        self._learn(x)

    def predict_proba_one(self, x: Event) -> dict[int, float]:
        """The probability of each state at this event, given all that was learned from; nothing is learned.

        It is what the filter will be after ``learn_one(x)``.
        """
        if self._has_no_model:
            return dict.fromkeys(range(self.n_components), 1.0 / self.n_components)
        return dict(enumerate(self._peek(x).filtered_proba.tolist()))

    def predict_one(self, x: Event) -> int:
        """The most probable state at this event, given all that was learned from; nothing is learned."""
        proba = self.predict_proba_one(x)
        return max(proba, key=proba.__getitem__)

    def score_one(self, x: Event) -> float:
        """How unusual this event is, given all that was learned from; nothing is learned.

        This is minus the logarithm of its predictive density: 1 more is e times as improbable. It is always finite. It
        is 0 for the first 32 events, unless the model began with values: too few to call anything unusual.
        """
        if self._has_no_model or (not isinstance(self.init, HMM) and self.hmm.n_samples_seen_ < ENOUGH):
            return 0.0
        return min(-self._peek(x).log_density, sys.float_info.max)

    def forecast(self, horizon: int, xs: Sequence[Event] | None = None) -> list[dict[Any, float]]:
        """The value that is expected of each feature, 1, 2, …, ``horizon`` events after the last that was learned from.

        Parameters
        ----------
        horizon
            The number of events to look ahead.
        xs
            What is known of these events already, if anything: it says something about their other features, too.
        """
        if self._is_fresh:
            return [{} for _ in range(horizon)]
        return self._forecast(horizon, xs)


class HMMClusterer(_EventHMM, base.Clusterer):
    """Hidden Markov model of a stream of dicts: the clusters are hidden states, which last and follow each other.

    Cappé's online EM algorithm; :class:`~hmmstream.OnlineHMM` has the details, and is at work as ``hmm``. Features may
    come, go and change order: one that is absent is missing, and one that comes after the first event joins the model
    once it has been seen 32 times, as if it had been missing before.

    Parameters
    ----------
    n_components
        Number of hidden states.
    emission
        Family of the features: "gaussian", "poisson", "exponential", "bernoulli", …, or an object. "gaussian" is here
        ``Gaussian("diag")``: features are independent given the state, each may be missing, and others may join.
    transition
        Structure of the transition matrix: "full", "independent" or a Transition object.
    init
        "auto" finds a start from the first events, at most 32,768 of them; there is a model from the first one on. Or
        an ``hmmstream.HMM`` to start from.
    features
        The names of the features, where their order matters: that of ``init``, or of the parts of an ``Independent``
        emission. Otherwise not needed: those of the first event come in the order of their names.
    step
        How fast to forget: ``Power(0.6)`` by default; ``Constant(gamma)`` follows a stream that changes for ever.
    averaging
        What ``hmm.model_`` and forecasts are made of: as of OnlineHMM.
    n_min
        Events before the first new parameters, where ``init`` is a model.
    update_every
        New parameters only at every so many events.
    prior
        What is believed of the parameters before anything was seen: a ``Prior``.
    seed
        For the search of a start.

    Examples
    --------
    >>> import random
    >>> from hmmstream.compat.river import HMMClusterer
    >>> rng = random.Random(1)
    >>> model = HMMClusterer(n_components=2, seed=1)
    >>> for t in range(500):
    ...     busy = t // 50 % 2
    ...     model.learn_one({"load": rng.gauss(4 * busy, 1), "heat": rng.gauss(30 + 9 * busy, 2), "wind": rng.random()})
    >>> model.predict_one({"heat": 42.0, "load": 3.1}), model.predict_one({"heat": 29.0})
    (1, 0)
    """


class HMMAnomalyDetector(_EventHMM, base.AnomalyDetector):
    """Hidden Markov model of a stream of dicts, as a detector of events that do not fit in with those before.

    The parameters and all methods are those of :class:`HMMClusterer`. ``anomaly.QuantileFilter`` makes yes or no of the
    score: see :meth:`score_one`.
    """


class _Target(Enum):
    """The name of what is forecast: no feature can have the same."""

    Y = "y"


class HMMForecaster(_StreamHMM, Forecaster):
    """Hidden Markov model of a series of numbers, as a forecaster.

    The parameters are those of :class:`HMMClusterer`. Further features ``x``, if there are any, are part of the model
    as the series is: they help to tell the states, and those to come, where they are known. The series is the first
    feature of ``init``, and ``features`` are the names of the others.
    """

    def _known_features(self) -> list[Hashable]:
        return [_Target.Y, *super()._known_features()]

    def learn_one(self, y: float | None, x: Event | None = None) -> None:
        """Learn from the next number of the series, and further features of that time, if there are any.

        Parameters
        ----------
        y
            None or NaN where it is missing.
        x
            A number for each further feature. One that is absent, None or NaN is missing.
        """
        self._learn({_Target.Y: y, **(x or {})})

    def forecast(self, horizon: int, xs: Sequence[Event] | None = None) -> list[float]:
        """What is expected of the series 1, 2, …, ``horizon`` steps after the last that was learned from.

        Parameters
        ----------
        horizon
            The number of steps to look ahead.
        xs
            The further features at these steps, as far as they are known.
        """
        if self._is_fresh:
            return [0.0] * horizon
        return [expected[_Target.Y] for expected in self._forecast(horizon, xs)]
