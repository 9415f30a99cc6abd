"""``s4d paper``: the paper's tables, figures and claims as commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from s4d_torch._registry import unknown
from s4d_torch.cli.display import say
from s4d_torch.cli.paper_claims import print_claims
from s4d_torch.cli.parsing import UsageError
from s4d_torch.data.folder import DataFolder, default_root
from s4d_torch.data.task import TASKS
from s4d_torch.nn.pretrained import write_atomically
from s4d_torch.paper.effort import seconds_per_mode_step
from s4d_torch.paper.engines import run_one
from s4d_torch.paper.experiment import read_result as read
from s4d_torch.paper.figures import FIGURES, save_figure
from s4d_torch.paper.grid import run_grid
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.report import all_results, make_report
from s4d_torch.paper.static import STATIC
from s4d_torch.paper.watch import Durations, duration, grid_view

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
        table = Table("name", "what", "data", "runs done", "time left", box=box.SIMPLE)
        table.columns[0].no_wrap = True
        for name, recipe in RECIPES.items():
            left = [e for e in wanted[name] if found[e.key] is None]
            counts = f"{len(wanted[name]) - len(left)} of {len(wanted[name])}"
            shown = f"about {duration(sum(map(past.of, left)))}" if left else "–"
            tasks = ", ".join(dict.fromkeys(column.task for column in recipe.columns))
            table.add_row(name, f"{recipe.title} ({recipe.where})", tasks, counts, shown)
        for name, make in STATIC.items():
            table.add_row(name, f"{make().title} ({make().where})", "none", "", "–")
        console.print(table)
        say(console, f"scale {self.scale}; times are those of one process, after another")
        for name in dict.fromkeys(c.task for recipe in RECIPES.values() for c in recipe.columns):
            here = "here" if TASKS[name].is_here(self.data) else "missing"
            say(console, f"data {name}: {TASKS[name].size}; {here}")
        say(console, f"figures (s4d figure NAME --out FILE): {', '.join(FIGURES)}")


@dataclass(frozen=True)
class Run(Shared):
    """Run the experiments of tables that have no result yet; goes on after any interruption."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """tables to run, or 'all'"""
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
        for name in names:
            if name not in RECIPES:
                raise UsageError(unknown("table", name, [*RECIPES, "all"]))
        experiments = [
            recipe.experiment(row, column, self.scale, seed)
            for seed in self.seeds
            for recipe in (RECIPES[name] for name in names)
            for column in recipe.columns
            for row in recipe.rows
            if (not self.tasks or column.task in self.tasks) and (not self.rows or row in self.rows)
        ]
        if not experiments:
            raise UsageError("no experiment is left with these --tasks and --rows")
        run_grid(
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
