"""Symbols in files: prompts to read, and generated symbols as sounds, pictures or numbers."""

import math
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.files.png import read_png, require_pillow, write_png
from s4d_torch.data.files.sound import SUFFIXES, full_scale, read_audio, write_wav
from s4d_torch.data.tasks.quantization import QUANTIZATIONS, encode_linear, encode_mu_law

FORMATS = (".wav", ".png", ".npy", ".txt")
PAUSE = 0.2  # seconds between two sounds of a file
GREY = 96  # between the pictures of a file


def check_format(out: Path, signature: Signature, width: int | None = None) -> None:
    """Refuse a file that such symbols cannot be written to, before they are made."""
    suffix = out.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"out must end in one of {', '.join(FORMATS)}; got {out.name!r}")
    if suffix == ".wav" and (signature.quantization != "mu-law" or signature.sample_rate is None):
        raise ValueError(f"out {out.name}: the symbols of this run are no sound; use .npy")
    if suffix == ".png":
        if signature.quantization != "linear":
            raise ValueError(f"out {out.name}: the symbols of this run are no pixels; use .npy")
        require_pillow()
        if width is None:
            picture_width(signature)


def write_symbols(
    out: Path, symbols: Array, signature: Signature, *, width: int | None = None, zoom: int = 1
) -> None:
    """symbols (count, length) as sounds after each other, pictures in a grid, or numbers."""
    out.parent.mkdir(parents=True, exist_ok=True)
    suffix = out.suffix.lower()
    if suffix == ".npy":
        np.save(out, symbols)
    elif suffix == ".txt":
        out.write_text(as_text(symbols) + "\n", "utf-8")
    else:
        values = QUANTIZATIONS[signature.quantization].decode(symbols, signature.outputs)
        if suffix == ".wav":
            assert signature.sample_rate is not None
            rate = round(signature.sample_rate)
            quiet = np.zeros((len(values), round(PAUSE * rate)))
            sounds = np.concatenate([values, quiet], axis=1).ravel()
            write_wav(out, sounds[: sounds.size - quiet.shape[1]], rate)
        else:
            width = picture_width(signature) if width is None else width
            write_png(out, grid(np.rint(255 * values).astype(np.uint8), width, zoom))


def as_text(symbols: Array) -> str:
    """A line of numbers for each sequence."""
    return "\n".join(" ".join(map(str, row)) for row in symbols.tolist())


def picture_width(signature: Signature) -> int:
    side = math.isqrt(length := signature.length)
    if side * side != length:
        raise ValueError(f"width: name the pixels of a row; {length} pixels are no square")
    return side


def grid(pixels: Array, width: int, zoom: int = 1, columns: int | None = None) -> Array:
    """pixels (count, length) as pictures (length / width, width), by default in a square."""
    count, length = pixels.shape
    height, columns = -(-length // width), columns or math.ceil(math.sqrt(count))
    rows, border = -(-count // columns), int(count > 1)
    whole = np.full((rows * (height + border), columns * (width + border)), GREY, dtype=np.uint8)
    padded = np.pad(pixels, ((0, 0), (0, height * width - length)))
    for i, picture in enumerate(padded.reshape(count, height, width)):
        y, x = i // columns * (height + border), i % columns * (width + border)
        whole[y : y + height, x : x + width] = picture
    whole = whole[: whole.shape[0] - border, : whole.shape[1] - border]
    return whole.repeat(zoom, axis=0).repeat(zoom, axis=1)


def read_symbols(file: Path, signature: Signature) -> list[Array]:
    """The sequences of symbols in a file: numbers as they are, sound and pixels quantised."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    suffix = file.suffix.lower()
    if suffix == ".npy":
        sequences = list(np.atleast_2d(_load(file)))
    elif suffix == ".txt":
        sequences = _numbers(file)
    elif suffix == ".png" and signature.quantization == "linear":
        sequences = [encode_linear(read_png(file).ravel() / 255, signature.outputs)]
    elif suffix in SUFFIXES and signature.quantization == "mu-law":
        sequences = [encode_mu_law(_sound(file, signature), signature.outputs)]
    else:
        raise ValueError(
            f"{file} cannot be read as a prompt; expected symbols as numbers in .npy or .txt, "
            "for sounds also .wav, for pictures .png"
        )
    for each in sequences:
        if len(each) and not 0 <= each.min() <= each.max() < signature.outputs:
            raise ValueError(
                f"{file}: symbols have to be whole numbers from 0 to {signature.outputs - 1}, "
                f"got {each.min()} to {each.max()}"
            )
    return sequences


def _load(file: Path) -> Array:
    try:
        stored = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if stored.ndim not in (1, 2) or stored.dtype.kind not in "iu":
        raise ValueError(
            f"{file}: expected whole numbers, (length,) or (count, length), "
            f"got {stored.dtype} {stored.shape}"
        )
    return np.asarray(stored)


def _numbers(file: Path) -> list[Array]:
    try:
        lines = file.read_text("utf-8").split("\n")
        return [np.array(line.split(), dtype=np.int64) for line in lines if line.strip()]
    except ValueError as error:
        raise ValueError(f"{file}: expected whole numbers, a line for a sequence") from error


def _sound(file: Path, signature: Signature) -> Array:
    samples, rate = read_audio(file)
    if samples.shape[1] != 1 or rate != signature.sample_rate:
        raise ValueError(
            f"{file} has {samples.shape[1]} channels at {rate} Hz; "
            f"expected one at {signature.sample_rate:g} Hz"
        )
    return samples[:, 0] / full_scale(samples.dtype)
