"""What there is to complete: commands, their options and the values of these."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from s4d_torch.cli.completion import SHELLS


@dataclass(frozen=True)
class Values:
    """What may stand in a place: one of some names, a file, or, with neither, a number."""

    names: tuple[str, ...] = ()
    files: bool = False

    def __or__(self, other: "Values") -> "Values":
        return Values(tuple(dict.fromkeys(self.names + other.names)), self.files or other.files)


@dataclass(frozen=True)
class Option:
    """A flag, and its values if it takes any."""

    flag: str
    about: str = ""
    values: Values | None = None


@dataclass(frozen=True)
class Command:
    """What follows ``s4d`` and the words of ``path``."""

    path: tuple[str, ...]
    about: str = ""
    options: tuple[Option, ...] = ()
    values: Values | None = None
    """the arguments without a flag"""
    one_name: bool = True
    """whether a single name is expected; files may follow"""
    of_task: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    """further options, by the task that is named"""
    of_no_task: tuple[Option, ...] = ()
    """further options where none is: of a path, or a run"""
    parts: tuple["Command", ...] = ()
    """commands within this one"""

    @property
    def late_options(self) -> tuple[Option, ...]:
        """All that depend on a task, each flag once."""
        return merged([*self.of_no_task, *(x for some in self.of_task.values() for x in some)])

    def tasks_by_flags(self) -> dict[tuple[str, ...], list[str]]:
        """The tasks that have the same further flags."""
        found: dict[tuple[str, ...], list[str]] = {}
        for task, options in self.of_task.items():
            found.setdefault(tuple(option.flag for option in options), []).append(task)
        return found


def merged(options: Iterable[Option]) -> tuple[Option, ...]:
    """Each flag once, with the values of all its options."""
    found: dict[str, Option] = {}
    for option in options:
        if (old := found.get(option.flag)) and old.values and option.values:
            option = replace(old, values=old.values | option.values)
        found[option.flag] = option
    return tuple(found.values())


# what is asked of s4d itself
TOP = (
    Option("--help", "show the commands and exit"),
    Option("--version", "show the version, and those of torch and numba"),
    Option(
        "--print-completion",
        "print a script for this shell, to complete commands, tasks and flags",
        Values(SHELLS),
    ),
)
