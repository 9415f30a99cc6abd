"""Sound files as arrays: wav without any package, flac, ogg and mp3 through soundfile.

A wav file is a RIFF container: ``RIFF <size> WAVE``, then chunks of a name of four letters, a size
and that many bytes, padded to an even number. ``fmt `` describes the samples and ``data`` holds
them, channel by channel within a frame; every other chunk is passed over.
"""

import math
import os
import struct
import wave
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from s4d_torch._extras import missing_package
from s4d_torch.data.dataset import Array, Sequences

SUFFIXES = (".wav", ".flac", ".ogg", ".mp3")

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
WIDTHS = {PCM: (1, 2, 3, 4), FLOAT: (4, 8)}  # bytes of a sample
OTHER_ENCODINGS = {2: "ADPCM", 6: "A-law", 7: "mu-law", 17: "IMA ADPCM", 49: "GSM", 85: "MP3"}
FORMAT_BYTES = 26  # of a chunk 'fmt ' that matter, up to the code of an extensible one
# Who writes to a pipe cannot go back to fill in a size, and leaves one as large as can be.
UNKNOWN_SIZE = 0x7FFFF000


class AudioFormat(NamedTuple):
    """How a file holds its samples; ``dtype`` is the type :func:`read_audio` gives them."""

    sample_rate: int
    channels: int
    frames: int
    dtype: np.dtype[Any]


class _Wav(NamedTuple):
    """Where the samples of a wav file are, and how each is stored."""

    sample_rate: int
    channels: int
    encoding: int
    width: int
    start: int
    size: int

    @property
    def frames(self) -> int:
        return self.size // (self.channels * self.width)

    @property
    def dtype(self) -> np.dtype[Any]:
        if self.encoding == FLOAT:
            return np.dtype(f"f{self.width}")
        return np.dtype(np.int16 if self.width <= 2 else np.int32)


def inspect_audio(path: Path) -> AudioFormat:
    """Rate, channels, length and type of a sound file, without reading its samples."""
    if path.suffix.lower() != ".wav":
        info = _soundfile("info", path)
        small = info.subtype in ("PCM_S8", "PCM_U8", "PCM_16")
        dtype = np.dtype(np.int16 if small else np.float32)
        return AudioFormat(info.samplerate, info.channels, info.frames, dtype)
    with path.open("rb") as file:
        wav = _parse(file, path)
    return AudioFormat(wav.sample_rate, wav.channels, wav.frames, wav.dtype)


def read_audio(path: Path) -> tuple[Array, int]:
    """The samples of a sound file, (n, channels), and its sample rate.

    Integers fill the range of their type: 8 and 16 bits come as int16, 24 and 32 bits as int32.
    Floating point comes as it is, full scale at 1; a number that is not finite is an error.
    """
    if path.suffix.lower() != ".wav":
        dtype = inspect_audio(path).dtype.name
        samples, rate = _soundfile("read", path, dtype=dtype, always_2d=True)
        return _finite(samples, path), int(rate)
    with path.open("rb") as file:
        wav = _parse(file, path)
        file.seek(wav.start)
        stored = file.read(wav.frames * wav.channels * wav.width)
    return _finite(_decode(stored, wav).reshape(-1, wav.channels), path), wav.sample_rate


def read_clip(path: Path, rate: int) -> Array:
    """The samples of a sound with one channel of 16 bits at this rate, (n, 1) of int16."""
    samples, found = read_audio(path)
    if found != rate or samples.shape[1] != 1 or samples.dtype != np.int16:
        raise ValueError(
            f"{path}: {samples.shape[1]} channels of {samples.dtype} at {found} Hz, "
            f"expected one of int16 at {rate} Hz"
        )
    return samples


def mixed_down(samples: Array) -> Array:
    """One channel, (n, 1), the mean of all; in the type they have."""
    if samples.shape[1] == 1:
        return samples
    mean = samples.mean(axis=1, keepdims=True, dtype=np.float64)
    return (np.rint(mean) if samples.dtype.kind == "i" else mean).astype(samples.dtype)


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """The samples (n, channels) of ``rate`` at the rate ``wanted``; in the type they have.

    A polyphase filter holds back what the lower of the two rates cannot carry.
    """
    if rate == wanted:
        return samples
    try:
        resample = import_module("scipy.signal").resample_poly
    except ImportError as error:
        raise missing_package("resampled sounds", "scipy", "audio") from error
    common = math.gcd(rate, wanted)
    found = resample(samples.astype(np.float64), wanted // common, rate // common, axis=0)
    if samples.dtype.kind == "i":
        limits = np.iinfo(samples.dtype)
        found = np.clip(np.rint(found), limits.min, limits.max)
    return np.asarray(found.astype(samples.dtype))


def write_wav(target: Path | BinaryIO, samples: Array, rate: int) -> None:
    """Write one channel of samples from -1 to 1, (n,), with 16 bits each."""
    with wave.open(str(target) if isinstance(target, Path) else target, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(np.rint(32767 * samples).astype("<i2").tobytes())


def full_scale(dtype: np.dtype[Any]) -> float:
    """The number that stands for the loudest sample of a type: 32768 for int16, 1 for floats."""
    return 1.0 if dtype.kind == "f" else float(2 ** (8 * dtype.itemsize - 1))


def root_mean_square(sequences: Sequences, index: Array) -> float:
    """The loudness of the sequences of ``index``, read one by one; 1 where all is silence."""
    energy, count = 0.0, 0
    for i in index:
        samples = sequences[int(i)].astype(np.float64)
        energy += float(np.square(samples, out=samples).sum())
        count += samples.size
    return (energy / count) ** 0.5 if energy > 0 else 1.0


def _decode(stored: bytes, wav: _Wav) -> Array:
    if wav.width == 1:  # unsigned, silence at 128
        return (np.frombuffer(stored, np.uint8).astype(np.int16) - 128) * np.int16(256)
    if wav.width == 3:  # the upper three bytes of four, so that full scale is the type's range
        padded = np.zeros((len(stored) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(stored, np.uint8).reshape(-1, 3)
        return padded.view("<i4").ravel().astype(np.int32)
    return np.frombuffer(stored, wav.dtype.newbyteorder("<")).astype(wav.dtype)


def _parse(file: BinaryIO, path: Path) -> _Wav:
    """Walk through the chunks up to the samples."""
    length = os.fstat(file.fileno()).st_size
    header = file.read(12)
    if len(header) < 12 or header[:4] != b"RIFF" or header[8:] != b"WAVE":
        raise ValueError(
            f"{path}: not a wav file; it begins with {header[:12]!r}, expected b'RIFF....WAVE'"
        )
    riff_size = int(struct.unpack("<I", header[4:8])[0])
    described: tuple[int, int, int, int] | None = None
    while len(head := file.read(8)) == 8:
        name, size = struct.unpack("<4sI", head)
        start = file.tell()
        if name == b"data":
            if described is None:
                raise ValueError(f"{path}: the chunk 'data' comes before 'fmt '; cannot be read")
            there = length - start
            # without a size, all that follows are samples
            if size >= UNKNOWN_SIZE or (size == 0 and riff_size + 8 < length):
                size = there
            if size > there:
                raise ValueError(
                    f"{path}: declares {size} bytes of samples and holds {there}; "
                    "the file is cut short"
                )
            return _Wav(*described, start, size)
        if name == b"fmt ":
            described = _parse_format(file.read(min(size, FORMAT_BYTES)), path)
        file.seek(start + size + size % 2)
    missing = "data" if described else "fmt "
    raise ValueError(f"{path}: the file ends without a chunk {missing!r}; is it complete?")


def _parse_format(chunk: bytes, path: Path) -> tuple[int, int, int, int]:
    """(sample rate, channels, encoding, bytes per sample) of a chunk ``fmt ``."""
    if len(chunk) < 16:
        raise ValueError(f"{path}: the chunk 'fmt ' has {len(chunk)} bytes, expected 16 or more")
    encoding, channels, rate, _, frame, bits = struct.unpack("<HHIIHH", chunk[:16])
    if encoding == EXTENSIBLE and len(chunk) >= 26:
        (encoding,) = struct.unpack("<H", chunk[24:26])  # the first field of the subformat
    width = -(-bits // 8)
    if width not in WIDTHS.get(encoding, ()):
        name = {PCM: "PCM", FLOAT: "float"} | OTHER_ENCODINGS
        raise ValueError(
            f"{path}: {name.get(encoding, f'encoding {encoding}')} of {bits} bits; "
            "expected PCM of 8, 16, 24 or 32 bits or float of 32 or 64; convert the file"
        )
    if channels == 0 or rate == 0 or frame != channels * width:
        raise ValueError(
            f"{path}: the header contradicts itself: {channels} channels of {bits} bits at "
            f"{rate} Hz in frames of {frame} bytes"
        )
    return rate, channels, encoding, width


def _soundfile(do: str, path: Path, **options: Any) -> Any:
    """What a function of soundfile says of a file."""
    try:
        return getattr(import_module("soundfile"), do)(str(path), **options)
    except ImportError as error:
        raise missing_package(f"{path.suffix} files", "soundfile", "audio") from error
    except RuntimeError as error:  # its LibsndfileError is one
        raise ValueError(f"{path}: soundfile cannot read it: {error}") from error


def _finite(samples: Array, path: Path) -> Array:
    if samples.dtype.kind != "f" or np.isfinite(samples).all():
        return samples
    frame, channel = np.argwhere(~np.isfinite(samples))[0]
    raise ValueError(
        f"{path}: sample {frame} of channel {channel} is {samples[frame, channel]}; "
        "samples have to be numbers"
    )
