"""The paper's report: tables with ours beside the paper's, curves, figures, claims, machine."""

import os
import shlex
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.experiment import Result
from s4d_torch.paper.experiments.watch import label, outcome
from s4d_torch.paper.figures import FIGURES, save_figure
from s4d_torch.paper.recipes import REFERENCE_TABLES, Column, Recipe, describe_reduction
from s4d_torch.paper.report import page as parts
from s4d_torch.paper.report.chart import Line
from s4d_torch.paper.report.page import Heading, Page, PageBlock, Paragraph, Table
from s4d_torch.paper.report.reproduction import make_reproduction
from s4d_torch.paper.report.verdicts import claim_blocks, overview_blocks
from s4d_torch.paper.results import Cell, Results, TableResults
from s4d_torch.training.metrics import METRICS

MOST_LINES = 8  # of a chart, as many as there are colours

INTRODUCTION = (
    'The tables and figures of "On the Parameterization and Initialization of Diagonal State '
    'Space Models", made by this software. Ours are means over seeds with the standard deviation '
    "in brackets, accuracies in per cent, errors as RMSE. At a reduced scale they are not "
    "comparable with the paper's numbers, which stand beside them; differences between rows are, "
    "as far as the scale does not make them."
)


def write_report(
    results: Results, out: Path, *, figures: bool = True, reproduction: Path | None = None
) -> None:
    """Write ``report.html``, one self-contained page, and ``report.md``; figures need ``plots``.

    Without ``figures`` it shows those that were drawn before. The short form for a reviewer is
    ``reproduction``, by default ``reproduction.md`` beside them.
    """
    pictures = [out / "figures" / f"{name}.png" for name in FIGURES]
    for picture in pictures if figures else ():
        save_figure(picture.stem, picture)
    pictures = [picture for picture in pictures if picture.exists()]
    report = make_report(results, pictures)
    for name in ("report.html", "report.md"):
        report.save(out / name)
    short = reproduction or out / "reproduction.md"
    whole = Path(os.path.relpath(out / "report.md", short.parent)).as_posix()
    make_reproduction(results, whole).save(short)


def make_report(results: Results, pictures: Sequence[Path] = ()) -> Page:
    """All that is known at this scale; tables without any result are named at the end."""
    page = Page(f"The paper, at scale '{results.scale}'", [Paragraph(INTRODUCTION)])
    page.add(*overview_blocks(results), *claim_blocks(results))
    for make in REFERENCE_TABLES.values():
        known = make()
        page.add(Heading(f"{known.title} ({known.where})"))
        page.add(Table(known.header, known.rows, known.title))
    for table in results.tables.values():
        if table.filled:
            page.add(*_table_blocks(table, results.scale))
    if pictures:
        page.add(Heading("Figures"))
        page.add(*(parts.Picture(file, _caption(file.stem)) for file in pictures))
    page.add(Heading("Machine and commands"), *_machine_blocks(results))
    if empty := [name for name, table in results.tables.items() if not table.filled]:
        page.add(Paragraph(f"Not run at this scale: {', '.join(empty)}."))
    page.add(*_file_blocks(results))
    return page


def _caption(figure: str) -> str:
    """What a figure shows, by the description beside its definition."""
    drawn = FIGURES.get(figure)
    return f"{figure}: {' '.join((drawn.__doc__ or '').split())}" if drawn else figure


def _table_blocks(table: TableResults, scale: str) -> list[PageBlock]:
    """The heading, the table and its curves."""
    recipe, header = table.recipe, ["row"]
    empty = [c.name for c in recipe.columns if c.name in recipe.downloads - _names(table.filled)]
    names = [column.name for column in table.filled]
    printed = {name for name in names if any(row[name].published for row in table.cells.values())}
    compared = scale == "full"  # a difference from a smaller model says nothing
    for name in names:
        beside = [f"{name}: paper", "difference"][: 1 + compared]
        header += [name, *beside] if name in printed else [name]
    header += [part for name in empty for part in (name, f"{name}: paper")]
    header += [f"{name}: paper" for name in recipe.extra]
    rows = [
        [
            row,
            *(part for name in names for part in _shown(cells[name], name in printed, compared)),
            *(part for name in empty for part in ("no data", cells[name].published or "")),
            *(column.get(row, "") for column in recipe.extra.values()),
        ]
        for row, cells in table.cells.items()
        if any(cells[name].values or cells[name].failed for name in names)
    ]
    for row, theirs in recipe.borrowed.items():  # of others: nothing is run
        shown = (
            ["not run", theirs[name], *[""] * compared] if name in printed else ["not run"]
            for name in names
        )
        beyond = (part for name in empty for part in ("not run", theirs[name]))
        extra = (column.get(row, "") for column in recipe.extra.values())
        rows.append([row, *(part for each in shown for part in each), *beyond, *extra])
    caption = f"{recipe.title}; scale {scale}, seeds {', '.join(map(str, table.seeds))}"
    blocks: list[PageBlock] = [Heading(f"{recipe.title} ({recipe.where})")]
    notes = (recipe.note, _sizes(recipe, table.filled, scale), _sources(table), _rates(table))
    blocks += [Paragraph(text) for text in notes if text]
    blocks.append(Table(header, rows, caption))
    for column in table.filled:
        if column.value in ("test", "validation"):
            metric, caption = TASKS[column.task].metric, f"{recipe.title}: {column.name}"
            lines, y = _curves(table, column, f"validation_{metric}"), f"validation {metric}"
            blocks += _charts(lines, y, caption, percent=metric == "accuracy")
    return blocks


def _names(columns: Sequence[Column]) -> set[str]:
    return {column.name for column in columns}


def _charts(lines: Sequence[Line], y: str, caption: str, *, percent: bool) -> list[PageBlock]:
    """Several charts of about as many lines, where one would have more than can be told apart."""
    count = -(-len(lines) // MOST_LINES) or 1
    cuts = [len(lines) * i // count for i in range(count + 1)]
    return [
        parts.Chart(
            lines[first:last],
            "epoch",
            y,
            caption if count == 1 else f"{caption}, rows {first + 1} to {last} of {len(lines)}",
            percent,
        )
        for first, last in pairwise(cuts)
    ]


def _shown(cell: Cell, printed: bool, compared: bool) -> list[str]:
    """Ours, and where the paper prints the column, its own and, at its scale, the difference."""
    ours = str(cell)
    if cell.values and cell.missing:
        ours += f" [{len(cell.values)} seed{'s' * (len(cell.values) > 1)}]"
    difference = "" if cell.difference is None else f"{cell.difference:+.{cell.digits}f}"
    beside = [cell.published or "", difference][: 1 + compared]
    return [ours, *beside] if printed else [ours]


def _sizes(recipe: Recipe, columns: Sequence[Column], scale: str) -> str:
    """What is smaller than in the paper, task by task."""
    if scale == "full":
        return ""
    sizes = (
        f"{task} ({describe_reduction(recipe.base(task, 'full'), recipe.base(task, scale))})"
        for task in dict.fromkeys(column.task for column in columns)
    )
    return f"Reduced: {'; '.join(sizes)}."


def _sources(table: TableResults) -> str:
    """What the runs of each task were trained and tested on, as far as their results say."""
    cells = (cell for row in table.cells.values() for cell in row.values())
    runs = (run for cell in cells for run in cell.finished)
    each = dict.fromkeys((str(run.config["task"]), _source(run)) for run in runs)
    found = [f"{task} ({known})" for task, known in each if known]
    return f"Data: {'; '.join(found)}." if found else ""


def _source(run: Result) -> str:
    """``generated; 2 classes; 1000 cases to validate, 1000 to test; one answer to all has ...``"""
    data, parts = run.data, [run.config["data"].get("source", "")]
    if classes := data.get("classes"):
        parts.append(f"{len(classes)} classes")
    if "test" in data:
        tested = f"{data['test']['cases']} to test"
        parts.append(f"{data['validation']['cases']} cases to validate, {tested}")
    if run.constant:
        metric = METRICS[TASKS[run.config["task"]].metric]
        shown = (f"{metric.show(value)} on {split}" for split, value in run.constant.items())
        parts.append(f"one answer to all has {' and '.join(shown)}")
    return "; ".join(part for part in parts if part)


def _rates(table: TableResults) -> str:
    """The learning rates that other networks chose, and among which."""
    found = []
    for row, cells in table.cells.items():
        for name, cell in cells.items():
            if searched := [run for run in cell.finished if run.searched]:
                chosen = ", ".join(str(run.config["optimizer"]["lr"]) for run in searched)
                found.append(f"{row} on {name} {chosen} of {', '.join(searched[0].searched)}")
    return f"Learning rates chosen, seed by seed: {'; '.join(found)}." if found else ""


def _curves(table: TableResults, column: Column, name: str) -> list[Line]:
    """The score ``name`` after each epoch, averaged over seeds, for each row that has runs."""
    lines = []
    for row, cells in table.cells.items():
        runs = [[epoch[name] for epoch in run.rows] for run in cells[column.name].finished]
        if runs:
            means = [statistics.fmean(scores) for scores in zip(*runs, strict=False)]
            lines.append(Line(row, [float(i + 1) for i in range(len(means))], means))
    return lines


def _machine_blocks(results: Results) -> list[PageBlock]:
    runs = results.in_tables()
    done = [run for run in runs if run.error is None]
    failed = [run for run in runs if run.error is not None]
    hours = sum(run.seconds for run in done) / 3600
    machines = {
        f"{run.environment['platform']}, {run.environment['cores']} cores, "
        f"torch {run.environment['torch']}, s4d-torch {run.environment['s4d_torch']}"
        for run in done
    }
    made_by = Counter(_origin(run) for run in done)
    commands = [command for table in results.tables.values() for command in commands_of(table)]
    options = f"--scale {results.scale}"
    return [
        Paragraph(f"{len(done)} runs, {hours:.1f} hours of training by one process in all."),
        *(Paragraph(machine) for machine in sorted(machines)),
        *(Paragraph(f"{count} runs by {origin}.") for origin, count in made_by.items()),
        *(Paragraph(f"{label(run.config)}: {outcome(run)}") for run in failed),
        parts.Code(
            "\n".join([*(f"{each} {options}" for each in commands), f"s4d paper report {options}"])
        ),
    ]


def _file_blocks(results: Results) -> list[PageBlock]:
    """Where each number comes from."""
    rows = [
        [name, row, cell.column.task, ", ".join(f"{run.key}.json" for run in cell.finished)]
        for name, table in results.tables.items()
        for row, cells in table.cells.items()
        for cell in {cell.column.task: cell for cell in cells.values()}.values()
        if cell.finished
    ]
    if not rows:
        return []
    intro = (
        "The files behind each row, seed by seed, in the folder of results: config, scores after "
        "each epoch, machine and commit, a fingerprint of the data, and what became of each case."
    )
    header = ["table", "row", "task", "files"]
    return [Heading("Result files"), Paragraph(intro), Table(header, rows, "Result files")]


def _origin(run: Result) -> str:
    """Which code made a result, as far as that is known."""
    commit, code = run.environment.get("commit"), run.environment.get("code")
    if commit is None:
        return f"code {code}, no commit"
    modified = ", MODIFIED" if commit.endswith("-dirty") else ""
    return f"commit {commit.removesuffix('-dirty')[:12]} (code {code}{modified})"


def commands_of(table: TableResults) -> list[str]:
    """The commands that make exactly the results that a table has."""
    found: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for task in dict.fromkeys(column.task for column in table.recipe.columns):
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for row, column in table.recipe.cells():
            runs = table.cells[row][column.name].runs
            seeds = tuple(seed for seed, run in zip(table.seeds, runs, strict=True) if run)
            if column.task == task and seeds and row not in by_seeds.get(seeds, ()):
                by_seeds.setdefault(seeds, []).append(row)
        for seeds, rows in by_seeds.items():
            found.setdefault((seeds, tuple(rows)), []).append(task)
    commands = []
    for (seeds, these), tasks in found.items():
        command = ["s4d", "paper", "run", table.recipe.name, "--seeds", *map(str, seeds)]
        command += ["--tasks", *tasks]
        if len(these) < len(table.recipe.rows):
            command += ["--rows", *these]
        commands.append(shlex.join(command))
    return commands
