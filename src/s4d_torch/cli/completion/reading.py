"""The words to complete, read from the dataclasses that the commands are.

The flags are those that tyro makes of them, which has no public way to ask for them.
"""

import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from s4d_torch.cli.common.parsing import explanations
from s4d_torch.cli.completion.names import known_values
from s4d_torch.cli.completion.words import Command, Option, Values, merged
from s4d_torch.cli.train import SHORT
from s4d_torch.data import TASKS
from s4d_torch.training.config import PARTS

HELP = Option("--help", "show the options")
WIDTH = 72  # of what is said about a flag


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a dataclass, as the command line has it."""

    kind: type[Any]
    name: str
    hint: Any
    notes: tuple[Any, ...]
    default: Any
    about: str

    @property
    def label(self) -> str:
        """Its name in a flag; empty if its own fields have no prefix."""
        names = [note.name for note in self.notes if isinstance(getattr(note, "name", None), str)]
        return names[0] if names else self.name.replace("_", "-")

    @property
    def values(self) -> Values:
        known = known_values()
        for key in (f"{self.kind.__name__}.{self.name}", self.name):
            if key in known:
                return known[key]
        return _values(self.hint)


def read_commands(commands: Mapping[str, Any]) -> tuple[Command, ...]:
    """All commands, by the names they are called by."""
    return tuple(_with_tasks(_read((name,), kind), kind) for name, kind in commands.items())


def _read(path: tuple[str, ...], kind: type[Any], *, pairs: bool | None = None) -> Command:
    pairs = hasattr(kind, "parse") if pairs is None else pairs  # as the command itself decides
    fields = list(_fields(kind))
    positional = [field for field in fields if tyro.conf.Positional in field.notes]
    values = None
    for field in positional:
        values = field.values if values is None else values | field.values
    parts = [part for field in fields for part in _parts(path, field.hint, pairs)]
    return Command(
        path,
        (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " "),
        (HELP, *(option for field in fields for option in _options(field, "", pairs))),
        values,
        not any(get_origin(field.hint) is tuple for field in positional),
        parts=tuple(parts),
    )


def _with_tasks(command: Command, kind: type[Any]) -> Command:
    """With the options that depend on the task, or on the data, and those of all tasks."""
    if not hasattr(kind, "parse"):
        return command
    of_task = {name: _options_of(task.options, "data.") for name, task in TASKS.items()}
    every = merged(option for options in of_task.values() for option in options)
    readers = [x for x in of_task.values() if any(option.flag == "--data.path" for option in x)]
    of_path = merged(option for options in readers for option in options)
    options = command.options
    if command.path == ("train",):
        options += tuple(x for name, part in PARTS.items() for x in _options_of(part, f"{name}."))
        full = {option.flag: option for option in options}
        short = [dataclasses.replace(full[long], flag=short) for short, long in SHORT.items()]
        options += tuple(short)
    of_no_task = every if command.path == ("evaluate",) else of_path  # a run of any task
    return dataclasses.replace(command, options=options, of_task=of_task, of_no_task=of_no_task)


def _options_of(kind: type[Any], prefix: str) -> tuple[Option, ...]:
    return tuple(option for field in _fields(kind) for option in _options(field, prefix, True))


def _options(field: _Field, prefix: str, pairs: bool) -> Iterator[Option]:
    if tyro.conf.Positional in field.notes or _is_union_of_parts(field.hint):
        return
    if dataclasses.is_dataclass(field.hint) and isinstance(field.hint, type):
        inner = f"{prefix}{field.label}." if field.label else prefix
        for each in _fields(field.hint):
            yield from _options(each, inner, pairs)
    elif field.hint is bool:
        pairs = pairs and tyro.conf.FlagCreatePairsOff not in field.notes
        if pairs or not field.default:
            yield Option(f"--{prefix}{field.label}", field.about)
        if pairs or field.default:
            yield Option(f"--{prefix}no-{field.label}", field.about)
    else:
        yield Option(f"--{prefix}{field.label}", field.about, field.values)


def _parts(path: tuple[str, ...], hint: Any, pairs: bool) -> Iterator[Command]:
    """The commands within one, if a field holds one of several."""
    if _is_union_of_parts(hint):
        for each in get_args(hint):
            kind, named = get_args(each)
            yield _read((*path, named.name), kind, pairs=pairs)


def _is_union_of_parts(hint: Any) -> bool:
    return _is_union(hint) and all(
        get_origin(each) is Annotated and dataclasses.is_dataclass(get_args(each)[0])
        for each in get_args(hint)
    )


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _fields(kind: type[Any]) -> Iterator[_Field]:
    """What can be given on the command line."""
    hints, said = get_type_hints(kind, include_extras=True), explanations(kind)
    for field in dataclasses.fields(kind):
        hint, notes = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, *noted = get_args(hint)
            notes = tuple(noted)
        if tyro.conf.Suppress in notes:
            continue
        about = textwrap.shorten(said.get(field.name, ""), WIDTH, placeholder=" ...")
        yield _Field(kind, field.name, hint, notes, field.default, about)


def _values(hint: Any) -> Values:
    """What a type takes; text that has no known names is taken for that of a file."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return Values(tuple(str(each) for each in arguments if each is not None))
    if origin in (Union, UnionType, tuple, Annotated):
        inner = arguments[:1] if origin is Annotated else arguments
        found = Values()
        for each in inner:
            found |= _values(each)
        return found
    return Values(("True", "False")) if hint is bool else Values(files=hint in (str, Path))
