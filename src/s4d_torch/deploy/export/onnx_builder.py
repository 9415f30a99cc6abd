"""ONNX graphs, node by node: a small builder over ``onnx.helper``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from s4d_torch._extras import missing_package
from s4d_torch._version import __version__

OPSET = 17  # the first with LayerNormalization; ONNX Runtime runs it since 1.12
IR_VERSION = 8
LARGEST = 2**31 - 1  # bytes of a protobuf

Array = npt.NDArray[Any]
Value = str  # the name of a tensor in a graph


def onnx_package(name: str = "onnx") -> Any:
    """``onnx`` or ``onnxruntime``, with an error that names the extra where it is missing."""
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_package("ONNX exports", name, "onnx") from error


def operators(path: Path) -> dict[str, Any]:
    """The opset of a written graph, and all operators in it and in the bodies of its loops."""
    model = onnx_package().load(path)
    graphs, found = [model.graph], set()
    while graphs:
        for node in graphs.pop().node:
            found.add(node.op_type)
            graphs += [part.g for part in node.attribute if part.HasField("g")]
    return {"opset": model.opset_import[0].version, "operators": sorted(found)}


class Graph:
    """Nodes and constants; each method that adds something returns the name of its result.

    >>> g = Graph("twice")
    >>> g.output("y", g.op("Add", g.input("x", "float32", ["n"]), "x"), "float32", ["n"])
    >>> content = g.serialized()
    """

    def __init__(self, name: str, outer: Graph | None = None) -> None:
        self.onnx = onnx_package()
        self.name = name
        self.outer = outer  # whose constants the body of a loop uses
        self.scope = ""  # goes before the names of the nodes that are added
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._numbers = count(1)  # of nodes

    def input(self, name: str, dtype: str, shape: Sequence[str | int]) -> Value:
        self.inputs.append(self._described(name, dtype, shape))
        return name

    def output(self, name: str, value: Value, dtype: str, shape: Sequence[str | int]) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self._described(name, dtype, shape))

    def constant(self, content: Tensor | Array | Sequence[int] | float | int) -> Value:
        """A constant; equal ones are stored once. Integers are int64, a float is float32."""
        if self.outer is not None:
            return self.outer.constant(content)
        array = _as_array(content)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._names:
            name = self._names[key] = f"constant_{len(self._names)}"
            self.constants[name] = self.onnx.numpy_helper.from_array(array, name)
        return self._names[key]

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        """A node with one result."""
        return self.ops(kind, *inputs, results=1, **attributes)[0]

    def ops(self, kind: str, *inputs: Value, results: int, **attributes: Any) -> list[Value]:
        """A node with several results."""
        name = f"{self.scope}{kind}_{next(self._numbers)}"
        outputs = [name] if results == 1 else [f"{name}:{i}" for i in range(results)]
        node = self.onnx.helper.make_node(kind, list(inputs), outputs, name=name, **attributes)
        self.nodes.append(node)
        return outputs

    def cast(self, x: Value, dtype: str) -> Value:
        return self.op("Cast", x, to=self._type(dtype))

    def reshape(self, x: Value, *sizes: Value | int) -> Value:
        """To a shape of numbers and of values (1,)."""
        numbers = [size for size in sizes if isinstance(size, int)]
        fixed = len(numbers) == len(sizes)
        return self.op("Reshape", x, self.constant(numbers) if fixed else self.shape(*sizes))

    def shape(self, *sizes: Value | int) -> Value:
        parts = [size if isinstance(size, str) else self.constant([size]) for size in sizes]
        return self.op("Concat", *parts, axis=0)

    def transpose(self, x: Value, *axes: int) -> Value:
        return self.op("Transpose", x, perm=list(axes))

    def slice(self, x: Value, axis: int, start: int, end: Value | int, step: int = 1) -> Value:
        stop = end if isinstance(end, str) else self.constant([end])
        start_, axis_, step_ = (self.constant([number]) for number in (start, axis, step))
        return self.op("Slice", x, start_, stop, axis_, step_)

    def unsqueeze(self, x: Value, axis: int) -> Value:
        return self.op("Unsqueeze", x, self.constant([axis]))

    def body(self, name: str) -> Graph:
        """A graph for the inside of a loop, whose nodes may use the results of this one."""
        inner = Graph(f"{self.scope}{name}", outer=self)
        inner.scope = f"{self.scope}{name}/"
        return inner

    def proto(self) -> Any:
        """The graph itself, as an attribute of a loop takes it."""
        parts = self.nodes, self.name, self.inputs, self.outputs, list(self.constants.values())
        return self.onnx.helper.make_graph(*parts)

    def serialized(self) -> bytes:
        """A whole ONNX file, checked for form."""
        helper = self.onnx.helper
        model = helper.make_model(
            self.proto(),
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="s4d-torch",
            producer_version=__version__,
            ir_version=IR_VERSION,
        )
        if model.ByteSize() > LARGEST:
            raise ValueError(
                f"the graph has {model.ByteSize() / 1e9:.1f} GB, and one ONNX file holds 2 at most"
            )
        self.onnx.checker.check_model(model)
        return model.SerializeToString()

    def _type(self, dtype: str) -> int:
        return self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def _described(self, name: str, dtype: str, shape: Sequence[str | int]) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, self._type(dtype), list(shape))


def _as_array(content: Tensor | Array | Sequence[int] | float | int) -> Array:
    if isinstance(content, Tensor):
        content = content.detach().cpu().numpy()
    if isinstance(content, np.ndarray):
        return np.ascontiguousarray(content)
    return np.array(content, dtype=np.float32 if isinstance(content, float) else np.int64)
