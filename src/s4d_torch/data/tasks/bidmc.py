"""Vital signs from ECG and pulse: the BIDMC records, cut into windows of 32 seconds.

53 records of 8 minutes, 125 samples per second, with the numbers of the bedside monitor once per
second. A window takes 4000 samples of ECG lead II and of the pulse oximeter (PLETH), one begins
every 3 seconds, and its target is the mean of the monitor's 32 values within it. A window in which
any of these values or a sample is missing is left out: of 7950 windows 12 for the heart rate, 153
for the respiratory rate, 192 for the oxygen saturation (150 of them in a record without any). A
respiratory rate of 0, which one record has for a while, is taken as the monitor gave it.
"""

import re
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.files.wfdb import WfdbRecord, read_record
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch, Source, require_files
from s4d_torch.data.splits import cut_randomly
from s4d_torch.data.task import ARENA, LAPTOP, Task, check_choices, register

RATE = 125
LENGTH = 32 * RATE
STRIDE = 3 * RATE
INPUTS = ("II", "PLETH")
PER_MINUTE = ("HR", "RESP")
VALIDATION, TEST = 0.15, 0.15
SplitBy = Literal["window", "patient"]

FOLDER = "bidmc"
UNPACKED = "bidmc-ppg-and-respiration-dataset-1.0.0"
ADDRESS = "https://physionet.org/static/published-projects/bidmc"
SOURCES = (Source(f"{ADDRESS}/{UNPACKED}.zip", into=FOLDER),)


@dataclass(frozen=True)
class BidmcOptions:
    """Windows of 32 s of ECG and PLETH, 70% to learn from, 15% to validate, 15% to test."""

    split: SplitBy = "window"
    """window: at random, as published, where a test window overlaps training windows of the same
    patient; patient: no patient is in two splits"""
    split_seed: int = 0
    """of the random splits"""

    def __post_init__(self) -> None:
        check_choices(self, split=SplitBy)


class _Windows(NamedTuple):
    """Windows over one long signal: window i begins at sample ``STRIDE * i`` of ``signals``.

    signals (samples, 2); targets (windows,) with NaN for windows that are not to be used, among
    them those that reach from one record into the next; patients (windows,) numbers them.
    """

    signals: Array
    targets: Array
    patients: Array


def load_bidmc(number: str, options: BidmcOptions, folder: DataFolder) -> Dataset:
    """Windows (n, 4000, 2) with the mean of ``number``: HR and RESP per minute, or SpO2 in %.

    Signals are kept once, in millivolts and in the oximeter's own unit; windows are views of them.
    Inputs and targets are standardised with the mean and deviation of the training windows.
    """
    headers = _find_headers(folder)
    files = [*headers, *(path.with_suffix(".dat") for path in headers)]
    files += [path.with_name(f"{path.stem}n{path.suffix}") for path in files]
    require_files(files, "is the download complete?")
    stored = folder.prepared(
        f"bidmc-{number.lower()}",
        {"number": number, "split": options.split, "seed": options.split_seed, "groups": True},
        files,
        lambda scratch: _build(_read_windows(headers, number, scratch), options),
    )
    views = Sequences(_view(stored.train.inputs[0].values))
    # windows of a patient stand together: a few of all are a few of each patient
    dataset = stored.mapped(lambda split: replace(split, inputs=(views,))).grouped()
    return replace(dataset, signature=replace(stored.signature, per_time=number in PER_MINUTE))


def _find_headers(folder: DataFolder) -> list[Path]:
    """The headers of the signals; those of the numerics have an n at the end of their name."""
    root = folder.require(FOLDER, SOURCES)
    for place in (root, root / UNPACKED):
        if headers := sorted(place.glob("bidmc[0-9][0-9].hea")):
            return headers
    raise MissingDataError(f"{root}: no records bidmcNN.hea; unpack {SOURCES[0].name} there")


def _view(signals: Array) -> Array:
    """All windows of a long signal, (windows, LENGTH, features), without copying it."""
    every = np.lib.stride_tricks.sliding_window_view(signals, LENGTH, axis=0)
    return every[::STRIDE].transpose(0, 2, 1)


def _read_windows(headers: list[Path], number: str, scratch: Scratch) -> _Windows:
    """Put the records one behind the other, each filled up with zeros to a multiple of STRIDE."""
    pieces, targets, patients = [], [], []
    for path in headers:
        record = _read_at(RATE, path)
        numerics = _read_at(1, path.with_name(f"{path.stem}n.hea"))
        piece = np.stack([record[name] for name in INPUTS], axis=1).astype(np.float32)
        targets.append(_window_targets(piece, numerics[number]))
        pieces.append(np.pad(piece, ((0, len(targets[-1]) * STRIDE - len(piece)), (0, 0))))
        # who was recorded, from the comment on the source; some patients have several records
        found = re.search(r"matched/(s\d+)", " ".join(record.header.comments))
        patients += [found[1] if found else path.stem] * len(targets[-1])
    signals = scratch.array((sum(map(len, pieces)), len(INPUTS)), np.float32)
    signals[:] = np.concatenate(pieces)
    count = len(_view(signals))
    owners = np.unique(patients, return_inverse=True)[1]
    return _Windows(signals, np.concatenate(targets)[:count], owners[:count])


def _read_at(rate: int, path: Path) -> WfdbRecord:
    record = read_record(path)
    if (found := record.header.sample_rate) != rate:
        raise ValueError(f"{path}: {found} samples per second, expected {rate}")
    return record


def _window_targets(signals: Array, numeric: Array) -> Array:
    """One target for each stride of a record; NaN where a window has none, or does not fit in."""
    targets = np.full(-(-len(signals) // STRIDE), np.nan)
    per_window, step = LENGTH // RATE, STRIDE // RATE
    for i in range((len(signals) - LENGTH) // STRIDE + 1):
        whole = np.isfinite(signals[i * STRIDE : i * STRIDE + LENGTH]).all()
        values = numeric[i * step : i * step + per_window]
        if whole and len(values) == per_window:
            targets[i] = values.mean()
    return targets


def _build(windows: _Windows, options: BidmcOptions) -> Dataset:
    usable = np.flatnonzero(np.isfinite(windows.targets))
    seed = options.split_seed
    if options.split == "window":
        parts = [usable[part] for part in cut_randomly(len(usable), (VALIDATION, TEST), seed)]
    else:
        patients = np.unique(windows.patients[usable])
        groups = cut_randomly(len(patients), (VALIDATION, TEST), seed)
        parts = [usable[np.isin(windows.patients[usable], patients[group])] for group in groups]
    if not all(len(part) for part in parts):
        raise ValueError(
            f"{len(usable)} windows do not make three splits by {options.split}: they have "
            f"{', '.join(str(len(part)) for part in parts)} windows; are there more records?"
        )
    stored = Sequences(windows.signals)  # load_bidmc makes windows of them
    splits = [Split((stored,), windows.targets, part, groups=windows.patients) for part in parts]
    mean, deviation = _moments(windows.signals, parts[0])
    targets = splits[0].labels()
    signature = Signature(
        "regression",
        features=len(INPUTS),
        outputs=1,
        length=LENGTH,
        input_shift=tuple(mean.tolist()),
        input_scale=tuple((1 / deviation).tolist()),
        target_shift=float(targets.mean()),
        target_scale=float(targets.std()) or 1.0,
        sample_rate=RATE,
    )
    return Dataset.of(splits, signature)


def _moments(signals: Array, index: Array) -> tuple[Array, Array]:
    """Mean and deviation of the windows of ``index`` per feature, (2,) each.

    A stretch of STRIDE samples counts as often as there are windows over it.
    """
    steps = np.zeros(len(signals) + 1)
    np.add.at(steps, index * STRIDE, 1)
    np.add.at(steps, index * STRIDE + LENGTH, -1)
    covered = np.cumsum(steps)[:-1]
    used = covered > 0
    weights, numbers = covered[used], signals[used].astype(np.float64)
    mean = np.average(numbers, axis=0, weights=weights)
    deviation = np.sqrt(np.average((numbers - mean) ** 2, axis=0, weights=weights))
    return mean, np.where(deviation > 0, deviation, 1.0)


WIDE = replace(ARENA, d_model=128, d_state=256, norm="layer", batch_size=32, epochs=500)
# halved every 100 of the epochs that follow the warm-up's 50
PAPER = replace(WIDE, schedule="step", decay=0.5, period=100 / 450)
# RMSE in the units of the targets: heart rate, respiratory rate, saturation.
PUBLISHED: dict[str, tuple[float, ...]] = {
    "S4-LegS": (0.332, 0.247, 0.090),
    "S4-FouT": (0.339, 0.301, 0.068),
    "S4-(LegS/FouT)": (0.344, 0.163, 0.080),
    "S4D-LegS": (0.367, 0.248, 0.102),
    "S4D-Inv": (0.373, 0.254, 0.110),
    "S4D-Lin": (0.379, 0.226, 0.114),
    "UnICORNN": (1.39, 1.06, 0.869),
    "coRNN": (1.81, 1.45),
    "CKConv": (2.05, 1.214, 1.051),
    "NRDE": (2.97, 1.49, 1.29),
    "LSTM": (10.7, 2.28),
    "Transformer": (12.2, 2.61, 3.02),
    "XGBoost": (4.72, 1.67, 1.52),
    "Random Forest": (5.69, 1.85, 1.74),
    "Ridge Regress.": (17.3, 3.86, 4.16),
}

for _column, (_name, _number, _what) in enumerate(
    (
        ("bidmc-hr", "HR", "heart rate (beats per minute)"),
        ("bidmc-rr", "RESP", "respiratory rate (breaths per minute)"),
        ("bidmc-spo2", "SpO2", "blood oxygen saturation (per cent)"),
    )
):
    register(
        Task(
            name=_name,
            summary=f"{_what} from 32 s of ECG and pulse",
            options=BidmcOptions,
            load=partial(load_bidmc, _number),
            metric="rmse",
            length=LENGTH,
            size="7950 windows, 34 MB of 210 MB to download",
            licence="PhysioNet terms (ODC-BY 1.0)",
            citation="Pimentel et al. 2016, Towards a Robust Estimation of Respiratory Rate",
            sources=SOURCES,
            files=(FOLDER,),
            paper=PAPER,
            small=replace(LAPTOP, d_model=32, dropout=0.0, lr=0.01, epochs=4),
            published={name: row[_column] for name, row in PUBLISHED.items() if row[_column:]},
        )
    )
