"""Weights for rare classes: their values, their place in the loss, and old configs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from s4d_torch.data import Dataset
from s4d_torch.training import Config, TrainingConfig, train_on
from s4d_torch.training.build import build_model
from s4d_torch.training.evaluation import class_weights
from s4d_torch.training.loop import Trainer
from s4d_torch.training.saved.store import MemoryStore
from training_job import small_config, small_data


def unbalanced() -> Dataset:
    """Of 40 cases to learn from, 4 of the second class."""
    data = small_data()
    labels = data.train.labels()
    ups, downs = np.flatnonzero(labels == 1)[:4], np.flatnonzero(labels == 0)
    return replace(data, train=data.train.part(np.concatenate([ups, np.resize(downs, 36)])))


def test_balanced_weights_are_one_over_the_frequency() -> None:
    data = unbalanced()
    weights = class_weights("balanced", data)
    assert weights is not None
    assert weights.tolist() == pytest.approx([40 / (2 * 36), 40 / (2 * 4)])
    assert weights[data.train.labels()].mean() == pytest.approx(1)
    assert class_weights("none", data) is None
    with pytest.raises(ValueError, match="is for classes, this is a regression; leave it out"):
        class_weights("balanced", small_data(kind="regression"))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_training_is_weighted(smoothing: float) -> None:
    options = {"class_weight": "balanced", "label_smoothing": smoothing}
    config, data = small_config(training=options), unbalanced()
    trainer = Trainer(
        config,
        data,
        build_model(config, data.signature),
        store=MemoryStore(),
        device=torch.device("cpu"),
    )
    outputs, targets = torch.randn(6, 2), torch.tensor([0, 0, 0, 0, 1, 1])
    weights = torch.tensor([40 / 72, 5.0])
    expected = cross_entropy(outputs, targets, weights, reduction="sum", label_smoothing=smoothing)
    assert trainer.loss_sum(outputs, targets).item() == pytest.approx(expected.item())


def test_rare_classes_are_found_more_often() -> None:
    found = {}
    for choice in ("none", "balanced"):
        training = {"class_weight": choice, "epochs": 2}
        run = train_on(unbalanced(), small_config(training=training), device="cpu")
        outputs, _ = run.model(unbalanced().batch(unbalanced().train, np.arange(40)).inputs)
        found[choice] = outputs.softmax(-1)[:, 1].mean().item()
    assert found["balanced"] > found["none"] + 0.05


def test_configs_from_before_class_weights_are_the_same() -> None:
    described = Config().to_json()
    assert "class_weight" not in described["training"]
    assert Config.from_json({**described, "data": {}}).training == TrainingConfig()
    weighted = replace(Config(), training=TrainingConfig(class_weight="balanced"))
    assert weighted.to_json()["training"]["class_weight"] == "balanced"
    with pytest.raises(ValueError, match="class_weight"):
        TrainingConfig(class_weight="blanced")  # type: ignore[arg-type]
