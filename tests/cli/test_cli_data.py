"""Own data through the commands: edited files, the summary of the data, groups, few cases."""

import json
import re
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


# -- what data holds -------------------------------------------------------------------------------


def test_training_begins_with_a_summary_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(Path("d.csv"), columns=("answer", "flat"))
    assert main(["train", "d.csv", *TINY, "--out", "run"]) == 0
    shown = capsys.readouterr().out
    assert "\n       classes fast 20, slow 20\n" in shown
    assert "\nwarning: the feature " in shown
    assert " stays the same all through a case and tells its target" in shown
    assert " never changes and tells nothing\n" in shown
    assert shown.index("warning:") < shown.index("epoch 1/1")
    assert main(["train", "d.csv", *TINY, "--out", "other", "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert len(quiet.out.splitlines()) == 1
    assert "warning" not in quiet.err
    assert main(["train", "d.csv", *TINY, "--out", "third", "--json"]) == 0
    shown = capsys.readouterr()
    assert [each["event"] for each in objects(shown.out)] == ["epoch", "end"]
    assert "s4d: warning: the feature " in shown.err


@pytest.mark.parametrize("command", [["info", "d.csv"], ["train", "d.csv", *TINY, "--dry-run"]])
def test_info_and_a_dry_run_show_all_of_it(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(Path("d.csv"), columns=("answer",))
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.count("warning: ") == 1
    for pattern in (r"train +28 +12 +12 +0\b", r"fast +14 +2 +4\b", "same all through each case"):
        assert re.search(pattern, shown)
    assert main([*command, "--json", "--data.values", "x"]) == 0
    (found,) = objects(capsys.readouterr().out)
    assert found["summary"]["splits"]["test"]["classes"] == {"fast": 4, "slow": 4}
    assert len(found["summary"]["channels"]) == 1
    assert found["summary"]["warnings"] == []
    assert not Path("runs").exists()


def test_info_of_tasks_and_of_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "digits"]) == 0
    assert "1,258" in capsys.readouterr().out
    assert main(["info", "nowhere"]) == 1
    assert "nowhere holds no run" in capsys.readouterr().err
    assert main(["info", "pathfinder"]) == 1
    assert "is made first" in capsys.readouterr().err
    assert main(["info", "digits", "--plot", "a.png"]) == 2
    assert "this is data" in capsys.readouterr().err


# -- few cases, and rare ones ----------------------------------------------------------------------


def test_scores_of_few_cases_have_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(Path("d.csv"))
    assert main(["train", "d.csv", *TINY, "--out", "run", "--quiet"]) == 0
    pattern = r"accuracy +\d+\.\d\d% \(\d+\.\d to \d+\.\d on 8 cases\)"
    assert re.search(pattern, capsys.readouterr().out)
    summary = json.loads(Path("run/summary.json").read_text())
    low, high = summary["test_intervals"]["accuracy"]
    assert low <= summary["test"]["accuracy"] <= high
    assert main(["info", "run"]) == 0
    assert re.search(pattern, capsys.readouterr().out)
    assert main(["evaluate", "run", "--json"]) == 0
    (found,) = objects(capsys.readouterr().out)
    assert found["intervals"]["accuracy"] == pytest.approx([low, high])
    assert main(["evaluate", "run"]) == 0
    assert f"{100 * low:.1f} to {100 * high:.1f}" in capsys.readouterr().out


def test_class_weights_are_for_classes(capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    np.savez("n.npz", X=random.normal(size=(40, 9)), y=random.normal(size=40))
    assert main(["train", "n.npz", *TINY, "--training.class-weight", "balanced"]) == 2
    assert "is for classes, this is a regression; leave it out" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_groups_stay_together_from_training_to_prediction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_table(Path("d.csv"), columns=("speaker",))
    assert main(["train", "d.csv", *TINY, "--out", "run", "--data.groups", "speaker"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"groups \d+ in train, \d+ in validation, \d+ in test\n", shown)
    assert "1 feature" in shown
    assert main(["evaluate", "run", "--json"]) == 0
    assert "data_changes" not in objects(capsys.readouterr().out)[0]
    assert main(["predict", "run", "d.csv", "--json"]) == 0  # with or without their column
    capsys.readouterr()
    write_table(Path("new.csv"))
    assert main(["predict", "run", "new.csv", "--json"]) == 0
    write_table(Path("few.csv"), columns=("machine",))
    assert main(["train", "few.csv", *TINY, "--data.groups", "machine"]) == 1
    assert "2 groups (0, 1) are too few for 3 splits that share none" in capsys.readouterr().err
