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

BLOCK = 64  # rows
EARLIER = 1024  # blocks with which one is compared
FEWEST = 32  # blocks that are needed for that
DRIFT = 0.5  # what is taken from each deviate: half of the change that is found soonest
OVERSHOOT = 1.166  # Siegmund's correction: a sum of steps exceeds its threshold by so much
NORMAL = NormalDist()
NUMBERS = ("n_waiting", "n_idle", "since", "excess", "before")


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
    """

    def __init__(self, idle: float, alarm_every: float) -> None:
        self._idle = math.ceil(idle)
        self._threshold = threshold_for(alarm_every / BLOCK)
        self.changes: list[Change] = []
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
        return self.n_idle or BLOCK - self.n_waiting

    def take(self, n: int) -> None:
        """Count some rows, no more than there is ``room`` for."""
        if self.n_idle:
            self.n_idle -= n
        else:
            self.n_waiting += n

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
            others, now = np.split(news(np.append(self.earlier, fit)), [-1])
            rank = (np.sum(others < now) + 0.5 * np.sum(others == now) + 0.5) / (len(others) + 1)
            self.excess += -NORMAL.inv_cdf(float(rank)) - DRIFT
            if self.excess <= 0.0:
                self.excess, self.since = 0.0, n_seen
        self.earlier = np.append(self.earlier, fit)[-EARLIER:]
        if self.excess <= self._threshold:
            return False
        self.changes.append(Change(n_seen, self.since))
        self.begin(n_seen)
        return True

    # --- storage ----------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """All that it holds, as numbers and arrays."""
        changes = np.array(self.changes, dtype=np.int64).reshape(-1, 2)
        return {**{name: getattr(self, name) for name in NUMBERS}, "earlier": self.earlier, "changes": changes}

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
