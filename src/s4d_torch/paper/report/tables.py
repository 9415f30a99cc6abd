"""From results on disk to the cells of a table: ours beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.experiment import Result, read_result
from s4d_torch.paper.recipes.tables import Column, Recipe
from s4d_torch.paper.report.chart import Line


@dataclass(frozen=True)
class Cell:
    """What our runs gave, one value per seed, in the paper's unit; and the paper's number."""

    values: tuple[float, ...]
    missing: int
    """seeds without a result yet"""
    failed: int
    published: str | None

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds, where there are several."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        if self.mean is None or self.published is None:
            return None
        try:
            return self.mean - float(self.published.split("(")[0])
        except ValueError:  # the paper could not train it
            return None

    def show(self, digits: int) -> str:
        if self.mean is None:
            return "failed" if self.failed else "–"
        shown = f"{self.mean:.{digits}f}"
        if self.spread is not None:
            shown += f" ({self.spread:.{digits}f})"
        return shown


def digits_of(column: Column) -> int:
    return 2 if TASKS[column.task].metric == "accuracy" else 3


def value_of(result: Result, column: Column) -> float:
    """The number of a run that a column shows; accuracies in per cent, as in the paper."""
    if column.value == "test":
        value = result.test
    elif column.value == "validation":
        value = float(result.summary["validation"])
    else:
        value = float(result.measured[column.value])
    return 100 * value if TASKS[column.task].metric == "accuracy" else value


def cell(
    recipe: Recipe, row: str, column: Column, results: Path, scale: str, seeds: Sequence[int]
) -> Cell:
    """A cell from the results that are there."""
    values, missing, failed = [], 0, 0
    for seed in seeds:
        result = read_result(results, recipe.experiment(row, column, scale, seed).key)
        if result is None:
            missing += 1
        elif result.error is not None:
            failed += 1
        else:
            values.append(value_of(result, column))
    published = recipe.published.get(row, {}).get(column.name)
    return Cell(tuple(values), missing, failed, published)


def seeds_run(recipe: Recipe, results: Path, scale: str, seeds: Sequence[int]) -> list[int]:
    """Those of the seeds that the table has any result of."""
    return [
        seed
        for seed in seeds
        if any(
            read_result(results, experiment.key) for experiment in recipe.experiments(scale, [seed])
        )
    ]


def curves(
    recipe: Recipe, column: Column, results: Path, scale: str, seeds: Sequence[int]
) -> list[Line]:
    """The validation score after each epoch, averaged over seeds, for each row that has runs."""
    name = f"validation_{TASKS[column.task].metric}"
    lines = []
    for row in recipe.rows:
        found = [
            read_result(results, recipe.experiment(row, column, scale, seed).key) for seed in seeds
        ]
        runs = [[line[name] for line in r.rows] for r in found if r is not None and not r.error]
        if runs:
            epochs = min(map(len, runs))
            means = [statistics.fmean(run[i] for run in runs) for i in range(epochs)]
            lines.append(Line(row, [float(i + 1) for i in range(epochs)], means))
    return lines
