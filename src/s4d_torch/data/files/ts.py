"""Cases of time series archives: ``.ts`` files, and the older ``.txt``, ``.tsv`` and ``.csv``.

``.ts`` (UCR, UEA and TSER archives): comments (#), a header of ``@name value`` lines up to
``@data``, then one case a line: its dimensions, separated by colons, each a list of numbers
separated by commas, and last the class or the number to predict. With ``@timeStamps true`` each
number is a pair, ``(time,number)``, the times of all dimensions of a case the same; a case may then
lack samples, and those without any number are left out. Older files (UCR) have no
header: one case a line, its class first, then the numbers, separated by white space or commas;
missing numbers at the end only fill up a shorter series and are cut off.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import dropwhile, islice
from pathlib import Path

import numpy as np

from s4d_torch.data.clock import check_times
from s4d_torch.data.dataset import Array, LabelKind
from s4d_torch.data.files.moments import TimeReader
from s4d_torch.data.missing_values import LARGEST, Missing, interpolate

NOT_A_NUMBER = frozenset({"?", "nan", ""})
STAMPED = re.compile(r"\(([^()]*),([^(),]*)\)")  # (2016-01-11 17:00:00,19.89)
BETWEEN_STAMPED = re.compile(r":(?![^()]*\))")  # not the colons within a time


@dataclass
class SeriesFile:
    """A file whose cases are read one by one; afterwards it knows their targets and times.

    Without ``clock``, a reader of times, samples are taken as evenly spaced.
    """

    file: Path
    missing: Missing
    clock: TimeReader | None = None
    kind: LabelKind = "classification"
    classes: frozenset[str] = frozenset()  # that the header names, if it does
    targets: list[str] = field(default_factory=list)
    times: list[Array] = field(default_factory=list)  # of each case, where numbers have them
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
        pairs = [self._pairs(line, each) for each in dimensions]
        lengths = sorted(set(map(len, pairs)))
        if len(lengths) > 1:
            found = " and ".join(map(str, lengths))
            raise self._error(line, f"dimensions of {found} samples in one case")
        if self.length and lengths[0] != self.length:
            raise self._error(line, f"{lengths[0]} samples; the header says {self.length}")
        times = self._times(line, pairs)
        if times is not None:  # where nothing was measured, no value is needed
            absent = [all(is_missing(each[k][1]) for each in pairs) for k in range(lengths[0])]
            if all(absent):
                raise self._error(line, "a case without any value; leave it out")
            there = np.flatnonzero(~np.array(absent))
            times, pairs = times[there], [[each[k] for k in there] for each in pairs]
            self.times.append(times)
        series = [
            self._numbers(line, [word for _, word in each], d, times)
            for d, each in enumerate(pairs)
        ]
        return np.stack(series, axis=1), target.strip()

    def _pairs(self, line: int, dimension: str) -> list[tuple[str, str]]:
        """(time, number) as text; no time where there is none."""
        if "(" not in dimension:
            return [("", word) for word in dimension.split(",")]
        if STAMPED.sub("", dimension).strip(", "):
            raise self._error(line, f"{dimension[:40]!r}; expected (time,value),(time,value),...")
        return [(time, number) for time, number in STAMPED.findall(dimension)]

    def _times(self, line: int, pairs: list[list[tuple[str, str]]]) -> Array | None:
        """When the samples of a case came; None if the file does not say, or is not asked."""
        if self.clock is None:
            return None
        first, *others = ([time for time, _ in each] for each in pairs)
        if bool(first[0]) != bool(self.times) and self.targets:
            raise self._error(
                line, "some cases have times and some have none; expected all or none"
            )
        for d, each in enumerate(others, 1):
            if each != first:
                k = next(k for k, time in enumerate(first) if each[k] != time)
                raise self._error(
                    line,
                    f"sample {k} of dimension {d} has the time {each[k]!r}, that of dimension 0 "
                    f"{first[k]!r}; expected the same times in all dimensions (a ? for a value "
                    "that is missing)",
                )
        if not first[0]:
            return None
        where = f"{self.file}:{line}"
        times = np.array([self.clock.read(time, where) for time in first])
        check_times(times, where)
        return times

    def _older(self, line: int, text: str) -> tuple[Array, str]:
        target, *words = re.split(r"[,\s]+", text)
        while words and words[-1].lower() in NOT_A_NUMBER:
            words.pop()
        if not words:
            raise self._error(line, "a class without a series; expected numbers after it")
        return self._numbers(line, words, 0)[:, None], target

    def _numbers(
        self, line: int, words: list[str], dimension: int, times: Array | None = None
    ) -> Array:
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
            numbers = interpolate(numbers, times)
        return numbers.astype(np.float32)

    def _number(self, line: int, word: str) -> float:
        if is_missing(word):
            return float("nan")
        try:
            return float(word)
        except ValueError:
            raise self._error(line, f"{word.strip()[:40]!r} is no number") from None

    def _error(self, line: int, what: str) -> ValueError:
        return ValueError(f"{self.file}:{line}: {what}")


def is_missing(word: str) -> bool:
    return word.strip().lower() in NOT_A_NUMBER


def _truth(tags: dict[str, list[str]], name: str) -> bool:
    return tags.get(name, [""])[:1] in (["true"], ["True"], ["TRUE"])
