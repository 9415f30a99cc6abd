"""Grey images in PNG files, through Pillow (the extra ``images``).

Read are 8-bit grey images that are not interlaced; other kinds get an error that says what they
are, so that no conversion changes pixels unnoticed.
"""

import struct
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch._extras import missing_package
from s4d_torch.data.dataset import Array

SIGNATURE = b"\x89PNG\r\n\x1a\n"
HEADER = struct.Struct(">IIBBBBB")  # width, height, depth, colour, compression, filter, interlace
COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGB with alpha"}
MOST_PIXELS = 1 << 26


class DamagedImageError(ValueError):
    """A file that is empty, cut off, or not what its checksums say."""


def require_pillow(module: str = "Image") -> Any:
    """A module of Pillow, or an error that says how to install it."""
    try:
        return import_module(f"PIL.{module}")
    except ImportError as error:
        raise missing_package("PNG files", "Pillow", "images") from error


def read_png(file: Path) -> Array:
    """The pixels, (height, width) of uint8."""
    open_png = require_pillow("PngImagePlugin").PngImageFile  # says more than Image.open
    data = file.read_bytes()
    _check_header(data, file)
    try:
        with open_png(BytesIO(data)) as image:
            image.verify()  # the checksums, which loading passes over
        with open_png(BytesIO(data)) as image:
            return np.array(image)
    except (OSError, SyntaxError, ValueError) as error:
        raise DamagedImageError(f"{file} is damaged: {error}") from error


def _check_header(data: bytes, file: Path) -> None:
    """What the first bytes promise; nothing is unpacked before that is known."""
    if not data:
        raise DamagedImageError(f"{file} is empty")
    if not data.startswith(SIGNATURE):
        raise DamagedImageError(f"{file} is not a PNG file: it begins with {data[:8]!r}")
    if data[12:16] != b"IHDR" or len(data) < 16 + HEADER.size:
        raise DamagedImageError(f"{file} does not begin with a header chunk")
    width, height, depth, colour, _, _, interlaced = HEADER.unpack_from(data, 16)
    if (depth, colour, interlaced) != (8, 0, 0):
        found = f"{depth}-bit {COLOURS.get(colour, f'colour type {colour}')}"
        raise ValueError(
            f"{file} is {'interlaced ' if interlaced else ''}{found}; only 8-bit grey images that "
            "are not interlaced are read; convert it"
        )
    if not 0 < width * height <= MOST_PIXELS:
        raise ValueError(f"{file} has {width} x {height} pixels; at most {MOST_PIXELS} are read")


def write_png(file: Path, image: Array) -> None:
    """Write an image, (height, width) of uint8."""
    if image.ndim != 2 or image.dtype != np.uint8:
        raise TypeError(f"an image is (height, width) of uint8, got {image.shape} {image.dtype}")
    require_pillow().fromarray(image).save(file, format="PNG", optimize=True)
