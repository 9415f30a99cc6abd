"""Grey images in PNG files, read and written with zlib alone.

Read are 8-bit grey images that are not interlaced, with any of the five filters; other kinds get
an error that says what they are. Chunks that only describe are skipped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numba import njit

from s4d_torch.data.dataset import Array

SIGNATURE = b"\x89PNG\r\n\x1a\n"
HEADER = struct.Struct(">IIBBBBB")  # width, height, depth, colour, compression, filter, interlace
COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGB with alpha"}
MOST_PIXELS = 1 << 28


class DamagedImageError(ValueError):
    """A file that is empty, cut off, or not what its checksums say."""


def read_png(file: Path) -> Array:
    """The pixels, (height, width) of uint8."""
    data = file.read_bytes()
    if not data:
        raise DamagedImageError(f"{file} is empty")
    chunks = _chunks(data, file)
    kind, header = next(chunks)
    if kind != b"IHDR" or len(header) != HEADER.size:
        raise DamagedImageError(f"{file} does not begin with a header chunk")
    width, height, depth, colour, _, _, interlaced = HEADER.unpack(header)
    if (depth, colour, interlaced) != (8, 0, 0):
        found = f"{depth}-bit {COLOURS.get(colour, f'colour type {colour}')}"
        raise ValueError(
            f"{file} is {'interlaced ' if interlaced else ''}{found}; only 8-bit grey images that "
            "are not interlaced are read; convert it"
        )
    if not 0 < width * height <= MOST_PIXELS:
        raise ValueError(f"{file} has {width} x {height} pixels; at most {MOST_PIXELS} are read")
    return _pixels(b"".join(body for kind, body in chunks if kind == b"IDAT"), height, width, file)


def _chunks(data: bytes, file: Path) -> Iterator[tuple[bytes, bytes]]:
    """Kinds and contents, up to the end chunk."""
    if not data.startswith(SIGNATURE):
        raise DamagedImageError(f"{file} is not a PNG file: it begins with {data[:8]!r}")
    place, kind = len(SIGNATURE), b""
    while kind != b"IEND":
        length = int.from_bytes(data[place : place + 4], "big")
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        place += 12 + length
        if place > len(data):
            raise DamagedImageError(f"{file} is cut off after {len(data)} bytes")
        if zlib.crc32(kind + body) != int.from_bytes(data[place - 4 : place], "big"):
            raise DamagedImageError(f"{file}: wrong checksum of chunk {kind!r}")
        yield kind, body


def _pixels(packed: bytes, height: int, width: int, file: Path) -> Array:
    expected = height * (width + 1)  # each line has its filter in front
    try:
        unpacked = zlib.decompressobj().decompress(packed, expected + 1)
    except zlib.error as error:
        raise DamagedImageError(f"{file}: {error}") from error
    if len(unpacked) != expected:
        raise DamagedImageError(
            f"{file} unpacks to {len(unpacked)} bytes; {width} x {height} pixels take {expected}"
        )
    lines = np.frombuffer(unpacked, dtype=np.uint8).reshape(height, width + 1)
    if lines[:, 0].max() > 4:
        raise DamagedImageError(f"{file}: unknown filter {lines[:, 0].max()}; there are 0 to 4")
    pixels = np.empty((height, width), dtype=np.uint8)
    _unfilter(lines, pixels)
    return pixels


@njit(nogil=True, cache=True)
def _unfilter(lines, pixels):  # type: ignore[no-untyped-def]
    """Add to each byte what its filter foretold: the pixel to the left, above, or a mix of them."""
    height, width = pixels.shape
    for row in range(height):
        kind = lines[row, 0]
        for column in range(width):
            left = int(pixels[row, column - 1]) if column else 0
            above = int(pixels[row - 1, column]) if row else 0
            corner = int(pixels[row - 1, column - 1]) if row and column else 0
            foretold = 0
            if kind == 1:
                foretold = left
            elif kind == 2:
                foretold = above
            elif kind == 3:
                foretold = (left + above) // 2
            elif kind == 4:  # Paeth: whichever of the three is nearest to left + above - corner
                to_left, to_above = abs(above - corner), abs(left - corner)
                to_corner = abs(left + above - 2 * corner)
                if to_left <= to_above and to_left <= to_corner:
                    foretold = left
                elif to_above <= to_corner:
                    foretold = above
                else:
                    foretold = corner
            pixels[row, column] = (lines[row, 1 + column] + foretold) & 255


def write_png(file: Path, image: Array) -> None:
    """Write an image, (height, width) of uint8."""
    if image.ndim != 2 or image.dtype != np.uint8:
        raise TypeError(f"an image is (height, width) of uint8, got {image.shape} {image.dtype}")
    height, width = image.shape
    lines = np.pad(image, ((0, 0), (1, 0)))  # filter 0 in front of each
    chunks = (
        (b"IHDR", HEADER.pack(width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    file.write_bytes(
        SIGNATURE
        + b"".join(
            len(body).to_bytes(4, "big") + kind + body + zlib.crc32(kind + body).to_bytes(4, "big")
            for kind, body in chunks
        )
    )
