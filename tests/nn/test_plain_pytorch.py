"""The habits of PyTorch's users: Sequential, masks, packed sequences, meta, copies, views."""

import copy
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence
from torch.testing import assert_close

from s4d_torch import DSS, S4, S4D, SSM, Layer, ModelState, OutputOnly, SequenceModel
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS, Mixing
from s4d_torch.nn.norm import NORMS
from s4d_torch.ssm.constraint import CONSTRAINTS, Constraint
from s4d_torch.ssm.discretization import DISCRETIZATIONS, zoh

ENGINES = ["auto", "scan", "direct", "fft", "chunk"]
LENGTHS = [5, 9, 1, 7]


def model(**options: Any) -> SequenceModel:
    given: Any = {"d_state": 4, "generator": torch.Generator().manual_seed(0), **options}
    return SequenceModel(3, 2, 6, 2, **given)


def signal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def mask_of(lengths: list[int], length: int) -> Tensor:
    return torch.arange(length) < torch.tensor(lengths)[:, None]


# -- one output ------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [S4D(6, 4), S4(6, 4), SSM(6, 4), S4D(6, 4, bidirectional=True)])
def test_a_layer_in_a_sequential(inner: nn.Module) -> None:
    u = signal(4, 9, 3)
    net = nn.Sequential(nn.Linear(3, 6), OutputOnly(inner), nn.Linear(6, 2))
    y = net(u)
    assert y.shape == (4, 9, 2)
    assert_close(y, net[2](inner(net[0](u))[0]))
    y.sum().backward()
    assert all(x.grad is not None for x in net.parameters())


def test_output_only_passes_options_on() -> None:
    whole, u = model(), signal(4, 9, 3)
    alone = OutputOnly(whole)
    assert_close(alone(u, lengths=LENGTHS, rate=2.0), whole(u, lengths=LENGTHS, rate=2.0)[0])
    assert list(alone.state_dict()) == [f"module.{name}" for name in whole.state_dict()]
    with pytest.raises(TypeError, match=r"module such as S4D\(64\)"):
        OutputOnly(S4D)  # type: ignore[arg-type]


# -- states ----------------------------------------------------------------------------------------


def test_a_detached_state_ends_the_gradients() -> None:
    net, u = model(), signal(4, 9, 3).requires_grad_()
    _, state = net(u)
    assert state.total.requires_grad
    cut = state.detach()
    assert isinstance(cut, ModelState)
    assert not any(x.requires_grad for x in (*cut.layers, cut.total, cut.samples))
    y, _ = net(signal(4, 2, 3), cut)
    y.sum().backward()
    assert u.grad is None


@pytest.mark.parametrize("indices", [[2, 0, 2], torch.tensor([1]), [True, False, False, True]])
def test_rows_of_a_state(indices: Any) -> None:
    net, u, more = model(), signal(4, 9, 3), signal(4, 5, 3)
    _, state = net(u)
    chosen = torch.as_tensor(indices)
    y, _ = net(more[chosen], state.select(indices))
    assert_close(y, net(more, state)[0][chosen])


def test_rows_that_begin_anew() -> None:
    net, more = model(), signal(4, 5, 3)
    _, state = net(signal(4, 9, 3))
    mask = torch.tensor([True, False, False, True])
    y, _ = net(more, state.zero(mask))
    assert_close(y[mask], net(more[mask])[0])
    assert_close(y[~mask], net(more, state)[0][~mask])
    spoiled = ModelState(tuple(x * torch.nan for x in state.layers), *state[1:]).zero([True] * 4)
    assert not spoiled.layers[0].isnan().any()


def test_rows_that_are_none() -> None:
    _, state = model()(signal(4, 9, 3))
    for indices in ([0.5], [[0]], [True, False]):
        with pytest.raises(ValueError, match=r"(indices|mask) must be"):
            state.select(indices)  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        state.select([4])
    for mask in ([1, 0, 0, 1], [True], torch.ones(4, 1).bool()):
        with pytest.raises(ValueError, match=r"mask must be torch.bool of shape \(4,\)"):
            state.zero(mask)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: s._replace(layers=s.layers[:1]), "state is that of 1 layers"),
        (lambda s: s._replace(layers=()), "state is that of 0 layers"),
        (lambda s: s._replace(layers=None), "state.layers must be a tuple"),
        (lambda s: s._replace(layers=(s.layers[0], None)), "state must be a tensor"),
        (lambda s: s._replace(layers=(s.layers[0], s.layers[1][:, :1])), r"got .*\(4, 1, 4\)"),
        (lambda s: s._replace(layers=tuple(x.float() for x in s.layers)), "torch.float32"),
        (lambda s: s._replace(total=s.total[:, :1]), r"state.total .*\(4, 1\)"),
        (lambda s: s._replace(total=None), "state.total must be a tensor"),
        (lambda s: s._replace(total=s.total.float()), "state.total .*torch.float32"),
        (lambda s: s._replace(samples=s.samples[:1]), "state is for 1 sequences"),
        (lambda s: s._replace(samples=torch.tensor(3.0)), "state.samples must be"),
        (lambda s: s._replace(samples=[1, 2, 3, 4]), "state.samples must be a tensor"),
        (lambda s: ModelState(*(x.to("meta") for x in s[1:]), None), "state.layers must be"),  # type: ignore[call-arg,arg-type]
        (lambda s: s._replace(layers=tuple(x.to("meta") for x in s.layers)), "meta"),
        (lambda s: tuple(s), "must be a ModelState"),
        (lambda s: s.layers[0], "must be a ModelState"),
    ],
)
def test_states_that_are_none(change: Any, problem: str) -> None:
    net, u = model(), signal(4, 9, 3)
    bad, compiled = change(net.initial_state(4)), net.compile_step(4)
    for call in (
        lambda: net(u, bad),
        lambda: net.step(u[:, 0], bad),
        lambda: compiled(u[:, 0], bad),
        lambda: compiled.start(bad),
    ):
        with pytest.raises((TypeError, ValueError), match=problem):
            call()


# -- masks and packed sequences --------------------------------------------------------------------


@pytest.mark.parametrize("module", [S4D(3, 4), SSM(3, 4), S4(3, 4, bidirectional=True), model()])
def test_a_mask_is_another_way_to_say_lengths(module: nn.Module) -> None:
    u = signal(4, 9, 3)
    y, state = module(u, mask=mask_of(LENGTHS, 9))
    expected, end = module(u, lengths=LENGTHS)
    assert_close(y, expected)
    if state is not None:
        assert_close(state, end)


def test_a_mask_of_pairs() -> None:
    pair, u = model(towers=2), signal(2, 2, 9, 3)
    mask = mask_of(LENGTHS, 9).view(2, 2, 9)
    assert_close(pair(u, mask=mask)[0], pair(u, lengths=torch.tensor(LENGTHS).view(2, 2))[0])


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ([[True, False, True]] * 2, "without holes"),
        ([[False, True, True]] * 2, "padding is on the right"),
        ([[False, False, False]] * 2, "True from the first sample"),
        ([[1, 1, 0]] * 2, r"mask must be torch.bool \(2, 3\).*torch.int64.*mask.bool"),
        ([[True, False]] * 2, r"\(2, 3\), .*got torch.bool \(2, 2\)"),
        ([True, False], r"got torch.bool \(2,\)"),
    ],
)
def test_masks_that_are_none(mask: Any, problem: str) -> None:
    for module in (S4D(3, 4), model()):
        with pytest.raises(ValueError, match=problem):
            module(signal(2, 3, 3), mask=torch.tensor(mask))
        with pytest.raises(ValueError, match="give one of them"):
            module(signal(2, 3, 3), lengths=[3, 2], mask=mask_of([3, 2], 3))


def sequences(*size: int) -> list[Tensor]:
    return [signal(length, *size) for length in LENGTHS]


@pytest.mark.parametrize("enforce_sorted", [False, True])
@pytest.mark.parametrize("module", [S4D(3, 4), SSM(3, 4), model(pooling="none"), DSS(3, 4)])
def test_packed_sequences_come_back_packed(module: nn.Module, enforce_sorted: bool) -> None:
    given = sequences(3)
    if enforce_sorted:
        given.sort(key=len, reverse=True)
    packed = pack_sequence(given, enforce_sorted=enforce_sorted)
    y, state = module(packed)
    assert isinstance(y, PackedSequence)
    again, _ = module(packed, state)
    lstm, _ = nn.LSTM(3, 5)(packed)
    for a, b in zip(y[1:], lstm[1:], strict=True):  # the order is that of the input
        assert (a is None and b is None) or torch.equal(a, b)
    for i, (one, found, more) in enumerate(zip(given, y_of(y), y_of(again), strict=True)):
        alone, end = module(one[None])
        assert_close(found, alone[0])
        last = state.layers[1][i] if isinstance(state, ModelState) else state[i]
        assert_close(last, (end.layers[1] if isinstance(end, ModelState) else end)[0])
        assert_close(more, module(one[None], end)[0][0])


def y_of(packed: PackedSequence) -> Iterator[Tensor]:
    padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    return iter(x[:length] for x, length in zip(padded, lengths, strict=True))


def test_packed_sequences_of_a_model_that_pools_and_of_tokens() -> None:
    net = model()
    y, _ = net(pack_sequence(sequences(3), enforce_sorted=False), return_state=False)
    padded = nn.utils.rnn.pad_sequence(sequences(3), batch_first=True)
    assert_close(y, net(padded, lengths=LENGTHS)[0])
    reader = model(encoder="embedding", pooling="none")
    tokens = torch.randint(0, 3, (4, 9))
    packed = pack_padded_sequence(
        tokens, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
    )
    assert_close(reader(packed)[0].data.shape, torch.Size([sum(LENGTHS), 2]))
    with pytest.raises(ValueError, match="lengths of its own"):
        net(pack_sequence(sequences(3), enforce_sorted=False), lengths=LENGTHS)


# -- the device meta -------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [S4D, S4, DSS])
@pytest.mark.parametrize("grad", [True, False])
def test_shapes_on_meta(kind: type[Layer], engine: str, grad: bool) -> None:
    layer = kind(8, 4, engine=engine, device="meta", check_finite=True).train(grad)
    u = torch.empty(4, 33, 8, device="meta")
    with torch.set_grad_enabled(grad):
        y, state = layer(u, layer.initial_state(4), lengths=[3, 4, 33, 1])
        y_t, after = layer.step(u[:, 0], state)
    assert y.device.type == state.device.type == y_t.device.type == "meta"
    assert (y.shape, state.shape, y_t.shape) == (u.shape, (4, 8, 4), (4, 8))
    assert after.shape == state.shape


def test_models_on_meta() -> None:
    with torch.device("meta"):
        net = model(generator=None)
        tokens = model(generator=None, encoder="embedding", pooling="none", bidirectional=True)
        u = torch.empty(4, 9, 3)
        places = torch.zeros(4, 9, dtype=torch.int64)
        mask = torch.ones(4, 9, dtype=torch.bool)
    assert net(u, mask=mask)[0].shape == (4, 2)
    assert tokens(places)[0].shape == (4, 9, 2)
    with pytest.raises(ValueError, match="u is on cpu, the module's parameters on meta"):
        net(signal(4, 9, 3))
    with pytest.raises(ValueError, match="u is on cpu, the module's parameters on meta"):
        S4D(3, 4, device="meta")(signal(4, 9, 3))
    with pytest.raises(ValueError, match="u is on meta, the module's parameters on cpu"):
        model()(u)
    with pytest.raises(ValueError, match=r"no weights to step with.*to_empty"):
        net.compile_step()
    with pytest.raises(ValueError, match="no weights"):
        model(generator=None, encoder="embedding", pooling="none", device="meta").generate(3)


def test_from_meta_to_weights() -> None:
    expected, u = model(), signal(4, 9, 3)
    net = model(generator=None, device="meta").to_empty(device="cpu")
    net.load_state_dict(expected.state_dict())
    assert_close(net(u)[0], expected(u)[0])
    with torch.no_grad():
        assert_close(net.eval()(u)[0], expected.eval()(u)[0])


# -- copies ----------------------------------------------------------------------------------------


class Wave(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.speed = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.speed * x)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_what_is_registered_outside_is_copied(duplicate: Any) -> None:
    own = Constraint(lambda raw: raw.square() + 0.1, lambda decay: (decay - 0.1).clamp(0.1).sqrt())
    entries: list[tuple[Any, Any]] = [
        (ACTIVATIONS, Wave),
        (NORMS, lambda features, **factory: nn.RMSNorm(features, **factory)),
        (MIXINGS, Mixing(1, Wave)),
        (CONSTRAINTS, own),
        (DISCRETIZATIONS, lambda A, B, dt: zoh(A, B, dt)),
    ]
    names = ["activation", "norm", "mixing", "constraint", "discretization"]
    u = signal(4, 9, 3)
    with ExitStack() as stack:
        for registry, value in entries:
            stack.enter_context(registry._added("own", value))
        net = model(**dict.fromkeys(names, "own"))
        other = duplicate(net)
        assert_close(other(u)[0], net(u)[0])
        with torch.no_grad():
            assert_close(duplicate(net.eval())(u)[0], net(u)[0])
        other.blocks[0].layer.activation.speed.data += 1  # a copy of its own
        assert not torch.equal(other(u)[0], net(u)[0])
    copied = copy.deepcopy(net)  # also when the names are gone
    assert_close(copied(u)[0], net(u)[0])


def double(module: nn.Module, args: Any, output: Any) -> Any:
    return 2 * output[0], output[1]


def test_what_torch_registers_is_copied() -> None:
    layer, u = S4D(3, 4), signal(4, 9, 3)
    plain, _ = layer(u)
    layer.register_forward_hook(double)
    layer.register_buffer("seen", torch.ones(2))
    parametrize.register_parametrization(layer.ssm, "D", nn.Tanh())
    other = copy.deepcopy(layer)
    assert_close(other(u)[0], layer(u)[0])
    assert not torch.equal(other(u)[0], 2 * plain)
    assert torch.equal(other.seen, layer.seen)
    assert other.seen is not layer.seen


# -- views -----------------------------------------------------------------------------------------


def views(x: Tensor) -> dict[str, Tensor]:
    """The same numbers in other layouts."""
    return {
        "strided": torch.stack([x, x], -1)[..., 0],
        "turned": x.transpose(0, -1).contiguous().transpose(0, -1),
        "negative": torch._neg_view(-x),
        "imaginary": torch.complex(x, -x).conj().imag,
        "expanded": x[:1].expand(x.shape),
        "offset": torch.cat([x[:1], x])[1:],
    }


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", [S4D, S4, DSS])
@pytest.mark.parametrize("grad", [True, False])
def test_layouts_of_inputs_and_states(kind: type[Layer], engine: str, grad: bool) -> None:
    layer = kind(6, 4, engine=engine).train(grad)
    u, state = signal(4, 9, 6), signal(4, 6, 4).double()
    us, states = views(u), views(state)
    with torch.set_grad_enabled(grad):
        for name in us:
            x, start = us[name].clone().contiguous(), states[name].clone().contiguous()
            x, start = x.resolve_neg(), start.resolve_neg()
            for a, b in (
                (layer(us[name], states[name]), layer(x, start)),
                (layer(us[name], return_state=False), layer(x, return_state=False)),
                (layer.step(us[name][:, 0], states[name]), layer.step(x[:, 0], start)),
            ):
                assert_close(a, b)
    with pytest.raises(TypeError, match=r"use torch.view_as_real\(u\)"):
        layer(torch.complex(u, u).conj())


@pytest.mark.parametrize("engine", ["scan", "direct", "fft"])
def test_layouts_when_looking_both_ways(engine: str) -> None:
    layer, u = S4D(6, 4, engine=engine, bidirectional=True), signal(4, 9, 6)
    for view in views(u).values():
        assert_close(layer(view)[0], layer(view.clone().resolve_neg().contiguous())[0])


def test_layouts_of_a_compiled_step() -> None:
    net = model().eval()
    u, many = signal(4, 3), signal(4, 5, 3)
    _, state = net(signal(4, 9, 3))
    for name, x in views(u).items():
        given = [views(part.detach())[name] for part in (*state.layers, *state[1:])]
        own = ModelState(tuple(given[:2]), *given[2:])
        plain = ModelState(*(own._each(lambda x: x.clone().resolve_neg().contiguous())))
        compiled = net.compile_step(4)
        with torch.no_grad():
            expected, end = net.step(x.clone().resolve_neg().contiguous(), plain)
            y, after = compiled(x, own)
            near: Any = {"rtol": 1e-5, "atol": 1e-6}
            assert_close(y, expected, **near)
            assert_close(after, end, **near)
            compiled.start(own)
            assert_close(compiled.push(x), expected, **near)
            several = views(many)[name]
            compiled.start(own)
            last = compiled.push_many(several)[:, -1]
            assert_close(last, net(several.clone().resolve_neg().contiguous(), plain)[0], **near)


def test_prompts_in_any_layout() -> None:
    writer = SequenceModel(5, 5, 6, 2, d_state=4, encoder="embedding", pooling="none").eval()
    prompt = torch.randint(0, 5, (2, 6))
    strided = torch.stack([prompt, prompt], -1)[..., 0]
    options: Any = {"temperature": 0.0}
    expected = writer.generate(8, prompt=prompt, **options)
    assert torch.equal(writer.generate(8, prompt=strided, **options), expected)
    row = prompt[:1].expand(3, -1)
    assert torch.equal(writer.generate(8, prompt=row, **options)[0], expected[0])
    with pytest.raises(ValueError, match="meta"):
        writer.generate(8, prompt=prompt.to("meta"))
