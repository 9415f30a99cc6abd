"""Numbers that cannot be used: missing ones (NaN), and those that float32 does not hold."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from s4d_torch.data.dataset import Array

Missing = Literal["error", "interpolate"]
LARGEST = float(np.finfo(np.float32).max)


def number_of(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def unusable(values: Array) -> Array:
    """Where values are missing, infinite or too large for float32."""
    return np.asarray(~(np.abs(values) <= LARGEST))  # NaN too: no comparison holds for it


def interpolate(series: Array) -> Array:
    """(..., time) with straight lines over gaps, and the nearest value before and after all others.

    A series without any value keeps its gaps.
    """
    filled = series.copy()
    time = np.arange(series.shape[-1])
    for each in filled.reshape(-1, len(time)):  # rows of the copy, not copies of them
        gap = np.isnan(each)
        if gap.any() and not gap.all():
            each[gap] = np.interp(time[gap], time[~gap], each[~gap])
    return filled


def without_gaps(values: Array, where: str, channels: Sequence[str] = ()) -> Array:
    """(time, channels) with straight lines over gaps; a channel without any value is an error."""
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if (empty := gaps.all(0)).any():
        channel = int(np.argmax(empty))
        name = repr(channels[channel]) if channels else str(channel)
        raise ValueError(f"{where} has no value at all in channel {name}; leave it out")
    return interpolate(values.T).T
