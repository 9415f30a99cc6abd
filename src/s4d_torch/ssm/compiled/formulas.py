"""What compiled code makes of stored parameters, written with torch's own operations."""

import torch
from torch import Tensor

from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS, CompiledRule, Discrete


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
