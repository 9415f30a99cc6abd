"""An estimator on disk: ``model.safetensors`` and JSON, checked when they are read."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.data.clock import Clock
from s4d_torch.estimators.description import (
    ESTIMATOR,
    Layout,
    check_savable,
    new_folder,
    read_description,
    write_description,
)
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import CONFIG, WEIGHTS

# what fit learned, apart from the model
NEEDED = ("n_channels_in_", "n_outputs_", "n_epochs_", "history_")
FEATURES = "features"  # the folder of the other half of an ensemble
LAYOUT = Layout(
    files=(WEIGHTS, CONFIG),
    learned=(*NEEDED, "n_features_in_", "targets_in_columns_", "reads_differences_", "clock_"),
    arrays=("classes_", "feature_names_in_", "target_shift_", "target_scale_"),
    some=(f"{FEATURES}/{ESTIMATOR}",),
)


def save(estimator: Any, folder: str | os.PathLike[str]) -> None:
    """Write the model as :meth:`SequenceModel.save_pretrained` does, and the rest beside it."""
    folder = new_folder(folder)
    parts = check_savable(estimator, LAYOUT)
    estimator.model_.save_pretrained(folder)
    files = LAYOUT.files
    if estimator.features_ is not None:
        estimator.features_.save(folder / FEATURES)
        files += LAYOUT.some
    write_description(estimator, parts, folder, files)


def load(cls: type[Any], folder: str | os.PathLike[str]) -> Any:
    """An estimator of ``cls`` from what :func:`save` wrote."""
    estimator, path, files = read_description(cls, folder, LAYOUT)
    if not hasattr(estimator, "reads_differences_"):  # of a release whose models never did
        estimator.differences = estimator.reads_differences_ = False
    kept = getattr(estimator, "clock_", None)
    try:
        estimator.clock_ = None if kept is None else Clock(**kept)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} has no valid clock: {error}; save it again") from error
    estimator.model_ = SequenceModel.read_pretrained(path.parent).eval()
    estimator.features_ = None
    _check_fit(estimator, path)
    if {*LAYOUT.some} <= files:
        estimator.features_ = cls._features_kind.load(path.parent / FEATURES)
        _check_halves(estimator, estimator.features_, path)
    return estimator


def preprocessing(estimator: Any) -> dict[str, Any] | None:
    """For those who load the weights alone: the model reads ``(x - input_shift) * input_scale``.

    With ``differences``, x are the channels of a series and after them their first differences.
    """
    shift, scale = estimator.units_.shift, estimator.units_.scale
    unchanged = not shift.any() and (scale == 1).all() and estimator.clock_ is None
    if unchanged and estimator._kind != "regression" and not estimator.reads_differences_:
        return None
    found = {
        "read_with": f"{type(estimator).__name__}.load(the folder)",
        "input_shift": shift.tolist(),
        "input_scale": (1 / scale).tolist(),
        "differences": estimator.reads_differences_,
    }
    if estimator.clock_ is not None:
        found["clock"] = asdict(estimator.clock_)
    if estimator._kind == "regression":
        for name in ("target_shift", "target_scale"):
            found[name] = getattr(estimator, f"{name}_").tolist()
    return found


def _check_halves(estimator: Any, features: Any, path: Path) -> None:
    """Both halves of an ensemble read and answer the same."""
    alike = features.n_channels_in_ == estimator.n_channels_in_
    if estimator._kind == "classification":
        alike = alike and np.array_equal(features.classes_, estimator.classes_)
    else:
        alike = alike and len(features.target_shift_) == estimator.n_outputs_
    if not alike:
        raise ValueError(f"{path} and the features beside it do not fit; save it again")


def _check_fit(estimator: Any, path: Path) -> None:
    """Model and description have to agree, whoever edited which."""
    model, units = estimator.model_, estimator.units_
    regressor = estimator._kind == "regression"
    scaled = ("target_shift_", "target_scale_", "targets_in_columns_")
    needed = (*NEEDED, *(scaled if regressor else ("classes_",)))
    if missing := [name for name in needed if not hasattr(estimator, name)]:
        raise ValueError(f"{path} has no {', '.join(missing)}; save it again")
    count = len(estimator.target_shift_) if regressor else len(estimator.classes_)
    forms = 2 if estimator.reads_differences_ else 1  # in which each channel is read
    if (
        model.d_input != forms * estimator.n_channels_in_
        or {len(units.shift), len(units.scale)} != {model.d_input}
        or {count, estimator.n_outputs_} != {model.d_output}
    ):
        raise ValueError(
            f"{path} and the model beside it do not fit: {forms * estimator.n_channels_in_} inputs "
            f"and {count} outputs in one, {model.d_input} and {model.d_output} in the other"
        )
