"""A grid on a cluster: scripts for Slurm, tasks of Ray."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from s4d_torch.data import DataFolder
from s4d_torch.paper.experiments.engines import Plan, run_one, slurm_script
from s4d_torch.paper.experiments.experiment import Experiment, read_result
from s4d_torch.paper.experiments.grid import run_grid
from s4d_torch.paper.experiments.watch import Watch
from tiny_experiments import EPOCHS, tiny


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Any]:
    return {"data": DataFolder(tmp_path / "data", download=False), "work": tmp_path / "work"}


# -- Slurm -----------------------------------------------------------------------------------------


def plan(experiments: Sequence[Experiment], tmp_path: Path, folders: dict[str, Any]) -> Plan:
    return Plan(tuple(experiments), tmp_path / "my results", watch=Watch(), workers=4, **folders)


def test_a_slurm_script_runs_one_experiment_of_the_manifest(
    tmp_path: Path, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    stub = tmp_path / "a python"
    stub.write_text(
        f'#!/bin/bash\nprintf "%s\\n" "$OMP_NUM_THREADS" "$@" > {shlex.quote(str(said))}\n'
    )
    stub.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stub))
    script = tmp_path / "grid.sh"
    script.write_text(slurm_script(plan([tiny(0), tiny(1)], tmp_path, folders)))
    text = script.read_text()
    assert "#SBATCH --array=0-1%4\n" in text
    assert "#SBATCH --requeue\n" in text
    subprocess.run(["bash", "-n", script], check=True)
    surroundings = {**os.environ, "SLURM_ARRAY_TASK_ID": "1", "SLURM_CPUS_PER_TASK": "2"}
    subprocess.run(["bash", script], check=True, env=surroundings)
    threads, *command, manifest, index = said.read_text().splitlines()
    assert threads == "2"
    assert command == ["-m", "s4d_torch", "paper", "run-one"]
    result = run_one(Path(manifest), int(index))
    assert result.key == tiny(1).key
    assert result.error is None
    assert read_result(tmp_path / "my results", result.key) == result
    assert read_result(tmp_path / "my results", tiny(0).key) is None


def test_a_manifest_is_checked(tmp_path: Path, folders: dict[str, Any]) -> None:
    slurm_script(plan([tiny(0)], tmp_path, folders))
    (manifest,) = folders["work"].glob("grid-*.json")
    with pytest.raises(ValueError, match=r"index must be 0 to 0 in .*, got 1"):
        run_one(manifest, 1)
    manifest.write_text(json.dumps({"experiments": []}))
    with pytest.raises(ValueError, match="is no manifest of a grid"):
        run_one(manifest, 0)


def test_the_slurm_engine_prints_and_runs_nothing(
    tmp_path: Path, folders: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_grid([tiny(0)], tmp_path / "results", **folders, engine="slurm") == []
    assert capsys.readouterr().out.startswith("#!/bin/bash\n")


# -- Ray -------------------------------------------------------------------------------------------


LONG = 2 * EPOCHS  # so that a busy machine still finds the process before it is done


def holders(path: Path) -> list[int]:
    """Processes that have a file open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd) == str(path) for fd in (process / "fd").iterdir()):
                found.append(int(process.name))
        except OSError:
            continue  # it is gone, or somebody else's
    return found


class Assassin(threading.Thread):
    """Kills the process of an experiment after its first checkpoint, and watches what becomes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.killed, self.rows = folder, 0, list[int]()
        self.over = threading.Event()  # the grid has ended: there is nothing left to see

    def run(self) -> None:
        while not self.killed and not self.over.wait(0.005):
            if (self.folder / "best").is_dir():
                for process in holders(self.folder / ".lock"):
                    os.kill(process, signal.SIGKILL)
                    self.killed += 1
        while not self.over.wait(0.005):
            with suppress(OSError):
                self.rows.append((self.folder / "metrics.csv").read_text().count("\n"))


# In a process of its own: Ray leaves threads and processes behind.
DRIVER = """
import json, sys
from pathlib import Path
from rich.console import Console
from s4d_torch.data import DataFolder
from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.paper.experiments.grid import run_grid
from s4d_torch.paper.experiments.watch import grid_view

folder = Path(sys.argv[1])
grid = [Experiment.from_json(each) for each in json.loads((folder / "grid.json").read_text())]
run_grid(
    grid,
    folder / "results",
    data=DataFolder(folder / "data", download=False),
    work=folder / "work",
    engine="ray",
    workers=2,
    watch=grid_view(Console(width=200)),
)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes through /proc")
def test_ray_starts_a_killed_task_again_from_its_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    token = tmp_path / "token"  # of this cluster only; by default Ray keeps one at home
    token.write_text(secrets.token_hex(32))
    surroundings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    unlucky, broken = tiny(0, epochs=LONG), tiny(architecture="perceptron")
    grid = [unlucky, broken, tiny(1)]
    (tmp_path / "grid.json").write_text(json.dumps([each.to_json() for each in grid]))
    assassin = Assassin(tmp_path / "work" / unlucky.key)
    assassin.start()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, tmp_path],
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
    )
    assassin.over.set()
    assassin.join()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("2 done, 0 running, 1 failed, 0 left")
    assert assassin.killed == 1
    found = [read_result(tmp_path / "results", each.key) for each in grid]
    assert [result is not None and result.error is None for result in found] == [True, False, True]
    assert found[0] is not None
    assert len(found[0].rows) == LONG
    assert assassin.rows == sorted(assassin.rows)  # begun anew, it would have lost its rows


def test_without_ray_the_extra_is_named(
    tmp_path: Path, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 's4d-torch\[ray\]'"):
        run_grid([tiny()], tmp_path, **folders, engine="ray")
