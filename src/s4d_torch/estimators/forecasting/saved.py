"""A forecaster on disk: the network, the past it goes on from, and JSON, checked when read."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as save_tensors

from s4d_torch._files import write_atomically
from s4d_torch.data.dataset import Array
from s4d_torch.estimators import description
from s4d_torch.estimators.forecasting.carried import Carried
from s4d_torch.estimators.forecasting.covariates import Covariates
from s4d_torch.estimators.forecasting.network import ForecastNetwork
from s4d_torch.estimators.forecasting.rows import Context
from s4d_torch.estimators.forecasting.series import Form
from s4d_torch.estimators.forecasting.timeline import Step
from s4d_torch.nn.pretrained import CONFIG, WEIGHTS, read_tensors

PAST = "past.safetensors"
FILES = (WEIGHTS, CONFIG, PAST)
SEQUENCES = ("quantiles", "past_only")  # options that JSON turns into lists
PARTS = ("options", "learned", "covariates", "context", "form")


def save(forecaster: Any, folder: str | os.PathLike[str]) -> None:
    """Write the network as ``save_pretrained`` does, the past and a description beside it."""
    folder = description.new_folder(folder)
    options = {
        name: list(value) if name in SEQUENCES else description.option(name, value)
        for name, value in forecaster.get_params(deep=False).items()
    }
    context, covariates = forecaster._context, forecaster.covariates_
    form = asdict(forecaster._form)
    parts = {
        "options": options,
        "learned": {
            "history_": forecaster.history_,
            "branch_share_": forecaster.branch_share_,
        },
        "covariates": {
            "past": list(covariates.past),
            "known": list(covariates.known),
            "cycles": list(covariates.cycles),
        },
        "context": {
            "names": list(context.names),
            "last": [_stamp(last) for last in context.last],
            "step": None if context.step is None else list(context.step),
        },
        "form": {
            **form,
            "keys": None if form["keys"] is None else _labels("names", form["keys"]),
            "columns": _labels("columns", form["columns"]),
        },
    }
    json.dumps(parts)  # what cannot be saved is refused before a file is written
    forecaster.model_.save_pretrained(folder)
    write_atomically({folder / PAST: save_tensors(_tensors(forecaster))})
    description.write_description(forecaster, parts, folder, FILES)


def load(cls: type[Any], folder: str | os.PathLike[str]) -> Any:
    """A forecaster of ``cls`` from what :func:`save` wrote."""
    folder = Path(folder)
    described, path = description.read_parts(cls, folder, PARTS, FILES)
    network = ForecastNetwork.read_pretrained(folder).eval()
    tensors = {name: x.numpy() for name, x in read_tensors(folder / PAST).items()}
    try:
        options = described["options"]
        chosen = {
            name: tuple(x) if name in SEQUENCES else description.chosen(name, x)
            for name, x in options.items()
        }
        forecaster = cls(**chosen)
        _restore(forecaster, described, network, tensors)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ValueError(f"{path} describes no valid {cls.__name__}: {error}") from error
    return forecaster


def _restore(
    forecaster: Any, described: dict[str, Any], network: ForecastNetwork, tensors: dict[str, Array]
) -> None:
    covariates, context, form = (described[name] for name in ("covariates", "context", "form"))
    forecaster.model_, forecaster.window_ = network, network.window
    forecaster.history_ = described["learned"]["history_"]
    forecaster.n_epochs_ = len(forecaster.history_)
    forecaster.branch_share_ = described["learned"]["branch_share_"]
    forecaster.rolled_spread_ = tensors["rolled_spread"]
    forecaster.covariates_ = Covariates(
        tuple(covariates["past"]),
        tuple(covariates["known"]),
        tensors["covariate_shift"],
        tensors["covariate_scale"],
        tuple(covariates["cycles"]),
    )
    keys = form["keys"]
    forecaster._form = Form(
        **{**form, "keys": None if keys is None else tuple(keys), "columns": tuple(form["columns"])}
    )
    count = len(context["names"])
    forecaster._context = Context(
        names=tuple(context["names"]),
        **{name: [tensors[f"{name}.{i}"] for i in range(count)] for name in _PER_SERIES},
        last=[_unstamp(last) for last in context["last"]],
        step=None if context["step"] is None else Step(*context["step"]),
    )
    if tensors["read"].shape[2] != network.branch.d_input:
        raise ValueError(
            f"{PAST} has {tensors['read'].shape[2]} columns, the network reads "
            f"{network.branch.d_input}"
        )
    forecaster._carried = Carried(network, tensors["read"])


_PER_SERIES = ("values", "beside", "shift", "scale")


def _tensors(forecaster: Any) -> dict[str, torch.Tensor]:
    context = forecaster._context
    arrays = {
        f"{name}.{i}": x for name in _PER_SERIES for i, x in enumerate(getattr(context, name))
    }
    arrays["read"] = forecaster._carried.history  # all that the carried state has seen
    arrays["rolled_spread"] = forecaster.rolled_spread_
    arrays["covariate_shift"] = forecaster.covariates_.shift
    arrays["covariate_scale"] = forecaster.covariates_.scale
    return {
        name: torch.from_numpy(np.array(x, dtype=np.float64, order="C"))
        for name, x in arrays.items()
    }


def _stamp(last: Any) -> Any:
    """A time stamp as JSON holds it: whole nanoseconds since 1970, or a number."""
    if isinstance(last, np.datetime64):
        return {"ns": int(last.astype("M8[ns]").astype(np.int64))}
    return None if last is None else int(last)


def _unstamp(last: Any) -> Any:
    return np.datetime64(last["ns"], "ns") if isinstance(last, dict) else last


def _labels(what: str, labels: Any) -> list[Any]:
    plain = [x.item() if isinstance(x, np.generic) else x for x in labels]
    if not all(x is None or isinstance(x, str | int | float | bool) for x in plain):
        raise TypeError(f"{what} of series can only be saved if they are text or numbers: {plain}")
    return plain
