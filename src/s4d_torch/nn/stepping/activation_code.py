"""Activations of the compiled step, by their numbers in ``nn.activation``."""

from s4d_torch.nn.activation import GELU, RELU, SILU, TANH
from s4d_torch.nn.stepping.layout import W
from s4d_torch.ssm.compiled.code_cache import part
from s4d_torch.ssm.compiled.vector_math import exp, normal, positive, tanh
from s4d_torch.ssm.compiled.vectors import fill, load, store


@part
def activate(kind, x, first, groups):  # type: ignore[no-untyped-def]
    """The activation with the number ``kind`` on so many groups of x, in place."""
    one, none = fill(x, 1.0), fill(x, 0.0)
    for place in range(first, first + groups * W, W):
        v = load(x, place)
        if kind == GELU:
            v = v * normal(v)
        elif kind == RELU:
            v = positive(v, v)
        elif kind == SILU:
            v = v / (one + exp(none - v))
        elif kind == TANH:
            v = tanh(v)
        store(x, place, v)
