"""Own data with times from end to end: train, predict, evaluate, stream, export."""

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch.cli import main
from s4d_torch.data.dataset import Array, Dataset, Sequences, Split
from s4d_torch.deploy import Stream
from s4d_torch.training import Run
from s4d_torch.training.evaluation import call

SMALL = (
    *("--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1"),
    *("--threads", "1", "--quiet"),
)
LENGTH = 12


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Output as in a wide pipe, and as many threads afterwards as before."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def case(random: np.random.Generator, slow: bool) -> tuple[Array, Array]:
    """The same pulses, far from each other or close: only their times tell which."""
    times = np.cumsum(random.uniform(0.7, 1.3, LENGTH) * (90 if slow else 30))
    return times.round(3), np.resize([1.0, 0.0, 0.0], LENGTH)


def beats(cases: int = 60, seed: int = 0) -> str:
    random = np.random.default_rng(seed)
    lines = ["id,when,pulse,label"]
    for i in range(cases):
        slow = bool(random.integers(2))
        times, values = case(random, slow)
        name = "slow" if slow else "fast"
        lines += [f"c{i},{t},{x},{name}" for t, x in zip(times, values, strict=True)]
    return "\n".join(lines)


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope="module")
def heart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal run on a table with times."""
    place = tmp_path_factory.mktemp("clock")
    (place / "beats.csv").write_text(beats())
    options = ["--causal", "--epochs", "40", "--out", str(place / "run"), "--training.batch-size"]
    options += ["8", "--optimizer.lr", "0.02", "--method.dt-min", "0.05", "--method.dt-max", "0.5"]
    data = ["--data.time-column", "when", "--data-dir", str(place)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "300")
        assert main(["train", str(place / "beats.csv"), *SMALL, *options, *data]) == 0
    return place / "run"


def test_what_only_times_tell_is_learned(heart: Path) -> None:
    run = Run.load(heart)
    assert run.signature.clock is not None
    assert run.signature.clock.column == "when"
    assert 30 < run.signature.clock.step < 90
    assert run.summary["test"]["accuracy"] == 1
    assert run.model.preprocessing is not None
    assert run.model.preprocessing["clock"]["column"] == "when"


def test_the_model_is_given_the_gaps(heart: Path) -> None:
    run, random = Run.load(heart), np.random.default_rng(1)
    times, values = case(random, slow=True)
    clock = run.signature.clock
    assert clock is not None
    gaps = torch.tensor([1.0, *(np.diff(times) / clock.step)])[None]
    u = run.signature.read(values[None, :, None])
    for rate in (1.0, 0.5):
        y, _ = run.model.eval()(u, rate=rate * gaps)
        found = run.predict_proba(values, times=times, rate=rate)
        np.testing.assert_allclose(found, y.detach().softmax(-1).numpy(), atol=1e-5)
    assert run.predict(values, times=times) == ["slow"]
    assert run.predict(values, times=times / 3) == ["fast"]


def test_packed_rows_are_answered_as_padded_ones(heart: Path) -> None:
    run, random = Run.load(heart), np.random.default_rng(3)
    pairs = [case(random, slow=bool(i % 2)) for i in range(4)]
    cut = [(times[: 6 + i], values[: 6 + i, None]) for i, (times, values) in enumerate(pairs)]
    times, values = (Sequences.of([pair[k] for pair in cut]) for k in (0, 1))
    split = replace(Split.whole(values, np.zeros(4)), times=times)
    data = Dataset(split, split, split, run.signature)
    model = run.model.eval()
    with torch.no_grad():
        padded, packed = (
            call(model, each(split, np.arange(4))) for each in (data.batch, data.packed)
        )
        even = call(model, replace(data.batch(split, np.arange(4)), gaps=None))
    torch.testing.assert_close(packed, padded)
    assert (even - padded).abs().max() > 0.1


def test_times_are_asked_for_and_checked(heart: Path) -> None:
    run, values = Run.load(heart), np.zeros(4)
    with pytest.raises(ValueError, match=r"is told when samples came, usually .* give times"):
        run.predict(values)
    for times, message in (
        ([0, 1, 2], r"times\[0\] has shape \(3,\)"),
        ([0, 1, np.nan, 3], "time 2 is nan"),
        ([0, 2, 1, 3], "goes back"),
        (np.arange(4).astype("M8[s]"), "are dates, those before were numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            run.predict(values, times=times)


def test_predict_and_stream_agree(
    heart: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times, values = case(np.random.default_rng(2), slow=True)
    pairs = list(zip(times, values, strict=True))
    (tmp_path / "new.csv").write_text("\n".join(["pulse,when", *(f"{x},{t}" for t, x in pairs)]))
    capsys.readouterr()
    assert main(["predict", str(heart), str(tmp_path / "new.csv"), "--json"]) == 0
    (expected,) = objects(capsys)
    assert expected["class"] == "slow"

    def stream(lines: list[str], *options: str) -> dict[str, Any]:
        given = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
        monkeypatch.setattr(sys, "stdin", given)
        assert main(["stream", str(heart), "--json", *options]) == 0
        return objects(capsys)[-2]

    named = ["pulse;when", *(f"{x};{t}" for t, x in pairs)]
    named.insert(5, f";{times[3] + 1}")  # nothing was measured then
    bare = [f"{t} {x}" for t, x in pairs]
    for lines, chunk in ((named, "1"), (named, "5"), (bare, "3")):
        found = stream(lines, "--chunk", chunk)
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
    kept = str(tmp_path / "kept.safetensors")
    stream(bare[:7], "--snapshot", kept)
    found = stream(bare[7:], "--restore", kept)
    assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
    assert main(["stream", str(heart), "--restore", kept]) == 0  # nothing more comes
    capsys.readouterr()
    live = Stream(Run.load(heart).model)
    live.push(np.zeros((3, 1)), rate=np.ones(3))
    live.snapshot(kept)  # whose time nobody has said
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 2\n")))
    assert main(["stream", str(heart), "--restore", kept]) == 1
    assert "does not say when its last sample came" in capsys.readouterr().err
    live.time = 9.0
    live.snapshot(kept)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"8 2\n")))
    assert main(["stream", str(heart), "--restore", kept]) == 1
    assert "the time 8 does not come after 9" in capsys.readouterr().err
    # each part begins anew, with the usual gap
    found = stream(bare + [f"{t + 5000} {x}" for t, x in pairs], "--restart", str(LENGTH))
    assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("pulse\n1\n", "has no column 'when' with the times of samples"),
        ("pulse,wen\n1,2\n", "did you mean 'wen'"),
        ("1\n2\n", "has 1 values; the run reads a time and 1 numbers in each line"),
        ("5 1\n5 2\n", "line 2: '5 2': the time '5' does not come after"),
        ("nan 1\n", "time 'nan'; expected a finite number"),
        ("2024-01-01,1\n", "is a date without a time zone, and the run was trained"),
    ],
)
def test_streams_without_good_times(
    heart: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lines: str,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert main(["stream", str(heart)]) == 1
    assert message in capsys.readouterr().err


def test_evaluate_measures_other_data_in_the_step_of_training(
    heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data-dir", str(tmp_path)]
    capsys.readouterr()
    assert main(["evaluate", str(heart), "--json", *data]) == 0
    (own,) = objects(capsys)
    assert own["scores"] == pytest.approx(Run.load(heart).summary["test"])
    (tmp_path / "other.csv").write_text(beats(seed=5))
    other = ["evaluate", str(heart), "--task", str(tmp_path / "other.csv"), "--split", "all", *data]
    assert main([*other, "--json"]) == 0
    assert objects(capsys)[0]["scores"]["accuracy"] > 0.9
    assert main([*other, "--data.time-column", ""]) == 1
    assert "it has no times (--data.time-column when)" in capsys.readouterr().err


def test_exports_say_that_their_step_is_fixed(
    heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(heart), "--to", "pt2", "--out", str(tmp_path / "out")]) == 0
    clock = Run.load(heart).signature.clock
    assert clock is not None
    told = f"take all samples as {clock.unit} apart"
    assert told in capsys.readouterr().out
    assert told in (tmp_path / "out" / "README.md").read_text()


def test_info_shows_the_clock(heart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(heart)]) == 0
    assert "with their times, usually" in capsys.readouterr().out
    assert main(["info", str(heart), "--json"]) == 0
    assert objects(capsys)[0]["signature"]["clock"]["column"] == "when"


def test_only_state_spaces_can_be_told(
    heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beats.csv").write_text(beats())
    arguments = ["train", str(tmp_path / "beats.csv"), *SMALL, "--out", str(tmp_path / "run")]
    arguments += ["--data.time-column", "when", "--data-dir", str(tmp_path), "--epochs", "1"]
    assert main([*arguments, "--model.architecture", "lstm"]) == 1
    assert "architecture 'lstm' cannot be told" in capsys.readouterr().err


def test_fine_tuning_keeps_the_step(
    heart: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beats.csv").write_text(beats(seed=7).replace("when", "at"))
    arguments = ["train", str(tmp_path / "beats.csv"), *SMALL, "--out", str(tmp_path / "run")]
    arguments += ["--data.time-column", "at", "--data-dir", str(tmp_path), "--epochs", "1"]
    assert main([*arguments, "--causal", "--training.init-from", str(heart)]) == 0
    old, new = Run.load(heart).signature.clock, Run.load(tmp_path / "run").signature.clock
    assert old is not None
    assert new is not None
    assert (new.step, new.column) == (old.step, "at")


def test_dropped_samples_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        f"{','.join(str(k * (1 + i % 2)) for k in range(30))}:{'ab'[i % 2]}" for i in range(20)
    ]
    path = tmp_path / "ramps.ts"
    path.write_text("@univariate true\n@classLabel true a b\n@data\n" + "\n".join(lines))
    places = ["--data-dir", str(tmp_path)]
    arguments = ["train", str(path), *SMALL, *places, "--epochs", "1", "--data.drop", "0.5"]
    for way in ("gaps", "ignored", "interpolated"):
        out = str(tmp_path / way)
        assert main([*arguments, "--data.dropped", way, "--out", out]) == 0
        assert (Run.load(out).signature.clock is not None) == (way == "gaps")
        capsys.readouterr()
        assert main(["evaluate", out, "--json", *places]) == 0
        (found,) = objects(capsys)
        assert found["scores"] == pytest.approx(Run.load(out).summary["test"])
        assert "data_changes" not in found  # the same samples are dropped again
    assert main([*arguments, "--data.drop", "1.5", "--out", str(tmp_path / "no")]) != 0
    assert "0 <= drop < 1" in capsys.readouterr().err
