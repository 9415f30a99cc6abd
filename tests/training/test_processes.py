"""Several processes train as one does, and none waits for the dead."""

from __future__ import annotations

import csv
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from s4d_torch.training.distributed import Processes
from s4d_torch.training.saved.run_folder import RunFolder
from training_job import Job, Jobs

NORMS = ("layer", "batch")


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    jobs = Jobs()
    yield jobs
    jobs.close()


def options(**changes: Any) -> dict[str, Any]:
    """A run in double precision, so that what is the same is so to many digits."""
    training = {"precision": "float64", "batch_size": 6, **changes.pop("training", {})}
    return {"training": training, **changes}


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def curve(run: Path) -> list[float]:
    return [float(value) for row in rows(run) for value in row.values()]


def last_weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(max((run / "checkpoints").glob("step-*")) / "model.safetensors")


def compare(jobs: Jobs, folder: Path, processes: int = 2, **job: Any) -> None:
    """One process and several have the same curves and weights, to rounding."""
    shard = job.pop("shard", False)
    alone = jobs(folder / "alone", **job)
    assert (alone.code, alone.message) == (0, "")
    outcomes = jobs.all(folder / "many", processes=processes, shard=shard, **job)
    for outcome in outcomes:
        assert (outcome.code, outcome.message, outcome.warnings) == (0, "", [])
    assert all(not outcome.events for outcome in outcomes[1:])  # only the first one writes
    np.testing.assert_allclose(curve(folder / "many"), curve(folder / "alone"), rtol=1e-7)
    one, other = last_weights(folder / "alone"), last_weights(folder / "many")
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(other[name], one[name], rtol=1e-7, atol=1e-9)


# -- what belongs to whom --------------------------------------------------------------------------


@given(total=st.integers(0, 30), count=st.integers(1, 5))
def test_the_shares_are_all_there_is(total: int, count: int) -> None:
    shares = [Processes(rank, count).share(np.arange(total)) for rank in range(count)]
    assert sorted(np.concatenate(shares).tolist()) == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


# -- the same curves -------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("train", [40, 41, 37], ids=["even", "odd", "one left for two"])
def test_two_processes_train_as_one(jobs: Jobs, tmp_path: Path, norm: str, train: int) -> None:
    compare(jobs, tmp_path, model={"norm": norm}, data={"sizes": (train, 11, 1)}, **options())


def test_three_processes_train_as_one(jobs: Jobs, tmp_path: Path) -> None:
    compare(jobs, tmp_path, 3, model={"norm": "batch"}, data={"sizes": (37, 11, 2)}, **options())


@pytest.mark.parametrize("norm", NORMS)
def test_ragged_pairs_and_everything_else(jobs: Jobs, tmp_path: Path, norm: str) -> None:
    compare(
        jobs,
        tmp_path,
        model={"norm": norm, "prenorm": False},
        data={"sizes": (39, 11, 5), "ragged": True, "towers": 2, "tokens": True},
        optimizer={"accumulate": 2, "clip": 0.1},
        **options(training={"ema": 0.9, "label_smoothing": 0.1}),
    )


def test_single_precision_with_shares_of_unlike_size(jobs: Jobs, tmp_path: Path) -> None:
    """Four sequences and three take different ways through the compiled code."""
    job = {"model": {"norm": "batch"}, "training": {"batch_size": 7}}
    losses = []
    for processes in (1, 2):
        run = tmp_path / str(processes)
        outcome = jobs(run, processes=processes, **job)
        assert (outcome.code, outcome.message) == (0, "")
        losses.append([float(row["train_loss"]) for row in rows(run)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


# -- shards ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_shards_train_as_one(jobs: Jobs, tmp_path: Path, norm: str) -> None:
    compare(
        jobs,
        tmp_path,
        model={"norm": norm},
        data={"sizes": (37, 11, 1)},
        optimizer={"accumulate": 2, "clip": 0.1},
        shard=True,
        **options(training={"ema": 0.9, "epochs": 2}),
    )


def test_shards_go_on_bit_by_bit(jobs: Jobs, tmp_path: Path) -> None:
    job = {"model": {"dropout": 0.2, "norm": "batch"}, "processes": 2, "shard": True}
    assert jobs(tmp_path / "whole", **job).code == 0
    assert jobs(tmp_path / "run", signals=[(11, "SIGKILL")], **job).code == -9
    assert jobs(tmp_path / "run", **job).code == 0
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")
    one, other = last_weights(tmp_path / "run"), last_weights(tmp_path / "whole")
    assert all(torch.equal(one[name], other[name]) for name in other)


# -- trouble ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("norm", NORMS)
def test_who_survives_says_so_and_how_to_go_on(
    jobs: Jobs, tmp_path: Path, norm: str, victim: int
) -> None:
    outcomes = jobs.all(
        tmp_path,
        model={"norm": norm},
        processes=2,
        victim=victim,
        signals=[(7, "SIGKILL")],
        together=False,
    )
    assert outcomes[victim].code == -9
    survivor = outcomes[1 - victim]
    assert survivor.error == "LostProcessError"
    assert survivor.seconds < 30
    assert re.fullmatch(
        r"another process of this run has ended or cannot be reached\. The checkpoint of step "
        rf"\d is in {tmp_path}; run the same command again to go on from there\.",
        survivor.message,
    )


def test_a_full_disk_of_the_first_ends_the_others(jobs: Jobs, tmp_path: Path) -> None:
    first, second = jobs.all(tmp_path, processes=2, largest_file=1500, together=False)
    assert "could not be written" in first.message
    assert second.error == "LostProcessError"
    assert "There is no checkpoint yet" in second.message


def test_a_folder_that_is_refused_is_refused_to_all(jobs: Jobs, tmp_path: Path) -> None:
    assert jobs(tmp_path, training={"epochs": 4}).code == 0
    for outcome in jobs.all(tmp_path, processes=2):
        assert outcome.error == "OtherConfigError"
        assert "training.epochs: 4 -> 3" in outcome.message


def test_epochs_are_raised_in_all_processes(jobs: Jobs, tmp_path: Path) -> None:
    for epochs in (1, 3):
        outcomes = jobs.all(tmp_path, processes=2, training={"epochs": epochs})
        assert [outcome.code for outcome in outcomes] == [0, 0]
    assert RunFolder(tmp_path).rows()[-1]["epoch"] == "3"


def test_bad_numbers_are_traced_to_the_process_that_saw_them(jobs: Jobs, tmp_path: Path) -> None:
    for bad in ([3], [4], [5]):  # whichever process each of them falls to
        for outcome in jobs.all(tmp_path / str(bad), processes=2, data={"bad": bad}):
            assert outcome.error == "DivergenceError"
            assert "the first that is not finite is the output of encoder." in outcome.message


# A thread of gloo that has yet to let go of a tensor comes to it when Python ends: it has the same
# core as the main thread, which is always served first, until it sleeps.
LATE = """
import os, sys, time
from pathlib import Path
import torch
from torch import distributed
from s4d_torch.training.distributed import process_group

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(0.3)

last, rank = Last(), int(os.environ["RANK"])
core = {sorted(os.sched_getaffinity(0))[rank - 2]}
with process_group(torch.device("cpu")) as processes:
    for thread in Path("/proc/self/task").iterdir():
        if (thread / "comm").read_text().strip() == "pt_gloo_runloop":
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(int(thread.name), core)
    os.sched_setaffinity(0, core)
    for _ in range(5):
        processes.sum(torch.ones(10))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's schedulers")
def test_no_thread_is_left_behind_when_python_ends() -> None:
    """Without waiting for them, six of eight such pairs of processes aborted."""
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        pair = [
            subprocess.Popen(
                [sys.executable, "-c", LATE],
                env={**os.environ, **place, "RANK": str(rank)},
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        said = [process.communicate(timeout=60)[1] for process in pair]
        assert [process.returncode for process in pair] == [0, 0], said


# -- torchrun --------------------------------------------------------------------------------------


def torchrun(run: Path, **job: Any) -> tuple[int, str]:
    """The exit code of a job of two processes, and all that is said on the way."""
    script = str(Path(__file__).parents[1] / "training_job.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launcher, "--nproc-per-node=2", script, json.dumps(asdict(Job(str(run), **job)))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.parametrize("shard", [False, True], ids=["copies", "shards"])
def test_torchrun_killed_and_run_again(jobs: Jobs, tmp_path: Path, shard: bool) -> None:
    """One worker dies, which ends the other; then they are left in peace."""
    run = tmp_path / "run"
    job = {"model": {"dropout": 0.2, "norm": "batch"}, "processes": 2, "shard": shard}
    code, told = torchrun(run, victim=1, signals=[(11, "SIGKILL")], **job)
    assert code == 1
    assert "LostProcessError: another process of this run has ended" in told
    assert "run the same command again to go on from there." in told
    assert torchrun(run, **job)[0] == 0
    assert jobs(tmp_path / "whole", **job).code == 0
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")
    one, other = last_weights(tmp_path / "run"), last_weights(tmp_path / "whole")
    assert all(torch.equal(one[name], other[name]) for name in other)
