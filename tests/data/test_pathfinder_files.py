"""Pathfinder images from files: PNG of all filters, and the Long Range Arena's release."""

import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from s4d_torch.data import DataFolder, MissingDataError
from s4d_torch.data.dataset import Array
from s4d_torch.data.files.png import HEADER, SIGNATURE, DamagedImageError, read_png, write_png
from s4d_torch.data.tasks.pathfinder import (
    PathfinderOptions,
    PathXOptions,
    load_pathfinder,
    load_pathx,
)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path, download=False)


def picture(index: int, size: int) -> Array:
    """Different for each index, smooth enough that filters are of use."""
    rows, columns = np.mgrid[:size, :size]
    return (128 + 100 * np.sin((index + 1) * rows / size) * np.cos(5 * columns / size)).astype("u1")


# ---- PNG files --------------------------------------------------------------------------------


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    lines: bytes, width: int, height: int, *, depth: int = 8, colour: int = 0, lace: int = 0
) -> bytes:
    header = HEADER.pack(width, height, depth, colour, 0, 0, lace)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return SIGNATURE + b"".join(chunk(*part) for part in parts)


def filtered(image: Array, kind: int) -> bytes:
    """Lines of the PNG specification: each byte less what its filter foretells."""
    x = image.astype(int)
    left, above, corner = (np.zeros_like(x) for _ in range(3))
    left[:, 1:], above[1:], corner[1:, 1:] = x[:, :-1], x[:-1], x[:-1, :-1]
    estimate = left + above - corner
    near = np.stack([np.abs(estimate - each) for each in (left, above, corner)])
    paeth = np.choose(near.argmin(axis=0), [left, above, corner])
    foretold = [np.zeros_like(x), left, above, (left + above) // 2, paeth][kind]
    lines = ((x - foretold) % 256).astype(np.uint8)
    return np.hstack([np.full((len(x), 1), kind, np.uint8), lines]).tobytes()


@pytest.mark.parametrize("kind", range(5))
def test_png_filters(kind: int, tmp_path: Path) -> None:
    image = np.random.default_rng(kind).integers(0, 256, (9, 13), dtype=np.uint8)
    image[3:6] = 200  # ties of the Paeth filter
    file = tmp_path / "image.png"
    file.write_bytes(png(filtered(image, kind), 13, 9))
    assert np.array_equal(read_png(file), image)
    assert np.array_equal(np.asarray(Image.open(file)), image)  # the test's own filter is right


def test_png_files_of_others_are_read_and_ours_by_others(tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    for index in range(5):
        image = picture(index, 128)
        Image.fromarray(image).save(file, optimize=True)
        assert np.array_equal(read_png(file), image)
        write_png(file, image)
        assert np.array_equal(np.asarray(Image.open(file)), image)
        assert np.array_equal(read_png(file), image)
    with pytest.raises(TypeError, match=r"\(height, width\) of uint8, got \(2, 2, 3\) uint8"):
        write_png(file, np.zeros((2, 2, 3), np.uint8))


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ({"colour": 2}, "is 8-bit RGB; only 8-bit grey"),
        ({"depth": 16}, "is 16-bit grey; only"),
        ({"colour": 3, "lace": 1}, "is interlaced 8-bit palette; only"),
    ],
)
def test_other_kinds_of_png_are_named(kind: dict[str, int], found: str, tmp_path: Path) -> None:
    file = tmp_path / "image.png"
    file.write_bytes(png(b"\0" * 12, 3, 3, **kind))
    with pytest.raises(ValueError, match=f"image.png {found}"):
        read_png(file)


def test_damaged_png_files_are_told_apart(tmp_path: Path) -> None:
    good = png(filtered(np.arange(16, dtype=np.uint8).reshape(4, 4), 1), 4, 4)
    flipped, unsound = bytearray(good), bytearray(good)
    flipped[len(SIGNATURE) + 4] ^= 1
    unsound[len(SIGNATURE) + 8 + 10] ^= 1  # the number of the compression
    for data, message in {
        b"": "is empty",
        b"GIF89a..": "not a PNG file: it begins with b'GIF89a..'",
        good[:-20]: "is damaged: Truncated File Read",
        bytes(flipped): "does not begin with a header",
        bytes(unsound): r"is damaged: .*bad header checksum in b'IHDR'",
        png(b"\0" * 19, 4, 4): "is damaged: image file is truncated",
        png(b"\5" * 20, 4, 4): "is damaged: unrecognized data stream contents",
        SIGNATURE + chunk(b"IDAT", b""): "does not begin with a header",
        good.replace(good[41:49], b"\0" * 8): r"is damaged: .*bad header checksum in b'IDAT'",
    }.items():
        file = tmp_path / "image.png"
        file.write_bytes(data)
        with pytest.raises(DamagedImageError, match=message):
            read_png(file)
    file.write_bytes(png(b"", 1 << 20, 1 << 20))
    with pytest.raises(ValueError, match="1048576 x 1048576 pixels; at most"):
        read_png(file)


def test_any_change_of_a_byte_is_harmless_or_damage(tmp_path: Path) -> None:
    image = picture(0, 12)
    good = png(filtered(image, 4), 12, 12)
    file = tmp_path / "image.png"
    for place in range(len(good)):
        changed = bytearray(good)
        changed[place] ^= 0x15
        for data in (bytes(changed), good[:place]):
            file.write_bytes(data)
            with suppress(ValueError):
                assert np.array_equal(read_png(file), image)


def test_reading_needs_pillow_and_not_numba(tmp_path: Path) -> None:
    write_png(tmp_path / "image.png", picture(0, 12))
    script = """
import sys
sys.modules["numba"] = None
from pathlib import Path
from s4d_torch.data.files.png import read_png
print(read_png(Path(sys.argv[1])).shape)
sys.modules["PIL"] = sys.modules["PIL.PngImagePlugin"] = None
read_png(Path(sys.argv[1]))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "image.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "(12, 12)\n"
    assert "PNG files need Pillow" in done.stderr
    assert "pip install 's4d-torch[images]'" in done.stderr


# ---- official files ---------------------------------------------------------------------------


def write_release(root: Path, count: int = 40) -> Path:
    """Images and lists as in the release, 25 a list; returns the folder of the difficulty."""
    place = root / "pathfinder32" / "curv_contour_length_14"
    (place / "metadata").mkdir(parents=True)
    for index in range(count):
        batch, number = divmod(index, 25)
        images = place / "imgs" / str(batch)
        images.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(index, 32)).save(images / f"sample_{number}.png")
        with (place / "metadata" / f"{batch}.npy").open("a") as file:
            line = f"imgs/{batch} sample_{number}.png {number} {index % 2} 1.8 14 4 5 1.5 1 1"
            file.write(f"{line}\n")
    return place


OFFICIAL = PathfinderOptions(source="official")


@pytest.mark.parametrize("nested", ["lra_release", "lra_release/lra_release"])
def test_official_images(nested: str, folder: DataFolder) -> None:
    write_release(folder.root / nested)
    data = load_pathfinder(OFFICIAL, folder)
    assert [len(split) for split in data.splits.values()] == [32, 4, 4]
    rows = np.concatenate([split.index for split in data.splits.values()])
    assert sorted(rows) == list(range(40))
    for split in data.splits.values():
        for row in split.index:
            assert np.array_equal(split.inputs[0][row][:, 0], picture(row, 32).ravel())
            assert split.targets[row] == row % 2
    again = load_pathfinder(OFFICIAL, folder)
    assert np.array_equal(again.test.index, data.test.index)
    other = load_pathfinder(replace(OFFICIAL, split_seed=1), folder)
    assert not np.array_equal(other.test.index, data.test.index)


def test_an_empty_image_is_left_out_with_one_warning(folder: DataFolder) -> None:
    place = write_release(folder.root / "lra_release")
    (place / "imgs" / "1" / "sample_3.png").write_bytes(b"")
    with pytest.warns(
        UserWarning, match=r"1 of 40 images cannot be read; .*3.png is empty"
    ) as told:
        data = load_pathfinder(OFFICIAL, folder)
    assert len(told) == 1
    assert [len(split) for split in data.splits.values()] == [31, 4, 4]
    assert 28 not in np.concatenate([split.index for split in data.splits.values()])


def test_many_unreadable_images_are_an_error(folder: DataFolder) -> None:
    place = write_release(folder.root / "lra_release")
    (place / "imgs" / "1" / "sample_3.png").unlink()
    (place / "imgs" / "0" / "sample_9.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(ValueError, match=r"2 of 40 images .*9.png .*Is the archive unpacked whole"):
        load_pathfinder(OFFICIAL, folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("imgs/0 sample_0.png 0", r"1.npy:16: expected folder, file, number and label 0 or 1, got"),
        ("imgs/0 sample_0.png 0 2 1.8", r"1.npy:16: expected .* got 'imgs/0 sample_0.png 0 2 1.8'"),
        ("../.. sample_0.png 0 1", r"1.npy:16: ../../sample_0.png lies outside"),
    ],
)
def test_wrong_lists_are_named(line: str, message: str, folder: DataFolder) -> None:
    place = write_release(folder.root / "lra_release")
    with (place / "metadata" / "1.npy").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        load_pathfinder(OFFICIAL, folder)


def test_lists_and_images_of_another_kind_are_named(folder: DataFolder) -> None:
    place = write_release(folder.root / "lra_release", count=2)
    Image.fromarray(np.zeros((8, 9), np.uint8)).save(place / "imgs" / "0" / "sample_1.png")
    with pytest.raises(ValueError, match=r"sample_1.png has 9 x 8 pixels, expected 32 x 32"):
        load_pathfinder(OFFICIAL, folder)
    np.save(place / "metadata" / "0.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"0.npy is a NumPy array; the arena's lists are text"):
        load_pathfinder(OFFICIAL, folder)
    (place / "metadata" / "0.npy").write_text("")
    with pytest.raises(ValueError, match="metadata lists no images"):
        load_pathfinder(OFFICIAL, folder)
    (place / "metadata" / "0.npy").unlink()
    with pytest.raises(MissingDataError, match=r"metadata has no \*.npy"):
        load_pathfinder(OFFICIAL, folder)


def test_a_missing_release_is_named(folder: DataFolder) -> None:
    with pytest.raises(MissingDataError, match=r"lra_release.gz"):
        load_pathx(PathXOptions(source="official"), folder)
