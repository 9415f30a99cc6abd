"""Later diagonal variants: the law that each of them is made for, and where it is refused.

That they give the same answer in every mode of use is in ``test_contract``, over the registries.
"""

from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from s4d_torch import METHODS, SSM, Method
from s4d_torch.deploy.stream.snapshots import _check_identity
from s4d_torch.nn.method import TABLE_1
from s4d_torch.paper.recipes.reference_tables import choices
from s4d_torch.ssm import initialization
from s4d_torch.ssm.constraint import BEST_OFFSET, CONSTRAINTS
from s4d_torch.training import default_config

DFOUT, DIRAC, LRU = (METHODS[name] for name in ("s4d-dfout", "s4d-dirac", "lru"))


def ssm_of(method: Method, d_model: int = 4, d_state: int = 8, **changes: Any) -> SSM:
    generator = torch.Generator().manual_seed(0)
    options = {"dtype": torch.float64, "generator": generator, **changes}
    return SSM(d_model, d_state, method=method, **options).requires_grad_(False)


def poles(ssm: SSM, rate: float = 1.0) -> torch.Tensor:
    return ssm._state_space(rate).discrete().A_bar


# -- best: Re(A) = -1 / (w^2 + b) ------------------------------------------------------------------


def test_what_reaches_the_parameter_of_best_grows_no_faster_than_itself() -> None:
    """A loss has a gradient of order 1/decay^2 by the decay rate, so |f'| / f^2 must not blow up.

    That of ``exp`` is 1/decay, without bound for slow modes.
    """
    raw = torch.linspace(-90, 90, 181, dtype=torch.float64, requires_grad=True)
    decay = CONSTRAINTS["best"].forward(raw)
    assert_close(decay, 1 / (raw**2 + BEST_OFFSET))
    (slope,) = torch.autograd.grad(decay.sum(), raw)
    assert_close(slope.abs() / decay**2, 2 * raw.abs())
    assert decay.max() == CONSTRAINTS["best"].largest == 1 / BEST_OFFSET


@pytest.mark.parametrize("init", ["rand", "real", "legs+rand"])
def test_best_refuses_decay_rates_out_of_its_reach(init: str) -> None:
    with pytest.raises(
        ValueError, match=r"'best' reaches decay rates up to 2, .* or constraint 'exp'"
    ):
        Method(constraint="best", init=init)
    Method(constraint="best", init=init, random_real=True)  # Re(A) from -U[0, 1]


# -- dirac: samples are events ---------------------------------------------------------------------


def test_events_add_B_however_long_the_wait() -> None:
    """``rate`` 3 is three steps between events: the dense sequence with zeros between them."""
    ssm = ssm_of(DIRAC)
    u = torch.randn(2, 20, 4, dtype=torch.float64)
    dense = torch.zeros(2, 58, 4, dtype=torch.float64)
    dense[:, ::3] = u
    assert_close(ssm(u, rate=3.0)[0], ssm(dense)[0][:, ::3], rtol=0, atol=1e-12)
    assert_close(ssm.kernel(20, rate=3.0), ssm.kernel(60)[:, ::3], rtol=0, atol=1e-12)
    held = ssm_of(DIRAC.replace(discretization="zoh", B_init="auto"))
    assert not torch.allclose(held.kernel(20, rate=3.0), held.kernel(60)[:, ::3])


def test_dirac_keeps_B() -> None:
    ssm = ssm_of(Method(discretization="dirac"))
    step = ssm._state_space(1.0).discrete()
    assert_close(step.B_now, ssm.B)
    assert_close(step.log_A, ssm.dt[:, None] * ssm.A)
    assert_close(ssm.kernel(1)[:, 0], 2 * (ssm.B * ssm.C).real.sum(-1))


# -- dfout: angles on the circle -------------------------------------------------------------------


def test_dfout_spreads_the_poles_of_a_layer_evenly_over_the_circle() -> None:
    ssm = ssm_of(DFOUT, d_model=4, d_state=8)
    A_bar = poles(ssm)  # (4, 4), the upper half
    angles = A_bar.angle().flatten().sort().values
    assert_close(angles, torch.pi * torch.arange(16, dtype=torch.float64) / 16)
    # with the conjugates 4 x 8 places on the whole circle; 0 is there twice, and pi is left out
    places = (torch.cat([angles, -angles]) * 16 / torch.pi).round() % 32
    assert set(places.tolist()) == set(range(32)) - {16}
    assert_close(A_bar.abs(), torch.exp(-ssm.dt / 2)[:, None].expand(4, 4))


def test_dt_of_dfout_acts_on_the_decay_alone() -> None:
    ssm = ssm_of(DFOUT)
    before = poles(ssm)
    ssm.log_dt += 1.7
    after = poles(ssm)
    assert_close(after.angle(), before.angle(), rtol=0, atol=1e-13)
    assert_close(after.abs().log(), before.abs().log() * torch.tensor(1.7).double().exp())
    usual = ssm_of(Method(discretization="zoh", init="lin"))
    before = poles(usual).angle()
    usual.log_dt -= 1.0
    assert not torch.allclose(poles(usual).angle(), before)


def test_a_rate_of_dfout_acts_on_decay_and_angle() -> None:
    """Every second sample: a step of the system is two of its steps before."""
    ssm = ssm_of(DFOUT.replace(dt_min=0.05, dt_max=0.05))
    ssm.D.zero_()
    assert_close(poles(ssm, 2.0), poles(ssm).square(), rtol=0, atol=1e-13)
    t = torch.arange(600, dtype=torch.float64)[None, :, None]
    u = torch.sin(0.05 * t).expand(-1, -1, 4).contiguous()  # slow beside the sampling
    fine, coarse = ssm(u)[0][:, ::2], ssm(u[:, ::2], rate=2.0)[0]
    wrong = ssm(u[:, ::2])[0]
    assert (coarse - fine).abs().max() < 0.04 * fine.abs().max()
    assert (wrong - fine).abs().max() > 0.3 * fine.abs().max()


def test_A_of_dfout_is_that_of_continuous_time() -> None:
    ssm = ssm_of(DFOUT, n_ssm=1)
    assert_close(torch.exp(ssm.dt[:, None] * ssm.A), poles(ssm))
    assert_close(ssm.A.imag * ssm.dt[:, None], ssm.frequency.expand(4, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dfout_over_thousands_of_samples(dtype: torch.dtype) -> None:
    """An angle divided by dt and multiplied by it again must not have lost its last bits."""
    ssm = ssm_of(DFOUT.replace(dt_min=1e-4, dt_max=1e-4), 2, 16, dtype=dtype)
    t = torch.arange(16000, dtype=torch.float64)
    weight = 2 * ssm.C * ssm._state_space(1.0).discrete().B_now
    log_A = torch.complex(-ssm.dt[:, None] / 2, ssm.frequency.double())
    expected = (weight[..., None] * torch.exp(log_A[..., None] * t)).sum(1).real
    bar = {torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    error = (ssm.kernel(16000).double() - expected).abs().max()
    assert error < bar * expected.abs().max()


# -- ring, gamma, unit: the LRU --------------------------------------------------------------------


def test_ring_is_uniform_on_a_ring() -> None:
    A = initialization.diagonal("ring", 64, 500, generator=torch.Generator().manual_seed(0)).A
    square = (2 * A.real).exp()
    low, high = 0.9**2, 0.999**2
    assert low <= square.min()
    assert square.max() < high
    for values, span in ((square.flatten() - low, high - low), (A.imag.flatten(), torch.pi)):
        places = (values / span).sort().values
        even = torch.linspace(0, 1, len(places), dtype=torch.float64)
        assert (places - even).abs().max() < 0.02  # 16000 draws
    with pytest.raises(ValueError, match=r"0 < low < high <= 1, got 0\.9 and 0\.5"):
        initialization.ring(0.9, 0.5)


def test_the_lru_is_its_recurrence() -> None:
    """``lambda = exp(-exp(nu) + i theta)``, ``x <- lambda x + gamma u``, ``y = 2 Re(Cx) + D u``."""
    ssm = ssm_of(LRU)
    u = torch.randn(1, 50, 4, dtype=torch.float64)
    lambda_ = torch.exp(torch.complex(-ssm.raw_decay.exp(), ssm.frequency))
    gamma = (1 - lambda_.abs().square()).sqrt()
    x, ys = torch.zeros_like(lambda_), []
    for sample in u[0]:
        x = lambda_ * x + gamma * sample[:, None]
        ys.append(2 * (ssm.C * x).real.sum(-1) + ssm.D * sample)
    assert_close(ssm(u)[0][0], torch.stack(ys), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "method", [LRU, DIRAC, DFOUT.replace(discretization="dirac", B_init="gamma")]
)
def test_gamma_gives_states_of_variance_1(method: Method) -> None:
    """Of white noise: ``E|x|^2 = sum |A_bar^l B|^2 = |B|^2 / (1 - |A_bar|^2)``."""
    ssm = ssm_of(method)
    variance = ssm.B.abs().square() / (1 - poles(ssm).abs().square())
    assert_close(variance, torch.ones_like(variance))


@pytest.mark.parametrize("real", [False, True])
def test_unit_gives_outputs_of_variance_1(real: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    C = initialization.output_matrix((2000, 16), C_init="unit", real=real, generator=generator)
    x = initialization.output_matrix((2000, 16), real=real, generator=generator)
    x = x if real else x / 2**0.5  # E|x|^2 = 1
    y = (C * x).real.sum(-1) * (1 if real else 2)
    assert y.var().item() == pytest.approx(1, abs=0.1)


# -- methods by name -------------------------------------------------------------------------------


def test_table_1_is_the_paper_s_alone() -> None:
    assert TABLE_1 == ("s4d", "s4", "dss")
    assert list(METHODS)[:3] == list(TABLE_1)
    assert [row[0] for row in choices().rows] == ["S4D", "S4", "DSS"]


def test_a_step_size_that_belongs_to_the_method_stays() -> None:
    assert LRU.with_steps(1e-4, 1e-2) == LRU
    assert DFOUT.with_steps(1e-4, 1e-2) == DFOUT.replace(dt_min=1e-4, dt_max=1e-2)


def test_a_config_without_the_new_field_is_the_config_it_was() -> None:
    config = default_config("digits")
    assert "dt_scales" not in config.to_json()["method"]
    assert type(config).from_json(config.to_json()) == config


def test_a_snapshot_without_the_new_field_is_of_the_same_model() -> None:
    own = {"config": {"d_model": 4, "method": asdict(Method())}, "weights": "digest"}
    older = {**own, "config": {"d_model": 4, "method": dict(asdict(Method()))}}
    del older["config"]["method"]["dt_scales"]
    _check_identity(older, own, "s.safetensors")
    other = {**own, "config": {"d_model": 4, "method": asdict(DFOUT)}}
    with pytest.raises(
        ValueError, match=r"another model: method\.discretization 'bilinear' instead"
    ):
        _check_identity(older, other, "s.safetensors")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"init": "dfout"}, "is an angle per sample and needs dt_scales 'decay', got 'all'"),
        ({"init": "legs+dfout"}, "'dfout' is an angle per sample"),
        (
            {"dt_scales": "decay", "init": "lin"},
            "frequency in time .* goes with init 'dfout' or 'ring'",
        ),
        ({"dt_scales": "decay", "init": "real"}, "Im.A. of init 'real'"),
        ({"dt_scales": "decay", "init": "dfout+lin"}, "Im.A. of init 'lin'"),
        (
            {"dt_scales": "decay", "init": "dfout"},
            "'bilinear' bends; use 'zoh' or 'foh' or 'dirac'",
        ),
        (
            {"dt_scales": "decay", "structure": "dplr", "kernel": "cauchy"},
            "use structure='diagonal'",
        ),
        ({"dt_scales": "dt"}, "unknown dt_scales 'dt'; choose one of: all, decay"),
        ({"B_init": "gamma"}, "needs discretization 'dirac', .* got 'bilinear'"),
        ({"B_init": "gamma", "structure": "dplr", "kernel": "cauchy"}, "HiPPO's own B"),
        ({"discretization": "dirac", "kernel": "softmax"}, "kernel 'softmax' needs 'zoh'"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Method(**changes)
