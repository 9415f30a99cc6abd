"""A config, its data and its model in a line each."""

from __future__ import annotations

from torch import nn

from s4d_torch.data import Dataset, Signature
from s4d_torch.nn.method import Method
from s4d_torch.nn.ssm import SSM
from s4d_torch.training import Config

STARTS = {"legs": "LegS", "inv": "Inv", "lin": "Lin", "fout": "FouT", "legt": "LegT"}


def method_name(method: Method) -> str:
    """The paper's name of a method: ``S4D-LegS``, ``S4``, ``DSS``."""
    start = STARTS.get(method.init, method.init)
    if method.structure == "dplr":
        return f"S4-{start}"
    if method.kernel == "softmax":
        return "DSS" if method.init == "legs" else f"DSS-{start}"
    return f"S4D-{start}"


def model_line(config: Config, model: nn.Module) -> str:
    """Architecture and size."""
    shape, method = config.model, config.method
    sides = "bidirectional" if method.bidirectional else "causal"
    kind = config.model.architecture.upper()
    states = ""
    if kind == "SSM":
        kind, states = method_name(method), f", states of {shape.d_state}"
    return (
        f"{kind}, {sides}: {count(shape.n_layers, 'layer')} of "
        f"{count(shape.d_model, 'feature')}{states}; {parameters(model):,} parameters"
    )


def data_line(dataset: Dataset) -> str:
    """Sizes of the splits, and what a sequence is."""
    train, validation, test = (len(split) for split in dataset.splits.values())
    ragged = any(tower.ragged for tower in dataset.train.inputs)
    return (
        f"{train:,} sequences to learn from, {validation:,} to validate, {test:,} to test; "
        f"{'up to ' if ragged else ''}{signature_line(dataset.signature)}"
    )


def signature_line(signature: Signature) -> str:
    """``64 samples of 1 feature, 10 classes``."""
    unit = "token" if signature.tokens else "sample"
    what = "" if signature.tokens else f" of {count(signature.features, 'feature')}"
    pairs = ", in pairs" if signature.towers > 1 else ""
    rate = "" if signature.sample_rate is None else f" at {signature.sample_rate:g} Hz"
    aims = {
        "classification": f"{signature.outputs} classes",
        "regression": "a number",
        "generation": f"{signature.outputs} symbols to choose the next from",
    }
    return f"{count(signature.length, unit)}{what}{rate}{pairs}, {aims[signature.kind]}"


def count(number: int, unit: str, units: str | None = None) -> str:
    """``1 layer``, ``4 layers``."""
    return f"{number:,} {unit if number == 1 else units or unit + 's'}"


def parameters(model: nn.Module) -> int:
    """Trainable numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def ssm_parameters(model: nn.Module) -> int:
    """Those of the state spaces: A, B, C, D and dt."""
    return sum(parameters(module) for module in model.modules() if isinstance(module, SSM))
