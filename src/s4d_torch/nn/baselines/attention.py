"""The Transformer."""

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from s4d_torch.nn import validate
from s4d_torch.nn.baselines.baseline import MODELS, Baseline, pool
from s4d_torch.nn.batch import mask


class AttentionBlock(nn.Module):
    """``x + attend(norm(x))``, then ``x + feed_forward(norm(x))``; (batch, length, d_model).

    As ``nn.TransformerEncoderLayer`` with ``norm_first``, but the table of attention weights,
    length x length for each head, is never held in memory: there is no dropout on it.
    """

    def __init__(self, d_model: int, heads: int, dropout: float, factory: dict[str, Any]) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(d_model, **factory)
        self.read = nn.Linear(d_model, 3 * d_model, **factory)
        self.write = nn.Linear(d_model, d_model, **factory)
        self.norm = nn.LayerNorm(d_model, **factory)
        self.widen = nn.Linear(d_model, 4 * d_model, **factory)
        self.narrow = nn.Linear(4 * d_model, d_model, **factory)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """``valid`` (batch, 1, 1, length) says which positions may be looked at."""
        read = self.read(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = read.permute(2, 0, 3, 1, 4)  # (batch, heads, length, features)
        seen = scaled_dot_product_attention(query, key, value, attn_mask=valid)
        x = x + self.dropout(self.write(seen.transpose(1, 2).flatten(2)))
        wide = self.dropout(gelu(self.widen(self.norm(x))))
        return x + self.dropout(self.narrow(wide))


@MODELS.register("TransformerModel")
class TransformerModel(Baseline):
    """Encoder + sinusoidal positions -> attention blocks (pre-norm) -> norm -> pooling -> decoder.

    Every position looks at every other; time and not memory grows with the square of the length.
    """

    kind = "a Transformer"

    def __init__(
        self,
        d_input: int,
        d_output: int,
        d_model: int = 128,
        n_layers: int = 4,
        *,
        heads: int = 4,
        encoder: str = "linear",
        pooling: str = "mean",
        dropout: float = 0.0,
        towers: int = 1,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(locals())
        validate.positive_integer("heads", heads)
        if d_model % heads:
            raise ValueError(f"heads must divide d_model={d_model}, got {heads}")
        self.blocks = nn.ModuleList(
            AttentionBlock(d_model, heads, dropout, self.factory) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model, **self.factory)
        self.finish(d_model, generator)

    def features(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        x = x + positions(x.shape[1], x.shape[2]).to(x)
        valid = None if lengths is None else mask(lengths, x)[:, None, None, :, 0]
        for block in self.blocks:
            x = block(x, valid)
        return pool(self.norm(x), lengths, self.config["pooling"])


def positions(length: int, features: int) -> Tensor:
    """(length, features): sines and cosines of the position, of wave lengths 2 pi to 20000 pi."""
    rates = torch.arange(0, features, 2, dtype=torch.float64) * (-math.log(10000.0) / features)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates.exp()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :features]
