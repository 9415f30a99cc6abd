"""Parameter groups: every trainable parameter once, with the rate and the decay it should have."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from s4d_torch import DSS, S4, S4D, SSM, SequenceModel, parameter_groups


def model(**options: Any) -> SequenceModel:
    generator = Generator().manual_seed(0)
    return SequenceModel(3, 2, 4, 2, d_state=8, generator=generator, **options)


class Tied(nn.Module):
    """Two layers that share an SSM, and a decoder that shares its weight with another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = S4D(4, 8), S4D(4, 8)
        self.second.ssm = self.first.ssm
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight


class Mixed(nn.Module):
    """A layer among other modules of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4)
        self.layer = S4D(4, 8)
        self.norm = nn.BatchNorm1d(4)
        self.gain = nn.Parameter(torch.ones(()))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "s4d": model,
    "s4": lambda: model(method="s4", n_ssm=1),
    "dss": lambda: model(method="dss", towers=2),
    "real": lambda: model(init="real", bidirectional=True, norm="batch"),
    "embedding": lambda: model(encoder="embedding", norm="none", mixing="none"),
    "frozen": lambda: model(train_A=False, train_B=False, train_dt=False),
    "layer": lambda: S4(4, 8),
    "ssm": lambda: SSM(4, 8),
    "tied": Tied,
    "mixed": Mixed,
    "no ssm": lambda: nn.Linear(2, 2),
}
every_model = pytest.mark.parametrize("name", MODELS)


def by_name(module: nn.Module, **options: Any) -> dict[str, dict[str, Any]]:
    """The group of each parameter."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups = parameter_groups(module, **options)
    return {names[id(x)]: group for group in groups for x in group["params"]}


@every_model
def test_complete_and_disjoint(name: str) -> None:
    module = MODELS[name]()
    grouped = [id(x) for group in parameter_groups(module) for x in group["params"]]
    trainable = {id(x) for x in module.parameters() if x.requires_grad}
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == trainable


@every_model
def test_no_group_is_empty(name: str) -> None:
    assert all(group["params"] for group in parameter_groups(MODELS[name]()))


@pytest.mark.parametrize("method", ["s4d", "s4", "dss"])
def test_the_rate_and_the_decay_of_each_parameter(method: str) -> None:
    module = model(method=method, norm="batch", train_B=True)
    slow = ("raw_decay", "frequency", "raw_P", "raw_B", "log_dt")
    decaying = ("raw_C", "ssm.D", "encoder.weight", "output.weight", "decoder.weight")
    plain = ("norm.weight", "bias")
    seen = dict.fromkeys((*slow, *decaying, *plain), 0)
    for name, group in by_name(module, lr=0.01, weight_decay=0.05, ssm_lr=0.002).items():
        (end,) = [end for end in seen if name.endswith(end)]
        seen[end] += 1
        expected = {
            slow: ("ssm", 0.002, 0.0),
            decaying: ("decay", 0.01, 0.05),
            plain: ("no_decay", 0.01, 0.0),
        }[next(ends for ends in (slow, decaying, plain) if end in ends)]
        assert (group["name"], group["lr"], group["weight_decay"]) == expected, name
    assert [end for end, count in seen.items() if not count] == (
        [] if method == "s4" else ["raw_P"]
    )


def test_an_embedding_decays() -> None:
    group = by_name(model(encoder="embedding"), weight_decay=0.1)["encoder.weight"]
    assert group["weight_decay"] == 0.1


def test_other_modules_of_torch() -> None:
    groups = {name: group["name"] for name, group in by_name(Mixed()).items()}
    assert groups["lstm.weight_ih_l0"] == "decay"
    assert groups["lstm.bias_ih_l0"] == groups["norm.weight"] == groups["gain"] == "no_decay"
    assert groups["layer.ssm.frequency"] == "ssm"


@pytest.mark.parametrize(("lr", "ssm_lr"), [(0.01, 0.001), (0.0005, 0.0005), (0.0, 0.0)])
def test_the_default_rate_of_the_ssm(lr: float, ssm_lr: float) -> None:
    assert by_name(S4D(4, 8), lr=lr)["ssm.log_dt"]["lr"] == ssm_lr
    assert by_name(S4D(4, 8), lr=lr, ssm_lr=0.0)["ssm.log_dt"]["lr"] == 0.0


def test_frozen_parameters_are_left_out() -> None:
    layer = DSS(4, 8, train_A=False)
    layer.output.bias.requires_grad_(False)
    names = by_name(layer).keys()
    assert names == {"ssm.raw_C", "ssm.D", "ssm.log_dt", "output.weight"}


def test_shared_parameters_are_in_one_group_once() -> None:
    module = Tied()
    grouped = [x for group in parameter_groups(module) for x in group["params"]]
    assert sum(x is module.a.weight for x in grouped) == 1
    assert sum(x is module.first.ssm.raw_C for x in grouped) == 1


# ---- with the optimisers of torch -------------------------------------------------------------


def loss(module: SequenceModel) -> Tensor:
    u = torch.randn(4, 20, 3, generator=Generator().manual_seed(1)).to(module.encoder.weight.dtype)
    return (module(u)[0] - u[:, -1, :2]).square().mean()


OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]]], Optimizer]] = {
    "sgd": SGD,
    "momentum": lambda groups: SGD(groups, momentum=0.9, nesterov=True),
    "adam": Adam,
    "adamw": AdamW,
    "adamw fused": lambda groups: AdamW(groups, fused=True),
    "adamw foreach": lambda groups: AdamW(groups, foreach=True),
    "rmsprop": RMSprop,
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", ["s4d", "s4", "dss"])
def test_training_moves_every_parameter(method: str, optimizer: str) -> None:
    module = model(method=method, dtype=torch.float64)  # where no step is lost to rounding
    groups = parameter_groups(module, lr=0.003, weight_decay=0.01)
    steps = OPTIMIZERS[optimizer](groups)
    before = {name: x.detach().clone() for name, x in module.named_parameters()}
    first = loss(module).item()
    for _ in range(5):
        steps.zero_grad()
        loss(module).backward()
        nn.utils.clip_grad_value_(module.parameters(), 0.5)
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        steps.step()
    assert loss(module).item() < first
    for name, x in module.named_parameters():
        assert not torch.equal(x, before[name]), name


def test_clipping_bounds_every_gradient() -> None:
    module = model(method="s4")
    (1000 * loss(module)).backward()
    nn.utils.clip_grad_value_(module.parameters(), 0.01)
    assert max(x.grad.abs().max().item() for x in module.parameters()) == pytest.approx(0.01)


def test_decay_shrinks_only_what_decays() -> None:
    module = model()
    groups = by_name(module, lr=0.1, weight_decay=0.5)
    before = {name: x.detach().clone() for name, x in module.named_parameters()}
    for x in module.parameters():
        x.grad = torch.zeros_like(x)
    AdamW(parameter_groups(module, lr=0.1, weight_decay=0.5)).step()
    for name, x in module.named_parameters():
        factor = 0.95 if groups[name]["name"] == "decay" else 1.0
        torch.testing.assert_close(x.detach(), factor * before[name])


def test_a_schedule_scales_every_group() -> None:
    optimizer = AdamW(parameter_groups(model(), lr=0.01, ssm_lr=0.001))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    optimizer.step()
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0005, 0.005, 0.005]


def test_the_state_of_an_optimizer_comes_back() -> None:
    module = model()
    optimizer = AdamW(parameter_groups(module, lr=0.01))
    loss(module).backward()
    optimizer.step()
    other = AdamW(parameter_groups(module, lr=0.5))
    other.load_state_dict(optimizer.state_dict())
    assert [group["lr"] for group in other.param_groups] == [0.001, 0.01, 0.01]
    assert [group["name"] for group in other.param_groups] == ["ssm", "decay", "no_decay"]


@pytest.mark.parametrize("value", [-0.1, nan, inf])
@pytest.mark.parametrize("name", ["lr", "weight_decay", "ssm_lr"])
def test_rates_that_are_none(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"finite and not negative, got .*{name}={value}"):
        parameter_groups(model(), **{name: value})
