"""Prepared data on disk: arrays mapped into memory, made once and found again by their key."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split

INDEX = "dataset.json"


class Scratch:
    """Where a loader puts arrays that are larger than it wants to hold in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A new array of zeros, mapped from a file of its own."""
        return np.lib.format.open_memmap(self._new_file(), "w+", np.dtype(dtype), shape)

    def ragged(self, sequences: Iterable[Array]) -> Sequences:
        """Sequences written one after the other as they come, never all in memory."""
        raw, lengths, first = self.folder / "ragged.tmp", [0], None
        with raw.open("wb") as file:
            for sequence in sequences:
                first = sequence if first is None else first
                file.write(np.ascontiguousarray(sequence, dtype=first.dtype).tobytes())
                lengths.append(len(sequence))
        if first is None:
            raise ValueError("no sequences")
        offsets = np.cumsum(lengths, dtype=np.int64)
        values = self.array((int(offsets[-1]), *first.shape[1:]), first.dtype)
        if values.size:
            values[:] = np.memmap(raw, first.dtype, "r", shape=values.shape)
        raw.unlink()
        return Sequences(values, offsets)

    def keep(self, array: Array) -> str:
        """The name of the file that holds ``array``, which is written if it is not there yet."""
        # a slice of a mapped array has its file name too, but another base
        if isinstance(array, np.memmap) and isinstance(array.base, mmap):
            file = Path(str(array.filename))
            if file.parent == self.folder.resolve():
                array.flush()
                return file.name
        path = self._new_file()
        np.save(path, array)
        return path.name

    def _new_file(self) -> Path:
        self._count += 1
        return self.folder.resolve() / f"{self._count:03}.npy"


def write_dataset(dataset: Dataset, scratch: Scratch) -> None:
    names: dict[int, str] = {}

    def keep(array: Array | None) -> str | None:
        if array is None:
            return None
        if id(array) not in names:
            names[id(array)] = scratch.keep(array)
        return names[id(array)]

    splits = {
        name: {
            "inputs": [[keep(tower.values), keep(tower.offsets)] for tower in split.inputs],
            "targets": keep(split.targets),
            "index": keep(split.index),
            "cases": keep(split.cases),
            "groups": keep(split.groups),
            "times": split.times and [keep(split.times.values), keep(split.times.offsets)],
        }
        for name, split in dataset.splits.items()
    }
    described = {
        "splits": splits,
        "signature": asdict(dataset.signature),
        "notes": dataset.notes,
    }
    (scratch.folder / INDEX).write_text(json.dumps(described, indent=1))


def read_dataset(place: Path) -> Dataset:
    described = json.loads((place / INDEX).read_text())

    @cache  # splits share arrays
    def load(name: str) -> Array:
        return np.load(place / name, mmap_mode="r", allow_pickle=False)

    def tower(values: str, offsets: str | None) -> Sequences:
        return Sequences(load(values), None if offsets is None else np.array(load(offsets)))

    def names(file: str | None) -> Array | None:
        return None if file is None else np.array(load(file))

    splits = {
        name: Split(
            tuple(tower(*each) for each in split["inputs"]),
            np.array(load(split["targets"])),
            np.array(load(split["index"])),
            cases=names(split.get("cases")),
            groups=names(split.get("groups")),
            times=tower(*split["times"]) if split.get("times") else None,
        )
        for name, split in described["splits"].items()
    }
    notes = tuple(described.get("notes", ()))
    return Dataset(**splits, signature=signature_from(described["signature"]), notes=notes)


def signature_from(described: Mapping[str, Any]) -> Signature:
    """A signature as JSON keeps it, with lists for tuples and a dict for its clock."""
    tuples = {name: tuple(value) for name, value in described.items() if isinstance(value, list)}
    clock = {"clock": Clock(**described["clock"])} if described.get("clock") else {}
    return Signature(**{**described, **tuples, **clock})
