"""A config, its data and its model in words: a line each, for people to read."""

import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

from torch import nn

from s4d_torch.data.dataset import Dataset, Signature
from s4d_torch.nn.method import Method
from s4d_torch.nn.ssm import SSM
from s4d_torch.training.config import Config

INITIALIZATIONS = {"legs": "LegS", "inv": "Inv", "lin": "Lin", "fout": "FouT", "legt": "LegT"}
INITIALIZATIONS["dfout"] = "DFouT"


def plural(number: int, unit: str, units: str | None = None) -> str:
    """``1 layer``, ``4 layers``."""
    return f"{number:,} {unit if number == 1 else units or unit + 's'}"


def method_name(method: Method) -> str:
    """The published name of a method: ``S4D-LegS``, ``S4-LegS``, ``DSS``, ``LRU``."""
    start = INITIALIZATIONS.get(method.init, method.init)
    if method.structure == "dplr":
        return f"S4-{start}"
    if method.kernel == "softmax":
        return "DSS" if method.init == "legs" else f"DSS-{start}"
    return "LRU" if method.init == "ring" and not method.has_steps else f"S4D-{start}"


def describe_method(method: Method) -> str:
    """``S4D-LegS: dt_min=0.01``: the name, and what differs from the default method."""
    base = Method()
    changed = [
        f"{field.name}={value}"
        for field in fields(method)
        if (value := getattr(method, field.name)) != getattr(base, field.name)
    ]
    return ": ".join(filter(None, (method_name(method), ", ".join(changed))))


def describe_model(config: Config, model: nn.Module) -> str:
    """Architecture and size."""
    shape, method = config.model, config.method
    sides = "bidirectional" if method.bidirectional else "causal"
    kind, states = shape.architecture.upper(), ""
    if kind == "SSM":
        kind, states = method_name(method), f", states of {shape.d_state}"
    return (
        f"{kind}, {sides}: {plural(shape.n_layers, 'layer')} of "
        f"{plural(shape.d_model, 'feature')}{states}; {count_parameters(model):,} parameters"
    )


def own_data(config: Config) -> Path | None:
    """The user's own file or folder that a config reads; None for a task with data of its own."""
    path = getattr(config.data, "path", None)
    return Path(path) if path else None


def data_name(config: Config) -> str:
    """``d`` for a user's d.csv, a problem of an archive, or the name of the task; for a folder."""
    path = own_data(config)
    if path is None:
        return getattr(config.data, "problem", "") or config.task
    stem = path.name if path.is_dir() else re.sub(r"_(TRAIN|TEST)$", "", path.stem)
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.") or config.task


def describe_data(dataset: Dataset) -> str:
    """Sizes of the splits, and what a sequence is."""
    train, validation, test = (len(split) for split in dataset.splits.values())
    ragged = any(tower.ragged for tower in dataset.train.inputs)
    return (
        f"{train:,} sequences to learn from, {validation:,} to validate, {test:,} to test; "
        f"{'up to ' if ragged else ''}{describe_signature(dataset.signature)}"
    )


def describe_signature(signature: Signature) -> str:
    """``64 samples of 1 feature, 10 classes``."""
    unit = "token" if signature.tokens else "sample"
    what = "" if signature.tokens else f" of {plural(signature.features, 'feature')}"
    pairs = ", in pairs" if signature.towers > 1 else ""
    rate = "" if signature.sample_rate is None else f" at {signature.sample_rate:g} Hz"
    if signature.clock is not None:
        rate += f" with their times, usually {signature.clock.unit} apart"
    aims = {
        "classification": f"{signature.outputs} classes",
        "regression": "a number",
        "generation": f"{signature.outputs} symbols to choose the next from",
        "tracking": f"{plural(signature.outputs, 'number')} at each of them",
    }
    return f"{plural(signature.length, unit)}{what}{rate}{pairs}, {aims[signature.kind]}"


def count_parameters(model: nn.Module, *, recurse: bool = True) -> int:
    """Trainable numbers."""
    return sum(p.numel() for p in model.parameters(recurse) if p.requires_grad)


def parameters_by_kind(model: nn.Module) -> dict[str, int]:
    """Trainable numbers by what they are for."""
    counts: Counter[str] = Counter()
    for name, module in model.named_modules():
        if here := count_parameters(module, recurse=False):
            counts[_kind(name, module)] += here
    return counts


def _kind(name: str, module: nn.Module) -> str:
    if isinstance(module, SSM):
        return "state spaces (A, B, C, D, dt)"
    outer = name.partition(".")[0]
    if outer in ("encoder", "decoder"):
        return outer
    if "norm" in type(module).__name__.lower():
        return "norms"
    return "mixing of features" if outer == "blocks" else type(module).__name__
