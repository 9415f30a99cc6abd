"""``s4d explore``: one page that shows what a diagonal state space does, and a run's own ones."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from torch import Tensor, nn

from s4d_torch._files import write_atomically
from s4d_torch.cli.display import say
from s4d_torch.cli.parsing import Switch, UsageError
from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.discretization import Discrete
from s4d_torch.ssm.kernel import softmax_step
from s4d_torch.training import Run
from s4d_torch.training.build import build_model

FORMAT, VERSION = "s4d_torch explore", 1  # as in explore_page/run.js
# each script uses only what those before it define
SCRIPTS = ("random", "maths", "low_rank", "run", "code", "state", "plots", "panels", "app", "page")
DIGITS = 9  # all that float32 has


@dataclass(frozen=True)
class Explore:
    """Write a page to look inside: eigenvalues to drag, basis, kernel, frequency response.

    The page is one file that needs no server and no network. It shows every diagonal start, or
    with --run the layers and channels of a trained run. It can also load the parameters of a run
    from the file that --run RUN --json writes.
    """

    run_folder: Annotated[
        str | None,
        tyro.conf.arg(name="run", metavar="RUN", help_behavior_hint="(default: no run)"),
    ] = None
    """the folder of a run, to show what it has learned"""
    out: Annotated[
        Path | None,
        tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: explore.html or .json)"),
    ] = None
    """the file to write"""
    json: Switch = False
    """write the run's parameters as JSON, for a page that is already there"""

    def run(self, console: Console) -> None:
        if self.json and self.run_folder is None:
            raise UsageError("--json writes the parameters of a run; name it with --run RUN")
        parameters = None if self.run_folder is None else describe_run(Run.load(self.run_folder))
        text = _as_text(parameters) + "\n" if self.json else page(parameters)
        out = self.out or Path("explore.json" if self.json else "explore.html")
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically({out: text.encode()})
        say(console, f"wrote {out}")


def page(run: dict[str, Any] | None = None) -> str:
    """The whole page, with a run as :func:`describe_run` gives it or without."""
    parts = {
        "/*STYLE*/": _source("style.css"),
        "/*SCRIPT*/": "\n".join(_source(f"{name}.js") for name in SCRIPTS),
        # "<" could end the element the text stands in
        "/*RUN*/": "" if run is None else _as_text(run).replace("<", "\\u003c"),
    }
    text = _source("page.html")
    for place, content in parts.items():
        text = text.replace(place, content)
    return text


@torch.no_grad()
def describe_run(run: Run) -> dict[str, Any]:
    """The parameters of every layer as data: what the page loads."""
    layers = list(_state_spaces(run.model))
    name = "the run" if run.folder is None else run.folder.name
    if not layers:
        raise UsageError(
            f"{name} has no state spaces to look at: its architecture is "
            f"{run.config.model.architecture!r}; use a run of architecture 'ssm'"
        )
    before = _state_spaces(build_model(run.config, run.signature))
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        "task": str(run.config.task),
        "sample_rate": run.signature.sample_rate,
        "layers": [describe_layer(*both) for both in zip(layers, before, strict=True)],
    }


def describe_layer(ssm: SSM, start: SSM) -> dict[str, Any]:
    """A and B for each independent set, C and dt for each channel.

    A softmax kernel is that of the plain one with other B and C, and these are given.
    """
    method, every = ssm.method, ssm.d_model // ssm.n_ssm
    A, B, C = ssm.A, ssm.B, ssm.C
    if method.kernel == "softmax":
        every = 1  # the normaliser depends on dt, which each channel has for itself
        B, C = _with_softmax(ssm)
    return {
        "structure": method.structure,
        "kernel": method.kernel,
        "discretization": method.discretization,
        "constraint": method.constraint,
        "pairs": method.pairs,
        "A": _complex(A[::every]),
        "raw": _numbers(ssm.raw_decay.repeat_interleave(A[::every].shape[0] // ssm.n_ssm, dim=0)),
        "B": _complex(B[::every]),
        "C": _complex(C if method.bidirectional else C[None]),
        "P": _complex(ssm.P[::every]) if method.structure == "dplr" else None,
        "dt": _numbers(ssm.dt),
        "start": _complex(start.A[::every]),
    }


def _with_softmax(ssm: SSM) -> tuple[Tensor, Tensor]:
    """B and C with the normaliser in them."""
    horizon = ssm.A * ssm.dt[:, None] * ssm.method.softmax_length
    step, C = softmax_step(Discrete(log_A=ssm.A, B_now=ssm.B), ssm.C, horizon)
    return step.B_now, C  # the rule is linear in B


def _state_spaces(model: nn.Module) -> Iterator[SSM]:
    return (module for module in model.modules() if isinstance(module, SSM))


def _complex(x: Tensor) -> dict[str, Any]:
    return {"re": _numbers(x.real), "im": _numbers(x.imag)}


def _numbers(x: Tensor) -> Any:
    """Nested lists, rounded: a page of long numbers would be twice the size."""
    if x.ndim:
        return [_numbers(row) for row in x] if x.ndim > 1 else [_rounded(v) for v in x.tolist()]
    return _rounded(x.item())


def _rounded(x: float) -> float:
    return float(f"{x:.{DIGITS}g}")


def _as_text(run: dict[str, Any] | None) -> str:
    """Strict JSON; a run that has diverged is refused, as no picture of it would mean anything."""
    try:
        return jsonlib.dumps(run, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise UsageError("the run has parameters that are not finite; train it again") from None


def _source(name: str) -> str:
    return files("s4d_torch.cli").joinpath("explore_page", name).read_text(encoding="utf-8")
