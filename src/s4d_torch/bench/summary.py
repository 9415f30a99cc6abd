"""The five numbers a reader wants first, each with the command that measures it."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from s4d_torch.bench import goals
from s4d_torch.bench.contenders import BACKWARD, GIVEN, OFFICIAL, STEP, TRAINING
from s4d_torch.bench.fresh_process import FIRST_PUSH
from s4d_torch.bench.measure import Measurement
from s4d_torch.bench.models import COMPILED, EAGER, STREAM

NOT_YET = "not measured yet"


class Headline(NamedTuple):
    """What it is about, what was measured, and the work that measures it."""

    about: str
    measured: str
    work: str


def headlines(records: Sequence[Measurement]) -> list[Headline]:
    return [
        Headline(
            "A whole training step, beside the official minimal S4D layer in the same model",
            _training(records),
            "train",
        ),
        Headline(
            "A state space forward and backward, beside an FFT that is given its kernel",
            _sweep(records),
            "sweep",
        ),
        Headline("One live sample through six layers", _live(records), "step"),
        Headline("Memory that training adds for a state space", _memory(records), "memory"),
        Headline("The first use compiles, once on a machine", _first_use(records), "import"),
    ]


def _training(records: Sequence[Measurement]) -> str:
    found = [value for value, _ in goals.ratio("train", OFFICIAL, way=TRAINING, threads=1)(records)]
    if not found:
        return NOT_YET
    return f"{min(found):.2g} to {max(found):.2g} times as fast, at {len(found)} sizes"


def _sweep(records: Sequence[Measurement]) -> str:
    found = [value for value, _ in goals.ratio("sweep", GIVEN, way=BACKWARD)(records)]
    if not found:
        return NOT_YET
    middle = statistics.median(found)
    return (
        f"{middle:.2g} times as fast in the middle of {len(found)} lengths and batches, "
        f"{min(found):.2g} at worst, {max(found):.2g} at best"
    )


def _live(records: Sequence[Measurement]) -> str:
    time = goals.seconds("step", STEP, COMPILED, STREAM, scale=1e6)(records)
    ratio = goals.ratio("step", EAGER, COMPILED, STREAM)(records)
    if not time or not ratio:
        return NOT_YET
    return f"{time[0][0]:.3g} us, {ratio[0][0]:.2g} times as fast as in plain torch"


def _memory(records: Sequence[Measurement]) -> str:
    ours, theirs = (goals.memory(*name)(records) for name in ((), (GIVEN,)))
    if not ours:
        return NOT_YET
    beside = f"; an FFT with a given kernel {theirs[0][0]:.2g} times" if theirs else ""
    return f"{ours[0][0]:.2g} times the size of its input{beside}"


def _first_use(records: Sequence[Measurement]) -> str:
    found = [goals.compilation(way)(records) for way in (TRAINING, FIRST_PUSH)]
    if not all(found):
        return NOT_YET
    training, step = (each[0][0] for each in found)
    return f"{training:.2g} s for a training step, {step:.2g} s for `compile_step`"
