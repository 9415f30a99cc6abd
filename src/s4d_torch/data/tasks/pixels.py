"""Images as sequences of pixels: the splits and the scaling that CIFAR and MNIST share."""

from dataclasses import dataclass

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.splits import cut_randomly
from s4d_torch.data.task import check_at_least

VALIDATION = 0.1
ROWS = 2048  # images in memory at a time


@dataclass(frozen=True)
class ImageOptions:
    """A tenth of the training images, chosen by a seed, validates; the official test set tests."""

    split_seed: int = 0
    """of the random tenth of the training images that validates"""

    def __post_init__(self) -> None:
        check_at_least(0, self, "split_seed")


def image_dataset(train: Split, test: Split, classes: tuple[str, ...], seed: int) -> Dataset:
    """Pixels (n, length, channels) of uint8, read as numbers of mean 0 and deviation 1.

    Both per channel, over the training images without those that validate.
    """
    learned, validating = cut_randomly(len(train), (VALIDATION,), seed)
    if not (len(validating) and len(test)):
        raise ValueError(
            f"{len(train)} training and {len(test)} test images are too few: "
            f"training, validation ({VALIDATION:.0%} of training) and test need one each"
        )
    pixels = train.inputs[0].values
    mean, deviation = channel_statistics(pixels, learned)
    signature = Signature.of_classes(
        classes,
        features=pixels.shape[2],
        length=pixels.shape[1],
        input_shift=tuple(mean.tolist()),
        input_scale=tuple((1 / np.where(deviation > 0, deviation, 1)).tolist()),
    )
    return Dataset(train.part(learned), train.part(validating), test, signature)


def channel_statistics(pixels: Array, index: Array) -> tuple[Array, Array]:
    """Mean and deviation per channel, (channels,), of the images in ``index``.

    From counts of the 256 values, so they are exact whatever the order and the number of images.
    """
    counts = np.zeros((pixels.shape[2], 256), dtype=np.int64)
    for start in range(0, len(index), ROWS):
        block = pixels[index[start : start + ROWS]]
        for channel, count in enumerate(counts):
            count += np.bincount(block[..., channel].ravel(), minlength=256)
    value = np.arange(256)
    mean = counts @ value / counts.sum(axis=1)
    square = counts @ value**2 / counts.sum(axis=1)
    return mean, np.sqrt(square - mean**2)


def check_labels(labels: Array, classes: int, where: str) -> None:
    """Labels must be below ``classes``; the error gives the place of the first that is not."""
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        raise ValueError(
            f"{where}: the label of image {wrong[0]} (counting from 0) is {labels[wrong[0]]}, "
            f"expected 0 to {classes - 1}; the file is damaged or of another data set"
        )
