"""A worker that dies: the other ends within seconds, and the run goes on to the same bytes."""

import random
import tempfile
import time
from pathlib import Path

from common import Figures, Progress
from training_runs import KINDS, STEPS, difference, finish, left_behind, pair, start, undisturbed

COUNT = 8
SECONDS = 20.0  # within which a survivor has to end, on a machine with other work


def run(count: int, seed: int, workers: int) -> Figures:
    figures = Figures("workers")
    progress, slowest = Progress(figures, count), 0.0
    with tempfile.TemporaryDirectory() as root:
        wanted = {}
        for number in range(count):
            kind = ("DDP", "FSDP2")[number % 2]
            chance, folder = random.Random(f"{seed} {number}"), Path(root) / str(number)
            try:
                if kind not in wanted:
                    wanted[kind] = undisturbed(kind, Path(root) / kind)[0]
                victim, step = number // 2 % 2, chance.randint(1, STEPS)
                slowest = max(slowest, survivor_seconds(folder, kind, victim, step))
                code, said = finish(start(folder, **KINDS[kind]))
                if code:
                    raise RuntimeError(f"it did not go on: {code}, {said}")
                if different := difference(left_behind(folder), wanted[kind]):
                    raise RuntimeError(f"other files: {different}")
                figures.add(f"{kind}, worker {victim} died")
            except RuntimeError as error:
                figures.fail(f"{kind}: {error}")
            progress()
    figures.measured["slowest end of a survivor, s"] = round(slowest, 1)
    return figures


def survivor_seconds(folder: Path, kind: str, victim: int, step: int) -> float:
    """Seconds from the death of one process of two to the end of the other."""
    signals = [(step, "SIGKILL")]
    both = pair(folder, kind == "FSDP2", victim=victim, signals=signals)
    both[victim].communicate()
    died = time.monotonic()
    code, said = finish(both[1 - victim])
    seconds = time.monotonic() - died
    if step < STEPS and code in (0, 999):
        raise RuntimeError(f"the survivor ended with {code} after {seconds:.0f} s: {said}")
    if seconds > SECONDS:
        raise RuntimeError(f"the survivor took {seconds:.0f} s to end")
    return seconds
