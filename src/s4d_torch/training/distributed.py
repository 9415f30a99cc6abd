"""One process or many: who does what, and a model among them.

Copies whose gradients are averaged (DDP), or shards (FSDP2), under ``torchrun``.
"""

import ctypes
import inspect
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from s4d_torch._interruption import Stop, interruptions
from s4d_torch.nn.layer import Layer
from s4d_torch.nn.norm import SequenceBatchNorm, SequenceNorm
from s4d_torch.nn.ssm import SSM

T = TypeVar("T")
PATIENCE = timedelta(minutes=10)  # without a word from another process, before giving up
GLOO_PATIENCE = 2.0  # seconds for its threads to come to rest in the end


@dataclass(frozen=True)
class Processes:
    """This process among ``count``; each has a rank, and rank 0 does the writing."""

    rank: int = 0
    count: int = 1

    @property
    def writes(self) -> bool:
        return self.rank == 0

    def share(self, batch: T) -> T:
        """This process's part of a batch of positions; none is left out, none taken twice."""
        return batch[self.rank :: self.count]  # type: ignore[index]

    def from_first(self, value: T) -> T:
        """What rank 0 has, for everybody."""
        if self.count == 1:
            return value
        box: list[Any] = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag, whether any process has set it."""
        if self.count == 1:
            return flags
        votes = torch.tensor(flags, dtype=torch.int32)
        distributed.all_reduce(votes, op=distributed.ReduceOp.MAX)
        return tuple(bool(vote) for vote in votes)

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.count > 1:
            distributed.all_reduce(value)
        return value

    def each(self, value: T) -> list[T]:
        """What every process has, by rank."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values

    def gather(self, rows: Tensor, total: int) -> Tensor:
        """Undo :meth:`share` for rows computed from it: all ``total`` rows, in their order."""
        if self.count == 1:
            return rows
        whole = rows.new_empty(total, *rows.shape[1:])
        for rank, part in enumerate(self.each(rows)):
            whole[rank :: self.count] = part
        return whole

    def wait(self) -> None:
        if self.count > 1:
            distributed.barrier()


class LostProcessError(ConnectionError):
    """Another process of the run has died or cannot be reached; the message says how to go on."""


@contextmanager
def lost_process_errors(advice: Callable[[], str]) -> Iterator[None]:
    """A connection that breaks means that another process is gone: say so, and what to do."""
    try:
        yield
    except RuntimeError as error:
        # gloo's errors have no type of their own
        if not (isinstance(error, distributed.DistError) or "gloo" in str(error)):
            raise
        raise LostProcessError(
            f"another process of this run has ended or cannot be reached. {advice()}"
        ) from error


@contextmanager
def stop_requests() -> Iterator[Stop]:
    """Whether Ctrl-C (or SIGTERM) has come; a second Ctrl-C is not waited for.

    The default would break off in the middle of a step, where nothing can be saved.
    """
    with interruptions(signal.SIGINT, signal.SIGTERM, insist=True) as stop:
        try:
            yield stop
        except RuntimeError:
            if "WORLD_SIZE" in os.environ and stop.before:
                # perhaps another process is gone: then torchrun ends this one too, which has to
                # say first how to go on
                stop.before[signal.SIGTERM] = signal.SIG_IGN
            raise


@contextmanager
def process_group(device: torch.device) -> Iterator[Processes]:
    """The processes that ``torchrun`` has started, or this one alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if distributed.is_initialized():
        yield Processes(distributed.get_rank(), distributed.get_world_size())
        return
    if count == 1:
        yield Processes()
        return
    # beside the gradients there are small things to agree on, which are on the CPU
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        yield Processes(distributed.get_rank(), count)
    finally:
        _keep_for_ever(distributed.group.WORLD)
        distributed.destroy_process_group()
        _wait_for_gloo()


def _keep_for_ever(group: object) -> None:
    """Never let a process group be freed: the system does that at the end of the process.

    A model that is still about holds on to it. Were the model the last to do so, the group's end
    would wait, with Python's lock in its hands, for a thread that waits for that lock; and freed
    while Python itself ends, it aborts the process, one time in twenty.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _wait_for_gloo() -> None:
    """Wait until the threads of gloo sleep.

    The last collective is over when its result is there. Its thread has yet to let go of the
    tensors, for which it asks for Python's lock: on a busy machine that may be when Python ends,
    and would end the process by an abort.
    """
    threads = _gloo_threads()
    looks = 0  # in a row that saw all of them asleep; one that waits for the lock seems to be
    end = time.monotonic() + GLOO_PATIENCE
    while looks < 3 and time.monotonic() < end:
        time.sleep(0.002)  # without the lock
        looks = 0 if any(map(_is_running, threads)) else looks + 1


def _gloo_threads() -> list[Path]:
    """What the system tells of them; on Linux alone."""
    names = Path("/proc/self/task").glob("*/comm")
    return [name.parent for name in names if _read(name).strip() == "pt_gloo_runloop"]


def _is_running(thread: Path) -> bool:
    state = _read(thread / "stat").rpartition(")")[2].split()  # the name of a thread is in brackets
    return bool(state) and state[0] != "S"


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # a thread that has ended
        return ""


def local_device(name: str) -> torch.device:
    """The device of this process: with several GPUs, the one of its local rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(name)
    return torch.device(name)


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
            elif isinstance(module, SequenceNorm | Layer):
                module.in_one_pass = False  # the compiled one reads weights through numpy too
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


def fix_gradient_order(
    model: nn.Module, processes: Processes, backward: Callable[[], object]
) -> None:
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
    originals: dict[str, nn.Parameter | None] = {}

    def use_copies(*_: Any) -> None:
        originals.update(module._parameters)
        copies = {name: None if x is None else x.clone() for name, x in originals.items()}
        module._parameters.update(cast(Any, copies))

    def restore(*_: Any) -> None:
        module._parameters.update(originals)

    module.register_forward_pre_hook(use_copies)
    module.register_forward_hook(restore, always_call=True)


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


def averaging(model: nn.Module, now: bool) -> AbstractContextManager[None]:
    """Whether processes average the gradients of this backward pass, or with those of a later."""
    if isinstance(model, DistributedDataParallel) and not now:
        return cast("AbstractContextManager[None]", model.no_sync())
    return nullcontext()


def unsharded(x: Tensor) -> Tensor:
    """All of a tensor of which each process may hold a shard; all processes have to ask."""
    full = getattr(x, "full_tensor", None)
    return cast(Tensor, full()) if full is not None else x


@torch.no_grad()
def load_into(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy whole tensors into a model, which may hold shards."""
    current = model.state_dict()
    if not any(hasattr(x, "full_tensor") for x in current.values()):
        model.load_state_dict(dict(tensors))
        return
    for name, tensor in tensors.items():
        current[name].copy_(sharded_like(tensor, current[name]))


def sharded_like(tensor: Tensor, sharded: Tensor) -> Tensor:
    """``tensor`` cut as ``sharded`` is; unchanged if that is whole."""
    if not hasattr(sharded, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = sharded.device_mesh, sharded.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor.to(sharded.device), mesh, placements)
