"""Devices that are not here, by fake tensors: shapes, dtypes, transfers, float64, memory.

Nothing here says how fast a GPU is, nor that its own code for an operator is right.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fake_devices import Watch, code_for, fake_device, gradients, memory_of_training
from s4d_torch import DSS, METHODS, S4, S4D, SSM, Layer, Method, SequenceModel
from s4d_torch.nn.method import legal_methods
from s4d_torch.nn.norm import NORMS
from s4d_torch.ssm import convolution, recurrence
from s4d_torch.ssm.engine import ENGINES, choose

KINDS = ["cuda", "mps"]
DOUBLE = {"cuda": torch.float64, "mps": torch.float32}
D_MODEL, D_STATE, LENGTH = 4, 8, 70

kinds = pytest.mark.parametrize("kind", KINDS)


def seed() -> Generator:
    return Generator().manual_seed(0)


def every_choice() -> list[Method]:
    """Methods in which every name of the registries occurs, and every legal pair of some."""
    seen: set[Any] = set()
    chosen = []
    for method in legal_methods():
        names = (method.structure, method.kernel, method.discretization), (method.constraint,)
        found = {*names, (method.structure, method.init)} - seen
        if found:
            seen |= found
            chosen.append(method.replace(softmax_length=40))
    variants = [
        method.replace(**change)
        for method in METHODS.values()
        for change in ({"n_ssm": 1}, {"bidirectional": True})
    ]
    return [*chosen, *variants, Method(init="real", bidirectional=True, train_A=False)]


def check(found: Sequence[Tensor | None], wanted: Sequence[Tensor]) -> None:
    for x, like in zip(found, wanted, strict=True):
        assert x is not None
        assert (x.shape, x.dtype, x.device) == (like.shape, like.dtype, like.device)


# -- the tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.equal(x, x),
        lambda x: x.cpu(),
        lambda x: x + torch.ones(3),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: torch.linalg.inv(x[:, None, None]),
        lambda x: x.double() if x.device.type == "mps" else x.tolist(),
        lambda x: x.sum(0, dtype=torch.float64) if x.device.type == "mps" else x.cpu(),
    ],
)
@kinds
def test_what_a_device_should_not_be_asked_for(kind: str, ask: Callable[[Tensor], Any]) -> None:
    with fake_device(kind) as device:
        x = torch.empty(3, device=device)
        with pytest.raises(Exception, match=r"."), Watch(device):
            ask(x)


def test_gradients_by_the_nodes_are_those_of_autograd() -> None:
    layer = S4D(D_MODEL, D_STATE, engine="fft", generator=seed()).double()
    u = torch.randn(2, LENGTH, D_MODEL, generator=seed()).double().requires_grad_()
    inputs = [u, *layer.parameters()]
    expected = torch.autograd.grad([x.sum() for x in layer(u)], inputs)
    assert_close(gradients(layer(u), inputs), list(expected))


# -- layers and models -----------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("method", every_choice(), ids=str)
def test_a_layer(method: Method, kind: str) -> None:
    with fake_device(kind) as device:
        layer = Layer(D_MODEL, D_STATE, method=method, device=device)
        parameters = list(layer.parameters())
        u = torch.empty(3, LENGTH, D_MODEL, device=device, requires_grad=True)
        lengths = torch.full((3,), 7, device=device)
        with Watch(device):
            if method.bidirectional:
                y, state = layer(u, lengths=lengths, rate=2.0)
                assert state is None
                outputs = [y]
            else:
                before = layer.initial_state(3)
                outputs = list(layer(u, before, lengths=lengths, rate=2.0))
                check(outputs[1:], [before])
            check(outputs[:1], [u])
            check(gradients(outputs, [u, *parameters]), [u, *parameters])
            with torch.no_grad():
                check(layer.eval()(u)[:1], [u])


@kinds
@pytest.mark.parametrize("make", [S4D, DSS, S4])
def test_steps_go_on_after_chunks(make: type[Layer], kind: str) -> None:
    with fake_device(kind) as device:
        layer = make(D_MODEL, D_STATE, engine="chunk", device=device)
        u = torch.empty(3, LENGTH, D_MODEL, device=device, requires_grad=True)
        with Watch(device):
            y, state = layer(u)
            check([y, state], [u, torch.empty(3, 4, 8, dtype=DOUBLE[kind], device=device)])
            after = layer.step(u[:, 0], state, rate=2.0)
            check(after, [u[:, 0], state])
            check(gradients(after, [u]), [u])


def test_what_stands_in_for_compiled_code() -> None:
    with fake_device("cuda") as device:
        space = SSM(D_MODEL, D_STATE, device=device)._state_space(1.0)
        u = torch.empty(3, LENGTH, D_MODEL, device=device)
        stand_ins = {engine: choose(engine, space, u) for engine in ENGINES}
    assert stand_ins == dict.fromkeys(ENGINES, "fft") | {"chunk": "chunk"}


MODELS: dict[str, dict[str, Any]] = {
    "mean": {"norm": "layer", "dropout": 0.1, "drop_path": 0.1},
    "last": {"norm": "batch", "pooling": "last", "dropout": 0.1, "tie_dropout": True},
    "none": {"norm": "none", "pooling": "none", "encoder": "embedding", "prenorm": False},
    "pairs": {"norm": "batch", "towers": 2, "method": "dss"},
    "both ways": {"encoder": "embedding", "pooling": "last", "bidirectional": True},
    "s4": {"method": "s4", "pooling": "last", "towers": 2, "mixing": "linear"},
}


@kinds
@pytest.mark.parametrize("name", MODELS)
def test_a_model(name: str, kind: str) -> None:
    options = MODELS[name]
    with fake_device(kind) as device:
        model = SequenceModel(3, 2, D_MODEL, 1, d_state=D_STATE, device=device, **options)
        lead = (3, 2) if options.get("towers") == 2 else (3,)
        u = torch.zeros(*lead, LENGTH, 3, device=device)
        u = u[..., 0].long() if "encoder" in options else u.requires_grad_()
        lengths = torch.full(lead, 7, device=device)
        with Watch(device):
            y, state = model(u, lengths=lengths)
            steps = (LENGTH,) if options.get("pooling") == "none" else ()
            assert (y.shape, y.dtype, y.device) == ((3, *steps, 2), torch.float32, device)
            parameters = list(model.parameters())
            check(gradients([y], parameters), parameters)
            if options.get("bidirectional"):
                return
            assert {x.dtype for x in (*state.layers, *state[1:])} == {DOUBLE[kind]}
            with torch.no_grad():
                y, after = model.eval().step(u.select(len(lead), 0), state)
            assert y.shape == (3, 2)
            check([*after.layers, *after[1:]], [*state.layers, *state[1:]])
            model(u, after, lengths=lengths)


def test_every_norm_is_among_the_models() -> None:
    assert {options.get("norm", "layer") for options in MODELS.values()} == set(NORMS)


# -- lengths and the like --------------------------------------------------------------------------


@pytest.mark.parametrize("as_given", [list, torch.tensor], ids=["list", "on the CPU"])
def test_lengths_go_to_the_device_once_and_nobody_waits(as_given: Any) -> None:
    with fake_device("cuda") as device:
        layer = S4D(D_MODEL, D_STATE, device=device)
        u = torch.empty(3, LENGTH, D_MODEL, device=device)
        lengths = as_given([7, 8, 9])
        with Watch(device, copies=True) as watch:
            layer(u, lengths=lengths)
        assert [each["non_blocking"] for each in watch.copied] == [True]


@pytest.mark.parametrize("lengths", [[0, 5], [5, 99], torch.tensor([0, 5])])
def test_lengths_are_checked_before_they_go(lengths: Any) -> None:
    u = torch.empty(2, 9, D_MODEL, device="meta")  # any device but the CPU
    model = SequenceModel(D_MODEL, 2, D_MODEL, 1, d_state=D_STATE, device="meta")
    for module in (S4D(D_MODEL, D_STATE, device="meta"), model):
        with pytest.raises(ValueError, match=r"lengths must lie in \[1, 9\]"):
            module(u, lengths=lengths)
    with pytest.raises(ValueError, match="without holes"):
        model(u, mask=torch.tensor([[True, False, True] * 3] * 2))


# -- double precision and memory -------------------------------------------------------------------

BATCH, LONG, WIDE, STATES = 8, 16384, 128, 64
SIZES = (BATCH, LONG, WIDE)


@pytest.mark.parametrize("name", METHODS)
def test_double_precision_is_for_small_tables(name: str) -> None:
    """At most 2 H N sqrt(L) numbers, as many as the kernel has here; u has eight times as many."""
    with fake_device("cuda") as device:
        ssm = SSM(WIDE, STATES, method=METHODS[name], device=device)
        u = torch.empty(SIZES, device=device, requires_grad=True)
        with Watch(device) as watch:
            gradients(ssm(u, ssm.initial_state(BATCH)), [u, *ssm.parameters()])
    assert 0 < max(watch.doubles.values()) <= 2 * WIDE * STATES * LONG**0.5 == u.numel() / 8


def test_a_mean_over_time_takes_no_copy_in_double_precision() -> None:
    with fake_device("cuda") as device:
        model = SequenceModel(1, 2, WIDE, 1, d_state=STATES, device=device)
        with torch.no_grad(), Watch(device) as watch:
            model(torch.empty(*SIZES[:2], 1, device=device))
    assert 0 < max(watch.doubles.values()) <= 2 * WIDE * STATES * LONG**0.5


@pytest.mark.parametrize(
    ("name", "engine", "carried", "most"),
    [
        ("s4d", "auto", False, 4.5),
        ("s4d", "auto", True, 5.2),
        ("dss", "auto", True, 5.5),
        ("s4", "auto", False, 5.6),
        ("s4", "auto", True, 7.9),
        ("s4d", "chunk", True, 6.8),
    ],
)
def test_memory_of_a_state_space(name: str, engine: str, carried: bool, most: float) -> None:
    def call(ssm: SSM, u: Tensor) -> Tensor:
        state = ssm.initial_state(BATCH) if carried else None
        return ssm(u, state, return_state=carried)[0]

    options: Any = {"method": METHODS[name], "engine": engine}
    forward, _, backward = memory_of_training(
        lambda device: SSM(WIDE, STATES, device=device, **options), call, SIZES
    )
    assert max(forward, backward) < most


@pytest.mark.parametrize(("make", "most"), [(S4D, 7.5), (S4, 8.6)])
def test_memory_of_a_layer(make: type[Layer], most: float) -> None:
    forward, _, backward = memory_of_training(
        lambda device: make(WIDE, STATES, device=device),
        lambda layer, u: layer(u, return_state=False)[0],
        SIZES,
    )
    assert max(forward, backward) < most


@pytest.mark.parametrize("make", [S4D, S4])
def test_pieces_have_the_same_values(make: type[Layer], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a large batch on a device goes through, with real values."""
    layer = make(D_MODEL, D_STATE, engine="fft", generator=seed()).double()
    u = torch.randn(5, 700, D_MODEL, generator=seed()).double().requires_grad_()
    state = torch.randn(5, D_MODEL, D_STATE, generator=seed()).double().requires_grad_()
    inputs, lengths = [u, state, *layer.parameters()], torch.tensor([700, 1, 64, 65, 333])

    def all_of_it() -> list[Tensor]:
        found = [*layer(u, state), *layer(u, state, lengths=lengths)]
        return [*found, *torch.autograd.grad([x.square().sum() for x in found], inputs)]

    expected = all_of_it()
    monkeypatch.setattr(recurrence, "rows_at_once", lambda u: 2)
    monkeypatch.setattr(convolution, "PIECE", 2**12)
    for found, wanted in zip(all_of_it(), expected, strict=True):
        assert_close(found, wanted, rtol=1e-9, atol=1e-10)


# -- operators of mps ------------------------------------------------------------------------------


def test_every_operator_has_code_for_mps() -> None:
    """For some dtype: the table does not know which."""
    operators: set[Any] = set()
    with fake_device("mps") as device:
        for make in (S4D, DSS, S4):
            layer = make(D_MODEL, D_STATE, device=device)
            u = torch.empty(3, LENGTH, D_MODEL, device=device, requires_grad=True)
            with Watch(device) as watch:
                outputs = layer(
                    u, layer.initial_state(3), lengths=torch.ones_like(u[:, 0, 0]).long()
                )
                gradients(outputs, [u])
                gradients(layer.step(u[:, 0], layer.initial_state(3)), [u])
            operators |= watch.operators
    implemented = code_for("MPS")
    lacking = {x.name() for x in operators if x.namespace == "aten" and not implemented(x)}
    assert not lacking


# -- autocast --------------------------------------------------------------------------------------


@pytest.fixture
def autocast_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch turns that of cuda off where there is none."""
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)


class LowPrecision(TorchDispatchMode):
    """Which operators give anything in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if any(getattr(x, "dtype", None) in LOW for x in tree_leaves(output)):
            self.operators.add(func.name().removeprefix("aten::"))
        return output


LOW = [torch.float16, torch.bfloat16]
PLACES = [*KINDS, "cpu"]


@contextmanager
def device_of(kind: str) -> Iterator[torch.device]:
    with nullcontext(torch.device("cpu")) if kind == "cpu" else fake_device(kind) as device:
        yield device


@pytest.mark.usefixtures("autocast_everywhere")
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("kind", PLACES)
def test_autocast_is_not_for_state_spaces(kind: str, dtype: torch.dtype) -> None:
    with device_of(kind) as device:
        ssm = S4D(D_MODEL, D_STATE, device=device).ssm
        for given in (torch.float32, dtype):
            u = torch.empty(3, LENGTH, D_MODEL, dtype=given, device=device, requires_grad=True)
            with torch.autocast(kind, dtype=dtype), LowPrecision() as low:
                y, state = ssm(u)
                y_t, after = ssm.step(u[:, 0], state)
            # the answer alone is rounded, to what the input was
            assert low.operators <= {"_to_copy", "select.int"}
            assert (y.dtype, y_t.dtype) == (given, given)
            assert state.dtype == after.dtype == DOUBLE.get(kind, torch.float64)
            parameters = list(ssm.parameters())
            find = gradients if kind != "cpu" else torch.autograd.grad
            found = find([y, state], [u, *parameters], [torch.ones_like(y), torch.ones_like(state)])
            check(found, [u, *parameters])


@pytest.mark.usefixtures("autocast_everywhere")
@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("kind", PLACES)
def test_autocast_of_a_model(kind: str, dtype: torch.dtype) -> None:
    """In the precision of torch's own linear maps, states as ever."""
    with device_of(kind) as device:
        model = SequenceModel(3, 2, D_MODEL, 1, d_state=D_STATE, norm="batch", device=device)
        u = torch.zeros(3, LENGTH, 3, device=device)
        with torch.autocast(kind, dtype=dtype):
            linear = model.encoder(u)
            y, state = model(u)
            inner, _ = model.blocks[0].layer(torch.zeros(3, LENGTH, D_MODEL, device=device))
        assert linear.dtype == y.dtype == inner.dtype == dtype
        double = DOUBLE.get(kind, torch.float64)
        assert {x.dtype for x in (*state.layers, *state[1:])} == {double}
        parameters = list(model.parameters())
        find = gradients if kind != "cpu" else torch.autograd.grad
        check(find([y], parameters, [torch.ones_like(y)]), parameters)


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("engine", ["auto", "fft"])
def test_autocast_rounds_the_answer_alone(engine: str, dtype: torch.dtype) -> None:
    ssm = SSM(D_MODEL, D_STATE, engine=engine, generator=seed())
    u = torch.randn(3, LENGTH, D_MODEL, generator=seed()).to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        y, state = ssm(u)
    expected, end = ssm(u.float())
    assert torch.equal(y, expected.to(dtype))
    assert torch.equal(state, end)
