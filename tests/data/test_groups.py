"""Groups never straddle splits: speakers, patients, machines of tables, arrays and sounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s4d_torch.data import DataFolder, Dataset, find_task
from s4d_torch.data.splits import hold_out_groups
from s4d_torch.data.task import TASKS
from test_audio import write_wav


def load(path: Path, **options: Any) -> Dataset:
    task, _ = find_task(str(path))
    return TASKS[task.name].load(task.options(path=path, **options), DataFolder(path.parent / "d"))


def groups_of(data: Dataset) -> list[set[str]]:
    found = []
    for split in data.splits.values():
        assert split.groups is not None
        found.append(set(split.groups[split.index]))
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found))  # none is in two splits
    return found


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_held_out_whole_and_classes_keep_their_shares(seed: int) -> None:
    random = np.random.default_rng(seed)
    groups = random.integers(30, size=400)
    labels = random.integers(3, size=400)
    parts = hold_out_groups(groups, labels, "classification", (0.1, 0.2), seed)
    assert sorted(np.concatenate(parts)) == list(range(400))
    met = [set(groups[part]) for part in parts]
    assert sum(map(len, met)) == len(set(groups))
    assert [len(part) for part in parts] == pytest.approx([280, 40, 80], abs=16)
    for part in parts:
        counts = np.bincount(labels[part], minlength=3)
        assert counts.min() > 0.15 * len(part)
    again = hold_out_groups(groups, labels, "classification", (0.1, 0.2), seed)
    assert all(map(np.array_equal, parts, again))


def test_a_class_of_one_group_stays_to_learn_from() -> None:
    groups, labels = np.repeat(np.arange(6), 5), np.repeat([0, 1, 0, 1, 0, 2], 5)
    for seed in range(10):
        train = hold_out_groups(groups, labels, "classification", (0.2, 0.2), seed)[0]
        assert set(labels[train]) == {0, 1, 2}


def test_three_groups_are_enough_and_two_are_not() -> None:
    labels = np.arange(30) % 2
    parts = hold_out_groups(np.arange(30) % 3, labels, "classification", (0.1, 0.2), 0)
    assert [len(part) for part in parts] == [10, 10, 10]
    numbers = np.linspace(0, 1, 30)
    parts = hold_out_groups(np.arange(30) % 3, numbers, "regression", (0.1, 0.2), 0)
    assert all(map(len, parts))
    with pytest.raises(ValueError, match=r"2 groups \(0, 1\) are too few for 3 splits that share"):
        hold_out_groups(np.arange(30) % 2, labels, "classification", (0.1, 0.2), 0)


# -- tables ----------------------------------------------------------------------------------------


def long_rows(cases: int = 24) -> list[str]:
    rows = ["case,time,speaker,x,label"]
    for i in range(cases):
        rows += [f"c{i},{t},s{i // 3},{i + t / 10},{'ab'[i % 2]}" for t in range(4)]
    return rows


def test_a_column_of_a_long_table(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("\n".join(long_rows()))
    data = load(file, groups="speaker")
    train, validation, test = groups_of(data)
    assert len(train | validation | test) == 8
    assert data.signature.channels == ("x",)
    names, groups = data.train.cases, data.train.groups
    assert names is not None
    assert groups is not None
    assert all(f"s{int(name[1:]) // 3}" == group for name, group in zip(names, groups, strict=True))
    rows = long_rows()
    rows[2] = rows[2].replace("s0", "s1")
    file.write_text("\n".join(rows))
    with pytest.raises(
        ValueError, match=r"t\.csv:3: case 'c0' has the group 's1' here, but 's0' in"
    ):
        load(file, groups="speaker")
    with pytest.raises(ValueError, match=r"there is no column 'speeker', did you mean|no column"):
        load(file, groups="speeker")
    with pytest.raises(
        ValueError, match=r"the groups \(column 'label'\) are the case, the time or"
    ):
        load(file, groups="label")


def test_a_column_of_a_wide_table(tmp_path: Path) -> None:
    file = tmp_path / "w.csv"
    steps = [f"t{i}" for i in range(9)]
    rows = [",".join(["id", "machine", *steps, "label"])]
    for i in range(20):
        rows.append(",".join([f"c{i}", f"m{i % 5}", *map(str, range(i, i + 9)), "ab"[i % 2]]))
    file.write_text("\n".join(rows))
    data = load(file, groups="machine")
    assert len(set.union(*groups_of(data))) == 5
    assert data.signature.length == 9


def test_gaps_and_other_rates_in_time_are_noted(tmp_path: Path) -> None:
    file, rows = tmp_path / "t.csv", ["case,time,x,label"]
    for i in range(12):
        step = 0.5 if i == 7 else 0.1
        times = [step * t + (3 if i == 2 and t > 4 else 0) for t in range(8)]
        rows += [f"c{i},{time:.3f},{i + t},{'ab'[i % 2]}" for t, time in enumerate(times)]
    file.write_text("\n".join(rows))
    for _ in range(2):  # also of data that was prepared before
        gaps, rates = load(file).shortened(train=4).notes
        assert gaps.startswith(
            "there are gaps in the times of 1 of 12 cases, the widest in case 'c2' after 0.4: 3.1"
        )
        assert rates.startswith("cases are sampled at different rates: every 0.1 to every 0.5 in")
    file.write_text("\n".join(long_rows()).replace("speaker", "y").replace(",s", ","))
    assert load(file).notes == ()


# -- arrays and sounds -----------------------------------------------------------------------------


def test_an_array_beside_the_others(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 9)), np.arange(40) % 2
    np.savez(tmp_path / "a.npz", X=X, y=y, patient=np.arange(40) // 4)
    assert len(set.union(*groups_of(load(tmp_path / "a.npz", groups="patient")))) == 10
    with pytest.raises(ValueError, match="there is no array 'patients' with the group of each"):
        load(tmp_path / "a.npz", groups="patients")
    for test, told in ((np.arange(10) // 4 + 50, ""), (np.arange(10), "has cases in train and in")):
        np.savez(
            tmp_path / "b.npz",
            X_train=X[:30],
            y_train=y[:30],
            X_test=X[30:],
            y_test=y[30:],
            p_train=np.arange(30) // 4,
            p_test=test,
        )
        if not told:
            assert groups_of(load(tmp_path / "b.npz", groups="p"))[2] == {"50", "51", "52"}
            continue
        with pytest.raises(ValueError, match=told):
            load(tmp_path / "b.npz", groups="p")


@pytest.mark.parametrize("groups", ["part:0", r"^(\w+?)_", "ann|bob|cid|dan|eve"])
def test_a_part_of_the_names_of_sounds(groups: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for word in ("no", "yes"):
        (tmp_path / "s" / word).mkdir(parents=True)
        for name in ("ann", "bob", "cid", "dan", "eve"):
            for take in range(2):
                samples = random.integers(-999, 999, (50, 1)).astype(np.int16)
                write_wav(tmp_path / "s" / word / f"{name}_{take}.wav", samples, 8000)
    data = load(tmp_path / "s", groups=groups)
    assert set.union(*groups_of(data)) == {"ann", "bob", "cid", "dan", "eve"}
    for split in data.splits.values():
        assert set(split.labels()) == {0, 1}


def test_names_without_the_part_are_told(tmp_path: Path) -> None:
    for word in ("no", "yes"):
        (tmp_path / "s" / word).mkdir(parents=True)
        write_wav(tmp_path / "s" / word / "a_1.wav", np.ones((9, 1), np.int16), 8000)
    with pytest.raises(
        ValueError, match=r"a_1\.wav: its name has 2 parts between _, and no part 2"
    ):
        load(tmp_path / "s", groups="part:2")
    with pytest.raises(ValueError, match=r"a_1\.wav: its name has nothing that fits 'z'"):
        load(tmp_path / "s", groups="z")
    with pytest.raises(ValueError, match=r"groups '\(' is no regular expression"):
        load(tmp_path / "s", groups="(")
