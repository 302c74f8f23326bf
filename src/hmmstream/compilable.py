"""Objects whose methods run inside the compiled loops."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hmmstream.arrays import FloatArray


def workspace(size: int) -> FloatArray:
    """Uninitialised working memory for a compiled method: on the stack, if ``size`` is a small constant."""
    return np.empty(size)


class Compilable:
    """A plain Python object that the compiled loops can call.

    A subclass names two things. ``compiled_methods`` are methods written in the part of Python that numba understands:
    each is compiled into the loop that calls it. ``constants`` are attributes that those methods may read from
    ``self``: their values are fixed when the loop is compiled, so that ``range(self.n_features)`` unrolls. A constant
    may be a Compilable itself. Nothing else of the object is visible to compiled code.

    The same methods run as ordinary Python when called from Python.
    """

    compiled_methods: ClassVar[tuple[str, ...]] = ()
    constants: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def inherited(cls, names: str) -> tuple[str, ...]:
        """All that the class and its bases list under ``names``: "constants" or "compiled_methods"."""
        return tuple(sorted({name for base in cls.__mro__ for name in base.__dict__.get(names, ())}))
