"""Exports: time per sample and memory, and in C what a state in float32 costs over a long stream.

Prints the tables of docs/export.md. It needs a C compiler and the extra onnx; sizes for a
microcontroller are there where arm-none-eabi-gcc is.
"""

import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Generator

from s4d_torch import SequenceModel
from s4d_torch.deploy import Exported, export_model
from s4d_torch.deploy.export import FORMATS
from s4d_torch.deploy.export.c import compiler

FLAGS = ("-O2", "-O3", "-O3 -march=native")
SIZES = ((2, 32, 16), (4, 64, 32), (6, 128, 64))  # layers, d_model, d_state
LONG, PIECE = 1_000_000, 10_000
CORTEX_M4 = "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -std=c99 -Os -c"

TIMER = """\
#define _POSIX_C_SOURCE 199309L
#include "s4d.h"
#include <stdio.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
    static s4d_state state;
    float u[S4D_SAMPLE] = {0}, y[S4D_OUTPUTS];
    unsigned random = 1;
    double best = 1e9;
    int round, t;
    s4d_init(&state);
    for (round = 0; round < 40; round++) {
        const double start = seconds();
        for (t = 0; t < 500; t++) {
            random = random * 1664525u + 1013904223u;
            u[0] = (float)(random >> 8) / 16777216.0f - 0.5f;
            s4d_push(&state, u, 1, y);
        }
        if (seconds() - start < best)
            best = seconds() - start;
    }
    printf("%g", best / 500);
    return 0;
}
"""


def model_of(layers: int, width: int, size: int, pooling: str = "mean") -> SequenceModel:
    generator = Generator().manual_seed(0)
    return SequenceModel(
        1, 10, width, layers, d_state=size, pooling=pooling, generator=generator
    ).eval()


def best_seconds(call: Callable[[], object], calls: int = 100) -> float:
    """Of processor time for one call, the best of 20 rounds."""
    best = float("inf")
    for _ in range(20):
        start = time.process_time()
        for _ in range(calls):
            call()
        best = min(best, (time.process_time() - start) / calls)
    return best


def push_seconds(folder: Path, command: list[str], flags: str) -> float:
    """Of processor time for one sample, the best of 40 rounds."""
    (folder / "timer.c").write_text(TIMER)
    files = [folder / "timer.c", folder / "s4d.c"]
    program = compiler.build(files, folder / "timer", command, ("-std=c99", *flags.split()))
    return float(compiler.run([str(program)]))


def compiled_seconds(model: SequenceModel) -> float:
    """The same of ``compile_step``, called from Python."""
    stream, u = model.compile_step(), torch.zeros(1, 1)
    return best_seconds(lambda: stream.push(u), calls=500)


def step_seconds(done: Exported, command: list[str]) -> float:
    """One sample through the step of any export, from the language that it is called in."""
    step, path = done.facts["step"], done.step
    assert path is not None
    if done.facts["to"] == "c":
        return push_seconds(done.folder, command, "-O3 -march=native")
    shapes = [(1, *part["shape"][1:]) for part in step["inputs"][1:]]
    state = tuple(torch.zeros(shape, dtype=torch.float64) for shape in shapes)
    call = FORMATS[done.facts["to"]].load_step(path)  # type: ignore[attr-defined]
    with torch.no_grad():
        return best_seconds(lambda: call(torch.zeros(1, 1), state))


def targets(work: Path, command: list[str]) -> Iterator[str]:
    """All formats side by side."""
    names = [" x ".join(map(str, size)) for size in (SIZES[0], SIZES[-1])]
    yield "| to | " + " | ".join(f"{name}: bytes | state | us" for name in names) + " |"
    yield "|---" * 7 + "|"
    for to in FORMATS:
        cells = []
        for size in (SIZES[0], SIZES[-1]):
            done = export_model(model_of(*size), work / to / str(size), to=to)
            step = done.facts["step"]
            shapes = [part["shape"][1:] for part in step["inputs"][1:]]
            carried = step.get("state_bytes", sum(8 * math.prod(shape) for shape in shapes))
            seconds = step_seconds(done, command)
            cells += [str(step["bytes"]), str(carried), f"{1e6 * seconds:.3g}"]
        yield f"| `{to}` | {' | '.join(cells)} |"


def cortex_bytes(done: Exported) -> str:
    """Flash for code and constants on a Cortex-M4."""
    if shutil.which("arm-none-eabi-gcc") is None:
        return ""
    assert done.step is not None
    target = done.folder / "m4.o"
    command = ["arm-none-eabi-gcc", *CORTEX_M4.split(), str(done.step), "-o", str(target)]
    subprocess.run(command, check=True)
    shown = subprocess.run(
        ["arm-none-eabi-size", str(target)], check=True, capture_output=True, text=True
    )
    return shown.stdout.splitlines()[1].split()[0]


def speed(work: Path, command: list[str]) -> Iterator[str]:
    yield (
        f"| model | {' | '.join(f'`{flags}`' for flags in FLAGS)} | compiled step | constants | "
        "state | flash, Cortex-M4 |"
    )
    yield "|---" * (len(FLAGS) + 5) + "|"
    for size in SIZES:
        model, name = model_of(*size), " x ".join(map(str, size))
        own = f"{1e6 * compiled_seconds(model):.3g}"
        for label, options in {
            "": {},
            ", state in double": {"state": "float64"},
            ", int8": {"quantize": "int8"},
        }.items():
            done = export_model(model, work / (name + label), to="c", **options)  # type: ignore[arg-type]
            step = done.facts["step"]
            times = [f"{1e6 * push_seconds(done.folder, command, flags):.3g}" for flags in FLAGS]
            sizes = f"{step['constants']} | {step['state_bytes']} | {cortex_bytes(done)}"
            yield f"| {name}{label} | {' | '.join(times)} | {own} | {sizes} |"


@torch.no_grad()
def drift(work: Path, command: list[str]) -> Iterator[str]:
    """The largest difference from the model in float64, of its largest output."""
    yield "| start of A | state | first 1000 samples | first 100 000 | all 1 000 000 |"
    yield "|---|---|---|---|---|"
    u = torch.randn(LONG, 1, generator=Generator().manual_seed(1))
    for init in ("legs", "inv", "lin"):
        generator = Generator().manual_seed(0)
        options = {"d_state": 32, "init": init, "pooling": "none", "generator": generator}
        model = SequenceModel(1, 10, 32, 2, **options).eval()  # type: ignore[arg-type]
        exact, state, parts = model.double(), None, []
        for piece in u.double().split(PIECE):
            y, state = exact(piece[None], state)
            parts.append(y[0])
        wanted = torch.cat(parts)
        for precision in ("float32", "float64"):
            done = export_model(
                exact, work / init / precision, to="c", state=precision, tolerance=1e-3
            )
            flags = ("-std=c99", "-O3")
            program = compiler.build_driver(done.folder, done.folder, command, flags)
            y = compiler.answers(program, list(u.split(PIECE)), 10)
            errors = (y - wanted).abs() / wanted.abs().max()
            cells = " | ".join(f"{float(errors[:n].max()):.1e}" for n in (1000, 100_000, LONG))
            yield f"| `{init}` | {precision} | {cells} |"


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = compiler.find_compiler()
    if found is None:
        raise SystemExit("no C compiler was found: install gcc or clang")
    version = subprocess.run([*found, "--version"], capture_output=True, text=True, check=True)
    print(f"microseconds per sample; {version.stdout.splitlines()[0]}\n")
    with tempfile.TemporaryDirectory() as name:
        for table in (targets, speed, drift):
            for line in table(Path(name), found):
                print(line, flush=True)
            print()
