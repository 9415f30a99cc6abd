"""Samples one after the other, beside the model: test vectors, and checks of exports that step."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from s4d_torch.deploy.export.check import Checked, as_read, compared, sample_input
from s4d_torch.deploy.export.job import Job
from s4d_torch.nn.plan import ModelPlan, lacking

ANSWERS, BLOCK = 6, 8  # of the test vector: answers, and samples before each of them
BLOCKS = (1, 1, 1, 7, 64, 1, 85)  # samples of each push in a check
AGAIN = 40  # samples after a reset


class Vector(NamedTuple):
    """Samples (answers, block, sample), and the model's answers (answers, outputs) after each."""

    u: Tensor
    y: Tensor


def check_steps(plan: ModelPlan, form: Literal["c", "js"], language: str) -> None:
    """Refuse a model that looks ahead, or with a choice that has no form in the language."""
    if not plan.causal:
        raise ValueError(
            f"a bidirectional model looks ahead and cannot answer sample by sample in {language}; "
            "'s4d train --causal' makes a model that can; nothing was written"
        )
    if without := lacking(plan.model, form):
        field = {"activation": f"{form}=", "mixing": f"{form}=", "norm": "fold="}
        given = ", ".join(f"{field[name.split()[0]]} for the {name}" for name in without)
        raise ValueError(
            f"{' and '.join(without)}: no form in {language}; register it with one ({given}), "
            "or export to 'pt2'; nothing was written"
        )


@torch.no_grad()
def steps(job: Job, u: Tensor) -> Tensor:
    """The model's own answer after each sample; u (samples, ...) as :func:`samples` gives it."""
    state, found = job.model.initial_state(1), []
    for sample in as_read(u, job.model):
        y, state = job.model.step(sample[None], state, rate=job.rate)
        found.append(y[0])
    return torch.stack(found)


def samples(job: Job, count: int, seed: int) -> Tensor:
    """Of one sequence, or pair: (samples, features), with an axis of two before the features."""
    lead = (count, 2)[: job.plan.towers]
    return sample_input(job.plan, lead, Generator().manual_seed(seed))


def vector(job: Job) -> Vector:
    """What the self-test of an export compares."""
    u = samples(job, ANSWERS * BLOCK, seed=1)
    y = steps(job, u)[BLOCK - 1 :: BLOCK]
    if not bool(y.isfinite().all()):
        raise ValueError("the model itself answers with NaN or infinity; nothing was written")
    return Vector(u.reshape(ANSWERS, BLOCK, -1), y.float())


def pushed(job: Job, answers: Callable[[Sequence[Tensor]], Tensor]) -> Checked:
    """Pushes of several sizes, a reset, and more, beside the model.

    ``answers`` takes blocks (samples, numbers of a sample), an empty one being a reset, and gives
    (all samples, outputs).
    """
    u = samples(job, sum(BLOCKS) + AGAIN, seed=0)
    flat, first = u.reshape(len(u), -1), sum(BLOCKS)
    y = answers([*flat[:first].split(BLOCKS), flat[:0], flat[first:]])
    wanted = torch.cat([steps(job, part) for part in (u[:first], u[first:])])
    return compared({"batch": 1, "steps": len(u)}, y, wanted)
