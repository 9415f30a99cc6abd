"""The paper's report: tables with ours beside the paper's, curves, figures, claims, machine."""

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from s4d_torch.data.task import TASKS
from s4d_torch.paper.claims import Claim, judge
from s4d_torch.paper.experiments.watch import label, outcome
from s4d_torch.paper.figures import FIGURES, save_figure
from s4d_torch.paper.recipes import REFERENCE_TABLES, Column, Recipe, describe_reduction
from s4d_torch.paper.report import page as parts
from s4d_torch.paper.report.chart import Line
from s4d_torch.paper.report.page import Heading, Page, PageBlock, Paragraph, Table
from s4d_torch.paper.results import Cell, Results, TableResults

INTRODUCTION = (
    'The tables and figures of "On the Parameterization and Initialization of Diagonal State '
    'Space Models", made by this software. Ours are means over seeds with the standard deviation '
    "in brackets, accuracies in per cent, errors as RMSE. At a reduced scale they show which "
    "choice is better, and are not comparable with the paper's numbers, which stand beside them."
)
JUDGEMENT = (
    "A finding of the experiments holds where every comparison of its rows supports it beyond "
    "noise, and fails where one contradicts it; anything else is not decided. Each comparison "
    "shows the difference in points of accuracy, or in per cent of an RMSE, positive where the "
    "first row is better, and its noise, half of a 95 % interval from the spread over seeds."
)


def write_report(results: Results, out: Path, *, figures: bool = True) -> None:
    """Write ``report.html``, one self-contained page, and ``report.md``; figures need ``plots``."""
    pictures = [out / "figures" / f"{name}.png" for name in FIGURES] if figures else []
    for picture in pictures:
        save_figure(picture.stem, picture)
    report = make_report(results, pictures)
    for name in ("report.html", "report.md"):
        report.save(out / name)


def make_report(results: Results, pictures: Sequence[Path] = ()) -> Page:
    """All that is known at this scale; tables without any result are named at the end."""
    page = Page(f"The paper, at scale '{results.scale}'", [Paragraph(INTRODUCTION)])
    for make in REFERENCE_TABLES.values():
        known = make()
        page.add(Heading(f"{known.title} ({known.where})"))
        page.add(Table(known.header, known.rows, known.title))
    for table in results.tables.values():
        if table.filled:
            page.add(*_table_blocks(table, results.scale))
    page.add(*_claim_blocks(results))
    if pictures:
        page.add(Heading("Figures"))
        page.add(*(parts.Picture(file, _caption(file.stem)) for file in pictures))
    page.add(Heading("Machine and commands"), *_machine_blocks(results))
    if empty := [name for name, table in results.tables.items() if not table.filled]:
        page.add(Paragraph(f"Not run at this scale: {', '.join(empty)}."))
    return page


def _caption(figure: str) -> str:
    """What a figure shows, by the description beside its definition."""
    drawn = FIGURES.get(figure)
    return f"{figure}: {' '.join((drawn.__doc__ or '').split())}" if drawn else figure


def _table_blocks(table: TableResults, scale: str) -> list[PageBlock]:
    """The heading, the table and its curves."""
    recipe, header = table.recipe, ["row"]
    names = [column.name for column in table.filled]
    printed = {name for name in names if any(row[name].published for row in table.cells.values())}
    for name in names:
        header += [name, f"{name}: paper", "difference"] if name in printed else [name]
    rows = [
        [row, *(part for name in names for part in _shown(cells[name], name in printed))]
        for row, cells in table.cells.items()
        if any(cells[name].values or cells[name].failed for name in names)
    ]
    caption = f"{recipe.title}; scale {scale}, seeds {', '.join(map(str, table.seeds))}"
    blocks: list[PageBlock] = [Heading(f"{recipe.title} ({recipe.where})")]
    notes = (recipe.note, _sizes(recipe, table.filled, scale))
    blocks += [Paragraph(text) for text in notes if text]
    blocks.append(Table(header, rows, caption))
    for column in table.filled:
        if column.value in ("test", "validation"):
            metric, caption = TASKS[column.task].metric, f"{recipe.title}: {column.name}"
            lines, y = _curves(table, column, f"validation_{metric}"), f"validation {metric}"
            blocks.append(parts.Chart(lines, "epoch", y, caption, metric == "accuracy"))
    return blocks


def _shown(cell: Cell, printed: bool) -> list[str]:
    """Ours, and beside it the paper's and the difference where the paper prints the column."""
    ours = str(cell)
    if cell.values and cell.missing:
        ours += f" [{len(cell.values)} seed{'s' * (len(cell.values) > 1)}]"
    difference = "" if cell.difference is None else f"{cell.difference:+.{cell.digits}f}"
    return [ours, cell.published or "", difference] if printed else [ours]


def _sizes(recipe: Recipe, columns: Sequence[Column], scale: str) -> str:
    """What is smaller than in the paper, task by task."""
    if scale == "full":
        return ""
    sizes = (
        f"{task} ({describe_reduction(recipe.base(task, 'full'), recipe.base(task, scale))})"
        for task in dict.fromkeys(column.task for column in columns)
    )
    return f"Reduced: {'; '.join(sizes)}."


def _curves(table: TableResults, column: Column, name: str) -> list[Line]:
    """The score ``name`` after each epoch, averaged over seeds, for each row that has runs."""
    lines = []
    for row, cells in table.cells.items():
        runs = [[epoch[name] for epoch in run.rows] for run in cells[column.name].finished]
        if runs:
            means = [statistics.fmean(scores) for scores in zip(*runs, strict=False)]
            lines.append(Line(row, [float(i + 1) for i in range(len(means))], means))
    return lines


def _claim_blocks(results: Results) -> list[PageBlock]:
    rows = []
    for stated, verdict in judge(results):
        statement = stated.statement
        if isinstance(stated, Claim) and stated.right:
            statement = f"printed: {statement} Right: {stated.right}"
        statement = f"{statement} ({stated.where})"
        rows.append([verdict.holds, statement, f"{verdict.effect} {verdict.detail}".strip()])
    counts = Counter(row[0] for row in rows)
    summary = ", ".join(f"{count} {holds}" for holds, count in counts.items())
    table = Table(["verdict", "claim", "numbers"], rows, f"{len(rows)} claims: {summary}")
    return [Heading("Claims"), Paragraph(JUDGEMENT), table]


def _machine_blocks(results: Results) -> list[PageBlock]:
    runs = results.in_tables()
    done = [run for run in runs if run.error is None]
    failed = [run for run in runs if run.error is not None]
    hours = sum(run.summary["wall_seconds"] for run in done) / 3600
    machines = {
        f"{run.environment['platform']}, {run.environment['cores']} cores, "
        f"torch {run.environment['torch']}, s4d-torch {run.environment['s4d_torch']}"
        for run in done
    }
    options = f"--scale {results.scale} --seeds {' '.join(map(str, results.seeds))}"
    return [
        Paragraph(f"{len(done)} runs, {hours:.1f} hours of one process in all."),
        *(Paragraph(machine) for machine in sorted(machines)),
        *(Paragraph(f"{label(run.config)}: {outcome(run)}") for run in failed),
        parts.Code("\n".join(f"s4d paper {do} {options}" for do in ("run all", "report"))),
    ]
