"""ETTh1 and ETTh2: the customary split, and files that are not as they should be."""

from pathlib import Path

import numpy as np
import pytest

from s4d_torch.data import TASKS
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.tasks.ett import COLUMNS, ENDS, EttOptions, read_transformer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of which each value tells its hour and column: hour + column / 10."""
    root = tmp_path_factory.mktemp("data")
    (root / "ETT-small").mkdir()
    begin = np.datetime64("2016-07-01T00:00:00")
    lines = [f"date,{','.join(COLUMNS)}"]
    for hour in range(ENDS[-1] + 20):
        stamp = str(begin + np.timedelta64(hour, "h")).replace("T", " ")
        lines.append(f"{stamp},{','.join(f'{hour + column / 10:.1f}' for column in range(7))}")
    (root / "ETT-small" / "ETTh1.csv").write_text("\n".join(lines) + "\n")
    return root


def test_windows_may_begin_before_their_split_and_targets_may_not(folder: Path) -> None:
    task = TASKS["etth1"]
    data = task.load(EttOptions(window=10, ahead=3), DataFolder(folder, download=False))
    ends = (0, *ENDS)
    for split, first, last in zip(data.splits.values(), ends[:-1], ends[1:], strict=True):
        targets = split.labels()
        hours = np.round(targets - 0.6).astype(int)  # OT is column 6
        assert hours[0] == max(first, 12)
        assert hours[-1] == last - 1
        window = split.inputs[0][int(split.index[0])]
        assert window.shape == (10, 7)
        assert round(float(window[-1, 0])) == hours[0] - 3  # three hours before
    batch = data.batch(data.train, np.arange(len(data.train)))
    assert abs(float(batch.targets.mean())) < 0.01
    assert abs(float(batch.targets.std()) - 1) < 0.01


def test_it_is_a_task_of_the_usual_kind(folder: Path) -> None:
    assert TASKS["etth1"].is_here(DataFolder(folder))
    assert not TASKS["etth2"].is_here(DataFolder(folder))
    assert TASKS["etth2"].licence == "CC BY-ND 4.0"


def test_files_that_are_not_as_published_are_refused(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "ETT-small" / "ETTh1.csv").read_text().splitlines()
    file = tmp_path / "x.csv"
    for changed, told in (
        (lines[1:], "expected the columns date"),
        (lines[:100], "99 hours, expected 14400"),
        ([*lines[:5], *lines[6:]], "not an hour apart"),
        ([*lines[:5], lines[5].replace("4.0", "four"), *lines[6:]], "not a time and numbers"),
    ):
        file.write_text("\n".join(changed) + "\n")
        with pytest.raises(ValueError, match=told):
            read_transformer(file)
    with pytest.raises(ValueError, match="do not fit into the 8640 hours"):
        EttOptions(window=8600, ahead=100)
    with pytest.raises(ValueError, match="ahead must be at least 1"):
        EttOptions(ahead=0)
