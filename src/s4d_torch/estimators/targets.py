"""What scikit-learn calls y: classes by their labels, or numbers in their units."""

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from s4d_torch.data.dataset import Array


def read_labels(y: Any) -> tuple[Array, Array, Array]:
    """Labels (cases,), the classes among them in order, and the number of each label's class."""
    labels = column_or_1d(y, warn=True)
    check_array(labels, ensure_2d=False, dtype=None, input_name="y")
    check_classification_targets(labels)
    classes, numbers = np.unique(labels, return_inverse=True)
    return labels, classes, numbers


def check_two_classes(classes: Array) -> None:
    if len(classes) < 2:
        raise ValueError(f"y has one class, {classes.item()!r}; a classifier needs two or more")


def read_numbers(y: Any) -> tuple[Array, bool]:
    """Numbers (cases, outputs) in double precision, and whether they came in columns."""
    numbers = check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
    numbers = np.asarray(numbers, dtype=np.float64)
    return (numbers[:, None], False) if numbers.ndim == 1 else (numbers, True)


def target_units(columns: Array) -> tuple[Array, Array]:
    """Mean and spread of each column; one that never changes keeps its scale."""
    shift, deviation = columns.mean(0), columns.std(0)
    varied = deviation > 1e-12 * np.abs(shift)
    return shift, np.where(varied, deviation, 1.0)
