"""Whole models as modules of plain torch operators, for ``torch.export``.

They hold what a :class:`ModelPlan` holds, in real numbers, and import nothing of this package when
an archive of theirs is loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import glu, layer_norm, linear, pad

from s4d_torch.deploy.export.plan import CHUNK, AffinePlan, BlockPlan, ModelPlan, NormPlan
from s4d_torch.deploy.export.torch_system import ChunkedSystem, StepSystem
from s4d_torch.nn.layer import ACTIVATIONS

# what an archive would keep of each node besides what it does: lines and paths of this package
DEBUGGING = {"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node"}


class Affine(nn.Module):
    """``x W^T + b``; the matrix is stored as the plan has it and computed with in float32."""

    values: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, plan: AffinePlan) -> None:
        super().__init__()
        self.scaled = plan.weight.scale is not None
        self.register_buffer("values", plan.weight.values)
        self.register_buffer("bias", plan.bias)
        if plan.weight.scale is not None:
            self.register_buffer("scale", plan.weight.scale[:, None])

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.values.to(x.dtype)
        return linear(x, matrix * self.scale if self.scaled else matrix, self.bias)


class Norm(nn.Module):
    """A norm in evaluation."""

    scale: Tensor
    shift: Tensor

    def __init__(self, plan: NormPlan) -> None:
        super().__init__()
        self.kind, self.eps = plan.kind, plan.eps
        self.register_buffer("scale", plan.scale)
        self.register_buffer("shift", plan.shift)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "layer":
            return layer_norm(x, self.scale.shape, self.scale, self.shift, self.eps)
        return x * self.scale + self.shift if self.kind == "affine" else x


class Mixing(nn.Module):
    """The activation and the mixing of the channels."""

    def __init__(self, plan: BlockPlan, activation: str) -> None:
        super().__init__()
        self.activation, self.glu = ACTIVATIONS[activation](), plan.glu
        self.linear = nn.Identity() if plan.linear is None else Affine(plan.linear)

    def forward(self, y: Tensor) -> Tensor:
        y = self.linear(self.activation(y))
        return glu(y, dim=-1) if self.glu else y


class PlainModel(nn.Module):
    """What a sequence and a step have in common: all but the systems."""

    def __init__(self, plan: ModelPlan) -> None:
        super().__init__()
        self.towers, self.pooling, self.prenorm = plan.towers, plan.pooling, plan.prenorm
        self.tokens = plan.tokens
        if isinstance(plan.encoder, AffinePlan):
            self.encoder: nn.Module = Affine(plan.encoder)
        else:
            self.encoder = nn.Embedding.from_pretrained(plan.encoder)
        self.norms = nn.ModuleList(Norm(block.norm) for block in plan.blocks)
        self.mixings = nn.ModuleList(Mixing(block, plan.activation) for block in plan.blocks)
        self.norm = Norm(plan.norm)
        self.activation = ACTIVATIONS[plan.activation]()
        self.decoder = nn.ModuleList(Affine(part) for part in plan.decoder)

    def decode(self, x: Tensor) -> Tensor:
        if self.towers == 2:
            a, b = x.unflatten(0, (-1, 2)).unbind(1)
            x = torch.cat([a, b, a - b, a * b], dim=-1)
        for i, part in enumerate(self.decoder):
            x = part(x if i == 0 else self.activation(x))
        return x


class PlainSequence(PlainModel):
    """``y = f(u, lengths)``; shapes and padding as for a :class:`SequenceModel`."""

    def __init__(self, plan: ModelPlan) -> None:
        super().__init__(plan)
        self.pasts = nn.ModuleList(ChunkedSystem(block.past) for block in plan.blocks)
        futures = [block.future for block in plan.blocks]
        self.futures = nn.ModuleList(ChunkedSystem(plan) for plan in futures if plan is not None)

    def forward(self, u: Tensor, lengths: Tensor) -> Tensor:
        if self.towers == 2:
            u, lengths = u.flatten(0, 1), lengths.flatten()
        length = u.shape[1]
        # two chunks at least: a graph made for a number that may be one would hold for no other
        chunks = (length + 2 * CHUNK - 1) // CHUNK
        extra = chunks * CHUNK - length
        u = pad(u, (0, extra) if self.tokens else (0, 0, 0, extra))
        valid = torch.arange(chunks * CHUNK) < lengths[:, None]  # (rows, P)
        u = torch.where(valid if self.tokens else valid[..., None], u, torch.zeros_like(u))
        valid = valid[..., None]
        x = self.encoder(u)
        for i, past in enumerate(self.pasts):
            branch = self.norms[i](x) if self.prenorm else x
            if self.futures:  # the padding would be heard
                branch = torch.where(valid, branch, torch.zeros_like(branch))
                ahead = pad(branch.flip(1), (0, 0, 1, -1))  # from the end, one sample late
                y = past(branch, chunks) + self.futures[i](ahead, chunks).flip(1)
            else:
                y = past(branch, chunks)
            x = x + self.mixings[i](y)
            x = x if self.prenorm else self.norms[i](x)
        x = self.norm(x)
        if self.pooling == "none":
            y = self.decode(x)
            y = torch.where(valid, y, torch.zeros_like(y))
            return y.index_select(1, torch.arange(length))  # a slice would ask which is longer
        if self.pooling == "last":
            place = (lengths - 1)[:, None, None].expand(-1, 1, x.shape[-1])
            return self.decode(x.gather(1, place)[:, 0])
        total = torch.where(valid, x, torch.zeros_like(x)).sum(1, dtype=torch.float64)
        return self.decode((total / lengths[:, None]).to(x.dtype))


class PlainStep(PlainModel):
    """``y, state = f(u, state)`` for one sample; the state is a tuple of float64 tensors."""

    def __init__(self, plan: ModelPlan) -> None:
        super().__init__(plan)
        self.systems = nn.ModuleList(StepSystem(block.past) for block in plan.blocks)

    def forward(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        if self.towers == 2:
            u, state = u.flatten(0, 1), tuple(part.flatten(0, 1) for part in state)
        x, after = self.encoder(u), []
        for i, system in enumerate(self.systems):
            y, end = system(self.norms[i](x) if self.prenorm else x, state[i])
            after.append(end)
            x = x + self.mixings[i](y)
            x = x if self.prenorm else self.norms[i](x)
        x = self.norm(x)
        if self.pooling == "mean":
            total, samples = state[-2] + x, state[-1] + 1
            after += [total, samples]
            x = (total / samples[:, None]).to(x.dtype)
        if self.towers == 2:
            after = [part.unflatten(0, (-1, 2)) for part in after]
        return self.decode(x), tuple(after)


def save_sequence(plan: ModelPlan, path: Path) -> None:
    """The whole sequence as a ``torch.export`` archive, for any batch and length."""
    batch, length = torch.export.Dim("batch", min=1), torch.export.Dim("length", min=1)
    lead = (3,) if plan.towers == 1 else (3, 2)
    u = _input(plan, (*lead, 2 * CHUNK + 5))
    lengths = torch.full(lead, u.shape[plan.towers])
    axes = ({0: batch, plan.towers: length}, {0: batch})
    _save(PlainSequence(plan), (u, lengths), axes, path)


def save_step(plan: ModelPlan, shapes: dict[str, list[int]], path: Path) -> None:
    """One step as a ``torch.export`` archive, for any batch."""
    batch = torch.export.Dim("batch", min=1)
    lead = (3,) if plan.towers == 1 else (3, 2)
    state = tuple(torch.ones(*lead, *shape, dtype=torch.float64) for shape in shapes.values())
    axes = ({0: batch}, tuple({0: batch} for _ in state))
    _save(PlainStep(plan), (_input(plan, lead), state), axes, path)


def _input(plan: ModelPlan, lead: tuple[int, ...]) -> Tensor:
    if plan.tokens:
        return torch.zeros(lead, dtype=torch.int64)
    return torch.zeros(*lead, plan.d_input)


def _save(module: nn.Module, arguments: tuple[Any, ...], axes: Any, path: Path) -> None:
    with torch.no_grad(), _quietly():
        program = torch.export.export(module.eval(), arguments, dynamic_shapes=axes)
        for graph in program.graph_module.modules():
            for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
                for name in DEBUGGING & node.meta.keys():
                    del node.meta[name]
        torch.export.save(program, path)


def load_program(path: Path) -> nn.Module:
    """The program of an archive that was just written, ready to be called."""
    with _quietly():
        module: nn.Module = torch.export.load(path).module()
    return module


@contextmanager
def _quietly() -> Iterator[None]:
    """torch's exporter warns of its own deprecated parts, which concern nobody here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
