"""Where commands print: a console, tables and JSON. Imports neither torch nor training."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from s4d_torch._progress import visible


class VisibleConsole(Console):
    """A console on which labels and names of files do nothing but be read."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)  # before it is measured

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def as_json(content: Mapping[str, Any]) -> str:
    """One line of JSON; what is no finite number is null."""
    from s4d_torch.training.saved.run_folder import finite

    return json.dumps(finite(content), default=str)


def plain_table(*columns: str, **options: Any) -> Table:
    """Without vertical lines, for 80 columns, its title on the left; ``options`` are rich's."""
    usual = {"box": box.SIMPLE, "padding": (0, 1, 0, 0), "title_justify": "left"}
    return Table(*columns, **{**usual, **options})
