"""The pendulum: its motion, what is seen of it, and a run that tracks its angle."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from s4d_torch.data.folder import DataFolder
from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks import pendulum
from s4d_torch.data.tasks.pendulum import PendulumOptions, load_pendulum
from s4d_torch.training import Run, train
from s4d_torch.training.config import default_config

FEW = {"train": 40, "test": 20, "seen": 12}


def random() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(0))


def test_small_swings_have_the_period_of_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pendulum, "KICK", 0.0)
    monkeypatch.setattr(pendulum, "STEPS", 400)
    angles = pendulum.swing(random(), 500)
    one = angles[np.argmin(np.abs(angles[:, 0]))]  # nearest to hanging down
    crossings = np.flatnonzero(np.diff(np.sign(one)))
    period = 2 * np.diff(crossings).mean() * pendulum.DT
    assert period == pytest.approx(2 * np.pi / np.sqrt(pendulum.SWING), rel=0.02)


def test_friction_takes_energy_and_kicks_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kicked = pendulum.swing(random(), 50)
    monkeypatch.setattr(pendulum, "KICK", 0.0)
    free = pendulum.swing(random(), 50)
    highest = np.cos(free[:, :1]) - 1e-3  # where it was let go: no higher than that
    assert (np.cos(free) >= highest).all()
    assert (np.cos(kicked) < highest).any()


@pytest.mark.parametrize(("angle", "row", "column"), [(0.0, 19, 12), (np.pi / 2, 12, 19)])
def test_the_rod_points_where_the_angle_says(angle: float, row: int, column: int) -> None:
    image = pendulum.draw(np.array([angle]))[0]
    assert image[row, column] > 0.7
    assert image[23 - row, 23 - column] == 0
    length, half = (part * pendulum.SIDE for part in pendulum.ROD)
    assert image.sum() == pytest.approx(2 * half * length, rel=0.15)


def test_the_first_images_are_clear_and_noise_comes_and_goes() -> None:
    clear = pendulum.visibility(random(), 300)
    assert (clear[:, : pendulum.CLEAN] == 1).all()
    later = clear[:, pendulum.CLEAN :]
    assert (later == 0).mean() > 0.05
    assert (later == 1).mean() > 0.05
    assert np.abs(np.diff(later)).mean() < 0.25  # one image tells of the next


def test_data_is_the_same_again_and_splits_differ(tmp_path: Path) -> None:
    options = PendulumOptions(**FEW)
    one = load_pendulum(options, DataFolder(tmp_path / "a"))
    two = load_pendulum(options, DataFolder(tmp_path / "b"))
    for name in one.splits:
        a, b = one.splits[name], two.splits[name]
        assert (a.inputs[0].values == b.inputs[0].values).all()
        assert (a.targets == b.targets).all()
        assert a.targets.shape == (len(a), 12, 2)
        assert a.times is not None
        assert (np.diff(a.times.values) > 0).all()
    assert (one.validation.targets != one.test.targets).any()
    batch = one.batch(one.train, np.arange(3))
    assert batch.gaps is not None
    gaps = np.diff(one.train.times.values[:3]) / one.signature.clock.step  # type: ignore[union-attr]
    np.testing.assert_allclose(batch.gaps[:, 1:], gaps, rtol=1e-6)
    told = load_pendulum(PendulumOptions(**FEW, clock=False), DataFolder(tmp_path / "a"))
    assert told.batch(told.train, np.arange(3)).gaps is None


@pytest.mark.parametrize(
    ("wrong", "what"), [({"seen": 101}, "at most 100"), ({"seen": 1}, "at least 2")]
)
def test_wrong_options_are_refused(wrong: dict[str, int], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        PendulumOptions(**wrong)


def test_a_run_tracks_the_angle(tmp_path: Path) -> None:
    task, folder = TASKS["pendulum"], DataFolder(tmp_path)
    config = replace(default_config(task), data=PendulumOptions(**FEW))
    model = replace(config.model, d_model=16, n_layers=1)
    config = replace(config, model=model, training=replace(config.training, epochs=12))
    run = train(task, config, out=tmp_path / "run", data=folder)
    again = Run.load(tmp_path / "run")
    data = load_pendulum(config.data, folder)
    evaluated = again.evaluate(data)
    assert evaluated.scores["mse"] == pytest.approx(run.summary["test"]["mse"], rel=1e-6)
    times = data.test.times
    assert times is not None
    answers = again.predict(data.test.inputs[0].values, times=times.values)
    assert answers.shape == (20, 12, 2)
    error = np.square(answers - data.test.targets).mean()
    assert error == pytest.approx(run.summary["test"]["mse"], rel=1e-4)
    assert error < 0.9 * np.square(data.test.targets).mean()  # it learned something
    with pytest.raises(ValueError, match="predicts numbers"):
        again.predict_proba(data.test.inputs[0].values, times=times.values)
    torch.testing.assert_close(evaluated.loss, evaluated.scores["mse"])
