"""Live streams: answers as samples arrive, the same as for the whole sequence at once."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from s4d_torch.deploy.stream.files import read_streams, write_streams
from s4d_torch.deploy.stream.runner import Chunk, Runner, Standing, begin
from s4d_torch.nn import validate
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.state import ModelState

Id = TypeVar("Id", bound=Hashable)
Path = str | os.PathLike[str]


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
    """

    def __init__(
        self, model: SequenceModel, *, rate: float = 1.0, crossover: int | None = None
    ) -> None:
        validate.sampling_rate(rate)
        self._runner = Runner(model, crossover)
        self._standing = Standing(rate)

    def push(self, chunk: Chunk) -> Any:
        """The answer to what has just arrived; a chunk without samples changes nothing."""
        return _like(chunk, self._runner.push(self._standing, self._runner.read(chunk)))

    def reset(self) -> None:
        """Begin again: forget all samples, keep the rate."""
        self._standing = begin(self._standing)

    @property
    def samples(self) -> int:
        """How many samples came since the beginning."""
        return self._standing.samples

    @property
    def rate(self) -> float:
        return self._standing.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._runner.turn_to(self._standing, rate)

    @property
    def state(self) -> ModelState:
        """A copy of the state, as ``model(u, state)`` takes it, with a batch of 1."""
        state = self._runner.state(self._standing)
        layers = tuple(layer.clone() for layer in state.layers)
        return ModelState(layers, state.total.clone(), state.samples.clone())

    def snapshot(self, path: Path) -> None:
        """Write the state into a safetensors file, whole or not at all."""
        write_streams(path, self._runner, {None: self._standing})

    def restore(self, path: Path) -> None:
        """Go on where the stream of a snapshot was; it has to be one of this very model."""
        found = read_streams(path, self._runner)
        if len(found) > 1:
            raise ValueError(f"{str(path)!r} holds {len(found)} streams; use Streams(...).restore")
        (self._standing,) = found.values()

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
        self, model: SequenceModel, *, rate: float = 1.0, crossover: int | None = None
    ) -> None:
        validate.sampling_rate(rate)
        self._runner, self._rate = Runner(model, crossover), rate
        self._standings: dict[Hashable, Standing] = {}

    def push(self, chunks: Mapping[Id, Chunk]) -> dict[Id, Any]:
        """The answers to what has arrived, by the same ids; if one chunk is wrong, none is used."""
        if not isinstance(chunks, Mapping):
            raise TypeError(
                f"push takes chunks by the ids of their streams, got {type(chunks).__name__}; "
                "use push({id: chunk}), or Stream for a single one"
            )
        read = {name: self._read(name, chunk) for name, chunk in chunks.items()}
        standings = [self._standings.setdefault(name, Standing(self._rate)) for name in read]
        found = self._runner.push_all(standings, list(read.values()))
        return {name: _like(chunks[name], y) for name, y in zip(read, found, strict=True)}

    def join(self, name: Hashable, *, rate: float | None = None) -> None:
        """A stream before its first sample; needed only for a rate of its own."""
        if name in self._standings:
            raise ValueError(f"there is a stream {name!r} already; let it leave first")
        rate = self._rate if rate is None else rate
        validate.sampling_rate(rate)
        self._standings[name] = Standing(rate)

    def leave(self, name: Hashable) -> None:
        """Forget a stream."""
        self._known(name)
        del self._standings[name]

    def samples(self, name: Hashable) -> int:
        """How many samples a stream has had."""
        return self._known(name).samples

    def set_rate(self, name: Hashable, rate: float) -> None:
        """From here on, samples of a stream are those of another sampling rate."""
        self._runner.turn_to(self._known(name), rate)

    def snapshot(self, path: Path, names: Iterable[Hashable] | None = None) -> None:
        """Write the states of all streams, or of some, into one safetensors file.

        Ids have to be strings or integers.
        """
        chosen = list(self._standings) if names is None else list(names)
        write_streams(path, self._runner, {name: self._known(name) for name in chosen})

    def restore(self, path: Path) -> list[Hashable]:
        """The streams of a snapshot join where they were; returns their ids."""
        found = read_streams(path, self._runner)
        taken = [repr(name) for name in found if name in self._standings]
        if taken:
            raise ValueError(f"there are streams {', '.join(taken)} already; let them leave first")
        self._standings |= found
        return list(found)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._standings

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._standings)

    def __len__(self) -> int:
        return len(self._standings)

    def __repr__(self) -> str:
        return f"Streams({', '.join(map(repr, self._standings))})"

    def _read(self, name: Hashable, chunk: Chunk) -> Tensor:
        try:
            u = self._runner.read(chunk)
        except (TypeError, ValueError) as error:
            raise type(error)(f"stream {name!r}: {error}") from error
        fresh = name not in self._standings or self._standings[name].answer is None
        if not u.shape[1] and self._runner.pools and fresh:
            raise ValueError(f"stream {name!r}: its first chunk is empty; leave it out")
        return u

    def _known(self, name: Hashable) -> Standing:
        if name not in self._standings:
            there = ", ".join(map(repr, list(self._standings)[:5])) or "none"
            raise KeyError(f"there is no stream {name!r}; there are {there}")
        return self._standings[name]


def _like(chunk: Chunk, y: Tensor) -> Tensor | np.ndarray[Any, Any]:
    return y if isinstance(chunk, torch.Tensor) else y.cpu().numpy()
