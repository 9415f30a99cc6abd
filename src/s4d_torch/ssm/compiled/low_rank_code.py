"""The kernel of a diagonal plus low-rank system as machine code: its response to one impulse.

    K_l = C . s_l        s_(l+1) = D s_l - sum_k left_k v_k,  v_k = right_k . s_l        s_0 = B

one sample after the other in double precision, for a group of W channels whose numbers lie side by
side. ``C .`` and ``right .`` are real rows, over the real and the imaginary parts of the modes.

    system (G, M, F, 2, W), F = D, B, left_1.., right_1.., C_1..    K (C's, G, L, W)
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import fill, load, store

SEGMENT = 32  # samples between the states that are kept for the adjoint
PAIR = 2 * W  # a complex number for each channel


@part
def begin(system, size, modes, states):  # type: ignore[no-untyped-def]
    """``s = B``."""
    for m in range(modes):
        store(states, m * PAIR, load(system, m * size + PAIR))
        store(states, m * PAIR + W, load(system, m * size + PAIR + W))


@part
def read(system, size, row, modes, states, at):  # type: ignore[no-untyped-def]
    """A row of the system times the state that begins at ``at``."""
    even = odd = fill(system, 0.0)
    for m in range(modes):
        place, s = m * size + row * PAIR, at + m * PAIR
        even = even + load(system, place) * load(states, s)
        odd = odd + load(system, place + W) * load(states, s + W)
    return even + odd


@part
def advance(system, size, rank, modes, states, at, after, seen):  # type: ignore[no-untyped-def]
    """The state at ``at`` to that at ``after``; ``seen`` (rank, W) takes what right rows read."""
    for k in range(rank):
        store(seen, k * W, read(system, size, 2 + rank + k, modes, states, at))
    for m in range(modes):
        place, s = m * size, at + m * PAIR
        a, e = load(system, place), load(system, place + W)
        r, i = load(states, s), load(states, s + W)
        r, i = a * r - e * i, a * i + e * r
        for k in range(rank):
            v, left = load(seen, k * W), place + (2 + k) * PAIR
            r, i = r - load(system, left) * v, i - load(system, left + W) * v
        store(states, after + m * PAIR, r)
        store(states, after + m * PAIR + W, i)


@cached_njit(nogil=True)
def low_rank_forward(first, last, rank, system, K, room):  # type: ignore[no-untyped-def]
    """Groups first..last; ``room`` is for a state and what is read off it."""
    G, M, size = system.shape
    ways, length = K.shape[0], K.shape[2]
    none = first - first
    for g in range(first, last):
        own = system[g]
        seen = room[M * PAIR :]
        begin(own, size, M, room)
        for l in range(length):  # noqa: E741
            for way in range(ways):
                row = 2 + 2 * rank + way
                store(K, ((way * G + g) * length + l) * W, read(own, size, row, M, room, none))
            advance(own, size, rank, M, room, none, none, seen)


@part
def pull_back(system, size, rank, ways, modes, s, seen, given, back, grad):  # type: ignore[no-untyped-def]
    """One sample back: ``back`` (M, 2 W), the gradient of the state after it, to that before.

    s and ``seen`` are as before the sample and in it, ``given`` (C's, W) gradients of K.
    """
    for k in range(rank):  # of what a right row has read, in its place
        total = fill(system, 0.0)
        v = load(seen, k * W)
        for m in range(modes):
            left = m * size + (2 + k) * PAIR
            r, i = load(back, m * PAIR), load(back, m * PAIR + W)
            total = total - (load(system, left) * r + load(system, left + W) * i)
            store(grad, left, load(grad, left) - r * v)
            store(grad, left + W, load(grad, left + W) - i * v)
        store(seen, k * W, total)
    for m in range(modes):
        place = m * size
        a, e = load(system, place), load(system, place + W)
        gr, gi = load(back, m * PAIR), load(back, m * PAIR + W)
        r, i = load(s, m * PAIR), load(s, m * PAIR + W)
        store(grad, place, load(grad, place) + gr * r + gi * i)
        store(grad, place + W, load(grad, place + W) + gi * r - gr * i)
        gr, gi = a * gr + e * gi, a * gi - e * gr
        for k in range(rank + ways):
            row = place + (2 + rank + k) * PAIR
            g = load(seen, k * W) if k < rank else load(given, (k - rank) * W)
            gr, gi = gr + load(system, row) * g, gi + load(system, row + W) * g
            store(grad, row, load(grad, row) + r * g)
            store(grad, row + W, load(grad, row + W) + i * g)
        store(back, m * PAIR, gr)
        store(back, m * PAIR + W, gi)


@cached_njit(nogil=True)
def low_rank_backward(first, last, rank, system, grad_K, grad, kept, room):  # type: ignore[no-untyped-def]
    """The adjoint of :func:`low_rank_forward`; ``grad``, like the system, begins as zeros.

    ``kept`` has room for a state at the beginning of each segment, ``room`` for those of a whole
    segment, what they send, the gradient of one and those of K.
    """
    G, M, size = system.shape
    ways, length = grad_K.shape[0], grad_K.shape[2]
    none, state = first - first, M * PAIR
    seen = room[(SEGMENT + 1) * state :]
    back, given = seen[SEGMENT * rank * W :], seen[SEGMENT * rank * W + state :]
    for g in range(first, last):
        own = system[g]
        begin(own, size, M, room)
        for l in range(length):  # noqa: E741
            if l % SEGMENT == 0:
                for q in range(0, state, W):
                    store(kept, l // SEGMENT * state + q, load(room, q))
            advance(own, size, rank, M, room, none, none, seen)
        for q in range(state):
            back[q] = 0
        for low in range((length - 1) // SEGMENT * SEGMENT, -1, -SEGMENT):
            count = min(SEGMENT, length - low)
            for q in range(0, state, W):
                store(room, q, load(kept, low // SEGMENT * state + q))
            for j in range(count):
                sent = seen[j * rank * W :]
                advance(own, size, rank, M, room, j * state, (j + 1) * state, sent)
            for j in range(count - 1, -1, -1):
                for way in range(ways):
                    place = ((way * G + g) * length + low + j) * W
                    store(given, way * W, load(grad_K, place))
                sent, s = seen[j * rank * W :], room[j * state :]
                pull_back(own, size, rank, ways, M, s, sent, given, back, grad[g])
        for m in range(M):  # the first state is B
            for q in range(0, PAIR, W):
                store(grad, (g * M + m) * size + PAIR + q, load(back, m * PAIR + q))
