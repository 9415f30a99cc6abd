"""Figures, in one style; each is registered under the name by which the command line draws it."""

from __future__ import annotations

from pathlib import Path

from s4d_torch._extras import missing_package
from s4d_torch.paper.figures.style import (
    BLUE,
    DOTS_PER_INCH,
    FAINT,
    FIGURES,
    FORMATS,
    GREEN,
    INK,
    ORANGE,
    RED,
    STYLE,
)

# Each registers its figures, and this is their order in the paper.
# isort: off
from s4d_torch.paper.figures import overview as figures_overview  # noqa: F401
from s4d_torch.paper.figures import kernels as figures_kernels  # noqa: F401
from s4d_torch.paper.figures import legs as figures_legs  # noqa: F401
from s4d_torch.paper.figures import eigenvalues as figures_eigenvalues  # noqa: F401
from s4d_torch.paper.figures import low_rank as figures_low_rank  # noqa: F401
# isort: on

__all__ = [
    "BLUE",
    "FAINT",
    "FIGURES",
    "FORMATS",
    "GREEN",
    "INK",
    "ORANGE",
    "RED",
    "STYLE",
    "check_format",
    "save_figure",
]


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
