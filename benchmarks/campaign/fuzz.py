"""Fuzzing of every public entry and every reader of files, in processes that may crash.

A case is a number: with the seed it says which entry is called, and with what. Its outcome is a
right answer, a clear error, or a failure: a wrong answer, an error that is not ours, a crash, a
case that takes too long or too much memory.
"""

import json
import subprocess
from collections.abc import Iterator

from common import HERE, Figures, Progress, environment, in_parallel, python

COUNT = 24_000
BATCH = 300
# how many cases of each entry there are in a hundred
SHARES = {
    "layer": 14,
    "model": 14,
    "step": 9,
    "stream": 12,
    "config": 6,
    "estimator": 1,
    "csv": 6,
    "npz": 5,
    "npy": 4,
    "ts": 4,
    "wav": 4,
    "idx": 4,
    "cifar": 2,
    "tar": 3,
    "zip": 3,
    "pretrained": 4,
    "run": 3,
    "snapshot": 2,
}


def run(count: int, seed: int, workers: int) -> Figures:
    figures = Figures("fuzz")
    progress = Progress(figures, count)
    for kind, results in in_parallel(batches(count, seed), workers, call):
        for result in results:
            if result["outcome"] in ("right answer", "clear error"):
                figures.add(f"{kind}, {result['outcome']}")
            else:
                figures.fail(f"{kind} {result['number']}: {result['outcome']}: {result['said']}")
            progress()
    totals = {"right answer": 0, "clear error": 0}
    for name, cases in figures.outcomes.items():
        if name != "FAILED":
            totals[name.rpartition(", ")[2]] += cases
    figures.measured |= totals
    return figures


def batches(count: int, seed: int) -> Iterator[tuple[str, int, int, int]]:
    """Kind, seed, and the numbers of its cases."""
    for kind, share in SHARES.items():
        wanted = max(1, round(count * share / sum(SHARES.values())))
        for start in range(0, wanted, BATCH):
            yield kind, seed, start, min(start + BATCH, wanted)


def call(batch: tuple[str, int, int, int]) -> tuple[str, list[dict[str, str]]]:
    """The results of a batch; after a crash it goes on with the case behind."""
    kind, seed, start, stop = batch
    results: list[dict[str, str]] = []
    while start < stop:
        done = subprocess.run(
            python(str(HERE / "fuzz_worker.py"), kind, str(seed), str(start), str(stop)),
            capture_output=True,
            text=True,
            env=environment(PYTHONWARNINGS="ignore"),
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        results += lines
        start += len(lines)
        if start < stop:
            said = f"the process ended with {done.returncode}: {done.stderr[-1500:]}"
            results.append({"number": str(start), "outcome": "crash", "said": said})
            start += 1
    return kind, results
