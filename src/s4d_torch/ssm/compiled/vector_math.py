"""Functions of vectors that no instruction computes, in float32 to about the last bit.

Intrinsics, as those of ``vectors``: arithmetic that is put where they are called. For float64 the C
library is called number by number.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from s4d_torch.ssm.compiled.runtime import LANES
from s4d_torch.ssm.compiled.vectors import Vector, intrinsic, spread, types

_FLAGS = ("contract", "nsz")
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_VECTOR, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
float_vector = Vector(types.float32)

_EXP = [1 / math.factorial(k) for k in range(8)]  # exp(r), |r| < log(2) / 2, to 5e-9
# -log of the normal distribution function at -a, 0 <= a < 6: a polynomial whose exponential is
# right to 1e-9, found by least squares with weights that even the errors out
_NORMAL = (
    0.6931471784108716, 0.7978847359490409, 0.3183076273595671, 0.03634636052006545,
    -0.004806516560599685, -8.302028125734261e-06, 0.00019595008744427176,
    -5.160622299783205e-05, 6.5659167329669925e-06, -3.5131008096764796e-07,
)  # fmt: skip


# tanh(x) = x + x^3 T(x^2) for |x| < 0.625, where the exponential form loses digits
_TANH = (-0.3333328194, 0.133314422, -0.0537397151, 0.0206390874, -0.0057049872)
_TANH_SMALL = 0.625


class _Arithmetic:
    """Writes instructions for vectors of float32."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def number(self, x: float) -> Any:
        return ir.Constant(_VECTOR, [x] * LANES)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FLAGS)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_FLAGS)

    def minus(self, a: Any) -> Any:
        return self.builder.fneg(a)

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        total = self.number(coefficients[-1])
        for each in reversed(coefficients[:-1]):
            total = self.add(self.mul(total, x), self.number(each))
        return total

    def within(self, x: Any, low: float, high: float) -> Any:
        """x, or the end of the range that it is beyond; NaN stays."""
        for sign, end in (("<", low), (">", high)):
            beyond = self.builder.fcmp_ordered(sign, x, self.number(end))
            x = self.builder.select(beyond, self.number(end), x)
        return x

    def exp(self, x: Any) -> Any:
        """``2^n exp(r)`` with ``x = n log 2 + r``; log 2 in two parts, the first exact in n."""
        x = self.within(x, -87.0, 88.0)
        # to the nearest whole number: so large a number that there are no places behind the point
        shift = 1.5 * 2**23
        n = self.builder.fadd(self.mul(x, self.number(1 / math.log(2))), self.number(shift))
        n = self.builder.fsub(n, self.number(shift))
        large = 0.693359375
        r = self.add(self.mul(n, self.number(-large)), x)
        r = self.add(self.mul(n, self.number(large - math.log(2))), r)
        exponent = self.builder.add(
            self.builder.fptosi(n, _INTS), ir.Constant(_INTS, [127] * LANES)
        )
        scale = self.builder.shl(exponent, ir.Constant(_INTS, [23] * LANES))
        return self.mul(self.polynomial(r, _EXP), self.builder.bitcast(scale, _VECTOR))

    def tanh(self, x: Any) -> Any:
        """``1 - 2 / (1 + e^2x)``, and for small x a polynomial."""
        square, one = self.mul(x, x), self.number(1.0)
        small = self.add(x, self.mul(self.mul(x, square), self.polynomial(square, _TANH)))
        below = self.add(one, self.exp(self.add(x, x)))
        large = self.add(one, self.builder.fdiv(self.number(-2.0), below, flags=_FLAGS))
        near = self.builder.fcmp_ordered("<", square, self.number(_TANH_SMALL**2))
        return self.builder.select(near, small, large)

    def normal(self, x: Any) -> Any:
        """The normal distribution function."""
        zero, one = self.number(0.0), self.number(1.0)
        above = self.builder.fcmp_ordered(">", x, zero)
        a = self.within(self.builder.select(above, x, self.minus(x)), 0.0, 6.0)
        tail = self.exp(self.minus(self.polynomial(a, _NORMAL)))
        return self.builder.select(above, self.add(one, self.minus(tail)), tail)


def _from_library(context: Any, builder: Any, function: Callable[[float], float], x: Any) -> Any:
    """A function of the C library for each number of a vector of float64."""
    known = context.typing_context.resolve_value_type(function)
    one = known.get_call_type(context.typing_context, (types.float64,), {})
    call, found = context.get_function(known, one), x
    for j in range(LANES):
        place = ir.Constant(_INT, j)
        value = call(builder, [builder.extract_element(x, place)])
        found = builder.insert_element(found, value, place)
    return found


@intrinsic
def exp(typing: Any, x: Any) -> Any:
    """``e^x``; in float32 beyond -87 and 88 that of the end."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if x == float_vector:
            return _Arithmetic(builder).exp(args[0])
        return _from_library(context, builder, math.exp, args[0])

    return x(x), generate


@intrinsic
def normal(typing: Any, x: Any) -> Any:
    """The part of a normal distribution below x, in float32 to 1e-7."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if x == float_vector:
            return _Arithmetic(builder).normal(args[0])
        half, root = (ir.Constant(args[0].type, [c] * LANES) for c in (0.5, -math.sqrt(0.5)))
        beyond = _from_library(context, builder, math.erfc, builder.fmul(args[0], root))
        return builder.fmul(half, beyond)

    return x(x), generate


@intrinsic
def tanh(typing: Any, x: Any) -> Any:
    """The hyperbolic tangent."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if x == float_vector:
            return _Arithmetic(builder).tanh(args[0])
        return _from_library(context, builder, math.tanh, args[0])

    return x(x), generate


@intrinsic
def positive(typing: Any, condition: Any, x: Any) -> Any:
    """x where the condition is above zero, else zero; where it is NaN, NaN."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, [0.0] * LANES)
        not_above = builder.fcmp_ordered("<=", args[0], zero)
        return builder.select(not_above, zero, args[1])

    return x(x, x), generate


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """The sum of the numbers of a vector."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, width = args[0], LANES
        while width > 1:  # add the upper half to the lower one
            width //= 2
            kind = ir.VectorType(ir.IntType(32), width)
            halves = (
                builder.shuffle_vector(x, x, ir.Constant(kind, list(range(first, first + width))))
                for first in (0, width)
            )
            x = builder.fadd(*halves, flags=_FLAGS)
        return builder.extract_element(x, ir.Constant(ir.IntType(64), 0))

    return x.dtype(x), generate


@intrinsic
def drop(typing: Any, x: Any, key: Any, place: Any, dropped: Any) -> Any:
    """Dropout: x over the part that is kept, or zero for ``dropped`` numbers of 2^32 in the mean.

    Which are dropped is a function of key and place alone, that of the first number of x; the
    others follow. Two rounds of multiplications and shifts mix the 32 bits of the place, below the
    lower and the upper half of the key.
    """

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, key, place, dropped = args
        far = builder.lshr(place, ir.Constant(ir.IntType(64), 32))  # beyond 2^32 another key
        key = builder.add(key, builder.mul(far, ir.Constant(ir.IntType(64), 0x9E3779B97F4A7C15)))
        halves = key, builder.lshr(key, ir.Constant(ir.IntType(64), 32))
        bits = spread(builder, builder.trunc(place, _INT))
        bits = builder.add(bits, ir.Constant(_INTS, list(range(LANES))))
        for half in halves:
            bits = _mix(builder, builder.xor(bits, spread(builder, builder.trunc(half, _INT))))
        limit = builder.trunc(dropped, _INT)
        kept = builder.icmp_unsigned(">=", bits, spread(builder, limit))
        part = builder.fdiv(
            builder.uitofp(builder.sub(ir.Constant(ir.IntType(64), 2**32), dropped), _FLOAT),
            ir.Constant(_FLOAT, 2.0**32),
        )
        scaled = builder.fmul(x, spread(builder, builder.fdiv(ir.Constant(_FLOAT, 1.0), part)))
        return builder.select(kept, scaled, ir.Constant(_VECTOR, [0.0] * LANES))

    return float_vector(float_vector, types.int64, types.int64, types.int64), generate


def _mix(builder: Any, bits: Any) -> Any:
    """Numbers of 32 bits to others, one to one, each bit depending on all."""

    def number(x: int) -> Any:
        return ir.Constant(_INTS, [x] * LANES)

    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        bits = builder.xor(bits, builder.lshr(bits, number(shift)))
        bits = builder.mul(bits, number(factor))
    return builder.xor(bits, builder.lshr(bits, number(15)))
