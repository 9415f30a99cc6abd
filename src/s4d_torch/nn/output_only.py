"""A module's output without its state, for ``nn.Sequential`` and whoever else wants one tensor."""

from typing import Any

from torch import Tensor, nn


class OutputOnly(nn.Module):
    """``module(u)[0]``: a layer or model of this package that returns its output alone.

    >>> nn.Sequential(nn.Linear(3, 64), OutputOnly(S4D(64)), nn.Linear(64, 10))

    The state at the end is not computed. ``lengths``, ``mask`` and ``rate`` go on to the module.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"OutputOnly takes a module such as S4D(64), got {module!r}")
        self.module = module

    def forward(self, u: Tensor, **options: Any) -> Tensor:
        y: Tensor = self.module(u, return_state=False, **options)[0]
        return y
