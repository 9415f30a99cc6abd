"""What a worker of a grid does: the life of one process, from its start to its leave."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from s4d_torch.data.folder import DataFolder
from s4d_torch.paper.experiments.experiment import Experiment, run_experiment
from s4d_torch.training.memory import keep_freed_memory
from s4d_torch.training.progress import Progress, Reporter

REPORT_SECONDS = 1.0


def serve(pipe: Connection, results: Path, data: DataFolder, work: Path, threads: int) -> None:
    """Run what comes through the pipe until it is closed."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    keep_freed_memory()
    pipe.send(("ready", ""))
    while True:
        try:
            experiment: Experiment = pipe.recv()
        except EOFError:
            os._exit(0)  # all is on disk; taking torch down takes a second
        _print_into(work / f"{experiment.key}.log")
        answer = "done", ""
        try:
            run_experiment(experiment, results, data=data, work=work, reporter=_Teller(pipe))
        except BlockingIOError as error:
            answer = "busy", str(error)
        except KeyboardInterrupt as stop:
            answer = "stopped", str(stop) or "it was stopped"
        with suppress(OSError):  # nobody listens: the pipe says so next time
            pipe.send(answer)
        if answer[0] == "stopped":
            return


def _end_with_parent() -> None:
    """When the grid is killed, its workers save and stop as well."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _print_into(path: Path) -> None:
    """Send what this process prints, and a native crash, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    faulthandler.enable()


class _Teller(Reporter):
    """Tells the grid how far a run is: now and then, and after each epoch."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.told, self.epoch_told = 0.0, 0

    def step(self, now: Progress) -> None:
        if now.epoch > self.epoch_told or time.monotonic() - self.told >= REPORT_SECONDS:
            self.told, self.epoch_told = time.monotonic(), now.epoch
            with suppress(OSError):  # the grid may be gone; that is no fault of the run
                self.pipe.send(("progress", now))
