"""The arithmetic of the page of ``s4d explore`` against Python's."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from browser import CHROMIUM, browse
from s4d_torch import SSM, Method
from s4d_torch.explore.interactive import describe_layer
from s4d_torch.ssm.constraint import CONSTRAINTS, FLOOR
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.hippo import HIPPO, diagonalize
from s4d_torch.ssm.initialization import INITIALIZATIONS
from s4d_torch.ssm.kernel import basis

SOURCES = Path(__file__).resolve().parents[2] / "src/s4d_torch/explore/assets"
MATHS = ("random", "maths", "low_rank", "run", "code", "state")  # no part of these needs a page
NODE = shutil.which("node")
LENGTH, FREQUENCIES, TIMES = 50, [0.001, 0.01, 0.1, 0.4, 0.5], [0.0, 0.3, 2.0]


def evaluate(folder: Path, script: str) -> Any:
    """What ``script`` returns, given the arithmetic of the page."""
    sources = "\n".join((SOURCES / f"{name}.js").read_text("utf-8") for name in MATHS)
    if CHROMIUM is not None:
        return browse(folder, f"<!doctype html><body><script>{sources}</script>", script)
    if NODE is None:
        pytest.skip("needs the browser chromium, or node")
    file = folder / "script.js"
    file.write_text(f"{sources}\nconsole.log(JSON.stringify((() => {{ {script} }})()));", "utf-8")
    done = subprocess.run([NODE, str(file)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def tensor(x: Any) -> Tensor:
    """Real numbers, or complex ones given as two lists."""
    if isinstance(x, dict):
        return torch.complex(tensor(x["re"]), tensor(x["im"]))
    return torch.tensor(x, dtype=torch.float64)


def assert_near(ours: Any, theirs: Tensor, what: str, tolerance: float = 1e-10) -> None:
    scale = theirs.abs().max().clamp(min=1e-300)
    error = ((tensor(ours) - theirs).abs().max() / scale).item()
    assert error < tolerance, f"{what}: off by {error:.1e} of the largest"


# ---- arithmetic -------------------------------------------------------------------------------


def choice(init: str, rule: str, constraint: str, **changes: Any) -> dict[str, Any]:
    base = {"N": 10, "imagScale": 1, "randomImag": False, "randomReal": False, "B": "ones"}
    fixed = {"init": init, "rule": rule, "constraint": constraint, "C": "normal"}
    return {**base, **fixed, "seed": 3, "dt": 0.045, **changes}


def legal(init: str, rule: str, constraint: str) -> bool:
    """Of pole angles that bilinear would bend, and of decay rates that ``best`` cannot reach."""
    fast = INITIALIZATIONS[init].largest_decay > CONSTRAINTS[constraint].largest
    return not fast and not (init == "dfout" and rule == "bilinear")


def cases() -> Iterator[dict[str, Any]]:
    for init in INITIALIZATIONS:
        for i, rule in enumerate(DISCRETIZATIONS):
            for j, constraint in enumerate(CONSTRAINTS):
                if not legal(init, rule, constraint):
                    continue
                # few and many draws take different ways in torch
                yield choice(init, rule, constraint, N=(6, 40)[j % 2], seed=10 * i + j)
    law = [name for name, spectrum in INITIALIZATIONS.items() if spectrum.law]
    for init in law:
        yield choice(
            init, "zoh", "softplus", randomImag=True, randomReal=True, N=70, seed=2**32 - 1
        )
    for init in ("legs", "lin", "rand"):
        yield choice(init, "bilinear", "relu", imagScale=3.5, randomReal=True, dt=1e-4)
    for B in ("hippo", "hippo-half"):
        yield choice("legs", "foh", "exp", B=B, N=64, dt=1.0)


PICTURE = """
const { rule, constraint, dt } = choice;
const system = { ...makeStart(choice, dt), rule, dt };
const raw = system.A.re.map((re) => CONSTRAINTS[constraint].inverse(-re));
system.A.re = raw.map((x) => -CONSTRAINTS[constraint].forward(x));
const discrete = discretize(system);
const list = (v) => ({ re: [...v.re], im: [...v.im] });
const back = vectorOf(sizeOf(system.A), (n) => RULES[rule].undo(at(discrete.bar, n), dt));
return {
  raw: [...raw], A: list(system.A), B: list(system.B), C: list(system.C),
  logA: list(discrete.logA), kernel: [...kernel(system, discrete, LENGTH)],
  response: list(response(system, discrete, FREQUENCIES)),
  continuous: list(continuousResponse(system, FREQUENCIES)),
  basis: list(basis(system, 1, TIMES)), back: list(back),
};
"""


def module(choice: dict[str, Any]) -> SSM:
    return SSM(
        1,
        choice["N"],
        init=choice["init"],
        discretization=choice["rule"],
        constraint=choice["constraint"],
        B_init=choice["B"],
        imag_scale=1.0 if choice["init"] == "real" else choice["imagScale"],
        random_imag=choice["randomImag"],
        random_real=choice["randomReal"],
        dt_scales="decay" if choice["init"] == "dfout" else "all",
        dt_min=choice["dt"],
        dt_max=choice["dt"],
        generator=torch.Generator().manual_seed(choice["seed"]),
        dtype=torch.float64,
    )


def on_both(pairs: bool, weight: Tensor, point: Tensor, pole: Tensor) -> Tensor:
    """``sum weight / (point - pole)`` over modes and, for pairs, over their conjugates."""
    total = (weight / (point[:, None] - pole)).sum(-1)
    if pairs:
        total = total + (weight.conj() / (point[:, None] - pole.conj())).sum(-1)
    return total


@torch.no_grad()
def check_picture(choice: dict[str, Any], ours: dict[str, Any]) -> None:
    ssm = module(choice)
    A, B, C, dt, pairs = ssm.A[0], ssm.B[0], ssm.C[0], ssm.dt, ssm.method.pairs
    step = DISCRETIZATIONS[choice["rule"]](A, B, dt)
    turn = 2j * torch.pi * torch.tensor(FREQUENCIES, dtype=torch.float64)
    through = (C * step.B_now).sum()
    through = 2 * through.real if pairs else through
    expected = {
        "raw": ssm.raw_decay[0],
        "A": A,
        "B": B,
        "C": C,
        "logA": step.log_A,
        "kernel": ssm.kernel(LENGTH)[0],
        "response": through + on_both(pairs, C * step.into_state, turn.exp(), step.A_bar),
        "continuous": on_both(pairs, C * B, turn / dt, A),
        "basis": basis(A[1], B[1], torch.tensor(TIMES, dtype=torch.float64)),
    }
    for name, values in expected.items():
        assert_near(ours[name], values, f"{choice}: {name}")
    if (A.imag.abs() * dt < torch.pi).all():  # faster ones alias, and are not found again
        assert_near(ours["back"], A, f"{choice}: A from its A_bar", 1e-7)


def test_the_arithmetic_is_that_of_python(tmp_path: Path) -> None:
    everything = list(cases())
    constants = f"const [LENGTH, FREQUENCIES, TIMES] = {[LENGTH, FREQUENCIES, TIMES]};"
    script = f"{constants} return {json.dumps(everything)}.map((choice) => {{ {PICTURE} }});"
    for given, ours in zip(everything, evaluate(tmp_path, script), strict=True):
        check_picture(given, ours)


def test_the_page_has_every_choice_of_the_registries(tmp_path: Path) -> None:
    script = """
      const flags = (x) => Object.entries(x).map(([k, v]) => [k, Boolean(v.law), v.pairs]);
      const stable = Object.entries(CONSTRAINTS).map(([name, c]) => [name, c.stable]);
      return [flags(STARTS), Object.keys(RULES), stable, FLOOR];
    """
    starts, rules, constraints, floor = evaluate(tmp_path, script)
    assert starts == [[name, x.law, x.pairs] for name, x in INITIALIZATIONS.items()]
    assert rules == list(DISCRETIZATIONS)
    assert constraints == [[name, x.stable] for name, x in CONSTRAINTS.items()]
    assert floor == FLOOR


def test_the_eigenvalues_of_legs_by_their_own_equation(tmp_path: Path) -> None:
    sizes = [2, 4, 64, 256]
    script = f"return {sizes}.map((N) => [[...legs(N).frequency], [...legs(N).B]]);"
    for N, (frequency, B) in zip(sizes, evaluate(tmp_path, script), strict=True):
        modes = diagonalize(HIPPO["legs"](N))
        error = (tensor(frequency) / modes.Lambda.imag - 1).abs().max()  # each, also the slowest
        assert error < 1e-11
        assert_near(B, modes.B.real, f"V* B at {N}")


# ---- runs -------------------------------------------------------------------------------------

METHODS = {
    "bidirectional, tied": Method(bidirectional=True, n_ssm=2, init="lin"),
    "real": Method(init="real", discretization="foh", constraint="softplus"),
    "dss": Method(kernel="softmax", discretization="zoh", constraint="identity", softmax_length=9),
    "s4": Method(structure="dplr", kernel="cauchy"),
    "angles, tied": Method(discretization="zoh", init="dfout", dt_scales="decay", n_ssm=2),
    "lru": Method(discretization="dirac", init="ring", B_init="gamma", constraint="best"),
    "two ranks": Method(structure="dplr", kernel="cauchy", init="legt"),
}
AS_RUN = {"format": "s4d_torch explore", "version": 1, "name": "r", "task": "t", "sample_rate": 8e3}


@torch.no_grad()
def test_what_every_kind_of_layer_shows(tmp_path: Path) -> None:
    layers = [
        SSM(4, 8, method=method, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        for method in METHODS.values()
    ]
    layers[2].raw_decay[1] = -0.01  # a softmax kernel may have modes that grow
    described = {**AS_RUN, "layers": [describe_layer(ssm, ssm) for ssm in layers]}
    script = f"""
      const run = readRun({json.dumps(json.dumps(described))});
      const places = (x, show) => x.map((_, i) => show(i));
      const sides = ({{ C, dt }}, show) => places(C.re, (i) => places(dt, (h) => show(i, h)));
      return run.layers.map((layer, i) => sides(layer, (side, channel) => {{
        const state = freshState();
        enterRun(state, run, i, channel);
        Object.assign(state, {{ side, length: 64 }});
        const view = makeView(state, run);
        return [[...view.kernel], [...view.frequencies], [...view.gain]];
      }}));
    """
    for name, ssm, sides in zip(METHODS, layers, evaluate(tmp_path, script), strict=True):
        kernels = ssm.kernel(64).reshape(-1, 4, 64)
        for side, channels in enumerate(sides):
            for channel, (K, _, gain) in enumerate(channels):
                # nine digits of an angle, over 64 samples
                assert_near(K, kernels[side, channel], f"{name}, {side}, {channel}", 3e-7)
                assert tensor(gain).isfinite().all()


@torch.no_grad()
def test_the_response_of_a_low_rank_system_is_that_of_its_kernel(tmp_path: Path) -> None:
    ssm = SSM(1, 6, method=METHODS["two ranks"], dt_min=0.2, dt_max=0.2, dtype=torch.float64)
    described = {**AS_RUN, "layers": [describe_layer(ssm, ssm)]}
    script = f"""
      const run = readRun({json.dumps(json.dumps(described))});
      const system = {{ ...channelOf(run, 0, 0, 0), rule: "bilinear" }};
      const H = lowRankResponse(system, {FREQUENCIES[:4]});
      return {{ re: [...H.re], im: [...H.im] }};
    """
    turn = -2j * torch.pi * torch.tensor(FREQUENCIES[:4], dtype=torch.float64)
    K = ssm.kernel(4000)[0]
    expected = torch.exp(turn[:, None] * torch.arange(4000)) @ K.to(torch.complex128)
    assert_near(evaluate(tmp_path, script), expected, "response", 1e-7)
