"""Sequences, splits and batches; what is kept on disk; the digits."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from s4d_torch.cli import main
from s4d_torch.data import (
    TASKS,
    DataFolder,
    Dataset,
    Sequences,
    Signature,
    Split,
    load_digits,
)
from s4d_torch.data.splits import cut_randomly, split_randomly
from s4d_torch.data.store import Scratch


def ramps(lengths: list[int]) -> list[np.ndarray]:
    """Sequences (length, 2) that count from 1."""
    return [np.arange(1, 2 * n + 1, dtype=np.int16).reshape(n, 2) for n in lengths]


def dataset(inputs: Sequences | tuple[Sequences, ...], **options: object) -> Dataset:
    towers = inputs if isinstance(inputs, tuple) else (inputs,)
    whole = Split.whole(towers, np.arange(len(towers[0])))
    fields = {"features": 2, "outputs": len(whole), "length": towers[0].longest, **options}
    return Dataset(whole, whole, whole, Signature("classification", **fields))  # type: ignore[arg-type]


def test_sequences_of_one_length_are_one_array() -> None:
    sequences = Sequences.of(ramps([3, 3]))
    assert not sequences.ragged
    assert (len(sequences), sequences.longest) == (2, 3)
    assert sequences.values.shape == (2, 3, 2)


def test_ragged_sequences_are_padded_to_the_longest_of_their_batch() -> None:
    data = dataset(Sequences.of(ramps([2, 5, 3])))
    batch = data.batch(data.train, np.array([2, 0]))
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [3, 2]
    assert batch.inputs.shape == (2, 3, 2)
    assert batch.inputs[1, 2].tolist() == [0, 0]
    assert batch.inputs[0, :, 0].tolist() == [1, 3, 5]
    assert batch.targets.tolist() == [2, 0]


def test_values_are_scaled_for_the_model_and_stay_as_they_are_in_store() -> None:
    data = dataset(Sequences.of(ramps([3, 3])), input_shift=(1.0, 2.0), input_scale=(0.5, 2.0))
    batch = data.batch(data.train, np.array([0]))
    assert batch.lengths is None
    assert batch.inputs[0].tolist() == [[0, 0], [1, 4], [2, 8]]
    assert batch.inputs.dtype == torch.float32
    assert data.train.inputs[0].values.dtype == np.int16


def test_tokens_are_integers_and_pairs_share_a_length() -> None:
    first = Sequences.of([np.array([7, 8, 9], np.uint8), np.array([1], np.uint8)])
    second = Sequences.of([np.array([2], np.uint8), np.array([3, 4], np.uint8)])
    data = dataset((first, second), tokens=True, towers=2)
    batch = data.batch(data.train, np.array([0, 1]))
    assert batch.lengths is not None
    assert batch.inputs.tolist() == [[[7, 8, 9], [2, 0, 0]], [[1, 0, 0], [3, 4, 0]]]
    assert batch.inputs.dtype == torch.int64
    assert batch.lengths.tolist() == [[3, 1], [1, 2]]
    assert data.train.lengths().tolist() == [3, 2]  # type: ignore[union-attr]


def test_targets_of_a_regression_are_in_units_of_their_spread() -> None:
    whole = Split.whole(Sequences(np.zeros((3, 4, 1))), np.array([60.0, 80.0, 100.0]))
    signature = Signature("regression", 1, 1, 4, target_shift=80.0, target_scale=20.0)
    data = Dataset(whole, whole, whole, signature)
    assert data.batch(data.train, np.arange(3)).targets.tolist() == [-1, 0, 1]


def test_decimation_takes_every_second_sample_and_halves_the_rate() -> None:
    data = dataset(Sequences.of(ramps([5, 5])), sample_rate=8.0).decimated(2)
    assert data.signature.length == 3
    assert data.signature.sample_rate == 4
    assert data.batch(data.test, np.array([0])).inputs[0, :, 0].tolist() == [1, 5, 9]
    ragged = dataset(Sequences.of(ramps([5, 2]))).decimated(2)
    assert [ragged.test.inputs[0][i][:, 0].tolist() for i in (0, 1)] == [[1, 5, 9], [1]]
    assert ragged.test.inputs[0] is ragged.train.inputs[0]


def test_a_part_of_grouped_sequences_has_all_classes() -> None:
    whole = Split.whole(Sequences(np.zeros((90, 2, 1))), np.repeat([0, 1, 2], 30))
    data = Dataset(whole, whole, whole, Signature("classification", 1, 3, 2))
    assert data.shortened(train=6).train.index.tolist() == [0, 1, 2, 3, 4, 5]
    few = data.grouped().shortened(train=6, test=200)
    assert few.train.index.tolist() == [0, 15, 30, 45, 60, 75]
    assert few.test.index.tolist() == list(range(90))


def test_each_sequence_needs_a_target() -> None:
    with pytest.raises(ValueError, match="each sequence needs one target; got 2 and 3"):
        Split.whole(Sequences.of(ramps([1, 1])), np.zeros(3))


def test_random_cuts_are_disjoint_complete_and_decided_by_the_seed() -> None:
    parts = cut_randomly(50, (0.1, 0.2), seed=0)
    assert [len(part) for part in parts] == [35, 5, 10]
    assert sorted(np.concatenate(parts)) == list(range(50))
    np.random.rand(3)  # noqa: NPY002  numbers drawn elsewhere do not matter
    again = cut_randomly(50, (0.1, 0.2), seed=0)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    other = cut_randomly(50, (0.1, 0.2), seed=1)
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


# ---- what is kept on disk ---------------------------------------------------------------------


def build(scratch: Scratch) -> Dataset:
    values = scratch.array((6, 4, 1), np.uint8)
    values[:] = np.arange(24).reshape(6, 4, 1)
    whole = Split.whole(Sequences(values), np.arange(6))
    signature = Signature("classification", 1, 6, 4, classes=tuple("abcdef"))
    return split_randomly(whole, signature, validation=1 / 6, test=1 / 3, seed=0)


def test_prepared_data_is_built_once_and_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, built = DataFolder(tmp_path), []

    def counted(scratch: Scratch) -> Dataset:
        built.append(1)
        return build(scratch)

    first = folder.prepared("six", {"seed": 0}, [], counted)
    second = folder.prepared("six", {"seed": 0}, [], counted)
    assert len(built) == 1
    assert isinstance(second.train.inputs[0].values, np.memmap)
    assert second.signature == first.signature
    for name, split in first.splits.items():
        assert np.array_equal(split.index, second.splits[name].index)
    files = list(tmp_path.glob("prepared/*/*.npy"))
    assert sum(file.stat().st_size for file in files if file.stat().st_size > 1000) == 0  # no copy
    folder.prepared("six", {"seed": 1}, [], counted)
    assert len(built) == 2
    monkeypatch.setattr("s4d_torch.data.folder.__version__", "99")  # whose loaders may differ
    folder.prepared("six", {"seed": 1}, [], counted)
    assert len(built) == 3


def test_prepared_data_notices_another_file(tmp_path: Path) -> None:
    source, built = tmp_path / "raw", []

    def counted(scratch: Scratch) -> Dataset:
        built.append(1)
        return build(scratch)

    for content in ("a", "a", "longer"):
        if not source.exists() or source.read_text() != content:
            source.write_text(content)
        DataFolder(tmp_path).prepared("six", {}, [source], counted)
    assert len(built) == 2


def test_prepared_data_that_is_damaged_is_to_be_removed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.prepared("x", {}, [], build)
    (place,) = tmp_path.glob("prepared/x-*")
    next(place.glob("*.npy")).unlink()
    with pytest.raises(ValueError, match=rf"{place} is damaged .*; remove it, and it is prepared"):
        folder.prepared("x", {}, [], build)


def test_a_folder_that_cannot_keep_prepared_data_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"cannot be kept in .*prepared: .* \(--data-dir\)"):
        DataFolder(tmp_path / "file").prepared("x", {}, [], build)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken(scratch: Scratch) -> Dataset:
        build(scratch)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        DataFolder(tmp_path).prepared("six", {}, [], broken)
    assert list((tmp_path / "prepared").iterdir()) == []
    assert len(DataFolder(tmp_path).prepared("six", {}, [], build).train) == 3


def test_a_slice_of_a_mapped_array_is_stored_as_a_slice(tmp_path: Path) -> None:
    def half(scratch: Scratch) -> Dataset:
        data = build(scratch)
        values = data.train.inputs[0].values[:3]
        whole = Split.whole(Sequences(values), np.arange(3))
        return Dataset(whole, whole, whole, data.signature)

    data = DataFolder(tmp_path).prepared("half", {}, [], half)
    assert data.train.inputs[0].values.shape == (3, 4, 1)


def test_ragged_sequences_are_written_as_they_come(tmp_path: Path) -> None:
    sequences = Scratch(tmp_path).ragged(iter(ramps([2, 0, 3])))
    assert [len(sequences[i]) for i in range(3)] == [2, 0, 3]
    assert sequences[2].tolist() == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(ValueError, match="no sequences"):
        Scratch(tmp_path).ragged(iter([]))


# ---- the digits, and all tasks ----------------------------------------------------------------


def test_digits_are_sequences_of_pixels() -> None:
    data = load_digits()
    assert (data.signature.features, data.signature.outputs) == (1, 10)
    assert [len(split) for split in data.splits.values()] == [1258, 180, 359]
    for split in data.splits.values():
        batch = data.batch(split, np.arange(len(split)))
        assert batch.inputs.shape == (len(split), 64, 1)
        assert batch.inputs.min() == 0
        assert batch.inputs.max() == 1
        assert set(batch.targets.tolist()) == set(range(10))


def test_digits_need_nothing_but_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits as theirs

    pixels, labels = theirs(return_X_y=True)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    data = load_digits()
    ours = {
        (split.inputs[0][i].tobytes(), int(split.targets[i]))
        for split in data.splits.values()
        for i in split.index
    }
    assert ours == {
        (image.tobytes(), int(label))
        for image, label in zip(pixels.astype(np.uint8), labels, strict=True)
    }


@pytest.mark.parametrize(
    ("name", "official", "other"),
    [
        ("mnist", "mnist/{}-ubyte.gz", "mnist/{}-ubyte"),
        ("retrieval", "lra_release/lra_release/tsv_data/{}", "lra_release/tsv_data/{}"),
        ("fsdd", "fsdd/{}", "free-spoken-digit-dataset-master/{}"),
    ],
)
def test_what_can_be_read_is_listed_as_here(
    name: str, official: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {
        "mnist": [f"{p}-{k}" for p in ("train", "t10k") for k in ("images-idx3", "labels-idx1")],
        "retrieval": [f"new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test")],
        "fsdd": ["recordings"],
    }[name]
    for i, layout in enumerate((official, other)):
        for part in parts:
            file = tmp_path / str(i) / layout.format(part)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        assert TASKS[name].is_here(DataFolder(tmp_path / str(i)))
        assert main(["tasks", name, "--data-dir", str(tmp_path / str(i))]) == 0
        assert "(missing)" not in capsys.readouterr().out
    assert not TASKS[name].is_here(DataFolder(tmp_path))
    assert next(TASKS[name].places(DataFolder(tmp_path)))[1] is False


PAPER = ["scifar", "image", "sc35", "bidmc-hr", "bidmc-rr", "bidmc-spo2", "listops", "text"]
PAPER += ["retrieval", "pathfinder", "pathx", "sc35-ar"]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_says_what_it_is(name: str) -> None:
    task = TASKS[name]
    assert task.summary
    assert task.licence or task.size == "your own"
    assert task.small.d_model <= 64
    assert task.small.n_layers <= 4
    assert (task.paper is not None) == (name in PAPER)
    if task.paper is not None:
        assert task.published["S4D-LegS"] > 0
    json.dumps(dict(task.published))
