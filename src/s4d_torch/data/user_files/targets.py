"""Targets of a user's own data: classes from names or whole numbers, or numbers to predict."""

import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from s4d_torch.data.dataset import Array, LabelKind
from s4d_torch.data.missing_values import number_of

ChosenKind = Literal["auto", "classification", "regression"]
Where = Callable[[int], str]
"""Where target i stands, for an error message: ``"a.csv:17"``, ``"a.npz, y[3]"``."""

MISSING = frozenset({"", "?", "na", "n/a", "nan", "none", "null"})  # in small letters
HOW_TO_FILL = "fill it, leave it out, or spell it otherwise if it is a name"
WHOLE = re.compile(r"[+-]?[0-9]+")
MANY_CLASSES = 20  # of whole numbers, most of them once: they may be amounts
AS_NUMBERS = "kind='regression' (--data.kind regression)"
AS_CLASSES = "kind='classification' (--data.kind classification)"


@dataclass(frozen=True)
class Targets:
    """One target for each case, (n,): the number of its class, or the number to predict."""

    kind: LabelKind
    values: Array
    classes: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        return len(self.classes) or 1


def read_targets(raw: Array | Sequence[str], kind: ChosenKind, where: Where) -> Targets:
    """What there is to predict, from (n,) strings or numbers.

    Names, whole numbers and truth values are classes; numbers with a fraction, or of a floating
    point type, are predicted as numbers. ``kind`` overrules this.
    """
    given = np.asarray(raw)
    if given.dtype.kind not in "biufUS":
        raise ValueError(f"{where(0)}: targets of type {given.dtype}; expected numbers or text")
    texts = [str(each, "utf-8") if isinstance(each, bytes) else str(each) for each in given]
    texts = [text.strip() for text in texts]
    for i, text in enumerate(texts):
        if text.lower() in MISSING:
            raise ValueError(f"{where(i)}: the target is missing ({text!r}); {HOW_TO_FILL}")
    numbers = [number_of(text) for text in texts]
    if kind == "auto":
        kind = _likely_kind(texts, numbers, where)
    if kind == "regression":
        return _numeric(texts, numbers, where)
    return _classes(texts, numbers, where)


def _likely_kind(texts: list[str], numbers: list[float | None], where: Where) -> LabelKind:
    if all(WHOLE.fullmatch(text) for text in texts):
        if len(set(texts)) == len(texts) > 2:
            raise ValueError(
                f"all {len(texts)} targets are different whole numbers ({where(0)}: {texts[0]}); "
                f"are they numbers to predict? Say {AS_NUMBERS}, or {AS_CLASSES}"
            )
        if len(set(texts)) > max(MANY_CLASSES, len(texts) / 2):
            _warn_of_doubt(texts, "classes", AS_NUMBERS, where)
        return "classification"
    if None not in numbers:
        known = [number for number in numbers if number is not None]
        if all(number.is_integer() for number in known) and 2 * len(set(known)) <= len(known):
            _warn_of_doubt(texts, "numbers to predict", AS_CLASSES, where)
        return "regression"
    if fraction := next((n for n in numbers if n is not None and not n.is_integer()), None):
        i = numbers.index(None)
        raise ValueError(
            f"{where(i)}: the target {texts[i]!r} is no number, but others are, such as "
            f"{fraction:g}; say {AS_CLASSES} if they are names"
        )
    return "classification"


def _warn_of_doubt(texts: list[str], taken_as: str, otherwise: str, where: Where) -> None:
    warnings.warn(
        f"{where(0)}: {len(texts)} targets with {len(set(texts))} different whole numbers are "
        f"taken as {taken_as}; if they are not, say {otherwise}",
        stacklevel=2,
    )


def _numeric(texts: list[str], numbers: list[float | None], where: Where) -> Targets:
    for i, (text, number) in enumerate(zip(texts, numbers, strict=True)):
        if number is None:
            raise ValueError(
                f"{where(i)}: the target {text!r} is no number, which a regression needs"
            )
        if not math.isfinite(number):
            raise ValueError(f"{where(i)}: the target is {text}; expected a finite number")
    if len(set(numbers)) == 1:
        raise ValueError(f"{where(0)}: every target is {texts[0]}; there is nothing to predict")
    return Targets("regression", np.array(numbers))


def _classes(texts: list[str], numbers: list[float | None], where: Where) -> Targets:
    names = texts
    if None not in numbers:  # 1, 1.0 and 1.0e+00 are one class
        names = []
        for i, number in enumerate(numbers):
            if number is None or not number.is_integer():
                raise ValueError(
                    f"{where(i)}: the target {texts[i]} is no class; classes are names or whole "
                    f"numbers. For numbers to predict, say {AS_NUMBERS}"
                )
            names.append(str(int(texts[i]) if WHOLE.fullmatch(texts[i]) else int(number)))
    classes = natural_order(set(names))
    if len(classes) == 1:
        raise ValueError(f"{where(0)}: every target is {classes[0]!r}; two classes are needed")
    return Targets("classification", class_numbers(names, classes, where), classes)


def class_numbers(names: Sequence[str], classes: tuple[str, ...], where: Where) -> Array:
    """The position of each name among ``classes``, (n,)."""
    position = {name: i for i, name in enumerate(classes)}
    for i, name in enumerate(names):
        if name not in position:
            raise ValueError(f"{where(i)}: class {name!r} is none of {', '.join(classes)}")
    return np.array([position[name] for name in names], dtype=np.int64)


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Numbers by their value, then names with the numbers within them by value: a2 before a10."""

    def key(name: str) -> tuple[bool, float, list[tuple[bool, int, str]], str]:
        number = number_of(name)
        if number is not None:
            return False, number, [], name
        pieces = re.split(r"([0-9]+)", name.lower())
        order = [(i % 2 == 0, int(piece) if i % 2 else 0, piece) for i, piece in enumerate(pieces)]
        return True, 0.0, order, name

    return tuple(sorted(names, key=key))
