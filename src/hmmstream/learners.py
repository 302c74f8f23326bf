"""Streams that are a learner each: those of many states have a window of the past, and some have a second stage."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from hmmstream.arrays import FloatArray, IntArray
from hmmstream.learner import Learner
from hmmstream.record import Record
from hmmstream.recursions import window
from hmmstream.recursions.state import N_SEEN
from hmmstream.refinement import Refinement
from hmmstream.schedule import Sizes
from hmmstream.streams import Rows, SeparateStreams, Streams, are_alike, learner_of, share_out, vector_from

MANY_ROWS = 2**8  # worth a second thread,
SEVERAL_ROWS = 2**3  # if so many are of each stream: threads that come back to Python more often wait for each other


class LearnerStreams(Streams):
    """Streams with models of their own, which no matrix would hold.

    Windows differ in length, and where a chain remembers for long its learner turns to the dense recursion; a second
    stage keeps rows for as long as it needs them. To call the compiled loop once for each stream takes little beside
    what many states take, or a second stage.
    """

    def __init__(self, template: Learner, n_jobs: int) -> None:
        super().__init__(template)
        self.n_jobs = n_jobs
        self.learners: list[Learner] = []

    def add(self, n: int) -> None:
        self.learners += [self._going_on_from(self.template) for _ in range(n)]

    def keep(self, places: IntArray) -> None:
        self.learners = [self.learners[place] for place in places]

    def keep_first(self, n: int) -> None:
        del self.learners[n:]

    def have_seen(self, first: int) -> bool:
        return any(learner.vector[N_SEEN] > 0.0 for learner in self.learners[first:])

    def learn(self, data: Rows, filtered: FloatArray) -> None:
        sizes, shifts = self.steps_for(data)
        active = np.flatnonzero(np.diff(data.offsets))  # streams that have rows
        for place in data.streams[active]:  # threads would wait for each other
            self._specialize(self.learners[place])

        def work(start: int, stop: int) -> None:
            for at in active[start:stop]:
                learner, numbers = self.learners[data.streams[at]], data.numbers(at)
                learner.frozen = self.template.frozen
                X = np.ascontiguousarray(data.X[numbers])
                its = np.empty((len(X) if len(filtered) else 0, filtered.shape[1]))
                steps = Sizes(sizes, int(shifts[at])) if len(sizes) else None
                learner.take(Record(X, np.zeros(len(X), dtype=np.bool_)), its, steps)
                if len(filtered):
                    filtered[numbers] = its

        offsets = np.append(data.offsets[active], data.offsets[-1])
        share_out(work, offsets, self.n_jobs, max(MANY_ROWS, SEVERAL_ROWS * len(active)))

    def _specialize(self, learner: Learner) -> None:
        """Have machine code for this learner: that of the template, if that has a window too, or has none either."""
        if learner._loop is None:
            one = self.template if (learner.window is None) == (self.template.window is None) else learner
            learner._loop = one._loop or one._specialize()

    def columns(self, at: IntArray) -> FloatArray:
        """Some numbers of each state vector: of those parts that stand in the same place with a window and without."""
        return np.array([self.template.vector[at], *(learner.vector[at] for learner in self.learners)])[1:]

    def set_clock(self, places: IntArray, at: int, value: float) -> None:
        for place in places:
            self.learners[place].vector[at] = value

    def replace(self, place: int, learner: Learner) -> None:
        self.learners[place] = self._going_on_from(learner)

    def learner(self, place: int) -> Learner:
        return self._going_on_from(self.learners[place])

    def _going_on_from(self, other: Learner) -> Learner:
        """A learner like the template, which stands where the other one does."""
        if self.template.window is None:
            other = other.as_dense()
        learner = learner_of(self.template, vector_from(other, self.template))
        learner.start = other.start
        if other.window is None:
            learner.window, learner.engine = None, "dense"
            learner._lay_out()
        else:
            learner.window = window.copy_of(learner._shape, learner._runs, other.window, other.vector)
        if learner.refinement is not None and other.refinement is not None:
            learner.refinement = deepcopy(other.refinement)
        elif learner.refinement is not None:  # it begins with the rows to come
            learner.refinement = Refinement(learner.start)
            learner.refinement.interrupt()
        return learner

    def values(self) -> dict[str, FloatArray]:
        models = [self.template.model, *(learner.model for learner in self.learners)]
        names = self.template.start.emission.value_names
        emissions = {name: np.array([getattr(model.emission, name) for model in models])[1:] for name in names}
        return {"transmat": np.array([model.transmat for model in models])[1:], **emissions}

    def document(self) -> dict[str, Any]:
        return {"template": self.template, "learners": self.learners}

    def restore(self, document: dict[str, Any], n: int) -> None:
        self.template.frozen = document["template"].frozen
        if "vectors" in document and document["template"].window is None:  # a file from before fleets had windows
            dense = SeparateStreams(document["template"], self.n_jobs)
            dense.restore(document, n)
            learners = [dense.learner(place) for place in range(n)]
        else:
            learners = document.get("learners", [])
        fit = [isinstance(learner, Learner) and are_alike(learner, self.template) for learner in learners]
        if len(fit) != n or not all(fit):
            raise ValueError("its streams do not fit the model")
        self.learners = [self._going_on_from(learner) for learner in learners]
