"""PhysioNet records (WFDB): a header as text, and signals as packed integers.

The header ``NAME.hea`` has a record line, one line for each signal, and comments::

    NAME signals [rate [samples [time [date]]]]
    file format[+offset] [gain[(baseline)][/units] [bits [zero [first [checksum [block [name]]]]]]]

Signals of one file are interleaved sample by sample. A stored sample d stands for
(d - baseline) / gain in physical units, and the lowest number of a format for no sample at all.
"""

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Array

DEFAULT_RATE = 250.0
DEFAULT_GAIN = 200.0  # units per millivolt; what a gain of 0 or none means
BITS = {16: 16, 80: 8, 212: 12}  # of a sample, by the number of its format

_FORMAT = re.compile(r"(?P<bits>\d+)(?:x(?P<frame>\d+))?(?::(?P<skew>\d+))?(?:\+(?P<offset>\d+))?")
_GAIN = re.compile(r"(?P<gain>[^(/\s]+)(?:\((?P<baseline>-?\d+)\))?(?:/(?P<units>\S+))?")


class Signal(NamedTuple):
    """One signal line of a header. ``first`` and ``checksum`` let a reader check the samples."""

    file: str
    format: int
    offset: int
    gain: float
    baseline: int
    units: str
    first: int | None
    checksum: int | None
    name: str


class Header(NamedTuple):
    """A record as its header describes it; ``samples`` per signal is None where not declared."""

    path: Path
    sample_rate: float
    samples: int | None
    signals: tuple[Signal, ...]
    comments: tuple[str, ...]


@dataclass(frozen=True)
class WfdbRecord:
    """Signals in physical units, (samples, signals) in float64; NaN where there is no sample."""

    header: Header
    values: Array

    def __getitem__(self, name: str) -> Array:
        """The signal of this name, (samples,)."""
        names = [signal.name for signal in self.header.signals]
        if name not in names:
            raise ValueError(
                f"{self.header.path}: no signal {name!r}{did_you_mean(name, names)} "
                f"(it has {', '.join(names)})"
            )
        return self.values[:, names.index(name)]


def read_record(path: Path) -> WfdbRecord:
    """The record of a header file: every signal, its first sample and checksum verified."""
    header = read_header(path)
    columns: list[Array] = []
    for _, group in groupby(header.signals, key=lambda signal: signal.file):
        signals = list(group)
        for column, signal in zip(_read_file(header, signals).T, signals, strict=True):
            _verify(column, signal, header.path)
            numbers = (column.astype(np.float64) - signal.baseline) / signal.gain
            numbers[column == -(2 ** (BITS[signal.format] - 1))] = np.nan
            columns.append(numbers)
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{header.path}: its signals differ in length; they should not")
    return WfdbRecord(header, np.stack(columns, axis=1))


def read_header(path: Path) -> Header:
    """What a header file says."""
    every = [(i, line.strip()) for i, line in enumerate(path.read_text("latin-1").splitlines(), 1)]
    comments = tuple(line[1:].strip() for _, line in every if line.startswith("#"))
    lines = [(i, line) for i, line in every if line and not line.startswith("#")]
    if not lines:
        raise ValueError(f"{path}: no record line; expected 'NAME signals rate samples'")
    line, where = lines[0][1], f"{path}, line {lines[0][0]}"
    fields = line.split()
    if "/" in fields[0]:
        raise ValueError(f"{where}: {fields[0]!r} has several segments, which are not supported")
    try:
        count = int(fields[1])
        rate = float(re.split(r"[/(]", fields[2])[0]) if len(fields) > 2 else DEFAULT_RATE
        samples = int(fields[3]) if len(fields) > 3 else 0
    except (IndexError, ValueError):
        raise ValueError(f"{where}: {line!r} is not 'NAME signals rate samples'") from None
    if count < 1 or rate <= 0 or samples < 0:
        found = f"{count} signals of {samples} samples at {rate} Hz"
        raise ValueError(f"{where}: {found}; none to read")
    if (follow := len(lines) - 1) != count:
        raise ValueError(f"{where}: declares {count} signals, and {follow} signal lines follow")
    signals = tuple(_parse_signal(line, f"{path}, line {number}") for number, line in lines[1:])
    return Header(path, rate, samples or None, signals, comments)


def _parse_signal(line: str, where: str) -> Signal:
    fields = line.split(maxsplit=8)
    stored = _FORMAT.fullmatch(fields[1]) if len(fields) > 1 else None
    gain = _GAIN.fullmatch(fields[2]) if len(fields) > 2 else None
    if stored is None or (gain is None and len(fields) > 2):
        raise ValueError(f"{where}: {line!r} is not 'file format gain(baseline)/units ...'")
    if int(stored["bits"]) not in BITS:
        known = ", ".join(map(str, BITS))
        raise ValueError(f"{where}: signal format {stored['bits']}; the supported are {known}")
    if int(stored["frame"] or 1) != 1 or int(stored["skew"] or 0) != 0:
        raise ValueError(f"{where}: {fields[1]!r} has frames or skew, which are not supported")
    try:
        numbers = [int(field) for field in fields[3:8]]
        per_unit = float(gain["gain"]) if gain else DEFAULT_GAIN
    except ValueError:
        raise ValueError(f"{where}: {line!r} has a field that is no number") from None
    zero = numbers[1] if len(numbers) > 1 else 0
    return Signal(
        file=fields[0],
        format=int(stored["bits"]),
        offset=int(stored["offset"] or 0),
        gain=per_unit or DEFAULT_GAIN,
        baseline=int(gain["baseline"]) if gain and gain["baseline"] else zero,
        units=gain["units"] if gain and gain["units"] else "mV",
        first=numbers[2] if len(numbers) > 2 else None,
        checksum=numbers[3] if len(numbers) > 3 else None,
        name=fields[8].strip().rstrip(",") if len(fields) > 8 else "",
    )


def _read_file(header: Header, signals: list[Signal]) -> Array:
    """The stored samples of the signals of one file, (samples, signals)."""
    first = signals[0]
    if len({(signal.format, signal.offset) for signal in signals}) > 1:
        raise ValueError(f"{header.path}: the signals of {first.file} differ in format or offset")
    if Path(first.file).name != first.file:
        raise ValueError(f"{header.path}: {first.file!r} is not the name of a file beside it")
    path = header.path.with_name(first.file)
    if not path.is_file():
        raise ValueError(f"{path} is missing; {header.path.name} says that it holds the signals")
    packed = np.fromfile(path, np.uint8, offset=first.offset)
    there = 8 * len(packed) // BITS[first.format]
    count = header.samples * len(signals) if header.samples else there - there % len(signals)
    if there < count:
        raise ValueError(
            f"{path}: {there} samples, expected {count} "
            f"({header.samples} of {len(signals)} signals); the file is cut short"
        )
    return _unpack(packed, first.format, count).reshape(-1, len(signals))


def _unpack(packed: Array, format: int, count: int) -> Array:
    """The first ``count`` samples of packed bytes, as int16."""
    if format == 16:
        return packed[: 2 * count].view("<i2").astype(np.int16)
    if format == 80:
        return packed[:count].astype(np.int16) - np.int16(128)
    triples = np.zeros((-(-count // 2), 3), np.int16)  # two samples share three bytes
    used = packed[: -(-3 * count // 2)]
    triples.reshape(-1)[: len(used)] = used
    low, middle, high = triples.T
    pairs = np.stack([low | (middle & 0x0F) << 8, high | (middle & 0xF0) << 4], axis=1)
    samples = pairs.reshape(-1)[:count]
    return (samples ^ 0x800) - np.int16(0x800)  # the twelfth bit is the sign


def _verify(stored: Array, signal: Signal, path: Path) -> None:
    """Compare with what the header says of the samples: the first one, and the sum of all."""
    if signal.first is not None and len(stored) and int(stored[0]) != signal.first:
        raise ValueError(
            f"{path}: the signal {signal.name!r} begins with {stored[0]}, "
            f"the header says {signal.first}; {signal.file} does not belong to it or is damaged"
        )
    total = int(stored.sum(dtype=np.int64))
    if signal.checksum is not None and (total - signal.checksum) % 2**16:
        raise ValueError(
            f"{path}: the samples of {signal.name!r} sum to {total % 2**16} modulo 65536, "
            f"the header says {signal.checksum % 2**16}; {signal.file} is damaged"
        )
