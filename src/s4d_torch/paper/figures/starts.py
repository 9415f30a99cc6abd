"""Basis functions and kernels of the diagonal starts (the right half of the paper's Figure 1)."""

from typing import TYPE_CHECKING

import torch

from s4d_torch.nn.ssm import SSM
from s4d_torch.paper.figures import style
from s4d_torch.ssm.kernel import basis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROPOSED = ("legs", "inv", "lin")
D_STATE, LENGTH = 64, 500
TIMESTEPS = {0.002: style.BLUE, 0.008: style.ORANGE, 0.032: style.GREEN}


@style.FIGURES.register("kernels")
def kernels() -> "Figure":
    """Basis functions (above) and kernels (below) of the diagonal starts LegS, Inv and Lin."""
    figure = style.page(5.6, width=10, hspace=0.06, wspace=0.04)
    above, below = figure.subplots(2, len(PROPOSED), sharex="row", sharey="row")
    for init, upper, lower in zip(PROPOSED, above, below, strict=True):
        upper.set_title(style.STARTS[init][0])
        _draw_basis(upper, init)
        _draw_kernels(lower, init)
    above[0].set_ylabel("basis functions\nRe $e^{tA_n}B_n$, the slowest four")
    below[0].set_ylabel("kernels $K_\\ell\\,/\\,\\Delta$\nfor one random $C$")
    figure.align_ylabels()
    return figure


def _draw_basis(axes: "Axes", init: str) -> None:
    """The slowest modes, inside the envelope that Re(A) = -1/2 gives to all of them."""
    t = torch.linspace(0, 5, 501, dtype=torch.float64)
    _draw_envelope(axes, t)
    slowest, curves = _slowest_modes(init, t)
    for A, curve, color in zip(slowest, curves, style.SERIES[:4], strict=True):
        axes.plot(t, curve, color=color, label=f"Im $A_n$ = {A.imag:.2f}")
    axes.set(xlabel="time $t$", xlim=(0, 5), ylim=(-1.08, 1.08), yticks=(-1, 0, 1))
    axes.legend(loc="upper right", labelspacing=0.25, handlelength=1.6)


def _draw_envelope(axes: "Axes", t: torch.Tensor) -> None:
    envelope = torch.exp(-t / 2)
    axes.fill_between(t, -envelope, envelope, color=style.FAINT, alpha=0.12, linewidth=0)
    for sign, label in ((1, "$\\pm e^{-t/2}$"), (-1, None)):
        axes.plot(t, sign * envelope, color=style.FAINT, linestyle=(0, (4, 3)), lw=1, label=label)


def _slowest_modes(init: str, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Four modes and their functions: the fast ones of LegS and Inv would fill the panel."""
    ssm = SSM(1, D_STATE, init=init, generator=torch.Generator().manual_seed(0))
    A, B = ssm.A[0].detach(), ssm.B[0].detach()
    if init != "rand":  # whose modes have no order
        slowest = A.imag.argsort(stable=True)[:4]
        A, B = A[slowest], B[slowest]
    return A[:4], basis(A[:4], B[:4], t).real


def _draw_kernels(axes: "Axes", init: str) -> None:
    """One random C at three step sizes: dt stretches the same kernel over more or fewer samples."""
    apart = 60.0
    for row, (dt, color) in enumerate(TIMESTEPS.items()):
        axes.axhline(-apart * row, color=style.FAINT, lw=0.5, zorder=0)
        axes.plot(_kernel(init, dt) - apart * row, color=color, lw=1)
        axes.text(LENGTH, apart * (0.3 - row), f"$\\Delta$ = {dt}", ha="right", va="bottom")
    axes.set(xlabel="sample $\\ell$", xlim=(0, LENGTH), yticks=())
    axes.spines["left"].set_visible(False)


def _kernel(init: str, dt: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)  # the same C each time
    # in float64, which needs no compiled code and no time to compile it
    ssm = SSM(1, D_STATE, init=init, dt_min=dt, dt_max=dt, generator=generator, dtype=torch.float64)
    return ssm.kernel(LENGTH)[0].detach() / dt


STEP = 0.01


@style.FIGURES.register("starts")
def starts() -> "Figure":
    """All diagonal starts of the paper: four basis functions, the slowest, and a kernel of each.

    N = 64, B = 1, the bilinear rule at a step of 0.01, a random C. The real part -1/2 of the first
    five gives all their functions one envelope, dashed; Rand has random decays, and Real has no
    frequencies.
    """
    figure = style.page(8.4, hspace=0.03, wspace=0.06)
    grid = figure.subplots(len(style.STARTS), 2, sharex="col", width_ratios=(1, 1.15))
    t = torch.linspace(0, LENGTH * STEP, 501, dtype=torch.float64)
    for (init, (title, color)), (left, right) in zip(style.STARTS.items(), grid, strict=True):
        slowest, curves = _slowest_modes(init, t)
        if bool((slowest.real + 0.5).abs().max() < 1e-6):
            _draw_envelope(left, t)
        for place, (A, curve) in enumerate(zip(slowest, curves, strict=True)):
            color_of_mode = style.SERIES[place]
            left.plot(t, curve, color=color_of_mode, lw=1.1)
            shown = f"${A.real:.1f}{A.imag:+.2f}i$" if A.imag else f"${A.real:.1f}$"
            look = {"color": style.darker(color_of_mode), "va": "center", "fontsize": 7.5}
            left.text(1.02, 0.9 - 0.26 * place, shown, transform=left.transAxes, **look)
        left.set(xlim=(0, LENGTH * STEP), ylim=(-1.08, 1.08), yticks=(-1, 0, 1))
        left.set_ylabel(title, fontweight="bold", fontsize=9)
        right.axhline(0, color=style.FAINT, lw=0.5, zorder=0)
        right.plot(STEP * torch.arange(LENGTH), _kernel(init, STEP), color=color, lw=0.9)
        right.set_xlim(0, LENGTH * STEP)
        right.tick_params(axis="y", labelsize=7.5)
    grid[0, 0].set_title("basis functions Re $e^{tA_n}B_n$", fontsize=9.5)
    grid[0, 1].set_title("kernel $K_\\ell\\,/\\,\\Delta$ for a random $C$", fontsize=9.5)
    for axes in grid[-1]:
        axes.set_xlabel("time $t$")
    return figure
