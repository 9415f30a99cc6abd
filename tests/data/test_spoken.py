"""Spoken digits that come with the package, and the tasks that generate without a download."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from s4d_torch.data import TASKS, DataFolder
from s4d_torch.data.tasks import spoken
from s4d_torch.data.tasks.digits import load_digits
from s4d_torch.data.tasks.quantization import decode_mu_law
from s4d_torch.data.tasks.spoken import SpokenOptions, load_spoken

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = DataFolder(Path("nowhere"))


def test_splits_are_by_takes_and_balanced() -> None:
    data = load_spoken()
    assert [len(split) for split in data.splits.values()] == [420, 60, 120]
    for split, each in zip(data.splits.values(), (42, 6, 12), strict=True):
        assert np.array_equal(np.bincount(split.labels()), np.full(10, each))
    with np.load(spoken.CLIPS) as stored:
        takes = {name: set(stored["takes"][split.index]) for name, split in data.splits.items()}
        for split in data.splits.values():
            assert set(stored["speakers"][split.index]) == {0, 1, 2}
    assert takes["test"] == set(range(4))
    assert takes["validation"] == {4, 5}
    assert takes["train"] == set(range(6, 20))


def test_no_clip_is_there_twice() -> None:
    clips = load_spoken().train.inputs[0]
    assert len({clips[i].tobytes() for i in range(len(clips))}) == len(clips) == 600


def test_clips_are_sound_at_full_loudness() -> None:
    data = load_spoken()
    clips = data.train.inputs[0]
    assert clips.values.dtype == np.int16
    assert (clips.longest, data.signature.length, data.signature.sample_rate) == (4000, 4000, 8000)
    read = data.batch(data.train, np.arange(len(data.train)))
    assert read.lengths is not None
    loudness = (read.inputs.double() ** 2).sum() / read.lengths.sum()
    assert loudness == pytest.approx(1, abs=1e-3)
    # the loudest sample may lie after the half second that is kept
    peaks = [np.abs(clips[i].astype(int)).max() for i in range(len(clips))]
    assert np.median(peaks) == spoken.LOUDEST


def test_half_the_rate_is_every_second_sample() -> None:
    whole, half = load_spoken(), load_spoken(SpokenOptions(sample_rate=4000))
    assert (half.signature.sample_rate, half.signature.length) == (4000, 2000)
    assert half.signature.input_scale == whole.signature.input_scale
    for i in whole.test.index[::17]:
        assert np.array_equal(half.test.inputs[0][i], whole.test.inputs[0][i][::2])
    with pytest.raises(ValueError, match="sample_rate 16000: choose 8000 or 4000"):
        SpokenOptions(sample_rate=16000)  # type: ignore[arg-type]


def test_it_is_small_and_comes_with_its_licence() -> None:
    assert spoken.CLIPS.stat().st_size < 10**6
    licence = spoken.CLIPS.with_name("spoken.licence.txt").read_text("utf-8")
    assert TASKS["spoken"].licence in licence
    assert "Changes:" in licence


def test_next_samples_are_the_levels_that_are_stored() -> None:
    task = TASKS["spoken-audio"]
    data = task.load(task.options(), NOWHERE)
    with np.load(spoken.CLIPS) as stored:
        assert np.array_equal(data.train.inputs[0].values, stored["levels"])
    assert (data.signature.features, data.signature.outputs) == (33, 32)


def test_next_pixels_are_the_pixels() -> None:
    task = TASKS["digits-pixels"]
    data = task.load(task.options(), NOWHERE)
    assert np.array_equal(data.test.inputs[0].values, load_digits().test.inputs[0].values[..., 0])
    assert (data.signature.outputs, data.signature.length, data.signature.quantization) == (
        *(17, 64),
        "linear",
    )


def test_clips_are_those_of_the_original_recordings(real_data: Callable[..., Path]) -> None:
    recordings = real_data("fsdd") / "fsdd" / "recordings"
    source = importlib.util.spec_from_file_location("embed", ROOT / "benchmarks/embed_spoken.py")
    assert source is not None
    assert source.loader is not None
    script = importlib.util.module_from_spec(source)
    source.loader.exec_module(script)
    made = script.embedded(recordings)
    with np.load(spoken.CLIPS) as stored:
        assert set(stored) == set(made)
        for name, values in made.items():
            assert np.array_equal(stored[name], values)


def test_levels_stand_for_themselves() -> None:
    assert decode_mu_law(np.array([0, spoken.LEVELS - 1]), spoken.LEVELS).tolist() == [-1, 1]
