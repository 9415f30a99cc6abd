"""A whole model, one sample at a time, as one call of machine code."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from s4d_torch.nn import validate
from s4d_torch.nn.plan import Model, ModelPlan, lacking, make_plan
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping import sampling
from s4d_torch.nn.stepping.tables import StepTables, make_tables
from s4d_torch.ssm.compiled.runtime import available, compiled_module, first_call

BLOCK = 16  # samples between two runs of a mode; at most modes_code.MOST
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

Signal = TypeVar("Signal", Tensor, np.ndarray[Any, Any])


class CompiledStep:
    """``y_t, state = step(u_t, state)`` as ``model.step`` does it, many times faster.

    Faster still is a stream, whose state stays inside:

    >>> stream = model.compile_step()
    >>> y_t = stream.push(u_t)      # one sample, as for model.step
    >>> ys = stream.push_many(u)    # a sequence, as for model(u), with an answer for each sample
    >>> state = stream.state        # a copy, for the model or for another stream
    >>> stream.start(state)         # go on from there; without a state, from the beginning

    Samples are tensors, or NumPy arrays and then so are the answers. The parameters are those the
    model had when this was made, and it is in evaluation: make another after training. There are no
    gradients. Without a working numba, off the CPU, in another precision than float32 and float64,
    or where a choice of the model has no compiled form, the model's own step takes over.
    """

    def __init__(self, model: Model, batch_size: int = 1, rate: float = 1.0) -> None:
        validate.positive_integer("batch_size", batch_size)
        validate.sampling_rate(rate)
        validate.causal("model", "step", bidirectional=model.method.bidirectional)
        assert isinstance(model, nn.Module)
        if next(model.parameters()).is_meta:
            raise ValueError(
                "a model on the device meta has no weights to step with; use "
                "model.to_empty(device='cpu') and load some"
            )
        self.batch_size, self.rate = batch_size, rate
        self._model = cast(Model, deepcopy(model).eval().requires_grad_(False))
        weight = next(model.parameters())
        self._plan = make_plan(self._model, rate) if compiles(self._model) else None
        self._stream = self._make(BLOCK)
        self._single: _Machine | _Eager | None = None  # for calls, whose state is needed at once
        tokens = isinstance(model.encoder, nn.Embedding)
        self._dtype, self._device = weight.dtype, weight.device
        self._dtypes = INTEGERS if tokens else (weight.dtype,)
        lead = (batch_size,) if model.towers == 1 else (batch_size, 2)
        self._shape = lead if tokens else (*lead, model.d_input)

    def _make(self, block: int) -> _Machine | _Eager:
        """A stream; in machine code the modes run every ``block`` samples."""
        if self._plan is None:
            return _Eager(self._model, self.batch_size, self.rate)
        return _Machine(self._plan, self.batch_size, block)

    def __call__(self, u: Tensor, state: ModelState) -> tuple[Tensor, ModelState]:
        """One sample, and a state, which is not changed: the same as ``model.step``."""
        self._check(u)
        self._check_state(state)
        if self._single is None:
            self._single = self._make(1)
        self._single.start(state)
        return self._single.push(u), self._single.state

    def start(self, state: ModelState | None = None) -> None:
        """Begin again, or go on from a state."""
        if state is None:
            state = self._model.initial_state(self.batch_size)
        self._check_state(state)
        self._stream.start(state)

    def push(self, u: Signal) -> Signal:
        """u (batch, d_input), or tokens (batch,) -> y (batch, d_output)."""
        if isinstance(u, np.ndarray):
            return self.push(_as_tensor(u)).numpy()
        self._check(u)
        return self._stream.push(u)

    def push_many(self, u: Signal) -> Signal:
        """u (batch, length, d_input), or tokens (batch, length) -> y (batch, length, d_output).

        Also where a model pools: then each answer is that for the stream so far.
        """
        if isinstance(u, np.ndarray):
            return self.push_many(_as_tensor(u)).numpy()
        self._model._check_input(u, step=False)
        time_axis = self._model.towers
        self._check(u.select(time_axis, 0))
        if self._model.check_finite:
            self._model._check_values(u)
        return self._stream.push_many(u.movedim(time_axis, 0)).movedim(0, 1)

    def fork(self) -> CompiledStep:
        """Another stream of the same model, from the beginning; the parameters are shared."""
        other = object.__new__(CompiledStep)
        other.__dict__.update(self.__dict__, _stream=self._stream.fork(), _single=None)
        return other

    def sample(
        self, scores: Tensor, draws: Tensor, temperature: float = 1.0, top_k: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Choose the next symbol from its scores, push it, choose from the answer, and so on.

        scores (batch, symbols) of the first, draws (length, batch), uniform in [0, 1) and double ->
        symbols (length, batch), all of them pushed, and the scores after them. For the rule see
        :func:`s4d_torch.nn.stepping.sampling.choose`; a model that generates is what it takes.
        """
        symbols = self._model.d_output
        sampling.check_model(self._model)
        sampling.check_options(temperature, top_k)
        sampling.check_scores(scores, (self.batch_size, symbols), self._dtype, self._device)
        sampling.check_draws(draws, self.batch_size)
        kept = symbols if top_k is None else min(top_k, symbols)
        return self._stream.sample(scores.detach(), draws.detach(), float(temperature), kept)

    @property
    def state(self) -> ModelState:
        """The state after all that was pushed since the start; a copy."""
        return self._stream.state

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles go on where this one is, with arrays of their own."""
        return _restored, (self._model, self.batch_size, self.rate, self.state)

    def _check(self, u: Tensor) -> None:
        if not isinstance(u, Tensor) or u.shape != self._shape or u.dtype not in self._dtypes:
            self._model._check_input(u, step=True)
            if u.shape != self._shape:
                raise ValueError(
                    f"u holds {u.shape[0]} sequences, the step was compiled for {self.batch_size}; "
                    f"use compile_step(batch_size={u.shape[0]})"
                )
        validate.dense("u", u)
        if u.device != self._device:
            raise ValueError(f"u is on {u.device}, the model on {self._device}; move one of them")
        if self._model.check_finite:
            self._model._check_values(u)

    def _check_state(self, state: ModelState) -> None:
        self._model._check_state(state, self._model.towers * self.batch_size)


def compiles(model: Model) -> bool:
    """Whether a model's step can be machine code here."""
    weight = model._each_block()[0].layer.ssm.raw_C
    return available(weight.device, weight.dtype) and not lacking(model, "compiled")


def _restored(model: Model, batch_size: int, rate: float, state: ModelState) -> CompiledStep:
    step = CompiledStep(model, batch_size, rate)
    step.start(state)
    return step


class _Machine:
    """The arrays of one stream, and the calls of machine code on them."""

    def __init__(
        self, plan: ModelPlan, batch_size: int, block: int, tables: StepTables | None = None
    ) -> None:
        code, model = _code(), plan.model
        self._model, self._plan, self._options = model, plan, (batch_size, block)
        rows, dtype = model.towers * batch_size, model._each_block()[0].layer.ssm.raw_C.dtype
        self._tables = tables or make_tables(plan, rows, block, code.LANES, dtype)
        options, weights, cells = self._tables[:3]
        layers, groups, modes, _, lanes = cells.shape
        self._clock = np.zeros(1 + layers * groups, dtype=np.int64)
        self._modes = np.zeros((layers, rows, groups, modes, 2, lanes))
        self._spare = np.zeros_like(self._modes)
        self._layer_shape = (rows, model.d_model, plan.d_state)
        self._pool = np.zeros((rows, model.d_model + 1))
        self._ring = np.zeros((layers, rows, 2, block, groups * lanes), weights.dtype)
        self._unused = np.zeros_like(self._ring[0, 0, 1])
        self._constant = (options, self._clock, weights, cells, self._modes, self._pool, self._ring)
        self._batch_size = batch_size
        self._tokens = np.zeros(0, dtype=np.int64)
        self._u = np.zeros((0, 1), weights.dtype)
        if plan.tokens:
            self._tokens = self._input = np.zeros(rows, dtype=np.int64)
        else:
            self._u = self._input = np.zeros((rows, model.d_input), weights.dtype)
        self._y = np.zeros((batch_size, model.d_output), weights.dtype)
        pair = () if model.towers == 1 else (2,)
        shape = (batch_size, *pair, *self._input.shape[1:])
        self._inlet = torch.from_numpy(self._input).view(shape)
        self._run = code.run
        self._arguments = (*self._constant, self._u, self._tokens, self._y)
        used = ("run", "first_outputs", "catch_up", "load", "unload")
        first_call("the step", self._warm_up, [getattr(code, name) for name in used])

    def _warm_up(self) -> None:
        """Compile all that a stream uses, by using it."""
        self.start(self._model.initial_state(self._batch_size))
        self._run(*self._constant, self._u[:0], self._tokens[:0], self._y[:0])
        _ = self.state

    def fork(self) -> _Machine:
        return _Machine(self._plan, *self._options, self._tables)

    def start(self, state: ModelState) -> None:
        code, tables = _code(), self._tables
        for i, layer in enumerate(state.layers):
            code.load(_as_array(layer), tables.scale[i], self._modes[i])
        self._pool[:, :-1] = _as_array(state.total)
        self._pool[:, -1] = _as_array(state.samples)
        self._clock[:], self._clock[0] = self._ring.shape[3], 0
        self._ring[:] = 0
        np.copyto(self._spare, self._modes)
        code.first_outputs(tables.cells, tables.reads, self._spare, self._ring)

    @property
    def state(self) -> ModelState:
        code, tables = _code(), self._tables
        np.copyto(self._spare, self._modes)
        code.catch_up(self._clock, tables.cells, self._spare, self._ring, self._unused)
        layers = [np.empty(self._layer_shape) for _ in self._spare]
        for modes, factor, layer in zip(self._spare, tables.unscale, layers, strict=True):
            code.unload(modes, factor, layer)
        pool = torch.from_numpy(self._pool.copy())
        return ModelState(
            tuple(torch.from_numpy(layer) for layer in layers),
            total=pool[:, :-1].contiguous(),
            samples=pool[:, -1].contiguous(),
        )

    def push(self, u: Tensor) -> Tensor:
        self._inlet.copy_(u.detach() if u.requires_grad else u)
        if not self._run(*self._arguments):
            self._model._check_values(u)
        return torch.from_numpy(self._y.copy())

    def push_many(self, u: Tensor) -> Tensor:
        """u (length, batch, ...) -> y (length, batch, d_output)."""
        samples = np.array(_as_array(u), dtype=self._input.dtype, order="C")
        samples = samples.reshape(-1, *self._input.shape[1:])
        y = np.zeros((len(u) * self._batch_size, self._model.d_output), self._y.dtype)
        pair = (self._u, samples) if self._plan.tokens else (samples, self._tokens)
        if not self._run(*self._constant, *pair, y):
            self._model._check_values(u)
        return torch.from_numpy(y).unflatten(0, (-1, self._batch_size))

    def sample(
        self, scores: Tensor, draws: Tensor, temperature: float, top_k: int
    ) -> tuple[Tensor, Tensor]:
        code = compiled_module("s4d_torch.nn.stepping.sampling_code")
        following, drawn = _as_array(scores).copy(), _as_array(draws.cpu())
        chosen = np.zeros(draws.shape, dtype=np.int64)

        def run(*arrays: Any) -> bool:
            found: bool = code.sample(*self._constant, following, temperature, top_k, *arrays)
            return found

        first_call("the step", lambda: run(drawn[:0], chosen[:0]), [code.sample])
        if not run(drawn, chosen):
            raise sampling.not_numbers()
        return torch.from_numpy(chosen), torch.from_numpy(following)


class _Eager:
    """A stream by the model's own step."""

    def __init__(self, model: Model, batch_size: int, rate: float) -> None:
        self._model, self._batch_size, self._rate = model, batch_size, rate
        self.state = model.initial_state(batch_size)

    def fork(self) -> _Eager:
        return _Eager(self._model, self._batch_size, self._rate)

    def start(self, state: ModelState) -> None:
        self.state = state

    @torch.no_grad()
    def push(self, u: Tensor) -> Tensor:
        y, self.state = self._model.step(u, self.state, rate=self._rate)
        return y

    def push_many(self, u: Tensor) -> Tensor:
        return torch.stack([self.push(sample) for sample in u])

    def sample(
        self, scores: Tensor, draws: Tensor, temperature: float, top_k: int
    ) -> tuple[Tensor, Tensor]:
        chosen = torch.zeros(draws.shape, dtype=torch.int64, device=scores.device)
        for symbols, draw in zip(chosen, draws.to(scores.device), strict=True):
            symbols[:] = sampling.choose(scores, draw, temperature, top_k)
            scores = self.push(symbols)
        return chosen, scores


def _as_tensor(u: np.ndarray[Any, Any]) -> Tensor:
    backward = any(stride < 0 for stride in u.strides)  # which torch does not know
    return torch.from_numpy(u.copy() if backward or not u.flags.writeable else u)


def _as_array(x: Tensor) -> np.ndarray[Any, Any]:
    """Contiguous, and without a negative bit, which NumPy does not know."""
    return x.detach().resolve_neg().contiguous().numpy()


@cache
def _code() -> ModuleType:
    """The compiled code; slow to import, so not before it is used."""
    return compiled_module("s4d_torch.nn.stepping.step_code")
