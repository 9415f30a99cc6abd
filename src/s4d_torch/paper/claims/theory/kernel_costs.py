"""The paper's claims about what a kernel costs, counted in bytes and numbers instead of timed."""

import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from s4d_torch.paper.claims.claim import Verdict, claim, judged
from s4d_torch.paper.claims.theory.kernel_identities import DT, largest_off, parameters
from s4d_torch.ssm.discretization import bilinear, bilinear_low_rank
from s4d_torch.ssm.hippo import HIPPO, diagonalize
from s4d_torch.ssm.initialization import output_matrix
from s4d_torch.ssm.kernel import dense, vandermonde
from s4d_torch.ssm.pairs import readout, to_real


class KernelCost(NamedTuple):
    """``bytes`` alive at the peak, beyond what was there before; ``numbers`` computed in all."""

    bytes: int
    numbers: int


def cost(run: Callable[[], object]) -> KernelCost:
    """The cost of the tensors that ``run`` makes; not of those within an operator."""
    with _CostCounter() as counter:
        result = run()
    del result
    return KernelCost(counter.peak, counter.numbers)


class _CostCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = self.numbers = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        given = {x.untyped_storage()._cdata for x in _tensors((args, kwargs))}
        for x in _tensors(result):
            storage = x.untyped_storage()
            if storage._cdata in given:  # a view, or written in place
                continue
            self.numbers += x.numel()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._free, storage.nbytes())
        return result

    def _free(self, size: int) -> None:
        self.alive -= size


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def vandermonde_by_modes(weights: Tensor, A_bar: Tensor, length: int) -> Tensor:
    """``sum_n w_n A_bar_n^l`` without a matrix, one mode after the other; weights, A_bar (N,)."""
    steps = torch.arange(length)
    total = torch.zeros(length, dtype=A_bar.dtype)
    for weight, base in zip(weights, A_bar, strict=True):
        total += weight * base**steps
    return total


def cauchy_by_modes(system: Sequence[Tensor], dt: float, length: int) -> Tensor:
    """S4's kernel for ``diag(A) - P P*`` alike, of A, P, B and ``C (I + A_bar^L)``, all (N,)."""
    A, P, B, C = system
    angle = torch.pi / length * (2 * torch.arange(length, dtype=torch.float64) + 1)
    z = torch.polar(torch.ones_like(angle), angle)
    a, b = 1 - z, 0.5 * dt * (1 + z)
    sums = [torch.zeros_like(z) for _ in range(4)]
    for A_n, P_n, B_n, C_n in zip(A, P, dt * B, C, strict=True):
        pole = 1 / (a - b * A_n)
        weights = (C_n * B_n, C_n * P_n, P_n.conj() * B_n, P_n.abs().square())
        for total, weight in zip(sums, weights, strict=True):
            total += weight * pole
    spectrum = sums[0] - b * sums[1] * sums[2] / (1 + b * sums[3])
    turn = -torch.pi / length * torch.arange(length, dtype=torch.float64)
    return torch.fft.fft(spectrum, norm="forward") * torch.polar(torch.ones_like(turn), turn)


@cache
def _low_rank(d_state: int, length: int) -> tuple[list[Tensor], Tensor]:
    """A, P, B and C of LegS with all N modes, and its kernel by other means."""
    modes = diagonalize(HIPPO["legs"](d_state))
    A, B, P = modes.Lambda[None], modes.B[None], modes.P[None]
    C = output_matrix((1, d_state // 2), generator=Generator().manual_seed(0))
    step = bilinear_low_rank(A, P, B, DT)
    A_bar, x = dense(step)[0], to_real(step.B_now)[0]
    row = readout(C)[0]
    seen = row + row @ torch.linalg.matrix_power(A_bar, length)
    transformed = torch.complex(seen[0::2], -seen[1::2]) / 2
    both = [torch.cat([v, v.conj()]) for v in (A[0], P[0, 0], B[0], transformed)]
    values = []
    for _ in range(length):
        values.append(row @ x)
        x = A_bar @ x
    return both, torch.stack(values)


def _costs(d_state: int, length: int) -> dict[str, KernelCost]:
    A, B, C = parameters("lin", d_state)
    step = bilinear(A, B, DT)
    w, A_bar = (C * step.B_now)[0], step.A_bar[0]
    dplr, _ = _low_rank(d_state, 64)
    return {
        "matrix": cost(lambda: w @ A_bar[:, None] ** torch.arange(length)),
        "modes": cost(lambda: vandermonde_by_modes(w, A_bar, length)),
        "ours": cost(lambda: vandermonde(step, C, length)),
        "dplr": cost(lambda: cauchy_by_modes(dplr, 0.01, length)),
        "softmax": cost(lambda: torch.softmax((A * DT)[0].real[:, None] * torch.arange(length), 1)),
    }


@cache
def _growth() -> tuple[dict[str, KernelCost], dict[str, KernelCost], dict[str, KernelCost]]:
    """The costs at (N, L), (2N, L) and (N, 2L)."""
    return _costs(64, 2048), _costs(128, 2048), _costs(64, 4096)


@claim("section 3.2")
def matrix_memory() -> Verdict:
    """With the Vandermonde matrix in memory the kernel takes O(NL) space; summed without it, O(NL)
    operations but O(N + L) space."""
    base, twice_N, twice_L = _growth()
    grow = {
        name: (twice_N[name].bytes / base[name].bytes, twice_L[name].bytes / base[name].bytes)
        for name in base
    }
    as_claimed = min(grow["matrix"]) > 1.9 and grow["modes"][0] < 1.05 and grow["modes"][1] < 2.1
    megabytes = {name: base[name].bytes / 2**20 for name in base}
    return judged(
        as_claimed and base["modes"].numbers * 4 > base["matrix"].numbers,
        f"N = 64, L = 2048: {megabytes['matrix']:.1f} MB with the matrix, "
        f"{megabytes['modes']:.2f} MB summed by modes, {megabytes['ours']:.2f} MB ours",
        f"With twice N, the matrix takes {grow['matrix'][0]:.2f} times the space and the sum "
        f"{grow['modes'][0]:.2f} times; with twice L {grow['matrix'][1]:.2f} and "
        f"{grow['modes'][1]:.2f} times. Ours keeps two tables of N sqrt(L) numbers, and is one "
        "matrix product.",
    )


@claim("Proposition 1 (section 3.2)")
def complexity_of_dplr() -> Verdict:
    """Computing the kernel of a diagonal SSM takes the same time and space as that of a DPLR
    one."""
    dplr, kernel = _low_rank(64, 256)
    error = largest_off(cauchy_by_modes(dplr, 0.01, 256).real, kernel)
    base, twice_N, twice_L = _growth()

    def growth(name: str) -> list[float]:
        grown = (*twice_N[name], *twice_L[name])
        return [new / old for new, old in zip(grown, 2 * base[name], strict=True)]

    alike = all(abs(a / b - 1) < 0.1 for a, b in zip(growth("modes"), growth("dplr"), strict=True))
    work = base["dplr"].numbers / base["modes"].numbers
    space = base["dplr"].bytes / base["modes"].bytes
    return judged(
        error < 1e-9 and alike,
        f"the same growth in N and L; DPLR by {work:.1f} times the operations and {space:.1f} "
        "times the space",
        "Both summed mode by mode: operations grow with N L, space with N + L. The algorithms "
        "that need about N + L operations are theory on both sides, and not measured here.",
        only="in how they grow.",
    )


@claim("section 3.4")
def dss_memory() -> Verdict:
    """The softmax of DSS, as published, uses O(N) times more memory than S4 or S4D need."""
    base, twice_N, _ = _growth()
    ratio = base["softmax"].bytes / base["modes"].bytes
    more = twice_N["softmax"].bytes / twice_N["modes"].bytes / ratio
    return judged(
        ratio > 4 and more > 1.8,
        f"a softmax over 32 modes and L = 2048 takes {ratio:.0f} times the space of the sum by "
        f"modes, with twice N {more:.1f} times as much again",
        "A real softmax, so at least; ours is a reweighted Vandermonde kernel and costs the same "
        "as that.",
    )
