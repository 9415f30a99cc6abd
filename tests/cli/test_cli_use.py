"""`s4d evaluate`, `s4d predict` and `s4d info`: what becomes of a trained run."""

import json
import math
import re
import sys
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch.cli import main
from s4d_torch.data.tasks.lra.listops_trees import tokenize
from s4d_torch.explore.timescales import layer_timescales
from s4d_torch.training import Run
from s4d_torch.training.build import build_model
from s4d_torch.training.reports.describe import parameters_by_kind
from s4d_torch.training.run import predict_sequences

SMALL = (
    *("--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1"),
    *("--epochs", "1", "--threads", "1", "--quiet"),
)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Output as in a pipe 80 columns wide, and as many threads afterwards as before."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for runs and their prepared data."""
    root = tmp_path_factory.mktemp("use")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S4D_TORCH_DATA", str(root / "data"))
        yield root


def trained(folder: Path, name: str, *arguments: str) -> str:
    run = folder / name
    assert main(["train", *arguments, *SMALL, "--out", str(run)]) == 0
    return str(run)


@pytest.fixture(scope="module")
def digits(folder: Path) -> str:
    return trained(folder, "digits-run", "digits", "--training.train-size", "200")


@pytest.fixture(scope="module")
def ramps(folder: Path) -> str:
    """A run on classes with names, of a user's own arrays with two features."""
    write_ramps(folder / "ramps.npz", ("down", "flat", "up"))
    return trained(folder, "ramps-run", str(folder / "ramps.npz"), "--lr", "0.05")


def write_ramps(file: Path, names: tuple[str, ...], features: int = 2) -> None:
    random = np.random.default_rng(0)
    slopes = {"down": -1.0, "flat": 0.0, "up": 1.0, "odd": 3.0}
    labels = np.array(names)[np.arange(90) % len(names)]
    ramp = np.linspace(-1, 1, 12)[:, None]
    X = np.stack(
        [slopes[label] * ramp + 0.1 * random.standard_normal((12, features)) for label in labels]
    )
    np.savez(file, X=X, y=labels)


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


# ---- evaluate ---------------------------------------------------------------------------------


def test_evaluation_repeats_the_test_of_the_run(
    digits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["evaluate", digits, "--json"]) == 0
    (found,) = objects(capsys)
    summary = Run.load(digits).summary
    assert found["scores"] == pytest.approx(summary["test"], rel=1e-9)
    assert found["loss"] == pytest.approx(summary["test_loss"], rel=1e-6)
    confusion = np.array(found["confusion"])
    assert confusion.sum() == found["sequences"] == 359
    assert np.trace(confusion) / 359 == pytest.approx(found["scores"]["accuracy"])
    assert main(["evaluate", digits]) == 0
    shown = capsys.readouterr().out
    assert f"accuracy   {summary['test']['accuracy']:.2%}" in shown
    assert "digits, test: 359 sequences" in shown
    row = " ".join(str(n) if n or i == 3 else "·" for i, n in enumerate(confusion[3]))
    assert f"3 {row}" in [" ".join(line.split()) for line in shown.splitlines()]


def test_evaluation_of_other_splits_and_options(
    digits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["evaluate", digits, "--json", "--split", "all", "--data.split-seed", "3"]) == 0
    (found,) = objects(capsys)
    assert found["sequences"] == 200 + 180 + 359  # the run's --training.train-size holds
    assert found["data"] == {"split_seed": 3}
    assert main(["evaluate", digits, "--json", "--task", "digits", "--split", "train"]) == 0
    assert objects(capsys)[0]["sequences"] == 200  # named or not, it is the task of the run
    assert main(["evaluate", digits, "--data.split-sed", "3"]) == 2
    assert "--data.split-seed INT" in capsys.readouterr().err


def test_classes_are_matched_by_their_names(
    ramps: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["evaluate", ramps, "--split", "all", "--json"]) == 0
    own = np.array(objects(capsys)[0]["confusion"])
    write_ramps(folder / "two.npz", ("up", "down"))
    asked = ["evaluate", ramps, "--task", str(folder / "two.npz"), "--split", "all", "--json"]
    assert main(asked) == 0
    (found,) = objects(capsys)
    assert found["classes"] == ["down", "flat", "up"]
    confusion = np.array(found["confusion"])
    assert confusion.sum(1).tolist() == [45, 0, 45]
    # the ramps are those of the run: as many are taken for what they are
    assert confusion[2, 2] / 45 == pytest.approx(own[2, 2] / 30, abs=0.2)


@pytest.mark.parametrize(
    ("names", "features", "told"),
    [
        (("up", "odd"), 2, "the data has odd"),
        (("up", "down"), 3, "12 samples of 2 features, 3 classes; the data has 12 samples of 3"),
    ],
)
def test_data_that_does_not_fit_is_refused(
    names: tuple[str, ...],
    features: int,
    told: str,
    ramps: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_ramps(folder / "other.npz", names, features)
    assert main(["evaluate", ramps, "--task", str(folder / "other.npz")]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nowhere"], 1, "holds no run"),
        ([], 2, "RUN"),
        (["{run}", "--rate", "0"], 2, "--rate must be above 0"),
        (["{run}", "--task", "digts"], 2, "did you mean 'digits'?"),
        (["{run}", "--batch-size", "0"], 2, "--batch-size must be at least 1"),
        (["{run}", "--split", "tst"], 2, "'test'"),
    ],
)
def test_what_evaluate_refuses(
    arguments: list[str],
    code: int,
    told: str,
    digits: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["evaluate", *(each.format(run=digits) for each in arguments)]) == code
    shown = capsys.readouterr()
    assert told in shown.err
    assert "Traceback" not in shown.err


# ---- sounds at another rate -------------------------------------------------------------------


def write_sound(file: Path, samples: Any, rate: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(np.asarray(samples * 8000, dtype="<i2").tobytes())


def write_tones(root: Path, rate: int) -> None:
    """Low and high tones with random phases, a tenth of a second each."""
    random = np.random.default_rng(0)
    t = np.arange(rate // 10) / rate
    for name, pitch in (("low", 50), ("high", 250)):
        for i in range(30):
            tone = np.sin(2 * np.pi * pitch * t + random.uniform(0, 6))
            write_sound(root / name / f"{i}.wav", tone, rate)


@pytest.fixture(scope="module")
def tones(folder: Path) -> str:
    write_tones(folder / "tones", 4000)
    settings = ("--epochs", "4", "--lr", "0.02", "--method.dt-min", "0.01", "--method.dt-max", "1")
    return trained(folder, "tones-run", str(folder / "tones"), *settings[2:], "--seed", "1")


def test_another_sampling_rate_is_noticed(
    tones: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tones(folder / "slow", 2000)
    slow = ["evaluate", tones, "--task", str(folder / "slow"), "--split", "all"]
    capsys.readouterr()
    assert main(slow) == 0
    assert "trained at 4000 Hz, this is at 2000 Hz: computed with rate 2" in capsys.readouterr().out
    losses = {}
    for rate in (None, "2", "1"):
        assert main([*slow, "--json", *(() if rate is None else ("--rate", rate))]) == 0
        losses[rate] = objects(capsys)[0]["loss"]
    assert main(["evaluate", tones, "--split", "all", "--json"]) == 0
    own = objects(capsys)[0]["loss"]
    assert losses[None] == losses["2"] != losses["1"]
    assert losses["2"] == pytest.approx(own, rel=0.1)
    assert abs(losses["2"] - own) < abs(losses["1"] - own)


def test_sounds_are_predicted_in_the_unit_and_at_the_rate_of_training(
    tones: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    t = np.arange(400) / 4000
    write_sound(folder / "full.wav", np.sin(2 * np.pi * 50 * t), 4000)
    write_sound(folder / "half.wav", np.sin(2 * np.pi * 50 * t[::2]), 2000)
    files = [str(folder / name) for name in ("full.wav", "half.wav")]
    assert main(["predict", tones, *files, "--json"]) == 0
    full, half = objects(capsys)
    assert (full["rate"], half["rate"]) == (1, 2)
    assert half["probability"] == pytest.approx(full["probability"], abs=0.02)
    run = Run.load(tones)
    samples = (np.sin(2 * np.pi * 50 * t) * 8000).astype(np.int16)[:, None]
    expected = predict_sequences(run, [samples])[0]
    assert list(full["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-6)
    assert main(["predict", tones, *files]) == 0
    shown = capsys.readouterr().out
    assert "half.wav: at 2000 Hz, trained at 4000 Hz; computed with rate 2" in shown


def test_speech_at_half_the_rate(
    real_data: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(real_data("speech_commands"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # the data is not complete
        arguments = (
            "train sc35 --preset small --data.words down up --training.train-size 32 --batch-size 8"
        )
        run = str(tmp_path / "run")
        sizes = ["--training.eval-size", "16", "--data-dir", root, "--out", run]
        assert main([*arguments.split(), *SMALL, *sizes]) == 0
        capsys.readouterr()
        asked = ["evaluate", run, "--data.sample-rate", "8000", "--data-dir", root, "--json"]
        assert main(asked) == 0
        (found,) = objects(capsys)
        assert (found["rate"], found["sequences"]) == (2, 16)
        clip = next(Path(root, "speech_commands", "up").glob("*.wav"))
        assert main(["predict", run, str(clip), "--json"]) == 0
        assert objects(capsys)[0]["class"] in ("down", "up")


# ---- predict ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def images() -> Any:
    from sklearn import datasets

    return datasets.load_digits().data.astype(np.uint8)


def test_arrays_and_tables_give_the_same_predictions(
    digits: str,
    images: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.save(tmp_path / "one.npy", images[0])
    np.save(tmp_path / "three.npy", images[:3, :, None])
    np.savez(tmp_path / "two.npz", X=images[:2], y=np.zeros(2))
    np.savez(tmp_path / "cut.npz", X=images[:2].ravel(), lengths=[64, 64])
    np.savetxt(tmp_path / "bare.csv", images[0])
    rows = [f"{case},{t},{images[case, t]}" for t in range(63, -1, -1) for case in (1, 0)]
    (tmp_path / "long.csv").write_text("\n".join(["id,time,grey", *rows]))
    names = ("one.npy", "three.npy", "two.npz", "cut.npz", "bare.csv", "long.csv")
    files = [str(tmp_path / name) for name in names]
    capsys.readouterr()
    assert main(["predict", digits, *files, "--json"]) == 0
    found = [tuple(each["probabilities"].values()) for each in objects(capsys)]
    wanted = [
        tuple(row) for row in predict_sequences(Run.load(digits), images[:3, :, None]).tolist()
    ]
    order = [0, 0, 1, 2, 0, 1, 0, 1, 0, 1, 0]
    assert np.array(found) == pytest.approx(np.array([wanted[i] for i in order]), abs=1e-6)
    monkeypatch.setenv("COLUMNS", "500")  # paths of temporary files can be long
    assert main(["predict", digits, files[1]]) == 0
    shown = capsys.readouterr().out.replace("\n", "")
    best = [int(np.argmax(row)) for row in wanted]
    assert re.search(r"three\.npy +2 ", shown)
    assert f"{wanted[0][best[0]]:.1%}" in shown


def test_numbers_are_predicted_in_their_unit(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    means = 500 + 100 * random.standard_normal(60)
    lines = [
        f"{case},{t},{mean + random.standard_normal():.3f},{mean:.3f}"
        for case, mean in enumerate(means)
        for t in range(8)
    ]
    (tmp_path / "means.csv").write_text("\n".join(["case,t,x,target", *lines]))
    run = trained(
        folder, "means-run", str(tmp_path / "means.csv"), "--training.precision", "float64"
    )
    capsys.readouterr()
    assert main(["predict", run, str(tmp_path / "means.csv"), "--json"]) == 0
    found = objects(capsys)
    assert len(found) == 60
    values = np.array([each["value"] for each in found])
    assert abs(values.mean() - 500) < 100
    assert main(["evaluate", run, "--split", "all", "--json"]) == 0
    rmse = objects(capsys)[0]["scores"]["rmse"]
    assert rmse == pytest.approx(np.sqrt(np.mean((values - means) ** 2)), rel=1e-4)


def test_text_becomes_tokens(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "--data.n-train 40 --data.n-validation 10 --data.n-test 10 --data.max-length 200"
    run = trained(folder, "listops-run", "listops", *sizes.split(), "--data.min-length", "50")
    (tmp_path / "sum.txt").write_text("[SM 1 [MAX 2 3 ] ]\n")
    np.save(tmp_path / "sum.npy", tokenize(b"[SM 1 [MAX 2 3 ] ]"))
    capsys.readouterr()
    assert (
        main(["predict", run, *(str(tmp_path / f"sum.{e}") for e in ("txt", "npy")), "--json"]) == 0
    )
    from_text, from_tokens = objects(capsys)
    assert from_text["probabilities"] == pytest.approx(from_tokens["probabilities"])
    (tmp_path / "sum.txt").write_text("[SM 1 two ]")
    assert main(["predict", run, str(tmp_path / "sum.txt")]) == 1
    assert "unknown word 'two'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("wide.npy", np.zeros((5, 3)), "(5, 3); the run reads (length, 2)"),
        ("flat.npy", np.zeros(5), "(5,); the run reads (length, 2)"),
        ("text.npy", np.array(["a"]), "holds <U1; expected numbers"),
        ("hole.npy", np.array([[1.0, 2.0], [np.nan, 1.0]]), "feature 0 of sample 1 is no finite"),
        ("empty.npy", np.zeros((0, 2)), "without any samples"),
        ("none.npy", np.zeros((0, 7, 2)), "none.npy holds no sequence"),
        ("broken.npy", b"nothing", "cannot be read as NumPy's .npy"),
        ("wide.csv", b"1,2,3\n", "3 columns of values (1, 2, 3); the run was trained on 2"),
        ("word.csv", b"a,b\n1,x\n", "word.csv:2: column 'b' has 'x', which is no number"),
        ("ragged.csv", b"1,2\n3\n", "ragged.csv:2: 1 cells; expected 2"),
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"a,b\n", "header.csv holds no sequence"),
        ("notes.doc", b"1,2\n", "cannot be read; expected .wav"),
        ("mute.wav", b"RIFF", "not a wav file"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    name: str,
    content: Any,
    told: str,
    ramps: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, content)
    assert main(["predict", ramps, str(file)]) == 1
    shown = capsys.readouterr().err
    assert told in shown
    assert shown.count("\n") == 1


def test_predict_needs_files_that_are_there(ramps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", ramps]) == 2
    assert "name a file" in capsys.readouterr().err
    assert main(["predict", ramps, "nothing.npy"]) == 1
    assert "there is no file nothing.npy" in capsys.readouterr().err


def test_a_recurrent_network_keeps_its_rate(
    folder: Path, tones: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(folder, "lstm-run", str(folder / "tones"), "--model.architecture", "lstm")
    write_sound(folder / "half.wav", np.zeros(200), 2000)
    capsys.readouterr()
    assert main(["predict", run, str(folder / "half.wav")]) == 1
    assert "is at 2000 Hz, and a model of the kind 'lstm' cannot" in capsys.readouterr().err
    assert main(["info", run]) == 0
    shown = capsys.readouterr().out
    assert "LSTM" in shown
    assert "Timescales" not in shown
    assert main(["info", run, "--plot", str(folder / "x.png")]) == 2


# ---- info -------------------------------------------------------------------------------------


def test_timescales_are_those_of_the_modes(digits: str) -> None:
    run = Run.load(digits)
    (spectrum,) = layer_timescales(run.model)
    ssm = next(module for module in run.model.modules() if hasattr(module, "log_dt"))
    A, dt = ssm.A.detach(), ssm.dt.detach()
    steps = torch.exp(A * dt[:, None])  # one sample of each mode
    assert torch.allclose(steps.abs(), torch.exp(-1 / spectrum.time_constant))
    turned = torch.polar(torch.ones_like(A.real), 2 * math.pi * spectrum.frequency)
    assert torch.allclose(steps / steps.abs(), turned)
    assert spectrum.quantiles("dt")[1] == pytest.approx(dt.quantile(0.5).item())


def test_info_shows_model_training_and_both_timescales(
    digits: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run = Run.load(digits)
    assert main(["info", digits, "--json"]) == 0
    (found,) = objects(capsys)
    assert sum(found["parameters"].values()) == run.summary["parameters"]
    assert found["parameters"] == parameters_by_kind(run.model)
    (fresh,) = layer_timescales(build_model(run.config, run.signature))
    (layer,) = found["layers"]
    assert layer["start"]["frequency"] == pytest.approx(fresh.quantiles("frequency"))
    assert layer["start"]["dt"] != layer["trained"]["dt"]
    assert main(["info", digits]) == 0
    shown = capsys.readouterr().out
    assert "1 of 1 epoch" in shown
    assert f"test       accuracy {run.summary['test']['accuracy']:.2%}" in shown
    assert re.search(r"state spaces \(A, B, C, D, dt\) +112", shown)
    assert re.search(r"1 trained +0\.\d+ +0\.\d+", shown)
    assert max(len(line) for line in shown.splitlines()[6:]) <= 80


def test_info_draws_a_picture(
    digits: str,
    tones: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for run, name in ((digits, "a.png"), (tones, "new/b.svg")):
        assert main(["info", run, "--plot", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "Hz" in (tmp_path / "new" / "b.svg").read_text("utf-8")
    assert main(["info", digits, "--plot", "x.jpg"]) == 2
    assert "--plot must end in one of .png, .svg, .pdf" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["info", digits, "--plot", str(tmp_path / "c.png")]) == 1
    assert "pip install 's4d-torch[plots]'" in capsys.readouterr().err
