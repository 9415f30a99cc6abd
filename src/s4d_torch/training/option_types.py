"""Options as they are annotated: a wrong type is refused before it decides anything."""

import math
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

WORDS = {
    int: "a whole number",
    float: "a finite number",
    bool: "True or False",
    str: "text",
    NoneType: "None",
}


def check_types(options: Any, names: Iterable[str] | None = None, *, finite: bool = True) -> None:
    """Refuse fields of a dataclass whose value is not of the type they are annotated with.

    ``finite=False`` leaves NaN and infinity to checks that know the range of an option.
    """
    hints = get_type_hints(type(options))
    for name in [field.name for field in fields(options)] if names is None else names:
        value = getattr(options, name)
        odd = not finite and isinstance(value, float) and not math.isfinite(value)
        if not _fits(0.0 if odd else _plain(value), hints[name]):
            raise ValueError(f"{name} must be {_in_words(hints[name])}, got {value!r:.60}")


def make_plain(options: Any) -> None:
    """NumPy's numbers in a frozen dataclass become Python's own, which JSON can hold."""
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, np.generic):
            object.__setattr__(options, field.name, value.item())


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _fits(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in parts)
    if origin is tuple:
        kinds = parts[:1] * len(value) if isinstance(value, tuple) and ... in parts else parts
        same = isinstance(value, tuple) and len(value) == len(kinds)
        return same and all(map(_fits, value, kinds))
    if kind is float:
        return isinstance(value, int | float) and _is_number(value)
    if kind is int:
        return isinstance(value, int) and _is_number(value)
    if kind is Path:
        return isinstance(value, Path | str)
    kind = origin or kind
    if kind is Any:
        return True
    return not isinstance(kind, type) or isinstance(value, kind)


def _is_number(value: float) -> bool:
    """Neither True nor False, nor NaN, infinite or an integer that no float comes near."""
    return not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _in_words(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_in_words, parts))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        return f"a tuple, each {_in_words(parts[0])}"
    return WORDS.get(kind) or f"a {getattr(origin or kind, '__name__', kind)}"
