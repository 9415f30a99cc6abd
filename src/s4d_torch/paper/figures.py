"""Figures, in one style; each is registered under the name by which the command line draws it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

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
STYLE = {
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

FIGURES: Registry[Callable[[], "Figure"]] = Registry("figure")


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
        figure.savefig(out, dpi=150, metadata=FORMATS[out.suffix.lower()])


def check_format(out: Path) -> None:
    """Refuse a file name whose ending names no format."""
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"out must end in one of {', '.join(FORMATS)}; got {out.name!r}")


STARTS = {"legs": "S4D-LegS", "inv": "S4D-Inv", "lin": "S4D-Lin"}
D_STATE, LENGTH = 64, 600
TIMESTEPS = {0.005: BLUE, 0.02: ORANGE, 0.08: GREEN}


@FIGURES.register("kernels")
def kernels() -> Figure:
    """Basis functions (above) and kernels (below) of the diagonal starts LegS, Inv and Lin."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.4), layout="constrained")
    above, below = figure.subplots(2, len(STARTS), sharex="row", sharey="row")
    for init, title, upper, lower in zip(STARTS, STARTS.values(), above, below, strict=True):
        upper.set_title(title)
        _draw_basis(upper, init)
        _draw_kernels(lower, init)
    above[0].set_ylabel("basis  Re $e^{tA_n}B_n$")
    below[0].set_ylabel("kernel  $K_\\ell\\,/\\,\\Delta$")
    above[0].legend(loc="lower right", ncols=1)
    return figure


def _draw_basis(axes: Axes, init: str) -> None:
    """The slowest modes, inside the envelope that Re(A) = -1/2 gives to all of them."""
    ssm = SSM(1, D_STATE, init=init)
    order = ssm.A[0].imag.argsort()[:4]  # the fast ones of LegS and Inv would fill the panel
    t = torch.linspace(0, 5, 501, dtype=torch.float64)
    curves = basis(ssm.A[0, order], ssm.B[0, order], t).real.detach()  # (4, 501)
    envelope = torch.exp(-t / 2)
    for sign in (1, -1):
        label = "$\\pm e^{-t/2}$" if sign == 1 else None
        axes.plot(t, sign * envelope, color=FAINT, linestyle=(0, (4, 3)), lw=1, label=label)
    for mode, curve, color in zip(order, curves, (BLUE, ORANGE, GREEN, RED), strict=True):
        axes.plot(t, curve, color=color, label=f"Im $A_n$ = {ssm.A[0, mode].imag:.2f}")
    axes.set(xlabel="time $t$", xlim=(0, 5), ylim=(-1.08, 1.08), yticks=(-1, 0, 1))


def _draw_kernels(axes: Axes, init: str) -> None:
    """One random C at three step sizes: dt stretches the same kernel over more or fewer samples."""
    for row, (dt, color) in enumerate(TIMESTEPS.items()):
        generator = torch.Generator().manual_seed(1)  # the same C each time
        ssm = SSM(1, D_STATE, init=init, dt_min=dt, dt_max=dt, generator=generator)
        kernel = ssm.kernel(LENGTH)[0].detach() / dt
        axes.plot(-60 * row + kernel, color=color, lw=1)
    axes.set(xlabel="sample $\\ell$", xlim=(0, LENGTH))
