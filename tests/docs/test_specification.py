"""The layers compute what docs/specification.md says: the paper's listing, corrected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch import S4D, SSM
from test_docs import read_examples

PAGE = Path(__file__).resolve().parents[2] / "docs" / "specification.md"


def read_listing() -> dict[str, Callable[..., Any]]:
    """The functions of the first example of the page."""
    names: dict[str, Any] = {}
    exec(read_examples(PAGE.read_text("utf-8"))[0].code, names)
    return names


LISTING = read_listing()


def parameters_of(ssm: SSM, channel: int) -> tuple[np.ndarray, ...]:
    """A channel of a module as the listing's parameters."""
    A, B, C, dt = (x.detach()[channel].numpy() for x in (ssm.A, ssm.B, ssm.C, ssm.dt))
    return np.log(dt), np.log(-A.real), A.imag, B, C


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def test_the_listing_is_about_thirty_lines() -> None:
    code = read_examples(PAGE.read_text("utf-8"))[0].code
    assert len([line for line in code.splitlines() if line.strip()]) <= 35


def test_the_start_is_the_one_of_the_listing() -> None:
    """A and B, that is; dt and C are random draws."""
    _, log_A_real, A_imag, B, _ = LISTING["parameters"](64, np.random.default_rng(0))
    ssm = SSM(1, 64, init="lin", dtype=torch.float64)
    _, log_A_real_, A_imag_, B_, _ = parameters_of(ssm, 0)
    np.testing.assert_allclose(log_A_real_, log_A_real, rtol=1e-15)
    np.testing.assert_allclose(A_imag_, A_imag, rtol=1e-15)
    np.testing.assert_array_equal(B_, B)


@pytest.mark.parametrize("rule", ["bilinear", "zoh"])
@pytest.mark.parametrize("init", ["lin", "inv", "legs"])
@pytest.mark.parametrize(("d_state", "length"), [(2, 1), (4, 37), (64, 1000)])
def test_kernel(rule: str, init: str, d_state: int, length: int) -> None:
    generator = torch.Generator().manual_seed(d_state)
    ssm = SSM(3, d_state, init=init, discretization=rule, dtype=torch.float64, generator=generator)
    found = ssm.kernel(length).detach().numpy()
    for channel in range(3):
        wanted = LISTING["kernel"](length, *parameters_of(ssm, channel), rule)
        assert relative_error(found[channel], wanted) < 1e-12


@pytest.mark.parametrize("rule", ["bilinear", "zoh"])
@pytest.mark.parametrize(("d_state", "length"), [(2, 1), (16, 30), (64, 200)])
@pytest.mark.parametrize("mode", ["whole", "chunks", "steps"])
def test_layer_in_every_mode(rule: str, d_state: int, length: int, mode: str) -> None:
    """A layer without activation and mixing is the listing and the skip term."""
    generator = torch.Generator().manual_seed(length)
    layer = S4D(
        2,
        d_state,
        init="lin",
        discretization=rule,
        activation="none",
        mixing="none",
        dtype=torch.float64,
        generator=generator,
    ).eval()
    u = torch.randn(1, length, 2, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        state = layer.initial_state(1)
        if mode == "whole":
            y, _ = layer(u)
        elif mode == "chunks":
            parts = []
            for chunk in u.split(11, dim=1):
                part, state = layer(chunk, state)
                parts.append(part)
            y = torch.cat(parts, dim=1)
        else:
            samples = []
            for sample in u.unbind(1):
                y_t, state = layer.step(sample, state)
                samples.append(y_t)
            y = torch.stack(samples, dim=1)
    for channel in range(2):
        signal, D = u[0, :, channel].numpy(), float(layer.ssm.D.detach()[channel])
        parameters = parameters_of(layer.ssm, channel)
        for form in ("forward", "recurrent"):
            wanted = LISTING[form](signal, parameters, rule) + D * signal
            assert relative_error(y[0, :, channel].numpy(), wanted) < 1e-12
