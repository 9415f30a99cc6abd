"""``s4d bench``: ours and the alternatives, side by side in one run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console

from s4d_torch._registry import unknown
from s4d_torch.bench import plot, report
from s4d_torch.bench.measure import Record, Stopwatch, machine, threads
from s4d_torch.bench.work import QUICK, WORKS, Sizes
from s4d_torch.training.run import keep_freed_memory

PICTURE = "performance.png"


def _listed(
    item: Callable[[str], Any], metavar: str
) -> tyro.constructors.PrimitiveConstructorSpec[Any]:
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
    tables.md and a picture. All of it takes long, most of it in slow rivals at long lengths.
    """

    work: Names = tuple(WORKS)
    """what to measure, separated by commas"""
    lengths: Numbers = ()
    """other lengths than those of the targets, separated by commas"""
    batch: Numbers = ()
    """other batch sizes than those of the targets, separated by commas"""
    threads: int = field(default_factory=torch.get_num_threads)
    """threads that may be used"""
    repeats: int = 5
    """runs of each contender, after a warm-up; the best one counts"""
    keep_memory: bool = False
    """keep freed memory in the process, as training does; no contender then waits for new pages"""
    out: Path = Path("benchmarks/results")
    """the folder to write to"""
    markdown: Path | None = None
    """a page with markers, between which tables and picture are to be put"""
    show: tuple[Path, ...] = ()
    """bench.json of earlier runs, to be shown as one (and put into a page) instead of measuring"""
    quick: bool = False
    """very small sizes, only to see that everything runs"""

    def __post_init__(self) -> None:
        for name in self.work:
            if name not in WORKS:
                raise ValueError(unknown("work", name, WORKS))
        for name in ("threads", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lengths", "batch"):
            if min(getattr(self, name), default=1) < 1:
                raise ValueError(f"{name} must be numbers above 0, got {getattr(self, name)}")

    @property
    def sizes(self) -> Sizes:
        return (QUICK if self.quick else Sizes()).at(self.lengths, self.batch)

    def run(self, console: Console) -> None:
        if self.show:
            found = reduce(report.Report.followed_by, map(report.Report.load, self.show))
        else:
            with threads(self.threads):
                found = self._measure(console)
        for table in report.rich_tables(found.records):
            console.print(table)
        remark = " (quick: sizes too small to judge by)" if found.settings["quick"] else ""
        console.print(f"Targets{remark}", style="bold", highlight=False)
        console.print(report.targets_table(found.verdicts))
        if not self.show:
            self._write_folder(found, console)
        if self.markdown is not None:
            self._write_page(self.markdown, found, console)

    def _measure(self, console: Console) -> report.Report:
        self.out.mkdir(parents=True, exist_ok=True)  # before long work, not after
        settings = {**asdict(self.sizes), "quick": self.quick, "repeats": self.repeats}
        kept = self.keep_memory and keep_freed_memory()
        found = report.Report(self.command, {**machine(), "keeps_freed_memory": kept}, settings)
        limit = 0.05 if self.quick else 30.0
        watch = Stopwatch(self.repeats, longest=limit, patience=limit / 3)
        for name in self.work:
            for records in WORKS[name](self.sizes, watch):
                found.records += records
                _print_progress(console, records)
                found.save(self.out / "bench.json")  # should the rest be interrupted
        return found

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
        given = {"--keep-memory": self.keep_memory, "--quick": self.quick}
        return shlex.join([*parts, *(flag for flag, on in given.items() if on)])

    def _write_folder(self, found: report.Report, console: Console) -> None:
        found.save(self.out / "bench.json")
        picture = _draw(found.records, self.out / PICTURE, console)
        (self.out / "tables.md").write_text(
            report.markdown(found, PICTURE if picture else None), "utf-8"
        )
        (self.out / "targets.md").write_text(report.targets_markdown(found), "utf-8")
        console.print(f"wrote {self.out}", highlight=False)

    def _write_page(self, page: Path, found: report.Report, console: Console) -> None:
        picture = _draw(found.records, page.parent / "images" / PICTURE, console)
        report.insert(page, report.markdown(found, f"images/{PICTURE}" if picture else None))
        console.print(f"wrote {page}", highlight=False)


def _draw(records: list[Record], out: Path, console: Console) -> bool:
    try:
        return plot.draw(records, out)
    except ImportError as error:
        console.print(f"no picture: {error}", highlight=False, markup=False)
        return False


def _print_progress(console: Console, records: list[Record]) -> None:
    first = records[0]
    lengths = dict.fromkeys(str(record.length) for record in records)
    place = f"batch {first.batch}, L={', '.join(lengths)}" if first.length else ""
    console.print(f"{first.work} {first.way} {place}".rstrip(), style="bold", highlight=False)
    for record in records:
        name = record.contender if len(lengths) == 1 else f"{record.contender}, L={record.length}"
        line = f"  {name}: {report.show_record(record)}"
        console.print(line, highlight=False, markup=False)
