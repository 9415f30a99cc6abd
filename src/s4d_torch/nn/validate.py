"""Checks of what comes into a module: each error says what came, what was expected, what to do.

Shapes, dtypes and devices are checked everywhere; values where they are at hand. To look at those
on a GPU the host would have to wait for it at every call: tokens, and lengths or masks that are
there already, are taken as they are. ``check_finite``, which somebody asks for, waits.
"""

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from s4d_torch._registry import unknown
from s4d_torch.ssm.autodiff import at_hand, has_values

LOW_PRECISION = (torch.bfloat16, torch.float16)


def positive_integer(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def number(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}")


def flag(name: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def fraction(name: str, value: float) -> None:
    number(name, value)
    if not 0 <= value < 1:
        raise ValueError(f"{name} must lie in [0, 1), got {value}")


def one_of(name: str, value: str, options: Collection[str]) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {', '.join(options)}, got {value!r}")
    if value not in options:
        raise ValueError(unknown(name, value, options))


def parameter_dtype(dtype: torch.dtype | None) -> None:
    if dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return
    raise TypeError(
        f"dtype must be a real floating point type such as torch.float32, got {dtype!r}; "
        "complex values are stored as pairs of real ones"
    )


def signal(name: str, u: Tensor, shape: str, features: int, dtype: torch.dtype) -> None:
    """A real float tensor of the shape written in words, e.g. ``(batch, length, d_model)``."""
    if not isinstance(u, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor {shape}, got {type(u).__name__}")
    dense(name, u)
    if not u.is_floating_point():
        remedy = f"torch.view_as_real({name})" if u.is_complex() else f"{name}.to({dtype})"
        raise TypeError(f"{name} must be real floating point, got {u.dtype}; use {remedy}")
    if u.dtype != dtype and not (
        u.dtype in LOW_PRECISION and torch.is_autocast_enabled(u.device.type)
    ):
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


def dense(name: str, u: Tensor) -> None:
    if u.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got {u.layout}; use to_dense()")


def rank(name: str, u: Tensor, shape: str) -> None:
    wanted = shape.strip("()").split(",")
    if u.ndim != len(wanted):
        raise ValueError(
            f"{name} must have {len(wanted)} dimensions {shape}, "
            f"got {u.ndim} with shape {tuple(u.shape)}"
        )
    if u.shape[0] == 0:
        raise ValueError(
            f"{name} has batch size 0, shape {tuple(u.shape)}; leave out empty batches"
        )
    if "length" in shape and u.shape[[part.strip() for part in wanted].index("length")] == 0:
        raise ValueError(f"{name} has length 0; a sequence needs at least one sample")


def finite(name: str, u: Tensor) -> None:
    """Refuse NaN and infinities, saying where the first one is; not where values may not decide."""
    if not has_values(u):
        return
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
    """The lengths of a ragged batch as an integer tensor of ``shape``, each in [1, length].

    A list, or a tensor on the CPU, is checked before it goes to a device.
    """
    if lengths is None:
        return None
    try:
        lengths = lengths if isinstance(lengths, Tensor) else torch.as_tensor(lengths, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"lengths must be integers of shape {shape}, got {lengths!r}") from error
    if lengths.shape != shape:
        raise ValueError(
            f"lengths must hold one length per sequence, shape {shape}, "
            f"got shape {tuple(lengths.shape)}"
        )
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be integers, got {lengths.dtype}; use lengths.long()")
    if at_hand(lengths) and lengths.numel():
        low, high = int(lengths.min()), int(lengths.max())
        if low < 1 or high > length:
            raise ValueError(
                f"lengths must lie in [1, {length}], the batch being {length} long; "
                f"got {low} to {high}"
            )
    return to_device(lengths, device).long()


def to_device(x: Tensor, device: torch.device) -> Tensor:
    """A copy on ``device`` if x is elsewhere; the host waits for none that it need not wait for."""
    if x.device == device:
        return x
    # pinned memory is read later, when somebody may have written to it
    return x.to(device, non_blocking=x.is_cpu and not x.is_pinned())


def prefix_lengths(
    mask: Tensor | None, lengths: Tensor | Sequence[int] | None, u: Tensor, towers: int = 1
) -> Tensor | Sequence[int] | None:
    """``lengths``, or those of a mask (batch, length), True up to the end of each sequence."""
    if mask is None:
        return lengths
    if lengths is not None:
        raise ValueError("lengths and mask say the same; give one of them")
    shape = tuple(u.shape[: towers + 1]) if isinstance(u, Tensor) else None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != shape:
        found = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
        raise ValueError(
            f"mask must be torch.bool {shape}, True where u is valid, got {found}; use mask.bool()"
        )
    if at_hand(mask) and not bool(mask[..., 0].all() & (mask[..., 1:] <= mask[..., :-1]).all()):
        raise ValueError(
            "mask must be True from the first sample of each sequence to its last and False after: "
            "padding is on the right alone, without holes; move or leave out what is missing"
        )
    return mask.sum(-1)


def sampling_rate(rate: float) -> None:
    number("rate", rate)
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be a finite number above 0, got {rate!r}")


def same_device(u: Tensor, parameter: Tensor) -> None:
    if u.device != parameter.device:
        raise ValueError(
            f"u is on {u.device}, the module's parameters on {parameter.device}; move one of them"
        )


def causal(what: str, action: str, *, bidirectional: bool) -> None:
    if bidirectional:
        problem = f"a bidirectional {what} looks ahead and cannot {action}"
        raise ValueError(f"{problem}; use bidirectional=False")


def carried_state(
    state: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    if not isinstance(state, Tensor):
        raise TypeError(
            f"state must be a tensor {shape} as initial_state or a call returned it, "
            f"got {type(state).__name__}"
        )
    if state.shape != shape or state.dtype != dtype:
        raise ValueError(
            f"state must be {dtype} with shape (batch, d_model, state_size) = {shape}, "
            f"got {state.dtype} with shape {tuple(state.shape)}; "
            "it may belong to another layer or batch: start with initial_state(batch_size)"
        )
    if state.device != device:
        raise ValueError(f"state is on {state.device}, the input on {device}; move one of them")


def carried(
    name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """What of a model's state belongs to no layer."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor {shape}, got {type(x).__name__}")
    if x.shape != shape or x.dtype != dtype or x.device != device:
        raise ValueError(
            f"{name} must be {dtype} of shape {shape} on {device}, got {x.dtype} of shape "
            f"{tuple(x.shape)} on {x.device}; start with initial_state(batch_size)"
        )


def tokens(name: str, u: Tensor, shape: str) -> None:
    """An integer tensor of the shape written in words."""
    if not isinstance(u, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor {shape} of tokens, got {type(u).__name__}")
    dense(name, u)
    if u.is_floating_point() or u.is_complex() or u.dtype == torch.bool:
        raise TypeError(f"{name} must hold integer tokens, got {u.dtype}; use {name}.long()")
    rank(name, u, shape)


def token_range(name: str, u: Tensor, vocabulary: int) -> None:
    if at_hand(u) and u.numel():
        low, high = int(u.min()), int(u.max())
        if low < 0 or high >= vocabulary:
            raise ValueError(
                f"{name} must hold tokens from 0 to {vocabulary - 1} (d_input={vocabulary}), "
                f"got {low} to {high}"
            )
