"""Sequences packed into one row: even batches, the gradients of padded ones, exact resume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from s4d_torch.training.batches import Order
from s4d_torch.training.build import build_model
from s4d_torch.training.distributed import Processes
from s4d_torch.training.evaluation import call, loss_sum
from s4d_torch.training.run import train_on
from test_processes import compare, options
from test_resume import left_behind
from training_job import Jobs, small_config, small_data

PACKED: dict[str, Any] = {
    "model": {"dropout": 0.2, "drop_path": 0.2, "norm": "batch"},
    "training": {"pack": True, "ema": 0.9},
    "optimizer": {"accumulate": 2},
    "data": {"ragged": True},
}


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    jobs = Jobs()
    yield jobs
    jobs.close()


@given(
    lengths=st.lists(st.integers(1, 99) | st.just(5000), min_size=1, max_size=60),
    batch_size=st.integers(1, 16),
    accumulate=st.integers(1, 3),
)
def test_batches_of_about_as_many_samples(
    lengths: list[int], batch_size: int, accumulate: int
) -> None:
    each = np.array(lengths)
    order = Order(len(each), batch_size, accumulate, seed=1, lengths=each, pack=True)
    steps = order.epoch(3)
    batches = [batch for step in steps for batch in step]
    assert len(steps) == order.steps
    assert len(batches) == -(-len(each) // batch_size)  # as many as with padding
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(each)))
    assert all(len(batch) for batch in batches)
    if max(lengths) < 100 and min(lengths) * batch_size > 3 * max(lengths):  # no clamping at ends
        wanted = each.sum() / len(batches)
        assert all(abs(each[batch].sum() - wanted) <= each.max() for batch in batches)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("kind", ["classification", "regression", "generation"])
@pytest.mark.parametrize("method", ["s4d", "s4"])
def test_a_packed_batch_has_the_gradient_of_a_padded_one(kind: str, norm: str, method: str) -> None:
    data = small_data(kind=kind, ragged=True)  # type: ignore[arg-type]
    pooling = "none" if kind == "generation" else "mean"
    config = small_config({"norm": norm, "pooling": pooling}, training={"precision": "float64"})
    if method == "s4":
        config = replace(config, method=config.method.replace(structure="dplr", kernel="cauchy"))
    positions = np.array([7, 1, 30, 4, 22])
    found = []
    for batch in (data.batch(data.train, positions), data.packed(data.train, positions)):
        model = build_model(config, data.signature).train()
        outputs = call(model, batch, precision="float64")
        loss = loss_sum(outputs, batch.targets, data.signature)
        found.append([loss, *torch.autograd.grad(loss, list(model.parameters())), *model.buffers()])
    assert data.packed(data.train, positions).inputs.shape[0] == 1
    for padded, packed in zip(*found, strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-9, atol=1e-10)


def test_a_share_of_a_packed_batch() -> None:
    data, positions = small_data(ragged=True), np.array([7, 1, 30, 4, 22])
    mine = data.packed(data.train, Processes(1, 2).share(positions))
    whole = data.packed(data.train, positions)
    assert whole.offsets is not None
    first, last = (whole.inputs[:, whole.offsets[i] : whole.offsets[i + 1]] for i in (1, 3))
    assert torch.equal(mine.inputs, torch.cat([first, last], 1))
    assert torch.equal(mine.targets, whole.targets[[1, 3]])


@pytest.mark.parametrize("kind", ["classification", "generation"])
def test_two_processes_train_on_packed_rows_as_one(jobs: Jobs, tmp_path: Path, kind: str) -> None:
    pooling = "none" if kind == "generation" else "mean"
    compare(
        jobs,
        tmp_path,
        model={"norm": "batch", "pooling": pooling},
        data={"sizes": (13, 5, 2), "ragged": True, "kind": kind},
        **options(training={"pack": True}),
    )


def test_killed_and_resumed_bit_by_bit(jobs: Jobs, tmp_path: Path) -> None:
    assert jobs(tmp_path / "whole", **PACKED).code == 0
    for step in (3, 7):  # in the middle of epochs of four steps
        outcome = jobs(tmp_path / "run", signals=[(step, "SIGKILL")], **PACKED)
        assert outcome.code == -9
    assert jobs(tmp_path / "run", **PACKED).code == 0
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


@pytest.mark.parametrize(
    ("data", "model", "said"),
    [
        ({}, {}, "pack is for sequences of unlike lengths; all of these have 12 samples"),
        ({"ragged": True, "towers": 2}, {}, "pack is not for pairs"),
        ({"ragged": True}, {"architecture": "lstm"}, "pack is not for architecture 'lstm'"),
    ],
)
def test_refused(data: Any, model: Any, said: str, tmp_path: Path) -> None:
    config = small_config(model, training={"pack": True})
    with pytest.raises(ValueError, match=said):
        train_on(small_data(**data), config, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
