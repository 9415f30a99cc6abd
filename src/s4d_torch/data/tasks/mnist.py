"""MNIST pixel by pixel: ``mnist`` row by row, ``pmnist`` in one random order for all images."""

import gzip
import math
import struct
import zlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, cast

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Sequences, Split
from s4d_torch.data.folder import DataFolder, Scratch, Source
from s4d_torch.data.task import LAPTOP, Image, Task, check_at_least, register
from s4d_torch.data.tasks.pixels import ImageOptions, check_labels, image_dataset

FOLDER = "mnist"
SIDE = 28
PIXELS = SIDE * SIDE
CLASSES = tuple("0123456789")
UNSIGNED_BYTES = 0x08  # the third byte of an idx file; the fourth counts dimensions
CHUNK = 1 << 20
LARGEST = 1 << 30  # bytes of one file; a small one that is compressed can announce any number

ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist"
FILES = {
    "train-images-idx3-ubyte": (9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte": (28881, "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte": (1648877, "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte": (4542, "ec29112dd5afa0611ce80d1b7f02629c"),
}
SOURCES = {
    name: Source(f"{ADDRESS}/{name}.gz", f"md5:{digest}", size, into=FOLDER)
    for name, (size, digest) in FILES.items()
}


class MnistOptions(ImageOptions):
    """60000 training and 10000 test images; a tenth of the former, by a seed, validates."""


@dataclass(frozen=True)
class PermutedMnistOptions(MnistOptions):
    """As mnist, with the pixels of all images in one random order."""

    permutation_seed: int = 0
    """of the order of the pixels; results compare only within one order"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(0, self, "permutation_seed")


def load_mnist(options: MnistOptions, folder: DataFolder) -> Dataset:
    """Images as (n, 784, 1), row by row, with classes 0 to 9."""
    return _load(options, folder, {}, np.arange(PIXELS))


def load_pmnist(options: PermutedMnistOptions, folder: DataFolder) -> Dataset:
    """Images as (n, 784, 1), pixels in the order of :func:`permutation`."""
    key = {"permutation_seed": options.permutation_seed}
    return _load(options, folder, key, permutation(options.permutation_seed))


def permutation(seed: int) -> Array:
    """The place of each pixel that is read, (784,); the same seed gives the same everywhere."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(PIXELS)


def _load(options: MnistOptions, folder: DataFolder, key: dict[str, int], order: Array) -> Dataset:
    files = find_files(folder)

    def build(scratch: Scratch) -> Dataset:
        train, test = (read_split(files[i], files[i + 1], order) for i in (0, 2))
        return image_dataset(train, test, CLASSES, options.split_seed)

    return folder.prepared("mnist", {"split_seed": options.split_seed, **key}, files, build)


def find_files(folder: DataFolder) -> list[Path]:
    """The four files, compressed or not; those that are missing are fetched together."""
    missing = [name for name in FILES if _find(folder.root, name) is None]
    if missing:
        folder.require(f"{FOLDER}/{missing[0]}.gz", [SOURCES[name] for name in missing])
    return [_find(folder.root, name) or folder.root / FOLDER / f"{name}.gz" for name in FILES]


def _find(root: Path, name: str) -> Path | None:
    return next((root / each for each in _names(name) if (root / each).is_file()), None)


def _names(name: str) -> tuple[str, ...]:
    """How a file may be called in the data folder: packed, or as tools name it when unpacked."""
    dotted = name.replace("-idx", ".idx")
    return tuple(f"{FOLDER}/{each}" for each in (f"{name}.gz", name, dotted))


def read_split(images: Path, labels: Path, order: Array) -> Split:
    """Pixels (n, 784, 1) of uint8, in this order, and labels (n,)."""
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    if pixels.shape[1:] != (SIDE, SIDE):
        raise ValueError(
            f"{images} holds images of {pixels.shape[1]}x{pixels.shape[2]} pixels, "
            f"expected {SIDE}x{SIDE}"
        )
    if len(pixels) != len(classes):
        raise ValueError(
            f"{images} holds {len(pixels)} images and {labels} {len(classes)} labels; "
            "expected as many: do they belong together?"
        )
    check_labels(classes, len(CLASSES), str(labels))
    values = np.take(pixels.reshape(-1, PIXELS), order, axis=1)[..., None]
    return Split.whole(Sequences(values), classes.astype(np.int64))


def read_idx(path: Path, dimensions: int) -> Array:
    """An idx file of unsigned bytes, compressed if its name ends in .gz.

    Four bytes 0, 0, type, number of dimensions; the sizes as big-endian 32-bit numbers; the data,
    the last dimension running fastest.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return _read_idx(cast(IO[bytes], file), path, dimensions)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is damaged or no gzip file: {error}; fetch it again") from error


def _read_idx(file: IO[bytes], path: Path, dimensions: int) -> Array:
    header = file.read(4 + 4 * dimensions)
    expected = bytes((0, 0, UNSIGNED_BYTES, dimensions))
    if header[:4] != expected:
        raise ValueError(
            f"{path} begins with the bytes {header[:4].hex(' ')}, expected {expected.hex(' ')} "
            f"(idx, unsigned bytes, {dimensions} dimensions); is it another file?"
        )
    if len(header) < 4 + 4 * dimensions:
        raise ValueError(f"{path} ends within its header of {4 + 4 * dimensions} bytes")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    size = math.prod(shape)
    if size > LARGEST:
        raise ValueError(
            f"{path} announces {' x '.join(map(str, shape))} = {size} bytes of data, more than "
            f"{LARGEST}; is it another file?"
        )
    data = bytearray()
    while len(data) <= size and (chunk := file.read(min(CHUNK, size + 1 - len(data)))):
        data += chunk
    if len(data) != size:
        got = "more" if len(data) > size else str(len(data))
        raise ValueError(
            f"{path} announces {' x '.join(map(str, shape))} = {size} bytes of data "
            f"and holds {got}; fetch it again"
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


IMAGE = Image(SIDE, brightest=255.0, box=20 / SIDE)  # digits of 20 pixels, in the middle


_task = partial(
    Task,
    metric="accuracy",
    length=PIXELS,
    size="12 MB",
    licence="no formal licence",
    citation="LeCun, Bottou, Bengio and Haffner 1998, Gradient-Based Learning Applied to "
    "Document Recognition",
    sources=tuple(SOURCES.values()),
    files=tuple(map(_names, FILES)),
    small=replace(
        LAPTOP, norm="batch", dropout=0.0, lr=0.01, epochs=1, weight_decay=0.01, bidirectional=False
    ),
)

register(
    _task(
        name="mnist",
        summary="handwritten digits, 28x28 pixels, read pixel by pixel",
        options=MnistOptions,
        load=load_mnist,
        image=lambda options: IMAGE,
    )
)
register(
    _task(
        name="pmnist",
        summary="handwritten digits, 28x28 pixels, read in one random order",
        options=PermutedMnistOptions,
        load=load_pmnist,
        image=lambda options: replace(
            IMAGE, order=tuple(permutation(options.permutation_seed).tolist())
        ),
    )
)
