"""Data in memory: the digits and their splits."""

import sys

import pytest
import torch

from s4d_torch.data import Split, load_digits
from s4d_torch.data.dataset import split_randomly


def test_digits_are_sequences_of_pixels() -> None:
    data = load_digits()
    assert (data.features, data.classes) == (1, 10)
    sizes = [len(part) for part in (data.train, data.validation, data.test)]
    assert sizes == [1258, 180, 359]
    for part in (data.train, data.validation, data.test):
        assert part.inputs.shape == (len(part), 64, 1)
        assert part.inputs.dtype == torch.float32
        assert part.inputs.min() == 0
        assert part.inputs.max() == 1
        assert set(part.targets.tolist()) == set(range(10))


def test_splits_are_disjoint_complete_and_decided_by_the_seed() -> None:
    whole = Split(torch.arange(50.0)[:, None, None], torch.arange(50))

    def split(seed: int) -> list[list[int]]:
        data = split_randomly(whole, classes=50, validation=0.1, test=0.2, seed=seed)
        parts = (data.train, data.validation, data.test)
        assert all(torch.equal(part.inputs.flatten().long(), part.targets) for part in parts)
        return [part.targets.tolist() for part in parts]

    parts = split(0)
    assert [len(part) for part in parts] == [35, 5, 10]
    assert sorted(i for part in parts for i in part) == list(range(50))
    torch.rand(3)  # numbers drawn elsewhere do not matter
    assert split(0) == parts
    assert split(1) != parts


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"pip install 's4d-torch\[estimators\]'"):
        load_digits()
