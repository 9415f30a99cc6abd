"""Exports to C: checked before they are kept, with a card that is true, or refused."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from c_models import (
    COMPILER,
    job_of,
    make,
    needs_compiler,
    write,
)
from s4d_torch import SequenceModel
from s4d_torch.cli import main
from s4d_torch.data import Signature
from s4d_torch.deploy import ExportMismatchError, export_model
from s4d_torch.deploy.export.c import compiler, text
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS, Activation, Mixing

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


# -- words and numbers ---------------------------------------------------------------------------


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


# -- names ---------------------------------------------------------------------------------------


@needs_compiler
@torch.no_grad()
def test_two_models_in_one_program(tmp_path: Path) -> None:
    words = (*SIGNATURE.classes[:2], "s4d_own")  # the user's own words stay as they are
    known = replace(SIGNATURE, classes=words, channels=("s4d_a", "b", "c", "d", "e"))
    models = {"gestures": make({}), "Sounds": make({"method": "s4", "norm": "batch"})}
    for name, model in models.items():
        done = export_model(model, tmp_path / name, to="c", name=name, signature=known)
        assert done.step == tmp_path / name / f"{name}.c"
        assert done.difference < 1e-5
        card = (done.folder / "README.md").read_text()
        assert f"{name}_push(&state, u, 1, y)" in card
        text = (done.folder / f"{name}.h").read_text() + done.step.read_text()
        left = set(re.findall(r"\b[sS]4[dD]\w*", text))
        assert left == {"s4d", "s4d_a", "s4d_own"}  # the first is who wrote it, s4d-torch
    program = """
    #include "gestures.h"
    #include "Sounds.h"
    #include <stdio.h>
    static gestures_state first;
    static Sounds_state second;
    int main(void)
    {
        float u[GESTURES_SAMPLE] = {0.5f, 1.0f, -1.0f, 0.25f, 2.0f}, y[SOUNDS_OUTPUTS];
        int t, i;
        gestures_init(&first);
        Sounds_init(&second);
        for (t = 0; t < 20; t++)
            if (gestures_push(&first, u, 1, y) != 0)
                return 1;
        for (i = 0; i < GESTURES_OUTPUTS; i++)
            printf("%.6f\\n", y[i]);
        for (t = 0; t < 20; t++)
            if (Sounds_push(&second, u, 1, y) != 0)
                return 1;
        for (i = 0; i < SOUNDS_OUTPUTS; i++)
            printf("%.6f\\n", y[i]);
        return gestures_classes[2] != NULL && Sounds_classes[2] != NULL ? 0 : 1;
    }
    """
    (tmp_path / "main.c").write_text(program)
    files = [tmp_path / "main.c", *(tmp_path / name / f"{name}.c" for name in models)]
    flags = (*compiler.STRICT, *(f"-I{tmp_path / name}" for name in models))
    built = compiler.build(files, tmp_path / "both", COMPILER or [], flags)
    answers = [float(line) for line in compiler.run([str(built)]).split()]
    u = torch.tensor([0.5, 1.0, -1.0, 0.25, 2.0]).expand(1, 20, 5)
    wanted = torch.cat([model(u)[0][0] for model in models.values()])
    torch.testing.assert_close(torch.tensor(answers), wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("to", "name", "message"),
    [
        ("c", "2nd", r"name '2nd' cannot begin the names of C functions.*nothing was written"),
        ("c", "my model", r"cannot begin the names of C functions"),
        ("c", "math", r"math.h is a header of the C library.*'math_model'"),
        ("pt2", "mine", r"nothing in a graph to be called 'mine'; a name is for 'c' and 'web'"),
    ],
)
def test_names_that_cannot_be(to: str, name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        export_model(make({}), tmp_path / "out", to=to, name=name)
    assert not list(tmp_path.iterdir())
