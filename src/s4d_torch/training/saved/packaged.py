"""The models that come with the package: each a folder like that of a run, as small as it can be.

Beside what a run has (``run.json``, ``signature.json``, ``summary.json``, ``best/``) it holds
``card.json``, what the model is and is not for, ``README.md``, the same to read, and
``answers.json``, what it says to :func:`probe`.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch._registry import unknown
from s4d_torch.data.dataset import Array, Signature

FOLDER = Path(__file__).parents[2] / "models"
CONFIG, CARD, PAGE, ANSWERS = "run.json", "card.json", "README.md", "answers.json"
PROBED = 400  # samples of a probe


@dataclass(frozen=True, kw_only=True)
class About:
    """What is to be said about a model, in words."""

    title: str
    reads: str
    answers: str
    data: str
    licence: str
    """of the data it was learned from"""
    split: str
    not_for: str
    """what it must not be used for"""
    use: str
    """a command to try"""


@dataclass(frozen=True, kw_only=True)
class Card(About):
    """What there is to know about a model before it is used."""

    name: str
    command: str
    """that trained it"""
    commit: str
    """of the package that trained it"""
    scores: dict[str, float]
    intervals: dict[str, list[float]]
    """of 95 %, of scores of few cases"""
    cases: int
    """of the test"""
    parameters: int
    bytes: int
    """of the weights"""
    microseconds: float | None
    """for one sample, compiled, on one core; None for a model that has no step"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def names() -> list[str]:
    """Of all models that come with the package."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CARD}"))


def folder_of(name: str) -> Path:
    """The folder of the model of that name."""
    if name not in names():
        raise ValueError(
            f"{unknown('model', name, names())}; a run of your own is read by load_run(folder)"
        )
    return FOLDER / name


def find(folder: str | os.PathLike[str]) -> Path:
    """The folder a user means: one that holds a run, or a model that comes with the package."""
    path = Path(folder)
    if (path / CONFIG).is_file() or str(folder) not in names():
        return path
    return FOLDER / str(folder)


def is_packaged(folder: str | os.PathLike[str]) -> bool:
    """Whether ``folder`` is, or names, a model that comes with the package."""
    return find(folder).parent == FOLDER


def cards() -> Iterator[Card]:
    """Of all models, by name."""
    for name in names():
        yield card(name)


def card(name: str) -> Card:
    return Card(**json.loads((folder_of(name) / CARD).read_text(encoding="utf-8")))


def probe(signature: Signature) -> Array:
    """Two sequences to ask a model about, in the unit of its data: slow waves, or all its tokens.

    Made of nothing but whole numbers and one sine, so that they are the same everywhere.
    """
    length = min(signature.length, PROBED)
    time, which = np.arange(length)[:, None], np.arange(2)[:, None, None]
    if signature.tokens:
        known = signature.outputs if signature.kind == "generation" else signature.features
        return np.asarray((time[:, 0] * (2 * which[:, 0] + 3) + which[:, 0]) % known)
    feature = np.arange(signature.features)
    wave = np.sin((time + 1) * (feature + which + 1) / 17)
    shift, scale = np.asarray(signature.input_shift), np.asarray(signature.input_scale)
    return np.asarray((shift + wave / scale).astype(np.float32))
