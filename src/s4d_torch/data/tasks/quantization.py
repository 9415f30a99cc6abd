"""Values as symbols and back: even steps for pixels, the mu-law for sound."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from s4d_torch._registry import Registry
from s4d_torch.data.dataset import Array


@dataclass(frozen=True)
class Quantization:
    """``encode(values, levels)`` gives symbols below ``levels``; ``decode`` undoes it.

    Each symbol stands for one value between ``low`` and 1: ``encode(decode(s)) = s``. Values beyond
    these are cut off.
    """

    encode: Callable[[Array, int], Array]
    decode: Callable[[Array, int], Array]
    low: float


def encode_linear(values: Array, levels: int) -> Array:
    """Values from 0 to 1 -> the nearest of ``levels`` even steps."""
    return np.floor(np.clip(values, 0, 1) * (levels - 1) + 0.5).astype(np.int64)


def decode_linear(symbols: Array, levels: int) -> Array:
    return np.asarray(symbols) / (levels - 1)


def encode_mu_law(values: Array, levels: int) -> Array:
    """Values from -1 to 1 -> even steps of ``sign(x) log(1 + mu |x|) / log(1 + mu)``.

    mu = levels - 1. Small values get fine steps and large ones coarse steps, as the ear has them.
    """
    mu = levels - 1
    values = np.clip(np.asarray(values, dtype=np.float64), -1, 1)
    bent = np.sign(values) * np.log1p(mu * np.abs(values)) / np.log1p(mu)
    return np.floor((bent + 1) / 2 * mu + 0.5).astype(np.int64)


def decode_mu_law(symbols: Array, levels: int) -> Array:
    mu = levels - 1
    bent = 2 * np.asarray(symbols) / mu - 1
    return np.sign(bent) * np.expm1(np.abs(bent) * np.log1p(mu)) / mu


QUANTIZATIONS: Registry[Quantization] = Registry("quantization")
QUANTIZATIONS.register("linear", Quantization(encode_linear, decode_linear, low=0.0))
QUANTIZATIONS.register("mu-law", Quantization(encode_mu_law, decode_mu_law, low=-1.0))


def check_levels(levels: int) -> None:
    if isinstance(levels, bool) or not isinstance(levels, int):
        raise TypeError(f"levels must be an integer, got {levels!r}")
    if not 2 <= levels <= 256:
        raise ValueError(f"levels must lie between 2 and 256, got {levels}")
