"""The targets: for each, the ratio that was measured, the bar, the aim, and whether it is met."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from s4d_torch.bench import contenders as who
from s4d_torch.bench.contenders import BACKWARD, OURS, STEP, TRAINING
from s4d_torch.bench.fresh_process import EMPTY, FILLED, FIRST_PUSH, IMPORT
from s4d_torch.bench.jax_layers import JAX
from s4d_torch.bench.measure import Case, Measurement
from s4d_torch.bench.models import COMPILED, EAGER, LEARN, READ, SMALL_LSTM, STREAM
from s4d_torch.bench.sizes import DEMO, Shape, Sizes

Measurements = Sequence[Measurement]
Found = list[tuple[float, str]]  # values, and where they were measured
Find = Callable[[Measurements], Found]


@dataclass(frozen=True)
class Target:
    """A value to be at least, or ``at_most``, the bar; better still the aim. None: there is none.

    A target over several places is judged by the worst of them.
    """

    name: str
    bar: float | None
    aim: float | None
    find: Find
    unit: str = "x"
    at_most: bool = False


@dataclass(frozen=True)
class TargetResult:
    """How a target was met; ``where`` is the worst of all places that count for it."""

    name: str
    measured: float | None
    bar: float | None
    aim: float | None
    unit: str
    at_most: bool
    met: str
    where: str = ""


def judge(records: Measurements) -> list[TargetResult]:
    """A verdict on every target."""
    return [_judge(target, target.find(records)) for target in TARGETS]


def _judge(target: Target, found: Found) -> TargetResult:
    sign = -1 if target.at_most else 1
    value, where = min(found, key=lambda pair: sign * pair[0], default=(None, ""))

    def reaches(bound: float | None) -> bool:
        return value is not None and bound is not None and sign * value >= sign * bound

    met = "aim" if reaches(target.aim) else "yes" if reaches(target.bar) else "no"
    if value is None:
        met = "not measured"
    if len(found) > 1:
        where = f"worst of {len(found)}: {where}"
    bounds = (target.bar, target.aim, target.unit, target.at_most)
    return TargetResult(target.name, value, *bounds, met, where)


def place(case: Case) -> str:
    """Where something was measured, in words."""
    return f"{case.way}, batch {case.batch}, L={case.length}"


def ratio(work: str, rival: str, *ours: str, over: bool = False, **wanted: Any) -> Find:
    """Time of the rival / the fastest of ours, or one ``over`` that, at every case as wanted."""

    def find(records: Measurements) -> Found:
        cases: dict[Case, dict[str, float]] = {}
        for r in records:
            fits = all(getattr(r.case, name) == value for name, value in wanted.items())
            if r.work == work and fits and r.seconds is not None:
                cases.setdefault(r.case, {})[r.contender] = r.seconds
        found = []
        for case, seconds in cases.items():
            mine = [seconds[name] for name in ours or (OURS,) if name in seconds]
            if mine and rival in seconds:
                value = seconds[rival] / min(mine)
                found.append((1 / value if over else value, place(case)))
        return found

    return find


def _trained(shape: Shape) -> dict[str, Any]:
    """A training step of this shape, with one thread."""
    return {**shape._asdict(), "way": TRAINING, "threads": 1}


def _named(shape: Shape) -> str:
    layers, d_model, d_state, batch, length = shape
    return f"{layers} x {d_model} x {d_state}, batch {batch}, L={length}"


def _threads(*shapes: Shape) -> Find:
    """Time with one thread / time with all of them."""

    def find(records: Measurements) -> Found:
        times: dict[Shape, dict[int, float]] = {}
        for r in records:
            c = r.case
            shape = Shape(c.layers, c.d_model, c.d_state, c.batch, c.length)
            if r.work == "train" and r.contender == OURS and r.seconds and shape in shapes:
                times.setdefault(shape, {})[c.threads] = r.seconds
        return [
            (seconds[1] / seconds[max(seconds)], _named(shape))
            for shape, seconds in times.items()
            if 1 in seconds and len(seconds) > 1
        ]

    return find


def _growth(records: Measurements) -> Found:
    """time(2L) / time(L) at neighbouring lengths."""
    times = {
        (r.case.way, r.case.length): r.seconds
        for r in records
        if r.work == "growth" and r.seconds is not None
    }
    return [
        (times[way, 2 * length] / seconds, f"{way}, L={length} to {2 * length}")
        for (way, length), seconds in times.items()
        if (way, 2 * length) in times
    ]


def _irregular_memory(records: Measurements) -> Found:
    """Peak memory beyond inputs and parameters / size of u in float32."""
    ours = (who.FEW_GAPS, who.ANY_GAPS)
    return [
        (r.bytes / r.case.input_bytes, r.contender)
        for r in records
        if r.work == "gaps" and r.contender in ours and r.bytes and r.case.way == BACKWARD
    ]


def memory(name: str = OURS) -> Find:
    """Peak memory beyond inputs and parameters / size of u in float32."""

    def find(records: Measurements) -> Found:
        return [
            (r.bytes / r.case.input_bytes, f"batch {r.case.batch}, L={r.case.length}")
            for r in records
            if r.work == "memory" and r.contender == name and r.bytes is not None
        ]

    return find


def seconds(work: str, way: str, *names: str, scale: float = 1.0) -> Find:
    """The time of the fastest of ``names``."""

    def find(records: Measurements) -> Found:
        found = [
            (scale * r.seconds, r.contender)
            for r in records
            if r.work == work
            and r.contender in names
            and r.case.way == way
            and r.seconds is not None
        ]
        return [min(found)] if found else []

    return find


def compilation(way: str) -> Find:
    """How much longer a first use takes where nothing is compiled than where all is."""

    def find(records: Measurements) -> Found:
        empty, filled = (seconds("import", way, name)(records) for name in (EMPTY, FILLED))
        return [(empty[0][0] - filled[0][0], way)] if empty and filled else []

    return find


def _loading(records: Measurements) -> Found:
    """Reading a batch / the training step that uses it, in per cent, for each task."""
    times = {r.contender: r.seconds for r in records if r.work == "loading" and r.seconds}
    return [
        (100 * spent / times[f"{task}: {LEARN}"], task)
        for name, spent in times.items()
        for task, what in [name.split(": ")]
        if what == READ and f"{task}: {LEARN}" in times
    ]


_, *_LARGER = Sizes().train
_SMALL = (DEMO, _LARGER[0])

TARGETS = (
    Target(
        f"training step {_named(DEMO)}: ours / LSTM of as many parameters",
        *(1.3, 0.8, ratio("train", SMALL_LSTM, over=True, **_trained(DEMO))),
        at_most=True,
    ),
    *(
        Target(
            f"training step {_named(shape)}: official layer / ours",
            *(bar, aim, ratio("train", who.OFFICIAL, **_trained(shape))),
        )
        for shape, bar, aim in zip(_LARGER, (3.2, 1.9, 2.6), (4.5, 2.5, 3.2), strict=True)
    ),
    Target(
        "layer forward+backward, batch 16, L=4096: official layer / ours",
        *(2.2, 3, ratio("layer", who.OFFICIAL, way=BACKWARD, batch=16, length=4096)),
    ),
    Target(
        "SSM forward+backward at every L, kernel included: rfft with the kernel given / ours",
        *(0.9, 1.2, ratio("sweep", who.GIVEN, way=BACKWARD)),
    ),
    Target(
        "four layers forward+backward, all cores: JAX / ours",
        *(1.8, 2.5, ratio("jax", JAX, way=BACKWARD)),
    ),
    Target(
        "S4 (DPLR) layer forward+backward, L=1024 and 4096: materialised Cauchy + FFT / ours",
        *(4, 8, ratio("dplr", who.CAUCHY, f"{OURS} S4")),
    ),
    Target("threads, small training steps: time with 1 / with all", 1, None, _threads(*_SMALL)),
    Target(
        "threads, training steps of L=1024: time with 1 / with all",
        *(1.7, None, _threads(*_LARGER[1:])),
    ),
    *(
        Target(
            f"kernel forward+backward, L={length}: paper's listing, {form} / ours",
            *(bar, aim, ratio("kernel", rival, length=length)),
        )
        for length, bar, aim in ((1024, 25, 50), (16384, 80, 200))
        for form, rival in (("as printed", who.POWERS), ("with exp (faster)", who.EXPONENTIALS))
    ),
    Target("extra peak memory of SSM forward+backward / size of u", 4, 2, memory(), at_most=True),
    Target(
        "samples not evenly spaced, 64 different gaps: time / evenly spaced",
        *(4, None, ratio("gaps", who.FEW_GAPS)),
        at_most=True,
    ),
    Target(
        "samples not evenly spaced, all gaps different: time / evenly spaced",
        *(15, None, ratio("gaps", who.ANY_GAPS)),
        at_most=True,
    ),
    Target(
        "samples not evenly spaced: extra peak memory of forward+backward / size of u",
        *(4, None, _irregular_memory),
        at_most=True,
    ),
    Target("growth, batch 1: time(2L) / time(L)", 2.3, 2.05, _growth, at_most=True),
    Target(
        "step of a 6-layer model, batch 1: eager / compiled",
        *(8, 20, ratio("step", EAGER, COMPILED, STREAM)),
    ),
    Target(
        "the same, time of a compiled step (16 kHz in real time)",
        *(None, 62.5, seconds("step", STEP, COMPILED, STREAM, scale=1e6), " us"),
        at_most=True,
    ),
    Target("reading a batch / training step", 5, None, _loading, " %", at_most=True),
    Target(
        "import of s4d_torch beyond torch's own",
        *(0.5, 0.2, seconds("import", IMPORT, OURS), " s"),
        at_most=True,
    ),
    *(
        Target(
            f"first use with an empty cache, {what}: compilation",
            *(bar, None, compilation(way), " s"),
            at_most=True,
        )
        for what, way, bar in (
            ("the demo's training step", TRAINING, 6),
            ("compile_step", FIRST_PUSH, 8),
        )
    ),
)
