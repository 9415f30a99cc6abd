"""All that follows a state space in one operation: the answers of plain torch."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from s4d_torch import S4D, SequenceModel
from s4d_torch.nn.activation import ACTIVATIONS
from s4d_torch.nn.block import Block
from s4d_torch.nn.fused import mixing
from s4d_torch.nn.layer import Residual
from s4d_torch.ssm.compiled import runtime

LANES = runtime.LANES
WIDTH = 2 * LANES
pytestmark = pytest.mark.skipif(
    not runtime.available(torch.device("cpu"), torch.float32),
    reason="what is compiled needs numba",
)
# rows: fewer than four, no multiple of four, several blocks, more than one for each chunk
ROWS = [(1, 1), (3, 7), (2, mixing.BLOCK), (5, 300), (1, mixing.BLOCK * mixing.CHUNKS * 2 + 3)]


def signal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_block(**options: Any) -> Block:
    outside = {name: options.pop(name) for name in ("norm", "drop_path") if name in options}
    generator = torch.Generator().manual_seed(0)
    layer = S4D(WIDTH, 8, engine="scan", generator=generator, **options)
    return Block(layer, dropout=options.get("dropout", 0.0), **outside).train()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[mixing.Mixing]:
    """What was mixed in one operation."""
    seen: list[mixing.Mixing] = []
    original = mixing.run

    def spy(how: mixing.Mixing, *given: Tensor) -> Tensor:
        seen.append(how)
        return original(how, *given)

    monkeypatch.setattr(mixing, "run", spy)
    return seen


def results(block: nn.Module, x: Tensor, **call: Any) -> list[Tensor]:
    """Outputs and all gradients, with random numbers from one seed."""
    torch.manual_seed(2)
    x = x.clone().requires_grad_()
    y, _ = block(x, **call)
    weights = signal(*y.shape, seed=3).to(y.dtype)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), [x, *block.parameters()])]


def agree(actual: list[Tensor], expected: list[Tensor], bar: float = 1e-5) -> None:
    for a, b in zip(actual, expected, strict=True):
        scale = float(b.abs().max()) + 1e-3
        assert_close(a.double(), b.double(), rtol=0, atol=bar * scale)


@pytest.mark.parametrize(("batch", "length"), ROWS)
@pytest.mark.parametrize("gate", ["glu", "linear"])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_outputs_and_gradients(
    activation: str, gate: str, batch: int, length: int, calls: list[mixing.Mixing]
) -> None:
    block = make_block(activation=activation, mixing=gate)
    x = signal(batch, length, WIDTH)
    found = results(block, x)
    assert len(calls) == 1
    agree(found, results(copy.deepcopy(block).double(), x.double()))
    with torch.no_grad():
        assert torch.equal(block(x)[0], found[0])
    agree([block.eval()(x)[0].detach()], [found[0]])


@pytest.mark.parametrize("gate", ["glu", "linear"])
def test_dropout_is_that_of_single_passes(gate: str, calls: list[mixing.Mixing]) -> None:
    """The same seed drops the same numbers as activation and gate do by themselves."""
    block, x = make_block(mixing=gate, dropout=0.3), signal(3, 100, WIDTH)
    found = results(block, x)
    assert len(calls) == 1
    assert calls[0].dropped == calls[0].late_dropped == round(0.3 * 2**32)
    assert calls[0].key != calls[0].late_key
    block.layer.in_one_pass = False
    agree(found, results(block, x))
    assert len(calls) == 1


@pytest.mark.parametrize("gate", ["glu", "linear"])
def test_second_gradients(gate: str, calls: list[mixing.Mixing]) -> None:
    block, x = make_block(mixing=gate, dropout=0.2), signal(2, 70, WIDTH).requires_grad_()
    wanted = [x, *block.parameters()]
    torch.manual_seed(0)
    y, _ = block(x)
    first = torch.autograd.grad(y.square().sum(), wanted, retain_graph=True)
    again = torch.autograd.grad(y.square().sum(), wanted, create_graph=True)
    assert len(calls) == 1
    agree(list(first), [g.detach() for g in again])
    weight = block.layer.output.weight
    (found,) = torch.autograd.grad(again[0].square().sum(), weight)
    block.layer.in_one_pass = False
    torch.manual_seed(0)
    y, _ = block(x)
    (plain,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    agree([found], list(torch.autograd.grad(plain.square().sum(), weight)), 1e-4)


def test_what_is_in_memory_otherwise() -> None:
    """Strides, views of one number, rows of another type."""
    width = WIDTH
    how = mixing.Mixing(activation=1)
    y, x = signal(width, 9, 4).permute(1, 2, 0), signal(9, 1, width).expand(9, 4, width)
    matrix, offset = signal(width, 2 * width).T, torch._neg_view(signal(2 * width))
    found = mixing.run(how, y, x, matrix, offset)
    agree([found], [x + mixing.plain_branch(how, y, matrix, offset)])
    for bad in (x[:8], x.double()):
        with pytest.raises(ValueError, match=r"must be torch.float32 of shape"):
            mixing.run(how, y, bad, matrix, offset)
    with pytest.raises(ValueError, match="offset must be"):
        mixing.run(how, y, x, matrix, offset[:3])


def test_no_row_hears_another() -> None:
    block, x = make_block(), signal(3, 90, WIDTH)
    block.layer.ssm.requires_grad_(False)
    bad = x.clone()
    bad[1] = torch.nan
    found, clean = block(bad)[0], block(x)[0]
    assert torch.equal(found[[0, 2]], clean[[0, 2]])
    assert bool(found[1].isnan().all())


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "SERIAL", 0)
    block, x, before = make_block(dropout=0.2), signal(3, 500, WIDTH), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            given = x.clone().requires_grad_()
            y = block.layer._mix(given, Residual(x, block.dropout, block.drop_path))
            assert y is not None
            linear = block.layer.output.parameters()
            found.append([y, *torch.autograd.grad(y.square().sum(), [given, *linear])])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("gate", ["glu", "linear"])
def test_long_batches_lose_no_digits(gate: str) -> None:
    """Half a million rows whose gradients are alike: sums in single precision would stand still."""
    rows, wide = 2**19, WIDTH * (1 + (gate == "glu"))
    y, matrix = signal(1, WIDTH).expand(rows, WIDTH), signal(wide, WIDTH)
    how, matrix, of = mixing.Mixing(1), matrix.requires_grad_(), signal(wide).requires_grad_()
    found = mixing.run(how, y, y, matrix, of)
    grad = torch.full((rows, WIDTH), 0.1)
    ours = torch.autograd.grad(found, [matrix, of], grad)
    few = y[:1].double()
    exact = mixing.plain_branch(how, few, *(both := [matrix.double(), of.double()]))
    theirs = torch.autograd.grad(exact, both, rows * grad[:1].double())
    agree(list(ours), list(theirs), 2e-6)


def test_results_can_be_changed_in_place() -> None:
    block, x = make_block(), signal(2, 70, WIDTH)
    expected = block(x)[0] + 1
    y, _ = block(x)
    y.add_(1)
    assert torch.equal(y, expected)
    y.sum().backward()
    short, _ = make_block()(x[:, :20])
    short.add_(1).sum().backward()


def test_gradients_in_batches() -> None:
    block, x = make_block(), signal(1, 70, WIDTH).requires_grad_()
    y, _ = block(x)
    grads = signal(3, *y.shape)
    together = torch.autograd.grad(y, x, grads, is_grads_batched=True, retain_graph=True)[0]
    each = [torch.autograd.grad(y, x, grad, retain_graph=True)[0] for grad in grads]
    agree([together], [torch.stack(each)])


# -- what keeps it from being one operation --------------------------------------------------------


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


@pytest.mark.parametrize("name", ["activation", "dropout", "output", "gate"])
def test_whoever_listens_or_replaces_is_heard(name: str, calls: list[mixing.Mixing]) -> None:
    x = signal(2, 50, WIDTH)
    block = make_block(dropout=0.1)
    heard: list[str] = []
    getattr(block.layer, name).register_forward_hook(lambda *_: heard.append(name))
    block(x)
    assert heard == [name]
    block = make_block()
    setattr(block.layer, name, nn.Sequential(getattr(block.layer, name), Twice()))
    block(x)
    assert not calls


@pytest.mark.parametrize("name", ["activation", "dropout", "output", "gate"])
def test_another_forward_is_called(name: str, calls: list[mixing.Mixing]) -> None:
    """On the one module, as somebody patches it, or in a class of their own."""
    block, x = make_block().eval(), signal(2, 50, WIDTH)
    module = getattr(block.layer, name)
    heard, forward = [], module.forward

    def patched(*given: Any) -> Tensor:
        heard.append(name)
        return forward(*given)

    module.forward = patched
    block(x)
    assert heard == [name]
    assert not calls
    del module.forward
    module.__class__ = type("Mine", (type(module),), {"forward": lambda _, *given: patched(*given)})
    block(x)
    assert len(heard) == 2
    assert not calls


@pytest.mark.parametrize("name", ["dropout", "drop_path"])
def test_what_stands_around_a_layer_can_be_replaced(name: str, calls: list[mixing.Mixing]) -> None:
    block, x = make_block().eval(), signal(2, 50, WIDTH)
    expected = block(x)[0].detach()
    setattr(block, name, nn.Identity())
    agree([block(x)[0]], [expected])
    setattr(block, name, Twice())
    agree([block(x)[0]], [2 * expected - x])
    assert len(calls) == 1


def test_hooks_of_all_modules_are_called(calls: list[mixing.Mixing]) -> None:
    block, heard = make_block(), set[str]()
    hook = nn.modules.module.register_module_forward_hook(
        lambda module, *_: heard.add(type(module).__name__)
    )
    try:
        block(signal(2, 50, WIDTH))
    finally:
        hook.remove()
    assert {"GELU", "SequenceDropout", "Linear", "GLU"} <= heard
    assert not calls


def test_weights_of_another_kind(calls: list[mixing.Mixing]) -> None:
    block, x = make_block(mixing="linear").eval(), signal(2, 50, WIDTH)
    with torch.no_grad():
        expected, linear = block(x)[0], block.layer.output
        assert len(calls) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls it beta
            sparse = linear.weight.detach().to_sparse_csr()
        linear.weight = nn.Parameter(sparse, requires_grad=False)
        agree([block(x)[0]], [expected])
        linear.weight = nn.Parameter(sparse.to_dense())
        linear.bias = nn.Parameter(torch.ones(1))  # for all features
        linear.bias.data.zero_()
        block(x)
    assert len(calls) == 1


def test_a_module_of_before_goes_on() -> None:
    """Pickled whole when layers had no ``in_one_pass``."""
    block, x = make_block(), signal(2, 50, WIDTH)
    assert "in_one_pass" not in vars(block.layer)
    assert torch.equal(copy.deepcopy(block)(x)[0], block(x)[0])


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"tie_dropout": True, "dropout": 0.1}, {}),
        ({"drop_path": 0.2}, {}),
        ({"mixing": "none"}, {}),
        ({"dtype": torch.float64}, {}),
        ({}, {"lengths": [50, 20]}),
    ],
)
def test_what_is_not_for_one_operation(
    options: dict[str, Any], call: dict[str, Any], calls: list[mixing.Mixing]
) -> None:
    block = make_block(**options)
    if "dtype" in options:
        block = block.double()
    lengths = {name: torch.tensor(x) for name, x in call.items()}
    block(signal(2, 50, WIDTH).to(options.get("dtype", torch.float32)), **lengths)
    assert not calls


def test_autocast_has_its_own_linear_map(calls: list[mixing.Mixing]) -> None:
    block, x = make_block(), signal(2, 50, WIDTH)
    kinds: list[torch.dtype] = []
    block.layer.gate.register_forward_hook(lambda _, given, __: kinds.append(given[0].dtype))
    with torch.autocast("cpu", torch.bfloat16):
        block(x)
    assert kinds == [torch.bfloat16]
    assert not calls


def test_a_ragged_batch_of_a_model(calls: list[mixing.Mixing]) -> None:
    """A model ignores what is in the padding: one operation there, and each one's answers."""
    generator = torch.Generator().manual_seed(0)
    model = SequenceModel(2, 5, WIDTH, 2, d_state=8, engine="scan", generator=generator).eval()
    u, lengths = signal(3, 60, 2), [60, 1, 33]
    u[1, 1:] = torch.nan
    y, _ = model(u, lengths=lengths)
    assert len(calls) == 2
    alone = [model(u[i : i + 1, :n])[0] for i, n in enumerate(lengths)]
    agree([y.detach()], [torch.cat(alone).detach()])


def test_widths_that_fit() -> None:
    assert mixing.fits(WIDTH)
    assert not mixing.fits(LANES)
    assert not mixing.fits(mixing.WIDEST + WIDTH)
