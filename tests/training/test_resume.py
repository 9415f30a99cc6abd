"""A run that was broken off, however and wherever, ends as if it had not been."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from training_job import Jobs

MIXED: dict[str, Any] = {  # everything that is random, or carried along from step to step
    "model": {"dropout": 0.2, "drop_path": 0.2, "norm": "batch"},
    "training": {"ema": 0.9, "rate_jitter": 0.3},
    "optimizer": {"accumulate": 2, "clip": 0.5},
}
PLAIN: dict[str, Any] = {"model": {"dropout": 0.2}, "data": {"ragged": True}}
STEPS = 24  # 3 epochs of 40 sequences in batches of 5


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    jobs = Jobs()
    yield jobs
    jobs.close()


def left_behind(run: Path) -> dict[str, Any]:
    """What a run leaves: names and bytes of its files, but for those that tell the time."""
    last = max((run / "checkpoints").glob("step-*"))
    files = [*run.iterdir(), *(run / "best").iterdir(), *last.iterdir()]
    timed = ("manifest.json", "summary.json", "environment.json")
    found: dict[str, Any] = {
        str(path.relative_to(run)): b"" if path.name in timed else path.read_bytes()
        for path in files
        if path.is_file()
    }
    summary = json.loads((run / "summary.json").read_text())
    found["summary"] = {name: value for name, value in summary.items() if name != "seconds"}
    found["unfinished"] = [path.name for path in run.rglob(".?*") if path.name != ".lock"]
    found["checkpoints"] = len(list((run / "checkpoints").iterdir()))
    return found


class Undisturbed:
    """What the same run leaves if nobody disturbs it; each is made once."""

    def __init__(self, jobs: Jobs, root: Path) -> None:
        self.jobs, self.root = jobs, root
        self.known: dict[str, dict[str, Any]] = {}

    def __call__(self, **options: Any) -> dict[str, Any]:
        key = json.dumps(options, sort_keys=True)
        if key not in self.known:
            folder = self.root / str(len(self.known))
            outcomes = self.jobs.all(folder, **options)
            assert [(each.code, each.warnings) for each in outcomes] == [(0, [])] * len(outcomes)
            self.known[key] = left_behind(folder)
        return self.known[key]


@pytest.fixture(scope="module")
def undisturbed(jobs: Jobs, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(jobs, tmp_path_factory.mktemp("undisturbed"))


def test_a_run_leaves_all_that_is_promised(undisturbed: Undisturbed) -> None:
    """Otherwise the comparisons below would compare nothing."""
    left = undisturbed(**PLAIN)
    last = f"checkpoints/step-{STEPS:09}"
    assert {f"{last}/model.safetensors", f"{last}/optimizer.safetensors"} <= left.keys()
    assert {"best/model.safetensors", "best/config.json", "run.json"} <= left.keys()
    assert left["metrics.csv"].count(b"\n") == 4
    assert (left["summary"]["steps"], left["unfinished"], left["checkpoints"]) == (STEPS, [], 2)
    assert f"{last}/average.safetensors".replace("24", "12") in undisturbed(**MIXED)


# -- SIGKILL ---------------------------------------------------------------------------------------


def killed_until_done(jobs: Jobs, run: Path, seed: int, **options: Any) -> int:
    """Kill a run before a random thing it does to a file, again and again until it survives."""
    random, kills = np.random.default_rng(seed), 0
    while True:
        outcome = jobs(run, kill=int(random.integers(1, 80)), **options)
        assert outcome.warnings == []
        if outcome.code == 0:
            return kills
        assert outcome.code == -9, outcome.message
        kills += 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("options", [MIXED, PLAIN], ids=["mixed", "plain"])
def test_killed_again_and_again(
    jobs: Jobs,
    undisturbed: Undisturbed,
    tmp_path: Path,
    options: dict[str, Any],
    every: int,
    seed: int,
) -> None:
    kills = killed_until_done(jobs, tmp_path / "run", seed, every=every, **options)
    assert kills >= 2
    assert left_behind(tmp_path / "run") == undisturbed(**options)


@pytest.mark.parametrize(
    "moment",
    [
        "/run.json",  # before the first file has its name
        "/signature.json",
        "optimizer.safetensors",  # between two files of the first checkpoint
        "manifest.json",
        "step-000000001",  # all is written, only the name is missing
        "step-000000013",
        "os.rmdir",  # an old one is half removed
        "/best/model.safetensors",
        "/best/config.json",  # the weights have their name, their config not yet
        "open /metrics.csv a",
        f"step-{STEPS:09}",
        "/summary.json",
    ],
)
def test_killed_twice_in_a_row_at_a_chosen_moment(
    jobs: Jobs, undisturbed: Undisturbed, tmp_path: Path, moment: str
) -> None:
    run = tmp_path / "run"
    assert [jobs(run, kill=moment, **PLAIN).code for _ in range(2)] == [-9, -9]
    outcome = jobs(run, **PLAIN)
    assert (outcome.code, outcome.warnings) == (0, [])
    assert left_behind(run) == undisturbed(**PLAIN)


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_killed_again_and_again(
    jobs: Jobs, undisturbed: Undisturbed, tmp_path: Path, processes: int
) -> None:
    options = {**MIXED, "processes": processes}
    kills = killed_until_done(jobs, tmp_path / "run", seed=1, **options)
    assert kills >= 2
    assert left_behind(tmp_path / "run") == undisturbed(**options)


def test_bad_batches_are_skipped_alike_after_a_kill(
    jobs: Jobs, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    options = {
        "data": {"bad": [3, 17]},
        "model": {"norm": "batch", "dropout": 0.2},
        "training": {"skip_bad_batches": True, "ema": 0.9},
    }
    killed_until_done(jobs, tmp_path / "run", 0, every=2, **options)
    left = left_behind(tmp_path / "run")
    assert left == undisturbed(**options)
    assert 3 <= left["summary"]["skipped"] <= 6  # one or two batches of each epoch
    assert b"nan" not in left["metrics.csv"]


# -- asked to stop ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("processes", [1, 2])
def test_asked_to_stop_it_saves_and_says_how_to_go_on(
    jobs: Jobs, undisturbed: Undisturbed, tmp_path: Path, name: str, processes: int
) -> None:
    run, options = tmp_path / "run", {**PLAIN, "processes": processes}
    outcomes = jobs.all(
        run, signals=[(9, name)], victim=processes - 1, together=False, every=99, **options
    )
    for outcome in outcomes:  # of all processes, though only one was asked
        assert outcome.error == "Interrupted"
        assert "stopped after step 10 of 24. The checkpoint of step 10 is in" in outcome.message
        assert outcome.message.endswith("run the same command again to go on from there.")
    assert jobs(run, **options).code == 0
    assert left_behind(run) == undisturbed(**options)


def test_a_second_ctrl_c_ends_at_once(jobs: Jobs, tmp_path: Path) -> None:
    outcome = jobs(tmp_path, signals=[(3, "SIGINT"), (3, "SIGINT")], every=99, **PLAIN)
    assert (outcome.error, outcome.message) == ("KeyboardInterrupt", "")
    assert not (tmp_path / "checkpoints").exists()


def test_ctrl_c_in_the_last_step_is_no_interruption(jobs: Jobs, tmp_path: Path) -> None:
    assert jobs(tmp_path, signals=[(STEPS, "SIGINT")], **PLAIN).code == 0
    assert json.loads((tmp_path / "summary.json").read_text())["steps"] == STEPS


# -- damage and full disks -------------------------------------------------------------------------


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(
    jobs: Jobs, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert jobs(run, signals=[(14, "SIGKILL")], every=5, **PLAIN).code == -9
    os.truncate(run / "checkpoints/step-000000010/model.safetensors", 100)
    outcome = jobs(run, every=6, **PLAIN)
    assert outcome.code == 0
    (warning,) = outcome.warnings
    assert "step-000000010 is damaged (model.safetensors does not match its checksum)" in warning
    assert left_behind(run) == undisturbed(**PLAIN)


@pytest.mark.parametrize("size", [3000, 1500])  # the optimiser's state, or the weights, do not fit
def test_a_full_disk_stops_the_run_with_the_last_checkpoint_intact(
    jobs: Jobs, undisturbed: Undisturbed, tmp_path: Path, size: int
) -> None:
    run = tmp_path / "run"
    assert jobs(run, signals=[(5, "SIGKILL")], **PLAIN).code == -9
    before = {path.name for path in (run / "checkpoints").iterdir()}
    outcome = jobs(run, largest_file=size, **PLAIN)
    assert outcome.error == "OSError"
    assert "the checkpoint of step 6 could not be written (File too large)" in outcome.message
    assert "The checkpoint of step 5 is in" in outcome.message
    assert {path.name for path in (run / "checkpoints").iterdir()} == before
    outcome = jobs(run, **PLAIN)
    assert (outcome.code, outcome.warnings) == (0, [])
    assert left_behind(run) == undisturbed(**PLAIN)


def test_a_finished_run_is_only_read(jobs: Jobs, tmp_path: Path) -> None:
    assert jobs(tmp_path, **PLAIN).code == 0

    def times() -> dict[Path, int]:
        return {x: x.stat().st_mtime_ns for x in tmp_path.rglob("*") if x.name != ".lock"}

    before = times()
    outcome = jobs(tmp_path, **PLAIN)
    assert (outcome.code, times()) == (0, before)
