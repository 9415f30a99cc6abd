"""Vectors of neighbouring numbers as values in compiled code: a type of numba, one register or two.

``load(array, place)`` reads LANES numbers from a flat place of a contiguous array, ``store`` writes
them; ``+``, ``-``, ``*`` and ``/`` work number by number, and a product that is added becomes one
instruction where the CPU has it. A loop written with them is vector code by itself: nothing is left
to what a compiler finds out about the loop. Four vectors that follow one another are a tuple:
``load_four``, ``store_four``, ``dot``, ``add_products``, ``add_pairs``, ``add_rows``.

All are intrinsics, which cost the compiler next to nothing; a function of numba's own takes it a
tenth of a second and more. Places are not checked, unless NUMBA_BOUNDSCHECK=1 asks for it, as it
does for indices of arrays: then one outside of its array is an ``IndexError``.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils as numba_cgutils
from numba.core import config as numba_config
from numba.core import types as numba_types
from numba.core.typing import templates as numba_templates

from s4d_torch.ssm.compiled.runtime import LANES

types: Any = numba_types  # whose own annotations have gaps
templates: Any = numba_templates
cgutils: Any = numba_cgutils
config: Any = numba_config
models: Any = extending.models
register_model: Any = extending.register_model
lower_builtin: Any = extending.lower_builtin

# a * b + c may be rounded once; nothing else is rearranged: the order of a sum is its latency
_FLAGS = ("contract", "nsz")


def intrinsic(define: Callable[..., Any]) -> Any:
    return extending.intrinsic(define)


class Vector(types.Type):  # type: ignore[misc]
    """LANES numbers of one dtype."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"vector({dtype}, {LANES})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Vector) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, LANES))


def _data(context: Any, builder: Any, kind: Any, where: Any, count: int) -> Any:
    """A pointer to a flat place of an array, where ``count`` numbers are to be read or written."""
    array, place = where
    found = context.make_array(kind)(context, builder, array)
    if config.BOUNDSCHECK:
        last = builder.add(place, _int(count - 1))
        for each in (place, last):
            cgutils.do_boundscheck(context, builder, each, found.nitems, 0)
    return builder.gep(found.data, [place])


def _pointer(context: Any, builder: Any, kind: Any, args: Any, to: Any, vectors: int = 1) -> Any:
    """Where an array and a place in it, the first of ``args``, lead: a pointer to vectors."""
    data = _data(context, builder, kind, args[:2], vectors * LANES)
    return builder.bitcast(data, to.as_pointer())


def _int(number: int) -> Any:
    return ir.Constant(ir.IntType(64), number)


def _bytes(kind: Any) -> int:
    return int(kind.dtype.bitwidth) // 8


@intrinsic
def load(typing: Any, array: Any, place: Any) -> Any:
    """The numbers from a flat ``place`` of ``array`` on."""
    vector = Vector(array.dtype)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args, context.get_value_type(vector))
        return builder.load(pointer, align=_bytes(array))

    return vector(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, place: Any, vector: Any) -> Any:
    """Write ``vector`` to a flat ``place`` of ``array``."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args, context.get_value_type(vector))
        builder.store(args[2], pointer, align=_bytes(array))
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@intrinsic
def load_one(typing: Any, array: Any, place: Any) -> Any:
    """The number at a flat ``place`` of ``array``, in all places of a vector."""
    vector = Vector(array.dtype)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return spread(builder, builder.load(_data(context, builder, array, args, 1)))

    return vector(array, types.intp), generate


@intrinsic
def load_four(typing: Any, array: Any, place: Any) -> Any:
    """Four vectors that follow one another from a flat ``place`` on."""
    vector = Vector(array.dtype)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first = _pointer(context, builder, array, args, context.get_value_type(vector), 4)
        pointers = [builder.gep(first, [_int(j)]) for j in range(4)]
        found = [builder.load(pointer, align=_bytes(array)) for pointer in pointers]
        return context.make_tuple(builder, sig.return_type, found)

    return types.UniTuple(vector, 4)(array, types.intp), generate


@intrinsic
def store_four(typing: Any, array: Any, place: Any, vectors: Any) -> Any:
    """Write four vectors one after the other from a flat ``place`` on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_value_type(vectors.dtype)
        first = _pointer(context, builder, array, args, kind, 4)
        for j, each in enumerate(_unpacked(builder, args[2], 4)):
            pointer = builder.gep(first, [_int(j)])
            builder.store(each, pointer, align=_bytes(array))
        return context.get_dummy_value()

    return types.void(array, types.intp, vectors), generate


@intrinsic
def dot(typing: Any, a: Any, b: Any) -> Any:
    """``(a_0 b_0 + a_1 b_1) + (a_2 b_2 + a_3 b_3)``."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pairs = zip(*(_unpacked(builder, x, 4) for x in args), strict=True)
        p0, p1, p2, p3 = (builder.fmul(x, y, flags=_FLAGS) for x, y in pairs)
        halves = builder.fadd(p0, p1, flags=_FLAGS), builder.fadd(p2, p3, flags=_FLAGS)
        return builder.fadd(*halves, flags=_FLAGS)

    return a.dtype(a, b), generate


@intrinsic
def add_products(typing: Any, sums: Any, x: Any, v: Any) -> Any:
    """``sums_j + x_j v`` for four vectors x."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        both = zip(*(_unpacked(builder, t, 4) for t in args[:2]), strict=True)
        found = [
            builder.fadd(s, builder.fmul(each, args[2], flags=_FLAGS), flags=_FLAGS)
            for s, each in both
        ]
        return context.make_tuple(builder, sums, found)

    return sums(sums, x, v), generate


@intrinsic
def add_pairs(typing: Any, sums: Any, x: Any, y: Any) -> Any:
    """``sums_j + x_j y_j`` for four vectors x and four y."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        each = zip(*(_unpacked(builder, t, 4) for t in args), strict=True)
        found = [
            builder.fadd(s, builder.fmul(a, b, flags=_FLAGS), flags=_FLAGS) for s, a, b in each
        ]
        return context.make_tuple(builder, sums, found)

    return sums(sums, x, y), generate


@intrinsic
def add_rows(typing: Any, sums: Any, rows: Any, array: Any, place: Any) -> Any:
    """``sums_j + rows_j x_j`` for four vectors and the four numbers x from a flat place on."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first = _data(context, builder, array, args[2:], 4)
        found = _unpacked(builder, args[0], 4)
        for j, row in enumerate(_unpacked(builder, args[1], 4)):
            x = spread(builder, builder.load(builder.gep(first, [_int(j)])))
            found[j] = builder.fadd(found[j], builder.fmul(row, x, flags=_FLAGS), flags=_FLAGS)
        return context.make_tuple(builder, sums, found)

    return sums(sums, rows, array, types.intp), generate


def spread(builder: Any, number: Any) -> Any:
    """A number of LLVM in all places of a vector."""
    kind = ir.VectorType(number.type, LANES)
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, number, _int(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, nothing, places)


def _unpacked(builder: Any, packed: Any, count: int) -> list[Any]:
    return [builder.extract_value(packed, j) for j in range(count)]


@intrinsic
def fill(typing: Any, array: Any, number: Any) -> Any:
    """The same number in all places, of the dtype of ``array``."""
    vector = Vector(array.dtype)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return spread(builder, args[1])

    return vector(array, array.dtype), generate


@intrinsic
def convert(typing: Any, array: Any, vector: Any) -> Any:
    """The same numbers, rounded if need be, of the dtype of ``array``."""
    wanted = Vector(array.dtype)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, more = context.get_value_type(wanted), wanted.dtype.bitwidth - vector.dtype.bitwidth
        if more == 0:
            return args[1]
        return builder.fpext(args[1], kind) if more > 0 else builder.fptrunc(args[1], kind)

    return wanted(array, vector), generate


@intrinsic
def count_above(typing: Any, counts: Any, vector: Any, threshold: Any) -> Any:
    """``counts`` and one more wherever ``vector`` lies above ``threshold``; NaN never does."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = args[0].type
        one, none = (ir.Constant(kind, [number] * LANES) for number in (1.0, 0.0))
        above = builder.fcmp_ordered(">", args[1], args[2])
        return builder.fadd(args[0], builder.select(above, one, none))

    return counts(counts, vector, threshold), generate


@intrinsic
def add_wide(typing: Any, array: Any, place: Any, given: Any) -> Any:
    """Add a vector, or four that follow one another, to ``array`` in double precision."""
    wide, single = Vector(types.float64), isinstance(given, Vector)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_value_type(wide)
        vectors = [args[2]] if single else _unpacked(builder, args[2], 4)
        first = _pointer(context, builder, array, args, kind, len(vectors))
        for j, each in enumerate(vectors):
            pointer = builder.gep(first, [_int(j)])
            more = each if each.type == kind else builder.fpext(each, kind)
            total = builder.fadd(builder.load(pointer, align=8), more)
            builder.store(total, pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, given), generate


def _binary(symbol: Callable[..., Any], instruction: str) -> None:
    """``vector symbol vector`` by an instruction of LLVM."""

    @templates.infer_global(symbol)
    class _Template(templates.AbstractTemplate):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return templates.signature(args[0], *args)
            return None

    @lower_builtin(symbol, Vector, Vector)  # type: ignore[untyped-decorator]
    def _generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args, flags=_FLAGS)


_binary(operator.add, "fadd")
_binary(operator.sub, "fsub")
_binary(operator.mul, "fmul")
_binary(operator.truediv, "fdiv")
