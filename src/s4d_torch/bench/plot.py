"""The picture: time and peak memory of layers against the length of a sequence."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from s4d_torch._extras import missing_package
from s4d_torch.bench.contenders import LISTING_FFT, OURS
from s4d_torch.bench.measure import Measurement
from s4d_torch.paper.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    OURS: style.BLUE,
    LISTING_FFT: style.RED,
    "nn.LSTM": style.GREEN,
    "nn.GRU": style.PURPLE,
    "nn.TransformerEncoderLayer": style.ORANGE,
}
OTHERS = (style.INK, style.FAINT, style.SKY)
LEFT_OUT = (f"{OURS} DSS",)  # its curve is that of S4D


def draw(records: Sequence[Measurement], out: Path) -> bool:
    """Draw the records of ``curve`` into a file; False if there are too few for a line."""
    curve = [r for r in records if r.work == "curve" and r.contender not in LEFT_OUT]
    if len({r.length for r in curve if r.seconds is not None}) < 2:
        return False
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package("pictures", "matplotlib", "plots") from error
    with rc_context(style.STYLE):
        figure = Figure((10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.set(title="time of a layer, forward and backward", ylabel="seconds")
        right.set(title="peak memory beyond inputs and parameters", ylabel="MB")
        _lines(left, [(r, r.seconds) for r in curve])
        _lines(right, [(r, None if r.bytes is None else r.bytes / 2**20) for r in curve])
        left.legend(loc="upper left")
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=130, metadata=style.FORMATS[out.suffix.lower()])
    return True


def _lines(axes: "Axes", points: list[tuple[Measurement, float | None]]) -> None:
    others = iter(OTHERS)
    for name in dict.fromkeys(record.contender for record, _ in points):
        line = [(r.length, y) for r, y in points if r.contender == name and y]
        if not line:
            continue
        color = COLORS.get(name) or next(others, style.FAINT)
        lengths, values = zip(*sorted(line), strict=True)
        width = 2.2 if name == OURS else 1.3
        axes.plot(lengths, values, color=color, lw=width, marker="o", ms=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("length $L$, batch 1")
    axes.grid(color=style.FAINT, alpha=0.2, linewidth=0.5)
