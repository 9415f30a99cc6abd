"""The Python examples in README.md and docs/ run, and print what the page says they print.

The blocks of one page share one namespace, in order, in a fresh interpreter. A ```text (or
```output) block directly after a ```python block is its expected output. Only a block marked
```python no-run is left out.
"""

import contextlib
import difflib
import io
import os
import re
import subprocess
import sys
import textwrap
import traceback
import types
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in [ROOT / "README.md"] if path.is_file()]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(.*?)\s*$")
PYTHON = re.compile(r"\{?\s*py", re.IGNORECASE)  # python, py, pycon, {python}, Python3, ...


@dataclass(frozen=True)
class Fence:
    """A fenced block: its info string, its text, and the lines of its fences (from 1)."""

    info: str
    text: str
    first: int
    last: int


@dataclass(frozen=True)
class Example:
    """Code that starts at a line of its page, and what it should print (None: anything)."""

    code: str
    line: int
    expected: str | None


def read_fences(page: str) -> list[Fence]:
    fences: list[Fence] = []
    opening: tuple[str, str, int] | None = None  # marker, info string, line
    body: list[str] = []
    for number, line in enumerate(page.splitlines(), start=1):
        match = FENCE.match(line)
        if opening is None:
            if match:
                opening, body = (match[1], match[2], number), []
        elif match and match[1].startswith(opening[0]) and not match[2]:
            text = textwrap.dedent("\n".join(body))
            fences.append(Fence(opening[1], text, first=opening[2], last=number))
            opening = None
        else:
            body.append(line)
    if opening is not None:
        raise ValueError(f"line {opening[2]}: the block '{opening[0]}{opening[1]}' is never closed")
    return fences


def read_examples(page: str) -> list[Example]:
    """The examples to run; a ValueError for a Python block with another info string."""
    lines, fences, examples = page.splitlines(), read_fences(page), []
    for fence, after in zip_longest(fences, fences[1:]):  # after: None for the last
        if PYTHON.match(fence.info) and fence.info not in ("python", "python no-run"):
            raise ValueError(
                f"line {fence.first}: expected 'python' or 'python no-run', got '{fence.info}'"
            )
        if fence.info != "python":
            continue
        shown = after is not None and after.info in ("text", "output")
        adjacent = after is not None and not "".join(lines[fence.last : after.first - 1]).strip()
        expected = after.text if after is not None and shown and adjacent else None
        examples.append(Example(fence.text, line=fence.first + 1, expected=expected))
    return examples


def trim(text: str) -> list[str]:
    """The lines without what the eye cannot see: spaces at their ends, empty lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def run_page(path: Path) -> str | None:
    """Run the examples of a page in this interpreter; the first problem, or None."""
    try:
        examples = read_examples(path.read_text("utf-8"))
    except ValueError as error:
        return f"{path.name}: {error}"
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # so that classes of an example can be pickled
    for example in examples:
        where, output = f"{path.name}, line {example.line}", io.StringIO()
        # Line numbers and file name of the page: tracebacks and `inspect` show the page itself.
        source = "\n" * (example.line - 1) + example.code
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(source, str(path), "exec"), module.__dict__)
        except BaseException:  # SystemExit too: a page that stops early has not been checked
            return f"{where}: the example raises\n{traceback.format_exc()}"
        printed = output.getvalue()
        if example.expected is not None and trim(printed) != trim(example.expected):
            diff = difflib.unified_diff(
                trim(example.expected), trim(printed), "on the page", "printed", lineterm=""
            )
            return "\n".join([f"{where}: the output differs", *diff])
    return None


def check(path: Path, folder: Path) -> None:
    """Run the page in a fresh interpreter, in `folder`, with warnings as errors."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "MPLBACKEND": "agg"}
    command = [sys.executable, "-W", "error", str(Path(__file__).resolve()), str(path.resolve())]
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8"
    )
    if result.returncode != 0:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path)


# ---- the check itself -------------------------------------------------------------------------

GOOD = """
```python
from pathlib import Path
x = [1, 2]
Path("written").touch()
```
Some words, and a block that is no example.
```bash
exit 1
```
1. Indented, with trailing spaces on the page:

   ```python
   for item in x:
       print(item, "")
   ```

   ```text
   1
   2
   ```
```python no-run
raise RuntimeError
```
```text
anything
```
"""


def failure(page: str, folder: Path) -> str:
    path = folder / "page.md"
    path.write_text(page, "utf-8")
    with pytest.raises(pytest.fail.Exception) as error:
        check(path, folder)
    return str(error.value)


def test_a_good_page_passes_and_runs_in_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(GOOD, "utf-8")
    check(path, tmp_path)
    assert (tmp_path / "written").exists()


def test_other_output_fails_and_shows_the_difference(tmp_path: Path) -> None:
    message = failure("```python\nprint(1)\nprint(2)\n```\n\n```output\n1\n3\n```\n", tmp_path)
    assert "page.md, line 2: the output differs" in message
    assert "-3\n+2" in message


def test_no_output_where_some_is_shown_fails(tmp_path: Path) -> None:
    assert "the output differs" in failure("```python\n1\n```\n```text\n1\n```\n", tmp_path)


@pytest.mark.parametrize(
    "code", ["1 / 0", "def f(:", "raise SystemExit(0)", "import os; undefined"]
)
def test_an_example_that_raises_fails_with_the_line_of_the_page(code: str, tmp_path: Path) -> None:
    message = failure(f"# Title\n\n```python\n{code}\n```\n", tmp_path)
    assert "page.md, line 4: the example raises" in message
    assert 'page.md", line 4' in message


def test_a_warning_fails(tmp_path: Path) -> None:
    page = "```python\nimport warnings\nwarnings.warn('old')\n```\n"
    assert "UserWarning: old" in failure(page, tmp_path)


@pytest.mark.parametrize("info", ["py", "Python", "python3", "python skip", "pycon", "{python}"])
def test_no_other_mark_excludes_a_block(info: str, tmp_path: Path) -> None:
    message = failure(f"```{info}\n1\n```\n", tmp_path)
    assert f"page.md: line 1: expected 'python' or 'python no-run', got '{info}'" in message


def test_a_block_that_is_never_closed_fails(tmp_path: Path) -> None:
    assert "line 2: the block '```python' is never closed" in failure("\n```python\n1", tmp_path)


if __name__ == "__main__":
    sys.exit(run_page(Path(sys.argv[1])))
