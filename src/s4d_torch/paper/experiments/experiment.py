"""One experiment: a config, what is measured besides its test score, and the result as JSON."""

import json
import shutil
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from s4d_torch._files import write_atomically
from s4d_torch._registry import Registry
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.outcomes import Outcomes, best_constant, best_linear, outcomes
from s4d_torch.training.config import Config
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.reports.reporter import Reporter
from s4d_torch.training.run import Run, train
from s4d_torch.training.saved.run_folder import RunFolder, environment

FORMAT = 1
SHORTER = 4  # a trial has so many times fewer epochs
SPLITS = ("validation", "test")

# What can be measured of a trained run besides its test score, by name.
MEASURES: Registry[Any] = Registry("measure")


@dataclass(frozen=True)
class Experiment:
    """A run of the grid. The same config and measures have the same key, whoever asks for them."""

    config: Config
    measures: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    """learning rates to try first, over a quarter of the epochs; the best on validation is taken"""

    @property
    def key(self) -> str:
        described = {"format": FORMAT, "config": self.config.to_json(), "measures": self.measures}
        if self.rates:
            described["rates"] = self.rates
        return sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        described = {"config": self.config.to_json(), "measures": list(self.measures)}
        return described | ({"rates": list(self.rates)} if self.rates else {})

    @staticmethod
    def from_json(described: Mapping[str, Any]) -> "Experiment":
        measures, rates = (tuple(described.get(name, ())) for name in ("measures", "rates"))
        return Experiment(Config.from_json(described["config"]), measures, rates)

    def failed(self, results: Path, error: str) -> "Result":
        """Keep an error as the result."""
        result = Result(self.key, self.config.to_json(), error=error)
        write_result(results, result)
        return result


@dataclass(frozen=True)
class Result:
    """What came of an experiment: scores, or the error that ended it."""

    key: str
    config: dict[str, Any]
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    """versions, machine, commit, and a digest of the code"""
    data: dict[str, Any] = field(default_factory=dict)
    """the fingerprint of the data, split by split, and the names of its classes"""
    cases: dict[str, Any] = field(default_factory=dict)
    """what became of each case of the validation and of the test split: see ``Outcomes``"""
    constant: dict[str, float] = field(default_factory=dict)
    """what one answer to everything scores on these splits"""
    linear: dict[str, float] = field(default_factory=dict)
    """what a linear map of all samples scores there, of a regression"""
    searched: dict[str, float] = field(default_factory=dict)
    """the validation scores of the learning rates that were tried"""
    error: str | None = None

    @property
    def test(self) -> float:
        """The test score, in the unit of the task's metric."""
        return float(self.summary["test"][self.summary["metric"]])

    def value(self, name: str) -> float:
        """``test``, ``validation`` (of the best epoch), ``first-epoch``, or a measure."""
        if name == "first-epoch":
            return float(self.rows[0][f"validation_{self.summary['metric']}"])
        scores = {"test": self.test, "validation": self.summary["validation"], **self.measured}
        return float(scores[name])

    @property
    def seconds(self) -> float:
        """What training took, with all its parts where it was interrupted."""
        return float(self.summary["seconds"])

    def outcomes(self, split: str) -> Outcomes:
        """What became of each case of ``validation`` or ``test``."""
        return Outcomes.from_json(self.cases[split])

    def is_whole(self) -> bool:
        """Whether all scores are there that tables and times are made of, as numbers."""
        scores = (self.test, self.summary["validation"], self.seconds)
        return all(isinstance(score, int | float) for score in (*scores, *self.measured.values()))


@MEASURES.register("half-rate")
def half_rate(run: Run, data: DataFolder) -> float:
    """The test score on every second sample, with dt doubled and no training."""
    dataset = run.dataset(data).decimated(2)
    rate = 2.0 if run.config.model.architecture == "ssm" else 1.0  # others have no dt to double
    return float(run.evaluate(dataset, rate=rate).scores[run.summary["metric"]])


def result_path(results: Path, key: str) -> Path:
    return results / f"{key}.json"


def read_result(results: Path, key: str) -> Result | None:
    """The result of an experiment, if it was run; a damaged file counts as not run."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
        found = Result(**json.loads(result_path(results, key).read_text(encoding="utf-8")))
        if found.error is not None or found.is_whole():
            return found
    return None


def run_experiment(
    experiment: Experiment,
    results: Path,
    *,
    data: DataFolder,
    work: Path,
    reporter: Reporter | None = None,
) -> Result:
    """Train, measure and write ``results/KEY.json``; a result that is there is only read.

    The run's folder, ``work/KEY``, lets an interrupted run go on, and is removed at the end. An
    error is a result too: it is kept, and can be tried again by removing its file. An experiment
    that another process is running raises ``BlockingIOError``.
    """
    if (done := read_result(results, experiment.key)) is not None:
        return done
    config, folder = experiment.config, work / experiment.key
    try:
        searched = _search(experiment, folder, data, reporter)
        if searched:
            best = _best(searched, config)
            config = replace(config, optimizer=replace(config.optimizer, lr=best))
        run = train(config.task, config, out=folder, data=data, reporter=reporter)
        measured = {name: MEASURES[name](run, data) for name in experiment.measures}
        dataset = run.dataset(data)
        cases = {name: outcomes(run, dataset, name).to_json() for name in SPLITS}
        constant = {name: best_constant(dataset, name) for name in SPLITS}
        linear = best_linear(dataset)
    except BlockingIOError:  # no word on the experiment: its result is on the way elsewhere
        raise
    except Exception as error:
        return experiment.failed(results, f"{error}\n{traceback.format_exc(limit=-3)}")
    rows = [{name: float(value) for name, value in row.items()} for row in run.rows]
    surroundings = {k: v for k, v in environment().items() if k != "command"}
    result = Result(
        experiment.key,
        config.to_json(),
        run.summary,
        rows,
        measured,
        surroundings,
        {**(RunFolder(folder).data() or {}), "classes": list(dataset.signature.classes or ())},
        cases,
        constant,
        linear,
        {str(rate): score for rate, score in searched.items()},
    )
    write_result(results, result)
    for place in (folder, *(_trial(folder, rate) for rate in experiment.rates)):
        shutil.rmtree(place, ignore_errors=True)
    return result


def _search(
    experiment: Experiment, folder: Path, data: DataFolder, reporter: Reporter | None
) -> dict[float, float]:
    """The validation score of each learning rate to try, after a quarter of the epochs."""
    config, found = experiment.config, {}
    few = replace(config.training, epochs=max(1, config.training.known_epochs // SHORTER))
    for rate in experiment.rates:
        trial = replace(config, training=few, optimizer=replace(config.optimizer, lr=rate))
        run = train(config.task, trial, out=_trial(folder, rate), data=data, reporter=reporter)
        found[rate] = float(run.summary["validation"])
    return found


def _trial(folder: Path, rate: float) -> Path:
    """Where a learning rate is tried: beside the run itself."""
    return folder.with_name(f"{folder.name}-lr-{rate:g}")


def _best(searched: Mapping[float, float], config: Config) -> float:
    """The rate with the best score; of equals the smaller one."""
    sign = 1 if METRICS[TASKS[config.task].metric].higher_is_better else -1
    return max(sorted(searched), key=lambda rate: sign * searched[rate])


def write_result(results: Path, result: Result) -> None:
    """Keep a result as ``results/KEY.json``, whole or not at all."""
    results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(result), indent=1) + "\n"
    write_atomically({result_path(results, result.key): text.encode()})
