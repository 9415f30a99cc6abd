"""Features and what was learned on them on disk: safetensors and JSON, checked when read."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from s4d_torch._files import write_atomically
from s4d_torch.data.dataset import Array
from s4d_torch.estimators.description import (
    Layout,
    check_savable,
    new_folder,
    read_description,
    write_description,
)
from s4d_torch.estimators.features.bank import FilterBank, check_bank
from s4d_torch.estimators.features.ridge import Ridge

ARRAYS = "features.safetensors"
LAYOUT = Layout(
    files=(ARRAYS,),
    learned=("n_channels_in_", "n_features_in_", "targets_in_columns_", "alpha_", "sharpness_"),
    arrays=("classes_", "feature_names_in_", "target_shift_", "target_scale_"),
)
BANK = [each.name for each in fields(FilterBank)]
# what has to be there, by the kind of answers; features alone have none
NEEDED = {
    None: (),
    "classification": ("classes_", "sharpness_", "alpha_"),
    "regression": ("target_shift_", "target_scale_", "targets_in_columns_", "alpha_"),
}


def save(estimator: Any, folder: str | os.PathLike[str]) -> None:
    """Write the arrays of the filters and the ridge, and a description beside them."""
    folder = new_folder(folder)
    parts = check_savable(estimator, LAYOUT)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically({folder / ARRAYS: to_bytes(arrays_of(estimator))})
    write_description(estimator, parts, folder, LAYOUT.files)


def arrays_of(estimator: Any) -> dict[str, Array]:
    """The filters and the ridge, if there is one, by name."""
    arrays = {f"bank.{name}": getattr(estimator.bank_, name) for name in BANK}
    if ridge := getattr(estimator, "ridge_", None):
        arrays |= {"ridge.weights": ridge.weights, "ridge.offset": ridge.offset}
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def options_of(estimator: Any) -> dict[str, Any]:
    """The options as JSON holds them."""
    options: dict[str, Any] = check_savable(estimator, LAYOUT)["options"]
    return options


def load(cls: type[Any], folder: str | os.PathLike[str]) -> Any:
    """An estimator of ``cls`` from what :func:`save` wrote."""
    estimator, path, _ = read_description(cls, folder, LAYOUT)
    file = path.parent / ARRAYS
    try:
        arrays = load_file(file)
        estimator.bank_ = FilterBank(**{name: arrays.pop(f"bank.{name}") for name in BANK})
        check_bank(estimator.bank_, estimator.n_channels_in_)
        _check_described(estimator, path)
        if getattr(estimator, "_kind", None) is not None:
            estimator.ridge_ = _ridge(estimator, arrays)
    except (SafetensorError, KeyError, AttributeError, IndexError, ValueError) as error:
        raise ValueError(f"{file} and {path.name} do not fit: {error}; save again") from error
    return estimator


def _check_described(estimator: Any, path: Path) -> None:
    needed = ("n_channels_in_", *NEEDED[getattr(estimator, "_kind", None)])
    if missing := [name for name in needed if not hasattr(estimator, name)]:
        raise ValueError(f"{path.name} has no {', '.join(missing)}")
    units, channels = estimator.units_, estimator.n_channels_in_
    if {units.shift.shape, units.scale.shape} != {(channels,)}:
        raise ValueError(f"units of {len(units.shift)} channels instead of {channels}")


def _ridge(estimator: Any, arrays: dict[str, Array]) -> Ridge:
    classes = estimator._kind == "classification"
    outputs = len(estimator.classes_ if classes else estimator.target_shift_)
    wanted = {"ridge.weights": (estimator.bank_.n_features, outputs), "ridge.offset": (outputs,)}
    for name, shape in wanted.items():
        found = arrays[name]
        if found.shape != shape or found.dtype != np.float64 or not np.isfinite(found).all():
            raise ValueError(f"{name} must be finite, float64 of shape {shape}, got {found.shape}")
    return Ridge(arrays["ridge.weights"], arrays["ridge.offset"], float(estimator.alpha_))
