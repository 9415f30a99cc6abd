"""``s4d demo``: small models on small real data, side by side, and a page about them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from s4d_torch.data.tasks.digits import load_digits
from s4d_torch.explore import side_by_side
from s4d_torch.explore.side_by_side import COLUMNS, PIXELS
from s4d_torch.training import Progress, Reporter


@dataclass(frozen=True)
class Demo:
    """Train small models on handwritten digits, read pixel by pixel, and compare them.

    The 8x8 images come with the package; nothing is downloaded. Takes about two minutes, prints
    a table and writes a page with learning curves and learned kernels.
    """

    epochs: int = 10
    """passes over the training data"""
    seed: int = 0
    """of the first weights and the order of training"""
    out: Path = field(default_factory=lambda: Path("demo.html"))
    """where the report is written"""
    quick: bool = False
    """one epoch of very small models, only to see that everything runs"""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")

    def run(self, console: Console) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # models this small lose more to a second thread than they win
        data = load_digits()
        console.print(
            f"{len(data.train)} digits to learn from, {len(data.test)} to test on, "
            f"as sequences of {PIXELS} pixels",
            highlight=False,
        )
        with _progress(console) as reporter:
            models = side_by_side.digit_models(self.epochs, self.seed, quick=self.quick)
            runs = side_by_side.compare(data, models, reporter)
        table = Table(COLUMNS[0], title="Digits, pixel by pixel", title_justify="left")
        for heading in COLUMNS[1:]:
            table.add_column(heading, justify="right")
        for row in side_by_side.result_rows(runs):
            table.add_row(*row)
        console.print(table)
        side_by_side.report(runs).save(self.out)
        console.print(f"the report is in {self.out}", highlight=False)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], Reporter]]:
    """A live bar for each model; where there is no terminal, a plain line for each epoch."""
    if not console.is_terminal:
        yield lambda name: _EpochLines(console, name)
        return
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TextColumn("epoch {task.fields[epoch]:>2}  {task.fields[score]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console) as bars:
        yield lambda name: _EpochBar(bars, name)


class _EpochBar(Reporter):
    def __init__(self, bars: Bars, name: str) -> None:
        self.bars = bars
        self.task = bars.add_task(name, total=None, epoch=1, score="")

    def step(self, now: Progress) -> None:
        score = "" if now.score is None else f"validation {now.score:6.1%}"
        self.bars.update(
            self.task, completed=now.step, total=now.steps, epoch=now.epoch, score=score
        )


class _EpochLines(Reporter):
    def __init__(self, console: Console, name: str) -> None:
        self.console, self.name = console, name

    def epoch(self, row: Any) -> None:
        self.console.print(
            f"{self.name:9} epoch {row['epoch']:2}  loss {row['train_loss']:.3f}  "
            f"validation {row['validation_accuracy']:6.1%}",
            highlight=False,
        )
