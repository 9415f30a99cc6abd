"""A task: where its data comes from, how it is read, how it is judged, what the paper reports."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar, get_args

from s4d_torch._registry import Registry, unknown
from s4d_torch.data.dataset import Array, Dataset
from s4d_torch.data.folder import DataFolder, Source

Options = TypeVar("Options")


@dataclass(frozen=True)
class Hyperparameters:
    """A model and its training: one row of the paper's table, or a smaller setting.

    What is not named is as most tasks have it on a laptop.
    """

    n_layers: int = 4
    d_model: int = 64
    d_state: int = 32
    norm: Literal["batch", "layer"] = "layer"
    prenorm: bool = True
    dropout: float = 0.1
    lr: float = 0.005
    batch_size: int = 32
    epochs: int | Literal["auto"] = 10
    weight_decay: float = 0.05
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    bidirectional: bool = True
    pooling: Literal["mean", "last", "none"] = "mean"
    schedule: str = "cosine"
    decay: float = 0.1
    period: float = 0.3


# What most tasks start from; each changes what it has to.
LAPTOP = Hyperparameters()
ARENA = replace(  # "almost all tasks" of the paper's Long Range Arena
    LAPTOP,
    n_layers=6,
    d_model=256,
    d_state=64,
    norm="batch",
    dropout=0.0,
    lr=0.01,
    batch_size=50,
    epochs=40,
)


@dataclass(frozen=True)
class Image:
    """The picture that a sequence is read from: ``side`` x ``side`` pixels, 0 to ``brightest``.

    What was drawn fills the part ``box`` of the side. ``order`` has the pixel of each sample, rows
    running slowest; without it they are read row by row.
    """

    side: int
    brightest: float
    box: float = 1.0
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Task(Generic[Options]):
    """One task. ``load(options, folder)`` reads it; every field of ``options`` is a flag.

    :func:`register` makes it known to every command, from any file::

        register(Task("beats", "slow or fast?", BeatOptions, load_beats, "accuracy", LAPTOP))
    """

    name: str
    summary: str
    options: type[Options]
    load: Callable[[Options, DataFolder], Dataset]
    metric: str
    """a name in ``METRICS``, which chooses the best weights"""
    small: Hyperparameters
    """a setting for a laptop"""
    length: int | None = None
    size: str = ""
    licence: str = ""
    citation: str = ""
    sources: tuple[Source, ...] = ()
    files: tuple[str | tuple[str, ...], ...] = ()
    """paths within the data folder that are there once the data is; of several in a tuple one will
    do, and the first is the official one"""
    paper: Hyperparameters | None = None
    """the paper's own row, where it has one"""
    published: Mapping[str, float] = field(default_factory=dict)
    """the paper's results by the names of its models, in the unit of ``metric`` (accuracy in %)"""
    preview: Callable[[Options], tuple[Options, tuple[int, int, int]] | None] | None = None
    """of data that takes long to make: options for a few sequences, and the sizes of the three
    splits there would be"""
    tokenize: Callable[[bytes], Array] | None = None
    """a text file to predict from as tokens; without it, the bytes are the tokens"""
    fixed_length: bool = False
    """whether sounds are cut to the length of the data, or filled up with zeros at their end"""
    image: Callable[[Options], Image] | None = None
    """of drawings read pixel by pixel: what they look like, so that new ones can be drawn"""

    def is_here(self, folder: DataFolder) -> bool:
        """Whether the data can be read without a download."""
        return all(there for _, there in self.places(folder))

    def places(self, folder: DataFolder) -> Iterator[tuple[str, bool]]:
        """Each of ``files`` as it is in the folder, or officially would be; whether it is."""
        for names in self.files:
            either = (names,) if isinstance(names, str) else names
            found = next((name for name in either if (folder.root / name).exists()), None)
            yield found or either[0], found is not None


TASKS: Registry[Task[Any]] = Registry("task")


def register(task: Task[Any]) -> Task[Any]:
    """Put a task under its name into :data:`TASKS`."""
    return TASKS.register(task.name, task)


def check_choices(options: object, **choices: Any) -> None:
    """Each field that is named must have a value of its ``Literal``."""
    for name, literal in choices.items():
        if getattr(options, name) not in get_args(literal):
            raise ValueError(unknown(name, getattr(options, name), get_args(literal)))


def check_at_least(least: int, options: object, *names: str) -> None:
    """These fields must be whole numbers from ``least`` upwards."""
    for name in names:
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer, got {value!r}")
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
