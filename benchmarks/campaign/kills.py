"""SIGKILL at random moments and aimed at saving; the run goes on, to the same bytes in the end."""

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Figures, Progress, in_parallel
from training_runs import (
    KINDS,
    aimed,
    difference,
    finish,
    left_behind,
    start,
    undisturbed,
    wait_for,
)

COUNT = 220
SHARES = {"one process": 0.8, "DDP": 0.1, "FSDP2": 0.1}
KILLS = 4  # of one run at most, before it is left in peace


def run(count: int, seed: int, workers: int) -> Figures:
    figures = Figures("kills")
    progress = Progress(figures, count)
    with tempfile.TemporaryDirectory() as root:
        for kind, share in SHARES.items():
            wanted, before = max(1, round(share * count)), figures.cases
            try:
                reference = undisturbed(kind, Path(root) / f"undisturbed {kind}")
            except RuntimeError as error:
                figures.fail(str(error))
                continue
            at_once = workers if KINDS[kind].get("processes", 1) == 1 else max(1, workers // 2)

            def chains(kind: str = kind, wanted: int = wanted, before: int = before) -> Any:
                number = 0
                while figures.cases - before < wanted:
                    yield kind, random.Random(f"{seed} {kind} {number}"), number
                    number += 1

            def call(chain: Any, reference: Any = reference) -> Any:
                return one_run(*chain, Path(root), *reference)

            for kills, problem in in_parallel(chains(), at_once, call):
                for way in kills:
                    figures.add(f"{kind}, {way}")
                if problem:
                    figures.fail(f"{kind}: {problem}")
                progress()
            figures.measured[f"kills, {kind}"] = figures.cases - before
    figures.measured["runs lost"] = len(figures.failures)
    return figures


def one_run(
    kind: str,
    chance: random.Random,
    number: int,
    root: Path,
    wanted: dict[str, Any],
    seconds: float,
) -> tuple[list[str], str]:
    """A run that is killed a few times; how each time, and what was wrong in the end."""
    folder, kills = root / f"{kind} {number}", list[str]()
    code, said = -9, ""
    while code and len(kills) < KILLS:
        if kind == "one process" and chance.random() < 0.5:
            code, said = killed_at_random(folder, chance.uniform(0, seconds))
            way = "at a random moment"
        else:
            job = aimed(kind, chance)
            code, said = finish(start(folder, **job))
            way = "aimed at saving" if "kill" in job else "after a step"
        by_kill = code == -9 or "exitcode: -9" in said or "SIGKILL" in said
        if code and not by_kill:
            return kills, f"ended with {code} instead of SIGKILL: {said}"
        if code:
            kills.append(way)
    if code:
        code, said = finish(start(folder, **KINDS[kind]))
        if code:
            return kills, f"killed {len(kills)} times ({kills}), then ended with {code}: {said}"
    if different := difference(left_behind(folder), wanted):
        return kills, f"killed {len(kills)} times ({kills}), then other files: {different}"
    shutil.rmtree(folder)
    return kills, ""


def killed_at_random(folder: Path, seconds: float) -> tuple[int, str]:
    process = start(folder, **KINDS["one process"])
    wait_for(process)
    time.sleep(seconds)
    process.kill()
    return finish(process)
