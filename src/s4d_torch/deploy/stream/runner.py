"""Chunks of one stream or of many through a model, by whichever way takes less time.

A chunk of few samples goes through the compiled step, sample by sample; a large one, or large ones
of several streams together, through the model as a sequence. Both carry the same state, so a stream
may go from one to the other at any time.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from s4d_torch.deploy.stream.identity import identity_of
from s4d_torch.nn import validate
from s4d_torch.nn.baselines.baseline import Baseline
from s4d_torch.nn.model import NO_EFFECT, SequenceModel
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping.step import CompiledStep, compiles

# Samples times channels from which a sequence takes less time than its steps; docs/streaming.md
# has the measurement. Below SHORTEST samples moving the state costs more than that can win.
CROSSOVER, SHORTEST = {"diagonal": 2**16, "dplr": 2**17}, 64
PIECE = 2**20  # samples times channels of one call, so that memory does not grow with a chunk
RATES = 4  # sampling rates whose tables are kept
# Norms square what they read: beyond this a number that is finite does not stay so in a model.
LARGEST = {torch.float64: 1e150}
LARGEST_FLOAT32 = 1e16

Chunk = Any  # a tensor, a NumPy array, or numbers in a list


@dataclass
class StreamPosition:
    """Where a stream is: its state is in ``step`` while chunks are small, else in ``state``."""

    rate: float = 1.0
    samples: int = 0
    state: Any = None  # a ModelState, or what another runner keeps
    step: CompiledStep | None = None
    answer: Tensor | None = None  # the latest of a model that pools
    before: Tensor | None = None  # the last sample, where first differences are read
    time: float | None = None  # of the last sample, where whoever pushes says so


class AnyRunner(Protocol):
    """What streams need of whatever answers them: see :class:`Runner`."""

    pools: bool

    def read(self, chunk: Chunk) -> Tensor: ...
    def push(self, position: StreamPosition, chunk: Tensor) -> Tensor: ...
    def push_all(
        self, positions: Sequence[StreamPosition], chunks: Sequence[Tensor]
    ) -> list[Tensor]: ...
    def copy_of_state(self, position: StreamPosition) -> Any: ...
    def check_rate(self, rate: float) -> None: ...
    def turn_to(self, position: StreamPosition, rate: float) -> None: ...
    def identity(self) -> dict[str, Any]: ...
    def packed(self, positions: Sequence[StreamPosition]) -> dict[str, Tensor]: ...
    def unpacked(self, tensors: Mapping[str, Tensor], row: int) -> StreamPosition: ...


class Runner:
    """A copy of a model, in evaluation, and what its streams share."""

    def __init__(
        self, model: SequenceModel, crossover: int | None = None, check_finite: bool = True
    ) -> None:
        if not isinstance(model, SequenceModel):
            only = ", which answers whole sequences only" if isinstance(model, Baseline) else ""
            raise TypeError(
                "a stream needs a SequenceModel, whose state is carried from chunk to chunk; "
                f"got {type(model).__name__}{only}"
            )
        if model.method.bidirectional:
            raise ValueError(
                "a bidirectional model looks ahead, to the end of a stream that has none; "
                "train one with bidirectional=False ('s4d train --causal')"
            )
        if model.towers != 1:
            pairs = f"a model with towers={model.towers} reads pairs of sequences"
            raise ValueError(f"{pairs}; a stream is one sequence")
        if crossover is not None:
            validate.positive_integer("crossover", crossover)
        validate.flag("check_finite", check_finite)
        self.model = deepcopy(model).eval().requires_grad_(False)
        self.model.check_finite = False  # chunks are checked as they are read, once
        weight = next(self.model.parameters())
        self.dtype, self.device = weight.dtype, weight.device
        self.largest = LARGEST.get(self.dtype, LARGEST_FLOAT32) if check_finite else None
        self.tokens, self.pools = isinstance(model.encoder, nn.Embedding), model.pooling != "none"
        if crossover is not None:
            self.enough, self.shortest = crossover, 1
        elif compiles(self.model):
            self.enough = -(-CROSSOVER[model.method.structure] // model.d_model)
            self.shortest = SHORTEST
        else:  # a step in Python costs as much as a call of the model
            self.enough, self.shortest = 2, 2
        self._steps: OrderedDict[float, CompiledStep] = OrderedDict()

    def read(self, chunk: Chunk) -> Tensor:
        """A chunk, checked: (1, length, d_input), tokens (1, length), or (1, 0) without samples."""
        u = self._as_tensor(chunk)
        if u.ndim and not len(u):
            return u.new_empty(1, 0)
        if not self.tokens and self.model.d_input == 1 and u.ndim == 1:
            u = u[:, None]
        if u.ndim != 1 + (not self.tokens):
            shape = "(length,)" if self.tokens else f"(length, {self.model.d_input})"
            raise ValueError(
                f"a chunk must be {shape}, got {tuple(u.shape)}; each stream has its own chunk, "
                "without a batch"
            )
        self.model._check_input(u[None], step=False)
        if u.device != self.device:
            raise ValueError(
                f"the chunk is on {u.device}, the model on {self.device}; move one of them"
            )
        self.model._check_values(u[None])
        if self.largest is not None and u.is_floating_point():
            self._check_finite(u, self.largest)
        return u.detach()[None]

    def _check_finite(self, u: Tensor, largest: float) -> None:
        """One NaN would stay in the state, and so in every later answer."""
        if len(u) == 1 and math.hypot(*u[0].tolist()) < largest:  # the least time for one sample
            return
        low, high = u.aminmax()  # NaN if there is one; less time than isfinite takes
        if -largest < low.item() and high.item() < largest:
            return
        bad = ~(u.abs() < largest)
        sample, channel = bad.nonzero()[0].tolist()
        raise ValueError(
            f"sample {sample} of the chunk, channel {channel}, is {u[sample, channel].item():g}, "
            f"and {int(bad.sum())} of its values are NaN, infinite or too large for the model; "
            "nothing of the chunk was used: push it again without them, e.g. with the value "
            "before, or make the stream with check_finite=False"
        )

    def _as_tensor(self, chunk: Chunk) -> Tensor:
        if isinstance(chunk, Tensor):
            validate.dense("the chunk", chunk)
            return chunk
        array = np.asarray(chunk)
        if not array.size:
            array = array.astype(np.int64 if self.tokens else np.float64)
        if array.dtype.kind not in "iuf":
            raise TypeError(
                f"a chunk must hold numbers, got {type(chunk).__name__} of {array.dtype}"
            )
        # writable, in memory of its own
        u = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
        return u.to(self.dtype) if array.dtype.kind == "f" and not self.tokens else u

    def push(self, position: StreamPosition, chunk: Tensor) -> Tensor:
        """The answer: (d_output,) if the model pools, else (length, d_output)."""
        if not chunk.shape[1]:
            return self._unchanged(position)
        return self._push_alike([position], [chunk])[0]

    @torch.no_grad()
    def push_timed(self, position: StreamPosition, chunk: Tensor, rate: Any, resets: Any) -> Tensor:
        """The same for samples at times of their own, (length,), or where sequences begin anew."""
        if not chunk.shape[1]:
            return self._unchanged(position)
        gaps = position.rate if rate is None else self._row("rate", rate, chunk, torch.float64)
        begins = None if resets is None else self._row("resets", resets, chunk, torch.bool)
        y, end = self.model(chunk, self.state(position), rate=gaps, resets=begins)
        position.state, position.step = end, None
        position.samples += chunk.shape[1]
        position.answer = y[0].clone() if self.pools else None
        return y[0]

    def _row(self, name: str, given: Any, chunk: Tensor, dtype: torch.dtype) -> Tensor:
        """One for each sample of a chunk, (1, length)."""
        row = torch.as_tensor(given, device=self.device)
        if row.shape != chunk.shape[1:2] or (row.dtype == torch.bool) != (dtype == torch.bool):
            raise ValueError(
                f"{name} must be {'bool' if dtype == torch.bool else 'numbers'}, one for each of "
                f"the {chunk.shape[1]} samples, got {row.dtype} of shape {tuple(row.shape)}"
            )
        return row.to(dtype)[None]

    def push_all(
        self, positions: Sequence[StreamPosition], chunks: Sequence[Tensor]
    ) -> list[Tensor]:
        """An answer for each stream."""
        answers: dict[int, Tensor] = {}
        groups: dict[tuple[float, int], list[int]] = {}
        for i, (position, chunk) in enumerate(zip(positions, chunks, strict=True)):
            if length := chunk.shape[1]:  # together, if little of their batch is padding
                groups.setdefault((position.rate, length.bit_length()), []).append(i)
            else:
                answers[i] = self._unchanged(position)
        for members in groups.values():
            found = self._push_alike([positions[i] for i in members], [chunks[i] for i in members])
            answers |= dict(zip(members, found, strict=True))
        return [answers[i] for i in range(len(chunks))]

    def _push_alike(self, positions: list[StreamPosition], chunks: list[Tensor]) -> list[Tensor]:
        """Chunks of one rate and about one length."""
        lengths = [chunk.shape[1] for chunk in chunks]
        if sum(lengths) >= self.enough and min(lengths) >= self.shortest:
            answers = self._convolve(positions, chunks)
        else:
            answers = [self._step(*pair) for pair in zip(positions, chunks, strict=True)]
        for position, length, answer in zip(positions, lengths, answers, strict=True):
            position.samples += length
            position.answer = answer.clone() if self.pools else None
        return answers

    def state(self, position: StreamPosition) -> ModelState:
        """The state of a stream; a copy, or one that is never changed in place."""
        if position.step is not None:
            return position.step.state
        return position.state or self.model.initial_state(1)

    def copy_of_state(self, position: StreamPosition) -> ModelState:
        return row_of(self.state(position), 0)

    def identity(self) -> dict[str, Any]:
        """What two models have in common that answer alike."""
        config = {name: x for name, x in self.model.config.items() if name not in NO_EFFECT}
        return identity_of(config, self.model.state_dict())

    def packed(self, positions: Sequence[StreamPosition]) -> dict[str, Tensor]:
        """The states of some streams, and their answers if the model pools, by name."""
        states = joined([self.state(position) for position in positions])
        found = {f"layer.{i}": layer for i, layer in enumerate(states.layers)}
        found |= {"total": states.total, "samples": states.samples}
        if self.pools:
            none = torch.zeros(self.model.d_output, dtype=self.dtype, device=self.device)
            answers = [position.answer for position in positions]
            found["answer"] = torch.stack([none if y is None else y for y in answers])
        return found

    def unpacked(self, tensors: Mapping[str, Tensor], row: int) -> StreamPosition:
        """One stream of those in :meth:`packed`."""
        here = {name: x[row : row + 1].to(self.device).clone() for name, x in tensors.items()}
        layers = tuple(here[f"layer.{i}"] for i in range(len(self.model.blocks)))
        state = ModelState(layers, here["total"], here["samples"])
        return StreamPosition(state=state, answer=here["answer"][0] if self.pools else None)

    def check_rate(self, rate: float) -> None:
        """Any sampling rate will do."""
        validate.sampling_rate(rate)

    def turn_to(self, position: StreamPosition, rate: float) -> None:
        """From here on, samples are those of another sampling rate."""
        self.check_rate(rate)
        if rate != position.rate:
            position.state, position.step, position.rate = self.state(position), None, rate

    def _unchanged(self, position: StreamPosition) -> Tensor:
        if not self.pools:
            return torch.empty(0, self.model.d_output, dtype=self.dtype, device=self.device)
        if position.answer is None:
            raise ValueError("the chunk is empty and nothing came before it; push a sample first")
        return position.answer.clone()

    def _step(self, position: StreamPosition, u: Tensor) -> Tensor:
        if position.step is None:
            step = self._step_at(position.rate).fork()
            if position.state is not None:
                step.start(position.state)
            position.step, position.state = step, None
        if u.shape[1] == 1:
            y = position.step.push(u[:, 0])
            return y[0] if self.pools else y
        found = [position.step.push_many(part)[0] for part in self._pieces(u)]
        return found[-1][-1] if self.pools else torch.cat(found)

    @torch.no_grad()
    def _convolve(
        self, positions: Sequence[StreamPosition], chunks: Sequence[Tensor]
    ) -> list[Tensor]:
        """Many streams as one ragged batch."""
        states = [self.state(position) for position in positions]
        found: list[list[Tensor]] = [[] for _ in chunks]
        pieces = [list(self._pieces(chunk, len(chunks))) for chunk in chunks]
        for k in range(max(map(len, pieces))):
            rows = [i for i, parts in enumerate(pieces) if k < len(parts)]
            parts = [pieces[i][k][0] for i in rows]
            lengths = torch.tensor([len(part) for part in parts], device=self.device)
            y, end = self.model(
                nn.utils.rnn.pad_sequence(parts, batch_first=True),
                joined([states[i] for i in rows]),
                lengths=lengths if len(set(map(len, parts))) > 1 else None,
                rate=positions[0].rate,
            )
            for row, (i, part) in enumerate(zip(rows, parts, strict=True)):
                states[i] = end if len(rows) == 1 else row_of(end, row)
                found[i].append(y[row] if self.pools else y[row, : len(part)])
        for position, state in zip(positions, states, strict=True):
            position.state, position.step = state, None
        return [parts[-1].clone() if self.pools else torch.cat(parts) for parts in found]

    def _pieces(self, u: Tensor, streams: int = 1) -> Iterator[Tensor]:
        return iter(u.split(max(SHORTEST, PIECE // (streams * self.model.d_model)), dim=1))

    def _step_at(self, rate: float) -> CompiledStep:
        """The step from which those of streams are forked."""
        if rate not in self._steps:
            self._steps[rate] = self.model.compile_step(rate=rate)
        self._steps.move_to_end(rate)
        while len(self._steps) > RATES:
            self._steps.popitem(last=False)
        return self._steps[rate]


def joined(states: Sequence[ModelState]) -> ModelState:
    if len(states) == 1:
        return states[0]
    parts = zip(*((*state.layers, *state[1:]) for state in states), strict=True)
    *layers, total, samples = map(torch.cat, parts)
    return ModelState(tuple(layers), total, samples)


def row_of(state: ModelState, row: int) -> ModelState:
    """One sequence of a batch; copied, so that the batch does not live as long as it does."""
    *layers, total, samples = (x[row : row + 1].clone() for x in (*state.layers, *state[1:]))
    return ModelState(tuple(layers), total, samples)
