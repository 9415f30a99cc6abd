"""Interleaved best-of timing, and the facts of the machine that a time depends on."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from s4d_torch._version import __version__

Run = Callable[[], object]

SHORTEST = 2e-3  # seconds; what is faster is timed in groups this long
FEWEST = 2  # runs after the warm-up, however long they take
ENOUGH = 1.0  # seconds; quick races take more turns, since a moment's disturbance spoils a few
MOST = 10  # times as many as asked for


class NotAvailable(Exception):  # noqa: N818  (an answer, not an error)
    """What a contender needs is not there; the message becomes its row."""


@dataclass(frozen=True)
class Shape:
    """What is run: ``way`` is forward, forward+backward, training step or one step."""

    way: str
    batch: int
    length: int
    d_model: int
    d_state: int

    @property
    def samples(self) -> int:
        return self.batch * self.length

    @property
    def input_bytes(self) -> int:
        """The size of u in float32."""
        return 4 * self.samples * self.d_model


@dataclass(frozen=True)
class Contender:
    """``build`` makes inputs and parameters and returns what is timed.

    ``memory`` estimates the bytes at its peak, and ``order`` the growth of time with length: a
    contender that does not fit is left out before it takes the machine down.
    """

    build: Callable[[Shape], Run]
    memory: Callable[[Shape], float] = lambda shape: 8.0 * shape.input_bytes
    order: int = 1


@dataclass(frozen=True)
class Record:
    """One measurement; ``seconds`` is the best of ``runs``, ``first`` the first call of all.

    ``bytes`` is the peak of memory beyond inputs and parameters; ``note`` says why something is
    missing.
    """

    work: str
    contender: str
    way: str
    batch: int
    length: int
    seconds: float | None = None
    first: float | None = None
    runs: int = 0
    bytes: int | None = None
    note: str = ""


@dataclass
class Stopwatch:
    """Times contenders in turn, within limits of time and memory.

    A contender expected to need more than ``longest`` seconds for one run is left out, judged by
    its time at a shorter length; one that has used ``patience`` seconds is not asked again.
    """

    repeats: int = 5
    longest: float = 30.0
    patience: float = 10.0
    budget: float = field(default_factory=lambda: 0.6 * available_memory())
    _history: dict[tuple[str, str, str], tuple[Shape, float]] = field(default_factory=dict)

    def race(self, work: str, shape: Shape, contenders: Mapping[str, Contender]) -> list[Record]:
        """A record for each contender: all are built and warmed up, then run in turn."""
        records: dict[str, Record] = {}
        runs: dict[str, Run] = {}
        with _no_collection():
            for name, contender in contenders.items():
                record = Record(work, name, shape.way, shape.batch, shape.length)
                note = self._refusal(work, name, contender, shape)
                if not note:
                    note, seconds, runs[name] = _first_call(contender, shape)
                    record = replace(record, first=seconds)
                if note:
                    runs.pop(name, None)
                records[name] = replace(record, note=note)
            best = self._take_turns(runs)
        for name, (seconds, count) in best.items():
            records[name] = replace(records[name], seconds=seconds, runs=count)
            self._history[work, name, shape.way] = (shape, seconds)
        return list(records.values())

    def _take_turns(self, runs: Mapping[str, Run]) -> dict[str, tuple[float, int]]:
        """(best seconds, number of runs) of each.

        The second call of all tells how many make a group, and is the first turn where that is one.
        """
        second = {name: clock(run) for name, run in runs.items()}
        groups = {name: max(1, int(SHORTEST / max(second[name], 1e-7))) for name in runs}
        times = {name: [second[name]] if groups[name] == 1 else [] for name in runs}
        turn_takes = sum(second[name] * groups[name] for name in runs)
        turns = min(int(ENOUGH / max(turn_takes, 1e-7)), MOST * self.repeats)
        for turn in range(max(self.repeats, turns)):
            for name, run in runs.items():
                tired = turn >= FEWEST and sum(times[name]) * groups[name] > self.patience
                if len(times[name]) <= turn and not tired:
                    times[name].append(clock(run, groups[name]))
        return {name: (min(found), len(found)) for name, found in times.items()}

    def _refusal(self, work: str, name: str, contender: Contender, shape: Shape) -> str:
        memory = contender.memory(shape)
        if memory > self.budget:
            return f"left out: needs about {memory / 2**30:.0f} GB"
        if (work, name, shape.way) in self._history:
            last, seconds = self._history[work, name, shape.way]
            longer = shape.length / last.length
            expected = seconds * shape.batch / last.batch * longer**contender.order
            if expected > self.longest:
                return f"left out: would take about {expected:.2g} s"
        return ""


def _first_call(contender: Contender, shape: Shape) -> tuple[str, float | None, Run]:
    """(a note if it failed, seconds of the first call, what to time)."""
    try:
        run = contender.build(shape)
        return "", clock(run), run
    except NotAvailable as answer:
        return str(answer), None, _nothing
    except Exception as error:  # one contender that fails must not end a long run
        return f"failed: {type(error).__name__}: {str(error).strip()[:200]}", None, _nothing


def _nothing() -> None:
    pass


def clock(run: Run, number: int = 1) -> float:
    """Seconds of one of ``number`` calls."""
    start = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - start) / number


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Within this block torch, and all that follows it, uses ``number`` threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No pause for garbage while the clock runs."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# -- the machine -----------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """What a time depends on: processor, threads, versions, and a measure of its speed."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(total_memory() / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "s4d_torch": __version__,
        **{name: _version(name) for name in ("torch", "numpy", "numba")},
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY"),
        "S4D_TORCH_COMPILED": os.environ.get("S4D_TORCH_COMPILED"),
        "sgemm_gflops": round(sgemm_gflops(), 1),
    }


def sgemm_gflops(size: int = 1024, repeats: int = 10) -> float:
    """Billions of float32 operations per second in a product of square matrices."""
    a, b = torch.ones(size, size), torch.ones(size, size)
    out = torch.empty(size, size)
    best = min(clock(lambda: torch.mm(a, b, out=out)) for _ in range(repeats))
    return 2 * size**3 / best / 1e9


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def total_memory() -> float:
    """Bytes of memory of the machine."""
    return _meminfo("MemTotal")


def available_memory() -> float:
    """Bytes of memory that can be had without swapping."""
    return _meminfo("MemAvailable")


def _meminfo(name: str) -> float:
    try:
        for line in Path("/proc/meminfo").read_text("utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    return 8.0 * 2**30  # a guess where the system does not say
