"""``s4d demo``: two small models on real sound, side by side, words live, a page about it."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from s4d_torch.data.tasks.spoken import LONGEST, load_spoken
from s4d_torch.explore import LiveWord, demo_page, listen, side_by_side
from s4d_torch.explore.side_by_side import COLUMNS, OURS
from s4d_torch.training import Progress, Reporter
from s4d_torch.training.run import keep_freed_memory

WORDS = 5  # heard live


@dataclass(frozen=True)
class Demo:
    """Train S4D and an LSTM on spoken digits, raw audio at 8 kHz, and compare them.

    The sounds come with the package; nothing is downloaded. Takes about a minute and a half, prints
    a table, recognises words live and writes a page about all of it.
    """

    epochs: int = 12
    """passes over the training clips"""
    seed: int = 0
    """of the first weights, the order of training and the words that are heard live"""
    out: Path = field(default_factory=lambda: Path("demo.html"))
    """where the report is written"""
    quick: bool = False
    """one epoch of very small models on few clips, only to see that everything runs"""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")

    def run(self, console: Console) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # more do not help models so small, least of all an LSTM
        keep_freed_memory()
        data = load_spoken()
        console.print(
            f"{len(data.train)} spoken digits to learn from, {len(data.test)} to test on, "
            f"as raw audio: up to {LONGEST} numbers each",
            highlight=False,
        )
        with _progress(console) as reporter:
            models = side_by_side.spoken_models(self.epochs, self.seed, quick=self.quick)
            trials = side_by_side.compare(data, models, reporter)
        table = Table(COLUMNS[0], title="Spoken digits, sample by sample", title_justify="left")
        for heading in COLUMNS[1:]:
            table.add_column(heading, justify="right")
        for row in side_by_side.result_rows(trials):
            table.add_row(*row)
        console.print(table)
        console.print(side_by_side.verdict(trials), highlight=False)
        words = listen(trials[OURS].run, data, WORDS, self.seed)
        _tell_words(console, words)
        demo_page(trials, words).save(self.out)
        console.print(f"the report is in {self.out}", highlight=False)


def _tell_words(console: Console, words: Sequence[LiveWord]) -> None:
    console.print("live, in chunks of 10 ms, test clips drawn at random:", highlight=False)
    for word in words:
        right = "" if word.heard == word.said else f", but it was {word.said}"
        console.print(
            f"  heard {word.heard} ({word.chances[-1].max():.0%} sure){right}; "
            f"{1e3 * word.computing:.0f} ms of computing for {1e3 * word.seconds:.0f} ms of sound",
            highlight=False,
        )


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], Reporter]]:
    """A live bar for each model; where there is no terminal, a plain line for each epoch."""
    if not console.is_terminal:
        yield lambda name: _EpochLines(console, name)
        return
    columns = (
        TextColumn("{task.description:4}"),
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
            f"{self.name:4} epoch {row['epoch']:2}  loss {row['train_loss']:.3f}  "
            f"validation {row['validation_accuracy']:6.1%}",
            highlight=False,
        )
