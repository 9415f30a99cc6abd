"""A user's own sounds: one folder per class, wav, flac or ogg files anywhere below it.

``PATH/CLASS/....wav`` is split at random, class by class. ``PATH/train/CLASS/...``,
``PATH/validation/CLASS/...`` (or ``val``) and ``PATH/test/CLASS/...`` are taken as they are, in
capital letters too; without a validation folder, a part of the training files validates. What is
hidden (``.name``), and the ``__MACOSX`` that a Mac packs beside it, is passed over.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.files.sound import (
    SUFFIXES,
    AudioFormat,
    full_scale,
    inspect_audio,
    read_audio,
    root_mean_square,
)
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch
from s4d_torch.data.splits import Holdout, complete_splits
from s4d_torch.data.task import LAPTOP, Task, register

SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
SHOWN = 3  # files named in a message


@dataclass(frozen=True)
class AudioFolderOptions(Holdout):
    """Sound files, sorted into folders by class."""

    path: Path
    """the folder with one folder per class, or with train, validation and test"""
    sample_rate: int = 0
    """samples per second that every file has to have; 0 takes what they have in common"""
    max_seconds: float = 0.0
    """longer clips lose their end; 0 keeps them whole"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_rate < 0 or not 0 <= self.max_seconds < float("inf"):
            raise ValueError(
                f"sample_rate {self.sample_rate} and max_seconds {self.max_seconds}: "
                "expected numbers from 0 upwards"
            )


class _Clips(NamedTuple):
    """Files with their class, and the split whose folder they are in, or "train"."""

    paths: list[Path]
    labels: Array
    splits: Array
    classes: tuple[str, ...]


def load_audio_folder(options: AudioFolderOptions, folder: DataFolder) -> Dataset:
    """Clips of (samples, channels), ragged, read with the loudness of training as 1.

    All files need one sample rate and one number of channels. They are kept as int16 if all of
    them are of 16 bits or fewer, otherwise as float32 with full scale at 1.
    """
    clips = _find_clips(options.path.expanduser().resolve())
    key = {
        "classes": clips.classes,
        "fractions": (options.validation, options.test),
        "seed": options.split_seed,
        "rate": options.sample_rate,
        "seconds": options.max_seconds,
    }
    return folder.prepared("audio-folder", key, clips.paths, lambda s: _build(clips, options, s))


def _find_clips(root: Path) -> _Clips:
    names = [path.name for path in _subfolders(root)]
    splits = [SPLIT_FOLDERS.get(name.lower(), "") for name in names]
    if "train" in splits and "" not in splits:
        if len(set(splits)) < len(splits) or "test" not in splits:
            raise ValueError(
                f"{root}: has the folders {', '.join(names)}; expected one each for train and test "
                "and, if you like, one for validation"
            )
        places = {root / name: split for name, split in zip(names, splits, strict=True)}
        classes = tuple(path.name for path in _subfolders(root / names[splits.index("train")]))
    else:
        places, classes = {root: "train"}, tuple(names)
    if len(classes) < 2:
        raise ValueError(
            f"{root}: {len(classes)} classes ({', '.join(classes)}); expected two or more folders, "
            "each with the sounds of one class"
        )
    paths, labels, assigned = [], [], []
    for place, split in places.items():
        for path in _subfolders(place):
            found = _sounds(path, classes)
            paths += found
            labels += [classes.index(path.name)] * len(found)
            assigned += [split] * len(found)
    return _Clips(paths, np.array(labels, dtype=np.int64), np.array(assigned), classes)


def _subfolders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise MissingDataError(f"{root} is not a folder; give the one that holds your classes")
    return sorted(path for path in root.iterdir() if path.is_dir() and not _is_hidden(path.name))


def _is_hidden(name: str) -> bool:
    """Also of the twins ._NAME.wav in which a Mac keeps what other disks cannot."""
    return name.startswith(".") or name == "__MACOSX"


def _sounds(folder: Path, classes: Sequence[str]) -> list[Path]:
    """The sound files below the folder of a class."""
    if folder.name not in classes:
        hint = did_you_mean(folder.name, classes)
        raise ValueError(f"{folder}: no training folder has the class {folder.name!r}{hint}")
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not path.is_dir()
        and not any(map(_is_hidden, path.relative_to(folder).parts))
    )
    if not found:
        raise ValueError(f"{folder}: no files that end in {', '.join(SUFFIXES)}")
    return found


def _build(clips: _Clips, options: AudioFolderOptions, scratch: Scratch) -> Dataset:
    common = _common_format(clips.paths, options.sample_rate)
    rate = common.sample_rate
    longest = max(1, round(options.max_seconds * rate)) if options.max_seconds else None
    stored = scratch.ragged(_read_clips(clips.paths, longest, common.dtype))
    whole = Split.whole(stored, clips.labels)
    given = {name: whole.part(clips.splits == name) for name in dict.fromkeys(clips.splits)}
    splits = complete_splits(given, "classification", options)
    signature = Signature.of_classes(
        clips.classes,
        features=common.channels,
        length=stored.longest,
        input_scale=(1 / root_mean_square(stored, splits["train"].index),),
        sample_rate=rate,
    )
    return Dataset(**splits, signature=signature)


def _common_format(paths: Sequence[Path], expected: int) -> AudioFormat:
    """What all files have in common; an error that lists those that differ from most."""
    rates, channels, _, types = zip(*map(inspect_audio, paths), strict=True)
    rate = _require_one(paths, rates, "samples per second", expected)
    width = _require_one(paths, channels, "channels", 0)
    small = all(each == np.int16 for each in types)
    return AudioFormat(rate, width, 0, np.dtype(np.int16 if small else np.float32))


def _require_one(paths: Sequence[Path], values: Sequence[int], what: str, expected: int) -> int:
    common = expected or Counter(values).most_common(1)[0][0]
    others = [(path, value) for path, value in zip(paths, values, strict=True) if value != common]
    if others:
        listed = "; ".join(f"{path}: {value}" for path, value in others[:SHOWN])
        more = f"; and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        raise ValueError(
            f"{len(others)} of {len(paths)} files do not have {common} {what}: {listed}{more}. "
            "Convert them first"
        )
    return common


def _read_clips(paths: list[Path], longest: int | None, dtype: np.dtype[Any]) -> Iterator[Array]:
    for path in paths:
        samples, _ = read_audio(path)
        if len(samples) == 0:
            raise ValueError(f"{path}: no samples")
        cut = samples[:longest]
        yield cut if dtype == np.int16 else (cut / full_scale(cut.dtype)).astype(dtype)


register(
    Task(
        name="audio-folder",
        summary="your own sounds: wav, flac or ogg files in one folder per class",
        options=AudioFolderOptions,
        load=load_audio_folder,
        metric="accuracy",
        size="yours",
        licence="yours",
        small=replace(LAPTOP, d_model=32, d_state=64, lr=0.01, batch_size=16, epochs="auto"),
    )
)
