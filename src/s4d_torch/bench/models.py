"""Whole models: a training step around every layer, and the latency of one step of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from s4d_torch.bench.contenders import OURS
from s4d_torch.bench.layers import LAYERS, Make
from s4d_torch.bench.measure import Contender, NotAvailable, Run, Shape
from s4d_torch.nn.model import SequenceModel

EAGER, COMPILED, STREAM = "model.step", "model.compile_step()", "model.compile_step().push"
TRAINED_LAYERS, STEPPED_LAYERS, CLASSES = 4, 6, 10


class InBlock(nn.Module):
    """Another layer in the place of ours within a block of a model."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor, state: None = None, **_: Any) -> tuple[Tensor, None]:
        return self.inside(x), None


def _training_step(make: Make | None) -> Callable[[Shape], Run]:
    """Forward, cross entropy, backward and AdamW; the same model around every layer."""

    def build(shape: Shape) -> Run:
        generator = torch.Generator().manual_seed(0)
        model = SequenceModel(
            1, CLASSES, shape.d_model, TRAINED_LAYERS, d_state=shape.d_state, generator=generator
        )
        if make is not None:
            for block in model.blocks:
                block.layer = InBlock(make(shape))
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        u = torch.randn(shape.batch, shape.length, 1, generator=generator)
        labels = torch.arange(shape.batch) % CLASSES

        def step() -> None:
            optimizer.zero_grad()
            cross_entropy(model(u, return_state=False)[0], labels).backward()
            optimizer.step()

        return step

    return build


def training_steps() -> dict[str, Contender]:
    return {
        name: Contender(
            _training_step(None if name == OURS else make),
            lambda shape, memory=memory: TRAINED_LAYERS * memory(shape),  # type: ignore[misc]
            order,
        )
        for name, (make, memory, order) in LAYERS.items()
        if name != f"{OURS} DSS"
    }


def _stepped_model(shape: Shape) -> SequenceModel:
    return SequenceModel(
        1,
        CLASSES,
        shape.d_model,
        STEPPED_LAYERS,
        d_state=shape.d_state,
        norm="batch",
        pooling="none",
        generator=torch.Generator().manual_seed(0),
    ).eval()


def _stepping(step: Callable[[Tensor, Any], tuple[Tensor, Any]], u: Tensor, state: Any) -> Run:
    @torch.no_grad()
    def run() -> None:
        nonlocal state
        _, state = step(u, state)

    return run


def _eager_step(shape: Shape) -> Run:
    model = _stepped_model(shape)
    u = torch.full((shape.batch, 1), 0.1)
    return _stepping(model.step, u, model.initial_state(shape.batch))


def _compile(model: SequenceModel, batch: int) -> Any:
    compile_step = getattr(model, "compile_step", None)
    if compile_step is None:
        raise NotAvailable("not available in this version")
    return compile_step(batch)


def _compiled_step(shape: Shape) -> Run:
    """The state goes in and comes out at each call."""
    model = _stepped_model(shape)
    u = torch.full((shape.batch, 1), 0.1)
    return _stepping(_compile(model, shape.batch), u, model.initial_state(shape.batch))


def _stream(shape: Shape) -> Run:
    """The state stays inside."""
    stream = _compile(_stepped_model(shape), shape.batch)
    if not hasattr(stream, "push"):
        raise NotAvailable("not available in this version")
    u = torch.full((shape.batch, 1), 0.1)
    return lambda: stream.push(u)


def _lstm_step(shape: Shape) -> Run:
    lstm = nn.LSTM(shape.d_model, shape.d_model, STEPPED_LAYERS, batch_first=True).eval()
    zeros = torch.zeros(STEPPED_LAYERS, shape.batch, shape.d_model)
    u = torch.full((shape.batch, 1, shape.d_model), 0.1)
    return _stepping(lstm, u, (zeros, zeros))


def steps() -> dict[str, Contender]:
    return {
        STREAM: Contender(_stream),
        COMPILED: Contender(_compiled_step),
        EAGER: Contender(_eager_step),
        f"nn.LSTM, {STEPPED_LAYERS} layers": Contender(_lstm_step),
    }
