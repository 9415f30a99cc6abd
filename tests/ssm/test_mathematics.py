"""The pure functions of ssm/: identities, oracles, and behaviour at the edges."""

import numpy as np
import pytest
import scipy.signal
import torch
from mpmath import expm1 as mp_expm1
from mpmath import mp, mpc
from torch.testing import assert_close

from s4d_torch import METHODS, SSM, Method
from s4d_torch.nn.method import legal_methods
from s4d_torch.ssm import convolution, discretization, initialization, kernel, recurrence
from s4d_torch.ssm.constraint import CONSTRAINTS, FLOOR
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.hippo import HIPPO, Hippo, diagonalize
from s4d_torch.ssm.initialization import INITIALIZATIONS


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# -- HiPPO ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank"), [("legs", 1), ("legt", 2), ("fout", 1)])
@pytest.mark.parametrize("d_state", [2, 8, 64])
def test_hippo_is_normal_plus_low_rank(name: str, rank: int, d_state: int) -> None:
    hippo = HIPPO[name](d_state)
    assert hippo.P.shape == (rank, d_state)
    normal = hippo.normal
    assert_close(normal @ normal.mT, normal.mT @ normal, rtol=0, atol=1e-9 * d_state**4)
    shift = normal.diagonal().mean() * torch.eye(d_state, dtype=torch.float64)
    assert_close(normal - shift, -(normal - shift).mT, rtol=0, atol=1e-11 * d_state)


@pytest.mark.parametrize("name", HIPPO)
@pytest.mark.parametrize("d_state", [2, 8, 64])
def test_the_modes_and_their_conjugates_rebuild_the_matrix(name: str, d_state: int) -> None:
    hippo = HIPPO[name](d_state)
    modes = diagonalize(hippo)
    V = torch.cat([modes.V, modes.V.conj()], dim=1)
    assert_close(V.mH @ V, torch.eye(d_state, dtype=V.dtype), rtol=0, atol=1e-12)
    Lambda = torch.cat([modes.Lambda, modes.Lambda.conj()])
    P = torch.cat([modes.P, modes.P.conj()], dim=1)
    rebuilt = V @ (torch.diag(Lambda) - P.mT @ P.conj()) @ V.mH
    assert_close(rebuilt, hippo.A.to(rebuilt.dtype), rtol=0, atol=1e-11 * d_state**2)
    assert bool((modes.B.real > 0).all()), "the phase of the eigenvectors is not fixed"
    assert_close(modes.B.imag, torch.zeros_like(modes.B.imag), rtol=0, atol=1e-11)


def test_legs_matches_its_formula() -> None:
    A = HIPPO["legs"](3).A
    r3, r5 = 3**0.5, 5**0.5
    expected = -torch.tensor([[1, 0, 0], [r3, 2, 0], [r5, r3 * r5, 3]], dtype=torch.float64)
    assert_close(A, expected)


# -- initialisation ------------------------------------------------------------------------------


def test_laws_at_known_places() -> None:
    N, pi = 8, torch.pi
    imag = {name: initialization.diagonal(name, N, 1).A.imag[0] for name in INITIALIZATIONS}
    assert_close(imag["dfout"], 2 * pi / N * torch.arange(N // 2, dtype=torch.float64))
    n = torch.arange(N // 2, dtype=torch.float64)
    assert_close(imag["inv"], N / pi * (N / (2 * n + 1) - 1))
    assert_close(imag["lin"], pi * n)
    assert_close(imag["inv2"], N / pi * (N / (n + 1) - 1))
    assert_close(imag["quad"], (1 + 2 * n) ** 2 / pi)
    assert_close(
        initialization.diagonal("real", N, 1).A.real[0], -torch.arange(1.0, N + 1).double()
    )
    for name in ("legs", "inv", "lin", "inv2", "quad"):
        real = initialization.diagonal(name, N, 1).A.real
        assert_close(real, torch.full_like(real, -0.5))


@pytest.mark.parametrize("init", [n for n, s in INITIALIZATIONS.items() if s.law])
def test_random_positions_stay_in_the_range_of_the_law(init: str) -> None:
    ordered = initialization.diagonal(init, 64, 1).A.imag
    drawn = initialization.diagonal(init, 64, 500, random_imag=True, generator=seeded()).A.imag
    law = INITIALIZATIONS[init].values(torch.tensor([[0.0, 32.0]]).double(), 64, None).imag
    assert law.min() <= drawn.min()
    assert drawn.max() <= law.max()
    assert drawn.std() > 0.3 * ordered.std()
    assert len(drawn.unique()) == drawn.numel()


def test_random_real_and_imag_scale() -> None:
    plain = initialization.diagonal("inv", 64, 100).A
    scaled = initialization.diagonal("inv", 64, 100, imag_scale=0.01).A
    assert_close(scaled.imag, 0.01 * plain.imag)
    real = initialization.diagonal("inv", 64, 100, random_real=True, generator=seeded()).A.real
    assert real.min() > -1
    assert real.max() < 0
    assert_close(real.mean(), torch.tensor(-0.5).double(), rtol=0, atol=0.02)


def test_every_start_names_its_B_and_C() -> None:
    ones = initialization.diagonal("legs", 16, 2).B
    hippo = initialization.diagonal("legs", 16, 2, B_init="hippo").B
    half = initialization.diagonal("legs", 16, 2, B_init="hippo-half").B
    assert_close(ones, torch.ones_like(ones))
    assert_close(hippo[0], diagonalize(HIPPO["legs"](16)).B)
    assert_close(2 * half, hippo)
    for name, power in (("paper", 2.0), ("official", 1.0)):
        C = initialization.output_matrix((200, 100), C_init=name, generator=seeded())
        assert_close(C.abs().square().mean().item(), power, rtol=0.03, atol=0)


def test_timesteps_are_log_uniform() -> None:
    log_dt = initialization.log_timestep(10000, 1e-3, 1e-1, seeded())
    assert log_dt.min() >= np.log(1e-3)
    assert log_dt.max() <= np.log(1e-1)
    assert_close(log_dt.mean().item(), np.log(1e-2), rtol=0, atol=0.03)


def test_draws_come_from_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first = SSM(4, 8, init="rand", random_real=True, generator=seeded(3))
    second = SSM(4, 8, init="rand", random_real=True, generator=seeded(3))
    assert torch.equal(before, torch.get_rng_state())
    for (key, a), b in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b), key


# -- constraints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraint_and_inverse(name: str) -> None:
    constraint = CONSTRAINTS[name]
    decay = torch.tensor([3 * FLOOR, 0.01, 0.5, 1.0, 30.0, 300.0], dtype=torch.float64)
    decay = decay[decay < constraint.largest]
    assert_close(constraint.forward(constraint.inverse(decay)), decay, rtol=1e-12, atol=0)
    if constraint.stable:
        raw = torch.linspace(-30, 30, 101, dtype=torch.float64)
        assert bool((constraint.forward(raw) > 0).all())
        start = constraint.inverse(torch.zeros(1, dtype=torch.float64)).requires_grad_()
        (slope,) = torch.autograd.grad(constraint.forward(start).sum(), start)
        assert slope > 0, "a start at Re(A) = 0 must be trainable"


# -- discretisation ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["zoh", "foh", "bilinear"])
@pytest.mark.parametrize("dt", [1e-4, 1e-2, 0.5])
def test_discretisation_agrees_with_scipy(rule: str, dt: float) -> None:
    """The impulse response of scipy's discrete system; its ZOH answers one sample later."""
    A = torch.tensor([[-0.5 + 3j, -1.0 + 0.1j, -0.2 - 20j]], dtype=torch.complex128)
    B = torch.tensor([[1.0, 2j, -1 + 1j]], dtype=torch.complex128)
    C = torch.tensor([[1.0 + 2j, 0.5, 1j]], dtype=torch.complex128)
    step = DISCRETIZATIONS[rule](A, B, torch.tensor([[dt]], dtype=torch.float64))
    ours = kernel.vandermonde(step, C, 20)[0] / 2
    system = (np.diag(A[0].numpy()), B.numpy().T, C.numpy(), np.zeros((1, 1)))
    Ad, Bd, Cd, Dd, _ = scipy.signal.cont2discrete(system, dt, method=rule)
    x, response = Bd, [Dd[0, 0]]
    for _ in range(20):
        response.append((Cd @ x)[0, 0])
        x = Ad @ x
    if (
        rule == "bilinear"
    ):  # scipy splits the rule over two samples: a mean of ours and the one before
        ours = 0.5 * (ours + torch.cat([torch.zeros(1, dtype=ours.dtype), ours[:-1]]))
    expected = np.real(response[1:] if rule == "zoh" else response[:-1])
    assert_close(ours, torch.from_numpy(expected), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("rule", DISCRETIZATIONS)
def test_discretisation_is_accurate_from_tiny_to_huge_steps(rule: str) -> None:
    sizes = torch.logspace(-8, 3, 45, dtype=torch.float64)
    for angle in (np.pi, 0.75 * np.pi, 0.5 * np.pi + 1e-3):
        z = torch.polar(sizes, torch.full_like(sizes, angle))
        step = DISCRETIZATIONS[rule](z, torch.ones_like(z), torch.ones(1, dtype=torch.float64))
        for i, value in enumerate(z.tolist()):
            with mp.workdps(50):
                exact = mpc(value)
                if rule == "bilinear":
                    A_bar, now = (1 + exact / 2) / (1 - exact / 2), 1 / (1 - exact / 2)
                else:
                    A_bar, now = mp.exp(exact), mp_expm1(exact) / exact
                    if rule == "foh":
                        now = (mp_expm1(exact) - exact) / exact**2
                    if rule == "dirac":
                        now = mpc(1)
                A_bar, now = complex(A_bar), complex(now)
            assert abs(step.A_bar[i].item() - A_bar) < 1e-14 * max(1, abs(value)), (angle, value)
            assert abs(step.B_now[i].item() - now) < 1e-14 * abs(now), (angle, value)


@pytest.mark.parametrize("rule", DISCRETIZATIONS)
def test_discretisation_has_finite_gradients_everywhere(rule: str) -> None:
    real = torch.tensor([0.0, -1e-12, -1e-3, -2.0, -2.0 + 1e-9, -1e3], dtype=torch.float64)
    A = torch.complex(real, torch.zeros_like(real)).requires_grad_()
    step = DISCRETIZATIONS[rule](A, torch.ones_like(A), torch.ones(1, dtype=torch.float64))
    (step.A_bar + step.B_now + step.into_state).abs().square().sum().backward()
    assert A.grad is not None
    assert bool(torch.isfinite(torch.view_as_real(A.grad)).all())


# -- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33, 100])
def test_power_sum_is_the_plain_sum(length: int) -> None:
    log_A = torch.complex(-torch.rand(3, 4), 6 * torch.rand(3, 4)).to(torch.complex128)
    weights = torch.randn(2, 3, 4, dtype=torch.complex128)
    steps = torch.arange(length, dtype=torch.float64)
    plain = (weights[..., None] * torch.exp(log_A[..., None] * steps)).sum(-2).real
    assert_close(kernel.power_sum(weights, log_A, length), 2 * plain, rtol=0, atol=1e-12)
    assert_close(kernel.power_sum(weights[0], log_A, length), 2 * plain[0], rtol=0, atol=1e-12)
    assert_close(kernel.power_sum(weights, log_A, length, pairs=False).shape, (2, 3, length))


@pytest.mark.parametrize("real", [-2.0, 0.5, 2.0, 50.0])
def test_softmax_never_overflows(real: float) -> None:
    """The definition, a row softmax over the length, with its largest term factored out."""
    L, dt = 1000, torch.full((1, 1), 0.1, dtype=torch.float64)
    A = torch.complex(torch.tensor([[real, -0.3]]), torch.tensor([[1.0, 2.0]])).to(torch.complex128)
    A.requires_grad_()
    C = torch.tensor([[1.0 + 1j, 2.0]], dtype=torch.complex128)
    step = discretization.zoh(A, torch.ones_like(A), dt)
    K = kernel.softmax(step, C, A * dt * L, L)
    exponents = (A * dt)[..., None] * torch.arange(L)
    top = exponents.real.amax(-1, keepdim=True)
    rows = torch.exp(exponents - top)
    expected = 2 * (C[..., None] * rows / rows.sum(-1, keepdim=True) / A[..., None]).sum(-2).real
    assert_close(K, expected, rtol=0, atol=1e-12 * K.abs().max().item())
    K.square().sum().backward()
    assert A.grad is not None
    assert bool(torch.isfinite(torch.view_as_real(A.grad)).all())


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_cauchy_is_the_dense_kernel_at_any_rank(rank: int, length: int) -> None:
    torch.manual_seed(rank)
    H, M = 2, 3
    A = torch.complex(-torch.rand(H, M), 3 * torch.randn(H, M)).to(torch.complex128)
    P = torch.randn(H, rank, M, dtype=torch.complex128)
    B, C = torch.randn(2, H, M, dtype=torch.complex128)
    dt = torch.tensor([[0.1], [0.01]], dtype=torch.float64)
    step = discretization.bilinear_low_rank(A, P, B, dt)
    K = kernel.cauchy(A, P, B, C, dt, step, length)
    for h in range(H):
        full_A = torch.cat([A[h], A[h].conj()])
        full_P = torch.cat([P[h], P[h].conj()], dim=-1)
        matrix = torch.diag(full_A) - full_P.mT @ full_P.conj()
        identity = torch.eye(2 * M, dtype=A.dtype)
        inverse = torch.linalg.inv(identity - dt[h] / 2 * matrix)
        A_bar = inverse @ (identity + dt[h] / 2 * matrix)
        x = inverse @ (dt[h] * torch.cat([B[h], B[h].conj()]))
        row = torch.cat([C[h], C[h].conj()])
        expected = []
        for _ in range(length):
            expected.append((row @ x).real)
            x = A_bar @ x
        assert_close(K[h], torch.stack(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("init", ["legs", "legt", "fout"])
@pytest.mark.parametrize("length", [1, 2, 33, 256])
def test_a_dplr_layer_by_cauchy_sums(init: str, length: int) -> None:
    """Asked for by its name; without one it is a recurrence, and the same kernel."""
    ssm = SSM(3, 8, method=METHODS["s4"], init=init, dtype=torch.float64)
    expected = ssm.kernel(length, algorithm="krylov")
    scale = float(expected.detach().abs().max())
    assert_close(ssm.kernel(length), expected, rtol=0, atol=1e-13 * scale)
    assert_close(ssm.kernel(length, algorithm="cauchy"), expected, rtol=0, atol=1e-9 * scale)


def test_an_algorithm_there_is_not() -> None:
    with pytest.raises(ValueError, match="unknown algorithm 'cauchi'; did you mean 'cauchy'"):
        SSM(2, 4, method=METHODS["s4"]).kernel(8, algorithm="cauchi")
    with pytest.raises(ValueError, match="kernel 'vandermonde' has one algorithm only"):
        SSM(2, 4).kernel(8, algorithm="cauchy")


def test_cauchy_takes_nodes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    ssm = SSM(3, 8, structure="dplr", kernel="cauchy", init="legt", dtype=torch.float64)
    whole = ssm.kernel(100)
    monkeypatch.setattr(kernel, "CAUCHY_BLOCK", 3 * 4 * 7)
    assert_close(ssm.kernel(100), whole, rtol=0, atol=1e-14)


def test_basis_is_the_matrix_exponential() -> None:
    A = torch.tensor([-0.5 + 2j, -1.0 - 3j], dtype=torch.complex128)
    B = torch.tensor([1.0, 2j], dtype=torch.complex128)
    t = torch.linspace(0, 2, 5, dtype=torch.float64)
    dense = torch.stack([torch.matrix_exp(torch.diag(A) * s) @ B for s in t], dim=-1)
    assert_close(kernel.basis(A, B, t), dense)


GRADIENTS = [m for m in legal_methods() if m.constraint == "exp" or m.init in ("lin", "fout")]


@pytest.mark.parametrize(
    "method", GRADIENTS, ids=lambda m: f"{m.init}-{m.kernel}-{m.discretization}-{m.constraint}"
)
def test_gradients_of_all_parameters(method: Method) -> None:
    ssm = SSM(
        2, 4, method=method.replace(softmax_length=9), dtype=torch.float64, generator=seeded()
    )
    names = [name for name, _ in ssm.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in ssm.parameters()]
    u = torch.randn(1, 9, 2, dtype=torch.float64, generator=seeded())
    start = torch.randn(1, 2, 4, dtype=torch.float64, generator=seeded(1))

    def run(*parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        replaced = dict(zip(names, parameters, strict=True))
        whole, end = torch.func.functional_call(ssm, replaced, (u,))
        chunk, end_chunk = torch.func.functional_call(ssm, replaced, (u, start))
        return whole, end, chunk, end_chunk

    assert torch.autograd.gradcheck(run, values, atol=1e-6)


# -- convolution and recurrence ------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17])
def test_convolutions_are_their_sums(length: int) -> None:
    u = torch.randn(2, 3, length, dtype=torch.float64)
    K = torch.randn(2, 3, length, dtype=torch.float64)
    causal, both = torch.zeros_like(u), torch.zeros_like(u)
    for t in range(length):
        for s in range(length):
            if t - s >= 0:
                causal[..., t] += K[0, :, s] * u[..., t - s]
            if t + 1 + s < length:
                both[..., t] += K[1, :, s] * u[..., t + 1 + s]
    assert_close(convolution.causal(u, K[0]), causal, rtol=0, atol=1e-12)
    assert_close(convolution.bidirectional(u, K), causal + both, rtol=0, atol=1e-12)


def test_fast_length_is_the_next_smooth_number() -> None:
    def smooth(n: int) -> bool:
        for p in (2, 3, 5):
            while n % p == 0:
                n //= p
        return n == 1

    numbers = [n for n in range(1, 3000) if smooth(n)]
    for length in range(1, 2500):
        assert convolution.fast_length(length) == next(n for n in numbers if n >= length)


@pytest.mark.parametrize("chunk", [1, 3, 16, 64])
def test_scan_does_not_depend_on_the_chunk(chunk: int) -> None:
    ssm = SSM(2, 8, dtype=torch.float64)
    u = torch.randn(3, 2, 50, dtype=torch.float64)
    system, start = ssm._state_space(1.0).system(), torch.randn(3, 2, 8, dtype=torch.float64)
    y, end = recurrence.scan(system, u, start, chunk=chunk)
    y_all, end_all = recurrence.scan(system, u, start, chunk=50)
    assert_close(y, y_all, rtol=0, atol=1e-12)
    assert_close(end, end_all, rtol=0, atol=1e-12)


def test_hippo_fields() -> None:
    """A custom HiPPO-like system goes through the same diagonalisation."""
    S = torch.tensor([[0.0, -2.0], [2.0, 0.0]], dtype=torch.float64)
    B = torch.tensor([1.0, 0.0], dtype=torch.float64)
    modes = diagonalize(Hippo(S - torch.outer(B, B), B, B[None]))
    assert_close(modes.Lambda, torch.tensor([2j], dtype=torch.complex128))
