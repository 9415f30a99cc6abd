"""`s4d train` and `s4d tasks`: flags, defaults, exit codes, and what a run prints and leaves."""

import io
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from s4d_torch import METHODS, Method
from s4d_torch.cli import main
from s4d_torch.cli.common import display
from s4d_torch.cli.common.parsing import explanations, take_positional, value_of
from s4d_torch.cli.train import SHORT, Train
from s4d_torch.data import TASKS
from s4d_torch.training import (
    METRICS,
    Metric,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    default_config,
)
from s4d_torch.training.reports.reporter import Progress

PARTS = {
    "model": ModelConfig,
    "method": Method,
    "optimizer": OptimizerConfig,
    "training": TrainingConfig,
}
TINY = (
    *("train", "digits", "--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1"),
    *("--training.train-size", "160", "--training.eval-size", "60", "--threads", "1"),
)


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a pipe, in an empty folder, without the user's own data."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("S4D_TORCH_DATA", str(tmp_path / "data"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def squeezed(text: str) -> str:
    """Text without the boxes and breaks that a help page puts into it."""
    return re.sub(r"[\s│|]+", "", text)


# ---- help and flags ---------------------------------------------------------------------------


def test_every_setting_is_explained() -> None:
    kinds = [*PARTS.values(), Train, *(task.options for task in TASKS.values())]
    missing = [
        f"{kind.__name__}.{field.name}"
        for kind in kinds
        for field in fields(kind)
        if not explanations(kind).get(field.name) and (kind, field.name) != (Train, "config")
    ]
    assert missing == []


@pytest.mark.parametrize("task", ["digits", "sc35"])
def test_help_of_a_task_shows_every_flag_with_its_sentence_and_default(
    task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", task, "--help"]) == 0
    shown = squeezed(capsys.readouterr().out)
    config = default_config(task)
    for part, kind in {**PARTS, "data": TASKS[task].options}.items():
        said = explanations(kind)
        for field in fields(kind):
            flag = f"--{part}.{field.name.replace('_', '-')}"
            assert flag in shown
            assert squeezed(said[field.name]) in shown
            value = getattr(getattr(config, part), field.name)
            default = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            assert squeezed(f"{said[field.name]} (default: {default})") in shown
    assert all(squeezed(explanations(Train)[own]) in shown for own in ("preset", "base", "dry_run"))


def test_help_without_a_task_lists_the_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    shown = capsys.readouterr().out
    for name, task in TASKS.items():
        assert re.search(rf"^  {name} +{re.escape(task.summary)}$", shown, re.MULTILINE)
    assert "--preset {auto,paper,small}" in shown


def test_defaults_follow_task_preset_and_base() -> None:
    assert Train.parse(["sc35"]).config == default_config("sc35", "paper")
    assert Train.parse(["--preset", "small", "sc35"]).config == default_config("sc35", "small")
    assert Train.parse(["sc35", "--preset=small"]).config == default_config("sc35", "small")
    assert Train.parse(["digits"]).config == default_config("digits", "small")
    chosen = Train.parse(["digits", "--base", "dss", "--method.no-train-A"]).config
    assert chosen is not None
    own = default_config("digits").method
    kept = {name: getattr(own, name) for name in ("dt_min", "dt_max", "bidirectional")}
    assert chosen.method == METHODS["dss"].replace(**kept, train_A=False)


def test_a_method_by_its_name() -> None:
    """With the task's direction, and its step sizes unless the method has one of its own."""
    usual = default_config("digits").method
    for name in METHODS:
        parsed = Train.parse(["digits", "--method", name]).config
        assert parsed == Train.parse(["digits", f"--base={name}"]).config
        assert parsed is not None
        steps = METHODS[name].with_steps(usual.dt_min, usual.dt_max)
        assert parsed.method == steps.replace(bidirectional=usual.bidirectional)
    lru = Train.parse(["digits", "--method", "lru", "--method.imag-scale", "0.1"]).config
    assert lru is not None
    assert (lru.method.dt_min, lru.method.dt_max, lru.method.imag_scale) == (1.0, 1.0, 0.1)


def test_flags_reach_their_settings() -> None:
    given = (
        "sc35 --data.words up down --method.init inv --method.no-bidirectional --model.d_state 4"
    )
    config = Train.parse([*given.split(), "--optimizer.milestones", "0.5", "0.7"]).config
    assert config is not None
    assert config.data.words == ("up", "down")
    assert (config.method.init, config.method.bidirectional) == ("inv", False)
    assert config.model.d_state == 4
    assert config.optimizer.milestones == (0.5, 0.7)
    names = ("--init-from", "--method")
    numbers = {flag: full for flag, full in SHORT.items() if flag not in names}
    short = [argument for flag in numbers for argument in (flag, "3")]
    long = [argument for flag in numbers.values() for argument in (flag, "3")]
    assert Train.parse(["digits", *short]).config == Train.parse(["digits", *long]).config
    lr = Train.parse(["digits", "--lr=0.5"]).config
    assert lr is not None
    assert lr.optimizer.lr == 0.5


def test_the_task_is_found_among_options() -> None:
    before = ["--quiet", "--out", "there", "--threads=2", "digits", "--json"]
    assert take_positional(before, Train) == ("digits", [*before[:4], "--json"])
    assert take_positional(["--quiet", "--out", "there"], Train)[0] is None
    assert value_of("--preset", ["--preset", "a", "--preset=b"]) == "b"
    assert value_of("--preset", ["--preset"]) is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "TASK"),
        ("digts", "did you mean 'digits'?"),
        ("arrays", "needs path"),
        ("--model.d-state 4 digits", "name the TASK before --model.d-state"),
        ("digits --model.d-stat 4", "--model.d-state INT"),
        ("digits --epoch 4", "--training.epochs INT"),
        ("digits --preset papr", "'auto', 'paper', 'small'"),
        ("digits --preset paper", "the paper has no settings for 'digits'"),
        ("digits --base s5", "'s4d', 's4', 'dss'"),
        ("digits --base s4 --method.init lin", "s4d: --method.init: unknown initialization"),
        ("digits --optimizer.warmup 2", "s4d: --optimizer.warmup: warmup must be in [0, 1)"),
        ("digits --optimizer.schedule cosin", "s4d: --optimizer.schedule: unknown schedule"),
        ("digits --training.epochs 0", "s4d: --training.epochs: epochs must be at least 1, got 0"),
        ("digits --training.epochs x", "--training.epochs"),
        ("digits --seed -1", "s4d: --training.seed: seed must be a number from 0 to"),
        (f"digits --seed {2**64}", "s4d: --training.seed: seed must be a number from 0 to"),
        ("digits --lr inf", "s4d: --optimizer.lr: lr must be finite, got inf"),
        ("digits --optimizer.ssm-lr -1", "s4d: --optimizer.ssm-lr: ssm_lr must be at least 0"),
        ("digits --optimizer.clip nan", "s4d: --optimizer.clip: clip must be positive, got nan"),
        ("digits --optimizer.milestones 5", "s4d: --optimizer.milestones: milestones are parts"),
        ("digits --training.metric rmse", "s4d: --training.metric: metric 'rmse' is for"),
        ("digits --model.d-state 3", "s4d: --model.d-state: d_state counts conjugate pairs"),
        ("digits --model.n-layers 0", "s4d: --model.n-layers: n_layers must be"),
        ("digits --model.activation gleu", "--model.activation: unknown activation 'gleu'; did"),
        ("digits --method.dt-min 1", "--method.dt-min: need 0 < dt_min <= dt_max, got dt_min=1.0"),
        ("sc35 --data.words up dwn", "s4d: --data.words: unknown word 'dwn'; did you mean 'down'?"),
        ("digits --threads 0", "--threads must be at least 1, got 0"),
        ("digits --checkpoint-minutes -1", "--checkpoint-minutes"),
        ("digits --device warp", "--device warp:"),
        ("digits --mirror there", "--mirror: mirror must be an address"),
        ("digits --quiet --json", "--quiet and --json"),
    ],
)
def test_misuse_ends_with_2_and_names_the_flag(
    arguments: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments.split()]) == 2
    shown = capsys.readouterr()
    assert squeezed(told) in squeezed(shown.err)
    assert shown.out == ""
    assert "Traceback" not in shown.err
    if told.startswith("s4d: --"):
        assert shown.err.count("\n") == 1
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("retrieval --offline", "downloads/lra_release.gz"),
        ("my/data.csv", "there is no file or folder my/data.csv"),
        ("digits --out file", "is a file; name a folder"),
        ("digits --out full", "is not empty and holds no run"),
    ],
)
def test_what_cannot_be_done_ends_with_1(
    arguments: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    Path("full").mkdir()
    Path("full", "precious").touch()
    assert main(["train", *arguments.split()]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("s4d: ")
    assert told in shown
    assert "Traceback" not in shown


def test_only_the_first_of_many_processes_complains(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    for misuse in ("digts", "digits --model.d-stat 4", "digits --optimizer.warmup 2"):
        assert main(["train", *misuse.split()]) == 2
    assert capsys.readouterr() == ("", "")
    assert main(["train", "retrieval", "--offline"]) == 1
    assert capsys.readouterr().err.startswith("s4d, process 1: ")


def test_too_little_memory_says_what_helps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...\nmore")

    monkeypatch.setattr("s4d_torch.cli.train.train_on", fail)
    assert main([*TINY, "--quiet"]) == 1
    shown = capsys.readouterr().err
    assert "--training.batch-size" in shown
    assert shown.count("\n") == 1


# ---- runs -------------------------------------------------------------------------------------


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_in_json_can_be_read_again_and_refuses_another_config(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [*TINY, "--epochs", "2", "--json", "--out", "run"]
    assert main(command) == 0
    first, second, end = objects(capsys.readouterr().out)
    assert [first["event"], second["event"], end["event"]] == ["epoch", "epoch", "end"]
    assert (first["epoch"], second["epoch"], end["folder"]) == (1, 2, "run")
    assert set(end["test"]) == {"accuracy", "f1", "auroc"}
    assert main(command) == 0
    assert objects(capsys.readouterr().out) == [end]
    assert main([*TINY, "--epochs", "1", "--json", "--out", "run"]) == 1
    shown = capsys.readouterr()
    assert "training.epochs: 2 -> 1 (epochs can be raised, not lowered)" in shown.err
    assert shown.out == ""


def test_ctrl_c_saves_and_the_same_command_goes_on_bit_by_bit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: object, row: Mapping[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    command = [*TINY, "--epochs", "3", "--json", "--out"]
    with monkeypatch.context() as patch:
        patch.setattr(display.Json, "epoch", stop)
        assert main([*command, "broken"]) == 130
    shown = capsys.readouterr()
    assert "run the same command again" in shown.err
    assert "Traceback" not in shown.err
    assert main([*command, "broken"]) == 0
    shown = capsys.readouterr()
    assert "going on after step" in shown.err
    assert [each.get("epoch") for each in objects(shown.out)] == [2, 3, None]
    assert main([*command, "whole"]) == 0
    assert Path("broken/metrics.csv").read_bytes() == Path("whole/metrics.csv").read_bytes()
    weights = "best/model.safetensors"
    assert Path("broken", weights).read_bytes() == Path("whole", weights).read_bytes()


def test_divergence_ends_with_1_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--lr", "1e12", "--epochs", "3", "--quiet"]) == 1
    shown = capsys.readouterr().err
    assert "the first that is not finite is" in shown
    assert shown.count("\n") == 1


def test_plain_lines_and_the_quiet_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--epochs", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "task   digits: handwritten digits, 8x8 pixels, read pixel by pixel"
    assert lines[1].startswith("data   160 sequences to learn from, 60 to validate, 60 to test; 64")
    assert lines.pop(2).startswith("       classes 0 32, 1 31, ")
    assert lines.pop(2) == "       values 1 0 to 16"
    assert re.fullmatch(r"model  S4D-LegS, causal: 1 layer of 8 .*; [\d,]+ parameters", lines[2])
    (run,) = Path("runs").iterdir()
    assert lines[3] == f"run    {run}"
    for i in (1, 2):
        assert re.match(rf"epoch {i}/2  loss \d\.\d+  validation accuracy +\d", lines[3 + i])
    assert re.fullmatch(rf"digits: test accuracy .*%.*; weights in {run}/best", lines[6])
    assert len(lines) == 7
    assert main([*TINY, "--epochs", "2", "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == [lines[6]]


def test_a_metric_of_others_is_chosen_by_and_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def margin(scores: torch.Tensor, classes: torch.Tensor) -> float:
        return scores.gather(1, classes[:, None]).mean().item()

    monkeypatch.setattr(METRICS, "_entries", dict(METRICS._entries))  # type: ignore[attr-defined]
    METRICS.register("margin", Metric(margin, "classification", True, format=".3f"))
    assert main([*TINY, "--epochs", "2", "--training.metric", "margin", "--out", "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"epoch 1/2  loss \d\.\d+  validation margin +-?\d\.\d{3}  lr", lines[6])
    test = r"-?\d\.\d{3} \(-?\d\.\d{3} to -?\d\.\d{3} on 60 cases\)"
    assert re.match(rf"digits: test margin {test}, validation -?\d\.\d{{3}} after", lines[8])
    assert main(["evaluate", "run"]) == 0
    assert "margin" in capsys.readouterr().out


def progress(step: int, epoch: int) -> Progress:
    return Progress(step, 8, epoch, 2, 0.5, 0.01, 100.0, 90.0, None if epoch == 1 else 0.25)


ROW = {"epoch": 1, "step": 4, "lr": 0.01, "train_loss": 0.5, "validation_accuracy": 0.25}
ABOUT = {"metric": "accuracy", "epochs": 2, "steps": 8}


def test_a_long_epoch_speaks_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    output = io.StringIO()
    lines = display.Lines(Console(file=output, width=80), Path("run"))
    lines.begin(ABOUT)
    for step, seconds in ((1, 10.0), (2, 31.0), (3, 50.0)):
        now[0] = seconds
        lines.step(progress(step, 1))
    lines.epoch(ROW)
    lines.close()  # as when the run is stopped before its next report
    assert output.getvalue().splitlines() == [
        "epoch 1/2  step 2/4  loss 0.5000  lr 0.01  100/s  1:30 left",
        "epoch 1/2  loss 0.5000  validation accuracy  25.00%  lr 0.01  100/s  1:30 left",
    ]


def test_a_terminal_gets_a_moving_bar_and_keeps_a_line_for_each_epoch() -> None:
    output = io.StringIO()
    live = display.Live(Console(file=output, force_terminal=True, width=110), Path("run"))
    live.begin(ABOUT)
    for step in range(1, 5):
        if step == 4:
            live.epoch(ROW)
        live.step(progress(step, 1))
    live.step(progress(5, 2))
    assert live.bar is not None
    live.bar.refresh()
    live.close()
    shown = output.getvalue()
    assert "━" in shown
    assert "epoch 2/2" in shown
    assert "5/8  loss 0.500  25.00%  lr 0.01  100/s  1:30 left" in shown
    assert shown.count("validation accuracy") == 1


def test_events_are_written_where_tensorboard_is_installed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("tensorboard", reason="events are written by TensorBoard: its extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main([*TINY, "--epochs", "1", "--out", "run", "--json"]) == 0
    epoch, end = objects(capsys.readouterr().out)
    events = EventAccumulator("run/tensorboard").Reload()
    (score,) = events.Scalars("validation/accuracy")
    assert score.step == end["steps"]
    assert score.value == pytest.approx(epoch["validation_accuracy"])
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4, 5]
    assert main([*TINY, "--epochs", "1", "--out", "other", "--json", "--no-tensorboard"]) == 0
    assert not Path("other/tensorboard").exists()


def test_events_after_the_step_a_run_goes_on_from_are_replaced() -> None:
    pytest.importorskip("tensorboard", reason="events are written by TensorBoard: its extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in ((1, 2, 3), (2, 3, 4)):  # killed after 3, the checkpoint being of step 1
        board = display.TensorBoard(Path("events"), default_config("digits"))
        for step in steps:
            board.step(progress(step, 1))
        board.close()
        time.sleep(1.1)  # the names of event files sort by second, then by a number without zeros
    events = EventAccumulator("events").Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]


# ---- dry run ----------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*TINY, "--dry-run", "--epochs", "7"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"steps +5 per epoch, 35 in all", shown)
    assert re.search(r"about [\d.]+ m?s per epoch, .* for all, \d", shown)
    assert main([*TINY, "--dry-run", "--json"]) == 0
    (found,) = objects(capsys.readouterr().out)
    assert found["steps_per_epoch"] == 5
    assert 0 < found["ssm_parameters"] < found["parameters"]
    assert found["seconds_per_step"] > 0
    assert found["peak_bytes"] > 1e7
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not Path("runs").exists()


def test_a_dry_run_without_data_is_measured_on_noise(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    command = "train text --dry-run --data.max-length 64 --model.d-model 4 --model.d-state 4"
    assert main([*command.split(), "--batch-size", "2", "--threads", "1"]) == 0
    shown = squeezed(capsys.readouterr().out)
    assert squeezed("not here; measured on noise: 64 samples") in shown
    assert squeezed("steps unknown without the data") in shown
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("task", "train"), [("pathfinder", 160_000), ("listops --data.min-length 5", 96_000)]
)
def test_a_dry_run_makes_only_a_few_sequences(
    task: str, train: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small = "--model.n-layers 1 --model.d-model 4 --model.d-state 4 --threads 1"
    options = f"--data.max-length 40 {small}" if "listops" in task else small
    command = f"train {task} --dry-run {options} --data-dir {tmp_path / 'data'}"
    assert main(command.split()) == 0
    assert squeezed(f"{train:,} sequences to learn from") in squeezed(capsys.readouterr().out)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1e6


# ---- one's own data ---------------------------------------------------------------------------


def test_own_data_by_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(5, 12, 60)
    labels = np.array(["down", "up"])[np.arange(60) % 2]
    X = np.concatenate(
        [
            np.linspace(-1, 1, n) * (1 if label == "up" else -1)
            for n, label in zip(lengths, labels, strict=True)
        ]
    )
    np.savez("ramps.npz", X=X, y=labels, lengths=lengths)
    settings = "--model.d-model 8 --model.d-state 4 --model.n-layers 1 --epochs 2 --threads 1"
    assert main(["train", "ramps.npz", *settings.split(), "--out", "run"]) == 0
    shown = capsys.readouterr().out
    assert "up to 11 samples of 1 feature, 2 classes" in shown
    described = json.loads(Path("run/run.json").read_text())
    assert described["task"] == "arrays"
    assert Path(described["data"]["path"]) == Path("ramps.npz").resolve()
    assert main(["train", "ramps.npz", "--data.test", "2"]) == 2
    assert "--data.test: test must lie between 0 and 1, got 2.0" in capsys.readouterr().err
    np.savez("bad.npz", X=np.array([[1.0, np.nan]] * 9), y=labels[:9])
    assert main(["train", "bad.npz"]) == 1
    assert "bad.npz" in capsys.readouterr().err


# ---- tasks ------------------------------------------------------------------------------------


def test_tasks_lists_all_and_knows_what_is_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["tasks"]) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line[1:2].strip()}
    assert set(TASKS) <= set(rows)
    assert rows["sc35"][1:4] == ["16000", "95.83", "no"]
    assert rows["digits"][1:3] == ["64", "always"]
    assert rows["table"][1:3] == ["any", "yours"]
    (tmp_path / "there" / "speech_commands").mkdir(parents=True)
    assert main(["tasks", "--data-dir", str(tmp_path / "there")]) == 0
    assert re.search(r"sc35 +16000 +95.83 +yes", capsys.readouterr().out)


def test_tasks_shows_everything_about_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "sc35"]) == 0
    shown = capsys.readouterr().out
    task = TASKS["sc35"]
    for text in (task.citation, task.sources[0].url, "2,428.9 MB", "speech_commands (missing)"):
        assert text in shown
    assert squeezed("--data.sample-rate 16000 samples per second; 8000 takes") in squeezed(shown)
    assert re.search(r"d_model +\d+ +128", shown)
    assert re.search(r"S4D-Lin +96.25", shown)
    assert main(["tasks", "sc53"]) == 2
    assert "did you mean 'sc35'?" in capsys.readouterr().err
