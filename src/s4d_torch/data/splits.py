"""Random splits that are the same on every machine, and the standard units of the training split.

The first of the splits takes what the others leave.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Kind, Signature, Split

CHUNK_BYTES = 1 << 24  # of values that are looked at together
DRAWS = 200  # of groups, the best of which is taken


def cut_randomly(count: int, fractions: Sequence[float], seed: int) -> list[Array]:
    """Positions 0 to count - 1, shuffled and cut, whatever else draws random numbers."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(count)
    sizes = [round(fraction * count) for fraction in fractions]
    cuts = np.cumsum([count - sum(sizes), *sizes])[:-1]
    return [np.sort(part) for part in np.split(order, cuts)]


def split_randomly(
    whole: Split, signature: Signature, *, validation: float, test: float, seed: int
) -> Dataset:
    """Three random splits of one set of sequences."""
    parts = cut_randomly(len(whole), (validation, test), seed)
    return Dataset.of(map(whole.part, parts), signature)


@dataclass(frozen=True, kw_only=True)
class Holdout:
    """How much of the training cases validates and tests where the data says nothing else."""

    validation: float = 0.1
    """part of the cases that validates, where the data does not decide it"""
    test: float = 0.2
    """part of the cases that tests, where the data does not decide it"""
    split_seed: int = 0
    """of the random splits"""

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation {self.validation} and test {self.test} leave nothing to learn from"
            )
        if self.split_seed < 0:
            raise ValueError(f"split_seed must not be negative, got {self.split_seed}")


def hold_out(targets: Array, kind: Kind, fractions: Sequence[float], seed: int) -> list[Array]:
    """Positions to learn from, then one array of positions for each fraction.

    Of classes, every split gets its share, and at least one case of each stays to learn from.
    """
    if kind == "regression":
        parts = cut_randomly(len(targets), fractions, seed)
    else:
        random = np.random.Generator(np.random.PCG64(seed))
        left, held = np.arange(len(targets)), []
        for fraction in fractions:
            part = _by_class(targets[left], round(fraction * len(targets)), random)
            held.append(left[part])
            left = np.delete(left, part)
        parts = [left, *held]
    few = f"{len(targets)} cases are too few"
    for part, fraction in zip(parts[1:], fractions, strict=True):
        if not len(part):
            advice = "take a larger part, or add cases"
            raise ValueError(f"{few} to hold out {fraction:g} of them; {advice}")
    if not len(parts[0]):
        raise ValueError(f"{few}: none is left to learn from")
    return parts


def hold_out_groups(
    groups: Array, targets: Array, kind: Kind, fractions: Sequence[float], seed: int
) -> list[Array]:
    """:func:`hold_out` of whole groups (n,): no group has cases in two parts.

    Of many random draws, the one whose parts come closest to their shares of each class.
    """
    names, number = np.unique(groups, return_inverse=True)
    if len(names) <= len(fractions):
        raise ValueError(
            f"{len(names)} groups ({', '.join(map(str, names))}) are too few for "
            f"{len(fractions) + 1} splits that share none; name what has more of them, or bring "
            "splits of your own"
        )
    if kind == "regression":
        kinds, of_case = np.zeros(1), np.zeros(len(targets), dtype=np.int64)
    else:
        kinds, of_case = np.unique(targets, return_inverse=True)
    counts = np.zeros((len(names), len(kinds)))  # of the cases of each class in each group
    np.add.at(counts, (number, of_case), 1)
    random = np.random.Generator(np.random.PCG64(seed))
    draws = [_draw_groups(counts, fractions, random) for _ in range(DRAWS)]
    wanted = np.array([1 - sum(fractions), *fractions])[:, None] * counts.sum(0)

    def distance(part_of_group: Array) -> float:
        found = np.stack([counts[part_of_group == i].sum(0) for i in range(len(wanted))])
        unseen = (found[0] == 0).sum()  # classes that could not be learned, worst of all
        return float(np.abs(found - wanted).sum() + unseen * 2 * len(targets))

    best = min(draws, key=distance)
    return [np.flatnonzero(best[number] == i) for i in range(len(wanted))]


def _draw_groups(counts: Array, fractions: Sequence[float], random: np.random.Generator) -> Array:
    """The part of each group, 0 to learn from: each part takes groups until it has its share."""
    sizes, parts = counts.sum(1), np.zeros(len(counts), dtype=np.int64)
    left = list(random.permutation(len(counts)))
    for i, fraction in enumerate(fractions, start=1):
        missing, later = fraction * sizes.sum(), len(fractions) - i + 1
        taken = 0.0
        # one that would go further beyond the share than it now falls short is not taken
        while len(left) > later and (not taken or missing - taken > sizes[left[-1]] / 2):
            taken += sizes[left[-1]]
            parts[left.pop()] = i
    return parts


def _refuse_shared_groups(given: Mapping[str, Split]) -> None:
    known: dict[str, str] = {}
    for name, split in given.items():
        if split.groups is None:
            continue
        for group in np.unique(split.groups[split.index]):
            if known.setdefault(str(group), name) != name:
                raise ValueError(
                    f"the group {str(group)!r} has cases in {known[str(group)]} and in {name}; "
                    "expected each group in one split"
                )


def complete_splits(given: Mapping[str, Split], kind: Kind, holdout: Holdout) -> dict[str, Split]:
    """All three splits; those that are not ``given`` are held out of "train", which is.

    Each is shuffled, so that the first n cases of files sorted by class are a fair sample. Cases
    of one group, where there are groups, stay in one split.
    """
    _refuse_shared_groups(given)
    missing = [name for name in ("validation", "test") if name not in given]
    whole, fractions = given["train"], [getattr(holdout, name) for name in missing]
    seed = holdout.split_seed
    if whole.groups is None:
        parts = hold_out(whole.labels(), kind, fractions, seed)
    else:
        groups = whole.groups[whole.index]
        parts = hold_out_groups(groups, whole.labels(), kind, fractions, seed)
    held = {name: whole.part(part) for name, part in zip(("train", *missing), parts, strict=True)}
    splits = dict(given) | held
    random = np.random.Generator(np.random.PCG64(holdout.split_seed))
    return {
        name: splits[name].part(random.permutation(len(splits[name])))
        for name in ("train", "validation", "test")
    }


def _by_class(labels: Array, wanted: int, random: np.random.Generator) -> Array:
    """Positions of about ``wanted`` cases, of each class in proportion and never its last one."""
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts * wanted / len(labels)
    taken = np.minimum(np.floor(shares), counts - 1).astype(np.int64)
    # what rounding down left over goes to the largest remainders; ties are broken at random
    tied = random.permutation(len(classes))
    order = tied[np.argsort(-(shares - taken)[tied], kind="stable")]
    order = order[(taken < counts - 1)[order]][: max(wanted - int(taken.sum()), 0)]
    taken[order] += 1
    chosen = [
        random.permutation(np.flatnonzero(labels == name))[:size]
        for name, size in zip(classes, taken, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def standard_units(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean, and one over the standard deviation, of each channel over all samples of ``split``.

    A channel that never changes keeps its scale.
    """
    pivot = np.asarray(split.inputs[0][int(split.index[0])][0], dtype=np.float64)
    count, total, squares = 0, np.zeros_like(pivot), np.zeros_like(pivot)
    for values in _chunks(split):
        # deviations from a value of the data itself: a large offset takes no digits away
        deviations = values - pivot
        count += len(deviations)
        total += deviations.sum(0)
        squares += np.square(deviations).sum(0)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    scale = 1 / np.where(deviation > 1e-7 * np.abs(pivot + mean), deviation, 1.0)
    return tuple(map(float, pivot + mean)), tuple(map(float, scale))


def _chunks(split: Split) -> Iterator[Array]:
    """The samples of a split, (many, features) at a time, in double precision."""
    tower = split.inputs[0]
    waiting: list[Array] = []
    size = 0
    for i in split.index:
        waiting.append(tower[int(i)])
        size += waiting[-1].size * 8
        if size > CHUNK_BYTES:
            yield np.concatenate(waiting).astype(np.float64)
            waiting, size = [], 0
    if waiting:
        yield np.concatenate(waiting).astype(np.float64)
