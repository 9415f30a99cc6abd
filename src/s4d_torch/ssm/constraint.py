"""Constraints that keep the real part of A negative: a raw parameter behind a decay rate.

``Re(A) = -forward(raw)``, and ``inverse`` finds the raw value of a wanted decay rate.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from s4d_torch._registry import Registry

# The numbers by which the compiled code knows these constraints.
EXP, RELU, SOFTPLUS, IDENTITY, BEST = range(5)

# The window methods LegT and FouT start at Re(A) = 0, which no open constraint can reach.
FLOOR = 1e-4

BEST_OFFSET = 0.5  # b of ``best``, as in StableSSM's experiments


@dataclass(frozen=True)
class Constraint:
    """A map from a raw parameter to the decay rate ``-Re(A)``, with its inverse.

    ``stable`` says that every raw value gives a decay rate above zero. ``code`` is its number in
    the compiled code; a constraint without one runs in plain torch, with the same answer.
    ``largest`` is the decay rate that none exceeds.
    """

    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    stable: bool = True
    code: int | None = None
    largest: float = math.inf


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


def best(raw: Tensor) -> Tensor:
    """``1 / (raw^2 + b)``, the reparameterisation of StableSSM (arXiv 2311.14495).

    The gradient of a loss by a decay rate d grows like 1/d^2 as d goes to 0. Here the slope is
    ``-2 raw d^2``, so what arrives at raw grows no faster than raw itself, however slow the mode.
    Decay rates lie in (0, 1/b].
    """
    return 1 / (raw.square() + BEST_OFFSET)


def _best_inverse(decay: Tensor) -> Tensor:
    # at least FLOOR away from 1/b, where raw = 0 and the slope vanishes; of the two roots the
    # negative one, so that raw grows with the decay rate as in the other constraints
    return -(1 / decay.clamp(min=FLOOR) - BEST_OFFSET).clamp(min=FLOOR).sqrt()


CONSTRAINTS.register("best", Constraint(best, _best_inverse, code=BEST, largest=1 / BEST_OFFSET))
