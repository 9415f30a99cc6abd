"""Tables without vertical lines, narrow enough for 80 columns."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table


def plain_table(*columns: str, **options: Any) -> Table:
    """A table with its title, if it has one, on the left; ``options`` are those of rich."""
    usual = {"box": box.SIMPLE, "padding": (0, 1, 0, 0), "title_justify": "left"}
    return Table(*columns, **{**usual, **options})
