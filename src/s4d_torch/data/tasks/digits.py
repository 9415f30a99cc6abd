"""Handwritten digits as sequences: 8x8 images that come with the package, read pixel by pixel.

``digits.npz`` beside this file holds the test set of UCI's *Optical Recognition of Handwritten
Digits* (Alpaydin and Kaynak 1998, CC BY 4.0): ``pixels`` (1797, 64), ``labels`` (1797,), of uint8.
scikit-learn ships the same images in the same order.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.splits import split_randomly
from s4d_torch.data.task import LAPTOP, Image, Task, register

IMAGES = Path(__file__).with_name("digits.npz")
BRIGHTEST = 16.0  # a pixel counts the dark points of a 4x4 field


@dataclass(frozen=True)
class DigitsOptions:
    """1797 images of 8x8 pixels; nothing is downloaded."""

    split_seed: int = 0
    """of the random splits: 70% to learn from, 10% to validate, 20% to test"""


def load_digits(
    options: DigitsOptions = DigitsOptions(),  # noqa: B008  frozen
    folder: DataFolder | None = None,
) -> Dataset:
    """1797 images as (n, 64, 1) with classes 0 to 9."""
    with np.load(IMAGES) as images:
        pixels, labels = images["pixels"], images["labels"]
    signature = Signature.of_classes("0123456789", length=64, input_scale=(1 / BRIGHTEST,))
    whole = Split.whole(Sequences(pixels[..., None]), labels.astype(np.int64))
    return split_randomly(whole, signature, validation=0.1, test=0.2, seed=options.split_seed)


SMALL = replace(LAPTOP, n_layers=2, d_model=48, norm="batch", lr=0.02, epochs=20, weight_decay=0.01)

register(
    Task(
        name="digits",
        summary="handwritten digits, 8x8 pixels, read pixel by pixel",
        options=DigitsOptions,
        load=load_digits,
        metric="accuracy",
        length=64,
        size="embedded",
        licence="CC BY 4.0",
        image=lambda options: Image(side=8, brightest=BRIGHTEST),
        citation="Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (UCI)",
        # 64 samples are few: steps this large let a kernel fade within them
        small=replace(SMALL, dt_min=0.01, dt_max=0.5, bidirectional=False),
    )
)
