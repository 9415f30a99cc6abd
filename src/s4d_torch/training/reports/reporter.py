"""What a run says about itself while it goes on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Progress:
    """How far a run is after a step."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    lr: float
    examples_per_second: float
    seconds_left: float
    score: float | None
    """of the last validation"""


class Reporter:
    """Is told how a run goes; does nothing with it. Others override what they care for."""

    def begin(self, about: Mapping[str, Any]) -> None:
        """The run starts or goes on: task, metric, parameters, step, steps, folder."""

    def step(self, now: Progress) -> None:
        """After each step."""

    def epoch(self, row: Mapping[str, Any]) -> None:
        """After each epoch, with its row of ``metrics.csv``."""

    def message(self, text: str) -> None:
        """Something worth a line: a resume, a skipped batch."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run is done."""

    def close(self) -> None:
        """The run is over, well or not."""


class Reporters(Reporter):
    """Tells several."""

    def __init__(self, *reporters: Reporter) -> None:
        for event in ("begin", "step", "epoch", "message", "end", "close"):
            setattr(self, event, partial(_tell, [getattr(each, event) for each in reporters]))


def _tell(listeners: Sequence[Callable[..., None]], *told: Any) -> None:
    for listener in listeners:
        listener(*told)
