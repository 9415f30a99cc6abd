"""The engines: FFT, chunks and the compiled code agree in values, states and gradients."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from s4d_torch import METHODS, SSM, Method
from s4d_torch.nn.method import legal_methods
from s4d_torch.ssm import engine
from s4d_torch.ssm.compiled import runtime
from s4d_torch.ssm.compiled.convolution import direct, fourier
from s4d_torch.ssm.compiled.tables import ScanTables
from s4d_torch.ssm.constraint import CONSTRAINTS
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.engine import ENGINES
from s4d_torch.ssm.state_space import StateSpace

CPU = torch.device("cpu")
BARS = {torch.float64: 1e-10, torch.float32: 1e-5}
LENGTHS = (1, 3, 4, 30, 256, 259, 600)
METHODS_CAUSAL = [m.replace(softmax_length=40) for m in legal_methods()]

needs_numba = pytest.mark.skipif(
    not runtime.available(CPU, torch.float32), reason="the compiled scan needs numba"
)


def name(method: Method) -> str:
    return "-".join((method.kernel, method.discretization, method.constraint, method.init))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed)).to(dtype)


def everything(ssm: SSM, length: int, seed: int = 1) -> list[Tensor]:
    """Outputs, end states and gradients of three calls: plain, with a state, and ragged."""
    dtype = ssm.D.dtype
    u = draw(3, length, ssm.d_model, dtype=dtype, seed=seed).requires_grad_()
    start = draw(3, ssm.d_model, ssm.state_size, seed=seed + 1).requires_grad_()
    lengths = torch.tensor([length, (length + 1) // 2, 1])
    results = [*ssm(u), *ssm(u, start), *ssm(u, start, lengths=lengths)]
    weights = [draw(*r.shape, dtype=r.dtype, seed=k) for k, r in enumerate(results)]
    loss = sum((r * w).sum() for r, w in zip(results, weights, strict=True))
    inputs = [u, start, *ssm.parameters()]
    return [*(r.detach() for r in results), *torch.autograd.grad(loss, inputs)]


def with_engine(ssm: SSM, chosen: str) -> SSM:
    other = copy.deepcopy(ssm)
    other.engine = chosen
    return other


def agree(actual: list[Tensor], expected: list[Tensor], bar: float) -> None:
    for k, (a, b) in enumerate(zip(actual, expected, strict=True)):
        scale = max(b.abs().max().item(), 1e-3)
        assert_close(a, b, rtol=0, atol=bar * scale, msg=lambda text, k=k: f"result {k}: {text}")


@pytest.mark.parametrize("method", METHODS_CAUSAL, ids=name)
def test_engines_agree_for_every_method(method: Method) -> None:
    ssm = SSM(3, 6, method=method, dtype=torch.float64, generator=seeded())
    expected = everything(with_engine(ssm, "fft"), 30)
    for chosen in ("chunk", "scan", "auto"):
        agree(everything(with_engine(ssm, chosen), 30), expected, 1e-9)


@pytest.mark.parametrize("dtype", BARS, ids=str)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("d_model", [1, 16, 21])
def test_engines_agree_at_every_shape(dtype: torch.dtype, length: int, d_model: int) -> None:
    """Lengths around blocks and segments, channels around groups."""
    ssm = SSM(d_model, 10, init="lin", n_ssm=1, dtype=dtype, generator=seeded())
    expected = everything(with_engine(ssm, "fft"), length)
    for chosen in ("chunk", "scan"):
        agree(everything(with_engine(ssm, chosen), length), expected, 2 * BARS[dtype])


@pytest.mark.parametrize("dtype", BARS, ids=str)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("batch", "d_model"), [(1, 8), (1, 16), (2, 16), (2, 32), (16, 16)])
def test_engines_agree_where_batch_and_groups_are_as_many(
    batch: int, d_model: int, bidirectional: bool, dtype: torch.dtype
) -> None:
    """A signal then has the shape of a kernel in groups of channels: neither is the other."""
    options = {"bidirectional": bidirectional, "dtype": dtype, "generator": seeded()}
    ssm = SSM(d_model, 8, **options)
    for length in (1, 16, 40):
        u = draw(batch, length, d_model, dtype=dtype).requires_grad_()
        results = []
        for chosen in ("fft", *ENGINES):
            other = with_engine(ssm, chosen)
            y, _ = other(u, return_state=False)
            grads = torch.autograd.grad(y, [u, *other.parameters()], draw(*y.shape, dtype=dtype))
            with torch.no_grad():
                kept = other.eval()(u, return_state=False)[0]
            results.append([y.detach(), kept, *grads])
        for found in results[1:]:
            agree(found, results[0], 2 * BARS[dtype])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("method", ["s4d", "dss", "s4"])
def test_engines_agree_when_looking_ahead(method: str, length: int) -> None:
    choices = METHODS[method].replace(bidirectional=True, softmax_length=600)
    ssm = SSM(5, 6, method=choices, dtype=torch.float64, generator=seeded())
    lengths = torch.tensor([length, 1])
    results = []
    for chosen in ENGINES:
        u = draw(2, length, 5).requires_grad_()
        other = with_engine(ssm, chosen)
        y, state = other(u, lengths=lengths)
        assert state is None
        grads = torch.autograd.grad(y, [u, *other.parameters()], draw(*y.shape, seed=3))
        results.append([y.detach(), *grads])
    for other_results in results[1:]:
        agree(other_results, results[0], 1e-10)


@pytest.mark.parametrize("signal", ["noise", "constant"])
@pytest.mark.parametrize("chosen", [e for e in ENGINES if e != "auto"])
@pytest.mark.parametrize("dt", [1e-4, 1e-3, 1e-1])
@pytest.mark.parametrize("method", METHODS, ids=METHODS)
def test_float32_keeps_its_bar_against_float64(
    method: str, dt: float, chosen: str, signal: str
) -> None:
    """Over 16384 samples: a rounded A_bar would drift away, a slow mode stall on a constant."""
    if method == "s4" and chosen == "scan":
        pytest.skip("a dense system has no compiled scan; chunks stand in")
    choices = METHODS[method].replace(dt_min=dt, dt_max=dt, softmax_length=16384)
    single = SSM(4, 64, method=choices, engine=chosen, generator=seeded()).requires_grad_(False)
    double = with_engine(single, "fft").double()
    u = torch.ones(1, 16384, 4) if signal == "constant" else draw(1, 16384, 4, dtype=torch.float32)
    y, end = single(u)
    expected, end_expected = double(u.double())
    agree([y.double()], [expected], 1e-5)
    agree([end], [end_expected], 1e-4)  # single modes; what they do to the output is 100 times less


@needs_numba
@pytest.mark.parametrize("bidirectional", [False, True])
def test_float32_keeps_its_bar_term_by_term(bidirectional: bool) -> None:
    """At the longest sequence that is convolved so, in values and gradients."""
    options = {"engine": "direct", "bidirectional": bidirectional, "generator": seeded()}
    single = SSM(20, 8, **options)
    double = with_engine(single, "fft").double()
    u = draw(2, direct.LONGEST, 20, dtype=torch.float32)
    results = []
    for ssm in (single, double):
        x = u.to(ssm.D.dtype).requires_grad_()
        y, _ = ssm(x, return_state=False)
        grads = torch.autograd.grad(y, [x, *ssm.parameters()], draw(*y.shape, dtype=y.dtype))
        results.append([r.detach().double() for r in (y, *grads)])
    agree(results[0][:2], results[1][:2], 1e-5)
    agree(results[0][2:], results[1][2:], 1e-4)


@needs_numba
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("loud", [1e8, float("nan"), float("inf")])
def test_no_sequence_or_channel_hears_another(loud: float, bidirectional: bool) -> None:
    """By transforms too: bit by bit what it is alone, and so is its gradient."""
    ssm = SSM(20, 8, engine="fft", bidirectional=bidirectional, generator=seeded())
    quiet = draw(3, 70, 20, dtype=torch.float32)
    u = quiet.clone()
    u[1], u[:, 40, 5] = loud, loud
    results = []
    for given in (quiet, u):
        x = given.requires_grad_()
        y, _ = ssm(x, return_state=False)
        results.append((y, *torch.autograd.grad(y.square().nansum(), x)))
    others = [c for c in range(20) if c != 5]
    for alone, beside in zip(*results, strict=True):
        assert torch.equal(alone[::2][..., others], beside[::2][..., others])


@needs_numba
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 100, 128, 129, 1024, 1025, 4100])
@pytest.mark.parametrize("directions", [1, 2])
def test_transforms_convolve_at_every_length(directions: int, length: int) -> None:
    """Every number of steps, wide and narrow; values, and gradients of signal, kernels and D."""
    for dtype, bar in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
        u, D = draw(3, length, 21, dtype=dtype), draw(21, dtype=dtype, seed=2)
        taps = direct.as_taps(draw(directions, 21, length, dtype=dtype, seed=3))
        results = []
        for run, inputs in (
            (fourier.convolve, (u, taps, D)),
            (fourier.plain, (u.double(), taps.double(), D.double())),
        ):
            given = [x.clone().requires_grad_() for x in inputs]
            y = run(*given)
            grads = torch.autograd.grad(y, given, draw(*y.shape, dtype=y.dtype, seed=4))
            results.append([x.detach().double() for x in (y, *grads)])
        agree(*results, bar)


def space(structure: str = "diagonal") -> StateSpace:
    kernel = "vandermonde" if structure == "diagonal" else "cauchy"
    return SSM(2, 4, structure=structure, kernel=kernel)._state_space(1.0)


def test_auto_takes_what_stands_in() -> None:
    u, dense = torch.zeros(8, 4, 2), space("dplr")
    assert engine.choose("fft", space(), u) == "fft"
    assert engine.choose("scan", dense, u) == "chunk"
    assert engine.choose("auto", dense, u) == "chunk"
    assert engine.choose("auto", dense, torch.zeros(8, 800, 2), carried=False) == "fft"
    assert engine.choose("auto", space(), torch.zeros(1, 4, 2, device="meta")) == "fft"
    assert engine.choose("scan", space(), u.half()) == "chunk"
    assert engine.choose("direct", space(), u.half()) == "fft"


@needs_numba
def test_auto_takes_the_fastest() -> None:
    def auto(batch: int, length: int, *, carried: bool = False) -> str:
        return engine.choose("auto", space(), torch.zeros(batch, length, 2), carried=carried)

    short = engine.SHORT * space().modes
    assert auto(1, short) == "direct"
    assert auto(1, short, carried=True) == "scan"
    with torch.no_grad():
        assert auto(8, short) == "direct"
    assert auto(8, short + 1) == "scan"
    many = SSM(2, 64)._state_space(1.0)  # modes enough for a transform to be less work
    for batch, length, best in ((8, 225, "fft"), (8, 224, "direct"), (1, 1024, "scan")):
        assert engine.choose("auto", many, torch.zeros(batch, length, 2), carried=False) == best
    assert engine.choose("auto", many, torch.zeros(8, 2**17, 2), carried=False) == "scan"
    assert engine.choose("direct", space(), torch.zeros(1, direct.LONGEST + 1, 2)) == "fft"


def test_plain_torch_takes_over_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    ssm = SSM(3, 6, dtype=torch.float64, generator=seeded())
    expected = everything(ssm, 30)
    monkeypatch.setattr(runtime, "_probe_numba", lambda: False)
    assert engine.choose("scan", space(), torch.zeros(1, 4, 2)) == "chunk"
    for chosen in ("auto", "scan", "direct"):
        agree(everything(with_engine(ssm, chosen), 30), expected, 1e-10)


# -- the compiled operators ----------------------------------------------------------------------


def plain_tables(ssm: SSM, rate: float) -> ScanTables:
    """By plain torch, as for a constraint without compiled code."""
    space = ssm._state_space(rate)
    return replace(space, constraint=replace(space.constraint, code=None)).tables()


def learned(tables: ScanTables) -> list[Tensor]:
    """What gradients go through."""
    return [tables.tables, tables.kernel, tables.ends]


@needs_numba
@pytest.mark.parametrize("init", ["lin", "real"])
@pytest.mark.parametrize("n_ssm", [1, 2, 4])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("rule", DISCRETIZATIONS)
def test_fused_tables_are_those_of_plain_torch(
    rule: str, constraint: str, n_ssm: int, init: str
) -> None:
    method = Method(init=init, discretization=rule, constraint=constraint, n_ssm=n_ssm,
                    random_real=init == "real")  # fmt: skip
    ssm = SSM(4, 6, method=method, dtype=torch.float64, generator=seeded())
    fused, plain = ssm._state_space(1.5).tables(), plain_tables(ssm, 1.5)
    weights = [draw(*x.shape, seed=k) for k, x in enumerate(learned(plain))]
    assert_close(fused.drift, plain.drift, rtol=0, atol=1e-13)
    agree(learned(fused), learned(plain), 1e-14)
    parameters = list(ssm.parameters())

    def gradients(tables: ScanTables) -> list[Tensor]:
        loss = sum((x * w).sum() for x, w in zip(learned(tables), weights, strict=True))
        return list(torch.autograd.grad(loss, parameters))

    agree(gradients(fused), gradients(plain), 1e-11)


@needs_numba
@pytest.mark.parametrize("size", [1e-8, 1e-4, 0.4, 0.6, 3.0, 1e3])
def test_fused_tables_from_tiny_to_huge_steps(size: float) -> None:
    """Where the rules change from a series to a quotient, and where they could lose digits."""
    for rule in DISCRETIZATIONS:
        method = Method(init="lin", discretization=rule, dt_min=size, dt_max=size)
        ssm = SSM(2, 6, method=method, dtype=torch.float64, generator=seeded())
        agree(learned(ssm._state_space(1.0).tables()), learned(plain_tables(ssm, 1.0)), 1e-13)


def irregular_call(u: Tensor, spans: Tensor) -> tuple[object, ...]:
    """With steps made on the way."""
    lanes, which, gaps = runtime.LANES, torch.zeros(18, dtype=torch.int64), draw(18).abs() + 0.1
    tables, modes = torch.zeros(1, 3, 0, 4 * lanes), torch.randn(1, 3, 4 * lanes)
    C, start = torch.randn(1, 3, 2 * lanes), torch.zeros(2, 1, 3, 2 * lanes)
    given = (tables, modes, C, torch.randn(1, lanes), start, torch.zeros(2, 1, lanes))
    return (u, spans, which, gaps, *(x.double() for x in given), [0, 0, 0, 1])


@needs_numba
def test_operators_are_ordinary_operators() -> None:
    """torch's own check: schema, fake tensors, autograd registration."""
    ssm = SSM(3, 6, generator=seeded())
    tables = [x.detach() for x in ssm._state_space(1.0).tables()[:4]]
    u, start = draw(2, 9, 3, dtype=torch.float32), torch.zeros(2, 1, 3, 2 * runtime.LANES)
    u.requires_grad_()
    spans = torch.tensor([[0, 9], [9, 5]])
    A, C, others = (ssm.raw_decay, ssm.frequency), ssm.raw_C, (ssm.log_dt, ssm.D)
    taps = torch.randn(1, 9, runtime.LANES, generator=seeded())
    calls: dict[str, tuple[object, ...]] = {
        "scan": (u.flatten(0, 1), *tables, start, spans, [0, 1]),
        "scan_tables": ([0, 0, 1], 1.0, *A, ssm.raw_B, C, *others),
        "kernel": ([0, 0, 1], 1.0, 9, C[None], *A, ssm.raw_B, *others),
        "direct": (u, taps, 0),
        "fourier": (u, taps[None], ssm.D),
        "direct_stored": ([0, 0, 1, 0], 1.0, u, C, *A, ssm.raw_B, *others),
        "irregular_scan": irregular_call(u.flatten(0, 1), spans),
    }
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    for called, arguments in calls.items():
        operator = getattr(torch.ops.s4d_torch, called).default
        torch.library.opcheck(operator, arguments, test_utils=tests)
    assert torch.ops.s4d_torch.scan.default(*calls["scan"])[0].shape == (18, 3)


@needs_numba
def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "SERIAL", 0)
    ssm, before = SSM(40, 8, generator=seeded()), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(everything(ssm, 300) + everything(with_engine(ssm, "fft"), 300))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_numba
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_infinity_come_through(bad: float) -> None:
    ssm = SSM(2, 6, generator=seeded()).requires_grad_(False)
    u = draw(1, 20, 2, dtype=torch.float32)
    u[0, 10, 0] = bad
    y, _ = ssm(u)
    assert bool(torch.isfinite(y[0, :10]).all())
    assert not bool(torch.isfinite(y[0, 11:, 0]).any())
    assert bool(torch.isfinite(y[0, :, 1]).all())


@needs_numba
def test_a_function_is_compiled_before_threads_run() -> None:
    calls: list[tuple[int, int]] = []

    class Kernel:
        py_func: Callable[..., None] = SSM.forward

        class stats:  # noqa: N801
            cache_misses: dict[str, int] = {}  # noqa: RUF012

        def __call__(self, first: int, last: int, *_: object) -> None:
            calls.append((first, last))

    kernel = Kernel()
    for _ in range(2):
        runtime.share(kernel, 3, 0, (), (torch.zeros(1),))
    assert calls == [(0, 0), (0, 3), (0, 3)]
