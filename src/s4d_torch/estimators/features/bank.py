"""Frozen diagonal state spaces with random outputs: the filters whose responses become features.

A *system* has the eigenvalues of S4D-LegS at one step size, reads one mixture of the channels, as
it is or as its first difference, forwards or backwards, and sends its states to many filters:

    s_t = A_bar s_(t-1) + B_bar x_t        y_(t,f) = Re sum_j C_(f,j) s_(t,j)

Nothing of it is learned but the thresholds, quantiles of y over training cases.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from s4d_torch.data.dataset import Array
from s4d_torch.ssm.discretization import zoh
from s4d_torch.ssm.initialization import diagonal

FASTEST = 0.5  # the largest step size: its kernels see about two samples
LEAST_RANGE = 4  # by which factor at least the smallest step size is smaller
MOST_CHANNELS = 9  # in one mixture: of more, a sum says little about any of them
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class FilterBank:
    """G systems of M modes and F filters, which read mixtures of S channels; K thresholds each.

    ``channels``, ``weights`` (G, S): the mixture. ``reads`` (G, 2): whether a system reads
    differences, whether backwards. ``modes`` (G, 4, M): A_bar and B_bar, real and imaginary parts
    of each. ``C`` (G, 2 M, F): what the real and the imaginary part of each mode in turn send
    to each filter. ``thresholds`` (G, K, F).
    """

    channels: Array
    weights: Array
    reads: Array
    modes: Array
    C: Array
    thresholds: Array

    @property
    def n_features(self) -> int:
        return int(self.thresholds.size)


DTYPES = {
    "channels": np.int64,
    "weights": np.float64,
    "reads": np.int64,
    "modes": np.float64,
    "C": np.float32,
    "thresholds": np.float32,
}


def check_bank(bank: FilterBank, channels: int) -> None:
    """Refuse arrays that do not fit together: compiled code trusts them."""
    for name, dtype in DTYPES.items():
        array = getattr(bank, name)
        if array.dtype != dtype or array.size == 0 or not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite numbers of type {np.dtype(dtype)}")
    systems, filters = bank.C.shape[0], bank.C.shape[-1]
    expected = {
        "channels": (systems, bank.channels.shape[-1]),
        "weights": (systems, bank.channels.shape[-1]),
        "reads": (systems, 2),
        "modes": (systems, 4, bank.modes.shape[-1]),
        "C": (systems, 2 * bank.modes.shape[-1], filters),
        "thresholds": (systems, bank.thresholds.shape[-2], filters),
    }
    for name, shape in expected.items():
        if (found := getattr(bank, name).shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, got {found}")
    if bank.channels.min() < 0 or bank.channels.max() >= channels:
        raise ValueError(f"channels must be below {channels}, got up to {bank.channels.max()}")
    if not np.isin(bank.reads, (0, 1)).all():
        raise ValueError("reads must be 0 or 1")
    if (np.hypot(bank.modes[:, 0], bank.modes[:, 1]) >= 1).any():
        raise ValueError("modes must decay: A_bar inside the unit circle")


def draw_bank(
    random: np.random.Generator, *, channels: int, length: int, systems: int, filters: int,
    thresholds: int, d_state: int, causal: bool, differences: bool,
) -> FilterBank:  # fmt: skip
    """Systems whose kernels are from two samples to ``length`` wide; thresholds still 0.

    Step sizes are log-uniform, one from each of as many intervals as there are systems of a kind.
    """
    directions, forms = (0,) if causal else (0, 1), (0, 1) if differences else (0,)
    kinds = [(form, way) for way in directions for form in forms]
    reads = np.array([kinds[g % len(kinds)] for g in range(systems)], dtype=np.int64)
    rank, ranks = np.arange(systems) // len(kinds), -(-systems // len(kinds))
    slowest = min(FASTEST / LEAST_RANGE, 1 / length)
    place = (rank + random.random(systems)) / ranks
    modes = discrete_modes(d_state, slowest * (FASTEST / slowest) ** place)
    heard, weights = draw_mixtures(random, systems, channels)
    C = random.standard_normal((systems, 2 * modes.shape[2], filters))
    return FilterBank(
        channels=heard,
        weights=weights,
        reads=reads,
        modes=modes,
        C=without_gain(C, modes).astype(np.float32),
        thresholds=np.zeros((systems, thresholds, filters), np.float32),
    )


def discrete_modes(d_state: int, dt: Array) -> Array:
    """A_bar and B_bar (G, 4, M) of LegS at step sizes ``dt`` (G,).

    The slowest first. A mode beyond the Nyquist frequency would only be an alias of another: it is
    silent, with A_bar = B_bar = 0.
    """
    A = diagonal("legs", d_state, 1).A[0]  # (M,)
    A = A[A.imag.abs().argsort()]
    steps = torch.from_numpy(dt)[:, None]
    rule = zoh(A, torch.ones_like(A), steps)
    A_bar, B_bar = rule.log_A.exp(), rule.B_now
    heard = (A.imag.abs() * steps < math.pi).numpy()
    parts = [A_bar.real, A_bar.imag, B_bar.real, B_bar.imag]
    return np.stack([np.where(heard, part.numpy(), 0.0) for part in parts], axis=1)


def without_gain(C: Array, modes: Array) -> Array:
    """C (G, 2 M, F) where every second filter answers a constant with zero: it sees shapes alone.

    Under a constant 1 the states come to ``g = B_bar / (1 - A_bar)``; of C what lies along g goes.
    """
    A_bar, B_bar = (modes[:, i] + 1j * modes[:, i + 1] for i in (0, 2))
    g = B_bar / (1 - A_bar)
    gain = np.stack([g.real, g.imag], axis=2).reshape(len(C), -1)  # (G, 2 M)
    unit = gain / np.linalg.norm(gain, axis=1, keepdims=True)
    balanced = C.copy()
    balanced[:, :, ::2] -= unit[:, :, None] * np.einsum("gj,gjf->gf", unit, C)[:, None, ::2]
    return balanced


def draw_mixtures(random: np.random.Generator, systems: int, channels: int) -> tuple[Array, Array]:
    """For each system some channels, few more often than many, added or subtracted."""
    most = min(channels, MOST_CHANNELS)
    heard, weights = np.zeros((systems, most), np.int64), np.zeros((systems, most))
    for g in range(systems):
        count = int(2 ** random.uniform(0, math.log2(most + 1)))
        heard[g, :count] = random.choice(channels, count, replace=False)
        weights[g, :count] = random.choice((-1.0, 1.0), count)
    return heard, weights


def quantile_thresholds(outputs: Array, counts: Array, thresholds: int) -> Array:
    """Quantiles (G, K, F) of the first ``counts[g]`` of the outputs (G, rows, F) of each system.

    Their levels are multiples of the golden ratio: spread evenly over all filters, and any few that
    follow one another are far apart.
    """
    systems, _, filters = outputs.shape
    ordered = np.ascontiguousarray(outputs.transpose(0, 2, 1))  # (G, F, rows)
    for each, count in zip(ordered, counts, strict=True):
        each[:, count:] = np.inf
    ordered.sort(axis=-1)
    levels = np.arange(1, systems * filters * thresholds + 1) * GOLDEN % 1
    levels = levels.reshape(systems, filters, thresholds)
    places = np.rint(levels * (counts - 1)[:, None, None]).astype(np.int64)
    found = np.take_along_axis(ordered, places, axis=-1)
    return np.ascontiguousarray(found.transpose(0, 2, 1))
