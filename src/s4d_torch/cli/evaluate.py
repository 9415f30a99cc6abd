"""``s4d evaluate``: the scores of a trained run, on its own data or on other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from s4d_torch.cli.display import as_json, say
from s4d_torch.cli.parsing import (
    CommandError,
    DataDir,
    Switch,
    UsageError,
    parse,
    take_positional,
    value_of,
)
from s4d_torch.cli.summary import count, signature_line
from s4d_torch.cli.train import check_device, found_task, load
from s4d_torch.data import DataFolder, Dataset, Signature, Split, default_root
from s4d_torch.data.tasks.symbols import counted_bits
from s4d_torch.training import METRICS, Config, Run
from s4d_torch.training.distributed import local_device
from s4d_torch.training.evaluation import Evaluation, predict, score
from s4d_torch.training.run_folder import RunFolder

FITTING = ("kind", "tokens", "towers", "features")  # what has to be as in training
MOST_CLASSES = 12  # of which a table shows what was taken for what


@dataclass(frozen=True)
class Evaluate:
    """Test the best weights of a run, on its own data or on other data.

    The options of the run's data can be changed: see 's4d evaluate RUN --help'.
    """

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """the folder that 's4d train' made"""
    task: Annotated[
        str, tyro.conf.arg(metavar="TASK", help_behavior_hint="(default: that of the run)")
    ] = ""
    """another task or a path to other data, with the same features and classes"""
    split: Literal["train", "validation", "test", "all"] = "test"
    """which sequences"""
    rate: Annotated[
        float | None,
        tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: by the rates of the data)"),
    ] = None
    """samples of the training data that one sample here stands for: 2 for half the sampling rate"""
    data_dir: DataDir = None
    """where data is, or is downloaded to"""
    offline: Switch = False
    """download nothing; say what is missing"""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """cpu, cuda, ...; auto takes a GPU of CUDA if there is one"""
    batch_size: Annotated[
        int | None,
        tyro.conf.arg(metavar="INT", help_behavior_hint="(default: as in training)"),
    ] = None
    """sequences that are computed together"""
    json: Switch = False
    """print a JSON object"""
    config: Annotated[Config | None, tyro.conf.Suppress, tyro.conf.Fixed] = None

    @staticmethod
    def parse(arguments: Sequence[str]) -> Evaluate:
        """The command for a run, the options of whose data are the defaults."""
        folder, others = take_positional(arguments, Evaluate)
        if folder is None:
            return tyro.cli(Evaluate, prog="s4d evaluate", args=list(others))
        config = RunFolder(folder).config()
        other = value_of("--task", others)
        if other and other != config.task:  # its own task goes with the options of the run
            task, options = found_task(other)
            training = replace(config.training, train_size=None, eval_size=None)
            config = replace(config, task=task.name, data=options, training=training)
        command, parts = parse(Evaluate, folder, others, {"data": config.data})
        if command.rate is not None and not 0 < command.rate < float("inf"):
            raise UsageError(f"--rate must be above 0, got {command.rate}")
        if command.batch_size is not None and command.batch_size < 1:
            raise UsageError(f"--batch-size must be at least 1, got {command.batch_size}")
        check_device(command.device)
        return replace(command, config=replace(config, **parts))

    def run(self, console: Console) -> None:
        assert self.config is not None
        run = Run.load(self.run_folder)
        root = default_root() if self.data_dir is None else self.data_dir.expanduser()
        stored = load(self.config, DataFolder(root, not self.offline))
        dataset = adapted(stored, run.signature, same_unit=self.config.task == run.config.task)
        rate, why = chosen_rate(self.rate, run.signature, dataset.signature)
        outputs, targets = self._predict(run, dataset, rate)
        found = score(outputs, targets, dataset.signature)
        confusion = _confusion(outputs, targets, dataset.signature)
        counted: list[float] = []  # what bits per symbol compare with
        if run.signature.kind == "generation":
            counted = [counted_bits(dataset, self._splits(dataset), order) for order in (0, 1)]
        if self.json:
            described = self._described(found, len(targets), rate, run, confusion)
            print(as_json(described | ({"counted_bits": counted} if counted else {})))
            return
        if why:
            say(console, why)
        say(console, f"{self.config.task}, {self.split}: {count(len(targets), 'sequence')}")
        console.print(_scores_table(found))
        if counted:
            say(
                console,
                f"by counting in training: {counted[0]:.4g} bits from how frequent symbols are, "
                f"{counted[1]:.4g} from the symbol before",
            )
        if confusion is not None:
            say(console, "rows are classes, columns what they were taken for")
            console.print(_confusion_table(confusion, run.signature.classes, console.width))

    def _predict(self, run: Run, dataset: Dataset, rate: float) -> tuple[Tensor, Tensor]:
        device = local_device(self.device)
        model = run.model.to(device)
        each = [
            predict(
                model,
                dataset,
                split,
                batch_size=self.batch_size or run.config.training.batch_size,
                device=device,
                precision=run.config.training.precision,
                rate=rate,
            )
            for split in self._splits(dataset)
        ]
        outputs, targets = zip(*each, strict=True)
        return torch.cat(outputs), torch.cat(targets)

    def _splits(self, dataset: Dataset) -> list[Split]:
        return [split for name, split in dataset.splits.items() if self.split in (name, "all")]

    def _described(
        self, found: Evaluation, size: int, rate: float, run: Run, confusion: Tensor | None
    ) -> dict[str, Any]:
        assert self.config is not None
        described: dict[str, Any] = {
            "run": self.run_folder,
            "task": self.config.task,
            "data": self.config.to_json()["data"],
            "split": self.split,
            "sequences": size,
            "rate": rate,
            "loss": found.loss,
            "scores": found.scores,
        }
        if confusion is not None:
            described |= {"classes": run.signature.classes, "confusion": confusion.tolist()}
        return described


def adapted(dataset: Dataset, trained: Signature, *, same_unit: bool) -> Dataset:
    """The dataset as a model reads it that was trained on data of another signature.

    Classes are matched by their names. Values of the same reader are in the same unit and are
    normalised as in training; those of another task by that task's own statistics.
    """
    found = dataset.signature
    if any(getattr(trained, name) != getattr(found, name) for name in FITTING):
        raise CommandError(
            f"this data does not fit the run: it was trained on {signature_line(trained)}; "
            f"the data has {signature_line(found)}"
        )
    signature = replace(trained, length=found.length, sample_rate=found.sample_rate)
    if not same_unit:
        signature = replace(signature, input_shift=found.input_shift, input_scale=found.input_scale)
    if trained.kind != "classification":
        return replace(dataset, signature=signature)
    numbers = _class_numbers(trained, found)

    def renamed(split: Split) -> Split:
        return replace(split, targets=numbers[np.asarray(split.targets, dtype=np.int64)])

    splits = {name: renamed(split) for name, split in dataset.splits.items()}
    return Dataset(**splits, signature=signature)


def _class_numbers(trained: Signature, found: Signature) -> Any:
    """For each class of the data its number in the run."""
    if trained.classes == found.classes and trained.outputs == found.outputs:
        return np.arange(found.outputs)
    strange = [name for name in found.classes if name not in trained.classes]
    if strange or not found.classes or not trained.classes:
        raise CommandError(
            f"this data does not fit the run, which tells {trained.outputs} classes apart "
            f"({', '.join(trained.classes[:10]) or 'without names'}); the data has "
            f"{', '.join(strange[:10]) or f'{found.outputs} without names'}"
        )
    return np.array([trained.classes.index(name) for name in found.classes])


def chosen_rate(
    asked: float | None, trained: Signature, found: Signature
) -> tuple[float, str | None]:
    """The rate to compute with, and a sentence if it was worked out from the sampling rates."""
    if asked is not None:
        return asked, None
    old, new = trained.sample_rate, found.sample_rate
    if old is None or new is None or old == new:
        return 1.0, None
    return (
        old / new,
        f"trained at {old:g} Hz, this is at {new:g} Hz: computed with rate {old / new:g}",
    )


def _scores_table(found: Evaluation) -> Table:
    table = Table("", "", box=box.SIMPLE, show_header=False)
    table.columns[1].justify = "right"
    for name, value in found.scores.items():
        table.add_row(name, METRICS[name].show(value))
    table.add_row("loss", f"{found.loss:.4f}")
    return table


def _confusion(outputs: Tensor, targets: Tensor, signature: Signature) -> Tensor | None:
    """(classes, classes): how often the class of a row was taken for that of a column."""
    classes = signature.outputs
    if signature.kind != "classification" or classes > MOST_CLASSES:
        return None
    both = targets * classes + outputs.argmax(-1)
    return torch.bincount(both, minlength=classes**2).view(classes, classes)


def _confusion_table(confusion: Tensor, classes: Sequence[str], width: int) -> Table:
    names = list(classes) or [str(i) for i in range(len(confusion))]
    fits = 2 * max(map(len, names)) + sum(max(len(name), 4) + 2 for name in names) < width
    rows = names if fits else [f"{name} ({i})" for i, name in enumerate(names)]
    table = Table("", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for i, name in enumerate(names):
        table.add_column(escape(name) if fits else str(i), justify="right", no_wrap=True)
    for i, row in enumerate(confusion.tolist()):
        cells = [f"[bold]{x}[/bold]" if i == j else str(x or "·") for j, x in enumerate(row)]
        table.add_row(escape(rows[i]), *cells)
    return table
