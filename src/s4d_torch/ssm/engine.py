"""The sequence engine: one function, four ways to run a system over a sequence, the same answer.

``fft`` convolves with the kernel by Fourier transforms, ``direct`` term by term in compiled code;
``chunk`` multiplies matrices chunk by chunk, carrying the state; ``scan`` is the compiled
recurrence. All take and return the state and obey ``lengths``.
"""

import torch
from torch import Tensor

from s4d_torch.ssm import convolution, recurrence
from s4d_torch.ssm.compiled import direct, runtime, scan
from s4d_torch.ssm.state_space import StateSpace

ENGINES = ("auto", "fft", "direct", "chunk", "scan")
# up to so many samples, in at least so many sequences, a convolution term by term takes less time
SHORT, MANY = 384, 4


def choose(engine: str, space: StateSpace, u: Tensor, *, carried: bool = True) -> str:
    """What ``auto`` means here, and what stands in for compiled code where it cannot run.

    Measured by ``s4d bench``: on a CPU diagonal systems are trained fastest term by term where
    sequences are short and many and no state is ``carried`` in or out, and run fastest in the scan
    otherwise; a dense system is best in chunks if there is a state to carry. All else is for the
    FFT, which keeps any device busy.
    """
    compiled = runtime.available(u.device, u.dtype)
    if engine == "scan":
        return "scan" if compiled and space.scannable else "chunk"
    if engine == "direct":
        return "direct" if compiled and u.shape[1] <= direct.LONGEST else "fft"
    if engine != "auto":
        return engine
    if compiled and space.scannable:
        # a traced graph should not depend on how many sequences it was traced with
        tracing = torch.compiler.is_compiling()
        short = not tracing and u.shape[1] <= SHORT and u.shape[0] >= MANY
        trained = torch.is_grad_enabled() and space.compiled_kernel
        return "direct" if short and trained and not carried else "scan"
    return "chunk" if u.device.type == "cpu" and carried else "fft"


def run(
    space: StateSpace,
    u: Tensor,
    state: Tensor | None,
    lengths: Tensor | None,
    *,
    engine: str = "auto",
    need_state: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """``y = K * u + D u`` and the end state; u, y (batch, length, H), state (batch, H, S)."""
    engine = choose(engine, space, u, carried=need_state or state is not None)
    if engine == "scan":
        if state is None and not need_state:
            return scan.run_from_rest(u, space.tables()), None
        y, end = scan.run(u, space.tables(), state, lengths)
        return y, end if need_state else None
    if engine == "chunk":
        return _in_chunks(space, u, state, lengths, need_state)
    x = u.transpose(1, 2)  # (batch, H, L)
    if engine == "direct":
        y = direct.convolve(u, _add_skip(space.kernel(u.shape[1]), space.D))
    else:
        y = _with_skip(convolution.causal(x, space.kernel(u.shape[1])), space, u)
    if state is not None:
        response = recurrence.free_response(space.system(), state, x.shape[-1])
        y = y + response.transpose(1, 2).to(y.dtype)
    return y, recurrence.end_state(space.system(), x, state, lengths) if need_state else None


def run_both_ways(space: StateSpace, u: Tensor, *, engine: str = "auto") -> Tensor:
    """``y = K_0 * u + D u`` plus ``K_1`` over what lies strictly ahead; u, y (batch, length, H).

    The kernel is (2, H, length). There is no state to carry, so chunks have nothing to offer here:
    without compiled code it is an FFT.
    """
    engine = choose("scan" if engine == "chunk" else engine, space, u, carried=False)
    if engine == "scan":
        return scan.run_from_rest(u, space.tables()) + scan.run_ahead(u, space.tables(ahead=1))
    kernels = space.kernel(u.shape[1])
    if engine == "direct":
        past, future = kernels
        return direct.convolve(u, _add_skip(past, space.D)) + direct.convolve_ahead(u, future)
    return _with_skip(convolution.bidirectional(u.transpose(1, 2), kernels), space, u)


def _in_chunks(
    space: StateSpace, u: Tensor, state: Tensor | None, lengths: Tensor | None, need_state: bool
) -> tuple[Tensor, Tensor | None]:
    system, x = space.system(), u.transpose(1, 2)
    zeros = system.input.new_zeros(u.shape[0], *system.input.shape)
    y, end = recurrence.scan(system, x, zeros if state is None else state)
    if need_state and lengths is not None:
        end = recurrence.end_state(system, x, state, lengths)
    return _with_skip(y, space, u), end if need_state else None


def _with_skip(y: Tensor, space: StateSpace, u: Tensor) -> Tensor:
    """y (batch, H, length) with ``D u`` added, time before channels."""
    return torch.addcmul(y.transpose(1, 2).contiguous(), space.D.to(y.dtype), u)


def _add_skip(kernel: Tensor, D: Tensor) -> Tensor:
    """A kernel whose first tap holds D as well; kernel (H, length)."""
    return torch.cat([kernel[:, :1] + D.to(kernel.dtype)[:, None], kernel[:, 1:]], dim=1)
