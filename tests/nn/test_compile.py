"""torch.compile: one graph for the whole call (`fullgraph` raises on a break), the same values."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch._dynamo.utils import counters
from torch.export import Dim, export
from torch.testing import assert_close

from s4d_torch import DSS, S4, S4D, Layer, SequenceModel

# torch's own tracer makes an instance of autograd.Function, which torch itself deprecates
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")

LAYERS: dict[str, Callable[..., Layer]] = {
    "s4d": lambda **options: S4D(4, 8, **options),
    "s4d-zoh-fft": lambda **options: S4D(4, 8, discretization="zoh", engine="fft", **options),
    "s4d-foh-chunk": lambda **options: S4D(4, 8, discretization="foh", engine="chunk", **options),
    "dss-fft": lambda **options: DSS(4, 8, engine="fft", **options),
    "s4-fft": lambda **options: S4(4, 8, engine="fft", **options),
}


@pytest.fixture(autouse=True)
def graphs() -> Iterator[Callable[[], int]]:
    """How many were made so far."""
    counters.clear()
    yield lambda: counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


def seed() -> Generator:
    return Generator().manual_seed(0)


def compiled(call: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
    """The graph as a compiler sees it, forward and backward, run without code generation."""
    return torch.compile(call, fullgraph=True, dynamic=dynamic, backend="aot_eager")


def gradients(call: Callable[..., Any], module: Layer, u: Tensor) -> list[Tensor]:
    u = u.clone().requires_grad_()
    outputs = [x for x in call(u) if x is not None]
    losses = [x.square().sum() for x in outputs]
    return [*outputs, *torch.autograd.grad(losses, [u, *module.parameters()])]


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_compiles_to_one_graph(name: str) -> None:
    layer = LAYERS[name](generator=seed())
    u = torch.randn(2, 9, 4, generator=seed())
    expected = gradients(layer, layer, u)
    for actual, wanted in zip(gradients(compiled(layer), layer, u), expected, strict=True):
        assert_close(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [S4D, S4])
@torch.no_grad()
def test_a_step_compiles_to_one_graph(make: type[Layer]) -> None:
    layer = make(4, 8, generator=seed()).eval()
    u, state = torch.randn(2, 4, generator=seed()), layer.initial_state(2) + 1
    assert_close(compiled(layer.step)(u, state), layer.step(u, state))


@pytest.mark.parametrize("make", [S4D, S4])
@torch.no_grad()
def test_state_lengths_and_rate_compile_to_one_graph(make: type[Layer]) -> None:
    layer = make(4, 8, check_finite=True, generator=seed()).eval()
    u, state = torch.randn(2, 5, 4, generator=seed()), layer.initial_state(2) + 1
    lengths = torch.tensor([5, 2])
    actual = compiled(layer)(u, state, lengths=lengths, rate=2.0)
    assert_close(actual, layer(u, state, lengths=lengths, rate=2.0))


@torch.no_grad()
def test_a_model_compiles_to_one_graph() -> None:
    model = SequenceModel(3, 2, 4, 1, d_state=8, norm="batch", generator=seed()).eval()
    u, lengths = torch.randn(2, 5, 3, generator=seed()), torch.tensor([5, 2])
    actual, _ = compiled(model)(u, lengths=lengths)
    assert_close(actual, model(u, lengths=lengths)[0])


@torch.no_grad()
def test_compiled_code_follows_the_parameters() -> None:
    layer, u = S4D(4, 8, generator=seed()).eval(), torch.randn(2, 5, 4, generator=seed())
    call = compiled(layer)
    before, _ = call(u)
    layer.ssm.raw_C.data.mul_(2)
    after, _ = call(u)
    assert_close(after, layer(u)[0])
    assert not torch.allclose(after, before)


# -- one graph for every length --------------------------------------------------------------------

SHAPES = [(2, 9), (3, 300), (2, 1000), (5, 64)]
ANY_LENGTH: dict[str, Callable[..., Layer]] = {
    "scan": lambda **options: S4D(4, 8, **options),
    "fft": lambda **options: S4D(4, 8, engine="fft", **options),
    "chunk-foh": lambda **options: S4D(4, 8, engine="chunk", discretization="foh", **options),
    "dss": lambda **options: DSS(4, 8, engine="fft", bidirectional=True, **options),
}


@pytest.mark.parametrize("name", ANY_LENGTH)
def test_one_graph_serves_every_batch_and_length(name: str, graphs: Callable[[], int]) -> None:
    layer = ANY_LENGTH[name](generator=seed())
    call = compiled(layer, dynamic=True)
    for batch, length in SHAPES:
        u = torch.randn(batch, length, 4, generator=seed())
        expected = gradients(layer, layer, u)
        for actual, wanted in zip(gradients(call, layer, u), expected, strict=True):
            assert_close(actual, wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max().item())
        assert graphs() == 1


@pytest.mark.parametrize("engine", ["fft", "auto"])
@torch.no_grad()
def test_one_graph_serves_every_batch_of_a_model(engine: str, graphs: Callable[[], int]) -> None:
    model = SequenceModel(3, 2, 16, 1, d_state=8, norm="batch", engine=engine, generator=seed())
    call = compiled(model.eval())
    for batch, length in SHAPES:
        u, lengths = torch.randn(batch, length, 3, generator=seed()), torch.arange(1, batch + 1)
        for x, axis in ((u, 0), (u, 1), (lengths, 0)):
            torch._dynamo.mark_dynamic(x, axis)  # an error where a graph depends on it
        assert_close(call(u, lengths=lengths)[0], model(u, lengths=lengths)[0])
        assert graphs() == 1


EXPORTED: dict[str, Callable[..., torch.nn.Module]] = {
    "s4d": lambda **options: S4D(3, 8, **options),
    "s4d-foh": lambda **options: S4D(3, 8, discretization="foh", **options),
    "s4d-both-ways": lambda **options: S4D(3, 8, bidirectional=True, **options),
    "dss": lambda **options: DSS(3, 8, **options),
    "pooled": lambda **options: SequenceModel(3, 2, 4, 2, d_state=8, norm="batch", **options),
    "per-step": lambda **options: SequenceModel(3, 2, 4, 1, d_state=8, pooling="none", **options),
}


@pytest.mark.parametrize("name", EXPORTED)
@torch.no_grad()
def test_torch_exports_any_batch_and_length(name: str) -> None:
    module = EXPORTED[name](generator=seed()).eval()
    axes = {0: Dim("batch", min=1), 1: Dim("length", min=1)}
    exported = export(module, (torch.randn(2, 9, 3),), dynamic_shapes={"u": axes}).module()
    for batch, length in [*SHAPES, (1, 1)]:
        u = torch.randn(batch, length, 3, generator=seed())
        assert_close(exported(u)[0], module(u)[0], rtol=1e-5, atol=1e-6)


# -- times and sequences, which follow from values -------------------------------------------------


@pytest.mark.parametrize("make", [lambda: S4D(4, 8), lambda: SequenceModel(4, 2, 4, 1, d_state=8)])
@pytest.mark.parametrize("told", ["rate", "resets", "cu_seqlens"])
@torch.no_grad()
def test_no_graph_holds_each_sample(make: Callable[[], Any], told: str) -> None:
    module, u = make(), torch.randn(1, 2000, 4, generator=seed())
    options: dict[str, Any] = {
        "rate": {"rate": torch.rand(1, 2000, generator=seed()) + 0.5},
        "resets": {"resets": torch.rand(1, 2000, generator=seed()) < 0.01},
        "cu_seqlens": {"cu_seqlens": torch.tensor([0, 700, 2000])},
    }[told]
    actual, _ = torch.compile(module, backend="aot_eager")(u, **options)
    assert_close(actual, module(u, **options)[0], rtol=1e-5, atol=1e-6)
    assert counters["stats"]["calls_captured"] < 500
