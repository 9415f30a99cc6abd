"""Chunks for an estimator: in the units of the series that it was fitted to, checked."""

import numpy as np
from torch import Tensor

from s4d_torch.data.dataset import Array
from s4d_torch.deploy.stream.runner import LARGEST_FLOAT32, Chunk


def raw_values(chunk: Chunk, channels: int) -> Array | None:
    """The numbers of a chunk, (length, channels) in double precision; None if it has no samples."""
    values = chunk.detach().cpu().numpy() if isinstance(chunk, Tensor) else np.asarray(chunk)
    if values.ndim and not len(values):
        return None
    if values.dtype.kind not in "iuf":
        raise TypeError(f"a chunk must hold numbers, got {type(chunk).__name__} of {values.dtype}")
    values = values[:, None] if values.ndim == 1 and channels == 1 else values
    if values.ndim != 2 or values.shape[1] != channels:
        raise ValueError(
            f"a chunk must be (length, {channels}), got {values.shape}; time comes first, "
            "and each stream has its own chunk, without a batch"
        )
    return np.asarray(values, dtype=np.float64)


def check_finite(u: Array, values: Array) -> None:
    """What is read, u, must stay finite in a model; the error shows the value it was made of."""
    bad = ~(np.abs(u) < LARGEST_FLOAT32)
    if bad.any():
        sample, channel = np.argwhere(bad)[0]
        raise ValueError(
            f"sample {sample} of the chunk, channel {channel}, is {values[sample, channel]}: "
            "NaN, infinite or too large; nothing of the chunk was used: push it again without, "
            "e.g. with the value before, or make the stream with check_finite=False"
        )
