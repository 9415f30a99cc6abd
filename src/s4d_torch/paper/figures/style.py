"""One style for all figures, the registry they are drawn from, and how one is saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s4d_torch._extras import missing_package
from s4d_torch._registry import Registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Endings of files, with the metadata that would make two runs differ taken out.
FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
DOTS_PER_INCH = 180
WIDTH = 7.2  # inches: the text of a printed page, so that letters keep their size

# Okabe and Ito: told apart by all eyes, and in grey.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY = "#CC79A7", "#56B4E9"
INK, FAINT = "#333333", "#8a8a8a"
SERIES = (BLUE, ORANGE, GREEN, RED, INK)
DASHES: tuple[Any, ...] = ("-", "-", (0, (6, 1)), (0, (6, 1, 1.5, 1)), "-")  # for print in grey
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
    "pdf.fonttype": 42,  # letters as TrueType, which printers and journals take
}

# The diagonal starts: the paper's name, and its colour in every figure.
STARTS = {
    "legs": ("S4D-LegS", BLUE),
    "inv": ("S4D-Inv", ORANGE),
    "lin": ("S4D-Lin", GREEN),
    "inv2": ("S4D-Inv2", PURPLE),
    "quad": ("S4D-Quad", RED),
    "rand": ("S4D-Rand", SKY),
    "real": ("S4D-Real", INK),
}

FIGURES: Registry[Callable[[], Figure]] = Registry("figure")


def page(
    height: float, width: float = WIDTH, *, hspace: float = 0.02, wspace: float = 0.04
) -> Figure:
    """An empty figure; the spaces between panels are those of the constrained layout."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure((width, height), layout=ConstrainedLayoutEngine(hspace=hspace, wspace=wspace))


def panel_title(axes: Axes, text: str, letter: str = "") -> None:
    """A title at the left edge, after the panel's letter."""
    axes.set_title(f"({letter}) {text}" if letter else text, loc="left", fontsize=9.5)


def darker(color: str) -> str:
    """The colour for letters, which need more contrast than lines."""
    red, green, blue = (round(0.65 * int(color[i : i + 2], 16)) for i in (1, 3, 5))
    return f"#{red:02x}{green:02x}{blue:02x}"


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
        figure.savefig(out, dpi=DOTS_PER_INCH, metadata=FORMATS[out.suffix.lower()])


def check_format(out: Path) -> None:
    """Refuse a file name whose ending names no format."""
    if out.suffix.lower() not in FORMATS:
        raise ValueError(f"out must end in one of {', '.join(FORMATS)}; got {out.name!r}")
