"""The paper's tables as data: rows, columns, published numbers, and the runs behind each cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from s4d_torch._registry import Registry
from s4d_torch.data.task import TASKS
from s4d_torch.nn.method import METHODS, Method
from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.paper.recipes.scales import ablation
from s4d_torch.training.config import Config

Change = Callable[[Config], Config]


@dataclass(frozen=True)
class Column:
    """What a column shows: a task, and which number of its runs.

    ``value`` is ``test``, ``validation`` (the best epoch's), or the name of a measure.
    """

    name: str
    task: str
    value: str = "test"


@dataclass(frozen=True)
class Recipe:
    """A table: ``base(task, scale)`` changed by each row, run on each column's task.

    ``published[row][column]`` is the paper's number as printed; rows and columns without one are
    empty there. ``note`` says what a reader has to know to compare. ``without`` names cells, by row
    and column, that are not run.
    """

    name: str
    title: str
    where: str
    base: Callable[[str, str], Config]
    rows: Mapping[str, Change]
    columns: Sequence[Column]
    published: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    note: str = ""
    without: frozenset[tuple[str, str]] = frozenset()

    def cells(self) -> Iterator[tuple[str, Column]]:
        """The cells that are run: row and column, column by column."""
        for column in self.columns:
            for row in self.rows:
                if (row, column.name) not in self.without:
                    yield row, column

    def experiment(self, row: str, column: Column, scale: str, seed: int) -> Experiment:
        """The run behind a cell; columns of one task share their runs."""
        config = self.rows[row](self.base(column.task, scale))
        config = replace(config, training=replace(config.training, seed=seed))
        measures = {c.value for c in self.columns if c.task == column.task}
        extra = tuple(sorted(measures - {"test", "validation"}))
        return Experiment(config, extra)

    def experiments(self, scale: str, seeds: Sequence[int]) -> list[Experiment]:
        """All runs of the table, each once, seed by seed."""
        found = {
            made.key: made
            for seed in seeds
            for row, column in self.cells()
            for made in [self.experiment(row, column, scale, seed)]
        }
        return list(found.values())


RECIPES: Registry[Recipe] = Registry("table")


def recipe(made: Recipe) -> Recipe:
    return RECIPES.register(made.name, made)


# -- rows ------------------------------------------------------------------------------------------


def method(base: str = "s4d", **choices: Any) -> Change:
    """A row of Table 1 with some choices changed; tying, direction and dt stay the base's."""

    def change(config: Config) -> Config:
        old = config.method
        kept = {
            "n_ssm": old.n_ssm,
            "bidirectional": old.bidirectional,
            "dt_min": old.dt_min,
            "dt_max": old.dt_max,
        }
        made: Method = METHODS[base].replace(**{**kept, **choices})
        return replace(config, method=made)

    return change


def architecture(name: str, **published: Any) -> Change:
    """Another kind of network in the same setting; ``published`` are its own sizes in the paper.

    Where the setting is smaller than the paper's, so is the network: it keeps the setting's sizes.
    """

    def change(config: Config) -> Config:
        paper = TASKS[config.task].paper
        full = paper is not None and config.model.d_model == paper.d_model
        sizes = published if full else {}
        return replace(config, model=replace(config.model, architecture=name, **sizes))

    return change


VARIANTS: dict[str, Change] = {
    "S4-LegS": method("s4"),
    "S4-FouT": method("s4", init="fout"),
    "S4D-LegS": method(),
    "S4D-Inv": method(init="inv"),
    "S4D-Lin": method(init="lin"),
}


def numbers(columns: Sequence[str], table: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Rows of numbers as text, ``a | b | c``; a dash for none."""
    return {
        row: {
            column: value.strip()
            for column, value in zip(columns, values.split("|"), strict=True)
            if value.strip() != "-"
        }
        for row, values in table.items()
    }


ABLATION = [
    Column("sCIFAR", "scifar", "validation"),
    Column("SC (AR)", "sc35", "validation"),
    Column("BIDMC (SpO2)", "bidmc-spo2", "validation"),
]
_ABLATION = [column.name for column in ABLATION]

# -- parameterisation ------------------------------------------------------------------------------

recipe(
    Recipe(
        "trainable-b",
        "Trainable B and how the kernel is computed, with S4D-Inv",
        "Table 2 left, and its full results in the appendix",
        ablation,
        {
            "frozen B, softmax": method(
                init="inv", kernel="softmax", discretization="zoh", train_B=False
            ),
            "frozen B, Vandermonde": method(init="inv", discretization="zoh", train_B=False),
            "trained B, softmax": method(init="inv", kernel="softmax", discretization="zoh"),
            "trained B, Vandermonde": method(init="inv", discretization="zoh"),
        },
        ABLATION,
        numbers(
            _ABLATION,
            {
                "frozen B, softmax": "85.04 (0.22) | 89.80 (0.21) | 0.1299 (0.0048)",
                "frozen B, Vandermonde": "84.78 (0.16) | 89.62 (0.03) | 0.1355 (0.0039)",
                "trained B, softmax": "85.37 (0.43) | 90.06 (0.11) | 0.1170 (0.0039)",
                "trained B, Vandermonde": "85.37 (0.43) | 90.34 (0.18) | 0.1274 (0.0020)",
            },
        ),
        "The paper does not say which discretisation the Vandermonde rows use; ours is ZOH in all "
        "rows, which the softmax needs.",
    )
)

_PARTS = {"exp": "exp", "identity": "none", "relu": "ReLU"}
recipe(
    Recipe(
        "discretization",
        "Discretisation and the real part of A, with S4D-Inv",
        "Table 2 right, and its full results in the appendix",
        ablation,
        {
            f"{rule}, {shown}": method(init="inv", discretization=rule, constraint=constraint)
            for rule in ("bilinear", "zoh")
            for constraint, shown in _PARTS.items()
        },
        ABLATION,
        numbers(
            _ABLATION,
            {
                "bilinear, exp": "85.20 (0.18) | 89.52 (0.01) | 0.1193 (0.0069)",
                "bilinear, none": "85.35 (0.27) | 90.58 (0.37) | 0.1102 (0.0075)",
                "bilinear, ReLU": "85.06 (0.06) | 90.22 (0.25) | 0.1172 (0.0063)",
                "zoh, exp": "85.02 (0.24) | 89.93 (0.07) | 0.1303 (0.0014)",
                "zoh, none": "85.15 (0.13) | 90.19 (0.58) | 0.1289 (0.0035)",
                "zoh, ReLU": "84.98 (0.72) | 90.03 (0.13) | 0.1232 (0.0065)",
            },
        ),
    )
)

# -- initialisation --------------------------------------------------------------------------------

_CHANGES: dict[str, dict[str, Any]] = {
    "": {},
    ", Im x 0.01": {"imag_scale": 0.01},
    ", Im x 100": {"imag_scale": 100.0},
    ", random Im": {"random_imag": True},
    ", random Re": {"random_real": True},
    ", random Im and Re": {"random_imag": True, "random_real": True},
}
_PICTURE = (
    "The table is a picture in the paper's source: only the sentences around it can be compared "
    "with. Of BIDMC the paper takes the oxygen saturation (SpO2); the heart rate is our addition."
)
_INIT_ROWS = {
    **{f"S4D-Inv{name}": method(init="inv", **change) for name, change in _CHANGES.items()},
    **{f"S4D-Lin{name}": method(init="lin", **change) for name, change in _CHANGES.items()},
    "S4D-Inv2": method(init="inv2"),
    "S4D-Quad": method(init="quad"),
    "S4D-Rand": method(init="rand"),
    "S4D-Real": method(init="real"),
}
recipe(
    Recipe(
        "initialization",
        "Where A starts",
        "Table 3a",
        ablation,
        _INIT_ROWS,
        [
            Column("sCIFAR", "scifar", "validation"),
            Column("SC (AR)", "sc35", "validation"),
            Column("BIDMC (SpO2)", "bidmc-spo2", "validation"),
            Column("BIDMC (HR)", "bidmc-hr", "validation"),
        ],
        note=_PICTURE,
    )
)


def frozen(change: Change) -> Change:
    """A and B stay as they start."""

    def apply(config: Config) -> Config:
        config = change(config)
        return replace(config, method=config.method.replace(train_A=False, train_B=False))

    return apply


_ALL = {
    **VARIANTS,
    "S4-LegT": method("s4", init="legt"),
    "DSS": method("dss"),
}
recipe(
    Recipe(
        "trainable",
        "All S4 and S4D variants, with A and B frozen and trained",
        "Table 3b",
        ablation,
        {
            **{f"{name}, frozen": frozen(change) for name, change in _ALL.items()},
            **{f"{name}, trained": change for name, change in _ALL.items()},
        },
        [
            Column("sCIFAR", "scifar", "validation"),
            Column("sCIFAR, epoch 1", "scifar", "first-epoch"),
            Column("SC (AR)", "sc35", "validation"),
            Column("SC (AR), epoch 1", "sc35", "first-epoch"),
            Column("BIDMC (SpO2)", "bidmc-spo2", "validation"),
            Column("BIDMC (HR)", "bidmc-hr", "validation"),
        ],
        note=_PICTURE,
    )
)
