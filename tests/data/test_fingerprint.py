"""Data is known by its content: what a fingerprint notices, and what it does not depend on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from s4d_torch.data import Dataset, Sequences, Split
from s4d_torch.data.fingerprint import changes, fingerprint
from s4d_torch.data.store import Scratch, read_dataset, write_dataset
from training_job import small_data


@pytest.mark.parametrize("options", [{}, {"ragged": True}, {"tokens": True}, {"towers": 2}])
def test_the_same_data_has_one_fingerprint_wherever_it_lies(
    options: dict[str, bool], tmp_path: Path
) -> None:
    data = small_data(**options)  # type: ignore[arg-type]
    found = fingerprint(data)
    assert changes(found, fingerprint(small_data(**options))) == []  # type: ignore[arg-type]
    write_dataset(data, Scratch(tmp_path))
    assert fingerprint(read_dataset(tmp_path)) == found

    def copied(split: Split) -> Split:
        inputs = [Sequences.of([tower[i] for i in split.index]) for tower in split.inputs]
        return Split.whole(tuple(inputs), split.labels())

    assert fingerprint(data.mapped(copied)) == found


def changed(data: Dataset, name: str, split: Split) -> list[str]:
    return changes(fingerprint(data), fingerprint(replace(data, **{name: split})))


def test_what_changed_is_said() -> None:
    data = small_data()
    half = data.train.part(slice(20))
    assert changed(data, "train", half) == ["train had 40 cases, now 20"]
    (tower,) = data.test.inputs
    values = tower.values.copy()
    values[data.test.index[3], 5, 0] += 1e-3
    other = replace(data.test, inputs=(Sequences(values),))
    assert changed(data, "test", other) == ["values of test differ, or their order"]
    swapped = replace(data.validation, targets=1 - data.validation.targets)
    assert changed(data, "validation", swapped) == ["targets of validation differ, or their order"]
    turned = data.train.part(np.arange(40)[::-1])
    told = ["values and targets of train differ, or their order"]
    assert changed(data, "train", turned) == told


def test_shorter_sequences_and_moved_boundaries_are_noticed() -> None:
    data = small_data(ragged=True)
    (tower,) = data.train.inputs
    assert tower.offsets is not None
    offsets = tower.offsets.copy()
    offsets[1] += 1  # the first sample of the second sequence is the last of the first one
    moved = replace(data.train, inputs=(Sequences(tower.values, offsets),))
    assert changed(data, "train", moved) == ["values of train differ, or their order"]
    cut = replace(small_data(), train=small_data(length=10).train)
    told = changes(fingerprint(small_data()), fingerprint(cut))
    assert told == ["train had 480 samples, now 400"]
