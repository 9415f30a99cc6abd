"""Folders of sounds as users have them: mixed rates, stereo, mp3, broken files, other files."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s4d_torch.cli import main
from s4d_torch.data import TASKS, DataFolder, Dataset
from s4d_torch.data.dataset import Array
from s4d_torch.data.files.sound import mixed_down, resampled, write_wav
from s4d_torch.data.user_files.audio_folder import AudioFolderOptions, load_audio_folder
from s4d_torch.data.user_files.inputs import read_items


def tone(pitch: float, rate: int, seconds: float = 0.05) -> Array:
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """Two classes of ten tones each, at 4000 samples per second."""
    root = tmp_path / "sounds"
    for pitch, name in ((200, "low"), (600, "high")):
        (root / name).mkdir(parents=True)
        for i in range(10):
            write_wav(root / name / f"{i}.wav", tone(pitch + i, 4000), 4000)
    return root


def load(path: Path, **options: Any) -> Dataset:
    return load_audio_folder(AudioFolderOptions(path, **options), DataFolder(path.parent / "data"))


def write_stereo(path: Path, samples: Array, rate: int) -> None:
    import soundfile

    soundfile.write(path, np.stack([samples, np.zeros_like(samples)], axis=1), rate, "PCM_16")


def test_mixed_rates_are_brought_to_one(sounds: Path) -> None:
    for i in range(4):
        write_wav(sounds / "low" / f"{i}.wav", tone(200 + i, 22050), 22050)
    with pytest.raises(ValueError, match=r"do not have 4000 .* resample=4000 \(--data\.resample"):
        load(sounds)
    data = load(sounds, resample=4000)
    assert (data.signature.sample_rate, data.signature.length) == (4000, 200)
    assert data.train.cases is not None
    stored = list(data.train.cases).index("low/0.wav")
    samples = data.train.inputs[0][stored][:, 0] / 32768
    np.testing.assert_allclose(samples[20:-20], tone(200, 4000)[20:-20], atol=2e-3)


def test_what_a_lower_rate_cannot_carry_is_filtered_out() -> None:
    high = tone(3000, 16000, 0.2)[:, None]
    assert np.abs(resampled(high, 16000, 4000)[50:-50]).max() < 0.01
    loud = np.full((400, 1), 32767, np.int16)
    assert resampled(loud, 4000, 8000).dtype == np.int16
    assert resampled(loud, 4000, 8000).min() > -100  # no overflow into the other sign


def test_without_scipy_the_error_names_the_extra(
    sounds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    with pytest.raises(ImportError, match=r"resampled sounds need scipy.*s4d-torch\[audio\]"):
        load(sounds, resample=2000)


def test_stereo_is_mixed_down(sounds: Path) -> None:
    write_stereo(sounds / "low" / "0.wav", tone(200, 4000), 4000)
    with pytest.raises(ValueError, match=r"1 of 20 files .* 1 channels.*mono=True \(--data\.mono"):
        load(sounds)
    data = load(sounds, mono=True)
    assert data.signature.features == 1
    stored = list(data.train.cases if data.train.cases is not None else ()).index("low/0.wav")
    samples = data.train.inputs[0][stored][:, 0] / 32768
    np.testing.assert_allclose(samples, tone(200, 4000) / 2, atol=1e-4)
    assert mixed_down(np.array([[1, 2], [-3, -4]], np.int16)).tolist() == [[2], [-4]]


def test_mp3_and_flac_are_read_where_soundfile_reads_them(sounds: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    if "MP3" not in soundfile.available_formats():
        pytest.skip("this libsndfile has no MP3")
    soundfile.write(sounds / "low" / "a.mp3", tone(200, 8000, 1.0), 8000)
    soundfile.write(sounds / "high" / "a.flac", tone(600, 4000), 4000)
    data = load(sounds, resample=4000)
    cases = data.train.cases
    assert cases is not None
    assert {"low/a.mp3", "high/a.flac"} <= set(cases)
    mp3 = data.train.inputs[0][list(cases).index("low/a.mp3")][:, 0]
    assert np.abs(mp3[1000:3000]).max() == pytest.approx(0.5, abs=0.05)


def test_all_bad_files_are_named_at_once_or_skipped(sounds: Path) -> None:
    whole = (sounds / "low" / "1.wav").read_bytes()
    (sounds / "low" / "1.wav").write_bytes(whole[:100])  # cut short
    (sounds / "high" / "2.wav").write_text("no sound")
    write_wav(sounds / "low" / "3.wav", np.zeros(0), 4000)  # found only by reading it
    with pytest.raises(ValueError, match="3 of 20 files cannot be read") as caught:
        load(sounds)
    for name in ("low/1.wav", "high/2.wav", "low/3.wav", "--data.skip-bad"):
        assert name in str(caught.value)
    for _ in range(2):  # also when it was prepared before
        with pytest.warns(UserWarning, match=r"3 of 20 files .* left out: high/2\.wav; low/1\.wav"):
            data = load(sounds, skip_bad=True)
        assert sum(len(split) for split in data.splits.values()) == 17


def test_a_class_whose_files_are_all_bad_is_not_skipped(sounds: Path) -> None:
    for file in (sounds / "low").iterdir():
        file.write_text("no sound")
    with pytest.raises(ValueError, match="Nothing is left of low"):
        load(sounds, skip_bad=True)


def test_many_bad_files_are_counted(sounds: Path) -> None:
    for file in (*(sounds / "low").iterdir(), *(sounds / "high").glob("[0-4].wav")):
        file.write_text("no sound")
    with pytest.raises(ValueError, match=r"15 of 20 files cannot be read.*and 5 more"):
        load(sounds)


def test_rates_and_channels_to_predict_from_are_those_of_training(sounds: Path) -> None:
    data = load(sounds, resample=4000, mono=True)
    write_stereo(sounds.parent / "new.wav", tone(200, 22050), 22050)
    options = AudioFolderOptions(sounds, resample=4000, mono=True)
    (item,) = read_items(sounds.parent / "new.wav", data.signature, TASKS["audio-folder"], options)
    assert (item.values.shape, item.sample_rate) == ((200, 1), 4000)
    plain = AudioFolderOptions(sounds)
    with pytest.raises(ValueError, match=r"2 channels.* trained on 1; .* --data\.mono"):
        read_items(sounds.parent / "new.wav", data.signature, TASKS["audio-folder"], plain)


@pytest.mark.filterwarnings("default")  # shown to the user
def test_the_command_line_has_the_options(sounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_stereo(sounds / "low" / "0.wav", tone(200, 8000), 8000)
    (sounds / "low" / "1.wav").write_text("no sound")
    (sounds / "notes.txt").touch()
    (sounds / ".DS_Store").touch()
    options = ["--data.resample", "4000", "--data.mono", "--data.skip-bad", "--dry-run"]
    assert main(["train", str(sounds), *options, "--data-dir", str(sounds.parent / "d")]) == 0
    said = capsys.readouterr().err
    assert "2 files are not read" in said
    assert ".DS_Store; notes.txt" in said
    assert "left out: low/1.wav" in said


def test_rates_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="resample -1"):
        AudioFolderOptions(tmp_path, resample=-1)
    with pytest.raises(ValueError, match="choose one of them"):
        AudioFolderOptions(tmp_path, resample=8000, sample_rate=8000)
