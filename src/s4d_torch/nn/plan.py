"""A model in evaluation as plain numbers, for compiled steps and for exports of every kind.

Everything that depends on weights alone is folded: systems are discretised, in double precision and
with the skip D inside; norms with running statistics are a scale and a shift. What is left is real
arithmetic.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from s4d_torch._registry import Registry
from s4d_torch.nn import validate
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS, Activation, Mixing
from s4d_torch.nn.block import Block
from s4d_torch.nn.method import Method
from s4d_torch.nn.norm import NORMS, FoldedNorm
from s4d_torch.nn.ssm import SSM
from s4d_torch.nn.state import ModelState
from s4d_torch.ssm.pairs import readout, to_real

CHUNK = 64  # samples of one matrix product of an exported sequence; a power of 2


class Model(Protocol):
    """What of a :class:`SequenceModel` is folded, run and asked for errors."""

    config: dict[str, Any]
    method: Method
    d_input: int
    d_output: int
    d_model: int
    towers: int
    pooling: str
    check_finite: bool

    @property
    def encoder(self) -> nn.Module: ...
    @property
    def norm(self) -> nn.Module: ...
    @property
    def decoder(self) -> nn.Module: ...
    def step(self, u: Tensor, state: ModelState, *, rate: float) -> tuple[Tensor, ModelState]: ...
    def initial_state(self, batch_size: int) -> ModelState: ...
    def _each_block(self) -> list[Block]: ...
    def _check_input(self, u: Tensor, step: bool) -> None: ...
    def _check_values(self, u: Tensor) -> None: ...
    def _check_state(self, state: ModelState, batch: int) -> None: ...


@dataclass(frozen=True)
class AffinePlan:
    """``x W^T + b``, with ``weight`` (outputs, inputs).

    W is ``weight``, or if it is stored in fewer bits ``scale[:, None] * weight``.
    """

    weight: Tensor
    bias: Tensor
    scale: Tensor | None = None


@dataclass(frozen=True)
class SystemPlan:
    """``y = output s + direct u``, ``s <- A s + input u`` per channel; float64.

    s is the state that a sample meets. What is carried along is x, the state just after a sample:
    ``x = s + now u``, and then ``s = A x + before u``. Where ``before`` is not empty, u is carried
    along after x.
    A is diagonal, ``diagonal`` (H, S) being complex numbers as neighbours (``pairs``) or real ones
    (``real``), or pairs minus ``left`` (H, S, rank) times ``right`` (H, rank, S) (``low rank``).
    ``output``, ``input``, ``now``, ``before`` (H, S); ``direct`` (H,), with the skip D inside.
    """

    kind: Literal["pairs", "real", "low rank"]
    diagonal: Tensor
    left: Tensor
    right: Tensor
    output: Tensor
    input: Tensor
    direct: Tensor
    now: Tensor
    before: Tensor

    @property
    def state_size(self) -> int:
        """Numbers that a channel carries along."""
        return self.output.shape[1] + int(self.looks_back)

    @property
    def looks_back(self) -> bool:
        """Whether the sample before belongs to what is carried along."""
        return self.before.numel() > 0

    def meet(self, state: Tensor) -> Tensor:
        """What the next sample meets, (batch, H, S), from what is carried along."""
        if not self.looks_back:
            return self.advance(state)
        return self.advance(state[..., :-1]) + self.before * state[..., -1:]

    def leave(self, met: Tensor, u: Tensor) -> Tensor:
        """What is carried on after a sample u (batch, H), double, that met (batch, H, S)."""
        x = met + self.now * u[..., None]
        return torch.cat([x, u[..., None]], -1) if self.looks_back else x

    def step(self, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """u (batch, H) float32, the carried state, float64 -> y (batch, H), the next state."""
        met, exact = self.meet(state), u.double()
        y = (met * self.output).sum(-1) + self.direct * exact
        return y.to(u.dtype), self.leave(met, exact)

    def advance(self, state: Tensor) -> Tensor:
        """``A s`` for a state (batch, H, S)."""
        after = self.multiply(self.diagonal, state)
        if self.kind == "low rank":
            seen = (state[:, :, None] * self.right).sum(-1)  # (batch, H, rank)
            after = after - (self.left * seen[:, :, None]).sum(-1)
        return after

    def multiply(self, a: Tensor, s: Tensor) -> Tensor:
        """Entry by entry, (..., S); complex numbers are neighbours."""
        if self.kind == "real":
            return a * s
        (a, b), (x, y) = (part.unflatten(-1, (-1, 2)).unbind(-1) for part in (a, s))
        return torch.stack([a * x - b * y, a * y + b * x], dim=-1).flatten(-2)

    def apply(self, power: Tensor, state: Tensor) -> Tensor:
        """``A^T s`` for a state (rows, H, S) and the power of :meth:`tables`."""
        if self.kind == "low rank":
            return torch.matmul(state.transpose(0, 1), power.mT).transpose(0, 1).contiguous()
        return self.multiply(power, state)

    def tables(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """``C A^j`` and ``A^(length-1-j) B`` for j < length, (H, length, S), and ``A^length``.

        By doubling, up to a power of 2; a row of C reads the real part, so A is conjugated there.
        """
        rows, columns, power = self.output[:, None], self.input[:, None], self.diagonal
        if self.kind == "low rank":
            one = torch.eye(self.output.shape[1], dtype=torch.float64)
            power = self.multiply(power[:, None], one).mT - self.left @ self.right
        while rows.shape[1] < length:
            if self.kind == "low rank":
                later, earlier = rows @ power, columns @ power.mT
                power = power @ power
            else:
                later = self.multiply(self._conjugate(power)[:, None], rows)
                earlier = self.multiply(power[:, None], columns)
                power = self.multiply(power, power)
            rows, columns = torch.cat([rows, later], 1), torch.cat([earlier, columns], 1)
        return rows, columns, power

    def _conjugate(self, a: Tensor) -> Tensor:
        if self.kind == "real":
            return a
        return (a.unflatten(-1, (-1, 2)) * torch.tensor([1.0, -1.0])).flatten(-2)


@dataclass(frozen=True)
class BlockPlan:
    """The norm, the systems that look back and ahead, and the linear map of the mixing.

    ``norm`` is None where its entry has no folded form.
    """

    norm: FoldedNorm | None
    past: SystemPlan
    future: SystemPlan | None
    linear: AffinePlan | None


@dataclass(frozen=True)
class ModelPlan:
    """All of a model; ``encoder`` is a table of rows for tokens.

    ``model`` is what it was made from: the plan has everything else, in its precision or a higher
    one.
    """

    model: Model
    encoder: AffinePlan | Tensor
    blocks: tuple[BlockPlan, ...]
    norm: FoldedNorm | None
    decoder: tuple[AffinePlan, ...]
    activation: Activation
    mixing: Mixing
    prenorm: bool
    pooling: str
    towers: int
    d_input: int
    d_output: int
    d_model: int
    d_state: int

    @property
    def tokens(self) -> bool:
        return isinstance(self.encoder, Tensor)

    @property
    def causal(self) -> bool:
        """Whether there is a step: a model that looks ahead has none."""
        return all(block.future is None for block in self.blocks)

    def state_shapes(self) -> dict[str, list[int]]:
        """What a step carries along, for one sequence; pooling over time has a sum and a count."""
        sizes = [block.past.state_size for block in self.blocks]
        shapes = {f"state_{i}": [self.d_model, size] for i, size in enumerate(sizes)}
        if self.pooling == "mean":
            shapes |= {"total": [self.d_model], "samples": []}
        return shapes


def lacking(model: Model, form: Literal["compiled", "onnx", "c", "js"]) -> list[str]:
    """What of a model has no such form: ``["activation 'softsign'"]``, or nothing."""
    registries: list[Registry[Any]] = [ACTIVATIONS, MIXINGS, NORMS]
    images = ["encoder 'frames'"] if model.config["encoder"] == "frames" else []
    return images + [
        f"{each.kind} {model.config[each.kind]!r}"
        for each in registries
        if getattr(each[model.config[each.kind]], form) is None
    ]


@torch.no_grad()
def make_plan(model: Model, rate: float = 1.0) -> ModelPlan:
    """The plan of a model in evaluation, on the CPU, at one sampling rate."""
    validate.sampling_rate(rate)
    config, width = model.config, model.d_model
    inner = [4 * width, width] if model.towers == 2 else [width]
    linear = [x for x in model.decoder.modules() if isinstance(x, nn.Linear)]
    sizes = pairwise([*inner, model.d_output])
    return ModelPlan(
        model=model,
        encoder=_encoder(model),
        blocks=tuple(_block(block, config["norm"], rate) for block in model._each_block()),
        norm=_folded(model.norm, config["norm"] if config["prenorm"] else "none", width),
        decoder=tuple(_affine("decoder", *each) for each in zip(linear, sizes, strict=True)),
        activation=ACTIVATIONS[config["activation"]],
        mixing=MIXINGS[config["mixing"]],
        prenorm=config["prenorm"],
        pooling=model.pooling,
        towers=model.towers,
        d_input=model.d_input,
        d_output=model.d_output,
        d_model=model.d_model,
        d_state=config["d_state"],
    )


def _encoder(model: Model) -> AffinePlan | Tensor:
    encoder = model.encoder
    if isinstance(encoder, nn.Embedding):
        table = encoder.weight.detach()
        _check("encoder.weight", table, (model.d_input, model.d_model))
        return table
    if not isinstance(encoder, nn.Linear):
        kind = type(encoder).__name__
        raise TypeError(
            f"encoder must be nn.Linear or nn.Embedding to be folded, got {kind}; a model that "
            "reads its samples otherwise runs by its own forward and step"
        )
    return _affine("encoder", encoder, (model.d_input, model.d_model))


def _affine(name: str, layer: nn.Linear, sizes: tuple[int, int]) -> AffinePlan:
    """``sizes`` are those of its inputs and outputs."""
    inputs, outputs = sizes
    weight = layer.weight.detach()
    bias = weight.new_zeros(outputs) if layer.bias is None else layer.bias.detach()
    _check(f"{name}.weight", weight, (outputs, inputs))
    _check(f"{name}.bias", bias, (outputs,))
    return AffinePlan(weight, bias)


def _folded(norm: nn.Module, name: str, features: int) -> FoldedNorm | None:
    fold = NORMS[name].fold
    if fold is None:
        return None
    folded = fold(norm)
    _check("norm.weight", folded.scale, (features,))
    _check("norm.bias", folded.shift, (features,))
    return folded


def _check(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    if x.shape != shape:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}, expected {shape}; a model whose parameters were "
            "replaced by others of other shapes cannot be folded"
        )


def _block(block: Block, norm: str, rate: float) -> BlockPlan:
    layer, width = block.layer, block.layer.d_model
    past, future = _systems(layer.ssm, rate)
    linear = None
    if isinstance(layer.output, nn.Linear):
        sizes = (width, MIXINGS[layer.mixing].width * width)
        linear = _affine("output", layer.output, sizes)
    return BlockPlan(_folded(block.norm, norm, width), past, future, linear)


def _systems(ssm: SSM, rate: float) -> tuple[SystemPlan, SystemPlan | None]:
    """The systems that look back and ahead: the one place that reads an SSM's own."""
    space = ssm._state_space(rate)
    system: Any = space.system()
    kind: Literal["pairs", "real", "low rank"]
    if space.raw_P is not None:
        step = space.discrete_low_rank()
        kind, diagonal = "low rank", to_real(step.diagonal)
        left, right = to_real(step.left.mT).mT.contiguous(), readout(step.right) / 2
    else:
        kind = "pairs" if system.pairs else "real"
        diagonal = to_real(system.step.A_bar, system.pairs)
        left = right = torch.zeros(0, 0, 0, dtype=torch.float64)

    def plan(output: Tensor, direct: Tensor) -> SystemPlan:
        output, input, direct = (x.double() for x in (output, system.input, direct))
        before = output.new_zeros(0, 0) if system.before is None else system.before.double()
        ends = (system.now.double(), before)
        return SystemPlan(kind, diagonal, left, right, output, input, direct, *ends)

    if not ssm.method.bidirectional:
        return plan(system.output, system.direct + ssm.D), None
    past = plan(system.output[0], system.direct[0] + ssm.D)
    return past, plan(system.output[1], system.direct[1])  # D once: the present is counted once
