"""Every file of run folders, checkpoints, weights, exports and snapshots: cut, flipped, garbage.

The commands that read them answer as before, or say in one sentence what is wrong.
"""

import json
import random
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from common import HERE, Figures, Progress, environment, in_parallel, python

COUNT = 400
BATCH = 20


def run(count: int, seed: int, workers: int) -> Figures:
    figures = Figures("corruption")
    progress = Progress(figures, count)
    with tempfile.TemporaryDirectory() as root:
        made = subprocess.run(
            python(str(HERE / "corruption_worker.py"), "make", root),
            capture_output=True,
            text=True,
            env=environment(),
        )
        if made.returncode:
            raise RuntimeError(f"the files could not be made: {made.stderr[-2000:]}")
        work = [(root, seed, start, min(start + BATCH, count)) for start in range(0, count, BATCH)]
        for results in in_parallel(work, workers, call):
            for result in results:
                if result["outcome"] in ("right answer", "one sentence"):
                    figures.add(f"{result['kind']}, {result['outcome']}")
                else:
                    figures.fail(f"{result['what']}: {result['outcome']}: {result['said']}")
                progress()
    return figures


def call(batch: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    """The results of a batch; after a crash it goes on with the case behind."""
    root, seed, start, stop = batch
    results: list[dict[str, Any]] = []
    while start < stop:
        done = subprocess.run(
            python(
                str(HERE / "corruption_worker.py"), "damage", root, *map(str, (seed, start, stop))
            ),
            capture_output=True,
            text=True,
            env=environment(PYTHONWARNINGS="ignore"),
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        results += lines
        start += len(lines)
        if start < stop:
            said = f"the process ended with {done.returncode}: {done.stderr[-1500:]}"
            results.append({"kind": "?", "what": str(start), "outcome": "crash", "said": said})
            start += 1
    return results


def damage(chance: random.Random, file: Path) -> str:
    """Change one file on the disk, and say how."""
    content = bytearray(file.read_bytes())
    match chance.randrange(5):
        case 0:
            end = chance.randrange(len(content) + 1)
            file.write_bytes(content[:end])
            return f"cut after {end} of {len(content)} bytes"
        case 1 | 2:
            at = chance.randrange(len(content) or 1)
            content[at : at + 1] = (
                bytes([content[at] ^ 1 << chance.randrange(8)]) if content else b""
            )
            file.write_bytes(content)
            return f"a bit of byte {at} flipped"
        case 3:
            file.write_bytes(chance.randbytes(len(content)))
            return "garbage"
    file.unlink()
    return "removed"


def copied(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
