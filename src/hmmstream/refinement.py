"""The second stage of learning: as accurate as maximum likelihood, in one pass, with nothing to tune.

Online EM is robust far from the answer and slow close to it. The second stage starts from what it has found. It follows
the derivatives of the filter by all parameters, which give the score of each row, the gradient of its log predictive
density, and moves the parameters by Newton steps: the inverse of the information of all rows, times the score of a
block of new ones. This is recursive maximum likelihood, which no other method beats in the long run.

What it needs is a good start. So the first rows are kept, and each time that their number has doubled one looks at
all of them again and climbs to the maximum of their likelihood. Where the recursion had been left next to nothing to
climb, it is trusted from there on, and the rows are let go: when that is, the data decides. If it predicts worse than
online EM for a while, it is given up, and begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from hmmstream import inference, information
from hmmstream.arrays import UNKNOWN, FloatArray, IntArray, known_states, row_weights
from hmmstream.em import EM
from hmmstream.inference import Memory, Pass, Workers
from hmmstream.model import HMM
from hmmstream.parameters import Parameters, Point
from hmmstream.record import Record, join
from hmmstream.recursions import exact, products, scores
from hmmstream.recursions.bridge import specialize

FIRST_LOOK = 1024  # rows
ROWS_A_PARAMETER = 16  # that a look needs at least
KNOWN_FROM = 16  # rows, if each told as much of a direction as of its parameters: of others nothing is known
MOST_ROWS = 2**15  # that are kept
MOST_NUMBERS = 2**20  # if there are many features
BLOCK, SHARE = 256, 8  # rows of a block: so many, or this share of all before it once the recursion is proven,
SHARE_BETWEEN_LOOKS = 4  # or this one, as long as one looks at all rows again
LARGEST_BLOCK = 2**13
RECENT_ROWS = 2**13  # that are kept for the curvature of the likelihood
STEPS = 20  # of a climb
AT_THE_TOP = 0.05  # log-likelihood that a further step would gain
EM_ITERATIONS = 60
FEW_LOOKS = 4  # times FIRST_LOOK: up to this number of rows, the start has another chance
FEWEST_VISITS = 32.0  # rows in each state
NEXT_TO_NOTHING = 0.5  # log-likelihood: a look that gains less is quiet, and tops that differ by less are as good
QUIET_LOOKS = 2  # in a row, after which the recursion is trusted
GIVEN_UP = 12.0  # log-likelihood that is lost against online EM
PROVEN = 3.0  # the same, at the end of a block: less than this is as good
SIZES = 1e-100, 1e100  # of rates and variances: what is smaller or larger is taken for these
MEMORY = Memory()  # of all second stages: a thread is at one at a time
RIDGE = 1e-9  # of the information, each parameter in its own unit: what nobody knows stays as it is


class Score(NamedTuple):
    """What rows say about the parameters at some point."""

    log_likelihood: float
    gradient: FloatArray
    outer: FloatArray  # sum of the outer products of the gradients of each row
    scatter: FloatArray  # the same for the sums over so many rows that they are independent, whatever the world is

    @property
    def is_finite(self) -> bool:
        """Whether anything can be learned from it."""
        return math.isfinite(self.log_likelihood) and all(bool(np.isfinite(part).all()) for part in self[1:])

    @property
    def height(self) -> float:
        """The log-likelihood of a point from which one can climb."""
        return self.log_likelihood if self.is_finite else -np.inf


class Position(NamedTuple):
    """Where the filter stands, and how that changes with the parameters."""

    phi: FloatArray  # (m,)
    slopes: FloatArray  # (parameters, m)


class Top(NamedTuple):
    """Where a climb has ended."""

    values: FloatArray
    score: Score
    position: Position  # after all rows
    gained: float  # log-likelihood
    is_reached: bool


class Step(NamedTuple):
    """Where the recursion comes to with some more rows."""

    log_likelihood: float  # of these rows
    values: FloatArray
    information: FloatArray
    scatter: FloatArray
    position: Position


class Refinement:
    """Parameters that follow the maximum of the likelihood. They are there once it ``is_active``, and good once proven.

    Parameters
    ----------
    start : HMM
        The family and the structure, and where EM begins that looks at the first rows.
    """

    def __init__(self, start: HMM) -> None:
        self.model = start
        self._lay_out()
        self.begin()

    def _lay_out(self) -> None:
        self._parameters = Parameters(self.model)
        self._directions = self._parameters.directions()
        self._start_slopes = self._parameters.start_slopes(self.model.transmat)
        self._chain = exact.Chain(self.model.n_components)
        self._groups, self._table = self._parameters.groups.ravel(), self._parameters.table.ravel()
        self._loops: dict[tuple[bool, bool], Any] = {}  # compiled, for rows with known states and weights or without
        self._last_step: tuple[tuple[int, ...], Step] | None = None

    @staticmethod
    def is_possible(start: HMM, most_parameters: int) -> bool:
        """Whether there is a second stage: the family has derivatives, and there are not too many parameters."""
        return start.emission.has_gradient and 0 < len(Parameters(start).free()) <= most_parameters

    def begin(self, n_idle: int = 0) -> None:
        """Gather rows for a new beginning, after so many more that are not kept."""
        d, size = self.model.emission.n_features, self._parameters.size
        self.is_active = self.is_trusted = self.is_proven = False
        self.past_blocks: list[Record] = []  # rows that were let go: the latest, or some more
        self.values = np.zeros(size)
        self.information = np.zeros((size, size))
        self.scatter = np.zeros((size, size))
        self.damping = np.zeros(size)
        self.determined = self._directions.copy()  # directions in which the parameters move
        self.position = self._first_position()
        self.X = np.empty((FIRST_LOOK, d))  # rows that are kept, or wait
        self.is_start = np.zeros(FIRST_LOOK, dtype=np.bool_)
        self.states = np.full(FIRST_LOOK, UNKNOWN)
        self.weights = np.ones(FIRST_LOOK)
        self.has_states = self.has_weights = False
        self.n_idle = n_idle
        self.n_rows = 0  # in these arrays
        self.n_done = 0  # of them that the recursion has gone through
        self.n_before = 0  # rows that were let go
        self.next_look = max(FIRST_LOOK, ROWS_A_PARAMETER * self._directions.shape[1])
        self.n_quiet = 0  # looks in a row that found next to nothing
        self.is_interrupted = False  # the rows before the next one were not taken
        self.lost = 0.0  # log-likelihood, against online EM
        self.rival = 0.0  # the log-likelihood that online EM had come to when the last block ended
        self._last_step = None
        self._count_room()

    def _first_position(self) -> Position:
        return Position(np.array(self.model.startprob), np.zeros_like(self._start_slopes))

    @property
    def _largest(self) -> int:
        return int(min(MOST_ROWS, max(MOST_NUMBERS // self.X.shape[1], self.next_look)))

    def _count_room(self) -> None:
        """Find the number of rows that can be taken before there is work to do, which ``room`` says."""
        ends = [] if self.is_trusted else [self.next_look - self.n_rows]
        if self.is_active:
            share = (self.n_before + self.n_done) // (SHARE if self.is_trusted else SHARE_BETWEEN_LOOKS)
            block = min(max(BLOCK, share), LARGEST_BLOCK) if self.is_proven else BLOCK
            ends.append(self.n_done + block - self.n_rows)
        self.room = int(self.n_idle or min(ends))

    def take(self, data: Record) -> None:
        """Keep some rows, no more than there is ``room`` for."""
        if self.n_idle:
            self.n_idle -= len(data)
            self._count_room()
            return
        if self.is_interrupted:
            data.is_start[:1] = True
            self.is_interrupted = False
        self._keep(data)
        self.room -= len(data)

    def take_one(self, row: FloatArray, is_start: bool) -> None:
        """The same for one row of which nothing else is known, in less time."""
        n = self.n_rows
        if self.n_idle or self.is_interrupted or n == len(self.X):
            self.take(Record(row, np.array([is_start])))
            return
        self.X[n], self.is_start[n], self.states[n], self.weights[n] = row[0], is_start, UNKNOWN, 1.0
        self.n_rows = n + 1
        self.room -= 1

    def _keep(self, data: Record) -> None:
        first, last = self.n_rows, self.n_rows + len(data)
        if last > len(self.X):
            more = max(last, 2 * len(self.X)) - len(self.X)
            self.X, self.is_start, self.states, self.weights = (  # at once: there may be an interrupt
                np.concatenate([self.X, np.empty((more, self.X.shape[1]))]),
                np.concatenate([self.is_start, np.zeros(more, dtype=np.bool_)]),
                np.concatenate([self.states, np.full(more, UNKNOWN)]),
                np.concatenate([self.weights, np.ones(more)]),
            )
        self.X[first:last], self.is_start[first:last] = data.X, data.is_start
        self.has_states |= data.states is not None
        self.has_weights |= data.weights is not None
        if self.has_states:  # until then, all are unknown
            self.states[first:last] = UNKNOWN if data.states is None else data.states
        if self.has_weights:
            self.weights[first:last] = 1.0 if data.weights is None else data.weights
        self.n_rows = last

    def interrupt(self) -> None:
        """Let rows pass that nothing is to be learned from."""
        self.is_interrupted, self.rival = True, np.nan

    def work(self, found: Callable[[], HMM], log_likelihood: float) -> None:
        """Go on, when there is no more room: ``found`` tells what online EM has come to, with this log-likelihood."""
        if self.is_active:
            self._follow(log_likelihood)
        if not self.is_trusted and self.n_rows >= self.next_look:
            self._look(found(), log_likelihood)
        self._count_room()

    # --- the recursion ----------------------------------------------------------------------------------------------

    def _follow(self, rival: float) -> None:
        """A Newton step for the rows of a block, unless online EM had predicted them better."""
        step = self._step()
        ahead, lost = rival - self.rival, self.lost
        is_judged = step is not None and math.isfinite(ahead)
        if step is not None and is_judged:
            lost = max(0.0, lost + ahead - step.log_likelihood)
        if step is None or lost > GIVEN_UP:
            self.begin()
            return
        # All at once, and at the end: work that is broken off is done again
        _, self.values, self.information, self.scatter, self.position = step
        self.rival, self.lost, self.n_done = rival, lost, self.n_rows
        self.is_proven |= is_judged and bool(lost < PROVEN)
        if self.is_trusted:
            self._let_go()

    def _step(self) -> Step | None:
        """A Newton step for the rows that wait; None if they cannot be."""
        score, position = self._score(self.values, self._record(self.n_done, self.n_rows), self.position)
        if not score.is_finite:
            return None
        information, scatter = self.information + score.outer, self.scatter + score.scatter
        moved = self._moved(self.values, self._newton(self.determined, information, self.damping, score.gradient))
        values = moved if np.isfinite(moved).all() else self.values
        return Step(score.log_likelihood, values, information, scatter, position)

    def _let_go(self) -> None:
        """Forget the rows, but for the latest."""
        self.past_blocks.append(join([self._record(0, self.n_rows)[-RECENT_ROWS:]]))
        while sum(map(len, self.past_blocks[1:])) >= RECENT_ROWS:
            del self.past_blocks[0]
        self.n_before, self.n_rows, self.n_done = self.n_before + self.n_rows, 0, 0

    def _recent(self, n_rows: int) -> Record:
        """The latest of the rows that were let go, and of so many that are kept."""
        return join([*self.past_blocks, self._record(0, n_rows)])[-RECENT_ROWS:]

    # --- looks ------------------------------------------------------------------------------------------------------

    def _look(self, found: HMM, rival: float) -> None:
        """Climb to the maximum of the likelihood of all rows, from all that is known."""
        data = self._record(0, self.n_rows)
        tops = [self._climb(self.values, data)] if self.is_active else []
        is_quiet = self.is_active and tops[0].is_reached and tops[0].gained < NEXT_TO_NOTHING
        if not is_quiet and self.n_rows <= FEW_LOOKS * FIRST_LOOK:
            tops.append(self._climb(self._batch_em(data), data))
        tops.append(self._climb(self._parameters.values_of(found), data))
        best: Top | None = None
        for top in tops:  # the same top, with its states in another order, is no better
            is_higher = best is None or top.score.height > best.score.height + NEXT_TO_NOTHING
            if top.is_reached and is_higher and self._visits(top.values, data).min() >= FEWEST_VISITS:
                best = top
        is_last = self.n_rows >= self._largest
        if is_last and best is None:
            self.begin(n_idle=self.n_rows)
            return
        if best is not None:  # from here on all at once: what is broken off is done again
            damping = self._damping(best.values, best.score.outer)
            determined = self._find_determined(best.score.outer)
        self.is_active = best is not None
        self.is_proven &= self.is_active
        self.n_quiet = self.n_quiet + 1 if is_quiet and best is tops[0] else 0
        if best is not None:
            self.is_trusted = self.n_quiet >= QUIET_LOOKS or is_last
            self.values, self.position = best.values, best.position
            self.information, self.scatter = best.score.outer, best.score.scatter
            self.damping, self.determined = damping, determined
            self.n_done, self.rival, self.lost = self.n_rows, rival, 0.0
        self.next_look = min(2 * self.n_rows, self._largest)
        if self.is_trusted:
            self._let_go()
            self.X, self.is_start = self.X[:FIRST_LOOK].copy(), self.is_start[:FIRST_LOOK].copy()
            self.states, self.weights = self.states[:FIRST_LOOK].copy(), self.weights[:FIRST_LOOK].copy()

    def _batch_em(self, data: Record) -> FloatArray:
        """What EM makes of all rows at once: online, a bad start may lose a state in the first of them."""
        try:
            fit = EM(self.model, data, start_kind="fixed").run(EM_ITERATIONS, tol=1.0)
            return self._parameters.values_of(fit.model)
        except (RuntimeError, ValueError, np.linalg.LinAlgError):  # a family whose M-step is not exact, say
            return self._parameters.values

    def _damping(self, values: FloatArray, outer: FloatArray) -> FloatArray:
        """Information that nobody has: it keeps parameters where they are of which the data say next to nothing.

        It is about that of one row on the best known parameter of the same kind; of rates and variances, which may be
        of different sizes, on its logarithm.
        """
        damping, table = np.ones(len(outer)), self._parameters.table  # a kind is a column
        is_size = (self._parameters.low == 0.0) & (self._parameters.high == np.inf)
        squares = np.where(is_size, np.clip(values, *SIZES), 1.0) ** 2
        best_known = (outer.diagonal() * squares)[table].max(axis=0)
        damping[table] = best_known / max(self.n_rows, 1) / squares[table]
        return damping

    def _find_determined(self, outer: FloatArray) -> FloatArray:
        """Directions that the rows tell something about, and columns of 0 in place of others.

        In a mixture of symbols, say, only the probability of each symbol is determined. Where the other directions lie
        changes with the parameters: new rows would seem to know more of them than all before, and would move them.
        """
        matrix, unit = scaled(self._directions.T @ outer @ self._directions)
        try:
            information, vectors = np.linalg.eigh(matrix)
        except np.linalg.LinAlgError:
            return self._directions.copy()
        least = KNOWN_FROM / self.n_rows
        if information[0] > least:
            return self._directions.copy()
        vectors[:, information <= least] = 0.0
        return np.asarray(self._directions @ (vectors / unit[:, np.newaxis]))

    def _climb(self, values: FloatArray, data: Record) -> Top:
        """Newton steps with the outer information, shorter ones where they lead down."""
        first = self._first_position()
        score, position = self._score(values, data, first)
        below = score.log_likelihood
        if score.height == -np.inf:
            return Top(values, score, position, 0.0, False)
        for _ in range(STEPS):
            step = self._newton(self._directions, score.outer, self._damping(values, score.outer), score.gradient)
            while True:
                moved = self._moved(values, step)
                promised = float(score.gradient @ (moved - values))
                if not promised >= AT_THE_TOP:
                    return Top(values, score, position, score.log_likelihood - below, bool(np.isfinite(promised)))
                there, position_there = self._score(moved, data, first)
                if there.height > score.log_likelihood:
                    break
                step = 0.25 * step
            values, score, position = moved, there, position_there
        return Top(values, score, position, score.log_likelihood - below, False)

    # --- at some point of the parameters ----------------------------------------------------------------------------

    def _record(self, first: int, last: int) -> Record:
        piece = slice(first, last)
        states = self.states[piece] if self.has_states else None
        return Record(self.X[piece], self.is_start[piece], states, self.weights[piece] if self.has_weights else None)

    def _at(self, values: FloatArray, data: Record) -> Score:
        """What rows from the beginning say about the parameters."""
        return self._score(values, data, self._first_position())[0]

    def _score(self, values: FloatArray, data: Record, position: Position) -> tuple[Score, Position]:
        """What rows say about the parameters, and where the filter stands then."""
        size = self._parameters.size
        wide = products.padded(size)
        sums = np.zeros(wide), np.zeros((wide, wide)), np.zeros((wide, wide))
        with np.errstate(all="ignore"):  # what is no number is seen to by those who asked
            try:
                log_likelihood, after = self._add_scores(self._parameters.at(values), data, position, sums)
            except (ValueError, ZeroDivisionError):  # a variance of 0, say
                log_likelihood, after = np.nan, position
        gradient, outer, scatter = sums
        return Score(log_likelihood, gradient[:size], outer[:size, :size], scatter[:size, :size]), after

    def _add_scores(
        self, point: Point, data: Record, position: Position, sums: tuple[FloatArray, ...]
    ) -> tuple[float, Position]:
        """Add gradients and their products to the sums. The log-likelihood, and where the filter stands then."""
        phi, slopes = position.phi.copy(), position.slopes.copy()
        model = (point.emission.theta(), point.startprob, point.transmat, inference.vanished(point.transmat))
        arguments = (
            *(point.emission, self._chain, products.TILE, *model),
            *(self._groups, self._table, self._start_slopes),
            *(data.X, data.is_start, data.states, data.weights),
            *(phi, slopes, *sums),
        )
        kind = data.states is None, data.weights is None
        if kind not in self._loops:
            self._loops[kind] = specialize(scores.add_scores, *arguments)
        log_likelihood = self._loops[kind](*arguments)
        if not math.isnan(log_likelihood):
            return log_likelihood, Position(phi, slopes)
        return self._add_scores_in_logs(point, data, position, sums)

    def _add_scores_in_logs(
        self, point: Point, data: Record, position: Position, sums: tuple[FloatArray, ...]
    ) -> tuple[float, Position]:
        """The same where the probability of a state that may matter later is too small for a float."""
        for part in sums:
            part[:] = 0.0
        phi, slopes, log_likelihood = np.log(position.phi), position.slopes.copy(), 0.0
        work = Pass(point, min(len(data), LARGEST_BLOCK), MEMORY, in_logs=True)
        for piece in work.blocks(len(data)):
            block = data[piece]
            of_block, by_row = information.follow(work, self._parameters, self._start_slopes, block, phi, slopes)
            log_likelihood += of_block
            weighted = by_row if block.weights is None else by_row * block.weights[:, np.newaxis]
            products.add_products(products.TILE, by_row, weighted, scores.TOGETHER, *sums)
        return log_likelihood, Position(np.exp(phi), slopes)

    def _visits(self, values: FloatArray, data: Record) -> FloatArray:
        """Expected number of rows in each state of which something was seen."""
        filtered = inference.run(inference.filtered_probabilities, self._parameters.at(values), data, MEMORY)
        is_seen = ~np.isnan(data.X).all(axis=1) & (True if data.weights is None else data.weights > 0.0)
        return np.asarray(is_seen @ filtered)

    def _newton(self, D: FloatArray, outer: FloatArray, damping: FloatArray, gradient: FloatArray) -> FloatArray:
        """The step along the directions ``D`` to where the gradient vanishes."""
        with np.errstate(all="ignore"):
            damped = outer.copy()
            damped.flat[:: len(outer) + 1] += damping
            matrix, unit = scaled(D.T @ damped @ D)
            slope = D.T @ gradient
        matrix.flat[:: len(matrix) + 1] += RIDGE
        try:
            return np.asarray(D @ (np.linalg.solve(matrix, slope / unit) / unit))
        except np.linalg.LinAlgError:
            return np.zeros(len(D))

    def _moved(self, values: FloatArray, change: FloatArray) -> FloatArray:
        """Other values. Half of the way to its bound a parameter goes as it is told to, and from there on ever less."""
        bound = np.where(change < 0.0, self._parameters.low, self._parameters.high)
        with np.errstate(all="ignore"):
            moved, span = values + change, bound - values
            is_far = abs(change) > 0.5 * abs(span)
            if is_far.any():
                slowed = bound - 0.5 * span * np.exp(1.0 - 2.0 * change / span)
                moved[is_far] = slowed[is_far]
        for members, counts in self._parameters.sums:
            moved[members] /= counts @ moved[members]
        return moved

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"n_quiet": 0, **state})  # of which those from before know nothing
        self._lay_out()

    # --- what was found ---------------------------------------------------------------------------------------------

    @property
    def found(self) -> HMM:
        """The model, with what those rows say that wait for the end of their block."""
        return self._model_at(self._latest().values)

    def _latest(self) -> Step:
        """Where the recursion stands, with all rows; it is remembered until there are more."""
        rows = (self.n_before, self.n_done, self.n_rows)
        if self._last_step is None or self._last_step[0] != rows:
            step = self._step() if self.n_rows > self.n_done else None
            here = Step(0.0, self.values, self.information, self.scatter, self.position)
            self._last_step = rows, step or here
        return self._last_step[1]

    def _model_at(self, values: FloatArray) -> HMM:
        point = self._parameters.at(values)
        return HMM(self.model.startprob, point.transmat, point.emission, self.model.transition)

    def spread(self, model: HMM, *, robust: bool = False) -> information.Spread:
        """How far ``model`` may be from the truth, from the information of all rows.

        If ``robust``, also where the truth is no model of this kind: the scatter of the scores is taken as it is, and
        the curvature of the likelihood from the latest rows.
        """
        parameters = Parameters(model)
        recent = self._recent(self.n_rows)
        if self.is_active:
            _, _, outer, scatter, _ = self._latest()
            n = self.n_before + self.n_rows
        else:
            if len(recent) < ROWS_A_PARAMETER * self._directions.shape[1]:
                raise ValueError(
                    f"there is no second stage yet, and {len(recent)} rows are too few to tell errors from: learn from "
                    "more, or call keep_journal() before learning"
                )
            score = self._at(parameters.values, recent)
            n, outer, scatter = len(recent), score.outer, score.scatter
        on_edge = information.is_on_edge(parameters, outer, max(n, 1))
        if not robust:
            return information.spread(parameters, outer, on_edge)
        scales = information.natural_scales(parameters, outer, max(n, 1))
        curvature = information.observed_information(parameters, recent, scales, Workers(1))
        return information.robust_spread(parameters, curvature * n / len(recent), scatter, on_edge)

    # --- order and storage ------------------------------------------------------------------------------------------

    def relabel(self, at: IntArray, start: HMM) -> None:
        """Put the states in another order: ``start`` has its states in the new one, in which i was ``at[i]``."""
        before = self._parameters
        self.model = start
        self._lay_out()
        after = self._parameters
        source = np.empty(after.size, dtype=np.int64)
        is_group = after.groups >= 0
        source[after.groups[is_group]] = before.groups[np.ix_(at, at)][is_group]
        source[after.table] = before.table[at]
        self.values, self.damping, self.determined = (
            by_parameter[source] for by_parameter in (self.values, self.damping, self.determined)
        )
        self.information = self.information[np.ix_(source, source)]
        self.scatter = self.scatter[np.ix_(source, source)]
        self.position = Position(self.position.phi[at], self.position.slopes[np.ix_(source, at)])
        new_name = np.append(np.argsort(at), UNKNOWN)  # of each state, and of one that is not known
        self.states = new_name[self.states]
        self.past_blocks = [
            block if block.states is None else replace(block, states=new_name[block.states])
            for block in self.past_blocks
        ]

    def document(self) -> dict[str, Any]:
        """All that it holds, as numbers and arrays."""
        kept = self._record(0, self.n_rows)
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return {**numbers, **self.position._asdict(), "rows": vars(kept), "recent": vars(self._recent(0))}

    def restore(self, document: dict[str, Any]) -> None:
        """Go on from a document; one that does not fit is refused."""
        document = {"n_quiet": 0, **document}  # of which files from before know nothing
        for name, now in ((name, getattr(self, name)) for name in NUMBERS):
            value = document[name]
            if isinstance(now, np.ndarray):
                value = _fitting(value, now.shape)
            elif type(value) is not type(now) or (isinstance(now, int) and not 0 <= value < 2**53):
                raise ValueError(f"{name} of its second stage is {value!r}")
            setattr(self, name, value)
        phi, slopes = _fitting(document["phi"], self.position.phi.shape), document["slopes"]
        n_parameters, m = self.position.slopes.shape
        if np.ndim(slopes) == 2 and len(slopes) == m and len(slopes[0]) >= n_parameters:
            slopes = np.zeros((n_parameters, m))  # a file from before they were by parameter; the filter forgets them
        self.position = Position(phi, _fitting(slopes, (n_parameters, m)))
        data, recent = (self._restored(document[name]) for name in ("rows", "recent"))
        self.past_blocks = [recent]
        n = self.n_rows
        is_sound = (
            self.is_active >= max(self.is_proven, self.is_trusted)
            and not (self.n_idle and (n or self.is_active))
            and len(data) == n >= self.n_done
            and (self.is_trusted or n <= self.next_look)
            and max(n, self.next_look) <= 2 * MOST_ROWS
            and len(recent) <= RECENT_ROWS
            and 0.0 <= self.lost <= GIVEN_UP
            and self.n_quiet <= QUIET_LOOKS
            and (self.position.phi >= 0.0).all()
            and abs(self.position.phi.sum() - 1.0) < 1e-8
            and all((np.diag(matrix) >= 0.0).all() for matrix in (self.information, self.scatter))
            and (self.damping >= 0.0).all()
        )
        if not is_sound:
            raise ValueError("its second stage is not one that a stream leads to")
        self._count_room()  # less than 0, if blocks were longer when the file was written
        self.n_rows = 0
        self._keep(data)
        if self.is_active:
            self._model_at(self.values)  # or this says why they make none

    def _restored(self, held: dict[str, Any]) -> Record:
        n, m = len(held["X"]), self.model.n_components
        X, accepts = _fitting(held["X"], (n, self.X.shape[1]), can_miss=True), self.model.emission.accepts_at
        if not all(accepts(a, value) for row in X.tolist() for a, value in enumerate(row) if value == value):
            raise ValueError("its second stage holds rows that its model refuses")  # found out without compiling
        is_start = np.array(held["is_start"], dtype=np.bool_).reshape(n)
        return Record(X, is_start, known_states(held["states"], n, m), row_weights(held["weights"], n))


NUMBERS = (
    *(
        "is_active",
        "is_trusted",
        "is_proven",
        "is_interrupted",
        "n_idle",
        "n_rows",
        "n_done",
        "n_before",
        "next_look",
        "n_quiet",
        "lost",
        "rival",
    ),
    *("values", "information", "scatter", "damping", "determined"),
)


def scaled(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """An information in units in which that on each parameter is 1, and these units."""
    unit = np.sqrt(np.maximum(matrix.diagonal(), 0.0))  # rounding may have left less than nothing
    unit[unit == 0.0] = 1.0
    return matrix / unit / unit[:, np.newaxis], unit


def _fitting(array: Any, shape: tuple[int, ...], *, can_miss: bool = False) -> FloatArray:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != np.float64:
        raise ValueError("its second stage is not that of its model")
    if not (np.isfinite(array) | (np.isnan(array) & can_miss)).all():
        raise ValueError("its second stage must hold finite numbers")
    return array.copy()
