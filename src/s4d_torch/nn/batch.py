"""Batches of sequences: what a model reads, padding on the right, and pairs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from s4d_torch.nn import validate
from s4d_torch.ssm.precision import double_dtype


def mask(lengths: Tensor | Sequence[int], x: Tensor) -> Tensor:
    """True where x (batch, length, ...) is inside its sequence; (batch, length, 1).

    Pairs have lengths (batch, 2), x (batch, 2, length, ...) and a mask (batch, 2, length, 1).
    """
    lengths = torch.as_tensor(lengths, device=x.device)
    place = torch.arange(x.shape[lengths.ndim], device=x.device)
    return (place < lengths[..., None])[..., None]


def zero_ends(x: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
    """x (batch, length, features) with zeros where sequences have ended."""
    return x if lengths is None else torch.where(mask(lengths, x), x, 0.0)


def sum_over_time(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(batch, length, features) -> (batch, features), over each sequence, in double precision."""
    x, double = zero_ends(x, lengths), double_dtype(x.device)
    if x.is_cpu:
        return x.sum(1, dtype=double)
    # a GPU would first copy all of x; it adds in trees, which lose little in single precision
    return x.sum(1, dtype=torch.promote_types(x.dtype, torch.float32)).to(double)


def check_input(
    u: Tensor, towers: int, d_input: int, dtype: torch.dtype | None, *, step: bool = False
) -> None:
    """u (batch, length, d_input) in ``dtype``, or tokens (batch, length) for None; pairs, steps."""
    names = ["batch", *(["2"] if towers == 2 else []), *([] if step else ["length"])]
    if dtype is None:
        shape = f"({', '.join(names)})"
        validate.tokens("u", u, shape)
    else:
        shape = f"({', '.join([*names, 'd_input'])})"
        validate.signal("u", u, shape, d_input, dtype)
    if towers == 2 and u.shape[1] != 2:
        raise ValueError(f"u must be {shape}, pairs of sequences, got {tuple(u.shape)}")


def read_input(
    u: Tensor, lengths: Tensor | Sequence[int] | None, towers: int
) -> tuple[Tensor, Tensor | None]:
    """``u`` with zeros in its padding, and checked lengths, (batch,) or for pairs (batch, 2)."""
    shape = (u.shape[0],) if towers == 1 else (u.shape[0], 2)
    checked = validate.sequence_lengths(lengths, shape, u.shape[towers], u.device)
    if checked is not None:  # the padding may hold NaN, or numbers that are no tokens
        valid = mask(checked, u)
        valid = valid if u.is_floating_point() else valid[..., 0]
        u = torch.where(valid, u, torch.zeros_like(u))
    return u, checked


def in_one_batch(u: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Pairs (batch, 2, ...) as a batch of twice the size."""
    return u.flatten(0, 1), None if lengths is None else lengths.flatten()


def last(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(batch, length, features) -> (batch, features), each where its sequence ends."""
    if lengths is None:
        return x[:, -1]
    batch = x.shape[0]  # len(x) would fix it in an export
    return x[torch.arange(batch, device=x.device), lengths - 1]


def compare_pairs(x: Tensor) -> Tensor:
    """(2 batch, features) -> ``[a, b, a - b, a b]``, (batch, 4 features)."""
    a, b = x.unflatten(0, (-1, 2)).unbind(1)
    return torch.cat([a, b, a - b, a * b], dim=-1)
