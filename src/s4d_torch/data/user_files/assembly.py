"""From the sequences and targets of a user's files to a dataset in standard units."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.splits import Holdout, complete_splits, standard_units
from s4d_torch.data.store import Scratch
from s4d_torch.data.user_files.targets import Targets

Times = Literal["use", "ignore"]


def existing_file(path: str | Path) -> Path:
    """The absolute path of a file that is there."""
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    return file


def stored(sequences: Iterator[Array], scratch: Scratch) -> Sequences:
    """Sequences (length, features) kept on disk as they come; one array if of one length."""
    ragged = scratch.ragged(sequences)
    assert ragged.offsets is not None
    lengths = np.unique(np.diff(ragged.offsets))
    if len(lengths) > 1:
        return ragged
    flat = ragged.values
    shape = (len(ragged), int(lengths[0]), *flat.shape[1:])
    even = scratch.array(shape, flat.dtype)
    even[:] = flat.reshape(shape)
    with suppress(PermissionError):  # Windows keeps a file that is mapped
        Path(flat.filename).unlink()  # type: ignore[attr-defined]
    return Sequences(even)


@dataclass(frozen=True)
class Timing:
    """When the samples of each split came, as files say it; ``dates`` are in seconds."""

    times: Mapping[str, Sequences]
    column: str = ""
    dates: bool = False

    def clock(self, train: Split) -> Clock:
        """That of the training cases."""
        assert train.times is not None
        cases = (train.times[int(i)] for i in train.index)
        return Clock.of(cases, self.column, dates=self.dates)

    def remarks(self, clock: Clock) -> list[str]:
        """How far the gaps between samples are from the usual one."""
        each = (times[i] for times in self.times.values() for i in range(len(times)))
        spread = [(gaps.min(), gaps.max()) for t in each if len(gaps := clock.gaps(t)[1:])]
        least, most = min(low for low, _ in spread), max(high for _, high in spread)
        return [
            f"the model is told the times: samples are usually {clock.unit} apart, at least "
            f"{least:.3g} and at most {most:.3g} times that"
        ]


def dataset_of(
    given: Mapping[str, Sequences],
    targets: Targets,
    holdout: Holdout,
    *,
    cases: Sequence[str],
    channels: Sequence[str] = (),
    target: str = "",
    groups: Sequence[str] | None = None,
    timing: Timing | None = None,
) -> Dataset:
    """A dataset in units of its training split.

    ``given`` holds the sequences of "train", and of "validation" and "test" where these are
    decided; ``targets`` and ``cases`` have the targets and names of all of them in that order, as
    have ``groups``, which stay in one split each. What is missing is held out of "train".
    ``timing`` says when the samples of ``given`` came, if models are to be told.
    """
    names, splits, begin = np.array(cases, dtype=str), {}, 0
    for name, sequences in given.items():
        part = slice(begin, begin + len(sequences))
        whole = Split.whole(sequences, targets.values[part])
        of_part = None if groups is None else np.array(groups[part], dtype=str)
        times = None if timing is None else timing.times[name]
        splits[name] = replace(whole, cases=names[part], groups=of_part, times=times)
        begin = part.stop
    splits = complete_splits(splits, targets.kind, holdout)
    known, numbers = splits["train"].labels(), np.zeros(1)
    for name, split in splits.items():
        strange = np.setdiff1d(split.labels(), known)
        if len(strange) and targets.kind == "classification":
            classes = ", ".join(targets.classes[i] for i in strange)
            raise ValueError(f"the {name} cases have classes that training has not: {classes}")
    shift, scale = standard_units(splits["train"])
    clock = None if timing is None else timing.clock(splits["train"])
    if targets.kind == "regression":
        numbers = known
    signature = Signature(
        targets.kind,
        features=len(shift),
        outputs=targets.outputs,
        length=max(split.inputs[0].longest for split in splits.values()),
        classes=targets.classes,
        input_shift=shift,
        input_scale=scale,
        target_shift=float(numbers.mean()),
        target_scale=float(numbers.std()) or 1.0,
        channels=tuple(channels),
        target=target,
        clock=clock,
    )
    notes = () if timing is None or clock is None else tuple(timing.remarks(clock))
    return replace(Dataset.of(splits.values(), signature), notes=notes)
