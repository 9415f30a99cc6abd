"""Intervals of scores: known values, coverage, and what cannot have one."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch.training import METRICS, train_on
from s4d_torch.training.evaluation import score
from s4d_torch.training.reports.intervals import (
    auroc_of_draws,
    bootstrap,
    score_intervals,
    show_score,
    wilson,
)
from training_job import small_config, small_data


def test_wilson_of_known_proportions() -> None:
    """Newcombe 1998, Table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    for right, cases, expected in (
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0000, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ):
        assert wilson(right, cases) == pytest.approx(expected, abs=5e-5)
    assert wilson(48, 48)[1] == 1.0
    assert 0.92 < wilson(48, 48)[0] < 0.93


def predictions(cases: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(classes, (cases,), generator=generator)
    outputs = torch.randn(cases, classes, generator=generator)
    outputs = (outputs + torch.nn.functional.one_hot(targets, classes)).round(decimals=1)  # ties
    return outputs, targets


@pytest.mark.parametrize("classes", [2, 4])
def test_auroc_of_draws_is_the_metric(classes: int) -> None:
    outputs, targets = predictions(30, classes)
    drawn = np.random.default_rng(0).integers(30, size=(20, 30))
    drawn[0] = np.arange(30)
    drawn[1] = int((targets == 0).nonzero()[0])  # of one class there is none
    times = np.stack([np.bincount(row, minlength=30) for row in drawn])
    found = auroc_of_draws(outputs, targets, times)
    for row, value in zip(drawn, found, strict=True):
        index = torch.from_numpy(row)
        expected = METRICS["auroc"].score(outputs[index], targets[index])
        assert value == pytest.approx(expected, nan_ok=True)
    assert math.isnan(found[1])


def test_intervals_hold_the_score_and_are_the_same_each_time() -> None:
    outputs, targets = predictions(80, 3)
    found = score_intervals(outputs, targets, ["accuracy", "f1", "auroc"])
    assert found == score_intervals(outputs, targets, ["accuracy", "f1", "auroc"])
    for name, (low, high) in found.items():
        assert low < METRICS[name].score(outputs, targets) < high
    numbers, wanted = torch.arange(50.0), torch.arange(50.0) + torch.arange(50) % 3
    low, high = score_intervals(numbers, wanted, ["mae"])["mae"]
    assert low < 0.98 < high
    assert high - low < 0.6


def test_what_has_no_interval() -> None:
    outputs, targets = predictions(1001, 2)
    assert score_intervals(outputs, targets, ["accuracy"]) == {}  # many cases
    outputs, targets = torch.eye(4), torch.arange(4)
    assert bootstrap(outputs, targets, "f1") is None  # all right: resampling knows nothing
    assert list(score_intervals(outputs, targets, ["accuracy", "f1", "auroc"])) == ["accuracy"]
    outputs[0, 0] = math.nan
    assert score_intervals(outputs, targets, ["accuracy"]) == {}


def test_scores_are_shown_with_their_interval() -> None:
    test = {"accuracy": 47 / 48, "rmse": 1.23456}
    known = {"accuracy": wilson(47, 48), "rmse": (1.0, 1.5)}
    summary: dict[str, Any] = {"test": test, "test_intervals": known, "test_cases": 48}
    assert show_score("accuracy", summary) == "97.92% (89.1 to 99.6 on 48 cases)"
    summary["test_groups"] = 6
    assert show_score("rmse", summary) == "1.235 (1 to 1.5 on 48 cases of 6 groups)"
    assert show_score("accuracy", {"test": {"accuracy": 0.5}, "test_cases": 5000}) == "50.00%"


def test_cases_of_one_group_are_drawn_together() -> None:
    """300 cases of 6 patients, of whom a model knows some and others not, are 6 cases."""
    random = np.random.default_rng(0)
    patients = np.repeat(np.arange(6), 50)
    right = random.random(300) < np.array([0.99, 0.95, 0.9, 0.5, 0.98, 0.6])[patients]
    targets = torch.zeros(300, dtype=torch.int64)
    outputs = torch.stack([torch.from_numpy(right), torch.from_numpy(~right)], 1).float()
    names = ["a", "b", "c", "d", "e", "f"]
    groups = np.array(names)[patients]
    alone = score_intervals(outputs, targets, ["accuracy"])["accuracy"]
    together = score_intervals(outputs, targets, ["accuracy"], groups)["accuracy"]
    means = np.array([right[patients == i].mean() for i in range(6)])
    error = means.std(ddof=1) / np.sqrt(6)
    assert together[1] - together[0] > 2.5 * (alone[1] - alone[0])
    assert together[1] - together[0] == pytest.approx(2 * 1.96 * error, rel=0.3)
    each = score_intervals(outputs, targets, ["accuracy"], np.arange(300))
    assert each["accuracy"] == alone  # a group for each case is no group
    assert score_intervals(outputs, targets, ["accuracy"], np.zeros(300)) == {}  # one says nothing


def test_groups_of_a_run_are_in_its_summary() -> None:
    plain = small_data(kind="regression")
    groups = np.arange(64) // 3
    data = plain.mapped(lambda split: replace(split, groups=groups))
    run, alone = (train_on(each, small_config(), device="cpu") for each in (data, plain))
    assert run.summary["test_groups"] == len(set(groups[data.test.index]))
    assert "test_groups" not in alone.summary
    assert run.summary["test"] == alone.summary["test"]
    ends = run.summary["test_intervals"]["rmse"]
    assert run.evaluate(data).intervals["rmse"] == pytest.approx(ends)
    assert ends != alone.summary["test_intervals"]["rmse"]


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_the_summary_of_a_run_has_them(kind: str) -> None:
    data = small_data(kind=kind)  # type: ignore[arg-type]
    run = train_on(data, small_config(), device="cpu")
    assert run.summary["test_cases"] == 12
    again = run.evaluate(data).intervals
    for name, (low, high) in run.summary["test_intervals"].items():
        assert low <= run.summary["test"][name] <= high
        assert again[name] == pytest.approx((low, high))
    assert run.summary["metric"] in run.summary["test_intervals"]


def test_validation_has_none() -> None:
    outputs, targets = predictions(30, 2)
    assert score(outputs, targets, small_data().signature).intervals == {}
