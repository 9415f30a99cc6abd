"""Models as archives of ``torch.export``: the model itself, with systems that run at any length.

All of a model but its state spaces exports as it is. A state space does not: its chunks are a loop
in Python, whose rounds a trace counts once, and its FFT has a size that depends on the number of
bits of the length. In their place stands a :class:`PlannedSSM`, in real numbers from the plan. An
archive imports nothing of this package when it is loaded.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from s4d_torch.nn.batch import zero_ends
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.plan import CHUNK, AffinePlan, BlockPlan, ModelPlan, SystemPlan
from s4d_torch.nn.state import ModelState

# what an archive would keep of each node besides what it does: lines and paths of this package
DEBUGGING = {"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node"}


class StoredLinear(nn.Module):
    """``x W^T + b``; the matrix is stored as the plan has it and computed with in float32."""

    weight: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, plan: AffinePlan) -> None:
        super().__init__()
        self.scaled = plan.scale is not None
        self.register_buffer("weight", plan.weight)
        self.register_buffer("bias", plan.bias.float())
        if plan.scale is not None:
            self.register_buffer("scale", plan.scale[:, None])

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.weight.to(x.dtype)
        return linear(x, matrix * self.scale if self.scaled else matrix, self.bias)


class PlannedSystem(nn.Module):
    """One system: a step, and a sequence as matrix products inside chunks with a loop over them."""

    def __init__(self, plan: SystemPlan) -> None:
        super().__init__()
        self.kind = plan.kind
        self.names = [field.name for field in fields(plan) if field.name != "kind"]
        for name in self.names:
            self.register_buffer(name, getattr(plan, name))

    @property
    def plan(self) -> SystemPlan:
        return SystemPlan(self.kind, *(getattr(self, name) for name in self.names))

    def forward(self, u: Tensor) -> Tensor:
        """u, y (rows, length, H)."""
        plan = self.plan
        rows, length, channels = u.shape
        size = plan.output.shape[1]
        outputs, inputs, toeplitz, power = _chunk_tables(plan)
        # two chunks at least: a graph made for a number that may be one would hold for no other
        chunks = (length + 2 * CHUNK - 1) // CHUNK
        u = pad(u, (0, 0, 0, chunks * CHUNK - length))
        blocks = u.reshape(rows * chunks, CHUNK, channels).permute(2, 0, 1)  # (H, rows n, T)
        added = torch.bmm(blocks, inputs).permute(1, 0, 2).reshape(rows, chunks, channels, size)
        zero = torch.zeros(rows, channels, size)

        def body(state: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
            return plan.apply(power, state) + more, state.clone()

        _, starts = _loop()(body, zero, added.transpose(0, 1).contiguous(), dim=0)
        starts = starts.transpose(0, 1).reshape(rows * chunks, channels, size)
        y = torch.bmm(blocks, toeplitz) + torch.bmm(starts.permute(1, 0, 2), outputs.mT)
        y = y.permute(1, 2, 0).reshape(rows, chunks * CHUNK, channels)
        return y.index_select(1, torch.arange(length))  # a slice would ask which is longer


class PlannedSSM(nn.Module):
    """Stands in for the :class:`SSM` of a layer, from its plan and at the plan's sampling rate."""

    def __init__(self, block: BlockPlan) -> None:
        super().__init__()
        self.past = PlannedSystem(block.past)
        self.future = None if block.future is None else PlannedSystem(block.future)
        self.state_size = block.past.state_size

    def forward(
        self, u: Tensor, state: None, *, lengths: Tensor | None, **_: Any
    ) -> tuple[Tensor, None]:
        if self.future is None:
            return self.past(u), None
        u = zero_ends(u, lengths)  # the padding would be heard
        ahead = pad(u.flip(1), (0, 0, 1, -1))  # from the end, one sample late
        return self.past(u) + self.future(ahead).flip(1), None

    def read_lengths(self, u: Tensor, lengths: Tensor, mask: None) -> Tensor:
        return lengths  # of the graph, checked by whoever runs it

    def step(self, u: Tensor, state: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        return self.past.plan.step(u, state)


class ExportedSequence(nn.Module):
    """``y = f(u, lengths)``; shapes and padding as for a :class:`SequenceModel`."""

    def __init__(self, plan: ModelPlan) -> None:
        super().__init__()
        self.model = exportable(plan)

    def forward(self, u: Tensor, lengths: Tensor) -> Tensor:
        return self.model(u, lengths=lengths, return_state=False)[0]


class ExportedStep(nn.Module):
    """``y, state = f(u, state)`` for one sample; the state is a tuple of float64 tensors."""

    def __init__(self, plan: ModelPlan) -> None:
        super().__init__()
        self.model = exportable(plan)

    def forward(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        pair, count = self.model.towers == 2, len(self.model.blocks)
        parts = [part.flatten(0, 1) if pair else part for part in state]
        layers, pooled = parts[:count], parts[count:]
        if not pooled:  # no mean is asked for
            pooled = [layers[0].new_zeros(layers[0].shape[0], self.model.d_model)]
            pooled.append(pooled[0][:, 0])
        y, after = self.model.step(u, ModelState(tuple(layers), *pooled))
        parts = [*after.layers, after.total, after.samples][: len(state)]
        return y, tuple(part.unflatten(0, (-1, 2)) if pair else part for part in parts)


def exportable(plan: ModelPlan) -> SequenceModel:
    """A copy of the model in float32, with the plan's systems and matrices as they are stored."""
    model = deepcopy(cast(SequenceModel, plan.model)).cpu().float().eval().requires_grad_(False)
    for block, planned in zip(model._each_block(), plan.blocks, strict=True):
        block.layer.ssm = PlannedSSM(planned)  # type: ignore[assignment]
        if planned.linear is not None and planned.linear.weight.element_size() < 4:
            block.layer.output = StoredLinear(planned.linear)
    return model


def _chunk_tables(plan: SystemPlan) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``C A^j`` (H, T, S), ``A^(T-1-j) B`` (H, T, S), the Toeplitz matrix (H, T, T) and A^T.

    In double precision; made in the graph, as A, B and C are much smaller.
    """
    rows, columns, power = plan.tables(CHUNK)
    kernel = (rows[:, :-1] * plan.input[:, None]).sum(-1)
    before = plan.direct.new_zeros(plan.direct.shape[0], CHUNK - 1)
    kernel = torch.cat([before, plan.direct[:, None], kernel], 1).float()
    toeplitz = kernel.unfold(1, CHUNK, 1).flip(1)  # M[s, t] = K[t - s], zero before
    return rows.float(), columns.float(), toeplitz, power.float()


def _loop() -> Any:
    """torch's scan over the first axis, which an archive keeps as a loop of any length."""
    try:
        from torch._higher_order_ops.scan import scan
    except ImportError as error:
        raise ImportError(
            f"archives of sequences need torch's scan, which torch {torch.__version__} lacks; "
            "use torch 2.6 or later"
        ) from error
    return scan


def save_sequence(plan: ModelPlan, path: Path) -> None:
    """The whole sequence as a ``torch.export`` archive, for any batch and length."""
    batch, length = (torch.export.Dim(name, min=1) for name in ("batch", "length"))
    lead = (3, 2)[: plan.towers]
    u, lengths = _input(plan, (*lead, 2 * CHUNK + 5)), torch.full(lead, 2 * CHUNK + 5)
    axes = ({0: batch, plan.towers: length}, {0: batch})
    _save(ExportedSequence(plan), (u, lengths), axes, path)


def save_step(plan: ModelPlan, path: Path) -> None:
    """One step as a ``torch.export`` archive, for any batch."""
    lead, batch = (3, 2)[: plan.towers], {0: torch.export.Dim("batch", min=1)}
    shapes = plan.state_shapes().values()
    state = tuple(torch.ones(*lead, *shape, dtype=torch.float64) for shape in shapes)
    axes = (batch, (batch,) * len(state))
    _save(ExportedStep(plan), (_input(plan, lead), state), axes, path)


def _input(plan: ModelPlan, lead: tuple[int, ...]) -> Tensor:
    return torch.zeros(lead, dtype=torch.int64) if plan.tokens else torch.zeros(*lead, plan.d_input)


def _save(module: nn.Module, arguments: tuple[Any, ...], axes: Any, path: Path) -> None:
    with torch.no_grad(), _quietly():
        try:
            program = torch.export.export(module.eval(), arguments, dynamic_shapes=axes)
        except Exception as error:  # of many kinds, and none of them the caller's
            raise ValueError(
                "torch.export cannot trace the model at any batch and length; is there a module "
                f"of your own in it? nothing was written ({error})"
            ) from error
        for graph in program.graph_module.modules():
            for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
                for name in DEBUGGING & node.meta.keys():
                    del node.meta[name]
        torch.export.save(program, path)


def load_program(path: Path) -> Any:
    """The program of an archive that was just written, ready to be called."""
    with _quietly():
        return torch.export.load(path).module()


@contextmanager
def _quietly() -> Iterator[None]:
    """torch's exporter warns of its own deprecated parts, which concern nobody here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
