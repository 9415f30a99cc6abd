"""One sample through a whole model as machine code: every layer, without Python in between.

A step of every mode of every layer reads megabytes, more than a fast cache holds. So the modes run
late, several samples at a time: with K = BLOCK, and s_t the state before sample t,

    y_t = sum_{j<K} k_j u_{t-j} + C A_bar^(K-1) s_{t-K+1}

The sum needs the last K inputs only. The rest is known K samples ahead, and a group of LANES
channels computes it for K samples at once, each group at a time of its own, so that all steps take
equally long; ``modes_code`` has that part. ``plan`` holds sizes and options, at the places
named here.
"""

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from s4d_torch.nn.norm import NormKind
from s4d_torch.nn.stepping import activation_code, modes_code
from s4d_torch.nn.stepping.activation_code import activate, gate
from s4d_torch.nn.stepping.modes_code import (
    LANES,
    Array,
    catch_up,
    compiled,
    entry,
    first_outputs,
    load,
    refill,
    unload,
)

__all__ = ["LANES", "catch_up", "first_outputs", "load", "run", "unload"]

ROWS, TOWERS, INPUTS, WIDTH, OUTPUTS, BLOCK = range(6)
EMBEDDING, NORM, PRENORM, ACTIVATION, MIXING, MEAN, EXACT = range(6, 13)
NO_NORM, LAYER_NORM = int(NormKind.NONE), int(NormKind.LAYER)
GATED = 2  # the mixing that ends in a gate; its number is also its width


def make_run(version: int) -> Callable[..., bool]:
    """``run`` for a version of the modules it calls.

    The cache on disk knows a function by its file and by the numbers it closes over; it would not
    notice that what it calls in other files has changed.
    """

    @entry
    def run(
        plan: Array, clock: Array, weights: Array, cells: Array, modes: Array, pool: Array,
        ring: Array, u: Array, tokens: Array, y: Array,
    ) -> bool:  # fmt: skip
        """u (steps * rows, d_input), or tokens (steps * rows,) -> y (steps * batch, d_output).

        rows = batch * towers. ``weights`` is flat, in the order of use; for cells and modes see
        ``modes_code``; pool (rows, d_model + 1), double, is the running sum and the number of
        samples. ring (layers, rows, 2, K, groups * LANES) has the last inputs and what the modes
        will send; clock, the time, then for each group the time until which it has said so.
        False if a token is none; then nothing was done.
        """
        rows, width = plan[ROWS], plan[WIDTH]
        for token in tokens:
            if not 0 <= token < plan[INPUTS]:
                return False
        x = np.zeros((rows, width), weights.dtype)
        wide = np.zeros(max(4 * width, ring.shape[4]), weights.dtype)
        narrow = np.zeros(ring.shape[4], weights.dtype)
        answers = rows // plan[TOWERS]
        for step in range(y.shape[0] // answers):
            place = encode(plan, weights, u, tokens, step * rows, x)
            out = y[step * answers :]
            forward(plan, clock, weights, place, cells, modes, pool, ring, x, narrow, wide, out)
        return version >= 0

    return run


_called = b"".join(Path(str(x.__file__)).read_bytes() for x in (modes_code, activation_code))
run = make_run(zlib.crc32(_called))


@compiled
def encode(plan: Array, weights: Array, u: Array, tokens: Array, first: int, x: Array) -> int:
    """A linear map or a table of tokens; returns where the weights of the layers begin."""
    inputs, width = plan[INPUTS], plan[WIDTH]
    end = 1 + inputs * width
    for row in range(x.shape[0]):
        if plan[EMBEDDING]:
            start = 1 + tokens[first + row] * width
            for h in range(width):
                x[row, h] = weights[start + h]
        else:
            affine(u[first + row], weights[1:end], weights[end : end + width], x[row])
    return end if plan[EMBEDDING] else end + width


@compiled
def forward(
    plan: Array, clock: Array, weights: Array, place: int, cells: Array, modes: Array,
    pool: Array, ring: Array, x: Array, narrow: Array, wide: Array, y: Array,
) -> None:  # fmt: skip
    """One encoded sample, x (rows, d_model), through all layers to its answers in y; spoils x."""
    rows, width = x.shape
    for layer in range(cells.shape[0]):
        refill(clock, layer, cells, modes, ring)
        place = block(plan, clock[0], weights, place, ring[layer], x, narrow, wide)
    scale, shift = weights[place : place + width], weights[place + width : place + 2 * width]
    kind = plan[NORM] if plan[PRENORM] else NO_NORM
    for row in range(rows):
        normalize(kind, weights[0], x[row], scale, shift, x[row])
        pool[row, width] += 1
        for h in range(width):
            pool[row, h] += x[row, h]
        if plan[MEAN]:
            for h in range(width):
                x[row, h] = pool[row, h] / pool[row, width]
    decode(plan, weights, place + 2 * width, x, wide, narrow, y)
    clock[0] += 1


@compiled
def block(
    plan: Array, time: int, weights: Array, place: int, ring: Array, x: Array, narrow: Array,
    wide: Array,
) -> int:  # fmt: skip
    """A residual block on x, in place; returns where the weights of the next one begin."""
    width, lanes, K = plan[WIDTH], ring.shape[3], plan[BLOCK]
    scale, shift = weights[place : place + width], weights[place + width : place + 2 * width]
    place += 2 * width
    taps = weights[place : place + K * lanes]
    place += K * lanes
    branch = plan[MIXING] * width  # of the linear map before the gate
    matrix = weights[place : place + branch * width]
    place += branch * width
    bias = weights[place : place + branch]
    slot = time % K
    for row in range(x.shape[0]):
        inputs = ring[row, 0]
        kind = plan[NORM] if plan[PRENORM] else NO_NORM
        normalize(kind, weights[0], x[row], scale, shift, inputs[slot, :width])
        convolve(taps, inputs, slot, ring[row, 1, slot], narrow)
        out = narrow[:width]
        activate(plan[ACTIVATION], plan[EXACT], out)
        if plan[MIXING]:
            affine(out, matrix, bias, wide[:branch])
            out = wide[:width]
            if plan[MIXING] == GATED:
                gate(plan[EXACT], out, wide[width:branch])
        for h in range(width):
            x[row, h] += out[h]
        if not plan[PRENORM]:
            normalize(plan[NORM], weights[0], x[row], scale, shift, x[row])
    return place + branch


@compiled
def decode(
    plan: Array, weights: Array, place: int, x: Array, wide: Array, hidden: Array, y: Array
) -> None:
    width, outputs = plan[WIDTH], plan[OUTPUTS]
    for row in range(x.shape[0] // plan[TOWERS]):
        seen, start = x[row], place
        if plan[TOWERS] == 2:
            for h in range(width):
                a, b = x[2 * row, h], x[2 * row + 1, h]
                wide[h], wide[width + h] = a, b
                wide[2 * width + h], wide[3 * width + h] = a - b, a * b
            end = start + 4 * width * width
            seen = hidden[:width]
            affine(wide[: 4 * width], weights[start:end], weights[end : end + width], seen)
            activate(plan[ACTIVATION], plan[EXACT], seen)
            start = end + width
        end = start + width * outputs
        affine(seen, weights[start:end], weights[end : end + outputs], y[row])


@compiled
def affine(x: Array, matrix: Array, bias: Array, y: Array) -> None:
    """``y = x W + b`` with W (inputs, outputs) flat: SIMD over outputs, eight rows at a time."""
    n = y.shape[0]
    for k in range(n):
        y[k] = bias[k]
    whole = x.shape[0] // 8 * 8
    for j in range(0, whole, 8):
        w = matrix[j * n : (j + 8) * n]
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        x4, x5, x6, x7 = x[j + 4], x[j + 5], x[j + 6], x[j + 7]
        for k in range(n):
            near = x0 * w[k] + x1 * w[n + k] + x2 * w[2 * n + k] + x3 * w[3 * n + k]
            far = x4 * w[4 * n + k] + x5 * w[5 * n + k] + x6 * w[6 * n + k] + x7 * w[7 * n + k]
            y[k] += near + far
    for j in range(whole, x.shape[0]):
        row, value = matrix[j * n : (j + 1) * n], x[j]
        for k in range(n):
            y[k] += value * row[k]


@compiled
def normalize(kind: int, eps: float, x: Array, scale: Array, shift: Array, y: Array) -> None:
    """A norm in evaluation, by its ``NormKind``."""
    size = x.shape[0]
    mean, gain = x.dtype.type(0), x.dtype.type(1)
    if kind == LAYER_NORM:
        for h in range(size):
            mean += x[h]
        mean /= x.dtype.type(size)
        variance = x.dtype.type(0)
        for h in range(size):
            variance += (x[h] - mean) * (x[h] - mean)
        gain = x.dtype.type(1) / np.sqrt(variance / x.dtype.type(size) + eps)
    for h in range(size):
        y[h] = (x[h] - mean) * gain * scale[h] + shift[h] if kind != NO_NORM else x[h]


@compiled
def convolve(taps: Array, inputs: Array, slot: int, ahead: Array, y: Array) -> None:
    """``y = ahead + sum_j taps_j u_{t-j}`` with taps flat and u_t at ``slot`` of the inputs."""
    K, n = inputs.shape
    for h in range(n):
        y[h] = ahead[h]
    whole = K // 4 * 4
    for j in range(0, whole, 4):
        k = taps[j * n : (j + 4) * n]
        u0, u1 = inputs[(slot - j + K) % K], inputs[(slot - j - 1 + K) % K]
        u2, u3 = inputs[(slot - j - 2 + K) % K], inputs[(slot - j - 3 + K) % K]
        for h in range(n):
            y[h] += k[h] * u0[h] + k[n + h] * u1[h] + k[2 * n + h] * u2[h] + k[3 * n + h] * u3[h]
    for j in range(whole, K):
        k, u0 = taps[j * n : (j + 1) * n], inputs[(slot - j + K) % K]
        for h in range(n):
            y[h] += k[h] * u0[h]
