"""The sequence engine: one function, four ways to run a system over a sequence, the same answer.

``fft`` convolves with the kernel by Fourier transforms, ``direct`` term by term in compiled code;
``chunk`` multiplies matrices chunk by chunk, carrying the state; ``scan`` is the compiled
recurrence. All take and return the state and obey ``lengths``.
"""

import math
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm import convolution, irregular, recurrence
from s4d_torch.ssm.compiled import runtime, scan
from s4d_torch.ssm.compiled.convolution import direct, fourier
from s4d_torch.ssm.gaps import Gaps
from s4d_torch.ssm.pieces import Pieces
from s4d_torch.ssm.state_space import StateSpace

ENGINES = ("auto", "fft", "direct", "chunk", "scan")
SHORT = 12  # samples for each mode of a channel; of up to so many, products term by term are fewer
SHORT_FOR_ALL = 224  # samples, over all kernels; beyond, an FFT takes less time than term by term
SHORT_DENSE = 64  # the same for systems that have no scan, nor a block in one operation
# What one thread of a CPU takes, forward and backward, in nanoseconds.
SCAN_CALL, SCAN_MODE, SCAN_STEP = 3e5, 250.0, 0.46  # of a mode: its tables, and each sample
FFT_CALL, BUTTERFLY = 3e5, 0.25  # one of the n log2(n) of a transform
KERNEL_STEP = 0.67  # a mode and sample of a kernel
PLAIN_KERNEL = 1.5e6, 1.3  # the same in torch's own operations: a call, and a step
CACHED = 2**16  # points of a transform that take twice as long, for their way to memory


def choose(engine: str, space: StateSpace, u: Tensor, *, carried: bool = True) -> str:
    """What ``auto`` means here, and what stands in for compiled code where it cannot run.

    Measured by ``s4d bench``: on a CPU diagonal systems run fastest term by term where sequences
    are short and no state is ``carried`` in or out, by transforms where there is enough to
    transform for each kernel, and in the scan otherwise; a dense system too is best term by term
    while that is short, and in chunks if there is a state to carry. All else is for the FFT, which
    keeps any device busy.
    """
    compiled = runtime.available(u.device, u.dtype)
    if engine == "scan" and not (compiled and space.scannable):
        engine = "chunk" if u.is_cpu else "fft"
    if engine == "direct":
        return "direct" if compiled and u.shape[1] <= direct.LONGEST else "fft"
    if engine == "chunk" and torch.compiler.is_compiling():
        return "fft"  # a graph has no loop over chunks, and would hold each one
    if engine != "auto":
        return engine
    if compiled and space.scannable:
        # a traced graph should not depend on the length it was traced with
        if carried or torch.compiler.is_compiling():
            return "scan"
        if space.compiled_kernel and _is_short(space, u.shape[1]):
            return "direct"
        return "fft" if _transforms_pay(space, u) else "scan"
    if torch.compiler.is_compiling():
        return "fft"
    if compiled and not carried:
        return "direct" if u.shape[1] <= SHORT_DENSE else "fft"
    return "chunk" if u.is_cpu and carried else "fft"


def _is_short(space: StateSpace, length: int) -> bool:
    return length <= SHORT * space.modes and length * space.directions <= SHORT_FOR_ALL


def _transforms_pay(space: StateSpace, u: Tensor) -> bool:
    """Whether kernels and transforms take less time than all modes through the scan."""
    if not _compiles_transforms(u):
        return False
    (batch, length, channels), size = u.shape, fourier.circle(u.shape[1])
    modes = space.directions * space.modes
    scans = space.directions * SCAN_CALL
    scans += channels * modes * (SCAN_MODE + SCAN_STEP * batch * length)
    call, step = (0.0, KERNEL_STEP) if space.compiled_kernel else PLAIN_KERNEL
    transforms = batch * BUTTERFLY * size * math.log2(size) * (1 + size / CACHED)
    return scans > FFT_CALL + call + channels * (modes * length * step + transforms)


def run(
    space: StateSpace,
    u: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    *,
    engine: str = "auto",
    need_state: bool = True,
    gaps: Gaps | None = None,
    pieces: Pieces | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``y = K * u + D u`` and the end state; u, y (batch, length, H), state (batch, H, S).

    The state is the one just after the last sample; with S + 1 numbers, the last of them the sample
    itself, where the rule looks at the sample before. With ``gaps`` samples are not evenly spaced.
    With ``pieces``, which know of ``lengths``, each piece has a state of its own.
    """
    if pieces is not None and not _runs_spans(space, u, engine, gaps):
        return _run_padded(space, u, state, pieces, engine, need_state, gaps)
    if gaps is not None:
        y, end = irregular.run(space, u, gaps, state, _spans(u, lengths, pieces))
        return y, end if need_state else None
    carried = need_state or state is not None or pieces is not None
    engine = choose(engine, space, u, carried=carried)
    if lengths is None and need_state and torch.compiler.is_compiling():
        # a tensor: numbers, of what is left after blocks of four, would each have a graph
        lengths = torch.full(u.shape[:1], u.shape[1], device=u.device)
    if engine == "scan":
        spans = _spans(u, lengths, pieces)
        if state is None and not need_state:
            return scan.run_from_rest(u, space.tables(), spans), None
        y, end = scan.run(u, space.tables(), state, spans)
        return y, end if need_state else None
    x = u.transpose(1, 2)  # (batch, H, L)
    if engine == "chunk":
        return _in_chunks(space, x, state, lengths, need_state)
    met = None if state is None else recurrence.meet(space.system(), state)
    if engine == "direct":
        y = space.convolve_directly(u)
    elif _compiles_transforms(u):
        y = space.convolve_by_transforms(u)
    else:
        y = _time_first(convolution.causal(x, space.response(u.shape[1])))
    if met is not None:
        y = y + recurrence.free_response(space.system(), met, u.shape[1], y.dtype)
    return y, recurrence.carried(space.system(), x, met, lengths) if need_state else None


def run_both_ways(
    space: StateSpace,
    u: Tensor,
    *,
    engine: str = "auto",
    gaps: Gaps | None = None,
    pieces: Pieces | None = None,
) -> Tensor:
    """``y = K_0 * u + D u`` plus ``K_1`` over what lies strictly ahead; u, y (batch, length, H).

    The kernel is (2, H, length). There is no state to carry, so chunks have nothing to offer here:
    without compiled code it is an FFT.
    """
    engine = "scan" if engine == "chunk" else engine
    if pieces is not None and not _runs_spans(space, u, engine, gaps):
        x, places = pieces.padded(u)
        own = None if gaps is None else gaps.padded(pieces)
        return pieces.spread(run_both_ways(space, x, engine=engine, gaps=own), places, u)
    spans = None if pieces is None else pieces.spans
    if gaps is not None:
        past = irregular.run(space, u, gaps, None, spans)[0]
        return past + irregular.run_ahead(space, u, gaps, spans)
    engine = choose(engine, space, u, carried=pieces is not None)
    if engine == "scan":
        past = scan.run_from_rest(u, space.tables(), spans)
        return past + scan.run_ahead(u, space.tables(ahead=1), spans)
    if engine == "direct":
        return space.convolve_directly(u) + space.convolve_directly(u, ahead=1)
    if _compiles_transforms(u):
        return space.convolve_by_transforms(u)
    response = space.response(u.shape[1])
    return _time_first(convolution.bidirectional(u.transpose(1, 2), response))


def _compiles_transforms(u: Tensor) -> bool:
    """Whether compiled code transforms these sequences; a traced graph is to serve any length."""
    if torch.compiler.is_compiling() or u.shape[1] > fourier.LONGEST:
        return False
    return runtime.available(u.device, u.dtype)


def _runs_spans(space: StateSpace, u: Tensor, engine: str, gaps: Gaps | None) -> bool:
    """Whether compiled code runs sequences wherever they lie in the rows of a batch."""
    if torch.compiler.is_compiling():
        return False
    if gaps is not None:
        return irregular.compiles(space, u, gaps)
    return engine in ("auto", "scan") and choose("scan", space, u) == "scan"


def _spans(u: Tensor, lengths: Tensor | None, pieces: Pieces | None) -> Tensor | None:
    if pieces is not None:
        return pieces.spans
    return None if lengths is None else scan.whole_spans(u, lengths)


def _run_padded(
    space: StateSpace, u: Tensor, state: Tensor | None, pieces: Pieces, engine: str,
    need_state: bool, gaps: Gaps | None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Each piece as a row of its own."""
    x, places = pieces.padded(u)
    own, lengths = None if gaps is None else gaps.padded(pieces), pieces.spans[:, 1]
    options: Any = {"engine": engine, "need_state": need_state, "gaps": own}
    y, end = run(space, x, state, lengths, **options)
    return pieces.spread(y, places, u), end


def _in_chunks(
    space: StateSpace, x: Tensor, state: Tensor | None, lengths: Tensor | None, need_state: bool
) -> tuple[Tensor, Tensor | None]:
    """x (batch, H, length)."""
    system = space.system()
    y, end = recurrence.scan(system, x, state, skip=space.D)
    if need_state and lengths is not None:
        met = None if state is None else recurrence.meet(system, state)
        end = recurrence.carried(system, x, met, lengths)
    return _time_first(y), end if need_state else None


def _time_first(y: Tensor) -> Tensor:
    """(batch, H, length) -> (batch, length, H), and no view that would hold a long transform."""
    return y.transpose(1, 2).contiguous()
