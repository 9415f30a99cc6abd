"""The targets: for each, the ratio that was measured, the bar, the aim, and whether it is met."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from s4d_torch.bench import contenders as who
from s4d_torch.bench.contenders import BACKWARD, FORWARD, LISTING_FFT, OURS, STEP
from s4d_torch.bench.measure import Measurement
from s4d_torch.bench.models import COMPILED, EAGER, LEARN, READ, STREAM

Measurements = Sequence[Measurement]
Found = list[tuple[float, str]]  # values, and where they were measured
Find = Callable[[Measurements, int], Found]  # the int is d_model


@dataclass(frozen=True)
class Target:
    """A value to be at least, or ``at_most``, the bar; better still the aim. None: no bar."""

    name: str
    bar: float | None
    aim: float
    find: Find
    unit: str = "x"
    at_most: bool = False


@dataclass(frozen=True)
class TargetResult:
    """How a target was met; ``where`` is the worst of all places that count for it."""

    name: str
    measured: float | None
    bar: float | None
    aim: float
    unit: str
    at_most: bool
    met: str
    where: str = ""


def judge(records: Measurements, d_model: int) -> list[TargetResult]:
    """A verdict on every target; ``d_model`` gives the size of u for those of memory."""
    return [_judge(target, target.find(records, d_model)) for target in TARGETS]


def _judge(target: Target, found: Found) -> TargetResult:
    sign = -1 if target.at_most else 1
    value, where = min(found, key=lambda pair: sign * pair[0], default=(None, ""))
    if value is None:
        met = "not measured"
    elif sign * value >= sign * target.aim:
        met = "aim"
    else:
        met = "yes" if target.bar is not None and sign * value >= sign * target.bar else "no"
    if len(found) > 1:
        where = f"worst of {len(found)}: {where}"
    bounds = (target.bar, target.aim, target.unit, target.at_most)
    return TargetResult(target.name, value, *bounds, met, where)


def _ratio(work: str, *rivals: str, ours: tuple[str, ...] = (OURS,), **wanted: str | int) -> Find:
    """Time of the fastest rival / the fastest of ours, at every place that is as ``wanted``."""

    def find(records: Measurements, _: int) -> Found:
        places: dict[tuple[str, int, int], dict[str, float]] = {}
        for r in records:
            fits = all(getattr(r, name) == value for name, value in wanted.items())
            if r.work == work and fits and r.seconds is not None:
                places.setdefault((r.way, r.batch, r.length), {})[r.contender] = r.seconds
        found = []
        for (how, b, n), seconds in places.items():
            mine, theirs = (
                [seconds[name] for name in names if name in seconds] for names in (ours, rivals)
            )
            if mine and theirs:
                found.append((min(theirs) / min(mine), f"{how}, batch {b}, L={n}"))
        return found

    return find


def _growth(records: Measurements, _: int) -> Found:
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


def _memory(records: Measurements, d_model: int) -> Found:
    """Peak memory beyond inputs and parameters / size of u in float32."""
    return [
        (r.bytes / (4 * r.batch * r.length * d_model), f"batch {r.batch}, L={r.length}")
        for r in records
        if r.work == "memory" and r.contender == OURS and r.bytes is not None
    ]


def _seconds(work: str, way: str, *names: str, scale: float = 1.0) -> Find:
    """The time of the fastest of ``names``."""

    def find(records: Measurements, _: int) -> Found:
        found = [
            (scale * r.seconds, r.contender)
            for r in records
            if r.work == work and r.contender in names and r.way == way and r.seconds is not None
        ]
        return [min(found)] if found else []

    return find


def _loading(records: Measurements, _: int) -> Found:
    """Reading a batch / the training step that uses it, in per cent, for each task."""
    times = {r.contender: r.seconds for r in records if r.work == "loading" and r.seconds}
    return [
        (100 * seconds / times[f"{task}: {LEARN}"], task)
        for name, seconds in times.items()
        for task, what in [name.split(": ")]
        if what == READ and f"{task}: {LEARN}" in times
    ]


TARGETS = (
    *(
        Target(
            f"kernel forward+backward, L={length}: paper's listing, {form} / ours",
            *(bar, aim, _ratio("kernel", rival, length=length)),
        )
        for length, bar, aim in ((1024, 25, 50), (16384, 80, 200))
        for form, rival in (("as printed", who.POWERS), ("with exp (faster)", who.EXPONENTIALS))
    ),
    *(
        Target(
            f"SSM {way}, batch 8, L=16384: rfft with the kernel given / ours",
            *(bar, aim, _ratio("ssm", who.GIVEN, way=way, batch=8, length=16384)),
        )
        for way, bar, aim in ((FORWARD, 2, 4), (BACKWARD, 1.5, 3))
    ),
    Target(
        "SSM at every L, batch 1 and 16, kernel made anew: rfft with the kernel given / ours",
        *(0.8, 1.3, _ratio("sweep", who.GIVEN)),
    ),
    *(
        Target(
            f"layer forward+backward, batch {batch}, L={length}: paper's listing + FFT / ours",
            *(bar, aim, _ratio("layer", LISTING_FFT, way=BACKWARD, batch=batch, length=length)),
        )
        for batch, length, bar, aim in ((16, 1024, 2.5, 5), (16, 4096, 3, 5), (4, 16384, 6, 12))
    ),
    Target(
        "S4 (DPLR) layer forward+backward, L=4096: materialised Cauchy + FFT / ours",
        *(4, 10, _ratio("dplr", who.CAUCHY, ours=(f"{OURS} S4",), length=4096)),
    ),
    Target("extra peak memory of SSM forward+backward / size of u", 4, 2, _memory, at_most=True),
    Target("growth, batch 1: time(2L) / time(L)", 2.3, 2.05, _growth, at_most=True),
    Target("reading a batch / training step", 5, 5, _loading, " %", at_most=True),
    Target(
        "step of a 6-layer model, batch 1, 1 thread: eager / compiled",
        *(8, 20, _ratio("step", EAGER, ours=(COMPILED, STREAM))),
    ),
    Target(
        "the same, time of a compiled step (16 kHz in real time)",
        *(None, 62.5, _seconds("step", STEP, COMPILED, STREAM, scale=1e6), " us"),
        at_most=True,
    ),
    Target(
        "import of s4d_torch beyond torch's own",
        *(0.5, 0.2, _seconds("import", "import", OURS), " s"),
        at_most=True,
    ),
    Target(
        "first call with no cache: compilation",
        *(15, 15, _seconds("import", "compile", OURS), " s"),
        at_most=True,
    ),
)
