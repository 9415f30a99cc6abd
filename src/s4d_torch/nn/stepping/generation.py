"""Symbols out of a model: what is given is read as a whole, the rest written one by one."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Generator, Tensor

from s4d_torch.nn import validate
from s4d_torch.nn.plan import Model
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping.sampling import check_model, check_options
from s4d_torch.nn.stepping.step import CompiledStep

PIECE = 1 << 14  # symbols of a prompt that are read at a time, and random numbers drawn
# Symbols times channels that are read sooner one by one than as a sequence, whose compiled code is
# then not needed at all.
FEW = 1 << 16


class Generation:
    """A text, a picture or a sound in the making, of which ``batch_size`` are made at once.

    >>> generation = Generation(model, batch_size=4)
    >>> generation.read(prompt)             # (4, length), any number of times
    >>> symbols = generation.write(100)     # (4, 100), and then more

    The model is as it is when this is made, and in evaluation.
    """

    def __init__(self, model: Model, batch_size: int = 1, rate: float = 1.0) -> None:
        beginning = _beginning(model)
        self._step = CompiledStep(model, batch_size, rate)
        self._scores: Tensor | None = None  # of the next symbol
        if beginning is not None:
            device = cast(Any, model).encoder.weight.device
            self._read(torch.full((batch_size, 1), beginning, device=device))

    @property
    def state(self) -> ModelState:
        """The state of the model after all that was read and written; a copy."""
        return self._step.state

    def read(self, symbols: Tensor) -> None:
        """Go on after these, (batch, length)."""
        size = self._step.batch_size
        validate.tokens("prompt", symbols, "(batch, length)")
        validate.token_range("prompt", symbols, self._step._model.d_output)
        if len(symbols) != size:
            raise ValueError(f"prompt holds {len(symbols)} sequences, expected {size}")
        self._read(symbols)

    @torch.no_grad()
    def _read(self, symbols: Tensor) -> None:
        """One by one if there are few, else as one convolution, or several if they are many."""
        model = cast(Any, self._step._model)
        if self._step.compiled and symbols.numel() * model.d_model <= FEW:
            self._scores = self._step.push_many(symbols)[:, -1].contiguous()
            return
        state = self._step.state
        for piece in symbols.split(PIECE, dim=1):
            scores, state = model(piece, state, rate=self._step.rate)
        self._scores = scores[:, -1].contiguous()
        self._step.start(state)

    def write(
        self,
        n: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        *,
        generator: Generator | None = None,
    ) -> Tensor:
        """``n`` symbols, (batch, n); see :meth:`SequenceModel.generate`."""
        validate.positive_integer("n", n)
        check_options(temperature, top_k)
        if self._scores is None:
            raise ValueError(
                "there is nothing to go on from: give a prompt, or make the model with "
                "d_input = d_output + 1, whose last token then stands for the beginning"
            )
        written = []
        device = torch.device("cpu") if generator is None else generator.device
        options: Any = {"dtype": torch.float64, "generator": generator, "device": device}
        for first in range(0, n, PIECE):  # symbol by symbol the same for any n
            draws = torch.rand(min(PIECE, n - first), self._step.batch_size, **options).cpu()
            symbols, self._scores = self._step.sample(self._scores, draws, temperature, top_k)
            written.append(symbols)
        return torch.cat(written).T.contiguous()


def start_of(
    model: Model, prompt: Tensor | Sequence[Any] | None, batch_size: int | None
) -> tuple[int, Tensor | None]:
    """How many sequences there are, and a prompt for each, (batch, length), if there is one."""
    if prompt is None:
        return 1 if batch_size is None else batch_size, None
    if isinstance(prompt, Tensor) and prompt.is_meta:
        raise ValueError("prompt is on the device meta and holds no symbols")
    given = torch.as_tensor(prompt, device=cast(Any, model).encoder.weight.device)
    if given.ndim not in (1, 2):
        raise ValueError(f"prompt must be (length,) or (batch, length), got {tuple(given.shape)}")
    given = torch.atleast_2d(given)
    size = len(given) if batch_size is None else batch_size
    if len(given) == 1:
        given = given.expand(size, -1)
    return size, given if given.shape[1] else None


def _beginning(model: Model) -> int | None:
    """The token that stands for the beginning, if the model has one; an error if it is no use."""
    check_model(model)
    return model.d_output if model.d_input > model.d_output else None
