"""What a dataset holds, and what of it would spoil a result."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Signature, Split
from s4d_torch.data.fingerprint import case_digests
from s4d_torch.data.missing_values import unusable

MOST_CASES, MOST_VALUES = 50_000, 1 << 26  # that are looked at; of more, evenly spaced cases
SHOWN = 5  # names in a warning
UNBALANCED = 0.75  # part of the test cases of one class, from which on accuracy misleads
ENOUGH = 12  # cases whose order by a feature is hardly that of their targets by chance


@dataclass(frozen=True)
class SplitSummary:
    """``classes`` are how many cases each has; ``targets`` the smallest, mean and largest number.

    ``repeated`` are cases whose values another case of the split has too.
    """

    cases: int
    shortest: int
    median: float
    longest: int
    classes: dict[str, int]
    targets: tuple[float, float, float] | None
    groups: int | None
    repeated: int


@dataclass(frozen=True)
class ChannelSummary:
    """``fixed``: the same all through each case, such as an age; ``missing`` values are no numbers
    that can be used."""

    name: str
    low: float
    high: float
    missing: int
    fixed: bool

    @property
    def constant(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True)
class Shared:
    """Cases of ``second`` that ``first`` has too, by their values; ``example`` is such a pair."""

    first: str
    second: str
    cases: int
    example: tuple[str, str]


@dataclass(frozen=True)
class DataSummary:
    """An account of a dataset; channels and duplicates are those of ``looked_at`` cases."""

    cases: int
    looked_at: int
    sample_rate: float | None
    splits: dict[str, SplitSummary]
    channels: list[ChannelSummary]
    shared: list[Shared]
    notes: tuple[str, ...]
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Cases:
    """The cases of a split that are looked at, (n, channels) each, and their digests."""

    split: Split
    digests: list[bytes]
    low: Array
    high: Array
    missing: Array

    def name(self, i: int) -> str:
        row = int(self.split.index[i])
        return f"number {row}" if self.split.cases is None else str(self.split.cases[row])


def summarize(dataset: Dataset) -> DataSummary:
    """Cases, channels, classes, duplicates, and warnings; of large data only a part is read."""
    total = sum(len(split) for split in dataset.splits.values())
    part = _part_to_read(dataset, total)
    signature = dataset.signature
    read = {
        name: _look_at(split.part(_evenly(len(split), part)), signature)
        for name, split in dataset.splits.items()
    }
    shared = list(_shared(read))
    splits = {
        name: _summarize_split(split, signature, read[name].digests)
        for name, split in dataset.splits.items()
    }
    channels = _channels(list(read.values()), signature)
    warnings = [*_about_shared(shared), *_about_contradictions(read)]
    if signature.kind not in ("generation", "tracking"):
        warnings += [*_about_targets(splits, signature), *_about_leaks(read, channels, signature)]
    warnings += _about_channels(channels)
    return DataSummary(
        cases=total,
        looked_at=sum(len(each.digests) for each in read.values()),
        sample_rate=signature.sample_rate,
        splits=splits,
        channels=channels,
        shared=shared,
        notes=dataset.notes,
        warnings=warnings,
    )


# -- looking ---------------------------------------------------------------------------------------


def _part_to_read(dataset: Dataset, cases: int) -> float:
    """The part of the cases that can be looked at in a few seconds."""
    values = sum(
        int(tower.lengths(split.index).sum() * np.prod(tower.values.shape[2 - tower.ragged :]))
        for split in dataset.splits.values()
        for tower in split.inputs
    )
    return min(1.0, MOST_CASES / max(1, cases), MOST_VALUES / max(1, values))


def _evenly(count: int, part: float) -> Array:
    taken = min(count, max(1, int(count * part)))
    return np.arange(taken) * count // max(1, taken)


def _look_at(split: Split, signature: Signature) -> _Cases:
    digests = [b""] * len(split)
    for position, digest in case_digests(split):
        digests[position] = digest
    channels = 0 if signature.tokens else 1 if signature.frames else signature.features
    low, high = np.zeros((2, len(split), channels))
    missing = np.zeros((len(split), channels), dtype=np.int64)
    if channels:
        for i, row in enumerate(split.index):
            values = np.concatenate([tower[int(row)] for tower in split.inputs])
            values = values.reshape(-1, 1) if signature.frames else values
            low[i], high[i] = np.fmin.reduce(values), np.fmax.reduce(values)
            if values.dtype.kind == "f":
                missing[i] = unusable(values).sum(0)
    return _Cases(split, digests, low, high, missing)


def _summarize_split(split: Split, signature: Signature, digests: list[bytes]) -> SplitSummary:
    lengths = np.max([tower.lengths(split.index) for tower in split.inputs], axis=0)
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    labels, classes, targets = split.labels(), {}, None
    if signature.kind == "classification":
        counts = np.bincount(labels.astype(np.int64), minlength=signature.outputs)
        names = signature.classes or tuple(map(str, range(signature.outputs)))
        classes = dict(zip(names, counts.tolist(), strict=True))
    elif signature.kind == "regression" and len(labels):
        targets = float(labels.min()), float(labels.mean()), float(labels.max())
    groups = None if split.groups is None else len(np.unique(split.groups[split.index]))
    return SplitSummary(
        cases=len(split),
        shortest=shortest,
        median=float(np.median(lengths)) if len(lengths) else 0.0,
        longest=longest,
        classes=classes,
        targets=targets,
        groups=groups,
        repeated=len(digests) - len(set(digests)),
    )


def _channels(read: Sequence[_Cases], signature: Signature) -> list[ChannelSummary]:
    low, high, missing = (
        np.concatenate([getattr(each, name) for each in read])
        for name in ("low", "high", "missing")
    )
    names = signature.channels or tuple(str(i + 1) for i in range(low.shape[1]))
    names = ("pixels",) if signature.frames else names
    return [
        ChannelSummary(
            name=names[i],
            low=float(np.fmin.reduce(low[:, i])),
            high=float(np.fmax.reduce(high[:, i])),
            missing=int(missing[:, i].sum()),
            fixed=bool((low[:, i] == high[:, i]).all()),
        )
        for i in range(low.shape[1] if len(low) else 0)
    ]


def _shared(read: dict[str, _Cases]) -> Iterator[Shared]:
    for first, second in combinations(read, 2):
        known = {digest: i for i, digest in reversed(list(enumerate(read[first].digests)))}
        found = [i for i, digest in enumerate(read[second].digests) if digest in known]
        if found:
            other = known[read[second].digests[found[0]]]
            example = read[first].name(other), read[second].name(found[0])
            yield Shared(first, second, len(found), example)


# -- warnings --------------------------------------------------------------------------------------


def _about_shared(shared: Iterable[Shared]) -> Iterator[str]:
    for each in shared:
        one, other = each.example
        pair = f"such as {other}" + (f", which is {one} there" if one != other else "")
        yield (
            f"{_count(each.cases, 'case')} of {each.second} "
            f"{'is' if each.cases == 1 else 'are'} in {each.first} too, by content, {pair}: scores "
            "will be too high; remove the copies, or keep what belongs together in one split "
            "(--data.groups)"
        )


def _about_contradictions(read: dict[str, _Cases]) -> Iterator[str]:
    targets: dict[bytes, Any] = {}
    split: set[bytes] = set()
    for each in read.values():
        for digest, target in zip(each.digests, each.split.labels().tolist(), strict=True):
            if targets.setdefault(digest, target) != target:
                split.add(digest)
    if split:
        times = "once" if len(split) == 1 else f"{len(split):,} times"
        told = "no model can get them right"
        yield f"cases with the same values have different targets, {times}: {told}"


def _about_targets(splits: dict[str, SplitSummary], signature: Signature) -> Iterator[str]:
    if signature.kind == "regression":
        for name, split in splits.items():
            if split.targets and split.cases > 1 and split.targets[0] == split.targets[2]:
                yield f"all targets of {name} are {split.targets[0]:g}"
        return
    totals: Counter[str] = Counter()
    for split in splits.values():
        totals.update(split.classes)
    alone = [name for name, count in totals.items() if count == 1]
    if alone:
        yield f"there is one case only of {_list(alone)}: what is learned of it cannot be tested"
    for name, split in splits.items():
        present = [each for each, count in split.classes.items() if count]
        absent = [each for each in split.classes if each not in present and each not in alone]
        if len(present) == 1 and len(split.classes) > 1 and split.cases > 1:
            yield f"all cases of {name} are of the class {present[0]!r}: its scores say nothing"
        elif absent:
            yield f"{name} has no case of {_list(absent)}"
    test = splits["test"]
    name, most = max(test.classes.items(), key=lambda item: item[1], default=("", 0))
    if test.cases > most >= UNBALANCED * test.cases:
        yield (
            f"{most / test.cases:.0%} of the test cases are {name!r}, and who always says so has "
            f"that accuracy: look at f1 and auroc, choose weights by them (--training.metric f1), "
            "or let rare classes count as much (--training.class-weight balanced)"
        )


def _about_leaks(
    read: dict[str, _Cases], channels: Sequence[ChannelSummary], signature: Signature
) -> Iterator[str]:
    labels = np.concatenate([each.split.labels() for each in read.values()])
    low = np.concatenate([each.low for each in read.values()])
    for i, channel in enumerate(channels):
        if channel.fixed and not channel.constant and _tells(low[:, i], labels, signature):
            yield (
                f"the feature {channel.name!r} stays the same all through a case and tells its "
                "target: is it the target in other words? Then leave it out, of a table by naming "
                "the columns to read (--data.values)"
            )


def _tells(values: Array, labels: Array, signature: Signature) -> bool:
    """Whether one number of each case decides its target, beyond what chance would do."""
    order = np.lexsort((labels, values))
    values, labels = values[order], labels[order]
    same = values[1:] == values[:-1]
    if (labels[1:][same] != labels[:-1][same]).any():
        return False
    if 2 * (len(values) - int(same.sum())) <= len(values):  # most values come up again
        return True
    if len(values) < ENOUGH:
        return False
    steps = np.diff(labels)
    if signature.kind == "regression":
        return bool((steps >= 0).all() or (steps <= 0).all())
    return int((steps != 0).sum()) == len(np.unique(labels)) - 1


def _about_channels(channels: Sequence[ChannelSummary]) -> Iterator[str]:
    constant = [channel.name for channel in channels if channel.constant]
    if constant:
        alone = len(constant) == 1
        never = "never changes and tells" if alone else "never change and tell"
        yield f"the {_list(constant, 'feature')} {never} nothing"
    missing = sum(channel.missing for channel in channels)
    if missing:
        yield f"{_count(missing, 'value')} missing or not finite: fill or interpolate them first"


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _list(names: Sequence[str], what: str = "class") -> str:
    """``class 'a'``, ``classes 'a', 'b' and 3 more``."""
    plural = {"class": "classes"}.get(what, f"{what}s")
    shown = ", ".join(map(repr, names[:SHOWN]))
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{what if len(names) == 1 else plural} {shown}{more}"
