"""What decides a run: task, data, model, method and training, as plain data."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from s4d_torch.data.dataset import Kind
from s4d_torch.data.dropping import DROPPING
from s4d_torch.data.task import TASKS, Hyperparameters, Task
from s4d_torch.nn import validate
from s4d_torch.nn.method import Method
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.option_types import check_types, make_plain
from s4d_torch.training.schedule import SCHEDULES

PRESETS = ("paper", "small")

# Options that came later. At their defaults a config in JSON leaves them out, so that runs and
# results from before they existed are still those of the same config.
LATER = (
    ("method", "dt_scales"),
    ("training", "rate_jitter"),
    ("training", "class_weight"),
    ("training", "steps"),
    ("training", "init_from"),
    ("training", "pack"),
    ("training", "tbptt"),
)
LATER_OF_DATA = {
    "arrays": ("missing", "groups", "times"),
    "fsdd-audio": ("join_seconds",),
    "audio-folder": ("resample", "mono", "skip_bad", "groups"),
    "table": ("layout", "missing", "groups", "time_column"),
    "ucr": (*DROPPING, "times"),
    "fsdd": DROPPING,
    **dict.fromkeys(("sc35", "sc35-ar"), (*DROPPING, "fold")),
    **dict.fromkeys(("bidmc-hr", "bidmc-rr", "bidmc-spo2"), ("seconds", "sample_rate", "tempos")),
}
USUAL_METRICS: dict[Kind, str] = {
    "classification": "accuracy",
    "regression": "rmse",
    "generation": "bits",
    "tracking": "mse",
}
FEWEST_EPOCHS = 20  # that epochs "auto" stands for, where the data is large


@dataclass(frozen=True)
class ModelConfig:
    """The network around the layers."""

    architecture: str = "ssm"
    """ssm, or a baseline: lstm, transformer, convnet or resnet"""
    n_layers: int = 4
    """residual blocks"""
    d_model: int = 64
    """features between blocks, H"""
    d_state: int = 64
    """state size of each feature, N"""
    norm: str = "layer"
    """layer, batch or none"""
    prenorm: bool = True
    """normalise before the layer, not after the residual"""
    dropout: float = 0.0
    """part of the features dropped in training"""
    tie_dropout: bool = False
    """drop a feature over the whole sequence"""
    drop_path: float = 0.0
    """part of the blocks skipped in training, more often the deeper"""
    activation: str = "gelu"
    """gelu, relu, silu, tanh or none"""
    mixing: str = "glu"
    """how features mix after the layer: glu, linear or none"""
    pooling: Literal["mean", "last", "none"] = "mean"
    """one output per sequence: the mean over it, or its last position; none: one per step"""
    engine: str = "auto"
    """how the layers compute: auto, fft, direct, chunk or scan"""

    def __post_init__(self) -> None:
        check_types(self)
        make_plain(self)


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW and its schedule. A, B and dt of the layers learn slowly and without decay."""

    lr: float = 0.01
    """learning rate"""
    ssm_lr: float | None = None
    """learning rate of A, B and dt; by default the smaller of 0.001 and lr"""
    weight_decay: float = 0.05
    """of weights and of C, D; never of biases, norms, A, B and dt"""
    schedule: str = "cosine"
    """cosine, step, multistep or constant, each after the warm-up"""
    warmup: float = 0.1
    """part of all steps in which the learning rate rises from 0"""
    decay: float = 0.1
    """factor of the schedules step and multistep"""
    period: float = 0.3
    """part of the steps after the warm-up between two decays of the schedule step"""
    milestones: tuple[float, ...] = (0.6, 0.85)
    """parts of the steps after the warm-up at which the schedule multistep decays"""
    clip: float | None = None
    """largest norm of the gradient"""
    accumulate: int = 1
    """batches whose gradients are added up before a step"""

    def __post_init__(self) -> None:
        check_types(self, finite=False)
        make_plain(self)
        validate.one_of("schedule", self.schedule, SCHEDULES)
        _at_least(self, "lr", "ssm_lr", "weight_decay", "decay", low=0.0)
        _at_least(self, "accumulate", low=1)
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup must be in [0, 1), a part of all steps, got {self.warmup}")
        if not 0 < self.period <= 1:
            raise ValueError(f"period must be in (0, 1], a part of the steps, got {self.period}")
        if not all(0 <= part <= 1 for part in self.milestones):
            raise ValueError(f"milestones are parts of the steps, 0 to 1, got {self.milestones}")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ValueError(f"clip must be positive, got {self.clip}; leave it out not to clip")


@dataclass(frozen=True)
class TrainingConfig:
    """How long and on what."""

    epochs: int | Literal["auto"] = 10
    """passes over the training data; auto: as many as make up the steps, at least 20"""
    batch_size: int = 32
    """sequences in a batch, over all processes together"""
    seed: int = 0
    """of the first weights, the order of the data and the dropout"""
    metric: str = "auto"
    """chooses the best weights, and of equal ones the lower loss: accuracy, f1, auroc, rmse, mae or
    bits; auto: the task's"""
    precision: Literal["float32", "bfloat16", "float64"] = "float32"
    """bfloat16 is autocast: weights and state spaces stay in float32"""
    label_smoothing: float = 0.0
    """part of a target spread over all classes"""
    class_weight: Literal["none", "balanced"] = "none"
    """balanced: cases count in the loss as their class is rare in training"""
    patience: int | None = None
    """stop after so many epochs without a better validation score, or an equal one of lower loss"""
    rate_jitter: float = 0.0
    """train each step at another sampling rate, up to this part faster or slower (say 0.2)"""
    ema: float | None = None
    """keep a moving average of the weights with this decay (say 0.999) and judge that"""
    train_size: int | None = None
    """learn from so many training sequences at most"""
    eval_size: int | None = None
    """judge by so many validation and test sequences at most"""
    skip_bad_batches: bool = False
    """leave out a batch whose loss or gradient is not finite, rather than stop"""
    steps: int = 600
    """steps to train for at least, where epochs is auto"""
    init_from: Path | None = None
    """fine-tune: begin with the best weights of the run in this folder"""
    pack: bool = False
    """put sequences of unlike lengths one after the other into one row rather than pad them;
    batches have about the same number of samples then, and batch_size sequences in the mean"""
    tbptt: int | None = None
    """cut long sequences into pieces of so many samples, and make a step after each: the state is
    carried on, the gradient ends with the piece; for tasks with an answer at each sample"""

    def __post_init__(self) -> None:
        check_types(self, finite=False)
        make_plain(self)
        validate.one_of("metric", self.metric, ("auto", *METRICS))
        validate.one_of("class_weight", self.class_weight, ("none", "balanced"))
        if isinstance(self.epochs, str):
            validate.one_of("epochs", self.epochs, ("auto",))
        else:
            _at_least(self, "epochs", low=1)
        _at_least(self, "batch_size", "patience", "train_size", "eval_size", "steps", low=1)
        _at_least(self, "tbptt", low=1)
        if self.pack and self.tbptt is not None:
            raise ValueError("pack and tbptt exclude each other: a long sequence has its own row")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be a number from 0 to 2^63 - 1, got {self.seed}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if not 0 <= self.rate_jitter < math.inf:
            raise ValueError(f"rate_jitter must be 0 or a positive number, got {self.rate_jitter}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema must be between 0 and 1, got {self.ema}")

    @property
    def known_epochs(self) -> int:
        """The epochs of a run, whose data has decided what auto stands for."""
        if self.epochs == "auto":
            raise ValueError("epochs is 'auto', which only the data decides; give a number")
        return self.epochs

    def epochs_for(self, steps_per_epoch: int) -> int:
        """How many epochs there are, once it is known how many steps make one."""
        if self.epochs == "auto":
            return max(FEWEST_EPOCHS, math.ceil(self.steps / steps_per_epoch))
        return self.known_epochs


PARTS: dict[str, Any] = {
    "model": ModelConfig,
    "method": Method,
    "optimizer": OptimizerConfig,
    "training": TrainingConfig,
}


@dataclass(frozen=True)
class Config:
    """Everything that decides a run; two runs of one config end in the same weights."""

    task: str = "digits"
    data: Any = None
    model: ModelConfig = field(default_factory=ModelConfig)
    method: Method = field(default_factory=Method)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def metric(self, kind: Kind) -> str:
        """The metric that the best weights are chosen by."""
        name = self.training.metric
        if name == "auto":
            fitting = TASKS[self.task].metric if self.task in TASKS else None
            if fitting is not None and METRICS[fitting].kind == kind:
                return fitting
            return USUAL_METRICS[kind]
        if METRICS[name].kind != kind:
            raise ValueError(f"metric {name!r} is for a {METRICS[name].kind}, this is a {kind}")
        return name

    def to_json(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        of_data = [("data", name) for name in LATER_OF_DATA.get(self.task, ())]
        for part, name in (*LATER, *of_data):
            if described[part][name] == getattr(type(getattr(self, part)), name):
                del described[part][name]
        return described

    @staticmethod
    def from_json(described: Mapping[str, Any]) -> "Config":
        """A config as :meth:`to_json` gave it."""
        for part in ("task", "data", *PARTS):
            if part not in described:
                raise ValueError(f"a config needs {part}, got {', '.join(described) or 'nothing'}")
            if part != "task" and not isinstance(described[part], Mapping):
                raise TypeError(f"{part} must hold options by name, got {described[part]!r}")
        task = TASKS[described["task"]]
        parts = {"data": task.options, **PARTS}
        for part in ("model", "optimizer", "training"):  # a default would be another config
            needed = [f.name for f in fields(PARTS[part]) if (part, f.name) not in LATER]
            if missing := [name for name in needed if name not in described[part]]:
                raise ValueError(f"{part} has no {', '.join(missing)}")
        made = {name: _from_json(kind, described[name]) for name, kind in parts.items()}
        return Config(task.name, **made)


def default_config(task: Task[Any] | str, preset: str | None = None, **data: Any) -> Config:
    """The settings of a task: the paper's row where it has one, or a small model for a laptop.

    ``preset`` names one of the two, ``data`` are options of the task's loader.
    """
    task = TASKS[task] if isinstance(task, str) else task
    rows = dict(zip(PRESETS, (task.paper, task.small), strict=True))
    if preset is not None:
        validate.one_of("preset", preset, rows)
    row = rows[preset] if preset else task.paper or task.small
    if row is None:
        raise ValueError(f"the paper has no settings for {task.name!r}; use preset 'small'")
    return config_from(task, task.options(**data), row)


def config_from(task: Task[Any], options: Any, row: Hyperparameters) -> Config:
    """A row of the hyper-parameter table as a config."""
    taken = {f.name: getattr(row, f.name) for f in fields(row)}
    parts = {
        part: kind(**{f.name: taken[f.name] for f in fields(kind) if f.name in taken})
        for part, kind in PARTS.items()
    }
    return Config(task.name, options, **parts)


class _Nothing:
    def __repr__(self) -> str:
        return "(nothing)"


NOTHING = _Nothing()  # where one of two configs has no such option


def changed_options(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The options in which two configs in JSON differ, with both values: ``model.d_state``."""
    before, after = dict(flat_options(old)), dict(flat_options(new))
    pairs = {name: (before.get(name, NOTHING), after.get(name, NOTHING)) for name in before | after}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Where two configs in JSON differ: ``model.d_state: 64 -> 32``."""
    changes = changed_options(old, new).items()
    return [f"{name}: {before!r} -> {after!r}" for name, (before, after) in changes]


def flat_options(described: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``("model.d_state", 64)`` and so on."""
    for name, value in described.items():
        if isinstance(value, Mapping):
            yield from flat_options(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _from_json(kind: type[Any], described: Mapping[str, Any]) -> Any:
    """A dataclass from JSON, which knows neither tuples nor paths."""
    types = {f.name: str(f.type) for f in fields(kind)}
    values = dict(described)
    for name, value in described.items():
        validate.one_of("option", name, types)
        if isinstance(value, list):
            values[name] = tuple(value)
        elif isinstance(value, str) and "Path" in types[name]:
            values[name] = Path(value)
    made = kind(**values)
    check_types(made)
    return made


def _at_least(config: Any, *names: str, low: float) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not value >= low:
            raise ValueError(f"{name} must be at least {low:g}, got {value}")
        if value == math.inf:
            raise ValueError(f"{name} must be finite, got {value}")
