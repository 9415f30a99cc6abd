"""The rivals of `s4d bench` are honest: they compute what we compute, and train as much."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from s4d_torch import METHODS, S4D, SSM
from s4d_torch.bench import Case, NotAvailable, Sizes, contenders, jax_layers, models
from s4d_torch.bench.contenders import (
    BACKWARD,
    CURVE_LAYERS,
    DPLR_LAYERS,
    FORWARD,
    LAYERS,
    LRNNX,
    LSTM,
    MAMBA,
    OFFICIAL,
    OURS,
    S5,
    TRAINING,
)
from s4d_torch.bench.peers import Cauchy, Listing, Official, OfficialLayer, PeerLayer
from s4d_torch.paper.experiments.local_workers import count_cores

CASE = Case(BACKWARD, batch=2, length=64, d_model=4, d_state=8)


def make(method: str) -> SSM:
    generator = torch.Generator().manual_seed(0)
    return SSM(4, 16, method=METHODS[method], generator=generator)


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def same_output_and_gradient(layer: S4D, rival: nn.Module) -> None:
    u = torch.randn(2, 100, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    ours, theirs = layer(u)[0], rival(u)
    assert_close(theirs, ours, atol=1e-3, rtol=0)
    grads = [torch.autograd.grad(y.square().sum(), u)[0] for y in (ours, theirs)]
    assert_close(grads[1], grads[0], atol=1e-2, rtol=0)


@pytest.mark.parametrize("form", ["power", "exp"])
def test_the_listing_has_our_kernel(form: str) -> None:
    ssm = make("s4d")
    ours = ssm.kernel(512).detach()
    assert_close(
        Listing(ssm, form).kernel(512).detach(), ours, atol=1e-3 * float(ours.abs().max()), rtol=0
    )


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("length", [64, 512])
def test_the_cauchy_rival_has_the_kernel_of_s4(length: int, shared: bool) -> None:
    ssm = make("s4")
    ours = ssm.kernel(length).detach()
    theirs = Cauchy(ssm, length, shared=shared).kernel(length).detach()
    assert_close(theirs, ours, atol=1e-3 * float(ours.abs().max()), rtol=0)


def test_the_rivals_layer_is_our_layer() -> None:
    """Same kernel, same D, same GELU and GLU: the same output, and gradients of the input."""
    layer = S4D(4, 16, generator=torch.Generator().manual_seed(0))
    rival = PeerLayer(Listing(layer.ssm))
    rival.output.load_state_dict(layer.output.state_dict())
    same_output_and_gradient(layer, rival)


# ---- the official layer -----------------------------------------------------------------------


def with_output(core: Official, weight: torch.Tensor, bias: torch.Tensor) -> OfficialLayer:
    layer = OfficialLayer(core)
    layer.output.load_state_dict({"weight": weight.reshape(*weight.shape[:2], 1), "bias": bias})
    return layer


def test_the_official_layer_is_ours_with_a_zero_order_hold() -> None:
    generator = torch.Generator().manual_seed(0)
    layer = S4D(4, 16, init="lin", discretization="zoh", generator=generator)
    core = Official(layer.ssm)
    ours = layer.ssm.kernel(512).detach()
    assert_close(core.kernel(512).detach(), ours, atol=1e-4 * float(ours.abs().max()), rtol=0)
    output = dict(layer.output.named_parameters())
    same_output_and_gradient(layer, with_output(core, output["weight"].detach(), output["bias"]))


def test_the_official_layer_answers_as_the_official_code_did(shared: Path) -> None:
    """Weights, an input and the output of the official repository's minimal layer itself."""
    with np.load(shared / "official" / "minimal_s4d.npz") as file:
        given = {name: torch.from_numpy(file[name]) for name in file.files}
    core = Official(SSM(6, 16))
    stored = {
        "D": given["w:D"],
        "C": given["w:kernel.C"],
        "log_dt": given["w:kernel.log_dt"],
        "log_decay": given["w:kernel.log_A_real"],
        "frequency": given["w:kernel.A_imag"],
    }
    core.load_state_dict(stored)
    output = (given[f"w:output_linear.0.{name}"] for name in ("weight", "bias"))
    y = with_output(core, *output)(given["u"])
    assert_close(y, given["y"], atol=1e-5, rtol=0)


# ---- what is trained --------------------------------------------------------------------------


def test_the_rivals_train_as_many_numbers_as_we_do() -> None:
    """A rival that left out a gradient would look faster than it is."""
    for method, rival in (("s4d", Listing(make("s4d"))), ("s4", Cauchy(make("s4"), 64))):
        assert count(make(method)) == count(rival)
    ours = make("s4d")
    assert count(Official(ours)) == count(ours) - ours.B.numel() * 2  # it has no B


def test_the_lstm_has_as_many_parameters_as_our_model() -> None:
    for shape in Sizes().train:
        case = shape.case(TRAINING, threads=1)
        small = models.lstm_case(case)
        ours = count(models.trained_model(case))
        theirs = count(models.trained_model(small, LAYERS[LSTM].make))
        assert small.layers == 1
        assert abs(theirs / ours - 1) < 0.02


def test_every_contender_gives_gradients_to_input_and_parameters() -> None:
    official = {OFFICIAL: LAYERS[OFFICIAL]}
    kinds = contenders.layers({**DPLR_LAYERS, **official})
    for name, contender in {**contenders.state_spaces(), **kinds}.items():
        grads = contender.build(CASE)()
        assert isinstance(grads, tuple), name
        assert len(grads) >= 2, name
        assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads), name


def test_a_training_step_changes_every_parameter_of_every_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[nn.Module] = []
    original = models.trained_model
    monkeypatch.setattr(
        models, "trained_model", lambda *a: (made.append(original(*a)), made[-1])[1]
    )
    case = replace(CASE, way=TRAINING, layers=2)
    for make_call in models.training_steps().values():
        call = make_call.build(case)
        parameters = list(made[-1].parameters())
        before = [p.detach().clone() for p in parameters]
        call()
        assert all(bool((p != b).any()) for p, b in zip(parameters, before, strict=True))


def test_forward_keeps_no_graph() -> None:
    y = contenders.state_spaces()[OURS].build(replace(CASE, way=FORWARD))()
    assert isinstance(y, torch.Tensor)
    assert not y.requires_grad


def test_the_sweep_makes_its_kernel_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept system would hide the cost of the kernel."""
    made = []
    original = SSM._state_space
    monkeypatch.setattr(
        SSM, "_state_space", lambda self, *a: (made.append(self.training), original(self, *a))[1]
    )
    contenders.against_given()[OURS].build(replace(CASE, way=FORWARD))()
    assert all(made)


def test_the_picture_has_no_more_lines_than_can_be_told_apart() -> None:
    assert len(CURVE_LAYERS) <= 8


def test_contenders_make_everything_on_the_device_they_run_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`meta` stands in for a GPU: torch refuses to add its tensors to those of the processor."""
    adamw = torch.optim.AdamW  # whose fused form meta does not have
    monkeypatch.setattr(torch.optim, "AdamW", lambda *a, fused, **k: adamw(*a, **k))
    ours = {name: kind for name, kind in LAYERS.items() if name not in (S5, MAMBA, LRNNX)}
    groups = {
        BACKWARD: [
            contenders.kernels(),
            contenders.state_spaces(),
            contenders.against_given(),
            contenders.layers({**ours, **DPLR_LAYERS}),
        ],
        FORWARD: [contenders.state_spaces(), contenders.against_given(), contenders.layers(ours)],
        TRAINING: [models.training_steps(all_layers=True)],
    }
    for way, several in groups.items():
        for contender in (each for group in several for each in group.values()):
            contender.build(replace(CASE, way=way, d_model=8, layers=2, device="meta"))()


# ---- JAX --------------------------------------------------------------------------------------


def test_jax_computes_our_layers() -> None:
    """Output, and the gradients of the input and of the linear maps, of two layers in a row."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    case = replace(CASE, length=100, layers=2)
    layers = nn.ModuleList(jax_layers.make_layers(case))
    arrays = [jax_layers.parameters(layer) for layer in layers]
    u, grad = contenders.signal("cpu", case.batch, case.length, case.d_model)
    x = u.clone().requires_grad_()
    y = x
    for layer in layers:
        y = layer(y)[0]
    y.backward(grad)
    theirs, pull = jax.vjp(jax_layers.run_layers, arrays, u.numpy())
    assert_close(torch.tensor(np.asarray(theirs)), y.detach(), atol=1e-4, rtol=0)
    of_layers, of_u = pull(grad.numpy())
    assert_close(torch.tensor(np.asarray(of_u)), x.grad, atol=1e-4, rtol=1e-3)
    for layer, found in zip(layers, of_layers, strict=True):
        weight = layer.output.weight.grad
        assert_close(torch.tensor(np.asarray(found["weight"])), weight, atol=1e-3, rtol=1e-3)
        trained = {"C": layer.ssm.C, "B": layer.ssm.B, "D": layer.ssm.D}
        assert all(found[name].any() for name in trained)


def test_jax_runs_jitted_in_both_ways() -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    case = replace(CASE, layers=2, threads=count_cores())
    for way in (FORWARD, BACKWARD):
        contenders_ = jax_layers.contenders()
        first, again = (contenders_[jax_layers.JAX].build(replace(case, way=way)) for _ in range(2))
        first()
        again()


def test_without_jax_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(contenders, "import_module", gone)
    with pytest.raises(NotAvailable, match="JAX is not installed"):
        jax_layers.contenders()[jax_layers.JAX].build(replace(CASE, threads=count_cores()))


def test_jax_is_not_measured_against_fewer_threads_than_it_takes() -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    with pytest.raises(NotAvailable, match="JAX uses all"):
        jax_layers.contenders()[jax_layers.JAX].build(replace(CASE, threads=count_cores() + 1))
