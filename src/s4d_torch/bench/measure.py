"""Contenders timed in turn, the best time of each; what does not fit is left out."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from s4d_torch.bench.device import free_memory, return_memory, wait_for

Call = Callable[[], object]

SHORTEST = 1e-2  # seconds; what is faster is timed in groups, so that its own data is in the cache
FEWEST = 2  # runs after the warm-up, however long they take
ENOUGH = 5.0  # seconds; quick races take more turns, since a moment's disturbance spoils a few
MOST = 10  # times as many as asked for


class NotAvailable(Exception):  # noqa: N818  (an answer, not an error)
    """What a contender needs is not there; the message becomes its row."""


@dataclass(frozen=True)
class Case:
    """What is run, how large and where: ``way`` is forward, forward+backward, training step, ..."""

    way: str
    batch: int
    length: int
    d_model: int
    d_state: int
    layers: int = 1
    threads: int = 1
    device: str = "cpu"

    @property
    def input_bytes(self) -> int:
        """The size of u in float32."""
        return 4 * self.batch * self.length * self.d_model

    @property
    def size(self) -> int:
        """What time grows with, for contenders whose time grows evenly."""
        return self.layers * self.input_bytes


@dataclass(frozen=True)
class Contender:
    """``build`` makes inputs and parameters and returns what is timed.

    ``memory`` estimates the bytes at its peak, and ``order`` the growth of time with length: a
    contender that does not fit is left out before it takes the machine down.
    """

    build: Callable[[Case], Call]
    memory: Callable[[Case], float] = lambda case: 8.0 * case.input_bytes
    order: int = 1


class Entrant(NamedTuple):
    """A contender in a race, under a name and with a case of its own."""

    name: str
    contender: Contender
    case: Case


@dataclass(frozen=True)
class Measurement:
    """One measurement; ``seconds`` is the best of ``runs``, ``first`` the first call of all.

    ``bytes`` is the peak of memory beyond inputs and parameters; ``note`` says why something is
    missing.
    """

    work: str
    contender: str
    case: Case
    seconds: float | None = None
    median: float | None = None
    first: float | None = None
    runs: int = 0
    bytes: int | None = None
    note: str = ""


@dataclass
class Stopwatch:
    """Times contenders in turn, within limits of time and memory.

    A contender expected to need more than ``longest`` seconds for one run is left out, judged by
    its time at a smaller size; one that has used ``patience`` seconds is not asked again.
    """

    repeats: int = 5
    longest: float = 30.0
    patience: float = 6.0
    budget: float = field(default_factory=lambda: 0.6 * free_memory("cpu"))
    _history: dict[tuple[str, str, str, int], tuple[Case, float]] = field(default_factory=dict)

    def race(self, work: str, entrants: Sequence[Entrant]) -> list[Measurement]:
        """A record for each entrant: all are built and warmed up, then run in turn."""
        with _no_collection():
            records, runs = self._enter(work, entrants)
            found = self._take_turns(runs)
        for i, times in found.items():
            best, middle, case = min(times), statistics.median(times), entrants[i].case
            records[i] = replace(records[i], seconds=best, median=middle, runs=len(times))
            self._history[work, entrants[i].name, case.way, case.threads] = (case, best)
        runs.clear()
        return_memory(entrants[0].case.device)  # kept within a race, free for the next
        return records

    def _enter(
        self, work: str, entrants: Sequence[Entrant]
    ) -> tuple[list[Measurement], dict[int, "_Run"]]:
        """A record for each entrant, and the runs of those that are there and fit, warmed up."""
        records: list[Measurement] = []
        runs: dict[int, _Run] = {}
        for i, (name, contender, case) in enumerate(entrants):
            first = None
            if not (note := self._refusal(work, name, contender, case)):
                note, first, run = _first_call(contender, case)
                if not note:
                    runs[i] = run
            records.append(Measurement(work, name, case, first=first, note=note))
        return records, runs

    def _take_turns(self, runs: dict[int, "_Run"]) -> dict[int, list[float]]:
        """The seconds of each; the second call of all tells how many make a group."""
        second = {i: run.seconds() for i, run in runs.items()}
        groups = {i: max(1, int(SHORTEST / max(second[i], 1e-7))) for i in runs}
        times = {i: [second[i]] if groups[i] == 1 else [] for i in runs}
        turn_takes = sum(second[i] * groups[i] for i in runs)
        turns = min(int(ENOUGH / max(turn_takes, 1e-7)), MOST * self.repeats)
        for turn in range(max(self.repeats, turns)):
            for i, run in runs.items():
                tired = turn >= FEWEST and sum(times[i]) * groups[i] > self.patience
                if len(times[i]) <= turn and not tired:
                    times[i].append(run.seconds(groups[i]))
        return times

    def _refusal(self, work: str, name: str, contender: Contender, case: Case) -> str:
        memory = contender.memory(case)
        if memory > self.budget:
            return f"left out: needs about {memory / 2**30:.0f} GB"
        key = (work, name, case.way, case.threads)
        if key in self._history:
            last, seconds = self._history[key]
            longer = case.length / last.length
            expected = seconds * case.size / last.size * longer ** (contender.order - 1)
            if expected > self.longest:
                return f"left out: would take about {expected:.2g} s"
        return ""


class _Run(NamedTuple):
    """What is timed, and where."""

    call: Call
    case: Case

    def seconds(self, number: int = 1) -> float:
        with threads(self.case.threads):
            return call_seconds(self.call, number, self.case.device)


def _first_call(contender: Contender, case: Case) -> tuple[str, float | None, _Run]:
    """(a note if it failed, seconds of the first call, what to time)."""
    try:
        with threads(case.threads):
            run = _Run(contender.build(case), case)
        return "", run.seconds(), run
    except NotAvailable as answer:
        note = str(answer)
    except Exception as error:  # one contender that fails must not end a long run
        note = f"failed: {type(error).__name__}: {str(error).strip()[:200]}"
    return note, None, _Run(lambda: None, case)


def call_seconds(run: Call, number: int = 1, device: str = "cpu") -> float:
    """Seconds of one of ``number`` calls, up to the moment when the device is done with them."""
    wait_for(device)
    start = time.perf_counter()
    for _ in range(number):
        run()
    wait_for(device)
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
    """No pause for garbage while calls are timed."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
