"""``s4d evaluate``: the scores of a trained run, on its own data or on other data."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s4d_torch._progress import note, progress
from s4d_torch.cli.common import options
from s4d_torch.cli.common.display import as_json, plain_table, say
from s4d_torch.cli.common.flags import DataDir, Device, RunPath, Switch, shown
from s4d_torch.cli.common.parsing import parse, take_positional, value_of
from s4d_torch.data import Dataset
from s4d_torch.data.tasks.symbols import counted_bits
from s4d_torch.deploy.inference import confusion_matrix, fit_dataset, predict_splits, relative_rate
from s4d_torch.training import METRICS, Config, Run
from s4d_torch.training.distributed import local_device
from s4d_torch.training.evaluation import score
from s4d_torch.training.reports.describe import plural
from s4d_torch.training.reports.intervals import show_interval
from s4d_torch.training.run import changed_data
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.run_folder import RunFolder

MOST_CLASSES = 12  # of which a table shows what was taken for what
OWN = ("path", "targets", "problem")  # options that name parts of the data itself


@dataclass(frozen=True)
class Evaluate:
    """Test the best weights of a run, on its own data or on other data.

    The options of the run's data can be changed: see 's4d evaluate RUN --help'.
    """

    run_folder: RunPath
    """the folder that 's4d train' made, or a name that 's4d models' lists"""
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
    def parse(arguments: Sequence[str]) -> "Evaluate":
        """The command for a run, the options of whose data are the defaults."""
        folder, others = take_positional(arguments, Evaluate)
        if folder is None:
            return tyro.cli(Evaluate, prog="s4d evaluate", args=list(others))
        where = RunFolder(packaged.find(folder))
        config = where.config()
        other = value_of("--task", others)
        if other and other != config.task:  # its own task goes with the options of the run
            task, data = options.task_and_options(other)
            if task.name == config.task:
                data = _read_alike(data, where)
            training = replace(config.training, train_size=None, eval_size=None)
            config = replace(config, task=task.name, data=data, training=training)
        command, parts = parse(Evaluate, folder, others, {"data": config.data})
        options.check_options(command, at_least_one=["batch_size"], above_zero=["rate"])
        return replace(command, config=replace(config, **parts))

    def run(self, console: Console) -> None:
        assert self.config is not None
        run = options.load_named(self.run_folder)
        folder = options.data_folder(self.data_dir, download=not self.offline)
        stored = options.load_data(self.config, folder)
        same_task = self.config.task == run.config.task
        dataset = fit_dataset(stored, run.signature, same_unit=same_task)
        old, new = run.signature.sample_rate, dataset.signature.sample_rate
        rate = relative_rate(run.signature, new) if self.rate is None else self.rate
        own = same_task and self.config.data == run.config.data
        changed = run.data_changes(stored) if own else []
        found = self._evaluate(self.config, run, dataset, rate)
        if changed:
            note(f"s4d: warning: {changed_data(changed)}")
            found["data_changes"] = changed
        if self.json:
            print(as_json(found))
            return
        if self.rate is None and rate != 1:
            at = f"trained at {old:g} Hz, this is at {new:g} Hz: computed with rate {rate:g}"
            say(console, at)
        _show(found, console)

    def _evaluate(self, config: Config, run: Run, dataset: Dataset, rate: float) -> dict[str, Any]:
        """All that is shown, as data."""
        device, size = local_device(self.device), self.batch_size
        splits = [split for name, split in dataset.splits.items() if self.split in (name, "all")]
        count = sum(map(len, splits))
        with nullcontext() if self.json else progress("evaluating", count, brief=True) as shown:
            outputs, targets = predict_splits(
                run,
                dataset,
                splits,
                rate=rate,
                device=device,
                batch_size=size,
                advance=None if shown is None else shown.advance,
            )
        owners = [split.owners for split in splits if split.owners is not None]
        groups = np.concatenate(owners) if len(owners) == len(splits) else None
        evaluation = score(outputs, targets, dataset.signature, intervals=True, groups=groups)
        found: dict[str, Any] = {
            "run": self.run_folder,
            "task": config.task,
            "data": config.to_json()["data"],
            "split": self.split,
            "sequences": len(targets),
            "rate": rate,
            "loss": evaluation.loss,
            "scores": evaluation.scores,
            "intervals": evaluation.intervals,
        }
        kind, classes = run.signature.kind, run.signature.classes
        if kind == "classification" and run.signature.outputs <= MOST_CLASSES:
            found |= {"classes": classes, "confusion": confusion_matrix(outputs, targets).tolist()}
        if kind == "generation":  # what bits per symbol compare with
            found["counted_bits"] = [counted_bits(dataset, splits, order) for order in (0, 1)]
        return found


def _read_alike(data: Any, run: RunFolder) -> Any:
    """Options for other data of the run's own kind, which is read as in training."""
    used: dict[str, Any] = {f.name: getattr(run.config().data, f.name) for f in fields(data)}
    which = {name: getattr(data, name) for name in OWN if name in used}
    if "target" in used:
        used["target"] = used["target"] or run.signature().target
    return type(data)(**(used | which))


def _show(found: Mapping[str, Any], console: Console) -> None:
    say(console, f"{found['task']}, {found['split']}: {plural(found['sequences'], 'sequence')}")
    table = plain_table("", "", "", show_header=False, padding=(0, 1))
    table.columns[1].justify = "right"
    for name, value in found["scores"].items():
        interval = found["intervals"].get(name)
        table.add_row(name, METRICS[name].show(value), show_interval(name, interval))
    table.add_row("loss", f"{found['loss']:.4f}")
    console.print(table)
    if "counted_bits" in found:
        frequency, order = found["counted_bits"]
        say(
            console,
            f"by counting in training: {frequency:.4g} bits from how frequent symbols are, "
            f"{order:.4g} from the symbol before",
        )
    if "confusion" in found:
        say(console, "rows are classes, columns what they were taken for")
        console.print(_confusion_table(found["confusion"], found["classes"], console.width))


def _confusion_table(confusion: list[list[int]], classes: Sequence[str], width: int) -> Table:
    names = list(classes) or [str(i) for i in range(len(confusion))]
    fits = 2 * max(map(len, names)) + sum(max(len(name), 4) + 2 for name in names) < width
    rows = names if fits else [f"{name} ({i})" for i, name in enumerate(names)]
    table = plain_table("")
    for i, name in enumerate(names):
        table.add_column(escape(name) if fits else str(i), justify="right", no_wrap=True)
    for i, row in enumerate(confusion):
        cells = [f"[bold]{x}[/bold]" if i == j else str(x or "·") for j, x in enumerate(row)]
        table.add_row(escape(rows[i]), *cells)
    return table
