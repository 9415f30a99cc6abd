"""Weights of the official code: the same output as its formulas, and errors that help.

The reference is plain NumPy (official_reference.py); real layers with their outputs are among the
external files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import official_reference as reference
from official_reference import rounded, tensors
from s4d_torch import DSS, S4, S4D, Layer
from s4d_torch.deploy import from_official, read_official
from s4d_torch.deploy.official import output_errors

LENGTH = 21
PARITY = {
    "minimal_s4d": {},
    "diag_lin_zoh": {},
    "diag_legs_bilinear_relu": {"disc": "bilinear", "real_transform": "relu"},
    "dplr_legs": {},
}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def check(layer: Layer, u: np.ndarray, y: np.ndarray, tolerance: float = 1e-5) -> None:
    """The same output at once and, if it can, step by step."""
    errors = output_errors(layer, torch.from_numpy(u), torch.from_numpy(y))
    assert len(errors) == (1 if layer.method.bidirectional else 2)
    for way, error in errors.items():
        assert error < tolerance, f"{way}: {error}"


def check_block(rng: np.random.Generator, weights: reference.Arrays, **options: Any) -> Layer:
    """The layer of these weights, once it has answered as the reference does."""
    weights = rounded(weights)
    u = rng.standard_normal((2, LENGTH, weights["layer.D"].shape[1]))
    ours = {name: value for name, value in options.items() if not callable(value)}
    theirs = {name: value for name, value in options.items() if name not in ("l_max", "prefix")}
    y = reference.block(weights, u, **theirs)
    check(from_official(tensors(weights, np.float64), **ours), u, y, 1e-11)
    layer = from_official(tensors(weights), **ours)
    check(layer, u, y)
    return layer


# ---- real layers -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARITY)
def test_a_layer_of_the_official_repository_gives_the_same_output(name: str, shared: Path) -> None:
    file = read_official(shared / "official" / f"{name}.npz")
    assert file.u is not None
    assert file.y is not None
    check(from_official(file.state_dict, **PARITY[name]), file.u.numpy(), file.y.numpy())
    double = from_official(file.state_dict, dtype=torch.float64, **PARITY[name])
    check(double, file.u.numpy(), file.y.numpy(), 2e-6)


def test_every_parity_file_is_tested(shared: Path) -> None:
    assert {path.stem for path in (shared / "official").glob("*.npz")} == set(PARITY)


# ---- single layers -----------------------------------------------------------------------------


def test_minimal_s4d(rng: np.random.Generator) -> None:
    weights = rounded(reference.minimal_weights(rng))
    u = rng.standard_normal((2, LENGTH, 4))
    layer = from_official(tensors(weights))
    check(layer, u, reference.minimal(weights, u))
    assert type(layer) is S4D
    assert not layer.method.train_B  # it has none
    assert bool((layer.ssm.B == 1).all())


@pytest.mark.parametrize("disc", ["zoh", "bilinear", "dss"])
@pytest.mark.parametrize("transform", ["exp", "relu", "none", "sigmoid", "softplus"])
def test_diagonal(disc: str, transform: str, rng: np.random.Generator) -> None:
    weights = reference.block_weights(rng, real_transform=transform)
    length = {"l_max": LENGTH} if disc == "dss" else {}
    layer = check_block(rng, weights, disc=disc, real_transform=transform, **length)
    assert type(layer) is (DSS if disc == "dss" else S4D)
    if transform in ("exp", "relu", "softplus"):
        assert layer.method.constraint == transform
        assert layer.ssm.raw_decay.equal(tensors(weights)["layer.kernel.A_real"])


@pytest.mark.parametrize("disc", ["zoh", "bilinear", "dss"])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("copies", [1, 2, 4])
def test_tied_and_bidirectional(
    disc: str, channels: int, copies: int, rng: np.random.Generator
) -> None:
    weights = reference.block_weights(rng, S=copies, channels=channels)
    layer = check_block(rng, weights, disc=disc, **({"l_max": LENGTH} if disc == "dss" else {}))
    assert layer.method.bidirectional == (channels == 2)
    assert layer.ssm.n_ssm == (1 if copies == 1 else 4)


@pytest.mark.parametrize("disc", ["zoh", "bilinear", "dss"])
def test_real_modes(disc: str, rng: np.random.Generator) -> None:
    weights = reference.block_weights(rng, pairs=False, N=3, S=2)
    layer = check_block(rng, weights, disc=disc, **({"l_max": LENGTH} if disc == "dss" else {}))
    assert not layer.method.pairs
    assert layer.d_state == 3


@pytest.mark.parametrize("disc", ["zoh", "bilinear", "dss"])
@pytest.mark.parametrize("transform", ["exp", "relu"])
def test_a_step_size_for_each_mode(disc: str, transform: str, rng: np.random.Generator) -> None:
    weights = reference.block_weights(rng, each_dt=True, S=2, real_transform=transform)
    length = {"l_max": LENGTH} if disc == "dss" else {}
    check_block(rng, weights, disc=disc, real_transform=transform, **length)


def test_dss_with_modes_that_grow(rng: np.random.Generator) -> None:
    weights = reference.block_weights(rng, real_transform="none")
    weights["layer.kernel.A_real"] -= 1.0
    assert weights["layer.kernel.A_real"].min() < 0 < weights["layer.kernel.A_real"].max()
    check_block(rng, weights, disc="dss", real_transform="none", l_max=LENGTH)


def test_dss_divides_as_softly_as_the_official_code(rng: np.random.Generator) -> None:
    """Its reciprocal is x* / (|x|^2 + 1e-7), which matters for slow modes."""
    weights = reference.block_weights(rng)
    weights["layer.kernel.A_real"][:] = np.log(0.01)
    weights["layer.kernel.A_imag"][:, 0] = 0.0
    check_block(rng, weights, disc="dss", l_max=LENGTH)


@pytest.mark.parametrize(
    "options",
    [
        {"dt_transform": "softplus"},
        {"dt_transform": "sigmoid"},
        {"dt_fast": True},
        {"imag_transform": "softplus"},
        {"bandlimit": 0.3},
    ],
    ids=str,
)
def test_other_options(options: dict[str, Any], rng: np.random.Generator) -> None:
    weights = reference.block_weights(rng)
    if "dt_fast" in options:
        weights["layer.kernel.inv_dt"] = np.arcsinh(weights["layer.kernel.inv_dt"])
    check_block(rng, weights, **options)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("relu", lambda x: np.maximum(x, 0)),
        ("swish", lambda x: x / (1 + np.exp(-x))),
        ("tanh", np.tanh),
        ("id", lambda x: x),
    ],
)
@pytest.mark.parametrize("width", [0, 1, 2])
def test_activations_and_output_maps(
    name: str, function: Any, width: int, rng: np.random.Generator
) -> None:
    weights = rounded(reference.block_weights(rng, width=width))
    u = rng.standard_normal((2, LENGTH, 4))
    layer = from_official(tensors(weights), activation=name)
    check(layer, u, reference.block(weights, u, activation=function))
    assert layer.mixing == ("none", "linear", "glu")[width]


def test_without_a_skip(rng: np.random.Generator) -> None:
    weights = rounded(reference.block_weights(rng))
    u = rng.standard_normal((2, LENGTH, 4))
    y = reference.block({**weights, "layer.D": np.zeros((1, 4))}, u)
    del weights["layer.D"]
    check(from_official(tensors(weights)), u, y)


def test_weight_normalisation(rng: np.random.Generator) -> None:
    weights = reference.block_weights(rng)
    u = rng.standard_normal((2, LENGTH, 4))
    y = reference.block(weights, u)
    weight = weights.pop("output_linear.0.weight")
    weights["output_linear.0.weight_g"] = np.linalg.norm(weight, axis=1, keepdims=True)
    weights["output_linear.0.weight_v"] = 3 * weight
    check(from_official(tensors(weights)), u, y)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("copies", [1, 2, 4])
def test_low_rank(rank: int, channels: int, copies: int, rng: np.random.Generator) -> None:
    weights = reference.low_rank_weights(rng, length=25, rank=rank, S=copies, channels=channels)
    layer = check_block(rng, weights)
    assert type(layer) is S4
    assert layer.ssm.P.shape == (4, rank, 5)


def test_low_rank_with_slow_modes(rng: np.random.Generator) -> None:
    """Where little has faded after L steps, C is much larger than what is stored for it."""
    weights = reference.low_rank_weights(rng, length=25)
    weights["layer.kernel.inv_dt"][:] = np.log(1e-3)
    check_block(rng, weights)


def test_c_does_not_depend_on_the_length_it_was_stored_for() -> None:
    layers = [
        from_official(tensors(reference.low_rank_weights(np.random.default_rng(1), length=length)))
        for length in (9, 40)
    ]
    torch.testing.assert_close(layers[0].ssm.C, layers[1].ssm.C, rtol=1e-5, atol=1e-5)
    raw = reference.low_rank_weights(np.random.default_rng(1), length=9)
    raw["layer.kernel.C"] = reference.block_weights(np.random.default_rng(1))["layer.kernel.C"]
    raw["layer.kernel.l_kernel"] = np.array(0)  # never run: still C itself
    never_run = from_official(tensors(raw))
    torch.testing.assert_close(never_run.ssm.C, layers[0].ssm.C, rtol=1e-5, atol=1e-5)


# ---- older generations -------------------------------------------------------------------------


def older(weights: reference.Arrays, **names: str) -> reference.Arrays:
    """A v4 layer under the names of v3 or v2: kernel.kernel, log_dt (H,), Im(A) with its sign."""
    names = {"inv_dt": "log_dt", **names}
    changed = {}
    for name, x in weights.items():
        key = name.removeprefix("layer.")
        for new, old in names.items():
            key = key.replace(new, old)
        x = x[:, 0] if key.endswith("log_dt") else -x if name.endswith("A_imag") else x
        changed[key.replace("kernel.", "kernel.kernel.")] = x
    return changed


def test_v3_diagonal(rng: np.random.Generator) -> None:
    weights = rounded(reference.block_weights(rng, S=2))
    u = rng.standard_normal((2, LENGTH, 4))
    changed = older(weights, A_real="inv_A_real")
    changed["kernel.kernel.B"] = changed["kernel.kernel.B"][0]
    changed["kernel.kernel.A"] = np.zeros((2, 5, 2))  # stored there, and never read
    y = reference.block(weights, u, disc="bilinear")  # its default
    check(from_official(tensors(changed)), u, y)
    y = reference.block(weights, u, disc="zoh")
    check(from_official(tensors(changed), disc="zoh"), u, y)


def test_v3_low_rank(rng: np.random.Generator) -> None:
    weights = rounded(reference.low_rank_weights(rng, length=25))
    u = rng.standard_normal((2, LENGTH, 4))
    y = reference.block(weights, u)
    changed = older(weights, A_real="inv_w_real", A_imag="w_imag", l_kernel="L")
    check(from_official(tensors(changed)), u, y)


def test_v3_low_rank_has_no_floor_under_relu(rng: np.random.Generator) -> None:
    weights = reference.low_rank_weights(rng, length=25)
    raw = tensors(older(weights, A_real="inv_w_real", A_imag="w_imag", l_kernel="L"))
    raw["kernel.kernel.inv_w_real"] = raw["kernel.kernel.inv_w_real"].exp()
    layer = from_official(raw, real_transform="relu")
    torch.testing.assert_close(-layer.ssm.A.real, raw["kernel.kernel.inv_w_real"].double())


@pytest.mark.parametrize("length", [24, 25])
def test_v2_low_rank_finds_its_length_in_the_nodes(length: int, rng: np.random.Generator) -> None:
    weights = rounded(reference.low_rank_weights(rng, length=length, S=1))
    u = rng.standard_normal((2, LENGTH, 4))
    y = reference.block(weights, u)
    changed = older(weights, A_real="log_w_real", A_imag="w_imag")
    del changed["kernel.kernel.l_kernel"]
    with pytest.raises(ValueError, match="pass l_kernel"):
        from_official(tensors(changed))
    check(from_official(tensors(changed), l_kernel=length), u, y)
    omega = np.exp(-2j * np.pi / length * np.arange(length // 2 + 1))
    for name in ("omega", "z"):
        changed[f"kernel.kernel.{name}"] = np.stack([omega.real, omega.imag], axis=-1)
    check(from_official(tensors(changed)), u, y)


def test_v2_diagonal_without_b(rng: np.random.Generator) -> None:
    weights = rounded(reference.block_weights(rng, width=1))
    weights["layer.kernel.B"] = np.stack([np.ones((1, 4, 5)), np.zeros((1, 4, 5))], axis=-1)
    u = rng.standard_normal((2, LENGTH, 4))
    y = reference.block(weights, u)
    changed = older(weights, A_real="log_w_real", A_imag="w_imag")
    del changed["kernel.kernel.B"]
    changed = {name.replace("linear.0", "linear"): x for name, x in changed.items()}
    check(from_official(tensors(changed)), u, y)


# ---- errors ------------------------------------------------------------------------------------


def refused(weights: dict[str, Tensor], **options: Any) -> str:
    with pytest.raises((ValueError, TypeError)) as error:
        from_official(weights, **options)
    return str(error.value)


def test_keys_without_a_counterpart_are_named(rng: np.random.Generator) -> None:
    weights = tensors(reference.block_weights(rng))
    message = refused({**weights, "input_gate.0.weight": torch.zeros(1), "extra": torch.zeros(1)})
    assert "input_gate.0.weight, extra" in message
    assert "gated block" in message


def test_missing_keys_and_wrong_shapes_are_named(rng: np.random.Generator) -> None:
    weights = tensors(reference.block_weights(rng))
    short = {k: v for k, v in weights.items() if k != "output_linear.0.bias"}
    assert "missing key 'output_linear.0.bias'" in refused(short)
    wrong = {**weights, "layer.kernel.B": torch.zeros(1, 4, 6, 2)}
    message = refused(wrong)
    assert "'layer.kernel.B' must be (1, n_ssm, modes, 2) with sizes (1, 4, 5, 2)" in message
    assert "got shape (1, 4, 6, 2)" in message
    wrong = {**weights, "layer.kernel.C": torch.zeros(4, 4, 5, 2)}
    assert "several heads" in refused(wrong)
    wrong = {**weights, "layer.kernel.C": torch.zeros(2, 4, 5, 2), "layer.D": torch.zeros(2, 4)}
    assert "one head" in refused(wrong)
    wrong = {**weights, "layer.kernel.A_real": torch.full((4, 5), torch.nan)}
    assert "holds NaN" in refused(wrong)
    wrong = {**weights, "layer.kernel.A_real": torch.zeros(3, 5)}
    assert "3 copies, which do not divide the 4 channels" in refused(wrong)
    wrong = {**weights, "output_linear.0.weight": torch.zeros(12, 4)}
    assert "expected 4, or 8 with GLU" in refused(wrong)


def test_what_is_no_official_layer_is_told(rng: np.random.Generator) -> None:
    assert "no key ends in 'kernel.C'" in refused({"weight": torch.zeros(1)})
    weights = tensors(reference.block_weights(rng))
    deeper = {f"model.layers.0.layer.{name}": x for name, x in weights.items()}
    assert "pass the prefix of one" in refused(deeper)
    layer = from_official({**deeper, "other": torch.zeros(1)}, prefix="model.layers.0.layer.")
    assert layer.d_model == 4
    assert "no key starts with 'nowhere.'" in refused(deeper, prefix="nowhere.")
    dense = {"kernel.C": torch.zeros(1, 4, 5, 2), "kernel.A": torch.zeros(4, 5, 5, 2)}
    assert "of no known kind" in refused(dense)
    assert "free low-rank term" in refused({**dense, "kernel.w": torch.zeros(1)})
    assert "got list for 'x'" in refused({"x": [1]})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"disk": "zoh"}, "unknown option 'disk'; did you mean 'disc'?"),
        ({"disc": "euler"}, "choose one of: zoh, bilinear, dss"),
        ({"disc": "dss"}, "pass l_max"),
        ({"l_max": 5}, "l_max has no effect"),
        ({"l_kernel": 5}, "l_kernel has no effect"),
        ({"dt_transform": "none"}, "step sizes down to -"),
        ({"final_act": "id"}, "the output map of the weights is 'glu'"),
        ({"activation": "elu"}, "unknown activation 'elu'"),
    ],
    ids=str,
)
def test_options_that_do_not_fit(
    options: dict[str, Any], told: str, rng: np.random.Generator
) -> None:
    assert told in refused(tensors(reference.block_weights(rng)), **options)


def test_options_that_contradict_the_weights(rng: np.random.Generator) -> None:
    low_rank = tensors(reference.low_rank_weights(rng, length=25))
    assert "always 'bilinear', got disc 'zoh'" in refused(low_rank, disc="zoh")
    assert "says 25, got l_kernel=24" in refused(low_rank, l_kernel=24)
    minimal = tensors(reference.minimal_weights(rng))
    assert "always 'zoh', got disc 'bilinear'" in refused(minimal, disc="bilinear")
    assert "real_transform is 'exp'" in refused(minimal, real_transform="relu")
    assert "log_dt is log dt" in refused(minimal, dt_transform="softplus")
    stuck = {**low_rank, "layer.kernel.A_real": torch.full((4, 5), -100.0)}
    stuck["layer.kernel.P"] = torch.zeros(1, 4, 5, 2)
    stuck["layer.kernel.A_imag"] = torch.zeros(4, 5)
    assert "C cannot be recovered" in refused(stuck)
