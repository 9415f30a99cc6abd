"""A user's own sounds: one folder per class, wav, flac, ogg or mp3 files anywhere below it.

``PATH/CLASS/....wav`` is split at random, class by class. ``PATH/train/CLASS/...``,
``PATH/validation/CLASS/...`` (or ``val``) and ``PATH/test/CLASS/...`` are taken as they are, in
capital letters too; without a validation folder, a part of the training files validates. What is
hidden (``.name``), and the ``__MACOSX`` that a Mac packs beside it, is passed over; what is not
read is counted and named.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.files.sound import (
    SUFFIXES,
    AudioFormat,
    full_scale,
    inspect_audio,
    mixed_down,
    read_audio,
    resampled,
    root_mean_square,
)
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch
from s4d_torch.data.splits import Holdout, complete_splits
from s4d_torch.data.task import LAPTOP, Task, register

Read = TypeVar("Read")
SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
SHOWN = 10  # files named in a message


@dataclass(frozen=True)
class AudioFolderOptions(Holdout):
    """Sound files, sorted into folders by class."""

    path: Path
    """the folder with one folder per class, or with train, validation and test"""
    sample_rate: int = 0
    """samples per second that every file has to have; 0 takes what they have in common"""
    max_seconds: float = 0.0
    """longer clips lose their end; 0 keeps them whole"""
    resample: int = 0
    """samples per second that all files are brought to; 0 reads them as they are"""
    mono: bool = False
    """mix all channels of a file down to one"""
    skip_bad: bool = False
    """leave out files that cannot be read, with a warning that names them"""
    groups: str = ""
    """the speaker or machine in the names of files, none of which is in two splits: part:0 is what
    stands before the first _, part:1 after it; or a regular expression, whose first (...) it is"""

    def __post_init__(self) -> None:
        super().__post_init__()
        rates = min(self.sample_rate, self.resample)
        if rates < 0 or not 0 <= self.max_seconds < float("inf"):
            raise ValueError(
                f"sample_rate {self.sample_rate}, resample {self.resample} and max_seconds "
                f"{self.max_seconds}: expected numbers from 0 upwards"
            )
        if self.sample_rate and self.resample:
            raise ValueError(
                "sample_rate is what files have to have, resample what they are brought to; "
                "choose one of them"
            )
        try:
            re.compile(self.groups)
        except re.error as error:
            raise ValueError(
                f"groups {self.groups!r} is no regular expression: {error}; expected one, or part:0"
            ) from error


class _Clips(NamedTuple):
    """Files with their class, and the split whose folder they are in, or "train"."""

    root: Path
    paths: list[Path]
    labels: Array
    splits: Array
    classes: tuple[str, ...]

    def names(self, which: Iterable[int]) -> list[str]:
        """Paths below the root."""
        return [self.paths[i].relative_to(self.root).as_posix() for i in which]


def load_audio_folder(options: AudioFolderOptions, folder: DataFolder) -> Dataset:
    """Clips of (samples, channels), ragged, read with the loudness of training as 1.

    All files need one sample rate and one number of channels, or options that bring them to it.
    They are kept as int16 if all of them are of 16 bits or fewer, otherwise as float32 with full
    scale at 1.
    """
    clips = _find_clips(options.path.expanduser().resolve())
    _warn_of_ignored(clips)
    key = {
        "classes": clips.classes,
        "fractions": (options.validation, options.test),
        "seed": options.split_seed,
        "rate": options.sample_rate,
        "seconds": options.max_seconds,
        "resample": options.resample,
        "mono": options.mono,
        "skip_bad": options.skip_bad,
        "groups": options.groups,
    }
    data = folder.prepared("audio-folder", key, clips.paths, lambda s: _build(clips, options, s))
    if options.skip_bad:  # said each time, not only when the data was prepared
        kept = set() if data.train.cases is None else set(data.train.cases)
        skipped = [name for name in clips.names(range(len(clips.paths))) if name not in kept]
        if skipped:
            what = f"{len(skipped)} of {len(clips.paths)} files cannot be read and are left out"
            warnings.warn(f"{clips.root}: {what}: {_listed(skipped)}", stacklevel=2)
    return data


def _warn_of_ignored(clips: _Clips) -> None:
    read = set(clips.paths)
    found = (path for path in clips.root.rglob("*") if path not in read and path.is_file())
    ignored = sorted(path.relative_to(clips.root).as_posix() for path in found)
    if ignored:
        count = "1 file is" if len(ignored) == 1 else f"{len(ignored)} files are"
        warnings.warn(
            f"{clips.root}: {count} not read, being hidden, outside the folders of classes or none "
            f"of {', '.join(SUFFIXES)}: {_listed(ignored)}",
            stacklevel=3,
        )


def _listed(what: Sequence[str]) -> str:
    more = f"; and {len(what) - SHOWN} more" if len(what) > SHOWN else ""
    return "; ".join(what[:SHOWN]) + more


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
    return _Clips(root, paths, np.array(labels, dtype=np.int64), np.array(assigned), classes)


def _subfolders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise MissingDataError(f"{root} is not a folder; give the one that holds your classes")
    return sorted(path for path in root.iterdir() if path.is_dir() and not is_hidden(path.name))


def is_hidden(name: str) -> bool:
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
        and not any(map(is_hidden, path.relative_to(folder).parts))
    )
    if not found:
        raise ValueError(f"{folder}: no files that end in {', '.join(SUFFIXES)}")
    return found


def _build(clips: _Clips, options: AudioFolderOptions, scratch: Scratch) -> Dataset:
    bad: dict[int, str] = {}
    formats = dict(_tried(clips, range(len(clips.paths)), inspect_audio, bad))
    if bad and not options.skip_bad:
        for _ in _tried(clips, formats, _samples, bad):
            pass  # so that all bad files are named at once
        raise _unreadable(clips, bad)
    common = _common_format([clips.paths[i] for i in formats], list(formats.values()), options)
    longest = round(options.max_seconds * common.sample_rate) if options.max_seconds else None
    kept: list[int] = []

    def read() -> Iterator[Array]:
        for i, (samples, rate) in _tried(clips, formats, _samples, bad):
            kept.append(i)
            cut = alike(samples, rate, options)[: longest and max(1, longest)]
            small = common.dtype == np.int16
            yield cut if small else (cut / full_scale(cut.dtype)).astype(common.dtype)
        if not kept or (bad and not options.skip_bad):
            raise _unreadable(clips, bad)

    stored = scratch.ragged(read())
    labels = clips.labels[kept]
    if len(set(labels)) < len(clips.classes):
        raise _unreadable(clips, bad)
    whole = replace(Split.whole(stored, labels), cases=np.array(clips.names(kept)))
    if options.groups:
        found = [group_of(clips.paths[i], options.groups) for i in kept]
        whole = replace(whole, groups=np.array(found))
    splits = clips.splits[kept]
    given = {name: whole.part(splits == name) for name in dict.fromkeys(splits)}
    complete = complete_splits(given, "classification", options)
    signature = Signature.of_classes(
        clips.classes,
        features=common.channels,
        length=stored.longest,
        input_scale=(1 / root_mean_square(stored, complete["train"].index),),
        sample_rate=common.sample_rate,
    )
    return Dataset.of(complete.values(), signature)


def group_of(path: Path, pattern: str) -> str:
    """The part of a file's name that says what it comes from; see the option ``groups``."""
    if part := re.fullmatch(r"part:(\d+)", pattern):
        pieces, number = path.stem.split("_"), int(part[1])
        if number < len(pieces):
            return pieces[number]
        raise ValueError(
            f"{path}: its name has {len(pieces)} parts between _, and no part {number}, counted "
            "from 0 (--data.groups)"
        )
    if found := re.search(pattern, path.name):
        return found[1] if found.re.groups and found[1] is not None else found[0]
    raise ValueError(f"{path}: its name has nothing that fits {pattern!r} (--data.groups)")


def _tried(
    clips: _Clips, which: Iterable[int], read: Callable[[Path], Read], bad: dict[int, str]
) -> Iterator[tuple[int, Read]]:
    """What can be read of the files; why not is noted of the others."""
    for i in which:
        try:
            yield i, read(clips.paths[i])
        except (ValueError, OSError) as error:
            bad[i] = str(error)


def _samples(path: Path) -> tuple[Array, int]:
    samples, rate = read_audio(path)
    if len(samples) == 0:
        raise ValueError(f"{path}: no samples")
    return samples, rate


def alike(samples: Array, rate: int, options: Any) -> Array:
    """Samples of a file with the channels and the rate that ``options`` ask for."""
    if getattr(options, "mono", False):
        samples = mixed_down(samples)
    return resampled(samples, rate, getattr(options, "resample", 0) or rate)


def _unreadable(clips: _Clips, bad: Mapping[int, str]) -> ValueError:
    count = f"{len(bad)} of {len(clips.paths)} files cannot be read"
    listed = _listed([bad[i] for i in sorted(bad)])
    advice = "Repair or remove them, or leave them out with skip_bad=True (--data.skip-bad)"
    left = set(range(len(clips.paths))) - set(bad)
    classes = {clips.classes[clips.labels[i]] for i in left}
    if lost := [name for name in clips.classes if name not in classes]:
        advice = f"Nothing is left of {', '.join(lost)}; repair some of them"
    return ValueError(f"{clips.root}: {count}: {listed}. {advice}")


def _common_format(
    paths: Sequence[Path], formats: Sequence[AudioFormat], options: AudioFolderOptions
) -> AudioFormat:
    """What all files have in common; an error that lists those that differ from most."""
    rates, channels, _, types = zip(*formats, strict=True)
    width, rate = 1, options.resample
    if not options.mono:
        width = _require_one(paths, channels, "channels", 0, "mono=True (--data.mono)")
    if not rate:
        advice = "resample={0} (--data.resample {0})"
        rate = _require_one(paths, rates, "samples per second", options.sample_rate, advice)
    small = all(each == np.int16 for each in types)
    return AudioFormat(rate, width, 0, np.dtype(np.int16 if small else np.float32))


def _require_one(
    paths: Sequence[Path], values: Sequence[int], what: str, expected: int, remedy: str
) -> int:
    common = expected or Counter(values).most_common(1)[0][0]
    others = [f"{p}: {value}" for p, value in zip(paths, values, strict=True) if value != common]
    if others:
        raise ValueError(
            f"{len(others)} of {len(paths)} files do not have {common} {what}: {_listed(others)}. "
            f"Convert them first, or say {remedy.format(common)}"
        )
    return common


register(
    Task(
        name="audio-folder",
        summary="your own sounds: wav, flac, ogg or mp3 files in one folder per class",
        options=AudioFolderOptions,
        load=load_audio_folder,
        metric="accuracy",
        size="yours",
        licence="yours",
        small=replace(LAPTOP, d_model=32, d_state=64, lr=0.01, batch_size=16, epochs="auto"),
    )
)
