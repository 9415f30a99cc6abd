"""The targets: for each, the ratio that was measured, the bar, the aim, and whether it is met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from s4d_torch.bench.contenders import (
    BACKWARD,
    EXPONENTIALS,
    FORWARD,
    GIVEN,
    LISTING_FFT,
    OURS,
    POWERS,
    STEP,
)
from s4d_torch.bench.layers import CAUCHY
from s4d_torch.bench.loading import READ
from s4d_torch.bench.loading import STEP as USE
from s4d_torch.bench.measure import Record
from s4d_torch.bench.models import COMPILED, EAGER, STREAM

Found = list[tuple[float, str]]  # a value and where it was measured


@dataclass(frozen=True)
class Target:
    """A value to be at least, or ``at_most``, the bar; better still the aim. None: no bar."""

    name: str
    bar: float | None
    aim: float
    find: Callable[[Sequence[Record], int], Found]
    unit: str = "x"
    at_most: bool = False


@dataclass(frozen=True)
class Verdict:
    """How a target was met; ``where`` is the worst of all places that count for it."""

    name: str
    measured: float | None
    bar: float | None
    aim: float
    unit: str
    at_most: bool
    met: str
    where: str = ""


def judge(records: Sequence[Record], d_model: int) -> list[Verdict]:
    """A verdict on every target; ``d_model`` gives the size of u for those of memory."""
    return [_judge(target, target.find(records, d_model)) for target in TARGETS]


def _judge(target: Target, found: Found) -> Verdict:
    unmeasured = Verdict(
        *(target.name, None, target.bar, target.aim, target.unit, target.at_most, "not measured")
    )
    if not found:
        return unmeasured
    sign = -1 if target.at_most else 1
    value, where = min(found, key=lambda pair: sign * pair[0])
    if sign * value >= sign * target.aim:
        met = "aim"
    elif target.bar is None:
        met = "no"
    else:
        met = "yes" if sign * value >= sign * target.bar else "no"
    if len(found) > 1:
        where = f"worst of {len(found)}: {where}"
    common = (target.bar, target.aim, target.unit, target.at_most, met, where)
    return Verdict(target.name, value, *common)


# -- how values are found --------------------------------------------------------------------------


def _ratio(
    work: str,
    rivals: tuple[str, ...],
    *,
    ours: tuple[str, ...] = (OURS,),
    way: str | None = None,
    batch: int | None = None,
    length: int | None = None,
) -> Callable[[Sequence[Record], int], Found]:
    """Time of the fastest rival / the fastest of ours, at every place that fits."""

    def find(records: Sequence[Record], _: int) -> Found:
        places: dict[tuple[str, int, int], dict[str, float]] = {}
        for r in records:
            fits = way in (None, r.way) and batch in (None, r.batch) and length in (None, r.length)
            if r.work == work and fits and r.seconds is not None:
                places.setdefault((r.way, r.batch, r.length), {})[r.contender] = r.seconds
        found = []
        for (how, b, n), seconds in places.items():
            own, others = (
                [seconds[name] for name in names if name in seconds] for names in (ours, rivals)
            )
            if own and others:
                found.append((min(others) / min(own), f"{how}, batch {b}, L={n}"))
        return found

    return find


def _growth(records: Sequence[Record], _: int) -> Found:
    """time(2L) / time(L) at neighbouring lengths."""
    times = {
        (r.way, r.length): r.seconds
        for r in records
        if r.work == "growth" and r.seconds is not None and r.contender == OURS
    }
    return [
        (times[way, 2 * length] / seconds, f"{way}, L={length} to {2 * length}")
        for (way, length), seconds in times.items()
        if (way, 2 * length) in times
    ]


def _memory(records: Sequence[Record], d_model: int) -> Found:
    """Peak memory beyond inputs and parameters / size of u in float32."""
    return [
        (r.bytes / (4 * r.batch * r.length * d_model), f"batch {r.batch}, L={r.length}")
        for r in records
        if r.work == "memory" and r.contender == OURS and r.bytes is not None
    ]


def _seconds(
    work: str, names: tuple[str, ...], way: str, scale: float = 1.0
) -> Callable[[Sequence[Record], int], Found]:
    """The time of the fastest of ``names``."""

    def find(records: Sequence[Record], _: int) -> Found:
        found = [
            (scale * r.seconds, r.contender)
            for r in records
            if r.work == work and r.contender in names and r.way == way and r.seconds is not None
        ]
        return [min(found)] if found else []

    return find


def _loading(records: Sequence[Record], _: int) -> Found:
    """Reading a batch / the training step that uses it, in per cent, for each task."""
    times = {r.contender: r.seconds for r in records if r.work == "loading" and r.seconds}
    return [
        (100 * seconds / times[f"{task}: {USE}"], task)
        for name, seconds in times.items()
        for task, what in [name.split(": ")]
        if what == READ and f"{task}: {USE}" in times
    ]


TARGETS = (
    *(
        Target(
            f"kernel forward+backward, L={length}: paper's listing, {form} / ours",
            bar,
            aim,
            _ratio("kernel", (rival,), length=length),
        )
        for length, bar, aim in ((1024, 25, 50), (16384, 80, 200))
        for form, rival in (("as printed", POWERS), ("with exp (faster)", EXPONENTIALS))
    ),
    *(
        Target(
            f"SSM {way}, batch 8, L=16384: rfft with the kernel given / ours",
            bar,
            aim,
            _ratio("ssm", (GIVEN,), way=way, batch=8, length=16384),
        )
        for way, bar, aim in ((FORWARD, 2, 4), (BACKWARD, 1.5, 3))
    ),
    Target(
        "SSM at every L, batch 1 and 16, kernel made anew: rfft with the kernel given / ours",
        0.8,
        1.3,
        _ratio("sweep", (GIVEN,)),
    ),
    *(
        Target(
            f"layer forward+backward, batch {batch}, L={length}: paper's listing + FFT / ours",
            bar,
            aim,
            _ratio("layer", (LISTING_FFT,), way=BACKWARD, batch=batch, length=length),
        )
        for batch, length, bar, aim in ((16, 1024, 2.5, 5), (16, 4096, 3, 5), (4, 16384, 6, 12))
    ),
    Target(
        "S4 (DPLR) layer forward+backward, L=4096: materialised Cauchy + FFT / ours",
        4,
        10,
        _ratio("dplr", (CAUCHY,), ours=(f"{OURS} S4",), length=4096),
    ),
    Target("extra peak memory of SSM forward+backward / size of u", 4, 2, _memory, at_most=True),
    Target("growth, batch 1: time(2L) / time(L)", 2.3, 2.05, _growth, at_most=True),
    Target("reading a batch / training step", 5, 5, _loading, unit=" %", at_most=True),
    Target(
        "step of a 6-layer model, batch 1, 1 thread: eager / compiled",
        8,
        20,
        _ratio("step", (EAGER,), ours=(COMPILED, STREAM)),
    ),
    Target(
        "the same, time of a compiled step (16 kHz in real time)",
        None,
        62.5,
        _seconds("step", (COMPILED, STREAM), STEP, 1e6),
        unit=" us",
        at_most=True,
    ),
    Target(
        "import of s4d_torch beyond torch's own",
        0.5,
        0.2,
        _seconds("import", (OURS,), "import"),
        unit=" s",
        at_most=True,
    ),
    Target(
        "first call with no cache: compilation",
        15,
        15,
        _seconds("import", (OURS,), "compile"),
        unit=" s",
        at_most=True,
    ),
)
