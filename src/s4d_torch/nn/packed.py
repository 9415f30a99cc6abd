"""Packed sequences of torch, as ``nn.LSTM`` takes them: padded for the call, packed again after."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


def run_packed(
    forward: Callable[..., tuple[Tensor, Any]],
    packed: PackedSequence,
    state: Any,
    lengths: Tensor | Sequence[int] | None,
    mask: Tensor | None,
    *,
    pooled: bool = False,
    **options: Any,
) -> tuple[Tensor | PackedSequence, Any]:
    """``forward`` on packed sequences; the state is in the order of the batch before packing.

    The answer is packed in the same order, unless it is ``pooled``: one for each sequence.
    """
    if lengths is not None or mask is not None:
        raise ValueError("a PackedSequence has lengths of its own; leave out lengths and mask")
    x, own = pad_packed_sequence(packed, batch_first=True)
    y, state = forward(x, state, lengths=own, **options)
    if pooled:
        return y, state
    order = packed.sorted_indices
    y, own = (y, own) if order is None else (y[order], own[order.to(own.device)])
    data = pack_padded_sequence(y, own, batch_first=True).data
    return PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices), state
