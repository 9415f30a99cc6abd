"""The sequence engine: one function, four ways to run a system over a sequence, the same answer.

``fft`` convolves with the kernel by Fourier transforms, ``direct`` term by term in compiled code;
``chunk`` multiplies matrices chunk by chunk, carrying the state; ``scan`` is the compiled
recurrence. All take and return the state and obey ``lengths``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from s4d_torch.ssm import convolution, recurrence
from s4d_torch.ssm.compiled import direct, scan
from s4d_torch.ssm.compiled.scan import Blocks
from s4d_torch.ssm.pairs import to_complex, to_real
from s4d_torch.ssm.recurrence import DiagonalSystem, System

ENGINES = ("auto", "fft", "direct", "chunk", "scan")
# up to so many samples, in at least so many sequences, a convolution term by term takes less time
SHORT, MANY = 384, 4


@dataclass(frozen=True)
class Source:
    """What an engine may ask for, made only when it does."""

    diagonal: bool
    compiled_kernel: bool  # K comes from compiled code, or was kept
    system: Callable[[], System]
    kernel: Callable[[], Tensor]  # K, (H, length)
    blocks: Callable[[int], Blocks]  # for the compiled scan: 0 with D inside, 1 to look ahead
    D: Tensor


def choose(engine: str, source: Source, u: Tensor, *, carried: bool = True) -> str:
    """What ``auto`` means here, and what stands in for compiled code where it cannot run.

    Measured by ``s4d bench``: on a CPU diagonal systems are trained fastest term by term where
    sequences are short and many and no state is ``carried`` in or out, and run fastest in the scan
    otherwise; a dense system is best in chunks if there is a state to carry. All else is for the
    FFT, which keeps any device busy.
    """
    compiled = scan.available(u.device, u.dtype)
    if engine == "scan":
        return "scan" if compiled and source.diagonal else "chunk"
    if engine == "direct":
        return "direct" if compiled and u.shape[1] <= direct.LONGEST else "fft"
    if engine != "auto":
        return engine
    if compiled and source.diagonal:
        # a traced graph should not depend on how many sequences it was traced with
        tracing = torch.compiler.is_compiling()
        short = not tracing and u.shape[1] <= SHORT and u.shape[0] >= MANY
        trained = torch.is_grad_enabled() and source.compiled_kernel
        return "direct" if short and trained and not carried else "scan"
    return "chunk" if u.device.type == "cpu" and carried else "fft"


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
    engine = choose(engine, source, u, carried=need_state or state is not None)
    if engine == "scan":
        return _compiled_scan(source, u, state, lengths, need_state)
    x = u.transpose(1, 2)  # (batch, H, L)
    if engine == "chunk":
        system = source.system()
        start = state if state is not None else _zeros(system, x)
        y, end = recurrence.scan(system, x, start)
        if need_state and lengths is not None:
            end = recurrence.end_state(system, x, state, lengths)
        return _with_skip(y, source, u), end if need_state else None
    if engine == "direct":
        y = direct.convolve(u, _add_skip(source.kernel(), source.D))
    else:
        y = _with_skip(convolution.causal(x, source.kernel()), source, u)
    if state is not None:
        response = recurrence.free_response(source.system(), state, x.shape[-1])
        y = y + response.transpose(1, 2).to(y.dtype)
    return y, recurrence.end_state(source.system(), x, state, lengths) if need_state else None


def run_both_ways(source: Source, u: Tensor, *, engine: str = "auto") -> Tensor:
    """``y = K_0 * u + D u`` plus ``K_1`` over what lies strictly ahead; u, y (batch, length, H).

    The kernel is (2, H, length). There is no state to carry, so chunks have nothing to offer here:
    without compiled code it is an FFT.
    """
    engine = choose("scan" if engine == "chunk" else engine, source, u, carried=False)
    if engine == "scan":
        return scan.run_from_rest(u, source.blocks(0)) + scan.run_ahead(u, source.blocks(1))
    if engine == "direct":
        past, future = source.kernel()
        return direct.convolve(u, _add_skip(past, source.D)) + direct.convolve_ahead(u, future)
    return _with_skip(convolution.bidirectional(u.transpose(1, 2), source.kernel()), source, u)


def _with_skip(y: Tensor, source: Source, u: Tensor) -> Tensor:
    """y (batch, H, length) with ``D u`` added, time before channels."""
    return torch.addcmul(y.transpose(1, 2).contiguous(), source.D.to(y.dtype), u)


def _add_skip(kernel: Tensor, D: Tensor) -> Tensor:
    """A kernel whose first tap holds D as well; kernel (H, length)."""
    return torch.cat([kernel[:, :1] + D.to(kernel.dtype)[:, None], kernel[:, 1:]], dim=1)


def _compiled_scan(
    source: Source, u: Tensor, state: Tensor | None, lengths: Tensor | None, need_state: bool
) -> tuple[Tensor, Tensor | None]:
    if state is None and not need_state:
        return scan.run_from_rest(u, source.blocks(0)), None
    batch, length, _ = u.shape
    whole = length // scan.BLOCK
    stops = torch.full((batch,), whole) if lengths is None else lengths // scan.BLOCK
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
