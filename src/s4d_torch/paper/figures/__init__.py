"""The paper's figures, in one style; each is registered under the name that draws it.

A module of figures is added to the imports below, which give the order in the paper.
"""

from s4d_torch.paper.figures.style import (
    BLUE,
    FAINT,
    FIGURES,
    FORMATS,
    GREEN,
    INK,
    ORANGE,
    RED,
    STYLE,
    check_format,
    save_figure,
)

# isort: off
from s4d_torch.paper.figures import overview
from s4d_torch.paper.figures import starts
from s4d_torch.paper.figures import legs
from s4d_torch.paper.figures import eigenvalues
from s4d_torch.paper.figures import low_rank
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
    "eigenvalues",
    "legs",
    "low_rank",
    "overview",
    "save_figure",
    "starts",
]
