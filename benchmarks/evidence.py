"""The experiments that decide the paper's findings, in the order in which they tell most.

    nice -n 19 python benchmarks/evidence.py --data-dir data --work evidence

runs the tables of the paper at scale ``study``, step by step, with the command that each step
prints. Results in ``docs/paper/results`` are not made again; new ones, and unfinished runs, are in
``--work``: stop it at any time, and start it again to go on. All steps take days on two cores;
``--list`` shows how far each is, ``--steps 3 4`` runs some of them. Run it in a clean checkout of
its own, which nobody changes meanwhile: results carry its commit.

``--keep`` adds the new results to ``docs/paper/results`` and ends; then ``s4d paper report --scale
study --out docs/paper --reproduction docs/reproduction.md`` makes the report of what there is.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from s4d_torch.paper.recipes import RECIPES, select_experiments

KEPT = Path(__file__).parents[1] / "docs/paper/results"
SCALE = "study"
DIAGONAL, DPLR = ("S4D-LegS", "S4D-Inv", "S4D-Lin"), ("S4-LegS", "S4-FouT")
VARIANTS = (*DPLR, *DIAGONAL)
TRAINED = tuple(f"{name}, trained" for name in VARIANTS)
LAWS = ("S4D-Inv", "S4D-Lin")
SCALED = tuple(f"{law}{end}" for law in LAWS for end in ("", ", Im x 0.01", ", Im x 100"))
RANDOM_REAL = tuple(f"{law}, random Re" for law in LAWS)
ON_SPO2 = ("S4D-Inv", "S4D-Inv2", "S4D-Quad", "S4D-Lin", "S4D-Rand", "tied", "untied")
WITH_B = tuple(RECIPES["trainable-b"].rows)


@dataclass(frozen=True)
class Step:
    """Some rows and tasks of some tables; without names, all of them."""

    tables: tuple[str, ...]
    tasks: tuple[str, ...]
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0, 1)

    @property
    def command(self) -> list[str]:
        command = ["s4d", "paper", "run", *self.tables, "--scale", SCALE]
        command += ["--seeds", *map(str, self.seeds), "--tasks", *self.tasks]
        return command + (["--rows", *self.rows] if self.rows else [])

    def keys(self) -> set[str]:
        """Of the results that it makes."""
        tables = [RECIPES[name] for name in self.tables]
        found = select_experiments(tables, SCALE, self.seeds, tasks=self.tasks, rows=self.rows)
        return {experiment.key for experiment in found}


ABLATIONS = ("trainable-b", "discretization", "initialization", "trainable", "tying")
ON_PATHX = (*RECIPES["pathx-ablation"].rows, "S4D-Inv", "S4D-Lin")
STEPS = (
    Step(ABLATIONS, ("bidmc-spo2",)),
    Step(("trainable",), ("scifar", "bidmc-hr"), TRAINED),
    Step(("initialization", "tying"), ("bidmc-spo2",), ON_SPO2, seeds=(0, 1, 2, 3)),
    Step(("pathx-ablation", "lra"), ("pathx",), ON_PATHX),
    Step(("trainable",), ("scifar", "bidmc-hr", "bidmc-spo2"), TRAINED, seeds=(0, 1, 2, 3)),
    Step(("trainable-b", "discretization"), ("scifar",)),
    Step(("lra", "listops-choices"), ("listops",), (*VARIANTS, "post-norm", "pre-norm", "smaller")),
    Step(("lra",), ("listops",), VARIANTS, seeds=(0, 1, 2, 3)),
    Step(("image-choices", "original-s4"), ("image", "text")),
    Step(("trainable-b", "discretization"), ("scifar",), seeds=(0, 1, 2)),
    Step(("longer",), ("bidmc-spo2", "bidmc-hr")),
    Step(("choices", "tying"), ("scifar",)),
    Step(("initialization",), ("bidmc-hr",)),
    Step(("initialization",), ("scifar",)),
    Step(("longer",), ("scifar",), ("S4-LegS", "S4D-LegS", "S4D-Inv")),
    Step(("lra",), ("pathfinder", "text", "image"), VARIANTS),
    Step(("speech-dt", "trainable"), ("sc35",)),
    Step(("lra",), ("pathx",)),
    Step(("trainable",), ("scifar",)),
    Step(("trainable",), ("bidmc-hr",)),
    Step(("trainable-b", "initialization"), ("sc35",), (*SCALED, *RANDOM_REAL, *WITH_B)),
    Step(("large", "bidmc-full"), ("bidmc-hr", "bidmc-rr", "bidmc-spo2")),
    Step(("large", "speech-ar", "speech-rates"), ("sc35",)),
    Step(("large", "scifar-full"), ("scifar",)),
    Step(("lra",), ("listops",), ("Transformer",)),
)


def copy_new(source: Path, target: Path) -> int:
    """Copy the results that the target lacks."""
    target.mkdir(parents=True, exist_ok=True)
    new = [file for file in source.glob("*.json") if not (target / file.name).exists()]
    for file in new:
        shutil.copy2(file, target)
    return len(new)


def run(step: Step, arguments: argparse.Namespace) -> None:
    """Run what is left of a step."""
    options = ["--out", str(arguments.work), "--data-dir", str(arguments.data_dir)]
    if arguments.workers is not None:
        options += ["--workers", str(arguments.workers)]
    print(shlex.join(step.command), flush=True)
    program = Path(sys.executable).with_name("s4d")
    subprocess.run([program, *step.command[1:], *options], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--work", type=Path, default=Path("evidence"))
    parser.add_argument("--workers", type=int, help="experiments at a time; by default all cores")
    parser.add_argument("--steps", type=int, nargs="+", help="by their numbers in --list")
    parser.add_argument("--list", action="store_true", help="only show how far each step is")
    parser.add_argument("--keep", action="store_true", help=f"only add new results to {KEPT.name}")
    arguments = parser.parse_args()
    numbers = arguments.steps or range(1, len(STEPS) + 1)
    if not all(1 <= number <= len(STEPS) for number in numbers):
        parser.error(f"--steps must be from 1 to {len(STEPS)}, got {arguments.steps}")
    results = arguments.work / "results"
    if arguments.keep:
        print(f"{copy_new(results, KEPT)} new results in {KEPT}")
        return
    if not arguments.list:
        copy_new(KEPT, results)
    for number in numbers:
        step = STEPS[number - 1]
        wanted = step.keys()
        places = KEPT, results
        done = sum(any((place / f"{key}.json").exists() for place in places) for key in wanted)
        print(f"step {number}: {done} of {len(wanted)} runs; {shlex.join(step.command)}")
        if not arguments.list and done < len(wanted):
            run(step, arguments)


if __name__ == "__main__":
    main()
