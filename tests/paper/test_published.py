"""Every number of the paper in this package, against the paper's own source."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks import speech
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.recipes.reference_tables import choices, hyperparameters

Rows = list[list[str]]


def read_tables(text: str) -> dict[str, Rows]:
    """The cells of every table by its label, without markup; pictures of tables have none."""
    found = {}
    for body, label in re.findall(
        r"\\begin{tabular}{[^}]*}(.*?)\\end{tabular}(?:(?!\\begin{tabular}).)*?\\label{(tab:[^}]*)}",
        text,
        re.DOTALL,
    ):
        lines = (line.partition(r"\\")[0] for line in body.splitlines())
        cells = ([_plain(cell) for cell in line.split("&")] for line in lines if "&" in line)
        found[label] = list(cells)
    return found


def _plain(cell: str) -> str:
    cell = cell.replace(r"\xmark", "✗").replace(r"{\bf", r"\textbf{")
    cell = re.sub(r"~?\\cite[a-z]*{[^}]*}", "", cell)
    cell = re.sub(
        r"\\(?:textbf|underline|textsc|bm|text|multicolumn{\d}{\w}){([^{}]*)}", r"\1", cell
    )
    return re.sub(r"\\[()]", "", cell).strip()


@pytest.fixture(scope="module")
def tables(shared: Path) -> dict[str, Rows]:
    return read_tables((shared / "paper/S4D.tex").read_text(encoding="utf-8"))


def by_first(rows: Rows) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in rows}


def by_two(first: dict[str, str], second: dict[str, str]) -> Callable[[Rows], dict[str, list[str]]]:
    def read(rows: Rows) -> dict[str, list[str]]:
        known = (row for row in rows if row[0] in first and row[1] in second)
        return {f"{first[row[0]]}, {second[row[1]]}": row[2:] for row in known}

    return read


def number(text: str) -> str:
    """``8.74 (0.57)`` of ``08.74 (0.57)``."""
    return re.sub(r"^0(?=\d)", "", text)


# The table of the source behind each of ours, how its rows are named, and which columns are ours.
SOURCES: dict[str, tuple[str, Callable[[Rows], dict[str, list[str]]], list[int]]] = {
    "trainable-b": (
        "tab:ablations-disc-full",
        by_two(
            {"No": "frozen B", "Yes": "trained B"},
            {"Softmax": "softmax", "Vandermonde": "Vandermonde"},
        ),
        [0, 1, 2],
    ),
    "discretization": (
        "tab:ablations-real-full",
        by_two({"Bilinear": "bilinear", "ZOH": "zoh"}, {"Exp": "exp", "-": "none", "ReLU": "ReLU"}),
        [0, 1, 2],
    ),
    "large": ("tab:full", by_first, [0, 2, 3, 4, 5]),
    "speech-ar": ("tab:full", by_first, [1]),
    "scifar-full": ("tab:scifar-full", by_first, [0]),
    "bidmc-full": ("tab:bidmc-full", by_first, [0, 1, 2]),
    "speech-rates": ("tab:sc-full", by_first, [1, 2]),
    "lra": ("tab:lra", by_first, [0, 1, 2, 3, 4, 5]),
    "original-s4": ("tab:lra", by_first, [3, 1]),
    "pathx-ablation": (
        "tab:pathx-ablation",
        lambda rows: {
            row: [cell] for row, cell in zip(RECIPES["pathx-ablation"].rows, rows[1], strict=True)
        },
        [0],
    ),
}


def test_every_table_with_numbers_has_a_source() -> None:
    assert set(SOURCES) == {name for name, recipe in RECIPES.items() if recipe.published}


@pytest.mark.parametrize("name", SOURCES)
def test_a_table_has_the_papers_numbers(name: str, tables: dict[str, Rows]) -> None:
    label, read, places = SOURCES[name]
    printed, recipe = read(tables[label]), RECIPES[name]
    columns = [column.name for column in recipe.columns]
    for row, cells in (recipe.published | recipe.borrowed).items():
        theirs = {c: number(printed[row][place]) for c, place in zip(columns, places, strict=True)}
        assert dict(cells) == theirs, row


@pytest.mark.parametrize(
    ("name", "column", "place"), [("speech-rates", "parameters", 0), ("lra", "Avg", 6)]
)
def test_further_columns_are_the_papers(
    name: str, column: str, place: int, tables: dict[str, Rows]
) -> None:
    label, read, _ = SOURCES[name]
    printed = read(tables[label][1:])
    assert dict(RECIPES[name].extra[column]) == {
        row: cells[place] for row, cells in printed.items()
    }


@pytest.mark.parametrize("name", ["scifar-full", "bidmc-full", "speech-rates", "lra"])
def test_no_row_of_a_table_is_missing(name: str, tables: dict[str, Rows]) -> None:
    label, read, _ = SOURCES[name]
    assert set(read(tables[label][1:])) == {*RECIPES[name].published, *RECIPES[name].cited}


def test_the_methods_choose_what_the_paper_says(tables: dict[str, Rows]) -> None:
    """Word for word but where the paper leaves S4D open, "either" or "various"."""
    table = choices()
    words = {"identity": "id (none)", "legs": "HiPPO"}
    for method, *ours in table.rows:
        [row] = [row for row in tables["tab:parameterization"] if row[0] == method]
        for name, choice, printed in zip(table.header[1:], ours, row[1:], strict=True):
            said = printed.replace("HiPPO-D", "HiPPO").lower()
            allowed = words.get(choice, choice).lower()
            assert allowed in said or said in ("either", "optional", "various"), (method, name)


def test_the_choices_on_path_x_are_in_the_papers_order(tables: dict[str, Rows]) -> None:
    heads = tables["tab:pathx-ablation"][0]
    starts = ["S4D", "Identity", "ReLU", "ZOH disc", "Frozen", "ZOH + softmax", "DSS"]
    assert all(head.startswith(start) for head, start in zip(heads, starts, strict=True))


def test_the_averages_of_the_arena_count_a_guess(tables: dict[str, Rows]) -> None:
    for row, (*cells, average) in by_first(tables["tab:lra"][1:]).items():
        means = [50.0 if cell == "✗" else float(cell.partition(" ")[0]) for cell in cells]
        assert sum(means) / 6 == pytest.approx(float(average), abs=0.006), row


def test_tasks_have_the_papers_numbers(tables: dict[str, Rows]) -> None:
    def means(label: str, place: int) -> dict[str, float]:
        rows = by_first(tables[label][1:])
        known = {row: cells[place].partition(" ")[0] for row, cells in rows.items()}
        return {row: float(cell) for row, cell in known.items() if cell not in ("✗", "-")}

    def agree(ours: dict[str, float], theirs: dict[str, float]) -> None:
        assert len(ours) >= 4
        assert ours == {row: theirs.get(row) for row in ours}

    agree(dict(TASKS["scifar"].published), means("tab:scifar-full", 0))
    for place, task in enumerate(("bidmc-hr", "bidmc-rr", "bidmc-spo2")):
        agree(dict(TASKS[task].published), means("tab:bidmc-full", place))
    agree({row: each[0] for row, each in speech.PUBLISHED.items()}, means("tab:sc-full", 1))
    arena = ("listops", "text", "retrieval", "image", "pathfinder", "pathx")
    for place, task in enumerate(arena):
        agree(dict(TASKS[task].published), means("tab:lra", place))


def test_hyperparameters_are_the_papers(tables: dict[str, Rows]) -> None:
    printed = by_first(tables["tab:lra-hyperparameters"][1:])
    for name, *cells in hyperparameters().rows:
        theirs = [cell.replace("~", "") for cell in printed[name]]
        ours = [cell.removesuffix(".0") if cell != "(0.001, 0.1)" else cell for cell in cells]
        assert ours == theirs, name
