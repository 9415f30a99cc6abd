"""Learning rate schedules: a factor on the learning rate for each part of the way."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from s4d_torch._registry import Registry


class Shape(Protocol):
    """The numbers a schedule may ask for; see ``OptimizerConfig``."""

    @property
    def decay(self) -> float: ...
    @property
    def period(self) -> float: ...
    @property
    def milestones(self) -> tuple[float, ...]: ...


# factor(progress, shape): progress goes from 0, after the warm-up, to 1 at the last step
SCHEDULES: Registry[Callable[[float, Shape], float]] = Registry("schedule")


@SCHEDULES.register("cosine")
def cosine(progress: float, shape: Shape) -> float:
    return 0.5 * (1 + math.cos(math.pi * progress))


@SCHEDULES.register("step")
def step(progress: float, shape: Shape) -> float:
    return shape.decay ** int(progress / shape.period + 1e-9)


@SCHEDULES.register("multistep")
def multistep(progress: float, shape: Shape) -> float:
    return shape.decay ** bisect_right(sorted(shape.milestones), progress)


@SCHEDULES.register("constant")
def constant(progress: float, shape: Shape) -> float:
    return 1.0


def factor(name: str, step: int, steps: int, warmup: float, shape: Shape) -> float:
    """The factor of step ``step`` of ``steps``, counted from 0: a line up, then the schedule."""
    rise = round(warmup * steps)
    if step < rise:
        return (step + 1) / (rise + 1)
    return SCHEDULES[name]((step - rise) / max(1, steps - rise), shape)
