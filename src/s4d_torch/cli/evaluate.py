"""``s4d evaluate``: the scores of a trained run, on its own data or on other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from s4d_torch.cli.common.options import (
    DataDir,
    Device,
    RunPath,
    Switch,
    check_above_zero,
    check_at_least_one,
    check_device,
    data_folder,
    load_data,
    shown,
    task_and_options,
)
from s4d_torch.cli.common.parsing import parse, take_positional, value_of
from s4d_torch.cli.common.tables import plain_table
from s4d_torch.cli.display import as_json, say
from s4d_torch.data.tasks.symbols import counted_bits
from s4d_torch.deploy.inference import (
    confusion_matrix,
    fit_dataset,
    predict_splits,
    relative_rate,
)
from s4d_torch.training import METRICS, Config, Run
from s4d_torch.training.describe import plural
from s4d_torch.training.evaluation import Evaluation, score
from s4d_torch.training.folder import RunFolder
from s4d_torch.training.processes import local_device

MOST_CLASSES = 12  # of which a table shows what was taken for what


@dataclass(frozen=True)
class Evaluate:
    """Test the best weights of a run, on its own data or on other data.

    The options of the run's data can be changed: see 's4d evaluate RUN --help'.
    """

    run_folder: RunPath
    """the folder that 's4d train' made"""
    task: Annotated[str, shown("TASK", "that of the run")] = ""
    """another task or a path to other data, with the same features and classes"""
    split: Literal["train", "validation", "test", "all"] = "test"
    """which sequences"""
    rate: Annotated[float | None, shown("FLOAT", "by the rates of the data")] = None
    """samples of the training data that one sample here stands for: 2 for half the sampling rate"""
    data_dir: DataDir = None
    """where data is, or is downloaded to"""
    offline: Switch = False
    """download nothing; say what is missing"""
    device: Device = "auto"
    """cpu, cuda, ...; auto takes a GPU of CUDA if there is one"""
    batch_size: Annotated[int | None, shown("INT", "as in training")] = None
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
            task, options = task_and_options(other)
            training = replace(config.training, train_size=None, eval_size=None)
            config = replace(config, task=task.name, data=options, training=training)
        command, parts = parse(Evaluate, folder, others, {"data": config.data})
        check_above_zero(command, "rate")
        check_at_least_one(command, "batch_size")
        check_device(command.device)
        return replace(command, config=replace(config, **parts))

    def run(self, console: Console) -> None:
        assert self.config is not None
        run = Run.load(self.run_folder)
        stored = load_data(self.config, data_folder(self.data_dir, download=not self.offline))
        same_task = self.config.task == run.config.task
        dataset = fit_dataset(stored, run.signature, same_unit=same_task)
        old, new = run.signature.sample_rate, dataset.signature.sample_rate
        rate = relative_rate(run.signature, new) if self.rate is None else self.rate
        splits = [split for name, split in dataset.splits.items() if self.split in (name, "all")]
        outputs, targets = predict_splits(
            run,
            dataset,
            splits,
            rate=rate,
            device=local_device(self.device),
            batch_size=self.batch_size,
        )
        found = score(outputs, targets, dataset.signature)
        few_classes = run.signature.outputs <= MOST_CLASSES
        confusion = None
        if run.signature.kind == "classification" and few_classes:
            confusion = confusion_matrix(outputs, targets)
        counted: list[float] = []  # what bits per symbol compare with
        if run.signature.kind == "generation":
            counted = [counted_bits(dataset, splits, order) for order in (0, 1)]
        if self.json:
            described = self._described(found, len(targets), rate, run, confusion)
            print(as_json(described | ({"counted_bits": counted} if counted else {})))
            return
        if self.rate is None and rate != 1:
            say(
                console,
                f"trained at {old:g} Hz, this is at {new:g} Hz: computed with rate {rate:g}",
            )
        say(console, f"{self.config.task}, {self.split}: {plural(len(targets), 'sequence')}")
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


def _scores_table(found: Evaluation) -> Table:
    table = plain_table("", "", show_header=False, padding=(0, 1))
    table.columns[1].justify = "right"
    for name, value in found.scores.items():
        table.add_row(name, METRICS[name].show(value))
    table.add_row("loss", f"{found.loss:.4f}")
    return table


def _confusion_table(confusion: Tensor, classes: Sequence[str], width: int) -> Table:
    names = list(classes) or [str(i) for i in range(len(confusion))]
    fits = 2 * max(map(len, names)) + sum(max(len(name), 4) + 2 for name in names) < width
    rows = names if fits else [f"{name} ({i})" for i, name in enumerate(names)]
    table = plain_table("")
    for i, name in enumerate(names):
        table.add_column(escape(name) if fits else str(i), justify="right", no_wrap=True)
    for i, row in enumerate(confusion.tolist()):
        cells = [f"[bold]{x}[/bold]" if i == j else str(x or "·") for j, x in enumerate(row)]
        table.add_row(escape(rows[i]), *cells)
    return table
