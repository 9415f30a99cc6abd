"""Whole models as ONNX graphs: ``sequence`` with any batch and length, ``step`` with its state."""

import numpy as np

from s4d_torch.deploy.export import onnx_system
from s4d_torch.deploy.export.onnx_builder import Graph, Value
from s4d_torch.nn.norm import FoldedNorm, NormKind
from s4d_torch.nn.plan import CHUNK, AffinePlan, BlockPlan, ModelPlan, lacking


def check_forms(plan: ModelPlan) -> None:
    """Refuse a model with a choice that has no ONNX form."""
    if without := lacking(plan.model, "onnx"):
        kinds = {"activation": "onnx=", "mixing": "onnx=", "norm": "fold="}
        given = ", ".join(f"{kinds[name.split()[0]]} for the {name}" for name in without)
        raise ValueError(
            f"{' and '.join(without)}: no ONNX form; register it with one ({given}), "
            "or export to 'pt2'; nothing was written"
        )


def sequence_graph(plan: ModelPlan) -> bytes:
    """``u`` and ``lengths`` -> ``y``; see the card of an export for shapes.

    Neither has a default: there are runtimes that would take it in place of what they are given.
    """
    g = Graph("sequence")
    lead: list[str | int] = ["batch"] if plan.towers == 1 else ["batch", 2]
    features = [] if plan.tokens else [plan.d_input]
    u = g.input("u", "int64" if plan.tokens else "float32", [*lead, "length", *features])
    lengths = g.input("lengths", "int64", lead)
    shape = g.op("Shape", u)
    length = g.slice(shape, 0, plan.towers, plan.towers + 1)
    rows = g.op("ReduceProd", g.slice(shape, 0, 0, plan.towers), axes=[0], keepdims=1)
    lengths = g.reshape(g.op("Min", lengths, length), -1)  # (rows,)
    u, valid = _padded(g, plan, g.reshape(u, rows, length, *features), length, lengths)
    x = _encode(g, plan, u)
    for i, block in enumerate(plan.blocks):
        g.scope = f"block_{i}/"
        x = _block(g, plan, block, x, rows, valid)
    g.scope = ""
    y = _decode(g, plan, _pool(g, plan, _norm(g, plan.norm, x), rows, valid, lengths))
    times = []
    if plan.pooling == "none":
        y, times = g.slice(g.op("Where", valid, y, g.constant(0.0)), 1, 0, length), ["length"]
    g.output("y", y, "float32", ["batch", *times, plan.d_output])
    return g.serialized()


def step_graph(plan: ModelPlan) -> bytes:
    """``u`` and the state -> ``y`` and the next state, whose names begin with ``next_``."""
    g = Graph("step")
    lead: list[str | int] = ["batch"] if plan.towers == 1 else ["batch", 2]
    features = [] if plan.tokens else [plan.d_input]
    u = g.input("u", "int64" if plan.tokens else "float32", [*lead, *features])
    shapes = plan.state_shapes()
    state = {name: g.input(name, "float64", [*lead, *shape]) for name, shape in shapes.items()}
    if plan.towers == 2:
        u = g.reshape(u, -1, *features)
        state = {name: g.reshape(state[name], -1, *shape) for name, shape in shapes.items()}
    x, after = _encode(g, plan, u), {}
    for i, block in enumerate(plan.blocks):
        g.scope = f"block_{i}/"
        name = f"state_{i}"
        branch = _norm(g, block.norm, x) if plan.prenorm else x
        y, after[name] = onnx_system.step(g, block.past, branch, state[name])
        x = g.op("Add", x, _mix(g, plan, block, y))
        x = x if plan.prenorm else _norm(g, block.norm, x)
    g.scope = ""
    x = _norm(g, plan.norm, x)
    if plan.pooling == "mean":
        total = after["total"] = g.op("Add", state["total"], g.cast(x, "float64"))
        samples = g.op("Add", state["samples"], g.constant(np.array(1.0)))
        after["samples"] = samples
        x = g.cast(g.op("Div", total, g.unsqueeze(samples, 1)), "float32")
    g.output("y", _decode(g, plan, x), "float32", ["batch", plan.d_output])
    for name, shape in shapes.items():
        value = after[name] if plan.towers == 1 else g.reshape(after[name], -1, 2, *shape)
        g.output(f"next_{name}", value, "float64", [*lead, *shape])
    return g.serialized()


def _padded(
    g: Graph, plan: ModelPlan, u: Value, length: Value, lengths: Value
) -> tuple[Value, Value]:
    """u (rows, P, ...) with P whole chunks and zeros in the padding; valid (rows, P, 1)."""
    chunk = g.constant([CHUNK])
    chunks = g.op("Div", g.op("Add", length, g.constant([CHUNK - 1])), chunk)
    whole = g.op("Mul", chunks, chunk)
    more = g.op("Sub", whole, length)
    pads: list[Value | int] = [0, 0, 0, more] if plan.tokens else [0, 0, 0, 0, more, 0]
    u = g.op("Pad", u, g.shape(*pads))
    end = g.op("Squeeze", whole, g.constant([0]))
    place = g.op("Range", g.constant(0), end, g.constant(1))
    inside = g.op("Less", place, g.unsqueeze(lengths, 1))  # (rows, P)
    valid = g.unsqueeze(inside, 2)
    if plan.tokens:
        return g.op("Where", inside, u, g.constant(0)), valid
    return g.op("Where", valid, u, g.constant(0.0)), valid


def _encode(g: Graph, plan: ModelPlan, u: Value) -> Value:
    if isinstance(plan.encoder, AffinePlan):
        return _affine(g, plan.encoder, u)
    return g.op("Gather", g.constant(plan.encoder.float()), u, axis=0)


def _block(
    g: Graph, plan: ModelPlan, block: BlockPlan, x: Value, rows: Value, valid: Value
) -> Value:
    branch = _norm(g, block.norm, x) if plan.prenorm else x
    if block.future is not None:  # the padding would be heard
        branch = g.op("Where", valid, branch, g.constant(0.0))
    y = onnx_system.sequence(g, block.past, branch, rows)
    if block.future is not None:
        y = g.op("Add", y, onnx_system.look_ahead(g, block.future, branch, rows))
    x = g.op("Add", x, _mix(g, plan, block, y))
    return x if plan.prenorm else _norm(g, block.norm, x)


def _mix(g: Graph, plan: ModelPlan, block: BlockPlan, y: Value) -> Value:
    y = _activate(g, plan, y)
    if block.linear is not None:
        y = _affine(g, block.linear, y)
    assert plan.mixing.onnx is not None
    return plan.mixing.onnx(g, y)


def _activate(g: Graph, plan: ModelPlan, x: Value) -> Value:
    assert plan.activation.onnx is not None
    return plan.activation.onnx(g, x)


def _affine(g: Graph, plan: AffinePlan, x: Value) -> Value:
    weight = plan.weight.t()  # (inputs, outputs)
    fewer_bits = weight.element_size() < 4
    values = g.constant(weight if fewer_bits else weight.float())
    values = g.cast(values, "float32") if fewer_bits else values
    if plan.scale is not None:
        # not DequantizeLinear: ONNX Runtime takes that as leave to round the activations too
        values = g.op("Mul", values, g.constant(plan.scale))
    return g.op("Add", g.op("MatMul", x, values), g.constant(plan.bias.float()))


def _norm(g: Graph, norm: FoldedNorm | None, x: Value) -> Value:
    assert norm is not None
    if norm.kind == NormKind.NONE:
        return x
    scale, shift = g.constant(norm.scale.float()), g.constant(norm.shift.float())
    if norm.kind == NormKind.LAYER:
        return g.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=norm.eps)
    return g.op("Add", g.op("Mul", x, scale), shift)


def _pool(g: Graph, plan: ModelPlan, x: Value, rows: Value, valid: Value, lengths: Value) -> Value:
    if plan.pooling == "none":
        return x
    if plan.pooling == "last":
        last = g.unsqueeze(g.op("Sub", lengths, g.constant([1])), 1)
        return g.op("GatherND", x, last, batch_dims=1)
    inside = g.op("Where", valid, x, g.constant(0.0))
    chunks = g.reshape(inside, rows, -1, CHUNK, plan.d_model)
    sums = g.op("ReduceSum", chunks, g.constant([2]), keepdims=0)
    # float32 inside a chunk and float64 over them: the sum of a million samples keeps its digits
    total = g.op("ReduceSum", g.cast(sums, "float64"), g.constant([1]), keepdims=0)
    return g.cast(g.op("Div", total, g.unsqueeze(g.cast(lengths, "float64"), 1)), "float32")


def _decode(g: Graph, plan: ModelPlan, x: Value) -> Value:
    if plan.towers == 2:
        pairs = g.reshape(x, -1, 2, plan.d_model)
        a, b = (g.op("Gather", pairs, g.constant(i), axis=1) for i in (0, 1))
        x = g.op("Concat", a, b, g.op("Sub", a, b), g.op("Mul", a, b), axis=-1)
    for i, part in enumerate(plan.decoder):
        x = _affine(g, part, x if i == 0 else _activate(g, plan, x))
    return x
