"""`s4d stream`: what comes piece by piece is answered as `s4d predict` answers the whole."""

import io
import json
import os
import signal
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from s4d_torch._interruption import interruptions
from s4d_torch.cli import main
from s4d_torch.cli.stream import ChangingLine, Stream
from s4d_torch.data.dataset import Dataset, Sequences, Signature, Split
from s4d_torch.deploy import Stream as LiveStream
from s4d_torch.deploy.stream import session as stream_session
from s4d_torch.deploy.stream.session import Latencies
from s4d_torch.training import Config, Run, default_config, train_on
from s4d_torch.training.run import predict_sequences

SOUND_RATE = 4000
SMALL = (
    *("--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1"),
    *("--epochs", "1", "--threads", "1", "--quiet", "--method.no-bidirectional"),
)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a pipe."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream")


def small(**training: Any) -> Config:
    config = default_config("digits")
    return replace(
        config,
        model=replace(config.model, d_model=8, d_state=4, n_layers=2),
        method=config.method.replace(bidirectional=False),
        training=replace(config.training, epochs=1, batch_size=8, **training),
    )


def run_on(folder: Path, name: str, signature: Signature, config: Config | None = None) -> str:
    """A run on random data: weights that have learned nothing answer as well."""
    random = np.random.default_rng(0)
    shape = (16, signature.length)
    values = (
        random.integers(signature.features, size=shape)
        if signature.tokens
        else random.standard_normal((*shape, signature.features))
    )
    targets = random.integers(signature.outputs, size=16).astype(float)
    whole = Split.whole(Sequences(values), targets)
    data = Dataset(whole, whole, whole, signature)
    train_on(data, config or small(), out=folder / name)
    return str(folder / name)


@pytest.fixture(scope="module")
def sounds(folder: Path) -> str:
    """A run on sounds of one channel, stored as integers of 16 bits."""
    signature = Signature(
        "classification",
        *(1, 2, 100),
        classes=("low", "high"),
        input_scale=(1 / 3000,),
        sample_rate=SOUND_RATE,
    )
    return run_on(folder, "sounds", signature)


@pytest.fixture(scope="module")
def pairs(folder: Path) -> str:
    """A run on two channels that have to be shifted and scaled; no sampling rate."""
    signature = Signature(
        "classification", 2, 3, 12, input_shift=(1.0, -2.0), input_scale=(0.5, 3.0)
    )
    return run_on(folder, "pairs", signature)


def write_sound(path: Path, samples: Any, rate: int = SOUND_RATE, channels: int = 1) -> str:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return str(path)


def noise(length: int, seed: int = 0) -> Any:
    return (3000 * np.random.default_rng(seed).standard_normal(length)).astype(np.int16)


Streamed = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def streamed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Streamed:
    """The objects that `s4d stream ARGUMENTS --json` prints, given bytes on standard input."""

    def run(*arguments: str, given: bytes = b"") -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        capsys.readouterr()
        code = main(["stream", *arguments, "--json"])
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return [json.loads(line) for line in printed.out.splitlines()]

    return run


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 1) -> str:
    capsys.readouterr()
    assert main(["stream", *arguments]) == code
    return capsys.readouterr().err


def predicted(
    capsys: pytest.CaptureFixture[str], run: str, *arguments: str
) -> list[dict[str, float]]:
    capsys.readouterr()
    assert main(["predict", run, *arguments, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line)["probabilities"] for line in lines]


def last(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The last result, which comes before the summary."""
    assert objects[-1]["event"] == "end"
    assert objects[-2]["last"] is True
    return objects[-2]


# ---- sounds -----------------------------------------------------------------------------------


def test_sounds_answer_as_predict_from_wherever_they_come(
    sounds: str, tmp_path: Path, streamed: Streamed, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = noise(1234)
    file = write_sound(tmp_path / "sound.wav", samples)
    (expected,) = predicted(capsys, sounds, file)
    raw = samples.astype("<i2").tobytes()
    floats = (samples / 32768).astype("<f4").tobytes()
    lines = "\n".join(map(str, samples)).encode()  # in the unit of the data
    for found in (
        streamed(sounds, file, "--fast"),
        streamed(sounds, file, "--fast", "--chunk", "1000"),
        streamed(sounds, "-", "--format", "s16", given=raw + b"\0"),  # and half a sample
        streamed(sounds, "--format", "f32", "--chunk", "77", given=floats),
        streamed(sounds, "--format", "numbers", "--chunk", "50", given=lines),
    ):
        assert last(found)["probabilities"] == pytest.approx(expected, abs=1e-5)
        assert last(found)["at"] == last(found)["samples"] == 1234
        assert last(found)["seconds"] == 1234 / SOUND_RATE


def test_another_sampling_rate(
    sounds: str, tmp_path: Path, streamed: Streamed, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = noise(300)
    file = write_sound(tmp_path / "slow.wav", samples, rate=2000)
    (expected,) = predicted(capsys, sounds, file)
    (unchanged,) = predicted(capsys, sounds, file, "--rate", "1")
    raw = samples.astype("<i2").tobytes()
    for found in (
        streamed(sounds, file, "--fast"),
        streamed(sounds, "--format", "s16", "--sample-rate", "2000", given=raw),
        streamed(sounds, "--format", "s16", "--rate", "2", given=raw),
    ):
        assert last(found)["probabilities"] == pytest.approx(expected, abs=1e-5)
    found = streamed(sounds, file, "--fast", "--rate", "1")
    assert last(found)["probabilities"] == pytest.approx(unchanged, abs=1e-5)
    assert unchanged != pytest.approx(expected, abs=1e-5)
    assert main(["stream", sounds, file, "--fast"]) == 0
    shown = capsys.readouterr().out
    assert "at 2000 Hz, trained at 4000 Hz; computed with rate 2\n" in shown


def test_speech_commands_from_end_to_end(
    real_data: Callable[..., Path],
    tmp_path: Path,
    streamed: Streamed,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = str(real_data("speech_commands"))
    run = str(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # the data is not complete
        arguments = (
            "train sc35 --preset small --data.words down up --training.train-size 16 --batch-size 8"
        )
        sizes = ["--training.eval-size", "8", "--data-dir", root, "--out", run]
        assert main([*arguments.split(), *SMALL, *sizes]) == 0
    clips = sorted(
        Path(root, "speech_commands", "up").glob("*.wav"), key=lambda p: p.stat().st_size
    )
    shortest, longest = str(clips[0]), str(clips[-1])
    expected = predicted(capsys, run, shortest, longest)
    for clip, probabilities in zip((shortest, longest), expected, strict=True):
        found = streamed(run, clip, "--fast")
        assert last(found)["probabilities"] == pytest.approx(probabilities, abs=1e-5)
        assert last(found)["samples"] == 16000  # the shorter one with silence, as in training
        assert last(found)["class"] in ("down", "up")
        assert found[-1]["chunk"] == 160
        assert len(found) - 2 >= found[-1]["at"] // 1600  # a result each tenth of a second
    with wave.open(shortest) as file:
        raw = file.readframes(file.getnframes())
    found = streamed(run, "--format", "s16", given=raw)
    assert last(found)["probabilities"] == pytest.approx(expected[0], abs=1e-5)
    found = streamed(run, "--format", "s16", "--restart", "8000", given=raw)
    assert last(found)["samples"] <= 8000


def test_the_stream_begins_again(
    sounds: str, tmp_path: Path, streamed: Streamed, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [noise(100, seed) for seed in range(3)]
    parts.append(noise(30))
    file = write_sound(tmp_path / "long.wav", np.concatenate(parts))
    files = [write_sound(tmp_path / f"{i}.wav", part) for i, part in enumerate(parts)]
    expected = predicted(capsys, sounds, *files)
    for chunk in ("64", "7", "250", "100"):
        found = streamed(sounds, file, "--fast", "--restart", "100", "--chunk", chunk)
        ends = [result for result in found if result.get("last")]
        assert [result["at"] for result in ends] == [100, 200, 300, 330]
        for result, probabilities in zip(ends, expected, strict=True):
            assert result["probabilities"] == pytest.approx(probabilities, abs=1e-5)
        assert found[-1]["at"] == 330


class Clock:
    """Time that passes in sleep, and 1 ms in each computation."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


def test_a_file_takes_as_long_as_it_sounds(
    sounds: str, tmp_path: Path, streamed: Streamed, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    push = LiveStream.push

    def slow(self: LiveStream, chunk: Any) -> Any:
        clock.now += 1e-3 if self.samples < 1600 else 50e-3  # then too slow for real time
        return push(self, chunk)

    monkeypatch.setattr(stream_session, "time", clock)
    monkeypatch.setattr(LiveStream, "push", slow)
    file = write_sound(tmp_path / "sound.wav", noise(2000))  # half a second
    *_, end = streamed(sounds, file)
    assert clock.slept == pytest.approx(0.41 - 0.001 * 40, abs=1e-6)
    assert end["chunks"] == 50
    assert end["computing_seconds"] == pytest.approx(40 * 1e-3 + 10 * 50e-3)
    assert end["real_time_factor"] == pytest.approx(0.54 / 0.5)
    assert end["latency_ms"]["p50"] == pytest.approx(1, rel=0.02)
    assert end["latency_ms"]["max"] == pytest.approx(50 + 9 * 40)  # each was 40 ms later
    clock.slept = 0
    streamed(sounds, file, "--fast")
    assert clock.slept == 0


# ---- numbers and tokens -----------------------------------------------------------------------


def test_numbers_of_several_channels(
    pairs: str, tmp_path: Path, streamed: Streamed, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(1).standard_normal((40, 2)) * 3
    np.save(tmp_path / "values.npy", values)
    (expected,) = predicted(capsys, pairs, str(tmp_path / "values.npy"))
    for between in (b" ", b",", b"\t", b" ; "):
        lines = b"\n\n".join(b"%r%b%r" % (a, between, b) for a, b in values.tolist())
        for chunk in ("1", "7", "100"):
            found = streamed(pairs, "--chunk", chunk, given=b"\xef\xbb\xbf" + lines)
            assert last(found)["probabilities"] == pytest.approx(expected, abs=1e-5)
            assert last(found)["seconds"] is None
    found = streamed(pairs, given=lines)
    assert [result["at"] for result in found[:-2]] == list(range(1, 41))
    assert found[-1]["real_time_factor"] is None
    found = streamed(pairs, "--every", "15", given=lines)
    assert [result["at"] for result in found[:-1]] == [15, 30, 40]


def test_tokens_and_bytes(folder: Path, streamed: Streamed) -> None:
    run = run_on(folder, "text", Signature("classification", 256, 2, 12, tokens=True))
    text = b"The same text, \xff and more."
    expected = predict_sequences(Run.load(run), [np.frombuffer(text, np.uint8)])[0].tolist()
    numbers = b"\n".join(b"%d" % byte for byte in text)
    for found in (
        streamed(run, "--format", "bytes", given=text),
        streamed(run, "--format", "bytes", "--chunk", "10", given=text),
        streamed(run, given=numbers),
    ):
        values = last(found)["probabilities"].values()
        assert list(values) == pytest.approx(expected, abs=1e-5)


def test_a_regression_answers_in_its_own_unit(
    folder: Path, streamed: Streamed, capsys: pytest.CaptureFixture[str]
) -> None:
    signature = Signature("regression", 1, 1, 12, target_shift=50.0, target_scale=7.0)
    config = small(precision="float64")
    run = run_on(folder, "regression", signature, config)
    values = np.linspace(-1, 2, 25)[:, None]
    expected = predict_sequences(Run.load(run), [values])[0].item()
    lines = "\n".join(map(str, values[:, 0])).encode()
    assert last(streamed(run, given=lines))["value"] == pytest.approx(expected, rel=1e-6)


# ---- snapshots --------------------------------------------------------------------------------


def test_a_snapshot_goes_on(pairs: str, tmp_path: Path, streamed: Streamed) -> None:
    lines = [b"%f %f\n" % (i % 7, i % 5) for i in range(60)]
    whole = last(streamed(pairs, given=b"".join(lines)))
    file = str(tmp_path / "state.safetensors")
    first = streamed(pairs, "--snapshot", file, given=b"".join(lines[:25]))
    assert first[-1]["snapshot"] == file
    second = last(streamed(pairs, "--restore", file, given=b"".join(lines[25:])))
    assert second["probabilities"] == pytest.approx(whole["probabilities"], abs=1e-5)
    assert (second["at"], second["samples"]) == (35, 60)


def test_a_snapshot_of_another_run_or_rate_is_refused(
    pairs: str, sounds: str, tmp_path: Path, streamed: Streamed, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "state")
    streamed(pairs, "--snapshot", file, "--rate", "2", given=b"1 2\n")
    assert "snapshot of another model" in complaint([sounds, "--restore", file], capsys)
    assert "rate 2, this one has 1; give --rate 2" in complaint([pairs, "--restore", file], capsys)
    assert "there is no file" in complaint([pairs, "--restore", f"{file}s"], capsys)


# ---- what is shown ----------------------------------------------------------------------------


def test_plain_lines(
    sounds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], streamed: Streamed
) -> None:
    file = write_sound(tmp_path / "sound.wav", noise(1000))
    best = last(streamed(sounds, file, "--fast"))
    assert main(["stream", sounds, file, "--fast", "--snapshot", str(tmp_path / "s")]) == 0
    *results, heard, latency, factor, written = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in results] == ["0.10", "0.20", "0.25"]
    assert f"{best['class']} {best['probability']:.1%}" in results[-1]
    assert heard == "1000 samples, 0.25 s, in 25 chunks of 40"
    assert [word for word in latency.split() if word[0] in "pm"] == [
        *("p50", "ms", "p95", "ms", "p99", "ms", "max", "ms")
    ]
    assert factor.startswith("real-time factor ")
    assert factor.endswith(" us per sample")
    assert written == f"the state is in {tmp_path / 's'}"


def test_a_source_without_samples(sounds: str, streamed: Streamed) -> None:
    (end,) = streamed(sounds, "--format", "s16")
    assert (end["at"], end["chunks"], end["latency_ms"]["p50"]) == (0, 0, None)
    assert main(["stream", sounds]) == 0


def test_a_terminal_has_one_line_that_changes(sounds: str, tmp_path: Path) -> None:
    file = write_sound(tmp_path / "sound.wav", noise(1000))
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    Stream(sounds, file, fast=True).run(console)
    shown = out.getvalue()
    assert "0.10 s" in shown
    assert "\x1b[2K" in shown  # the line is taken away
    after = shown.rpartition("\x1b[2K")[2]
    assert shown.count("1000 samples, 0.25 s") == 1
    assert "real-time factor" in after
    display = ChangingLine(console)
    display.close()


def test_percentiles_of_many_times() -> None:
    times = np.random.default_rng(0).lognormal(-7, 1, 5000)
    latencies = Latencies()
    for seconds in times:
        latencies.add(float(seconds))
    for percent in (1, 50, 95, 99, 99.9):
        exact = np.percentile(times, percent, method="inverted_cdf")
        assert latencies.percentile(percent) == pytest.approx(exact, rel=0.011)
    assert latencies.percentile(100) == latencies.longest == times.max()
    latencies.add(0.0)
    latencies.add(1e9)
    assert latencies.in_milliseconds()["max"] == 1e12


# ---- the end by Ctrl-C ------------------------------------------------------------------------


@pytest.fixture
def live(pairs: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "s4d_torch", "stream", pairs, "--json"]
    process = subprocess.Popen(
        [*command, "--snapshot", str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with process:
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for a single process")
def test_interruption_ends_with_the_summary(
    live: subprocess.Popen[str], pairs: str, tmp_path: Path
) -> None:
    assert live.stdin is not None
    assert live.stdout is not None
    live.stdin.write("1 2\n3 4\n")
    live.stdin.flush()
    results = [json.loads(live.stdout.readline()) for _ in range(2)]
    assert [result["at"] for result in results] == [1, 2]  # as they come, before the end
    live.send_signal(signal.SIGINT)
    objects = [json.loads(line) for line in live.stdout]
    assert live.wait() == 0
    assert (objects[-1]["event"], objects[-1]["interrupted"]) == ("end", True)
    stream = LiveStream(Run.load(pairs).model)  # type: ignore[arg-type]
    stream.restore(tmp_path / "state")
    assert stream.samples == objects[-1]["samples"] == 2


def test_a_chunk_that_is_being_computed_is_finished_first() -> None:
    with interruptions() as stop:
        signal.raise_signal(signal.SIGINT)  # no exception
        assert stop.asked
        with pytest.raises(KeyboardInterrupt), stop.waiting():
            pytest.fail("it was asked to stop before")
    with interruptions() as stop, pytest.raises(KeyboardInterrupt), stop.waiting():
        signal.raise_signal(signal.SIGINT)


# ---- what is refused --------------------------------------------------------------------------


def test_runs_that_cannot_stream(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    signature = Signature("classification", 1, 2, 12)
    config = small()
    ahead = replace(config, method=config.method.replace(bidirectional=True))
    error = complaint([run_on(folder, "ahead", signature, ahead)], capsys)
    assert "is bidirectional" in error
    assert "train one with --causal" in error
    lstm = replace(config, model=replace(config.model, architecture="lstm"))
    error = complaint([run_on(folder, "lstm", signature, lstm)], capsys)
    assert "RecurrentModel, which answers whole sequences only" in error


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"1 2\n3\n", "line 2: '3' has 1 values; the run reads 2 numbers in each line"),
        (b"1 2\nx y\n", "line 2: 'x y' is no number; for raw sound give --format s16 or f32"),
        (b"1 nan\n", "line 1: '1 nan' is no finite number; --missing hold repeats the last"),
        (b"1 2\n1 1e300\n", "line 2: '1 1e300' is no finite number"),
    ],
)
def test_bad_lines_are_named(
    given: bytes,
    message: str,
    pairs: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert message in complaint([pairs], capsys)


def test_missing_values_can_be_held(pairs: str, sounds: str, streamed: Streamed) -> None:
    given = b"1 2\nnan 3\ninf nan\n4 5\n", b"1 2\n1 3\n1 3\n4 5\n"
    for chunk in ("1", "3"):
        found = [streamed(pairs, "--missing", "hold", "--chunk", chunk, given=x) for x in given]
        assert last(found[0])["probabilities"] == last(found[1])["probabilities"]
    raw = [np.array([0.5, *gap, 0.1], "<f4").tobytes() for gap in ([np.nan] * 9, [0.5] * 9)]
    options = "--missing", "hold", "--format", "f32", "--chunk", "4"
    found = [streamed(sounds, *options, given=x) for x in raw]
    assert last(found[0])["probabilities"] == last(found[1])["probabilities"]


def test_nothing_is_held_before_the_first_sample(
    pairs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"nan 1\n")))
    error = complaint([pairs, "--missing", "hold"], capsys)
    assert "line 1: 'nan 1' is no finite number, and none came before to be held" in error


def test_raw_samples_that_are_no_numbers(
    sounds: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = np.array([0] * 90 + [np.inf], "<f4").tobytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    error = complaint([sounds, "--format", "f32"], capsys)
    assert "sample 90 is no finite number" in error


def test_misuse_is_explained(
    sounds: str, pairs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_sound(tmp_path / "sound.wav", noise(100))
    two = write_sound(tmp_path / "two.wav", noise(100), channels=2)
    (tmp_path / "numbers.csv").touch()
    table = str(tmp_path / "numbers.csv")
    assert "has 2 channels; the run was trained on 1" in complaint([sounds, two], capsys)
    assert "there is no file absent.wav" in complaint([sounds, "absent.wav"], capsys)
    assert f"'s4d stream RUN - < {table}'" in complaint([sounds, table], capsys)
    for arguments, message in {
        ("--chunk", "0"): "--chunk must be at least 1, got 0",
        ("--rate", "-1"): "--rate must be above 0, got -1.0",
        ("--sample-rate", "0"): "--sample-rate must be above 0, got 0.0",
        ("--fast",): "--fast is for sound files",
        ("--format", "bytes"): "--format bytes: the run reads signals",
        (file, "--missing", "hold"): "are for standard input, not for files",
        (file, "--format", "s16"): "are for standard input, not for files",
    }.items():
        assert message in complaint([sounds, *arguments], capsys, code=2)


def test_threads_are_as_before(sounds: str, streamed: Streamed) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        streamed(sounds)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
