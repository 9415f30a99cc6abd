"""Vital signs from ECG and pulse: the BIDMC records, cut into windows of 32 seconds.

53 records of 8 minutes, 125 samples per second, with the numbers of the bedside monitor once per
second. A window takes 4000 samples of ECG lead II and of the pulse oximeter (PLETH), one begins
every 3 seconds, and its target is the mean of the monitor's 32 values within it. A window in which
any of these values or a sample is missing is left out: of 7950 windows 12 for the heart rate, 153
for the respiratory rate, 192 for the oxygen saturation (150 of them in a record without any). A
respiratory rate of 0, which one record has for a while, is taken as the monitor gave it.

46 patients are few voices: a model that has heard so many hearts knows them by their beat. Copies
of their records played slower and faster (``tempos``), whose numbers per minute change along, leave
it nothing to go by but the time between beats.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.files.wfdb import WfdbRecord, read_record
from s4d_torch.data.folder import DataFolder, MissingDataError, Scratch, Source, require_files
from s4d_torch.data.splits import cut_randomly
from s4d_torch.data.task import ARENA, LAPTOP, Task, check_at_least, check_choices, register

RATE = 125
RECORDED = 480  # seconds of a record
SECONDS, APART = 32, 3  # of a window, and from one to the next
LENGTH = SECONDS * RATE
INPUTS = ("II", "PLETH")
PER_MINUTE = ("HR", "RESP")
VALIDATION, TEST = 0.15, 0.15
SLOWEST, FASTEST = 0.6, 1.7  # tempos of copies
LOUDNESS = 0.4  # the standard deviation of the logarithm of what they are multiplied by
FEWER = 4  # of the windows of a copy every so manieth is learned from
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
    """of the random splits, and of the copies"""
    seconds: int = SECONDS
    """of a window"""
    sample_rate: Literal[125, 25] = 125
    """samples per second; at 25 each is the mean of five"""
    tempos: int = 0
    """copies of each record to learn from that are played slower or faster, 0.6 to 1.7 times, and
    louder or softer; for the heart and respiratory rate, which change along, and split patient"""

    def __post_init__(self) -> None:
        check_choices(self, split=SplitBy)
        check_at_least(1, self, "seconds")
        check_at_least(0, self, "tempos")
        if self.seconds > RECORDED:
            raise ValueError(f"seconds {self.seconds}: a record has {RECORDED}")
        if self.sample_rate not in (RATE, RATE // 5):
            raise ValueError(f"sample_rate {self.sample_rate}: choose {RATE} or {RATE // 5}")
        if self.tempos and self.split != "patient":
            raise ValueError(
                f"tempos {self.tempos} needs split 'patient', got {self.split!r}: copies of what "
                "is tested would be learned from"
            )

    @property
    def length(self) -> int:
        """Samples of a window."""
        return self.seconds * self.sample_rate

    @property
    def stride(self) -> int:
        """Samples from the beginning of one window to that of the next."""
        return APART * self.sample_rate


class _Windows(NamedTuple):
    """Windows over one long signal: window i begins at sample ``stride * i`` of ``signals``.

    signals (samples, 2); targets (windows,) with NaN for windows that are not to be used, among
    them those that reach from one record into the next; patients (windows,) numbers them; copies
    (windows,) are those of records played at another tempo.
    """

    signals: Array
    targets: Array
    patients: Array
    copies: Array


def load_bidmc(number: str, options: BidmcOptions, folder: DataFolder) -> Dataset:
    """Windows (n, length, 2) with the mean of ``number``: HR and RESP per minute, or SpO2 in %.

    Signals are kept once, in millivolts and in the oximeter's own unit; windows are views of them.
    Inputs and targets are standardised with the mean and deviation of the training windows.
    """
    if options.tempos and number not in PER_MINUTE:
        raise ValueError(
            f"tempos {options.tempos}: a record that is played faster has another heart and "
            f"respiratory rate, but no other {number}; leave it out"
        )
    headers = _find_headers(folder)
    files = [*headers, *(path.with_suffix(".dat") for path in headers)]
    files += [path.with_name(f"{path.stem}n{path.suffix}") for path in files]
    require_files(files, "is the download complete?")
    stored = folder.prepared(
        f"bidmc-{number.lower()}",
        {"number": number, "groups": True, **asdict(options)},
        files,
        lambda scratch: _build(_read_windows(headers, number, options, scratch), options),
    )
    views = Sequences(_view(stored.train.inputs[0].values, options))
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


def _view(signals: Array, options: BidmcOptions) -> Array:
    """All windows of a long signal, (windows, length, features), without copying it."""
    every = np.lib.stride_tricks.sliding_window_view(signals, options.length, axis=0)
    return every[:: options.stride].transpose(0, 2, 1)


def _read_windows(
    headers: list[Path], number: str, options: BidmcOptions, scratch: Scratch
) -> _Windows:
    """Put the records one behind the other, each filled up with zeros to a multiple of a stride."""
    pieces, targets, patients, copies = [], [], [], []
    for place, path in enumerate(headers):
        record = _read_at(RATE, path)
        numerics = _read_at(1, path.with_name(f"{path.stem}n.hea"))
        signal = np.stack([record[name] for name in INPUTS], axis=1).astype(np.float32)
        # who was recorded, from the comment on the source; some patients have several records
        found = re.search(r"matched/(s\d+)", " ".join(record.header.comments))
        for tempo, gains in _tempos(options, place):
            piece = _played(signal, tempo, RATE // options.sample_rate) * gains
            targets.append(_window_targets(piece, numerics[number], tempo, options))
            count = len(targets[-1])
            pieces.append(np.pad(piece, ((0, count * options.stride - len(piece)), (0, 0))))
            patients += [found[1] if found else path.stem] * count
            copies += [tempo != 1] * count
    signals = scratch.array((sum(map(len, pieces)), len(INPUTS)), np.float32)
    signals[:] = np.concatenate(pieces)
    count = len(_view(signals, options))
    owners = np.unique(patients, return_inverse=True)[1]
    return _Windows(
        signals, np.concatenate(targets)[:count], owners[:count], np.array(copies)[:count]
    )


def _tempos(options: BidmcOptions, record: int) -> Iterator[tuple[float, Array]]:
    """How fast and how loud, (2,), a record is played: first as it is, then its copies."""
    yield 1.0, np.ones(len(INPUTS), dtype=np.float32)
    random = np.random.default_rng([options.split_seed, record])
    for _ in range(options.tempos):
        tempo = np.exp(random.uniform(np.log(SLOWEST), np.log(FASTEST)))
        yield float(tempo), np.exp(random.normal(0, LOUDNESS, len(INPUTS))).astype(np.float32)


def _played(signal: Array, tempo: float, every: int) -> Array:
    """A signal (samples, features) at a tempo, as means of ``every`` samples, one for as many."""
    if every > 1:
        signal = np.lib.stride_tricks.sliding_window_view(signal, every, axis=0).mean(-1)
    if tempo == 1:
        return signal[::every]
    places = np.arange(0, len(signal) - 1, every * tempo)
    known = np.arange(len(signal))
    return np.stack([np.interp(places, known, x) for x in signal.T], axis=1).astype(np.float32)


def _read_at(rate: int, path: Path) -> WfdbRecord:
    record = read_record(path)
    if (found := record.header.sample_rate) != rate:
        raise ValueError(f"{path}: {found} samples per second, expected {rate}")
    return record


def _window_targets(signals: Array, numeric: Array, tempo: float, options: BidmcOptions) -> Array:
    """One target for each stride of a record; NaN where a window has none, or does not fit in.

    Played ``tempo`` times as fast, a window takes more of the monitor's seconds, and what is
    counted per minute is more by as much.
    """
    length, stride = options.length, options.stride
    targets = np.full(-(-len(signals) // stride), np.nan)
    for i in range((len(signals) - length) // stride + 1):
        whole = np.isfinite(signals[i * stride : i * stride + length]).all()
        begin, end = (int(tempo * seconds) for seconds in (APART * i, APART * i + options.seconds))
        if whole and begin < end <= len(numeric):
            targets[i] = tempo * numeric[begin:end].mean()
    return targets


def _build(windows: _Windows, options: BidmcOptions) -> Dataset:
    usable = np.flatnonzero(np.isfinite(windows.targets) & ~windows.copies)
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
    played = np.flatnonzero(np.isfinite(windows.targets) & windows.copies)[::FEWER]
    learned = np.isin(windows.patients[played], windows.patients[parts[0]])
    parts[0] = np.concatenate([parts[0], played[learned]])
    stored = Sequences(windows.signals)  # load_bidmc makes windows of them
    splits = [Split((stored,), windows.targets, part, groups=windows.patients) for part in parts]
    mean, deviation = _moments(windows.signals, parts[0], options)
    targets = splits[0].labels()
    signature = Signature(
        "regression",
        features=len(INPUTS),
        outputs=1,
        length=options.length,
        input_shift=tuple(mean.tolist()),
        input_scale=tuple((1 / deviation).tolist()),
        target_shift=float(targets.mean()),
        target_scale=float(targets.std()) or 1.0,
        sample_rate=options.sample_rate,
    )
    return Dataset.of(splits, signature)


def _moments(signals: Array, index: Array, options: BidmcOptions) -> tuple[Array, Array]:
    """Mean and deviation of the windows of ``index`` per feature, (2,) each.

    A stretch of ``stride`` samples counts as often as there are windows over it.
    """
    steps = np.zeros(len(signals) + 1)
    np.add.at(steps, index * options.stride, 1)
    np.add.at(steps, index * options.stride + options.length, -1)
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
