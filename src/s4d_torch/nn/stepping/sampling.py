"""One symbol out of many, drawn by how likely a model finds each."""

import math

import torch
from torch import Tensor

from s4d_torch.nn import validate
from s4d_torch.nn.plan import Model


def choose(scores: Tensor, draws: Tensor, temperature: float = 1.0, top_k: int = 1 << 30) -> Tensor:
    """scores (batch, symbols) and draws (batch,), uniform in [0, 1) -> symbols (batch,).

    Symbol k has the chance p_k = exp(scores_k / temperature) / sum_j exp(scores_j / temperature),
    and is taken if p_0 + ... + p_(k-1) <= draw < p_0 + ... + p_k. With ``top_k`` only the k highest
    scores have a chance, and those that equal the lowest of them. Temperature 0 takes the highest
    score, the first if there are several.
    """
    scores = scores.double()
    if not bool(torch.isfinite(scores).all()):
        raise not_numbers()
    if temperature == 0:
        return scores.argmax(-1)
    chances = ((scores - scores.amax(-1, keepdim=True)) / temperature).exp()
    if top_k < scores.shape[1]:
        chances[scores < scores.topk(top_k).values[:, -1:]] = 0
    sums = chances.cumsum(-1)
    return (sums <= draws[:, None] * sums[:, -1:]).sum(-1)


def not_numbers() -> ValueError:
    return ValueError(
        "the model's outputs are not all finite, so there is nothing to choose from; "
        "are its weights? Train with a smaller learning rate"
    )


def obstacles(model: Model) -> list[str]:
    """Why a model cannot read what it writes; nothing if it can."""
    config, extra = model.config, model.d_input - model.d_output
    wanted = {"encoder": "embedding", "pooling": "none", "towers": 1}
    wrong = [
        f"{name}={config[name]!r} instead of {value!r}"
        for name, value in wanted.items()
        if config[name] != value
    ]
    if model.method.bidirectional:
        wrong.append("bidirectional=True instead of False")
    if extra not in (0, 1):
        wrong.append(
            f"d_input={model.d_input} with d_output={model.d_output}; expected as many symbols "
            "out as in, or one less: d_input = d_output + 1, the last token being the beginning"
        )
    return wrong


def check_model(model: Model) -> None:
    """Whether a model can read what it writes."""
    wrong = obstacles(model)
    if wrong:
        raise ValueError(f"this model cannot generate: it has {'; '.join(wrong)}")


def check_scores(
    scores: Tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    """scores (batch, symbols), in the precision of the model."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores must be a tensor {shape}, got {type(scores).__name__}")
    if scores.shape != shape or scores.dtype != dtype or scores.device != device:
        raise ValueError(
            f"scores must be {dtype} of shape (batch, symbols) = {shape} on {device}, "
            f"as the model gives them; got {scores.dtype} of shape {tuple(scores.shape)} "
            f"on {scores.device}"
        )


def check_draws(draws: Tensor, batch: int) -> None:
    """draws (length, batch), in double precision, uniform in [0, 1)."""
    if not isinstance(draws, Tensor):
        raise TypeError(f"draws must be a tensor (length, {batch}), got {type(draws).__name__}")
    if draws.ndim != 2 or draws.shape[1] != batch or draws.dtype != torch.float64:
        raise ValueError(
            f"draws must be torch.float64 of shape (length, batch) = (length, {batch}), "
            f"got {draws.dtype} of shape {tuple(draws.shape)}"
        )
    if draws.numel() and not (draws.min() >= 0 and draws.max() < 1):
        raise ValueError(
            f"draws must lie in [0, 1), got {draws.min():.17g} to {draws.max():.17g}; "
            "use torch.rand(length, batch, dtype=torch.float64)"
        )


def check_options(temperature: float, top_k: int | None) -> None:
    validate.number("temperature", temperature)
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(
            f"temperature must be a finite number, 0 or more, got {temperature}; "
            "0 takes the likeliest symbol"
        )
    if top_k is not None:
        validate.positive_integer("top_k", top_k)
