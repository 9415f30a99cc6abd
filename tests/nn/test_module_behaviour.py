"""What PyTorch users expect of a module: dtypes, devices, copies, autocast, export, the cache."""

import copy
import io
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.export import Dim, export
from torch.testing import assert_close

import s4d_torch
from s4d_torch import DSS, METHODS, S4, S4D, SSM, Block, Layer, SequenceModel
from s4d_torch.ssm.state_space import StateSpace
from s4d_torch.training import ModelConfig

LENGTH, D_MODEL = 70, 4
Module = Layer | SequenceModel

MODULES: dict[str, Callable[..., Module]] = {
    "s4d": lambda **options: S4D(D_MODEL, 8, **options),
    "fft": lambda **options: S4D(D_MODEL, 8, engine="fft", **options),
    "s4": lambda **options: S4(D_MODEL, 8, **options),
    "dss": lambda **options: DSS(D_MODEL, 8, **options),
    "real": lambda **options: S4D(D_MODEL, 5, init="real", train_A=False, **options),
    "model": lambda **options: SequenceModel(D_MODEL, 2, 6, 2, d_state=8, norm="batch", **options),
}
every_module = pytest.mark.parametrize("name", MODULES)
every_layer = pytest.mark.parametrize("make", [S4D, S4, DSS])


def seed() -> Generator:
    return Generator().manual_seed(0)


def made(name: str, **options: Any) -> Module:
    return MODULES[name](generator=seed(), **options).eval()


def signal(length: int = LENGTH, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, length, D_MODEL, generator=seed()).to(dtype)


def tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def relative_error(actual: Tensor, expected: Tensor) -> float:
    return ((actual.double() - expected).abs().max() / expected.abs().max()).item()


# ---- construction -----------------------------------------------------------------------------


@every_module
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtype_is_that_of_every_tensor(name: str, dtype: torch.dtype) -> None:
    module = made(name, dtype=dtype)
    assert {x.dtype for x in tensors(module)} == {dtype}
    assert module(signal(dtype=dtype))[0].dtype == dtype


@every_module
def test_the_default_dtype_counts(name: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        module = made(name)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_close(module.state_dict(), made(name, dtype=torch.float64).state_dict(), rtol=0, atol=0)


@every_module
def test_no_tensor_is_complex(name: str) -> None:
    assert not any(x.is_complex() for x in tensors(made(name)))


@every_module
def test_on_the_meta_device(name: str) -> None:
    explicit = made(name, device="meta")
    with torch.device("meta"):
        implicit = made(name)
    for module in (explicit, implicit):
        assert {x.device.type for x in tensors(module)} == {"meta"}
    explicit.to_empty(device="cpu").load_state_dict(made(name).state_dict())
    assert_close(explicit(signal())[0], made(name)(signal())[0], rtol=0, atol=0)


def test_repr_shows_what_differs_from_the_base() -> None:
    assert SSM(4, 8).extra_repr() == "4, d_state=8"
    shown = repr(S4D(4, 8, init="lin", n_ssm=1, dropout=0.1, tie_dropout=True))
    assert "SSM(4, d_state=8, init='lin', n_ssm=1)" in shown
    assert "SequenceDropout(0.1, tied=True)" in shown
    shown = repr(SequenceModel(1, 2, 4, 1, d_state=8, norm="batch", prenorm=False, drop_path=0.2))
    for part in ("prenorm=False", "SequenceBatchNorm(4, eps=1e-05", "StochasticDepth(0.2)"):
        assert part in shown


# ---- copies -----------------------------------------------------------------------------------


def pickled(module: Module) -> Module:
    copied: Module = pickle.loads(pickle.dumps(module))
    return copied


def saved_and_loaded(module: Module) -> Module:
    """torch.save of the whole module."""
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    copied: Module = torch.load(file, weights_only=False)
    return copied


@every_module
@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled, saved_and_loaded])
def test_a_copy_is_equal_and_apart(name: str, duplicate: Callable[[Module], Module]) -> None:
    module = made(name)
    with torch.no_grad():
        expected, _ = module(signal())  # a full cache, which no copy may carry along
        copied = duplicate(module)
        assert_close(copied.state_dict(), module.state_dict(), rtol=0, atol=0)
        assert copied.method == module.method
        assert_close(copied(signal())[0], expected, rtol=0, atol=0)
        for x in copied.parameters():
            x.mul_(2)
        assert_close(module(signal())[0], expected, rtol=0, atol=0)
        assert not torch.allclose(copied(signal())[0], expected)


@every_module
def test_state_dict_holds_everything(name: str) -> None:
    module, other = made(name), MODULES[name](generator=Generator().manual_seed(1)).eval()
    module.train()(signal())  # running statistics are state too
    module.eval()
    assert not torch.allclose(other(signal())[0], module(signal())[0])
    other.load_state_dict(module.state_dict())
    assert_close(other(signal())[0], module(signal())[0], rtol=0, atol=0)


def test_a_method_is_pickled_and_copied_as_a_value() -> None:
    for method in METHODS.values():
        assert pickle.loads(pickle.dumps(method)) == method == copy.deepcopy(method)


# ---- conversions ------------------------------------------------------------------------------


@every_module
@pytest.mark.parametrize("convert", [nn.Module.double, lambda m: m.to(torch.float64)])
def test_double_keeps_the_values(name: str, convert: Callable[[Module], Module]) -> None:
    single, double = made(name), convert(made(name))
    for a, b in zip(tensors(single), tensors(double), strict=True):
        assert b.dtype == torch.float64
        assert torch.equal(a.double(), b)
    expected, _ = double(signal(dtype=torch.float64))
    assert relative_error(single(signal())[0], expected) < 1e-5


@every_module
@pytest.mark.parametrize(
    ("convert", "dtype", "tolerance"),
    [
        (nn.Module.bfloat16, torch.bfloat16, 0.1),
        (nn.Module.half, torch.float16, 0.02),
    ],
)
def test_low_precision_parameters_run(
    name: str, convert: Callable[[Module], Module], dtype: torch.dtype, tolerance: float
) -> None:
    low = convert(made(name))
    same_values = convert(made(name)).double()  # what rounding the parameters alone changes
    y, state = low(signal(dtype=dtype))
    assert y.dtype == dtype
    assert relative_error(y, same_values(signal(dtype=dtype).double())[0]) < tolerance
    again, _ = low.step(signal(dtype=dtype)[:, 0], low.initial_state(2))
    assert again.dtype == dtype
    assert (state if isinstance(low, Layer) else state.total).dtype == torch.float64


def test_the_kernel_of_low_precision_parameters_is_float32() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        ssm = SSM(D_MODEL, 8, dtype=dtype, generator=seed())
        kernel = ssm.kernel(LENGTH)
        assert kernel.dtype == torch.float32
        assert relative_error(kernel, ssm.double().kernel(LENGTH)) < 1e-6


# ---- autocast ---------------------------------------------------------------------------------


@every_layer
def test_autocast_keeps_the_kernel_in_float32(make: type[Layer]) -> None:
    layer = make(D_MODEL, 8, generator=seed())
    expected, (y, state) = layer.ssm.kernel(LENGTH), layer.ssm(signal())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        kernel, (inside, end) = layer.ssm.kernel(LENGTH), layer.ssm(signal())
        rounded, _ = layer.ssm(signal(dtype=torch.bfloat16))
    assert kernel.dtype == inside.dtype == torch.float32
    assert_close(kernel, expected, rtol=0, atol=0)
    assert_close(inside, y, rtol=0, atol=0)
    assert_close(end, state, rtol=0, atol=0)
    assert rounded.dtype == torch.bfloat16
    assert relative_error(rounded, y.double()) < 0.02


@every_module
def test_autocast_stays_close_to_float32(name: str) -> None:
    module = made(name)
    expected, _ = module(signal())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = module(signal())
        step, _ = module.step(signal()[:, 0], module.initial_state(2))
    assert relative_error(y, expected.double()) < 0.03
    assert step.isfinite().all()


def test_autocast_trains() -> None:
    model = SequenceModel(D_MODEL, 2, 6, 2, d_state=8, norm="batch", generator=seed())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = model(signal(), lengths=[LENGTH, 30])
        loss = y.float().square().sum()
    loss.backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


# ---- export -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["s4d", "fft", "s4", "dss", "model"])
def test_export_gives_the_same_outputs(name: str, strict: bool) -> None:
    module = made(name)
    program = export(
        module, (signal(9),), strict=strict, dynamic_shapes={"u": {0: Dim("batch", max=64)}}
    )
    u = torch.randn(5, 9, D_MODEL, generator=seed())
    assert_close(program.module()(u), module(u))


class Step(nn.Module):
    """A step as a module of its own, for export."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer.step(u, state)


@every_layer
def test_export_of_a_step(make: type[Layer]) -> None:
    layer = make(D_MODEL, 8, generator=seed()).eval()
    u, state = signal()[:, 0], layer.initial_state(2) + 1
    program = export(Step(layer), (u, state))
    assert_close(program.module()(u, state), layer.step(u, state))


# ---- the cache of evaluation ------------------------------------------------------------------


def changed_in_place(layer: Layer) -> None:
    layer.ssm.raw_C.mul_(2)


def changed_through_data(layer: Layer) -> None:
    layer.ssm.raw_C.data.mul_(2)


def changed_one_number(layer: Layer) -> None:
    layer.ssm.log_dt.data[0] += 1


def changed_by_assignment(layer: Layer) -> None:
    layer.ssm.raw_C = nn.Parameter(2 * layer.ssm.raw_C)


def changed_by_loading(layer: Layer) -> None:
    other = type(layer)(D_MODEL, 8, generator=Generator().manual_seed(1))
    layer.load_state_dict(other.state_dict())


def changed_by_an_optimizer(layer: Layer) -> None:
    with torch.enable_grad():
        layer(signal())[0].square().sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()


@every_layer
@pytest.mark.parametrize(
    "change",
    [
        changed_in_place,
        changed_through_data,
        changed_one_number,
        changed_by_assignment,
        changed_by_loading,
        changed_by_an_optimizer,
    ],
)
@torch.no_grad()
def test_the_cache_notices_a_change(make: type[Layer], change: Callable[[Layer], None]) -> None:
    layer = make(D_MODEL, 8, generator=seed()).eval()
    sample, start = signal()[:, 0], layer.initial_state(2) + 1
    before = layer(signal())[0], layer.step(sample, start)[0]
    change(layer)
    after = layer(signal())[0], layer.step(sample, start)[0]
    fresh = copy.deepcopy(layer)  # without a cache
    assert_close(after, (fresh(signal())[0], fresh.step(sample, start)[0]), rtol=0, atol=0)
    for a, b in zip(after, before, strict=True):
        assert not torch.allclose(a, b)


@torch.no_grad()
def test_the_cache_notices_a_frozen_parameter() -> None:
    layer = DSS(D_MODEL, 8, generator=seed()).eval()
    before, _ = layer(signal())
    layer.ssm.raw_B.mul_(2)  # a buffer
    assert not torch.allclose(layer(signal())[0], before)


@torch.no_grad()
def test_the_cache_notices_another_precision() -> None:
    layer = S4D(D_MODEL, 8, generator=seed()).eval()
    single, _ = layer(signal())
    double, _ = layer.double()(signal(dtype=torch.float64))
    assert double.dtype == torch.float64
    assert 0 < relative_error(single, double) < 1e-5
    assert layer.ssm.kernel(LENGTH).dtype == torch.float64


@torch.no_grad()
def test_the_cache_knows_length_and_rate() -> None:
    layer = S4D(D_MODEL, 8, generator=seed()).eval()
    for length, rate in [(LENGTH, 1.0), (9, 1.0), (LENGTH, 2.0), (LENGTH, 1.0), (8, 1.0), (7, 1.0)]:
        u = signal(length)
        assert_close(layer(u, rate=rate), copy.deepcopy(layer)(u, rate=rate), rtol=0, atol=0)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one with each kernel that is computed."""
    calls, compute = [], StateSpace._kernel

    def counting(space: StateSpace, length: int, algorithm: str | None) -> Tensor:
        calls.append(length)
        return compute(space, length, algorithm)

    monkeypatch.setattr(StateSpace, "_kernel", counting)
    return calls


def test_the_cache_is_for_evaluation_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = S4D(D_MODEL, 8, generator=seed())
    calls = counted(monkeypatch)
    for train, grad, expected in [(True, True, 3), (True, False, 3), (False, True, 3)]:
        calls.clear()
        layer.train(train)
        with torch.set_grad_enabled(grad):
            for _ in range(3):
                layer.ssm.kernel(LENGTH)
        assert len(calls) == expected
    calls.clear()
    layer.eval()
    with torch.no_grad():
        for _ in range(3):
            layer.ssm.kernel(LENGTH)
    assert len(calls) == 1


def test_a_cached_kernel_does_not_block_gradients() -> None:
    layer = S4D(D_MODEL, 8, generator=seed()).eval()
    with torch.no_grad():
        layer(signal())
    layer(signal())[0].square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert (parameter.grad != 0).any(), name


def test_the_cache_stays_small() -> None:
    layer = S4D(D_MODEL, 8, generator=seed()).eval()
    with torch.no_grad():
        for rate in range(1, 10):
            for length in range(1, 20):
                layer.ssm.kernel(length, rate=float(rate))
    spaces = layer.ssm._kept[1].values()
    assert len(spaces) <= 4
    assert all(space.memory is not None and len(space.memory) <= 4 for space in spaces)


def test_many_threads_share_a_layer_in_evaluation() -> None:
    """More rates and lengths than are kept, at the same time."""
    layer = S4D(2, 8, generator=seed()).eval()
    asked = [(length, rate) for length in (8, 9, 10) for rate in (1.0, 2.0, 3.0, 4.0, 5.0)]
    with torch.no_grad():
        expected = {key: layer.ssm.kernel(key[0], rate=key[1]) for key in asked}

    @torch.no_grad()
    def work(start: int) -> None:
        for k in range(200):
            length, rate = asked[(start + k) % len(asked)]
            assert torch.equal(layer.ssm.kernel(length, rate=rate), expected[length, rate])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


# -- the public surface ----------------------------------------------------------------------------


def test_names_that_are_imported_later_are_listed() -> None:
    assert set(s4d_torch.__all__) <= set(dir(s4d_torch))
    assert not hasattr(s4d_torch, "LATER")


@pytest.mark.parametrize("module", [SequenceModel, Block, Layer])
def test_padding_is_no_option_of_a_call(module: type[nn.Module]) -> None:
    public = [name for name in signature(module.forward).parameters if not name.startswith("_")]
    masked, packed = ([], []) if module is Block else (["mask"], ["cu_seqlens"])
    assert public[3:] == ["lengths", *masked, "rate", "resets", *packed, "return_state"]


def test_options_of_a_run_are_those_of_the_model() -> None:
    """Their help is written for the command line; names and defaults are the model's."""
    options = signature(SequenceModel).parameters
    for field in fields(ModelConfig):
        if field.name not in ("architecture", "d_model"):
            assert field.default == options[field.name].default
