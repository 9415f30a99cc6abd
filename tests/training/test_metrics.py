"""Metrics against scikit-learn, schedules against their shapes, averages against sums by hand."""

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch import Tensor

from s4d_torch.data.dataset import Signature
from s4d_torch.training import (
    METRICS,
    SCHEDULES,
    Interrupted,
    Metric,
    OptimizerConfig,
    Reporter,
    Run,
    train_on,
)
from s4d_torch.training.batches import Order
from s4d_torch.training.build import build_model
from s4d_torch.training.evaluation import score
from s4d_torch.training.optimizer import MovingAverage
from s4d_torch.training.schedule import factor
from training_job import small_config, small_data


@dataclass(frozen=True)
class Answers:
    """Scores of classes for a few sequences, some of them equal, and the true classes."""

    scores: Tensor
    classes: Tensor


@st.composite
def answers(draw: st.DrawFn) -> Answers:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, classes = draw(st.integers(2, 40)), draw(st.integers(2, 5))
    scores = random.normal(size=(count, classes)) * draw(st.sampled_from([0.1, 3.0]))
    twins = random.integers(count, size=count)  # rows that are the same are ties in every class
    targets = random.integers(classes, size=count)
    return Answers(torch.from_numpy(scores[twins]), torch.from_numpy(targets))


def measured(name: str, predictions: Tensor, targets: Tensor) -> float:
    return METRICS[name].score(predictions, targets)


# -- classification --------------------------------------------------------------------------------


@given(answers())
def test_accuracy_and_f1(case: Answers) -> None:
    found, wanted = case.scores.argmax(1), case.classes
    accuracy, f1 = (measured(name, case.scores, wanted) for name in ("accuracy", "f1"))
    assert accuracy == pytest.approx(sklearn.accuracy_score(wanted, found))
    assert f1 == pytest.approx(sklearn.f1_score(wanted, found, average="macro"))


@given(answers())
def test_auroc(case: Answers) -> None:
    chances = case.scores.softmax(1).numpy()
    wanted = case.classes.numpy()
    area = measured("auroc", case.scores, case.classes)
    if len(set(wanted)) == 1:
        assert math.isnan(area)
    elif chances.shape[1] == 2:
        assert area == pytest.approx(sklearn.roc_auc_score(wanted, chances[:, 1]))
    elif len(set(wanted)) == chances.shape[1]:
        assert area == pytest.approx(sklearn.roc_auc_score(wanted, chances, multi_class="ovr"))
    else:  # scikit-learn refuses classes that do not occur; one class at a time it does not
        each = [sklearn.roc_auc_score(wanted == k, chances[:, k]) for k in set(wanted)]
        assert area == pytest.approx(np.mean(each))


def test_auroc_counts_ties_half_and_knows_no_saturation() -> None:
    wanted = torch.tensor([0, 0, 1, 1])
    tied = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 2.0], [0.0, 3.0]])
    assert measured("auroc", tied, wanted) == 3.5 / 4
    sure = torch.tensor([[0.0, 0.0, 100.0], [0.0, 0.0, 200.0], [0.0, 0.0, 300.0]])
    assert measured("auroc", sure, torch.tensor([0, 2, 2])) == 1.0  # softmax gives 1 three times


def test_auroc_depends_on_chances_alone() -> None:
    """A number added to all scores of a sequence changes no chance."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    wanted = torch.randint(4, (30,), generator=generator)
    shifted = scores + 10 * torch.randn(30, 1, generator=generator, dtype=torch.float64)
    assert measured("auroc", shifted, wanted) == measured("auroc", scores, wanted)


# -- regression ------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(0, 99))
def test_rmse_and_mae(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    found, wanted = random.normal(70, 20, (2, count))
    pair = torch.from_numpy(found), torch.from_numpy(wanted)
    rmse, mae = (measured(name, *pair) for name in ("rmse", "mae"))
    assert rmse == pytest.approx(sklearn.root_mean_squared_error(wanted, found))
    assert mae == pytest.approx(sklearn.mean_absolute_error(wanted, found))


def test_errors_are_in_the_unit_of_the_targets() -> None:
    signature = Signature("regression", 1, 1, 9, target_shift=70.0, target_scale=30.0)
    found = score(torch.tensor([[0.0], [1.0]]), torch.tensor([0.1, 1.0]), signature)
    assert found.scores["mae"] == pytest.approx(1.5)  # 3 bpm, and 0
    assert found.scores["rmse"] == pytest.approx(math.sqrt(4.5))
    assert found.loss == pytest.approx(0.005)  # in units of the targets' spread


# -- better and worse ------------------------------------------------------------------------------


def test_the_better_score_is_known_and_nan_is_none() -> None:
    accuracy, rmse = METRICS["accuracy"], METRICS["rmse"]
    assert accuracy.better(0.9, 0.8)
    assert accuracy.better(0.1, None)
    assert not accuracy.better(0.8, 0.8)
    assert not accuracy.better(math.nan, None)
    assert rmse.better(3.0, 4.0)
    assert not rmse.better(5.0, 4.0)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_predictions_that_are_no_numbers_have_no_score(kind: str) -> None:
    signature = small_data(kind=kind).signature  # type: ignore[arg-type]
    outputs = torch.full((3, signature.outputs), math.nan)
    targets = torch.zeros(3, dtype=torch.int64 if kind == "classification" else torch.float32)
    assert all(math.isnan(value) for value in score(outputs, targets, signature).scores.values())


# -- schedules -------------------------------------------------------------------------------------


def curve(name: str, steps: int, warmup: float = 0.0, **shape: object) -> list[float]:
    config = OptimizerConfig(schedule=name, warmup=warmup, **shape)  # type: ignore[arg-type]
    return [factor(step, steps, config) for step in range(steps)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_rises_to_the_full_rate_and_never_exceeds_it(name: str) -> None:
    factors = curve(name, 100, warmup=0.1)
    assert factors[:10] == [(step + 1) / 11 for step in range(10)]
    assert factors[10] == 1
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[11:] == curve(name, 90)[1:]  # the warm-up shifts the rest


def test_cosine_is_half_a_wave() -> None:
    factors = curve("cosine", 8)
    assert factors[4] == pytest.approx(0.5)
    assert [a + b for a, b in zip(factors[1:], factors[:0:-1], strict=True)] == pytest.approx(
        [1] * 7
    )
    assert 0 < factors[-1] < 0.05


def test_step_and_multistep_fall_where_they_should() -> None:
    assert curve("step", 10, decay=0.5, period=0.3) == [1] * 3 + [0.5] * 3 + [0.25] * 3 + [0.125]
    falls = curve("multistep", 10, decay=0.1, milestones=(0.8, 0.5))
    assert falls == pytest.approx([1] * 5 + [0.1] * 3 + [0.01] * 2)
    assert curve("constant", 10) == [1.0] * 10


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("name", SCHEDULES)
def test_short_runs_have_a_rate_too(name: str, steps: int) -> None:
    assert all(0 < now <= 1 for now in curve(name, steps, warmup=0.5))


# -- the moving average ----------------------------------------------------------------------------


def test_the_average_is_the_sum_it_claims_to_be() -> None:
    config = small_config(model={"norm": "batch"}, training={"precision": "float64"})
    model = build_model(config, small_data().signature)
    average = MovingAverage(model, decay=0.5)
    expected = {name: x.clone() for name, x in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    for k in range(1, 13):
        with torch.no_grad():
            for x in [*model.parameters(), *model.buffers()]:
                x.copy_(torch.randn(x.shape, generator=generator))
        average.update(model)
        decay = min(0.5, (1 + k) / (10 + k))  # 2/11, 3/12, ... reaches 0.5 at k = 8
        for name, x in model.named_parameters():
            expected[name] = decay * expected[name] + (1 - decay) * x.detach()
    for name, x in average.model.named_parameters():
        torch.testing.assert_close(x, expected[name])
        assert not x.requires_grad
    for name, x in model.named_buffers():
        assert torch.equal(average.model.get_buffer(name), x)


# -- the order of the data -------------------------------------------------------------------------


@given(
    count=st.integers(1, 60),
    batch_size=st.integers(1, 16),
    accumulate=st.integers(1, 4),
    ragged=st.booleans(),
)
def test_each_epoch_sees_each_sequence_once_in_an_order_of_its_own(
    count: int, batch_size: int, accumulate: int, ragged: bool
) -> None:
    lengths = np.random.default_rng(0).integers(1, 99, count) if ragged else None
    order = Order(count, batch_size, accumulate, seed=1, lengths=lengths)
    steps = order.epoch(3)
    assert len(steps) == order.steps
    flat = [batch.tolist() for step in steps for batch in step]
    assert sorted(i for batch in flat for i in batch) == list(range(count))
    assert all(1 <= len(batch) <= batch_size for batch in flat)
    assert all(len(step) == accumulate for step in steps[:-1])
    again = [batch.tolist() for step in order.epoch(3) for batch in step]
    assert again == flat
    if count > 20:
        assert [batch.tolist() for step in order.epoch(4) for batch in step] != flat


# -- metrics and schedules of others ---------------------------------------------------------------


def log_loss(scores: Tensor, classes: Tensor) -> float:
    return torch.nn.functional.cross_entropy(scores.double(), classes).item()


@pytest.fixture
def outsiders(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user registers, in a file of their own; forgotten after the test."""
    for registry in (METRICS, SCHEDULES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))  # type: ignore[attr-defined]
    METRICS.register(
        "log_loss", Metric(log_loss, "classification", higher_is_better=False, format=".3f")
    )
    SCHEDULES.register("back", lambda progress, shape: 1 - progress)


@pytest.mark.usefixtures("outsiders")
def test_a_metric_of_others_chooses_the_best_epoch(tmp_path: Path) -> None:
    training = {"metric": "log_loss", "epochs": 4}
    config = small_config(optimizer={"schedule": "back", "warmup": 0.0}, training=training)
    done = train_on(small_data(), config, out=tmp_path, device="cpu")
    losses = [float(row["validation_log_loss"]) for row in done.rows]
    assert losses == pytest.approx([float(row["validation_loss"]) for row in done.rows])
    assert done.summary["best_epoch"] == 1 + losses.index(min(losses))
    assert (done.summary["metric"], done.summary["validation"]) == ("log_loss", min(losses))
    rates = [float(row["lr"]) / config.optimizer.lr for row in done.rows]
    assert rates == pytest.approx([25 / 32, 17 / 32, 9 / 32, 1 / 32])
    again = Run.load(tmp_path)
    test = again.evaluate(small_data())
    assert test.scores["log_loss"] == pytest.approx(done.summary["test"]["log_loss"])
    assert METRICS["log_loss"].show(0.12345) == "0.123"


class CtrlC(Reporter):
    def epoch(self, row: Mapping[str, Any]) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_metric_that_came_later_gets_a_column(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = small_config(training={"epochs": 2})
    with pytest.raises(Interrupted):
        train_on(small_data(), config, out=tmp_path, device="cpu", reporter=CtrlC())
    request.getfixturevalue("outsiders")
    rows = train_on(small_data(), config, out=tmp_path, device="cpu").rows
    assert [row["epoch"] for row in Run.load(tmp_path).rows] == ["1", "2"]
    written = Run.load(tmp_path).rows
    assert written[0]["validation_log_loss"] == ""
    assert float(written[1]["validation_log_loss"]) == rows[1]["validation_log_loss"]
