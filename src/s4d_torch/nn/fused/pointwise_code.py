"""Activation, gate, dropout, residual and layer norm as machine code, in float32.

Vectors run over what lies side by side in memory. A row that is no whole number of vectors ends
with one that overlaps the one before: it is computed twice, to the same numbers. Nothing but the
inputs is kept for the adjoints: what they need is computed again.
"""

import math

from s4d_torch.nn.activation import GELU, RELU, SILU, TANH
from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vector_math import drop, exp, normal, positive, tanh, total
from s4d_torch.ssm.compiled.vectors import fill, load, store

DENSITY = 1 / math.sqrt(2 * math.pi)


@part
def sigmoid(like, x):  # type: ignore[no-untyped-def]
    one = fill(like, 1.0)
    return one / (one + exp(fill(like, 0.0) - x))


@part
def activate(like, kind, x):  # type: ignore[no-untyped-def]
    if kind == GELU:
        return x * normal(x)
    if kind == RELU:
        return positive(x, x)
    if kind == SILU:
        return x * sigmoid(like, x)
    if kind == TANH:
        return tanh(x)
    return x


@part
def slope(like, kind, x):  # type: ignore[no-untyped-def]
    """The derivative of :func:`activate`."""
    one = fill(like, 1.0)
    if kind == GELU:
        return normal(x) + x * fill(like, DENSITY) * exp(fill(like, -0.5) * x * x)
    if kind == RELU:
        return positive(x, one)
    if kind == SILU:
        s = sigmoid(like, x)
        return s + x * s * (one - s)
    if kind == TANH:
        t = tanh(x)
        return one - t * t
    return one


@cached_njit(nogil=True)
def activate_forward(first, last, kind, key, dropped, x, y):  # type: ignore[no-untyped-def]
    """``y = dropout(f(x))`` for rows first..last of x (rows, n), of at least W numbers."""
    n = x.shape[1]
    for row in range(first, last):
        for h in range(0, n, W):
            place = row * n + min(h, n - W)
            value = activate(x, kind, load(x, place))
            if dropped:
                value = drop(value, key, place, dropped)
            store(y, place, value)


@cached_njit(nogil=True)
def activate_backward(first, last, kind, key, dropped, x, grad_y, grad_x):  # type: ignore[no-untyped-def]
    n = x.shape[1]
    for row in range(first, last):
        for h in range(0, n, W):
            place = row * n + min(h, n - W)
            grad = load(grad_y, place)
            if dropped:
                grad = drop(grad, key, place, dropped)
            store(grad_x, place, grad * slope(x, kind, load(x, place)))


@cached_njit(nogil=True)
def join_forward(first, last, gated, key, dropped, v, x, y):  # type: ignore[no-untyped-def]
    """``y = x + dropout(a sigmoid(b))`` for rows, v (rows, 2 n) = a, b; without gate v is a."""
    n, wide = x.shape[1], v.shape[1]
    for row in range(first, last):
        for h in range(0, n, W):
            at = min(h, n - W)
            value = load(v, row * wide + at)
            if gated:
                value = value * sigmoid(v, load(v, row * wide + n + at))
            if dropped:
                value = drop(value, key, row * n + at, dropped)
            store(y, row * n + at, load(x, row * n + at) + value)


@cached_njit(nogil=True)
def join_backward(first, last, gated, key, dropped, v, grad_y, grad_v):  # type: ignore[no-untyped-def]
    n, wide = grad_y.shape[1], v.shape[1]
    one = fill(v, 1.0)
    for row in range(first, last):
        for h in range(0, n, W):
            at = min(h, n - W)
            grad = load(grad_y, row * n + at)
            if dropped:
                grad = drop(grad, key, row * n + at, dropped)
            if gated:
                s = sigmoid(v, load(v, row * wide + n + at))
                value = load(v, row * wide + at)
                store(grad_v, row * wide + n + at, grad * value * s * (one - s))
                grad = grad * s
            store(grad_v, row * wide + at, grad)


@cached_njit(nogil=True)
def norm_forward(first, last, eps, x, weight, bias, y, statistics):  # type: ignore[no-untyped-def]
    """Layer norm of rows; statistics (rows, 2): mean and one over the deviation.

    A row is a whole number of vectors.
    """
    n = x.shape[1]
    for row in range(first, last):
        sums = fill(x, 0.0)
        for place in range(row * n, row * n + n, W):
            sums = sums + load(x, place)
        mean = total(sums) / n
        middle, sums = fill(x, mean), fill(x, 0.0)
        for place in range(row * n, row * n + n, W):
            away = load(x, place) - middle
            sums = sums + away * away
        scale = 1 / math.sqrt(total(sums) / n + eps)
        statistics[row, 0], statistics[row, 1] = mean, scale
        factor = fill(x, scale)
        for h in range(0, n, W):
            away = (load(x, row * n + h) - middle) * factor
            store(y, row * n + h, away * load(weight, h) + load(bias, h))


@cached_njit(nogil=True)
def norm_backward(  # type: ignore[no-untyped-def]
    first, last, chunk, x, weight, statistics, grad_y, grad_x, grad_weight, grad_bias
):
    """The adjoint; a task is ``chunk`` rows, whose sums for weight and bias are of their own.

    grad_weight, grad_bias (tasks, n) begin as zeros.
    """
    n = x.shape[1]
    for task in range(first, last):
        for row in range(task * chunk, min((task + 1) * chunk, x.shape[0])):
            mean, scale = statistics[row, 0], statistics[row, 1]
            middle, factor = fill(x, mean), fill(x, scale)
            along = across = fill(x, 0.0)  # sums of the gradient, and of it times the output
            for h in range(0, n, W):
                away = (load(x, row * n + h) - middle) * factor
                grad = load(grad_y, row * n + h)
                at = task * n + h
                store(grad_bias, at, load(grad_bias, at) + grad)
                store(grad_weight, at, load(grad_weight, at) + grad * away)
                grad = grad * load(weight, h)
                along, across = along + grad, across + grad * away
            along, across = fill(x, total(along) / n), fill(x, total(across) / n)
            for h in range(0, n, W):
                away = (load(x, row * n + h) - middle) * factor
                grad = load(grad_y, row * n + h) * load(weight, h)
                store(grad_x, row * n + h, (grad - along - away * across) * factor)
