"""Free Spoken Digit Dataset: ten digits by six speakers, 8000 samples per second, ragged."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.dropping import Dropping, without_dropped
from s4d_torch.data.files.sound import read_clip, root_mean_square
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch, Source
from s4d_torch.data.splits import cut_randomly
from s4d_torch.data.task import LAPTOP, Task, register

RATE = 8000
TEST_TAKES = 5  # the first of the fifty takes of each speaker and digit
VALIDATION = 0.1

FOLDER = "fsdd"
UNPACKED = "free-spoken-digit-dataset-master"
ADDRESS = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.zip"
SOURCES = (Source(ADDRESS, into=FOLDER),)
_NAME = re.compile(r"(?P<digit>\d)_[a-z]+_(?P<take>\d+)\.wav")


@dataclass(frozen=True)
class FsddClips:
    """Takes 0 to 4 of each speaker and digit test, as is customary; 10% of the rest validate."""

    max_seconds: float = 1.0
    """longer clips lose their end; of 3000 clips 20 are longer than a second"""
    split_seed: int = 0
    """of the random choice of validation clips"""

    def __post_init__(self) -> None:
        if not self.max_seconds * RATE >= 1:
            raise ValueError(f"max_seconds {self.max_seconds}: expected at least one sample")


@dataclass(frozen=True)
class FsddOptions(FsddClips, Dropping):
    """Takes 0 to 4 of each speaker and digit test, as is customary; 10% of the rest validate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_dropping()


def load_fsdd(options: FsddOptions, folder: DataFolder) -> Dataset:
    """Clips of int16, (samples, 1) each, read with the loudness of training as 1; classes 0 to 9.

    All six speakers are in every split: this measures words, not unknown voices.
    """
    recordings = _find_recordings(folder)
    longest, seed = round(options.max_seconds * RATE), options.split_seed
    key, files = {"longest": longest, "seed": seed}, [recordings]  # its time is that of its files
    dataset = folder.prepared(
        "fsdd", key, files, lambda scratch: _build(recordings, longest, seed, scratch)
    ).grouped()
    return without_dropped(dataset, options, folder, "fsdd", key, files)


def _find_recordings(folder: DataFolder) -> Path:
    beside = folder.root / UNPACKED / "recordings"
    if beside.is_dir():
        return beside
    root = folder.require(FOLDER, SOURCES)
    for place in (root / "recordings", root / UNPACKED / "recordings"):
        if place.is_dir():
            return place
    raise MissingDataError(f"{root}: no folder 'recordings'; unpack {SOURCES[0].name} there")


def _build(recordings: Path, longest: int, seed: int, scratch: Scratch) -> Dataset:
    paths = sorted(recordings.glob("*.wav"))
    digits, takes = _parse_names(paths)
    clips = scratch.ragged(read_clip(path, RATE)[:longest] for path in paths)
    lengths = clips.lengths(np.arange(len(clips)))
    if not lengths.all():
        raise ValueError(f"{paths[int(np.argmin(lengths))]}: no samples")
    whole = Split.whole(clips, digits)
    rest = np.flatnonzero(takes >= TEST_TAKES)
    train, validation = (rest[part] for part in cut_randomly(len(rest), (VALIDATION,), seed))
    test = np.flatnonzero(takes < TEST_TAKES)
    if min(len(train), len(validation), len(test)) == 0:
        raise MissingDataError(
            f"{recordings}: {len(paths)} clips make splits of {len(train)}, {len(validation)} and "
            f"{len(test)}; is the download complete?"
        )
    scale = 1 / root_mean_square(clips, train)
    signature = Signature.of_classes(
        "0123456789", length=clips.longest, input_scale=(scale,), sample_rate=RATE
    )
    return Dataset(whole.part(train), whole.part(validation), whole.part(test), signature)


def _parse_names(paths: list[Path]) -> tuple[Array, Array]:
    """(digits, takes) of names DIGIT_SPEAKER_TAKE.wav."""
    numbers = []
    for path in paths:
        if (match := _NAME.fullmatch(path.name)) is None:
            raise ValueError(
                f"{path}: expected a name like 7_jackson_32.wav (digit, speaker, take)"
            )
        numbers.append((int(match["digit"]), int(match["take"])))
    digits, takes = np.array(numbers, dtype=np.int64).reshape(-1, 2).T
    return digits, takes


register(
    Task(
        name="fsdd",
        summary="spoken digits, raw audio at 8 kHz, up to one second",
        options=FsddOptions,
        load=load_fsdd,
        metric="accuracy",
        length=RATE,
        size="3000 clips, 27 MB",
        licence="CC BY-SA 4.0",
        citation="Jackson et al., Free Spoken Digit Dataset",
        sources=SOURCES,
        files=((FOLDER, UNPACKED),),
        small=replace(LAPTOP, d_model=32, norm="batch", lr=0.01, batch_size=16),
    )
)
