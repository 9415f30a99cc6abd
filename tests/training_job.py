"""Small training runs in processes of their own, which can be killed wherever they touch a file.

As a script it is a server: each line it reads is a job in JSON, which it runs in a forked child
(or several, which then train together) and answers with what became of them. A fork is cheap, and
its SIGKILL is as real as any. Under ``torchrun`` it runs the one job of its argument.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork

import numpy as np

from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Dataset, Kind, Sequences, Signature, Split
from s4d_torch.training import Config, default_config, train_on
from s4d_torch.training.loop import Trainer
from s4d_torch.training.saved.store import FolderStore

UNWRITTEN = 10  # bytes at the end of a file that a killed process had not written yet
TIME_LIMIT = 60.0  # seconds for a job; one that takes longer hangs


# -- what is trained -------------------------------------------------------------------------------


def small_data(
    *,
    sizes: Sequence[int] = (40, 12, 12),
    length: int = 12,
    kind: Kind = "classification",
    ragged: bool = False,
    tokens: bool = False,
    towers: int = 1,
    bad: Sequence[int] = (),
) -> Dataset:
    """Noisy ramps, up or down; their slope is the number to predict. ``bad`` ones are infinite.

    To generate they are tokens, and the next one is to be predicted; to track, the ramp without
    its noise and the slope at each sample, which come at odd times.
    """
    tokens = tokens or kind == "generation"
    random, count = np.random.default_rng(0), sum(sizes)
    slope = random.uniform(0.5, 1.5, count) * random.choice([-1, 1], count)

    def tower() -> Sequences:
        values = np.linspace(-1, 1, length) * slope[:, None]
        values = (values + 0.3 * random.normal(size=values.shape)).astype(np.float32)
        values[list(bad)] = np.inf
        if tokens:
            values = np.digitize(values, [-1.0, 0.0, 1.0])
        rows = values if tokens else values[..., None]
        ends = random.integers(length // 2, length + 1, count) if ragged else [length] * count
        return Sequences.of([row[:end] for row, end in zip(rows, ends, strict=True)])

    targets: Array = (slope > 0).astype(np.int64) if kind == "classification" else 70 + 30 * slope
    whole, clock = Split.whole(tuple(tower() for _ in range(towers)), targets), None
    if kind == "tracking":
        ramps = np.linspace(-1, 1, length) * slope[:, None]
        targets = 70 + 30 * np.stack([ramps, np.broadcast_to(slope[:, None], ramps.shape)], -1)
        times = np.cumsum(random.uniform(0.5, 1.5, ramps.shape), axis=1)
        whole, clock = replace(whole, targets=targets, times=Sequences(times)), Clock.of(times)
    edges = np.cumsum([0, *sizes])
    parts = [whole.part(slice(*edges[i : i + 2])) for i in range(3)]
    signature = Signature(
        kind,
        features=(5 if kind == "generation" else 4) if tokens else 1,
        outputs={"classification": 2, "regression": 1, "generation": 4, "tracking": 2}[kind],
        length=length,
        tokens=tokens,
        towers=towers,
        target_shift=0.0 if kind == "classification" else 70.0,
        target_scale=1.0 if kind == "classification" else 30.0,
        clock=clock,
    )
    return Dataset(parts[0], parts[1], parts[2], signature)


def small_config(
    model: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
) -> Config:
    """A model of two tiny layers and its training, with some settings changed."""
    base = default_config("digits")
    sizes = {"n_layers": 2, "d_model": 4, "d_state": 4, "dropout": 0.0, "norm": "layer"}
    length = {"epochs": 3, "batch_size": 5}
    return replace(
        base,
        model=replace(base.model, **{**sizes, **(model or {})}),
        method=base.method.replace(bidirectional=False),
        optimizer=replace(base.optimizer, **(optimizer or {})),
        training=replace(base.training, **{**length, **(training or {})}),
    )


# -- jobs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A run in ``folder``, and what is done to process ``victim`` of it.

    ``kill`` ends it with SIGKILL before it does the so manieth thing to a file of the folder,
    counted from 1, or one whose description contains this text; ``signals`` are sent to it after
    steps: (step, name of the signal). If one process is killed the others go on as they can, or,
    if they live and die ``together``, are killed too.
    """

    folder: str
    model: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    every: int = 1
    """steps between checkpoints"""
    shard: bool = False
    processes: int = 1
    victim: int = 0
    kill: int | str | None = None
    signals: Sequence[tuple[int, str]] = ()
    together: bool = True
    largest_file: int | None = None
    """no file may be larger: as on a full disk, a write fails in the middle"""


@dataclass
class Outcome:
    """What became of a process: its exit code, or minus the signal that ended it."""

    code: int
    seconds: float
    error: str = ""
    """the type of the exception"""
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    """what was done to files"""


class Killer:
    """Kills its own process before a chosen thing is done to a file of the run."""

    WATCHED = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")

    def __init__(self, folder: Path, when: int | str | None) -> None:
        self.folder, self.when = str(folder), when
        self.events: list[str] = []
        self._fsync = os.fsync
        sys.addaudithook(self._audit)
        os.fsync = self._sync

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in self.WATCHED:
            return
        if event == "open" and not (arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        names = [str(x) for x in arguments if isinstance(x, str | Path)]
        relative = event in ("os.remove", "os.rmdir") and arguments[-1] != -1  # to an open folder
        if not relative and not any(name.startswith(self.folder) for name in names):
            return
        if self._is_time(" ".join([event, *(x.removeprefix(self.folder) for x in names)])):
            os.kill(os.getpid(), signal.SIGKILL)

    def _sync(self, handle: int | Any) -> None:
        about = os.fstat(handle)
        if self._is_time("fsync"):
            if stat.S_ISREG(about.st_mode):
                os.ftruncate(handle, max(0, about.st_size - UNWRITTEN))
            os.kill(os.getpid(), signal.SIGKILL)
        self._fsync(handle)

    def _is_time(self, event: str) -> bool:
        self.events.append(event)
        return self.when in event if isinstance(self.when, str) else self.when == len(self.events)


def run(job: Job, rank: int = 0) -> list[str]:
    """Do a job in this process, which is its own; what it did to files."""
    victim = rank == job.victim
    killer = Killer(Path(job.folder), job.kill if victim else None)
    steps, report = 0, Trainer._report

    def is_due(self: FolderStore) -> bool:  # by steps, not by the clock
        nonlocal steps
        steps += 1
        return steps % job.every == 0

    def report_and_send(self: Trainer, *arguments: Any) -> None:
        report(self, *arguments)
        for step, name in job.signals:
            if victim and step == self.state.step:
                os.kill(os.getpid(), getattr(signal, name))

    FolderStore.is_due = is_due  # type: ignore[method-assign]
    Trainer._report = report_and_send  # type: ignore[method-assign]
    if job.largest_file is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (job.largest_file, job.largest_file))
    config = small_config(job.model, job.optimizer, job.training)
    train_on(small_data(**job.data), config, out=job.folder, device="cpu", shard=job.shard)
    return killer.events


# -- the server ------------------------------------------------------------------------------------


def serve() -> None:
    """Answer each job with its outcomes, one for each process."""
    # once here, so that no child has to load the compiled code
    train_on(small_data(), small_config(training={"epochs": 1}), device="cpu")
    for line in sys.stdin:
        outcomes = run_forked(Job(**json.loads(line)))
        print(json.dumps([asdict(outcome) for outcome in outcomes]), flush=True)


def run_forked(job: Job) -> list[Outcome]:
    if job.shard:  # seconds of imports, once for all children
        import torch._dynamo
        import torch.distributed.fsdp  # noqa: F401
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    children: dict[int, int] = {}  # process id: where its outcome can be read
    for rank in range(job.processes):
        reading, writing = os.pipe()
        if not (child := os.fork()):
            _be_child(job, rank, port, writing)
        os.close(writing)
        children[child] = reading
    outcomes: dict[int, Outcome] = {}
    while len(outcomes) < len(children):
        left = [child for child in children if child not in outcomes]
        late = time.monotonic() - began > TIME_LIMIT
        killed = job.together and any(x.code == -signal.SIGKILL for x in outcomes.values())
        for child in left:
            if late or killed:
                os.kill(child, signal.SIGKILL)
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code, seconds = os.waitstatus_to_exitcode(status), time.monotonic() - began
                outcomes[child] = _read_outcome(children[child], code, seconds)
        time.sleep(0.005)
    return [outcomes[child] for child in children]


def _be_child(job: Job, rank: int, port: int, writing: int) -> None:
    os.dup2(2, 1)  # the server's answers are not to be mixed with anything
    if job.processes > 1:
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(job.processes),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    code, said = 0, dict[str, Any]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            said["events"] = run(job, rank)
        except BaseException as error:
            code, said["error"], said["message"] = 1, type(error).__name__, str(error)
    said["warnings"] = [str(warning.message) for warning in caught]
    with os.fdopen(writing, "w") as file:
        json.dump(said, file)
    os._exit(code)


def _read_outcome(reading: int, code: int, seconds: float) -> Outcome:
    with os.fdopen(reading) as file:
        said = file.read()
    return Outcome(code, seconds, **(json.loads(said) if said else {}))


class Jobs:
    """The server's client."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def all(self, folder: Path, **options: Any) -> list[Outcome]:
        """Run a job and wait for it; the outcome of each of its processes."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        print(json.dumps(asdict(Job(str(folder), **options))), file=self.server.stdin, flush=True)
        return [Outcome(**each) for each in json.loads(self.server.stdout.readline())]

    def __call__(self, folder: Path, **options: Any) -> Outcome:
        """The outcome of the first process."""
        return self.all(folder, **options)[0]

    def close(self) -> None:
        self.server.communicate()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(Job(**json.loads(sys.argv[1])), int(os.environ.get("RANK", "0")))
    else:
        serve()
