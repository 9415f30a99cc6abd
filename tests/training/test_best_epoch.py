"""Which weights are kept: the best score, and of equal ones the lower validation loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils import check_random_state

from s4d_torch._interruption import Interrupted
from s4d_torch.estimators import S4DClassifier
from s4d_torch.training import train_on
from s4d_torch.training.reports.reporter import Progress, Reporter
from s4d_torch.training.saved.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint
from training_job import small_config, small_data

FEW = small_data(sizes=(40, 4, 4))  # four cases to validate by: five scores there are
OPTIONS: list[dict[str, Any]] = [{"epochs": 8}, {"epochs": 8, "ema": 0.9}]


def best_of(rows: list[dict[str, Any]]) -> int:
    """The epoch of the highest accuracy, among equals of the lowest loss."""

    def rank(row: dict[str, Any]) -> tuple[float, float]:
        return float(row["validation_accuracy"]), -float(row["validation_loss"])

    return int(max(rows, key=rank)["epoch"])


def earliest_of(rows: list[dict[str, Any]]) -> int:
    return int(max(rows, key=lambda row: float(row["validation_accuracy"]))["epoch"])


@pytest.mark.parametrize("training", OPTIONS, ids=["weights", "average"])
def test_equal_scores_are_told_apart_by_the_loss(training: dict[str, Any]) -> None:
    run = train_on(FEW, small_config(training=training))
    assert earliest_of(run.rows) < best_of(run.rows)  # there is something to tell apart
    assert run.summary["best_epoch"] == best_of(run.rows)
    best = run.rows[best_of(run.rows) - 1]
    kept = run.evaluate(FEW, split="validation")
    assert kept.loss == pytest.approx(best["validation_loss"], rel=1e-5)
    assert run.summary["validation"] == best["validation_accuracy"]


class StopAfter(Reporter):
    """Interrupts the run after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.last = epoch

    def step(self, now: Progress) -> None:
        if now.epoch > self.last:
            raise Interrupted("enough")


@pytest.mark.parametrize("stop", [2, 5])
def test_a_run_that_goes_on_chooses_the_same_epoch(tmp_path: Path, stop: int) -> None:
    config = small_config(training=OPTIONS[0])
    with pytest.raises(Interrupted):
        train_on(FEW, config, out=tmp_path, reporter=StopAfter(stop))
    run = train_on(FEW, config, out=tmp_path)
    assert run.summary["best_epoch"] == best_of(run.rows) > stop


def test_a_checkpoint_without_the_best_loss_still_goes_on(tmp_path: Path) -> None:
    config = small_config(training=OPTIONS[0])
    with pytest.raises(Interrupted):
        train_on(FEW, config, out=tmp_path, reporter=StopAfter(2))
    found = newest_checkpoint(tmp_path / "checkpoints")
    assert found is not None
    assert found.state.pop("best_loss") > 0
    old = Checkpoint(found.step, found.tensors, found.state)
    save_checkpoint(tmp_path / "checkpoints", old)
    run = train_on(FEW, config, out=tmp_path)
    assert run.summary["best_epoch"] == best_of(run.rows)


def test_patience_counts_from_the_last_improvement_of_either() -> None:
    run = train_on(FEW, small_config(training={"epochs": 40, "patience": 3, "seed": 1}))
    epochs, best = int(run.rows[-1]["epoch"]), run.summary["best_epoch"]
    assert best == best_of(run.rows)
    assert epochs in (40, best + 3)


def test_estimators_choose_likewise() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 10))
    y = (X[:, :5].mean(1) + 0.3 * random.normal(size=40) > 0).astype(int)
    model = S4DClassifier(
        n_layers=1, d_model=4, d_state=4, epochs=30, patience=30, validation_fraction=0.1,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    best = model.history_[best_of(model.history_) - 1]
    assert best_of(model.history_) > earliest_of(model.history_)
    held_out = model._held_out(y, int(check_random_state(0).randint(np.iinfo(np.int32).max)))
    assert held_out is not None
    chances = model.predict_proba(X[held_out])[np.arange(len(held_out)), y[held_out]]
    assert -np.log(chances).mean() == pytest.approx(best["validation_loss"], rel=1e-4)
