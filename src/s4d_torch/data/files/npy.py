"""Arrays in ``.npy`` and ``.npz`` files, read a few rows at a time and never unpickled."""

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, Literal

import numpy as np
from rich.filesize import decimal

from s4d_torch.data.dataset import Array
from s4d_torch.data.files.archive import Limits
from s4d_torch.data.missing_values import Missing

BLOCK_BYTES = 1 << 24
LONGEST_HEADER = 10_000  # bytes; numpy's own limit, which it looks at after reading
DAMAGED = (  # what zipfile, and numpy's reader of headers, make of bytes that are none of theirs
    *(zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, OverflowError),
    *(SyntaxError, TokenError, TypeError, UnicodeError, struct.error),
)
HOW_TO_SAVE = (
    "save names as text, y=np.array(names, dtype=str), and sequences of many lengths as one array, "
    "X=np.concatenate(sequences), lengths=[len(s) for s in sequences]"
)


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, known by its header."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    in_order: bool  # rows stand one after the other in the file

    def __str__(self) -> str:
        return f"{self.file}: {self.name} is {self.shape}"

    @property
    def nbytes(self) -> int:
        """As it declares, whatever is there."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def kept_type(self) -> np.dtype[Any]:
        """The type its values are kept in: their own, or float32 for types of 64 bits and more."""
        self.refuse_objects()
        if self.dtype.kind not in "biuf":
            raise ValueError(f"{self} of type {self.dtype}; expected real numbers")
        if self.dtype.kind == "b":
            return np.dtype(np.uint8)
        return np.dtype(np.float32) if self.dtype.itemsize > 4 else self.dtype.newbyteorder("=")

    def refuse_objects(self) -> None:
        """What is pickled is never loaded; beside the arrays that are read it does no harm."""
        if self.dtype.hasobject:
            raise ValueError(
                f"{self.file}: {self.name} holds Python objects, which are not loaded (a pickle "
                f"can run any code); {HOW_TO_SAVE}"
            )


def stored_arrays(file: Path) -> dict[str, StoredArray]:
    """The arrays of a file by name; the one of an ``.npy`` file is named as the file."""
    if file.suffix.lower() == ".npy":
        with file.open("rb") as stream:
            return {file.stem: _described(file, file.stem, stream)}
    blocks = {}
    with _damage(f"{file} is damaged or no {file.suffix} file"), zipfile.ZipFile(file) as archive:
        members = [each for each in archive.infolist() if each.filename.endswith(".npy")]
        _refuse_bomb(file, sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as stream:
                name = member.filename.removesuffix(".npy")
                blocks[name] = _described(file, name, stream)
            if blocks[name].nbytes > member.file_size and not blocks[name].dtype.hasobject:
                raise ValueError(f"{blocks[name]} but ends before its last row")
    return blocks


@contextmanager
def _damage(what: str) -> Iterator[None]:
    """In here, what goes wrong is the file's fault, unless the system cannot read it."""
    try:
        yield
    except DAMAGED as error:
        raise ValueError(f"{what}: {error}") from error
    except OSError as error:
        if error.filename is not None:
            raise
        raise ValueError(f"{what}: {error}") from error


def _refuse_bomb(file: Path, unpacked: int) -> None:
    """Small files that become large ones fill the memory of whoever reads them unasked."""
    size, limits = file.stat().st_size, Limits()
    if unpacked > max(limits.unquestioned, int(limits.ratio * size)):
        raise ValueError(
            f"{file} has {decimal(size)} and would unpack to {decimal(unpacked)}, more than "
            f"{limits.ratio:g} times as much; it is not read. If that is right, save it without "
            "compression (np.savez)"
        )


def _described(file: Path, name: str, stream: IO[bytes]) -> StoredArray:
    what = f"{file}: {name} is damaged or no array"
    try:
        with _damage(what):
            shape, fortran, dtype = _header(stream)
    except ValueError as error:
        raise error if str(error).startswith(what) else ValueError(f"{what}: {error}") from error
    if any(size < 0 for size in shape):
        raise ValueError(f"{what}: its shape is {shape}")
    return StoredArray(file, name, shape, dtype, not fortran or len(shape) < 2)


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    start = stream.read(8)
    version = np.lib.format.read_magic(BytesIO(start))
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format version {version} is for structured arrays")
    size = stream.read(2 if version == (1, 0) else 4)
    if (length := int.from_bytes(size, "little")) > LONGEST_HEADER:
        raise ValueError(f"a header of {length} bytes; expected at most {LONGEST_HEADER}")
    header = BytesIO(size + stream.read(length))
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(header)
    return np.lib.format.read_array_header_2_0(header)


def read_whole(stored: StoredArray) -> Array:
    """The array in memory: for targets and lengths."""
    parts = list(read_blocks(stored))
    return np.concatenate(parts) if parts else np.empty(stored.shape, stored.dtype)


def read_blocks(stored: StoredArray) -> Iterator[Array]:
    """Its rows in order, as many at a time as fit into a few megabytes (one at least)."""
    stored.refuse_objects()
    if not stored.shape:
        raise ValueError(f"{stored}, a single number; expected an array")
    if 0 in stored.shape:
        return
    row = stored.dtype.itemsize * int(np.prod(stored.shape[1:]))
    together = max(1, BLOCK_BYTES // max(row, 1))
    if stored.file.suffix.lower() != ".npy" and stored.in_order:
        yield from _streamed(stored, row, together)
        return
    mapped: Literal["r"] | None = "r" if stored.file.suffix.lower() == ".npy" else None
    try:
        with _damage(str(stored)):
            loaded = np.load(stored.file, mmap_mode=mapped, allow_pickle=False)
            array = loaded if mapped else loaded[stored.name]
    except ValueError as error:
        raise ValueError(f"{stored} but cannot be read: {error}") from error
    for start in range(0, stored.shape[0], together):
        yield np.asarray(array[start : start + together])


def _streamed(stored: StoredArray, row: int, together: int) -> Iterator[Array]:
    with zipfile.ZipFile(stored.file) as archive, archive.open(f"{stored.name}.npy") as stream:
        _header(stream)
        for start in range(0, stored.shape[0], together):
            rows = min(together, stored.shape[0] - start)
            with _damage(f"{stored.file}: {stored.name} is damaged"):
                content = stream.read(rows * row)
            if len(content) < rows * row:
                raise ValueError(f"{stored} but ends before its last row")
            yield np.frombuffer(content, stored.dtype).reshape(rows, *stored.shape[1:])


def write_values(values: Array, out: Array, missing: Missing) -> tuple[int, ...] | None:
    """Put ``values`` into ``out``; where the first one stands that is no finite number.

    To be interpolated, NaN may stay.
    """
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and is found below
        out[...] = values
    if out.dtype.kind != "f":
        return None
    bad = ~np.isfinite(out) if missing == "error" else np.isinf(out)
    return tuple(map(int, np.argwhere(bad)[0])) if bad.any() else None


def refuse_value(stored: StoredArray, value: float, case: int, time: int, channel: int) -> None:
    """Say where a value is missing."""
    raise ValueError(
        f"{stored.file}: {stored.name} is {value} at case {case}, time {time}, channel {channel} "
        "(counted from 0); expected finite numbers that fit into float32: fill or drop them first"
        + (", or say missing='interpolate' (--data.missing interpolate)" if np.isnan(value) else "")
    )
