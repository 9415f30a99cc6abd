"""Bad input: each error says what came, what was expected and what to do."""

import re
from collections.abc import Callable
from itertools import product
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import Tensor

from s4d_torch import DSS, METHODS, S4, S4D, SSM, Block, Layer, Method, SequenceModel
from s4d_torch.nn.method import STRUCTURES
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.state_space import KERNELS

BATCH, LENGTH, D_INPUT, D_MODEL, D_STATE = 2, 5, 3, 4, 8


def layer(**options: Any) -> S4D:
    return S4D(D_MODEL, D_STATE, **options)


def model(**options: Any) -> SequenceModel:
    options = {"d_model": D_MODEL, "n_layers": 2, "d_state": D_STATE} | options
    return SequenceModel(D_INPUT, 2, **options)


def embedding(**options: Any) -> SequenceModel:
    return model(encoder="embedding", **options)


def signal(features: int = D_MODEL, length: int = LENGTH) -> Tensor:
    return torch.randn(BATCH, length, features, generator=torch.Generator().manual_seed(0))


def refused(error: type[Exception], *words: str) -> Any:
    """The call must raise `error` with a message that holds all the words, in any order."""
    return pytest.raises(error, match="".join(f"(?=.*{re.escape(word)})" for word in words))


def test_refused_wants_every_word() -> None:
    with refused(ValueError, "second", "first"):
        raise ValueError("the first and the second")
    with pytest.raises(AssertionError), refused(ValueError, "first", "third"):
        raise ValueError("the first and the second")


# ---- the signal -------------------------------------------------------------------------------

SHAPES = [
    ((LENGTH, D_MODEL), ("3 dimensions", "(batch, length, d_model)", "got 2", "(5, 4)")),
    ((D_MODEL,), ("3 dimensions", "got 1", "(4,)")),
    ((1, BATCH, LENGTH, D_MODEL), ("3 dimensions", "got 4", "(1, 2, 5, 4)")),
    ((BATCH, LENGTH, 7), ("(batch, length, d_model)", "d_model=4", "(2, 5, 7)")),
    ((BATCH, 0, D_MODEL), ("length 0", "at least one sample")),
    ((0, LENGTH, D_MODEL), ("batch size 0", "(0, 5, 4)", "leave out")),
]


@pytest.mark.parametrize(("shape", "words"), SHAPES)
@pytest.mark.parametrize("module", [layer(), layer().ssm, layer(bidirectional=True)])
def test_shape_of_the_input(
    module: Layer | SSM, shape: tuple[int, ...], words: tuple[str, ...]
) -> None:
    with refused(ValueError, *words):
        module(torch.zeros(shape))


@pytest.mark.parametrize(("shape", "words"), SHAPES)
def test_shape_of_the_input_of_a_model(shape: tuple[int, ...], words: tuple[str, ...]) -> None:
    words = tuple(word.replace("d_model", "d_input") for word in words)
    with refused(ValueError, *words):
        SequenceModel(D_MODEL, 2, d_model=6, n_layers=1)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((BATCH, LENGTH, D_MODEL), ("2 dimensions", "(batch, d_model)", "got 3")),
        ((D_MODEL,), ("2 dimensions", "got 1")),
        ((BATCH, 7), ("d_model=4", "(2, 7)")),
    ],
)
def test_shape_of_a_step(shape: tuple[int, ...], words: tuple[str, ...]) -> None:
    with refused(ValueError, *words):
        layer().step(torch.zeros(shape), layer().initial_state(BATCH))


DTYPES = [
    (torch.int64, ("real floating point", "torch.int64", "u.to(torch.float32)")),
    (torch.bool, ("real floating point", "torch.bool")),
    (torch.complex64, ("real floating point", "torch.complex64", "view_as_real")),
    (torch.float64, ("torch.float64", "parameters are torch.float32", "u.to(torch.float32)")),
    (torch.bfloat16, ("torch.bfloat16", "parameters are torch.float32", "u.to(torch.float32)")),
]


@pytest.mark.parametrize(("dtype", "words"), DTYPES)
def test_dtype_of_the_input(dtype: torch.dtype, words: tuple[str, ...]) -> None:
    u = torch.zeros(BATCH, LENGTH, D_MODEL, dtype=dtype)
    for module in (layer(), layer().ssm, layer(check_finite=True)):
        with refused(TypeError, *words):
            module(u)
    with refused(TypeError, *words):
        layer().step(u[:, 0], layer().initial_state(BATCH))
    with refused(TypeError, *words):
        model()(u[..., :D_INPUT])


def test_float32_into_a_double_layer() -> None:
    with refused(TypeError, "torch.float32", "parameters are torch.float64", "u.to(torch.float64)"):
        layer(dtype=torch.float64)(signal())


@pytest.mark.parametrize("u", [[[[0.0] * D_MODEL]], signal().numpy(), None])
def test_input_that_is_no_tensor(u: Any) -> None:
    with refused(TypeError, "torch.Tensor", "(batch, length, d_model)", type(u).__name__):
        layer()(u)
    with refused(TypeError, "torch.Tensor", "(batch, length, d_input)", type(u).__name__):
        model()(u)


def test_sparse_input_is_named() -> None:
    u = torch.zeros(2, 5, 4).to_sparse()
    with pytest.raises(TypeError, match=r"u must be dense, got torch\.sparse_coo; use to_dense"):
        S4D(4)(u)
    with pytest.raises(TypeError, match="must be dense"):
        SequenceModel(4, 3, 4, 1).compile_step(2).push(torch.zeros(2, 4).to_sparse())
    with pytest.raises(TypeError, match="must be dense"):
        SequenceModel(4, 3, 4, 1, encoder="embedding")(torch.ones(2, 5).long().to_sparse())


def test_a_choice_that_is_no_name() -> None:
    with pytest.raises(TypeError, match=r"must be a name, got \[1\]"):
        S4D(4, discretization=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [S4D, S4, DSS])
def test_length_1_works(make: type[Layer]) -> None:
    module = make(D_MODEL, D_STATE)
    u = signal(length=1)
    y, state = module(u)
    expected, _ = module(signal())
    assert y.shape == u.shape
    assert state.shape == (BATCH, D_MODEL, D_STATE)
    torch.testing.assert_close(module(signal()[:, :1])[0], expected[:, :1])


# ---- NaN and infinities -----------------------------------------------------------------------


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_check_finite_says_where(value: float) -> None:
    u = signal()
    u[1, 2, 0] = value
    with refused(ValueError, "u holds 1 values", "NaN or infinite", "(1, 2, 0)", "clean or impute"):
        layer(check_finite=True)(u)
    with refused(ValueError, "NaN or infinite", "(1, 0)", "clean or impute"):
        layer(check_finite=True).step(u[:, 2], layer().initial_state(BATCH))
    checked, x = model(check_finite=True), u[..., :D_INPUT]
    with refused(ValueError, "u holds 1 values", "NaN or infinite", "(1, 2, 0)", "clean or impute"):
        checked(x)
    with refused(ValueError, "NaN or infinite", "(1, 0)"):
        checked.step(x[:, 2], checked.initial_state(BATCH))


def test_check_finite_says_where_in_pairs() -> None:
    pairs = torch.zeros(BATCH, 2, LENGTH, D_INPUT)
    pairs[1, 0, 3, 2] = nan
    with refused(ValueError, "NaN or infinite", "(1, 0, 3, 2)"):
        model(check_finite=True, towers=2)(pairs)


@pytest.mark.parametrize("module", [layer(check_finite=True), model(check_finite=True)])
def test_check_finite_ignores_the_padding(module: Layer | SequenceModel) -> None:
    u = signal(D_MODEL if isinstance(module, Layer) else D_INPUT)
    clean, _ = module(u, lengths=[LENGTH, 2])
    u[1, 2:] = nan
    torch.testing.assert_close(module(u, lengths=[LENGTH, 2])[0], clean, rtol=0, atol=0)
    with refused(ValueError, "NaN"):
        module(u, lengths=[LENGTH, 3])


def test_without_check_finite_nan_goes_through() -> None:
    u = signal()
    u[0, 0, 0] = nan
    assert layer()(u)[0].isnan().any()


def test_check_finite_with_bad_lengths_speaks_of_the_lengths() -> None:
    for lengths in (5, [[5, 2], [1, 2]], [1, 2, 3]):
        with refused(ValueError, "lengths", "(2,)"):
            layer(check_finite=True)(signal(), lengths=lengths)


# ---- lengths ----------------------------------------------------------------------------------

LENGTHS: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
    ([6, 1], ValueError, ("lengths", "[1, 5]", "got 1 to 6")),
    ([0, 1], ValueError, ("lengths", "[1, 5]", "got 0 to 1")),
    ([-1, 5], ValueError, ("lengths", "[1, 5]", "got -1 to 5")),
    ([5], ValueError, ("one length per sequence", "(2,)", "got shape (1,)")),
    ([5, 5, 5], ValueError, ("one length per sequence", "(2,)", "got shape (3,)")),
    ([[5, 5]], ValueError, ("one length per sequence", "(2,)", "got shape (1, 2)")),
    (5, ValueError, ("one length per sequence", "(2,)", "got shape ()")),
    ([], ValueError, ("one length per sequence", "(2,)", "got shape (0,)")),
    ([5.0, 2.0], TypeError, ("integers", "torch.float32", "lengths.long()")),
    ([True, True], TypeError, ("integers", "torch.bool")),
    (torch.tensor([5 + 0j, 1]), TypeError, ("integers", "torch.complex64")),
    (["5", "2"], TypeError, ("integers", "(2,)", "'5'")),
    ([None, 2], TypeError, ("integers", "None")),
    ([[5], [1, 2]], TypeError, ("integers", "[[5], [1, 2]]")),
]


@pytest.mark.parametrize(("lengths", "error", "words"), LENGTHS)
@pytest.mark.parametrize("module", [layer(), layer(bidirectional=True), model(), embedding()])
def test_lengths(
    module: Layer | SequenceModel, lengths: Any, error: type[Exception], words: tuple[str, ...]
) -> None:
    u = signal(D_MODEL if isinstance(module, Layer) else D_INPUT)
    if not isinstance(module, Layer) and module.config["encoder"] == "embedding":
        u = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    with refused(error, *words):
        module(u, lengths=lengths)


def test_lengths_of_pairs() -> None:
    pairs = torch.zeros(BATCH, 2, LENGTH, D_INPUT)
    with refused(ValueError, "one length per sequence", "(2, 2)", "got shape (2,)"):
        model(towers=2)(pairs, lengths=[5, 5])
    with refused(ValueError, "[1, 5]", "got 1 to 6"):
        model(towers=2)(pairs, lengths=[[5, 5], [1, 6]])


# ---- sizes and numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d_state", "error", "words"),
    [
        (1, ValueError, ("d_state", "even", "got 1", "use 2")),
        (7, ValueError, ("d_state", "even", "got 7", "use 8")),
        (0, ValueError, ("d_state", "at least 1", "got 0")),
        (-2, ValueError, ("d_state", "at least 1", "got -2")),
        (8.0, TypeError, ("d_state", "integer", "8.0")),
        ("8", TypeError, ("d_state", "integer", "'8'")),
        (True, TypeError, ("d_state", "integer", "True")),
        (None, TypeError, ("d_state", "integer", "None")),
    ],
)
def test_d_state(d_state: Any, error: type[Exception], words: tuple[str, ...]) -> None:
    makers: list[Callable[[], object]] = [
        lambda: S4D(D_MODEL, d_state),
        lambda: S4(D_MODEL, d_state),
        lambda: model(d_state=d_state),
    ]
    for make in makers:
        with refused(error, *words):
            make()


@pytest.mark.parametrize("d_state", [1, 3])
def test_real_modes_may_be_odd(d_state: int) -> None:
    assert S4D(D_MODEL, d_state, init="real")(signal())[0].isfinite().all()


def test_the_smallest_state_works() -> None:
    for make in (S4D, S4, DSS):
        assert make(1, 2)(torch.ones(1, LENGTH, 1))[0].isfinite().all()


@pytest.mark.parametrize(
    ("value", "error", "word"),
    [(0, ValueError, "at least 1"), (-1, ValueError, "at least 1"), (2.5, TypeError, "integer")],
)
@pytest.mark.parametrize("name", ["d_input", "d_output", "d_model", "n_layers"])
def test_sizes_of_a_model(name: str, value: Any, error: type[Exception], word: str) -> None:
    sizes: dict[str, Any] = {"d_input": 3, "d_output": 2, "d_model": 4, "n_layers": 1}
    with refused(error, name, word, repr(value)):
        SequenceModel(**sizes | {name: value})


OPTIONS: list[tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = [
    ({"dt_min": 0.1, "dt_max": 0.01}, ValueError, ("dt_min <= dt_max", "0.1", "0.01")),
    ({"dt_min": 0.0}, ValueError, ("0 < dt_min", "dt_min=0.0")),
    ({"dt_min": nan}, ValueError, ("0 < dt_min", "nan")),
    ({"dt_max": inf}, ValueError, ("dt_max", "inf")),
    ({"dt_min": "0.1"}, TypeError, ("dt_min", "number", "'0.1'")),
    ({"imag_scale": 0}, ValueError, ("imag_scale", "above 0", "got 0")),
    ({"imag_scale": nan}, ValueError, ("imag_scale", "above 0", "nan")),
    ({"imag_scale": None}, TypeError, ("imag_scale", "number", "None")),
    ({"softmax_length": 0}, ValueError, ("softmax_length", "at least 1", "got 0")),
    ({"softmax_length": 2.5}, TypeError, ("softmax_length", "integer", "2.5")),
    ({"n_ssm": 3}, ValueError, ("n_ssm", "divide d_model=4", "n_ssm=3")),
    ({"n_ssm": 8}, ValueError, ("n_ssm", "divide d_model=4", "n_ssm=8")),
    ({"n_ssm": 0}, ValueError, ("n_ssm", "at least 1", "got 0")),
    ({"n_ssm": 2.0}, TypeError, ("n_ssm", "integer", "2.0")),
    ({"train_A": "no"}, TypeError, ("train_A", "True or False", "'no'")),
    ({"bidirectional": 1}, TypeError, ("bidirectional", "True or False", "1")),
    ({"init": None}, TypeError, ("init", "'legs'", "None")),
    ({"init": "real+legs"}, ValueError, ("real+legs", "mixes real and complex", "alone")),
    (
        {"init": "legs+lin+inv"},
        ValueError,
        ("mixes 3 starts", "4 independent systems", "multiple of 3"),
    ),
    (
        {"init": "legs+lin", "n_ssm": 1},
        ValueError,
        ("mixes 2 starts", "1 independent", "n_ssm", "multiple of 2"),
    ),
    ({"init": "legs+"}, ValueError, ("unknown initialization", "''", "legs, inv, lin")),
    ({"random_imag": True}, ValueError, ("random_imag", "law", "inv, lin, inv2, quad", "'legs'")),
    ({"init": "real", "imag_scale": 2.0}, ValueError, ("'real'", "no imaginary part")),
    ({"init": "lin", "B_init": "hippo"}, ValueError, ("'legs'", "'lin'", "B_init='ones'")),
    ({"dtype": torch.complex64}, TypeError, ("dtype", "torch.float32", "torch.complex64")),
    ({"dtype": torch.int64}, TypeError, ("dtype", "torch.float32", "torch.int64")),
    ({"dtype": "float32"}, TypeError, ("dtype", "torch.float32", "'float32'")),
    ({"method": 3}, TypeError, ("method", "Method", "got 3")),
]


@pytest.mark.parametrize(("options", "error", "words"), OPTIONS)
def test_options(options: dict[str, Any], error: type[Exception], words: tuple[str, ...]) -> None:
    for make in (layer, model, lambda **given: SSM(D_MODEL, D_STATE, **given)):
        with refused(error, *words):
            make(**options)


def test_a_layer_takes_no_name_of_a_method() -> None:
    with refused(TypeError, "method must be a Method", "METHODS['s4d']", "'s4'"):
        layer(method="s4")


@pytest.mark.parametrize("value", [1.0, 1.5, -0.1, nan])
def test_dropout_out_of_range(value: float) -> None:
    for make in (layer, model, lambda dropout: Block(layer(), dropout=dropout)):
        with refused(ValueError, "dropout", "[0, 1)", str(value)):
            make(dropout=value)
    for make in (model, lambda drop_path: Block(layer(), drop_path=drop_path)):
        with refused(ValueError, "drop_path", "[0, 1)", str(value)):
            make(drop_path=value)


@pytest.mark.parametrize("name", ["dropout", "drop_path"])
def test_dropout_that_is_no_number(name: str) -> None:
    with refused(TypeError, name, "number", "'0.1'"):
        model(**{name: "0.1"})


@pytest.mark.parametrize("name", ["prenorm", "tie_dropout", "check_finite"])
def test_flags_are_true_or_false(name: str) -> None:
    with refused(TypeError, name, "True or False", "'false'"):
        model(**{name: "false"})


@pytest.mark.parametrize(
    ("rate", "error", "word"),
    [
        (0, ValueError, "above 0"),
        (-1.0, ValueError, "above 0"),
        (nan, ValueError, "finite"),
        (inf, ValueError, "finite"),
        ("2", TypeError, "number"),
        (None, TypeError, "number"),
        (True, TypeError, "number"),
        (torch.tensor(2.0), TypeError, "number"),
    ],
)
def test_rate(rate: Any, error: type[Exception], word: str) -> None:
    u, state = signal(), layer().initial_state(BATCH)
    x, model_state = u[..., :D_INPUT], model().initial_state(BATCH)
    calls: list[Callable[[], object]] = [
        lambda: layer()(u, rate=rate),
        lambda: layer().step(u[:, 0], state, rate=rate),
        lambda: layer().ssm.kernel(LENGTH, rate=rate),
        lambda: model()(x, rate=rate),
        lambda: model().step(x[:, 0], model_state, rate=rate),
    ]
    for call in calls:
        with refused(error, "rate", word, repr(rate)):
            call()


@pytest.mark.parametrize(
    ("length", "error", "word"), [(0, ValueError, "at least 1"), (2.5, TypeError, "integer")]
)
def test_length_of_a_kernel(length: Any, error: type[Exception], word: str) -> None:
    with refused(error, "length", word, repr(length)):
        layer().ssm.kernel(length)


# ---- states -----------------------------------------------------------------------------------


def without_a_state_like(state: Any, words: tuple[str, ...], error: type[Exception]) -> None:
    with refused(error, *words):
        layer()(signal(), state)
    with refused(error, *words):
        layer().step(signal()[:, 0], state)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (layer().initial_state(3), ("(2, 4, 8)", "(3, 4, 8)")),
        (layer().initial_state(1), ("(2, 4, 8)", "(1, 4, 8)")),
        (S4D(5, D_STATE).initial_state(BATCH), ("(2, 4, 8)", "(2, 5, 8)")),
        (S4D(D_MODEL, 6).initial_state(BATCH), ("(2, 4, 8)", "(2, 4, 6)")),
        (layer().initial_state(BATCH).float(), ("torch.float64", "torch.float32")),
    ],
)
def test_state_of_another_batch_or_layer(state: Tensor, words: tuple[str, ...]) -> None:
    without_a_state_like(
        state, ("another layer or batch", "initial_state(batch_size)", *words), ValueError
    )


def test_state_on_another_device() -> None:
    state = layer().initial_state(BATCH).to("meta")
    without_a_state_like(state, ("state is on meta", "the input on cpu", "move"), ValueError)


@pytest.mark.parametrize("state", [[0.0], layer().initial_state(BATCH).numpy(), "state"])
def test_state_that_is_no_tensor(state: Any) -> None:
    words = ("state", "tensor", "(2, 4, 8)", "initial_state", type(state).__name__)
    without_a_state_like(state, words, TypeError)


def test_a_step_needs_a_state() -> None:
    with refused(TypeError, "state", "initial_state", "NoneType"):
        layer().step(signal()[:, 0], None)  # type: ignore[arg-type]
    with refused(TypeError, "ModelState", "initial_state", "NoneType"):
        model().step(signal(D_INPUT)[:, 0], None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        (model().initial_state(3), ValueError, ("for 3 sequences", "holds 2", "initial_state")),
        (model(n_layers=3).initial_state(BATCH), ValueError, ("3 layers", "has 2")),
        (model(d_model=6).initial_state(BATCH), ValueError, ("(2, 4, 8)", "(2, 6, 8)")),
        (model(d_state=6).initial_state(BATCH), ValueError, ("(2, 4, 8)", "(2, 4, 6)")),
        (layer().initial_state(BATCH), TypeError, ("ModelState", "Tensor")),
        (tuple(model().initial_state(BATCH)), TypeError, ("ModelState", "tuple")),
    ],
)
def test_state_of_another_model(state: Any, error: type[Exception], words: tuple[str, ...]) -> None:
    u = signal(D_INPUT)
    with refused(error, "state", *words):
        model()(u, state)
    with refused(error, "state", *words):
        model().step(u[:, 0], state)


@pytest.mark.parametrize(
    ("batch", "error", "word"),
    [(0, ValueError, "at least 1"), (-1, ValueError, "at least 1"), (None, TypeError, "integer")],
)
@pytest.mark.parametrize("module", [layer(), model(), model(towers=2)])
def test_batch_size_of_an_initial_state(
    module: Layer | SequenceModel, batch: Any, error: type[Exception], word: str
) -> None:
    with refused(error, "batch_size", word, repr(batch)):
        module.initial_state(batch)


def test_a_bidirectional_layer_has_no_state() -> None:
    both, state = layer(bidirectional=True), layer().initial_state(BATCH)
    calls: dict[str, Callable[[], object]] = {
        "cannot step": lambda: both.step(signal()[:, 0], state),
        "cannot have a state": lambda: both.initial_state(BATCH),
        "cannot continue from a state": lambda: both(signal(), state),
    }
    for action, call in calls.items():
        with refused(ValueError, "bidirectional", "looks ahead", action, "bidirectional=False"):
            call()


def test_a_bidirectional_model_has_no_state() -> None:
    both, state = model(bidirectional=True), model().initial_state(BATCH)
    calls: list[Callable[[], object]] = [
        lambda: both.step(signal(D_INPUT)[:, 0], state),
        lambda: both.initial_state(BATCH),
        lambda: both(signal(D_INPUT), state),
    ]
    for call in calls:
        with refused(ValueError, "bidirectional", "looks ahead", "bidirectional=False"):
            call()


# ---- unknown names ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("inti", "init"),
        ("bidirectonal", "bidirectional"),
        ("discretisation", "discretization"),
        ("genarator", "generator"),
    ],
)
def test_an_unknown_option_gets_a_suggestion(name: str, meant: str) -> None:
    makers: list[Callable[..., object]] = [
        layer,
        model,
        lambda **options: SSM(D_MODEL, D_STATE, **options),
        lambda **options: S4(D_MODEL, D_STATE, **options),
    ]
    for make in makers:
        with refused(TypeError, "unknown option", repr(name), f"did you mean {meant!r}"):
            make(**{name: 1})


@pytest.mark.parametrize(
    ("make", "name", "meant"),
    [
        (layer, "dropuot", "dropout"),
        (layer, "check_finit", "check_finite"),
        (model, "poling", "pooling"),
        (model, "drop_out", "dropout"),
        (model, "tower", "towers"),
        (METHODS["s4d"].replace, "trainA", "train_A"),
    ],
)
def test_the_suggestion_knows_the_arguments(
    make: Callable[..., object], name: str, meant: str
) -> None:
    with refused(TypeError, "unknown option", repr(name), f"did you mean {meant!r}"):
        make(**{name: 1})


def test_an_option_of_another_module_is_unknown() -> None:
    with refused(TypeError, "unknown option 'pooling'", "structure, kernel"):
        layer(pooling="mean")
    with refused(TypeError, "unknown option 'dropout'"):
        SSM(D_MODEL, D_STATE, dropout=0.1)  # type: ignore[call-arg]


CHOICES = [
    ("init", "lgs", "legs", "legs, inv, lin, inv2, quad, rand, real"),
    ("structure", "dlpr", "dplr", "diagonal, dplr"),
    ("kernel", "couchy", "cauchy", "vandermonde, softmax, cauchy"),
    ("discretization", "zho", "zoh", "bilinear, zoh, foh"),
    ("constraint", "softpuls", "softplus", "exp, relu, softplus, identity"),
    ("B_init", "hipo", "hippo", "auto, ones, hippo, hippo-half"),
    ("C_init", "oficial", "official", "paper, official"),
    ("activation", "gleu", "gelu", "gelu, relu, silu, tanh, none"),
    ("mixing", "liner", "linear", "glu, linear, none"),
    ("engine", "ftt", "fft", "auto, fft, direct, chunk, scan"),
]
MODEL_CHOICES = [
    ("norm", "batc", "batch", "layer, batch, none"),
    ("pooling", "men", "mean", "mean, last, none"),
    ("encoder", "embeding", "embedding", "linear, embedding"),
    ("method", "s4dd", "s4d", "s4d, s4, dss"),
]


@pytest.mark.parametrize(
    ("make", "name", "value", "meant", "options"),
    [(layer, *choice) for choice in CHOICES]
    + [(model, *choice) for choice in CHOICES + MODEL_CHOICES],
)
def test_an_unknown_value_gets_a_suggestion(
    make: Callable[..., object], name: str, value: str, meant: str, options: str
) -> None:
    with refused(ValueError, "unknown", repr(value), f"did you mean {meant!r}", options):
        make(**{name: value})


def test_an_unknown_norm_of_a_block() -> None:
    with refused(ValueError, "unknown norm 'batc'", "did you mean 'batch'"):
        Block(layer(), norm="batc")


@pytest.mark.parametrize("method", [{"inti": "legs"}, {"init": "lgs"}])
def test_an_unknown_name_in_a_method_given_as_a_mapping(method: dict[str, str]) -> None:
    with refused((TypeError, ValueError), "unknown", "did you mean"):  # type: ignore[arg-type]
        model(method=method)


# ---- illegal combinations ---------------------------------------------------------------------

LEGAL = {
    ("diagonal", "vandermonde", "bilinear"),
    ("diagonal", "vandermonde", "zoh"),
    ("diagonal", "vandermonde", "foh"),
    ("diagonal", "vandermonde", "dirac"),
    ("diagonal", "softmax", "zoh"),
    ("diagonal", "cauchy", "bilinear"),
    ("dplr", "cauchy", "bilinear"),
}
ADVICE = {
    "diagonal": (
        "kernel='vandermonde' with 'bilinear' or 'zoh' or 'foh' or 'dirac'",
        "kernel='softmax' with 'zoh'",
        "kernel='cauchy' with 'bilinear'",
    ),
    "dplr": ("use kernel='cauchy' with 'bilinear'",),
}


@pytest.mark.parametrize("combination", [*product(STRUCTURES, KERNELS, DISCRETIZATIONS)])
def test_illegal_combinations_list_the_legal_ones(combination: tuple[str, str, str]) -> None:
    structure, kernel, discretization = combination
    options: Any = {"structure": structure, "kernel": kernel, "discretization": discretization}
    if combination in LEGAL:
        assert S4D(D_MODEL, D_STATE, **options)(signal())[0].isfinite().all()
        return
    wrong = "'dplr'" if kernel != "cauchy" and structure == "dplr" else repr(discretization)
    words = (f"kernel {kernel!r} needs", f"got {wrong}", *ADVICE[structure])
    for make in (Method, layer, model):
        with refused(ValueError, *words):
            make(**options)


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("s4", {"init": "lin"}, ("'dplr'", "'lin'", "legs, legt, fout")),
        ("s4", {"init": "legs+lin"}, ("'dplr'", "'lin'", "legs, legt, fout")),
        ("s4", {"init": "real"}, ("'dplr'", "'real'", "legs, legt, fout")),
        ("s4", {"imag_scale": 2.0}, ("imag_scale", "'dplr'", "structure='diagonal'")),
        ("s4", {"random_real": True}, ("random_real", "'dplr'", "structure='diagonal'")),
        ("s4", {"B_init": "ones"}, ("'dplr'", "B_init 'ones'", "B_init='auto'")),
        ("s4d", {"init": "fout"}, ("'diagonal'", "'fout'", "legs, inv, lin")),
        ("s4d", {"init": "real", "kernel": "cauchy"}, ("complex modes", "'real'", "'vandermonde'")),
    ],
)
def test_starts_that_do_not_fit_the_structure(
    method: str, options: dict[str, Any], words: tuple[str, ...]
) -> None:
    with refused(ValueError, *words):
        METHODS[method].replace(**options)


# ---- tokens and towers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("u", "error", "words"),
    [
        ([[0, 3]], ValueError, ("tokens from 0 to 2", "d_input=3", "got 0 to 3")),
        ([[-1, 0]], ValueError, ("tokens from 0 to 2", "got -1 to 0")),
        ([[0.0]], TypeError, ("integer tokens", "torch.float32", "u.long()")),
        ([[True]], TypeError, ("integer tokens", "torch.bool")),
        ([0, 1], ValueError, ("2 dimensions", "(batch, length)", "(2,)")),
        ([[[0]]], ValueError, ("2 dimensions", "(batch, length)", "(1, 1, 1)")),
        ([[]], TypeError, ("integer tokens", "torch.float32")),
    ],
)
def test_tokens(u: Any, error: type[Exception], words: tuple[str, ...]) -> None:
    with refused(error, *words):
        embedding()(torch.tensor(u))


def test_tokens_without_length() -> None:
    with refused(ValueError, "length 0", "at least one sample"):
        embedding()(torch.zeros(BATCH, 0, dtype=torch.long))


def test_tokens_of_a_step() -> None:
    module = embedding()
    with refused(ValueError, "tokens from 0 to 2", "got 5 to 5"):
        module.step(torch.tensor([5, 5]), module.initial_state(BATCH))
    with refused(ValueError, "(batch)", "(2, 1)"):
        module.step(torch.tensor([[0], [0]]), module.initial_state(BATCH))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_any_integers_are_tokens(dtype: torch.dtype) -> None:
    module, u = embedding().eval(), torch.tensor([[0, 1, 2], [2, 2, 0]])
    torch.testing.assert_close(module(u.to(dtype))[0], module(u)[0], rtol=0, atol=0)


def test_the_padding_of_tokens_may_be_anything() -> None:
    module, u = embedding().eval(), torch.tensor([[0, 1, 2], [2, 0, 0]])
    expected, _ = module(u, lengths=[3, 1])
    u[1, 1:] = -100
    torch.testing.assert_close(module(u, lengths=[3, 1])[0], expected, rtol=0, atol=0)
    with refused(ValueError, "tokens from 0 to 2", "got -100 to 2"):
        module(u, lengths=[3, 2])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"towers": 3}, ValueError, ("towers must be 1, or 2", "towers=3")),
        ({"towers": 0}, ValueError, ("towers", "at least 1", "got 0")),
        ({"towers": 2.0}, TypeError, ("towers", "integer", "2.0")),
        (
            {"towers": 2, "pooling": "none"},
            ValueError,
            ("towers=2", "pooling='none'", "'mean' or 'last'"),
        ),
    ],
)
def test_towers(options: dict[str, Any], error: type[Exception], words: tuple[str, ...]) -> None:
    with refused(error, *words):
        model(**options)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((BATCH, LENGTH, D_INPUT), ("4 dimensions", "(batch, 2, length, d_input)", "(2, 5, 3)")),
        ((BATCH, 3, LENGTH, D_INPUT), ("pairs", "(batch, 2, length, d_input)", "(2, 3, 5, 3)")),
        ((BATCH, 1, LENGTH, D_INPUT), ("pairs", "(2, 1, 5, 3)")),
    ],
)
def test_shape_of_pairs(shape: tuple[int, ...], words: tuple[str, ...]) -> None:
    with refused(ValueError, *words):
        model(towers=2)(torch.zeros(shape))


def test_a_step_of_pairs() -> None:
    pair = model(towers=2)
    with refused(ValueError, "3 dimensions", "(batch, 2, d_input)", "(2, 3)"):
        pair.step(torch.zeros(BATCH, D_INPUT), pair.initial_state(BATCH))
    with refused(ValueError, "for 2 sequences", "holds 4", "initial_state"):
        pair.step(torch.zeros(BATCH, 2, D_INPUT), model().initial_state(BATCH))
