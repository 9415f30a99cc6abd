"""Small models of every choice as C, for the tests of exports."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from s4d_torch import SequenceModel
from s4d_torch.deploy import quantized
from s4d_torch.deploy.export.c import compiler
from s4d_torch.deploy.export.c.format import CFormat
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.pushes import pushed
from s4d_torch.deploy.export.quantize import quantized_plan
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS
from s4d_torch.nn.method import METHODS
from s4d_torch.nn.model import POOLINGS
from s4d_torch.nn.norm import NORMS
from s4d_torch.nn.plan import make_plan
from s4d_torch.ssm.discretization import DISCRETIZATIONS

COMPILER = compiler.find_compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc or clang)")
SANITIZED = (*compiler.STRICT, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

WARNINGS = ("-Wshadow", "-Wconversion", "-Wdouble-promotion", "-Wmissing-prototypes", "-Wcast-qual")

# every entry of the registries once, and what a plan has besides
MODELS: dict[str, dict[str, Any]] = {
    **{f"norm {name}": {"norm": name} for name in NORMS},
    **{f"norm {name} after": {"norm": name, "prenorm": False} for name in NORMS},
    **{f"activation {name}": {"activation": name} for name in ACTIVATIONS},
    **{f"mixing {name}": {"mixing": name} for name in MIXINGS},
    **{f"pooling {name}": {"pooling": name} for name in POOLINGS},
    **{f"method {name}": {"method": name} for name in METHODS},
    **{f"discretization {name}": {"discretization": name} for name in DISCRETIZATIONS},
    "real modes": {"init": "real"},
    "tokens": {"encoder": "embedding", "pooling": "none"},
    "pairs": {"towers": 2},
    "pairs of tokens": {"towers": 2, "encoder": "embedding", "method": "s4", "pooling": "last"},
    "one channel": {"d_model": 1, "n_layers": 1},
    "many channels": {"d_model": 12, "n_layers": 1, "d_state": 2},
    "double precision": {"dtype": torch.float64, "n_ssm": 1},
}
FEW = ("norm layer", "method s4", "pairs of tokens", "real modes", "mixing none")


def make(options: dict[str, Any]) -> SequenceModel:
    generator = Generator().manual_seed(0)
    options = {"d_model": 6, "n_layers": 2, "d_state": 4, "generator": generator, **options}
    model = SequenceModel(5, 3, **options).eval()
    for block in model._each_block():  # running statistics that are not those of a fresh model
        if hasattr(block.norm, "running_mean"):
            block.norm.running_mean.normal_(generator=generator)
            block.norm.running_var.uniform_(0.5, 2, generator=generator)
    return model


def job_of(
    model: SequenceModel, state: torch.dtype = torch.float32, quantize: str | None = None
) -> Job:
    plan = make_plan(model)
    if quantize is None:
        return Job(plan, model, 1.0, state)
    return Job(quantized_plan(plan, quantize), quantized(model, quantize), 1.0, state)


def write(job: Job, folder: Path) -> Path:
    folder.mkdir()
    CFormat().write(job, folder, lambda _: None)
    return folder


def built(folder: Path, flags: Sequence[str] = compiler.STRICT, cc: Sequence[str] = ()) -> Path:
    assert cc or COMPILER
    return compiler.build_driver(folder, folder, list(cc) or COMPILER or [], flags)


def difference(job: Job, program: Path) -> float:
    outputs = job.plan.d_output
    found = pushed(job, lambda blocks: compiler.answers(program, blocks, outputs))
    return float(found.difference / found.largest)
