"""A watch on how well the model predicts: it tells when a world has changed.

The log-likelihood of each block of rows, less what the block before it has led to expect, is ranked among those of
earlier blocks. As long as nothing changes, every rank is as likely as any other, whatever the model and the data: so
how often there is a false alarm follows from the threshold alone. Ranks become normal deviates, and those of a fit that
has become worse add up in a sum that is never less than 0 (Page's CUSUM). When it exceeds the threshold, this is an
alarm.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from hmmstream.arrays import FloatArray
from hmmstream.record import Record

BLOCK = 64  # rows
EARLIER = 1024  # blocks with which one is compared
FEWEST = 32  # blocks that are needed for that
DRIFT = 0.5  # what is taken from each deviate: half of the change that is found soonest
WORST = 4.5  # deviate of a block that is worse than all others: no single one raises an alarm that is to be rare
OVERSHOOT = 1.166  # Siegmund's correction: a sum of steps exceeds its threshold by so much
GATHERED = 512  # rows after an alarm, to begin anew from
NORMAL = NormalDist()
NUMBERS = ("n_waiting", "n_idle", "since", "excess", "before", "n_gathered")


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
        Rows between two false alarms, on average, of those that are looked at.
    n_features : int
        Of a row: those after an alarm are gathered.
    """

    gathered: Record | None = None  # rows after an alarm, when there are enough now

    def __init__(self, idle: float, alarm_every: float, n_features: int) -> None:
        self._idle = math.ceil(idle)
        self._threshold = threshold_for(alarm_every / BLOCK)
        self.changes: list[Change] = []
        self.X, self.is_start = np.zeros((GATHERED, n_features)), np.zeros(GATHERED, dtype=np.bool_)
        self.n_gathered = GATHERED  # none are, until there is an alarm
        self.begin(0)

    def begin(self, n_seen: int) -> None:
        """Compare with what comes from now on."""
        self.earlier: FloatArray = np.zeros(0)
        self.excess = 0.0
        self.since = n_seen
        self.n_waiting = 0  # rows of the block at hand
        self.n_idle = self._idle
        self.before = math.nan  # log-likelihood when the block began

    @property
    def room(self) -> int:
        """The number of rows that can be taken before there is work to do."""
        room = self.n_idle or BLOCK - self.n_waiting
        return min(room, GATHERED - self.n_gathered) if self.n_gathered < GATHERED else room

    def take(self, data: Record) -> None:
        """Count some rows, no more than there is ``room`` for, and gather them after an alarm."""
        n = len(data)
        if self.n_idle:
            self.n_idle -= n
        else:
            self.n_waiting += n
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

    def work(self, n_seen: int, log_likelihood: float) -> bool:
        """When rows have come to the end of a block, judge it; whether this is an alarm."""
        if self.n_waiting < BLOCK:
            if not self.n_waiting and not self.n_idle:  # the first block begins
                self.before = log_likelihood
            return False
        fit, self.before, self.n_waiting = log_likelihood - self.before, log_likelihood, 0
        if not math.isfinite(fit):
            return False
        if len(self.earlier) >= FEWEST:
            *_, now = found = news(np.append(self.earlier, fit))
            others = found[:-1]
            rank = (np.sum(others < now) + 0.5 * np.sum(others == now) + 0.5) / (len(others) + 1)
            deviate = -NORMAL.inv_cdf(float(rank))
            if now < others.min():  # a rank cannot say how much worse this is
                deviate = min(max(deviate, float((others.mean() - now) / others.std())), WORST)
            self.excess += deviate - DRIFT
            if self.excess <= 0.0:
                self.excess, self.since = 0.0, n_seen
        self.earlier = np.append(self.earlier, fit)[-EARLIER:]
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
        return {**numbers, **rows, "earlier": self.earlier, "changes": changes}

    def restore(self, document: dict[str, Any]) -> None:
        """Go on from a document; one that does not fit is refused."""
        for name in NUMBERS:
            value = document[name]
            if type(value) is not type(getattr(self, name)) or (isinstance(value, int) and not 0 <= value < 2**53):
                raise ValueError(f"{name} of its watch is {value!r}")
            setattr(self, name, value)
        earlier, changes = document["earlier"], document["changes"]
        fits = isinstance(earlier, np.ndarray) and isinstance(changes, np.ndarray) and changes.dtype == np.int64
        if not fits or earlier.dtype != np.float64 or earlier.ndim != 1 or len(earlier) > EARLIER:
            raise ValueError("its watch does not hold what it should")
        X, is_start = document["X"], document["is_start"]
        for kept, now in ((X, self.X), (is_start, self.is_start)):
            if not isinstance(kept, np.ndarray) or kept.shape != now.shape or kept.dtype != now.dtype:
                raise ValueError("its watch does not hold what it should")
        if np.isinf(X).any() or self.n_gathered > GATHERED:
            raise ValueError("its watch does not hold what it should")
        self.X, self.is_start = X.copy(), is_start.copy()
        if not np.isfinite(earlier).all() or not 0.0 <= self.excess < math.inf or self.n_waiting >= BLOCK:
            raise ValueError("its watch does not hold what it should")
        self.earlier = earlier.copy()
        self.changes = [Change(int(at), int(since)) for at, since in changes.reshape(-1, 2)]


def news(fits: FloatArray) -> FloatArray:
    """What each block but the first adds to what the one before it had led to expect."""
    deviations = fits - fits.mean()
    before, now = deviations[:-1], deviations[1:]
    size = before @ before
    return np.asarray(now - before * (now @ before / size if size > 0.0 else 0.0))


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
