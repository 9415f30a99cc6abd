"""The modes of a model that steps: run late, a block of samples and a group of channels at a time.

States are in double precision always, since one that is rounded at every step would drift.
``layout`` says what is where.
"""

from typing import Any

from s4d_torch.nn.stepping.layout import BLOCK, GROUPS, LAYERS, MODES, RANK, ROWS, W
from s4d_torch.ssm.compiled.code_cache import named, part
from s4d_torch.ssm.compiled.vectors import convert, fill, load, load_four, store

SENT = BLOCK * W  # where in the work space what the modes send begins, after the inputs
SEEN = 2 * BLOCK * W  # and what the low-rank terms see of the state


@part
def advance_diagonal(count, rank, cells, place, modes, row, work, end):  # type: ignore[no-untyped-def]
    """``s <- A s + u, y += C s`` for the inputs u in the work space, mode by mode."""
    cell, state = place * count * 4 * W, row * count * 2 * W
    for _ in range(count):
        a, e, v, w = load_four(cells, cell)
        r, i = load(modes, state), load(modes, state + W)
        for t in range(0, end, W):
            r, i = (load(work, t) + a * r) - e * i, a * i + e * r
            store(work, SENT + t, (load(work, SENT + t) + v * r) + w * i)
        store(modes, state, r)
        store(modes, state + W, i)
        cell += 4 * W
        state += 2 * W


@part
def advance_low_rank(count, rank, cells, place, modes, row, work, end):  # type: ignore[no-untyped-def]
    """``s <- A s - sum_k left_k Re(right_k s) + u``; a cell has left_k, right_k after A, C.

    A right_k is stored as the row that reads it off the state, like C.
    """
    size = (4 + 4 * rank) * W
    for t in range(0, end, W):
        for k in range(rank):
            seen, state = fill(work, 0.0), row * count * 2 * W
            right = place * count * size + (6 + 4 * k) * W
            for _ in range(count):
                seen = seen + load(cells, right) * load(modes, state)
                seen = seen + load(cells, right + W) * load(modes, state + W)
                state += 2 * W
                right += size
            store(work, SEEN + k * W, seen)
        u, y = load(work, t), load(work, SENT + t)
        cell, state = place * count * size, row * count * 2 * W
        for _ in range(count):
            a, e, v, w = load_four(cells, cell)
            r, i = load(modes, state), load(modes, state + W)
            r, i = (u + a * r) - e * i, a * i + e * r
            for k in range(rank):
                left, seen = cell + (4 + 4 * k) * W, load(work, SEEN + k * W)
                r, i = r - load(cells, left) * seen, i - load(cells, left + W) * seen
            y = (y + v * r) + w * i
            store(modes, state, r)
            store(modes, state + W, i)
            cell += size
            state += 2 * W
        store(work, SENT + t, y)


def make_refill(advance: Any, name: str) -> Any:
    """``refill`` for one kind of modes: the other one is not compiled along."""

    @part
    @named(name)
    def refill(plan, clock, cells, modes, ring, work):  # type: ignore[no-untyped-def]
        """Run the groups that are due: their modes catch up, and say what they will send.

        All groups start with what they send until time K. The first run of a group is shorter, and
        after it each has a time of its own modulo K.
        """
        rows, total, time = plan[ROWS], plan[LAYERS] * plan[GROUPS], clock[0]
        for place in range(total):
            if clock[1 + total + place] == time:
                until = clock[1 + place]
                samples = time - until + BLOCK
                for row in range(place * rows, place * rows + rows):
                    past = 2 * row * BLOCK * W
                    for i in range(samples):
                        at = past + ((until + i) & (BLOCK - 1)) * W
                        store(work, i * W, convert(work, load(ring, at)))
                        store(work, SENT + i * W, fill(work, 0.0))
                    advance(plan[MODES], plan[RANK], cells, place, modes, row, work, samples * W)
                    for i in range(samples):
                        at = past + BLOCK * W + ((until + i) & (BLOCK - 1)) * W
                        store(ring, at, convert(ring, load(work, SENT + i * W)))
                clock[1 + place] = clock[1 + total + place] = time + BLOCK

    return refill


refill_diagonal = make_refill(advance_diagonal, "refill_diagonal")
refill_low_rank = make_refill(advance_low_rank, "refill_low_rank")
