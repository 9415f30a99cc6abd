"""``s4d train``: from a task or one's own data to a trained, tested model in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import tyro
from rich.console import Console

from s4d_torch.cli import estimate
from s4d_torch.cli.display import Final, Json, Lines, Live, TensorBoard, say
from s4d_torch.cli.parsing import (
    CommandError,
    DataDir,
    Switch,
    UsageError,
    blame,
    changes,
    is_first_process,
    parse,
    take_positional,
    value_of,
)
from s4d_torch.cli.summary import data_line, model_line
from s4d_torch.cli.tasks import tasks_list
from s4d_torch.data import TASKS, DataFolder, Dataset, Signature, Source, default_root, find_task
from s4d_torch.nn.method import METHODS
from s4d_torch.training import METRICS, Config, default_config, train_on
from s4d_torch.training.build import build_model
from s4d_torch.training.config import PRESETS
from s4d_torch.training.distributed import local_device
from s4d_torch.training.reporter import Reporter, Reporters
from s4d_torch.training.run import default_folder, keep_freed_memory, load_dataset
from s4d_torch.training.run_folder import RunFolder

if TYPE_CHECKING:
    Preset = str
    Base = str
else:
    Preset = Literal["auto", *PRESETS]
    Base = Literal[tuple(METHODS)]

PARTS = ("data", "model", "method", "optimizer", "training")
SHORT = {
    "--epochs": "--training.epochs",
    "--batch-size": "--training.batch-size",
    "--seed": "--training.seed",
    "--lr": "--optimizer.lr",
}


def _shown(metavar: str, default: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


@dataclass(frozen=True)
class Train:
    """Train a model on a task and test it.

    The same command goes on with a run that was broken off, as if it had not been. All settings
    are flags: see 's4d train TASK --help', which shows them with the defaults of that task.
    """

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """a name that 's4d tasks' lists, or a path: .npz, .npy, .csv or .ts, or a folder of sounds"""
    preset: Preset = "auto"
    """where all settings start: the paper's hyper-parameters, or a small model for a laptop; auto
    takes the paper's where it has the task"""
    base: Base = "s4d"
    """the row of Table 1 that the method starts from; step sizes and direction stay the task's"""
    out: Annotated[Path | None, _shown("FOLDER", "runs/TASK-..., one for each setting")] = None
    """the folder of the run: settings, scores, checkpoints and weights"""
    data_dir: DataDir = None
    """where data is, or is downloaded to"""
    mirror: Annotated[str | None, _shown("URL", "the official addresses")] = None
    """another address to download files of the same names from"""
    offline: Switch = False
    """download nothing; say what is missing"""
    device: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto"
    """cpu, cuda, cuda:1, mps, ...; auto takes a GPU of CUDA if there is one"""
    threads: Annotated[int | None, _shown("INT", "as torch decides")] = None
    """threads of each process on the CPU"""
    checkpoint_minutes: float = 5.0
    """time between two checkpoints within an epoch; each epoch ends with one too"""
    shard: Switch = False
    """under torchrun: split the model among the processes (FSDP2), rather than copy it (DDP)"""
    tensorboard: bool = True
    """write events to OUT/tensorboard, if tensorboard is installed"""
    quiet: Switch = False
    """print only the result"""
    json: Switch = False
    """print a JSON object for each epoch and one for the result, and nothing else"""
    dry_run: Switch = False
    """show model, memory and time without training; no run is written"""
    config: Annotated[Config | None, tyro.conf.Suppress, tyro.conf.Fixed] = None

    @staticmethod
    def parse(arguments: Sequence[str]) -> Train:
        """The command for a task, whose settings are the defaults."""
        expanded = [_expand(argument) for argument in arguments]
        name, others = take_positional(expanded, Train)
        if name is None:
            return _without_task(others)
        default = _start(name, others)
        short, full = (", ".join(flags) for flags in (SHORT, SHORT.values()))
        command, parts = parse(
            Train,
            name,
            others,
            {part: getattr(default, part) for part in PARTS},
            description=f"Train a model and test it: {TASKS[default.task].summary}.\n\n"
            f"Defaults are those of this task. {short} are short for {full}.",
        )
        config = replace(default, **parts)
        _check_model(config, default)
        command._check()
        return replace(command, config=config)

    def run(self, console: Console) -> None:
        assert self.config is not None
        config, task = self.config, TASKS[self.config.task]
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        root = default_root() if self.data_dir is None else self.data_dir.expanduser()
        folder = DataFolder(root, not self.offline, self.mirror)
        out = default_folder(config) if self.out is None else self.out
        if self.dry_run:
            if is_first_process():
                estimate.show(config, folder, self.device, out, console, json=self.json)
            return
        keep_freed_memory()
        RunFolder(out).check(config)
        dataset = load(config, folder)
        check_metric(config, dataset)
        if not (self.quiet or self.json):
            model = build_model(config, dataset.signature)
            say(console, f"task   {task.name}: {task.summary}")
            say(console, f"data   {data_line(dataset)}")
            say(console, f"model  {model_line(config, model)}")
            if self.preset == "auto" and task.paper is not None:
                say(console, "preset paper, its hyper-parameters; --preset small is for a laptop")
            say(console, f"run    {out}")
        self._train(dataset, out, console)

    def _train(self, dataset: Dataset, out: Path, console: Console) -> None:
        assert self.config is not None
        try:
            train_on(
                dataset,
                self.config,
                out=out,
                device=self.device,
                checkpoint_minutes=self.checkpoint_minutes,
                shard=self.shard,
                reporter=self._reporter(console, out),
            )
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = (str(error).splitlines() or ["of the machine"])[0]
            raise CommandError(
                f"there is not enough memory ({reason}); a smaller --training.batch-size with "
                "--optimizer.accumulate needs less"
            ) from error

    def _reporter(self, console: Console, out: Path) -> Reporter:
        reporter: Reporter
        if self.json:
            reporter = Json(out)
        elif self.quiet:
            reporter = Final(console, out)
        else:
            reporter = Live(console, out) if console.is_terminal else Lines(console, out)
        if self.tensorboard and TensorBoard.is_installed():
            return Reporters(reporter, TensorBoard(out / "tensorboard"))
        return reporter

    def _check(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"--threads must be at least 1, got {self.threads}")
        if not self.checkpoint_minutes >= 0:
            raise UsageError(
                f"--checkpoint-minutes must not be negative, got {self.checkpoint_minutes}"
            )
        if self.quiet and self.json:
            raise UsageError("--quiet and --json: choose one of them")
        check_device(self.device)
        try:
            Source("https://example.org/file").address(self.mirror)
        except ValueError as error:
            raise UsageError(f"--mirror: {error}") from error


def _without_task(arguments: Sequence[str]) -> Train:
    """Help that also says what there is to train on, or a complaint."""
    try:
        return tyro.cli(Train, prog="s4d train", args=arguments, console_outputs=is_first_process())
    except SystemExit as stop:
        if not stop.code and is_first_process():
            print(f"\n{tasks_list()}")
        raise


def load(config: Config, folder: DataFolder) -> Dataset:
    """The data of a config; what is wrong with a user's file is no error of the program's."""
    try:
        return load_dataset(TASKS[config.task], config.data, config, folder)
    except TypeError as error:
        raise CommandError(str(error)) from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether the memory of the machine or of a GPU was too small; torch has a type for the GPU."""
    full = ("can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        text in str(error) for text in full
    )


def check_metric(config: Config, dataset: Dataset) -> None:
    try:
        config.metric(dataset.signature.kind)
    except ValueError as error:
        raise UsageError(f"--training.metric: {error}") from error


def check_device(name: str) -> None:
    """Refuse a device that is not there."""
    try:
        device = local_device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"--device {name}: {reason}; use cpu, or leave it out") from error


def found_task(name: str) -> tuple[Any, Any]:
    """A task and its options by name or by path, which a run remembers in full."""
    try:
        path = Path(name).expanduser()
        return find_task(name if name in TASKS or not path.exists() else str(path.resolve()))
    except OSError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def _expand(argument: str) -> str:
    flag, equals, value = argument.partition("=")
    return f"{SHORT.get(flag, flag)}{equals}{value}"


def _start(name: str, arguments: Sequence[str]) -> Config:
    """The settings of a task with the preset and the base that the arguments name."""
    task, options = found_task(name)
    preset, base = value_of("--preset", arguments), value_of("--base", arguments)
    try:
        # one that does not exist is left for the parser to refuse
        config = default_config(task, preset if preset in PRESETS else None, **vars(options))
    except ValueError as error:
        raise UsageError(f"--preset: {error}") from error
    kept = {name: getattr(config.method, name) for name in ("dt_min", "dt_max", "bidirectional")}
    start = METHODS.get(base or "", METHODS["s4d"])
    return replace(config, method=start.replace(**kept))


def _check_model(config: Config, default: Config) -> None:
    """Build one layer, so that a wrong setting is known before any data is fetched."""
    small = replace(config, model=replace(config.model, n_layers=min(1, config.model.n_layers)))
    signature = Signature("classification", features=1, outputs=2, length=16)
    if METRICS[TASKS[config.task].metric].kind == "generation":
        signature = replace(signature, kind="generation", tokens=True, features=3)
    try:
        build_model(small, signature)
    except ValueError as error:
        parts = ("model", "method")
        flags = (changes(part, getattr(config, part), getattr(default, part)) for part in parts)
        raise blame(error, [flag for each in flags for flag in each]) from error
