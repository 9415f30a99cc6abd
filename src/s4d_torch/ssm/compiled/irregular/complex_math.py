"""Complex functions of vectors in double precision, to about the last bit.

Intrinsics, as those of ``vectors``: arithmetic that is put where they are called.
"""

import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from s4d_torch.ssm.compiled.runtime import LANES
from s4d_torch.ssm.compiled.vectors import Vector, intrinsic, types

_FLAGS = ("contract", "nsz")
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_INTS = ir.VectorType(ir.IntType(64), LANES)
double_vector = Vector(types.float64)

LARGEST_ANGLE = 1e5  # beyond, the angle itself has lost digits that three parts of pi cannot give
_SHIFT = 1.5 * 2**52  # so large that there are no places behind the point: rounds what is added
# log 2 and pi / 2 in parts, of which a small whole number of times all but the last are exact
_LOG2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_HALF_PI = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_EXP = [1 / math.factorial(k) for k in range(2, 14)]  # (e^r - 1 - r) / r^2, |r| < log(2) / 2
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(1, 8)]  # (sin r - r) / r^3 in r^2
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(2, 9)]  # (cos r - 1 + r^2/2) / r^4


class _Arithmetic:
    """Writes instructions for vectors of float64."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def number(self, x: float) -> Any:
        return ir.Constant(_VECTOR, [x] * LANES)

    def whole(self, x: int) -> Any:
        return ir.Constant(_INTS, [x] * LANES)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FLAGS)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_FLAGS)

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        total = self.number(coefficients[-1])
        for each in reversed(coefficients[:-1]):
            total = self.add(self.mul(total, x), self.number(each))
        return total

    def rounded(self, x: Any) -> tuple[Any, Any]:
        """The nearest whole number, and its lowest bits as an integer."""
        shifted = self.builder.fadd(x, self.number(_SHIFT))
        return self.builder.fsub(shifted, self.number(_SHIFT)), self.builder.bitcast(shifted, _INTS)

    def without(self, x: Any, n: Any, parts: Sequence[float]) -> Any:
        """``x - n sum(parts)``."""
        for each in parts:
            x = self.add(self.mul(n, self.number(-each)), x)
        return x

    def expm1(self, x: Any) -> tuple[Any, Any]:
        """``e^x`` and ``e^x - 1``: 2^n (e^r - 1) + (2^n - 1) with x = n log 2 + r."""
        for sign, end in (("<", -708.0), (">", 709.0)):  # NaN stays
            beyond = self.builder.fcmp_ordered(sign, x, self.number(end))
            x = self.builder.select(beyond, self.number(end), x)
        n, bits = self.rounded(self.mul(x, self.number(1 / math.log(2))))
        r = self.without(x, n, _LOG2)
        p = self.add(self.mul(self.mul(r, r), self.polynomial(r, _EXP)), r)
        exponent = self.builder.shl(self.builder.add(bits, self.whole(1023)), self.whole(52))
        scale = self.builder.bitcast(exponent, _VECTOR)
        part = self.mul(scale, p)
        less = self.add(part, self.builder.fsub(scale, self.number(1.0)))
        return self.add(part, scale), less

    def turn(self, x: Any) -> tuple[Any, Any, Any]:
        """``sin x``, ``cos x`` and ``cos x - 1``, up to LARGEST_ANGLE."""
        n, bits = self.rounded(self.mul(x, self.number(2 / math.pi)))
        r = self.without(x, n, _HALF_PI)
        square = self.mul(r, r)
        sine = self.add(self.mul(self.mul(r, square), self.polynomial(square, _SIN)), r)
        fourth = self.mul(self.mul(square, square), self.polynomial(square, _COS))
        less = self.add(self.mul(square, self.number(-0.5)), fourth)  # cos r - 1
        cosine = self.add(less, self.number(1.0))
        odd = self._bit(bits, 1)
        sin = self.builder.select(odd, cosine, sine)
        cos = self.builder.select(odd, sine, cosine)
        sin = self.builder.select(self._bit(bits, 2), self.builder.fneg(sin), sin)
        turned = self._bit(self.builder.add(bits, self.whole(1)), 2)
        cos = self.builder.select(turned, self.builder.fneg(cos), cos)
        quarter = self.builder.and_(bits, self.whole(3))
        near = self.builder.icmp_unsigned("==", quarter, self.whole(0))
        far = self.builder.fsub(cos, self.number(1.0))
        return sin, cos, self.builder.select(near, less, far)

    def _bit(self, bits: Any, which: int) -> Any:
        kept = self.builder.and_(bits, self.whole(which))
        return self.builder.icmp_unsigned("!=", kept, self.whole(0))


@intrinsic
def complex_expm1(typing: Any, real: Any, imag: Any) -> Any:
    """``e^(real + i imag) - 1``, both parts; near zero no digit is lost."""
    both = types.UniTuple(double_vector, 2)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        code = _Arithmetic(builder)
        size, grown = code.expm1(args[0])
        sin, cos, less = code.turn(args[1])
        # e^a cos b - 1 = (e^a - 1) cos b + (cos b - 1)
        parts = [code.add(code.mul(grown, cos), less), code.mul(size, sin)]
        return context.make_tuple(builder, both, parts)

    return both(double_vector, double_vector), generate
