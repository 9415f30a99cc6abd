"""Film reviews read byte by byte: the Text task of the Long Range Arena (IMDB, Maas et al. 2011).

``aclImdb/{train,test}/{pos,neg}/*.txt``, one review a file. A review is its UTF-8 bytes as they
are in the file (mark-up such as ``<br />`` included), cut at the end: 256 tokens, of which 0 does
not occur and pads.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch, Source
from s4d_torch.data.splits import cut_randomly
from s4d_torch.data.task import ARENA, LAPTOP, Task, check_at_least, register
from s4d_torch.data.tasks.arena import published

CLASSES = ("neg", "pos")
FOLDERS = tuple(f"aclImdb/{part}/{name}" for part in ("train", "test") for name in CLASSES)
SOURCE = Source(
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    digest="md5:7c2ac02c03563afcf9b574c7e56c153a",
    size=84125825,
)


@dataclass(frozen=True)
class TextOptions:
    """50000 film reviews as bytes, each praise or blame."""

    max_length: int = 4096
    """bytes of a review that are read, from its beginning"""
    validation: float = 0.1
    """part of the official training reviews that is kept for validation"""
    split_seed: int = 0
    """of the choice of validation reviews, and of the order in which reviews are stored"""

    def __post_init__(self) -> None:
        check_at_least(1, self, "max_length")
        if not 0 < self.validation < 1:
            raise ValueError(f"validation must lie between 0 and 1, got {self.validation}")


def load_text(options: TextOptions, folder: DataFolder) -> Dataset:
    """Reviews as (length,) bytes, ragged; class 0 is "neg", 1 is "pos"."""
    root = folder.require("aclImdb", [SOURCE])
    folders = [folder.root / name for name in FOLDERS]
    for each in folders:
        if not each.is_dir():
            what = f"{root} has no folder {each.relative_to(root)}"
            raise MissingDataError(f"{what}; unpack {SOURCE.name} again")
    # The times of four folders stand for their 50000 files, so that a second start stays quick.
    return folder.prepared("text", asdict(options), folders, lambda s: _build(options, root, s))


def _build(options: TextOptions, root: Path, scratch: Scratch) -> Dataset:
    train, test = (_read(root / part, options, scratch) for part in ("train", "test"))
    kept, validated = cut_randomly(len(train), (options.validation,), options.split_seed)
    longest = max(train.inputs[0].longest, test.inputs[0].longest)
    signature = Signature.of_classes(CLASSES, features=256, length=longest, tokens=True)
    return Dataset(train.part(kept), train.part(validated), test, signature)


def _read(part: Path, options: TextOptions, scratch: Scratch) -> Split:
    """The reviews of one official part, shuffled: any first n of them are a fair sample."""
    files, labels = [], []
    for label, name in enumerate(CLASSES):
        found = sorted((part / name).glob("*.txt"))
        if not found:
            what = f"{part / name} has no reviews (*.txt)"
            raise MissingDataError(f"{what}; unpack {SOURCE.name} again")
        files += found
        labels += [label] * len(found)
    order = np.random.Generator(np.random.PCG64(options.split_seed)).permutation(len(files))

    def reviews() -> Iterator[Array]:
        for i in order:
            with files[i].open("rb") as file:
                review = file.read(options.max_length)
            if not review:
                raise ValueError(f"{files[i]} is empty; every review needs at least one byte")
            yield np.frombuffer(review, dtype=np.uint8)

    return Split.whole(scratch.ragged(reviews()), np.array(labels, dtype=np.uint8)[order])


register(
    Task(
        name="text",
        summary="film reviews read byte by byte: praise or blame (IMDB, Long Range Arena Text)",
        options=TextOptions,
        load=load_text,
        metric="accuracy",
        length=4096,
        size="84 MB download, 50000 reviews",
        licence="no formal licence; for research",
        citation="Maas et al. 2011, Learning Word Vectors for Sentiment Analysis",
        sources=(SOURCE,),
        files=FOLDERS,
        paper=replace(ARENA, batch_size=16, epochs=32),
        published=published("text"),
        small=replace(LAPTOP, norm="batch", dropout=0.2, epochs=3),
    )
)
