"""What a result says beside its scores: what a model has to beat on the same cases."""

from dataclasses import replace

import numpy as np
import pytest

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.paper.experiments.outcomes import best_constant, best_linear, group_numbers

LENGTH, NOISE = 6, 0.3


def windows(target: str, kind: str = "regression") -> Dataset:
    """600 windows of noise, and a number that a linear map can find, or not."""
    draws = np.random.default_rng(0)
    signals = draws.normal(3.0, 2.0, (600, LENGTH, 2)).astype(np.float32)
    linear = signals.reshape(600, -1) @ draws.normal(size=2 * LENGTH)
    wanted = {"linear": linear, "square": (signals[:, 0, 0] - 3.0) ** 2}[target]
    wanted = 50 + wanted + draws.normal(0.0, NOISE, 600)
    whole = Split.whole(Sequences(signals), wanted)
    parts = (whole.part(np.arange(first, 600, 3)) for first in range(3))
    return Dataset.of(parts, Signature(kind, features=2, outputs=1, length=LENGTH))  # type: ignore[arg-type]


def test_a_linear_map_finds_what_is_linear_and_nothing_else() -> None:
    found = best_linear(windows("linear"))
    assert set(found) == {"validation", "test"}
    assert found["test"] == pytest.approx(NOISE, rel=0.15)  # what no map can find
    square = windows("square")
    assert best_linear(square)["test"] == pytest.approx(best_constant(square, "test"), rel=0.05)


def test_the_penalty_is_chosen_on_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    data = windows("square")
    each: dict[float, dict[str, float]] = {}
    for penalty in (0.01, 1e6):
        monkeypatch.setattr("s4d_torch.paper.experiments.outcomes.PENALTIES", (penalty,))
        each[penalty] = best_linear(data)
    monkeypatch.undo()
    assert best_linear(data)["validation"] <= min(x["validation"] for x in each.values())
    assert each[0.01] != each[1e6]


def test_where_no_linear_map_can_be_fitted_there_is_none() -> None:
    assert best_linear(windows("linear", "classification")) == {}
    signals: list[Array] = [np.ones((n, 2), np.float32) for n in (3, 5, 4)]
    ragged = Split.whole(Sequences.of(signals), np.arange(3.0))
    assert best_linear(Dataset.of([ragged] * 3, Signature("regression", 2, 1, 5))) == {}


def test_groups_have_one_number_in_all_splits() -> None:
    data = windows("linear")
    assert set(group_numbers(data).values()) == {None}
    names = {"train": ["anna", "ben"], "validation": ["cleo", "ben"], "test": ["ben", "dora"]}
    parts = [
        replace(split, groups=np.array(names[name] * 300)) for name, split in data.splits.items()
    ]
    found = group_numbers(Dataset.of(parts, data.signature))
    taken = data.splits["validation"].index % 2
    np.testing.assert_array_equal(found["validation"], np.array([2, 1])[taken])
    np.testing.assert_array_equal(found["test"], np.array([1, 3])[data.splits["test"].index % 2])
