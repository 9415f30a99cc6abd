"""Figures, in one style; each is registered under the name by which the command line draws it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from s4d_torch._extras import missing_package
from s4d_torch._registry import Registry
from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.kernel import basis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Endings of files, with the metadata that would make two runs differ taken out.
FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}

# Okabe and Ito: told apart by all eyes, and in grey.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
INK, FAINT = "#333333", "#8a8a8a"
STYLE: dict[Any, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "lines.linewidth": 1.3,
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "svg.hashsalt": "s4d-torch",
}

FIGURES: Registry[Callable[[], Figure]] = Registry("figure")


def save_figure(name: str, out: Path) -> None:
    """Draw the figure ``name`` into a .png, .svg or .pdf file. Needs the extra ``plots``."""
    check_format(out)
    draw = FIGURES[name]
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise missing_package("figures", "matplotlib", "plots") from error
    with rc_context(STYLE):
        figure = draw()
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=130, metadata=FORMATS[out.suffix.lower()])


def check_format(out: Path) -> None:
    """Refuse a file name whose ending names no format."""
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"out must end in one of {', '.join(FORMATS)}; got {out.name!r}")


STARTS = {"legs": "S4D-LegS", "inv": "S4D-Inv", "lin": "S4D-Lin"}
D_STATE, LENGTH = 64, 500
TIMESTEPS = {0.002: BLUE, 0.008: ORANGE, 0.032: GREEN}


@FIGURES.register("kernels")
def kernels() -> Figure:
    """Basis functions (above) and kernels (below) of the diagonal starts LegS, Inv and Lin."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure((10, 5.6), layout=ConstrainedLayoutEngine(hspace=0.06, wspace=0.04))
    above, below = figure.subplots(2, len(STARTS), sharex="row", sharey="row")
    for (init, title), upper, lower in zip(STARTS.items(), above, below, strict=True):
        upper.set_title(title)
        _draw_basis(upper, init)
        _draw_kernels(lower, init)
    above[0].set_ylabel("basis functions\nRe $e^{tA_n}B_n$, the slowest four")
    below[0].set_ylabel("kernels $K_\\ell\\,/\\,\\Delta$\nfor one random $C$")
    figure.align_ylabels()
    return figure


def _draw_basis(axes: Axes, init: str) -> None:
    """The slowest modes, inside the envelope that Re(A) = -1/2 gives to all of them."""
    ssm = SSM(1, D_STATE, init=init)
    order = ssm.A[0].imag.argsort()[:4]  # the fast ones of LegS and Inv would fill the panel
    t = torch.linspace(0, 5, 501, dtype=torch.float64)
    curves = basis(ssm.A[0, order], ssm.B[0, order], t).real.detach()  # (4, 501)
    envelope = torch.exp(-t / 2)
    axes.fill_between(t, -envelope, envelope, color=FAINT, alpha=0.12, linewidth=0)
    for sign, label in ((1, "$\\pm e^{-t/2}$"), (-1, None)):
        axes.plot(t, sign * envelope, color=FAINT, linestyle=(0, (4, 3)), lw=1, label=label)
    for mode, curve, color in zip(order, curves, (BLUE, ORANGE, GREEN, RED), strict=True):
        axes.plot(t, curve, color=color, label=f"Im $A_n$ = {ssm.A[0, mode].imag:.2f}")
    axes.set(xlabel="time $t$", xlim=(0, 5), ylim=(-1.08, 1.08), yticks=(-1, 0, 1))
    axes.legend(loc="upper right", labelspacing=0.25, handlelength=1.6)


def _draw_kernels(axes: Axes, init: str) -> None:
    """One random C at three step sizes: dt stretches the same kernel over more or fewer samples."""
    apart = 60.0
    for row, (dt, color) in enumerate(TIMESTEPS.items()):
        generator = torch.Generator().manual_seed(0)  # the same C each time
        ssm = SSM(1, D_STATE, init=init, dt_min=dt, dt_max=dt, generator=generator)
        kernel = ssm.kernel(LENGTH)[0].detach() / dt
        axes.axhline(-apart * row, color=FAINT, lw=0.5, zorder=0)
        axes.plot(kernel - apart * row, color=color, lw=1)
        axes.text(LENGTH, apart * (0.3 - row), f"$\\Delta$ = {dt}", ha="right", va="bottom")
    axes.set(xlabel="sample $\\ell$", xlim=(0, LENGTH), yticks=())
    axes.spines["left"].set_visible(False)
