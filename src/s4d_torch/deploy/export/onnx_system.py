"""State space systems as ONNX nodes: one step, and a sequence in chunks with a carried state.

Complex numbers are neighbours ``(re, im)`` in a real vector, as in the states of the models here:
``a s`` is ``re(a) s + im(a) i s``, where ``i s`` swaps neighbours and changes a sign.
"""

from typing import NamedTuple

import torch

from s4d_torch.deploy.export.onnx_builder import Graph, Value
from s4d_torch.nn.plan import CHUNK, SystemPlan


def step(g: Graph, plan: SystemPlan, u: Value, state: Value) -> tuple[Value, Value]:
    """u (batch, H) float32, the carried state, float64 -> y (batch, H), the next state."""
    exact, size = g.cast(u, "float64"), plan.output.shape[1]
    x = g.slice(state, 2, 0, size) if plan.looks_back else state
    met = _advance_once(g, plan, x)
    if plan.looks_back:
        before = g.slice(state, 2, size, size + 1)
        met = g.op("Add", met, g.op("Mul", before, g.constant(plan.before)))
    seen = _sum_last(g, g.op("Mul", met, g.constant(plan.output)))
    y = g.op("Add", seen, g.op("Mul", exact, g.constant(plan.direct)))
    sample = g.unsqueeze(exact, -1)
    after = g.op("Add", met, g.op("Mul", sample, g.constant(plan.now)))
    after = g.op("Concat", after, sample, axis=2) if plan.looks_back else after
    return g.cast(y, "float32"), after


def sequence(g: Graph, plan: SystemPlan, x: Value, rows: Value) -> Value:
    """x (rows, length, H) with a length of whole chunks -> y of the same shape."""
    channels, size = plan.output.shape
    outputs, inputs, toeplitz, power = _tables(g, plan)
    if plan.kind == "low rank":
        chunk_later = Factor(power)
    else:
        chunk_later = _factor(g, plan, power, dtype=torch.float32)
    blocks = g.transpose(g.reshape(x, -1, CHUNK, channels), 2, 0, 1)  # (H, rows n, T)
    added = g.transpose(g.op("MatMul", blocks, inputs), 1, 0, 2)
    added = g.reshape(added, rows, -1, channels, size)
    zero = g.op(
        "ConstantOfShape",
        g.shape(rows, channels, size),
        value=g.onnx.helper.make_tensor("zero", g.onnx.TensorProto.FLOAT, [1], [0.0]),
    )
    _, starts = g.ops(
        "Scan",
        zero,
        added,
        results=2,
        body=_chunk_to_chunk(g, plan, chunk_later).proto(),
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
    )
    starts = g.transpose(g.reshape(starts, -1, channels, size), 1, 0, 2)  # (H, rows n, S)
    free = g.op("MatMul", starts, outputs)
    y = g.op("Add", g.op("MatMul", blocks, toeplitz), free)  # (H, rows n, T)
    return g.reshape(g.transpose(y, 1, 2, 0), rows, -1, channels)


def look_ahead(g: Graph, plan: SystemPlan, x: Value, rows: Value) -> Value:
    """``y_t = sum_s k_s x_(t+1+s)``: the system runs from the end, one sample late."""

    def flip(x: Value) -> Value:
        return g.slice(x, 1, -1, -(2**63) + 1, -1)

    late = g.op("Pad", flip(x), g.constant([0, 1, 0, 0, -1, 0]))
    return flip(sequence(g, plan, late, rows))


def _chunk_to_chunk(g: Graph, plan: SystemPlan, factor: "Factor") -> Graph:
    """The state at the start of each chunk, from what each adds to it."""
    body, shape = g.body("chunks"), ["rows", *plan.output.shape]
    state, more = (body.input(f"{body.scope}{name}", "float32", shape) for name in ("s", "more"))
    after = body.op("Add", _advance(body, plan, factor, state), more)
    body.output(f"{body.scope}after", after, "float32", shape)
    body.output(f"{body.scope}start", state, "float32", shape)
    return body


def _tables(g: Graph, plan: SystemPlan) -> tuple[Value, Value, Value, Value]:
    """``C A^j`` as (H, S, T), ``A^(T-1-j) B`` (H, T, S), the Toeplitz matrix (H, T, T) and A^T.

    Made in the graph from A, B and C, which are much smaller: a runtime that folds constants does
    so once. In double precision until the last step, by doubling.
    """
    low_rank = plan.kind == "low rank"
    power = _matrix(g, plan) if low_rank else g.constant(plan.diagonal)
    rows, column = g.constant(plan.output[:, None]), g.constant(plan.input[:, None])
    columns = column  # (H, 1, S)
    for _ in range(CHUNK.bit_length() - 1):
        if low_rank:
            later = g.op("MatMul", rows, power)
            earlier = g.op("MatMul", columns, g.transpose(power, 0, 2, 1))
        else:  # a row reads the real part, so A is conjugated
            later = _factor(g, plan, g.unsqueeze(power, 1), conjugate=True).times(g, rows)
            earlier = _factor(g, plan, g.unsqueeze(power, 1)).times(g, columns)
        rows = g.op("Concat", rows, later, axis=1)
        columns = g.op("Concat", earlier, columns, axis=1)
        if low_rank:
            power = g.op("MatMul", power, power)
        else:
            power = _factor(g, plan, power).times(g, power)
    kernel = _sum_last(g, g.op("Mul", rows, column))  # (H, T): what follows the first sample
    first = g.constant(plan.direct[:, None])
    nothing = g.constant(torch.zeros_like(plan.direct)[:, None])
    kernel = g.op("Concat", first, g.slice(kernel, 1, 0, CHUNK - 1), nothing, axis=1)
    lag = torch.arange(CHUNK)[None, :] - torch.arange(CHUNK)[:, None]
    place = torch.where(lag >= 0, lag, CHUNK)  # the last entry is the zero
    toeplitz = g.op("Gather", g.cast(kernel, "float32"), g.constant(place.int()), axis=1)
    outputs = g.transpose(g.cast(rows, "float32"), 0, 2, 1)
    return outputs, g.cast(columns, "float32"), toeplitz, g.cast(power, "float32")


class Factor(NamedTuple):
    """A power of A, ready to be multiplied with: a matrix, or real and (signed) imaginary parts."""

    real: Value
    imag: Value | None = None
    size: int = 0

    def times(self, g: Graph, s: Value) -> Value:
        """Entry by entry, for s (..., H, S)."""
        product = g.op("Mul", self.real, s)
        if self.imag is None:
            return product
        turned = g.op("Gather", s, g.constant(torch.arange(self.size) ^ 1), axis=-1)
        return g.op("Add", product, g.op("Mul", self.imag, turned))


def _factor(
    g: Graph,
    plan: SystemPlan,
    power: Value,
    *,
    conjugate: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Factor:
    """The power (..., H, S) of a diagonal in ``dtype`` as a factor."""
    if plan.kind == "real":
        return Factor(power)
    place = torch.arange(plan.output.shape[1])
    real = g.op("Gather", power, g.constant(place // 2 * 2), axis=-1)
    imag = g.op("Gather", power, g.constant(place // 2 * 2 + 1), axis=-1)
    signs = torch.where((place % 2 == 0) != conjugate, -1.0, 1.0)
    return Factor(real, g.op("Mul", imag, g.constant(signs.to(dtype))), len(place))


def _matrix(g: Graph, plan: SystemPlan) -> Value:
    """A of a low-rank system as a matrix, (H, S, S)."""
    one = torch.eye(plan.output.shape[1], dtype=torch.float64)
    factor = _factor(g, plan, g.constant(plan.diagonal))
    assert factor.imag is not None
    real, imag = (
        g.op("Mul", g.unsqueeze(part, 2), g.constant(pattern))
        for part, pattern in ((factor.real, one), (factor.imag, one[torch.arange(len(one)) ^ 1]))
    )
    low_rank = g.op("MatMul", g.constant(plan.left), g.constant(plan.right))
    return g.op("Sub", g.op("Add", real, imag), low_rank)


def _advance_once(g: Graph, plan: SystemPlan, state: Value) -> Value:
    """``A s`` for a state (batch, H, S) in float64."""
    diagonal = g.constant(plan.diagonal)
    if plan.kind != "low rank":
        return _factor(g, plan, diagonal).times(g, state)
    seen = _sum_last(g, g.op("Mul", g.unsqueeze(state, 2), g.constant(plan.right)))
    back = _sum_last(g, g.op("Mul", g.unsqueeze(seen, 2), g.constant(plan.left)))
    return g.op("Sub", _factor(g, plan, diagonal).times(g, state), back)


def _advance(g: Graph, plan: SystemPlan, factor: Factor, state: Value) -> Value:
    """``A s`` for a state (batch, H, S)."""
    if plan.kind != "low rank":
        return factor.times(g, state)
    by_channel = g.transpose(state, 1, 0, 2)
    return g.transpose(g.op("MatMul", by_channel, g.transpose(factor.real, 0, 2, 1)), 1, 0, 2)


def _sum_last(g: Graph, x: Value) -> Value:
    return g.op("ReduceSum", x, g.constant([-1]), keepdims=0)
