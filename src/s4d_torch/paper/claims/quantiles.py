"""Quantiles of the distributions that noise is judged by, for degrees of freedom whole or not."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


@cache
def student(freedom: float, level: float) -> float:
    """The ``t`` with ``P(|T| > t) = level`` for ``freedom`` degrees, at least one."""
    return _place(lambda t: _inside(t, freedom), 1 - level)


@cache
def chi_square(freedom: float, share: float) -> float:
    """What a ``share`` of the sums of so many squared normal numbers lies below."""
    return _place(lambda value: below_chi_square(freedom, value), share)


def below_chi_square(freedom: float, value: float) -> float:
    """The share of such sums that lies below a value."""
    half = torch.tensor([freedom / 2, value / 2], dtype=torch.float64)
    return float(torch.special.gammainc(*half))


def _inside(t: float, freedom: float) -> float:
    """``P(|T| <= t)``: with T = sqrt(f) tan(x) the density is one of cos(x)^(f - 1)."""
    angle = math.atan(t / math.sqrt(freedom))
    powers = np.cos(angle * (NODES + 1) / 2) ** (freedom - 1)
    log = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return float(angle * (WEIGHTS @ powers)) * math.exp(log) / math.sqrt(math.pi)


def _place(share_below: Callable[[float], float], share: float) -> float:
    """Where a function that rises from 0 to 1 reaches a share, by halving."""
    low, high = 0.0, 1.0
    while share_below(high) < share:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if share_below(middle) < share else (low, middle)
    return high
