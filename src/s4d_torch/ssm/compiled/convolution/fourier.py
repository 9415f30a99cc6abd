"""The compiled convolution of ``fourier_code`` as an operator of torch."""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.ssm import convolution
from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, in_large_pages, share

LONGEST = 2**16  # samples; beyond, kernels and signals are far larger than any cache
TASKS = 8  # at least, for as many threads: groups, and parts of a batch with sums of their own
POINT_STEPS = 16  # steps of a mode that take about as long as a point of a transform does


def convolve(u: Tensor, taps: Tensor, D: Tensor) -> Tensor:
    """``y = K * u + D u``; u, y (B, L, H), taps (1, G, L, W), D (H,).

    With taps (2, G, L, W) the second kernel hears what lies strictly ahead.
    """
    y: Tensor = _fourier(u.contiguous(), taps, D)[0]
    return y


def circle(length: int) -> int:
    """The power of two around which a convolution of so many samples does not meet itself."""
    return max(16, 1 << (2 * length - 1).bit_length())


class Transform(NamedTuple):
    """What compiled code knows of a transform; see ``fourier_code`` and ``transform_code``."""

    turns: Tensor
    mirror: Tensor
    phases: Tensor


@cache
def transform(points: int, dtype: torch.dtype) -> Transform:
    """Of so many points: made in double precision, and kept."""
    turns, size = [], points
    while size > 4:
        angles = torch.arange(size // 4, dtype=torch.float64)[:, None] * torch.tensor([1, 2, 3])
        turns.append(_on_circle(angles / size).flatten())
        size //= 4
    order = torch.arange(size)  # of frequencies, digit by digit from behind
    while size < points:
        size *= 4
        order = (torch.arange(4)[:, None] + 4 * order).flatten()
    places = torch.argsort(order)
    mirror, phases = places[-order % points], _on_circle(order.double() / points)
    return Transform(torch.cat(turns).to(dtype), mirror, phases.to(dtype))


def _on_circle(part: Tensor) -> Tensor:
    """``exp(-2 pi i part)``, with a last axis of two."""
    angles = -2 * torch.pi * part
    return torch.stack([angles.cos(), angles.sin()], dim=-1)


def _as_read(u: Tensor, taps: Tensor, D: Tensor, **more: Tensor) -> list[Tensor]:
    _, length, channels = u.shape
    ways = min(max(len(taps), 1), 2)
    shapes = {
        "u": (u, u.shape),
        "taps": (taps, (ways, -(-channels // LANES), length, LANES)),
        "D": (D, (channels,)),
        **{name: (x, u.shape) for name, x in more.items()},
    }
    return as_read(u.dtype, **shapes)


def _run(u: Tensor, taps: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    """y, and the transforms of the kernels for the backward pass."""
    u, taps, D = _as_read(u, taps, D)
    batch, length, _ = u.shape
    groups, points = taps.shape[1], circle(length) // 2
    y, responses = in_large_pages(torch.empty_like(u)), u.new_empty(groups, 4 * LANES * points)
    if y.numel():
        turns, mirror, phases = transform(points, u.dtype)
        room = [u.new_empty(2 * LANES * points)]
        of_kernels = (turns, mirror, phases, taps, D, responses)
        _share("responses", groups, points, (points,), of_kernels, room)
        arrays = (turns, mirror, _rows(u), responses, _rows(y))
        _share("forward", groups * batch, 2 * points, (length, points), arrays, room)
    return y, responses


def _fake(u: Tensor, taps: Tensor, D: Tensor) -> tuple[Tensor, Tensor]:
    points = circle(u.shape[1]) // 2
    return u.new_empty(u.shape), u.new_empty(taps.shape[1], 4 * LANES * points)


def _run_backward(
    grad_y: Tensor, responses: Tensor, u: Tensor, taps: Tensor, D: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    u, taps, D, grad_y = _as_read(u, taps, D, grad_y=grad_y)
    batch, length, channels = u.shape
    groups, points = taps.shape[1], circle(length) // 2
    (responses,) = as_read(u.dtype, responses=(responses, (groups, 4 * LANES * points)))
    grad_u, grad_taps = in_large_pages(torch.empty_like(u)), torch.zeros_like(taps)
    if u.numel():
        chunk = -(-batch // -(-TASKS // groups))
        totals = u.new_empty(-(-batch // chunk), groups, 4 * LANES * points)
        room = [u.new_empty(2 * LANES * points) for _ in range(2)]
        turns, mirror, phases = transform(points, u.dtype)
        arrays = (turns, mirror, _rows(u), responses, _rows(grad_y), _rows(grad_u), totals)
        tasks, options = groups * len(totals), (length, points, chunk)
        _share("backward", tasks, 3 * chunk * points, options, arrays, room)
        of_kernels = (turns, mirror, phases, totals, grad_taps)
        _share("taps", groups, len(totals) * points, (points,), of_kernels, room[:1])
    return grad_u, grad_taps, grad_taps[0, :, 0].flatten()[:channels].clone()


def _fake_backward(
    grad_y: Tensor, responses: Tensor, u: Tensor, taps: Tensor, D: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return u.new_empty(u.shape), taps.new_empty(taps.shape), D.new_empty(D.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_y: Tensor | None, _: None) -> tuple[Any, ...]:
    responses, *given = ctx.saved_tensors
    if grad_y is None:
        return (None,) * len(given)
    if again():
        return tuple(gradients(plain, given, (grad_y,)))
    found: tuple[Any, ...] = _fourier_backward(grad_y, responses, *given)
    return found


def plain(u: Tensor, taps: Tensor, D: Tensor) -> Tensor:
    """The same in plain torch."""
    x, kernels = u.transpose(1, 2), taps.transpose(2, 3).flatten(1, 2)[:, : u.shape[2]]
    both = len(kernels) == 2
    y = convolution.bidirectional(x, kernels) if both else convolution.causal(x, kernels[0])
    return y.transpose(1, 2) + D * u


_fourier = Operator("fourier", _run, _fake, _keep, _differentiate)
_fourier_backward = Operator("fourier_backward", _run_backward, _fake_backward)


def _share(
    name: str, tasks: int, points: int, options: tuple[int, ...], arrays: tuple[Tensor, ...],
    room: list[Tensor],
) -> None:  # fmt: skip
    run = getattr(compiled_module(f"{__package__}.fourier_code"), f"fourier_{name}")
    share(run, tasks, POINT_STEPS * LANES * points, options, arrays, room)


def _rows(u: Tensor) -> Tensor:
    """(B, L, H) -> (B L, H), the same memory."""
    return u.view(-1, u.shape[-1])
