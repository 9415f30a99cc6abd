"""ListOps expressions: their tokens, their values, and random ones by the Long Range Arena's rules.

An expression is a digit, or an operator applied to expressions: ``[MAX 2 9 [MIN 4 7 ] 0 ]``.
MIN, MAX, FIRST and LAST are what they say; MED is the median, rounded down; SM is the sum modulo
10. So every value is a digit.

The rules of the arena's generator, which :func:`grow` keeps: a node is an operator with
probability 1/4, else a digit from 0 to 9, all equally likely; an operator is one of MIN, MAX, MED,
SM, all equally likely, with 2 to ``max_args`` arguments, all equally likely; nodes at depth
``max_depth`` are digits, the root being at depth 1 (operators nest ``max_depth`` - 1 deep); an
expression is kept if ``min_length < tokens < max_length``, where a digit is one token and an
operator two, itself and its closing bracket; no expression occurs twice. Only the stream of random
numbers is another, so the expressions are others of the same distribution.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array
from s4d_torch.data.task import check_at_least

DIGITS = tuple("0123456789")
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM", "[FIRST", "[LAST")
VOCABULARY = ("", *DIGITS, *OPERATORS, "]")
"""Token i is ``VOCABULARY[i]``; 0 pads, digit d is 1 + d, operators are 11 to 16, ``]`` is 17."""

CODES = {word.encode(): token for token, word in enumerate(VOCABULARY) if word}
ZERO, FIRST_OPERATOR, CLOSE = CODES[b"0"], CODES[b"[MIN"], CODES[b"]"]
DRAWN_OPERATORS = 4  # the arena leaves FIRST and LAST out
OPERATOR_CHANCE = 0.25
FEWEST_ARGUMENTS = 2


@dataclass(frozen=True)
class Rules:
    """Bounds of random expressions; those of the arena by default."""

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_args: int = 10

    def __post_init__(self) -> None:
        check_at_least(1, self, "min_length")
        check_at_least(FEWEST_ARGUMENTS, self, "max_args")
        if self.max_length < self.min_length + 2:
            raise ValueError(
                f"no length lies strictly between min_length {self.min_length} and "
                f"max_length {self.max_length}"
            )
        check_at_least(2, self, "max_depth")
        longest = 1
        for _ in range(self.max_depth - 1):
            longest = 2 + self.max_args * longest
        if longest <= self.min_length or self.max_length <= 2 + FEWEST_ARGUMENTS:
            raise ValueError(
                f"expressions of depth {self.max_depth} with up to {self.max_args} arguments have "
                f"4 to {longest} tokens, none strictly between {self.min_length} and "
                f"{self.max_length}"
            )


def tokenize(text: bytes) -> Array:
    """One expression as tokens, (length,) uint8; round brackets are left out, as the arena does.

    Raises ``ValueError`` for what is no expression.
    """
    words = text.translate(None, b"()").split()
    try:
        tokens = np.array([CODES[word] for word in words], dtype=np.uint8)
    except KeyError as error:
        shown = error.args[0][:40].decode("utf-8", "replace")
        expected = " ".join(VOCABULARY[1:])
        raise ValueError(f"unknown word {shown!r}; expected {expected}") from None
    if not len(tokens):
        raise ValueError("no expression")
    opens, closes = _opens(tokens), tokens == CLOSE
    # how many operators are open after each token: none only after the last
    depth = np.cumsum(opens, dtype=np.int64) - np.cumsum(closes, dtype=np.int64)
    if depth[-1] > 0:
        raise ValueError(f"{depth[-1]} operators without their closing ']'")
    if depth.min() < 0:
        raise ValueError("a ']' that closes no operator")
    if (depth[:-1] == 0).any():
        ends = int(np.argmax(depth == 0)) + 1
        raise ValueError(f"{len(tokens) - ends} words after the end of the expression")
    if (opens[:-1] & closes[1:]).any():
        raise ValueError("an operator without arguments")
    return tokens


def _opens(tokens: Array) -> Array:
    return (tokens >= FIRST_OPERATOR) & (tokens < CLOSE)


def evaluate(tokens: Array) -> Array:
    """The values, (n,) uint8, of n expressions that stand one after the other in ``tokens``.

    Level by level from the deepest, all expressions at once. Nodes of one depth in their order are
    the arguments of the operators one level up in theirs, without gaps.
    """
    opens, node = _opens(tokens), tokens != CLOSE
    inside = np.cumsum(opens, dtype=np.int32) - opens - np.cumsum(~node, dtype=np.int32)
    tokens, depth = tokens[node], inside[node]
    if depth.max() < np.iinfo(np.int16).max:
        depth = depth.astype(np.int16)  # numpy sorts these in linear time
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1])
    arguments, below = by_depth[:0], np.empty(0, dtype=np.int16)
    for level in reversed(levels):
        values = tokens[level].astype(np.int16) - ZERO
        operator = np.flatnonzero(tokens[level] >= FIRST_OPERATOR)
        if len(operator):
            # without closing brackets, the first argument stands right after its operator
            starts = np.searchsorted(arguments, level[operator] + 1)
            operators = tokens[level][operator] - FIRST_OPERATOR
            values[operator] = _apply(operators, below, starts)
        arguments, below = level, values
    return below.astype(np.uint8)


def _apply(operators: Array, arguments: Array, starts: Array) -> Array:
    """Each operator of its arguments, which go from its start to that of the next."""
    counts = np.diff(starts, append=len(arguments))
    results = np.stack(
        [
            np.minimum.reduceat(arguments, starts),
            np.maximum.reduceat(arguments, starts),
            _median(arguments, starts, counts),
            np.add.reduceat(arguments, starts) % 10,
            arguments[starts],
            arguments[starts + counts - 1],
        ]
    )
    return results[operators, np.arange(len(operators))]


def _median(arguments: Array, starts: Array, counts: Array) -> Array:
    table = np.full((len(counts), int(counts.max())), 99, dtype=np.int16)  # after every digit
    rows = np.repeat(np.arange(len(counts)), counts)
    table[rows, np.arange(len(arguments)) - np.repeat(starts, counts)] = arguments
    table.sort(axis=1)
    each = np.arange(len(counts))
    return (table[each, (counts - 1) // 2] + table[each, counts // 2]) // 2


class _Level(NamedTuple):
    """The nodes of one depth, of many trees one after the other."""

    tree: Array  # which tree a node belongs to
    token: Array
    operator: Array  # whether a node is an operator
    counts: Array  # arguments of each operator: the nodes of the next level, in order


def grow(rules: Rules, candidates: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Those of so many random trees that keep to ``rules``: tokens, and offsets (n + 1,).

    Every root is an operator: the arena draws lone digits too, but none is long enough to keep.
    """
    levels: list[_Level] = []
    lengths = np.zeros(candidates, dtype=np.int64)
    tree = np.arange(candidates, dtype=np.int32)
    for depth in range(1, rules.max_depth + 1):
        level = _draw(rules, depth, tree, random)
        levels.append(level)
        parents = tree[level.operator]
        lengths += np.bincount(tree, minlength=candidates)
        lengths += np.bincount(parents, minlength=candidates)
        # a tree that is too long already will not be kept, so it need not grow
        tree = np.repeat(parents, level.counts * (lengths[parents] < rules.max_length))
        if not len(tree):
            break
    kept = (lengths > rules.min_length) & (lengths < rules.max_length)
    offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
    picked = [
        _Level(tree[here], token[here], operator[here], counts[here[operator]])
        for tree, token, operator, counts in levels
        for here in [kept[tree]]
    ]
    return _written(picked, offsets), offsets


def _draw(rules: Rules, depth: int, tree: Array, random: np.random.Generator) -> _Level:
    if depth == 1:
        operator = np.ones(len(tree), dtype=np.bool_)
    elif depth < rules.max_depth:
        operator = random.random(len(tree), dtype=np.float32) < OPERATOR_CHANCE
    else:
        operator = np.zeros(len(tree), dtype=np.bool_)
    token = random.integers(ZERO, ZERO + len(DIGITS), len(tree), dtype=np.uint8)
    found = int(operator.sum())
    token[operator] = FIRST_OPERATOR + random.integers(DRAWN_OPERATORS, size=found, dtype=np.uint8)
    counts = random.integers(FEWEST_ARGUMENTS, rules.max_args + 1, found)
    return _Level(tree, token, operator, counts)


def _written(levels: list[_Level], offsets: Array) -> Array:
    """Trees given by level, as they are written: an operator, its arguments, its bracket."""
    sizes: list[Array] = []  # tokens of the subtree below each node, itself included
    for level in reversed(levels):
        size = np.ones(len(level.tree), dtype=np.int64)
        if len(level.counts):
            starts = np.cumsum(level.counts) - level.counts
            size[level.operator] = 2 + np.add.reduceat(sizes[-1], starts)
        sizes.append(size)
    tokens = np.empty(int(offsets[-1]), dtype=np.uint8)
    place = offsets[:-1]
    for level, size, below in zip(levels, sizes[::-1], [*sizes[-2::-1], None], strict=True):
        tokens[place] = level.token
        tokens[(place + size - 1)[level.operator]] = CLOSE
        if below is None or not len(below):  # the rest of the levels has no nodes either
            break
        before = np.cumsum(below) - below
        firsts = before[np.cumsum(level.counts) - level.counts]
        place = np.repeat(place[level.operator] + 1 - firsts, level.counts) + before
    return tokens
