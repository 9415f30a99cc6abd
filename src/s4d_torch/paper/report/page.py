"""A page of blocks, as one self-contained HTML file or as Markdown."""

import base64
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from s4d_torch._files import write_atomically
from s4d_torch._progress import visible
from s4d_torch.paper.report.chart import Line, legend, line_chart

# 12, -3.5, 98.1%, 1,024, 50.10 (0.14), 0.3 [1 seed], (0.001, 0.1)
NUMBER = re.compile(r"[+−-]?[\d.,]+ ?[%xs]?( \([\d.]+\))?( \[[^]]*\])?|\([\d.]+, [\d.]+\)")
# Cells that say how a claim fares; the words are there too, for print and other eyes.
VERDICTS = {
    "holds": "holds",
    "fails": "fails",
    "holds in part": "part",
    "not decided": "open",
}
# Tables that are printed otherwise: in small letters, and over several sheets of paper.
WIDE, LONG = 10, 25


class PageBlock(Protocol):
    """A part of a page in its two forms; Markdown knows the folder it will be in."""

    def html(self) -> str: ...
    def markdown(self, folder: Path) -> str: ...


@dataclass(frozen=True)
class Heading:
    """A line of the table of contents, which leads to ``anchor``."""

    text: str
    anchor: str = ""

    def html(self) -> str:
        return f'<h2 id="{self.anchor}">{escape(self.text)}</h2>'

    def markdown(self, folder: Path) -> str:
        return f"## {self.text}"


@dataclass(frozen=True)
class Paragraph:
    text: str

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>"

    def markdown(self, folder: Path) -> str:
        return self.text


@dataclass(frozen=True)
class Code:
    text: str

    def html(self) -> str:
        return f'<pre tabindex="0"><code>{escape(self.text)}</code></pre>'

    def markdown(self, folder: Path) -> str:
        return f"```sh\n{self.text}\n```"


@dataclass(frozen=True)
class Bullets:
    """A list of short paragraphs, each with the words that it is found by."""

    items: Sequence[tuple[str, str]]

    def html(self) -> str:
        items = (f"<li><b>{escape(name)}</b>: {escape(text)}</li>" for name, text in self.items)
        return f"<ul>{''.join(items)}</ul>"

    def markdown(self, folder: Path) -> str:
        return "\n".join(f"- **{name}**: {text}" for name, text in self.items)


@dataclass(frozen=True)
class Table:
    """A table; on a page a click or Enter on a heading sorts by that column."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str

    def html(self) -> str:
        head = "".join(
            f'<th scope="col" aria-sort="none"><button type="button">{escape(name)}</button></th>'
            for name in self.header
        )
        body = "".join(
            "<tr>" + "".join(f"<td{_align(cell)}>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        kinds = ["wide"] * (len(self.header) > WIDE) + ["long"] * (len(self.rows) > LONG)
        return (
            f'<div class="scroll" tabindex="0"><table class="{" ".join(kinds)}">'
            f"<caption>{escape(self.caption)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def markdown(self, folder: Path) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
        return f"{self.caption}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in cells)


@dataclass(frozen=True)
class Chart:
    """Curves; only the page shows them."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    caption: str
    percent: bool = False
    title: str = ""
    """for those who do not see it; by default the caption"""

    def html(self) -> str:
        title = self.title or self.caption
        svg = line_chart(self.lines, self.x_label, self.y_label, title, percent=self.percent)
        return _figure(svg + legend([line.name for line in self.lines]), self.caption)

    def markdown(self, folder: Path) -> str:
        return ""


@dataclass(frozen=True)
class Picture:
    """A PNG file; the page takes it in, Markdown links to it."""

    file: Path
    caption: str

    def html(self) -> str:
        content = base64.b64encode(self.file.read_bytes()).decode()
        image = f'<img alt="{escape(self.caption)}" src="data:image/png;base64,{content}">'
        return _figure(image, self.caption)

    def markdown(self, folder: Path) -> str:
        return f"![{self.caption}]({Path(os.path.relpath(self.file, folder)).as_posix()})"


@dataclass(frozen=True)
class Sound:
    """A wav file to be heard; only the page has it, with a player."""

    wav: bytes
    caption: str

    def html(self) -> str:
        content = base64.b64encode(self.wav).decode()
        player = f'<audio controls src="data:audio/wav;base64,{content}"></audio>'
        return _figure(player, self.caption)

    def markdown(self, folder: Path) -> str:
        return ""


@dataclass
class Page:
    """A title and the blocks below it."""

    title: str
    blocks: list[PageBlock] = field(default_factory=list)

    def add(self, *blocks: PageBlock) -> None:
        self.blocks += blocks

    def html(self) -> str:
        """All in one file: it needs nothing else, and no network."""
        assets = files("s4d_torch.paper.report") / "assets"
        style, script = ((assets / name).read_text("utf-8") for name in ("page.css", "page.js"))
        headings: list[Heading] = []
        parts: list[str] = []
        for block in self.blocks:
            if isinstance(block, Heading):
                block = Heading(block.text, f"part-{len(headings) + 1}")
                headings.append(block)
            parts.append(block.html())
        contents = "".join(
            f'<li><a href="#{each.anchor}">{escape(each.text)}</a></li>' for each in headings
        )
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<link rel="icon" href="data:,">\n'
            f"<title>{escape(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
            f"<header><h1>{escape(self.title)}</h1>\n<nav><ul>{contents}</ul></nav></header>\n"
            "<main>\n" + "\n".join(parts) + f"\n</main>\n<script>\n{script}</script>\n"
            "</body>\n</html>\n"
        )

    def markdown(self, folder: Path) -> str:
        """For a file in ``folder``; charts are left to the page."""
        parts = [f"# {self.title}", *(block.markdown(folder) for block in self.blocks)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def save(self, path: Path) -> None:
        """Write ``path`` as HTML, or as Markdown by its ending; whole or not at all."""
        text = self.markdown(path.parent) if path.suffix == ".md" else self.html()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically({path: visible(text).encode()})


def _figure(content: str, caption: str) -> str:
    return f"<figure>{content}<figcaption>{escape(caption)}</figcaption></figure>"


def _align(cell: str) -> str:
    """Numbers stand to the right, verdicts have their colour."""
    if cell in VERDICTS:
        return f' class="verdict {VERDICTS[cell]}"'
    return ' class="number"' if NUMBER.fullmatch(cell) else ""
