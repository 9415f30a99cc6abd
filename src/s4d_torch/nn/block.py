"""The residual block around a layer: norm, layer, dropout, stochastic depth, residual."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from s4d_torch.nn import validate
from s4d_torch.nn.fused import mixing, pointwise, short_block
from s4d_torch.nn.layer import LAYERS, Layer, Residual, SequenceDropout, StochasticDepth
from s4d_torch.nn.norm import NORMS, SequenceNorm
from s4d_torch.nn.timing import Rate, Resets, outside_graphs, read_resets


class Block(nn.Module):
    """``x + dropout(layer(norm(x)))``, or with post-norm ``norm(x + dropout(layer(x)))``."""

    def __init__(
        self,
        layer: Layer,
        *,
        norm: str = "layer",
        prenorm: bool = True,
        dropout: float = 0.0,
        tie_dropout: bool = False,
        drop_path: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        validate.flag("prenorm", prenorm)
        self.prenorm = prenorm
        self.norm = NORMS[norm](layer.d_model, device=device, dtype=dtype)
        self.layer = layer
        self.dropout = SequenceDropout(dropout, tie_dropout)
        self.drop_path = StochasticDepth(drop_path)

    @outside_graphs
    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        rate: Rate = 1.0,
        resets: Resets | None = None,
        return_state: bool = True,
        _zero_ends: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """x (batch, length, d_model) -> the same shape, and the layer's state."""
        if state is None and lengths is None and resets is None and not return_state:
            whole = self._in_one(x, rate)
            if whole is not None:
                return (whole if self.prenorm else self.norm(whole)), None
        branch = self.norm(x, lengths) if self.prenorm else x
        options: Any = {"rate": rate, "return_state": return_state, "_zero_ends": _zero_ends}
        pieces = None if resets is None else read_resets(resets, None, lengths, x)
        if pieces is not None:
            options["resets"] = pieces
        residual = Residual(x, self.dropout, self.drop_path, pieces)
        if isinstance(self.layer, Layer):
            x, state = self.layer(branch, state, lengths=lengths, _residual=residual, **options)
        else:  # somebody's own in its place
            branch, state = self.layer(branch, state, lengths=lengths, **options)
            x = residual.add(branch)
        return (x if self.prenorm else self.norm(x, lengths)), state

    def _in_one(self, x: Tensor, rate: Rate) -> Tensor | None:
        """The block in one operation, where sequences are short, plain and to be learned from."""
        layer, norm = self.layer, _affine(self.norm) if self.prenorm else ()
        if type(layer) not in LAYERS.values() or norm is None or not torch.is_grad_enabled():
            return None
        how = layer.mixes_in_one(Residual(x, self.dropout, self.drop_path))
        plain = (
            x.ndim == 3
            and x.shape[2] == layer.d_model
            and short_block.fits(layer.d_model)
            and not layer.check_finite
            and pointwise.untouched(layer, layer.ssm, self.norm)
        )
        linear = cast(nn.Linear, layer.output)
        if how is None or not plain or not pointwise.possible(x, linear.weight, linear.bias):
            return None
        stored = layer.ssm.stored_for_short(x, rate)
        if stored is None:
            return None
        codes, *tensors = stored
        assert isinstance(rate, int | float)
        choices = short_block.Choices(codes, rate, norm[2] if norm else 0.0, mixing.draw(*how))
        given = (*tensors, linear.weight, linear.bias)
        return short_block.run(choices, x, norm[:2] if norm else None, *given)

    def step(self, x: Tensor, state: Tensor, *, rate: Rate = 1.0) -> tuple[Tensor, Tensor]:
        """One sample: x (batch, d_model)."""
        branch = self.norm.step(x) if self.prenorm else x
        branch, state = self.layer.step(branch, state, rate=rate)
        x = x + self.drop_path(self.dropout(branch[:, None]))[:, 0]
        return (x if self.prenorm else self.norm.step(x)), state

    def extra_repr(self) -> str:
        return f"prenorm={self.prenorm}"


def _affine(norm: nn.Module) -> tuple[Tensor, Tensor, float] | tuple[()] | None:
    """Weight, bias and eps of a layer norm; nothing for no norm; None for another one."""
    inside = norm.norm if isinstance(norm, SequenceNorm) else None
    if type(inside) is nn.Identity:
        return ()
    if type(inside) is not nn.LayerNorm or not norm.in_one_pass or inside.weight is None:
        return None
    known = inside.bias is not None and pointwise.untouched(inside)
    return (inside.weight, inside.bias, inside.eps) if known else None
