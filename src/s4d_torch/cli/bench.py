"""``s4d bench``: ours and the alternatives, side by side in one run."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.console import Console

from s4d_torch._registry import unknown
from s4d_torch.bench import (
    QUICK,
    WORKS,
    BenchReport,
    Measurement,
    Sizes,
    check_device,
    run_works,
    tables,
)
from s4d_torch.bench import page as pages


def _listed(item: Callable[[str], Any], metavar: str) -> Any:
    """Items separated by commas, as one argument."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda given: tuple(item(x) for x in given[0].split(",") if x),
        is_instance=lambda x: isinstance(x, tuple),
        str_from_instance=lambda x: [",".join(map(str, x))],
    )


Names = Annotated[tuple[str, ...], _listed(str, "NAME,NAME,...")]
Numbers = Annotated[tuple[int, ...], _listed(int, "INT,INT,...")]


@dataclass(frozen=True)
class Bench:
    """Measure speed and memory against the alternatives, and check them against the targets.

    Contenders take turns in one run; the best time of each counts. Writes bench.json, targets.md,
    tables.md and a picture. All of it takes more than an hour, most of it in slow rivals.
    """

    work: Names = tuple(WORKS)
    """what to measure, separated by commas"""
    lengths: Numbers = ()
    """other lengths than those of the targets, separated by commas"""
    batch: Numbers = ()
    """other batch sizes than those of the targets, separated by commas"""
    threads: int = field(default_factory=torch.get_num_threads)
    """threads that may be used where all are; most works take one"""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """where to run; what makes sense on a processor alone is then left out"""
    repeats: int = 5
    """runs of each contender, after a warm-up; the best one counts"""
    keep_memory: bool = True
    """whether freed memory stays in the process, as in training: nobody waits for new pages then"""
    out: Path = Path("benchmarks/results")
    """the folder to write to"""
    markdown: Path | None = None
    """a page with markers, between which numbers, tables and picture are to be put"""
    show: tuple[Path, ...] = ()
    """bench.json of earlier runs, to be shown as one (and put into a page) instead of measuring"""
    quick: bool = False
    """very small sizes, only to see that everything runs"""

    def __post_init__(self) -> None:
        for name in self.work:
            if name not in WORKS:
                raise ValueError(unknown("work", name, WORKS))
        check_device(self.device)
        for name in ("threads", "repeats"):
            if (given := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1, got {given}")
        for name in ("lengths", "batch"):
            if min(given := getattr(self, name), default=1) < 1:
                raise ValueError(f"{name} must be numbers above 0, got {given}")

    def run(self, console: Console) -> None:
        if self.show:
            found = reduce(BenchReport.followed_by, map(BenchReport.load, self.show))
        else:
            found = self._measure(console)
        for table in tables.rich_tables(found.records, found.notes):
            console.print(table)
        remark = " (quick: sizes too small to judge by)" if found.settings["quick"] else ""
        console.print(f"Targets{remark}", style="bold", highlight=False)
        console.print(tables.targets_table(found.verdicts))
        if not self.show:
            _tell(console, self.out, pages.write_folder(found, self.out))
        if self.markdown is not None:
            _tell(console, self.markdown, pages.write_page(found, self.markdown))

    def _measure(self, console: Console) -> BenchReport:
        self.out.mkdir(parents=True, exist_ok=True)  # before long work, not after
        sizes = (QUICK if self.quick else Sizes()).at(self.lengths, self.batch)
        return run_works(
            self.work,
            replace(sizes, threads=self.threads, device=self.device),
            quick=self.quick,
            repeats=self.repeats,
            keep_memory=self.keep_memory,
            command=self.command,
            out=self.out / "bench.json",
            tell=lambda race: _print_race(console, race),
        )

    @property
    def command(self) -> str:
        """The command line of this run, as far as it changes what is measured."""
        parts = ["s4d", "bench"]
        if self.work != tuple(WORKS):
            parts += ["--work", ",".join(self.work)]
        for name in ("lengths", "batch"):
            if given := getattr(self, name):
                parts += [f"--{name}", ",".join(map(str, given))]
        if self.repeats != 5:
            parts += ["--repeats", str(self.repeats)]
        if self.device != "cpu":
            parts += ["--device", self.device]
        given = {"--no-keep-memory": not self.keep_memory, "--quick": self.quick}
        return shlex.join([*parts, *(flag for flag, on in given.items() if on)])


def _tell(console: Console, written: Path, why_no_picture: str) -> None:
    if why_no_picture:
        console.print(f"no picture: {why_no_picture}", highlight=False, markup=False)
    console.print(f"wrote {written}", highlight=False)


def _print_race(console: Console, race: list[Measurement]) -> None:
    head, *lines = tables.race_lines(race)
    console.print(head, style="bold", highlight=False)
    for line in lines:
        console.print(line, highlight=False, markup=False)
