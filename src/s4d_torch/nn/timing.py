"""When samples come, as modules are told of it: the time between them, where sequences begin."""

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from s4d_torch.nn import validate
from s4d_torch.ssm.autodiff import at_hand
from s4d_torch.ssm.gaps import Gaps
from s4d_torch.ssm.pieces import Pieces

Rate = float | Tensor | Gaps
Resets = Tensor | Pieces
_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


def outside_graphs(forward: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """``forward`` as ``torch.compile`` leaves it alone where it is told of times or sequences.

    How many there are follows from values then, and a graph would hold each sample.
    """
    # unlike torch.compiler.disable, it imports no compiler yet
    eager: Callable[_Given, _Answer] = _disable_dynamo(forward)

    @wraps(forward)
    def call(*args: _Given.args, **options: _Given.kwargs) -> _Answer:
        if torch.compiler.is_compiling() and _timed(**options):
            return eager(*args, **options)
        return forward(*args, **options)

    return call


def _timed(rate: Any = 1.0, resets: Any = None, cu_seqlens: Any = None, **_: Any) -> bool:
    gaps = isinstance(rate, Gaps) or (isinstance(rate, Tensor) and rate.ndim > 0)
    return gaps or resets is not None or cu_seqlens is not None


def read_rate(
    rate: Rate, shape: tuple[int, ...], lengths: Tensor | None, u: Tensor
) -> float | Gaps:
    """A sampling rate, or the gaps before samples as they are used, (batch, length).

    ``shape`` is that of the gaps. One and the same gap everywhere is a rate.
    """
    if isinstance(rate, Gaps):
        return rate
    if not isinstance(rate, Tensor) or rate.ndim == 0:
        validate.sampling_rate(rate)  # type: ignore[arg-type]
        return rate  # type: ignore[return-value]
    _check_gaps(rate, shape, u)
    each = rate.to(torch.float64 if u.device.type != "mps" else torch.float32)
    if lengths is not None:  # whatever lies beyond the ends, no step is made of it
        inside = torch.arange(shape[-1], device=u.device) < lengths[..., None]
        each = torch.where(inside, each, each[(0,) * each.ndim])
    if at_hand(each):
        bad = ~((each > 0) & (each < math.inf))
        if bool(bad.any()):
            place = tuple(int(i) for i in bad.nonzero()[0])
            raise ValueError(
                f"rate must be a finite time above 0 since the sample before, got "
                f"{float(each[place])} at {place}; samples at one and the same time have to be "
                "merged, and the first of a sequence needs a gap too, such as the median"
            )
    gaps = Gaps(each.flatten(0, -2))
    constant = gaps.constant
    return gaps if constant is None else constant


def _check_gaps(rate: Tensor, shape: tuple[int, ...], u: Tensor) -> None:
    if rate.shape != shape or rate.is_complex() or rate.dtype == torch.bool:
        raise ValueError(
            f"rate must be a number, or real numbers {shape}: the time since the sample before, in "
            f"steps of the training rate; got {rate.dtype} of shape {tuple(rate.shape)}"
        )
    if rate.requires_grad:
        raise ValueError("rate gets no gradient: gaps are given, not learned; use rate.detach()")
    if rate.device != u.device:
        raise ValueError(f"rate is on {rate.device}, u on {u.device}; move one of them")


def read_resets(
    resets: Resets | None, cu_seqlens: Any, lengths: Tensor | None, u: Tensor
) -> Pieces | None:
    """The sequences inside of a batch u (batch, length, ...); None if rows are sequences."""
    if cu_seqlens is not None:
        if resets is not None or lengths is not None:
            raise ValueError("cu_seqlens says where sequences begin; leave out resets and lengths")
        return Pieces.packed(_offsets(cu_seqlens, u))
    if resets is None or isinstance(resets, Pieces):
        return resets
    _check_resets(resets, tuple(u.shape[:2]))
    if resets.device != u.device:
        raise ValueError(f"resets is on {resets.device}, u on {u.device}; move one of them")
    return Pieces.cut(resets, lengths)


def _check_resets(resets: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(resets, Tensor) or resets.dtype != torch.bool or resets.shape != shape:
        got = f"{resets.dtype} {tuple(resets.shape)}" if isinstance(resets, Tensor) else resets
        raise ValueError(
            f"resets must be torch.bool {shape}, True where a new sequence begins, got {got}"
        )


def _offsets(cu_seqlens: Any, u: Tensor) -> Tensor:
    try:
        offsets = torch.as_tensor(cu_seqlens, device=u.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"cu_seqlens must be integers (n + 1,), got {cu_seqlens!r}") from error
    if offsets.ndim != 1 or offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise TypeError(
            f"cu_seqlens must be integers (n + 1,), got {offsets.dtype} {tuple(offsets.shape)}"
        )
    if u.shape[0] != 1:
        raise ValueError(
            f"packed sequences are one row, u (1, total, ...), got {tuple(u.shape)}; without "
            "cu_seqlens, resets or lengths say where sequences begin or end"
        )
    total = u.shape[1]
    if at_hand(offsets):
        rises = len(offsets) > 1 and bool((offsets[1:] > offsets[:-1]).all())
        if not rises or int(offsets[0]) != 0 or int(offsets[-1]) != total:
            raise ValueError(
                f"cu_seqlens must rise from 0 to {total}, the number of samples, without empty "
                f"sequences; got {offsets.tolist() if len(offsets) < 9 else offsets}"
            )
    return offsets.long()


def read_step_rate(rate: Rate, u: Tensor) -> float | Tensor:
    """A sampling rate, or the gap before this sample for each sequence, (batch,)."""
    if isinstance(rate, Tensor) and rate.ndim == 2 and rate.shape[1:] == (1,):
        rate = rate[:, 0]
    if isinstance(rate, Tensor) and rate.ndim:
        read = read_rate(rate[:, None] if rate.ndim == 1 else rate, (len(u), 1), None, u)
        return read.each[:, 0] if isinstance(read, Gaps) else read
    validate.sampling_rate(rate)  # type: ignore[arg-type]
    return rate  # type: ignore[return-value]


def begin_anew(state: Tensor, resets: Tensor | None) -> Tensor:
    """A carried state (batch, ...), zeros where ``resets`` (batch,) says that a sequence begins."""
    if resets is None:
        return state
    _check_resets(resets, tuple(state.shape[:1]))
    return torch.where(resets.view(-1, *[1] * (state.ndim - 1)), torch.zeros_like(state), state)


def stretches(u: Tensor, at: Sequence[int], rate: Rate) -> Iterator[tuple[Tensor, Rate]]:
    """u (batch, length, ...) and its gaps up to each of the places ``at``, one after the other."""
    length = u.shape[1]
    try:
        places = [operator.index(place) for place in at]
    except TypeError as error:
        raise TypeError(f"at must be integers, places of samples, got {at!r}") from error
    ends = [place + length if place < 0 else place for place in places]
    if not ends or ends != sorted(set(ends)) or ends[0] < 0 or ends[-1] >= length:
        raise ValueError(
            f"at must name places of samples in rising order, from 0 to {length - 1}, got {at!r}"
        )
    read = read_rate(rate, tuple(u.shape[:2]), None, u)
    for first, end in pairwise([-1, *ends]):
        some = slice(first + 1, end + 1)
        yield u[:, some], Gaps(read.each[:, some]) if isinstance(read, Gaps) else read
