"""The paper's Figure 1: a diagonal state space is a row of systems of size one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from s4d_torch.paper.figures.style import FAINT, FIGURES, INK, SERIES, WIDTH
from s4d_torch.ssm.initialization import diagonal
from s4d_torch.ssm.kernel import basis

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CODE = """\
A_bar, B_bar = exp(dt * A), (exp(dt * A) - 1) / A * B
K = 2 * ((B_bar * C) @ A_bar[:, None] ** arange(L)).real"""
C = torch.tensor([0.35 + 0.2j, -0.3 + 0.5j, 0.45 - 0.3j, 0.3 + 0.35j], dtype=torch.complex128)
UNTIL = 5.0
HEIGHT = 3.45
ROWS = (2.83, 2.25, 1.67, 1.09)  # inches from the bottom: the middle of each mode's row
MIDDLE = sum(ROWS) / len(ROWS)
TRAINED = "#8B2F73"


@FIGURES.register("overview")
def overview() -> Figure:
    """S4D: systems of size one (a), their basis functions (b), and the kernel they sum to (c).

    Each colour is one mode of S4D-Lin and what is trained is purple. Below, the whole kernel with
    the zero-order hold in two lines.
    """
    from matplotlib.figure import Figure

    figure = Figure((WIDTH, HEIGHT))
    board = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    board.set_axis_off()
    titles = {0.12: "(a) systems of size one", 3.32: "(b) basis", 5.5: "(c) kernel"}
    for left, title in titles.items():
        board.text(left, HEIGHT - 0.12, title, fontweight="bold", fontsize=9.5, va="top")
    _draw_systems(board)
    t = torch.linspace(0, UNTIL, 401, dtype=torch.float64)
    start = diagonal("lin", 2 * len(C), 1)
    functions = basis(start.A[0], start.B[0], t)
    for n, row in enumerate(ROWS):
        _draw_basis(_inset(figure, 3.32, row - 0.24, 1.35, 0.48), t, functions[n].real, SERIES[n])
        _write(board, 4.9, row, [("$\\times$ ", INK), (f"$C_{n}$", TRAINED)])
        board.plot([5.09, 5.17, 5.33], [row, row, MIDDLE], color=SERIES[n], lw=1.2, zorder=0)
    _draw_sum(board, 5.37)
    _draw_kernel(_inset(figure, 5.62, 0.95, 1.43, 2.05), t, 2 * (C[:, None] * functions).real)
    code = board.text(WIDTH / 2, 0.36, CODE, ha="center", va="center", linespacing=1.5)
    code.set(family="monospace", fontsize=8.5)
    board.plot([0.12, WIDTH - 0.12], [0.7, 0.7], color=FAINT, lw=0.5)
    return figure


def _draw_systems(board: Axes) -> None:
    """u enters every system, each is weighted by its C, and their sum is y."""
    from matplotlib.patches import FancyBboxPatch

    _write(board, 0.17, MIDDLE, [("$u$", INK)], size=12)
    for n, row in enumerate(ROWS):
        color = SERIES[n]
        board.plot([0.27, 0.4, 0.55], [MIDDLE, row, row], color=color, lw=1.2)
        board.add_patch(
            FancyBboxPatch(
                *((0.6, row - 0.15), 1.34, 0.3),
                boxstyle="round,pad=0.05",
                facecolor=f"{color}22",
                edgecolor=color,
            )
        )
        parts = [(f"$x_{n}' = $", INK), (f"$A_{n}$", TRAINED), (f"$x_{n}+$", INK)]
        _write(board, 1.27, row, [*parts, (f"$B_{n}$", TRAINED), ("$u$", INK)], size=10)
        board.plot([1.99, 2.36, 2.56], [row, row, MIDDLE], color=color, lw=1.2, zorder=0)
        _write(board, 2.17, row + 0.12, [(f"$C_{n}$", TRAINED)])
    _draw_sum(board, 2.62)
    board.annotate(
        "", (2.98, MIDDLE), (2.76, MIDDLE), arrowprops={"arrowstyle": "-|>", "color": INK}
    )
    _write(board, 3.07, MIDDLE, [("$y$", INK)], size=12)


def _draw_sum(board: Axes, x: float) -> None:
    from matplotlib.patches import Circle

    board.add_patch(Circle((x, MIDDLE), 0.13, facecolor="white", edgecolor=INK))
    _write(board, x, MIDDLE, [("$\\Sigma$", INK)], size=9.5)


def _draw_basis(axes: Axes, t: torch.Tensor, curve: torch.Tensor, color: str) -> None:
    for sign in (1, -1):
        axes.plot(t, sign * torch.exp(-t / 2), color=FAINT, lw=0.7, ls=(0, (3, 2)))
    axes.plot(t, curve, color=color, lw=1.3)
    axes.set(xlim=(0, UNTIL), ylim=(-1.1, 1.1), xticks=(), yticks=())
    axes.spines["bottom"].set_position("zero")


def _draw_kernel(axes: Axes, t: torch.Tensor, parts: torch.Tensor) -> None:
    for part, color in zip(parts, SERIES, strict=False):
        axes.plot(t, part, color=color, lw=0.8, alpha=0.75)
    axes.plot(t, parts.sum(0), color=INK, lw=1.8)
    axes.set(xlim=(0, UNTIL), xticks=(), yticks=())
    axes.spines["bottom"].set_position("zero")
    low, high = axes.get_ylim()
    axes.text(UNTIL, -0.08 * (high - low), "$t$", ha="right", va="top")
    axes.text(0.4 * UNTIL, 0.75 * high, "$K(t)$", fontsize=10)


def _inset(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place in inches."""
    return figure.add_axes((left / WIDTH, bottom / HEIGHT, width / WIDTH, height / HEIGHT))


def _write(
    board: Axes, x: float, y: float, parts: list[tuple[str, str]], *, size: float = 9.0
) -> None:
    """Text of several colours, around (x, y)."""
    from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea

    words: list[Artist] = [
        TextArea(text, textprops={"color": color, "fontsize": size}) for text, color in parts
    ]
    line = HPacker(children=words, align="baseline", pad=0, sep=1.5)
    board.add_artist(AnnotationBbox(line, (x, y), frameon=False, pad=0))
