"""The Pathfinder images of the Long Range Arena, as its release has them.

A folder like ``pathfinder32/curv_contour_length_14`` holds lists, ``metadata/*.npy``, which are
text whatever their name says, one image a line::

    imgs/0 sample_0.png 0 1 1.8 14 4 5 1.5 1 1

folder, file, number, label, and how the image was made; and the images, 8-bit grey PNG files. An
image that is damaged is left out; the release is known to have an empty one.
"""

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from s4d_torch._progress import progress
from s4d_torch.data.dataset import Array, Sequences, Split
from s4d_torch.data.files.png import DamagedImageError, read_png
from s4d_torch.data.folder import MissingDataError, Scratch
from s4d_torch.data.process_pool import in_order

BLOCK = 500  # images that a process reads at a time
MOST_DAMAGED = 0.01  # of the images


def find_lists(root: Path) -> list[Path]:
    """The files that name the images, in the order of their numbers."""
    found = {file.stem: file for file in (root / "metadata").glob("*.npy")}
    if not found:
        raise MissingDataError(f"{root / 'metadata'} has no *.npy; it should list the images")
    return [found[stem] for stem in sorted(found, key=lambda stem: (len(stem), stem))]


def read_listed(
    lists: Sequence[Path], root: Path, size: int, workers: int, scratch: Scratch
) -> Split:
    """All images that ``lists`` name and that can be read, (n, size * size, 1) of uint8."""
    entries = [entry for file in lists for entry in _entries(file, root)]
    files = [file for file, _ in entries]
    if not files:
        raise ValueError(f"{lists[0].parent} lists no images")
    blocks = [files[start : start + BLOCK] for start in range(0, len(files), BLOCK)]
    jobs = [partial(_read_images, block, size) for block in blocks]
    pixels = scratch.array((len(files), size * size, 1), np.uint8)
    damaged: dict[int, str] = {}
    start = 0
    with progress(f"reading images of {size}x{size} pixels", len(files)) as shown:
        for images, bad in in_order(jobs, workers):
            pixels[start : start + len(images)] = images
            damaged |= {start + place: why for place, why in bad.items()}
            start += len(images)
            shown.advance(len(images))
    if damaged:
        first = next(iter(damaged.values()))
        told = f"{len(damaged)} of {len(files)} images cannot be read; the first: {first}"
        if len(damaged) > max(MOST_DAMAGED * len(files), 1):
            raise ValueError(f"{told}. Is the archive unpacked whole?")
        warnings.warn(f"{told}. Left out.", stacklevel=2)
    labels = np.array([label for _, label in entries], dtype=np.uint8)
    good = np.delete(np.arange(len(files)), list(damaged))
    return Split((Sequences(pixels),), labels, good)


def _entries(file: Path, root: Path) -> list[tuple[Path, int]]:
    """The images of one list, with their labels."""
    data = file.read_bytes()
    if data.startswith(b"\x93NUMPY"):
        raise ValueError(f"{file} is a NumPy array; the arena's lists are text, in spite of .npy")
    entries = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        fields = line.split()
        if len(fields) < 4 or fields[3] not in ("0", "1"):
            raise ValueError(
                f"{file}:{number}: expected folder, file, number and label 0 or 1, "
                f"got {line[:80]!r}"
            )
        image = Path(fields[0], fields[1])
        if image.is_absolute() or ".." in image.parts:
            raise ValueError(f"{file}:{number}: {image} lies outside {root}")
        entries.append((root / image, int(fields[3])))
    return entries


def _read_images(files: Sequence[Path], size: int) -> tuple[Array, dict[int, str]]:
    """Pixels (n, size * size, 1), and what is wrong with the damaged ones, which stay black."""
    pixels = np.zeros((len(files), size * size, 1), dtype=np.uint8)
    damaged = {}
    for i, file in enumerate(files):
        try:
            image = read_png(file)
        except (DamagedImageError, FileNotFoundError) as error:
            damaged[i] = f"{file} is missing" if isinstance(error, OSError) else str(error)
            continue
        if image.shape != (size, size):
            raise ValueError(
                f"{file} has {image.shape[1]} x {image.shape[0]} pixels, expected {size} x {size}"
            )
        pixels[i, :, 0] = image.ravel()
    return pixels, damaged
