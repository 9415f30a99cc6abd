"""Samples that are images: a small convolutional network reads each of them."""

import math
from typing import Any

from torch import Generator, Tensor, nn

SMALLEST = 8  # pixels of a side, of which the two steps down leave one
CHANNELS = 12


class FrameEncoder(nn.Module):
    """(..., side * side) -> (..., d_model), each image by itself, row by row.

    Two convolutions (5x5, and 3x3 in steps of two), each followed by a ReLU and the largest of each
    2x2, and a linear map: the encoder of the recurrent Kalman networks (Becker et al. 2019) without
    its norms.
    """

    def __init__(
        self, d_input: int, d_model: int, generator: Generator | None = None, **factory: Any
    ) -> None:
        super().__init__()
        self.side = side_of(d_input)
        halved = [-(-(self.side // 2) // 2) // 2] * 2
        first = nn.Conv2d(1, CHANNELS, 5, padding=2, **factory)
        second = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=2, padding=1, **factory)
        self.images = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2))
        self.images.extend([second, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()])
        self.output = nn.Linear(CHANNELS * math.prod(halved), d_model, **factory)
        for part in (first, second, self.output):
            bound = 1 / math.sqrt(part.weight[0].numel())
            for parameter in part.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    @property
    def weight(self) -> Tensor:
        """Of the linear map: what tells device and precision."""
        return self.output.weight

    def forward(self, u: Tensor) -> Tensor:
        lead = u.shape[:-1]
        images = u.reshape(-1, 1, self.side, self.side)
        found: Tensor = self.output(self.images(images))
        return found.reshape(*lead, found.shape[-1])


def side_of(d_input: int) -> int:
    """Pixels of a side of square images of so many."""
    side = math.isqrt(d_input)
    if side * side != d_input or side < SMALLEST:
        raise ValueError(
            f"encoder 'frames' reads square images of at least {SMALLEST}x{SMALLEST} pixels, row "
            f"by row; d_input {d_input} is no such number"
        )
    return side
