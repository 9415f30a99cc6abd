"""A whole model, one sample at a time, as one call of machine code."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from s4d_torch.nn import validate
from s4d_torch.nn.plan import Model, lacking, make_plan
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping import sampling
from s4d_torch.nn.stepping.machine import Machine
from s4d_torch.ssm.compiled.runtime import available

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
        self._stream = self._make_stream()
        self._single: Machine | _Eager | None = None  # for calls, whose state goes in and out
        tokens = isinstance(model.encoder, nn.Embedding)
        self._dtype, self._device = weight.dtype, weight.device
        self._dtypes = INTEGERS if tokens else (weight.dtype,)
        lead = (batch_size,) if model.towers == 1 else (batch_size, 2)
        self._shape = lead if tokens else (*lead, model.d_input)

    def _make_stream(self) -> Machine | _Eager:
        if compiles(self._model):
            return Machine(make_plan(self._model, self.rate), self.batch_size)
        return _Eager(self._model, self.batch_size, self.rate)

    def __call__(self, u: Tensor, state: ModelState) -> tuple[Tensor, ModelState]:
        """One sample, and a state, which is not changed: the same as ``model.step``."""
        self._check(u)
        self._check_state(state)
        if self._single is None:
            self._single = self._stream.fork()
        self._single.start(state, samples=1)
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
    def compiled(self) -> bool:
        """Whether this is machine code, or the model's own step has taken over."""
        return isinstance(self._stream, Machine)

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


class _Eager:
    """A stream by the model's own step."""

    def __init__(self, model: Model, batch_size: int, rate: float) -> None:
        self._model, self._batch_size, self._rate = model, batch_size, rate
        self.state = model.initial_state(batch_size)

    def fork(self) -> _Eager:
        return _Eager(self._model, self._batch_size, self._rate)

    def start(self, state: ModelState, samples: int = 0) -> None:
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
