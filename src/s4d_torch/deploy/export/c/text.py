"""Numbers, arrays and words as C99: every number is read back as exactly the one it was."""

import re
import textwrap
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

C_TYPES = {torch.float32: "float", torch.float64: "double", torch.int8: "int8_t"}
LINE = 96  # columns


def initializer(values: Tensor, indent: str = "") -> str:
    """A tensor as nested braces; ``indent`` is that of the lines after the first."""
    inner = indent + "    "
    if values.ndim > 1:
        rows = [f"{inner}{initializer(row, inner)}" for row in values]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    return "{\n" + "\n".join(_lines(_numbers(values), inner)) + f"\n{indent}}}"


def array(name: str, values: Tensor, size: str, kind: str | None = None) -> str:
    """``static const float name[size] = {...};`` with the sizes as C writes them."""
    return f"static const {kind or C_TYPES[values.dtype]} {name}{size} = {initializer(values)};\n"


def number(value: float) -> str:
    """One number as a float of C."""
    return _numbers(torch.tensor([value], dtype=torch.float32))[0]


def _numbers(values: Tensor) -> list[str]:
    """Shortest decimals that are read back as the same numbers; one axis."""
    if not values.is_floating_point():
        return [str(number) for number in values.tolist()]
    if not bool(values.isfinite().all()):
        raise ValueError(
            f"a weight of the model is NaN or too large for {C_TYPES[values.dtype]}; "
            "nothing was written"
        )
    suffix = "f" if values.dtype == torch.float32 else ""
    return [_decimal(number) + suffix for number in values.numpy()]


def _decimal(number: np.floating) -> str:
    """``1.0`` and ``1e-05``, never ``1``: with an f behind it that is no number of C."""
    word = str(number)  # numpy's shortest
    return word if any(mark in word for mark in ".e") else word + ".0"


def _lines(words: Sequence[str], indent: str) -> Iterator[str]:
    """Numbers with commas between them, as many on a line as there is room for."""
    line = indent
    for i, word in enumerate(words):
        piece = word + ("," if i + 1 < len(words) else "")
        if len(line) > len(indent) and len(line) + 1 + len(piece) > LINE:
            yield line
            line = indent
        line += piece if line == indent else f" {piece}"
    yield line


def renamed(code: str, name: str) -> str:
    """Functions, types, macros and files that begin with s4d, beginning with another name."""
    code = re.sub(r"\bs4d(?=_|\.[ch]\b)", name, code)
    return re.sub(r"\bS4D(?=_)", name.upper(), code)


def string(word: str) -> str:
    """A literal of any text; what is not plain ASCII is written in octal, which ends by itself."""
    plain = set(map(chr, range(32, 127))) - set('"\\?')  # ?? would begin a trigraph
    escaped = (
        char if char in plain else "".join(f"\\{byte:03o}" for byte in char.encode("utf-8"))
        for char in word
    )
    return '"' + "".join(escaped) + '"'


def comment(words: str) -> str:
    """A block comment of wrapped paragraphs; lines that begin with a space stay as they are."""
    lines: list[str] = []
    for line in words.strip("\n").split("\n"):
        kept = [line.rstrip()] if not line or line[0] == " " else textwrap.wrap(line, LINE - 4)
        lines += kept
    body = "\n".join(f" * {_plain(line)}".rstrip() for line in lines)
    return f"/*{body[2:]} */\n" if len(lines) == 1 else f"/*\n{body}\n */\n"


def _plain(words: str) -> str:
    """Words that cannot end a comment, begin one or hold what a terminal would obey."""
    words = words.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").rstrip("\\")
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in words)
