"""One self-contained HTML page: headings, paragraphs, tables that sort, charts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from s4d_torch._files import write_atomically

# 12, -3.5, 98.1%, 1,024, 50.10 (0.14), 0.3 [1 seed], (0.001, 0.1)
NUMBER = re.compile(r"[+−-]?[\d.,]+ ?[%xs]?( \([\d.]+\))?( \[[^]]*\])?|\([\d.]+, [\d.]+\)")
# Tables that are printed otherwise: in small letters, and over several sheets of paper.
WIDE, LONG = 10, 25


class Page:
    """Gathers the parts of a page in their order; everything it needs is inside it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []
        self._contents: list[tuple[str, str]] = []

    def heading(self, text: str) -> None:
        anchor = f"part-{len(self._contents) + 1}"
        self._contents.append((anchor, text))
        self._parts.append(f'<h2 id="{anchor}">{escape(text)}</h2>')

    def subheading(self, text: str) -> None:
        self._parts.append(f"<h3>{escape(text)}</h3>")

    def paragraph(self, text: str) -> None:
        self._parts.append(f"<p>{escape(text)}</p>")

    def code(self, text: str) -> None:
        self._parts.append(f'<pre tabindex="0"><code>{escape(text)}</code></pre>')

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
        """A table; a click or Enter on a heading sorts by that column."""
        head = "".join(
            f'<th scope="col" aria-sort="none"><button type="button">{escape(name)}</button></th>'
            for name in header
        )
        body = "".join(
            "<tr>" + "".join(f"<td{_align(cell)}>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        kinds = " ".join(["wide"] * (len(header) > WIDE) + ["long"] * (len(rows) > LONG))
        self._parts.append(
            f'<div class="scroll" tabindex="0"><table class="{kinds}">'
            f"<caption>{escape(caption)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def figure(self, svg: str, caption: str, legend: str = "") -> None:
        """An SVG as this package makes it; ``svg`` and ``legend`` are put in as they are."""
        self._parts.append(
            f"<figure>{svg}{legend}<figcaption>{escape(caption)}</figcaption></figure>"
        )

    def html(self) -> str:
        style, script = (_asset(name) for name in ("page.css", "page.js"))
        contents = "".join(
            f'<li><a href="#{anchor}">{escape(text)}</a></li>' for anchor, text in self._contents
        )
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<link rel="icon" href="data:,">\n'
            f"<title>{escape(self.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
            f"<header><h1>{escape(self.title)}</h1>\n<nav><ul>{contents}</ul></nav></header>\n"
            "<main>\n" + "\n".join(self._parts) + f"\n</main>\n<script>\n{script}</script>\n"
            "</body>\n</html>\n"
        )

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically({path: self.html().encode()})


def _asset(name: str) -> str:
    return files("s4d_torch.paper.report").joinpath("assets", name).read_text(encoding="utf-8")


def _align(cell: str) -> str:
    """Numbers stand to the right."""
    return ' class="number"' if NUMBER.fullmatch(cell) else ""
