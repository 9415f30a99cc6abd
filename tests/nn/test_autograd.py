"""What torch can do with a module of its own it can do with ours: checkpoints, transforms, second
gradients; whatever the engine, with the gradients of the ordinary backward pass.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from s4d_torch import METHODS, Layer, SequenceModel
from s4d_torch.ssm import convolution

ENGINES = ["scan", "direct", "fft", "chunk"]
CHOICES: dict[str, dict[str, Any]] = {
    "diagonal": {},
    "zoh": {"discretization": "zoh"},
    "foh": {"discretization": "foh", "constraint": "softplus"},
    "tied": {"n_ssm": 1},
    "real": {"init": "real"},
    "softmax": {"kernel": "softmax", "discretization": "zoh"},
    "cauchy": {"kernel": "cauchy"},
    "dplr": {"method": METHODS["s4"]},
    "both ways": {"bidirectional": True},
}
WHAT = [*[(name, "auto") for name in CHOICES], *[("diagonal", name) for name in ENGINES]]
WHAT += [("both ways", name) for name in ("scan", "direct", "fft")]
EXACT: Any = {"rtol": 1e-8, "atol": 1e-9}


def make_layer(name: str, engine: str, dtype: torch.dtype = torch.float64) -> Layer:
    generator = torch.Generator().manual_seed(0)
    options: Any = {"dt_min": 0.05, "dt_max": 0.2, "engine": engine, **CHOICES[name]}
    return Layer(3, 4, generator=generator, dtype=dtype, **options)


def make_model(name: str = "diagonal", engine: str = "auto", **options: Any) -> SequenceModel:
    generator = torch.Generator().manual_seed(0)
    given = {"d_state": 4, "dtype": torch.float64, **CHOICES[name], **options}
    return SequenceModel(2, 3, 4, 2, generator=generator, engine=engine, **given)


def signal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def called(module: nn.Module) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    """A loss as a function of the parameters and the input."""

    def loss(parameters: dict[str, Tensor], u: Tensor) -> Tensor:
        y, _ = functional_call(module, parameters, (u,), {"return_state": False})
        return y.square().sum() + y.sum()

    return loss


def ordinary(module: nn.Module, u: Tensor) -> dict[str, Tensor]:
    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(called(module)(parameters, u), list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


# -- checkpoints and hooks -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "engine"), WHAT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_checkpoint_gives_the_same_gradients(name: str, engine: str, dtype: torch.dtype) -> None:
    layer, u = make_layer(name, engine, dtype), signal(5, 21, 3, dtype=dtype)
    expected = ordinary(layer, u)
    for reentrant in (False, True):
        layer.zero_grad()
        x = u.clone().requires_grad_()
        y = checkpoint(lambda x: layer(x, return_state=False)[0], x, use_reentrant=reentrant)
        (y.square().sum() + y.sum()).backward()
        for key, value in layer.named_parameters():
            assert_close(value.grad, expected[key])


@pytest.mark.parametrize(("name", "engine"), WHAT)
def test_saved_tensors_may_be_kept_elsewhere(name: str, engine: str) -> None:
    layer, u = make_layer(name, engine), signal(5, 21, 3)
    expected = ordinary(layer, u)
    # a hook may give back what lies otherwise in memory
    strided = saved_tensors_hooks(lambda x: x, lambda x: torch.stack([x, x], -1)[..., 0])
    for hooks in (save_on_cpu(), strided):
        with hooks:
            found = ordinary(layer, u)
        for key, value in found.items():
            assert_close(value, expected[key], **EXACT)


def test_a_model_in_checkpoints_with_a_state_and_lengths() -> None:
    model, u = make_model(), signal(4, 19, 2)
    state = model(signal(4, 7, 2))[1]
    lengths = torch.tensor([19, 3, 8, 11])

    def loss(u: Tensor) -> Tensor:
        y, end = model(u, state, lengths=lengths)
        return y.square().sum() + sum(x.square().sum() for x in end.layers)

    expected = torch.autograd.grad(loss(u), list(model.parameters()), retain_graph=True)
    again = checkpoint(loss, u.requires_grad_(), use_reentrant=False)
    found = torch.autograd.grad(again, list(model.parameters()))
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, **EXACT)


# -- second gradients ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "engine"), WHAT)
def test_second_gradients_of_a_layer(name: str, engine: str) -> None:
    layer, u = make_layer(name, engine), signal(4, 6, 3).requires_grad_()
    parameters = {k: x.detach().requires_grad_() for k, x in layer.ssm.named_parameters()}
    assert parameters

    def run(u: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(parameters, values, strict=True))
        return functional_call(layer.ssm, given, (u,), {"return_state": False})[0]

    inputs = (u, *parameters.values())
    assert gradcheck(run, inputs, fast_mode=True, check_batched_grad=True)
    assert gradgradcheck(run, inputs, fast_mode=True, check_batched_grad=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("length", [6, 8])
def test_second_gradients_with_a_state(engine: str, length: int) -> None:
    ssm, u = make_layer("diagonal", engine).ssm, signal(3, length, 3).requires_grad_()
    state = signal(3, 3, 4).requires_grad_()
    lengths = torch.tensor([length, 1, 5])

    def run(u: Tensor, state: Tensor, raw_C: Tensor) -> tuple[Tensor, Tensor]:
        y, end = functional_call(ssm, {"raw_C": raw_C}, (u, state), {"lengths": lengths})
        return y, end

    C = ssm.raw_C.detach().requires_grad_()
    assert gradgradcheck(run, (u, state, C), fast_mode=True)


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
def test_first_gradients_with_a_graph_are_the_ordinary_ones(engine: str) -> None:
    """In float32, and over several segments of the scan."""
    layer, u = make_layer("diagonal", engine, torch.float32), signal(4, 601, 3).float()
    loss = called(layer)(dict(layer.named_parameters()), u)
    found = torch.autograd.grad(loss, list(layer.parameters()), create_graph=True)
    expected = ordinary(layer, u).values()
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, rtol=2e-4, atol=2e-5 * float(b.abs().max()))


@pytest.mark.parametrize("name", ["diagonal", "dplr", "softmax", "both ways"])
def test_a_gradient_penalty_of_a_model(name: str) -> None:
    """d/dp |d loss/du|^2 agrees with finite differences."""
    model, u = make_model(name), signal(4, 9, 2).requires_grad_()
    weight = model.blocks[0].layer.ssm.raw_C

    def penalty() -> Tensor:
        y, _ = model(u, return_state=False)
        (slope,) = torch.autograd.grad(y.square().sum(), u, create_graph=True)
        return slope.square().sum()

    (found,) = torch.autograd.grad(penalty(), weight)
    way = signal(*weight.shape)
    with torch.no_grad():
        original = weight.clone()
        weight.copy_(original + 1e-5 * way)
    ahead = penalty().item()
    with torch.no_grad():
        weight.copy_(original - 1e-5 * way)
    slope = (ahead - penalty().item()) / 2e-5
    assert_close((found * way).sum().item(), slope, rtol=1e-5, atol=1e-7)


def test_second_gradients_of_a_long_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "PIECE", 1)
    u, kernel = signal(2, 3, 5).requires_grad_(), signal(3, 5).requires_grad_()
    assert gradgradcheck(convolution.causal, (u, kernel), fast_mode=True, check_batched_grad=True)


# -- transforms of torch.func ----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "engine"), WHAT)
@pytest.mark.parametrize("kind", ["layer", "model"])
def test_gradients_sample_by_sample(kind: str, name: str, engine: str) -> None:
    module = make_layer(name, engine) if kind == "layer" else make_model(name, engine)
    u, loss = signal(5, 11, 3 if kind == "layer" else 2), called(module)
    parameters = {k: x.detach() for k, x in module.named_parameters()}
    found = vmap(grad(loss), in_dims=(None, 0))(parameters, u[:, None])
    whole = grad(loss)(parameters, u)
    for i, sample in enumerate(u):
        for key, value in ordinary(module, sample[None]).items():
            assert_close(found[key][i], value, **EXACT)
    for key, value in ordinary(module, u).items():
        assert_close(whole[key], value, **EXACT)


@pytest.mark.parametrize(("name", "engine"), WHAT)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of torch itself
def test_jacobians(name: str, engine: str) -> None:
    ssm, u = make_layer(name, engine).ssm, signal(4, 5, 3)

    def run(u: Tensor) -> Tensor:
        return ssm(u, return_state=False)[0]

    expected = torch.autograd.functional.jacobian(run, u)
    batched = torch.autograd.functional.jacobian(run, u, vectorize=True)
    for found in (jacrev(run)(u), jacfwd(run)(u), batched):
        assert_close(found, expected, **EXACT)
    way = signal(*u.shape)
    y, change = jvp(run, (u,), (way,))
    assert_close(y, run(u), **EXACT)
    with forward_ad.dual_level():
        other = forward_ad.unpack_dual(run(forward_ad.make_dual(u, way))).tangent
    assert_close(other, change, **EXACT)


def test_an_ensemble_of_models() -> None:
    models = [make_model("diagonal", dropout=0.1).eval() for _ in range(3)]
    for i, model in enumerate(models):
        for x in model.parameters():
            x.data += 0.01 * i
    parameters, buffers = torch.func.stack_module_state(models)  # type: ignore[arg-type]
    u, lengths = signal(4, 12, 2), torch.tensor([12, 5, 1, 7])

    def run(parameters: Any, buffers: Any, u: Tensor, lengths: Tensor) -> Tensor:
        return functional_call(models[0], (parameters, buffers), (u,), {"lengths": lengths})[0]

    with torch.no_grad():
        found = vmap(run, in_dims=(0, 0, None, None))(parameters, buffers, u, lengths)
        for model, y in zip(models, found, strict=True):
            assert_close(y, model(u, lengths=lengths)[0], **EXACT)
        by_sample = vmap(run, in_dims=(None, None, 0, 0))(
            dict(models[0].named_parameters()), {}, u[:, None], lengths[:, None]
        )
    assert_close(by_sample[:, 0], found[0], **EXACT)


def test_sample_by_sample_with_dropout_tokens_and_checks() -> None:
    options: Any = {"encoder": "embedding", "pooling": "last", "dropout": 0.2, "tie_dropout": False}
    model = SequenceModel(7, 3, 4, 2, d_state=4, check_finite=True, **options)
    loss, tokens = called(model), torch.randint(0, 7, (5, 9))
    parameters = {k: x.detach() for k, x in model.named_parameters()}
    per_sample = vmap(grad(loss), in_dims=(None, 0), randomness="different")
    found = per_sample(parameters, tokens[:, None])
    assert all(x.shape[0] == 5 and bool(x.isfinite().all()) for x in found.values())


def test_steps_are_transformed_too() -> None:
    model = make_model()
    state = model.initial_state(1)

    def run(u: Tensor) -> Tensor:
        return model.step(u, state)[0]

    u = signal(4, 1, 2)
    expected = torch.stack([torch.autograd.functional.jacobian(run, each) for each in u])
    assert_close(vmap(jacrev(run))(u), expected, **EXACT)
