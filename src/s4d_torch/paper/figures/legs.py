"""LegS against S4D-LegS: the paper's figure of the basis, and the sense in which it converges."""

from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from s4d_torch.paper import bases
from s4d_torch.paper.figures import style
from s4d_torch.ssm.hippo import legs_basis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEP, UNTIL, COUNT = 0.005, 3.5, 5
PANELS = (
    ("S4D-LegS, $N=256$, ZOH", 256, "zoh"),
    ("S4D-LegS, $N=1024$, ZOH", 1024, "zoh"),
    ("S4D-LegS, $N=1024$, bilinear", 1024, "bilinear"),
)


@style.FIGURES.register("legs")
def legs() -> "Figure":
    """The basis of LegS (a), and of its normal part with B/2 (b, c, d), at a step of 0.005.

    Below each is the difference from LegS. Under ZOH it shrinks with N but stays noisy; the
    bilinear rule (d) leaves none before an echo at t = 3.9.
    """
    figure = style.page(5.4, hspace=0.02, wspace=0.04)
    grid = figure.add_gridspec(4, 2, height_ratios=(3, 1, 3, 1))
    length = round(UNTIL / STEP)
    t = bases.step_times(STEP, length)
    exact = legs_basis(COUNT, t)
    first = figure.add_subplot(grid[:2, 0])
    style.panel_title(first, "S4-LegS, closed form", "a")
    _draw_functions(first, t, exact)
    first.legend(loc="upper right", ncols=2, labelspacing=0.25, handlelength=1.6)
    first.set(ylim=(-1.4, 3.1), yticks=(-1, 0, 1, 2, 3), ylabel="$K_n(t)$")
    columns: list[list[Axes]] = [[first], []]
    for place, (title, N, rule) in enumerate(PANELS, start=1):
        row, column = 2 * (place // 2), place % 2
        upper = figure.add_subplot(grid[row, column], sharex=first, sharey=first)
        lower = figure.add_subplot(grid[row + 1, column], sharex=first)
        curves = bases.legs_discrete(N, COUNT, STEP, length, rule)
        style.panel_title(upper, title, "abcd"[place])
        _draw_functions(upper, t, curves)
        _draw_functions(lower, t, curves - exact)
        lower.set(ylim=(-0.36, 0.36), yticks=(-0.3, 0, 0.3), ylabel="difference")
        upper.tick_params(labelbottom=False)
        text = f"RMS difference {bases.rms(curves - exact):.2g}"
        upper.text(0.98, 0.95, text, transform=upper.transAxes, ha="right", va="top")
        columns[column] += [upper, lower]
    for panels in columns:
        figure.align_ylabels(panels)
        panels[-1].set(xlabel="time $t$", xlim=(0, UNTIL))
    return figure


def _draw_functions(axes: "Axes", t: Tensor, curves: Tensor) -> None:
    axes.axhline(0, color=style.FAINT, lw=0.5, zorder=0)
    for n, (curve, color, dash) in enumerate(zip(curves, style.SERIES, style.DASHES, strict=True)):
        axes.plot(t, curve, color=color, ls=dash, lw=1.0, label=f"$n={n}$", zorder=3 - 0.1 * n)


SIZES = (16, 32, 64, 128, 256, 512, 1024)
COARSE, GROUP = 0.01, 8


@style.FIGURES.register("convergence")
def convergence() -> "Figure":
    """In which sense S4D-LegS approaches LegS, for n = 0 (not in the paper).

    (a) RMS error on 0.02 < t < 4: none of it goes away pointwise, all of it in the mean over a
    short time. (b) Under the bilinear rule there is next to no error until an echo arrives, later
    for larger N; the triangles show when theory expects it.
    """
    figure = style.page(3.0, wspace=0.06)
    left, right = figure.subplots(1, 2)
    style.panel_title(left, "error against state size", "a")
    colors = (style.RED, style.ORANGE, style.BLUE, style.GREEN)
    for (name, errors), color, mark in zip(_errors().items(), colors, "osD^", strict=True):
        dash = "--" if mark == "^" else "-"
        left.plot(SIZES, errors, color=color, marker=mark, ms=3.5, ls=dash, label=name)
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set(xlabel="state size $N$", ylabel="RMS error of $K_0$", ylim=(1e-6, 1))
    left.set_xticks(SIZES, [str(N) for N in SIZES])
    left.legend(loc="lower left", labelspacing=0.25)
    style.panel_title(right, f"bilinear, $\\Delta={COARSE}$", "b")
    t = bases.step_times(COARSE, 800)
    colors = (style.INK, style.ORANGE, style.GREEN, style.BLUE)
    for N, color in zip(SIZES[3:], colors, strict=True):
        error = (bases.legs_discrete(N, 1, COARSE, len(t), "bilinear")[0] - torch.exp(-t)).abs()
        peaks = error.unflatten(0, (-1, GROUP)).amax(1)
        right.plot(t[GROUP // 2 :: GROUP], peaks, color=color, lw=1.1, label=f"$N={N}$")
        right.plot(bases.echo_time(N, COARSE), 1.5e-6, color=color, marker="^", ms=6, clip_on=False)
    right.set_yscale("log")
    right.set(xlabel="time $t$", ylabel="largest $|K_0(t) - e^{-t}|$ nearby")
    right.set(xlim=(0, 8), ylim=(1e-6, 10))
    right.legend(loc="upper right", ncols=2, labelspacing=0.25, handlelength=1.4)
    for axes in (left, right):
        axes.grid(color=style.INK, alpha=0.12, linewidth=0.5)
    return figure


@cache
def _errors() -> dict[str, list[float]]:
    """RMS error of the first function for each state size, in four senses."""
    t = torch.linspace(0.02, 4, 2001, dtype=torch.float64)
    middle = bases.step_times(COARSE, 400)
    errors: dict[str, list[float]] = {}
    for N in SIZES:
        found = {"pointwise": bases.rms(bases.legs_without_low_rank(N, 1, t)[0] - torch.exp(-t))}
        for window in (0.05, 0.2):
            mean = bases.legs_without_low_rank(N, 1, t, window=window)
            found[f"mean over {window}"] = bases.rms(mean - bases.mean_legs_basis(1, t, window))
        discrete = bases.legs_discrete(N, 1, COARSE, 400, "bilinear")[0]
        found[f"bilinear, $\\Delta={COARSE}$"] = bases.rms((discrete - torch.exp(-middle))[2:])
        for name, error in found.items():
            errors.setdefault(name, []).append(error)
    return errors
