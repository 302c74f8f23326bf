"""Rows of numbers as single values: LLVM keeps them in vector registers, whatever their length.

numba leaves it to LLVM to find such operations in loops over states, and with 16 states or more it finds few.
"""

from __future__ import annotations

import operator
from math import factorial, log
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model
from numba.np.arrayobj import make_array

from hmmstream.recursions.bridge import INLINE

BLOCK = 8  # rows and columns that are transposed together: a line of the cache
FLAGS = ("reassoc", "contract", "arcp")


class Vector(types.Type):
    """The numba type of ``size`` float64 numbers."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"Vector({size})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, typ: Vector) -> None:
        super().__init__(manager, typ, ir.VectorType(ir.DoubleType(), typ.size))


def _pointer(context: Any, builder: Any, array: Any, at: Any, typ: Any, at_typ: Any, size: int) -> Any:
    data = make_array(typ)(context, builder, array).data
    start = builder.gep(data, [context.cast(builder, at, at_typ, types.intp)])
    return builder.bitcast(start, ir.VectorType(ir.DoubleType(), size).as_pointer())


def _spread(builder: Any, value: Any, size: int) -> Any:
    vector = ir.VectorType(ir.DoubleType(), size)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), size), [0] * size)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), zeros)


@intrinsic(prefer_literal=True)
def load(context: Any, array: Any, at: Any, size: Any) -> Any:
    """``size`` numbers of a C-ordered ``array``, from place ``at`` on."""
    result = Vector(size.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, arguments[0], arguments[1], array, at, result.size)
        return builder.load(pointer, align=8, typ=ir.VectorType(ir.DoubleType(), result.size))

    return result(array, at, size), codegen


@intrinsic
def store(context: Any, array: Any, at: Any, vector: Any) -> Any:
    """Write ``vector`` into a C-ordered ``array``, from place ``at`` on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, arguments[0], arguments[1], array, at, vector.size)
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return types.none(array, at, vector), codegen


def prefetch(array: Any, at: Any) -> None:
    """Ask for the line of the cache that holds place ``at`` of a C-ordered ``array``, and do not wait for it."""


@overload(prefetch, strict=False, jit_options=INLINE)
def _prefetch(array: Any, at: Any) -> Any:
    return lambda array, at: _ask_for(array, at)


@intrinsic
def _ask_for(context: Any, array: Any, at: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, address = ir.IntType(32), ir.IntType(8).as_pointer()
        data = make_array(array)(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(data, [context.cast(builder, arguments[1], at, types.intp)]), address)
        typ = ir.FunctionType(ir.VoidType(), [address, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, typ, "llvm.prefetch.p0")
        builder.call(function, [place, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.none(array, at), codegen


@intrinsic(prefer_literal=True)
def spread(context: Any, value: Any, size: Any) -> Any:
    """The same ``value`` ``size`` times."""
    result = Vector(size.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _spread(builder, context.cast(builder, arguments[0], value, types.float64), result.size)

    return result(value, size), codegen


@intrinsic(prefer_literal=True)
def repeat_each(context: Any, vector: Any, times: Any) -> Any:
    """Each number of ``vector`` so many times, one after the other."""
    result = Vector(vector.size * times.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = [at for at in range(vector.size) for _ in range(times.literal_value)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), result.size), places)
        return builder.shuffle_vector(arguments[0], ir.Constant(arguments[0].type, ir.Undefined), mask)

    return result(vector, times), codegen


@intrinsic
def total(context: Any, vector: Any) -> Any:
    """The sum of all numbers of ``vector``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double, size = ir.DoubleType(), vector.size
        typ = ir.FunctionType(double, [double, ir.VectorType(double, size)])
        name = f"llvm.vector.reduce.fadd.v{size}f64"
        function = cgutils.get_or_insert_function(builder.module, typ, name)
        return builder.call(function, [ir.Constant(double, -0.0), arguments[0]], fastmath=FLAGS)

    return types.float64(vector), codegen


@intrinsic
def absolute(context: Any, vector: Any) -> Any:
    """Each number of ``vector`` without its sign."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        typ = ir.FunctionType(arguments[0].type, [arguments[0].type])
        function = cgutils.get_or_insert_function(builder.module, typ, f"llvm.fabs.v{vector.size}f64")
        return builder.call(function, arguments)

    return vector(vector), codegen


@intrinsic
def where_above(context: Any, vector: Any, least: Any, values: Any) -> Any:
    """``values`` where ``vector`` is above ``least``, 0 elsewhere."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        above = builder.fcmp_ordered(">", arguments[0], _spread(builder, arguments[1], vector.size))
        zero = _spread(builder, ir.Constant(ir.DoubleType(), 0.0), vector.size)
        return builder.select(above, arguments[2], zero)

    return vector(vector, least, vector), codegen


@intrinsic
def transpose_block(context: Any, source: Any, at: Any, target: Any, to: Any, stride: Any) -> Any:
    """Write BLOCK rows of BLOCK numbers, ``stride`` apart, from place ``at`` of ``source`` to ``to`` as columns."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(start: int, row: int) -> Any:
            return builder.add(arguments[start], builder.mul(arguments[4], ir.Constant(ir.IntType(64), row)))

        rows = []
        for row in range(BLOCK):
            pointer = _pointer(context, builder, arguments[0], place(1, row), source, types.intp, BLOCK)
            rows.append(builder.load(pointer, align=8, typ=ir.VectorType(ir.DoubleType(), BLOCK)))
        for half in (4, 2, 1):  # two quarters of each block of 2 half rows change places
            for row in range(BLOCK):
                if not row & half:
                    lower = [j if not j & half else BLOCK + j - half for j in range(BLOCK)]
                    upper = [j + half if not j & half else BLOCK + j for j in range(BLOCK)]
                    pair = rows[row], rows[row + half]
                    for at_row, places in ((row, lower), (row + half, upper)):
                        mask = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), places)
                        rows[at_row] = builder.shuffle_vector(*pair, mask)
        for row in range(BLOCK):
            pointer = _pointer(context, builder, arguments[2], place(3, row), target, types.intp, BLOCK)
            builder.store(rows[row], pointer, align=8)
        return context.get_dummy_value()

    return types.none(source, types.intp, target, types.intp, types.intp), codegen


def _binary(instruction: str) -> Any:
    @intrinsic
    def operation(context: Any, a: Any, b: Any) -> Any:
        result = a if isinstance(a, Vector) else b

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            both = [
                value if isinstance(typ, Vector) else _spread(builder, value, result.size)
                for value, typ in zip(arguments, signature.args, strict=True)
            ]
            return getattr(builder, instruction)(*both, flags=FLAGS)

        return result(a, b), codegen

    return operation


def _overload(symbol: Any, instruction: str) -> None:
    operation = _binary(instruction)

    @overload(symbol, strict=False, jit_options=INLINE)
    def implementation(a: Any, b: Any) -> Any:
        kinds = (Vector, types.Float)
        if isinstance(a, kinds) and isinstance(b, kinds) and (isinstance(a, Vector) or isinstance(b, Vector)):
            return lambda a, b: operation(a, b)
        return None


for _symbol, _instruction in ((operator.add, "fadd"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _overload(_symbol, _instruction)


LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
SMALLEST_EXPONENT = -708.0
TAYLOR = [1.0 / factorial(degree) for degree in range(13, -1, -1)]


@intrinsic
def exponential(context: Any, vector: Any) -> Any:
    """exp of numbers below 700, to the last digit or so; what is below 1e-307 is 0."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (x,) = arguments
        size = vector.size
        integers = ir.VectorType(ir.IntType(64), size)

        def constant(value: float) -> Any:
            return _spread(builder, ir.Constant(ir.DoubleType(), value), size)

        def intrinsic_call(name: str, *operands: Any) -> Any:  # no flags: the order of the operations matters here
            typ = ir.FunctionType(x.type, [x.type] * len(operands))
            function = cgutils.get_or_insert_function(builder.module, typ, f"llvm.{name}.v{size}f64")
            return builder.call(function, operands)

        # x = k ln 2 + r with |r| < 0.35, exp(x) = 2^k exp(r)
        k = intrinsic_call("floor", intrinsic_call("fma", x, constant(1.0 / log(2.0)), constant(0.5)))
        r = intrinsic_call("fma", k, constant(-LN2_LOW), intrinsic_call("fma", k, constant(-LN2_HIGH), x))
        value = constant(TAYLOR[0])
        for coefficient in TAYLOR[1:]:
            value = intrinsic_call("fma", value, r, constant(coefficient))
        shifted = builder.fadd(k, constant(1.5 * 2.0**52 + 1023.0))  # the last bits are the exponent of 2^k
        exponent = builder.shl(builder.bitcast(shifted, integers), ir.Constant(integers, [52] * size))
        power = builder.bitcast(exponent, x.type)
        is_small = builder.fcmp_unordered("<", x, constant(SMALLEST_EXPONENT))
        return builder.select(is_small, constant(0.0), builder.fmul(value, power))

    return vector(vector), codegen
