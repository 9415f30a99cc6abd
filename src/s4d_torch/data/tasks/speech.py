"""Speech Commands: one second of raw audio, one of 35 words."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from s4d_torch._registry import unknown
from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.dropping import Dropping, without_dropped
from s4d_torch.data.files.sound import read_clip, root_mean_square
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch, Source, require_files
from s4d_torch.data.task import ARENA, LAPTOP, Task, register

WORDS = (
    *("backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow", "forward"),
    *("four", "go", "happy", "house", "learn", "left", "marvin", "nine", "no", "off", "on"),
    *("one", "right", "seven", "sheila", "six", "stop", "three", "tree", "two", "up", "visual"),
    *("wow", "yes", "zero"),
)
RATE = LENGTH = 16000
RATES = (16000, 8000)
LISTS = {"test": "testing_list.txt", "validation": "validation_list.txt"}
FOLDS = 5  # parts of the speakers, each of which can be kept back

FOLDER = "speech_commands"
SOURCES = (
    Source(
        "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
        digest="sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        size=2428923189,
        into=FOLDER,
    ),
)


@dataclass(frozen=True)
class SpeechOptions(Dropping):
    """Clips of one second, split by the lists that come with the data."""

    words: tuple[str, ...] = ()
    """the words to tell apart; none stands for all of the 35 that are there"""
    sample_rate: Literal[16000, 8000] = 16000
    """samples per second; 8000 takes every second sample, without a filter"""
    fold: int | None = None
    """keep back one of five parts of the speakers, 0 to 4: half to validate, half to test; by
    default those of the lists that come with the data"""

    def __post_init__(self) -> None:
        for word in self.words:
            if word not in WORDS:
                raise ValueError(unknown("word", word, WORDS))
        if len(set(self.words)) != len(self.words) or len(self.words) == 1:
            raise ValueError(f"words {', '.join(self.words)}: expected two or more different ones")
        if self.sample_rate not in RATES:
            raise ValueError(f"sample_rate {self.sample_rate}: choose 16000 or 8000")
        if self.fold is not None and not 0 <= self.fold < FOLDS:
            raise ValueError(f"fold {self.fold}: choose one of 0 to {FOLDS - 1}, or none")
        self.check_dropping()


def load_speech(options: SpeechOptions, folder: DataFolder) -> Dataset:
    """Clips as (n, 16000, 1), or (n, 8000, 1), of int16 read with the loudness of training as 1.

    Shorter clips end in zeros, longer ones are cut, with a warning. A few recordings are there
    under several names: a clip that is also in the test list is taken out of validation and
    training, and one of the validation list out of training, so that no sound is in two splits.

    Where no clip of the test list is there, half of the validation clips become the test split,
    by speakers, with a warning: no speaker is in both, and numbers are not those of the full data.
    With a ``fold`` the lists count for nothing: a part of the speakers is kept back, and the five
    parts together hear every speaker.
    """
    root = folder.require(FOLDER, SOURCES)
    there = tuple(word for word in WORDS if (root / word).is_dir())
    words = options.words or there
    require_files((root / name for name in LISTS.values()), f"it comes with {SOURCES[0].name}")
    missing = [word for word in words if word not in there]
    if missing or len(words) < 2:
        raise MissingDataError(
            f"{root}: no folder for {', '.join(missing) or 'two words'}; "
            f"there are {', '.join(there) or 'none'}. Unpack {SOURCES[0].name} there"
        )
    lists = {split: set((root / name).read_text("utf-8").split()) for split, name in LISTS.items()}
    wanted = (name for name in lists["test"] if name.partition("/")[0] in words)
    borrowed = options.fold is None and not any((root / name).exists() for name in wanted)
    if borrowed:
        warnings.warn(
            f"{root}: no clip of {LISTS['test']} is there; half of the validation clips, of other "
            "speakers than the rest, are the test split",
            stacklevel=2,
        )
    # The time of a folder changes with what is in it: 35 of them stand for 105829 files.
    files = [root / name for name in (*LISTS.values(), *words)]
    key: dict[str, Any] = {"words": words, "borrowed": borrowed, "groups": True}
    if options.fold is not None:
        key["fold"] = options.fold

    def build(scratch: Scratch) -> Dataset:
        clips = [f"{x}/{path.name}" for x in words for path in sorted((root / x).glob("*.wav"))]
        if options.fold is None:
            parts = _by_lists(clips, lists, borrowed)
        else:
            parts = _by_fold(clips, options.fold)
        for split, names in parts.items():
            if not names:
                raise MissingDataError(f"{root}: no clip for the {split} split; are there more?")
        return _build(root, words, parts, scratch)

    dataset = folder.prepared("sc35", key, files, build).grouped()
    if options.sample_rate != RATE:
        dataset = dataset.decimated(RATE // options.sample_rate)
    key["rate"] = options.sample_rate
    return without_dropped(dataset, options, folder, "sc35", key, files)


def _by_lists(
    clips: Sequence[str], lists: Mapping[str, set[str]], borrowed: bool
) -> dict[str, list[str]]:
    """Names word/clip.wav by split, in a fixed order; test first, then validation."""
    parts: dict[str, list[str]] = {"test": [], "validation": [], "train": []}
    for name in clips:
        listed = (split for split, names in lists.items() if name in names)
        parts[next(listed, "train")].append(name)
    if borrowed:
        parts["validation"], parts["test"] = _by_speakers(parts["validation"], 2)
    return parts


def _by_fold(clips: Sequence[str], fold: int) -> dict[str, list[str]]:
    """The same with one part of all speakers kept back, half of it to test."""
    folds = _by_speakers(clips, FOLDS)
    validation, test = _by_speakers(folds[fold], 2)
    kept_back = set(folds[fold])
    train = [name for name in clips if name not in kept_back]
    return {"test": test, "validation": validation, "train": train}


def _by_speakers(names: Sequence[str], count: int) -> list[list[str]]:
    """So many parts without a common speaker, about equal in clips."""
    speakers: dict[str, list[str]] = {}
    for name in names:
        speakers.setdefault(speaker_of(name), []).append(name)
    parts: list[list[str]] = [[] for _ in range(count)]
    # The most talkative first, each to the part that has the fewest clips by then.
    for speaker in sorted(speakers, key=lambda one: (-len(speakers[one]), one)):
        min(parts, key=len).extend(speakers[speaker])
    return [sorted(part) for part in parts]


def speaker_of(name: str) -> str:
    """Who speaks in ``word/SPEAKER_nohash_0.wav``."""
    return name.partition("/")[2].partition("_nohash_")[0]


def _build(
    root: Path, words: tuple[str, ...], parts: Mapping[str, list[str]], scratch: Scratch
) -> Dataset:
    names = [name for part in parts.values() for name in part]
    clips = scratch.array((len(names), LENGTH, 1), np.int16)
    labels = np.array([words.index(name.partition("/")[0]) for name in names], dtype=np.int64)
    index: dict[str, Array] = {}
    seen: set[bytes] = set()
    start = cut = 0
    for split, part in parts.items():
        digests = []
        for row, name in enumerate(part, start):
            samples = read_clip(root / name, RATE)
            clips[row, : len(samples)] = samples[:LENGTH]
            cut += len(samples) > LENGTH
            digests.append(blake2b(clips[row].tobytes(), digest_size=16).digest())
        fresh = [row for row, digest in enumerate(digests, start) if digest not in seen]
        index[split] = np.array(fresh, dtype=np.int64)
        seen.update(digests)
        start += len(part)
    if cut:
        warnings.warn(f"{root}: {cut} clips of more than {LENGTH} samples are cut", stacklevel=2)
    stored = Sequences(clips)
    scale = 1 / root_mean_square(stored, index["train"])
    signature = Signature.of_classes(words, length=LENGTH, input_scale=(scale,), sample_rate=RATE)
    speakers = np.array([speaker_of(name) for name in names])
    splits = {
        split: Split((stored,), labels, rows, groups=speakers) for split, rows in index.items()
    }
    return Dataset(splits["train"], splits["validation"], splits["test"], signature)


PAPER = replace(ARENA, d_model=128, batch_size=16)
SMALL = replace(LAPTOP, d_model=32, norm="batch", lr=0.01)
CITATION = "Warden 2018, Speech Commands: A Dataset for Limited-Vocabulary Speech Recognition"
PUBLISHED = {  # accuracy in per cent at 16 kHz, and of the same models at 8 kHz
    "S4-LegS": (96.08, 91.32),
    "S4-FouT": (95.27, 91.59),
    "S4-(LegS/FouT)": (95.32, 90.72),
    "S4D-LegS": (95.83, 91.08),
    "S4D-Inv": (96.18, 91.80),
    "S4D-Lin": (96.25, 91.58),
    "InceptionNet": (61.24, 5.18),
    "ResNet-18": (77.86, 8.74),
    "XResNet-50": (83.01, 7.72),
    "ConvNet": (95.51, 7.26),
}

SC35 = register(
    Task(
        name="sc35",
        summary="spoken words, one second of raw audio",
        options=SpeechOptions,
        load=load_speech,
        metric="accuracy",
        length=LENGTH,
        size="105829 clips, 2.4 GB to download",
        licence="CC BY 4.0",
        citation=CITATION,
        sources=SOURCES,
        files=(FOLDER,),
        paper=PAPER,
        fixed_length=True,
        small=replace(SMALL, batch_size=16, epochs=16, bidirectional=False),
        published={name: scores[0] for name, scores in PUBLISHED.items()}
        | {f"{name} (8 kHz)": scores[1] for name, scores in PUBLISHED.items()},
    )
)

register(
    replace(
        SC35,
        name="sc35-ar",
        summary="the spoken words of sc35 by causal models, read off the last position",
        paper=replace(PAPER, bidirectional=False, pooling="last"),
        published={
            "S4-LegS": 93.60,
            "S4-FouT": 91.78,
            "S4D-LegS": 93.57,
            "S4D-Inv": 93.40,
            "S4D-Lin": 93.37,
        },
    )
)
