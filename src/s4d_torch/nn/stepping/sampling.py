"""One symbol out of many, drawn by how likely a model finds each."""

import math

import torch
from torch import Tensor

from s4d_torch.nn import validate


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


def check_options(n: int, temperature: float, top_k: int | None) -> None:
    validate.positive_integer("n", n)
    validate.number("temperature", temperature)
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(
            f"temperature must be a finite number, 0 or more, got {temperature}; "
            "0 takes the likeliest symbol"
        )
    if top_k is not None:
        validate.positive_integer("top_k", top_k)
