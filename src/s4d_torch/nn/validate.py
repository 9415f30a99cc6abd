"""Checks of what comes into a module: each error says what came, what was expected, what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LOW_PRECISION = (torch.bfloat16, torch.float16)


def positive_integer(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def fraction(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}")


def signal(name: str, u: Tensor, shape: str, features: int, dtype: torch.dtype) -> None:
    """A real float tensor of the shape written in words, e.g. ``(batch, length, d_model)``."""
    if not isinstance(u, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor {shape}, got {type(u).__name__}")
    if not u.is_floating_point():
        raise TypeError(f"{name} must be real floating point, got {u.dtype}; use {name}.float()")
    if u.dtype != dtype and u.dtype not in LOW_PRECISION:
        raise TypeError(
            f"{name} is {u.dtype}, the module's parameters are {dtype}; "
            f"convert one of them, as in {name}.to({dtype})"
        )
    rank(name, u, shape)
    if u.shape[-1] != features:
        raise ValueError(
            f"{name} must be {shape} with {shape.rsplit(',')[-1].strip(' )')}={features}, "
            f"got {tuple(u.shape)}"
        )


def rank(name: str, u: Tensor, shape: str) -> None:
    wanted = shape.strip("()").split(",")
    if u.ndim != len(wanted):
        raise ValueError(
            f"{name} must have {len(wanted)} dimensions {shape}, "
            f"got {u.ndim} with shape {tuple(u.shape)}"
        )
    if "length" in shape and u.shape[[part.strip() for part in wanted].index("length")] == 0:
        raise ValueError(f"{name} has length 0; a sequence needs at least one sample")


def finite(name: str, u: Tensor) -> None:
    """Refuse NaN and infinities, saying where the first one is."""
    bad = ~torch.isfinite(u)
    if bool(bad.any()):
        place = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{name} holds {int(bad.sum())} values that are NaN or infinite, "
            f"the first at {place}; clean or impute them first"
        )


def sequence_lengths(
    lengths: Tensor | Sequence[int] | None,
    shape: tuple[int, ...],
    length: int,
    device: torch.device,
) -> Tensor | None:
    """The lengths of a ragged batch as an integer tensor of ``shape``, each in [1, length]."""
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths, device=device)
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    if lengths.shape != shape:
        raise ValueError(
            f"lengths must hold one length per sequence, shape {shape}, "
            f"got shape {tuple(lengths.shape)}"
        )
    if not torch.compiler.is_compiling() and lengths.numel():
        low, high = int(lengths.min()), int(lengths.max())
        if low < 1 or high > length:
            raise ValueError(
                f"lengths must lie in [1, {length}], the batch being {length} long; "
                f"got {low} to {high}"
            )
    return lengths.long()


def sampling_rate(rate: float) -> None:
    if isinstance(rate, Tensor) or not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be a finite number above 0, got {rate!r}")


def carried_state(state: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if not isinstance(state, Tensor):
        raise TypeError(
            f"state must be a tensor {shape} as initial_state or a call returned it, "
            f"got {type(state).__name__}"
        )
    if state.shape != shape or state.dtype != dtype:
        raise ValueError(
            f"state must be {dtype} with shape (batch, d_model, d_state) = {shape}, "
            f"got {state.dtype} with shape {tuple(state.shape)}; "
            "it may belong to another layer or batch: start with initial_state(batch_size)"
        )


def tokens(name: str, u: Tensor, shape: str, vocabulary: int) -> None:
    """An integer tensor of tokens in [0, vocabulary)."""
    if not isinstance(u, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor {shape} of tokens, got {type(u).__name__}")
    if u.is_floating_point() or u.is_complex() or u.dtype == torch.bool:
        raise TypeError(f"{name} must hold integer tokens, got {u.dtype}")
    rank(name, u, shape)
    if not torch.compiler.is_compiling() and u.numel():
        low, high = int(u.min()), int(u.max())
        if low < 0 or high >= vocabulary:
            raise ValueError(
                f"{name} must hold tokens from 0 to {vocabulary - 1} (d_input={vocabulary}), "
                f"got {low} to {high}"
            )
