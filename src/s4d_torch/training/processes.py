"""One process or many: who is who, and what they have to agree on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

T = TypeVar("T")
PATIENCE = timedelta(minutes=10)  # without a word from another process, before giving up
_ENDED: list[Any] = []  # the group of the last run


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
def noticing_the_lost(advice: Callable[[], str]) -> Iterator[None]:
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
def joined(device: torch.device) -> Iterator[Processes]:
    """The processes that ``torchrun`` has started, or this one alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or distributed.is_initialized():
        yield Processes(
            distributed.get_rank() if distributed.is_initialized() else 0,
            distributed.get_world_size() if distributed.is_initialized() else 1,
        )
        return
    # beside the gradients there are small things to agree on, which are on the CPU
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=PATIENCE)
    try:
        yield Processes(distributed.get_rank(), count)
    finally:
        # A model that is still about holds on to the group. Were it the last to do so, its end
        # would wait, with Python's lock in its hands, for a thread that waits for that lock.
        _ENDED[:] = [distributed.group.WORLD]
        distributed.destroy_process_group()


def local_device(name: str) -> torch.device:
    """The device of this process: with several GPUs, the one of its local rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(name)
    return torch.device(name)
