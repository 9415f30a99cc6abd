"""What a computation costs, counted instead of timed: bytes at the peak, and numbers computed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Cost(NamedTuple):
    """``bytes`` alive at the peak, beyond what was there before; ``numbers`` computed in all."""

    bytes: int
    numbers: int


def cost(run: Callable[[], object]) -> Cost:
    """The cost of the tensors that ``run`` makes, the same on every machine.

    What an operator allocates and frees within itself is not seen.
    """
    with _Account() as account:
        result = run()
    del result
    return Cost(account.peak, account.numbers)


class _Account(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = self.numbers = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operator(*args, **(kwargs or {}))
        given = {x.untyped_storage()._cdata for x in _tensors((args, kwargs))}
        for x in _tensors(result):
            storage = x.untyped_storage()
            if storage._cdata in given:  # a view, or written in place
                continue
            self.numbers += x.numel()
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._free, storage.nbytes())
        return result

    def _free(self, size: int) -> None:
        self.alive -= size


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]
