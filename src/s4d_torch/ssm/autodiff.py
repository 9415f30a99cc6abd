"""Where a formula of ours meets torch's own: transforms of ``torch.func`` and second gradients.

Compiled code, and the adjoints that are written by hand, know first gradients of plain tensors and
nothing else. Plain torch takes over where more is asked for. Values decide only where they are at
hand.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch._subclasses import FakeTensor
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether a transform looks on: ``torch.func`` (grad, vmap, jvp, ...) or forward gradients."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def traced() -> bool:
    """Whether values must not decide: under ``torch.compile``, or under a transform."""
    return torch.compiler.is_compiling() or transformed()


def has_values(x: Tensor) -> bool:
    """Whether x has values, which may decide: a tensor on meta and a fake one have none."""
    return not (traced() or x.is_meta or isinstance(x, FakeTensor))


def at_hand(x: Tensor) -> bool:
    """Whether these values are in the CPU's own memory.

    To look at those of another device the host would have to wait until all of its work is done.
    """
    return x.is_cpu and has_values(x)


def again(*grads: Tensor) -> bool:
    """Asked in a backward pass: whether its gradients will be differentiated, or come in batches.

    Torch computes gradients with gradients turned on for ``create_graph=True`` alone. With
    ``is_grads_batched=True`` it batches ``grads`` in an older way than ``torch.func`` does.
    """
    if torch.compiler.is_compiling():
        return False
    batched = any(is_legacy_batchedtensor(grad) for grad in grads)
    return torch.is_grad_enabled() or transformed() or batched


def gradients(
    plain: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of ``plain(*inputs)``, which torch can differentiate again.

    ``grads`` are those of its outputs; None is one that nobody asked for.
    """
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        # views: an input that was made from another one would count for it too
        own = [x.view_as(x) if x.requires_grad else x for x in inputs]
        outputs = plain(*own)
        outputs = [outputs] if isinstance(outputs, Tensor) else outputs
        asked = [
            (y, grad)
            for y, grad in zip(outputs, grads, strict=True)
            if grad is not None and y.requires_grad
        ]
        wanted = [x for x in own if x.requires_grad]
        ys, given = zip(*asked, strict=True) if asked else ((), ())
        found = (
            torch.autograd.grad(ys, wanted, given, create_graph=create_graph, allow_unused=True)
            if asked and wanted
            else [None] * len(wanted)
        )
    each = iter(found)
    return [next(each) if x.requires_grad else None for x in inputs]
