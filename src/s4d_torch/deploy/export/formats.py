"""What a model can be exported to: how each format is written, and called again to be checked."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from s4d_torch._registry import Registry
from s4d_torch.deploy.export import onnx_model, torch_model
from s4d_torch.deploy.export.c.format import CFormat
from s4d_torch.deploy.export.card import Example, onnx_example, torch_example
from s4d_torch.deploy.export.check import (
    Comparison,
    Sequence,
    State,
    Step,
    check_sequence,
    check_step,
)
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.onnx_builder import OPSET, onnx_package, operators
from s4d_torch.deploy.export.web.format import WebFormat
from s4d_torch.nn.plan import ModelPlan

Say = Callable[[str], None]

NO_STEP = (
    "a bidirectional model looks ahead and cannot step; there is no step file: "
    "'s4d train --causal' makes a model that has one"
)


class ExportFormat(Protocol):
    """What an export asks of its format; :class:`Format` does it for two graphs."""

    @property
    def needs(self) -> str: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def states(self) -> tuple[str, ...]: ...
    @property
    def quantizations(self) -> tuple[str, ...]: ...
    @property
    def example(self) -> Example | None: ...
    def require(self) -> dict[str, str]: ...
    def check(self, plan: ModelPlan, /) -> object: ...
    def check_name(self, name: str) -> None: ...
    def write(self, job: Job, place: Path, say: Say) -> None: ...
    def compare(self, job: Job, place: Path, say: Say) -> Comparison: ...
    def describe(self, job: Job, place: Path) -> dict[str, Any]: ...


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
    inspect: Callable[[Path], dict[str, Any]] = lambda path: {}
    """facts of a written file, for its card and ``export.json``"""
    tolerance: float = 1e-4
    """the largest difference from the model that is accepted, of the largest output"""
    states: tuple[str, ...] = ("float64",)
    """the precisions of the state that there are; the first unless another is asked for"""
    quantizations: tuple[str, ...] = ("int8", "float16")

    def check_name(self, name: str) -> None:
        raise ValueError(
            f"there is nothing in a graph to be called {name!r}; a name is for 'c' and 'web'; "
            "nothing was written"
        )

    def write(self, job: Job, place: Path, say: Say) -> None:
        """The files, into a folder."""
        say(f"writing sequence{self.suffix}")
        self.write_sequence(job.plan, place / f"sequence{self.suffix}")
        if job.plan.causal:
            say(f"writing step{self.suffix}")
            self.write_step(job.plan, place / f"step{self.suffix}")

    def compare(self, job: Job, place: Path, say: Say) -> Comparison:
        """What the files answer, beside the model."""
        length = None if job.signature is None else job.signature.length
        say(f"checking sequence{self.suffix} against the model")
        sequence = self.load_sequence(place / f"sequence{self.suffix}")
        found = {"sequence": check_sequence(sequence, job.model, job.plan, job.rate, length)}
        if job.plan.causal:
            say(f"checking step{self.suffix} against the model")
            step = self.load_step(place / f"step{self.suffix}")
            found["step"] = check_step(step, job.model, job.plan, job.rate)
        return Comparison(found)

    def describe(self, job: Job, place: Path) -> dict[str, Any]:
        """Names, types and shapes of what goes in and comes out, per file."""
        plan = job.plan
        lead: list[str | int] = ["batch"] if plan.towers == 1 else ["batch", 2]
        features = [] if plan.tokens else [plan.d_input]
        dtype = "int64" if plan.tokens else "float32"
        times = ["length"] if plan.pooling == "none" else []
        inputs = [_tensor("u", dtype, *lead, "length", *features)]
        inputs.append(_tensor("lengths", "int64", *lead))
        outputs = [_tensor("y", "float32", "batch", *times, plan.d_output)]
        sequence = self._file(place / f"sequence{self.suffix}", inputs, outputs)
        if not plan.causal:
            return {"sequence": sequence, "step": None, "why_no_step": NO_STEP}
        shapes = plan.state_shapes().items()
        inputs = [_tensor("u", dtype, *lead, *features)]
        inputs += [_tensor(name, "float64", *lead, *shape) for name, shape in shapes]
        outputs = [_tensor("y", "float32", "batch", plan.d_output)]
        outputs += [{**state, "name": f"next_{state['name']}"} for state in inputs[1:]]
        step = self._file(place / f"step{self.suffix}", inputs, outputs)
        return {"sequence": sequence, "step": step, "why_no_step": None}

    def _file(self, file: Path, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
        size, found = file.stat().st_size, self.inspect(file)
        return {"file": file.name, "bytes": size, **found, "inputs": inputs, "outputs": outputs}


def _tensor(name: str, dtype: str, *shape: str | int) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


FORMATS: Registry[ExportFormat] = Registry("export format")


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
        inspect=operators,
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


FORMATS.register("c", CFormat())
FORMATS.register("web", WebFormat())
