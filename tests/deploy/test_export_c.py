"""Models as C: every choice of the registries, compiled strictly, the same answers."""

import json
import math
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from s4d_torch import SequenceModel
from s4d_torch.cli import main
from s4d_torch.data import Signature
from s4d_torch.deploy import ExportMismatchError, export_model, quantized
from s4d_torch.deploy.export.c import compiler, format, templates, text
from s4d_torch.deploy.export.c.format import CFormat
from s4d_torch.deploy.export.c.tables import make_tables
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.quantize import quantized_plan
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS, Activation, Mixing
from s4d_torch.nn.method import METHODS
from s4d_torch.nn.model import POOLINGS
from s4d_torch.nn.norm import NORMS
from s4d_torch.nn.plan import make_plan
from s4d_torch.ssm.discretization import DISCRETIZATIONS

COMPILER = compiler.find_compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc, gcc or clang)")
SANITIZED = (*compiler.STRICT, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

WARNINGS = ("-Wshadow", "-Wconversion", "-Wdouble-promotion", "-Wmissing-prototypes", "-Wcast-qual")

# every entry of the registries once, and what a plan has besides
MODELS: dict[str, dict[str, Any]] = {
    **{f"norm {name}": {"norm": name} for name in NORMS},
    **{f"norm {name} after": {"norm": name, "prenorm": False} for name in NORMS},
    **{f"activation {name}": {"activation": name} for name in ACTIVATIONS},
    **{f"mixing {name}": {"mixing": name} for name in MIXINGS},
    **{f"pooling {name}": {"pooling": name} for name in POOLINGS},
    **{f"method {name}": {"method": name} for name in METHODS},
    **{f"discretization {name}": {"discretization": name} for name in DISCRETIZATIONS},
    "real modes": {"init": "real"},
    "tokens": {"encoder": "embedding", "pooling": "none"},
    "pairs": {"towers": 2},
    "pairs of tokens": {"towers": 2, "encoder": "embedding", "method": "s4", "pooling": "last"},
    "one channel": {"d_model": 1, "n_layers": 1},
    "many channels": {"d_model": 12, "n_layers": 1, "d_state": 2},
    "double precision": {"dtype": torch.float64, "n_ssm": 1},
}
FEW = ("norm layer", "method s4", "pairs of tokens", "real modes", "mixing none")


def make(options: dict[str, Any]) -> SequenceModel:
    generator = Generator().manual_seed(0)
    options = {"d_model": 6, "n_layers": 2, "d_state": 4, "generator": generator, **options}
    model = SequenceModel(5, 3, **options).eval()
    for block in model._each_block():  # running statistics that are not those of a fresh model
        if hasattr(block.norm, "running_mean"):
            block.norm.running_mean.normal_(generator=generator)
            block.norm.running_var.uniform_(0.5, 2, generator=generator)
    return model


def job_of(
    model: SequenceModel, state: torch.dtype = torch.float32, quantize: str | None = None
) -> Job:
    plan = make_plan(model)
    if quantize is None:
        return Job(plan, model, 1.0, state)
    return Job(quantized_plan(plan, quantize), quantized(model, quantize), 1.0, state)


def write(job: Job, folder: Path) -> Path:
    folder.mkdir()
    CFormat().write(job, folder, lambda _: None)
    return folder


def built(folder: Path, flags: Sequence[str] = compiler.STRICT, cc: Sequence[str] = ()) -> Path:
    assert cc or COMPILER
    return compiler.build_driver(folder, folder, list(cc) or COMPILER or [], flags)


def difference(job: Job, program: Path) -> float:
    found = format.pushed(job, program)
    return float(found.difference / found.largest)


# -- answers --------------------------------------------------------------------------------------


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
    u = format.samples(job, 100, seed=3)
    size = CFormat().describe(job, folder)["step"]["state_bytes"]
    given = [str(wasm), str(size), "3", json.dumps(u.flatten().tolist())]
    read, *answers = json.loads(compiler.run(["node", str(folder / "run.js"), *given]))
    assert read == 0
    wanted = format.steps(job, u)
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


# -- exports --------------------------------------------------------------------------------------

SIGNATURE = Signature(
    "classification",
    features=5,
    outputs=3,
    length=90,
    classes=('do"wn', "fl??/at\\", "\u00fcp"),
    channels=("a", "b*/", "c", "d", "e"),
    input_shift=(0.5,),
    input_scale=(2.0,),
    sample_rate=100.0,
)


@needs_compiler
def test_an_export_with_its_card(tmp_path: Path) -> None:
    done = export_model(make({}), tmp_path / "out", to="c", signature=SIGNATURE)
    assert {path.name for path in done.folder.iterdir()} == {
        *("s4d.h", "s4d.c", "README.md", "export.json")
    }
    assert done.difference < 1e-5
    assert done.step == done.folder / "s4d.c"
    with pytest.raises(ValueError, match="no file for whole sequences"):
        _ = done.sequence
    card = (done.folder / "README.md").read_text()
    assert "a C99 compiler and the C library; s4d-torch is not needed" in card
    assert "(x - s4d_input_shift[i]) * s4d_input_scale[i]" in card
    header = (done.folder / "s4d.h").read_text()
    assert "100 samples per second" in header
    found = re.search(r"```c\n(.*?)\n```", card, re.DOTALL)
    assert found is not None
    names = 'for (i = 0; i < S4D_OUTPUTS; i++)\n        printf("%s %g\\n", s4d_classes[i], '
    program = found[1].replace('for (i = 0; i < S4D_OUTPUTS; i++)\n        printf("%g\\n", ', names)
    (done.folder / "use.c").write_text(program)
    files = [done.folder / "use.c", done.folder / "s4d.c"]
    built = compiler.build(files, tmp_path / "use", COMPILER or [], compiler.STRICT)
    lines = compiler.run([str(built)]).decode().splitlines()
    assert tuple(line.rpartition(" ")[0] for line in lines) == SIGNATURE.classes
    with torch.no_grad():
        wanted = make({})(torch.zeros(1, 1000, 5))[0][0]
    answers = [float(line.split()[-1]) for line in lines]
    torch.testing.assert_close(torch.tensor(answers), wanted, rtol=1e-4, atol=1e-5)


@needs_compiler
@torch.no_grad()
def test_the_program_of_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```c\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    model = SequenceModel(1, 3, 8, 1, d_state=4, generator=Generator().manual_seed(0)).eval()
    folder = write(job_of(model), tmp_path / "out")
    (folder / "use.c").write_text(program)
    files = [folder / "use.c", folder / "s4d.c"]
    use = compiler.build(files, folder / "use", COMPILER or [], compiler.STRICT)
    u = torch.randn(30, generator=Generator().manual_seed(1))
    shown = compiler.run([str(use)], " ".join(map(str, u.tolist())).encode())
    answers = torch.tensor([float(word) for word in shown.split()])
    torch.testing.assert_close(answers, model(u[None, :, None])[0][0], rtol=0, atol=2e-5)


@needs_compiler
def test_a_regression_has_its_unit_and_rate(tmp_path: Path) -> None:
    known = Signature(
        "regression", 5, 3, 90, target_shift=-60.0, target_scale=1e-20, sample_rate=100.0
    )
    export_model(make({}), tmp_path / "out", to="c", signature=known, rate=2.0)
    header = (tmp_path / "out" / "s4d.h").read_text()
    assert "fixed at rate=2" in header
    assert "50 samples per second" in header
    assert "#define S4D_TARGET_SHIFT (-60.0f)\n#define S4D_TARGET_SCALE (1e-20f)\n" in header


def test_what_is_not_checked_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    make({}).save_pretrained(tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), "--to", "c"]) == 0
    shown = capsys.readouterr().out
    assert "they were not checked against the model: there is no C compiler here" in shown
    folder = tmp_path / "model" / "export-c"
    assert "Not checked against the model" in (folder / "README.md").read_text()
    assert json.loads((folder / "export.json").read_text())["checked"]["difference"] is None
    assert math.isnan(export_model(make({}), tmp_path / "out", to="c").difference)


@needs_compiler
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make({}).save_pretrained(tmp_path / "model")
    arguments = ("--to", "c", "--state", "float64", "--quantize", "int8")
    assert main(["export", str(tmp_path / "model"), *arguments]) == 0
    shown = capsys.readouterr()
    assert f"wrote {tmp_path / 'model' / 'export-c-int8'}: s4d.c" in shown.out
    assert "1e-05 allowed" in shown.out
    assert "state 0.4 kB in float64" in shown.out
    assert "mixing matrices as int8: s4d.c" in shown.out
    assert "compiling s4d.c" in shown.err
    assert main(["export", str(tmp_path / "model"), "--to", "onnx", "--state", "float32"]) == 1
    assert "the state of onnx is float64, got state='float32'" in capsys.readouterr().err


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "export", "message"),
    [
        ({"bidirectional": True}, {}, r"looks ahead.*--causal.*nothing was written"),
        ({}, {"quantize": "float16"}, r"c has no float16; use int8; nothing was written"),
        ({}, {"state": "float16"}, r"the state of c is float32 or float64, got state='float16'"),
    ],
)
def test_what_cannot_be_written(
    options: dict[str, Any], export: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        export_model(make(options), tmp_path / "out", to="c", **export)
    assert not list(tmp_path.iterdir())


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s4d.c").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no earlier export"):
        export_model(make({}), tmp_path, to="c")
    assert (tmp_path / "s4d.c").read_text() == "mine"


@needs_compiler
def test_choices_of_ones_own(tmp_path: Path) -> None:
    with (
        ACTIVATIONS._added("softsign", nn.Softsign),
        pytest.raises(ValueError, match=r"activation 'softsign': no form in C.*c= for the act"),
    ):
        export_model(make({"activation": "softsign"}), tmp_path / "out", to="c")
    assert not list(tmp_path.iterdir())
    softsign = Activation(nn.Softsign, c="x / (1.0f + fabsf(x))")
    gated = Mixing(2, Gated, c="v[h] * tanhf(v[h + S4D_WIDTH])")
    with ACTIVATIONS._added("softsign", softsign), MIXINGS._added("gated", gated):
        model = make({"activation": "softsign", "mixing": "gated"})
        assert export_model(model, tmp_path / "out", to="c").difference < 1e-5


class Gated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        value, gate = x.chunk(2, dim=-1)
        return value * gate.tanh()


@needs_compiler
def test_what_disagrees_or_does_not_compile_is_not_written(tmp_path: Path) -> None:
    wrong = Activation(nn.ReLU, c="x < 0.1f ? 0.0f : x")
    with (
        ACTIVATIONS._added("wrong", wrong),
        pytest.raises((compiler.CompilerError, ExportMismatchError), match="nothing was written"),
    ):
        export_model(make({"activation": "wrong"}), tmp_path / "out", to="c")
    with (
        ACTIVATIONS._added("wrong", Activation(nn.ReLU, c="no_such_function(x)")),
        pytest.raises(compiler.CompilerError, match=r"s4d.c:\d+:\d+: .*no_such_function"),
    ):
        export_model(make({"activation": "wrong"}), tmp_path / "out", to="c")
    with pytest.raises(ExportMismatchError, match="a state in float64 keeps more digits"):
        export_model(make({}), tmp_path / "out", to="c", tolerance=1e-12)
    assert not list(tmp_path.iterdir())


# -- functions, words and numbers ------------------------------------------------------------------


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


def test_numbers_are_read_back_as_they_were() -> None:
    generator = Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(50, generator=generator, dtype=dtype) * 10.0 ** torch.arange(-25, 25)
        x = torch.cat([x, torch.tensor([0.0, -0.0, 1.0, 3e7, 1e16], dtype=dtype)]).to(dtype)
        words = re.findall(r"[^\s,{}]+", text.initializer(x))
        assert all(word.endswith("f") == (dtype == torch.float32) for word in words)
        assert all("." in word or "e" in word for word in words)  # 1f is no number of C
        read = torch.tensor([float(word.rstrip("f")) for word in words], dtype=dtype)
        assert torch.equal(read, x)
    assert text.initializer(torch.tensor([[1, 2], [3, 4]], dtype=torch.int8)).split() == [
        *("{", "{", "1,", "2", "},", "{", "3,", "4", "}", "}")
    ]
    with pytest.raises(ValueError, match="NaN or too large for float; nothing was written"):
        text.initializer(torch.tensor([1e300]).float())


def test_comments_cannot_be_left() -> None:
    words = text.comment("a */ int x; /* b ??/ \x1b[31m \u00fc\\")
    assert words.count("*/") == 1
    assert words.count("/*") == 1
    assert words.isascii()
    assert not set(words) & set("\x1b\\")
    long = text.comment("word " * 100)
    assert max(map(len, long.splitlines())) <= text.LINE
