"""The paper's theory as tests, in the sense in which it holds (see docs/mathematics.md)."""

import math

import pytest
import torch
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.testing import assert_close

from s4d_torch.ssm.discretization import bilinear
from s4d_torch.ssm.hippo import HIPPO, Modes, diagonalize, legs_basis

SIZES = (64, 256, 1024)
TIMES = torch.linspace(0.02, 4, 2001, dtype=torch.float64)
WINDOW = 0.05


@pytest.fixture(scope="module")
def legs_modes() -> dict[int, Modes]:
    return {size: diagonalize(HIPPO["legs"](size)) for size in SIZES}


def normal_basis(modes: Modes, n: int, factor: Tensor) -> Tensor:
    """``e_n^T V f(Lambda) V* B / 2`` with both halves of each pair; factor (modes, times)."""
    weight = modes.V[n] * modes.B / 2
    return 2 * (weight[:, None] * factor).sum(0).real


def rms(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def test_legs_basis_is_legendre() -> None:
    hippo, times = HIPPO["legs"](12), torch.linspace(0, 4, 41, dtype=torch.float64)
    dense = torch.stack([torch.matrix_exp(hippo.A * t) @ hippo.B for t in times], dim=-1)
    assert_close(dense, legs_basis(12, times), rtol=0, atol=1e-9)


def test_legs_basis_is_orthonormal() -> None:
    """On x = e^-t the functions K_n / e^-t are orthonormal; Gauss quadrature is exact for them."""
    x, weights = (torch.from_numpy(v) for v in leggauss(16))
    x, weights = (x + 1) / 2, weights / 2
    L = legs_basis(8, -x.log()) / x
    assert_close((L * weights) @ L.mT, torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [0, 3])
def test_theorem_holds_averaged_over_a_window(legs_modes: dict[int, Modes], n: int) -> None:
    """Weak convergence: the mean over a window of 0.05 approaches LegS as N grows."""
    fine = torch.linspace(0, WINDOW, 101, dtype=torch.float64)
    target = legs_basis(n + 2, TIMES[:, None] + fine)[n]
    target = torch.trapezoid(target, fine, dim=-1) / WINDOW
    errors = []
    for modes in legs_modes.values():
        L = modes.Lambda[:, None]
        mean = torch.exp(L * TIMES) * torch.expm1(WINDOW * L) / (WINDOW * L)
        errors.append(rms(normal_basis(modes, n, mean) - target))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    if n == 0:
        assert_close(errors, [0.032, 0.0060, 0.0007], rtol=0.15, atol=0)


def test_theorem_does_not_hold_pointwise(legs_modes: dict[int, Modes]) -> None:
    """The highest modes keep ringing: the plain error does not fall with N."""
    for n, level in ((0, 0.25), (3, 0.65)):
        target = legs_basis(n + 2, TIMES)[n]
        for modes in legs_modes.values():
            basis = normal_basis(modes, n, torch.exp(modes.Lambda[:, None] * TIMES))
            assert_close(rms(basis - target), level, rtol=0.1, atol=0)


def test_theorem_holds_for_the_bilinear_rule(legs_modes: dict[int, Modes]) -> None:
    """With dt = 0.01 the bilinear rule damps exactly the modes that ring."""
    dt = torch.tensor([0.01], dtype=torch.float64)
    steps = torch.arange(2, 401, dtype=torch.float64)
    errors = []
    for modes in legs_modes.values():
        step = bilinear(modes.Lambda, torch.ones_like(modes.Lambda), dt)
        factor = torch.exp(step.log_A[:, None] * steps) * step.B_now[:, None] / dt
        target = legs_basis(2, (steps + 0.5) * dt)[0]
        errors.append(rms(normal_basis(modes, 0, factor) - target))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert_close(errors[:2], [0.111, 0.026], rtol=0.1, atol=0)
    assert errors[2] < 5e-5


@pytest.mark.parametrize("size", SIZES)
def test_real_parts_are_minus_one_half(legs_modes: dict[int, Modes], size: int) -> None:
    normal = HIPPO["legs"](size).normal
    symmetric = (normal + normal.mT) / 2
    assert_close(symmetric, -0.5 * torch.eye(size, dtype=torch.float64), rtol=0, atol=1e-12 * size)
    real = legs_modes[size].Lambda.real
    assert_close(real, torch.full_like(real, -0.5), rtol=0, atol=1e-12 * size)


def test_largest_frequency_tends_to_its_law(legs_modes: dict[int, Modes]) -> None:
    """Im(A)_0 - N^2/pi -> -pi/6 (the paper prints +0.5236)."""
    gaps = [m.Lambda.imag.max().item() - n**2 / math.pi for n, m in legs_modes.items()]
    assert_close(gaps[0], -0.5234508, rtol=0, atol=1e-7)
    distance = [abs(gap + math.pi / 6) for gap in gaps]
    assert distance[0] > distance[1] > distance[2]
    assert distance[2] < 1e-6


def test_other_frequencies_fall_as_one_over_n(legs_modes: dict[int, Modes]) -> None:
    frequency = legs_modes[1024].Lambda.imag
    n = torch.arange(1, 64, dtype=torch.float64)
    scaled = frequency[1:64] * (2 * n + 1) * math.pi / 1024**2
    assert scaled.min() > 0.8
    assert scaled.max() < 1.2


def test_fout_without_its_low_rank_term_is_not_fout() -> None:
    """FouT is a window of length 2; its diagonal part rings on for ever."""
    hippo = HIPPO["fout"](64)
    times = torch.linspace(0.05, 4, 200, dtype=torch.float64)
    step = torch.matrix_exp(hippo.A * (times[1] - times[0]))
    normal_step = torch.matrix_exp(hippo.normal * (times[1] - times[0]))
    x = torch.matrix_exp(hippo.A * times[0]) @ hippo.B
    z = torch.matrix_exp(hippo.normal * times[0]) @ hippo.B
    whole, diagonal = [], []
    for _ in times:
        whole.append(x)
        diagonal.append(z)
        x, z = step @ x, normal_step @ z
    late = times > 2.5
    fout, chopped = torch.stack(whole)[:, :8], torch.stack(diagonal)[:, :8]
    assert rms(fout[late]) < 0.1 * rms(fout[~late])
    assert rms(chopped[late]) > 0.9 * rms(chopped[~late])
    assert rms(fout - chopped) > 0.5 * rms(fout)
