"""Runs that go on otherwise than they began: more epochs, another rate, another run's weights."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch.data.dataset import Dataset
from s4d_torch.training import Config, DivergenceError, Reporter, Run, train_on
from s4d_torch.training.batches import Order
from s4d_torch.training.config import FEWEST_EPOCHS, TrainingConfig
from s4d_torch.training.reports.advice import advice, falling
from s4d_torch.training.run import with_known_epochs
from s4d_torch.training.saved.run_folder import OtherConfigError, RunFolder
from s4d_torch.training.schedule import factor
from training_job import small_config, small_data

STEPS = 8  # of an epoch of the small data


class Told(Reporter):
    """Keeps the messages of a run; stops it after an epoch if asked to."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.messages: list[str] = []
        self.stop_after = stop_after

    def message(self, text: str) -> None:
        self.messages.append(text)

    def epoch(self, row: Mapping[str, Any]) -> None:
        if row["epoch"] == self.stop_after:
            raise KeyboardInterrupt


def config_of(epochs: int | str, **changes: Any) -> Config:
    return small_config(training={"epochs": epochs, **changes})


def test_epochs_of_a_finished_run_can_be_raised(tmp_path: Path) -> None:
    short = train_on(small_data(), config_of(2), out=tmp_path, device="cpu")
    told = Told()
    run = train_on(small_data(), config_of(4), out=tmp_path, device="cpu", reporter=told)
    assert [int(row["epoch"]) for row in run.rows] == [1, 2, 3, 4]
    assert run.summary["steps"] == 4 * STEPS
    # the schedule is that of the longer run, from where the shorter one ended
    optimizer = run.config.optimizer
    for row in run.rows[2:]:
        step = int(row["step"]) - 1
        assert float(row["lr"]) == pytest.approx(
            optimizer.lr * factor(step, 4 * STEPS, optimizer), rel=1e-6
        )
    assert any("epochs 2 -> 4" in each and "cosine schedule" in each for each in told.messages)
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["training"]["epochs"] == 4
    (change,) = written["changed"]
    assert (change["after_step"], change["options"]) == (
        2 * STEPS,
        ["training.epochs: 2 -> 4"],
    )
    assert change["test"] == pytest.approx(short.summary["test"])
    assert Run.load(tmp_path).config == config_of(4)
    again = Told()
    train_on(small_data(), config_of(4), out=tmp_path, device="cpu", reporter=again)
    assert "is finished" in again.messages[0]


def test_a_raised_run_that_is_broken_off_goes_on_bit_by_bit(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        train_on(small_data(), config_of(2), out=folder, device="cpu")
    train_on(small_data(), config_of(4), out=whole, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train_on(small_data(), config_of(4), out=broken, device="cpu", reporter=Told(3))
    assert RunFolder(broken).summary() is None
    train_on(small_data(), config_of(4), out=broken, device="cpu")
    for name in ("best/model.safetensors", f"checkpoints/step-{4 * STEPS:09}/model.safetensors"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    assert (whole / "run.json").read_bytes() == (broken / "run.json").read_bytes()


def test_killed_while_it_is_raised_it_is_one_run_or_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_on(small_data(), config_of(2), out=tmp_path, device="cpu")
    with monkeypatch.context() as patch:

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(RunFolder, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            train_on(small_data(), config_of(3), out=tmp_path, device="cpu")
    short = train_on(small_data(), config_of(2), out=tmp_path, device="cpu")
    assert short.summary["steps"] == 2 * STEPS
    assert train_on(small_data(), config_of(3), out=tmp_path, device="cpu").summary["steps"] == 24


def test_epochs_cannot_be_lowered(tmp_path: Path) -> None:
    train_on(small_data(), config_of(2), out=tmp_path, device="cpu")
    with pytest.raises(OtherConfigError, match=r"2 -> 1 \(epochs can be raised, not lowered\)"):
        train_on(small_data(), config_of(1), out=tmp_path, device="cpu")


# -- as many epochs as the steps take --------------------------------------------------------------


def test_steps_decide_the_epochs_and_the_run_remembers_them(tmp_path: Path) -> None:
    data, config = small_data(), config_of("auto", steps=21 * STEPS)
    assert with_known_epochs(config, data, None).training.epochs == 21
    few = config_of("auto", steps=1)
    assert with_known_epochs(few, data, None).training.epochs == FEWEST_EPOCHS
    assert TrainingConfig(epochs="auto", steps=600).epochs_for(3) == 200
    assert TrainingConfig(epochs="auto", steps=600).epochs_for(7) == 86
    run = train_on(data, config, out=tmp_path, device="cpu")
    assert (run.summary["steps"], run.config.training.epochs) == (21 * STEPS, 21)
    assert json.loads((tmp_path / "run.json").read_text())["training"]["epochs"] == 21
    told = Told()
    train_on(data, config, out=tmp_path, device="cpu", reporter=told)  # the same command
    assert "is finished" in told.messages[0]
    train_on(data, config_of(22, steps=21 * STEPS), out=tmp_path, device="cpu")
    assert train_on(data, config, out=tmp_path, device="cpu").config.training.epochs == 22


def test_a_config_of_before_is_written_as_it_was() -> None:
    described = config_of(3).to_json()
    assert {"steps", "init_from"}.isdisjoint(described["training"])
    assert Config.from_json(described) == config_of(3)
    with pytest.raises(ValueError, match="epochs"):
        config_of("many")


def test_a_loss_that_still_falls_is_told() -> None:
    def rows(train: list[float], validation: list[float] | None = None) -> list[dict[str, float]]:
        judged = validation or train
        pairs = enumerate(zip(train, judged, strict=True), 1)
        return [{"epoch": n, "train_loss": x, "validation_loss": y} for n, (x, y) in pairs]

    line = [1.0 - 0.04 * i for i in range(20)]
    assert falling(line) == pytest.approx(0.2)
    assert "still falling" in str(advice(rows(line), "RUN"))
    assert "the same command with --out RUN --epochs 40 trains on" in str(advice(rows(line), "RUN"))
    assert advice(rows([0.69] + 19 * [0.02])) is None  # it is learned
    assert advice(rows([1.0, 0.9, 0.8])) is None  # too few to tell
    assert advice(rows([1.0, *(0.05 / (i + 1) for i in range(19))])) is None  # by little
    rising = advice(rows(line, [0.7 + 0.04 * i for i in range(20)]))
    assert "more epochs may not help" in str(rising)


def test_many_short_epochs_are_not_all_evaluated(tmp_path: Path) -> None:
    """As with data of one batch: evaluation would take longer than training."""
    data = small_data(sizes=(5, 4, 4))
    config = config_of(203)
    run = train_on(data, config, out=tmp_path / "whole", device="cpu")
    epochs = [int(row["epoch"]) for row in run.rows]
    assert epochs == [*range(2, 203, 2), 203]
    assert run.summary["best_epoch"] in epochs
    with pytest.raises(KeyboardInterrupt):
        train_on(data, config, out=tmp_path / "parts", reporter=Told(stop_after=104))
    again = train_on(data, config, out=tmp_path / "parts", device="cpu")
    metrics = [(tmp_path / name / "metrics.csv").read_text() for name in ("whole", "parts")]
    assert metrics[0] == metrics[1]
    assert again.summary["test"] == run.summary["test"]


def test_a_run_that_ends_too_early_says_so(tmp_path: Path) -> None:
    told = Told()
    config = small_config(training={"epochs": 8}, optimizer={"lr": 0.01})
    train_on(small_data(), config, out=tmp_path, device="cpu", reporter=told)
    assert f"--out {tmp_path} --epochs 16 trains on" in told.messages[-1]


# -- after a divergence ----------------------------------------------------------------------------


def test_the_rate_that_a_divergence_suggests_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    def config(lr: float) -> Config:
        return small_config(optimizer={"lr": lr, "warmup": 0.0}, training={"epochs": 2})

    with pytest.raises(DivergenceError) as stop:
        train_on(small_data(), config(1e18), out=tmp_path, device="cpu")
    suggested = re.search(
        rf"--out {re.escape(str(tmp_path))} --optimizer.lr (\S+) ", str(stop.value)
    )
    assert suggested is not None
    assert float(suggested[1]) == 2.5e17
    wide = replace(config(0.01), model=replace(config(0.01).model, d_model=6))
    with pytest.raises(OtherConfigError, match=r"model\.d_model"):  # only the optimiser may change
        train_on(small_data(), wide, out=tmp_path, device="cpu")
    run = train_on(small_data(), config(0.01), out=tmp_path, device="cpu")
    assert run.summary["steps"] == 2 * STEPS
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["changed"][0]["options"] == ["optimizer.lr: 1e+18 -> 0.01"]
    with pytest.raises(OtherConfigError, match=r"optimizer\.lr"):  # it has not diverged now
        train_on(small_data(), config(0.02), out=tmp_path, device="cpu")


def test_after_a_divergence_it_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    sixth = Order(40, batch_size=5, accumulate=1, seed=0).epoch(0)[5][0]
    bad, told = small_data(bad=sixth[:1].tolist()), Told()
    with pytest.raises(DivergenceError):
        train_on(bad, small_config(), out=tmp_path, device="cpu", checkpoint_minutes=0.0)
    skip = small_config(training={"skip_bad_batches": True})
    run = train_on(bad, skip, out=tmp_path, device="cpu", reporter=told)
    assert any("going on after step 5" in each for each in told.messages)
    assert run.summary["skipped"] == 3  # one in each epoch


# -- fine-tuning -----------------------------------------------------------------------------------


def renamed(data: Dataset, **changes: Any) -> Dataset:
    return replace(data, signature=replace(data.signature, **changes))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    units = {"input_shift": (0.5,), "input_scale": (2.0,), "classes": ("down", "up")}
    data = renamed(small_data(), **units)
    train_on(data, config_of(2), out=tmp_path / "first", device="cpu")
    return tmp_path / "first"


def frozen(source: Path) -> Config:
    """A run that begins with other weights and learns nothing."""
    config = config_of(1, init_from=source)
    still = replace(config.optimizer, lr=0.0, ssm_lr=0.0, weight_decay=0.0)
    return replace(config, optimizer=still)


def test_fine_tuning_begins_with_the_best_weights_and_their_units(
    source: Path, tmp_path: Path
) -> None:
    data, told = renamed(small_data(), classes=("down", "up"), input_shift=(0.1,)), Told()
    run = train_on(data, frozen(source), out=tmp_path / "next", device="cpu", reporter=told)
    old = Run.load(source)
    for name, tensor in run.model.state_dict().items():
        torch.testing.assert_close(tensor, old.model.state_dict()[name])
    assert run.signature.input_shift == (0.5,)
    assert run.signature.input_scale == (2.0,)
    assert f"begins with the weights of {source}" in told.messages[0]
    assert Run.load(tmp_path / "next").config.training.init_from == source
    assert not any("head" in each for each in told.messages)


def test_other_classes_get_a_new_head_which_is_said(source: Path, tmp_path: Path) -> None:
    data, told = renamed(small_data(), classes=("a", "b", "c"), outputs=3), Told()
    run = train_on(data, frozen(source), out=tmp_path / "next", device="cpu", reporter=told)
    old = Run.load(source).model.state_dict()
    new = run.model.state_dict()
    body = [name for name in new if not name.startswith("decoder.")]
    assert body
    assert all(torch.equal(new[name], old[name]) for name in body)
    assert new["decoder.weight"].shape[0] == 3
    assert "the head is new: classes down, up there, classes a, b, c here" in told.messages


def test_fine_tuning_goes_on_without_the_run_it_began_with(source: Path, tmp_path: Path) -> None:
    data, config = small_data(), config_of(2, init_from=source)
    with pytest.raises(KeyboardInterrupt):
        train_on(data, config, out=tmp_path / "next", device="cpu", reporter=Told(2))
    source.rename(tmp_path / "gone")
    run = train_on(data, config, out=tmp_path / "next", device="cpu")
    assert run.signature.input_scale == (2.0,)


def test_weights_that_do_not_fit_are_refused(source: Path, tmp_path: Path) -> None:
    wide = replace(frozen(source), model=replace(frozen(source).model, d_state=6))
    with pytest.raises(ValueError, match=r"model\.d_state: 4 -> 6"):
        train_on(small_data(), wide, device="cpu")
    wide_data = renamed(small_data(), features=4)
    with pytest.raises(ValueError, match="features 1 there, 4 here"):
        train_on(wide_data, frozen(source), out=tmp_path / "new", device="cpu")
    assert not (tmp_path / "new").exists()  # nothing is left of what never began
    empty = replace(frozen(source), training=replace(frozen(source).training, init_from=Path("no")))
    with pytest.raises(FileNotFoundError, match="no has no"):
        train_on(small_data(), empty, device="cpu")


def test_channels_in_another_order_are_refused(source: Path, tmp_path: Path) -> None:
    two = {"features": 2, "input_shift": (0.0, 0.0), "input_scale": (1.0, 1.0)}

    def pairs(*channels: str) -> Dataset:
        data = small_data()
        wide = data.mapped(
            lambda split: replace(
                split,
                inputs=tuple(
                    replace(x, values=np.concatenate([x.values, x.values], -1))
                    for x in split.inputs
                ),
            )
        )
        return renamed(wide, **two, channels=channels)

    train_on(pairs("x", "y"), config_of(1), out=tmp_path / "xy", device="cpu")
    with pytest.raises(ValueError, match=r"channels x, y, this data has them as y, x"):
        train_on(pairs("y", "x"), frozen(tmp_path / "xy"), device="cpu")
