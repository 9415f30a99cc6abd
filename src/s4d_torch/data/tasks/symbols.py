"""Sequences whose next symbol is predicted from those before.

The values of another task become symbols by a quantisation: even steps for pixels, the mu-law for
sound. A model that predicts the next one can generate. ``digits-pixels`` and ``spoken-audio`` come
with the package, ``mnist-pixels`` and ``fsdd-audio`` are downloaded.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.task import LAPTOP, TASKS, register
from s4d_torch.data.tasks import digits, fsdd, mnist, spoken
from s4d_torch.data.tasks.quantization import QUANTIZATIONS, check_levels

GREYS = 17  # of the embedded digits
INT16 = np.arange(2**16).astype(np.uint16).view(np.int16)  # in the order of their bits


@dataclass(frozen=True)
class MnistPixelsOptions(mnist.MnistOptions):
    """As mnist, with the pixels as levels of grey."""

    levels: int = 16
    """of grey, 0 being black"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_levels(self.levels)


@dataclass(frozen=True)
class FsddAudioOptions(fsdd.FsddClips):
    """As fsdd, with the samples as levels of the mu-law."""

    levels: int = 256
    """of loudness, of either sign"""
    join_seconds: float | None = None
    """join the clips of each split, in random order, into long sequences of so many seconds"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_levels(self.levels)
        if self.join_seconds is not None and not self.join_seconds * fsdd.RATE >= 1:
            raise ValueError(f"join_seconds {self.join_seconds}: expected at least one sample")


def load_mnist_pixels(options: MnistPixelsOptions, folder: DataFolder) -> Dataset:
    """Images as (n, 784) levels, row by row."""
    dataset = mnist.load_mnist(mnist.MnistOptions(options.split_seed), folder)
    return as_symbols(dataset, "linear", np.arange(256) / 255, options.levels)


def load_fsdd_audio(options: FsddAudioOptions, folder: DataFolder) -> Dataset:
    """Clips as levels, (samples,) each."""
    plain = fsdd.FsddOptions(options.max_seconds, options.split_seed)
    dataset = as_symbols(fsdd.load_fsdd(plain, folder), "mu-law", INT16 / 2**15, options.levels)
    if options.join_seconds is None:
        return dataset
    return joined(dataset, round(options.join_seconds * fsdd.RATE), options.split_seed)


def load_digits_pixels(options: digits.DigitsOptions, folder: DataFolder) -> Dataset:
    """Images as (n, 64) levels 0 to 16, row by row: the pixels as they are."""
    return as_symbols(
        digits.load_digits(options, folder), "linear", np.arange(256) / digits.BRIGHTEST, GREYS
    )


def load_spoken_audio(options: spoken.SpokenOptions, folder: DataFolder) -> Dataset:
    """Clips as the levels that they are stored in, (samples,) each."""
    return as_symbols(
        spoken.load_spoken(options, folder), "mu-law", INT16 / spoken.LOUDEST, spoken.LEVELS
    )


def joined(dataset: Dataset, length: int, seed: int) -> Dataset:
    """The sequences of each split one after the other, in random order, cut into equal ones.

    What is left at the end, shorter than ``length``, is not used.
    """

    def join(split: Split) -> Split:
        order = np.random.Generator(np.random.PCG64(seed)).permutation(split.index)
        stream = split.inputs[0].packed(order)
        if len(stream) < length:
            raise ValueError(
                f"sequences of {length:,} samples are too long: a split has {len(stream):,} in all"
            )
        rows = stream[: len(stream) // length * length].reshape(-1, length)
        return Split.whole(Sequences(rows), np.zeros(len(rows), dtype=np.int64))

    return replace(dataset.mapped(join), signature=replace(dataset.signature, length=length))


def as_symbols(dataset: Dataset, quantization: str, values: Array, levels: int) -> Dataset:
    """A dataset of one feature, stored as integers, as symbols to predict one after the other.

    ``values`` has what each integer stands for, in the order of their bits without a sign.
    """
    symbol = QUANTIZATIONS[quantization].encode(values, levels).astype(np.uint8)
    made: dict[int, Array] = {}  # splits share what they are stored in

    def encoded(split: Split) -> Split:
        stored = split.inputs[0].values
        if id(stored) not in made:
            made[id(stored)] = symbol[stored[..., 0].view(f"u{stored.dtype.itemsize}")]
        return replace(split, inputs=(replace(split.inputs[0], values=made[id(stored)]),))

    signature = Signature(
        "generation",
        features=levels + 1,
        outputs=levels,
        length=dataset.signature.length,
        tokens=True,
        sample_rate=dataset.signature.sample_rate,
        quantization=quantization,
    )
    return replace(dataset.mapped(encoded), signature=signature)


def counted_bits(dataset: Dataset, splits: Iterable[Split], order: int) -> float:
    """Bits per symbol of ``splits`` by counting, in training, what follows each ``order`` symbols.

    Order 0 is how frequent symbols are, order 1 which of them follow the symbol before. Each count
    starts from 1, so that what training did not see has a chance too.
    """
    levels = dataset.signature.outputs
    counts = np.ones((levels + 1) ** order * levels)
    for places in _places(dataset.train, levels, order):
        counts += np.bincount(places, minlength=len(counts))
    chances = counts.reshape(-1, levels) / counts.reshape(-1, levels).sum(1, keepdims=True)
    bits = -np.log2(chances).ravel()
    every = (places for split in splits for places in _places(split, levels, order))
    total, symbols = np.sum([(bits[places].sum(), len(places)) for places in every], axis=0)
    return float(total / symbols)


def _places(split: Split, levels: int, order: int) -> Iterator[Array]:
    """For each sequence and symbol the place of its count; the beginning is a symbol of its own."""
    for i in split.index:
        symbols = np.concatenate([np.full(order, levels), split.inputs[0][int(i)]]).astype(np.int64)
        place = symbols[order:]
        for back in range(1, order + 1):
            before = symbols[order - back : len(symbols) - back]
            place = place + before * levels * (levels + 1) ** (back - 1)
        yield place


_SMALL = replace(
    LAPTOP, n_layers=3, lr=0.01, dropout=0.0, weight_decay=0.01, bidirectional=False, pooling="none"
)

register(
    replace(
        TASKS["mnist"],
        name="mnist-pixels",
        summary="handwritten digits, 28x28 pixels: the next pixel from those before",
        options=MnistPixelsOptions,
        load=load_mnist_pixels,
        metric="bits",
        small=replace(_SMALL, epochs=2),
    )
)
register(
    replace(
        TASKS["fsdd"],
        name="fsdd-audio",
        summary="spoken digits, raw audio at 8 kHz: the next sample from those before",
        options=FsddAudioOptions,
        load=load_fsdd_audio,
        metric="bits",
        small=replace(_SMALL, batch_size=16, epochs=5),
    )
)
register(
    replace(
        TASKS["digits"],
        name="digits-pixels",
        summary="handwritten digits, 8x8 pixels: the next pixel from those before",
        load=load_digits_pixels,
        metric="bits",
        small=replace(_SMALL, epochs=12, dt_min=0.01, dt_max=0.5),
    )
)
register(
    replace(
        TASKS["spoken"],
        name="spoken-audio",
        summary="spoken digits, raw audio at 8 kHz: the next sample from those before",
        load=load_spoken_audio,
        metric="bits",
        small=replace(_SMALL, batch_size=16, epochs=5),
    )
)
