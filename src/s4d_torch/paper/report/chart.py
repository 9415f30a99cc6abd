"""Line charts as SVG text: for pages that open anywhere, without a network or a plotting library.

Colours are classes (``s0`` to ``s7``) that the style sheet defines for light and dark; dashes
tell the lines apart as well, for print and for eyes that see colours otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 74, 12, 12, 44
DASHES = ("", "6 3", "2 3", "8 3 2 3", "12 4", "4 4", "1 3", "10 3 4 3")


@dataclass(frozen=True)
class Line:
    """A named curve."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def line_chart(
    lines: Sequence[Line], x_label: str, y_label: str, title: str, *, percent: bool = False
) -> str:
    """An SVG of axes, grid and lines; points that are not finite break a line in two."""
    points = [
        (x, y)
        for line in lines
        for x, y in zip(line.x, line.y, strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]
    if not points:
        return f'<p class="empty">{escape(title)}: nothing to draw</p>'
    xs, ys = zip(*points, strict=True)
    whole = all(float(x).is_integer() for x in xs)  # as epochs are
    x_ticks, y_ticks = ticks(min(xs), max(xs), whole=whole), ticks(min(ys), max(ys))
    across = _scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    up = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>'
    ]
    for value in y_ticks:
        shown = f"{100 * value:.4g}%" if percent else f"{value:g}"
        y = up(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{shown}</text>')
    for value in x_ticks:
        x, y = across(value), HEIGHT - BOTTOM + 18
        parts.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{value:g}</text>')
    parts += [
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>',
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(x_label)}</text>",
        f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {HEIGHT / 2})">{escape(y_label)}</text>',
    ]
    parts += [_path(line, i, across, up) for i, line in enumerate(lines)]
    return "".join(parts) + "</svg>"


def legend(names: Sequence[str]) -> str:
    """The names of the lines beside a short piece of each."""
    items = "".join(
        f'<li><svg viewBox="0 0 32 8" aria-hidden="true"><path {_style(i)} d="M0 4H32"/></svg>'
        f"{escape(name)}</li>"
        for i, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


def ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers that cover low to high, about ``count`` of them; whole ones if asked for."""
    if high <= low:
        span = abs(high) or 1.0
        low, high = low - span / 2, high + span / 2
    rough = (high - low) / count
    size = 10.0 ** math.floor(math.log10(rough))
    step = size * next(m for m in (1, 2, 2.5, 5, 10) if m * size >= rough * (1 - 1e-9))
    step = math.ceil(step) if whole else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _scale(low: float, high: float, start: float, end: float):  # type: ignore[no-untyped-def]
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _path(line: Line, index: int, across, up) -> str:  # type: ignore[no-untyped-def]
    commands, pen = [], "M"
    for x, y in zip(line.x, line.y, strict=True):
        if math.isfinite(x) and math.isfinite(y):
            commands.append(f"{pen}{across(x):.1f} {up(y):.1f}")
            pen = "L"
        else:
            pen = "M"
    name = escape(line.name)
    return f'<path {_style(index)} d="{"".join(commands)}"><title>{name}</title></path>'


def _style(index: int) -> str:
    """Colour and dashes: after eight lines the colours come again, with other dashes."""
    dashes = DASHES[(index + index // 8) % 8]
    return f'class="line s{index % 8}" stroke-dasharray="{dashes}"'
