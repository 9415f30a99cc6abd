"""Checkpoints: written whole or not at all, verified when read, the last good one always there."""

import json
import shutil
import warnings
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from s4d_torch._files import folder_in_place_of, write_synced
from s4d_torch.nn.pretrained import own_copies

MANIFEST = "manifest.json"
WRITING = ".writing-"  # a folder whose checkpoint is not whole yet
DAMAGE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError),
    *(RecursionError, SafetensorError),
)
KEPT = 2  # the last, and the one before, should the last be damaged


@dataclass(frozen=True)
class Checkpoint:
    """Groups of tensors (the weights, the optimiser's) and a small state in JSON, at a step."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``folder/step-N`` and remove all but the newest two.

    Everything is on the disk before the name appears. If that fails, what was there stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / _name(checkpoint.step)
    contents = {
        f"{group}.safetensors": save(own_copies(tensors))
        for group, tensors in checkpoint.tensors.items()
    }
    manifest = {
        "step": checkpoint.step,
        "state": checkpoint.state,
        "files": {name: sha256(content).hexdigest() for name, content in contents.items()},
    }
    described = json.dumps(manifest, sort_keys=True)
    sealed = json.dumps({"manifest": described, "sha256": sha256(described.encode()).hexdigest()})
    with folder_in_place_of(place, prefix=WRITING) as new:  # one that is there is damaged
        for name, content in {**contents, MANIFEST: sealed.encode()}.items():
            write_synced(new / name, content)
    prune(folder, checkpoint.step)
    return place


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are named in a warning and passed over.

    None if there is none at all. If all are damaged that is an error: to begin anew would
    overwrite the scores and the best weights that are still there.
    """
    places = _places(folder)
    for place in reversed(places):
        try:
            return _read(place)
        except DAMAGE as error:
            said = f"the checkpoint {place.name} is damaged ({error}); trying the one before"
            warnings.warn(said, stacklevel=2)
    if places:
        raise ValueError(
            f"all checkpoints in {folder} are damaged; put a copy of one there, or remove the "
            "folder to begin anew"
        )
    return None


def newest_step(folder: Path) -> int | None:
    """The step of the newest checkpoint, whole or not."""
    places = _places(folder)
    return int(places[-1].name.removeprefix("step-")) if places else None


def read_checkpoint(folder: Path, step: int) -> Checkpoint:
    """The checkpoint of a step; a damaged one is an error."""
    return _read(folder / _name(step))


def prune(folder: Path, step: int) -> None:
    """Keep the newest two checkpoints up to ``step``, from where the run goes on.

    Later ones are damaged, or it would go on from there. What a killed process was writing goes.
    """
    places = _places(folder)
    kept = [place for place in places if place.name <= _name(step)][-KEPT:]
    for place in [*places, *folder.glob(f"{WRITING}*")]:
        if place not in kept:
            shutil.rmtree(place, ignore_errors=True)


def _read(place: Path) -> Checkpoint:
    match json.loads((place / MANIFEST).read_text()):
        case {"manifest": str(described), "sha256": str(digest)}:
            if sha256(described.encode()).hexdigest() != digest:
                raise ValueError(f"{MANIFEST} does not match its checksum")
        case _:
            raise ValueError(f"{MANIFEST} is no manifest")
    manifest = json.loads(described)
    tensors = {}
    for name, digest in manifest["files"].items():
        content = (place / name).read_bytes()
        if sha256(content).hexdigest() != digest:
            raise ValueError(f"{name} does not match its checksum")
        if name.endswith(".safetensors"):
            # safetensors gives them in an order that differs between processes, which cut the
            # tensors into shards together, one after the other
            tensors[name.removesuffix(".safetensors")] = dict(sorted(load(content).items()))
    return Checkpoint(manifest["step"], tensors, manifest["state"])


def _name(step: int) -> str:
    return f"step-{step:09}"


def _places(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(folder.glob("step-" + 9 * "[0-9]"))
