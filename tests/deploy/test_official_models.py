"""Whole models and files of the official code, and the command that converts them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor

import official_reference as reference
from official_reference import rounded, tensors
from s4d_torch import SequenceModel
from s4d_torch.cli.common.parsing import CommandError
from s4d_torch.cli.convert import Convert
from s4d_torch.deploy import (
    from_official,
    from_official_model,
    load_layer,
    read_official,
    save_layer,
)
from s4d_torch.deploy.official import ModelOptions, output_errors

LENGTH = 21


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# ---- whole models ------------------------------------------------------------------------------


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return weight * x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) + bias


def lightning(rng: np.random.Generator, *, prenorm: bool, batch: bool = False) -> reference.Arrays:
    """Two bilinear blocks of 4 features between maps from 3 and to 2."""
    w: reference.Arrays = {}
    norms = [f"model.layers.{i}.norm.norm." for i in range(2)]
    for i in range(2):
        block = reference.block_weights(rng, S=1)
        w |= {f"model.layers.{i}.layer.{name}": x for name, x in block.items()}
    for place in [*norms, "model.norm.norm."] if prenorm else norms:
        w |= {place + name: rng.standard_normal(4) for name in ("weight", "bias")}
        if batch:
            w[place + "running_mean"] = rng.standard_normal(4)
            w[place + "running_var"] = rng.uniform(0.5, 2, 4)
            w[place + "num_batches_tracked"] = np.array(8)
    w |= {"encoder.0.weight": rng.standard_normal((4, 3)), "encoder.0.bias": np.ones(4)}
    w["decoder.0.output_transform.weight"] = rng.standard_normal((2, 4))
    w["decoder.0.output_transform.bias"] = rng.standard_normal(2)
    return rounded(w)


def run_lightning(w: reference.Arrays, x: np.ndarray, prenorm: bool) -> np.ndarray:
    """All but encoder and decoder: x and the result (batch, length, 4)."""

    def norm(place: str, x: np.ndarray) -> np.ndarray:
        weight, bias = w[place + "weight"], w[place + "bias"]
        if place + "running_mean" not in w:
            return layer_norm(x, weight, bias)
        mean, var = w[place + "running_mean"], w[place + "running_var"]
        return weight * (x - mean) / np.sqrt(var + 1e-5) + bias

    for i in range(2):
        start = f"model.layers.{i}.layer."
        layer = {k.removeprefix(start): v for k, v in w.items() if k.startswith(start)}
        place = f"model.layers.{i}.norm.norm."
        z = norm(place, x) if prenorm else x
        x = x + reference.block(layer, z, disc="bilinear")
        x = x if prenorm else norm(place, x)
    return norm("model.norm.norm.", x) if prenorm else x


OPTIONS = {"disc": "bilinear", "dt_transform": "exp"}


@pytest.mark.parametrize("prenorm", [True, False])
@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "last", "none"])
def test_a_lightning_model(
    prenorm: bool, batch: bool, pooling: str, rng: np.random.Generator
) -> None:
    w = lightning(rng, prenorm=prenorm, batch=batch)
    u = rng.standard_normal((2, LENGTH, 3))
    x = run_lightning(w, u @ w["encoder.0.weight"].T + w["encoder.0.bias"], prenorm)
    x = {"mean": x.mean(1), "last": x[:, -1], "none": x}[pooling]
    y = x @ w["decoder.0.output_transform.weight"].T + w["decoder.0.output_transform.bias"]
    model = from_official_model(tensors(w), pooling=pooling, **OPTIONS)
    errors = output_errors(model, torch.from_numpy(u), torch.from_numpy(y))
    assert max(errors.values()) < 1e-5
    assert model.config["norm"] == ("batch" if batch else "layer")
    assert model.config["prenorm"] == prenorm
    assert model.method.n_ssm == 1


@pytest.mark.parametrize("rescale", [True, False])
def test_a_language_model(rescale: bool, rng: np.random.Generator) -> None:
    w = lightning(rng, prenorm=True)
    w = {k: v for k, v in w.items() if not k.startswith(("encoder", "decoder"))}
    w["encoder.0.weight"] = rng.standard_normal((6, 4))
    w |= {"decoder.0.weight": rng.standard_normal((6, 4)), "decoder.0.bias": np.zeros(6)}
    w = rounded(w)
    tokens = rng.integers(0, 6, (2, LENGTH))
    x = w["encoder.0.weight"][tokens] * (2.0 if rescale else 1.0)
    y = run_lightning(w, x, True) @ w["decoder.0.weight"].T
    with pytest.raises(ValueError, match="pass rescale"):
        from_official_model(tensors(w), **OPTIONS)
    model = from_official_model(tensors(w), rescale=rescale, **OPTIONS)
    assert max(output_errors(model, torch.from_numpy(tokens), torch.from_numpy(y)).values()) < 1e-5
    with pytest.raises(ValueError, match="pooling is 'none'"):
        from_official_model(tensors(w), rescale=rescale, pooling="mean", **OPTIONS)


def example(rng: np.random.Generator) -> reference.Arrays:
    w: reference.Arrays = {}
    for i in range(2):
        minimal = reference.minimal_weights(rng)
        w |= {f"s4_layers.{i}.{name}": x for name, x in minimal.items()}
        w |= {f"norms.{i}.{name}": rng.standard_normal(4) for name in ("weight", "bias")}
    w |= {"encoder.weight": rng.standard_normal((4, 3)), "encoder.bias": np.ones(4)}
    w |= {"decoder.weight": rng.standard_normal((2, 4)), "decoder.bias": np.ones(2)}
    return rounded(w)


def test_the_model_of_the_official_example(rng: np.random.Generator) -> None:
    w = example(rng)
    u = rng.standard_normal((2, LENGTH, 3))
    x = u @ w["encoder.weight"].T + w["encoder.bias"]
    for i in range(2):
        start = f"s4_layers.{i}."
        layer = {k.removeprefix(start): v for k, v in w.items() if k.startswith(start)}
        x = x + reference.minimal(layer, x)
        x = layer_norm(x, w[f"norms.{i}.weight"], w[f"norms.{i}.bias"])
    y = x.mean(1) @ w["decoder.weight"].T + w["decoder.bias"]
    model = from_official_model(tensors(w))
    assert max(output_errors(model, torch.from_numpy(u), torch.from_numpy(y)).values()) < 1e-5
    with pytest.raises(ValueError, match="only prenorm=False"):
        from_official_model(tensors(w), prenorm=True)


def test_models_that_cannot_be_converted_say_why(rng: np.random.Generator) -> None:
    w = tensors(lightning(rng, prenorm=True))

    def refusal(changes: dict[str, Tensor], without: str = "-", **options: Any) -> str:
        kept = {k: v for k, v in {**w, **changes}.items() if not k.startswith(without)}
        with pytest.raises(ValueError, match=r".") as error:
            from_official_model(kept, **{**OPTIONS, **options})
        return str(error.value)

    assert "two defaults for dt_transform" in refusal({}, dt_transform=None)
    assert "rescale" not in refusal({"encoder.1.pe": torch.zeros(9, 4)})
    assert "a positional encoding" in refusal({"encoder.1.pe": torch.zeros(9, 4)})
    head = {f"decoder.0.retrieval.classifier.{i}.weight": torch.zeros(4, 4) for i in (0, 2)}
    assert "the head for pairs" in refusal(head, without="decoder.0.output_transform")
    scalar = {"model.layers.0.norm.norm.m": torch.zeros(1)}
    assert "two scalars" in refusal(scalar)
    assert "of one kind, got layer, none" in refusal({}, without="model.layers.1.norm")
    assert "below 'encoder.', got none" in refusal({}, without="encoder")
    assert "prenorm is True by the weights" in refusal({}, prenorm=False)
    other = {"model.layers.1.layer.layer.kernel.C": torch.zeros(2, 4, 5, 2)}
    assert "layer 1 has method" in refusal(other)
    with pytest.raises(ValueError, match="no official model here"):
        from_official_model({"weight": torch.zeros(1)})


# ---- files -------------------------------------------------------------------------------------


class Config:
    """What a checkpoint may hold beside tensors."""


def test_files_of_torch_and_safetensors(tmp_path: Path, rng: np.random.Generator) -> None:
    weights = tensors(reference.block_weights(rng))
    torch.save(weights, tmp_path / "layer.pt")
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "last.ckpt")
    torch.save({"model": weights, "acc": 0.5}, tmp_path / "ckpt.pth")
    save_file(weights, tmp_path / "layer.safetensors")
    for path in tmp_path.iterdir():
        file = read_official(path)
        assert file.u is None
        assert file.state_dict.keys() == weights.keys()
        torch.testing.assert_close(from_official(file.state_dict).ssm.D, weights["layer.D"][0])


def test_a_pickle_is_not_run_and_the_error_shows_the_way(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": {"D": torch.zeros(1)}, "hyper_parameters": Config()}, path)
    with pytest.raises(ValueError, match="weights_only=True") as error:
        read_official(path)
    message = str(error.value)
    assert f"holds {Config.__module__}.Config, not only tensors" in message
    lines = message[message.index("    import torch") :]
    assert len(lines.splitlines()) == 3
    program = "\n".join(line.strip() for line in lines.splitlines())
    exec(program, {})  # what it says is what works
    assert read_official(path.with_suffix(".safetensors")).state_dict.keys() == {"D"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file"):
        read_official(tmp_path / "nowhere.pt")
    (tmp_path / "text.pt").write_text("not torch")
    with pytest.raises(ValueError, match=r"text\.pt' is no file of torch"):
        read_official(tmp_path / "text.pt")
    torch.save(weights := {"D": torch.zeros(100)}, tmp_path / "whole.pt")
    (tmp_path / "half.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:500])
    with pytest.raises(ValueError, match="truncated"):
        read_official(tmp_path / "half.pt")
    torch.save({"weights": weights}, tmp_path / "nested.pt")
    with pytest.raises(ValueError, match=r"\['weights'\], expected a state dict"):
        read_official(tmp_path / "nested.pt")
    np.savez(tmp_path / "objects.npz", a=np.array([Config()], dtype=object))
    with pytest.raises(ValueError, match="no archive of plain arrays"):
        read_official(tmp_path / "objects.npz")


@pytest.mark.parametrize("options", [{}, {"disc": "dss", "l_max": LENGTH}], ids=["s4d", "dss"])
def test_a_layer_comes_back_from_its_folder(
    options: dict[str, Any], tmp_path: Path, rng: np.random.Generator
) -> None:
    layer = from_official(tensors(reference.block_weights(rng, S=1)), activation="id", **options)
    save_layer(layer, tmp_path)
    again = load_layer(tmp_path)
    assert type(again) is type(layer)
    assert again.method == layer.method
    u = torch.randn(2, LENGTH, 4)
    torch.testing.assert_close(again(u)[0], layer(u)[0], rtol=0, atol=0)
    assert load_layer(tmp_path, dtype=torch.float64).ssm.raw_C.dtype == torch.float64
    with pytest.raises(ValueError, match="'SavedLayer'"):
        SequenceModel.from_pretrained(tmp_path)


def test_conversion_leaves_the_random_numbers_of_others_alone(rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    from_official(tensors(reference.block_weights(rng)))
    from_official_model(tensors(example(rng)))
    assert torch.rand(1) == expected


# ---- the command -------------------------------------------------------------------------------


def convert(command: Convert) -> str:
    shown = io.StringIO()
    command.run(Console(file=shown, width=80))
    return shown.getvalue()


def test_convert_shows_checks_and_writes_a_layer(tmp_path: Path, rng: np.random.Generator) -> None:
    weights = rounded(reference.block_weights(rng))
    u = rng.standard_normal((2, LENGTH, 4))
    y = reference.block(weights, u, disc="bilinear")
    file, out = tmp_path / "layer.npz", tmp_path / "out"
    arrays = {f"w:{name}": x.astype(np.float32) for name, x in weights.items()}
    np.savez(file, u=u, y=y, **arrays)
    with pytest.raises(ValueError, match="nothing was written"):
        convert(Convert(file, out))
    assert not out.exists()
    shown = convert(Convert(file, out, options=ModelOptions(disc="bilinear")))
    rows = [line.split() for line in shown.splitlines()]
    assert ["disc", "bilinear", "given"] in rows
    assert ["real_transform", "exp", "assumed"] in rows
    assert ["d_state", "10", "weights"] in rows
    assert "the same output as in the file: at once" in shown
    errors = output_errors(load_layer(out), torch.from_numpy(u), torch.from_numpy(y))
    assert max(errors.values()) < 1e-5


def test_convert_needs_no_more_than_the_file(tmp_path: Path, rng: np.random.Generator) -> None:
    """``s4d convert official.pt``, as the README shows it; it never writes over what is there."""
    file = tmp_path / "official.pt"
    torch.save(tensors(example(rng)), file)
    convert(Convert(file))
    assert SequenceModel.from_pretrained(tmp_path / "official").config["n_layers"] == 2
    with pytest.raises(CommandError, match="official is there already; name a folder with --out"):
        convert(Convert(file))


def test_convert_writes_a_model_or_one_layer_of_it(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    file, out = tmp_path / "ckpt.pth", tmp_path / "out"
    torch.save({"model": tensors(example(rng))}, file)
    shown = convert(Convert(file, out))
    assert "S4Model (example.py)" in shown
    assert "SequenceModel.from_pretrained" in shown
    assert SequenceModel.from_pretrained(out).config["n_layers"] == 2
    convert(Convert(file, tmp_path / "one", prefix="s4_layers.1."))
    assert load_layer(tmp_path / "one").d_model == 4
    options = ModelOptions(pooling="mean")
    with pytest.raises(ValueError, match="option of whole models"):
        convert(Convert(file, tmp_path / "two", prefix="s4_layers.1.", options=options))
