"""Compiled code as an operation of torch: known to autograd, and to whoever traces."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_legacy_batchedtensor

_PLAIN = (Tensor, nn.Parameter)


class Operator:
    """``run(*args)`` with the gradients that ``differentiate`` gives.

    ``keep(ctx, inputs, output)`` keeps what the backward pass needs, ``fake(*args)`` gives empty
    outputs of the right shapes. An ordinary call goes through an ``autograd.Function``; whoever
    traces, ``torch.compile``, ``torch.export``, fake tensors and other modes, meets an operator
    registered as ``torch.ops.s4d_torch.NAME``, whose every call takes several times as long.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., Any],
        fake: Callable[..., Any],
        keep: Callable[..., None] | None = None,
        differentiate: Callable[..., Any] | None = None,
    ) -> None:
        self.registered = torch.library.custom_op(f"s4d_torch::{name}", run, mutates_args=())
        self.registered.register_fake(fake)
        self.ordinary = run
        if keep is not None and differentiate is not None:
            self.registered.register_autograd(differentiate, setup_context=keep)

            # not by setup_context: torch looks up the signature of forward at each call then
            def forward(ctx: Any, *args: Any) -> Any:
                output = run(*args)
                keep(ctx, args, output)
                return output

            parts = {"forward": staticmethod(forward), "backward": staticmethod(differentiate)}
            function: Any = type(name, (torch.autograd.Function,), parts)
            self.ordinary = function.apply

    def __call__(self, *args: Any) -> Any:
        return self.registered(*args) if watched(args) else self.ordinary(*args)


def watched(args: tuple[Any, ...]) -> bool:
    """Whether something other than plain eager torch is to see this call."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return True
    tensors = [x for x in args if isinstance(x, Tensor)]
    # gradients may come in batches; gradcheck still has them in torch's older way
    return is_legacy_batchedtensor(tensors[0]) or any([type(x) not in _PLAIN for x in tensors])  # noqa: C419
