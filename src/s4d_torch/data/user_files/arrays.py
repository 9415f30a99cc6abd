"""A user's own arrays: ``.npz`` with X and y, or an ``.npy`` file with another one for targets.

An ``.npz`` file has ``X`` and ``y``, or ``X_train``, ``y_train`` and where these are decided
``X_validation``, ``y_validation``, ``X_test``, ``y_test``; what is missing is held out of training.
X is (cases, time) or (cases, time, channels). Sequences of many lengths stand one after the other,
X (samples,) or (samples, channels), with ``lengths`` (cases,) or ``offsets`` (cases + 1,) beside
them, with the same ending as X. y is (cases,): see :mod:`s4d_torch.data.user_files.targets`.
``channels`` may name the channels, and ``cases``, with the same ending as X, the cases. ``times``,
with that ending too, say when samples came: numbers or datetime64, (cases, time) or (samples,).

Values are kept in their type, those of 64 bits as float32. Models read them in units of the
training cases, channel by channel.
"""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Array, Dataset, Sequences
from s4d_torch.data.files.npy import (
    StoredArray,
    read_blocks,
    read_whole,
    refuse_value,
    stored_arrays,
    write_values,
)
from s4d_torch.data.folder import DataFolder, Scratch
from s4d_torch.data.missing_values import Missing, without_gaps
from s4d_torch.data.splits import Holdout
from s4d_torch.data.task import LAPTOP, Task, check_choices, register
from s4d_torch.data.user_files.array_times import timed
from s4d_torch.data.user_files.assembly import Times, dataset_of, existing_file
from s4d_torch.data.user_files.targets import ChosenKind, read_targets

Channels = Literal["last", "first"]
SPLITS = ("train", "validation", "test")
ENDINGS = ("", *(f"_{split}" for split in SPLITS))
TIMES = tuple(f"times{end}" for end in ENDINGS)
SORTS = {"U": "text", "S": "text", "f": "float"}  # of targets, by the kind of their type
MANY_CHANNELS = 4  # times as many as there are samples: likely the other layout


@dataclass(frozen=True)
class ArraysOptions(Holdout):
    """Sequences in NumPy files."""

    path: Path
    """an .npz file with X and y, or an .npy file with X"""
    targets: str = ""
    """the .npy file with y, for X in an .npy file"""
    channels: Channels = "last"
    """X is (cases, time, channels), or with first (cases, channels, time)"""
    kind: ChosenKind = "auto"
    """auto: names and whole numbers are classes, other numbers are predicted as numbers"""
    missing: Missing = "error"
    """missing values (NaN) are refused, or interpolated in time"""
    times: Times = "use"
    """of a file that has them: models are told the gaps between samples, or samples are taken as
    evenly spaced"""
    groups: str = ""
    """array that says what each case comes from (a speaker, a machine); none is in two splits"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, channels=Channels, kind=ChosenKind, missing=Missing, times=Times)


def load_arrays(options: ArraysOptions, folder: DataFolder) -> Dataset:
    """The cases of the file, each (time, channels)."""
    files = [options.path]
    if options.path.suffix.lower() == ".npy":
        if not options.targets:
            raise ValueError(
                f"{options.path} has no targets in it; name their .npy file (--data.targets y.npy)"
            )
        files.append(Path(options.targets))
    elif options.targets:
        raise ValueError(f"targets {options.targets} are for an .npy file; {options.path} holds y")
    files = [existing_file(file) for file in files]
    key = asdict(options) | {"path": "", "targets": ""}
    return folder.prepared("arrays", key, files, lambda s: _build(options, files, s))


def _build(options: ArraysOptions, files: list[Path], scratch: Scratch) -> Dataset:
    blocks = _named(files)
    has_times = options.times == "use" and any(name in TIMES for name in blocks)
    suffixes = {name: f"_{name}" for name in SPLITS if f"X_{name}" in blocks}
    if "X" in blocks:
        suffixes = {"train": ""}
    # with times, samples without any value are left out, and only then may others be missing
    missing: Missing = "interpolate" if has_times else options.missing
    reading = replace(options, missing=missing)
    given = {
        name: _sequences(blocks, s, reading, scratch, fill=not has_times)
        for name, s in suffixes.items()
    }
    ids = [each for name, s in suffixes.items() for each in case_names(blocks, s, len(given[name]))]
    counts = {f"X{suffixes[name]}": each.values.shape[-1] for name, each in given.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise ValueError(f"{files[0]}: expected one number of channels, but {shown}")
    named = {f"y{s}": _targets(blocks, f"y{s}", len(given[name])) for name, s in suffixes.items()}
    each = list(named.values())
    if len({SORTS.get(targets.dtype.kind, "whole") for targets in each}) > 1:
        shown = ", ".join(f"{name} is {targets.dtype}" for name, targets in named.items())
        raise ValueError(f"{files[0]}: targets of different sorts: {shown}")
    places = [f"{files[-1]}: {name}" for name in named]
    ends = np.cumsum([len(targets) for targets in each])

    def where(i: int) -> str:
        split = int(np.searchsorted(ends, i, side="right"))
        return f"{places[split]}[{i - ends[split] + len(each[split])}]"

    targets = read_targets(np.concatenate(each), options.kind, where)
    channels = channel_names(blocks, next(iter(counts.values())))
    groups = None
    if options.groups:
        groups = [
            each
            for name, s in suffixes.items()
            for each in _groups(blocks, f"{options.groups}{s}", len(given[name]))
        ]
    timing = None
    if has_times:
        given, timing = timed(given, suffixes, blocks, options.missing, scratch)
    return dataset_of(
        given, targets, options, cases=ids, channels=channels, groups=groups, timing=timing
    )


def _named(files: list[Path]) -> dict[str, StoredArray]:
    """The arrays of the files by what they are: X or X_train, y, lengths, ..."""
    if len(files) == 2:
        x, y = (next(iter(stored_arrays(file).values())) for file in files)
        return {"X": x, "y": y}
    blocks = stored_arrays(files[0])
    present = ", ".join(blocks) or "none"
    if "X" not in blocks and "X_train" not in blocks:
        expected = "the arrays X and y, or X_train, ..."
        raise ValueError(f"{files[0]}: expected {expected}; it has {present}")
    if "X" in blocks and "X_train" in blocks:
        raise ValueError(f"{files[0]} has both X and X_train; expected one of them")
    known = [array + end for array in ("X", "y", "times") for end in ENDINGS]
    for name in blocks:
        if name.startswith(("X_", "y_", "times_")) and name not in known:
            hint = did_you_mean(name, known) or f"; expected {', '.join(known)}"
            raise ValueError(f"{files[0]}: unknown array {name!r}{hint}")
    return blocks


def channel_names(blocks: Mapping[str, StoredArray], features: int) -> tuple[str, ...]:
    """The names of the channels, where the file has them."""
    return _names(blocks, "channels", features) if "channels" in blocks else ()


def case_names(blocks: Mapping[str, StoredArray], suffix: str, count: int) -> tuple[str, ...]:
    """The names of the cases, or the places of their values in the file."""
    if f"cases{suffix}" in blocks:
        return _names(blocks, f"cases{suffix}", count)
    return tuple(f"{blocks[f'X{suffix}'].name}[{i}]" for i in range(count))


def _names(blocks: Mapping[str, StoredArray], name: str, count: int) -> tuple[str, ...]:
    block, names = blocks[name], read_whole(blocks[name])
    texts = [str(each, "utf-8") if isinstance(each, bytes) else str(each) for each in names.flat]
    if names.shape != (count,) or names.dtype.kind not in "iuUS" or len(set(texts)) < count:
        raise ValueError(
            f"{block} of type {names.dtype}; expected ({count},), a name for each, none twice"
        )
    return tuple(texts)


def _groups(blocks: Mapping[str, StoredArray], name: str, count: int) -> list[str]:
    if name not in blocks:
        file = next(iter(blocks.values())).file
        hint = did_you_mean(name, blocks) or f"; it has {', '.join(blocks)}"
        raise ValueError(f"{file}: there is no array {name!r} with the group of each case{hint}")
    block, groups = blocks[name], read_whole(blocks[name])
    if groups.shape != (count,) or groups.dtype.kind not in "biuUS":
        raise ValueError(
            f"{block} of type {groups.dtype}; expected ({count},), a name or whole number for each"
        )
    return [str(each, "utf-8") if isinstance(each, bytes) else str(each) for each in groups]


def _targets(blocks: Mapping[str, StoredArray], name: str, cases: int) -> Array:
    if name not in blocks:
        first = next(iter(blocks.values()))
        raise ValueError(f"{first.file}: has no array {name}, the target of each case")
    block = blocks[name]
    targets = read_whole(block)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.shape != (cases,):
        raise ValueError(f"{block}: expected one target for each of {cases} cases, ({cases},)")
    return targets


def _sequences(
    blocks: Mapping[str, StoredArray],
    suffix: str,
    options: ArraysOptions,
    scratch: Scratch,
    *,
    fill: bool,
) -> Sequences:
    block = blocks[f"X{suffix}"]
    block.refuse_objects()
    offsets = sequence_offsets(blocks, suffix, block)
    if offsets is not None:
        ragged = _ragged(block, offsets, options.missing, scratch)
        return _without_gaps(ragged, block) if fill else ragged
    if len(block.shape) not in (2, 3) or 0 in block.shape:
        raise ValueError(
            f"{block}: expected (cases, time) or (cases, time, channels), none of them 0; "
            "sequences of many lengths need the array 'lengths' too"
        )
    first = len(block.shape) == 3 and options.channels == "first"
    shape = block.shape if len(block.shape) == 3 else (*block.shape, 1)
    cases, length, channels = (shape[0], shape[2], shape[1]) if first else shape
    if channels > MANY_CHANNELS * length and not first:
        warnings.warn(
            f"{block}, read as {length} samples of {channels} channels; if it is "
            "(cases, channels, time), say channels='first' (--data.channels first)",
            stacklevel=2,
        )
    values = scratch.array((cases, length, channels), block.kept_type)
    done = 0
    for rows in read_blocks(block):
        cube = rows if rows.ndim == 3 else rows[..., None]
        part = values[done : done + len(rows)]
        if bad := write_values(cube.swapaxes(1, 2) if first else cube, part, options.missing):
            refuse_value(block, part[bad], done + bad[0], bad[1], bad[2])
        done += len(rows)
    return _without_gaps(Sequences(values), block) if fill else Sequences(values)


def _ragged(block: StoredArray, offsets: Array, missing: Missing, scratch: Scratch) -> Sequences:
    channels = block.shape[1] if len(block.shape) == 2 else 1
    lengths = np.unique(np.diff(offsets))
    even = len(lengths) == 1
    shape = (len(offsets) - 1, int(lengths[0])) if even else (block.shape[0],)
    values = scratch.array((*shape, channels), block.kept_type)
    flat = values.reshape(-1, channels)
    done = 0
    for rows in read_blocks(block):
        part = flat[done : done + len(rows)]
        if bad := write_values(rows.reshape(len(rows), channels), part, missing):
            sample = done + bad[0]
            case = int(np.searchsorted(offsets, sample, side="right")) - 1
            refuse_value(block, part[bad], case, sample - int(offsets[case]), bad[1])
        done += len(rows)
    return Sequences(values) if even else Sequences(values, offsets)


def _without_gaps(sequences: Sequences, block: StoredArray) -> Sequences:
    """With what was left to be interpolated filled in where it is stored."""
    for i in range(len(sequences) if sequences.values.dtype.kind == "f" else 0):
        case = sequences[i]
        if np.isnan(case).any():
            case[...] = without_gaps(case, f"{block.file}: case {i} of {block.name}")
    return sequences


def sequence_offsets(
    blocks: Mapping[str, StoredArray], suffix: str, block: StoredArray
) -> Array | None:
    """Where each sequence begins and the last one ends, if X holds them one after the other."""
    named = [name for name in (f"lengths{suffix}", f"offsets{suffix}") if name in blocks]
    if not named:
        return None
    if len(named) == 2:
        raise ValueError(f"{block.file} has both {named[0]} and {named[1]}; expected one of them")
    given, numbers = blocks[named[0]], read_whole(blocks[named[0]])
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not len(numbers):
        raise ValueError(f"{given}: expected whole numbers in one dimension")
    if len(block.shape) not in (1, 2) or 0 in block.shape:
        raise ValueError(f"{block}: with {named[0]}, expected (samples,) or (samples, channels)")
    numbers = numbers.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(numbers)]) if "lengths" in named[0] else numbers
    empty = np.flatnonzero(np.diff(offsets) < 1)
    if len(empty):
        raise ValueError(f"{given}: case {empty[0]} has no samples; expected at least one")
    if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != block.shape[0]:
        raise ValueError(
            f"{given}: covers the samples {offsets[0]} to {offsets[-1]}, "
            f"but {block.name} has 0 to {block.shape[0]}"
        )
    return offsets


register(
    Task(
        name="arrays",
        summary="your own arrays: .npz with X and y, or .npy files",
        options=ArraysOptions,
        load=load_arrays,
        metric="accuracy",
        size="your own",
        small=replace(LAPTOP, epochs="auto"),
    )
)
