"""What low-rank terms do elsewhere: random ones added to LegS, and FouT's own taken away."""

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s4d_torch.paper.bases import dense_basis, fout_without_low_rank, perturbed_legs, rms
from s4d_torch.paper.figures.style import DASHES, FAINT, FIGURES, INK, SERIES, page, panel_title
from s4d_torch.ssm.hippo import HIPPO, legs_basis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIGMAS = (0.3, 0.4, 0.5)
D_STATE, COUNT = 256, 5
STEP, STEPS = 0.02, 200
DRAWS = 9
FAR = 40.0  # nothing beyond is drawn


@FIGURES.register("perturbation")
def perturbation() -> "Figure":
    """The basis of (A + P P^T, B) for LegS and a random P of deviation sigma; LegS itself in grey.

    N = 256. The draw shown has the median error of nine at sigma = 0.4. The P of the normal part
    is far larger, up to 16, and yet leaves the basis as it is.
    """
    figure = page(2.6, wspace=0.04)
    t = STEP * torch.arange(STEPS + 1, dtype=torch.float64)
    exact = legs_basis(COUNT, t)
    for letter, sigma, axes in zip("abc", SIGMAS, figure.subplots(1, 3, sharey=True), strict=True):
        panel_title(axes, f"$\\sigma = {sigma}$", letter)
        curves = _perturbed(sigma)
        axes.plot(t, exact.T, color=FAINT, lw=0.9, ls=(0, (1, 1)), zorder=1)
        _draw_functions(axes, t, curves, [f"$n={n}$" for n in range(COUNT)])
        exponent = math.floor(math.log10(curves.abs().max().item()))
        if exponent > 0:
            beyond = f"beyond $10^{{{exponent}}}$"
            axes.set_title(beyond, loc="right", fontsize=8, fontweight="normal")
        axes.set(xlabel="time $t$", xlim=(0, STEP * STEPS), ylim=(-4, 4))
        if letter == "a":
            axes.set_ylabel("$K_n(t)$")
            axes.legend(loc="lower right", ncols=2, labelspacing=0.25, handlelength=1.4)
    return figure


@cache
def _perturbed(sigma: float) -> Tensor:
    A = perturbed_legs(sigma, _typical_draw())[0]
    return dense_basis(A, HIPPO["legs"](D_STATE).B, STEP, STEPS, COUNT)


@cache
def _typical_draw() -> Tensor:
    """The draw with the median error of several, (1, N)."""
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(DRAWS, D_STATE, generator=generator, dtype=torch.float64)
    B = HIPPO["legs"](D_STATE).B
    exact = legs_basis(COUNT, 4 * STEP * torch.arange(STEPS // 4 + 1, dtype=torch.float64))
    bases = dense_basis(perturbed_legs(SIGMAS[1], draws), B, 4 * STEP, STEPS // 4, COUNT)
    errors = torch.tensor([rms(basis - exact) for basis in bases])
    return draws[errors.argsort()[DRAWS // 2]][None]


WAVES = {0: "$1$", 2: "$\\cos\\,\\pi t$", 3: "$\\sin\\,\\pi t$"}
WAVES |= {4: "$\\cos\\,2\\pi t$", 5: "$\\sin\\,2\\pi t$"}


@FIGURES.register("fout")
def fout() -> "Figure":
    """The basis of FouT (a), a Fourier series on a window of length 2, and of its normal part (b).

    Without the low-rank term the real part of A is 0: the same waves, twice as high, and for ever.
    """
    figure = page(2.6, wspace=0.04)
    left, right = figure.subplots(1, 2, sharey=True)
    steps = 250
    t = STEP * torch.arange(steps + 1, dtype=torch.float64)
    hippo, shown = HIPPO["fout"](D_STATE), list(WAVES)
    panel_title(left, "S4-FouT, $N=256$", "a")
    whole = dense_basis(hippo.A, hippo.B, STEP, steps, 6)
    _draw_functions(left, t, whole[shown], list(WAVES.values()))
    panel_title(right, "without its low-rank term", "b")
    chopped = fout_without_low_rank(D_STATE, t, 6)
    _draw_functions(right, t, chopped[shown], list(WAVES.values()))
    for axes in (left, right):
        axes.axvline(2, color=INK, lw=0.7, ls=(0, (4, 3)), zorder=0)
        axes.set(xlabel="time $t$", xlim=(0, STEP * steps), ylim=(-1.6, 1.6), yticks=(-1, 0, 1))
    left.text(2.06, -1.5, "the end of the window", va="bottom", fontsize=8)
    left.set_ylabel("$K_n(t)$")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.4)
    return figure


def _draw_functions(axes: "Axes", t: Tensor, curves: Tensor, labels: Sequence[str]) -> None:
    axes.axhline(0, color=FAINT, lw=0.5, zorder=0)
    for curve, color, dash, label in zip(curves, SERIES, DASHES, labels, strict=True):
        seen = torch.where(curve.abs() < FAR, curve, torch.nan)
        axes.plot(t, seen, color=color, ls=dash, lw=1.1, label=label)
