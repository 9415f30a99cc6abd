"""What a summary of data says, and the warnings for what would spoil a result."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from s4d_torch.data import Dataset, Sequences, Signature, Split, summary
from s4d_torch.data.dataset import Array
from s4d_torch.data.summary import summarize
from training_job import small_data


def dataset(values: Array, labels: Array, sizes: tuple[int, int, int], **options: Any) -> Dataset:
    whole = Split.whole(Sequences(values), labels)
    named = np.array([f"c{i}" for i in range(len(values))])
    whole = replace(whole, cases=named)
    parts = np.split(np.arange(len(values)), np.cumsum(sizes)[:-1])
    if options.pop("regression", False):
        signature = Signature("regression", values.shape[-1], 1, values.shape[1], **options)
    else:
        classes = options.pop("classes", ("a", "b"))
        signature = Signature.of_classes(
            classes, length=values.shape[1], features=values.shape[-1], **options
        )
    return Dataset.of(map(whole.part, parts), signature)


def noise(cases: int, channels: int = 2) -> Array:
    return np.random.default_rng(0).normal(size=(cases, 9, channels)).astype(np.float32)


SIZES, LABELS = (20, 8, 12), np.arange(40) % 2


def test_cases_lengths_classes_and_channels() -> None:
    values = noise(40)
    found = summarize(dataset(values, LABELS, SIZES, channels=("x", "y"), sample_rate=50.0))
    assert (found.cases, found.looked_at, found.sample_rate) == (40, 40, 50.0)
    assert found.warnings == []
    assert found.splits["train"].classes == {"a": 10, "b": 10}
    assert [split.cases for split in found.splits.values()] == [20, 8, 12]
    x, y = found.channels
    assert (x.name, y.name) == ("x", "y")
    assert x.low == values[..., 0].min()
    assert y.high == values[..., 1].max()
    ragged = summarize(small_data(ragged=True)).splits["train"]
    lengths = small_data(ragged=True).train.lengths()
    assert lengths is not None
    assert (ragged.shortest, ragged.longest) == (lengths.min(), lengths.max())
    assert ragged.median == np.median(lengths)


def only(data: Dataset) -> str:
    (warning,) = summarize(data).warnings
    return warning


def test_copies_in_another_split_are_found_by_content() -> None:
    values = noise(40)
    values[[30, 31]] = values[[3, 4]]
    labels = LABELS.copy()
    found = summarize(dataset(values, labels, SIZES))
    (shared,) = found.shared
    assert (shared.first, shared.second, shared.cases) == ("train", "test", 2)
    assert shared.example == ("c4", "c31") or shared.example == ("c3", "c30")
    labels[[30, 31]] = labels[[3, 4]]
    told = only(dataset(values, labels, SIZES))
    assert told.startswith("2 cases of test are in train too, by content, such as c30, which is c3")
    assert "--data.groups" in told


def test_copies_with_other_targets_are_told() -> None:
    values = noise(40)
    values[3] = values[2]  # within training, of the other class
    found = summarize(dataset(values, LABELS, SIZES))
    assert found.splits["train"].repeated == 1
    assert found.warnings == [
        "cases with the same values have different targets, once: no model can get them right"
    ]


def test_classes_that_are_rare_or_absent_are_told() -> None:
    labels = LABELS.copy()
    labels[5] = 2
    told = only(dataset(noise(40), labels, SIZES, classes=("a", "b", "c")))
    assert told.startswith("there is one case only of class 'c'")
    labels[6] = 2
    found = summarize(dataset(noise(40), labels, SIZES, classes=("a", "b", "c")))
    assert found.warnings == [
        "validation has no case of class 'c'",
        "test has no case of class 'c'",
    ]


def test_a_test_split_of_one_class_is_told() -> None:
    labels = LABELS.copy()
    labels[28:] = 0
    told = only(dataset(noise(40), labels, SIZES))
    assert told == "all cases of test are of the class 'a': its scores say nothing"


def test_unbalanced_classes_are_told() -> None:
    labels = (np.arange(40) % 10 == 0).astype(np.int64)
    told = only(dataset(noise(40), labels, SIZES))
    assert told.startswith(
        "92% of the test cases are 'a', and who always says so has that accuracy"
    )
    assert "--training.class-weight balanced" in told


@pytest.mark.parametrize(
    "leak",
    [
        LABELS,  # the target itself
        3.5 - 2 * LABELS,  # under another name
        10 * LABELS + np.arange(40) % 5,  # several values for a class
        LABELS + np.linspace(0, 0.5, 40),  # all different, but apart
    ],
)
def test_a_feature_that_tells_the_class_is_told(leak: Array) -> None:
    values = noise(40)
    values[..., 1] = leak[:, None]
    told = only(dataset(values, LABELS, SIZES, channels=("x", "state")))
    assert told.startswith("the feature 'state' stays the same all through a case and tells its ")


def test_a_feature_that_tells_the_number_is_told() -> None:
    values, number = noise(40), np.random.default_rng(1).normal(size=40)
    values[..., 1] = (1.8 * number + 32)[:, None]
    told = only(dataset(values, number, SIZES, regression=True, channels=("x", "fahrenheit")))
    assert "'fahrenheit' stays the same" in told


@pytest.mark.parametrize("harmless", [np.arange(40) % 7, np.random.default_rng(2).normal(size=40)])
def test_other_features_of_a_case_are_no_leak(harmless: Array) -> None:
    values = noise(40)
    values[..., 1] = harmless[:, None]
    found = summarize(dataset(values, LABELS, SIZES))
    assert found.warnings == []
    assert [channel.fixed for channel in found.channels] == [False, True]
    number = np.random.default_rng(3).normal(size=40)
    assert summarize(dataset(values, number, SIZES, regression=True)).warnings == []


def test_constant_channels_and_missing_values_are_told() -> None:
    values = noise(40)
    values[..., 0] = 3
    values[5, 2, 1] = np.nan
    constant, missing = summarize(dataset(values, LABELS, SIZES)).warnings
    assert constant == "the feature '1' never changes and tells nothing"
    assert missing.startswith("1 value missing or not finite")


def test_large_data_is_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "MOST_CASES", 10)
    found = summarize(dataset(noise(40), LABELS, SIZES))
    assert (found.cases, found.looked_at) == (40, 10)
    assert [split.cases for split in found.splits.values()] == [20, 8, 12]


@pytest.mark.parametrize(
    "options",
    [{"tokens": True}, {"towers": 2}, {"kind": "regression"}, {"tokens": True, "towers": 2}],
)
def test_every_kind_of_data_has_a_summary(options: dict[str, Any]) -> None:
    found = summarize(small_data(**options))
    assert found.cases == 64
    assert found.to_json()["splits"]["test"]["cases"] == 12
    assert len(found.channels) == (0 if "tokens" in options else 1)
