"""The kernels for a GPU do what the loop for the CPU does. Without a GPU, numba-cuda's simulator runs them."""

import itertools
import os
import pickle
import subprocess
import sys

import models
import numpy as np
import pytest

import hmmstream
from hmmstream import HMM, Constant, Fleet, Gaussian, Learner, Poisson, Polyak, Prior

pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'hmmstream[gpu]'")

SIMULATED = """
import pickle, sys
import numpy as np
from hmmstream import Fleet

with open(sys.argv[1], "rb") as file:
    X, frozen, settings = pickle.load(file)
fleet = Fleet(device="cuda", **settings)
fleet.partial_fit(X[:25]).partial_fit(X[25:])
fleet.freeze().partial_fit(frozen).unfreeze()
fleet.partial_fit(X[0, [1, 1, 0]], ids=[1, 1, 7])
np.save(sys.argv[2], fleet._streams._vectors())
"""
# The simulator runs kernels as plain Python: compiled functions have to be plain as well
SIMULATOR = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}


def on_a_simulated_gpu(tmp_path, X, settings, n_frozen=0):
    """State vectors of a fleet that has learned from X, and frozen from the first rows of it again, one a row."""
    with open(tmp_path / "given", "wb") as file:
        pickle.dump((X, X[:n_frozen], settings), file)
    in_a_simulator(SIMULATED, tmp_path / "given", tmp_path / "found.npy")
    return np.load(tmp_path / "found.npy").T


def in_a_simulator(program, *arguments):
    """Run a program with a simulated GPU."""
    paths = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **SIMULATOR, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", program, *arguments], env=environment, check=True)


def on_the_cpu(X, settings, n_frozen=0):
    """The same, each stream by itself: the last of them comes with one row."""
    n = X.shape[1]
    others = {name: value for name, value in settings.items() if name != "init"}
    streams = [Learner(settings["init"], engine="dense", **others) for _ in range(n + 1)]
    for at, learner in enumerate(streams[:-1]):
        learner.learn(X[:, at])
        learner.freeze()
        learner.learn(X[:n_frozen, at])
        learner.unfreeze()
    for row, at in ((1, 1), (1, 1), (0, n)):
        streams[at].learn(X[0, row : row + 1])
    return np.array([learner.vector for learner in streams])


@pytest.mark.parametrize(
    ("family", "structure", "settings"),
    [
        ("gaussian-paper", "full", {"n_min": 5, "update_every": 3}),
        ("gaussian-paper", "masked", {"n_min": 5, "update_every": 2, "averaging": Polyak(10)}),
        ("gaussian-paper", "full", {"n_min": 5, "update_every": 100}),
        ("categorical", "tied", {"n_min": 5, "averaging": None}),
    ],
)
def test_a_simulated_gpu_learns_what_the_cpu_does(tmp_path, family, structure, settings):
    X = np.stack([models.make(family, structure).sample(140, seed)[0] for seed in range(3)], axis=1).astype(float)
    X[7, 1] = X[90, 2] = np.nan  # before and after there are rows that the kernel takes for plain
    settings = {"init": models.rough_start(family, structure), **settings}
    n_frozen = 60  # centres move meanwhile
    found, expected = on_a_simulated_gpu(tmp_path, X, settings, n_frozen), on_the_cpu(X, settings, n_frozen)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


REFUSED = """
import numpy as np
from numba import cuda
from hmmstream import Fleet, HMM, Poisson
from hmmstream.recursions import cuda as kernels

kernels.as_array = lambda array: array  # the simulator has no arrays of other libraries
fleet = Fleet(init=HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Poisson([[1.0, 2.0], [6.0, 2.0]])), device="cuda", n_min=5)
good = np.random.default_rng(0).poisson(3.0, (90, 3, 2)).astype(float)
bad = good.copy()
bad[80, 1, 1], bad[81, 2, 0], bad[82, 0, 0] = -1.0, -2.0, np.inf  # among plain rows; not in the order of streams
streams = fleet._streams


def interrupt(*_):
    raise KeyboardInterrupt


for owner, name in ((kernels, "room_for"), (streams._findings, "read")):  # before learning, and before it is accepted
    there = getattr(owner, name)
    setattr(owner, name, interrupt)
    try:
        streams.learn_block(cuda.to_device(bad))
    except KeyboardInterrupt:
        assert len(streams) == 0
    setattr(owner, name, there)
    streams.learn_block(cuda.to_device(good[:5]))
    streams.keep(np.arange(0))
for dtype in ("float64", "float32"):  # looked at while streams learn, and before
    for n_streams in (0, 3):
        before = streams._vectors()
        assert before.shape[1] == n_streams
        try:
            streams.learn_block(cuda.to_device(bad.astype(dtype)))
        except ValueError as error:
            assert str(error).startswith("X[80, 1, 1] is -1.0: Poisson expects"), error
        else:
            raise AssertionError("not refused")
        np.testing.assert_array_equal(streams._vectors(), before)
        streams.learn_block(cuda.to_device(good.astype(dtype)))
    streams.keep(np.arange(0))
"""


def test_a_block_on_the_device_that_is_refused_or_interrupted_changes_nothing():
    in_a_simulator(REFUSED)


OF_ALL_AGES = """
import numpy as np
from hmmstream import Fleet, HMM, Gaussian, Prior
from hmmstream import device

device.STEPS_AHEAD = 3  # so that they come to their end
start = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("tied", [0.0, 3.0], 1.0))
X = start.sample(400, 0)[0].reshape(100, 4)
X[[3, 4, 50], [1, 1, 0]] = np.nan
fleets = [Fleet(init=start, n_min=5, prior=Prior(transitions=1.0), device=where) for where in ("cuda", "cpu")]
for fleet in fleets:
    fleet.partial_fit(X[:20, :3]).partial_fit(X[20:30, :3])
    fleet.partial_fit(X[:20, 3], ids=np.full(20, 1))  # one is older than the others now
    fleet.partial_fit(X[30:40, :3]).partial_fit(X[40:50, :3]).partial_fit(X[50:60, :3])
    fleet.partial_fit(X[60:65, :3])
    fleet.put(2, fleet.extract(2).partial_fit(X[:40, 3]))  # another one is
    fleet.partial_fit(X[65:70, :3]).end_sequence([0])
    fleet.partial_fit(X[70:72, 3], ids=[1, 9])  # and there is a new one
    fleet.partial_fit(X[72:80])
    fleet.remove([0, 1, 2]).partial_fit(X[80:90, 3:])  # and no other
    fleet.add([10]).partial_fit(X[90:, 2:])  # and the newest
ours, theirs = (fleet._streams for fleet in fleets)
np.testing.assert_allclose(ours._vectors().T, theirs.vectors, rtol=1e-9, atol=1e-12)
"""


def test_streams_of_all_ages_find_their_step_sizes_on_a_simulated_gpu():
    in_a_simulator(OF_ALL_AGES)


BY_NAME = """
import numpy as np
from hmmstream import Fleet, HMM, Gaussian

start = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("diag", [[0.0, 1.0], [3.0, 0.0]], np.ones((2, 2))))
X = start.sample(600, 0)[0]
X[[350, 420, 420, 520, 560], [0, 0, 1, 1, 0]] = np.nan, np.nan, np.nan, 1e200, -1e200
names = np.random.default_rng(0).integers(0, 3, 600)
fleets = [Fleet(init=start, n_min=5, device=where) for where in ("cuda", "cpu")]
for fleet in fleets:
    for rows in np.array_split(np.arange(600), 2):  # the second time, most rows of a stream are plain
        fleet.partial_fit(X[rows], ids=names[rows])
ours, theirs = (fleet._streams for fleet in fleets)
np.testing.assert_allclose(ours._vectors().T, theirs.vectors, rtol=1e-9, atol=1e-12)
"""


def test_rows_by_name_of_two_features_go_to_their_streams_on_a_simulated_gpu():
    in_a_simulator(BY_NAME)


def dying_stream():
    """Rates of which the largest is not seen again after a while; the observation at which its state dies."""
    start = HMM(np.full(4, 0.25), np.full((4, 4), 0.1) + 0.6 * np.eye(4), Poisson([1.0, 60.0, 2.0, 4.0]))
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, (450, 1)).astype(float)
    X[:60:3] = rng.poisson(60.0, (20, 1))
    X[60:170] = rng.poisson(60.0, (110, 1))
    learner = Learner(start, step=Constant(0.1), n_min=5, averaging=None)
    died = next(n for n, row in enumerate(X) if learner.learn_one(row) or learner.state.alive[1] <= 0.0)
    return start, X, died


def test_a_state_that_dies_in_a_plain_row_is_dead_on_a_simulated_gpu_too(tmp_path):
    """And it can come back: at once, in a row that only the transitions to the dead allow for.

    There are four states, so that the statistic is in shared memory.
    """
    from hmmstream.recursions import cuda, online

    start, X, died = dying_stream()
    assert cuda.layout(Learner(start)._shape, online.AVERAGE_NOTHING, "float64").has_shared_tau
    assert died > 64
    assert died % 64 > 1  # such rows are plain
    X[died + 1] = 22.0
    X[died + 20 : died + 30] = 60.0
    settings = {"init": start, "step": Constant(0.1), "n_min": 5, "averaging": None}
    X = np.hstack([X[: died + 35], X[: died + 35]])
    found, expected = on_a_simulated_gpu(tmp_path, X, settings), on_the_cpu(X, settings)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_prior_counts_the_same_on_a_simulated_gpu(tmp_path):
    start = HMM([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], Gaussian("tied", [0.0, 3.0], 1.0))
    X = np.hstack([start.sample(150, seed)[0] for seed in range(2)])
    settings = {"init": start, "prior": Prior(transitions=1.0, stickiness=20.0), "averaging": None}
    found, expected = on_a_simulated_gpu(tmp_path, X, settings), on_the_cpu(X, settings)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


SINGLE = """
import numpy as np
from hmmstream import Fleet, Gaussian, HMM
from hmmstream.recursions.state import LIKELIHOOD_FACTOR

start = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("tied", [0.0, 3.0], 1.0))
one = Fleet(init=start).partial_fit(start.sample(150, 0)[0]).extract(0)
for factor in (1e-200, 1e-20, 1e200):
    one._learner.vector[LIKELIHOOD_FACTOR] = factor
    fleet = Fleet(init=start, device="cuda", dtype="float32").put("it", one)
    assert 1e-38 < fleet._streams.clocks[LIKELIHOOD_FACTOR].copy_to_host()[0] < 1e38
    np.testing.assert_allclose(fleet.extract("it").log_likelihood_, one.log_likelihood_, rtol=1e-12)
"""


SAVED = """
import sys
import numpy as np
import hmmstream
from hmmstream import Fleet, Gaussian, HMM

start = HMM([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], Gaussian("tied", [0.0, 3.0], 1.0))
X = start.sample(160, 0)[0].reshape(40, 4)
fleet = Fleet(init=start, device="cuda", dtype="float32").partial_fit(X)
fleet.save(sys.argv[1])
loaded = hmmstream.load(sys.argv[1])
assert loaded.device == "cuda"
for one in (fleet, loaded):
    one.partial_fit(X)
np.testing.assert_array_equal(loaded._streams._vectors(), fleet._streams._vectors())
"""


def test_a_fleet_in_single_precision_is_saved_and_goes_on_with_a_gpu_and_without(tmp_path):
    in_a_simulator(SAVED, tmp_path / "fleet.hmm")
    fleet = hmmstream.load(tmp_path / "fleet.hmm").partial_fit([0.1], ids=[2])
    assert fleet.n_samples_seen_.tolist() == [40, 40, 41, 40]
    for stream in fleet:
        np.testing.assert_allclose(fleet.extract(stream).last_model_.transmat.sum(axis=1), 1.0, rtol=1e-12)


def test_a_likelihood_that_single_precision_cannot_hold_is_kept():
    in_a_simulator(SINGLE)


@pytest.mark.parametrize(
    ("dtype", "dies", "rtol", "atol"), [("float64", True, 1e-9, 1e-11), ("float32", False, 1e-5, 1e-5)]
)
def test_a_gpu_learns_what_the_cpu_does(dtype, dies, rtol, atol):
    """From a block and from rows by name. In double precision, a state of each stream dies on the way."""
    from numba import cuda

    if not cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
    start = HMM([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], Gaussian("tied", [0.0, 1.0], 0.5))
    rng = np.random.default_rng(0)
    X = start.sample(5 * 1100, 0)[0].reshape(1100, 5)
    settings = {"init": start}
    if dies:
        X[400:800] = rng.normal(-12.0, 0.3, (400, 5))
        settings["step"] = Constant(0.1)
        fleet = Fleet(**settings).partial_fit(X[:700])
        assert all((fleet._streams.learner(stream).state.alive <= 0.0).any() for stream in range(5))
    X[[100, 300, 301, 1000], [0, 2, 2, 4]] = np.nan
    names = rng.permuted(np.repeat(np.arange(5), len(X)))
    values = np.empty(len(names))
    for name in range(5):
        values[names == name] = X[:, name]

    by_block, by_name = (Fleet(device="cuda", dtype=dtype, **settings) for _ in range(2))
    for rows in np.array_split(X, 4):
        by_block.partial_fit(cuda.to_device(np.ascontiguousarray(rows, dtype=dtype)))
    for rows in np.array_split(np.arange(len(names)), 4):
        by_name.partial_fit(values[rows], ids=names[rows])
    expected = Fleet(**settings).partial_fit(X)
    for found in (by_block, by_name):
        places = [list(found).index(name) for name in range(5)]
        for name in ("transmat_", "means_", "covars_", "filtered_proba_", "log_likelihood_"):
            theirs = getattr(expected, name)
            np.testing.assert_allclose(getattr(found, name)[places], theirs, rtol=rtol, atol=atol, err_msg=name)


def test_without_a_gpu_the_error_says_so():
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="needs an NVIDIA GPU"):
        Fleet(init=models.paper_start(), device="cuda")


def test_the_kernel_compiles_for_a_gpu_that_is_not_there(monkeypatch):
    """In both precisions, for blocks and for rows by name, to the language of an H200, if the toolkit is there."""
    from types import SimpleNamespace

    from numba import cuda as numba_cuda
    from numba.cuda import dispatcher, types

    from hmmstream.recursions import cuda, online

    template = Learner(HMM([0.5, 0.5], np.full((2, 2), 0.5), Gaussian("tied", [0.0, 1.0], 1.0)), engine="dense")
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=(9, 0)))
    monkeypatch.setattr(numba_cuda, "jit", lambda **options: lambda kernel: kernel)
    cuda.introduce(template.start.emission)
    cuda.introduce(template._shape)
    rules = online.Rules(20, 1, online.AVERAGE_STATISTIC, 0)
    precisions = (("float64", types.float64, "f64"), ("float32", types.float32, "f32"))
    for (dtype, number, letter), is_block in itertools.product(precisions, (True, False)):
        kernel = cuda.learning_kernel(
            template.start.emission, template._shape, template._cells[1:], rules, dtype, is_block, is_block
        )
        states = number[:, ::1], types.float64[:, ::1]
        integers = types.int64, types.int64, *[types.int64[::1]] * 5
        signature = (*states, *states, number[::1], number[::1], *integers)
        try:
            with cuda.numbers_are(dtype):
                code, _ = numba_cuda.compile_ptx(kernel, signature, cc=(9, 0))
        except (OSError, RuntimeError) as error:
            pytest.skip(f"no CUDA toolkit: {error}")
        assert code.count(f"fma.rn.{letter}") > 50
        assert "st.local" not in code  # the state of a stream is in registers
