"""Export to C: what is written, how it is checked on this machine, and what the card says of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from s4d_torch._files import temporary_folder
from s4d_torch.deploy.export.c import compiler
from s4d_torch.deploy.export.c.header import header, stack_bytes, state_bytes
from s4d_torch.deploy.export.c.source import Vector, source
from s4d_torch.deploy.export.c.tables import make_tables
from s4d_torch.deploy.export.card import normalized
from s4d_torch.deploy.export.check import Checked, Comparison, as_read, compared, sample_input
from s4d_torch.deploy.export.job import Job
from s4d_torch.nn.plan import ModelPlan, lacking

HEADER, SOURCE = "s4d.h", "s4d.c"
ANSWERS, BLOCK = 6, 8  # of the test vector: answers, and samples before each of them
BLOCKS = (1, 1, 1, 7, 64, 1, 85)  # samples of each push in a check
AGAIN = 40  # samples after a reset
NO_COMPILER = "there is no C compiler here (cc, gcc, clang, or what CC names)"

EXAMPLE = """\
/* cc -std=c99 -O3 use.c s4d.c -lm */
#include "s4d.h"
#include <stdio.h>

static s4d_state state;

int main(void)
{{
    s4d_input u[S4D_SAMPLE] = {{0}}; /* your data{normalised} */
    float y[S4D_OUTPUTS];
    int t, i;
    s4d_init(&state);
    for (t = 0; t < 1000; t++)
        if (s4d_push(&state, u, 1, y) != 0)
            return 1;
    for (i = 0; i < S4D_OUTPUTS; i++)
        printf("%g\\n", y[i]);
    return 0;
}}"""


@dataclass(frozen=True)
class CFormat:
    """``s4d.h`` and ``s4d.c``, for causal models; built and run where there is a C compiler."""

    needs: str = "a C99 compiler and the C library"
    tolerance: float = 1e-5
    states: tuple[str, ...] = ("float32", "float64")
    quantizations: tuple[str, ...] = ("int8",)

    def require(self) -> dict[str, str]:
        return {}

    def check(self, plan: ModelPlan) -> None:
        """Refuse a model that looks ahead, or with a choice that has no C form."""
        if not plan.causal:
            raise ValueError(
                "a bidirectional model looks ahead and cannot answer sample by sample in C; "
                "'s4d train --causal' makes a model that can; nothing was written"
            )
        if without := lacking(plan.model, "c"):
            field = {"activation": "c=", "mixing": "c=", "norm": "fold="}
            given = ", ".join(f"{field[name.split()[0]]} for the {name}" for name in without)
            raise ValueError(
                f"{' and '.join(without)}: no form in C; register it with one ({given}), "
                "or export to 'pt2'; nothing was written"
            )

    def write(self, job: Job, place: Path, say: Callable[[str], None]) -> None:
        say(f"writing {HEADER} and {SOURCE}")
        tables = make_tables(job.plan, job.state)
        (place / HEADER).write_text(header(job, tables), encoding="ascii")
        (place / SOURCE).write_text(source(job, tables, vector(job)), encoding="ascii")

    def compare(self, job: Job, place: Path, say: Callable[[str], None]) -> Comparison:
        """Compiled without a warning, the self-test passed, and pushes of several sizes."""
        command = compiler.find_compiler()
        if command is None:
            return Comparison({}, NO_COMPILER)
        say(f"compiling {SOURCE} by {command[0]}, and checking it against the model")
        with temporary_folder(place / "build") as work:
            flags = (*compiler.STRICT, "-DS4D_SELF_TEST")
            compiler.run([str(compiler.build([place / SOURCE], work / "test", command, flags))])
            program = compiler.build_driver(place, work, command)
            return Comparison({"step": [pushed(job, program)]})

    def describe(self, job: Job, place: Path) -> dict[str, Any]:
        plan = job.plan
        read = plan.towers * (1 if plan.tokens else plan.d_input)
        u = {"name": "u", "dtype": "int32" if plan.tokens else "float32"}
        y = {"name": "y", "dtype": "float32", "shape": ["samples", plan.d_output]}
        step = {
            "file": SOURCE,
            "header": HEADER,
            "bytes": (place / SOURCE).stat().st_size,
            "constants": make_tables(plan, job.state).bytes,
            "state_bytes": state_bytes(job),
            "stack_bytes": stack_bytes(job),
            "state": str(job.state).removeprefix("torch."),
            "inputs": [{**u, "shape": ["samples", read]}],
            "outputs": [y],
        }
        return {"sequence": None, "step": step, "why_no_step": None}

    def example(self, facts: Mapping[str, Any]) -> list[str]:
        data = facts["data"]
        changed = data is not None and normalized(data)
        words = ": (x - s4d_input_shift[i]) * s4d_input_scale[i]" if changed else ""
        return EXAMPLE.format(normalised=words).splitlines()


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
    """What the self-test of a source compares."""
    u = samples(job, ANSWERS * BLOCK, seed=1)
    y = steps(job, u)[BLOCK - 1 :: BLOCK]
    if not bool(y.isfinite().all()):
        raise ValueError("the model itself answers with NaN or infinity; nothing was written")
    return Vector(u.reshape(ANSWERS, BLOCK, -1), y.float())


def pushed(job: Job, program: Path) -> Checked:
    """Pushes of several sizes, a reset, and more, beside the model."""
    u = samples(job, sum(BLOCKS) + AGAIN, seed=0)
    flat, first = u.reshape(len(u), -1), sum(BLOCKS)
    blocks = [*flat[:first].split(BLOCKS), flat[:0], flat[first:]]
    y = compiler.answers(program, blocks, job.plan.d_output)
    wanted = torch.cat([steps(job, part) for part in (u[:first], u[first:])])
    return compared({"batch": 1, "steps": len(u)}, y, wanted)
