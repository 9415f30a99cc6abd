"""Processes of this machine that run experiments: as many as memory allows, none lost unnoticed.

Each is started afresh ("spawn") with its share of the cores, in a process group of its own: Ctrl-C
in a terminal reaches the grid alone, which then asks each worker once to save and stop.
"""

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from s4d_torch._interruption import Interrupted, ignored_interruptions
from s4d_torch.data.folder import DataFolder
from s4d_torch.paper.experiments.cost import available_memory, needed_memory, too_large
from s4d_torch.paper.experiments.experiment import Experiment, read_result, run_experiment
from s4d_torch.paper.experiments.watch import Watch
from s4d_torch.training.reports.reporter import Progress, Reporter
from s4d_torch.training.run import keep_freed_memory

MEMORY_SHARE = 0.9  # the part of the free memory that a grid takes
ATTEMPTS = 2  # how often an experiment is started whose process dies
ENDS = ("done", "busy", "stopped")
REUSE = 1.5  # a process keeps what it once took: one so many times too large is replaced
REPORT_SECONDS = 1.0
EXIT_SECONDS = 60.0  # to a worker that should end, before it is killed


@dataclass(frozen=True)
class Plan:
    """Experiments that have no result yet, in the order in which to start them, and the means."""

    experiments: tuple[Experiment, ...]
    results: Path
    data: DataFolder
    work: Path
    watch: Watch
    workers: int | None = None
    memory: float | None = None
    """bytes, if the user knows better than the system"""
    address: str | None = None


@dataclass(frozen=True)
class Job:
    """An experiment, the bytes it needs, and how often its process has died."""

    experiment: Experiment
    memory: float
    deaths: int = 0


class Pool:
    """Runs the experiments of a plan in ``workers`` processes, by default one per core."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.watch = plan, plan.watch
        self.memory = MEMORY_SHARE * available_memory() if plan.memory is None else plan.memory
        self.size = self.threads = 1
        self.queue: list[Job] = []
        self.workers: list[Worker] = []

    def run(self) -> None:
        """All of them; returns when nothing is left to start."""
        needs = needed_memory(self.plan.experiments, self.plan.data)
        for experiment in self.plan.experiments:
            if (memory := needs[experiment.key]) > self.memory:
                self.watch.message(too_large(experiment, memory, self.memory))
            else:
                self.queue.append(Job(experiment, memory))
        cores = count_cores()
        self.size = max(1, min(self.plan.workers or cores, len(self.queue)))
        self.threads = max(1, cores // self.size)
        try:
            while self.queue or any(worker.job for worker in self.workers):
                self._fill()
                self._wait()
        except KeyboardInterrupt:
            self._ask_to_stop()
            raise interrupted(self.plan.work) from None
        finally:
            for worker in self.workers:
                worker.end()

    # -- who does what -----------------------------------------------------------------------------

    def _fill(self) -> None:
        """Give idle workers work that fits into memory; those who get none hold none."""
        for worker in [worker for worker in self.workers if worker.job is None]:
            job = self._next(spare=worker.memory)
            if job is not None and worker.memory <= REUSE * job.memory:
                self._assign(worker, job)
            else:
                worker.end()
                self.workers.remove(worker)
        while len(self.workers) < self.size and (job := self._next()) is not None:
            worker = Worker(self.plan, self.threads)
            self.workers.append(worker)
            self._assign(worker, job)

    def _next(self, spare: float = 0.0) -> Job | None:
        """The first job that fits beside what is held, of which ``spare`` can be used anew."""
        free = self.memory + spare - sum(worker.memory for worker in self.workers)
        return next((job for job in self.queue if job.memory <= free), None)

    def _assign(self, worker: "Worker", job: Job) -> None:
        self.queue.remove(job)
        worker.take(job)
        self.watch.started(job.experiment.key, worker.process.pid)

    # -- what comes back ---------------------------------------------------------------------------

    def _wait(self) -> None:
        by_source: dict[Any, Worker] = {
            source: each for each in self.workers for source in (each.pipe, each.process.sentinel)
        }
        for worker in {by_source[source] for source in wait(list(by_source))}:
            self._receive(worker)

    def _receive(self, worker: "Worker") -> None:
        """Everything that a worker has to say, its death included."""
        try:
            while worker.pipe.poll():
                what, content = worker.pipe.recv()
                if what == "ready":
                    worker.ready = True
                elif what == "progress" and worker.job is not None:
                    self.watch.progress(worker.job.experiment.key, content)
                elif what in ENDS:
                    self._conclude(worker, what, content)
        except (EOFError, OSError):
            self._replace_dead(worker)
            return
        if not worker.process.is_alive() and not worker.pipe.poll():
            self._replace_dead(worker)

    def _conclude(self, worker: "Worker", what: str, content: str) -> None:
        job, worker.job = worker.job, None
        assert job is not None
        key = job.experiment.key
        result = read_result(self.plan.results, key) if what == "done" else None
        printed = self.plan.work / f"{key}.log"
        if printed.exists() and (not printed.stat().st_size or (result and not result.error)):
            printed.unlink()
        if result is None:
            self.watch.put_back(key, content or f"no result in {self.plan.results}")
        else:
            self.watch.ended(result)

    def _replace_dead(self, worker: "Worker") -> None:
        """A worker is gone; its job is tried once more, with more room."""
        worker.end()
        self.workers.remove(worker)
        job, why = worker.job, cause_of_death(worker.exit_code)
        if not worker.ready:
            raise RuntimeError(
                f"a worker could not start ({why}); what it printed is above. A script that "
                "starts a grid needs 'if __name__ == \"__main__\":' around what it runs"
            )
        if job is None:
            return
        key, deaths = job.experiment.key, job.deaths + 1
        if deaths < ATTEMPTS:
            memory = min(2 * job.memory, self.memory)
            self.queue.insert(0, Job(job.experiment, memory, deaths))
            self.watch.put_back(key, f"its process {why}; it goes on from its checkpoint")
            return
        error = (
            f"its process {why}, and so did the one before. If memory ran out, use fewer workers "
            f"or a smaller batch; what it printed is in {key}.log of the work folder"
        )
        self.watch.ended(job.experiment.failed(self.plan.results, error))

    def _ask_to_stop(self) -> None:
        """Let every worker save its run; a second Ctrl-C does not wait for them."""
        self.queue.clear()
        self.watch.message("stopping; the running experiments save themselves")
        for worker in self.workers:
            worker.ask_to_stop()
        try:
            for worker in self.workers:
                worker.process.join()
                self._collect_last(worker)
        except KeyboardInterrupt:
            for worker in self.workers:
                worker.process.kill()

    def _collect_last(self, worker: "Worker") -> None:
        """What a worker that was asked to stop has finished after all."""
        with suppress(EOFError, OSError):
            while worker.job is not None and worker.pipe.poll():
                what, content = worker.pipe.recv()
                if what in ENDS:
                    self._conclude(worker, what, content)


class Worker:
    """A process that runs experiments one after another."""

    def __init__(self, plan: Plan, threads: int) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        given = (theirs, plan.results, plan.data, plan.work, threads)
        self.process = context.Process(target=serve, args=given)
        self.job: Job | None = None
        self.memory = 0.0
        self.ready = False
        self.exit_code: int | None = None
        with _worker_environment(threads):
            self.process.start()
        theirs.close()

    def take(self, job: Job) -> None:
        self.job, self.memory = job, max(self.memory, job.memory)
        self.pipe.send(job.experiment)

    def ask_to_stop(self) -> None:
        if self.process.is_alive():
            self.process.terminate()  # where the loop runs, it saves; elsewhere nothing is lost

    def end(self) -> None:
        """Let the process end, after saving what it runs; kill it if it does not."""
        if self.exit_code is not None:
            return
        if self.job is not None:
            self.ask_to_stop()
        self.pipe.close()  # an idle worker ends then
        self.process.join(EXIT_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.exit_code = self.process.exitcode
        self.process.close()


@contextmanager
def _worker_environment(threads: int) -> Iterator[None]:
    """What a worker inherits: few threads, and no reaction to Ctrl-C until it installs its own."""
    given = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(threads))
    given["OMP_WAIT_POLICY"] = "passive"
    before = {name: os.environ[name] for name in given if name in os.environ}
    os.environ.update(given)
    try:
        with ignored_interruptions():
            yield
    finally:
        for name in given:
            del os.environ[name]
        os.environ.update(before)


def interrupted(work: Path) -> Interrupted:
    """What to raise where a grid was stopped by its user."""
    return Interrupted(
        f"the grid was stopped; what ran is saved in {work}. "
        "Run the same command again to go on from there."
    )


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cause_of_death(code: int | None) -> str:
    """``was killed by SIGKILL``, or how else a process has ended."""
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


# -- the life of a worker --------------------------------------------------------------------------


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
            run_experiment(experiment, results, data=data, work=work, reporter=_PipeReporter(pipe))
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


class _PipeReporter(Reporter):
    """Tells the grid how far a run is: now and then, and after each epoch."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.told, self.epoch_told = 0.0, 0

    def step(self, now: Progress) -> None:
        if now.epoch > self.epoch_told or time.monotonic() - self.told >= REPORT_SECONDS:
            self.told, self.epoch_told = time.monotonic(), now.epoch
            with suppress(OSError):  # the grid may be gone; that is no fault of the run
                self.pipe.send(("progress", now))
