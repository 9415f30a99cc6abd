"""Whose state a snapshot holds: two that answer alike have one identity."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor


def identity_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The choices, as JSON gives them back, and a digest of the weights."""
    return {"config": json.loads(json.dumps(dict(config))), "weights": digest(tensors)}


def digest(tensors: Mapping[str, Tensor], about: str = "") -> str:
    """Of names, types, shapes and values, and of what is said about them."""
    found = sha256(about.encode())
    for name, x in tensors.items():
        found.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        dense = x.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)
        found.update(dense.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
