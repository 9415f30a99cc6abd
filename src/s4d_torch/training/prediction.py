"""Raw data into a trained model, and its answers out: names, units and sampling rates seen to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.files.moments import read_times
from s4d_torch.data.missing_values import unusable
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.config import Config
from s4d_torch.training.evaluation import check_outputs, physical, predict


@dataclass(frozen=True)
class Predictor:
    """A model with all that is needed to give it raw data, in the unit of its training data.

    ``x`` is an array (length, features) or (n, length, features), (length,) of one feature, a
    table whose columns are :attr:`channels` (a data frame, a dict, a structured array), or a list
    of such. Data at another sampling rate says so by ``sample_rate`` (samples per second) or
    ``rate`` (samples of the training data that one sample stands for). A run that was told the
    times of its samples (``signature.clock``) has to be told by ``times``: (length,) for one
    sequence, (n, length) or a list for several; numbers, or datetime64.
    """

    config: Config
    signature: Signature
    model: Pretrained

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the probabilities."""
        return self.signature.classes

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the features, in the model's order; none where they have none."""
        return self.signature.channels

    @property
    def sample_rate(self) -> float | None:
        """Samples per second of the training data, where known."""
        return self.signature.sample_rate

    @property
    def units(self) -> dict[str, Any]:
        """The model reads ``(x - input_shift) * input_scale``; targets are likewise."""
        names = ("input_shift", "input_scale", "target_shift", "target_scale")
        return {name: getattr(self.signature, name) for name in names}

    def predict(
        self,
        x: Any,
        *,
        rate: float | None = None,
        sample_rate: float | None = None,
        times: Any = None,
    ) -> Array:
        """The class of each sequence by its name, or a number in the target's unit, (n,).

        A run that tracks something gives its numbers at each sample, (n, length, outputs).
        """
        outputs = self._outputs(x, rate, sample_rate, times)
        if self.signature.kind == "tracking":
            return outputs
        if self.signature.kind == "regression":
            return outputs[:, 0]
        names = np.array(self.classes or range(self.signature.outputs))
        return np.asarray(names[outputs.argmax(1)])

    def predict_proba(
        self,
        x: Any,
        *,
        rate: float | None = None,
        sample_rate: float | None = None,
        times: Any = None,
    ) -> Array:
        """The probability of each class, (n, classes), in the order of :attr:`classes`."""
        if self.signature.kind in ("regression", "tracking"):
            raise ValueError("this run predicts numbers and has no probabilities; use predict")
        return self._outputs(x, rate, sample_rate, times)

    def transform(self, x: Any) -> Tensor | list[Tensor]:
        """What the model reads: (n, length, features), or a list of (length, features) if ragged.

        ``run.model(run.transform(x))`` gives outputs in the model's unit; of a run with a clock,
        with ``rate=torch.from_numpy(run.signature.clock.gaps(times))``.
        """
        if self.signature.towers > 1:
            raise ValueError("this run reads pairs; transform takes single sequences only")
        found = [self.signature.read(each) for each in read_sequences(x, self.signature)]
        return torch.stack(found) if len({len(each) for each in found}) == 1 else found

    def _outputs(self, x: Any, rate: float | None, sample_rate: float | None, times: Any) -> Array:
        relative = relative_rate(self.signature, rate, sample_rate)
        if relative != 1 and self.config.model.architecture != "ssm":
            raise ValueError(
                f"a model of the kind {self.config.model.architecture!r} cannot change its "
                "sampling rate; resample the data to that of its training"
            )
        _refuse_generation(self.signature)
        sequences = read_sequences(x, self.signature)
        when = times_of(times, sequences, self.signature)
        device = next(self.model.parameters()).device
        found = predict_sequences(self, sequences, rate=relative, times=when, device=device)
        return np.asarray(found.numpy())


def predict_sequences(
    run: Predictor,
    sequences: Sequence[Any],
    *,
    rate: float = 1.0,
    times: Sequence[Array] | None = None,
    device: torch.device | None = None,
    advance: Callable[[int], None] | None = None,
) -> Tensor:
    """Outputs (n, outputs) for sequences (length, features) in the unit they were stored in.

    A run on pairs takes pairs of sequences. Class probabilities, or numbers in the targets' own
    unit. ``times``, (length,) each, are for a run with a clock. The model has to be on ``device``.
    """
    _refuse_generation(run.signature)
    towers = list(zip(*sequences, strict=True)) if run.signature.towers > 1 else [sequences]
    inputs = tuple(Sequences.of(list(tower)) for tower in towers)
    whole = Split.whole(inputs, np.zeros(len(sequences)))
    if times is not None:
        whole = replace(whole, times=Sequences.of(list(times)))
    dataset, precision = Dataset(whole, whole, whole, run.signature), run.config.training.precision
    outputs, _ = predict(
        run.model,
        dataset,
        whole,
        batch_size=16,
        device=device,
        precision=precision,
        rate=rate,
        advance=advance,
    )
    check_outputs(outputs)
    if run.signature.kind == "classification":
        return outputs.double().softmax(-1)
    return physical(outputs, run.signature)


def times_of(times: Any, sequences: Sequence[Array], signature: Signature) -> list[Array] | None:
    """When the samples of each sequence came, (length,) each, as a run with a clock needs it."""
    clock = signature.clock
    if (clock is None) != (times is None):
        if clock is None:
            raise ValueError(
                "times: this run takes samples as evenly spaced and cannot be told times; leave "
                "them out, or train one with times"
            )
        raise ValueError(
            f"this run is told when samples came, usually {clock.unit} apart; give times, "
            "(length,) for one sequence, (n, length) or a list for several"
        )
    if clock is None:
        return None
    return read_times(times, [len(each) for each in sequences], dates=clock.dates)[0]


def _refuse_generation(signature: Signature) -> None:
    if signature.kind == "generation":
        raise ValueError("this run predicts the next symbol; use model.generate or 's4d generate'")


def read_sequences(x: Any, signature: Signature) -> list[Any]:
    """One sequence or many as arrays (length, features), tokens (length,); pairs as tuples of two.

    ``x`` is an array (length, features) or (n, length, features), (length,) of one feature, a table
    with the names of the channels (a data frame, a dict of columns, a structured array), or a list
    of such, of any lengths. Tokens are (length,) or (n, length). Pairs come in a list.
    """
    if signature.towers > 1:
        if not isinstance(x, list | tuple) or not all(_is_pair(each) for each in x):
            raise ValueError("this run reads pairs of sequences; give a list of pairs (a, b)")
        towers = [_read_many([pair[i] for pair in x], signature) for i in range(2)]
        return list(zip(*towers, strict=True))
    return _read_many(x, signature)


def _is_pair(x: Any) -> bool:
    return isinstance(x, list | tuple) and len(x) == 2


def _read_many(x: Any, signature: Signature) -> list[Array]:
    if _is_list_of_sequences(x):
        return [
            _one(_as_array(each, signature, f"x[{i}]"), signature, f"x[{i}]")
            for i, each in enumerate(x)
        ]
    array = _as_array(x, signature, "x")
    if array.ndim == (2 if signature.tokens else 3):
        if not len(array):
            raise ValueError(f"x is empty, of shape {array.shape}; give one sequence or more")
        return [_one(each, signature, f"x[{i}]") for i, each in enumerate(array)]
    return [_one(array, signature, "x")]


def _is_list_of_sequences(x: Any) -> bool:
    """Whether x is a list of arrays or tables, or of lists of several lengths.

    Lists of lists of one length are an array.
    """
    if not isinstance(x, list | tuple):
        return False
    tables = any(isinstance(each, Mapping) or hasattr(each, "columns") for each in x)
    if tables or any(len(getattr(each, "shape", ())) for each in x):
        return True
    return len({len(each) for each in x if isinstance(each, list | tuple)}) > 1


def _as_array(x: Any, signature: Signature, name: str) -> Array:
    """Numbers, with channels in the order of the model where they have names."""
    named = _columns(x)
    if named is not None:
        return _by_name(named, signature, name)
    x = x.detach().cpu() if hasattr(x, "detach") else x
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no array: {error}") from error
    kinds = "biu" if signature.tokens else "biuf"
    if array.dtype.kind not in kinds:
        what = "whole numbers" if signature.tokens else "numbers"
        raise ValueError(f"{name} holds {array.dtype}; expected {what}")
    return array


def _columns(x: Any) -> dict[str, Any] | None:
    """The columns of a data frame, a dict or a structured array by their names."""
    if isinstance(x, Mapping):
        return {str(name): x[name] for name in x}
    if isinstance(x, np.ndarray) and x.dtype.names is not None:
        return {name: x[name] for name in x.dtype.names}
    if hasattr(x, "columns") and hasattr(x, "__getitem__"):
        return {str(name): x[name] for name in x.columns}
    return None


def _by_name(columns: Mapping[str, Any], signature: Signature, name: str) -> Array:
    wanted = signature.channels
    if not wanted and signature.features == 1 == len(columns):
        wanted = tuple(columns)
    if not wanted:
        raise ValueError(
            f"{name} has names of columns, and the channels of this run have none; give an array "
            f"(length, {signature.features}) in the order of the training data"
        )
    if set(columns) != set(wanted):
        raise ValueError(
            f"{name} has the columns {', '.join(columns) or '(none)'}; the run was trained on "
            f"{', '.join(wanted)}; leave out or rename what differs"
        )
    arrays = [np.asarray(columns[each]) for each in wanted]
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        shapes = ", ".join(f"{each} {np.shape(columns[each])}" for each in wanted)
        raise ValueError(f"{name}: the columns need one length, (length,) each; got {shapes}")
    bad = [
        each for each, array in zip(wanted, arrays, strict=True) if array.dtype.kind not in "biuf"
    ]
    if bad:
        raise ValueError(f"{name}: column {bad[0]} holds {np.asarray(columns[bad[0]]).dtype}")
    return np.stack(arrays, axis=1)


def _one(array: Array, signature: Signature, name: str) -> Array:
    """A sequence whose shape and values the model can read."""
    features = signature.features
    if array.ndim == 1 and features == 1 and not signature.tokens:
        array = array[:, None]
    fits = array.ndim == 1 if signature.tokens else array.ndim == 2 and array.shape[1] == features
    if not fits:
        channels = f" ({', '.join(signature.channels)})" if signature.channels else ""
        wanted = "(length,)" if signature.tokens else f"(length, {features}){channels}"
        raise ValueError(
            f"{name} has shape {array.shape}; the run reads {wanted}, or several of that"
        )
    if not len(array):
        raise ValueError(f"{name} is empty: a sequence without any samples")
    if signature.tokens:
        if array.min() < 0 or array.max() >= features:
            raise ValueError(f"{name}: tokens have to be whole numbers from 0 to {features - 1}")
    elif (refused := unusable(array)).any():
        sample, channel = np.argwhere(refused)[0]
        which = signature.channels[channel] if signature.channels else f"channel {channel}"
        raise ValueError(
            f"{name} holds {array[sample, channel]} at sample {sample}, {which}; fill in what is "
            "missing or not finite first"
        )
    return array


def relative_rate(signature: Signature, rate: float | None, sample_rate: float | None) -> float:
    """How many samples of the training data one sample stands for."""
    if rate is not None and sample_rate is not None:
        raise ValueError("rate and sample_rate: give one of them")
    if sample_rate is not None and signature.sample_rate is None:
        raise ValueError(
            "sample_rate: this run does not know the sampling rate of its data; give rate, how "
            "many samples of the training data one sample stands for"
        )
    for name, value in (("rate", rate), ("sample_rate", sample_rate)):
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (number and 0 < value < np.inf):
            raise ValueError(f"{name} must be a positive number, got {value!r}")
    if sample_rate is not None:
        assert signature.sample_rate is not None
        return signature.sample_rate / sample_rate
    return 1.0 if rate is None else float(rate)
