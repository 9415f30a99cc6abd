"""A folder of results, read once, and what the paper's tables show of it."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.cost import Durations, seconds_per_mode_step
from s4d_torch.paper.experiments.experiment import Experiment, Result, read_result
from s4d_torch.paper.recipes import RECIPES, Column, Recipe, printed_number
from s4d_torch.paper.recipes.recipe import official
from s4d_torch.paper.scores import Pools, Score, Scores, TableScores, score_of, score_of_count

LEARNED = 0.03  # above the accuracy of the most frequent class, to count as having learned
SPLITS = {"test": "test", "validation": "validation", "first-epoch": "validation"}


@dataclass(frozen=True)
class Cell:
    """The runs behind a cell, one for each seed and None where there is none yet."""

    column: Column
    runs: tuple[Result | None, ...]
    published: str | None
    """the paper's number as printed"""

    @property
    def finished(self) -> list[Result]:
        return [run for run in self.runs if run is not None and run.error is None]

    @cached_property
    def values(self) -> tuple[float, ...]:
        """What the column shows of the finished runs; accuracies in per cent, as in the paper."""
        scale = 100 if self.is_accuracy else 1
        return tuple(scale * run.value(self.column.value) for run in self.finished)

    @property
    def is_accuracy(self) -> bool:
        return TASKS[self.column.task].metric == "accuracy"

    @property
    def learned(self) -> bool:
        """Whether all runs are better than one answer to everything, as far as that is known."""
        return all(map(self.has_learned, self.finished))

    def has_learned(self, run: Result) -> bool:
        if not run.constant:
            return True
        constant = run.constant[SPLITS.get(self.column.value, "test")]
        gained = run.value(self.column.value) - constant
        return gained > LEARNED if self.is_accuracy else -gained > 0.1 * constant

    @property
    def is_baseline(self) -> bool:
        """Whether another network than a state space model was run."""
        return any(run.config["model"]["architecture"] != "ssm" for run in self.finished)

    @property
    def scores(self) -> dict[int, Score]:
        """The finished runs by seed, as comparisons need them: where a table shows a validation
        accuracy, by validation and test cases together, if these are independent of each other.

        None of a baseline that has learned nothing, which says how it was trained and not what it
        can do; and none where a run has failed: the others would be a choice of the good ones.
        """
        if self.failed:
            return {}
        if self.is_baseline and self.column.value in ("test", "validation") and not self.learned:
            return {}
        return {
            int(run.config["training"]["seed"]): self._score(value, run)
            for value, run in zip(self.values, self.finished, strict=True)
        }

    def _score(self, value: float, run: Result) -> Score:
        split = SPLITS.get(self.column.value, "test")
        if self.column.value == split and split in run.cases:
            outcomes = run.outcomes(split)
            if split == "validation" and self.is_accuracy and outcomes.joint:
                outcomes += run.outcomes("test")  # as good to compare by, and twice as many or more
                value = 100 * float(outcomes.values.mean())
            score = score_of(value, accuracy=self.is_accuracy, outcomes=outcomes)
        elif self.is_accuracy and split in run.data:
            score = score_of_count(value, int(run.data[split]["cases"]))
        else:  # of before cases were kept: nobody knows what other ones would have given
            score = replace(score_of(value, accuracy=self.is_accuracy), sampling=math.inf)
        data = str(run.data.get(split, {}).get("values", ""))
        return replace(score, data=data, learned=self.has_learned(run))

    @property
    def missing(self) -> int:
        """Seeds without a result yet."""
        return self.runs.count(None)

    @property
    def failed(self) -> int:
        return len(self.runs) - self.missing - len(self.finished)

    @property
    def difference(self) -> float | None:
        """Ours less the paper's; None where one of them could not be trained, or on other data."""
        if any(run.config["data"].get("source") == "nyu" for run in self.finished):
            return None
        printed = printed_number(self.published) if self.published else None
        return statistics.fmean(self.values) - printed[0] if self.values and printed else None

    @property
    def digits(self) -> int:
        return 2 if self.is_accuracy else 3

    def __str__(self) -> str:
        """``50.10 (0.14)``: the mean, and the standard deviation where there are several seeds."""
        if not self.values:
            return "failed" if self.failed else "–"
        shown = f"{statistics.fmean(self.values):.{self.digits}f}"
        if len(self.values) > 1:
            shown += f" ({statistics.stdev(self.values):.{self.digits}f})"
        return shown if self.learned else f"{shown}, not learned"


@dataclass(frozen=True)
class TableResults:
    """A table with the runs there are; ``seeds`` are those of which it has any."""

    recipe: Recipe
    seeds: tuple[int, ...]
    cells: Mapping[str, Mapping[str, Cell]]
    """by row and by the name of the column"""

    @cached_property
    def filled(self) -> list[Column]:
        """The columns that have a score."""
        rows = self.cells.values()
        return [c for c in self.recipe.columns if any(row[c.name].values for row in rows)]

    @cached_property
    def scores(self) -> TableScores:
        return {
            row: {name: found for name, cell in cells.items() if (found := cell.scores)}
            for row, cells in self.cells.items()
        }


def _kind(recipe: Recipe, column: Column) -> tuple[str, str, str]:
    """What has to be the same for rows to spread alike."""
    return recipe.base.__name__, column.task, column.value


class TableProgress(NamedTuple):
    """How many runs of a table are done, of how many, and about how long the rest takes."""

    done: int
    wanted: int
    seconds: float


@dataclass(frozen=True)
class Results:
    """The results of a folder by their keys, and the scale and seeds of the tables made of them."""

    runs: Mapping[str, Result]
    scale: str = "tiny"
    seeds: tuple[int, ...] = ()

    @staticmethod
    def read(
        folder: str | Path, scale: str = "tiny", seeds: Sequence[int] | None = None
    ) -> "Results":
        """Read every result file once; damaged ones count as not run. By default all seeds."""
        folder = Path(folder)
        found = {path.stem: read_result(folder, path.stem) for path in folder.glob("*.json")}
        runs = {key: run for key, run in sorted(found.items()) if run is not None}
        if seeds is None:
            configs = [run.config for run in runs.values() if "training" in run.config]
            seeds = sorted({config["training"]["seed"] for config in configs})
        return Results(runs, scale, tuple(seeds))

    def __or__(self, other: "Results") -> "Results":
        """Those of both; of one experiment the other's."""
        seeds = dict.fromkeys((*self.seeds, *other.seeds))
        return Results({**self.runs, **other.runs}, self.scale, tuple(sorted(seeds)))

    @cached_property
    def tables(self) -> dict[str, TableResults]:
        """Every table of the paper, by its name."""
        return {name: self._table(recipe) for name, recipe in RECIPES.items()}

    def _table(self, recipe: Recipe) -> TableResults:
        runs = {
            (row, column): [
                self.run_of(recipe.experiment(row, column, self.scale, seed)) for seed in self.seeds
            ]
            for row in recipe.rows
            for column in recipe.columns
        }
        begun = [i for i in range(len(self.seeds)) if any(runs[cell][i] for cell in recipe.cells())]
        cells: dict[str, dict[str, Cell]] = {row: {} for row in recipe.rows}
        for (row, column), found in runs.items():
            published = recipe.published.get(row, {}).get(column.name)
            cells[row][column.name] = Cell(column, tuple(found[i] for i in begun), published)
        return TableResults(recipe, tuple(self.seeds[i] for i in begun), cells)

    def run_of(self, experiment: Experiment) -> Result | None:
        """The result of an experiment; on the official data rather than on generated data."""
        best = official(experiment)
        found = None if best is None else self.runs.get(best.key)
        return found or self.runs.get(experiment.key)

    @cached_property
    def scores(self) -> Scores:
        """What findings are judged by; tables without any are left out."""
        return {name: table.scores for name, table in self.tables.items() if table.filled}

    @cached_property
    def pools(self) -> Pools:
        """The rows whose spread over seeds each column is judged by: those of all tables that have
        the same task, setting and number, each once.
        """
        alike: dict[tuple[str, str, str], dict[tuple[str, ...], Mapping[int, Score]]] = {}
        for table in self.tables.values():
            for cells in table.cells.values():
                for cell in cells.values():
                    if scores := cell.scores:
                        runs = tuple(run.key for run in cell.finished)
                        alike.setdefault(_kind(table.recipe, cell.column), {})[runs] = scores
        return {
            name: {
                column.name: tuple(alike.get(_kind(table.recipe, column), {}).values())
                for column in table.recipe.columns
            }
            for name, table in self.tables.items()
        }

    def in_tables(self) -> list[Result]:
        """The results that a table shows, each once: table by table, seed by seed."""
        found = {
            run.key: run
            for table in self.tables.values()
            for i in range(len(table.seeds))
            for row, column in table.recipe.cells()
            if (run := table.cells[row][column.name].runs[i]) is not None
        }
        return list(found.values())

    def progress(self) -> dict[str, TableProgress]:
        """How far each table is; times of one process, by the runs made or else measured."""
        past = Durations(list(self.runs.values())) or Durations([], seconds_per_mode_step())
        found = {}
        for name, recipe in RECIPES.items():
            wanted = recipe.experiments(self.scale, self.seeds)
            left = [each for each in wanted if self.run_of(each) is None]
            seconds = sum(map(past.of, left))
            found[name] = TableProgress(len(wanted) - len(left), len(wanted), seconds)
        return found
