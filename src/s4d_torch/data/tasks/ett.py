"""Electricity transformers: oil temperature and six loads per hour, two years, two stations.

The customary split takes 12 months of 30 days to learn from, 4 to validate and 4 to test, and
leaves the rest; a window may begin before its split, what is predicted may not. As a task of the
usual kind, one number is predicted: the oil temperature some hours after a window. Forecasts of
whole horizons are the business of ``S4DForecaster`` and ``s4d forecast``.
"""

import csv
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder, Source
from s4d_torch.data.task import LAPTOP, Task, check_at_least, register

MONTH = 30 * 24  # hours
ENDS = (12 * MONTH, 16 * MONTH, 20 * MONTH)  # of the three splits
COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")

FOLDER = "ETT-small"
ADDRESS = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"


class Transformer(NamedTuple):
    """Hourly time stamps (hours,) and values (hours, 7), the oil temperature last."""

    times: Array
    values: Array


@dataclass(frozen=True)
class EttOptions:
    """Windows of seven columns, and the oil temperature some hours after each."""

    window: int = 336
    """hours that are read"""
    ahead: int = 24
    """hours from the end of a window to the temperature that is predicted"""

    def __post_init__(self) -> None:
        check_at_least(1, self, "window", "ahead")
        if self.window + self.ahead > ENDS[0]:
            raise ValueError(
                f"window {self.window} and ahead {self.ahead} do not fit into the {ENDS[0]} hours "
                "to learn from; make one of them smaller"
            )


def read_transformer(path: Path) -> Transformer:
    """The rows of the customary split, of a file as it was published."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    if not rows or rows[0] != ["date", *COLUMNS]:
        raise ValueError(f"{path}:1: expected the columns date, {', '.join(COLUMNS)}")
    if len(rows) <= ENDS[-1]:
        raise ValueError(f"{path}: {len(rows) - 1} hours, expected {ENDS[-1]} or more")
    used = rows[1 : ENDS[-1] + 1]
    try:
        times = np.array([row[0].replace(" ", "T") for row in used], dtype="M8[s]")
        values = np.array([row[1:] for row in used], dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path} holds a row that is not a time and numbers: {error}") from error
    if (np.diff(times) != np.timedelta64(1, "h")).any():
        raise ValueError(f"{path}: the rows are not an hour apart; is the download complete?")
    return Transformer(times, values)


def load_ett(name: str, options: EttOptions, folder: DataFolder) -> Dataset:
    """Windows (n, window, 7) of float32 in the file's units, with the oil temperature in degrees.

    Signals are kept once; windows are views. Inputs and targets are standardised with the mean and
    deviation of the 12 months of training.
    """
    path = folder.require(f"{FOLDER}/{name}.csv", _source(name))
    values = read_transformer(path).values
    every = np.lib.stride_tricks.sliding_window_view(
        values.astype(np.float32), options.window, axis=0
    )
    reach = options.window + options.ahead - 1  # from the first hour of a window to its target
    windows = Sequences(every[: len(values) - reach].swapaxes(1, 2))
    whole = Split.whole(windows, values[reach:, -1])
    begins = np.clip(np.array([0, *ENDS]) - reach, 0, None)
    parts = [whole.part(np.arange(*pair)) for pair in pairwise(begins)]
    mean, deviation = values[: ENDS[0]].mean(0), values[: ENDS[0]].std(0)
    signature = Signature(
        "regression",
        features=len(COLUMNS),
        outputs=1,
        length=options.window,
        input_shift=tuple(mean.tolist()),
        input_scale=tuple((1 / deviation).tolist()),
        target_shift=float(mean[-1]),
        target_scale=float(deviation[-1]),
        sample_rate=1 / 3600,
        channels=COLUMNS,
        target="OT",
    )
    return Dataset.of(parts, signature).grouped()  # neighbours are alike


def _source(name: str) -> tuple[Source, ...]:
    return (Source(f"{ADDRESS}/{name}.csv", DIGESTS[name], into=FOLDER),)


DIGESTS = {
    "ETTh1": "sha256:f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2": "sha256:a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
}

for _name in DIGESTS:
    register(
        Task(
            name=_name.lower(),
            summary=f"oil temperature of a transformer a day ahead, station {_name[-1]}",
            options=EttOptions,
            load=partial(load_ett, _name),
            metric="rmse",
            length=EttOptions.window,
            size="14 400 hours of 7 columns, 3 MB",
            licence="CC BY-ND 4.0",
            citation="Zhou et al. 2021, Informer: Beyond Efficient Transformer",
            sources=_source(_name),
            files=(f"{FOLDER}/{_name}.csv",),
            small=replace(
                LAPTOP,
                n_layers=2,
                d_model=32,
                epochs=3,
                lr=0.002,
                pooling="last",
                bidirectional=False,
                dt_min=2e-3,
                dt_max=0.5,
            ),
        )
    )
