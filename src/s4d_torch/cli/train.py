"""``s4d train``: from a task or one's own data to a trained, tested model in a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import tyro
from rich.console import Console
from rich.markup import escape

from s4d_torch._progress import note
from s4d_torch.cli.common import display, options, parsing, starting_config
from s4d_torch.cli.common.data_summary import short_lines, show_summary
from s4d_torch.cli.common.display import amount, as_json, plain_table, say
from s4d_torch.cli.common.flags import DataDir, Device, Switch, shown
from s4d_torch.cli.common.parsing import CommandError, UsageError, is_first_process, misuse
from s4d_torch.cli.tasks import tasks_list
from s4d_torch.data import TASKS, DataFolder, Dataset, Source
from s4d_torch.data.summary import summarize
from s4d_torch.nn.method import METHODS
from s4d_torch.training import METRICS, Config, Run, train_on
from s4d_torch.training.batches import Order
from s4d_torch.training.build import build_model
from s4d_torch.training.config import PRESETS
from s4d_torch.training.estimate import estimate_cost
from s4d_torch.training.evaluation import class_weights
from s4d_torch.training.reports.compare import seed_spread
from s4d_torch.training.reports.describe import describe_data, describe_model, plural
from s4d_torch.training.reports.reporter import Reporter, Reporters
from s4d_torch.training.run import (
    default_folder,
    describe_plan,
    keep_freed_memory,
    with_known_epochs,
)
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.run_folder import RunFolder

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
    "--init-from": starting_config.INIT_FROM,
    "--method": "--base",
}


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
    """the method that 's4d methods' lists to start from, --method for short; direction stays the
    task's, and so do step sizes where the method has any"""
    out: Annotated[Path | None, shown("FOLDER", "runs/TASK-..., one for each setting")] = None
    """the folder of the run: settings, scores, checkpoints and weights"""
    data_dir: DataDir = None
    """where data is, or is downloaded to"""
    mirror: Annotated[str | None, shown("URL", "the official addresses")] = None
    """another address to download files of the same names from"""
    offline: Switch = False
    """download nothing; say what is missing"""
    device: Device = "auto"
    """cpu, cuda, cuda:1, mps, ...; auto takes a GPU of CUDA if there is one"""
    threads: Annotated[int | None, shown("INT", "as torch decides")] = None
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
    """show data, model, memory and time without training; no run is written"""
    causal: Switch = False
    """look only back, so that the model can be streamed; short for --method.no-bidirectional"""
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT INT ...")] = ()
    """train once with each of these seeds, and show mean and spread of the scores"""
    replay: Annotated[Path | None, shown("RUN/run.json", "none")] = None
    """in place of a TASK: train the config of this run again, in a folder of its own"""
    config: Annotated[Config | None, tyro.conf.Suppress, tyro.conf.Fixed] = None

    @staticmethod
    def parse(arguments: Sequence[str]) -> "Train":
        """The command for a task, whose settings are the defaults."""
        split = (argument.partition("=") for argument in arguments)
        expanded = [f"{SHORT.get(flag, flag)}{equals}{value}" for flag, equals, value in split]
        if (replay := parsing.value_of("--replay", expanded)) is not None:
            others = expanded  # the run has the task
            name, default = starting_config.of_run(replay, others)
        else:
            named, others = parsing.take_positional(expanded, Train)
            if named is None:
                return _without_task(others)
            name, default = named, starting_config.of_task(named, others)
        short, full = (", ".join(flags) for flags in (SHORT, SHORT.values()))
        command, parts = parsing.parse(
            Train,
            name,
            others,
            {part: getattr(default, part) for part in PARTS},
            description=f"Train a model and test it: {TASKS[default.task].summary}.\n\n"
            f"Defaults are those of this task. {short} are short for {full}.",
        )
        config = _settled(replace(default, **parts), causal=command.causal)
        starting_config.check_model(config, default)
        command._check()
        return replace(command, config=config)

    def run(self, console: Console) -> None:
        assert self.config is not None
        config = self.config
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        folder = options.data_folder(self.data_dir, download=not self.offline, mirror=self.mirror)
        runs = self._runs(config)
        if self.dry_run:
            if is_first_process():
                self._show_cost(config, folder, runs[0][1], console)
            return
        keep_freed_memory()
        for each, out in runs:
            RunFolder(out).check(each)
        dataset = options.load_data(config, folder)
        with misuse("--training.metric: "):
            config.metric(dataset.signature.kind)
        with misuse("--training.class-weight: "):
            class_weights(config.training.class_weight, dataset)
        with misuse("--training."):
            Order.of(config, dataset)  # says what cannot be packed, or cut into pieces
        if is_first_process() and not self.quiet:
            self._introduce(config, dataset, runs[0][1], console)
        done = [self._train(each, dataset, out, console) for each, out in runs]
        if self.seeds:
            self._show_seeds(done, console)

    def _introduce(self, config: Config, dataset: Dataset, out: Path, console: Console) -> None:
        """What is about to be trained on what; with --json only warnings, beside the objects."""
        task, summary = TASKS[config.task], summarize(dataset)
        if self.json:
            for warning in summary.warnings:
                note(f"s4d: warning: {warning}")
            return
        model = build_model(config, dataset.signature)
        say(console, f"task   {task.name}: {task.summary}")
        say(console, f"data   {describe_data(dataset)}")
        for line in short_lines(summary):
            say(console, f"       {line}")
        say(console, f"model  {describe_model(config, model)}")
        if self.preset == "auto" and task.paper is not None and self.replay is None:
            say(console, "preset paper, its hyper-parameters; --preset small is for a laptop")
        for line in describe_plan(config, dataset, out):
            say(console, line)
        for warning in summary.warnings:
            say(console, f"warning: {warning}")

    def _runs(self, config: Config) -> list[tuple[Config, Path]]:
        """The config and the folder of each run: one, or one for each seed."""
        if not self.seeds:
            return [(config, self._folder(config))]
        each = [replace(config, training=replace(config.training, seed=s)) for s in self.seeds]
        if self.out is None:
            return [(one, self._folder(one)) for one in each]
        return [(one, self.out / f"seed-{one.training.seed}") for one in each]

    def _folder(self, config: Config) -> Path:
        if self.out is not None:
            return self.out
        usual = default_folder(config)
        return usual if self.replay is None else usual.with_name(f"{usual.name}-replay")

    def _train(self, config: Config, dataset: Dataset, out: Path, console: Console) -> Run:
        config = with_known_epochs(config, dataset, RunFolder(out))
        if not (self.quiet or self.json):
            seed = f", seed {config.training.seed}" if self.seeds else ""
            say(console, f"run    {out}{seed}")
        try:
            return train_on(
                dataset,
                config,
                out=out,
                device=self.device,
                checkpoint_minutes=self.checkpoint_minutes,
                shard=self.shard,
                reporter=self._reporter(config, console, out),
            )
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            reason = (str(error).splitlines() or ["of the machine"])[0]
            raise CommandError(
                f"there is not enough memory ({reason}); a smaller --training.batch-size with "
                "--optimizer.accumulate needs less; --training.tbptt cuts long sequences with an "
                "answer at each sample into pieces"
            ) from error

    def _show_seeds(self, runs: Sequence[Run], console: Console) -> None:
        """Mean and spread of the scores of several seeds."""
        found = seed_spread([run.summary for run in runs])
        if self.json:
            print(as_json({"event": "seeds", **found}))
            return
        show = METRICS[found["metric"]].show
        say(
            console,
            f"{plural(len(runs), 'seed')}: test {found['metric']} {show(found['mean'])}, standard "
            f"deviation {show(found['deviation'])}; {show(found['least'])} to "
            f"{show(found['most'])}",
        )

    def _show_cost(self, config: Config, folder: DataFolder, out: Path, console: Console) -> None:
        """A table of what the run is and takes; only prepared data may be written, for later."""
        found = estimate_cost(config, folder, self.device)
        summary = None if found["synthetic"] else options.load_summary(config, folder)
        if self.json:
            print(as_json({**found, "summary": None if summary is None else summary.to_json()}))
            return
        table = plain_table("", "", show_header=False, title="Dry run", padding=(0, 1))
        for name, text in _cost_rows(config, out, found):
            table.add_row(name, escape(text))
        console.print(table)
        speed = f"about {amount(found['seconds_per_step'])} per step"
        if found["seconds_per_epoch"] is not None:
            epoch, total = (amount(found[name]) for name in ("seconds_per_epoch", "seconds"))
            speed = f"about {epoch} per epoch, {total} for all"
        say(console, f"{speed}, {_bytes(found['peak_bytes'])}")
        if summary is not None:
            show_summary(summary, console)

    def _reporter(self, config: Config, console: Console, out: Path) -> Reporter:
        lines = display.Live if console.is_terminal else display.Lines
        chosen = display.Final if self.quiet else lines
        reporter = display.Json(out) if self.json else chosen(console, out)
        if self.tensorboard and find_spec("tensorboard") is not None:
            return Reporters(reporter, display.TensorBoard(out / "tensorboard", config))
        return reporter

    def _check(self) -> None:
        options.check_options(self, at_least_one=["threads"])
        if not self.checkpoint_minutes >= 0:
            raise UsageError(
                f"--checkpoint-minutes must not be negative, got {self.checkpoint_minutes}"
            )
        if len(set(self.seeds)) != len(self.seeds) or any(seed < 0 for seed in self.seeds):
            raise UsageError(f"--seeds: expected different numbers from 0 on, got {self.seeds}")
        if self.quiet and self.json:
            raise UsageError("--quiet and --json: choose one of them")
        with misuse("--mirror: "):
            Source("https://example.org/file").address(self.mirror)


def _without_task(arguments: Sequence[str]) -> Train:
    """Help that also says what there is to train on, or a complaint."""
    try:
        return tyro.cli(Train, prog="s4d train", args=arguments, console_outputs=is_first_process())
    except SystemExit as stop:
        if not stop.code and is_first_process():
            print(f"\n{tasks_list()}")
        raise


def _settled(config: Config, *, causal: bool) -> Config:
    """With the short words spelled out, and the run to begin with by its full path.

    A model that comes with the package keeps its name.
    """
    source = config.training.init_from
    if source is not None and not packaged.is_packaged(source):
        full = source.expanduser().resolve()
        config = replace(config, training=replace(config.training, init_from=full))
    return replace(config, method=config.method.replace(bidirectional=False)) if causal else config


def _is_out_of_memory(error: Exception) -> bool:
    """Whether the memory of the machine or of a GPU was too small; torch has a type for the GPU."""
    said = any(x in str(error) for x in ("can't allocate memory", "not enough memory"))
    return said or isinstance(error, MemoryError | torch.OutOfMemoryError)


def _cost_rows(config: Config, out: Path, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    training, optimizer = config.training, config.optimizer
    batches = plural(optimizer.accumulate, "batch", "batches")
    threads = plural(found["threads"], "thread")
    steps = "unknown without the data"
    if found["steps"] is not None:
        steps = f"{found['steps_per_epoch']:,} per epoch, {found['steps']:,} in all"
    return [
        ("task", f"{config.task}: {TASKS[config.task].summary}"),
        ("data", found["data"]),
        ("model", found["model"]),
        ("state spaces", f"{found['ssm_parameters']:,} of {found['parameters']:,} parameters"),
        ("length", f"{found['length']:,}"),
        ("batch", f"{training.batch_size}, {batches} a step"),
        ("epochs", str(found["epochs"])),
        ("steps", steps),
        ("learning rate", f"{optimizer.lr:g}, {optimizer.schedule}"),
        ("device", f"{found['device']}, {threads}, {training.precision}"),
        ("run", str(out)),
        ("a step takes", amount(found["seconds_per_step"])),
        ("memory", f"{_bytes(found['peak_bytes'])} at the peak of the process"),
    ]


def _bytes(number: int | None) -> str:
    if number is None:
        return "unknown memory"
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
