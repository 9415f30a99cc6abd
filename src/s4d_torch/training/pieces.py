"""Long sequences in pieces: what is carried from one to the next, in training and evaluation."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.nn.state import ModelState
from s4d_torch.training.batches import Part
from s4d_torch.training.distributed import Processes


class CarriedStates:
    """The states of a batch between two of its pieces, a row for each sequence of this process.

    Gradients end where a piece does. A piece that is left out, since its loss is not finite, leaves
    the states as they were.
    """

    def __init__(self, model: Pretrained, device: torch.device) -> None:
        self.model, self.device = model, device
        self.state: ModelState | None = None  # None between two batches
        self.total = 0  # sequences of the batch, in all processes
        self._end: ModelState | None = None

    def before(self, part: Part) -> ModelState | None:
        """The states that a part begins with; None for zeros."""
        if self.state is None or part.piece is None or not part.piece.number or not part.weight:
            return None
        return self.state.select(torch.from_numpy(part.rows))

    def after(self, end: ModelState | None) -> None:
        """A piece has come to this end; it is carried on once the step is made."""
        self._end = None if end is None else end.detach()

    def advance(self, part: Part, made: bool) -> None:
        """Go on to the next piece; ``made`` is whether the optimiser made a step of this one."""
        piece, end, self._end = part.piece, self._end, None
        if piece is None:
            return
        if piece.last:
            self.state = None
            return
        if not piece.number:
            self.state, self.total = _zeros(self.model, part.share), part.total
        if made and part.weight and end is not None:
            assert self.state is not None
            self.state = _with_rows(self.state, torch.from_numpy(part.rows), end)

    def tensors(self, processes: Processes) -> dict[str, Tensor]:
        """The states of all processes in the order of the batch, for a checkpoint."""
        if self.state is None:
            return {}
        return {name: processes.gather(x.cpu(), self.total) for name, x in _named(self.state)}

    def load(self, tensors: Mapping[str, Tensor], processes: Processes) -> None:
        """Go on with states of a checkpoint, by however many processes they were written."""
        self.total = len(tensors["samples"])
        mine = {name: processes.share(x).to(self.device) for name, x in tensors.items()}
        layers = tuple(mine[f"layers.{i}"] for i in range(len(mine) - 2))
        self.state = ModelState(layers, mine["total"], mine["samples"])


def _named(state: ModelState) -> Iterator[tuple[str, Tensor]]:
    yield "total", state.total
    yield "samples", state.samples
    for i, layer in enumerate(state.layers):
        yield f"layers.{i}", layer


def _zeros(model: Pretrained, rows: int) -> ModelState:
    """States before the first sample; perhaps of no sequence at all."""
    assert isinstance(model, SequenceModel)  # no other one has answers at each sample
    return model.initial_state(max(1, rows)).select(torch.arange(rows))


def _with_rows(state: ModelState, rows: Tensor, new: ModelState) -> ModelState:
    pairs = dict(_named(new))
    changed = {name: x.index_copy(0, rows.to(x.device), pairs[name]) for name, x in _named(state)}
    layers = tuple(changed[f"layers.{i}"] for i in range(len(state.layers)))
    return ModelState(layers, changed["total"], changed["samples"])
