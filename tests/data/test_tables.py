"""Tables as users have them: columns by name, wide ones, gaps, decimal commas; files as bombs."""

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s4d_torch.data import TASKS, DataFolder, Dataset
from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.user_files.arrays import ArraysOptions, load_arrays
from s4d_torch.data.user_files.columns import order_of, step_order
from s4d_torch.data.user_files.inputs import Item, read_items
from s4d_torch.data.user_files.table import TableOptions, load_table
from s4d_torch.deploy.inference import fit_dataset
from s4d_torch.training.config import Config, default_config

TABLE = TASKS["table"]


def table(tmp_path: Path, text: str, name: str = "data.csv", **options: Any) -> Dataset:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load_table(TableOptions(path, **options), DataFolder(tmp_path))


def items(tmp_path: Path, text: str, signature: Signature, **options: Any) -> list[Item]:
    path = tmp_path / "new.csv"
    path.write_text(text, encoding="utf-8")
    return read_items(path, signature, TABLE, TableOptions(path, **options))


def case(data: Dataset, name: str) -> Array:
    assert data.train.cases is not None
    return data.train.inputs[0][list(data.train.cases).index(name)]


def long_form(*columns: str) -> str:
    """Case i has three samples; x counts them, y is their square, z minus i."""
    rows = [",".join(["id", *columns, "label"])]
    for i in range(12):
        for t in range(3):
            cells = {"x": t, "y": t * t, "z": -i}
            rows.append(",".join([f"c{i}", *(str(cells[name]) for name in columns), "ab"[i % 2]]))
    return "\n".join(rows)


# ---- columns by name --------------------------------------------------------------------------


def test_names_are_part_of_the_signature(tmp_path: Path) -> None:
    data = table(tmp_path, long_form("x", "z", "y"))
    assert data.signature.channels == ("x", "z", "y")
    assert data.signature.target == "label"
    assert data.test.cases is not None
    assert sorted(data.test.cases) == sorted(f"c{i}" for i in range(12))


def test_columns_to_predict_from_are_put_in_order(tmp_path: Path) -> None:
    signature = table(tmp_path, long_form("x", "y", "z")).signature
    expected = [[1.0, 2.0, 3.0]]
    for text in (
        "x,y,z\n1,2,3\n",
        "z,x,y\n3,1,2\n",
        "label,z,id,y,x\na,3,7,2,1\n",
        "1,2,3\n",  # without a header, by position
    ):
        (item,) = items(tmp_path, text, signature)
        assert item.values.tolist() == expected
    old = Signature("classification", 3, 2, 3)  # of a run from before names were kept
    (item,) = items(tmp_path, "z,x,y\n3,1,2\n", old)
    assert item.values.tolist() == [[3.0, 1.0, 2.0]]


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("x,y", "'z' is missing"),
        ("x,y,z,w", "'w' is none of its columns"),
        ("x,y,Z", "'z' is missing; 'Z' is none of its columns"),
        ("id,x,y,z,class", "'class' is none of its columns"),
    ],
)
def test_other_columns_are_an_error_that_lists_both(tmp_path: Path, header: str, what: str) -> None:
    signature = table(tmp_path, long_form("x", "y", "z")).signature
    with pytest.raises(ValueError, match=what) as caught:
        items(tmp_path, f"{header}\n{','.join('1' * (header.count(',') + 1))}\n", signature)
    assert "The run reads 'x', 'y', 'z'; here are 'x', 'y'" in str(caught.value)


def test_columns_that_were_left_out_in_training_may_be_there(tmp_path: Path) -> None:
    signature = table(tmp_path, long_form("x", "y", "z"), values=("z", "x")).signature
    assert signature.channels == ("z", "x")
    (item,) = items(tmp_path, "id,x,y,z\n7,1,2,3\n", signature, values=("z", "x"))
    assert (item.case, item.values.tolist()) == ("7", [[3.0, 1.0]])


def test_a_feature_with_a_usual_name_is_a_feature(tmp_path: Path) -> None:
    """x and y are features where there is a label: y is no target then."""
    signature = table(tmp_path, long_form("x", "y")).signature
    assert signature.channels == ("x", "y")
    (item,) = items(tmp_path, "id,y,x,label\n7,2,1,a\n", signature)
    assert item.values.tolist() == [[1.0, 2.0]]


def test_other_data_is_put_in_the_order_of_the_run(tmp_path: Path) -> None:
    trained = table(tmp_path, long_form("x", "y", "z"))
    other = table(tmp_path, long_form("z", "x", "y"), "other.csv")
    fitted = fit_dataset(other, trained.signature, same_unit=True)
    assert fitted.signature.channels == ("x", "y", "z")
    for name in ("c0", "c5"):
        np.testing.assert_array_equal(case(fitted, name), case(trained, name))
    fitted = fit_dataset(other, trained.signature, same_unit=False)
    assert fitted.signature.input_shift == pytest.approx(trained.signature.input_shift)
    with pytest.raises(ValueError, match=r"'z' is missing.*The run reads 'x', 'y', 'z'"):
        fit_dataset(
            table(tmp_path, long_form("x", "y"), "less.csv"), trained.signature, same_unit=True
        )


def test_arrays_with_names(tmp_path: Path) -> None:
    X, file = np.arange(240.0).reshape(12, 10, 2), tmp_path / "a.npz"
    y, ids = ["a", "b"] * 6, [f"p{i}" for i in range(12)]
    np.savez(file, X=X, y=y, channels=["ecg", "bp"], cases=ids)
    data = load_arrays(ArraysOptions(file), DataFolder(tmp_path))
    assert data.signature.channels == ("ecg", "bp")
    np.testing.assert_array_equal(case(data, "p3"), X[3])
    np.savez(tmp_path / "new.npz", X=X[..., ::-1], channels=["bp", "ecg"], cases=ids)
    found = read_items(tmp_path / "new.npz", data.signature, TASKS["arrays"], ArraysOptions(file))
    assert [item.case for item in found] == ids
    np.testing.assert_array_equal(found[3].values, X[3])
    np.savez(tmp_path / "new.npz", X=X, channels=["ecg", "temp"])
    with pytest.raises(ValueError, match=r"'bp' is missing; 'temp' is none"):
        read_items(tmp_path / "new.npz", data.signature, TASKS["arrays"], ArraysOptions(file))
    np.savez(file, X=X, y=y, channels=["ecg"])
    with pytest.raises(ValueError, match=r"channels is \(1,\).*expected \(2,\), a name for each"):
        load_arrays(ArraysOptions(file), DataFolder(tmp_path))


def test_order_of_names() -> None:
    assert order_of(["b", "a"], ["a", "b"], "here") == [1, 0]
    with pytest.raises(ValueError, match="'a' is there twice"):
        order_of(["a", "a", "b"], ["a", "b"], "here")
    with pytest.raises(ValueError, match="and 80 more"):
        order_of([], [f"c{i}" for i in range(100)], "here")


# ---- wide tables ------------------------------------------------------------------------------

STEPS = [f"t{i}" for i in range(10)]


def wide_form(columns: list[str], label: str = "label", name: str = "id") -> str:
    """Case i counts from 100 i; the class is i modulo 2."""
    rows = [",".join([name, *columns, label])] if name else [",".join([*columns, label])]
    for i in range(12):
        values = [str(100 * i + int(column.strip("tv"))) for column in columns]
        rows.append(",".join([*([f"c{i}"] if name else []), *values, "ab"[i % 2]]))
    return "\n".join(rows)


def test_wide_tables_are_recognised(tmp_path: Path) -> None:
    data = table(tmp_path, wide_form(STEPS))
    assert (data.signature.features, data.signature.length) == (1, 10)
    assert case(data, "c3")[:, 0].tolist() == [300.0 + t for t in range(10)]
    data = table(tmp_path, wide_form(STEPS, name=""))  # a case without a name is a line
    assert case(data, "line 5")[:, 0].tolist() == [300.0 + t for t in range(10)]


def test_steps_go_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    many = [f"t{i}" for i in range(12)]
    data = table(tmp_path, wide_form(sorted(many)))  # t0, t1, t10, t11, t2
    assert case(data, "c1")[:, 0].tolist() == [100.0 + t for t in range(12)]
    header, *rows = wide_form(list(reversed(many))).splitlines()
    (item,) = items(tmp_path, f"{header}\n{rows[1]}", data.signature)
    assert item.case == "c1"
    assert item.values[:, 0].tolist() == [100.0 + t for t in range(12)]
    bare = ",".join(rows[1].split(",")[-2:0:-1])
    (item,) = items(tmp_path, f"{bare}\n", data.signature)  # without a header, as they come
    assert item.values[:, 0].tolist() == [100.0 + t for t in range(12)]
    assert step_order(["-1", "-2.5", "0"]) == [1, 0, 2]
    assert step_order(["step-2", "step-10", "step-1"]) == [2, 0, 1]  # no sign
    assert step_order(["400nm", "500nm"]) == [0, 1]
    assert (
        step_order(["jan", "feb"]) is step_order(["t1", "u2"]) is step_order(["1", "1.0"]) is None
    )


def test_a_layout_that_is_in_doubt_is_asked_for(tmp_path: Path) -> None:
    few = wide_form(STEPS[:3])
    with pytest.raises(ValueError, match=r"single row; .*--data\.layout wide.*--data\.case"):
        table(tmp_path, few)
    assert table(tmp_path, few, layout="wide").signature.length == 3
    with pytest.raises(ValueError, match=r"which column is the case.*--data\.layout wide"):
        table(tmp_path, wide_form(STEPS[:3], name=""))
    with pytest.raises(ValueError, match="unknown layout 'broad'"):
        TableOptions(tmp_path, layout="broad")  # type: ignore[arg-type]
    numbered = long_form("x").replace("x", ",".join(STEPS)).splitlines()
    several = [
        numbered[0],
        *(",".join([row.split(",")[0], *"0123456789", row[-1]]) for row in numbered[1:]),
    ]
    data = table(tmp_path, "\n".join(several))  # cases with several rows: ten channels
    assert (data.signature.features, data.signature.length) == (10, 3)
    with pytest.raises(ValueError, match=r"case 'c0' is in line 2 already.*--data\.layout long"):
        table(tmp_path, "\n".join(several), layout="wide")


def test_wide_rows_may_end_early(tmp_path: Path) -> None:
    text = wide_form(STEPS).replace(",208,209,", ",,,")
    data = table(tmp_path, text)
    assert case(data, "c2")[:, 0].tolist() == [200.0 + t for t in range(8)]
    with pytest.raises(ValueError, match=r"data\.csv:4: column 't3' has no value"):
        table(tmp_path, text.replace(",203,", ",,"))
    data = table(tmp_path, text.replace(",203,", ",?,"), missing="interpolate")
    assert case(data, "c2")[:, 0].tolist() == [200.0 + t for t in range(8)]


# ---- gaps and decimal commas ------------------------------------------------------------------


def test_gaps_of_tables_are_interpolated_on_demand(tmp_path: Path) -> None:
    text = long_form("x", "z").replace("c4,1,", "c4,,").replace("c7,2,", "c7,NaN,")
    with pytest.raises(ValueError, match=r":15: column 'x' has no value .*--data\.missing interp"):
        table(tmp_path, text)
    data = table(tmp_path, text, missing="interpolate")
    assert case(data, "c4")[:, 0].tolist() == [0, 1, 2]
    assert case(data, "c7")[:, 0].tolist() == [0, 1, 1]
    (item,) = items(tmp_path, "x,z\n0,1\n,1\n4,1\n", data.signature, missing="interpolate")
    assert item.values[:, 0].tolist() == [0, 2, 4]
    nothing = text.replace("c4,0,", "c4,,").replace("c4,2,", "c4,,")
    with pytest.raises(ValueError, match="case 'c4' has no value at all in channel 'x'"):
        table(tmp_path, nothing, missing="interpolate")


def test_gaps_of_arrays_are_interpolated_on_demand(tmp_path: Path) -> None:
    X, file, y = np.arange(120.0).reshape(12, 10), tmp_path / "a.npz", ["a", "b"] * 6
    holes = X.copy()
    holes[3, 4:6] = np.nan
    for given in (
        {"X": holes},
        {"X": holes.ravel()[:-2], "lengths": [10] * 11 + [8]},
    ):
        np.savez(file, y=y, **given)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"case 3, time 4.*--data\.missing interpolate"):
            load_arrays(ArraysOptions(file), DataFolder(tmp_path))
        data = load_arrays(ArraysOptions(file, missing="interpolate"), DataFolder(tmp_path))
        np.testing.assert_allclose(data.train.inputs[0][3][:, 0], X[3])
    options = ArraysOptions(file, missing="interpolate")
    found = read_items(file, data.signature, TASKS["arrays"], options)
    np.testing.assert_allclose(found[3].values[:, 0], X[3])


def test_decimal_commas_are_read(tmp_path: Path) -> None:
    rows = [f"{i};0,5;{i},25;{i},5" for i in range(12) for _ in range(2)]
    data = table(tmp_path, "\n".join(["id;x;z;target", *rows]), kind="regression")
    assert case(data, "3").tolist() == [[0.5, 3.25]] * 2
    assert sorted(data.train.targets) == [i + 0.5 for i in range(12)]
    (item,) = items(tmp_path, "z;x\n1,5;2\n", data.signature)
    assert item.values.tolist() == [[2.0, 1.5]]
    with pytest.raises(ValueError, match=r"comma, '0,5' .*:2\), and with a point, '1\.5' .*:26\)"):
        table(tmp_path, "\n".join(["id;x;z;target", *rows, "12;1.5;0;0"]))


# ---- what is kept of a run --------------------------------------------------------------------


def test_configs_are_what_they_were_before_the_options(tmp_path: Path) -> None:
    for name, new in (("table", "missing"), ("arrays", "missing"), ("audio-folder", "resample")):
        config = default_config(name, path=tmp_path)
        assert new not in config.to_json()["data"]
        assert Config.from_json(config.to_json()) == config
    changed = default_config("table", path=tmp_path, missing="interpolate")
    assert changed.to_json()["data"]["missing"] == "interpolate"
    assert default_config("ucr", path="x").to_json()["data"]["missing"] == "error"


# ---- small files that would become large ones -------------------------------------------------


def header(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def archive(path: Path, content: bytes, zeros: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        with packed.open("X.npy", "w", force_zip64=True) as stream:
            stream.write(content)
            for _ in range(zeros):
                stream.write(bytes(1 << 20))
        packed.writestr("y.npy", header((1,)) + bytes(4))
    return path


@pytest.mark.parametrize(
    ("content", "zeros", "message"),
    [
        (header((256, 1024, 256)), 256, r"would unpack to 268.4 MB, .*\(np\.savez\)"),
        (header((1 << 40, 1)), 0, "but ends before its last row"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 60 << 20), 60, "a header of 62914560 bytes"),
    ],
)
def test_bombs_are_refused_before_they_go_off(
    content: bytes, zeros: int, message: str, tmp_path: Path
) -> None:
    file, signature = (
        archive(tmp_path / "bomb.npz", content, zeros),
        Signature("regression", 1, 1, 9),
    )
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message):
            read_items(file, signature, TASKS["arrays"], ArraysOptions(file))
        with pytest.raises(ValueError, match=message):
            load_arrays(ArraysOptions(file), DataFolder(tmp_path / "data"))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
