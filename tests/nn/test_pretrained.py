"""Weights on disk: what was saved comes back, and nothing else passes for it."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor
from torch.testing import assert_close

from s4d_torch import DSS, S4, S4D, Layer, Method, SequenceModel
from s4d_torch.nn import pretrained
from s4d_torch.nn.pretrained import FORMAT_VERSION

WEIGHTS, CONFIG = "model.safetensors", "config.json"

CONFIGS: dict[str, dict[str, Any]] = {
    "s4d": {},
    "s4": {"method": "s4", "init": "legs+fout", "n_ssm": 2},
    "dss": {"method": "dss", "softmax_length": 100},
    "method": {"method": Method(discretization="foh", init="real", train_A=False)},
    "bidirectional": {"bidirectional": True, "norm": "batch", "pooling": "none"},
    "towers": {"towers": 2, "mixing": "linear", "prenorm": False},
    "embedding": {"encoder": "embedding", "pooling": "last", "norm": "none", "mixing": "none"},
    "float64": {"dtype": torch.float64},
    "bfloat16": {"dtype": torch.bfloat16},
}


def make(seed: int = 0, **options: Any) -> SequenceModel:
    generator = Generator().manual_seed(seed)
    return SequenceModel(3, 2, 4, 2, d_state=8, generator=generator, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a saved model."""
    make().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, **changes: Any) -> None:
    """Change entries of the saved description."""
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def config_with(folder: Path, **changes: Any) -> None:
    """Change entries of the saved config; None removes one."""
    config = json.loads((folder / CONFIG).read_text())["config"] | changes
    rewrite(folder, config={name: value for name, value in config.items() if value is not None})


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- the round trip ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_saved_comes_back(name: str, tmp_path: Path) -> None:
    model = make(**CONFIGS[name])
    dtype = model.decoder[0].weight.dtype if name == "towers" else model.decoder.weight.dtype
    shape = (3, 2, 9, 3) if name == "towers" else (3, 9, 3)
    u = torch.randn(shape, generator=Generator().manual_seed(1)).to(dtype)
    if name == "embedding":
        u = torch.arange(27).reshape(3, 9) % 3
    model(u)  # batch norm gathers statistics
    model.eval().save_pretrained(tmp_path)
    loaded = SequenceModel.from_pretrained(tmp_path).eval()
    assert loaded.config == model.config
    assert loaded.method == model.method
    assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert dict(loaded.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert_close(loaded(u)[0], model(u)[0], rtol=0, atol=0)


def test_the_folder_holds_two_files_and_no_pickle(tmp_path: Path) -> None:
    model, folder = make(), tmp_path / "a" / "b"
    model.save_pretrained(folder)
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
    assert_close(load_file(folder / WEIGHTS), dict(model.state_dict()))
    described = json.loads((folder / CONFIG).read_text())
    assert described["format"] == "s4d_torch"
    assert described["format_version"] == FORMAT_VERSION
    assert described["model"] == "SequenceModel"
    assert described["config"]["d_input"] == 3
    assert described["config"]["method"]["kernel"] == "vandermonde"


def test_a_model_is_loaded_in_another_precision_on_demand(folder: Path) -> None:
    loaded = SequenceModel.from_pretrained(str(folder), dtype=torch.float64, device="cpu")
    for name, value in make().state_dict().items():
        assert loaded.state_dict()[name].dtype == torch.float64
        assert torch.equal(loaded.state_dict()[name], value.double())


def test_loading_leaves_the_random_numbers_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    SequenceModel.from_pretrained(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_saving_again_replaces_the_model(folder: Path) -> None:
    other = make(1, method="s4")
    other.save_pretrained(folder)
    loaded = SequenceModel.from_pretrained(folder)
    assert loaded.method.structure == "dplr"
    assert_close(loaded.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_shared_tensor_is_saved(tmp_path: Path) -> None:
    model = make()
    model.blocks[1] = model.blocks[0]
    model.save_pretrained(tmp_path)
    assert_close(
        SequenceModel.from_pretrained(tmp_path).state_dict(), model.state_dict(), rtol=0, atol=0
    )


def test_a_subclass_loads_as_itself(tmp_path: Path) -> None:
    class Mine(SequenceModel):
        pass

    Mine(3, 2, 4, 1, d_state=8).save_pretrained(tmp_path)
    assert type(Mine.from_pretrained(tmp_path)) is Mine
    with pytest.raises(ValueError, match=r"holds a 'Mine', expected 'SequenceModel'"):
        SequenceModel.from_pretrained(tmp_path)


# ---- whole or not at all ----------------------------------------------------------------------


def disk_full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def stopped(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "error"), [(disk_full, OSError), (stopped, KeyboardInterrupt)]
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_while_writing_leaves_the_old_files(
    call: str,
    function: Callable[..., None],
    error: type[BaseException],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = files(folder)
    monkeypatch.setattr(os, call, function)
    with pytest.raises(error):
        make(1).save_pretrained(folder)
    assert files(folder) == before


def test_a_disk_that_fills_up_between_the_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, calls, fsync = files(folder), [], os.fsync

    def full_at_the_second(handle: int) -> None:
        calls.append(handle)
        fsync(handle) if len(calls) == 1 else disk_full()

    monkeypatch.setattr(os, "fsync", full_at_the_second)
    with pytest.raises(OSError, match="No space left"):
        make(1).save_pretrained(folder)
    assert len(calls) == 2
    assert files(folder) == before


def test_a_config_that_cannot_be_written_stops_before_the_weights(folder: Path) -> None:
    before, model = files(folder), make(1)
    model.config["method"] = object()
    with pytest.raises(TypeError, match="JSON"):
        model.save_pretrained(folder)
    assert files(folder) == before


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_files_have_the_permissions_of_any_new_file(folder: Path) -> None:
    plain = folder.parent / "plain"
    plain.touch()
    for name in (WEIGHTS, CONFIG):
        assert stat.S_IMODE((folder / name).stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


# ---- broken weights ---------------------------------------------------------------------------


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder .*nowhere.*model\.safetensors"):
        SequenceModel.from_pretrained(tmp_path / "nowhere")


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_missing_file(name: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no file .*{name}.*not complete"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("kept", [0, 4, 50, -1, 0.5])
def test_truncated_weights(kept: float, folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    end = int(kept * len(content)) if isinstance(kept, float) else kept
    (folder / WEIGHTS).write_bytes(content[:end])
    with pytest.raises(ValueError, match=r"truncated or not a safetensors file.*again"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize("content", [b"\x80\x04K\x01.", bytes(range(256)) * 4, b"\xff" * 64])
def test_weights_that_are_no_safetensors(content: bytes, folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(content)
    with pytest.raises(ValueError, match="truncated or not a safetensors file"):
        SequenceModel.from_pretrained(folder)


def without(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: value for key, value in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: {"fc.weight": torch.zeros(2)}, r"missing: .*\.\.\.; foreign: fc\.weight"),
        (lambda x: without(x, "decoder.bias"), r"missing: decoder\.bias$"),
        (lambda x: x | {"extra": torch.zeros(1)}, "foreign: extra$"),
        (
            lambda x: x | {"decoder.bias": torch.zeros(7)},
            r"shape: decoder\.bias \(7,\) instead of \(2,\)",
        ),
        (lambda x: {}, "missing: "),
    ],
)
def test_weights_of_another_model(
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]], words: str, folder: Path
) -> None:
    save_file(change(load_file(folder / WEIGHTS)), folder / WEIGHTS)
    with pytest.raises(ValueError, match=f"model.safetensors' does not fit its config; {words}"):
        SequenceModel.from_pretrained(folder)


# ---- broken configs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{'format': 1}", "not valid JSON"),
        (b'{"format": "s4d_torch"', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[]", "not written by s4d_torch"),
        (b"3", "not written by s4d_torch"),
        (b'{"model_type": "bert"}', "not written by s4d_torch"),
    ],
)
def test_a_config_that_is_none(content: bytes, words: str, folder: Path) -> None:
    (folder / CONFIG).write_bytes(content)
    with pytest.raises(ValueError, match=rf"config\.json.*{words}"):
        SequenceModel.from_pretrained(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "other"}, "not written by s4d_torch"),
        (
            {"format_version": FORMAT_VERSION + 1},
            r"format version 2, .* up to 1; upgrade s4d-torch",
        ),
        ({"format_version": None}, "no valid format_version, got None"),
        ({"format_version": "1"}, "no valid format_version, got '1'"),
        ({"format_version": True}, "no valid format_version, got True"),
        ({"format_version": 0}, "no valid format_version, got 0"),
        ({"model": "Other"}, "holds a 'Other', expected 'SequenceModel'"),
        ({"config": None}, "no 'config' object"),
        ({"config": [1]}, "no 'config' object"),
    ],
)
def test_a_wrong_description(changes: dict[str, Any], words: str, folder: Path) -> None:
    rewrite(folder, **changes)
    with pytest.raises(ValueError, match=rf"config\.json.*{words}"):
        SequenceModel.from_pretrained(folder)


def method_with(**changes: Any) -> dict[str, Any]:
    method: dict[str, Any] = make().config["method"]
    return method | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"poling": "mean"}, r"unknown option 'poling'; did you mean 'pooling'\?"),
        ({"device": "cpu"}, "unknown option 'device'"),
        ({"generator": 0}, "unknown option 'generator'"),
        ({"d_input": None}, "d_input"),
        ({"d_model": "4"}, "d_model must be an integer, got '4'"),
        ({"n_layers": 2.0}, r"n_layers must be an integer, got 2\.0"),
        ({"d_state": 7}, "d_state .* must be even, got 7"),
        ({"dropout": 2}, r"dropout must lie in \[0, 1\), got 2"),
        ({"prenorm": "false"}, "prenorm must be True or False, got 'false'"),
        ({"pooling": "men"}, "unknown pooling 'men'; did you mean 'mean'"),
        ({"norm": 3}, "norm must be one of .*got 3"),
        ({"method": "s4dd"}, "unknown method 's4dd'; did you mean 's4d'"),
        ({"method": 5}, r"method must be a Method or one of s4d, s4, dss, .*, got 5"),
        (
            {"method": method_with(init="lgs")},
            "unknown initialization .*'lgs'; did you mean 'legs'",
        ),
        ({"method": method_with(inti="legs")}, "unknown option 'inti'; did you mean 'init'"),
        ({"method": method_with(train_A="no")}, "train_A must be True or False, got 'no'"),
        ({"method": method_with(kernel="cauchy", discretization="zoh")}, "needs 'bilinear'"),
    ],
)
def test_a_config_with_wrong_values(changes: dict[str, Any], words: str, folder: Path) -> None:
    config_with(folder, **changes)
    with pytest.raises(ValueError, match=rf"config\.json.*{words}"):
        SequenceModel.from_pretrained(folder)


def test_a_config_that_does_not_fit_the_weights(folder: Path) -> None:
    config_with(folder, n_layers=1)
    with pytest.raises(ValueError, match=r"does not fit its config; foreign: blocks\.1"):
        SequenceModel.from_pretrained(folder)


def test_options_added_later_have_defaults(folder: Path) -> None:
    config_with(folder, check_finite=None, drop_path=None)
    assert SequenceModel.from_pretrained(folder).config == make().config


def test_the_names_of_the_files() -> None:
    assert (pretrained.WEIGHTS, pretrained.CONFIG) == (WEIGHTS, CONFIG)


# -- single layers ---------------------------------------------------------------------------------

LAYERS: list[tuple[type[Layer], dict[str, Any]]] = [
    (S4D, {"mixing": "none", "dtype": torch.float64}),
    (S4, {"activation": "silu", "dropout": 0.25, "engine": "chunk"}),
    (DSS, {"softmax_length": 30}),
    (Layer, {"bidirectional": True}),
]


@pytest.mark.parametrize(("kind", "options"), LAYERS, ids=str)
def test_a_layer_comes_back(kind: type[Layer], options: dict[str, Any], tmp_path: Path) -> None:
    layer = kind(4, 8, generator=Generator().manual_seed(0), **options).eval()
    layer.save_pretrained(tmp_path)
    u = torch.randn(2, 30, 4, dtype=layer.ssm.raw_C.dtype)
    for again in (kind.from_pretrained(tmp_path).eval(), Layer.from_pretrained(tmp_path).eval()):
        assert type(again) is kind
        assert again.config == layer.config
        assert_close(again(u)[0], layer(u)[0], rtol=0, atol=0)
    assert Layer.from_pretrained(tmp_path, dtype=torch.float64).ssm.D.dtype == torch.float64


def test_a_layer_of_another_kind_is_refused(folder: Path, tmp_path: Path) -> None:
    S4(4, 8).save_pretrained(tmp_path / "layer")
    with pytest.raises(ValueError, match="holds a 'S4', expected 'S4D'"):
        S4D.from_pretrained(tmp_path / "layer")
    with pytest.raises(ValueError, match="'SequenceModel', expected 'SavedLayer'"):
        Layer.from_pretrained(folder)
    config_with(tmp_path / "layer", method={"init": "legz"})
    with pytest.raises(ValueError, match=r"describes no valid model.*legz"):
        Layer.from_pretrained(tmp_path / "layer")
    config_with(tmp_path / "layer", layer="S5")
    with pytest.raises(ValueError, match="unknown layer 'S5'"):
        Layer.from_pretrained(tmp_path / "layer")


def test_only_options_that_were_changed_are_written_beside_the_usual(tmp_path: Path) -> None:
    S4D(4, 8, dropout=0.5).save_pretrained(tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())["config"]
    usual = ["layer", "d_model", "d_state", "method", "activation", "mixing"]
    assert list(config) == [*usual, "dropout"]
