"""The loops of ``pooling_code`` in plain torch: for where numba does not work, and to test them.

All systems of all series go one sample further at a time.
"""

import torch
from torch import Tensor

from s4d_torch.estimators.features.tables import DOUBLE, SINGLE, FilterTables, Pool


def push(tables: FilterTables, pool: Pool, u: Tensor, spans: Tensor) -> None:
    """As ``count_forward``, apart from the number of samples, which the caller keeps."""
    lengths = spans[:, 1]
    for t in range(int(lengths.max())):
        on = t < lengths  # (n,)
        x = mixtures(tables, u, spans, t)  # (n, G)
        if t == 0:
            pool.before = torch.where((pool.samples == 0)[:, None], x, pool.before)
        given = torch.where(tables.reads[:, 0] > 0, x - pool.before, x)
        states = step(tables, pool.states, given)
        above = respond(tables, states)[:, :, None] > tables.thresholds
        pool.counts += above & on[:, None, None, None]
        pool.before = torch.where(on[:, None], x, pool.before)
        pool.states = torch.where(on[:, None, None], states, pool.states)


def outputs(tables: FilterTables, u: Tensor, spans: Tensor, stride: int, y: Tensor) -> None:
    """As ``outputs_forward``: fills y (G, rows, F)."""
    for g in range(tables.systems):
        place = 0
        for span in spans[g].split(1):
            state = torch.zeros(1, tables.systems, 2 * tables.padded_modes, dtype=DOUBLE)
            before = None
            for t in range(int(span[0, 1])):
                x = mixtures(tables, u, span, t)
                change = torch.zeros_like(x) if before is None else x - before
                state = step(tables, state, torch.where(tables.reads[:, 0] > 0, change, x))
                before = x
                if t % stride == 0:
                    y[g, place] = respond(tables, state)[0, g]
                    place += 1


def mixtures(tables: FilterTables, u: Tensor, spans: Tensor, t: int) -> Tensor:
    """What each system reads at its step t, (n, G); beyond the end of a series, its last sample."""
    start, length = spans[:, :1], spans[:, 1:]
    at = length.sub(1).clamp_max(t)
    row = start + torch.where(tables.reads[:, 1] > 0, length - 1 - at, at)  # (n, G)
    return (u[row[..., None], tables.channels].to(DOUBLE) * tables.weights).sum(-1)


def step(tables: FilterTables, states: Tensor, x: Tensor) -> Tensor:
    """``A_bar s + B_bar x`` for states (n, G, 2 P), real parts first, and x (n, G)."""
    a, e, b, c = tables.modes.unflatten(1, (4, -1)).unbind(1)
    r, i = states.chunk(2, dim=-1)
    x = x[..., None]
    return torch.cat([b * x + a * r - e * i, c * x + a * i + e * r], dim=-1)


def respond(tables: FilterTables, states: Tensor) -> Tensor:
    """Outputs (n, G, F) of states (n, G, 2 P)."""
    modes = tables.C.shape[1] // 2
    turns = states.unflatten(2, (2, -1))[..., :modes].transpose(2, 3).flatten(2)  # re, im, re, ...
    return torch.einsum("ngj,gjf->ngf", turns.to(SINGLE), tables.C)
