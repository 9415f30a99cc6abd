"""Samples dropped at random: their gaps given to the model, ignored, or filled by straight lines.

    OMP_NUM_THREADS=1 python benchmarks/dropped_samples.py --data-dir data --out dropped

trains a small model for each task, part that is dropped, way and seed, on sequences that lack the
same samples in all three ways, and tests it on sequences that lack as many. What was measured is
kept in ``--out``, a file for each, and not measured again: it may be stopped at any time. At the
end, or at once with ``--show``, it prints a table of the means and standard deviations over seeds.

JapaneseVowels and FSDD are whole; of Speech Commands, at 8 kHz, at most 1800 clips are learned
from, of all words that are there. Training is short, a few minutes of one thread each: what is
compared are the three ways, not the best that could be reached.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from s4d_torch._files import write_atomically
from s4d_torch.data import DataFolder
from s4d_torch.data.dropping import Dropped
from s4d_torch.training import default_config, train
from s4d_torch.training.run import keep_freed_memory


@dataclass(frozen=True)
class Setting:
    """A task, the options of its data, and those of its training that differ from its own."""

    task: str
    data: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


SETTINGS = {
    "JapaneseVowels": Setting("ucr", {"problem": "JapaneseVowels"}, {"epochs": 40}),
    "spoken digits": Setting("fsdd", {}, {"epochs": 3}),
    "Speech Commands": Setting("sc35", {"sample_rate": 8000}, {"epochs": 4, "train_size": 1800}),
}
PARTS = (0.3, 0.5, 0.7)
WAYS = get_args(Dropped)
WHOLE = "whole"  # nothing dropped, for comparison


@dataclass(frozen=True)
class Case:
    name: str
    drop: float
    way: str
    seed: int

    @property
    def file(self) -> str:
        return f"{self.name.replace(' ', '-')}-{self.drop:g}-{self.way}-{self.seed}.json"

    def measure(self, data: DataFolder, code: str) -> dict[str, Any]:
        setting = SETTINGS[self.name]
        options = {} if self.way == WHOLE else {"drop": self.drop, "dropped": self.way}
        config = default_config(setting.task, "small", **setting.data, **options)
        training = replace(config.training, seed=self.seed, **setting.training)
        began = time.process_time()
        run = train(setting.task, replace(config, training=training), data=data)
        return {
            "accuracy": run.summary["test"]["accuracy"],
            "test_cases": run.summary["test_cases"],
            "seconds": round(time.process_time() - began, 1),
            "commit": code,
        }


def commit() -> str:
    """Of the code that runs; asked at the start, as the folder may change after."""
    found = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


def cases(names: list[str], seeds: list[int]) -> list[Case]:
    """All of one seed before the next: a table of few seeds is there early."""
    each = [(0.0, WHOLE), *((drop, way) for drop in PARTS for way in WAYS)]
    return [Case(name, *one, seed) for seed in seeds for name in names for one in each]


def table(found: dict[Case, dict[str, Any]]) -> str:
    """Accuracy in per cent, the mean over seeds and their standard deviation."""
    lines = ["| task | dropped | gaps given | gaps ignored | interpolated | nothing dropped |"]
    lines.append("|---|---|---|---|---|---|")
    for name in dict.fromkeys(case.name for case in found):
        whole = cell(found, name, 0.0, WHOLE)
        for drop in PARTS:
            cells = [cell(found, name, drop, way) for way in WAYS]
            lines.append(f"| {name} | {drop:.0%} | {' | '.join(cells)} | {whole} |")
    return "\n".join(lines)


def cell(found: dict[Case, dict[str, Any]], name: str, drop: float, way: str) -> str:
    scores = [
        100 * row["accuracy"]
        for case, row in found.items()
        if (case.name, case.drop, case.way) == (name, drop, way)
    ]
    if not scores:
        return ""
    spread = f" ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--show", action="store_true", help="what is there, without measuring")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[Case, dict[str, Any]] = {}
    code = commit()
    for case in cases(options.tasks, options.seeds):
        file = options.out / case.file
        if not file.exists() and not options.show:
            row = case.measure(DataFolder(options.data_dir, download=False), code)
            write_atomically({file: json.dumps(row).encode()})
            print(case, row, flush=True)
        if file.exists():
            found[case] = json.loads(file.read_text())
    print(table(found))
    seconds = [row["seconds"] for row in found.values()]
    commits = sorted({row["commit"] for row in found.values()})
    print(f"{len(found)} runs, {sum(seconds) / 60:.0f} minutes of one thread, at {commits}")


if __name__ == "__main__":
    main()
