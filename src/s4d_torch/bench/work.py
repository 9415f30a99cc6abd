"""What is measured: each work is a function that yields its records, under its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from s4d_torch._registry import Registry
from s4d_torch.bench import contenders, layers, loading, models, probe
from s4d_torch.bench.contenders import BACKWARD, FORWARD, OURS, STEP, TRAINING
from s4d_torch.bench.measure import Contender, Record, Shape, Stopwatch, threads

Places = tuple[tuple[int, int], ...]  # (batch, length)
Records = Iterator[list[Record]]  # a list for each race


def _doubling(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    lengths = [first]
    while lengths[-1] * factor <= last:
        lengths.append(lengths[-1] * factor)
    return tuple(lengths)


@dataclass(frozen=True)
class Sizes:
    """The sizes of every work; the default ones are those of the targets."""

    d_model: int = 128
    d_state: int = 64
    kernel: Places = ((1, 1024), (1, 4096), (1, 16384))
    ssm: Places = ((8, 16384),)
    sweep: Places = tuple((batch, n) for batch in (1, 16) for n in _doubling(256, 65536))
    layer: Places = ((16, 1024), (16, 4096), (4, 16384))
    dplr: Places = ((4, 4096), (16, 4096))
    train: Places = ((16, 1024),)
    growth: tuple[int, ...] = _doubling(2**14, 2**20)
    memory: Places = ((8, 16384),)
    curve: Places = tuple((1, n) for n in _doubling(256, 2**20, 4))
    fresh_starts: int = 5
    compile: bool = True

    def at(self, lengths: tuple[int, ...], batches: tuple[int, ...]) -> Sizes:
        """These sizes with other lengths and batches, where they are given."""
        changed: dict[str, Any] = {"growth": lengths or self.growth}
        for name in ("kernel", "ssm", "sweep", "layer", "dplr", "train", "memory", "curve"):
            own: Places = getattr(self, name)
            if lengths or batches:
                pairs = product(batches or [b for b, _ in own], lengths or [n for _, n in own])
                changed[name] = tuple(dict.fromkeys(pairs))
        return replace(self, **changed)

    def shape(self, way: str, place: tuple[int, int]) -> Shape:
        return Shape(way, *place, self.d_model, self.d_state)


QUICK = Sizes(
    d_model=8,
    d_state=16,
    kernel=((1, 1024), (1, 16384)),
    ssm=((8, 16384),),
    sweep=((1, 256), (16, 256), (1, 1024)),
    layer=((16, 1024), (4, 16384)),
    dplr=((4, 4096),),
    train=((2, 64),),
    growth=_doubling(2**12, 2**14),
    memory=((8, 16384),),
    curve=((1, 64), (1, 256)),
    fresh_starts=1,
    compile=False,
)

WORKS: Registry[Callable[[Sizes, Stopwatch], Records]] = Registry("work")


def _both_ways(
    work: str, sizes: Sizes, places: Places, watch: Stopwatch, who: Mapping[str, Contender]
) -> Records:
    for place in places:
        for way in (FORWARD, BACKWARD):
            yield watch.race(work, sizes.shape(way, place), who)


@WORKS.register("kernel")
def kernel(sizes: Sizes, watch: Stopwatch) -> Records:
    """The kernel, and the gradients of its parameters."""
    for place in sizes.kernel:
        yield watch.race("kernel", sizes.shape(BACKWARD, place), contenders.kernels())


@WORKS.register("ssm")
def ssm(sizes: Sizes, watch: Stopwatch) -> Records:
    """The linear state space: every engine, forward and forward+backward."""
    yield from _both_ways("ssm", sizes, sizes.ssm, watch, contenders.state_spaces())


@WORKS.register("sweep")
def sweep(sizes: Sizes, watch: Stopwatch) -> Records:
    """The state space with its kernel made anew, against an FFT with a kernel given."""
    yield from _both_ways("sweep", sizes, sizes.sweep, watch, contenders.against_given())


@WORKS.register("layer")
def layer(sizes: Sizes, watch: Stopwatch) -> Records:
    """Whole layers of one width, forward and forward+backward."""
    yield from _both_ways("layer", sizes, sizes.layer, watch, layers.layers())


@WORKS.register("dplr")
def dplr(sizes: Sizes, watch: Stopwatch) -> Records:
    """The layer S4, diagonal plus low-rank."""
    for place in sizes.dplr:
        yield watch.race("dplr", sizes.shape(BACKWARD, place), layers.dplr_layers())


@WORKS.register("train")
def train(sizes: Sizes, watch: Stopwatch) -> Records:
    """A training step of a whole model."""
    for place in sizes.train:
        yield watch.race("train", sizes.shape(TRAINING, place), models.training_steps())


@WORKS.register("loading")
def reading(sizes: Sizes, watch: Stopwatch) -> Records:
    """Reading a batch beside the step that learns from it, for every task whose data is here."""
    for name in loading.tasks_here()[: 1 if not sizes.compile else None]:
        yield watch.race("loading", *loading.readers(name))


@WORKS.register("step")
def step(sizes: Sizes, watch: Stopwatch) -> Records:
    """One sample through a whole model, on one thread."""
    with threads(1):
        yield watch.race("step", sizes.shape(STEP, (1, 1)), models.steps())


@WORKS.register("growth")
def growth(sizes: Sizes, watch: Stopwatch) -> Records:
    """The state space at batch 1, at lengths that double; the lengths take turns."""
    for way in (FORWARD, BACKWARD):
        who = {str(length): contenders.at_length(length) for length in sizes.growth}
        records = watch.race("growth", sizes.shape(way, (1, max(sizes.growth))), who)
        yield [replace(r, contender=OURS, length=int(r.contender)) for r in records]


@WORKS.register("memory")
def memory(sizes: Sizes, watch: Stopwatch) -> Records:
    """Peak memory of the state space, forward+backward."""
    for place in sizes.memory:
        yield _memories("memory", "ssm", sizes.shape(BACKWARD, place), watch)


@WORKS.register("curve")
def curve(sizes: Sizes, watch: Stopwatch) -> Records:
    """Time and peak memory of layers against length, forward+backward; for the picture."""
    for place in sizes.curve:
        shape = sizes.shape(BACKWARD, place)
        timed = watch.race("curve", shape, layers.layers())
        there = {record.contender for record in timed if record.seconds is not None}
        sized = {r.contender: r.bytes for r in _memories("curve", "layer", shape, watch, there)}
        yield [replace(record, bytes=sized.get(record.contender)) for record in timed]


def _memories(
    work: str, group: str, shape: Shape, watch: Stopwatch, names: Iterable[str] | None = None
) -> list[Record]:
    records = []
    for name, contender in probe.groups()[group].items():
        if names is not None and name not in names:
            continue
        size, note = None, f"left out: needs about {contender.memory(shape) / 2**30:.0f} GB"
        if contender.memory(shape) <= watch.budget:
            size, note = probe.peak_memory(group, name, shape)
        place = (shape.way, shape.batch, shape.length)
        records.append(Record(work, name, *place, bytes=size, note=note))
    return records


@WORKS.register("import")
def importing(sizes: Sizes, watch: Stopwatch) -> Records:
    """The time to import this package beyond torch's own, and to compile with no cache."""
    seconds = probe.import_seconds(sizes.fresh_starts)
    yield [Record("import", OURS, "import", 0, 0, seconds, runs=sizes.fresh_starts)]
    if sizes.compile:
        seconds = probe.compile_seconds(sizes.d_model, sizes.d_state)
        yield [Record("import", OURS, "compile", 0, 0, seconds, runs=1)]
