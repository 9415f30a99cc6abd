"""The fast Fourier transform as machine code, over vectors of channels.

Channels lie side by side in memory, so a transform needs no shuffling: each of its points is a
vector of W real parts and one of W imaginary parts. A transform of n = 2^m points goes from natural
order to one that is turned round digit by digit (``split``), the inverse back from there
(``join``): between them only products point by point, for which any order does. Both are in steps
of radix 4, the wide ones over all points, then one narrow part after the other, which stays in the
fastest cache.

    z (n, 2 W), flat
    turns: exp(-2 pi i p r / s), p < s / 4, r = 1, 2, 3, for s = n, n / 4, ... > 4, flat
"""

from s4d_torch.ssm.compiled.code_cache import part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import fill, load, load_one, store

POINT = 2 * W
NARROW = 128  # points at most that the fastest cache holds


@part
def take(z, at):  # type: ignore[no-untyped-def]
    """A point: its real and imaginary parts."""
    return load(z, at), load(z, at + W)


@part
def put(z, at, point):  # type: ignore[no-untyped-def]
    store(z, at, point[0])
    store(z, at + W, point[1])


@part
def cross(a, b, c, d):  # type: ignore[no-untyped-def]
    """The transform of four points; of the inverse the second and the fourth change places."""
    er, ei, fr, fi = a[0] + c[0], a[1] + c[1], a[0] - c[0], a[1] - c[1]
    gr, gi, hr, hi = b[0] + d[0], b[1] + d[1], b[0] - d[0], b[1] - d[1]
    return (er + gr, ei + gi), (fr + hi, fi - hr), (er - gr, ei - gi), (fr - hi, fi + hr)


@part
def turned(x, turns, q):  # type: ignore[no-untyped-def]
    wr, wi = load_one(turns, q), load_one(turns, q + 1)
    return x[0] * wr - x[1] * wi, x[0] * wi + x[1] * wr


@part
def turned_back(x, turns, q):  # type: ignore[no-untyped-def]
    wr, wi = load_one(turns, q), load_one(turns, q + 1)
    return x[0] * wr + x[1] * wi, x[1] * wr - x[0] * wi


@part
def split(z, begin, size, turns, turn):  # type: ignore[no-untyped-def]
    """A step forward of one part: four of a quarter of its size."""
    step = size // 4 * POINT
    for p in range(size // 4):
        at, q = begin + p * POINT, turn + 6 * p
        a, b = take(z, at), take(z, at + step)
        c, d = take(z, at + 2 * step), take(z, at + 3 * step)
        a, b, c, d = cross(a, b, c, d)
        put(z, at, a)
        put(z, at + step, turned(b, turns, q))
        put(z, at + 2 * step, turned(c, turns, q + 2))
        put(z, at + 3 * step, turned(d, turns, q + 4))


@part
def split_half(z, size, turns):  # type: ignore[no-untyped-def]
    """The first step, of a signal whose second half is zeros, which are not read."""
    step, none = size // 4 * POINT, (fill(z, 0.0), fill(z, 0.0))
    for p in range(size // 4):
        at, q = p * POINT, 6 * p
        a, b, c, d = cross(take(z, at), take(z, at + step), none, none)
        put(z, at, a)
        put(z, at + step, turned(b, turns, q))
        put(z, at + 2 * step, turned(c, turns, q + 2))
        put(z, at + 3 * step, turned(d, turns, q + 4))


@part
def join(z, begin, size, turns, turn, half):  # type: ignore[no-untyped-def]
    """A step back: the adjoint of :func:`split`; with ``half``, the second half is not wanted."""
    step = size // 4 * POINT
    for p in range(size // 4):
        at, q = begin + p * POINT, turn + 6 * p
        b = turned_back(take(z, at + step), turns, q)
        c = turned_back(take(z, at + 2 * step), turns, q + 2)
        d = turned_back(take(z, at + 3 * step), turns, q + 4)
        a, d, c, b = cross(take(z, at), b, c, d)
        put(z, at, a)
        put(z, at + step, b)
        if not half:
            put(z, at + 2 * step, c)
            put(z, at + 3 * step, d)


@part
def narrowest(z, begin, end, four, back):  # type: ignore[no-untyped-def]
    """The last step forward, or the first one ``back``: by four points or by two, not turned."""
    if four:
        for at in range(begin, end, 4 * POINT):
            a, b = take(z, at), take(z, at + POINT)
            c, d = take(z, at + 2 * POINT), take(z, at + 3 * POINT)
            a, b, c, d = cross(a, b, c, d)
            put(z, at, a)
            put(z, at + POINT, d if back else b)
            put(z, at + 2 * POINT, c)
            put(z, at + 3 * POINT, b if back else d)
    else:
        for at in range(begin, end, 2 * POINT):
            a, b = take(z, at), take(z, at + POINT)
            put(z, at, (a[0] + b[0], a[1] + b[1]))
            put(z, at + POINT, (a[0] - b[0], a[1] - b[1]))


@part
def wide_splits(z, size, half, turns):  # type: ignore[no-untyped-def]
    """Steps forward until parts are narrow; ``half`` of the signal are zeros, and not read."""
    if half:
        split_half(z, size, turns)
    else:
        split(z, 0, size, turns, 0)
    width, turn = size // 4, size // 4 * 6
    while width > NARROW:
        for begin in range(0, size * POINT, width * POINT):
            split(z, begin, width, turns, turn)
        turn += width // 4 * 6
        width //= 4


@part
def narrow_parts(size):  # type: ignore[no-untyped-def]
    """How wide they are, where their turns begin, and whether their last step is of four points."""
    width, turn = size // 4, size // 4 * 6
    while width > NARROW:
        turn += width // 4 * 6
        width //= 4
    return width, turn, width in (4, 16, 64)


@part
def narrow_splits(z, begin, width, turns, turn):  # type: ignore[no-untyped-def]
    """The other steps forward, of one part."""
    size = width
    while size > 4:
        for at in range(begin, begin + width * POINT, size * POINT):
            split(z, at, size, turns, turn)
        turn += size // 4 * 6
        size //= 4
    narrowest(z, begin, begin + width * POINT, size == 4, False)


@part
def narrow_joins(z, begin, width, four, turns):  # type: ignore[no-untyped-def]
    """Back again."""
    narrowest(z, begin, begin + width * POINT, four, True)
    size, turn = 4 if four else 2, len(turns)
    while size < width:
        size *= 4
        turn -= size // 4 * 6
        for at in range(begin, begin + width * POINT, size * POINT):
            join(z, at, size, turns, turn, False)


@part
def wide_joins(z, size, half, turns):  # type: ignore[no-untyped-def]
    """From narrow parts to the signal; with ``half``, to its first half."""
    width, turn, _ = narrow_parts(size)
    while width < size:
        width *= 4
        turn -= width // 4 * 6
        for begin in range(0, size * POINT, width * POINT):
            join(z, begin, width, turns, turn, half and width == size)
