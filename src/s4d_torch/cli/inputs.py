"""Files to predict from: sounds, arrays, tables and text, as the sequences that a run reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.cli.common.parsing import CommandError
from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.files.arrays import read_whole, stored_arrays
from s4d_torch.data.files.sound import SUFFIXES, full_scale, read_audio
from s4d_torch.data.files.table_cells import is_nameless, read_rows, read_time
from s4d_torch.data.own.arrays import sequence_offsets
from s4d_torch.data.own.table import USUAL_NAMES
from s4d_torch.data.tasks.lra.listops_trees import tokenize
from s4d_torch.training import Run

BYTES = 256  # tokens of a run that reads text as it is in the file
FILLED = ("sc35",)  # tasks whose clips all have one length, with zeros at the end


@dataclass(frozen=True)
class Item:
    """A sequence, (length, features) or (length,) tokens, in the unit the run's data is stored in.

    ``sample_rate`` is known of sounds.
    """

    name: str
    values: Array
    sample_rate: float | None = None


def read_items(file: Path, run: Run) -> list[Item]:
    """The sequences of a file, checked against what the run was trained on."""
    if not file.is_file():
        raise CommandError(f"there is no file {file}")
    rate = None
    suffix = file.suffix.lower()
    if suffix in (".npy", ".npz"):
        sequences = _arrays(file, run)
    elif run.signature.tokens:
        sequences = [_text(file, run)]
    elif suffix in SUFFIXES:
        sound, rate = _sound(file, run)
        sequences = [sound]
    elif suffix in (".csv", ".tsv"):
        sequences = _table(file, run)
    else:
        raise CommandError(
            f"{file} cannot be read; expected {', '.join(SUFFIXES)}, .npy, .npz, .csv or .tsv"
        )
    if not sequences:
        raise CommandError(f"{file} holds no sequence to predict from")
    several = len(sequences) > 1
    items = [
        Item(f"{file}[{i}]" if several else str(file), values, rate)
        for i, values in enumerate(sequences)
    ]
    for item in items:
        _check(item, run)
    return items


def _check(item: Item, run: Run) -> None:
    signature, values = run.signature, item.values
    if not len(values):
        raise CommandError(f"{item.name}: a sequence without any samples")
    if signature.tokens:
        if values.min() < 0 or values.max() >= signature.features:
            raise CommandError(
                f"{item.name}: tokens have to be whole numbers from 0 to {signature.features - 1}"
            )
        return
    if not np.isfinite(values).all():
        sample, feature = np.argwhere(~np.isfinite(values))[0]
        raise CommandError(
            f"{item.name}: feature {feature} of sample {sample} is no finite number (counted from "
            "0); fill it first"
        )


# ---- sounds -----------------------------------------------------------------------------------


def read_sound(file: Path, signature: Signature) -> tuple[Array, float]:
    """(samples, channels) in the unit a run's data is stored in, and samples per second."""
    samples, rate = read_audio(file)
    if samples.shape[1] != signature.features:
        raise CommandError(
            f"{file} has {samples.shape[1]} channels; the run was trained on {signature.features}"
        )
    return in_unit(samples, signature), float(rate)


def in_unit(samples: Array, signature: Signature) -> Array:
    """Sound of any type in the unit a run's data is stored in."""
    # Data is scaled by one over its loudness: above 1 only if full scale is 1, not 32768.
    unit = 32768.0 if signature.input_scale[0] < 1 else 1.0
    return samples.astype(np.float32) * np.float32(unit / full_scale(samples.dtype))


def _sound(file: Path, run: Run) -> tuple[Array, float]:
    """A clip as long as those the run was trained on."""
    signature = run.signature
    samples, rate = read_sound(file, signature)
    if seconds := getattr(run.config.data, "max_seconds", 0.0):
        samples = samples[: round(seconds * rate)]
    if run.config.task in FILLED and signature.sample_rate is not None:
        length = round(signature.length * rate / signature.sample_rate)
        samples = np.pad(samples[:length], ((0, max(0, length - len(samples))), (0, 0)))
    return samples, rate


# ---- text -------------------------------------------------------------------------------------


def _text(file: Path, run: Run) -> Array:
    content = file.read_bytes()
    if run.config.task == "listops":
        try:
            return tokenize(content)
        except ValueError as error:
            raise CommandError(f"{file}: {error}") from error
    if run.signature.features != BYTES:
        raise CommandError(
            f"{file}: the run reads {run.signature.features} tokens, which are no bytes; "
            "give them as whole numbers in an .npy file"
        )
    limit = getattr(run.config.data, "max_length", None)
    return np.frombuffer(content[:limit], dtype=np.uint8)


# ---- arrays -----------------------------------------------------------------------------------


def _arrays(file: Path, run: Run) -> list[Array]:
    try:
        blocks = stored_arrays(file)
    except ValueError as error:
        raise CommandError(f"{file} cannot be read as NumPy's {file.suffix}: {error}") from error
    names = [name for name in blocks if name.startswith("X")] or list(blocks)
    found: list[Array] = []
    for name in names:
        array = read_whole(blocks[name])
        offsets = sequence_offsets(blocks, name.removeprefix("X"), blocks[name])
        parts = [array] if offsets is None else np.split(array, offsets[1:-1])
        found += [sequence for part in parts for sequence in _several(file, part, run)]
    return found


def _several(file: Path, array: Array, run: Run) -> list[Array]:
    """One sequence or many: (length, features), (n, length, features); (n, length) of 1 feature."""
    features = run.signature.features
    if array.dtype.kind not in "biuf" or (run.signature.tokens and array.dtype.kind == "f"):
        what = "whole numbers" if run.signature.tokens else "numbers"
        raise CommandError(f"{file} holds {array.dtype}; expected {what}")
    if run.signature.tokens and array.ndim in (1, 2):
        return [array] if array.ndim == 1 else list(array)
    if not run.signature.tokens:
        if array.ndim == 3 and getattr(run.config.data, "channels", "last") == "first":
            array = array.swapaxes(1, 2)
        if array.ndim in (2, 3) and array.shape[-1] == features:
            return [array] if array.ndim == 2 else list(array)
        if array.ndim in (1, 2) and features == 1:
            return [array[:, None]] if array.ndim == 1 else list(array[..., None])
    shape = "(length,)" if run.signature.tokens else f"(length, {features})"
    raise CommandError(
        f"{file}: an array of {tuple(array.shape)}; the run reads {shape}, or several of that"
    )


# ---- tables -----------------------------------------------------------------------------------


def _table(file: Path, run: Run) -> list[Array]:
    """Numbers, one row for each sample; with a header, cases are told apart as in training."""
    features = run.signature.features
    rows = list(read_rows(file))
    if not rows:
        raise CommandError(f"{file} is empty")
    header = [name.strip() for name in rows[0][1]]
    if all(_is_number(cell) for cell in header):
        header = [str(i + 1) for i in range(len(header))]
    else:
        rows = rows[1:]
    columns = _columns(header, run)
    values = columns["values"]
    if len(values) != features:
        raise CommandError(
            f"{file} has {len(values)} columns of values ({', '.join(values)}); the run was "
            f"trained on {features}"
        )
    cases: dict[str, list[tuple[float, list[float]]]] = {}
    for line, row in rows:
        if len(row) != len(header):
            raise CommandError(f"{file}:{line}: {len(row)} cells; expected {len(header)}")
        cells = dict(zip(header, row, strict=True))
        time = read_time(cells[columns["time"]], f"{file}:{line}") if columns["time"] else 0.0
        numbers = [_number(cells[name], file, line) for name in values]
        cases.setdefault(cells.get(columns["case"], ""), []).append((time, numbers))
    return [
        np.array([numbers for _, numbers in sorted(samples, key=lambda sample: sample[0])])
        for samples in cases.values()
    ]


def _columns(header: Sequence[str], run: Run) -> dict[str, Any]:
    """The columns by what they are; all are values if they are as many as the run reads."""
    if len(header) == run.signature.features:
        return {"case": "", "time": "", "values": list(header)}
    options = run.config.data
    found: dict[str, Any] = {
        kind: getattr(options, kind, "") or next(_usual(header, kind), "")
        for kind in ("case", "time", "target")
    }
    values = getattr(options, "values", ())
    found["values"] = list(values) or [
        name for name in header if name not in found.values() and not is_nameless(name)
    ]
    for name in (*found["values"], found["case"], found["time"]):
        if name and name not in header:
            raise CommandError(f"the table has no column {name!r}; it has {', '.join(header)}")
    return found


def _usual(header: Sequence[str], kind: str) -> Iterator[str]:
    return (name for name in header if name.lower() in USUAL_NAMES[kind])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, file: Path, line: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise CommandError(f"{file}:{line}: {cell!r} is no number") from None
