"""Discretisations: from x' = Ax + Bu to one step of size dt.

Every rule becomes one step in the same form, for the state ``s`` just before a sample ``u_k``:

    y_k = C (s + B_now u_k)            s <- A_bar s + B_next u_k

For rules that look at one sample (all but FOH) ``B_next = A_bar B_now``, and this is the paper's
``x_k = A_bar x_k-1 + B_bar u_k, y_k = C x_k`` with ``B_bar = B_now``. A first-order hold also looks
at the sample before: ``x_k = A_bar x_k-1 + B_before u_k-1 + B_now u_k``.

What is carried from call to call is x_k, the state just after a sample: how far it is to the next
one only that one says. A first-order hold carries u_k along.

The logarithm of A_bar is kept beside it, accurate relative to itself: A_bar^l is exp(l log A_bar),
and at l = 16384 an A_bar rounded to float64 would have lost four digits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from s4d_torch._registry import Registry
from s4d_torch.ssm.autodiff import at_hand


class Discrete(NamedTuple):
    """One step of a diagonal system; all fields (..., modes), complex.

    ``B_next`` is None for a rule that looks at one sample: then it is ``A_bar B_now``.
    """

    log_A: Tensor
    B_now: Tensor
    B_next: Tensor | None = None

    @property
    def A_bar(self) -> Tensor:
        return torch.exp(self.log_A)

    @property
    def into_state(self) -> Tensor:
        """What one unit of input adds to the next state."""
        return self.A_bar * self.B_now if self.B_next is None else self.B_next

    @property
    def B_before(self) -> Tensor | None:
        """What a sample adds by the next one, beside ``A_bar B_now``; None if that is all."""
        return None if self.B_next is None else self.B_next - self.A_bar * self.B_now


class DiscreteLowRank(NamedTuple):
    """One bilinear step of a DPLR system, over one mode of each conjugate pair.

    ``A_bar s = diagonal s - left Re(right s)``: diagonal plus low-rank again.
    ``diagonal`` (..., H, M), ``left`` (..., H, M, rank), ``right`` (..., H, rank, M), ``B_now``
    (..., H, M).
    """

    diagonal: Tensor
    left: Tensor
    right: Tensor
    B_now: Tensor


Rule = Callable[[Tensor, Tensor, Tensor], Discrete]

# A rule is a function of A, B and dt; a CompiledRule has a number in the compiled code as well. Any
# other runs in plain torch, with the same answer.
DISCRETIZATIONS: Registry[Rule] = Registry("discretization")
BILINEAR, ZOH, FOH, DIRAC = range(4)


@dataclass(frozen=True)
class CompiledRule:
    """A rule with compiled code beside its formula."""

    formula: Rule
    code: int

    def __call__(self, A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
        return self.formula(A, B, dt)


def looks_back(rule: Rule) -> bool:
    """Whether a rule looks at the sample before."""
    one = torch.ones(1, 1, dtype=torch.float64, device="cpu")
    A = torch.complex(-one, one)
    return rule(A, torch.complex(one, one), one).B_next is not None


def bilinear(A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
    """``A_bar = (1 + dt A/2) / (1 - dt A/2)``, ``B_bar = dt B / (1 - dt A/2)``; dt (..., 1)."""
    half = 0.5 * dt * A
    return Discrete(log_A=_log_cayley(half), B_now=dt * B / (1 - half))


def zoh(A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
    """Zero-order hold, exact for inputs constant over a step: ``A_bar = e^(dt A)``."""
    z = dt * A
    return Discrete(log_A=z, B_now=dt * B * phi1(z))


def foh(A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
    """First-order hold, exact for inputs linear over a step (the trapezoid rule for u)."""
    z = dt * A
    mean = phi1(z)
    return Discrete(log_A=z, B_now=dt * B * phi2(z, mean), B_next=dt * B * mean * mean)


def dirac(A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
    """Samples are events, impulses of weight u: ``A_bar = e^(dt A)``, ``B_bar = B``.

    The state decays from one event to the next, and an event adds ``B u`` however long the wait.
    """
    z = dt * A
    return Discrete(log_A=z, B_now=B.expand_as(z))


DISCRETIZATIONS.register("bilinear", CompiledRule(bilinear, BILINEAR))
DISCRETIZATIONS.register("zoh", CompiledRule(zoh, ZOH))
DISCRETIZATIONS.register("foh", CompiledRule(foh, FOH))
DISCRETIZATIONS.register("dirac", CompiledRule(dirac, DIRAC))


def bilinear_low_rank(A: Tensor, P: Tensor, B: Tensor, dt: Tensor) -> DiscreteLowRank:
    """The bilinear rule for ``diag(A) - P P*``, by the Woodbury identity.

    A, B (H, M), P (H, rank, M), dt (..., H, 1); the other half of a conjugate pair is implied, so
    ``P P* s`` is ``P 2 Re(P* s)``. With ``d = 1 / (1 - dt A/2)`` the inverse of ``I - dt/2 (...)``
    maps s to ``d s - dt (d P) W Re(P* d s)``, where ``W = (I + dt Re(P* d P))^-1``.
    """
    d = 1 / (1 - 0.5 * dt * A)
    right = P.conj() * d[..., None, :]  # (..., H, rank, M)
    rank = P.shape[-2]
    core = torch.eye(rank, dtype=dt.dtype, device=dt.device) + dt[..., None] * (right @ P.mT).real
    weights = inverse(core) * dt[..., None]  # (..., H, rank, rank)
    # modes last: gradients of shape (H, M, 1) stop torch.compile, whose strides they confuse
    left = weights.mT.to(P.dtype) @ (P * d[..., None, :])  # (..., H, rank, M)
    seen = (right @ B[..., None]).real  # (..., H, rank, 1)
    B_now = dt * (d * B - (left * seen).sum(-2))
    return DiscreteLowRank(diagonal=2 * d - 1, left=2 * left.mT, right=right, B_now=B_now)


def inverse(matrix: Tensor) -> Tensor:
    """That of small matrices; whether there is one is asked where the answer is at hand."""
    found: Tensor = torch.linalg.inv_ex(matrix, check_errors=at_hand(matrix)).inverse
    return found


def phi1(z: Tensor) -> Tensor:
    """``(e^z - 1) / z``, without loss of digits or gradient at z = 0."""
    small = z.abs() < 0.5
    safe = torch.where(small, torch.ones_like(z), z)
    return torch.where(small, _exponential_series(z, skip=1), (torch.exp(safe) - 1) / safe)


def phi2(z: Tensor, first: Tensor) -> Tensor:
    """``(e^z - 1 - z) / z^2`` given ``first = phi1(z)``."""
    small = z.abs() < 0.5
    safe = torch.where(small, torch.ones_like(z), z)
    return torch.where(small, _exponential_series(z, skip=2), (first - 1) / safe)


def _exponential_series(z: Tensor, skip: int, terms: int = 14) -> Tensor:
    """``sum_k z^k / (k + skip)!`` by Horner's rule; 0.5^14 / 15! is below float64's last bit."""
    total = torch.ones_like(z)
    for k in range(terms, 0, -1):
        total = 1 + total * z / (k + skip)
    return total if skip == 1 else total / 2


def _log_cayley(x: Tensor) -> Tensor:
    """``log((1 + x) / (1 - x))``, accurate relative to itself for |x| from 1e-8 to 1e3.

    With x = a + ib, ``|1+x|^2 / |1-x|^2 = 1 + 4a / |1-x|^2`` shows the slow decay of fast modes,
    which a quotient near -1 would round away. At x = -1 the quotient is 0: its logarithm becomes
    that of the smallest float, and its gradient 0.
    """
    a, b = x.real, x.imag
    tiny = torch.finfo(a.dtype).tiny
    below = (1 - a).square() + b.square()
    above = (1 + a).square() + b.square()
    shrinks = above < 0.5 * below
    ratio = torch.where(shrinks, above / below, torch.ones_like(a)).clamp(min=tiny)
    excess = torch.where(shrinks, torch.zeros_like(a), 4 * a / below)
    modulus = 0.5 * torch.where(shrinks, ratio.log(), torch.log1p(excess))
    vanishes = above < tiny  # the angle of 0 has no gradient
    opposite = torch.where(vanishes, torch.zeros_like(b), 2 * b)
    adjacent = torch.where(vanishes, torch.ones_like(a), (1 - a) * (1 + a) - b.square())
    return torch.complex(modulus, torch.atan2(opposite, adjacent))
