"""One page that shows what a diagonal state space does, and those of a trained run.

The page is one file that needs no server and no network; its parts are in ``assets``.
"""

import json
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor, nn

from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.discretization import Discrete
from s4d_torch.ssm.kernel import softmax_step
from s4d_torch.training.build import build_model
from s4d_torch.training.run import Run

FORMAT, VERSION = "s4d_torch explore", 1  # as in assets/run.js
# each script uses only what those before it define
SCRIPTS = ("random", "maths", "low_rank", "run", "code", "state", "plots", "panels", "app", "page")
DIGITS = 9  # all that float32 has


def explore_page(run: dict[str, Any] | None = None) -> str:
    """The whole page, with a run as :func:`describe_run` gives it or without."""
    style, scripts = _asset("style.css"), "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    # "<" could end the element the text stands in
    data = "" if run is None else as_strict_json(run).replace("<", "\\u003c")
    text = _asset("page.html").replace("/*STYLE*/", style).replace("/*SCRIPT*/", scripts)
    return text.replace("/*RUN*/", data)


@torch.no_grad()
def describe_run(run: Run) -> dict[str, Any]:
    """The parameters of every layer as data: what the page loads."""
    layers = state_spaces(run.model)
    name = "the run" if run.folder is None else run.folder.name
    if not layers:
        raise ValueError(
            f"{name} has no state spaces to look at: its architecture is "
            f"{run.config.model.architecture!r}; use a run of architecture 'ssm'"
        )
    before = state_spaces(build_model(run.config, run.signature))
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": name,
        **({} if run.folder is None else {"folder": run.folder.as_posix()}),
        "task": str(run.config.task),
        "sample_rate": run.signature.sample_rate,
        "length": run.signature.length,
        "layers": [describe_layer(*both) for both in zip(layers, before, strict=True)],
    }


def describe_layer(ssm: SSM, start: SSM) -> dict[str, Any]:
    """A and B for each independent set, C and dt for each channel.

    A softmax kernel is that of the plain one with other B and C, and these are given.
    """
    method, every = ssm.method, ssm.d_model // ssm.n_ssm
    A, B, C = ssm.A, ssm.B, ssm.C
    if method.dt_scales == "decay":
        every = 1  # Im(A) depends on dt, which each channel has for itself
    if method.kernel == "softmax":
        every = 1  # so does the normaliser
        horizon = A * ssm.dt[:, None] * method.softmax_length
        step, C = softmax_step(Discrete(log_A=A, B_now=B), C, horizon)
        B = step.B_now  # the rule is linear in B
    said = ("structure", "kernel", "discretization", "constraint", "pairs", "dt_scales")
    return {
        **{name: getattr(method, name) for name in said},
        "A": _complex(A[::every]),
        "raw": _numbers(ssm.raw_decay.repeat_interleave(A[::every].shape[0] // ssm.n_ssm, dim=0)),
        "B": _complex(B[::every]),
        "C": _complex(C if method.bidirectional else C[None]),
        "P": _complex(ssm.P[::every]) if method.structure == "dplr" else None,
        "dt": _numbers(ssm.dt),
        "start": _complex(start.A[::every]),
    }


def state_spaces(model: nn.Module) -> list[SSM]:
    """The state spaces of a model, in the order of its layers."""
    return [module for module in model.modules() if isinstance(module, SSM)]


def as_strict_json(run: dict[str, Any]) -> str:
    """A run that has diverged is refused, as no picture of it would mean anything."""
    try:
        return json.dumps(run, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise ValueError("the run has parameters that are not finite; train it again") from None


def _complex(x: Tensor) -> dict[str, Any]:
    return {"re": _numbers(x.real), "im": _numbers(x.imag)}


def _numbers(x: Tensor) -> Any:
    """Nested lists, rounded: a page of long numbers would be twice the size."""
    if x.ndim > 1:
        return [_numbers(row) for row in x]
    return [float(f"{value:.{DIGITS}g}") for value in x.tolist()]


def _asset(name: str) -> str:
    return files("s4d_torch.explore").joinpath("assets", name).read_text(encoding="utf-8")
