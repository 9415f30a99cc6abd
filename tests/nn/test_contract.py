"""The one contract, over the registries: every legal combination, the same answer in every mode.

A new initialisation, discretisation, constraint or kernel is tested the moment it is registered.
"""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from s4d_torch import DSS, METHODS, S4, S4D, SSM, Layer, Method
from s4d_torch.nn.method import TABLE_1, legal_methods
from s4d_torch.ssm.constraint import CONSTRAINTS

METHODS_LEGAL = [m.replace(softmax_length=40) for m in legal_methods()]
MIXTURES = [
    Method(init="legs+lin"),
    Method(init="inv+lin+quad+rand", discretization="zoh"),
    METHODS["s4"].replace(init="legs+fout"),
    METHODS["s4"].replace(init="legs+legt"),
    Method(init="inv", random_imag=True, random_real=True, imag_scale=0.01),
    Method(train_A=False, train_B=False, train_dt=False),
    METHODS["s4d-dfout"].replace(init="dfout+ring", discretization="foh", imag_scale=0.5),
    METHODS["s4d-dirac"].replace(init="legs+lin", constraint="best"),
    *(METHODS[name] for name in METHODS if name not in TABLE_1),
]
ALL = METHODS_LEGAL + MIXTURES
BARS = {torch.float64: 1e-10, torch.float32: 1e-5}
D_MODEL, D_STATE = 4, 8


def name(method: Method) -> str:
    tail = "-tied" if method.n_ssm == 1 else ""
    parts = (method.structure, method.kernel, method.discretization, method.constraint, method.init)
    return "-".join(parts) + tail


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def layer_of(method: Method, dtype: torch.dtype = torch.float64, **options: object) -> Layer:
    layer = Layer(D_MODEL, D_STATE, method=method, dtype=dtype, generator=seeded(), **options)
    return layer.requires_grad_(False).eval()


def signal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed)).to(dtype)


def steps(layer: Layer, u: Tensor) -> tuple[Tensor, Tensor]:
    state, ys = layer.initial_state(u.shape[0]), []
    for sample in u.unbind(1):
        y, state = layer.step(sample, state)
        ys.append(y)
    return torch.stack(ys, dim=1), state


def chunks(layer: Layer, u: Tensor, cuts: list[int]) -> tuple[Tensor, Tensor]:
    state, ys = None, []
    for first, last in pairwise([0, *cuts, u.shape[1]]):
        y, state = layer(u[:, first:last], state)
        ys.append(y)
    return torch.cat(ys, dim=1), state


def agree(actual: Tensor, expected: Tensor) -> None:
    """Equal to the bar of the dtype, relative to the scale of what is expected."""
    scale = max(expected.abs().max().item(), 1e-3)
    assert_close(actual, expected, rtol=0, atol=BARS[expected.dtype] * scale)


def check_one_law(layer: Layer, u: Tensor, cuts: list[int]) -> None:
    y, state = layer(u)
    y_chunks, state_chunks = chunks(layer, u, cuts)
    y_steps, state_steps = steps(layer, u)
    agree(y_chunks, y)
    agree(y_steps, y)
    bar = BARS[u.dtype] * max(state.abs().max().item(), 1e-3)
    assert_close(state_chunks, state, rtol=0, atol=bar)
    assert_close(state_steps, state, rtol=0, atol=bar)


# -- the one law ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ssm", [None, 1], ids=["free", "tied"])
@pytest.mark.parametrize("method", METHODS_LEGAL, ids=name)
def test_convolution_is_chunks_is_steps(method: Method, n_ssm: int | None) -> None:
    check_one_law(layer_of(method.replace(n_ssm=n_ssm)), signal(2, 40, D_MODEL), [1, 13, 14])


@pytest.mark.parametrize("method", MIXTURES, ids=str)
def test_mixtures_and_ablations_obey_the_law(method: Method) -> None:
    check_one_law(layer_of(method), signal(2, 40, D_MODEL), [7, 33])


@pytest.mark.parametrize("method", ALL[::3], ids=name)
def test_the_law_in_float32(method: Method) -> None:
    check_one_law(
        layer_of(method, torch.float32), signal(2, 40, D_MODEL, dtype=torch.float32), [17]
    )


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("dt", [1e-4, 1e-3, 1e-1])
def test_the_law_in_float32_over_thousands_of_steps(method: Method, dt: float) -> None:
    """Where a rounded A_bar would have drifted away."""
    layer = layer_of(method.replace(dt_min=dt, dt_max=dt, softmax_length=3000), torch.float32)
    check_one_law(layer, signal(1, 3000, D_MODEL, dtype=torch.float32), [100, 2000])


@settings(max_examples=60)
@given(
    method=st.sampled_from(ALL),
    batch=st.integers(1, 3),
    length=st.integers(1, 200),
    seed=st.integers(0, 9),
    rate=st.sampled_from([0.5, 1.0, 2.0]),
    data=st.data(),
)
def test_the_law_at_any_shape_and_split(
    method: Method, batch: int, length: int, seed: int, rate: float, data: st.DataObject
) -> None:
    layer = layer_of(method)
    u = signal(batch, length, D_MODEL, seed=seed)
    cut = data.draw(st.integers(0, length), label="cut")
    y, end = layer(u, rate=rate)
    state, ys = None, []
    for part in (u[:, :cut], u[:, cut:]):
        if part.shape[1]:
            y_part, state = layer(part, state, rate=rate)
            ys.append(y_part)
    agree(torch.cat(ys, dim=1), y)
    assert_close(state, end, rtol=0, atol=1e-10 * max(end.abs().max().item(), 1e-3))


# -- the same kernel from different choices ------------------------------------------------------

BILINEAR = [m for m in METHODS_LEGAL if m.structure == "diagonal" and m.kernel == "cauchy"]


@pytest.mark.parametrize("method", BILINEAR, ids=name)
def test_cauchy_without_low_rank_is_vandermonde(method: Method) -> None:
    cauchy = SSM(D_MODEL, D_STATE, method=method, dtype=torch.float64)
    vandermonde = SSM(
        D_MODEL, D_STATE, method=method.replace(kernel="vandermonde"), dtype=torch.float64
    )
    vandermonde.load_state_dict(cauchy.state_dict())
    agree(cauchy.kernel(100), vandermonde.kernel(100))


SOFTMAX = [m for m in METHODS_LEGAL if m.kernel == "softmax"]


@pytest.mark.parametrize("method", SOFTMAX, ids=name)
def test_softmax_is_a_reweighted_zero_order_hold(method: Method) -> None:
    softmax = SSM(D_MODEL, D_STATE, method=method, dtype=torch.float64)
    zoh = SSM(D_MODEL, D_STATE, method=method.replace(kernel="vandermonde"), dtype=torch.float64)
    zoh.load_state_dict(softmax.state_dict())
    with torch.no_grad():
        A_bar_L = torch.exp(softmax.A * softmax.dt[:, None] * method.softmax_length)
        C = softmax.C / (A_bar_L - 1)
        zoh.raw_C.copy_(torch.view_as_real(C) if method.pairs else C.real)
    agree(softmax.kernel(40), zoh.kernel(40))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_s4d_with_the_B_of_s4_is_s4_without_its_low_rank_term(constraint: str) -> None:
    s4 = S4(D_MODEL, D_STATE, constraint=constraint, dtype=torch.float64)
    s4d = S4D(D_MODEL, D_STATE, constraint=constraint, B_init="hippo", dtype=torch.float64)
    s4.ssm.raw_P.data.zero_()
    assert_close(s4d.ssm.A, s4.ssm.A)
    assert_close(s4d.ssm.B, s4.ssm.B)
    s4d.load_state_dict({k: v for k, v in s4.state_dict().items() if k != "ssm.raw_P"})
    u = signal(2, 50, D_MODEL)
    agree(s4d(u)[0], s4(u)[0])


def dense_kernel(ssm: SSM, channel: int, length: int) -> Tensor:
    """The definition: full matrices from the physical values, matrix exponentials for the holds."""
    double = ssm.method.pairs
    A, B, C = (x[channel].detach() for x in (ssm.A, ssm.B, ssm.C))
    dt = ssm.dt[channel].detach()
    if double:
        A, B, C = (torch.cat([x, x.conj()]) for x in (A, B, C))
    matrix = torch.diag(A)
    if ssm.method.structure == "dplr":
        P = ssm.P[channel].detach()
        P = torch.cat([P, P.conj()], dim=-1)
        matrix = matrix - P.mT @ P.conj()
    size = len(B)
    eye = torch.eye(size, dtype=A.dtype)
    if ssm.method.discretization == "bilinear":
        A_bar = torch.linalg.solve(eye - dt / 2 * matrix, eye + dt / 2 * matrix)
        now = torch.linalg.solve(eye - dt / 2 * matrix, dt * B)
        later = A_bar @ now
    elif ssm.method.discretization == "dirac":  # an impulse, then nothing
        # torch.matrix_exp is off by 1e-10 at some small steps; a diagonal has no need of it
        A_bar, now = torch.diag(torch.exp(dt * A)), B
        later = A_bar @ now
    else:  # x' = A x + B u, u' = v, v' = 0: the exponential holds the integrals over one step
        block = torch.zeros(size + 2, size + 2, dtype=A.dtype)
        block[:size, :size], block[:size, size], block[size, size + 1] = dt * matrix, dt * B, 1
        held = torch.matrix_exp(block)
        A_bar, constant, ramp = held[:size, :size], held[:size, size], held[:size, size + 1]
        first_order = ssm.method.discretization == "foh"
        now = ramp if first_order else constant
        later = A_bar @ ramp + constant - ramp if first_order else A_bar @ constant
    if ssm.method.kernel == "softmax":
        C = C / (torch.exp(A * dt * ssm.method.softmax_length) - 1)
    values = [(C @ now).real]
    for _ in range(length - 1):
        values.append((C @ later).real)
        later = A_bar @ later
    return torch.stack(values)


@pytest.mark.parametrize("method", METHODS_LEGAL, ids=name)
def test_kernel_is_the_dense_matrix_definition(method: Method) -> None:
    ssm = SSM(2, D_STATE, method=method, dtype=torch.float64, generator=seeded(5))
    expected = torch.stack([dense_kernel(ssm, channel, 30) for channel in range(2)])
    agree(ssm.kernel(30).detach(), expected)


# -- symmetries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("method", ALL, ids=name)
def test_shift_permutation_and_padding(method: Method, bidirectional: bool) -> None:
    layer = layer_of(method.replace(bidirectional=bidirectional), mixing="none", activation="none")
    u = signal(3, 30, D_MODEL)
    y, _ = layer(u)
    late, _ = layer(torch.cat([torch.zeros_like(u[:, :5]), u], dim=1))
    agree(late[:, 5:], y)  # a later start gives the same answer later
    order = torch.tensor([2, 0, 1])
    agree(layer(u[order])[0], y[order])
    alone = [layer(u[i : i + 1, :n])[0][0] for i, n in enumerate((30, 11, 1))]
    padded = u.clone()
    padded[1, 11:], padded[2, 1:] = float("nan"), float("inf")
    ragged, state = layer(padded, lengths=[30, 11, 1])
    for row, n, expected in zip(ragged, (30, 11, 1), alone, strict=True):
        agree(row[:n], expected)
        assert bool((row[n:] == 0).all())
    if not bidirectional:
        ends = torch.cat([layer(u[i : i + 1, :n])[1] for i, n in enumerate((30, 11, 1))])
        assert_close(state, ends, rtol=0, atol=1e-10 * max(ends.abs().max().item(), 1e-3))
        changed = u.clone()
        changed[:, 20:] += 1
        agree(layer(changed)[0][:, :20], y[:, :20])  # the past does not hear of the future
        assert not torch.allclose(layer(changed)[0][:, 20:], y[:, 20:])


@settings(max_examples=40)
@given(
    method=st.sampled_from(ALL),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    extra=st.integers(0, 10),
    cut=st.integers(1, 20),
)
def test_ragged_batches_go_on_from_their_own_ends(
    method: Method, lengths: list[int], extra: int, cut: int
) -> None:
    """A ragged call, then another from its states, is each sequence joined and run alone."""
    layer = layer_of(method)
    first = signal(len(lengths), max(lengths) + extra, D_MODEL)
    second = signal(len(lengths), cut, D_MODEL, seed=2)
    _, state = layer(first, lengths=torch.tensor(lengths))
    y, end = layer(second, state)
    for i, n in enumerate(lengths):
        joined = torch.cat([first[i : i + 1, :n], second[i : i + 1]], dim=1)
        whole, end_alone = layer(joined)
        agree(y[i], whole[0, n:])
        assert_close(end[i], end_alone[0], rtol=0, atol=1e-10 * max(end.abs().max().item(), 1e-3))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_ragged_with_a_state(method: Method) -> None:
    layer = layer_of(method)
    u, start = signal(3, 20, D_MODEL), layer(signal(3, 15, D_MODEL, seed=4))[1]
    y, end = layer(u, start, lengths=[20, 8, 1])
    for i, n in enumerate((20, 8, 1)):
        y_alone, end_alone = layer(u[i : i + 1, :n], start[i : i + 1])
        agree(y[i, :n], y_alone[0])
        assert_close(end[i], end_alone[0], rtol=0, atol=1e-11)


# -- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("discretization", ["bilinear", "zoh", "foh"])
def test_rate_2_on_every_second_sample_approximates_rate_1(discretization: str) -> None:
    method = Method(init="lin", discretization=discretization, dt_max=1e-2)
    ssm = SSM(D_MODEL, D_STATE, method=method, dtype=torch.float64, generator=seeded())
    ssm.D.data.zero_()
    t = torch.linspace(0, 3, 2000, dtype=torch.float64)
    u = torch.stack([torch.sin(3 * t) * t, torch.cos(t) - 1, t**2, torch.sin(t) ** 2], dim=-1)[None]
    with torch.no_grad():
        fine, _ = ssm(u)
        coarse, _ = ssm(u[:, ::2], rate=2.0)
        wrong, _ = ssm(u[:, ::2])
    scale = fine.abs().max()
    assert (coarse - fine[:, ::2]).abs().max() < 0.02 * scale
    assert (wrong - fine[:, ::2]).abs().max() > 0.1 * scale


@pytest.mark.parametrize(
    "layer",
    [
        *(
            S4D(
                2,
                8,
                init="rand" if math.isinf(constraint.largest) else "lin",
                constraint=name,
                generator=seeded(),
            )
            for name, constraint in CONSTRAINTS.items()
            if constraint.stable
        ),
        S4D(2, 8, discretization="zoh", generator=seeded()),
        S4D(2, 8, discretization="foh", generator=seeded()),
        S4D(2, 8, method=METHODS["s4d-dfout"], generator=seeded()),
        S4D(2, 8, method=METHODS["s4d-dirac"], generator=seeded()),
        S4D(2, 8, method=METHODS["lru"], generator=seeded()),
        S4(2, 8, init="legs", generator=seeded()),
        S4(2, 8, init="fout", generator=seeded()),
        DSS(2, 8, generator=seeded()),
    ],
    ids=lambda layer: name(layer.method),
)
def test_a_stable_model_stays_bounded_over_a_million_steps(layer: Layer) -> None:
    layer.requires_grad_(False)
    u = signal(1, 100_000, 2, dtype=torch.float32)
    state, peaks = None, []
    for _ in range(10):
        y, state = layer(u, state)
        assert bool(torch.isfinite(y).all())
        peaks.append(y.abs().max().item())
    assert max(peaks) < 2 * peaks[0] + 1
    silence = torch.zeros_like(u)
    for _ in range(2):
        y, state = layer(silence, state)
    if layer.method.init != "fout":  # a window forgets at once, its floor of 1e-4 slowly
        assert state.abs().max() < 1e-6
