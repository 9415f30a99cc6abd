"""One symbol out of many as machine code."""

import math

import numpy as np

from s4d_torch.ssm.compiled.code_cache import part


@part
def choose(scores, first, size, temperature, top_k, draw, work, chances):  # type: ignore[no-untyped-def]
    """A symbol, or -1 if scores are no numbers; ``sampling.choose`` says how.

    ``work`` has room for as many numbers from ``chances`` on.
    """
    best, least = first, -np.inf
    for k in range(first, first + size):
        if not math.isfinite(scores[k]):
            return -1
        if scores[k] > scores[best]:
            best = k
    if temperature == 0:
        return best - first
    if top_k < size:
        least = kth_largest(scores, first, size, top_k, work, chances)
    total, high = 0.0, float(scores[best])
    for k in range(size):
        score = float(scores[first + k])
        if score >= least:
            total += math.exp((score - high) / temperature)
        work[chances + k] = total
    symbol = 0
    while symbol < size - 1 and work[chances + symbol] <= draw * total:
        symbol += 1
    return symbol


@part
def kth_largest(scores, first, size, k, heap, root):  # type: ignore[no-untyped-def]
    """The lowest of the k highest scores, which are kept in a heap with the lowest as its root."""
    for at in range(root, root + k):
        heap[at] = -np.inf
    for n in range(first, first + size):
        value, at, below = float(scores[n]), 0, 1
        if value > heap[root]:  # in its place, and down
            while below < k:
                if below + 1 < k and heap[root + below + 1] < heap[root + below]:
                    below += 1
                if heap[root + below] >= value:
                    break
                heap[root + at] = heap[root + below]
                at, below = below, 2 * below + 1
            heap[root + at] = value
    return heap[root]
