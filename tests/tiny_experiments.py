"""Experiments that take moments, and somebody who notes what becomes of them."""

from dataclasses import replace
from typing import Any

from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.paper.experiments.watch import Watch
from s4d_torch.training import TrainingConfig, default_config
from s4d_torch.training.reports.reporter import Progress

EPOCHS = 60  # of a run that is long enough to be disturbed


def tiny(seed: int = 0, epochs: int = 1, **model: Any) -> Experiment:
    config = default_config("digits")
    size: dict[str, Any] = {"d_model": 4, "n_layers": 1, "d_state": 4} | model
    training = TrainingConfig(epochs=epochs, batch_size=16, seed=seed, train_size=32, eval_size=32)
    return Experiment(replace(config, model=replace(config.model, **size), training=training))


class Notes(Watch):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.started_keys: list[str] = []
        self.put_back_for: list[str] = []
        self.messages: list[str] = []
        self.steps: dict[int, list[int]] = {}
        self.process = 0

    def started(self, key: str, process: int | None = None) -> None:
        self.started_keys.append(key)
        self.process = process or 0

    def progress(self, key: str, now: Progress) -> None:
        self.steps.setdefault(self.process, []).append(now.step)

    def put_back(self, key: str, reason: str) -> None:
        self.put_back_for.append(reason)

    def message(self, text: str) -> None:
        self.messages.append(text)
