"""``s4d info``: what a run is, how it went, and what its layers have learned to listen to."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from torch import nn

from s4d_torch.cli.display import amount, as_json, say
from s4d_torch.cli.parsing import Switch, UsageError
from s4d_torch.cli.summary import count, method_name, model_line, signature_line
from s4d_torch.cli.timescales import QUANTILES, Spectrum, save_picture, spectra
from s4d_torch.nn.method import Method
from s4d_torch.nn.ssm import SSM
from s4d_torch.paper.figures import FORMATS
from s4d_torch.training import METRICS, Run
from s4d_torch.training.build import build_model
from s4d_torch.training.run_folder import ENVIRONMENT

WIDTH = 7
MEASURES = ("dt", "time_constant", "frequency")


@dataclass(frozen=True)
class Info:
    """Show a run: model, training, and the timescales and frequencies it has learned.

    With the step size dt of its channel, a mode fades by a factor e within 1 / (dt |Re A|) samples,
    its time constant, and turns dt |Im A| / (2 pi) times per sample. Beside the trained values
    stand those before training.
    """

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """the folder that 's4d train' made"""
    plot: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: no picture)")
    ] = None
    """draw timescales and frequencies into a .png, .svg or .pdf file"""
    json: Switch = False
    """print a JSON object"""

    def run(self, console: Console) -> None:
        if self.plot is not None and self.plot.suffix.lower() not in FORMATS:
            raise UsageError(
                f"--plot must end in one of {', '.join(FORMATS)}; got {self.plot.name!r}"
            )
        run = Run.load(self.run_folder)
        start, trained = (spectra(m) for m in (build_model(run.config, run.signature), run.model))
        if self.json:
            print(as_json(described(run, start, trained)))
        else:
            _show(run, console)
            if trained:
                _show_spectra(run, start, trained, console)
        if self.plot is not None:
            if not trained:
                raise UsageError(f"--plot: {run.folder} has no state spaces to draw")
            length, rate = run.signature.length, run.signature.sample_rate
            save_picture(start, trained, self.plot, length=length, sample_rate=rate)
            if not self.json:
                say(console, f"wrote {self.plot}")


def described(run: Run, start: Sequence[Spectrum], trained: Sequence[Spectrum]) -> dict[str, Any]:
    """All that the command shows, as data."""

    def measured(spectrum: Spectrum) -> dict[str, Any]:
        return {name: spectrum.quantiles(name) for name in MEASURES}

    return {
        "run": str(run.folder),
        "config": run.config.to_json(),
        "signature": vars(run.signature),
        "parameters": parameters_by_kind(run.model),
        "epochs": len(run.rows),
        "summary": run.summary,
        "quantiles": QUANTILES,
        "layers": [
            {"start": measured(a), "trained": measured(b)}
            for a, b in zip(start, trained, strict=True)
        ],
    }


def parameters_by_kind(model: nn.Module) -> dict[str, int]:
    """Trainable numbers by what they are for."""
    counts: dict[str, int] = {}
    for name, module in model.named_modules():
        own = sum(p.numel() for p in module.parameters(recurse=False) if p.requires_grad)
        if own:
            kind = _kind(name, module)
            counts[kind] = counts.get(kind, 0) + own
    return counts


def _kind(name: str, module: nn.Module) -> str:
    if isinstance(module, SSM):
        return "state spaces (A, B, C, D, dt)"
    outer = name.partition(".")[0]
    if outer in ("encoder", "decoder"):
        return outer
    if "norm" in type(module).__name__.lower():
        return "norms"
    return "mixing of features" if outer == "blocks" else type(module).__name__


def _show(run: Run, console: Console) -> None:
    config = run.config
    say(console, f"task       {config.task}: {signature_line(run.signature)}")
    say(console, f"model      {model_line(config, run.model)}")
    if config.model.architecture == "ssm":
        say(console, f"method     {_method_line(config.method)}")
    say(console, f"training   {_training_line(run)}")
    if run.summary:
        scores = (f"{name} {METRICS[name].show(x)}" for name, x in run.summary["test"].items())
        say(console, f"test       {', '.join(scores)}")
    if made := _environment(run):
        say(console, f"made with  {made}")
    table = _table("part", "parameters", title="Parameters")
    for kind, number in parameters_by_kind(run.model).items():
        table.add_row(kind, f"{number:,}")
    table.columns[1].justify = "right"
    console.print(table)


def _method_line(method: Method) -> str:
    base = Method()
    changed = [
        f"{field.name}={value}"
        for field in fields(method)
        if (value := getattr(method, field.name)) != getattr(base, field.name)
    ]
    return ": ".join(filter(None, (method_name(method), ", ".join(changed))))


def _training_line(run: Run) -> str:
    training, done = run.config.training, run.summary
    epochs = f"{len(run.rows)} of {count(training.epochs, 'epoch')}"
    if not done:
        return f"{epochs}, not finished; seed {training.seed}"
    name = done["metric"]
    best = METRICS[name].show(done["validation"])
    return (
        f"{epochs}, {count(done['steps'], 'step')}, {amount(done['seconds'])}, seed "
        f"{training.seed}; best validation {name} {best} after epoch {done['best_epoch']}"
    )


def _environment(run: Run) -> str:
    assert run.folder is not None
    try:
        made = jsonlib.loads((run.folder / ENVIRONMENT).read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    commit = f" ({made['commit'][:10]})" if made.get("commit") else ""
    return f"s4d-torch {made['s4d_torch']}{commit}, torch {made['torch']}, {made['platform']}"


def _show_spectra(
    run: Run, start: Sequence[Spectrum], trained: Sequence[Spectrum], console: Console
) -> None:
    rate = run.signature.sample_rate
    table = _table(title="Timescales and frequencies")
    table.add_column("layer", no_wrap=True)
    levels = "".join(f"{level:>{WIDTH}.0%}" for level in QUANTILES)
    heads = {"step size dt": "", "time const. (samples)": "(ms)", "cycles per sample": "(Hz)"}
    for head, unit in heads.items():
        below = f"\n{unit}" if rate is not None else ""
        table.add_column(f"{head}{below}\n{levels}", no_wrap=True)
    for i, both in enumerate(zip(start, trained, strict=True), start=1):
        for name, spectrum in zip(("start", "trained"), both, strict=True):
            dt, times, turns = (spectrum.quantiles(measure) for measure in MEASURES)
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


def _table(*columns: str, title: str) -> Table:
    shape: dict[str, Any] = {"box": box.SIMPLE, "padding": (0, 1, 0, 0), "pad_edge": False}
    return Table(*columns, title=title, title_justify="left", **shape)
