"""The grid: each experiment once, whatever dies on the way, as many at a time as memory allows."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from s4d_torch.data import DataFolder
from s4d_torch.data.dataset import Signature
from s4d_torch.nn.method import Method
from s4d_torch.paper.experiments.cost import available_memory, peak_memory
from s4d_torch.paper.experiments.experiment import Experiment, read_result, run_experiment
from s4d_torch.paper.experiments.grid import interleave, run_grid
from s4d_torch.paper.experiments.local_workers import Job, Plan, Pool, cause_of_death
from s4d_torch.training import Config, Interrupted, ModelConfig, TrainingConfig
from s4d_torch.training.reports.reporter import Progress, Reporter
from s4d_torch.training.saved.checkpoint import newest_checkpoint
from s4d_torch.training.saved.run_folder import RunFolder
from tiny_experiments import EPOCHS, Notes, tiny


class Murderer(Notes):
    """Kills workers that have come some way, so many of each experiment."""

    def __init__(self, victims: dict[str, int]) -> None:
        super().__init__()
        self.victims, self.dead = victims, set[int]()

    def progress(self, key: str, now: Progress) -> None:
        super().progress(key, now)
        if now.epoch > 1 and self.victims[key] > 0 and self.process not in self.dead:
            self.victims[key] -= 1
            self.dead.add(self.process)
            os.kill(self.process, signal.SIGKILL)


class Impatient(Notes):
    """Presses Ctrl-C."""

    def progress(self, key: str, now: Progress) -> None:
        super().progress(key, now)
        if now.epoch > 1:
            raise KeyboardInterrupt


class Messages(Reporter):
    """Remembers what a run said."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Any]:
    return {"data": DataFolder(tmp_path / "data", download=False), "work": tmp_path / "work"}


# -- what is run -----------------------------------------------------------------------------------


def test_a_grid_runs_what_is_missing_and_nothing_else(
    tmp_path: Path, folders: dict[str, Any]
) -> None:
    results, work = tmp_path / "results", folders["work"]
    broken, taken = tiny(architecture="perceptron"), tiny(3)
    grid = [tiny(0), broken, tiny(1), tiny(0), taken]
    (work / taken.key).mkdir(parents=True)
    first = Notes()
    with RunFolder(work / taken.key).locked():  # as if another grid ran it
        found = run_grid(grid, results, **folders, workers=2, watch=first)
    assert [result.key for result in found] == [tiny(0).key, broken.key, tiny(1).key]
    assert {path.stem for path in results.iterdir()} == {result.key for result in found}
    assert [result.error is None for result in found] == [True, False, True]
    assert "unknown architecture 'perceptron'" in str(found[1].error)
    assert found[0].summary["threads"] == max(1, (os.cpu_count() or 1) // 2)
    assert found[0].test == run_experiment(tiny(0), tmp_path / "again", **folders).test
    (reason,) = first.put_back_for
    assert "another process is training" in reason
    assert [entry for entry in work.iterdir() if entry.suffix == ".log"] == []  # nobody spoke

    second = Notes()
    again = run_grid([tiny(2), *grid[:4]], results, **folders, retry_failed=True, watch=second)
    assert sorted(second.started_keys) == sorted([tiny(2).key, broken.key])
    assert [result.key for result in again] == [tiny(2).key, *(result.key for result in found)]
    assert again[2].error is not None


def test_killed_workers_are_noticed_and_their_runs_go_on_once(
    tmp_path: Path, folders: dict[str, Any]
) -> None:
    once, twice = tiny(0, epochs=EPOCHS), tiny(1, epochs=EPOCHS)
    watch = Murderer({once.key: 1, twice.key: 2})
    fine, failed = run_grid([once, twice], tmp_path / "results", **folders, workers=1, watch=watch)
    assert fine.error is None
    assert [row["epoch"] for row in fine.rows] == list(range(1, EPOCHS + 1))
    for reason in watch.put_back_for:
        assert reason == "its process was killed by SIGKILL; it goes on from its checkpoint"
    assert watch.started_keys == [once.key, once.key, twice.key, twice.key]
    first_steps = [steps[0] for steps in watch.steps.values()]
    assert [step > 1 for step in first_steps] == [False, True, False, True]
    assert failed.error is not None
    assert failed.error.startswith("its process was killed by SIGKILL, and so did the one before")
    assert newest_checkpoint(folders["work"] / failed.key / "checkpoints") is not None
    assert not (folders["work"] / fine.key).exists()


def test_an_interrupted_grid_saves_and_goes_on(tmp_path: Path, folders: dict[str, Any]) -> None:
    experiment, results = tiny(epochs=EPOCHS), tmp_path / "results"
    with pytest.raises(Interrupted, match="Run the same command again to go on from there"):
        run_grid([experiment, tiny(1)], results, **folders, workers=1, watch=Impatient())
    assert read_result(results, experiment.key) is None
    saved = newest_checkpoint(folders["work"] / experiment.key / "checkpoints")
    assert saved is not None
    assert saved.step > 1
    said = Messages()
    result = run_experiment(experiment, results, **folders, reporter=said)
    assert said.texts[0].startswith(f"going on after step {saved.step} of")
    assert len(result.rows) == EPOCHS


def test_a_run_that_others_have_is_not_a_failure(tmp_path: Path, folders: dict[str, Any]) -> None:
    experiment, results = tiny(), tmp_path / "results"
    place = RunFolder(folders["work"] / experiment.key)
    with place.locked(), pytest.raises(BlockingIOError, match="another process"):
        run_experiment(experiment, results, **folders)
    assert read_result(results, experiment.key) is None


def test_a_learning_rate_is_searched_for_on_validation(
    tmp_path: Path, folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rate of 0 nothing is learned; the better one is taken for the whole run."""
    monkeypatch.setattr("s4d_torch.paper.experiments.experiment.SHORTER", 1)
    plain = tiny(0, epochs=EPOCHS, d_model=16, d_state=16)
    searching = replace(plain, rates=(1e-9, 0.01))
    assert searching.key != plain.key
    assert Experiment.from_json(searching.to_json()) == searching
    said = Messages()
    results = tmp_path / "results"
    found = run_experiment(searching, results, **folders, reporter=said)
    assert found.config["optimizer"]["lr"] == 0.01
    assert found.searched["0.01"] > found.searched["1e-09"]
    assert len(found.rows) == EPOCHS
    assert list(folders["work"].iterdir()) == []  # nothing of the trials is left
    assert read_result(results, searching.key) == found


def test_a_result_says_what_became_of_each_case(tmp_path: Path, folders: dict[str, Any]) -> None:
    found = run_experiment(tiny(0), tmp_path / "results", **folders)
    for split, score in (("test", found.test), ("validation", found.summary["validation"])):
        outcomes = found.outcomes(split)
        assert len(outcomes.values) == found.data[split]["cases"]
        assert outcomes.values.mean() == pytest.approx(score)
        assert 0 < found.constant[split] < 0.3  # ten digits, about as many of each
    assert found.environment["code"]
    assert "command" not in found.environment  # it has the paths of a machine


def test_bad_options_are_refused(tmp_path: Path, folders: dict[str, Any]) -> None:
    for wrong, message in [
        ({"engine": "locol"}, "unknown engine 'locol'; did you mean 'local'"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"memory_gb": 0.0}, "memory_gb must be above 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            run_grid([tiny()], tmp_path, **folders, **wrong)


@pytest.mark.parametrize("which", ["results", "work"])
def test_a_folder_that_takes_nothing_is_refused_before_anything_runs(
    which: str, tmp_path: Path, folders: dict[str, Any]
) -> None:
    (tmp_path / "file").touch()
    given = {"results": tmp_path / "results", **folders, which: tmp_path / "file" / "inside"}
    notes = Notes()
    with pytest.raises(OSError, match=r"cannot write into .*inside \(.*irectory.*\); choose"):
        run_grid([tiny()], **given, watch=notes)
    assert notes.started_keys == []


def test_experiments_take_turns() -> None:
    def of(task: str, seed: int, d_model: int) -> Experiment:
        config = Config(
            task, model=ModelConfig(d_model=d_model), training=TrainingConfig(seed=seed)
        )
        return Experiment(config)

    given = [of(task, seed, d) for task in ("a", "b") for seed in (0, 1) for d in (8, 16)]
    order = [
        (e.config.training.seed, e.config.model.d_model, e.config.task) for e in interleave(given)
    ]
    assert order == sorted(order)


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "batch", "length", "d_model", "n_layers", "method", "megabytes"),
    [  # peaks of processes that trained, as the system counted them
        ("ssm", 4, 64, 4, 1, {}, 441),
        ("ssm", 16, 4096, 64, 4, {}, 1274),
        ("ssm", 16, 4096, 64, 4, {"bidirectional": True}, 1363),
        ("ssm", 8, 8000, 32, 3, {}, 768),
        ("ssm", 4, 16000, 64, 2, {"structure": "dplr", "kernel": "cauchy"}, 1039),
        ("lstm", 16, 2048, 128, 2, {}, 971),
        ("lstm", 16, 2048, 64, 2, {"bidirectional": True}, 1128),
        ("transformer", 8, 2048, 64, 4, {}, 804),
        ("convnet", 8, 16000, 32, 4, {}, 682),
        ("convnet", 4, 1024, 64, 12, {}, 1586),
        ("resnet", 16, 16000, 64, 8, {}, 1110),
    ],
)
def test_memory_is_estimated_well_and_not_too_low(
    architecture: str,
    batch: int,
    length: int,
    d_model: int,
    n_layers: int,
    method: dict[str, Any],
    megabytes: float,
) -> None:
    model = ModelConfig(architecture, d_model=d_model, n_layers=n_layers)
    training = TrainingConfig(batch_size=batch)
    config = Config(model=model, method=Method(**method), training=training)
    estimate = peak_memory(config, Signature("classification", 1, 10, length))
    assert 1.0 < estimate / 2**20 / megabytes < 1.35


class Holder:
    """A worker that only holds memory."""

    def __init__(self, memory: float) -> None:
        self.memory = memory


def test_nothing_is_started_that_does_not_fit(tmp_path: Path, folders: dict[str, Any]) -> None:
    notes = Notes()
    pool = Pool(Plan((), tmp_path, **folders, watch=notes, memory=10.0))
    large, small = Job(tiny(0), 8.0), Job(tiny(1), 3.0)
    pool.queue = [large, small]
    for held, spare, expected in [
        ((), 0, large),
        ((2.0,), 0, large),
        ((3.0,), 0, small),
        ((4.0, 4.0), 0, None),
        ((4.0, 4.0), 4, small),
    ]:
        pool.workers = [Holder(memory) for memory in held]  # type: ignore[misc]
        assert pool._next(spare) is expected
    assert run_grid([tiny()], tmp_path, **folders, memory_gb=0.01, watch=notes) == []
    assert notes.started_keys == []
    (message,) = notes.messages
    assert "left out: it needs about 0.5 GB, 0.0 GB are there" in message


def test_free_memory_is_that_of_system_and_container(tmp_path: Path) -> None:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    system = write("meminfo", "MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    assert available_memory(system, tmp_path / "none") == 5000 * 1024
    for limit, used, stat, name in [
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("limit_in_bytes", "usage_in_bytes", "stat", "total_inactive_file"),
    ]:
        folder = "two/" if limit == "memory.max" else "one/memory/memory."
        write(folder + limit, "1000000\n")
        write(folder + used, "400000\n")
        write(folder + stat, f"anon 100\n{name} 50000\n")
    for version in ("one", "two"):
        assert available_memory(system, tmp_path / version) == 650000
    write("two/memory.max", "max\n")
    assert available_memory(system, tmp_path / "two") == 5000 * 1024


def test_a_death_has_a_name() -> None:
    assert cause_of_death(-9) == "was killed by SIGKILL"
    assert cause_of_death(3) == "ended with code 3"
