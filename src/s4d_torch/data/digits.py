"""Handwritten digits as sequences: the 8x8 images that scikit-learn ships, read pixel by pixel."""

from __future__ import annotations

import torch

from s4d_torch._extras import missing_package
from s4d_torch.data.dataset import Dataset, Split, split_randomly

BRIGHTEST = 16.0  # a pixel counts the dark points of a 4x4 field


def load_digits(seed: int = 0) -> Dataset:
    """1797 images as (n, 64, 1) in [0, 1] with classes 0 to 9; 70% / 10% / 20% splits.

    Nothing is downloaded. Needs scikit-learn, from the extra ``estimators``.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise missing_package("the digits", "scikit-learn", "estimators") from error
    pixels, labels = datasets.load_digits(return_X_y=True)
    inputs = torch.as_tensor(pixels, dtype=torch.float32)[..., None] / BRIGHTEST  # (n, 64, 1)
    whole = Split(inputs, torch.as_tensor(labels, dtype=torch.int64))
    return split_randomly(whole, classes=10, validation=0.1, test=0.2, seed=seed)
