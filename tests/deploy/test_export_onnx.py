"""ONNX graphs: every choice of a model, any batch and length, the same answer in ONNX Runtime."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from s4d_torch import SequenceModel
from s4d_torch.deploy import export_model
from s4d_torch.nn.plan import make_plan

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from s4d_torch.deploy.export.onnx_model import sequence_graph, step_graph  # noqa: E402

MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "dplr": {"method": "s4"},
    "softmax": {"method": "dss", "softmax_length": 300},
    "cauchy, diagonal": {"kernel": "cauchy", "norm": "none"},
    "first-order hold, per step": {"discretization": "foh", "pooling": "none"},
    "real modes, post-norm": {"init": "real", "prenorm": False, "activation": "silu"},
    "tokens, last": {"encoder": "embedding", "pooling": "last", "norm": "batch"},
    "pairs": {"towers": 2, "activation": "tanh", "mixing": "linear"},
    "both ways": {"bidirectional": True, "mixing": "none"},
    "both ways, dplr, per step": {"method": "s4", "bidirectional": True, "pooling": "none"},
    "both ways, pairs of tokens": {
        "bidirectional": True,
        "towers": 2,
        "encoder": "embedding",
        "discretization": "foh",
        "activation": "relu",
    },
    "double precision": {"dtype": torch.float64, "discretization": "zoh", "n_ssm": 1},
}


def make(name: str) -> SequenceModel:
    generator = Generator().manual_seed(0)
    model = SequenceModel(5, 3, 6, 2, d_state=4, generator=generator, **MODELS[name]).eval()
    for block in model.blocks:  # running statistics that are not those of a fresh model
        if hasattr(block.norm, "running_mean"):
            block.norm.running_mean.normal_(generator=generator)
            block.norm.running_var.uniform_(0.5, 2, generator=generator)
    return model


def session(content: bytes) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(content, options)


def samples(model: SequenceModel, lead: tuple[int, ...], generator: Generator) -> Tensor:
    if model.config["encoder"] == "embedding":
        return torch.randint(5, lead, generator=generator)
    return torch.randn(*lead, 5, generator=generator)


def as_read(model: SequenceModel, u: Tensor) -> Tensor:
    return u.to(next(model.parameters()).dtype) if u.is_floating_point() else u


def assert_same(actual: Any, expected: Tensor) -> None:
    assert actual.shape == tuple(expected.shape)
    scale = float(expected.abs().max())
    assert np.abs(actual - expected.numpy()).max() <= 1e-5 * scale


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_sequence_of_any_batch_and_length(name: str) -> None:
    model, generator = make(name), Generator().manual_seed(1)
    run = session(sequence_graph(make_plan(model)))
    for batch, length in ((1, 1), (2, 64), (3, 65), (1, 300)):
        lead = (batch,) if model.towers == 1 else (batch, 2)
        u = samples(model, (*lead, length), generator)
        ragged = torch.randint(1, length + 1, lead, generator=generator)
        for lengths in (torch.full(lead, length), ragged):
            (y,) = run.run(["y"], {"u": u.numpy(), "lengths": lengths.numpy()})
            assert_same(y, model(as_read(model, u), lengths=lengths)[0])


@pytest.mark.parametrize("name", [name for name in MODELS if "both ways" not in name])
@torch.no_grad()
def test_steps_with_the_state_in_and_out(name: str) -> None:
    model, generator = make(name), Generator().manual_seed(1)
    plan = make_plan(model)
    run = session(step_graph(plan))
    for batch in (1, 3):
        lead = (batch,) if model.towers == 1 else (batch, 2)
        state = model.initial_state(batch)
        own = {part: np.zeros((*lead, *shape)) for part, shape in plan.state_shapes().items()}
        for _ in range(30):
            u = samples(model, lead, generator)
            y, *after = run.run(None, {"u": u.numpy(), **own})
            own = dict(zip(own, after, strict=True))
            expected, state = model.step(as_read(model, u), state)
            assert_same(y, expected)
    for i, layer in enumerate(state.layers):  # the states are the model's own
        np.testing.assert_allclose(own[f"state_{i}"].reshape(layer.shape), layer, atol=1e-6)


def test_no_input_has_a_default() -> None:
    """Runtimes of JavaScript take a default in place of what they are given, or refuse the call."""
    for graph in (sequence_graph, step_graph):
        written = onnx.load_model_from_string(graph(make_plan(make("plain"))))
        inputs = {each.name for each in written.graph.input}
        assert not inputs & {each.name for each in written.graph.initializer}


@torch.no_grad()
def test_padding_may_hold_anything() -> None:
    model = make("both ways")
    run = session(sequence_graph(make_plan(model)))
    u, lengths = torch.randn(2, 70, 5, generator=Generator().manual_seed(2)), np.array([70, 3])
    u[1, 3:] = torch.nan
    (y,) = run.run(["y"], {"u": u.numpy(), "lengths": lengths})
    assert_same(y[:1], model(u[:1])[0])
    assert_same(y[1:], model(u[1:, :3])[0])


@torch.no_grad()
def test_another_sampling_rate() -> None:
    model, u = make("plain"), torch.randn(2, 90, 5, generator=Generator().manual_seed(2))
    run = session(sequence_graph(make_plan(model, rate=2.0)))
    (y,) = run.run(["y"], {"u": u.numpy(), "lengths": np.full(2, 90)})
    assert_same(y, model(u, rate=2.0)[0])


@torch.no_grad()
def test_a_long_sequence_keeps_its_digits() -> None:
    """The mean over 2 * 10^5 samples, and states that have been carried through 3000 chunks."""
    model, length = make("plain"), 200_000
    u = torch.randn(1, length, 5, generator=Generator().manual_seed(2)) + 1
    run = session(sequence_graph(make_plan(model)))
    (y,) = run.run(["y"], {"u": u.numpy(), "lengths": np.full(1, length)})
    assert_same(y, model(u, return_state=False)[0])


def test_real_arithmetic_and_no_operators_of_others() -> None:
    for content in (sequence_graph(make_plan(make("dplr"))), step_graph(make_plan(make("plain")))):
        model = onnx.load_model_from_string(content)
        assert {opset.domain for opset in model.opset_import} == {""}
        types = {constant.data_type for constant in model.graph.initializer}
        assert not types & {onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128}


def test_constants_stay_small() -> None:
    """Tables of chunks are made by the runtime: a file is about as large as its parameters."""
    model = SequenceModel(1, 2, 64, 1, d_state=64, generator=Generator().manual_seed(0))
    parameters = 4 * sum(x.numel() for x in model.parameters())
    assert len(sequence_graph(make_plan(model))) < 3 * parameters


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from s4d_torch.deploy import export_model

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"onnxruntime.*extra 'onnx'"):
        export_model(make("plain"), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_card_lists_opset_and_operators(tmp_path: Path) -> None:
    """A runtime that knows these runs the file: what is listed is all there is."""
    done = export_model(make("plain"), tmp_path / "out")
    card = (done.folder / "README.md").read_text()
    for name in ("sequence", "step"):
        facts = done.facts[name]
        model = onnx.load(done.folder / facts["file"])
        printed = onnx.printer.to_text(model)
        used = set(re.findall(r"= (\w+)[ <(]", printed)) & set(onnx_operators())
        assert set(facts["operators"]) == used
        assert facts["opset"] == model.opset_import[0].version == 17
        assert f"Operators, of opset 17: {', '.join(facts['operators'])}." in card
    assert "Scan" in done.facts["sequence"]["operators"]
    assert "Scan" not in done.facts["step"]["operators"]


def onnx_operators() -> list[str]:
    return [schema.name for schema in onnx.defs.get_all_schemas()]
