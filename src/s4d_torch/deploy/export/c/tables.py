"""The plan of a model as the constant arrays of its C source, in the order of use.

Channels are the last axis of every array, so that a compiler can run several at a time without
changing the order of any sum.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from s4d_torch.nn.norm import FoldedNorm, NormKind
from s4d_torch.nn.plan import AffinePlan, BlockPlan, ModelPlan, SystemPlan
from s4d_torch.ssm.pairs import to_complex

TINY = 1e-30  # a mode that inputs hardly reach is scaled by this, not by its B

Arrays = dict[str, Tensor]


@dataclass(frozen=True)
class Tables:
    """All constants: of the whole model, and of each layer."""

    model: Arrays
    layers: tuple[Arrays, ...]

    @property
    def bytes(self) -> int:
        """What they take of read-only memory."""
        every = [*self.model.values(), *(x for layer in self.layers for x in layer.values())]
        return sum(x.numel() * x.element_size() for x in every)


@torch.no_grad()
def make_tables(plan: ModelPlan, real: torch.dtype) -> Tables:
    """``real`` is the type of the states and of all that multiplies them; the rest is float32."""
    if isinstance(plan.encoder, AffinePlan):
        model = _affine("encoder", plan.encoder)
    else:
        model = {"encoder_rows": plan.encoder.float()}
    model |= _norm("last_norm", plan.norm)
    names = ("pair", "decoder")[-len(plan.decoder) :]
    for name, part in zip(names, plan.decoder, strict=True):
        model |= _affine(name, part)
    return Tables(model, tuple(_layer(block, real) for block in plan.blocks))


def _layer(block: BlockPlan, real: torch.dtype) -> Arrays:
    linear = {} if block.linear is None else _affine("mixing", block.linear)
    system = {name: x.to(real).contiguous() for name, x in system_tables(block.past).items()}
    return _norm("norm", block.norm) | system | linear


def system_tables(plan: SystemPlan) -> Arrays:
    """``y = Re(c s) + d u, s <- a s + u`` with modes scaled so that an input adds 1 to each.

    ``a_re``, ``a_im``, ``c_re``, ``c_im`` (modes, H), where c_im has the sign that makes the real
    part a sum; ``d`` (H,). Of a low-rank system also ``left_*`` and ``right_*`` (rank, modes, H):
    ``s <- a s - sum_k left_k Re(right_k s) + u``. Real modes have no ``*_im``.
    """
    pairs = plan.kind != "real"
    B = to_complex(plan.input.contiguous(), pairs)
    scale = torch.where(B.abs() < TINY, torch.full_like(B, TINY), B)
    found = _parts("a", to_complex(plan.diagonal.contiguous(), pairs), pairs)
    found |= _parts("c", _reader(plan.output, scale, pairs), pairs)
    if plan.kind == "low rank":
        left = to_complex(plan.left.mT.contiguous()) / scale[:, None]
        right = _reader(plan.right, scale[:, None], pairs)
        found |= _parts("left", left, pairs) | _parts("right", right, pairs)
    return found | {"d": plan.direct}


def _reader(row: Tensor, scale: Tensor, pairs: bool) -> Tensor:
    """A real row over a state -> the one over real and imaginary parts of scaled modes."""
    return (to_complex(row.contiguous(), pairs).conj() * scale).conj()


def _parts(name: str, x: Tensor, pairs: bool) -> Arrays:
    """(H, ..., modes) -> (..., modes, H), real and imaginary."""
    by_channel = x.movedim(0, -1)
    if not pairs:
        return {f"{name}_re": by_channel.real if x.is_complex() else by_channel}
    return {f"{name}_re": by_channel.real, f"{name}_im": by_channel.imag}


def _affine(name: str, plan: AffinePlan) -> Arrays:
    """The matrix (inputs, outputs), so that outputs are neighbours."""
    weight = plan.weight if plan.weight.dtype == torch.int8 else plan.weight.float()
    found = {f"{name}_weight": weight.t().contiguous(), f"{name}_bias": plan.bias.float()}
    return found if plan.scale is None else found | {f"{name}_scale": plan.scale.float()}


def _norm(name: str, norm: FoldedNorm | None) -> Arrays:
    assert norm is not None, "a model with a norm of no folded form was refused before"
    if norm.kind == NormKind.NONE:
        return {}
    return {f"{name}_scale": norm.scale.float(), f"{name}_shift": norm.shift.float()}
