"""The models that come with the package: they answer as they did, and every command takes them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import s4d_torch
from s4d_torch import Stream
from s4d_torch.cli import main
from s4d_torch.training.saved import packaged

MOST = 3_000_000  # bytes of all
NAMES = packaged.names()


def test_there_are_some_and_they_are_small() -> None:
    assert "words" in NAMES
    files = [path for path in packaged.FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_as_it_did(name: str) -> None:
    run = s4d_torch.load(name)
    u = run.signature.read(packaged.probe(run.signature))
    with torch.no_grad():
        y, _ = run.model(u)
    y = y if y.ndim == 2 else y[:, -1]
    stored = torch.tensor(json.loads((packaged.folder_of(name) / packaged.ANSWERS).read_text()))
    torch.testing.assert_close(y, stored, rtol=1e-4, atol=1e-4)
    assert (stored[0] - stored[1]).abs().max() > 1e-3  # answers to different questions


@pytest.mark.parametrize("name", NAMES)
def test_its_card_says_what_it_is(name: str) -> None:
    card, run = packaged.card(name), s4d_torch.load(name)
    for field, value in card.to_json().items():
        assert value or field == "intervals", field
    assert card.name == name
    assert card.scores == run.summary["test"]
    for measure, ends in run.summary["test_intervals"].items():  # whoever asks, is told the same
        assert ends == pytest.approx(card.intervals[measure])
    assert card.parameters == sum(p.numel() for p in run.model.parameters())
    assert card.bytes == (packaged.folder_of(name) / "best" / "model.safetensors").stat().st_size
    assert len(card.commit) == 40
    page = (packaged.folder_of(name) / packaged.PAGE).read_text()
    assert card.not_for in page
    assert card.licence in page


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_streamed(name: str) -> None:
    run = s4d_torch.load(name)
    if run.signature.kind == "generation":
        pytest.skip("a model that generates is not asked for answers")
    u = run.signature.read(packaged.probe(run.signature))[0]
    with torch.no_grad():
        whole, _ = run.model(u[None])
    stream = Stream(run.model)
    stream.push(u[:100])
    torch.testing.assert_close(stream.push(u[100:]), whole[0], rtol=1e-4, atol=1e-4)


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'word'.*words.*load_run"):
        s4d_torch.load("word")
    for name in ("word", "words"):  # a folder is meant, and ours does not stand in for it
        with pytest.raises(FileNotFoundError, match="holds no run"):
            s4d_torch.load_run(name)


def test_a_name_stands_for_a_folder_in_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "words", "spoken-digits"]) == 0
    shown = capsys.readouterr()
    assert "words: the model that comes with the package" in shown.err
    assert "72.28%" in shown.out  # by speakers
    assert main(["info", "words"]) == 0
    shown = capsys.readouterr()
    assert "82.22% (72.3 to 94.5 on 180 cases of 20 groups)" in shown.out
    assert "20 epochs, 2,260 steps" in shown.out
    assert "0 of 20" not in shown.out
    np.savez("x.npz", X=np.sin(np.arange(1200)).reshape(30, 40), y=np.arange(30) % 2)
    short = ("--epochs", "1", "--training.train-size", "20", "--dry-run")
    for name in ("mnist", "mnist/run.json"):
        assert main(["train", "--replay", name, *short]) in (0, 1)  # its data may not be here
        assert "the model that comes with the package" in capsys.readouterr().err
    for command in (["stream", "word"], ["compare", "words", "mnits"], ["info", "wrds"]):
        assert main(command) == 2
        assert "did you mean" in capsys.readouterr().err


def test_a_task_and_a_model_of_one_name_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "digits-pixels"]) == 0
    assert "s4d info digits-pixels --as-data" in capsys.readouterr().out
    assert main(["info", "digits-pixels", "--as-data"]) == 0
    assert "1,258" in capsys.readouterr().out


def test_a_folder_that_holds_a_run_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").mkdir()  # such as sounds by class
    assert packaged.find("words") == packaged.FOLDER / "words"
    (tmp_path / "words" / "run.json").write_text("{}")
    assert packaged.find("words") == Path("words")


def test_models_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in NAMES)
    assert main(["models", "words"]) == 0
    assert "**not for**" in capsys.readouterr().out
    assert main(["models", "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == NAMES
    assert main(["models", "sheep"]) == 1
    assert "sheep" in capsys.readouterr().err


def test_words_are_heard_from_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from scipy.io import wavfile

    monkeypatch.chdir(tmp_path)
    clip = (8000 * np.sin(np.arange(8000) / 5)).astype(np.int16)
    wavfile.write("clip.wav", 8000, clip)
    assert main(["predict", "words", "clip.wav", "--json"]) == 0
    written = capsys.readouterr()
    said = json.loads(written.out.splitlines()[0])
    assert "words: the model that comes with the package" in written.err
    assert main(["stream", "words", "clip.wav", "--fast", "--json"]) == 0
    *_, last, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert last["class"] == said["class"]
    assert main(["info", "words"]) == 0
    assert "9 classes" in capsys.readouterr().out


def test_a_packaged_model_is_not_written_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(packaged.FOLDER.rglob("*"))
    assert main(["export", "words", "--to", "pt2"]) == 0
    assert (tmp_path / "words-export-pt2" / "export.json").exists()
    assert sorted(packaged.FOLDER.rglob("*")) == before
