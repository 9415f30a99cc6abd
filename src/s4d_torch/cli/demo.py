"""``s4d demo``: small models on small real data, side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from s4d_torch.data import Dataset, load_digits
from s4d_torch.nn.method import METHODS, Method
from s4d_torch.nn.model import SequenceModel
from s4d_torch.training import accuracy, fit, loop

PIXELS = 64
# Sequences of 64 samples are short: steps this large let a kernel fade within them.
S4D = METHODS["s4d"].replace(dt_min=0.01, dt_max=0.5)
S4 = METHODS["s4"].replace(dt_min=0.01, dt_max=0.5)
DSS = METHODS["dss"].replace(dt_min=0.01, dt_max=0.5, softmax_length=PIXELS)
CONTENDERS = {
    "S4D-LegS": S4D,
    "S4D-Inv": S4D.replace(init="inv"),
    "S4D-Lin": S4D.replace(init="lin"),
    "S4": S4,
    "DSS": DSS,
}

Report = Callable[[loop.Progress], None]


@dataclass(frozen=True)
class Result:
    """One row of the final table."""

    name: str
    accuracy: float
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Demo:
    """Train small models on handwritten digits, read pixel by pixel, and compare them.

    The 8x8 images come with scikit-learn; nothing is downloaded. Takes one to two minutes.
    """

    epochs: int = 10
    """passes over the training data"""
    seed: int = 0
    """of the splits, the first weights and the order of training"""
    quick: bool = False
    """one epoch of very small models, only to see that everything runs"""

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")

    def run(self, console: Console) -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(1)  # models this small lose more to a second thread than they win
        data = load_digits(self.seed)
        console.print(
            f"{len(data.train)} digits to learn from, {len(data.test)} to test on, "
            f"as sequences of {PIXELS} pixels",
            highlight=False,
        )
        # torch loads much of itself at the first step of all; that is none of the models' time
        few = data.train[:2]
        self._train("warm-up", S4D, Dataset(few, few, few, data.classes), lambda _: None)
        with _progress(console) as follow:
            results = [
                self._train(name, method, data, follow(name)) for name, method in CONTENDERS.items()
            ]
        console.print(results_table(results))

    def _train(self, name: str, method: Method, data: Dataset, report: Report) -> Result:
        width, d_state, epochs = (8, 4, 1) if self.quick else (48, 32, self.epochs)
        model = SequenceModel(
            data.features,
            data.classes,
            d_model=width,
            n_layers=2,
            d_state=d_state,
            method=method,
            dropout=0.1,
            generator=torch.Generator().manual_seed(self.seed),
        )
        start = time.perf_counter()
        fit(
            model,
            data.train,
            data.validation,
            epochs=epochs,
            batch_size=128 if self.quick else 32,
            lr=0.02,
            seed=self.seed,
            on_progress=report,
        )
        seconds = time.perf_counter() - start
        parameters = sum(parameter.numel() for parameter in model.parameters())
        return Result(name, accuracy(model, data.test), parameters, seconds)


def results_table(results: list[Result]) -> Table:
    table = Table("model", title="Digits, pixel by pixel", title_justify="left")
    for heading in ("test accuracy", "parameters", "seconds"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.name,
            f"{result.accuracy:.1%}",
            f"{result.parameters:,}",
            f"{result.seconds:.1f}",
        )
    return table


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], Report]]:
    """A live bar for each model; where there is no terminal, a plain line for each epoch."""
    if not console.is_terminal:
        yield lambda name: lambda now: _print_epoch(console, name, now)
        return
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TextColumn("epoch {task.fields[epoch]:>2}  {task.fields[score]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:

        def follow(name: str) -> Report:
            task = bars.add_task(name, total=None, epoch=1, score="")

            def report(now: loop.Progress) -> None:
                score = "" if now.accuracy is None else f"validation {now.accuracy:6.1%}"
                bars.update(task, completed=now.step, total=now.steps, epoch=now.epoch, score=score)

            return report

        yield follow


def _print_epoch(console: Console, name: str, now: loop.Progress) -> None:
    if now.step * now.epochs % now.steps == 0 and now.accuracy is not None:
        console.print(
            f"{name:9} epoch {now.epoch:2}/{now.epochs}  loss {now.loss:.3f}  "
            f"validation {now.accuracy:6.1%}",
            highlight=False,
        )
