"""A report as blocks, which become an HTML page or Markdown."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from s4d_torch.paper.report.chart import Line, legend, line_chart
from s4d_torch.paper.report.page import Page


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str


@dataclass(frozen=True)
class Chart:
    """Curves; only the page shows them."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    caption: str
    percent: bool = False


@dataclass(frozen=True)
class Picture:
    """A PNG file; the page takes it in, Markdown links to it."""

    file: Path
    caption: str


Block = Heading | Paragraph | Code | Table | Chart | Picture


@dataclass
class Document:
    """A title and the blocks below it."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        self.blocks += blocks

    def page(self) -> Page:
        """All blocks as one self-contained page."""
        page = Page(self.title)
        for block in self.blocks:
            match block:
                case Heading(text, level):
                    page.heading(text) if level == 2 else page.subheading(text)
                case Paragraph(text):
                    page.paragraph(text)
                case Code(text):
                    page.code(text)
                case Table(header, rows, caption):
                    page.table(header, rows, caption)
                case Chart(lines, x_label, y_label, caption, percent):
                    chart = line_chart(
                        lines, x_label=x_label, y_label=y_label, title=caption, percent=percent
                    )
                    page.figure(chart, caption, legend([line.name for line in lines]))
                case Picture(file, caption):
                    page.figure(_embedded(file, caption), caption)
        return page

    def markdown(self, folder: Path) -> str:
        """The blocks as Markdown for a file in ``folder``; charts are left to the page."""
        parts = [f"# {self.title}"]
        for block in self.blocks:
            match block:
                case Heading(text, level):
                    parts.append(f"{'#' * level} {text}")
                case Paragraph(text):
                    parts.append(text)
                case Code(text):
                    parts.append(f"```sh\n{text}\n```")
                case Table(header, rows, caption):
                    parts += [caption, _markdown_table(header, rows)]
                case Picture(file, caption):
                    parts.append(f"![{caption}]({_relative(file, folder)})")
        return "\n\n".join(parts) + "\n"


def _embedded(file: Path, caption: str) -> str:
    content = base64.b64encode(file.read_bytes()).decode()
    return f'<img alt="{escape(caption)}" src="data:image/png;base64,{content}">'


def _relative(file: Path, folder: Path) -> str:
    return Path(os.path.relpath(file, folder)).as_posix()


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
