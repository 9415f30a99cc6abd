"""Sequences inside of a batch: where each begins and ends, when one row holds several of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from s4d_torch.ssm.precision import double_dtype


@dataclass(frozen=True)
class Pieces:
    """``spans`` (n, 2): the first place of each piece among all (batch x length), and its length.

    ``rows`` is None where pieces are sequences of their own, with a state each. Where a row of the
    batch is cut by resets it is ``(first, goes_on, last)``: the row of each piece, (n,), whether
    the state of that row goes on into it, (n,), and the last piece of each row, (batch,).
    """

    spans: Tensor
    rows: tuple[Tensor, Tensor, Tensor] | None = None

    @staticmethod
    def packed(offsets: Tensor) -> "Pieces":
        """Sequences one after the other: offsets (n + 1,), 0 and the end of each."""
        return Pieces(torch.stack([offsets[:-1], offsets[1:] - offsets[:-1]], dim=1))

    @staticmethod
    def cut(resets: Tensor, lengths: Tensor | None) -> "Pieces":
        """Rows cut where ``resets`` (batch, length) says that a sequence begins."""
        batch, length = resets.shape
        begins = resets.clone()
        begins[:, 0] = True  # a piece begins there, whether it is new or goes on
        if lengths is not None:
            begins &= torch.arange(length, device=resets.device) < lengths[:, None]
        row, first = begins.nonzero(as_tuple=True)
        ends = torch.full_like(row[:1], length).expand(batch) if lengths is None else lengths
        following = torch.cat([row[1:] == row[:-1], row.new_zeros(1, dtype=torch.bool)])
        later = torch.cat([first[1:], first[:1]])
        count = torch.where(following, later, ends[row]) - first
        goes_on = (first == 0) & ~resets[row, first]
        spans = torch.stack([row * length + first, count], dim=1)
        return Pieces(spans, (row, goes_on, (~following).nonzero()[:, 0]))

    def __len__(self) -> int:
        return self.spans.shape[0]

    def of_each(self, x: Tensor) -> Tensor:
        """Which piece the samples of x (batch, length, ...) belong to, (batch, length).

        What lies beyond the end of a row is counted to its last piece.
        """
        places = torch.arange(x.shape[0] * x.shape[1], device=x.device)
        found = torch.searchsorted(self.spans[:, 0].contiguous(), places, right=True) - 1
        return found.view(x.shape[0], -1)

    def start(self, state: Tensor | None) -> Tensor | None:
        """The state before each piece, from that of each row of the batch."""
        if state is None or self.rows is None:
            return state
        row, goes_on, _ = self.rows
        shown = goes_on.view(-1, *[1] * (state.ndim - 1))
        return torch.where(shown, state[row], torch.zeros_like(state[:1]))

    def end(self, state: Tensor) -> Tensor:
        """The state after each row, from that after each piece."""
        return state if self.rows is None else state[self.rows[2]]

    def padded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, length, ...) -> (n, longest, ...), zeros beyond the ends, and the places of all.

        Places (n, longest) lie outside, at -1, beyond the ends.
        """
        longest = int(self.spans[:, 1].max())
        inside = torch.arange(longest, device=x.device)
        valid = inside < self.spans[:, 1:]
        places = torch.where(valid, self.spans[:, :1] + inside, -1)
        taken = x.flatten(0, 1)[places.clamp(min=0)]
        shown = valid.view(*valid.shape, *[1] * (taken.ndim - 2))
        return torch.where(shown, taken, torch.zeros_like(taken)), places

    @staticmethod
    def spread(y: Tensor, places: Tensor, like: Tensor) -> Tensor:
        """The way back: (n, longest, H) -> the shape of ``like`` (batch, length, ...)."""
        valid = places >= 0
        flat = y.new_zeros(like.shape[0] * like.shape[1], y.shape[2])
        return flat.index_put((places[valid],), y[valid]).view(*like.shape[:2], -1)

    def sums(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (batch, length, H) over each piece, (n, H), and how many samples they are, (n,)."""
        rows = x.flatten(0, 1).to(double_dtype(x.device))
        first, count = self.spans.unbind(1)
        each = torch.arange(len(self), device=x.device).repeat_interleave(count)
        skipped = (first - (count.cumsum(0) - count)).repeat_interleave(count)
        places = torch.arange(len(each), device=x.device) + skipped
        total = rows.new_zeros(len(self), rows.shape[1]).index_add(0, each, rows[places])
        return total, count.to(rows.dtype)
