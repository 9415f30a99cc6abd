"""Data with times: read from tables, arrays and .ts files, measured in the training data's step."""

import wave
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s4d_torch.data import TASKS, DataFolder, Dataset, Sequences, Signature, Split
from s4d_torch.data.clock import Clock, check_times
from s4d_torch.data.dataset import Array
from s4d_torch.data.dropping import on_grid, stays
from s4d_torch.data.files.moments import read_times
from s4d_torch.data.fingerprint import case_digests
from s4d_torch.data.store import signature_from
from s4d_torch.data.user_files.arrays import ArraysOptions, load_arrays
from s4d_torch.data.user_files.inputs import Item, read_items
from s4d_torch.data.user_files.table import TableOptions, load_table
from s4d_torch.data.user_files.ucr import UcrOptions, load_ucr
from s4d_torch.deploy.inference import fit_dataset
from s4d_torch.training.config import Config, default_config

TABLE, ARRAYS = TASKS["table"], TASKS["arrays"]
TIMES = (0.0, 2.0, 3.0, 7.0)  # gaps 2, 1, 4: their median is 2


def table(tmp_path: Path, text: str, **options: Any) -> Dataset:
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="utf-8")
    return load_table(TableOptions(path, **{"time_column": "t"} | options), DataFolder(tmp_path))


def rows(times: Any = TIMES, cases: int = 12, header: str = "id,t,x,label") -> list[str]:
    lines = [header]
    for i in range(cases):
        lines += [f"c{i},{time},{k + 1},{'ab'[i % 2]}" for k, time in enumerate(times)]
    return lines


def text(*args: Any, **options: Any) -> str:
    return "\n".join(rows(*args, **options))


def items(tmp_path: Path, text: str, signature: Signature, **options: Any) -> list[Item]:
    path = tmp_path / "new.csv"
    path.write_text(text, encoding="utf-8")
    return read_items(path, signature, TABLE, TableOptions(path, time_column="t", **options))


def gaps_of(data: Dataset) -> Array:
    gaps = data.batch(data.train, np.arange(len(data.train))).gaps
    assert gaps is not None
    return gaps.numpy()


# ---- the clock --------------------------------------------------------------------------------


def test_gaps_are_multiples_of_the_median_and_the_first_is_one() -> None:
    clock = Clock.of([np.array(TIMES), np.array([5.0, 7.0])])
    assert clock.step == 2
    np.testing.assert_array_equal(clock.gaps(np.array(TIMES)), [1, 1, 0.5, 2])
    np.testing.assert_array_equal(clock.gaps(np.array([[3.0], [4.0]])), [[1], [1]])


def test_dates_are_exact_to_the_microsecond() -> None:
    """Seconds since 1970 have no digits left for equal gaps; few distinct gaps are fast ones."""
    times = 1.7e9 + np.arange(1000) * 1e-3
    assert len(np.unique(np.diff(times))) > 1
    clock = Clock.of([times], dates=True)
    assert clock.step == 1e-3
    assert (clock.gaps(times) == 1).all()


def test_a_clock_needs_a_gap() -> None:
    with pytest.raises(ValueError, match="no training case has two samples"):
        Clock.of([np.array([1.0])])
    with pytest.raises(ValueError, match="step above 0"):
        Clock(0.0)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0, 1, np.nan], "time 2 is nan"),
        ([0, 2, 1], r"time 2, 1, goes back .* before it comes 2\); sort"),
        ([0, 1, 1], "time 2, 1, is that of the sample before .*merge"),
    ],
)
def test_times_that_no_clock_shows(times: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=f"here: {message}"):
        check_times(np.array(times, float), "here")


def test_a_batch_has_the_gaps_of_ragged_sequences() -> None:
    values = [np.zeros((n, 1), np.float32) for n in (3, 1, 2)]
    times = [np.array([0.0, 1, 4]), np.array([9.0]), np.array([2.0, 8])]
    split = replace(Split.whole(Sequences.of(values), np.arange(3)), times=Sequences.of(times))
    signature = Signature("regression", 1, 1, 3, clock=Clock(2.0))
    data = Dataset(split, split, split, signature)
    np.testing.assert_array_equal(gaps_of(data), [[1, 0.5, 1.5], [1, 1, 1], [1, 3, 1]])
    plain = replace(data, signature=replace(signature, clock=None))
    assert plain.batch(split, np.arange(3)).gaps is None
    with pytest.raises(ValueError, match="this data has none; give the times"):
        data.batch(replace(split, times=None), np.arange(1))


def test_a_packed_row_has_the_gaps_of_its_sequences() -> None:
    """Without them a model would take the samples as evenly spaced, and nobody would know."""
    values = Sequences.of([np.zeros((n, 1), np.float32) for n in (3, 2)])
    times = Sequences.of([np.array([0.0, 1, 4]), np.array([2.0, 8])])
    split = replace(Split.whole(values, np.arange(2)), times=times)
    data = Dataset(split, split, split, Signature("regression", 1, 1, 3, clock=Clock(2.0)))
    gaps = data.packed(split, np.arange(2)).gaps
    assert gaps is not None
    assert gaps.tolist() == [[1, 0.5, 1.5, 1, 3]]


def test_a_signature_with_a_clock_goes_through_json() -> None:
    signature = Signature("regression", 1, 1, 3, clock=Clock(2.0, "t", True))
    assert signature_from(asdict(signature)) == signature


def test_the_same_values_at_other_times_are_another_case() -> None:
    values = Sequences(np.ones((3, 3, 1), np.float32))
    times = Sequences(np.array([[0.0, 1, 2], [5, 6, 7], [0, 1, 4]]))
    split = replace(Split.whole(values, np.zeros(3)), times=times)
    first, later, other = (digest for _, digest in case_digests(split))
    assert first == later != other


# ---- tables -----------------------------------------------------------------------------------


def test_a_table_with_a_time_column(tmp_path: Path) -> None:
    data = table(tmp_path, text())
    assert data.signature.clock == Clock(2.0, "t", False)
    assert data.signature.channels == ("x",)
    assert (gaps_of(data) == [1, 1, 0.5, 2]).all()
    assert "usually 2 apart, at least 0.5 and at most 2 times that" in data.notes[0]
    # prepared data is read from disk again
    again = load_table(TableOptions(tmp_path / "data.csv", time_column="t"), DataFolder(tmp_path))
    assert again.signature == data.signature
    assert (gaps_of(again) == gaps_of(data)).all()


def test_without_the_option_rows_are_evenly_spaced_as_before(tmp_path: Path) -> None:
    data = table(tmp_path, text(), time_column="")
    assert data.signature.clock is None
    assert data.train.times is None
    assert "taken as evenly spaced" in data.notes[0]


def test_dates_count_in_seconds(tmp_path: Path) -> None:
    dates = ["2024-03-01T00:00", "2024-03-01T01:00", "2024-03-01T03:00+00:00"]
    data = table(tmp_path, text([*dates[:2], "2024-03-01T03:00"]))
    assert data.signature.clock == Clock(5400.0, "t", True)
    with pytest.raises(ValueError, match=r"csv:4: time .* with a time zone, but a date without"):
        table(tmp_path, text(dates))
    zones = ["2024-03-01T00:00+00:00", "2024-03-01T02:00+01:00", "2024-03-01T02:00Z"]
    assert (gaps_of(table(tmp_path, text(zones))) == 1).all()


def test_unsorted_rows_are_sorted_with_a_word(tmp_path: Path) -> None:
    lines = rows()
    lines[1], lines[3] = lines[3], lines[1]  # of case c0
    data = table(tmp_path, "\n".join(lines))
    assert (gaps_of(data) == [1, 1, 0.5, 2]).all()
    assert data.notes[1] == "the rows of 1 of 12 cases were not in order, and are sorted by time"
    names = data.train.cases
    assert names is not None
    np.testing.assert_array_equal(data.train.inputs[0][list(names).index("c0")][:, 0], [1, 2, 3, 4])


def test_empty_rows_stay_absent_and_single_cells_do_not(tmp_path: Path) -> None:
    lines = ["id,t,x,y,label"]
    for i in range(12):
        lines += [f"c{i},{t},{t},{10 * t},{'ab'[i % 2]}" for t in (0, 1, 2)]
        lines += [f"c{i},3,,NaN,{'ab'[i % 2]}", f"c{i},5,5,50,{'ab'[i % 2]}"]
    data = table(tmp_path, "\n".join(lines))
    assert (gaps_of(data) == [1, 1, 1, 3]).all()
    assert data.notes[1] == "12 rows without a value are left out: nothing was measured then"
    lines[3] = "c0,2,,20,a"
    with pytest.raises(ValueError, match=r"csv:4: column 'x' has no value"):
        table(tmp_path, "\n".join(lines))
    lines[3] = "c0,4,,20,a"  # between 1 and 5, where x is 1 and 5
    filled = table(tmp_path, "\n".join(lines), missing="interpolate")
    assert filled.train.cases is not None
    case = filled.train.inputs[0][list(filled.train.cases).index("c0")]
    np.testing.assert_allclose(case[:, 0], [0, 1, 4, 5])  # by time; by row it would be 3


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0, "nan", 2], r"csv:3: time 'nan'; expected a finite number"),
        ([0, "", 2], r"csv:3: time ''; expected a number or an ISO date"),
        ([0, "01/02/2024", 2], r"csv:3: time '01/02/2024'; expected a number or an ISO date"),
        ([0, "2024-01-01", 2], r"csv:3: time '2024-01-01' is a date .*but a number came before"),
        ([0, 1, 1], r"csv:4: case 'c0' has this time in line 3 already"),
    ],
)
def test_bad_times_in_a_table(tmp_path: Path, times: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table(tmp_path, text(times))


def test_columns_that_are_not_there_and_options_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no column 'tme'; did you mean 'time'"):
        table(tmp_path, text(header="id,time,x,label"), time_column="tme")
    with pytest.raises(ValueError, match="time 'x' and time_column 't'"):
        table(tmp_path, text(), time="x")
    with pytest.raises(ValueError, match="a wide table has no such column"):
        table(tmp_path, text(), layout="wide")
    empty = [*rows(), "d,0,,a", "d,1,,a"]
    with pytest.raises(ValueError, match="case 'd' has no value at all"):
        table(tmp_path, "\n".join(empty))


def test_a_case_of_one_row_has_one_usual_gap(tmp_path: Path) -> None:
    data = table(tmp_path, "\n".join([*rows(), "d,3,1,a", "e,3,1,b"]))
    gaps = {
        len(split.inputs[0][int(i)]): data.batch(split, np.array([k])).gaps
        for split in data.splits.values()
        for k, i in enumerate(split.index)
    }
    assert gaps[1] is not None
    assert gaps[1].tolist() == [[1.0]]


# ---- tables to predict from -------------------------------------------------------------------


def test_a_table_to_predict_from_has_its_times(tmp_path: Path) -> None:
    signature = table(tmp_path, text()).signature
    (item,) = items(tmp_path, "x,t\n4,7\n1,0\n2,2\n3,3\n", signature)
    np.testing.assert_array_equal(item.times, TIMES)
    np.testing.assert_array_equal(item.values[:, 0], [1, 2, 3, 4])
    (item,) = items(tmp_path, "x,t\n4,7\n,5\n1,0\n", signature)  # 5: nothing was measured
    np.testing.assert_array_equal(item.times, [0, 7])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x\n1\n2\n", "has no column 't' with the times of samples.*it has 'x'"),
        ("x,T\n1,1\n", "has no column 't'.*did you mean 'T'"),
        ("1,2\n2,3\n", "has no header, and the run is told the times"),
        ("x,t\n1,2024-01-01\n", "is a date without a time zone, and the run was trained with"),
        ("x,t\n1,1\n2,1\n", r"new.csv:3: case '' has this time in line 2 already"),
        ("x,t\n,1\n,2\n", "without any samples"),
    ],
)
def test_tables_that_a_run_with_a_clock_refuses(tmp_path: Path, content: str, message: str) -> None:
    signature = table(tmp_path, text()).signature
    with pytest.raises(ValueError, match=message):
        items(tmp_path, content, signature)


def test_other_data_is_measured_in_the_step_of_training(tmp_path: Path) -> None:
    trained = table(tmp_path, text())
    other = table(tmp_path, text([0, 20, 30, 70]))
    assert (gaps_of(other) == gaps_of(trained)).all()
    fitted = fit_dataset(other, trained.signature, same_unit=True)
    assert (gaps_of(fitted) == [1, 10, 5, 20]).all()
    even = table(tmp_path, text(), time_column="")
    with pytest.raises(ValueError, match=r"it has no times \(--data.time-column t\)"):
        fit_dataset(even, trained.signature, same_unit=True)
    with pytest.raises(ValueError, match="takes samples as evenly spaced: it has times"):
        fit_dataset(trained, even.signature, same_unit=True)
    dates = table(tmp_path, text(["2024-01-01", "2024-01-02"]))
    with pytest.raises(ValueError, match="its times are dates"):
        fit_dataset(dates, trained.signature, same_unit=True)


# ---- arrays -----------------------------------------------------------------------------------


def arrays(tmp_path: Path, options: dict[str, Any] | None = None, **given: Any) -> Dataset:
    path = tmp_path / "data.npz"
    np.savez(path, **{"y": np.arange(12) % 2} | given)
    return load_arrays(ArraysOptions(path, **options or {}), DataFolder(tmp_path))


def test_arrays_with_times(tmp_path: Path) -> None:
    X, times = np.ones((12, 4, 2)), np.tile(TIMES, (12, 1))
    data = arrays(tmp_path, X=X, times=times)
    assert data.signature.clock == Clock(2.0)
    assert (gaps_of(data) == [1, 1, 0.5, 2]).all()
    assert arrays(tmp_path, {"times": "ignore"}, X=X, times=times).signature.clock is None
    dates = np.datetime64("2024-01-01") + np.tile([0, 2, 3, 7], (12, 1)).astype("m8[h]")
    assert arrays(tmp_path, X=X, times=dates).signature.clock == Clock(7200.0, "", True)


def test_ragged_arrays_with_times_and_samples_that_are_absent(tmp_path: Path) -> None:
    lengths = [3, 2] * 6
    X = np.arange(30.0)[:, None] * [1, 2]
    X[1] = np.nan  # the second sample of case 0
    times = np.concatenate([np.arange(n) for n in lengths])
    data = arrays(tmp_path, X=X, lengths=lengths, times=times)
    held = {
        tuple(split.times[int(i)])
        for split in data.splits.values()
        for i in split.index
        if split.times is not None
    }
    assert held == {(0, 2), (0, 1, 2), (0, 1)}
    X[1, 0] = 1.0
    with pytest.raises(ValueError, match="case 0 of X: channel 1 has no value at the time 1"):
        arrays(tmp_path, X=X, lengths=lengths, times=times)
    arrays(tmp_path, {"missing": "interpolate"}, X=X, lengths=lengths, times=times)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": np.zeros((12, 3))}, r"times is \(12, 3\): expected a time for each sample of X"),
        ({"times": np.zeros((12, 4))}, "case 0 of times: time 1, 0, is that of the sample before"),
        ({"times": np.full((12, 4), "now")}, "expected numbers or datetime64"),
        ({"times": np.full((12, 4), np.datetime64("NaT"))}, "time 0 is nan"),
        ({"times_trian": np.zeros((12, 4))}, "unknown array 'times_trian'"),
    ],
)
def test_bad_times_in_arrays(tmp_path: Path, change: dict[str, Array], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        arrays(tmp_path, X=np.ones((12, 4)), **change)


def test_all_splits_have_times_or_none(tmp_path: Path) -> None:
    X, y = np.ones((12, 4)), np.arange(12) % 2
    with pytest.raises(ValueError, match="has times_train, but no times_test for X_test"):
        arrays(
            tmp_path,
            X_train=X,
            y_train=y,
            times_train=np.tile(TIMES, (12, 1)),
            X_test=X,
            y_test=y,
        )


def test_arrays_to_predict_from(tmp_path: Path) -> None:
    signature = arrays(tmp_path, X=np.ones((12, 4)), times=np.tile(TIMES, (12, 1))).signature
    path = tmp_path / "new.npz"
    options = ArraysOptions(path)
    np.savez(path, X=np.ones((2, 3)), times=[[0, 1, 5], [2, 3, 4]])
    first, _ = read_items(path, signature, ARRAYS, options)
    np.testing.assert_array_equal(first.times, [0, 1, 5])
    np.savez(path, X=np.ones((2, 3)))
    with pytest.raises(ValueError, match="does not say when its samples came"):
        read_items(path, signature, ARRAYS, options)
    np.savez(path, X=np.ones((1, 2)), times=np.array([["2024-01-01", "2024-01-02"]], "M8[D]"))
    with pytest.raises(ValueError, match="times are dates; the run was trained on numbers"):
        read_items(path, signature, ARRAYS, options)


def test_times_in_python() -> None:
    (one,), dates = read_times([0.0, 1, 3], [3])
    assert (one.tolist(), dates) == ([0, 1, 3], False)
    assert len(read_times(np.array([[0.0, 1], [2, 3]]), [2, 2])[0]) == 2
    assert read_times(np.array([["2024-01-01"]], "M8[s]"), [1])[1]
    with pytest.raises(ValueError, match=r"times\[1\] has shape \(2,\); expected .* of the 3"):
        read_times([np.arange(2.0), np.arange(2.0)], [2, 3])
    with pytest.raises(ValueError, match="times of 1 sequences; expected those of 2"):
        read_times([np.arange(2.0)], [2, 2])
    with pytest.raises(ValueError, match=r"times\[0\] are dates, those before were numbers"):
        read_times(np.array([["2024-01-01"]], "M8[s]"), [1], dates=False)


# ---- .ts files --------------------------------------------------------------------------------

HEADER = "@timeStamps true\n@univariate false\n@classLabel true a b\n@data\n"


def series(tmp_path: Path, line: str, **options: Any) -> Dataset:
    """Ten cases as ``line`` says, {} being the class."""
    path = tmp_path / "data.ts"
    path.write_text(HEADER + "\n".join(line.format("ab"[i % 2]) for i in range(10)))
    return load_ucr(UcrOptions(path=str(path), **options), DataFolder(tmp_path))


def test_ts_files_with_time_stamps(tmp_path: Path) -> None:
    line = "(0,1),(2,2),(3,3),(7,4):(0,5),(2,6),(3,7),(7,8):{}"
    data = series(tmp_path, line)
    assert data.signature.clock == Clock(2.0)
    assert (gaps_of(data) == [1, 1, 0.5, 2]).all()
    assert series(tmp_path, line, times="ignore").signature.clock is None
    dated = "(2016-01-11 17:00:00,1),(2016-01-11 17:10:00,?),(2016-01-11 17:30:00,3):{}"
    data = series(tmp_path, dated)
    assert data.signature.clock == Clock(1800.0, "", True)
    assert data.signature.length == 2  # nothing was measured at 17:10


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(0,1),(1,2):(0,1),(2,2):{}", "sample 1 of dimension 1 has the time '2'.* 0 '1'"),
        ("(0,1),(x,2):{}", r"data.ts:5: time 'x'; expected a number or an ISO date"),
        ("(1,1),(0,2):{}", r"data.ts:5: time 1, 0, goes back"),
        ("(0,1),(1,2):(0,1),(1,?):{}", "a missing value at time 1 of dimension 1"),
        ("(0,?),(1,?):{}", "a case without any value"),
    ],
)
def test_bad_time_stamps(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        series(tmp_path, line)


# ---- dropped samples --------------------------------------------------------------------------


def even_series(tmp_path: Path, **options: Any) -> Dataset:
    path = tmp_path / "even.ts"
    lines = [f"{','.join(str(k * k) for k in range(40))}:{'ab'[i % 2]}" for i in range(20)]
    path.write_text("@univariate true\n@classLabel true a b\n@data\n" + "\n".join(lines))
    return load_ucr(UcrOptions(path=str(path), **options), DataFolder(tmp_path))


def test_dropped_samples_are_the_same_in_all_three_ways(tmp_path: Path) -> None:
    each = {
        way: even_series(tmp_path, drop=0.5, dropped=way)
        for way in ("gaps", "ignored", "interpolated")
    }
    given, ignored, filled = each.values()
    assert given.signature.clock == Clock(1.0)
    assert ignored.signature.clock is filled.signature.clock is None
    assert filled.signature.length == 40 > given.signature.length
    kept = 0
    for i in given.train.index:
        assert given.train.times is not None
        times, values = given.train.times[int(i)].astype(int), given.train.inputs[0][int(i)]
        np.testing.assert_array_equal(values[:, 0], times**2)
        np.testing.assert_array_equal(ignored.train.inputs[0][int(i)], values)
        np.testing.assert_array_equal(filled.train.inputs[0][int(i)][times], values)
        kept += len(times)
    assert 0.4 < kept / (40 * len(given.train)) < 0.6
    again = even_series(tmp_path, drop=0.5, drop_seed=1)
    assert not np.array_equal(again.train.inputs[0].values, given.train.inputs[0].values)


def test_what_is_dropped_follows_from_seed_and_place() -> None:
    assert (stays(100, 0.5, 0, 3) == stays(100, 0.5, 0, 3)).all()
    assert len(stays(5, 0.999, 0, 0)) >= 1
    values = np.array([[0], [9], [9], [6]], np.int16)
    np.testing.assert_array_equal(on_grid(values, np.array([0, 3]))[:, 0], [0, 2, 4, 6])
    np.testing.assert_array_equal(on_grid(values, np.array([1]))[:, 0], [9, 9, 9, 9])


@pytest.mark.parametrize("options", [{"drop": 1.0}, {"drop": -0.1}, {"dropped": "no"}])
def test_bad_options_of_dropping(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="drop"):
        UcrOptions(problem="A", **options)
    with pytest.raises(ValueError, match="drop"):
        TASKS["fsdd"].options(**options)


def test_configs_without_dropping_are_those_from_before(tmp_path: Path) -> None:
    for task, new in (("fsdd", "drop"), ("sc35", "dropped"), ("ucr", "times")):
        assert new not in default_config(task).to_json()["data"]
    # symbols to generate cannot be dropped: there is no option that would be passed over
    assert "drop" not in {field.name for field in fields(TASKS["fsdd-audio"].options)}
    config = default_config("fsdd", drop=0.5, dropped="ignored")
    assert Config.from_json(config.to_json()) == config


def test_a_sound_needs_no_times(tmp_path: Path) -> None:
    """Its samples are as far apart as its rate says, which is what the clock counts in."""
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.arange(50, dtype="<i2").tobytes())
    classes = {"length": 100, "sample_rate": 8000.0, "input_scale": (0.01,)}
    signature = Signature.of_classes("01", **classes, clock=Clock(1.0))
    options = TASKS["fsdd"].options()
    (item,) = read_items(tmp_path / "a.wav", signature, TASKS["fsdd"], options)
    np.testing.assert_array_equal(item.times, np.arange(50))


def test_only_evenly_spaced_samples_are_dropped(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="this has times of its own"):
        series(tmp_path, "(0,1),(2,2),(3,3):{}", drop=0.5)
