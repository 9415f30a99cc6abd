"""Images: CIFAR-10 in its binary format, small and real, and what all image tasks share."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from image_files import CIFAR, linked, load, write_cifar, write_mnist
from s4d_torch.data import DataFolder, MissingDataError
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks.cifar import CifarOptions, grey
from s4d_torch.data.tasks.mnist import MnistOptions, PermutedMnistOptions


def test_colour_images_are_rows_of_pixels_with_channels_last(tmp_path: Path) -> None:
    written = write_cifar(tmp_path)
    data = load("scifar", tmp_path)
    assert [len(split) for split in data.splits.values()] == [90, 10, 20]
    assert (data.signature.features, data.signature.length, data.signature.outputs) == (3, 1024, 10)
    assert data.signature.classes[6] == "frog"
    training = np.concatenate([written[f"data_batch_{i}"] for i in range(1, 6)])
    stored = data.train.inputs[0].values
    assert stored.dtype == np.uint8
    assert np.array_equal(stored, training.reshape(100, 1024, 3))
    assert np.array_equal(stored[3, 2 * 32 + 5], training[3, 2, 5])  # row 2, column 5
    assert np.array_equal(data.test.inputs[0].values, written["test_batch"].reshape(20, 1024, 3))
    assert np.array_equal(data.test.labels(), np.arange(20) % 10)
    assert np.array_equal(data.train.labels(), data.train.index % 20 % 10)


def test_pixels_are_scaled_by_the_training_images_alone(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    for name in ("scifar", "image"):
        data = load(name, tmp_path)
        inputs = data.batch(data.train, np.arange(len(data.train))).inputs
        assert inputs.mean((0, 1)).abs().max() < 1e-5
        assert (inputs.std((0, 1)) - 1).abs().max() < 1e-4
        pixels = data.train.inputs[0].values[data.train.index]
        assert np.allclose(data.signature.input_shift, pixels.mean((0, 1)))
        assert np.allclose(data.signature.input_scale, 1 / pixels.std((0, 1)))


def test_grey_is_the_luma_that_others_compute(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    written = write_cifar(tmp_path)["test_batch"]
    data = load("image", tmp_path)
    assert data.signature.features == 1
    expected = [np.asarray(image.fromarray(each).convert("L")) for each in written]
    assert np.array_equal(data.test.inputs[0].values, np.reshape(expected, (20, 1024, 1)))


def test_grey_of_known_colours() -> None:
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [10, 10, 10]])
    assert grey(colours.T.astype(np.uint8)[None]).tolist() == [[76, 150, 29, 255, 10]]


@pytest.mark.parametrize("write", [write_cifar, write_mnist])
def test_splits_are_disjoint_complete_and_decided_by_the_seed(
    tmp_path: Path, write: Callable[[Path], object]
) -> None:
    write(tmp_path)
    name = "scifar" if write is write_cifar else "mnist"
    first, again, other = (load(name, tmp_path, split_seed=seed) for seed in (3, 3, 4))
    both = np.concatenate([first.train.index, first.validation.index])
    assert sorted(both) == list(range(len(both)))
    assert len(first.validation) == len(both) // 10
    assert np.array_equal(first.validation.index, again.validation.index)
    assert not np.array_equal(first.validation.index, other.validation.index)


def test_fewer_batches_are_used_with_one_warning(tmp_path: Path) -> None:
    write_cifar(tmp_path, batches=2)
    with pytest.warns(UserWarning, match="2 of the 5 training batches") as warned:
        data = load("scifar", tmp_path)
    assert len(warned) == 1
    assert str(tmp_path / CIFAR) in str(warned[0].message)
    assert Path(warned[0].filename).name == "image_files.py"  # who loads, not who warns
    assert [len(split) for split in data.splits.values()] == [36, 4, 20]


@pytest.mark.parametrize("size", [0, 3072, 3073 * 2 + 1])
def test_a_file_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    write_cifar(tmp_path)
    file = tmp_path / CIFAR / "data_batch_3.bin"
    file.write_bytes(bytes(size))
    with pytest.raises(ValueError, match=f"{file} has {size} bytes, expected a multiple of 3073"):
        load("scifar", tmp_path)
    assert not list((tmp_path / "prepared").iterdir())


def test_a_label_that_is_no_class_is_refused(tmp_path: Path) -> None:
    write_cifar(tmp_path)
    file = tmp_path / CIFAR / "data_batch_2.bin"
    content = bytearray(file.read_bytes())
    content[7 * 3073] = 10
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file}: the label of image 7 .* is 10, expected 0 to 9"):
        load("image", tmp_path)


def test_too_few_images_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, train=3)
    with pytest.raises(ValueError, match="3 training and 20 test images are too few"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("name", ["scifar", "image", "mnist", "pmnist"])
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    task = TASKS[name]
    assert not task.is_here(DataFolder(tmp_path))
    with pytest.raises(MissingDataError) as missing:
        load(name, tmp_path)
    for source in task.sources:
        assert source.url in str(missing.value)
        assert str(tmp_path / "downloads" / source.name) in str(missing.value)
    (write_mnist if "mnist" in name else write_cifar)(tmp_path)
    assert task.is_here(DataFolder(tmp_path))


def test_training_batches_that_are_missing_are_named(tmp_path: Path) -> None:
    write_cifar(tmp_path, batches=0)
    with pytest.raises(MissingDataError, match=r"data_batch_1\.bin is not there"):
        load("scifar", tmp_path)


@pytest.mark.parametrize("options", [CifarOptions, MnistOptions, PermutedMnistOptions])
def test_seeds_are_checked(options: type[MnistOptions]) -> None:
    with pytest.raises(ValueError, match="split_seed must be at least 0, got -1"):
        options(split_seed=-1)
    with pytest.raises(TypeError, match=r"split_seed must be an integer, got 1\.5"):
        options(split_seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="permutation_seed must be at least 0"):
        PermutedMnistOptions(permutation_seed=-1)


@pytest.mark.filterwarnings("ignore:2 of the 5 training batches")
def test_the_real_cifar(real_data: Callable[..., Path], tmp_path: Path) -> None:
    root = linked(real_data("cifar10"), CIFAR, tmp_path)
    images = 10000 * len(list((root / CIFAR).glob("data_batch_*.bin")))  # not all may be here
    colour, in_grey = load("scifar", root), load("image", root)
    for data in (colour, in_grey):
        sizes = [len(split) for split in data.splits.values()]
        assert sizes == [images * 9 // 10, images // 10, 10000]
        assert np.bincount(data.test.labels()).tolist() == [1000] * 10
        classes = [data.signature.classes[label] for label in data.train.targets[:6]]
        assert classes == ["frog", "truck", "truck", "deer", "automobile", "automobile"]
    first = colour.train.inputs[0].values[0]
    assert first[:2].tolist() == [[59, 62, 63], [43, 46, 45]]
    assert first[-1].tolist() == [123, 92, 72]
    # rows are right: pixels below each other differ little, as do those beside each other
    images = colour.test.inputs[0].values[:200].reshape(-1, 32, 32, 3).astype(int)
    assert np.abs(np.diff(images, axis=1)).mean() < 20
    assert np.abs(np.diff(images, axis=2)).mean() < 20
    # near the known means of all five batches, 125.3, 123.0, 113.9
    assert np.allclose(colour.signature.input_shift, [125.3, 123.0, 113.9], atol=0.7)
    assert np.allclose(1 / np.array(colour.signature.input_scale), [63.0, 62.1, 66.7], atol=0.5)
    assert in_grey.train.inputs[0].values[0, :2].tolist() == [[61], [45]]


def cells(line: str) -> list[str]:
    """The cells of a line of a LaTeX table, without commands, citations and deviations."""
    bare = re.sub(r"~\\citep\{.*?\}|\\\w+\{|[{}]|\\\\|\(0\.\d+\)|\(1\.69\)", "", line)
    return [cell.strip() for cell in bare.split("&")]


def test_settings_and_results_are_those_of_the_paper(shared: Path) -> None:
    lines = (shared / "paper" / "S4D.tex").read_text("utf-8").splitlines()
    rows = [cells(line) for line in lines if "&" in line]
    for name, title in (("scifar", "sCIFAR"), ("image", "Image")):
        (row,) = (row for row in rows if row[0] == title and len(row) == 12)
        paper = TASKS[name].paper
        assert paper is not None
        sizes = [paper.n_layers, paper.d_model, paper.d_state, paper.dropout, paper.lr]
        assert sizes == [float(row[i]) for i in (1, 2, 3, 6, 7)]
        assert [paper.batch_size, paper.epochs, paper.weight_decay] == [*map(float, row[8:11])]
        assert (row[4], row[5], paper.norm, paper.prenorm) == ("LN", "False", "layer", False)
        assert f"({paper.dt_min}, {paper.dt_max})" in row[11]
        assert paper.bidirectional
    own = [row for row in rows if len(row) == 2 and row[0] in TASKS["scifar"].published]
    assert TASKS["scifar"].published == {row[0]: float(row[1]) for row in own}
    (header,) = (row for row in rows if "Image" in row[1:])
    arena = [row for row in rows if len(row) == len(header) and row[0] != "Model"]
    image = {row[0]: float(row[header.index("Image")]) for row in arena}
    assert TASKS["image"].published == image
