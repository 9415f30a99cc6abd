"""Choices registered from outside, without compiled code: the same answer in every mode of use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus
from torch.testing import assert_close

from s4d_torch import S4D, SequenceModel, Stream
from s4d_torch._registry import Registry
from s4d_torch.ssm.constraint import CONSTRAINTS, Constraint
from s4d_torch.ssm.discretization import DISCRETIZATIONS, Discrete
from s4d_torch.ssm.engine import ENGINES
from s4d_torch.ssm.initialization import INITIALIZATIONS, Spectrum, frequency_law
from s4d_torch.ssm.kernel import vandermonde
from s4d_torch.ssm.state_space import KERNELS, Kernel, StateSpace

CHOICES = [
    {"constraint": "square"},
    {"discretization": "dirac"},
    {"init": "cubic"},
    {"init": "clustered"},
    {"kernel": "halved"},
    {"constraint": "square", "discretization": "dirac", "init": "cubic", "kernel": "halved"},
]


def dirac(A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
    """``A_bar = e^(dt A)``, ``B_bar = B``: samples are events."""
    return Discrete(log_A=dt * A, B_now=B + 0 * A)


def cubic(n: Tensor, d_state: int) -> Tensor:
    return 0.1 * n**3


def clustered(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    return torch.complex(-0.5 - 0 * n, 3 + 0.1 * n)


def halved(space: StateSpace, length: int) -> Tensor:
    return vandermonde(space.discrete(), space.C / 2, length, pairs=space.pairs)


@pytest.fixture(autouse=True)
def choices() -> Iterator[None]:
    """As in a user's own file; taken back after each test."""
    names: list[tuple[Registry[object], str]] = [
        (CONSTRAINTS, "square"),
        (DISCRETIZATIONS, "dirac"),
        (INITIALIZATIONS, "cubic"),
        (INITIALIZATIONS, "clustered"),
        (KERNELS, "halved"),
    ]  # type: ignore[list-item]
    CONSTRAINTS.register("square", Constraint(lambda raw: raw.square() + 0.01, _root))
    DISCRETIZATIONS.register("dirac", dirac)
    frequency_law("cubic")(cubic)
    INITIALIZATIONS.register("clustered", Spectrum(clustered))
    KERNELS.register("halved", Kernel(halved, adjust=lambda space, step, C: (step, C / 2)))
    yield
    for registry, name in names:
        del registry._entries[name]


def _root(decay: Tensor) -> Tensor:
    return (decay - 0.01).clamp(min=1e-4).sqrt()


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_layer_in_every_mode(choice: dict[str, str], engine: str) -> None:
    layer = S4D(3, 8, engine=engine, dtype=torch.float64, **choice)  # type: ignore[arg-type]
    u = torch.randn(2, 37, 3, dtype=torch.float64)
    y, end = layer(u)
    first, state = layer(u[:, :10])
    second, state = layer(u[:, 10:], state)
    assert_close(torch.cat([first, second], dim=1), y, rtol=0, atol=1e-10)
    assert_close(state, end, rtol=0, atol=1e-10)
    state, ys = layer.initial_state(2), []
    for t in range(u.shape[1]):
        y_t, state = layer.step(u[:, t], state)
        ys.append(y_t)
    assert_close(torch.stack(ys, dim=1), y, rtol=0, atol=1e-10)
    y.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in layer.parameters())


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_model_live_and_on_disk(choice: dict[str, str], tmp_path: Path) -> None:
    model = SequenceModel(2, 3, 8, 2, d_state=4, pooling="last", **choice).eval()  # type: ignore[arg-type]
    u = torch.randn(1, 25, 2)
    with torch.no_grad():
        expected, _ = model(u)
    step = model.compile_step()
    for t in range(25):
        y = step.push(u[:, t])
    assert_close(y, expected, rtol=0, atol=1e-5)
    assert_close(torch.as_tensor(Stream(model).push(u[0])), expected[0], rtol=0, atol=1e-5)
    model.save_pretrained(tmp_path / "m")
    again = SequenceModel.from_pretrained(tmp_path / "m").eval()
    with torch.no_grad():
        assert_close(again(u)[0], expected, rtol=0, atol=0)


def test_softplus_by_an_outsider_is_softplus() -> None:
    """The path without compiled code, against the one with it."""
    inverse = CONSTRAINTS["softplus"].inverse
    CONSTRAINTS.register("mine", Constraint(lambda raw: softplus(raw, threshold=40.0), inverse))
    try:
        layers = [S4D(3, 8, constraint=name) for name in ("softplus", "mine")]
        layers[1].load_state_dict(layers[0].state_dict())
        u = torch.randn(2, 50, 3)
        (a, s), (b, t) = (layer(u) for layer in layers)
        assert_close(a, b, rtol=0, atol=1e-5)
        assert_close(s, t, rtol=0, atol=1e-5)
    finally:
        del CONSTRAINTS._entries["mine"]
