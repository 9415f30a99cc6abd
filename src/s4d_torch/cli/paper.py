"""``s4d paper``: the paper's tables, figures and claims as commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from s4d_torch._files import write_atomically
from s4d_torch._progress import duration
from s4d_torch._registry import unknown
from s4d_torch.cli.common.parsing import UsageError
from s4d_torch.cli.display import say
from s4d_torch.cli.paper_claims import print_claims
from s4d_torch.data.folder import DataFolder, default_root
from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.cost import Durations, seconds_per_mode_step
from s4d_torch.paper.experiments.engines import run_one
from s4d_torch.paper.experiments.experiment import read_result as read
from s4d_torch.paper.experiments.grid import run_grid
from s4d_torch.paper.experiments.watch import grid_view
from s4d_torch.paper.figures.draw import FIGURES, FORMATS, save_figure
from s4d_torch.paper.recipes.static import STATIC
from s4d_torch.paper.recipes.tables import RECIPES, Recipe
from s4d_torch.paper.report.report import all_results, make_report

Scale = Literal["full", "small", "tiny"]
RESULTS = Path("paper")


@dataclass(frozen=True)
class Shared:
    """What every part of the command needs to know."""

    scale: Scale = "tiny"
    """full: the paper's sizes; small, tiny: reductions for hours or minutes on two cores"""
    seeds: tuple[int, ...] = (0, 1)
    """one run for each"""
    out: Path = field(default_factory=lambda: RESULTS)
    """the folder of results, one small file for each run, and of the report"""
    data_dir: Path = field(default_factory=default_root)
    """where the data is"""

    @property
    def results(self) -> Path:
        return self.out / "results"

    @property
    def data(self) -> DataFolder:
        return DataFolder(self.data_dir)


@dataclass(frozen=True)
class List(Shared):
    """Every table and figure: what it needs, how much is done, and how long the rest takes."""

    def run(self, console: Console) -> None:
        wanted = {name: made.experiments(self.scale, self.seeds) for name, made in RECIPES.items()}
        found = {e.key: read(self.results, e.key) for many in wanted.values() for e in many}
        done = [read(self.results, path.stem) for path in sorted(self.results.glob("*.json"))]
        past = Durations([r for r in done if r]) or Durations([], seconds_per_mode_step())
        table = Table("name", "what, and its data", "runs done", "time left", box=box.SIMPLE)
        for column in (0, 2, 3):
            table.columns[column].no_wrap = True
        for name, recipe in RECIPES.items():
            left = [e for e in wanted[name] if found[e.key] is None]
            counts = f"{len(wanted[name]) - len(left)} of {len(wanted[name])}"
            shown = f"about {duration(sum(map(past.of, left)))}" if left else "–"
            tasks = ", ".join(dict.fromkeys(column.task for column in recipe.columns))
            table.add_row(name, f"{recipe.title} ({recipe.where})\n{tasks}", counts, shown)
        for name, make in STATIC.items():
            table.add_row(name, f"{make().title} ({make().where})\nno data", "", "none")
        for name, draw in FIGURES.items():
            first = (draw.__doc__ or "").partition("\n")[0]
            table.add_row(name, f"Figure. {first}\nno data", "", "seconds")
        console.print(table)
        say(console, f"scale {self.scale}; times are those of one process, after another")
        for name in dict.fromkeys(c.task for recipe in RECIPES.values() for c in recipe.columns):
            here = "here" if TASKS[name].is_here(self.data) else "missing"
            say(console, f"data {name}: {TASKS[name].size}; {here}")
        say(console, "s4d paper run NAME runs a table or draws a figure")


@dataclass(frozen=True)
class Run(Shared):
    """Run the experiments of tables that have no result yet; goes on after any interruption.

    Figures are drawn into the folder of the report, as .png, .svg and .pdf; tables that need no
    training are printed.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """tables and figures as 's4d paper list' shows them, or 'all' for all tables"""
    tasks: tuple[str, ...] = ()
    """only the columns of these tasks"""
    rows: tuple[str, ...] = ()
    """only these rows"""
    engine: Literal["local", "ray", "slurm"] = "local"
    """processes here, a Ray cluster, or an array script for Slurm"""
    address: str | None = None
    """of the Ray cluster"""
    workers: int | None = None
    """experiments at a time; by default one for each core, as memory allows"""
    memory_gb: float | None = None
    """memory to use; by default what is free"""
    retry_failed: bool = False
    """run those again that ended in an error"""
    work: Path | None = None
    """where unfinished runs are kept; by default beside the results"""

    def run(self, console: Console) -> None:
        names = list(RECIPES) if self.names == ("all",) else list(self.names)
        if not names:
            raise UsageError(f"name a table, or 'all'; there are: {', '.join(RECIPES)}")
        _require("table or figure", names, [*RECIPES, *STATIC, *FIGURES, "all"])
        for name in names:
            if name in STATIC:
                console.print(_static(name))
            elif name in FIGURES:
                for ending in FORMATS:
                    save_figure(name, self.out / "figures" / f"{name}{ending}")
                say(console, f"wrote {self.out / 'figures' / name}: {', '.join(FORMATS)}")
        if recipes := [RECIPES[name] for name in names if name in RECIPES]:
            self._run_tables(recipes, console)

    def _run_tables(self, recipes: Sequence[Recipe], console: Console) -> None:
        cells = [(recipe, row, column) for recipe in recipes for row, column in recipe.cells()]
        _require("task", self.tasks, dict.fromkeys(column.task for *_, column in cells))
        _require("row", self.rows, dict.fromkeys(row for _, row, _ in cells))
        experiments = [
            recipe.experiment(row, column, self.scale, seed)
            for seed in self.seeds
            for recipe, row, column in cells
            if (not self.tasks or column.task in self.tasks) and (not self.rows or row in self.rows)
        ]
        if not experiments:
            raise UsageError("no experiment is left with these --tasks and --rows")
        done = run_grid(
            experiments,
            self.results,
            data=self.data,
            work=self.work or self.out / "work",
            engine=self.engine,
            workers=self.workers,
            memory_gb=self.memory_gb,
            address=self.address,
            retry_failed=self.retry_failed,
            # the script for Slurm goes to standard output alone
            watch=None if self.engine == "slurm" else grid_view(console),
        )
        if self.engine == "slurm" and len(done) == len({each.key for each in experiments}):
            say(Console(stderr=True), f"nothing to submit: all {len(done)} experiments are done")


def _require(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            raise UsageError(unknown(kind, name, known))


def _static(name: str) -> Table:
    made = STATIC[name]()
    table = Table(*made.header, title=f"{made.title} ({made.where})", box=box.SIMPLE)
    for column in table.columns:
        column.overflow = "fold"  # on a narrow terminal no word is lost
    for row in made.rows:
        table.add_row(*row)
    return table


@dataclass(frozen=True)
class Report(Shared):
    """Write report.html (one self-contained page) and report.md from the results there are."""

    figures: bool = True
    """draw the figures anew; needs matplotlib"""

    def run(self, console: Console) -> None:
        pictures = []
        if self.figures:
            for name in FIGURES:
                pictures.append(self.out / "figures" / f"{name}.png")
                save_figure(name, pictures[-1])
        document = make_report(self.results, self.scale, self.seeds, pictures)
        document.page().save(self.out / "report.html")
        write_atomically({self.out / "report.md": document.markdown(self.out).encode()})
        console.print(f"the report is in {self.out / 'report.html'} and {self.out / 'report.md'}")


@dataclass(frozen=True)
class Claims(Shared):
    """Check every claim of the paper, and print what holds, what fails, and by how much."""

    def run(self, console: Console) -> None:
        print_claims(console, all_results(self.results, self.scale, self.seeds))


@dataclass(frozen=True)
class RunOne:
    """Run one experiment of a manifest, as an array job does."""

    manifest: Annotated[Path, tyro.conf.Positional]
    """the file that --engine slurm wrote"""
    index: Annotated[int, tyro.conf.Positional]
    """which of its experiments, from 0"""

    def run(self, console: Console) -> None:
        result = run_one(self.manifest, self.index)
        console.print(f"{result.key}: {'failed' if result.error else 'done'}")


Part = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Claims, tyro.conf.subcommand("claims")]
    | Annotated[RunOne, tyro.conf.subcommand("run-one")]
)


@dataclass(frozen=True)
class Paper:
    """The paper's tables, figures and claims: list, run, report, claims."""

    part: tyro.conf.OmitSubcommandPrefixes[Part]

    def run(self, console: Console) -> None:
        self.part.run(console)
