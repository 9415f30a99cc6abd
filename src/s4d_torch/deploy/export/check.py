"""What an export answers, beside what the model answers."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from s4d_torch.nn import validate
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.plan import CHUNK, ModelPlan
from s4d_torch.nn.state import ModelState

State = tuple[Tensor, ...]
Sequence = Callable[[Tensor, Tensor], Tensor]
Step = Callable[[Tensor, State], tuple[Tensor, State]]

# (batch, length): one sample, ends of chunks and what lies beside them, several chunks
SEQUENCES = ((1, 1), (2, 7), (1, CHUNK), (3, CHUNK + 1), (2, 3 * CHUNK + 8))
STREAMS = (1, 3)  # batches of the step
STEPS = 100
LONGEST = 20_000  # samples of the training data that a check takes the time for


class Checked(NamedTuple):
    """One call: the largest difference and the largest output of the model."""

    what: dict[str, Any]
    difference: float
    largest: float


@dataclass(frozen=True)
class Comparison:
    """All calls of each file; none where ``why_not`` says why nothing could be called here."""

    files: dict[str, list[Checked]]
    why_not: str = ""


def reference(model: SequenceModel) -> SequenceModel:
    """The model that an export is held to: in evaluation, on the CPU, at least in float32."""
    copy = deepcopy(model).cpu().eval().requires_grad_(False)
    low = next(copy.parameters()).dtype in validate.LOW_PRECISION
    return copy.float() if low else copy


def sample_input(plan: ModelPlan, lead: tuple[int, ...], generator: Generator) -> Tensor:
    """Tokens, or numbers as normalised data has them."""
    if plan.tokens:
        return torch.randint(plan.d_input, lead, generator=generator)
    return torch.randn(*lead, plan.d_input, generator=generator)


@torch.no_grad()
def check_sequence(
    call: Sequence,
    model: SequenceModel,
    plan: ModelPlan,
    rate: float,
    trained_length: int | None = None,
) -> list[Checked]:
    """Compare at several batches and lengths, whole and ragged."""
    generator, found = Generator().manual_seed(0), []
    own = [(1, trained_length)] if trained_length is not None and trained_length <= LONGEST else []
    for batch, length in [*SEQUENCES, *own]:
        lead = (batch, 2)[: plan.towers]
        u = sample_input(plan, (*lead, length), generator)
        whole = torch.full(lead, length)
        ragged = torch.randint(1, length + 1, lead, generator=generator)
        for lengths in [whole, ragged] if length > 1 else [whole]:
            wanted = model(as_read(u, model), lengths=lengths, rate=rate, return_state=False)[0]
            what = {"batch": batch, "length": length, "ragged": lengths is ragged}
            found.append(compared(what, call(u, lengths), wanted))
    return found


@torch.no_grad()
def check_step(call: Step, model: SequenceModel, plan: ModelPlan, rate: float) -> list[Checked]:
    """Compare single steps from the start, for several batches."""
    generator, found = Generator().manual_seed(0), []
    for batch in STREAMS:
        lead = (batch, 2)[: plan.towers]
        theirs, own = model.initial_state(batch), as_state(model.initial_state(batch), plan)
        outputs, wanted = [], []
        for _ in range(STEPS):
            u = sample_input(plan, lead, generator)
            expected, theirs = model.step(as_read(u, model), theirs, rate=rate)
            y, own = call(u, own)
            outputs.append(y)
            wanted.append(expected)
        both = torch.stack(outputs), torch.stack(wanted)
        found.append(compared({"batch": batch, "steps": STEPS}, *both))
    return found


@torch.no_grad()
def output_change(
    exact: SequenceModel, other: SequenceModel, plan: ModelPlan, rate: float
) -> float:
    """The largest difference of ``other`` on sample inputs, of the largest output of ``exact``."""

    def call(u: Tensor, lengths: Tensor) -> Tensor:
        return other(as_read(u, other), lengths=lengths, rate=rate, return_state=False)[0]

    found = check_sequence(call, exact, plan, rate)
    return max(each.difference for each in found) / (max(each.largest for each in found) or 1.0)


def as_state(state: ModelState, plan: ModelPlan) -> State:
    """A model's state as an exported step takes it, in the order of its inputs."""
    parts = [*state.layers, *([state.total, state.samples] if plan.pooling == "mean" else [])]
    if plan.towers == 2:
        parts = [part.unflatten(0, (-1, 2)) for part in parts]
    return tuple(part.double() for part in parts)


def as_read(u: Tensor, model: SequenceModel) -> Tensor:
    """In the precision of the model; tokens as they are."""
    return u.to(next(model.parameters()).dtype) if u.is_floating_point() else u


def compared(what: dict[str, Any], y: Tensor, wanted: Tensor) -> Checked:
    """Refuses another shape, and a model that answers with NaN."""
    if y.shape != wanted.shape:
        raise ValueError(
            f"the export answers with the shape {tuple(y.shape)}, the model with "
            f"{tuple(wanted.shape)} ({what}); nothing was written"
        )
    if not bool(wanted.isfinite().all()):
        raise ValueError(
            f"the model itself answers with NaN or infinity ({what}); nothing was written"
        )
    difference = (y.double() - wanted.double()).abs().max()
    return Checked(what, float(difference), float(wanted.abs().max()))
