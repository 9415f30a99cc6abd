"""What compiled code makes of stored parameters, written with torch's own operations."""

import torch
from torch import Tensor

from s4d_torch.ssm.compiled.runtime import as_read
from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS, CompiledRule, Discrete


def as_stored(
    decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor, log_dt: Tensor, *D: Tensor
) -> list[Tensor]:
    """Stored parameters, checked, as compiled code reads them; their shapes as below."""
    sets, modes, channels = *decay.shape, log_dt.shape[0]
    if channels % max(sets, 1):
        raise ValueError(f"{sets} sets of A and B cannot serve {channels} channels")
    shapes = {
        "decay": (decay, (sets, modes)),
        "frequency": (frequency, (sets, modes)),
        "B": (B, (sets, modes, 2)),
        # kernels are made for several C at once
        "C": (C, (*([] if D else C.shape[:1]), channels, modes, 2)),
        "log_dt": (log_dt, (channels,)),
    }
    return as_read(decay.dtype, **shapes, **({"D": (D[0], (channels,))} if D else {}))


def per_channel(decay: Tensor, B: Tensor, *channels: int) -> tuple[Tensor, Tensor, Tensor]:
    """Room for gradients of decay, frequency and B, for each channel."""
    modes = decay.shape[1]
    return (
        decay.new_empty(*channels, modes),
        decay.new_empty(*channels, modes),
        B.new_empty(*channels, modes, 2),
    )


def of_sets(grad: Tensor, sets: int) -> Tensor:
    """Gradients for each channel, added up for those that share a set of A and B."""
    return grad if len(grad) == sets else grad.unflatten(0, (sets, -1)).sum(1)


def stored_system(
    codes: tuple[int, int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor,
) -> tuple[Discrete, Tensor]:  # fmt: skip
    """One step (H, modes), and C (..., H, modes), both complex and in double precision.

    ``codes`` are the numbers of the discretisation and the constraint; decay, frequency
    (sets, modes), B (sets, modes, 2), C (..., H, modes, 2), log_dt (H,).
    """
    rules = [x for x in DISCRETIZATIONS.values() if isinstance(x, CompiledRule)]
    rule = next(x for x in rules if x.code == codes[0])
    constraint = next(x for x in CONSTRAINTS.values() if x.code == codes[1])
    copies = log_dt.shape[0] // decay.shape[0]
    A = torch.complex(-constraint.forward(decay.double()), frequency.double())
    A, B = (x.repeat_interleave(copies, dim=0) for x in (A, _as_complex(B)))
    dt = rate * log_dt.double().exp()[:, None]
    return rule(A, B, dt), _as_complex(C)


def _as_complex(x: Tensor) -> Tensor:
    real, imag = x.double().unbind(-1)
    return torch.complex(real, imag)
