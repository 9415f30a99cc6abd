"""A model among processes: copies whose gradients are averaged (DDP), or shards (FSDP2)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from s4d_torch.nn.norm import SequenceBatchNorm
from s4d_torch.nn.ssm import SSM
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

        for module in model.modules():
            if isinstance(module, SSM) and device.type == "cpu":
                _compute_with_copies(module)
        for block in getattr(model, "blocks", ()):
            fully_shard(block)
        fully_shard(model)
        return model
    ids = [device.index] if device.type == "cuda" else None
    # all processes compute the same buffers; torch before 2.13 has another name for that
    known = inspect.signature(DistributedDataParallel).parameters
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    options: dict[str, Any] = {"device_ids": ids, buffers: False}
    return cast(nn.Module, DistributedDataParallel(model, **options))


def settle(model: nn.Module, processes: Processes, backward: Callable[[], object]) -> None:
    """Let DDP put the gradients into their final order before the first step, not after it.

    Three numbers have another sum in another order, so a run that goes on would end otherwise than
    one that was never broken off. ``backward`` is a pass whose gradients are thrown away.
    """
    if processes.count < 3 or not isinstance(model, DistributedDataParallel):
        return
    statistics = [buffer.clone() for buffer in model.buffers()]
    backward()
    for buffer, before in zip(model.buffers(), statistics, strict=True):
        buffer.copy_(before)


def _compute_with_copies(module: nn.Module) -> None:
    """Let a module read copies of its weights.

    Compiled layers read them through numpy, and memory that numpy has seen torch never frees, as
    it has to when a shard's time is over.
    """
    held: dict[str, nn.Parameter | None] = {}

    def lend(*_: Any) -> None:
        held.update(module._parameters)
        copies = {name: None if x is None else x.clone() for name, x in held.items()}
        module._parameters.update(cast(Any, copies))

    def take_back(*_: Any) -> None:
        module._parameters.update(held)

    module.register_forward_pre_hook(lend)
    module.register_forward_hook(take_back, always_call=True)


@contextmanager
def taking_part(model: nn.Module, counts: bool) -> Iterator[None]:
    """Whether the batch of this process counts; if not, the others' statistics are without it."""
    norms = [module for module in model.modules() if isinstance(module, SequenceBatchNorm)]
    for norm in norms:
        norm.counts = counts
    try:
        yield
    finally:
        for norm in norms:
            norm.counts = True


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
