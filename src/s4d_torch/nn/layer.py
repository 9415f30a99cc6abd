"""Layers: a state space per channel, a nonlinearity, and a mixing of the channels."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, Unpack, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from s4d_torch._registry import Registry
from s4d_torch.nn import validate
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS
from s4d_torch.nn.batch import zero_ends
from s4d_torch.nn.fused import mixing as fused_mixing
from s4d_torch.nn.fused import pointwise
from s4d_torch.nn.method import METHODS, Choices, Method, check_options
from s4d_torch.nn.packed import run_packed
from s4d_torch.nn.pretrained import Pretrained, configurable, load_module, read_folder, write_folder
from s4d_torch.nn.ssm import SSM
from s4d_torch.nn.timing import Rate, Resets, outside_graphs, read_resets
from s4d_torch.ssm.autodiff import traced
from s4d_torch.ssm.initialization import normal, uniform
from s4d_torch.ssm.pieces import Pieces


class SequenceDropout(nn.Module):
    """Dropout on (batch, length, features); ``tied`` drops a feature at all times or at none.

    Where rows hold several sequences, each of these ``pieces`` has a draw of its own.
    """

    def __init__(self, p: float, tied: bool = False) -> None:
        super().__init__()
        validate.fraction("dropout", p)
        validate.flag("tie_dropout", tied)
        self.p, self.tied = p, tied

    def forward(self, x: Tensor, pieces: Pieces | None = None) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if self.tied:
            return x * _kept(x, x.shape[2], self.p, pieces)
        if x.device.type != "cpu" or traced():
            return nn.functional.dropout(x, self.p)
        # torch draws a number for each feature; 16 bits of one are enough, and much faster
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        dropped = min(round(self.p * 2**16), 2**16 - 1)
        kept = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15
        return (x * kept).mul_(2**16 / (2**16 - dropped))

    def share(self) -> float | None:
        """The part that is dropped now, each feature by itself; None if that is not how it is."""
        if not self.training or self.p == 0:
            return 0.0
        return None if self.tied or self.p == 1 else self.p

    def extra_repr(self) -> str:
        return f"{self.p}, tied={self.tied}"


class StochasticDepth(nn.Module):
    """In training, drop the whole branch for a random part of the batch and scale up the rest.

    Where rows hold several sequences, each of these ``pieces`` has a draw of its own.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        validate.fraction("drop_path", p)
        self.p = p

    def forward(self, x: Tensor, pieces: Pieces | None = None) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * _kept(x, 1, self.p, pieces)

    def extra_repr(self) -> str:
        return str(self.p)


def _kept(x: Tensor, features: int, p: float, pieces: Pieces | None) -> Tensor:
    """0 where a sequence of x (batch, length, H) is dropped, else 1 / (1 - p).

    (batch, 1, features), or with pieces (batch, length, features).
    """
    sequences = x.shape[0] if pieces is None else len(pieces)
    drawn = nn.functional.dropout(x.new_ones(sequences, 1, features), p)
    return drawn if pieces is None else drawn[:, 0][pieces.of_each(x)]


def _drop(module: nn.Module, x: Tensor, pieces: Pieces | None) -> Tensor:
    """``module(x)``; one of our own is told of the sequences inside of rows."""
    told = pieces is not None and isinstance(module, SequenceDropout | StochasticDepth)
    y: Tensor = module(x, pieces) if told else module(x)
    return y


def _share(module: nn.Module) -> float | None:
    """The part that a dropout drops; None of another module in its place."""
    return module.share() if type(module) is SequenceDropout else None


class Residual(NamedTuple):
    """What the output of a layer is added to, after dropout and stochastic depth."""

    x: Tensor
    dropout: SequenceDropout
    drop_path: StochasticDepth
    pieces: Pieces | None = None
    """the sequences, where rows hold several"""

    def add(self, branch: Tensor) -> Tensor:
        dropped = _drop(self.dropout, branch, self.pieces)
        return self.x + _drop(self.drop_path, dropped, self.pieces)

    def share(self) -> float | None:
        """The part of the branch that is dropped, if that is all that happens to it."""
        ours = type(self.drop_path) is StochasticDepth and pointwise.untouched(
            self.dropout, self.drop_path
        )
        if not ours or (self.drop_path.training and self.drop_path.p > 0):
            return None
        return _share(self.dropout)


SAVED = ("d_model", "d_state", "method", "activation", "mixing")  # others where they are changed


class Layer(Pretrained):
    """SSM with skip D -> activation -> dropout -> mixing (``glu``, ``linear`` or ``none``).

    Used through its rows of Table 1, :class:`S4D`, :class:`S4` and :class:`DSS`, or with any
    ``method``; single choices can be given by name. ``check_finite`` refuses NaN in the input
    (outside of compiled graphs).
    """

    base: ClassVar[Method] = METHODS["s4d"]
    saved_as = "SavedLayer"
    in_one_pass: bool = True  # what follows the SSM; not where weights come and go, as with FSDP

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
        arguments = locals()  # taken before other names are
        super().__init__()
        check_options(Layer, choices)
        validate.flag("check_finite", check_finite)
        mixed = MIXINGS[mixing]
        factory: Any = {"device": device, "dtype": dtype}
        self.mixing, self.check_finite = mixing, check_finite
        options: Any = {"engine": engine, "generator": generator, **factory, **choices}
        self.ssm = SSM(d_model, d_state, method=self.base if method is None else method, **options)
        self.d_model, self.d_state, self.method = d_model, d_state, self.ssm.method
        self.config = {name: arguments[name] for name in configurable(Layer)}
        self.config["method"] = asdict(self.method)
        self.activation = ACTIVATIONS[activation]().to(**factory)
        self.dropout = SequenceDropout(dropout, tie_dropout)
        self.output: nn.Module = nn.Identity()
        if mixed.width:
            self.output = linear(d_model, mixed.width * d_model, generator, **factory)
        self.gate = mixed.module().to(**factory)

    @outside_graphs
    def forward(
        self,
        u: Tensor | PackedSequence,
        state: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
        rate: Rate = 1.0,
        resets: Resets | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        return_state: bool = True,
        _zero_ends: bool = True,
        _residual: Residual | None = None,
    ) -> tuple[Any, Tensor | None]:
        """u (batch, length, d_model) -> y of the same shape, and the state at the end.

        See :meth:`SSM.forward` for ``state``, ``lengths``, ``mask``, packed sequences, ``rate``,
        ``resets``, ``cu_seqlens`` and ``return_state``.
        """
        if isinstance(u, PackedSequence):
            options: Any = {"rate": rate, "return_state": return_state}
            return run_packed(self.forward, u, state, lengths, mask, **options)
        if lengths is not None or mask is not None:  # once: a list takes its way to the device
            lengths = self.ssm.read_lengths(u, lengths, mask)
        pieces = None
        if resets is not None or cu_seqlens is not None:
            self.ssm.read_lengths(u, lengths, None)  # is u a batch at all?
            pieces = read_resets(resets, cu_seqlens, lengths, u)
        # _zero_ends=False saves the zeros in the padding for a model, which ignores what is there;
        # with _residual that is added in the same pass. Keywords and not methods of their own:
        # hooks, such as those of FSDP, run on calls alone.
        y, state = self.ssm(
            u,
            state,
            lengths=lengths,
            rate=rate,
            resets=pieces,
            return_state=return_state,
            _zero_ends=_zero_ends,
        )
        if self.check_finite:  # now that shapes and lengths are known to fit
            validate.finite("u", zero_ends(u, lengths))
        padded = lengths is not None and _zero_ends
        if _residual is not None and not padded:
            mixed = self._mix(y, _residual)
            if mixed is not None:
                return mixed, state
        y = self.output(self._activate(y, pieces))
        if padded:
            y = zero_ends(self.gate(y), lengths)
            return (y if _residual is None else _residual.add(y)), state
        return (self.gate(y) if _residual is None else self._join(y, _residual)), state

    def mixes_in_one(self, residual: Residual) -> tuple[int, float, float] | None:
        """Whether compiled code knows all that follows the state space, up to the residual.

        Then the number of the activation, and the parts dropped before and after the linear map.
        """
        linear, inner = self.output, (self.activation, self.dropout, self.output, self.gate)
        kind, early = pointwise.activation_kind(self.activation), _share(self.dropout)
        late, shape = residual.share(), (pointwise.width_of(self.gate) * self.d_model, self.d_model)
        known = (
            self.in_one_pass
            and fused_mixing.fits(self.d_model)
            and type(linear) is nn.Linear
            and linear.bias is not None
            and linear.weight.shape == shape
            and linear.bias.shape == shape[:1]
            and pointwise.untouched(*inner)
        )
        if not known or kind is None or early is None or late is None:
            return None
        return kind, early, late

    def _mix(self, y: Tensor, residual: Residual) -> Tensor | None:
        """All that follows the state space in one operation, where that can be."""
        linear, how = self.output, self.mixes_in_one(residual)
        if how is None or torch.is_autocast_enabled("cpu"):  # which has its own linear map
            return None
        weight, bias = cast(nn.Linear, linear).weight, cast(nn.Linear, linear).bias
        if not pointwise.possible(y, residual.x, weight, bias):
            return None
        return fused_mixing.run(fused_mixing.draw(*how), y, residual.x, weight, bias)

    def _activate(self, y: Tensor, pieces: Pieces | None) -> Tensor:
        """Activation and dropout, in one pass if there are both."""
        dropped, kind = _share(self.dropout), pointwise.activation_kind(self.activation)
        alone = pointwise.untouched(self.activation, self.dropout)
        if dropped and kind is not None and alone and pointwise.possible(y):
            return pointwise.activate(y, kind, dropped)
        return _drop(self.dropout, self.activation(y), pieces)

    def _join(self, y: Tensor, residual: Residual) -> Tensor:
        """Gate, dropout and residual, in one pass if nothing else happens there."""
        dropped, gated = residual.share(), pointwise.is_gate(self.gate)
        known = dropped is not None and gated is not None and pointwise.untouched(self.gate)
        if known and pointwise.possible(y, residual.x):
            return pointwise.join(y, residual.x, cast(float, dropped), gated=cast(bool, gated))
        return residual.add(self.gate(y))

    def step(
        self, u: Tensor, state: Tensor, *, rate: Rate = 1.0, resets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One sample: u, y (batch, d_model); see :meth:`SSM.step`."""
        y, state = self.ssm.step(u, state, rate=rate, resets=resets)
        if self.check_finite:
            validate.finite("u", u)
        y = self.dropout(self.activation(y)[:, None])[:, 0]
        return self.gate(self.output(y)), state

    def states(
        self, u: Tensor, at: Sequence[int], state: Tensor | None = None, *, rate: Rate = 1.0
    ) -> Tensor:
        """The states just after the samples ``at``, (batch, len(at), d_model, state_size).

        See :meth:`SSM.states`.
        """
        return self.ssm.states(u, at, state, rate=rate)

    def initial_state(self, batch_size: int) -> Tensor:
        """A state of zeros, (batch_size, d_model, state_size), in double precision."""
        return self.ssm.initial_state(batch_size)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the weights and the options into ``folder``, whole or not at all."""
        defaults = signature(Layer).parameters
        config = {"layer": type(self).__name__} | {name: self.config[name] for name in SAVED}
        for name, value in self.config.items():
            if value != defaults[name].default:
                config.setdefault(name, value)
        tensors = {f"layer.{name}": x for name, x in self.state_dict().items()}
        write_folder(Path(folder), self._name(), config, tensors)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Load what :meth:`save_pretrained` wrote; ``Layer`` loads an S4D, S4 or DSS as such."""
        folder = Path(folder)
        config, tensors = read_folder(folder, cls._name(), ["layer", *configurable(Layer)])
        name = config.pop("layer", None)
        if name != cls.__name__ and cls is not Layer:
            raise ValueError(f"{str(folder)!r} holds a {name!r}, expected {cls.__name__!r}")
        kind = cls if name == cls.__name__ else LAYERS[name]

        def make(method: dict[str, Any], **options: Any) -> Layer:
            return kind(method=Method().replace(**method), **options)

        tensors = {name.removeprefix("layer."): x for name, x in tensors.items()}
        return cast(Self, load_module(make, config, tensors, folder).to(device=device, dtype=dtype))


LAYERS: Registry[type[Layer]] = Registry("layer")
LAYERS.register("Layer", Layer)


@LAYERS.register("S4D")
class S4D(Layer):
    """The diagonal state space layer; by default the paper's base: bilinear, exp, HiPPO-D.

    >>> layer = S4D(d_model=128, d_state=64, init="legs")
    >>> y, state = layer(torch.randn(8, 1000, 128))
    """

    base = METHODS["s4d"]


@LAYERS.register("S4")
class S4(Layer):
    """The diagonal plus low-rank layer: Cauchy kernel, bilinear, HiPPO.

    The kernel is computed by Krylov doubling, which is matrix products only and several times
    faster than Cauchy sums; ``layer.ssm.kernel(length, algorithm="cauchy")`` takes the sums.
    """

    base = METHODS["s4"]


@LAYERS.register("DSS")
class DSS(Layer):
    """The diagonal layer with a softmax kernel: ZOH, unconstrained A, frozen B.

    Its kernel depends on the length it is normalised over, ``softmax_length``: set it to the
    length of your sequences.
    """

    base = METHODS["dss"]


@torch.no_grad()
def linear(inputs: int, outputs: int, generator: Generator | None, **factory: Any) -> nn.Linear:
    """A linear map with torch's default start, drawn from ``generator`` alone if there is one."""
    layer: nn.Linear = _undrawn(nn.Linear, inputs, outputs, **factory)
    for parameter in layer.parameters():
        parameter.copy_((2 * uniform(parameter.shape, generator) - 1) * inputs**-0.5)
    return layer


@torch.no_grad()
def embedding(
    tokens: int, features: int, generator: Generator | None, **factory: Any
) -> nn.Embedding:
    """A vector for each token, drawn likewise."""
    layer: nn.Embedding = _undrawn(nn.Embedding, tokens, features, **factory)
    layer.weight.copy_(normal((tokens, features), generator))
    return layer


def _undrawn(kind: type[nn.Module], *sizes: int, device: Any, dtype: torch.dtype | None) -> Any:
    """A module without values; torch's own ``skip_init`` swaps tensors, which fake ones forbid."""
    device = torch.get_default_device() if device is None else device
    module = kind(*sizes, device="meta", dtype=dtype)
    for name, x in list(module.named_parameters()):
        module.register_parameter(name, nn.Parameter(torch.empty_like(x, device=device)))
    return module
