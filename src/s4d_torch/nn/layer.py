"""Layers: a state space per channel, a nonlinearity, and a mixing of the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Unpack

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import skip_init

from s4d_torch._registry import Registry
from s4d_torch.nn import validate
from s4d_torch.nn.method import METHODS, Choices, Method, check_options
from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.initialization import uniform

ACTIVATIONS: Registry[type[nn.Module]] = Registry("activation")
for _name, _activation in {
    "gelu": nn.GELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "none": nn.Identity,
}.items():
    ACTIVATIONS.register(_name, _activation)

MIXINGS: Registry[int] = Registry("mixing")  # how many times d_model the linear map is wide
MIXINGS.register("glu", 2)
MIXINGS.register("linear", 1)
MIXINGS.register("none", 0)


class SequenceDropout(nn.Module):
    """Dropout on (batch, length, features); ``tied`` drops a feature at all times or at none."""

    def __init__(self, p: float, tied: bool = False) -> None:
        super().__init__()
        validate.fraction("dropout", p)
        validate.flag("tie_dropout", tied)
        self.p, self.tied = p, tied

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.tied:
            return x * nn.functional.dropout(torch.ones_like(x[:, :1]), self.p)
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return nn.functional.dropout(x, self.p)
        # torch draws a number for each feature; 16 bits of one are enough, and much faster
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        return (x * kept).mul_(2**16 / (2**16 - dropped))

    def extra_repr(self) -> str:
        return f"{self.p}, tied={self.tied}"


class Layer(nn.Module):
    """SSM with skip D -> activation -> dropout -> mixing (``glu``, ``linear`` or ``none``).

    Used through its rows of Table 1, :class:`S4D`, :class:`S4` and :class:`DSS`, or with any
    ``method``; single choices can be given by name. ``check_finite`` refuses NaN in the input
    (outside of compiled graphs).
    """

    base: ClassVar[Method] = METHODS["s4d"]

    def __init__(
        self,
        d_model: int,
        d_state: int = 64,
        *,
        method: Method | None = None,
        activation: str = "gelu",
        dropout: float = 0.0,
        tie_dropout: bool = False,
        mixing: str = "glu",
        check_finite: bool = False,
        engine: str = "auto",
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **choices: Unpack[Choices],
    ) -> None:
        super().__init__()
        check_options(Layer, choices)
        validate.flag("check_finite", check_finite)
        width = MIXINGS[mixing]
        self.mixing, self.check_finite = mixing, check_finite
        self.ssm = SSM(
            d_model,
            d_state,
            method=self.base if method is None else method,
            engine=engine,
            generator=generator,
            device=device,
            dtype=dtype,
            **choices,
        )
        self.activation = ACTIVATIONS[activation]()
        self.dropout = SequenceDropout(dropout, tie_dropout)
        self.output = (
            linear(d_model, width * d_model, generator, device, dtype) if width else nn.Identity()
        )

    @property
    def d_model(self) -> int:
        return self.ssm.d_model

    @property
    def d_state(self) -> int:
        return self.ssm.d_state

    @property
    def method(self) -> Method:
        return self.ssm.method

    def forward(
        self,
        u: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        rate: float = 1.0,
        return_state: bool = True,
        zero_padding: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """u (batch, length, d_model) -> y of the same shape, and the state at the end.

        See :meth:`SSM.forward` for ``state``, ``lengths``, ``rate``, ``return_state`` and
        ``zero_padding``.
        """
        y, state = self.ssm._forward(u, state, lengths, rate, return_state, zero_padding)
        if self.check_finite:  # now that shapes and lengths are known to fit
            validate.finite("u", u if lengths is None else torch.where(mask(lengths, u), u, 0.0))
        y = self._mix(self.dropout(self.activation(y)))
        if lengths is not None and zero_padding:
            y = torch.where(mask(lengths, y), y, 0.0)
        return y, state

    def step(self, u: Tensor, state: Tensor, *, rate: float = 1.0) -> tuple[Tensor, Tensor]:
        """One sample: u, y (batch, d_model)."""
        y, state = self.ssm.step(u, state, rate=rate)
        if self.check_finite:
            validate.finite("u", u)
        return self._mix(self.dropout(self.activation(y)[:, None])[:, 0]), state

    def initial_state(self, batch_size: int) -> Tensor:
        """A state of zeros, (batch_size, d_model, d_state), in double precision."""
        return self.ssm.initial_state(batch_size)

    def _mix(self, y: Tensor) -> Tensor:
        y = self.output(y)
        return nn.functional.glu(y, dim=-1) if self.mixing == "glu" else y


class S4D(Layer):
    """The diagonal state space layer; by default the paper's base: bilinear, exp, HiPPO-D.

    >>> layer = S4D(d_model=128, d_state=64, init="legs")
    >>> y, state = layer(torch.randn(8, 1000, 128))
    """

    base = METHODS["s4d"]


class S4(Layer):
    """The diagonal plus low-rank layer: Cauchy kernel, bilinear, HiPPO.

    The kernel is computed by Krylov doubling, which is matrix products only and several times
    faster than Cauchy sums; ``layer.ssm.kernel(length, algorithm="cauchy")`` takes the sums.
    """

    base = METHODS["s4"]


class DSS(Layer):
    """The diagonal layer with a softmax kernel: ZOH, unconstrained A, frozen B.

    Its kernel depends on the length it is normalised over, ``softmax_length``: set it to the
    length of your sequences.
    """

    base = METHODS["dss"]


def linear(
    inputs: int,
    outputs: int,
    generator: Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Linear:
    """A linear map with torch's default start, drawn from ``generator`` alone if there is one."""
    device = torch.get_default_device() if device is None else device
    layer: nn.Linear = skip_init(nn.Linear, inputs, outputs, device=device, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            draw = uniform(parameter.shape, generator)
            parameter.copy_((2 * draw - 1) * inputs**-0.5)
    return layer


def mask(lengths: Tensor | Sequence[int], x: Tensor) -> Tensor:
    """True where x (batch, length, ...) is inside its sequence; (batch, length, 1).

    Pairs have lengths (batch, 2), x (batch, 2, length, ...) and a mask (batch, 2, length, 1).
    """
    lengths = torch.as_tensor(lengths, device=x.device)
    place = torch.arange(x.shape[lengths.ndim], device=x.device)
    return (place < lengths[..., None])[..., None]
