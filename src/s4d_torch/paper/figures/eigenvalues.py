"""Scaling laws of the eigenvalues: the paper's figure of Im(A) for all diagonal starts."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from s4d_torch.paper.figures.style import FAINT, FIGURES, INK, STARTS, darker, page, panel_title
from s4d_torch.ssm.initialization import diagonal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

D_STATE = 256
DASHES = {"legs": "-", "inv": "--", "lin": "-", "inv2": "-.", "quad": ":", "rand": ""}
# Where the names stand, and the power of n that the law follows.
LABELS = {
    "legs": (0.62, 4e3, "LegS"),
    "inv": (0.62, 1.5e3, "Inv $\\sim n^{-1}$"),
    "inv2": (7.5, 4e3, "Inv2 $\\sim n^{-1}$"),
    "quad": (1.15, 0.9, "Quad $\\sim n^2$"),
    "lin": (5.5, 9, "Lin $\\sim n$"),
    "rand": (7.5, 0.05, "Rand"),
}


@FIGURES.register("eigenvalues")
def eigenvalues() -> "Figure":
    """Imaginary parts of A for N = 256: (a) the laws, (b) where their modes lie.

    S4D-Inv follows S4D-LegS; Inv2 and Quad reach the same largest frequency with another spread;
    Lin is the Fourier series, its frequency 0 not shown; Rand has no law and no range. S4D-Real
    has no imaginary part.
    """
    figure = page(3.3, wspace=0.06)
    left, right = figure.subplots(1, 2)
    imag = {
        init: diagonal(init, D_STATE, 1, generator=torch.Generator().manual_seed(0)).A.imag[0].abs()
        for init in DASHES
    }
    panel_title(left, f"the laws, $N={D_STATE}$", "a")
    _draw_laws(left, imag)
    panel_title(right, "their modes", "b")
    _draw_modes(right, imag)
    return figure


def _draw_laws(axes: "Axes", imag: dict[str, Tensor]) -> None:
    for init, values in imag.items():
        shown = values > 0
        x = (torch.arange(D_STATE // 2) + 0.5)[shown]
        look: dict[str, Any] = {"ls": DASHES[init], "lw": 3.2 if init == "legs" else 1.4}
        if init == "rand":
            look = {"ls": "", "marker": ".", "ms": 2.5}
        axes.plot(x, values[shown], color=STARTS[init][1], **look)
        across, up, text = LABELS[init]
        axes.text(across, up, text, color=darker(STARTS[init][1]), fontweight="bold", fontsize=8.5)
    axes.set(xscale="log", yscale="log", xlabel="mode $n + 1/2$", ylabel="Im $A_n$")
    axes.set(xlim=(0.45, D_STATE * 0.6), ylim=(0.02, 5e4))
    axes.grid(color=FAINT, alpha=0.2, linewidth=0.5)


def _draw_modes(axes: "Axes", imag: dict[str, Tensor]) -> None:
    """A stroke for each mode, on the axis of frequency."""
    rows = range(len(imag) - 1, -1, -1)
    for row, (init, values) in zip(rows, imag.items(), strict=True):
        axes.eventplot(values, lineoffsets=row, linelengths=0.7, colors=STARTS[init][1], lw=0.6)
    axes.set_yticks(rows, [STARTS[init][0].removeprefix("S4D-") for init in imag])
    axes.set(xscale="log", xlabel="Im $A_n$", xlim=(0.02, 5e4), ylim=(-0.6, 5.9))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    largest = imag["legs"].max().item()
    axes.axvline(largest, color=INK, lw=0.7, ls=(0, (4, 3)), zorder=0)
    axes.text(largest / 1.3, 5.62, "$N^2/\\pi - \\pi/6$", ha="right", va="center", fontsize=8)
