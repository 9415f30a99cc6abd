"""From a config and the signature of its data to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from s4d_torch._registry import Registry
from s4d_torch.data.dataset import Signature
from s4d_torch.nn.baselines import RecurrentModel
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.config import Config

Build = Callable[[Config, Signature, dict[str, Any]], Pretrained]
ARCHITECTURES: Registry[Build] = Registry("architecture")


def build_model(config: Config, signature: Signature) -> Pretrained:
    """A model with first weights from the config's seed."""
    factory = {
        "generator": torch.Generator().manual_seed(config.training.seed),
        "dtype": torch.float64 if config.training.precision == "float64" else torch.float32,
    }
    return ARCHITECTURES[config.model.architecture](config, signature, factory)


def _ends(signature: Signature) -> dict[str, Any]:
    return {
        "d_input": signature.features,
        "d_output": signature.outputs,
        "encoder": "embedding" if signature.tokens else "linear",
    }


@ARCHITECTURES.register("ssm")
def state_space(config: Config, signature: Signature, factory: dict[str, Any]) -> Pretrained:
    options = asdict(config.model)
    del options["architecture"]
    method = config.method
    if method.kernel == "softmax" and method.softmax_length == type(method)().softmax_length:
        method = method.replace(softmax_length=signature.length)
    ends, towers = _ends(signature), signature.towers
    return SequenceModel(**ends, **options, towers=towers, method=method, **factory)


@ARCHITECTURES.register("lstm")
def lstm(config: Config, signature: Signature, factory: dict[str, Any]) -> Pretrained:
    """An LSTM as wide as the config says; layers as many."""
    if signature.towers != 1:
        raise ValueError("the LSTM reads single sequences, not pairs; use architecture 'ssm'")
    model = config.model
    return RecurrentModel(
        **_ends(signature),
        d_model=model.d_model,
        n_layers=model.n_layers,
        pooling=model.pooling,
        bidirectional=config.method.bidirectional,
        dropout=model.dropout,
        **factory,
    )
