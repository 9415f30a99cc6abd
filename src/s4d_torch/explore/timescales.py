"""What the layers of a model listen to: step sizes, time constants and frequencies.

A mode of a diagonal state space answers an impulse by ``exp(t A dt)``, with t in samples: it fades
by a factor e in ``1 / (dt |Re A|)`` samples and turns ``dt |Im A| / (2 pi)`` times per sample.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from s4d_torch._extras import missing_package
from s4d_torch.explore.interactive import state_spaces
from s4d_torch.paper.figures.style import BLUE, FAINT, FORMATS, ORANGE, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUANTILES = (0.05, 0.5, 0.95)
POINTS = 1500  # of a layer that are drawn
COLUMNS = 4

# rings around dots: both are seen where training has left a mode in its place
MARKS: dict[str, dict[str, Any]] = {
    "start": {"s": 17, "facecolors": "none", "edgecolors": ORANGE, "linewidths": 0.7},
    "trained": {"s": 5, "color": BLUE, "linewidths": 0},
}


class Timescales(NamedTuple):
    """The modes of a layer: dt (channels,), the others (channels, modes)."""

    dt: Tensor
    time_constant: Tensor  # samples
    frequency: Tensor  # cycles per sample

    def quantiles(self, name: str) -> tuple[float, ...]:
        """The 5%, 50% and 95% quantiles of one of them."""
        values = getattr(self, name).flatten()
        levels = torch.tensor(QUANTILES, dtype=values.dtype)
        return tuple(torch.quantile(values[: 10**7], levels).tolist())


Layers = Sequence[Timescales]


@torch.no_grad()
def layer_timescales(model: nn.Module) -> list[Timescales]:
    """One for each layer, in their order; none for a model without state spaces."""
    found = []
    for ssm in state_spaces(model):
        A, dt = ssm.A.cpu(), ssm.dt.cpu()
        decay = (dt[:, None] * A.real.abs()).clamp_min(1e-300)
        frequency = dt[:, None] * A.imag.abs() / (2 * math.pi)
        found.append(Timescales(dt, 1 / decay, frequency))
    return found


def save_timescales(
    start: Layers, trained: Layers, out: Path, *, length: int, sample_rate: float | None
) -> None:
    """Modes of each layer by frequency and time constant, and how training has moved them."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise missing_package("pictures", "matplotlib", "plots") from error
    out.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        figure = _draw(start, trained, length, sample_rate)
        figure.savefig(out, dpi=130, metadata=FORMATS[out.suffix.lower()])


def _draw(start: Layers, trained: Layers, length: int, sample_rate: float | None) -> "Figure":
    from matplotlib.figure import Figure

    rows = -(-len(trained) // COLUMNS)
    columns = -(-len(trained) // rows)
    figure = Figure((max(9.0, 2.9 * columns), 3.0 * rows + 2.9), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(3.0 * rows, 2.9))
    above, below = parts
    panels = above.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    # modes that turn less than this within a sequence do not turn; a logarithm has no zero
    lowest = 0.05 / length
    for i, axes in enumerate(panels.flat):
        if i >= len(trained):
            axes.set_visible(False)
            continue
        _modes(axes, start[i], trained[i], lowest, length)
        axes.set_title(f"layer {i + 1}")
        if i + columns >= len(trained):
            axes.set_xlabel("frequency (cycles per sample)")
            axes.tick_params(labelbottom=True)
        if sample_rate is not None and i < columns:
            _hertz(axes, sample_rate)
    for axes in panels[:, 0]:
        axes.set_ylabel("time constant (samples)")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    legend = above.legend(handles, labels, loc="outside upper right", ncols=4, handlelength=1.4)
    for handle in legend.legend_handles:
        handle.set_alpha(1)
    _summary(below, start, trained, lowest)
    return figure


def _modes(
    axes: "Axes", start: Timescales, trained: Timescales, lowest: float, length: int
) -> None:
    for (name, mark), each in zip(MARKS.items(), (start, trained), strict=True):
        every = max(1, each.frequency.numel() // POINTS)
        x, y = (values.flatten()[::every] for values in (each.frequency, each.time_constant))
        axes.scatter(x.clamp_min(lowest), y, alpha=0.6, label=name, **mark)
    axes.axhline(length, color=FAINT, lw=1, linestyle=(0, (4, 3)), label="length of a sequence")
    axes.axvline(0.5, color=FAINT, lw=1, linestyle=(0, (1, 2)), label="half the sampling rate")
    axes.set(xscale="log", yscale="log")
    axes.grid(color=FAINT, alpha=0.15, lw=0.5)
    axes.set_axisbelow(True)


def _hertz(axes: "Axes", sample_rate: float) -> None:
    to_and_from = (lambda x: x * sample_rate, lambda x: x / sample_rate)
    above = axes.secondary_xaxis("top", functions=to_and_from)
    above.set_xlabel("Hz", labelpad=2)
    above.spines["top"].set_visible(True)


def _summary(figure: Any, start: Layers, trained: Layers, lowest: float) -> None:
    """Medians and the middle 90% by layer."""
    titles = ("step size dt", "time constant (samples)", "cycles per sample")
    for axes, name, title in zip(figure.subplots(1, 3), Timescales._fields, titles, strict=True):
        floor = lowest if name == "frequency" else 0.0
        for shift, colour, each in ((-0.12, ORANGE, start), (0.12, BLUE, trained)):
            quantiles = [[max(x, floor) for x in one.quantiles(name)] for one in each]
            low, middle, high = zip(*quantiles, strict=True)
            x = [i + 1 + shift for i in range(len(each))]
            axes.vlines(x, low, high, color=colour, lw=2.2, alpha=0.6)
            axes.plot(x, middle, linestyle="", marker="o", ms=5, color=colour)
        axes.set(yscale="log", title=title, xlabel="layer", xlim=(0.5, len(start) + 0.5))
        axes.set_xticks(range(1, len(start) + 1))
        axes.grid(axis="y", color=FAINT, alpha=0.2, lw=0.5)
    note = f"median, and the middle 90%; frequencies below {lowest:.1g} are drawn there"
    figure.suptitle(note, fontsize=8, color=FAINT, x=0.995, ha="right")
