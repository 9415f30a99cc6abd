"""The picture: time and peak memory of layers against the length of a sequence."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from s4d_torch._extras import missing_package
from s4d_torch.bench.contenders import LRNNX, LSTM, MAMBA, OFFICIAL, OURS, S5, TRANSFORMER
from s4d_torch.bench.measure import Measurement
from s4d_torch.paper.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    OURS: style.BLUE,
    OFFICIAL: style.RED,
    LSTM: style.GREEN,
    TRANSFORMER: style.ORANGE,
    S5: style.PURPLE,
    MAMBA: style.SKY,
    LRNNX: style.INK,
}
MOST_LINES = 8  # more cannot be told apart; the tables have the rest
MARKS = "os^Dv<>P"  # for print in grey


def draw(records: Sequence[Measurement], out: Path) -> bool:
    """Draw the records of ``curve`` into a file; False if there are too few for a line."""
    curve = [r for r in records if r.work == "curve" and r.seconds is not None]
    names = list(dict.fromkeys(r.contender for r in curve))[:MOST_LINES]
    if len({r.case.length for r in curve}) < 2:
        return False
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package("pictures", "matplotlib", "plots") from error
    with rc_context(style.STYLE):
        figure = Figure((10, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.set(title="time of a layer, forward and backward", ylabel="seconds")
        right.set(title="peak memory beyond inputs and parameters", ylabel="MB")
        c = curve[0].case
        where = "1 thread" if c.device == "cpu" and c.threads == 1 else f"{c.device}"
        for axes in (left, right):
            axes.set_xlabel(f"length $L$; batch {c.batch}, {c.d_model} channels, {where}")
        _lines(left, names, [(r, r.seconds) for r in curve])
        _lines(right, names, [(r, None if r.bytes is None else r.bytes / 2**20) for r in curve])
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=130, metadata=style.FORMATS[out.suffix.lower()])
    return True


def _lines(axes: "Axes", names: list[str], points: list[tuple[Measurement, float | None]]) -> None:
    for name, mark in zip(names, MARKS, strict=False):
        line = [(r.case.length, y) for r, y in points if r.contender == name and y]
        if not line:
            continue
        lengths, values = zip(*sorted(line), strict=True)
        ours = name == OURS
        axes.plot(
            lengths,
            values,
            color=COLORS.get(name, style.FAINT),
            lw=2.4 if ours else 1.3,
            marker=mark,
            ms=5 if ours else 4,
            label=name,
            zorder=3 if ours else 2,  # where lines meet, ours is seen
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.grid(color=style.FAINT, alpha=0.2, linewidth=0.5)
