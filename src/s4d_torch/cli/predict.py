"""``s4d predict``: what a trained run makes of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from s4d_torch.cli.display import as_json, say
from s4d_torch.cli.parsing import CommandError, Switch, UsageError
from s4d_torch.cli.train import check_device
from s4d_torch.data import TASKS
from s4d_torch.data.user_files import Item, read_items
from s4d_torch.training import Run
from s4d_torch.training.distributed import local_device
from s4d_torch.training.run import predict_sequences


@dataclass(frozen=True)
class Predict:
    """Predict the class of sequences, or a number, with the best weights of a run.

    Files are sounds (.wav, .flac, .ogg), arrays (.npy, .npz) or tables (.csv, .tsv) of one sequence
    or of several, in the unit of the run's data; for runs on tokens, text files.
    """

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """the folder that 's4d train' made"""
    files: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FILE ...", help_behavior_hint="(required)"),
    ]
    """what to predict from; for a run on pairs, the two of each pair one after the other"""
    rate: Annotated[
        float | None,
        tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: by the rates of the sounds)"),
    ] = None
    """samples of the training data that one sample stands for: 2 for half the sampling rate"""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """cpu, cuda, ...; auto takes a GPU of CUDA if there is one"""
    json: Switch = False
    """print a JSON object for each sequence"""

    def run(self, console: Console) -> None:
        if not self.files:
            raise UsageError("name a file to predict from: s4d predict RUN FILE ...")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise UsageError(f"--rate must be above 0, got {self.rate}")
        check_device(self.device)
        run = Run.load(self.run_folder)
        if run.signature.kind == "generation":
            raise CommandError(
                f"{self.run_folder} predicts the next symbol of a sequence; use 's4d generate'"
            )
        config = run.config
        items = [
            item
            for file in self.files
            for item in read_items(file, run.signature, TASKS[config.task], config.data)
        ]
        rates = [self._rate(item, run) for item in items]
        names, outputs, used = self._predict(run, items, rates)
        if self.json:
            for name, output, rate in zip(names, outputs, used, strict=True):
                print(as_json({"file": name, "rate": rate, **described(output, run)}))
            return
        for other in sorted({rate for rate in rates if rate != 1}):
            which = [item for item, rate in zip(items, rates, strict=True) if rate == other]
            say(console, _rate_line(which, other, run))
        console.print(_table(names, [described(output, run) for output in outputs]))

    def _rate(self, item: Item, run: Run) -> float:
        trained = run.signature.sample_rate
        rate = self.rate or 1.0
        if self.rate is None and item.sample_rate is not None and trained is not None:
            rate = trained / item.sample_rate
        if rate != 1 and run.config.model.architecture != "ssm":
            given = "" if item.sample_rate is None else f" is at {item.sample_rate:g} Hz,"
            raise CommandError(
                f"{item.name}{given} and a model of the kind {run.config.model.architecture!r} "
                "cannot change its sampling rate; resample the file to that of its training"
            )
        return rate

    def _predict(
        self, run: Run, items: Sequence[Item], rates: Sequence[float]
    ) -> tuple[list[str], list[Tensor], list[float]]:
        """Names, outputs and rates; sequences of one rate are computed together."""
        towers = run.signature.towers
        if len(items) % towers:
            raise CommandError(
                f"the run reads pairs; got {len(items)} sequences, expected an even number"
            )
        groups = [items[i : i + towers] for i in range(0, len(items), towers)]
        device = local_device(self.device)
        run.model.to(device)
        used = list(rates[::towers])
        outputs: dict[int, Tensor] = {}
        for rate in dict.fromkeys(used):
            places = [i for i, each in enumerate(used) if each == rate]
            values = [tuple(item.values for item in groups[i]) for i in places]
            sequences = values if towers > 1 else [value for (value,) in values]
            found = predict_sequences(run, sequences, rate=rate, device=device)
            outputs |= dict(zip(places, found, strict=True))
        names = [" + ".join(item.name for item in group) for group in groups]
        return names, [outputs[i] for i in range(len(groups))], used


def described(output: Tensor, run: Run) -> dict[str, Any]:
    """A prediction as data: the class with all probabilities, or the number."""
    if run.signature.kind == "regression":
        return {"value": output[0].item()}
    classes = run.signature.classes or tuple(map(str, range(run.signature.outputs)))
    best = int(output.argmax())
    probabilities = dict(zip(classes, output.tolist(), strict=True))
    return {
        "class": classes[best],
        "probability": output[best].item(),
        "probabilities": probabilities,
    }


def _rate_line(items: Sequence[Item], rate: float, run: Run) -> str:
    which = items[0].name if len(items) == 1 else f"{len(items)} sequences"
    actual, trained = items[0].sample_rate, run.signature.sample_rate
    if actual is None or trained is None or rate != trained / actual:
        return f"{which}: computed with rate {rate:g}"
    return f"{which}: at {actual:g} Hz, trained at {trained:g} Hz; computed with rate {rate:g}"


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
        others = {k: p for k, p in prediction["probabilities"].items() if k != prediction["class"]}
        second = max(others, key=lambda k: others[k], default="")
        runner_up = f"{second} ({others[second]:.1%})" if second else ""
        chance = f"{prediction['probability']:.1%}"
        table.add_row(escape(name), escape(prediction["class"]), chance, escape(runner_up))
    return table
