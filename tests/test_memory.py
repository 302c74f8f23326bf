"""Memory does not grow with the stream, and hardly with a record: benchmarks/memory.py has 50 and 100 million rows."""

import tracemalloc

import models
import numpy as np

from benchmarks.memory import resident_memory_while_learning
from hmmstream import BatchHMM, Learner, inference


def test_resident_memory_is_flat_over_three_million_observations():
    chunk = models.paper_model().sample(100_000, 1)[0]
    megabytes = list(resident_memory_while_learning(Learner(models.paper_start()), chunk, n_chunks=30))
    assert max(megabytes[5:]) - megabytes[4] < 1.0


def test_the_state_of_a_stream_is_small_and_of_fixed_size():
    learner = Learner(models.paper_start())
    size = learner.vector.nbytes
    learner.learn(models.paper_model().sample(10_000, 1)[0])
    assert learner.vector.nbytes == size < 2000


def test_smoothing_and_fitting_need_little_more_than_the_record_and_the_result(monkeypatch):
    monkeypatch.setattr(inference, "BLOCK_SIZE", 2**14)
    hmm, X = models.paper_model(), np.tile(models.paper_model().sample(10_000, 1)[0], (100, 1))
    methods = {
        "smooth": lambda: hmm.smooth(X),
        "fit": lambda: BatchHMM(init=hmm, n_iter=1).fit(X),
        "fit recursively": lambda: BatchHMM(init=hmm, n_iter=1, method="recursive").fit(X),
    }
    for name, method in methods.items():
        method()
        tracemalloc.start()
        method()
        megabytes = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        result = 16.0 if name == "smooth" else 0.0  # and one byte a row that says where sequences start
        assert megabytes < result + 2.5, name
