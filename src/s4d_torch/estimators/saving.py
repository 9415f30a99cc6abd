"""An estimator on disk: ``model.safetensors`` and JSON, checked when they are read."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch._files import write_atomically
from s4d_torch._version import __version__
from s4d_torch.data.dataset import Array
from s4d_torch.estimators.panel import Units
from s4d_torch.nn.method import Method
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import CONFIG, WEIGHTS

ESTIMATOR = "estimator.json"
FORMAT, FORMAT_VERSION = "s4d_torch estimator", 1
# what fit learned, apart from the model
NEEDED = ("n_channels_in_", "n_outputs_", "n_epochs_", "history_")
LEARNED = (*NEEDED, "n_features_in_", "targets_in_columns_")
PARTS = ("options", "learned", "arrays", "units", "sha256")
ARRAYS = ("classes_", "feature_names_in_", "target_shift_", "target_scale_")


def save(estimator: Any, folder: str | os.PathLike[str]) -> None:
    """Write the model as :meth:`SequenceModel.save_pretrained` does, and the rest beside it."""
    folder = folder_for(folder)
    options = {name: option(name, x) for name, x in estimator.get_params(deep=False).items()}
    learned = {name: getattr(estimator, name) for name in LEARNED if hasattr(estimator, name)}
    arrays = {
        name: _listed(name, getattr(estimator, name)) for name in ARRAYS if hasattr(estimator, name)
    }
    units = {"shift": estimator.units_.shift.tolist(), "scale": estimator.units_.scale.tolist()}
    estimator.model_.preprocessing = _preprocessing(estimator, units)
    estimator.model_.save_pretrained(folder)
    parts = {"options": options, "learned": learned, "arrays": arrays, "units": units}
    write_description(folder, estimator, parts, (WEIGHTS, CONFIG))


def folder_for(folder: str | os.PathLike[str]) -> Path:
    """Where to save; a file of that name is refused."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder")
    return folder


def write_description(
    folder: Path, estimator: Any, parts: Mapping[str, Any], files: Sequence[str]
) -> None:
    """``estimator.json``, with the checksums of the files that were written beside it."""
    described = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "s4d_torch": __version__,
        "estimator": type(estimator).__name__,
        **parts,
        "sha256": {name: _digest(folder / name) for name in files},
    }
    write_atomically({folder / ESTIMATOR: f"{json.dumps(described, indent=2)}\n".encode()})


def load(cls: type[Any], folder: str | os.PathLike[str]) -> Any:
    """An estimator of ``cls`` from what :func:`save` wrote."""
    folder = Path(folder)
    described, path = read_description(folder, cls, PARTS, (WEIGHTS, CONFIG))
    try:
        estimator = cls(**{name: chosen(name, x) for name, x in described["options"].items()})
        learned, arrays = described["learned"], described["arrays"]
        if other := [*(learned.keys() - {*LEARNED}), *(arrays.keys() - {*ARRAYS})]:
            raise ValueError(f"unknown entry {other[0]!r}")
        for name, kept in arrays.items():
            learned[name] = np.array(kept["values"], dtype=np.dtype(kept["dtype"]))
        for name, value in learned.items():
            setattr(estimator, name, value)
        units = described["units"]
        estimator.units_ = Units(*(np.array(units[name], float) for name in ("shift", "scale")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} describes no valid {cls.__name__}: {error}") from error
    estimator.model_ = SequenceModel.read_pretrained(folder).eval()
    _check_fit(estimator, path)
    return estimator


def read_description(
    folder: Path, cls: type[Any], parts: Sequence[str], files: Sequence[str]
) -> tuple[dict[str, Any], Path]:
    """What :func:`write_description` wrote and where, if the files beside it are those it saw."""
    path = folder / ESTIMATOR
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no estimator: no {ESTIMATOR}; save one there")
    described = _described(path, cls, parts, files)
    for name, digest in described["sha256"].items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name} is missing; the folder is not complete")
        if _digest(folder / name) != digest:
            raise ValueError(
                f"{folder / name} is not the file that was saved with {ESTIMATOR}: it was changed, "
                "or copied in part; save or copy the estimator again"
            )
    return described, path


def _preprocessing(estimator: Any, units: dict[str, Any]) -> dict[str, Any] | None:
    """For those who load the weights alone: the model reads ``(x - input_shift) * input_scale``."""
    if not any(units["shift"]) and set(units["scale"]) == {1.0} and estimator._kind != "regression":
        return None
    found = {
        "read_with": f"{type(estimator).__name__}.load(the folder)",
        "input_shift": units["shift"],
        "input_scale": [1 / scale for scale in units["scale"]],
    }
    if estimator._kind == "regression":
        for name in ("target_shift", "target_scale"):
            found[name] = getattr(estimator, f"{name}_").tolist()
    return found


def _described(
    path: Path, cls: type[Any], parts: Sequence[str], files: Sequence[str]
) -> dict[str, Any]:
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
    for name in parts:
        if not isinstance(described.get(name), dict):
            raise ValueError(f"{path} has no {name!r}; save it again")
    if set(described["sha256"]) != {*files}:
        raise ValueError(f"{path} has no sha256 of {' and '.join(files)}; save it again")
    return described


def _check_fit(estimator: Any, path: Path) -> None:
    """Model and description have to agree, whoever edited which."""
    model, units = estimator.model_, estimator.units_
    regressor = estimator._kind == "regression"
    scaled = ("target_shift_", "target_scale_", "targets_in_columns_")
    needed = (*NEEDED, *(scaled if regressor else ("classes_",)))
    if missing := [name for name in needed if not hasattr(estimator, name)]:
        raise ValueError(f"{path} has no {', '.join(missing)}; save it again")
    count = len(estimator.target_shift_) if regressor else len(estimator.classes_)
    if (
        model.d_input != estimator.n_channels_in_
        or {len(units.shift), len(units.scale)} != {model.d_input}
        or {count, estimator.n_outputs_} != {model.d_output}
    ):
        raise ValueError(
            f"{path} and the model beside it do not fit: {estimator.n_channels_in_} channels and "
            f"{count} outputs in one, {model.d_input} and {model.d_output} in the other"
        )


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
