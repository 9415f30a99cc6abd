"""Programs of exports to C: every choice of the registries, compiled strictly, the same answers."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Generator

from c_models import (
    COMPILER,
    FEW,
    MODELS,
    SANITIZED,
    WARNINGS,
    built,
    difference,
    job_of,
    make,
    needs_compiler,
    write,
)
from s4d_torch import SequenceModel
from s4d_torch.deploy.export import pushes
from s4d_torch.deploy.export.c import compiler, templates
from s4d_torch.deploy.export.c.format import CFormat
from s4d_torch.deploy.export.c.tables import make_tables
from s4d_torch.nn.activation import MIXINGS
from s4d_torch.nn.plan import make_plan


@needs_compiler
@pytest.mark.parametrize("name", MODELS)
def test_pushes_answer_as_the_model_steps(name: str, tmp_path: Path) -> None:
    job = job_of(make(MODELS[name]))
    assert difference(job, built(write(job, tmp_path / "out"))) < 1e-5


@needs_compiler
@pytest.mark.parametrize("name", ["norm layer", "method s4", "real modes"])
def test_a_state_in_double(name: str, tmp_path: Path) -> None:
    job = job_of(make(MODELS[name]), torch.float64)
    assert difference(job, built(write(job, tmp_path / "out"))) < 2e-6
    assert "typedef double s4d_real;" in (tmp_path / "out" / "s4d.h").read_text()


@needs_compiler
@pytest.mark.parametrize("mixing", ["glu", "linear"])
def test_weights_in_int8(mixing: str, tmp_path: Path) -> None:
    model = make({"mixing": mixing})
    job = job_of(model, quantize="int8")
    assert difference(job, built(write(job, tmp_path / "out"))) < 1e-5
    assert "int8_t mixing_weight[S4D_WIDTH][S4D_MIXED];" in (tmp_path / "out" / "s4d.c").read_text()
    less = (
        make_tables(make_plan(model), torch.float32).bytes
        - make_tables(job.plan, torch.float32).bytes
    )
    outputs = MIXINGS[mixing].width * 6
    assert less == 2 * (3 * 6 * outputs - 4 * outputs)  # a byte for four, and a scale per output


@needs_compiler
@pytest.mark.parametrize("name", FEW)
def test_under_the_sanitizers(name: str, tmp_path: Path) -> None:
    job = job_of(make(MODELS[name]))
    folder = write(job, tmp_path / "out")
    try:
        program = built(folder, SANITIZED)
    except compiler.CompilerError as error:
        if re.search(r"cannot find.*(asan|ubsan)|unsupported option", str(error)):
            pytest.skip("the compiler has no sanitizers")
        raise
    assert difference(job, program) < 1e-5


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("name", ["norm layer", "method s4"])
def test_the_self_test_and_warnings_of_both_compilers(cc: str, name: str, tmp_path: Path) -> None:
    if shutil.which(cc) is None:
        pytest.skip(f"there is no {cc}")
    for state, level in ((torch.float32, "-Ofast"), (torch.float64, "-O0")):
        folder = write(job_of(make(MODELS[name]), state), tmp_path / level)
        flags = (*compiler.STRICT, *WARNINGS, level, "-DS4D_SELF_TEST")
        program = compiler.build([folder / "s4d.c"], folder / "test", [cc], flags)
        assert b"self-test passed" in compiler.run([str(program)])


@needs_compiler
def test_the_self_test_can_fail(tmp_path: Path) -> None:
    folder = write(job_of(make({})), tmp_path / "out")
    source = folder / "s4d.c"
    code = source.read_text()
    source.write_text(code.replace("x[h] += v[h] * sigmoid", "x[h] -= v[h] * sigmoid"))
    assert source.read_text() != code
    flags = (*compiler.STRICT, "-DS4D_SELF_TEST")
    program = compiler.build([source], folder / "test", COMPILER or [], flags)
    ran = subprocess.run([str(program)], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "self-test FAILED" in ran.stdout


def test_32_bits_in_an_emulator(tmp_path: Path) -> None:
    """As on a small computer: an ARM of 32 bits."""
    cc, emulator = "arm-linux-gnueabihf-gcc", shutil.which("qemu-arm-static")
    emulator = emulator or shutil.which("qemu-arm")
    if shutil.which(cc) is None or emulator is None:
        pytest.skip(f"there is no {cc}, or no qemu-arm")
    for name in ("norm layer", "method s4"):
        job = job_of(make(MODELS[name] | {"d_model": 8}))
        folder = write(job, tmp_path / name)
        flags = (*compiler.STRICT, "-static", "-DS4D_SELF_TEST")
        program = compiler.build([folder / "s4d.c"], folder / "test", [cc], flags)
        assert b"self-test passed" in compiler.run([emulator, str(program)])


NODE = """
const fs = require("fs");
const [file, state_bytes, outputs, numbers] = process.argv.slice(2);
WebAssembly.instantiate(fs.readFileSync(file), {}).then(({ instance }) => {
  const { memory, s4d_init, s4d_push, __heap_base } = instance.exports;
  const samples = new Float32Array(JSON.parse(numbers));
  const state = __heap_base.value;  // from here on memory is free
  const u = state + Math.ceil(state_bytes / 8) * 8, y = u + 4 * samples.length;
  new Float32Array(memory.buffer, u, samples.length).set(samples);
  s4d_init(state);
  const read = s4d_push(state, u, samples.length, y);
  const answers = new Float32Array(memory.buffer, y, samples.length * outputs);
  console.log(JSON.stringify([read, ...answers]));
});
"""


@torch.no_grad()
def test_webassembly_in_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file without imports: any page or program that runs WebAssembly can use it."""
    if shutil.which("emcc") is None or shutil.which("node") is None:
        pytest.skip("there is no emcc (emscripten), or no node")
    if "NODE_PATH" not in os.environ:  # where Debian's emscripten looks for its parts
        monkeypatch.setenv("NODE_PATH", "/usr/share/nodejs")
    model = SequenceModel(1, 3, 8, 2, d_state=4, generator=Generator().manual_seed(0)).eval()
    job = job_of(model)
    folder = write(job, tmp_path / "out")
    exports = "-sEXPORTED_FUNCTIONS=_s4d_init,_s4d_push,_s4d_reset"
    flags = ("-std=c99", "-O3", "-msimd128", "--no-entry", exports, "-Wl,--export=__heap_base")
    wasm = compiler.build([folder / "s4d.c"], folder / "s4d.wasm", ["emcc"], flags)
    (folder / "run.js").write_text(NODE)
    u = pushes.samples(job, 100, seed=3)
    size = CFormat().describe(job, folder)["step"]["state_bytes"]
    given = [str(wasm), str(size), "3", json.dumps(u.flatten().tolist())]
    read, *answers = json.loads(compiler.run(["node", str(folder / "run.js"), *given]))
    assert read == 0
    wanted = pushes.steps(job, u)
    torch.testing.assert_close(torch.tensor(answers).unflatten(0, (-1, 3)), wanted)


@needs_compiler
def test_a_block_is_refused_as_a_whole(tmp_path: Path) -> None:
    nan, negative = "0x7fc00000u", "0xffffffffu"  # as a float, as a token
    for options, bad in (({}, nan), ({"encoder": "embedding"}, negative)):
        job = job_of(make(options))
        folder = write(job, tmp_path / bad)
        (folder / "main.c").write_text(
            """#include "s4d.h"
            #include <string.h>
            int main(void) {
                const uint32_t bits = BAD;
                static s4d_state state, before;
                s4d_input u[3 * S4D_SAMPLE] = {0};
                float y[3 * S4D_OUTPUTS];
                s4d_init(&state);
                if (s4d_push(&state, u, 3, y) != 0) return 1;
                before = state;
                memcpy(&u[2 * S4D_SAMPLE], &bits, sizeof bits);
                if (s4d_push(&state, u, 3, y) != -1) return 2;
                if (memcmp(&state, &before, sizeof state) != 0) return 3;
                s4d_reset(&state);
                memset(&before, 0, sizeof before);
                return memcmp(&state, &before, sizeof state) != 0 ? 4 : 0;
            }"""
        )
        flags = (*compiler.STRICT, "-ffast-math", f"-DBAD={bad}", f"-I{folder}")
        files = [folder / "main.c", folder / "s4d.c"]
        compiler.run([str(compiler.build(files, folder / "main", COMPILER or [], flags))])


@needs_compiler
def test_sizes_are_what_the_card_says(tmp_path: Path) -> None:
    for name in ("norm layer", "pooling last", "real modes", "pairs of tokens"):
        job = job_of(make(MODELS[name]), torch.float64)
        folder = write(job, tmp_path / name)
        (folder / "main.c").write_text(
            '#include "s4d.h"\n#include <stdio.h>\n'
            'int main(void) { printf("%lu", (unsigned long)sizeof(s4d_state)); return 0; }\n'
        )
        flags = (*compiler.STRICT, f"-I{folder}")
        program = compiler.build([folder / "main.c"], folder / "main", COMPILER or [], flags)
        said = CFormat().describe(job, folder)["step"]["state_bytes"]
        assert int(compiler.run([str(program)])) == said


@pytest.mark.parametrize("name", ["norm layer", "method s4", "pairs"])
def test_the_stack_is_no_deeper_than_the_card_says(name: str, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    job = job_of(make(MODELS[name] | {"d_model": 32}), torch.float64)
    folder = write(job, tmp_path / "out")
    for level in ("-Os", "-O3"):
        flags = (*compiler.STRICT, level, "-fstack-usage", "-c")
        compiler.build([folder / "s4d.c"], folder / "s4d.o", ["gcc"], flags)
        (found,) = folder.glob("*.su")
        frames = [int(line.split("\t")[1]) for line in found.read_text().splitlines()]
        assert 32 * 4 < sum(frames) <= CFormat().describe(job, folder)["step"]["stack_bytes"]


@needs_compiler
@torch.no_grad()
def test_long_streams(tmp_path: Path) -> None:
    """Over 20 000 samples a state in float32 costs some digits, one in double none."""
    model = make({"d_model": 8, "d_state": 32, "pooling": "none"})
    u = torch.randn(20_000, 5, generator=Generator().manual_seed(2))
    wanted = model(u[None])[0][0]
    found = []
    for state in (torch.float32, torch.float64):
        program = built(write(job_of(model, state), tmp_path / str(state)))
        y = compiler.answers(program, [u], 3)
        found.append(float((y - wanted).abs().max() / wanted.abs().max()))
    assert found[1] < 2e-6 < 1e-3
    assert found[0] < 1e-3


@needs_compiler
@pytest.mark.parametrize("level", ["-O0", "-O3", "-Ofast"])
def test_functions_that_are_not_of_the_library(level: str, tmp_path: Path) -> None:
    functions = (templates.DECAY, templates.SIGMOID, templates.NORMAL)
    main = """int main(void)
    {
        float x, y[3];
        while (fread(&x, sizeof x, 1, stdin) == 1) {
            y[0] = decay(fabsf(x));
            y[1] = sigmoid(x);
            y[2] = normal(x);
            fwrite(y, sizeof y, 1, stdout);
        }
        return 0;
    }"""
    includes = "".join(f"#include <{name}.h>\n" for name in ("math", "stdint", "stdio", "string"))
    source = tmp_path / "main.c"
    source.write_text("\n".join([includes, *functions, main]))
    flags = (*compiler.STRICT, level)
    program = compiler.build([source], tmp_path / "main", COMPILER or [], flags)
    x = torch.cat([torch.linspace(-12, 12, 20_001), torch.tensor([-0.0, 86.9, -1e4, 3e38])])
    y = torch.frombuffer(
        bytearray(compiler.run([str(program)], x.numpy().tobytes())), dtype=x.dtype
    )
    decay, sigmoid, normal = y.unflatten(0, (-1, 3)).unbind(1)
    exact = x.double()
    wanted = exact.abs().neg().exp()
    seen = wanted > 1e-37  # what is smaller is about that small
    assert float((decay - wanted).abs()[seen].div(wanted[seen]).max()) < (
        1e-6 if level == "-Ofast" else 3e-7
    )
    assert float(decay[~seen].max()) < 2e-37
    assert float((sigmoid - exact.sigmoid()).abs().max()) < 2e-7
    assert float((normal - torch.special.ndtr(exact)).abs().max()) < 2e-7
