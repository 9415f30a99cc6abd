"""A run folder whose files are damaged: one sentence with file and remedy, or the right answer."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from s4d_torch import SequenceModel, load_run
from s4d_torch.cli import main
from s4d_torch.training import default_config, train

RAW: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "without its last bytes": lambda content: content[:-3],
    "binary": lambda content: bytes(range(256)) * 4,
    "zeros": lambda content: bytes(len(content)),
    "not UTF-8": lambda content: content.replace(b"e", b"\xe9"),
    "twice": lambda content: content + content,
    "a list": lambda content: b"[1, 2, 3]\n",
    "a word": lambda content: b'"run"\n',
    "null": lambda content: b"null\n",
    "an empty object": lambda content: b"{}\n",
    "nested without end": lambda content: b"[" * 100_000,
}
WRONG: tuple[Any, ...] = (
    None,
    "a word",
    [],
    {},
    -1,
    1.5,
    True,
    float("nan"),
    float("inf"),
    10**400,
)
JSON_FILES = ("run.json", "signature.json", "summary.json", "environment.json", "best/config.json")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, small enough to be read again and again."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    config = default_config("digits", "small")
    config = replace(
        config,
        model=replace(config.model, n_layers=1, d_model=4, d_state=4),
        training=replace(config.training, epochs=1, train_size=64, eval_size=16),
    )
    found = train("digits", config, out=folder, device="cpu").dataset()
    values = np.asarray(found.test.inputs[0].values[found.test.index[:3]])
    np.save(folder.parent / "x.npy", values)
    return folder


def commands(run: Path) -> dict[str, list[str]]:
    options = ["--model.n-layers", "1", "--model.d-model", "4", "--model.d-state", "4"]
    training = ["--epochs", "1", "--training.train-size", "64", "--training.eval-size", "16"]
    train = ["train", "digits", "--preset", "small", "--device", "cpu", *options, *training]
    return {
        "info": ["info", str(run), "--json"],
        "predict": ["predict", str(run), str(run.parent / "x.npy"), "--json", "--device", "cpu"],
        "evaluate": ["evaluate", str(run), "--json", "--device", "cpu"],
        "train": [*train, "--out", str(run), "--json", "--no-tensorboard"],
    }


def changed_values(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The content with one entry missing or of another kind, at every place in turn."""
    kinds = iter(WRONG * 1000)
    for name, value in content.items():
        yield f"no {name}", {key: each for key, each in content.items() if key != name}
        for _ in range(3):
            wrong = next(kinds)
            yield f"{name} is {wrong!r:.20}", {**content, name: wrong}
        if isinstance(value, dict):
            for what, inside in changed_values(value):
                yield f"{name}: {what}", {**content, name: inside}


def check(run: Path, what: str, capfd: Any, right: dict[str, str], names: list[str]) -> list[str]:
    """What is wrong with how the commands deal with a damaged run."""
    problems = []
    for name in names:
        try:
            code = main(commands(run)[name])
        except BaseException as error:
            problems.append(f"{what}, {name}: {type(error).__name__}: {error}")
            continue
        out, err = capfd.readouterr()
        lines = [line for line in err.splitlines() if line]
        if code == 0 and name in ("predict", "evaluate") and out != right[name]:
            problems.append(f"{what}, {name}: another answer without a word")
        if code != 0 and not (lines and lines[-1].strip() and "Traceback" not in err):
            problems.append(f"{what}, {name}: {code} {err[:300]}")
        if code != 0 and not any(line.startswith("s4d: ") for line in lines):
            problems.append(f"{what}, {name}: {code} without a sentence: {err[:300]}")
    return problems


@pytest.fixture(scope="module")
def copies(run: Path) -> Callable[[], Path]:
    shutil.copytree(run, run.parent / "whole")

    def copy() -> Path:
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(run.parent / "whole", run)
        return run

    return copy


@pytest.fixture(scope="module")
def right(run: Path, copies: Callable[[], Path]) -> dict[str, str]:
    """What the commands say about the undamaged run."""
    found = {}
    for name, command in commands(run).items():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(command) == 0
        found[name] = out.getvalue()
    return found


@pytest.mark.parametrize("file", [*JSON_FILES, "metrics.csv", "best/model.safetensors"])
def test_files_that_are_not_what_they_were(
    copies: Callable[[], Path], right: dict[str, str], file: str, capfd: Any
) -> None:
    problems = []
    for what, damage in RAW.items():
        path = copies() / file
        path.write_bytes(damage(path.read_bytes()))
        problems += check(path.parents[file.count("/")], what, capfd, right, list(right))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("file", JSON_FILES)
def test_entries_that_are_missing_or_of_another_kind(
    copies: Callable[[], Path], right: dict[str, str], file: str, capfd: Any
) -> None:
    problems = []
    run = copies()
    original = json.loads((run / file).read_text())
    original.pop("sha256", None)  # which would find all of it
    for what, content in changed_values(original):
        (run / file).write_text(json.dumps(content))
        problems += check(run, what, capfd, right, list(right))
    assert not problems, "\n".join(problems)


def test_rows_that_are_none(copies: Callable[[], Path], right: dict[str, str], capfd: Any) -> None:
    run = copies()
    lines = (run / "metrics.csv").read_text().splitlines()
    header, row = lines
    problems = []
    for what, text in {
        "too long": f"{header}\n{row},1,2\n",
        "too short": f"{header}\n{row.partition(',')[0]}\n",
        "no digits": f"{header}\n{row.replace('2', '²')}\n",
        "many digits": f"{header}\n{row.replace(',2,', ',' + '9' * 5000 + ',')}\n",
        "no number": f"{header}\n" + ",".join("x" for _ in next(csv.reader([row]))) + "\n",
        "NUL": f"{header}\n\0\0\0\n",
    }.items():
        (run / "metrics.csv").write_text(text)
        problems += check(run, what, capfd, right, ["info", "train"])
    assert not problems, "\n".join(problems)


@pytest.mark.filterwarnings("ignore:the checkpoint step-")
@pytest.mark.parametrize("file", ["manifest.json", "model.safetensors"])
def test_checkpoints_of_a_run_that_is_not_finished(
    copies: Callable[[], Path], right: dict[str, str], file: str, capfd: Any
) -> None:
    problems = []
    for what, damage in RAW.items():
        run = copies()
        (run / "summary.json").unlink()
        for path in (run / "checkpoints").glob(f"*/{file}"):
            path.write_bytes(damage(path.read_bytes()))
        problems += check(run, what, capfd, right, ["train"])
    assert not problems, "\n".join(problems)


# -- weights ---------------------------------------------------------------------------------------


def flip(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("position", [-1, -2, -9, -40])
def test_a_flipped_bit_in_the_weights_is_found(
    copies: Callable[[], Path], position: int, capfd: Any
) -> None:
    run = copies()
    flip(run / "best" / "model.safetensors", position, 6)
    for name in ("predict", "evaluate", "info"):
        assert main(commands(run)[name]) == 1
        assert "do not match their checksum; save or copy it again" in capfd.readouterr().err
    with pytest.raises(ValueError, match="do not match their checksum"):
        load_run(run)


def test_weights_without_a_checksum_load_unless_they_are_not_finite(
    copies: Callable[[], Path], capfd: Any, right: dict[str, str]
) -> None:
    run = copies()
    path = run / "best" / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors, path, metadata={"format": "pt"})  # as earlier releases did
    assert main(commands(run)["predict"]) == 0
    assert capfd.readouterr().out == right["predict"]
    tensors["decoder.weight"][0, 0] = torch.nan
    save_file(tensors, path, metadata={"format": "pt"})
    for name in ("predict", "evaluate", "info"):
        assert main(commands(run)[name]) == 1
        said = capfd.readouterr().err
        assert "is damaged: values of decoder.weight are not finite" in said


def test_answers_that_are_not_finite_are_refused(copies: Callable[[], Path]) -> None:
    run = load_run(copies())
    x = np.load(Path(str(run.folder)).parent / "x.npy")
    with torch.no_grad():
        next(iter(run.model.parameters())).fill_(torch.nan)
    with pytest.raises(ValueError, match="answers to 3 of 3 sequences are not finite numbers"):
        run.predict(x)
    with pytest.raises(ValueError, match="are not finite numbers"):
        run.evaluate()


def test_a_changed_digit_of_the_units_is_found(copies: Callable[[], Path], capfd: Any) -> None:
    run = copies()
    signature = json.loads((run / "signature.json").read_text())
    signature["input_scale"][0] *= 1.5
    (run / "signature.json").write_text(json.dumps(signature))
    assert main(commands(run)["predict"]) == 1
    said = capfd.readouterr().err
    assert "signature.json is damaged: it does not match its checksum; put back a copy" in said
    del signature["sha256"]  # as earlier releases wrote it
    (run / "signature.json").write_text(json.dumps(signature))
    assert main(commands(run)["predict"]) == 0


@pytest.mark.parametrize(("name", "size"), [("n_layers", 10_000_000), ("d_model", 1_000_000),
                                        ("d_state", 10**12), ("d_input", 10**13)])  # fmt: skip
def test_a_config_larger_than_its_weights_is_refused_before_it_is_built(
    copies: Callable[[], Path], name: str, size: int, capfd: Any
) -> None:
    run = copies()
    path = run / "best" / "config.json"
    described = json.loads(path.read_text())
    described["config"][name] = size
    path.write_text(json.dumps(described))
    assert main(commands(run)["predict"]) == 1
    assert "describes a larger model than its weights" in capfd.readouterr().err
    with pytest.raises(ValueError, match=f"{name} {size}"):
        SequenceModel.from_pretrained(run / "best")
