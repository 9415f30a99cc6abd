"""Constraints that keep the real part of A negative: a raw parameter behind a decay rate.

``Re(A) = -forward(raw)``, and ``inverse`` finds the raw value of a wanted decay rate.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from s4d_torch._registry import Registry

# The numbers by which the compiled code knows these constraints.
EXP, RELU, SOFTPLUS, IDENTITY = range(4)

# The window methods LegT and FouT start at Re(A) = 0, which no open constraint can reach.
FLOOR = 1e-4


@dataclass(frozen=True)
class Constraint:
    """A map from a raw parameter to the decay rate ``-Re(A)``, with its inverse.

    ``stable`` says that every raw value gives a decay rate above zero. ``code`` is its number in
    the compiled code; a constraint without one runs in plain torch, with the same answer.
    """

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    stable: bool = True
    code: int | None = None


CONSTRAINTS: Registry[Constraint] = Registry("constraint")

CONSTRAINTS.register(
    "exp",
    Constraint(forward=torch.exp, inverse=lambda decay: decay.clamp(min=FLOOR).log(), code=EXP),
)
CONSTRAINTS.register(
    "relu",
    # Starting at least FLOOR above the kink, where the gradient of relu would vanish for good.
    Constraint(
        forward=lambda raw: raw.relu() + FLOOR,
        inverse=lambda decay: (decay - FLOOR).clamp(min=FLOOR),
        code=RELU,
    ),
)
CONSTRAINTS.register(
    "softplus",
    Constraint(
        # threshold: torch turns linear at 20 by default, which is off by 2e-9
        forward=lambda raw: softplus(raw, threshold=40.0),
        inverse=lambda decay: (
            decay.clamp(min=FLOOR) + (-torch.expm1(-decay.clamp(min=FLOOR))).log()
        ),
        code=SOFTPLUS,
    ),
)
CONSTRAINTS.register(
    "identity",
    Constraint(forward=lambda raw: raw, inverse=lambda decay: decay, stable=False, code=IDENTITY),
)
