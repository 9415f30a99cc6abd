"""``s4d figure``: draw a figure into a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from s4d_torch.paper.figures import FIGURES, check_format, save_figure

if TYPE_CHECKING:
    Name = str
else:
    Name = Literal[tuple(FIGURES)]  # the help lists what is registered


@dataclass(frozen=True)
class Figure:
    """Draw a figure into a .png, .svg or .pdf file."""

    name: Annotated[Name, tyro.conf.Positional]
    """which figure"""
    out: Path
    """the file to write; its ending chooses the format"""

    def __post_init__(self) -> None:
        check_format(self.out)

    def run(self, console: Console) -> None:
        save_figure(self.name, self.out)
        console.print(f"wrote {self.out}", highlight=False)
