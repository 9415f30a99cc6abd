"""What a page knows: the model as arrays, what it was trained on, what a visitor can give it."""

from base64 import b64encode
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from s4d_torch._version import __version__
from s4d_torch.deploy.export.c.tables import Arrays, make_tables
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.pushes import BLOCK, vector
from s4d_torch.nn.norm import NormKind
from s4d_torch.nn.plan import ModelPlan

VERSION = 1
SOUND_FROM = 4000.0  # samples per second; a slower signal is no sound to be heard
BYTES = 256  # tokens of a model that reads text as it is
FULL_SCALE = 32768.0  # of sound in 16 bits


def described(job: Job, name: str) -> dict[str, Any]:
    """All of a page but its looks, as data; see :func:`model_data` and :func:`view_data`."""
    u, y = vector(job)
    return {
        "format": "s4d_torch.web",
        "version": VERSION,
        "name": name,
        "written_by": f"s4d-torch {__version__}",
        "model": model_data(job),
        "test": {"u": u.flatten().tolist(), "y": y.flatten().tolist(), "block": BLOCK},
        "data": None if job.signature is None else asdict(job.signature),
        "task": _task(job),
        "rate": job.rate,
        "view": view_data(job),
    }


def model_data(job: Job) -> dict[str, Any]:
    """The constants of the C export; the state space in float64, all else in float32 or int8."""
    plan, tables = job.plan, make_tables(job.plan, torch.float64)
    norm, system = plan.blocks[0].norm, plan.blocks[0].past
    assert norm is not None, "a model with a norm of no folded form was refused before"
    return {
        "size": _sizes(plan),
        "kind": system.kind,
        "norm": {NormKind.NONE: "none", NormKind.AFFINE: "affine", NormKind.LAYER: "layer"}[
            norm.kind
        ],
        "eps": norm.eps,
        "prenorm": plan.prenorm,
        "pooling": plan.pooling,
        "arrays": _arrays(tables.model),
        "layers": [_arrays(layer) for layer in tables.layers],
    }


def _sizes(plan: ModelPlan) -> dict[str, int]:
    system = plan.blocks[0].past
    return {
        "inputs": plan.d_input,
        "tokens": plan.d_input if plan.tokens else 0,
        "sample": plan.towers * (1 if plan.tokens else plan.d_input),
        "towers": plan.towers,
        "outputs": plan.d_output,
        "width": plan.d_model,
        "mixed": plan.d_model * max(1, plan.mixing.width),
        "layers": len(plan.blocks),
        "modes": plan.d_state if system.kind == "real" else plan.d_state // 2,
        "rank": system.right.shape[1] if system.kind == "low rank" else 0,
    }


def _arrays(tables: Arrays) -> dict[str, Any]:
    return {name: _array(x) for name, x in tables.items()}


def _array(x: Tensor) -> dict[str, str]:
    """Bytes in base64, little endian, of float64, float32 or int8."""
    if x.is_floating_point() and not bool(x.isfinite().all()):
        raise ValueError("a weight of the model is NaN or infinite; nothing was written")
    numbers = x.contiguous().numpy()
    little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
    kind = str(x.dtype).removeprefix("torch.")
    return {"type": kind, "data": b64encode(little.tobytes()).decode("ascii")}


def _task(job: Job) -> dict[str, str] | None:
    task = job.task
    if task is None:
        return None
    return {
        "name": task.name,
        "summary": task.summary,
        "licence": task.licence,
        "citation": task.citation,
    }


def view_data(job: Job) -> dict[str, Any]:
    """What a visitor gives: ``sound``, a ``drawing``, ``text`` or ``numbers``."""
    plan, known, task = job.plan, job.signature, job.task
    if plan.tokens:
        text = plan.d_input == BYTES and plan.towers == 1
        return {"kind": "text" if text else "numbers"}
    if plan.towers == 1 and plan.d_input == 1 and known is not None:
        if task is not None and task.image is not None:
            return {"kind": "drawing", **asdict(task.image(job.options))}
        if known.sample_rate is not None and known.sample_rate >= SOUND_FROM:
            # as when files are read: above 1 the scale is that of sound whose full scale is 1
            unit = FULL_SCALE if known.input_scale[0] < 1 else 1.0
            fixed = task is not None and task.fixed_length
            rate = known.sample_rate / job.rate
            length = round(known.length / job.rate)
            return {
                "kind": "sound",
                "sample_rate": rate,
                "unit": unit,
                "length": length,
                "fixed_length": fixed,
            }
    return {"kind": "numbers"}
