"""A trained run on raw data: units, names and sampling rates are its own business."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import s4d_torch
from s4d_torch import Run, SequenceModel, load_run
from s4d_torch.cli import main
from s4d_torch.data.dataset import Dataset, Sequences, Signature, Split
from s4d_torch.estimators import S4DClassifier, S4DRegressor
from s4d_torch.training import train_on
from training_job import small_config, small_data

UNITS: dict[str, Any] = {"input_shift": (5.0, -300.0), "input_scale": (0.5, 0.01)}
NAMES: dict[str, Any] = {"channels": ("pressure", "flow"), "sample_rate": 100.0}


def recordings(count: int, length: int = 12) -> Any:
    """Two channels in very different units; the class is the sign of the slope of the second."""
    random = np.random.default_rng(3)
    slope = random.choice([-1.0, 1.0], count)
    x = random.normal(size=(count, length, 2))
    x[..., 1] += 2 * np.linspace(-1, 1, length) * slope[:, None]
    return x * [2.0, 100.0] + [5.0, -300.0], slope


def trained(folder: Path, kind: Any = "classification") -> Run:
    x, slope = recordings(60)
    targets = (slope > 0).astype(np.int64) if kind == "classification" else 70 + 30 * slope
    whole = Split.whole(Sequences(x), targets)
    parts = [whole.part(slice(*ends)) for ends in ((0, 40), (40, 50), (50, 60))]
    answers: dict[str, Any] = {"outputs": 2, "classes": ("down", "up")}
    if kind == "regression":
        answers = {"outputs": 1, "target_shift": 70.0, "target_scale": 30.0}
    signature = Signature(kind, 2, length=12, **answers, **UNITS, **NAMES)
    config = small_config(training={"epochs": 6})
    return train_on(Dataset(*parts, signature), config, out=folder, device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "run"
    trained(place)
    return place


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


X, SLOPE = recordings(60)


def test_one_object_has_all_there_is_to_know(run: Run, folder: Path) -> None:
    assert s4d_torch.load_run is load_run
    assert isinstance(run.model, SequenceModel)
    assert (run.classes, run.channels) == (("down", "up"), ("pressure", "flow"))
    assert (run.sample_rate, run.folder) == (100.0, folder)
    assert run.units == {**UNITS, "target_shift": 0.0, "target_scale": 1.0}


def test_its_model_is_in_evaluation(run: Run, folder: Path) -> None:
    assert not run.model.training  # else a batch norm would answer by the batch it is asked in
    assert not load_run(folder).model.training


def test_raw_data_is_answered_as_in_the_test(run: Run) -> None:
    labels = run.predict(X[50:])
    right = labels == np.where(SLOPE[50:] > 0, "up", "down")
    assert right.mean() == run.summary["test"]["accuracy"] > 0.8
    chances = run.predict_proba(X[50:])
    assert chances.shape == (10, 2)
    np.testing.assert_allclose(chances.sum(1), 1)
    assert (np.array(run.classes)[chances.argmax(1)] == labels).all()


def test_transform_gives_what_the_model_reads(run: Run) -> None:
    inputs = run.transform(X[:3])
    expected = (X[:3] - UNITS["input_shift"]) * UNITS["input_scale"]
    assert isinstance(inputs, torch.Tensor)
    np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        outputs, _ = run.model.eval()(inputs)
    np.testing.assert_allclose(outputs.softmax(-1), run.predict_proba(X[:3]), rtol=1e-4)
    one = run.transform(X[0])
    assert isinstance(one, torch.Tensor)
    assert one.shape == (1, 12, 2)
    ragged = run.transform([X[0], X[1][:5]])
    assert [tuple(each.shape) for each in ragged] == [(12, 2), (5, 2)]


class Frame:
    """As much of a data frame as is used."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


def structured(x: Any) -> Any:
    found = np.zeros(len(x), [("flow", float), ("pressure", float)])
    found["pressure"], found["flow"] = x[:, 0], x[:, 1]
    return found


FORMS = {
    "array": lambda x: x[0],
    "batch": lambda x: x[:1],
    "list": lambda x: [x[0]],
    "lists of lists": lambda x: x[0].tolist(),
    "float32": lambda x: x[0].astype(np.float32),
    "tensor": lambda x: torch.from_numpy(x[0]),
    "tensor that wants a gradient": lambda x: torch.from_numpy(x[0]).requires_grad_(),
    "dict": lambda x: {"flow": x[0, :, 1], "pressure": x[0, :, 0].tolist()},
    "frame": lambda x: Frame({"flow": x[0, :, 1], "pressure": x[0, :, 0]}),
    "structured": lambda x: structured(x[0]),
    "list of dicts": lambda x: [{"flow": x[0, :, 1], "pressure": x[0, :, 0]}],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gets_the_same_answer(run: Run, form: str) -> None:
    found = run.predict_proba(FORMS[form](X))
    np.testing.assert_allclose(found, run.predict_proba(X[:1]), rtol=1e-5)


def test_a_data_frame_of_pandas_is_read_by_name(run: Run) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[0][:, ::-1], columns=["flow", "pressure"])
    np.testing.assert_allclose(run.predict_proba(frame), run.predict_proba(X[0]), rtol=1e-6)


def test_ragged_sequences_are_answered_one_by_one(run: Run) -> None:
    cut = [X[0], X[1][:7], X[2][:9]]
    alone = np.concatenate([run.predict_proba(each) for each in cut])
    np.testing.assert_allclose(run.predict_proba(cut), alone, rtol=1e-4)


def test_another_sampling_rate_is_given_in_either_way(run: Run) -> None:
    half = X[:5, ::2]
    at_50 = run.predict_proba(half, sample_rate=50.0)
    np.testing.assert_array_equal(at_50, run.predict_proba(half, rate=2.0))
    assert np.abs(at_50 - run.predict_proba(half)).max() > 1e-4
    with pytest.raises(ValueError, match="rate and sample_rate: give one of them"):
        run.predict(half, rate=2.0, sample_rate=50.0)
    for wrong in (0, -1.0, float("nan"), True, "fast"):
        with pytest.raises(ValueError, match="rate must be a positive number"):
            run.predict(half, rate=wrong)  # type: ignore[arg-type]
    unknown = replace(run, signature=replace(run.signature, sample_rate=None))
    with pytest.raises(ValueError, match="does not know the sampling rate of its data; give rate"):
        unknown.predict(half, sample_rate=50.0)


def gap(value: float) -> Any:
    x = X[:2].copy()
    x[1, 3, 1] = value
    return x


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((12, 3)), r"x has shape \(12, 3\); the run reads \(length, 2\) \(pressure, flow"),
        (np.zeros(12), r"x has shape \(12,\)"),
        (np.zeros((2, 3, 4, 2)), r"x has shape \(2, 3, 4, 2\)"),
        ([X[0], np.zeros((5, 1))], r"x\[1\] has shape \(5, 1\)"),
        (np.zeros((0, 2)), "x is empty"),
        (np.zeros((0, 12, 2)), "x is empty"),
        ([], "x has shape"),
        ([X[0], X[0][:0]], r"x\[1\] is empty"),
        (gap(np.nan), r"x\[1\] holds nan at sample 3, flow; fill in"),
        (gap(np.inf), r"x\[1\] holds inf at sample 3, flow"),
        (gap(1e300), r"x\[1\] holds 1e\+300 at sample 3, flow"),
        ("a.csv", "x holds <U5; expected numbers"),
        (X[0].astype(complex), "x holds complex128"),
        ([[1, 2], ["a", "b"]], "x holds <U"),
        (
            {"pressure": X[0, :, 0]},
            "x has the columns pressure; the run was trained on pressure, f",
        ),
        ({"pressure": [1], "flow": [1], "time": [1]}, "columns pressure, flow, time; the run was"),
        ({"pressure": [1, 2], "flow": [1]}, r"one length, .*pressure \(2,\), flow \(1,\)"),
        ({"pressure": ["a"], "flow": ["b"]}, "column pressure holds <U1"),
        (None, "x holds object"),
    ],
)
def test_what_cannot_be_read_is_named(run: Run, x: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run.predict(x)


def test_a_regression_answers_in_the_unit_of_its_targets(tmp_path: Path) -> None:
    trained(tmp_path, "regression")
    run = load_run(tmp_path)
    found = run.predict(X[50:])
    error = np.sqrt(np.mean((found - (70 + 30 * SLOPE[50:])) ** 2))
    assert error == pytest.approx(run.summary["test"]["rmse"], rel=1e-5)
    with pytest.raises(ValueError, match="has no probabilities; use predict"):
        run.predict_proba(X)


def test_one_channel_may_be_a_plain_list_and_classes_without_names_are_numbers() -> None:
    run = train_on(small_data(), small_config(training={"epochs": 1}))
    values = np.linspace(-1, 1, 12)
    found = run.predict(values.tolist())
    assert found.shape == (1,)
    assert found[0] in (0, 1)
    np.testing.assert_array_equal(run.predict(values[:, None]), found)
    with pytest.raises(ValueError, match=r"has shape \(5, 3\); the run reads \(length, 1\)"):
        run.predict(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="the channels of this run have none"):
        run.predict({"a": [1.0], "b": [1.0]})


def test_pairs_and_tokens() -> None:
    data = small_data(towers=2, tokens=True)
    run = train_on(data, small_config(training={"epochs": 1}))
    pairs = [([0, 1, 2], [3, 3]), ([1, 1, 1, 1], [0])]
    assert run.predict_proba(pairs).shape == (2, 2)
    with pytest.raises(ValueError, match="give a list of pairs"):
        run.predict([0, 1, 2])
    with pytest.raises(ValueError, match="tokens have to be whole numbers from 0 to 3"):
        run.predict([([0, 1], [9])])
    with pytest.raises(ValueError, match="holds float64; expected whole numbers"):
        run.predict([([0.5, 1], [2])])


def test_a_run_that_generates_says_so(run: Run) -> None:
    other = replace(run, signature=replace(run.signature, kind="generation"))
    with pytest.raises(ValueError, match=r"predicts the next symbol; use model\.generate"):
        other.predict(X)


# -- the weights alone -----------------------------------------------------------------------------


def test_saved_weights_say_that_inputs_are_standardised(folder: Path) -> None:
    told = json.loads((folder / "best" / "config.json").read_text())["preprocessing"]
    assert told["input_shift"] == list(UNITS["input_shift"])
    assert told["input_scale"] == list(UNITS["input_scale"])
    assert (told["channels"], told["sample_rate"]) == (["pressure", "flow"], 100.0)
    with pytest.warns(UserWarning, match="trained on standardised data: for raw data use s4d_tor"):
        model = SequenceModel.from_pretrained(folder / "best")
    assert model.preprocessing == told


def test_weights_that_are_saved_again_still_say_so(folder: Path, tmp_path: Path) -> None:
    load_run(folder).model.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="standardised data"):
        SequenceModel.from_pretrained(tmp_path)


def test_plain_weights_load_without_a_word(tmp_path: Path) -> None:
    SequenceModel(2, 2, 4, 1).save_pretrained(tmp_path)
    assert SequenceModel.from_pretrained(tmp_path).preprocessing is None
    run = train_on(small_data(), small_config(training={"epochs": 1}), out=tmp_path / "run")
    assert run.model.preprocessing is None


@pytest.mark.filterwarnings("default")
def test_export_of_weights_alone_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    assert main(["export", str(folder / "best"), "--out", str(tmp_path / "out")]) == 0
    assert "were trained on standardised data" in capsys.readouterr().err


@pytest.mark.parametrize("estimator", [S4DClassifier, S4DRegressor])
def test_weights_of_an_estimator_say_so_too(estimator: Any, tmp_path: Path) -> None:
    y = SLOPE if estimator is S4DRegressor else SLOPE > 0
    channels = X.swapaxes(1, 2)
    model = estimator(n_layers=1, d_model=4, d_state=4, epochs=2, random_state=0).fit(channels, y)
    model.save(tmp_path)
    np.testing.assert_array_equal(
        estimator.load(tmp_path).predict(channels), model.predict(channels)
    )
    with pytest.warns(UserWarning, match=f"for raw data use {estimator.__name__}.load"):
        weights = SequenceModel.from_pretrained(tmp_path)
    assert weights.preprocessing is not None
    shift, scale = (np.array(weights.preprocessing[f"input_{x}"]) for x in ("shift", "scale"))
    assert weights.preprocessing["differences"]
    both = np.concatenate([X, np.diff(X, axis=1, prepend=X[:, :1])], axis=2)
    inputs = torch.from_numpy((both - shift) * scale).float()
    with torch.no_grad():
        outputs = weights.eval()(inputs)[0].numpy()
    if estimator is S4DRegressor:
        told = weights.preprocessing
        found = outputs[:, 0] * told["target_scale"][0] + told["target_shift"][0]
        np.testing.assert_allclose(found, model.predict(channels), rtol=1e-3, atol=1e-4)
    else:
        assert (model.classes_[outputs.argmax(1)] == model.predict(channels)).all()
