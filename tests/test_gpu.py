"""The kernels for a GPU do what the loop for the CPU does. Without a GPU, numba-cuda's simulator runs them."""

import os
import pickle
import subprocess
import sys

import models
import numpy as np
import pytest

from hmmstream import HMM, Constant, Fleet, Gaussian, Learner, Polyak

pytest.importorskip("numba_cuda", reason="needs numba-cuda: pip install 'hmmstream[gpu]'")

SIMULATED = """
import pickle, sys
import numpy as np
from hmmstream import Fleet

with open(sys.argv[1], "rb") as file:
    X, settings = pickle.load(file)
fleet = Fleet(device="cuda", **settings)
fleet.partial_fit(X[:25]).partial_fit(X[25:])
fleet.partial_fit(X[0, [1, 1, 0]], ids=[1, 1, 7])
np.save(sys.argv[2], fleet._streams._vectors())
"""
# The simulator runs kernels as plain Python: compiled functions have to be plain as well
SIMULATOR = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}


def on_a_simulated_gpu(tmp_path, X, settings):
    """State vectors of a fleet that has learned from X, one a row."""
    with open(tmp_path / "given", "wb") as file:
        pickle.dump((X, settings), file)
    paths = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-c", SIMULATED, tmp_path / "given", tmp_path / "found.npy"],
        env={**os.environ, **SIMULATOR, "PYTHONPATH": paths},
        check=True,
    )
    return np.load(tmp_path / "found.npy").T


def on_the_cpu(X, settings):
    fleet = Fleet(**settings).partial_fit(X[:25]).partial_fit(X[25:])
    return fleet.partial_fit(X[0, [1, 1, 0]], ids=[1, 1, 7])._streams.vectors


@pytest.mark.parametrize(
    ("family", "structure", "settings"),
    [
        ("gaussian-paper", "full", {"n_min": 5}),
        ("gaussian-diag", "masked", {"n_min": 5, "update_every": 2, "averaging": Polyak(10)}),
        ("categorical", "tied", {"n_min": 5, "averaging": None}),
    ],
)
def test_a_simulated_gpu_learns_what_the_cpu_does(tmp_path, family, structure, settings):
    X = np.stack([models.make(family, structure).sample(140, seed)[0] for seed in range(3)], axis=1).astype(float)
    X[7, 1] = X[90, 2] = np.nan  # before and after there are rows that the kernel takes for plain
    settings = {"init": models.rough_start(family, structure), **settings}
    found, expected = on_a_simulated_gpu(tmp_path, X, settings), on_the_cpu(X, settings)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_state_dies_and_returns_on_a_simulated_gpu(tmp_path):
    """One of four: so that the statistic is in shared memory."""
    start = HMM(np.full(4, 0.25), np.full((4, 4), 0.25), Gaussian("tied", [0.0, 3.0, 6.0, 60.0], 1.0))
    X = np.random.default_rng(0).normal(np.arange(200) % 3 * 3.0, 1.0).reshape(-1, 1)
    X[150:] += 55.0
    settings = {"init": start, "step": Constant(0.3), "n_min": 5, "averaging": None}
    shape = Learner(start)._shape
    from hmmstream.recursions import cuda, online

    assert cuda.layout(shape, online.AVERAGE_NOTHING, "float64").has_shared_tau
    has_died = Fleet(**settings).partial_fit(X[:119])._streams
    assert has_died.columns(has_died.at.alive)[0, 3] <= 0.0
    X = np.hstack([X, X])
    found, expected = on_a_simulated_gpu(tmp_path, X, settings), on_the_cpu(X, settings)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_without_a_gpu_the_error_says_so():
    from numba import cuda

    if cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="needs an NVIDIA GPU"):
        Fleet(init=models.paper_start(), device="cuda")


def test_step_sizes_of_streams_whose_times_lie_apart():
    from hmmstream.device import steps_for
    from hmmstream.schedule import Power

    times, stops = np.array([100, 0, 5, 103]), np.array([102, 7, 8, 110])
    for step in (Power(0.6), lambda n: float(n) ** -0.6):
        sizes, shifts = steps_for(step, times, stops)
        assert len(sizes) == 8 + 2 + 7
        for time, stop, shift in zip(times, stops, shifts, strict=True):
            expected = [1.0 if n == 0 else n**-0.6 for n in range(time, stop)]
            np.testing.assert_allclose(sizes[time - shift : stop - shift], expected)


def test_the_kernel_compiles_for_a_gpu_that_is_not_there(monkeypatch):
    """In both precisions, to the machine language of an H200, if the toolkit is there."""
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
    for dtype, number, letter in (("float64", types.float64, "f64"), ("float32", types.float32, "f32")):
        kernel = cuda.learning_kernel(template.start.emission, template._shape, template._cells[1:], rules, dtype, True)
        integers = [types.int64[::1]] * 4
        signature = (number[:, ::1], types.float64[:, ::1], number[::1], *integers, number[::1])
        try:
            with cuda.numbers_are(dtype):
                code, _ = numba_cuda.compile_ptx(kernel, signature, cc=(9, 0))
        except (OSError, RuntimeError) as error:
            pytest.skip(f"no CUDA toolkit: {error}")
        assert code.count(f"fma.rn.{letter}") > 50
        assert "st.local" not in code  # the state of a stream is in registers
