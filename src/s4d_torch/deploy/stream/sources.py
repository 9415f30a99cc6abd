"""Where a live stream comes from: a sound file, raw samples, bytes or lines of numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.files.sound import SUFFIXES
from s4d_torch.data.missing_values import unusable
from s4d_torch.data.user_files import BYTES, in_unit, read_sound
from s4d_torch.data.user_files.rows import delimiter_of
from s4d_torch.data.user_files.targets import MISSING
from s4d_torch.deploy.stream.header import Header, cells_of, read_header
from s4d_torch.deploy.stream.ticks import Ticks

Format = Literal["numbers", "s16", "f32", "bytes"]
Missing = Literal["error", "hold"]
RAW: dict[str, np.dtype[Any]] = {"s16": np.dtype("<i2"), "f32": np.dtype("<f4")}
CHUNKS_PER_SECOND = 100  # unless the user says otherwise


class ChunkSource(NamedTuple):
    """Samples as they come: ``chunks`` are (n, features), or (n,) tokens, as the data is stored.

    ``chunk`` is how many samples each has but the last. Of a ``timed`` source they are
    (n, 1 + features), with the time of each sample before it.
    """

    chunks: Iterator[Array]
    chunk: int
    sample_rate: float | None
    is_sound: bool
    is_file: bool = False
    timed: bool = False


def sound_file(
    path: Path, signature: Signature, chunk: int | None, options: Any = None
) -> ChunkSource:
    """A file, of which a chunk at a time is given away; ``options`` are those of the data."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; use - for standard input")
    if path.suffix.lower() not in SUFFIXES or signature.tokens:
        wanted = "tokens" if signature.tokens else f"sounds, {', '.join(SUFFIXES)}"
        raise ValueError(
            f"{path}: the run reads {wanted}; other files come through standard input, as in "
            f"'s4d stream RUN - < {path}'"
        )
    samples, rate = read_sound(path, signature, options)
    size = chunk or _usual_chunk(rate)
    parts = (samples[i : i + size] for i in range(0, len(samples), size))
    return ChunkSource(parts, size, rate, is_sound=True, is_file=True)


def standard_input(
    stream: IO[bytes],
    form: Format,
    signature: Signature,
    chunk: int | None,
    sample_rate: float | None,
    missing: Missing = "error",
) -> ChunkSource:
    """What another program writes, in one of four forms; a form that the run cannot read fails.

    NaN, infinities and numbers beyond float32 are errors, or with "hold" the value before them.
    """
    rate = sample_rate or signature.sample_rate
    if signature.tokens != (form == "bytes") and form != "numbers":
        what = "tokens: --format numbers or bytes" if signature.tokens else "signals"
        raise ValueError(f"--format {form}: the run reads {what}")
    if form == "bytes" and signature.features != BYTES:
        raise ValueError(f"--format bytes: the run reads {signature.features} tokens, no bytes")
    clock = signature.clock
    if clock is not None and form != "numbers" and rate is None:
        raise ValueError(
            f"--format {form}: the run is told when samples came; give lines of numbers, with the "
            "time of each"
        )
    if form in RAW:
        size = chunk or _usual_chunk(rate)
        raw = _raw(stream, RAW[form], signature.features, size, Gaps(missing))
        return ChunkSource((in_unit(part, signature) for part in raw), size, rate, is_sound=True)
    size = chunk or 1
    parts: Iterator[Array]
    if form == "bytes":
        parts = (part[:, 0] for part in _raw(stream, np.dtype(np.uint8), 1, size, Gaps()))
    else:
        parts = _numbers(stream, signature, size, Gaps(missing))
    return ChunkSource(parts, size, rate, is_sound=False, timed=clock is not None)


def _usual_chunk(rate: float | None) -> int:
    return max(1, round(rate / CHUNKS_PER_SECOND)) if rate else 1


@dataclass
class Gaps:
    """What becomes of a value that is no number: an error, or the one before in its channel."""

    missing: Missing = "error"
    before: Array | None = None

    def filled(self, sample: Array, where: str) -> Array:
        if (bad := unusable(sample)).any():
            if self.missing == "error":
                raise ValueError(f"{where} is no finite number; --missing hold repeats the last")
            if self.before is None:
                raise ValueError(f"{where} is no finite number, and none came before to be held")
            sample = np.where(bad, self.before, sample)
        self.before = sample
        return sample


def _raw(
    stream: IO[bytes], dtype: np.dtype[Any], channels: int, size: int, gaps: Gaps
) -> Iterator[Array]:
    """Samples of several channels in turn; what is left of a sample at the end is no sample."""
    frame, before, whole = dtype.itemsize * channels, 0, size
    read = getattr(stream, "read1", stream.read)  # as soon as there are any bytes
    while whole == size:
        held = b""
        while part := read(size * frame - len(held)):
            held += part
        whole = len(held) // frame
        if whole:
            samples = np.frombuffer(held[: whole * frame], dtype).reshape(-1, channels)
            samples = samples.astype(dtype.newbyteorder("="))
            for row in np.flatnonzero(unusable(samples).any(1)):
                gaps.before = samples[row - 1] if row else gaps.before
                samples[row] = gaps.filled(samples[row], f"standard input: sample {before + row}")
            gaps.before, before = samples[-1], before + whole
            yield samples


def _numbers(stream: IO[bytes], signature: Signature, size: int, gaps: Gaps) -> Iterator[Array]:
    """A sample in each line, its channels apart by spaces, commas, semicolons or tabs.

    With a header, they go by their names. Of a run with a clock the time comes first.
    """
    lines = enumerate(iter(stream.readline, b""), start=1)
    texts = ((number, _text(line)) for number, line in lines if line.strip())
    header, body = read_header(texts, signature)
    ticks = None if signature.clock is None else Ticks(signature.clock)
    parsed = (_parse(text, number, signature, header, gaps, ticks) for number, text in body)
    samples = (sample for sample in parsed if sample is not None)
    while held := list(islice(samples, size)):
        values = np.array(held)
        yield values[:, 0].astype(np.int64) if signature.tokens else values


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").strip().lstrip("\ufeff")


def _parse(
    text: str,
    number: int,
    signature: Signature,
    header: Header | None,
    gaps: Gaps,
    ticks: Ticks | None = None,
) -> Array | None:
    """The numbers of a line, after its time if the run is told it; None if it has a time only."""
    where = f"standard input, line {number}: {text[:60]!r}"
    if header is not None:
        cells = header.cells(text, where)
    elif ticks is not None:  # a date may have a space within
        cells = cells_of(text, delimiter_of(text))
    else:
        cells = text.translate(str.maketrans(",;\t", "   ")).split()
    wanted = 1 if signature.tokens else signature.features
    timed = 1 if ticks is not None else 0
    if len(cells) != timed + wanted:
        each = "one token" if signature.tokens else f"{wanted} numbers"
        each = f"a time and {each}" if timed else each
        raise ValueError(f"{where} has {len(cells)} values; the run reads {each} in each line")
    time = [] if ticks is None else [ticks.read(cells[0], where)]
    if timed and all(cell.strip().lower() in MISSING for cell in cells[1:]):
        return None  # nothing was measured then
    try:
        values = np.array([float(cell) for cell in cells[timed:]])
    except ValueError:
        raise ValueError(f"{where} is no number; for raw sound give --format s16 or f32") from None
    values = gaps.filled(values, where)
    if signature.tokens and not (values[0].is_integer() and 0 <= values[0] < signature.features):
        raise ValueError(f"{where} is no token from 0 to {signature.features - 1}")
    return np.concatenate([time, values])
