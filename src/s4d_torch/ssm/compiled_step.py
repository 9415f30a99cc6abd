"""One sample through a whole model as machine code: every layer, without Python in between.

A step of every mode of every layer reads megabytes, more than a fast cache holds. So the modes run
late, several samples at a time: with K = BLOCK, and s_t the state before sample t,

    y_t = sum_{j<K} k_j u_{t-j} + C A_bar^(K-1) s_{t-K+1}

The sum needs the last K inputs only. The rest is known K samples ahead, and a group of LANES
channels computes it for K samples at once, each group at a time of its own, so that all steps take
equally long. Modes are double precision always: a state rounded at every step would drift.

Modes are scaled so that an input adds 1 to each; the vectors of a group are planar, a row of LANES
numbers for each quantity of each mode. ``plan`` holds sizes and options, at the places named here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from s4d_torch.ssm.compiled import FAST
from s4d_torch.ssm.vector_math import activate, gate

LANES = 16  # channels of a group
MOST = 16  # samples of a block; blocks of 1 are possible too, and slow
SIGNAL = 6 * LANES  # where the inputs of a block begin in the work space of a group
SENT = SIGNAL + MOST * LANES  # and what its modes send

ROWS, TOWERS, INPUTS, WIDTH, OUTPUTS, BLOCK = range(6)
EMBEDDING, NORM, PRENORM, ACTIVATION, MIXING, MEAN, EXACT = range(6, 13)
NORMS = ("none", "batch", "layer")
MIXINGS = ("none", "linear", "glu")

Array = Any  # of numpy; float32 or float64 like the model's parameters, or double where it says so

compiled = njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")


@compiled
def run(
    plan: Array,
    clock: Array,
    weights: Array,
    cells: Array,
    modes: Array,
    pool: Array,
    ring: Array,
    u: Array,
    tokens: Array,
    y: Array,
) -> bool:
    """Samples u (steps * rows, d_input), or tokens (steps * rows,), -> y (steps * rows', d_output).

    rows = batch * towers and rows' = batch. ``weights`` is flat, in the order of use. Double are
    cells (layers, groups, modes, 4 + 4 rank, LANES) = A_bar, C A_bar^(K-1) and the low-rank
    term of ``advance_low_rank``; modes (layers, rows, groups, modes, 2, LANES); pool (rows,
    d_model + 1), the running sum and the number of samples. ring (layers, rows, 2, K, groups *
    LANES) has the last inputs and what the modes will send; clock, the time, then for each group
    the time its modes are next needed. False if a token is none; then nothing was done.
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
        for layer in range(cells.shape[0]):
            refill(plan, clock, layer, cells, modes, ring)
            place = block(plan, clock[0], weights, place, ring[layer], x, narrow, wide)
        scale, shift = weights[place : place + width], weights[place + width : place + 2 * width]
        kind = plan[NORM] if plan[PRENORM] else 0
        for row in range(rows):
            normalize(kind, weights[0], x[row], scale, shift, x[row])
            pool[row, width] += 1
            for h in range(width):
                pool[row, h] += x[row, h]
            if plan[MEAN]:
                for h in range(width):
                    x[row, h] = pool[row, h] / pool[row, width]
        decode(plan, weights, place + 2 * width, x, wide, narrow, y[step * answers :])
        clock[0] += 1
    return True


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
def block(
    plan: Array,
    time: int,
    weights: Array,
    place: int,
    ring: Array,
    x: Array,
    narrow: Array,
    wide: Array,
) -> int:
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
        kind = plan[NORM] if plan[PRENORM] else 0
        normalize(kind, weights[0], x[row], scale, shift, inputs[slot, :width])
        convolve(taps, inputs, slot, ring[row, 1, slot], narrow)
        out = narrow[:width]
        activate(plan[ACTIVATION], plan[EXACT], out)
        if plan[MIXING]:
            affine(out, matrix, bias, wide[:branch])
            out = wide[:width]
            if plan[MIXING] == 2:
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
        rows = matrix[j * n : (j + 8) * n]
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        x4, x5, x6, x7 = x[j + 4], x[j + 5], x[j + 6], x[j + 7]
        for k in range(n):
            near = x0 * rows[k] + x1 * rows[n + k] + x2 * rows[2 * n + k] + x3 * rows[3 * n + k]
            far = x4 * rows[4 * n + k] + x5 * rows[5 * n + k] + x6 * rows[6 * n + k]
            y[k] += near + far + x7 * rows[7 * n + k]
    for j in range(whole, x.shape[0]):
        row, value = matrix[j * n : (j + 1) * n], x[j]
        for k in range(n):
            y[k] += value * row[k]


@compiled
def normalize(kind: int, eps: float, x: Array, scale: Array, shift: Array, y: Array) -> None:
    """0: none; 1: scale and shift, a BatchNorm in evaluation; 2: LayerNorm."""
    size = x.shape[0]
    mean, gain = x.dtype.type(0), x.dtype.type(1)
    if kind == 2:
        for h in range(size):
            mean += x[h]
        mean /= x.dtype.type(size)
        variance = x.dtype.type(0)
        for h in range(size):
            variance += (x[h] - mean) * (x[h] - mean)
        gain = x.dtype.type(1) / np.sqrt(variance / x.dtype.type(size) + eps)
    for h in range(size):
        y[h] = (x[h] - mean) * gain * scale[h] + shift[h] if kind else x[h]


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


# -- the modes -------------------------------------------------------------------------------------


@compiled
def refill(plan: Array, clock: Array, layer: int, cells: Array, modes: Array, ring: Array) -> None:
    """Run the groups whose turn it is: the modes catch up, and say what they will send."""
    K, groups, total, time = plan[BLOCK], cells.shape[1], cells.shape[0] * cells.shape[1], clock[0]
    for group in range(groups):
        place = layer * groups + group
        if clock[1 + place] != time:
            continue
        samples = K - (time - place * K // total) % K
        for row in range(ring.shape[1]):
            inputs, ahead = ring[layer, row, 0], ring[layer, row, 1]
            advance(
                cells[layer, group], modes[layer, row, group], group, inputs, time, samples, ahead
            )
        clock[1 + place] = time + samples


@compiled
def advance(
    cell: Array, state: Array, group: int, inputs: Array, time: int, samples: int, ahead: Array
) -> None:
    """The oldest ``samples`` inputs of the ring into the state of a group, in place."""
    K, low = inputs.shape[0], group * LANES
    # one array: where the compiler sees several, it has to check whether they overlap
    z = np.empty(SENT + MOST * LANES)
    for i in range(samples):
        for c in range(LANES):
            z[SIGNAL + i * LANES + c] = inputs[(time + i) % K, low + c]
            z[SENT + i * LANES + c] = 0
    if cell.shape[1] > 4:
        advance_low_rank(cell, state, z, samples)
    elif samples == MOST:
        for m in range(cell.shape[0]):
            for q in range(4):
                for c in range(LANES):
                    z[q * LANES + c] = cell[m, q, c]
            for q in range(2):
                for c in range(LANES):
                    z[(4 + q) * LANES + c] = state[m, q, c]
            whole_block(z)
            for q in range(2):
                for c in range(LANES):
                    state[m, q, c] = z[(4 + q) * LANES + c]
    else:
        for m in range(cell.shape[0]):
            for i in range(samples):
                u, y = z[SIGNAL + i * LANES :], z[SENT + i * LANES :]
                one_sample(cell[m], state[m], u, y)
    for i in range(samples):
        for c in range(LANES):
            ahead[(time + i) % K, low + c] = z[SENT + i * LANES + c]


@compiled
def whole_block(z: Array) -> None:
    """``s <- A s + u, y += C s`` for one mode of LANES channels; z = A, C, s, u_0.., y_0.. .

    All bounds are constants: with others the compiler gives up on SIMD.
    """
    for k in range(0, MOST * LANES, 4 * LANES):  # four samples while the mode is in registers
        for c in range(LANES):
            a, e, v, w = z[c], z[LANES + c], z[2 * LANES + c], z[3 * LANES + c]
            r, i = z[4 * LANES + c], z[5 * LANES + c]
            r, i = a * r - e * i + z[SIGNAL + k + c], a * i + e * r
            z[SENT + k + c] += v * r + w * i
            r, i = a * r - e * i + z[SIGNAL + LANES + k + c], a * i + e * r
            z[SENT + LANES + k + c] += v * r + w * i
            r, i = a * r - e * i + z[SIGNAL + 2 * LANES + k + c], a * i + e * r
            z[SENT + 2 * LANES + k + c] += v * r + w * i
            r, i = a * r - e * i + z[SIGNAL + 3 * LANES + k + c], a * i + e * r
            z[SENT + 3 * LANES + k + c] += v * r + w * i
            z[4 * LANES + c], z[5 * LANES + c] = r, i


@compiled
def one_sample(cell: Array, state: Array, u: Array, y: Array) -> None:
    for c in range(LANES):
        a, e, r, i = cell[0, c], cell[1, c], state[0, c], state[1, c]
        r, i = a * r - e * i + u[c], a * i + e * r
        y[c] += cell[2, c] * r + cell[3, c] * i
        state[0, c], state[1, c] = r, i


@compiled
def advance_low_rank(cell: Array, state: Array, z: Array, samples: int) -> None:
    """``s <- A s - sum_k left_k Re(right_k s) + u``; a cell has left_k, right_k after A, C.

    A right_k is stored as the row that reads it off the state, like C.
    """
    rank = (cell.shape[1] - 4) // 4
    seen = np.empty((rank, LANES))
    for step in range(samples):
        u = z[SIGNAL + step * LANES : SIGNAL + (step + 1) * LANES]
        y = z[SENT + step * LANES : SENT + (step + 1) * LANES]
        seen[:] = 0
        for m in range(cell.shape[0]):
            now = state[m]
            for k in range(rank):
                right, total = cell[m, 6 + 4 * k : 8 + 4 * k], seen[k]
                for c in range(LANES):
                    total[c] += right[0, c] * now[0, c] + right[1, c] * now[1, c]
        for m in range(cell.shape[0]):
            now, own = state[m], cell[m, :4]
            for c in range(LANES):
                r, i = now[0, c], now[1, c]
                now[0, c] = own[0, c] * r - own[1, c] * i + u[c]
                now[1, c] = own[0, c] * i + own[1, c] * r
            for k in range(rank):
                left, total = cell[m, 4 + 4 * k : 6 + 4 * k], seen[k]
                for c in range(LANES):
                    now[0, c] -= left[0, c] * total[c]
                    now[1, c] -= left[1, c] * total[c]
            for c in range(LANES):
                y[c] += own[2, c] * now[0, c] + own[3, c] * now[1, c]


# -- states in and out -----------------------------------------------------------------------------


@compiled
def begin(cells: Array, reads: Array, modes: Array, ring: Array) -> None:
    """What the modes send for the first K samples, with no inputs in the ring; spoils the modes.

    reads (layers, groups, modes, 2, LANES) is C, double.
    """
    total = np.zeros(LANES)
    for layer in range(modes.shape[0]):
        for row in range(modes.shape[1]):
            inputs, ahead = ring[layer, row, 0], ring[layer, row, 1]
            for group in range(modes.shape[2]):
                cell, read = cells[layer, group], reads[layer, group]
                state, low = modes[layer, row, group], group * LANES
                for j in range(inputs.shape[0]):
                    if j:  # sends to a place that is written below
                        advance(cell, state, group, inputs, j, 1, ahead)
                    total[:] = 0
                    for m in range(state.shape[0]):
                        own, now = read[m], state[m]
                        for c in range(LANES):
                            total[c] += own[0, c] * now[0, c] + own[1, c] * now[1, c]
                    for c in range(LANES):
                        ahead[j, low + c] = total[c]


@compiled
def settle(clock: Array, cells: Array, modes: Array, ring: Array, ahead: Array) -> None:
    """Bring the modes up to now; ``ahead`` is for what they would send."""
    for layer in range(modes.shape[0]):
        for row in range(modes.shape[1]):
            inputs = ring[layer, row, 0]
            for group in range(modes.shape[2]):
                until = clock[1 + layer * modes.shape[2] + group]
                late = clock[0] - until + inputs.shape[0]
                advance(
                    cells[layer, group], modes[layer, row, group], group, inputs, until, late, ahead
                )


@compiled
def load(state: Array, scale: Array, pairs: int, modes: Array) -> None:
    """state (rows, d_model, d_state) -> modes of one layer; scale (d_model, modes), complex."""
    for row in range(state.shape[0]):
        for h in range(state.shape[1]):
            group, c = h // LANES, h % LANES
            for m in range(scale.shape[1]):
                if pairs:
                    s = complex(state[row, h, 2 * m], state[row, h, 2 * m + 1]) / scale[h, m]
                else:
                    s = state[row, h, m] / scale[h, m]
                modes[row, group, m, 0, c] = s.real
                modes[row, group, m, 1, c] = s.imag


@compiled
def unload(modes: Array, scale: Array, pairs: int, state: Array) -> None:
    """The inverse of :func:`load`."""
    for row in range(state.shape[0]):
        for h in range(state.shape[1]):
            group, c = h // LANES, h % LANES
            for m in range(scale.shape[1]):
                s = scale[h, m] * complex(modes[row, group, m, 0, c], modes[row, group, m, 1, c])
                if pairs:
                    state[row, h, 2 * m] = s.real
                    state[row, h, 2 * m + 1] = s.imag
                else:
                    state[row, h, m] = s.real
