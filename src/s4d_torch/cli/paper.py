"""``s4d paper``: the paper's tables, figures and claims as commands."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from s4d_torch._progress import duration
from s4d_torch.cli.common.display import plain_table, say
from s4d_torch.cli.common.flags import shown
from s4d_torch.cli.common.parsing import CommandError, UsageError, misuse
from s4d_torch.data.folder import DataFolder, default_root
from s4d_torch.data.task import TASKS
from s4d_torch.paper.claims import Claim, Finding, judge
from s4d_torch.paper.claims.claim import count_verdicts, sentences
from s4d_torch.paper.claims.deciding import next_experiments
from s4d_torch.paper.experiments.engines import run_one
from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.paper.experiments.grid import run_grid
from s4d_torch.paper.experiments.watch import grid_view, label, outcome
from s4d_torch.paper.figures import FIGURES, FORMATS, save_figure
from s4d_torch.paper.recipes import RECIPES, REFERENCE_TABLES, require_known, select_experiments
from s4d_torch.paper.recipes.recipe import on_best_data
from s4d_torch.paper.report import write_report
from s4d_torch.paper.results import Results


@dataclass(frozen=True)
class Shared:
    """What every part of the command needs to know."""

    scale: Literal["full", "small", "study", "tiny"] = "tiny"
    """full: the paper's sizes; small, study, tiny: reductions for days, hours or minutes on two
    cores"""
    out: Path = Path("paper")
    """the folder of results, one small file for each run, and of the report"""
    data_dir: Path = field(default_factory=default_root)
    """where the data is"""

    @property
    def folder(self) -> Path:
        return self.out / "results"

    def read(self, seeds: Sequence[int] | None) -> Results:
        """The results in the folder of results, and those that lie directly in that of the report.

        By default of all seeds there are.
        """
        beside = Results.read(self.out, self.scale, seeds)
        return beside | Results.read(self.folder, self.scale, seeds)

    @property
    def data(self) -> DataFolder:
        return DataFolder(self.data_dir)


@dataclass(frozen=True)
class Planned(Shared):
    """Runs that are wanted, whether they are there or not."""

    seeds: tuple[int, ...] = (0, 1)
    """one run for each"""


@dataclass(frozen=True)
class Found(Shared):
    """Runs that are there."""

    seeds: Annotated[tuple[int, ...] | None, shown("INT [INT ...]", "all that were run")] = None
    """only these"""

    def results(self, console: Console) -> Results:
        """What there is to show; what is left out is said."""
        every = self.read(None)
        results = every if self.seeds is None else replace(every, seeds=self.seeds)
        runs = results.in_tables()
        failed = sum(run.error is not None for run in runs)
        say(console, f"{len(runs)} of the {len(every.runs)} results in {self.out}; {failed} failed")
        if left := [str(seed) for seed in every.seeds if seed not in results.seeds]:
            say(console, f"left out, as --seeds does not name them: seeds {', '.join(left)}")
        if other := len(every.runs) - len(every.in_tables()):
            say(console, f"left out, as they belong to no table at scale {self.scale}: {other}")
        return results


@dataclass(frozen=True)
class ListTables(Planned):
    """Every table and figure: what it needs, how much is done, and how long the rest takes."""

    def run(self, console: Console) -> None:
        table = Table(box=box.SIMPLE)
        for heading in ("name", "what, and its data", "runs done", "time left"):
            table.add_column(heading, no_wrap=not heading.startswith("what"))
        tasks: list[str] = []
        for name, (done, wanted, seconds) in self.read(self.seeds).progress().items():
            recipe = RECIPES[name]
            left = f"about {duration(seconds)}" if done < wanted else "–"
            needed = list(dict.fromkeys(column.task for column in recipe.columns))
            what = f"{recipe.title} ({recipe.where})\n{', '.join(needed)}"
            table.add_row(name, what, f"{done} of {wanted}", left)
            tasks += needed
        for name, make in REFERENCE_TABLES.items():
            table.add_row(name, f"{make().title} ({make().where})\nno data", "", "none")
        for name, draw in FIGURES.items():
            first = (draw.__doc__ or "").partition("\n")[0]
            table.add_row(name, f"Figure. {first}\nno data", "", "seconds")
        console.print(table)
        say(console, f"scale {self.scale}; times are those of one process, after another")
        for name in dict.fromkeys(tasks):
            here = "here" if TASKS[name].is_here(self.data) else "missing"
            say(console, f"data {name}: {TASKS[name].size}; {here}")
        say(console, "s4d paper run NAME runs a table or draws a figure")


@dataclass(frozen=True)
class RunTables(Planned):
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
    decide: bool = False
    """then run further seeds where a finding is open and seeds would decide it, until none is"""
    most_seeds: int = 8
    """of a comparison, with --decide"""
    retry_failed: bool = False
    """run those again that ended in an error"""
    work: Path | None = None
    """where unfinished runs are kept; by default beside the results"""

    def run(self, console: Console) -> None:
        names = list(RECIPES) if self.names == ("all",) else list(self.names)
        if not names:
            raise UsageError(f"name a table, or 'all'; there are: {', '.join(RECIPES)}")
        with misuse():
            require_known("table or figure", names, [*RECIPES, *REFERENCE_TABLES, *FIGURES, "all"])
            if self.most_seeds < 2:
                raise ValueError(f"--most-seeds must be at least 2, got {self.most_seeds}")
            if self.decide and self.engine == "slurm":
                raise ValueError(
                    "--decide waits for results; the engine slurm only writes a script"
                )
        for name in names:
            place = self.out / "figures" / name
            if name in REFERENCE_TABLES:
                console.print(_reference_table(name))
            elif name in FIGURES:
                for ending in FORMATS:
                    save_figure(name, place.with_name(f"{name}{ending}"))
                say(console, f"wrote {place}: {', '.join(FORMATS)}")
        if tables := [RECIPES[name] for name in names if name in RECIPES]:
            with misuse():
                experiments = select_experiments(
                    tables, self.scale, self.seeds, tasks=self.tasks, rows=self.rows
                )
            if not experiments:
                raise UsageError("no experiment is left with these --tasks and --rows")
            self._run(experiments, console)
            if self.decide:
                self._decide([table.name for table in tables], console)

    def _decide(self, tables: list[str], console: Console) -> None:
        """Seed by seed, as long as there is an open verdict that one more may decide."""
        while more := next_experiments(self.read(None), tables, self.most_seeds):
            if self.tasks:
                more = [each for each in more if each.config.task in self.tasks]
            if not more:
                break
            say(console, f"{len(more)} more runs for findings that are not decided yet")
            self._run(more, console)
        say(console, "no further seed would decide a finding of these tables")

    def _run(self, experiments: list[Experiment], console: Console) -> None:
        done = run_grid(
            [on_best_data(each, self.data) for each in experiments],
            self.folder,
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
        if self.engine == "slurm":
            if len(done) < len({each.key for each in experiments}):
                return
            say(Console(stderr=True), f"nothing to submit: all {len(done)} experiments are done")
        if failed := [result for result in done if result.error is not None]:
            raise CommandError(
                f"{len(failed)} of {len(done)} experiments failed, the first one {failed[0].key} "
                f"({label(failed[0].config)}: {outcome(failed[0])}); {self.folder} has the error "
                "of each as KEY.json, and --retry-failed runs them again"
            )


def _reference_table(name: str) -> Table:
    made = REFERENCE_TABLES[name]()
    table = Table(title=f"{made.title} ({made.where})", box=box.SIMPLE)
    for heading in made.header:
        table.add_column(heading, overflow="fold")  # on a narrow terminal no word is lost
    for row in made.rows:
        table.add_row(*row)
    return table


@dataclass(frozen=True)
class WriteReport(Found):
    """Write report.html (one self-contained page) and report.md from the results there are.

    And reproduction.md, two screens for a reviewer: what is confirmed, contradicted and open.
    """

    figures: bool = True
    """whether the figures are drawn anew, which needs matplotlib"""
    reproduction: Annotated[Path | None, shown("PATH", "reproduction.md in the folder")] = None
    """where the short form goes"""

    def run(self, console: Console) -> None:
        results = self.results(console)
        write_report(results, self.out, figures=self.figures, reproduction=self.reproduction)
        files = f"{self.out / 'report.html'} and {self.out / 'report.md'}"
        say(console, f"the report is in {files}")
        short = self.reproduction or self.out / "reproduction.md"
        say(console, f"what is confirmed, contradicted and open is in {short}")


@dataclass(frozen=True)
class CheckClaims(Found):
    """Check every claim of the paper, and print what holds, what fails, and by how much."""

    def run(self, console: Console) -> None:
        print_claims(console, self.results(console))


COLORS = {"holds": "green", "fails": "red"}  # others are open, or true with a limit


def print_claims(console: Console, results: Results | None = None) -> None:
    """Check every claim and print it with its verdict, then how many there are of each.

    Findings have two: by the results, and by the numbers that the paper prints.
    """
    verdicts: list[str] = []
    about = {"title": "Claims of the paper", "title_style": "bold", "expand": True}
    table = plain_table(padding=(0, 1, 1, 0), **about)
    table.add_column("claim", ratio=5)
    table.add_column("verdict", no_wrap=True)
    table.add_column("numbers", ratio=6)
    for stated, verdict in judge(results):
        verdicts.append(verdict.holds)
        numbers = Text(sentences(verdict.effect))
        more = [sentences(x) for x in (verdict.detail, verdict.what_it_takes) if x]
        holds = Text(verdict.holds, style=COLORS.get(verdict.holds, "yellow"))
        if isinstance(stated, Finding) and (paper := stated.decide_by_paper()) is not None:
            more.append(sentences(f"By the paper's numbers: {paper.holds}; {paper.effect}"))
        numbers.append("".join(f"\n{x}" for x in more), style="dim")
        table.add_row(_statement(stated), holds, numbers)
    console.print(table)
    console.print(count_verdicts(verdicts, "claims"), highlight=False)


def _statement(stated: Claim | Finding) -> Text:
    text = Text(stated.name, style="bold")
    right = isinstance(stated, Claim) and stated.right
    said = f"printed: {stated.statement}\nright: {right}" if right else stated.statement
    text.append(f"\n{said}", style="not bold")
    return text.append(f"\n{stated.where}", style="not bold dim")


@dataclass(frozen=True)
class RunOne:
    """Run one experiment of a manifest, as an array job does."""

    manifest: Annotated[Path, tyro.conf.Positional]
    """the file that --engine slurm wrote"""
    index: Annotated[int, tyro.conf.Positional]
    """which of its experiments, from 0"""

    def run(self, console: Console) -> None:
        result = run_one(self.manifest, self.index)
        if result.error is not None:
            raise CommandError(f"{result.key}: {outcome(result)}")
        say(console, f"{result.key}: done")


Part = (
    Annotated[ListTables, tyro.conf.subcommand("list")]
    | Annotated[RunTables, tyro.conf.subcommand("run")]
    | Annotated[WriteReport, tyro.conf.subcommand("report")]
    | Annotated[CheckClaims, tyro.conf.subcommand("claims")]
    | Annotated[RunOne, tyro.conf.subcommand("run-one")]
)


@dataclass(frozen=True)
class Paper:
    """The paper's tables, figures and claims: list, run, report, claims."""

    part: tyro.conf.OmitSubcommandPrefixes[Part]

    def run(self, console: Console) -> None:
        self.part.run(console)
