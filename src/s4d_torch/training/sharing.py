"""A model among processes: copies whose gradients are averaged (DDP), or shards (FSDP2)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from s4d_torch.nn.block import SequenceBatchNorm
from s4d_torch.training.processes import Processes


def distribute(
    model: nn.Module, processes: Processes, device: torch.device, *, shard: bool
) -> nn.Module:
    """The model to call in training; ``model`` itself keeps its names and its parameters."""
    if processes.count == 1:
        return model
    for module in model.modules():
        if isinstance(module, SequenceBatchNorm):
            module.processes = processes.count  # statistics of the whole batch, as one would see
    if shard:
        from torch.distributed.fsdp import fully_shard

        for block in getattr(model, "blocks", ()):
            fully_shard(block)
        fully_shard(model)
        return model
    ids = [device.index] if device.type == "cuda" else None
    return cast(nn.Module, DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False))


def without_sync(model: nn.Module) -> AbstractContextManager[None]:
    """Gradients of this backward pass stay at home; those of a later one take them along."""
    if isinstance(model, DistributedDataParallel):
        return cast("AbstractContextManager[None]", model.no_sync())
    return nullcontext()


def whole(x: Tensor) -> Tensor:
    """All of a tensor of which each process may hold a shard; all processes have to ask."""
    full = getattr(x, "full_tensor", None)
    return cast(Tensor, full()) if full is not None else x


@torch.no_grad()
def load_into(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy whole tensors into a model, which may hold shards."""
    own = model.state_dict()
    if not any(hasattr(x, "full_tensor") for x in own.values()):
        model.load_state_dict(dict(tensors))
        return
    for name, tensor in tensors.items():
        own[name].copy_(like(tensor, own[name]))


def like(tensor: Tensor, sharded: Tensor) -> Tensor:
    """``tensor`` cut as ``sharded`` is; unchanged if that is whole."""
    if not hasattr(sharded, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = sharded.device_mesh, sharded.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor.to(sharded.device), mesh, placements)
