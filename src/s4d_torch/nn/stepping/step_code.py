"""One sample through a whole model as machine code: every layer, without Python in between.

A step of every mode of every layer reads megabytes, more than a fast cache holds. So the modes run
late, several samples at a time: with K = BLOCK, and s_t the state before sample t,

    y_t = sum_{j<K} k_j u_{t-j} + C A_bar^(K-1) s_{t-K+1}

The sum needs the last K inputs only. The rest is known K samples ahead, and a group of W channels
computes it for K samples at once, each group at a time of its own, so that all steps take equally
long; ``modes_code`` has that part. ``layout`` says what is where.

Whoever makes a stream waits for the compiler, so there is one function for all that is done with
it, written in vectors, with few parts: each is compiled by itself and again wherever it is called.
"""

import math
from functools import cache
from typing import Any

from s4d_torch.nn.stepping.activation_code import activate
from s4d_torch.nn.stepping.layout import (
    ACTIVATION,
    BLOCK,
    EMBEDDING,
    GROUPS,
    INPUTS,
    LAYERS,
    MEAN,
    MIXING,
    OUTPUTS,
    PRENORM,
    RANK,
    ROWS,
    TOWERS,
    WIDTH,
    W,
)
from s4d_torch.nn.stepping.modes_code import refill_diagonal, refill_low_rank
from s4d_torch.nn.stepping.sampling_code import choose
from s4d_torch.ssm.compiled.code_cache import cached_njit, named, part
from s4d_torch.ssm.compiled.vector_math import exp, total
from s4d_torch.ssm.compiled.vectors import (
    add_pairs,
    add_rows,
    add_wide,
    convert,
    fill,
    load,
    load_four,
    store,
)

GATED = 2  # the mixing that ends in a gate; its number is also its width


@cache
def make_run(low_rank: bool, generates: bool) -> Any:
    """``run`` for diagonal or low-rank systems, and for models that choose symbols or not.

    What a model does not need is not compiled: numba leaves out what follows an ``if`` with a
    constant. The constants are plain, not functions, whose place in memory would be a part of the
    key in the cache on disk.
    """

    @cached_njit(nogil=True)
    @named(f"run_{'low_rank' if low_rank else 'diagonal'}{'_generating' if generates else ''}")
    def run(  # type: ignore[no-untyped-def]
        plan, weights, cells, room, work, clock, modes, ring, pool, steps, u, tokens, y,
        draws, temperature, top_k,
    ):  # fmt: skip
        """u (steps, rows, inputs), or tokens (steps, rows) -> y (steps, answers, outputs).

        With draws (steps, rows), uniform in [0, 1), tokens are chosen by the scores in y (rows,
        outputs), where those of the next ones come to. After the last answer y has room for W more
        numbers. False if a token is none, and then nothing was done, or if scores are no numbers.
        Groups that are due run before each step, also if there is none to do.
        """
        rows, size, inputs, outputs = plan[ROWS], plan[GROUPS] * W, plan[INPUTS], plan[OUTPUTS]
        sampling, answers = draws.shape[0] > 0, rows // plan[TOWERS] * outputs
        first = place = size  # of the encoder's weights, of those after it
        if plan[EMBEDDING]:
            place = first + inputs * size
            for n in range(steps * rows):
                if tokens[n] < 0 or tokens[n] >= inputs:
                    return False
        for step in range(max(steps, 1)):
            if low_rank:
                refill_low_rank(plan, clock, cells, modes, ring, work)
            else:
                refill_diagonal(plan, clock, cells, modes, ring, work)
            if steps == 0:
                break
            for row in range(rows):
                n, x = step * rows + row, row * size
                if generates and sampling:
                    chances = (2 * BLOCK + plan[RANK]) * W
                    scores = row * outputs
                    tokens[n] = choose(
                        y, scores, outputs, temperature, top_k, draws[n], work, chances
                    )
                    if tokens[n] < 0:
                        return False
                if plan[EMBEDDING]:
                    for h in range(0, size, W):
                        store(room, x + h, load(weights, first + tokens[n] * size + h))
                else:
                    place = affine(weights, first, u, n * inputs, inputs, room, x, plan[GROUPS])
            end = apply_layers(plan, clock[0] & (BLOCK - 1), weights, place, ring, room)
            decode(plan, weights, end, pool, room, y, step * (0 if sampling else answers))
            clock[0] += 1
        return True

    return run


@part
def apply_layers(plan, slot, weights, place, ring, room):  # type: ignore[no-untyped-def]
    """Norms and residual blocks in turn on x, in place; returns where the weights after them begin.

    The norm that begins a layer is its own, or, where norms come after a layer, the one of the
    layer before; the last norm stands alone.
    """
    groups, rows = plan[GROUPS], plan[ROWS]
    size, none = groups * W, fill(room, 0.0)
    inner, outer, end = rows * size, (rows + 1) * size, place
    for layer in range(plan[LAYERS] + 1):
        last, taps = layer == plan[LAYERS], place + W + 2 * size
        for row in range(rows):
            x = row * size
            normed = inner if plan[PRENORM] and not last else x
            normalize(plan[WIDTH], size, weights, place, room, x, normed)
            if last:
                continue
            lags = taps + (BLOCK - slot) * W
            past = 2 * (layer * groups * rows + row) * BLOCK * W
            for h in range(0, size, W):  # y = what the modes send + sum_j taps_j u_{t-j}
                now = past + slot * W
                store(ring, now, load(room, normed + h))
                sums = (load(ring, now + BLOCK * W), none, none, none)
                for q in range(0, BLOCK * W, 4 * W):
                    sums = add_pairs(sums, load_four(weights, lags + q), load_four(ring, past + q))
                s0, s1, s2, s3 = sums
                store(room, inner + h, (s0 + s1) + (s2 + s3))
                lags += 2 * BLOCK * W
                past += 2 * rows * BLOCK * W
            activate(plan[ACTIVATION], room, inner, groups)
            out, end = inner, taps + 2 * BLOCK * size
            if plan[MIXING]:
                out = outer
                end = affine(weights, end, room, inner, size, room, outer, plan[MIXING] * groups)
            for h in range(0, size, W):
                v = load(room, out + h)
                if plan[MIXING] == GATED:
                    v = v / (fill(room, 1.0) + exp(none - load(room, out + size + h)))
                store(room, x + h, load(room, x + h) + v)
        place = taps if last else end
    return place


@part
def normalize(width, size, weights, place, x, first, out):  # type: ignore[no-untyped-def]
    """A norm in evaluation, from x to another place in it: eps, scale and shift.

    An eps below zero says that there is nothing but a scale and a shift. The weights begin with 1
    for each channel that there is.
    """
    eps, middle, gain = weights[place], fill(x, 0.0), fill(x, 1.0)
    if eps >= 0:
        sums = fill(x, 0.0)
        for h in range(0, size, W):
            sums = sums + load(x, first + h)
        middle, sums = fill(x, total(sums) / width), fill(x, 0.0)
        for h in range(0, size, W):
            away = (load(x, first + h) - middle) * load(weights, h)
            sums = sums + away * away
        gain = fill(x, 1 / math.sqrt(total(sums) / width + eps))
    scale = place + W
    for h in range(0, size, W):
        away = (load(x, first + h) - middle) * gain
        store(x, out + h, away * load(weights, scale + h) + load(weights, scale + size + h))


@part
def affine(weights, place, x, first, inputs, y, out, groups):  # type: ignore[no-untyped-def]
    """``y = x W + b`` for a multiple of four inputs; of each group of outputs b comes before W."""
    none = fill(y, 0.0)
    for group in range(groups):
        sums = (load(weights, place), none, none, none)
        place += W
        for j in range(first, first + inputs, 4):
            sums = add_rows(sums, load_four(weights, place), x, j)
            place += 4 * W
        s0, s1, s2, s3 = sums
        store(y, out + group * W, (s0 + s1) + (s2 + s3))
    return place


@part
def decode(plan, weights, place, pool, room, y, first):  # type: ignore[no-untyped-def]
    """The answers for all rows; of a pair of towers a, b the decoder reads a, b, a - b and a b."""
    groups, outputs, rows, towers = plan[GROUPS], plan[OUTPUTS], plan[ROWS], plan[TOWERS]
    size = groups * W
    inner, outer = rows * size, (rows + 1) * size
    for row in range(rows):
        x, sums = row * size, row * (size + W)
        add_wide(pool, sums + size, fill(room, 1.0))
        count = load(pool, sums + size)
        for h in range(0, size, W):
            add_wide(pool, sums + h, load(room, x + h))
            if plan[MEAN]:
                store(room, x + h, convert(room, load(pool, sums + h) / count))
    for row in range(0, rows, towers):
        read, start = row * size, place
        if towers == 2:
            for h in range(outer, outer + size, W):
                a, b = load(room, read), load(room, read + size)
                store(room, h, a)
                store(room, h + size, b)
                store(room, h + 2 * size, a - b)
                store(room, h + 3 * size, a * b)
                read += W
            read = inner
            start = affine(weights, place, room, outer, 4 * size, room, inner, groups)
            activate(plan[ACTIVATION], room, inner, groups)
        # whole vectors: what is too much is written over by the next row
        affine(weights, start, room, read, size, y, first, (outputs + W - 1) // W)
        first += outputs
