"""The campaign of faults: ``make campaign``, or ``python benchmarks/campaign --only kills``.

Kills, dead workers, damaged files, fuzzing, threads and forks, checked places, hostile archives.
Each part has a count of cases, which ``--count`` or ``--quick`` changes, and comes out the same for
one seed, but for what depends on the moment. Figures go to a JSON file, part by part: a part that
is run again replaces its own.
"""

import argparse
import json
import os
import platform
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from common import ROOT, Figures

from s4d_torch.training.saved.run_folder import environment

PARTS = ("archives", "bounds", "threads", "corruption", "fuzz", "workers", "kills")
QUICK = 20  # times fewer cases


def main() -> int:
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts")
    parser.add_argument("--count", type=int, help="cases of each part, or kills")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/campaign.json")
    given = parser.parse_args()
    known = json.loads(given.out.read_text()) if given.out.exists() else {"parts": {}}
    failed, commit = 0, environment()["commit"]
    for name in given.only:
        part = import_module(name)
        count = given.count or max(1, part.COUNT // (QUICK if given.quick else 1))
        print(f"{name}: {count} cases", flush=True)
        began = time.monotonic()
        figures: Figures = part.run(count, given.seed, given.workers)
        figures.seconds = time.monotonic() - began
        failed += len(figures.failures)
        known["parts"][name] = {"seed": given.seed, "commit": commit, **figures.to_json()}
        known["machine"] = f"{platform.platform()}, {os.cpu_count()} cores"
        known["date"] = time.strftime("%Y-%m-%d")
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(known, indent=2) + "\n")
    print("\n".join(table(known["parts"])))
    return 1 if failed else 0


def table(parts: dict[str, Any]) -> list[str]:
    """For docs/reliability.md."""
    lines = ["", "| part | cases | failed | what | time |", "|---|---|---|---|---|"]
    for name in PARTS:
        if name in parts:
            found = parts[name]
            outcomes = {k: v for k, v in found["outcomes"].items() if k != "FAILED"}
            what = "; ".join(f"{k}: {v}" for k, v in {**outcomes, **found["measured"]}.items())
            row = (name, found["cases"], found["failed"], what, f"{found['seconds']:.0f} s")
            lines.append("| " + " | ".join(map(str, row)) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
