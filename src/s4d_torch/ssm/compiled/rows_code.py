"""Signals in memory, (rows, channels), and in the buffers of compiled code, rows of W channels."""

from s4d_torch.ssm.compiled.code_cache import part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import load, store


@part
def take_rows(source, row, step, n, low, buffer, place):  # type: ignore[no-untyped-def]
    """Rows row, row + step, ... of channels from ``low`` on into n rows of a buffer.

    What the last group of channels lacks is left as it is.
    """
    channels = source.shape[1]
    if low + W <= channels:
        for t in range(n):
            store(buffer, place + t * W, load(source, (row + t * step) * channels + low))
    else:
        for t in range(n):
            for c in range(channels - low):
                buffer[place + t * W + c] = source[row + t * step, low + c]


@part
def put_rows(buffer, row, step, n, low, target):  # type: ignore[no-untyped-def]
    """The inverse of :func:`take_rows`."""
    channels = target.shape[1]
    if low + W <= channels:
        for t in range(n):
            store(target, (row + t * step) * channels + low, load(buffer, t * W))
    else:
        for t in range(n):
            for c in range(channels - low):
                target[row + t * step, low + c] = buffer[t * W + c]
