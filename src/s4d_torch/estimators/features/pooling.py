"""Series through a bank of filters to features: the parts of the time spent above thresholds.

The loops are in ``pooling_code``, compiled; without numba ``plain`` does the same, slower.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array, Sequences
from s4d_torch.estimators.features import plain
from s4d_torch.estimators.features.bank import FilterBank, quantile_thresholds
from s4d_torch.estimators.features.tables import DOUBLE, SINGLE, WHOLE, FilterTables, Pool
from s4d_torch.ssm.compiled.runtime import as_read, available, compiled_module, share

TILE = 64  # as in pooling_code.py
CASES = 64  # at once, so that memory does not grow with the cases
ENOUGH = 1000  # outputs of a filter, of which its thresholds are quantiles


def push(tables: FilterTables, pool: Pool, u: Tensor, spans: Tensor) -> None:
    """Add to a pool of n series the rows of u (rows, channels) at spans (n, 2): first row, length.

    Systems that read backwards need each series at once.
    """
    n, G = len(pool.samples), tables.systems
    u, spans = _checked(tables, u, spans, (n, 2))
    (samples,) = as_read(WHOLE, samples=(pool.samples, (n,)))
    pool.counts, pool.states, pool.before = as_read(
        DOUBLE,
        counts=(pool.counts, (n, *tables.thresholds.shape)),
        states=(pool.states, (n, G, 2 * tables.padded_modes)),
        before=(pool.before, (n, G)),
    )
    if available(u.device, u.dtype):
        written = (samples, pool.counts, pool.states, pool.before)
        room = (*_room(tables), torch.empty(tables.thresholds[0].numel()))
        arrays = (u, spans, *_read_by_code(tables), tables.thresholds, *written)
        share(_code().count_forward, n * G, _work(tables, spans), (), arrays, room)
    else:
        plain.push(tables, pool, u, spans)
    pool.samples = samples + spans[:, 1]


def features(tables: FilterTables, pool: Pool) -> Array:
    """The part of the samples that lies above each threshold, (n, G K filters)."""
    counts = pool.counts[..., : tables.filters].to(SINGLE)
    counts /= pool.samples.clamp_min(1)[:, None, None, None]
    return np.asarray(counts.flatten(1).numpy())


def features_of(bank: FilterBank, sequences: Sequences) -> Array:
    """Features (n, G K filters) of whole series."""
    tables = FilterTables.of(bank)
    u, spans = rows_and_spans(sequences)
    found = np.empty((len(spans), bank.n_features), np.float32)
    for first in range(0, len(spans), CASES):
        part = spans[first : first + CASES]
        pool = tables.begin(len(part))
        push(tables, pool, u, part)
        found[first : first + CASES] = features(tables, pool)
    return found


def outputs(tables: FilterTables, u: Tensor, spans: Tensor, stride: int) -> tuple[Tensor, Array]:
    """Every ``stride``-th output of system g over the series ``spans[g]``, one after the other.

    ``spans`` (G, n, 2), of which those of length 0 are none. Returns y (G, rows, filters) and how
    many rows of each system there are, (G,); the others are 0.
    """
    G = tables.systems
    u, spans = _checked(tables, u, spans, (G, spans.shape[1], 2), shortest=0)
    counts = (-(-spans[..., 1] // stride)).sum(1)
    y = torch.zeros(G, int(counts.max()), tables.C.shape[2])
    if available(u.device, u.dtype):
        room = (*_room(tables), torch.empty(2 * tables.padded_modes, dtype=DOUBLE))
        arrays = (u, spans, *_read_by_code(tables), y)
        share(_code().outputs_forward, G, y.shape[1] * y.shape[2], (stride,), arrays, room)
    else:
        plain.outputs(tables, u, spans, stride, y)
    return y[..., : tables.filters], counts.numpy()


def with_thresholds(
    bank: FilterBank, sequences: Sequences, random: np.random.Generator
) -> FilterBank:
    """The bank with thresholds at quantiles of its own outputs over some of the series.

    Each system looks at series of its own, as many as have ENOUGH samples together.
    """
    u, spans = rows_and_spans(sequences)
    systems, levels, _ = bank.thresholds.shape
    most = min(len(spans), ENOUGH)
    drawn = [random.choice(len(spans), most, replace=False) for _ in range(systems)]
    chosen = spans[torch.from_numpy(np.stack(drawn))]  # (G, most, 2)
    before = chosen[..., 1].cumsum(1) - chosen[..., 1]
    chosen[..., 1][before >= ENOUGH] = 0
    needed = int((before < ENOUGH).sum(1).max())
    stride = max(1, sequences.longest // ENOUGH)
    y, counts = outputs(FilterTables.of(bank), u, chosen[:, :needed], stride)
    return replace(bank, thresholds=quantile_thresholds(y.numpy(), counts, levels))


def rows_and_spans(sequences: Sequences) -> tuple[Tensor, Tensor]:
    """All samples (rows, channels), and where each series begins and how long it is (n, 2)."""
    lengths = sequences.lengths(np.arange(len(sequences)))
    rows = np.ascontiguousarray(sequences.values, dtype=np.float32)
    spans = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1)
    return torch.from_numpy(rows.reshape(-1, rows.shape[-1])), torch.from_numpy(spans)


def _checked(
    tables: FilterTables, u: Tensor, spans: Tensor, shape: tuple[int, ...], shortest: int = 1
) -> tuple[Tensor, Tensor]:
    """Compiled code reads the rows and channels that it is told of, and looks at nothing else."""
    (u,) = as_read(SINGLE, u=(u, (len(u), u.shape[1])))
    (spans,) = as_read(WHOLE, spans=(spans, shape))
    low, high = (int(x) for x in tables.channels.aminmax())
    if low < 0 or high >= u.shape[1]:
        raise ValueError(f"the filters read channels {low} to {high}, of {u.shape[1]} there are")
    start, length = spans[..., 0], spans[..., 1]
    if bool((start < 0).any() or (length < shortest).any() or (start + length > len(u)).any()):
        raise ValueError(f"a series is empty, or lies outside of the {len(u)} rows there are")
    return u, spans


def _read_by_code(tables: FilterTables) -> tuple[Tensor, ...]:
    return (
        tables.channels, tables.weights, tables.reads, tables.modes, tables.heard, tables.C,
    )  # fmt: skip


def _room(tables: FilterTables) -> tuple[Tensor, Tensor]:
    return torch.empty(TILE, dtype=DOUBLE), torch.empty(TILE * 2 * tables.padded_modes)


def _work(tables: FilterTables, spans: Tensor) -> int:
    return int(spans[:, 1].max()) * int(tables.C.shape[2])


def _code() -> Any:
    return compiled_module(f"{__package__}.pooling_code")
