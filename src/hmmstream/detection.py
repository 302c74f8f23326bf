"""A watch on how well the model predicts: it tells when a world has changed.

The log-likelihood of each block of rows, less what the states that it began and ended in and the block before it have
led to expect, is ranked among those of earlier blocks. As long as nothing changes, every rank is as likely as any
other, whatever the model and the data: so how often there is a false alarm follows from the threshold alone. Ranks
become normal deviates, and those of a fit that has become worse add up in a sum that is never less than 0 (Page's
CUSUM). When it exceeds the threshold, this is an alarm.
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
UNMOVED = (
    32.0  # blocks in whose favour it is that states make no difference: where they hardly do, they explain nothing
)
DRIFT = 0.5  # what is taken from each deviate: half of the change that is found soonest
WORST = 4.5  # the largest deviate: no single block raises an alarm that is to be rare
LEAST_SHARE = 1e-9  # of blocks that are worse: beyond the largest deviate
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
    n_states : int
        Of the model.
    """

    gathered: Record | None = None  # rows after an alarm, when there are enough now

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

    def work(self, n_seen: int, log_likelihood: float, states: FloatArray) -> bool:
        """When rows have come to the end of a block, judge it; whether this is an alarm.

        ``states`` are their probabilities, given all rows so far.
        """
        if self.n_waiting < BLOCK:
            if not self.n_waiting and not self.n_idle:  # the first block begins
                self.before, self.began_in = log_likelihood, states.copy()
            return False
        block = np.append(log_likelihood - self.before, 0.5 * (self.began_in + states))
        self.before, self.began_in, self.n_waiting = log_likelihood, states.copy(), 0
        if not math.isfinite(block[0]):
            return False
        blocks = np.vstack((self.earlier, block))
        if len(self.earlier) >= FEWEST:
            n_recent = 1 + (n_seen - self.since) // BLOCK  # those that have been worse since then
            *_, now = found = news(blocks, max(len(blocks) - n_recent, FEWEST))
            self.excess += min(-NORMAL.inv_cdf(share_below(now, found[:-1])), WORST) - DRIFT
            if self.excess <= 0.0:
                self.excess, self.since = 0.0, n_seen
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
        if "began_in" not in document:  # from before states were looked at: it gets to know the fit anew
            document = {**self.document(), "changes": document["changes"]}
        for name in NUMBERS:
            value = document[name]
            if type(value) is not type(getattr(self, name)) or (isinstance(value, int) and not 0 <= value < 2**53):
                raise ValueError(f"{name} of its watch is {value!r}")
            setattr(self, name, value)
        for name, now in self.document().items():
            held = document[name]
            is_list = name in ("earlier", "changes")  # of any length
            if isinstance(now, np.ndarray) and not (
                isinstance(held, np.ndarray)
                and held.dtype == now.dtype
                and held.shape[is_list:] == now.shape[is_list:]
                and (name == "X" or np.isfinite(held).all())
            ):
                raise ValueError("its watch does not hold what it should")
        X, earlier, changes = document["X"], document["earlier"], document["changes"]
        if np.isinf(X).any() or self.n_gathered > GATHERED or len(earlier) > EARLIER:
            raise ValueError("its watch does not hold what it should")
        if not 0.0 <= self.excess < math.inf or self.n_waiting >= BLOCK:
            raise ValueError("its watch does not hold what it should")
        self.X, self.is_start = X.copy(), document["is_start"].copy()
        self.earlier, self.began_in = earlier.copy(), document["began_in"].copy()
        self.changes = [Change(int(at), int(since)) for at, since in changes]


def news(blocks: FloatArray, n_known: int) -> FloatArray:
    """What each block but the first adds to what its states and the block before it had led to expect.

    What to expect is known from the first blocks alone: from a change, which may have begun since, it is not learned.
    """
    deviations = blocks - blocks[:n_known].mean(axis=0)
    fits, states = deviations[:, 0], deviations[:, 1:]
    known = states[:n_known]
    products = known.T @ known + UNMOVED * np.eye(known.shape[1])
    fits = fits - states @ np.linalg.solve(products, known.T @ fits[:n_known])
    before, now = fits[: n_known - 1], fits[1:n_known]
    size = before @ before
    added = fits[1:] - fits[:-1] * (now @ before / size if size > 0.0 else 0.0)
    added[n_known - 1 :] *= 1.0 - 2.0 / n_known  # larger than the others, to which a mean and a slope were fitted
    return np.asarray(added)


def share_below(value: float, others: FloatArray) -> float:
    """The probability of a value as small as this one: its rank, and below an eighth of the others an exponential tail.

    A rank alone could not say how much smaller than all others a value is.
    """
    n_tail = max(len(others) // 8, 8)
    *tail, edge = np.partition(others, n_tail)[: n_tail + 1]
    scale = edge - np.mean(tail)
    if value >= edge or scale == 0.0:
        rank = np.sum(others < value) + 0.5 * np.sum(others == value)
        return float(rank + 0.5) / (len(others) + 1)
    return max(float((n_tail + 0.5) / (len(others) + 1) * np.exp((value - edge) / scale)), LEAST_SHARE)


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
