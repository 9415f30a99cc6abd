"""What a grid shows of itself: a live view in a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from s4d_torch._progress import duration, say
from s4d_torch.nn.method import METHODS
from s4d_torch.paper.experiments.cost import Durations
from s4d_torch.paper.experiments.experiment import Experiment, Result
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.reports.reporter import Progress

# Choices that are the same in all rows of a table, or named already.
SETTING = ("init", "n_ssm", "bidirectional", "dt_min", "dt_max", "softmax_length")


class Watch:
    """Is told how a grid goes; does nothing with it. Others override what they care for."""

    def begin(self, experiments: Sequence[Experiment], done: Sequence[Result]) -> None:
        """The grid starts: all experiments, and the results that are there already."""

    def started(self, key: str, process: int | None = None) -> None:
        """An experiment runs, in a process of this machine if one is named."""

    def progress(self, key: str, now: Progress) -> None:
        """A running experiment has come so far."""

    def ended(self, result: Result) -> None:
        """An experiment has a result, which may be an error."""

    def put_back(self, key: str, reason: str) -> None:
        """An experiment that was running is not, and has no result."""

    def message(self, text: str) -> None:
        """Something worth a line."""

    def close(self) -> None:
        """The grid is over, well or not."""


@dataclass
class Running:
    """An experiment on its way."""

    began: float = field(default_factory=time.monotonic)
    now: Progress | None = None


class GridTally(Watch):
    """Keeps count: what is done, running, failed and left, how long the rest takes, the best."""

    def __init__(self) -> None:
        self.experiments: dict[str, Experiment] = {}
        self.results: dict[str, Result] = {}
        self.running: dict[str, Running] = {}
        self.at_once = 0  # where one has just ended, with that one: the next is about to start

    def begin(self, experiments: Sequence[Experiment], done: Sequence[Result]) -> None:
        self.experiments = {experiment.key: experiment for experiment in experiments}
        self.results = {result.key: result for result in done}

    def started(self, key: str, process: int | None = None) -> None:
        self.running[key] = Running()
        self.at_once = len(self.running)

    def progress(self, key: str, now: Progress) -> None:
        if key in self.running:
            self.running[key].now = now

    def ended(self, result: Result) -> None:
        self.at_once = len(self.running)
        self.running.pop(result.key, None)
        self.results[result.key] = result

    def put_back(self, key: str, reason: str) -> None:
        self.running.pop(key, None)
        self.at_once = len(self.running)

    # -- the numbers -------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        failed = sum(result.error is not None for result in self.results.values())
        done, running = len(self.results) - failed, len(self.running)
        left = len(self.experiments) - len(self.results) - running
        return {"done": done, "running": running, "failed": failed, "left": left}

    def seconds_left(self) -> float | None:
        """Of all that runs and waits, if as many go on at a time as now; None before the first."""
        times = Durations(list(self.results.values()))
        if not times:
            return None
        unfinished = {key: e for key, e in self.experiments.items() if key not in self.results}
        total = 0.0
        for key, experiment in unfinished.items():
            whole, state = times.of(experiment), self.running.get(key)
            if state is None:
                total += whole
            elif state.now is not None:
                total += state.now.seconds_left
            else:
                total += max(0.0, whole - (time.monotonic() - state.began))
        return total / max(1, min(self.at_once, len(unfinished)))

    def best(self) -> dict[str, Result]:
        """The best test score of each task."""
        found: dict[str, Result] = {}
        for result in list(self.results.values()):
            if result.error is None:
                task, metric = result.summary["task"], METRICS[result.summary["metric"]]
                old = found.get(task)
                if metric.better(result.test, None if old is None else old.test):
                    found[task] = result
        return found

    def summary(self) -> str:
        """``3 done, 2 running, 1 failed, 6 left, about 12 min to go``."""
        counted = ", ".join(f"{count} {name}" for name, count in self.counts().items())
        seconds = self.seconds_left()
        if seconds is None or len(self.results) == len(self.experiments):
            return counted
        return f"{counted}, about {duration(seconds)} to go"

    def name(self, key: str) -> str:
        return label(self.experiments[key].config.to_json())


class GridLines(GridTally):
    """A line for each experiment that ends."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def begin(self, experiments: Sequence[Experiment], done: Sequence[Result]) -> None:
        super().begin(experiments, done)
        self.message(f"grid of {len(self.experiments)} experiments: {self.summary()}")

    def ended(self, result: Result) -> None:
        super().ended(result)
        self.message(f"{self.name(result.key)}: {outcome(result)}; {self.summary()}")

    def put_back(self, key: str, reason: str) -> None:
        super().put_back(key, reason)
        self.message(f"{self.name(key)}: {reason}")

    def message(self, text: str) -> None:
        say(self.console, text)

    def close(self) -> None:
        best = [f"{task} {score(result)}" for task, result in self.best().items()]
        self.message("; ".join([self.summary(), *(["best: " + ", ".join(best)] if best else [])]))


class GridTable(GridLines):
    """What runs, how far it is and what is best, redrawn in place; lines only for failures."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Live(
            console=console, get_renderable=self.draw, refresh_per_second=2, transient=True
        )

    def begin(self, experiments: Sequence[Experiment], done: Sequence[Result]) -> None:
        GridTally.begin(self, experiments, done)
        self.live.start()

    def ended(self, result: Result) -> None:
        GridTally.ended(self, result)
        if result.error is not None:
            self.message(f"{self.name(result.key)}: {outcome(result)}")

    def close(self) -> None:
        self.live.stop()
        super().close()

    def draw(self) -> RenderableType:
        """Called from the thread that redraws, hence the copies."""
        running = Table("running", "epoch", "steps", "score", "to go", box=None, pad_edge=False)
        for key, state in list(self.running.items()):
            cells = ["", "starting", "", ""]
            if (now := state.now) is not None:
                known = "" if now.score is None else f"{now.score:.4g}"
                cells = [f"{now.epoch}/{now.epochs}", f"{now.step}/{now.steps}", known]
                cells.append(duration(now.seconds_left))
            running.add_row(Text(self.name(key)), *cells)
        best = Table("best so far", "test", "of", box=None, pad_edge=False)
        for task, result in self.best().items():
            best.add_row(Text(task), score(result), Text(label(result.config)))
        parts: list[RenderableType] = [Text(self.summary(), style="bold")]
        parts += [table for table in (running, best) if table.row_count]
        return Group(*parts)


def grid_view(console: Console) -> Watch:
    """The live view if somebody is looking, lines otherwise."""
    return GridTable(console) if console.is_terminal else GridLines(console)


def label(config: Mapping[str, Any]) -> str:
    """``digits S4D-inv imag_scale=100 48x2 seed 0``: tells the experiments of a table apart."""
    model, method = config["model"], config["method"]
    kind = model["architecture"]
    if kind == "ssm":
        name = {"cauchy": "S4", "softmax": "DSS"}.get(method["kernel"], "S4D")
        usual = asdict(METHODS[name.lower()])
        changed = (f" {k}={v}" for k, v in method.items() if k not in SETTING and v != usual[k])
        kind = f"{name}-{method['init']}{''.join(changed)}"
    size = f"{model['d_model']}x{model['n_layers']}"
    return f"{config['task']} {kind} {size} seed {config['training']['seed']}"


def score(result: Result) -> str:
    """``91.20%``, or an error in its unit."""
    return METRICS[result.summary["metric"]].show(result.test)


def outcome(result: Result) -> str:
    if result.error is not None:
        return f"failed: {result.error.strip().splitlines()[0]}"
    taken = duration(result.seconds)
    return f"test {result.summary['metric']} {score(result)} in {taken}"
