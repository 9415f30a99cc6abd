"""The time between samples: gaps in steps of the training rate, and how many of them differ."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import at_hand
from s4d_torch.ssm.pieces import Pieces

FEW = 64  # distinct gaps whose steps are made once and looked up


@dataclass(frozen=True)
class Gaps:
    """``each`` (batch, length), double, is the time since the sample before."""

    each: Tensor

    @cached_property
    def named(self) -> tuple[Tensor, Tensor] | None:
        """The distinct gaps, (n,), and which of them is where; None if they are many or unknown."""
        if not at_hand(self.each):
            return None
        sample = self.each.flatten()[: 32 * FEW]  # if these are many, all are, without sorting them
        if len(torch.unique(sample)) > FEW:
            return None
        values, which = torch.unique(self.each, return_inverse=True)
        return (values, which) if len(values) <= FEW else None

    @property
    def constant(self) -> float | None:
        """The one gap there is, if there is one: samples are evenly spaced then."""
        return float(self.named[0][0]) if self.named and len(self.named[0]) == 1 else None

    def padded(self, pieces: Pieces) -> "Gaps":
        """Those of pieces, (n, longest); beyond an end stands a gap that occurs anyway."""
        each, places = pieces.padded(self.each)
        return Gaps(torch.where(places < 0, self.each[0, 0], each))

    def flip(self) -> "Gaps":
        """Of the sequences from their ends."""
        return Gaps(self.each.flip(1))
