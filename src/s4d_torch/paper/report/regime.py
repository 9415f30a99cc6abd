"""What models learn at a scale, beside the paper's, one answer to all cases and linear regression.

Differences between rows say something only of models that have learned: this is where one sees it.
"""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.cost import WORDS
from s4d_torch.paper.recipes import RECIPES, Recipe, describe_reduction, printed_number
from s4d_torch.paper.recipes.scales import AIMS, FOLDED
from s4d_torch.paper.results import Cell, Results
from s4d_torch.training.metrics import METRICS


@dataclass(frozen=True)
class BestRow:
    """The best row of a dataset, among the models of one size that were scored on one split."""

    row: str
    cell: Cell
    recipe: Recipe
    scale: str
    levels: tuple[float, ...] = ()
    """of all rows"""

    @property
    def aim(self) -> str:
        """What this scale is to teach, and how many rows did: ``60, reached by 3 of 9 rows``."""
        aim = AIMS.get(self.cell.column.task)
        if self.scale != "study" or aim is None:
            return ""
        reached = sum(level >= aim for level in self.levels)
        return f"{aim:g}, reached by {reached} of {len(self.levels)} rows"

    @property
    def level(self) -> float:
        """More is better."""
        return statistics.fmean(self.cell.values) * (1 if self.cell.is_accuracy else -1)

    @property
    def changed(self) -> str:
        """What the scale changes besides sizes: ``sample_rate 25, batch_size 16``."""
        column = self.cell.column
        full, reduced = (self.recipe.base(column.task, each) for each in ("full", self.scale))
        sizes = ("n_layers", "d_model", "d_state", "epochs")
        changed = describe_reduction(full, reduced, without=sizes)
        words = len(self.cell.finished[0].data.get("classes", ()))
        fewer = f"{words} of {WORDS} words" if column.task == "sc35" and words < WORDS else ""
        split = "other speakers by seed" if (column.task, self.scale) in FOLDED else ""
        return ", ".join(part for part in (fewer, split, changed) if part)

    @property
    def in_paper(self) -> str:
        """What the paper prints for models of this setting: ``84.78 to 85.37``, or nothing."""
        column = self.cell.column
        cells = (
            row[each.name]
            for other in RECIPES.values()
            if other.base is self.recipe.base
            for each in other.columns
            if (each.task, each.value) == (column.task, column.value)
            for row in other.published.values()
        )
        found = sorted(number[0] for cell in cells if (number := printed_number(cell)))
        return f"{found[0]:g} to {found[-1]:g}" if found else ""

    @property
    def one_answer(self) -> str:
        """What one answer to all scores on the same cases, in the mean over seeds."""
        value = self.cell.column.value
        known = [run.constant[value] for run in self.cell.finished if run.constant]
        return self._show(statistics.fmean(known)) if known else ""

    def linear(self, results: Results) -> str:
        """What a linear map scores, as any run on this data measured it."""
        data = self.cell.finished[0].data
        on_same = (run for run in results.runs.values() if run.data == data)
        found = next((run.linear for run in on_same if run.linear), {})
        return self._show(found[self.cell.column.value]) if found else ""

    def _show(self, value: float) -> str:
        return METRICS[TASKS[self.cell.column.task].metric].show(value)


def best_rows(results: Results) -> list[BestRow]:
    """Of each dataset, size of model and split, in the order of the tables."""
    regimes: dict[tuple[str, ...], dict[str, BestRow]] = {}
    for found in _rows(results):
        column = found.cell.column
        regime = column.name, size(found.cell), found.changed, column.value
        runs = " ".join(run.key for run in found.cell.finished)  # in one table or in several
        regimes.setdefault(regime, {}).setdefault(runs, found)
    best = []
    for rows in regimes.values():
        levels = tuple(row.level for row in rows.values())
        best.append(replace(max(rows.values(), key=lambda row: row.level), levels=levels))
    return best


def _rows(results: Results) -> Iterator[BestRow]:
    for table in results.tables.values():
        for row, cells in table.cells.items():
            for cell in cells.values():
                if cell.finished and cell.column.value in ("test", "validation"):
                    yield BestRow(row, cell, table.recipe, results.scale)


def size(cell: Cell) -> str:
    """``4 x 64, N = 32, 2 epochs``"""
    config = cell.finished[0].config
    model, epochs = config["model"], config["training"]["epochs"]
    return f"{model['n_layers']} x {model['d_model']}, N = {model['d_state']}, {epochs} epochs"
