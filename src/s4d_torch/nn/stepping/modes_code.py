"""The modes of a model that steps: run late, a block of samples and a group of channels at a time.

The state of a diagonal system is planar: for each group of LANES channels and each mode a row of
LANES real parts and one of imaginary parts; double precision always, since a state rounded at every
step would drift. Modes are scaled so that an input adds 1 to each.

cells (layers, groups, modes, 4 + 4 rank, LANES) hold A_bar, then C A_bar^(K-1) as the row that is
read with, then the low-rank terms; modes are (layers, rows, groups, modes, 2, LANES). The rest is
explained in ``step_code``.
"""

from typing import Any

import numpy as np
from numba import njit

from s4d_torch.ssm.compiled.code_cache import cached_njit
from s4d_torch.ssm.compiled.scan_code import FAST

LANES = 16  # channels of a group
MOST = 16  # samples of a block; blocks of 1 are possible too, and slow
SIGNAL = 6 * LANES  # where the inputs of a block begin in the work space of a group
SENT = SIGNAL + MOST * LANES  # and what its modes send

Array = Any  # of numpy; float32 or float64 like the model's parameters, or double where it says so

compiled = njit(nogil=True, fastmath=FAST, error_model="numpy")
entry = cached_njit(nogil=True, fastmath=FAST, error_model="numpy")  # what Python calls


@compiled
def refill(clock: Array, layer: int, cells: Array, modes: Array, ring: Array) -> None:
    """Run the groups whose turn it is: the modes catch up, and say what they will send.

    All groups start with what they send until time K. The first run of a group, before that, is
    shorter, and after it each has a time of its own, ``phase`` modulo K.
    """
    K, groups, time = ring.shape[3], cells.shape[1], clock[0]
    for group in range(groups):
        place = layer * groups + group
        phase, until = place * K // (cells.shape[0] * groups), clock[1 + place]
        if time == until:
            samples = K
        elif time == phase and until == K:
            samples = phase
        else:
            continue
        for row in range(ring.shape[1]):
            own, inputs, ahead = modes[layer, row], ring[layer, row, 0], ring[layer, row, 1]
            advance(cells[layer, group], own[group], group, inputs, until, samples, ahead)
        clock[1 + place] = until + samples


@compiled
def advance(
    cell: Array, state: Array, group: int, inputs: Array, time: int, samples: int, ahead: Array
) -> None:
    """The ``samples`` inputs from K before ``time`` into the state of a group, in place.

    What the modes will send from ``time`` on comes to the same places of ``ahead``.
    """
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
    seen = np.zeros((rank, LANES))
    for step in range(samples):
        u = z[SIGNAL + step * LANES : SIGNAL + (step + 1) * LANES]
        y = z[SENT + step * LANES : SENT + (step + 1) * LANES]
        for k in range(rank):
            for c in range(LANES):
                seen[k, c] = 0
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


@entry
def first_outputs(cells: Array, reads: Array, modes: Array, ring: Array) -> None:
    """What the modes send for the first K samples, with no inputs in the ring; spoils the modes.

    reads (layers, groups, modes, 2, LANES) is C, double.
    """
    K = ring.shape[3]
    for layer in range(modes.shape[0]):
        for row in range(modes.shape[1]):
            inputs, ahead = ring[layer, row, 0], ring[layer, row, 1]
            for group in range(modes.shape[2]):
                cell, read, state = (
                    cells[layer, group],
                    reads[layer, group],
                    modes[layer, row, group],
                )
                send(read, state, ahead[0, group * LANES :])
                for j in range(1, K):
                    advance(cell, state, group, inputs, j, 1, ahead)
                    send(read, state, ahead[j, group * LANES :])


@compiled
def send(read: Array, state: Array, y: Array) -> None:
    total = np.zeros(LANES)
    for m in range(state.shape[0]):
        own, now = read[m], state[m]
        for c in range(LANES):
            total[c] += own[0, c] * now[0, c] + own[1, c] * now[1, c]
    for c in range(LANES):
        y[c] = total[c]


@entry
def catch_up(clock: Array, cells: Array, modes: Array, ring: Array, ahead: Array) -> None:
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


@entry
def load(state: Array, factor: Array, modes: Array) -> None:
    """state (rows, d_model, d_state) times factor (d_model, modes, 2) -> the modes of one layer.

    A d_state of twice the modes holds real and imaginary parts in turn, else all modes are real.
    """
    channels, count = factor.shape[0], factor.shape[1]
    pairs = state.shape[2] > count
    for row in range(state.shape[0]):
        for low in range(0, channels, LANES):
            for m in range(count):
                out = modes[row, low // LANES, m]
                for h in range(low, min(low + LANES, channels)):
                    r, i = state[row, h, 2 * m if pairs else m], 0.0
                    if pairs:
                        i = state[row, h, 2 * m + 1]
                    out[0, h - low] = factor[h, m, 0] * r - factor[h, m, 1] * i
                    out[1, h - low] = factor[h, m, 0] * i + factor[h, m, 1] * r


@entry
def unload(modes: Array, factor: Array, state: Array) -> None:
    """The way back from :func:`load`, with the inverse factor."""
    channels, count = factor.shape[0], factor.shape[1]
    pairs = state.shape[2] > count
    for row in range(state.shape[0]):
        for low in range(0, channels, LANES):
            for m in range(count):
                given = modes[row, low // LANES, m]
                for h in range(low, min(low + LANES, channels)):
                    r, i = given[0, h - low], given[1, h - low]
                    state[row, h, 2 * m if pairs else m] = factor[h, m, 0] * r - factor[h, m, 1] * i
                    if pairs:
                        state[row, h, 2 * m + 1] = factor[h, m, 0] * i + factor[h, m, 1] * r
