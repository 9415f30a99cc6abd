"""Streams of random ListOps expressions, no two alike, the same for any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from itertools import count

import numpy as np

from s4d_torch.data.dataset import Array
from s4d_torch.data.process_pool import OrderedMap
from s4d_torch.data.tasks.lra.listops_trees import Rules, evaluate, grow

CANDIDATES = 512  # trees drawn together; another number gives other expressions
FRUITLESS_BLOCKS = 200  # so many without a new expression, and there are hardly any more

Expression = tuple[Array, int]  # tokens and value
Block = tuple[Array, Array, Array]  # tokens, offsets and values of many expressions
Seeds = tuple[int, ...]


def random_expressions(
    rules: Rules, wanted: int, seeds: Seeds, seen: set[bytes], run: OrderedMap
) -> Iterator[Expression]:
    """So many expressions that are not in ``seen`` (their digests), to which they are added.

    Every block of candidates has random numbers of its own, whoever draws it.
    """
    found = fruitless = 0
    for tokens, offsets, values in run(partial(_block, rules), ((*seeds, i) for i in count())):
        fruitless += 1
        for i, value in enumerate(values):
            expression = tokens[offsets[i] : offsets[i + 1]]
            digest = blake2b(expression.tobytes(), digest_size=16).digest()
            if digest not in seen:
                seen.add(digest)
                yield expression, int(value)
                found, fruitless = found + 1, 0
                if found == wanted:
                    return
        if fruitless == FRUITLESS_BLOCKS:
            raise ValueError(
                f"{wanted} expressions wanted, but only {found} new ones found within {rules}; "
                "ask for fewer, or widen the bounds"
            )


def _block(rules: Rules, seeds: Seeds) -> Block:
    tokens, offsets = grow(rules, CANDIDATES, np.random.Generator(np.random.PCG64(seeds)))
    values = evaluate(tokens) if len(tokens) else np.empty(0, dtype=np.uint8)
    return tokens, offsets, values
