"""From a config and the signature of its data to a model."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from s4d_torch._registry import Registry
from s4d_torch.data.dataset import Signature
from s4d_torch.nn.baselines import ConvNet, RecurrentModel, ResNet, TransformerModel
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.config import Config

Build = Callable[[Config, Signature, dict[str, Any]], Pretrained]
ARCHITECTURES: Registry[Build] = Registry("architecture")


def build_model(config: Config, signature: Signature) -> Pretrained:
    """A model with first weights from the config's seed."""
    model, bidirectional = config.model, config.method.bidirectional
    jitter, architecture = config.training.rate_jitter, model.architecture
    if signature.kind == "generation":
        if architecture != "ssm":
            raise ValueError(
                f"architecture {architecture!r} cannot generate; use architecture 'ssm'"
            )
        if model.pooling != "none" or bidirectional:
            raise ValueError(
                "to generate, a model needs pooling 'none' and must not be bidirectional; "
                f"got pooling {model.pooling!r}, bidirectional {bidirectional}"
            )
    elif signature.kind == "tracking":
        if architecture != "ssm" or model.pooling != "none":
            raise ValueError(
                "to answer at each sample, a model needs architecture 'ssm' and pooling 'none'; "
                f"got {architecture!r} and {model.pooling!r}"
            )
    elif model.pooling == "none":
        raise ValueError(
            "pooling 'none' gives an output per step, and this task has one answer per sequence; "
            "use pooling 'mean' or 'last'"
        )
    if jitter and architecture != "ssm":
        raise ValueError(
            f"rate_jitter {jitter:g} changes dt, and architecture {architecture!r} has none; "
            "leave it out, or use architecture 'ssm'"
        )
    if jitter and signature.per_time:
        raise ValueError(
            f"rate_jitter {jitter:g} plays signals at other speeds, and the number to predict "
            "counts events per time, which change along; leave it out"
        )
    if signature.clock is not None and architecture != "ssm":
        raise ValueError(
            f"this data says when its samples came, and architecture {architecture!r} cannot be "
            "told; leave the times out, or use architecture 'ssm'"
        )
    frame = {
        "d_input": signature.features,
        "d_output": signature.outputs,
        "encoder": encoder_for(signature),
        "d_model": model.d_model,
        "n_layers": model.n_layers,
        "dropout": model.dropout,
        "towers": signature.towers,
        "generator": torch.Generator().manual_seed(config.training.seed),
        "dtype": torch.float64 if config.training.precision == "float64" else torch.float32,
    }
    built = ARCHITECTURES[architecture](config, signature, frame)
    built.preprocessing = preprocessing(signature)
    return built


def encoder_for(signature: Signature) -> str:
    """What reads the samples of such data."""
    if signature.frames:
        return "frames"
    return "embedding" if signature.tokens else "linear"


def preprocessing(signature: Signature) -> dict[str, Any] | None:
    """What stands in config.json beside weights that read ``(x - input_shift) * input_scale`` and
    answer a regression with ``(target - target_shift) / target_scale``.

    None where both are as they are.
    """
    shifts = {*signature.input_shift, signature.target_shift}
    scales = {*signature.input_scale, signature.target_scale}
    clock = signature.clock
    if (shifts, scales, clock) == ({0.0}, {1.0}, None):
        return None
    names = ("input_shift", "input_scale", "target_shift", "target_scale", "channels")
    return {
        "read_with": "s4d_torch.load_run(the folder of the run)",
        **{name: getattr(signature, name) for name in (*names, "sample_rate")},
        **({} if clock is None else {"clock": asdict(clock)}),
    }


@ARCHITECTURES.register("ssm")
def state_space(config: Config, signature: Signature, frame: dict[str, Any]) -> Pretrained:
    options, method = asdict(config.model) | frame, config.method
    del options["architecture"]
    if method.kernel == "softmax" and method.softmax_length == type(method)().softmax_length:
        method = method.replace(softmax_length=signature.length)
    return SequenceModel(**options, method=method)


@ARCHITECTURES.register("lstm")
def lstm(config: Config, signature: Signature, frame: dict[str, Any]) -> Pretrained:
    both_ways = config.method.bidirectional
    return RecurrentModel(**frame, pooling=config.model.pooling, bidirectional=both_ways)


@ARCHITECTURES.register("transformer")
def transformer(config: Config, signature: Signature, frame: dict[str, Any]) -> Pretrained:
    """Blocks of attention with heads of 16 features, or somewhat more where 16 does not divide."""
    d_model = config.model.d_model
    heads = next(n for n in range(max(1, d_model // 16), 0, -1) if d_model % n == 0)
    return TransformerModel(**frame, heads=heads, pooling=config.model.pooling)


@ARCHITECTURES.register("convnet")
def convnet(config: Config, signature: Signature, frame: dict[str, Any]) -> Pretrained:
    """The paper's ConvNet: d_model wide at first, with n_layers blocks (64 and 12 there).

    It takes the mean over time whatever ``pooling`` says: its last position sees little.
    """
    return ConvNet(**frame)


@ARCHITECTURES.register("resnet")
def resnet(config: Config, signature: Signature, frame: dict[str, Any]) -> Pretrained:
    """A ResNet, d_model wide, with n_layers blocks (64 and 8 in the paper); pools as it does."""
    return ResNet(**frame)
