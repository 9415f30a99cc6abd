"""MNIST: idx files, small and real, whole and damaged."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from image_files import IDX, MNIST, Bytes, idx, linked, load, noise, write_mnist
from s4d_torch.data import DataFolder, MissingDataError
from s4d_torch.data.tasks import mnist as mnist_module
from s4d_torch.data.tasks.mnist import find_files, permutation, read_idx


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_digits_are_rows_of_pixels(tmp_path: Path, suffix: str) -> None:
    train, test = write_mnist(tmp_path, suffix=suffix)
    data = load("mnist", tmp_path)
    assert [len(split) for split in data.splits.values()] == [36, 4, 20]
    assert (data.signature.features, data.signature.length, data.signature.outputs) == (1, 784, 10)
    assert np.array_equal(data.train.inputs[0].values, train.reshape(40, 784, 1))
    assert np.array_equal(data.test.inputs[0].values, test.reshape(20, 784, 1))
    assert np.array_equal(data.train.labels(), data.train.index % 10)


def test_names_that_some_tools_give_are_found(tmp_path: Path) -> None:
    write_mnist(tmp_path, suffix="")
    for name in IDX:
        (tmp_path / MNIST / name).rename(tmp_path / MNIST / name.replace("-idx", ".idx"))
    assert len(load("mnist", tmp_path).test) == 20


def test_only_missing_files_are_asked_for(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / MNIST / f"{IDX[2]}.gz").unlink()
    with pytest.raises(MissingDataError) as missing:
        load("mnist", tmp_path)
    assert str(missing.value).count("https://ossci") == 1
    assert mnist_module.SOURCES[IDX[2]].url in str(missing.value)


def test_all_images_have_one_order_of_pixels(tmp_path: Path) -> None:
    train, _ = write_mnist(tmp_path)
    order = permutation(5)
    assert sorted(order) == list(range(784))
    permuted = load("pmnist", tmp_path, permutation_seed=5)
    assert np.array_equal(permuted.train.inputs[0].values[..., 0], train.reshape(40, 784)[:, order])
    assert permuted.train.inputs[0].values.flags.c_contiguous
    other = load("pmnist", tmp_path)
    assert not np.array_equal(permuted.train.inputs[0].values, other.train.inputs[0].values)
    assert permutation(0)[:5].tolist() == [318, 2, 606, 446, 758]  # on every machine


def damaged(content: bytes, path: Path) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_damaged_idx_files_are_refused(tmp_path: Path, name: str) -> None:
    good, path = idx(noise(5, 4, 3)), tmp_path / name
    assert np.array_equal(read_idx(damaged(good, path), 3), noise(5, 4, 3))
    cases = {
        b"\0\0\x0d\x03" + good[4:]: "begins with the bytes 00 00 0d 03, expected 00 00 08 03",
        b"": "begins with the bytes , expected 00 00 08 03",
        good[:10]: "ends within its header of 16 bytes",
        good[:-1]: "announces 5 x 4 x 3 = 60 bytes of data and holds 59",
        good + b"\0": "announces 5 x 4 x 3 = 60 bytes of data and holds more",
        good[:4]
        + b"\xff" * 12
        + b"x": "= 79228162458924105385300197375 bytes of data, more than 1073741824;",
    }
    for content, message in cases.items():
        with pytest.raises(ValueError, match=str(path)) as refused:
            read_idx(damaged(content, path), 3)
        assert message in str(refused.value)


def test_damaged_compression_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    for content in (gzip.compress(idx(noise(5, 4, 3)))[:-9], idx(noise(5, 4, 3))):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or no gzip file"):
            read_idx(path, 3)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        (0, noise(40, 32, 32), "holds images of 32x32 pixels, expected 28x28"),
        (1, noise(39) % 10, "holds 40 images and .* 39 labels"),
        (3, np.arange(20, dtype=np.uint8), "the label of image 10 .* is 10, expected 0 to 9"),
    ],
)
def test_files_that_do_not_fit_are_refused(
    tmp_path: Path, file: int, array: Bytes, message: str
) -> None:
    write_mnist(tmp_path)
    (tmp_path / MNIST / f"{IDX[file]}.gz").write_bytes(gzip.compress(idx(array)))
    with pytest.raises(ValueError, match=message):
        load("mnist", tmp_path)


def test_the_real_mnist(real_data: Callable[..., Path], tmp_path: Path) -> None:
    root = linked(real_data("mnist"), MNIST, tmp_path)
    data = load("mnist", root)
    assert [len(split) for split in data.splits.values()] == [54000, 6000, 10000]
    assert data.train.targets[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.test.targets[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(data.test.labels())[[0, 1, 5]].tolist() == [980, 1135, 892]
    # the known mean and deviation, 0.1307 and 0.3081, are those of all 60000
    assert np.allclose(data.signature.input_shift[0] / 255, 0.1307, atol=3e-4)
    assert np.allclose(1 / data.signature.input_scale[0] / 255, 0.3081, atol=3e-4)
    image = data.train.inputs[0].values[0].reshape(28, 28)
    assert image[5, 12:20].tolist() == [3, 18, 18, 18, 126, 136, 175, 26]
    assert not image[:5].any()
    permuted = load("pmnist", root)
    assert np.array_equal(
        np.sort(permuted.test.inputs[0][0], 0), np.sort(data.test.inputs[0][0], 0)
    )


def test_the_real_files_have_the_official_checksums(
    real_data: Callable[..., Path], tmp_path: Path
) -> None:
    mirror = (real_data("mnist") / MNIST).as_uri()
    files = find_files(DataFolder(tmp_path, mirror=mirror))
    assert [file.name for file in files] == [f"{name}.gz" for name in IDX]
    assert all((tmp_path / "downloads" / file.name).is_file() for file in files)
