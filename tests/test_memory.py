"""Memory does not grow with the stream. (benchmarks/memory.py does the same with 50 million observations.)"""

import models

from benchmarks.memory import resident_memory_while_learning
from hmmstream import Learner


def test_resident_memory_is_flat_over_three_million_observations():
    chunk = models.paper_model().sample(100_000, 1)[0]
    megabytes = list(resident_memory_while_learning(Learner(models.paper_start()), chunk, n_chunks=30))
    assert max(megabytes[5:]) - megabytes[4] < 1.0


def test_the_state_of_a_stream_is_small_and_of_fixed_size():
    learner = Learner(models.paper_start())
    size = learner.vector.nbytes
    learner.learn(models.paper_model().sample(10_000, 1)[0])
    assert learner.vector.nbytes == size < 2000
