"""Export to C: what is written, how it is checked on this machine, and what the card says of it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s4d_torch._files import temporary_folder
from s4d_torch.deploy.export.c import compiler
from s4d_torch.deploy.export.c.header import header, stack_bytes, state_bytes
from s4d_torch.deploy.export.c.source import source
from s4d_torch.deploy.export.c.tables import make_tables
from s4d_torch.deploy.export.c.text import renamed
from s4d_torch.deploy.export.card import normalized
from s4d_torch.deploy.export.check import Comparison
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.pushes import check_steps, pushed, vector
from s4d_torch.nn.plan import ModelPlan

NAME = "s4d"
# a header of the C library under the same name might be taken in its place
TAKEN = {
    *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits"),
    *("locale", "math", "setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio"),
    *("stdlib", "string", "tgmath", "time", "wchar", "wctype"),
}
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
        check_steps(plan, "c", "C")

    def check_name(self, name: str) -> None:
        """What functions, macros and files begin with."""
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,31}", name):
            raise ValueError(
                f"name {name!r} cannot begin the names of C functions; expected up to 32 letters, "
                "digits and underscores, with a letter first; nothing was written"
            )
        if name.lower() in TAKEN:
            raise ValueError(
                f"{name}.h is a header of the C library; use another name than {name!r}, such as "
                f"'{name}_model'; nothing was written"
            )

    def write(self, job: Job, place: Path, say: Callable[[str], None]) -> None:
        name, tables = _name(job), make_tables(job.plan, job.state)
        say(f"writing {name}.h and {name}.c")
        (place / f"{name}.h").write_text(header(job, tables, name), encoding="ascii")
        text = source(job, tables, vector(job), name)
        (place / f"{name}.c").write_text(text, encoding="ascii")

    def compare(self, job: Job, place: Path, say: Callable[[str], None]) -> Comparison:
        """Compiled without a warning, the self-test passed, and pushes of several sizes."""
        command = compiler.find_compiler()
        if command is None:
            return Comparison({}, NO_COMPILER)
        name = _name(job)
        say(f"compiling {name}.c by {command[0]}, and checking it against the model")
        with temporary_folder(place / "build") as work:
            flags = (*compiler.STRICT, f"-D{name.upper()}_SELF_TEST")
            test = compiler.build([place / f"{name}.c"], work / "self_test", command, flags)
            compiler.run([str(test)])
            program = compiler.build_driver(place, work, command, name=name)
            outputs = job.plan.d_output
            found = pushed(job, lambda blocks: compiler.answers(program, blocks, outputs))
            return Comparison({"step": [found]})

    def describe(self, job: Job, place: Path) -> dict[str, Any]:
        plan, name = job.plan, _name(job)
        read = plan.towers * (1 if plan.tokens else plan.d_input)
        u = {"name": "u", "dtype": "int32" if plan.tokens else "float32"}
        y = {"name": "y", "dtype": "float32", "shape": ["samples", plan.d_output]}
        constants, state = make_tables(plan, job.state).bytes, state_bytes(job)
        precision = str(job.state).removeprefix("torch.")
        step = {
            "file": f"{name}.c",
            "header": f"{name}.h",
            "bytes": (place / f"{name}.c").stat().st_size,
            "constants": constants,
            "state_bytes": state,
            "stack_bytes": stack_bytes(job),
            "about": [
                f"`{name}.h`, `{name}.c`: one sample at a time, or blocks of them",
                f"{constants} bytes of constants, {state} of memory for each sequence, about "
                f"{stack_bytes(job)} of stack",
            ],
            "arithmetic": f"Arithmetic is in float32, the state in {precision}.",
            "state": precision,
            "inputs": [{**u, "shape": ["samples", read]}],
            "outputs": [y],
        }
        return {"sequence": None, "step": step, "why_no_step": None}

    def example(self, facts: Mapping[str, Any]) -> list[str]:
        data = facts["data"]
        changed = data is not None and normalized(data)
        words = ": (x - s4d_input_shift[i]) * s4d_input_scale[i]" if changed else ""
        name = facts["step"]["header"].removesuffix(".h")
        return renamed(EXAMPLE.format(normalised=words), name).splitlines()


def _name(job: Job) -> str:
    return NAME if job.name is None else job.name
