"""Exports: time per sample and memory, and in C what a state in float32 costs over a long stream.

Prints the tables of docs/export.md, or those that are named: targets, speed, drift. It needs a C
compiler and the extra onnx; sizes for a microcontroller are there where arm-none-eabi-gcc is, a
page where node is, WebAssembly where emcc is too.
"""

import argparse
import math
import os
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


# The best of 40 rounds of processor time, of what `sample` reads.
ROUNDS = """
const best = (sample) => {
  let found = Infinity;
  for (let round = 0; round < 40; round++) {
    const start = process.cpuUsage();
    for (let t = 0; t < 500; t++) sample(Math.sin(t * t));
    const { user, system } = process.cpuUsage(start);
    found = Math.min(found, (user + system) / 500e6);
  }
  return found;
};
const fs = require("node:fs"), [file, state, outputs] = process.argv.slice(1);
"""
OF_A_PAGE = """
const text = fs.readFileSync(file, "utf8");
const part = (id) => text.split(new RegExp(`<script id="${id}"[^>]*>`))[1].split("</script>")[0];
const { Model } = new Function(`BEFORE; ${part("runtime")}; return { Model };`)();
const model = new Model(JSON.parse(part("model")).model), u = new Float32Array(1);
console.log(best((x) => { u[0] = x; model.step(u, 0); }));
"""
OF_WASM = """
const module = new WebAssembly.Module(fs.readFileSync(file));
const { memory, s4d_init, s4d_push, __heap_base } = new WebAssembly.Instance(module, {}).exports;
const at = __heap_base.value, u = at + Math.ceil(state / 8) * 8;
const given = new Float32Array(memory.buffer, u, 1);
s4d_init(at);
console.log(best((x) => { given[0] = x; s4d_push(at, u, 1, u + 8); }));
"""
EMCC = (
    *("emcc", "-std=c99", "-O3", "-msimd128", "--no-entry", "-Wl,--export=__heap_base"),
    "-sEXPORTED_FUNCTIONS=_s4d_init,_s4d_push,_s4d_reset",
)


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


def in_node(program: str, *given: str) -> float:
    """What a program prints."""
    command = ["node", "--input-type=commonjs", "-e", ROUNDS + program, *given]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def page_seconds(done: Exported, before: str = "") -> float:
    """One sample through the model of a page, in node; ``before`` runs first."""
    program = OF_A_PAGE.replace("BEFORE", before)
    return in_node(program, str(done.step))


def wasm(done: Exported) -> tuple[int, float]:
    """Bytes of the C source as WebAssembly, and seconds for one sample, in node."""
    target = done.folder / "s4d.wasm"
    paths = {"NODE_PATH": "/usr/share/nodejs", **os.environ}  # where Debian's emscripten looks
    subprocess.run([*EMCC, str(done.step), "-o", str(target)], check=True, env=paths)
    seconds = in_node(OF_WASM, str(target), str(done.facts["step"]["state_bytes"]))
    return target.stat().st_size, seconds


def row(name: str, done: Exported, seconds: float, size: int = 0) -> str:
    """Bytes, bytes of the state, and microseconds."""
    step = done.facts["step"]
    shapes = [part["shape"][1:] for part in step["inputs"][1:]]
    carried = step.get("state_bytes", sum(8 * math.prod(shape) for shape in shapes))
    return f"| {name} | {size or step['bytes']} | {carried} | {1e6 * seconds:.3g} |"


def targets(work: Path, command: list[str]) -> Iterator[str]:
    """All formats side by side."""
    node, emcc = (shutil.which(name) is not None for name in ("node", "emcc"))
    for size in (SIZES[0], SIZES[-1]):
        yield f"| {' x '.join(map(str, size))} | bytes | state | us |"
        yield "|---" * 4 + "|"
        model, folder = model_of(*size), work / str(size)
        for to in ("onnx", "pt2", "c"):
            done = export_model(model, folder / to, to=to)
            yield row(f"`{to}`", done, step_seconds(done, command))
        if node and emcc:
            yield row("`c`, by emcc", done, *reversed(wasm(done)))
        done = export_model(model, folder / "int8", to="c", quantize="int8")
        yield row("`c`, int8", done, step_seconds(done, command))
        if node:
            done = export_model(model, folder / "web", to="web")
            yield row("`web`", done, page_seconds(done))
            plain = page_seconds(done, "delete globalThis.WebAssembly")
            yield row("`web`, JavaScript alone", done, plain)
        yield ""


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


TABLES = {"targets": targets, "speed": speed, "drift": drift}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)}; by default all")
    given = parser.parse_args()
    if other := set(given.tables) - set(TABLES):
        parser.error(f"no table {', '.join(sorted(other))}; there are {', '.join(TABLES)}")
    torch.set_num_threads(1)
    found = compiler.find_compiler()
    if found is None:
        raise SystemExit("no C compiler was found: install gcc or clang")
    version = subprocess.run([*found, "--version"], capture_output=True, text=True, check=True)
    print(f"microseconds per sample; {version.stdout.splitlines()[0]}\n")
    with tempfile.TemporaryDirectory() as name:
        for table in given.tables or TABLES:
            for line in TABLES[table](Path(name), found):
                print(line, flush=True)
            print()
