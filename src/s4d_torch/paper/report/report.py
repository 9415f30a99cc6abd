"""The report: tables with ours beside the paper's, curves, figures, claims, machine, commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from s4d_torch.data.task import TASKS
from s4d_torch.paper.claims.all import Claim, Results, judge
from s4d_torch.paper.experiments.experiment import Result, read_result
from s4d_torch.paper.experiments.watch import label, outcome
from s4d_torch.paper.figures.draw import FIGURES
from s4d_torch.paper.recipes import task_tables as recipes_tasks  # noqa: F401  (each registers what it holds)
from s4d_torch.paper.recipes.scales import describe
from s4d_torch.paper.recipes.static import STATIC
from s4d_torch.paper.recipes.tables import RECIPES, Column, Recipe
from s4d_torch.paper.report.document import (
    Block,
    Chart,
    Code,
    Document,
    Heading,
    Paragraph,
    Picture,
    Table,
)
from s4d_torch.paper.report.tables import Cell, cell, curves, digits_of, seeds_run

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


def make_report(
    results: Path, scale: str, seeds: Sequence[int], pictures: Sequence[Path] = ()
) -> Document:
    """All that is known at this scale; tables without any result are named at the end."""
    document = Document(f"The paper, at scale '{scale}'")
    document.add(Paragraph(INTRODUCTION))
    for make in STATIC.values():
        table = make()
        document.add(Heading(f"{table.title} ({table.where})"))
        document.add(Table(table.header, table.rows, table.title))
    empty = []
    for recipe in RECIPES.values():
        blocks = table_blocks(recipe, results, scale, seeds)
        document.add(*blocks)
        if not blocks:
            empty.append(recipe.name)
    document.add(*claim_blocks(all_results(results, scale, seeds)))
    if pictures:
        document.add(Heading("Figures"))
        document.add(*(Picture(file, _caption(file.stem)) for file in pictures))
    document.add(Heading("Machine and commands"), *_surroundings(results, scale, seeds))
    if empty:
        document.add(Paragraph(f"Not run at this scale: {', '.join(empty)}."))
    return document


def _caption(figure: str) -> str:
    """What a figure shows, by the description beside its definition."""
    drawn = FIGURES.get(figure)
    return f"{figure}: {' '.join((drawn.__doc__ or '').split())}" if drawn else figure


def table_blocks(recipe: Recipe, results: Path, scale: str, seeds: Sequence[int]) -> list[Block]:
    """The heading, the table and the curves of one recipe; nothing if it has no results."""
    seeds = seeds_run(recipe, results, scale, seeds)
    cells = {
        row: [cell(recipe, row, column, results, scale, seeds) for column in recipe.columns]
        for row in recipe.rows
    }
    used = [i for i in range(len(recipe.columns)) if any(c[i].values for c in cells.values())]
    if not used:
        return []
    printed = {i for i in used if any(each[i].published for each in cells.values())}
    header = ["row"]
    for i in used:
        name = recipe.columns[i].name
        header += [name, f"{name}: paper", "difference"] if i in printed else [name]
    rows = [
        [row, *(part for i in used for part in _shown(each[i], recipe.columns[i], i in printed))]
        for row, each in cells.items()
        if any(each[i].values or each[i].failed for i in used)
    ]
    caption = f"{recipe.title}; scale {scale}, seeds {', '.join(map(str, seeds))}"
    blocks: list[Block] = [Heading(f"{recipe.title} ({recipe.where})")]
    blocks += [Paragraph(text) for text in (recipe.note, _sizes(recipe, used, scale)) if text]
    blocks.append(Table(header, rows, caption))
    for i in used:
        column = recipe.columns[i]
        lines = curves(recipe, column, results, scale, seeds)
        if lines and column.value in ("test", "validation"):
            metric, caption = TASKS[column.task].metric, f"{recipe.title}: {column.name}"
            percent = metric == "accuracy"
            blocks.append(Chart(lines, "epoch", f"validation {metric}", caption, percent))
    return blocks


def _shown(each: Cell, column: Column, printed: bool) -> list[str]:
    """Ours, and beside it the paper's and the difference where the paper prints the column."""
    digits = digits_of(column)
    ours = each.show(digits)
    if each.values and each.missing:
        ours += f" [{len(each.values)} seed{'s' * (len(each.values) > 1)}]"
    difference = "" if each.difference is None else f"{each.difference:+.{digits}f}"
    return [ours, each.published or "", difference] if printed else [ours]


def _sizes(recipe: Recipe, used: Sequence[int], scale: str) -> str:
    """What is smaller than in the paper, task by task."""
    if scale == "full":
        return ""
    tasks = dict.fromkeys(recipe.columns[i].task for i in used)
    sizes = {task: describe(*(recipe.base(task, at) for at in ("full", scale))) for task in tasks}
    return f"Reduced: {'; '.join(f'{task} ({size})' for task, size in sizes.items())}."


def all_results(results: Path, scale: str, seeds: Sequence[int]) -> Results:
    """Scores by table, row and column, for the findings."""
    return {
        name: {
            row: {
                column.name: found
                for column in recipe.columns
                if (found := cell(recipe, row, column, results, scale, seeds).values)
            }
            for row in recipe.rows
        }
        for name, recipe in RECIPES.items()
        if table_blocks(recipe, results, scale, seeds)
    }


def claim_blocks(results: Results) -> list[Block]:
    """Every claim with its verdict."""
    rows = []
    for stated, verdict in judge(results):
        statement = stated.statement
        if isinstance(stated, Claim) and stated.right:
            statement = f"printed: {statement} Right: {stated.right}"
        statement = f"{statement} ({stated.where})"
        rows.append([verdict.holds, statement, f"{verdict.effect} {verdict.detail}".strip()])
    counts = {
        holds: sum(row[0] == holds for row in rows) for holds in dict.fromkeys(r[0] for r in rows)
    }
    summary = ", ".join(f"{count} {holds}" for holds, count in counts.items())
    caption = f"{len(rows)} claims: {summary}"
    table = Table(["verdict", "claim", "numbers"], rows, caption)
    return [Heading("Claims"), Paragraph(JUDGEMENT), table]


def _surroundings(results: Path, scale: str, seeds: Sequence[int]) -> list[Block]:
    seen: dict[str, Result] = {}
    for recipe in RECIPES.values():
        for experiment in recipe.experiments(scale, seeds):
            result = read_result(results, experiment.key)
            if result is not None:
                seen[result.key] = result
    failed = [seen.pop(key) for key, result in list(seen.items()) if result.error is not None]
    hours = sum(r.summary["wall_seconds"] for r in seen.values()) / 3600
    machines = {
        f"{r.environment['platform']}, {r.environment['cores']} cores, "
        f"torch {r.environment['torch']}, s4d-torch {r.environment['s4d_torch']}"
        for r in seen.values()
    }
    listed, commands = " ".join(map(str, seeds)), ("run all", "report")
    return [
        Paragraph(f"{len(seen)} runs, {hours:.1f} hours of one process in all."),
        *(Paragraph(machine) for machine in sorted(machines)),
        *(Paragraph(f"{label(result.config)}: {outcome(result)}") for result in failed),
        Code("\n".join(f"s4d paper {do} --scale {scale} --seeds {listed}" for do in commands)),
    ]
