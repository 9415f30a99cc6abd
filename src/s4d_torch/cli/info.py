"""``s4d info``: what a run is, how it went and what its layers have learned; or what data holds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from s4d_torch.cli.common import options
from s4d_torch.cli.common.data_summary import show_summary
from s4d_torch.cli.common.display import amount, as_json, plain_table, say
from s4d_torch.cli.common.flags import DataDir, RunPath, Switch, shown
from s4d_torch.cli.common.parsing import CommandError, UsageError, parse, take_positional
from s4d_torch.data import TASKS
from s4d_torch.explore.timescales import QUANTILES, Layers, layer_timescales, save_timescales
from s4d_torch.paper.figures import FORMATS
from s4d_torch.training import METRICS, Config, Run, default_config
from s4d_torch.training.build import build_model
from s4d_torch.training.reports.describe import (
    describe_method,
    describe_model,
    describe_signature,
    parameters_by_kind,
    plural,
)
from s4d_torch.training.reports.intervals import show_score
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.reading import read_json
from s4d_torch.training.saved.run_folder import CONFIG, ENVIRONMENT

WIDTH = 7
MEASURES = ("dt", "time_constant", "frequency")


@dataclass(frozen=True)
class Info:
    """Show a run: model, training, and the timescales and frequencies it has learned.

    Of a task or a path to data instead: cases, channels, classes, duplicates, and what would spoil
    a result; see 's4d info DATA --help' for its options.

    With the step size dt of its channel, a mode fades by a factor e within 1 / (dt |Re A|) samples,
    its time constant, and turns dt |Im A| / (2 pi) times per sample. Beside the trained values
    stand those before training.
    """

    run_folder: RunPath
    """the folder that 's4d train' made, or a name of 's4d models'; or data: a task, or a path to
    your own"""
    plot: Annotated[Path | None, shown("FILE", "no picture")] = None
    """draw timescales and frequencies into a .png, .svg or .pdf file"""
    json: Switch = False
    """print a JSON object"""
    as_data: Switch = False
    """show the task of this name, not the model that comes with the package"""
    data_dir: DataDir = None
    """where data is"""
    config: Annotated[Config | None, tyro.conf.Suppress, tyro.conf.Fixed] = None

    @staticmethod
    def parse(arguments: Sequence[str]) -> "Info":
        """The command for a run, or for data, which has options."""
        subject, others = take_positional(arguments, Info)
        if subject is None:
            return tyro.cli(Info, prog="s4d info", args=list(others))
        path, is_data = packaged.find(subject), "--as-data" in others
        is_run = (path / CONFIG).exists() or not (subject in TASKS or path.exists())
        if is_run and not is_data:
            return parse(Info, subject, others, {})[0]
        task, data = options.task_and_options(subject)
        command, parts = parse(Info, subject, others, {"data": data})
        return replace(command, config=default_config(task, **vars(parts["data"])))

    def run(self, console: Console) -> None:
        if self.config is not None:
            self._show_data(self.config, console)
            return
        if self.plot is not None and self.plot.suffix.lower() not in FORMATS:
            raise UsageError(
                f"--plot must end in one of {', '.join(FORMATS)}; got {self.plot.name!r}"
            )
        run = options.load_named(self.run_folder)
        if self.run_folder in TASKS and not self.json:
            say(console, f"for the data of that name: s4d info {self.run_folder} --as-data")
        start = layer_timescales(build_model(run.config, run.signature))
        trained = layer_timescales(run.model)
        if self.json:
            print(as_json(described(run, start, trained)))
        else:
            _show(run, console)
            if trained:
                _show_timescales(run, start, trained, console)
        if self.plot is not None:
            if not trained:
                raise UsageError(f"--plot: {run.folder} has no state spaces to draw")
            length, rate = run.signature.length, run.signature.sample_rate
            save_timescales(start, trained, self.plot, length=length, sample_rate=rate)
            if not self.json:
                say(console, f"wrote {self.plot}")

    def _show_data(self, config: Config, console: Console) -> None:
        if self.plot is not None:
            raise UsageError("--plot draws what a run has learned; this is data")
        summary = options.load_summary(config, options.data_folder(self.data_dir))
        if summary is None:
            raise CommandError(f"the data of {config.task} is made first; 's4d train' does that")
        if self.json:
            data = config.to_json()["data"]
            print(as_json({"task": config.task, "data": data, "summary": summary.to_json()}))
            return
        say(console, f"{config.task}: {TASKS[config.task].summary}")
        show_summary(summary, console)


def described(run: Run, start: Layers, trained: Layers) -> dict[str, Any]:
    """All that the command shows, as data."""

    before, after = (
        [{name: layer.quantiles(name) for name in MEASURES} for layer in layers]
        for layers in (start, trained)
    )
    return {
        "run": str(run.folder),
        "config": run.config.to_json(),
        "signature": asdict(run.signature),
        "parameters": parameters_by_kind(run.model),
        "epochs": len(run.rows),
        "summary": run.summary,
        "quantiles": QUANTILES,
        "layers": [{"start": a, "trained": b} for a, b in zip(before, after, strict=True)],
    }


def _show(run: Run, console: Console) -> None:
    config, test = run.config, run.summary["test"] if run.summary else {}
    about = {
        "task": f"{config.task}: {describe_signature(run.signature)}",
        "model": describe_model(config, run.model),
        "method": describe_method(config.method) if config.model.architecture == "ssm" else "",
        "training": _training_line(run),
        "test": ", ".join(f"{name} {_score(run, name)}" for name in test),
        "made with": _environment(run),
    }
    for name, text in about.items():
        if text:
            say(console, f"{name:<10} {text}")
    table = plain_table("part", "parameters", title="Parameters", pad_edge=False)
    for kind, number in parameters_by_kind(run.model).items():
        table.add_row(kind, f"{number:,}")
    table.columns[1].justify = "right"
    console.print(table)


def _score(run: Run, name: str) -> str:
    return show_score(name, run.summary)


def _training_line(run: Run) -> str:
    training, done = run.config.training, run.summary
    epochs = plural(training.known_epochs, "epoch")
    if run.rows or not done:  # a model that comes with the package has no curves
        epochs = f"{len(run.rows)} of {epochs}"
    if not done:
        return f"{epochs}, not finished; seed {training.seed}"
    name = done["metric"]
    best = METRICS[name].show(done["validation"])
    return (
        f"{epochs}, {plural(done['steps'], 'step')}, {amount(done['seconds'])}, seed "
        f"{training.seed}; best validation {name} {best} after epoch {done['best_epoch']}"
    )


def _environment(run: Run) -> str:
    assert run.folder is not None
    try:
        made = read_json(run.folder / ENVIRONMENT)
        made = {
            name: str(made[name] or "") for name in ("commit", "s4d_torch", "torch", "platform")
        }
    except (OSError, ValueError, KeyError):  # it is not needed for anything else
        return ""
    commit = f" ({made['commit'][:10]})" if made["commit"] else ""
    return f"s4d-torch {made['s4d_torch']}{commit}, torch {made['torch']}, {made['platform']}"


def _show_timescales(run: Run, start: Layers, trained: Layers, console: Console) -> None:
    rate = run.signature.sample_rate
    table = plain_table(title="Timescales and frequencies", pad_edge=False)
    table.add_column("layer", no_wrap=True)
    levels = "".join(f"{level:>{WIDTH}.0%}" for level in QUANTILES)
    heads = {"step size dt": "", "time const. (samples)": "(ms)", "cycles per sample": "(Hz)"}
    for head, unit in heads.items():
        below = f"\n{unit}" if rate is not None else ""
        table.add_column(f"{head}{below}\n{levels}", no_wrap=True)
    for i, both in enumerate(zip(start, trained, strict=True), start=1):
        for name, layer in zip(("start", "trained"), both, strict=True):
            dt, times, turns = (layer.quantiles(measure) for measure in MEASURES)
            cells = [_range(times), _range(turns)]
            if rate is not None:
                cells[0] += "\n" + _range([1000 * x / rate for x in times])
                cells[1] += "\n" + _range([x * rate for x in turns])
            table.add_row(f"{i} {name}", _range(dt), *cells)
    console.print(table)
    if run.config.method.structure == "dplr":
        say(console, "of the diagonal part of A; the low-rank part shifts them")


def _range(quantiles: Sequence[float]) -> str:
    return "".join(f"{_short(x):>{WIDTH}}" for x in quantiles)


def _short(x: float) -> str:
    """Two or three digits that matter, in little space."""
    if x >= 10:
        return f"{x:.0f}" if x < 1e5 else f"{x:.0e}"
    return f"{x:.2g}" if x >= 1e-4 or x == 0 else f"{x:.0e}"
