"""Symbols: made from values, predicted, scored in bits, and generated."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from s4d_torch import SequenceModel
from s4d_torch.cli import main
from s4d_torch.data import DataFolder, Dataset, Sequences, Signature, Split
from s4d_torch.data.dataset import IGNORED
from s4d_torch.data.files.png import read_png
from s4d_torch.data.files.sound import read_audio
from s4d_torch.data.tasks.symbols import (
    QUANTIZATIONS,
    FsddAudioOptions,
    MnistPixelsOptions,
    counted_bits,
    load_fsdd_audio,
    load_mnist_pixels,
)
from s4d_torch.data.user_files.symbol_files import grid, read_symbols, write_symbols
from s4d_torch.nn.stepping import step as compiled
from s4d_torch.nn.stepping.generation import FEW, PIECE, Generation
from s4d_torch.nn.stepping.sampling import choose
from s4d_torch.training import Config, default_config, train_on
from s4d_torch.training.build import build_model
from s4d_torch.training.evaluation import loss_sum, predict, score, surprise
from s4d_torch.training.run import predict_sequences

LEVELS = 5


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model_of(**options: Any) -> SequenceModel:
    sizes = {"d_input": LEVELS + 1, "d_output": LEVELS, "d_model": 20, "n_layers": 2, "d_state": 6}
    kind = {"encoder": "embedding", "pooling": "none", "generator": seeded()}
    return SequenceModel(**{**sizes, **kind, **options})


# -- values as symbols -----------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [2, 16, 255, 256])
@pytest.mark.parametrize("name", QUANTIZATIONS)
def test_each_symbol_stands_for_a_value_of_its_own(name: str, levels: int) -> None:
    kind, symbols = QUANTIZATIONS[name], np.arange(levels)
    values = kind.decode(symbols, levels)
    assert np.array_equal(kind.encode(values, levels), symbols)
    assert (np.diff(values) > 0).all()
    assert (values[0], values[-1]) == pytest.approx((kind.low, 1))
    assert kind.encode(np.array([-9.0, 9.0]), levels).tolist() == [0, levels - 1]


@given(st.floats(-1, 1))
def test_a_value_comes_back_to_within_half_a_step(value: float) -> None:
    """Of the mu-law a step is 2 (1 + mu |x|) log(1 + mu) / mu^2 wide at x, fine for small x."""
    (linear, bent), mu = QUANTIZATIONS.values(), 255
    back = bent.decode(bent.encode(np.array(value), 256), 256)
    assert abs(back - value) <= 1.03 * (1 + mu * abs(value)) * math.log(1 + mu) / mu**2
    positive = abs(value)
    assert abs(linear.decode(linear.encode(np.array(positive), 16), 16) - positive) <= 0.5001 / 15


def test_mu_law_is_that_of_g711() -> None:
    encode = QUANTIZATIONS["mu-law"].encode
    assert encode(np.array([-1, -0.5, -0.01, 0, 0.01, 0.5, 1]), 256).tolist() == [
        *(0, 16, 98, 128),
        *(157, 239, 255),
    ]


# -- the next symbol as a target -------------------------------------------------------------------


def symbols_dataset(rows: list[list[int]], levels: int = LEVELS) -> Dataset:
    sequences = Sequences.of([np.array(row, dtype=np.uint8) for row in rows])
    whole = Split.whole(sequences, np.zeros(len(rows)))
    signature = Signature(
        *("generation", levels + 1, levels, sequences.longest),
        tokens=True,
        quantization="linear",
    )
    return Dataset(whole, whole, whole, signature)


def counting(count: int = 40, length: int = 24) -> Dataset:
    """0 1 2 3 4 0 1 ..., from anywhere."""
    return symbols_dataset([[(i + t) % LEVELS for t in range(length)] for i in range(count)])


def config_of(**training: Any) -> Config:
    base = default_config("mnist-pixels")
    return replace(
        base,
        model=replace(base.model, n_layers=1, d_model=16, d_state=4),
        optimizer=replace(base.optimizer, lr=0.02),
        training=replace(base.training, **{"epochs": 10, "batch_size": 8, **training}),
    )


def test_each_symbol_is_the_target_of_those_before_it() -> None:
    data = symbols_dataset([[3, 1, 4], [2, 0]])
    batch = data.batch(data.train, np.array([0, 1]))
    assert batch.inputs.tolist() == [[LEVELS, 3, 1], [LEVELS, 2, 0]]
    assert batch.targets.tolist() == [[3, 1, 4], [2, 0, IGNORED]]
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [3, 2]
    assert data.answers(data.train, np.array([0, 1])) == 5


def test_the_loss_is_over_all_symbols_and_over_nothing_after_the_ends() -> None:
    data = symbols_dataset([[3, 1, 4], [2, 0]])
    batch = data.batch(data.train, np.arange(2))
    outputs = torch.randn(2, 3, LEVELS, generator=seeded(), requires_grad=True)
    logs = outputs.log_softmax(-1)
    by_hand = -sum(logs[0, t, s] for t, s in enumerate([3, 1, 4]))
    by_hand -= sum(logs[1, t, s] for t, s in enumerate([2, 0]))
    loss = loss_sum(outputs, batch.targets, data.signature)
    torch.testing.assert_close(loss, by_hand)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad[1, 2].abs().max() == 0
    nats, symbols = surprise(outputs.detach(), batch.targets)
    assert symbols.tolist() == [3, 2]
    torch.testing.assert_close(nats.sum(), loss.detach().double())
    found = score(nats, symbols, data.signature)
    assert found.loss == pytest.approx(loss.item() / 5)
    assert found.scores == {"bits": pytest.approx(loss.item() / 5 / math.log(2))}


def test_bits_of_a_split_do_not_depend_on_batches() -> None:
    rows = [[(i * t) % LEVELS for t in range(3 + i)] for i in range(9)]
    data, model = symbols_dataset(rows), model_of()
    alone, together = (
        score(*predict(model, data, data.test, batch_size=size), data.signature) for size in (1, 9)
    )
    assert alone.scores["bits"] == pytest.approx(together.scores["bits"], rel=1e-5)


def test_counting_knows_frequencies_and_what_follows() -> None:
    data = symbols_dataset([[0, 1] * 500 for _ in range(8)], levels=2)
    splits = [data.test]
    assert counted_bits(data, splits, 0) == pytest.approx(1, abs=1e-3)
    assert counted_bits(data, splits, 1) == pytest.approx(0, abs=2e-3)
    biased = symbols_dataset([[0, 0, 0, 1] * 500 for _ in range(8)], levels=2)
    assert counted_bits(biased, [biased.test], 0) == pytest.approx(0.8113, abs=1e-3)


def test_a_model_learns_to_count_and_then_counts_on() -> None:
    run = train_on(counting(), config_of())
    assert run.summary["metric"] == "bits"
    assert run.summary["test"]["bits"] < 0.5  # of log2(5) = 2.3: only the first cannot be known
    assert run.rows[-1]["validation_bits"] == pytest.approx(run.summary["validation"])
    assert isinstance(run.model, SequenceModel)
    written = run.model.generate(60, temperature=0, prompt=[[2, 3, 4], [4, 0, 1]])
    assert written.tolist() == [[t % LEVELS for t in range(60)], [(2 + t) % 5 for t in range(60)]]
    with pytest.raises(ValueError, match=r"use model\.generate"):
        predict_sequences(run, [np.array([0, 1])])


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        ("model", {"architecture": "lstm"}, "architecture 'lstm' cannot generate"),
        ("model", {"pooling": "mean"}, "needs pooling 'none'.*got pooling 'mean'"),
        ("method", {"bidirectional": True}, "must not be bidirectional"),
    ],
)
def test_settings_that_cannot_generate_are_refused(
    part: str, change: dict[str, Any], told: str
) -> None:
    config = config_of()
    config = replace(config, **{part: replace(getattr(config, part), **change)})
    with pytest.raises(ValueError, match=told):
        build_model(config, counting().signature)


def test_an_output_per_step_is_refused_where_there_is_one_answer() -> None:
    with pytest.raises(ValueError, match="use pooling 'mean' or 'last'"):
        build_model(config_of(), Signature("classification", 1, 2, 16))


def test_real_pixels_and_sounds(real_data: Callable[..., Path]) -> None:
    folder = DataFolder(real_data("mnist", "fsdd"), download=False)
    pixels = load_mnist_pixels(MnistPixelsOptions(levels=8), folder)
    assert [len(split) for split in pixels.splits.values()] == [54000, 6000, 10000]
    batch = pixels.batch(pixels.test, np.arange(50))
    assert batch.inputs.shape == batch.targets.shape == (50, 784)
    assert batch.inputs[:, 0].unique().tolist() == [8]
    assert batch.targets.unique().tolist() == list(range(8))
    sounds = load_fsdd_audio(FsddAudioOptions(max_seconds=0.1), folder)
    assert (sounds.signature.features, sounds.signature.outputs) == (257, 256)
    assert sounds.signature.sample_rate == 8000
    heard = sounds.batch(sounds.test, np.arange(50)).targets
    assert 0 <= heard.min() < 100 < 150 < heard.max() <= 255
    assert abs(heard.double().mean() - 127.5) < 5  # silence is in the middle
    few = pixels.shortened(train=300, test=50)
    zero, one = (counted_bits(few, [few.test], order) for order in (0, 1))
    assert one < zero < 3


# -- choosing --------------------------------------------------------------------------------------


def test_symbols_are_chosen_by_their_chances() -> None:
    scores = torch.tensor([[0.0, math.log(2), math.log(5)]])  # chances 1/8, 2/8, 5/8
    draws = torch.tensor([0, 0.124, 0.126, 0.374, 0.376, 0.999], dtype=torch.float64)
    each = [int(choose(scores, draw[None])) for draw in draws]
    assert each == [0, 0, 1, 1, 2, 2]
    cold = [int(choose(scores, draw[None], temperature=0.5)) for draw in draws]  # 1, 4, 25 of 30
    assert cold == [0, 1, 1, 2, 2, 2]
    kept = [int(choose(scores, draw[None], top_k=2)) for draw in draws]  # 0, 2, 5 of 7
    assert kept == [1, 1, 1, 2, 2, 2]
    assert int(choose(scores, draws[:1], temperature=0)) == 2
    equal = torch.tensor([[1.0, 3.0, 3.0, 3.0]])
    assert int(choose(equal, draws[:1], temperature=0)) == 1
    assert {int(choose(equal, draw[None], top_k=1)) for draw in draws} == {1, 2, 3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options", [{}, {"method": "s4", "norm": "batch", "d_input": LEVELS}], ids=str
)
@pytest.mark.parametrize("how", [{}, {"temperature": 0.7, "top_k": 3}, {"temperature": 0}], ids=str)
def test_machine_code_chooses_as_the_eager_step_does(
    options: dict[str, Any], how: dict[str, Any], dtype: torch.dtype, monkeypatch: Any
) -> None:
    model = model_of(**options, dtype=dtype).train()  # generated is in evaluation whatever it is in
    prompt = torch.randint(LEVELS, (3, 40), generator=seeded(1))

    def generated() -> Tensor:
        return model.generate(150, prompt=prompt, generator=seeded(2), **how)

    fast = generated()
    monkeypatch.setattr(compiled, "available", lambda *_: False)
    assert torch.equal(fast, generated())
    assert model.training
    assert fast.shape == (3, 150)
    assert 0 <= fast.min() < fast.max() < LEVELS or how == {"temperature": 0}


def test_generated_symbols_have_the_chances_that_the_model_gives_them() -> None:
    """The surprise of what was drawn is, on average, the entropy of what it was drawn from."""
    model = model_of(d_model=8)
    written = model.generate(2000, batch_size=4, generator=seeded(3))
    inputs = torch.cat([torch.full((4, 1), LEVELS), written[:, :-1]], 1)
    with torch.no_grad():
        logs = model(inputs)[0].double().log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1)
    surprise = -logs.gather(-1, written[..., None])[..., 0]
    error = (surprise - entropy).std() / surprise.numel() ** 0.5
    assert abs(surprise.mean() - entropy.mean()) < 4 * error


@pytest.mark.parametrize("few", [0, FEW])
def test_the_prompt_is_read_as_the_steps_would(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a convolution or one by one, whichever takes less time."""
    monkeypatch.setattr("s4d_torch.nn.stepping.generation.FEW", few)
    model = model_of(dtype=torch.float64)
    whole, pieces = Generation(model), Generation(model)
    prompt = torch.randint(LEVELS, (1, 50), generator=seeded())
    whole.read(prompt)
    for piece in prompt.split(7, dim=1):
        pieces.read(piece)
    stream = model.compile_step()
    stream.push_many(torch.cat([torch.tensor([[LEVELS]]), prompt], 1))
    for other in (whole, pieces):
        for a, b in zip(other.state.layers, stream.state.layers, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_seeds_decide_and_shorter_is_the_beginning_of_longer() -> None:
    model = model_of()
    first, again, other = (model.generate(40, batch_size=2, generator=seeded(s)) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first[:, :9], model.generate(9, batch_size=2, generator=seeded(0)))
    generation, random = Generation(model, 2), seeded(0)
    parts = [generation.write(n, generator=random) for n in (1, 30, 9)]
    assert torch.equal(first, torch.cat(parts, 1))
    state = torch.random.get_rng_state()
    model.generate(5, generator=seeded())
    assert torch.equal(state, torch.random.get_rng_state())


def test_prompts_of_all_shapes() -> None:
    model = model_of()
    one = model.generate(20, temperature=0, prompt=[1, 2])
    assert one.shape == (1, 20)
    many = model.generate(20, temperature=0, prompt=torch.tensor([1, 2]), batch_size=3)
    assert torch.equal(many, one.expand(3, -1))
    assert torch.equal(model.generate(20, 0), model.generate(20, 0, prompt=[]))
    long = torch.randint(LEVELS, (1, PIECE + 3), generator=seeded())
    assert model.generate(2, prompt=long).shape == (1, 2)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bidirectional": True}, "it has bidirectional=True instead of False"),
        ({"pooling": "mean"}, "it has pooling='mean' instead of 'none'"),
        ({"encoder": "linear"}, "it has encoder='linear' instead of 'embedding'"),
        ({"towers": 2, "pooling": "last"}, "pooling='last' instead of 'none'; towers=2 instead"),
        ({"d_output": LEVELS + 2}, "d_input=6 with d_output=7; expected as many symbols out"),
        ({"d_output": LEVELS - 1}, "d_input=6 with d_output=4"),
    ],
)
def test_models_that_cannot_generate_say_why(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=f"this model cannot generate: .*{told}"):
        model_of(**options).generate(3)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"temperature": -1.0}, "temperature must be a finite number, 0 or more, got -1.0"),
        ({"temperature": math.nan}, "temperature must be a finite number"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"prompt": [LEVELS]}, "prompt must hold tokens from 0 to 4"),
        ({"prompt": [[[0]]]}, r"prompt must be \(length,\) or \(batch, length\), got \(1, 1, 1\)"),
        ({"prompt": [[0], [1]], "batch_size": 3}, "prompt holds 2 sequences, expected 3"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_bad_requests_say_what_is_expected(how: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        model_of().generate(**{"n": 3, **how})
    with pytest.raises(TypeError, match="prompt must hold integer tokens"):
        model_of().generate(3, prompt=[0.5])


def test_without_a_beginning_a_prompt_is_needed() -> None:
    model = model_of(d_input=LEVELS)
    with pytest.raises(ValueError, match="give a prompt, or make the model with d_input = d_out"):
        model.generate(3)
    assert model.generate(3, prompt=[0]).shape == (1, 3)


@pytest.mark.parametrize("machine", [True, False])
def test_outputs_that_are_no_numbers_are_an_error(machine: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(compiled, "available", lambda *_: machine)
    model = model_of()
    with torch.no_grad():
        model.decoder.bias[1] = math.nan  # type: ignore[union-attr,operator,index]
    with pytest.raises(ValueError, match="the model's outputs are not all finite"):
        model.generate(3)


def test_a_million_symbols_leave_the_state_bounded() -> None:
    model = model_of(d_model=16, d_state=16)
    generation, sizes = Generation(model), []
    for seed in range(4):
        written = generation.write(250_000, generator=seeded(seed))
        assert set(written.unique().tolist()) == set(range(LEVELS))
        layers = generation.state.layers
        assert all(torch.isfinite(layer).all() for layer in layers)
        sizes.append(max(layer.abs().max().item() for layer in layers))
    assert generation.state.samples.item() == 1_000_001
    assert max(sizes) < 2 * sizes[0]
    # the same as a model that has only ever seen the last of it
    fresh = model.compile_step()
    scores = fresh.push_many(written[:, -20_000:])[:, -1]
    torch.testing.assert_close(generation._scores, scores, rtol=0, atol=1e-4)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "counting"
    train_on(counting(length=25), config_of(), out=folder)
    return folder


def test_generate_writes_pictures_and_numbers(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers, again, picture = (tmp_path / name for name in ("a.npy", "b.txt", "c.png"))
    for out in (numbers, again, picture):
        assert main(["generate", str(run_folder), "--count", "3", "--out", str(out)]) == 0
    assert "3 x 25 symbols" in capsys.readouterr().out
    symbols = np.load(numbers)
    assert symbols.shape == (3, 25)
    assert np.array_equal(np.loadtxt(again, dtype=int), symbols)
    pixels = read_png(picture)
    assert pixels.shape == (11, 11)  # two by two pictures of five by five
    assert np.array_equal(pixels[:5, 6:], np.rint(symbols[1] * 255 / 4).reshape(5, 5))


def test_generate_goes_on_from_a_prompt(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("3 4 0 1\n0 1 2 3\n")
    command = ["generate", str(run_folder), "--prompt", str(prompt), "--temperature", "0"]
    assert main([*command, "--given", "3", "--n", "5"]) == 0
    assert capsys.readouterr().out == "3 4 0 1 2 3 4 0\n0 1 2 3 4 0 1 2\n"
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["n"] == 21  # up to the length in training
    assert told["symbols"][0][:8] == [3, 4, 0, 1, 2, 3, 4, 0]
    assert told["symbols_per_second"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--out", "x.wav"], 2, "the symbols of this run are no sound"),
        (["--out", "x.jpg"], 2, "--out must end in one of .wav, .png, .npy, .txt"),
        (["--n", "0"], 2, "--n must be at least 1, got 0"),
        (["--temperature", "-1"], 2, "--temperature must be 0 or more, got -1.0"),
        (["--prompt", "nowhere.npy"], 1, "there is no file nowhere.npy"),
    ],
)
def test_what_cannot_be_generated_is_explained(
    run_folder: Path, arguments: list[str], code: int, told: str, capsys: Any
) -> None:
    assert main(["generate", str(run_folder), *arguments]) == code
    assert told in capsys.readouterr().err


def test_other_commands_know_such_runs(run_folder: Path, capsys: Any, tmp_path: Path) -> None:
    assert main(["info", str(run_folder)]) == 0
    assert "5 symbols to choose the next from" in capsys.readouterr().out.replace("\n", " ")
    np.save(tmp_path / "x.npy", np.zeros(5, dtype=int))
    assert main(["predict", str(run_folder), str(tmp_path / "x.npy")]) == 1
    assert "use 's4d generate'" in capsys.readouterr().err
    assert main(["train", "mnist-pixels", "--model.pooling", "mean"]) == 2
    assert "--model.pooling: to generate, a model needs" in capsys.readouterr().err


def test_sounds_are_written_and_read_as_prompts(tmp_path: Path) -> None:
    signature = Signature(
        *("generation", 257, 256, 100), tokens=True, sample_rate=8000.0, quantization="mu-law"
    )
    symbols = np.random.default_rng(0).integers(256, size=(2, 100))
    write_symbols(tmp_path / "a.wav", symbols, signature)
    samples, rate = read_audio(tmp_path / "a.wav")
    assert (rate, samples.shape) == (8000, (1800, 1))  # with 0.2 s between
    read = read_symbols(tmp_path / "a.wav", signature)[0]
    assert np.array_equal(read[:100], symbols[0])
    assert np.array_equal(read[-100:], symbols[1])
    assert grid(np.zeros((1, 6), dtype=np.uint8), 3, zoom=2).shape == (4, 6)
