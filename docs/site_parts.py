"""What this site makes of the package itself: formulas, parameters, the command line, the explorer.

An extension of Sphinx; ``conf.py`` names it. All of it works without a network.
"""

import contextlib
import inspect
import io
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.utils.math.latex2mathml import tex2mathml

from s4d_torch.cli import COMMANDS, main
from s4d_torch.cli.common.parsing import explanations
from s4d_torch.explore import explore_page
from s4d_torch.training.config import ModelConfig

EXPLORER = "explorer.html"
LIVE = ("words", "mnist")  # models whose pages can be opened in the site
WIDTH = "88"  # columns of help
# Commands within a command, and one whose flags depend on what it is given.
FURTHER = {"paper": ("list", "run", "report", "claims"), "train": ("digits",)}

# What the arguments of layers and models mean, each written once.
PARAMETERS = explanations(ModelConfig) | {
    "d_input": "features of a sample, or with an embedding the number of tokens",
    "d_output": "numbers or scores of an answer",
    "method": "a Method, which holds all choices; by default that of the class",
    "choices": "fields of Method by name, each in place of the method's own",
    "encoder": "linear for numbers (batch, length, d_input), embedding for tokens (batch, length), "
    "frames for samples that are square images",
    "towers": "2 reads pairs of sequences through the same blocks",
    "check_finite": "refuse NaN and infinity in the input, outside of compiled graphs",
    "generator": "of the random numbers of the first weights; by default torch's own",
    "device": "where parameters are; meta gives shapes without any work",
    "dtype": "of the parameters, float32 or float64; by default torch's own",
}


def visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    formula = tex2mathml(node.astext(), as_block=True)
    self.body.append(f'<div class="math">{formula}</div>\n')
    raise nodes.SkipNode


def describe_parameters(
    app: Any, what: str, name: str, subject: Any, options: Any, lines: list[str]
) -> None:
    """The arguments of the modules in ``s4d_torch.nn``, below what they say of themselves."""
    if what != "class" or not name.startswith("s4d_torch.nn.") or hasattr(subject, "_fields"):
        return
    if hasattr(subject, "__dataclass_fields__") or any(line.startswith(":param") for line in lines):
        return
    with contextlib.suppress(ValueError, TypeError):
        taken = [each for each in inspect.signature(subject).parameters if each in PARAMETERS]
        if len(taken) > 2:
            lines += ["", *(f":param {each}: {_one_line(PARAMETERS[each])}" for each in taken), ""]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def skip_made_members(
    app: Any, what: str, name: str, subject: Any, skip: bool, options: Any
) -> bool | None:
    """What others make of our classes, with words that say nothing here.

    The fields of a named tuple are in its signature ("Alias for field number 0"); scikit-learn's
    ``set_fit_request`` and the like refer to its own glossary.
    """
    said = getattr(subject, "__doc__", None) or ""
    routing = re.fullmatch(r"set_\w+_request", name.rpartition(".")[2])
    return True if routing or said.startswith("Alias for field number") else None


class CommandLine(Directive):
    """``{command-line}``: what every command says to --help, asked when the page is built."""

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for name in COMMANDS:
            section = nodes.section(ids=[f"s4d-{name}"])
            section += nodes.title("", f"s4d {name}")
            for words in ([name], *([name, each] for each in FURTHER.get(name, ()))):
                text = ask_for_help(words)
                section += nodes.literal_block(text, text, language="text")
            found.append(section)
        return found


def ask_for_help(words: list[str]) -> str:
    said, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(said):
            code = main([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    if code or not said.getvalue():
        raise RuntimeError(f"s4d {' '.join(words)} --help ended with {code} and said nothing")
    return said.getvalue().rstrip()


def write_explorer(app: Any, error: Exception | None) -> None:
    """The page of ``s4d explore`` beside the others, which ``explore.md`` has in a frame."""
    if error is None and app.builder.format == "html":
        Path(app.outdir, EXPLORER).write_text(explore_page(), "utf-8")


def write_models(app: Any, error: Exception | None) -> None:
    """Models that come with the package as pages, which ``models.md`` links to."""
    if error is not None or app.builder.format != "html":
        return
    for name in LIVE:
        with tempfile.TemporaryDirectory() as folder:
            if main(["export", name, "--to", "web", "--out", f"{folder}/page"]):
                raise RuntimeError(f"there is no page of the model {name!r}")
            page = Path(folder, "page", "index.html").read_text("utf-8")
        Path(app.outdir, f"{name}.html").write_text(page, "utf-8")


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.add_directive("command-line", CommandLine)
    app.connect("autodoc-process-docstring", describe_parameters)
    app.connect("autodoc-skip-member", skip_made_members)
    app.connect("build-finished", write_explorer)
    app.connect("build-finished", write_models)
    return {"parallel_read_safe": True}
