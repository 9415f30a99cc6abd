"""Streams: chunks of any size, in any company, answer as the whole sequence does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import safe_open, save_file
from torch import Tensor

from s4d_torch import S4D, SequenceModel
from s4d_torch.deploy import Stream, Streams
from s4d_torch.deploy.stream import crossover_of, snapshots
from s4d_torch.deploy.stream import live as stream_module
from s4d_torch.deploy.stream import runner as runner
from s4d_torch.nn.baselines import RecurrentModel

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
LENGTH = 150
D_INPUT, D_OUTPUT = 3, 4

CONFIGURATIONS: list[dict[str, Any]] = [
    {"pooling": "none"},
    {"pooling": "mean", "norm": "batch"},
    {"pooling": "last", "prenorm": False},
    {"pooling": "none", "encoder": "embedding"},
    {"pooling": "mean", "method": "s4"},
    {"pooling": "none", "method": "dss", "softmax_length": 40, "dtype": torch.float64},
    {"pooling": "mean", "init": "real", "dtype": torch.float64},
]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def model_of(seed: int = 0, **options: Any) -> SequenceModel:
    sizes = {"d_input": D_INPUT, "d_output": D_OUTPUT, "d_model": 12, "d_state": 8, "n_layers": 2}
    return SequenceModel(**{**sizes, **options}, generator=seeded(seed)).eval()


def samples(model: SequenceModel, length: int = LENGTH, seed: int = 1) -> Tensor:
    if model.config["encoder"] == "embedding":
        return torch.randint(model.d_input, (length,), generator=seeded(seed))
    dtype = next(model.parameters()).dtype
    return torch.randn(length, model.d_input, generator=seeded(seed), dtype=dtype)


@torch.no_grad()
def offline(model: SequenceModel, u: Tensor, rate: float = 1.0) -> Tensor:
    y: Tensor = model(u[None], rate=rate, return_state=False)[0][0]
    return y


def collected(model: SequenceModel, answers: list[Tensor]) -> Tensor:
    return torch.cat(answers) if model.pooling == "none" else answers[-1]


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    error = (found - expected).abs().max() / expected.abs().max()
    assert error <= TOLERANCE[expected.dtype]


# ---- one stream -------------------------------------------------------------------------------


@pytest.mark.parametrize("crossover", [None, 5, 10**6])
@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
def test_chunks_of_any_size_answer_as_the_whole(
    options: dict[str, Any], crossover: int | None
) -> None:
    model = model_of(**options)
    u = samples(model)
    stream = Stream(model, crossover=crossover)
    sizes = [1, 1, 7, 40, 1, 0, 2, 30, 3, 64, 1]
    chunks = u.split(sizes)
    answers = [stream.push(chunk) for chunk in chunks]
    assert_same(collected(model, answers), offline(model, u))
    assert stream.samples == LENGTH
    if model.pooling != "none":  # the answer so far
        for i in (3, 6):
            assert_same(answers[i], offline(model, u[: sum(sizes[: i + 1])]))


@pytest.mark.parametrize("pooling", ["none", "mean"])
def test_a_large_chunk_is_computed_in_pieces(pooling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(pooling=pooling)
    u, sizes, forward = samples(model, 700), [], SequenceModel.forward

    def spy(self: SequenceModel, u: Tensor, *rest: Any, **options: Any) -> Any:
        sizes.append(u.shape[1])
        return forward(self, u, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "PIECE", 100 * model.d_model)
        patch.setattr(SequenceModel, "forward", spy)
        found = Stream(model, crossover=2).push(u)
    assert sizes == [100] * 7
    assert_same(found, offline(model, u))


def test_small_chunks_step_and_large_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(d_input=1, d_model=1024, n_layers=1, d_state=4)
    calls: list[int] = []

    def spy(self: Any, standings: Any, chunks: Any) -> list[Tensor]:
        calls.extend(chunk.shape[1] for chunk in chunks)
        return original(self, standings, chunks)

    original = runner.Runner._convolve
    monkeypatch.setattr(runner.Runner, "_convolve", spy)
    stream, streams = Stream(model), Streams(model)
    for length in (1, 63, 64, 65):  # 2^16 / 1024 = 64
        stream.push(torch.zeros(length, 1))
    assert calls == [64, 65]
    calls.clear()
    streams.push({i: torch.zeros(32, 1) for i in range(4)})
    assert calls == []  # too short for what moving four states takes
    streams.push({i: torch.zeros(70 + i, 1) for i in range(4)})
    assert calls == [70, 71, 72, 73]


def test_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4d_torch.ssm.compiled.runtime._INSTALLED", False)
    for pooling in ("none", "mean"):
        model = model_of(pooling=pooling)
        u = samples(model)
        stream = Stream(model)
        answers = [stream.push(chunk) for chunk in u.split([1, 1, 50, 1, 97])]
        assert_same(collected(model, answers), offline(model, u))


def test_the_model_may_train_on_while_its_stream_stays_as_it_was() -> None:
    model = model_of(dropout=0.5)
    u = samples(model)
    expected = offline(model, u)
    model.train()
    for crossover in (1, 10**6):
        stream = Stream(model, crossover=crossover)
        first = stream.push(u[:70])
        with torch.no_grad():
            model.encoder.weight.add_(1.0)  # type: ignore[union-attr, operator]
        second = stream.push(u[70:])
        assert_same(second, expected)
        assert not second.requires_grad
        assert not first.equal(second)
        assert model.training
        with torch.no_grad():
            model.encoder.weight.sub_(1.0)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("crossover", [3, 10**6])
def test_another_rate_and_a_rate_that_changes(crossover: int) -> None:
    model = model_of(pooling="none")
    u = samples(model)
    stream = Stream(model, rate=2.0, crossover=crossover)
    parts = [stream.push(chunk) for chunk in u[:60].split(9)]
    stream.rate = 0.5
    parts += [stream.push(chunk) for chunk in u[60:].split(7)]
    with torch.no_grad():
        first, state = model(u[None, :60], rate=2.0)
        second, end = model(u[None, 60:], state, rate=0.5)
    assert_same(torch.cat(parts), torch.cat([first[0], second[0]]))
    for found, expected in zip(stream.state.layers, end.layers, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert stream.rate == 0.5
    with pytest.raises(ValueError, match="rate must be a finite number above 0, got -1"):
        stream.rate = -1.0


def test_only_so_many_rates_are_kept() -> None:
    model = model_of()
    stream = Stream(model)
    for rate in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.0):
        stream.rate = rate
        stream.push(samples(model, 2))
    assert len(stream._runner._steps) == runner.RATES


def test_reset_begins_again() -> None:
    model = model_of()
    u = samples(model)
    stream = Stream(model, rate=2.0)
    first = stream.push(u)
    stream.reset()
    assert (stream.samples, stream.rate) == (0, 2.0)
    assert repr(stream) == "Stream(samples=0, rate=2)"
    assert stream.push(u).equal(first)


def test_the_state_goes_on_in_the_model() -> None:
    model = model_of()
    u = samples(model)
    stream = Stream(model)
    stream.push(u[:90])
    stream.state.layers[0].zero_()  # a copy
    with torch.no_grad():
        y, _ = model(u[None, 90:], stream.state)
    assert_same(y[0], offline(model, u))


def test_arrays_and_lists_are_answered_by_arrays() -> None:
    model = model_of(d_input=1, pooling="none")
    u = samples(model, 40)
    stream = Stream(model)
    plain = u[:, 0].double().numpy()
    plain.flags.writeable = False
    answers = [stream.push(plain[:7]), stream.push(plain[7:8].tolist()), stream.push(plain[8:])]
    assert all(isinstance(y, np.ndarray) for y in answers)
    assert_same(torch.from_numpy(np.concatenate(answers)), offline(model, u))
    assert stream.push([]).shape == (0, D_OUTPUT)
    tokens = model_of(encoder="embedding")
    found = Stream(tokens).push([0, 1, 2, 1])
    assert_same(torch.from_numpy(found), offline(tokens, torch.tensor([0, 1, 2, 1])))


def test_an_empty_chunk_changes_nothing() -> None:
    model = model_of()
    stream = Stream(model)
    with pytest.raises(ValueError, match="nothing came before it; push a sample first"):
        stream.push([])
    y = stream.push(samples(model))
    assert stream.push(torch.zeros(0, D_INPUT)).equal(y)
    assert stream.samples == LENGTH


@pytest.mark.parametrize("crossover", [2, 10**6])
def test_an_answer_is_the_callers_own(crossover: int) -> None:
    model = model_of()
    stream = Stream(model, crossover=crossover)
    y = stream.push(samples(model, 9))
    kept = y.clone()
    stream.push(samples(model, 9, seed=2))
    assert y.equal(kept)
    y = stream.push([])
    y[:] = 0
    assert stream.push([]).any()


# ---- what is refused --------------------------------------------------------------------------


def test_models_that_cannot_stream_are_refused() -> None:
    with pytest.raises(ValueError, match=r"looks ahead.*bidirectional=False"):
        Stream(model_of(bidirectional=True))
    with pytest.raises(ValueError, match="towers=2 reads pairs"):
        Streams(model_of(towers=2))
    with pytest.raises(TypeError, match="RecurrentModel, which answers whole sequences only"):
        Stream(RecurrentModel(3, 4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"needs a SequenceModel.*got S4D$"):
        Stream(S4D(4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="crossover must be at least 1, got 0"):
        Stream(model_of(), crossover=0)


@pytest.mark.parametrize(
    ("chunk", "message"),
    [
        (torch.zeros(2, 5, 3), r"must be \(length, 3\), got \(2, 5, 3\); each stream has its own"),
        (torch.zeros(5), r"must be \(length, 3\), got \(5,\)"),
        (torch.zeros(5, 2), r"d_input=3, got \(1, 5, 2\)"),
        (torch.zeros(5, 3, dtype=torch.float64), r"u is torch.float64"),
        (torch.zeros(5, 3).to_sparse(), r"the chunk must be dense, got torch.sparse_coo"),
        (np.zeros((5, 3), np.int16), r"must be real floating point, got torch.int16"),
        ([["a", "b", "c"]], "a chunk must hold numbers, got list"),
        (torch.full((5, 3), torch.nan), "sample 0 of the chunk, channel 0, is nan, and 15 of its"),
        ([[0.0] * 3, [0.0, 0.0, -np.inf]], "sample 1 of the chunk, channel 2, is -inf, and 1 of"),
        ([[0.0, 1e300, 0.0]], "sample 0 of the chunk, channel 1, is inf"),  # in float32
        ([[0.0, -3e38, 0.0]], "sample 0 of the chunk, channel 1, is -3e"),  # its square is too
    ],
)
def test_bad_chunks_are_refused_and_change_nothing(chunk: Any, message: str) -> None:
    model = model_of()
    u = samples(model)
    stream = Stream(model)
    stream.push(u[:20])
    with pytest.raises((TypeError, ValueError), match=message):
        stream.push(chunk)
    assert_same(stream.push(u[20:]), offline(model, u))


@pytest.mark.parametrize("crossover", [1, None])
@pytest.mark.parametrize("length", [1, 30])
def test_numbers_that_are_none_leave_no_trace(
    crossover: int | None, length: int, tmp_path: Path
) -> None:
    model = model_of(pooling="none")
    u = samples(model)
    stream = Stream(model, rate=2.0, crossover=crossover)
    answers = [stream.push(u[:20])]
    bad = u[:length].clone()
    bad[-1, 1] = torch.nan
    for chunk in (bad, bad.numpy(), bad.nan_to_num(torch.inf)):
        with pytest.raises(ValueError, match=f"sample {length - 1} of the chunk, channel 1, is"):
            stream.push(chunk)
    assert stream.samples == 20
    stream.snapshot(tmp_path / "file")
    stream.restore(tmp_path / "file")
    answers.append(stream.push(u[20:]))
    assert_same(torch.cat(answers), offline(model, u, rate=2.0))


def test_of_many_streams_none_takes_a_number_that_is_none() -> None:
    model = model_of()
    u = samples(model)
    streams = Streams(model)
    streams.push({"a": u[:5], "b": u[:5]})
    with pytest.raises(ValueError, match="stream 'b': sample 5 of the chunk, channel 0, is nan"):
        streams.push({"a": u[5:], "b": torch.cat([u[5:10], torch.full((1, 3), torch.nan)])})
    assert_same(streams.push({"a": u[5:]})["a"], offline(model, u))


def test_who_wants_numbers_that_are_none_gets_them(tmp_path: Path) -> None:
    model = model_of(check_finite=True)
    stream = Stream(model, check_finite=False)
    assert stream.push(torch.full((5, 3), torch.nan)).isnan().all()
    stream.snapshot(tmp_path / "file")
    with pytest.raises(ValueError, match=r"layer.0 holds NaN or infinity.*from before it came"):
        Stream(model).restore(tmp_path / "file")
    with pytest.raises(TypeError, match="check_finite must be True or False, got 'no'"):
        Stream(model, check_finite="no")  # type: ignore[arg-type]


def test_a_token_that_is_none_changes_nothing() -> None:
    model = model_of(encoder="embedding")
    u = samples(model)
    stream = Stream(model)
    stream.push(u[:20])
    with pytest.raises(ValueError, match="tokens from 0 to 2"):
        stream.push(torch.tensor([0, 1, 3]))
    assert_same(stream.push(u[20:]), offline(model, u))


# ---- many streams -----------------------------------------------------------------------------


@pytest.mark.parametrize("crossover", [None, 4, 10**6])
@pytest.mark.parametrize("options", CONFIGURATIONS[:5], ids=str)
def test_streams_come_and_go_and_do_not_mind_each_other(
    options: dict[str, Any], crossover: int | None
) -> None:
    model = model_of(**options)
    random = np.random.default_rng(0)
    streams = Streams(model, crossover=crossover)
    inputs = {name: samples(model, seed=name) for name in range(6)}
    places, answers = dict.fromkeys(inputs, 0), {name: [] for name in inputs}
    done = 0
    while done < len(inputs):
        waiting = [name for name in inputs if places[name] < LENGTH and name < 3 + done]
        chosen = [name for name in waiting if random.random() < 0.7]
        sizes = {name: int(random.choice([0, 1, 5, 30, 40, 60])) for name in chosen}
        sizes = {name: size or int(not answers[name]) for name, size in sizes.items()}
        chunks = {n: inputs[n][places[n] : places[n] + size] for n, size in sizes.items()}
        for name, y in streams.push(chunks).items():
            answers[name].append(y)
            places[name] += len(chunks[name])
            if places[name] == LENGTH:
                assert streams.samples(name) == LENGTH
                streams.leave(name)
                done += 1
    assert len(streams) == 0
    for name, u in inputs.items():
        assert_same(collected(model, answers[name]), offline(model, u))


def test_streams_of_several_rates() -> None:
    model = model_of()
    u, v = samples(model), samples(model, seed=2)
    streams = Streams(model, crossover=10)
    streams.join("slow", rate=3.0)
    streams.push({"slow": u[:70], "plain": v[:70]})
    found = streams.push({"slow": u[70:], "plain": v[70:]})
    assert_same(found["slow"], offline(model, u, rate=3.0))
    assert_same(found["plain"], offline(model, v))
    streams.set_rate("plain", 2.0)
    with torch.no_grad():
        expected, _ = model(u[None], model(v[None])[1], rate=2.0)
    assert_same(streams.push({"plain": u})["plain"], expected[0])


def test_members_of_streams() -> None:
    model = model_of()
    streams = Streams(model)
    assert streams.push({}) == {}
    streams.push({"a": samples(model, 3), "b": samples(model, 4)})
    streams.join("c")
    assert list(streams) == ["a", "b", "c"]
    assert ("a" in streams, "d" in streams, len(streams)) == (True, False, 3)
    assert repr(streams) == "Streams('a', 'b', 'c')"
    assert streams.samples("b") == 4
    with pytest.raises(ValueError, match="there is a stream 'a' already"):
        streams.join("a")
    with pytest.raises(KeyError, match="there is no stream 'd'; there are 'a', 'b', 'c'"):
        streams.leave("d")
    with pytest.raises(TypeError, match="by the ids of their streams, got Tensor"):
        streams.push(samples(model))  # type: ignore[arg-type]


def test_one_bad_chunk_stops_all_before_any_is_used() -> None:
    model = model_of()
    streams = Streams(model)
    u = samples(model)
    streams.push({"a": u[:10]})
    with pytest.raises(ValueError, match="stream 'b': a chunk must be"):
        streams.push({"a": u[10:], "b": torch.zeros(5)})
    with pytest.raises(ValueError, match="stream 'c': its first chunk is empty"):
        streams.push({"a": u[10:], "c": []})
    assert "b" not in streams
    assert_same(streams.push({"a": u[10:]})["a"], offline(model, u))


# ---- snapshots --------------------------------------------------------------------------------


@pytest.mark.parametrize("crossover", [2, 10**6])
@pytest.mark.parametrize("options", CONFIGURATIONS[:5], ids=str)
def test_a_snapshot_goes_on_in_another_stream(
    options: dict[str, Any], crossover: int, tmp_path: Path
) -> None:
    model = model_of(**options)
    u, file = samples(model), tmp_path / "stream.safetensors"
    stream = Stream(model, rate=2.0, crossover=crossover)
    before = stream.push(u[:77])
    stream.snapshot(file)
    other = Stream(model_of(**{**options, "dropout": 0.3}))  # dropout is nothing to an answer
    other.restore(file)
    assert (other.samples, other.rate) == (77, 2.0)
    if model.pooling != "none":
        assert other.push(u[:0]).equal(before)
    after = other.push(u[77:])
    assert_same(collected(model, [before, after]), offline(model, u, rate=2.0))
    assert_same(stream.push(u[77:]), after)  # and the first one was not disturbed


def test_a_snapshot_before_the_first_sample(tmp_path: Path) -> None:
    model = model_of()
    Stream(model).snapshot(tmp_path / "fresh")
    stream = Stream(model)
    stream.push(samples(model, 5))
    stream.restore(tmp_path / "fresh")
    with pytest.raises(ValueError, match="nothing came before"):
        stream.push([])
    assert_same(stream.push(samples(model)), offline(model, samples(model)))


def test_streams_move_from_one_place_to_another(tmp_path: Path) -> None:
    model = model_of()
    inputs: dict[Any, Tensor] = {name: samples(model, seed=i) for i, name in enumerate(["a", 7])}
    here, there = Streams(model), Streams(model)
    here.push({name: u[:50] for name, u in inputs.items()})
    here.snapshot(tmp_path / "all")
    here.snapshot(tmp_path / "one", ["a"])
    assert there.restore(tmp_path / "all") == ["a", 7]
    with pytest.raises(ValueError, match="there are streams 'a' already"):
        there.restore(tmp_path / "one")
    found = there.push({name: u[50:] for name, u in inputs.items()})
    for name, u in inputs.items():
        assert_same(found[name], offline(model, u))
    single = Stream(model)
    single.restore(tmp_path / "one")
    assert single.samples == 50
    with pytest.raises(ValueError, match="holds 2 streams; use Streams"):
        single.restore(tmp_path / "all")
    here.push({("x", 1): samples(model, 3)})
    with pytest.raises(TypeError, match="must be a string or an integer"):
        here.snapshot(tmp_path / "none")
    with pytest.raises(ValueError, match="no stream to write"):
        Streams(model).snapshot(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_snapshots_of_other_models_are_refused(tmp_path: Path) -> None:
    model = model_of()
    stream = Stream(model)
    y = stream.push(samples(model, 5))
    stream.snapshot(tmp_path / "file")
    other = Stream(model_of(d_model=8, discretization="zoh"))
    with pytest.raises(ValueError, match=r"d_model 12 instead of 8, method.discretization 'bil"):
        other.restore(tmp_path / "file")
    other = Stream(model_of(seed=1))
    own = other.push(samples(model, 5))
    with pytest.raises(ValueError, match="a model with other weights"):
        other.restore(tmp_path / "file")
    assert other.push([]).tolist() == own.tolist() != y.tolist()
    with pytest.raises(ValueError, match="other weights"):
        Stream(model_of().double()).restore(tmp_path / "file")


def _rewrite(file: Path, change: Callable[[dict[str, str], dict[str, Tensor]], None]) -> None:
    """Change a snapshot, with the digest of one that was written so."""
    with safe_open(file, "pt") as old:
        metadata = dict(old.metadata())
        tensors = {name: old.get_tensor(name) for name in old.keys()}  # noqa: SIM118
    change(metadata, tensors)
    ordered = dict(sorted(tensors.items()))
    metadata["sha256"] = snapshots.digest(ordered, metadata.get("description", ""))
    save_file(tensors, file, metadata)


def test_a_flipped_bit_of_a_snapshot_is_found(tmp_path: Path) -> None:
    stream = Stream(model_of())
    stream.push(samples(model_of(), 5))
    stream.snapshot(tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    for at in (*range(len(content) - 400, len(content), 37), 900):
        flipped = bytearray(content)
        flipped[at] ^= 1
        (tmp_path / "file").write_bytes(flipped)
        with pytest.raises(ValueError, match=r"'.*file' is"):
            stream.restore(tmp_path / "file")
    assert stream.samples == 5


def test_damaged_snapshots_are_refused(tmp_path: Path) -> None:
    stream = Stream(model_of())
    stream.push(samples(model_of(), 5))

    def refused(message: str, change: Callable[[dict[str, str], dict[str, Tensor]], None]) -> None:
        stream.snapshot(tmp_path / "file")
        _rewrite(tmp_path / "file", change)
        with pytest.raises(ValueError, match=message):
            stream.restore(tmp_path / "file")

    refused("not the snapshot of a stream: its format is 'pt'", lambda m, _: m.update(format="pt"))
    refused("has version '1'.*reads 3", lambda m, _: m.update(version="1"))
    refused("does not say whose", lambda m, _: m.pop("description") and None)
    refused("layer.1 is missing", lambda _, x: x.pop("layer.1") is None or None)
    refused(
        r"total is torch.float32 \(1, 12\), expected torch.float64",
        lambda _, x: x.update(total=x["total"].float()),
    )

    def hide(metadata: dict[str, str], _: dict[str, Tensor]) -> None:
        described = json.loads(metadata["description"])
        del described["streams"][0]["rate"]
        metadata["description"] = json.dumps(described)

    def endless(metadata: dict[str, str], _: dict[str, Tensor]) -> None:
        metadata["description"] = metadata["description"].replace('"rate": 1.0', '"rate": Infinity')

    refused("does not say which streams", hide)
    refused("does not say which streams", endless)
    refused("does not say whose", lambda m, _: m.update(description="[]"))
    refused("does not say whose", lambda m, _: m.update(description='{"config": 3}'))
    refused("answer holds NaN", lambda _, x: x["answer"].fill_(torch.inf) is None or None)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        stream.restore(tmp_path / "absent")
    (tmp_path / "short").write_bytes((tmp_path / "file").read_bytes()[:50])
    with pytest.raises(ValueError, match="truncated or not a safetensors file"):
        stream.restore(tmp_path / "short")
    assert stream.samples == 5


# ---- the compiled step below ------------------------------------------------------------------


def test_forks_share_parameters_and_nothing_else() -> None:
    model = model_of(pooling="none")
    u, v = samples(model, 40)[None], samples(model, 40, seed=2)[None]
    step = model.compile_step()
    step.push_many(v)
    fork = step.fork()
    first = fork.push_many(u[:, :20])
    step.push_many(v)
    assert_same(torch.cat([first, fork.push_many(u[:, 20:])], 1)[0], offline(model, u[0]))
    assert fork._stream._tables is step._stream._tables  # type: ignore[union-attr]


def test_many_samples_are_all_checked() -> None:
    model = model_of(check_finite=True)
    u = samples(model, 10)[None]
    u[0, 7, 1] = torch.nan
    with pytest.raises(ValueError, match=r"the first at \(0, 7, 1\)"):
        model.compile_step().push_many(u)


# ---- long streams -----------------------------------------------------------------------------


def test_a_long_stream_keeps_its_size() -> None:
    model = model_of(d_input=1, d_model=4, d_state=4, n_layers=1, pooling="none")
    stream = Stream(model)
    u = torch.sin(torch.arange(20000) / 7)
    parts = [stream.push(chunk) for chunk in u.split(997)]
    assert_same(torch.cat(parts), offline(model, u[:, None]))
    position = stream._position
    assert position.answer is None
    sizes = sum(layer.numel() for layer in stream.state.layers)
    assert sizes == model.initial_state(1).layers[0].numel()


@pytest.mark.parametrize("options", [{}, {"encoder": "embedding"}], ids=str)
def test_a_crossover_can_be_measured(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(**options)
    costs = {"steps": 1.0, "sequence": 100.0}  # for each sample, and for each call

    def cost(stream: Stream, chunk: Tensor, repeats: int) -> float:
        stream.push(chunk)
        steps = stream._runner.enough > len(chunk)
        return costs["steps"] * len(chunk) if steps else costs["sequence"]

    with monkeypatch.context() as patch:
        patch.setattr(stream_module, "push_seconds", cost)
        assert crossover_of(model) == 128
    found = stream_module.push_seconds(Stream(model), samples(model, 3), repeats=1)
    assert 0 < found < 60
    threads = torch.get_num_threads()
    assert Stream(model, crossover=crossover_of(model, repeats=1)).samples == 0
    assert torch.get_num_threads() == threads
