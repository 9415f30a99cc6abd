"""What a model can be exported to: how each format is written, and called again to be checked."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s4d_torch._registry import Registry
from s4d_torch.deploy.export import onnx_model, torch_model
from s4d_torch.deploy.export.card import Example, onnx_example, torch_example
from s4d_torch.deploy.export.onnx_builder import OPSET, onnx_package
from s4d_torch.nn.plan import ModelPlan

State = tuple[Tensor, ...]
Sequence = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[Tensor, State], tuple[Tensor, State]]


@dataclass(frozen=True)
class Format:
    """Writers of the two graphs, and loaders of what they wrote; register your own in FORMATS.

    >>> FORMATS.register("mine", Format(".bin", "my runtime", write_sequence=..., ...))
    """

    suffix: str
    needs: str
    """what a program that uses the files has to have installed"""
    write_sequence: Callable[[ModelPlan, Path], object]
    write_step: Callable[[ModelPlan, Path], object]
    load_sequence: Callable[[Path], Sequence]
    load_step: Callable[[Path], Step]
    require: Callable[[], dict[str, str]] = dict
    """raise if a package is missing; the versions that matter"""
    check: Callable[[ModelPlan], object] = lambda plan: None
    """raise if a choice of the model has no form in this format"""
    example: Example | None = None
    """for the model card"""


FORMATS: Registry[Format] = Registry("export format")


def _onnx_versions() -> dict[str, str]:
    packages = {name: onnx_package(name).__version__ for name in ("onnx", "onnxruntime")}
    return {**packages, "opset": str(OPSET)}


def _session(path: Path) -> Any:
    runtime = onnx_package("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _onnx_sequence(path: Path) -> Sequence:
    session = _session(path)

    def call(u: Tensor, lengths: Tensor) -> Tensor:
        given = {"u": u.numpy(), "lengths": lengths.numpy()}
        return torch.from_numpy(session.run(["y"], given)[0])

    return call


def _onnx_step(path: Path) -> Step:
    session = _session(path)
    names = [each.name for each in session.get_inputs()][1:]

    def call(u: Tensor, state: State) -> tuple[Tensor, State]:
        given = {name: part.numpy() for name, part in zip(names, state, strict=True)}
        y, *after = map(torch.from_numpy, session.run(None, {"u": u.numpy(), **given}))
        return y, tuple(after)

    return call


FORMATS.register(
    "onnx",
    Format(
        suffix=".onnx",
        needs="ONNX Runtime, or another runtime of ONNX",
        require=_onnx_versions,
        check=onnx_model.check_forms,
        example=onnx_example,
        write_sequence=lambda plan, path: path.write_bytes(onnx_model.sequence_graph(plan)),
        write_step=lambda plan, path: path.write_bytes(onnx_model.step_graph(plan)),
        load_sequence=_onnx_sequence,
        load_step=_onnx_step,
    ),
)


FORMATS.register(
    "pt2",
    Format(
        suffix=".pt2",
        needs=f"PyTorch alone, of version {torch.__version__.split('+')[0]} or later",
        example=torch_example,
        write_sequence=torch_model.save_sequence,
        write_step=torch_model.save_step,
        load_sequence=torch_model.load_program,
        load_step=torch_model.load_program,
    ),
)
