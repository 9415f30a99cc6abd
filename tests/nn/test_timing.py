"""Time as it comes: gaps, resets and packed sequences, over the registries."""

import copy
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from s4d_torch import METHODS, S4D, SSM, Method, SequenceModel
from s4d_torch.nn.method import legal_methods
from s4d_torch.ssm import gaps as gaps_module
from s4d_torch.ssm import irregular
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.gaps import Gaps

LEGAL = [m.replace(softmax_length=40) for m in legal_methods()]
BARS = {torch.float64: 1e-10, torch.float32: 1e-5}
H, N = 3, 8
FEW = torch.tensor([1.0, 2.0, 0.25, 7.0], dtype=torch.float64)


def name(method: Method) -> str:
    parts = (method.structure, method.kernel, method.discretization, method.constraint, method.init)
    return "-".join(parts)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed)).to(dtype)


def gaps_of(kind: str, *shape: int, seed: int = 2) -> Tensor:
    """A few different ones, or all different, from 0.2 to 3 steps."""
    if kind == "few":
        return FEW[torch.randint(0, len(FEW), shape, generator=seeded(seed))]
    return 0.2 + 2.8 * torch.rand(*shape, dtype=torch.float64, generator=seeded(seed))


def ssm_of(method: Method, dtype: torch.dtype = torch.float64) -> SSM:
    ssm = SSM(H, N, method=method, dtype=dtype, generator=seeded())
    return ssm.requires_grad_(False).eval()


def agree(actual: Tensor, expected: Tensor) -> None:
    scale = max(expected.abs().max().item(), 1e-3)
    assert_close(actual, expected, rtol=0, atol=BARS[expected.dtype] * scale)


def agree_states(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    scale = max(expected.abs().max().item(), 1e-3)
    assert_close(actual, expected, rtol=0, atol=BARS[dtype] * scale)


# -- gaps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["few", "many"])
@pytest.mark.parametrize("method", LEGAL, ids=name)
def test_whole_is_chunks_is_steps(
    method: Method, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps_module, "FEW", len(FEW))
    for dtype in BARS:
        ssm, u, gaps = ssm_of(method, dtype), draw(2, 24, H, dtype=dtype), gaps_of(kind, 2, 24)
        y, end = ssm(u, rate=gaps)
        state, ys = None, []
        for first, last in pairwise([0, 1, 14, 15, 24]):
            some, state = ssm(u[:, first:last], state, rate=gaps[:, first:last])
            ys.append(some)
        agree(torch.cat(ys, 1), y)
        agree_states(state, end, dtype)
        state, ys = ssm.initial_state(2), []
        for sample, gap in zip(u.unbind(1), gaps.unbind(1), strict=True):
            some, state = ssm.step(sample, state, rate=gap)
            ys.append(some)
        agree(torch.stack(ys, 1), y)
        agree_states(state, end, dtype)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("method", LEGAL, ids=name)
def test_the_same_gap_everywhere_is_a_rate(
    method: Method, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssm, u = ssm_of(method.replace(bidirectional=bidirectional)), draw(2, 70, H)
    same = torch.full((2, 70), 1.7)
    y, end = ssm(u, rate=float(same[0, 0]))
    for look_away in (False, True):
        if look_away:  # and if nobody had noticed that it is one
            monkeypatch.setattr(Gaps, "constant", None)
        also, also_end = ssm(u, rate=same)
        agree(also, y)
        if end is not None:
            agree_states(also_end, end, u.dtype)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("method", [m for m in LEGAL if m.discretization == "zoh"], ids=name)
def test_a_hold_over_whole_gaps_is_the_dense_sequence(method: Method, bidirectional: bool) -> None:
    """Each value repeated over its gap, read at its last copy."""
    ssm = ssm_of(method.replace(bidirectional=bidirectional, softmax_length=300))
    u, gaps = draw(1, 60, H), torch.randint(1, 6, (1, 60), generator=seeded(3))
    dense = u.repeat_interleave(gaps[0], 1)
    expected, end = ssm(dense)
    y, irregular_end = ssm(u, rate=gaps.double())
    agree(y, expected[:, gaps[0].cumsum(0) - 1])
    if end is not None:
        agree_states(irregular_end, end, u.dtype)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("rule", DISCRETIZATIONS)
def test_thinned_at_random_a_smooth_signal_gives_the_dense_answer(
    rule: str, bidirectional: bool
) -> None:
    """The nearer, the finer the sampling."""
    if rule == "dirac":
        pytest.skip("a rule of events: what is left out is not there")
    options = {"init": "lin", "discretization": rule, "dt_max": 1e-2}
    ssm = SSM(1, N, bidirectional=bidirectional, dtype=torch.float64, generator=seeded(), **options)
    ssm.requires_grad_(False).D.zero_()
    errors = []
    for fineness in (1, 4):
        length = 1500 * fineness
        t = torch.linspace(0, 1, length, dtype=torch.float64)
        u = (torch.sin(9 * t) + torch.cos(4 * t) * t)[None, :, None]
        kept = torch.rand(length, generator=seeded(4)) < 0.5
        kept[[0, -1]] = True
        places = kept.nonzero()[:, 0]
        gaps = torch.cat([places[:1] + 1, places.diff()])[None].double()
        dense, _ = ssm(u, rate=1 / fineness)
        thinned, _ = ssm(u[:, places], rate=gaps / fineness)
        errors.append(float((thinned - dense[:, places]).abs().max() / dense.abs().max()))
    assert errors[0] < 0.05
    assert errors[1] < 0.5 * errors[0]


def test_look_ahead_depends_on_the_gaps_ahead_alone() -> None:
    ssm = ssm_of(Method(bidirectional=True))
    ssm.raw_C[0] = 0
    u, gaps = draw(1, 30, H), gaps_of("many", 1, 30)
    y, _ = ssm(u, rate=gaps)
    changed = gaps.clone()
    changed[:, :11] *= 2
    also, _ = ssm(u, rate=changed)
    assert torch.equal(also[:, 10:], y[:, 10:])
    assert not torch.allclose(also[:, :10], y[:, :10])


@pytest.mark.parametrize("kind", ["few", "many"])
@pytest.mark.parametrize("rule", DISCRETIZATIONS)
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
def test_compiled_code_and_plain_torch_agree_in_gradients(
    rule: str, kind: str, bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps_module, "FEW", len(FEW))
    ssm = SSM(
        20, N, discretization=rule, bidirectional=bidirectional, dtype=torch.float64,
        generator=seeded(),
    )  # fmt: skip
    u, gaps = draw(3, 150, 20).requires_grad_(), gaps_of(kind, 3, 150)
    start = None if bidirectional else draw(3, 20, ssm.state_size, seed=5).requires_grad_()
    lengths, given = torch.tensor([150, 70, 1]), [u, *ssm.parameters()]
    given += [] if start is None else [start]

    def gradients() -> list[Tensor]:
        y, end = ssm(u, start, rate=gaps, lengths=lengths)
        loss = (y * draw(3, 150, 20, seed=6)).sum() + (0 if end is None else end.square().sum())
        return [*torch.autograd.grad(loss, given), y]

    compiled = gradients()
    monkeypatch.setattr(irregular, "_compiled", lambda *_, **__: None)
    for found, expected in zip(compiled, gradients(), strict=True):
        agree(found, expected)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
def test_a_first_order_hold_is_compiled_in_single_precision(
    bidirectional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in plain torch and double precision; steps too small for its formula run there."""
    ssm = SSM(20, N, discretization="foh", bidirectional=bidirectional, generator=seeded())
    exact = copy.deepcopy(ssm).double()
    u, gaps = draw(3, 150, 20).float().requires_grad_(), gaps_of("many", 3, 150)
    wide = u.detach().double().requires_grad_()
    assert irregular.compiles(ssm._state_space(1.0), u, Gaps(gaps))
    assert not irregular.compiles(ssm._state_space(1.0), u, Gaps(1e-4 * gaps))
    assert not irregular.compiles(exact._state_space(1.0), wide, Gaps(gaps))
    weights = draw(3, 150, 20, seed=6)
    found, wanted = (
        (y := layer(signal, rate=gaps)[0],
         *torch.autograd.grad((y * weights).sum(), [signal, *layer.parameters()]))
        for layer, signal in ((ssm, u), (exact, wide))
    )  # fmt: skip
    for ours, theirs in zip(found, wanted, strict=True):
        scale = theirs.abs().max()
        torch.testing.assert_close(ours.double() / scale, theirs / scale, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", ["few", "many"])
@pytest.mark.parametrize("rule", ["bilinear", "zoh", "dirac"])
def test_second_gradients(kind: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps_module, "FEW", len(FEW))
    ssm = SSM(2, 4, discretization=rule, dtype=torch.float64, generator=seeded())
    u, gaps = draw(2, 9, 2).requires_grad_(), gaps_of(kind, 2, 9)
    assert irregular.compiles(ssm._state_space(1.0), u, Gaps(gaps))
    assert torch.autograd.gradgradcheck(lambda x: ssm(x, rate=gaps)[0].square(), u)


def test_ragged_gaps_are_those_of_each_alone() -> None:
    for bidirectional in (False, True):
        ssm = ssm_of(Method(bidirectional=bidirectional))
        u, gaps = draw(3, 40, H), gaps_of("many", 3, 40)
        gaps[1, 17:], gaps[2, 1:] = float("nan"), -1.0  # beyond the ends nobody looks
        y, end = ssm(u, rate=gaps, lengths=[40, 17, 1])
        for i, n in enumerate((40, 17, 1)):
            alone, alone_end = ssm(u[i : i + 1, :n], rate=gaps[i : i + 1, :n])
            agree(y[i : i + 1, :n], alone)
            if end is not None:
                agree_states(end[i : i + 1], alone_end, u.dtype)


REFUSED = {
    "zero": (lambda g: g * (torch.arange(18).view(2, 9) != 13), r"0\.0 at \(1, 4\)"),
    "negative": (lambda g: -g, r"at \(0, 0\)"),
    "NaN": (lambda g: g * float("nan"), "nan at"),
    "infinite": (lambda g: g / 0, "inf at"),
    "another shape": (lambda g: g[:, :-1], r"real numbers \(2, 9\)"),
    "learned": (lambda g: g.requires_grad_(), r"use rate\.detach\(\)"),
    "complex": (lambda g: g.to(torch.complex128), "real numbers"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_gaps(what: str) -> None:
    spoil, message = REFUSED[what]
    gaps = spoil(gaps_of("many", 2, 9))
    model = SequenceModel(H, 2, 8, 1, d_state=4, dtype=torch.float64)
    for module in (ssm_of(Method()), S4D(H, N, dtype=torch.float64), model):
        with pytest.raises(ValueError, match=message):
            module(draw(2, 9, H), rate=gaps)


# -- resets and packing --------------------------------------------------------------------------


def resets_at(batch: int, length: int, *places: tuple[int, int]) -> Tensor:
    resets = torch.zeros(batch, length, dtype=torch.bool)
    for place in places:
        resets[place] = True
    return resets


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("method", LEGAL, ids=name)
def test_a_reset_begins_a_sequence(method: Method, bidirectional: bool) -> None:
    """As each piece alone: values and end states, with gaps, lengths and a state."""
    ssm = ssm_of(method.replace(bidirectional=bidirectional))
    u, gaps = draw(2, 50, H), gaps_of("many", 2, 50)
    start = None if bidirectional else ssm(draw(2, 7, H, seed=9))[1]
    resets = resets_at(2, 50, (0, 0), (0, 20), (0, 21), (1, 33))
    for rate in (1.0, gaps):
        y, end = ssm(u, start, rate=rate, resets=resets, lengths=[50, 40])
        pieces = [(0, 0, 20, False), (0, 20, 21, False), (0, 21, 50, False)]
        pieces += [(1, 0, 33, True), (1, 33, 40, False)]
        ends = {}
        for row, first, last, goes_on in pieces:
            some = None if rate is not gaps else gaps[row : row + 1, first:last]
            given = start[row : row + 1] if goes_on and start is not None else None
            options = {} if some is None else {"rate": some}
            alone, ends[row] = ssm(u[row : row + 1, first:last], given, **options)
            agree(y[row : row + 1, first:last], alone)
        assert bool((y[1, 40:] == 0).all())
        if end is not None:
            agree_states(end, torch.cat([ends[0], ends[1]]), u.dtype)


@pytest.mark.parametrize("engine", ["auto", "scan", "fft", "direct", "chunk"])
@pytest.mark.parametrize("method", ["s4d", "s4", "dss"])
def test_every_engine_resets(engine: str, method: str) -> None:
    ssm = SSM(H, N, method=METHODS[method], dtype=torch.float64, generator=seeded(), engine=engine)
    u, resets = draw(2, 30, H).requires_grad_(), resets_at(2, 30, (0, 11), (1, 0), (1, 29))
    y, end = ssm(u, resets=resets)
    parts = [ssm(u[:1, :11]), ssm(u[:1, 11:]), ssm(u[1:, :29]), ssm(u[1:, 29:])]
    expected = torch.stack([torch.cat([parts[i][0], parts[i + 1][0]], 1)[0] for i in (0, 2)])
    agree(y, expected)
    agree_states(end, torch.cat([parts[1][1], parts[3][1]]), u.dtype)
    weights = draw(2, 30, H, seed=3)
    (found,) = torch.autograd.grad((y * weights).sum(), u, retain_graph=True)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), u)
    agree(found, wanted)


def test_steps_reset() -> None:
    layer = S4D(H, N, dtype=torch.float64, generator=seeded())
    u, resets = draw(2, 12, H), resets_at(2, 12, (0, 5), (1, 0), (1, 6))
    y, end = layer(u, resets=resets)
    state, ys = layer.initial_state(2) + 1, []
    state[0] = 0
    for sample, reset in zip(u.unbind(1), resets.unbind(1), strict=True):
        some, state = layer.step(sample, state, resets=reset)
        ys.append(some)
    agree(torch.stack(ys, 1), y)
    agree_states(state, end, u.dtype)


def packed_model(**options: object) -> SequenceModel:
    options = {"d_state": 8, "dtype": torch.float64, "generator": seeded(), **options}
    return SequenceModel(H, 2, 8, 2, **options).eval()


@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("method", ["s4d", "s4"])
def test_packed_is_each_alone(method: str, bidirectional: bool, pooling: str) -> None:
    model = packed_model(method=method, bidirectional=bidirectional, pooling=pooling)
    u, offsets = draw(1, 60, H), [0, 1, 30, 37, 60]
    y, end = model(u, cu_seqlens=offsets)
    each = [model(u[:, first:last]) for first, last in pairwise(offsets)]
    together = torch.cat([part for part, _ in each], 1 if pooling == "none" else 0)
    agree(y, together)
    loss, alone = (x.square().sum() for x in (y, together))
    parameters = list(model.parameters())
    for found, wanted in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(alone, parameters), strict=True
    ):
        agree(found, wanted)
    if not bidirectional:
        more, further = draw(1, 20, H, seed=4), [0, 5, 10, 19, 20]
        y, _ = model(more, end, cu_seqlens=further)
        spans = zip(pairwise(further), each, strict=True)
        parts = [model(more[:, first:last], state)[0] for (first, last), (_, state) in spans]
        agree(y, torch.cat(parts, 1 if pooling == "none" else 0))


def test_packed_sequences_are_dropped_one_by_one() -> None:
    """Stochastic depth and tied dropout draw for each sequence, the same numbers as if padded."""
    model = packed_model(dropout=0.3, tie_dropout=True, drop_path=0.5, pooling="none").train()
    lengths = torch.tensor([1, 29, 7, 23])
    padded = torch.nn.utils.rnn.pad_sequence(draw(1, 60, H)[0].split(lengths.tolist()), True)
    inside = torch.arange(29) < lengths[:, None]
    for seed in range(3):
        torch.manual_seed(seed)
        wanted, _ = model(padded, lengths=lengths)
        torch.manual_seed(seed)
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
        found, _ = model(padded[inside][None], cu_seqlens=offsets)
        agree(found[0], wanted[inside])


def test_a_reset_is_a_new_draw() -> None:
    layer = S4D(H, N, dropout=0.5, tie_dropout=True, activation="none", mixing="none").train()
    resets = torch.zeros(1, 60, dtype=torch.bool)
    resets[:, [7, 30]] = True
    torch.manual_seed(0)
    kept = layer(torch.ones(1, 60, H), resets=resets)[0][0] != 0
    parts = kept.split([7, 23, 30])
    assert all((part == part[0]).all() for part in parts)
    assert len({tuple(part[0].tolist()) for part in parts}) > 1


@settings(max_examples=25)
@given(data=st.data(), batch=st.integers(1, 3), length=st.integers(1, 40))
def test_a_model_resets(data: st.DataObject, batch: int, length: int) -> None:
    """Pooled over the last sequence of each row, step by step the same."""
    model = packed_model(pooling="mean")
    drawn = data.draw(st.lists(st.booleans(), min_size=batch * length, max_size=batch * length))
    resets = torch.tensor(drawn).view(batch, length)
    u = draw(batch, length, H)
    y, end = model(u, resets=resets)
    state = model.initial_state(batch)
    for sample, reset in zip(u.unbind(1), resets.unbind(1), strict=True):
        expected, state = model.step(sample, state, resets=reset)
    agree(y, expected)
    assert torch.equal(end.samples, state.samples)
    for found, wanted in zip(end.layers, state.layers, strict=True):
        agree_states(found, wanted, u.dtype)


BAD: dict[str, tuple[Callable[[SequenceModel], object], str]] = {
    "numbers": (lambda m: m(draw(2, 9, H), resets=torch.zeros(2, 9)), "torch.bool"),
    "shape": (lambda m: m(draw(2, 9, H), resets=resets_at(2, 8)), r"\(2, 9\)"),
    "falling": (lambda m: m(draw(1, 9, H), cu_seqlens=[0, 5, 4, 9]), "must rise from 0 to 9"),
    "short": (lambda m: m(draw(1, 9, H), cu_seqlens=[0, 5]), "must rise from 0 to 9"),
    "empty": (lambda m: m(draw(1, 9, H), cu_seqlens=[0, 5, 5, 9]), "without empty"),
    "a batch": (lambda m: m(draw(2, 9, H), cu_seqlens=[0, 9]), "one row"),
    "both": (
        lambda m: m(draw(1, 9, H), cu_seqlens=[0, 9], resets=resets_at(1, 9)),
        "leave out resets",
    ),
    "lengths": (lambda m: m(draw(1, 9, H), cu_seqlens=[0, 9], lengths=[5]), "leave out"),
    "a step": (
        lambda m: m.step(draw(2, H), m.initial_state(2), resets=torch.ones(3, dtype=torch.bool)),
        "one for each sequence",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_refused_resets(what: str) -> None:
    call, message = BAD[what]
    with pytest.raises((ValueError, TypeError), match=message):
        call(packed_model())


# -- states in between ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["s4d", "s4", "dss"])
def test_states_in_between(method: str) -> None:
    ssm, u = ssm_of(METHODS[method]), draw(2, 30, H)
    gaps = gaps_of("many", 2, 30)
    for rate in (1.0, gaps):
        found = ssm.states(u, at=[0, 11, 12, -1], rate=rate)
        for k, place in enumerate((0, 11, 12, 29)):
            some = rate if isinstance(rate, float) else rate[:, : place + 1]
            agree_states(found[:, k], ssm(u[:, : place + 1], rate=some)[1], u.dtype)


def test_states_of_a_model() -> None:
    model, u = packed_model(), draw(2, 20, H)
    found = model.states(u, at=[3, 19])
    _, expected = model(u)
    for a, b in zip(found[1].layers, expected.layers, strict=True):
        agree_states(a, b, u.dtype)
    assert found[0].samples.tolist() == [4, 4]


@pytest.mark.parametrize("at", [[], [3, 3], [5, 2], [20], [1.5]])
def test_refused_places(at: list[int]) -> None:
    with pytest.raises((ValueError, TypeError), match="at must"):
        packed_model().states(draw(2, 20, H), at=at)
