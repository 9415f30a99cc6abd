"""Trained runs on new data: rates, labels and datasets of another signature, from Python."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from s4d_torch.data import Dataset, Sequences, Signature, Split
from s4d_torch.deploy.inference import (
    confusion_matrix,
    describe_rate,
    fit_dataset,
    labelled,
    relative_rate,
    runner_up,
)

TRAINED = Signature(
    "classification", features=1, outputs=3, length=8, classes=("a", "b", "c"), sample_rate=16000.0
)


def test_the_rate_is_that_of_the_sampling_rates() -> None:
    assert relative_rate(TRAINED, 8000.0) == 2.0
    assert relative_rate(TRAINED, None) == 1.0
    assert relative_rate(replace(TRAINED, sample_rate=None), 8000.0) == 1.0
    assert describe_rate(2.0, TRAINED, 8000.0).startswith("at 8000 Hz, trained at 16000 Hz")
    assert describe_rate(3.0, TRAINED, 8000.0) == "computed with rate 3"


def test_outputs_get_their_labels() -> None:
    found = labelled(torch.tensor([0.2, 0.7, 0.1]), TRAINED)
    assert found["class"] == "b"
    assert list(found["probabilities"]) == ["a", "b", "c"]
    name, chance = runner_up(found) or ("", 0.0)
    assert (name, chance) == ("a", pytest.approx(0.2))
    assert runner_up({"class": "a", "probabilities": {"a": 1.0}}) is None
    nameless = labelled(torch.tensor([0.2, 0.8]), replace(TRAINED, outputs=2, classes=()))
    assert nameless["class"] == "1"
    number = labelled(torch.tensor([1.5]), replace(TRAINED, kind="regression", outputs=1))
    assert number == {"value": 1.5}


def dataset(*classes: str, features: int = 1) -> Dataset:
    signature = replace(TRAINED, features=features, outputs=len(classes), classes=classes)
    values = np.zeros((len(classes), 4, features), np.float32)
    whole = Split.whole(Sequences(values), np.arange(len(classes)))
    return Dataset(whole, whole, whole, replace(signature, length=4, sample_rate=8000.0))


def test_classes_of_other_data_are_matched_by_name() -> None:
    fitted = fit_dataset(dataset("c", "a"), TRAINED, same_unit=True)
    assert fitted.test.targets.tolist() == [2, 0]
    assert fitted.signature == replace(TRAINED, length=4, sample_rate=8000.0)
    with pytest.raises(ValueError, match=r"tells 3 classes apart \(a, b, c\); the data has z"):
        fit_dataset(dataset("a", "z"), TRAINED, same_unit=True)
    with pytest.raises(ValueError, match=r"8 samples of 1 feature.*; the data has 4 samples of 2"):
        fit_dataset(dataset("a", "b", features=2), TRAINED, same_unit=True)


def test_confusion_counts_rows_as_columns() -> None:
    outputs = torch.eye(3)[[0, 1, 1, 2]]
    found = confusion_matrix(outputs, torch.tensor([0, 0, 1, 2]))
    assert found.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
