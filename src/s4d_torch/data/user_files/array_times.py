"""The times of samples in NumPy files: ``times`` beside ``X``, of the same cases and lengths."""

from collections.abc import Mapping, Sequence

import numpy as np

from s4d_torch.data.clock import check_times
from s4d_torch.data.dataset import Array, Sequences
from s4d_torch.data.files.moments import numeric_times
from s4d_torch.data.files.npy import StoredArray, read_whole
from s4d_torch.data.missing_values import Missing, without_empty_samples, without_gaps
from s4d_torch.data.store import Scratch
from s4d_torch.data.user_files.assembly import Timing, stored


def stored_times(
    blocks: Mapping[str, StoredArray], suffix: str, lengths: Sequence[int]
) -> tuple[list[Array], bool]:
    """The times of each case, in double precision, and whether they are dates.

    ``times`` are (cases, length), or one after the other, (samples,), where ``X`` is ragged.
    """
    block = blocks[f"times{suffix}"]
    times, dates = numeric_times(read_whole(block), f"{block.file}: {block.name}")
    even = (len(lengths), lengths[0]) if len(set(lengths)) == 1 else None
    total = (sum(lengths),)
    if times.shape not in (even, total):
        wanted = f"{even} or {total}" if even else f"{total}"
        raise ValueError(f"{block}: expected a time for each sample of X{suffix}, {wanted}")
    cases = np.split(times.ravel(), np.cumsum(lengths)[:-1])
    for i, case in enumerate(cases):
        check_times(case, f"{block.file}: case {i} of {block.name}")
    return cases, dates


def timed(
    given: Mapping[str, Sequences],
    suffixes: Mapping[str, str],
    blocks: Mapping[str, StoredArray],
    missing: Missing,
    scratch: Scratch,
) -> tuple[dict[str, Sequences], Timing]:
    """Sequences without samples that have no value at all, and the times of the others."""
    found, times, kinds = {}, {}, set()
    for name, suffix in suffixes.items():
        if f"times{suffix}" not in blocks:
            file, others = blocks[f"X{suffix}"].file, [n for n in blocks if n.startswith("times")]
            raise ValueError(
                f"{file} has {others[0]}, but no times{suffix} for X{suffix}; add it, or leave all "
                "times aside (--data.times ignore)"
            )
        each, block = given[name], blocks[f"X{suffix}"]
        when, dates = stored_times(blocks, suffix, each.lengths(np.arange(len(each))).tolist())
        kinds.add(dates)
        pairs = [
            (each[i], when[i], f"{block.file}: case {i} of {block.name}") for i in range(len(each))
        ]
        there = [without_empty_samples(*pair) for pair in pairs]
        found[name] = each
        if each.values.dtype.kind == "f" and np.isnan(each.values).any():
            cases = zip(there, pairs, strict=True)
            filled = (measured(*case, place, missing) for case, (_, _, place) in cases)
            found[name] = stored(filled, scratch)
        times[name] = stored((case[1] for case in there), scratch)
    if len(kinds) > 1:
        raise ValueError("the times of some splits are dates, those of others numbers")
    return found, Timing(times, dates=kinds.pop())


def measured(values: Array, times: Array, where: str, missing: Missing) -> Array:
    """(time, channels), in which single values that are missing are refused or interpolated."""
    bad = np.isnan(values)
    if bad.any() and missing == "error":
        sample, channel = np.argwhere(bad)[0]
        raise ValueError(
            f"{where}: channel {channel} has no value at the time {times[sample]:.15g}, and others "
            "have; fill it, or say missing='interpolate' (--data.missing interpolate)"
        )
    return without_gaps(values, where, times=times)
