"""Exports: checked before they are kept, whole or not at all, with a card that is true."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator
from torch.testing import assert_close

from s4d_torch import SequenceModel
from s4d_torch.cli import main
from s4d_torch.data import Dataset, Signature, Split
from s4d_torch.data.dataset import Sequences
from s4d_torch.deploy import Exported, ExportMismatchError, export_model, quantized
from s4d_torch.deploy.export import exporter
from s4d_torch.deploy.export.quantize import quantized_plan
from s4d_torch.deploy.export.torch_model import ExportedStep
from s4d_torch.nn.baselines import ConvNet
from s4d_torch.nn.plan import make_plan

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIGNATURE = Signature(
    "classification",
    features=2,
    outputs=3,
    length=90,
    classes=("down", "flat", "up"),
    input_shift=(0.5, 0.0),
    input_scale=(2.0, 1.0),
    sample_rate=100.0,
)


def model(**options: Any) -> SequenceModel:
    options = {"d_state": 4, "generator": Generator().manual_seed(0), **options}
    return SequenceModel(2, 3, options.pop("d_model", 6), options.pop("n_layers", 1), **options)


def dataset() -> Dataset:
    random = np.random.default_rng(0)
    inputs = Sequences(random.standard_normal((40, 20, 2)).astype(np.float32))
    whole = Split.whole(inputs, np.arange(40) % 3)
    return Dataset(whole, whole, whole, SIGNATURE)


def run_example(done: Exported, also: str) -> str:
    """Run the code of the card in its folder, by an interpreter that has no s4d_torch."""
    card = (done.folder / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)\n```", card, re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) <= 10
    code = f"import sys; sys.modules['s4d_torch'] = None\n{found[1]}\n{also}"
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, cwd=done.folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout.strip()


# -- what is written ------------------------------------------------------------------------------


def test_onnx_with_its_card_and_facts(tmp_path: Path) -> None:
    exact = model(n_layers=2)
    done = export_model(exact, tmp_path / "deep" / "out", signature=SIGNATURE)
    assert {path.name for path in done.folder.iterdir()} == {
        *("sequence.onnx", "step.onnx", "README.md", "export.json")
    }
    assert done.difference < 1e-5
    facts = json.loads((done.folder / "export.json").read_text())
    assert facts["data"]["classes"] == ["down", "flat", "up"]
    assert facts["config"] == exact.config
    assert {(row["batch"], row["length"]) for row in facts["checked"]["sequence"]} > {
        *((1, 1), (3, 65), (2, 200), (1, 90))  # and the length of the training data
    }
    names = [each["name"] for each in facts["step"]["inputs"]]
    assert names == ["u", "state_0", "state_1", "total", "samples"]
    card = (done.folder / "README.md").read_text()
    for told in (
        "classes: 0: down, 1: flat, 2: up",
        "shift [0.5, 0.0] and scale [2.0, 1.0]",
        "100 samples per second",
        "| in | `state_1` | float64 | (batch, 6, 4) |",
        "s4d-torch is not needed",
    ):
        assert told in card
    assert list((tmp_path / "deep").iterdir()) == [done.folder]
    u = (torch.zeros(2, 1000, 2) - torch.tensor([0.5, 0.0])) * torch.tensor([2.0, 1.0])
    printed = run_example(done, "print(*y.ravel().tolist(), *y_t.ravel().tolist())")
    answers = torch.tensor([float(word) for word in printed.split()])
    with torch.no_grad():
        wanted = torch.cat([exact.eval()(x)[0].flatten() for x in (u, u[:, :1])])
    assert_close(answers, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """As a torch.export archive: slow to make, so made once."""
    folder = tmp_path_factory.mktemp("archive") / "out"
    return export_model(model(), folder, to="pt2", signature=SIGNATURE)


def test_an_archive_needs_torch_alone(archive: Exported) -> None:
    assert archive.difference < 1e-5
    assert "PyTorch alone" in (archive.folder / "README.md").read_text()
    also = "print(tuple(y.shape), tuple(y_t.shape), y.dtype, len(state))"
    assert run_example(archive, also) == "(2, 3) (2, 3) torch.float32 3"


@torch.no_grad()
def test_an_archive_of_other_sizes_than_it_was_made_with(archive: Exported) -> None:
    exact, generator = model().eval(), Generator().manual_seed(3)
    sequence = torch.export.load(archive.sequence).module()
    for batch, length in ((1, 1), (5, 128), (2, 1000)):
        u = torch.randn(batch, length, 2, generator=generator)
        lengths = torch.randint(1, length + 1, (batch,), generator=generator)
        wanted = exact(u, lengths=lengths)[0]
        assert_close(sequence(u, lengths), wanted, rtol=1e-4, atol=1e-5)


def test_an_archive_holds_no_paths_of_its_maker(archive: Exported) -> None:
    assert archive.step is not None
    for file in (archive.sequence, archive.step):
        with zipfile.ZipFile(file) as content:
            everything = b"".join(content.read(name) for name in content.namelist())
        assert b"torch_model" not in everything
        assert b"s4d_torch" not in everything
        assert str(Path(exporter.__file__).parent).encode() not in everything


@torch.no_grad()
def test_an_archive_that_looks_ahead(tmp_path: Path) -> None:
    both_ways = model(
        bidirectional=True, method="s4", encoder="embedding", pooling="none", norm="batch"
    )
    done = export_model(both_ways, tmp_path / "out", to="pt2")
    assert done.step is None
    assert "there is no step file" in (done.folder / "README.md").read_text()
    assert not (done.folder / "step.pt2").exists()


@pytest.mark.parametrize(
    ("options", "quantize"),
    [
        ({"towers": 2, "encoder": "embedding", "pooling": "last", "init": "real"}, None),
        ({"method": "s4", "norm": "batch", "prenorm": False, "dtype": torch.float64}, "int8"),
        ({"method": "dss", "norm": "none", "mixing": "linear", "pooling": "none"}, "float16"),
    ],
    ids=["pairs", "s4", "dss"],
)
def test_archives_of_other_models(
    options: dict[str, Any], quantize: str | None, tmp_path: Path
) -> None:
    done = export_model(model(**options), tmp_path / "out", to="pt2", quantize=quantize)
    assert done.difference < 1e-5


def test_no_step_where_a_model_looks_ahead(tmp_path: Path) -> None:
    done = export_model(model(bidirectional=True, towers=2), tmp_path / "out")
    assert done.step is None
    assert done.facts["step"] is None
    assert "cannot step; there is no step file" in (done.folder / "README.md").read_text()
    assert run_example(done, "print(y.shape)") == "(2, 3)"


@pytest.mark.parametrize("options", [{"towers": 2}, {"encoder": "embedding", "pooling": "none"}])
def test_examples_of_other_inputs(options: dict[str, Any], tmp_path: Path) -> None:
    done = export_model(model(**options), tmp_path / "out")
    shape = "(2, 1000, 3)" if "pooling" in options else "(2, 3)"
    assert run_example(done, "print(y.shape, y_t.shape)") == f"{shape} (2, 3)"


def test_low_precision_is_computed_in_float32(tmp_path: Path) -> None:
    done = export_model(model(dtype=torch.bfloat16), tmp_path / "out")
    assert done.difference < 1e-5


def test_a_regression_is_told_its_unit(tmp_path: Path) -> None:
    signature = replace(SIGNATURE, kind="regression", target_shift=60.0, target_scale=12.5)
    done = export_model(model(), tmp_path / "out", signature=signature)
    assert "`y * 12.5 + 60.0`" in (done.folder / "README.md").read_text()


def test_weights_of_an_estimator_are_told_their_units_and_differences(tmp_path: Path) -> None:
    from s4d_torch.estimators import S4DRegressor

    X = np.random.default_rng(0).normal(5, 2, size=(8, 1, 12))
    options = {"n_layers": 1, "d_model": 4, "d_state": 2, "epochs": 1, "random_state": 0}
    estimator = S4DRegressor(**options, n_jobs=1).fit(X, 100 * X[:, 0, 0])
    done = export_model(estimator.model_, tmp_path / "out")
    card = (done.folder / "README.md").read_text("utf-8")
    shift = estimator.units_.shift.tolist()
    assert f"`(x - shift) * scale` per feature, with shift {shift}" in card
    assert "its 2 features are the channels of a series and, after them, the first" in card
    assert f"+ {estimator.target_shift_.tolist()!r}`" in card
    assert f"u = (x - np.array({shift}, np.float32))" in card
    assert "the channels, and after them x[t] - x[t - 1] of each" in card
    assert done.facts["preprocessing"]["differences"] is True


# -- what is refused ------------------------------------------------------------------------------


def spoiled(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    made = exporter.make_plan

    def wrong(*arguments: Any, **options: Any) -> Any:
        plan = made(*arguments, **options)
        (last,) = plan.decoder
        return replace(plan, decoder=(replace(last, bias=last.bias + by),))

    monkeypatch.setattr(exporter, "make_plan", wrong)


@pytest.mark.parametrize("by", [0.01, float("nan")])
def test_what_disagrees_is_not_written(
    by: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoiled(monkeypatch, by)
    with pytest.raises(ExportMismatchError, match=r"differs from the model.*nothing was written"):
        export_model(model(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_earlier_export_is_replaced_only_by_a_good_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = export_model(model(), tmp_path / "out")
    kept = first.sequence.read_bytes()
    second = export_model(model(d_model=8), tmp_path / "out")
    assert second.sequence.read_bytes() != kept
    spoiled(monkeypatch, 1.0)
    with pytest.raises(ExportMismatchError):
        export_model(model(), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "export.json").read_text())["config"]["d_model"] == 8
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_a_model_that_answers_with_nan(tmp_path: Path) -> None:
    broken = model()
    with torch.no_grad():
        broken.decoder.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="the model itself answers with NaN"):
        export_model(broken, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no earlier export"):
        export_model(model(), tmp_path)
    with pytest.raises(NotADirectoryError, match="is a file"):
        export_model(model(), tmp_path / "notes.txt")


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown export format 'onx'; did you mean 'onnx'"):
        export_model(model(), tmp_path / "out", to="onx")
    with pytest.raises(TypeError, match="only a SequenceModel can be exported, got a ConvNet"):
        export_model(ConvNet(2, 3, 8, 1), tmp_path / "out")  # type: ignore[arg-type]


# -- fewer bits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("quantize", "saved"), [("int8", 3), ("float16", 2)])
def test_quantised_files_shrink(quantize: str, saved: int, tmp_path: Path) -> None:
    import onnx

    wide = model(d_model=48, d_state=2)
    done = export_model(wide, tmp_path / "out", quantize=quantize, dataset=dataset())
    found = done.facts["quantized"]
    entries = 48 * 96
    for name in ("sequence", "step"):
        less = found["bytes_before"][name] - done.facts[name]["bytes"]
        assert saved * entries - 1000 < less <= saved * entries
    graph = onnx.load(done.sequence).graph
    small = {"int8": onnx.TensorProto.INT8, "float16": onnx.TensorProto.FLOAT16}[quantize]
    assert [each.dims for each in graph.initializer if each.data_type == small] == [[48, 96]]
    assert 0 < found["output_change"] < 0.05
    assert done.difference < 1e-5  # from the quantised model
    assert found["scores"]["sequences"] == 40
    assert found["scores"]["before"].keys() >= {"loss", "accuracy"}
    assert "## Quantisation" in (done.folder / "README.md").read_text()


@pytest.mark.parametrize("quantize", ["int8", "float16"])
@torch.no_grad()
def test_a_quantised_step_in_torch(quantize: str) -> None:
    exact, u = model(pooling="last"), torch.randn(2, 2, generator=Generator().manual_seed(1))
    step = ExportedStep(quantized_plan(make_plan(exact), quantize))
    state = exact.initial_state(2)
    wanted, after = quantized(exact, quantize).step(u, state)
    y, (end,) = step(u, state.layers)
    assert_close(y, wanted)
    assert_close(end, after.layers[0])


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("export")
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S4D_TORCH_DATA", str(root / "data"))
        sizes = ("--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1")
        short = ("--epochs", "1", "--training.train-size", "64", "--training.eval-size", "50")
        run = str(root / "run")
        assert main(["train", "digits", *sizes, *short, "--quiet", "--out", run]) == 0
        yield root / "run"
    torch.set_num_threads(before)


def test_the_command_on_a_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run_folder), "--quantize", "int8"]) == 0
    shown = capsys.readouterr().out
    assert f"wrote {run_folder / 'export-onnx-int8'}: sequence.onnx" in shown
    assert "step.onnx" in shown
    assert re.search(r"sequence.onnx \d.* -> \d", shown)
    assert re.search(r"test, 50 sequences: loss [\d.]+ -> [\d.]+, accuracy", shown)
    assert "classes: 0: 0" in (run_folder / "export-onnx-int8" / "README.md").read_text()


def test_the_command_on_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model().save_pretrained(tmp_path / "model")
    out = str(tmp_path / "out")
    assert main(["export", str(tmp_path / "model"), "--out", out, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["folder"] == out
    assert facts["step"]["file"] == "step.onnx"
    assert facts["data"] is None
    assert "Nothing is known of the data" in (tmp_path / "out" / "README.md").read_text()


def test_the_command_without_the_data(
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("digits.csv is not here")

    monkeypatch.setattr("s4d_torch.training.run.Run.dataset", missing)
    out = ("--out", str(tmp_path / "out"))
    assert main(["export", str(run_folder), *out, "--quantize", "float16"]) == 0
    shown = capsys.readouterr().out
    assert "the scores were not measured" in shown
    assert "digits.csv is not here" in shown


def test_misuse_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path)]) == 1
    assert "holds neither run.json nor config.json" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "--rate", "0"]) == 2
    assert "--rate must be above 0" in capsys.readouterr().err
    ConvNet(2, 3, 8, 1).save_pretrained(tmp_path / "other")
    assert main(["export", str(tmp_path / "other")]) == 1
    assert "only state space models can be exported" in capsys.readouterr().err
