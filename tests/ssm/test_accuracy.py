"""Kernels against 50-digit values, for the parameters as they are stored."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch

from oracle import diagonal_kernel, low_rank_kernel
from s4d_torch import SSM, Method
from s4d_torch.nn.method import legal_methods
from s4d_torch.ssm.initialization import INITIALIZATIONS

Kernels = dict[torch.dtype, np.ndarray]
Bars = dict[torch.dtype, float]

SIZES = (2, 64, 256)
STEPS = (1e-4, 1e-3, 1e-1)
LENGTH = 16384
PLACES = (0, 1, 2, 3, 17, 127, 128, 1000, 4095, 9999, LENGTH - 1)
BARS = {torch.float32: 1e-6, torch.float64: 1e-12}
LOW_RANK_BARS = {torch.float32: 1e-4, torch.float64: 1e-9}

DIAGONAL = [m for m in legal_methods() if m.kernel in ("vandermonde", "softmax")]
LOW_RANK = [m for m in legal_methods() if m.structure == "dplr"]


def name(method: Method) -> str:
    return f"{method.init}-{method.kernel}-{method.discretization}-{method.constraint}"


def kernels_of(
    method: Method, d_state: int, dt: float, length: int = LENGTH
) -> tuple[SSM, Kernels]:
    """The same float32 parameters, computed with in float32 and in float64."""
    method = method.replace(dt_min=dt, dt_max=dt)
    generator = torch.Generator().manual_seed(d_state)
    ssm = SSM(1, d_state, method=method, dtype=torch.float32, generator=generator)
    with torch.no_grad():
        return ssm, {d: ssm.to(d).kernel(length)[0].double().numpy() for d in BARS}


def check(kernels: Kernels, expected: np.ndarray, places: Sequence[int], bars: Bars) -> None:
    for dtype, bar in bars.items():
        K = kernels[dtype]
        error = np.abs(K[list(places)] - expected).max() / np.abs(K).max()
        assert error < bar, (dtype, error)


@pytest.mark.parametrize("method", DIAGONAL, ids=name)
def test_diagonal_kernel_to_the_last_bits(method: Method) -> None:
    # the constraints differ in A alone; one of them is tried at every size and step
    every = product(SIZES, STEPS) if method.constraint == "exp" else zip(SIZES, STEPS, strict=True)
    for d_state, dt in every:
        ssm, kernels = kernels_of(method, d_state, dt)
        places = [*PLACES, int(np.abs(kernels[torch.float64]).argmax())]
        check(kernels, diagonal_kernel(ssm, places), places, BARS)


@pytest.mark.parametrize("init", [n for n, s in INITIALIZATIONS.items() if s.law])
def test_scaled_and_random_starts_keep_the_bar(init: str) -> None:
    for change in ({"imag_scale": 100.0}, {"random_imag": True}, {"random_real": True}):
        for discretization in ("bilinear", "zoh"):
            method = Method(init=init, discretization=discretization).replace(**change)
            ssm, kernels = kernels_of(method, 64, 1e-3)
            check(kernels, diagonal_kernel(ssm, PLACES), PLACES, BARS)


@pytest.mark.parametrize("dt", STEPS)
@pytest.mark.parametrize("d_state", SIZES)
@pytest.mark.parametrize("method", LOW_RANK, ids=name)
def test_low_rank_kernel(method: Method, d_state: int, dt: float) -> None:
    # the constraints differ in A alone; one of them goes the whole length
    length = LENGTH if method.constraint == "exp" else 512
    ssm, kernels = kernels_of(method, d_state, dt, length)
    check(kernels, low_rank_kernel(ssm, length), range(length), LOW_RANK_BARS)
