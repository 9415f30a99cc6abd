"""The compiled scan as an operator of torch: autograd, ``torch.compile`` and export see through it.

Without a working numba, off the CPU, or in another precision than float32 and float64,
:func:`available` says no, and plain torch takes over.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.ssm.compiled.pages import in_large_pages
from s4d_torch.ssm.compiled.threads import run_in_threads

BLOCK, SEGMENT, GROUP = 4, 256, 16  # as in compiled.py, which needs numba to be imported
_INSTALLED = os.environ.get("S4D_TORCH_COMPILED", "1") != "0" and find_spec("numba") is not None
_READY: set[tuple[Any, torch.dtype]] = set()  # kernels that are compiled for a dtype
SERIAL = 2**18  # mode steps; for fewer, waking a thread takes longer than the work


class Blocks(NamedTuple):
    """A system as the compiled scan reads it, four samples at a time; see ``compiled``.

    tables (H, 9 S) = power, outputs, inputs; kernel (H, 4); drift (H, S); carry (H, S), in double
    precision. Vectors over S = 2 M are planar, and M is padded to a power of two, so that few sizes
    have to be compiled.
    """

    tables: Tensor
    kernel: Tensor
    drift: Tensor
    carry: Tensor


def padded(modes: int) -> int:
    """The number of modes that is compiled for: the next power of two, at least 8."""
    return max(8, 1 << (modes - 1).bit_length())


def make_blocks(A_bar: Tensor, B: Tensor, C: Tensor, direct: Tensor, dtype: torch.dtype) -> Blocks:
    """The tables of ``y = C s + direct u, s <- A_bar s + B u``; A_bar, B, C (H, M), direct (H,).

    C already holds the factor 2 of conjugate pairs.
    """
    A2 = A_bar * A_bar
    powers = torch.stack([torch.ones_like(A_bar), A_bar, A2, A2 * A_bar], dim=1)  # (H, 4, M)
    outputs = C[:, None] * powers
    lagged = (outputs[:, :3] * B[:, None]).real.sum(-1)  # C A^j B, j < 3
    power = A2 * A2
    columns = torch.cat([power[:, None], (powers * B[:, None]).flip(1)], dim=1)
    columns, rows = _planar(columns), _planar(outputs.conj())  # (H, 5 or 4, 2, padded M)
    tables = torch.cat([columns[:, :1], rows, columns[:, 1:]], dim=1)
    kernel = torch.cat([direct[:, None], lagged], dim=1)
    tables = tables.flatten(1).to(dtype)
    power = power.detach()
    carry = _planar(power ** (SEGMENT // BLOCK)).flatten(1)
    return Blocks(tables, kernel.to(dtype), _drift(power, dtype), carry)


def _planar(x: Tensor) -> Tensor:
    """(..., M) complex -> (..., 2, padded M) real."""
    parts = torch.stack([x.real, x.imag], dim=-2)
    return torch.nn.functional.pad(parts, (0, padded(x.shape[-1]) - x.shape[-1]))


def _drift(power: Tensor, dtype: torch.dtype) -> Tensor:
    """What a segment of rounded powers has to be multiplied with, less 1."""
    rounded = torch.complex(power.real.to(dtype), power.imag.to(dtype)).to(power.dtype)
    ratio = torch.where(rounded.abs() > 1e-6, power / rounded, torch.ones_like(power))
    return _planar(ratio ** (SEGMENT // BLOCK) - 1).flatten(1).to(dtype)


def run_from_rest(u: Tensor, blocks: Blocks) -> Tensor:
    """u (B, L, H) -> y (B, L, H), from a state of zeros; nobody asks for the state at the end."""
    return _run_from_rest(u, blocks, 0)


def run_ahead(u: Tensor, blocks: Blocks) -> Tensor:
    """``y_t = sum_s k_s u_(t+1+s)``: the system run from the end, each answer one place further."""
    return _run_from_rest(u, blocks, 1)


def _run_from_rest(u: Tensor, blocks: Blocks, ahead: int) -> Tensor:
    begin = u.new_zeros(u.shape[0], u.shape[2], blocks.drift.shape[1])
    stops = torch.zeros(u.shape[0], dtype=torch.int64)
    y: Tensor = _scan(u.contiguous(), *blocks, begin, stops, ahead)[0]
    return y


def run(u: Tensor, blocks: Blocks, start: Tensor | None, stops: Tensor) -> tuple[Tensor, Tensor]:
    """u (B, L, H), start (B, H, M) complex -> y (B, L, H), the state after ``stops`` blocks.

    stops (B,) counts whole blocks of four samples, at most L // 4.
    """
    modes = blocks.drift.shape[1] // 2
    if start is None:
        begin = u.new_zeros(u.shape[0], u.shape[2], 2 * modes)
    else:
        begin = _planar(start).flatten(2).to(u.dtype)
    y, end, _ = _scan(u.contiguous(), *blocks, begin, stops, 0)
    end = end.unflatten(-1, (2, modes)).to(torch.float64)
    return y, torch.complex(end[:, :, 0], end[:, :, 1])


@torch.library.custom_op("s4d_torch::scan", mutates_args=())
def _scan(
    u: Tensor,
    tables: Tensor,
    kernel: Tensor,
    drift: Tensor,
    carry: Tensor,
    start: Tensor,
    stops: Tensor,
    ahead: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """y, the state after ``stops`` blocks, and the states kept for the backward pass."""
    y, end = in_large_pages(torch.empty_like(u)), torch.empty_like(start)
    kept = in_large_pages(_empty_kept(u, start))
    given = [x.contiguous() for x in (tables, kernel, carry, start)]
    arrays = (u, *given, stops, y, end, kept)
    _share_scan("scan_forward", ahead, u, drift, arrays)
    return y, end, kept


@_scan.register_fake
def _(
    u: Tensor,
    tables: Tensor,
    kernel: Tensor,
    drift: Tensor,
    carry: Tensor,
    start: Tensor,
    stops: Tensor,
    ahead: int,
) -> Any:
    return torch.empty_like(u), torch.empty_like(start), _empty_kept(u, start)


@torch.library.custom_op("s4d_torch::scan_backward", mutates_args=())
def _scan_backward(
    grad_y: Tensor,
    grad_end: Tensor,
    u: Tensor,
    tables: Tensor,
    kernel: Tensor,
    drift: Tensor,
    stops: Tensor,
    kept: Tensor,
    ahead: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_u, grad_start = in_large_pages(torch.empty_like(u)), torch.empty_like(kept[:, :, 0])
    batch = u.shape[0]
    grad_tables = tables.new_empty(batch, *tables.shape, dtype=torch.float64)
    grad_kernel = kernel.new_empty(batch, *kernel.shape, dtype=torch.float64)
    arrays = (
        *(grad_y.contiguous(), grad_end.contiguous(), u, tables.contiguous(), kernel.contiguous()),
        *(drift, stops, kept, grad_u, grad_start, grad_tables, grad_kernel),
    )
    _share_scan("scan_backward", ahead, u, drift, arrays)
    return grad_u, _over_batch(grad_tables, u), _over_batch(grad_kernel, u), grad_start


def _over_batch(grad: Tensor, u: Tensor) -> Tensor:
    """The sum over the batch, in the precision of u; a batch of one has nothing to sum."""
    return (grad[0] if len(grad) == 1 else grad.sum(0)).to(u.dtype)


@_scan_backward.register_fake
def _(
    grad_y: Tensor,
    grad_end: Tensor,
    u: Tensor,
    tables: Tensor,
    kernel: Tensor,
    drift: Tensor,
    stops: Tensor,
    kept: Tensor,
    ahead: int,
) -> Any:
    start = torch.empty_like(kept[:, :, 0])
    return torch.empty_like(u), torch.empty_like(tables), torch.empty_like(kernel), start


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    u, tables, kernel, drift, _, _, stops, ctx.ahead = inputs
    ctx.save_for_backward(u, tables, kernel, drift, stops, output[2])
    ctx.set_materialize_grads(False)  # zeros for what is kept would be made in vain


def _differentiate(
    ctx: Any, grad_y: Tensor | None, grad_end: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    u, kept = ctx.saved_tensors[0], ctx.saved_tensors[-1]
    grad_y = torch.zeros_like(u) if grad_y is None else grad_y
    grad_end = torch.zeros_like(kept[:, :, 0]) if grad_end is None else grad_end
    grads = _scan_backward(grad_y, grad_end, *ctx.saved_tensors, ctx.ahead)
    grad_u, grad_tables, grad_kernel, grad_start = grads
    return grad_u, grad_tables, grad_kernel, None, None, grad_start, None, None


_scan.register_autograd(_differentiate, setup_context=_keep_for_backward)


def _empty_kept(u: Tensor, start: Tensor) -> Tensor:
    segments = (u.shape[1] + SEGMENT - 1) // SEGMENT
    return start.new_empty(u.shape[0], u.shape[2], segments, start.shape[2])


# -- the compiled code and its threads -------------------------------------------------------------


def available(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the compiled scan can run here."""
    if device.type != "cpu" or dtype not in (torch.float32, torch.float64):
        return False
    # torch.compile cannot trace an import
    return _INSTALLED if torch.compiler.is_compiling() else _probe_numba()


@cache
def _probe_numba() -> bool:
    if not _INSTALLED:
        return False
    try:
        for name in ("blocks_code", "kernel_code"):
            compiled_module(f"s4d_torch.ssm.compiled.{name}")
        compiled_module("s4d_torch.ssm.compiled.scan_code").scan_forward(8)
    except Exception as error:  # a broken install, or no folder in which to keep compiled code
        print(f"s4d_torch: plain torch takes over, numba does not work: {error}", file=sys.stderr)
        return False
    return True


def _share_scan(
    name: str, ahead: int, u: Tensor, drift: Tensor, arrays: tuple[Tensor, ...]
) -> None:
    kernel = getattr(compiled_module("s4d_torch.ssm.compiled.scan_code"), name)(drift.shape[1] // 2)
    tasks = u.shape[0] * -(-u.shape[2] // GROUP)
    share(kernel, tasks, GROUP * u.shape[1] * drift.shape[1] // 2, (ahead,), arrays)


def compiled_module(name: str) -> ModuleType:
    """``compiled`` and its siblings, imported when first needed: numba takes its time."""
    return importlib.import_module(name)


def share(
    kernel: Any, tasks: int, work: int, options: tuple[Any, ...], tensors: tuple[Tensor, ...]
) -> None:
    """``kernel(first, last, *options, *arrays)`` over all tasks, in the threads torch may use.

    ``work`` is about how many mode steps a task takes. The compiled code holds no lock.
    """
    arguments = (*options, *(x.detach().numpy() for x in tensors))
    if (kernel, tensors[0].dtype) not in _READY:
        _compile(kernel, arguments)
        _READY.add((kernel, tensors[0].dtype))
    threads = min(torch.get_num_threads(), tasks) if tasks * work >= SERIAL else 1
    edges = [tasks * i // threads for i in range(threads + 1)]
    run_in_threads(kernel, [(*edge, *arguments) for edge in pairwise(edges)])


def _compile(kernel: Any, arguments: tuple[Any, ...]) -> None:
    """Compile before any thread runs, and say so; the next process finds the result on disk."""
    began = time.perf_counter()
    misses = sum(kernel.stats.cache_misses.values())
    kernel(0, 0, *arguments)
    if sum(kernel.stats.cache_misses.values()) > misses:
        name = kernel.py_func.__qualname__.split(".")[0].removeprefix("make_")
        seconds = time.perf_counter() - began
        print(f"s4d_torch: compiled {name} in {seconds:.1f} s (kept on disk)", file=sys.stderr)
