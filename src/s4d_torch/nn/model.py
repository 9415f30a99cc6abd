"""A whole sequence model: encoder, residual blocks, pooling, decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Unpack, cast

import torch
from torch import Generator, Tensor, nn

from s4d_torch._registry import unknown
from s4d_torch.nn import validate
from s4d_torch.nn.block import NORMS, Block, NoNorm
from s4d_torch.nn.layer import ACTIVATIONS, MIXINGS, Layer, linear, mask
from s4d_torch.nn.method import METHODS, Choices, Method
from s4d_torch.nn.pretrained import Pretrained

ENCODERS = ("linear", "embedding")
POOLINGS = ("mean", "last", "none")


class ModelState(NamedTuple):
    """What a model carries along: a state per layer and, for mean pooling, a running sum.

    ``layers`` each (batch, d_model, d_state); ``total`` (batch, d_model) and ``samples`` (batch,).
    """

    layers: tuple[Tensor, ...]
    total: Tensor
    samples: Tensor


class SequenceModel(Pretrained):
    """Encoder -> ``n_layers`` residual blocks -> pooling -> decoder.

    ``encoder`` is ``linear`` for u (batch, length, d_input), or ``embedding`` for integer tokens
    (batch, length) below ``d_input``. ``pooling`` gives one output per sequence, the ``mean`` over
    its valid part or the ``last`` position, (batch, d_output), or with ``none`` one per step,
    (batch, length, d_output). ``towers=2`` reads pairs, (batch, 2, length, d_input), through the
    same blocks and decodes ``[a, b, a - b, a b]``.

    ``method`` is a :class:`Method` or one of "s4d", "s4", "dss"; single choices can be given by
    name, as for a layer.
    """

    def __init__(
        self,
        d_input: int,
        d_output: int,
        d_model: int = 128,
        n_layers: int = 4,
        *,
        d_state: int = 64,
        method: Method | str | dict[str, Any] = "s4d",
        encoder: str = "linear",
        pooling: str = "mean",
        norm: str = "layer",
        prenorm: bool = True,
        activation: str = "gelu",
        mixing: str = "glu",
        dropout: float = 0.0,
        tie_dropout: bool = False,
        drop_path: float = 0.0,
        towers: int = 1,
        check_finite: bool = False,
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **choices: Unpack[Choices],
    ) -> None:
        super().__init__()
        for name, value in (("d_input", d_input), ("d_output", d_output), ("n_layers", n_layers)):
            validate.positive_integer(name, value)
        if encoder not in ENCODERS:
            raise ValueError(unknown("encoder", encoder, ENCODERS))
        if pooling not in POOLINGS:
            raise ValueError(unknown("pooling", pooling, POOLINGS))
        if towers not in (1, 2) or (towers == 2 and pooling == "none"):
            raise ValueError(
                f"towers must be 1, or 2 with pooling 'mean' or 'last'; "
                f"got towers={towers}, pooling={pooling!r}"
            )
        MIXINGS[mixing], ACTIVATIONS[activation], NORMS[norm]
        self.method = _as_method(method).replace(**choices)
        self.d_input, self.d_output, self.d_model = d_input, d_output, d_model
        self.pooling, self.towers, self.check_finite = pooling, towers, check_finite
        self.config = {
            "d_input": d_input,
            "d_output": d_output,
            "d_model": d_model,
            "n_layers": n_layers,
            "d_state": d_state,
            "method": asdict(self.method),
            "encoder": encoder,
            "pooling": pooling,
            "norm": norm,
            "prenorm": prenorm,
            "activation": activation,
            "mixing": mixing,
            "dropout": dropout,
            "tie_dropout": tie_dropout,
            "drop_path": drop_path,
            "towers": towers,
            "check_finite": check_finite,
        }
        self.encoder = (
            linear(d_input, d_model, generator, device, dtype)
            if encoder == "linear"
            else _embedding(d_input, d_model, generator, device, dtype)
        )
        self.blocks = nn.ModuleList(
            Block(
                Layer(
                    d_model,
                    d_state,
                    method=self.method,
                    activation=activation,
                    dropout=dropout,
                    tie_dropout=tie_dropout,
                    mixing=mixing,
                    generator=generator,
                    device=device,
                    dtype=dtype,
                ),
                norm=norm,
                prenorm=prenorm,
                dropout=dropout,
                tie_dropout=tie_dropout,
                drop_path=drop_path * (i + 1) / n_layers,  # deeper branches are dropped more often
                device=device,
                dtype=dtype,
            )
            for i in range(n_layers)
        )
        self.norm = NORMS[norm](d_model, device, dtype) if prenorm else NoNorm(d_model)
        self.decoder = (
            linear(d_model, d_output, generator, device, dtype)
            if towers == 1
            else nn.Sequential(
                linear(4 * d_model, d_model, generator, device, dtype),
                ACTIVATIONS[activation](),
                linear(d_model, d_output, generator, device, dtype),
            )
        )

    def forward(
        self,
        u: Tensor,
        state: ModelState | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        rate: float = 1.0,
        return_state: bool = True,
    ) -> tuple[Tensor, ModelState | None]:
        """``y, state``; with a state, goes on where the last call stopped.

        A pooled output covers everything since the state began, so the last of several chunks
        answers as the whole sequence would. ``lengths`` is (batch,), or (batch, 2) for pairs.
        """
        self._check_input(u, step=False)
        batch, length = u.shape[0], u.shape[self.towers]
        shape = (batch,) if self.towers == 1 else (batch, 2)
        lengths = validate.sequence_lengths(lengths, shape, length, u.device)
        if self.towers == 2:
            u = u.flatten(0, 1)
            lengths = None if lengths is None else lengths.flatten()
        if state is not None:
            self._check_state(state, u.shape[0])
        if self.check_finite and u.is_floating_point():
            validate.finite("u", u if lengths is None else torch.where(mask(lengths, u), u, 0.0))
        if lengths is not None:
            valid = mask(lengths, u)
            u = torch.where(valid if u.ndim == 3 else valid[..., 0], u, torch.zeros_like(u))
        x = self.encoder(u)
        ends = []
        for i, block in enumerate(self._each_block()):
            layer_state = None if state is None else state.layers[i]
            x, end = block(x, layer_state, lengths=lengths, rate=rate, return_state=return_state)
            ends.append(end)
        x = self.norm(x, lengths)
        x, total, samples = self._pool(x, state, lengths)
        y = self._decode(x)
        if self.pooling == "none" and lengths is not None:
            y = torch.where(mask(lengths, y), y, 0.0)
        if not return_state or self.method.bidirectional:
            return y, None
        return y, ModelState(tuple(ends), total, samples)

    def step(self, u: Tensor, state: ModelState, *, rate: float = 1.0) -> tuple[Tensor, ModelState]:
        """One sample: u (batch, d_input), or tokens (batch,) -> y (batch, d_output)."""
        if self.method.bidirectional:
            raise ValueError("a bidirectional model looks ahead and cannot step")
        self._check_input(u, step=True)
        if self.check_finite and u.is_floating_point():
            validate.finite("u", u)
        if self.towers == 2:
            u = u.flatten(0, 1)
        self._check_state(state, u.shape[0])
        x = self.encoder(u)
        ends = []
        for block, layer_state in zip(self._each_block(), state.layers, strict=True):
            x, end = block.step(x, layer_state, rate=rate)
            ends.append(end)
        x = self.norm.step(x)
        total, samples = state.total + x.to(state.total.dtype), state.samples + 1
        if self.pooling == "mean":
            x = (total / samples[:, None]).to(x.dtype)
        return self._decode(x), ModelState(tuple(ends), total, samples)

    def initial_state(self, batch_size: int) -> ModelState:
        """The state before the first sample."""
        layers = tuple(
            block.layer.initial_state(self.towers * batch_size) for block in self._each_block()
        )
        total = layers[0].new_zeros(self.towers * batch_size, self.d_model)
        return ModelState(layers, total, total.new_zeros(self.towers * batch_size))

    def _each_block(self) -> list[Block]:
        return cast("list[Block]", list(self.blocks))

    def _pool(
        self, x: Tensor, state: ModelState | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, length = x.shape[:2]
        inside = x if lengths is None else torch.where(mask(lengths, x), x, 0.0)
        total = inside.sum(1, dtype=self._state_dtype)
        samples = total.new_full((batch,), length) if lengths is None else lengths.to(total.dtype)
        if state is not None:
            total, samples = state.total + total, state.samples + samples
        if self.pooling == "mean":
            x = (total / samples[:, None]).to(x.dtype)
        elif self.pooling == "last":
            x = (
                x[:, -1]
                if lengths is None
                else x[torch.arange(batch, device=x.device), lengths - 1]
            )
        return x, total, samples

    def _decode(self, x: Tensor) -> Tensor:
        if self.towers == 2:
            a, b = x.unflatten(0, (-1, 2)).unbind(1)
            x = torch.cat([a, b, a - b, a * b], dim=-1)
        y: Tensor = self.decoder(x)
        return y

    def _check_state(self, state: ModelState, batch: int) -> None:
        if not isinstance(state, ModelState) or len(state.layers) != len(self.blocks):
            raise ValueError(
                f"state must be a ModelState of {len(self.blocks)} layers, as initial_state or a "
                f"call returned it; got {type(state).__name__}"
            )
        if state.samples.shape != (batch,):
            raise ValueError(
                f"state is for a batch of {state.samples.shape[0]}, the input is one of {batch}; "
                "start with initial_state(batch_size)"
            )

    def _check_input(self, u: Tensor, step: bool) -> None:
        names = ["batch", *(["2"] if self.towers == 2 else []), *([] if step else ["length"])]
        if isinstance(self.encoder, nn.Linear):
            shape = f"({', '.join([*names, 'd_input'])})"
            validate.signal("u", u, shape, self.d_input, self.encoder.weight.dtype)
        else:
            shape = f"({', '.join(names)})"
            validate.tokens("u", u, shape, self.d_input)
        if self.towers == 2 and u.shape[1] != 2:
            raise ValueError(f"u must be {shape}, pairs of sequences, got {tuple(u.shape)}")

    @property
    def _state_dtype(self) -> torch.dtype:
        weight = next(self.parameters())
        return torch.float32 if weight.device.type == "mps" else torch.float64


def _as_method(method: Method | str | dict[str, Any]) -> Method:
    if isinstance(method, str):
        return METHODS[method]
    return Method().replace(**method) if isinstance(method, dict) else method


def _embedding(
    tokens: int,
    features: int,
    generator: Generator | None,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> nn.Embedding:
    layer = nn.Embedding(tokens, features, device=device, dtype=dtype)
    if generator is not None:
        with torch.no_grad():
            draw = torch.randn(tokens, features, generator=generator, device=generator.device)
            layer.weight.copy_(draw)
    return layer
