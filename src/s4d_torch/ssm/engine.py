"""The sequence engine: one function, three ways to run a system over a sequence, the same answer.

``fft`` convolves with the kernel; ``chunk`` multiplies matrices chunk by chunk, carrying the state;
``scan`` is the compiled recurrence. All take and return the state and obey ``lengths``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from s4d_torch.ssm import convolution, recurrence, scan
from s4d_torch.ssm.pairs import to_complex, to_real
from s4d_torch.ssm.recurrence import DiagonalSystem, System
from s4d_torch.ssm.scan import Blocks

ENGINES = ("auto", "fft", "chunk", "scan")


@dataclass(frozen=True)
class Source:
    """What an engine may ask for, made only when it does."""

    diagonal: bool
    system: Callable[[], System]
    kernel: Callable[[], Tensor]  # K, (H, length)
    blocks: Callable[[int], Blocks]  # for the compiled scan: 0 with D inside, 1 to look ahead
    D: Tensor


def choose(engine: str, diagonal: bool, u: Tensor) -> str:
    """What ``auto`` means here, and what stands in for a scan where it cannot run.

    Measured by ``s4d bench``: on a CPU the scan wins at every length for diagonal systems; a dense
    system is best in chunks; elsewhere the FFT keeps a device busy.
    """
    compiled = diagonal and scan.available(u.device, u.dtype)
    if engine == "scan":
        return "scan" if compiled else "chunk"
    if engine != "auto":
        return engine
    if compiled:
        return "scan"
    return "chunk" if u.device.type == "cpu" else "fft"


def run(
    source: Source,
    u: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    *,
    engine: str = "auto",
    need_state: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """``y = K * u + D u`` and the end state; u, y (batch, length, H), state (batch, H, S)."""
    engine = choose(engine, source.diagonal, u)
    if engine == "scan":
        return _compiled_scan(source, u, state, lengths, need_state)
    x = u.transpose(1, 2)  # (batch, H, L)
    if engine == "fft":
        y = convolution.causal(x, source.kernel())
        if state is not None:
            y = y + recurrence.free_response(source.system(), state, x.shape[-1]).to(y.dtype)
        end = recurrence.end_state(source.system(), x, state, lengths) if need_state else None
    else:
        system = source.system()
        start = state if state is not None else _zeros(system, x)
        y, end = recurrence.scan(system, x, start)
        if need_state and lengths is not None:
            end = recurrence.end_state(system, x, state, lengths)
    y = torch.addcmul(y.transpose(1, 2).contiguous(), source.D.to(y.dtype), u)
    return y, end if need_state else None


def run_both_ways(source: Source, u: Tensor, *, engine: str = "auto") -> Tensor:
    """``y = K_0 * u + D u`` plus ``K_1`` over what lies strictly ahead; u, y (batch, length, H).

    The kernel is (2, H, length). There is no state to carry, so chunks have nothing to offer here:
    without the compiled scan it is an FFT.
    """
    if engine != "fft" and choose("scan", source.diagonal, u) == "scan":
        stops = torch.zeros(u.shape[0], dtype=torch.int64)
        y, _ = scan.run(u, source.blocks(0), None, stops)
        return y + scan.run_ahead(u, source.blocks(1))
    x = u.transpose(1, 2)
    y = convolution.bidirectional(x, source.kernel())
    return torch.addcmul(y.transpose(1, 2).contiguous(), source.D.to(y.dtype), u)


def _compiled_scan(
    source: Source, u: Tensor, state: Tensor | None, lengths: Tensor | None, need_state: bool
) -> tuple[Tensor, Tensor | None]:
    batch, length, _ = u.shape
    whole = length // scan.BLOCK
    stops = torch.full((batch,), whole) if lengths is None else lengths // scan.BLOCK
    if state is None and not need_state:
        return scan.run(u, source.blocks(0), None, stops)[0], None
    system = source.system()
    assert isinstance(system, DiagonalSystem)
    start = None if state is None else to_complex(state, system.pairs)
    y, end = scan.run(u, source.blocks(0), start, stops)
    end = to_real(end[..., : system.C.shape[-1]].contiguous(), system.pairs)
    if lengths is None:
        tail = u[:, scan.BLOCK * whole :].transpose(1, 2)
        return y, recurrence.end_state(system, tail, end) if tail.shape[-1] else end
    # the samples of each sequence after its last whole block, ends aligned
    left = lengths - scan.BLOCK * stops
    ahead = torch.arange(1 - scan.BLOCK, 0, device=u.device)
    rows = torch.arange(batch, device=u.device)[:, None]
    tail = u[rows, (lengths[:, None] + ahead).clamp(min=0)].transpose(1, 2)
    tail = torch.where((ahead >= -left[:, None])[:, None], tail, 0.0)
    return y, recurrence.end_state(system, tail, None) + system.advance(end, left, scan.BLOCK)


def _zeros(system: System, x: Tensor) -> Tensor:
    return system.input.new_zeros(x.shape[0], *system.input.shape)
