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


def interpolate(series: Array, times: Array | None = None) -> Array:
    """(..., time) with straight lines over gaps, and the nearest value before and after all others.

    A series without any value keeps its gaps. ``times`` (time,) are those of its samples where
    they are not evenly spaced.
    """
    filled = series.copy()
    time = np.arange(series.shape[-1]) if times is None else times
    for each in filled.reshape(-1, len(time)):  # rows of the copy, not copies of them
        gap = np.isnan(each)
        if gap.any() and not gap.all():
            each[gap] = np.interp(time[gap], time[~gap], each[~gap])
    return filled


def without_gaps(
    values: Array, where: str, channels: Sequence[str] = (), times: Array | None = None
) -> Array:
    """(time, channels) with straight lines over gaps; a channel without any value is an error."""
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if (empty := gaps.all(0)).any():
        channel = int(np.argmax(empty))
        name = repr(channels[channel]) if channels else str(channel)
        raise ValueError(f"{where} has no value at all in channel {name}; leave it out")
    return interpolate(values.T, times).T


def without_empty_samples(values: Array, times: Array, where: str) -> tuple[Array, Array]:
    """(time, channels) and (time,) without samples that have no value at all.

    Who is told the times needs no value where nothing was measured.
    """
    there = ~np.isnan(values).all(1)
    if there.all():
        return values, times
    if not there.any():
        raise ValueError(f"{where} has no value at all; leave it out")
    return values[there], times[there]
