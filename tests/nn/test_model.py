"""Layers, blocks and models: each part does what it says, and every mode of use agrees."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.testing import assert_close

from s4d_torch import DSS, S4, S4D, SSM, Block, Layer, ModelState, SequenceModel
from s4d_torch.nn.activation import ACTIVATIONS, MIXINGS
from s4d_torch.nn.block import StochasticDepth
from s4d_torch.nn.layer import SequenceDropout
from s4d_torch.nn.model import POOLINGS
from s4d_torch.nn.norm import NORMS, SequenceBatchNorm
from s4d_torch.ssm.engine import ENGINES
from s4d_torch.ssm.hippo import HIPPO, diagonalize

D_MODEL, D_STATE, LENGTH = 4, 8, 20
LENGTHS = [LENGTH, 7, 1]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def seed(value: int = 0) -> Generator:
    return Generator().manual_seed(value)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=seed(), dtype=torch.float64).to(dtype)


def layer(make: type[Layer] = S4D, **options: Any) -> Layer:
    return make(D_MODEL, D_STATE, generator=seed(), **{"dtype": torch.float64} | options)


def model(**options: Any) -> SequenceModel:
    """A small model in evaluation mode, with running statistics that are not trivial."""
    options = {"d_input": 3, "d_output": 2, "d_model": D_MODEL, "n_layers": 2} | options
    made = SequenceModel(d_state=D_STATE, generator=seed(), **{"dtype": torch.float64} | options)
    for module in made.modules():
        if isinstance(module, SequenceBatchNorm):
            module.running_mean.copy_(0.1 * draw(D_MODEL))
            module.running_var.copy_(1 + draw(D_MODEL).square())
    return made.eval()


def close(actual: Tensor, expected: Tensor, tolerance: float | None = None) -> None:
    """Agreement relative to the largest value, to 1e-10 in float64 and 1e-5 in float32."""
    tolerance = TOLERANCE[expected.dtype] if tolerance is None else tolerance
    scale = max(1.0, expected.detach().abs().max().item())
    assert_close(actual, expected, rtol=0, atol=tolerance * scale)


# ---- the layer --------------------------------------------------------------------------------


def test_the_skip_multiplies_each_channel() -> None:
    ssm = layer().ssm
    u = draw(2, LENGTH, D_MODEL)
    with_skip, _ = ssm(u)
    D = ssm.D.detach().clone()
    with torch.no_grad():
        ssm.D.zero_()
    close(with_skip, ssm(u)[0] + D * u)
    assert D.unique().numel() == D_MODEL


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_activation_then_mixing(activation: str, mixing: str) -> None:
    module, u = layer(activation=activation, mixing=mixing), draw(2, LENGTH, D_MODEL)
    y = {
        "gelu": nn.functional.gelu,
        "relu": torch.relu,
        "silu": nn.functional.silu,
        "tanh": torch.tanh,
        "none": lambda x: x,
    }[activation](module.ssm(u)[0])
    if mixing != "none":
        y = nn.functional.linear(y, module.output.weight, module.output.bias)
    if mixing == "glu":
        value, gate = y.chunk(2, dim=-1)
        y = value * torch.sigmoid(gate)
    close(module(u)[0], y)


@pytest.mark.parametrize("tied", [False, True])
def test_dropout_scales_and_is_tied_over_time_on_demand(tied: bool) -> None:
    torch.manual_seed(0)
    dropped = SequenceDropout(0.25, tied)(torch.ones(50, LENGTH, 30))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((dropped == 0).float().mean().item() - 0.25) < 0.05
    same_at_all_times = (dropped == dropped[:, :1]).all(1).float().mean()
    assert same_at_all_times == 1 if tied else same_at_all_times < 0.1


def test_layer_dropout_acts_in_training_only() -> None:
    module, u = layer(dropout=0.5, mixing="none", activation="none"), draw(2, LENGTH, D_MODEL)
    torch.manual_seed(0)
    dropped, _ = module.train()(u)
    kept, _ = module.eval()(u)
    assert 0.2 < (dropped == 0).double().mean() < 0.8
    close(dropped[dropped != 0], 2 * kept[dropped != 0])
    close(kept, module.ssm(u)[0])


def test_tie_dropout_reaches_layer_and_block() -> None:
    made = model(dropout=0.1, tie_dropout=True)
    tied = [module.tied for module in made.modules() if isinstance(module, SequenceDropout)]
    assert tied == [True] * 4


def test_stochastic_depth_drops_whole_sequences() -> None:
    torch.manual_seed(0)
    branch = torch.ones(200, LENGTH, D_MODEL)
    dropped = StochasticDepth(0.5)(branch)
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert (dropped == dropped[:, :1, :1]).all()
    assert 50 < (dropped[:, 0, 0] == 0).sum() < 150
    assert_close(StochasticDepth(0.5).eval()(branch), branch)


def test_stochastic_depth_leaves_the_residual_and_grows_with_depth() -> None:
    u = draw(40, LENGTH, D_MODEL)
    block = Block(layer(), drop_path=0.5, dtype=torch.float64)
    torch.manual_seed(0)
    y, _ = block(u)
    untouched = (y == u).all((1, 2))
    assert 5 < untouched.sum() < 35
    made = model(n_layers=4, drop_path=0.4)
    assert [block.drop_path.p for block in made.blocks] == pytest.approx([0.1, 0.2, 0.3, 0.4])


# ---- the block --------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("prenorm", [True, False])
def test_where_the_norm_stands(norm: str, prenorm: bool) -> None:
    block = Block(layer(), norm=norm, prenorm=prenorm, dtype=torch.float64).eval()
    u = draw(2, LENGTH, D_MODEL)
    before = u + block.layer(block.norm(u))[0]
    after = block.norm(u + block.layer(u)[0])
    close(block(u)[0], before if prenorm else after)
    assert torch.equal(block.norm(u), u) == (norm == "none")


def test_layer_norm_is_that_of_torch() -> None:
    x = draw(2, LENGTH, D_MODEL)
    norm = NORMS["layer"](D_MODEL, dtype=torch.float64)
    close(norm(x, torch.tensor([3, 4])), nn.functional.layer_norm(x, (D_MODEL,)))


@pytest.mark.parametrize("prenorm", [True, False])
def test_a_final_norm_comes_with_prenorm_only(prenorm: bool) -> None:
    made, u = model(prenorm=prenorm, pooling="none"), draw(2, LENGTH, 3)
    x = made.encoder(u)
    for block in made.blocks:
        x, _ = block(x)
    close(made(u)[0], made.decoder(nn.functional.layer_norm(x, (D_MODEL,)) if prenorm else x))


def batch_norms() -> tuple[SequenceBatchNorm, nn.BatchNorm1d]:
    """Ours and torch's, with the same weights that are not trivial."""
    ours = SequenceBatchNorm(D_MODEL, dtype=torch.float64)
    theirs = nn.BatchNorm1d(D_MODEL, dtype=torch.float64)
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(1 + draw(D_MODEL).square())
            norm.bias.copy_(draw(D_MODEL))
    return ours, theirs


def running(norm: SequenceBatchNorm | nn.BatchNorm1d) -> Tensor:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return torch.stack([norm.running_mean, norm.running_var])


def test_batch_norm_is_that_of_torch() -> None:
    ours, theirs = batch_norms()
    for scale in (1.0, 3.0):  # two updates of the running statistics
        x = scale * draw(3, LENGTH, D_MODEL) + 1
        close(ours(x), theirs(x.mT).mT, 1e-12)
        close(running(ours), running(theirs), 1e-12)
    close(ours.eval()(x), theirs.eval()(x.mT).mT, 1e-12)
    close(ours.step(x[:, 0]), theirs(x[:, 0]), 1e-12)


def test_batch_norm_of_a_ragged_batch_sees_the_valid_positions_only() -> None:
    ours, theirs = batch_norms()
    x, lengths = draw(3, LENGTH, D_MODEL), torch.tensor(LENGTHS)
    valid = torch.arange(LENGTH) < lengths[:, None]
    y = ours(torch.where(valid[..., None], x, torch.nan), lengths)
    close(y[valid], theirs(x[valid]), 1e-12)
    close(running(ours), running(theirs), 1e-12)
    assert y.isfinite().all()


def test_batch_norm_of_a_ragged_batch_has_the_gradient_of_the_valid_rows() -> None:
    (ours, theirs), lengths = batch_norms(), torch.tensor(LENGTHS)
    valid = torch.arange(LENGTH) < lengths[:, None]
    x = draw(3, LENGTH, D_MODEL).requires_grad_()
    weights = draw(int(lengths.sum()), D_MODEL)
    (expected,) = torch.autograd.grad((weights * theirs(x[valid])).sum(), x)
    (actual,) = torch.autograd.grad((weights * ours(x, lengths)[valid]).sum(), x)
    close(actual, expected)


def test_batch_norm_in_low_precision_sums_in_float32() -> None:
    lengths, x = torch.tensor([500, 400]), (10 + draw(2, 500, D_MODEL)).bfloat16()
    valid = torch.arange(500) < lengths[:, None]
    ours = SequenceBatchNorm(D_MODEL, dtype=torch.bfloat16)
    y = ours(x, lengths)
    assert_close(y[valid], nn.BatchNorm1d(D_MODEL)(x[valid].float()).bfloat16())


def test_batch_norm_does_not_learn_from_a_step() -> None:
    ours, _ = batch_norms()
    before = running(ours)
    ours.train().step(draw(3, D_MODEL))
    assert torch.equal(running(ours), before)


# ---- encoder, pooling, decoder ----------------------------------------------------------------


def test_an_embedding_is_a_linear_map_of_one_hot_tokens() -> None:
    tokens = torch.randint(0, 5, (2, LENGTH), generator=seed())
    embedding, linear = model(d_input=5, encoder="embedding"), model(d_input=5)
    linear.load_state_dict(
        {k: v for k, v in embedding.state_dict().items() if "encoder" not in k}, strict=False
    )
    with torch.no_grad():
        linear.encoder.weight.copy_(embedding.encoder.weight.mT)
        linear.encoder.bias.zero_()
    close(embedding(tokens)[0], linear(nn.functional.one_hot(tokens, 5).double())[0])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_covers_the_valid_part(pooling: str) -> None:
    made, u = model(pooling=pooling), draw(3, LENGTH, 3)
    per_step = model(pooling="none")(u)[0]  # (batch, length, d_output)
    pooled = [
        {"mean": y[:n].mean(0), "last": y[n - 1], "none": y}[pooling]
        for y, n in zip(per_step, LENGTHS, strict=True)
    ]
    whole = {"mean": per_step.mean(1), "last": per_step[:, -1], "none": per_step}[pooling]
    close(made(u)[0], whole)
    y, _ = made(u, lengths=LENGTHS)
    if pooling == "none":
        valid = torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]
        close(y[valid], per_step[valid])
        assert (y[~valid] == 0).all()
    else:
        close(y, torch.stack(pooled))


def test_two_towers_share_the_blocks_and_decode_the_pair() -> None:
    made = model(towers=2)
    pairs, lengths = draw(3, 2, LENGTH, 3), torch.tensor([[20, 7], [1, 20], [5, 5]])
    y, state = made(pairs, lengths=lengths)
    one = model(d_output=D_MODEL)  # the same encoder and blocks, with an identity to decode
    one.load_state_dict(
        {k: v for k, v in made.state_dict().items() if "decoder" not in k}, strict=False
    )
    one.decoder = nn.Identity()
    a, b = one(pairs[:, 0], lengths=lengths[:, 0])[0], one(pairs[:, 1], lengths=lengths[:, 1])[0]
    close(y, made.decoder(torch.cat([a, b, a - b, a * b], dim=-1)))
    assert state.samples.tolist() == lengths.flatten().tolist()


def test_two_towers_of_tokens_step() -> None:
    made = model(d_input=5, encoder="embedding", towers=2)
    tokens = torch.randint(0, 5, (3, 2, LENGTH), generator=seed())
    y, state = made(tokens)
    stepped = made.initial_state(3)
    for t in range(LENGTH):
        last, stepped = made.step(tokens[..., t], stepped)
    close(last, y)
    close(stepped.layers[1], state.layers[1])


# ---- one law: whole = chunks = steps ----------------------------------------------------------


def in_chunks(made: SequenceModel, u: Tensor, sizes: list[int]) -> tuple[Tensor, ModelState]:
    state, outputs = None, []
    for chunk in u.split(sizes, dim=1):
        y, state = made(chunk, state)
        outputs.append(y)
    assert state is not None
    return (torch.cat(outputs, 1) if made.pooling == "none" else outputs[-1]), state


def in_steps(made: SequenceModel, u: Tensor) -> tuple[Tensor, ModelState]:
    state, outputs = made.initial_state(u.shape[0]), []
    for sample in u.unbind(1):
        y, state = made.step(sample, state)
        outputs.append(y)
    return (torch.stack(outputs, 1) if made.pooling == "none" else outputs[-1]), state


def same_state(actual: ModelState, expected: ModelState, tolerance: float) -> None:
    assert_close(actual.samples, expected.samples)
    close(actual.total, expected.total, tolerance)
    for a, b in zip(actual.layers, expected.layers, strict=True):
        close(a, b, tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("prenorm", [True, False])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_whole_equals_chunks_equals_steps(
    pooling: str, norm: str, prenorm: bool, dtype: torch.dtype
) -> None:
    made = model(pooling=pooling, norm=norm, prenorm=prenorm, dtype=dtype)
    u = draw(2, LENGTH, 3, dtype=dtype)
    y, state = made(u)
    for other, end in (in_chunks(made, u, [1, 12, 7]), in_steps(made, u)):
        close(other, y)
        same_state(end, state, TOLERANCE[dtype])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("method", ["s4d", "s4", "dss"])
@torch.no_grad()
def test_whole_equals_chunks_for_every_method_and_engine(method: str, engine: str) -> None:
    made = model(method=method, pooling="none", engine=engine)
    u = draw(2, 150, 3)
    y, state = made(u, rate=0.5)
    chunked, end = made(u[:, :70], rate=0.5)
    later, end = made(u[:, 70:], end, rate=0.5)
    close(torch.cat([chunked, later], 1), y)
    same_state(end, state, 1e-10)


def test_a_model_without_a_state_to_return() -> None:
    made, u = model(), draw(2, LENGTH, 3)
    y, state = made(u, return_state=False)
    assert state is None
    close(y, made(u)[0])
    assert model(bidirectional=True)(u)[1] is None


# ---- ragged batches ---------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [0.0, 5.0, torch.nan])
@pytest.mark.parametrize("engine", [*ENGINES, "bidirectional"])
@pytest.mark.parametrize("make", [S4D, S4, DSS])
def test_a_ragged_batch_of_a_layer_is_each_sequence_alone(
    make: type[Layer], engine: str, padding: float
) -> None:
    bidirectional = engine == "bidirectional"
    options = {"bidirectional": True} if bidirectional else {"engine": engine}
    module, u = layer(make, **options), draw(3, LENGTH, D_MODEL)
    for i, n in enumerate(LENGTHS):
        u[i, n:] = padding
    y, state = module(u, lengths=LENGTHS)
    for i, n in enumerate(LENGTHS):
        alone, end = module(u[i : i + 1, :n])
        close(y[i : i + 1, :n], alone)
        assert (y[i, n:] == 0).all()
        if not bidirectional:
            close(state[i : i + 1], end)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [S4D, S4, DSS])
def test_a_ragged_batch_goes_on_from_each_end(make: type[Layer], engine: str) -> None:
    module, u, more = layer(make, engine=engine), draw(3, LENGTH, D_MODEL), draw(3, 9, D_MODEL)
    _, state = module(u, lengths=LENGTHS)
    y, end = module(more, state, lengths=torch.tensor([4, 9, 1]))
    for i, (n, m) in enumerate(zip(LENGTHS, [4, 9, 1], strict=True)):
        joined = torch.cat([u[i, :n], more[i, :m]])[None]
        alone, alone_end = module(joined)
        close(y[i : i + 1, :m], alone[:, n:])
        close(end[i : i + 1], alone_end)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_ragged_batch_of_a_model_is_each_sequence_alone(
    pooling: str, norm: str, bidirectional: bool
) -> None:
    made = model(pooling=pooling, norm=norm, bidirectional=bidirectional)
    u = draw(3, LENGTH, 3)
    for i, n in enumerate(LENGTHS):
        u[i, n:] = torch.nan
    y, state = made(u, lengths=LENGTHS)
    for i, n in enumerate(LENGTHS):
        alone, end = made(u[i : i + 1, :n])
        close(y[i : i + 1, :n] if pooling == "none" else y[i : i + 1], alone)
        if not bidirectional:
            close(state.total[i : i + 1], end.total)
            close(state.layers[1][i : i + 1], end.layers[1])
            assert state.samples[i] == end.samples[0] == n


def test_padding_has_no_gradient() -> None:
    for made in (model(norm="batch").train(), model(pooling="last", bidirectional=True)):
        u = draw(3, LENGTH, 3).requires_grad_()
        made(u, lengths=LENGTHS)[0].square().sum().backward()
        for i, n in enumerate(LENGTHS):
            assert (u.grad[i, n:] == 0).all()
            assert (u.grad[i, :n] != 0).any()


# ---- rate, tying, mixtures --------------------------------------------------------------------


@pytest.mark.parametrize("make", [S4D, S4, DSS])
def test_rate_multiplies_the_step_size(make: type[Layer]) -> None:
    module, u = layer(make), draw(2, LENGTH, D_MODEL)
    faster = layer(make)
    with torch.no_grad():
        faster.ssm.log_dt.add_(torch.tensor(2.0).double().log())
        # the softmax is taken over a span of time, which no rate changes
        faster.ssm.method = faster.method.replace(softmax_length=faster.method.softmax_length // 2)
    close(module(u, rate=2.0)[0], faster(u)[0])
    close(module.step(u[:, 0], module.initial_state(2), rate=2.0)[0], module(u, rate=2.0)[0][:, 0])


def test_rate_reaches_every_layer_of_a_model() -> None:
    made, u = model(pooling="none"), draw(2, LENGTH, 3)
    y, _ = made(u, rate=3.0)
    with torch.no_grad():
        for block in made.blocks:
            block.layer.ssm.log_dt.add_(torch.tensor(3.0).double().log())
    close(made(u)[0], y)


@pytest.mark.parametrize("make", [S4D, S4, DSS])
@pytest.mark.parametrize("n_ssm", [1, 2, 4, None])
def test_tied_channels_share_A_and_B(make: type[Layer], n_ssm: int | None) -> None:
    ssm = layer(make, n_ssm=n_ssm).ssm
    sets, modes = n_ssm or D_MODEL, D_STATE // 2
    assert ssm.raw_decay.shape == ssm.frequency.shape == (sets, modes)
    assert ssm.raw_B.shape == (sets, modes, 2)
    assert ssm.raw_C.shape == (D_MODEL, modes, 2)
    assert ssm.log_dt.shape == ssm.D.shape == (D_MODEL,)
    with torch.no_grad():  # each set another, to see which channels it serves
        ssm.frequency.copy_(torch.arange(sets)[:, None].expand(sets, modes))
        ssm.raw_B.copy_(torch.arange(sets)[:, None, None].expand(sets, modes, 2))
    groups = torch.arange(sets).repeat_interleave(D_MODEL // sets).double()
    assert_close(ssm.A.imag, groups[:, None].expand(D_MODEL, modes))
    assert_close(ssm.B, torch.complex(groups, groups)[:, None].expand(D_MODEL, modes))


def test_a_tied_module_is_an_untied_one_with_equal_rows() -> None:
    tied, untied, u = layer(n_ssm=2).ssm, layer().ssm, draw(2, LENGTH, D_MODEL)
    with torch.no_grad():
        for (name, a), b in zip(untied.named_parameters(), tied.parameters(), strict=True):
            repeats = 2 if name in ("raw_decay", "frequency", "raw_B") else 1
            a.copy_(b.repeat_interleave(repeats, dim=0))
    close(untied(u)[0], tied(u)[0], 0)


@pytest.mark.parametrize(("init", "ranks"), [("legs+fout", (1, 1)), ("fout+legt", (1, 2))])
def test_a_mixture_gives_each_group_of_channels_its_own_start(
    init: str, ranks: tuple[int, int]
) -> None:
    ssm = layer(S4, init=init).ssm
    for half, name, rank in zip((slice(0, 2), slice(2, 4)), init.split("+"), ranks, strict=True):
        modes = diagonalize(HIPPO[name](D_STATE))
        assert_close(ssm.A[half].imag, modes.Lambda.imag.expand(2, -1))
        assert_close(ssm.B[half], modes.B.expand(2, -1))
        assert_close(ssm.P[half, :rank], modes.P.expand(2, -1, -1))
        assert (ssm.P[half, rank:] == 0).all()
    assert ssm.P.shape[1] == max(ranks)


def test_a_diagonal_mixture() -> None:
    A = layer(init="lin+inv").ssm.A
    assert_close(A[:2], layer(init="lin").ssm.A[:2])
    assert_close(A[2:], layer(init="inv").ssm.A[2:])
    assert (A[0] != A[2]).any()


def test_a_mixture_over_tied_sets() -> None:
    A = layer(init="lin+inv", n_ssm=2).ssm.A
    assert_close(A, layer(init="lin+inv").ssm.A)


# ---- parameters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("train_A", {"raw_decay", "frequency", "raw_P"}),
        ("train_B", {"raw_B"}),
        ("train_dt", {"log_dt"}),
    ],
)
def test_frozen_parameters_are_buffers(option: str, names: set[str]) -> None:
    trained, frozen = layer(S4).ssm, layer(S4, **{option: False}).ssm
    assert names <= dict(trained.named_parameters()).keys()
    assert not dict(trained.named_buffers())
    assert dict(frozen.named_buffers()).keys() == names
    assert dict(frozen.named_parameters()).keys() == dict(trained.named_parameters()).keys() - names
    assert frozen.state_dict().keys() == trained.state_dict().keys()
    u = draw(2, LENGTH, D_MODEL)
    close(frozen(u)[0], trained(u)[0], 0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "s4"},
        {"method": "dss", "train_B": True},
        {"bidirectional": True, "mixing": "linear"},
        {"norm": "batch", "prenorm": False},
        {"init": "real", "discretization": "foh"},
        {"towers": 2, "n_ssm": 1},
        {"encoder": "embedding", "pooling": "last"},
    ],
    ids=str,
)
def test_gradients_reach_every_parameter(options: dict[str, Any]) -> None:
    made = model(**options).train()
    shape = (3, 2, LENGTH) if made.towers == 2 else (3, LENGTH)
    u = draw(*shape, 3)
    if made.config["encoder"] == "embedding":
        u = torch.arange(3 * LENGTH).reshape(3, LENGTH) % 3
    made(u)[0].square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("make", [S4D, S4, DSS])
@pytest.mark.parametrize("ragged", [False, True])
def test_every_engine_has_the_same_gradients(make: type[Layer], ragged: bool) -> None:
    def gradients(engine: str) -> list[Tensor]:
        module, u = layer(make, engine=engine), draw(3, LENGTH, D_MODEL).requires_grad_()
        y, state = module(u, draw(3, D_MODEL, D_STATE), lengths=LENGTHS if ragged else None)
        loss = y.square().sum() + state.square().sum()
        return list(torch.autograd.grad(loss, [u, *module.parameters()]))

    expected = gradients("fft")
    for engine in ENGINES:
        for actual, wanted in zip(gradients(engine), expected, strict=True):
            close(actual, wanted)


# ---- random numbers ---------------------------------------------------------------------------

RANDOM: list[dict[str, Any]] = [
    {},
    {"method": "s4"},
    {"init": "rand"},
    {"init": "lin", "random_imag": True, "random_real": True},
    {"bidirectional": True, "init": "real"},
    {"encoder": "embedding", "towers": 2},
]


@pytest.mark.parametrize("options", RANDOM, ids=str)
def test_a_seed_decides_every_weight(options: dict[str, Any]) -> None:
    def made(value: int) -> dict[str, Tensor]:
        return SequenceModel(3, 2, 4, 2, generator=seed(value), **options).state_dict()

    torch.manual_seed(1)
    first = made(0)
    torch.manual_seed(2)
    assert_close(made(0), first, rtol=0, atol=0)
    other = made(1)
    for name in ("encoder.weight", "blocks.1.layer.ssm.raw_C", "blocks.0.layer.ssm.log_dt"):
        assert not torch.equal(first[name], other[name])


@pytest.mark.parametrize("options", RANDOM, ids=str)
def test_with_a_generator_the_global_numbers_stay(options: dict[str, Any]) -> None:
    before = torch.get_rng_state()
    SequenceModel(3, 2, 4, 2, generator=seed(), **options)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_generator_the_global_seed_decides() -> None:
    torch.manual_seed(0)
    first = SSM(D_MODEL, D_STATE).state_dict()
    second = SSM(D_MODEL, D_STATE).state_dict()
    torch.manual_seed(0)
    assert_close(SSM(D_MODEL, D_STATE).state_dict(), first, rtol=0, atol=0)
    assert not torch.equal(first["raw_C"], second["raw_C"])
    assert_close(SSM(D_MODEL, D_STATE, generator=seed()).state_dict(), first, rtol=0, atol=0)


@pytest.mark.parametrize("options", RANDOM, ids=str)
def test_a_seed_gives_the_same_values_in_every_precision(options: dict[str, Any]) -> None:
    single, double = (
        SequenceModel(3, 2, 4, 2, generator=seed(), dtype=dtype, **options).state_dict()
        for dtype in (torch.float32, torch.float64)
    )
    for name, value in single.items():
        assert double[name].dtype == torch.float64
        assert torch.equal(value, double[name].float()), name


def test_linear_maps_start_as_those_of_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = S4D(256, 2, mixing="linear", generator=seed()).output, nn.Linear(256, 256)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert a.std().item() == pytest.approx(b.std().item(), rel=0.1)
        assert a.abs().max().item() == pytest.approx(b.abs().max().item(), rel=0.01)
