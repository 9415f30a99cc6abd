"""Registered from outside, in one's own file: it works wherever the package's own choices do.

A task and a metric: ``tests/data/test_outside_task.py``.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Generator, Tensor, nn
from torch.testing import assert_close

from s4d_torch import Layer, SequenceModel, Stream, export_model
from s4d_torch._registry import Registry
from s4d_torch.cli import main
from s4d_torch.deploy.export.formats import FORMATS, Format, State
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS, Activation, Mixing
from s4d_torch.nn.norm import NORMS, FoldedNorm, Norm, NormKind
from s4d_torch.nn.plan import ModelPlan
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping.step import compiles
from s4d_torch.ssm.constraint import CONSTRAINTS, Constraint
from s4d_torch.ssm.discretization import DISCRETIZATIONS, Discrete
from s4d_torch.ssm.initialization import INITIALIZATIONS, Spectrum
from s4d_torch.ssm.kernel import vandermonde
from s4d_torch.ssm.state_space import KERNELS, Kernel, StateSpace

SYMBOLS = 5


# -- what a user might write -----------------------------------------------------------------------


class Maxout(nn.Module):
    """The larger of two linear maps."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (2, -1)).amax(-2)


class Scale(nn.Module):
    """A norm that only scales, so that it has a folded form."""

    def __init__(self, features: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, features, device=device, dtype=dtype))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x * self.weight

    def step(self, x: Tensor) -> Tensor:
        return x * self.weight

    def folded(self) -> FoldedNorm:
        weight = self.weight.detach()
        return FoldedNorm(NormKind.AFFINE, weight, torch.zeros_like(weight))


@dataclass(frozen=True)
class Outsider:
    """An entry, the options of a model that uses it, and which forms it has."""

    registry: Registry[Any]
    name: str
    entry: Any
    options: dict[str, Any]
    flags: tuple[str, ...]
    compiled: bool = False
    onnx: bool = False


def of_model(registry: Registry[Any], name: str, entry: Any, **forms: bool) -> Outsider:
    kind = registry.kind
    return Outsider(registry, name, entry, {kind: name}, (f"--model.{kind}", name), **forms)


def of_method(registry: Registry[Any], name: str, entry: Any, field: str | None = None) -> Outsider:
    """A choice of the state space: compiled steps and exports are made from what it computes."""
    kind = field or registry.kind
    flags = (f"--method.{kind}", name)
    return Outsider(registry, name, entry, {kind: name}, flags, compiled=True, onnx=True)


def square_root(decay: Tensor) -> Tensor:
    return (decay - 0.01).clamp(min=1e-4).sqrt()


def events(A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
    """``A_bar = e^(dt A)``, ``B_bar = B``: a sample is an event, whatever the time between them."""
    return Discrete(log_A=dt * A, B_now=B + 0 * A)


def clustered(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    return torch.complex(-0.5 - 0 * n, 3 + 0.1 * n)


def halved(space: StateSpace, length: int) -> Tensor:
    return vandermonde(space.discrete(), space.C / 2, length, pairs=space.pairs)


def onnx_softsign(graph: Any, x: str) -> str:
    return str(graph.op("Softsign", x))


OUTSIDERS = {
    "activation": of_model(ACTIVATIONS, "softsign", nn.Softsign),
    "activation with weights": of_model(ACTIVATIONS, "prelu", nn.PReLU),
    "activation with ONNX": of_model(
        ACTIVATIONS, "softsign2", Activation(nn.Softsign, onnx=onnx_softsign), onnx=True
    ),
    "mixing": of_model(MIXINGS, "maxout", Mixing(2, Maxout)),
    "norm": of_model(NORMS, "rms", nn.RMSNorm),
    "norm that folds": of_model(
        NORMS, "scale", Norm(Scale, Scale.folded), compiled=True, onnx=True
    ),
    "constraint": of_method(CONSTRAINTS, "square", Constraint(lambda x: x * x + 0.01, square_root)),
    "discretisation": of_method(DISCRETIZATIONS, "events", events),
    "initialisation": of_method(INITIALIZATIONS, "clustered", Spectrum(clustered), field="init"),
    "kernel": of_method(KERNELS, "halved", Kernel(halved, adjust=lambda _, step, C: (step, C / 2))),
}


@pytest.fixture(params=OUTSIDERS)
def outsider(request: pytest.FixtureRequest) -> Iterator[Outsider]:
    """Registered as long as a test lasts."""
    found: Outsider = OUTSIDERS[request.param]
    with ExitStack() as stack:
        stack.enter_context(found.registry._added(found.name, found.entry))
        yield found


def model_of(outsider: Outsider, **options: Any) -> SequenceModel:
    generator = Generator().manual_seed(0)
    sizes = {"d_input": 2, "d_output": 3, "d_model": 6, "n_layers": 2, "d_state": 4}
    given = {**sizes, "pooling": "none", **outsider.options, **options}
    return SequenceModel(**given, generator=generator).eval().requires_grad_(False)


def signal(batch: int = 2, length: int = 40, features: int = 2) -> Tensor:
    return torch.randn(batch, length, features, generator=Generator().manual_seed(1))


def agree(actual: Tensor, expected: Tensor) -> None:
    assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# -- every mode of use -----------------------------------------------------------------------------


def test_sequence_is_chunks_is_steps(outsider: Outsider) -> None:
    model, u = model_of(outsider), signal()
    expected, end = model(u)
    first, state = model(u[:, :25])
    second, state = model(u[:, 25:], state)
    agree(torch.cat([first, second], 1), expected)
    state, ys = model.initial_state(2), []
    for sample in u.unbind(1):
        y, state = model.step(sample, state)
        ys.append(y)
    agree(torch.stack(ys, 1), expected)
    assert end is not None
    agree(state.layers[-1], end.layers[-1])
    ragged, _ = model(u, lengths=[40, 7])
    agree(ragged[1, :7], expected[1, :7])
    assert not ragged[1, 7:].any()


def test_gradients_reach_every_parameter(outsider: Outsider) -> None:
    model = model_of(outsider).train().requires_grad_(True)
    model(signal())[0].square().sum().backward()
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in model.parameters())


def test_compiled_steps(outsider: Outsider) -> None:
    """Without a compiled form, by the model's own step: the answer is the same."""
    model, u = model_of(outsider, pooling="mean"), signal()
    assert compiles(model) == outsider.compiled
    expected, end = model(u)
    step = model.compile_step(2)
    agree(step.push_many(u)[:, -1], expected)
    assert end is not None
    agree(step.state.layers[0], end.layers[0])
    y, _ = step(u[:, 0], model.initial_state(2))
    agree(y, model(u[:, :1])[0])
    fork = step.fork()
    agree(fork.push(u[:, 0]), y)
    agree(deepcopy(step).push(u[:, 0]), step.push(u[:, 0]))


def test_streams(outsider: Outsider) -> None:
    model, u = model_of(outsider), signal(batch=1, length=200)
    stream = Stream(model)
    answers = [stream.push(chunk) for chunk in u[0].split([1, 3, 100, 96])]
    agree(torch.cat(answers), model(u)[0][0])


def test_generation(outsider: Outsider) -> None:
    model = model_of(outsider, d_input=SYMBOLS, d_output=SYMBOLS, encoder="embedding")
    symbols = [1, 2]
    for _ in range(8):
        scores, _ = model(torch.tensor([symbols]))
        symbols.append(int(scores[0, -1].argmax()))
    written = model.generate(8, temperature=0, prompt=[1, 2])
    assert written.tolist() == [symbols[2:]]


def test_copies_and_files(outsider: Outsider, tmp_path: Path) -> None:
    model, u = model_of(outsider), signal()
    expected, _ = model(u)
    assert_close(deepcopy(model)(u)[0], expected)
    model.save_pretrained(tmp_path / "model")
    assert_close(SequenceModel.from_pretrained(tmp_path / "model").eval()(u)[0], expected)
    layer, x = model.blocks[0].layer, signal(features=6)
    assert isinstance(layer, Layer)
    layer.save_pretrained(tmp_path / "layer")
    assert_close(Layer.from_pretrained(tmp_path / "layer").eval()(x)[0], layer(x)[0])


def test_training_from_the_command_line(
    outsider: Outsider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("S4D_TORCH_DATA", str(tmp_path / "data"))
    sizes = ("--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1")
    short = ("--epochs", "1", "--training.train-size", "32", "--training.eval-size", "20")
    run = tmp_path / "run"
    threads = torch.get_num_threads()
    given = (*sizes, *short, *outsider.flags, "--quiet", "--out", str(run))
    assert main(["train", "digits", *given]) == 0
    torch.set_num_threads(threads)
    assert outsider.name in (run / "run.json").read_text()


def test_export_to_onnx(outsider: Outsider, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = model_of(outsider)
    if outsider.onnx:
        assert export_model(model, tmp_path / "out").difference < 1e-5
        return
    with pytest.raises(ValueError, match=f"{outsider.registry.kind} '{outsider.name}': no ONNX"):
        export_model(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["activation with weights", "mixing", "norm"])
def test_export_by_torch(name: str, tmp_path: Path) -> None:
    """torch.export traces the modules themselves."""
    outsider = OUTSIDERS[name]
    with outsider.registry._added(outsider.name, outsider.entry):
        model = model_of(outsider, n_layers=1, pooling="mean")
        assert export_model(model, tmp_path / "out", to="pt2").difference < 1e-5


def test_a_module_that_cannot_be_traced(tmp_path: Path) -> None:
    class Counted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * int(x.sum() > 0)

    with (
        ACTIVATIONS._added("counted", Counted),
        pytest.raises(ValueError, match=r"torch.export cannot trace.*nothing was written"),
    ):
        export_model(SequenceModel(2, 3, 6, 1, activation="counted"), tmp_path / "out", to="pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("registry", [ACTIVATIONS, MIXINGS, NORMS], ids=lambda each: each.kind)
def test_what_is_no_entry_is_refused(registry: Registry[Any]) -> None:
    with pytest.raises(TypeError, match=f"{registry.kind} is a.*got 2"):
        registry.register("two", 2)
    assert "two" not in registry


# -- an export format ------------------------------------------------------------------------------


def write(plan: ModelPlan, path: Path) -> None:
    model = plan.model
    assert isinstance(model, SequenceModel)
    config = {"config": json.dumps(model.config)}
    path.write_bytes(save({name: x.clone() for name, x in model.state_dict().items()}, config))
    path.with_suffix(".json").write_text(json.dumps(model.config))


def read(path: Path) -> SequenceModel:
    model = SequenceModel(**json.loads(path.with_suffix(".json").read_text()))
    model.load_state_dict(load(path.read_bytes()))
    return model.eval().requires_grad_(False)


def read_sequence(path: Path) -> Any:
    model = read(path)
    return lambda u, lengths: model(u, lengths=lengths)[0]


def read_step(path: Path) -> Any:
    model = read(path)

    def step(u: Tensor, state: State) -> tuple[Tensor, State]:
        *layers, total, samples = state
        y, after = model.step(u, ModelState(tuple(layers), total, samples))
        return y, (*after.layers, after.total, after.samples)

    return step


def test_an_export_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = Format(".weights", "this file", write, write, read_sequence, read_step)
    model = SequenceModel(2, 3, 6, 1, d_state=4, generator=Generator().manual_seed(0))
    with FORMATS._added("weights", entry):
        done = export_model(model, tmp_path / "out", to="weights")
        assert done.difference < 1e-5
        assert done.sequence.name == "sequence.weights"
        assert "It needs this file" in (done.folder / "README.md").read_text()
        model.save_pretrained(tmp_path / "model")
        assert main(["export", str(tmp_path / "model"), "--to", "weights"]) == 0
        assert "step.weights" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "model"), "--to", "weights"]) == 2
    assert "choose one of: onnx, pt2" in capsys.readouterr().err
