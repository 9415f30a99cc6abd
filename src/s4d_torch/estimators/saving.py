"""An estimator on disk: ``model.safetensors`` and JSON, checked when they are read."""

import os
from pathlib import Path
from typing import Any

from s4d_torch.estimators.description import (
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
LAYOUT = Layout(
    files=(WEIGHTS, CONFIG),
    learned=(*NEEDED, "n_features_in_", "targets_in_columns_", "reads_differences_"),
    arrays=("classes_", "feature_names_in_", "target_shift_", "target_scale_"),
)


def save(estimator: Any, folder: str | os.PathLike[str]) -> None:
    """Write the model as :meth:`SequenceModel.save_pretrained` does, and the rest beside it."""
    folder = new_folder(folder)
    parts = check_savable(estimator, LAYOUT)
    estimator.model_.preprocessing = _preprocessing(estimator, parts["units"])
    estimator.model_.save_pretrained(folder)
    write_description(estimator, parts, folder, LAYOUT.files)


def load(cls: type[Any], folder: str | os.PathLike[str]) -> Any:
    """An estimator of ``cls`` from what :func:`save` wrote."""
    estimator, path = read_description(cls, folder, LAYOUT)
    if not hasattr(estimator, "reads_differences_"):  # of a release whose models never did
        estimator.differences = estimator.reads_differences_ = False
    estimator.model_ = SequenceModel.read_pretrained(path.parent).eval()
    _check_fit(estimator, path)
    return estimator


def _preprocessing(estimator: Any, units: dict[str, Any]) -> dict[str, Any] | None:
    """For those who load the weights alone: the model reads ``(x - input_shift) * input_scale``.

    With ``differences``, x are the channels of a series and after them their first differences.
    """
    unchanged = not any(units["shift"]) and set(units["scale"]) == {1.0}
    if unchanged and estimator._kind != "regression" and not estimator.reads_differences_:
        return None
    found = {
        "read_with": f"{type(estimator).__name__}.load(the folder)",
        "input_shift": units["shift"],
        "input_scale": [1 / scale for scale in units["scale"]],
        "differences": estimator.reads_differences_,
    }
    if estimator._kind == "regression":
        for name in ("target_shift", "target_scale"):
            found[name] = getattr(estimator, f"{name}_").tolist()
    return found


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
