"""A task that the package has never heard of, with a metric of its own, through all commands."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from s4d_torch.cli import main
from s4d_torch.data import TASKS
from s4d_torch.training import METRICS

# What a user would write into a file, and import before calling `main`.
SOURCE = '''
"""Slow or fast pulses, and which of three words: a user's own tasks."""

from dataclasses import dataclass, replace

import numpy as np

from s4d_torch.data import LAPTOP, Dataset, Sequences, Signature, Split, Task, register
from s4d_torch.training import METRICS, Metric

TINY = replace(LAPTOP, n_layers=1, d_model=8, d_state=4, epochs=2, batch_size=8)
WORDS = {b"ping": 0, b"pong": 1, b"tick": 2}


@dataclass(frozen=True)
class PulseOptions:
    """Pulses in noise."""

    count: int = 60
    """series to make"""


def load_pulses(options, folder):
    random = np.random.default_rng(0)
    labels = np.arange(options.count) % 2
    periods = np.where(labels, 4, 8)[:, None]
    pulses = (np.arange(32) % periods == 0) + 0.1 * random.normal(size=(options.count, 32))
    whole = Split.whole(Sequences(pulses[..., None].astype(np.float32)), labels)
    signature = Signature("classification", 1, 2, 32, classes=("slow", "fast"))
    return Dataset(
        whole.part(slice(0, 40)), whole.part(slice(40, 50)), whole.part(slice(50, None)), signature
    )


@dataclass(frozen=True)
class WordOptions:
    """Sequences of three words."""


def load_words(options, folder):
    words = np.random.default_rng(0).integers(3, size=(60, 20))
    targets = (words == 2).mean(1)
    whole = Split.whole(Sequences(words), targets)
    signature = Signature("regression", 3, 1, 20, tokens=True)
    return Dataset(
        whole.part(slice(0, 40)), whole.part(slice(40, 50)), whole.part(slice(50, None)), signature
    )


def read_words(text):
    for word in set(text.split()) - set(WORDS):
        raise ValueError(f"unknown word {word.decode()!r}")
    return np.array([WORDS[word] for word in text.split()])


METRICS.register(
    "worst-class",
    Metric(
        lambda scores, classes: min(
            (scores.argmax(-1) == classes)[classes == each].double().mean().item()
            for each in classes.unique()
        ),
        "classification",
        higher_is_better=True,
    ),
)
METRICS.register(
    "worst-error",
    Metric(
        lambda found, targets: (found - targets).abs().max().item(),
        "regression",
        higher_is_better=False,
    ),
)
register(Task("pulses", "slow or fast pulses?", PulseOptions, load_pulses, "worst-class", TINY))
register(
    Task(
        "ticks",
        "how many of the words are ticks?",
        WordOptions,
        load_words,
        "worst-error",
        TINY,
        tokenize=read_words,
    )
)
'''


@pytest.fixture(scope="module", autouse=True)
def user_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's file, imported; what it has registered is forgotten afterwards."""
    path = tmp_path_factory.mktemp("user") / "pulses_of_mine.py"
    path.write_text(SOURCE, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    known = {id(registry): set(registry) for registry in (TASKS, METRICS)}
    spec.loader.exec_module(module)
    yield
    for registry in (TASKS, METRICS):
        for name in set(registry) - known[id(registry)]:
            del registry._entries[name]
    del sys.modules[path.stem]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def test_the_task_is_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    listed = run_command(capsys, "tasks")
    assert "pulses" in listed
    assert "slow or fast pulses?" in listed
    shown = run_command(capsys, "tasks", "pulses")
    assert "metric   worst-class" in shown
    assert "--data.count" in shown
    assert "series to make" in shown


@pytest.mark.parametrize(
    ("task", "metric", "file", "answer"),
    [
        ("pulses", "worst-class", "pulses.npy", "class"),
        ("ticks", "worst-error", "words.txt", "value"),
    ],
)
def test_the_task_is_trained_evaluated_and_predicted_from(
    task: str,
    metric: str,
    file: str,
    answer: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = ("--data-dir", tmp_path)
    planned = json.loads(run_command(capsys, "train", task, "--dry-run", "--json", *folder))
    assert planned["task"] == task
    run = tmp_path / "run"
    told = run_command(capsys, "train", task, "--out", run, "--json", *folder)
    summary = json.loads(told.splitlines()[-1])
    assert summary["metric"] == metric
    scores = json.loads(run_command(capsys, "evaluate", run, "--json", *folder))
    assert scores["scores"][metric] == pytest.approx(summary["test"][metric])
    np.save(tmp_path / "pulses.npy", (np.arange(32) % 4 == 0).astype(np.float32))
    (tmp_path / "words.txt").write_text("ping tick\npong")
    found = json.loads(run_command(capsys, "predict", run, tmp_path / file, "--json"))
    assert answer in found


def test_options_of_the_task_are_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--data.count", "80", "--epochs", "1", "--quiet", "--data-dir", tmp_path)
    told = run_command(capsys, "train", "pulses", *flags, "--out", tmp_path / "run")
    assert "worst-class" in told
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"] == {"count": 80}


def test_elsewhere_a_run_of_it_says_who_knows_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that has not imported the user's file: nothing is damaged."""
    flags = ("--data.count", "80", "--epochs", "1", "--quiet", "--data-dir", tmp_path)
    run_command(capsys, "train", "pulses", *flags, "--out", tmp_path / "run")
    command = [sys.executable, "-m", "s4d_torch", "evaluate", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a run of the task 'pulses', which nothing here has registered" in done.stderr
    assert "python mytask.py evaluate" in done.stderr
    assert "damaged" not in done.stderr


def test_a_text_that_the_task_cannot_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run_command(capsys, "train", "ticks", "--epochs", "1", "--quiet", "--out", run)
    (tmp_path / "words.txt").write_text("ping bang")
    assert main(["predict", str(run), str(tmp_path / "words.txt")]) == 1
    assert "words.txt: unknown word 'bang'" in capsys.readouterr().err


def test_the_metric_can_be_asked_for_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--epochs", "1", "--training.train-size", "64", "--training.eval-size", "20")
    small = ("--model.d-model", "4", "--model.n-layers", "1", "--quiet")
    out = ("--training.metric", "worst-class", "--out", tmp_path / "run")
    assert "worst-class" in run_command(capsys, "train", "digits", *flags, *small, *out)
