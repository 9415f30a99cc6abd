"""Nothing reaches compiled code unchecked: it reads and writes where it is told to.

What could end the interpreter runs in one of its own.
"""

import subprocess
import sys
from ast import literal_eval
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from s4d_torch import S4D, SequenceModel
from s4d_torch.nn.stepping import Generation

FUZZ = '''
import random, sys, torch
from torch import nn
from s4d_torch import S4D, ModelState, SequenceModel
import s4d_torch.ssm.engine
from s4d_torch.ssm.compiled.convolution import fourier
from s4d_torch.ssm.compiled.runtime import LANES

random.seed(SEED)
torch.manual_seed(SEED)
torch.set_num_threads(2)
FINE = (TypeError, ValueError, RuntimeError, IndexError)
DTYPES = [torch.float32, torch.float64, torch.int64, torch.float16, torch.complex64, torch.bool]
outcomes = {"right": 0, "refused": 0}


def other(shape):
    """Another shape, or the same one."""
    shape = list(shape)
    for _ in range(random.choice([0, 0, 1, 2])):
        kind = random.randrange(4)
        if kind == 0 and shape:
            shape[random.randrange(len(shape))] = random.choice([0, 1, 2, 3, 5, 40])
        elif kind == 1 and shape:
            shape.pop(random.randrange(len(shape)))
        elif kind == 2:
            shape.insert(random.randrange(len(shape) + 1), random.choice([1, 2]))
        else:
            random.shuffle(shape)
    return shape


def tensor(shape, dtype, plain=0.7):
    """Random numbers, often of the shape and type that are expected, in any layout."""
    if random.random() > plain:
        shape = other(shape)
        dtype = random.choice([dtype, dtype, *DTYPES])
    x = torch.rand(shape) * random.choice([0.5, 1.0, 1.0, 50.0, -1.0])
    x = x.to(dtype)
    layout = random.randrange(5)
    if layout == 0 and x.ndim:
        x = torch.stack([x, x], -1)[..., 0]
    elif layout == 1 and x.ndim > 1:
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    elif layout == 2 and x.is_floating_point():
        x = torch._neg_view(-x)
    elif layout == 3 and x.ndim and x.shape[0]:
        x = x[:1].expand(x.shape)
    return x


def attempt(call):
    try:
        call()
    except FINE as error:
        assert str(error), repr(error)
        outcomes["refused"] += 1
    else:
        outcomes["right"] += 1


def operators():
    ops = torch.ops.s4d_torch
    f, d, n = torch.float32, torch.float64, torch.int64
    b, length, h, m, sets = 2, random.choice([1, 7, 300]), 3, 8, random.choice([1, 3])
    stored = [(sets, m), (sets, m), (sets, m, 2), (h, m, 2), (h,), (h,)]
    G, W, ahead = -(-h // LANES), LANES, random.randrange(2)
    options = [random.randrange(3), random.randrange(4), random.randrange(2)]
    given = [tensor(shape, f, 0.95) for shape in stored]
    attempt(lambda: ops.scan_tables(options, 1.0, *given))
    gradients = [tensor((G, m, 18 * W), f), tensor((G, 4 * W), f), tensor((h, 3, m, 2), d)]
    attempt(lambda: ops.scan_tables_backward(*gradients, options, 1.0, *given))
    A, B, C, dt, D = given[:2], given[2], given[3], given[4], given[5]
    attempt(lambda: ops.kernel(options, 1.0, length, C[None], *A, B, dt, D))
    grad = tensor((1, G, length, W), f)
    attempt(lambda: ops.kernel_backward(grad, options, 1.0, C[None], *A, B, dt))
    u, taps = tensor((b, length, h), f, 0.9), tensor((G, length, W), f, 0.9)
    grad_y = tensor((b, length, h), f)
    attempt(lambda: ops.direct(u, taps, ahead))
    attempt(lambda: ops.direct_backward(grad_y, u, taps, ahead))
    kernels, circle = taps[None], tensor((G, 4 * W * fourier.circle(length) // 2), f, 0.9)
    attempt(lambda: ops.fourier(u, kernels, D))
    attempt(lambda: ops.fourier_backward(grad_y, circle, u, kernels, D))
    both = [*options, ahead]
    attempt(lambda: ops.direct_stored(both, 1.0, u, C, *A, B, dt, D))
    attempt(lambda: ops.direct_stored_backward(grad_y, taps, both, 1.0, u, C, *A, B, dt, D))
    tables = [tensor(shape, f, 0.95) for shape in [(G, m, 18 * W), (G, 4 * W), (G, m, 2 * W)]]
    start, carry = tensor((b, G, m, 2 * W), f, 0.9), tensor((G, m, 2 * W), d, 0.9)
    spans = torch.tensor([[0, length], [length, length]])
    if random.random() < 0.4:
        spans = torch.randint(-2, 2 * length + 3, (b, 2)).to(random.choice([n, n, f]))
    rows = tensor((b * length, h), f, 0.9)
    attempt(lambda: ops.scan(rows, *tables, carry, start, spans, [ahead, random.randrange(2)]))
    kept = tensor((b * length // 256 + b, G, m, 2 * W), f, 0.9)
    back = [tensor((b * length, h), f), tensor((b, G, m, 2 * W), f)]
    attempt(lambda: ops.scan_backward(*back, rows, *tables, spans, kept, ahead))


writer = SequenceModel(5, 5, 6, 2, d_state=4, encoder="embedding", pooling="none").compile_step(2)
reader = SequenceModel(3, 4, 6, 2, d_state=4).compile_step(2)


def steps():
    d = torch.float64
    draws = tensor((random.choice([0, 1, 3]), 2), d)
    scores, temperature = tensor((2, 5), torch.float32), random.choice([0, 1.0, -1])
    attempt(lambda: writer.sample(scores, draws, temperature))
    attempt(lambda: writer.push(tensor((2,), torch.int64)))
    attempt(lambda: reader.push(tensor((2, 3), torch.float32)))
    attempt(lambda: reader.push_many(tensor((2, 4, 3), torch.float32)))
    attempt(lambda: reader.push(tensor((2, 3), torch.float32, 1).numpy()[::-1, ::-1]))
    layers = [tensor((2, 6, 4), d, 0.9) for _ in range(random.choice([2, 2, 2, 1, 3]))]
    state = ModelState(tuple(layers), tensor((2, 6), d, 0.9), tensor((2,), d, 0.9))
    attempt(lambda: reader.start(state))
    attempt(lambda: reader(tensor((2, 3), torch.float32), state))


def parameters():
    engine = random.choice(["scan", "direct", "fft", "chunk", "auto"])
    module = SequenceModel(3, 4, 6, 1, d_state=4, engine=engine)
    names = [name for name, _ in module.named_parameters()]
    name = random.choice(names)
    owner, _, last = name.rpartition(".")
    old = module.get_parameter(name)
    value = tensor(old.shape, torch.float32, 0.3)
    if value.is_floating_point():
        setattr(module.get_submodule(owner), last, nn.Parameter(value))
        attempt(lambda: module(torch.randn(4, 9, 3), return_state=False)[0].sum().backward())
        attempt(lambda: module.compile_step(2).push(torch.randn(2, 3)))


for _ in range(ROUNDS):
    for each in (operators, steps, parameters):
        each()
print(outcomes)
'''


def run(source: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


def test_random_shapes_types_and_layouts() -> None:
    found = literal_eval(run(FUZZ.replace("SEED", "0").replace("ROUNDS", "60")).strip())
    assert found["right"] > 200
    assert found["refused"] > 200


def writer(**options: Any) -> SequenceModel:
    given: Any = {"encoder": "embedding", "pooling": "none", **options}
    return SequenceModel(5, 5, 6, 2, d_state=4, **given).eval()


@pytest.mark.parametrize(
    ("draws", "problem"),
    [
        (torch.full((3, 2), 1.0).double(), r"\[0, 1\).*got 1 to 1"),
        (torch.full((3, 2), -0.1).double(), r"\[0, 1\)"),
        (torch.full((3, 2), torch.nan).double(), r"\[0, 1\)"),
        (torch.zeros(3, 1).double(), r"\(length, 2\), got torch.float64 of shape \(3, 1\)"),
        (torch.zeros(3, 7).double(), r"shape \(3, 7\)"),
        (torch.zeros(3).double(), r"shape \(3,\)"),
        (torch.zeros(3, 2), r"torch.float64.*got torch.float32"),
    ],
)
@pytest.mark.parametrize("engine", ["machine", "model"])
def test_draws_that_are_none(
    draws: torch.Tensor, problem: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "model":
        monkeypatch.setattr("s4d_torch.nn.stepping.step.available", lambda *_: False)
    step = writer().compile_step(2)
    with pytest.raises(ValueError, match=problem):
        step.sample(torch.zeros(2, 5), draws)


def test_scores_and_models_that_cannot_be_sampled() -> None:
    step, draws = writer().compile_step(2), torch.zeros(1, 2, dtype=torch.float64)
    for scores in (torch.zeros(2, 4), torch.zeros(1, 5), torch.zeros(2, 5).double()):
        with pytest.raises(ValueError, match=r"scores must be torch.float32 of shape .* \(2, 5\)"):
            step.sample(scores, draws)
    with pytest.raises(ValueError, match="temperature"):
        step.sample(torch.zeros(2, 5), draws, -1.0)
    with pytest.raises(ValueError, match="top_k"):
        step.sample(torch.zeros(2, 5), draws, 1.0, 0)
    other = SequenceModel(3, 5, 6, 2, d_state=4, encoder="embedding", pooling="none")
    with pytest.raises(ValueError, match=r"cannot generate: it has d_input=3 with d_output=5"):
        other.compile_step(2).sample(torch.zeros(2, 5), draws)


def test_the_largest_draw_is_the_last_symbol_that_has_a_chance() -> None:
    step = writer().compile_step(1)
    below_one = torch.tensor([[1 - 2**-53]], dtype=torch.float64)
    symbols, _ = step.sample(torch.randn(1, 5), below_one)
    assert int(symbols) == 4


def test_draws_and_scores_may_lie_anyhow_in_memory() -> None:
    model = writer()
    draws = torch.rand(6, 2, dtype=torch.float64)
    scores = torch.randn(2, 5)
    expected, after = model.compile_step(2).sample(scores, draws)
    strided = torch.stack([draws, draws], -1)[..., 0]
    negative = torch._neg_view(-scores)
    found, other = model.compile_step(2).sample(negative, strided)
    assert torch.equal(found, expected)
    assert_close(other, after)
    with torch.inference_mode():
        Generation(model, 2).read(torch.zeros(2, 3, dtype=torch.int64))


PLACES = ["D", "raw_C", "raw_B", "raw_decay", "frequency", "log_dt"]


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("engine", ["auto", "scan", "direct", "fft", "chunk"])
def test_a_parameter_of_another_shape(name: str, engine: str) -> None:
    layer, u = S4D(6, 4, engine=engine), torch.randn(4, 9, 6)
    old = getattr(layer.ssm, name)
    for new in (torch.zeros(1), old.detach()[:1], torch.cat([old.detach(), old.detach()])):
        setattr(layer.ssm, name, nn.Parameter(new.clone()))
        for call in (
            lambda: layer(u),
            lambda: layer.eval()(u),
            lambda: layer.step(u[:, 0], layer.initial_state(4)),
        ):
            with pytest.raises(
                ValueError, match=rf"{name} has shape \(.*expected \({old.shape[0]}"
            ):
                call()


def test_a_parameter_of_another_type_is_converted() -> None:
    u = torch.randn(4, 9, 6)
    for engine in ("scan", "direct", "chunk"):
        layer = S4D(6, 4, engine=engine)
        expected, _ = layer(u)
        for name in ("D", "log_dt", "raw_decay"):
            setattr(layer.ssm, name, nn.Parameter(getattr(layer.ssm, name).detach().double()))
        assert_close(layer(u)[0], expected)


@pytest.mark.parametrize("name", ["encoder.weight", "decoder.bias", "norm.norm.weight"])
def test_a_weight_of_another_shape_is_not_compiled(name: str) -> None:
    model = SequenceModel(3, 4, 6, 2, d_state=4)
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, nn.Parameter(torch.zeros(1)))
    with pytest.raises(ValueError, match=r"(weight|bias) has shape \(1,\), expected \("):
        model.compile_step()


def test_a_linear_map_without_a_bias_steps() -> None:
    model = SequenceModel(3, 4, 6, 2, d_state=4).eval()
    model.decoder.bias = None  # type: ignore[assignment]
    u = torch.randn(1, 3)
    expected, _ = model.step(u, model.initial_state(1))
    assert_close(model.compile_step().push(u), expected.detach())
    model.encoder = nn.Sequential(nn.Linear(3, 6))  # type: ignore[assignment]
    with pytest.raises(TypeError, match=r"encoder must be nn.Linear or nn.Embedding"):
        model.compile_step()
