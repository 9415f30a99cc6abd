"""Where A, B, C and dt start: the paper's diagonal laws, HiPPO for DPLR, mixtures, ablations.

A start is registered beside its definition; the layers, the contract tests, the command line and
the docs read the registry. Draws are made in float64 on the generator's device (the CPU without
one), so a seed gives the same values for every dtype and device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from s4d_torch._registry import Registry, unknown
from s4d_torch.ssm.hippo import HIPPO, diagonalize


class Start(NamedTuple):
    """Initial values of independent systems: A, B (sets, modes); P (sets, rank, modes) or None."""

    A: Tensor
    B: Tensor
    P: Tensor | None = None


@dataclass(frozen=True)
class Spectrum:
    """How the diagonal A starts: ``values(n, d_state, generator)`` gives A for modes at ``n``.

    ``n`` is (sets, modes): 0, 1, 2, ... or, with ``random_imag``, uniform draws of the same range;
    that only makes sense where ``law`` is set: where Im(A) is a formula in n.
    ``pairs`` is False for real modes, which have no conjugate. ``dt_scales`` are those it goes
    with: "decay" leaves Im(A) as an angle per sample. ``largest_decay`` is that of -Re(A), for
    constraints that have a largest one; not known, it goes with none of them.
    """

    values: Callable[[Tensor, int, Generator | None], Tensor]
    law: bool = False
    pairs: bool = True
    dt_scales: tuple[str, ...] = ("all",)
    largest_decay: float = math.inf


INITIALIZATIONS: Registry[Spectrum] = Registry("initialization for structure 'diagonal'")
B_STARTS = ("auto", "ones", "hippo", "hippo-half", "gamma")
# variance of the real and of the imaginary part of C, by the number of modes; are they pairs?
C_STARTS: dict[str, Callable[[int, bool], float]] = {
    "paper": lambda modes, pairs: 1.0,
    "official": lambda modes, pairs: 0.5,
    "unit": lambda modes, pairs: 1 / (4 * modes if pairs else modes),
}


def frequency_law(name: str) -> Callable[[Callable[[Tensor, int], Tensor]], Spectrum]:
    """Register a law for Im(A) in n and N, with Re(A) = -1/2."""

    def register(law: Callable[[Tensor, int], Tensor]) -> Spectrum:
        def values(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
            imag = law(n, d_state)
            return torch.complex(torch.full_like(imag, -0.5), imag)

        return INITIALIZATIONS.register(name, Spectrum(values, law=True, largest_decay=0.5))

    return register


def _legs(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    """HiPPO-D: the eigenvalues of the normal part of LegS, the fastest first."""
    return diagonalize(HIPPO["legs"](d_state)).Lambda.expand(n.shape[0], -1).clone()


INITIALIZATIONS.register("legs", Spectrum(_legs, largest_decay=0.5))


@frequency_law("inv")
def inv(n: Tensor, d_state: int) -> Tensor:
    """S4D-Inv: ``A_n = -1/2 + i N/pi (N/(2n+1) - 1)``."""
    return d_state / torch.pi * (d_state / (2 * n + 1) - 1)


@frequency_law("lin")
def lin(n: Tensor, d_state: int) -> Tensor:
    """S4D-Lin: ``A_n = -1/2 + i pi n``."""
    return torch.pi * n


@frequency_law("inv2")
def inv2(n: Tensor, d_state: int) -> Tensor:
    """S4D-Inv2: ``A_n = -1/2 + i N/pi (N/(n+1) - 1)``."""
    return d_state / torch.pi * (d_state / (n + 1) - 1)


@frequency_law("quad")
def quad(n: Tensor, d_state: int) -> Tensor:
    """S4D-Quad: ``A_n = -1/2 + i (1+2n)^2 / pi``."""
    return (1 + 2 * n).square() / torch.pi


def _rand(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    """S4D-Rand: ``A_n = -e^g + i g'`` with g, g' standard normal (the paper names no law)."""
    return torch.complex(-normal(n.shape, generator).exp(), normal(n.shape, generator))


def _real(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    """S4D-Real: ``A_n = -(n+1)``, N real modes, the spectrum of LegS itself."""
    return torch.complex(-(n + 1), torch.zeros_like(n))


INITIALIZATIONS.register("rand", Spectrum(_rand))
INITIALIZATIONS.register("real", Spectrum(_real, pairs=False))


def _dfout(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    """S4D-DFouT (arXiv 2508.20441): ``A_n = -1/2 + i 2 pi/N (n + h/H)`` of set h of H.

    An angle per sample: with ``dt_scales="decay"`` the poles are ``exp(-dt/2 + i angle)``, and
    those of all sets lie evenly on the upper half of the circle, their conjugates on the lower.
    """
    sets = n.shape[0]
    phase = torch.arange(sets, dtype=n.dtype)[:, None] / sets  # (sets, 1), of the way to the next
    angle = 2 * torch.pi / d_state * (n + phase)
    return torch.complex(torch.full_like(angle, -0.5), angle)


def ring(low: float, high: float) -> Spectrum:
    """``A = log(lambda)``, uniform on the upper half of the ring ``low <= |lambda| < high``.

    As in the LRU (arXiv 2303.06349), where ``|lambda|^2`` is uniform in [low^2, high^2] and the
    angle in [0, 2 pi); a mode here stands for its conjugate too, so [0, pi) gives the same. The
    poles of a layer are these lambda where dt = 1 and A_bar = e^(dt A).
    """
    if not 0 < low < high <= 1:
        raise ValueError(f"a ring needs 0 < low < high <= 1, got {low} and {high}")

    def values(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
        square = low**2 + (high**2 - low**2) * uniform(n.shape, generator)
        return torch.complex(0.5 * square.log(), torch.pi * uniform(n.shape, generator))

    return Spectrum(values, dt_scales=("all", "decay"), largest_decay=-math.log(low))


INITIALIZATIONS.register("dfout", Spectrum(_dfout, dt_scales=("decay",), largest_decay=0.5))
INITIALIZATIONS.register("ring", ring(0.9, 0.999))


def split_mixture(init: str) -> list[str]:
    """``"legs+fout"`` names one start for each group of channels: ``["legs", "fout"]``."""
    return [part.strip() for part in init.split("+")]


def diagonal(
    init: str,
    d_state: int,
    sets: int,
    *,
    B_init: str = "auto",
    imag_scale: float = 1.0,
    random_imag: bool = False,
    random_real: bool = False,
    generator: Generator | None = None,
) -> Start:
    """A and B of ``sets`` diagonal systems; a mixture splits the sets into equal groups.

    ``random_imag`` draws the position n of each mode uniformly, ``random_real`` draws Re(A) from
    -U[0, 1], ``imag_scale`` multiplies Im(A): the paper's ablations. ``B_init`` is ``ones`` (the
    paper), ``hippo`` (V* B of LegS, so that the system is S4 without its low-rank term) or
    ``hippo-half`` (half of that, as in the paper's theorem); ``gamma`` needs dt, see :func:`gamma`,
    and is ones here.
    """
    parts = []
    for name, count in _groups(init, sets):
        spectrum = INITIALIZATIONS[name]
        modes = d_state // 2 if spectrum.pairs else d_state
        n = torch.arange(modes, dtype=torch.float64).expand(count, modes)
        if random_imag:
            n = modes * uniform((count, modes), generator)
        A = spectrum.values(n, d_state, generator)
        real = -uniform(A.shape, generator) if random_real else A.real
        parts.append(torch.complex(real, imag_scale * A.imag))
    A = torch.cat(parts)
    return Start(A, _diagonal_B(B_init, d_state, A))


def dplr(init: str, d_state: int, sets: int) -> Start:
    """Lambda, V* B and V* P of ``sets`` HiPPO systems; lower ranks are padded with zeros."""
    groups = [(diagonalize(HIPPO[name](d_state)), count) for name, count in _groups(init, sets)]
    rank = max(modes.P.shape[0] for modes, _ in groups)
    A = torch.cat([modes.Lambda.expand(count, -1) for modes, count in groups])
    B = torch.cat([modes.B.expand(count, -1) for modes, count in groups])
    P = torch.zeros(sets, rank, d_state // 2, dtype=A.dtype)
    first = 0
    for modes, count in groups:
        P[first : first + count, : modes.P.shape[0]] = modes.P
        first += count
    return Start(A, B, P)


def output_matrix(
    shape: tuple[int, ...],
    *,
    C_init: str = "paper",
    real: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """C, complex normal: variance 1 of each part (``paper``) or E|C|^2 = 1 (``official``).

    With ``unit``, independent states of variance 1 give an output of variance 1, as in the LRU.
    """
    deviation = C_STARTS[C_init](shape[-1], not real) ** 0.5
    C = deviation * normal(shape, generator)
    imag = torch.zeros_like(C) if real else deviation * normal(shape, generator)
    return torch.complex(C, imag)


def gamma(A: Tensor, log_dt: Tensor) -> Tensor:
    """B of the LRU: ``sqrt(1 - |A_bar|^2)`` with ``|A_bar| = e^(dt Re(A))``; A (sets, modes).

    With ``B_bar = B``, white noise of variance 1 then gives states of variance 1. Channels that
    share a set have dt of their own, log_dt (channels,): their geometric mean stands for them.
    """
    dt = log_dt.unflatten(0, (A.shape[0], -1)).mean(-1, keepdim=True).exp()  # (sets, 1)
    size = (-torch.expm1(2 * dt * A.real)).sqrt()
    return torch.complex(size, torch.zeros_like(size))


def log_timestep(
    channels: int, dt_min: float, dt_max: float, generator: Generator | None = None
) -> Tensor:
    """log dt, uniform in [log dt_min, log dt_max]; (channels,)."""
    low, high = torch.tensor([dt_min, dt_max], dtype=torch.float64).log()
    return low + (high - low) * uniform((channels,), generator)


def normal(shape: tuple[int, ...], generator: Generator | None = None) -> Tensor:
    """Standard normal draws, float64 on the CPU."""
    device = "cpu" if generator is None else generator.device
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=device).cpu()


def uniform(shape: tuple[int, ...], generator: Generator | None = None) -> Tensor:
    """Uniform draws from [0, 1), float64 on the CPU."""
    device = "cpu" if generator is None else generator.device
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=device).cpu()


def _groups(init: str, sets: int) -> list[tuple[str, int]]:
    names = split_mixture(init)
    if sets % len(names):
        raise ValueError(
            f"init {init!r} mixes {len(names)} starts over {sets} independent systems, "
            f"which do not divide evenly; choose n_ssm (or d_model) a multiple of {len(names)}"
        )
    return [(name, sets // len(names)) for name in names]


def _diagonal_B(B_init: str, d_state: int, A: Tensor) -> Tensor:
    if B_init not in B_STARTS:
        raise ValueError(unknown("B_init", B_init, B_STARTS))
    if B_init in ("auto", "ones", "gamma"):
        return torch.ones_like(A)
    B = diagonalize(HIPPO["legs"](d_state)).B
    return (B if B_init == "hippo" else B / 2).expand_as(A).clone()
