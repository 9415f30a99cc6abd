"""Choices registered from outside, without compiled code: the same answer in every mode of use."""

from collections.abc import Iterator

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import softplus
from torch.testing import assert_close

from s4d_torch import S4D
from s4d_torch.ssm.constraint import CONSTRAINTS, Constraint
from s4d_torch.ssm.discretization import DISCRETIZATIONS, Discrete
from s4d_torch.ssm.engine import ENGINES
from s4d_torch.ssm.initialization import INITIALIZATIONS, Spectrum
from s4d_torch.ssm.kernel import vandermonde
from s4d_torch.ssm.state_space import KERNELS, Kernel, StateSpace

CHOICES = [
    {"constraint": "square"},
    {"discretization": "events"},
    {"init": "cubic"},
    {"init": "clustered"},
    {"kernel": "halved"},
    {"constraint": "square", "discretization": "events", "init": "cubic", "kernel": "halved"},
]


def events(A: Tensor, B: Tensor, dt: Tensor) -> Discrete:
    """``A_bar = e^(dt A)``, ``B_bar = B``: samples are events."""
    return Discrete(log_A=dt * A, B_now=B + 0 * A)


def cubic(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    return torch.complex(-0.5 - 0 * n, 0.1 * n**3)


def clustered(n: Tensor, d_state: int, generator: Generator | None) -> Tensor:
    return torch.complex(-0.5 - 0 * n, 3 + 0.1 * n)


def halved(space: StateSpace, length: int) -> Tensor:
    return vandermonde(space.discrete(), space.C / 2, length, pairs=space.pairs)


@pytest.fixture(autouse=True)
def choices() -> Iterator[None]:
    """As in a user's own file; taken back after each test."""
    square = Constraint(lambda raw: raw.square() + 0.01, _root)
    kernel = Kernel(halved, adjust=lambda space, step, C: (step, C / 2))
    with (
        CONSTRAINTS._added("square", square),
        DISCRETIZATIONS._added("events", events),
        INITIALIZATIONS._added("cubic", Spectrum(cubic)),
        INITIALIZATIONS._added("clustered", Spectrum(clustered)),
        KERNELS._added("halved", kernel),
    ):
        yield


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


def test_softplus_by_an_outsider_is_softplus() -> None:
    """The path without compiled code, against the one with it."""
    inverse = CONSTRAINTS["softplus"].inverse
    entry = Constraint(lambda raw: softplus(raw, threshold=40.0), inverse)
    with CONSTRAINTS._added("mine", entry):
        layers = [S4D(3, 8, constraint=name) for name in ("softplus", "mine")]
        layers[1].load_state_dict(layers[0].state_dict())
        u = torch.randn(2, 50, 3)
        (a, s), (b, t) = (layer(u) for layer in layers)
        assert_close(a, b, rtol=0, atol=1e-5)
        assert_close(s, t, rtol=0, atol=1e-5)
