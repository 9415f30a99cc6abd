"""The compiled step is the model's own step: the same answers and states in all configurations."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from s4d_torch import CompiledStep, ModelState, SequenceModel
from s4d_torch.nn.stepping import step as compiled

BARS = {torch.float64: 1e-10, torch.float32: 1e-5}
D_INPUT, D_OUTPUT, D_MODEL, D_STATE = 3, 5, 20, 6  # no multiple of a vector

CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"discretization": "zoh", "norm": "batch", "pooling": "none"},
    {"discretization": "foh", "norm": "none", "activation": "relu", "pooling": "last"},
    {"init": "real", "prenorm": False, "mixing": "linear"},
    {"kernel": "cauchy", "init": "inv", "mixing": "none", "norm": "batch", "prenorm": False},
    {"constraint": "softplus", "activation": "silu", "n_ssm": 1, "encoder": "embedding"},
    {"constraint": "identity", "activation": "tanh", "mixing": "linear", "norm": "none"},
    {"activation": "none", "mixing": "none", "pooling": "none", "encoder": "embedding"},
    {"method": "s4", "norm": "batch"},
    {"method": "s4", "init": "fout", "pooling": "last", "mixing": "linear"},
    {"method": "s4", "init": "legs+legt", "encoder": "embedding", "prenorm": False},
    {"method": "dss", "softmax_length": 40, "pooling": "none"},
    {"method": "dss", "init": "real", "softmax_length": 40, "constraint": "exp"},
    {"towers": 2, "activation": "silu"},
    {"towers": 2, "pooling": "last", "encoder": "embedding", "method": "s4"},
    {"d_model": 1, "d_state": 2, "n_layers": 1, "d_input": 1, "d_output": 1},
    {"d_model": 33, "d_state": 64, "n_layers": 3, "dropout": 0.5, "drop_path": 0.5},
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model_of(dtype: torch.dtype = torch.float32, **options: Any) -> SequenceModel:
    sizes = {
        "d_input": D_INPUT,
        "d_output": D_OUTPUT,
        "d_model": D_MODEL,
        "d_state": D_STATE,
        "n_layers": 2,
    }
    model = SequenceModel(**{**sizes, **options}, generator=seeded(), dtype=dtype)
    with torch.no_grad():  # statistics and scales as after training
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if "norm" in name:
                value.add_(0.3 * torch.rand(value.shape, generator=seeded(len(name)), dtype=dtype))
    return model.requires_grad_(False).eval()


def samples(model: SequenceModel, batch: int, length: int, seed: int = 1) -> Tensor:
    """A sequence as the model reads it."""
    shape = (batch, length) if model.towers == 1 else (batch, 2, length)
    if model.config["encoder"] == "embedding":
        return torch.randint(model.d_input, shape, generator=seeded(seed))
    dtype = next(model.parameters()).dtype
    return torch.randn(*shape, model.d_input, generator=seeded(seed), dtype=dtype)


def by_steps(
    step: CompiledStep | Any, u: Tensor, state: ModelState, axis: int
) -> tuple[Tensor, ModelState]:
    ys = []
    for sample in u.unbind(axis):
        y, state = step(sample, state)
        ys.append(y)
    return torch.stack(ys, dim=1), state


def agree(actual: Tensor, expected: Tensor, bar: float) -> None:
    scale = max(expected.abs().max().item(), 1e-3)
    assert_close(actual, expected, rtol=0, atol=bar * scale)


def same_state(actual: ModelState, expected: ModelState, bar: float) -> None:
    for a, b in zip(actual.layers, expected.layers, strict=True):
        agree(a, b, bar)
    agree(actual.total, expected.total, bar)
    assert_close(actual.samples, expected.samples, rtol=0, atol=0)


# -- the same as model.step ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", BARS, ids=str)
@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
def test_compiled_is_eager(options: dict[str, Any], dtype: torch.dtype) -> None:
    model, bar = model_of(dtype, **options), BARS[dtype]
    batch = 1 if len(str(options)) % 2 else 3
    u, axis = samples(model, batch, 50), model.towers
    _, start = model(samples(model, batch, 30, seed=2))  # a state from a whole sequence
    expected, end = by_steps(model.step, u, start, axis)
    step = model.compile_step(batch)
    y, state = by_steps(step, u, start, axis)
    agree(y, expected, bar)
    same_state(state, end, bar)
    step.start(start)
    y = torch.stack([step.push(sample) for sample in u.unbind(axis)], dim=1)
    assert y.dtype == expected.dtype
    agree(y, expected, bar)
    same_state(step.state, end, bar)
    step.start(start)
    agree(step.push_many(u), expected, bar)
    same_state(step.state, end, bar)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("method", ["s4d", "s4"])
def test_a_state_can_be_taken_at_any_time(method: str, length: int) -> None:
    """Inside the machine modes run late, each group at its own time; outside nobody sees it."""
    model = model_of(torch.float64, method=method, d_model=70)
    first, second = samples(model, 2, length + 1), samples(model, 2, 40, seed=3)
    _, state = model(first)
    expected, end = model(second, state)
    stream = model.compile_step(2)
    stream.push_many(first)
    same_state(stream.state, state, 1e-10)
    y = stream.push_many(second)  # taking the state has not moved the stream
    agree(y[:, -1], expected, 1e-10)
    same_state(stream.state, end, 1e-10)
    stream.start(state)
    agree(stream.push_many(second), y, 1e-10)


def test_a_state_that_was_given_is_not_changed() -> None:
    model = model_of()
    _, state = model(samples(model, 1, 30))
    before = copy.deepcopy(state)
    step = model.compile_step()
    step(samples(model, 1, 1)[:, 0], state)
    step.start(state)
    step.push_many(samples(model, 1, 40))
    same_state(state, before, 0)
    taken = step.state
    kept = copy.deepcopy(taken)
    step.push_many(samples(model, 1, 40))
    same_state(taken, kept, 0)


def test_rate() -> None:
    model = model_of(torch.float64)
    u = samples(model, 1, 40)
    expected, _ = model(u, rate=0.5)
    agree(model.compile_step(rate=0.5).push_many(u)[:, -1], expected, 1e-10)


@pytest.mark.parametrize("method", ["s4d", "s4", "dss"])
@pytest.mark.parametrize("signal", ["noise", "constant"])
def test_a_long_float32_stream_is_the_convolution(method: str, signal: str) -> None:
    """20000 samples, and slow modes, which a rounded state would lose; a constant is the worst."""
    model = model_of(
        method=method, d_state=16, pooling="none", dt_min=1e-4, dt_max=1e-2, norm="batch"
    )
    u = samples(model, 1, 20_000)
    u = torch.ones_like(u) if signal == "constant" else u
    wide = copy.deepcopy(model).double()
    expected, _ = wide(u.double())
    agree(model.compile_step().push_many(u).double(), expected, 1e-5)


def test_numpy_in_numpy_out() -> None:
    model = model_of()
    u = samples(model, 1, 20)
    stream, other = model.compile_step(), model.compile_step()
    expected = stream.push_many(u)
    y = other.push_many(u.numpy())
    assert isinstance(y, np.ndarray)
    assert_close(torch.from_numpy(y), expected)
    other.start()
    sample = np.broadcast_to(u[:, 0].numpy(), (1, D_INPUT))
    sample.flags.writeable = False
    y = other.push(sample)
    assert isinstance(y, np.ndarray)
    assert_close(torch.from_numpy(y), expected[:, 0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_tokens_of_every_kind(dtype: torch.dtype) -> None:
    model = model_of(encoder="embedding")
    u = samples(model, 2, 20).to(dtype)
    y = model.compile_step(2).push_many(u)
    agree(y[:, -1], model(u)[0], 1e-5)


def test_nan_and_infinity_are_passed_on() -> None:
    for activation in ("gelu", "silu", "tanh", "relu"):
        model = model_of(activation=activation, pooling="none")
        stream = model.compile_step()
        assert bool(torch.isfinite(stream.push(torch.ones(1, D_INPUT))).all())
        assert bool(torch.isnan(stream.push(torch.full((1, D_INPUT), float("nan")))).all())
        assert bool(torch.isnan(stream.push(torch.ones(1, D_INPUT))).all())  # the state holds it


@pytest.mark.parametrize("activation", ["gelu", "silu", "tanh"])
def test_activations_are_accurate_from_tiny_to_huge(activation: str) -> None:
    import numba

    from s4d_torch.nn.activation import ACTIVATIONS
    from s4d_torch.nn.stepping import activation_code
    from s4d_torch.nn.stepping.layout import W

    x = torch.cat([torch.logspace(-8, 4, 5001), torch.linspace(0.0, 20.0, 4999)])
    x = torch.cat([x, -x])
    expected = ACTIVATIONS[activation]()(x.double())
    y = x.clone().numpy()

    @numba.njit
    def run(kind: int, y: Any) -> None:  # parts are called by compiled code alone
        activation_code.activate(kind, y, 0, y.shape[0] // W)

    run(ACTIVATIONS[activation].compiled, y)
    error = (torch.from_numpy(y).double() - expected).abs()
    assert bool((error <= 1e-6 * x.abs().double()).all())


def test_parameters_are_a_snapshot_in_evaluation() -> None:
    model = model_of(dropout=0.5, norm="batch")
    u = samples(model, 1, 20)
    expected, _ = model(u)
    model.train()
    stream = model.compile_step()
    assert model.training
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    agree(stream.push_many(u)[:, -1], expected, 1e-5)


def test_a_copy_goes_on_by_itself() -> None:
    model = model_of()
    u, v = samples(model, 1, 20), samples(model, 1, 20, seed=5)
    stream = model.compile_step()
    stream.push_many(u)
    others = [copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))]
    expected = torch.stack([stream.push(sample) for sample in v.unbind(1)], dim=1)
    for other in others:
        y = torch.stack([other.push(sample) for sample in v.unbind(1)], dim=1)
        agree(y, expected, 1e-5)


def test_a_stream_that_was_made_in_inference_mode_runs_outside_of_it() -> None:
    model = model_of()
    u = samples(model, 1, 20)
    expected = model.compile_step().push_many(u)
    with torch.inference_mode():
        stream = model.compile_step()
    y = torch.stack([stream.push(sample) for sample in u.unbind(1)], dim=1)
    assert_close(y, expected)


TWO_MODELS = """
from s4d_torch import SequenceModel

plain = SequenceModel(1, 2, 4, 1, d_state=4)
options = {"encoder": "embedding", "pooling": "none", "method": "s4"}
writer = SequenceModel(3, 3, 4, 1, d_state=4, **options)
runs = [model.compile_step()._stream._run for model in (plain, writer)]
print(*(len(run.stats.cache_misses) for run in runs))
"""


def test_the_next_process_finds_what_this_one_has_compiled(tmp_path: Path) -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", TWO_MODELS],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    ]
    assert found == [["1", "1"], ["0", "0"]]


# -- errors ----------------------------------------------------------------------------------------


def test_bidirectional_models_cannot_step() -> None:
    with pytest.raises(ValueError, match="bidirectional model looks ahead and cannot step"):
        model_of(bidirectional=True).compile_step()


@pytest.mark.parametrize(
    ("u", "error", "message"),
    [
        (torch.zeros(1, 4), ValueError, "d_input=3"),
        (torch.zeros(3), ValueError, "2 dimensions"),
        (torch.zeros(2, 3), ValueError, r"compiled for 1; use compile_step\(batch_size=2\)"),
        (torch.zeros(1, 3).double(), TypeError, "float64"),
        (torch.zeros(1, 3).long(), TypeError, "floating point"),
        ([0.0, 0.0, 0.0], TypeError, "list"),
    ],
)
def test_bad_samples(u: Any, error: type[Exception], message: str) -> None:
    model = model_of()
    step = model.compile_step()
    for call in (step.push, lambda u: step(u, model.initial_state(1))):
        with pytest.raises(error, match=message):
            call(u)


def test_bad_sequences_states_and_options() -> None:
    model = model_of()
    step = model.compile_step()
    with pytest.raises(ValueError, match="3 dimensions"):
        step.push_many(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="compiled for 1"):
        step.push_many(torch.zeros(2, 9, 3))
    with pytest.raises(ValueError, match="state is for 2 sequences"):
        step.start(model.initial_state(2))
    with pytest.raises(ValueError, match="state_size"):
        step.start(model_of(d_state=8).initial_state(1))
    with pytest.raises(ValueError, match="batch_size"):
        model.compile_step(0)
    with pytest.raises(ValueError, match="rate"):
        model.compile_step(rate=-1.0)


@pytest.mark.parametrize("token", [-1, D_INPUT])
def test_bad_tokens_leave_the_stream_alone(token: int) -> None:
    model = model_of(encoder="embedding")
    stream = model.compile_step()
    good, bad = samples(model, 1, 20), torch.tensor([[0, 1, token]])
    expected = stream.push_many(good)
    stream.start()
    with pytest.raises(ValueError, match="tokens from 0 to 2"):
        stream.push_many(bad)
    with pytest.raises(ValueError, match="tokens from 0 to 2"):
        stream.push(bad[:, 2])
    assert_close(stream.push_many(good), expected, rtol=0, atol=0)


def test_check_finite() -> None:
    stream = model_of(check_finite=True).compile_step()
    with pytest.raises(ValueError, match="NaN"):
        stream.push(torch.full((1, D_INPUT), float("nan")))
    with pytest.raises(ValueError, match="NaN"):
        stream.push_many(torch.full((1, 2, D_INPUT), float("nan")))


# -- without a compiler ----------------------------------------------------------------------------


class NoMachine:
    """Nothing of it is touched."""


@pytest.mark.parametrize("options", CONFIGURATIONS[::4], ids=str)
def test_without_a_compiler_the_step_is_the_models_own(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "available", lambda device, dtype: False)
    monkeypatch.setattr(compiled, "Machine", NoMachine)
    model = model_of(**options)
    u, axis = samples(model, 1, 20), model.towers
    expected, end = by_steps(model.step, u, model.initial_state(1), axis)
    step = model.train().compile_step()
    y, state = by_steps(step, u, model.initial_state(1), axis)
    assert_close(y, expected)
    same_state(state, end, 1e-6)
    assert_close(step.push_many(u), expected)
    assert_close(step.state.total, end.total)


def test_bfloat16_takes_the_models_own_step() -> None:
    model = model_of(torch.bfloat16)
    u = samples(model, 1, 5)
    y = model.compile_step().push_many(u)
    expected, _ = by_steps(model.step, u, model.initial_state(1), 1)
    assert_close(y, expected)


def test_importing_the_package_does_not_import_numba() -> None:
    code = "import sys, s4d_torch; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


KINDS = """
import sys, torch
from s4d_torch import SequenceModel

torch.set_grad_enabled(False)
for kind in sys.argv[1:]:
    generator = torch.Generator().manual_seed(0)
    options = {"d_state": 4, "method": kind, "generator": generator}
    model = SequenceModel(2, 3, 6, 2, **options).eval()
    stream, state = model.compile_step(), model.initial_state(1)
    for _ in range(40):
        u = torch.randn(1, 2, generator=generator)
        y, state = model.step(u, state)
        torch.testing.assert_close(stream.push(u), y, rtol=0, atol=1e-5)
"""


def test_code_that_two_processes_kept_is_told_apart(tmp_path: Path) -> None:
    """Each kind of step is compiled in a process of its own; a third one loads both."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for kinds in (["s4d"], ["s4"], ["s4d", "s4"]):
        command = [sys.executable, "-c", KINDS, *kinds]
        subprocess.run(command, check=True, env=environment, timeout=300)
