"""Cases of time series archives: ``.ts`` files, and the older ``.txt``, ``.tsv`` and ``.csv``.

``.ts`` (UCR, UEA and TSER archives): comments (#), a header of ``@name value`` lines up to
``@data``, then one case a line: its dimensions, separated by colons, each a list of numbers
separated by commas, and last the class or the number to predict. With ``@timeStamps true`` each
number is a pair, ``(time,number)``; samples are taken as evenly spaced. Older files (UCR) have no
header: one case a line, its class first, then the numbers, separated by white space or commas;
missing numbers at the end only fill up a shorter series and are cut off.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import dropwhile, islice
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import Array, LabelKind
from s4d_torch.data.missing_values import LARGEST, Missing, interpolate

NOT_A_NUMBER = frozenset({"?", "nan", ""})
STAMPED = re.compile(r"\([^()]*,([^(),]*)\)")  # (2016-01-11 17:00:00,19.89)
BETWEEN_STAMPED = re.compile(r":(?![^()]*\))")  # not the colons within a time


@dataclass
class SeriesFile:
    """A file whose cases are read one by one; afterwards it knows their targets."""

    file: Path
    missing: Missing
    kind: LabelKind = "classification"
    classes: frozenset[str] = frozenset()  # that the header names, if it does
    targets: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    dimensions: int = 0  # as the header says, or the first case has; 0 before it is known
    length: int = 0  # of every series, as the header says; 0 if it does not

    def __post_init__(self) -> None:
        self.is_ts = self.file.suffix.lower() == ".ts"
        if self.is_ts:
            self._read_header()

    def cases(self) -> Iterator[Array]:
        """The series of each case, (length, dimensions) float32; its target is noted."""
        lines = self._lines()
        if self.is_ts:
            lines = islice(dropwhile(lambda line: line[1].lower() != "@data", lines), 1, None)
        for line, text in lines:
            case, target = self._ts(line, text) if self.is_ts else self._older(line, text)
            if self.classes and target not in self.classes:
                named = ", ".join(sorted(self.classes))
                raise self._error(line, f"class {target!r} is none of the header's: {named}")
            self.targets.append(target)
            self.lines.append(line)
            yield case
        if not self.targets:
            raise ValueError(f"{self.file} has no cases")

    def _read_header(self) -> None:
        tags: dict[str, list[str]] = {}
        for line, text in self._lines():
            if not text.startswith("@"):
                raise self._error(line, f"{text[:40]!r} before @data; expected '@name value'")
            name, *values = text[1:].split() or [""]
            if name.lower() == "data":
                break
            tags[name.lower()] = values
        else:
            raise ValueError(f"{self.file} has no line @data; is it a .ts file?")
        if _truth(tags, "targetlabel"):
            self.kind = "regression"
        elif not _truth(tags, "classlabel"):
            raise ValueError(f"{self.file} has no labels (@classLabel, @targetLabel): not a task")
        else:
            self.classes = frozenset(tags["classlabel"][1:])
        if _truth(tags, "univariate"):
            self.dimensions = 1
        self.dimensions = self._whole(tags, "dimensions", self.dimensions)
        if _truth(tags, "equallength"):
            self.length = self._whole(tags, "serieslength", 0)

    def _whole(self, tags: dict[str, list[str]], name: str, default: int) -> int:
        if name not in tags:
            return default
        text = " ".join(tags[name])
        if not text.isdigit():
            raise ValueError(f"{self.file}: @{name} {text}; expected a whole number")
        return int(text)

    def _lines(self) -> Iterator[tuple[int, str]]:
        """(number, text) of all lines that are neither blank nor comments."""
        with self.file.open(encoding="utf-8-sig", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                text = line.strip()
                if text and not text.startswith("#"):
                    yield number, text

    def _ts(self, line: int, text: str) -> tuple[Array, str]:
        *dimensions, target = BETWEEN_STAMPED.split(text) if "(" in text else text.split(":")
        self.dimensions = self.dimensions or len(dimensions)
        if len(dimensions) != self.dimensions:
            found = f"{len(dimensions)} dimensions and a target"
            raise self._error(line, f"{found}; expected {self.dimensions}")
        words = [self._words(line, each) for each in dimensions]
        series = [self._numbers(line, each, d) for d, each in enumerate(words)]
        lengths = sorted(set(map(len, series)))
        if len(lengths) > 1:
            found = " and ".join(map(str, lengths))
            raise self._error(line, f"dimensions of {found} samples in one case")
        if self.length and lengths[0] != self.length:
            raise self._error(line, f"{lengths[0]} samples; the header says {self.length}")
        return np.stack(series, axis=1), target.strip()

    def _words(self, line: int, dimension: str) -> list[str]:
        if "(" not in dimension:
            return dimension.split(",")
        if STAMPED.sub("", dimension).strip(", "):
            raise self._error(line, f"{dimension[:40]!r}; expected (time,value),(time,value),...")
        return STAMPED.findall(dimension)

    def _older(self, line: int, text: str) -> tuple[Array, str]:
        target, *words = re.split(r"[,\s]+", text)
        while words and words[-1].lower() in NOT_A_NUMBER:
            words.pop()
        if not words:
            raise self._error(line, "a class without a series; expected numbers after it")
        return self._numbers(line, words, 0)[:, None], target

    def _numbers(self, line: int, words: list[str], dimension: int) -> Array:
        try:
            numbers = np.array([float(word) for word in words])
        except ValueError:
            numbers = np.array([self._number(line, word) for word in words])
        if (np.abs(numbers) > LARGEST).any():
            raise self._error(line, "an infinite number, or one too large for float32")
        absent = np.isnan(numbers)
        if absent.any():
            if self.missing == "error":
                raise self._error(
                    line,
                    f"a missing value at time {int(np.argmax(absent))} of dimension {dimension} "
                    "(counted from 0); fill it, or say missing='interpolate' "
                    "(--data.missing interpolate)",
                )
            if absent.all():
                raise self._error(line, f"dimension {dimension} has no value at all")
            numbers = interpolate(numbers)
        return numbers.astype(np.float32)

    def _number(self, line: int, word: str) -> float:
        if word.strip().lower() in NOT_A_NUMBER:
            return float("nan")
        try:
            return float(word)
        except ValueError:
            raise self._error(line, f"{word.strip()[:40]!r} is no number") from None

    def _error(self, line: int, what: str) -> ValueError:
        return ValueError(f"{self.file}:{line}: {what}")


def _truth(tags: dict[str, list[str]], name: str) -> bool:
    return tags.get(name, [""])[:1] in (["true"], ["True"], ["TRUE"])
