"""Learning rate schedules: a factor on the learning rate for each part of the way."""

import math
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from s4d_torch._registry import Registry

# factor(progress, config): progress goes from 0, after the warm-up, to 1 at the last step; of the
# ``OptimizerConfig`` a schedule may ask for decay, period and milestones
SCHEDULES: Registry[Callable[[float, Any], float]] = Registry("schedule")


@SCHEDULES.register("cosine")
def cosine(progress: float, config: Any) -> float:
    return 0.5 * (1 + math.cos(math.pi * progress))


@SCHEDULES.register("step")
def step(progress: float, config: Any) -> float:
    return float(config.decay ** int(progress / config.period + 1e-9))


@SCHEDULES.register("multistep")
def multistep(progress: float, config: Any) -> float:
    return float(config.decay ** bisect_right(sorted(config.milestones), progress))


@SCHEDULES.register("constant")
def constant(progress: float, config: Any) -> float:
    return 1.0


def factor(step: int, steps: int, config: Any) -> float:
    """The factor of step ``step`` of ``steps``, counted from 0: a line up, then the schedule."""
    rise = round(config.warmup * steps)
    if step < rise:
        return (step + 1) / (rise + 1)
    return SCHEDULES[config.schedule]((step - rise) / max(1, steps - rise), config)
