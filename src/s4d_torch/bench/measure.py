"""Contenders timed in turn, the best time of each; what does not fit is left out."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from s4d_torch.paper.experiments.cost import counted_memory

Call = Callable[[], object]

SHORTEST = 2e-3  # seconds; what is faster is timed in groups this long
FEWEST = 2  # runs after the warm-up, however long they take
ENOUGH = 1.0  # seconds; quick races take more turns, since a moment's disturbance spoils a few
MOST = 10  # times as many as asked for


class NotAvailable(Exception):  # noqa: N818  (an answer, not an error)
    """What a contender needs is not there; the message becomes its row."""


@dataclass(frozen=True)
class Case:
    """What is run: ``way`` is forward, forward+backward, training step or one step."""

    way: str
    batch: int
    length: int
    d_model: int
    d_state: int

    @property
    def input_bytes(self) -> int:
        """The size of u in float32."""
        return 4 * self.batch * self.length * self.d_model


@dataclass(frozen=True)
class Contender:
    """``build`` makes inputs and parameters and returns what is timed.

    ``memory`` estimates the bytes at its peak, and ``order`` the growth of time with length: a
    contender that does not fit is left out before it takes the machine down.
    """

    build: Callable[[Case], Call]
    memory: Callable[[Case], float] = lambda case: 8.0 * case.input_bytes
    order: int = 1


@dataclass(frozen=True)
class Measurement:
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
    budget: float = field(default_factory=lambda: 0.6 * memory_of_system("MemAvailable"))
    _history: dict[tuple[str, str, str], tuple[Case, float]] = field(default_factory=dict)

    def race(self, work: str, case: Case, contenders: Mapping[str, Contender]) -> list[Measurement]:
        """A record for each contender: all are built and warmed up, then run in turn."""
        records: dict[str, Measurement] = {}
        runs: dict[str, Call] = {}
        with _no_collection():
            for name, contender in contenders.items():
                place, first = (work, name, case.way, case.batch, case.length), None
                if not (note := self._refusal(work, name, contender, case)):
                    note, first, call = _first_call(contender, case)
                    if not note:
                        runs[name] = call
                records[name] = Measurement(*place, first=first, note=note)
            best = self._take_turns(runs)
        for name, (seconds, count) in best.items():
            records[name] = replace(records[name], seconds=seconds, runs=count)
            self._history[work, name, case.way] = (case, seconds)
        return list(records.values())

    def _take_turns(self, runs: Mapping[str, Call]) -> dict[str, tuple[float, int]]:
        """(best seconds, runs) of each; the second call of all tells how many make a group."""
        second = {name: call_seconds(run) for name, run in runs.items()}
        groups = {name: max(1, int(SHORTEST / max(second[name], 1e-7))) for name in runs}
        times = {name: [second[name]] if groups[name] == 1 else [] for name in runs}
        turn_takes = sum(second[name] * groups[name] for name in runs)
        turns = min(int(ENOUGH / max(turn_takes, 1e-7)), MOST * self.repeats)
        for turn in range(max(self.repeats, turns)):
            for name, run in runs.items():
                tired = turn >= FEWEST and sum(times[name]) * groups[name] > self.patience
                if len(times[name]) <= turn and not tired:
                    times[name].append(call_seconds(run, groups[name]))
        return {name: (min(found), len(found)) for name, found in times.items()}

    def _refusal(self, work: str, name: str, contender: Contender, case: Case) -> str:
        memory = contender.memory(case)
        if memory > self.budget:
            return f"left out: needs about {memory / 2**30:.0f} GB"
        if (work, name, case.way) in self._history:
            last, seconds = self._history[work, name, case.way]
            longer = case.length / last.length
            expected = seconds * case.batch / last.batch * longer**contender.order
            if expected > self.longest:
                return f"left out: would take about {expected:.2g} s"
        return ""


def _first_call(contender: Contender, case: Case) -> tuple[str, float | None, Call]:
    """(a note if it failed, seconds of the first call, what to time)."""
    try:
        call = contender.build(case)
        return "", call_seconds(call), call
    except NotAvailable as answer:
        note = str(answer)
    except Exception as error:  # one contender that fails must not end a long run
        note = f"failed: {type(error).__name__}: {str(error).strip()[:200]}"
    return note, None, lambda: None


def call_seconds(run: Call, number: int = 1) -> float:
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
    """No pause for garbage while calls are timed."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def memory_of_system(name: str) -> float:
    """Bytes that Linux counts as MemTotal or MemAvailable; a guess where it does not say."""
    return counted_memory(name) or 8.0 * 2**30
