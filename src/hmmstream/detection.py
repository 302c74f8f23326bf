"""A watch on how well the model predicts: it tells when a world has changed.

The log-likelihood of each block of observations, less what the states that it began and ended in and the block before
it have led to expect, is ranked among those of earlier blocks. As long as nothing changes, every rank is as likely as
any other, whatever the model and the data, if blocks have nothing else in common with those before: so how often there
is a false alarm follows from the threshold alone. Ranks become normal deviates, and those of a fit that has become
worse add up in a sum that is never less than 0 (Page's CUSUM). When it exceeds the threshold, this is an alarm. How
much worse than all others a block is counts too, as ranks alone would need many blocks.
"""

from __future__ import annotations

import math
from copy import copy
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.record import Record

BLOCK = 64  # observations: rows in which nothing was seen are no part of it
EARLIER = 1024  # blocks with which one is compared
FEWEST = 32  # blocks that are needed for that
UNMOVED = 4.0  # blocks that speak for states without an influence on the fit
DRIFT = 0.5  # what is taken from each deviate: half of the change that is found soonest
WORST = 4.5  # the largest deviate: no single block raises an alarm that is to be rare
RESOLUTION = 1e-6  # of a log-likelihood: what is less is rounding
EXTREME = 1e9  # no fit is taken for worse, or better
OVERSHOOT = 1.166  # Siegmund's correction: a sum of steps exceeds its threshold by so much
GATHERED = 512  # rows after an alarm, to begin anew from
NORMAL = NormalDist()
LEAST_SHARE = NORMAL.cdf(-WORST)
NUMBERS = ("n_waiting", "n_idle", "began_at", "since", "n_worse", "excess", "before", "n_gathered")


class Change(NamedTuple):
    """A change of the world."""

    at: int  # rows seen when it was noticed
    since: int  # rows seen when predictions began to become worse


class Detector:
    """Raises an alarm when predictions have become worse.

    Parameters
    ----------
    idle : number
        Rows that are not looked at, while the model learns what is new: of the beginning, and after an alarm.
    alarm_every : number
        Observations between two false alarms, on average, of those that are looked at.
    n_features : int
        Of a row: those after an alarm are gathered.
    n_states : int
        Of the model.
    """

    gathered: Record | None = None  # rows after an alarm, when there are enough now
    began_at = 0  # of which pickles from before know nothing

    def __init__(self, idle: float, alarm_every: float, n_features: int, n_states: int) -> None:
        self._idle = math.ceil(idle)
        self._threshold = threshold_for(alarm_every / BLOCK)
        self.changes: list[Change] = []
        self.X, self.is_start = np.zeros((GATHERED, n_features)), np.zeros(GATHERED, dtype=np.bool_)
        self.began_in = np.zeros(n_states)  # probabilities of the states when the block began
        self.n_gathered = GATHERED  # none are, until there is an alarm
        self.begin(0)

    def begin(self, n_seen: int) -> None:
        """Compare with what comes from now on."""
        self.earlier = np.zeros((0, 1 + len(self.began_in)))  # fit and states of each block
        self.excess = 0.0
        self.since, self.n_worse = n_seen, 0  # where it began to be positive, and the number of blocks since then
        self.n_waiting = 0  # observations of the block at hand
        self.n_idle = self._idle
        self.began_at = n_seen  # rows seen when the block began,
        self.before = math.nan  # and the log-likelihood

    @property
    def room(self) -> int:
        """The number of rows that can be taken before there is work to do."""
        room = self.n_idle or BLOCK - self.n_waiting
        return min(room, GATHERED - self.n_gathered) if self.n_gathered < GATHERED else room

    def take(self, data: Record, n_observed: int) -> None:
        """Count some rows, no more than there is ``room`` for, and gather them after an alarm."""
        n = len(data)
        if self.n_idle:
            self.n_idle -= n
        else:
            self.n_waiting += n_observed
        if self.n_gathered == GATHERED:
            return
        place = slice(self.n_gathered, self.n_gathered + n)
        self.X[place], self.is_start[place] = data.X, data.is_start
        self.n_gathered += n
        if self.n_gathered == GATHERED:
            self.gathered = Record(self.X, self.is_start)

    def interrupt(self) -> None:
        """Rows pass, from which nothing is learned: they are of no block."""
        self.n_waiting, self.before = 0, math.nan

    def work(self, n_seen: int, log_likelihood: float, states: FloatArray) -> bool:
        """When rows have come to the end of a block, judge it; whether this is an alarm.

        ``states`` are their probabilities, given all rows so far.
        """
        if self.n_waiting < BLOCK:
            if math.isnan(self.before) and not self.n_idle:  # the first block begins
                self.began_at, self.before, self.began_in = n_seen, log_likelihood, states.copy()
            return False
        fit, middle, began_at = log_likelihood - self.before, 0.5 * (self.began_in + states), self.began_at
        self.began_at, self.before, self.began_in, self.n_waiting = n_seen, log_likelihood, states.copy(), 0
        if not math.isfinite(fit):
            return False
        blocks = np.vstack((self.earlier, np.append(np.clip(fit, -EXTREME, EXTREME), middle)))
        if len(self.earlier) >= FEWEST:
            if self.excess == 0.0:
                self.since, self.n_worse = began_at, 0
            found = news(blocks, max(len(blocks) - 1 - self.n_worse, FEWEST))
            deviate = -NORMAL.inv_cdf(share_below(found[-1], found[:-1]))
            self.excess = max(self.excess + deviate - DRIFT, 0.0)
            self.n_worse += 1
        self.earlier = blocks[-EARLIER:]
        if self.excess <= self._threshold:
            return False
        self.changes.append(Change(n_seen, self.since))
        self.n_gathered = 0
        self.begin(n_seen)
        return True

    # --- storage ----------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """All that it holds, as numbers and arrays."""
        changes = np.array(self.changes, dtype=np.int64).reshape(-1, 2)
        numbers = {name: getattr(self, name) for name in NUMBERS}
        rows = {"X": self.X, "is_start": self.is_start}
        return {**numbers, **rows, "earlier": self.earlier, "began_in": self.began_in, "changes": changes}

    def restore(self, document: dict[str, Any]) -> None:
        """Go on from a document; one that does not fit is refused."""
        now = self.document()
        document = {"began_at": document["since"], **document}  # of which files from before know nothing
        if np.ndim(document["earlier"]) == 1:  # from before states were looked at: it gets to know the fit anew
            anew = ("earlier", "began_in", "n_waiting", "n_idle", "n_worse", "excess", "before")
            document = {**document, **{name: now[name] for name in anew}}
        for name, own in now.items():
            held, is_list = document[name], name in ("earlier", "changes")  # lists are of any length
            if isinstance(own, np.ndarray):
                fits = isinstance(held, np.ndarray) and held.dtype == own.dtype
                fits = fits and held.shape[is_list:] == own.shape[is_list:]
            else:
                fits = type(held) is type(own) and (isinstance(held, float) or 0 <= held < 2**53)
            if not fits:
                raise ValueError(f"its watch does not hold what it should: {name} is {held!r}")
        earlier, began_in = document["earlier"], document["began_in"]
        is_sound = (
            len(earlier) <= EARLIER
            and (abs(earlier) <= EXTREME).all()
            and ((began_in >= 0.0) & (began_in <= 1.0)).all()
            and not np.isinf(document["X"]).any()
            and 0.0 <= document["excess"] < math.inf
            and document["n_waiting"] <= BLOCK
            and document["n_gathered"] <= GATHERED
        )
        if not is_sound:
            raise ValueError("its watch does not hold what it should")
        for name in (*NUMBERS, "X", "is_start", "earlier", "began_in"):
            setattr(self, name, copy(document[name]))
        self.changes = [Change(int(at), int(since)) for at, since in document["changes"]]

    # --- what becomes of the model ------------------------------------------------------------------------------------

    def relabel(self, order: IntArray) -> None:
        """State i is now what state ``order[i]`` was."""
        self.began_in = self.began_in[order]
        self.earlier[:, 1:] = self.earlier[:, 1:][:, order]

    def widen(self, n_features: int) -> None:
        """Rows have more features from now on; they were missing in those that have been gathered."""
        X = np.full((GATHERED, n_features), np.nan)
        X[:, : self.X.shape[1]] = self.X
        self.X = X


def news(blocks: FloatArray, n_known: int) -> FloatArray:
    """What each block but the first adds to what its states and the block before it had led to expect.

    What to expect is known from the first blocks alone: from a change, which may have begun since, it is not learned.
    """
    quarter = n_known // 4
    low, high = np.partition(blocks[:n_known, 0], (quarter, 3 * quarter))[[quarter, 3 * quarter]]
    room = 10.0 * max(high - low, 1.0)
    fits = np.clip(blocks[:, 0], low - room, high + room)  # one outlier must not hide what comes after it
    fits, states = fits - fits[:n_known].mean(), blocks[:, 1:] - blocks[:n_known, 1:].mean(axis=0)
    known = states[:n_known]
    products = known.T @ known
    right_sides = np.column_stack((known.T @ fits[:n_known], products))
    solved = np.linalg.solve(products + UNMOVED * np.eye(len(products)), right_sides)
    fits -= states @ solved[:, 0]
    before, now = fits[: n_known - 1], fits[1:n_known]
    size = before @ before
    added = fits[1:] - fits[:-1] * (now @ before / size if size > 0.0 else 0.0)
    # New ones lie further out than those which a mean, a slope and the influence of states were fitted to
    n_fitted, centre = 2.0 + np.trace(solved[:, 1:]), np.median(added[: n_known - 1])
    added[n_known - 1 :] = centre + (added[n_known - 1 :] - centre) * (1.0 - n_fitted / n_known)
    return np.asarray(added)


def share_below(value: float, others: FloatArray) -> float:
    """The probability of a value as small as this one, from its rank among others; below all of them the tail of an
    exponential distribution goes on, as the lowest eighth of them falls.
    """
    n = len(others)
    least = others.min()
    if value >= least - RESOLUTION:
        lower, higher = np.sum(others < value - RESOLUTION), np.sum(others > value + RESOLUTION)
        return float(0.5 * (n + lower - higher) + 0.5) / (n + 1)
    n_tail = max(n // 8, 8)
    tail = np.partition(others, n_tail)[: n_tail + 1]
    scale = max(tail[-1] - tail[:-1].mean(), RESOLUTION)
    return max(float(np.exp((value - least) / scale)) / (n + 1), LEAST_SHARE)


def threshold_for(run_length: float) -> float:
    """The threshold that is exceeded once in so many blocks: Siegmund's formula, inverted by bisection."""
    if run_length == math.inf:
        return math.inf
    low, high = -OVERSHOOT, 700.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        b = 2.0 * DRIFT * (middle + OVERSHOOT)
        if (math.exp(b) - 1.0 - b) / (2.0 * DRIFT**2) < run_length:
            low = middle
        else:
            high = middle
    return max(high, 0.0)
