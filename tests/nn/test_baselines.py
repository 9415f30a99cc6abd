"""The baselines: called as a state space model is, blind to padding, kept and made the same way."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from s4d_torch.data.dataset import Signature
from s4d_torch.nn.baselines import (
    Baseline,
    ConvNet,
    RecurrentModel,
    ResNet,
    TransformerModel,
    load_model,
)
from s4d_torch.nn.baselines.convnet import averages
from s4d_torch.nn.norm import SequenceBatchNorm
from s4d_torch.training.build import ARCHITECTURES, build_model
from s4d_torch.training.config import Config, ModelConfig

CLASSES = {
    "lstm": RecurrentModel,
    "transformer": TransformerModel,
    "convnet": ConvNet,
    "resnet": ResNet,
}
EACH = pytest.mark.parametrize("name", CLASSES)


def make(name: str, *, seed: int = 0, **options: Any) -> Baseline:
    generator = torch.Generator().manual_seed(seed)
    settings = {"d_input": 3, "d_output": 5, "d_model": 8, "n_layers": 5} | options
    return CLASSES[name](**settings, generator=generator, dtype=torch.float64)


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def used_norms(model: Baseline) -> Baseline:
    """BatchNorm with statistics that matter."""
    generator = torch.Generator().manual_seed(2)
    for module in model.modules():
        if isinstance(module, SequenceBatchNorm):
            module.running_mean.copy_(torch.randn(module.running_mean.shape, generator=generator))
    return model


def test_every_architecture_but_the_ssm_is_covered() -> None:
    assert set(ARCHITECTURES) == {"ssm", *CLASSES}


@EACH
@pytest.mark.parametrize("mode", ["signal", "tokens", "pairs"])
def test_padding_does_not_change_an_output(name: str, mode: str) -> None:
    options: dict[str, Any] = {"bidirectional": True} if name == "lstm" else {}
    encoder = "embedding" if mode == "tokens" else "linear"
    towers = 2 if mode == "pairs" else 1
    model = used_norms(make(name, encoder=encoder, towers=towers, **options)).eval()
    lengths = [1, 37, 64, 70]
    shape = {"signal": (4, 70, 3), "tokens": (4, 70), "pairs": (4, 2, 70, 3)}[mode]
    u = noise(*shape) if mode != "tokens" else torch.arange(280).reshape(4, 70) % 3
    time = 2 if mode == "pairs" else 1
    for i, length in enumerate(lengths):
        u[i].narrow(time - 1, length, 70 - length).fill_(torch.nan if u.is_floating_point() else 99)
    given = torch.tensor(lengths) if towers == 1 else torch.tensor(lengths)[:, None].repeat(1, 2)
    together, state = model(u, lengths=given, return_state=False)
    assert state is None
    assert together.shape == (4, 5)
    for i, length in enumerate(lengths):
        alone, _ = model(u[i : i + 1].narrow(time, 0, length))
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-9, atol=1e-9)


@EACH
def test_padding_does_not_change_what_is_learnt(name: str) -> None:
    u, lengths = noise(3, 40, 3), torch.tensor([40, 17, 5])
    gradients = []
    for extra in (0, 23):
        model = make(name).train()
        padded = torch.cat([u, torch.full((3, extra, 3), 7.0, dtype=u.dtype)], 1)
        model(padded, lengths=lengths)[0].square().sum().backward()
        gradients.append({k: p.grad for k, p in model.named_parameters()})
    for parameter, gradient in gradients[0].items():
        assert gradient is not None, parameter
        torch.testing.assert_close(gradient, gradients[1][parameter], rtol=1e-7, atol=1e-9)


def test_averages_are_of_what_is_valid() -> None:
    x = torch.tensor([1.0, 2, 3, 4, 5, 7, 9]).reshape(1, 7, 1)
    whole, none = averages(x, None, 4)
    assert none is None
    assert whole.flatten().tolist() == [2.5, 7.0]
    part, lengths = averages(x, torch.tensor([5]), 4)
    assert lengths is not None
    assert lengths.tolist() == [2]
    assert part.flatten().tolist() == [2.5, 5.0]


@EACH
def test_gradients_reach_every_parameter_and_every_sample(name: str) -> None:
    model = make(name, dropout=0.1).train()
    u = noise(4, 50, 3).requires_grad_()
    model(u)[0].square().sum().backward()
    assert u.grad is not None
    assert (u.grad != 0).any(-1).all()
    for parameter, value in model.named_parameters():
        assert value.grad is not None, parameter
        assert value.grad.abs().max() > 0, parameter


@EACH
def test_saved_models_come_back(name: str, tmp_path: Path) -> None:
    model = used_norms(make(name, towers=2)).eval()
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path).eval()
    assert type(again) is CLASSES[name]
    assert again.config == model.config
    u = noise(2, 2, 30, 3)
    assert torch.equal(model(u)[0], again(u)[0])


@EACH
def test_the_generator_decides_the_first_weights(name: str) -> None:
    def weights(seed: int) -> Tensor:
        return parameters_to_vector(make(name, seed=seed).parameters())

    state = torch.get_rng_state()
    first = weights(0)
    torch.rand(3)
    assert torch.equal(weights(0), first)
    assert not torch.equal(weights(1), first)
    torch.set_rng_state(state)


@EACH
def test_another_rate_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"cannot change its sampling rate, got 2\.0"):
        make(name)(noise(1, 20, 3), rate=2.0)


@EACH
def test_bad_input_is_refused(name: str) -> None:
    model = make(name)
    with pytest.raises(ValueError, match=r"d_input=3, got \(1, 20, 2\)"):
        model(noise(1, 20, 2))
    with pytest.raises(TypeError, match="float32"):
        model(noise(1, 20, 3).float())
    with pytest.raises(ValueError, match="lengths must lie in"):
        model(noise(1, 20, 3), lengths=[21])
    with pytest.raises(ValueError, match=r"\(batch, 2, length"):
        make(name, towers=2)(noise(1, 3, 20, 3))
    with pytest.raises(ValueError, match="towers must be 1 or 2, got 3"):
        make(name, towers=3)
    with pytest.raises(ValueError, match="unknown encoder 'conv'"):
        make(name, encoder="conv")
    with pytest.raises(ValueError, match="dropout must lie in"):
        make(name, dropout=1.0)


def test_heads_have_to_divide_the_width() -> None:
    with pytest.raises(ValueError, match="heads must divide d_model=8, got 3"):
        make("transformer", heads=3)


def test_a_transformer_knows_the_order_of_its_input() -> None:
    model, u = make("transformer").eval(), noise(1, 20, 3)
    assert (model(u)[0] - model(u.flip(1))[0]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "n_layers", "published"), [("convnet", 12, 26.2e6), ("resnet", 8, 216e3)]
)
def test_sizes_are_those_of_the_paper(name: str, n_layers: int, published: float) -> None:
    signature = Signature("classification", features=1, outputs=35, length=16000)
    with torch.device("meta"):  # sizes only
        settings = {"d_model": 64, "n_layers": n_layers}
        model = CLASSES[name](signature.features, signature.outputs, **settings)
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("n_layers", [1, 2, 6, 12])
def test_any_number_of_blocks_makes_a_network(n_layers: int) -> None:
    for name in ("convnet", "resnet"):
        model = make(name, n_layers=n_layers)
        assert model(noise(2, 9, 3))[0].shape == (2, 5)
        blocks = sum("Block" in type(module).__name__ for module in model.modules())
        assert blocks == n_layers


@EACH
@pytest.mark.parametrize("d_model", [4, 40, 100])
def test_a_config_makes_each(name: str, d_model: int) -> None:
    config = Config(model=ModelConfig(architecture=name, d_model=d_model, n_layers=1))
    for towers in (1, 2):
        signature = Signature("classification", 7, 3, 64, tokens=True, towers=towers)
        model = build_model(config, signature)
        u = torch.zeros(2, *([2] if towers == 2 else []), 16, dtype=torch.long)
        y, _ = model(u, lengths=None, rate=1.0, return_state=False)
        assert y.shape == (2, 3)
