"""``s4d predict``: what a trained run makes of files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s4d_torch.cli.common.display import as_json, say
from s4d_torch.cli.common.options import Device, RunPath, Switch, check_options, shown
from s4d_torch.cli.common.parsing import CommandError, UsageError
from s4d_torch.data import TASKS
from s4d_torch.data.user_files import Item, read_items
from s4d_torch.deploy import inference
from s4d_torch.training import Run
from s4d_torch.training.distributed import local_device


@dataclass(frozen=True)
class Predict:
    """Predict the class of sequences, or a number, with the best weights of a run.

    Files are sounds (.wav, .flac, .ogg), arrays (.npy, .npz) or tables (.csv, .tsv) of one sequence
    or of several, in the unit of the run's data; for runs on tokens, text files.
    """

    run_folder: RunPath
    """the folder that 's4d train' made"""
    files: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(required)"),
    ]
    """what to predict from; for a run on pairs, the two of each pair one after the other"""
    rate: Annotated[float | None, shown("FLOAT", "by the rates of the sounds")] = None
    """samples of the training data that one sample stands for: 2 for half the sampling rate"""
    device: Device = "auto"
    """cpu, cuda, ...; auto takes a GPU of CUDA if there is one"""
    json: Switch = False
    """print a JSON object for each sequence"""

    def run(self, console: Console) -> None:
        if not self.files:
            raise UsageError("name a file to predict from: s4d predict RUN FILE ...")
        check_options(self, above_zero=["rate"])
        run = load_predictor(self.run_folder)
        about = (run.signature, TASKS[run.config.task], run.config.data)
        items = [item for file in self.files for item in read_items(file, *about)]
        rates = [self._rate(item, run) for item in items]
        size = run.signature.towers  # sequences come one by one, or in pairs
        if len(items) % size:
            raise CommandError(
                f"the run reads pairs; got {len(items)} sequences, expected an even number"
            )
        groups, used = [items[i : i + size] for i in range(0, len(items), size)], rates[::size]
        values = [tuple(item.values for item in group) for group in groups]
        sequences = values if size > 1 else [only for (only,) in values]
        outputs = inference.predict_at_rates(run, sequences, used, local_device(self.device))
        names = [" + ".join(item.name for item in group) for group in groups]
        found = [inference.labelled(output, run.signature) for output in outputs]
        if self.json:
            for name, prediction, rate in zip(names, found, used, strict=True):
                print(as_json({"file": name, "rate": rate, **prediction}))
            return
        for other in sorted({rate for rate in rates if rate != 1}):
            which = [item for item, rate in zip(items, rates, strict=True) if rate == other]
            name = which[0].name if len(which) == 1 else f"{len(which)} sequences"
            why = inference.describe_rate(other, run.signature, which[0].sample_rate)
            say(console, f"{name}: {why}")
        console.print(_table(names, found))

    def _rate(self, item: Item, run: Run) -> float:
        rate, architecture = self.rate, run.config.model.architecture
        if rate is None:
            rate = inference.relative_rate(run.signature, item.sample_rate)
        if rate != 1 and architecture != "ssm":
            given = "" if item.sample_rate is None else f" is at {item.sample_rate:g} Hz,"
            raise CommandError(
                f"{item.name}{given} and a model of the kind {architecture!r} "
                "cannot change its sampling rate; resample the file to that of its training"
            )
        return rate


def load_predictor(folder: str) -> Run:
    """A run that answers sequences with a class or a number."""
    run = Run.load(folder)
    if run.signature.kind == "generation":
        raise CommandError(f"{folder} predicts the next symbol of a sequence; use 's4d generate'")
    return run


def _table(names: Sequence[str], found: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE)
    table.add_column("file", overflow="fold")
    if "value" in found[0]:
        table.add_column("prediction", justify="right")
        for name, prediction in zip(names, found, strict=True):
            table.add_row(escape(name), f"{prediction['value']:.5g}")
        return table
    table.add_column("class")
    table.add_column("probability", justify="right")
    table.add_column("next")
    for name, prediction in zip(names, found, strict=True):
        second = inference.runner_up(prediction)
        after = "" if second is None else escape(f"{second[0]} ({second[1]:.1%})")
        chance = f"{prediction['probability']:.1%}"
        table.add_row(escape(name), escape(prediction["class"]), chance, after)
    return table
