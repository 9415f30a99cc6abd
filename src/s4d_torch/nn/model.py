"""A whole sequence model: encoder, residual blocks, pooling, decoder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from inspect import signature
from typing import Any, Unpack, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from s4d_torch.nn import validate
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS
from s4d_torch.nn.batch import (
    check_input,
    compare_pairs,
    in_one_batch,
    last,
    read_input,
    sum_over_time,
    zero_ends,
)
from s4d_torch.nn.block import Block
from s4d_torch.nn.frames import FrameEncoder
from s4d_torch.nn.layer import Layer, embedding, linear
from s4d_torch.nn.method import METHODS, Choices, Method, check_options
from s4d_torch.nn.norm import NORMS
from s4d_torch.nn.packed import run_packed
from s4d_torch.nn.pretrained import Pretrained, configurable
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping.generation import Generation, start_of
from s4d_torch.nn.stepping.step import CompiledStep
from s4d_torch.nn.timing import (
    Rate,
    outside_graphs,
    read_rate,
    read_resets,
    read_step_rate,
    stretches,
)
from s4d_torch.ssm.engine import ENGINES
from s4d_torch.ssm.pieces import Pieces
from s4d_torch.ssm.precision import double_dtype

ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "embedding": embedding,
    "frames": FrameEncoder,
}
POOLINGS = ("mean", "last", "none")
NAMES: dict[str, Collection[str]] = {
    "encoder": ENCODERS,
    "pooling": POOLINGS,
    "norm": NORMS,
    "activation": ACTIVATIONS,
    "mixing": MIXINGS,
    "engine": ENGINES,
}
# options that have no part in an answer
NO_EFFECT = ("dropout", "tie_dropout", "drop_path", "engine", "check_finite")


class SequenceModel(Pretrained):
    """Encoder -> ``n_layers`` residual blocks -> pooling -> decoder.

    ``encoder`` is ``linear`` for u (batch, length, d_input), ``embedding`` for integer tokens
    (batch, length) below ``d_input``, or ``frames`` where each sample is a square image of
    ``d_input`` pixels, read by a small convolutional network. ``pooling`` gives one output per
    sequence, the ``mean`` over its valid part or the ``last`` position, (batch, d_output), or with
    ``none`` one per step, (batch, length, d_output). ``towers=2`` reads pairs, (batch, 2, length,
    d_input), through the same blocks and decodes ``[a, b, a - b, a b]``.

    ``method`` is a :class:`Method` or a name of METHODS, such as "s4"; single choices can be given
    by name, as for a layer.
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
        engine: str = "auto",
        generator: Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **choices: Unpack[Choices],
    ) -> None:
        arguments = locals()  # taken before other names are
        super().__init__()
        check_options(SequenceModel, choices)
        self.method = _as_method(method).replace(**choices)
        self.config = {name: arguments[name] for name in configurable(SequenceModel)}
        self.config["method"] = asdict(self.method)
        _check_config(self.config)
        validate.parameter_dtype(dtype)
        self.d_input, self.d_output, self.d_model = d_input, d_output, d_model
        self.pooling, self.towers, self.check_finite = pooling, towers, check_finite
        factory: Any = {"generator": generator, "device": device, "dtype": dtype}
        self.encoder: Any = ENCODERS[encoder](d_input, d_model, **factory)
        blocks = [self._block((i + 1) / n_layers, **factory) for i in range(n_layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = NORMS[norm if prenorm else "none"](d_model, device=device, dtype=dtype)
        pair = nn.Sequential()
        if towers == 2:
            pair.append(linear(4 * d_model, d_model, **factory))
            pair.append(ACTIVATIONS[activation]().to(device=device, dtype=dtype))
        decoder = linear(d_model, d_output, **factory)
        self.decoder = pair.append(decoder) if towers == 2 else decoder

    def _block(self, depth: float, generator: Generator | None, **factory: Any) -> Block:
        """A block at ``depth`` in (0, 1]; deeper branches are dropped more often."""
        options = {
            **self.config,
            "method": self.method,
            "drop_path": depth * self.config["drop_path"],
            "check_finite": False,  # the model sees to that
        }
        layer = Layer(**_taken_by(Layer, options), generator=generator, **factory)
        return Block(layer, **_taken_by(Block, options), **factory)

    @outside_graphs
    def forward(
        self,
        u: Tensor | PackedSequence,
        state: ModelState | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
        rate: Rate = 1.0,
        resets: Tensor | None = None,
        cu_seqlens: Tensor | Sequence[int] | None = None,
        return_state: bool = True,
    ) -> tuple[Any, ModelState | None]:
        """``y, state``; with a state, goes on where the last call stopped.

        A pooled output covers everything since the state began, so the last of several chunks
        answers as the whole sequence would. ``lengths`` is (batch,), or (batch, 2) for pairs;
        ``mask``, True up to each end, has one axis more, as have the gaps of ``rate``. A
        ``PackedSequence`` gives one where there is an output per step.

        ``resets`` (batch, length), bool, is True where a new sequence begins; a pooled output
        covers the last one of each row. ``cu_seqlens`` (n + 1,) are the offsets of n sequences
        packed one after the other, u (1, total, d_input): outputs per step are (1, total,
        d_output), pooled ones (n, d_output), and so are states.
        """
        if isinstance(u, PackedSequence):
            passed: Any = {"pooled": self.pooling != "none", "rate": rate}
            return run_packed(
                self.forward, u, state, lengths, mask, return_state=return_state, **passed
            )
        self._check_input(u, step=False)
        lengths = validate.prefix_lengths(mask, lengths, u, self.towers)
        u, lengths = read_input(u, lengths, self.towers)
        self._check_values(u)
        rate = read_rate(rate, tuple(u.shape[: self.towers + 1]), lengths, u)
        if self.towers == 2:
            self._check_towers(resets, cu_seqlens)
            u, lengths = in_one_batch(u, lengths)
        pieces = read_resets(resets, cu_seqlens, lengths, u)
        packed = pieces is not None and pieces.rows is None
        if state is not None:
            self._check_state(state, len(pieces) if packed and pieces else u.shape[0])
        x = self._encode(u)
        # nobody reads the ends: pooling and the last lines see to that
        options: Any = {"rate": rate, "return_state": return_state, "_zero_ends": False}
        if pieces is not None:
            options["resets"] = pieces
        ends = []
        for i, block in enumerate(self._each_block()):
            layer_state = None if state is None else state.layers[i]
            x, end = block(x, layer_state, lengths=lengths, **options)
            ends.append(end)
        x = self.norm(x, lengths)
        x, total, samples = self._pool(x, state, lengths, pieces)
        y = self._decode(x)
        if self.pooling == "none":
            y = zero_ends(y, lengths)
        if not return_state or self.method.bidirectional:
            return y, None
        return y, ModelState(tuple(ends), total, samples)

    def step(
        self, u: Tensor, state: ModelState, *, rate: Rate = 1.0, resets: Tensor | None = None
    ) -> tuple[Tensor, ModelState]:
        """One sample: u (batch, d_input), or tokens (batch,) -> y (batch, d_output).

        ``rate`` may be a tensor (batch,), the time since the sample before of each sequence;
        ``resets`` (batch,) is True where a new sequence begins. Of pairs, one for each of both.
        """
        validate.causal("model", "step", bidirectional=self.method.bidirectional)
        self._check_input(u, step=True)
        self._check_values(u)
        if self.towers == 2:
            u = u.flatten(0, 1)
        self._check_state(state, u.shape[0])
        if resets is not None:
            state = state.zero(resets)
        rate = read_step_rate(rate, u)
        x = self._encode(u)
        ends = []
        for block, layer_state in zip(self._each_block(), state.layers, strict=True):
            x, end = block.step(x, layer_state, rate=rate)
            ends.append(end)
        x = self.norm.step(x)
        total, samples = state.total + x.to(state.total.dtype), state.samples + 1
        if self.pooling == "mean":
            x = (total / samples[:, None]).to(x.dtype)
        return self._decode(x), ModelState(tuple(ends), total, samples)

    def states(
        self, u: Tensor, at: Sequence[int], state: ModelState | None = None, *, rate: Rate = 1.0
    ) -> list[ModelState]:
        """The states just after the samples ``at``, which rise; each sample is run once."""
        validate.causal("model", "have a state", bidirectional=self.method.bidirectional)
        if self.towers == 2:
            raise ValueError("a model of pairs has two time axes; call it piece by piece")
        self._check_input(u, step=False)
        found = []
        for piece, times in stretches(u, at, rate):
            _, state = self(piece, state, rate=times)
            assert state is not None
            found.append(state)
        return found

    def compile_step(self, batch_size: int = 1, *, rate: float = 1.0) -> CompiledStep:
        """:meth:`step` as machine code, for live streams; see :class:`CompiledStep`."""
        return CompiledStep(self, batch_size, rate)

    def generate(
        self,
        n: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        prompt: Tensor | Sequence[Any] | None = None,
        *,
        batch_size: int | None = None,
        rate: float = 1.0,
        generator: Generator | None = None,
    ) -> Tensor:
        """``n`` symbols, each drawn from what the model expects after those before: (batch, n).

        A higher ``temperature`` draws more freely, 0 always takes the likeliest; ``top_k`` leaves
        the choice among the k likeliest. ``prompt``, (length,) for all or (batch, length), comes
        first and is not repeated. For models of tokens with an output per step, ``pooling="none"``.
        With d_input = d_output + 1 the last token stands for the beginning and is read before all.
        """
        batch_size, given = start_of(self, prompt, batch_size)
        generation = Generation(self, batch_size, rate)
        if given is not None:
            generation.read(given)
        return generation.write(n, temperature, top_k, generator=generator)

    def initial_state(self, batch_size: int) -> ModelState:
        """The state before the first sample."""
        validate.positive_integer("batch_size", batch_size)
        rows = self.towers * batch_size
        layers = tuple(block.layer.initial_state(rows) for block in self._each_block())
        total = layers[0].new_zeros(rows, self.d_model)
        return ModelState(layers, total, total.new_zeros(rows))

    def _each_block(self) -> list[Block]:
        return cast("list[Block]", list(self.blocks))

    def _encode(self, u: Tensor) -> Tensor:
        x: Tensor = self.encoder(u if u.is_floating_point() else u.long())  # bytes are tokens too
        return x

    def _pool(
        self,
        x: Tensor,
        state: ModelState | None,
        lengths: Tensor | None,
        pieces: Pieces | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if pieces is not None:
            return self._pool_pieces(x, state, lengths, pieces)
        batch, length = x.shape[:2]
        total = sum_over_time(x, lengths)
        samples = total.new_full((batch,), length) if lengths is None else lengths.to(total.dtype)
        if state is not None:
            total, samples = state.total + total, state.samples + samples
        if self.pooling == "mean":
            x = (total / samples[:, None]).to(x.dtype)
        elif self.pooling == "last":
            x = last(x, lengths)
        return x, total, samples

    def _pool_pieces(
        self, x: Tensor, state: ModelState | None, lengths: Tensor | None, pieces: Pieces
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Over each packed sequence, or over the last one of each row."""
        total, samples = pieces.sums(x)
        if state is not None:
            before, count = pieces.start(state.total), pieces.start(state.samples)
            assert before is not None
            assert count is not None
            total, samples = total + before, samples + count
        total, samples = pieces.end(total), pieces.end(samples)
        if self.pooling == "mean":
            x = (total / samples[:, None]).to(x.dtype)
        elif self.pooling == "last":
            x = last(x, lengths) if pieces.rows else x[0, pieces.spans.sum(1) - 1]
        return x, total, samples

    @staticmethod
    def _check_towers(resets: Tensor | None, cu_seqlens: Any) -> None:
        if resets is not None or cu_seqlens is not None:
            raise ValueError("pairs of sequences are not packed: leave out resets and cu_seqlens")

    def _decode(self, x: Tensor) -> Tensor:
        y: Tensor = self.decoder(compare_pairs(x) if self.towers == 2 else x)
        return y

    def _check_state(self, state: ModelState, batch: int) -> None:
        if not isinstance(state, ModelState):
            raise TypeError(
                "state must be a ModelState, as initial_state or a call returned it, "
                f"got {type(state).__name__}"
            )
        if not isinstance(state.layers, tuple | list):
            raise TypeError(f"state.layers must be a tuple of tensors, got {state.layers!r}")
        if len(state.layers) != len(self.blocks):
            raise ValueError(
                f"state is that of {len(state.layers)} layers, this model has {len(self.blocks)}; "
                "start with initial_state(batch_size)"
            )
        samples, device = state.samples, self.encoder.weight.device
        # len(samples) would fix it in an export
        if isinstance(samples, Tensor) and samples.ndim == 1 and samples.shape[0] != batch:
            raise ValueError(
                f"state is for {samples.shape[0]} sequences, the input holds {batch}; "
                "start with initial_state(batch_size)"
            )
        shape, dtype = (batch, self.d_model), double_dtype(device)
        for layer, block in zip(state.layers, self._each_block(), strict=True):
            size = block.layer.ssm.state_size
            validate.carried_state(layer, (*shape, size), dtype, device)
        validate.carried("state.total", state.total, shape, dtype, device)
        validate.carried("state.samples", samples, shape[:1], dtype, device)

    def _check_input(self, u: Tensor, step: bool) -> None:
        tokens = isinstance(self.encoder, nn.Embedding)
        dtype = None if tokens else self.encoder.weight.dtype
        check_input(u, self.towers, self.d_input, dtype, step=step)
        validate.same_device(u, self.encoder.weight)

    def _check_values(self, u: Tensor) -> None:
        if not u.is_floating_point():
            validate.token_range("u", u, self.d_input)
        elif self.check_finite:
            validate.finite("u", u)


def _as_method(method: Method | str | dict[str, Any]) -> Method:
    if isinstance(method, str):
        return METHODS[method]
    if isinstance(method, dict):
        return Method().replace(**method)
    if not isinstance(method, Method):
        raise TypeError(f"method must be a Method or one of {', '.join(METHODS)}, got {method!r}")
    return method


def _taken_by(module: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a constructor takes."""
    return {name: options[name] for name in configurable(module) if name in options}


def _check_config(config: dict[str, Any]) -> None:
    """What the signature says of each option, and the names there are."""
    checks = {"int": validate.positive_integer, "float": validate.fraction, "bool": validate.flag}
    for name, parameter in signature(SequenceModel).parameters.items():
        if parameter.annotation in checks:
            checks[parameter.annotation](name, config[name])
    for name, options in NAMES.items():
        validate.one_of(name, config[name], options)
    if config["towers"] > 2 or (config["towers"] == 2 and config["pooling"] == "none"):
        raise ValueError(
            f"towers must be 1, or 2 with pooling 'mean' or 'last'; "
            f"got towers={config['towers']}, pooling={config['pooling']!r}"
        )
