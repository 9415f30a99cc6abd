"""``s4d demo``: small models on small real data, side by side, and a page about them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from s4d_torch.data.tasks.digits import load_digits
from s4d_torch.nn.method import METHODS
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.nn.ssm import SSM
from s4d_torch.paper.report import Chart, Code, Heading, Line, Page, Paragraph
from s4d_torch.paper.report import Table as PageTable
from s4d_torch.training import Config, Progress, Reporter, Run, default_config, train_on
from s4d_torch.training.build import build_model

PIXELS = 64
SHOWN = 4  # kernels in the report


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
        configs = self.contenders()
        # torch loads much of itself at the first step of all; that is none of the models' time
        train_on(data.shortened(train=2, test=2), next(iter(configs.values())))
        runs = {}
        with _progress(console) as follow:
            for name, config in configs.items():
                runs[name] = train_on(data, config, reporter=follow(name))
        console.print(results_table(runs))
        report(runs).save(self.out)
        console.print(f"the report is in {self.out}", highlight=False)

    def contenders(self) -> dict[str, Config]:
        """The models of the paper, and an LSTM with as many parameters."""
        base = default_config("digits")
        training = replace(base.training, epochs=self.epochs, seed=self.seed)
        base = replace(base, training=training)
        if self.quick:
            base = replace(
                base,
                model=replace(base.model, d_model=8, d_state=4),
                training=replace(training, epochs=1, batch_size=128),
            )
        times = {"dt_min": base.method.dt_min, "dt_max": base.method.dt_max}
        rows = {
            "S4D-LegS": METHODS["s4d"],
            "S4D-Inv": METHODS["s4d"].replace(init="inv"),
            "S4D-Lin": METHODS["s4d"].replace(init="lin"),
            "S4": METHODS["s4"],
            "DSS": METHODS["dss"],
        }
        configs = {
            name: replace(base, method=method.replace(**times)) for name, method in rows.items()
        }
        # One layer of 48 cells has 19 402 parameters, S4D 19 690. Its settings did best on the
        # validation set among pooling mean and last, and learning rates 0.003 to 0.02.
        lstm = replace(
            base,
            model=replace(base.model, architecture="lstm", n_layers=1, pooling="last"),
            optimizer=replace(base.optimizer, lr=0.01, clip=1.0),
        )
        return {**configs, "LSTM": lstm}


def results_table(runs: dict[str, Run]) -> Table:
    table = Table("model", title="Digits, pixel by pixel", title_justify="left")
    for heading in ("test accuracy", "parameters", "seconds"):
        table.add_column(heading, justify="right")
    for row in _rows(runs):
        table.add_row(*row)
    return table


def _rows(runs: dict[str, Run]) -> list[list[str]]:
    return [
        [
            name,
            f"{run.summary['test']['accuracy']:.1%}",
            f"{run.summary['parameters']:,}",
            f"{run.summary['seconds']:.1f}",
        ]
        for name, run in runs.items()
    ]


# -- the report ----------------------------------------------------------------------------------


def report(runs: dict[str, Run]) -> Page:
    """The table, the learning curves and what the layers have learned, as a page."""
    seed = next(iter(runs.values())).config.training.seed
    curves = [
        Line(
            name,
            [float(row["epoch"]) for row in run.rows],
            [float(row["validation_accuracy"]) for row in run.rows],
        )
        for name, run in runs.items()
    ]
    header = ["model", "test accuracy", "parameters", "seconds"]
    caption = "Accuracy of the weights that did best on the validation set"
    learning = "Validation accuracy after each epoch"
    machine = f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    page = Page("Digits, pixel by pixel")
    page.add(
        Paragraph(
            f"Handwritten digits of 8x8 pixels, read as sequences of {PIXELS} numbers; one run of "
            f"each model, seed {seed}. A difference of a point is three of the 359 test digits."
        ),
        Heading("Results"),
        PageTable(header, _rows(runs), caption),
        Heading("Learning curves"),
        Chart(curves, "epoch", "validation accuracy", learning, percent=True),
        Heading("Kernels"),
        Paragraph(
            "A state space layer is a convolution. These are the kernels of the first features of "
            "S4D-LegS's first layer, at the start and as learned."
        ),
        *(_kernels(model, when) for when, model in _before_and_after(runs["S4D-LegS"]).items()),
        Heading("Machine and command"),
        Paragraph(f"{machine}, {torch.get_num_threads()} thread(s)"),
        Code("s4d demo"),
    )
    return page


def _before_and_after(run: Run) -> dict[str, Pretrained]:
    return {"At the start": build_model(run.config, run.signature), "Learned": run.model}


def _kernels(model: Pretrained, caption: str) -> Chart:
    first = next(module for module in model.modules() if isinstance(module, SSM))
    kernels = first.kernel(PIXELS).detach()[:SHOWN]
    lines = [
        Line(f"feature {i}", list(range(PIXELS)), kernel.tolist())
        for i, kernel in enumerate(kernels)
    ]
    return Chart(lines, "samples ago", "weight", caption, title=f"Kernels: {caption}")


# -- progress --------------------------------------------------------------------------------------


@contextmanager
def _progress(console: Console) -> Iterator[Any]:
    """A live bar for each model; where there is no terminal, a plain line for each epoch."""
    if not console.is_terminal:
        yield lambda name: _Lines(console, name)
        return
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TextColumn("epoch {task.fields[epoch]:>2}  {task.fields[score]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console) as bars:
        yield lambda name: _Bar(bars, name)


class _Bar(Reporter):
    def __init__(self, bars: Bars, name: str) -> None:
        self.bars = bars
        self.task = bars.add_task(name, total=None, epoch=1, score="")

    def step(self, now: Progress) -> None:
        score = "" if now.score is None else f"validation {now.score:6.1%}"
        self.bars.update(
            self.task, completed=now.step, total=now.steps, epoch=now.epoch, score=score
        )


class _Lines(Reporter):
    def __init__(self, console: Console, name: str) -> None:
        self.console, self.name = console, name

    def epoch(self, row: Any) -> None:
        self.console.print(
            f"{self.name:9} epoch {row['epoch']:2}  loss {row['train_loss']:.3f}  "
            f"validation {row['validation_accuracy']:6.1%}",
            highlight=False,
        )
