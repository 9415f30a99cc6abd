"""What is measured: each work yields its measurements, a list for each race, under its name."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from s4d_torch._registry import Registry
from s4d_torch.bench import contenders, fresh_process, jax_layers, models
from s4d_torch.bench.contenders import BACKWARD, FORWARD, OURS, STEP, TRAINING
from s4d_torch.bench.device import free_memory
from s4d_torch.bench.fresh_process import EMPTY, FILLED, IMPORT
from s4d_torch.bench.machine_facts import machine
from s4d_torch.bench.measure import Case, Contender, Entrant, Measurement, Stopwatch
from s4d_torch.bench.report import BenchReport
from s4d_torch.bench.sizes import DEMO, Sizes
from s4d_torch.training.run import keep_freed_memory

Races = Iterator[list[Measurement]]


@dataclass(frozen=True)
class Work:
    """``run`` measures; ``cpu_only`` says why that makes sense on a processor alone."""

    title: str
    run: Callable[[Sizes, Stopwatch], Races]
    cpu_only: str = ""


WORKS: Registry[Work] = Registry("work")


def run_works(
    names: Sequence[str],
    sizes: Sizes,
    *,
    quick: bool = False,
    repeats: int = 5,
    keep_memory: bool = True,
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
    facts = {**machine(sizes.device, sizes.threads), "keeps_freed_memory": kept}
    found = BenchReport(command, facts, settings)
    watch = Stopwatch(repeats, budget=0.6 * free_memory(sizes.device))
    if quick:
        watch.longest, watch.patience = 0.05, 0.02
    for name in names:
        work = WORKS[name]
        if work.cpu_only and sizes.device != "cpu":
            found.notes.append(f"'{name}' was left out on {sizes.device}: {work.cpu_only}.")
            continue
        for race in work.run(sizes, watch):
            found.records += race
            tell(race)
            if out is not None:
                found.save(out)  # should the rest be interrupted
    return found


def _work(name: str, title: str, cpu_only: str = "") -> Callable[..., Callable[..., Races]]:
    """Register a function under a name."""

    def register(run: Callable[[Sizes, Stopwatch], Races]) -> Callable[[Sizes, Stopwatch], Races]:
        WORKS.register(name, Work(title, run, cpu_only))
        return run

    return register


def _entrants(who: dict[str, Contender], *cases: Case) -> list[Entrant]:
    return [Entrant(name, each, case) for case in cases for name, each in who.items()]


def _races(
    name: str, title: str, ways: tuple[str, ...], who: Callable[[], dict[str, Contender]]
) -> None:
    """Register a work that is one race for each place of its sizes, and each way."""

    def run(sizes: Sizes, watch: Stopwatch) -> Races:
        for place, way in product(getattr(sizes, name), ways):
            yield watch.race(name, _entrants(who(), sizes.case(way, place)))

    WORKS.register(name, Work(title, run))


@_work("train", "training step of a whole model")
def training(sizes: Sizes, watch: Stopwatch) -> Races:
    """Whole training steps, each size with one thread and with all; these take turns as well."""
    for shape in sizes.train:
        one, *more = (shape.case(TRAINING, n, sizes.device) for n in sizes.one_and_all)
        large = one.d_model >= sizes.d_model  # there is time for all layers at one size
        race = _entrants(models.training_steps(all_layers=large), one)
        yield watch.race("train", race + _entrants(models.training_steps(), *more))


_races(
    "sweep",
    "state space, kernel made anew, against an FFT with a kernel given",
    (BACKWARD, FORWARD),
    contenders.against_given,
)
_races("layer", "layer", (FORWARD, BACKWARD), contenders.layers)
_races("dplr", "S4 (DPLR) layer", (BACKWARD,), lambda: contenders.layers(contenders.DPLR_LAYERS))
_races("kernel", "kernel", (BACKWARD,), contenders.kernels)
_races("ssm", "state space", (FORWARD, BACKWARD), contenders.state_spaces)


@_work("step", "one sample through a whole model", "compiled steps are machine code of the CPU")
def step(sizes: Sizes, watch: Stopwatch) -> Races:
    """One sample through a whole model."""
    case = sizes.case(STEP, (1, 1), layers=sizes.stepped_layers)
    yield watch.race("step", _entrants(models.steps(), case))


@_work("growth", "state space, growth with length")
def growth(sizes: Sizes, watch: Stopwatch) -> Races:
    """The state space at batch 1, at lengths that double; the lengths take turns."""
    who = {OURS: contenders.state_spaces()[OURS]}
    for way in (FORWARD, BACKWARD):
        yield watch.race("growth", _entrants(who, *(sizes.case(way, (1, n)) for n in sizes.growth)))


@_work("memory", "state space, peak memory beyond inputs and parameters")
def memory(sizes: Sizes, watch: Stopwatch) -> Races:
    """Peak memory of the state space, forward+backward."""
    for place in sizes.memory:
        yield _memories("memory", "ssm", sizes.case(BACKWARD, place), watch)


@_work("gaps", "state space, samples not evenly spaced")
def gaps(sizes: Sizes, watch: Stopwatch) -> Races:
    """Time and peak memory over samples that are not evenly spaced."""
    for place, way in product(sizes.gaps, (FORWARD, BACKWARD)):
        case = sizes.case(way, place)
        timed = watch.race("gaps", _entrants(contenders.irregular(), case))
        there = {each.contender for each in timed if each.seconds is not None}
        sized = {m.contender: m.bytes for m in _memories("gaps", "gaps", case, watch, there)}
        yield [replace(each, bytes=sized.get(each.contender)) for each in timed]


@_work("import", "in a fresh process", "imports and compiled code are the CPU's business")
def importing(sizes: Sizes, watch: Stopwatch) -> Races:
    """The time to import this package beyond torch's own, and of a first use."""
    nothing = Case(IMPORT, 0, 0, 0, 0)
    seconds = fresh_process.import_seconds(sizes.fresh_starts)
    yield [Measurement("import", OURS, nothing, seconds, runs=sizes.fresh_starts)]
    for way in fresh_process.FIRST_USES if sizes.first_uses else ():
        case = DEMO._replace(batch=DEMO.batch if way == TRAINING else 1).case(way, threads=1)
        found = zip((EMPTY, FILLED), fresh_process.first_use_seconds(case), strict=True)
        yield [Measurement("import", name, case, seconds, runs=1) for name, seconds in found]


@_work("loading", "reading a batch, and learning from it", "files are read by the CPU")
def loading(sizes: Sizes, watch: Stopwatch) -> Races:
    """Reading a batch beside the step that learns from it, for every task whose data is here."""
    for name in models.tasks_here()[: None if sizes.all_tasks else 1]:
        case, who = models.readers(name, sizes.threads)
        yield watch.race("loading", _entrants(who, case))


@_work("curve", "layer against length")
def curve(sizes: Sizes, watch: Stopwatch) -> Races:
    """Time and peak memory of layers against length, forward+backward; for the picture."""
    for place in sizes.curve:
        case = sizes.case(BACKWARD, place)
        timed = watch.race("curve", _entrants(contenders.layers(contenders.CURVE_LAYERS), case))
        there = {each.contender for each in timed if each.seconds is not None}
        sized = {m.contender: m.bytes for m in _memories("curve", "layer", case, watch, there)}
        yield [replace(each, bytes=sized.get(each.contender)) for each in timed]


@_work("jax", "layers one after the other, all cores", "JAX is compared on the CPU")
def jax(sizes: Sizes, watch: Stopwatch) -> Races:
    """Ours and the same layers in JAX; late, since its threads stay."""
    for place, way in product(sizes.jax, (FORWARD, BACKWARD)):
        case = sizes.case(way, place, layers=sizes.jax_layers, threads=sizes.threads)
        yield watch.race("jax", _entrants(jax_layers.contenders(), case))


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
        found.append(Measurement(work, name, case, bytes=size, note=note))
    return found
