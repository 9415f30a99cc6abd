"""Live streams: answers as samples arrive, the same as for the whole sequence at once."""

import os
import sys
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from s4d_torch.deploy.stream.runner import AnyRunner, Chunk, Runner, StreamPosition
from s4d_torch.deploy.stream.snapshots import read_streams, write_streams
from s4d_torch.nn.model import SequenceModel

Id = TypeVar("Id", bound=Hashable)
Path = str | os.PathLike[str]
ESTIMATORS = (  # module and base class, and what answers the streams of such an estimator
    ("features.base", "BaseFeatures", ("feature_runner", "FeatureRunner")),
    ("estimator", "BaseS4D", ("trained_runner", "TrainedRunner")),
)
NEVER = 2**62  # a crossover that no chunk reaches: all go through steps


class Stream:
    """A sequence that never ends, in chunks of any size.

    >>> stream = Stream(model)
    >>> y = stream.push(chunk)          # (length, d_input); (length,) of tokens or of one channel

    With pooling "none" y is (length, d_output), an answer for each sample; with "mean" or "last" it
    is (d_output,), the answer for all samples so far. A tensor is answered by a tensor, all else by
    a NumPy array. Memory and the time per sample do not grow with the stream.

    ``rate`` is how many samples of the training data one sample stands for, and can be changed as
    the stream goes on. Chunks of ``crossover`` samples or more run as a sequence, smaller ones as
    compiled steps; by default whichever was measured to take less time for a model as wide. The
    weights are those the model has now, in evaluation.

    The model is a :class:`~s4d_torch.SequenceModel`, or an estimator that looks in one direction:
    features with ``direction="causal"``, or a trained one with such a ``method``. It answers with
    the probabilities of its classes, its numbers or its features of all samples so far; chunks are
    then in the units of the series it was fitted to.

    A chunk with NaN or infinity is refused and nothing of it used, as its traces would stay in the
    state; ``check_finite=False`` takes it, and saves about 3 us per push.
    """

    def __init__(
        self,
        model: Any,
        *,
        rate: float = 1.0,
        crossover: int | None = None,
        check_finite: bool = True,
    ) -> None:
        self._runner = runner_of(model, crossover, check_finite)
        self._runner.check_rate(rate)
        self._position = StreamPosition(rate)

    def push(self, chunk: Chunk, *, rate: Any = None, resets: Any = None) -> Any:
        """The answer to what has just arrived; a chunk without samples changes nothing.

        Where samples are not evenly spaced, ``rate`` (length,) is the time since the sample before
        of each, in steps of the training rate, in place of the stream's own rate. ``resets``
        (length,), bool, is True where a new sequence begins.
        """
        u = self._runner.read(chunk)
        if rate is None and resets is None:
            return _like(chunk, self._runner.push(self._position, u))
        if not isinstance(self._runner, Runner):
            raise ValueError("gaps and resets are for streams of models, not of estimators")
        return _like(chunk, self._runner.push_timed(self._position, u, rate, resets))

    def reset(self) -> None:
        """Begin again: forget all samples, keep the rate."""
        self._position = StreamPosition(self.rate)

    @property
    def samples(self) -> int:
        """How many samples came since the beginning."""
        return self._position.samples

    @property
    def rate(self) -> float:
        return self._position.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._runner.turn_to(self._position, rate)

    @property
    def time(self) -> float | None:
        """When the last sample came, if that was set; a snapshot keeps it, and reset forgets it."""
        return self._position.time

    @time.setter
    def time(self, time: float | None) -> None:
        self._position.time = time

    @property
    def state(self) -> Any:
        """A copy of the state, as ``model(u, state)`` takes it, with a batch of 1; of features,
        their :class:`~s4d_torch.estimators.features.tables.Pool`.
        """
        return self._runner.copy_of_state(self._position)

    def snapshot(self, path: Path) -> None:
        """Write the state into a safetensors file, whole or not at all."""
        write_streams(path, self._runner, {None: self._position})

    def restore(self, path: Path) -> None:
        """Go on where the stream of a snapshot was; it has to be one of this very model."""
        found = read_streams(path, self._runner)
        if len(found) > 1:
            raise ValueError(f"{str(path)!r} holds {len(found)} streams; use Streams(...).restore")
        (self._position,) = found.values()

    def __repr__(self) -> str:
        return f"Stream(samples={self.samples}, rate={self.rate:g})"


class Streams:
    """Many streams of one model, each under an id; they come and go at any time.

    >>> streams = Streams(model)
    >>> answers = streams.push({"hall": chunk, "kitchen": other})
    >>> streams.leave("hall")

    An id that is new joins with its first chunk. Each stream has its own pace, and its answers do
    not depend on the others. All share one copy of the weights; chunks that are large together, and
    about as long as each other, run as one batch. For the arguments, chunks and answers see
    :class:`Stream`.
    """

    def __init__(
        self,
        model: Any,
        *,
        rate: float = 1.0,
        crossover: int | None = None,
        check_finite: bool = True,
    ) -> None:
        self._runner, self._rate = runner_of(model, crossover, check_finite), rate
        self._runner.check_rate(rate)
        self._positions: dict[Hashable, StreamPosition] = {}

    def push(self, chunks: Mapping[Id, Chunk]) -> dict[Id, Any]:
        """The answers to what has arrived, by the same ids; if one chunk is wrong, none is used."""
        if not isinstance(chunks, Mapping):
            raise TypeError(
                f"push takes chunks by the ids of their streams, got {type(chunks).__name__}; "
                "use push({id: chunk}), or Stream for a single one"
            )
        read = {name: self._read(name, chunk) for name, chunk in chunks.items()}
        positions = [self._positions.setdefault(name, StreamPosition(self._rate)) for name in read]
        found = self._runner.push_all(positions, list(read.values()))
        return {name: _like(chunks[name], y) for name, y in zip(read, found, strict=True)}

    def join(self, name: Hashable, *, rate: float | None = None) -> None:
        """A stream before its first sample; needed only for a rate of its own."""
        if name in self._positions:
            raise ValueError(f"there is a stream {name!r} already; let it leave first")
        rate = self._rate if rate is None else rate
        self._runner.check_rate(rate)
        self._positions[name] = StreamPosition(rate)

    def leave(self, name: Hashable) -> None:
        """Forget a stream."""
        self._known(name)
        del self._positions[name]

    def samples(self, name: Hashable) -> int:
        """How many samples a stream has had."""
        return self._known(name).samples

    def set_rate(self, name: Hashable, rate: float) -> None:
        """From here on, samples of a stream are those of another sampling rate."""
        self._runner.turn_to(self._known(name), rate)

    def snapshot(self, path: Path, names: Iterable[Hashable] | None = None) -> None:
        """Write all streams, or some, into one safetensors file; ids are strings or integers."""
        chosen = self._positions if names is None else names
        write_streams(path, self._runner, {name: self._known(name) for name in chosen})

    def restore(self, path: Path) -> list[Hashable]:
        """The streams of a snapshot join where they were; returns their ids."""
        found = read_streams(path, self._runner)
        if taken := [repr(name) for name in found if name in self._positions]:
            raise ValueError(f"there are streams {', '.join(taken)} already; let them leave first")
        self._positions |= found
        return list(found)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._positions

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        return f"Streams({', '.join(map(repr, self._positions))})"

    def _read(self, name: Hashable, chunk: Chunk) -> Tensor:
        try:
            u = self._runner.read(chunk)
        except (TypeError, ValueError) as error:
            raise type(error)(f"stream {name!r}: {error}") from error
        fresh = name not in self._positions or self._positions[name].answer is None
        if not u.shape[1] and self._runner.pools and fresh:
            raise ValueError(f"stream {name!r}: its first chunk is empty; leave it out")
        return u

    def _known(self, name: Hashable) -> StreamPosition:
        if name not in self._positions:
            there = ", ".join(map(repr, list(self._positions)[:5])) or "none"
            raise KeyError(f"there is no stream {name!r}; there are {there}")
        return self._positions[name]


def runner_of(model: Any, crossover: int | None, check_finite: bool) -> AnyRunner:
    """What answers the streams of a model or of an estimator."""
    # nobody has one who has not imported it; and scikit-learn, which it needs, may not be there
    for module, kind, runner in ESTIMATORS:
        known = sys.modules.get(f"s4d_torch.estimators.{module}")
        if known is not None and isinstance(model, getattr(known, kind)):
            home = import_module(f"s4d_torch.deploy.stream.{runner[0]}")
            made: AnyRunner = getattr(home, runner[1])(model, crossover, check_finite)
            return made
    return Runner(model, crossover, check_finite)


def _like(chunk: Chunk, y: Tensor) -> Tensor | np.ndarray[Any, Any]:
    return y if isinstance(chunk, torch.Tensor) else y.cpu().numpy()


def crossover_of(model: SequenceModel, repeats: int = 5) -> int:
    """For ``Stream(model, crossover=...)``: measured for this model on this machine.

    The smallest power of two of samples for which the sequence takes less time, up to 2^14.
    """
    streams = Stream(model, crossover=NEVER), Stream(model, crossover=1)
    for length in (2**k for k in range(4, 15)):
        chunk = sample_chunk(model, length)
        step, whole = (push_seconds(stream, chunk, repeats) for stream in streams)
        if whole < step:
            return length
    return 2**15


def push_seconds(stream: Stream, chunk: Tensor, repeats: int) -> float:
    """Of this thread's CPU for one push, which others on the machine hardly change; the best."""
    calls, best, threads = max(1, 64 // len(chunk)), float("inf"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        stream.push(chunk)
        for _ in range(repeats):
            began = time.thread_time()
            for _ in range(calls):
                stream.push(chunk)
            best = min(best, (time.thread_time() - began) / calls)
    finally:
        torch.set_num_threads(threads)
    return best


def sample_chunk(model: SequenceModel, length: int) -> Tensor:
    """Any chunk of this length that the model reads."""
    if isinstance(model.encoder, nn.Embedding):
        return torch.arange(length) % model.d_input
    weight = next(model.parameters())
    return torch.ones(length, model.d_input, dtype=weight.dtype, device=weight.device)
