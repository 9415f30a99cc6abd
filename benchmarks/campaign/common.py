"""What the parts of the campaign share: cases that are counted, processes, files to damage."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
EVERY = 10.0  # seconds between lines of progress


@dataclass
class Figures:
    """What one part found: how many cases had which outcome, and each that should not be."""

    part: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, outcome: str, cases: int = 1) -> None:
        self.cases += cases
        self.outcomes[outcome] += cases

    def fail(self, what: str) -> None:
        self.add("FAILED")
        self.failures.append(what)
        print(f"  FAILED {what[:2000]}", flush=True)

    def to_json(self) -> dict[str, Any]:
        return {
            "cases": self.cases,
            "failed": len(self.failures),
            "outcomes": dict(sorted(self.outcomes.items())),
            "measured": self.measured,
            "failures": self.failures[:50],
            "seconds": round(self.seconds, 1),
        }


class Progress:
    """A line now and then."""

    def __init__(self, figures: Figures, wanted: int) -> None:
        self.figures, self.wanted = figures, wanted
        self.began = self.spoken = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.spoken >= EVERY:
            self.spoken = now
            found = self.figures
            print(
                f"  {found.part}: {found.cases} of {self.wanted}, {len(found.failures)} failed, "
                f"{now - self.began:.0f} s",
                flush=True,
            )


def environment(**more: str) -> dict[str, str]:
    """Of processes that are started: this checkout, one thread, what tests import."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), str(HERE)])
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return {**os.environ, **own, **more}


def python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def in_parallel(work: Iterable[Any], workers: int, call: Any) -> Iterator[Any]:
    """``call`` of each, a few at a time, in the order in which they end."""
    with ThreadPoolExecutor(workers) as pool:
        left, running = iter(work), set[Future[Any]]()
        while True:
            for each in left:
                running.add(pool.submit(call, each))
                if len(running) >= workers:
                    break
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                yield each.result()
