"""The sequence engine: one function, three ways to run a system over a sequence, the same answer.

``fft`` convolves with the kernel; ``chunk`` multiplies matrices chunk by chunk, carrying the state;
``scan`` is the compiled recurrence. All take and return the state and obey ``lengths``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from s4d_torch.ssm import convolution, recurrence, scan
from s4d_torch.ssm.recurrence import DiagonalSystem, System

ENGINES = ("auto", "fft", "chunk", "scan")


def choose(engine: str, system: System, u: Tensor) -> str:
    """What ``auto`` means here, and what stands in for a scan where it cannot run.

    Measured by ``s4d bench``: on a CPU the scan wins at every length for diagonal systems; a dense
    system is best in chunks; elsewhere the FFT keeps a device busy.
    """
    compiled = isinstance(system, DiagonalSystem) and scan.available(u.device, u.dtype)
    if engine == "scan":
        return "scan" if compiled else "chunk"
    if engine != "auto":
        return engine
    if compiled:
        return "scan"
    return "chunk" if u.device.type == "cpu" else "fft"


def run(
    system: System,
    u: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    *,
    kernel: Callable[[], Tensor],
    D: Tensor,
    engine: str = "auto",
    need_state: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """``y = K * u + D u`` and the end state; u, y (batch, length, H), zero beyond ``lengths``.

    ``kernel`` gives K (H, length) where the engine wants it; ``state`` (batch, H, S).
    """
    engine = choose(engine, system, u)
    if engine == "scan":
        assert isinstance(system, DiagonalSystem)
        return _compiled_scan(system, u, state, lengths, D, need_state)
    x = u.transpose(1, 2)  # (batch, H, L)
    if engine == "fft":
        y = convolution.causal(x, kernel())
        if state is not None:
            y = y + recurrence.free_response(system, state, x.shape[-1]).to(y.dtype)
        end = recurrence.end_state(system, x, state, lengths) if need_state else None
    else:
        start = state if state is not None else _zeros(system, x)
        y, end = recurrence.scan(system, x, start)
        if need_state and lengths is not None:
            end = recurrence.end_state(system, x, state, lengths)
    y = y + D.to(y.dtype)[:, None] * x
    return y.transpose(1, 2), end if need_state else None


def _compiled_scan(
    system: DiagonalSystem,
    u: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    D: Tensor,
    need_state: bool,
) -> tuple[Tensor, Tensor | None]:
    batch, length, _ = u.shape
    blocks = system.blocks(D, u.dtype)
    whole = length // scan.BLOCK
    stops = (
        u.new_full((batch,), whole, dtype=torch.int64) if lengths is None else lengths // scan.BLOCK
    )
    start = None if state is None else system.complex_state(state)
    y, end = scan.run(u, blocks, start, stops)
    if not need_state:
        return y, None
    end = system.real_state(end)
    if lengths is None:
        tail = u[:, scan.BLOCK * whole :].transpose(1, 2)
        return y, recurrence.end_state(system, tail, end) if tail.shape[-1] else end
    # the samples of each sequence after its last whole block, ends aligned
    left = lengths - scan.BLOCK * stops
    place = lengths[:, None] + torch.arange(1 - scan.BLOCK, 0, device=u.device)
    rows = torch.arange(batch, device=u.device)[:, None]
    tail = u[rows, place.clamp(min=0)].transpose(1, 2)
    inside = torch.arange(1 - scan.BLOCK, 0, device=u.device) >= -left[:, None]
    tail = torch.where(inside[:, None], tail, 0.0)
    return y, recurrence.end_state(system, tail, None) + system.advance(end, left, scan.BLOCK)


def _zeros(system: System, x: Tensor) -> Tensor:
    return system.input.new_zeros(x.shape[0], *system.input.shape)
