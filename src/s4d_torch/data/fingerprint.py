"""What data is, by its content: a digest of every case, and of each split."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Split

DIGEST_BYTES = 16  # of SHA-256, which processors have instructions for


def case_digests(split: Split) -> Iterator[tuple[int, bytes]]:
    """The position of each sequence, or pair, and a digest of its values.

    In the order in which they are stored: a mapped file is read once, from its beginning to its
    end.
    """
    # kinds of numbers are part of the content: zeros of one are bytes of another
    kinds = ";".join(f"{x.values.dtype.str}{x.values.shape[2 - x.ragged :]}" for x in split.inputs)
    start = sha256(kinds.encode())
    for position in np.argsort(split.index, kind="stable"):
        digest = start.copy()
        for tower in split.inputs:
            sequence = np.ascontiguousarray(tower[int(split.index[position])])
            digest.update(len(sequence).to_bytes(8, "little"))
            digest.update(sequence.data if sequence.size else b"")
        if split.times is not None:  # the same values at other times are another case
            times = np.asarray(split.times[int(split.index[position])], dtype=np.float64)
            digest.update(np.diff(times).tobytes())
        yield int(position), digest.digest()[:DIGEST_BYTES]


def fingerprint(dataset: Dataset) -> dict[str, Any]:
    """Counts and digests of the splits, as JSON: the same for the same data, wherever it lies."""
    return {name: _of_split(split) for name, split in dataset.splits.items()}


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints: ``train had 84 cases, now 42``."""
    found = []
    for name, new in now.items():
        old = before.get(name, {})
        for count in ("cases", "samples"):
            if old.get(count) != new[count]:
                found.append(f"{name} had {old.get(count)} {count}, now {new[count]}")
                break
        else:
            different = [what for what in ("values", "targets") if old.get(what) != new[what]]
            if different:
                found.append(f"{' and '.join(different)} of {name} differ, or their order")
    return found


def _of_split(split: Split) -> dict[str, Any]:
    digests = np.zeros((len(split), DIGEST_BYTES), dtype=np.uint8)
    for position, digest in case_digests(split):
        digests[position] = np.frombuffer(digest, dtype=np.uint8)
    samples = sum(int(tower.lengths(split.index).sum()) for tower in split.inputs)
    return {
        "cases": len(split),
        "samples": samples,
        "values": _digest(digests),
        "targets": _digest(split.labels()),
    }


def _digest(array: Array) -> str:
    content = np.ascontiguousarray(array)
    digest = sha256(content.dtype.str.encode())
    digest.update(content.tobytes())
    return digest.hexdigest()[: 2 * DIGEST_BYTES]
