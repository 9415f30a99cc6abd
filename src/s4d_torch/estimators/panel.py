"""What scikit-learn calls X, as series: three input forms, missing values, standard units."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from sklearn.utils.validation import check_array, check_random_state
from torch import Tensor

from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Sequences
from s4d_torch.data.files.moments import read_times
from s4d_torch.data.missing_values import Missing, interpolate, unusable, without_empty_samples
from s4d_torch.nn import validate

FORMS = "(cases, channels, time), (cases, time), or a list of (channels, time) arrays"


@dataclass(frozen=True)
class Panel:
    """Many series: an array (cases, channels, time), or a list of (channels, time) arrays.

    ``times``, (time,) for each case, say when samples came, where that is known; ``dates`` are in
    seconds.
    """

    cases: Array | list[Array]
    times: list[Array] | None = None
    dates: bool = False

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def channels(self) -> int:
        return int(self.cases[0].shape[0])

    @property
    def longest(self) -> int:
        return max(case.shape[1] for case in self.cases)

    def timed(self, times: Any, clock: Clock | None) -> "Panel":
        """With the times of its samples, of the form that the clock of a model has."""
        lengths = [case.shape[1] for case in self.cases]
        dates = None if clock is None else clock.dates
        found, are_dates = read_times(plain("times", times), lengths, dates=dates)
        return replace(self, times=found, dates=are_dates)


@dataclass(frozen=True)
class Units:
    """Mean and spread of each channel: models read ``(x - shift) / scale``.

    Models that read first differences too have those of the differences after those of the
    channels: 2 channels entries.
    """

    shift: Array
    scale: Array

    @staticmethod
    def of(panel: Panel) -> "Units":
        """Those of all samples of a panel; a channel that never changes keeps its scale."""
        rounding = 8 * float(np.finfo(panel.cases[0].dtype).eps)
        found = []
        for channel in range(panel.channels):
            samples = np.concatenate([case[channel] for case in panel.cases]).astype(np.float64)
            shift, deviation = _moments(samples)
            found.append((shift, deviation if deviation > rounding * abs(shift) else 1.0))
        return Units(*np.array(found).T)

    def with_differences(self, panel: Panel) -> "Units":
        """Those of the first differences of a panel after its own.

        Differences no larger than the rounding of the values that they are of are noise: they keep
        their scale.
        """
        rounding = 8 * float(np.finfo(panel.cases[0].dtype).eps)
        found = []
        for channel in range(panel.channels):
            moves = np.concatenate([differences(case[channel]) for case in panel.cases])
            shift, deviation = _moments(moves)
            size = abs(self.shift[channel]) + self.scale[channel]
            found.append((shift, deviation if deviation > rounding * size else 1.0))
        shifts, scales = np.array(found).T
        return Units(np.append(self.shift, shifts), np.append(self.scale, scales))

    @staticmethod
    def none(channels: int) -> "Units":
        """Values are read as they are."""
        return Units(np.zeros(channels), np.ones(channels))

    def sequences(self, panel: Panel) -> Sequences:
        """The panel as models read it, (length, channels) float32 for each case.

        With first differences after the channels, if these are the units of both. What is still
        missing, a channel without a single value, is the mean.
        """
        if isinstance(panel.cases, list):
            return Sequences.of([self._read(case) for case in panel.cases])
        return Sequences(self._read(panel.cases))

    def _read(self, values: Array) -> Array:
        # in double precision: a large offset must not take the digits of what is left
        channels = values.shape[-2]
        values = np.where(np.isnan(values), self.shift[:channels, None], values)
        if len(self.shift) == 2 * channels:
            values = np.concatenate([values, differences(values)], axis=-2)
        numbers = (values - self.shift[:, None]) / self.scale[:, None]
        return np.ascontiguousarray(numbers.swapaxes(-1, -2), dtype=np.float32)


def differences(values: Array) -> Array:
    """``x[t] - x[t - 1]`` in double precision, as many as there are values; the first is 0."""
    doubles = values.astype(np.float64)
    return np.diff(doubles, axis=-1, prepend=doubles[..., :1])


def _moments(samples: Array) -> tuple[float, float]:
    """Mean and spread of those that are there."""
    samples = samples[~np.isnan(samples)]
    return (float(samples.mean()), float(samples.std())) if len(samples) else (0.0, 0.0)


def is_list_of_series(X: Any) -> bool:
    """Whether X is a list of arrays rather than something that is an array itself.

    A list of lists of numbers, one list for each case, is an array (cases, time).
    """
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1:
        return len(X) > 0 and np.ndim(X[0]) > 0
    return isinstance(X, list | tuple) and any(len(getattr(case, "shape", ())) for case in X)


def plain(name: str, values: Any) -> Any:
    """A tensor as the array that it holds, whatever autograd and its layout say; others as is."""
    if not isinstance(values, Tensor):
        return values
    validate.dense(name, values)
    if values.is_meta:
        raise TypeError(f"{name} is a tensor on the device meta, which holds no numbers")
    return values.detach().resolve_neg().cpu().numpy()


def random_seed(random_state: Any) -> int:
    """A seed from what scikit-learn takes for ``random_state``."""
    try:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"random_state must be None, a RandomState or a number from 0 to 2^32 - 1, got "
            f"{random_state!r}"
        ) from error


def read_array(X: Any) -> Array:
    """An array (cases, time) or (cases, channels, time) of finite or missing numbers."""
    values: Array = check_array(
        plain("X", X), dtype="numeric", allow_nd=True, ensure_all_finite=False, input_name="X"
    )
    if values.ndim > 3:
        raise ValueError(f"X has {values.ndim} dimensions, shape {values.shape}; expected {FORMS}")
    if values.ndim == 3 and 0 in values.shape:
        raise ValueError(f"X is empty, of shape {values.shape}; expected {FORMS}")
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def read_list(X: Sequence[Any]) -> Panel:
    """A list of arrays (channels, time), or (time,) for one channel, of any lengths."""
    cases = []
    for i, given in enumerate(X):
        case = np.asarray(given)
        if np.iscomplexobj(case):
            raise ValueError(f"Complex data not supported: X[{i}] is {case.dtype}")
        try:
            case = case if case.dtype.kind == "f" else case.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X[{i}] holds more than numbers ({error})") from error
        case = case[None] if case.ndim == 1 else case
        if case.ndim != 2 or 0 in case.shape:
            raise ValueError(
                f"X[{i}] has shape {np.shape(given)}; expected (channels, time), neither of them 0"
            )
        cases.append(case)
        if case.shape[0] != cases[0].shape[0]:
            raise ValueError(
                f"X[{i}] has {case.shape[0]} channels, X[0] has {cases[0].shape[0]}; "
                "all cases need as many, as arrays (channels, time)"
            )
    return Panel(np.stack(cases) if len({case.shape[1] for case in cases}) == 1 else cases)


def fill_missing(panel: Panel, missing: str) -> Panel:
    """The panel with its missing values as ``missing`` asks; infinite ones are always refused.

    With times, a sample without any value is left out instead.
    """
    validate.one_of("missing", missing, get_args(Missing))
    if not any(unusable(case).any() for case in panel.cases):
        return panel
    panel = _without_empty_samples(panel)
    for i, case in enumerate(panel.cases):
        empty = np.isnan(case)
        refused = unusable(case) if missing == "error" else unusable(case) & ~empty
        if refused.any():
            channel, time = np.argwhere(refused)[0]
            where = f"case {i}, channel {channel}, sample {time}"
            if empty[channel, time]:
                raise ValueError(
                    f"Input X contains NaN: {where} is the first ({empty.sum()} in this case); "
                    "fill them in, or use missing='interpolate'"
                )
            raise ValueError(
                f"Input X contains infinity or a value too large for float32: {where} is "
                f"{case[channel, time]}"
            )
    times = panel.times
    filled = [
        interpolate(case, None if times is None else times[i]) for i, case in enumerate(panel.cases)
    ]
    return replace(panel, cases=filled if isinstance(panel.cases, list) else np.stack(filled))


def _without_empty_samples(panel: Panel) -> Panel:
    """Of a panel with times: samples without any value are absent, and need none."""
    if panel.times is None or not any(np.isnan(case).all(0).any() for case in panel.cases):
        return panel
    pairs = [
        without_empty_samples(case.T, times, f"case {i} of X")
        for i, (case, times) in enumerate(zip(panel.cases, panel.times, strict=True))
    ]
    return replace(panel, cases=[x.T for x, _ in pairs], times=[times for _, times in pairs])
