"""What is measured: each work yields its measurements, a list for each race, under its name."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from s4d_torch._registry import Registry
from s4d_torch.bench import contenders, fresh_process, models
from s4d_torch.bench.contenders import BACKWARD, FORWARD, OURS, STEP, TRAINING
from s4d_torch.bench.machine_facts import machine
from s4d_torch.bench.measure import Case, Contender, Measurement, Stopwatch, threads
from s4d_torch.bench.report import BenchReport
from s4d_torch.training.run import keep_freed_memory

Places = tuple[tuple[int, int], ...]  # (batch, length)
Races = Iterator[list[Measurement]]


def _powers(first: int, last: int, step: int = 1) -> tuple[int, ...]:
    """2^first to 2^last."""
    return tuple(2**power for power in range(first, last + 1, step))


@dataclass(frozen=True)
class Sizes:
    """The sizes of every work; the default ones are those of the targets."""

    d_model: int = 128
    d_state: int = 64
    kernel: Places = ((1, 1024), (1, 4096), (1, 16384))
    ssm: Places = ((8, 16384),)
    sweep: Places = tuple((batch, n) for batch in (1, 16) for n in _powers(8, 16))
    layer: Places = ((16, 1024), (16, 4096), (4, 16384))
    dplr: Places = ((4, 4096), (16, 4096))
    train: Places = ((16, 1024),)
    growth: tuple[int, ...] = _powers(14, 20)
    memory: Places = ((8, 16384),)
    curve: Places = tuple((1, n) for n in _powers(8, 20, 2))
    fresh_starts: int = 5
    compile: bool = True

    def at(self, lengths: tuple[int, ...], batches: tuple[int, ...]) -> "Sizes":
        """These sizes with other lengths and batches, where they are given."""
        changed: dict[str, Any] = {"growth": lengths or self.growth}
        for name in ("kernel", "ssm", "sweep", "layer", "dplr", "train", "memory", "curve"):
            own: Places = getattr(self, name)
            if lengths or batches:
                pairs = product(batches or [b for b, _ in own], lengths or [n for _, n in own])
                changed[name] = tuple(dict.fromkeys(pairs))
        return replace(self, **changed)

    def case(self, way: str, place: tuple[int, int]) -> Case:
        return Case(way, *place, self.d_model, self.d_state)


QUICK = Sizes(
    d_model=8,
    d_state=16,
    kernel=((1, 1024), (1, 16384)),
    ssm=((8, 16384),),
    sweep=((1, 256), (16, 256), (1, 1024)),
    layer=((16, 1024), (4, 16384)),
    dplr=((4, 4096),),
    train=((2, 64),),
    growth=_powers(12, 14),
    memory=((8, 16384),),
    curve=((1, 64), (1, 256)),
    fresh_starts=1,
    compile=False,
)

WORKS: Registry[Callable[[Sizes, Stopwatch], Races]] = Registry("work")


def run_works(
    names: Sequence[str],
    sizes: Sizes,
    *,
    quick: bool = False,
    repeats: int = 5,
    keep_memory: bool = False,
    command: str = "",
    out: Path | None = None,
    tell: Callable[[list[Measurement]], None] = lambda race: None,
) -> BenchReport:
    """Measure works one after the other; each race is told, and saved at once into ``out``.

    ``quick`` gives up early on what is slow. With ``keep_memory`` freed memory stays in the
    process, as in training.
    """
    settings = {**asdict(sizes), "quick": quick, "repeats": repeats}
    kept = keep_memory and keep_freed_memory()
    found = BenchReport(command, {**machine(), "keeps_freed_memory": kept}, settings)
    limit = 0.05 if quick else 30.0
    watch = Stopwatch(repeats, longest=limit, patience=limit / 3)
    for name in names:
        for race in WORKS[name](sizes, watch):
            found.records += race
            tell(race)
            if out is not None:
                found.save(out)  # should the rest be interrupted
    return found


def _races(name: str, ways: tuple[str, ...], who: Callable[[], dict[str, Contender]]) -> None:
    """Register a work that is one race for each place of its sizes, and each way."""

    def work(sizes: Sizes, watch: Stopwatch) -> Races:
        for place, way in product(getattr(sizes, name), ways):
            yield watch.race(name, sizes.case(way, place), who())

    WORKS.register(name, work)


_races("kernel", (BACKWARD,), contenders.kernels)
_races("ssm", (FORWARD, BACKWARD), contenders.state_spaces)
_races("sweep", (FORWARD, BACKWARD), contenders.against_given)
_races("layer", (FORWARD, BACKWARD), contenders.layers)
_races("dplr", (BACKWARD,), lambda: contenders.layers(contenders.DPLR_LAYERS))
_races("train", (TRAINING,), models.training_steps)


@WORKS.register("loading")
def reading(sizes: Sizes, watch: Stopwatch) -> Races:
    """Reading a batch beside the step that learns from it, for every task whose data is here."""
    for name in models.tasks_here()[: None if sizes.compile else 1]:
        yield watch.race("loading", *models.readers(name))


@WORKS.register("step")
def step(sizes: Sizes, watch: Stopwatch) -> Races:
    """One sample through a whole model, on one thread."""
    with threads(1):
        yield watch.race("step", sizes.case(STEP, (1, 1)), models.steps())


@WORKS.register("growth")
def growth(sizes: Sizes, watch: Stopwatch) -> Races:
    """The state space at batch 1, at lengths that double; the lengths take turns."""
    for way in (FORWARD, BACKWARD):
        who = {str(length): contenders.at_length(length) for length in sizes.growth}
        race = watch.race("growth", sizes.case(way, (1, max(sizes.growth))), who)
        yield [replace(each, contender=OURS, length=int(each.contender)) for each in race]


@WORKS.register("memory")
def memory(sizes: Sizes, watch: Stopwatch) -> Races:
    """Peak memory of the state space, forward+backward."""
    for place in sizes.memory:
        yield _memories("memory", "ssm", sizes.case(BACKWARD, place), watch)


@WORKS.register("curve")
def curve(sizes: Sizes, watch: Stopwatch) -> Races:
    """Time and peak memory of layers against length, forward+backward; for the picture."""
    for place in sizes.curve:
        case = sizes.case(BACKWARD, place)
        timed = watch.race("curve", case, contenders.layers())
        there = {each.contender for each in timed if each.seconds is not None}
        sized = {m.contender: m.bytes for m in _memories("curve", "layer", case, watch, there)}
        yield [replace(each, bytes=sized.get(each.contender)) for each in timed]


def _memories(
    work: str, group: str, case: Case, watch: Stopwatch, names: Iterable[str] | None = None
) -> list[Measurement]:
    found = []
    for name, contender in fresh_process.groups()[group].items():
        if names is not None and name not in names:
            continue
        size, note = None, f"left out: needs about {contender.memory(case) / 2**30:.0f} GB"
        if contender.memory(case) <= watch.budget:
            size, note = fresh_process.peak_memory(group, name, case)
        place = (case.way, case.batch, case.length)
        found.append(Measurement(work, name, *place, bytes=size, note=note))
    return found


@WORKS.register("import")
def importing(sizes: Sizes, watch: Stopwatch) -> Races:
    """The time to import this package beyond torch's own, and to compile with no cache."""
    seconds = fresh_process.import_seconds(sizes.fresh_starts)
    yield [Measurement("import", OURS, "import", 0, 0, seconds, runs=sizes.fresh_starts)]
    if sizes.compile:
        seconds = fresh_process.compile_seconds(sizes.d_model, sizes.d_state)
        yield [Measurement("import", OURS, "compile", 0, 0, seconds, runs=1)]
