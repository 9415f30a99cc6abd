"""Two small models on spoken digits, side by side: a state space model and an LSTM."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from s4d_torch.data.dataset import Dataset
from s4d_torch.training import Config, Reporter, Run, default_config, train_on
from s4d_torch.training.reports.reporter import Reporters

OURS, THEIRS = "S4D", "LSTM"
COLUMNS = ("model", "test accuracy", "at half the rate", "parameters", "seconds")


@dataclass(frozen=True)
class Trial:
    """A run, the seconds after which each epoch was done, and its accuracy at half the rate."""

    run: Run
    seconds: list[float]
    at_half_rate: float

    @property
    def accuracy(self) -> float:
        return float(self.run.summary["test"]["accuracy"])

    @property
    def curve(self) -> list[float]:
        """The validation accuracy after each epoch."""
        return [float(row["validation_accuracy"]) for row in self.run.rows]

    def seconds_to(self, accuracy: float) -> float | None:
        """When the validation accuracy was first above this one; None if it never was."""
        pairs = zip(self.seconds, self.curve, strict=True)
        return next((seconds for seconds, score in pairs if score > accuracy), None)


def spoken_models(epochs: int, seed: int, *, quick: bool = False) -> dict[str, Config]:
    """S4D and an LSTM with about as many parameters; ``quick``: very small, for one epoch."""
    base = default_config("spoken")
    training = replace(base.training, epochs=epochs, seed=seed)
    model, width = base.model, 32
    if quick:
        width = 4
        model = replace(model, d_model=width, d_state=4)
        training = replace(training, epochs=1, train_size=20, eval_size=10)
    ours = replace(
        base,
        model=model,
        method=base.method.replace(init="lin"),
        # other sampling rates are heard in training; the average makes short training steady
        training=replace(training, rate_jitter=0.1, ema=0.95),
    )
    # Did best on the validation clips, of batches of 8 and 16, learning rates of 0.005 to 0.04, and
    # with or without the average.
    theirs = replace(
        ours,
        model=replace(model, architecture="lstm", n_layers=1, d_model=width),
        optimizer=replace(base.optimizer, lr=0.02, clip=1.0),
        training=replace(training, batch_size=16),
    )
    return {OURS: ours, THEIRS: theirs}


def compare(
    data: Dataset, configs: Mapping[str, Config], reporter: Callable[[str], Reporter]
) -> dict[str, Trial]:
    """A run of each config on the same data, each told about to the ``reporter`` of its name."""
    trials = {}
    for name, config in configs.items():
        few = data.shortened(train=2, test=2)
        # torch loads much of itself at the first step, and ours compiles: none of a model's speed
        train_on(few, replace(config, training=replace(config.training, epochs=1)))
        clock = _Clock()
        sizes = {"train": config.training.train_size, "test": config.training.eval_size}
        used = data.shortened(**sizes)
        run = train_on(used, config, reporter=Reporters(clock, reporter(name)))
        rate = 2.0 if config.model.architecture == "ssm" else 1.0  # an LSTM knows no time
        half = run.evaluate(used.decimated(2), rate=rate).scores["accuracy"]
        trials[name] = Trial(run, clock.seconds, half)
    return trials


@dataclass
class _Clock(Reporter):
    """Seconds since the run began, after each epoch with its validation."""

    seconds: list[float] = field(default_factory=list)
    began: float = 0.0

    def begin(self, about: Mapping[str, Any]) -> None:
        self.began = time.perf_counter()

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.seconds.append(time.perf_counter() - self.began)


def result_rows(trials: Mapping[str, Trial]) -> list[list[str]]:
    """A row of :data:`COLUMNS` for each trial."""
    return [
        [
            name,
            f"{trial.accuracy:.1%}",
            f"{trial.at_half_rate:.1%}",
            f"{trial.run.summary['parameters']:,}",
            f"{trial.seconds[-1]:.0f}",
        ]
        for name, trial in trials.items()
    ]


def verdict(trials: Mapping[str, Trial]) -> str:
    """When ours was past the best of the LSTM, in one sentence."""
    ours, theirs = trials[OURS], trials[THEIRS]
    best, whole = max(theirs.curve), theirs.seconds[-1]
    beginning = f"The {THEIRS}'s best in {whole:.0f} s is {best:.0%} of the validation clips"
    seconds = ours.seconds_to(best)
    if seconds is None:
        return f"{beginning}; {OURS} did not get past it in {ours.seconds[-1]:.0f} s."
    return (
        f"{beginning}; {OURS} was past it after {seconds:.0f} s, and reached {max(ours.curve):.0%}."
    )
