"""What a model carries from one call to the next."""

from typing import NamedTuple

from torch import Tensor


class ModelState(NamedTuple):
    """What a model carries along: a state per layer and, for mean pooling, a running sum.

    ``layers`` each (batch, d_model, d_state); ``total`` (batch, d_model) and ``samples`` (batch,).
    """

    layers: tuple[Tensor, ...]
    total: Tensor
    samples: Tensor
