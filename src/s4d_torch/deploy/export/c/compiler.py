"""The C compiler of this machine, and programs of what was written: samples in, answers out."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from s4d_torch.deploy.export.c.text import renamed

STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 600  # until a compiler or a program is given up

# Blocks of samples on the input, each after their number; the answers on the output.
DRIVER = """\
#include "s4d.h"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    static s4d_state state;
    uint32_t samples;
    s4d_init(&state);
    while (fread(&samples, sizeof samples, 1, stdin) == 1) {
        s4d_input *u = malloc((samples + 1) * S4D_SAMPLE * sizeof *u);
        float *y = malloc((samples + 1) * S4D_OUTPUTS * sizeof *y);
        if (u == NULL || y == NULL || fread(u, S4D_SAMPLE * sizeof *u, samples, stdin) != samples)
            return 3;
        if (samples == 0)
            s4d_reset(&state);
        else if (s4d_push(&state, u, samples, y))
            return 4;
        fwrite(y, S4D_OUTPUTS * sizeof *y, samples, stdout);
        free(u);
        free(y);
    }
    return 0;
}
"""


class CompilerError(ValueError):
    """Source that a C compiler refuses, or a program of it that fails."""


def find_compiler() -> list[str] | None:
    """The command of ``$CC``, or the first of cc, gcc and clang that there is."""
    given = shlex.split(os.environ.get("CC", ""))
    if given and shutil.which(given[0]):
        return given
    return next(([name] for name in COMPILERS if shutil.which(name)), None)


def build(
    sources: Sequence[Path], program: Path, compiler: Sequence[str], flags: Sequence[str] = STRICT
) -> Path:
    """Compile and link with the mathematical library; returns ``program``."""
    run([*compiler, *flags, *map(str, sources), "-o", str(program), "-lm"])
    return program


def build_driver(
    folder: Path,
    work: Path,
    compiler: Sequence[str],
    flags: Sequence[str] = STRICT,
    name: str = "s4d",
) -> Path:
    """A program that reads samples and writes answers, from the ``s4d.c`` in a folder."""
    driver = work / "driver_of_samples.c"
    driver.write_text(renamed(DRIVER, name), encoding="ascii")
    files = [folder / f"{name}.c", driver]
    return build(files, work / "driver", compiler, (*flags, f"-I{folder}"))


def answers(program: Path, blocks: Sequence[Tensor], outputs: int) -> Tensor:
    """u, each (samples, numbers of a sample) -> y (all samples, outputs); no samples is a reset."""
    given = b"".join(_block(u) for u in blocks)
    y = np.frombuffer(run([str(program)], given), dtype=np.float32)
    return torch.from_numpy(y.copy()).unflatten(0, (-1, outputs))


def _block(u: Tensor) -> bytes:
    numbers = u.float() if u.is_floating_point() else u.int()
    return np.uint32(len(u)).tobytes() + numbers.numpy().tobytes()


def run(command: Sequence[str], given: bytes = b"") -> bytes:
    """What a command writes; an error with what it says if it fails."""
    name = Path(command[0]).name
    try:
        ran = subprocess.run(command, input=given, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"{name} could not be run: {error}; nothing was written") from error
    if ran.returncode != 0:
        lines = (ran.stderr or ran.stdout).decode(errors="replace").strip().splitlines()
        said = next((line for line in lines if "error" in line.lower()), "".join(lines[:1]))
        raise CompilerError(f"{name} failed with {ran.returncode}: {said}; nothing was written")
    return ran.stdout
