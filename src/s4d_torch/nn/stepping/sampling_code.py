"""Symbols one after the other as machine code: choose one, run the model on it, choose the next."""

import math
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from s4d_torch.nn.stepping import activation_code, modes_code, step_code
from s4d_torch.nn.stepping.modes_code import Array, compiled, entry
from s4d_torch.nn.stepping.step_code import WIDTH, encode, forward

CALLED = (modes_code, step_code, activation_code)


def make_sample(version: int) -> Callable[..., bool]:
    """``sample`` for a version of the modules it calls; see ``step_code.make_run``."""

    @entry
    def sample(
        plan: Array, clock: Array, weights: Array, cells: Array, modes: Array, pool: Array,
        ring: Array, scores: Array, temperature: float, top_k: int, draws: Array, chosen: Array,
    ) -> bool:  # fmt: skip
        """draws (steps, batch), uniform in [0, 1) -> chosen (steps, batch), the symbols.

        scores (batch, symbols) are those of the next symbol, before and after; for the arguments
        before it see ``step_code``. False if scores are no numbers: then it stops.
        """
        batch, width = scores.shape[0], plan[WIDTH]
        x = np.zeros((batch, width), weights.dtype)
        wide = np.zeros(max(4 * width, ring.shape[4]), weights.dtype)
        narrow = np.zeros(ring.shape[4], weights.dtype)
        signal = np.zeros((0, 1), weights.dtype)  # there is none: the model reads tokens
        chances = np.zeros(scores.shape[1])
        for step in range(draws.shape[0]):
            for row in range(batch):
                symbol = choose(scores[row], temperature, top_k, draws[step, row], chances)
                if symbol < 0:
                    return False
                chosen[step, row] = symbol
            place = encode(plan, weights, signal, chosen[step], 0, x)
            forward(plan, clock, weights, place, cells, modes, pool, ring, x, narrow, wide, scores)
        return version >= 0

    return sample


@compiled
def choose(scores: Array, temperature: float, top_k: int, draw: float, chances: Array) -> int:
    """A symbol, or -1 if scores are no numbers; ``sampling.choose`` says how."""
    size, best = scores.shape[0], 0
    for k in range(size):
        if not math.isfinite(scores[k]):
            return -1
        if scores[k] > scores[best]:
            best = k
    if temperature == 0:
        return best
    least = -np.inf
    if top_k < size:
        least = float(np.partition(scores, size - top_k)[size - top_k])
    total = 0.0
    for k in range(size):
        if scores[k] >= least:
            total += math.exp((float(scores[k]) - float(scores[best])) / temperature)
        chances[k] = total
    symbol = 0
    while symbol < size - 1 and chances[symbol] <= draw * total:
        symbol += 1
    return symbol


sample = make_sample(zlib.crc32(b"".join(Path(str(x.__file__)).read_bytes() for x in CALLED)))
