"""Batch EM beside its peers: time of one iteration, for each observation, on one core.

All contenders fit the same Gaussian model to the same record from the same start, taking turns in one process; each is
judged by its best turns. hmmlearn, in both its implementations, and hmmstream are timed by what more iterations of
``fit`` cost; of dynamax only the compiled expectation is timed, in double precision as the others have it, and in
single, which is its default. A peer that is not installed is left out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.speed import best_times, stream_for
from hmmstream import HMM, BatchHMM, Gaussian

FEW, MORE = 1, 9  # iterations whose difference is timed


def start_for(m: int) -> HMM:
    """A start some way off the truth, with a variance for each state."""
    transmat = np.full((m, m), 0.3 / (m - 1))
    np.fill_diagonal(transmat, 0.7)
    return HMM(np.full(m, 1 / m), transmat, Gaussian("diag", means=np.arange(m) + 0.2, covars=np.ones((m, 1))))


def ours(start: HMM, X: np.ndarray, n_iter: int, method: str = "forward-backward") -> Callable[[], BatchHMM]:
    """Our ``fit``."""
    hmm = BatchHMM(init=start, n_iter=n_iter, tol=-np.inf, n_jobs=1, method=method)
    return lambda: hmm.fit(X)


def hmmlearn(start: HMM, X: np.ndarray, implementation: str, n_iter: int) -> Callable[[], Any]:
    """hmmlearn's ``fit``, without its priors."""
    from hmmlearn.hmm import GaussianHMM

    def fit() -> Any:
        peer = GaussianHMM(
            start.n_components,
            n_iter=n_iter,
            tol=-np.inf,
            init_params="",
            implementation=implementation,
            min_covar=0.0,
            means_prior=0.0,
            means_weight=0.0,
            covars_prior=0.0,
            covars_weight=0.0,
        )
        peer.startprob_, peer.transmat_ = start.startprob, start.transmat
        peer.means_, peer.covars_ = start.emission.means, start.emission.covars
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peer.fit(X)

    return fit


def dynamax(start: HMM, X: np.ndarray, double: bool) -> Callable[[], Any]:
    """dynamax's expectation, compiled before it is timed."""
    import jax
    from dynamax.hidden_markov_model import DiagonalGaussianHMM

    jax.config.update("jax_enable_x64", double)
    kind = jax.numpy.float64 if double else jax.numpy.float32
    model = DiagonalGaussianHMM(start.n_components, 1)
    parameters, _ = model.initialize(
        jax.random.PRNGKey(0),
        initial_probs=jax.numpy.asarray(start.startprob, kind),
        transition_matrix=jax.numpy.asarray(start.transmat, kind),
        emission_means=jax.numpy.asarray(start.emission.means, kind),
        emission_scale_diags=jax.numpy.asarray(np.sqrt(start.emission.covars), kind),
    )
    data = jax.numpy.asarray(X, kind)
    compiled = jax.jit(model.e_step).lower(parameters, data).compile()
    return lambda: jax.block_until_ready(compiled(parameters, data))


PEERS = ("hmmlearn scaling", "hmmlearn log", "dynamax float32", "dynamax float64")


def nanoseconds(m: int, n: int, repeats: int, peers: tuple[str, ...] = PEERS) -> dict[str, float]:
    """Time of an iteration and observation, of hmmstream and of those ``peers`` that are installed."""
    start, X = start_for(m), stream_for(m, n)
    fits: dict[str, Callable[[int], Callable[[], Any]]] = {"hmmstream": lambda n_iter: ours(start, X, n_iter)}
    single: dict[str, Callable[[], Any]] = {}
    for peer in peers:
        package, variant = peer.split()
        if not importlib.util.find_spec(package):
            continue
        if package == "hmmlearn":
            fits[peer] = partial(hmmlearn, start, X, variant)
        else:
            single[peer] = dynamax(start, X, double=variant == "float64")
    runs = [*single.values(), *(fit(n_iter) for fit in fits.values() for n_iter in (FEW, MORE))]
    for run in runs:
        run()  # compiles, and warms up
    seconds = best_times(runs, repeats)
    few, more = seconds[len(single) :: 2], seconds[len(single) + 1 :: 2]
    times = {name: (b - a) / (MORE - FEW) for name, a, b in zip(fits, few, more, strict=True)}
    times |= dict(zip(single, seconds, strict=False))
    return {name: time / n * 1e9 for name, time in times.items()}


def recursive_against_forward_backward(m: int, n: int, repeats: int = 5) -> float:
    """Time of an iteration in the recursive form over that of forward–backward."""
    start, X = start_for(m), stream_for(m, n)
    methods = ("recursive", "forward-backward")
    runs = [ours(start, X, n_iter, method) for method in methods for n_iter in (FEW, MORE)]
    for run in runs:
        run()
    a, b, c, d = best_times(runs, repeats)
    return (b - a) / (d - c)


def main() -> None:
    """Print the table."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # one core for all
    n = 100_000
    print(f"One EM iteration, ns an observation (n = {n:,}), one core; × is the time over hmmstream's")
    for m in (2, 4, 8, 16, 32):
        times = nanoseconds(m, n, repeats=12 if m < 16 else 3)
        own = times.pop("hmmstream")
        peers = "   ".join(f"{name} {time:.0f} ({time / own:.1f}×)" for name, time in times.items())
        print(f"  m = {m:2d}   hmmstream {own:.1f}   {peers or '(no peer is installed)'}", flush=True)
    print("recursive / forward-backward, one iteration: ", end="")
    print(", ".join(f"m = {m}: {recursive_against_forward_backward(m, 20_000):.1f}×" for m in (2, 4, 8)))
    os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    sys.exit(main())
