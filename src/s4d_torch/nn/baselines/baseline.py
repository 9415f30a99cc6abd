"""What all baselines share: how they are called, how they end, how their weights are drawn."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from s4d_torch._registry import Registry
from s4d_torch.nn import validate
from s4d_torch.nn.batch import check_input, compare_pairs, in_one_batch, last, read_input, zero_ends
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.norm import SequenceBatchNorm
from s4d_torch.nn.pretrained import Pretrained, configurable

MODELS: Registry[type[Pretrained]] = Registry("model")
MODELS.register("SequenceModel", SequenceModel)

POOLINGS = ("mean", "last")


class Baseline(Pretrained, ABC):
    """What all baselines share: ``features`` of one sequence each, then a decoder.

    They are called as a :class:`SequenceModel` is. Padding does not change an output. ``towers=2``
    reads pairs, (batch, 2, length, d_input), and decodes ``[a, b, a - b, a b]``. ``rate`` is
    refused unless it is 1: none of them has a notion of a sampling rate.
    """

    kind: ClassVar[str]
    signal_encoder: ClassVar[Callable[..., nn.Module]] = nn.Linear  # for tokens: an embedding
    decoder: nn.Module

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.config = {name: arguments[name] for name in configurable(type(self))}
        for name in ("d_input", "d_output", "d_model", "n_layers", "towers"):
            validate.positive_integer(name, self.config[name])
        validate.fraction("dropout", self.config["dropout"])
        validate.parameter_dtype(arguments["dtype"])
        for name, options in {"encoder": ("linear", "embedding"), "pooling": POOLINGS}.items():
            validate.one_of(name, self.config.get(name, options[0]), options)
        if self.config["towers"] > 2:
            raise ValueError(f"towers must be 1 or 2, got {self.config['towers']}")
        self.towers: int = self.config["towers"]
        self.factory: dict[str, Any] = {name: arguments[name] for name in ("device", "dtype")}
        make = nn.Embedding if self.config["encoder"] == "embedding" else self.signal_encoder
        self.encoder = make(self.config["d_input"], self.config["d_model"], **self.factory)

    @abstractmethod
    def features(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Encoded sequences (batch, length, d_model) -> (batch, features)."""

    def finish(self, features: int, generator: Generator | None) -> None:
        """Add the decoder, and draw all weights."""
        d_model, d_output = self.config["d_model"], self.config["d_output"]
        widths = (features, d_output) if self.towers == 1 else (4 * features, d_model, d_output)
        layers = [nn.Linear(*sizes, **self.factory) for sizes in pairwise(widths)]
        self.decoder = (
            layers[0] if self.towers == 1 else nn.Sequential(layers[0], nn.GELU(), layers[1])
        )
        draw_uniform(self, generator)

    def forward(
        self,
        u: Tensor,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        rate: float = 1.0,
        return_state: bool = False,
    ) -> tuple[Tensor, None]:
        """y (batch, d_output); there is no state to return."""
        if rate != 1:
            problem = f"{self.kind} cannot change its sampling rate"
            raise ValueError(f"{problem}, got {rate}; leave out rate")
        dtype = None if self.config["encoder"] == "embedding" else next(self.parameters()).dtype
        check_input(u, self.towers, self.config["d_input"], dtype)
        u, lengths = read_input(u, lengths, self.towers)
        if self.towers == 2:
            u, lengths = in_one_batch(u, lengths)
        x = self.features(self.encoder(u if u.is_floating_point() else u.long()), lengths)
        y: Tensor = self.decoder(compare_pairs(x) if self.towers == 2 else x)
        return y, None


def pool(x: Tensor, lengths: Tensor | None, pooling: str) -> Tensor:
    """x (batch, length, features) -> (batch, features): the valid part's mean, or its last."""
    if pooling == "last":
        return last(x, lengths)
    if lengths is None:
        return x.mean(1)
    return zero_ends(x, lengths).sum(1) / lengths[:, None]


def draw_uniform(module: nn.Module, generator: Generator | None) -> None:
    """torch's own start for weights, U(-1, 1) / sqrt(inputs), from a generator of the caller's."""
    for child in module.modules():
        own = list(child.parameters(recurse=False))
        if isinstance(child, nn.LayerNorm | SequenceBatchNorm) or not own:
            continue
        inputs = child.hidden_size if isinstance(child, nn.LSTM) else own[0][0].numel()
        scale = 1.0 if isinstance(child, nn.Embedding) else inputs**-0.5
        with torch.no_grad():
            for parameter in own:
                drawn = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_((2 * drawn - 1) * scale)
