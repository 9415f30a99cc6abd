"""Flags that depend on what they are for: found in two stages, and blamed by their names."""

import ast
import dataclasses
import inspect
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, get_type_hints

from s4d_torch._registry import unknown

T = TypeVar("T")


class UsageError(Exception):
    """Arguments that were not understood; the message says what is expected. Exit code 2."""


class CommandError(Exception):
    """What was asked for cannot be done; the message says why, and what would help. Exit code 1."""


@contextmanager
def misuse(about: str = "") -> Iterator[None]:
    """In here, a wrong value or name is the user's; ``about`` says of what."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{about}{error}") from error


def is_first_process() -> bool:
    """Whether this process speaks for all that ``torchrun`` has started."""
    return os.environ.get("RANK", "0") == "0"


def take_positional(arguments: Sequence[str], command: type[Any]) -> tuple[str | None, list[str]]:
    """The first argument that is no flag and no flag's value, and the arguments without it.

    Only options of the command itself may come before: how many values others take depends on it.
    """
    kinds = get_type_hints(command)
    is_value = False
    for i, argument in enumerate(arguments):
        if is_value:
            is_value = False
            continue
        if not argument.startswith("-"):
            return argument, [*arguments[:i], *arguments[i + 1 :]]
        name, equals, _ = argument.lstrip("-").replace("-", "_").partition("=")
        if "." in name:
            what = dataclasses.fields(command)[0].name.upper()
            usage = f"s4d {command.__name__.lower()} {what} {argument} ..."
            raise UsageError(f"name the {what} before {argument}: {usage}")
        if name.removeprefix("no_") not in (*kinds, "help", "h"):
            own = [f"--{each.replace('_', '-')}" for each in list(kinds)[1:] if each != "config"]
            raise UsageError(unknown("option", argument.partition("=")[0], own))
        is_value = not equals and kinds.get(name, bool) is not bool
    return None, list(arguments)


def value_of(flag: str, arguments: Sequence[str]) -> str | None:
    """The value of a flag, before the arguments as a whole can be understood."""
    found = None
    for i, argument in enumerate(arguments):
        if argument == flag:
            found = next(iter(arguments[i + 1 : i + 2]), None)
        elif argument.startswith(f"{flag}="):
            found = argument.partition("=")[2]
    return found


def parse(
    command: type[T],
    subject: str,
    arguments: Sequence[str],
    parts: Mapping[str, Any],
    *,
    description: str | None = None,
) -> tuple[T, dict[str, Any]]:
    """``command`` from its flags, and ``parts`` with what flags such as ``--model.d-state`` change.

    ``subject``, which decides the parts, is the command's first field, and no more among its
    arguments. Ends in ``SystemExit`` after ``--help``, and after misuse that is explained.
    """
    import tyro  # not above: this module is also that of errors, for what needs no parser

    own = dataclasses.fields(command)  # type: ignore[arg-type]
    hidden = Annotated[str, tyro.conf.Suppress, tyro.conf.Fixed]
    fields: list[tuple[str, Any, Any]] = [(own[0].name, hidden, dataclasses.field(default=subject))]
    for name, default in parts.items():
        kind = _unchecked(type(default))
        fields.append((name, kind, dataclasses.field(default=kind(**_values(default)))))
    whole = dataclasses.make_dataclass(command.__name__, fields, bases=(command,), frozen=True)
    given: Any = tyro.cli(
        whole,
        prog=f"s4d {command.__name__.lower()} {subject}",
        description=description or inspect.getdoc(command),
        args=list(arguments),
        console_outputs=is_first_process(),
    )
    made = {name: _checked(name, getattr(given, name), default) for name, default in parts.items()}
    return command(**{field.name: getattr(given, field.name) for field in own}), made


def blame(error: Exception, flags: Iterable[str]) -> UsageError:
    """The message of ``error`` behind the flags it is about: those it names, or else all given."""
    names = {flag: flag.rpartition(".")[2].replace("-", "_") for flag in flags}
    named = [flag for flag, name in names.items() if re.search(rf"\b{name}\b", str(error))]
    about = ", ".join(named or names)
    return UsageError(f"{about}: {error}" if about else str(error))


def changes(part: str, value: Any, default: Any) -> list[str]:
    """The flags that lead from ``default`` to ``value``."""
    return [
        f"--{part}.{name.replace('_', '-')}"
        for name, new in _values(value).items()
        if new != getattr(default, name)
    ]


def explanations(kind: type[Any]) -> dict[str, str]:
    """What the source of a dataclass says below each field."""
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__[:-1]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
    return found


def _checked(part: str, raw: Any, default: Any) -> Any:
    try:
        return type(default)(**_values(raw))
    except ValueError as error:
        raise blame(error, changes(part, raw, default)) from error


def _unchecked(kind: type[Any]) -> type[Any]:
    """A dataclass that takes any values, so that a wrong one can be traced to its flag."""
    own = {"__post_init__": lambda self: None, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), {**own, "__module__": kind.__module__})


def _values(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
