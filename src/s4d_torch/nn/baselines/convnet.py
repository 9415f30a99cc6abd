"""Convolutional networks for raw sound: the paper's own, and a ResNet in one dimension."""

from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import gelu, max_pool1d, pad, relu

from s4d_torch.nn.baselines.baseline import MODELS, Baseline, pool
from s4d_torch.nn.batch import zero_ends
from s4d_torch.nn.norm import SequenceBatchNorm

STAGES = 4  # each shorter in time than the one before


class ConvBlock(nn.Module):
    """``x + GELU(convolution(BatchNorm(x)))``, 25 samples wide; (batch, length, features)."""

    def __init__(self, features: int, dropout: float, factory: dict[str, Any]) -> None:
        super().__init__()
        self.norm = SequenceBatchNorm(features, **factory)
        self.conv = nn.Conv1d(features, features, 25, padding=12, **factory)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        branch = self.conv(zero_ends(self.norm(x, lengths), lengths).mT).mT
        return x + self.dropout(gelu(branch))


@MODELS.register("ConvNet")
class ConvNet(Baseline):
    """The paper's convolutional network for raw sound: four stages of residual blocks.

    A stage ends in the mean over each 4 samples, the next is twice as wide. ``d_model`` is the
    width of the first, ``n_layers`` the blocks of all; 64 and 12 in the paper. Unlike there,
    padding stays silent from block to block, so that a result does not depend on how much of it
    there is.
    """

    kind = "a convolutional network"

    def __init__(
        self,
        d_input: int,
        d_output: int,
        d_model: int = 64,
        n_layers: int = 12,
        *,
        encoder: str = "linear",
        dropout: float = 0.0,
        towers: int = 1,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(locals())
        blocks = spread(n_layers)
        widths = [2**i * d_model for i in range(len(blocks))]
        self.stages = nn.ModuleList(
            nn.ModuleList(ConvBlock(width, dropout, self.factory) for _ in range(count))
            for width, count in zip(widths, blocks, strict=True)
        )
        self.wideners = nn.ModuleList(nn.Linear(w, 2 * w, **self.factory) for w in widths[:-1])
        self.finish(widths[-1], generator)

    def features(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        for i, stage in enumerate(self.stages):
            if i:
                x = self.wideners[i - 1](x)
            for block in stage:  # type: ignore[attr-defined]
                x = block(x, lengths)
            x, lengths = averages(x, lengths, 4)
        return pool(x, lengths, "mean")


class ResBlock(nn.Module):
    """Two convolutions of 3 samples, each with BatchNorm, beside a shortcut."""

    def __init__(self, features: int, stride: int, dropout: float, factory: dict[str, Any]) -> None:
        super().__init__()
        wide: dict[str, Any] = {"kernel_size": 3, "padding": 1, "bias": False, **factory}
        self.stride = stride
        self.conv1 = nn.Conv1d(features, features, stride=stride, **wide)
        self.norm1 = SequenceBatchNorm(features, **factory)
        self.conv2 = nn.Conv1d(features, features, **wide)
        self.norm2 = SequenceBatchNorm(features, **factory)
        self.dropout = nn.Dropout(dropout)
        if stride > 1:
            self.shortcut = nn.Conv1d(features, features, 1, stride, bias=False, **factory)
            self.shortcut_norm = SequenceBatchNorm(features, **factory)

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """``lengths`` are those after the block; the ends of ``x`` are silent, as the result's."""
        branch = relu(self.norm1(self.conv1(x.mT).mT, lengths))
        branch = self.conv2(zero_ends(self.dropout(branch), lengths).mT).mT
        if self.stride > 1:
            x = self.shortcut_norm(self.shortcut(x.mT).mT, lengths)
        return zero_ends(relu(x + self.norm2(branch, lengths)), lengths)


@MODELS.register("ResNet")
class ResNet(Baseline):
    """A ResNet in one dimension: four stages as wide as each other, each half as long.

    ``d_model`` is the width, ``n_layers`` the blocks of two convolutions each: 64 and 8 make the
    ResNet-18 of the paper. The decoder reads the mean and the maximum over time.
    """

    kind = "a convolutional network"
    signal_encoder = nn.Identity  # the stem reads signals as they are

    def __init__(
        self,
        d_input: int,
        d_output: int,
        d_model: int = 64,
        n_layers: int = 8,
        *,
        encoder: str = "linear",
        dropout: float = 0.0,
        towers: int = 1,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(locals())
        channels = d_model if encoder == "embedding" else d_input
        self.stem = nn.Conv1d(channels, d_model, 3, 2, padding=1, bias=False, **self.factory)
        self.norm = SequenceBatchNorm(d_model, **self.factory)
        self.blocks = nn.ModuleList(
            ResBlock(d_model, 2 if stage and not i else 1, dropout, self.factory)
            for stage, count in enumerate(spread(n_layers))
            for i in range(count)
        )
        self.finish(2 * d_model, generator)

    def features(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        x = self.stem(zero_ends(x, lengths).mT).mT  # the padding of tokens is a token, too
        lengths = halved(lengths)
        x = zero_ends(relu(self.norm(x, lengths)), lengths)
        lengths = halved(lengths)
        peaks = max_pool1d(x.mT, 3, 2, padding=1).mT  # silence is never above the sound
        x = zero_ends(peaks, lengths)
        for block in self.blocks:
            lengths = halved(lengths) if block.stride == 2 else lengths
            x = block(x, lengths)
        return torch.cat([pool(x, lengths, "mean"), x.amax(1)], dim=-1)


def spread(n_layers: int) -> list[int]:
    """How many of the blocks are in each stage: as even as can be, and none empty."""
    stages = min(STAGES, n_layers)
    return [n_layers // stages + (i < n_layers % stages) for i in range(stages)]


def halved(lengths: Tensor | None) -> Tensor | None:
    """Of every second sample, beginning with the first."""
    return None if lengths is None else (lengths + 1) // 2


def averages(x: Tensor, lengths: Tensor | None, width: int) -> tuple[Tensor, Tensor | None]:
    """The mean over each ``width`` samples; the last one may have fewer that are valid."""
    batch, length, _ = x.shape
    blocks = -(-length // width)
    sums = pad(zero_ends(x, lengths), (0, 0, 0, blocks * width - length))
    sums = sums.unflatten(1, (blocks, width)).sum(2)
    ends = x.new_full((batch,), length) if lengths is None else lengths.to(x.dtype)
    starts = width * torch.arange(blocks, device=x.device, dtype=x.dtype)
    counts = (ends[:, None] - starts).clamp(1, width)
    return sums / counts[..., None], None if lengths is None else (lengths + width - 1) // width
