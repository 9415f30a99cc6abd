"""Long sequences in pieces: whole ones as ever, states that are carried on, exact resume inside."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from s4d_torch.data.dataset import Batch
from s4d_torch.data.files.sound import write_wav
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.nn.state import ModelState
from s4d_torch.training.batches import Order, Piece, Step, feed
from s4d_torch.training.build import build_model
from s4d_torch.training.distributed import Processes
from s4d_torch.training.evaluation import predict
from s4d_torch.training.loop import Trainer
from s4d_torch.training.run import train_on
from s4d_torch.training.saved.store import MemoryStore
from test_processes import compare, curve, last_weights, options
from test_resume import left_behind
from training_job import Jobs, small_config, small_data

PER_STEP = {"pooling": "none"}
RAGGED: dict[str, Any] = {"kind": "generation", "ragged": True, "length": 30, "sizes": (17, 6, 6)}
TRACKED: dict[str, Any] = {"kind": "tracking", "length": 30, "sizes": (17, 6, 6)}
KINDS = pytest.mark.parametrize("data", [{**RAGGED, "ragged": False}, RAGGED, TRACKED])


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    jobs = Jobs()
    yield jobs
    jobs.close()


def trainer_of(data: dict[str, Any], **training: Any) -> Trainer:
    dataset, training = small_data(**data), {"precision": "float64", **training}
    config = small_config(PER_STEP, training=training)
    model = build_model(config, dataset.signature)
    return Trainer(config, dataset, model, store=MemoryStore(), device=torch.device("cpu"))


# -- the order -------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(1, 99), min_size=1, max_size=60),
    batch_size=st.integers(1, 16),
    size=st.integers(1, 120),
)
def test_an_epoch_has_as_many_steps_as_any_other(
    lengths: list[int], batch_size: int, size: int
) -> None:
    each = np.array(lengths)
    order = Order(len(each), batch_size, 1, 1, each, pieces=-(-each // size), piece_size=size)
    for epoch in (0, 5):
        steps = order.plan(epoch)
        assert len(steps) == order.steps
        read = np.zeros(len(each), dtype=np.int64)
        for step in steps:
            (batch,), piece = step.batches, step.piece
            assert piece is not None
            assert piece.last == (each[batch].max() <= piece.first + size)
            read[batch] += (each[batch] - piece.first).clip(0, size)
        assert read.tolist() == lengths
    if size >= each.max():  # nothing is cut: the batches are those of any training
        ordinary = Order(len(each), batch_size, 1, 1, each).plan(3)
        assert all(
            np.array_equal(a.batches[0], b.batches[0])
            for a, b in zip(order.plan(3), ordinary, strict=True)
        )


# -- gradients and states --------------------------------------------------------------------------


def pieces_of(trainer: Trainer, positions: np.ndarray) -> list[Step]:
    longest = int(trainer.dataset.sample_counts(trainer.dataset.train, positions).max())
    size = trainer.order.piece_size
    count = -(-longest // size)
    return [Step([positions], Piece(i, size, i == count - 1)) for i in range(count)]


def outputs_of(model: Pretrained, batch: Batch, state: ModelState | None) -> torch.Tensor:
    """In double precision, with the gaps between samples where they have any."""
    inputs = batch.inputs.double() if batch.inputs.is_floating_point() else batch.inputs
    rate = 1.0 if batch.gaps is None else batch.gaps.double()
    return model(inputs, state, lengths=batch.lengths, rate=rate)[0]  # type: ignore[no-any-return]


def gradients(trainer: Trainer) -> list[torch.Tensor]:
    return [x.grad.clone() for x in trainer.model.parameters() if x.grad is not None]


@KINDS
def test_without_steps_in_between_pieces_make_up_the_whole(data: dict[str, Any]) -> None:
    """The losses add up, and each gradient is that of its piece alone."""
    trainer, positions = trainer_of(data, tbptt=7), np.arange(5)
    dataset, model = trainer.dataset, trainer.model
    total = torch.zeros((), dtype=torch.float64)
    for (part,), count in feed(dataset, pieces_of(trainer, positions), Processes()):
        state = trainer.carried.before(part)
        assert (state is None) == (part.piece == Piece(0, 7, False))
        assert state is None or not any(x.requires_grad for x in state.layers)
        model.zero_grad()
        total += trainer._backward(part, count)
        outputs = outputs_of(model, part.batch, state)
        loss = trainer.loss_sum(outputs, part.batch.targets) / count
        wanted = torch.autograd.grad(loss, list(model.parameters()))
        for found, each in zip(gradients(trainer), wanted, strict=True):
            torch.testing.assert_close(found, each, rtol=1e-9, atol=1e-12)
        trainer.carried.advance(part, made=True)
    assert trainer.carried.state is None
    whole = dataset.batch(dataset.train, positions)
    outputs = outputs_of(model, whole, None)
    torch.testing.assert_close(total, trainer.loss_sum(outputs, whole.targets).detach())


def test_a_piece_that_is_left_out_leaves_the_states_as_they_were() -> None:
    trainer = trainer_of(RAGGED, tbptt=7)
    (first, second, *_), data = pieces_of(trainer, np.arange(5)), trainer.dataset
    parts = [parts[0] for parts, _ in feed(data, [first, second], Processes())]
    trainer._outputs(trainer.model, parts[0])
    trainer.carried.advance(parts[0], made=False)
    state = trainer.carried.before(parts[1])
    assert state is not None
    assert not any(x.any() for x in (*state.layers, state.total))
    trainer._outputs(trainer.model, parts[1])
    trainer.carried.advance(parts[1], made=True)
    assert trainer.carried.state is not None
    assert trainer.carried.state.layers[0].any()


@KINDS
def test_evaluation_in_pieces_is_that_of_the_whole(data: dict[str, Any]) -> None:
    trainer = trainer_of(data)
    given = (trainer.model, trainer.dataset, trainer.dataset.test)
    whole, wanted = predict(*given, batch_size=5, precision="float64")
    for piece in (1, 7, 29):
        answers, targets = predict(*given, batch_size=5, precision="float64", piece=piece)
        torch.testing.assert_close(answers, whole, rtol=1e-10, atol=1e-12)
        assert torch.equal(targets, wanted)


# -- whole runs ------------------------------------------------------------------------------------


@KINDS
def test_pieces_longer_than_any_sequence_are_ordinary_training(
    jobs: Jobs, tmp_path: Path, data: dict[str, Any]
) -> None:
    job = {"model": {**PER_STEP, "dropout": 0.2}, "data": data}
    for name, training in (("plain", {}), ("pieces", {"tbptt": 30})):
        assert (
            jobs(
                tmp_path / name, training={**training, "epochs": 2, "rate_jitter": 0.2}, **job
            ).code
            == 0
        )
    assert curve(tmp_path / "pieces") == curve(tmp_path / "plain")
    one, other = last_weights(tmp_path / "pieces"), last_weights(tmp_path / "plain")
    assert all(torch.equal(one[name], other[name]) for name in one | other)


@pytest.mark.parametrize("data", [RAGGED, TRACKED])
def test_killed_inside_of_sequences_and_resumed_bit_by_bit(
    jobs: Jobs, tmp_path: Path, data: dict[str, Any]
) -> None:
    job: dict[str, Any] = {
        "model": {**PER_STEP, "dropout": 0.2, "norm": "batch"},
        "training": {"tbptt": 7, "epochs": 2, "ema": 0.9, "rate_jitter": 0.2},
        "data": data,
    }
    assert jobs(tmp_path / "whole", **job).code == 0
    carried = 0
    for step in (2, 9, 19):
        assert jobs(tmp_path / "run", signals=[(step, "SIGKILL")], **job).code == -9
        newest = max((tmp_path / "run/checkpoints").glob("step-*"))
        carried += (newest / "carried.safetensors").exists()
    assert carried >= 2
    assert jobs(tmp_path / "run", **job).code == 0
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


@pytest.mark.parametrize(
    ("processes", "data", "norm"),
    # a linear encoder has a bias, which a batch norm takes away: what is left of it is rounding
    [(2, RAGGED, "batch"), (3, RAGGED, "batch"), (3, TRACKED, "layer")],
)
def test_several_processes_train_on_pieces_as_one(
    jobs: Jobs, tmp_path: Path, processes: int, data: dict[str, Any], norm: str
) -> None:
    """Sequences end early in one and go on in another; the last batch has one sequence."""
    training = options(training={"tbptt": 7, "epochs": 2})
    data = {**data, "sizes": (13, 5, 2)}
    compare(jobs, tmp_path, processes, model={**PER_STEP, "norm": norm}, data=data, **training)


def test_states_go_on_in_another_number_of_processes(jobs: Jobs, tmp_path: Path) -> None:
    job: dict[str, Any] = {"model": PER_STEP, "data": RAGGED}
    job |= options(training={"tbptt": 7, "epochs": 2})
    assert jobs(tmp_path / "whole", **job).code == 0
    assert jobs(tmp_path / "run", signals=[(11, "SIGKILL")], processes=2, **job).code == -9
    assert (tmp_path / "run/checkpoints/step-000000011/carried.safetensors").exists()
    assert jobs(tmp_path / "run", **job).code == 0
    one, other = last_weights(tmp_path / "run"), last_weights(tmp_path / "whole")
    for name in other:
        torch.testing.assert_close(one[name], other[name], rtol=1e-7, atol=1e-9)


def test_shards_train_on_pieces_as_one(jobs: Jobs, tmp_path: Path) -> None:
    training = options(training={"tbptt": 7, "epochs": 1})
    compare(jobs, tmp_path, model=PER_STEP, data=RAGGED, shard=True, **training)


@pytest.mark.parametrize(
    ("data", "changes", "said"),
    [
        ({}, {"model": {}}, "tbptt is for tasks with an answer at each sample"),
        (RAGGED, {"optimizer": {"accumulate": 2}}, "use a larger batch_size instead"),
        (RAGGED, {"bidirectional": True}, "use bidirectional False"),
    ],
)
def test_refused(data: Any, changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    both_ways = changes.pop("bidirectional", False)
    config = small_config(**{"model": PER_STEP, "training": {"tbptt": 5}, **changes})
    config = replace(config, method=config.method.replace(bidirectional=both_ways))
    with pytest.raises(ValueError, match=said):
        train_on(small_data(**data), config, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_refused_options() -> None:
    with pytest.raises(ValueError, match="pack and tbptt exclude each other"):
        small_config(training={"pack": True, "tbptt": 5})
    with pytest.raises(ValueError, match="tbptt must be at least 1, got 0"):
        small_config(training={"tbptt": 0})


# -- as a user does it -----------------------------------------------------------------------------


def write_digits(folder: Path) -> None:
    """A tiny Free Spoken Digit Dataset: tones of unlike length."""
    random = np.random.default_rng(0)
    (folder / "fsdd/recordings").mkdir(parents=True)
    for digit in range(2):
        for take in range(20):
            time_ = np.arange(random.integers(200, 400)) / 8000
            tone = 0.3 * np.sin(2 * np.pi * (300 + 200 * digit) * time_)
            write_wav(folder / f"fsdd/recordings/{digit}_ann_{take}.wav", tone, 8000)


def test_a_command_that_is_killed_inside_of_a_sequence_goes_on(tmp_path: Path) -> None:
    write_digits(tmp_path)
    command = [sys.executable, "-m", "s4d_torch", "train", "fsdd-audio", "--data-dir", tmp_path]
    command += ["--data.join-seconds", "0.08", "--data.levels", "16", "--training.tbptt", "100"]
    command += ["--model.d-model", "4", "--model.d-state", "4", "--model.n-layers", "1"]
    command += ["--epochs", "2", "--checkpoint-minutes", "0", "--no-tensorboard", "--out"]
    quiet: Any = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run([*command, tmp_path / "whole"], **quiet)
    run = tmp_path / "run"
    killed = subprocess.Popen([*command, run], stdout=subprocess.DEVNULL)
    while killed.poll() is None and not (run / "checkpoints/step-000000003").exists():
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    while not (last := max((run / "checkpoints").glob("step-*")) / "carried.safetensors").exists():
        shutil.rmtree(last.parent)  # between two sequences: then from the one before
    assert load_file(last)["layers.0"].any()
    subprocess.run([*command, run], **quiet)
    assert left_behind(run) == left_behind(tmp_path / "whole")
