"""The training loop: what it computes, when it stops, and what it leaves alone."""

import math
import random
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from s4d_torch.data.dataset import Array, Batch, Dataset, Kind, Split
from s4d_torch.nn.model import SequenceModel
from s4d_torch.training import (
    DivergenceError,
    Progress,
    Reporter,
    Run,
    default_config,
    loop,
    train,
    train_on,
)
from s4d_torch.training.batches import Step, feed
from s4d_torch.training.build import build_model
from s4d_torch.training.distributed import Processes
from s4d_torch.training.loop import Trainer
from s4d_torch.training.run import predict_sequences
from s4d_torch.training.saved.store import MemoryStore
from training_job import small_config, small_data

CPU = torch.device("cpu")


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def losses(run: Run) -> list[float]:
    return [float(row["train_loss"]) for row in run.rows]


class Diary(Reporter):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.steps: list[Progress] = []
        self.rows: list[Mapping[str, Any]] = []
        self.ends: list[str] = []

    def step(self, now: Progress) -> None:
        self.steps.append(now)

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.ends.append("end")

    def close(self) -> None:
        self.ends.append("close")


# -- what is computed ------------------------------------------------------------------------------


def test_it_learns_reports_every_step_and_keeps_the_best() -> None:
    diary, data = Diary(), small_data(sizes=(80, 40, 40))
    config = small_config(training={"epochs": 4, "batch_size": 16}, optimizer={"lr": 0.05})
    run = train_on(data, config, device="cpu", reporter=diary)
    assert run.summary["test"]["accuracy"] > 0.9
    assert losses(run)[-1] < 0.7 * losses(run)[0]
    assert [now.step for now in diary.steps] == list(range(1, 21))
    assert (diary.steps[-1].steps, diary.steps[-1].epoch, diary.steps[-1].epochs) == (20, 4, 4)
    assert [now.score is None for now in diary.steps] == [True] * 4 + [False] * 16
    assert diary.rows == run.rows
    assert diary.ends == ["end", "close"]
    scores = [row["validation_accuracy"] for row in run.rows]
    assert run.summary["validation"] == max(scores)
    ranks = [(row["validation_accuracy"], -row["validation_loss"]) for row in run.rows]
    assert run.summary["best_epoch"] == 1 + ranks.index(max(ranks))
    assert run.evaluate(data, split="validation").scores["accuracy"] == max(scores)


def test_the_time_left_forgets_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """In it much is loaded and compiled: a minute here, where the others take a second."""
    diary = Diary()

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    clock, step = Clock(), Trainer._step

    def slow(self: Trainer, parts: Any, count: int) -> None:
        step(self, parts, count)
        clock.now += 60.0 if self.state.step == 0 else 1.0

    monkeypatch.setattr(Trainer, "_step", slow)
    monkeypatch.setattr(loop, "time", clock)
    train_on(small_data(), small_config(training={"epochs": 2}), device="cpu", reporter=diary)
    assert [now.seconds_left for now in diary.steps][1:] == [float(n) for n in range(14, -1, -1)]


def test_the_seed_decides_everything() -> None:
    def trained(seed: int) -> torch.Tensor:
        config = small_config(model={"dropout": 0.3}, training={"seed": seed, "epochs": 1})
        return weights(train_on(small_data(), config, device="cpu").model)

    first = trained(0)
    torch.rand(5)
    assert torch.equal(trained(0), first)
    assert not torch.equal(trained(1), first)


def test_every_step_may_have_a_sampling_rate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[bool, list[float]] = {True: [], False: []}  # in training, and judging
    forward = SequenceModel.forward

    def noticed(model: SequenceModel, *args: Any, **options: Any) -> Any:
        seen[model.training].append(options["rate"])
        return forward(model, *args, **options)

    monkeypatch.setattr(SequenceModel, "forward", noticed)
    train_on(small_data(), small_config(training={"rate_jitter": 0.5}), device="cpu")
    rates = np.log(seen[True]) / np.log(1.5)
    assert len(set(seen[True])) == 24
    assert -1 <= rates.min() < -0.5 < 0.5 < rates.max() <= 1
    assert set(seen[False]) == {1.0}


def test_a_sampling_rate_of_its_own_needs_a_dt() -> None:
    config = small_config(training={"rate_jitter": 0.5}, model={"architecture": "lstm"})
    with pytest.raises(ValueError, match=r"rate_jitter .* changes dt.*'lstm' has none"):
        train_on(small_data(), config, device="cpu")


def test_what_counts_events_per_time_is_not_jittered() -> None:
    data = small_data(kind="regression")
    data = replace(data, signature=replace(data.signature, per_time=True))
    with pytest.raises(ValueError, match="counts events per time"):
        train_on(data, small_config(training={"rate_jitter": 0.5}), device="cpu")


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "regression"},
        {"ragged": True},
        {"tokens": True},
        {"tokens": True, "ragged": True, "towers": 2},
        {"towers": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_every_kind_of_data_is_learned(options: dict[str, Any], norm: str) -> None:
    config = small_config(
        model={"norm": norm}, optimizer={"lr": 0.02}, training={"batch_size": 8, "epochs": 6}
    )
    run = train_on(small_data(sizes=(64, 16, 16), **options), config, device="cpu")
    assert losses(run)[-1] < 0.8 * losses(run)[0]


def test_a_regression_predicts_in_the_unit_of_its_targets() -> None:
    data = small_data(sizes=(64, 16, 16), kind="regression")
    run = train_on(data, small_config(training={"epochs": 2}), device="cpu")
    assert losses(run)[0] < 2  # the spread of the targets is 1, not 30
    sequences = [data.test.inputs[0][i] for i in data.test.index]
    found = predict_sequences(run, sequences)[:, 0].numpy()
    errors = found - data.test.labels()
    assert run.summary["metric"] == "rmse"
    assert run.summary["test"]["rmse"] == pytest.approx(math.sqrt((errors**2).mean()), rel=1e-5)
    assert 5 < run.summary["test"]["rmse"] < 60


def test_the_loss_is_the_mean_over_an_epoch_with_smoothed_labels() -> None:
    data = small_data()
    config = small_config(
        optimizer={"lr": 0.0}, training={"epochs": 1, "label_smoothing": 0.2, "batch_size": 7}
    )
    run = train_on(data, config, device="cpu")
    model = build_model(config, data.signature)
    batch = data.batch(data.train, np.arange(40))
    outputs = model(batch.inputs, return_state=False)[0].double()
    expected = cross_entropy(outputs, batch.targets, label_smoothing=0.2).item()
    assert losses(run)[0] == pytest.approx(expected, rel=1e-5)
    assert run.rows[0]["validation_loss"] == pytest.approx(
        train_on(data, small_config(optimizer={"lr": 0.0}), device="cpu").rows[0]["validation_loss"]
    )


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_accumulated_batches_are_one_large_batch(kind: Kind) -> None:
    data = small_data(sizes=(41, 12, 12), kind=kind)

    def trained(batch_size: int, accumulate: int) -> Run:
        training = {"batch_size": batch_size, "precision": "float64"}
        config = small_config(training=training, optimizer={"accumulate": accumulate, "clip": 0.1})
        return train_on(data, config, device="cpu")

    one, other = trained(8, 1), trained(4, 2)
    assert one.summary["steps"] == other.summary["steps"] == 18
    torch.testing.assert_close(weights(one.model), weights(other.model), rtol=1e-9, atol=1e-11)
    assert losses(one) == pytest.approx(losses(other), rel=1e-12)


def test_gradients_are_clipped_to_a_norm_without_turning() -> None:
    def gradient(clip: float | None) -> torch.Tensor:
        data, config = small_data(), small_config(optimizer={"clip": clip})
        model = build_model(config, data.signature)
        trainer = Trainer(config, data, model, store=MemoryStore(), device=CPU)
        trainer._step(*next(feed(data, trainer.order.plan(0), Processes())))
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    free = gradient(None)
    norm = free.norm()
    torch.testing.assert_close(gradient(0.5 * float(norm)), 0.5 * free)
    assert torch.equal(gradient(2 * float(norm)), free)


@pytest.mark.parametrize("precision", ["bfloat16", "float64"])
def test_precisions(precision: str) -> None:
    run = train_on(small_data(), small_config(training={"precision": precision}), device="cpu")
    plain = train_on(small_data(), small_config(), device="cpu")
    dtype, rounding = (torch.float64, 1e-5) if precision == "float64" else (torch.float32, 0.02)
    assert {p.dtype for p in run.model.parameters()} == {dtype}
    assert losses(run) == pytest.approx(losses(plain), rel=rounding)
    assert losses(run) != losses(plain)


def test_the_average_is_what_is_judged_and_kept() -> None:
    training = {"epochs": 1, "batch_size": 40, "precision": "float64"}  # one step
    plain = train_on(small_data(), small_config(training=training), device="cpu")
    averaged = small_config(training={**training, "ema": 0.999})
    start = weights(build_model(averaged, small_data().signature))
    expected = 2 / 11 * start + 9 / 11 * weights(plain.model)
    run = train_on(small_data(), averaged, device="cpu")
    torch.testing.assert_close(weights(run.model), expected)


def test_it_stops_when_nothing_gets_better() -> None:
    config = small_config(optimizer={"lr": 0.0}, training={"patience": 2, "epochs": 9})
    run = train_on(small_data(), config, device="cpu")
    assert len(run.rows) == 3
    assert (run.summary["best_epoch"], run.summary["steps"]) == (1, 24)


def test_parts_of_the_data_are_enough() -> None:
    small = {"n_layers": 1, "d_model": 4, "d_state": 4}
    base = default_config("digits")
    config = replace(
        base,
        model=replace(base.model, **small),
        training=replace(base.training, epochs=2, batch_size=8, train_size=20, eval_size=7),
    )
    run = train("digits", config, device="cpu")
    assert run.summary["steps"] == 6
    assert run.summary["test"]["accuracy"] * 7 == pytest.approx(
        round(run.summary["test"]["accuracy"] * 7)
    )


def test_an_empty_split_is_refused_before_any_training() -> None:
    with pytest.raises(ValueError, match="nothing to train on: the validation split is empty"):
        train_on(small_data(sizes=(10, 0, 10)), small_config(), device="cpu")


# -- the caller's world ----------------------------------------------------------------------------


@contextmanager
def untouched() -> Iterator[None]:
    def world() -> list[Any]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        readers = [x for x in threading.enumerate() if x.name.startswith("s4d-torch-data")]
        return [
            torch.get_rng_state().tolist(),
            str(np.random.get_state()),  # noqa: NPY002
            random.getstate(),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
            [signal.getsignal(number) for number in numbers],
            readers,
        ]

    before = world()
    yield
    assert world() == before


@pytest.mark.parametrize("architecture", ["ssm", "lstm"])
def test_a_run_leaves_random_numbers_threads_and_signals_alone(
    architecture: str, tmp_path: Path
) -> None:
    config = small_config(model={"dropout": 0.1, "architecture": architecture})
    for _ in range(2):  # trained, then only read
        with untouched():
            train_on(small_data(), config, out=tmp_path, device="cpu")


def test_a_run_that_fails_leaves_them_alone_too() -> None:
    with untouched(), pytest.raises(DivergenceError):
        train_on(small_data(bad=[11]), small_config(), device="cpu")


def test_a_run_in_another_thread_hears_no_signals_but_works() -> None:
    runs = []
    with untouched():
        thread = threading.Thread(
            target=lambda: runs.append(train_on(small_data(), small_config(), device="cpu"))
        )
        thread.start()
        thread.join()
    assert runs[0].summary["steps"] == 24


# -- reading ahead ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched(Dataset):
    """Tells of each training batch that is read; the ``broken``-th cannot be."""

    started: Any = None
    broken: int | None = None

    def batch(self, split: Split, positions: Array) -> Batch:
        if split is self.train:
            self.started.release()
            if self.broken is not None and self.started._value > self.broken:
                raise OSError("the file has gone")
        return super().batch(split, positions)


def watched(**options: Any) -> Watched:
    data = small_data()
    started = threading.Semaphore(0)
    return Watched(
        data.train, data.validation, data.test, data.signature, started=started, **options
    )


def test_the_next_batch_is_read_while_this_one_is_computed() -> None:
    data = watched()
    batches = feed(data, [Step([np.arange(4)]), Step([np.arange(4, 8)])], Processes())
    parts, count = next(batches)
    assert (len(parts), count) == (1, 4)
    for _ in range(2):  # the second without being asked for
        assert data.started.acquire(timeout=20)
    batches.close()


@pytest.mark.parametrize("broken", [0, 3])
def test_what_goes_wrong_in_reading_reaches_the_caller(broken: int) -> None:
    with untouched(), pytest.raises(OSError, match="the file has gone") as stop:
        train_on(watched(broken=broken), small_config(), device="cpu")
    assert stop.tb is not None  # the frames are still alive, the thread is not
