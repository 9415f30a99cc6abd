"""Files to predict from: sounds, arrays, tables and text, as the sequences that a model reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.files.npy import read_whole, stored_arrays
from s4d_torch.data.files.sound import SUFFIXES, full_scale, read_audio
from s4d_torch.data.missing_values import number_of
from s4d_torch.data.task import Task
from s4d_torch.data.user_files.arrays import sequence_offsets
from s4d_torch.data.user_files.table import USUAL_NAMES, is_nameless, read_rows, read_time

BYTES = 256  # tokens of a model that reads text as it is in the file


@dataclass(frozen=True)
class Item:
    """A sequence, (length, features) or (length,) tokens, in the unit of the training data.

    ``sample_rate`` is known of sounds.
    """

    name: str
    values: Array
    sample_rate: float | None = None


def read_items(file: Path, signature: Signature, task: Task[Any], options: Any) -> list[Item]:
    """The sequences of a file, checked against what a model was trained on.

    ``signature`` is that of the training data, ``options`` are those of its ``task``.
    """
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    rate = None
    suffix = file.suffix.lower()
    if suffix in (".npy", ".npz"):
        sequences = _arrays(file, signature, options)
    elif signature.tokens:
        sequences = [_text(file, signature, task, options)]
    elif suffix in SUFFIXES:
        sound, rate = _sound(file, signature, task, options)
        sequences = [sound]
    elif suffix in (".csv", ".tsv"):
        sequences = _table(file, signature, options)
    else:
        raise ValueError(
            f"{file} cannot be read; expected {', '.join(SUFFIXES)}, .npy, .npz, .csv or .tsv"
        )
    if not sequences:
        raise ValueError(f"{file} holds no sequence to predict from")
    items = []
    for i, values in enumerate(sequences):
        items.append(Item(f"{file}[{i}]" if len(sequences) > 1 else str(file), values, rate))
        _check(items[-1].name, values, signature)
    return items


def _check(name: str, values: Array, signature: Signature) -> None:
    if not len(values):
        raise ValueError(f"{name}: a sequence without any samples")
    if signature.tokens:
        if values.min() < 0 or values.max() >= signature.features:
            last = signature.features - 1
            raise ValueError(f"{name}: tokens have to be whole numbers from 0 to {last}")
    elif not np.isfinite(values).all():
        sample, feature = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"{name}: feature {feature} of sample {sample} is no finite number (counted from 0); "
            "fill it first"
        )


def read_sound(file: Path, signature: Signature) -> tuple[Array, float]:
    """(samples, channels) in the unit of the training data, and samples per second."""
    samples, rate = read_audio(file)
    if samples.shape[1] != signature.features:
        raise ValueError(
            f"{file} has {samples.shape[1]} channels; the run was trained on {signature.features}"
        )
    return in_unit(samples, signature), float(rate)


def in_unit(samples: Array, signature: Signature) -> Array:
    """Sound of any type in the unit of the training data."""
    # Data is scaled by one over its loudness: above 1 only if full scale is 1, not 32768.
    unit = 32768.0 if signature.input_scale[0] < 1 else 1.0
    return samples.astype(np.float32) * np.float32(unit / full_scale(samples.dtype))


def _sound(file: Path, signature: Signature, task: Task[Any], options: Any) -> tuple[Array, float]:
    """A clip as long as those of the training data."""
    samples, rate = read_sound(file, signature)
    if seconds := getattr(options, "max_seconds", 0.0):
        samples = samples[: round(seconds * rate)]
    if task.fixed_length and signature.sample_rate is not None:
        length = round(signature.length * rate / signature.sample_rate)
        samples = np.pad(samples[:length], ((0, max(0, length - len(samples))), (0, 0)))
    return samples, rate


def _text(file: Path, signature: Signature, task: Task[Any], options: Any) -> Array:
    content = file.read_bytes()
    if task.tokenize is not None:
        try:
            return task.tokenize(content)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    if signature.features != BYTES:
        raise ValueError(
            f"{file}: the run reads {signature.features} tokens, which are no bytes; "
            "give them as whole numbers in an .npy file"
        )
    limit = getattr(options, "max_length", None)
    return np.frombuffer(content[:limit], dtype=np.uint8)


def _arrays(file: Path, signature: Signature, options: Any) -> list[Array]:
    try:
        blocks = stored_arrays(file)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read as NumPy's {file.suffix}: {error}") from error
    names = [name for name in blocks if name.startswith("X")] or list(blocks)
    found: list[Array] = []
    for name in names:
        array = read_whole(blocks[name])
        offsets = sequence_offsets(blocks, name.removeprefix("X"), blocks[name])
        for part in [array] if offsets is None else np.split(array, offsets[1:-1]):
            found += _several(file, part, signature, options)
    return found


def _several(file: Path, array: Array, signature: Signature, options: Any) -> list[Array]:
    """One sequence or many: (length, features), (n, length, features); (n, length) of 1 feature."""
    features = signature.features
    if array.dtype.kind not in "biuf" or (signature.tokens and array.dtype.kind == "f"):
        what = "whole numbers" if signature.tokens else "numbers"
        raise ValueError(f"{file} holds {array.dtype}; expected {what}")
    if signature.tokens and array.ndim in (1, 2):
        return [array] if array.ndim == 1 else list(array)
    if not signature.tokens:
        if array.ndim == 3 and getattr(options, "channels", "last") == "first":
            array = array.swapaxes(1, 2)
        if array.ndim in (2, 3) and array.shape[-1] == features:
            return [array] if array.ndim == 2 else list(array)
        if array.ndim in (1, 2) and features == 1:
            return [array[:, None]] if array.ndim == 1 else list(array[..., None])
    shape = "(length,)" if signature.tokens else f"(length, {features})"
    raise ValueError(
        f"{file}: an array of {tuple(array.shape)}; the run reads {shape}, or several of that"
    )


def _table(file: Path, signature: Signature, options: Any) -> list[Array]:
    """Numbers, one row for each sample; with a header, cases are told apart as in training."""
    rows = list(read_rows(file))
    if not rows:
        raise ValueError(f"{file} is empty")
    header = [name.strip() for name in rows[0][1]]
    if None in map(number_of, header):
        rows = rows[1:]
    else:
        header = [str(i + 1) for i in range(len(header))]
    columns = _columns(header, signature, options)
    values = columns["values"]
    if len(values) != signature.features:
        raise ValueError(
            f"{file} has {len(values)} columns of values ({', '.join(values)}); the run was "
            f"trained on {signature.features}"
        )
    cases: dict[str, list[tuple[float, list[float | None]]]] = {}
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(f"{file}:{line}: {len(row)} cells; expected {len(header)}")
        cells = dict(zip(header, row, strict=True))
        time = read_time(cells[columns["time"]], f"{file}:{line}") if columns["time"] else 0.0
        numbers = [number_of(cells[name]) for name in values]
        if None in numbers:
            bad = cells[values[numbers.index(None)]]
            raise ValueError(f"{file}:{line}: {bad!r} is no number")
        cases.setdefault(cells.get(columns["case"], ""), []).append((time, numbers))
    return [
        np.array([numbers for _, numbers in sorted(samples, key=lambda sample: sample[0])])
        for samples in cases.values()
    ]


def _columns(header: Sequence[str], signature: Signature, options: Any) -> dict[str, Any]:
    """The columns by what they are; all are values if they are as many as the model reads."""
    if len(header) == signature.features:
        return {"case": "", "time": "", "values": list(header)}
    found: dict[str, Any] = {}
    for kind, usual in USUAL_NAMES.items():
        named = (name for name in header if name.lower() in usual)
        found[kind] = getattr(options, kind, "") or next(named, "")
    others = [name for name in header if name not in found.values() and not is_nameless(name)]
    found["values"] = list(getattr(options, "values", ())) or others
    for name in (*found["values"], found["case"], found["time"]):
        if name and name not in header:
            raise ValueError(f"the table has no column {name!r}; it has {', '.join(header)}")
    return found
