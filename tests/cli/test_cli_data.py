"""Own data through the commands: edited files, the summary of the data, groups, few cases."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s4d_torch.cli import main

TINY = (
    *("--model.d-model", "4", "--model.d-state", "4", "--model.n-layers", "1", "--epochs", "1"),
    *("--threads", "1", "--no-tensorboard"),
)


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("S4D_TORCH_DATA", str(tmp_path / "data"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


def write_table(file: Path, cases: int = 40, columns: Sequence[str] = (), **options: Any) -> None:
    """Noisy waves, slow or fast, with whatever other columns there are to be."""
    random = np.random.default_rng(options.get("seed", 0))
    lines = [",".join(["case", "time", "x", *columns, "label"])]
    for i in range(cases):
        fast = i % 2
        more = {"speaker": f"s{i // 4}", "answer": str(fast), "flat": "7", "machine": f"{i % 2}"}
        for t in range(12):
            x = np.sin(t * (0.3 + 0.6 * fast)) + 0.1 * random.normal()
            named = [more[name] for name in columns]
            lines.append(",".join([f"c{i}", str(t), f"{x:.4f}", *named, ("slow", "fast")[fast]]))
    file.write_text("\n".join(lines) + "\n")


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# -- edited data -----------------------------------------------------------------------------------


def test_a_finished_run_on_edited_data_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("d.csv")
    write_table(file)
    assert main(["train", "d.csv", *TINY]) == 0
    assert main(["train", "d.csv", *TINY]) == 0
    assert "is finished; these are its scores" in capsys.readouterr().out
    (folder,) = Path("runs").iterdir()
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    write_table(file, cases=20)
    assert main(["train", "d.csv", *TINY]) == 1
    shown = capsys.readouterr()
    assert "is finished" not in shown.out
    assert f"the data has changed since the run in {folder} began:\n" in shown.err
    assert "\n  train had 28 cases, now 14\n" in shown.err
    assert "name another folder (--out), or remove this one" in shown.err
    write_table(file, seed=1)  # as many cases, other values
    assert main(["train", "d.csv", *TINY]) == 1
    assert "\n  values of train differ" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert main(["train", "d.csv", *TINY, "--out", "other", "--quiet"]) == 0
    write_table(file)
    assert main(["train", "d.csv", *TINY]) == 0  # put back


def test_evaluation_says_that_the_data_was_edited(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(Path("d.csv"))
    assert main(["train", "d.csv", *TINY, "--quiet", "--out", "run"]) == 0
    assert main(["evaluate", "run"]) == 0
    assert "not what the run was trained on" not in capsys.readouterr().err
    write_table(Path("d.csv"), cases=20)
    assert main(["evaluate", "run", "--json"]) == 0
    shown = capsys.readouterr()
    assert "the data is not what the run was trained on: train had 28 cases, now 14" in shown.err
    assert "may be cases the run has learned from" in shown.err
    assert objects(shown.out)[0]["data_changes"][0] == "train had 28 cases, now 14"
    write_table(Path("new.csv"), cases=20)
    for other in (["--task", "new.csv"], ["--data.split-seed", "3"]):  # meant to be other data
        assert main(["evaluate", "run", *other]) == 0
        assert "not what the run" not in capsys.readouterr().err
