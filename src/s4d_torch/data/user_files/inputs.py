"""Files to predict from: sounds, arrays, tables and text, as the sequences that a model reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.files.npy import StoredArray, read_whole, stored_arrays
from s4d_torch.data.files.sound import SUFFIXES, full_scale, read_audio
from s4d_torch.data.missing_values import without_empty_samples, without_gaps
from s4d_torch.data.task import Task
from s4d_torch.data.user_files.array_times import stored_times
from s4d_torch.data.user_files.arrays import case_names, channel_names, sequence_offsets
from s4d_torch.data.user_files.audio_folder import alike, is_hidden
from s4d_torch.data.user_files.columns import order_of
from s4d_torch.data.user_files.table_inputs import Case, read_cases

READABLE = (*SUFFIXES, ".npy", ".npz", ".csv", ".tsv")
BYTES = 256  # tokens of a model that reads text as it is in the file


@dataclass(frozen=True)
class Item:
    """A sequence, (length, features) or (length,) tokens, in the unit of the training data.

    ``case`` is its name in the file, "" of a file that is one sequence; ``sample_rate`` is known
    of sounds; ``times`` (length,) are there for runs that are told them.
    """

    file: Path
    case: str
    values: Array
    sample_rate: float | None = None
    times: Array | None = None

    @property
    def name(self) -> str:
        return f"{self.file}[{self.case}]" if self.case else str(self.file)


def files_below(folder: Path, signature: Signature) -> tuple[list[Path], list[Path]]:
    """The files of a folder that a run may predict from, and all others.

    Of a folder with sounds, a run on sounds reads these; a run on tokens reads all.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    seen = [f for f in files if not any(map(is_hidden, f.relative_to(folder).parts))]
    if not signature.tokens:
        seen = [file for file in seen if file.suffix.lower() in READABLE]
        sounds = [file for file in seen if file.suffix.lower() in SUFFIXES]
        seen = sounds if sounds and signature.sample_rate is not None else seen
    read = set(seen)
    return seen, [file for file in files if file not in read]


def read_items(file: Path, signature: Signature, task: Task[Any], options: Any) -> list[Item]:
    """The sequences of a file, checked against what a model was trained on.

    ``signature`` is that of the training data, ``options`` are those of its ``task``.
    """
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    rate, suffix = None, file.suffix.lower()
    if suffix in (".npy", ".npz"):
        cases = _arrays(file, signature, options)
    elif signature.tokens:
        cases = [Case("", _text(file, signature, task, options))]
    elif suffix in SUFFIXES:
        sound, rate = _sound(file, signature, task, options)
        # a sound is evenly sampled: it needs no times, only to know the unit that a clock counts in
        even = signature.clock is not None and signature.sample_rate is not None
        cases = [Case("", sound, np.arange(len(sound)) if even else None)]
    elif suffix in (".csv", ".tsv"):
        cases = read_cases(file, signature, options)
    else:
        raise ValueError(f"{file} cannot be read; expected {', '.join(READABLE)}")
    if not cases:
        raise ValueError(f"{file} holds no sequence to predict from")
    items = [Item(file, case, values, rate, times) for case, values, times in cases]
    for item in items:
        _check(item.name, item.values, signature)
        if signature.clock is not None and item.times is None:
            raise ValueError(
                f"{item.name} does not say when its samples came, which the run was trained to be "
                "told: give a table with a column of times, or an .npz file with times beside X"
            )
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


def read_sound(file: Path, signature: Signature, options: Any = None) -> tuple[Array, float]:
    """(samples, channels) in the unit of the training data, and samples per second.

    ``options`` are those of the training data, which may have been resampled or mixed down.
    """
    samples, rate = read_audio(file)
    samples = alike(samples, rate, options)
    if samples.shape[1] != signature.features:
        hint = "; to mix channels down, train with --data.mono" if signature.features == 1 else ""
        raise ValueError(
            f"{file} has {samples.shape[1]} channels; the run was trained on "
            f"{signature.features}{hint}"
        )
    return in_unit(samples, signature), float(getattr(options, "resample", 0) or rate)


def in_unit(samples: Array, signature: Signature) -> Array:
    """Sound of any type in the unit of the training data."""
    # Data is scaled by one over its loudness: above 1 only if full scale is 1, not 32768.
    unit = 32768.0 if signature.input_scale[0] < 1 else 1.0
    return samples.astype(np.float32) * np.float32(unit / full_scale(samples.dtype))


def _sound(file: Path, signature: Signature, task: Task[Any], options: Any) -> tuple[Array, float]:
    """A clip as long as those of the training data."""
    samples, rate = read_sound(file, signature, options)
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


def _arrays(file: Path, signature: Signature, options: Any) -> list[Case]:
    try:
        blocks = stored_arrays(file)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read as NumPy's {file.suffix}: {error}") from error
    names = [name for name in blocks if name.startswith("X")] or list(blocks)
    order = _channel_order(file, blocks, signature)
    fills = getattr(options, "missing", "error") == "interpolate"
    found: list[Case] = []
    for name in names:
        array, suffix = read_whole(blocks[name]), name.removeprefix("X")
        offsets = sequence_offsets(blocks, suffix, blocks[name])
        parts = [array] if offsets is None else np.split(array, offsets[1:-1])
        several = [each for part in parts for each in _several(file, part, signature, options)]
        ids = case_names(blocks, suffix, len(several)) if f"cases{suffix}" in blocks else ()
        times = _times(blocks, suffix, several, signature)
        for i, values in enumerate(several):
            case = ids[i] if ids else str(len(found))
            ordered, when = values if order is None else values[:, order], times[i]
            if when is not None:
                ordered, when = without_empty_samples(ordered, when, f"{file}[{case}]")
            if fills:
                ordered = without_gaps(ordered, f"{file}[{case}]", times=when)
            found.append(Case(case, ordered, when))
    if len(found) == 1 and not any(name.startswith("cases") for name in blocks):
        return [found[0]._replace(name="")]  # the file is the case
    return found


def _times(
    blocks: dict[str, StoredArray], suffix: str, cases: list[Array], signature: Signature
) -> list[Array] | list[None]:
    """The times of each case, if the run is told them and the file has them."""
    clock = signature.clock
    if clock is None or f"times{suffix}" not in blocks:
        return [None] * len(cases)
    times, dates = stored_times(blocks, suffix, [len(case) for case in cases])
    if dates != clock.dates:
        trained, here = ("dates", "numbers") if clock.dates else ("numbers", "dates")
        block = blocks[f"times{suffix}"]
        raise ValueError(f"{block.file}: {block.name} are {here}; the run was trained on {trained}")
    return times


def _channel_order(
    file: Path, blocks: dict[str, StoredArray], signature: Signature
) -> list[int] | None:
    """Where the channels of the run stand, if it knows their names and the file says them."""
    if not signature.channels or "channels" not in blocks:
        return None
    names = channel_names(blocks, blocks["channels"].shape[0])
    return order_of(names, signature.channels, str(file))


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
