"""Sound: the wav reader, and the tasks made of sound files."""

import struct
import sys
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from s4d_torch.data.dataset import Dataset, Split
from s4d_torch.data.files.sound import full_scale, inspect_audio, read_audio
from s4d_torch.data.folder import DataFolder, MissingDataError
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks.fsdd import FsddOptions, load_fsdd
from s4d_torch.data.tasks.speech import WORDS, SpeechOptions, load_speech
from s4d_torch.data.user_files.audio_folder import AudioFolderOptions, load_audio_folder

Array = npt.NDArray[Any]

# ---- files ------------------------------------------------------------------------------------


def chunk(name: bytes, content: bytes, size: int | None = None) -> bytes:
    declared = len(content) if size is None else size
    return struct.pack("<4sI", name, declared) + content + b"\0" * (len(content) % 2)


def fmt(encoding: int, channels: int, rate: int, bits: int, extra: bytes = b"") -> bytes:
    frame = channels * bits // 8
    return chunk(
        b"fmt ", struct.pack("<HHIIHH", encoding, channels, rate, rate * frame, frame, bits) + extra
    )


def riff(*chunks: bytes, size: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if size is None else size) + body


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_wav(
    path: Path, samples: Sequence[int] | Array, rate: int = 16000, channels: int = 1
) -> Path:
    data = np.asarray(samples, dtype="<i2").tobytes()
    return write(path, riff(fmt(1, channels, rate, 16), chunk(b"data", data)))


PCM16 = struct.pack("<4h", 0, 1, -32768, 32767)


@pytest.mark.parametrize(
    ("encoding", "bits", "data", "expected"),
    [
        (1, 8, bytes([128, 129, 0, 255]), np.array([0, 256, -32768, 32512], np.int16)),
        (1, 16, PCM16, np.array([0, 1, -32768, 32767], np.int16)),
        (
            1,
            24,
            b"\x00\x00\x00\x01\x00\x00\x00\x00\x80\xff\xff\x7f",
            np.array([0, 256, -(2**31), 2**31 - 256], np.int32),
        ),
        (1, 32, struct.pack("<2i", -(2**31), 5), np.array([-(2**31), 5], np.int32)),
        (3, 32, struct.pack("<2f", 0.5, -1.5), np.array([0.5, -1.5], np.float32)),
        (3, 64, struct.pack("<2d", 0.1, -1.0), np.array([0.1, -1.0], np.float64)),
    ],
)
def test_each_encoding_gives_its_numbers(
    tmp_path: Path, encoding: int, bits: int, data: bytes, expected: Array
) -> None:
    path = write(tmp_path / "a.wav", riff(fmt(encoding, 1, 8000, bits), chunk(b"data", data)))
    samples, rate = read_audio(path)
    assert rate == 8000
    assert samples.dtype == expected.dtype
    np.testing.assert_array_equal(samples, expected[:, None])
    form = inspect_audio(path)
    assert (form.frames, form.channels, form.dtype) == (len(expected), 1, expected.dtype)


def test_full_scale_is_the_range_of_the_type() -> None:
    assert [full_scale(np.dtype(kind)) for kind in ("i2", "i4", "f4")] == [2**15, 2**31, 1]


def test_what_the_standard_library_writes_is_read_back(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(-32768, 32768, (101, 2), dtype=np.int16)
    with wave.open(str(tmp_path / "a.WAV"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(44100)
        file.writeframes(frames.tobytes())
    samples, rate = read_audio(tmp_path / "a.WAV")
    assert rate == 44100
    np.testing.assert_array_equal(samples, frames)


def extensible(code: int) -> bytes:
    guid = struct.pack("<H", code) + bytes.fromhex("000000001000800000aa00389b71")
    return struct.pack("<HHI", 22, 16, 0) + guid


@pytest.mark.parametrize(
    "content",
    [
        riff(chunk(b"LIST", b"odd"), fmt(1, 2, 8000, 16), chunk(b"data", PCM16)),
        riff(fmt(1, 2, 8000, 16, b"\0\0\0"), chunk(b"fact", b"12345"), chunk(b"data", PCM16)),
        riff(fmt(1, 2, 8000, 16), chunk(b"data", PCM16), chunk(b"LIST", b"after")),
        riff(fmt(0xFFFE, 2, 8000, 16, extensible(1)), chunk(b"data", PCM16)),
        riff(fmt(1, 2, 8000, 16), chunk(b"data", PCM16, 0xFFFFFFFF), size=0xFFFFFFFF),
        riff(fmt(1, 2, 8000, 16), chunk(b"data", PCM16, 0x7FFFF000), size=0x7FFFF024),
        riff(fmt(1, 2, 8000, 16), chunk(b"data", PCM16, 0), size=0),
        riff(fmt(1, 2, 8000, 16), chunk(b"data", PCM16, 0), size=36),
        riff(fmt(1, 2, 8000, 16), chunk(b"data", PCM16 + b"\1", 0xFFFFFFFF), size=0),
    ],
    ids=[
        "odd chunk before",
        "odd fmt, odd fact",
        "chunk after",
        "extensible",
        "streamed, size -1",
        "streamed, size of sox",
        "streamed, size 0",
        "never finished",
        "streamed, half a frame",
    ],
)
def test_unusual_but_sound_files_are_read(tmp_path: Path, content: bytes) -> None:
    samples, _ = read_audio(write(tmp_path / "a.wav", content))
    np.testing.assert_array_equal(samples, [[0, 1], [-32768, 32767]])


def test_an_empty_file_with_notes_after_it_has_no_samples(tmp_path: Path) -> None:
    content = riff(fmt(1, 1, 8000, 16), chunk(b"data", b""), chunk(b"LIST", b"abcd"))
    assert read_audio(write(tmp_path / "a.wav", content))[0].shape == (0, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a wav file; it begins with b''"),
        (b"ID3\x04 an mp3 file", "not a wav file; it begins with b'ID3"),
        (riff(fmt(1, 1, 8000, 16))[:16], "the file ends without a chunk 'fmt '"),
        (riff(fmt(1, 1, 8000, 16))[:30], "'fmt ' has 10 bytes, expected 16 or more"),
        (riff(fmt(1, 1, 8000, 16)), "the file ends without a chunk 'data'"),
        (riff(fmt(1, 1, 8000, 16), chunk(b"data", PCM16))[:-2], "declares 8 .* and holds 6"),
        (riff(chunk(b"data", PCM16)), "'data' comes before 'fmt '"),
        (riff(chunk(b"fmt ", b"1234"), chunk(b"data", PCM16)), "'fmt ' has 4 bytes, expected 16"),
        (riff(fmt(7, 1, 8000, 8), chunk(b"data", PCM16)), "mu-law of 8 bits; expected PCM of 8"),
        (riff(fmt(0xFFFE, 1, 8000, 8, extensible(6)), chunk(b"data", PCM16)), "A-law of 8 bits"),
        (riff(fmt(1, 1, 8000, 64), chunk(b"data", PCM16)), "PCM of 64 bits"),
        (riff(fmt(99, 1, 8000, 16), chunk(b"data", PCM16)), "encoding 99 of 16 bits"),
        (riff(fmt(1, 0, 8000, 16), chunk(b"data", PCM16)), "0 channels of 16 bits at 8000 Hz"),
        (riff(fmt(1, 1, 0, 16), chunk(b"data", PCM16)), "1 channels of 16 bits at 0 Hz"),
        (
            riff(fmt(3, 2, 8000, 32), chunk(b"data", struct.pack("<4f", 0, 1, 2, float("nan")))),
            "sample 1 of channel 1 is nan",
        ),
    ],
)
def test_broken_files_are_named_with_what_is_wrong(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = write(tmp_path / "broken.wav", content)
    with pytest.raises(ValueError, match=rf"broken\.wav: .*{message}"):
        read_audio(path)


def test_without_soundfile_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"\.flac files need soundfile.*s4d-torch\[audio\]"):
        read_audio(tmp_path / "a.flac")


@pytest.mark.parametrize(("subtype", "dtype"), [("PCM_16", "int16"), ("PCM_24", "float32")])
def test_flac_goes_through_soundfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtype: str, dtype: str
) -> None:
    def info(path: str) -> SimpleNamespace:
        if "broken" in path:
            raise RuntimeError("unknown format")
        return SimpleNamespace(samplerate=22050, channels=1, frames=3, subtype=subtype)

    def read(path: str, *, dtype: str, always_2d: bool) -> tuple[Array, int]:
        assert always_2d
        return np.ones((3, 1), dtype), 22050

    monkeypatch.setitem(sys.modules, "soundfile", SimpleNamespace(info=info, read=read))
    samples, rate = read_audio(tmp_path / "a.flac")
    assert (samples.dtype, samples.shape, rate) == (np.dtype(dtype), (3, 1), 22050)
    with pytest.raises(ValueError, match=r"broken\.ogg: soundfile cannot read it: unknown format"):
        inspect_audio(tmp_path / "broken.ogg")


# ---- Speech Commands --------------------------------------------------------------------------


def tone(seed: int, length: int = 16000) -> Array:
    return np.random.default_rng(seed).integers(-1000, 1000, length, dtype=np.int16)


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """Two words; per word 4 training clips, 2 of validation, 1 of test, and noise to ignore."""
    root = tmp_path / "speech_commands"
    listed: dict[str, list[str]] = {"validation": [], "testing": []}
    for w, word in enumerate(("yes", "no")):
        for i in range(7):
            name = f"{word}/{i:08x}_nohash_0.wav"
            write_wav(root / name, tone(10 * w + i))
            if i >= 4:
                listed["validation" if i < 6 else "testing"].append(name)
    listed["testing"].append("bed/00000000_nohash_0.wav")  # a word that is not there
    for split, names in listed.items():
        (root / f"{split}_list.txt").write_text("\n".join(names) + "\n")
    write_wav(root / "_background_noise_" / "hum.wav", tone(99, 100000))
    return root


def load_words(root: Path, *words: str, **options: Any) -> Dataset:
    options["words"] = words
    return load_speech(SpeechOptions(**options), DataFolder(root.parent, download=False))


def rows(split: Split) -> set[bytes]:
    return {split.inputs[0][int(i)].tobytes() for i in split.index}


def require_disjoint(data: Dataset) -> None:
    parts = [rows(split) for split in data.splits.values()]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_speech_is_split_by_the_lists(speech: Path) -> None:
    data = load_words(speech)
    assert data.signature.classes == ("no", "yes")
    assert [len(split) for split in data.splits.values()] == [8, 4, 2]
    assert data.test.labels().tolist() == [0, 1]
    no, yes = (data.test.inputs[0][int(i)][:, 0] for i in data.test.index)
    np.testing.assert_array_equal(no, tone(16))
    np.testing.assert_array_equal(yes, tone(6))
    require_disjoint(data)
    batch = data.batch(data.train, np.arange(8))
    assert batch.inputs.shape == (8, 16000, 1)
    assert batch.lengths is None
    assert float(batch.inputs.square().mean()) == pytest.approx(1, rel=1e-4)
    assert data.train.inputs[0].values.dtype == np.int16
    assert load_words(speech, "yes", "no").signature.classes == ("yes", "no")


def test_speech_at_8000_is_every_second_sample(speech: Path) -> None:
    data, thin = load_words(speech), load_words(speech, sample_rate=8000)
    assert (thin.signature.length, thin.signature.sample_rate) == (8000, 8000)
    full = data.batch(data.test, np.arange(2)).inputs
    assert torch.equal(thin.batch(thin.test, np.arange(2)).inputs, full[:, ::2])


@pytest.mark.parametrize("sample_rate", [16000, 8000])
def test_a_few_clips_are_of_all_words(speech: Path, sample_rate: int) -> None:
    data = load_words(speech, sample_rate=sample_rate)
    few = data.shortened(train=data.signature.outputs, test=data.signature.outputs)
    for split in few.splits.values():
        assert sorted(split.labels()) == list(range(data.signature.outputs))


def test_short_clips_end_in_zeros_and_long_ones_are_cut(speech: Path) -> None:
    write_wav(speech / "no/00000006_nohash_0.wav", tone(1, 9000))
    write_wav(speech / "yes/00000006_nohash_0.wav", tone(2, 17000))
    with pytest.warns(UserWarning, match="1 clips of more than 16000 samples are cut"):
        data = load_words(speech)
    short, long = (data.test.inputs[0][int(i)][:, 0] for i in data.test.index)
    np.testing.assert_array_equal(short[:9000], tone(1, 9000))
    assert not short[9000:].any()
    np.testing.assert_array_equal(long, tone(2, 17000)[:16000])


def test_no_sound_is_in_two_splits(speech: Path) -> None:
    sound = (speech / "yes/00000006_nohash_0.wav").read_bytes()  # of the test list
    (speech / "yes/00000000_nohash_0.wav").write_bytes(sound)  # training
    (speech / "no/00000004_nohash_0.wav").write_bytes(sound)  # validation
    twice = (speech / "no/00000001_nohash_0.wav").read_bytes()
    (speech / "no/00000002_nohash_0.wav").write_bytes(twice)  # within training: stays
    data = load_words(speech)
    assert [len(split) for split in data.splits.values()] == [7, 3, 2]
    require_disjoint(data)


def test_without_test_clips_half_of_the_validation_speakers_test(speech: Path) -> None:
    for path in speech.glob("*/00000006_*"):
        path.unlink()
    write_wav(speech / "yes/00000005_nohash_1.wav", tone(77))
    with (speech / "validation_list.txt").open("a") as file:
        file.write("yes/00000005_nohash_1.wav\n")
    for _ in range(2):  # also when it was prepared before
        with pytest.warns(UserWarning, match=r"no clip of testing_list\.txt is there; half of"):
            data = load_words(speech)
        assert [len(split) for split in data.splits.values()] == [8, 3, 2]
    require_disjoint(data)
    assert rows(data.test) == {tone(4)[:, None].tobytes(), tone(14)[:, None].tobytes()}


def test_folds_keep_every_speaker_back_once(speech: Path) -> None:
    """In each fold no speaker is in two splits, and over all folds each clip is tried once."""
    for i in range(20):  # of ten more speakers, two words each
        word = ("no", "yes")[i // 10]
        write_wav(speech / f"{word}/000001{i % 10:02}_nohash_0.wav", tone(100 + i))
    clips, held_back = set.union(*map(rows, load_words(speech).splits.values())), []
    for fold in range(5):
        data = load_words(speech, fold=fold)
        require_disjoint(data)
        assert set.union(*map(rows, data.splits.values())) == clips
        speakers = [set(split.groups[split.index]) for split in data.splits.values()]
        assert min(map(len, speakers)) > 0
        assert len(set.union(*speakers)) == sum(map(len, speakers)) == 17
        held_back += [*rows(data.validation), *rows(data.test)]
    assert sorted(held_back) == sorted(clips)


def test_added_clips_are_noticed(speech: Path) -> None:
    assert len(load_words(speech).train) == 8
    write_wav(speech / "no/0000000a_nohash_0.wav", tone(55))
    assert len(load_words(speech).train) == 9


def test_speech_options_and_files_are_checked(speech: Path) -> None:
    with pytest.raises(ValueError, match="unknown word 'yess'; did you mean 'yes'"):
        SpeechOptions(("yess", "no"))
    with pytest.raises(ValueError, match="expected two or more different"):
        SpeechOptions(("yes", "yes"))
    with pytest.raises(ValueError, match="expected two or more different"):
        SpeechOptions(("yes",))
    with pytest.raises(ValueError, match="sample_rate 4000: choose 16000 or 8000"):
        SpeechOptions(sample_rate=4000)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fold 5: choose one of 0 to 4, or none"):
        SpeechOptions(fold=5)
    with pytest.raises(MissingDataError, match="no folder for bed, cat; there are no, yes"):
        load_words(speech, "yes", "bed", "cat")
    write_wav(speech / "no/00000000_nohash_0.wav", tone(0), rate=8000)
    with pytest.raises(ValueError, match=r"00000000_nohash_0\.wav: 1 channels of int16 at 8000 Hz"):
        load_words(speech)
    (speech / "testing_list.txt").unlink()
    with pytest.raises(MissingDataError, match=r"testing_list\.txt is missing"):
        load_words(speech)


def test_speech_without_a_split_is_an_error(speech: Path) -> None:
    (speech / "validation_list.txt").write_text("")
    with pytest.raises(MissingDataError, match="no clip for the validation split"):
        load_words(speech)


def test_the_official_words_are_35() -> None:
    assert len(set(WORDS)) == 35
    assert list(WORDS) == sorted(WORDS)


def linked(tmp_path: Path, root: Path, name: str) -> DataFolder:
    """A data folder of its own, so that what is prepared is prepared by this test."""
    (tmp_path / name).symlink_to(root / name)
    return DataFolder(tmp_path, download=False)


def test_real_speech(real_data: Callable[..., Path], tmp_path: Path) -> None:
    folder = linked(tmp_path, real_data("speech_commands"), "speech_commands")
    with pytest.warns(UserWarning, match="half of the validation clips"):
        data = load_speech(SpeechOptions(), folder)
    words = ("down", "eight", "five", "go", "left", "one", "right", "up", "zero")
    assert data.signature.classes == words
    assert [len(split) for split in data.splits.values()] == [1800, 180, 180]
    assert np.bincount(data.train.labels()).tolist() == [200] * 9
    assert np.bincount(data.validation.labels(), minlength=9).min() > 5
    assert np.bincount(data.test.labels(), minlength=9).min() > 5
    require_disjoint(data)
    first = data.train.inputs[0][int(data.train.index[0])][:, 0]
    assert first[:4].tolist() == [-5, -4, -4, -5]  # down/00176480_nohash_0.wav
    ends = data.train.inputs[0].values[data.train.index, -1, 0]
    assert (ends == 0).mean() > 0.08  # a tenth of the clips is shorter than a second


# ---- spoken digits ----------------------------------------------------------------------------


def write_digits(recordings: Path) -> None:
    for digit in range(3):
        for take in range(15):
            length = 8100 if take == 7 else 100 + 10 * take + digit
            write_wav(recordings / f"{digit}_ada_{take}.wav", tone(digit * 50 + take, length), 8000)


@pytest.mark.parametrize(
    "place",
    [
        "fsdd/recordings",
        "fsdd/free-spoken-digit-dataset-master/recordings",
        "free-spoken-digit-dataset-master/recordings",
    ],
)
def test_digits_are_ragged_and_split_by_take(tmp_path: Path, place: str) -> None:
    write_digits(tmp_path / place)
    data = load_fsdd(FsddOptions(), DataFolder(tmp_path, download=False))
    assert [len(split) for split in data.splits.values()] == [27, 3, 15]
    require_disjoint(data)
    assert data.signature.length == 8000
    assert data.test.labels().tolist() == [0] * 5 + [1] * 5 + [2] * 5
    clip = data.test.inputs[0][int(data.test.index[6])]
    assert (clip.dtype, clip.shape) == (np.dtype(np.int16), (111, 1))
    np.testing.assert_array_equal(clip[:, 0], tone(51, 111))
    batch = data.batch(data.test, np.array([0, 6]))
    assert batch.inputs.shape == (2, 111, 1)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [100, 111]
    assert not batch.inputs[0, 100:].any()


def test_a_few_clips_are_of_all_digits(tmp_path: Path) -> None:
    write_digits(tmp_path / "fsdd" / "recordings")
    data = load_fsdd(FsddOptions(), DataFolder(tmp_path))
    few = data.shortened(train=10, test=10)
    assert len(set(few.train.labels())) == len(set(data.train.labels()))
    assert len(set(few.test.labels())) == len(set(data.test.labels()))


def test_digits_depend_on_the_options_only(tmp_path: Path) -> None:
    write_digits(tmp_path / "fsdd/recordings")
    folder = DataFolder(tmp_path, download=False)
    first, again = (load_fsdd(FsddOptions(split_seed=3), folder) for _ in range(2))
    assert first.validation.index.tolist() == again.validation.index.tolist()
    other = load_fsdd(FsddOptions(split_seed=4), folder)
    assert first.validation.index.tolist() != other.validation.index.tolist()
    assert load_fsdd(FsddOptions(max_seconds=0.02), folder).signature.length == 160


def test_odd_digit_files_are_named(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path, download=False)
    (tmp_path / "fsdd").mkdir()
    with pytest.raises(MissingDataError, match=r"no folder 'recordings'; unpack master\.zip"):
        load_fsdd(FsddOptions(), folder)
    recordings = tmp_path / "fsdd/recordings"
    write_wav(recordings / "0_ada_0.wav", tone(0, 10), 8000)
    with pytest.raises(MissingDataError, match="1 clips make splits of 0, 0 and 1"):
        load_fsdd(FsddOptions(), folder)
    write_wav(recordings / "0_ada_1.wav", [], 8000)
    with pytest.raises(ValueError, match=r"0_ada_1\.wav: no samples"):
        load_fsdd(FsddOptions(), folder)
    write_wav(recordings / "0_ada_1.wav", tone(0, 10), 16000)
    with pytest.raises(ValueError, match=r"0_ada_1\.wav: .* at 16000 Hz, expected .* 8000 Hz"):
        load_fsdd(FsddOptions(), folder)
    write_wav(recordings / "zero_ada_2.wav", tone(0, 10), 8000)
    with pytest.raises(ValueError, match=r"zero_ada_2\.wav: expected a name like"):
        load_fsdd(FsddOptions(), folder)
    with pytest.raises(ValueError, match="max_seconds 0: expected at least one sample"):
        FsddOptions(max_seconds=0)


def test_real_digits(real_data: Callable[..., Path], tmp_path: Path) -> None:
    folder = linked(tmp_path, real_data("fsdd"), "fsdd")
    data = load_fsdd(FsddOptions(), folder)
    assert [len(split) for split in data.splits.values()] == [2430, 270, 300]
    assert np.bincount(data.test.labels()).tolist() == [30] * 10
    require_disjoint(data)
    lengths = data.train.inputs[0].lengths(np.arange(3000))
    assert (lengths.min(), lengths.max(), (lengths == 8000).sum()) == (1148, 8000, 20)
    first = data.test.inputs[0][int(data.test.index[0])][:, 0]
    assert first[:4].tolist() == [-1489, -962, -606, 163]  # 0_george_0.wav
    assert len(first) == 2384


# ---- a user's own sounds ----------------------------------------------------------------------


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """Ten files of each of two classes, in two channels, some of them deeper down."""
    root = tmp_path / "sounds"
    for c, name in enumerate(("bird", "rain")):
        for i in range(10):
            place = root / name / "deep" / "er" if i % 2 else root / name
            write_wav(place / f"{i}.wav", tone(20 * c + i, 2 * (50 + i)), 4000, channels=2)
    (root / ".hidden").mkdir()
    return root


def load_sounds(path: Path, **options: Any) -> Dataset:
    folder = DataFolder(path.parent / "data", download=False)
    return load_audio_folder(AudioFolderOptions(path, **options), folder)


def test_sounds_are_split_class_by_class(sounds: Path) -> None:
    data = load_sounds(sounds)
    assert data.signature.classes == ("bird", "rain")
    assert (data.signature.features, data.signature.sample_rate) == (2, 4000)
    assert data.signature.length == 59
    assert np.bincount(data.train.labels()).tolist() == [7, 7]
    assert np.bincount(data.validation.labels()).tolist() == [1, 1]
    assert np.bincount(data.test.labels()).tolist() == [2, 2]
    require_disjoint(data)
    assert len(rows(data.train) | rows(data.validation) | rows(data.test)) == 20
    assert data.train.inputs[0].values.dtype == np.int16
    assert load_sounds(sounds).test.index.tolist() == data.test.index.tolist()
    assert load_sounds(sounds, split_seed=1).test.index.tolist() != data.test.index.tolist()
    assert load_sounds(sounds, max_seconds=0.01).signature.length == 40


def test_one_file_of_more_than_16_bits_makes_all_floats(sounds: Path) -> None:
    data = struct.pack("<4f", 0.5, -0.25, 1.0, 0.0)
    write(sounds / "bird" / "0.wav", riff(fmt(3, 2, 4000, 32), chunk(b"data", data)))
    stored = load_sounds(sounds).train.inputs[0]
    assert stored.values.dtype == np.float32
    assert stored[0].tolist() == [[0.5, -0.25], [1.0, 0.0]]
    np.testing.assert_array_equal(stored[1][:, 0], tone(2, 104)[::2] / np.float32(32768))


@pytest.mark.parametrize("validation", ["validation", "val", None])
def test_splits_of_the_user_are_kept(tmp_path: Path, validation: str | None) -> None:
    root = tmp_path / "made"
    for name in filter(None, ("train", validation, "test")):
        for kind in ("bird", "rain"):
            for i in range(20 if name == "train" else 3):
                write_wav(root / name / kind / f"{i}.wav", tone(hash_of(name, kind, i), 30), 4000)
    data = load_sounds(root)
    sizes = [40, 6, 6] if validation else [36, 4, 6]
    assert [len(split) for split in data.splits.values()] == sizes
    expected = {
        tone(hash_of("test", kind, i), 30)[:, None].tobytes()
        for kind in ("bird", "rain")
        for i in range(3)
    }
    assert rows(data.test) == expected
    require_disjoint(data)


def hash_of(*parts: object) -> int:
    return int.from_bytes(repr(parts).encode()[-16:], "little")


def test_folders_of_splits_may_be_in_capitals(tmp_path: Path) -> None:
    for name in ("Training", "Valid", "TEST"):
        for kind in ("bird", "rain"):
            write_wav(
                tmp_path / "made" / name / kind / "a.wav", tone(hash_of(name, kind), 30), 4000
            )
    data = load_sounds(tmp_path / "made")
    assert data.signature.classes == ("bird", "rain")
    assert [len(split) for split in data.splits.values()] == [2, 2, 2]


def test_what_a_mac_hides_is_no_sound(sounds: Path) -> None:
    before = load_sounds(sounds)
    for twin in ("bird/._0.wav", "rain/.trash/1.wav", "__MACOSX/bird/._0.wav"):
        (sounds / twin).parent.mkdir(parents=True, exist_ok=True)
        (sounds / twin).write_bytes(b"\0\5\x16\7" + bytes(50))
    (sounds / "rain" / "folder.wav").mkdir()
    (sounds / "bird" / "notes.txt").write_text("not a sound")
    with pytest.warns(
        UserWarning, match=r"4 files are not read, .*: __MACOSX/bird/\._0\.wav; bird"
    ):
        data = load_sounds(sounds)
    assert data.signature.classes == before.signature.classes
    assert rows(data.train) == rows(before.train)


def test_few_files_of_many_classes_still_validate(tmp_path: Path) -> None:
    for kind in "abcdefghij":
        for i in range(4):
            write_wav(tmp_path / "made" / kind / f"{i}.wav", tone(hash_of(kind, i), 30), 4000)
    data = load_sounds(tmp_path / "made")
    assert [len(split) for split in data.splits.values()] == [28, 4, 8]
    assert set(data.train.labels()) == set(range(10))
    assert len(set(data.shortened(train=14).train.labels())) > 5  # no longer sorted by class


def test_a_class_may_be_called_train(sounds: Path) -> None:
    (sounds / "bird").rename(sounds / "train")
    assert load_sounds(sounds).signature.classes == ("rain", "train")


def test_files_that_do_not_fit_are_listed(sounds: Path) -> None:
    for i in (0, 2, 4, 6):
        write_wav(sounds / "rain" / f"{i}.wav", tone(i, 20), 8000, channels=2)
    with pytest.raises(
        ValueError,
        match=r"4 of 20 files do not have 4000 samples per second: .*0\.wav: 8000; .*resample 4000",
    ):
        load_sounds(sounds)
    with pytest.raises(ValueError, match="16 of 20 files do not have 8000 samples per second"):
        load_sounds(sounds, sample_rate=8000)
    for i in (0, 2, 4, 6):
        write_wav(sounds / "rain" / f"{i}.wav", tone(i, 20), 4000)
    with pytest.raises(ValueError, match=r"4 of 20 files do not have 2 channels: .*0\.wav: 1"):
        load_sounds(sounds)


def broken_folders(root: Path) -> Iterator[tuple[str, str]]:
    yield "nowhere", "is not a folder"
    write_wav(root / "one/only/a.wav", tone(0, 9))
    yield "one", r"1 classes \(only\); expected two or more folders"
    write_wav(root / "empty/a/a.wav", tone(0, 9))
    (root / "empty/b").mkdir()
    yield "empty", r"b: no files that end in \.wav, \.flac, \.ogg"
    for kind in ("train/bird", "train/rain", "val/bird", "test/brid"):
        write_wav(root / "misspelt" / kind / "a.wav", tone(0, 9))
    yield "misspelt", "no training folder has the class 'brid'; did you mean 'bird'"
    for kind in ("train/bird", "train/rain", "val/bird"):
        write_wav(root / "untested" / kind / "a.wav", tone(0, 9))
    yield "untested", "has the folders train, val; expected one each for train and test"
    for kind in ("train/bird", "train/rain", "Test/bird", "testing/rain"):
        write_wav(root / "twice" / kind / "a.wav", tone(0, 9))
    yield "twice", "has the folders Test, testing, train; expected one each"
    for kind in ("bird", "rain"):
        write_wav(root / "few" / kind / "a.wav", tone(0, 9))
    yield "few", "2 cases are too few to hold out"
    for kind in ("bird", "rain"):
        write_wav(root / "silent" / kind / "a.wav", [])
    yield "silent", r"a\.wav: no samples"


def test_broken_folders_say_what_to_do(tmp_path: Path) -> None:
    for name, message in broken_folders(tmp_path):
        with pytest.raises((ValueError, MissingDataError), match=message):
            load_sounds(tmp_path / name)
    with pytest.raises(ValueError, match=r"validation 0\.5 and test 0\.5 leave nothing"):
        AudioFolderOptions(tmp_path, validation=0.5, test=0.5)
    with pytest.raises(ValueError, match="sample_rate -1, resample 0 and max_seconds"):
        AudioFolderOptions(tmp_path, sample_rate=-1)


def test_what_the_paper_reports_on_speech() -> None:
    task = TASKS["sc35"]
    assert task.paper is not None
    assert (task.paper.n_layers, task.paper.d_model, task.paper.batch_size) == (6, 128, 16)
    assert (task.paper.norm, task.paper.epochs) == ("batch", 40)
    assert [task.published[name] for name in ("S4D-Lin", "S4D-Inv (8 kHz)")] == [96.25, 91.80]
    causal = TASKS["sc35-ar"]
    assert causal.paper == replace(task.paper, bidirectional=False, pooling="last")
    assert causal.published["S4D-LegS"] == 93.57
