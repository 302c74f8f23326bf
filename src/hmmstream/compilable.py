"""Objects whose methods run inside the compiled loops, and functions that those methods call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from hmmstream.arrays import FloatArray

Function = TypeVar("Function", bound=Callable[..., Any])

EMPTY_SUM = -0.0  # to begin a sum with: the compiler leaves it out, while adding 0.0 would change -0.0
ALL_WHOLE = 2.0**53  # from here on there is no number in between
NEW_FUNCTIONS: list[Callable[..., Any]] = []  # that the compiler has not been told of yet


def compilable(function: Function) -> Function:
    """Let compiled methods call a plain function, written in the part of Python that numba understands.

    It stays the plain function that it is when called from Python, and may call other such functions.
    """
    NEW_FUNCTIONS.append(function)
    return function


@compilable
def is_nan(x: float) -> bool:
    """Whether ``x`` is missing. In this form the compiler finds out what it need not ask again."""
    return x != x


@compilable
def is_whole(x: float) -> bool:
    """Whether a finite number that is not negative is whole: in a fraction of the time that a remainder takes."""
    return x >= ALL_WHOLE or x == int(x)


def workspace(size: int) -> FloatArray:
    """Uninitialised working memory for a compiled method: on the stack, if ``size`` is a small constant."""
    return np.empty(size)


def reciprocal(x: float) -> float:
    """1 / x of a positive number that is neither tiny nor huge. On a GPU this takes half the time of a division."""
    return 1.0 / x


def as_in(array: Any, x: float) -> float:
    """``x`` in the precision of the numbers of ``array``, which is double unless a GPU is told otherwise."""
    return float(x)


class Compilable:
    """A plain Python object that the compiled loops can call.

    A subclass names two things. ``compiled_methods`` are methods written in the part of Python that numba understands:
    each is compiled into the loop that calls it. ``constants`` are attributes that those methods may read from
    ``self``: their values are fixed when the loop is compiled, so that ``range(self.n_features)`` unrolls. A constant
    may be a Compilable itself. Nothing else of the object is visible to compiled code. Of methods that are called only
    where a constant is true, ``only_if`` may say so: elsewhere they are not compiled, which saves time. It holds for
    the class itself, not for those that derive from it.

    The same methods run as ordinary Python when called from Python.
    """

    compiled_methods: ClassVar[tuple[str, ...]] = ()
    constants: ClassVar[tuple[str, ...]] = ()
    only_if: ClassVar[dict[str, str]] = {}  # a method's name, and that of the constant

    @classmethod
    def inherited(cls, names: str) -> tuple[str, ...]:
        """All that the class and its bases list under ``names``: "constants" or "compiled_methods"."""
        return tuple(sorted({name for base in cls.__mro__ for name in base.__dict__.get(names, ())}))
