"""What an estimator is, as ``estimator.json``: options, what fit learned, checksums of the rest."""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch._files import write_atomically
from s4d_torch._version import __version__
from s4d_torch.data.dataset import Array
from s4d_torch.estimators.panel import Units
from s4d_torch.nn.method import Method

ESTIMATOR = "estimator.json"
FORMAT, FORMAT_VERSION = "s4d_torch estimator", 1
PARTS = ("options", "learned", "arrays", "units")


@dataclass(frozen=True)
class Layout:
    """What a kind of estimator keeps: files beside the description, and attributes in it.

    Those of ``some`` are files that only some have.
    """

    files: tuple[str, ...]
    learned: tuple[str, ...]
    arrays: tuple[str, ...]
    some: tuple[str, ...] = ()


def new_folder(folder: str | os.PathLike[str]) -> Path:
    """A folder to save to, which may be there already."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder")
    return folder


def check_savable(estimator: Any, layout: Layout) -> dict[str, Any]:
    """Options, attributes and units as JSON holds them; an error if it cannot."""
    options = {name: option(name, x) for name, x in estimator.get_params(deep=False).items()}
    learned = {
        name: asdict(x) if is_dataclass(x) and not isinstance(x, type) else x
        for name in layout.learned
        if (x := getattr(estimator, name, None)) is not None
    }
    arrays = {
        name: _listed(name, getattr(estimator, name))
        for name in layout.arrays
        if hasattr(estimator, name)
    }
    units = {"shift": estimator.units_.shift.tolist(), "scale": estimator.units_.scale.tolist()}
    return {"options": options, "learned": learned, "arrays": arrays, "units": units}


def write_description(
    estimator: Any, parts: dict[str, Any], folder: Path, files: Sequence[str]
) -> None:
    """Write parts that JSON can hold, and the checksums of ``files``, which have to be there."""
    described = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "s4d_torch": __version__,
        "estimator": type(estimator).__name__,
        **parts,
        "sha256": {name: _digest(folder / name) for name in files},
    }
    write_atomically({folder / ESTIMATOR: f"{json.dumps(described, indent=2)}\n".encode()})


def read_description(
    cls: type[Any], folder: str | os.PathLike[str], layout: Layout
) -> tuple[Any, Path, set[str]]:
    """An estimator of ``cls`` without what is in its files, whose checksums are right; those."""
    described, path = read_parts(cls, folder, PARTS, layout.files, layout.some)
    try:
        return _made(cls, described, layout), path, {*described["sha256"]}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} describes no valid {cls.__name__}: {error}") from error


def read_parts(
    cls: type[Any],
    folder: str | os.PathLike[str],
    parts: Sequence[str],
    files: Sequence[str],
    some: Sequence[str] = (),
) -> tuple[dict[str, Any], Path]:
    """What :func:`write_description` wrote, with those parts; the checksums of files are right."""
    folder = Path(folder)
    path = folder / ESTIMATOR
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no estimator: no {ESTIMATOR}; save one there")
    described = _described(path, cls, parts)
    kept = {*described["sha256"]}
    if not {*files} <= kept <= {*files, *some}:
        raise ValueError(f"{path} has no sha256 of {' and '.join(files)}; save it again")
    for name, digest in described["sha256"].items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing; the folder is not complete")
        if _digest(folder / name) != digest:
            raise ValueError(
                f"{folder / name} is not the file that was saved with {ESTIMATOR}: it was changed, "
                "or copied in part; save or copy the estimator again"
            )
    return described, path


def _made(cls: type[Any], described: dict[str, Any], layout: Layout) -> Any:
    estimator = cls(**{name: chosen(name, x) for name, x in described["options"].items()})
    learned, arrays = described["learned"], described["arrays"]
    if other := [*(learned.keys() - {*layout.learned}), *(arrays.keys() - {*layout.arrays})]:
        raise ValueError(f"unknown entry {other[0]!r}")
    for name, kept in arrays.items():
        learned[name] = np.array(kept["values"], dtype=np.dtype(kept["dtype"]))
    for name, value in learned.items():
        setattr(estimator, name, value)
    units = described["units"]
    estimator.units_ = Units(*(np.array(units[name], float) for name in ("shift", "scale")))
    return estimator


def _described(path: Path, cls: type[Any], parts: Sequence[str]) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); save it again") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ValueError(f"{path} was not written by save: no 'format': {FORMAT!r}")
    version = described.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {version!r}, this release reads {FORMAT_VERSION}; "
            "use the release that wrote it, or a newer one"
        )
    if described.get("estimator") != cls.__name__:
        raise ValueError(
            f"{path} holds a {described.get('estimator')}, not a {cls.__name__}; "
            f"use {described.get('estimator')}.load"
        )
    for name in (*parts, "sha256"):
        if not isinstance(described.get(name), dict):
            raise ValueError(f"{path} has no {name!r}; save it again")
    return described


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def option(name: str, value: Any) -> Any:
    """An option of an estimator as JSON holds it."""
    if isinstance(value, Method):
        return {"Method": asdict(value)}
    if name == "class_weight" and hasattr(value, "items"):
        return {"pairs": [[_plain(key), _plain(x)] for key, x in value.items()]}
    if name == "random_state" and value is not None and not isinstance(value, int | np.integer):
        return None  # a generator has moved on since
    return _plain(value)


def chosen(name: str, value: Any) -> Any:
    """Undo :func:`option`."""
    if name == "method" and isinstance(value, dict):
        return Method().replace(**value["Method"])
    if name == "class_weight" and isinstance(value, dict):
        return dict(value["pairs"])
    return value


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, str | int | float | bool):
        raise TypeError(f"{value!r} cannot be saved: it is no number and no text")
    return value


def _listed(name: str, array: Array) -> dict[str, Any]:
    values = array.tolist()
    if array.dtype.kind == "O" and not all(isinstance(value, str) for value in values):
        raise TypeError(f"{name} of type object can only be saved if all of it is text")
    dtype = "object" if array.dtype.kind == "O" else array.dtype.str
    return {"dtype": dtype, "values": values}
