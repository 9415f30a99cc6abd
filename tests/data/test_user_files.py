"""A user's own data: what is read from arrays, tables and archives, the splits, bad files."""

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s4d_torch._registry import UnknownNameError
from s4d_torch.cli import main
from s4d_torch.data import TASKS, DataFolder, Dataset, MissingDataError, find_task
from s4d_torch.data.files import npy as array_files
from s4d_torch.data.splits import Holdout, hold_out
from s4d_torch.data.user_files.arrays import ArraysOptions, load_arrays
from s4d_torch.data.user_files.inputs import Item, read_items
from s4d_torch.data.user_files.table import TableOptions, load_table
from s4d_torch.data.user_files.targets import natural_order, read_targets
from s4d_torch.data.user_files.ucr import UcrOptions, load_ucr
from s4d_torch.training import Run

RANDOM = np.random.default_rng(0)


def place(i: int) -> str:
    return f"here:{i}"


def rows_of(data: Dataset) -> dict[float, tuple[str, Any]]:
    """By the first value of a sequence: the split it is in, and its class or target."""
    found = {}
    for name, split in data.splits.items():
        for i, label in zip(split.index, split.labels(), strict=True):
            target = data.signature.classes[label] if data.signature.classes else float(label)
            found[float(split.inputs[0][int(i)][0, 0])] = (name, target)
    return found


def check_disjoint(data: Dataset) -> None:
    index = np.concatenate([data.train.index, data.validation.index, data.test.index])
    assert np.array_equal(np.sort(index), np.arange(len(index)))


# ---- targets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "kind", "expected", "values", "classes"),
    [
        (["b", "a", "b"], "auto", "classification", [1, 0, 1], ("a", "b")),
        (["10", "9", "-1", "9"], "auto", "classification", [2, 1, 0, 1], ("-1", "9", "10")),
        (["1.5", "2", "3"], "auto", "regression", [1.5, 2, 3], ()),
        (["1", "2", "3"], "regression", "regression", [1, 2, 3], ()),
        (["1.0000e+00", "2", "1"], "classification", "classification", [0, 1, 0], ("1", "2")),
        (np.array([3, 1, 3]), "auto", "classification", [1, 0, 1], ("1", "3")),
        (np.array([True, False]), "auto", "classification", [1, 0], ("False", "True")),
        (np.array([0.5, 1.0]), "auto", "regression", [0.5, 1.0], ()),
        (np.array([2.0, 1.0]), "classification", "classification", [1, 0], ("1", "2")),
        (np.array([b"x", b"y"]), "auto", "classification", [0, 1], ("x", "y")),
    ],
)
def test_targets(raw: Any, kind: Any, expected: str, values: Any, classes: Any) -> None:
    targets = read_targets(raw, kind, place)
    assert targets.kind == expected
    assert targets.values.tolist() == values
    assert targets.classes == classes
    assert targets.outputs == max(1, len(classes))


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        (["a", "", "b"], "auto", "here:1: the target is missing"),
        (["1.5", "NaN"], "auto", "here:1: the target is missing"),
        (["1.5", "inf"], "auto", "here:1: the target is inf"),
        (np.array([1.0, np.nan]), "auto", "here:1: the target is missing"),
        (np.array([1.0, np.inf]), "auto", "here:1: the target is inf"),
        (["1.5", "x"], "auto", "here:1: the target 'x' is no number, but others are, such as 1.5"),
        (["1", "x"], "regression", "here:1: the target 'x' is no number"),
        (["1", "1.5"], "classification", "here:1: the target 1.5 is no class"),
        (["a", "a"], "auto", "here:0: every target is 'a'; two classes are needed"),
        (["1.5", "1.5"], "auto", "here:0: every target is 1.5"),
        (["1", "2", "3"], "auto", "all 3 targets are different whole numbers"),
    ],
)
def test_bad_targets_are_refused(raw: Any, kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_targets(raw, kind, place)


def test_targets_of_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="here:0: targets of type complex128"):
        read_targets(np.array([1j, 2j]), "auto", place)


def test_whole_numbers_that_may_be_amounts_are_doubted() -> None:
    ages = [20 + i // 2 for i in range(60)]  # each twice: classes, it seems
    assert read_targets(np.array(ages), "auto", place).kind == "classification"
    with pytest.warns(UserWarning, match=r"60 targets with 56 .* classes; .*--data\.kind regress"):
        read_targets(np.array(ages[:4] + list(range(56))), "auto", place)
    with pytest.warns(UserWarning, match=r"4 targets with 2 .* predict; .*--data\.kind classif"):
        assert read_targets(np.array([0.0, 1, 0, 1]), "auto", place).kind == "regression"


def test_natural_order() -> None:
    names = {"a10", "a2", "B1", "10", "9", "-3", "b"}
    assert natural_order(names) == ("-3", "9", "10", "a2", "a10", "b", "B1")


# ---- splits -----------------------------------------------------------------------------------


def test_every_class_has_its_share() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 10])
    train, validation, test = hold_out(labels, "classification", (0.1, 0.2), seed=3)
    assert np.array_equal(np.sort(np.concatenate([train, validation, test])), np.arange(160))
    assert np.bincount(labels[validation]).tolist() == [10, 5, 1]
    assert np.bincount(labels[test]).tolist() == [20, 10, 2]
    again = hold_out(labels, "classification", (0.1, 0.2), seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(again, (train, validation, test), strict=True))
    assert not np.array_equal(hold_out(labels, "classification", (0.1, 0.2), seed=4)[1], validation)


def test_a_class_of_one_stays_to_learn_from() -> None:
    labels = np.array([0] * 9 + [1])
    for seed in range(20):
        train, validation = hold_out(labels, "classification", (0.3,), seed)
        assert 9 in train
        assert len(validation) == 3


def test_two_cases_of_many_classes_still_validate() -> None:
    labels = np.repeat(np.arange(52), 2)  # as in PigCVP
    train, validation = hold_out(labels, "classification", (0.2,), seed=0)
    assert len(validation) == 21
    assert set(labels[train]) == set(range(52))


def test_too_few_cases_are_refused() -> None:
    with pytest.raises(ValueError, match="3 cases are too few to hold out"):
        hold_out(np.arange(3), "classification", (0.1,), seed=0)
    with pytest.raises(ValueError, match="2 cases are too few to hold out"):
        hold_out(np.array([0.5, 1.5]), "regression", (0.1,), seed=0)
    with pytest.raises(ValueError, match="validation must lie between 0 and 1, got 0"):
        Holdout(validation=0.0)
    with pytest.raises(ValueError, match=r"validation 0\.5 and test 0\.5 leave nothing"):
        Holdout(validation=0.5, test=0.5)


# ---- arrays -----------------------------------------------------------------------------------


def arrays(path: Path, **options: Any) -> Dataset:
    return load_arrays(ArraysOptions(path, **options), DataFolder(path.parent))


def saved(tmp_path: Path, **contents: Any) -> Path:
    path = tmp_path / "data.npz"
    np.savez(path, **contents)
    return path


def test_arrays_of_one_channel(tmp_path: Path) -> None:
    X = np.arange(40 * 5, dtype=np.float64).reshape(40, 5)
    y = np.array(["up", "down"])[np.arange(40) % 2]
    data = arrays(saved(tmp_path, X=X, y=y))
    assert [len(split) for split in data.splits.values()] == [28, 4, 8]
    check_disjoint(data)
    assert data.signature.classes == ("down", "up")
    for first, (_, name) in rows_of(data).items():
        assert name == ("up", "down")[int(first / 5) % 2]
    learnt = X[data.train.index]
    assert data.signature.input_shift == pytest.approx((learnt.mean(),))
    assert data.signature.input_scale == pytest.approx((1 / learnt.std(),))
    batch = data.batch(data.train, np.arange(28))
    assert batch.inputs.shape == (28, 5, 1)
    assert batch.lengths is None
    assert float(batch.inputs.mean()) == pytest.approx(0, abs=1e-6)
    assert data.train.inputs[0].values.dtype == np.float32


def test_channels_last_and_first_are_the_same_data(tmp_path: Path) -> None:
    X = RANDOM.integers(-300, 300, (20, 7, 3)).astype(np.int16)
    y = np.arange(20) % 2
    last = arrays(saved(tmp_path, X=X, y=y))
    first = arrays(saved(tmp_path, X=X.swapaxes(1, 2), y=y), channels="first")
    assert np.array_equal(last.train.inputs[0].values, X)
    assert last.train.inputs[0].values.dtype == np.int16  # kept small
    assert np.array_equal(first.train.inputs[0].values, X)
    assert first.signature == last.signature
    assert last.signature.features == 3


def test_the_other_layout_is_suspected(tmp_path: Path) -> None:
    path = saved(tmp_path, X=np.ones((20, 2, 50)), y=np.arange(20) % 2)
    with pytest.warns(UserWarning, match="read as 2 samples of 50 channels; .*channels='first'"):
        arrays(path)


def test_regression_in_units_of_the_training_targets(tmp_path: Path) -> None:
    y = np.linspace(50, 150, 30)
    data = arrays(saved(tmp_path, X=RANDOM.normal(size=(30, 4)), y=y[:, None]))
    assert data.signature.kind == "regression"
    assert data.signature.outputs == 1
    assert data.signature.target_shift == pytest.approx(y[data.train.index].mean())
    targets = data.batch(data.train, np.arange(len(data.train))).targets
    assert float(targets.std(correction=0)) == pytest.approx(1)


def test_splits_of_the_file_are_kept(tmp_path: Path) -> None:
    def part(start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        index = np.arange(start, start + count)
        return np.repeat(index[:, None], 6, axis=1).astype(np.float32), index % 2

    contents = {}
    for name, (start, count) in {"train": (0, 20), "test": (100, 6), "validation": (50, 4)}.items():
        contents[f"X_{name}"], contents[f"y_{name}"] = part(start, count)
    data = arrays(saved(tmp_path, **contents))
    assert [len(split) for split in data.splits.values()] == [20, 4, 6]
    assert {f: n for f, (n, _) in rows_of(data).items()} == {
        **dict.fromkeys(range(20), "train"),
        **dict.fromkeys(range(50, 54), "validation"),
        **dict.fromkeys(range(100, 106), "test"),
    }
    assert all(name == str(int(f) % 2) for f, (_, name) in rows_of(data).items())
    del contents["X_validation"], contents["y_validation"]
    fewer = arrays(saved(tmp_path, **contents), validation=0.25)
    assert [len(split) for split in fewer.splits.values()] == [15, 5, 6]


@pytest.mark.parametrize("key", ["lengths", "offsets"])
def test_ragged_arrays(tmp_path: Path, key: str) -> None:
    lengths = RANDOM.integers(1, 9, 30)
    sequences = [np.full((n, 2), i, dtype=np.float32) for i, n in enumerate(lengths)]
    sizes = lengths if key == "lengths" else np.concatenate([[0], np.cumsum(lengths)])
    path = saved(tmp_path, X=np.concatenate(sequences), y=np.arange(30) % 3, **{key: sizes})
    data = arrays(path)
    assert data.train.inputs[0].ragged
    assert data.signature.length == lengths.max()
    for i, sequence in enumerate(sequences):
        assert np.array_equal(data.train.inputs[0][i], sequence)
    assert all(name == str(int(f) % 3) for f, (_, name) in rows_of(data).items())


def test_ragged_arrays_of_one_length_are_not_ragged(tmp_path: Path) -> None:
    path = saved(tmp_path, X=np.arange(60.0), lengths=[3] * 20, y=np.arange(20) % 2)
    data = arrays(path)
    assert not data.train.inputs[0].ragged
    assert data.train.inputs[0].values.shape == (20, 3, 1)
    assert data.train.inputs[0][7][:, 0].tolist() == [21, 22, 23]


def test_npy_files_and_the_second_start(tmp_path: Path) -> None:
    X, y = RANDOM.normal(size=(20, 8, 2)), np.arange(20) % 2
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    np.save(tmp_path / "y.npy", y)
    targets = str(tmp_path / "y.npy")
    data = arrays(tmp_path / "x.npy", targets=targets)
    assert np.allclose(data.train.inputs[0].values, X)
    kept = data.train.inputs[0].values.filename  # type: ignore[attr-defined]
    again = arrays(tmp_path / "x.npy", targets=targets)
    assert again.train.inputs[0].values.filename == kept  # type: ignore[attr-defined]
    np.save(tmp_path / "x.npy", X + 1)
    changed = arrays(tmp_path / "x.npy", targets=targets)
    assert np.allclose(changed.train.inputs[0].values, X + 1)
    with pytest.raises(ValueError, match=r"has no targets in it; name their .npy file"):
        arrays(tmp_path / "x.npy")
    with pytest.raises(FileNotFoundError, match=r"no file .*z\.npy"):
        arrays(tmp_path / "x.npy", targets=str(tmp_path / "z.npy"))


def test_compressed_arrays_are_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_files, "BLOCK_BYTES", 1000)
    X = RANDOM.integers(0, 9, (7, 30, 16)).astype(np.uint8)  # 480 bytes a case
    np.savez_compressed(tmp_path / "big.npz", X=X, F=np.asfortranarray(X))
    blocks = array_files.stored_arrays(tmp_path / "big.npz")
    assert [blocks[name].in_order for name in "XF"] == [True, False]
    for name in "XF":
        parts = list(array_files.read_blocks(blocks[name]))
        assert [len(part) for part in parts] == [2, 2, 2, 1]
        assert np.array_equal(np.concatenate(parts), X)


GOOD = {"X": np.arange(80.0).reshape(20, 4), "y": np.arange(20) % 2}


def with_hole(value: float) -> np.ndarray:
    X = np.zeros((20, 4, 2))
    X[3, 2, 1] = value
    return X


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"X": with_hole(np.nan)}, "X is nan at case 3, time 2, channel 1"),
        ({"X": with_hole(-np.inf)}, "X is -inf at case 3, time 2, channel 1"),
        ({"X": with_hole(1e300)}, "X is inf at case 3, time 2, .* fit into float32"),
        (
            {"X": np.append(np.zeros(39), np.nan), "lengths": np.full(20, 2)},
            "X is nan at case 19, time 1, channel 0",
        ),
        ({"X": np.zeros((0, 4)), "y": np.zeros(0)}, r"X is \(0, 4\): expected \(cases, time\)"),
        ({"X": np.zeros((20, 0))}, r"X is \(20, 0\): expected"),
        ({"X": np.zeros(20)}, r"X is \(20,\): expected .* need the array 'lengths'"),
        ({"y": np.arange(19) % 2}, r"y is \(19,\): expected one target for each of 20 cases"),
        ({"y": np.zeros((20, 2))}, r"y is \(20, 2\): expected one target"),
        ({"y": np.zeros(20, dtype=int)}, r"y\[0\]: every target is '0'"),
        ({"y": np.array([0.5] * 19 + [np.nan])}, r"y\[19\]: the target is missing"),
        ({"X": np.zeros(20), "lengths": np.full(20, 2)}, "covers the samples 0 to 40, .* 0 to 20"),
        ({"X": np.zeros(20), "lengths": [0] + [1] * 18 + [2]}, "case 0 has no samples"),
        ({"X": np.zeros(20), "lengths": np.ones(20)}, "lengths is .*: expected whole numbers"),
        ({"X": np.zeros(20), "offsets": np.arange(1, 21)}, "covers the samples 1 to 20"),
        (
            {"X": np.zeros(20), "lengths": [1] * 20, "offsets": range(21)},
            "both lengths and offsets",
        ),
        ({"lengths": [4] * 20}, r"with lengths, expected|covers the samples"),
        ({"X_train": np.zeros((20, 4))}, "both X and X_train"),
        ({"X_val": np.zeros((20, 4))}, "unknown array 'X_val'"),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, contents: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays(saved(tmp_path, **(GOOD | contents)))


def test_arrays_of_other_types_are_refused(tmp_path: Path) -> None:
    ragged = np.array([np.zeros(3), np.zeros(4)], dtype=object)
    with pytest.raises(ValueError, match=r"X holds Python objects.*lengths=\[len\(s\)"):
        arrays(saved(tmp_path, X=ragged, y=[0, 1]))
    with pytest.raises(ValueError, match=r"y holds Python objects.*y=np\.array\(names, dtype=str"):
        arrays(saved(tmp_path, X=GOOD["X"], y=np.array(["a", "b"] * 10, dtype=object)))
    with pytest.raises(ValueError, match=r"X is \(20, 4\) of type complex128; expected real"):
        arrays(saved(tmp_path, X=np.zeros((20, 4), complex), y=GOOD["y"]))
    both = GOOD | {"X_train": GOOD["X"], "y_train": GOOD["y"], "X_test": GOOD["X"]}
    del both["X"], both["y"]
    with pytest.raises(ValueError, match="of different sorts: y_train is int64, y_test is <U1"):
        arrays(saved(tmp_path, **both, y_test=np.array(["a", "b"] * 10)))
    with pytest.raises(ValueError, match="test cases have classes that training has not: 2"):
        arrays(saved(tmp_path, **both, y_test=np.arange(20) % 3))
    with pytest.raises(ValueError, match="has no array y_test"):
        arrays(saved(tmp_path, **both))
    both["X_test"] = np.zeros((20, 4, 2))
    with pytest.raises(ValueError, match="one number of channels, but X_train has 1, X_test has 2"):
        arrays(saved(tmp_path, **both, y_test=GOOD["y"]))


def test_objects_beside_the_arrays_do_no_harm(tmp_path: Path) -> None:
    data = arrays(saved(tmp_path, **GOOD, notes=np.array([{"by": "me"}], dtype=object)))
    assert len(data.train) == 14
    with pytest.raises(ValueError, match=r"'X_val'; expected X, X_train, X_validation, X_test, y"):
        arrays(saved(tmp_path, X_train=GOOD["X"], y_train=GOOD["y"], X_val=GOOD["X"]))


@pytest.mark.parametrize(
    "contents",
    [
        {"y": np.array(["a", "b"] * 10, dtype=object)},
        {"X": np.zeros((20, 4), complex)},
        {"y": np.arange(20).astype("M8[D]")},
    ],
)
def test_a_dry_run_explains_what_cannot_be_read(
    contents: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, **(GOOD | contents))
    assert main(["train", str(path), "--dry-run", "--data-dir", str(tmp_path)]) == 1
    assert f"s4d: {path}: {next(iter(contents))}" in capsys.readouterr().err


def test_a_missing_part_of_ones_own_data_is_no_download(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_ts(tmp_path, [ts_case(0)], [ts_case(0)])
    (tmp_path / "Made_TEST.ts").unlink()
    assert main(["train", str(tmp_path / "Made_TRAIN.ts"), "--dry-run"]) == 1
    assert "Made_TEST.ts is missing" in capsys.readouterr().err


def test_files_that_are_no_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        arrays(tmp_path / "absent.npz")
    with pytest.raises(ValueError, match=r"expected the arrays X and y, .*; it has a, b"):
        arrays(saved(tmp_path, a=[1], b=[2]))
    path = tmp_path / "text.npz"
    path.write_text("no archive")
    with pytest.raises(ValueError, match=r"damaged or no \.npz file"):
        arrays(path)
    whole = saved(tmp_path, **GOOD).read_bytes()
    np.save(tmp_path / "x.npy", GOOD["X"])
    cut = (tmp_path / "x.npy").read_bytes()[:-8]
    (tmp_path / "x.npy").write_bytes(cut)
    np.save(tmp_path / "y.npy", GOOD["y"])
    with pytest.raises(ValueError, match="cannot be read"):
        arrays(tmp_path / "x.npy", targets=str(tmp_path / "y.npy"))
    damaged = bytearray(whole)
    damaged[300] ^= 0xFF  # within X: the checksum tells
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"is damaged .* CRC"):
        arrays(path)
    np.savez_compressed(path, X=RANDOM.normal(size=(20, 10000)), y=GOOD["y"])
    damaged = bytearray(path.read_bytes())
    damaged[100_000:100_100] = bytes(100)
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"text\.npz: X is damaged"):
        arrays(path)
    with pytest.raises(ValueError, match="unknown channels 'frist'; did you mean 'first'"):
        ArraysOptions(path, channels="frist")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"are for an .npy file"):
        arrays(path, targets="y.npy")


# ---- tables -----------------------------------------------------------------------------------


def table(tmp_path: Path, text: str, name: str = "data.csv", **options: Any) -> Dataset:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load_table(TableOptions(path, **options), DataFolder(tmp_path))


def long_form(cases: int = 12) -> list[str]:
    """Case i has i + 1 samples 100 i, 100 i + 1, ..., and class i modulo 2."""
    return [
        f"c{i},{t},{100 * i + t},{-t},{'odd' if i % 2 else 'even'}"
        for i in range(cases)
        for t in range(i + 1)
    ]


def test_tables_are_sorted_by_case_and_time(tmp_path: Path) -> None:
    rows = long_form()
    RANDOM.shuffle(rows)
    data = table(tmp_path, "\n".join(["id,time,a,b,label", *rows, ""]))
    check_disjoint(data)
    assert [len(split) for split in data.splits.values()] == [9, 1, 2]
    assert data.signature.features == 2
    assert data.signature.length == 12
    assert data.train.inputs[0].ragged
    assert data.signature.classes == ("even", "odd")
    for first, (_, name) in rows_of(data).items():
        assert name == ("even", "odd")[int(first // 100) % 2]
    by_first = {float(s[0, 0]): s for s in (data.train.inputs[0][i] for i in range(12))}
    assert by_first[500.0].tolist() == [[500.0 + t, -float(t)] for t in range(6)]
    assert not list(tmp_path.glob("prepared/*/*.tmp"))


def test_tables_with_named_columns_and_other_separators(tmp_path: Path) -> None:
    lines = ["when;who;Füll;noise;goal"]
    for case in range(10):
        for month in (3, 1, 2):
            lines.append(f"2024-0{month}-01T00:00:00;p{case};{case * 10 + month};x;{case + 0.5}")
    names: dict[str, Any] = {"case": "who", "time": "when", "target": "goal", "values": ("Füll",)}
    data = table(tmp_path, "\ufeff" + "\n".join(lines), **names)
    assert data.signature.kind == "regression"
    assert not data.train.inputs[0].ragged
    assert data.train.inputs[0].values.shape == (10, 3, 1)
    assert sorted(data.train.inputs[0].values[:, :, 0].tolist())[4] == [41, 42, 43]


def test_tables_without_time_keep_the_order_of_rows(tmp_path: Path) -> None:
    rows = [f"{case}\t{value}\t{case % 2}" for value in (3, 1, 2) for case in range(10)]
    data = table(tmp_path, "\n".join(["Series\tv\tClass", *rows]), "data.tsv")
    assert (data.train.inputs[0].values[:, :, 0] == [3, 1, 2]).all()
    assert data.signature.classes == ("0", "1")


@pytest.mark.parametrize("nameless", ["", "Unnamed: 0"])
def test_numbers_of_rows_are_not_read(nameless: str, tmp_path: Path) -> None:
    lines = [
        f"{i},{i // 4},{i % 4},{i},{'ab'[i // 20]}" for i in range(40)
    ]  # as to_csv writes them
    with pytest.warns(UserWarning, match=r"data\.csv:1: column 1 has no name"):
        data = table(tmp_path, "\n".join([f"{nameless},id,time,v,label", *lines]))
    assert data.signature.features == 1


def test_blank_rows_are_passed_over(tmp_path: Path) -> None:
    lines = [f"{i // 4};{i % 4};{i};{'ab'[i // 20]}" for i in range(40)]
    lines[3:3] = ["", "  ", ";;;"]
    data = table(tmp_path, "\r\n".join(["id;time;v;label", *lines, ";;;", " "]), "DATA.CSV")
    assert data.train.inputs[0].values.shape == (10, 4, 1)


def test_whole_numbers_can_be_predicted(tmp_path: Path) -> None:
    text = "\n".join(["id,v,target", *(f"{i // 2},{i},{i // 2}" for i in range(40))])
    with pytest.raises(ValueError, match="all 20 targets are different whole numbers"):
        table(tmp_path, text)
    assert table(tmp_path, text, kind="regression").signature.kind == "regression"


HEADER = "id,time,v,label\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"data\.csv is empty"),
        (HEADER, r"data\.csv has a header but no rows"),
        (HEADER + "a,0,1,x\na,1,,x\n", r"data\.csv:3: column 'v' has no value \(''\)"),
        (HEADER + "a,0,1,x\n\na,1,NaN,x\n", r"data\.csv:4: column 'v' has no value \('NaN'\)"),
        (HEADER + "a,0,one,x\n", r"data\.csv:2: column 'v' has 'one', which is no number"),
        (HEADER + "a,0,1e99,x\n", r"data\.csv:2: column 'v' has 1e99, which is too large"),
        (HEADER + "a,0,inf,x\n", r"data\.csv:2: column 'v' has inf"),
        (HEADER + "a,0,1,x\na,1,1,y\n", r":3: case 'a' has the target 'y' here, but 'x' in line 2"),
        (HEADER + "a,0,1,x\nb,0,1,y\na,0,2,x\n", r":4: case 'a' has this time in line 2 already"),
        (HEADER + "a,soon,1,x\n", r":2: time 'soon'; expected a number or an ISO date"),
        (HEADER + "a,nan,1,x\n", r":2: time 'nan'; expected a finite number"),
        (HEADER + "a,0,1\n", r":2: 3 fields, but the header has 4"),
        (HEADER + ",0,1,x\n", r":2: the case \(column 'id'\) is missing"),
        (HEADER + "a,0,1,\n", r":2: the target \(column 'label'\) is missing"),
        (HEADER + "a,0,1,x\na,1,2,x\nb,0,1,x\n", r":2: every target is 'x'"),
        (HEADER + "a,0,1,x\nb,0,1,y\n", "each of its 2 cases has a single row; expected one row"),
        (HEADER + "a,0,1,None\n", r"'label'\) is missing \('None'\); fill it, .* if it is a name"),
        ('id,v,label\na,"1,5",x\n', r":2: column 'v' has '1,5', .* expected a decimal point"),
        ("a,b,label\n", r":1: which column is the case\? None of a, b, label is named id, case"),
        ("id,b,c\n", r":1: which column is the target\?.* \(--data\.target\).* one row for each"),
        ("id,,label\na,1,x\n", r":1: no column is left for values"),
        ("id,label\n", r":1: no column is left for values"),
        ("id,v,v,label\n", r":1: column 'v' is there twice"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table(tmp_path, text)


def test_bad_columns_are_refused(tmp_path: Path) -> None:
    text = HEADER + "a,0,1,x\n"
    with pytest.raises(ValueError, match="there is no column 'lable'; did you mean 'label'"):
        table(tmp_path, text, target="lable")
    with pytest.raises(ValueError, match="column 'time' cannot be a value too; it is the time"):
        table(tmp_path, text, values=("v", "time"))
    with pytest.raises(ValueError, match="the case and the target are one column"):
        table(tmp_path, text, case="label")
    with pytest.raises(ValueError, match="unknown kind 'classes'"):
        TableOptions(tmp_path, kind="classes")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_table(TableOptions(tmp_path / "absent.csv"), DataFolder(tmp_path))
    (tmp_path / "latin.csv").write_bytes("id,v,label\na,1,é\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.csv is not text in UTF-8"):
        load_table(TableOptions(tmp_path / "latin.csv"), DataFolder(tmp_path))


# ---- archives ---------------------------------------------------------------------------------

TS = """# a comment
@problemName Made
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength {equal}
@classLabel true up down
@data
{cases}
"""


def write_ts(folder: Path, train: list[str], test: list[str], equal: str = "true") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, cases in (("TRAIN", train), ("TEST", test)):
        text = TS.format(equal=equal, cases="\n".join(cases))
        (folder / f"Made_{part}.ts").write_text(text)
    return folder


def ts_case(i: int, length: int = 3) -> str:
    first = ",".join(str(100 * i + t) for t in range(length))
    second = ",".join(f"{t}.5" for t in range(length))
    return f"{first}:{second}:{('up', 'down')[i % 2]}"


def test_ts_files(tmp_path: Path) -> None:
    write_ts(tmp_path / "ucr" / "Made", [ts_case(i) for i in range(10)], [ts_case(20), ts_case(31)])
    data = load_ucr(UcrOptions("Made"), DataFolder(tmp_path))
    assert [len(split) for split in data.splits.values()] == [8, 2, 2]
    assert data.signature.classes == ("down", "up")
    assert sorted(data.validation.labels().tolist()) == [0, 1]
    assert data.train.inputs[0].values.shape == (10, 3, 2)
    assert data.train.inputs[0].values[4].tolist() == [[400, 0.5], [401, 1.5], [402, 2.5]]
    assert rows_of(data)[2000.0] == ("test", "up")
    assert rows_of(data)[3100.0] == ("test", "down")
    inputs = data.batch(data.train, np.arange(8)).inputs
    assert inputs.mean((0, 1)).abs().max() < 1e-5
    assert inputs.std((0, 1), correction=0).tolist() == pytest.approx([1, 1], rel=1e-4)


def test_ragged_ts_files_and_paths(tmp_path: Path) -> None:
    folder = write_ts(
        tmp_path, [ts_case(i, 2 + i % 3) for i in range(10)], [ts_case(10, 9)] * 2, "false"
    )
    for path in (folder, folder / "Made_TRAIN.ts", folder / "Made_TEST.ts"):
        data = load_ucr(UcrOptions(path=str(path)), DataFolder(tmp_path))
        assert data.train.inputs[0].ragged
        assert data.signature.length == 9
        assert [len(split) for split in data.splits.values()] == [8, 2, 2]


def test_a_ts_file_on_its_own_is_split(tmp_path: Path) -> None:
    folder = write_ts(tmp_path, [ts_case(i) for i in range(20)], [])
    (folder / "Made_TRAIN.ts").rename(folder / "mine.ts")
    data = load_ucr(UcrOptions(path=str(folder / "mine.ts")), DataFolder(tmp_path))
    assert [len(split) for split in data.splits.values()] == [12, 4, 4]
    check_disjoint(data)


def test_missing_values_are_interpolated_on_demand(tmp_path: Path) -> None:
    train = [ts_case(i, 5) for i in range(9)] + ["?,1,NaN,4,?:0,0,0,0,0:up"]
    write_ts(tmp_path / "ucr" / "Made", train, [ts_case(0, 5)])
    folder = DataFolder(tmp_path)
    with pytest.raises(ValueError, match=r"TRAIN\.ts:19: a missing value at time 0 of dimension 0"):
        load_ucr(UcrOptions("Made"), folder)
    data = load_ucr(UcrOptions("Made", missing="interpolate"), folder)
    assert data.train.inputs[0].values[9, :, 0].tolist() == [1, 1, 2.5, 4, 4]


def test_older_files(tmp_path: Path) -> None:
    folder = tmp_path / "ucr" / "Old"
    folder.mkdir(parents=True)
    train = [f"  {i % 2 * 2 - 1}.0000e+00  {i}.5  2.0  3.0" for i in range(9)]
    (folder / "Old_TRAIN.txt").write_text("\n".join([*train, " 1.0e+00 9.5 2.0 NaN"]) + "\n")
    (folder / "Old_TEST.txt").write_text("1,20.5,2,3\n-1,30.5,2,3\n")
    (folder / "Old.txt").write_text("what this is about\n")
    data = load_ucr(UcrOptions("Old"), DataFolder(tmp_path))
    assert data.signature.classes == ("-1", "1")
    assert data.train.inputs[0].ragged  # a series filled up with NaN is a shorter one
    assert data.train.inputs[0][9].tolist() == [[9.5], [2.0]]
    assert rows_of(data)[20.5] == ("test", "1")
    assert rows_of(data)[4.5][1] == "-1"


def test_time_stamps_are_left_out(tmp_path: Path) -> None:
    def stamped(i: int) -> str:  # as in AppliancesEnergy
        *series, target = ts_case(i).split(":")
        pairs = [
            ",".join(f"(2016-01-11 17:{t}0:00,{v})" for t, v in enumerate(each.split(",")))
            for each in series
        ]
        return ":".join([*pairs, target])

    plain, timed = tmp_path / "plain", tmp_path / "timed"
    write_ts(plain, [ts_case(i) for i in range(10)], [ts_case(10)])
    write_ts(timed, [stamped(i) for i in range(10)], [stamped(10)])
    for file in timed.iterdir():
        file.write_text(file.read_text().replace("@timeStamps false", "@timeStamps true\n@"))
    expected, found = (
        load_ucr(UcrOptions(path=str(folder)), DataFolder(tmp_path)) for folder in (plain, timed)
    )
    assert np.array_equal(found.train.inputs[0].values, expected.train.inputs[0].values)
    assert rows_of(found) == rows_of(expected)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("1,2,3:up", r"TRAIN\.ts:10: 1 dimensions and a target; expected 2"),
        ("1,2,3:1,2:up", r":10: dimensions of 2 and 3 samples in one case"),
        ("1,2,x:1,2,3:up", r":10: 'x' is no number"),
        ("1,2,3:1,2,inf:up", r":10: an infinite number"),
        ("1,2,3:1,2,1e99:up", r":10: an infinite number, or one too large"),
        ("1,2,3:1,2,3:left", r":10: class 'left' is none of the header's: down, up"),
        ("(0,1),(1,2),3:(0,1),(1,2):up", r":10: .* expected \(time,value\),\(time,value\)"),
        ("1,?,3:1,2,3:up", r":10: a missing value at time 1 of dimension 0"),
        ("1,2,3:1,,3:up", r":10: a missing value at time 1 of dimension 1"),
        ("", r"TRAIN\.ts has no cases"),
    ],
)
def test_bad_cases_are_refused(tmp_path: Path, case: str, message: str) -> None:
    write_ts(tmp_path, [case], [ts_case(0)])
    with pytest.raises(ValueError, match=message):
        load_ucr(UcrOptions(path=str(tmp_path)), DataFolder(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@classLabel true up down", "@classLabel false", "has no labels"),
        ("@data\n", "", r":9: '0,1,2:0.5.* before @data|no line @data"),
        ("@dimensions 2", "@dimensions two", "@dimensions two; expected a whole number"),
        ("@equalLength true", "@equalLength true\n@seriesLength 4", "3 samples; the header says 4"),
    ],
)
def test_bad_headers_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    write_ts(tmp_path, [ts_case(0)], [ts_case(0)])
    file = tmp_path / "Made_TRAIN.ts"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        load_ucr(UcrOptions(path=str(tmp_path)), DataFolder(tmp_path))


def test_problems_that_are_not_here(tmp_path: Path) -> None:
    write_ts(tmp_path / "ucr" / "Made", [ts_case(0)], [ts_case(0)])
    folder = DataFolder(tmp_path, download=False)
    with pytest.raises(
        MissingDataError, match=r"(?s)'Mode' is here; did you mean 'Made'.*Mode\.zip"
    ):
        load_ucr(UcrOptions("Mode"), folder)
    with pytest.raises(MissingDataError, match=r"'Xyz' is here; here are: Made"):
        load_ucr(UcrOptions("Xyz"), folder)
    with pytest.raises(ValueError, match=r"name a problem .* or a path; here are: Made"):
        load_ucr(UcrOptions(), folder)
    with pytest.raises(ValueError, match="no name of a problem; is it a path"):
        UcrOptions("../Made")
    with pytest.raises(ValueError, match="a problem of the archives or a path; got"):
        UcrOptions("Made", path="x")
    with pytest.raises(ValueError, match="unknown missing 'interpolat'; did you mean"):
        UcrOptions("Made", missing="interpolat")  # type: ignore[arg-type]
    (tmp_path / "ucr" / "Made" / "Made_TEST.ts").unlink()
    with pytest.raises(FileNotFoundError, match=r"Made_TEST\.ts is missing"):
        load_ucr(UcrOptions("Made"), folder)
    with pytest.raises(ValueError, match=r"expected one file \*_TRAIN\.ts .* it has none"):
        load_ucr(UcrOptions(path=str(tmp_path)), folder)


# problem: kind, cases to learn from, validate and test, longest, dimensions, classes, ragged
REAL = {
    "ACSF1": ("classification", 80, 20, 100, 1460, 1, 10, False),
    "ArrowHead": ("classification", 29, 7, 175, 251, 1, 3, False),
    "BasicMotions": ("classification", 32, 8, 40, 100, 6, 4, False),
    "Coffee": ("classification", 22, 6, 28, 286, 1, 2, False),
    "Covid3Month": ("regression", 112, 28, 61, 84, 1, 1, False),
    "GunPoint": ("classification", 40, 10, 150, 150, 1, 2, False),
    "ItalyPowerDemand": ("classification", 54, 13, 1029, 24, 1, 2, False),
    "JapaneseVowels": ("classification", 216, 54, 370, 29, 12, 9, True),
    "JapaneseVowels_eq": ("classification", 216, 54, 370, 25, 12, 9, False),
    "OSULeaf": ("classification", 160, 40, 242, 427, 1, 6, False),
    "PLAID": ("classification", 430, 107, 537, 1344, 1, 11, True),
    "PickupGestureWiimoteZ": ("classification", 40, 10, 50, 361, 1, 10, True),
    "PickupGestureWiimoteZ_eq": ("classification", 40, 10, 50, 361, 1, 10, False),
    "PigCVP": ("classification", 83, 21, 208, 2000, 1, 52, False),
    "Tecator": ("regression", 138, 34, 43, 100, 1, 1, False),
}


@pytest.mark.parametrize("name", REAL)
def test_real_problems(name: str, real_data: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "ucr").symlink_to(real_data("ucr") / "ucr")
    data = load_ucr(UcrOptions(name), DataFolder(tmp_path))
    signature, tower = data.signature, data.train.inputs[0]
    sizes = [len(split) for split in data.splits.values()]
    found = (signature.length, signature.features, signature.outputs, tower.ragged)
    assert (signature.kind, *sizes, *found) == REAL[name]
    assert not set(data.train.index) & set(data.validation.index)
    if signature.kind == "classification":
        assert set(data.train.labels()) == set(range(signature.outputs))
    inputs = np.concatenate([signature.read(tower[int(i)]).numpy() for i in data.train.index])
    assert np.abs(inputs.mean(0)).max() < 1e-5
    assert inputs.std(0) == pytest.approx(np.ones(signature.features), rel=1e-3)


def test_first_values_of_a_real_problem(real_data: Callable[..., Path], tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    path = real_data("ucr") / "ucr"
    gun = load_ucr(UcrOptions(path=str(path / "GunPoint")), folder)
    assert gun.train.inputs[0].values[0, :3, 0] == pytest.approx([-0.6478854, -0.641992, -0.638186])
    motions = load_ucr(UcrOptions(path=str(path / "BasicMotions")), folder)
    assert motions.signature.classes == ("Badminton", "Running", "Standing", "Walking")
    vowels = load_ucr(UcrOptions(path=str(path / "JapaneseVowels/JapaneseVowels_TEST.ts")), folder)
    assert vowels.test.inputs[0][0].shape == (19, 12)
    tecator = load_ucr(UcrOptions(path=str(path / "Tecator")), folder)
    assert tecator.test.targets[-1] == 42.5
    with pytest.raises(
        ValueError, match=r"it has JapaneseVowels_TRAIN.ts, JapaneseVowels_eq_TRAIN"
    ):
        load_ucr(UcrOptions(path=str(path / "JapaneseVowels")), folder)


# ---- which task is meant ----------------------------------------------------------------------


def test_the_task_of_a_name_or_a_path(tmp_path: Path) -> None:
    task, options = find_task("listops")
    assert task is TASKS["listops"]
    assert options == task.options()
    for name, expected in {
        "a.npz": "arrays",
        "a.npy": "arrays",
        "a.csv": "table",
        "B.NPZ": "arrays",
        "B.CSV": "table",
        "B.TS": "ucr",
        "a.tsv": "table",
        "a.ts": "ucr",
        "A_TRAIN.tsv": "ucr",
        "A_TEST.txt": "ucr",
    }.items():
        (tmp_path / name).touch()
        task, options = find_task(str(tmp_path / name))
        assert task.name == expected
        assert Path(options.path) == tmp_path / name
    assert find_task(str(tmp_path))[0].name == "ucr"  # it has a _TRAIN file


def test_the_task_of_a_found_path_reads_it(tmp_path: Path) -> None:
    task, options = find_task(str(saved(tmp_path, **GOOD)))
    assert len(task.load(options, DataFolder(tmp_path)).test) == 4


@pytest.mark.skipif("audio-folder" not in TASKS, reason="sounds are not there")
def test_the_task_of_a_folder_of_sounds(tmp_path: Path) -> None:
    for name in ("yes", "no"):
        (tmp_path / name).mkdir()
        with wave.open(str(tmp_path / name / "1.WAV"), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(bytes(100))
    task, options = find_task(str(tmp_path))
    assert task.name == "audio-folder"
    assert Path(options.path) == tmp_path


def test_what_is_neither_name_nor_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="unknown task 'listop'; did you mean 'listops'"):
        find_task("listop")
    (tmp_path / "data.csv").touch()
    with pytest.raises(MissingDataError, match=r"there is no file .*; did you mean 'data\.csv'"):
        find_task(str(tmp_path / "date.csv"))
    with pytest.raises(MissingDataError, match="there is no file or folder nowhere/at/all"):
        find_task("nowhere/at/all")
    (tmp_path / "data.xlsx").touch()
    with pytest.raises(ValueError, match=r"data\.xlsx cannot be read; expected \.npz or \.npy"):
        find_task(str(tmp_path / "data.xlsx"))
    with pytest.raises(ValueError, match="has neither"):
        find_task(str(tmp_path))
    with pytest.raises(ValueError, match="'table' reads your own files and needs path"):
        find_task("table")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "listops").mkdir()
    assert find_task("listops")[0].name == "listops"  # a name comes first


# ---- to predict from --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained on a table that a European spreadsheet has written."""
    folder = tmp_path_factory.mktemp("run")
    lines = [f"{i // 4};2024-01-0{1 + i % 4};{i};{'ab'[i // 20]}" for i in range(40)]
    (folder / "data.csv").write_text("\n".join(["id;time;v;label", *lines]))
    out = str(folder / "made")
    small = [
        "--model.n-layers=1",
        "--model.d-model=4",
        "--model.d-state=4",
        "--epochs=1",
        "--quiet",
    ]
    data = str(folder / "data.csv")
    assert main(["train", data, *small, "--out", out, "--data-dir", str(folder)]) == 0
    return Run.load(out)


def read(file: Path, run: Run) -> list[Item]:
    return read_items(file, run.signature, TASKS[run.config.task], run.config.data)


def test_tables_are_predicted_from_as_they_are_trained_on(run: Run, tmp_path: Path) -> None:
    semicolons = [
        "",
        "id;time;v;label",
        "7;2024-01-02;2;a",
        ";;;",
        "7;2024-01-01;1;a",
        "8;2024-01-01;5;b",
    ]
    numbered = [",id,time,v,label", "0,7,2,2,a", "1,7,1,1,a", "2,8,0,5,b"]
    for lines in (semicolons, numbered):
        (tmp_path / "new.csv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
        items = read(tmp_path / "new.csv", run)
        assert [item.values.tolist() for item in items] == [[[1.0], [2.0]], [[5.0]]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("head.csv", b"id,time,v\n", r"head\.csv holds no sequence"),
        (
            "date.csv",
            b"id,time,v\n1,31/12/24,5\n",
            r"date\.csv:2: time '31/12/24'; expected .* ISO",
        ),
        ("latin.csv", "id,time,v\né,1,5\n".encode("latin-1"), r"latin\.csv is not text in UTF-8"),
        ("none.npy", np.zeros((0, 9, 1)), r"none\.npy holds no sequence"),
        ("bare.npz", {}, r"bare\.npz holds no sequence"),
        ("hole.npy", np.array([[[1.0]], [[np.nan]]]), r"hole\.npy\[1\]: feature 0 of sample 0 is"),
        ("cut.npz", b"PK\x03\x04 and no more", r"cut\.npz cannot be read .* damaged"),
        ("objects.npz", {"X": np.array([[1], [1, 2]], dtype=object)}, "X holds Python objects"),
        (
            "short.npz",
            {"X": np.zeros((9, 1)), "lengths": [2, 3]},
            r"samples 0 to 5, but X has 0 to 9",
        ),
    ],
)
def test_bad_files_to_predict_from_are_refused(
    name: str, content: Any, message: str, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(file, **content)
    else:
        np.save(file, content)
    with pytest.raises(ValueError, match=message):
        read(file, run)


def test_damage_within_an_array_to_predict_from_is_told(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=RANDOM.normal(size=(9, 99, 1)))
    damaged = bytearray((tmp_path / "x.npz").read_bytes())
    damaged[900] ^= 0xFF
    (tmp_path / "x.npz").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"x\.npz: X is damaged"):
        read(tmp_path / "x.npz", run)
