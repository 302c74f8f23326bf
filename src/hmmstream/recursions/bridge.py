"""The one place where Python objects enter compiled code.

numba chooses compiled code by type. Here every :class:`Compilable` object gets a type of its own, made of its class,
the values of its constants and a digest of the source that its methods come from. The digest is part of numba's cache
key: a cached loop is found again by the next process, and never again once the source has changed, be it this
package's or that of a user's own family. An object that is a constant of another stands there as its type, digest and
all.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import njit, typeof, types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    overload,
    overload_method,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import make_array, populate_array

from hmmstream.compilable import NEW_FUNCTIONS, Compilable, as_in, reciprocal, workspace

# The whole of "fastmath" would let LLVM assume that NaN never occurs and remove the checks for missing values.
OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "arcp"}, "error_model": "numpy", "nogil": True}
NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # nobody calls a part of a loop from outside
INLINE: dict[str, Any] = {
    **OPTIONS,
    **NO_WRAPPERS,
    "forceinline": True,
}  # what is passed between the parts of a loop stays in registers
EXACT: dict[str, Any] = {"error_model": "numpy", **NO_WRAPPERS}  # arithmetic in the order of Python
STACK_LIMIT = 4096  # numbers; larger workspaces come from the heap


def compiled(function: Callable[..., Any]) -> Any:
    """A loop that is compiled once for each combination of argument types and cached on disk.

    Every such loop takes a :class:`Compilable`, whose type carries the digest that keeps the cache fresh.
    """
    return njit(cache=True, **OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """A part of a loop, compiled into the loop that calls it."""
    return njit(**INLINE)(function)


def spliced(function: Callable[..., Any]) -> Any:
    """The body of a loop, put into each loop before that is compiled: a large part is not worked on twice."""
    return njit(inline="always", **OPTIONS, **NO_WRAPPERS)(function)


def specialize(loop: Any, *arguments: Any) -> Callable[..., Any]:
    """The machine code of ``loop`` for arguments of these types, to be called with no further look at types."""
    if not hasattr(loop, "compile"):  # where numba is told to compile nothing
        return loop
    with no_collection():
        entry: Callable[..., Any] = loop.compile(tuple(typeof(argument) for argument in arguments))
    return entry


@contextmanager
def no_collection() -> Iterator[None]:
    """The compiler makes very many objects, and next to no garbage: looking for some takes a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# --- objects --------------------------------------------------------------------------------------------------------


class CompilableType(types.Opaque):
    """The numba type of a :class:`Compilable`.

    It holds plain values and other such types only, so that a cache index always loads.
    """

    def __init__(self, module: str, qualname: str, constants: tuple[tuple[str, Any], ...], digest: str) -> None:
        values = ", ".join(f"{name}={value!r}" for name, value in constants)
        super().__init__(f"{module}.{qualname}({values})#{digest}")
        self.constants = constants


CLASSES: dict[str, type[Compilable]] = {}
FUNCTIONS: set[Callable[..., Any]] = set()
_METHODS: dict[str, int] = {}  # and how many arguments they take

register_model(CompilableType)(models.OpaqueModel)


@typeof_impl.register(Compilable)
def type_of(value: Compilable, context: Any) -> CompilableType:
    cls: Any = type(value)
    constants = _constants_of(cls)(value)
    return _type_of(cls, *[type_of(c, context) if isinstance(c, Compilable) else c for c in constants])


@functools.cache
def _constants_of(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """What gets the constants of an object, all at once: this is done at each call of a loop."""
    names = cls.inherited("constants")
    return attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)


@functools.lru_cache(maxsize=None, typed=True)
def _type_of(cls: Any, *values: Any) -> CompilableType:
    constants = tuple(zip(cls.inherited("constants"), values, strict=True))
    typ = CompilableType(cls.__module__, cls.__qualname__, constants, _digest(cls))
    CLASSES[typ.name] = cls
    while NEW_FUNCTIONS:
        _make_function_callable(NEW_FUNCTIONS.pop())
    for name in cls.inherited("compiled_methods"):
        _make_callable(name, inspect.signature(getattr(cls, name)))
    return typ


def _source_of_package() -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.parent.rglob("*.py")))


_PACKAGE_DIGEST = hashlib.sha256(_source_of_package()).digest()  # read now: what is imported is what is on disk
_DIGESTS: dict[type[Compilable], str] = {}


def _digest(cls: type[Compilable]) -> str:
    """A fingerprint of this package's source and of that of a class defined elsewhere."""
    if cls not in _DIGESTS:
        digest = hashlib.sha256(_PACKAGE_DIGEST)
        for base in cls.__mro__:
            if base.__module__.split(".")[0] not in ("hmmstream", "builtins", "abc"):
                file = getattr(sys.modules.get(base.__module__), "__file__", None)
                if file is not None and Path(file).is_file():
                    digest.update(Path(file).read_bytes())
        for name in cls.inherited("compiled_methods"):
            _digest_value(digest, getattr(cls, name), set())
        _DIGESTS[cls] = digest.hexdigest()[:16]
    return _DIGESTS[cls]


def _digest_value(digest: Any, value: Any, seen: set[int]) -> None:
    """Take in a function with all that it refers to. A session without files, and closures, have no other source."""
    value = getattr(value, "py_func", value)  # of a function compiled by numba
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        variables = inspect.getclosurevars(value)
        _digest_value(digest, value.__code__, seen)
        for part in (value.__defaults__, variables.nonlocals, variables.globals):
            _digest_value(digest, part, seen)
    elif isinstance(value, CodeType):
        digest.update(value.co_code + repr(value.co_names).encode())
        _digest_value(digest, value.co_consts, seen)
    elif isinstance(value, dict):
        _digest_value(digest, tuple(value.items()), seen)
    elif isinstance(value, tuple | list):
        for part in value:
            _digest_value(digest, part, seen)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, type | ModuleType | BuiltinFunctionType):
        digest.update(value.__name__.encode())
    else:
        text = repr(value)
        digest.update((type(value).__qualname__ if " at 0x" in text else text).encode())


def _make_callable(name: str, signature: inspect.Signature) -> None:
    n_arguments = len(signature.parameters)
    if name in _METHODS:
        if _METHODS[name] != n_arguments:
            raise TypeError(f"{name} takes another number of arguments in another family: give this one another name")
        return
    _METHODS[name] = n_arguments
    never_called = eval(f"lambda {', '.join(signature.parameters)}: 0.0")  # numba knows no arguments by the star here

    def method(self: CompilableType, *arguments: Any) -> Any:
        cls = CLASSES[self.name]
        only_if = vars(cls).get("only_if", {})  # not that of a base: another class may call its methods elsewhere
        is_called = name not in only_if or dict(self.constants)[only_if[name]]
        return getattr(cls, name) if is_called else never_called

    setattr(method, "__signature__", signature)  # numba matches calls against it
    overload_method(CompilableType, name, strict=False, jit_options=INLINE)(method)


def _make_function_callable(function: Callable[..., Any]) -> None:
    FUNCTIONS.add(function)

    def implementation(*arguments: Any) -> Any:
        return function

    setattr(implementation, "__signature__", inspect.signature(function))
    overload(function, strict=False, jit_options=EXACT)(implementation)


@unbox(CompilableType)
def _unbox(typ: CompilableType, value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


def type_of_constant(value: Any) -> Any:
    if isinstance(value, CompilableType):
        return value
    return types.float64 if isinstance(value, float) else types.literal(value)


@infer_getattr
class _Constants(AttributeTemplate):
    key = CompilableType

    def generic_resolve(self, typ: CompilableType, attribute: str) -> Any:
        constants = dict(typ.constants)
        return type_of_constant(constants[attribute]) if attribute in constants else None


@lower_getattr_generic(CompilableType)
def _lower_constant(context: Any, builder: Any, typ: CompilableType, value: Any, attribute: str) -> Any:
    constant = dict(typ.constants)[attribute]
    if isinstance(constant, CompilableType):
        return context.get_dummy_value()
    return context.get_constant_generic(builder, type_of_constant(constant), constant)


@overload(reciprocal, strict=False, jit_options=INLINE)
def _reciprocal(x: Any) -> Any:
    return reciprocal


@overload(as_in, strict=False, jit_options=INLINE)
def _as_in(array: Any, x: Any) -> Any:
    return lambda array, x: x


# --- memory ---------------------------------------------------------------------------------------------------------


def view(vector: Any, offset: int, shape: Any) -> Any:
    """The part of ``vector`` that starts at ``offset``, seen as an array of ``shape``."""
    size = functools.reduce(lambda product, extent: product * extent, shape, 1)
    return vector[offset : offset + size].reshape(shape)


@overload(view, strict=False, jit_options=INLINE)
def _view(vector: Any, offset: Any, shape: Any) -> Any:
    return lambda vector, offset, shape: _borrow(vector, offset, shape)


@intrinsic
def _borrow(context: Any, vector: Any, offset: Any, shape: Any) -> Any:
    # numba's own slice-and-reshape counts references and hides the extents from the optimiser: half the speed at m = 2.
    result = types.Array(vector.dtype, len(shape), "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = make_array(vector)(context, builder, arguments[0])
        data = builder.gep(source.data, [context.cast(builder, arguments[1], offset, types.intp)])
        extents = [
            context.cast(builder, extent, typ, types.intp)
            for extent, typ in zip(cgutils.unpack_tuple(builder, arguments[2]), shape, strict=True)
        ]
        return _array(context, builder, result, data, extents)

    return result(vector, offset, shape), codegen


@overload(workspace, strict=False, prefer_literal=True, jit_options=INLINE)
def _workspace(size: Any) -> Any:
    if isinstance(size, types.IntegerLiteral) and size.literal_value <= STACK_LIMIT:
        return lambda size: _on_the_stack(size)
    return workspace


@intrinsic(prefer_literal=True)
def _on_the_stack(context: Any, size: Any) -> Any:
    result = types.Array(types.float64, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        extent = context.get_constant(types.intp, size.literal_value)
        data = cgutils.alloca_once(builder, context.get_data_type(types.float64), size=extent)
        return _array(context, builder, result, data, [extent])

    return result(size), codegen


def _array(context: Any, builder: Any, typ: Any, data: Any, extents: list[Any]) -> Any:
    """A C-ordered array of ``typ`` at ``data``, which somebody else owns."""
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(typ.dtype)))
    strides = [itemsize]
    for extent in reversed(extents[1:]):
        strides.insert(0, builder.mul(strides[0], extent))
    array = make_array(typ)(context, builder)
    populate_array(array, data=data, shape=extents, strides=strides, itemsize=itemsize, meminfo=None)
    return array._getvalue()
