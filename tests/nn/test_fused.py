"""Blocks in one operation and passes that do several things at once: the answers of plain torch."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from s4d_torch import SequenceModel
from s4d_torch.nn.activation import ACTIVATIONS
from s4d_torch.nn.block import Block
from s4d_torch.nn.fused import pointwise, short_block
from s4d_torch.ssm.compiled import runtime

LANES = runtime.LANES
CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(
    not runtime.available(CPU, torch.float32), reason="what is compiled needs numba"
)

CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "both ways": {"bidirectional": True},
    "tied": {"n_ssm": 1},
    "real": {"init": "real"},
    "zoh": {"discretization": "zoh", "constraint": "softplus"},
    "no norm": {"norm": "none"},
    "post-norm": {"prenorm": False},
    "no gate": {"mixing": "linear"},
    **{name: {"activation": name} for name in ("relu", "silu", "tanh", "none")},
}


def make_model(**options: Any) -> SequenceModel:
    generator = torch.Generator().manual_seed(0)
    given = {"d_state": 8, **options}
    return SequenceModel(2, 5, 2 * LANES, 2, generator=generator, **given).train()


def signal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def results(model: nn.Module, u: Tensor) -> list[Tensor]:
    """Outputs and all gradients, with random numbers from one seed."""
    torch.manual_seed(2)
    x = u.clone().requires_grad_()
    y, _ = model(x, return_state=False)
    weights = signal(*y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), [x, *model.parameters()])]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, *, allowed: bool = True) -> Iterator[list[bool]]:
    """Which calls of blocks were one operation; with ``allowed`` False none is."""
    seen: list[bool] = []
    original = Block._in_one

    def spy(self: Block, x: Tensor, rate: float) -> Tensor | None:
        y = original(self, x, rate) if allowed else None
        seen.append(y is not None)
        return y

    with monkeypatch.context() as patch:
        patch.setattr(Block, "_in_one", spy)
        yield seen


def agree(actual: list[Tensor], expected: list[Tensor], bar: float = 1e-5) -> None:
    for a, b in zip(actual, expected, strict=True):
        scale = float(b.detach().abs().max()) + 1e-3
        assert_close(a.double(), b.double(), rtol=0, atol=bar * scale)


@pytest.mark.parametrize(("batch", "length"), [(3, 1), (3, 3), (3, 8), (3, 33), (1, 48), (2, 32)])
@pytest.mark.parametrize("name", CHOICES)
def test_a_block_in_one_operation(
    name: str, batch: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, u = make_model(**CHOICES[name]), signal(batch, length, 2)
    with watched(monkeypatch) as seen:
        found = results(model, u)
    assert seen == [True, True]
    with watched(monkeypatch, allowed=False):
        agree(found, results(model, u))
    agree(found, results(copy.deepcopy(model).double(), u.double()))


@pytest.mark.parametrize("name", ["plain", "both ways", "no gate"])
def test_dropout_is_that_of_its_plain_form(name: str) -> None:
    """The same keys drop the same numbers in the adjoint, and in plain torch."""
    model, u = make_model(dropout=0.3, **CHOICES[name]), signal(4, 20, 2 * LANES)
    block = model.blocks[0]
    torch.manual_seed(3)
    x = u.clone().requires_grad_()
    y, _ = block(x, return_state=False)
    wanted = [x, *block.parameters()]
    found = [y.detach(), *torch.autograd.grad(y, wanted, signal(*y.shape), retain_graph=True)]
    # gradients that can be differentiated again are those of the plain form
    again = torch.autograd.grad(y, wanted, signal(*y.shape), create_graph=True)
    agree(found[1:], [g.detach() for g in again])
    torch.manual_seed(3)
    assert torch.equal(block(x, return_state=False)[0], y)
    assert not torch.equal(block(x, return_state=False)[0], y)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_what_dropout_drops_is_random(p: float) -> None:
    """Shares, neighbours in time, features and calls: as independent draws would have them."""
    torch.manual_seed(0)
    ones = torch.ones(64, 200, 2 * LANES)
    first, second = ((pointwise.activate(ones, 0, p) > 0).double() for _ in range(2))
    n, share = ones.numel(), 1 - p
    deviation = (share * p / n) ** 0.5
    assert abs(float(first.mean()) - share) < 5 * deviation
    kept = pointwise.activate(ones, 0, p)
    assert float(kept.max()) == pytest.approx(1 / share, rel=1e-6)

    def correlation(a: Tensor, b: Tensor) -> float:
        return float(((a - share) * (b - share)).mean() / (share * p)) * a.numel() ** 0.5

    pairs = {
        "calls": (first, second),
        "features": (first[..., :-1], first[..., 1:]),
        "times": (first[:, :-1], first[:, 1:]),
        "sequences": (first[:-1], first[1:]),
        "far": (first[:32], first[32:]),
    }
    assert {name: abs(correlation(*pair)) < 5 for name, pair in pairs.items()} == dict.fromkeys(
        pairs, True
    )
    for mean in (first.mean((0, 1)), first.mean((0, 2)), first.mean((1, 2))):
        spread = (share * p * mean.numel() / n) ** 0.5
        assert float((mean - share).abs().max()) < 6 * spread


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "tanh"])
def test_activations_to_the_last_bits(name: str) -> None:
    size = torch.logspace(-8, 2, 4096)
    x = torch.cat([size, -size, torch.linspace(-9, 9, 8192)]).view(-1, 64).requires_grad_()
    entry = ACTIVATIONS[name]
    assert entry.compiled is not None
    y = pointwise.activate(x, entry.compiled)
    exact = x.detach().double().requires_grad_()
    expected = entry()(exact)
    (slope,) = torch.autograd.grad(y.sum(), x)
    (expected_slope,) = torch.autograd.grad(expected.sum(), exact)
    assert bool(((y - expected).abs() <= 3e-7 * x.abs().clamp(min=1e-6)).all())
    assert_close(slope.double(), expected_slope, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "tanh"])
def test_activations_of_what_is_no_number(name: str) -> None:
    x = torch.zeros(1, LANES)
    x[0, 3], x[0, 5] = float("nan"), float("inf")
    kind = ACTIVATIONS[name].compiled
    assert kind is not None
    expected = ACTIVATIONS[name]()(x.double()).float()  # torch's GELU of infinity is NaN in float32
    assert_close(pointwise.activate(x, kind), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("features", [LANES, 2 * LANES + 5])
def test_gate_and_residual(gated: bool, features: int) -> None:
    v = signal(3, 7, 2 * features if gated else features).requires_grad_()
    x = signal(3, 7, features).requires_grad_()
    grad = signal(3, 7, features)
    y = pointwise.join(v, x, gated=gated)
    expected = x + (F.glu(v) if gated else v)
    agree([y], [expected], 1e-6)
    agree(
        list(torch.autograd.grad(y, [v, x], grad)),
        list(torch.autograd.grad(expected, [v, x], grad)),
        1e-6,
    )


def test_layer_norm() -> None:
    norm = nn.LayerNorm(3 * LANES)
    with torch.no_grad():
        norm.weight.copy_(signal(3 * LANES))
        norm.bias.copy_(signal(3 * LANES))
    x = (signal(5, 301, 3 * LANES) * 3 + 100).requires_grad_()
    wanted, grad = [x, norm.weight, norm.bias], signal(*x.shape)
    y = pointwise.layer_norm(x, norm.weight, norm.bias, norm.eps)
    found = [y.detach(), *torch.autograd.grad(y, wanted, grad)]
    double = copy.deepcopy(norm).double()
    exact = x.detach().double().requires_grad_()
    z = double(exact)
    expected = torch.autograd.grad(z, [exact, double.weight, double.bias], grad.double())
    agree(found, [z.detach(), *expected], 1e-5)


# -- what keeps a block from being one operation ---------------------------------------------------


def test_whoever_listens_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    u = signal(2, 9, 2)
    for name in ("activation", "gate", "dropout", "output", "ssm"):
        model = make_model(dropout=0.1)
        calls: list[str] = []
        for block in model.blocks:
            inside = getattr(block.layer, name)
            inside.register_forward_hook(lambda *_, calls=calls: calls.append("x"))
        with watched(monkeypatch) as seen:
            results(model, u)
        assert seen == [False, False]
        assert len(calls) == 2, name


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_a_module_in_the_place_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    model, u = make_model(), signal(2, 9, 2)
    for block in model.blocks:
        block.layer.activation = Twice()
    with watched(monkeypatch) as seen:
        found = results(model, u)
    assert seen == [False, False]
    agree(found, results(copy.deepcopy(model).double(), u.double()))


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({}, {"return_state": True}),
        ({}, {"lengths": [9, 4]}),
        ({"tie_dropout": True, "dropout": 0.1}, {}),
        ({"drop_path": 0.2}, {}),
        ({"norm": "batch"}, {}),
        ({"engine": "scan"}, {}),
        ({"method": "s4"}, {}),
        ({"method": "dss"}, {}),
        ({"dtype": torch.float64}, {}),
    ],
)
def test_what_is_not_for_one_operation(
    options: dict[str, Any], call: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(**options)
    u = signal(2, 9, 2).to(options.get("dtype", torch.float32))
    with watched(monkeypatch) as seen:
        model(u, **{"return_state": False, **call})
    assert not any(seen)


def test_a_long_sequence_is_not_for_one_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(monkeypatch) as seen:
        make_model()(signal(2, 400, 2), return_state=False)
        with torch.no_grad():
            make_model()(signal(2, 9, 2), return_state=False)
    assert not any(seen)


def test_bad_input_of_a_block_is_named() -> None:
    block = make_model(prenorm=False).blocks[0]
    for bad in (signal(2, 9, 7), signal(2, 9), torch.zeros(2, 9, 2 * LANES, dtype=torch.int64)):
        with pytest.raises((ValueError, TypeError), match="u must"):
            block(bad, return_state=False)
    with pytest.raises(ValueError, match="rate"):
        block(signal(2, 9, 2 * LANES), rate=-1.0, return_state=False)
    block.layer.ssm.D = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="D has shape"):
        block(signal(2, 9, 2 * LANES), return_state=False)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "SERIAL", 0)
    model, u, before = make_model(dropout=0.2), signal(11, 30, 2), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            with torch.random.fork_rng():
                block = model.blocks[0]
                torch.manual_seed(0)
                x = signal(11, 30, 2 * LANES).requires_grad_()
                y, _ = block(x, return_state=False)
                grads = torch.autograd.grad(y.square().sum(), [x, *block.parameters()])
                found.append([y.detach(), *grads])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))
    del u


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_drops_the_same(reentrant: bool) -> None:
    block = make_model(dropout=0.3).blocks[0]

    def run(x: Tensor) -> Tensor:
        y: Tensor = block(x, return_state=False)[0]
        return y

    x = signal(3, 12, 2 * LANES).requires_grad_()
    grads = []
    for call in (run, lambda x: checkpoint(run, x, use_reentrant=reentrant)):
        torch.manual_seed(0)
        block.zero_grad()
        (grad,) = torch.autograd.grad(call(x).square().sum(), x) if call is run else (None,)
        if call is not run:
            x.grad = None
            torch.manual_seed(0)
            call(x).square().sum().backward()
            grad = x.grad
        grads.append(grad)
    assert_close(grads[0], grads[1])


def test_second_gradients_of_a_block() -> None:
    block = make_model().blocks[0]
    x = signal(2, 6, 2 * LANES).requires_grad_()

    def penalty(block: nn.Module, x: Tensor) -> Tensor:
        y, _ = block(x, return_state=False)
        (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return slope.square().sum()

    found = torch.autograd.grad(penalty(block, x), block.layer.ssm.raw_C)
    double = copy.deepcopy(block).double()
    exact = x.detach().double().requires_grad_()
    expected = torch.autograd.grad(penalty(double, exact), double.layer.ssm.raw_C)
    agree(list(found), list(expected), 1e-4)


def test_what_does_not_fit_is_known() -> None:
    assert short_block.fits(2 * LANES)
    assert not short_block.fits(LANES)
    assert not short_block.fits(short_block.WIDEST + 2 * LANES)
