"""Calls of layers, models, steps, streams, configs and estimators with anything at all."""

import copy
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import s4d_torch
from s4d_torch import SSM, SequenceModel, Stream
from s4d_torch.data.task import TASKS
from s4d_torch.nn.state import ModelState
from s4d_torch.training.config import Config, default_config

ODD: list[Any] = [
    *(0, -1, 1, 2, 3, 7, 2**31, -(2**63), 0.0, 0.5, -0.0, 1.5, 1e-300, 1e300, float("nan")),
    *(float("inf"), -float("inf"), True, False, None, "", "legs", "x" * 50, "\0", b"1", (), [1]),
    *({}, [[]], object, np.float32(2), np.int64(3), torch.tensor(2), 1 + 2j),
]
CHOICES: dict[str, list[Any]] = {
    "kernel": ["vandermonde", "softmax", "cauchy"],
    "structure": ["diagonal", "dplr"],
    "discretization": ["bilinear", "zoh", "foh"],
    "constraint": ["exp", "relu", "softplus", "identity"],
    "init": ["legs", "inv", "lin", "real", "rand", "legs+inv"],
    "bidirectional": [True, False],
    "n_ssm": [1, 2, None],
    "dt_min": [0.001, 0.01],
    "softmax_length": [16, 64],
    "train_A": [True, False],
}
ENGINES = ["auto", "fft", "scan", "chunk", "direct"]
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-9}


def some(chance: random.Random, choices: dict[str, list[Any]], odd: float = 0.1) -> dict[str, Any]:
    """A few options, most of them legal."""
    names = chance.sample(sorted(choices), chance.randint(0, min(4, len(choices))))
    return {name: chance.choice(ODD if chance.random() < odd else choices[name]) for name in names}


def size(chance: random.Random, usual: tuple[int, ...]) -> Any:
    """Now and then no size at all; one that needs all memory is refused by torch, in its words."""
    odd = [x for x in ODD if type(x) not in (int, float) or abs(x) < 2**31]
    return chance.choice(odd) if chance.random() < 0.03 else chance.choice(usual)


def signal(chance: random.Random, *shape: int, dtype: torch.dtype = torch.float32) -> Any:
    """A tensor of this shape; or one that is laid out, shaped, typed or filled in another way."""
    u: Any = torch.randn(*shape, dtype=dtype)
    match chance.randrange(24):
        case 0:
            return u[..., :-1] if u.ndim else u
        case 1:
            return u.double() if dtype == torch.float32 else u.float()
        case 2:
            u.view(-1)[0:1] = chance.choice([torch.nan, torch.inf])
        case 3:
            return u.transpose(0, -1).contiguous().transpose(0, -1)
        case 4:
            return torch._neg_view(u)
        case 5:
            return u[:0]
        case 6:
            return u[None]
        case 7:
            return u.to(torch.int64)
        case 8:
            return u.to(torch.complex64)
        case 9:
            return u.numpy()
        case 10:
            return u.to("meta")
        case 11:
            return u.expand(2, *u.shape)[1]
        case 12:
            return u.requires_grad_()
        case 13:
            return u.tolist()
        case 14:
            return u.to_sparse()
        case 15:
            return chance.choice(ODD)
        case 16:
            return u.flip(-1).half()
        case 17:
            return torch.nn.Parameter(u)
        case 18:
            return u * chance.choice([1e-30, 1e8])
    return u


def usable(u: Any) -> bool:
    if not isinstance(u, Tensor) or u.is_meta or u.layout != torch.strided:
        return False
    return bool(u.detach().isfinite().all())


def assert_finite(y: Any, what: str) -> None:
    if isinstance(y, Tensor) and not y.is_meta:
        assert bool(y.detach().isfinite().all()), f"{what} is not finite"


def assert_near(
    y: Tensor,
    wanted: Tensor,
    what: str,
    dtype: torch.dtype | None = None,
    least: float = 1e-20,
    exact: Callable[[], Tensor] | None = None,
) -> None:
    """As near as ``dtype`` allows, by default that of the tensors.

    ``least`` is the scale of what small outputs are the difference of. A norm over two features
    that are nearly equal magnifies any rounding: where there is ``exact``, the same in float64, an
    answer may be as far from it as ``wanted`` is, or four times that.
    """
    assert y.shape == wanted.shape, f"{what}: {tuple(y.shape)} instead of {tuple(wanted.shape)}"
    if y.is_meta or not bool(wanted.isfinite().all()):  # as NaN that was pushed before
        return
    scale = float(wanted.detach().abs().max()) if wanted.numel() else 1.0
    far = float((y.detach() - wanted.detach()).abs().max()) if y.numel() else 0.0
    allowed = TOLERANCE.get(dtype or wanted.dtype, 1e-2) * max(scale, least)
    if far > allowed and exact is not None:
        right = exact()
        far, other = (float((x.double() - right).abs().max()) for x in (y, wanted))
        allowed = max(allowed, 4 * other)
    assert far <= allowed, f"{what} is off by {far:.2g} of {scale:.2g}"


def lengths_of(chance: random.Random, batch: int, length: int) -> Any:
    if chance.random() < 0.5:
        return None
    lengths: Any = torch.randint(1, length + 1, (batch,))
    match chance.randrange(8):
        case 0:
            lengths[0] = chance.choice([0, -1, length + 1, 2**62])
        case 1:
            lengths = lengths.float()
        case 2:
            lengths = lengths[:-1]
        case 3:
            lengths = lengths.tolist()
        case 4:
            lengths = chance.choice(ODD)
    return lengths


def rate_of(chance: random.Random) -> Any:
    return chance.choice(ODD) if chance.random() < 0.05 else chance.choice([1.0, 1.0, 2.0, 0.5, 1])


def layer(chance: random.Random, folder: Path) -> None:
    """A layer or state space: its answer beside that of the plain engine, and of its steps."""
    kind = chance.choice([s4d_torch.S4D, s4d_torch.S4, s4d_torch.DSS, SSM])
    dtype = chance.choice([torch.float32, torch.float64])
    options = some(chance, CHOICES)
    if kind in (s4d_torch.S4, s4d_torch.DSS):
        options.pop("kernel", None), options.pop("structure", None)
    d_model, d_state = size(chance, (1, 4, 6, 16, 32)), size(chance, (2, 4, 8))
    made = kind(d_model, d_state, engine=chance.choice(ENGINES), dtype=dtype, **options).eval()
    batch, length = chance.choice([1, 2, 3]), chance.choice([1, 2, 17, 65])
    u, lengths = (
        signal(chance, batch, length, d_model, dtype=dtype),
        lengths_of(chance, batch, length),
    )
    rate = rate_of(chance)
    state = None
    if chance.random() < 0.3 and not options.get("bidirectional"):
        state = made.initial_state(batch) if chance.random() < 0.6 else signal(chance, batch, 4, 4)
    given: Any = {"lengths": lengths, "rate": rate, "return_state": chance.random() < 0.5}
    y, end = made(u, state, **given)
    if not usable(u):
        return
    assert_finite(y, "the output")
    plain = kind(d_model, d_state, engine="fft", dtype=dtype, **options).eval()
    plain.load_state_dict(made.state_dict())
    clean = u.detach().clone().contiguous()
    wanted, last = plain(clean, state, **given)
    assert_near(y, wanted, "the output")
    if y.requires_grad and state is None:
        ours, theirs = (gradient(each.train(), clean, given) for each in (made, plain))
        assert_near(ours, theirs, "the gradient of the input")
    if end is not None and last is not None:  # kept in float64, computed as the input is
        assert_near(end, last, "the state", dtype)


def gradient(made: Any, u: Tensor, given: dict[str, Any]) -> Tensor:
    x = u.clone().requires_grad_()
    [found] = torch.autograd.grad(made(x, **given)[0].sum(), x)
    return found


MODEL: dict[str, list[Any]] = {
    "pooling": ["mean", "last", "none"],
    "norm": ["layer", "batch", "none"],
    "encoder": ["linear", "embedding"],
    "prenorm": [True, False],
    "towers": [1, 2],
    "activation": ["gelu", "silu", "tanh"],
    "mixing": ["glu", "linear", "none"],
    "method": ["s4d", "s4", "dss"],
    "check_finite": [True, False],
    "dropout": [0.0, 0.1],
    "bidirectional": [True, False],
}


def a_model(chance: random.Random, **fixed: Any) -> SequenceModel:
    options = {**some(chance, MODEL, odd=0.05), **fixed}
    sizes = [size(chance, each) for each in ((1, 3), (1, 4), (2, 6, 16, 32), (1, 2))]
    return SequenceModel(*sizes, d_state=size(chance, (2, 4)), **options).eval()


def read_by(model: SequenceModel, chance: random.Random, *lead: int) -> Any:
    if model.config["encoder"] != "embedding":
        return signal(chance, *lead, model.d_input)
    tokens: Any = torch.randint(0, model.d_input, lead)
    match chance.randrange(10):
        case 0:
            tokens.view(-1)[:1] = chance.choice([-1, model.d_input, 2**40])
        case 1:
            tokens = tokens.to(chance.choice([torch.int32, torch.uint8, torch.float32, torch.bool]))
        case 2:
            tokens = signal(chance, *lead)
    return tokens


@torch.no_grad()
def model(chance: random.Random, folder: Path) -> None:
    """A model as a whole, in two parts, and as steps: one answer."""
    made = a_model(chance)
    batch, length = chance.choice([1, 3]), chance.choice([1, 5, 70])
    lead = (batch, 2)[: made.towers]
    u, rate = read_by(made, chance, *lead, length), rate_of(chance)
    lengths = None if made.towers == 2 else lengths_of(chance, batch, length)
    y, end = made(u, lengths=lengths, rate=rate)
    if not usable(u):
        return
    assert_finite(y, "the output")
    if end is None or lengths is not None or made.towers == 2:
        return
    state = made.initial_state(batch)
    for t in range(length):
        y_t, state = made.step(u[:, t], state, rate=rate)
    exact = functools.partial(in_double, made, [u[:, t] for t in range(length)], batch, rate)
    last = y[:, -1] if made.pooling == "none" else y
    assert_near(y_t, last, "the last step", least=0.01, exact=exact)


@torch.no_grad()
def step(chance: random.Random, folder: Path) -> None:
    """The compiled step: pushes, states and samples of any shape."""
    made = a_model(chance, bidirectional=False)
    batch = size(chance, (1, 2))
    compiled, state = made.compile_step(batch, rate=rate_of(chance)), made.initial_state(batch)
    if chance.random() < 0.3:
        layers, total, samples = state
        odd = chance.choice(ODD)
        parts = [
            (layers[:-1], total, samples),
            (tuple(layer.float() for layer in layers), total, samples),
            (tuple(layer.transpose(0, -1) for layer in layers), total, samples),
            (layers, total[:, :-1], samples),
            (layers, total, samples.long()),
            (odd, total, samples),
            (layers, total.to("meta"), samples),
        ]
        compiled.start(ModelState(*chance.choice(parts)))
        return
    lead = (batch, 2)[: made.towers]
    if chance.random() < 0.3 and made.config["encoder"] == "embedding":
        length = chance.choice([0, 1, 4])
        scores, draws = torch.randn(batch, made.d_output), torch.rand(length, batch).double()
        scores, draws = (chance.choice([x, x, signal(chance, *x.shape)]) for x in (scores, draws))
        compiled.sample(
            scores, draws, chance.choice([1.0, 0.0, *ODD]), chance.choice([None, 1, *ODD])
        )
        return
    read: list[Tensor] = []
    for _ in range(3):
        u = read_by(made, chance, *lead)
        y = compiled.push(u)
        expected, state = made.step(u, state, rate=compiled.rate)
        read.append(u)
        if usable(u):
            exact = functools.partial(in_double, made, read, batch, compiled.rate)
            assert_near(y, expected, "the compiled step", least=0.01, exact=exact)


def in_double(made: SequenceModel, read: list[Tensor], batch: int, rate: float) -> Tensor:
    """The answer to the last of some samples, in float64."""
    double = copy.deepcopy(made).double()
    state = double.initial_state(batch)
    for u in read:
        y, state = double.step(u.double() if u.is_floating_point() else u, state, rate=rate)
    return y


@functools.cache
def stream_model(kind: int) -> SequenceModel:
    options: list[dict[str, Any]] = [
        *({"pooling": "none"}, {"pooling": "mean"}, {"pooling": "last", "method": "s4"}),
        {"encoder": "embedding", "pooling": "none"},
    ]
    return SequenceModel(2, 3, 6, 2, d_state=4, **options[kind]).eval()


@torch.no_grad()
def stream(chance: random.Random, folder: Path) -> None:
    """Chunks good and bad: what was taken is answered as the whole would be."""
    made = stream_model(chance.randrange(4))
    live = Stream(made, crossover=chance.choice([None, 1, 5]))
    taken: list[Tensor] = []
    answers: list[Tensor] = []
    error = None
    for _ in range(chance.randint(1, 6)):
        chunk = read_by(made, chance, chance.choice([0, 1, 2, 9]))
        before = live.samples
        try:
            y = live.push(chunk)
        except Exception as refused:
            error = refused
            assert live.samples == before, "a chunk that was refused is counted"
            continue
        if live.samples > before:
            clean = chunk if isinstance(chunk, Tensor) else torch.tensor(np.asarray(chunk))
            clean = clean if made.config["encoder"] == "embedding" else clean.float()
            taken.append(clean.detach().reshape(live.samples - before, *clean.shape[1:]))
            answers.append(torch.as_tensor(y))
        if chance.random() < 0.2:
            live.snapshot(folder / "state")
            live.restore(folder / "state")
    if taken:
        wanted = made(torch.cat(taken)[None])[0][0]
        found = torch.cat(answers) if made.pooling == "none" else answers[-1]
        assert_near(found, wanted, "the stream", least=0.01)
    if error is not None:
        raise error


def config(chance: random.Random, folder: Path) -> None:
    """A config from JSON in which something is changed, and back."""
    described = json.loads(json.dumps(default_config("digits").to_json()))
    for _ in range(chance.randint(1, 2)):
        place: Any = described
        while True:
            name = chance.choice(sorted(place))
            if not isinstance(place[name], dict) or chance.random() < 0.1:
                break
            place = place[name]
            if not place:
                break
        plain = [x for x in ODD if isinstance(x, int | float | str | None | list | dict)]
        match chance.randrange(5):
            case 0:
                place.pop(name, None)
            case 1:
                place[f"{name}x"] = 1
            case _:
                place[name] = chance.choice(plain)
    found = Config.from_json(described)
    assert Config.from_json(json.loads(json.dumps(found.to_json()))) == found


def estimator(chance: random.Random, folder: Path) -> None:
    """fit and predict on panels of any kind."""
    classifiers = [s4d_torch.S4DClassifier, s4d_torch.S4DFeatureClassifier]
    regressors = [s4d_torch.S4DRegressor, s4d_torch.S4DFeatureRegressor]
    kind = chance.choice([*classifiers, *regressors])
    options = {"epochs": 1, "d_model": 4, "n_layers": 1, "d_state": 4, "random_state": 0}
    if "Feature" in kind.__name__:
        options = {"n_systems": 3, "n_filters": 4, "n_thresholds": 2, "d_state": 4}
        options["random_state"] = 0
    if chance.random() < 0.3:
        options[chance.choice(sorted(options))] = chance.choice([x for x in ODD if x != 2**31])
    X: Any = np.random.default_rng(0).standard_normal((8, 2, 12))
    y: Any = np.arange(8) % 2 if kind in classifiers else X[:, 0, 0]
    X, y = (chance.choice([x, x, signal(chance, *x.shape), x[:-1]]) for x in (X, y))
    made = kind(**options).fit(X, y)
    found = made.predict(X)
    assert len(found) == len(X), "as many answers as cases"


CASES: dict[str, Callable[[random.Random, Path], None]] = {
    "layer": layer,
    "model": model,
    "step": step,
    "stream": stream,
    "config": config,
    "estimator": estimator,
}
assert TASKS
