"""The loop on a GPU: the same step function, compiled for CUDA by numba-cuda, with a thread a stream.

numba-cuda has registries of its own. What :mod:`~hmmstream.recursions.bridge` tells the compiler for the CPU is told
here to that for the GPU. A thread holds its stream's state in registers while it goes through the rows; the states of
neighbouring streams lie side by side in memory, number by number, so that a warp reads them in one go.

In single precision, numbers in the source mean single precision too (``numbers_are``); the clock, which counts and sums
up the log-likelihood, stays in double precision.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from hmmstream.arrays import UNKNOWN
from hmmstream.compilable import Compilable, as_in, reciprocal, workspace
from hmmstream.recursions import bridge
from hmmstream.recursions.bridge import CompilableType, view
from hmmstream.recursions.filter import compute_statistic, move, relative_densities
from hmmstream.recursions.online import (
    AVERAGE_PARAMETERS,
    AVERAGE_STATISTIC,
    RECENTRE_EVERY,
    Rules,
    advance,
    average,
    carry,
    maximize,
    mix,
    take,
)
from hmmstream.recursions.rows import ACCEPTED, is_refused
from hmmstream.recursions.state import (
    CLOCK_SIZE,
    IN_SEQUENCE,
    LIKELIHOOD_FACTOR,
    LOG_LIKELIHOOD,
    N_AVERAGED,
    N_SEEN,
    TIME,
    State,
)

IS_SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
THREADS = 128  # of a block, where it does not matter much
WALKERS = 1 << 18  # threads that go through all rows together
FEW_WALKERS = 1 << 13  # through the streams
WARP = 32
FEW = 4  # states, whose statistic is gone through number by number, each by instructions of its own
LARGEST_SHARED = 48 << 10  # bytes that a block may have without asking the driver for more
FIRST_REFUSED, SOME_MISSING = 0, 1  # places in findings
LARGEST = {"float64": 1e150, "float32": 1e15}  # of an observation; what is larger is taken for this
SMALLEST, LARGEST_SINGLE = 1.2e-38, 3.4e38  # that single precision holds


def _import_cuda() -> Any:
    """numba.cuda. Its release 0.30 asks for a name that NumPy 2.5 no longer has."""
    is_missing = not hasattr(np, "row_stack")
    if is_missing:
        setattr(np, "row_stack", np.vstack)
    try:
        from numba import cuda

        if not IS_SIMULATED:
            from numba.cuda.np import arrayobj  # noqa: F401
    finally:
        if is_missing:
            delattr(np, "row_stack")
    return cuda


try:
    cuda = _import_cuda()
except ImportError as error:
    raise ImportError("device='cuda' needs numba-cuda: pip install 'hmmstream[gpu]'") from error


def check_device() -> None:
    """Refuse to go on without a GPU."""
    if not cuda.is_available():
        raise RuntimeError(
            "device='cuda' needs an NVIDIA GPU with its driver, and none was found here; device='cpu' runs everywhere"
        )


def to_device(array: Any) -> Any:
    """A copy on the device."""
    return cuda.to_device(array)


def room_for(array: Any) -> Any:
    """As much memory on the device as an array there has."""
    return cuda.device_array_like(array)


def as_array(array: Any) -> Any:
    """An array of CuPy, PyTorch or another library, where it is."""
    return cuda.as_cuda_array(array)


def launch(kernel: Any, n: int, threads: int, dtype: str, *arguments: Any) -> None:
    """Run a kernel with ``n`` threads, so many a block; first it is compiled, for numbers of this precision."""
    with numbers_are(dtype):
        kernel[-(-n // threads), threads](*arguments)


def span(values: Any) -> tuple[int, int]:
    """The smallest and the largest of some whole numbers on the device."""
    found = cuda.to_device(np.array([np.inf, -np.inf]))
    launch(span_kernel(), min(len(values), FEW_WALKERS), THREADS, "float64", values, found)
    least, most = found.copy_to_host()
    return int(least), int(most)


class Findings:
    """What a kernel has found in a block: two numbers on the device.

    ``FIRST_REFUSED`` is the place of the first value that cannot occur, counted along the rows, and ``SOME_MISSING`` is
    1 if a row was missing.
    """

    NOTHING = np.array([np.iinfo(np.int64).max, 0])

    def __init__(self) -> None:
        self._numbers = to_device(self.NOTHING)
        self._is_clean = True

    def begin(self) -> Any:
        """The numbers, for the next kernel."""
        if not self._is_clean:
            self._numbers.copy_to_device(self.NOTHING)
        self._is_clean = False  # until it is known what the kernel has found
        return self._numbers

    def read(self) -> tuple[int, bool]:
        """Once the kernel has ended, the place, or ACCEPTED, and whether a row was missing."""
        found = self._numbers.copy_to_host()
        self._is_clean = bool((found == self.NOTHING).all())
        place = int(found[FIRST_REFUSED])
        return ACCEPTED if place == self.NOTHING[FIRST_REFUSED] else place, bool(found[SOME_MISSING])


def assume(condition: bool) -> None:
    """Tell the compiler what is true here, so that it need not ask."""


def onwards(array: Any, start: int) -> Any:
    """What follows in an array: to go through it in this way takes fewer instructions than an index that grows."""
    return array[start:]


def peek(array: Any, index: int) -> Any:
    """An element of an array in the memory of the device: of one that moves on, the compiler does not know that."""
    return array[index]


# --- kernels --------------------------------------------------------------------------------------------------------


@bridge.inlined
def fetch(numbers: Any, first: int, stream: int, part: Any) -> None:
    """Read a part of a stream's state."""
    for c in range(len(part)):
        part[c] = numbers[first + c, stream]


@bridge.inlined
def put_back(numbers: Any, first: int, stream: int, part: Any) -> None:
    """Write a part of a stream's state."""
    for c in range(len(part)):
        numbers[first + c, stream] = part[c]


@bridge.inlined
def carry_over(old: Any, new: Any, first: int, stop: int, stream: int) -> None:
    """Copy numbers of a stream's state from the old states to the new ones."""
    while first < stop:
        new[first, stream] = old[first, stream]
        first += 1


@bridge.inlined
def add_to_mean(numbers: Any, first: int, stream: int, clock: Any, n_new: int, sums: Any) -> None:
    """Add ``n_new`` statistics, of which there are the weighted ``sums``, to a stream's average."""
    before, now = clock[N_AVERAGED], clock[N_AVERAGED] + n_new
    share = 2.0 / (now * (now + 1.0))
    lost = 1.0 - 0.5 * before * (before + 1.0) * share  # a small number: in single precision, 1 less that is too coarse
    for c in range(len(sums)):
        mean = numbers[first + c, stream]
        numbers[first + c, stream] = mean + (as_in(sums, share) * sums[c] - as_in(sums, lost) * mean)
    clock[N_AVERAGED] = now


@bridge.inlined
def advance_by_number(
    emission: Any, shape: Any, state: State, groups: Any, y: Any, known: int, keep: float, weight: float
) -> None:
    """What ``advance`` does within a sequence, where each transition is a group of its own.

    It goes through the statistic number by number, so that tau, if it is in shared memory, is read and written once.
    """
    m, p = shape.n_states, shape.n_statistics
    before, kept = workspace(shape.n_states), workspace(shape.n_cells)
    moves = view(workspace(shape.n_cells), 0, (m, m))
    s = view(workspace(shape.n_emission_rows), 0, (m, p))
    compute_statistic(emission, shape, state, y, s)
    move(emission, shape, state, y, known, before, moves)
    for i in range(m):
        for k in range(m):
            kept[i * m + k] = keep * moves[i, k]
    for i in range(m):
        for k in range(m):
            update_number(shape, state, kept, i * m + k, k, weight * before[i], moves[i, k])
    for k in range(m):
        for a in range(p):
            update_number(shape, state, kept, shape.n_groups + k * p + a, k, weight * state.phi[k], s[k, a])


@bridge.inlined
def update_number(shape: Any, state: State, kept: Any, c: int, new: int, weight: float, value: float) -> None:
    """Bring number ``c`` of the statistic up to date, of which there is a new value in one state only."""
    mixed = workspace(shape.n_states)
    mix(shape, state, kept, c, mixed)
    mixed[new] += weight * value
    total = mixed[0]
    for k in range(1, shape.n_states):
        total += mixed[k]
    for k in range(shape.n_states):
        state.tau[k, c] = mixed[k]
    state.S[c] = total


class Layout(NamedTuple):
    """How a multiprocessor is divided up among threads, one a stream."""

    threads: int  # of a block
    registers: int | None  # of a thread: few, for many threads at a time; None if all that there are
    has_shared_tau: bool  # in shared memory, which is as near as the registers that it does not fit into


def layout(shape: Any, averaging: int, dtype: str) -> Layout:
    """The layout that is fastest on an H200, by the size of the statistic: see benchmarks/gpu.py."""
    size = np.dtype(dtype).itemsize
    n_tau = shape.n_states * shape.n_rows
    n = n_tau + shape.n_rows * (2 if averaging == AVERAGE_STATISTIC else 1)
    if size * n_tau > 512 and size * WARP * pitch(n_tau) <= LARGEST_SHARED:
        return Layout(WARP, None, True)
    if dtype == "float64":
        return Layout(THREADS, 168 if n <= 60 else None, False)
    return Layout(256, 64, False) if n <= 30 else Layout(THREADS, 72 if n <= 40 else 160 if n <= 80 else None, False)


def pitch(n: int) -> int:
    """How far apart neighbouring threads keep n numbers in shared memory: odd, so that they never want one bank."""
    return n | 1


def learning_kernel(
    emission: Any, shape: Any, cells: Any, rules: Rules, dtype: str, is_block: bool, looks: bool
) -> Any:
    """A kernel that lets each stream learn from its rows: from a block, or from rows in the ``order`` of streams.

    From a block, with ``n_times`` rows of each stream, new states are made of the ``old_numbers`` and ``old_clocks``,
    which stay as they are. So values need not have been looked at: a kernel that ``looks`` notes the place of the first
    that cannot occur among its :class:`Findings`, and the new states are nothing then. From rows in some order, old and
    new states are the same, as few streams may have any.

    The step size at time n is in place n - shift: the ``shift`` of a block, or one of the ``shifts`` of streams.

    The structure of the transitions and the rules are constants to the compiler: what they exclude is not there. Each
    part of a state has memory of its own: those that are small and looked up by constants stay in registers.

    Nearly all rows are plain: complete, in a sequence, past the first M-step, with all states alive and no centres to
    move. These have a loop of their own, in which the compiler knows all that, and from which it leaves out the rest.
    """
    groups, shares, leaders = cells
    update_every, averaging = rules.update_every, rules.averaging
    m, width, R, d = shape.n_states, shape.width, shape.n_rows, emission.n_features
    mm, m_width, m_R, n_prior = m * m, m * width, m * R, shape.n_prior_rows
    plain_from = max(rules.n_min, RECENTRE_EVERY)
    at_phi, at_alive, at_transmat = m, 2 * m, 3 * m
    at_mean_transmat = at_transmat + mm
    at_theta = at_mean_transmat + mm
    at_mean_theta = at_theta + m_width
    at_tau = at_mean_theta + m_width
    at_S = at_tau + m_R
    at_mean_S = at_S + R
    at_prior = at_mean_S + R
    largest = LARGEST[dtype]
    float64 = np.float64 if IS_SIMULATED else _types().float64
    real = np.dtype(dtype).type if IS_SIMULATED else getattr(_types(), dtype)
    threads, registers, has_shared_tau = layout(shape, averaging, dtype)
    advance_plain = advance_by_number if shape.is_full and m <= FEW else advance
    tau_pitch = pitch(m_R)
    n_shared = threads * tau_pitch

    @bridge.inlined
    def look_ahead(X: Any, place: Any, ahead: Any) -> None:
        values = place if is_block else onwards(X, peek(place, 0) * d)
        for a in range(d):
            ahead[a] = peek(values, a)

    def learn(
        old_numbers: Any,
        old_clocks: Any,
        numbers: Any,
        clocks: Any,
        X: Any,
        steps: Any,
        n_times: int,
        shift: int,
        found: Any,
        streams: Any,
        offsets: Any,
        order: Any,
        shifts: Any,
    ) -> None:
        at = cuda.grid(1)
        n_streams = clocks.shape[1] if is_block else len(streams)
        if at >= n_streams:
            return
        stream = at if is_block else streams[at]
        shift = shift if is_block else shifts[at]
        first = 0 if is_block else offsets[at]
        n_rows = n_times if is_block else offsets[at + 1] - first

        clock = cuda.local.array(CLOCK_SIZE, float64)
        log_likelihood, pending = workspace(1), workspace(1)  # of the clock, in the precision of all numbers
        startprob, phi, alive, lives = workspace(m), workspace(m), workspace(m), workspace(m)
        transmat, mean_transmat = workspace(mm), workspace(mm)
        theta, mean_theta = workspace(m_width), workspace(m_width)
        S, mean_S, prior = workspace(R), workspace(R), workspace(n_prior)
        sums, weight = workspace(R), workspace(1)  # of plain rows that are not in the average yet
        if has_shared_tau:
            tau = view(cuda.shared.array(n_shared, real), cuda.threadIdx.x * tau_pitch, (m_R,))
        else:
            tau = workspace(m_R)
        fetch(old_clocks, 0, stream, clock)
        fetch(old_numbers, at_phi, stream, phi)
        fetch(old_numbers, at_transmat, stream, transmat)
        fetch(old_numbers, at_theta, stream, theta)
        fetch(old_numbers, at_tau, stream, tau)
        fetch(old_numbers, at_S, stream, S)
        if averaging == AVERAGE_PARAMETERS:
            fetch(old_numbers, at_mean_transmat, stream, mean_transmat)
            fetch(old_numbers, at_mean_theta, stream, mean_theta)
        if n_prior > 0:
            fetch(old_numbers, at_prior, stream, prior)
        if is_block:  # what may not be written in the end
            same = at + order[0]  # but read: else the compiler would keep all addresses from here on
            put_back(clocks, 0, same, clock)
            carry_over(old_numbers, numbers, 0, at_phi, same)
            carry_over(old_numbers, numbers, at_alive, at_transmat, same)
            carry_over(old_numbers, numbers, at_mean_transmat, at_theta, same)
            carry_over(old_numbers, numbers, at_mean_theta, at_tau, same)
            carry_over(old_numbers, numbers, at_mean_S, at_prior, same)
        log_likelihood[0] = 0.0
        pending[0] = as_in(pending, clock[LIKELIHOOD_FACTOR])
        rest = (
            view(transmat, 0, (m, m)),
            view(mean_transmat, 0, (m, m)),
            view(theta, 0, (m, width)),
            view(mean_theta, 0, (m, width)),
            view(tau, 0, (m, R)),
            S,
            mean_S,
            prior,
            prior,
            log_likelihood,
            pending,
        )
        state = State(clock, startprob, phi, alive, *rest)
        plain = State(clock, startprob, phi, lives, *rest)  # for plain rows: which states are alive after an M-step

        y, ahead = workspace(d), workspace(d)  # the next row is on its way while this one is worked on
        n: Any = int(clock[TIME])
        left: Any = np.int32(n_rows)  # in 32 bits, which take one instruction
        # The place of a row is that of its values in a block, else of its number in the order
        place = onwards(X, at * d) if is_block else onwards(order, first)
        stride = n_streams * d if is_block else 1
        if left > 0:
            look_ahead(X, place, ahead)
        is_settled = False  # whether there can be plain rows: the first one never is
        while left > 0:
            n_before, left_before, some_died = n, left, False
            weight[0] = as_in(weight, clock[N_AVERAGED])
            for c in range(R):
                sums[c] = 0.0
            step = onwards(steps, n - shift)
            most: Any = -n & (RECENTRE_EVERY - 1) if is_settled else 0  # plain rows, up to the next that moves centres
            left_after = np.int32(max(left - most, 0))
            while left > left_after:
                is_plain = True
                for a in range(d):
                    is_plain &= abs(ahead[a]) <= largest  # and a number
                if not is_plain:
                    break
                for a in range(d):
                    y[a] = ahead[a]
                    assume(y[a] == y[a])
                    if looks:
                        is_plain &= emission.accepts_at(a, y[a])
                if not is_plain or emission.is_missing(y):
                    break
                n = n_before + (left_before - left)
                gamma = peek(step, 0)
                step = onwards(step, 1)
                left = np.int32(left - 1)
                if left > 0:
                    place = onwards(place, stride)
                    look_ahead(X, place, ahead)
                clock[IN_SEQUENCE], clock[TIME] = 1.0, n
                advance_plain(emission, shape, plain, groups, y, UNKNOWN, 1.0 - gamma, gamma)
                is_update = update_every == 1 or n % update_every == 0
                if is_update:
                    maximize(emission, shape, plain, groups, shares, leaders, True)
                    for i in range(m):
                        some_died |= lives[i] <= 0.0
                    left_after = left if some_died else left_after
                if averaging == AVERAGE_STATISTIC and is_update:
                    weight[0] += as_in(weight, 1.0)
                    for c in range(R):
                        sums[c] += weight[0] * S[c]
                if averaging == AVERAGE_PARAMETERS:
                    average(shape, plain, n, is_update, rules)
            n = n_before + (left_before - left)
            n_new = (n - 1) // update_every - (n_before - 1) // update_every  # M-steps
            if averaging == AVERAGE_STATISTIC and n_new > 0:
                add_to_mean(numbers, at_mean_S, stream, clock, n_new, sums)
            if some_died:
                put_back(numbers, at_alive, stream, lives)
            if left > 0:
                for a in range(d):
                    y[a] = ahead[a]
                    if looks and is_refused(emission, a, y[a]):
                        cuda.atomic.min(found, FIRST_REFUSED, at * d + (n_rows - left) * stride + a)
                        return
                    if abs(y[a]) > largest:
                        y[a] = largest if y[a] > 0.0 else -largest
                left = np.int32(left - 1)
                if left > 0:
                    place = onwards(place, stride)
                    look_ahead(X, place, ahead)
                clock[IN_SEQUENCE], clock[TIME] = clocks[IN_SEQUENCE, stream], n
                fetch(numbers, 0, stream, startprob)
                fetch(numbers, at_alive, stream, alive)
                if averaging == AVERAGE_STATISTIC:
                    fetch(numbers, at_mean_S, stream, mean_S)
                gamma = peek(steps, n - shift)
                n += take(
                    emission, shape, state, groups, shares, leaders, None, None, None, y, n, UNKNOWN, gamma, 1.0, rules
                )
                put_back(numbers, at_alive, stream, alive)
                if averaging == AVERAGE_STATISTIC:
                    put_back(numbers, at_mean_S, stream, mean_S)
                clocks[IN_SEQUENCE, stream] = clock[IN_SEQUENCE]
                clocks[LOG_LIKELIHOOD, stream] += log_likelihood[0]
                log_likelihood[0] = 0.0
                is_settled = n > plain_from
                for i in range(m):
                    is_settled &= alive[i] > 0.0

        # The same stream, but read again: else the compiler would keep all addresses since they were used above
        stream = at + order[0] if is_block else streams[at]
        if is_block and n < int(old_clocks[TIME, stream]) + n_rows:
            found[SOME_MISSING] = 1
        clocks[TIME, stream] = n
        clocks[N_SEEN, stream] += n_rows
        clocks[LOG_LIKELIHOOD, stream] += log_likelihood[0]
        clocks[LIKELIHOOD_FACTOR, stream] = pending[0]
        clocks[N_AVERAGED, stream] = clock[N_AVERAGED]
        put_back(numbers, at_phi, stream, phi)
        put_back(numbers, at_transmat, stream, transmat)
        put_back(numbers, at_theta, stream, theta)
        put_back(numbers, at_tau, stream, tau)
        put_back(numbers, at_S, stream, S)
        if averaging == AVERAGE_PARAMETERS:
            put_back(numbers, at_mean_transmat, stream, mean_transmat)
            put_back(numbers, at_mean_theta, stream, mean_theta)
        if n_prior > 0:
            put_back(numbers, at_prior, stream, prior)

    options = {} if IS_SIMULATED else {"max_registers": registers}
    return cuda.jit(fastmath=dtype == "float32", **options)(learn)  # which removes no check for NaN here


@functools.cache
def span_kernel() -> Any:
    """A kernel that finds the smallest and the largest of some numbers."""

    def span(values: Any, least_and_most: Any) -> None:
        at = cuda.grid(1)
        if at < len(values):
            least, most = values[at], values[at]
            while at < len(values):
                least, most = min(least, values[at]), max(most, values[at])
                at += cuda.gridsize(1)
            cuda.atomic.min(least_and_most, 0, least)
            cuda.atomic.max(least_and_most, 1, most)

    return cuda.jit(span)


def checking_kernel(emission: Any) -> Any:
    """A kernel that finds the first value that cannot occur."""
    d = emission.n_features

    def check(X: Any, found: Any) -> None:
        place = cuda.grid(1)
        while place < len(X):
            if is_refused(emission, place % d, X[place]):
                cuda.atomic.min(found, FIRST_REFUSED, place)
            place += cuda.gridsize(1)

    return cuda.jit(check)


# --- what the compiler has to know ----------------------------------------------------------------------------------


@contextmanager
def numbers_are(dtype: str) -> Iterator[None]:
    """Let numbers in the source that is compiled meanwhile be of this precision.

    In single precision the smallest and largest are those that it can hold: what is not 0 stays so.
    """
    if IS_SIMULATED or dtype == "float64":
        yield
        return
    from numba.cuda.target import CUDATargetContext, CUDATypingContext

    types = _types()
    type_of, constant = CUDATypingContext.resolve_value_type, CUDATargetContext.get_constant_generic

    def single_type_of(self: Any, value: Any) -> Any:
        return types.float32 if type(value) is float else type_of(self, value)

    def single_constant(self: Any, builder: Any, typ: Any, value: Any) -> Any:
        if typ == types.float32 and value != 0.0 and abs(value) < np.inf:
            value = np.copysign(min(max(abs(value), SMALLEST), LARGEST_SINGLE), value)
        return constant(self, builder, typ, value)

    setattr(CUDATypingContext, "resolve_value_type", single_type_of)
    setattr(CUDATargetContext, "get_constant_generic", single_constant)
    _real.append(types.float32)
    try:
        yield
    finally:
        _real.pop()
        setattr(CUDATypingContext, "resolve_value_type", type_of)
        setattr(CUDATargetContext, "get_constant_generic", constant)


_real: list[Any] = []  # the type of numbers, unless it is float64
_known_methods: set[str] = set()


def _types() -> Any:
    from numba.cuda import types

    return types


def introduce(thing: Compilable) -> None:
    """Make the methods of an object, and of those that it is made of, known to the compiler."""
    if IS_SIMULATED:
        return
    from numba.cuda.extending import overload, overload_method

    bridge.type_of(thing, None)  # which makes its functions known
    for function in bridge.FUNCTIONS - _known_functions:
        _known_functions.add(function)
        overload(function, strict=False)(_giving(function, inspect.signature(function)))
    cls: Any = type(thing)
    for name in set(cls.inherited("compiled_methods")) - _known_methods:
        _known_methods.add(name)

        def method(self: CompilableType, *arguments: Any, name: str = name) -> Any:
            return getattr(bridge.CLASSES[self.name], name)

        setattr(method, "__signature__", inspect.signature(getattr(cls, name)))
        overload_method(CompilableType, name, strict=False, jit_options={"forceinline": True})(method)
    for name in cls.inherited("constants"):
        if isinstance(getattr(thing, name), Compilable):
            introduce(getattr(thing, name))


_known_functions: set[Any] = set()


def _giving(function: Any, signature: inspect.Signature) -> Any:
    def implementation(*arguments: Any) -> Any:
        return function

    setattr(implementation, "__signature__", signature)
    return implementation


def _register() -> None:
    """Objects, views, workspaces and reciprocals, as in the bridge for the CPU."""
    from llvmlite import ir
    from numba.cuda import cgutils, types
    from numba.cuda.core.imputils import lower_constant
    from numba.cuda.cudadecl import registry as types_of
    from numba.cuda.cudaimpl import registry as lowering
    from numba.cuda.datamodel import models
    from numba.cuda.extending import infer_getattr, lower_getattr_generic, overload, register_model, typeof_impl
    from numba.cuda.np.arrayobj import make_array, populate_array
    from numba.cuda.typing.templates import AttributeTemplate, CallableTemplate

    options = {"forceinline": True, "fastmath": bridge.OPTIONS["fastmath"]}
    for function in (carry, relative_densities):  # as loops: a thread has no vectors
        overload(function, strict=False, jit_options=options)(_giving(function, inspect.signature(function)))
    typeof_impl.register(Compilable)(bridge.type_of)
    register_model(CompilableType)(models.OpaqueModel)

    @infer_getattr
    class Constants(AttributeTemplate):
        key = CompilableType

        def generic_resolve(self, typ: CompilableType, attribute: str) -> Any:
            constants = dict(typ.constants)
            return bridge.type_of_constant(constants[attribute]) if attribute in constants else None

    @lower_getattr_generic(CompilableType)
    def lower_attribute(context: Any, builder: Any, typ: CompilableType, value: Any, attribute: str) -> Any:
        constant = dict(typ.constants)[attribute]
        if isinstance(constant, CompilableType):
            return context.get_dummy_value()
        return context.get_constant_generic(builder, bridge.type_of_constant(constant), constant)

    @lower_constant(CompilableType)
    def lower_object(context: Any, builder: Any, typ: CompilableType, value: Any) -> Any:
        return context.get_dummy_value()

    def typed(function: Any) -> Any:
        """Say by a function of types what the type of a call is."""

        def decorate(typer: Any) -> Any:
            template = type("Template", (CallableTemplate,), {"key": function, "generic": lambda self: typer})
            types_of.register_global(function)(template)
            return typer

        return decorate

    def array_at(context: Any, builder: Any, typ: Any, data: Any, extents: list[Any]) -> Any:
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(typ.dtype)))
        strides = [itemsize]
        for extent in reversed(extents[1:]):
            strides.insert(0, builder.mul(strides[0], extent))
        array = make_array(typ)(context, builder)
        populate_array(array, data=data, shape=extents, strides=strides, itemsize=itemsize, meminfo=None)
        return array._getvalue()

    @typed(workspace)
    def workspace_type(size: Any) -> Any:
        if isinstance(size, types.IntegerLiteral):
            return types.Array(_real[-1] if _real else types.float64, 1, "C")
        return None

    @lowering.lower(workspace, types.IntegerLiteral)
    def lower_workspace(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        size, typ = max(signature.args[0].literal_value, 1), signature.return_type
        data = cgutils.alloca_once(builder, ir.ArrayType(context.get_data_type(typ.dtype), size))
        first = builder.bitcast(data, context.get_data_type(typ.dtype).as_pointer())
        return array_at(context, builder, typ, first, [context.get_constant(types.intp, size)])

    @typed(view)
    def view_type(vector: Any, offset: Any, shape: Any) -> Any:
        return types.Array(vector.dtype, len(shape), "C")

    @lowering.lower(view, types.Array, types.Integer, types.BaseTuple)
    def lower_view(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, offset, shape = signature.args
        source = make_array(vector)(context, builder, arguments[0])
        data = builder.gep(source.data, [context.cast(builder, arguments[1], offset, types.intp)])
        extents = [
            context.cast(builder, extent, typ, types.intp)
            for extent, typ in zip(cgutils.unpack_tuple(builder, arguments[2]), shape, strict=True)
        ]
        return array_at(context, builder, signature.return_type, data, extents)

    @typed(onwards)
    def onwards_type(array: Any, start: Any) -> Any:
        return array

    @lowering.lower(onwards, types.Array, types.Integer)
    def lower_onwards(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """All but the address stays as it was: nobody asks how long the rest is."""
        array = make_array(signature.args[0])(context, builder, arguments[0])
        array.data = builder.gep(array.data, [context.cast(builder, arguments[1], signature.args[1], types.intp)])
        return array._getvalue()

    @typed(peek)
    def peek_type(array: Any, index: Any) -> Any:
        return array.dtype

    @lowering.lower(peek, types.Array, types.Integer)
    def lower_peek(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index = signature.args
        data = make_array(array)(context, builder, arguments[0]).data
        on_device = builder.addrspacecast(data, ir.PointerType(data.type.pointee, addrspace=1))
        return builder.load(builder.gep(on_device, [context.cast(builder, arguments[1], index, types.intp)]))

    @typed(as_in)
    def as_in_type(array: Any, x: Any) -> Any:
        return array.dtype

    @lowering.lower(as_in, types.Array, types.Float)
    def lower_as_in(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, arguments[1], signature.args[1], signature.return_type)

    @typed(assume)
    def assume_type(condition: Any) -> Any:
        return types.none

    @lowering.lower(assume, types.Boolean)
    def lower_assume(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        typ = ir.FunctionType(ir.VoidType(), [ir.IntType(1)])
        builder.call(cgutils.get_or_insert_function(builder.module, typ, "llvm.assume"), arguments)
        return context.get_dummy_value()

    @typed(reciprocal)
    def reciprocal_type(x: Any) -> Any:
        return x

    @lowering.lower(reciprocal, types.Float)
    def lower_reciprocal(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """From an approximation: to the last bit or so in single precision, to 20 bits in double precision, which two
        steps of Newton make all of them."""
        (x,) = arguments
        if signature.return_type == types.float32:
            single = ir.FunctionType(ir.FloatType(), [ir.FloatType()])
            return builder.asm(single, "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], False)

        def call(name: str, *operands: Any) -> Any:
            typ = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()] * len(operands))
            return builder.call(cgutils.get_or_insert_function(builder.module, typ, name), operands)

        r = call("llvm.nvvm.rcp.approx.ftz.d", x)
        one = context.get_constant(types.float64, 1.0)
        minus_x = builder.fsub(ir.Constant(ir.DoubleType(), -0.0), x)
        for _ in range(2):
            r = call("llvm.fma.f64", r, call("llvm.fma.f64", minus_x, r, one), r)
        return r


if not IS_SIMULATED:
    _register()
