"""How large the works are: by default as the targets say, or very small."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from s4d_torch.bench.measure import Case

Places = tuple[tuple[int, int], ...]  # (batch, length)


class Shape(NamedTuple):
    """A model, and what it learns from at once."""

    layers: int
    d_model: int
    d_state: int
    batch: int
    length: int

    def case(self, way: str, threads: int, device: str = "cpu") -> Case:
        sizes = (self.batch, self.length, self.d_model, self.d_state, self.layers)
        return Case(way, *sizes, threads, device)


DEMO = Shape(4, 32, 32, 32, 64)  # the models of `s4d demo`


def _powers(first: int, last: int, step: int = 1) -> tuple[int, ...]:
    """2^first to 2^last."""
    return tuple(2**power for power in range(first, last + 1, step))


@dataclass(frozen=True)
class Sizes:
    """The sizes of every work, and where they run; the default ones are those of the targets.

    ``threads`` are all there are: most works take one. ``layers`` is for what is stacked.
    """

    d_model: int = 128
    d_state: int = 64
    kernel: Places = ((1, 1024), (1, 4096), (1, 16384))
    ssm: Places = ((8, 16384),)
    sweep: Places = tuple((batch, n) for batch in (1, 16) for n in _powers(8, 16))
    layer: Places = ((16, 1024), (16, 4096))
    dplr: Places = ((4, 1024), (16, 1024), (4, 4096), (16, 4096))
    train: tuple[Shape, ...] = (
        DEMO,
        Shape(3, 64, 32, 8, 256),
        Shape(4, 64, 32, 32, 1024),
        Shape(4, 128, 64, 16, 1024),
    )
    jax: Places = ((16, 256), (16, 1024), (16, 4096), (4, 16384))
    jax_layers: int = 4
    stepped_layers: int = 6
    growth: tuple[int, ...] = _powers(14, 20)
    memory: Places = ((8, 16384),)
    gaps: Places = ((8, 16384),)
    curve: Places = tuple((1, n) for n in _powers(8, 20, 2))
    fresh_starts: int = 5
    first_uses: bool = True
    all_tasks: bool = True
    threads: int = 1
    device: str = "cpu"

    def at(self, lengths: tuple[int, ...], batches: tuple[int, ...]) -> "Sizes":
        """These sizes with other lengths and batches, where they are given."""
        if not lengths and not batches:
            return self
        changed: dict[str, Any] = {"growth": lengths or self.growth}
        for name in ("kernel", "ssm", "sweep", "layer", "dplr", "jax", "memory", "gaps", "curve"):
            own: Places = getattr(self, name)
            pairs = product(batches or [b for b, _ in own], lengths or [n for _, n in own])
            changed[name] = tuple(dict.fromkeys(pairs))
        shapes = (
            shape._replace(batch=batch, length=length)
            for shape in self.train
            for batch, length in product(batches or [shape.batch], lengths or [shape.length])
        )
        return replace(self, train=tuple(dict.fromkeys(shapes)), **changed)

    def case(self, way: str, place: tuple[int, int], *, layers: int = 1, threads: int = 1) -> Case:
        """One thread, unless there is something else to wait for than the processor."""
        threads = threads if self.device == "cpu" else self.threads
        return Case(way, *place, self.d_model, self.d_state, layers, threads, self.device)

    @property
    def one_and_all(self) -> tuple[int, ...]:
        """Numbers of threads to compare."""
        return tuple(sorted({1 if self.device == "cpu" else self.threads, self.threads}))


QUICK = Sizes(
    d_model=8,
    d_state=16,
    kernel=((1, 1024), (1, 16384)),
    ssm=((8, 16384),),
    sweep=((1, 256), (16, 256), (1, 1024)),
    layer=((16, 1024), (16, 4096)),
    dplr=((4, 1024), (4, 4096)),
    train=(Shape(1, 8, 16, 2, 64), Shape(2, 8, 16, 2, 32)),
    jax=((2, 64),),
    jax_layers=2,
    growth=_powers(12, 14),
    memory=((8, 16384),),
    gaps=((2, 256),),
    curve=((1, 64), (1, 256)),
    fresh_starts=1,
    first_uses=False,
    all_tasks=False,
)
