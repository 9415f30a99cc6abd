"""Exports to a page: its model answers as in torch, in node; pages are whole, or refused."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from c_models import FEW, MODELS, job_of, make
from s4d_torch import SequenceModel
from s4d_torch.cli import main
from s4d_torch.data import Signature
from s4d_torch.data.task import TASKS
from s4d_torch.deploy import ExportMismatchError, export_model
from s4d_torch.deploy.export.job import Job
from s4d_torch.deploy.export.pushes import pushed
from s4d_torch.deploy.export.web import node, web_page
from s4d_torch.deploy.export.web.described import view_data
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS, Activation, Mixing
from test_export_c import SIGNATURE, Gated

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node (nodejs)")


ENGINES = {"WebAssembly": "", "JavaScript": "delete globalThis.WebAssembly;"}


def difference(job: Job, folder: Path, engine: str = "WebAssembly") -> float:
    page, before = folder / "index.html", '<script id="runtime">'
    text = web_page(job, "a model").replace(before, before + ENGINES[engine])
    page.write_text(text, encoding="utf-8")

    def answers(blocks: Sequence[Tensor]) -> Tensor:
        assert NODE is not None
        found = node.answers(NODE, page, blocks, job.plan.d_output)
        assert found.engine == engine
        assert found.self_test < 2e-6
        return found.y

    found = pushed(job, answers)
    return found.difference / found.largest


# -- answers --------------------------------------------------------------------------------------


@needs_node
@pytest.mark.parametrize("name", MODELS)
def test_pushes_answer_as_the_model_steps(name: str, tmp_path: Path) -> None:
    assert difference(job_of(make(MODELS[name]), torch.float64), tmp_path) < 2e-6


@needs_node
@pytest.mark.parametrize("name", [*FEW, "one channel", "norm batch after"])
def test_without_web_assembly_it_is_the_same(name: str, tmp_path: Path) -> None:
    job = job_of(make({"d_model": 7, **MODELS[name]}), torch.float64)
    assert difference(job, tmp_path, "JavaScript") < 2e-6
    assert difference(job, tmp_path, "WebAssembly") < 2e-6


def test_the_compiled_loops_are_those_of_their_source() -> None:
    assets = Path(web_page.__code__.co_filename).parent / "assets"
    digest = sha256((assets / "kernels.c").read_bytes()).hexdigest()
    assert digest in (assets / "kernels.js").read_text("ascii"), "run benchmarks/web_kernels.py"


@needs_node
@pytest.mark.parametrize("mixing", ["glu", "linear"])
def test_weights_in_int8(mixing: str, tmp_path: Path) -> None:
    job = job_of(make({"mixing": mixing}), torch.float64, quantize="int8")
    assert difference(job, tmp_path) < 2e-6
    assert '"type":"int8"' in (tmp_path / "index.html").read_text()


@needs_node
def test_another_sampling_rate(tmp_path: Path) -> None:
    done = export_model(make({}), tmp_path / "out", to="web", rate=2.0)
    assert done.difference < 2e-6


@needs_node
def test_the_self_test_can_fail(tmp_path: Path) -> None:
    done = export_model(make({}), tmp_path / "out", to="web")
    page = tmp_path / "out" / "index.html"
    text = page.read_text()
    wrong = text.replace("x[h] += mix(v, h, width)", "x[h] -= mix(v, h, width)")
    assert wrong != text
    page.write_text(wrong)
    u = torch.zeros(1, 5)
    assert NODE is not None
    assert node.answers(NODE, page, [u], 3)[1] > 1e-2
    page.write_text(text)
    assert node.answers(NODE, page, [u], 3)[1] < 1e-6
    assert done.facts["step"]["bytes"] == page.stat().st_size


@needs_node
@pytest.mark.parametrize(
    ("options", "sample", "message"),
    [
        ({}, [0.0, float("nan"), 0.0, 0.0, 0.0], "sample 1 holds"),
        ({"encoder": "embedding"}, [5.0], "sample 1 is 5, expected a whole number from 0 to 4"),
        ({"encoder": "embedding"}, [0.5], "expected a whole number from 0 to 4"),
    ],
)
def test_bad_samples_are_refused(
    options: dict[str, Any], sample: list[float], message: str, tmp_path: Path
) -> None:
    job, page = job_of(make(options)), tmp_path / "index.html"
    page.write_text(web_page(job, "a model"), encoding="utf-8")
    good = [0.0] * len(sample)
    assert NODE is not None
    with pytest.raises(node.NodeError, match=message):
        node.answers(NODE, page, [torch.tensor([good, sample])], 3)


# -- exports --------------------------------------------------------------------------------------


@needs_node
def test_an_export_with_its_card(tmp_path: Path) -> None:
    done = export_model(make({}), tmp_path / "out", to="web", signature=SIGNATURE, name="gestures")
    assert {path.name for path in done.folder.iterdir()} == {
        *("index.html", "README.md", "export.json")
    }
    assert done.step == done.folder / "index.html"
    card = (done.folder / "README.md").read_text()
    assert "It needs a web browser, no server and no network; s4d-torch is not needed" in card
    assert "it has a field for numbers" in card
    assert "Arithmetic is in float32, the state in float64." in card
    page = part(done.folder / "index.html", "model")
    assert page["name"] == "gestures"
    assert page["data"]["classes"] == list(SIGNATURE.classes)


def part(page: Path, name: str) -> Any:
    found = re.search(rf'<script id="{name}"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_what_is_not_checked_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node, "find_node", lambda: None)
    make({}).save_pretrained(tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), "--to", "web", "--name", "My ears"]) == 0
    shown = capsys.readouterr().out
    assert "not checked against the model: there is no node here; the page compares itself" in shown
    page = tmp_path / "model" / "export-web" / "index.html"
    assert part(page, "model")["name"] == "My ears"


def test_the_page_asks_nothing_of_the_network() -> None:
    task = {"task": TASKS["digits"], "options": None}
    known: dict[str, Any]
    for known in ({}, {"signature": SOUND}, {"signature": DRAWN, **task}):
        job = replace(one_input(), **known)
        text = web_page(job, "a model")
        assert not re.search(r"https?:|//\w+\.|\bsrc=|\bimport\(|fetch\(|XMLHttp|@import", text)
        assert not re.search(r"/\*(STYLE|SCRIPT|RUNTIME|MODEL|ACTIVATION|MIXING)\*/", text)


def test_words_of_the_data_cannot_break_out_of_the_page() -> None:
    job, bad = job_of(make({})), "</script><script>alert(1)</script>/*SCRIPT*/"
    known = replace(SIGNATURE, classes=(bad, "b", "c"))
    plain = web_page(replace(job, signature=SIGNATURE), "a model")
    text = web_page(replace(job, signature=known), bad)
    assert text.count("<script") == plain.count("<script")
    assert text.count("function startView") == 1


# -- what a visitor gives -------------------------------------------------------------------------

SOUND = Signature.of_classes("abc", length=8000, sample_rate=8000.0, input_scale=(1e-3,))
DRAWN = Signature.of_classes("abc", length=64)


def one_input(**options: Any) -> Job:
    generator = Generator().manual_seed(0)
    return job_of(SequenceModel(1, 3, 4, 1, d_state=4, generator=generator, **options).eval())


def test_the_view_follows_from_what_is_known() -> None:
    job = one_input()
    assert view_data(job) == {"kind": "numbers"}
    assert view_data(replace(job, signature=SOUND, rate=2.0)) == {
        "kind": "sound",
        "sample_rate": 4000.0,
        "unit": 32768.0,
        "length": 4000,
        "fixed_length": False,
    }
    loud = replace(SOUND, input_scale=(30.0,))  # of sound whose full scale is 1
    assert view_data(replace(job, signature=loud))["unit"] == 1.0
    slow = replace(SOUND, sample_rate=125.0)  # a pulse, no sound
    assert view_data(replace(job, signature=slow)) == {"kind": "numbers"}
    known = {"task": TASKS["digits"], "options": TASKS["digits"].options(), "signature": DRAWN}
    drawn = view_data(replace(job, **known))
    assert drawn == {"kind": "drawing", "side": 8, "brightest": 16.0, "box": 1.0, "order": ()}
    known = {"task": TASKS["pmnist"], "options": TASKS["pmnist"].options(), "signature": DRAWN}
    assert sorted(view_data(replace(job, **known))["order"]) == list(range(784))
    text = job_of(make({"encoder": "embedding"}))
    assert view_data(text) == {"kind": "numbers"}


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "export", "message"),
    [
        ({"bidirectional": True}, {}, r"looks ahead.*JavaScript.*--causal.*nothing was written"),
        ({}, {"quantize": "float16"}, r"web has no float16; use int8; nothing was written"),
        ({}, {"state": "float32"}, r"the state of web is float64, got state='float32'"),
        ({}, {"name": " "}, r"the name of a page is its title, and was empty"),
    ],
)
def test_what_cannot_be_written(
    options: dict[str, Any], export: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        export_model(make(options), tmp_path / "out", to="web", **export)
    assert not list(tmp_path.iterdir())


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no earlier export"):
        export_model(make({}), tmp_path, to="web")
    assert (tmp_path / "index.html").read_text() == "mine"


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    model = make({})
    with torch.no_grad():
        model._each_block()[0].layer.output.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"NaN or infinit.*nothing was written"):
        export_model(model, tmp_path / "out", to="web")
    assert not list(tmp_path.iterdir())


@needs_node
def test_choices_of_ones_own(tmp_path: Path) -> None:
    with (
        ACTIVATIONS._added("softsign", Activation(nn.Softsign, c="x / (1.0f + fabsf(x))")),
        pytest.raises(ValueError, match=r"'softsign': no form in JavaScript.*js= for the act"),
    ):
        export_model(make({"activation": "softsign"}), tmp_path / "out", to="web")
    assert not list(tmp_path.iterdir())
    softsign = Activation(nn.Softsign, js="x / (1 + Math.abs(x))")
    gated = Mixing(2, Gated, js="v[h] * Math.tanh(v[h + width])")
    with ACTIVATIONS._added("softsign", softsign), MIXINGS._added("gated", gated):
        model = make({"activation": "softsign", "mixing": "gated"})
        assert export_model(model, tmp_path / "out", to="web").difference < 2e-6


@needs_node
def test_what_disagrees_or_does_not_run_is_not_written(tmp_path: Path) -> None:
    for js, message in (("x < 0.1 ? 0 : x", "self-test|differs"), ("noSuch(x)", "noSuch is not")):
        with (
            ACTIVATIONS._added("wrong", Activation(nn.ReLU, js=js)),
            pytest.raises((node.NodeError, ExportMismatchError), match=message),
        ):
            export_model(make({"activation": "wrong"}), tmp_path / "out", to="web")
    with pytest.raises(ExportMismatchError, match="nothing was written"):
        export_model(make({}), tmp_path / "out", to="web", tolerance=1e-15)
    assert not list(tmp_path.iterdir())
