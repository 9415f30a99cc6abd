"""CIFAR-10 pixel by pixel, row by row: ``scifar`` in colour, ``image`` (Long Range Arena) in grey.

The binary version: each record is a label, then 1024 bytes of red, of green and of blue.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Sequences, Split
from s4d_torch.data.folder import DataFolder, Scratch, Source
from s4d_torch.data.task import ARENA, LAPTOP, Task, register
from s4d_torch.data.tasks.arena import published
from s4d_torch.data.tasks.pixels import ROWS, ImageOptions, check_labels, image_dataset

FOLDER = "cifar-10-batches-bin"
BATCHES = 5
PIXELS = 32 * 32
RECORD = 1 + 3 * PIXELS
LUMA = (19595, 38470, 7471)  # ITU-R 601 in units of 1/65536
CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SOURCES = (
    Source(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        digest="md5:c32a1d4ab5d03f1284b67883e8d87530",
        size=170052171,
    ),
)


class CifarOptions(ImageOptions):
    """50000 training and 10000 test images; a tenth of the former, by a seed, validates."""


def load_cifar(options: CifarOptions, folder: DataFolder, *, channels: int) -> Dataset:
    """Images of 32x32 pixels as (n, 1024, channels): 3 for colour, 1 for grey.

    Uses whichever training batches are there, and warns unless they are all.
    """
    test = folder.require(f"{FOLDER}/test_batch.bin", SOURCES)
    batches = _training_batches(folder)

    def build(scratch: Scratch) -> Dataset:
        train, tested = (read_images(files, channels, scratch) for files in (batches, [test]))
        return image_dataset(train, tested, CLASSES, options.split_seed)

    key = {"channels": channels, "split_seed": options.split_seed}
    return folder.prepared("cifar10", key, [*batches, test], build)


def _training_batches(folder: DataFolder) -> list[Path]:
    root = folder.root / FOLDER
    if not any(root.glob("data_batch_*.bin")):
        folder.require(f"{FOLDER}/data_batch_1.bin", SOURCES)
    batches = sorted(root.glob("data_batch_*.bin"))
    if len(batches) < BATCHES:
        warnings.warn(
            f"{len(batches)} of the {BATCHES} training batches of CIFAR-10 are in {root}: "
            "there is less to learn from than published results had; "
            "add the others, or remove the folder to have all of it downloaded",
            stacklevel=3,
        )
    return batches


def read_images(files: Sequence[Path], channels: int, scratch: Scratch) -> Split:
    """All records of the files: pixels (n, 1024, channels) of uint8, labels (n,)."""
    counts = []
    for file in files:
        count, rest = divmod(size := file.stat().st_size, RECORD)
        if rest or not count:
            raise ValueError(
                f"{file} has {size} bytes, expected a multiple of {RECORD} (a label and 3 x "
                f"{PIXELS} pixels for each image); the file is incomplete or of another version: "
                "use the binary version of CIFAR-10"
            )
        counts.append(count)
    values = scratch.array((sum(counts), PIXELS, channels), np.uint8)
    labels = np.empty(sum(counts), dtype=np.int64)
    end = 0
    for file, count in zip(files, counts, strict=True):
        records = np.memmap(file, np.uint8, "r", shape=(count, RECORD))
        check_labels(records[:, 0], len(CLASSES), str(file))
        begin, end = end, end + count
        labels[begin:end] = records[:, 0]
        for start in range(0, count, ROWS):
            planes = records[start : start + ROWS, 1:].reshape(-1, 3, PIXELS)
            rows = values[begin + start : begin + start + len(planes)]
            rows[:] = planes.transpose(0, 2, 1) if channels == 3 else grey(planes)[..., None]
    return Split.whole(Sequences(values), labels)


def grey(planes: Array) -> Array:
    """Red, green and blue (n, 3, pixels) as luma (n, pixels), rounded in whole numbers."""
    weighted = np.einsum("ncp,c->np", planes, np.array(LUMA, dtype=np.uint32))
    return ((weighted + 0x8000) >> 16).astype(np.uint8)


_task = partial(
    Task,
    options=CifarOptions,
    metric="accuracy",
    length=PIXELS,
    size="170 MB",
    licence="no formal licence",
    citation="Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
    sources=SOURCES,
    files=(f"{FOLDER}/test_batch.bin",),
    small=replace(LAPTOP, norm="batch", lr=0.01, batch_size=50, epochs=3),
    # One row in the paper for both. It says that a bidirectional model is used for sCIFAR, and for
    # all tasks of Long Range Arena.
    paper=replace(ARENA, d_model=512, norm="layer", prenorm=False, dropout=0.1, epochs=200),
)

register(
    _task(
        name="scifar",
        summary="CIFAR-10 in colour, 32x32 pixels, read pixel by pixel",
        load=partial(load_cifar, channels=3),
        published={
            "S4-LegS": 91.80,
            "S4-FouT": 91.22,
            "S4-(LegS/FouT)": 91.58,
            "S4D-LegS": 89.92,
            "S4D-Inv": 90.69,
            "S4D-Lin": 90.42,
            "Transformer": 62.2,
            "FlexConv": 80.82,
            "TrellisNet": 73.42,
            "LSTM": 63.01,
            "r-LSTM": 72.2,
            "UR-GRU": 74.4,
            "HiPPO-RNN": 61.1,
            "LipschitzRNN": 64.2,
        },
    )
)
register(
    _task(
        name="image",
        summary="CIFAR-10 in grey, 32x32 pixels, read pixel by pixel (Long Range Arena)",
        load=partial(load_cifar, channels=1),
        published=published("image"),
    )
)
