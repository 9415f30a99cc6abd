"""Runs one can live with: own data, seeds, replays, `s4d runs`, `s4d compare`, and what is said."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from s4d_torch.cli import main
from s4d_torch.cli.train import Train
from s4d_torch.training import Run, default_config
from s4d_torch.training.reports.compare import seed_spread
from s4d_torch.training.reports.intervals import wilson
from s4d_torch.training.run import default_folder
from s4d_torch.training.saved.listing import list_runs

SMALL = ("--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1", "--threads", "1")


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a pipe, in a folder of its own, without the user's data."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("S4D_TORCH_DATA", str(tmp_path / "data"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def waves() -> Path:
    """Sixty cases of two classes in a file of one's own."""
    random, label = np.random.default_rng(0), np.arange(60) % 2
    speed = np.where(label, 0.5, 0.2)[:, None]
    X = np.sin(np.arange(40) * speed + random.uniform(0, 6, (60, 1)))
    np.savez("waves.npz", X=X, y=np.where(label, "fast", "slow"))
    return Path("waves.npz")


def train(*arguments: str) -> int:
    return main(["train", *arguments[:1], *SMALL, *arguments[1:]])


# -- own data --------------------------------------------------------------------------------------


def test_own_data_learns_by_steps_and_says_what_to_pass(
    waves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (str(waves), "--training.steps", "50")
    assert train(*command) == 0
    shown = capsys.readouterr().out
    # 42 cases in batches of 32 are 2 steps
    assert "epochs 25 (50 steps; --epochs changes it)" in shown
    assert "to stream the model, pass --causal" in shown
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"waves-[0-9a-f]{8}", folder.name)
    assert Run.load(folder).config.training.epochs == 25
    assert train(*command) == 0
    assert f"the run in {folder} is finished" in capsys.readouterr().out
    assert [folder] == list(Path("runs").iterdir())
    assert train(*command, "--dry-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["epochs"], found["steps"]) == (25, 50)


def test_the_defaults_of_own_data_are_steps_and_of_tasks_what_they_were(waves: Path) -> None:
    for name in ("arrays", "table", "ucr", "audio-folder"):
        given = {} if name == "ucr" else {"path": waves}
        assert default_config(name, **given).training.epochs == "auto"
    assert default_config("digits").training.epochs == 20
    assert default_folder(default_config("digits")).name.startswith("digits-")
    series = default_config("ucr", path="there/Coffee_TRAIN.ts")
    assert default_folder(series).name.startswith("Coffee-")
    spaces = default_config("arrays", path=Path("my data (2).npz"))
    assert default_folder(spaces).name.startswith("my-data-2-")


def test_causal_is_the_plain_word(waves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, long = (
        Train.parse([str(waves), flag]).config for flag in ("--causal", "--method.no-bidirectional")
    )
    assert plain == long
    assert Train.parse(["--causal", str(waves)]).config == plain
    assert train(str(waves), "--causal", "--epochs", "1", "--out", "ahead") == 0
    assert "looks both ways" not in capsys.readouterr().out
    assert not Run.load("ahead").config.method.bidirectional


def test_what_needs_a_causal_model_names_the_word(
    waves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(str(waves), "--epochs", "1", "--quiet", "--out", "both") == 0
    assert main(["stream", "both", "nothing.csv"]) == 1
    assert "train one with --causal" in capsys.readouterr().err
    pytest.importorskip("onnxruntime")
    assert main(["export", "both"]) == 0
    shown = capsys.readouterr()
    assert "'s4d train --causal' makes a model that has one" in shown.out
    assert "export: writing sequence.onnx" in shown.err
    assert "export: checking sequence.onnx against the model" in shown.err


def test_the_command_says_that_the_loss_still_falls(
    waves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ("--out", "run", "--lr", "0.1")
    assert train(str(waves), "--epochs", "8", *out) == 0
    said = re.search(r"the same command with --out run --epochs (\d+)", capsys.readouterr().out)
    assert said is not None
    assert train(str(waves), "--epochs", said[1], *out) == 0
    shown = capsys.readouterr().out
    assert "going on after step 16 of 32" in shown
    assert "epochs 8 -> 16: the learning rate goes on as in the cosine schedule" in shown


def test_what_a_divergence_suggests_can_be_done(
    waves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (str(waves), "--epochs", "2", "--quiet", "--optimizer.warmup", "0")
    assert train(*command, "--lr", "1e20") == 1
    said = re.search(r"--out (\S+) --optimizer.lr \S+ ", capsys.readouterr().err)
    assert said is not None
    assert train(*command, "--out", said[1], "--lr", "0.01") == 0
    assert Run.load(said[1]).summary["steps"] == 4


# -- seeds, replays and other runs' weights --------------------------------------------------------


def test_seeds_run_one_after_the_other(waves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = (str(waves), "--epochs", "2", "--seeds", "0", "1", "2", "--out", "all")
    assert train(*command, "--json") == 0
    *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (last["event"], last["seeds"]) == ("seeds", [0, 1, 2])
    runs = [Run.load(f"all/seed-{seed}") for seed in range(3)]
    assert last["test"] == [run.summary["test"]["accuracy"] for run in runs]
    assert last["mean"] == pytest.approx(np.mean(last["test"]))
    assert last["deviation"] == pytest.approx(np.std(last["test"], ddof=1))
    assert train(*command, "--quiet") == 0
    assert re.search(r"3 seeds: test accuracy \S+%, standard deviation", capsys.readouterr().out)
    assert train(*command[:3], "--seeds", "1", "1") == 2
    assert "different numbers" in capsys.readouterr().err
    assert np.isnan(seed_spread([runs[0].summary])["deviation"])


def test_seeds_without_a_folder_have_one_each(waves: Path) -> None:
    command = (str(waves), "--epochs", "1", "--quiet")
    assert train(*command, "--seeds", "0", "3") == 0
    folders = set(Path("runs").iterdir())
    assert len(folders) == 2
    assert train(*command, "--seed", "3") == 0  # the same run
    assert set(Path("runs").iterdir()) == folders


def test_a_run_is_trained_again_from_its_file(
    waves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(str(waves), "--training.steps", "42", "--quiet") == 0
    (first,) = Path("runs").iterdir()
    replay = ("train", "--replay", str(first / "run.json"), "--quiet", "--threads", "1")
    assert main([*replay]) == 0
    (second,) = set(Path("runs").iterdir()) - {first}
    assert second.name.endswith("-replay")
    weights = "best/model.safetensors"
    assert (first / weights).read_bytes() == (second / weights).read_bytes()
    assert Run.load(first).config == Run.load(second).config
    assert main([*replay, "--epochs", "1", "--out", "short"]) == 0
    assert Run.load("short").summary["steps"] == 2
    capsys.readouterr()
    assert main([*replay, "--preset", "small"]) == 2
    assert "leave --preset out" in capsys.readouterr().err


def test_fine_tuning_takes_the_model_of_the_run(
    waves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(str(waves), "--epochs", "2", "--quiet", "--out", "old", "--causal") == 0
    with np.load(waves) as stored:
        classes = np.where(stored["y"] == "fast", "quick", "slow")
        np.savez("other.npz", X=10 + stored["X"], y=classes)
    capsys.readouterr()
    assert main(["train", "other.npz", "--init-from", "old", "--epochs", "1", "--out", "new"]) == 0
    shown = capsys.readouterr().out
    assert f"begins with the weights of {Path('old').resolve()}" in shown
    assert "the head is new: classes fast, slow there, classes quick, slow here" in shown
    old, new = Run.load("old"), Run.load("new")
    assert (new.config.model, new.config.method) == (old.config.model, old.config.method)
    assert new.signature.input_shift == old.signature.input_shift
    # whoever evaluates it later has the same units
    assert new.evaluate().scores == pytest.approx(new.summary["test"])
    assert main(["evaluate", "new", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scores"] == pytest.approx(new.summary["test"])
    assert main(["train", "other.npz", "--init-from", "old", "--base", "dss"]) == 2
    shutil.rmtree("old")  # and needs neither that run nor the checkpoints
    shutil.rmtree("new/checkpoints")
    assert main(["evaluate", "new", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == found["scores"]


def test_a_model_of_the_package_can_be_the_start_of_another(
    waves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, from any folder; one's own run of that name comes first."""
    begin = ["train", str(waves), "--init-from", "mnist", "--epochs"]
    assert main([*begin, "1", "--out", "new"]) == 0
    assert "models/mnist; inputs keep the units" in capsys.readouterr().out.replace("\n", "")
    found = json.loads(Path("new/run.json").read_text())
    assert found["training"]["init_from"] == "mnist"  # no place on this machine
    assert Run.load("new").config.model.d_model == 48
    assert main([*begin, "2", "--out", "new"]) == 0  # goes on
    assert Run.load("new").summary["steps"] == 4
    assert train(str(waves), "--epochs", "1", "--quiet", "--out", "mnist", "--causal") == 0
    capsys.readouterr()
    assert main([*begin, "1", "--out", "other"]) == 0
    shown = capsys.readouterr().out.replace("\n", "")
    assert f"begins with the weights of {Path('mnist').resolve()}" in shown


# -- s4d runs, s4d compare -------------------------------------------------------------------------


@pytest.fixture
def some_runs(waves: Path) -> list[Path]:
    for seed in ("0", "1"):
        options = ("--epochs", "3", "--quiet", "--seed", seed, "--out", f"runs/{seed}")
        assert train(str(waves), *options) == 0
    shutil.copytree("runs/1", "runs/deep/begun")
    Path("runs/deep/begun/summary.json").unlink()
    for name, file, content in (
        ("torn", "run.json", "{"),
        ("list", "summary.json", "[1]"),
        ("odd", "summary.json", '{"test": 3}'),
        ("gone", "run.json", None),
        ("bytes", "metrics.csv", "\udcff"),
    ):
        shutil.copytree("runs/0", f"runs/{name}")
        path = Path(f"runs/{name}/{file}")
        path.unlink()
        if content is not None:
            path.write_text(content, errors="surrogateescape")
    Path("runs/nothing").mkdir()
    return [Path("runs/0"), Path("runs/1")]


@pytest.mark.usefixtures("some_runs")
def test_runs_are_listed_whatever_their_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--json"]) == 0
    listed = {
        each["folder"]: each for each in map(json.loads, capsys.readouterr().out.splitlines())
    }
    status = {Path(name).name: each["status"] for name, each in listed.items()}
    assert status == {
        **dict.fromkeys(("0", "1"), "finished"),
        "begun": "started",
        **dict.fromkeys(("torn", "list", "odd", "gone", "bytes"), "damaged"),
    }
    assert all(bool(each["problem"]) == (each["status"] == "damaged") for each in listed.values())
    first, summary = listed["runs/0"], Run.load("runs/0").summary
    for name in ("test", "metric", "best_epoch", "parameters", "seed"):
        assert first[name] == summary[name]
    assert (first["epochs"], first["epochs_done"]) == (3, 3)
    assert Path(first["data"]).name == "waves.npz"
    assert main(["runs"]) == 0
    shown = capsys.readouterr().out
    assert "8 runs in runs" in shown
    assert re.search(r"deep/begun +waves.npz +started +3 done of 3", shown)
    assert "runs/gone is damaged: no run.json" in shown
    Path("runs/run.json").write_text("{}")  # of another program
    assert main(["runs", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 9
    assert main(["runs", "elsewhere"]) == 1
    assert "there is no folder elsewhere" in capsys.readouterr().err


@pytest.mark.usefixtures("some_runs")
def test_runs_can_be_sorted(capsys: pytest.CaptureFixture[str]) -> None:
    by_score = [record.score for record in list_runs("runs", "test")]
    known = [score for score in by_score if score is not None]
    assert known == sorted(known, reverse=True)
    assert by_score[len(known) :] == [None] * (len(by_score) - len(known))
    folders = [str(record.folder) for record in list_runs("runs", "folder")]
    assert folders == sorted(folders)
    assert main(["runs", "--sort", "nonsense"]) == 2
    assert main(["runs", "--sort", "status"]) == 0
    capsys.readouterr()


def test_runs_are_compared(some_runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    names = [str(folder) for folder in some_runs]
    assert main(["compare", *names, "--out", "pictures/curves.svg"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"training.seed +0 +1", shown)
    assert "training.epochs" not in shown
    low, high = wilson(round(12 * Run.load(names[0]).summary["test"]["accuracy"]), 12)
    assert f"({low:.2%} to {high:.2%})" in shown
    drawn = Path("pictures/curves.svg").read_text()
    assert drawn.count("<svg") == 1
    assert main(["compare", *names, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["options"] == {"training.seed": [0, 1]}
    assert [run["folder"] for run in found["runs"]] == names
    for wrong, code, told in (
        ([names[0]], 2, "two or more"),
        ([names[0], "runs/torn"], 1, "runs/torn cannot be compared"),
        ([*names, "--out", "curves.txt"], 2, "ends in .svg"),
    ):
        assert main(["compare", *wrong]) == code
        assert told in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(
    some_runs: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["compare", *map(str, some_runs), "--out", "curves.svg"]) == 1
    assert "s4d-torch[plots]" in capsys.readouterr().err


def test_the_interval_of_an_accuracy() -> None:
    """Wilson's, to three digits from a table."""
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


def test_tensorboard_has_the_options_and_the_test_scores(waves: Path) -> None:
    board = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_multiplexer")
    assert train(str(waves), "--epochs", "2", "--quiet", "--out", "run") == 0
    events = board.EventMultiplexer().AddRunsFromDirectory("run")
    events.Reload()
    tags = events.Runs()["tensorboard"]["tensors"]
    assert {"_hparams_/session_start_info", "test/accuracy", "train/loss"} <= set(tags)
    held = events.SummaryMetadata("tensorboard", "_hparams_/session_start_info")
    content = held.plugin_data.content
    assert b"training.epochs" in content
    assert b"waves.npz" in content
