"""Numbers that are none: the run stops and says where they began, or leaves the batch out."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch.data.dataset import Signature
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training import (
    Config,
    DivergenceError,
    Progress,
    Reporter,
    loop,
    optimizer,
    run,
    train_on,
)
from s4d_torch.training.batches import Order
from s4d_torch.training.build import build_model
from s4d_torch.training.optimizer import FusedAdamW
from training_job import small_config, small_data


def test_a_poisoned_weight_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "blocks.1.layer.ssm.raw_C"

    def build(config: Config, signature: Signature) -> Pretrained:
        model = build_model(config, signature)
        with torch.no_grad():
            model.get_parameter(name).view(-1)[1] = math.nan
        return model

    monkeypatch.setattr(run, "build_model", build)
    with pytest.raises(DivergenceError, match=rf"step 1: .* is the parameter {name}\. Nothing was"):
        train_on(small_data(), small_config(), device="cpu")


def test_an_infinite_input_is_traced_and_the_last_checkpoint_kept(tmp_path: Path) -> None:
    sixth = Order(40, batch_size=5, accumulate=1, seed=0).epoch(0)[5][0]
    data = small_data(bad=sixth[:1].tolist())
    with pytest.raises(DivergenceError) as stop:
        train_on(data, small_config(), out=tmp_path, device="cpu", checkpoint_minutes=0.0)
    told = str(stop.value)
    assert told.startswith("step 6: the loss is nan, the gradient's norm nan; ")
    assert "the first that is not finite is the output of encoder. " in told
    assert f"The checkpoint of step 5 is in {tmp_path}: the same command with --out" in told
    assert "goes on from there with a smaller learning rate" in told


def test_a_huge_learning_rate_ends_in_an_error() -> None:
    with pytest.raises(DivergenceError, match="the first that is not finite is the"):
        train_on(small_data(), small_config(optimizer={"lr": 1e18, "warmup": 0.0}), device="cpu")


def test_weights_that_are_no_numbers_are_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step of all has no next one to notice what it did to the weights."""

    class Poisoner(FusedAdamW):
        steps = 0

        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            self.steps += 1
            if self.steps == 3:
                self.param_groups[0]["params"][0].data.fill_(math.nan)

    monkeypatch.setattr(optimizer, "FusedAdamW", Poisoner)
    config = small_config(training={"epochs": 3, "batch_size": 40})
    with pytest.raises(DivergenceError, match=r"^step 3: .* is not finite any more. The .*step 2"):
        train_on(small_data(), config, out=tmp_path, device="cpu")


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_bad_batches_can_be_skipped_and_leave_no_trace(norm: str) -> None:
    messages, losses = list[str](), list[float]()

    class Diary(Reporter):
        def step(self, now: Progress) -> None:
            losses.append(now.loss)

        def message(self, text: str) -> None:
            messages.append(text)

    config = small_config(model={"norm": norm}, training={"skip_bad_batches": True})
    done = train_on(small_data(bad=[11]), config, device="cpu", reporter=Diary())
    assert done.summary["skipped"] == len(messages) == 3
    assert all("the output of encoder; the batch was skipped" in text for text in messages)
    assert sum(math.isnan(loss) for loss in losses) == 3
    assert all(math.isfinite(row["validation_loss"]) for row in done.rows)


def test_a_value_whose_square_overflows_spoils_no_statistics() -> None:
    """The variance of the batch is infinite then, and what is divided by it 0: the loss is fine."""
    data, config = small_data(), small_config(model={"norm": "batch"})
    row = np.array(data.train.inputs[0].values)
    row[11] = 1e25
    huge = replace(data.train, inputs=(replace(data.train.inputs[0], values=row),))
    data = replace(data, train=huge)
    with pytest.raises(DivergenceError, match=r"^step \d: .* first that is not finite is the "):
        train_on(data, config, device="cpu")
    skipping = replace(config, training=replace(config.training, skip_bad_batches=True))
    done = train_on(data, skipping, device="cpu")
    assert done.summary["skipped"] == 3
    assert all(torch.isfinite(x).all() for x in done.model.state_dict().values())


def test_skipping_has_an_end() -> None:
    config = small_config(training={"skip_bad_batches": True, "batch_size": 1})
    with pytest.raises(DivergenceError, match=rf"^step {loop.PATIENCE}: the loss is nan"):
        train_on(small_data(bad=range(40)), config, device="cpu")


def test_an_epoch_without_a_good_batch_has_no_loss() -> None:
    config = small_config(training={"skip_bad_batches": True, "epochs": 1, "batch_size": 4})
    done = train_on(small_data(bad=range(40)), config, device="cpu")
    assert math.isnan(done.rows[0]["train_loss"])
    assert done.summary["skipped"] == 10
