"""A moving average of weights, which often judges better than the last ones."""

from __future__ import annotations

import copy

import torch

from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.sharing import whole


class Average:
    """``average <- decay average + (1 - decay) weights`` after each step.

    In the first steps the decay is smaller, (1 + k)/(10 + k), so that the random start is soon
    forgotten. Running statistics are taken as they are.
    """

    def __init__(self, model: Pretrained, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.model.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, model: Pretrained) -> None:
        updates = self.model.get_buffer("updates")
        updates += 1
        k = int(updates)
        weight = 1 - min(self.decay, (1 + k) / (10 + k))
        for own, other in zip(self.model.parameters(), model.parameters(), strict=True):
            own.lerp_(whole(other.detach()).to(own.dtype), weight)
        buffers = dict(model.named_buffers())
        for name, buffer in self.model.named_buffers():
            if name in buffers:
                buffer.copy_(whole(buffers[name]))
