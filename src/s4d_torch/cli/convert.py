"""``s4d convert``: weights of the official code into a folder that loads here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from s4d_torch.deploy.official.files import OfficialFile, read_official
from s4d_torch.deploy.official.layer import read_layer
from s4d_torch.deploy.official.model import is_model, read_model
from s4d_torch.deploy.official.options import ModelOptions
from s4d_torch.deploy.official.weights import Findings, Weights
from s4d_torch.nn import Layer, SequenceModel

TOLERANCE = 1e-5  # of the largest output


@dataclass(frozen=True)
class Convert:
    """Convert a layer or a whole model of the official code (state-spaces/s4).

    FILE is a .safetensors, .npz, .pt, .pth or .ckpt file with its state dict. What the weights do
    not show is asked for by its official name, and shown as assumed where it has a default there.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """the weights"""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """the folder to write: weights as safetensors, config as JSON"""
    prefix: str = ""
    """convert only the layer whose keys start so, as in model.layers.0.layer."""
    options: Annotated[ModelOptions, tyro.conf.arg(name="")] = field(default_factory=ModelOptions)

    def run(self, console: Console) -> None:
        source = read_official(self.file)
        weights, findings = Weights(source.state_dict, self.prefix), Findings()
        module: Layer | SequenceModel
        if not self.prefix and is_model(source.state_dict):
            module = read_model(weights, self.options, findings).build()
        else:
            self._check_layer_options()
            module = read_layer(weights, self.options, findings).build()
        weights.finish()
        _say(console, f"{self.file} holds")
        console.print(findings_table(findings))
        self._verify(module, source, console)
        if isinstance(module, SequenceModel):
            module.save_pretrained(self.out)
            load = "SequenceModel.from_pretrained"
        else:
            module.save_pretrained(self.out)
            load = "s4d_torch.Layer.from_pretrained"
        _say(console, f"wrote {self.out}; load it with {load}({str(self.out)!r})")

    def _check_layer_options(self) -> None:
        for name in ("pooling", "rescale", "prenorm"):
            if asdict(self.options)[name] is not None:
                raise ValueError(f"{name} is an option of whole models, this is one layer")

    def _verify(
        self, module: Layer | SequenceModel, source: OfficialFile, console: Console
    ) -> None:
        if source.u is None or source.y is None:
            return
        errors = compare(module, source.u, source.y)
        shown = ", ".join(f"{way} {error:.1e}" for way, error in errors.items())
        if max(errors.values()) > TOLERANCE:
            raise ValueError(
                f"the output differs from that in {self.file} ({shown} of the largest value): "
                "one of the options assumed or given above is not its own; nothing was written"
            )
        _say(console, f"the same output as in the file: {shown} of the largest value")


def compare(module: Any, u: Tensor, y: Tensor) -> dict[str, float]:
    """The largest difference of a layer or model from ``y``, in units of the largest ``|y|``."""
    module.eval()
    dtype = next(module.parameters()).dtype
    u = u.to(dtype) if u.is_floating_point() else u
    with torch.no_grad():
        outputs = {"at once": module(u)[0]}
        if not module.method.bidirectional:
            state, steps = module.initial_state(u.shape[0]), []
            for t in range(u.shape[1]):
                step, state = module.step(u[:, t], state)
                steps.append(step)
            each = outputs["at once"].ndim == 3
            outputs["step by step"] = torch.stack(steps, dim=1) if each else steps[-1]
    scale = float(y.abs().max())
    return {way: float((out - y).abs().max()) / scale for way, out in outputs.items()}


def findings_table(findings: Findings) -> Table:
    """What was recognised, and where it is known from."""
    table = Table("what", "value", "known from", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for row in findings.rows:
        table.add_row(*map(escape, (row.what, row.value, row.source)))
    return table


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
