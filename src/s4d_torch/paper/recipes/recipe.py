"""A table of the paper as data: rows, columns, published numbers, and the runs behind each cell."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from s4d_torch._registry import unknown
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks.arena import has_release
from s4d_torch.nn.method import METHODS
from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.paper.recipes.scales import seeded
from s4d_torch.training.config import Config

Change = Callable[[Config], Config]

# What every run has: scores of its best epoch, and that on validation after one.
ALWAYS = frozenset({"test", "validation", "first-epoch"})


@dataclass(frozen=True)
class Column:
    """A task, and which number of its runs: one of ``ALWAYS``, or a measure."""

    name: str
    task: str
    value: str = "test"


@dataclass(frozen=True)
class Recipe:
    """A table: ``base(task, scale)`` changed by each row, run on each column's task.

    ``printed`` holds the paper's numbers, a row of text ``a | b | c`` with one for each column.
    ``cited`` holds in the same way what the paper takes from others and is not run here, ``extra``
    further columns of the paper, by name and row. ``rates`` are learning rates that a row may
    choose from, on validation: other networks are not held to what suits ours. ``note`` says what a
    reader has to know to compare. ``without`` names cells, by row and column, that are not run.
    ``also`` is what other tables measure of the runs of a task: so they are the same runs.
    ``downloads`` names columns whose data comes in no other way, and that may have none for good.
    """

    name: str
    title: str
    where: str
    base: Callable[[str, str], Config]
    rows: Mapping[str, Change]
    columns: Sequence[Column]
    printed: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    cited: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    note: str = ""
    without: frozenset[tuple[str, str]] = frozenset()
    also: Mapping[str, frozenset[str]] = field(default_factory=dict)
    downloads: frozenset[str] = frozenset()

    @cached_property
    def published(self) -> dict[str, dict[str, str]]:
        """The paper's numbers as printed, by row and column."""
        return self._by_column(self.printed)

    @cached_property
    def borrowed(self) -> dict[str, dict[str, str]]:
        """What the paper takes from others, as printed; "-" where it has no number."""
        return self._by_column(self.cited)

    def _by_column(self, rows: Mapping[str, str]) -> dict[str, dict[str, str]]:
        names = [column.name for column in self.columns]
        return {
            row: dict(zip(names, map(str.strip, numbers.split("|")), strict=True))
            for row, numbers in rows.items()
        }

    def cells(self) -> Iterator[tuple[str, Column]]:
        """The cells that are run: row and column, column by column."""
        for column in self.columns:
            for row in self.rows:
                if (row, column.name) not in self.without:
                    yield row, column

    def experiment(self, row: str, column: Column, scale: str, seed: int) -> Experiment:
        """The run behind a cell; columns of one task share their runs."""
        config = seeded(self.rows[row](self.base(column.task, scale)), scale, seed)
        measures = {c.value for c in self.columns if c.task == column.task}
        measured = tuple(sorted((measures | self.also.get(column.task, set())) - ALWAYS))
        return Experiment(config, measured, self.rates.get(row, ()))

    def experiments(self, scale: str, seeds: Sequence[int]) -> list[Experiment]:
        """All runs of the table, each once, seed by seed."""
        made = select_experiments([self], scale, seeds)
        return list({experiment.key: experiment for experiment in made}.values())


def official(experiment: Experiment) -> Experiment | None:
    """The same on the Long Range Arena's own files; None where it needs none of them."""
    data = experiment.config.data
    if getattr(data, "source", None) != "generated":
        return None
    config = replace(experiment.config, data=replace(data, source="official"))
    return replace(experiment, config=config)


def on_best_data(experiment: Experiment, folder: DataFolder) -> Experiment:
    """On the official files where they are in the folder, on generated ones elsewhere."""
    task, data = experiment.config.task, experiment.config.data
    names = {"listops": "listops-1000", "pathfinder": "pathfinder32"}
    name = f"pathfinder{data.size}" if task == "pathx" else names.get(task, "")
    best = official(experiment) if name and has_release(folder, name) else None
    return best or experiment


def select_experiments(
    recipes: Iterable[Recipe],
    scale: str,
    seeds: Sequence[int],
    *,
    tasks: Sequence[str] = (),
    rows: Sequence[str] = (),
) -> list[Experiment]:
    """The runs behind some tables, seed by seed; of all tasks and rows, or of those named."""
    cells = [(table, row, column) for table in recipes for row, column in table.cells()]
    require_known("task", tasks, (column.task for *_, column in cells))
    require_known("row", rows, (row for _, row, _ in cells))
    return [
        table.experiment(row, column, scale, seed)
        for seed in seeds
        for table, row, column in cells
        if (not tasks or column.task in tasks) and (not rows or row in rows)
    ]


def require_known(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first of the given names that is not known."""
    names = list(dict.fromkeys(known))
    for name in given:
        if name not in names:
            raise ValueError(unknown(kind, name, names))


def printed_number(text: str) -> tuple[float, float | None] | None:
    """``(85.04, 0.22)`` of ``85.04 (0.22)``, mean and deviation; None for a cross: not learned."""
    if text == "✗":
        return None
    mean, _, deviation = text.rstrip(")").partition(" (")
    return float(mean), float(deviation) if deviation else None


def method(base: str = "s4d", **choices: Any) -> Change:
    """A row of Table 1 with some choices changed; tying, direction and dt stay the base's."""

    def change(config: Config) -> Config:
        names = ("n_ssm", "bidirectional", "dt_min", "dt_max")
        kept = {name: getattr(config.method, name) for name in names}
        return replace(config, method=METHODS[base].replace(**{**kept, **choices}))

    return change


def architecture(name: str, *, narrower: int = 1, **published: Any) -> Change:
    """Another network, of its ``published`` sizes if the setting has the paper's.

    Else as deep as ours, and as wide, or so many times ``narrower``.
    """

    def change(config: Config) -> Config:
        paper = TASKS[config.task].paper
        full = paper is not None and config.model.d_model == paper.d_model
        sizes = published if full else {"d_model": config.model.d_model // narrower}
        return replace(config, model=replace(config.model, architecture=name, **sizes))

    return change


VARIANTS: dict[str, Change] = {
    "S4-LegS": method("s4"),
    "S4-FouT": method("s4", init="fout"),
    "S4D-LegS": method(),
    "S4D-Inv": method(init="inv"),
    "S4D-Lin": method(init="lin"),
}
