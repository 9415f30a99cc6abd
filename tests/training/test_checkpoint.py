"""Checkpoints and run folders: whole or not there, verified, and nobody else's."""

import errno
import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import AdamW

from s4d_torch.training import Run, train_on
from s4d_torch.training.optimizer import optimizer_tensors, restore_optimizer
from s4d_torch.training.reports.reporter import Reporter
from s4d_torch.training.saved.checkpoint import Checkpoint, newest_checkpoint, save_checkpoint
from s4d_torch.training.saved.run_folder import OtherConfigError, RunFolder
from training_job import small_config, small_data

CONFIG = small_config(training={"epochs": 2, "batch_size": 20})


def checkpoint(step: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    weights = {
        "half": torch.randn(3, 2, generator=generator).bfloat16(),
        "turned": torch.randn(4, 3, generator=generator, dtype=torch.float64).T,
        "count": torch.tensor(step),
    }
    state = {"step": step, "score": 0.1 + step, "none": None, "nothing": float("nan")}
    return Checkpoint(step, {"model": weights, "optimizer": {"0.step": torch.tensor(7.0)}}, state)


def same(a: Checkpoint, b: Checkpoint) -> bool:
    flat_a, flat_b = (
        {(group, name): x for group, tensors in one.tensors.items() for name, x in tensors.items()}
        for one in (a, b)
    )
    states = (repr(sorted(one.state.items())) for one in (a, b))  # nan is not equal to nan
    return ((a.step, next(states), flat_a.keys()) == (b.step, next(states), flat_b.keys())) and all(
        x.dtype == flat_b[k].dtype and torch.equal(x, flat_b[k]) for k, x in flat_a.items()
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    for step in (3, 10):
        save_checkpoint(folder, checkpoint(step))
    return folder


# -- one checkpoint --------------------------------------------------------------------------------


def test_what_is_read_is_what_was_written(saved: Path) -> None:
    found = newest_checkpoint(saved)
    assert found is not None
    assert same(found, checkpoint(10))


def test_no_folder_and_an_empty_one_hold_no_checkpoint(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_the_newest_two_are_kept_and_copies_left_alone(tmp_path: Path) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, checkpoint(step))
    shutil.copytree(tmp_path / "step-000000002", tmp_path / "step-000000002-copy")
    (tmp_path / ".writing-abc").mkdir()
    for step in (30, 1000):
        save_checkpoint(tmp_path, checkpoint(step))
    names = ["step-000000002-copy", "step-000000030", "step-000001000"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_an_optimizer_goes_on_bit_by_bit() -> None:
    def steps(count: int, parts: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.zeros(3, requires_grad=True), torch.zeros((), requires_grad=True)]
        tensors = None
        for _ in range(parts):
            groups = [{"params": [weight], "lr": 0.1 * (i + 1)} for i, weight in enumerate(weights)]
            optimizer = AdamW(groups)
            if tensors is not None:
                restore_optimizer(optimizer, tensors)
            for _ in range(count // parts):
                for weight in weights:
                    weight.grad = torch.randn(weight.shape, generator=generator)
                optimizer.step()
            tensors = optimizer_tensors(optimizer)
        return weights

    for one, other in zip(steps(6, 1), steps(6, 3), strict=True):
        assert torch.equal(one, other)


# -- damage ----------------------------------------------------------------------------------------


def truncate(content: bytes, place: int) -> bytes:
    return content[:place]


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def damage(path: Path, how: Callable[[bytes, int], bytes], part: float) -> None:
    content = path.read_bytes()
    path.write_bytes(how(content, int(part * len(content))))


@given(
    name=st.sampled_from(["model.safetensors", "optimizer.safetensors", "manifest.json"]),
    how=st.sampled_from([truncate, flip]),
    part=st.floats(0, 0.999),
)
def test_damage_anywhere_is_found_and_the_one_before_taken(
    saved: Path,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    how: Callable[[bytes, int], bytes],
    part: float,
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "checkpoints"
    shutil.copytree(saved, folder)
    damage(folder / "step-000000010" / name, how, part)
    with pytest.warns(UserWarning, match="step-000000010 is damaged .*; trying the one before"):
        found = newest_checkpoint(folder)
    assert found is not None
    assert same(found, checkpoint(3))


@pytest.mark.parametrize(
    "manifest",
    ["", "null", "[]", "{}", '{"manifest": 1, "sha256": "x"}', '{"manifest": "{}"}', "\x00\xff"],
)
def test_a_file_that_is_no_manifest_is_damage(saved: Path, tmp_path: Path, manifest: str) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved, folder)
    (folder / "step-000000010" / "manifest.json").write_text(manifest, encoding="latin-1")
    with pytest.warns(UserWarning, match="step-000000010 is damaged"):
        found = newest_checkpoint(folder)
    assert found is not None
    assert found.step == 3


def test_a_missing_file_is_damage(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "checkpoints")
    (tmp_path / "checkpoints/step-000000010/optimizer.safetensors").unlink()
    with pytest.warns(UserWarning, match="step-000000010 is damaged .*No such file"):
        found = newest_checkpoint(tmp_path / "checkpoints")
    assert found is not None
    assert found.step == 3


def test_if_all_are_damaged_nothing_is_begun_anew(tmp_path: Path) -> None:
    """That would overwrite the scores and the best weights, which may be all that is left."""
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu", checkpoint_minutes=0.0)
    (tmp_path / "summary.json").unlink()
    for path in (tmp_path / "checkpoints").glob("*/model.safetensors"):
        damage(path, flip, 0.5)
    before = (tmp_path / "metrics.csv").read_bytes()
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(ValueError, match=r"all checkpoints in .* are damaged; put a copy of one"),
    ):
        train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    assert (tmp_path / "metrics.csv").read_bytes() == before
    assert Run.load(tmp_path).rows[-1]["epoch"] == "2"
    shutil.rmtree(tmp_path / "checkpoints")  # as the message says
    assert train_on(small_data(), CONFIG, out=tmp_path, device="cpu").summary["steps"] == 4


# -- a full disk -----------------------------------------------------------------------------------


def fail_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Let the so manieth file that is written be the one that the disk has no room for.

    The list that is returned has one entry for each file.
    """
    sync, done = os.fsync, list[int]()

    def full(handle: int) -> None:
        done.append(handle)
        if len(done) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    return done


def test_wherever_the_disk_is_full_the_run_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(folder: Path) -> tuple[bytes, bytes]:
        train_on(small_data(), CONFIG, out=folder, device="cpu", checkpoint_minutes=0.0)
        weights = folder / "best/model.safetensors"
        return (folder / "metrics.csv").read_bytes(), weights.read_bytes()

    with monkeypatch.context() as patch:
        files = fail_at(patch, 0)
        expected = run(tmp_path / "whole")
    told = ""
    for number in range(1, len(files) + 1, 2):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            fail_at(patch, number)
            with pytest.raises(OSError, match="No space left on device") as stop:
                run(folder)
        assert stop.value.errno == errno.ENOSPC
        told += f"{stop.value}\n"
        assert not list(folder.rglob(".*.*"))  # nothing half written
        assert run(folder) == expected
    assert "No space left on device: '" + str(tmp_path / "1" / "run.json") in told
    for what in ("the best weights", "the scores", "the checkpoint of step 3"):
        assert f"{what} could not be written (No space left on device). The" in told


def test_a_checkpoint_that_does_not_fit_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    fail_at(monkeypatch, 2)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path, checkpoint(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert same(found, checkpoint(1))


# -- whose folder ----------------------------------------------------------------------------------


def test_another_config_is_refused_with_the_difference(tmp_path: Path) -> None:
    RunFolder(tmp_path).claim(CONFIG)
    before = (tmp_path / "run.json").read_bytes()
    other = replace(
        CONFIG,
        model=replace(CONFIG.model, d_state=6),
        optimizer=replace(CONFIG.optimizer, milestones=(0.5,)),
    )
    with pytest.raises(OtherConfigError) as refusal:
        train_on(small_data(), other, out=tmp_path, device="cpu")
    told = str(refusal.value)
    assert "\n  model.d_state: 4 -> 6\n  optimizer.milestones: [0.6, 0.85] -> [0.5]\n" in told
    assert "name another folder" in told
    assert (tmp_path / "run.json").read_bytes() == before


def test_data_that_has_changed_under_a_run_is_refused(tmp_path: Path) -> None:
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    (tmp_path / "summary.json").unlink()  # as if it were not finished
    before = (tmp_path / "signature.json").read_bytes()
    for change, told in ({"outputs": 3}, "2 -> 3"), ({"input_scale": (2.0,)}, "[1.0] -> [2.0]"):
        data = small_data()
        other = replace(data, signature=replace(data.signature, **change))
        with pytest.raises(OtherConfigError) as refusal:
            train_on(other, CONFIG, out=tmp_path, device="cpu")
        assert f"the data has changed since the run in {tmp_path} began:\n" in str(refusal.value)
        assert f"\n  {next(iter(change))}: {told}\nput it back" in str(refusal.value)
        assert (tmp_path / "signature.json").read_bytes() == before
    data = small_data()
    nearly = replace(data.signature, input_scale=(1.0 + 1e-9,))  # computed on another machine
    train_on(replace(data, signature=nearly), CONFIG, out=tmp_path, device="cpu")


def test_values_that_have_changed_under_a_run_are_refused(tmp_path: Path) -> None:
    """Killed or finished, and with the same signature."""
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    data = small_data()
    (tower,) = data.train.inputs
    other = replace(data.train, inputs=(replace(tower, values=tower.values + 1e-3),))
    halved = replace(data, train=data.train.part(slice(20)))
    for summary in (True, False):
        if not summary:
            (tmp_path / "summary.json").unlink()
        for changed, told in (
            (replace(data, train=other), "values of train differ, or their order"),
            (halved, "train had 40 cases, now 20"),
        ):
            with pytest.raises(OtherConfigError) as refusal:
                train_on(changed, CONFIG, out=tmp_path, device="cpu")
            assert f" began:\n  {told}\nput it back" in str(refusal.value)
            assert "remove this one to begin anew" in str(refusal.value)
    train_on(data, CONFIG, out=tmp_path, device="cpu")


@pytest.mark.parametrize("finished", [True, False])
def test_runs_from_before_fingerprints_go_on_with_a_word(finished: bool, tmp_path: Path) -> None:
    messages: list[str] = []

    class Listener(Reporter):
        def message(self, text: str) -> None:
            messages.append(text)

    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    (tmp_path / "data.json").unlink()
    if not finished:
        (tmp_path / "summary.json").unlink()
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu", reporter=Listener())
    assert sum("whether the data has changed since is not known" in text for text in messages) == 1
    assert (tmp_path / "data.json").exists() is not finished  # a finished run is only read


def test_signatures_from_before_there_were_names_still_fit(tmp_path: Path) -> None:
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    data = small_data()
    named = replace(data, signature=replace(data.signature, channels=("x",), target="slope"))
    train_on(named, CONFIG, out=tmp_path, device="cpu")


def test_a_damaged_fingerprint_is_told(tmp_path: Path) -> None:
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    (tmp_path / "data.json").write_text('{"train": 3}')
    with pytest.raises(ValueError, match=r"data\.json is damaged: expected an object"):
        train_on(small_data(), CONFIG, out=tmp_path, device="cpu")


def test_a_finished_run_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = train_on(small_data(), CONFIG, out=tmp_path, device="cpu")

    def refuse(self: RunFolder) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(RunFolder, "locked", refuse)
    assert train_on(small_data(), CONFIG, out=tmp_path, device="cpu").summary == done.summary


def test_a_score_that_is_no_number_is_null_in_the_summary(tmp_path: Path) -> None:
    data = small_data(sizes=(40, 12, 1))  # of one class there is no auroc
    train_on(data, CONFIG, out=tmp_path, device="cpu")

    def never(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    written = json.loads((tmp_path / "summary.json").read_text(), parse_constant=never)
    assert written["test"]["auroc"] is None
    assert math.isnan(Run.load(tmp_path).summary["test"]["auroc"])


def test_others_may_read_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "any").mkdir()  # with the permissions of this user's folders
    place = save_checkpoint(tmp_path / "checkpoints", checkpoint(1))
    assert place.stat().st_mode == (tmp_path / "any").stat().st_mode


def test_best_weights_that_are_gone_are_missed(tmp_path: Path) -> None:
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    (tmp_path / "summary.json").unlink()
    shutil.rmtree(tmp_path / "best")
    with pytest.raises(FileNotFoundError, match=r"best is gone, which had the weights of epoch"):
        train_on(small_data(), CONFIG, out=tmp_path, device="cpu")


def test_damaged_scores_are_named(tmp_path: Path) -> None:
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    (tmp_path / "metrics.csv").write_text("epoch;step\n1;2\n")
    with pytest.raises(ValueError, match=r"metrics.csv is damaged"):
        Run.load(tmp_path)


def test_a_folder_of_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("...")
    with pytest.raises(FileExistsError, match="is not empty and holds no run; name a new folder"):
        train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(NotADirectoryError, match=r"thesis.tex is a file; name a folder"):
        train_on(small_data(), CONFIG, out=tmp_path / "thesis.tex", device="cpu")


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(BlockingIOError, match=r"another process is training in .*; wait for it"),
    ):
        train_on(small_data(), CONFIG, out=tmp_path, device="cpu")
    train_on(small_data(), CONFIG, out=tmp_path, device="cpu")  # it is free again


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run.json is damaged"):
        train_on(small_data(), CONFIG, out=tmp_path, device="cpu")


def test_a_row_that_was_cut_off_is_no_row(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.add_row({"epoch": 1, "step": 7, "loss": 0.25})
    folder.add_row({"epoch": 2, "step": 14, "loss": 0.125})
    whole = (tmp_path / "metrics.csv").read_bytes()
    for cut in range(1, len(b"2,14,0.125\n") + 1):
        (tmp_path / "metrics.csv").write_bytes(whole[:-cut])
        assert [row["loss"] for row in folder.rows()] == ["0.25"]
    folder.keep_rows(7)
    assert (tmp_path / "metrics.csv").read_bytes() == b"epoch,step,loss\n1,7,0.25\n"
    folder.keep_rows(6)
    assert not (tmp_path / "metrics.csv").exists()
