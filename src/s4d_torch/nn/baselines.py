"""What a state space model is compared with: the same calls around other layers."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from s4d_torch._registry import Registry
from s4d_torch.nn import validate
from s4d_torch.nn.layer import mask
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import CONFIG, Pretrained, configurable

MODELS: Registry[type[Pretrained]] = Registry("model")
MODELS.register("SequenceModel", SequenceModel)


@MODELS.register("RecurrentModel")
class RecurrentModel(Pretrained):
    """Encoder -> ``nn.LSTM`` -> pooling -> decoder, called as a :class:`SequenceModel` is.

    ``rate`` is refused unless it is 1: a recurrent network has no notion of a sampling rate.
    """

    def __init__(
        self,
        d_input: int,
        d_output: int,
        d_model: int = 128,
        n_layers: int = 1,
        *,
        encoder: str = "linear",
        pooling: str = "mean",
        bidirectional: bool = False,
        dropout: float = 0.0,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        arguments = locals()
        super().__init__()
        self.config = {name: arguments[name] for name in configurable(RecurrentModel)}
        self.pooling = pooling
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        make = nn.Embedding if encoder == "embedding" else nn.Linear
        self.encoder = make(d_input, d_model, **factory)
        self.lstm = nn.LSTM(
            d_model,
            d_model,
            n_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if n_layers > 1 else 0.0,
            **factory,
        )
        self.decoder = nn.Linear((1 + bidirectional) * d_model, d_output, **factory)
        draw_uniform(self, generator)
        with torch.no_grad():  # gates that forget nothing at first, or long sequences teach nothing
            for name, bias in self.lstm.named_parameters():
                if name.startswith("bias_ih"):
                    bias[d_model : 2 * d_model] = 1.0

    def forward(
        self,
        u: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        rate: float = 1.0,
        return_state: bool = False,
    ) -> tuple[Tensor, None]:
        """y (batch, d_output); the state is not returned."""
        if rate != 1:
            raise ValueError(f"a recurrent network cannot change its sampling rate, got {rate}")
        lengths = validate.sequence_lengths(lengths, (u.shape[0],), u.shape[1], u.device)
        x, _ = self.lstm(self.encoder(u if u.is_floating_point() else u.long()))
        y: Tensor = self.decoder(pool(x, lengths, self.pooling))
        return y, None


def pool(x: Tensor, lengths: Tensor | None, pooling: str) -> Tensor:
    """x (batch, length, features) -> (batch, features): the valid part's mean, or its last."""
    if pooling == "last":
        last = -1 if lengths is None else lengths - 1
        return x[torch.arange(len(x), device=x.device), last]
    if lengths is None:
        return x.mean(1)
    return torch.where(mask(lengths, x), x, 0.0).sum(1) / lengths[:, None]


def draw_uniform(module: nn.Module, generator: Generator | None) -> None:
    """torch's own start for weights, U(-1, 1) / sqrt(inputs), from a generator of the caller's."""
    for child in module.modules():
        own = list(child.parameters(recurse=False))
        if isinstance(child, nn.LayerNorm | nn.BatchNorm1d) or not own:
            continue
        inputs = child.hidden_size if isinstance(child, nn.LSTM) else own[0][0].numel()
        scale = 1.0 if isinstance(child, nn.Embedding) else inputs**-0.5
        with torch.no_grad():
            for parameter in own:
                drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_((2 * drawn - 1) * scale)


def load_model(folder: str | os.PathLike[str], **options: Any) -> Pretrained:
    """The model that ``save_pretrained`` wrote into ``folder``, of whatever class it is."""
    config = Path(folder) / CONFIG
    name = "SequenceModel"  # reports a missing or broken file in full
    if config.is_file():
        try:
            name = json.loads(config.read_text(encoding="utf-8")).get("model", name)
        except (ValueError, AttributeError):
            name = "SequenceModel"
    return MODELS[name].from_pretrained(folder, **options)
