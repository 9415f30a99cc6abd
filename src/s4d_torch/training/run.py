"""Train a task from beginning to end, and use what came of it."""

import ctypes
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from s4d_torch.data.dataset import Dataset, Split
from s4d_torch.data.fingerprint import changes, fingerprint
from s4d_torch.data.folder import DataFolder, default_root
from s4d_torch.data.task import TASKS, Task
from s4d_torch.nn import validate
from s4d_torch.training import fine_tuning
from s4d_torch.training.batches import Order
from s4d_torch.training.build import build_model
from s4d_torch.training.config import Config, default_config
from s4d_torch.training.distributed import (
    Processes,
    local_device,
    lost_process_errors,
    process_group,
)
from s4d_torch.training.divergence import DivergenceError
from s4d_torch.training.evaluation import Evaluation, check_outputs, predict, score
from s4d_torch.training.loop import Trainer
from s4d_torch.training.prediction import Predictor
from s4d_torch.training.prediction import predict_sequences as predict_sequences
from s4d_torch.training.reports.advice import advice
from s4d_torch.training.reports.describe import count_parameters, data_name, own_data
from s4d_torch.training.reports.reporter import Reporter
from s4d_torch.training.saved import packaged
from s4d_torch.training.saved.run_folder import CONFIG, RunFolder
from s4d_torch.training.saved.store import FolderStore, MemoryStore

NOT_COMPARED = (
    "this run is from before runs kept a fingerprint of their data; whether the data has changed "
    "since is not known"
)


@dataclass(frozen=True)
class Run(Predictor):
    """A trained model: the best weights, the data they were made for, and the scores.

    The model is in evaluation. ``rows`` has the scores of each epoch, ``summary`` those of the
    test. :meth:`predict`, :meth:`predict_proba` and :meth:`transform` read raw data, see
    :class:`Predictor`.
    """

    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    folder: Path | None = None

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> "Run":
        """A run that was trained before; it need not be finished, only have had a first epoch."""
        where = RunFolder(folder)
        config, signature = where.config(), where.signature()
        model = where.best_model()
        if model is None:
            raise FileNotFoundError(
                f"{folder} has no weights yet: no epoch is done; run its training command again"
            )
        rows = [dict(row) for row in where.rows()]
        return Run(config, signature, model.eval(), rows, where.summary() or {}, where.path)

    def dataset(self, data: DataFolder | None = None, **options: Any) -> Dataset:
        """The data of the run's task, with some of its options changed."""
        task = TASKS[self.config.task]
        chosen = replace(self.config.data, **options) if options else self.config.data
        dataset = load_dataset(task, chosen, self.config, data)
        if self.config.training.init_from is None:
            return dataset
        return replace(
            dataset, signature=fine_tuning.in_units_of(self.signature, dataset.signature)
        )

    def data_changes(self, dataset: Dataset) -> list[str]:
        """What ``dataset`` differs in from what the run was trained on, as far as that is known."""
        before = None if self.folder is None else RunFolder(self.folder).data()
        return [] if before is None else changes(before, fingerprint(dataset))

    def evaluate(
        self,
        dataset: Dataset | None = None,
        *,
        split: str = "test",
        rate: float = 1.0,
        batch_size: int | None = None,
    ) -> Evaluation:
        """The scores on a split, by default the test split of the run's own task.

        ``rate`` is how many samples of the training data one sample here stands for: 2 for data
        at half the sampling rate.
        """
        if dataset is None:
            dataset = self.dataset()
            if changed := self.data_changes(dataset):
                warnings.warn(changed_data(changed), stacklevel=2)
        rows, training = dataset.splits[split], self.config.training
        size, precision = batch_size or training.batch_size, training.precision
        options: Any = {"precision": precision, "rate": rate, "piece": training.tbptt}
        outputs, targets = predict(self.model, dataset, rows, batch_size=size, **options)
        check_outputs(outputs)
        return score(outputs, targets, dataset.signature, intervals=True, groups=rows.owners)


def changed_data(changed: Sequence[str]) -> str:
    """A warning about what :meth:`Run.data_changes` found."""
    return (
        f"the data is not what the run was trained on: {'; '.join(changed)}. Splits are drawn anew "
        "from other data, so cases that are tested may be cases the run has learned from"
    )


def load(name: str) -> Run:
    """A model that comes with the package, by its name: no training, no download.

    ``s4d models`` lists them. It is used as a run is, on raw data::

        words = s4d_torch.load("words")
        words.predict(clip, sample_rate=16000)
    """
    return Run.load(packaged.folder_of(name))


def load_run(folder: str | os.PathLike[str]) -> Run:
    """A trained run: the model with the units, names and classes of its data, for raw data."""
    return Run.load(folder)


def load_dataset(
    task: Task[Any], options: Any, config: Config, data: DataFolder | None = None
) -> Dataset:
    """The data of a task, as much of it as the config asks for."""
    dataset = task.load(options, data or DataFolder(default_root()))
    return dataset.shortened(train=config.training.train_size, test=config.training.eval_size)


def train(
    task: Task[Any] | str,
    config: Config | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    data: DataFolder | None = None,
    device: str = "auto",
    checkpoint_minutes: float = 5.0,
    shard: bool = False,
    reporter: Reporter | None = None,
) -> Run:
    """Train ``config`` (by default :func:`default_config` of the task) and test its best weights.

    With a folder ``out``, a run that was broken off goes on where it stopped, bit by bit as if it
    had not been, and a finished one is only read. Under ``torchrun`` all processes call this.
    """
    task = TASKS[task] if isinstance(task, str) else task
    config = default_config(task) if config is None else config
    dataset = load_dataset(task, config.data, config, data)
    return train_on(
        dataset,
        config,
        out=out,
        device=device,
        checkpoint_minutes=checkpoint_minutes,
        shard=shard,
        reporter=reporter,
    )


def train_on(
    dataset: Dataset,
    config: Config,
    *,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    checkpoint_minutes: float = 5.0,
    shard: bool = False,
    reporter: Reporter | None = None,
) -> Run:
    """:func:`train` on data that is already there."""
    validate.number("checkpoint_minutes", checkpoint_minutes)
    if not checkpoint_minutes >= 0:
        raise ValueError(f"checkpoint_minutes must be 0 or more, got {checkpoint_minutes}")
    Order.of(config, dataset)  # refuses what does not fit, before there is a folder
    where = local_device(device)
    forked = [where] if where.type == "cuda" else []  # the caller's random numbers stay its own
    with process_group(where) as processes, torch.random.fork_rng(forked):
        if reporter is None or not processes.writes:
            reporter = Reporter()
        folder = None if out is None else RunFolder(out)
        config = with_known_epochs(config, dataset, folder)
        dataset = fine_tuning.in_known_units(dataset, config, folder)
        store = MemoryStore()
        compared = folder is None or not folder.begun or folder.data() is not None
        if folder is not None:
            store = FolderStore(folder, checkpoint_minutes, processes)
        with (
            lost_process_errors(store.where_to_go_on),
            _claimed(folder, config, dataset, processes),
        ):
            if not compared:
                reporter.message(NOT_COMPARED)
            if folder is not None and processes.from_first(folder.summary() is not None):
                reporter.message(f"the run in {folder.path} is finished; these are its scores")
                run = Run.load(folder.path)
                reporter.end(run.summary)
                reporter.close()
                return run
            model = build_model(config, dataset.signature)
            for said in fine_tuning.begin(model, config, dataset.signature, folder):
                reporter.message(said)
            trainer = Trainer(
                config,
                dataset,
                model,
                store=store,
                device=where,
                processes=processes,
                reporter=reporter,
                shard=shard,
            )
            try:
                return _train(trainer, folder)
            finally:
                reporter.close()


def with_known_epochs(config: Config, dataset: Dataset, folder: RunFolder | None) -> Config:
    """The config with epochs "auto" in numbers: those the run in the folder has, or a new one's."""
    training = config.training
    if training.epochs != "auto":
        return config
    if folder is not None and (folder.path / CONFIG).exists():
        training = replace(training, epochs=folder.config().training.epochs)
    epochs = training.epochs_for(_steps_per_epoch(config, dataset))
    return replace(config, training=replace(training, epochs=epochs))


def _steps_per_epoch(config: Config, dataset: Dataset) -> int:
    return Order.of(config, dataset).steps


def describe_plan(config: Config, dataset: Dataset, folder: Path) -> list[str]:
    """What a user's own data decides, and what to pass to have it otherwise: a line each."""
    lines = []
    if config.training.epochs == "auto":
        epochs = with_known_epochs(config, dataset, RunFolder(folder)).training.known_epochs
        steps = epochs * _steps_per_epoch(config, dataset)
        lines.append(f"epochs {epochs} ({steps:,} steps; --epochs changes it)")
    if own_data(config) is not None and config.method.bidirectional:
        lines.append("looks both ways over a whole sequence; to stream the model, pass --causal")
    return lines


@contextmanager
def _claimed(
    folder: RunFolder | None, config: Config, dataset: Dataset, processes: Processes
) -> Iterator[None]:
    """The folder belongs to this run; if rank 0 may not have it, no process goes on."""
    problem: Exception | None = None
    with ExitStack() as stack:
        if folder is not None and processes.writes:
            try:
                folder.check(config)
                found = fingerprint(dataset)
                folder.check_data(dataset.signature, found)
                if folder.summary() is None or folder.changes(config):  # else it is only read
                    stack.enter_context(folder.locked())
                    folder.claim(config)
                    folder.describe(dataset.signature, found)
            except (OSError, ValueError) as error:
                problem = error
        problem = processes.from_first(problem)
        if problem is not None:
            raise problem
        yield


def _train(trainer: Trainer, folder: RunFolder | None) -> Run:
    """All epochs, and the test of the best weights."""
    config, store, reporter = trainer.config, trainer.store, trainer.reporter
    parameters = count_parameters(trainer.model)
    where = None if folder is None else folder.path
    reporter.begin(
        {
            "task": config.task,
            "metric": trainer.metric_name,
            "parameters": parameters,
            "steps": trainer.steps,
            "epochs": trainer.epochs,
            "processes": trainer.processes.count,
            "folder": None if where is None else str(where),
        }
    )
    try:
        trainer.run()
    except DivergenceError as error:
        if folder is not None and trainer.processes.writes:
            folder.write_divergence(trainer.state.step, str(error))
        raise
    state, best = trainer.state, store.best_model()
    if best is None and folder is not None and state.best_epoch:
        raise FileNotFoundError(
            f"{folder.best} is gone, which had the weights of epoch {state.best_epoch}; "
            f"put it back, or remove {folder.path} to begin anew"
        )
    if best is None:
        raise ValueError(f"there are no best weights: {trainer.metric_name} was never a number")
    test = trainer.evaluate(best.to(trainer.device), "test")
    summary = {
        "task": config.task,
        "metric": trainer.metric_name,
        "test": test.scores,
        "test_loss": test.loss,
        "test_cases": len(trainer.dataset.test),
        "test_intervals": {name: list(ends) for name, ends in test.intervals.items()},
        **count_groups(trainer.dataset.test),
        "validation": state.best_score,
        "best_epoch": state.best_epoch,
        "steps": state.step,
        "skipped": state.skipped,
        "parameters": parameters,
        "seed": config.training.seed,
        "seconds": round(state.seconds, 2),
        "threads": torch.get_num_threads(),
        "processes": trainer.processes.count,
    }
    store.finish(summary)
    reporter.end(summary)
    if said := advice(store.rows, where):
        reporter.message(said)
    return Run(config, trainer.dataset.signature, best.eval(), store.rows, summary, where)


def count_groups(split: Split) -> dict[str, int]:
    """How many groups its cases come from, where that is known."""
    return {} if split.owners is None else {"test_groups": len(np.unique(split.owners))}


def default_folder(config: Config, parent: str | os.PathLike[str] = "runs") -> Path:
    """``runs/digits-1a2b3c4d``: one folder for each config, so that the same command goes on.

    Named after the task, or after a user's own file or folder.
    """
    described = json.dumps(config.to_json(), sort_keys=True)
    return Path(parent) / f"{data_name(config)}-{sha256(described.encode()).hexdigest()[:8]}"


def keep_freed_memory() -> bool:
    """Let freed memory stay with this process; whether that could be arranged.

    A step allocates the same large tensors again and again. glibc maps each of them anew, and the
    system fills every page with zeros first. Meant for a process that trains, called once at its
    start; elsewhere than on glibc nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # glibc's numbers
    settings = {mmap_max: 0, trim_threshold: 2**31 - 1, top_pad: 64 * 2**20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
